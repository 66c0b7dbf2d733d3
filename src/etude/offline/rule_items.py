"""The type of a grammar rule's function, and how rules look at the items they matched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from etude.offline.question_parts import (
    NamePart,
)
from etude.offline.tags import TaggedItem
from etude.offline.units import written_unit

Action = Callable[[list[TaggedItem]], list[TaggedItem] | None]
"""Replaces the items that a rule matched; None leaves them alone."""


def items_text(items: Sequence[TaggedItem]) -> str:
    """Return the words of the items."""
    return " ".join(item.text for item in items)


def is_count(number: TaggedItem) -> bool:
    """Return whether a number can count things: a whole number, and not a percentage of them."""
    return isinstance(number.data, int) and written_unit(number.text) != "percent"


def items_tagged(items: Sequence[TaggedItem], tags: str) -> list[TaggedItem]:
    """Return the items that have one of the tags."""
    return [item for item in items if item.tag in tags]


def item_tagged(items: Sequence[TaggedItem], tags: str) -> TaggedItem:
    """Return the first item that has one of the tags."""
    return next(item for item in items if item.tag in tags)


def comparison_of(item: TaggedItem) -> str:
    """Return the comparison of `more than` or `older than`."""
    return str(item.data[0] if item.tag == "o" else item.data)


def read_part_of(items: list[TaggedItem]) -> list[TaggedItem] | None:
    """`cost of round-trip fares`: what both nouns can mean."""
    first, of, second = items
    if of.text != "of":
        return None
    shared = tuple(
        m for m in first.data.columns if any((m.table, m.column) == (o.table, o.column) for o in second.data.columns)
    )
    if not shared:
        return None
    return [replace(first, text=items_text(items), data=NamePart(items_text(items), shared))]
