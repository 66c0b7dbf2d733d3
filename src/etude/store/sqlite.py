"""The embedded store: one SQLite file in WAL mode, shared by the processes of one machine."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from etude.errors import Conflict, Unavailable
from etude.ids import new_id
from etude.store.base import Execute, Rows, Store, check_values

BUSY_S = 30.0


class SqliteStore(Store):
    """A store in one file. Beside it, `<file>.w/` holds a locked file for each living worker."""

    dialect = "sqlite"
    has_schema = "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path).expanduser().absolute()
        self._workers = self.path.with_name(self.path.name + ".w")
        self._lock = threading.Lock()
        self._worker_fd: int | None = None
        self._db: sqlite3.Connection | None = None
        self._closed = False
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    # Connection.

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise Unavailable(f"The store `{self.path}` is closed.")
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        try:
            _create(self.path)
            db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._trouble(error) from error
        try:
            _use_wal(db)
            # FULL: what was acknowledged survives a power cut, not only a crash.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            db.close()
            raise self._trouble(error) from error
        return db

    def _trouble(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"The store `{self.path}` cannot be used: {error}.",
            hint="Check that the path is a file of etude, that it may be written and that the disk has room.",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise Conflict(f"The store refused the change: {error}.") from error
        except (sqlite3.Error, OSError) as error:
            raise self._trouble(error) from error

    def _read(self, sql: str, *values: object) -> Rows:
        with self._lock, self._translated():
            return _executor(self._connection())(sql, *values)

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        with self._lock, self._translated():
            db = self._connection()
            # IMMEDIATE: a writer waits at the start, where waiting is safe, never in the middle.
            db.execute("BEGIN IMMEDIATE")
            try:
                yield _executor(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _lock_schema(self, execute: Execute) -> None:
        # BEGIN IMMEDIATE has locked the whole file already.
        return

    def _run_script(self, execute: Execute, script: str) -> None:
        # sqlite3's executescript would commit first; statements must stay in the transaction.
        statement = ""
        for line in script.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                execute(statement)
                statement = ""

    # Workers.

    def _enlist(self) -> str:
        worker = new_id("worker")
        path = self._workers / worker
        with self._translated():
            _make_folder(self._workers)
            while self._worker_fd is None:
                fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX)
                # Another process may have removed the new, not yet locked file as a dead worker's.
                if _is_at(fd, path):
                    self._worker_fd = fd
                else:
                    os.close(fd)
        return worker

    def _hold(self) -> None:
        # A lock on a file is held until the process ends.
        return

    def _dead(self, workers: set[str]) -> set[str]:
        with self._translated():
            return {worker for worker in workers if _is_free(self._workers / worker)}

    def _bury(self) -> None:
        with self._translated():
            for path in self._workers.glob("worker_*"):
                _is_free(path, remove=True)

    # Life.

    def check(self) -> dict[str, Any]:
        """Ask the database for a sign of life; its kind, version, place and schema version."""
        schema = self._schema(self._read)
        return {"kind": "sqlite", "version": sqlite3.sqlite_version, "url": str(self.path), "schema": schema}

    def close(self) -> None:
        """Let go of the file and of the worker's lock; twice does no harm."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None
            if self._worker_fd is not None:
                # Removed while still locked, so that nobody else finds it between.
                with suppress(OSError):
                    (self._workers / str(self._worker)).unlink()
                os.close(self._worker_fd)
                self._worker_fd = None

    def _forked(self) -> None:
        super()._forked()
        self._lock = threading.Lock()
        if self._worker_fd is not None:
            os.close(self._worker_fd)
            self._worker_fd = None
        if self._db is not None:
            # SQLite forbids using or closing a connection across a fork; keeping it referenced does neither.
            _parents.append(self._db)
            self._db = None


_parents: list[sqlite3.Connection] = []


def _executor(db: sqlite3.Connection) -> Execute:
    def execute(sql: str, *values: object) -> Rows:
        check_values(values)
        return db.execute(sql, [_bind(value) for value in values]).fetchall()

    return execute


def _bind(value: object) -> Any:
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value


def _create(path: Path) -> None:
    _make_folder(path.parent)
    # Only where the file is new: closing any other handle on it would drop the locks of open connections.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _use_wal(db: sqlite3.Connection) -> None:
    give_up = time.monotonic() + BUSY_S
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            # Turning WAL on does not wait for other connections as everything else does.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":
                raise sqlite3.OperationalError(f"its file system allows no write-ahead log (mode `{mode}`)")
            return


def _is_at(fd: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def _is_free(path: Path, remove: bool = False) -> bool:
    """Whether no process holds the lock on the file, or the file is gone; a free file may be removed."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # What was locked may be removed already, and a new one have its name.
        if remove and _is_at(fd, path):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
