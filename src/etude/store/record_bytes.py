"""How many bytes the records of each tenant take in the store itself; the storage quota counts them.

A counter that every write updates would make all writers of a tenant wait for each other. So each process adds up the
bytes that it writes, and adds the sum to the counter in the store after some seconds or bytes. A process that is killed
loses its part, and what expires is not subtracted. A recount of all records corrects both.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from etude.errors import EtudeError
from etude.ids import new_id

if TYPE_CHECKING:
    from etude.store.base import Store

RECORD = 128
"""Bytes of a record besides its texts: ids, times, and its places in indexes."""
FLUSH_BYTES = 1 << 20
FLUSH_S = 5.0
RECOUNT_S = 60.0
"""A recount that a check asks for follows the one before, of any process, after this many seconds at the earliest."""
RECOUNT_WAIT_S = 2.0
"""How long the check that asked for a recount waits for it."""

ADD_RECORD_BYTES = """INSERT INTO storage (tenant, bytes, record_bytes) VALUES (?, 0, ?)
    ON CONFLICT (tenant) DO UPDATE SET record_bytes = storage.record_bytes + excluded.record_bytes"""
RECORD_BYTES = "SELECT record_bytes FROM storage WHERE tenant = ?"

# `BYTES[x]` stands for the length of a text in UTF-8. A run has its own sum, so that a recount reads no events.
RECOUNTS = {
    "runs": "SELECT sum(bytes) FROM runs WHERE tenant = ?",
    "threads": f"SELECT sum(BYTES[title] + {RECORD}) FROM threads WHERE tenant = ?",
    "messages": f"""SELECT sum(BYTES[messages.text] + {RECORD}) FROM threads
        JOIN messages ON messages.thread_id = threads.id WHERE threads.tenant = ?""",
    "agents": f"SELECT sum(BYTES[config] + BYTES[state] + {RECORD}) FROM agents WHERE tenant = ?",
    "agent_steps": f"""SELECT
        sum(BYTES[s.input] + coalesce(BYTES[s.output], 0) + coalesce(BYTES[s.error], 0) + {RECORD})
        FROM agents JOIN agent_steps s ON s.agent = agents.no WHERE agents.tenant = ?""",
    "control": f"""SELECT sum(coalesce(BYTES[control.body], 0) + {RECORD}) FROM control
        JOIN agents ON agents.no = control.agent WHERE agents.tenant = ?""",
    "actions": f"SELECT sum(BYTES[payload] + {RECORD}) FROM actions WHERE tenant = ?",
    "hub_events": f"SELECT sum(BYTES[body] + {RECORD}) FROM hub_events WHERE tenant = ?",
    "reports": f"SELECT sum(BYTES[CAST(body AS TEXT)] + {RECORD}) FROM reports WHERE tenant = ?",
    "replies": f"""SELECT sum(coalesce(BYTES[body], 0) + {RECORD}) FROM replies
        WHERE substr(owner, 1, length(?) + 1) = ? || '/'""",
    "scripts": f"SELECT sum(BYTES[question] + BYTES[CAST(body AS TEXT)] + {RECORD}) FROM scripts WHERE tenant = ?",
    "lesson_changes": f"SELECT sum(BYTES[text] + {RECORD}) FROM lesson_changes WHERE tenant = ?",
}
"""The bytes of a tenant's records, by table."""
NOT_COUNTED = {
    "events": "the sum of each run has them",
    **dict.fromkeys(
        ("artifact_runs", "stored", "storage", "unused_artifacts", "script_uses", "lesson_events", "pins"),
        "a few short values, as many as there are runs, scripts or files, which count",
    ),
    **dict.fromkeys(("diagnoses", "sources"), "few and short: one for each kind of failure, or for each source"),
    **dict.fromkeys(("keys", "logins", "spending", "audit"), "short records that a server must write in any case"),
    **dict.fromkeys(("edits", "suite_runs"), "written only by the learner of the host's operator"),
    **dict.fromkeys(("leases", "processes", "queue_totals", "schema_version"), "belong to no tenant"),
}
"""Tables that do not count, and why."""


def count_record_bytes(*texts: str | None) -> int:
    """Return the bytes of a record with these texts."""
    return RECORD + sum(count_text_bytes(text) for text in texts if text)


def count_text_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class RecordBytes:
    """The bytes of records that this process has written, and their counter in the store, for all tenants."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.forget()

    def forget(self) -> None:
        """Start anew in a forked child: the parent adds what it wrote."""
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._pending: Counter[str] = Counter()
        self._flushed = time.monotonic()
        self._recounted: dict[str, float] = {}

    def add(self, tenant: str, size: int) -> None:
        """Count bytes that were written, or deleted if negative; call it after the commit."""
        with self._lock:
            self._pending[tenant] += size
            late = time.monotonic() - self._flushed > FLUSH_S
            due = late or abs(self._pending[tenant]) >= FLUSH_BYTES
        if due:
            self.flush()

    def pending(self, tenant: str) -> int:
        """Return the bytes of this process that are not in the counter yet."""
        with self._lock:
            return self._pending[tenant]

    def pending_by_tenant(self) -> dict[str, int]:
        """Return the bytes of this process that are not in the counter yet, by tenant."""
        with self._lock:
            return dict(self._pending)

    def flush(self) -> None:
        """Add the bytes of this process to the counter. If the store cannot be written, the next flush adds them."""
        with self._lock:
            taken = {tenant: size for tenant, size in self._pending.items() if size}
            self._pending.clear()
            self._flushed = time.monotonic()
        if not taken:
            return
        try:
            # A transaction of its own, which locks the counters of tenants in order, so that no two can deadlock.
            with self._store._transaction() as execute:
                for tenant in sorted(taken):
                    execute(ADD_RECORD_BYTES, tenant, taken[tenant])
        except EtudeError:
            with self._lock:
                self._pending.update(taken)

    def recount(self, tenant: str) -> None:
        """Set the counter of a tenant to the sum over all its records. Only reads them, so no one waits for it."""
        with self._counting:
            # Bytes that are written from here on may count twice until the next recount, but never not at all.
            with self._lock:
                self._pending.pop(tenant, None)
            known = self._store._read(RECORD_BYTES, tenant)
            before = int(known[0][0]) if known else 0
            found = sum(self._sum(statement, tenant) for statement in RECOUNTS.values())
            # A difference, so that what other processes add meanwhile is kept.
            with self._store._transaction() as execute:
                execute(ADD_RECORD_BYTES, tenant, found - before)

    def _sum(self, statement: str, tenant: str) -> int:
        sql = re.sub(r"BYTES\[(.*?)\]", lambda found: self._store.text_bytes.format(found[1]), statement)
        return int(self._store._read(sql, *[tenant] * sql.count("?"))[0][0] or 0)

    def recount_soon(self, tenant: str) -> bool:
        """Recount in a thread, at most once a minute; return True if it is done within a short wait."""
        with self._lock:
            now = time.monotonic()
            if now - self._recounted.get(tenant, -RECOUNT_S) < RECOUNT_S:
                return False
            self._recounted[tenant] = now
        done = threading.Event()

        def work() -> None:
            from etude.store.retention import Retention

            with suppress(EtudeError):
                if Retention(self._store).lease(f"recount:{tenant}", new_id("recount"), RECOUNT_S):
                    self.recount(tenant)
                    done.set()

        threading.Thread(target=work, name="etude-recount", daemon=True).start()
        return done.wait(RECOUNT_WAIT_S)
