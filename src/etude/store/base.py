"""The base of every store: event logs of runs, threads, registered sources, storage quotas.

All behaviour is here, in SQL that both SQLite and Postgres accept; a subclass adds connections, transactions and
the lock that shows that a worker is alive.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar

from etude.errors import Conflict, Interrupted, Invalid, LimitExceeded, NotFound, problem
from etude.ids import new_id
from etude.store.paging import ALL, Page, make_store_cursor, read_store_cursor, store_row_limit
from etude.store.record_bytes import RecordBytes, count_record_bytes
from etude.store.run_rows import (
    RunRow,
    cut_run_texts,
    event_from_json,
    event_to_json,
    find_event_artifacts,
    make_run_row,
    read_log_entry,
    read_run_summary,
    run_filter_conditions,
)
from etude.store.schema import ADD_VERSION, VERSION, newer_store_schema_error, store_migrations
from etude.store.search_words import split_store_search_filter, split_store_search_words, store_word_pattern
from etude.store.stored_time import store_time

# The models load slowly, so the functions that use them import them: `etude sql` records a query without them.
if TYPE_CHECKING:
    from etude.entities import Message, Run, RunFilter, RunSummary, SourceSpec, Thread
    from etude.events import Entry, Event

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Role = Literal["user", "assistant", "system"]

HEAD = "SELECT seq, updated_at FROM runs WHERE id = ? AND tenant = ?"
HEADS = "SELECT id, seq FROM runs WHERE tenant = ? AND id IN "
HAS_RUN = "SELECT 1 FROM runs WHERE id = ? AND tenant = ?"
FEW_ENTRIES = 20
"""Entries of a log that are read at once while they may be long."""
ENTRIES = """SELECT run_id, seq, at, CAST(body AS TEXT) FROM events
    WHERE run_id = ? AND seq > ? AND EXISTS (SELECT 1 FROM runs WHERE runs.id = events.run_id AND runs.tenant = ?)
    ORDER BY seq LIMIT ?"""
ADD_EVENTS = "INSERT INTO events (run_id, seq, at, type, body) VALUES "
PUT_RUN = """INSERT INTO runs (id, kind, text, search, source, thread_id, parent, worker, status, seq,
        created_at, updated_at, ended_at, row_count, truncated, error_code, elapsed_ms, usage, bytes, tenant)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, status = excluded.status, seq = excluded.seq,
        updated_at = excluded.updated_at, ended_at = excluded.ended_at, row_count = excluded.row_count,
        truncated = excluded.truncated, error_code = excluded.error_code, elapsed_ms = excluded.elapsed_ms,
        usage = excluded.usage, bytes = runs.bytes + excluded.bytes"""
RUNS = """SELECT id, kind, text, source, thread_id, parent, status, seq, created_at, ended_at,
    row_count, truncated, error_code, elapsed_ms, CAST(usage AS TEXT) FROM runs"""
NEWEST = "SELECT created_at, id FROM runs WHERE {where} ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?"
HAS_WORD = "(' ' || search) LIKE ? ESCAPE '!'"
TEXTS = "SELECT id, text FROM runs WHERE id > ? ORDER BY id LIMIT ?"
PUT_SEARCH = """WITH found (id, words) AS (VALUES {rows})
    UPDATE runs SET search = (SELECT words FROM found WHERE found.id = runs.id) WHERE id IN (SELECT id FROM found)"""
# The tenant is an expression, so that the database uses the index of ids and not one by tenant.
RUN_IDS = "SELECT id FROM runs WHERE id >= ? AND id < ? AND tenant || '' = ? ORDER BY id LIMIT 3"
OPEN = "SELECT status, count(*) FROM runs WHERE status IN ('queued', 'running', 'paused', 'waiting') GROUP BY status"
RUNNING = "SELECT id, worker, tenant FROM runs WHERE status = 'running' ORDER BY created_at, id"

ADD_STORED = "INSERT INTO stored (tenant, hash, size) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING size"
ADD_STORAGE = """INSERT INTO storage (tenant, bytes) VALUES (?, ?)
    ON CONFLICT (tenant) DO UPDATE SET bytes = storage.bytes + excluded.bytes"""
STORAGE = "SELECT bytes, record_bytes FROM storage WHERE tenant = ?"
ALL_STORAGE = "SELECT tenant, bytes, record_bytes FROM storage ORDER BY tenant"
ADD_ARTIFACT_RUNS = "INSERT INTO artifact_runs (hash, tenant, run_id) VALUES {rows} ON CONFLICT DO NOTHING"

ADD_THREAD = "INSERT INTO threads (id, title, source, created_at, updated_at, tenant) VALUES (?, ?, ?, ?, ?, ?)"
THREADS = "SELECT id, title, source, created_at, updated_at FROM threads"
TOUCH_THREAD = "UPDATE threads SET updated_at = ? WHERE id = ? AND tenant = ? RETURNING id"
REMOVE_THREAD = "DELETE FROM threads WHERE id = ? AND tenant = ? RETURNING title"
REMOVE_MESSAGES = """DELETE FROM messages WHERE thread_id = ? AND seq IN
    (SELECT seq FROM messages WHERE thread_id = ? ORDER BY seq LIMIT ?) RETURNING {bytes}"""
HAS_THREAD = "SELECT 1 FROM threads WHERE id = ? AND tenant = ?"
NEXT_MESSAGE = "SELECT coalesce(max(seq), 0) + 1 FROM messages WHERE thread_id = ?"
ADD_MESSAGE = """INSERT INTO messages (id, thread_id, seq, role, text, run_id, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
MESSAGES = """SELECT id, thread_id, seq, role, text, run_id, created_at FROM messages
    WHERE thread_id = ? AND seq > ? AND EXISTS (SELECT 1 FROM threads WHERE id = messages.thread_id AND tenant = ?)
    ORDER BY seq LIMIT ?"""
# The first message always passes, however long it is.
MESSAGES_WITHIN = """SELECT id, thread_id, seq, role, text, run_id, created_at FROM messages
    WHERE thread_id = ? AND seq IN (SELECT seq FROM (
            SELECT seq, sum(length(text)) OVER (ORDER BY seq) - length(text) AS before FROM messages
            WHERE thread_id = ? AND seq > ?
                AND EXISTS (SELECT 1 FROM threads WHERE id = messages.thread_id AND tenant = ?)) AS counted
        WHERE before <= ? ORDER BY seq LIMIT ?) ORDER BY seq"""

PUT_SOURCE = """INSERT INTO sources (name, spec, tenant) VALUES (?, ?, ?)
    ON CONFLICT (tenant, name) DO UPDATE SET spec = excluded.spec"""
SOURCES = "SELECT name, CAST(spec AS TEXT) FROM sources WHERE tenant = ? ORDER BY name"
ADD_SOURCE = "INSERT INTO sources (name, spec, tenant) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING name"
REMOVE_SOURCE = "DELETE FROM sources WHERE name = ? AND tenant = ? RETURNING name"
REMOVE_STORED = "DELETE FROM stored WHERE tenant = ? AND hash = ? RETURNING size"

HASHES = "SELECT DISTINCT hash FROM artifact_runs ORDER BY hash"
NOT_DUMPED = ("leases", "processes")
"""Tables that say something about living processes."""
FILLED = ("runs", "threads", "agents", "keys", "sources")
"""A store without rows in these tables is empty."""

MAIN = "main"
"""The default tenant."""
TENANT = re.compile(r"[a-z][a-z0-9_-]{0,63}")

KEPT = 64
"""How many folded runs stay in memory, so that an append does not read the log again."""
REMOVED_MESSAGES = 100
"""Messages that are deleted in one transaction: other writers wait for it."""
BATCH = 1000
"""Events per INSERT: databases limit the number of values of a statement."""
ROOM = 1 << 20
"""A disk with fewer free bytes counts as full."""
LOOKED_AT = 2000
"""This many of the newest runs are searched before the index of words: a common word is found among them."""
MOST_LOOKED_AT = 20_000
"""If they show that the words are common enough, up to this many are searched."""


@dataclass(frozen=True)
class StorageUse:
    """The bytes that count toward the storage quota of a tenant."""

    files: int = 0
    """Files of runs and of uploads. The same content counts once."""
    records: int = 0
    """Records in the store itself, such as runs, messages and steps of agents."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.files + self.records


@dataclass(frozen=True)
class DumpedFile:
    """A file of a copy of a database: all of it, or the rows of one table."""

    path: Path
    table: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dump:
    """A consistent copy of a database."""

    kind: str
    schema: int
    files: tuple[DumpedFile, ...]
    hashes: tuple[str, ...]
    """The artifacts that its runs refer to."""


class Execute(Protocol):
    """Runs one statement, with `?` for each value, and returns its rows."""

    def __call__(self, sql: str, *values: object) -> Rows:
        """Return the rows of the statement, if any."""
        ...


class Store(ABC):
    """Keeps runs, threads and sources. Every method may be called from any thread.

    It reads and writes data of one tenant only; `scoped` returns the same store for another tenant.
    """

    tenant: str = MAIN
    dialect: ClassVar[str]
    """The part of a migration's file name that says which database it is for."""
    has_schema: ClassVar[str]
    """A statement that returns a row if the `schema_version` table exists."""
    locking: ClassVar[str] = ""
    """The clause that locks the rows of a SELECT until its transaction ends, if the database locks rows."""
    size_of: ClassVar[str]
    """A statement that returns the bytes that the database takes on disk."""
    text_bytes: ClassVar[str] = "octet_length({})"
    """The expression for the length of a text in UTF-8."""
    by_words: ClassVar[str]
    """A statement that finds runs by the index of words; `{where}` holds the other conditions."""

    def __init__(self) -> None:
        self._folded: OrderedDict[str, Run] = OrderedDict()
        self._folded_lock = threading.Lock()
        self._worker: str | None = None
        self._worker_lock = threading.Lock()
        self._subscribers: list[Callable[[str, int], None]] = []
        self._views: dict[str, Store] = {}
        self.record_bytes = RecordBytes(self)
        _open.add(self)
        self._storage_limit: Callable[[str], int] = lambda tenant: 0

    # Subclasses implement these.

    @abstractmethod
    def _read(self, sql: str, *values: object) -> Rows:
        """Return the rows of one SELECT."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Execute]:
        """Commit all statements together when the block ends, or none if it raises."""

    @abstractmethod
    def _lock_schema(self, execute: Execute) -> None:
        """Let no other process change the schema until the transaction ends."""

    @abstractmethod
    def _run_script(self, execute: Execute, script: str) -> None:
        """Run the statements of a migration."""

    @abstractmethod
    def _enlist(self) -> str:
        """Return the id of a new worker, whose lock this process now holds."""

    @abstractmethod
    def _hold(self) -> None:
        """Make sure that the worker's lock is still held."""

    @abstractmethod
    def _dead(self, workers: set[str]) -> set[str]:
        """Return the workers whose locks no process holds."""

    @abstractmethod
    def _bury(self) -> None:
        """Remove files of dead workers."""

    @abstractmethod
    def dump(self, folder: Path) -> Dump:
        """Write a consistent copy of the database to files in a folder, while others go on reading and writing."""

    @abstractmethod
    def check(self) -> dict[str, Any]:
        """Check that the database answers; return its kind, version, location and schema version."""

    @abstractmethod
    def close(self) -> None:
        """Close connections and release the worker's lock; may be called twice."""

    @abstractmethod
    def _words_value(self, words: Sequence[str]) -> str:
        """Return the value for `by_words` that finds runs with words that begin with each of these."""

    def _forked(self) -> None:
        """Drop, in a forked child, what belongs to the parent."""
        self._folded_lock = threading.Lock()
        self._worker_lock = threading.Lock()
        self._worker = None
        self.record_bytes.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scoped(self, tenant: str) -> Store:
        """Return the same database for one tenant, which sees only its own data."""
        if not TENANT.fullmatch(tenant):
            raise Invalid(
                f"`{tenant}` cannot name a tenant.",
                hint="Use lower-case letters, digits, - and _, at most 64, a letter first.",
            )
        if tenant == self.tenant:
            return self
        if tenant not in self._views:
            self._views.setdefault(tenant, _View(self, tenant))
        return self._views[tenant]

    # Schema.

    def _schema(self, execute: Execute) -> int:
        return int(execute(VERSION)[0][0] or 0) if execute(self.has_schema) else 0

    def _migrate(self, until: int | None = None) -> None:
        steps = store_migrations(self.dialect)[:until]
        known = len(steps)
        found = self._schema(self._read)
        while found < known:
            with self._transaction() as execute:
                self._lock_schema(execute)
                # Check again under the lock: another process may have been faster.
                found = self._schema(execute)
                if found < known:
                    self._run_script(execute, steps[found].read_text("utf-8"))
                    if "_search." in steps[found].name:
                        _write_words(execute)
                    found += 1
                    execute(ADD_VERSION, found, _now())
        if found > known:
            raise newer_store_schema_error(found, known)

    # Runs.

    def append(self, run_id: str, *events: Event, expect: int) -> int:
        """Add events to a run that is at `expect` (0 creates it) and return its new seq; all or none."""
        from etude.events import ArtifactCreated, Entry, RunResumed, RunStarted, fold

        if not events:
            raise Invalid("An append needs at least one event.")
        # The log keeps only what JSON keeps, so fold the events as they would be read back.
        bodies = [event_to_json(event) for event in events]
        read_back = [event_from_json(body, run_id) for body in bodies]
        self._check_workers([(e.type, e.worker) for e in read_back if isinstance(e, RunStarted | RunResumed)])
        made = {e.artifact.hash: e.artifact.size for e in read_back if isinstance(e, ArtifactCreated)}
        used = {hash for event in read_back for hash in find_event_artifacts(event)}
        if not expect:
            self.check_storage()
        with self._transaction() as execute:
            last = self._last(execute, run_id, expect)
            known = self._known(run_id) if last else None
            if last and (known is None or known.seq != expect):
                known = self._load(execute, run_id)
            at = max(_now(), last) if last else _now()
            entries = [Entry(run_id=run_id, seq=expect + n, at=at, event=e) for n, e in enumerate(read_back, 1)]
            run = fold(entries, known)
            rows = [(e.type, body) for e, body in zip(read_back, bodies)]
            size = self._write(execute, make_run_row(run, at), rows, made, used)
        self.record_bytes.add(self.tenant, size)
        self._keep(run)
        self._tell(run_id, run.seq)
        return run.seq

    def append_plain(self, row: RunRow, events: Sequence[dict[str, Any]], artifacts: Mapping[str, int] = {}) -> None:
        """Add events that need no validation to the log of a run, whose state after them is `row`.

        `events` are in the form of `etude.events`; fields with their defaults may be left out. `artifacts` gives the
        size of each stored file by its hash. Raises `Conflict` if others have written to the run.
        """
        if row.seq == len(events):
            self.check_storage()
        with self._transaction() as execute:
            self._last(execute, row.id, row.seq - len(events))
            rows = [(e["type"], json.dumps(e, ensure_ascii=False)) for e in events]
            size = self._write(execute, row, rows, artifacts, set(artifacts))
        self.record_bytes.add(self.tenant, size)
        self._tell(row.id, row.seq)

    def _write(
        self,
        execute: Execute,
        row: RunRow,
        events: Sequence[tuple[str, str]],
        made: Mapping[str, int],
        used: set[str],
    ) -> int:
        """Write the last events of a run, each a type and its JSON, and the state of the run after them.

        `made` gives the sizes of new artifacts; `used` are all artifacts that the events refer to. Returns the bytes
        of the new records.
        """
        before = row.seq - len(events)
        self._count_storage(execute, made)
        hashes = sorted(used)
        for start in range(0, len(hashes), BATCH):
            some = hashes[start : start + BATCH]
            places = ", ".join(["(?, ?, ?)"] * len(some))
            execute(ADD_ARTIFACT_RUNS.format(rows=places), *(v for hash in some for v in (hash, self.tenant, row.id)))
        at = row.updated_at
        _insert(execute, [(row.id, before + n, at, kind, body) for n, (kind, body) in enumerate(events, 1)])
        values = row.values()
        size = sum(count_record_bytes(body) for _, body in events)
        if not before:
            _, _, text, words, *_ = values
            size += count_record_bytes(str(text), str(words))
        execute(PUT_RUN, *values, size, self.tenant)
        return size

    def limit_storage(self, limit: Callable[[str], int]) -> None:
        """Refuse new records of a tenant whose files and records take `limit(tenant)` bytes; zero means no limit."""
        self._storage_limit = limit

    def storage_use(self) -> StorageUse:
        """Return the bytes of the tenant's files and records."""
        return self._storage_use(self._read)

    def _storage_use(self, execute: Execute) -> StorageUse:
        found = execute(STORAGE, self.tenant)
        files, records = found[0] if found else (0, 0)
        return StorageUse(int(files), max(0, int(records) + self.record_bytes.pending(self.tenant)))

    def size(self) -> int:
        """Return the bytes that the database takes on disk."""
        return int(self._read(self.size_of)[0][0])

    def storage_by_tenant(self) -> dict[str, StorageUse]:
        """Return the bytes of the files and records of every tenant."""
        pending = self.record_bytes.pending_by_tenant()
        known = {str(tenant): (int(files), int(records)) for tenant, files, records in self._read(ALL_STORAGE)}
        return {
            tenant: StorageUse(files, max(0, records + pending.get(tenant, 0)))
            for tenant, (files, records) in ({tenant: (0, 0) for tenant in pending} | known).items()
        }

    def recount_storage(self) -> None:
        """Count the bytes of the tenant's records anew, such as after a deletion of many."""
        self.record_bytes.recount(self.tenant)

    def _allowed_bytes(self) -> int:
        return self._storage_limit(self.tenant)

    def check_storage(self, size: int = 0) -> None:
        """Raise `LimitExceeded` if the tenant has used up its storage, or may not keep `size` bytes more.

        Call it before a transaction, and not on an event loop: it may wait for a recount.
        """
        used, allowed = self._used_and_allowed(size)
        if allowed and (used.total >= allowed or used.total + size > allowed):
            more = f", and {size:,} more were to be stored" if size else ""
            raise LimitExceeded(
                f"Tenant `{self.tenant}` uses {used.total:,} bytes of storage, {used.files:,} for results and files, "
                f"{used.records:,} for records{more}; {allowed:,} are allowed.",
                hint="Query without recording (`record: false`), delete runs, threads or datasets, or raise "
                "`server.storage` or its own limit in `server.tenant_storage`.",
                limit="storage",
                used=used.total,
                allowed=allowed,
            )

    def check_room(self, size: int) -> None:
        """Raise `LimitExceeded` if the tenant may not upload this many bytes more."""
        self._check_room(*self._used_and_allowed(size), size)

    def storage_left(self) -> int | None:
        """Return how many bytes the tenant may upload; None if there is no limit."""
        used, allowed = self._used_and_allowed(0)
        return max(allowed - used.total, 0) if allowed else None

    def _check_room(self, used: StorageUse, allowed: int, size: int) -> None:
        if allowed and used.total + size > allowed:
            raise LimitExceeded(
                f"The upload has {size:,} bytes, but tenant `{self.tenant}` may keep only "
                f"{max(allowed - used.total, 0):,} more: it uses {used.total:,} of {allowed:,}.",
                hint="Remove an uploaded dataset, or raise `server.storage` or its own limit in "
                "`server.tenant_storage`.",
                limit="storage",
                used=used.total,
                allowed=allowed,
            )

    def _used_and_allowed(self, size: int) -> tuple[StorageUse, int]:
        """Return the storage of the tenant; records are counted anew if the quota seems to be passed."""
        allowed = self._allowed_bytes()
        if not allowed:
            return StorageUse(), 0
        used = self.storage_use()
        full = used.total >= allowed or used.total + size > allowed
        # A recount finds fewer records at best.
        if full and used.files < allowed and self.record_bytes.recount_soon(self.tenant):
            used = self.storage_use()
        return used, allowed

    def _count_storage(self, execute: Execute, made: Mapping[str, int]) -> None:
        # In order of their hashes, so that two transactions never wait for each other.
        added = [row for hash in sorted(made) for row in execute(ADD_STORED, self.tenant, hash, made[hash])]
        if added:
            execute(ADD_STORAGE, self.tenant, sum(row[0] for row in added))

    def _tell(self, run_id: str, seq: int) -> None:
        for tell in list(self._subscribers):
            tell(run_id, seq)

    def subscribe(self, tell: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `tell(run_id, seq)` after each append of this process; return a function that stops it."""
        self._subscribers.append(tell)
        return lambda: self._subscribers.remove(tell)

    def _check_workers(self, started: Sequence[tuple[str, str]]) -> None:
        for kind, worker in started:
            # While it runs, a run of a worker without a lock would look like an orphan.
            if worker != self.worker_id:
                raise Invalid(
                    f"{kind} names worker `{worker}`; this store's is `{self.worker_id}`.",
                    hint="Use `store.worker_id`.",
                )
        if started:
            self._hold()

    def _last(self, execute: Execute, run_id: str, expect: int) -> datetime | None:
        """Return the time of the last entry of a run, which must be number `expect`; None if there is none."""
        # Locked, so that the run is not deleted before its new events are there.
        head = execute(HEAD + self.locking, run_id, self.tenant)
        seq = head[0][0] if head else 0
        if seq != expect:
            raise Conflict(
                f"Run `{run_id}` is at {seq}, not at {expect}.",
                hint="It changed in the meantime: read it again, then decide.",
            )
        return store_time(head[0][1]) if head else None

    def _load(self, execute: Execute, run_id: str) -> Run | None:
        from etude.events import fold

        head = execute(HEAD, run_id, self.tenant)
        if not head:
            self.forget_run(run_id)  # it may have been deleted, perhaps by another process
            return None
        # A log only grows, so a run that was folded before is a prefix of it.
        run = self._known(run_id)
        if run is not None and run.seq >= head[0][0]:
            return run
        rows = execute(ENTRIES, run_id, run.seq if run else 0, self.tenant, ALL)
        return fold((read_log_entry(row) for row in rows), run) if rows else run

    def _known(self, run_id: str) -> Run | None:
        """Return the run as it was folded last; others may have added to its log since."""
        with self._folded_lock:
            return self._folded.get(run_id)

    def _keep(self, run: Run) -> None:
        with self._folded_lock:
            known = self._folded.get(run.id)
            if known is None or known.seq < run.seq:
                self._folded[run.id] = run
            self._folded.move_to_end(run.id)
            if len(self._folded) > KEPT:
                self._folded.popitem(last=False)

    def run(self, run_id: str) -> Run:
        """Return the run, folded from its log."""
        run = self._load(self._read, run_id)
        if run is None:
            raise run_not_found_in_store(run_id)
        self._keep(run)
        return run

    def forget_run(self, run_id: str) -> None:
        """Drop a deleted run from memory."""
        with self._folded_lock:
            self._folded.pop(run_id, None)

    def resolve_run(self, prefix: str) -> str:
        """Return the id of the only run whose id starts with the prefix; `run_` may be omitted."""
        for start in (prefix, f"run_{prefix}"):
            end = start + chr(0x10FFFF)
            found = [row[0] for row in self._read(RUN_IDS, start, end, self.tenant)] if prefix else []
            if len(found) == 1 or start in found:
                return str(found[0])
            if found:
                raise Invalid(
                    f"`{prefix}` matches more than one run, such as `{found[0]}` and `{found[1]}`.",
                    hint="Give more characters of the id.",
                )
        raise run_not_found_in_store(prefix)

    def count_open(self) -> dict[str, int]:
        """Return how many runs of all tenants have not ended, by status."""
        return {"queued": 0, "running": 0, "paused": 0, "waiting": 0} | dict(self._read(OPEN))

    def heads(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Return the last seq of each of these runs; unknown runs are left out."""
        found: dict[str, int] = {}
        for start in range(0, len(run_ids), BATCH):
            some = run_ids[start : start + BATCH]
            found |= dict(self._read(f"{HEADS}({', '.join('?' * len(some))})", self.tenant, *some))
        return found

    def entries(self, run_id: str, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return the entries of a run's log with a seq above `after`, in order."""
        rows = self._read(ENTRIES, run_id, min(max(after, 0), ALL), self.tenant, store_row_limit(limit))
        if not rows and not self._read(HAS_RUN, run_id, self.tenant):
            raise run_not_found_in_store(run_id)
        return [read_log_entry(row) for row in rows]

    def entry_batch(self, run_id: str, after: int, limit: int, chars: int) -> tuple[list[Entry], bool]:
        """Return the next entries of a run's log, and whether more may follow.

        There are at most `limit`, and few after `chars` characters. Entries may be long, so the first are read alone.
        """
        found, size, step = list[Any](), 0, min(FEW_ENTRIES, limit)
        while True:
            rows = self._read(ENTRIES, run_id, min(max(after, 0), ALL), self.tenant, step)
            found += rows
            size += sum(len(row[3]) for row in rows)
            left = limit - len(found)
            if len(rows) < step or left <= 0 or size > chars:
                break
            after, step = rows[-1][1], left if size < chars // FEW_ENTRIES else min(FEW_ENTRIES, left)
        if not found and not self._read(HAS_RUN, run_id, self.tenant):
            raise run_not_found_in_store(run_id)
        return [read_log_entry(row) for row in found], len(rows) == step

    def runs(
        self,
        filter: RunFilter | None = None,
        limit: int = 50,
        cursor: str | None = None,
        text_chars: int | None = None,
    ) -> Page[RunSummary]:
        """Return the runs that pass the filter, newest first. `since` is included, `until` is not.

        A run passes a filter by text if each word of the filter begins a word of the run's text. With `text_chars`,
        only the beginning of each text is read.
        """
        from etude.entities import RunFilter

        filter = filter or RunFilter()
        where, values = run_filter_conditions(filter)
        if filter.text:
            words = split_store_search_filter(filter.text)
            items, following = self._search(words, where, values, limit, cursor, text_chars)
        else:
            items, following = self._page(cut_run_texts(RUNS, text_chars), "created_at", where, values, limit, cursor)
        summaries = [read_run_summary(row) for row in items]
        last = summaries[-1] if following else None
        return Page(summaries, make_store_cursor("created_at", last.created_at, last.id) if last else None)

    def _search(
        self,
        words: list[str],
        where: list[str],
        values: list[object],
        limit: int,
        cursor: str | None,
        text_chars: int | None,
    ) -> tuple[Rows, bool]:
        """Return a page of runs with these words: from the newest runs if they have enough, else by the index of words.

        The index is not ordered by time, so a word that every run has would need a sort of all runs.
        """
        asked = store_row_limit(limit)
        where, values = self._conditions("created_at", where, values, cursor)
        newest = partial(self._search_newest, cut_run_texts(RUNS, text_chars), words, where, values, asked)
        edge, rows = newest(LOOKED_AT)
        if edge and 0 < len(rows) <= asked and (more := 2 * LOOKED_AT * (asked + 1) // len(rows)) <= MOST_LOOKED_AT:
            edge, rows = newest(more)
        if edge and len(rows) <= asked:
            by_words = self.by_words.format(where=" AND ".join([*where, "(created_at, id) < (?, ?)"]))
            by_words = cut_run_texts(by_words, text_chars)
            rows += self._read(by_words, self._words_value(words), *values, *edge, asked + 1 - len(rows))
        return rows[:asked], len(rows) > asked

    def _search_newest(
        self, select: str, words: list[str], where: list[str], values: list[object], asked: int, count: int
    ) -> tuple[tuple[object, ...], Rows]:
        """Return those of the newest runs with these words, and the oldest run that was looked at, if not all were."""
        # Found first, so that no run created in the meantime is in both parts.
        oldest = self._read(NEWEST.format(where=" AND ".join(where)), *values, count - 1)
        edge = (store_time(oldest[0][0]), oldest[0][1]) if oldest else ()
        newest = [*where, *(["(created_at, id) >= (?, ?)"] if edge else []), *([HAS_WORD] * len(words))]
        sql = f"{select} WHERE {' AND '.join(newest)} ORDER BY created_at DESC, id DESC LIMIT ?"
        return edge, self._read(sql, *values, *edge, *(store_word_pattern(word) for word in words), asked + 1)

    def _conditions(
        self, by: str, where: list[str], values: list[object], cursor: str | None
    ) -> tuple[list[str], list[object]]:
        where, values = ["tenant = ?", *where], [self.tenant, *values]
        if cursor is not None:
            where = [*where, f"({by}, id) < (?, ?)"]
            values = [*values, *read_store_cursor(by, cursor)]
        return where, values

    def _page(
        self, select: str, by: str, where: list[str], values: list[object], limit: int, cursor: str | None
    ) -> tuple[Rows, bool]:
        where, values = self._conditions(by, where, values, cursor)
        # One extra row shows whether there is another page.
        asked = store_row_limit(limit)
        sql = f"{select} WHERE {' AND '.join(where)} ORDER BY {by} DESC, id DESC LIMIT ?"
        rows = self._read(sql, *values, asked + 1)
        return rows[:asked], len(rows) > asked

    # Orphans.

    @property
    def worker_id(self) -> str:
        """The id of this process as a worker; the first use takes the lock that shows that it is alive."""
        with self._worker_lock:
            if self._worker is None:
                self._worker = self._enlist()
            return self._worker

    def recover(self) -> list[str]:
        """Close the running runs of processes that are gone, and return the ids; runs of agents can be resumed."""
        running = [row for row in self._read(RUNNING) if row[1] != self._worker]
        dead = self._dead({worker for _, worker, _ in running})
        closed = [
            run_id
            for run_id, worker, tenant in running
            if worker in dead and self.scoped(tenant)._interrupt(run_id, worker)
        ]
        self._bury()
        return closed

    def _interrupt(self, run_id: str, worker: str) -> bool:
        from etude.events import INTERRUPTED, RunCancelled, RunFailed, RunPaused, StepFinished

        run = self.run(run_id)
        if run.status != "running" or run.worker != worker:
            return False
        error = problem(
            Interrupted(
                f"Run `{run_id}` was interrupted: the process that ran it (`{worker}`) is gone.",
                hint="Run it again.",
            )
        )
        steps = [
            StepFinished(step_id=step.id, outcome="error", error=error, error_key=INTERRUPTED)
            for step in run.steps
            if step.ended_at is None and not (step.id == run.call and run.reply is not None)
        ]
        # The steps of an agent are recorded, so it can continue from there; a query must be run again.
        ended = RunCancelled(by="user") if run.requested == "cancel" else RunFailed(error=error)
        end = RunPaused(by="recovery") if run.kind == "ask" and run.requested != "cancel" else ended
        try:
            self.append(run_id, *steps, end, expect=run.seq)
        except Conflict:
            # Another process recovered this run first.
            return False
        return True

    # Threads.

    def create_thread(self, title: str, source: str | None = None) -> Thread:
        """Return a new thread, without messages."""
        from etude.entities import Thread

        now = _now()
        thread = Thread(id=new_id("thread"), title=title, source=source, created_at=now, updated_at=now)
        with self._transaction() as execute:
            execute(ADD_THREAD, thread.id, title, source, now, now, self.tenant)
        self.record_bytes.add(self.tenant, count_record_bytes(title))
        return thread

    def thread(self, thread_id: str) -> Thread:
        """Return the thread."""
        rows = self._read(f"{THREADS} WHERE id = ? AND tenant = ?", thread_id, self.tenant)
        if not rows:
            raise _no_thread(thread_id)
        return _thread(rows[0])

    def threads(self, limit: int = 50, cursor: str | None = None) -> Page[Thread]:
        """Threads, the most recently updated first."""
        rows, following = self._page(THREADS, "updated_at", [], [], limit, cursor)
        items = [_thread(row) for row in rows]
        last = items[-1] if following else None
        return Page(items, make_store_cursor("updated_at", last.updated_at, last.id) if last else None)

    def delete_thread(self, thread_id: str) -> None:
        """Remove the thread and its messages; its runs stay. If it is stopped halfway, some messages are left."""
        if not self._read(HAS_THREAD, thread_id, self.tenant):
            raise _no_thread(thread_id)
        self._remove_messages(thread_id)
        with self._transaction() as execute:
            late = self._remove_some_messages(execute, thread_id, ALL)
            removed = execute(REMOVE_THREAD, thread_id, self.tenant)
            if not removed:
                raise _no_thread(thread_id)
        self.record_bytes.add(self.tenant, -late - count_record_bytes(str(removed[0][0])))

    def _remove_messages(self, thread_id: str) -> None:
        """Remove the messages of a thread of this tenant in small transactions, so that others can write in between."""
        removed = 1
        while removed:
            started = time.monotonic()
            with self._transaction() as execute:
                removed = self._remove_some_messages(execute, thread_id, REMOVED_MESSAGES)
            self.record_bytes.add(self.tenant, -removed)
            if removed:
                time.sleep(min(time.monotonic() - started, 0.1))  # locks are not fair: without it, others would wait

    def _remove_some_messages(self, execute: Execute, thread_id: str, most: int) -> int:
        """Remove the first messages of a thread; return their bytes as records."""
        sql = REMOVE_MESSAGES.format(bytes=self.text_bytes.format("text"))
        return sum(int(row[0]) + count_record_bytes() for row in execute(sql, thread_id, thread_id, most))

    def add_message(self, thread_id: str, role: Role, text: str, run_id: str | None = None) -> Message:
        """Add a message at the end of the thread."""
        from etude.entities import Message

        with self._transaction() as execute:
            now = _now()
            # The update locks the thread, so that two messages cannot get the same seq.
            if not execute(TOUCH_THREAD, now, thread_id, self.tenant):
                raise _no_thread(thread_id)
            message = Message(
                id=new_id("message"),
                thread_id=thread_id,
                seq=execute(NEXT_MESSAGE, thread_id)[0][0],
                role=role,
                text=text,
                run_id=run_id,
                created_at=now,
            )
            execute(ADD_MESSAGE, message.id, thread_id, message.seq, role, text, run_id, now)
        self.record_bytes.add(self.tenant, count_record_bytes(text))
        return message

    def messages(self, thread_id: str, after: int = 0, limit: int | None = None) -> list[Message]:
        """Return the messages of a thread with a seq above `after`, in order."""
        rows = self._read(MESSAGES, thread_id, min(max(after, 0), ALL), self.tenant, store_row_limit(limit))
        if not rows:
            self.thread(thread_id)
        return [_message(row) for row in rows]

    def message_page(self, thread_id: str, after: int, limit: int, text_chars: int) -> tuple[list[Message], bool]:
        """Return the next messages and whether more may follow: at least one, and no more than have `text_chars`."""
        place = (thread_id, thread_id, min(max(after, 0), ALL), self.tenant)
        found = [_message(row) for row in self._read(MESSAGES_WITHIN, *place, text_chars, store_row_limit(limit) + 1)]
        if not found:
            self.thread(thread_id)
        if sum(len(message.text) for message in found) > text_chars:
            return found[: max(min(len(found) - 1, limit), 1)], True
        return found[:limit], len(found) > limit

    # Sources.

    def put_source(self, name: str, spec: SourceSpec) -> None:
        """Register a source, or replace it."""
        with self._transaction() as execute:
            execute(PUT_SOURCE, name, spec.model_dump_json(), self.tenant)

    def add_source(self, name: str, spec: SourceSpec, files: Mapping[str, int] = {}) -> bool:
        """Register a source if its name is free; return whether it was.

        `files` are the sizes of files that are kept for it, by name: they count toward the tenant's storage quota.
        """
        allowed = self._allowed_bytes()
        with self._transaction() as execute:
            if not execute(ADD_SOURCE, name, spec.model_dump_json(), self.tenant):
                return False
            self._check_room(self._storage_use(execute), allowed, sum(files.values()))
            self._count_storage(execute, files)
        return True

    def sources(self) -> dict[str, SourceSpec]:
        """Return the registered sources by name."""
        from etude.entities import SourceSpec

        return {name: SourceSpec.model_validate_json(spec) for name, spec in self._read(SOURCES, self.tenant)}

    def has_sources(self) -> bool:
        """Return whether any source is registered."""
        return bool(self._read(SOURCES, self.tenant))

    def remove_source(self, name: str, files: Sequence[str] = ()) -> None:
        """Remove a registered source, and no longer count the files that were kept for it."""
        with self._transaction() as execute:
            if not execute(REMOVE_SOURCE, name, self.tenant):
                known = ", ".join(f"`{row[0]}`" for row in execute(SOURCES, self.tenant)) or "none"
                raise NotFound(f"There is no source `{name}`.", hint=f"Registered sources: {known}.")
            freed = [row[0] for file in files for row in execute(REMOVE_STORED, self.tenant, file)]
            if freed:
                execute(ADD_STORAGE, self.tenant, -sum(freed))


class _View(Store):
    """A store for one tenant; connections, worker and subscribers are those of the store itself."""

    def __init__(self, owner: Store, tenant: str) -> None:
        super().__init__()
        self.tenant = tenant
        self._owner = owner
        self.by_words = owner.by_words  # type: ignore[misc]
        self.size_of = owner.size_of  # type: ignore[misc]
        self.text_bytes = owner.text_bytes  # type: ignore[misc]
        self.record_bytes = owner.record_bytes
        self.locking = owner.locking  # type: ignore[misc]

    def _allowed_bytes(self) -> int:
        return self._owner._storage_limit(self.tenant)

    def scoped(self, tenant: str) -> Store:
        return self if tenant == self.tenant else self._owner.scoped(tenant)

    def _tell(self, run_id: str, seq: int) -> None:
        super()._tell(run_id, seq)
        self._owner._tell(run_id, seq)

    @property
    def worker_id(self) -> str:
        return self._owner.worker_id

    def recover(self) -> list[str]:
        return self._owner.recover()

    def check(self) -> dict[str, Any]:
        return self._owner.check()

    def dump(self, folder: Path) -> Dump:
        return self._owner.dump(folder)

    def close(self) -> None:
        """Do nothing: the owner of the store closes it."""

    def _hold(self) -> None:
        self._owner._hold()

    def _read(self, sql: str, *values: object) -> Rows:
        return self._owner._read(sql, *values)

    def _transaction(self) -> AbstractContextManager[Execute]:
        return self._owner._transaction()

    def _lock_schema(self, execute: Execute) -> None:
        self._owner._lock_schema(execute)

    def _run_script(self, execute: Execute, script: str) -> None:
        self._owner._run_script(execute, script)

    def _enlist(self) -> str:
        return self._owner.worker_id

    def _words_value(self, words: Sequence[str]) -> str:
        return self._owner._words_value(words)

    def _dead(self, workers: set[str]) -> set[str]:
        return self._owner._dead(workers)

    def _bury(self) -> None:
        self._owner._bury()


# A forked child must release locks at once, even if it never uses the store: a shared lock would make a dead parent
# look alive. Fork hooks are per process, so this set is global.
_open: weakref.WeakSet[Store] = weakref.WeakSet()


def _let_go() -> None:
    for store in list(_open):
        store._forked()


os.register_at_fork(after_in_child=_let_go)


def store_free_disk_bytes(folder: Path) -> int:
    """Return the free bytes on the file system of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def check_storable(values: Sequence[object]) -> None:
    """Refuse text and numbers that not every database can store, so that all refuse the same."""
    for value in values:
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise Invalid("An integer of more than 64 bits cannot be stored.")
        if isinstance(value, str):
            if "\0" in value:
                raise Invalid("Text with a NUL character cannot be stored.")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Invalid("Text with a lone surrogate is not Unicode and cannot be stored.") from None


def make_storable(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with each that a database cannot store replaced."""
    return text[:most].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _now() -> datetime:
    return datetime.now(UTC)


def _insert(execute: Execute, rows: list[tuple[object, ...]]) -> None:
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(some))
        execute(ADD_EVENTS + places, *(value for row in some for value in row))


def _thread(row: tuple[Any, ...]) -> Thread:
    from etude.entities import Thread

    fields = dict(zip(Thread.model_fields, row))
    times = {"created_at": store_time(fields["created_at"]), "updated_at": store_time(fields["updated_at"])}
    return Thread(**fields | times)


def _message(row: tuple[Any, ...]) -> Message:
    from etude.entities import Message

    fields = dict(zip(Message.model_fields, row))
    return Message(**fields | {"created_at": store_time(fields["created_at"])})


def _write_words(execute: Execute) -> None:
    """Write the words of all runs, because each database would split texts in its own way."""
    last = ""
    while rows := execute(TEXTS, last, 200):
        values = [value for run_id, text in rows for value in (run_id, " ".join(split_store_search_words(text)))]
        execute(PUT_SEARCH.format(rows=", ".join(["(?, ?)"] * len(rows))), *values)
        last = rows[-1][0]


def run_not_found_in_store(run_id: str) -> NotFound:
    """Return the error for a run that does not exist."""
    return NotFound(f"There is no run `{run_id}`.", hint="List the runs to find its id: `etude runs list`.")


def _no_thread(thread_id: str) -> NotFound:
    return NotFound(f"There is no thread `{thread_id}`.", hint="List the threads to find its id.")
