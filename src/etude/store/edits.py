"""Edits of a tenant, and the runs of suites that they were judged by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from etude.errors import NotFound
from etude.ids import new_id

if TYPE_CHECKING:
    from etude.store.base import Store

EditStatus = Literal["refused", "dropped", "proposed", "merged", "reverted"]

PUT = """INSERT INTO edits (id, tenant, repo, proposer, status, created_at, body) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status, body = excluded.body"""
COLUMNS = "SELECT id, repo, proposer, status, created_at, CAST(body AS TEXT) FROM edits"
BY_ID = f"{COLUMNS} WHERE id >= ? AND id < ? AND tenant = ? ORDER BY id LIMIT 2"
NEWEST = f"{COLUMNS} WHERE tenant = ? ORDER BY id DESC LIMIT ?"
NEWEST_OF = f"{COLUMNS} WHERE tenant = ? AND repo = ? ORDER BY id DESC LIMIT ?"
ADD_RUN = """INSERT INTO suite_runs (id, tenant, repo, suite, edit_id, stage, seed, passed, total, seconds, at, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
RUNS = """SELECT suite, edit_id, stage, seed, passed, total, seconds, at, CAST(body AS TEXT) FROM suite_runs
    WHERE tenant = ? AND repo = ? ORDER BY id DESC LIMIT ?"""
RECORDS = """SELECT proposer, count(*), sum(CASE WHEN status IN ('merged', 'proposed') THEN 1 ELSE 0 END) FROM edits
    WHERE tenant = ? AND status <> 'refused' GROUP BY proposer"""
COSTS = """SELECT edits.proposer, count(*) FROM suite_runs JOIN edits ON edits.id = suite_runs.edit_id
    WHERE edits.tenant = ? GROUP BY edits.proposer"""


@dataclass(frozen=True)
class StoredEdit:
    """An edit as it is stored; `body` has its hunks, its reason, its decision and its scores."""

    id: str
    repo: str
    proposer: str
    status: EditStatus
    created_at: datetime
    body: Mapping[str, Any]


@dataclass(frozen=True)
class StoredSuiteRun:
    """One run of a suite; `failed` are the tests that failed, with their errors."""

    repo: str
    suite: str
    stage: str
    seed: int
    passed: int
    total: int
    seconds: float
    edit_id: str | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    failed: Mapping[str, str] = field(default_factory=dict)


class StoredEdits:
    """The edits of one tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, edit: StoredEdit) -> None:
        """Add an edit, or change its status and its facts."""
        body = json.dumps(edit.body)
        with self._store._transaction() as execute:
            values = (edit.repo, edit.proposer, edit.status, edit.created_at, body)
            execute(PUT, edit.id, self._store.tenant, *values)

    def get(self, edit_id: str) -> StoredEdit:
        """Return the edit with this id, or the only one whose id begins like this."""
        rows = self._store._read(BY_ID, edit_id, edit_id + "\U0010ffff", self._store.tenant)
        if len(rows) != 1:
            hint = "`etude learn report` lists them." if not rows else "Give more of its id."
            raise NotFound(f"There is {'no' if not rows else 'more than one'} edit `{edit_id[:80]}`.", hint=hint)
        return _edit(rows[0])

    def list(self, repo: str | None = None, limit: int = 200) -> Sequence[StoredEdit]:
        """Return the newest edits, or those of a repository."""
        if repo is None:
            return [_edit(row) for row in self._store._read(NEWEST, self._store.tenant, limit)]
        return [_edit(row) for row in self._store._read(NEWEST_OF, self._store.tenant, repo, limit)]

    def add_run(self, run: StoredSuiteRun) -> None:
        """Add a run of a suite."""
        body = json.dumps({"failed": dict(run.failed)})
        values = (run.edit_id, run.stage, run.seed, run.passed, run.total, run.seconds, run.at, body)
        with self._store._transaction() as execute:
            execute(ADD_RUN, new_id("suite"), self._store.tenant, run.repo, run.suite, *values)

    def runs(self, repo: str, limit: int = 5000) -> Sequence[StoredSuiteRun]:
        """Return the newest runs of the suites of a repository."""
        return [_run(repo, row) for row in self._store._read(RUNS, self._store.tenant, repo, limit)]

    def records(self) -> dict[str, tuple[int, int, int]]:
        """Return for each proposer how many of its edits were tried and kept, and the runs they took."""
        costs = {str(row[0]): int(row[1]) for row in self._store._read(COSTS, self._store.tenant)}
        rows = self._store._read(RECORDS, self._store.tenant)
        return {str(row[0]): (int(row[1]), int(row[2]), costs.get(str(row[0]), 0)) for row in rows}


def _edit(row: tuple[Any, ...]) -> StoredEdit:
    edit_id, repo, proposer, status, created_at, body = row
    return StoredEdit(edit_id, repo, proposer, status, _time(created_at), json.loads(body))


def _run(repo: str, row: tuple[Any, ...]) -> StoredSuiteRun:
    suite, edit_id, stage, seed, passed, total, seconds, at, body = row
    failed = json.loads(body)["failed"]
    return StoredSuiteRun(repo, suite, stage, seed, passed, total, seconds, edit_id, _time(at), failed)


def _time(value: str | datetime) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)
