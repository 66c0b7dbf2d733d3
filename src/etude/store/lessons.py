"""Exposures and changes of a tenant's playbooks. An outcome is that of the run; a report on the run overrules it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from etude.ids import new_id
from etude.store.record_bytes import count_record_bytes

if TYPE_CHECKING:
    from etude.store.base import Execute, Store

Change = Literal["added", "edited", "admitted", "promoted", "pinned", "retired", "quarantined"]

ADD_EVENT = """INSERT INTO lesson_events (tenant, name, version, run_id, family, q, shown, at, why)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
EVENTS = """SELECT l.run_id, l.family, l.q, l.shown, l.at, l.why, l.outcome, e.type, CAST(e.body AS TEXT)
    FROM lesson_events l LEFT JOIN events e ON e.run_id = l.run_id AND e.type IN ('run.finished', 'run.failed')
    WHERE l.tenant = ? AND l.name = ? AND l.version = ? AND (l.outcome IS NOT NULL OR e.type IS NOT NULL)
    ORDER BY l.at, l.run_id"""
OPEN_OUTCOMES = """SELECT e.run_id, e.type, CAST(e.body AS TEXT) FROM events e
    WHERE e.run_id IN {ids} AND e.type IN ('run.finished', 'run.failed')
    AND EXISTS (SELECT 1 FROM lesson_events l WHERE l.run_id = e.run_id AND l.outcome IS NULL)"""
SET_OUTCOME = "UPDATE lesson_events SET outcome = ? WHERE run_id = ?"
SET_NO_OUTCOME = "UPDATE lesson_events SET outcome = -1 WHERE run_id IN {ids} AND outcome IS NULL"
COUNT = "SELECT count(*), coalesce(sum(shown), 0) FROM lesson_events WHERE tenant = ? AND name = ? AND version = ?"
REPORTS = "SELECT CAST(body AS TEXT) FROM reports WHERE tenant = ? ORDER BY id"
ADD_CHANGE = """INSERT INTO lesson_changes (id, tenant, name, version, change, reason, at, text)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
CHANGES = "SELECT version, change, reason, at, text FROM lesson_changes WHERE tenant = ? AND name = ? ORDER BY id"
CHANGES_WITHOUT_TEXT = CHANGES.replace(", text FROM", ", '' FROM")
SETTLED = {1: True, 0: False, -1: None}
"""The outcomes of deleted runs, as they are stored."""
OUTAGES = frozenset({"unavailable", "model_unavailable", "source_unavailable", "cancelled", "limit_exceeded"})
"""Errors that say nothing about a playbook."""


@dataclass(frozen=True)
class Exposure:
    """One run for which a playbook was eligible, and its outcome."""

    run_id: str
    family: str
    q: float
    shown: bool
    success: bool
    at: datetime
    why: str
    """Why the playbook was a candidate: what matched, and its rank."""


@dataclass(frozen=True)
class LessonChange:
    """A change of a playbook, with the text of the version."""

    version: str
    change: Change
    reason: str
    at: datetime
    text: str


class StoredLessons:
    """The playbooks of one tenant, as facts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add_event(
        self, name: str, version: str, run_id: str, family: str, q: float, shown: bool, why: str = ""
    ) -> None:
        """Note that a playbook was eligible for a run, why, and whether it was shown."""
        with self._store._transaction() as execute:
            values = (name, version, run_id, family, q, int(shown), datetime.now(UTC), why)
            execute(ADD_EVENT, self._store.tenant, *values)

    def count(self, name: str, version: str) -> tuple[int, int]:
        """Return for how many runs a version was eligible, and for how many it was shown."""
        eligible, shown = self._store._read(COUNT, self._store.tenant, name, version)[0]
        return int(eligible), int(shown)

    def exposures(self, name: str, version: str) -> list[Exposure]:
        """Return the runs of a version whose outcome is known, oldest first.

        A run succeeded if it has an answer whose numbers were all found in results. Runs that were deleted count too.
        """
        rows = self._store._read(EVENTS, self._store.tenant, name, version)
        reported = self._reported() if rows else {}
        found = []
        for run_id, family, q, shown, at, why, settled, kind, text in rows:
            success = reported.get(run_id)
            if success is None:
                success = _outcome(kind, json.loads(text)) if settled is None else SETTLED[settled]
            if success is not None:
                found.append(Exposure(run_id, family, float(q), bool(shown), success, _time(at), why))
        return found

    def _reported(self) -> dict[str, bool]:
        outcomes = {}
        for (text,) in self._store._read(REPORTS, self._store.tenant):
            body = json.loads(text)
            if body.get("run_id") and body.get("outcome") in ("worked", "failed"):
                outcomes[body["run_id"]] = body["outcome"] == "worked"
        return outcomes

    def add_change(self, name: str, version: str, change: Change, reason: str, text: str) -> None:
        """Note a change of a playbook."""
        with self._store._transaction() as execute:
            at = datetime.now(UTC)
            execute(ADD_CHANGE, new_id("change"), self._store.tenant, name, version, change, reason, at, text)
        self._store.record_bytes.add(self._store.tenant, count_record_bytes(text))

    def changes(self, name: str, texts: bool = False) -> Sequence[LessonChange]:
        """Return the changes of a playbook, oldest first; with `texts`, with the text of each version."""
        rows = self._store._read(CHANGES if texts else CHANGES_WITHOUT_TEXT, self._store.tenant, name)
        return [LessonChange(row[0], row[1], row[2], _time(row[3]), row[4]) for row in rows]


def settle_lesson_outcomes(execute: Execute, run_ids: Sequence[str]) -> None:
    """Note the outcomes of runs that are about to be deleted, for the playbooks that they are evidence for."""
    ids = f"({', '.join('?' * len(run_ids))})"
    for run_id, kind, text in execute(OPEN_OUTCOMES.replace("{ids}", ids), *run_ids):
        success = _outcome(kind, json.loads(text))
        execute(SET_OUTCOME, -1 if success is None else int(success), run_id)
    execute(SET_NO_OUTCOME.replace("{ids}", ids), *run_ids)


def _outcome(kind: str, body: dict[str, Any]) -> bool | None:
    if kind == "run.finished":
        return not body.get("unverified")
    return None if (body.get("error") or {}).get("code") in OUTAGES else False


def _time(value: str | datetime) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)
