"""Numbers that stand for a missing value, such as -9999: an average leaves them out, and the answer says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from etude.offline.plan_check import plan_nodes
from etude.offline.understand import Understanding
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, once_per_vocabulary
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.sources.plan.query_plan import Aggregate, ColumnRef, Compare, QueryPlan

_FOLDS = frozenset(("sum", "avg", "min", "max", "median", "quantile", "stddev"))
_LOW = frozenset((-99, -999, -9999, -99999, -999999))
_HIGH = frozenset((999, 9999, 99999, 999999))
_FAR = 8
"""A marker is this many times as large as any other number of its column."""

RunPlan = Callable[[QueryPlan], Iterable[Sequence[Any]]]


def leave_out_markers(meant: Understanding, vocabulary: Vocabulary, run: RunPlan) -> Understanding:
    """Return the question with a plan that leaves out negative markers of missing values, and a note on all of them.

    A high number such as 9999 may be a real one; it is only mentioned.
    """
    folded = [n.of for n in plan_nodes(meant.plan) if isinstance(n, Aggregate) and n.fn in _FOLDS and n.filter is None]
    marked = _columns_with_markers(vocabulary)
    used = {
        ref: marked[ref.table, ref.column] for ref in folded if isinstance(ref, ColumnRef) and _place(ref) in marked
    }
    told: list[str] = []
    left_out: dict[ColumnRef, int] = {}
    for ref, (table, column, markers) in used.items():
        for marker in markers:
            rows = _count_marked(table, column, marker, run)
            if not rows:
                continue
            said = f"`{column.name}` is {marker} in {f'{rows:,} rows' if rows > 1 else 'one row'}"
            if marker < 0:
                left_out[ref] = marker
                told.append(f"{said}, which is taken as a missing value and left out.")
            else:
                told.append(f"{said}, far above all others; it may stand for a missing value.")
    if not told:
        return meant
    plan = _rewrite(meant.plan, left_out)
    return replace(meant, plan=plan, reasons=(*meant.reasons, *told), told=(*meant.told, *told))


def _place(ref: ColumnRef) -> tuple[str | None, str]:
    return ref.table, ref.column


@once_per_vocabulary
def _columns_with_markers(
    vocabulary: Vocabulary,
) -> dict[tuple[str | None, str], tuple[str, VocabularyColumn, tuple[int, ...]]]:
    """Return the columns whose lowest or highest number looks like a marker, with their tables and these numbers."""
    found: dict[tuple[str | None, str], tuple[str, VocabularyColumn, tuple[int, ...]]] = {}
    for table in vocabulary.tables:
        for column in table.columns:
            if column.kind != "number" or column.identifies or column.as_text or column.distinct < 3:
                continue
            ends = [(column.low, _LOW), (column.high, _HIGH)]
            markers = tuple(int(end) for end, known in ends if isinstance(end, int | float) and end in known)
            if markers:
                found[vocabulary_name_without_schema(table.name), column.name] = table.name, column, markers
    return found


def _count_marked(table: str, column: VocabularyColumn, marker: int, run: RunPlan) -> int:
    """Return in how many rows the marker stands; 0 if the other numbers are not far from it."""
    place = ColumnRef(column=column.name, table=vocabulary_name_without_schema(table))
    others = Compare(column=place, op=">" if marker < 0 else "<", value=marker)
    # The other end may be a marker, too.
    beside = Compare(column=place, op="!=", value=column.high if marker < 0 else column.low)
    ends = tuple(Aggregate(fn=fn, of=place, filter=others, alias=fn) for fn in ("min", "max"))
    marked = Aggregate(fn="count", filter=Compare(column=place, op="=", value=marker), alias="marked")
    plan = QueryPlan(source=table, where=(beside,) if _is_marker(column, marker) else None, aggregate=(*ends, marked))
    for low, high, rows in run(plan):
        if low is not None and high is not None and abs(marker) >= _FAR * max(abs(float(low)), abs(float(high))):
            return int(rows)
    return 0


def _is_marker(column: VocabularyColumn, marker: int) -> bool:
    """Return whether the end of the column that is not this marker looks like one."""
    return (column.high in _HIGH) if marker < 0 else (column.low in _LOW)


def _rewrite(node: Any, left_out: dict[ColumnRef, int]) -> Any:
    """Return a part of a plan in which measures of these columns leave out their markers."""
    if isinstance(node, tuple):
        return tuple(_rewrite(each, left_out) for each in node)
    if not isinstance(node, BaseModel):
        return node
    if isinstance(node, Aggregate) and node.filter is None and node.fn in _FOLDS and node.of in left_out:
        return node.model_copy(update={"filter": Compare(column=node.of, op="!=", value=left_out[node.of])})
    return node.model_copy(update={name: _rewrite(getattr(node, name), left_out) for name in type(node).model_fields})
