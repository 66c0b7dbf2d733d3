"""The queue on Postgres: its dialect, with row locks, and LISTEN/NOTIFY on one connection per process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from etude.errors import Unavailable
from etude.store.action import NewAction
from etude.store.base import Execute, Rows, check_storable
from etude.store.postgres import _statement
from etude.store.queue_dialect import RETRY_S, Listener, Notification, QueueDialect

CHANNEL = "etude_queue"
TYPES = {"int": "bigint", "real": "double precision", "text": "text"}
NOTIFY = "SELECT pg_notify(?, ?)"
# The statement may wait for the agent's lock while another transaction changes the head. WHERE then still sees the row
# as it was before the wait; only SET sees the current row. So the heads are compared in SET.
ADD_ONE = """WITH g AS (SELECT no, status FROM agents WHERE tenant = ? AND id = ? FOR NO KEY UPDATE),
    i AS (INSERT INTO actions
            (tenant, id, agent, kind, payload, urgency, created_at, run_after, state, max_attempts)
        SELECT ?, ?, g.no, ?, ?, ?, {now}, CASE WHEN d.delay > 0 THEN {now} + d.delay END,
            CASE WHEN d.delay > 0 THEN 'delayed' ELSE 'ready' END, ?
        FROM g, (SELECT ?::double precision AS delay) d WHERE g.status IN ('active', 'paused')
        ON CONFLICT (tenant, id) DO NOTHING RETURNING agent, urgency, created_at, seq, state),
    u AS (UPDATE agents SET (head_urgency, head_created, head_seq) = (SELECT h.urgency, h.created, h.seq
            FROM (VALUES (agents.head_urgency, agents.head_created, agents.head_seq),
                (i.urgency, i.created_at, i.seq)) h(urgency, created, seq)
            WHERE h.seq IS NOT NULL ORDER BY h.urgency, h.created, h.seq LIMIT 1)
        FROM i WHERE agents.no = i.agent AND i.state = 'ready'
        RETURNING agents.status = 'active' AND agents.running IS NULL AND agents.head_seq = i.seq AS idle),
    r AS (SELECT 1 FROM u WHERE idle UNION ALL SELECT 1 FROM i WHERE state = 'delayed')
    SELECT EXISTS (SELECT 1 FROM g WHERE status IN ('active', 'paused')), (SELECT count(pg_notify(?, ?)) FROM r)"""
LISTEN = f"LISTEN {CHANNEL}"


class PostgresQueueDialect(QueueDialect):
    """Row locks on agents, always before their actions. Claims skip locked agents."""

    # Constant within a statement, so that indexes on times can be used.
    now = "(extract(epoch FROM statement_timestamp())::double precision)"
    lock = " FOR NO KEY UPDATE"
    skip = " FOR NO KEY UPDATE SKIP LOCKED"
    among = {"int": "= ANY (?::bigint[])", "text": "= ANY (?::text[])"}

    def table(self, columns: Sequence[tuple[str, str]]) -> str:
        """Return a table expression that reads one JSON parameter, four times as fast as an array per column."""
        named = ", ".join(f'"{place}" {TYPES[kind]}' for place, (_, kind) in enumerate(columns))
        shown = ", ".join(f'"{place}" AS {name}' for place, (name, _) in enumerate(columns))
        return f"(SELECT {shown} FROM json_to_recordset(?::json) AS u({named}))"

    def list_value(self, values: Sequence[object]) -> object:
        """Return one array."""
        return list(values)

    def table_values(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """Return one JSON text. The columns of each row are named by their position."""
        return (json.dumps([dict(enumerate(row)) for row in rows], allow_nan=False),)

    @contextmanager
    def transaction(self, many: bool = True) -> Iterator[tuple[Execute, Execute]]:
        """Begin a transaction. If there are many statements, pipeline them until one needs its rows."""
        import psycopg

        with ExitStack() as stack:
            db = stack.enter_context(self.store._borrowed())
            stack.enter_context(self.store._translated())
            if many and psycopg.Pipeline.is_supported():
                stack.enter_context(db.pipeline())
            stack.enter_context(db.transaction())

            def run(sql: str, *values: object) -> Rows:
                check_storable(values)
                db.execute(_statement(sql), values)
                return []

            def execute(sql: str, *values: object) -> Rows:
                check_storable(values)
                rows: Rows = db.execute(_statement(sql), values).fetchall()
                return rows

            yield execute, run

    def add_one(self, tenant: str, name: str, action: NewAction, origin: str) -> tuple[bool, bool] | None:
        """Add an action in one statement, which locks the agent, updates its head and notifies."""
        row = (tenant, name, action.kind, action.payload, action.urgency, action.attempts, float(action.delay))
        values = (tenant, action.agent, *row, CHANNEL, f"run 0 {origin}")
        ((accepts, notified),) = self.store._read(self.sql(ADD_ONE), *values)
        return bool(accepts), bool(notified)

    def hold(self) -> bool:
        """Hold the lock; return False if its connection had to be reopened."""
        _ = self.store.worker_id  # takes the lock if this is the first use
        before = self.store._worker_db
        self.store._hold()
        return before is self.store._worker_db

    def notify_on_commit(self, execute: Execute, notifications: Sequence[Notification], origin: str) -> None:
        """Notify when the transaction commits."""
        for kind, agent in notifications:
            execute(NOTIFY, CHANNEL, f"{kind} {agent} {origin}")

    def notify_after_commit(self, notifications: Sequence[Notification], origin: str) -> None:
        """Do nothing: the server has notified them at the commit."""

    def listen(self, origin: str, listener: Listener, ended: Callable[[], bool]) -> None:
        """Wait for notifications until `ended()` is true. A lost connection is reopened."""
        import psycopg

        while not ended():
            try:
                with self.store._connect() as db:
                    db.execute(LISTEN)
                    # Notifications before this LISTEN were missed.
                    listener("all", 0)
                    while not ended():
                        for notice in db.notifies(timeout=1.0, stop_after=1):
                            kind, agent, sender = notice.payload.split(" ")
                            if sender != origin:
                                listener(kind, int(agent))
            except (psycopg.Error, Unavailable):
                if not ended():
                    time.sleep(RETRY_S)
