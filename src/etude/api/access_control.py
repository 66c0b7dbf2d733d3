"""Authentication and quotas: keys and cookies, roles, request rates, concurrency and daily budgets."""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from etude.api.api_caller import ANONYMOUS, OWNER, ApiCaller
from etude.entities import Run
from etude.errors import EtudeError, Forbidden, LimitExceeded, Unauthorized, Unavailable
from etude.host_addresses import is_loopback_host, parse_host_port
from etude.store.identity import ApiKey, Identity, Spent, daily_limits_of_key

if TYPE_CHECKING:
    from etude.settings import ServerSettings

T = TypeVar("T")
AccessStore = Callable[..., Awaitable[T]]
COOKIE = "etude_session"
KEY_CACHE_S = 5.0
"""Seconds that a looked-up key stays cached; a key that another process revokes stops working within this time."""
REMEMBERED = 10_000
"""Keys and senders to remember; beyond that, all are forgotten."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LINKED = frozenset({"/", "/health", "/healthz", "/favicon.ico"})
"""Paths that other sites may link to: they cost next to nothing."""
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,256}")
"""The cookie of a session, as `secrets.token_urlsafe` makes it."""


@dataclass(frozen=True)
class AccessSecrets:
    """What a request shows to say who sent it: a key, or else the cookie of a browser session."""

    key: str | None
    cookie: str | None


class AccessControl:
    """Identifies callers and enforces their limits. Rates and concurrency are counted per process."""

    def __init__(self, identity: Identity, settings: ServerSettings, keys: bool, anyone: bool = False) -> None:
        self._identity = identity
        self._settings = settings
        self.keys = keys
        self.local = not keys and not anyone
        """Whether only the person at this machine can call it."""
        self._key_cache: dict[str, tuple[float, ApiKey]] = {}
        self._key_ids: dict[str, str] = {}
        self._buckets: dict[str, tuple[float, float]] = {}
        self._refusals: dict[str, tuple[float, float]] = {}
        self._in_flight: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    # Authentication.

    async def identify(
        self, access_store: AccessStore[ApiKey], secrets: AccessSecrets, without_store: bool = False
    ) -> ApiCaller:
        """Return the caller by its key or its cookie; `OWNER` if keys are off.

        With `without_store`, a key that was valid before is accepted while the store cannot be used.
        """
        if not self.keys:
            # Many clients cannot leave out the key, so it is ignored if keys are off.
            return OWNER
        if secrets.key is not None:
            key = await self._look_up(access_store, self._identity.authenticate, secrets.key, without_store)
            return ApiCaller(key.tenant, key.role, key)
        if secrets.cookie is None:
            return ANONYMOUS
        key = await self._look_up(access_store, self._identity.logged_in, secrets.cookie)
        return ApiCaller(key.tenant, key.role, key, secrets.cookie)

    async def is_admitted(self, access_store: AccessStore[ApiKey], secrets: AccessSecrets) -> bool:
        """Return whether the sender of a request would still be let in: its key may have been revoked meanwhile."""
        try:
            await self.identify(access_store, secrets)
        except EtudeError:
            return False
        return True

    async def _look_up(
        self, access_store: AccessStore[ApiKey], find: Callable[[str], ApiKey], secret: str, without_store: bool = False
    ) -> ApiKey:
        name = _hash(secret)
        known = self._key_cache.get(name)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        try:
            key = await access_store(find, secret)
        except Unauthorized:
            with self._lock:
                self._key_ids.pop(name, None)
                self._key_cache.pop(name, None)
            raise
        except Unavailable:
            if known is None or not without_store:
                raise
            return known[1]
        with self._lock:
            if len(self._key_cache) > REMEMBERED:
                self._key_cache.clear()
            self._key_cache[name] = (time.monotonic() + KEY_CACHE_S, key)
            if len(self._key_ids) > REMEMBERED:
                self._key_ids.clear()
            self._key_ids[name] = key.id
        return key

    def forget(self) -> None:
        """Clear the cache of keys, because one was revoked."""
        with self._lock:
            self._key_cache.clear()
            self._key_ids.clear()

    # Origin.

    def check_origin(self, caller: ApiCaller, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Refuse requests that another site made a browser send, and host names used for DNS rebinding.

        Requests that only read are refused too, except for pages to link to: reading can mean much work, such as
        profiling a source.
        """
        host = headers.get("host", "")
        place = parse_host_port(host, default_port=80)
        if self.local and (place is None or not is_loopback_host(place[0])):
            raise Forbidden(
                f"`{host[:200]}` is not a name of this machine.",
                hint="Without keys etude answers to localhost alone; use that name, or keys.",
            )
        if self.keys and caller.cookie is None:
            return
        origin = headers.get("origin")
        same_site = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        if not same_site or (origin is not None and origin.partition("://")[2] != host):
            if method in SAFE and path in LINKED:
                return
            raise _other_site()
        if method in SAFE:
            return
        if caller.cookie is not None and not hmac.compare_digest(
            headers.get("x-csrf-token", "").encode(), access_csrf_token(caller.cookie).encode()
        ):
            raise Forbidden("The header X-CSRF-Token is missing or wrong.", hint="GET /api/session gives it.")

    # Limits.

    def check_rate(self, caller: ApiCaller) -> None:
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

    def check_refusals(self, secrets: AccessSecrets, address: str) -> None:
        """Raise if the sender had too many refusals: a flood of bad requests must cost others little.

        This comes before the store is asked for the key. So the sender is the key if it was valid in an earlier
        request, or else the address: others behind the same address are not affected.
        """
        limit = self._settings.refused_per_minute
        if not self.keys or not limit:
            return  # without keys, only local users get this far
        secret = secrets.key or secrets.cookie
        sender = self._key_ids.get(_hash(secret), address) if secret is not None else address
        left = self._refusals_left(sender, limit)
        if left < 1:
            who = "address" if sender == address else "key"
            raise LimitExceeded(
                f"More than {limit} requests of this {who} in a minute were refused.",
                hint="Wait, and correct the requests: see the errors of the earlier ones.",
                limit="refused_per_minute",
                value=limit,
                retry_after_s=(1 - left) * 60 / limit,
            )

    def count_refusal(self, sender: str) -> None:
        """Count a refused request of a key or an address."""
        limit = self._settings.refused_per_minute
        with self._lock:
            if len(self._refusals) > REMEMBERED:
                self._refusals.clear()
            self._refusals[sender] = (max(self._refusals_left(sender, limit) - 1, 0.0), time.monotonic())

    def _refusals_left(self, sender: str, limit: int) -> float:
        left, at = self._refusals.get(sender, (float(limit), 0.0))
        return min(float(limit), left + (time.monotonic() - at) * limit / 60)

    @contextmanager
    def limit_concurrency(self, caller: ApiCaller, what: str = "request") -> Iterator[None]:
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

    def has_budget(self, caller: ApiCaller) -> bool:
        """True if the caller has a daily quota."""
        key = caller.key
        return key is not None and any(daily_limits_of_key(key, self._settings).values())

    def check_budget(self, caller: ApiCaller) -> None:
        """Raise if the key has used up its daily quota."""
        if caller.key is not None:
            self._identity.check_budget(caller.key, self._settings)

    def charge(self, caller: ApiCaller, run: Run) -> None:
        """Count a run's usage as the caller's of today, and so toward the daily quota of a key."""
        seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else 0.0
        tokens = run.usage.tokens_in + run.usage.tokens_out
        self._identity.spend(caller.name, Spent(tokens=tokens, cost_usd=run.usage.cost_usd, seconds=max(seconds, 0.0)))


def _other_site() -> Forbidden:
    return Forbidden("The request comes from another site.", hint="Send it from etude's own page, or with a key.")


def access_csrf_token(cookie: str) -> str:
    """Return the CSRF token of a session. Another site can make a browser send the cookie, but not the token."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def read_access_secrets(headers: Mapping[str, str]) -> AccessSecrets:
    """Return the key or the session that a request shows; the key counts if it has both."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if token and scheme.lower() == "bearer":
        return AccessSecrets(token.strip(), None)
    return AccessSecrets(None, _read_cookie(headers.get("cookie", "")))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read_cookie(header: str) -> str | None:
    """Return the session in a Cookie header, or None.

    The standard library's parser needs quadratic time to remove quotes and backslashes, and this runs on the event loop
    before the caller is known. A session has only letters, digits, `-` and `_`; another value is not a session.
    """
    for part in header.split(";"):
        name, _, value = part.partition("=")
        if name.strip() == COOKIE:
            return value.strip() if _SESSION.fullmatch(value.strip()) else None
    return None
