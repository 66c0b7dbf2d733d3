"""An agent that passes events on to a URL: signed, in order, tried again until they arrive.

Its state is the last event that arrived. So nothing is skipped by a crash, and an event that cannot be delivered
holds up those after it, until it is given up.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import ssl
import time
from fnmatch import fnmatchcase
from http.client import HTTPConnection, HTTPException
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from etude.agents.address import connect
from etude.agents.base import IDLE, Context, Item, Kind, Next, Step
from etude.entities import Entity
from etude.errors import Invalid, Unavailable
from etude.store.queue import Queue, backoff
from etude.store.topics import HubEvent, Topics

TIMEOUT_S = 10.0
AT_ONCE = 200
GIVE_UP_S = 86_400.0


class WebhookConfig(Entity):
    """Where events go, and which."""

    url: str
    secret: str = Field(min_length=8, repr=False)
    """What signs them; `env:NAME` for a variable of the worker."""
    topics: tuple[str, ...] = ("*",)
    agent: str | None = None
    """Only those of this agent."""

    @field_validator("url")
    @classmethod
    def _is_web(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("give an http or https URL, without a user")
        _ = parts.port  # which raises where it is none
        return url


class Webhook(Kind[WebhookConfig]):
    """Delivers what has come since the last time. Its own steps are not told: they would be events again."""

    Config = WebhookConfig
    quiet: ClassVar[bool] = True
    admin: ClassVar[bool] = True

    def step(self, ctx: Context, state: dict[str, Any], inbox: list[Item]) -> Step:
        """Deliver until there is nothing more, or until something does not arrive."""
        topics = Topics(Queue(ctx.app.store))
        at = int(state["at"]) if "at" in state else topics.bounds(ctx.tenant, ctx.agent_id)[0]
        failures, since, sent, lost = int(state.get("failures", 0)), state.get("since"), 0, int(state.get("lost", 0))
        error = None
        while error is None and (events := topics.read(at, AT_ONCE)):
            for event in events:
                ctx.check()
                if self._wants(ctx, event):
                    try:
                        self._deliver(ctx, event)
                        failures, since, sent = 0, None, sent + 1
                    except Unavailable as problem:
                        since = since or time.time()
                        if time.time() - since < GIVE_UP_S:
                            failures, error = failures + 1, problem.message
                            break
                        failures, since, lost = 0, None, lost + 1
                at = event.id
        memory = {"at": at, "failures": failures, "since": since, "lost": lost}
        output = {"sent": sent, "lost": lost} | ({"error": error} if error else {})
        return Step(state=memory, output=output, next=Next(after=backoff(failures)) if error else IDLE)

    def _wants(self, ctx: Context, event: HubEvent) -> bool:
        return (
            event.tenant == ctx.tenant
            and self.config.agent in (None, event.agent)
            and any(fnmatchcase(event.topic, pattern) for pattern in self.config.topics)
        )

    def _deliver(self, ctx: Context, event: HubEvent) -> None:
        body = event.model_dump_json(exclude={"tenant"}).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "etude",
            "X-Etude-Event": str(event.id),
            "X-Etude-Topic": event.topic,
            "X-Etude-Signature": sign(self._secret(), body, int(time.time())),
        }
        try:
            status = post(self.config.url, body, headers, ctx.app.settings.agents.webhook_allow)
        except (OSError, HTTPException):
            raise Unavailable(f"`{self.config.url}` did not take event {event.id}.") from None
        # Where events go is what was configured: whoever sends them on elsewhere has not taken them.
        if not 200 <= status < 300:
            raise Unavailable(f"`{self.config.url}` did not take event {event.id}, with status {status}.")

    def _secret(self) -> str:
        if not self.config.secret.startswith("env:"):
            return self.config.secret
        name = self.config.secret.removeprefix("env:")
        if not os.environ.get(name):
            raise Invalid(f"The variable `{name}` is not set.", hint="Set it where the worker runs.")
        return os.environ[name]


def post(url: str, body: bytes, headers: dict[str, str], allow: tuple[str, ...]) -> int:
    """Send a body to a URL whose address may be reached; the status of the answer."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    link = HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        link.sock = connect(host, port, allow, TIMEOUT_S)
        if secure:
            link.sock = ssl.create_default_context().wrap_socket(link.sock, server_hostname=host)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        link.request("POST", path, body, headers)
        return link.getresponse().status
    finally:
        link.close()


def sign(secret: str, body: bytes, at: int) -> str:
    """The signature of a delivery: its time, and the HMAC of time and body."""
    mark = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={mark}"


def verify(secret: str, body: bytes, signature: str, tolerance_s: float = 300.0) -> bool:
    """Whether a delivery was signed with the secret, not long ago; for those who receive them."""
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    at = fields.get("t", "")
    if not at.isdigit() or abs(time.time() - int(at)) > tolerance_s:
        return False
    return hmac.compare_digest(sign(secret, body, int(at)), signature)
