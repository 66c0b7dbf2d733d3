"""Grammar rules for absence: no related rows, and missing values."""

from __future__ import annotations

from dataclasses import replace

from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import (
    Absence,
    Condition,
    Measure,
    NamePart,
)
from etude.offline.rule_items import item_tagged, items_tagged, items_text
from etude.offline.tags import TaggedItem, is_past_form
from etude.offline.zero_amounts import says_missing


def read_not_so(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`non smart gas meters`: the negation is about the adjective after it."""
    if items[0].text != "non" or not all(m.flag for m in items[1].data.meanings):
        return None
    return read_missing(items)


def read_unknown_value(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`whose build year is unknown`."""
    if items[1].data != "missing":
        return None
    (made,) = read_missing(items[:1])
    return [replace(made, data=replace(made.data, said="missing"))]


def read_absent(items: list[TaggedItem]) -> list[TaggedItem]:
    """`customers without orders`: no related row."""
    things = items_tagged(items, "T")
    if items[0].text.startswith(("missing values", "null values")):
        # "Missing values in trips": of each of its columns.
        return [TaggedItem("m", items[0].text), things[-1]]
    return [TaggedItem("X", items_text(items), Absence(things[-1].data))]


def read_absent_which(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`customers with no cancelled orders`: this includes those without any orders."""
    none = items[0].text.split()
    if not {"no", "without", "any", "have", "has", "lack", "lacking"} & {*none}:
        return None
    return [TaggedItem("X", items_text(items), Absence(items[-1].data, (items[-2].data,)))]


def read_absent_where(items: list[TaggedItem]) -> list[TaggedItem]:
    """`without orders in 2024`: no related row that meets the condition."""
    absence: Absence = items[0].data
    return [TaggedItem("X", items_text(items), replace(absence, conditions=(*absence.conditions, items[-1].data)))]


def read_gaps(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`which columns of trips have missing values and how many`."""
    table, none = items[:2]
    return [TaggedItem("m", none.text), table] if none.text in ("missing values", "null values") else None


def read_missing(items: list[TaggedItem]) -> list[TaggedItem]:
    """`without an email`: the column has no value."""
    said = says_missing(items)
    condition = Condition("null", items_text(items), items[-1].data, "is null", said=said)
    return [TaggedItem("F", items_text(items), condition)]


def read_count_missing(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`how many missing values in age`, `how many ages are missing`: rows without a value."""
    column, none = item_tagged(items, "C"), item_tagged(items, "x")
    if none.data != "missing":
        return None
    tables = tuple(Meaning(m.table) for m in column.data.columns)
    rows = Measure("count", NamePart(column.text, tuple(dict.fromkeys(tables))), text=items_text(items))
    condition = Condition("null", items_text([none, column]), column.data, "is null", said="missing")
    return [TaggedItem("E", items_text(items), rows), TaggedItem("F", condition.text, condition)]


def read_not_done_by(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`not employed by any company`: a verb and who does it, although a table holds what is done."""
    denied, done, by, doer = items
    if by.text != "by" or not is_past_form(done.text.lower()):
        return None
    return [TaggedItem("r", done.text, done.text), denied, TaggedItem("p", "by", "by"), doer]
