"""`execute_query_plan`: a query as typed data, compiled to the dataset's dialect."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Bench, Tool
from etude.tools.shown import show_result


class Arguments(Entity):
    """What to run."""

    dataset: str
    plan: dict[str, Any] = Field(description="a QueryPlan")


class ExecuteQueryPlan(Tool):
    """Runs a QueryPlan."""

    name = "execute_query_plan"
    description = "Run a QueryPlan (typed JSON: from, joins, where, group_by, aggregate, order_by, limit) on a dataset."
    arguments = Arguments

    def use(self, bench: Bench, arguments: Any) -> str:
        """The result, cut."""
        return show_result(bench.plan(arguments.dataset, arguments.plan), bench)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The arguments, with the schema of a plan in them."""
        from etude.sources.plan import plan_schema

        plan = plan_schema()
        definitions = plan.pop("$defs", {})
        fields = {"dataset": {"type": "string"}, "plan": plan}
        return {"type": "object", "properties": fields, "required": ["dataset", "plan"], "$defs": definitions}
