"""The driver for SQLite files, opened read-only. SQLite's own authorizer checks each statement a second time."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from datetime import time as dt_time
from decimal import Decimal
from typing import Any
from urllib.parse import quote
from uuid import UUID

from etude.errors import (
    Cancelled,
    EtudeError,
    InvalidQuery,
    LimitExceeded,
    Refused,
    SourceError,
    SourceLocked,
    SourceUnavailable,
    cut_message,
)
from etude.sources.base import (
    MOST_COLUMNS,
    CheckedQuery,
    Driver,
    Json,
    Mount,
    Verdicts,
    check_column_count,
    query_timeout_error,
    tables_fingerprint,
)
from etude.sources.file_fingerprint import file_stamp, sqlite_fingerprint
from etude.sources.functions import allowed_functions
from etude.sources.granted_tables import Described, Granted, ascii_lower
from etude.sources.guard_sql import check_sql
from etude.sources.hidden_rows import HIDDEN_ERROR_HINT, describe_hidden_error, refuse_hidden_plan
from etude.sources.query_hints import guard_column_hint
from etude.sources.quoting import quote_identifier, quote_literal
from etude.sources.rows import CHUNK_ROWS, Dynamic, RowColumn, to_batches

SMALL_FILE = 64 << 20
"""Rows are counted in files up to this size; in larger files the highest row id is the estimate."""
MAX_VALUE = 64 << 20
STEPS = 20_000
"""Virtual machine instructions between two checks of the deadline."""
SCHEMA_STEPS = 100
"""The same while the schema is read: a single one may expand a view that reads thousands of others."""
SCHEMA_S = 10

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 8 << 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 200,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 5000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_TABLES = """SELECT name, type FROM sqlite_master
    WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"""
# Not joined with the tables in SQL: SQLite would list all tables again for each of them.
_DETAILS = "SELECT name, type FROM pragma_table_list WHERE schema = 'main'"
_COLUMNS = """SELECT m.name AS tbl, c.name, c.type, c."notnull", c.pk FROM sqlite_master m
    JOIN pragma_table_xinfo(m.name) c WHERE m.type IN ('table', 'view') AND c.hidden <> 1 ORDER BY m.name, c.cid"""
_KEYS = """SELECT m.name AS tbl, k.id, k."from", k."table", k."to" FROM sqlite_master m
    JOIN pragma_foreign_key_list(m.name) k WHERE m.type = 'table' ORDER BY m.name, k.id, k.seq"""
_UNIQUE = """SELECT m.name AS tbl, i.name, c.name FROM sqlite_master m JOIN pragma_index_list(m.name) i
    JOIN pragma_index_info(i.name) c
    WHERE m.type = 'table' AND i."unique" AND i.origin <> 'pk' AND NOT i.partial ORDER BY m.name, i.seq, c.seqno"""


def _kind_of(error: sqlite3.Error) -> type[SourceError]:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
        return SourceLocked
    return SourceUnavailable if name.startswith(("SQLITE_CANTOPEN", "SQLITE_IOERR")) else SourceError


class SqliteDriver(Driver):
    """One SQLite file. Other processes may write to it; etude never does."""

    dialect = "sqlite"

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self._path = os.path.abspath(mount.url.removeprefix("sqlite://"))
        self._connection: sqlite3.Connection | None = None
        self._state: tuple[int, ...] = ()
        self._opened_mark = ""
        self._immutable = False
        self._schema: _Schema | None = None
        self._counted: tuple[tuple[str, int], dict[str, int], bool] | None = None
        self._stopped = False
        self._deadline = float("inf")
        self._connected()

    def _connected(self) -> sqlite3.Connection:
        """Return the connection; reopen it if the file was replaced or written to.

        SQLite alone compares only the change counter, which is the same in a file that was copied over this one.
        """
        state, mark = self._stat(), self._mark()
        if self._connection is None or mark != self._opened_mark or (self._immutable and state != self._state):
            self.close()
            self._immutable = self._must_be_immutable()
            self._connection, self._state, self._opened_mark = self._open(), state, mark
            self._schema = None
        return self._connection

    def _mark(self) -> str:
        """Return identity, size, times and header of the file, without its WAL, which SQLite follows by itself."""
        try:
            return file_stamp(self._path) + self._header().hex()
        except OSError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: OSError) -> SourceUnavailable:
        return SourceUnavailable(
            f"The SQLite file `{self._path}` cannot be opened: {error.strerror}.",
            hint="Check the path and its permissions; etude never creates a database.",
        )

    def _stat(self) -> tuple[int, ...]:
        """Return identity, size and modification time of the file, then size and modification time of its WAL."""
        try:
            main = os.stat(self._path)
        except OSError as error:
            raise self._unreachable(error) from None
        log: tuple[int, ...] = (0, 0)
        with suppress(OSError):
            wal = os.stat(self._path + "-wal")
            log = (wal.st_size, wal.st_mtime_ns)
        return (main.st_dev, main.st_ino, main.st_size, main.st_mtime_ns, *log)

    def _header(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                return file.read(100)
        except OSError as error:
            raise SourceError(
                f"The SQLite file `{self._path}` cannot be read: {error.strerror}.", hint="Check its permissions."
            ) from None

    def _must_be_immutable(self) -> bool:
        """Return whether to open the file as immutable: it is in WAL mode without a WAL, which SQLite would create."""
        header = self._header()
        if header and not header.startswith(b"SQLite format 3\0"):
            raise SourceError(
                f"`{self._path}` is not a SQLite database.", hint="Check the path and the kind of the source."
            )
        return header[18:20] == b"\2\2" and self._stat()[4] == 0

    def _open(self) -> sqlite3.Connection:
        uri = f"file:{quote(self._path)}?mode=ro" + ("&immutable=1" if self._immutable else "")
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5)
            for limit, value in _LIMITS.items():
                connection.setlimit(limit, value)
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            if _kind_of(error) is SourceLocked:
                raise self._locked() from None
            raise _kind_of(error)(
                f"The SQLite file `{self._path}` cannot be read: {error}.",
                hint="Check that the file is complete, and that no program was stopped while writing it.",
            ) from None
        connection.set_progress_handler(self._must_stop, STEPS)
        return connection

    def _locked(self) -> SourceLocked:
        return SourceLocked(
            f"The SQLite file `{self._path}` is locked: another program is writing to it.",
            hint="Try again when that program has finished or is closed, or copy the file and read the copy.",
        )

    def _must_stop(self) -> bool:
        return self._stopped or time.monotonic() > self._deadline

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection without the authorizer, for etude's own queries about the schema."""
        connection = self._connected()
        connection.set_authorizer(None)
        try:
            yield connection
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def _known(self) -> _Schema:
        with self._opened() as connection:
            version = connection.execute("PRAGMA schema_version").fetchone()[0]
            if self._schema is None or self._schema.version != version:
                self._schema = self._read_schema(connection, version)
            return self._schema

    def _read_schema(self, connection: sqlite3.Connection, version: int) -> _Schema:
        """Read the schema within a time limit: a small file may have views that take SQLite long to expand."""
        limit = _TimeLimit(self._mount.name)
        connection.set_progress_handler(limit.is_over, SCHEMA_STEPS)
        try:
            return _Schema(connection, self._mount, version, limit.check)
        finally:
            connection.set_progress_handler(self._must_stop, STEPS)

    def catalog(self) -> Json:
        """Return the granted tables; row counts are exact if the file is small."""
        schema = self._known()
        with self._opened() as connection:
            keys, unique = _foreign_keys(connection), _unique(connection)
            counts, exact = self._counts(connection, schema)
            sizes = _sizes(connection) if self._state[2] <= SMALL_FILE else {}
        fingerprint = self._fingerprint()
        return {
            "tables": [
                {
                    "name": name,
                    "kind": schema.kinds[name],
                    "columns": schema.described_columns(name),
                    "primary_key": schema.primary_key(name),
                    "unique": unique.get(name, []),
                    "foreign_keys": [k for k in keys.get(name, []) if k["to_table"] in schema.kinds],
                    "row_count": counts.get(name),
                    "row_count_exact": exact,
                    "bytes": sizes.get(name),
                    "fingerprint": fingerprint,
                }
                for name in schema.kinds
            ]
        }

    def schema_fingerprint(self) -> str:
        """Return the fingerprint of the schema without counting rows, which takes long if there are many tables."""
        schema = self._known()
        return tables_fingerprint([{"name": n, "columns": schema.described_columns(n)} for n in schema.kinds])

    def _counts(self, connection: sqlite3.Connection, schema: _Schema) -> tuple[dict[str, int], bool]:
        """Return the row counts, and whether they are exact. Every estimate needs those of all tables."""
        state = (self._fingerprint(), schema.version)
        if self._counted is None or self._counted[0] != state:
            self._counted = state, *self._count_rows(connection, schema)
        return self._counted[1:]

    def _count_rows(self, connection: sqlite3.Connection, schema: _Schema) -> tuple[dict[str, int], bool]:
        exact = self._state[2] <= SMALL_FILE
        tables = [n for n, kind in schema.kinds.items() if kind == "table"]
        what = "count(*)" if exact else "coalesce(max(rowid), 0)"
        counts: dict[str, int] = {}
        for start in range(0, len(tables), 100):
            part = tables[start : start + 100]
            try:
                counts |= _count(connection, what, part)
            except sqlite3.Error:
                # One broken table (a missing module, or WITHOUT ROWID in a large file) must not hide the others.
                for name in part:
                    with suppress(sqlite3.Error):
                        counts |= _count(connection, what, [name])
        return counts, exact

    def check(self, sql: str, params: int = 0) -> CheckedQuery:
        """Return the statement as SQLite will run it; SQLite has compiled it and found its names."""
        schema = self._known()
        if (known := schema.verdicts.get((sql, params))) is not None:
            return known
        checked = check_sql(sql, self.dialect, schema.granted, params)
        if schema.hides_rows(checked.tables):
            refuse_hidden_plan(checked)
        with self._guarded(schema, checked.sql) as connection:
            try:
                if not checked.sql.upper().startswith("EXPLAIN"):
                    connection.execute(f"EXPLAIN {checked.sql}", (None,) * params).close()
            except sqlite3.Error as error:
                raise self._failed(error, schema, checked) from None
        schema.verdicts.keep((sql, params), checked)
        return checked

    @contextmanager
    def _guarded(self, schema: _Schema, sql: str) -> Iterator[sqlite3.Connection]:
        connection = self._connected()
        schema.connect_modules(connection, sql)
        connection.set_authorizer(schema.authorize)
        try:
            yield connection
        finally:
            with suppress(sqlite3.ProgrammingError):
                connection.set_authorizer(None)

    def estimate(self, checked: CheckedQuery) -> Json:
        """Return the rows and bytes of the tables that the query reads, as if each were scanned once."""
        schema = self._known()
        tables = schema.base_tables(checked.tables)
        with self._opened() as connection:
            counts = {n.lower(): count for n, count in self._counts(connection, schema)[0].items()}
        if any(t not in counts for t in tables):
            return {"scan_rows": None, "scan_bytes": None, "result_rows": None}
        rows, total = sum(counts[t] for t in tables), sum(counts.values())
        size = self._state[2] * rows // total if total else 0
        return {"scan_rows": rows, "scan_bytes": size, "result_rows": None}

    def run(self, checked: CheckedQuery, timeout_s: float) -> Iterator[Any]:
        """Yield batches; as in SQLite, the types come from the values."""
        schema = self._known()
        self._stopped, self._deadline = False, time.monotonic() + timeout_s
        self.notes = ()
        before = self._stat()
        with self._guarded(schema, checked.sql) as connection:
            cursor = None
            try:
                cursor = connection.execute(checked.sql, [_bindable(v) for v in checked.params])
                names = [d[0] for d in cursor.description]
                declared = schema.declared(checked.tables)
                shapes = [Dynamic(declared.get(n.lower(), "")) for n in names]
                columns = [RowColumn(n, shape) for n, shape in zip(names, shapes)]
                for batch in to_batches(self._chunks(cursor), columns):
                    self.notes = [_mixed_note(n, shape.mixed) for n, shape in zip(names, shapes) if shape.mixed]
                    self.column_types = [
                        declared.get(n.lower()) or _TYPES.get(str(f.type), "TEXT") for n, f in zip(names, batch.schema)
                    ]
                    yield batch
            except OverflowError:
                raise InvalidQuery("A parameter is an integer of more than 64 bits.", hint="Pass a float.") from None
            except sqlite3.Error as error:
                raise self._failed(error, schema, checked, timeout_s) from None
            finally:
                self._deadline = float("inf")
                if cursor is not None:
                    cursor.close()
        if self._immutable and self._stat() != before:
            raise SourceLocked(f"`{self._path}` was written while it was read.", hint="Run the query again.")

    def _chunks(self, cursor: sqlite3.Cursor) -> Iterator[Sequence[tuple[Any, ...]]]:
        while chunk := cursor.fetchmany(CHUNK_ROWS):
            if self._must_stop():
                raise sqlite3.OperationalError("interrupted")
            yield chunk

    def _failed(
        self,
        error: sqlite3.Error,
        schema: _Schema | None = None,
        checked: CheckedQuery | None = None,
        timeout_s: float | None = None,
    ) -> EtudeError:
        name = getattr(error, "sqlite_errorname", "") or ""
        text = cut_message(str(error))  # it may quote a value of many megabytes
        hidden = timeout_s is not None and checked is not None and (schema is None or schema.hides_rows(checked.tables))
        if text == "interrupted" or name.startswith("SQLITE_INTERRUPT"):
            if self._stopped:
                return Cancelled("The query was cancelled.")
            return query_timeout_error(timeout_s or 0)
        if hidden and not name.startswith(("SQLITE_AUTH", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
            return self._hidden_error(error, name)
        if name == "SQLITE_AUTH" or "prohibited" in text or "not authorized" in text:
            return Refused(
                f"SQLite's authorizer refused the query: {text}.",
                hint="Read only tables that the source grants; `SHOW TABLES` lists them.",
                reason="authorizer",
            )
        if name == "SQLITE_TOOBIG":
            return LimitExceeded(
                f"A value of the query is larger than {MAX_VALUE >> 20} MiB, or the query is too long: {text}.",
                hint="Select a part of the value with substr, or aggregate less text into one value.",
                limit="value_bytes",
            )
        if text.startswith("Could not decode to UTF-8"):
            return SourceError(
                f"{text}.", hint="The column holds bytes that are not UTF-8: write `CAST(column AS BLOB)` in the query."
            )
        if name == "SQLITE_ERROR" and checked is not None:
            columns = [c for t in checked.tables for c, *_ in schema.columns.get(t, [])] if schema else []
            return InvalidQuery(f"SQLite reported an error: {text}.", hint=guard_column_hint(text, columns))
        if _kind_of(error) is SourceLocked:
            return self._locked()
        hint = "Check that the file is complete, and that no program was stopped while writing it."
        return _kind_of(error)(f"SQLite failed: {text}.", hint=hint, fatal=name.startswith(_BROKEN) or None)

    def _hidden_error(self, error: sqlite3.Error, name: str) -> EtudeError:
        """Return the error of a query on a view that hides rows: SQLite's message may quote their values."""
        if name == "SQLITE_TOOBIG":
            return LimitExceeded(
                f"A value of the query is larger than {MAX_VALUE >> 20} MiB.",
                hint=HIDDEN_ERROR_HINT,
                limit="value_bytes",
            )
        if name == "SQLITE_ERROR":
            return InvalidQuery(f"SQLite reported an error: {describe_hidden_error('22')}.", hint=HIDDEN_ERROR_HINT)
        text, fatal = describe_hidden_error(""), name.startswith(_BROKEN) or None
        return _kind_of(error)(f"SQLite reported an error: {text}.", hint=HIDDEN_ERROR_HINT, fatal=fatal)

    def cancel(self) -> None:
        """Interrupt the query in SQLite."""
        self._stopped = True
        if self._connection is not None:
            with suppress(sqlite3.ProgrammingError):
                self._connection.interrupt()

    def fingerprints(self, tables: tuple[str, ...]) -> dict[str, str]:
        """Return the file's fingerprint for each table: SQLite does not track changes by table."""
        fingerprint = self._fingerprint()
        return {table: fingerprint for table in tables}

    def _fingerprint(self) -> str:
        return hashlib.sha256(sqlite_fingerprint(self._path).encode()).hexdigest()[:32]

    def versions(self) -> dict[str, str]:
        """Return the version of the SQLite library."""
        return {"sqlite": sqlite3.sqlite_version}

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_BROKEN = ("SQLITE_INTERNAL", "SQLITE_NOMEM", "SQLITE_MISUSE", "SQLITE_CORRUPT", "SQLITE_IOERR", "SQLITE_NOTADB")
_TYPES = {"int64": "INTEGER", "double": "REAL", "string": "TEXT", "binary": "BLOB"}


def _mixed_note(column: str, kinds: Sequence[str]) -> str:
    blobs = ", blobs as X'...'" if "blobs" in kinds else ""
    listed = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    return f"Column `{column}` holds {listed}; all its values are returned as text{blobs}."


def _bindable(value: Any) -> Any:
    """Return the value as SQLite stores it: dates as ISO text, decimals as the nearest number."""
    match value:
        case datetime():
            return value.isoformat(sep=" ")
        case date() | dt_time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case UUID():
            return str(value)
        case list() | timedelta():
            kind = "list" if isinstance(value, list) else "timedelta"
            raise InvalidQuery(f"SQLite takes no {kind} as a parameter.", hint="Pass numbers, texts, dates or bytes.")
        case _:
            return value


def _count(connection: sqlite3.Connection, what: str, tables: Sequence[str]) -> dict[str, int]:
    query = " UNION ALL ".join(f"SELECT {i}, {what} FROM {quote_identifier(n, 'sqlite')}" for i, n in enumerate(tables))
    return {tables[i]: count for i, count in connection.execute(query)}


class _TimeLimit:
    """The time limit for reading the schema; it is checked between views, because SQLite ignores it within one."""

    def __init__(self, source: str) -> None:
        self._source, self._until = source, time.monotonic() + SCHEMA_S

    def is_over(self) -> bool:
        """Return whether to stop."""
        return time.monotonic() > self._until

    def check(self, needed_s: float = 0) -> None:
        """Raise `LimitExceeded` if the time is over, or less is left than is needed."""
        if time.monotonic() + needed_s > self._until:
            raise LimitExceeded(
                f"The schema of `{self._source}` took longer than {SCHEMA_S} s to read.",
                hint="Remove views that read many other views, or store their results in tables.",
                limit="schema_s",
                value=SCHEMA_S,
            )


class _Schema:
    """The tables and columns of one version of the schema, and which of them may be read."""

    def __init__(
        self, connection: sqlite3.Connection, mount: Mount, version: int, check_time: Callable[..., None]
    ) -> None:
        self.version = version
        self.verdicts = Verdicts()
        _expand_views(connection, check_time)
        rows = _list_tables(connection)
        virtual = {name for name, _, kind in rows if kind == "virtual"}
        self._shadow = {
            name.lower(): {v.lower() for v in virtual if name.lower().startswith(f"{v.lower()}_")}
            for name, _, kind in rows
            if kind == "shadow"
        }
        present = [(name, kind) for name, kind, detail in rows if detail != "shadow"]
        self.columns: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
        found = _list_columns(connection, [name for name, _ in present], check_time)
        check_column_count(len(found), mount.name)
        for table, *column in found:
            self.columns[table].append(tuple(column))
        # SQLite itself ignores the case of ASCII letters in names.
        wanted = None if mount.tables is None else {ascii_lower(name) for name in mount.tables}
        granted = {n for n, _ in present if wanted is None or ascii_lower(n) in wanted}
        self.kinds = {n: kind for n, kind in present if n in granted and n in self.columns}
        self._functions = allowed_functions("sqlite")
        self._present = {name.lower() for name, *_ in rows}
        self._readable = {n.lower() for n in self.kinds} | allowed_functions("sqlite_tables")
        self._view_reads = dict[str, frozenset[tuple[str, str]]]()
        for view in (n for n, kind in self.kinds.items() if kind == "view"):
            self._view_reads[view.lower()] = _reads(connection, view)
            check_time()
        self.granted = Granted(
            source=mount.name,
            tables={name: ("main", name) for name in self.kinds},
            schemas=frozenset({"main", "temp"}),
            describe=self._describe,
        )
        self._modules = {
            n.lower(): f"SELECT 1 FROM {quote_identifier(n, 'sqlite')} LIMIT 1" for n in virtual & set(self.kinds)
        }
        self._modules |= {n: f"SELECT 1 FROM {n}('[]')" for n in allowed_functions("sqlite_tables")}

    def connect_modules(self, connection: sqlite3.Connection, sql: str) -> None:
        """Load the modules that a statement names: on first use they read the schema, which the authorizer denies."""
        text = sql.lower()
        for name, query in self._modules.items():
            if name in text:
                with suppress(sqlite3.Error):
                    connection.execute(query).fetchone()

    def _describe(self, name: str) -> Described:
        return [
            (c, kind or "ANY", not (not_null or pk), "PRI" if pk else "")
            for c, kind, not_null, pk in self.columns[name]
        ]

    def described_columns(self, name: str) -> list[Json]:
        """Return the columns of a table in the shape of `entities.Column`."""
        return [
            {"name": c, "type": kind or "ANY", "nullable": not (not_null or pk)}
            for c, kind, not_null, pk in self.columns[name]
        ]

    def primary_key(self, name: str) -> list[str]:
        """Return the columns of the primary key, in its order."""
        return [c for _, c in sorted((pk, c) for c, _, _, pk in self.columns[name] if pk)]

    def hides_rows(self, tables: Sequence[str]) -> bool:
        """Return whether one of these tables is a view that reads a table that is not granted."""
        reads = (read for t in tables for read, _ in self._view_reads.get(t.lower(), ()))
        own = ("sqlite_", "pragma_", "dbstat")
        return any((r in self._present or r.startswith(own)) and r not in self._readable for r in reads)

    def declared(self, tables: Sequence[str]) -> dict[str, str]:
        """Return declared types by column name, for names that have the same type in all these tables."""
        found: dict[str, set[str]] = defaultdict(set)
        for table in tables:
            for name, kind, *_ in self.columns.get(table, []):
                found[name.lower()].add(kind.upper())
        return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}

    def base_tables(self, tables: Sequence[str]) -> set[str]:
        """Return these tables, and the tables behind these views, in lower case."""
        base = {t.lower() for t in tables if self.kinds.get(t) == "table"}
        for view in (t.lower() for t in tables if self.kinds.get(t) == "view"):
            base |= {t for t, _ in self._view_reads[view] if t not in self._view_reads}
        return base

    def authorize(self, action: int, first: str | None, second: str | None, _: str | None, context: str | None) -> int:
        """Allow reads of granted tables and allowed functions; SQLite calls this for each action of a statement."""
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in self._functions:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ and self._may_read(
            (first or "").lower(), second or "", (context or "").lower()
        ):
            return sqlite3.SQLITE_OK
        # The full-text module runs this pragma to check whether its cache is stale.
        if action == sqlite3.SQLITE_PRAGMA and first == "data_version" and second is None:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    def _may_read(self, table: str, column: str, context: str) -> bool:
        if table in self._readable:
            return True
        # To count the rows of a common table expression, SQLite reads no column of a table that does not exist.
        if not column and table not in self._present and not table.startswith(("sqlite_", "pragma_", "dbstat")):
            return True
        if self._shadow.get(table, set()) & self._readable:
            return True
        # A granted view may read its own columns. A common table expression of the same name may read no others.
        return (table, column.lower()) in self._view_reads.get(context, ())


def _expand_views(connection: sqlite3.Connection, check_time: Callable[..., None]) -> None:
    """Let SQLite find the columns of each view, which it remembers, and check the time after each.

    Otherwise `pragma_table_list` does so for all views at once, which nothing can interrupt, and for a view that fails
    as often as there are tables.
    """
    listed = connection.execute(_TABLES).fetchall()
    for view in (name for name, kind in listed if kind == "view"):
        started = time.thread_time()
        try:
            connection.execute(f"SELECT 1 FROM pragma_table_xinfo({quote_literal(view, 'sqlite')})").fetchall()
        except sqlite3.Error:
            check_time((time.thread_time() - started) * len(listed))
        check_time()


def _list_tables(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    if sqlite3.sqlite_version_info >= (3, 37):
        details = dict(connection.execute(_DETAILS))
        return [(name, kind, details.get(name, "")) for name, kind in connection.execute(_TABLES)]
    return connection.execute(
        "SELECT name, type, CASE WHEN sql LIKE 'create virtual%' THEN 'virtual' ELSE '' END FROM sqlite_master "
        "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ).fetchall()


def _list_columns(
    connection: sqlite3.Connection, names: list[str], check_time: Callable[..., None]
) -> list[tuple[Any, ...]]:
    """Return the columns of all tables; one more than there may be is enough to know that there are too many."""
    with suppress(sqlite3.Error):
        return connection.execute(_COLUMNS).fetchmany(MOST_COLUMNS + 1)
    # An invalid view, or a table of a missing module, breaks the query for all tables: query each table.
    found: list[tuple[Any, ...]] = []
    for name in names:
        check_time()
        if len(found) > MOST_COLUMNS:
            break
        with suppress(sqlite3.Error):
            query = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo({})'
            rows = connection.execute(query.format(quote_literal(name, "sqlite"))).fetchall()
            found += [(name, *row[:4]) for row in rows if row[4] != 1]
    return found


def _reads(connection: sqlite3.Connection, view: str) -> frozenset[tuple[str, str]]:
    """Return the tables and columns that a view reads, as reported by SQLite's authorizer."""
    seen: set[tuple[str, str]] = set()

    def record(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            seen.add(((first or "").lower(), (second or "").lower()))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(record)
    try:
        with suppress(sqlite3.Error):
            connection.execute(f"EXPLAIN SELECT * FROM {quote_identifier(view, 'sqlite')}")
    finally:
        connection.set_authorizer(None)
    return frozenset(seen)


def _foreign_keys(connection: sqlite3.Connection) -> dict[str, list[Json]]:
    grouped: dict[tuple[str, int, str], list[tuple[str, str | None]]] = defaultdict(list)
    for table, number, column, to_table, to_column in connection.execute(_KEYS):
        grouped[table, number, to_table].append((column, to_column))
    keys: dict[str, list[Json]] = defaultdict(list)
    for (table, _, to_table), pairs in grouped.items():
        to_columns = [to for _, to in pairs if to is not None]
        keys[table].append({"columns": [c for c, _ in pairs], "to_table": to_table, "to_columns": to_columns})
    return keys


def _unique(connection: sqlite3.Connection) -> dict[str, list[list[str]]]:
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for table, index, column in connection.execute(_UNIQUE):
        grouped[table, index].append(column)
    found: dict[str, list[list[str]]] = defaultdict(list)
    for (table, _), columns in grouped.items():
        # A unique index on an expression has no column.
        if None not in columns:
            found[table].append(columns)
    return found


def _sizes(connection: sqlite3.Connection) -> dict[str, int]:
    # Not every build of SQLite has this table.
    with suppress(sqlite3.Error):
        return dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())
    return {}
