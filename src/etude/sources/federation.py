"""Several sources in one query. Sources that DuckDB can read in place are attached; of the others, the tables that the
query names are copied, with only the columns it mentions, each through its own engine and guard."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from etude.entities import Limits, Table
from etude.errors import InvalidQuery, LimitExceeded
from etude.sources.base import Json, Mount
from etude.sources.frames import Frames
from etude.sources.parameters import Encoded
from etude.sources.pool import Pool, ResultStream
from etude.sources.source import Source, relay, stream
from etude.spool import write_parquet

COPY_ROWS = 5_000_000


def find_others(sql: str, primary: str, names: Iterable[str]) -> list[str]:
    """Return the other sources that the text may use as qualifiers: a cheap guess, the engine decides."""
    lowered = sql.lower()
    return [n for n in names if n != primary and re.search(rf'(?<![\w."])"?{re.escape(n)}"?\s*\.\s*["\w]', lowered)]


def uses_frames(sql: str, frames: Frames, native: bool) -> bool:
    """Return whether a query reads a registered table. If the source is native, a guess is enough."""
    import sqlglot
    from sqlglot import exp

    if not frames.names & set(re.findall(r"\w+", sql.lower())):
        return False
    if native:
        return True
    try:
        tables = sqlglot.parse_one(sql, dialect="duckdb").find_all(exp.Table)
    except sqlglot.errors.SqlglotError:
        return False
    return any(t.name.lower() in frames.names and t.db.lower() in ("", frames.name) for t in tables)


def query_together(
    sources: list[Source],
    sql: str,
    limits: Limits,
    describe: bool,
    pool: Pool,
    scratch: Path,
    on_progress: Callable[[float], None] | None = None,
    params: Encoded | None = None,
) -> ResultStream:
    """Run a statement over several sources; unqualified names belong to the first."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="etude-join-", dir=scratch))
    answer = ResultStream()

    def batches() -> Iterator[Any]:
        try:
            mounts, keys = [], []
            for source in sources:
                key, mount = source.mount() if source.native else _copy(source, sources, sql, folder)
                mounts.append(mount)
                keys.append(key)
            key = (f"join:{folder}" if any(not s.native for s in sources) else "join", *keys)
            inner = stream(pool, key, tuple(mounts), False, sql, limits, describe, on_progress, params)
            yield from relay(inner, answer)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    answer.batches = batches()
    return answer


def _copy(source: Source, sources: list[Source], sql: str, folder: Path) -> tuple[Any, Mount]:
    """Copy the tables of a source that the query names to Parquet files that DuckDB can mount."""
    files: list[Json] = []
    for table in _named_tables(source, sources, sql):
        path = folder / f"{source.name}.{len(files)}.parquet"
        _copy_table(source, table, _named_columns(table, sql), path)
        files.append({"table": table.name, "paths": [str(path)], "fingerprint": table.fingerprint or ""})
    return (source.name, str(folder)), Mount(source.name, "files", source.url, None, {}, tuple(files))


def _named_tables(source: Source, sources: list[Source], sql: str) -> list[Table]:
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise InvalidQuery(f"The query cannot be read: {error}.", hint="Check the SQL.") from None
    wanted = set()
    for table in tree.find_all(exp.Table):
        parts = [p.name.lower() for p in table.parts]
        if parts[0] == source.name and len(parts) > 1:
            wanted.add(".".join(parts[1:]))
        elif source is sources[0] and len(parts) == 1:
            wanted.add(parts[0])
    return [t for t in source.catalog().tables if t.name.lower() in wanted]


def _named_columns(table: Table, sql: str) -> list[str]:
    """Return the columns whose names the text mentions anywhere; all of them if it has a `*` outside `count(*)`."""
    if re.search(r"(?<!count\()\*(?!\s*\d)", re.sub(r"\s+", "", sql.lower())) or re.search(r"columns\s*\(", sql, re.I):
        return [c.name for c in table.columns]
    words = set(re.findall(r"\w+", sql.lower()))
    named = [c.name for c in table.columns if not re.fullmatch(r"\w+", c.name) or c.name.lower() in words]
    return named or [table.columns[0].name]


def _copy_table(source: Source, table: Table, columns: list[str], path: Path) -> None:
    from sqlglot import exp

    where = exp.to_table(table.name, dialect=source.catalog().dialect)
    select = exp.select(*(exp.column(c, quoted=True) for c in columns)).from_(where)
    limits = Limits(rows=COPY_ROWS, bytes=0, timeout_s=600)
    answer = source.query(select.sql(dialect=source.catalog().dialect, identify=True), limits)
    try:
        first = next(answer.batches)
        write_parquet(path, first.schema, _chain(first, answer.batches))
    except LimitExceeded as error:
        if error.details.get("limit") != "rows":
            raise
        raise LimitExceeded(
            f"`{source.name}.{table.name}` has more than {COPY_ROWS:,} rows; larger tables are not copied for a join.",
            hint=f"Query `{source.name}` alone for the part you need, save it as Parquet, and join that.",
            limit="copy_rows",
            value=COPY_ROWS,
        ) from None


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
