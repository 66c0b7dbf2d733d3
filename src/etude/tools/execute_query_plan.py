"""`execute_query_plan`: run a QueryPlan, a query as typed data, compiled to the dataset's SQL dialect."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import ONLY, Tool, ToolContext
from etude.tools.result_text import result_text_for_model

# The full JSON schema is ten times as long and would be sent with every turn; a wrong plan fails with an error anyway.
SHAPE = """{"from": t, "joins": [t by its key, or {"table": t, "on": [["a.x", "t.y"]]}], "where": [{"column": c, "op":
"= != < <= > >= in between like contains is null", "value": v}], "group_by": [c or {"grain": "month", "of": c}],
"aggregate": [{"fn": "count sum avg min max median", "of": c, "as": name}], "having": [...], "top": {"n": 3, "per": [c],
"by": name}, "order_by": [{"by": name, "desc": true}], "limit": n}; c is a column or {"op": "*", "args": [c, c]}"""


class Arguments(Entity):
    """The plan to run."""

    dataset: str = Field(default="", description=ONLY)
    plan: dict[str, Any] = Field(description=SHAPE)


class ExecuteQueryPlan(Tool):
    """Runs a QueryPlan."""

    name = "execute_query_plan"
    description = "Run a query as JSON."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return the shape of the result and its first rows."""
        return result_text_for_model(context.plan(arguments.dataset, arguments.plan), context)
