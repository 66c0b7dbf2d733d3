"""The store for many processes and machines: Postgres, through psycopg."""

from __future__ import annotations

import os
import re
import select
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import Conflict, Invalid, Unavailable, disk_full_error
from etude.ids import new_id
from etude.store.base import FILLED, HASHES, NOT_DUMPED, RUNS, Dump, DumpedFile, Execute, Rows, Store, check_storable
from etude.store.schema import store_migrations, store_not_empty_error

if TYPE_CHECKING:
    import psycopg

CONNECTIONS = 8
"""At most this many statements run at once; further callers wait for one to end."""
NAMESPACE = 0x657475
"""First key of every advisory lock of etude ("etu"), so that they do not collide with those of other programs."""
MIGRATION = 0
"""Second key of the lock of migrations; those of workers are above it."""

PATIENCE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
"""How long to wait for a lost server: without this, a cut connection hangs for hours."""
STILL_S = 30.0
"""How long a transaction may be idle: others that wait for its locks wait as long."""

LOCK = "SELECT pg_try_advisory_lock(?, ?)"
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(?, ?)"
LOCKED = """SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
    AND classid = ? AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
ALIVE = "SELECT 1"
# Without JIT: compiling a statement takes longer than any statement of a store should run.
BOUND = "SELECT set_config('idle_in_transaction_session_timeout', %s, false), set_config('jit', 'off', false)"
ENGINE = "SHOW server_version"

# OFFSET 0 separates the search from the order; otherwise the server would check runs one by one by time.
BY_WORDS = (
    RUNS.replace(
        "FROM runs",
        """FROM (SELECT * FROM runs WHERE array_to_tsvector(string_to_array(search, ' ')) @@ CAST(? AS tsquery)
            AND {where} OFFSET 0) AS found""",
    )
    + " ORDER BY created_at DESC, id DESC LIMIT ?"
)

COLUMNS = """SELECT column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position"""
IDENTITIES = """SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND is_identity = 'YES'"""
SET_IDENTITY = """SELECT setval(pg_get_serial_sequence('{table}', '{column}'),
    (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"""
CREATED = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)

URL_HINT = "Write `postgresql://user:password@host:5432/database`, with special characters %-encoded."


class PostgresStore(Store):
    """A store in a Postgres database. Each living worker holds a session advisory lock."""

    dialect = "postgres"
    # It reads a table: a statement without one does not see what others created since the transaction began, and a
    # process that waited for another's migration would run it again.
    has_schema = "SELECT 1 FROM pg_class WHERE oid = to_regclass('schema_version')"
    locking = " FOR UPDATE"
    size_of = "SELECT pg_database_size(current_database())"
    by_words = BY_WORDS

    def __init__(self, url: str) -> None:
        self._prepare(url)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    def _prepare(self, url: str) -> None:
        """Set everything up, and change nothing in the database."""
        super().__init__()
        parts = _parse(url)
        self.url = _without_secrets(parts)
        self._parts = {"connect_timeout": 10, "application_name": "etude"} | PATIENCE | parts
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._idle: list[psycopg.Connection[Any]] = []
        self._idle_lock = threading.Lock()
        self._worker_db: psycopg.Connection[Any] | None = None
        self._closed = False
        self._full = False
        """Whether the last write found the server's disk full."""

    # Connections.

    def _connect(self) -> psycopg.Connection[Any]:
        pg = _psycopg()
        if self._closed:
            raise Unavailable(f"The store `{self.url}` is closed.")
        with self._translated():
            db: psycopg.Connection[Any] = pg.connect(autocommit=True, **self._parts)
            db.execute(BOUND, (str(int(STILL_S * 1000)),))
            return db

    @contextmanager
    def _translated(self) -> Iterator[None]:
        pg = _psycopg()
        try:
            yield
        except pg.errors.IntegrityError as error:
            raise Conflict(f"The store refused the change: {_line(error)}.") from error
        except pg.errors.DataError as error:
            # The store works, so trying again as after an outage would not help.
            raise Invalid(f"The store cannot keep a value: {_line(error)}.") from error
        except pg.errors.DiskFull as error:
            self._full = True
            raise disk_full_error(f"The store `{self.url}` cannot be written") from error
        except pg.Error as error:
            raise Unavailable(
                f"The store `{self.url}` cannot be used: {_line(error)}.",
                hint="Check that the server runs and that the user may connect and create tables.",
            ) from error

    @contextmanager
    def _borrowed(self) -> Iterator[psycopg.Connection[Any]]:
        with self._slots:
            with self._idle_lock:
                db = self._idle.pop() if self._idle else None
            db = db if db and _answers(db) else self._connect()
            try:
                yield db
            finally:
                with self._idle_lock:
                    keep = not (db.closed or self._closed)
                    if keep:
                        self._idle.append(db)
                if not keep:
                    db.close()

    def _read(self, sql: str, *values: object) -> Rows:
        with self._borrowed() as db, self._translated():
            return _executor(db)(sql, *values)

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        with self._borrowed() as db, self._translated():
            with db.transaction():
                yield _executor(db)
            self._full = False

    def _lock_schema(self, execute: Execute) -> None:
        execute(LOCK_SCHEMA, NAMESPACE, MIGRATION)

    def _run_script(self, execute: Execute, script: str) -> None:
        execute(script)

    def _words_value(self, words: Sequence[str]) -> str:
        # A word has only letters, digits and `_`: nothing in it ends the quotes.
        return " & ".join(f"'{word}':*" for word in words)

    # Workers.

    def _enlist(self) -> str:
        worker = new_id("worker")
        # If two workers get the same key, choose another name.
        while not self._take_lock(worker):
            worker = new_id("worker")
        return worker

    def _take_lock(self, worker: str) -> bool:
        # The lock lives as long as its connection, which is therefore not shared.
        if self._worker_db is None or not _answers(self._worker_db):
            self._worker_db = self._connect()
        with self._translated():
            return bool(_executor(self._worker_db)(LOCK, NAMESPACE, _key(worker))[0][0])

    def _hold(self) -> None:
        with self._worker_lock:
            lost = self._worker_db is None or not _answers(self._worker_db)
            if lost and not self._take_lock(str(self._worker)):
                raise Unavailable(
                    f"Worker `{self._worker}` lost its connection; the server still holds its old lock.",
                    hint="Try again: the server releases it when it notices that the connection is gone.",
                )

    def _dead(self, workers: set[str]) -> set[str]:
        locked = {row[0] for row in self._read(LOCKED, NAMESPACE)}
        return {worker for worker in workers if _key(worker) not in locked}

    def _bury(self) -> None:
        # The server drops a lock with its connection: nothing is left behind.
        return

    # Life.

    def check(self) -> dict[str, Any]:
        """Check that the database answers and can be written; return its kind, version, location and schema version."""
        if self._full:
            raise disk_full_error(f"The store `{self.url}` cannot be written")
        if self._read("SHOW transaction_read_only") == [("on",)]:
            raise Unavailable(
                f"The store `{self.url}` is read-only.",
                hint="Connect to the primary server, with a role whose transactions may write.",
            )
        version = str(self._read(ENGINE)[0][0])
        return {"kind": "postgres", "version": version, "url": self.url, "schema": self._schema(self._read)}

    @classmethod
    def find_schema(cls, url: str) -> int:
        """Return the schema version of a database without changing it; 0 if there is none."""
        store = cls.__new__(cls)
        store._prepare(url)
        try:
            return store._schema(store._read)
        finally:
            store.close()

    def dump(self, folder: Path) -> Dump:
        """Copy every table in one transaction, which sees one moment; others go on writing meanwhile."""
        files = []
        with self._translated(), self._connect() as db:
            db.execute(b"SET idle_in_transaction_session_timeout = 0")
            db.autocommit = False
            db.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            execute = _executor(db)
            schema = self._schema(execute)
            for table in _tables(schema):
                if table in NOT_DUMPED or table == "schema_version":
                    continue
                columns = tuple(str(row[0]) for row in execute(COLUMNS, table))
                path = folder / f"{table}.copy"
                with path.open("wb") as file, db.cursor().copy(_copy(table, columns, "TO STDOUT")) as rows:
                    for data in rows:
                        file.write(data)
                files.append(DumpedFile(path, table, columns))
            hashes = tuple(str(row[0]) for row in execute(HASHES))
            db.rollback()
        return Dump("postgres", schema, tuple(files), hashes)

    @classmethod
    def load(cls, url: str, schema: int, files: Sequence[DumpedFile]) -> None:
        """Make a store from a copy; raise `Conflict` unless the database holds none, or an empty one."""
        store = cls.__new__(cls)
        store._prepare(url)
        try:
            found = store._check_empty()
            if found:
                with store._transaction() as execute:
                    for table in reversed(_tables(found)):
                        execute(f"DROP TABLE IF EXISTS {table} CASCADE")
            # The tables as they were when they were copied; what came later is done when the store is opened.
            store._migrate(schema)
            with store._translated(), store._connect() as db, db.transaction():
                for file in files:
                    with (
                        file.path.open("rb") as data,
                        db.cursor().copy(_copy(file.table, file.columns, "FROM STDIN")) as rows,
                    ):
                        while part := data.read(1 << 20):
                            rows.write(part)
                for table, column in db.execute(IDENTITIES).fetchall():
                    db.execute(SET_IDENTITY.format(table=table, column=column).encode())
        finally:
            store.close()

    @classmethod
    def check_free(cls, url: str) -> None:
        """Raise `Conflict` unless the database holds no store, or an empty one."""
        store = cls.__new__(cls)
        store._prepare(url)
        try:
            store._check_empty()
        finally:
            store.close()

    def _check_empty(self) -> int:
        """Return the schema version; raise `Conflict` if there are rows."""
        found = self._schema(self._read)
        if found and any(self._read(f"SELECT 1 FROM {table} LIMIT 1") for table in FILLED):
            raise store_not_empty_error(self.url)
        return found

    def close(self) -> None:
        """Close the connections and release the worker's lock; may be called twice."""
        self.record_bytes.flush()
        self._closed = True
        with self._idle_lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()
        if self._worker_db is not None:
            self._worker_db.close()
            self._worker_db = None

    def _forked(self) -> None:
        super()._forked()
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._idle_lock = threading.Lock()
        for db in [*self._idle, *([self._worker_db] if self._worker_db else [])]:
            # Closing it properly would end the parent's session. The child closes its copy of the socket
            # only, and keeps the object so that nothing else closes it.
            with suppress(OSError):
                os.close(db.fileno())
            _parents.append(db)
        self._idle, self._worker_db = [], None


_parents: list[psycopg.Connection[Any]] = []


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise Unavailable("Postgres needs psycopg.", hint="pip install 'etude[postgres]'") from error
    return psycopg


def _parse(url: str) -> dict[str, Any]:
    pg = _psycopg()
    try:
        parts = dict(pg.conninfo.conninfo_to_dict(url))
        # An unescaped `@` or `/` in a password makes a part of it the host or the database, which errors quote.
        if "@" in str(parts.get("host", "")) or ("@" in str(parts.get("dbname", "")) and "%40" not in url):
            raise pg.ProgrammingError
        return parts
    except pg.Error:
        # libpq's error may quote the password.
        raise Invalid("The URL of the store is not a valid Postgres URL.", hint=URL_HINT) from None


def _without_secrets(parts: dict[str, Any]) -> str:
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or ''}{port}/{parts.get('dbname') or ''}"


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _key(worker: str) -> int:
    return (zlib.crc32(worker.encode()) & 0x7FFFFFFF) or 1


def _tables(schema: int) -> list[str]:
    """Return the tables of a schema version, those that others refer to first."""
    return [name for step in store_migrations("postgres")[:schema] for name in CREATED.findall(step.read_text("utf-8"))]


def _copy(table: str, columns: Sequence[str], how: str) -> bytes:
    return f"COPY {table} ({', '.join(columns)}) {how}".encode()


@cache
def _statement(sql: str) -> bytes:
    # As bytes, because psycopg's types accept text only if it is a literal.
    return sql.replace("?", "%s").encode()


def _executor(db: psycopg.Connection[Any]) -> Execute:
    def execute(sql: str, *values: object) -> Rows:
        check_storable(values)
        # Without values the text is sent unchanged, so that a script may have several statements.
        cursor = db.execute(_statement(sql), values if values else None)
        return cursor.fetchall() if cursor.description else []

    return execute


def _answers(db: psycopg.Connection[Any]) -> bool:
    """Return whether the connection still works; close it if not."""
    # An idle connection has nothing to read unless the server closed it, so this needs no round trip.
    waiting = select.poll()
    try:
        waiting.register(db.fileno(), select.POLLIN)
        if not waiting.poll(0):
            return True
        db.execute(ALIVE)
    except _psycopg().Error:
        db.close()
        return False
    return True
