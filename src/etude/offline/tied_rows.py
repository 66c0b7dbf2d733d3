"""Rows that tie with the last of the first ones: the top five may leave out a sixth that is as good as the fifth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from etude.sources.plan import QueryPlan
from etude.sources.plan.query_plan import ColumnRef, Order

MOST = 50
"""At most this many rows are looked at after the last."""


def find_tied_rows(
    plan: QueryPlan, columns: Sequence[str], rows: Sequence[Sequence[Any]], query: Callable[[QueryPlan], Iterable[Any]]
) -> str:
    """Return a sentence if rows that were left out have the same number as the last one shown; else an empty text."""
    first = plan.order_by[0] if plan.order_by else None
    if plan.limit is None or len(rows) != plan.limit or not isinstance(first, Order):
        return ""
    by = first.by.column if isinstance(first.by, ColumnRef) else first.by
    if not isinstance(by, str) or list(columns).count(by) != 1:
        return ""
    place, last = list(columns).index(by), rows[-1]
    more = islice(query(plan.model_copy(update={"limit": plan.limit + MOST})), plan.limit, plan.limit + MOST)
    tied = sum(row[place] == last[place] for row in more)
    if not tied or last[place] is None:
        return ""
    how_many = "One more row ties" if tied == 1 else f"{tied if tied < MOST else f'At least {MOST}'} more rows tie"
    return f"{how_many} with the last of these."
