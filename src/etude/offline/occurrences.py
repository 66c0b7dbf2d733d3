"""Read how often something happened as the number of rows that say so: `visited twice` is two visits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.joins import join_distance
from etude.offline.phrase_index import HEAD, Meaning, phrase_index_of
from etude.offline.question_parts import NamePart
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import verb_root

_OFTEN = frozenset(("often", "frequently", "times", "commonly"))
_EXISTING = frozenset(("used", "listed", "recorded", "appear", "appears", "occur", "occurs", "mentioned"))
"""Verbs that say of a value only that rows have it."""
_MOST = frozenset(("most", "least", "fewest", "most number of", "largest number of", "highest number of"))


def read_occurrences(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the rows of a verb in place of `times` and `often`, if a table is named after it."""
    made: list[TaggedItem] = []
    at = 0
    while at < len(items):
        found, length = (
            _at_least_times(items, at, vocabulary)
            or _most_often(items, at, vocabulary)
            or _number_of_times(items, at, vocabulary)
            or ([items[at]], 1)
        )
        made.extend(found)
        at += length
    return made


def _at_least_times(
    items: Sequence[TaggedItem], at: int, vocabulary: Vocabulary
) -> tuple[list[TaggedItem], int] | None:
    """`visited at least 2 times`: a verb, a comparison and a number of times."""
    verb, *rest = items[at : at + 4]
    verb = _as_verb(verb)
    placed = 1 if rest and rest[0].tag == "p" else 0  # "reserved for more than 60 times"
    compared = rest[placed : placed + 2]
    if verb.tag != "r" or [item.tag for item in compared] != ["c", "N"] or not _says_times(compared[1]):
        return None
    rows = _rows_of(verb, items[:at], vocabulary) or _rows_with(verb, items[:at])
    number = replace(compared[1], text=compared[1].text.rsplit(maxsplit=1)[0])
    return ([verb, compared[0], number, rows], 3 + placed) if rows is not None else None


def _most_often(items: Sequence[TaggedItem], at: int, vocabulary: Vocabulary) -> tuple[list[TaggedItem], int] | None:
    """`ordered most often`, `ordered the most`, `the most frequently ordered product`."""
    items = [*items[:at], *(_as_verb(item) for item in items[at : at + 4]), *items[at + 4 :]]
    tags = "".join(item.tag for item in items[at : at + 4])
    most = items[at + 1] if tags[:1] == "r" and len(tags) > 1 else items[at]
    if most.tag != "M" or most.text not in _MOST:
        return None
    if tags[:1] == "r":
        often = at + 2 < len(items) and items[at + 2].tag == "u" and items[at + 2].text.lower() in _OFTEN
        if not often and not (at + 2 == len(items) or items[at + 2].tag == "."):
            return None
        rows = _rows_of(items[at], items[:at], vocabulary) if not _named_later(items[at + 2 :]) else None
        return ([items[at], most, rows], 3 if often else 2) if rows is not None else None
    if tags[:4] in ("MurT", "MurC") and items[at + 1].text.lower() in _OFTEN:
        rows = _rows_of(items[at + 2], [*items[:at], items[at + 3]], vocabulary)
        return ([items[at + 3], items[at + 2], most, rows], 4) if rows is not None else None
    return None


def _number_of_times(
    items: Sequence[TaggedItem], at: int, vocabulary: Vocabulary
) -> tuple[list[TaggedItem], int] | None:
    """`the number of times it was ordered`: a count, `times` and a verb, or the noun that is counted."""
    count, *rest = items[at : at + 3]
    if count.tag != "#" or not rest or rest[0].tag != "u" or rest[0].text.lower() != "times" or len(rest) < 2:
        return None
    if rest[1].tag == "T":
        return [count, rest[1]], 3
    verb = _as_verb(rest[1])
    rows = _rows_of(verb, items[:at], vocabulary) if verb.tag == "r" else None
    return ([count, rows, verb], 3) if rows is not None else None


def _as_verb(item: TaggedItem) -> TaggedItem:
    """Return `ordered` as a verb; without `times` or `often` it may begin an order."""
    return replace(item, tag="r", data="order") if (item.tag, item.text) == ("O", "ordered") else item


def _rows_with(verb: TaggedItem, before: Sequence[TaggedItem]) -> TaggedItem | None:
    """`codes used less than 5 times`: the rows that have the code."""
    column = before[-1] if before and before[-1].tag == "C" else None
    if column is None or verb.text.lower() not in _EXISTING or not column.data.columns:
        return None
    least = min(m.cost for m in column.data.columns)
    tables = {m.table for m in column.data.columns if m.cost == least}
    meanings = tuple(Meaning(table) for table in sorted(tables))
    return TaggedItem("T", verb.text, NamePart(column.text, meanings), plural=True) if len(tables) == 1 else None


def _named_later(items: Sequence[TaggedItem]) -> bool:
    """Return whether the sentence continues with a table: `ordered most often on invoices` may count these."""
    end = next((at for at, item in enumerate(items) if item.tag == "."), len(items))
    return any(item.tag == "T" for item in items[:end])


def _says_times(number: TaggedItem) -> bool:
    return number.text.lower().endswith((" times", " time"))


def _rows_of(verb: TaggedItem, others: Sequence[TaggedItem], vocabulary: Vocabulary) -> TaggedItem | None:
    """Return the table whose rows say that it was done: `visits`, or `orders` for ordered."""
    root, index = verb_root(verb.text.lower()), phrase_index_of(vocabulary)
    nouns = [p[0] for p in index.names if len(p) == 1 and len(p[0]) > 3 and verb_root(p[0]) == root]
    found: dict[str, Meaning] = {}
    for noun in nouns:
        for meaning in index.names[noun,]:
            if meaning.column is None and not meaning.label and meaning.cost <= HEAD:
                found[meaning.table] = min(meaning, found.get(meaning.table, meaning), key=lambda m: m.cost)
    told = {m.table for item in others if item.tag == "T" for m in item.data.tables if m.cost <= 1}
    if not found or {*found} & told:
        return None
    # A product was ordered as often as it has order items, which refer to it; not as often as there are orders.
    near = [table for table in found if any(join_distance(vocabulary, owner, table) == 1 for owner in told)]
    chosen = near if len(near) == 1 else [table for table, m in found.items() if m.cost == 0]
    if len(chosen) != 1:
        return None
    return TaggedItem("T", verb.text, NamePart(verb.text, (Meaning(chosen[0]),)), plural=True)
