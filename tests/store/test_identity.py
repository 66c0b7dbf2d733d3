"""Keys, sessions of browsers, spending, audit and kept answers, over SQLite and Postgres alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from etude.errors import Conflict, Invalid, LimitExceeded, NotFound, Unauthorized, Unavailable
from etude.settings import ServerSettings
from etude.store.base import Store
from etude.store.identity import Identity, KeyLimits, Role, Spent, StoredResponse


@pytest.fixture
def identity(store: Store, monkeypatch: pytest.MonkeyPatch) -> Identity:
    # The day does not end while a test runs: what was spent is counted by the day.
    monkeypatch.setattr("etude.store.identity._today", lambda: "2026-01-01")
    return Identity(store)


def test_a_key_opens_what_it_is_for_and_its_secret_is_kept_nowhere(identity: Identity, store: Store) -> None:
    assert not identity.any_key()
    key, secret = identity.create_key("a script", "analyst", "ours", KeyLimits(per_minute=5))
    assert identity.any_key()
    assert identity.authenticate(secret) == key
    assert (key.tenant, key.role, key.limits.per_minute) == ("ours", "analyst", 5)
    assert identity.keys() == identity.keys("ours") == [key]
    assert identity.keys("theirs") == []
    random_part = secret.split("_", 2)[2]
    assert len(random_part) >= 43
    stored = store._read("SELECT * FROM keys")
    assert random_part not in str(stored)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: "",
        lambda s: s[:-1],
        lambda s: s + "x",
        lambda s: s.replace("etude", "other"),
        lambda s: s.upper(),
        lambda s: "etude__",
        lambda s: s + "\0",
        lambda s: "é" + s,
        lambda s: "etude_" + "x" * 10_000,
    ],
)
def test_anything_else_opens_nothing(identity: Identity, change: Callable[[str], str]) -> None:
    _, secret = identity.create_key("x", "admin")
    with pytest.raises(Unauthorized):
        identity.authenticate(change(secret))


def test_a_key_that_is_revoked_or_old_opens_nothing(identity: Identity) -> None:
    key, secret = identity.create_key("x", "reader")
    with pytest.raises(NotFound):
        identity.revoke_key(key.id, "theirs")
    identity.revoke_key(key.id)
    with pytest.raises(Unauthorized, match="revoked"):
        identity.authenticate(secret)
    with pytest.raises(NotFound):
        identity.revoke_key(key.id)
    assert not identity.any_key()
    past = datetime.now(UTC) - timedelta(seconds=1)
    _, old = identity.create_key("old", "reader", expires_at=past)
    with pytest.raises(Unauthorized, match="expired"):
        identity.authenticate(old)


def test_what_cannot_be_a_key(identity: Identity) -> None:
    for name, role, tenant in (("", "reader", "main"), ("x", "owner", "main"), ("x", "reader", "A B")):
        with pytest.raises(Invalid):
            identity.create_key(name, role, tenant)  # type: ignore[arg-type]


@pytest.mark.parametrize(("role", "allowed"), [("reader", 1), ("analyst", 2), ("admin", 3)])
def test_each_role_may_do_what_those_before_it_may(identity: Identity, role: Role, allowed: int) -> None:
    key, _ = identity.create_key("x", role)
    roles: tuple[Role, ...] = ("reader", "analyst", "admin")
    assert [key.allows(r) for r in roles] == [i < allowed for i in range(3)]


def test_a_session_stands_for_its_key(identity: Identity) -> None:
    key, _ = identity.create_key("x", "reader")
    cookie = identity.log_in(key)
    assert identity.logged_in(cookie) == key
    other = identity.log_in(key)
    identity.log_out(cookie)
    with pytest.raises(Unauthorized):
        identity.logged_in(cookie)
    identity.revoke_key(key.id)
    with pytest.raises(Unauthorized):
        identity.logged_in(other)


def test_the_sessions_of_a_key_are_limited_and_the_newest_stay(
    identity: Identity, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.store.identity.LOGINS", 3)
    key, other = identity.create_key("x", "reader")[0], identity.create_key("y", "reader")[0]
    of_other = identity.log_in(other)
    cookies = [identity.log_in(key) for _ in range(5)]
    for ended in cookies[:2]:
        with pytest.raises(Unauthorized):
            identity.logged_in(ended)
    assert [identity.logged_in(c) for c in cookies[2:]] == [key] * 3
    assert identity.logged_in(of_other) == other


def test_spending_adds_up_before_and_after_it_is_on_record(identity: Identity, store: Store) -> None:
    identity.spend("k", Spent(tokens=10, cost_usd=0.5, seconds=1))
    identity.spend("k", Spent(tokens=5))
    assert identity.spent("k") == Spent(tokens=15, cost_usd=0.5, seconds=1)
    assert Identity(store).spent("k") == Spent()
    identity.write_down()
    identity.spend("k", Spent(seconds=2))
    assert identity.spent("k") == Spent(tokens=15, cost_usd=0.5, seconds=3)
    identity.write_down()
    assert Identity(store).spent("k") == Spent(tokens=15, cost_usd=0.5, seconds=3)
    assert identity.spent("other") == Spent()


def test_the_audit_is_in_order_by_page_and_by_tenant(identity: Identity) -> None:
    for number in range(250):
        identity.note("ours" if number % 2 else "main", None, f"POST /{number}", 200, "r", "127.0.0.1")
    identity.write_down()
    first = identity.acts("ours", limit=100)
    rest = identity.acts("ours", limit=100, cursor=first.next)
    found = [act.action for act in first.items + rest.items]
    assert found == [f"POST /{n}" for n in range(249, 0, -2)]
    assert rest.next is None


def test_refused_strangers_are_counted_and_not_all_written(identity: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000 * 60.0
    monkeypatch.setattr("etude.store.identity.time.time", lambda: now)
    for number in range(5000):
        identity.note("main", None, f"GET /{number}", 401 if number % 2 else 403, "r", "10.0.0.1")
    for number in range(1000):
        identity.note("main", None, "GET /", 401, "r", f"10.1.{number // 250}.{number % 250}")
    identity.note("main", "key", "POST /sql", 403, "mine", "10.0.0.1")
    identity.write_down()
    acts = identity.acts(limit=1000).items
    assert len(acts) == 20 + 99 + 1, "some of each address in detail; and whoever has a key in full"
    assert [a.action for a in acts if a.request_id == "mine"] == ["POST /sql"]
    now += 60
    identity.write_down()
    counted = [a for a in identity.acts(limit=1000).items if "more requests" in a.action]
    numbers = {(a.address, a.status): int(a.action.split()[0].replace(",", "")) for a in counted}
    assert sum(count for (address, _), count in numbers.items() if address == "10.0.0.1") == 5000 - 20
    assert numbers["other addresses", 401] == 1000 - 99, "nothing is lost without a trace"
    identity.note("main", None, "GET /", 401, "r", "10.0.0.1")
    assert identity._refused
    identity.write_down(closing=True)
    assert not identity._refused


def test_a_request_that_names_itself_is_done_once(identity: Identity) -> None:
    assert identity.claim("me", "a", "hash") is None
    with pytest.raises(Conflict, match="still"):
        identity.claim("me", "a", "hash")
    identity.keep("me", "a", StoredResponse(status=201, media="application/json", body='{"ä": 1}'))
    assert identity.claim("me", "a", "hash") == StoredResponse(status=201, media="application/json", body='{"ä": 1}')
    with pytest.raises(Invalid, match="another request"):
        identity.claim("me", "a", "other")
    assert identity.claim("somebody", "a", "other") is None
    identity.keep("somebody", "a", None)
    assert identity.claim("somebody", "a", "third") is None


def test_of_many_at_once_one_is_first(identity: Identity) -> None:
    def claim(_: int) -> str:
        try:
            return "first" if identity.claim("me", "race", "h") is None else "again"
        except Conflict:
            return "waits"

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(claim, range(32)))
    assert outcomes.count("first") == 1
    assert outcomes.count("waits") == 31


def test_reports_are_their_tenant_s(identity: Identity) -> None:
    made = identity.add_report("ours", {"text": "counted", "outcome": "worked", "code": "SELECT 1"})
    assert identity.reports("ours").items == [made]
    assert identity.reports("theirs").items == []


def test_what_cannot_be_written_now_is_written_later(identity: Identity, store: Store) -> None:
    key, _ = identity.create_key("x", "analyst")
    identity.note("main", key.id, "POST /sql", 200, "r1", "::1")
    identity.spend(key.id, Spent(tokens=5))
    with store._transaction() as execute:
        execute("ALTER TABLE spending RENAME TO away")
    with pytest.raises(Exception, match="spending"):
        identity.write_down()
    with store._transaction() as execute:
        execute("ALTER TABLE away RENAME TO spending")
    identity.spend(key.id, Spent(tokens=2))
    identity.write_down()
    assert Identity(store).spent(key.id).tokens == 7
    assert [act.request_id for act in identity.acts().items] == ["r1"]


BAD = ["a\0b", "\udcff", "x" * 100_000]


@pytest.mark.parametrize("bad", BAD)
def test_any_text_of_a_caller_can_be_in_the_audit(identity: Identity, bad: str) -> None:
    identity.note("ours", "key", "POST /sql", 200, "r1", "::1")
    identity.note("ours", bad, bad, 200, bad, bad, bad)
    identity.note("theirs", "key", "POST /sql", 200, "r2", "::1", "why")
    identity.write_down()
    first, second = reversed(identity.acts("ours").items)
    assert first.request_id == "r1"
    assert "\0" not in str(second)
    assert len(str(second)) < 3000
    assert [(act.request_id, act.reason) for act in identity.acts("theirs").items] == [("r2", "why")]


def test_a_row_that_the_store_refuses_stops_no_other(
    identity: Identity, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key, _ = identity.create_key("x", "analyst")
    with monkeypatch.context() as patched:
        patched.setattr("etude.store.identity.make_storable", lambda text, most: text)
        for n in range(250):
            identity.note("main", key.id, "POST /sql", 200, f"r{n}", "::1", "a\0b" if n in (7, 130, 131) else None)
    identity.spend(key.id, Spent(tokens=5))
    identity.spend("\0", Spent(tokens=1))
    identity.write_down()
    assert Identity(store).spent(key.id).tokens == 5
    stored = [act.request_id for act in identity.acts(limit=1000).items]
    assert stored == [f"r{n}" for n in reversed(range(250)) if n not in (7, 130, 131)]
    assert caplog.text.count("the store refused a record") == 4
    caplog.clear()
    identity.note("main", key.id, "POST /sql", 200, "later", "::1")
    identity.write_down()
    assert identity.acts(limit=1).items[0].request_id == "later"
    assert not caplog.text


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_wrong_amount_does_not_stop_the_count(identity: Identity, store: Store, amount: float) -> None:
    used = Spent(tokens=1 << 80, cost_usd=amount, seconds=amount)
    for _ in range(2):
        identity.spend("wrong", used)
        identity.spend("right", Spent(tokens=1, cost_usd=0.5))
        identity.write_down()
    assert Identity(store).spent("right") == Spent(tokens=2, cost_usd=1.0)
    assert Identity(store).spent("wrong").tokens > 1 << 40


def test_acts_that_wait_for_the_store_are_limited_and_the_others_counted(
    identity: Identity, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.store.identity.WAITING", 3)
    with store._transaction() as execute:
        execute("ALTER TABLE audit RENAME TO away")
    for n in range(5):
        identity.note("ours", "key", "POST /sql", 200, f"r{n}", "::1")
        with pytest.raises(Unavailable):
            identity.write_down()
    with store._transaction() as execute:
        execute("ALTER TABLE away RENAME TO audit")
    identity.write_down()
    identity.write_down()
    listed = [act.request_id or act.action for act in reversed(identity.acts("ours").items)]
    assert listed == ["r0", "r1", "r2", "2 more requests are not listed, because the store could not be written"]


def test_a_budget_of_a_day_is_the_key_s_own_or_the_server_s(identity: Identity) -> None:
    defaults = ServerSettings(daily_tokens=10)
    usual, _ = identity.create_key("usual", "analyst")
    large, _ = identity.create_key("large", "analyst", limits=KeyLimits(daily_tokens=100, daily_seconds=0.5))
    free, _ = identity.create_key("free", "analyst", limits=KeyLimits(daily_tokens=0))
    for key in (usual, large, free):
        identity.check_budget(key, defaults)
        identity.spend(key.id, Spent(tokens=10))
    with pytest.raises(LimitExceeded, match="`usual` has used 10 of 10 tokens"):
        identity.check_budget(usual, defaults)
    identity.check_budget(large, defaults)
    identity.check_budget(free, defaults)
    identity.spend(large.id, Spent(seconds=0.5))
    with pytest.raises(LimitExceeded) as caught:
        identity.check_budget(identity.key(large.id), defaults)
    assert caught.value.details["limit"] == "daily_seconds"
    assert 0 < caught.value.details["retry_after_s"] <= 86_400


@pytest.mark.parametrize(
    ("asked", "own", "default", "given"),
    [
        (None, None, 60, None),  # the server's limit, also if that changes
        (0, None, 60, 60),
        (100, None, 60, 60),
        (30, None, 60, 30),
        (0, None, 0, 0),
        (None, 40, 60, 40),
        (0, 40, 60, 40),
        (50, 40, 60, 40),
        (50, 0, 60, 50),
        (0, 0, 60, 0),
    ],
)
def test_a_key_creates_none_that_may_use_more(
    asked: int | None, own: int | None, default: int, given: int | None
) -> None:
    for name in KeyLimits.model_fields:
        limits = KeyLimits(**{name: asked}).within(KeyLimits(**{name: own}), ServerSettings(**{name: default}))
        assert getattr(limits, name) == given
