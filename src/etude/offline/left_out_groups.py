"""Groups that a join leaves out: the playlists without tracks, if tracks are counted for each playlist."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.sources.plan import QueryPlan
from etude.sources.plan.query_plan import Aggregate, ColumnRef, Join, PlanRef


def find_left_out_groups(plan: QueryPlan, vocabulary: Vocabulary, query: Callable[[QueryPlan], Iterable[Any]]) -> str:
    """Return a sentence with the number of things that have none of what is counted; empty if there are none."""
    inner = plan
    while isinstance(inner.source, PlanRef):
        inner = inner.source.plan
    keys = {c.column for c in inner.group_by if isinstance(c, ColumnRef)}
    tables = {c.table for c in inner.group_by if isinstance(c, ColumnRef)}
    if inner.where or inner.having or len(tables) != 1 or len(keys) != len(inner.group_by):
        return ""
    joined = {join.table for join in inner.joins if isinstance(join, Join)}
    named = {vocabulary_name_without_schema(table.name): table for table in vocabulary.tables}
    (name,) = tables
    table, counted = named.get(str(name)), named.get(str(inner.source))
    if table is None or counted is None or name not in joined or not table.key or not {*table.key} <= keys:
        return ""
    whole = inner.model_copy(update={"select": (), "order_by": (), "limit": None, "top": None})
    number = QueryPlan(source=PlanRef(plan=whole, alias="groups"), aggregate=(Aggregate(fn="count", alias="n"),))
    left = table.rows - next(iter(query(number)))[0]
    if left <= 0:
        return ""
    are = "row of `{}` has no `{}` and is" if left == 1 else "rows of `{}` have no `{}` and are"
    return f"{left:,} {are.format(name, counted.name)} not counted."
