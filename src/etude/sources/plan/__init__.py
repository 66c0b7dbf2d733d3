"""QueryPlan: a query as typed data. `compile` turns it into the SQL of a source."""

from etude.sources.plan.query_plan import QueryPlan, parse_plan, plan_schema

__all__ = ["QueryPlan", "parse_plan", "plan_schema"]
