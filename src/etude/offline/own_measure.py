"""A table that is named like its own number: `total sales` of `sales.csv` adds up its column `sales`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.column_traits import is_numeric_column, is_rate_column
from etude.offline.part_references import LEVELS, part_adds_up
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import NamePart
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable
from etude.offline.words import word_base_form

_ADDED = frozenset(
    """
    sale payment expense donation deposit refund revenue earning spending purchase payout cost income profit loss fee
    visitor visit click view download signup order shipment
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Nouns whose numbers are added up, also if the name of the column is a singular."""
_BY_SIZE = frozenset(("highest", "lowest", "largest", "smallest", "biggest", "greatest", "maximal", "minimal", "least"))
_KEPT = frozenset(("balance", "inventory", "headcount", "stock"))
"""Nouns for what there is at a time: the numbers of two days are of the same things."""


def find_own_measure(table: VocabularyTable, noun: str) -> VocabularyColumn | None:
    """Return the column of numbers that has the noun as its name, if the table is called like it, too."""
    words = tuple(word_base_form(word) for word in noun.lower().split())
    if not words or table.words[-len(words) :] != words:
        return None
    return next((c for c in table.columns if c.words == words and is_numeric_column(c)), None)


def read_own_measure(items: list[TaggedItem], vocabulary: Vocabulary) -> list[TaggedItem]:
    """Return the items with the noun for such a table read as its column, where only a number can be meant.

    That is after `total`, `average` or `highest`, before or after a period, and before `by` and `per`. `How many
    sales` and `list the sales` keep both meanings.
    """
    made: list[TaggedItem] = []
    for at, item in enumerate(items):
        column = _column_of(item, vocabulary)
        if column is None:
            made.append(item)
            continue
        named = NamePart(item.text, (Meaning(column.table, column.name),))
        before = [each for each in items[:at] if each.tag != "."]
        measured = before[-1:] and (before[-1].tag in "Ai" or (before[-1].tag == "S" and before[-1].text in _BY_SIZE))
        folded = len(before) > 1 and before[-1].tag == "G" and before[-2].tag == "A"
        if measured or folded or (before[-1:] and before[-1].tag == "g" and before[-1].text == "per"):
            made.append(replace(item, tag="C", data=named))
        elif _is_broken_down(items, at):
            if _is_added(column):
                made.append(TaggedItem("A", "total", "sum", joined=item.joined))
            made.append(replace(item, tag="C", data=named))
        else:
            made.append(item)
    return made


def _column_of(item: TaggedItem, vocabulary: Vocabulary) -> VocabularyColumn | None:
    if item.tag != "T" or not isinstance(item.data, NamePart) or not item.data.tables:
        return None
    lowest = min(meaning.cost for meaning in item.data.tables)
    tables = {meaning.table for meaning in item.data.tables if meaning.cost == lowest}
    return find_own_measure(vocabulary.table(tables.pop()), item.text) if len(tables) == 1 else None


def _is_added(column: VocabularyColumn) -> bool:
    return part_adds_up(column) or (bool(_ADDED & {*column.words}) and not is_rate_column(column))


def _is_broken_down(items: Sequence[TaggedItem], at: int) -> bool:
    """`sales by region`, `monthly sales`, `sales in january`: the noun stands alone before what divides it."""
    before = "".join(item.tag for item in items[:at] if item.tag != ".")
    after = "".join(item.tag for item in items[at + 1 :] if item.tag != ".")
    if before not in ("", "G") or any(item.tag in "#KIUx" for item in items):
        return False
    return (before == "G" and not after) or after.startswith(("g", "G", "i", "D", "pD", "pV"))


def find_kept_level(column: VocabularyColumn, table: VocabularyTable) -> str:
    """Return the date at which each number of `balances` is known, if adding up several dates counts it again; or ''.

    It is so if the table is named after the number: then a row is the state of something on a day.
    """
    if not {*column.words} & {*table.words} & _KEPT:
        return ""
    dates = [c for c in table.columns if c.kind in ("date", "timestamp") and c.distinct > 1]
    return dates[0].name if len(dates) == 1 else ""


def counts_may_be_held(table: VocabularyTable, noun: str) -> VocabularyColumn | None:
    """Return the column that `how many visitors` may mean beside the rows of `visitors`: it holds whole numbers."""
    column = find_own_measure(table, noun)
    if column is None or LEVELS & {*column.words}:
        return None
    whole = all(isinstance(end, int) and not isinstance(end, bool) for end in (column.low, column.high))
    return column if whole and column.low >= 0 else None  # type: ignore[operator]
