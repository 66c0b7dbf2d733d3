"""Passing events on: in order, tried again until they arrive.

The state is the last event that arrived. So nothing is skipped by a crash, and an event that cannot be delivered holds
up those after it, until it is given up.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

from etude.agents.base import IDLE, NOW, InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.hub import EventFilter
from etude.entities import Entity
from etude.errors import Cancelled, Unavailable
from etude.store.action import backoff
from etude.store.queue import Queue
from etude.store.topics import HubEvent, Topics

AT_ONCE = 200
GIVE_UP_S = 86_400.0


class DeliveryConfig(Entity):
    """Which events are passed on."""

    topics: tuple[str, ...] = ("*",)
    agent: str | None = None
    """Only those of this agent."""


C = TypeVar("C", bound=DeliveryConfig)


class Delivery(Kind[C]):
    """Delivers what has come since the last time. Its own steps are not told: they would be events again."""

    quiet: ClassVar[bool] = True
    listens: ClassVar[bool] = True
    admin: ClassVar[bool] = True

    @abstractmethod
    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        """Pass an event on; `Unavailable` where it did not arrive."""

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Deliver until there is nothing more, something does not arrive, or it was much: then on in the next step.

        What arrived is kept also where the step is broken off, so that it is not sent again.
        """
        only_news = all(item.kind == "message" and item.body is None for item in inbox)
        if only_news and time.time() < state.get("retry_at", 0.0):
            # The next try is planned: whoever is down is not tried for each event.
            return StepResult(output={"sent": 0, "lost": state["lost"], "error": state["error"]})
        topics = Topics(Queue(ctx.app.store))
        wanted = EventFilter(ctx.tenant, self.config.topics, self.config.agent)
        at = int(state["at"]) if "at" in state else topics.bounds(ctx.tenant, ctx.agent_id)[0]
        failures, since, sent, lost = int(state.get("failures", 0)), state.get("since"), 0, int(state.get("lost", 0))
        error = None
        stopped = False
        while not stopped and sent < AT_ONCE and (events := topics.read(at, AT_ONCE)):
            for event in events:
                if stopped := ctx.cancel.cancelled:
                    break
                if wanted.fits(event):
                    try:
                        self.deliver(ctx, event)
                        failures, since, sent = 0, None, sent + 1
                    except Cancelled:
                        stopped = True
                        break
                    except Unavailable as problem:
                        since = since or time.time()
                        if time.time() - since < GIVE_UP_S:
                            failures, error, stopped = failures + 1, problem.message, True
                            break
                        failures, since, lost = 0, None, lost + 1
                at = event.id
        memory = {**state, "at": at, "failures": failures, "since": since, "lost": lost}
        memory |= {"error": error, "retry_at": time.time() + backoff(failures) if error else 0.0}
        output = {"sent": sent, "lost": lost} | ({"error": error} if error else {})
        later = Next(after=backoff(failures)) if error else NOW if stopped or sent >= AT_ONCE else IDLE
        return StepResult(state=memory, output=output, next=later)
