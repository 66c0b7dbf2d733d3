"""A durable queue in the store. Workers claim agents, not actions, so each agent does one thing at a time.

Guarantees: every action ends as done, failed or cancelled, and none is lost. An agent never runs on two workers at
once. Within a tenant the most urgent action runs first, then the oldest; tenants take turns. The changes of a step are
committed together with its end, or not at all. Each claim carries a fencing token: a worker that lost its lease
because it died, hung or was disconnected can no longer change anything.

The behaviour is defined here, in SQL that both databases understand; a `QueueDialect` supplies the rest. Every
transaction locks agents before their actions, so transactions cannot deadlock.

All times come from the database's clock. If that clock is set back, `sweep` moves the delayed actions back with it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from etude import plugins
from etude.errors import Conflict, NotFound
from etude.ids import new_id
from etude.store.action import ATTEMPTS, URGENCY, ActionClaim, Finish, NewAction, TurnResult
from etude.store.base import Rows, Store
from etude.store.queue_dialect import (
    REFRESH,
    RETRY_S,
    SET_HEAD,
    Listener,
    LockedAgent,
    QueueDialect,
    QueueTransaction,
    clean_for_queue,
)
from etude.store.record_bytes import count_record_bytes, count_text_bytes

log = logging.getLogger("etude.queue")

LEASE_S = 30.0
WAKE_URGENCY = 0
SCHEDULE_RETRY_S = 60.0
"""Seconds until the next step of a schedule after a scheduled step has failed its last attempt."""
CLOCK_JUMP_S = 5.0
"""A clock that is set back by no more than this only delays actions by as much; nothing is rescheduled."""
BATCH = 1000
DAY_S = 86_400
KEEP_STEPS = 1000
"""The last steps of each agent that are kept, however old they are."""
SCHEDULED = ("start", "tick")
"""Actions that an agent runs on its own schedule, not because of a message."""

CLAIMABLE = "status = 'active' AND running IS NULL AND head_seq IS NOT NULL"
ANY_CLAIMABLE = f"SELECT 1 FROM agents WHERE {CLAIMABLE} LIMIT 1"
FIND_AGENTS = "SELECT id, no, status FROM agents WHERE tenant = ? AND id {among text} ORDER BY no{lock}"
TENANTS = """WITH RECURSIVE t(tenant) AS (SELECT min(tenant) FROM agents UNION ALL
    SELECT (SELECT min(a.tenant) FROM agents a WHERE a.tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL)
    SELECT tenant FROM t WHERE tenant IS NOT NULL"""
SHARES = f"""SELECT f.name, (SELECT count(*) FROM agents WHERE tenant = f.name AND running IS NOT NULL),
    (SELECT count(*) FROM (SELECT 1 FROM agents WHERE tenant = f.name AND {CLAIMABLE} LIMIT ?) x)
    FROM {{rows name text}} f"""
PICK = f"""SELECT no, head_seq, tenant, id, kind, config, state, step_no, thread_id, key_id
    FROM agents WHERE {CLAIMABLE} AND tenant = ? ORDER BY head_urgency, head_created, head_seq LIMIT ?{{skip}}"""
CLAIM = """UPDATE actions SET state = 'running', attempts = attempts + 1, token = token + 1, worker = ?,
    lease_until = {now} + ? WHERE seq {among int} AND state = 'ready'
    RETURNING seq, token, id, kind, payload, urgency, created_at, attempts, max_attempts,
        EXISTS (SELECT 1 FROM control c WHERE c.agent = actions.agent AND c.applied_at IS NULL)"""
SET_RUNNING = (
    f"UPDATE agents SET running = f.action, {SET_HEAD} FROM {{rows agent int, action int}} f WHERE agents.no = f.agent"
)

FINISH = """UPDATE actions SET state = f.state, last_error = coalesce(f.error, actions.last_error),
    run_after = CASE WHEN f.state = 'delayed' THEN {now} + f.delay END,
    delayed_at = CASE WHEN f.state = 'delayed' THEN {now} END, attempts = actions.attempts - f.refund,
    max_attempts = actions.max_attempts + f.outage,
    processed_at = CASE WHEN f.state IN ('ready', 'delayed') THEN NULL ELSE {now} END, worker = NULL, lease_until = NULL
    FROM {rows seq int, token int, state text, error text, delay real, refund int, outage int} f
    WHERE actions.seq = f.seq AND actions.token = f.token AND actions.state = 'running'
    RETURNING actions.seq, actions.token,
        EXISTS (SELECT 1 FROM control c WHERE c.agent = actions.agent AND c.applied_at IS NULL)"""
FREE = f"""UPDATE agents SET running = NULL, {SET_HEAD},
    status = CASE WHEN agents.status = 'destroying' THEN 'destroyed' ELSE agents.status END,
    state = coalesce(f.state, agents.state), step_no = agents.step_no + f.steps, done = coalesce(f.done, agents.done),
    tokens = agents.tokens + f.tokens, cost_usd = agents.cost_usd + f.cost, updated_at = {{now}},
    last_output = coalesce(f.output, agents.last_output), failed = coalesce(f.failed, agents.failed),
    last_error = CASE WHEN f.steps > 0 OR f.error IS NOT NULL THEN f.error ELSE agents.last_error END
    FROM {{rows agent int, state text, steps int, done int, tokens int, cost real, output text, error text,
        failed int}} f
    WHERE agents.no = f.agent"""
ADD_STEPS = """INSERT INTO agent_steps
        (agent, step_no, action, kind, input, output, outcome, error, started_at, ended_at, tokens, cost_usd)
    SELECT f.agent, f.step_no, f.action, f.kind, f.input, f.output, f.outcome, f.error, {now} - f.seconds, {now},
        f.tokens, f.cost
    FROM {rows agent int, step_no int, action text, kind text, input text, output text, outcome text, error text,
        seconds real, tokens int, cost real} f"""
APPLY = "UPDATE control SET applied_at = {now} WHERE seq {among int} AND applied_at IS NULL"
NEED_WAKING = """SELECT DISTINCT agent FROM control WHERE agent {among int} AND applied_at IS NULL
    AND verb IN ('interrupt', 'resume', 'reload') AND NOT seq {among int}"""
DROP_TICKS = """UPDATE actions SET state = 'cancelled', processed_at = {now}
    WHERE agent {among int} AND kind = 'tick' AND state IN ('ready', 'delayed')"""
RENEW = """UPDATE actions SET lease_until = {now} + ? WHERE seq IN
    (SELECT seq FROM actions WHERE worker = ? AND state = 'running' AND seq {among int}{skip})"""
HELD = "SELECT seq, token, agent FROM actions WHERE worker = ? AND state = 'running'"
DISOWN = """UPDATE actions SET state = 'ready', attempts = attempts - 1, worker = NULL, lease_until = NULL
    WHERE seq {among int} AND worker = ? AND state = 'running' RETURNING agent"""
OWNERS = "SELECT DISTINCT worker FROM actions WHERE state = 'running'"
LOST = """SELECT actions.seq, actions.token, actions.agent, actions.worker,
    CASE WHEN f.worker IS NULL THEN 0 ELSE 1 END
    FROM actions LEFT JOIN {rows worker text} f ON f.worker = actions.worker
    WHERE actions.state = 'running' AND (actions.lease_until < {now} OR f.worker IS NOT NULL)"""
REAP = """UPDATE actions SET state = CASE WHEN actions.attempts >= actions.max_attempts THEN 'failed' ELSE 'ready' END,
    processed_at = CASE WHEN actions.attempts >= actions.max_attempts THEN {now} END,
    last_error = 'worker ' || actions.worker || ' lost', worker = NULL, lease_until = NULL
    FROM {rows seq int, token int, dead int} f
    WHERE actions.seq = f.seq AND actions.token = f.token AND actions.state = 'running'
    AND (f.dead = 1 OR actions.lease_until < {now})
    RETURNING actions.agent, actions.state, actions.kind, actions.last_error"""
SET_ERRORS = (
    "UPDATE agents SET last_error = f.error, failed = 1 FROM {rows agent int, error text} f WHERE agents.no = f.agent"
)
RELEASE = f"UPDATE agents SET running = NULL, {SET_HEAD}, updated_at = {{now}} WHERE no {{among int}}"
DUE = "SELECT DISTINCT agent FROM actions WHERE state = 'delayed' AND run_after <= {now}"
# `run_after` stays: it is since when the action waits for a worker.
PROMOTE = """UPDATE actions SET state = 'ready'
    WHERE agent {among int} AND state = 'delayed' AND run_after <= {now}"""
NEXT_DUE = "SELECT {now}, min(run_after) - {now} FROM actions WHERE state = 'delayed'"
FROM_THE_FUTURE = """SELECT DISTINCT agent FROM actions
    WHERE state = 'delayed' AND coalesce(delayed_at, created_at) > {now} + ?"""
RESTART_DELAYS = """UPDATE actions SET run_after = {now} + run_after - coalesce(delayed_at, created_at),
    delayed_at = {now}, created_at = CASE WHEN created_at > {now} THEN {now} ELSE created_at END
    WHERE agent {among int} AND state = 'delayed' AND coalesce(delayed_at, created_at) > {now} + ?"""
OVERDUE = "SELECT no FROM agents WHERE status = 'destroying' AND (destroy_at < {now} - ? OR running IS NULL)"
CANCEL_ALL = """UPDATE actions SET state = 'cancelled', processed_at = {now}, worker = NULL, lease_until = NULL,
    token = token + 1 WHERE agent {among int} AND state IN ('ready', 'delayed', 'running')"""
DESTROYED = """UPDATE agents SET status = 'destroyed', running = NULL, head_urgency = NULL, head_created = NULL,
    head_seq = NULL, updated_at = {now} WHERE no {among int} AND status = 'destroying' RETURNING tenant, id"""
OLDEST = """SELECT seq, tenant, {now} - processed_at, {now} - created_at FROM actions
    WHERE seq > ? ORDER BY seq LIMIT ?"""
REMOVE = "DELETE FROM actions WHERE seq {among int} AND processed_at IS NOT NULL"
OLDEST_EVENTS = """SELECT id, tenant, {now} - created_at, {now} - created_at FROM hub_events
    WHERE id > ? ORDER BY id LIMIT ?"""
REMOVE_EVENTS = "DELETE FROM hub_events WHERE id {among int}"
REMOVE_STEPS = f"""DELETE FROM agent_steps WHERE (agent, step_no) IN (SELECT s.agent, s.step_no FROM agents a
    JOIN agent_steps s ON s.agent = a.no AND s.step_no <= a.step_no - {KEEP_STEPS}
    WHERE a.tenant = ? AND s.ended_at < {{now}} - ? LIMIT ?) RETURNING step_no"""
OLD_STEPS = f"""SELECT count(*) FROM agents a
    JOIN agent_steps s ON s.agent = a.no AND s.step_no <= a.step_no - {KEEP_STEPS}
    WHERE a.tenant = ? AND s.ended_at < {{now}} - ?"""
OLD_AGENTS = """SELECT no FROM agents WHERE tenant = ? AND status = 'destroyed' AND updated_at < {now} - ?
    ORDER BY no LIMIT ?"""
COUNT_OLD_AGENTS = "SELECT count(*) FROM agents WHERE tenant = ? AND status = 'destroyed' AND updated_at < {now} - ?"
REMOVE_AGENTS = (
    "DELETE FROM agent_steps WHERE agent {among int}",
    "DELETE FROM control WHERE agent {among int}",
    "DELETE FROM agents WHERE no {among int} AND status = 'destroyed'",
)
DEPTH = f"""SELECT (SELECT count(*) FROM actions WHERE state = 'ready'),
    (SELECT count(*) FROM actions WHERE state = 'delayed'), (SELECT count(*) FROM actions WHERE state = 'running'),
    (SELECT count(*) FROM actions WHERE state = 'failed' AND processed_at > {{now}} - {DAY_S}),
    (SELECT {{now}} - min(coalesce(a.run_after, a.created_at)) FROM agents JOIN actions a ON a.seq = agents.head_seq
        WHERE {CLAIMABLE.replace("status", "agents.status")})"""
AGENTS = """SELECT CASE WHEN status = 'active' AND failed = 1 THEN 'error' ELSE status END, count(*)
    FROM agents GROUP BY 1"""
ADD_TOTALS = """INSERT INTO queue_totals (name, total)
    SELECT f.name, f.total FROM {rows name text, total int} f WHERE true
    ON CONFLICT (name) DO UPDATE SET total = queue_totals.total + excluded.total"""
TOTALS = "SELECT name, total FROM queue_totals"
REMOVE_CONTROL = """DELETE FROM control WHERE seq IN (SELECT seq FROM control WHERE created_at < {now} - ?
    AND (applied_at IS NOT NULL OR agent IN (SELECT no FROM agents WHERE status = 'destroyed')) ORDER BY seq LIMIT ?)
    RETURNING seq"""


@dataclass(frozen=True)
class QueueDepth:
    """How much waits in the queue, of all tenants."""

    ready: int
    delayed: int
    running: int
    failed: int
    """Actions that failed for good within a day."""
    oldest_s: float
    """Seconds that the action that is claimed next has waited for a worker."""
    agents: dict[str, int]
    """Agents by status."""


class Queue:
    """The queue of a store. All methods are thread-safe.

    Adding and finding actions is limited to the store's tenant; claims serve all tenants.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tenant = store.tenant
        self._owner: Any = getattr(store, "_owner", store)
        self._dialect: QueueDialect = plugins.load_plugin("queue", self._owner.dialect)(self._owner)
        self.origin = new_id("queue")
        self._listeners: list[Listener] = []
        self._listening = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._tenants: list[str] = []
        self._served: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        """What this process did: `claims`, `retries`, `reclaimed`, and ended actions by how they ended."""
        self._totals_lock = threading.Lock()
        self._written: Counter[str] = Counter()
        """The part of `counts` that the totals of the store include."""
        self._clock: float | None = None
        """The database's time at the last sweep."""

    def of(self, tenant: str) -> Queue:
        """Return this queue for another tenant. The listeners are shared."""
        view = Queue(self.store.scoped(tenant))
        view._listeners, view.origin = self._listeners, self.origin
        return view

    # Transactions.

    def read(self, template: str, *values: object) -> Rows:
        """Return the rows of one SELECT, given as a template of the dialect."""
        return self.store._read(self._dialect.sql(template), *values)

    def list_value(self, values: Sequence[object]) -> object:
        """Return the parameter for an `{among}` placeholder."""
        return self._dialect.list_value(values)

    @contextmanager
    def transaction(self, many: bool = True) -> Iterator[QueueTransaction]:
        """Commit all statements together at the end of the block, then notify listeners."""
        with self._dialect.transaction(many) as (execute, run):
            work = QueueTransaction(self._dialect, execute, run)
            yield work
            notifications = list(dict.fromkeys(work.notifications))
            self._dialect.notify_on_commit(run, notifications, self.origin)
        for tenant, size in work.sizes.items():
            self.store.record_bytes.add(tenant, size)
        for kind, agent in notifications:
            self._notify(kind, agent)
        if notifications:
            self._dialect.notify_after_commit(notifications, self.origin)

    # Notifications.

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(kind, agent)` for every notification of any process; return a function that unsubscribes."""
        self._listeners.append(listener)
        with self._lock:
            if not self._listening.is_set():
                self._listening.set()
                threading.Thread(target=self._listen, name="etude-notifications", daemon=True).start()
        return lambda: self._listeners.remove(listener)

    def _listen(self) -> None:
        def ended() -> bool:
            return bool(self._closed.is_set() or self._owner._closed)

        while not ended():
            try:
                self._dialect.listen(self.origin, self._notify, ended)
            except Exception:
                # Catch everything: without notifications the process would only be slow, and no one would know why.
                log.exception("listening for notifications failed; trying again")
                self._closed.wait(RETRY_S)

    def _notify(self, kind: str, agent: int) -> None:
        for listener in list(self._listeners):
            listener(kind, agent)

    def close(self) -> None:
        """Stop listening; the store stays open."""
        self._closed.set()

    # Adding.

    def enqueue(self, *actions: NewAction) -> list[str]:
        """Add all of the actions or none, and return their ids. An action whose id exists is not added again."""
        named = [(action, action.id or new_id("action")) for action in actions]
        if len(named) != 1 or not self._enqueue_one(*named[0]):
            with self.transaction() as work:
                found = self.find(work, [action.agent for action in actions])
                work.add_actions(
                    (self.tenant, name, found[a.agent], a.kind, a.payload, a.urgency, float(a.delay), a.attempts)
                    for a, name in named
                )
        return [name for _, name in named]

    def _enqueue_one(self, action: NewAction, name: str) -> bool:
        """Add one action in one round trip. Return False if the database or the agent's status does not allow it."""
        added = self._dialect.add_one(self.tenant, name, action, self.origin)
        if added and added[0]:
            self.store.record_bytes.add(self.tenant, count_record_bytes(action.payload))
        if added and added[1]:
            self._notify("run", 0)
        return added is not None and added[0]

    def find(self, work: QueueTransaction, ids: Sequence[str]) -> dict[str, int]:
        """Lock the agents and return their numbers; raise if one does not exist or is being destroyed."""
        rows = work(FIND_AGENTS, self.tenant, self._dialect.list_value(sorted(set(ids))))
        found = {agent_id: (no, status) for agent_id, no, status in rows}
        for agent_id in ids:
            if agent_id not in found:
                raise agent_not_found_in_queue(agent_id)
            if found[agent_id][1] in ("destroying", "destroyed"):
                raise Conflict(f"Agent `{agent_id}` is {found[agent_id][1]}.", hint="Create another.")
        return {agent_id: no for agent_id, (no, _) in found.items()}

    # Working.

    def turn(self, finished: Sequence[Finish] = (), claim: int = 0, lease: float = LEASE_S) -> TurnResult:
        """Record the finished claims and claim up to `claim` more, in one transaction."""
        with self.transaction(many=bool(finished)) as work:
            refused = self._finish(work, finished) if finished else []
            claimed = self._claim(work, claim, lease) if claim > 0 else []
        self.counts["claims"] += len(claimed)
        self.counts["retries"] += sum(each.attempts > 1 for each in claimed)
        self.counts.update(f.end for f in finished if f not in refused)
        return TurnResult(claimed, refused)

    def has_work(self) -> bool:
        """Return True if something can be claimed, including agents that a claim skips because they are locked."""
        return bool(self.read(ANY_CLAIMABLE))

    def _finish(self, work: QueueTransaction, finished: Sequence[Finish]) -> list[Finish]:
        agents = work.lock({f.claim.agent for f in finished})
        ends = {f.claim.key: _last_end(f, agents[f.claim.agent].status) for f in finished}
        rows = [
            (
                *f.claim.key,
                ends[f.claim.key],
                clean_for_queue(f.error),
                f.delay,
                int(f.end == "ready"),
                int(f.outage),
            )
            for f in finished
        ]
        # Also whether control messages are pending. The agent is locked, so none can be added until the commit.
        accepted = {(seq, token): bool(with_control) for seq, token, with_control in work(FINISH, *work.rows(rows))}
        kept = [f for f in finished if f.claim.key in accepted]
        if kept:
            self._record(work, kept, agents)
            with_control = [f for f in kept if accepted[f.claim.key] and ends[f.claim.key] != "ready"]
            self._plan(work, kept, ends, agents, with_control)
            work.do(FREE, *work.rows([_freed(f, ends[f.claim.key]) for f in kept]))
            work.add_events([event for f in kept for event in _events_of(f, agents[f.claim.agent].status)])
        return [f for f in finished if f.claim.key not in accepted]

    def _record(self, work: QueueTransaction, kept: Sequence[Finish], agents: dict[int, LockedAgent]) -> None:
        steps = [
            (
                *(f.claim.agent, agents[f.claim.agent].step_no + 1, f.claim.id, f.claim.kind, f.step.input),
                *(
                    f.step.output,
                    f.step.outcome,
                    clean_for_queue(f.step.error),
                    f.step.seconds,
                    f.step.tokens,
                    f.step.cost_usd,
                ),
            )
            for f in kept
            if f.step
        ]
        if steps:
            work.do(ADD_STEPS, *work.rows(steps))
        for finish in kept:
            if step := finish.step:
                work.count(finish.claim.tenant, step.input, step.output, step.error)
                if step.state is not None:
                    grown = count_text_bytes(step.state) - count_text_bytes(finish.claim.state)
                    work.sizes[finish.claim.tenant] += grown
        applied = [seq for f in kept for seq in f.applied]
        if applied:
            work.do(APPLY, work.list(applied))

    def _plan(
        self,
        work: QueueTransaction,
        kept: Sequence[Finish],
        ends: dict[tuple[int, int], str],
        agents: dict[int, LockedAgent],
        with_control: Sequence[Finish],
    ) -> None:
        """Schedule the agents' next steps, and wake those that got a control message meanwhile."""
        ticks = {
            f.claim.agent: SCHEDULE_RETRY_S if f.tick is None else f.tick
            for f in kept
            if f.tick is not None or (f.claim.kind in SCHEDULED and ends[f.claim.key] == "failed" and not f.drop_tick)
        }
        dropped = [f.claim.agent for f in kept if f.drop_tick or f.claim.agent in ticks]
        if dropped:
            work.do(DROP_TICKS, work.list(dropped))
        # The retry of the action reads these control messages, so they need no step of their own.
        deferred = [seq for f in with_control for seq in f.deferred]
        woken = (
            [no for (no,) in work(NEED_WAKING, work.list([f.claim.agent for f in with_control]), work.list(deferred))]
            if with_control
            else []
        )
        planned = [(no, "tick", URGENCY, delay) for no, delay in ticks.items()]
        planned += [(no, "wake", WAKE_URGENCY, 0.0) for no in woken]
        rows = [
            (agents[no].tenant, new_id("action"), no, kind, "null", urgency, delay, ATTEMPTS)
            for no, kind, urgency, delay in planned
            if agents[no].status in ("active", "paused")
        ]
        if rows:
            work.plan_actions(rows)

    def _claim(self, work: QueueTransaction, count: int, lease: float) -> list[ActionClaim]:
        picked = self._pick(work, count)
        if not picked:
            return []
        claimed = {row[0]: row for row in work(CLAIM, self.store.worker_id, lease, work.list([p[1] for p in picked]))}
        work.do(SET_RUNNING, *work.rows([(no, head if head in claimed else None) for no, head, *_ in picked]))
        return [ActionClaim(*claimed[head], *(no, *rest)) for no, head, *rest in picked if head in claimed]

    def _pick(self, work: QueueTransaction, count: int) -> Rows:
        """Lock the agents to run next. Tenants with the fewest running agents come first."""
        if len(self._tenants) == 1:
            picked = work(PICK, self._tenants[0], count)
            if picked:
                return picked
        # A tenant may have been added since the last claim.
        self._tenants = [str(name) for (name,) in work(TENANTS)]
        shares = self._share(work, count) if len(self._tenants) > 1 else dict.fromkeys(self._tenants, count)
        return [row for tenant, share in shares.items() for row in work(PICK, tenant, share)]

    def _share(self, work: QueueTransaction, count: int) -> dict[str, int]:
        loads = {n: (int(r), int(w)) for n, r, w in work(SHARES, count, *work.rows([(n,) for n in self._tenants]))}
        shares: dict[str, int] = {}
        for _ in range(count):
            waiting = [name for name, (_, ready) in loads.items() if ready > 0]
            if not waiting:
                break
            # Among tenants with equally few running agents, pick the one served least recently.
            name = min(waiting, key=lambda n: (loads[n][0], self._served.get(n, 0)))
            shares[name] = shares.get(name, 0) + 1
            loads[name] = (loads[name][0] + 1, loads[name][1] - 1)
            self._served[name] = max(self._served.values(), default=0) + 1
        return shares

    def depth(self) -> QueueDepth:
        """Return how much waits in the queue, of all tenants."""
        ((ready, delayed, running, failed, oldest),) = self.read(DEPTH)
        agents = {str(status): int(count) for status, count in self.read(AGENTS)}
        return QueueDepth(ready, delayed, running, failed, max(0.0, float(oldest or 0.0)), agents)

    def totals(self) -> Counter[str]:
        """Return what all processes did, as in `counts`: as far as they have written it, and all that this one did."""
        with self._totals_lock:
            written = Counter({str(name): int(total) for name, total in self.read(TOTALS)})
            return written + self._unwritten()

    def write_totals(self) -> None:
        """Add what this process did since the last call to the totals of the store."""
        with self._totals_lock:
            if added := self._unwritten():
                with self.transaction() as work:
                    # In order: two processes that lock rows in different orders would deadlock.
                    work.do(ADD_TOTALS, *work.rows(sorted(added.items())))
                self._written += added

    def _unwritten(self) -> Counter[str]:
        return Counter(dict(self.counts)) - self._written

    # Leases and maintenance.

    def hold(self) -> bool:
        """Hold the lock that shows that this worker is alive; return False if it had been lost."""
        return self._dialect.hold()

    def heartbeat(self, running: Collection[int], lease: float = LEASE_S) -> set[tuple[int, int]]:
        """Renew the leases of these actions, and return the (seq, token) pairs that this worker still holds."""
        with self.transaction() as work:
            work.do(RENEW, lease, self.store.worker_id, work.list(sorted(running)))
        return {(seq, token) for seq, token, _ in self.read(HELD, self.store.worker_id)}

    def disown(self, running: Collection[int]) -> None:
        """Release actions that this worker holds but does not run, such as after a claim whose reply was lost."""
        held = [(seq, no) for seq, _, no in self.read(HELD, self.store.worker_id) if seq not in running]
        if held:
            with self.transaction() as work:
                work.lock({no for _, no in held})
                # Another worker may have taken over some of them by now.
                freed = work(DISOWN, work.list([seq for seq, _ in held]), self.store.worker_id)
                work.do(RELEASE, work.list([no for (no,) in freed]))
                work.notifications.append(("run", 0))

    def sweep(self, fence: float = 2.0, running: Collection[int] = ()) -> float | None:
        """Reclaim the actions of lost workers and make due actions ready; return the seconds until the next is due.

        An agent whose grace period ended `fence` seconds ago is destroyed even if its step is still running. Actions
        that this worker knows to be `running` are never reclaimed: the clock may have been set forward.
        """
        owners = {worker for (worker,) in self.read(OWNERS)} - {self.store.worker_id}
        dead = self.store._dead(owners) if owners else set()
        leased = self.read(LOST, *self._dialect.table_values([(w,) for w in dead] or [("",)]))
        lost = [row for row in leased if row[0] not in running or row[3] != self.store.worker_id]
        due = self.read(DUE)
        overdue = self.read(OVERDUE, fence)
        if lost or due or overdue:
            with self.transaction() as work:
                self._reclaim(work, lost, [no for (no,) in due], [no for (no,) in overdue])
        self._tenants = [str(name) for (name,) in self.read(TENANTS)]
        ((clock, after),) = self.read(NEXT_DUE)
        # The clock was set back if it shows less than at the last sweep. A new process cannot know, so it checks.
        if self._clock is None or clock < self._clock:
            self._restart_delays()
            ((clock, after),) = self.read(NEXT_DUE)
        self._clock = float(clock)
        return None if after is None else max(0.0, float(after))

    def _restart_delays(self) -> None:
        """Delay actions again, in full, that were delayed at a time that the clock has yet to reach.

        Otherwise an agent with an interval of a minute would stop for an hour if the clock is set back an hour.
        """
        agents = [no for (no,) in self.read(FROM_THE_FUTURE, CLOCK_JUMP_S)]
        if agents:
            with self.transaction() as work:
                work.lock(set(agents))
                work.do(RESTART_DELAYS, work.list(agents), CLOCK_JUMP_S)

    def _reclaim(self, work: QueueTransaction, lost: Rows, due: list[int], overdue: list[int]) -> None:
        agents = work.lock({*(row[2] for row in lost), *due, *overdue})
        if lost:
            # Compare the tokens: a worker that seemed dead may have come back and claimed again.
            reaped = work(REAP, *work.rows([(seq, token, dead) for seq, token, _, _, dead in lost]))
            failed = [(no, kind, error) for no, state, kind, error in reaped if state == "failed"]
            if failed:
                work.do(SET_ERRORS, *work.rows([(no, error) for no, _, error in failed]))
            planned = [
                (agents[no].tenant, new_id("action"), no, "tick", "null", URGENCY, SCHEDULE_RETRY_S, ATTEMPTS)
                for no, kind, _ in failed
                if kind in SCHEDULED
            ]
            if planned:
                work.plan_actions(planned)
            self.counts["reclaimed"] += len(reaped)
            if reaped:
                log.warning("took over %d actions from workers that died or hung", len(reaped))
            work.do(RELEASE, work.list([row[0] for row in reaped]))
            # The steps of these agents ended with their worker, so agents waiting to be destroyed can be.
            overdue = [*overdue, *(row[0] for row in reaped if agents[row[0]].status == "destroying")]
        if due:
            work.do(PROMOTE, work.list(due))
            work.do(REFRESH, work.list(due))
        if overdue:
            work.do(CANCEL_ALL, work.list(overdue))
            destroyed = work(DESTROYED, work.list(overdue))
            work.add_events([(tenant, agent_id, "agent.destroyed", "{}") for tenant, agent_id in destroyed])
        work.notifications.append(("run", 0))

    def prune(self, days: float) -> int:
        """Delete ended actions, events, old steps and applied control messages older than `days`; return how many."""
        every = KeptDays(lambda _: days, days)
        removed = (self.prune_actions(every) + self.prune_events(every)).total() + self.prune_control(days)
        return removed + sum(self.prune_steps(str(tenant), days) for (tenant,) in self.read(TENANTS))

    def prune_actions(self, days: KeptDays, dry_run: bool = False) -> Counter[str]:
        """Delete ended actions that are older than their tenant keeps them; return how many, by tenant."""
        return self._prune_in_order(OLDEST, REMOVE, days, dry_run)

    def prune_events(self, days: KeptDays, dry_run: bool = False) -> Counter[str]:
        """Delete events that are older than their tenant keeps them; return how many, by tenant."""
        return self._prune_in_order(OLDEST_EVENTS, REMOVE_EVENTS, days, dry_run)

    def _prune_in_order(self, oldest: str, remove: str, days: KeptDays, dry_run: bool) -> Counter[str]:
        """Read rows in order of their number, which is nearly their age, until they are too young for any tenant."""
        after, removed = 0, Counter[str]()
        while rows := self.read(oldest, after, BATCH):
            old = {no: tenant for no, tenant, age, _ in rows if age is not None and age > days.of(tenant) * DAY_S}
            if old and not dry_run:
                with self.transaction() as work:
                    work.do(remove, work.list(sorted(old)))
            removed.update(old.values())
            after = rows[-1][0]
            if rows[-1][3] <= days.shortest * DAY_S:
                break
        return removed

    def prune_steps(self, tenant: str, days: float, dry_run: bool = False) -> int:
        """Delete the steps of a tenant's agents that are older than `days`, except the last ones of each agent."""
        if dry_run:
            return int(self.read(OLD_STEPS, tenant, days * DAY_S)[0][0])
        return self._prune_batches(REMOVE_STEPS, tenant, days * DAY_S)

    def prune_agents(self, tenant: str, days: float, dry_run: bool = False) -> int:
        """Delete the agents of a tenant that were destroyed more than `days` ago, with their steps; return how many."""
        if dry_run:
            return int(self.read(COUNT_OLD_AGENTS, tenant, days * DAY_S)[0][0])
        removed = 0
        while rows := self.read(OLD_AGENTS, tenant, days * DAY_S, BATCH):
            with self.transaction() as work:
                for statement in REMOVE_AGENTS:
                    work.do(statement, work.list([row[0] for row in rows]))
            removed += len(rows)
        return removed

    def prune_control(self, days: float) -> int:
        """Delete applied control messages that are older than `days`; return how many."""
        return self._prune_batches(REMOVE_CONTROL, days * DAY_S)

    def _prune_batches(self, statement: str, *values: object) -> int:
        removed, deleted = 0, BATCH
        while deleted == BATCH:
            with self.transaction() as work:
                deleted = len(work(statement, *values, BATCH))
            removed += deleted
        return removed


@dataclass(frozen=True)
class KeptDays:
    """How many days the records of each tenant are kept; `shortest` is the least of these."""

    of: Callable[[str], float]
    shortest: float


def _last_end(finish: Finish, status: str) -> str:
    # An agent that is being destroyed does not run its action again.
    return "cancelled" if status in ("destroying", "destroyed") and finish.end in ("ready", "delayed") else finish.end


def _events_of(finish: Finish, status: str) -> list[tuple[str, str | None, str, str]]:
    who = (finish.claim.tenant, finish.claim.agent_id)
    destroyed = [(*who, "agent.destroyed", "{}")] if status == "destroying" else []
    return [*[(*who, event.topic, event.body) for event in finish.events], *destroyed]


def _freed(finish: Finish, end: str) -> tuple[object, ...]:
    step = finish.step
    failed = {"failed": 1, "done": 0}.get(end)
    if step is None:
        return (finish.claim.agent, None, 0, None, 0, 0.0, None, clean_for_queue(finish.error), failed)
    numbers = (1, int(step.done), step.tokens, step.cost_usd)
    return (finish.claim.agent, step.state, *numbers, step.output, clean_for_queue(step.error), failed)


def agent_not_found_in_queue(agent_id: str) -> NotFound:
    """Return the error for an agent that does not exist."""
    return NotFound(f"There is no agent `{agent_id}`.", hint="List them: `etude agents list`.")
