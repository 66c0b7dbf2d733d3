"""The hub: reads each event once for the process and hands it to everyone who listens.

A subscription is a place in the stream, nothing more: whoever is slow, or comes back later with the last id it saw,
reads on from there, from memory where it can and from the store where it cannot.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any, Self

from etude.errors import Conflict, Unavailable
from etude.store.agents import AgentStore
from etude.store.queue import Queue
from etude.store.topics import HubEvent, Topics

log = logging.getLogger("etude.agents")

KEPT = 4096
LOOK_S = 0.5
BREATH_S = 0.02
AT_ONCE = 1000
GOES_ON = ("agent.resumed", "agent.interrupted")
"""After these an agent that was paused looks for what came meanwhile."""


class Hub:
    """Hands out events of a queue's store. Start it, or use it as a context manager, to have it read."""

    def __init__(self, queue: Queue) -> None:
        self.topics = Topics(queue)
        self._queue = queue
        self._kept: deque[HubEvent] = deque(maxlen=KEPT)
        self._at = 0
        self._from = 0
        """Everything after this id, up to `_at`, is kept."""
        self._news = threading.Condition()
        self._bell = threading.Event()
        self._closed = threading.Event()
        self._ready: list[Callable[[], None]] = []
        self._unlisten: Callable[[], None] | None = None

    def start(self) -> Self:
        """Begin to read what comes from now on."""
        self._at = self._from = self.topics.last_settled()
        self._catch_up()
        self._unlisten = self._queue.listen(self._on_ring)
        threading.Thread(target=self._read, name="etude-hub", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop reading; those who wait get nothing more."""
        self._closed.set()
        self._bell.set()
        if self._unlisten:
            self._unlisten()
        with self._news:
            self._news.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_ring(self, kind: str, _: int) -> None:
        if kind in ("event", "all"):
            self._bell.set()

    def _read(self) -> None:
        while not self._closed.is_set():
            if self._bell.wait(LOOK_S):
                # What comes in one breath is read in one.
                self._closed.wait(BREATH_S)
            self._bell.clear()
            try:
                self._catch_up()
            except Unavailable:
                # The store comes back, or the process ends; the next look tells.
                continue
            except Exception:
                log.exception("the hub failed to read and tries again")

    def _catch_up(self) -> None:
        while events := self.topics.read(self._at, AT_ONCE):
            self._hand_out(events)

    def _hand_out(self, events: Sequence[HubEvent]) -> None:
        with self._news:
            for event in events:
                if len(self._kept) == KEPT:
                    self._from = self._kept[0].id
                self._kept.append(event)
            self._at = events[-1].id
            self._news.notify_all()
        for ready in list(self._ready):
            ready()

    @property
    def at(self) -> int:
        """The last id that was read."""
        return self._at

    def publish(self, topic: str, body: Any, agent: str | None = None) -> None:
        """Tell whoever listens to the topic, in any process."""
        self.topics.publish(topic, body, agent)

    def subscribe(
        self,
        topics: Sequence[str] = ("*",),
        *,
        agent: str | None = None,
        tenant: str | None = None,
        after: int | None = None,
    ) -> Subscription:
        """Events whose topic fits one of the patterns, such as `agent.*`; after an id, or from now on."""
        owner = self._queue.tenant if tenant is None else tenant
        return Subscription(self, EventFilter(owner, tuple(topics), agent), self._at if after is None else after)

    def on_news(self, ready: Callable[[], None]) -> Callable[[], None]:
        """Have `ready` called, from another thread, whenever there is news; call what it returns to stop that."""
        self._ready.append(ready)
        return lambda: self._ready.remove(ready)

    def since(self, after: int, tenant: str = "", agent: str | None = None) -> tuple[Sequence[HubEvent], int]:
        """Some of the events after an id, in order, and the id to go on from.

        They come from memory, or from the store where they are older than that: there only those of the agent are read.
        """
        with self._news:
            last = self._at
            if after >= self._from:
                newer = list(takewhile(lambda event: event.id > after, reversed(self._kept)))
                return newer[::-1], max(after, last)
        if agent is None:
            events = self.topics.read(after, AT_ONCE)
            return events, events[-1].id if events else last
        events = self.topics.read_agent(tenant, agent, after, last, AT_ONCE)
        return events, events[-1].id if len(events) == AT_ONCE else last

    def wait(self, after: int, seconds: float) -> bool:
        """Wait until there is something after an id; whether there is."""
        with self._news:
            self._news.wait_for(lambda: self._at > after or self._closed.is_set(), seconds)
            return self._at > after


@dataclass(frozen=True)
class EventFilter:
    """Which events somebody asks for."""

    tenant: str
    topics: tuple[str, ...]
    agent: str | None = None

    def fits(self, event: HubEvent) -> bool:
        """Whether the event is one of those asked for."""
        return (
            event.tenant == self.tenant
            and (self.agent is None or event.agent == self.agent)
            and any(fnmatchcase(event.topic, pattern) for pattern in self.topics)
        )


class Subscription:
    """A place in the stream of events. `at` is the last id that was read: give it as `after` to go on later."""

    def __init__(self, hub: Hub, interest: EventFilter, after: int) -> None:
        self._hub = hub
        self._interest = interest
        self.at = after

    def fits(self, event: HubEvent) -> bool:
        """Whether the event is one of those asked for."""
        return self._interest.fits(event)

    def read(self, timeout: float = 0.0) -> list[HubEvent]:
        """The events that have come since the last call; waits for one at most so long."""
        until = time.monotonic() + timeout
        while True:
            found = self._take()
            left = until - time.monotonic()
            if found or left <= 0 or not self._hub.wait(self.at, left):
                return found

    def _take(self) -> list[HubEvent]:
        events, self.at = self._hub.since(self.at, self._interest.tenant, self._interest.agent)
        return [event for event in events if self.fits(event)]

    def __iter__(self) -> Iterator[HubEvent]:
        while not self._hub._closed.is_set():
            yield from self.read(timeout=1.0)


class Waker:
    """Wakes the agents of all tenants that an event is for."""

    def __init__(self, agent_store: AgentStore) -> None:
        self._agent_store = agent_store
        self._topics = Topics(agent_store.queue)
        self._at: int | None = None

    def wake(self) -> None:
        """Look at the news; the first time, wake all: something may have come while nobody looked."""
        listening = self._agent_store.listening()
        if not listening:
            self._at = None  # what comes meanwhile is read for nobody
            return
        if self._at is None:
            at = self._topics.last_settled()
            for tenant, agent_id, _, ahead in listening:
                if not ahead:
                    self._send(tenant, agent_id, None)
            self._at = at
        while events := self._topics.read(self._at, AT_ONCE):
            at = events[-1].id
            # Asked again: one that came after the first look may have missed what was read since.
            for tenant, agent_id, config, ahead in self._agent_store.listening():
                if ahead:  # its next step looks at all of them
                    continue
                asked = EventFilter(tenant, tuple(config.get("topics", ("*",))), config.get("agent"))
                own = EventFilter(tenant, GOES_ON, agent_id)
                if any(asked.fits(event) or own.fits(event) for event in events):
                    self._send(tenant, agent_id, f"deliver:{agent_id}:{at}")
            # Only now: where the store was away, they are woken again.
            self._at = at

    def _send(self, tenant: str, agent_id: str, name: str | None) -> None:
        with suppress(Conflict):  # it is destroyed meanwhile, which is no reason not to wake the others
            self._agent_store.of(tenant).message(agent_id, None, id=name)
