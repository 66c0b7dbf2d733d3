"""Grammar rules for comparisons: a column, a number and what relates them, or the average as the number."""

from __future__ import annotations

from dataclasses import replace

from etude.offline.question_parts import (
    Condition,
    Threshold,
)
from etude.offline.rule_items import comparison_of, is_count, item_tagged, items_tagged, items_text, read_part_of
from etude.offline.tags import TaggedItem
from etude.offline.units import written_unit


def read_compare(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`price over 100`; of a measure, a condition on the measure."""
    column, number = item_tagged(items, "CE"), item_tagged(items, "N")
    ops = items_tagged(items, "ceo")
    op = comparison_of(ops[0]) if ops else "="
    if column.tag == "E" and ops and ops[0].tag == "o":
        # "The number of captains younger than 50": the captains are, not their number.
        return [column, *read_adjective([ops[0], number])] if column.data.fn == "count" else None
    if column.tag == "E":
        return [TaggedItem("H", items_text(items), Threshold(column.data, op, number.data, written_unit(number.text)))]
    condition = Condition("compare", items_text(items), column.data, op, (number.data,), unit=written_unit(number.text))
    return [TaggedItem("F", items_text(items), condition)]


def read_compare_not(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`age is not 20`."""
    if items[1].data is not None or items[1].text not in ("not", "is not", "are not", "was not", "were not"):
        return None
    return read_compare([items[0], TaggedItem("c", items[1].text, "!="), items[2]])


def read_compare_again(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`age is 36 or 37`, `price above 100 or below 5`: the same column again."""
    first: Condition = items[0].data
    if first.kind != "compare" or first.negated or written_unit(items[-1].text) != first.unit:
        return None
    ops = items_tagged(items, "co")
    op = comparison_of(ops[0]) if ops else "="
    if first.implied and ops and ops[0].text.split()[0] not in ("more", "less", "over", "under", "above", "below"):
        return None  # "longer than 100 or higher than 20" is about two columns
    if op == "=" and any(part.op != "=" for part in (first, *first.either)):
        return None
    second = replace(first, text=items_text(items[2:]), op=op, values=(items[-1].data,), either=())
    return [TaggedItem("F", items_text(items), replace(first, text=items_text(items), either=(*first.either, second)))]


def read_adjective(items: list[TaggedItem]) -> list[TaggedItem]:
    """`older than 56`: the adjective says which column is compared."""
    adjective, number = items[0], items[1]
    op, implied = adjective.data
    condition = Condition(
        "compare",
        items_text(items),
        None,
        op,
        (number.data,),
        unit=written_unit(number.text),
        implied=tuple(implied.split()),
    )
    return [TaggedItem("F", items_text(items), condition)]


def read_adjective_average(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`older than the average`, `older than the average age`."""
    adjective, average = items[0], items[1]
    if average.data not in ("avg", "median"):
        return None
    op, implied = adjective.data
    name = items[2].data if len(items) > 2 else None
    return [
        TaggedItem(
            "F",
            items_text(items),
            Condition("average", items_text(items), name, op, (average.data,), implied=tuple(implied.split())),
        )
    ]


def read_numbered(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`4 cylinder cars`: the number belongs to the singular noun after it, which is a column."""
    number, column, table = items
    if column.plural or not column.joined or not table.joined or not isinstance(number.data, int):
        return None
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if not own:
        return None
    condition = Condition("compare", items_text(items[:2]), replace(column.data, meanings=own), "=", (number.data,))
    return [table, TaggedItem("F", condition.text, condition)]


def read_compare_column(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`above the age of 30`, `over age 30`."""
    return read_compare([item_tagged(items, "C"), item_tagged(items, "c"), items[-1]])


def read_between(items: list[TaggedItem]) -> list[TaggedItem]:
    """`price between 10 and 20`."""
    low, high = items_tagged(items, "N")[:2]
    values, unit = (low.data, high.data), written_unit(high.text) or written_unit(low.text)
    condition = Condition("between", items_text(items), items[0].data, "between", values, unit=unit)
    return [TaggedItem("F", items_text(items), condition)]


def read_between_worth(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`orders between 5 and 10`: what each is worth, if that is one number and not a year."""
    thing, numbers = items[0], items_tagged(items, "N")
    years = all(isinstance(n.data, int) and 1900 <= n.data <= 2100 for n in numbers)
    units = {written_unit(number.text) for number in numbers}
    if years or "percent" in units or (thing.tag == "E" and thing.data.fn != "count"):
        return None
    (condition,) = read_between([TaggedItem("C", "", None), *[item for item in items[1:] if item.tag != "p"]])
    text = items_text(items[1:])
    return [thing, TaggedItem("F", text, replace(condition.data, name=None, text=text))]


def read_numbered_row(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the patient in room 111`: the number is the key of the room."""
    table, number = items
    if table.plural or not number.joined or not isinstance(number.data, int) or number.text != str(number.data):
        return None
    name = replace(table.data, meanings=table.data.tables)
    return [
        table,
        TaggedItem("F", items_text(items), Condition("compare", items_text(items), name, "=", (number.data,))),
    ]


def read_amounting(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`cars that have 8 cylinders`: the noun is a column that holds how many."""
    before, number, column = items
    if not is_count(number) or not column.joined or not (column.plural or number.data == 1):
        return None
    text = items_text(items[1:])
    return [before, TaggedItem("F", text, Condition("compare", text, column.data, "=", (number.data,), said="counted"))]


def read_above_average(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`price above the average`."""
    column, op, average = items[0], item_tagged(items, "co"), item_tagged(items, "A")
    if average.data not in ("avg", "median"):
        return None
    if items[-1].tag == "C" and not read_part_of([column, TaggedItem("p", "of"), items[-1]]):
        return None
    return _compared_with_average(items, column, op, average)


def read_above_average_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`players with more than the average points`."""
    op, average, column = items[0], items[1], items[-1]
    if average.data not in ("avg", "median") or column.data.tables:
        return None
    return _compared_with_average(items, column, op, average)


def _compared_with_average(
    items: list[TaggedItem], column: TaggedItem, op: TaggedItem, average: TaggedItem
) -> list[TaggedItem]:
    text = items_text(items)
    return [TaggedItem("F", text, Condition("average", text, column.data, comparison_of(op), (average.data,)))]


def read_compare_in(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`who earn more than 30,000 in salary`."""
    op, number, inside, column = items
    if inside.text not in ("in", "as") or column.data.tables or column.plural:
        return None
    return read_compare([column, op, number])


def read_worth(items: list[TaggedItem], first: bool = False) -> list[TaggedItem] | None:
    """`orders over 500`: compare what each is worth, if that is one number; a count that comes first is asked for."""
    thing, op, number = items[0], item_tagged(items, "c"), item_tagged(items, "N")
    if thing.tag == "E" and (thing.data.fn != "count" or not (first or thing.text.startswith("how many"))):
        return None
    unit = written_unit(number.text)
    if unit == "percent":
        return [thing, TaggedItem("u", f"{op.text} {number.text}")]
    condition = Condition("compare", f"{op.text} {number.text}", None, op.data, (number.data,), unit=unit)
    return [thing, TaggedItem("F", condition.text, condition)]
