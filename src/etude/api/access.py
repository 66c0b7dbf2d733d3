"""Who calls, and what they may: keys and cookies, roles, rates, concurrency and daily budgets."""

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
Do = Callable[..., Awaitable[T]]
COOKIE = "etude_session"
KNOWN_S = 5.0
"""How long a key that was looked up is taken as valid: one that another process revokes ends within this."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Caller:
    """Who sent a request."""

    tenant: str
    role: Role | None
    key: ApiKey | None = None
    cookie: str | None = None

    @property
    def name(self) -> str:
        """How limits and logs call it."""
        return self.key.id if self.key else "nobody"

    def require(self, role: Role) -> None:
        """Raise where the caller's role does not allow it."""
        if self.role is None:
            raise Unauthorized("This needs a key.", hint="Send it as `Authorization: Bearer ...`.")
        if self.key is not None and not self.key.allows(role):
            raise Forbidden(f"This needs the role `{role}`; the key's is `{self.role}`.", hint="Use another key.")


NOBODY = Caller(MAIN, None)
"""Who sent a request to a route that is open to all."""
OWNER = Caller(MAIN, "admin")
"""Who sent a request where keys are off: whoever sits at the machine."""


class AccessControl:
    """Lets requests in, one decision after another. What it counts lives in this process."""

    def __init__(self, identity: Identity, settings: ServerSettings, keys: bool, anyone: bool = False) -> None:
        self._identity = identity
        self._settings = settings
        self.keys = keys
        self._local = not keys and not anyone
        self._known: dict[str, tuple[float, ApiKey]] = {}
        self._buckets: dict[str, tuple[float, float]] = {}
        self._inside: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    # Who.

    async def identify(self, do: Do[ApiKey], headers: Mapping[str, str]) -> Caller:
        """The caller: by its key, by its cookie, or the owner where keys are off."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if token and scheme.lower() == "bearer":
            if not self.keys:
                # Programs send a key because they must send something; where keys are off it says nothing.
                return OWNER
            key = await self._look_up(do, self._identity.authenticate, token.strip())
            return Caller(key.tenant, key.role, key)
        if not self.keys:
            return OWNER
        cookie = read_cookie(headers.get("cookie", ""))
        if cookie is None:
            return NOBODY
        key = await self._look_up(do, self._identity.logged_in, cookie)
        return Caller(key.tenant, key.role, key, cookie)

    async def _look_up(self, do: Do[ApiKey], find: Callable[[str], ApiKey], secret: str) -> ApiKey:
        name = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._known.get(name)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        key = await do(find, secret)
        with self._lock:
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[name] = (time.monotonic() + KNOWN_S, key)
        return key

    def forget(self) -> None:
        """Look every key up again: one was revoked."""
        with self._lock:
            self._known.clear()

    # From where.

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

    # How often, how many, how much.

    def check_rate(self, caller: Caller) -> None:
        """Count a request against the key's rate."""
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
                    f"The key `{caller.key.name}` may send {limit} requests in a minute.",
                    hint="Wait, and send fewer.",
                    limit="per_minute",
                    value=limit,
                    retry_after_s=(1 - left) * 60 / limit,
                )
            self._buckets[caller.name] = (left - 1, now)

    @contextmanager
    def inside(self, caller: Caller, what: str = "request") -> Iterator[None]:
        """Count the caller in while the block runs; refuse one too many."""
        limit = 0
        if caller.key is not None:
            own = caller.key.limits.at_once
            limit = self._settings.streams if what == "stream" else self._settings.at_once if own is None else own
        place = (caller.name, what)
        with self._lock:
            if limit and self._inside.get(place, 0) >= limit:
                raise LimitExceeded(
                    f"{limit} {what}s of this key are open at once, and no more may be.",
                    hint="Wait for one to end.",
                    limit="streams" if what == "stream" else "at_once",
                    value=limit,
                    retry_after_s=1,
                )
            self._inside[place] = self._inside.get(place, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._inside[place] -= 1
                if not self._inside[place]:
                    del self._inside[place]

    def has_budget(self, caller: Caller) -> bool:
        """Whether what a caller uses in a day is limited."""
        key = caller.key
        return key is not None and any(daily_limits(key, self._settings).values())

    def check_budget(self, caller: Caller) -> None:
        """Refuse to begin work once a key has used up its day."""
        if caller.key is not None:
            self._identity.check_budget(caller.key, self._settings)

    def charge(self, key: ApiKey, run: Run) -> None:
        """Add what a run used to its key's day."""
        seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else 0.0
        tokens = run.usage.tokens_in + run.usage.tokens_out
        self._identity.spend(key.id, Spent(tokens=tokens, cost_usd=run.usage.cost_usd, seconds=max(seconds, 0.0)))


def csrf_token(cookie: str) -> str:
    """What the page must send beside its cookie: another site can have the cookie sent, but cannot know this."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


def read_cookie(header: str) -> str | None:
    """The session of a Cookie header."""
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None and found.value else None
