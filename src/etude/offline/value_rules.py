"""Grammar rules for values of the data, and for conditions that are joined, negated or about a text."""

from __future__ import annotations

from dataclasses import replace

from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import (
    Condition,
    Group,
    NamePart,
)
from etude.offline.rule_items import item_tagged, items_tagged, items_text
from etude.offline.tags import TaggedItem


def read_inner(items: list[TaggedItem]) -> list[TaggedItem]:
    """`New York (NY)`: the value in brackets."""
    return [replace(items[2], text=items_text(items))]


def read_match(items: list[TaggedItem]) -> list[TaggedItem]:
    """`name starts with A`."""
    name = items[0].data if items[0].tag in "CT" else None
    op, text = item_tagged(items, "l").data, items[-1].text
    return [TaggedItem("F", items_text(items), Condition("match", items_text(items), name, op, (text,)))]


def read_match_again(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`starts with A or ends with B`: the same column again."""
    first: Condition = items[0].data
    if first.kind != "match":
        return None
    second = Condition("match", items_text(items[2:]), first.name, items[2].data, (items[3].text,))
    return [TaggedItem("F", items_text(items), replace(first, text=items_text(items), either=(*first.either, second)))]


def read_held_in(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`'M5' in its VIN number`: a quoted text inside a column."""
    value, inside, column = items[0], items[1], items[2]
    if inside.text != "in" or not (value.tag == "Q" or value.plural):
        return None
    condition = Condition("match", items_text(items), column.data, "icontains", (value.text,))
    return [TaggedItem("F", items_text(items), condition)]


def read_named_value(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """Return a value beside the name of its column: `the city of New York`, `Italian food`."""
    column, value = item_tagged(items, "CT"), item_tagged(items, "V")
    condition: Condition = value.data
    wanted = {(m.table, m.column) for m in column.data.columns}
    hits = tuple(hit for hit in condition.hits if (hit.table, hit.column) in wanted)
    if not hits:
        return None
    return [TaggedItem("F", items_text(items), replace(condition, text=items_text(items), hits=hits, name=column.data))]


def read_noun_again(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the red team or the blue team`: the noun is said twice, and meant once."""
    nouns, values = items_tagged(items, "T"), items_tagged(items, "V")
    if nouns[0].data.meanings != nouns[1].data.meanings or not all(item.joined for item in (items[1], items[-1])):
        return None
    columns = [{(hit.table, hit.column) for hit in value.data.hits} for value in values]
    if not columns[0] & columns[1]:
        return None
    alternatives = [values[0], items[2], values[1]]
    return [*alternatives, nouns[1]] if items[0].tag == "V" else [nouns[0], *alternatives]


def read_named_not(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`status is not completed`."""
    made = read_named_value([items[0], items[2]])
    return read_not([items[1], *made]) if made else None


def read_full_name(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`John Doe`: two names in two columns of one table; otherwise the words stay unexplained."""
    first, second = (item.data for item in items)
    if not items[1].joined:
        return None
    tables = {hit.table for hit in first.hits} & {hit.table for hit in second.hits}
    if not tables:
        # "Italian New York restaurants": values of two things.
        return None
    made = [
        replace(item, data=replace(item.data, hits=tuple(hit for hit in item.data.hits if hit.table in tables)))
        for item in items
    ]
    return made if made != items else None


def read_value_of_table(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """Return a value beside a table: it is one of that table's, if it can be."""
    table = item_tagged(items, "T")
    tables = {m.table for m in table.data.tables}
    made = []
    for at, item in enumerate(items):
        if item.tag != "V" or (at and not item.joined and items[0].tag == "T"):
            # "albums does Iron Maiden have": a word between separates them.
            made.append(item)
            continue
        hits = tuple(hit for hit in item.data.hits if hit.table in tables)
        of = table.data if items[-1].tag == "T" and items[-1].joined else item.data.of
        made.append(replace(item, data=replace(item.data, hits=hits or item.data.hits, of=of)))
    return made if made != items else None


def read_values(items: list[TaggedItem]) -> list[TaggedItem]:
    """`returned or cancelled`."""
    first, *others = items_tagged(items, "V")
    both = bool(items_tagged(items, "&")) and not items_tagged(items, "|")
    condition = replace(
        first.data, text=items_text(items), either=tuple(v.data for v in others), op="and" if both else "="
    )
    made = [TaggedItem("F", items_text(items), condition)]
    if both and any(item.text == "as well as" for item in items):
        made.insert(0, TaggedItem("b", "as well as"))
    if any(item.data == "vs" for item in items):
        # "Web vs app orders": one row for each.
        held = [{(hit.table, hit.column) for hit in value.data.hits} for value in (first, *others)]
        shared = sorted(held[0].intersection(*held[1:]))
        name = NamePart(items_text(items), tuple(Meaning(table, column) for table, column in shared))
        made.append(
            TaggedItem("B", items_text(items), (Group(name, None, f"for each {items_text(items)}"),))
            if shared
            else items[1]
        )
    return made


def read_value(items: list[TaggedItem]) -> list[TaggedItem]:
    """A value alone is a condition."""
    return [TaggedItem("F", items[0].text, items[0].data)]


def read_said(items: list[TaggedItem]) -> list[TaggedItem]:
    """Keep the preposition of a condition: `from Berlin`."""
    condition: Condition = items[1].data
    if items[1].tag == "D" or condition.said:
        return [items[1]]
    return [TaggedItem(items[1].tag, items_text(items), replace(condition, said=items[0].text))]


def read_either(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`in Rome or over 100`."""
    first, second = items[0].data, items[-1].data
    if first.negated or second.negated:
        return None
    merged = replace(first, text=items_text(items), either=(*first.either, second, *second.either))
    return [TaggedItem("F", items_text(items), merged)]


def read_not(items: list[TaggedItem]) -> list[TaggedItem]:
    """`not completed`."""
    condition: Condition = items[-1].data
    return [
        TaggedItem("F", items_text(items), replace(condition, negated=not condition.negated, text=items_text(items)))
    ]


def read_move_value(items: list[TaggedItem]) -> list[TaggedItem]:
    """`number of Italian restaurants`: move the adjective aside, so that the measure meets its noun."""
    return [items[-1], *items[:-1]]


def read_by_value(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`albums by Queen`, `tracks by the artist Queen`: only that one, not one row for each."""
    if items[0].text != "by":
        return None
    if len(items) == 3:
        tables = {m.table for m in items[1].data.meanings}
        if not any(hit.table in tables for hit in items[2].data.hits):
            return None
    return [TaggedItem("p", "by", "by"), *items[1:]]


def read_quoted_name(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the track 'Black Dog'`: a name in quotes that is not a known value."""
    condition = Condition("match", items_text(items), items[0].data, "is", (items[1].text,))
    return (
        [items[0], TaggedItem("F", items_text(items), condition)]
        if items[0].tag == "T"
        else [TaggedItem("F", items_text(items), condition)]
    )
