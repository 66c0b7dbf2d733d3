"""Deletion of old records: runs that nothing keeps, their artifacts, threads and the audit log; and pinned runs.

Runs are deleted in small transactions, so that others can write in between. A run stays if it is pinned, if it has not
ended, if a script that answers questions was compiled from it, or if its thread is in use. If it is evidence for a
playbook, its outcome stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from etude.errors import Conflict, NotFound
from etude.store.base import run_not_found_in_store
from etude.store.lessons import settle_lesson_outcomes

if TYPE_CHECKING:
    from etude.store.base import Execute, Store

BATCH = 200
LEASE_S = 300.0
"""How long work that one process at a time may do stays reserved for a process that does not renew it."""

PINNED = "EXISTS (SELECT 1 FROM pins WHERE pins.run_id = runs.id)"
SCRIPTED = (
    """EXISTS (SELECT 1 FROM scripts WHERE scripts.run_id = runs.id AND scripts.state IN ('active', 'example'))"""
)
IN_USE = """(EXISTS (SELECT 1 FROM threads WHERE threads.id = runs.thread_id AND threads.updated_at >= ?)
    OR EXISTS (SELECT 1 FROM agents WHERE agents.thread_id = runs.thread_id AND agents.status <> 'destroyed'))"""
OLD = "runs.tenant = ? AND runs.created_at < ? AND runs.updated_at < ?"
HAS_ENDED = "runs.status IN ('succeeded', 'failed', 'cancelled')"
FREE = f"{HAS_ENDED} AND NOT {PINNED} AND NOT {SCRIPTED} AND NOT {IN_USE}"
HAS_FILES = "EXISTS (SELECT 1 FROM artifact_runs WHERE artifact_runs.run_id = runs.id)"
PLACE = "(runs.created_at, runs.id) > (?, ?)"
OLD_RUNS = f"SELECT id, created_at, seq FROM runs WHERE {OLD} AND {FREE} AND {PLACE} ORDER BY created_at, id LIMIT ?"
OLD_FILES = OLD_RUNS.replace(FREE, f"{FREE} AND {HAS_FILES}")
COUNT = f"SELECT count(*) FROM runs WHERE {OLD} AND {FREE}"
COUNT_FILES = f"{COUNT} AND {HAS_FILES}"
KEPT = f"""SELECT count(*), coalesce(sum(CASE WHEN NOT {HAS_ENDED} THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN {PINNED} THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN {SCRIPTED} THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN {IN_USE} THEN 1 ELSE 0 END), 0)
    FROM runs WHERE {OLD}"""
WHY_KEPT = f"""SELECT status, CASE WHEN {PINNED} THEN 1 ELSE 0 END, CASE WHEN {SCRIPTED} THEN 1 ELSE 0 END
    FROM runs WHERE id = ? AND tenant = ?"""

DELETE = ("events", "pins", "script_uses")
"""Tables whose rows go with their run."""
DELETE_RUNS = "DELETE FROM runs WHERE id IN {ids} RETURNING bytes"
UNNAME = """UPDATE messages SET run_id = NULL WHERE thread_id IN
    (SELECT thread_id FROM runs WHERE id IN {ids} AND thread_id IS NOT NULL) AND run_id IN {ids}"""
LOCK_RUNS = "SELECT id FROM runs WHERE id IN {ids} AND tenant = ? ORDER BY id"
LOCK_RUN = "SELECT id FROM runs WHERE id = ? AND tenant = ?"
STILL_ENDED = f"SELECT id FROM runs WHERE id IN {{ids}} AND tenant = ? AND {HAS_ENDED} AND NOT {PINNED}"
DROP_FILES = "DELETE FROM artifact_runs WHERE run_id IN {ids} RETURNING hash"
FREE_STORED = """DELETE FROM stored WHERE tenant = ? AND hash IN {hashes} AND NOT EXISTS
    (SELECT 1 FROM artifact_runs a WHERE a.hash = stored.hash AND a.tenant = stored.tenant) RETURNING size"""
TAKE_STORAGE = "UPDATE storage SET bytes = bytes - ? WHERE tenant = ?"
ADD_UNUSED = """INSERT INTO unused_artifacts (hash, at) VALUES {rows} ON CONFLICT DO NOTHING"""
USED = "SELECT DISTINCT hash FROM artifact_runs WHERE hash IN {hashes}"
UNUSED = "SELECT hash FROM unused_artifacts WHERE hash > ? ORDER BY hash LIMIT ?"
DROP_UNUSED = "DELETE FROM unused_artifacts WHERE hash IN {hashes}"
OLDEST_AT_WORK = "SELECT min(created_at) FROM runs WHERE status = 'running'"

OLD_THREADS = """SELECT id FROM threads WHERE tenant = ? AND updated_at < ? AND NOT EXISTS
    (SELECT 1 FROM agents WHERE agents.thread_id = threads.id AND agents.status <> 'destroyed')
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.tenant = threads.tenant AND runs.thread_id = threads.id)
    ORDER BY updated_at, id LIMIT ?"""
COUNT_THREADS = OLD_THREADS.replace("SELECT id", "SELECT count(*)", 1).partition("ORDER BY")[0]
DELETE_THREADS = "DELETE FROM threads WHERE id IN {ids} AND updated_at < ? RETURNING id"
# Exposures of a version that another one followed; a version in use keeps its evidence.
OLD_EVIDENCE = """SELECT name, version, run_id FROM lesson_events l WHERE l.tenant = ? AND l.at < ?
    AND l.outcome IS NOT NULL AND EXISTS (SELECT 1 FROM lesson_changes c WHERE c.tenant = l.tenant AND c.name = l.name
    AND c.version <> l.version AND c.at > (SELECT max(own.at) FROM lesson_changes own
    WHERE own.tenant = l.tenant AND own.name = l.name AND own.version = l.version)) LIMIT ?"""
DELETE_EVIDENCE = "DELETE FROM lesson_events WHERE tenant = ? AND name = ? AND version = ? AND run_id = ?"
# Scripts that a newer one replaced stay as long as there is a run that they came from, or that used them.
OLD_SCRIPTS = """SELECT id FROM scripts WHERE tenant = ? AND created_at < ? AND state = 'superseded'
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = scripts.run_id)
    AND NOT EXISTS (SELECT 1 FROM script_uses WHERE script_uses.script_id = scripts.id) LIMIT ?"""
DELETE_SCRIPTS = "DELETE FROM scripts WHERE id IN {ids} AND state = 'superseded'"
OLD_AUDIT = "SELECT id FROM audit WHERE tenant = ? AND at < ? ORDER BY id LIMIT ?"
COUNT_AUDIT = "SELECT count(*) FROM audit WHERE tenant = ? AND at < ?"
DELETE_AUDIT = "DELETE FROM audit WHERE id IN {ids}"

PIN = """INSERT INTO pins (run_id, tenant, reason, at) VALUES (?, ?, ?, ?)
    ON CONFLICT (run_id) DO UPDATE SET reason = excluded.reason RETURNING at"""
UNPIN = "DELETE FROM pins WHERE run_id = ? AND tenant = ? RETURNING run_id"
PINS = "SELECT run_id, reason, at FROM pins WHERE tenant = ? ORDER BY at DESC LIMIT ?"
TENANTS = """WITH RECURSIVE t(tenant) AS (SELECT min(tenant) FROM {table} UNION ALL
    SELECT (SELECT min(a.tenant) FROM {table} a WHERE a.tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL)
    SELECT tenant FROM t WHERE tenant IS NOT NULL"""

LEASE = """INSERT INTO leases (name, owner, until) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE leases.owner = excluded.owner OR leases.until < ? RETURNING name"""
RELEASE = "DELETE FROM leases WHERE name = ? AND owner = ?"
LEASED = "SELECT name FROM leases WHERE name LIKE ? AND until >= ?"


@dataclass(frozen=True)
class OldRun:
    """A run that may be deleted, and its place in the list of old runs."""

    id: str
    created_at: Any
    seq: int


@dataclass(frozen=True)
class Kept:
    """How many old runs there are, and how many of them each reason keeps; one run may have several."""

    old: int
    open: int
    pinned: int
    scripts: int
    in_use: int


@dataclass(frozen=True)
class Pin:
    """A pinned run."""

    run_id: str
    reason: str
    at: datetime


class Retention:
    """The records of one tenant that may be deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.tenant = store.tenant

    def tenants(self) -> list[str]:
        """Return the tenants that have runs, threads, agents, sources or entries of the audit log."""
        found = {
            str(row[0])
            for table in ("runs", "threads", "agents", "audit", "sources")
            for row in self._store._read(TENANTS.format(table=table))
        }
        return sorted(found)

    # Runs.

    def old_runs(self, before: datetime, after: OldRun | None = None, files: bool = False) -> list[OldRun]:
        """Return a batch of runs that ended before a time and that nothing keeps, oldest first.

        `after` is the last run of the batch before. With `files`, only runs that refer to artifacts are returned.
        """
        place = (after.created_at, after.id) if after else (datetime(1970, 1, 1, tzinfo=UTC), "")
        statement = OLD_FILES if files else OLD_RUNS
        rows = self._store._read(statement, self.tenant, before, before, before, *place, BATCH)
        return [OldRun(str(row[0]), _time(row[1]), int(row[2])) for row in rows]

    def count_old(self, before: datetime, files: bool = False) -> int:
        """Return how many runs `old_runs` would return in all."""
        rows = self._store._read(COUNT_FILES if files else COUNT, self.tenant, before, before, before)
        return int(rows[0][0])

    def count_kept(self, before: datetime) -> Kept:
        """Return how many old runs there are, and what keeps some of them."""
        rows = self._store._read(KEPT, before, self.tenant, before, before)
        return Kept(*(int(value) for value in rows[0]))

    def delete_runs(self, run_ids: Sequence[str], forget_evidence: bool = False) -> int:
        """Delete runs that have ended and are not pinned, with their events; return how many there were.

        Their outcomes stay as evidence for the playbooks that they were shown, unless `forget_evidence` is given.
        """
        deleted = 0
        for start in range(0, len(run_ids), BATCH):
            some = sorted(run_ids[start : start + BATCH])
            with self._store._transaction() as execute:
                # Locked first: a pin or a write that comes now is done before the next statement looks.
                execute(_in(LOCK_RUNS, some) + self._store.locking, *some, self.tenant)
                found = [str(row[0]) for row in execute(_in(STILL_ENDED, some), *some, self.tenant)]
                if found:
                    self._drop_files(execute, found)
                    execute(_in(UNNAME, found), *found, *found)
                    if not forget_evidence:
                        settle_lesson_outcomes(execute, found)
                    for table in (*DELETE, *(["lesson_events"] if forget_evidence else [])):
                        execute(_in(f"DELETE FROM {table} WHERE run_id IN {{ids}}", found), *found)
                    freed = sum(int(row[0]) for row in execute(_in(DELETE_RUNS, found), *found))
            if found:
                self._store.record_bytes.add(self.tenant, -freed)
            for run_id in found:
                self._store.forget_run(run_id)
            deleted += len(found)
        return deleted

    def check_deletable(self, run_id: str) -> None:
        """Raise `Conflict` if a run may not be deleted, and say why."""
        rows = self._store._read(WHY_KEPT, run_id, self.tenant)
        if not rows:
            raise run_not_found_in_store(run_id)
        status, pinned, scripted = rows[0]
        if status not in ("succeeded", "failed", "cancelled"):
            raise Conflict(f"Run `{run_id}` is {status}.", hint="Cancel it first, or wait until it has ended.")
        if pinned:
            raise Conflict(f"Run `{run_id}` is pinned.", hint=f"`etude runs unpin {run_id}` first.")
        if scripted:
            raise Conflict(
                f"A script that was compiled from run `{run_id}` answers questions.",
                hint=f"`etude runs withdraw {run_id}` first.",
            )

    def drop_files(self, run_ids: Sequence[str]) -> None:
        """Let runs refer to no artifacts any more."""
        with self._store._transaction() as execute:
            self._drop_files(execute, sorted(run_ids))

    def _drop_files(self, execute: Execute, run_ids: Sequence[str]) -> None:
        hashes = sorted({str(row[0]) for row in execute(_in(DROP_FILES, run_ids), *run_ids)})
        for start in range(0, len(hashes), BATCH):
            some = hashes[start : start + BATCH]
            freed = execute(_in(FREE_STORED, some), self.tenant, *some)
            if freed:
                execute(TAKE_STORAGE, sum(int(row[0]) for row in freed), self.tenant)
            used = {str(row[0]) for row in execute(_in(USED, some), *some)}
            unused = [(hash, datetime.now(UTC)) for hash in some if hash not in used]
            if unused:
                places = ", ".join(["(?, ?)"] * len(unused))
                execute(ADD_UNUSED.format(rows=places), *(value for row in unused for value in row))

    # Artifacts.

    def unused(self, after: str = "") -> list[str]:
        """Return a batch of artifacts whose last run was deleted, in order."""
        return [str(row[0]) for row in self._store._read(UNUSED, after, BATCH)]

    def used(self, hashes: Sequence[str]) -> set[str]:
        """Return those of the artifacts, at most a batch, that runs refer to."""
        return {str(row[0]) for row in self._store._read(_in(USED, hashes), *hashes)} if hashes else set()

    def forget_unused(self, hashes: Sequence[str]) -> None:
        """Note that artifacts are gone, or in use again."""
        if hashes:
            with self._store._transaction() as execute:
                execute(_in(DROP_UNUSED, hashes), *hashes)

    def oldest_at_work(self) -> datetime | None:
        """Return when the oldest run that a worker works on was created; None if there is none."""
        found = self._store._read(OLDEST_AT_WORK)[0][0]
        return None if found is None else _time(found)

    # Threads and audit.

    def delete_threads(self, before: datetime) -> int:
        """Delete a batch of threads that were last used before a time and have no runs; return how many."""
        ids = [str(row[0]) for row in self._store._read(OLD_THREADS, self.tenant, before, BATCH)]
        if not ids:
            return 0
        with self._store._transaction() as execute:
            return len(execute(_in(DELETE_THREADS, ids), *ids, before))

    def count_threads(self, before: datetime) -> int:
        """Return how many threads `delete_threads` would delete in all."""
        return int(self._store._read(COUNT_THREADS, self.tenant, before)[0][0])

    def delete_evidence(self, before: datetime) -> int:
        """Delete a batch of exposures of playbooks whose text has changed since; return how many."""
        rows = self._store._read(OLD_EVIDENCE, self.tenant, before, BATCH)
        if rows:
            with self._store._transaction() as execute:
                for row in rows:
                    execute(DELETE_EVIDENCE, self.tenant, *row)
        return len(rows)

    def delete_scripts(self, before: datetime) -> int:
        """Delete a batch of scripts that newer ones replaced and whose runs are gone; return how many."""
        ids = [str(row[0]) for row in self._store._read(OLD_SCRIPTS, self.tenant, before, BATCH)]
        if ids:
            with self._store._transaction() as execute:
                execute(_in(DELETE_SCRIPTS, ids), *ids)
        return len(ids)

    def delete_audit(self, before: datetime) -> int:
        """Delete a batch of entries of the audit log; return how many."""
        ids = [str(row[0]) for row in self._store._read(OLD_AUDIT, self.tenant, before, BATCH)]
        if ids:
            with self._store._transaction() as execute:
                execute(_in(DELETE_AUDIT, ids), *ids)
        return len(ids)

    def count_audit(self, before: datetime) -> int:
        """Return how many entries of the audit log are older than a time."""
        return int(self._store._read(COUNT_AUDIT, self.tenant, before)[0][0])

    # Pins.

    def pin(self, run_id: str, reason: str = "") -> Pin:
        """Keep a run whatever the settings say."""
        now = datetime.now(UTC)
        with self._store._transaction() as execute:
            if not execute(LOCK_RUN + self._store.locking, run_id, self.tenant):
                raise run_not_found_in_store(run_id)
            ((at,),) = execute(PIN, run_id, self.tenant, reason, now)
        return Pin(run_id, reason, _time(at))

    def unpin(self, run_id: str) -> None:
        """Let the settings decide about a run again."""
        with self._store._transaction() as execute:
            if not execute(UNPIN, run_id, self.tenant):
                raise NotFound(f"Run `{run_id}` is not pinned.", hint="`etude runs pins` lists the pinned ones.")

    def pins(self, limit: int = 50) -> list[Pin]:
        """Return the pinned runs, the last pinned first."""
        return [Pin(str(r[0]), str(r[1]), _time(r[2])) for r in self._store._read(PINS, self.tenant, limit)]

    # Leases.

    def lease(self, name: str, owner: str, seconds: float = LEASE_S) -> bool:
        """Reserve work for an owner, or renew that; return False if it is reserved for another one."""
        now = datetime.now(UTC)
        with self._store._transaction() as execute:
            return bool(execute(LEASE, name, owner, now + timedelta(seconds=seconds), now))

    def release(self, name: str, owner: str) -> None:
        """Give up a lease."""
        with self._store._transaction() as execute:
            execute(RELEASE, name, owner)

    def leased(self, prefix: str) -> list[str]:
        """Return the names of the leases in force with this prefix."""
        return [str(row[0]) for row in self._store._read(LEASED, f"{prefix}%", datetime.now(UTC))]


def _in(statement: str, values: Sequence[str]) -> str:
    places = f"({', '.join('?' * len(values))})"
    return statement.replace("{ids}", places).replace("{hashes}", places)


def _time(value: str | datetime) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)
