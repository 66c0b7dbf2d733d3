"""Events by topic: written in the transaction of the change they report, read in order, resumed by id."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import PrivateAttr

from etude.entities import Entity
from etude.errors import Invalid
from etude.store.base import Rows
from etude.store.paging import store_row_limit
from etude.store.queue import Queue
from etude.store.queue_dialect import json_for_queue

TOPIC = re.compile(r"[a-z0-9_]+([.-][a-z0-9_]+)*")
MAX_BODY = 1 << 20
PAGE_CHARS = 1 << 20
"""The most characters of the bodies of events that are read at once; one event is always read."""
SETTLE_S = 2.0
"""How long to wait for a missing id: its transaction may not have committed yet."""

# An event from the future was written before the clock was set back, so it is not recent.
READ = """SELECT id, tenant, topic, agent, body, created_at, CASE WHEN abs(created_at - {now}) < ? THEN 1 ELSE 0 END
    FROM hub_events WHERE id > ? ORDER BY id LIMIT ?"""
READ_AGENT = """SELECT id, tenant, topic, agent, body, created_at, 0 FROM hub_events
    WHERE tenant = ? AND agent = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"""
READ_WITHOUT_AGENT = """SELECT id, tenant, topic, agent, body, created_at, 0 FROM hub_events
    WHERE tenant = ? AND agent IS NULL AND id > ? AND id <= ? ORDER BY id LIMIT ?"""
BOUNDS = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM hub_events WHERE tenant = ? AND agent = ?"
LIST = """SELECT id, tenant, topic, agent, body, created_at, 0 FROM hub_events
    WHERE tenant = ? AND id > ? AND topic LIKE ? ESCAPE '!'{where} ORDER BY id {order} LIMIT ?"""
SETTLED = "SELECT coalesce(max(id), 0) FROM hub_events WHERE created_at <= {now} - ?"


ANY = "*"


class HubEvent(Entity):
    """An event, as subscribers get it."""

    id: int
    tenant: str
    topic: str
    agent: str | None
    body: Any
    created_at: datetime
    _size: int = PrivateAttr(default=0)

    @property
    def size(self) -> int:
        """About how many bytes the event takes in memory."""
        return self._size


class Topics:
    """The events of all tenants; events are published for the queue's tenant."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def publish(self, topic: str, body: Any, agent: str | None = None) -> None:
        """Publish an event under a topic."""
        text = check_topic_event(topic, body)
        with self.queue.transaction() as work:
            work.add_events([(self.queue.tenant, agent, topic, text)])

    def last_settled(self) -> int:
        """Return the highest id that is old enough for no lower id to appear any more."""
        return int(self.queue.read(SETTLED, SETTLE_S)[0][0])

    def bounds(self, tenant: str, agent: str) -> tuple[int, int]:
        """Return the ids of an agent's first event, its creation, and of its last."""
        first, last = self.queue.read(BOUNDS, tenant, agent)[0]
        return int(first), int(last)

    def read(self, after: int, limit: int = 1000) -> list[HubEvent]:
        """Return the events after an id, in order, up to the first missing id that may still appear."""
        rows, _ = self._read_page(READ, SETTLE_S, after, limit=limit)
        return [_event(row) for row in topic_events_before_gap(rows, after)]

    def read_agent(self, tenant: str, agent: str | None, after: int, last: int, limit: int = 1000) -> list[HubEvent]:
        """Return the events of one agent, or those of no agent, after an id and up to an id read before."""
        if agent is None:
            rows, _ = self._read_page(READ_WITHOUT_AGENT, tenant, after, last, limit=limit)
        else:
            rows, _ = self._read_page(READ_AGENT, tenant, agent, after, last, limit=limit)
        return [_event(row) for row in rows]

    def _read_page(self, statement: str, *values: Any, limit: int) -> tuple[Rows, bool]:
        """Return the first rows whose bodies fit into a page, and whether more rows may follow.

        The lengths are read first: a thousand bodies may take a gigabyte.
        """
        lengths = self.queue.read(statement.replace(" body,", " length(body),"), *values, limit)
        sums = itertools.accumulate(int(row[4]) for row in lengths)
        fitting = max(1, sum(total <= PAGE_CHARS for total in sums))
        more = len(lengths) == limit or fitting < len(lengths)
        return (self.queue.read(statement, *values, min(fitting, limit)) if lengths else lengths), more

    def list(
        self, topic: str = ANY, agent: str | None = None, after: int | None = None, limit: int = 100
    ) -> Sequence[HubEvent]:
        """Return events of the queue's tenant in order: the newest ones, or the first ones after an id.

        `*` in a topic stands for any text.
        """
        return self.page(topic, agent, after, limit)[0]

    def page(
        self, topic: str = ANY, agent: str | None = None, after: int | None = None, limit: int = 100
    ) -> tuple[Sequence[HubEvent], bool]:
        """Return events as `list` does, at most `PAGE_CHARS` of them, and whether there may be more."""
        pattern = topic.replace("!", "!!").replace("_", "!_").replace("%", "!%").replace("*", "%")
        where, values = (" AND agent = ?", [agent]) if agent is not None else ("", [])
        statement = LIST.replace("{where}", where).replace("{order}", "DESC" if after is None else "ASC")
        where_values = (self.queue.tenant, after or 0, pattern, *values)
        rows, more = self._read_page(statement, *where_values, limit=store_row_limit(limit))
        return [_event(row) for row in (reversed(rows) if after is None else rows)], more


def check_topic_event(topic: str, body: Any, largest: int = MAX_BODY) -> str:
    """Check the topic and the body of an event, and return the body as JSON."""
    if not isinstance(topic, str) or len(topic) > 128 or not TOPIC.fullmatch(topic):
        raise Invalid(
            f"`{str(topic)[:140]}` is not a valid topic.",
            hint="Use at most 128 lower-case letters, digits and _, with single dots or hyphens between them.",
        )
    try:
        text = json_for_queue(body, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(
            f"The body of the event cannot be written as JSON: {error}.", hint="Use text, numbers, lists and objects."
        ) from None
    if len(text) > largest:
        raise Invalid(f"The event has {len(text):,} characters.", hint=f"Use at most {largest:,}.")
    return text


def topic_events_before_gap(rows: Rows, after: int) -> Sequence[tuple[Any, ...]]:
    """Return the rows up to the first recent gap: an id is assigned before its transaction commits."""
    for index, row in enumerate(rows):
        before = rows[index - 1][0] if index else after
        if row[0] > before + 1 and row[6]:
            return rows[:index]
    return rows


def _event(row: tuple[Any, ...]) -> HubEvent:
    event_id, tenant, topic, agent, body, created, _ = row
    # Skip validation: the event was checked when it was written, and checking again costs more than reading.
    event = HubEvent.model_construct(
        id=event_id,
        tenant=tenant,
        topic=topic,
        agent=agent,
        body=json.loads(body),
        created_at=datetime.fromtimestamp(created, UTC),
    )
    event._size = 500 + len(body) + 64 * sum(map(body.count, ",[{"))
    return event
