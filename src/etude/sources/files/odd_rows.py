"""Values and rows of a table that are not data: numbers that stand for missing values, averages, and footers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from etude.sources.files.column_types import COLUMNS_AT_ONCE
from etude.sources.files.load_report import TypeNote
from etude.sources.files.parquet import read_parquet
from etude.sources.quoting import quote_identifier, quote_literal

NINES = tuple(int("9" * digits) for digits in range(2, 10))
MARKERS = frozenset([*NINES, 2147483647, 99.9, 999.9, 9999.9, 99999.9, 99.99, 999.99, 9999.99])
LOWEST = -2147483648
"""Numbers that programs and people write for a missing value; negative ones as well."""
DATES = frozenset(date.fromisoformat(day) for day in ("0001-01-01", "1753-01-01", "1899-12-30", "1899-12-31"))
DATES |= frozenset(date.fromisoformat(day) for day in ("1900-01-01", "2099-12-31", "9999-12-31"))
FAR = 3
"""Such a value is this many times the range of the others away from them."""
FEWEST_OTHERS = 5
FEWEST_DAYS = 20 * 365
LAST_ROWS = 6
FEWEST_ROWS = 2
MOST_FOOTERS = 5
SENTENCE = re.compile(r"[:()*]|\w \w+ \w")
KINDS = {
    "avg": re.compile(
        r"(overall |total )?(averages?|avg\.?|mean|durchschnitt|mittel(wert)?|moyenne|media|média|promedio|gemiddelde)"
        r"( [\w ]{1,30})?:?",
        re.IGNORECASE,
    ),
    "median": re.compile(r"median:?", re.IGNORECASE),
    "min": re.compile(r"min(imum)?\.?:?", re.IGNORECASE),
    "max": re.compile(r"max(imum)?\.?:?", re.IGNORECASE),
}
NOUNS = {"avg": "averages", "median": "medians", "min": "smallest values", "max": "largest values"}
WHOLE_TYPES = frozenset(["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL(38,0)"])
DATE_TYPES = frozenset(["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])

Column = tuple[str, str]


class Summary(NamedTuple):
    """A row that summarises others: where it is, the column and the label that tell it, and what its numbers are."""

    place: int
    column: str
    label: str
    kind: str


def describe_number_markers(
    con: Any, staged: Path, columns: Sequence[Column], numbers: Sequence[str]
) -> list[TypeNote]:
    """Return notes on numbers and dates that are far from all others and often stand for a missing value."""
    kinds = dict(columns)
    looked = [*numbers, *(name for name, kind in columns if kind in DATE_TYPES)]
    notes = []
    for start in range(0, len(looked), COLUMNS_AT_ONCE):
        chunk = looked[start : start + COLUMNS_AT_ONCE]
        ends = ", ".join(_value(f"{end}({quote_identifier(n)})", kinds[n]) for n in chunk for end in ("min", "max"))
        found = con.execute(f"SELECT {ends} FROM {read_parquet(str(staged))}").fetchone()
        for name, low, high in zip(chunk, found[::2], found[1::2]):
            suspects = [end for end in dict.fromkeys((low, high)) if _is_marker(end)]
            value = _value(quote_identifier(name), kinds[name])
            if suspects and (said := _describe_far(con, staged, value, suspects)):
                notes.append(TypeNote(name, kinds[name], said))
    return notes


def _value(sql: str, kind: str) -> str:
    # Python has no time zones in the year 1.
    return f"CAST({sql} AS DATE)" if kind in DATE_TYPES else sql


def _is_marker(value: Any) -> bool:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value in DATES
    return isinstance(value, int | float | Decimal) and (abs(value) in MARKERS or value == LOWEST)


def _describe_far(con: Any, staged: Path, column: str, suspects: list[Any]) -> str:
    listed = ", ".join(quote_literal(str(value)) for value in suspects)
    odd = f"{column} IN ({listed})"
    low, high, others, values = con.execute(
        f"SELECT min({column}) FILTER (NOT {odd}), max({column}) FILTER (NOT {odd}), "
        f"count({column}) FILTER (NOT {odd}), count({column}) FROM {read_parquet(str(staged))}"
    ).fetchone()
    is_date = isinstance(suspects[0], date)
    if low is None or (others < FEWEST_OTHERS and not is_date and values - others < 2):
        return ""
    least = timedelta(days=FEWEST_DAYS) if is_date else 0
    far = [v for v in suspects if min(abs(v - low), abs(v - high)) > max(FAR * (high - low), least)]
    if not far:
        return ""
    chosen = ", ".join(quote_literal(str(v)) for v in far)
    count = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))} WHERE {column} IN ({chosen})").fetchone()[0]
    shown = " or ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in far)
    span = " to ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in (low, high))
    verb = "is" if count == 1 else "are"
    return (
        f"{count:,} of {values:,} values {verb} {shown}, far from the others ({span}); that may stand for a missing "
        "value, and is kept"
    )


def find_summary_rows(
    con: Any, source: str, rows: int, columns: Sequence[Column], numbers: Sequence[str], is_total: str
) -> list[Summary]:
    """Return the last rows that are labelled as averages and the like, and whose numbers are those of the rows above.

    `is_total` is SQL that finds totals by the text `{c}`. `Average` may also be a grade, so the numbers decide.
    """
    if rows <= FEWEST_ROWS or not numbers:
        return []
    texts = [name for name, kind in columns if kind == "VARCHAR"]
    kinds, found = dict(columns), list[Summary]()
    for place, row in _last_rows(con, source, rows, columns):
        for name in texts:
            label = row[name].strip() if isinstance(row[name], str) else ""
            kind = next((kind for kind, test in KINDS.items() if test.fullmatch(label)), "")
            filled = [number for number in numbers if row[number] is not None]
            if not kind or not filled:
                continue
            skip = [s.place for s in found]
            where = (
                f"file_row_number < {place} AND NOT coalesce({is_total.replace('{c}', quote_identifier(name))}, false)"
            )
            where += f" AND file_row_number NOT IN ({', '.join(map(str, skip))})" if skip else ""
            computed = con.execute(
                f"SELECT {', '.join(f'{kind}({quote_identifier(n)})' for n in filled)} FROM {source} WHERE {where}"
            ).fetchone()
            same = [_is_near(row[n], value, kinds[n]) for n, value in zip(filled, computed)]
            if 2 * sum(same) >= len(same):
                found.append(Summary(place, name, row[name], kind))
                break
    return found


def describe_summary_rows(found: Sequence[Summary]) -> str:
    """Return the note on rows of averages and the like."""
    shown = ", ".join(f"`{s.column}` {s.label!r}: the {NOUNS[s.kind]} of the rows above" for s in found)
    what, them = ("The row near the end", "it") if len(found) == 1 else ("Rows near the end", "them")
    verb = "summarises" if len(found) == 1 else "summarise"
    return f"{what} {verb} others ({shown}); sums and counts include {them}."


def describe_footers(con: Any, source: str, rows: int, columns: Sequence[Column], skip: Sequence[int]) -> str:
    """Return a note on rows at the end with one text each, if no other row is like that; empty if there are none."""
    if len(columns) < 2 or rows <= FEWEST_ROWS:
        return ""
    texts: list[tuple[str, str]] = []
    for _, row in reversed(list(_last_rows(con, source, rows, columns))):
        filled = [(name, value) for name, value in row.items() if value is not None]
        if len(filled) != 1 or not isinstance(filled[0][1], str) or len(texts) == MOST_FOOTERS:
            break
        if len(columns) == 2 and not SENTENCE.search(filled[0][1]):
            break  # a name without a value
        texts.append(filled[0])
    if not texts:
        return ""
    empty = " + ".join(f"CAST({quote_identifier(name)} IS NOT NULL AS INTEGER)" for name, _ in columns)
    alike = con.execute(
        f"SELECT count(*) FROM {source} WHERE file_row_number < {rows - len(texts)} AND {empty} <= 1 "
        f"{'AND file_row_number NOT IN (' + ', '.join(map(str, skip)) + ')' if skip else ''}"
    ).fetchone()
    if alike[0]:
        return ""
    shown = ", ".join(repr(text[:40]) for _, text in reversed(texts))
    if len(texts) == 1:
        said = f"The last row has a value in `{texts[0][0]}` alone ({shown}) and may be a footer"
        return f"{said}; it is a row of the table."
    return f"The last {len(texts)} rows have one value each ({shown}) and may be a footer; they are rows of the table."


def _last_rows(con: Any, source: str, rows: int, columns: Sequence[Column]) -> Iterator[tuple[int, dict[str, Any]]]:
    # Of other values than texts and numbers, only whether they are there counts; Python cannot hold all of them.
    plain = (*WHOLE_TYPES, "VARCHAR", "DOUBLE", "FLOAT")
    chosen = ", ".join(
        name if kind in plain or kind.startswith("DECIMAL") else f"CASE WHEN {name} IS NOT NULL THEN 1 END"
        for name, kind in ((quote_identifier(name), kind) for name, kind in columns)
    )
    found = con.execute(
        f"SELECT file_row_number, {chosen} FROM {source} WHERE file_row_number >= {max(0, rows - LAST_ROWS)} ORDER BY 1"
    ).fetchall()
    for place, *values in found:
        yield place, dict(zip((name for name, _ in columns), values))


def _is_near(value: Any, computed: Any, kind: str) -> bool:
    """Return whether a number is the computed one, perhaps rounded."""
    if computed is None:
        return False
    rounding = 0.5 if kind in WHOLE_TYPES else 0.006
    return abs(float(value) - float(computed)) <= max(rounding, 1e-6 * abs(float(computed)))
