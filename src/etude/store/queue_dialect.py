"""The queue's interface to a database: statement templates, transactions, and notifications between processes."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from etude.store.action import NewAction
from etude.store.base import Execute, Rows
from etude.store.record_bytes import count_record_bytes

Notification = tuple[str, int]
"""A kind and an agent's number, 0 if it concerns none.

The kinds: `run` (something can be claimed), `control` (an agent got a control message), `event`, `reload`, and `all`
(some notifications may have been missed).
"""
Listener = Callable[[str, int], None]

RETRY_S = 0.5

SET_HEAD = """(head_urgency, head_created, head_seq) = (SELECT a.urgency, a.created_at, a.seq FROM actions a
    WHERE a.agent = agents.no AND a.state = 'ready' ORDER BY a.urgency, a.created_at, a.seq LIMIT 1)"""

LOCK_AGENTS = "SELECT no, status, step_no, tenant, id FROM agents WHERE no {among int} ORDER BY no{lock}"
ADD_ACTIONS = """INSERT INTO actions
        (tenant, id, agent, kind, payload, urgency, created_at, run_after, state, max_attempts)
    SELECT f.tenant, f.id, f.agent, f.kind, f.payload, f.urgency, {now},
        CASE WHEN f.delay > 0 THEN {now} + f.delay END, CASE WHEN f.delay > 0 THEN 'delayed' ELSE 'ready' END, f.tries
    FROM {rows tenant text, id text, agent int, kind text, payload text, urgency int, delay real, tries int} f
    WHERE true ON CONFLICT (tenant, id) DO NOTHING"""
REFRESH = f"UPDATE agents SET {SET_HEAD} WHERE no {{among int}} RETURNING status = 'active' AND running IS NULL"
ADD_EVENTS = """INSERT INTO hub_events (tenant, topic, agent, body, created_at)
    SELECT f.tenant, f.topic, f.agent, f.body, {now} FROM {rows tenant text, agent text, topic text, body text} f"""


class QueueDialect(ABC):
    """The parts of the queue that differ between databases."""

    now: ClassVar[str]
    """An expression for the database's time, in seconds since 1970."""
    lock: ClassVar[str]
    """The clause that locks the selected rows."""
    skip: ClassVar[str]
    """The clause that locks the selected rows and skips those already locked."""
    among: ClassVar[dict[str, str]]
    """Comparisons of a column with a list of values, by the type of the values."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._statements: dict[str, str] = {}

    @abstractmethod
    def table(self, columns: Sequence[tuple[str, str]]) -> str:
        """Return a table expression for rows of parameters, with columns of these names and types."""

    @abstractmethod
    def list_value(self, values: Sequence[object]) -> object:
        """Return the parameter that `among` takes."""

    @abstractmethod
    def table_values(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """Return the parameters that `table` takes, for at least one row."""

    @abstractmethod
    def hold(self) -> bool:
        """Hold the lock that shows that this worker is alive; return False if it had been lost."""

    @contextmanager
    def transaction(self, many: bool = True) -> Iterator[tuple[Execute, Execute]]:
        """Begin a transaction and yield two functions: one runs a statement for its rows, one discards them.

        Set `many` if more than a few statements follow.
        """
        with self.store._transaction() as execute:
            yield execute, execute

    def add_one(self, tenant: str, name: str, action: NewAction, origin: str) -> tuple[bool, bool] | None:
        """Add an action in one round trip.

        Return whether the agent accepts actions and whether other processes were notified, or None if the database
        cannot do this.
        """
        return None

    @abstractmethod
    def notify_on_commit(self, execute: Execute, notifications: Sequence[Notification], origin: str) -> None:
        """Notify other processes when the transaction commits."""

    @abstractmethod
    def notify_after_commit(self, notifications: Sequence[Notification], origin: str) -> None:
        """Notify other processes, after the transaction has committed."""

    @abstractmethod
    def listen(self, origin: str, listener: Listener, ended: Callable[[], bool]) -> None:
        """Call the listener for every notification of other processes until `ended()` is true."""

    def sql(self, template: str) -> str:
        """Return the SQL of a template."""
        known = self._statements.get(template)
        if known is None:
            known = self._statements[template] = re.sub(r"\{([^}]*)\}", self._fill, template)
        return known

    def _fill(self, found: re.Match[str]) -> str:
        word, _, rest = found[1].partition(" ")
        if word == "rows":
            return self.table([(name, kind) for name, kind in (part.split() for part in rest.split(","))])
        return self.among[rest] if word == "among" else str(getattr(self, word))


@dataclass(frozen=True, slots=True)
class LockedAgent:
    """The row of a locked agent."""

    status: str
    step_no: int
    tenant: str
    id: str


class QueueTransaction:
    """Statements that are committed together, and the notifications to send then."""

    def __init__(self, dialect: QueueDialect, execute: Execute, run: Execute) -> None:
        self._dialect = dialect
        self._execute = execute
        self._run = run
        self.notifications: list[Notification] = []
        self.sizes: Counter[str] = Counter()
        """The bytes of new records, by tenant."""

    def __call__(self, template: str, *values: object) -> Rows:
        """Run a statement, given as a template of the dialect, and return its rows."""
        return self._execute(self._dialect.sql(template), *values)

    def do(self, template: str, *values: object) -> None:
        """Run a statement and discard its rows; it may be sent together with the next statement."""
        self._run(self._dialect.sql(template), *values)

    def list(self, values: Sequence[object]) -> object:
        """Return the parameter for an `{among}` placeholder."""
        return self._dialect.list_value(values)

    def rows(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """Return the parameters for a `{rows}` placeholder."""
        return self._dialect.table_values(rows)

    def lock(self, agents: set[int]) -> dict[int, LockedAgent]:
        """Lock agents until the transaction ends, and return their rows."""
        found = self(LOCK_AGENTS, self.list(sorted(agents)))
        return {no: LockedAgent(*rest) for no, *rest in found}

    def count(self, tenant: str, *texts: str | None) -> None:
        """Count a new record with these texts toward the storage quota of a tenant, once the transaction commits."""
        self.sizes[tenant] += count_record_bytes(*texts)

    def add_actions(self, actions: Iterator[tuple[Any, ...]]) -> None:
        """Add actions of locked agents. A row is (tenant, id, agent, kind, payload, urgency, delay, attempts)."""
        rows = list(actions)
        added = self(f"{ADD_ACTIONS} RETURNING agent, state", *self.rows(rows))
        self._count_actions(rows)
        ready = sorted({agent for agent, state in added if state == "ready"})
        woken = self(REFRESH, self.list(ready)) if ready else []
        if len(ready) < len(added) or any(idle for (idle,) in woken):
            self.notifications.append(("run", 0))

    def plan_actions(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add actions whose agents are about to get their heads set; the rows are those of `add_actions`."""
        self.do(ADD_ACTIONS, *self.rows(rows))
        self._count_actions(rows)

    def _count_actions(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for tenant, _, _, _, payload, *_ in rows:
            self.count(tenant, payload)

    def add_events(self, events: Sequence[tuple[str, str | None, str, str]]) -> None:
        """Publish events when the transaction commits. A row is (tenant, agent, topic, body)."""
        if events:
            self.do(ADD_EVENTS, *self.rows(events))
            for tenant, _, _, body in events:
                self.count(tenant, body)
            self.notifications.append(("event", 0))


def clean_for_queue(text: str | None) -> str | None:
    """Replace the characters that some databases cannot store."""
    return text and text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


_encode = json.JSONEncoder(ensure_ascii=False).encode
_encode_strictly = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_for_queue(value: Any, allow_nan: bool = True) -> str:
    """Encode a value as JSON that every database can store; a lone surrogate becomes a question mark."""
    text = (_encode if allow_nan else _encode_strictly)(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
