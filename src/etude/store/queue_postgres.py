"""The queue on Postgres: its dialect, row locks, and LISTEN/NOTIFY on one connection per process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from etude.errors import Invalid, Unavailable
from etude.store.action import NewAction
from etude.store.base import Execute, Rows, check_values
from etude.store.postgres import _statement
from etude.store.queue_dialect import AGAIN_S, QueueDialect, Ring, Tell

CHANNEL = "etude_queue"
TYPES = {"int": "bigint", "real": "double precision", "text": "text"}
NOTIFY = "SELECT pg_notify(?, ?)"
# It may have waited for the agent's lock, while the head changed. What is asked of `agents` after WHERE is asked of the
# row as it was before the wait; only what is set sees the row as it is. So the heads are compared where they are set.
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


@contextmanager
def _refusing() -> Iterator[None]:
    """A value that the server cannot take is no reason to try again, as a server that is away would be."""
    import psycopg

    try:
        yield
    except psycopg.DataError as error:
        raise Invalid(f"The store cannot keep a value: {str(error).partition(chr(10))[0]}.") from error


class PostgresDialect(QueueDialect):
    """Agents are locked before their actions, always; who only looks for work passes over locked ones."""

    # Stable within a statement, so that indexes on times are used.
    now = "(extract(epoch FROM statement_timestamp())::double precision)"
    lock = " FOR NO KEY UPDATE"
    skip = " FOR NO KEY UPDATE SKIP LOCKED"
    among = {"int": "= ANY (?::bigint[])", "text": "= ANY (?::text[])"}

    def table(self, columns: Sequence[tuple[str, str]]) -> str:
        """A table of values, from one JSON text: a driver makes that four times as fast as an array per column."""
        named = ", ".join(f'"{place}" {TYPES[kind]}' for place, (_, kind) in enumerate(columns))
        shown = ", ".join(f'"{place}" AS {name}' for place, (name, _) in enumerate(columns))
        return f"(SELECT {shown} FROM json_to_recordset(?::json) AS u({named}))"

    def list_value(self, values: Sequence[object]) -> object:
        """One array."""
        return list(values)

    def table_values(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """One JSON text, of rows whose columns have numbers for names."""
        return (json.dumps([dict(enumerate(row)) for row in rows], allow_nan=False),)

    @contextmanager
    def transaction(self, many: bool = True) -> Iterator[tuple[Execute, Execute]]:
        """A transaction whose statements, where they are many, are sent together, up to one whose rows are needed."""
        import psycopg

        with ExitStack() as stack:
            db = stack.enter_context(self.store._borrowed())
            stack.enter_context(self.store._translated())
            stack.enter_context(_refusing())
            if many and psycopg.Pipeline.is_supported():
                stack.enter_context(db.pipeline())
            stack.enter_context(db.transaction())

            def run(sql: str, *values: object) -> Rows:
                check_values(values)
                db.execute(_statement(sql), values)
                return []

            def execute(sql: str, *values: object) -> Rows:
                check_values(values)
                rows: Rows = db.execute(_statement(sql), values).fetchall()
                return rows

            yield execute, run

    def add_one(self, tenant: str, name: str, action: NewAction, origin: str) -> tuple[bool, bool] | None:
        """Add an action in one statement, which locks the agent, merges its head and rings."""
        what = (tenant, name, action.kind, action.payload, action.urgency, action.attempts, float(action.delay))
        values = (tenant, action.agent, *what, CHANNEL, f"run 0 {origin}")
        ((takes, rung),) = self.store._read(self.sql(ADD_ONE), *values)
        return bool(takes), bool(rung)

    def hold(self) -> bool:
        """Make sure of the lock; False where its connection had to be opened anew."""
        _ = self.store.worker_id  # takes the lock where nobody has asked for it yet
        before = self.store._worker_db
        self.store._hold()
        return before is self.store._worker_db

    def ring(self, execute: Execute, rings: Sequence[Ring], origin: str) -> None:
        """Ring when the transaction commits."""
        for kind, agent in rings:
            execute(NOTIFY, CHANNEL, f"{kind} {agent} {origin}")

    def rung(self, rings: Sequence[Ring], origin: str) -> None:
        """Do nothing: the server has rung."""

    def listen(self, origin: str, tell: Tell, ended: Callable[[], bool]) -> None:
        """Wait for rings until it has ended; each is told. A lost connection is opened again."""
        import psycopg

        while not ended():
            try:
                with self.store._connect() as db:
                    db.execute(LISTEN)
                    # What rang while nobody listened is looked for.
                    tell("all", 0)
                    while not ended():
                        for notice in db.notifies(timeout=1.0, stop_after=1):
                            kind, agent, sender = notice.payload.split(" ")
                            if sender != origin:
                                tell(kind, int(agent))
            except (psycopg.Error, Unavailable):
                if not ended():
                    time.sleep(AGAIN_S)
