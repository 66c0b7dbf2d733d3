"""The answer as a sentence: every number in it is from the result, or the number of its rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from etude.cell_text import cut_cell_text
from etude.column_title import column_title
from etude.offline.understand import Understanding
from etude.offline.words import spell_out_words, split_identifier_words, word_base_form, word_plural_form

SHOWN = 5
VALUE_CHARS = 500
"""How much of a text a sentence repeats."""
_PERIODS = ("day", "week", "month", "quarter", "year")
_MEASURED = ("sum_", "avg_", "min_", "max_", "number_of_", "median_")
_RANKED = re.compile(r"(?:highest|lowest) `(?!(?:day|week|month|quarter|year)`)[^`]*` first|the first \d")
"""An order that the question asked for, rather than that of time."""
_UNGROUPED = frozenset(("year", "season", "id", "code", "zip", "phone", "key"))
"""Words in the names of columns whose numbers have no separators: 1980, not 1,980."""


def write_answer_sentence(
    understanding: Understanding, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int
) -> str:
    """Return the result in a sentence or two."""
    source = understanding.plan.source
    return write_row_answer_sentence(
        understanding.reading, columns, rows, row_count, source if isinstance(source, str) else ""
    )


def write_row_answer_sentence(
    reading: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int, table: str = ""
) -> str:
    """Return rows in a sentence or two; `reading` says what was computed, if that is known, and `table` of what."""
    if row_count == 0 or not rows:
        return f"No rows match. Read as: {reading.rstrip('.')}." if reading else "No rows match."
    if row_count == 1 and len(columns) == 1:
        name = columns[0]
        if name == f"number_of_{table}" and word_base_form(table.lower()) == table.lower():
            name = f"number_of_rows_in_{table}"  # `school` is not what its rows are
        return f"{_title(name)}{_conditions(reading)}: {phrase_answer_value(rows[0][0], columns[0])}."
    if row_count == 1 and len(columns) == 2 and columns[1].startswith(_MEASURED):
        return (
            f"{_title(columns[0])} {phrase_answer_value(rows[0][0], columns[0])}: {_measure(columns[1], rows[0][1])}."
        )
    if row_count == 1:
        pairs = ", ".join(
            f"{column_title(name)} {phrase_answer_value(value, name)}"
            for name, value in zip(columns, rows[0], strict=True)
        )
        return f"One row: {pairs}."
    if " only those with the " in reading:
        return f"{row_count:,} rows tie. {_list(columns, rows, row_count)}."
    if len(columns) == 1:
        return f"{row_count:,} {_noun(columns[0], rows)}: {_list(columns, rows, row_count, SHOWN)}."
    if len(rows) == row_count and _is_series(columns, rows) and not _RANKED.search(reading):
        return _series(columns, rows)
    listing = "list of" in reading.lower()
    if listing or not _ranks(columns, [row for row in rows if row[1] is not None]):
        noun = (
            word_plural_form(word_base_form(table.lower()))
            if listing and word_base_form(table.lower()) != table.lower()
            else "rows"
        )
        return f"{row_count:,} {noun.replace('_', ' ')}. First: {_list(columns, rows, row_count)}."
    order = _order(columns[1], reading)
    if not order and " first" not in reading and len(rows) == row_count:
        # Without an order of its own, a result is in any order; the largest groups say most. The table keeps its order.
        order, rows = (
            ", the highest" if row_count > SHOWN - 2 else "",
            sorted(rows, key=lambda row: (row[1] is None, -(row[1] or 0))),
        )
    return f"{_title(columns[1])} by {column_title(columns[0])}{order}: {_list(columns, rows, row_count)}."


def _order(measure: str, reading: str) -> str:
    """Return how the reading orders the groups by their numbers; empty if it does not."""
    found = re.search(rf"(highest|lowest) `{re.escape(measure)}` first", reading)
    return f", {found[1]} first" if found else ""


def _noun(column: str, rows: Sequence[Sequence[Any]]) -> str:
    """Return what the values of a column are: products of `product`; rows, if its name is not a noun for them."""
    *words, last = column_title(column).lower().split() or [""]
    texts = all(isinstance(row[0], str) for row in rows)
    if not texts or not last.isalpha() or last.endswith("ed"):
        return "rows"
    return " ".join((*words, last if word_base_form(last) != last else word_plural_form(last)))


def _list(columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int, most: int = SHOWN - 2) -> str:
    """Return the first rows, and how many more there are."""
    shown = [_row(columns, row) for row in rows[:most]]
    apart = "; " if len(columns) > 2 or any("," in each for each in shown) else ", "
    left = row_count - len(shown)
    return apart.join(shown) + (f" and {left:,} more" if left else "")


def _is_series(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the rows are periods with one number each."""
    dated = columns[0] in _PERIODS and all(row[0] is None or isinstance(row[0], date) for row in rows)
    return dated and _ranks(columns, [row for row in rows if row[0] is not None])


def _series(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return how many periods there are, the highest and the lowest of them, and what has no date."""
    known = [row for row in rows if row[0] is not None]
    high, low = max(known, key=lambda row: row[1]), min(known, key=lambda row: row[1])
    said = column_title(columns[1])
    ends = f"highest {_row(columns, high)}; lowest {_row(columns, low)}"
    text = f"{_title(columns[1])} over {len(known):,} {columns[0]}{'s' if len(known) > 1 else ''}: {ends}."
    undated = [row for row in rows if row[0] is None]
    return text + "".join(f" Rows without a date: {said} {phrase_answer_value(row[1], columns[1])}." for row in undated)


def _conditions(reading: str) -> str:
    """Return the conditions of a reading in plain words: ` where returned is true`."""
    found = [piece.split(". ")[0].rstrip(".") for piece in re.findall(r", (where `[^`]+` [^,]*)", reading)]
    if not found or any(piece.count("`") % 2 for piece in found):
        return ""
    said = [re.sub(r"^where `(?:[^`]*\.)?([^`.]+)`", r"\1", piece).replace("`", "") for piece in found]
    return f" where {' and '.join(said)}"


def _measure(column: str, value: Any) -> str:
    """Return a measure with its value: `126 days absent in total`, `average grade 3.2`."""
    noun = column_title(column.removeprefix("sum_"))
    if column.startswith("sum_") and any(word_base_form(word) != word for word in split_identifier_words(noun)):
        return f"{phrase_answer_value(value, column)} {noun[:1].lower()}{noun[1:]} in total"
    return f"{column_title(column)} {phrase_answer_value(value, column)}"


def _ranks(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the rows are groups with one number each."""
    numbers = all(isinstance(row[1], int | float | Decimal) and not isinstance(row[1], bool) for row in rows)
    return len(columns) == 2 and numbers and not any(isinstance(row[1], float) and math.isnan(row[1]) for row in rows)


def _row(columns: Sequence[str], row: Sequence[Any]) -> str:
    values = [phrase_answer_value(value, name) for name, value in zip(columns, row, strict=True)]
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        # "Tea 120", but "2024: 120".
        return f"{values[0]}{' ' if isinstance(row[0], str) and values[0][-1:].isalpha() else ': '}{values[1]}"
    return ", ".join(f"{column_title(name)} {value}" for name, value in zip(columns, values, strict=True))


def _title(name: str) -> str:
    words = column_title(name)
    return words[:1].upper() + words[1:]


def phrase_answer_value(value: Any, column: str = "") -> str:
    """Return a value as people write it: with thousands separators, and only the digits that matter.

    Years and identifiers, which the name of the column tells, have no separators.
    """
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and {*spell_out_words(split_identifier_words(column))} & _UNGROUPED
    ):
        return str(value)
    match value:
        case None:
            return "no value"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case Decimal() | float():
            return _number(float(value))
        case datetime():
            return value.isoformat(" ", "seconds")
        case date() if column == "month" and value.day == 1:
            return f"{value:%B %Y}"
        case date() if column == "quarter" and value.day == 1:
            return f"Q{(value.month + 2) // 3} {value.year}"
        case date() if column == "year" and (value.month, value.day) == (1, 1):
            return str(value.year)
        case date():
            return value.isoformat()
    return cut_cell_text(str(value), VALUE_CHARS)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    digits = 2 if abs(value) >= 1 else 4
    if round(value) and round(value, digits) == round(value) and (text := f"{value:,.12g}") != f"{round(value):,.12g}":
        return text  # 99,999.99999 is not 100,000
    text = f"{value:,.{digits}f}".rstrip("0").rstrip(".")
    return text if float(text.replace(",", "")) != 0 else f"{value:.3g}"
