"""`execute_query_plan`: a query as typed data, compiled to the dataset's dialect."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext
from etude.tools.shown import show_result

# The whole JSON schema is ten times as long, and is sent with every turn; what a plan gets wrong is told when it runs.
SHAPE = """{"from": table, "joins": [table along its foreign key, or {"table": t, "on": [["a.x", "t.y"]]}],
"where": [{"column": c, "op": "= != < <= > >= in between like contains is null", "value": v}], "group_by": [column or
{"grain": "month", "of": date column}], "aggregate": [{"fn": "count sum avg min max median", "of": column, "distinct":
true, "as": name}], "having": [...], "top": {"n": 3, "per": [column], "by": name}, "order_by": [{"by": name, "desc":
true}], "limit": n}; only "from" is required"""


class Arguments(Entity):
    """What to run."""

    dataset: str
    plan: dict[str, Any] = Field(description=SHAPE)


class ExecuteQueryPlan(Tool):
    """Runs a QueryPlan."""

    name = "execute_query_plan"
    description = "Run a QueryPlan, a query as JSON that is the same for every SQL dialect, on a dataset."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """The result, cut."""
        return show_result(context.plan(arguments.dataset, arguments.plan), context)
