"""Convert JSON and JSON lines to Parquet: DuckDB reads valid files; broken lines are dropped and counted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from etude.errors import Invalid
from etude.sources.duckdb_errors import reraise_duckdb_limit
from etude.sources.files.column_types import (
    describe_broken_dates,
    describe_infinite_values,
    describe_wide_number_type,
)
from etude.sources.files.csv_parts import EXACT_INTEGER, STORED
from etude.sources.files.file_content import decompress_content_for_duckdb
from etude.sources.files.load_report import LoadReport, LoadRowFaults, TypeNote, merge_load_reports
from etude.sources.files.parquet import read_parquet, write_query_to_parquet
from etude.sources.files.reading_options import ReadingOptions
from etude.sources.files.table_names import clean_column_names
from etude.sources.files.text_file import CTRL_Z_NOTE, TextFileSurvey, open_text_file, survey_text_file
from etude.sources.quoting import quote_identifier, quote_literal

OBJECT_BYTES = 16 << 20
LARGEST_INTEGER = 1 << 64
MOST_DIGITS = 38
SPACE = " \t\r\n"
JSON_TYPE = re.compile(r"\bJSON\b(?![^(]*\")")
STRUCT_KEY = re.compile(r'"(\d+)" ')
NUMBERED = re.compile(r"(.+)_\d+", re.DOTALL)
NOUNS = "WHEN 'VARCHAR' THEN 'texts' WHEN 'BOOLEAN' THEN 'booleans' WHEN 'ARRAY' THEN 'lists' WHEN 'OBJECT' THEN "
NOUNS += "'objects' WHEN 'NULL' THEN 'nulls' ELSE 'numbers'"
SURROGATE = re.compile("[\ud800-\udfff]")


class JsonPart(NamedTuple):
    """One file, or its copy that DuckDB can read."""

    source: str
    path: str
    found: TextFileSurvey
    report: LoadReport
    cut_off: bool = False
    """The file is an array that does not end: DuckDB would silently accept what is there."""


def load_json_records(
    con: Any, paths: tuple[str, ...], target: Path, scratch: Path, reading: ReadingOptions
) -> tuple[int, LoadReport]:
    """Write the records of all files as one Parquet file; return the number of rows and the report."""
    import duckdb

    several = len(paths) > 1
    parts = [_plain(path, scratch, i, several, reading) for i, path in enumerate(paths)]
    parts = [_repaired(p, scratch, i, several) if p.cut_off else p for i, p in enumerate(parts)]
    try:
        rows, long = _write(con, parts, target, "auto")
    except duckdb.Error as error:
        reraise_duckdb_limit(error)
        parts = [_repaired(part, scratch, i, several) for i, part in enumerate(parts)]
        rows, long = _write_repaired(con, parts, target)
    report = merge_load_reports([p.report for p in parts])
    types, notes = _describe(con, target, rows)
    return rows, replace(report, types=report.types + long + types, notes=report.notes + notes)


def _describe(con: Any, target: Path, rows: int) -> tuple[tuple[TypeNote, ...], tuple[str, ...]]:
    """Return notes on numbers that a column cannot or can barely hold, and on lists that may be the real records."""
    columns = con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(target))}").fetchall()
    types = [describe_wide_number_type(c[0]) for c in columns if c[1] == "DECIMAL(38,0)"]
    for name in (c[0] for c in columns if c[1] == "DOUBLE"):
        column = quote_identifier(name)
        nans = con.execute(f"SELECT count(*) FILTER (isnan({column})) FROM {read_parquet(str(target))}").fetchone()[0]
        infinite = con.execute(f"SELECT count(*) FILTER (isinf({column})) FROM {read_parquet(str(target))}").fetchone()
        if infinite[0]:
            types.append(describe_infinite_values(name, infinite[0]))
        if nans:
            types.append(TypeNote(name, "DOUBLE", f"{nans:,} of its values {'is' if nans == 1 else 'are'} NaN, kept"))
        test = f"abs({column}) >= {LARGEST_INTEGER} AND isfinite({column})"
        if con.execute(f"SELECT count(*) FILTER ({test}) FROM {read_parquet(str(target))}").fetchone()[0]:
            types.append(TypeNote(name, "DOUBLE", "it keeps 15 to 17 digits of its values beyond 64 bits"))
    mixed = (_describe_mixed(con, target, c[0], c[1]) for c in columns if JSON_TYPE.search(c[1]))
    types += [note for note in mixed if note]
    if rows:
        types += describe_broken_dates(con, target, [c[0] for c in columns if c[1] == "VARCHAR"], rows)
    odd = _describe_shape(con, target, rows, columns) if rows else "The file has no records."
    if odd:
        return tuple(types), (odd,)
    lists = [c[0] for c in columns if c[1].endswith("[]")]
    records = [c[0] for c in columns if c[1].startswith("STRUCT") and c[1].endswith("[]")]
    nested = lists if len(lists) == len(columns) else records
    if rows != 1 or not nested:
        return tuple(types), ()
    named = ", ".join(f"`{name}`" for name in nested[:3]) + (", ..." if len(nested) > 3 else "")
    return tuple(types), (f"The file is one record, with lists in {named}; `unnest` makes rows of them.",)


def _describe_mixed(con: Any, target: Path, name: str, kind: str) -> TypeNote | None:
    """Return the note on a column whose values, or parts of them, have several types: DuckDB keeps these as JSON."""
    value = quote_identifier(name)
    if kind != "JSON":
        filled = f"count(*) FILTER (CAST({value} AS VARCHAR) NOT IN ('[]', '{{}}'))"
        if not con.execute(f"SELECT {filled} FROM {read_parquet(str(target))}").fetchone()[0]:
            return None
        return TypeNote(name, kind, "parts of it have several types and are kept as JSON, texts with their quotes")
    found = con.execute(
        f"SELECT CASE json_type({value}) {NOUNS} END AS noun, count(*), left(CAST(any_value({value}) AS VARCHAR), 40) "
        f"FROM {read_parquet(str(target))} WHERE {value} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    if not found:
        return None
    if len(found) == 1:
        return TypeNote(name, "JSON", f"its {found[0][0]} have several shapes and are kept as JSON")
    parts = ", ".join(f"{count:,} {noun[:-1] if count == 1 else noun} (`{shown}`)" for noun, count, shown in found)
    return TypeNote(name, "JSON", f"mixed: {parts}, texts keep their quotes; `{value} ->> '$'` gives all as plain text")


def _describe_shape(con: Any, target: Path, rows: int, columns: list[Any]) -> str:
    """Return a note on a file whose rows are not its records: a list per record, or an object per column."""
    if len(columns) == 1 and columns[0][0] == "json" and columns[0][1].endswith("[]"):
        return "Each record is a list, not an object: `json[1]` is its first value, and the first row may hold names."
    kinds = {c[1] for c in columns}
    if (
        rows == 1
        and len(columns) > 1
        and len(kinds) == 1
        and min(kinds).startswith("STRUCT")
        and min(kinds).endswith(")")
    ):
        named = ", ".join(f"`{c[0]}`" for c in columns[:3]) + (", ..." if len(columns) > 3 else "")
        if not STRUCT_KEY.findall(min(kinds)):
            return (
                f"The file is one object that holds {len(columns):,} records of one shape ({named}), and is one row "
                "here. Write it as a list of records, with the key of each as a field."
            )
    keys = [STRUCT_KEY.findall(c[1]) for c in columns]
    if rows == 1 and len(columns) > 1 and all(found == keys[0] and found[:1] == ["0"] for found in keys):
        return (
            f"The file holds one object per column, with {len(keys[0]):,} values each, and is one row here. "
            "Write it with a record per row: `to_json(orient='records')` in pandas."
        )
    return ""


def _plain(path: str, scratch: Path, index: int, several: bool, reading: ReadingOptions) -> JsonPart:
    """Return the file as UTF-8 without byte order mark and NUL bytes; raise if it holds no records."""
    found = survey_text_file(path, reading.encoding)
    with open_text_file(path, found) as text:
        start = end = ""
        while chunk := text.read(1 << 16):
            filled = chunk.strip(SPACE + "\0")
            start, end = start or filled[:100], filled[-1:] or end
            if start[:1] == "{":
                break
    if not start:
        raise Invalid(f"`{path}` is empty.", hint="Remove the file, or write records into it.")
    if start[0] not in "[{":
        raise Invalid(
            f"`{path}` holds no records: it starts with `{start[:20]}`.",
            hint="etude reads an array of objects, one object, or one object per line.",
        )
    notes = (f"Some bytes are not valid {found.encoding}; they show as \ufffd.",) if found.undecodable else ()
    if found.ctrl_z:
        notes = (*notes, CTRL_Z_NOTE)
    if found.doubtful:
        notes = (reading.describe_doubt(found.encoding), *notes)
    report = LoadReport(
        encoding=found.encoding,
        bom=found.bom,
        bad_rows=found.stray_rows(os.path.basename(path) if several else ""),
        nul_bytes=found.nul_bytes,
        notes=notes,
    )
    cut_off = start[0] == "[" and end != "]"
    # After a byte order mark, DuckDB takes an array of records for one value.
    if found.plain and not found.bom:
        return JsonPart(path, decompress_content_for_duckdb(path, scratch, str(index)), found, report, cut_off)
    copy = scratch / f"plain{index}.json"
    with open_text_file(path, found) as text, open(copy, "w", encoding="utf-8", errors="replace", newline="") as out:
        while chunk := text.read(1 << 20):
            out.write(found.clean(chunk))
    copied = replace(found, encoding="utf-8", bom=False, undecodable=False, stray_lines=0, nul_bytes=0, ctrl_z=False)
    return JsonPart(path, str(copy), copied, report, cut_off)


def _write(
    con: Any, parts: list[JsonPart], target: Path, layout: str, columns: str = ""
) -> tuple[int, tuple[TypeNote, ...]]:
    """Write the records; return the number of rows, and notes on whole numbers that are kept as text."""
    files = ", ".join(quote_literal(p.path) for p in parts)
    largest = max(OBJECT_BYTES, *(2 * p.found.longest for p in parts))
    options = f"sample_size=-1, format='{layout}', maximum_object_size={min(largest, 1 << 31)}{columns}"
    if len(parts) > 1:
        options += ", union_by_name=true"
    rows = f"read_json([{files}], {options})"
    found = [(c[0], c[1]) for c in con.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()]
    exact, rounded = ({}, {}) if columns else _find_exact_types(con, files, options, rows, found)
    if exact:
        typed = ", ".join(f"{quote_literal(c)}: {quote_literal('VARCHAR' if c in exact else k)}" for c, k in found)
        rows = f"read_json([{files}], {options}, columns={{{typed}}})"
        found = [(column, exact.get(column, kind)) for column, kind in found]
    twins = {} if columns else _find_case_twins(con, files, options, found)
    joined = _find_joinable(con, rows, twins, dict(found))
    kept = [(column, kind) for column, kind in found if column not in joined]
    names = clean_column_names(column for column, _ in kept)
    others = {first: [twin for twin in joined if twins[twin][1] == first] for first in dict.fromkeys(joined.values())}
    chosen = ", ".join(_stored(column, kind, name, others.get(column, ())) for (column, kind), name in zip(kept, names))
    write_query_to_parquet(con, f"SELECT {chosen} FROM {rows}", target)
    count = int(con.execute(f"SELECT count(*) FROM {read_parquet(str(target))}").fetchone()[0])
    renamed = [
        TypeNote(new, "named so", f"its key {old!r} has invisible characters, or special spaces")
        for (old, _), new in zip(kept, names)
        if old != new
    ]
    renamed += [_describe_twin(twin, key, first, twin in joined) for twin, (key, first) in twins.items()]
    renamed += [
        TypeNote(column, "DOUBLE", f"whole numbers of 16 digits and more are rounded, as {shown!r} is")
        for column, shown in rounded.items()
    ]
    said = f"its whole numbers have more than {MOST_DIGITS} digits, kept as text"
    long = (TypeNote(column, "text", said) for column, kind in exact.items() if kind == "BIGNUM")
    return count, (*renamed, *long)


def _find_case_twins(con: Any, files: str, options: str, found: list[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return columns that DuckDB renamed because their key differs from another only by case.

    Each has its key and the column of the other key: `Amount_1` is `Amount` beside `amount`. A key may also be written
    `Amount_1`, and then has values.
    """
    first: dict[str, str] = {}
    for column, _ in found:
        first.setdefault(column.lower(), column)
    twins: dict[str, tuple[str, str]] = {}
    for column, _ in found:
        numbered = NUMBERED.fullmatch(column)
        if numbered and numbered[1].lower() in first and numbered[1] != first[numbered[1].lower()]:
            alone = f"read_json([{files}], {options}, columns={{{quote_literal(column)}: 'JSON'}})"
            if not con.execute(f"SELECT count({quote_identifier(column)}) FROM {alone}").fetchone()[0]:
                twins[column] = (numbered[1], first[numbered[1].lower()])
    return twins


def _find_joinable(con: Any, rows: str, twins: dict[str, tuple[str, str]], kinds: dict[str, str]) -> dict[str, str]:
    """Return columns whose values belong into the column of the other key: same type, and no record has both."""
    joined: dict[str, str] = {}
    for twin, (_, first) in twins.items():
        same = [name for name, other in joined.items() if other == first]
        filled = " + ".join(f"CAST({quote_identifier(n)} IS NOT NULL AS INTEGER)" for n in (first, twin, *same))
        if kinds[twin] == kinds[first]:
            (most,) = con.execute(f"SELECT max({filled}) FROM {rows}").fetchone()
            if most is not None and most < 2:
                joined[twin] = first
    return joined


def _describe_twin(twin: str, key: str, first: str, is_joined: bool) -> TypeNote:
    if is_joined:
        return TypeNote(
            first, "made of several keys", f"`{first}` and `{key}` differ only by case, and no record has both"
        )
    said = f"its key is `{key}`, and queries cannot tell that name from `{first}`, which is another key"
    return TypeNote(twin, "named so", said)


def _find_exact_types(
    con: Any, files: str, options: str, rows: str, found: list[tuple[str, str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return types for columns of whole numbers that DuckDB reads as rounded ones, because some are beyond 64 bits.

    The second part has columns of decimals with an example of a whole number that is rounded.
    """
    doubles = [column for column, kind in found if kind == "DOUBLE"]
    if not doubles:
        return {}, {}
    tests = ", ".join(f"coalesce(max(abs({quote_identifier(c)})) >= {EXACT_INTEGER}, false)" for c in doubles)
    wide = [c for c, large in zip(doubles, con.execute(f"SELECT {tests} FROM {rows}").fetchone()) if large]
    exact: dict[str, str] = {}
    rounded: dict[str, str] = {}
    for column in wide:
        name = quote_identifier(column)
        texts = f"read_json([{files}], {options}, columns={{{quote_literal(column)}: 'VARCHAR'}})"
        whole, longest = con.execute(
            f"SELECT bool_and(regexp_full_match({name}, '-?\\d+')), max(length(ltrim({name}, '-'))) FROM {texts}"
        ).fetchone()
        if whole:
            exact[column] = "HUGEINT" if longest <= MOST_DIGITS else "BIGNUM"
            continue
        lost = f"regexp_full_match({name}, '-?\\d{{16,38}}') AND CAST(try_cast({name} AS DOUBLE) AS HUGEINT) "
        lost += f"<> try_cast({name} AS HUGEINT)"
        if row := con.execute(f"SELECT {name} FROM {texts} WHERE {lost} LIMIT 1").fetchone():
            rounded[column] = row[0]
    return exact, rounded


def _stored(column: str, kind: str, name: str, others: Sequence[str] = ()) -> str:
    """Return SQL for the column in a type that Parquet can hold, with its new name and the values of `others`."""
    stored = "VARCHAR" if kind.strip('"') == "NULL" else STORED.get(kind, "")
    value = quote_identifier(column)
    if others:
        value = f"coalesce({', '.join([value, *map(quote_identifier, others)])})"
    return f"{f'CAST({value} AS {stored})' if stored else value} AS {quote_identifier(name)}"


def _write_repaired(con: Any, parts: list[JsonPart], target: Path) -> tuple[int, tuple[TypeNote, ...]]:
    import duckdb

    try:
        return _write(con, parts, target, "newline_delimited")
    except duckdb.Error as error:
        reraise_duckdb_limit(error)
        # Valid JSON without a shape that DuckDB can find: one column of JSON loses nothing.
        return _write(con, parts, target, "newline_delimited", ", records=false, columns={'json': 'JSON'}")


def _repaired(part: JsonPart, scratch: Path, index: int, several: bool) -> JsonPart:
    """Rewrite the file as one record per line, without the lines that are not JSON."""
    faults = LoadRowFaults(os.path.basename(part.source) if several else "")
    copy = scratch / f"repaired{index}.json"
    duplicates: list[str] = []
    kept = longest = halves = 0
    with open(copy, "w", encoding="utf-8", errors="replace", newline="") as out:
        for record in _records(part, faults, duplicates):
            line = json.dumps(record, ensure_ascii=False)
            halves += not line.isascii() and SURROGATE.search(line) is not None
            out.write(line + "\n")
            kept, longest = kept + 1, max(longest, len(line))
    if not kept:
        raise Invalid(f"No line of `{part.source}` is a JSON record.", hint="Check that the file is JSON.")
    keys = dict.fromkeys(duplicates[:10])
    notes = [f"Key `{key}` appears twice in a record; the last value is kept." for key in keys]
    if halves:
        notes.append(f"Half of a surrogate pair shows as `?` in {halves:,} records.")
    report = replace(part.report, bad_rows=part.report.bad_rows + faults.rows(), notes=(*part.report.notes, *notes))
    return JsonPart(part.source, str(copy), replace(part.found, longest=max(part.found.longest, longest * 4)), report)


def _records(part: JsonPart, faults: LoadRowFaults, duplicates: list[str]) -> Any:
    """Yield each valid record; a broken file that is not one record per line cannot be split into records."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items) and len(duplicates) < 100:
            keys = [k for k, _ in items]
            duplicates.extend(k for k in found if keys.count(k) > 1)
        return found

    decoder = json.JSONDecoder(object_pairs_hook=pairs)
    if not _one_per_line(part, decoder):
        yield from _whole(part, decoder)
        return
    with open_text_file(part.path, part.found) as text:
        for number, line in enumerate(text, 1):
            if not line.strip(SPACE):
                continue
            try:
                yield decoder.decode(line.strip(SPACE))
            except (ValueError, RecursionError):
                faults.add("broken JSON", "skipped", number)


def _one_per_line(part: JsonPart, decoder: json.JSONDecoder) -> bool:
    """Return whether some line among the first is a record by itself."""
    with open_text_file(part.path, part.found) as text:
        for line, _ in zip(text, range(1000)):
            try:
                if isinstance(decoder.decode(line.strip(SPACE)), dict):
                    return True
            except (ValueError, RecursionError):
                continue
    return False


def _whole(part: JsonPart, decoder: json.JSONDecoder) -> list[Any]:
    with open_text_file(part.path, part.found) as text:
        content = text.read()
    try:
        value = decoder.decode(content.strip(SPACE))
    except json.JSONDecodeError as error:
        raise Invalid(
            f"`{part.source}` is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            hint="Fix the file there, or write one record per line so that a broken record affects no other.",
        ) from error
    except RecursionError as error:
        raise Invalid(f"`{part.source}` is nested too deeply.", hint="Flatten the records.") from error
    return value if isinstance(value, list) else [value]
