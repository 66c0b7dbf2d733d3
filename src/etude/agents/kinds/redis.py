"""An agent that bridges events to Redis streams: it adds events to one stream and publishes entries of another."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from etude.agents.base import NOW, InboxItem, Next, StepContext, StepResult
from etude.agents.delivery import BATCH, Delivery, DeliveryConfig
from etude.agents.schedule import Interval
from etude.errors import Invalid, Unavailable
from etude.host_addresses import connect_to_host
from etude.settings import read_setting_reference
from etude.store.action import action_backoff
from etude.store.topics import HubEvent, check_topic_event

TIMEOUT_S = 10.0
# An entry that is not valid UTF-8 must not delay the entries after it.
CLIENT_OPTIONS: dict[str, Any] = {"decode_responses": True, "encoding_errors": "replace", "socket_timeout": TIMEOUT_S}


class RedisConfig(DeliveryConfig):
    """The Redis server, the stream to write to and the stream to read from."""

    url: str = Field(repr=False)
    """A `redis://` or `rediss://` URL. For one with a password use `env:NAME`, a variable of the worker."""
    stream: str = Field(default="etude", min_length=1)
    max_length: int = Field(default=100_000, ge=1)
    """The approximate number of entries kept in the stream."""
    listen_to: str | None = Field(default=None, min_length=1)
    """A stream whose entries, with the fields `topic` and `body` (JSON), are published as events."""
    interval_s: Interval = 5.0
    """Seconds between two reads of `listen_to`."""

    @field_validator("url")
    @classmethod
    def _is_redis(cls, url: str) -> str:
        if not url.startswith("env:"):
            _check_scheme(url)
            if "@" in url:
                raise ValueError("everyone who sees the agent would see the password: use env:NAME")
        return url

    @model_validator(mode="after")
    def _does_not_hear_itself(self) -> Self:
        if self.listen_to == self.stream:
            raise ValueError("`listen_to` and `stream` must be different streams")
        return self


class RedisAgent(Delivery[RedisConfig]):
    """Adds each event to a stream at least once, and publishes each entry of another stream exactly once."""

    Config = RedisConfig
    _client: Any = None

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Deliver new events, then publish new entries."""
        try:
            step = super().step(ctx, state, inbox)
            if self.config.listen_to is None or step.state is None or step.state["down"]:
                return step
            return self._publish_entries(ctx, step)
        finally:
            if self._client is not None:
                self._client.close()

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        """Add an event to the stream. Readers can recognise one that was added twice by its id."""
        if event.agent == ctx.agent_id:
            return  # it was read from Redis
        fields = {"id": event.id, "topic": event.topic, "agent": event.agent or "", "body": json.dumps(event.body)}
        fields["created_at"] = event.created_at.isoformat()
        self._ask(ctx, "xadd", self.config.stream, fields, maxlen=self.config.max_length, approximate=True)

    def _publish_entries(self, ctx: StepContext, step: StepResult) -> StepResult:
        memory = dict(step.state or {})
        planned = step.next.after if step.next else None
        try:
            found = self._ask(ctx, "xread", {self.config.listen_to: memory.get("read", "0-0")}, count=BATCH)
        except Unavailable as problem:
            memory["read_failures"] = memory.get("read_failures", 0) + 1
            wait = max(action_backoff(memory["read_failures"]), self.config.interval_s)
            later = Next(after=wait if planned is None else min(wait, planned))
            return StepResult(state=memory, output=step.output | {"error": problem.message}, next=later)
        entries = [entry for _, read in found or () for entry in read]
        events = [event for _, fields in entries if (event := _read_event(fields)) is not None]
        if entries:
            memory["read"] = entries[-1][0]
        memory["read_failures"] = 0
        wait = self.config.interval_s if planned is None else min(self.config.interval_s, planned)
        return StepResult(
            # Committed together with the events, so no entry is published twice.
            state=memory,
            output=step.output | {"told": len(events), "refused": len(entries) - len(events)},
            events=tuple(events),
            next=NOW if len(entries) == BATCH else Next(after=wait),
        )

    def _ask(self, ctx: StepContext, verb: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            from redis.exceptions import RedisError
        except ImportError:
            raise Invalid("redis is not installed.", hint="pip install 'etude[redis]'") from None
        try:
            if self._client is None:
                self._client = self._open(ctx)
            return getattr(self._client, verb)(*arguments, **keywords)
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis did not answer: {type(error).__name__}.") from None

    def _open(self, ctx: StepContext) -> Any:
        import redis

        url, allow = read_setting_reference(self.config.url, "The agent"), ctx.app.settings.agents.reach
        try:
            _check_scheme(url)
        except ValueError as error:
            raise Invalid(f"The variable of `{self.config.url}` cannot be used: {error}.") from None

        class Plain(redis.Connection):
            def _connect(self) -> socket.socket:
                return connect_to_host(self.host, self.port, allow, TIMEOUT_S)

        class Encrypted(redis.SSLConnection, Plain):
            """TLS on top of a connection made in the same way."""

        kind = Encrypted if url.startswith("rediss:") else Plain
        return redis.Redis.from_url(url, connection_class=kind, **CLIENT_OPTIONS)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in ("redis", "rediss"):
        raise ValueError("give a redis or rediss URL, or env:NAME")


def _read_event(fields: Mapping[str, str]) -> tuple[str, Any] | None:
    """Return the topic and the body of an entry, or None if it is not a valid event."""
    try:
        topic, body = fields.get("topic", ""), json.loads(fields.get("body", "null"))
        check_topic_event(topic, body)
    except (ValueError, RecursionError, Invalid):
        return None
    return topic, body
