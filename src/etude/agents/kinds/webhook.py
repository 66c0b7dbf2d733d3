"""An agent that posts signed events to a URL."""

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

from etude.agents.base import StepContext
from etude.agents.delivery import Delivery, DeliveryConfig
from etude.cancellation import Cancellation
from etude.errors import Unavailable
from etude.host_addresses import connect_to_host
from etude.redaction import redact_url_path
from etude.settings import read_setting_reference
from etude.store.topics import HubEvent

TIMEOUT_S = 10.0
SAFE_CHARS = "/?%:@!$&'()*+,;=~-._[]"
"""Characters of a path or query that are sent as they are; others are percent-encoded."""


class WebhookConfig(DeliveryConfig):
    """The URL, the secret, and the events to post."""

    url: str
    secret: str = Field(min_length=8, repr=False)
    """The key of the signature; `env:NAME` for a variable of the worker."""

    @field_validator("url")
    @classmethod
    def _is_web(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("give an http or https URL without a user name")
        _ = parts.port  # raises if it is not a port number
        return url


class WebhookAgent(Delivery[WebhookConfig]):
    """Posts each event to a URL."""

    Config = WebhookConfig

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        """Post a signed event. Any status but 2xx means that it was not accepted."""
        body = event.model_dump_json(exclude={"tenant"}).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "etude",
            "X-Etude-Event": str(event.id),
            "X-Etude-Topic": event.topic,
            "X-Etude-Signature": sign_webhook_body(
                read_setting_reference(self.config.secret, "The agent"), body, int(time.time())
            ),
        }
        try:
            status = post_webhook(self.config.url, body, headers, ctx.app.settings.agents.reach, ctx.cancel)
        except (OSError, HTTPException):
            ctx.check()
            raise Unavailable(f"`{redact_url_path(self.config.url)}` did not accept event {event.id}.") from None
        # Redirects are not followed: events go to the configured URL only.
        if not 200 <= status < 300:
            raise Unavailable(f"`{redact_url_path(self.config.url)}` did not accept event {event.id}: status {status}.")


def post_webhook(url: str, body: bytes, headers: dict[str, str], allow: tuple[str, ...], cancel: Cancellation) -> int:
    """Post a body to a URL if its address is allowed, and return the status of the response."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.sock = connect_to_host(host, port, allow, TIMEOUT_S)
        with _bounded(connection.sock, cancel):
            if secure:
                connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
            path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=SAFE_CHARS)
            connection.request("POST", path, body, headers)
            return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def _bounded(connection: socket.socket, cancel: Cancellation) -> Iterator[None]:
    """Close the connection after `TIMEOUT_S` in all, or when cancelled: a slow receiver could keep it open for ever."""
    stopped = threading.Event()
    # Duplicate the descriptor: TLS takes over the original.
    with connection.dup() as handle:

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
            raise TimeoutError("the connection was closed")  # a truncated response does not show it


def sign_webhook_body(secret: str, body: bytes, at: int) -> str:
    """Return the signature of a delivery: the time, and the HMAC of time and body."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def verify_signature(secret: str, body: bytes, signature: str, tolerance_s: float = 300.0) -> bool:
    """Return True if a delivery was signed with the secret at most `tolerance_s` seconds ago; for receivers."""
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    at = fields.get("t", "")
    # Limit the digits: the header is untrusted, and `int` refuses very long numbers.
    if not re.fullmatch("[0-9]{1,12}", at) or abs(time.time() - int(at)) > tolerance_s:
        return False
    return hmac.compare_digest(sign_webhook_body(secret, body, int(at)).encode(), signature.encode("utf-8", "replace"))
