"""Several sources in one query: attached if DuckDB may read them in place, otherwise the tables it names are copied.

Each table is copied through its own engine and guard: all columns, unless the query provably names those it uses.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from etude.entities import Limits, Table
from etude.errors import InvalidQuery, LimitExceeded
from etude.scratch_folder import ScratchFolder
from etude.sources.base import MORE_TIME, Json, LoadWait, Mount
from etude.sources.engine_client import ResultStream
from etude.sources.engine_pool import EnginePool
from etude.sources.named_columns import choose_named_columns
from etude.sources.query_parameters import Encoded
from etude.sources.quoting import fold_duckdb_name
from etude.sources.registered_tables import RegisteredTables
from etude.sources.source import Source, relay_source_stream, stream_source_query
from etude.sources.sql_parsing import check_text_size, parse_one_sql
from etude.spool import spool_to_parquet

COPY_ROWS = 5_000_000
"""The most rows of a table that is copied for a join."""
COPY_BYTES = 4 << 30
"""The most bytes that are copied for a join, of all tables together."""


def find_federated_sources(sql: str, primary: str, names: Iterable[str]) -> list[str]:
    """Return the other sources that the text may use as qualifiers: a cheap guess, the engine decides."""
    lowered = sql.lower()
    return [n for n in names if n != primary and re.search(rf'(?<![\w."])"?{re.escape(n)}"?\s*\.\s*["\w]', lowered)]


def federation_uses_frames(sql: str, frames: RegisteredTables, native: bool) -> bool:
    """Return whether a query reads a registered table. If the source is native, a guess is enough."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not frames.names & set(re.findall(r"\w+", sql.lower())):
        return False
    if native:
        return True
    try:
        tables = parse_one_sql(sql, "duckdb").find_all(exp.Table)
    except SqlglotError:
        return False
    return any(t.name.lower() in frames.names and t.db.lower() in ("", frames.name) for t in tables)


def query_federated_sources(
    sources: list[Source],
    sql: str,
    limits: Limits,
    describe: bool,
    pool: EnginePool,
    scratch: Path,
    on_progress: Callable[[float], None] | None = None,
    params: Encoded | None = None,
) -> ResultStream:
    """Run a statement over several sources; unqualified names belong to the first. The limits hold for all of it."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = ScratchFolder("etude-join-", scratch)
    stream = ResultStream()

    def batches() -> Iterator[Any]:
        left = _Left(limits)
        try:
            mounts, keys = [], []
            names = None
            attached = [source for source in sources if _is_attached(source, sources)]
            if len(attached) < len(sources):
                names = _named_columns(sql, pool, left, sources[0].tenant)
            for source in sources:
                if source in attached:
                    key, mount = source.mount(on_progress, left.wait(stream))
                else:
                    key, mount = _copy(source, sources, sql, names, folder.path, left, stream, on_progress)
                mounts.append(mount)
                keys.append(key)
            key = ("join", tuple(k[:-1] for k in keys), tuple(k[-1] for k in keys))
            tenant = sources[0].tenant
            inner = stream_source_query(
                pool, key, tuple(mounts), False, sql, left.limits(), describe, on_progress, tenant, params
            )
            yield from relay_source_stream(inner, stream)
        except LimitExceeded as error:
            if error.details.get("limit") == "timeout_s":
                raise _too_slow(limits) from None  # with the whole time, not what copying left of it
            raise
        finally:
            folder.remove()

    stream.batches = batches()
    return stream


def _is_attached(source: Source, sources: list[Source]) -> bool:
    """Return whether a source is read in place.

    A DuckDB file of which only some tables are granted is not attached beside another: the views and macros of that
    other file run with all that is attached, and could read the tables that are not granted.
    """
    alone = all(other is source or other.kind != "duckdb" for other in sources)
    return source.native and (source.kind != "duckdb" or source.spec.tables is None or alone)


class _Left:
    """What a join may still use."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._until = monotonic() + limits.timeout_s
        self.copy_bytes = COPY_BYTES

    def limits(self, **changes: int) -> Limits:
        """Return the limits with the time that is left."""
        left_s = self._until - monotonic()
        if left_s <= 0:
            raise _too_slow(self._limits)
        return self._limits.model_copy(update={"timeout_s": left_s, **changes})

    def wait(self, stream: ResultStream) -> LoadWait:
        """Return how long files may be read for the join."""
        return LoadWait(self.limits().timeout_s, lambda: stream.cancelled)


def _too_slow(limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"The join of sources exceeded its time limit of {limits.timeout_s:g} s.",
        hint=f"Join smaller tables, filter or aggregate earlier, or {MORE_TIME}",
        limit="timeout_s",
        value=limits.timeout_s,
    )


def _copy(
    source: Source,
    sources: list[Source],
    sql: str,
    names: frozenset[str] | None,
    folder: Path,
    left: _Left,
    stream: ResultStream,
    on_progress: Callable[[float], None] | None,
) -> tuple[Any, Mount]:
    """Copy the tables of a source that the query names to Parquet files that DuckDB can mount."""
    files: list[Json] = []
    for table in _named_tables(source, sources, sql, left.limits()):
        path = folder / f"{source.name}.{len(files)}.parquet"
        columns = choose_named_columns((c.name for c in table.columns), names)
        _copy_table(source, table, columns, path, left, stream, on_progress)
        files.append({"table": table.name, "paths": [str(path)], "fingerprint": table.fingerprint or ""})
    return (source.name, str(folder)), Mount(source.name, "files", "", None, {}, tuple(files))


def _named_tables(source: Source, sources: list[Source], sql: str, limits: Limits) -> list[Table]:
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one_sql(sql, "duckdb")
    except SqlglotError as error:
        raise InvalidQuery(f"The query cannot be read: {error}.", hint="Check the SQL.") from None
    wanted = set()
    for table in tree.find_all(exp.Table):
        parts = [p.name for p in table.parts]
        if parts[0].lower() == source.name and len(parts) > 1:
            wanted.add(".".join(parts[1:]))
        elif source is sources[0] and len(parts) == 1:
            wanted.add(parts[0])
    return _choose_tables(wanted, source.catalog(limits).tables)


def _choose_tables(wanted: Iterable[str], tables: Iterable[Table]) -> list[Table]:
    """Return the tables that these names mean; raise `InvalidQuery` if DuckDB could not tell them apart by name."""
    exact: dict[str, Table] = {}
    folded: dict[str, list[Table]] = defaultdict(list)
    for table in tables:
        exact[table.name] = table
        folded[fold_duckdb_name(table.name)].append(table)
    chosen: dict[str, Table] = {}
    for name in sorted(wanted):
        for table in [exact[name]] if name in exact else folded.get(fold_duckdb_name(name), []):
            place = fold_duckdb_name(table.name if "." in table.name else f"main.{table.name}")
            other = chosen.setdefault(place, table)
            if other is not table:
                raise InvalidQuery(
                    f"`{name}` may mean `{other.name}` or `{table.name}`, which a join of sources cannot tell apart.",
                    hint="Write the name of one of them exactly, or query this source alone.",
                )
    return list(chosen.values())


def _named_columns(sql: str, pool: EnginePool, left: _Left, tenant: str) -> frozenset[str] | None:
    """Return the names in the query; None if it may use columns that it does not name. DuckDB's parser decides."""
    check_text_size(sql)
    timeout = left.limits().timeout_s
    # Without tables, because only the text is read; in an engine, because the parser must not take the host down.
    mount = Mount("syntax", "files", "")
    with pool.lease(("syntax",), (mount,), False, timeout, tenant) as engine:
        return engine.named_columns(sql, left.limits().timeout_s)


def _copy_table(
    source: Source,
    table: Table,
    columns: list[str],
    path: Path,
    left: _Left,
    stream: ResultStream,
    on_progress: Callable[[float], None] | None,
) -> None:
    from sqlglot import exp

    dialect = source.catalog(left.limits()).dialect
    # Built, not parsed: the names of tables come from the data.
    schema, _, name = table.name.partition(".") if dialect != "sqlite" and "." in table.name else ("", "", table.name)
    where = exp.table_(name, db=schema or None, quoted=True)
    select = exp.select(*(exp.column(c, quoted=True) for c in columns)).from_(where).sql(dialect=dialect, identify=True)
    # Without the caller's `limit`, which is for the result: a part of a table would give wrong results.
    limits = left.limits(rows=COPY_ROWS, bytes=left.copy_bytes, limit=0)
    copy = source.query(select, limits, on_progress=on_progress)
    stream.started(copy.cancel)
    try:
        with contextlib.closing(copy.batches):  # type: ignore[type-var]
            first = next(copy.batches)
            spool_to_parquet(path, first.schema, itertools.chain([first], copy.batches))
    except LimitExceeded as error:
        if error.details.get("limit") not in ("rows", "bytes"):
            raise
        raise _too_large(source, table, many=error.details["limit"] == "rows") from None
    left.copy_bytes -= copy.end["bytes"]
    if left.copy_bytes <= 0:
        raise _too_large(source, table, many=False)


def _too_large(source: Source, table: Table, many: bool) -> LimitExceeded:
    allowed = f"{COPY_ROWS:,} rows" if many else f"{COPY_BYTES:,} bytes with the tables before it"
    return LimitExceeded(
        f"`{source.name}.{table.name}` has more than {allowed}; larger tables are not copied for a join.",
        hint=f"Query `{source.name}` alone for the part you need, save it as Parquet, and join that.",
        limit="copy_rows" if many else "copy_bytes",
        value=COPY_ROWS if many else COPY_BYTES,
    )
