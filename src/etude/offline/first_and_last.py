"""The first and the last in time: `latest 3 orders`, `last invoice date`, `when was the first order`."""

from __future__ import annotations

import itertools
from dataclasses import replace

from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import NamePart
from etude.offline.resolver import TECHNICAL
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyColumn

_LAST = frozenset(("last", "latest", "newest", "most recent", "final"))
_FIRST = frozenset(("first", "earliest", "oldest"))
_IN_TIME = "date year time joined created"


def read_first_and_last(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with words for an end of time as a rank or an extreme of the only date that there is."""
    return _dates_of_rows(_ends_of_dates(_numbered(items, vocabulary), vocabulary), vocabulary)


def _numbered(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """`latest 3 orders`: the 3 latest ones; `first 5 orders`: the 5 earliest, if orders have one date."""
    for at, (first, second) in enumerate(itertools.pairwise(items)):
        nouns = items[at + 2 : at + 3]
        counted = second.tag == "N" and isinstance(second.data, int) and nouns and nouns[0].tag == "T"
        if first.tag == "S" and first.text in _LAST | _FIRST and counted and nouns[0].plural:
            top = replace(second, tag="K", data=(second.data, "", "", ""))
            return [*items[:at], top, first, *items[at + 2 :]]
        end = first.data[3] if first.tag == "K" else ""
        plain = second.tag == "T" and not any(item.tag in "gOdSMPG" for item in items[at + 2 :])
        if end in ("first", "last") and plain and _only_date(second, vocabulary) is not None:
            # "First 5 orders by amount" are not the earliest.
            earliest = TaggedItem("S", "earliest", ("asc", _IN_TIME))
            latest = TaggedItem("S", "latest", ("desc", _IN_TIME))
            top = replace(first, data=(first.data[0], "", "", ""))
            return [*items[:at], top, earliest if end == "first" else latest, *items[at + 1 :]]
    return items


def _ends_of_dates(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """`last invoice date`: the highest of the dates."""
    made = list(items)
    for at in range(len(made) - 1):
        word, column = made[at], made[at + 1]
        said = word.text.lower()
        if word.tag not in "uS" or said not in _LAST | _FIRST or column.tag != "C" or column.plural:
            continue
        places = [m for m in column.data.columns if m.column]
        kinds = {vocabulary.table(m.table).column(str(m.column)).kind for m in places}
        if places and kinds <= {"date", "timestamp"} and not any(item.tag == "T" for item in made[:at]):
            made[at] = TaggedItem("A", word.text, "max" if said in _LAST else "min", joined=word.joined)
    return made


def _dates_of_rows(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """`when was the first order`: the lowest date of orders."""
    said = [item for item in items if item.tag != "."]
    if len(said) < 3 or said[0].text.lower() != "when" or said[2].tag != "T" or said[2].plural:
        return items
    word, rest = said[1], said[3:]
    column = _only_date(said[2], vocabulary)
    if word.tag not in "uS" or word.text.lower() not in _LAST | _FIRST or column is None:
        return items
    if any(item.tag not in "rpVDF" for item in rest):
        return items
    fold = TaggedItem("A", word.text, "max" if word.text.lower() in _LAST else "min")
    date = TaggedItem("C", column.name, NamePart(column.name, (Meaning(column.table, column.name),)))
    return [fold, date, *[item for item in rest if item.tag != "r"]]


def _only_date(item: TaggedItem, vocabulary: Vocabulary) -> VocabularyColumn | None:
    """Return the date of the rows of a table, if it has just one that is not technical."""
    tables = {m.table for m in item.data.tables if m.cost == item.data.tables[0].cost}
    if len(tables) != 1:
        return None
    dates = [c for c in vocabulary.table(tables.pop()).columns if c.kind in ("date", "timestamp")]
    plain = [c for c in dates if not TECHNICAL & {*c.words}]
    return plain[0] if len(plain) == len(dates) == 1 else None
