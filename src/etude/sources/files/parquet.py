"""Parquet files: written by DuckDB from a query, or read in place if they are the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.errors import Invalid
from etude.sources.files.load_report import TypeNote
from etude.sources.quoting import quote_literal


def read_parquet(path: str) -> str:
    """Return SQL that reads one file and ignores the names of its folders."""
    return f"read_parquet({quote_literal(path)}, hive_partitioning=false)"


def write_query_to_parquet(con: Any, query: str, path: Path) -> None:
    """Write the result of the query to a new Parquet file."""
    con.execute(f"COPY ({query}) TO {quote_literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")


MOST_DIGITS = 38
"""Decimals of more digits are read as DOUBLE."""
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def inspect_parquet(path: str) -> tuple[int, list[str], tuple[TypeNote, ...], dict[str, str]]:
    """Return the number of rows, the column names, notes on types that queries lose, and types, from the footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            # Parquet has no durations: they are stored as numbers, and Arrow alone knows their unit.
            notes = [
                TypeNote(field.name, "BIGINT", f"its durations are whole numbers of {UNITS[field.type.unit]}")
                for field in schema
                if pa.types.is_duration(field.type)
            ]
            notes += [
                TypeNote(
                    field.name,
                    "DOUBLE",
                    f"its decimals have up to {field.type.precision} digits in the file, and a DOUBLE keeps 15 to 17",
                )
                for field in schema
                if pa.types.is_decimal(field.type) and field.type.precision > MOST_DIGITS
            ]
            types = {field.name: str(field.type) for field in schema}
            return file.metadata.num_rows, list(schema.names), tuple(notes), types
    except (pa.ArrowException, OSError) as error:
        raise Invalid(
            f"`{path}` is not a readable Parquet file: {str(error).splitlines()[0]}",
            hint="Write the file again; a download or a copy may have been cut short.",
        ) from error


def group_parquet_files_by_columns(files: list[tuple[str, list[str]]]) -> list[list[int]]:
    """Group files into tables: files that share at least half of their columns with the first one."""
    groups: list[tuple[set[str], list[int]]] = []
    for at, (_, names) in enumerate(files):
        columns = {n.lower() for n in names}
        for known, members in groups:
            if 2 * len(columns & known) >= min(len(columns), len(known)):
                members.append(at)
                break
        else:
            groups.append((columns, [at]))
    return [members for _, members in groups]


def describe_differing_parquet_columns(files: list[tuple[str, list[str]]]) -> tuple[str, ...]:
    """Return a sentence for each column that some of the files lack."""
    lacking: dict[str, int] = {}
    # Columns are combined whatever the case of their names.
    every = {n.lower(): n for _, names in reversed(files) for n in reversed(names)}
    held = [{n.lower() for n in names} for _, names in files]
    for key, column in reversed(every.items()):
        missing = sum(key not in names for names in held)
        if missing:
            lacking[column] = missing
    return tuple(f"Column `{c}` is missing in {n} of {len(files)} files; it is null there." for c, n in lacking.items())


ALIKE = {"int": "whole", "uint": "whole", "float": "float", "double": "float", "halffloat": "float"}
ALIKE |= {"string": "text", "large_string": "text", "dictionary": "text"}
"""Types of Arrow, by their first letters, that hold values of one kind."""


def describe_differing_parquet_types(files: list[dict[str, str]]) -> tuple[str, ...]:
    """Return a sentence for each column that has types of several kinds in the files."""
    found: dict[str, dict[str, str]] = {}
    for types in files:
        for name, kind in types.items():
            alike = next((noun for start, noun in ALIKE.items() if kind.startswith(start)), kind)
            found.setdefault(name, {}).setdefault(alike, kind)
    said = []
    for name, kinds in found.items():
        if len(kinds) < 2:
            continue
        listed = ", ".join(kinds.values())
        note = f"Column `{name}` has several types in the files ({listed}) and is read as one that holds all"
        if {"whole", "float"} <= kinds.keys():
            note += "; whole numbers of more than 15 digits may be rounded"
        if all(kind.startswith("timestamp") for kind in kinds) and any("tz=" in kind for kind in kinds):
            note += "; times without a zone count as UTC"
        said.append(f"{note}.")
    return tuple(said)
