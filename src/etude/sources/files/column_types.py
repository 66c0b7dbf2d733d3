"""Text columns that are nearly numbers or dates: typed if only null markers are in the way, else reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from etude.sources.files.parquet import read_parquet, write
from etude.sources.files.report import TypeNote
from etude.sources.quoting import quote_identifier, quote_literal

NULL_MARKERS = ("na", "n/a", "#n/a", "null", "none", "nil", "-", "--", "?", ".")
SAMPLE_ROWS = 20_000
COLUMNS_AT_ONCE = 50
MIXED_SHARE = 0.8

# Each test is SQL over the trimmed text `t`. A leading zero marks a code (a post code, an account), not a number.
MARKER = f"lower(t) IN ({', '.join(map(quote_literal, NULL_MARKERS))})"
NUMBER = r"regexp_full_match(t, '[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')"
WHOLE = r"regexp_full_match(t, '[+-]?\d{1,18}')"
CODE = r"regexp_matches(t, '^[+-]?0\d')"
DATE = r"(regexp_full_match(t, '\d{4}-\d{1,2}-\d{1,2}') AND try_cast(t AS DATE) IS NOT NULL)"
MOMENT = r"(regexp_matches(t, '^\d{4}-\d{1,2}-\d{1,2}') AND try_cast(t AS TIMESTAMP) IS NOT NULL)"
COMMA = r"regexp_full_match(t, '[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?')"
# `1,234` may be an English thousand; only another number of digits after it makes a decimal comma certain.
SURE_COMMA = rf"({COMMA} AND regexp_matches(t, ',\d+$') AND NOT regexp_matches(t, ',\d{{3}}$'))"
TESTS = {
    "marker": MARKER,
    "number": NUMBER,
    "whole": WHOLE,
    "code": CODE,
    "date": DATE,
    "moment": MOMENT,
    "comma": COMMA,
    "sure_comma": SURE_COMMA,
}


class Counts(NamedTuple):
    """How many values of a column pass each test."""

    values: int
    marker: int
    number: int
    whole: int
    code: int
    date: int
    moment: int
    comma: int
    sure_comma: int


def refine(con: Any, staged: Path, target: Path, leave: str = "") -> tuple[int, tuple[TypeNote, ...]]:
    """Type text columns that hold numbers or dates, except `leave`; return the row count and notes."""
    columns = con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(staged))}").fetchall()
    rows = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))}").fetchone()[0]
    texts = [c[0] for c in columns if c[1] == "VARCHAR" and c[0] != leave]
    casts: dict[str, str] = {}
    notes = [_wide(c[0]) for c in columns if c[1] == "DECIMAL(38,0)"]
    for column, counts in _candidates(con, staged, texts, rows).items():
        cast, note = _decide(con, staged, column, counts)
        if cast:
            casts[column] = cast
        if note:
            notes.append(note)
    if casts:
        chosen = ", ".join(
            f"{casts[c[0]]} AS {quote_identifier(c[0])}" if c[0] in casts else quote_identifier(c[0]) for c in columns
        )
        write(con, f"SELECT {chosen} FROM {read_parquet(str(staged))}", target)
    else:
        os.replace(staged, target)
    return rows, tuple(notes)


def _wide(column: str) -> TypeNote:
    return TypeNote(column, "DECIMAL(38,0)", "its whole numbers need more than 64 bits")


def _candidates(con: Any, staged: Path, texts: list[str], rows: int) -> dict[str, Counts]:
    """Find columns that look like numbers or dates in a sample, and count their values over the whole file."""
    step = rows // SAMPLE_ROWS + 1
    seen = _aggregate(con, staged, texts, _outline, step)
    likely = [c for c, (values, markers, digits) in seen.items() if 0 < MIXED_SHARE * (values - markers) <= digits]
    return {c: Counts(*found) for c, found in _aggregate(con, staged, likely, _counts, 1).items()}


def _aggregate(
    con: Any, staged: Path, texts: list[str], measures: Callable[[str], list[str]], step: int
) -> dict[str, tuple[int, ...]]:
    """Return the measures of each column over every `step`-th row."""
    found: dict[str, tuple[int, ...]] = {}
    source = read_parquet(str(staged))
    if step > 1:
        source = f"read_parquet({quote_literal(str(staged))}, hive_partitioning=false, file_row_number=true)"
        source += f" WHERE file_row_number % {step} = 0"
    for start in range(0, len(texts), COLUMNS_AT_ONCE):
        chunk = texts[start : start + COLUMNS_AT_ONCE]
        trimmed = ", ".join(f"trim({quote_identifier(c)}) AS t{i}" for i, c in enumerate(chunk))
        measured = [measures(f"t{i}") for i in range(len(chunk))]
        row = con.execute(f"SELECT {', '.join(chain(*measured))} FROM (SELECT {trimmed} FROM {source})").fetchone()
        width = len(measured[0])
        found |= {c: row[i * width : (i + 1) * width] for i, c in enumerate(chunk)}
    return found


def _outline(text: str) -> list[str]:
    """Return SQL that counts values, null markers and number-like values; cheap, for files of many columns."""
    digits = f"left(ltrim({text}, '+-.'), 1) BETWEEN '0' AND '9'"
    return [f"count({text})", f"count(*) FILTER ({_on(MARKER, text)})", f"count(*) FILTER ({digits})"]


def _counts(text: str) -> list[str]:
    return [f"count({text})", *(f"count(*) FILTER ({_on(test, text)})" for test in TESTS.values())]


def _on(test: str, text: str) -> str:
    return test.replace("(t,", f"({text},").replace("(t)", f"({text})").replace("(t AS", f"({text} AS")


def _decide(con: Any, staged: Path, column: str, n: Counts) -> tuple[str, TypeNote | None]:
    """Return the SQL that types the column (empty to leave it), and a note for the report."""
    rest = n.values - n.marker
    text, typed = f"trim({quote_identifier(column)})", ""
    value = f"CASE WHEN {_on(MARKER, text)} THEN NULL ELSE {text} END"
    if n.code == 0 and n.number == rest and n.marker:
        typed = "BIGINT" if n.whole == rest else "DOUBLE"
    elif n.code == 0 and n.comma == rest and n.sure_comma:
        typed, value = "DOUBLE", f"replace(replace({value}, '.', ''), ',', '.')"
    elif n.date == rest and n.marker:
        typed = "DATE"
    elif n.moment == rest and n.marker:
        typed = "TIMESTAMP"
    if typed:
        said = ["its decimal commas were read as such"] if value.startswith("replace") else []
        if n.marker:
            shown = _examples(con, staged, column, MARKER)
            verb = "was a null marker" if n.marker == 1 else "were null markers"
            said.append(f"{n.marker:,} of {n.values:,} values {verb} ({shown})")
        return f"CAST({value} AS {typed})", TypeNote(column, typed, ", and ".join(said))
    return "", _mixed(con, staged, column, n)


def _mixed(con: Any, staged: Path, column: str, n: Counts) -> TypeNote | None:
    """Return a note if most values, but not all, are numbers or dates."""
    tests = ((NUMBER, n.number, "number"), (MOMENT, n.moment, "date"), (COMMA, n.comma, "number"))
    for test, passed, noun in tests:
        if n.values > passed >= MIXED_SHARE * (n.values - n.marker) and passed and not n.code:
            shown = _examples(con, staged, column, f"NOT coalesce({test}, false)")
            odd = n.values - passed
            said = f"is not a {noun}" if odd == 1 else f"are not {noun}s"
            note = f"mixed: {odd:,} of {n.values:,} values {said} ({shown}), kept as text"
            return TypeNote(column, "text", note)
    return None


def _examples(con: Any, staged: Path, column: str, test: str) -> str:
    """Return the first few distinct values that pass the test, as written in the file."""
    text = f"trim({quote_identifier(column)})"
    found = con.execute(
        f"SELECT v FROM (SELECT left({quote_identifier(column)}, 40) AS v, row_number() OVER () AS place "
        f"FROM {read_parquet(str(staged))} WHERE {quote_identifier(column)} IS NOT NULL AND {_on(test, text)}) "
        "GROUP BY v ORDER BY min(place) LIMIT 4"
    ).fetchall()
    shown = ", ".join(repr(row[0]) for row in found[:3])
    return f"{shown}, ..." if len(found) > 3 else shown
