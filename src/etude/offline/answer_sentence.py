"""The answer as a sentence: every number in it is from the result, or the number of its rows."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from etude.cell_text import cut_cell_text
from etude.column_title import column_title
from etude.offline.question_parts import NamePart
from etude.offline.understand import Understanding
from etude.offline.words import spell_out_words, split_identifier_words, word_base_form, word_plural_form

SHOWN = 5
VALUE_CHARS = 500
"""How much of a text a sentence repeats."""
_PERIODS = ("day", "week", "month", "quarter", "year")
_MEASURED = ("sum_", "avg_", "min_", "max_", "number_of_", "median_")
_RANKED = re.compile(r"(?:highest|lowest) `(?!(?:day|week|month|quarter|year)`)[^`]*` first|the first \d")
"""An order that the question asked for, rather than that of time."""
_FIRST_OF_YEAR = re.compile(r"\d{4}-01-01")
_PERCENT = " (%)"
_PERCENTAGE, _GROWTH = f"percentage{_PERCENT}", f"growth{_PERCENT}"
"""What a sentence calls numbers that are parts of 100, so that 20% is not taken for 20."""
_UNGROUPED = frozenset(("year", "season", "id", "code", "zip", "phone", "key"))
"""Words in the names of columns whose numbers have no separators: 1980, not 1,980."""


def write_answer_sentence(
    understanding: Understanding, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int
) -> str:
    """Return the result in a sentence or two."""
    source = understanding.plan.source
    question = understanding.question
    if question.shares == 100 or (question.ratio is not None and question.ratio.scale == 100):
        columns = [_PERCENTAGE if name in ("ratio", "share") else name for name in columns]
    if question.change == "percent":
        columns = [_GROWTH if name == "growth_percent" else name for name in columns]
    asked = {m.column for part in question.requested if isinstance(part, NamePart) for m in part.columns if m.column}
    asked |= {m.column for group in question.groups if group.name is not None for m in group.name.columns if m.column}
    asked |= {*columns} if question.everything else set()
    table = source if isinstance(source, str) else ""
    return write_row_answer_sentence(understanding.reading, columns, rows, row_count, table, asked)


_ENDS = {"Highest": "Latest", "Lowest": "Earliest"}
_KEYS = frozenset(("id", "key", "uuid", "guid"))


def _without_keys(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], asked: Collection[str]
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Return the rows without the keys beside the names of things: a reader takes `Iron Maiden 90` for 90 albums."""
    words = [split_identifier_words(name) for name in columns]
    keys = [at for at, each in enumerate(words) if each[-1:] and each[-1] in _KEYS and columns[at] not in asked]
    kept = [at for at in range(len(columns)) if at not in keys]
    named = any(isinstance(row[at], str) for row in rows[:1] for at in kept)
    if not keys or not named or keys[0] < kept[0] or len(keys) > 2:
        return columns, rows
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def write_row_answer_sentence(
    reading: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    row_count: int,
    table: str = "",
    asked: Collection[str] = (),
) -> str:
    """Return rows in a sentence or two; `reading` says what was computed, if that is known, and `table` of what.

    Of columns that are keys, only those that were asked for are in the sentence.
    """
    if reading:
        columns, rows = _without_keys(columns, rows, asked)
    if row_count == 0 or not rows:
        return f"No rows match. Read as: {reading.rstrip('.')}." if reading else "No rows match."
    if row_count == 1 and len(columns) == 1:
        name = columns[0]
        if name == f"number_of_{table}" and word_base_form(table.lower()) == table.lower():
            name = f"number_of_rows_in_{table}"  # `school` is not what its rows are
        title = _title(name)
        if isinstance(rows[0][0], date):
            title = re.sub("^(Highest|Lowest) ", lambda found: f"{_ENDS[found[1]]} ", title)
        return f"{title}{_conditions(reading, table)}: {phrase_answer_value(rows[0][0], columns[0])}."
    if row_count == 1 and len(columns) == 2 and columns[1].startswith(_MEASURED):
        return (
            f"{_title(columns[0])} {phrase_answer_value(rows[0][0], columns[0])}: {_measure(columns[1], rows[0][1])}."
        )
    if row_count == 1:
        pairs = ", ".join(
            f"{_said(name)} {phrase_answer_value(value, name)}" for name, value in zip(columns, rows[0], strict=True)
        )
        return f"One row: {pairs}."
    if " only those with the " in reading:
        return f"{row_count:,} rows tie. {_list(columns, rows, row_count)}."
    if len(columns) == 1:
        said = _conditions(reading, table)
        different = "different " if "list of different `" in reading.lower() else ""
        noun = _noun(columns[0], rows, reading)
        noun = "values" if different and noun == "rows" else noun
        return f"{row_count:,} {different}{noun}{said}: {_list(columns, rows, row_count, SHOWN)}."
    if len(rows) == row_count and _is_series(columns, rows) and not _RANKED.search(reading):
        return _series(columns, rows, _conditions(reading, table))
    listing = "list of" in reading.lower()
    if listing or not _ranks(columns, [row for row in rows if row[1] is not None]):
        noun = (
            word_plural_form(word_base_form(table.lower()))
            if listing and word_base_form(table.lower()) != table.lower()
            else "rows"
        )
        said = _conditions(reading, table)
        return f"{row_count:,} {noun.replace('_', ' ')}{said}. First: {_list(columns, rows, row_count)}."
    order = _order(columns[1], reading)
    if not order and " first" not in reading and len(rows) == row_count:
        # Without an order of its own, a result is in any order; the largest groups say most. The table keeps its order.
        order, rows = (
            ", the highest" if row_count > SHOWN - 2 else "",
            sorted(rows, key=lambda row: (row[1] is None, -(row[1] or 0))),
        )
    said = _conditions(reading, table)
    return f"{_title(columns[1])} by {_said(columns[0])}{said}{order}: {_list(columns, rows, row_count)}."


def _order(measure: str, reading: str) -> str:
    """Return how the reading orders the groups by their numbers; empty if it does not."""
    found = re.search(rf"(highest|lowest) `{re.escape(measure)}` first", reading)
    return f", {found[1]} first" if found else ""


_LISTED = re.compile(r"list (?:of(?: different)?|per) `(?:[^`]*\.)?([^`.]+)\.[^`.]+`", re.IGNORECASE)


def _noun(column: str, rows: Sequence[Sequence[Any]], reading: str) -> str:
    """Return what the values of a column are: products of `product`; rows, if its name is not a noun for them."""
    *words, last = _said(column).lower().split() or [""]
    listed = _LISTED.search(reading)
    if listed is not None and not words and last in ("name", "title"):
        table = listed[1].lower()
        return table.replace("_", " ") if word_base_form(table) != table else "rows"
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


def _series(columns: Sequence[str], rows: Sequence[Sequence[Any]], conditions: str) -> str:
    """Return how many periods there are, the highest and the lowest of them, and what has no date."""
    known = [row for row in rows if row[0] is not None]
    high, low = max(known, key=lambda row: row[1]), min(known, key=lambda row: row[1])
    said = _said(columns[1])
    ends = f"highest {_row(columns, high)}; lowest {_row(columns, low)}"
    text = f"{_title(columns[1])}{conditions} over {len(known):,} {columns[0]}{'s' if len(known) > 1 else ''}: {ends}."
    undated = [row for row in rows if row[0] is None]
    return text + "".join(f" Rows without a date: {said} {phrase_answer_value(row[1], columns[1])}." for row in undated)


_APART = re.compile(r", (?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""A comma between the pieces of a reading, not inside a name or a value."""
_LIMITED = re.compile(r"with (?:number|total|average|highest|lowest|median)\b")
_PLACE = re.compile(r"`(?:([^`]*)\.)?([^`.]+)`")


def _conditions(reading: str, table: str = "") -> str:
    """Return the conditions of a reading in plain words: ` where returned is true`, ` that have no Album`.

    A column of another table than the one that is counted is named with its table.
    """
    pieces = _APART.split(reading.rstrip("."))
    if any(piece.count("`") % 2 for piece in pieces):
        return ""
    pieces = [piece[:1].lower() + piece[1:] for piece in pieces]
    where = [piece.removeprefix("where ") for piece in pieces if piece.startswith("where `")]
    where = [_without_table(piece, table) for piece in where if not piece.endswith(" is known")]
    others = [p for p in pieces if p.startswith(("that have no ", "with no ")) or _LIMITED.match(p)]
    said = [f"where {' and '.join(where)}"] if where else []
    said += [piece.replace("`", "") for piece in others]
    return "".join(f" {piece}" for piece in said)


def _without_table(condition: str, table: str) -> str:
    """Return a condition with the name of its column: `Genre.Name` of tracks as Genre Name, `Track.Name` as Name."""
    place = _PLACE.match(condition)
    if place is None:
        return condition.replace("`", "")
    owner = (place[1] or "").rpartition(".")[2]
    other = owner and table and owner.lower() != table.rpartition(".")[2].lower()
    name = f"{owner} {place[2]}" if other else place[2]
    return f"{name}{condition[place.end() :]}".replace("`", "")


def _measure(column: str, value: Any) -> str:
    """Return a measure with its value: `126 days absent in total`, `average grade 3.2`."""
    noun = _said(column.removeprefix("sum_"))
    if column.startswith("sum_") and any(word_base_form(word) != word for word in split_identifier_words(noun)):
        return f"{phrase_answer_value(value, column)} {noun[:1].lower()}{noun[1:]} in total"
    return f"{_said(column)} {phrase_answer_value(value, column)}"


def _ranks(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the rows are groups with one number each; a key is not a number of anything."""
    if len(columns) == 2 and {*split_identifier_words(columns[1])[-1:]} & _KEYS:
        return False
    numbers = all(isinstance(row[1], int | float | Decimal) and not isinstance(row[1], bool) for row in rows)
    return len(columns) == 2 and numbers and not any(isinstance(row[1], float) and math.isnan(row[1]) for row in rows)


def _row(columns: Sequence[str], row: Sequence[Any]) -> str:
    values = [phrase_answer_value(value, name) for name, value in zip(columns, row, strict=True)]
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        # "Tea 120", but "2024: 120".
        return f"{values[0]}{' ' if isinstance(row[0], str) and values[0][-1:].isalpha() else ': '}{values[1]}"
    return ", ".join(f"{_said(name)} {value}" for name, value in zip(columns, values, strict=True))


def _said(name: str) -> str:
    return column_title(name.removesuffix(_PERCENT))


def _title(name: str) -> str:
    words = _said(name)
    return words[:1].upper() + words[1:]


def phrase_answer_value(value: Any, column: str = "") -> str:
    """Return a value as people write it: with thousands separators, and only the digits that matter.

    Years and identifiers, which the name of the column tells, have no separators.
    """
    if column.endswith(_PERCENT) and value is not None:
        return f"{phrase_answer_value(value)}%"
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
        case str() if column == "year" and _FIRST_OF_YEAR.fullmatch(value):
            return value[:4]  # SQLite has no dates
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
