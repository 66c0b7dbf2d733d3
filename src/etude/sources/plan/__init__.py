"""QueryPlan: a query as typed data. `compile` makes SQL of it in the dialect of a source."""

from etude.sources.plan.model import QueryPlan, parse_plan, plan_schema

__all__ = ["QueryPlan", "parse_plan", "plan_schema"]
