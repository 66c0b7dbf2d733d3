"""The embedded store: one SQLite file in WAL mode, shared by the processes of one machine."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from etude.errors import Conflict, Invalid, Unavailable, disk_full_error, is_disk_full
from etude.ids import new_id
from etude.store.base import (
    FILLED,
    HASHES,
    NOT_DUMPED,
    ROOM,
    RUNS,
    Dump,
    DumpedFile,
    Execute,
    Rows,
    Store,
    check_storable,
    store_free_disk_bytes,
)
from etude.store.schema import VERSION, store_not_empty_error

BUSY_S = 30.0
YOUNG_S = 60.0
EXPANDED = 50
"""Up to this many words with the same prefix are searched for one by one."""
BEGUN_BY = "SELECT term FROM run_vocabulary WHERE term >= ? AND term < ? LIMIT ?"
READERS = 8
"""At most this many reads at once; further callers wait for one to end."""
# CROSS JOIN: words first, then the runs that have them.
BY_WORDS = (
    RUNS.replace("FROM runs", "FROM run_words CROSS JOIN runs ON runs.no = run_words.rowid")
    + " WHERE run_words MATCH ? AND {where} ORDER BY created_at DESC, id DESC LIMIT ?"
)


class SqliteStore(Store):
    """A store in one file. Beside it, `<file>.w/` holds a locked file for each living worker."""

    dialect = "sqlite"
    has_schema = "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"
    size_of = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    by_words = BY_WORDS
    # Newer ones know the length of a text without reading it.
    text_bytes = "octet_length({})" if sqlite3.sqlite_version_info >= (3, 43) else "length(CAST({} AS BLOB))"

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path).expanduser().absolute()
        self._workers = self.path.with_name(self.path.name + ".w")
        self._lock = threading.Lock()
        self._worker_fd: int | None = None
        self._db: sqlite3.Connection | None = None
        self._idle: list[sqlite3.Connection] = []
        """Connections for reads. In WAL mode a read waits for no writer, in this process or another."""
        self._idle_lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(READERS)
        self._full = False
        """Whether the last write found the disk full."""
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
        if is_disk_full(error):
            self._full = True
            return disk_full_error(f"The store `{self.path}` cannot be written")
        return Unavailable(
            f"The store `{self.path}` cannot be used: {error}.",
            hint="Check that the path is a file of etude, that it is writable and that the disk has space.",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise Conflict(f"The store refused the change: {error}.") from error
        except sqlite3.DataError as error:
            raise Invalid(f"The store cannot keep a value: {error}.") from error
        except (sqlite3.Error, OSError) as error:
            raise self._trouble(error) from error

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        with self._slots:
            with self._idle_lock:
                if self._closed:
                    raise Unavailable(f"The store `{self.path}` is closed.")
                idle = self._idle
                db = idle.pop() if idle else None
            if db is None:
                db = self._connect()
                db.execute("PRAGMA query_only = ON")
            try:
                yield db
            finally:
                with self._idle_lock:
                    # After a fork or a close, the list is a new one, and the connection does not belong to it.
                    keep = not self._closed and self._idle is idle
                    if keep:
                        idle.append(db)
                if not keep:
                    db.close()

    def _read(self, sql: str, *values: object) -> Rows:
        with self._translated(), self._borrowed() as db:
            return _executor(db)(sql, *values)

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        with self._lock, self._translated():
            db = self._connection()
            # IMMEDIATE: a writer waits at the start, when waiting is safe, never in the middle.
            db.execute("BEGIN IMMEDIATE")
            try:
                yield _executor(db)
                db.execute("COMMIT")
                self._full = False
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

    def _words_value(self, words: Sequence[str]) -> str:
        # A word has only letters, digits and `_`: nothing in it ends the quotes.
        return " AND ".join(self._begun_by(word) for word in words)

    def _begun_by(self, word: str) -> str:
        """Return the few words with this prefix: SQLite reads listed words in step, but collects a whole prefix."""
        found = [str(row[0]) for row in self._read(BEGUN_BY, word, word + chr(0x10FFFF), EXPANDED + 1)]
        if len(found) > EXPANDED:
            return f'"{word}"*'
        return "(" + " OR ".join(f'"{each}"' for each in found or [word]) + ")"

    # Workers.

    def _enlist(self) -> str:
        worker = new_id("worker")
        path = self._workers / worker
        with self._translated():
            _make_folder(self._workers)
            while self._worker_fd is None:
                fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX)
                # Another process may have removed the new file as a dead worker's before it was locked.
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
            for path in self._workers.glob("wake_*"):
                _remove_unread(path)

    # Life.

    def check(self) -> dict[str, Any]:
        """Check that the database answers and can be written; return its kind, version, location and schema version."""
        schema = self._schema(self._read)
        with self._translated():
            no_room = store_free_disk_bytes(self.path.parent) < ROOM
            self._try_write()
        if self._full or no_room:
            raise disk_full_error(f"The store `{self.path}` cannot be written")
        return {"kind": "sqlite", "version": sqlite3.sqlite_version, "url": str(self.path), "schema": schema}

    def _try_write(self) -> None:
        """Write something that changes nothing, because only a write shows that the file became read-only."""
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as db:
            try:
                db.execute("PRAGMA user_version = 0")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # busy: another connection writes
                    raise

    @classmethod
    def find_schema(cls, path: str | Path) -> int:
        """Return the schema version of a database without changing it; 0 if there is none."""
        place = Path(path).expanduser().absolute()
        if not place.exists():
            return 0
        try:
            with closing(sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as db:
                execute = _executor(db)
                return int(execute(VERSION)[0][0] or 0) if execute(cls.has_schema) else 0
        except sqlite3.Error as error:
            raise Unavailable(
                f"The store `{place}` cannot be read: {error}.", hint="Check that it is a store."
            ) from None

    def dump(self, folder: Path) -> Dump:
        """Copy the file online: in WAL mode, others go on writing meanwhile."""
        path = folder / "store.sqlite"
        with self._translated(), closing(sqlite3.connect(path)) as copy:
            with closing(self._connect()) as db:
                db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            for table in NOT_DUMPED:
                copy.execute(f"DELETE FROM {table}")
            copy.commit()
            execute = _executor(copy)
            hashes = tuple(str(row[0]) for row in execute(HASHES))
            return Dump("sqlite", int(execute(VERSION)[0][0]), (DumpedFile(path),), hashes)

    @classmethod
    def load(cls, path: str | Path, schema: int, files: Sequence[DumpedFile]) -> None:
        """Make a store from a copy; raise `Conflict` if a store is there, unless it is empty and unused."""
        cls.check_free(path)
        place = Path(path).expanduser().absolute()
        _make_folder(place.parent)
        part = place.with_name(place.name + ".restoring")
        shutil.copyfile(files[0].path, part)
        part.chmod(0o600)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        for ending in ("-wal", "-shm"):
            place.with_name(place.name + ending).unlink(missing_ok=True)
        os.replace(part, place)

    @classmethod
    def check_free(cls, path: str | Path) -> None:
        """Raise `Conflict` if a store is there, unless it is empty and unused."""
        place = Path(path).expanduser().absolute()
        workers = place.with_name(place.name + ".w")
        if any(not _is_free(worker) for worker in workers.glob("worker_*")):
            raise Conflict(f"A process uses the store `{place}`.", hint="Stop servers and workers first.")
        if place.exists():
            with cls(place) as store:
                if any(store._read(f"SELECT 1 FROM {table} LIMIT 1") for table in FILLED):
                    raise store_not_empty_error(str(place))

    def close(self) -> None:
        """Close the file and release the worker's lock; may be called twice."""
        self.record_bytes.flush()
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None
            with self._idle_lock:
                idle, self._idle = self._idle, []
            for db in idle:
                db.close()
            if self._worker_fd is not None:
                # Removed while still locked, so that no other process finds it unlocked.
                with suppress(OSError):
                    (self._workers / str(self._worker)).unlink()
                os.close(self._worker_fd)
                self._worker_fd = None

    def _forked(self) -> None:
        super()._forked()
        self._lock = threading.Lock()
        self._idle_lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(READERS)
        _parents.extend(self._idle)
        self._idle = []
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
        check_storable(values)
        return db.execute(sql, [_bind(value) for value in values]).fetchall()

    return execute


def _bind(value: object) -> Any:
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else value


def _create(path: Path) -> None:
    _make_folder(path.parent)
    # Only if the file is new: closing another handle on it would drop the locks of open connections.
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
            # Unlike all else, turning on WAL does not wait for other connections.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":
                raise sqlite3.OperationalError(f"its file system does not support a write-ahead log (mode `{mode}`)")
            return


def _remove_unread(path: Path) -> None:
    """Remove a pipe that no process reads, unless it is new: a reader may be about to open it."""
    with suppress(FileNotFoundError):
        found = path.stat()
        if not stat.S_ISFIFO(found.st_mode) or time.time() - found.st_mtime < YOUNG_S:
            return
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno == errno.ENXIO:
                path.unlink(missing_ok=True)


def _is_at(fd: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def _is_free(path: Path, remove: bool = False) -> bool:
    """Return whether no process holds the lock on the file, or the file is gone; optionally remove a free file."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The locked file may already be removed, and a new one may have its name.
        if remove and _is_at(fd, path):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
