"""Values that differ only in case and blanks, such as `7b` and `7B`: a group and a filter take them for one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable, once_per_vocabulary
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import fold_words
from etude.sources.plan.query_plan import (
    Aggregate,
    Case,
    ColumnRef,
    Compare,
    InList,
    Named,
    Order,
    PlanRef,
    QueryPlan,
    Value,
    When,
)

MOST_SPELLINGS = 100
"""A column with more values that are spelled in several ways keeps them apart, and the answer says so."""
SHOWN = 2


_BETWEEN = re.compile(r"(?<=([^\W_]))[\s_\-\u2010\u2011\u2013]+(?=([^\W_]))")


def plain_spelling(value: str) -> str:
    """Return a value without the differences that people do not mean: `E-bike`, `e bike` and `Ebike` are one.

    A hyphen at an end, as in the grade `A-`, and anything between two digits stay.
    """
    plain = fold_words(value).replace("'", "")
    joined = _BETWEEN.sub(lambda at: "-" if at[1].isdigit() and at[2].isdigit() else "", plain)
    return " ".join(joined.split())


def group_spellings(values: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of values that differ only in case, blanks and hyphens."""
    listed = list(values)
    if _differ_in_letters(listed):
        return []
    found: dict[str, list[str]] = defaultdict(list)
    for value in listed:
        found[plain_spelling(value)].append(value)
    return [tuple(alike) for alike in found.values() if len(alike) > 1]


_SEPARATORS = str.maketrans("", "", " \t\v\f\r\x1c\x1d\x1e\x1f_-'")


def _differ_in_letters(values: Sequence[str]) -> bool:
    """Return whether it is sure, at little cost, that no two values are spellings of one.

    True for most columns: their values are ASCII, and still differ without their blanks and hyphens.
    """
    text = "\n".join(values)
    plain = text.lower().translate(_SEPARATORS).split("\n") if text.isascii() else []
    return len(plain) == len(values) and len({*plain}) == len(plain)


def fold_spellings(plan: QueryPlan, vocabulary: Vocabulary) -> tuple[QueryPlan, list[str]]:
    """Return the plan with its groups and counts of different values folded, and notes that say so."""
    columns = _spelled_columns(vocabulary)
    notes: dict[str, None] = {}
    folded = _fold(plan, columns, notes)
    for note in _notes_on_conditions(plan, columns):
        if not any(note.partition(":")[0] in other for other in notes):
            notes[note] = None
    return folded, list(notes)


@once_per_vocabulary
def _spelled_columns(vocabulary: Vocabulary) -> _Columns:
    """Return the columns with texts that may be spelled in several ways."""
    return {
        (vocabulary_name_without_schema(table.name), column.name): (table, column)
        for table in vocabulary.tables
        for column in table.columns
        if column.kind == "text" and (column.spellings or len(column.values) > 1)
    }


def _notes_on_conditions(plan: QueryPlan, columns: _Columns) -> Iterator[str]:
    """Yield a note for each condition that takes several spellings for one value."""
    for condition in _lists_in(plan.model_dump()):
        ref = condition["column"]
        known = columns.get((ref.get("table") or "", ref.get("column", "")))
        alike = [g for g in known[1].spellings if {*g} <= {*condition["value"]}] if known else []
        if known and alike:
            yield _together(known[1], alike)


def _lists_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the conditions of a plan, as plain values, that compare a column with a list."""
    if isinstance(value, dict):
        if isinstance(value.get("column"), dict) and isinstance(value.get("value"), list | tuple):
            yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _lists_in(each)


_Columns = dict[tuple[str, str], tuple[VocabularyTable, VocabularyColumn]]


def _fold(plan: QueryPlan, columns: _Columns, notes: dict[str, None]) -> QueryPlan:
    source = plan.source
    if isinstance(source, PlanRef):
        inner = _fold(source.plan, columns, notes)
        return (
            plan
            if inner == source.plan
            else plan.model_copy(update={"source": source.model_copy(update={"plan": inner})})
        )
    grouped = [ref for ref in plan.group_by if isinstance(ref, ColumnRef)]
    names = [ref.column.lower() for ref in grouped] + [
        each.alias.lower() for each in plan.group_by if isinstance(each, Named)
    ]
    folded: dict[ColumnRef, Named] = {}
    for ref in grouped:
        known = columns.get((ref.table or "", ref.column))
        if known is None or _is_one_row(known[0], grouped):
            continue
        if names.count(ref.column.lower()) == 1 and known[1].spellings:
            folded[ref] = Named(expr=_folded(ref, known[1]), alias=ref.column)
            notes[_together(known[1])] = None
        else:
            notes.update(dict.fromkeys(_apart(known[1])))
    measures = tuple(_fold_measure(each, columns, notes) for each in plan.aggregate)
    if not folded and measures == plan.aggregate:
        return plan
    return plan.model_copy(
        update={
            "group_by": _replaced(plan.group_by, folded),
            "select": _replaced(plan.select, folded),
            "order_by": tuple(_fold_order(each, folded) for each in plan.order_by),
            "aggregate": measures,
        }
    )


def _is_one_row(table: VocabularyTable, grouped: Sequence[ColumnRef]) -> bool:
    """Return whether the key of the table is among the groups: each is one row, with a name of its own."""
    held = {ref.column for ref in grouped if ref.table == vocabulary_name_without_schema(table.name)}
    return bool(table.key) and {*table.key} <= held


def _replaced(items: Sequence[Any], folded: dict[ColumnRef, Named]) -> tuple[Any, ...]:
    return tuple(folded.get(each, each) if isinstance(each, ColumnRef) else each for each in items)


def _fold_order(order: Any, folded: dict[ColumnRef, Named]) -> Any:
    if isinstance(order, Order) and isinstance(order.by, ColumnRef) and order.by in folded:
        return order.model_copy(update={"by": folded[order.by].alias})
    return order


def _fold_measure(measure: Aggregate, columns: _Columns, notes: dict[str, None]) -> Aggregate:
    ref = measure.of
    if not measure.distinct or not isinstance(ref, ColumnRef):
        return measure
    known = columns.get((ref.table or "", ref.column))
    if known is None or known[1].identifies:
        return measure
    if not known[1].spellings:
        notes.update(dict.fromkeys(_apart(known[1])))
        return measure
    notes[_together(known[1])] = None
    return measure.model_copy(update={"of": _folded(ref, known[1])})


def _folded(ref: ColumnRef, column: VocabularyColumn) -> Case:
    """Return the column with each value in its most frequent spelling."""
    whens = []
    for first, *others in column.spellings:
        alike = Compare(column=ref, op="=", value=others[0])
        several = InList(column=ref, op="in", value=tuple(others))
        whens.append(When(when=alike if len(others) == 1 else several, then=Value(value=first)))
    return Case(case=tuple(whens), otherwise=ref)


def _together(column: VocabularyColumn, groups: Sequence[tuple[str, ...]] = ()) -> str:
    groups = groups or column.spellings
    shown = ", ".join(" and ".join(f"`{value}`" for value in alike) for alike in groups[:SHOWN])
    more = f", and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
    values = f"Values of `{column.name}` that differ only in case, blanks, hyphens or accents"
    return f"{values} are counted together: {shown}{more}."


def _apart(column: VocabularyColumn) -> list[str]:
    same = sum(len(alike) - 1 for alike in group_spellings(column.values))
    if not same:
        return []
    differ = "differs" if same == 1 else "differ"
    return [
        f"{same:,} of the {len(column.values):,} values of `{column.name}` {differ} from another only in case, "
        "blanks, hyphens or accents; each is counted apart."
    ]
