"""Dates that a source keeps as text: SQLite has no type for them, so `2025-03-01` in a TEXT column is a date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from etude.entities import Catalog
from etude.offline.deadline import check_deadline
from etude.offline.vocabulary import Ask, VocabularyColumn, VocabularyTable, copy_with
from etude.offline.words import split_identifier_words
from etude.sources.quoting import quote_identifier, quote_table

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?")
_DAY = 10
_NAMES = frozenset("date at on time day timestamp datetime since until from to".split())  # noqa: SIM905
"""Words that end the names of date columns; texts of others are not looked at if they are many."""


def find_text_dates(tables: Sequence[VocabularyTable], catalog: Catalog, ask: Ask) -> list[VocabularyTable]:
    """Return the tables with each text column that holds nothing but ISO dates as a date or timestamp."""
    made = []
    for table in tables:
        check_deadline()
        columns = tuple(_read_column(column, catalog.dialect, ask) for column in table.columns)
        made.append(copy_with(table, columns=columns) if columns != table.columns else table)
    return made


def _read_column(column: VocabularyColumn, dialect: str, ask: Ask) -> VocabularyColumn:
    if column.kind != "text" or not column.distinct:
        return column
    if column.values:
        whole = len({*column.values}) == column.distinct and all(map(_is_iso, column.values))
        return _as_date(column, min(column.values), max(column.values)) if whole else column
    name = split_identifier_words(column.name)[-1:]
    if dialect != "sqlite" or not ({*name} & _NAMES or (name and name[0].endswith("ed"))):
        return column
    # Too many to list: SQLite itself says whether each is a date.
    text = quote_identifier(column.name, dialect)
    odd = f"COUNT(CASE WHEN NOT {text} IS NULL AND (DATE({text}) IS NULL OR NOT {text} LIKE '____-__-__%') THEN 1 END)"
    wide = f"MIN(LENGTH({text})), MAX(LENGTH({text}))"
    query = f"SELECT {odd}, {wide}, MIN({text}), MAX({text}) FROM {quote_table(column.table, dialect)}"
    odd_count, shortest, longest, low, high = next(iter(ask(query)))
    if odd_count or shortest != longest or not (_is_iso(str(low)) and _is_iso(str(high))):
        return column
    return _as_date(column, str(low), str(high))


def _is_iso(text: str) -> bool:
    if not _ISO.fullmatch(text):
        return False
    try:
        date.fromisoformat(text[:_DAY])
    except ValueError:
        return False
    return True


def _as_date(column: VocabularyColumn, low: str, high: str) -> VocabularyColumn:
    days = len(low) == len(high) == _DAY and all(len(value) == _DAY for value in column.values)
    kind = "date" if days else "timestamp"
    return copy_with(column, kind=kind, low=low, high=high, values=(), spellings=())
