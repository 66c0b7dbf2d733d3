"""Values that are used like nouns: `cheapest bike`, `purchases per month`, if rows are bikes or purchases."""

from __future__ import annotations

from collections.abc import Sequence

from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import Condition, NamePart
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import word_base_form

_STOCKED = frozenset(("stock", "inventory", "quantity", "unit", "piece", "available"))
"""Words of columns that say how many there are of each row: `how many bikes` may be their sum."""


def read_value_nouns(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the table of its rows added after a value that is used as a noun.

    The value is that of a column with a few values, in one table only, and a plural, or the singular of one. The
    question names no table and no column of its own before it.
    """
    made = list(items)
    if any(item.tag in "TRx" for item in made):
        return made
    for at, item in enumerate(made):
        before = made[at - 1].tag if at else "."
        following = made[at + 1].tag if at + 1 < len(made) else "."
        table = _table_of(item, vocabulary) if item.tag == "V" else ""
        if not table or before not in ".#SK" or following not in ".gGDpcow":
            continue
        counted = any({*column.words} & _STOCKED for column in vocabulary.table(table).columns)
        if before == "#" and counted:
            return made
        rows = TaggedItem("T", table, NamePart(table, (Meaning(table),)), plural=_is_plural(item.text), joined=True)
        return [*made[: at + 1], rows, *made[at + 1 :]]
    return made


def _is_plural(text: str) -> bool:
    return word_base_form(text.lower()) != text.lower()


def _table_of(item: TaggedItem, vocabulary: Vocabulary) -> str:
    """Return the table whose rows are called like the value, or ''."""
    text = item.text
    if not isinstance(item.data, Condition) or not text.islower() or " " in text:
        return ""
    places = {(hit.table, hit.column) for hit in item.data.hits}
    if len(places) != 1 or any(len(hit.values) != 1 for hit in item.data.hits):
        return ""
    ((table, column),) = places
    value = item.data.hits[0].values[0].lower()
    noun = _is_plural(text) or (_is_plural(value) and word_base_form(value) == text)
    known = vocabulary.table(table)
    same = word_base_form(value) == word_base_form(text)
    return table if noun and same and known.column(column).distinct < known.rows else ""
