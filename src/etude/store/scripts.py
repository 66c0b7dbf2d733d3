"""Scripts of a tenant: found by the key of a question, withdrawn, and listed with the runs that used them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from etude.errors import NotFound
from etude.store.record_bytes import count_record_bytes

if TYPE_CHECKING:
    from etude.store.base import Store

State = Literal["active", "example", "superseded", "suspended", "withdrawn"]
"""Only active scripts are replayed. An example only helps a model; the others are kept for their lineage."""

ADD = """INSERT INTO scripts (id, tenant, key, source, run_id, question, state, reason, created_at, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
SUPERSEDE = "UPDATE scripts SET state = 'superseded' WHERE tenant = ? AND key = ? AND state = 'active'"
CHANGE = "UPDATE scripts SET state = ?, reason = ? WHERE id = ? AND tenant = ? RETURNING id"
REWRITE = "UPDATE scripts SET body = ? WHERE id = ? AND tenant = ? RETURNING id"
COLUMNS = "SELECT id, key, source, run_id, question, state, reason, created_at, CAST(body AS TEXT) FROM scripts"
BY_KEY = f"{COLUMNS} WHERE tenant = ? AND state = 'active' AND key IN "
BY_ID = f"{COLUMNS} WHERE id >= ? AND id < ? AND tenant = ? ORDER BY id LIMIT 2"
BY_RUN = f"{COLUMNS} WHERE run_id = ? AND tenant = ? ORDER BY id DESC LIMIT 1"
ALL = f"{COLUMNS} WHERE tenant = ? ORDER BY id DESC LIMIT ?"
STOPPED = f"{COLUMNS} WHERE tenant = ? AND key = ? AND state = 'suspended' ORDER BY id DESC LIMIT 20"
REPORTS = "SELECT CAST(body AS TEXT) FROM reports WHERE tenant = ? AND CAST(body AS TEXT) LIKE ? ORDER BY id"
QUESTIONS = """SELECT id, question FROM scripts WHERE tenant = ? AND source = ? AND state IN ('active', 'example')
    ORDER BY id DESC LIMIT ?"""
USE = """INSERT INTO script_uses (script_id, run_id, level, at) VALUES (?, ?, ?, ?)
    ON CONFLICT (script_id, run_id) DO UPDATE SET level = excluded.level, at = excluded.at"""
USES = "SELECT run_id, level, at FROM script_uses WHERE script_id = ? ORDER BY at, run_id"


@dataclass(frozen=True)
class StoredScript:
    """A script as it is stored; `body` is JSON."""

    id: str
    key: str
    source: str
    run_id: str
    question: str
    state: State
    reason: str
    """Why it is not active, in a sentence; empty if it is."""
    created_at: datetime
    body: str


@dataclass(frozen=True)
class ScriptUse:
    """A run that a script, or another learned thing, was used or tried for."""

    run_id: str
    level: str
    at: datetime


class StoredScripts:
    """The scripts of one tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, script: StoredScript) -> None:
        """Add a script. If it is active, it takes the place of the active one with the same key."""
        with self._store._transaction() as execute:
            if script.state == "active":
                execute(SUPERSEDE, self._store.tenant, script.key)
            values = (script.source, script.run_id, script.question, script.state, script.reason, script.created_at)
            execute(ADD, script.id, self._store.tenant, script.key, *values, script.body)
        self._store.record_bytes.add(self._store.tenant, count_record_bytes(script.question, script.body))

    def find(self, keys: Sequence[str]) -> list[StoredScript]:
        """Return the active scripts with one of these keys, newest first."""
        marks = ", ".join("?" for _ in keys)
        rows = self._store._read(f"{BY_KEY}({marks}) ORDER BY id DESC", self._store.tenant, *keys)
        return [_script(row) for row in rows]

    def questions(self, source: str, limit: int) -> list[tuple[str, str]]:
        """Return the ids and questions of the newest scripts of a source."""
        return [(str(row[0]), str(row[1])) for row in self._store._read(QUESTIONS, self._store.tenant, source, limit)]

    def get(self, script_or_run: str) -> StoredScript:
        """Return the script with this id, or the newest one that was compiled from the run with this id."""
        if script_or_run.startswith("run_"):
            rows = self._store._read(BY_RUN, script_or_run, self._store.tenant)
        else:
            rows = self._store._read(BY_ID, script_or_run, script_or_run + "\U0010ffff", self._store.tenant)
        if len(rows) != 1:
            hint = "`etude runs scripts` lists them." if not rows else "Give more of its id."
            raise NotFound(
                f"There is {'no' if not rows else 'more than one'} script `{script_or_run[:80]}`.", hint=hint
            )
        return _script(rows[0])

    def suspended(self, key: str) -> Sequence[StoredScript]:
        """Return the scripts with this key that gave a wrong answer, newest first."""
        return [_script(row) for row in self._store._read(STOPPED, self._store.tenant, key)]

    def is_reported_wrong(self, run_id: str) -> bool:
        """Return whether the last report on a run says that it failed."""
        found = [json.loads(row[0]) for row in self._store._read(REPORTS, self._store.tenant, f'%"{run_id}"%')]
        outcomes = [r["outcome"] for r in found if r.get("run_id") == run_id and r.get("outcome") != "note"]
        return outcomes[-1:] == ["failed"]

    def list(self, limit: int = 50) -> Sequence[StoredScript]:
        """Return the newest scripts."""
        return [_script(row) for row in self._store._read(ALL, self._store.tenant, limit)]

    def change(self, script_id: str, state: State, reason: str) -> None:
        """Set the state of a script."""
        with self._store._transaction() as execute:
            if not execute(CHANGE, state, reason, script_id, self._store.tenant):
                raise NotFound(f"There is no script `{script_id}`.", hint="`etude runs scripts` lists them.")

    def rewrite(self, script_id: str, body: str) -> None:
        """Set the body of a script: guards were added to it."""
        with self._store._transaction() as execute:
            execute(REWRITE, body, script_id, self._store.tenant)

    def use(self, thing: str, run_id: str, level: str) -> None:
        """Note that a run used a learned thing: a script by its id, `playbook:NAME`, or `description:SOURCE`."""
        with self._store._transaction() as execute:
            execute(USE, self._own(thing), run_id, level, datetime.now(UTC))

    def uses(self, thing: str) -> Sequence[ScriptUse]:
        """Return the runs that used a learned thing, oldest first."""
        return [ScriptUse(str(r[0]), str(r[1]), _time(r[2])) for r in self._store._read(USES, self._own(thing))]

    def _own(self, thing: str) -> str:
        """Return the name of a thing among those of all tenants; ids of scripts are unique already."""
        return thing if thing.startswith("script_") else f"{self._store.tenant}/{thing}"


def _script(row: tuple[Any, ...]) -> StoredScript:
    script_id, key, source, run_id, question, state, reason, created_at, body = row
    return StoredScript(script_id, key, source, run_id, question, state, reason, _time(created_at), body)


def _time(value: str | datetime) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)
