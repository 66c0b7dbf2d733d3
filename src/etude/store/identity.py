"""API keys with roles and tenants, their daily limits and use, the audit log, and stored responses.

Keys are random, so their hash needs no salt and need not be slow: there are too many to try.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ConfigDict, Field

from etude.entities import Entity
from etude.errors import Conflict, Invalid, LimitExceeded, NotFound, Unauthorized, Unavailable
from etude.ids import new_id
from etude.store.base import MAIN, Execute, Store, make_storable
from etude.store.paging import Page
from etude.store.record_bytes import count_record_bytes

if TYPE_CHECKING:
    from etude.settings import ServerSettings

log = logging.getLogger("etude.identity")

T = TypeVar("T")
Act = tuple[object, ...]
"""A row of the audit."""
Charge = tuple[tuple[str, str], "Spent"]
"""The key and the day, and what was used."""
Role = Literal["reader", "analyst", "admin"]
ROLES: tuple[Role, ...] = ("reader", "analyst", "admin")
"""Each role includes those before it: look; ask and run; manage keys."""
LOGIN_S = 12 * 3600
LOGINS = 100
"""Browser sessions of a key; the next one ends the oldest."""
REPLY_S = 24 * 3600
PREFIX = "etude"
OTHERS = "other addresses"
DAILY = ("daily_tokens", "daily_cost_usd", "daily_seconds")
STRANGERS = 100
"""At most this many addresses without a key are counted separately in a minute."""
DETAILED = 20
"""At most this many refused requests of such an address are listed per minute; further ones are only counted."""
BATCH = 100
"""Acts per INSERT: databases limit the number of values of a statement."""
ACTION, REASON, NAME = 500, 1000, 100
"""Characters of an action, a reason, and any other text in the audit; longer ones are cut."""
WAITING = 50_000
"""At most this many acts wait in memory while the store cannot be written; of further ones only the count is kept."""
MOST_SPENT = 1e15
"""The most of anything that one entry of spending may say: a wrong number of a provider must not stop the count."""

ADD_KEY = """INSERT INTO keys (id, tenant, name, role, hash, limits, created_at, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
KEYS = "SELECT id, tenant, name, role, CAST(limits AS TEXT), created_at, expires_at, revoked_at FROM keys"
HASH = "SELECT hash FROM keys WHERE id = ?"
REVOKE = "UPDATE keys SET revoked_at = ? WHERE id = ? AND tenant = ? AND revoked_at IS NULL RETURNING id"
ANY_KEY = "SELECT 1 FROM keys WHERE revoked_at IS NULL LIMIT 1"
ADD_LOGIN = "INSERT INTO logins (hash, key_id, expires_at) VALUES (?, ?, ?)"
LOGIN = "SELECT key_id FROM logins WHERE hash = ? AND expires_at > ?"
END_LOGIN = "DELETE FROM logins WHERE hash = ?"
OLD_LOGINS = "DELETE FROM logins WHERE expires_at <= ?"
SURPLUS_LOGINS = """DELETE FROM logins WHERE key_id = ? AND hash NOT IN
    (SELECT hash FROM logins WHERE key_id = ? ORDER BY expires_at DESC, hash LIMIT ?)"""
SPENT = "SELECT tokens, cost_usd, seconds FROM spending WHERE key_id = ? AND day = ?"
SPEND = """INSERT INTO spending (key_id, day, tokens, cost_usd, seconds) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (key_id, day) DO UPDATE SET tokens = spending.tokens + excluded.tokens,
        cost_usd = spending.cost_usd + excluded.cost_usd, seconds = spending.seconds + excluded.seconds"""
ADD_ACTS = "INSERT INTO audit (id, at, tenant, key_id, action, status, request_id, address, reason) VALUES "
ACTS = "SELECT id, at, key_id, action, status, request_id, address, reason FROM audit WHERE tenant = ?"
CLAIM = "INSERT INTO replies (owner, name, request, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
REPLY = "SELECT request, status, media, body FROM replies WHERE owner = ? AND name = ?"
KEEP_REPLY = "UPDATE replies SET request = request || ?, status = ?, media = ?, body = ? WHERE owner = ? AND name = ?"
FREE_REPLY = "DELETE FROM replies WHERE owner = ? AND name = ?"
OLD_REPLIES = "DELETE FROM replies WHERE created_at <= ?"
ADD_REPORT = "INSERT INTO reports (id, at, tenant, body) VALUES (?, ?, ?, ?)"
REPORTS = "SELECT id, at, CAST(body AS TEXT) FROM reports WHERE tenant = ?"
PAGE_CHARS = 1 << 20
"""Characters of a page of reports; it has one, however long."""
AT_ONCE = 20
"""Reports that are read at once, as each may be long."""


class KeyLimits(Entity):
    """What a key may use; None means the server's setting, zero means no limit."""

    model_config = ConfigDict(strict=True)

    per_minute: int | None = Field(default=None, ge=0)
    """Requests."""
    at_once: int | None = Field(default=None, ge=0)
    """Concurrent requests."""
    daily_tokens: int | None = Field(default=None, ge=0)
    daily_cost_usd: float | None = Field(default=None, ge=0)
    daily_seconds: float | None = Field(default=None, ge=0)
    """Seconds of runs."""

    def within(self, owner: KeyLimits, defaults: ServerSettings) -> KeyLimits:
        """Return these limits, none of them above the owner's: a key cannot create one that may use more.

        A limit that the owner does not have itself is the server's.
        """
        limits = {}
        for name in KeyLimits.model_fields:
            asked, own = getattr(self, name), getattr(owner, name)
            most = getattr(defaults, name) if own is None else own
            raised = most and (not asked or asked > most)
            limits[name] = most if raised and (asked, own) != (None, None) else asked
        return self.model_copy(update=limits)


class ApiKey(Entity):
    """A key as lists show it: never its secret."""

    id: str
    tenant: str
    name: str
    role: Role
    limits: KeyLimits = KeyLimits()
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def allows(self, role: Role) -> bool:
        """Return whether the key's role includes this one."""
        return ROLES.index(self.role) >= ROLES.index(role)


class Spent(Entity):
    """What a key has used today (UTC)."""

    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in Spent.model_fields})


class AuditEntry(Entity):
    """One recorded request: the method and path, the key, and the outcome."""

    id: str
    at: datetime
    key_id: str | None
    action: str
    status: int
    request_id: str
    address: str
    reason: str | None = None
    """Why, if the caller said so."""


class StoredResponse(Entity):
    """The response to an earlier, identical request."""

    status: int
    media: str
    body: str
    content: str = ""
    """The hash of the request's content, if that arrived after the key was claimed: an upload."""


class Report(Entity):
    """An agent's report on its work: what it was asked, what it did, and whether that worked."""

    id: str
    at: datetime
    dataset: str | None = None
    text: str
    code: str | None = None
    outcome: Literal["worked", "failed", "note"] = "note"
    run_id: str | None = None


def key_of_another_request(name: str) -> Invalid:
    """Return the error of a request whose Idempotency-Key belongs to another one."""
    return Invalid(
        f"The Idempotency-Key `{name}` was used for another request.", hint="Use a new one for each request."
    )


class Identity:
    """Keys, browser sessions, spending, audit and stored responses, in a store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._acts: list[Act] = []
        self._left_out: Counter[str] = Counter()
        """Acts that found no place in `_acts`, by tenant."""
        self._spent: dict[tuple[str, str], Spent] = {}
        self._refused: dict[int, dict[str, Counter[int]]] = {}
        """Refused requests without a key, by minute, address and status."""
        self._lock = threading.Lock()
        self._recording = threading.Lock()
        """Held while spending moves from memory to the store, so that a sum of both counts it once."""

    # Keys.

    def create_key(
        self,
        name: str,
        role: Role,
        tenant: str = MAIN,
        limits: KeyLimits | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, str]:
        """Return a new key and its secret, which is shown only now and not stored."""
        self._store.scoped(tenant)  # refuses an invalid tenant name
        if role not in ROLES:
            raise Invalid(f"`{role}` is not a role.", hint=f"Roles: {', '.join(ROLES)}.")
        if not name.strip() or len(name) > 200:
            raise Invalid("A key needs a name of at most 200 characters.", hint="Name who or what will use it.")
        key = ApiKey(
            id=new_id("key").removeprefix("key_"),
            tenant=tenant,
            name=name,
            role=role,
            limits=limits or KeyLimits(),
            created_at=_now(),
            expires_at=expires_at,
        )
        secret = secrets.token_urlsafe(32)
        with self._store._transaction() as execute:
            limits_json = key.limits.model_dump_json()
            execute(ADD_KEY, key.id, tenant, name, role, _hash(secret), limits_json, key.created_at, expires_at)
        return key, f"{PREFIX}_{key.id}_{secret}"

    def keys(self, tenant: str | None = None) -> list[ApiKey]:
        """Return the keys of a tenant, or of all, oldest first, including revoked ones."""
        where, values = (" WHERE tenant = ?", (tenant,)) if tenant is not None else ("", ())
        return [_key(row) for row in self._store._read(f"{KEYS}{where} ORDER BY id", *values)]

    def revoke_key(self, key_id: str, tenant: str = MAIN) -> None:
        """Revoke a key of the tenant, and end its browser sessions."""
        with self._store._transaction() as execute:
            if not execute(REVOKE, _now(), key_id.removeprefix("key_"), tenant):
                raise NotFound(f"There is no key `{key_id}` that is not revoked.", hint="`etude keys list`.")

    def key(self, key_id: str) -> ApiKey:
        """Return the key with this id, revoked or not."""
        rows = self._store._read(f"{KEYS} WHERE id = ?", key_id)
        if not rows:
            raise NotFound(f"There is no key `{key_id}`.", hint="`etude keys list`.")
        return _key(rows[0])

    def any_key(self) -> bool:
        """Return whether any tenant has a key that is not revoked."""
        return bool(self._store._read(ANY_KEY))

    def authenticate(self, token: str) -> ApiKey:
        """Return the key of a token; raise `Unauthorized` if it is unknown, revoked or expired."""
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        rows = self._store._read(HASH, key_id) if prefix == PREFIX and _is_plain(token) else []
        # Compare even if the key is unknown, so that the time reveals nothing.
        known = str(rows[0][0]) if rows else "0" * 64
        if not hmac.compare_digest(_hash(secret), known) or not rows:
            raise Unauthorized("The key is not known.", hint="`etude keys create` makes one.")
        return self._valid(key_id)

    def _valid(self, key_id: str) -> ApiKey:
        key = self.key(key_id)
        if key.revoked_at is not None:
            raise Unauthorized(f"The key `{key.name}` was revoked.", hint="Ask for a new one.", key_id=key.id)
        if key.expires_at is not None and key.expires_at <= _now():
            raise Unauthorized(f"The key `{key.name}` has expired.", hint="Ask for a new one.", key_id=key.id)
        return key

    # Browser sessions.

    def log_in(self, key: ApiKey) -> str:
        """Start a browser session for the key, and return its cookie; end its oldest if it has too many."""
        cookie = secrets.token_urlsafe(32)
        with self._store._transaction() as execute:
            execute(OLD_LOGINS, _now())
            execute(SURPLUS_LOGINS, key.id, key.id, LOGINS - 1)
            execute(ADD_LOGIN, _hash(cookie), key.id, _now() + timedelta(seconds=LOGIN_S))
        return cookie

    def logged_in(self, cookie: str) -> ApiKey:
        """Return the key of a session; raise `Unauthorized` if it has ended."""
        rows = self._store._read(LOGIN, _hash(cookie), _now())
        if not rows:
            raise Unauthorized("The session has ended.", hint="Log in again.")
        return self._valid(str(rows[0][0]))

    def log_out(self, cookie: str) -> None:
        """End a session."""
        with self._store._transaction() as execute:
            execute(END_LOGIN, _hash(cookie))

    # Spending.

    def spent(self, key_id: str) -> Spent:
        """Return what the key has used today."""
        today = _today()
        with self._recording:
            rows = self._store._read(SPENT, key_id, today)
            with self._lock:
                waiting = self._spent.get((key_id, today), Spent())
        return waiting + Spent(tokens=rows[0][0], cost_usd=rows[0][1], seconds=rows[0][2]) if rows else waiting

    def check_budget(self, key: ApiKey, defaults: ServerSettings) -> None:
        """Refuse new work if the key has used up its daily quota."""
        limits = daily_limits_of_key(key, defaults)
        if not any(limits.values()):
            return
        spent = self.spent(key.id)
        for name, limit in limits.items():
            what = name.removeprefix("daily_")
            used = getattr(spent, what)
            if limit and used >= limit:
                raise LimitExceeded(
                    f"The key `{key.name}` has used {used:,.6g} of {limit:,.6g} {what} today.",
                    hint="The day ends at midnight UTC; an admin can give the key more.",
                    limit=name,
                    value=limit,
                    retry_after_s=86_400 - time.time() % 86_400,
                )

    def spend(self, key_id: str, used: Spent) -> None:
        """Add to what the key has used today; the next `write_down` stores it."""
        usable = Spent(
            tokens=int(_usable_amount(used.tokens)),
            cost_usd=_usable_amount(used.cost_usd),
            seconds=_usable_amount(used.seconds),
        )
        with self._lock:
            place = (key_id, _today())
            self._spent[place] = self._spent.get(place, Spent()) + usable

    # Audit.

    def note(
        self,
        tenant: str,
        key_id: str | None,
        action: str,
        status: int,
        request_id: str,
        address: str,
        reason: str | None = None,
    ) -> None:
        """Add an entry to the audit log; the next `write_down` stores it.

        The texts may come from a caller, so characters that cannot be stored are replaced, and long texts cut.
        Anyone can send requests that are refused. So refused requests without a key are listed only while an address
        has few in a minute; the others are counted, and the count is stored when the minute is over.
        """
        names = [make_storable(name, NAME) for name in (tenant, request_id, address)]
        key = make_storable(key_id, NAME) if key_id is not None else None
        why = make_storable(reason, REASON) if reason is not None else None
        row = (new_id("act"), _now(), names[0], key, make_storable(action, ACTION), status, names[1], names[2], why)
        with self._lock:
            if key_id is None and status in (401, 403) and not self._is_detailed(address, status):
                return
            if len(self._acts) < WAITING:
                self._acts.append(row)
            else:
                self._left_out[names[0]] += 1

    def _is_detailed(self, address: str, status: int) -> bool:
        """Count a refused request; return whether to list it as well."""
        by_address = self._refused.setdefault(int(time.time() // 60), {})
        known = address in by_address or len(by_address) < STRANGERS
        counts = by_address.setdefault(address if known else OTHERS, Counter())
        counts[status] += 1
        return known and counts.total() <= DETAILED

    def _count_refused(self, closing: bool) -> list[Act]:
        """Return a row for each address and status with more refused requests than listed, for past minutes."""
        rows: list[Act] = []
        now = int(time.time() // 60)
        for minute in sorted(m for m in self._refused if m != now or closing):
            at = datetime.fromtimestamp(minute * 60, UTC)
            for address, counts in self._refused.pop(minute).items():
                written = 0 if address == OTHERS else DETAILED
                for status, count in sorted(counts.items()):
                    more = max(count - written, 0)
                    written = max(written - count, 0)
                    if more:
                        action = f"{more:,} more requests without a key were refused in the minute {at:%H:%M} UTC"
                        rows.append((new_id("act"), _now(), MAIN, None, action, status, "", address, None))
        return rows

    def _count_left_out(self) -> list[Act]:
        """Return a row for each tenant with acts that found no place in memory."""
        counts, self._left_out = self._left_out, Counter()
        text = "{:,} more requests are not listed, because the store could not be written"
        return [(new_id("act"), _now(), name, None, text.format(n), 0, "", "", None) for name, n in counts.items()]

    def write_down(self, closing: bool = False) -> None:
        """Store audit entries and spending; what cannot be stored now is kept for the next call.

        A row that the store refuses is logged and left out, so that it cannot stop the rows of others. `closing`
        includes the minute that is not over yet.
        """
        with self._recording:
            with self._lock:
                acts, self._acts = self._acts, []
                spent, self._spent = list(self._spent.items()), {}
                if closing or len(acts) < WAITING:
                    acts += self._count_refused(closing) + self._count_left_out()
            try:
                self._write(spent, _add_spending)
                self._write(acts, _add_acts)
            finally:
                with self._lock:
                    self._acts = acts + self._acts
                    for place, used in spent:
                        self._spent[place] = self._spent.get(place, Spent()) + used

    def _write(self, rows: list[T], write: Callable[[Execute, list[T]], None]) -> None:
        """Write rows in as few transactions as possible; remove from the list those written and those refused.

        Raise `Unavailable` if the store cannot be written; the rows left in the list are not stored.
        """
        size = len(rows)
        while rows:
            some = rows[:size]
            try:
                with self._store._transaction() as execute:
                    write(execute, some)
            except Unavailable:
                raise
            except Exception:
                if len(some) > 1:  # the store works, but refuses one of them: find it
                    size = len(some) // 2
                    continue
                log.exception("the store refused a record, which is left out: %.300r", some[0])
            del rows[: len(some)]
            size *= 2

    def acts(self, tenant: str = MAIN, limit: int = 50, cursor: str | None = None) -> Page[AuditEntry]:
        """Return the audit log of a tenant, newest first."""
        rows, following = self._list(ACTS, tenant, limit, cursor)
        names = ("id", "at", "key_id", "action", "status", "request_id", "address", "reason")
        return Page([AuditEntry(**dict(zip(names, row)) | {"at": _utc(row[1])}) for row in rows], following)

    def _list(self, select: str, tenant: str, limit: int, cursor: str | None) -> tuple[Sequence[Any], str | None]:
        """Return a page of rows whose first column is an id that grows with time."""
        asked = max(1, min(limit, 1000))
        before, values = (" AND id < ?", (cursor,)) if cursor else ("", ())
        rows = self._store._read(f"{select}{before} ORDER BY id DESC LIMIT ?", tenant, *values, asked + 1)
        return rows[:asked], str(rows[asked - 1][0]) if len(rows) > asked else None

    # Stored responses.

    def claim(self, owner: str, name: str, request: str) -> StoredResponse | None:
        """Claim an idempotency key for a request: return None to the first caller, the stored response to later ones.

        Raise `Conflict` while the first is still running, `Invalid` if the key was used for another request. The
        caller compares the content of an upload.
        """
        with self._store._transaction() as execute:
            execute(OLD_REPLIES, _now() - timedelta(seconds=REPLY_S))
            if execute(CLAIM, owner, name, request, _now()):
                return None
            known, status, media, body = execute(REPLY, owner, name)[0]
        known, _, content = known.partition("/")
        if known != request:
            raise key_of_another_request(name)
        if status is None:
            raise Conflict(f"The request with the Idempotency-Key `{name}` is still running.", hint="Try again later.")
        return StoredResponse(status=status, media=media, body=body, content=content)

    def keep(self, owner: str, name: str, reply: StoredResponse | None) -> None:
        """Store the response to a claimed request, or free its key if there is none to store."""
        with self._store._transaction() as execute:
            if reply is None:
                execute(FREE_REPLY, owner, name)
            else:
                content = f"/{reply.content}" if reply.content else ""
                execute(KEEP_REPLY, content, reply.status, reply.media, reply.body, owner, name)
        if reply is not None:
            self._store.record_bytes.add(owner.partition("/")[0], count_record_bytes(reply.body))

    # Reports.

    def add_report(self, tenant: str, report: dict[str, Any]) -> Report:
        """Store an agent's report on its work."""
        made = Report(id=new_id("report"), at=_now(), **report)
        body = json.dumps(report)
        self._store.scoped(tenant).check_storage()
        with self._store._transaction() as execute:
            execute(ADD_REPORT, made.id, made.at, tenant, body)
        self._store.record_bytes.add(tenant, count_record_bytes(body))
        return made

    def reports(self, tenant: str = MAIN, limit: int = 50, cursor: str | None = None) -> Page[Report]:
        """Return the reports of agents, newest first; a page ends early if it has `PAGE_CHARS` characters."""
        asked, found, size = max(1, min(limit, 1000)), list[Any](), 0
        while len(found) < asked and size <= PAGE_CHARS:
            rows, cursor = self._list(REPORTS, tenant, min(asked - len(found), AT_ONCE), cursor)
            for row in rows:
                size += len(row[2])
                if found and size > PAGE_CHARS:
                    cursor = str(found[-1][0])
                    break
                found.append(row)
            if cursor is None:
                break
        return Page([Report(id=row[0], at=_utc(row[1]), **json.loads(row[2])) for row in found], cursor)


def daily_limits_of_key(key: ApiKey, defaults: ServerSettings) -> dict[str, float]:
    """Return the daily limits of a key by name: its own, or those of the server; zero means no limit."""
    own = {name: getattr(key.limits, name) for name in DAILY}
    return {name: getattr(defaults, name) if limit is None else limit for name, limit in own.items()}


def _usable_amount(amount: float) -> float:
    """Return an amount that can be stored and added to others; one that is negative or NaN counts as nothing."""
    return 0.0 if math.isnan(amount) else min(max(amount, 0.0), MOST_SPENT)


def _add_acts(execute: Execute, acts: list[Act]) -> None:
    for start in range(0, len(acts), BATCH):
        some = acts[start : start + BATCH]
        places = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
        execute(ADD_ACTS + places, *(value for act in some for value in act))


def _add_spending(execute: Execute, spent: list[Charge]) -> None:
    for (key_id, day), used in spent:
        execute(SPEND, key_id, day, used.tokens, used.cost_usd, used.seconds)


def _key(row: tuple[Any, ...]) -> ApiKey:
    names = ("id", "tenant", "name", "role", "limits", "created_at", "expires_at", "revoked_at")
    fields = dict(zip(names, row)) | {"limits": json.loads(row[4])}
    return ApiKey(**fields | {k: _utc(fields[k]) for k in names[5:] if fields[k] is not None})


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and len(token) < 200


def _now() -> datetime:
    return datetime.now(UTC)


def _utc(value: str | datetime) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC)


def _today() -> str:
    return f"{_now():%Y-%m-%d}"
