"""Grammar rules for ranks and orders: the highest, the most, the top 5, sorted by."""

from __future__ import annotations

from dataclasses import replace

from etude.offline.question_parts import (
    Direction,
    Measure,
    NamePart,
    Ordering,
    Rank,
)
from etude.offline.rule_items import is_count, item_tagged, items_tagged, items_text
from etude.offline.tags import TaggedItem
from etude.offline.words import word_base_form

_ENDS: dict[object, Direction] = {"max": "desc", "min": "asc"}
_EXTREMES: dict[Direction, str] = {"desc": "highest", "asc": "lowest"}


def read_rank(items: list[TaggedItem]) -> list[TaggedItem]:
    """`highest price`, `most orders`."""
    first, last = items[0], items[-1]
    if first.tag == "S" and first.data[1] == "!sales":
        return read_rank_implied(items) if last.tag == "C" else items
    direction: Direction = first.data[0] if first.tag == "S" else first.data
    by = last.data
    if first.tag == "S" and {f"!{word_base_form(word)}" for word in last.text.lower().split()} & {
        *first.data[1].split()
    }:
        # The oldest age is the highest, although the oldest has the earliest date of birth.
        direction = "asc" if direction == "desc" else "desc"
    if first.tag == "M" and last.tag in "TC":
        by = Measure("count", last.data, text=items_text(items))
    return [TaggedItem("Z", items_text(items), Rank(direction, by, text=items_text(items)), plural=last.plural)]


def read_rank_of_noun(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`climbed by the climber with the maximum points`: the climber who has the most, not a number of each."""
    *before, table, extreme, column = items
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if extreme.tag == "A" and extreme.data in _ENDS:
        extreme = replace(extreme, tag="S", text=_EXTREMES[_ENDS[extreme.data]], data=(_ENDS[extreme.data], ""))
    if not own or extreme.tag == "A" or extreme.joined or table.plural:
        return None
    ranked = read_rank([extreme, column])[-1]
    if ranked.tag != "Z" or not isinstance(ranked.data.by, NamePart):
        return None
    rank = replace(ranked.data, by=replace(column.data, meanings=own), of=table.data)
    return [*before, table, TaggedItem("Z", items_text(items[-2:]), rank)]


def read_rank_noun(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the biggest budget production`: the production with the biggest budget."""
    adjective, column, table = items
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if not own or column.plural or not table.joined or not column.joined:
        return None
    rank = Rank(adjective.data[0], replace(column.data, meanings=own), text=items_text(items[:2]))
    return [table, TaggedItem("Z", rank.text, rank)]


def read_rank_by(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`top 5 customers by total amount`."""
    if items[0].text not in ("by", "in terms of"):
        return None
    then = items[3].data if len(items) > 2 else None
    return [TaggedItem("Z", items_text(items), Rank("desc", items[1].data, text=items[1].text, then=then), plural=True)]


def read_rank_implied(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the oldest customer`: the adjective implies the column."""
    direction, implied = items[0].data
    rank = Rank(direction, None, tuple(implied.split()), items[0].text, of=items[1].data)
    return [items[1], TaggedItem("Z", items[0].text, rank)]


def read_rank_after(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`which stadium is the biggest`, `which hotel in Rome is the biggest`: the biggest one."""
    table, adjective = item_tagged(items, "T"), items[-1]
    if table.plural or adjective.joined or not adjective.data[1]:
        return None
    return [*items[:-1], read_rank_implied([adjective, table])[-1]]


def read_rank_latest(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the race that was held most recently`: the latest race."""
    *before, latest = items
    if latest.text != "latest ones":
        return None
    direction, implied = latest.data
    if before[-1].tag == "C":
        return [*before[:-1], TaggedItem("Z", "latest", Rank(direction, before[-1].data, text="latest"))]
    verbs = [item.text.lower() for item in before[1:]]
    named = [form for verb in verbs for form in (verb, verb.removesuffix("ed"), verb.removesuffix("d"))]
    rank = Rank(direction, None, (*named, *implied.split()), "latest", of=before[0].data)
    return [*before, TaggedItem("Z", "latest", rank)]


def read_number_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`3 cities with the most customers`."""
    number = items[0].data
    if not is_count(items[0]) or not 1 <= number <= 10_000 or not items[1].plural:
        return None
    return [TaggedItem("K", items[0].text, (number, "", "", "")), *items[1:]]


def read_first(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`highest first`."""
    return [items[0]] if items[1].data == "first" else None


def read_most_common(items: list[TaggedItem]) -> list[TaggedItem]:
    """`most common statuses`: ranked by the number of rows of each."""
    measure = Measure("count", items[1].data, rows=True, text=items_text(items))
    return [
        items[1],
        TaggedItem("Z", items[0].text, Rank(items[0].data, measure, text=items[0].text), plural=items[1].plural),
    ]


def read_top(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`5 highest`, `3 most expensive`: the number goes before the adjective."""
    number, adjective = items
    if not is_count(number) or not 1 <= number.data <= 10_000:
        return None
    return [TaggedItem("K", number.text, (number.data, "", "", "")), adjective]


def read_top_by(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the trips with the top 3 durations`: the trips, ranked by that number."""
    table, top, column = items
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if not own or top.data[1] != "desc" or top.joined:
        return None
    rank = Rank("desc", replace(column.data, meanings=own), text=items_text(items[1:]))
    return [table, top, TaggedItem("Z", rank.text, rank, plural=True)]


def read_ordered(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`customers who ordered tea`: a verb, not an order."""
    return [TaggedItem("r", "ordered", "order")] if items[0].text == "ordered" else None


def read_order(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`sorted by age, descending`."""
    by, way = items_tagged(items, "ECTZ"), items_tagged(items, "dS")
    if not by and any("young" in item.text for item in way):
        return None  # "from oldest to youngest" sorts by the age, not by the names that are shown
    direction = way[-1].data if way and way[-1].tag == "d" else way[0].data[0] if way else None
    thing = by[0].data if by else None
    if by and by[0].tag == "Z":
        thing, direction = by[0].data.by, direction or by[0].data.direction
    then = by[1].data if len(by) > 1 and by[1].tag == "C" else None
    return [TaggedItem("Y", items_text(items), Ordering(thing, direction, then))]


def read_order_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`in descending order of age`."""
    return read_order(items) if items[1].text in ("of", "by", "for", "on") else None
