"""An agent that joins the hub with a Redis: events go to one of its streams, and entries of another are told here."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from etude.addresses import connect
from etude.agents.base import NOW, InboxItem, Next, StepContext, StepResult
from etude.agents.delivery import AT_ONCE, Delivery, DeliveryConfig
from etude.errors import Invalid, Unavailable
from etude.settings import read_reference
from etude.store.action import backoff
from etude.store.topics import HubEvent, check_event

TIMEOUT_S = 10.0
SHORTEST_S = 0.1
# An entry that is no text must not hold up those after it.
READING: dict[str, Any] = {"decode_responses": True, "encoding_errors": "replace", "socket_timeout": TIMEOUT_S}


class RedisConfig(DeliveryConfig):
    """Which Redis, which stream events go to, and which they come from."""

    url: str = Field(repr=False)
    """`redis://` or `rediss://`; one with a password is `env:NAME`, a variable of the worker."""
    stream: str = Field(default="etude", min_length=1)
    max_length: int = Field(default=100_000, ge=1)
    """About so many entries stay in the stream."""
    listen_to: str | None = Field(default=None, min_length=1)
    """A stream whose entries, with the fields `topic` and `body` (JSON), are told as events."""
    interval_s: float = Field(default=5.0, ge=SHORTEST_S)
    """How often it is looked at."""

    @field_validator("url")
    @classmethod
    def _is_redis(cls, url: str) -> str:
        if not url.startswith("env:"):
            _check_scheme(url)
            if "@" in url:
                raise ValueError("a URL with a password is seen by all who see the agent: use env:NAME")
        return url

    @model_validator(mode="after")
    def _does_not_hear_itself(self) -> Self:
        if self.listen_to == self.stream:
            raise ValueError("listen to another stream than events go to")
        return self


class RedisAgent(Delivery[RedisConfig]):
    """Adds each event to a stream, at least once, and tells those of another stream, each once."""

    Config = RedisConfig
    _client: Any = None

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Deliver what is new here, and take in what is new there."""
        try:
            step = super().step(ctx, state, inbox)
            return step if self.config.listen_to is None or "error" in step.output else self._take_in(ctx, step)
        finally:
            if self._client is not None:
                self._client.close()

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        """Add an event to the stream; its id tells those who read one twice."""
        if event.agent == ctx.agent_id:
            return  # it came from there
        fields = {"id": event.id, "topic": event.topic, "agent": event.agent or "", "body": json.dumps(event.body)}
        fields["created_at"] = event.created_at.isoformat()
        self._ask(ctx, "xadd", self.config.stream, fields, maxlen=self.config.max_length, approximate=True)

    def _take_in(self, ctx: StepContext, step: StepResult) -> StepResult:
        memory = dict(step.state or {})
        try:
            found = self._ask(ctx, "xread", {self.config.listen_to: memory.get("read", "0-0")}, count=AT_ONCE)
        except Unavailable as problem:
            memory["failures"] += 1
            later = Next(after=max(backoff(memory["failures"]), self.config.interval_s))
            return StepResult(state=memory, output=step.output | {"error": problem.message}, next=later)
        entries = [entry for _, read in found or () for entry in read]
        events = [event for _, fields in entries if (event := _read_event(fields)) is not None]
        if entries:
            memory["read"] = entries[-1][0]
        memory["failures"] = 0
        return StepResult(
            # Kept together with what is told: nothing is told twice.
            state=memory,
            output=step.output | {"told": len(events), "refused": len(entries) - len(events)},
            events=tuple(events),
            next=NOW if step.next == NOW or len(entries) == AT_ONCE else Next(after=self.config.interval_s),
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
            raise Unavailable(f"The Redis did not answer: {type(error).__name__}.") from None

    def _open(self, ctx: StepContext) -> Any:
        import redis

        url, allow = read_reference(self.config.url, "The agent"), ctx.app.settings.agents.reach
        try:
            _check_scheme(url)
        except ValueError as error:
            raise Invalid(f"`{self.config.url}` does not hold what it should: {error}.") from None

        class Plain(redis.Connection):
            def _connect(self) -> socket.socket:
                return connect(self.host, self.port, allow, TIMEOUT_S)

        class Encrypted(redis.SSLConnection, Plain):
            """TLS, on top of a connection that was made in the same way."""

        kind = Encrypted if url.startswith("rediss:") else Plain
        return redis.Redis.from_url(url, connection_class=kind, **READING)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in ("redis", "rediss"):
        raise ValueError("give a redis or rediss URL, or env:NAME")


def _read_event(fields: Mapping[str, str]) -> tuple[str, Any] | None:
    """The topic and the body of an entry, or None where it is no event."""
    try:
        topic, body = fields.get("topic", ""), json.loads(fields.get("body", "null"))
        check_event(topic, body)
    except (ValueError, RecursionError, Invalid):
        return None
    return topic, body
