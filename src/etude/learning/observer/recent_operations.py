"""The operations of the last day, kept from cycle to cycle: each cycle reads only those that are new.

Of an operation that did not fail only its kind is kept, because findings need no more. The counts and failures equal
those of a full reading. Where rows were deleted, or appeared late, the numbers of rows differ from those that are kept;
then everything is read again. A new process starts with a full reading, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from etude.entities import ENDED
from etude.ids import first_id
from etude.learning.observer import operations
from etude.learning.observer.findings import OperationCounts, is_failure
from etude.learning.observer.operations import Operation, operation_time

if TYPE_CHECKING:
    from etude.store.base import Store

LATE_S = 2.0
"""Runs and steps that are this new are read again: a transaction may commit after a later one."""
LATE_REQUESTS_S = 10.0
"""The same for entries of the audit log, which are written in batches."""
TOGETHER = 500
"""At most this many runs are named in one query."""

Entry = Operation | str | None
"""A failure, or the kind of another operation; None for an event that ends no operation."""
_ENDED = ", ".join(f"'{status}'" for status in sorted(ENDED))
_LIGHT = f"""SELECT e.run_id, r.created_at, r.seq, r.status, r.kind, e.type, e.body ->> 'step_id', e.body ->> 'kind',
    e.body ->> 'outcome' FROM runs r JOIN events e ON e.run_id = r.id WHERE r.tenant = ?
    AND e.type IN {operations.EVENT_TYPES}"""
_NEW = f"{_LIGHT} AND r.created_at >= ? ORDER BY r.created_at DESC, e.run_id, e.seq LIMIT ?"
_NAMED = f"{_LIGHT} AND r.id IN {{ids}} ORDER BY e.run_id, e.seq"
_OPEN = f"SELECT id FROM runs WHERE tenant = ? AND created_at >= ? AND status NOT IN ({_ENDED})"
_EVENTS = f"""SELECT {operations.EVENT_COLUMNS} FROM runs r JOIN events e ON e.run_id = r.id
    WHERE r.tenant = ? AND r.id IN {{ids}} AND e.type IN {operations.EVENT_TYPES} ORDER BY e.run_id, e.seq"""
_COUNT_RUNS = f"""SELECT count(*), coalesce(sum(seq), 0) FROM runs
    WHERE tenant = ? AND created_at > ? AND created_at < ? AND status IN ({_ENDED})"""


class RecentOperations:
    """The operations of one tenant in the last time."""

    def __init__(self, store: Store, since: timedelta = timedelta(days=1)) -> None:
        self._since = since
        self._parts: list[_Runs | _Rows] = [_Runs(store), *(_Rows(store, kind) for kind in _KINDS)]

    def count(self) -> OperationCounts:
        """Read the new operations; return the counts and failures of all that are recent."""
        now = datetime.now(UTC)
        totals: Counter[str] = Counter()
        failed = []
        for part in self._parts:
            for entry in part.update(now - self._since, now):
                if isinstance(entry, Operation):
                    totals[entry.kind] += 1
                    failed.append(entry)
                elif entry is not None:
                    totals[entry] += 1
        return OperationCounts(totals, sorted(failed, key=lambda o: (o.at, o.id)))


# --- runs


@dataclass
class _Run:
    """What is kept of a run: one entry for each event that was read."""

    created: datetime
    seq: int
    ended: bool
    entries: list[Entry] = field(default_factory=list)
    failed: bool = False


class _Runs:
    """The operations of runs, by run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, _Run] = {}
        self._open: set[str] = set()
        """The runs that had not ended when they were last read."""
        self._cursor: datetime | None = None
        """Runs that were created from here on are read again."""

    def update(self, after: datetime, now: datetime) -> Iterable[Entry]:
        if self._cursor is None or self._cursor <= after or not self._read_new(after, self._cursor):
            self._kept, self._open = {}, self._find_open(after)
            self._keep(self._store._read(_NEW, self._store.tenant, after, operations.MOST))
        self._cursor = now - timedelta(seconds=LATE_S)
        return self._newest(after)

    def _read_new(self, after: datetime, cursor: datetime) -> bool:
        """Read runs that are new or were open; return False if others were deleted, or are missing."""
        before, self._open = self._open, self._find_open(after)
        self._kept = {
            run_id: run for run_id, run in self._kept.items() if after <= run.created < cursor and run_id not in before
        }
        # Those that were open come first: if one of them is new as well, the second reading has more of it.
        for ids in _groups(sorted(before)):
            self._keep(self._store._read(_named(_NAMED, ids), self._store.tenant, *ids))
        self._keep(self._store._read(_NEW, self._store.tenant, cursor, operations.MOST))
        self._cut()
        known = [run for run in self._kept.values() if run.ended]
        # Of the oldest one, a full reading that is cut may have only a part.
        whole = sum(len(run.entries) for run in self._kept.values()) < operations.MOST
        since = after if whole or not known else min(run.created for run in known)
        old = [run for run in known if since < run.created < cursor]
        ((count, seqs),) = self._store._read(_COUNT_RUNS, self._store.tenant, since, cursor)
        return (int(count), int(seqs)) == (len(old), sum(run.seq for run in old))

    def _find_open(self, after: datetime) -> set[str]:
        # Before the events are read: a run that ends in between is read again by the next cycle.
        return {run_id for (run_id,) in self._store._read(_OPEN, self._store.tenant, after)}

    def _keep(self, rows: Iterable[Sequence[Any]]) -> None:
        """Keep the runs of these events."""
        found: dict[str, _Run] = {}
        kinds: dict[str, str] = {}
        stepped: set[str] = set()
        for run_id, created, seq, status, run_kind, event, step_id, kind, outcome in rows:
            run = found.get(run_id)
            if run is None:
                run = found[run_id] = _Run(operation_time(created), int(seq), status in ENDED)
            entry: str | None = None
            if event == "step.started":
                kinds[step_id] = kind
            elif event == "step.finished":
                entry = kinds.pop(step_id, "step")
                stepped.add(run_id)
                run.failed = run.failed or outcome not in ("ok", "cancelled")
            elif run_kind == "ask" or run_id not in stepped:
                entry = run_kind
                run.failed = run.failed or event == "run.failed"
            run.entries.append(entry)
        self._read_failures({run_id: run for run_id, run in found.items() if run.failed})
        self._kept |= found

    def _read_failures(self, runs: dict[str, _Run]) -> None:
        """Replace the kinds of failures by the failures."""
        for ids in _groups(list(runs)):
            rows = self._store._read(_named(_EVENTS, ids), self._store.tenant, *ids)
            read: dict[str, list[Operation | None]] = defaultdict(list)
            for run_id, operation in operations.operations_of_events(rows):
                read[run_id].append(operation)
            for run_id in ids:
                # Events that came since the kinds were read wait for the next cycle.
                known = read[run_id][: len(runs[run_id].entries)]
                runs[run_id].entries = [_entry(operation) for operation in known]

    def _cut(self) -> None:
        """Drop the oldest runs, beyond the most events that a full reading has."""
        left, kept = operations.MOST, {}
        for run_id, run in self._by_time():
            if left <= 0:
                break
            kept[run_id] = run
            left -= len(run.entries)
        self._kept = kept

    def _newest(self, after: datetime) -> Iterator[Entry]:
        return islice((entry for _, run in self._by_time() for entry in run.entries), operations.MOST)

    def _by_time(self) -> list[tuple[str, _Run]]:
        # The newest first; of those of one moment, the first id first. The sort is stable.
        return sorted(sorted(self._kept.items()), key=lambda item: item[1].created, reverse=True)


def _entry(operation: Operation | None) -> Entry:
    return operation if operation is None or is_failure(operation) else operation.kind


def _groups(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[at : at + TOGETHER] for at in range(0, len(ids), TOGETHER))


def _named(sql: str, ids: Sequence[str]) -> str:
    return sql.format(ids=f"({', '.join('?' * len(ids))})")


# --- what is one row each


@dataclass(frozen=True)
class _Kind:
    """How operations that are one row each are read, in the order of a key that rises with time."""

    columns: str
    tables: str
    tenant: str
    key: str
    """The column that orders them."""
    time: str
    place: int
    """Which column is the key."""
    at: int
    """Which column is the time."""
    read: Callable[[Sequence[Any]], Operation]
    fine: Callable[[Sequence[Any]], str]
    """Returns the kind of an operation that certainly did not fail, else an empty text."""
    late_s: float
    noun: str = ""
    """The noun of the ids that are the keys; empty if the keys are times, in seconds since 1970."""

    def newest(self, also: str) -> str:
        where = f"{self.tenant} = ? AND {self.time} >= ?{also}"
        return f"SELECT {self.columns} FROM {self.tables} WHERE {where} ORDER BY {self.key} DESC LIMIT ?"

    def count(self) -> str:
        between = f"{self.key} > ? AND {self.key} < ?"
        return f"SELECT count(*) FROM {self.tables} WHERE {self.tenant} = ? AND {self.time} >= ? AND {between}"


_KINDS = (
    _Kind(
        operations.STEP_COLUMNS,
        "agent_steps s JOIN agents ON agents.no = s.agent", "agents.tenant", "s.ended_at", "s.ended_at", 8, 8,
        operations.operation_of_step, lambda row: f"agent {row[1]}" if row[5] == "ok" else "", LATE_S,
    ),
    _Kind(
        "id, at, action, status", "audit", "tenant", "id", "at", 0, 1,
        operations.operation_of_request, lambda row: "request" if int(row[3]) < 400 else "", LATE_REQUESTS_S, "act",
    ),
    _Kind(
        operations.REPORT_COLUMNS, "reports", "tenant", "id", "at", 0, 1,
        operations.operation_of_report, lambda row: "", LATE_S, "report",
    ),
)  # fmt: skip


class _Row(NamedTuple):
    key: Any
    at: datetime
    entry: Entry


class _Rows:
    """Operations that are one row each, oldest first."""

    def __init__(self, store: Store, kind: _Kind) -> None:
        self._store, self._kind = store, kind
        self._kept: list[_Row] = []
        self._cursor: Any = None
        """Rows with this key or a higher one are read again."""

    def update(self, after: datetime, now: datetime) -> Iterable[Entry]:
        if self._cursor is None or not self._read_new(after):
            self._kept = self._read(after, "")
        late = now - timedelta(seconds=self._kind.late_s)
        new = next((row for row in self._kept if row.at >= late), self._kept[-1] if self._kept else None)
        self._cursor = new.key if new is not None else None
        return (row.entry for row in self._kept)

    def _read_new(self, after: datetime) -> bool:
        """Read rows from the cursor on; return False if others were deleted, or are missing."""
        old = [row for row in self._kept if row.key < self._cursor and row.at >= after]
        new = self._read(after, f" AND {self._kind.key} >= ?", self._cursor)
        self._kept = [*old, *new][-operations.MOST :]
        cut = len(self._kept) == operations.MOST
        first = self._kept[0].key if cut else self._first_key(after)
        values = (self._store.tenant, self._moment(after), first, self._cursor)
        ((count,),) = self._store._read(self._kind.count(), *values)
        return int(count) == sum(1 for row in self._kept if first < row.key < self._cursor)

    def _read(self, after: datetime, also: str, *values: object) -> list[_Row]:
        values = (self._store.tenant, self._moment(after), *values, operations.MOST)
        return [self._row(row) for row in reversed(self._store._read(self._kind.newest(also), *values))]

    def _row(self, row: Sequence[Any]) -> _Row:
        kind, at = self._kind.fine(row), row[self._kind.at]
        entry = kind or _entry(self._kind.read(row))
        time = operation_time(at) if self._kind.noun else datetime.fromtimestamp(float(at), UTC)
        return _Row(row[self._kind.place], time, entry)

    def _first_key(self, after: datetime) -> Any:
        return first_id(self._kind.noun, after) if self._kind.noun else after.timestamp()

    def _moment(self, time: datetime) -> datetime | float:
        return time if self._kind.noun else time.timestamp()
