"""Delivering events to a receiver outside: in order for each agent, retried until they arrive.

The state keeps the id of the last event read, and for each agent whose event could not be delivered where to continue.
An undelivered event delays only the later events of the same agent, until it arrives or is given up after a day.
If several agents are held and nothing arrives any more, the receiver is taken to be down: then only one event is tried
at a time, and new events do not wake the agent before the next attempt.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from etude.agents.base import IDLE, NOW, InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.hub import HubEventFilter, TopicPatterns
from etude.entities import Entity
from etude.errors import Cancelled, Unavailable
from etude.store.action import LONGEST_BACKOFF_S, action_backoff
from etude.store.queue import Queue
from etude.store.topics import HubEvent, Topics

BATCH = 200
GIVE_UP_S = 86_400.0
DOWN = 3
"""The receiver is taken to be down after this many failures without a success, if this many agents are held."""
EARLY_S = 0.05
"""A retry may be made this much too early: clocks differ."""


class DeliveryConfig(Entity):
    """The events to deliver."""

    topics: TopicPatterns = ("*",)
    agent: str | None = None
    """Deliver only the events of this agent."""


C = TypeVar("C", bound=DeliveryConfig)


class Delivery(Kind[C]):
    """Delivers the events since its last step. Its steps emit no events: they would have to be delivered too."""

    quiet: ClassVar[bool] = True
    listens: ClassVar[bool] = True
    admin: ClassVar[bool] = True

    @abstractmethod
    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        """Deliver one event; raise `Unavailable` if it did not arrive."""

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Deliver new events, then retry held ones if it is time; continue in the next step after a full batch.

        Events that arrived are recorded even if the step is interrupted, so they are not sent again.
        """
        woken_by_events = all(item.kind == "message" and item.body is None for item in inbox)
        scheduled = all(item.kind == "tick" for item in inbox)
        if woken_by_events and state.get("down"):
            # The next attempt is scheduled.
            return StepResult(output={"sent": 0, "lost": state["lost"], "error": state["error"]})
        batch = _Batch(self, ctx, state)
        due = [] if woken_by_events else batch.due(everyone=batch.down or not scheduled)
        batch.deliver_new()
        batch.retry(due)
        return batch.result(state)


@dataclass
class HeldAgent:
    """An agent whose next event could not be delivered."""

    after: int
    """The id after which its events are still to be delivered."""
    failures: int = 0
    since: float | None = None
    """When its next event failed first."""
    retry_at: float = 0.0


class _Batch:
    """The deliveries of one step."""

    def __init__(self, kind: Delivery[Any], ctx: StepContext, state: dict[str, Any]) -> None:
        self._kind = kind
        self._ctx = ctx
        self._topics = Topics(Queue(ctx.app.store))
        self._wanted = HubEventFilter(ctx.tenant, kind.config.topics, kind.config.agent)
        self._at = int(state["at"]) if "at" in state else self._topics.bounds(ctx.tenant, ctx.agent_id)[0]
        self.held = {agent: HeldAgent(**held) for agent, held in state.get("held", {}).items()}
        """The held agents by id; events of no agent are held under an empty id."""
        self._failures = int(state.get("failures", 0))
        self._sent = 0
        self._lost = int(state.get("lost", 0))
        self._lost_at: float | None = state.get("lost_at")
        self._error: str | None = state.get("error")
        self._stopped = False
        """True if no further delivery is to be tried in this step."""
        self._interrupted = False

    @property
    def down(self) -> bool:
        """True if the receiver is taken to be down."""
        return self._failures >= DOWN and len(self.held) >= DOWN

    def due(self, everyone: bool) -> list[str]:
        """Return the held agents to retry, the most overdue first: those that are due, or all."""
        now = time.time()
        waits = {agent: held.retry_at - now for agent, held in self.held.items()}
        # A wait longer than the longest backoff means that the clock was set back.
        due = [a for a, wait in waits.items() if everyone or not EARLY_S < wait <= LONGEST_BACKOFF_S]
        return sorted(due, key=lambda agent: waits[agent])

    def deliver_new(self) -> None:
        """Deliver the events that no step has read, except those of held agents."""
        while self._sent < BATCH and (events := self._topics.read(self._at, BATCH - self._sent)):
            for event in events:
                if (event.agent or "") not in self.held and self._wanted.matches(event):
                    self._deliver(event, HeldAgent(after=event.id - 1))
                if self._interrupted:
                    return
                self._at = event.id
                if self._stopped:
                    return

    def retry(self, agents: list[str]) -> None:
        """Deliver the events of held agents, in order, up to the last event read."""
        for agent in agents:
            if self._stopped:
                return
            if self._deliver_held(agent, self.held[agent]):
                del self.held[agent]

    def _deliver_held(self, agent: str, held: HeldAgent) -> bool:
        while events := self._topics.read_agent(self._ctx.tenant, agent or None, held.after, self._at, BATCH):
            for event in events:
                if self._wanted.matches(event) and not self._deliver(event, held):
                    return False
                held.after = event.id
        return True

    def _deliver(self, event: HubEvent, held: HeldAgent) -> bool:
        """Deliver an event of an agent; return False, and hold the agent, if it is to be tried again."""
        try:
            self._ctx.check()
            self._kind.deliver(self._ctx, event)
        except Cancelled:
            self._interrupted = self._stopped = True
            return False
        except Unavailable as problem:
            return self._fail(event, held, problem.message)
        self._sent += 1
        self._failures = held.failures = 0
        held.since = None
        return True

    def _fail(self, event: HubEvent, held: HeldAgent, error: str) -> bool:
        now = time.time()
        since = now if held.since is None else held.since
        if now - since >= GIVE_UP_S:
            self._lost += 1
            self._lost_at = now
            held.failures, held.since = 0, None
            return True
        held.failures, held.since = held.failures + 1, since
        held.retry_at = now + action_backoff(held.failures)
        self.held[event.agent or ""] = held
        self._failures += 1
        self._error = error
        self._stopped = self.down
        return False

    def result(self, state: dict[str, Any]) -> StepResult:
        """Return the result of the step: the new state, and when to continue."""
        error = self._error if self.held else None
        memory: dict[str, Any] = {
            "at": self._at,
            "lost": self._lost,
            "lost_at": self._lost_at,
            "failures": self._failures,
            "down": self.down,
            "error": error,
        }
        memory["held"] = {agent: asdict(held) for agent, held in self.held.items()}
        output = {"sent": self._sent, "lost": self._lost} | ({"error": error} if error else {})
        if self._interrupted or self._sent >= BATCH:
            later = NOW
        elif self.down:
            later = Next(after=action_backoff(self._failures))
        elif self.held:
            wait = min(held.retry_at for held in self.held.values()) - time.time()
            later = Next(after=min(max(wait, 0.0), LONGEST_BACKOFF_S))
        else:
            later = IDLE
        return StepResult(state=state | memory, output=output, next=later)
