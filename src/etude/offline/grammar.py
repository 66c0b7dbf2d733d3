"""Turn tagged items into the parts of a question, by a cascade of small rules over their tags.

Each rule is a regular expression over tags and a function that replaces the items it matches. A rule never skips an
item, so a word is either part of something or still there at the end, and then the question is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import Literal

from etude.offline.dates import Span
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import (
    Absence,
    Condition,
    Direction,
    Fn,
    Group,
    Measure,
    NamePart,
    Ordering,
    Question,
    Rank,
    Ratio,
    Side,
    Threshold,
)
from etude.offline.tags import TaggedItem, is_past_form
from etude.offline.units import written_unit
from etude.offline.words import split_identifier_words, word_base_form

_OWNED = frozenset(("name", "title", "id", "number", "date", "type", "code", "description", "status"))
"""Nouns that nearly every table has a column for: they need the noun they belong to."""
_BESIDES = frozenset(("together with", "along with", "alongside", "with their", "with its", "with his", "with her"))
_ENDS: dict[object, Direction] = {"max": "desc", "min": "asc"}
_EXTREMES: dict[Direction, str] = {"desc": "highest", "asc": "lowest"}
Action = Callable[[list[TaggedItem]], list[TaggedItem] | None]
OnRule = Callable[[str, str, str], None]
"""Called for each rule that changed something, with its pattern, the tags before and the tags after."""


def read_question(items: Sequence[TaggedItem], on_rule: OnRule | None = None) -> Question:
    """Return the parts of the question that the items form."""
    reader = _Reader(on_rule=on_rule)
    for number, sentence in enumerate(_sentences(_defined(list(items)))):
        reader.read(sentence, first=number == 0)
    return reader.question()


def _defined(items: list[TaggedItem]) -> list[TaggedItem]:
    """Apply `revenue (based on sale price)` wherever `revenue` occurs."""
    tags = "".join(item.tag for item in items)
    for match in re.finditer(r"[uC]\(p+C\)", tags):
        word, column = items[match.start()], items[match.end() - 2]
        name: NamePart = replace(column.data, text=f"{word.text} ({column.text})")
        items = [*items[: match.start()], TaggedItem("C", word.text, name), *items[match.end() :]]
        return _defined(
            [
                TaggedItem("C", i.text, name, joined=i.joined) if i.tag == word.tag and i.text == word.text else i
                for i in items
            ]
        )
    return items


def _sentences(items: Sequence[TaggedItem]) -> list[list[TaggedItem]]:
    sentences: list[list[TaggedItem]] = [[]]
    for item in items:
        if item.tag == ".":
            sentences.append([])
        else:
            sentences[-1].append(item)
    return [sentence for sentence in sentences if sentence]


def _reduce(items: list[TaggedItem], pattern: str, action: Action) -> list[TaggedItem]:
    """Apply a rule from left to right, and again after each change, until it finds nothing new."""
    compiled = re.compile(pattern)
    at = 0
    for _ in range(500):
        tags = "".join(item.tag for item in items)
        match = compiled.search(tags, at)
        if match is None or match.start() == match.end():
            break
        made = action(items[match.start() : match.end()])
        if made is None:
            at = match.start() + 1
            continue
        items = items[: match.start()] + made + items[match.end() :]
        at = match.start()
        if [item.tag for item in made] == list(tags[match.start() : match.end()]):
            at = match.start() + 1
    return items


def _text(items: Sequence[TaggedItem]) -> str:
    return " ".join(item.text for item in items)


def _is_count(number: TaggedItem) -> bool:
    """Return whether a number can count things: a whole number, and not a percentage of them."""
    return isinstance(number.data, int) and written_unit(number.text) != "percent"


def _pick(items: Sequence[TaggedItem], tags: str) -> list[TaggedItem]:
    return [item for item in items if item.tag in tags]


def _one(items: Sequence[TaggedItem], tags: str) -> TaggedItem:
    return next(item for item in items if item.tag in tags)


# --- rules


def _inner(items: list[TaggedItem]) -> list[TaggedItem]:
    return [replace(items[2], text=_text(items))]


def _match(items: list[TaggedItem]) -> list[TaggedItem]:
    name = items[0].data if items[0].tag in "CT" else None
    op, text = _one(items, "l").data, items[-1].text
    return [TaggedItem("F", _text(items), Condition("match", _text(items), name, op, (text,)))]


def _match_again(items: list[TaggedItem]) -> list[TaggedItem] | None:
    first: Condition = items[0].data
    if first.kind != "match":
        return None
    second = Condition("match", _text(items[2:]), first.name, items[2].data, (items[3].text,))
    return [TaggedItem("F", _text(items), replace(first, text=_text(items), either=(*first.either, second)))]


def _held_in(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`'M5' in its VIN number`: a quoted text inside a column."""
    value, inside, column = items[0], items[1], items[2]
    if inside.text != "in" or not (value.tag == "Q" or value.plural):
        return None
    condition = Condition("match", _text(items), column.data, "icontains", (value.text,))
    return [TaggedItem("F", _text(items), condition)]


def _op(item: TaggedItem) -> str:
    """Return the comparison of `more than` or `older than`."""
    return str(item.data[0] if item.tag == "o" else item.data)


def _compare(items: list[TaggedItem]) -> list[TaggedItem] | None:
    column, number = _one(items, "CE"), _one(items, "N")
    ops = _pick(items, "ceo")
    op = _op(ops[0]) if ops else "="
    if column.tag == "E" and ops and ops[0].tag == "o":
        # "The number of captains younger than 50": the captains are, not their number.
        return [column, *_adjective([ops[0], number])] if column.data.fn == "count" else None
    if column.tag == "E":
        return [TaggedItem("H", _text(items), Threshold(column.data, op, number.data, written_unit(number.text)))]
    condition = Condition("compare", _text(items), column.data, op, (number.data,), unit=written_unit(number.text))
    return [TaggedItem("F", _text(items), condition)]


def _compare_not(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`age is not 20`."""
    if items[1].data is not None or items[1].text not in ("not", "is not", "are not", "was not", "were not"):
        return None
    return _compare([items[0], TaggedItem("c", items[1].text, "!="), items[2]])


def _compare_again(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`age is 36 or 37`, `price above 100 or below 5`: the same column again."""
    first: Condition = items[0].data
    if first.kind != "compare" or first.negated or written_unit(items[-1].text) != first.unit:
        return None
    ops = _pick(items, "co")
    op = _op(ops[0]) if ops else "="
    if first.implied and ops and ops[0].text.split()[0] not in ("more", "less", "over", "under", "above", "below"):
        return None  # "longer than 100 or higher than 20" is about two columns
    if op == "=" and any(part.op != "=" for part in (first, *first.either)):
        return None
    second = replace(first, text=_text(items[2:]), op=op, values=(items[-1].data,), either=())
    return [TaggedItem("F", _text(items), replace(first, text=_text(items), either=(*first.either, second)))]


def _years(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`in 2014 or 2015`: one of two times."""
    first, second = items[0].data, items[-1]
    if second.tag == "N":
        if not isinstance(second.data, int) or first.span is None or first.span.year is None or first.negated:
            return None
        if not 1000 <= second.data <= 2999:
            return None
        span = Span(date(second.data, 1, 1), date(second.data + 1, 1, 1), f"in {second.data}", second.data)
        other = replace(first, text=second.text, span=span, either=())
    else:
        other = replace(second.data, name=second.data.name or first.name, near=second.data.near or first.near)
    if first.kind != other.kind:
        return None
    made = [TaggedItem("D", _text(items), replace(first, text=_text(items), either=(*first.either, other)))]
    if any(item.data == "vs" for item in items):
        spans = [part.span for part in (first, other)]
        if any(span is None or span.year is None for span in spans):
            return None
        made.append(TaggedItem("B", _text(items), (Group(None, "year", f"for each {_text(items)}"),)))
    return made


def _adjective(items: list[TaggedItem]) -> list[TaggedItem]:
    """`older than 56`: the adjective says which column is compared."""
    adjective, number = items[0], items[1]
    op, implied = adjective.data
    condition = Condition(
        "compare",
        _text(items),
        None,
        op,
        (number.data,),
        unit=written_unit(number.text),
        implied=tuple(implied.split()),
    )
    return [TaggedItem("F", _text(items), condition)]


def _adjective_average(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`older than the average`, `older than the average age`."""
    adjective, average = items[0], items[1]
    if average.data not in ("avg", "median"):
        return None
    op, implied = adjective.data
    name = items[2].data if len(items) > 2 else None
    return [
        TaggedItem(
            "F",
            _text(items),
            Condition("average", _text(items), name, op, (average.data,), implied=tuple(implied.split())),
        )
    ]


def _numbered(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`4 cylinder cars`: the number belongs to the singular noun after it, which is a column."""
    number, column, table = items
    if column.plural or not column.joined or not table.joined or not isinstance(number.data, int):
        return None
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if not own:
        return None
    condition = Condition("compare", _text(items[:2]), replace(column.data, meanings=own), "=", (number.data,))
    return [table, TaggedItem("F", condition.text, condition)]


def _compare_column(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`above the age of 30`, `over age 30`."""
    return _compare([_one(items, "C"), _one(items, "c"), items[-1]])


def _between(items: list[TaggedItem]) -> list[TaggedItem]:
    low, high = _pick(items, "N")[:2]
    values, unit = (low.data, high.data), written_unit(high.text) or written_unit(low.text)
    condition = Condition("between", _text(items), items[0].data, "between", values, unit=unit)
    return [TaggedItem("F", _text(items), condition)]


def _at_least(items: list[TaggedItem]) -> list[TaggedItem] | None:
    op, number, thing = _one(items, "ce"), _one(items, "N"), items[-1]
    if written_unit(number.text) == "percent":
        # "At least 10% of ..." is a part of a whole that the words do not name.
        return None
    distinct = bool(_pick(items, "U"))
    if thing.tag == "C" and not distinct:
        condition = Condition("compare", _text(items), thing.data, op.data, (number.data,), said="counted")
        return [TaggedItem("F", _text(items), condition)]
    counted = Measure("count", thing.data, distinct, text=_text(items))
    return [TaggedItem("H", _text(items), Threshold(counted, op.data, number.data))]


def _count(items: list[TaggedItem]) -> list[TaggedItem]:
    distinct = items[0].data == "distinct" or bool(_pick(items, "U"))
    thing = _one(items, "TC")
    return [TaggedItem("E", _text(items), Measure("count", thing.data, distinct, text=_text(items)))]


def _aggregate(items: list[TaggedItem]) -> list[TaggedItem]:
    thing = _one(items, "TC")
    counted = bool(_pick(items, "#"))
    if counted and items[0].data == "sum":
        return _count(items[1:])
    part = items[0].data if isinstance(items[0].data, float) else None
    fn: Fn = "quantile" if part is not None else items[0].data
    measure = Measure(fn, thing.data, bool(_pick(items, "U")), of_count=counted, at=part, text=_text(items))
    return [TaggedItem("E", _text(items), measure)]


def _correlation(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`correlation between price and rating`."""
    first, second = _pick(items, "C")
    if items[0].data != "correlation":
        return None
    return [TaggedItem("E", _text(items), Measure("correlation", first.data, until=second.data, text=_text(items)))]


def _outliers(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`outliers in price`: the rows whose number lies far from most others."""
    if items[0].data != "outlier":
        return None
    column = items[-1]
    return [TaggedItem("F", _text(items), Condition("outlier", _text(items), column.data))]


def _outlying_rows(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`outliers in price` alone: the rows, and their prices."""
    made = _outliers(items)
    if made is None:
        return None
    column = items[-1]
    tables = tuple(dict.fromkeys(Meaning(m.table) for m in column.data.columns))
    rows = TaggedItem("T", column.text, NamePart(column.text, tables), plural=True)
    return [rows, TaggedItem("&", "with their"), column, *made]


def _rank(items: list[TaggedItem]) -> list[TaggedItem]:
    first, last = items[0], items[-1]
    if first.tag == "S" and first.data[1] == "!sales":
        return _rank_implied(items) if last.tag == "C" else items
    direction: Direction = first.data[0] if first.tag == "S" else first.data
    by = last.data
    if first.tag == "S" and {f"!{word_base_form(word)}" for word in last.text.lower().split()} & {
        *first.data[1].split()
    }:
        # The oldest age is the highest, although the oldest has the earliest date of birth.
        direction = "asc" if direction == "desc" else "desc"
    if first.tag == "M" and last.tag in "TC":
        by = Measure("count", last.data, text=_text(items))
    return [TaggedItem("Z", _text(items), Rank(direction, by, text=_text(items)), plural=last.plural)]


def _rank_of_noun(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`climbed by the climber with the maximum points`: the climber who has the most, not a number of each."""
    *before, table, extreme, column = items
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if extreme.tag == "A" and extreme.data in _ENDS:
        extreme = replace(extreme, tag="S", text=_EXTREMES[_ENDS[extreme.data]], data=(_ENDS[extreme.data], ""))
    if not own or extreme.tag == "A" or extreme.joined or table.plural:
        return None
    ranked = _rank([extreme, column])[-1]
    if ranked.tag != "Z" or not isinstance(ranked.data.by, NamePart):
        return None
    rank = replace(ranked.data, by=replace(column.data, meanings=own), of=table.data)
    return [*before, table, TaggedItem("Z", _text(items[-2:]), rank)]


def _not_so(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`non smart gas meters`: the negation is about the adjective after it."""
    if items[0].text != "non" or not all(m.flag for m in items[1].data.meanings):
        return None
    return _missing(items)


def _rank_noun(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the biggest budget production`: the production with the biggest budget."""
    adjective, column, table = items
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if not own or column.plural or not table.joined or not column.joined:
        return None
    rank = Rank(adjective.data[0], replace(column.data, meanings=own), text=_text(items[:2]))
    return [table, TaggedItem("Z", rank.text, rank)]


def _year_alone(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`trips per month 2024`."""
    year = items[-1].data
    if not isinstance(year, int) or not 1900 <= year <= 2100:
        return None
    span = Span(date(year, 1, 1), date(year + 1, 1, 1), f"in {year}", year)
    return [items[0], TaggedItem("D", items[-1].text, Condition("span", items[-1].text, span=span))]


def _unknown_value(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`whose build year is unknown`."""
    return _missing(items[:1]) if items[1].data == "missing" else None


def _rank_by(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`top 5 customers by total amount`."""
    if items[0].text not in ("by", "in terms of"):
        return None
    then = items[3].data if len(items) > 2 else None
    return [TaggedItem("Z", _text(items), Rank("desc", items[1].data, text=items[1].text, then=then), plural=True)]


def _distribute_count(items: list[TaggedItem]) -> list[TaggedItem] | None:
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


def _distribute(items: list[TaggedItem]) -> list[TaggedItem]:
    """`lowest and highest price` is both of the price."""
    made: list[TaggedItem] = []
    for item in items[:-1]:
        if item.tag in "AS":
            made += [TaggedItem("&", "and"), item, items[-1]]
    return made[1:]


def _ordered(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`customers who ordered tea`: a verb, not an order."""
    return [TaggedItem("r", "ordered", "order")] if items[0].text == "ordered" else None


def _number_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`3 cities with the most customers`."""
    number = items[0].data
    if not _is_count(items[0]) or not 1 <= number <= 10_000 or not items[1].plural:
        return None
    return [TaggedItem("K", items[0].text, (number, "", "", "")), *items[1:]]


def _first(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`highest first`."""
    return [items[0]] if items[1].data == "first" else None


def _most_common(items: list[TaggedItem]) -> list[TaggedItem]:
    """`most common statuses`: ranked by the number of rows of each."""
    measure = Measure("count", items[1].data, rows=True, text=_text(items))
    return [
        items[1],
        TaggedItem("Z", items[0].text, Rank(items[0].data, measure, text=items[0].text), plural=items[1].plural),
    ]


def _columns_in_brackets(items: list[TaggedItem]) -> list[TaggedItem]:
    """`users (id and name)`: the columns to show of them."""
    return [*items[2:-1], TaggedItem("p", "of", "of"), items[0]]


def _exactly(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`papers that have 1 keyphrase`."""
    if not _is_count(items[0]):
        return None
    return [
        TaggedItem("H", _text(items), Threshold(Measure("count", items[1].data, text=_text(items)), "=", items[0].data))
    ]


def _numbered_row(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the patient in room 111`: the number is the key of the room."""
    table, number = items
    if table.plural or not number.joined or not isinstance(number.data, int) or number.text != str(number.data):
        return None
    name = replace(table.data, meanings=table.data.tables)
    return [table, TaggedItem("F", _text(items), Condition("compare", _text(items), name, "=", (number.data,)))]


def _amounting(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`cars that have 8 cylinders`: the noun is a column that holds how many."""
    before, number, column = items
    if not _is_count(number) or not column.joined or not (column.plural or number.data == 1):
        return None
    text = _text(items[1:])
    return [before, TaggedItem("F", text, Condition("compare", text, column.data, "=", (number.data,), said="counted"))]


def _above_average(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`price above the average`."""
    column, op, average = items[0], _one(items, "co"), _one(items, "A")
    if average.data not in ("avg", "median"):
        return None
    if items[-1].tag == "C" and not _part_of([column, TaggedItem("p", "of"), items[-1]]):
        return None
    return [TaggedItem("F", _text(items), Condition("average", _text(items), column.data, _op(op), (average.data,)))]


def _days(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`average number of days between ordering and shipping`."""
    if _one(items, "t").data != "day":
        return None
    first, second = _pick(items, "C")
    return [TaggedItem("E", _text(items), Measure(items[0].data, first.data, until=second.data, text=_text(items)))]


def _swap(items: list[TaggedItem]) -> list[TaggedItem]:
    return [items[1], items[0]]


def _part_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`cost of round-trip fares`: what both nouns can mean."""
    first, of, second = items
    if of.text != "of":
        return None
    shared = tuple(
        m for m in first.data.columns if any((m.table, m.column) == (o.table, o.column) for o in second.data.columns)
    )
    if not shared:
        return None
    return [replace(first, text=_text(items), data=NamePart(_text(items), shared))]


def _rank_implied(items: list[TaggedItem]) -> list[TaggedItem]:
    direction, implied = items[0].data
    rank = Rank(direction, None, tuple(implied.split()), items[0].text, of=items[1].data)
    return [items[1], TaggedItem("Z", items[0].text, rank)]


def _rank_latest(items: list[TaggedItem]) -> list[TaggedItem] | None:
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


def _above_average_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`players with more than the average points`."""
    op, average, column = items[0], items[1], items[-1]
    if average.data not in ("avg", "median") or column.data.tables:
        return None
    return [TaggedItem("F", _text(items), Condition("average", _text(items), column.data, _op(op), (average.data,)))]


def _compare_in(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`who earn more than 30,000 in salary`."""
    op, number, inside, column = items
    if inside.text not in ("in", "as") or column.data.tables or column.plural:
        return None
    return _compare([column, op, number])


def _top(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`5 highest`, `3 most expensive`: the number goes before the adjective."""
    number, adjective = items
    if not _is_count(number) or not 1 <= number.data <= 10_000:
        return None
    return [TaggedItem("K", number.text, (number.data, "", "", "")), adjective]


def _top_by(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the trips with the top 3 durations`: the trips, ranked by that number."""
    table, top, column = items
    tables = {m.table for m in table.data.tables}
    own = tuple(m for m in column.data.columns if m.table in tables)
    if not own or top.data[1] != "desc" or top.joined:
        return None
    rank = Rank("desc", replace(column.data, meanings=own), text=_text(items[1:]))
    return [table, top, TaggedItem("Z", rank.text, rank, plural=True)]


def _order(items: list[TaggedItem]) -> list[TaggedItem]:
    by, way = _pick(items, "ECTZ"), _pick(items, "dS")
    direction = way[-1].data if way and way[-1].tag == "d" else way[0].data[0] if way else None
    thing = by[0].data if by else None
    if by and by[0].tag == "Z":
        thing, direction = by[0].data.by, direction or by[0].data.direction
    then = by[1].data if len(by) > 1 and by[1].tag == "C" else None
    return [TaggedItem("Y", _text(items), Ordering(thing, direction, then))]


def _order_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`in descending order of age`."""
    return _order(items) if items[1].text in ("of", "by", "for", "on") else None


def _groups(items: list[TaggedItem]) -> list[TaggedItem]:
    groups = []
    for item in _pick(items, "CTt"):
        name = item.data if item.tag != "t" else None
        groups.append(Group(name, item.data if item.tag == "t" else None, f"{items[0].text} {item.text}"))
    return [TaggedItem("B", _text(items), tuple(groups))]


def _each_one(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the name of each customer`: the name is the customer's."""
    column, each, table = items
    tables = {m.table for m in table.data.tables}
    if each.text != "of each" or column.data.owner or not any(m.table in tables for m in column.data.columns):
        return None
    owned = replace(column, data=replace(column.data, owner=table.data))
    return [owned, TaggedItem("g", "for each", joined=each.joined), table]


def _grain(items: list[TaggedItem]) -> list[TaggedItem]:
    return [TaggedItem("B", items[0].text, (Group(None, items[0].data, items[0].text),))]


def _named_value(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """Return a value beside the name of its column: `the city of New York`, `Italian food`."""
    column, value = _one(items, "CT"), _one(items, "V")
    condition: Condition = value.data
    wanted = {(m.table, m.column) for m in column.data.columns}
    hits = tuple(hit for hit in condition.hits if (hit.table, hit.column) in wanted)
    if not hits:
        return None
    return [TaggedItem("F", _text(items), replace(condition, text=_text(items), hits=hits, name=column.data))]


def _named_not(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`status is not completed`."""
    made = _named_value([items[0], items[2]])
    return _not([items[1], *made]) if made else None


def _worth(items: list[TaggedItem], first: bool = False) -> list[TaggedItem] | None:
    """`orders over 500`: compare what each is worth, if that is one number; a count that comes first is asked for."""
    thing, op, number = items[0], _one(items, "c"), _one(items, "N")
    if thing.tag == "E" and (thing.data.fn != "count" or not (first or thing.text.startswith("how many"))):
        return None
    unit = written_unit(number.text)
    if unit == "percent":
        return [thing, TaggedItem("u", f"{op.text} {number.text}")]
    condition = Condition("compare", f"{op.text} {number.text}", None, op.data, (number.data,), unit=unit)
    return [thing, TaggedItem("F", condition.text, condition)]


def _full_name(items: list[TaggedItem]) -> list[TaggedItem] | None:
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


def _value_of_table(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """Return a value beside a table: it is one of that table's, if it can be."""
    table = _one(items, "T")
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


def _values(items: list[TaggedItem]) -> list[TaggedItem]:
    first, *others = _pick(items, "V")
    both = bool(_pick(items, "&")) and not _pick(items, "|")
    condition = replace(first.data, text=_text(items), either=tuple(v.data for v in others), op="and" if both else "=")
    made = [TaggedItem("F", _text(items), condition)]
    if any(item.data == "vs" for item in items):
        # "Web vs app orders": one row for each.
        held = [{(hit.table, hit.column) for hit in value.data.hits} for value in (first, *others)]
        shared = sorted(held[0].intersection(*held[1:]))
        name = NamePart(_text(items), tuple(Meaning(table, column) for table, column in shared))
        made.append(
            TaggedItem("B", _text(items), (Group(name, None, f"for each {_text(items)}"),)) if shared else items[1]
        )
    return made


def _value(items: list[TaggedItem]) -> list[TaggedItem]:
    return [TaggedItem("F", items[0].text, items[0].data)]


def _said(items: list[TaggedItem]) -> list[TaggedItem]:
    condition: Condition = items[1].data
    if items[1].tag == "D" or condition.said:
        return [items[1]]
    return [TaggedItem(items[1].tag, _text(items), replace(condition, said=items[0].text))]


def _either(items: list[TaggedItem]) -> list[TaggedItem] | None:
    first, second = items[0].data, items[-1].data
    if first.negated or second.negated:
        return None
    merged = replace(first, text=_text(items), either=(*first.either, second, *second.either))
    return [TaggedItem("F", _text(items), merged)]


def _not(items: list[TaggedItem]) -> list[TaggedItem]:
    condition: Condition = items[-1].data
    return [TaggedItem("F", _text(items), replace(condition, negated=not condition.negated, text=_text(items)))]


def _absent(items: list[TaggedItem]) -> list[TaggedItem]:
    things = _pick(items, "T")
    if items[0].text.startswith(("missing values", "null values")):
        # "Missing values in trips": of each of its columns.
        return [TaggedItem("m", items[0].text), things[-1]]
    return [TaggedItem("X", _text(items), Absence(things[-1].data))]


def _absent_which(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`customers with no cancelled orders`: this includes those without any orders."""
    none = items[0].text.split()
    if not {"no", "without", "any", "have", "has", "lack", "lacking"} & {*none}:
        return None
    return [TaggedItem("X", _text(items), Absence(items[-1].data, (items[-2].data,)))]


def _absent_where(items: list[TaggedItem]) -> list[TaggedItem]:
    absence: Absence = items[0].data
    return [TaggedItem("X", _text(items), replace(absence, conditions=(*absence.conditions, items[-1].data)))]


def _gaps(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`which columns of trips have missing values and how many`."""
    table, none = items[:2]
    return [TaggedItem("m", none.text), table] if none.text in ("missing values", "null values") else None


def _missing(items: list[TaggedItem]) -> list[TaggedItem]:
    return [TaggedItem("F", _text(items), Condition("null", _text(items), items[-1].data, "is null"))]


def _count_missing(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`how many missing values in age`, `how many ages are missing`: rows without a value."""
    column, none = _one(items, "C"), _one(items, "x")
    if none.data != "missing":
        return None
    tables = tuple(Meaning(m.table) for m in column.data.columns)
    rows = Measure("count", NamePart(column.text, tuple(dict.fromkeys(tables))), text=_text(items))
    condition = Condition("null", _text([none, column]), column.data, "is null")
    return [TaggedItem("E", _text(items), rows), TaggedItem("F", condition.text, condition)]


def _spread(items: list[TaggedItem]) -> list[TaggedItem]:
    """`distribution of status`: rows for each value; `spread of prices`: lowest, median and highest."""
    column = items[-1]
    if items[0].data == "distribution":
        tables = tuple(dict.fromkeys(Meaning(m.table) for m in column.data.columns))
        rows = Measure("count", NamePart(column.text, tables), text=_text(items))
        group = Group(column.data, None, f"distribution of {column.text}")
        return [TaggedItem("E", _text(items), rows), TaggedItem("B", _text(items), (group,))]
    measures = quartiles_of(column.data)[1:4]
    if items[0].data == "spread":
        fns: tuple[Fn, ...] = ("min", "median", "max", "stddev")
        measures = [Measure(fn, column.data, text=fn) for fn in fns]
    made = [[TaggedItem("&", "and"), TaggedItem("E", _text(items), measure)] for measure in measures]
    return [item for pair in made for item in pair][1:]


def quartiles_of(name: NamePart) -> list[Measure]:
    """Return the five numbers that describe how a column is distributed."""
    low, high = Measure("min", name, text="min"), Measure("max", name, text="max")
    parts = [Measure("quantile", name, at=part, text=f"quantile {part}") for part in (0.25, 0.75)]
    return [low, parts[0], Measure("median", name, text="median"), parts[1], high]


def _count_rows(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`how many rows are in orders`."""
    return _count([items[0], items[2]]) if items[1].text in ("in", "of", "for", "from") else None


def _dated(items: list[TaggedItem]) -> list[TaggedItem] | None:
    hint, span = items[0], items[-1]
    condition: Condition = span.data
    if hint.tag == "C":
        return [TaggedItem("D", _text(items), replace(condition, name=hint.data, text=_text(items)))]
    must = "must" if hint.tag == "u" else ""
    return [TaggedItem("D", _text(items), replace(condition, near=(hint.text,), said=must, text=_text(items)))]


def _weekday(items: list[TaggedItem]) -> list[TaggedItem]:
    return [TaggedItem("D", _text(items), items[-1].data)]


def _compound(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """Join two adjacent nouns: the last says what it is, the first what it belongs to."""
    first, second = items
    if not second.joined or (first.tag == "T" and first.plural and first.text.lower() != "sales"):
        return None
    if first.tag == "C" and second.tag == "T" and all(m.flag for m in first.data.meanings):
        own = tuple(m for m in first.data.meanings if any(m.table == t.table for t in second.data.tables))
        if own:
            name = replace(first.data, meanings=own)
            return [TaggedItem("F", first.text, Condition("flag", first.text, name)), second]
    held = tuple(hit for hit in first.hits if any(hit.table == m.table for m in second.data.tables))
    if second.tag == "T" and held:
        return [TaggedItem("V", first.text, Condition("value", first.text, hits=held), joined=first.joined), second]
    if first.tag == "C" and second.text.lower() in ("name", "names", "title", "titles"):
        return [replace(first, text=_text(items))]
    if first.tag == second.tag == "C" and (shared := _part_of([first, TaggedItem("p", "of"), second])):
        return shared
    if first.tag == second.tag == "C" and not {m.table for m in first.data.meanings} & {
        m.table for m in second.data.meanings
    }:
        # "insurance type", if only visits have a type: neither noun describes the other.
        return [TaggedItem("u", _text(items), joined=first.joined)]
    if first.tag == second.tag == "C" and not _describes(first, second):
        # "discount rate", if only taxes have a rate: one of the two is not what is asked for.
        return [TaggedItem("u", _text(items), joined=first.joined)]
    owned = replace(second.data, text=_text(items), owner=first.data)
    return [replace(second, text=_text(items), data=owned, joined=first.joined)]


def _describes(first: TaggedItem, second: TaggedItem) -> bool:
    """Return whether the first noun may belong to the second: `population` to `density`, `tax` to `tax_rate`."""
    if word_base_form(second.text.lower().split()[-1]) in _OWNED or any(m.label for m in first.data.meanings):
        return True
    if any(m.cost == 0 for m in second.data.columns):
        return True  # a column has just that name
    words = {word_base_form(word) for word in first.text.lower().split()}
    return any(words & {*split_identifier_words(m.column or "")} for m in second.data.columns)


def _move_value(items: list[TaggedItem]) -> list[TaggedItem]:
    """`number of Italian restaurants`: move the adjective aside, so that the measure meets its noun."""
    return [items[-1], *items[:-1]]


def _agent(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`written by authors`: the agent; `sold by genre` is a grouping, because the noun is singular and bare."""
    if items[1].text != "by" or (items[2].joined and not items[2].plural):
        return None
    return [items[0], TaggedItem("p", "by", "by"), items[2]]


def _participle(item: TaggedItem) -> list[TaggedItem] | None:
    """`problems reported by Ann`: a verb, although a status is called so."""
    verb = item.text.islower() and item.text.endswith("ed") and " " not in item.text
    return [TaggedItem("r", item.text, item.text, joined=item.joined)] if verb else None


def _agents(items: list[TaggedItem]) -> list[TaggedItem]:
    """`orders placed per month by customers in Berlin`: find the agent although other words come between.

    The verb may also end the name of a column: `money requested by entrepreneurs`.
    """
    made = list(items)
    for at, (by, thing) in enumerate(pairwise(items)):
        verb = any(item.tag == "r" for item in items[:at]) or (at > 0 and _ends_in_participle(items[at - 1]))
        if verb and by.tag == "g" and by.text == "by" and thing.tag == "T" and thing.plural:
            made[at] = TaggedItem("p", "by", "by", joined=by.joined)
    return made


def _ends_in_participle(item: TaggedItem) -> bool:
    words = item.text.lower().split()
    return item.tag == "C" and len(words) > 1 and is_past_form(words[-1])


def _by_value(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`albums by Queen`, `tracks by the artist Queen`: only that one, not one row for each."""
    if items[0].text != "by":
        return None
    if len(items) == 3:
        tables = {m.table for m in items[1].data.meanings}
        if not any(hit.table in tables for hit in items[2].data.hits):
            return None
    return [TaggedItem("p", "by", "by"), *items[1:]]


def _quoted_name(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the track 'Black Dog'`: a name in quotes that is not a known value."""
    condition = Condition("match", _text(items), items[0].data, "is", (items[1].text,))
    return (
        [items[0], TaggedItem("F", _text(items), condition)]
        if items[0].tag == "T"
        else [TaggedItem("F", _text(items), condition)]
    )


RULES: tuple[tuple[str, Action], ...] = (
    (r"[VTC]\(V\)", _inner),
    (r"Tx&#(?![a-zA-Z])", _gaps),
    (r"V(?:\|V)+", lambda items: _values(items) if items[1].data == "vs" else None),
    (r"yC(?:&|p)?C", _correlation),
    (r"^yp?C(?![TC])", _outlying_rows),
    (r"yp?C", _outliers),
    (r"T\(C(?:(?:,?&|,)C)*\)", _columns_in_brackets),
    (r"VV", _full_name),
    (r"xC(?=V*T)", _not_so),
    (r"SCT", _rank_noun),
    (r"CVT", lambda items: [items[1], items[0], items[2]] if all(m.flag for m in items[0].data.meanings) else None),
    (r"VT", lambda items: _value_of_table(items) if items[1].joined else None),
    (r"TV|V+T", _value_of_table),
    (r"V(?=g[TCV])", lambda items: _participle(items[0])),
    (r"rg(?=cN[TC]|NeT|M)", lambda items: [items[0]] if items[1].text == "by" else None),
    (r"rg[TC]", _agent),
    (r"gV|g[TC]V", _by_value),
    (r"rg(?=[TC]N)", lambda items: [items[0], TaggedItem("p", "by", "by")] if items[1].text == "by" else None),
    (r"NCT", _numbered),
    (r"[TC][CT]", _compound),
    (r"l[QVu]pC", lambda items: _match([items[3], items[0], items[1]])),
    (r"O(?=TV|VT|VC|CV)", _ordered),
    (r"[CT]l[QVuCTN]", _match),
    (r"F\|l[QVuCTN]", _match_again),
    (r"l[QVu]", _match),
    (r"[QV]pC", _held_in),
    (r"CpC", _part_of),
    (r"CxV", _named_not),
    (r"Vp?C|Cp?V", _named_value),
    (r"[#AUMSK][VFB]", _move_value),
    (r"[AM](?:,?&[AM]|,[AM])+#?C", _distribute_count),
    (r"[AS](?:,?&[AS]|,[AS])+U?C", _distribute),
    (r"Cp?[co]A(?:C|(?![#UpTC]))", _above_average),
    (r"oA(?:C|(?![#UpTC]))", _adjective_average),
    (r"cA#?C(?![CTVn])", _above_average_of),
    (r"cNpC(?![CTVNcowlx])", _compare_in),
    (r"A#?twC&C", _days),
    (r"cN[A#]?U?[TC]", _at_least),
    (r"NeU?[TC]", _at_least),
    (r"AG", _swap),
    (r"(?:^|[rp])T[AS]C(?!n)", _rank_of_noun),
    (r"A#?U?p?[TC](?!n)", _aggregate),
    (r"#(?:xC|Cx(?![a-zA-Z]))", _count_missing),
    (r"#U?[TC]", _count),
    (r"#pT", _count_rows),
    (r"vU?C", _spread),
    (r"A?[TC]n", lambda items: _count([TaggedItem("#", items[-1].text, ""), items[-2]])),
    (r"P[TC]", _most_common),
    (r"CpTP", lambda items: [*_most_common([items[3], items[0]]), items[1], items[2]]),
    (r"[TC]P", lambda items: _most_common(items[::-1])),
    (r"^EcN", lambda items: _worth(items, first=True)),
    (r"EcN|TcN", _worth),
    (r"[EC]p?[co]N", _compare),
    (r"cCp?N", _compare_column),
    (r"oN", _adjective),
    (r"Cp?wN&N", _between),
    (r"wN&NC", lambda items: _between([items[-1], *items[:-1]])),
    (r"CxN(?![eTC])", _compare_not),
    (r"Cp?Ne?(?!T)", _compare),
    (r"F\|[co]?N(?![TC])", _compare_again),
    (r"N[SM]", _top),
    (r"TKC(?![a-zA-Z])", _top_by),
    (r"Op?SCpS", _order),
    (r"S[EC]", _rank),
    (r"M#?[TCE]", _rank),
    (r"T(?:r*|C)S(?![a-zA-Z#])|TS(?=r)", _rank_latest),
    (r"ST", _rank_implied),
    (r"Od[gp][ECT]", _order),
    (r"d[gp][ECT]", _order_of),
    (r"O[gp]?nd?", _order),
    (r"O[gp]?C&C(?![a-zA-Z])d?", _order),
    (r"O[gp]?[ECTZ]r*d?", _order),
    (r"O?d[EC]?", _order),
    (r"Yu", _first),
    (r"N[TC](?=.*Z)", _number_of),
    (r"[TEDFr&]NC(?![TC])", _amounting),
    (r"NT", _exactly),
    (r"TN(?![eTC&|])", _numbered_row),
    (r"O", _ordered),
    (r"gE(?:&E)?", _rank_by),
    (r"^g[CTt](?:&[CTt])?(?=,)", _groups),
    (r"CgT", _each_one),
    (r"g(?:[CTt])(?:(?:,?&|,)g?(?![CTt]p[TC])[CTt])*(?![a-zA-Z]*\|)", _groups),
    (r"G", _grain),
    (r"[TC]Q", _quoted_name),
    (r"VT|TV", _value_of_table),
    (r"V(?:(?:,?[&|]|,)V)+", _values),
    (r"V", _value),
    (r"xFT", _absent_which),
    (r"xr?p?F", _not),
    (r"xr*p?T", _absent),
    (r"xC", _missing),
    (r"Cx(?![a-zA-Z])", _unknown_value),
    (r"BN(?![a-zA-Z])", _year_alone),
    (r"p?W", _weekday),
    (r"[ruC]D", _dated),
    (r"p[FD]", _said),
    (r"D\|p?[DN]", _years),
    (r"[FD],?\|[rp]*[FD]", _either),
    (r"Xr?[FD]", _absent_where),
)
"""Patterns over tags, with the functions that replace the matched items, in the order in which they run."""


def _extremes(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the highest price of ...` before any other noun asks for the price itself."""
    for at, item in enumerate(items):
        if item.tag in "TCEKt":
            break
        if item.tag == "Z" and isinstance(item.data.by, NamePart):
            fn: Fn = "max" if item.data.direction == "desc" else "min"
            items = [
                *items[:at],
                TaggedItem("E", item.text, Measure(fn, item.data.by, text=item.text)),
                *items[at + 1 :],
            ]
    return items


def _attach(items: list[TaggedItem]) -> list[TaggedItem]:
    """Attach each condition to the noun it follows."""
    noun: NamePart | None = None
    beside = True
    made = []
    for item in items:
        beside = item.tag not in "CEZH" and (beside or item.tag in "TB")
        if item.tag == "T":
            noun = item.data
        elif item.tag == "E" and item.data.name.tables:
            noun = item.data.name
        elif item.tag == "B" and item.data and item.data[-1].name and item.data[-1].name.tables:
            noun = item.data[-1].name
        elif item.tag == "Z" and isinstance(item.data.by, Measure) and item.data.by.name.tables:
            noun = item.data.by.name
        elif item.tag == "H" and item.data.measure.name.tables:
            noun = item.data.measure.name
        bound = item.tag in "FD" and noun is not None
        made.append(replace(item, data=replace(item.data, after=noun, beside=beside)) if bound else item)
    return made


@dataclass
class _Reader:
    """Collects the parts of all sentences."""

    requested: list[NamePart | Measure] = field(default_factory=list)
    returned: list[NamePart | Measure] = field(default_factory=list)
    subject: TaggedItem | None = None
    context: list[NamePart] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    ranks: list[Rank] = field(default_factory=list)
    plural_rank: bool = False
    top: tuple[int, str, str, str] | None = None
    orderings: list[Ordering] = field(default_factory=list)
    thresholds: list[Threshold] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    ratio: Ratio | None = None
    distinct: bool = False
    both: bool = False
    change: Literal["", "percent", "difference"] = ""
    averaged: bool = False
    shares: int = 0
    joining: bool = False
    several: bool = False
    typical: bool = False
    everything: bool = False
    gaps: bool = False
    loose: list[NamePart] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    alone: str = ""
    unknown: list[str] = field(default_factory=list)
    last: str = ""
    """The tag two items back."""
    on_rule: OnRule | None = None

    def read(self, items: list[TaggedItem], first: bool) -> None:
        """Read one sentence."""
        if re.fullmatch(r"u[Cuc]*", "".join(item.tag for item in items)) and items[0].data in ("match", "filter"):
            return
        self.verbs.extend(item.text.lower() for item in items if item.tag == "r")
        self.alone = items[-1].text.lower() if items[-1].tag == "r" else self.alone
        if any(item.tag == "R" for item in items):
            items = self._read_ratio(items)
        else:
            # "Among all counties" relates two numbers only in a ratio.
            items = [TaggedItem("p", i.text, "of", joined=i.joined) if i.tag == "f" else i for i in items]
        items = _agents(items)
        for pattern, action in RULES:
            before, items = items, _reduce(items, pattern, action)
            if self.on_rule is not None and items != before:
                self.on_rule(pattern, "".join(i.tag for i in before), "".join(i.tag for i in items))
        items = _attach(_extremes(items))
        items = [item for item in items if not self._take(item)]
        self._read_rest(items, first)

    def _take(self, item: TaggedItem) -> bool:
        """Keep the item if it is a part by itself; return whether it was."""
        match item.tag:
            case "F" | "D":
                self.conditions.append(item.data)
            case "B":
                self.groups.extend(item.data)
            case "H":
                self.thresholds.append(item.data)
            case "X":
                self.absences.append(item.data)
            case "Y":
                self.orderings.append(item.data)
            case "Z":
                self.ranks.append(item.data)
            case "K":
                if self.top is not None and self.top != item.data:
                    self.unknown.append(item.text)
                self.top = item.data
            case "U":
                self.distinct = True
            case "r":
                self.verbs.append(item.text.lower())
            case "a":
                self.typical = True
            case "I":
                self.everything = True
            case "m":
                self.gaps = True
            case "b":
                self.both = True
            case "i":
                self.change, grain = item.data
                self.groups.extend([Group(None, grain, item.text)] if grain else [])
            case _:
                return False
        return True

    def _read_rest(self, items: list[TaggedItem], first: bool) -> None:
        """Read nouns and measures: what is asked for, and of what."""
        listed = self.requested if first else self.returned
        before, beside, loose = "", "", False
        for item in items:
            if item.tag == "j":
                self.joining = True
            elif item.tag == "E":
                listed.append(item.data)
                counted = item.data.name
                if first and self.subject is None and item.data.fn == "count" and counted.tables:
                    self.subject = replace(item, data=counted, plural=True)
            elif item.tag == "C":
                apart = self.subject is not None or (listed and before == "p")
                stray = bool(listed) and before == "C" and not item.data.tables
                if first and (apart or stray) and (before not in (",", "&") or loose):
                    self.loose.append(item.data)
                    loose = True
                else:
                    self.several = self.several or (first and not listed and item.plural)
                    listed.append(item.data)
            elif item.tag == "T":
                self._take_table(item, before, beside, first, listed)
            elif item.tag == "n" and before in ("&", ",") and (counted := self._counted_before(listed, first)):
                listed.append(counted)
            elif item.tag == "n" and any(isinstance(rank.by, Measure) for rank in self.ranks):
                pass
            elif item.tag == "t" and first and not listed and self.subject is None:
                # "Which month had the most orders": one row for each month, and the best of them.
                self.groups.append(Group(None, item.data, item.text))
            elif item.tag not in (",", "&", "p", "(", ")"):
                self.unknown.append(item.text)
            self.last, before, beside = before, item.tag, item.text

    def _counted_before(self, listed: Sequence[NamePart | Measure], first: bool) -> Measure | None:
        """Return the count that `and the count` means: the one asked for before, else that of the subject's rows."""
        counts = [part for part in self.requested if isinstance(part, Measure) and part.fn == "count"]
        counts += [rank.by for rank in self.ranks if isinstance(rank.by, Measure) and rank.by.fn == "count"]
        if counts and not first:
            return counts[0]
        columns = bool(listed) and all(isinstance(part, NamePart) and not part.tables for part in listed)
        if first and columns and not counts and self.subject is not None and self.subject.plural:
            return Measure("count", self.subject.data, text="count")
        return None

    def _take_table(
        self, item: TaggedItem, before: str, beside: str, first: bool, listed: list[NamePart | Measure]
    ) -> None:
        if self.joining and self.absences:
            return
        if before == "&" and beside in _BESIDES and first and self.subject and not isinstance(listed[0], Measure):
            listed.append(item.data)
            return
        if not first:
            if before in ("", ",", "&") and not listed:
                listed.append(item.data)
            elif self.subject is None or item.data.tables[:1] != self.subject.data.tables[:1]:
                self.context.append(item.data)
            return
        again = self.subject is not None and before == "p" and bool(listed) and self.last == "C"
        if again and isinstance(listed[-1], NamePart) and listed[-1].owner is None and not listed[-1].tables:
            # "Names of members and names of colleges": the second belongs to the second.
            self._own(listed[-1:], item.data, listed)
            self.context.append(item.data)
            return
        if self.subject is None and (before == "p" or not listed or isinstance(listed[-1], Measure)):
            self.subject = item
            if not listed:
                listed.append(item.data)
            elif before == "p":
                self._own(list(listed), item.data, listed)
        elif self.subject is None or item.data.tables[:1] != self.subject.data.tables[:1]:
            self.context.append(item.data)

    def _own(self, parts: list[NamePart | Measure], owner: NamePart, listed: list[NamePart | Measure]) -> None:
        """`the name and city of the customer`: both belong to the customer, if it has them."""
        tables = {m.table for m in owner.tables}
        start = len(listed) - len(parts)
        for at, part in enumerate(parts, start):
            if isinstance(part, NamePart) and part.owner is None:
                generic = word_base_form(part.text.lower().split()[-1]) in _OWNED
                if generic or any(m.table in tables for m in part.columns):
                    listed[at] = replace(part, owner=owner)

    # --- ratios

    def _read_ratio(self, items: list[TaggedItem]) -> list[TaggedItem]:
        """`ratio of A to B`, `percentage of A that are F`: read two sides; return the items that apply to both."""
        tags = "".join(item.tag for item in items)
        at = tags.index("R")
        before, rest = items[:at], items[at + 1 :]
        if before and before[-1].tag == "A" and before[-1].data == "avg":
            before, self.averaged = before[:-1], True
        middle = next((n for n, i in enumerate(rest) if n and _divides(i, rest[n - 1], items[at].text)), None)
        if middle is None:
            return self._read_part(items, before, rest, items[at].data)
        end = next((n for n, i in enumerate(rest) if n > middle and i.tag in "gGO,"), len(rest))
        inner = next((n for n, i in enumerate(rest[:middle]) if i.tag == "g"), None)
        if inner is not None and rest[middle].tag == "f":
            return self._read_share(items, before, rest[:inner], rest[inner:middle], rest[middle + 1 :], items[at].data)
        # "to the total number of restaurants" counts the restaurants.
        upper, lower = self._side(rest[:middle]), self._side(rest[middle + 1 : end])
        if upper is None or lower is None:
            return items
        used = {_column_key(condition) for condition in upper.conditions}
        shared = [c for c in lower.conditions if _column_key(c) not in used]
        if not upper.conditions and lower.conditions:
            shared = []
        lower = replace(lower, conditions=tuple(c for c in lower.conditions if c not in shared))
        self.conditions.extend(shared)
        self.ratio = Ratio(upper, lower, items[at].data)
        return before + rest[end:]

    def _read_share(
        self,
        items: list[TaggedItem],
        before: list[TaggedItem],
        upper: list[TaggedItem],
        group: list[TaggedItem],
        lower: list[TaggedItem],
        scale: int,
    ) -> list[TaggedItem]:
        """`ratio of the number of shops in each state to the total number of shops`."""
        part, whole = self._side(upper), self._side(lower)
        if part is None or whole is None or part.conditions or whole.conditions or part.thresholds or part.loose:
            return items
        name = part.subject.name if isinstance(part.subject, Measure) else part.subject
        total = whole.subject.name if isinstance(whole.subject, Measure) else whole.subject
        if name is None or total is None or name.tables[:1] != total.tables[:1] or not name.tables:
            return items
        self.shares = scale
        self.requested.append(Measure("count", name, text="share"))
        return before + group

    def _read_part(
        self, items: list[TaggedItem], before: list[TaggedItem], rest: list[TaggedItem], scale: int
    ) -> list[TaggedItem]:
        """`percentage of customers that are active`: those that meet the condition, out of all."""
        # "By web" is a condition: a value is not what groups are made of.
        tags = "".join(item.tag for item in rest)
        end = next((m.start() for m in re.finditer("g(?!V)|[GO,]", tags)), len(rest))
        group, tail = rest[end : end + 2], rest[end + 2 :]
        if group and group[0].tag == "g" and tail[:1] and tail[0].tag != "p" and any(i.tag in "cVxl" for i in tail):
            # "of employees in each department have a salary above 100": the condition is on the employees.
            rest, end = [*rest[:end], *tail, *group], end + len(tail)
        side = self._side(rest[:end])
        if side is None:
            return items
        own = [c for c in side.conditions if c.kind != "span"]
        if not own and len(side.loose) == 1 and all(m.flag for m in side.loose[0].meanings):
            # "Percentage of meters that are smart".
            own, side = [Condition("flag", side.loose[0].text, side.loose[0])], replace(side, loose=())
        if not own and end < len(rest) and rest[end].tag in "gG" and not side.context and not side.loose:
            self.shares = scale
            listed = side.subject if isinstance(side.subject, Measure) else Measure("count", side.subject, text="share")  # type: ignore[arg-type]
            self.requested.append(listed)
            self.conditions.extend(side.conditions)
            return before + rest[end:]
        if len(own) != 1:
            return items
        self.conditions.extend(c for c in side.conditions if c.kind == "span")
        self.ratio = Ratio(Side(side.subject, tuple(own)), Side(side.subject), scale)
        return before + rest[end:]

    def _side(self, items: list[TaggedItem]) -> Side | None:
        for pattern, action in RULES:
            before, items = items, _reduce(items, pattern, action)
            if self.on_rule is not None and items != before:
                self.on_rule(pattern, "".join(i.tag for i in before), "".join(i.tag for i in items))
        items = _attach(_extremes(items))
        conditions = tuple(item.data for item in items if item.tag in "FD")
        nouns = [item for item in items if item.tag in "TCE"]
        limits = tuple(item.data for item in items if item.tag == "H")
        rest = [item for item in items if item.tag not in "TCEFDHrp"]
        if len(nouns) == 2 and nouns[0].tag in "CE" and nouns[1].tag == "T":
            # The payload of an aircraft.
            owned = nouns[0].data
            if isinstance(owned, NamePart):
                nouns = [replace(nouns[0], data=replace(owned, owner=nouns[1].data))]
        context: list[NamePart] = []
        loose: list[NamePart] = []
        if len(nouns) == 2 and (nouns[0].tag == "T" or (nouns[0].tag == "E" and nouns[1].tag == "C")):
            (context if nouns[1].tag == "T" else loose).append(nouns[1].data)
            nouns = nouns[:1]
        if rest or len(nouns) != 1:
            return None
        return Side(nouns[0].data, conditions, tuple(context), tuple(loose), limits)

    # --- the whole

    def question(self) -> Question:
        """Return all parts together."""
        unknown = list(self.unknown)
        rank = self.ranks[0] if self.ranks else None
        for other in self.ranks[1:]:
            if rank is None or other.by is None or (other.by, other.direction) != (rank.by, rank.direction):
                unknown.append(other.text)
        if len(self.orderings) > 1:
            unknown.append("ordering")
        requested = tuple(self.requested)
        if not requested and self.top is not None and rank is not None and isinstance(rank.by, NamePart):
            requested = (rank.by,)  # "the top 3 highest prices" are prices
        matched = [c.name for c in self.conditions if c.kind == "match" and c.name is not None and c.name.columns]
        bare = not (requested or self.returned or self.subject or self.groups or rank or self.ratio)
        if bare and len(matched) == len(self.conditions) == 1:
            requested = tuple(matched)  # "which names contain the word `new`"
        if self.typical:
            counts = [p for p in requested if isinstance(p, Measure) and p.fn == "count" and p.name.tables]
            unknown += [] if len(counts) == len(requested) == 1 else ["on average"]
            requested = tuple(replace(p, fn="avg", of_count=True) for p in counts) or requested
        plural = bool(self.subject and self.subject.plural) or self.several
        return Question(
            requested=tuple(self.returned) or requested,
            listed=bool(self.returned),
            subject=self.subject.data if self.subject else None,
            plural=plural,
            context=tuple(self.context),
            conditions=tuple(self.conditions),
            groups=tuple(dict.fromkeys(self.groups)),
            rank=rank,
            top=self.top[0] if self.top else None,
            ordering=self.orderings[0] if self.orderings else None,
            thresholds=tuple(self.thresholds),
            absences=tuple(self.absences),
            ratio=self.ratio,
            distinct=self.distinct,
            everything=self.everything,
            gaps=self.gaps,
            both=self.both,
            change=self.change,
            averaged=self.averaged,
            shares=self.shares,
            loose=tuple(self.loose),
            verbs=tuple(self.verbs),
            alone=self.alone,
            unknown=tuple(unknown),
            asked=requested,
            lowest=bool(self.top and self.top[1] == "asc"),
        )


def _divides(item: TaggedItem, before: TaggedItem, words: str) -> bool:
    """`to`, `out of`, `per` between the two numbers of a ratio; not the `to` of `belong to`."""
    dividers = ("to", "per") if words.startswith("ratio") else ("to",)
    return item.tag == "f" or (item.tag in "pg" and item.text in dividers and before.tag != "r")


def _column_key(condition: Condition) -> object:
    if condition.hits:
        return frozenset((hit.table, hit.column) for hit in condition.hits)
    return condition.name.meanings if condition.name else condition.kind
