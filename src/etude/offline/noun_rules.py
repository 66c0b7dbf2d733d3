"""Grammar rules for nouns beside nouns, groups, and those who do something."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from etude.offline.question_parts import (
    Condition,
    Group,
)
from etude.offline.rule_items import items_tagged, items_text, read_part_of
from etude.offline.tags import TaggedItem, is_past_form
from etude.offline.words import split_identifier_words, word_base_form

_OWNED = frozenset(("name", "title", "id", "number", "date", "type", "code", "description", "status"))
"""Nouns that nearly every table has a column for: they need the noun they belong to."""


def read_columns_in_brackets(items: list[TaggedItem]) -> list[TaggedItem]:
    """`users (id and name)`: the columns to show of them."""
    return [*items[2:-1], TaggedItem("p", "of", "of"), items[0]]


def read_swap(items: list[TaggedItem]) -> list[TaggedItem]:
    """`average monthly price`: the period goes first."""
    return [items[1], items[0]]


def read_groups(items: list[TaggedItem]) -> list[TaggedItem]:
    """`per city and month`."""
    groups = []
    for item in items_tagged(items, "CTt"):
        name = item.data if item.tag != "t" else None
        groups.append(Group(name, item.data if item.tag == "t" else None, f"{items[0].text} {item.text}"))
    return [TaggedItem("B", items_text(items), tuple(groups))]


def read_each_one(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`the name of each customer`: the name is the customer's."""
    column, each, table = items
    tables = {m.table for m in table.data.tables}
    if each.text != "of each" or column.data.owner or not any(m.table in tables for m in column.data.columns):
        return None
    owned = replace(column, data=replace(column.data, owner=table.data))
    return [owned, TaggedItem("g", "for each", joined=each.joined), table]


def read_grain(items: list[TaggedItem]) -> list[TaggedItem]:
    """`monthly`."""
    return [TaggedItem("B", items[0].text, (Group(None, items[0].data, items[0].text),))]


def read_compound(items: list[TaggedItem]) -> list[TaggedItem] | None:
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
        return [replace(first, text=items_text(items))]
    if first.tag == second.tag == "C" and (shared := read_part_of([first, TaggedItem("p", "of"), second])):
        return shared
    if first.tag == second.tag == "C" and not {m.table for m in first.data.meanings} & {
        m.table for m in second.data.meanings
    }:
        # "insurance type", if only visits have a type: neither noun describes the other.
        return [TaggedItem("u", items_text(items), joined=first.joined)]
    if first.tag == second.tag == "C" and not _describes(first, second):
        # "discount rate", if only taxes have a rate: one of the two is not what is asked for.
        return [TaggedItem("u", items_text(items), joined=first.joined)]
    owned = replace(second.data, text=items_text(items), owner=first.data)
    return [replace(second, text=items_text(items), data=owned, joined=first.joined)]


def _describes(first: TaggedItem, second: TaggedItem) -> bool:
    """Return whether the first noun may belong to the second: `population` to `density`, `tax` to `tax_rate`."""
    if word_base_form(second.text.lower().split()[-1]) in _OWNED or any(m.label for m in first.data.meanings):
        return True
    if any(m.cost == 0 for m in second.data.columns):
        return True  # a column has just that name
    words = {word_base_form(word) for word in first.text.lower().split()}
    return any(words & {*split_identifier_words(m.column or "")} for m in second.data.columns)


def read_agent(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`written by authors`: the agent; `sold by genre` is a grouping, because the noun is singular and bare."""
    if items[1].text != "by" or (items[2].joined and not items[2].plural):
        return None
    return [items[0], TaggedItem("p", "by", "by"), items[2]]


def read_by_many(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`songs by artists from India`: those of some artists, because a condition says which; not a row for each."""
    if items[0].text != "by" or not items[1].plural:
        return None
    return [TaggedItem("p", "by", "by", joined=items[0].joined), items[1]]


def read_participle(item: TaggedItem) -> list[TaggedItem] | None:
    """`problems reported by Ann`: a verb, although a status is called so."""
    verb = item.text.islower() and item.text.endswith("ed") and " " not in item.text
    return [TaggedItem("r", item.text, item.text, joined=item.joined)] if verb else None


def read_agents(items: list[TaggedItem]) -> list[TaggedItem]:
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
