"""Grammar rules for spans of time: `in 2014 or 2015`, `shipped in May`, `on Mondays`."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from etude.offline.dates import Span
from etude.offline.question_parts import (
    Condition,
    Group,
)
from etude.offline.rule_items import items_text
from etude.offline.tags import TaggedItem


def read_years(items: list[TaggedItem]) -> list[TaggedItem] | None:
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
    made = [TaggedItem("D", items_text(items), replace(first, text=items_text(items), either=(*first.either, other)))]
    if any(item.data == "vs" for item in items):
        spans = [part.span for part in (first, other)]
        if any(span is None or span.year is None for span in spans):
            return None
        made.append(TaggedItem("B", items_text(items), (Group(None, "year", f"for each {items_text(items)}"),)))
    return made


def read_year_alone(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`trips per month 2024`."""
    year = items[-1].data
    if not isinstance(year, int) or not 1900 <= year <= 2100:
        return None
    span = Span(date(year, 1, 1), date(year + 1, 1, 1), f"in {year}", year)
    return [items[0], TaggedItem("D", items[-1].text, Condition("span", items[-1].text, span=span))]


def read_dated(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`shipped in May`, `birth date in 1990`: the word before says which date."""
    hint, span = items[0], items[-1]
    condition: Condition = span.data
    if hint.tag == "C":
        return [TaggedItem("D", items_text(items), replace(condition, name=hint.data, text=items_text(items)))]
    must = "must" if hint.tag == "u" else ""
    return [
        TaggedItem("D", items_text(items), replace(condition, near=(hint.text,), said=must, text=items_text(items)))
    ]


def read_weekday(items: list[TaggedItem]) -> list[TaggedItem]:
    """`on Mondays`."""
    return [TaggedItem("D", items_text(items), items[-1].data)]
