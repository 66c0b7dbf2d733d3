"""Authentication and quotas: keys and cookies, roles, request rates, concurrency and daily budgets."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, TypeVar

from etude.addresses import is_loopback, parse_host_port
from etude.entities import Run
from etude.errors import Forbidden, LimitExceeded, Unauthorized
from etude.store.base import MAIN
from etude.store.identity import ApiKey, Identity, Role, Spent, daily_limits

if TYPE_CHECKING:
    from etude.settings import ServerSettings

T = TypeVar("T")
AccessStore = Callable[..., Awaitable[T]]
COOKIE = "etude_session"
KEY_CACHE_S = 5.0
"""Seconds that a looked-up key stays cached; a key that another process revokes stops working within this time."""
REFUSALS_PER_S = 50.0
"""Refusals that a sender gets at once, per second; further ones are sent `REFUSAL_DELAY_S` later."""
REFUSALS_BURST = 1000.0
REFUSAL_DELAY_S = 1.0
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Caller:
    """The sender of a request."""

    tenant: str
    role: Role | None
    key: ApiKey | None = None
    cookie: str | None = None

    @property
    def name(self) -> str:
        """The caller's name in limits and logs."""
        return self.key.id if self.key else "nobody"

    def require(self, role: Role) -> None:
        """Raise if the caller does not have the role."""
        if self.role is None:
            raise Unauthorized("This needs a key.", hint="Send it as `Authorization: Bearer ...`.")
        if self.key is not None and not self.key.allows(role):
            raise Forbidden(f"This needs the role `{role}`; the key's is `{self.role}`.", hint="Use another key.")


ANONYMOUS = Caller(MAIN, None)
"""The caller of a public route, without a key."""
OWNER = Caller(MAIN, "admin")
"""The caller if keys are off: the local user."""


class AccessControl:
    """Identifies callers and enforces their limits. Rates and concurrency are counted per process."""

    def __init__(self, identity: Identity, settings: ServerSettings, keys: bool, anyone: bool = False) -> None:
        self._identity = identity
        self._settings = settings
        self.keys = keys
        self._local = not keys and not anyone
        self._key_cache: dict[str, tuple[float, ApiKey]] = {}
        self._buckets: dict[str, tuple[float, float]] = {}
        self._refusals: dict[str, tuple[float, float]] = {}
        self._in_flight: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    # Authentication.

    async def identify(self, access_store: AccessStore[ApiKey], headers: Mapping[str, str]) -> Caller:
        """Return the caller by its key or its cookie; `OWNER` if keys are off."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if token and scheme.lower() == "bearer":
            if not self.keys:
                # Many clients cannot leave out the key, so it is ignored if keys are off.
                return OWNER
            key = await self._look_up(access_store, self._identity.authenticate, token.strip())
            return Caller(key.tenant, key.role, key)
        if not self.keys:
            return OWNER
        cookie = read_cookie(headers.get("cookie", ""))
        if cookie is None:
            return ANONYMOUS
        key = await self._look_up(access_store, self._identity.logged_in, cookie)
        return Caller(key.tenant, key.role, key, cookie)

    async def _look_up(self, access_store: AccessStore[ApiKey], find: Callable[[str], ApiKey], secret: str) -> ApiKey:
        name = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._key_cache.get(name)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        key = await access_store(find, secret)
        with self._lock:
            if len(self._key_cache) > 10_000:
                self._key_cache.clear()
            self._key_cache[name] = (time.monotonic() + KEY_CACHE_S, key)
        return key

    def forget(self) -> None:
        """Clear the cache of keys, because one was revoked."""
        with self._lock:
            self._key_cache.clear()

    # Origin.

    def check_origin(self, caller: Caller, method: str, headers: Mapping[str, str]) -> None:
        """Refuse requests that another site made a browser send, and host names used for DNS rebinding."""
        host = headers.get("host", "")
        place = parse_host_port(host, default_port=80)
        if self._local and (place is None or not is_loopback(place[0])):
            raise Forbidden(
                f"`{host[:200]}` is not a name of this machine.",
                hint="Without keys etude answers to localhost alone; use that name, or keys.",
            )
        if method in SAFE or (self.keys and caller.cookie is None):
            return
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if (origin is not None and origin.partition("://")[2] != host) or site not in ("same-origin", "none"):
            raise Forbidden(
                "The request comes from another site.", hint="Send it from etude's own page, or with a key."
            )
        if caller.cookie is not None and not hmac.compare_digest(
            headers.get("x-csrf-token", "").encode(), csrf_token(caller.cookie).encode()
        ):
            raise Forbidden("The header X-CSRF-Token is missing or wrong.", hint="GET /api/session gives it.")

    # Limits.

    def check_rate(self, caller: Caller) -> None:
        """Count a request toward the key's rate limit; raise if the limit is reached."""
        if caller.key is None:
            return
        limit = caller.key.limits.per_minute
        limit = self._settings.per_minute if limit is None else limit
        if not limit:
            return
        with self._lock:
            now = time.monotonic()
            left, at = self._buckets.get(caller.name, (float(limit), now))
            left = min(float(limit), left + (now - at) * limit / 60)
            if left < 1:
                raise LimitExceeded(
                    f"The key `{caller.key.name}` may send {limit} requests per minute.",
                    hint="Wait, then send fewer requests.",
                    limit="per_minute",
                    value=limit,
                    retry_after_s=(1 - left) * 60 / limit,
                )
            self._buckets[caller.name] = (left - 1, now)

    def delay_refusal(self, sender: str) -> float:
        """Return the seconds to wait before a refusal is sent: a flood of bad requests then costs others little."""
        if not self.keys:
            return 0.0  # only local users get this far
        with self._lock:
            if len(self._refusals) > 10_000:
                self._refusals.clear()
            now = time.monotonic()
            left, at = self._refusals.get(sender, (REFUSALS_BURST, now))
            left = min(REFUSALS_BURST, left + (now - at) * REFUSALS_PER_S)
            self._refusals[sender] = (max(left - 1, 0.0), now)
        return 0.0 if left >= 1 else REFUSAL_DELAY_S

    @contextmanager
    def limit_concurrency(self, caller: Caller, what: str = "request") -> Iterator[None]:
        """Count the caller's requests or streams while the block runs; raise if there are too many."""
        limit = 0
        if caller.key is not None:
            key_limit = caller.key.limits.at_once
            limit = (
                self._settings.streams
                if what == "stream"
                else self._settings.at_once
                if key_limit is None
                else key_limit
            )
        slot = (caller.name, what)
        with self._lock:
            if limit and self._in_flight.get(slot, 0) >= limit:
                raise LimitExceeded(
                    f"This key has {limit} {what}s open at once, which is its limit.",
                    hint=f"Wait for a {what} to end.",
                    limit="streams" if what == "stream" else "at_once",
                    value=limit,
                    retry_after_s=1,
                )
            self._in_flight[slot] = self._in_flight.get(slot, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight[slot] -= 1
                if not self._in_flight[slot]:
                    del self._in_flight[slot]

    def has_budget(self, caller: Caller) -> bool:
        """True if the caller has a daily quota."""
        key = caller.key
        return key is not None and any(daily_limits(key, self._settings).values())

    def check_budget(self, caller: Caller) -> None:
        """Raise if the key has used up its daily quota."""
        if caller.key is not None:
            self._identity.check_budget(caller.key, self._settings)

    def charge(self, key: ApiKey, run: Run) -> None:
        """Count a run's usage toward the key's daily quota."""
        seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else 0.0
        tokens = run.usage.tokens_in + run.usage.tokens_out
        self._identity.spend(key.id, Spent(tokens=tokens, cost_usd=run.usage.cost_usd, seconds=max(seconds, 0.0)))


def csrf_token(cookie: str) -> str:
    """Return the CSRF token of a session. Another site can make a browser send the cookie, but not the token."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def read_cookie(header: str) -> str | None:
    """Return the session in a Cookie header, or None."""
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None and found.value else None
