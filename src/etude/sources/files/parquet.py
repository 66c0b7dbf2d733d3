"""Parquet files: written by DuckDB from a query, or read in place if they are the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.errors import Invalid
from etude.sources.quoting import quote_literal


def read_parquet(path: str) -> str:
    """Return SQL that reads one file and ignores the names of its folders."""
    return f"read_parquet({quote_literal(path)}, hive_partitioning=false)"


def write_query_to_parquet(con: Any, query: str, path: Path) -> None:
    """Write the result of the query to a new Parquet file."""
    con.execute(f"COPY ({query}) TO {quote_literal(str(path))} (FORMAT parquet, COMPRESSION zstd)")


def inspect_parquet(path: str) -> tuple[int, list[str]]:
    """Return the number of rows and the column names, from the file's footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return file.metadata.num_rows, list(file.schema_arrow.names)
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
    every = list(dict.fromkeys(n for _, names in files for n in names))
    for column in every:
        missing = sum(column not in names for _, names in files)
        if missing:
            lacking[column] = missing
    return tuple(f"Column `{c}` is missing in {n} of {len(files)} files; it is null there." for c, n in lacking.items())
