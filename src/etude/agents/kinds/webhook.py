"""An agent that passes events on to a URL, signed."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator

from etude.addresses import connect
from etude.agents.base import StepContext
from etude.agents.delivery import Delivery, DeliveryConfig
from etude.cancellation import Cancellation
from etude.errors import Unavailable
from etude.settings import read_reference
from etude.store.topics import HubEvent

TIMEOUT_S = 10.0
AS_IT_IS = "/?%:@!$&'()*+,;=~-._[]"
"""What may stand in the path and the query of a URL; the rest is written with percent signs."""


class WebhookConfig(DeliveryConfig):
    """Where events go, and which."""

    url: str
    secret: str = Field(min_length=8, repr=False)
    """What signs them; `env:NAME` for a variable of the worker."""

    @field_validator("url")
    @classmethod
    def _is_web(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("give an http or https URL, without a user")
        _ = parts.port  # which raises where it is none
        return url


class WebhookAgent(Delivery[WebhookConfig]):
    """Posts each event to a URL."""

    Config = WebhookConfig

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        """Post an event, signed; whoever answers with anything but success has not taken it."""
        body = event.model_dump_json(exclude={"tenant"}).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "etude",
            "X-Etude-Event": str(event.id),
            "X-Etude-Topic": event.topic,
            "X-Etude-Signature": sign(read_reference(self.config.secret, "The agent"), body, int(time.time())),
        }
        try:
            status = post(self.config.url, body, headers, ctx.app.settings.agents.reach, ctx.cancel)
        except (OSError, HTTPException):
            ctx.check()
            raise Unavailable(f"`{self.config.url}` did not take event {event.id}.") from None
        # Where events go is what was configured: whoever sends them on elsewhere has not taken them.
        if not 200 <= status < 300:
            raise Unavailable(f"`{self.config.url}` did not take event {event.id}, with status {status}.")


def post(url: str, body: bytes, headers: dict[str, str], allow: tuple[str, ...], cancel: Cancellation) -> int:
    """Send a body to a URL whose address may be reached; the status of the answer, which has to come in time."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    link = HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        link.sock = connect(host, port, allow, TIMEOUT_S)
        with _bounded(link.sock, cancel):
            if secure:
                link.sock = ssl.create_default_context().wrap_socket(link.sock, server_hostname=host)
            path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=AS_IT_IS)
            link.request("POST", path, body, headers)
            return link.getresponse().status
    finally:
        link.close()


@contextmanager
def _bounded(link: socket.socket, cancel: Cancellation) -> Iterator[None]:
    """Break the connection off after a time, or when asked to: a receiver could say a little now and then for ever."""
    stopped = threading.Event()
    # A descriptor of its own, for TLS takes the other over.
    with link.dup() as handle:

        def stop() -> None:
            stopped.set()
            with suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(TIMEOUT_S, stop)
        timer.start()
        try:
            with cancel.stopping(stop):
                yield
        finally:
            timer.cancel()
            timer.join()
        if stopped.is_set():
            raise TimeoutError("it was broken off")  # which an answer that was cut short does not show


def sign(secret: str, body: bytes, at: int) -> str:
    """The signature of a delivery: its time, and the HMAC of time and body."""
    mark = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={mark}"


def verify(secret: str, body: bytes, signature: str, tolerance_s: float = 300.0) -> bool:
    """Whether a delivery was signed with the secret, not long ago; for those who receive them."""
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    at = fields.get("t", "")
    # Of few digits: it comes from anybody, and a number can be too long to be read.
    if not re.fullmatch("[0-9]{1,12}", at) or abs(time.time() - int(at)) > tolerance_s:
        return False
    return hmac.compare_digest(sign(secret, body, int(at)).encode(), signature.encode("utf-8", "replace"))
