"""What the queue needs of a database: statements from templates, transactions, and bells that wake other processes."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from etude.store.action import NewAction
from etude.store.base import Execute, Rows

Ring = tuple[str, int]
"""What a bell says: `run` (something can be claimed), `control` (an agent was told something), `event` or `reload`."""
Tell = Callable[[str, int], None]

AGAIN_S = 0.5

BEST = """(head_urgency, head_created, head_seq) = (SELECT a.urgency, a.created_at, a.seq FROM actions a
    WHERE a.agent = agents.no AND a.state = 'ready' ORDER BY a.urgency, a.created_at, a.seq LIMIT 1)"""

LOCK_AGENTS = "SELECT no, status, step_no, tenant, id FROM agents WHERE no {among int} ORDER BY no{lock}"
ADD_ACTIONS = """INSERT INTO actions
        (tenant, id, agent, kind, payload, urgency, created_at, run_after, state, max_attempts)
    SELECT f.tenant, f.id, f.agent, f.kind, f.payload, f.urgency, {now},
        CASE WHEN f.delay > 0 THEN {now} + f.delay END, CASE WHEN f.delay > 0 THEN 'delayed' ELSE 'ready' END, f.tries
    FROM {rows tenant text, id text, agent int, kind text, payload text, urgency int, delay real, tries int} f
    WHERE true ON CONFLICT (tenant, id) DO NOTHING"""
REFRESH = f"UPDATE agents SET {BEST} WHERE no {{among int}} RETURNING status = 'active' AND running IS NULL"
ADD_EVENTS = """INSERT INTO hub_events (tenant, topic, agent, body, created_at)
    SELECT f.tenant, f.topic, f.agent, f.body, {now} FROM {rows tenant text, agent text, topic text, body text} f"""


class QueueDialect(ABC):
    """What the queue needs of a database beside plain SQL."""

    now: ClassVar[str]
    """The database's time in seconds."""
    lock: ClassVar[str]
    skip: ClassVar[str]
    among: ClassVar[dict[str, str]]
    """How a column is compared with a list of values, by their type."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._statements: dict[str, str] = {}

    @abstractmethod
    def table(self, columns: Sequence[tuple[str, str]]) -> str:
        """A table expression for rows of values, with columns of these names and types."""

    @abstractmethod
    def list_value(self, values: Sequence[object]) -> object:
        """The value that `among` takes."""

    @abstractmethod
    def table_values(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """The values that `table` takes; there is at least one row."""

    @abstractmethod
    def hold(self) -> bool:
        """Make sure of the lock that shows that this worker lives; False where it was lost for a while."""

    @contextmanager
    def transaction(self, many: bool = True) -> Iterator[tuple[Execute, Execute]]:
        """A transaction: how a statement is run for its rows, and how one is run whose rows nobody wants.

        `many` tells that there are more than a few statements.
        """
        with self.store._transaction() as execute:
            yield execute, execute

    def add_one(self, tenant: str, name: str, action: NewAction, origin: str) -> tuple[bool, bool] | None:
        """Add an action in one round trip: whether its agent takes any, and whether it rang; None if it cannot."""
        return None

    @abstractmethod
    def ring(self, execute: Execute, rings: Sequence[Ring], origin: str) -> None:
        """Let other processes know when the transaction commits."""

    @abstractmethod
    def rung(self, rings: Sequence[Ring], origin: str) -> None:
        """Let other processes know, now that the transaction has committed."""

    @abstractmethod
    def listen(self, origin: str, tell: Tell, ended: Callable[[], bool]) -> None:
        """Tell every ring of other processes until it has ended; `all` where some may have been missed."""

    def sql(self, template: str) -> str:
        """The statement that a template stands for."""
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
    """An agent as it is while it is locked."""

    status: str
    step_no: int
    tenant: str
    id: str


class Transaction:
    """Statements that are committed together, and the bells to ring then."""

    def __init__(self, dialect: QueueDialect, execute: Execute, run: Execute) -> None:
        self._dialect = dialect
        self._execute = execute
        self._run = run
        self.rings: list[Ring] = []

    def __call__(self, template: str, *values: object) -> Rows:
        """The rows of a statement, given as a template of the dialect."""
        return self._execute(self._dialect.sql(template), *values)

    def do(self, template: str, *values: object) -> None:
        """Run a statement for what it changes; it may be sent together with the next."""
        self._run(self._dialect.sql(template), *values)

    def list(self, values: Sequence[object]) -> object:
        """The value of an `{among}`."""
        return self._dialect.list_value(values)

    def rows(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """The values of a `{rows}`."""
        return self._dialect.table_values(rows)

    def lock(self, agents: set[int]) -> dict[int, LockedAgent]:
        """Lock agents until the transaction ends; what they are now."""
        found = self(LOCK_AGENTS, self.list(sorted(agents)))
        return {no: LockedAgent(*rest) for no, *rest in found}

    def add_actions(self, actions: Iterator[tuple[object, ...]]) -> None:
        """Add actions of agents that are locked: tenant, id, agent, kind, payload, urgency, delay, attempts."""
        added = self(f"{ADD_ACTIONS} RETURNING agent, state", *self.rows(list(actions)))
        ready = sorted({agent for agent, state in added if state == "ready"})
        woken = self(REFRESH, self.list(ready)) if ready else []
        if len(ready) < len(added) or any(idle for (idle,) in woken):
            self.rings.append(("run", 0))

    def add_events(self, events: Sequence[tuple[str, str | None, str, str]]) -> None:
        """Tell whoever listens, once the transaction is committed: tenant, agent, topic, body."""
        if events:
            self.do(ADD_EVENTS, *self.rows(events))
            self.rings.append(("event", 0))


def clean(text: str | None) -> str | None:
    """Text that every database keeps."""
    return text and text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


_encode = json.JSONEncoder(ensure_ascii=False).encode
_encode_strictly = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def to_text(value: Any, allow_nan: bool = True) -> str:
    """A value as JSON that every database keeps and every client reads: half of a character becomes a question mark."""
    text = (_encode if allow_nan else _encode_strictly)(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
