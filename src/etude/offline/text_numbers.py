"""Numbers that are stored as text: a text column whose values are all numbers is one of numbers."""

from __future__ import annotations

import re

from etude.offline.column_traits import IDENTIFYING
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable, copy_with

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,9})?")
"""Without leading zeros, signs in front or commas: those are codes, or not numbers to every engine."""
LEAST = 3
"""A column needs this many different numbers; fewer may be the names of levels."""


def read_text_numbers(table: VocabularyTable) -> VocabularyTable:
    """Return the table with text columns that hold nothing but numbers as columns of numbers."""
    columns = tuple(_as_number(column, table) for column in table.columns)
    return copy_with(table, columns=columns) if columns != table.columns else table


def _as_number(column: VocabularyColumn, table: VocabularyTable) -> VocabularyColumn:
    values = column.values
    # `num_of_staff` is an amount, `phone_number` is not.
    named = bool(IDENTIFYING & {*column.words[1:], *column.words[-1:]}) or column.identifies
    named = named or column.name in (*table.key, *table.label)
    whole = len(values) == column.distinct >= LEAST and all(_NUMBER.fullmatch(value) for value in values)
    if column.kind != "text" or named or not whole:
        return column
    numbers = [float(value) for value in values]
    low, high = (int(end) if end == int(end) else end for end in (min(numbers), max(numbers)))
    return copy_with(column, kind="number", low=low, high=high, as_text=True)
