"""Events for whoever listens: written with what they tell of, read by topic, resumed by id."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from etude.entities import Entity
from etude.errors import Invalid
from etude.store.base import Rows
from etude.store.queue import Queue
from etude.store.queue_dialect import to_text

TOPIC = re.compile(r"[a-z0-9_]+([.-][a-z0-9_]+)*")
LARGEST = 1 << 20
SETTLE_S = 2.0
"""How long an id that is missing is waited for: its transaction may not have committed yet."""

READ = """SELECT id, tenant, topic, agent, body, created_at, CASE WHEN created_at > {now} - ? THEN 1 ELSE 0 END
    FROM hub_events WHERE id > ? ORDER BY id LIMIT ?"""
READ_AGENT = """SELECT id, tenant, topic, agent, body, created_at, 0 FROM hub_events
    WHERE tenant = ? AND agent = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"""
BOUNDS = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM hub_events WHERE tenant = ? AND agent = ?"
SETTLED = "SELECT coalesce(max(id), 0) FROM hub_events WHERE created_at <= {now} - ?"


class HubEvent(Entity):
    """Something that happened, as those who listen get it."""

    id: int
    tenant: str
    topic: str
    agent: str | None
    body: Any
    created_at: datetime


class Topics:
    """The events of all tenants, as the process that hands them out reads them."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def publish(self, topic: str, body: Any, agent: str | None = None) -> None:
        """Tell whoever listens to the topic."""
        text = check_event(topic, body)
        with self.queue.transaction() as work:
            work.add_events([(self.queue.tenant, agent, topic, text)])

    def last_settled(self) -> int:
        """The highest id so old that none below it can still come."""
        return int(self.queue.read(SETTLED, SETTLE_S)[0][0])

    def bounds(self, tenant: str, agent: str) -> tuple[int, int]:
        """The first id of an agent's events, that it was created, and the last."""
        first, last = self.queue.read(BOUNDS, tenant, agent)[0]
        return int(first), int(last)

    def read(self, after: int, limit: int = 1000) -> list[HubEvent]:
        """The events after an id, in order. One whose predecessor may still come is not told yet."""
        return [_event(row) for row in settled(self.queue.read(READ, SETTLE_S, after, limit), after)]

    def read_agent(self, tenant: str, agent: str, after: int, last: int, limit: int = 1000) -> list[HubEvent]:
        """The events of one agent after an id, up to one that was read before, in order."""
        return [_event(row) for row in self.queue.read(READ_AGENT, tenant, agent, after, last, limit)]


def check_event(topic: str, body: Any, largest: int = LARGEST) -> str:
    """The body as it is stored, where both make an event."""
    if not isinstance(topic, str) or len(topic) > 128 or not TOPIC.fullmatch(topic):
        raise Invalid(
            f"`{str(topic)[:140]}` cannot name a topic.",
            hint="Use lower-case letters, digits and _, with dots between.",
        )
    try:
        text = to_text(body, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"An event is JSON: {error}.", hint="Use text, numbers, lists and objects.") from None
    if len(text) > largest:
        raise Invalid(f"{len(text):,} characters are too many for an event.", hint=f"At most {largest:,}.")
    return text


def settled(rows: Rows, after: int) -> Sequence[tuple[Any, ...]]:
    """The rows up to the first gap that is young: ids are given before a transaction commits, not when it does."""
    for index, row in enumerate(rows):
        before = rows[index - 1][0] if index else after
        if row[0] > before + 1 and row[6]:
            return rows[:index]
    return rows


def _event(row: tuple[Any, ...]) -> HubEvent:
    event_id, tenant, topic, agent, body, created, _ = row
    # As it is, for it was checked when it was written: to do it again costs more than to read it.
    return HubEvent.model_construct(
        id=event_id,
        tenant=tenant,
        topic=topic,
        agent=agent,
        body=json.loads(body),
        created_at=datetime.fromtimestamp(created, UTC),
    )
