"""Convert delimited text (CSV, TSV, TXT) to Parquet: DuckDB reads regular files; others are repaired first."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from etude.errors import Invalid
from etude.sources.duckdb_errors import reraise_duckdb_limit
from etude.sources.files.column_types import COLUMNS_AT_ONCE, CURRENCY, VERSION_NAME, refine_column_types
from etude.sources.files.csv_dialect import (
    RARE_DELIMITERS,
    TITLE_ROWS,
    CsvDialect,
    CsvRecord,
    count_csv_metadata_records,
    csv_value_kind,
    detect_csv_dialect,
    read_csv_records,
)
from etude.sources.files.file_content import decompress_content_for_duckdb
from etude.sources.files.header_doubts import describe_doubtful_header, describe_second_table
from etude.sources.files.header_rows import (
    describe_joined_header,
    describe_units_row,
    has_spanning_header,
    is_units_row,
    join_header_rows,
)
from etude.sources.files.load_report import LoadReport, LoadRowFaults, Rename, TypeNote, merge_load_reports
from etude.sources.files.parquet import describe_differing_parquet_columns, read_parquet, write_query_to_parquet
from etude.sources.files.printed_text import PrintedText, find_printed_text
from etude.sources.files.reading_options import ReadingOptions
from etude.sources.files.table_names import clean_column_names, show_invisible
from etude.sources.files.text_file import CHUNK, CTRL_Z_NOTE, TextFileSurvey, open_text_file, survey_text_file
from etude.sources.quoting import quote_identifier, quote_literal

SAMPLE_CHARS = 1 << 20
SNIFFED_ROWS = 20_480
HEAD_ROWS = 1000
HUGE_FIELD = CHUNK
COMMENT_LINES = 1000
SEPARATOR_LINE = re.compile('"?sep=."?')
RULE_ROWS = 5
RULE = 3
"""A line of this many dashes, among the first rows, is a rule below the header."""
EXTRA = "_extra"
# The name of the column for extra fields if no row has any: it is written, and not read.
UNNAMED = "\x01unnamed"
# By default DuckDB reads records of up to 2 MB, with at most 4 bytes per character.
LONG_RECORD = 400_000
REGULAR = "delim=',', quote='\"', escape='\"', new_line='\\r\\n'"
"""The dialect that the repair writes."""
ROUNDED = "it keeps 15 to 17 digits of its values"
EXACT_INTEGER = 1 << 53
"""From here on, a double does not hold every whole number."""
# Parquet has no integers beyond 64 bits: a decimal keeps each digit, and text keeps longer ones.
# Values that the type does not show as they are written.
HEXADECIMAL = re.compile(r"[+-]?0[xXbB].+")
READ_AS = (
    ("BOOLEAN", re.compile(r"(?!true$|false$).+", re.IGNORECASE), "its values were read as true or false"),
    ("BIGINT", HEXADECIMAL, "its values were read as hexadecimal or binary numbers"),
    ("DOUBLE", re.compile(r"[+-]?(?=(?:\.?\d){18})\d*\.?\d*"), ROUNDED),
    ("DOUBLE", re.compile(r"\d+[eE]\d+"), "its values were read as powers of ten"),
    (
        "DOUBLE",
        re.compile(r"[1-9]\.\d{1,6}E\+(1[1-9]|[2-9]\d)"),
        "its long numbers are rounded in the file, as Excel does with codes: the last digits are lost",
    ),
    (
        "TIMESTAMP WITH TIME ZONE",
        re.compile(r"\S+[ T]\d\d:\d\d(:\d\d(\.\d+)?)?"),
        "its values without a zone were read as UTC",
    ),
    (
        "TIMESTAMP WITH TIME ZONE",
        re.compile(r".*[ T].*(?!\+00)[+-]\d\d(:?\d\d)?|.*:\d\d.* [A-Z][A-Za-z]+/.*"),
        "its values were converted to one zone, UTC",
    ),
)
DOTTED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})*")
QUOTED_LINE = re.compile(r'"(?:[^"]|"")*"')
SIGN = rf"(?:{CURRENCY}|%)"
DECIMAL_COMMA = re.compile(rf"{SIGN}?\s?[+-]?\s?(\d{{1,3}}(\.\d{{3}})+|\d+),(\d{{1,2}}|\d{{4,}})\s?{SIGN}?")
WHOLE_OR_MARKER = re.compile(rf"{SIGN}?\s?[+-]?\d{{1,3}}(\.?\d{{3}})*\s?{SIGN}?|\D{{0,3}}")
"""Values that may stand among numbers with a decimal comma: `7 %`, `1.200 €`, `n/a`."""
SAME_NUMBER = re.compile(r"\d{1,3}\.\d{1,3}")
CODE_OR_WHOLE = re.compile(r"\d+([eE]\d+)?")
# Values that DuckDB casts to a type although it would not choose that type for them.
CAST_ONLY = {
    "BIGINT": r"NOT regexp_full_match({v}, '\s*-?(0|[1-9]\d*)\s*')",
    "DOUBLE": r"regexp_matches({v}, '^\s*[+-]?0[\dxXbB]|^\s*[+]|_')",
    "BOOLEAN": "NOT regexp_full_match({v}, '(?i)\\s*(true|false|t|f|yes|no|y|n)\\s*')",
}
DATED = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
WORD = r"^\s*[+-]?[A-Za-z]"
"""The start of a word that DuckDB casts to a date: `infinity`, `epoch`."""
BOM = "\ufeff"
ZONED = {"TIMESTAMP": "TIMESTAMP WITH TIME ZONE", "TIME": "VARCHAR"}
# CASE, because DuckDB evaluates both sides of an AND for each row.
_UNLESS_PLAIN = "CASE WHEN length({v}) = 19 AND {v}[17] = ':' THEN false ELSE"
HAS_ZONE = rf"{_UNLESS_PLAIN} regexp_matches({{v}}, ':.*(Z|UTC|GMT|[+-]\d\d(:?\d\d)?)\s*$') END"
# Neither type keeps `EST` or `PM` as it is meant; see `column_types`.
HAS_LETTERS = (
    rf"{_UNLESS_PLAIN} regexp_matches({{v}}, ':.*[A-Za-z]') "
    r"AND NOT regexp_matches({v}, ':[^A-Za-z]*( ?[A-Z][A-Za-z]+/[A-Za-z_/+-]+| ?Z| ?UTC| ?GMT)\s*$') END"
)
STORED = {"HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "DECIMAL(38,0)", "BIGNUM": "VARCHAR"}


class CsvColumn(NamedTuple):
    """A column of a file, with the type that all its values have."""

    name: str
    type: str


@dataclass(frozen=True)
class CsvPart:
    """One file, ready to be read: how DuckDB must read it, and what was found in it."""

    source: str
    path: str
    """The file itself, or its regular copy."""
    options: str
    columns: tuple[CsvColumn, ...]
    constants: tuple[tuple[str, str], ...]
    """Columns from the path, such as `year=2024/`."""
    staged: str
    report: LoadReport
    dotted: tuple[str, ...] = ()
    """Columns of numbers whose dots may group digits: each has three digits after it."""
    left: tuple[str, ...] = ()
    """Columns that stay text: versions, which look like decimals, and dates with words among them."""
    is_copy: bool = False
    """The file was printed for people, and its names are known."""

    def scan(self, types: dict[str, str]) -> str:
        """Return SQL that reads the file with these types instead of its own."""
        columns = tuple(CsvColumn(c.name, types.get(c.name.lower(), c.type)) for c in self.columns)
        rows = read_parquet(self.staged)
        if columns != self.columns:
            rows = _read_csv(self.path, self.options, columns)
        constants = dict(self.constants)
        kept = [quote_identifier(c.name) for c in self.columns if c.name and c.name not in constants]
        return f"SELECT {', '.join(kept + [f'{v} AS {quote_identifier(k)}' for k, v in self.constants])} FROM {rows}"


def prepare_csv_parts(con: Any, paths: tuple[str, ...], scratch: Path, reading: ReadingOptions) -> list[CsvPart]:
    """Read and stage each file once; return the parts with their reports."""
    return [_part(con, path, scratch, str(i) if len(paths) > 1 else "", reading) for i, path in enumerate(paths)]


def join_csv_parts(
    con: Any, parts: list[CsvPart], target: Path, scratch: Path, reading: ReadingOptions
) -> tuple[int, LoadReport]:
    """Write the parts as one Parquet file; return the number of rows and the report."""
    count, report = _join_with_notes(con, parts, target, scratch, reading)
    columns = con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(target))}").fetchall()
    kinds = {c[0].lower(): "text" if c[1] == "VARCHAR" else c[1] for c in columns}
    # A note on one file need not hold for the column of all files.
    types = [note for note in report.types if kinds.get(note.column.lower(), note.type) == note.type]
    known = {note.column for note in types if ROUNDED in note.note}
    wide = [c[0] for c in columns if c[1] == "DOUBLE" and c[0] not in known]
    return count, replace(report, types=(*types, *_describe_rounded(con, parts, target, wide)))


def _describe_rounded(con: Any, parts: list[CsvPart], target: Path, doubles: list[str]) -> Iterator[TypeNote]:
    """Yield notes on columns of which a double cannot hold a whole number as it is written."""
    for start in range(0, len(doubles), COLUMNS_AT_ONCE):
        chunk = doubles[start : start + COLUMNS_AT_ONCE]
        tests = ", ".join(f"max(abs({quote_identifier(c)})) >= {EXACT_INTEGER}" for c in chunk)
        found = con.execute(f"SELECT {tests} FROM {read_parquet(str(target))}").fetchone()
        for column in (c for c, is_large in zip(chunk, found) if is_large):
            for part in parts:
                name = next((c.name for c in part.columns if c.name.lower() == column.lower()), "")
                texts = tuple(CsvColumn(c.name, "VARCHAR") for c in part.columns)
                value = f"trim({quote_identifier(name)})"
                whole = f"regexp_full_match({value}, '[+-]?\\d{{16,38}}')"
                rounded = f"{whole} AND CAST(try_cast({value} AS DOUBLE) AS HUGEINT) <> try_cast({value} AS HUGEINT)"
                source = _read_csv(part.path, part.options, texts)
                row = con.execute(f"SELECT {value} FROM {source} WHERE {rounded} LIMIT 1").fetchone() if name else None
                if row:
                    yield TypeNote(name, "DOUBLE", f"{ROUNDED} ({row[0]!r})")
                    break


def _join_with_notes(
    con: Any, parts: list[CsvPart], target: Path, scratch: Path, reading: ReadingOptions
) -> tuple[int, LoadReport]:
    report = merge_load_reports([p.report for p in parts])
    joined = Path(parts[0].staged)
    types = _common_types(parts) if len(parts) > 1 else {}
    changed = {c.name.lower() for p in parts for c in p.columns if types.get(c.name.lower(), c.type) != c.type}
    report = replace(report, types=tuple(note for note in report.types if note.column.lower() not in changed))
    dotted = _find_ambiguous_dots(parts)
    said: list[TypeNote] = []
    if reading.decimal != ".":
        types |= {name.lower(): "VARCHAR" for name in dotted}
    if types or parts[0].constants:
        joined = _write_joined(con, parts, types, scratch)
        report = replace(
            report,
            notes=report.notes + describe_differing_parquet_columns([(p.source, csv_part_names(p)) for p in parts]),
        )
    if words := _find_lone_words(con, parts, joined):
        joined = _write_joined(con, parts, types | {name.lower(): "VARCHAR" for name in words}, scratch)
        report = replace(report, types=tuple(note for note in report.types if note.column not in words))
        said += [
            TypeNote(name, "text", f"{shown} without its opposite may be a word or a code, kept as text")
            for name, shown in words.items()
        ]
    leave = (EXTRA, *(name for part in parts for name in part.left))
    count, notes = refine_column_types(con, joined, target, leave, reading)
    if len(parts) == 1 and report.header == "present" and not parts[0].is_copy:
        doubt = describe_doubtful_header(con, target, [n for n in csv_part_names(parts[0]) if n != EXTRA])
        report = replace(report, notes=(*report.notes, doubt)) if doubt else report
    return count, replace(report, types=(*report.types, *said, *notes))


def _find_lone_words(con: Any, parts: list[CsvPart], joined: Path) -> dict[str, str]:
    """Return columns that DuckDB reads as true or false although they hold `no` alone, or another such word.

    `NO` is also Norway, and `F` a grade. The words `true` and `false` have one meaning.
    """
    columns = con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(joined))}").fetchall()
    flags = [c[0] for c in columns if c[1] == "BOOLEAN"]
    if not flags:
        return {}
    equal = ", ".join(f"bool_and({name}) = bool_or({name})" for name in map(quote_identifier, flags))
    found = con.execute(f"SELECT {equal} FROM {read_parquet(str(joined))}").fetchone()
    words: dict[str, str] = {}
    for flag in (name for name, is_one in zip(flags, found) if is_one):
        seen: dict[str, None] = {}
        for part in parts:
            name = next((quote_identifier(c.name) for c in part.columns if c.name.lower() == flag.lower()), "")
            if name:
                texts = _read_csv(part.path, part.options, tuple(CsvColumn(c.name, "VARCHAR") for c in part.columns))
                values = con.execute(f"SELECT DISTINCT trim({name}) AS v FROM {texts} WHERE v <> '' ORDER BY v")
                seen |= {value: None for (value,) in values.fetchall()}
        if not {value.lower() for value in seen} & {"true", "false"}:
            words[flag] = ", ".join(map(repr, list(seen)[:3]))
    return words


def _write_joined(con: Any, parts: list[CsvPart], types: dict[str, str], scratch: Path) -> Path:
    """Write the rows of all parts with these types instead of their own; return the file."""
    joined = scratch / "joined.parquet"
    write_query_to_parquet(con, " UNION ALL BY NAME ".join(f"({p.scan(types)})" for p in parts), joined)
    return joined


def _find_ambiguous_dots(parts: list[CsvPart]) -> list[str]:
    """Return columns like `1.234` if no column of the files shows what a dot means."""
    decimals = [c.name for p in parts for c in p.columns if c.type == "DOUBLE" and c.name not in p.dotted]
    return [] if decimals else list(dict.fromkeys(name for p in parts for name in p.dotted))


def csv_part_names(part: CsvPart) -> list[str]:
    """Return the names of the part's columns."""
    return [c.name for c in part.columns if c.name]


def _part(con: Any, path: str, scratch: Path, index: str, reading: ReadingOptions) -> CsvPart:
    found = survey_text_file(path, reading.encoding)
    part = _surveyed_part(con, path, found, scratch, index, reading)
    if not found.doubtful:
        return part
    notes = (reading.describe_doubt(found.encoding), *part.report.notes)
    return replace(part, report=replace(part.report, notes=notes))


def _surveyed_part(
    con: Any, path: str, found: TextFileSurvey, scratch: Path, index: str, reading: ReadingOptions
) -> CsvPart:
    with open_text_file(path, found) as text:
        sample = text.read(SAMPLE_CHARS)
    if not sample.strip("\r\n \0"):
        raise Invalid(f"`{path}` is empty.", hint="Remove the file, or write a header and rows into it.")
    sample = found.clean(sample)
    if _has_quoted_lines(sample, whole=len(sample) < SAMPLE_CHARS):
        return _without_line_quotes(con, path, found, scratch, index, reading)
    if printed := find_printed_text(sample, whole=len(sample) < SAMPLE_CHARS):
        return _read_printed(con, path, found, scratch, index, reading, printed)
    comments = _count_comments(sample)
    body = sample.splitlines(keepends=True)[comments:] if comments else [sample]
    dialect = detect_csv_dialect("".join(body), whole=len(sample) < SAMPLE_CHARS)
    if dialect.width == 1:
        _refuse_fixed_width(path, body)
    part = _read_dialect(con, path, found, dialect, scratch, index, sample, comments)
    if dialect.width > 1 and part.report.blank_lines:
        records = list(islice(read_csv_records(io.StringIO("".join(body), newline=""), dialect, cut=True), HEAD_ROWS))
        top = next((at for at, record in enumerate(records) if len(record.fields) == dialect.width), 0)
        del records[:top]  # titles
        if second := describe_second_table(records, dialect.width, _is_value):
            return replace(part, report=replace(part.report, notes=(*part.report.notes, second)))
    return part


def _read_dialect(
    con: Any,
    path: str,
    found: TextFileSurvey,
    dialect: CsvDialect,
    scratch: Path,
    index: str,
    sample: str,
    comments: int,
) -> CsvPart:
    """Stage the file as it is if DuckDB reads it right, else a repaired copy."""
    import duckdb

    staged = scratch / f"part{index}.parquet"
    if not comments and found.plain and not (found.lone_cr and "\n" in sample):
        # Types that a sample suggests and all values have are those that the whole file suggests, and found faster.
        for sample_rows in (SNIFFED_ROWS, -1):
            try:
                part = _as_is(
                    con, path, decompress_content_for_duckdb(path, scratch, index), found, dialect, staged, sample_rows
                )
            except duckdb.Error as error:
                reraise_duckdb_limit(error)
                part = None
            if part:
                return part
    return _repaired(con, path, found, dialect, scratch, index, comments)


def _has_quoted_lines(sample: str, whole: bool) -> bool:
    """Return whether each line is in quotes as a whole, as if it were one field, and has the same delimiters."""
    lines = [line for line in sample.splitlines() if line.strip()]
    lines = lines if whole else lines[:-1]
    if len(lines) < 2 or not all(QUOTED_LINE.fullmatch(line.strip()) for line in lines):
        return False
    inside = [re.sub('""[^"]*""', "", line) for line in lines]
    # `"Smith, John"` is one value, even if all of them have a comma.
    marks = [mark for mark in ",;\t|" if mark in inside[0] and f"{mark} " not in inside[0]]
    return any(len({line.count(mark) for line in inside}) == 1 for mark in marks)


def _without_line_quotes(
    con: Any, path: str, found: TextFileSurvey, scratch: Path, index: str, reading: ReadingOptions
) -> CsvPart:
    """Read a copy of the file whose lines have no quotes around them."""
    copy = scratch / f"unquoted{index}.csv"
    with open_text_file(path, found) as text, open(copy, "w", encoding="utf-8", newline="") as out:
        for line in text:
            bare = line.replace("\0", "").strip()
            out.write((bare[1:-1].replace('""', '"') if QUOTED_LINE.fullmatch(bare) else bare) + "\n")
    part = _part(con, str(copy), scratch, index, reading)
    return _copied(part, path, found, "Each line was in quotes as a whole; they were removed.")


def _read_printed(
    con: Any, path: str, found: TextFileSurvey, scratch: Path, index: str, reading: ReadingOptions, printed: PrintedText
) -> CsvPart:
    """Read a copy in which each row is a line of fields."""
    copy = scratch / f"printed{index}.csv"
    with open_text_file(path, found) as text, open(copy, "w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(printed.rows(line.replace("\0", "") for line in text))
    part = _copied(_part(con, str(copy), scratch, index, reading), path, found, printed.note)
    return replace(part, is_copy=True)


def _copied(part: CsvPart, path: str, found: TextFileSurvey, note: str) -> CsvPart:
    """Return the part of a copy as that of the file itself."""
    report = replace(part.report, encoding=found.encoding, bom=found.bom, notes=(note, *part.report.notes))
    return replace(part, source=path, constants=_constants(path), report=report)


def _count_comments(sample: str) -> int:
    """Return how many lines at the top are comments: they start with `#`, or tell Excel the delimiter."""
    lines = sample.splitlines()[:COMMENT_LINES]
    if lines and SEPARATOR_LINE.fullmatch(lines[0]):
        return 1
    count = next((at for at, line in enumerate(lines) if not line.startswith("#")), 0)
    # `#id,name` without a space in front of a name is a header in the style of some programs.
    last = lines[count - 1] if count else ""
    is_header = re.fullmatch(r"#\w[\w.]*([,;\t|]\w[\w.]*)+", last) is not None
    return count - is_header


def _refuse_fixed_width(path: str, body: list[str]) -> None:
    """Raise if the lines have columns at fixed places: nothing but spaces separates them."""
    lines = [line.rstrip() for line in "".join(body).splitlines()[:100] if line.strip()]
    if len(lines) < 3 or not all(re.search(r"\S {2,}\S", line) for line in lines[:-1]):
        return
    width = max(map(len, lines))
    padded = [line.ljust(width) for line in lines]
    blank = "".join(" " if all(line[at] == " " for line in padded) else "x" for at in range(width))
    if re.search(r"x +x", blank):
        raise Invalid(
            f"`{path}` has columns of fixed width, separated by spaces alone.",
            hint="Save it as CSV; the file does not say where each column starts.",
        )


def _sample_notes(head: list[CsvRecord], columns: tuple[CsvColumn, ...], header: bool) -> tuple[TypeNote, ...]:
    """Return notes on values that DuckDB reads as something else than what is written, from the first rows."""
    notes = []
    rows = [r.fields for r in head[header:] if not r.blank and len(r.fields) >= len(columns)]
    for at, column in enumerate(columns):
        for kind, test, said in READ_AS:
            cells = (row[at].strip() for row in rows) if kind == column.type else ()
            odd = list(dict.fromkeys(cell for cell in cells if test.fullmatch(cell)))
            if odd:
                notes.append(TypeNote(column.name, kind, f"{said} ({', '.join(map(repr, odd[:3]))})"))
        if column.type == "DOUBLE" and (same := _find_same_numbers([row[at].strip() for row in rows])):
            notes.append(TypeNote(column.name, "DOUBLE", f"{same} are one number here; as versions, they would be two"))
    return tuple(notes)


def _find_same_numbers(cells: list[str]) -> str:
    """Return two of the values that differ only by a zero at the end, such as `1.1` and `1.10`; empty if none do."""
    if not all(SAME_NUMBER.fullmatch(cell) for cell in cells if cell):
        return ""
    seen: dict[float, str] = {}
    for cell in filter(None, cells):
        other = seen.setdefault(float(cell), cell)
        if other != cell:
            return f"{other!r} and {cell!r}"
    return ""


def _dotted_thousands(head: list[CsvRecord], columns: tuple[CsvColumn, ...], header: bool) -> set[str]:
    """Return columns like `1.000` beside others like `7,50`: these dots group digits, and DuckDB reads decimals."""
    rows = [r.fields for r in head[header:] if len(r.fields) >= len(columns)]
    cells = {c: [row[at].strip() for row in rows if row[at].strip()] for at, c in enumerate(columns)}
    if not any(map(_has_decimal_commas, cells.values())):
        return set()
    return {
        c.name
        for c, found in cells.items()
        if c.type == "DOUBLE" and any("." in cell for cell in found) and all(map(DOTTED.fullmatch, found))
    }


def _has_decimal_commas(cells: list[str]) -> bool:
    """Return whether the values are numbers with a decimal comma, also with a currency or a percent sign."""
    commas = [bool(DECIMAL_COMMA.fullmatch(cell)) for cell in cells]
    return any(commas) and all(comma or WHOLE_OR_MARKER.fullmatch(cell) for comma, cell in zip(commas, cells))


def _find_codes(con: Any, path: str, options: str, columns: tuple[CsvColumn, ...], head: list[CsvRecord]) -> set[str]:
    """Return columns of codes like `12E5`, which DuckDB reads as powers of ten.

    Programs write a dot or a sign into such a number (`1.2E6`, `1e+06`). Only columns whose first values have neither
    are read as a whole.
    """
    maybe = [
        c.name
        for at, c in enumerate(columns)
        if c.type == "DOUBLE" and c.name
        if all(
            CODE_OR_WHOLE.fullmatch(r.fields[at].strip()) for r in head if at < len(r.fields) and r.fields[at].strip()
        )
    ]
    if not maybe:
        return set()
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    tests = ", ".join(
        f"bool_and(regexp_full_match({name}, {quote_literal(CODE_OR_WHOLE.pattern)})) AND bool_or({name} ILIKE '%e%')"
        for name in (f"trim({quote_identifier(c)})" for c in maybe)
    )
    found = con.execute(f"SELECT {tests} FROM {_read_csv(path, options, texts)}").fetchone()
    return {name for name, is_code in zip(maybe, found) if is_code}


def _find_versions(con: Any, path: str, options: str, columns: tuple[CsvColumn, ...], skip: set[str]) -> dict[str, str]:
    """Return columns of versions that DuckDB reads as decimals, each with an example.

    `1.10` is another version than `1.1`, and later than `1.9`. The name of the column tells versions from amounts.
    """
    maybe = [c.name for c in columns if c.type == "DOUBLE" and c.name not in skip and VERSION_NAME.search(c.name)]
    if not maybe:
        return {}
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    tests = ", ".join(
        f"bool_and(regexp_full_match({name}, '\\d+(\\.\\d+)?')), "
        f"any_value({name}) FILTER (regexp_full_match({name}, '\\d+\\.\\d{{2,}}'))"
        for name in (f"trim({quote_identifier(c)})" for c in maybe)
    )
    found = con.execute(f"SELECT {tests} FROM {_read_csv(path, options, texts)}").fetchone()
    return {name: first for name, plain, first in zip(maybe, found[::2], found[1::2]) if plain and first}


def _describe_versions(versions: dict[str, str]) -> tuple[TypeNote, ...]:
    return tuple(
        TypeNote(name, "text", f"{first!r} is taken for a version, not a decimal, because of the column's name")
        for name, first in versions.items()
    )


def _find_dotted(
    con: Any, path: str, options: str, columns: tuple[CsvColumn, ...], head: list[CsvRecord]
) -> tuple[str, ...]:
    """Return columns of numbers in which each dot is followed by three digits, as dots between thousands are."""
    maybe = [
        c.name
        for at, c in enumerate(columns)
        if c.type == "DOUBLE" and c.name
        if all(DOTTED.fullmatch(r.fields[at].strip()) for r in head if at < len(r.fields) and r.fields[at].strip())
    ]
    if not maybe:
        return ()
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    tests = ", ".join(
        f"bool_and(regexp_full_match(trim({quote_identifier(c)}), {quote_literal(DOTTED.pattern)}))" for c in maybe
    )
    found = con.execute(f"SELECT {tests} FROM {_read_csv(path, options, texts)}").fetchone()
    return tuple(name for name, is_dotted in zip(maybe, found) if is_dotted)


def _with_zones(con: Any, path: str, options: str, columns: tuple[CsvColumn, ...]) -> tuple[CsvColumn, ...]:
    """Return the columns with types that keep the time zone of each value.

    DuckDB chooses a type with a zone only if one of the first rows has a zone, and drops later ones. It has no type
    for times with `EST` and the like, some of which it would drop and some of which it would guess.
    """
    timed = [c for c in columns if c.name and c.type in (*ZONED, *ZONED.values()) and c.type != "VARCHAR"]
    if not timed:
        return columns
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    tests = ", ".join(
        f"bool_or({test.replace('{v}', quote_identifier(c.name))})" for c in timed for test in (HAS_ZONE, HAS_LETTERS)
    )
    found = con.execute(f"SELECT {tests} FROM {_read_csv(path, options, texts)}").fetchone()
    types: dict[str, str] = {}
    for column, has_zone, has_letters in zip(timed, found[::2], found[1::2]):
        if has_zone or has_letters:
            types[column.name] = "VARCHAR" if has_letters else ZONED.get(column.type, column.type)
    return tuple(CsvColumn(c.name, types.get(c.name, c.type)) for c in columns)


def _is_year_header(cells: list[str]) -> bool:
    """Return whether a row is a header such as `country,2019,2020`: names, and years in order."""
    years = [int(cell) for cell in cells if re.fullmatch(r"(19|20)\d\d", cell.strip())]
    names = [cell for cell in cells if re.search(r"[^\W\d_]", cell)]
    steps = {b - a for a, b in pairwise(years)}
    return len(years) + len(names) == len(cells) and bool(names) and len(steps) == 1 and steps <= {1, -1, 5, 10}


def _is_data(rows: list[list[str]]) -> bool:
    """Return whether the first row is data although DuckDB, which takes `17,5` for text, would call it the header.

    Its cells are numbers or dates like those below them, and no other cell is a name above numbers or dates.
    """
    first, below = rows[0], rows[1:]
    if not below or _is_year_header(first) or all(re.fullmatch(r"(19|20)\d\d", cell.strip()) for cell in first):
        return False
    kinds = [
        {csv_value_kind(row[at]) for row in below if at < len(row) and row[at].strip()} for at in range(len(first))
    ]
    typed = [(cell, kind) for cell, kind in zip(first, kinds) if len(kind) == 1 and kind != {""}]
    if not typed or any({csv_value_kind(cell)} != kind for cell, kind in typed):
        return False
    return len(typed) == len(first) or any(re.search(r"\d\D+\d", cell) for cell, _ in typed)


def _is_index_header(head: list[CsvRecord]) -> bool:
    """Return whether the first row is a header without a name for the first column, which counts the rows.

    Programs write the number of each row so, from 0 or from 1.
    """
    first, numbers = head[0].fields, [r.fields[0].strip() for r in head[1:] if any(f.strip() for f in r.fields)]
    if len(first) < 2 or first[0].strip() or not any(f.strip() for f in first) or len(numbers) < 2:
        return False
    return any(numbers == [str(at + start) for at in range(len(numbers))] for start in (0, 1))


def _has_title_row(head: list[CsvRecord], width: int) -> bool:
    """Return whether the first row has one cell or none of several, and a later one has all."""
    if width < 3 or _is_index_header(head) or sum(bool(f.strip()) for f in head[0].fields) > 1:
        return False
    return any(all(f.strip() for f in row.fields) for row in head[1:TITLE_ROWS])


def _as_is(
    con: Any, source: str, path: str, found: TextFileSurvey, dialect: CsvDialect, staged: Path, sample_rows: int
) -> CsvPart | None:
    """Read the file with DuckDB alone; return None if DuckDB would drop or misread something."""
    line = _line_size(found.longest) if found.longest > CHUNK else ""
    sniffed = _sniff(con, path, line.lstrip(", "), sample_rows)
    if sniffed is None or not _agree(sniffed, dialect, found):
        return None
    with open_text_file(path, found) as text:
        head = list(islice((r for r in read_csv_records(text, dialect) if not r.blank), HEAD_ROWS))
    if _has_title_row(head, dialect.width) or any(map(_is_rule, head[:RULE_ROWS])):
        return None
    if _has_two_header_rows(head, dialect.width) or _has_units_row(head, dialect.width):
        return None
    notes: tuple[str, ...] = ()
    if not sniffed.header and _is_year_header(head[0].fields):
        sniffed = _sniff(con, path, f"{line.lstrip(', ')}{', ' if line else ''}header=true", sample_rows)
        if sniffed is None or not _agree(sniffed, dialect, found):
            return None
        notes = ("The first row was read as the header, because its numbers are years in order.",)
    elif _is_index_header(head):
        if not sniffed.header:
            sniffed = _sniff(con, path, f"{line.lstrip(', ')}{', ' if line else ''}header=true", sample_rows)
        if sniffed is None or not _agree(sniffed, dialect, found):
            return None
    elif sniffed.header and _is_data([r.fields for r in head]):
        sniffed = _sniff(con, path, f"{line.lstrip(', ')}{', ' if line else ''}header=false", sample_rows)
        if sniffed is None or not _agree(sniffed, dialect, found):
            return None
    names = clean_column_names(c.name for c in sniffed.columns)
    sniffed = sniffed._replace(columns=tuple(CsvColumn(n, c.type) for n, c in zip(names, sniffed.columns)))
    grouped = _dotted_thousands(head, sniffed.columns, sniffed.header)
    options = (
        f"delim={quote_literal(sniffed.delimiter)}, quote={quote_literal(sniffed.quote)}, "
        f"escape={quote_literal(sniffed.escape)}, new_line={quote_literal(sniffed.new_line)}, "
        f"header={sniffed.header}{line}{sniffed.formats}"
    )
    grouped |= _find_codes(con, path, options, sniffed.columns, head[sniffed.header :])
    versions = _find_versions(con, path, options, sniffed.columns, grouped)
    grouped |= versions.keys()
    if grouped:
        columns = tuple(CsvColumn(c.name, "VARCHAR" if c.name in grouped else c.type) for c in sniffed.columns)
        sniffed = sniffed._replace(columns=columns)
    sniffed = sniffed._replace(columns=_with_zones(con, path, options, sniffed.columns))
    write_query_to_parquet(con, f"SELECT * FROM {_read_csv(path, options, sniffed.columns)}", staged)
    worded = _find_date_words(con, path, options, sniffed.columns, staged)
    if worded:
        columns = tuple(CsvColumn(c.name, "VARCHAR" if c.name in worded else c.type) for c in sniffed.columns)
        sniffed = sniffed._replace(columns=columns)
        write_query_to_parquet(con, f"SELECT * FROM {_read_csv(path, options, sniffed.columns)}", staged)
    if _has_empty_rows(con, sniffed.columns, staged):
        return None
    if sniffed.header and _repeats_header(con, head[0].fields, sniffed.columns, staged):
        return None
    if sample_rows > 0 and _has_late_values(con, sniffed.columns, staged, sample_rows):
        return None
    if sample_rows > 0 and _has_late_codes(con, path, options, sniffed.columns, staged, sample_rows):
        return None
    report = LoadReport(
        encoding="utf-8",
        bom=found.bom,
        delimiter=dialect.delimiter if dialect.width > 1 else "",
        quote=sniffed.quote,
        header="present" if sniffed.header else "invented",
        renamed=_renames(head[0].fields, sniffed.columns) if sniffed.header else (),
        types=_sample_notes(head, sniffed.columns, sniffed.header)
        + _late_number_notes(con, path, options, sniffed.columns, staged, sample_rows, head)
        + _describe_versions(versions)
        + _describe_date_words(worded),
        blank_lines=_blank_lines(con, found, sniffed, staged) if dialect.width > 1 else 0,
        huge_fields=_huge_fields(con, sniffed.columns, staged) if found.longest > HUGE_FIELD else 0,
        notes=notes,
    )
    dotted = (
        _find_dotted(con, path, options, sniffed.columns, head[sniffed.header :]) if report.delimiter == ";" else ()
    )
    left = (*versions, *worded)
    return CsvPart(source, path, options, sniffed.columns, _constants(source), str(staged), report, dotted, left)


def _find_date_words(con: Any, path: str, options: str, columns: tuple[CsvColumn, ...], staged: Path) -> dict[str, str]:
    """Return columns of dates or times in which DuckDB reads a word, such as `infinity` or `epoch`, and the words.

    It reads them as 1900-01-01, 1970-01-01 or infinity. Only columns with such values are read as text to be sure.
    """
    dated = [c for c in columns if c.name and c.type in DATED]
    if not dated:
        return {}
    tests = ", ".join(
        f"bool_or(NOT isfinite({v}) OR {v} = CAST('1970-01-01' AS {kind}) OR {v} = CAST('1900-01-01' AS {kind}))"
        for v, kind in ((quote_identifier(c.name), c.type) for c in dated)
    )
    found = con.execute(f"SELECT {tests} FROM {read_parquet(str(staged))}").fetchone()
    return _find_words(con, path, options, columns, [c.name for c, is_odd in zip(dated, found) if is_odd])


def _find_words(con: Any, path: str, options: str, columns: tuple[CsvColumn, ...], dated: list[str]) -> dict[str, str]:
    """Return those of the columns in which words stand, and how many, for a note."""
    if not dated:
        return {}
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    counts = ", ".join(
        f"count({v}), count_if(regexp_matches({v}, {quote_literal(WORD)})), "
        f"list_sort(list(DISTINCT {v}) FILTER (regexp_matches({v}, {quote_literal(WORD)})))[:3]"
        for v in (f"trim({quote_identifier(name)})" for name in dated)
    )
    found = con.execute(f"SELECT {counts} FROM {_read_csv(path, options, texts)}").fetchone()
    words: dict[str, str] = {}
    for name, values, count, shown in zip(dated, found[::3], found[1::3], found[2::3]):
        if count:
            verb = "is not a date" if count == 1 else "are not dates"
            words[name] = f"{count:,} of {values:,} values {verb} ({', '.join(map(repr, shown))})"
    return words


def _describe_date_words(worded: dict[str, str]) -> tuple[TypeNote, ...]:
    return tuple(TypeNote(name, "text", f"mixed: {said}, kept as text") for name, said in worded.items())


def _has_empty_rows(con: Any, columns: tuple[CsvColumn, ...], staged: Path) -> bool:
    """Return whether rows of several columns have no value at all, or a byte order mark stands inside the file."""
    names = [quote_identifier(c.name) for c in columns if c.name]
    if len(names) < 2:
        return False
    source = read_parquet(str(staged))
    if columns[0].type == "VARCHAR":
        marked = f"SELECT 1 FROM {source} WHERE prefix({names[0]}, {quote_literal(BOM)}) LIMIT 1"
        if con.execute(marked).fetchone():
            return True
    # The statistics of the file tell whether a column is filled in each row.
    filled = con.execute(
        f"SELECT path_in_schema FROM parquet_metadata({quote_literal(str(staged))}) "
        "GROUP BY path_in_schema HAVING bool_and(coalesce(stats_null_count = 0, false)) LIMIT 1"
    ).fetchone()
    if filled:
        return False
    empty = " AND ".join(f"{name} IS NULL" for name in names)
    return con.execute(f"SELECT 1 FROM {source} WHERE {empty} LIMIT 1").fetchone() is not None


def _late_number_notes(
    con: Any,
    path: str,
    options: str,
    columns: tuple[CsvColumn, ...],
    staged: Path,
    sample_rows: int,
    head: list[CsvRecord],
) -> tuple[TypeNote, ...]:
    """Return notes on hexadecimal and binary numbers below the first rows, which `_sample_notes` has not seen.

    In a large file that is read by a sample, `_has_late_codes` has found none.
    """
    whole = [c.name for c in columns if c.name and c.type == "BIGINT"]
    if len(head) < HEAD_ROWS or not whole:
        return ()
    (rows,) = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))}").fetchone()
    if sample_rows > 0 and rows >= sample_rows - 1000:
        return ()
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    tests = ", ".join(
        f"any_value({v}) FILTER (regexp_full_match({v}, '[+-]?0[xXbB].+'))"
        for v in (f"trim({quote_identifier(name)})" for name in whole)
    )
    found = con.execute(f"SELECT {tests} FROM {_read_csv(path, options, texts)}").fetchone()
    (said,) = (said for kind, _, said in READ_AS if kind == "BIGINT")
    early = {c.name: at for at, c in enumerate(columns)}
    return tuple(
        TypeNote(name, "BIGINT", f"{said} ({shown!r})")
        for name, shown in zip(whole, found)
        if shown
        and not any(HEXADECIMAL.fullmatch(r.fields[early[name]].strip()) for r in head if len(r.fields) > early[name])
    )


def _repeats_header(con: Any, header: list[str], columns: tuple[CsvColumn, ...], staged: Path) -> bool:
    """Return whether the header is among the rows again, as in files that were put together."""
    if len(columns) < 2 or any(c.type != "VARCHAR" for c in columns) or len(header) != len(columns):
        return False
    test = " AND ".join(
        f"{quote_identifier(c.name)} = {quote_literal(cell)}" for c, cell in zip(columns, header) if cell
    )
    return bool(con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))} WHERE {test}").fetchone()[0])


def _has_two_header_rows(head: list[CsvRecord], width: int) -> bool:
    rows = [[cell.strip() for cell in record.fields] for record in head]
    if len(rows) < 3 or any(len(row) != width for row in rows[:2]):
        return False
    below = [row for row in rows[2:] if len(row) == width]
    if is_units_row(below[:1], below[1:], _is_value):
        del below[0]
    return has_spanning_header(rows[0], rows[1], below, _is_value)


def _has_units_row(head: list[CsvRecord], width: int) -> bool:
    """Return whether the second row holds units such as `m/s`: text above nothing but values."""
    rows = [[cell.strip() for cell in record.fields] for record in head]
    if width < 2 or len(rows) < 2 or any(map(_is_value, rows[0])) or len(rows[0]) != width:
        return False
    return is_units_row(rows[1:2], [row for row in rows[2:] if len(row) == width], _is_value)


def _is_value(cell: str) -> bool:
    return bool(csv_value_kind(cell))


def _is_rule(record: CsvRecord) -> bool:
    """Return whether a record is the line below the header of a table that was printed: only dashes and the like."""
    text = "".join(record.fields).strip()
    return text.count("-") + text.count("=") >= RULE and not text.strip("-+|:= ")


def _has_late_values(con: Any, columns: tuple[CsvColumn, ...], staged: Path, sample_rows: int) -> bool:
    """Return whether a column of text has no value in the sample, so that nothing there suggested its type."""
    texts = [quote_identifier(c.name) for c in columns if c.type == "VARCHAR"]
    if not texts:
        return False
    rows = f"read_parquet({quote_literal(str(staged))}, hive_partitioning=false, file_row_number=true)"
    early = ", ".join(f"count({t})" for t in texts)
    found = con.execute(f"SELECT {early} FROM {rows} WHERE file_row_number < {sample_rows - 1000}").fetchone()
    empty = [f"count({t})" for t, values in zip(texts, found) if not values]
    if not empty:
        return False
    return any(con.execute(f"SELECT {', '.join(empty)} FROM {read_parquet(str(staged))}").fetchone())


def _has_late_codes(
    con: Any, path: str, options: str, columns: tuple[CsvColumn, ...], staged: Path, sample_rows: int
) -> bool:
    """Return whether a value below the sample was cast to a type that DuckDB would not have chosen for it.

    `00123` is cast to the number 123, and makes the column text if it is in the sample.
    """
    (rows,) = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))}").fetchone()
    tests = [
        CAST_ONLY[c.type].replace("{v}", quote_identifier(c.name)) for c in columns if c.name and c.type in CAST_ONLY
    ]
    if rows < sample_rows - 1000 or not tests:
        return False
    texts = tuple(CsvColumn(c.name, "VARCHAR") for c in columns)
    found = con.execute(f"SELECT 1 FROM {_read_csv(path, options, texts)} WHERE {' OR '.join(tests)} LIMIT 1")
    return found.fetchone() is not None


class Sniffed(NamedTuple):
    """DuckDB's own view of a file."""

    delimiter: str
    quote: str
    escape: str
    new_line: str
    skipped: bool
    header: bool
    columns: tuple[CsvColumn, ...]
    formats: str


def _sniff(con: Any, path: str, options: str, sample_rows: int = -1) -> Sniffed | None:
    """Return the dialect that DuckDB detects from the sample, by default the whole file; None if it detects none.

    Dates whose year is not first stay text here: DuckDB would guess the order of day and month from one column of the
    file, and `refine_column_types` decides it for each column.
    """
    import duckdb

    extra = f", {options}" if options else ""
    try:
        row = con.execute(
            f"SELECT * FROM sniff_csv({quote_literal(path)}, sample_size={sample_rows}{extra})"
        ).fetchone()
    except duckdb.Error as error:
        reraise_duckdb_limit(error)
        return None
    delimiter, quote, escape, new_line, comment, skip, header, columns, dates, times = row[:10]
    sure = [
        (key, value)
        for key, value in (("dateformat", dates), ("timestampformat", times))
        if value and value.startswith("%Y")
    ]
    formats = "".join(f", {key}={quote_literal(value)}" for key, value in sure)
    unsure = {"DATE", "TIMESTAMP"} if len(sure) < bool(dates) + bool(times) else set()
    return Sniffed(
        delimiter=_given(delimiter),
        quote=_given(quote),
        escape=_given(escape),
        new_line=new_line,
        skipped=bool(skip or _given(comment)),
        header=header,
        columns=tuple(
            CsvColumn(c["name"], "VARCHAR" if c["type"] in unsure else STORED.get(c["type"], c["type"]))
            for c in columns
        ),
        formats=formats,
    )


def _given(value: str) -> str:
    return "" if value == "(empty)" else value


def _agree(sniffed: Sniffed, dialect: CsvDialect, found: TextFileSurvey) -> bool:
    """Return whether DuckDB detects the same table as etude does, and drops no line."""
    if sniffed.skipped or len(sniffed.columns) != dialect.width:
        return False
    if dialect.width > 1 and sniffed.delimiter != dialect.delimiter:
        return False
    if not sniffed.quote:
        return not found.quotes and dialect.quote == '"'
    return sniffed.quote == dialect.quote and sniffed.escape in ("", dialect.escape)


def _read_csv(path: str, options: str, columns: tuple[CsvColumn, ...]) -> str:
    struct = ", ".join(f"{quote_literal(c.name or UNNAMED)}: {quote_literal(c.type)}" for c in columns)
    return (
        f"read_csv({quote_literal(path)}, auto_detect=false, hive_partitioning=false, skip=0, comment='', {options}, "
        f"columns={{{struct}}})"
    )


def _line_size(longest: int) -> str:
    """Return options for records longer than DuckDB's 2 MB; its default buffer would be sixteen times that size."""
    if longest < 1_900_000:
        return ""
    return f", max_line_size={longest + 1024}, buffer_size={2 * longest + 4096}"


def _blank_lines(con: Any, found: TextFileSurvey, sniffed: Sniffed, staged: Path) -> int:
    """Compute how many lines are neither rows nor inside a field: DuckDB skips them silently."""
    rows = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))}").fetchone()[0]
    left = found.lines - int(rows) - int(sniffed.header) - sum(c.name.count("\n") for c in sniffed.columns)
    texts = [quote_identifier(c.name) for c in sniffed.columns if c.type == "VARCHAR"]
    if left > 0 and found.quotes and texts:
        breaks = " + ".join(f"coalesce(sum(length({t}) - length(replace({t}, chr(10), ''))), 0)" for t in texts)
        left -= int(con.execute(f"SELECT {breaks} FROM {read_parquet(str(staged))}").fetchone()[0])
    return max(0, left)


def _huge_fields(con: Any, columns: tuple[CsvColumn, ...], staged: Path) -> int:
    texts = [c.name for c in columns if c.type == "VARCHAR"]
    counts = " + ".join(f"count(*) FILTER (length({quote_identifier(t)}) > {HUGE_FIELD})" for t in texts) or "0"
    return int(con.execute(f"SELECT {counts} FROM {read_parquet(str(staged))}").fetchone()[0])


def _repaired(
    con: Any, path: str, found: TextFileSurvey, dialect: CsvDialect, scratch: Path, index: str, comments: int
) -> CsvPart:
    """Repair the file in a copy that DuckDB can read; every change is counted."""
    faults = LoadRowFaults(os.path.basename(path) if index else "")
    copy = scratch / f"repaired{index}.csv"
    with open_text_file(path, found) as text:
        lines = map(found.clean, text) if found.nul_bytes or found.ctrl_z else text
        wrote = _rewrite(
            con, _below_comments(read_csv_records(lines, dialect), comments, faults), dialect, copy, scratch, faults
        )
    columns = tuple(CsvColumn(n, "VARCHAR") for n in wrote.names)
    columns += (CsvColumn(_free(EXTRA, wrote.names) if wrote.extra else "", "VARCHAR"),)
    options = f"{REGULAR}, header=false{_line_size(wrote.longest)}"
    part = CsvPart(
        source=path,
        path=str(copy),
        options=options,
        columns=columns,
        constants=_constants(path),
        staged=str(scratch / f"part{index}.parquet"),
        report=LoadReport(
            encoding=found.encoding,
            bom=found.bom,
            delimiter=dialect.delimiter if dialect.width > 1 else "",
            quote=dialect.quote,
            header="present" if wrote.header else "invented",
            renamed=_renames(wrote.header, columns) if wrote.header else (),
            bad_rows=found.stray_rows(os.path.basename(path) if index else "") + faults.rows(),
            blank_lines=wrote.blank_lines,
            nul_bytes=found.nul_bytes,
            huge_fields=wrote.huge_fields,
            notes=_decoding_notes(found) + _delimiter_notes(dialect) + _header_notes(wrote, dialect),
        ),
    )
    return _typed(con, part)


def _below_comments(found: Iterator[CsvRecord], comments: int, faults: LoadRowFaults) -> Iterator[CsvRecord]:
    for record in found:
        if record.line <= comments:
            faults.add("a comment", "skipped", record.line)
        else:
            yield record


class Rewritten(NamedTuple):
    """What the regular copy holds."""

    header: list[str]
    names: list[str]
    extra: bool
    longest: int
    blank_lines: int
    huge_fields: int
    named: int
    """How many names the header has; 0 if there is none."""
    joined: tuple[str, ...]
    """Names that were made of two rows."""
    units: list[tuple[str, str]]
    """Names of columns, and what stands below them in a row of units."""


def _rewrite(
    con: Any, found: Iterator[CsvRecord], dialect: CsvDialect, copy: Path, scratch: Path, faults: LoadRowFaults
) -> Rewritten:
    """Write each record with one field per column, and one more for extra fields."""
    width, blank = dialect.width, 0

    def filled() -> Iterator[CsvRecord]:
        nonlocal blank
        for record in found:
            if record.blank and width > 1:
                blank += 1
            elif record.fields[0].startswith("#") and len(record.fields) < width:
                faults.add("a comment", "skipped", record.line)
            elif width > 1 and record.line <= TITLE_ROWS + RULE_ROWS and _is_rule(record):
                faults.add("only dashes", "skipped", record.line)
            else:
                yield record

    def is_empty(record: CsvRecord) -> bool:
        if width < 2 or any(record.fields):
            return False
        faults.add("no value", "skipped", record.line)
        return True

    rest = filled()
    head = _without_titles(list(islice(rest, 1000)), width, faults)
    joined: list[str] = []
    if width > 1 and _has_two_header_rows(head, width):
        joined = join_header_rows(head[0].fields, head[1].fields)
        head = [replace(head[0], fields=joined), *head[2:]]
    units: list[tuple[str, str]] = []
    if _has_units_row(head, width):
        units = [(name.strip(), unit.strip()) for name, unit in zip(head[0].fields, head.pop(1).fields)]
    header, names = _header(con, head, dialect, scratch)
    given: list[str] = []
    if header:
        given = head[0].fields
        # Too few names have a note of their own.
        _fit(head.pop(0), dialect, faults if len(given) >= width or not len(given) > 1 else LoadRowFaults())
    head = [record for record in head if not is_empty(record)]
    extra, longest, huge = False, 0, 0
    with open(copy, "w", encoding="utf-8", errors="replace", newline="") as file:
        # csv.writer quotes the characters of its line end: with \r\n it quotes both.
        writer = csv.writer(file, lineterminator="\r\n")
        for record in chain(head, (record for record in rest if not is_empty(record))):
            if record.fields[0].startswith(BOM):
                record.fields[0] = record.fields[0].lstrip(BOM)
                faults.add("a byte order mark inside the file", "the mark was left out", record.line)
            if width > 1 and given and record.fields == given:
                faults.add("the header again", "skipped", record.line)
                continue
            row = _fit(record, dialect, faults)
            extra = extra or bool(row[width])
            if record.size > LONG_RECORD:
                huge += sum(len(field) > HUGE_FIELD for field in row)
                longest = max(
                    longest, sum(len(field.encode("utf-8", "replace")) + field.count('"') + 3 for field in row)
                )
            writer.writerow(row)
    joined_names = tuple(joined) if header else ()
    return Rewritten(header, names, extra, longest, blank, huge, len(given), joined_names, units)


def _without_titles(head: list[CsvRecord], width: int, faults: LoadRowFaults) -> list[CsvRecord]:
    """Leave out titles and metadata above a table of several columns: they are neither rows nor the header."""
    if width < 2 or _is_index_header(head):
        return head
    if above := count_csv_metadata_records(head, width):
        for record in head[:above]:
            one = sum(bool(f.strip()) for f in record.fields) < 2
            fault = "one cell above the header" if one else "another number of fields above the header"
            faults.add(fault, "skipped as a title" if one else "skipped as metadata", record.line)
        return head[above:]
    for at, record in enumerate(head[:TITLE_ROWS]):
        if sum(bool(f.strip()) for f in record.fields) > 1:
            for title in head[:at]:
                if any(f.strip() for f in title.fields):
                    faults.add("one cell above the header", "skipped as a title", title.line)
                else:
                    faults.add("no value above the header", "skipped", title.line)
            return head[at:]
    return head


def _header(con: Any, head: list[CsvRecord], dialect: CsvDialect, scratch: Path) -> tuple[list[str], list[str]]:
    """Return the header as written (empty if there is none), and the names of the columns."""
    probe, width = scratch / "probe.csv", dialect.width
    ignore = LoadRowFaults()
    with open(probe, "w", encoding="utf-8", errors="replace", newline="") as file:
        csv.writer(file, lineterminator="\r\n").writerows(_fit(r, dialect, ignore)[:width] for r in head)
    longest = _line_size(min(probe.stat().st_size, 4 * max(r.size for r in head)))
    options = f"{REGULAR}, comment='', skip=0{longest}"
    sniffed = _sniff(con, str(probe), options)
    first = _fit(head[0], dialect, ignore)[:width]
    if _is_index_header(head):
        return first, clean_column_names(_names(first))
    if sniffed and sniffed.header and _is_data([_fit(r, dialect, ignore)[:width] for r in head]):
        sniffed = _sniff(con, str(probe), f"{options}, header=false")
    if sniffed and len(sniffed.columns) == width:
        return (first if sniffed.header else []), clean_column_names(c.name for c in sniffed.columns)
    return first, clean_column_names(_names(first))


def _names(header: list[str]) -> list[str]:
    """Return the names as DuckDB would choose them: none empty, none twice."""
    names: list[str] = []
    for at, cell in enumerate(header):
        names.append(_free(cell.strip() or f"column{at}", names))
    return names


def _free(wanted: str, names: list[str]) -> str:
    taken = {n.lower() for n in names}
    free, number = wanted, 1
    while free.lower() in taken:
        free, number = f"{wanted}_{number}", number + 1
    return free


def _fit(record: CsvRecord, dialect: CsvDialect, faults: LoadRowFaults) -> list[str]:
    """Return the record as one field for each column and one for the extra fields."""
    fields, width = record.fields, dialect.width
    if record.stray_quote:
        faults.add("a stray quote", "the quote is kept as text", record.line)
    if record.spaced_quotes:
        faults.add("spaces around a field in quotes", "the spaces were left out", record.line)
    if len(fields) < width and not record.blank:
        faults.add("too few fields", "the missing ones are null", record.line)
    if len(fields) <= width:
        return fields + [""] * (width + 1 - len(fields))
    rest = dialect.delimiter.join(fields[width:])
    if any(fields[width:]):
        faults.add("too many fields", f"the extra ones are in column `{EXTRA}`", record.line)
    else:
        faults.add("empty fields at the end", "they are left out", record.line)
        rest = ""
    return [*fields[:width], rest]


def _typed(con: Any, part: CsvPart) -> CsvPart:
    """Stage the part with the types of its values, or as text if DuckDB finds no type."""
    import duckdb

    sniffed = _sniff(con, part.path, f"{part.options}, comment='', skip=0")
    candidates = [part]
    if sniffed and len(sniffed.columns) == len(part.columns):
        columns = tuple(CsvColumn(c.name, s.type) for c, s in zip(part.columns, sniffed.columns))
        columns = (*columns[:-1], part.columns[-1])
        codes = _find_codes(con, part.path, part.options, columns, [])
        versions = _find_versions(con, part.path, part.options, columns, codes)
        columns = tuple(CsvColumn(c.name, "VARCHAR") if c.name in {*codes, *versions} else c for c in columns)
        columns = _with_zones(con, part.path, part.options, columns)
        options = part.options + sniffed.formats
        dated = [c.name for c in columns if c.name and c.type in DATED]
        worded = _find_words(con, part.path, options, columns, dated)
        columns = tuple(CsvColumn(c.name, "VARCHAR") if c.name in worded else c for c in columns)
        said = _describe_versions(versions) + _describe_date_words(worded)
        report = replace(part.report, types=part.report.types + said)
        typed = replace(part, options=options, columns=columns, report=report, left=(*versions, *worded))
        # Some numbers beyond 64 bits do not fit a decimal either.
        fitting = tuple(CsvColumn(c.name, c.type.replace("DECIMAL(38,0)", "VARCHAR")) for c in columns)
        candidates = [typed, replace(typed, columns=fitting), part]
    for candidate in candidates:
        try:
            rows = _read_csv(candidate.path, candidate.options, candidate.columns)
            named = ", ".join(map(quote_identifier, csv_part_names(candidate)))
            write_query_to_parquet(con, f"SELECT {named} FROM {rows}", Path(candidate.staged))
        except duckdb.Error as error:
            reraise_duckdb_limit(error)
            failed = error
        else:
            if part.report.delimiter != ";":
                return candidate
            dotted = _find_dotted(con, candidate.path, candidate.options, candidate.columns, [])
            return replace(candidate, dotted=dotted)
    raise Invalid(
        f"`{part.source}` cannot be read as a table: {str(failed).splitlines()[0]}",
        hint="Open it in a text editor and check that it is a text file.",
    ) from failed


def _renames(header: list[str], columns: tuple[CsvColumn, ...]) -> tuple[Rename, ...]:
    """Return which columns were renamed from their header cells, and why."""
    renames = []
    for at, (cell, column) in enumerate(zip(header, columns)):
        if cell == column.name:
            continue
        if not cell.strip():
            why = f"column {at + 1} has no name in the header"
        elif cell.strip() == column.name:
            why = "spaces around the name"
        elif clean_column_names([cell]) == [column.name]:
            why = "invisible characters, or special spaces, in the name"
        else:
            why = "another column has that name"
        renames.append(Rename(show_invisible(cell), column.name, why))
    return tuple(renames)


def _decoding_notes(found: TextFileSurvey) -> tuple[str, ...]:
    said = (f"Some bytes are not valid {found.encoding}; they show as \ufffd.",) if found.undecodable else ()
    return (*said, CTRL_Z_NOTE) if found.ctrl_z else said


def _header_notes(wrote: Rewritten, dialect: CsvDialect) -> tuple[str, ...]:
    if wrote.units:
        return (describe_units_row(wrote.units), *_header_notes(wrote._replace(units=[]), dialect))
    if wrote.joined:
        return (describe_joined_header(max(wrote.joined, key=len).splitlines()),)
    if not 1 < wrote.named < dialect.width:
        return ()
    said = f"The header has {wrote.named} names and most rows have {dialect.width} fields: the names may belong to "
    said += "other columns, as in files with row names"
    return (f"{said}, or numbers with a decimal comma were split." if dialect.delimiter == "," else f"{said}.",)


def _delimiter_notes(dialect: CsvDialect) -> tuple[str, ...]:
    if dialect.width == 1 or dialect.delimiter not in RARE_DELIMITERS:
        return ()
    shown = dialect.delimiter if dialect.delimiter.isprintable() else repr(dialect.delimiter).strip("'")
    return (f"The fields are separated by `{shown}`.",)


def _constants(path: str) -> tuple[tuple[str, str], ...]:
    folders = os.path.dirname(path).split(os.sep)
    pairs = (folder.partition("=") for folder in folders)
    return tuple({key: _constant(unquote(value)) for key, _, value in pairs if key and value}.items())


def _constant(value: str) -> str:
    if value == "__HIVE_DEFAULT_PARTITION__":
        return "NULL"
    return value if re.fullmatch(r"0|-?[1-9]\d{0,17}", value) else quote_literal(value)


def _common_types(parts: list[CsvPart]) -> dict[str, str]:
    """Return one type for each column over all files, by lower-case name: the wider number type, or text."""
    types: dict[str, str] = {}
    for column in (c for p in parts for c in p.columns if c.name):
        key = column.name.lower()
        before = types.setdefault(key, column.type)
        if before != column.type:
            types[key] = "DOUBLE" if {before, column.type} == {"BIGINT", "DOUBLE"} else "VARCHAR"
    return types
