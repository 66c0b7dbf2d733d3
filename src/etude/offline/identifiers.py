"""Columns whose numbers name rows, such as `Booking No`: they are counted, never added up or averaged."""

from __future__ import annotations

from collections.abc import Sequence

from etude.offline.vocabulary import VocabularyColumn, VocabularyTable, copy_with
from etude.offline.words import split_identifier_words, word_base_form

_ENDINGS = frozenset(("id", "no", "nr", "nbr", "code", "key", "ref", "reference", "uuid", "sku", "ean", "isbn"))
"""Last words of column names whose numbers are names, even if many rows share one."""
_NUMBERED = frozenset(("number", "num"))
"""Last words that may also hold a count: `citation_num`."""
_DOCUMENTS = frozenset(
    """
    account booking case contract delivery docket document index invoice job member order parcel permit policy
    receipt record reservation row sequence serial shipment ticket tracking transaction voucher
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Things that are numbered: a column of this name holds their numbers if nearly all differ."""
_NOT_ROWS = frozenset(
    """
    account area bank barcode bar card country index license line mobile page passport phone plate post postal row
    sequence serial tax tracking vat zip
    """.split()  # noqa: SIM905
)
"""Numbers of a row that do not name it."""
_FIRST_NUMBER = 100
"""A count begins near zero, so a column named `number` that begins here or above holds names."""
_SEQUENCE = 20
"""Numbers without a gap are an identifier from this many rows on."""


def is_named_identifier(column: VocabularyColumn) -> bool:
    """Return whether the name of a number says that it is an identifier: `Customer No`, not `No of guests`."""
    if column.kind != "number":
        return False
    last = split_identifier_words(column.name)[-1:]
    if column.name.strip().endswith("#") or (last and last[0] in _ENDINGS):
        return True
    high_enough = isinstance(column.low, int | float) and column.low >= _FIRST_NUMBER
    return bool(last) and last[0] in _NUMBERED and high_enough and _is_whole(column)


def mark_identifiers(table: VocabularyTable) -> VocabularyTable:
    """Return the table with the numbers that identify its rows marked: nearly all different, and named like it."""
    columns = tuple(
        copy_with(column, identifies=True) if _identifies_rows(column, table, at == 0) else column
        for at, column in enumerate(table.columns)
    )
    return copy_with(table, columns=columns)


def call_rows_by_identifier(table: VocabularyTable) -> VocabularyTable:
    """Return the only table of a source with the noun of its identifier as another name: `bookings`."""
    column = identifier_of_rows(table)
    noun = _noun_of(column) if column is not None else ()
    taken = {c.words for c in table.columns if c != column} | {table.words, *table.aliases}
    if not noun or noun in taken or noun[-1] in _NOT_ROWS:
        return table
    return copy_with(table, aliases=(*table.aliases, noun))


def identifier_of_rows(table: VocabularyTable) -> VocabularyColumn | None:
    """Return the first column that identifies nearly every row and says of what: `Booking No`."""
    found = (c for c in table.columns if c.identifies and _nearly_unique(c, table) and _noun_of(c))
    return next(found, None)


def note_repeated_identifiers(table: VocabularyTable, noun: Sequence[str]) -> str | None:
    """Return a note if the rows are called by a number that occurs twice in some of them."""
    column = identifier_of_rows(table)
    if column is None or column.distinct == table.rows or tuple(noun) != _noun_of(column):
        return None
    return (
        f"Rows are counted: `{column.name}` has {column.distinct:,} different values in the {table.rows:,} rows "
        f"of `{table.name}`."
    )


def _identifies_rows(column: VocabularyColumn, table: VocabularyTable, first: bool) -> bool:
    if column.identifies:
        return True
    if column.kind != "number" or not _is_whole(column) or not _nearly_unique(column, table):
        return False
    words = split_identifier_words(column.name)
    counts = words[:2] in (("no", "of"), ("number", "of"), ("num", "of")) or words[:1] == ("count",)
    named = is_named_identifier(column) or (words[-1:] and words[-1] in _NUMBERED)
    document = len(words) < 3 and words[-1:] != () and words[-1] in _DOCUMENTS and isinstance(column.low, int)
    return not counts and bool(named or document or (first and _is_sequence(column, table)))


def _is_sequence(column: VocabularyColumn, table: VocabularyTable) -> bool:
    low, high = column.low, column.high
    if not isinstance(low, int) or not isinstance(high, int) or table.rows < _SEQUENCE:
        return False
    return column.distinct == table.rows == high - low + 1 and column.words[-1:] != ("year",)


def _is_whole(column: VocabularyColumn) -> bool:
    return all(isinstance(end, int | float) and end == int(end) for end in (column.low, column.high))


def _nearly_unique(column: VocabularyColumn, table: VocabularyTable) -> bool:
    return bool(table.rows) and column.distinct >= table.rows - max(1, table.rows // 50)


def _noun_of(column: VocabularyColumn) -> tuple[str, ...]:
    """Return what a column numbers: the booking of `Booking No` and `Booking #`."""
    words = [word_base_form(word) for word in split_identifier_words(column.name)]
    while words and words[-1] in _ENDINGS | _NUMBERED:
        words.pop()
    return tuple(words)
