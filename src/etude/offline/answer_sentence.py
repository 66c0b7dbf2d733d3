"""The answer as a sentence: every number in it is from the result, or the number of its rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from etude.offline.understand import Understanding
from etude.offline.words import base_form, spell_out_words, split_identifier

SHOWN = 5
_PERIODS = ("day", "week", "month", "quarter", "year")
_FOLDS = {"sum_": "total ", "avg_": "average ", "min_": "lowest ", "max_": "highest "}
_MEASURED = (*_FOLDS, "number_of_", "median_")
_RANKED = re.compile(r"(?:highest|lowest) `(?!(?:day|week|month|quarter|year)`)[^`]*` first|the first \d")
"""An order that the question asked for, rather than that of time."""
_UNGROUPED = frozenset(("year", "season", "id", "code", "zip", "phone", "key"))
"""Words in the names of columns whose numbers have no separators: 1980, not 1,980."""


def write_sentence(
    understanding: Understanding, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int
) -> str:
    """Return the result in a sentence or two."""
    source = understanding.plan.source
    return write_row_sentence(
        understanding.reading, columns, rows, row_count, source if isinstance(source, str) else ""
    )


def write_row_sentence(
    reading: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int, table: str = ""
) -> str:
    """Return rows in a sentence or two; `reading` says what was computed, if that is known, and `table` of what."""
    if row_count == 0 or not rows:
        return f"No rows match. Read as: {reading.rstrip('.')}." if reading else "No rows match."
    if row_count == 1 and len(columns) == 1:
        name = columns[0]
        if name == f"number_of_{table}" and base_form(table.lower()) == table.lower():
            name = f"number_of_rows_in_{table}"  # `school` is not what its rows are
        return f"{_title(name)}{_conditions(reading)}: {phrase_value(rows[0][0], columns[0])}."
    if row_count == 1 and len(columns) == 2 and columns[1].startswith(_MEASURED):
        return f"{_title(columns[0])} {phrase_value(rows[0][0], columns[0])}: {_measure(columns[1], rows[0][1])}."
    if row_count == 1:
        pairs = ", ".join(
            f"{_words(name)} {phrase_value(value, name)}" for name, value in zip(columns, rows[0], strict=True)
        )
        return f"One row: {pairs}."
    if len(columns) == 1 and " only those with the " not in reading:
        shown = [phrase_value(row[0], columns[0]) for row in rows[:SHOWN]]
        listed = ("; " if any("," in value for value in shown) else ", ").join(shown)
        return f"{row_count:,} rows: {listed}{_more(row_count)}."
    if " only those with the " in reading:
        listed = "; ".join(_row(columns, row) for row in rows[: SHOWN - 2])
        return f"{row_count:,} rows tie. {listed}{_more(row_count, 2)}."
    if len(rows) == row_count and _is_series(columns, rows) and not _RANKED.search(reading):
        return _series(columns, rows)
    start = "First"
    ordered = not reading or " first" in reading or "list of" in reading.lower()
    if not ordered and len(rows) == row_count and _ranks(columns, rows):
        # Without an order of its own, a result is in any order; the largest groups say most.
        start, rows = "Highest", sorted(rows, key=lambda row: -row[1])
    listed = "; ".join(_row(columns, row) for row in rows[: SHOWN - 2])
    names = ", ".join(_words(name) for name in columns)
    return f"{row_count:,} rows of {names}. {start}: {listed}{_more(row_count, 2)}."


def _is_series(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the rows are periods with one number each."""
    dated = columns[0] in _PERIODS and all(row[0] is None or isinstance(row[0], date) for row in rows)
    return dated and _ranks(columns, [row for row in rows if row[0] is not None])


def _series(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return how many periods there are, the highest and the lowest of them, and what has no date."""
    known = [row for row in rows if row[0] is not None]
    high, low = max(known, key=lambda row: row[1]), min(known, key=lambda row: row[1])
    many = f"{len(known):,} {columns[0]}{'s' if len(known) > 1 else ''}"
    parts = [f"{many} of {_words(columns[1])}", f"highest {_row(columns, high)}", f"lowest {_row(columns, low)}"]
    parts += [f"without a date: {phrase_value(row[1], columns[1])}" for row in rows if row[0] is None]
    return f"{'; '.join(parts)}."


def _conditions(reading: str) -> str:
    """Return the conditions of a reading in plain words: ` where returned is true`."""
    found = [piece.split(". ")[0].rstrip(".") for piece in re.findall(r", (where `[^`]+` [^,]*)", reading)]
    if not found or any(piece.count("`") % 2 for piece in found):
        return ""
    said = [re.sub(r"^where `(?:[^`]*\.)?([^`.]+)`", r"\1", piece).replace("`", "") for piece in found]
    return f" where {' and '.join(said)}"


def _measure(column: str, value: Any) -> str:
    """Return a measure with its value: `126 days absent in total`, `average grade 3.2`."""
    noun = _words(column.removeprefix("sum_"))
    if column.startswith("sum_") and any(base_form(word) != word for word in split_identifier(noun)):
        return f"{phrase_value(value, column)} {noun[:1].lower()}{noun[1:]} in total"
    return f"{_words(column)} {phrase_value(value, column)}"


def _ranks(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the rows are groups with one number each."""
    numbers = all(isinstance(row[1], int | float | Decimal) and not isinstance(row[1], bool) for row in rows)
    return len(columns) == 2 and numbers and not any(isinstance(row[1], float) and math.isnan(row[1]) for row in rows)


def _row(columns: Sequence[str], row: Sequence[Any]) -> str:
    values = [phrase_value(value, name) for name, value in zip(columns, row, strict=True)]
    if len(values) == 2:
        return f"{values[0]}: {values[1]}"
    return ", ".join(f"{_words(name)} {value}" for name, value in zip(columns, values, strict=True))


def _more(row_count: int, fewer: int = 0) -> str:
    return " and more" if row_count > SHOWN - fewer else ""


def _words(name: str) -> str:
    fold = next((prefix for prefix in _FOLDS if name.startswith(prefix) and len(name) > len(prefix)), "")
    return (_FOLDS.get(fold, "") + name.removeprefix(fold)).replace("_", " ")


def _title(name: str) -> str:
    words = _words(name)
    return words[:1].upper() + words[1:]


def phrase_value(value: Any, column: str = "") -> str:
    """Return a value as people write it: with thousands separators, and only the digits that matter.

    Years and identifiers, which the name of the column tells, have no separators.
    """
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and {*spell_out_words(split_identifier(column))} & _UNGROUPED
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
    return str(value)


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
