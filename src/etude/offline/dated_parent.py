"""The date of lines that have none: that of the order which they are part of."""

from __future__ import annotations

from etude.offline.joins import join_hops
from etude.offline.resolver import TECHNICAL
from etude.offline.revenue import rows_are_sales
from etude.offline.vocabulary import Vocabulary

_LINES = frozenset(("item", "line", "detail", "entry", "position"))
"""Words in the names of tables whose rows are parts of another row: `order_items`."""


def find_dated_parent(vocabulary: Vocabulary, table: str) -> list[str]:
    """Return the table whose date is that of the lines: the only one with a date that each line refers to; or nothing.

    It must have exactly one date, and one key must lead to it. A product has a date of its own, which is not that of
    the line; so rows of the parent must be sales.
    """
    lines = vocabulary.table(table)
    if any(column.kind in ("date", "timestamp") for column in lines.columns):
        return []
    if not lines.derived and not _LINES & {*lines.words}:
        return []
    ways = [hop.to_table for hop in join_hops(vocabulary).get(table, ()) if hop.to_one and not hop.back]
    dated = [name for name in ways if _dates(vocabulary, name)]
    if len(dated) != 1 or _dates(vocabulary, dated[0]) != 1 or not rows_are_sales(vocabulary.table(dated[0])):
        return []
    return dated


def _dates(vocabulary: Vocabulary, table: str) -> int:
    dates = [c for c in vocabulary.table(table).columns if c.kind in ("date", "timestamp")]
    return len([c for c in dates if not TECHNICAL & {*c.words}] or dates)
