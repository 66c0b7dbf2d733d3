"""The verbs for agents: create, message, pause, resume, steer, interrupt, destroy, reload.

Three intents: stop for now and keep the state (pause), change course (steer, or interrupt if it cannot wait), stop for
good (destroy). Every verb is recorded before the worker that runs the agent is notified.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from etude.agents.agent_kinds import check_agent_config, load_agent_kind
from etude.entities import Entity
from etude.errors import Conflict, Invalid, LimitExceeded, NotFound
from etude.ids import new_id
from etude.store.agents import (
    NO_CAUSE,
    ActionInfo,
    ActionState,
    AgentCause,
    AgentInfo,
    AgentStep,
    AgentStore,
    agent_action_not_found,
)
from etude.store.base import Store
from etude.store.identity import Role
from etude.store.paging import Page
from etude.store.queue import Queue

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
MAX_BODY = 1 << 20
MAX_REASON = 1000
MOST_URGENCY = 1000
LONGEST_DELAY_S = 31_536_000.0
ENDED = frozenset({"done", "failed", "cancelled"})


class Sent(Entity):
    """A message that was queued."""

    action: str


class AgentControl:
    """The agents of one tenant."""

    def __init__(self, store: Store, queue: Queue | None = None) -> None:
        self.queue = queue or Queue(store)
        self.agent_store = AgentStore(self.queue)

    # Reading.

    def get(self, agent_id: str) -> AgentInfo:
        """Return an agent."""
        return self.agent_store.agent(agent_id)

    def list(self, status: str | None = None, limit: int = 50, cursor: str | None = None) -> Page[AgentInfo]:
        """Return a page of agents, newest first. Destroyed agents are listed only if `status` asks for them."""
        return self.agent_store.agents(status, limit, cursor)

    def steps(self, agent_id: str, after: int = 0, limit: int = 100) -> Sequence[AgentStep]:
        """Return the steps of an agent after step number `after`, in order."""
        return self.agent_store.steps(agent_id, after, limit)

    def steps_page(self, agent_id: str, after: int = 0, limit: int = 100) -> Page[AgentStep]:
        """Return a page of steps after step number `after`, in order; `next` is the value of `after` for the next."""
        return self.agent_store.steps_page(agent_id, after, limit)

    def state(self, agent_id: str) -> dict[str, Any]:
        """Return the state that the agent keeps between steps."""
        return self.agent_store.state(agent_id)

    def config(self, agent_id: str) -> dict[str, Any]:
        """Return the agent's full configuration, including secrets."""
        return self.agent_store.config(agent_id)

    def wait(self, action_id: str, timeout: float = 60.0) -> ActionInfo:
        """Wait until an action has ended, and return it. Raise `LimitExceeded` after `timeout` seconds."""
        notified = threading.Event()
        stop = self.queue.listen(lambda *_: notified.set())
        deadline = time.monotonic() + timeout
        try:
            while True:
                notified.clear()
                found = self.action(action_id)
                if found.state in ENDED:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    raise LimitExceeded(
                        f"Action `{action_id}` is still {found.state} after {timeout:g} s.",
                        hint="Look at its agent, or wait longer.",
                    )
                notified.wait(min(left, 0.5))
        finally:
            stop()

    # Verbs.

    def create(
        self,
        kind: str,
        config: Mapping[str, Any] | None = None,
        id: str | None = None,
        key_id: str | None = None,
        *,
        cause: AgentCause = NO_CAUSE,
    ) -> AgentInfo:
        """Create an agent, which starts at once. If a key is given, usage counts toward the key's daily quota."""
        agent_id = new_id("agent") if id is None else id
        if not ID.fullmatch(agent_id):
            raise Invalid(
                f"`{agent_id[:140]}` is not a valid agent id.",
                hint="Use at most 128 letters, digits and . _ : -, starting with a letter or a digit.",
            )
        checked = check_agent_config(kind, config or {})
        self.agent_store.create(
            agent_id, kind, checked, key_id, listens=load_agent_kind(kind).listens, cause=_checked(cause)
        )
        return self.get(agent_id)

    def message(
        self,
        agent_id: str,
        body: Any,
        *,
        urgency: int = 100,
        delay: float = 0.0,
        id: str | None = None,
        cause: AgentCause = NO_CAUSE,
    ) -> str:
        """Queue a message, which gets a step of its own, and return the id of its action.

        Of two messages with the same id only the first is queued.
        """
        _check_body(body)
        if not isinstance(urgency, int) or not 0 <= urgency <= MOST_URGENCY:
            raise Invalid(
                f"`{urgency}` is not a valid urgency.", hint=f"Give a whole number from 0 (first) to {MOST_URGENCY}."
            )
        if not 0 <= delay <= LONGEST_DELAY_S:
            raise Invalid(
                f"A delay of {delay:g} s is not possible.", hint=f"Give a number from 0 to {LONGEST_DELAY_S:g} seconds."
            )
        if id is not None and not 0 < len(id) <= 128:
            raise Invalid(f"An id of {len(id):,} characters is not possible.", hint="Use 1 to 128 characters.")
        name = self.agent_store.message(agent_id, body, _checked(cause), urgency=urgency, delay=delay, id=id)
        if id is not None and (known := self.agent_store.action(id)) is not None and known.agent != agent_id:
            raise Conflict(f"Message `{id}` was already sent to agent `{known.agent}`.", hint="Choose another id.")
        return name

    def pause(
        self, agent_id: str, mode: Literal["after_step", "now"] = "after_step", *, cause: AgentCause = NO_CAUSE
    ) -> AgentInfo:
        """Start no further step. `now` also interrupts the running step, which starts again after `resume`."""
        if mode not in ("after_step", "now"):
            raise Invalid(f"`{mode}` is not a valid pause mode.", hint="Give `after_step` or `now`.")
        self.agent_store.pause(agent_id, mode == "now", _checked(cause))
        return self.get(agent_id)

    def resume(self, agent_id: str, guidance: Any = None, *, cause: AgentCause = NO_CAUSE) -> AgentInfo:
        """Continue a paused agent. If guidance is given, a step begins with it at once."""
        _check_body(guidance)
        self.agent_store.resume(agent_id, guidance, _checked(cause))
        return self.get(agent_id)

    def steer(self, agent_id: str, guidance: Any, *, cause: AgentCause = NO_CAUSE) -> AgentInfo:
        """Give guidance, read before the next model call. Nothing is interrupted, and an idle agent is not woken."""
        if guidance is None:
            raise Invalid("The guidance is empty.", hint="Say what the agent should do.")
        _check_body(guidance)
        self.agent_store.steer(agent_id, guidance, _checked(cause))
        return self.get(agent_id)

    def interrupt(
        self, agent_id: str, guidance: Any = None, step_no: int | None = None, *, cause: AgentCause = NO_CAUSE
    ) -> AgentInfo:
        """Interrupt the running step and begin the next with the guidance. A paused agent continues.

        If `step_no` is given and the agent has made another number of steps, raise `Conflict`: a late interrupt must
        not hit a later step.
        """
        _check_body(guidance)
        self.agent_store.interrupt(agent_id, guidance, step_no, _checked(cause))
        return self.get(agent_id)

    def destroy(self, agent_id: str, grace: float = 30.0, *, cause: AgentCause = NO_CAUSE) -> AgentInfo:
        """End the agent: start no further step, and give a running one `grace` seconds to end. Its record is kept."""
        if not 0 <= grace <= 86_400:
            raise Invalid(
                f"A grace period of {grace:g} s is not possible.", hint="Give a number from 0 to 86400 seconds."
            )
        self.agent_store.destroy(agent_id, grace, _checked(cause))
        return self.get(agent_id)

    def reload(
        self, agent_id: str, config: Mapping[str, Any] | None = None, *, cause: AgentCause = NO_CAUSE
    ) -> AgentInfo:
        """Have the next step use the current settings and sources, in a new session.

        The fields of `config` replace those of the agent's configuration; fields that are left out stay as they are.
        """
        kind = self.get(agent_id).kind
        if not config:
            self.agent_store.reload(agent_id, cause=_checked(cause))
            return self.get(agent_id)
        fields = load_agent_kind(kind).Config.model_fields

        def merge(present: dict[str, Any]) -> dict[str, Any]:
            # An upgrade may have removed fields that the agent was created with.
            return check_agent_config(kind, {k: v for k, v in present.items() if k in fields} | dict(config))

        self.agent_store.reload(agent_id, merge, _checked(cause))
        return self.get(agent_id)

    def reload_all(self, *, cause: AgentCause = NO_CAUSE) -> int:
        """Have the next step of every agent, in every worker, use the current settings and sources; return how many."""
        reloaded = 0
        for agent_id in self.agent_store.all_agents():
            with suppress(NotFound, Conflict):  # it was destroyed meanwhile
                self.agent_store.reload(agent_id, cause=_checked(cause))
                reloaded += 1
        return reloaded

    # Actions.

    def actions(
        self,
        agent_id: str | None = None,
        state: ActionState | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ActionInfo]:
        """Return a page of the actions of all agents or of one, newest first."""
        return self.agent_store.actions(agent_id, state, limit, cursor)

    def action(self, action_id: str) -> ActionInfo:
        """Return an action."""
        found = self.agent_store.action(action_id)
        if found is None:
            raise agent_action_not_found(action_id)
        return found

    def attempts(self, action: ActionInfo) -> Sequence[AgentStep]:
        """Return the recorded steps of an action, one for each attempt that got so far."""
        return self.agent_store.attempts(action)

    def cancel_action(self, action_id: str, *, cause: AgentCause = NO_CAUSE) -> ActionInfo:
        """Cancel an action that waits; one that runs is stopped by interrupting its agent."""
        self.agent_store.cancel_action(action_id, _checked(cause))
        return self.action(action_id)

    def retry_action(self, action_id: str, *, cause: AgentCause = NO_CAUSE) -> ActionInfo:
        """Queue an action again that failed or was cancelled."""
        self.agent_store.retry_action(action_id, _checked(cause))
        return self.action(action_id)


def require_agent_control(agents: AgentControl, agent_id: str, require: Callable[[Role], None]) -> AgentControl:
    """Return the agents if the caller may control this one: controlling it takes the same role as creating it."""
    try:
        admin = load_agent_kind(agents.get(agent_id).kind).admin
    except Invalid:
        admin = True  # the kind is no longer installed, so its role is unknown
    require("admin" if admin else "analyst")
    return agents


def _checked(cause: AgentCause) -> AgentCause:
    """Return who did something and why; raise if that is too long."""
    if len(cause.reason) > MAX_REASON:
        raise Invalid(f"The reason has {len(cause.reason):,} characters.", hint=f"Use at most {MAX_REASON:,}.")
    return cause


def _check_body(body: Any) -> None:
    try:
        size = len(json.dumps(body, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(
            f"The message cannot be written as JSON: {error}.", hint="Use text, numbers, lists and objects."
        ) from None
    if size > MAX_BODY:
        raise Invalid(f"The message has {size:,} bytes.", hint=f"Use at most {MAX_BODY:,}.")
