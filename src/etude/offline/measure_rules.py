"""Grammar rules for measures: counts, sums, extremes, statistics, and numbers that a count must reach."""

from __future__ import annotations

from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import (
    Condition,
    Fn,
    Group,
    Measure,
    NamePart,
    Threshold,
)
from etude.offline.rule_items import is_count, item_tagged, items_tagged, items_text
from etude.offline.tags import TaggedItem
from etude.offline.units import written_unit


def read_at_least(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`at least 3 orders`; of a column, a condition on its number."""
    op, number, thing = item_tagged(items, "ce"), item_tagged(items, "N"), items[-1]
    if written_unit(number.text) == "percent":
        # "At least 10% of ..." is a part of a whole that the words do not name.
        return None
    distinct = bool(items_tagged(items, "U"))
    if thing.tag == "C" and not distinct:
        condition = Condition("compare", items_text(items), thing.data, op.data, (number.data,), said="counted")
        return [TaggedItem("F", items_text(items), condition)]
    counted = Measure("count", thing.data, distinct, text=items_text(items))
    return [TaggedItem("H", items_text(items), Threshold(counted, op.data, number.data))]


def read_exactly(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`papers that have 1 keyphrase`."""
    if not is_count(items[0]):
        return None
    return [
        TaggedItem(
            "H",
            items_text(items),
            Threshold(Measure("count", items[1].data, text=items_text(items)), "=", items[0].data),
        )
    ]


def read_count(items: list[TaggedItem]) -> list[TaggedItem]:
    """`number of orders`."""
    distinct = items[0].data == "distinct" or bool(items_tagged(items, "U"))
    thing = item_tagged(items, "TC")
    return [TaggedItem("E", items_text(items), Measure("count", thing.data, distinct, text=items_text(items)))]


def read_count_rows(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`how many rows are in orders`."""
    return read_count([items[0], items[2]]) if items[1].text in ("in", "of", "for", "from") else None


def read_aggregate(items: list[TaggedItem]) -> list[TaggedItem]:
    """`average price`."""
    thing = item_tagged(items, "TC")
    counted = bool(items_tagged(items, "#"))
    if counted and items[0].data == "sum":
        return read_count(items[1:])
    part = items[0].data if isinstance(items[0].data, float) else None
    fn: Fn = "quantile" if part is not None else items[0].data
    measure = Measure(fn, thing.data, bool(items_tagged(items, "U")), of_count=counted, at=part, text=items_text(items))
    return [TaggedItem("E", items_text(items), measure)]


def read_correlation(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`correlation between price and rating`."""
    first, second = items_tagged(items, "C")
    if items[0].data != "correlation":
        return None
    return [
        TaggedItem(
            "E", items_text(items), Measure("correlation", first.data, until=second.data, text=items_text(items))
        )
    ]


def read_outliers(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`outliers in price`: the rows whose number lies far from most others."""
    if items[0].data != "outlier":
        return None
    column = items[-1]
    return [TaggedItem("F", items_text(items), Condition("outlier", items_text(items), column.data))]


def read_outlying_rows(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`outliers in price` alone: the rows, and their prices."""
    made = read_outliers(items)
    if made is None:
        return None
    column = items[-1]
    tables = tuple(dict.fromkeys(Meaning(m.table) for m in column.data.columns))
    rows = TaggedItem("T", column.text, NamePart(column.text, tables), plural=True)
    return [rows, TaggedItem("&", "with their"), column, *made]


def read_distribute_count(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`maximum and minimum number of cows`: both of the number that the column holds."""
    if not any(item.tag in "M#" for item in items):
        return None
    named = {
        "maximum number of": "max",
        "highest number of": "max",
        "minimum number of": "min",
        "lowest number of": "min",
    }
    made: list[TaggedItem] = []
    for item in items[:-1]:
        if item.tag == "M" and item.text not in named:
            return None
        if item.tag in "AM":
            measured = item if item.tag == "A" else TaggedItem("A", item.text, named[item.text])
            made += [TaggedItem("&", "and"), measured, TaggedItem("#", "number of", ""), items[-1]]
    return made[1:]


def read_distribute(items: list[TaggedItem]) -> list[TaggedItem]:
    """`lowest and highest price` is both of the price."""
    made: list[TaggedItem] = []
    for item in items[:-1]:
        if item.tag in "AS":
            made += [TaggedItem("&", "and"), item, items[-1]]
    return made[1:]


def read_days(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`average number of days between ordering and shipping`."""
    if item_tagged(items, "t").data != "day":
        return None
    first, second = items_tagged(items, "C")
    return [
        TaggedItem(
            "E", items_text(items), Measure(items[0].data, first.data, until=second.data, text=items_text(items))
        )
    ]


def read_spread(items: list[TaggedItem]) -> list[TaggedItem]:
    """`distribution of status`: rows for each value; `spread of prices`: lowest, median and highest."""
    column = items[-1]
    if items[0].data == "distribution":
        tables = tuple(dict.fromkeys(Meaning(m.table) for m in column.data.columns))
        rows = Measure("count", NamePart(column.text, tables), text=items_text(items))
        group = Group(column.data, None, f"distribution of {column.text}")
        return [TaggedItem("E", items_text(items), rows), TaggedItem("B", items_text(items), (group,))]
    measures = quartiles_of(column.data)[1:4]
    if items[0].data == "spread":
        fns: tuple[Fn, ...] = ("min", "median", "max", "stddev")
        measures = [Measure(fn, column.data, text=fn) for fn in fns]
    made = [[TaggedItem("&", "and"), TaggedItem("E", items_text(items), measure)] for measure in measures]
    return [item for pair in made for item in pair][1:]


def quartiles_of(name: NamePart) -> list[Measure]:
    """Return the five numbers that describe how a column is distributed."""
    low, high = Measure("min", name, text="min"), Measure("max", name, text="max")
    parts = [Measure("quantile", name, at=part, text=f"quantile {part}") for part in (0.25, 0.75)]
    return [low, parts[0], Measure("median", name, text="median"), parts[1], high]
