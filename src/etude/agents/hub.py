"""The hub: reads each event once for the process and passes it to all subscribers.

A subscription is only a position in the stream of events. A subscriber that is slow, or that comes back later with the
last id it saw, continues from there: from memory if the events are still buffered, otherwise from the store.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Annotated, Any, Self

from pydantic import Field

from etude.errors import Conflict, Unavailable
from etude.store.action import NewAction
from etude.store.agents import AgentStore, ListeningAgent
from etude.store.queue import Queue
from etude.store.topics import HubEvent, Topics

log = logging.getLogger("etude.agents")

BUFFER_SIZE = 4096
BUFFER_BYTES = 32 << 20
"""About the most bytes of buffered events; older ones are read from the store."""
POLL_S = 0.5
BATCH_S = 0.02
READ_LIMIT = 1000
READ_BYTES = 256 << 10
"""About the most bytes of buffered events that a subscriber reads at once; it may hold them as long as it likes."""
MOST_PATTERNS = 100
"""Patterns of topics in the configuration of an agent."""
TopicPatterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=128)], ...], Field(max_length=MOST_PATTERNS)
]
MATCH_S = 0.2
"""After this much time for the patterns of one tenant, its other agents are woken without comparing their topics."""
RESUMING = ("agent.resumed", "agent.interrupted")
"""Events after which an agent that was paused reads what it missed."""


class Hub:
    """Passes on the events of a queue's store. It reads once it is started, or while it is used in a `with` block."""

    def __init__(self, queue: Queue) -> None:
        self.topics = Topics(queue)
        self._queue = queue
        self._buffer: deque[HubEvent] = deque()
        self._buffer_bytes = 0
        self._at = 0
        self._buffered_after = 0
        """All events after this id, up to `_at`, are in the buffer."""
        self._arrived = threading.Condition()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._unlisten: Callable[[], None] | None = None

    def start(self) -> Self:
        """Start to read new events."""
        self._at = self._buffered_after = self.topics.last_settled()
        self._catch_up()
        self._unlisten = self._queue.listen(self._on_notification)
        threading.Thread(target=self._read, name="etude-hub", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop reading. Subscribers that are waiting return."""
        self._closed.set()
        self._wake.set()
        if self._unlisten:
            self._unlisten()
        with self._arrived:
            self._arrived.notify_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_notification(self, kind: str, _: int) -> None:
        if kind in ("event", "all"):
            self._wake.set()

    def _read(self) -> None:
        while not self._closed.is_set():
            if self._wake.wait(POLL_S):
                # Batch events that arrive together.
                self._closed.wait(BATCH_S)
            self._wake.clear()
            try:
                self._catch_up()
            except Unavailable:
                continue  # try again at the next poll
            except Exception:
                log.exception("the hub failed to read events; trying again")

    def _catch_up(self) -> None:
        while events := self.topics.read(self._at, READ_LIMIT):
            self._add_to_buffer(events)

    def _add_to_buffer(self, events: Sequence[HubEvent]) -> None:
        with self._arrived:
            for event in events:
                self._buffer.append(event)
                self._buffer_bytes += event.size
                while len(self._buffer) > BUFFER_SIZE or self._buffer_bytes > BUFFER_BYTES:
                    oldest = self._buffer.popleft()
                    self._buffer_bytes -= oldest.size
                    self._buffered_after = oldest.id
            self._at = events[-1].id
            self._arrived.notify_all()
        for callback in list(self._callbacks):
            callback()

    @property
    def at(self) -> int:
        """The id of the last event read."""
        return self._at

    def publish(self, topic: str, body: Any, agent: str | None = None) -> None:
        """Publish an event to the subscribers of all processes."""
        self.topics.publish(topic, body, agent)

    def subscribe(
        self,
        topics: Sequence[str] = ("*",),
        *,
        agent: str | None = None,
        tenant: str | None = None,
        after: int | None = None,
    ) -> HubSubscription:
        """Subscribe to events whose topic matches a pattern, such as `agent.*`, after an id or from now on."""
        owner = self._queue.tenant if tenant is None else tenant
        return HubSubscription(self, HubEventFilter(owner, tuple(topics), agent), self._at if after is None else after)

    def on_events(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, from another thread, whenever events arrive; return a function that unsubscribes."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def since(self, after: int, tenant: str = "", agent: str | None = None) -> tuple[Sequence[HubEvent], int]:
        """Return events after an id, in order, and the id to continue from.

        Events that are no longer in memory are read from the store, and there only those of `agent`, if it is given.
        """
        with self._arrived:
            last = self._at
            if after >= self._buffered_after:
                newer = list(takewhile(lambda event: event.id > after, reversed(self._buffer)))[::-1]
                fitting = max(1, sum(size <= READ_BYTES for size in accumulate(event.size for event in newer)))
                return newer[:fitting], newer[fitting - 1].id if fitting < len(newer) else max(after, last)
        if agent is None:
            events = self.topics.read(after, READ_LIMIT)
            return events, events[-1].id if events else last
        events = self.topics.read_agent(tenant, agent, after, last, READ_LIMIT)
        # A page may be cut short by its bytes, so only an empty one says that there are no more.
        return events, events[-1].id if events else last

    def wait(self, after: int, seconds: float) -> bool:
        """Wait until there is an event after an id; return False if none came in time."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._at > after or self._closed.is_set(), seconds)
            return self._at > after


@dataclass(frozen=True)
class HubEventFilter:
    """The events that a subscriber wants."""

    tenant: str
    topics: tuple[str, ...]
    agent: str | None = None

    def matches(self, event: HubEvent) -> bool:
        """Return True if the event is wanted."""
        return (
            event.tenant == self.tenant
            and (self.agent is None or event.agent == self.agent)
            and _any_pattern(self.topics).match(event.topic) is not None
        )


@lru_cache(maxsize=256)
def _any_pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) if patterns else r"(?!)")


class HubSubscription:
    """A position in the stream of events. To continue later, pass `at`, the last id read, as `after`."""

    def __init__(self, hub: Hub, wanted: HubEventFilter, after: int) -> None:
        self._hub = hub
        self._wanted = wanted
        self.at = after

    def matches(self, event: HubEvent) -> bool:
        """Return True if the event is wanted."""
        return self._wanted.matches(event)

    def read(self, timeout: float = 0.0) -> list[HubEvent]:
        """Return the events since the last call. If there are none, wait for one, at most `timeout` seconds."""
        until = time.monotonic() + timeout
        while True:
            found = self._next_events()
            left = until - time.monotonic()
            if found or left <= 0 or not self._hub.wait(self.at, left):
                return found

    def _next_events(self) -> list[HubEvent]:
        events, self.at = self._hub.since(self.at, self._wanted.tenant, self._wanted.agent)
        return [event for event in events if self.matches(event)]

    def __iter__(self) -> Iterator[HubEvent]:
        while not self._hub._closed.is_set():
            yield from self.read(timeout=1.0)


class HubWaker:
    """Wakes the agents of all tenants that listen to events."""

    def __init__(self, agent_store: AgentStore) -> None:
        self._agent_store = agent_store
        self._topics = Topics(agent_store.queue)
        self._at: int | None = None

    def wake(self) -> None:
        """Read new events and wake the agents that want them; the first time, wake all listening agents.

        The first time, events may have been published while no worker was running.
        """
        listening = self._agent_store.listening()
        if not listening:
            self._at = None  # reading events would serve no agent
            return
        if self._at is None:
            at = self._topics.last_settled()
            for agent in listening:
                if not agent.step_queued and not agent.state.get("down"):
                    self._wake_agent(agent, None)
            self._at = at
        while events := self._topics.read(self._at, READ_LIMIT):
            at = events[-1].id
            by_tenant: dict[str, list[HubEvent]] = {}
            for event in {(event.tenant, event.topic, event.agent): event for event in events}.values():
                by_tenant.setdefault(event.tenant, []).append(event)
            taken = dict.fromkeys(by_tenant, 0.0)
            # Query again: an agent created since the first query may have missed the events read since.
            for agent in self._agent_store.listening():
                own = by_tenant.get(agent.tenant)
                # A queued step reads all events.
                if own and not agent.step_queued:
                    started = time.monotonic()
                    late = taken[agent.tenant] > MATCH_S and not agent.state.get("down")
                    self._wake_agent(agent, f"deliver:{agent.id}:{at}", None if late else own)
                    taken[agent.tenant] += time.monotonic() - started
            # Only now: if the store fails before this, the agents are woken again.
            self._at = at

    def _wake_agent(self, agent: ListeningAgent, name: str | None, events: Sequence[HubEvent] | None = None) -> None:
        """Wake an agent if one of the events does, or in any case if there are none given."""
        try:
            if events is None or any(hub_event_wakes(agent, event) for event in events):
                # Without the check of the tenant's storage: it is one empty message, and its step waits for room.
                self._agent_store.queue.of(agent.tenant).enqueue(NewAction(agent.id, id=name))
        except Conflict:
            pass  # it was destroyed meanwhile
        except Unavailable:
            raise
        except Exception:
            # The agents of all other tenants are still woken.
            log.exception("agent %s of tenant %s cannot be woken", agent.id, agent.tenant)


def hub_event_wakes(agent: ListeningAgent, event: HubEvent) -> bool:
    """Return True if an event wakes an agent.

    An agent that waits to retry keeps `held` and `down` in its state: the agents whose events do not wake it, and
    whether none does. Its scheduled retry reads those events.
    """
    if HubEventFilter(agent.tenant, RESUMING, agent.id).matches(event):
        return True
    if agent.state.get("down") or (event.agent or "") in agent.state.get("held", ()):
        return False
    topics = tuple(agent.config.get("topics", ("*",)))[:MOST_PATTERNS]
    return HubEventFilter(agent.tenant, topics, agent.config.get("agent")).matches(event)
