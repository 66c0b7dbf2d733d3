"""The agents of a store: configuration, status and steps, control messages, and lists of their actions.

Each verb is one transaction that commits before any worker is notified, so a lost notification loses nothing.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from etude.entities import Entity
from etude.errors import Conflict, Invalid, NotFound
from etude.ids import new_id
from etude.redaction import MASK, is_redacted_name, redact_url_path
from etude.store.action import ATTEMPTS, URGENCY, NewAction
from etude.store.base import Rows
from etude.store.paging import ALL, Page, store_row_limit
from etude.store.queue import WAKE_URGENCY, Queue, agent_not_found_in_queue
from etude.store.queue_dialect import REFRESH, QueueTransaction, clean_for_queue, json_for_queue
from etude.store.record_bytes import count_text_bytes

Status = Literal["active", "error", "paused", "destroying", "destroyed"]
"""`error`: active, but its last action failed for good."""
ActionState = Literal["ready", "delayed", "running", "done", "failed", "cancelled"]
Activity = Literal["running", "queued", "waiting", "idle", "done", "pausing", "paused", "destroying", "destroyed"]

MAX_LISTENING_STATE = 1 << 20
PAGE_CHARS = 1 << 20
"""The most characters of configurations, outputs and payloads on a page. Lengths are read first: a page of large ones
may take gigabytes."""
NO_STATE = "{}"
"""The state of a new agent."""

ADD = """INSERT INTO agents (tenant, id, kind, config, key_id, listens, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, {now}, {now})
    ON CONFLICT (tenant, id) DO NOTHING RETURNING no"""
LOCK = "SELECT no, status, running, step_no FROM agents WHERE tenant = ? AND id = ?{lock}"
SELECT = """SELECT no, id, kind, config,
    CASE WHEN status = 'active' AND failed = 1 THEN 'error' ELSE status END,
    running, head_seq, done, step_no, tokens, cost_usd, thread_id,
    last_output, last_error, created_at, updated_at,
    (SELECT min(run_after) FROM actions WHERE agent = agents.no AND state = 'delayed') FROM agents"""
AGENT_LENGTHS = "SELECT no, length(config) + coalesce(length(last_output), 0) FROM agents"
STATE_AND_CONFIG = "SELECT state, config FROM agents WHERE tenant = ? AND id = ?"
STEPS = """SELECT agent_steps.step_no, action, agent_steps.kind, input, output, outcome, error, started_at, ended_at,
    agent_steps.tokens, agent_steps.cost_usd
    FROM agent_steps JOIN agents ON agents.no = agent_steps.agent
    WHERE agents.tenant = ? AND agents.id = ? AND agent_steps.step_no > ? ORDER BY agent_steps.step_no LIMIT ?"""
STEP_LENGTHS = """SELECT agent_steps.step_no, length(input) + coalesce(length(output), 0)
    FROM agent_steps JOIN agents ON agents.no = agent_steps.agent
    WHERE agents.tenant = ? AND agents.id = ? AND agent_steps.step_no > ? ORDER BY agent_steps.step_no LIMIT ?"""
ACTION_LENGTHS = """SELECT actions.seq, length(actions.payload)
    FROM actions JOIN agents ON agents.no = actions.agent WHERE actions.tenant = ?"""
ACTIONS = """SELECT actions.id, agents.id, actions.kind, actions.payload, actions.state, actions.urgency,
    actions.attempts, actions.max_attempts, actions.last_error, actions.created_at, actions.run_after,
    actions.processed_at, actions.seq
    FROM actions JOIN agents ON agents.no = actions.agent WHERE actions.tenant = ?"""
ACTION = f"{ACTIONS} AND actions.id = ?"
ATTEMPTS_OF = """SELECT agent_steps.step_no, action, agent_steps.kind, input, output, outcome, error, started_at,
    ended_at, agent_steps.tokens, agent_steps.cost_usd FROM agent_steps JOIN agents ON agents.no = agent_steps.agent
    WHERE agents.tenant = ? AND agents.id = ? AND agent_steps.action = ? ORDER BY agent_steps.step_no"""
CANCEL_ACTION = """UPDATE actions SET state = 'cancelled', processed_at = {now}, last_error = coalesce(?, last_error)
    WHERE tenant = ? AND id = ? AND state IN ('ready', 'delayed') RETURNING seq"""
RETRY_ACTION = """UPDATE actions SET state = 'ready', attempts = 0, run_after = NULL, delayed_at = NULL,
    processed_at = NULL WHERE tenant = ? AND id = ? AND state IN ('failed', 'cancelled') RETURNING seq"""
ALL_AGENTS = "SELECT id FROM agents WHERE tenant = ? AND status IN ('active', 'paused') ORDER BY no"
# A `wake` action does not always make a step. The state of a running agent is about to change, so it is left out, as is
# one that is too large to be read for every event.
LISTENING = f"""SELECT tenant, id, config,
    CASE WHEN EXISTS (SELECT 1 FROM actions WHERE seq = agents.head_seq AND kind <> 'wake') THEN 1 ELSE 0 END,
    CASE WHEN running IS NULL AND length(state) <= {MAX_LISTENING_STATE} THEN state END
    FROM agents WHERE listens = 1 AND status = 'active' ORDER BY tenant, id"""
DELIVERING = "SELECT tenant, id, state FROM agents WHERE listens = 1 AND status = 'active' ORDER BY tenant, id"
FIND_DESTROYED = "SELECT no FROM agents WHERE no {among int} AND status = 'destroyed'"
SET_STATUS = "UPDATE agents SET status = ?, updated_at = {now} WHERE no = ?"
DESTROY = "UPDATE agents SET status = ?, destroy_at = {now} + ?, updated_at = {now} WHERE no = ?"
CONFIG = "SELECT config FROM agents WHERE no = ?"
SET_CONFIG = "UPDATE agents SET config = ? WHERE no = ?"
SET_THREAD = "UPDATE agents SET thread_id = ? WHERE no = ?"
ADD_CONTROL = "INSERT INTO control (agent, verb, body, created_at) VALUES (?, ?, ?, {now})"
PENDING_CONTROL = (
    "SELECT agent, seq, verb, body FROM control WHERE agent {among int} AND applied_at IS NULL ORDER BY seq"
)
CLEAR_HEAD = "UPDATE agents SET head_urgency = NULL, head_created = NULL, head_seq = NULL WHERE no = ?"
CANCEL_WAITING = """UPDATE actions SET state = 'cancelled', processed_at = {now}
    WHERE agent = ? AND state IN ('ready', 'delayed')"""


class AgentInfo(Entity):
    """An agent as lists show it."""

    id: str
    kind: str
    config: dict[str, Any]
    status: Status
    activity: Activity
    """What it is doing now."""
    step_no: int
    tokens: int
    cost_usd: float
    thread_id: str | None
    last_output: Any
    last_error: str | None
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None
    """When its next scheduled step is due."""


class AgentStep(Entity):
    """The record of one step of an agent."""

    step_no: int
    action: str
    kind: str
    input: Any
    output: Any
    outcome: str
    error: str | None
    started_at: datetime
    ended_at: datetime
    tokens: int
    cost_usd: float


class ActionInfo(Entity):
    """An action and its outcome."""

    id: str
    agent: str
    kind: str
    payload: Any
    state: str
    urgency: int
    attempts: int
    max_attempts: int
    last_error: str | None
    created_at: datetime
    run_after: datetime | None
    processed_at: datetime | None


@dataclass(frozen=True, slots=True)
class AgentCause:
    """Who did something, and why, as events tell it."""

    actor: str = ""
    reason: str = ""

    def facts(self) -> dict[str, str]:
        """Return what is known."""
        return {name: value for name, value in (("actor", self.actor), ("reason", self.reason)) if value}


NO_CAUSE = AgentCause()


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """How the deliveries of an agent stand, such as those to a webhook."""

    tenant: str
    agent: str
    failures: int
    """Attempts that failed since one succeeded."""
    since: float | None
    """When the oldest event that has not arrived failed first, in seconds since 1970."""
    error: str
    lost: int
    """Events that were given up."""
    lost_at: float | None
    """When an event was given up last, in seconds since 1970."""


@dataclass(frozen=True)
class ListeningAgent:
    """An agent that events wake."""

    tenant: str
    id: str
    config: dict[str, Any]
    step_queued: bool
    """True if a step is about to begin."""
    state: dict[str, Any]
    """Its state; empty while it is running, and if the state is very large."""


class AgentStore:
    """The agents of the queue's tenant."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    # Reading.

    def agent(self, agent_id: str) -> AgentInfo:
        """Return an agent."""
        rows = self.queue.read(f"{SELECT} WHERE tenant = ? AND id = ?", self.queue.tenant, agent_id)
        if not rows:
            raise agent_not_found_in_queue(agent_id)
        return _agent_info(rows[0])

    def agents(self, status: str | None = None, limit: int = 50, cursor: str | None = None) -> Page[AgentInfo]:
        """Return a page of agents, newest first. Destroyed agents are listed only if `status` asks for them."""
        _check_cursor(cursor)
        asked = store_row_limit(limit)
        where, values = ["tenant = ?"], [self.queue.tenant]
        if status in ("active", "error"):
            where.append(f"status = 'active' AND failed = {int(status == 'error')}")
        else:
            where.append("status = ?" if status else "status <> ?")
            values.append(status or "destroyed")
        if cursor is not None:
            where.append(f"no < {int(cursor)}")
        rest = f"WHERE {' AND '.join(where)} ORDER BY no DESC LIMIT ?"
        lengths = self.queue.read(f"{AGENT_LENGTHS} {rest}", *values, asked + 1)
        count = _count_fitting(lengths, asked)
        rows = self.queue.read(f"{SELECT} {rest}", *values, count) if count else []
        return Page([_agent_info(row) for row in rows], str(lengths[count - 1][0]) if len(lengths) > count else None)

    def state(self, agent_id: str) -> dict[str, Any]:
        """Return the state that the agent keeps between steps."""
        return self._state_and_config(agent_id)[0]

    def config(self, agent_id: str) -> dict[str, Any]:
        """Return the agent's full configuration, including secrets."""
        return self._state_and_config(agent_id)[1]

    def _state_and_config(self, agent_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        rows = self.queue.read(STATE_AND_CONFIG, self.queue.tenant, agent_id)
        if not rows:
            raise agent_not_found_in_queue(agent_id)
        return json.loads(rows[0][0]), json.loads(rows[0][1])

    def steps(self, agent_id: str, after: int = 0, limit: int = 100) -> list[AgentStep]:
        """Return the steps of an agent after step number `after`, in order."""
        rows = self.queue.read(STEPS, self.queue.tenant, agent_id, min(max(after, 0), ALL), store_row_limit(limit))
        if not rows:
            self.agent(agent_id)
        return [_agent_step(row) for row in rows]

    def steps_page(self, agent_id: str, after: int = 0, limit: int = 100) -> Page[AgentStep]:
        """Return a page of the steps after a number, in order, at most `PAGE_CHARS` of them."""
        asked = store_row_limit(limit)
        where = (self.queue.tenant, agent_id, min(max(after, 0), ALL))
        lengths = self.queue.read(STEP_LENGTHS, *where, asked + 1)
        count = _count_fitting(lengths, asked)
        steps = self.steps(agent_id, after, max(count, 1))
        return Page(steps, str(lengths[count - 1][0]) if len(lengths) > count else None)

    def action(self, action_id: str) -> ActionInfo | None:
        """Return the action, or None if there is none. Actions are deleted some time after they end."""
        rows = self.queue.read(ACTION, self.queue.tenant, action_id)
        return _action_info(rows[0]) if rows else None

    def actions(
        self,
        agent_id: str | None = None,
        state: ActionState | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ActionInfo]:
        """Return a page of actions, newest first."""
        _check_cursor(cursor)
        asked = store_row_limit(limit)
        where, values = "", [self.queue.tenant]
        if agent_id is not None:
            self.agent(agent_id)
            where, values = f"{where} AND agents.id = ?", [*values, agent_id]
        if state is not None:
            # Written out, because the indexes are those of single states.
            where = f"{where} AND actions.state = '{check_agent_action_state(state)}'"
        if cursor is not None:
            where = f"{where} AND actions.seq < {int(cursor)}"
        rest = f"{where} ORDER BY actions.seq DESC LIMIT ?"
        lengths = self.queue.read(f"{ACTION_LENGTHS}{rest}", *values, asked + 1)
        count = _count_fitting(lengths, asked)
        rows = self.queue.read(f"{ACTIONS}{rest}", *values, count) if count else []
        return Page([_action_info(row) for row in rows], str(lengths[count - 1][0]) if len(lengths) > count else None)

    def attempts(self, action: ActionInfo) -> list[AgentStep]:
        """Return the recorded steps of an action, one for each attempt that got so far."""
        return [_agent_step(row) for row in self.queue.read(ATTEMPTS_OF, self.queue.tenant, action.agent, action.id)]

    def cancel_action(self, action_id: str, cause: AgentCause = NO_CAUSE) -> None:
        """Cancel an action that waits."""
        found = self._find_action(action_id)
        with self.queue.transaction() as work:
            no, *_ = self._lock(work, found.agent, allow_destroyed=True)
            error = f"cancelled: {cause.reason}" if cause.reason else None
            if not work(CANCEL_ACTION, clean_for_queue(error), self.queue.tenant, action_id):
                raise self._other_state(action_id, "It can be cancelled only while it waits.")
            work.do(REFRESH, work.list([no]))
            self._publish(work, found.agent, "action_cancelled", action=action_id, **cause.facts())

    def retry_action(self, action_id: str, cause: AgentCause = NO_CAUSE) -> None:
        """Queue an action again that failed or was cancelled, with as many attempts as a new one."""
        found = self._find_action(action_id)
        with self.queue.transaction() as work:
            no, *_ = self._lock(work, found.agent)
            if not work(RETRY_ACTION, self.queue.tenant, action_id):
                raise self._other_state(action_id, "Only an action that failed or was cancelled can be tried again.")
            work.do(REFRESH, work.list([no]))
            work.notifications.append(("run", 0))
            self._publish(work, found.agent, "action_retried", action=action_id, **cause.facts())

    def _find_action(self, action_id: str) -> ActionInfo:
        found = self.action(action_id)
        if found is None:
            raise agent_action_not_found(action_id)
        return found

    def _other_state(self, action_id: str, hint: str) -> Conflict:
        return Conflict(f"Action `{action_id}` is {self._find_action(action_id).state}.", hint=hint)

    def all_agents(self) -> list[str]:
        """Return the ids of all agents that are not destroyed."""
        return [str(row[0]) for row in self.queue.read(ALL_AGENTS, self.queue.tenant)]

    def pending_control(self, agents: list[int]) -> list[tuple[int, int, str, Any]]:
        """Return the control messages that no step has applied, for agents given by number.

        Each is (agent, seq, verb, body).
        """
        rows = self.queue.read(PENDING_CONTROL, self.queue.list_value(agents))
        return [(no, seq, verb, None if body is None else json.loads(body)) for no, seq, verb, body in rows]

    def destroyed(self, agents: Collection[int]) -> list[int]:
        """Return those of the agents, given by number, that are destroyed."""
        return [no for (no,) in self.queue.read(FIND_DESTROYED, self.queue.list_value(sorted(agents)))]

    def listening(self) -> list[ListeningAgent]:
        """Return the active agents of all tenants that events wake."""
        return [
            ListeningAgent(tenant, name, json.loads(config), bool(queued), json.loads(state or "{}"))
            for tenant, name, config, queued, state in self.queue.read(LISTENING)
        ]

    def deliveries(self) -> list[DeliveryState]:
        """Return how the deliveries of all tenants stand, as far as their agents have recorded it."""
        found = [(tenant, name, json.loads(state or "{}")) for tenant, name, state in self.queue.read(DELIVERING)]
        return [_delivery(tenant, name, state) for tenant, name, state in found if "held" in state]

    def of(self, tenant: str) -> AgentStore:
        """Return the agents of another tenant."""
        return self if tenant == self.queue.tenant else AgentStore(self.queue.of(tenant))

    # Verbs.

    def create(
        self,
        agent_id: str,
        kind: str,
        config: dict[str, Any],
        key_id: str | None = None,
        listens: bool = False,
        cause: AgentCause = NO_CAUSE,
    ) -> None:
        """Add an agent whose first step is due now. Its usage counts toward the key's daily quota."""
        self._check_storage()
        text = json_for_queue(config)
        with self.queue.transaction() as work:
            rows = work(ADD, self.queue.tenant, agent_id, kind, text, key_id, int(listens))
            if not rows:
                raise Conflict(f"Agent `{agent_id}` already exists.", hint="Choose another id.")
            work.count(self.queue.tenant, text, NO_STATE)
            self._add(work, rows[0][0], "start")
            self._publish(work, agent_id, "created", kind=kind, **cause.facts())

    def message(self, agent_id: str, body: Any, cause: AgentCause = NO_CAUSE, **how: Any) -> str:
        """Queue a message, which gets a step of its own, and return the id of its action."""
        self._check_storage()
        (name,) = self.queue.enqueue(NewAction(agent_id, "message", json_for_queue(body), **how))
        if cause.reason:
            with self.queue.transaction() as work:
                self._publish(work, agent_id, "messaged", action=name, **cause.facts())
        return name

    def pause(self, agent_id: str, now: bool = False, cause: AgentCause = NO_CAUSE) -> None:
        """Start no further step; with `now`, also interrupt the running one."""
        with self.queue.transaction() as work:
            no, status, running, _ = self._lock(work, agent_id)
            if status == "active":
                work.do(SET_STATUS, "paused", no)
                self._publish(work, agent_id, "paused", **cause.facts())
            if now and running is not None:
                self._add_control(work, no, "pause", None)

    def resume(self, agent_id: str, guidance: Any = None, cause: AgentCause = NO_CAUSE) -> None:
        """Continue a paused agent; the next step begins with the guidance."""
        if guidance is not None:
            self._check_storage()
        with self.queue.transaction() as work:
            no, status, running, _ = self._lock(work, agent_id)
            if status == "paused":
                work.do(SET_STATUS, "active", no)
                self._publish(work, agent_id, "resumed", **cause.facts())
                work.notifications.append(("run", 0))
            if guidance is not None:
                self._add_control(work, no, "resume", guidance)
                if running is None:
                    self._add(work, no, "wake")

    def steer(self, agent_id: str, guidance: Any, cause: AgentCause = NO_CAUSE) -> None:
        """Add guidance that is read before the next model call. Nothing is interrupted or woken."""
        self._check_storage()
        with self.queue.transaction() as work:
            no, *_ = self._lock(work, agent_id)
            self._add_control(work, no, "steer", guidance)
            self._tell(work, agent_id, "steered", cause)

    def interrupt(
        self, agent_id: str, guidance: Any = None, step_no: int | None = None, cause: AgentCause = NO_CAUSE
    ) -> None:
        """Interrupt the running step; the next begins with the guidance. A paused agent continues."""
        if guidance is not None:
            self._check_storage()
        with self.queue.transaction() as work:
            no, status, running, at = self._lock(work, agent_id)
            if step_no is not None and step_no != at:
                raise Conflict(
                    f"Agent `{agent_id}` is at step {at}, not at {step_no}.",
                    hint="It has moved on since: look at it again.",
                )
            if status == "paused":
                work.do(SET_STATUS, "active", no)
            self._add_control(work, no, "interrupt", guidance)
            if running is None:
                self._add(work, no, "wake")
            self._publish(work, agent_id, "interrupted", **cause.facts())

    def reload(
        self,
        agent_id: str,
        change: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        cause: AgentCause = NO_CAUSE,
    ) -> None:
        """Have the next step use the current settings and sources, and the configuration that `change` returns.

        `change` gets the present configuration; the agent is locked meanwhile.
        """
        if change is not None:
            self._check_storage()
        with self.queue.transaction() as work:
            no, _, running, _ = self._lock(work, agent_id)
            if change is not None:
                ((config,),) = work(CONFIG, no)
                changed = json_for_queue(change(json.loads(config)))
                work.do(SET_CONFIG, changed, no)
                work.sizes[self.queue.tenant] += count_text_bytes(changed) - count_text_bytes(config)
            self._add_control(work, no, "reload", None)
            work.notifications.append(("reload", no))  # to all workers: any of them may run its next step
            self._tell(work, agent_id, "reloaded", cause)
            if running is None:
                self._add(work, no, "wake")

    def destroy(self, agent_id: str, grace: float, cause: AgentCause = NO_CAUSE) -> None:
        """Start no further step and cancel all waiting actions. A running step has `grace` seconds to end."""
        with self.queue.transaction() as work:
            no, status, running, _ = self._lock(work, agent_id, allow_destroyed=True)
            if status == "destroyed":
                return
            work.do(CANCEL_WAITING, no)
            work.do(CLEAR_HEAD, no)
            work.do(DESTROY, "destroyed" if running is None else "destroying", grace, no)
            if running is not None:
                self._add_control(work, no, "destroy", grace)
            # Notify also the worker that keeps a session of the agent open.
            work.notifications.append(("control", no))
            if running is None or status != "destroying":
                self._publish(work, agent_id, "destroyed" if running is None else "destroying", **cause.facts())

    def set_thread(self, no: int, thread_id: str) -> None:
        """Set the thread whose session the agent uses."""
        with self.queue.transaction() as work:
            work.do(SET_THREAD, thread_id, no)

    def _check_storage(self) -> None:
        """Raise `LimitExceeded` if the tenant has used up its storage."""
        self.queue.store.check_storage()

    def _lock(
        self, work: QueueTransaction, agent_id: str, allow_destroyed: bool = False
    ) -> tuple[int, str, int | None, int]:
        rows = work(LOCK, self.queue.tenant, agent_id)
        if not rows:
            raise agent_not_found_in_queue(agent_id)
        no, status, running, step_no = rows[0]
        if status in ("destroying", "destroyed") and not allow_destroyed:
            raise Conflict(f"Agent `{agent_id}` is {status}.", hint="Create another.")
        return no, status, running, step_no

    def _add_control(self, work: QueueTransaction, no: int, verb: str, body: Any) -> None:
        text = None if body is None else json_for_queue(body)
        work.do(ADD_CONTROL, no, verb, text)
        work.count(self.queue.tenant, text)
        work.notifications.append(("control", no))

    def _add(self, work: QueueTransaction, no: int, kind: str) -> None:
        urgency = WAKE_URGENCY if kind == "wake" else URGENCY
        action = (self.queue.tenant, new_id("action"), no, kind, "null", urgency, 0.0, ATTEMPTS)
        work.add_actions(iter([action]))

    def _tell(self, work: QueueTransaction, agent_id: str, name: str, cause: AgentCause) -> None:
        """Publish what someone did that changes nothing that events tell of, if it is known who did it or why."""
        if facts := cause.facts():
            self._publish(work, agent_id, name, **facts)

    def _publish(self, work: QueueTransaction, agent_id: str, name: str, **facts: Any) -> None:
        work.add_events([(self.queue.tenant, agent_id, f"agent.{name}", json_for_queue(facts))])


def _count_fitting(lengths: Rows, asked: int) -> int:
    """Return how many rows, each a number and a length, fit on a page; one always does."""
    sums = itertools.accumulate(int(row[1]) for row in lengths[:asked])
    return min(len(lengths), max(1, sum(total <= PAGE_CHARS for total in sums)))


def _check_cursor(cursor: str | None) -> None:
    if cursor is not None and not re.fullmatch(r"[0-9]{1,18}", cursor):
        raise Invalid(f"`{cursor[:80]}` is not a cursor of this list.", hint="Pass `next` of the page before.")


def check_agent_action_state(state: str) -> ActionState:
    """Return the state of actions; raise `Invalid` for anything else."""
    known = get_args(ActionState)
    if state not in known:
        raise Invalid(f"`{state[:80]}` is not a state of actions.", hint=f"States: {', '.join(known)}.")
    return cast("ActionState", state)


def agent_action_not_found(action_id: str) -> NotFound:
    """Return the error for an action that does not exist."""
    return NotFound(f"There is no action `{action_id[:140]}`.", hint="It may have ended and been deleted.")


def _time(seconds: float | None) -> Any:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _activity(status: str, running: int | None, head: int | None, next_at: float | None, done: int) -> Activity:
    if status in ("destroying", "destroyed"):
        return status  # type: ignore[return-value]
    if status == "paused":
        return "paused" if running is None else "pausing"
    if running is not None:
        return "running"
    if head is not None:
        return "queued"
    return "waiting" if next_at is not None else "done" if done else "idle"


def _shown_setting(name: str, value: Any) -> Any:
    """Return a value of an agent's configuration as every reader may see it."""
    if not isinstance(value, str):
        return value
    return MASK if is_redacted_name(name) else redact_url_path(value) if name == "url" else value


def _agent_info(row: tuple[Any, ...]) -> AgentInfo:
    _, agent_id, kind, config, status, running, head, done, step_no, tokens, cost, thread, output, error, *times = row
    created, updated, next_at = times
    return AgentInfo(
        id=agent_id,
        kind=kind,
        config={k: _shown_setting(k, v) for k, v in json.loads(config).items()},
        status=status,
        activity=_activity(status, running, head, next_at, done),
        step_no=step_no,
        tokens=tokens,
        cost_usd=cost,
        thread_id=thread,
        last_output=None if output is None else json.loads(output),
        last_error=error,
        created_at=_time(created),
        updated_at=_time(updated),
        next_at=_time(next_at),
    )


def _delivery(tenant: str, agent: str, state: dict[str, Any]) -> DeliveryState:
    failed = [held["since"] for held in state["held"].values() if held.get("since") is not None]
    failures = max((int(held.get("failures", 0)) for held in state["held"].values()), default=0)
    return DeliveryState(
        tenant=tenant,
        agent=agent,
        failures=max(failures, int(state.get("failures", 0))) if failed else 0,
        since=min(failed, default=None),
        error=str(state.get("error") or ""),
        lost=int(state.get("lost", 0)),
        lost_at=state.get("lost_at"),
    )


def _agent_step(row: tuple[Any, ...]) -> AgentStep:
    fields = dict(zip(AgentStep.model_fields, row))
    fields["input"] = json.loads(fields["input"])
    fields["output"] = None if fields["output"] is None else json.loads(fields["output"])
    return AgentStep(**fields | {"started_at": _time(fields["started_at"]), "ended_at": _time(fields["ended_at"])})


def _action_info(row: tuple[Any, ...]) -> ActionInfo:
    fields = dict(zip(ActionInfo.model_fields, row))
    times = {name: _time(fields[name]) for name in ("created_at", "run_after", "processed_at")}
    return ActionInfo(**fields | times | {"payload": json.loads(fields["payload"])})
