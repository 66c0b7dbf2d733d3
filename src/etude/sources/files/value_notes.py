"""Notes on values that are loaded as they are and mislead: totals among the rows, markers of missing values in text."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from etude.sources.files.column_types import COLUMNS_AT_ONCE, MARKER
from etude.sources.files.load_report import LoadReport, TotalRows, TypeNote
from etude.sources.files.odd_rows import (
    Summary,
    describe_footers,
    describe_number_markers,
    describe_summary_rows,
    find_summary_rows,
)
from etude.sources.files.parquet import read_parquet, write_query_to_parquet
from etude.sources.quoting import quote_identifier, quote_literal

SAMPLE_ROWS = 50_000
"""In a larger file, columns without such a value in a sample of this size are not read as a whole."""
SHOWN = 3
LABELS = 100
"""If more values of a column are labels of totals, questions do not leave them out."""
TOTAL = (
    "(sub[- ]?|grand |overall )?totals?|(gesamt|zwischen|end)?summen?|gesamt|insgesamt|gesamtergebnis|"
    "sum|(sous-)?total( g[eé]n[eé]ral)?|somme|totale|totaal|suma|gesamtbetrag|summe gesamt"
)
SUBTOTAL = "((sub|grand)[- ]?totals?|totals? (for|of|per|by)|zwischensumme|gesamtsumme|sous-total)"
IS_TOTAL = f"regexp_full_match({{t}}, '(?i)({TOTAL}) ?:?|{SUBTOTAL}\\b.{{0,60}}')"
STARTS_WITH_TOTAL = re.compile(rf"({TOTAL}|{SUBTOTAL})\b.{{0,60}}", re.IGNORECASE)
"""`Total Wine` may also be the name of a thing; if its numbers are the sums of the rows above, it is a total."""
ENDS_IN_TOTAL = f"regexp_full_match({{t}}, '(?i).{{1,60}} ({TOTAL}) ?:?')"
PLAIN_TOTAL = re.compile(rf"({TOTAL}) ?:?|{SUBTOTAL}\b.{{0,60}}", re.IGNORECASE)
MANY_ROWS = 3
"""A named total is not in every third row."""
BEGINS_WITH_TOTAL = f"regexp_full_match({{t}}, '(?i)({TOTAL}) .{{1,60}}')"
SPACE = r"[\s\x{a0}\x{202f}\x{feff}\x{200b}]"
SPACED = f"regexp_matches({{v}}, '^{SPACE}|{SPACE}$')"
# UTF-8 read as Windows-1252 or Latin-1: `é` shows as `Ã©`, a bullet as `â€¢`.
GARBLED = r"regexp_matches({v}, '[ÃÂ][\x{80}-\x{BF}]|Ã[œŸ„¶]|â€[\x{80}-\x{BF}\x{2013}-\x{2122}œž]')"
NUMBERS = frozenset(
    [
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL",
    ]
)
PRECISION = 1e-6
FEWEST_ROWS = 3
"""A row without a label is a total only if the table has more rows than these."""
FEWEST_ROWS_WITH_KEY = 2
"""The same for a row that is alone in having an empty cell, such as the number of an order."""

ROW_NUMBER = "file_row_number"

Column = tuple[str, str]


def describe_values(con: Any, staged: Path, rows: int, report: LoadReport, leave: str = "") -> LoadReport:
    """Return the report with notes on values of the table that a query takes for something else than they are."""
    if not rows:
        return report
    columns: list[Column] = [
        (c[0], c[1]) for c in con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(staged))}").fetchall()
    ]
    if any(name.lower() == ROW_NUMBER for name, _ in columns):
        return report  # DuckDB cannot number the rows of such a file
    texts = [name for name, kind in columns if kind == "VARCHAR" and name != leave]
    step = rows // SAMPLE_ROWS + 1
    # A total is most often the last row.
    sampled = f" WHERE file_row_number % {step} = 0 OR file_row_number = {rows - 1}" if step > 1 else ""
    found = _count(con, staged, texts, sampled)
    if sampled:
        found = _count(con, staged, [c for c, (_, *odd) in found.items() if any(odd)])
    known = {note.column for note in report.types}
    types, padded = [], list[str]()
    for column, (values, markers, spaced, garbled, _) in found.items():
        said = []
        if markers and column not in known:
            shown = _examples(con, staged, column, MARKER)
            said.append(f"{_of(markers, values, 'stands', 'stand')} for a missing one ({shown}), kept as text")
        if spaced and spaced == values:
            padded.append(column)
            shown = _examples(con, staged, column, SPACED)
            said.append(f"all its values had spaces around ({shown}), which were left out")
        elif spaced:
            shown = _examples(con, staged, column, SPACED)
            said.append(f"{_of(spaced, values, 'has', 'have')} spaces around ({shown}), kept")
        if garbled:
            shown = _examples(con, staged, column, GARBLED)
            said.append(
                f"{_of(garbled, values, 'looks', 'look')} like UTF-8 that was read as another encoding ({shown})"
            )
        if said:
            types.append(TypeNote(column, "text", "; ".join(said)))
    if padded:
        _trim_columns(con, staged, [name for name, _ in columns], padded)
    labels = [column for column, counted in found.items() if counted[-1]]
    numbers = [name for name, kind in columns if kind.split("(")[0] in NUMBERS]
    types += describe_number_markers(con, staged, columns, numbers)
    total = f"{IS_TOTAL} OR {ENDS_IN_TOTAL}".replace("{t}", "trim({c})")
    summaries = find_summary_rows(con, _numbered(staged), rows, columns, numbers, total)
    notes, totals = _describe_totals(con, staged, rows, columns, labels, summaries)
    if footer := describe_footers(con, _numbered(staged), rows, columns, [s.place for s in summaries]):
        notes.append(footer)
    return replace(report, types=(*report.types, *types), notes=(*report.notes, *notes), totals=totals)


def _trim_columns(con: Any, staged: Path, columns: list[str], padded: list[str]) -> None:
    """Write the table again without the spaces around each value of some columns; a value of spaces alone is null."""
    trimmed = staged.with_suffix(".trimmed")
    chosen = ", ".join(
        f"nullif(regexp_replace({value}, '^{SPACE}+|{SPACE}+$', '', 'g'), '') AS {value}" if name in padded else value
        for name, value in ((name, quote_identifier(name)) for name in columns)
    )
    write_query_to_parquet(con, f"SELECT {chosen} FROM {read_parquet(str(staged))}", trimmed)
    os.replace(trimmed, staged)


def _of(count: int, values: int, one: str, many: str) -> str:
    return f"{count:,} of {values:,} values {one if count == 1 else many}"


def _on(test: str, column: str) -> str:
    value = quote_identifier(column)
    return test.replace("{t}", f"trim({value})").replace("{v}", value)


def _count(con: Any, staged: Path, texts: list[str], where: str = "") -> dict[str, tuple[int, ...]]:
    """Return for each column: values, markers of missing ones, those with spaces around, garbled ones, totals."""
    found: dict[str, tuple[int, ...]] = {}
    source = _numbered(staged) + where
    for start in range(0, len(texts), COLUMNS_AT_ONCE):
        chunk = texts[start : start + COLUMNS_AT_ONCE]
        counts = []
        for column in chunk:
            tests = (MARKER, SPACED, GARBLED, f"{IS_TOTAL} OR {ENDS_IN_TOTAL} OR {BEGINS_WITH_TOTAL}")
            counts.append(f"count({quote_identifier(column)})")
            counts += [f"count(*) FILTER ({_on(test, column)})" for test in tests]
        row = con.execute(f"SELECT {', '.join(counts)} FROM {source}").fetchone()
        width = len(counts) // len(chunk)
        found |= {c: row[at * width : (at + 1) * width] for at, c in enumerate(chunk)}
    return found


def _numbered(staged: Path) -> str:
    return f"read_parquet({quote_literal(str(staged))}, hive_partitioning=false, file_row_number=true)"


def _describe_totals(
    con: Any, staged: Path, rows: int, columns: list[Column], labels: list[str], summaries: list[Summary]
) -> tuple[list[str], tuple[TotalRows, ...]]:
    """Return notes on the last row if it is the total of those above, and on others that summarise; and these."""
    inner = _labelled_rows(con, staged, rows, columns, labels)
    totals = tuple(TotalRows(inner[0], value) for value in inner[1]) if inner and len(inner[1]) <= LABELS else ()
    last, place = _describe_last_row(con, staged, rows, columns, inner, [s.place for s in summaries])
    also = [describe_summary_rows(summaries)] if summaries else []
    totals = (*totals, *(TotalRows(s.column, s.label) for s in summaries))
    if last:
        return [last, *also], tuple(dict.fromkeys((*totals, *place)))
    if not inner:
        return also, totals
    column, values = inner
    shown = ", ".join(repr(v[:40]) for v in values[:SHOWN]) + (", ..." if len(values) > SHOWN else "")
    said = f"Some rows look like totals (`{column}`: {shown}); if they are, sums over all rows count values twice."
    return [said, *also], totals


def _labelled_rows(
    con: Any, staged: Path, rows: int, columns: list[Column], texts: list[str]
) -> tuple[str, list[str]] | None:
    """Return the first column whose values name totals, and these values.

    `North total` and `Total North` may also be names of things; beside an empty cell they are totals.
    """
    for column in texts:
        empty = [f"{quote_identifier(name)} IS NULL" for name, _ in columns if name != column]
        beside = f" AND ({' OR '.join(empty)})" if empty else ""
        last = f" OR (file_row_number = {rows - 1} AND {_on(ENDS_IN_TOTAL, column)})"
        named = f"({_on(ENDS_IN_TOTAL, column)} OR {_on(BEGINS_WITH_TOTAL, column)})"
        test = f"{_on(IS_TOTAL, column)} OR ({named}{beside}){last}"
        found = con.execute(
            f"WITH labelled AS (SELECT {quote_identifier(column)} AS label, min(file_row_number) AS first "
            f"FROM {_numbered(staged)} WHERE {test} GROUP BY 1 ORDER BY 2 LIMIT {LABELS + 1}) "
            f"SELECT label, (SELECT count(*) FROM {_numbered(staged)} WHERE {quote_identifier(column)} = label) "
            "FROM labelled ORDER BY first"
        ).fetchall()
        # `Population, total` in many rows is what they are about.
        labels = [v for v, count in found if PLAIN_TOTAL.fullmatch(v.strip()) or count * MANY_ROWS < max(rows, 4)]
        if labels:
            return column, labels
    return None


def _describe_last_row(
    con: Any,
    staged: Path,
    rows: int,
    columns: list[Column],
    leave_out: tuple[str, list[str]] | None,
    summaries: list[int],
) -> tuple[str, tuple[TotalRows, ...]]:
    """Return a note if the last row is a total: by its label, or because its numbers are sums and nothing names it.

    The second part says how to find the row.
    """
    if rows <= 1 or rows - 1 in summaries:
        return "", ()
    at = f"file_row_number = {rows - 1}"
    chosen = ", ".join(quote_identifier(name) for name, _ in columns)
    values = con.execute(f"SELECT {chosen} FROM {_numbered(staged)} WHERE {at}").fetchone()
    row = dict(zip((name for name, _ in columns), values))
    numbers = [name for name, kind in columns if kind.split("(")[0] in NUMBERS and row[name] is not None]
    others = [name for name, kind in columns if kind.split("(")[0] not in NUMBERS]
    label = next((name for name in others if leave_out and name == leave_out[0] and row[name] in leave_out[1]), "")
    named = [str(row[name]).strip() for name in others if row[name] is not None]
    if not label and named and len(numbers) < 2 and not any(map(STARTS_WITH_TOTAL.fullmatch, named)):
        return "", ()
    above = f"NOT ({at})"
    if summaries:
        above += f" AND file_row_number NOT IN ({', '.join(map(str, summaries))})"
    if leave_out:
        above += f" AND {quote_identifier(leave_out[0])} IS NOT NULL AND NOT ({_on(IS_TOTAL, leave_out[0])} "
        above += f"OR {_on(ENDS_IN_TOTAL, leave_out[0])})"
    summed = _sums(con, staged, numbers, row, above)
    if not label and summed:
        label = next((n for n in others if isinstance(row[n], str) and STARTS_WITH_TOTAL.fullmatch(row[n].strip())), "")
    unnamed = not label and all(row[name] is None for name in others)
    empty = [name for name, _ in columns if row[name] is None] if unnamed and summed else []
    key = _first_filled(con, staged, empty, above)
    nameless = unnamed and bool(others or key)
    if not (label or (nameless and summed) or len(summed) > 1):
        return "", ()
    if not label and 2 * len(summed) <= len(numbers):
        return "", ()  # one number is the sum by chance
    if not label and rows <= (FEWEST_ROWS_WITH_KEY if key else FEWEST_ROWS):
        return "", ()
    why = [f"`{label}` is {row[label]!r}"] if label else [f"only there `{key}` is empty"] if key else []
    if summed:
        listed = ", ".join(f"`{name}`" for name in summed[:SHOWN]) + (", ..." if len(summed) > SHOWN else "")
        why.append(f"{listed} {'is the sum' if len(summed) == 1 else 'are the sums'} of the rows above")
    place = (TotalRows(label or key, row[label] if label else None),) if label or key else ()
    others_above = [v for v in leave_out[1] if v != row[label]] if leave_out and label else []
    said = f"The last row looks like a total ({', and '.join(why)})"
    if others_above:
        shown = ", ".join(repr(v[:40]) for v in others_above[:SHOWN]) + (", ..." if len(others_above) > SHOWN else "")
        said += f", and so do rows above it ({shown})"
        return f"{said}; they are rows of the table, so sums and counts in SQL include them.", place
    said += "; it is a row of the table, so sums and counts in SQL include it"
    if not (label or key):
        return f"{said}.", place
    name = label or key
    quoted = name if re.fullmatch("[a-z_][a-z0-9_]*", name) and not _is_keyword(con, name) else quote_identifier(name)
    test = f"IS DISTINCT FROM {quote_literal(row[label])}" if label else "IS NOT NULL"
    return f"{said} unless a query leaves it out: `WHERE {quoted} {test}`.", place


def _is_keyword(con: Any, name: str) -> bool:
    found = con.execute("SELECT count(*) FROM duckdb_keywords() WHERE keyword_name = ?", [name]).fetchone()
    return bool(found[0])


def _first_filled(con: Any, staged: Path, columns: list[str], above: str) -> str:
    """Return the first of the columns that has a value in each row above; empty if none has."""
    for start in range(0, len(columns), COLUMNS_AT_ONCE):
        chunk = columns[start : start + COLUMNS_AT_ONCE]
        counts = ", ".join(f"count(*) - count({quote_identifier(c)})" for c in chunk)
        nulls = con.execute(f"SELECT {counts} FROM {_numbered(staged)} WHERE {above}").fetchone()
        for column, missing in zip(chunk, nulls):
            if not missing:
                return column
    return ""


def _sums(con: Any, staged: Path, numbers: list[str], row: dict[str, Any], above: str) -> list[str]:
    """Return the columns whose value in the row is the sum of the rows above."""
    found: list[str] = []
    for start in range(0, len(numbers), COLUMNS_AT_ONCE):
        chunk = numbers[start : start + COLUMNS_AT_ONCE]
        sums = ", ".join(f"sum({quote_identifier(c)}), count({quote_identifier(c)})" for c in chunk)
        totals: Sequence[Any] = con.execute(f"SELECT {sums} FROM {_numbered(staged)} WHERE {above}").fetchone()
        for at, column in enumerate(chunk):
            total, count = totals[2 * at], totals[2 * at + 1]
            if count and row[column] and _is_same(row[column], total):
                found.append(column)
    return found


def _is_same(value: float | Decimal, total: float | Decimal) -> bool:
    return math.isclose(float(value), float(total), rel_tol=PRECISION)


def _examples(con: Any, staged: Path, column: str, test: str) -> str:
    """Return the first few distinct values that pass the test, as written in the file."""
    value = quote_identifier(column)
    found = con.execute(
        f"SELECT left({value}, 40) FROM {_numbered(staged)} WHERE {_on(test, column)} "
        f"GROUP BY 1 ORDER BY min(file_row_number) LIMIT {SHOWN + 1}"
    ).fetchall()
    return ", ".join(repr(v) for (v,) in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
