"""Who gets in: keys and roles, cookies with protection against other sites, rates, budgets, the record of it all."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import open_app
from etude.api import access_control
from etude.api.server import create_app
from etude.app import App
from etude.store.identity import Identity, KeyLimits, Role, Spent
from etude.telemetry import TelemetryAccessLog

SELECT = {"query": "SELECT 1 AS one", "record": False}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[App]:
    with open_app(tmp_path_factory.mktemp("home"), shop) as opened:
        yield opened


@pytest.fixture(scope="module")
def guarded(app: App) -> Iterator[TestClient]:
    """A server that asks for keys, as one would reach it over the network."""
    with TestClient(create_app(app, keys_required=True), base_url="https://etude.example") as opened:
        yield opened


def bearer(app: App, role: Role, **limits: Any) -> dict[str, str]:
    _, secret = Identity(app.store).create_key("test", role, limits=KeyLimits(**limits))
    return {"Authorization": f"Bearer {secret}"}


def test_nobody_gets_in_without_a_key(guarded: TestClient) -> None:
    for headers in ({}, {"Authorization": "Bearer etude_x_y"}, {"Authorization": "Basic eDp5"}):
        refused = guarded.get("/api/datasets", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"
    for path in ("/healthz", "/readyz", "/", "/openapi.json", "/api/session"):
        assert guarded.get(path).status_code == 200, path
    assert guarded.get("/metrics").status_code == 401


def test_roles(guarded: TestClient, app: App) -> None:
    reader, analyst, admin = (bearer(app, role) for role in ("reader", "analyst", "admin"))  # type: ignore[arg-type]
    assert guarded.get("/api/datasets", headers=reader).status_code == 200
    refused = guarded.post("/api/sql", json=SELECT, headers=reader)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert guarded.post("/api/sql", json=SELECT, headers=analyst).json()["rows"] == [[1]]
    assert guarded.get("/api/keys", headers=analyst).status_code == 403
    assert guarded.get("/api/keys", headers=admin).status_code == 200
    # What everyone does is for those who run the server.
    for path in ("/metrics", "/api/audit", "/audit", "/api/keys"):
        for headers in (reader, analyst):
            refused = guarded.get(path, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
        assert guarded.get(path, headers=admin).status_code == 200, path


def test_what_a_key_spent_is_told_to_it_alone(guarded: TestClient, app: App) -> None:
    analyst, other = bearer(app, "analyst"), bearer(app, "analyst")
    guarded.post("/api/sql", json=SELECT, headers=analyst)
    assert guarded.get("/api/spending", headers=analyst).json()["seconds"] > 0
    assert guarded.get("/api/spending", headers=other).json()["seconds"] == 0


def test_keys_are_made_listed_and_revoked(guarded: TestClient, app: App) -> None:
    admin = bearer(app, "admin")
    made = guarded.post("/api/keys", json={"name": "bot", "role": "analyst", "days": 3}, headers=admin).json()
    bot = {"Authorization": f"Bearer {made['key']}"}
    assert guarded.post("/api/sql", json=SELECT, headers=bot).status_code == 200
    listed = guarded.get("/api/keys", headers=admin).json()["items"]
    assert made["id"] in {key["id"] for key in listed}
    assert made["key"] not in str(listed) and "hash" not in str(listed)
    assert guarded.delete(f"/api/keys/{made['id']}", headers=admin).status_code == 204
    assert guarded.post("/api/sql", json=SELECT, headers=bot).status_code == 401
    guarded.app.state.server.flush()  # type: ignore[attr-defined]
    refused = next(e for e in guarded.get("/api/audit", headers=admin).json()["items"] if e["status"] == 401)
    assert made["id"] in str(refused)
    assert guarded.delete(f"/api/keys/{made['id']}", headers=admin).status_code == 404


def test_a_browser_s_session(app: App) -> None:
    _, secret = Identity(app.store).create_key("page", "analyst")
    with TestClient(create_app(app, keys_required=True), base_url="https://etude.example") as page:
        assert page.post("/api/session", json={"key": "etude_no_no"}).status_code == 401
        login = page.post("/api/session", json={"key": secret})
        cookie = login.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" in cookie
        assert page.get("/api/session").json() == login.json()
        assert page.get("/api/datasets").status_code == 200
        assert page.get("/api/datasets", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        token = {"X-CSRF-Token": login.json()["csrf"]}
        assert page.post("/api/sql", json=SELECT, headers=token).status_code == 200
        for headers in (
            {},
            {"X-CSRF-Token": "0" * 64},
            token | {"Origin": "https://evil.example"},
            token | {"Sec-Fetch-Site": "cross-site"},
            token | {"Sec-Fetch-Site": "same-site"},
        ):
            refused = page.post("/api/sql", json=SELECT, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), headers
        formula = page.post("/api/sql", json={"query": "SELECT '=1' AS a"}, headers=token).json()["run_id"]
        assert page.get(f"/api/runs/{formula}/result", headers={"Accept": "text/csv"}).text == "a\r\n'=1\r\n"
        own = token | {"Origin": "https://etude.example", "Sec-Fetch-Site": "same-origin"}
        assert page.post("/api/sql", json=SELECT, headers=own).status_code == 200
        assert page.delete("/api/session", headers=token).status_code == 204
        assert page.get("/api/datasets").status_code == 401


def test_without_keys_other_sites_and_other_names_stay_out(app: App) -> None:
    with TestClient(create_app(app), base_url="http://localhost:8520") as here:
        assert here.post("/api/sql", json=SELECT).status_code == 200
        for host in (
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8520",
            "",
            "10.0.0.1",
            "127.1",
            "[::1",
            "localhost:x",
        ):
            assert here.get("/api/datasets", headers={"Host": host}).status_code == 403, host
        for host in ("127.0.0.1", "127.8.8.8", "[::1]:8520", "LOCALHOST:1"):
            assert here.get("/api/datasets", headers={"Host": host}).status_code == 200, host
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert here.post("/api/sql", json=SELECT, headers=headers).status_code == 403, headers
            assert here.get("/api/datasets", headers=headers).status_code == 403, headers
        several = [("Host", "evil.example"), ("Host", "localhost")]
        assert here.get("/api/datasets", headers=several).status_code == 403
        # Reading can mean work too, such as a profile; other sites may only link to the page.
        for path in ("/profile/shop", "/api/datasets/shop/profile", "/api/datasets", "/readyz", "/api/runs"):
            for site in ("cross-site", "same-site"):
                assert here.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403, path
        assert here.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
        assert here.get("/api/datasets", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
        # A form of another site can send text, and text is no JSON here.
        assert here.post("/api/sql", content='{"query": "SELECT 1"}', headers={"content-type": "text/plain"}).is_error
        assert "access-control-allow-origin" not in here.get("/api/datasets", headers={"Origin": "http://x"}).headers


def test_a_key_creates_no_key_that_may_use_more(guarded: TestClient, app: App) -> None:
    headers = bearer(app, "admin", per_minute=50, daily_seconds=60.0)
    asked = {"per_minute": 1_000_000, "at_once": 7, "daily_seconds": 0.0}
    made = guarded.post("/api/keys", json={"name": "more", "role": "admin", "limits": asked}, headers=headers).json()
    listed = guarded.get("/api/keys", headers=headers).json()["items"]
    limits = next(key["limits"] for key in listed if key["id"] == made["id"])
    assert (limits["per_minute"], limits["at_once"], limits["daily_seconds"]) == (50, 7, 60.0)
    plain = guarded.post("/api/keys", json={"name": "plain", "role": "reader"}, headers=headers).json()["id"]
    listed = guarded.get("/api/keys", headers=headers).json()["items"]
    assert next(key["limits"] for key in listed if key["id"] == plain)["per_minute"] == 50


def test_limits_of_the_settings_hold_for_created_keys(app: App, shop: Path) -> None:
    limited = app.settings.server.model_copy(update={"per_minute": 60, "at_once": 5, "daily_seconds": 0.0})
    app.settings = app.settings.model_copy(update={"server": limited})
    asked = {"per_minute": 0, "at_once": 9, "daily_seconds": 30.0}
    with TestClient(create_app(app, keys_required=True)) as client:
        headers = bearer(app, "admin")
        made = client.post("/api/keys", json={"name": "more", "role": "admin", "limits": asked}, headers=headers).json()
        client.post("/api/keys", json={"name": "plain", "role": "admin"}, headers=headers)
        listed = {key["name"]: key["limits"] for key in client.get("/api/keys", headers=headers).json()["items"]}
    assert made["id"]
    assert (listed["more"]["per_minute"], listed["more"]["at_once"], listed["more"]["daily_seconds"]) == (60, 5, 30.0)
    assert listed["plain"]["per_minute"] is None


def test_a_key_has_its_rate(guarded: TestClient, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = time.monotonic()
    monkeypatch.setattr(access_control, "time", SimpleNamespace(monotonic=lambda: moment))
    headers = bearer(app, "reader", per_minute=3)
    statuses = [guarded.get("/api/datasets", headers=headers).status_code for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    refused = guarded.get("/api/datasets", headers=headers)
    assert refused.json()["limit"] == "per_minute"
    assert refused.headers["retry-after"] == "20"
    moment += 21.0
    assert [guarded.get("/api/datasets", headers=headers).status_code for _ in range(2)] == [200, 429]
    assert guarded.get("/api/datasets", headers=bearer(app, "reader")).status_code == 200


def test_bad_requests_without_end_are_shed_before_they_are_read(
    app: App, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 0.0
    monkeypatch.setattr(access_control, "time", SimpleNamespace(monotonic=lambda: moment))
    monkeypatch.setenv("ETUDE_SERVER__REFUSED_PER_MINUTE", "3")
    with (
        open_app(tmp_path, shop) as opened,
        TestClient(create_app(opened, keys_required=True), base_url="https://etude.example") as client,
    ):
        good, bad, admin = bearer(opened, "analyst"), bearer(opened, "analyst"), bearer(opened, "admin")
        assert client.post("/api/sql", json=SELECT, headers=good).status_code == 200
        assert client.post("/api/sql", json=SELECT, headers=bad).status_code == 200
        # Without a valid key, the address is counted.
        wrong = {"Authorization": "Bearer etude_wrong_key"}
        assert [client.get("/api/runs", headers=h).status_code for h in (wrong, {}, wrong, wrong, {})] == [
            *(401, 401, 401),
            *(429, 429),
        ]
        shed = client.get("/api/runs")
        assert (shed.json()["limit"], shed.headers["connection"]) == ("refused_per_minute", "close")
        assert int(shed.headers["retry-after"]) >= 1
        # Callers at the same address whose keys are known, and probes, are served.
        assert client.post("/api/sql", json=SELECT, headers=good).status_code == 200
        assert client.get("/healthz").status_code == 200
        # With a key, the key is counted: others with good requests go on, this one waits.
        statuses = [client.post("/api/sql", json={"query": 1}, headers=bad).status_code for _ in range(5)]
        assert statuses == [422, 422, 422, 429, 429]
        assert client.post("/api/sql", json=SELECT, headers=bad).status_code == 429
        assert client.post("/api/sql", json=SELECT, headers=good).status_code == 200
        moment = 20.0
        assert client.post("/api/sql", json=SELECT, headers=bad).status_code == 200
        assert client.get("/api/runs").status_code == 401
        # Shed requests are counted, but they fill neither the audit nor a list of routes.
        moment = 100.0
        audit = client.get("/api/audit", headers=admin).json()["items"]
        assert not [entry for entry in audit if entry["status"] == 429]
        assert 'route="shed",status="429"' in client.get("/metrics", headers=admin).text


def test_a_key_has_so_many_requests_at_once(app: App) -> None:
    from etude.api.access_control import AccessControl
    from etude.api.api_caller import ApiCaller
    from etude.errors import LimitExceeded

    key, _ = Identity(app.store).create_key("x", "analyst", limits=KeyLimits(at_once=2))
    access_control, caller = (
        AccessControl(Identity(app.store), app.settings.server, True),
        ApiCaller("main", "analyst", key),
    )
    with access_control.limit_concurrency(caller), access_control.limit_concurrency(caller):
        with pytest.raises(LimitExceeded, match="2 requests"), access_control.limit_concurrency(caller):
            pass
        with access_control.limit_concurrency(caller, "stream"):
            pass
    with access_control.limit_concurrency(caller):
        pass


def test_a_key_s_day_has_an_end(guarded: TestClient, app: App) -> None:
    headers = bearer(app, "analyst", daily_tokens=1)
    first = guarded.post("/api/ask", json={"question": "how many orders?"}, headers=headers)
    assert first.status_code == 200
    assert first.json()["usage"]["tokens_in"] > 0
    wait_until(lambda: guarded.get("/api/spending", headers=headers).json()["tokens"] > 0)
    for path, body in (
        ("/api/ask", {"question": "how many orders?"}),
        ("/api/chat", {"message": "how many orders?"}),
        ("/api/runs", {"kind": "ask", "text": "how many orders?"}),
        ("/api/sql", SELECT),
    ):
        refused = guarded.post(path, json=body, headers=headers)
        assert (refused.status_code, refused.json()["limit"]) == (429, "daily_tokens"), path
    slow = bearer(app, "analyst", daily_seconds=1e-9)
    assert guarded.post("/api/sql", json=SELECT, headers=slow).status_code == 200
    wait_until(lambda: guarded.get("/api/spending", headers=slow).json()["seconds"] > 0)
    assert guarded.post("/api/sql", json=SELECT, headers=slow).json()["limit"] == "daily_seconds"


def test_what_was_spent_is_seen_while_it_is_put_on_record(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity(app.store)
    key, _ = identity.create_key("x", "analyst")
    identity.spend(key.id, Spent(tokens=5))
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.append(identity.spent(key.id).tokens))
    write = identity._write

    def write_slowly(*what: Any) -> None:
        if not reader.ident:
            reader.start()
            reader.join(0.2)
        write(*what)

    monkeypatch.setattr(identity, "_write", write_slowly)
    identity.write_down()
    reader.join()
    assert seen == [5]


def test_what_another_tenant_s_key_uses_is_counted_too(guarded: TestClient, app: App) -> None:
    app.scoped("acme").add_source("shop", app.sources()["shop"])
    _, secret = Identity(app.store).create_key("test", "analyst", "acme")
    headers = {"Authorization": f"Bearer {secret}"}
    assert guarded.post("/api/ask", json={"question": "how many orders?"}, headers=headers).status_code == 200
    wait_until(lambda: guarded.get("/api/spending", headers=headers).json()["tokens"] > 0)


def test_who_did_what_is_on_record(guarded: TestClient, app: App) -> None:
    admin, reader = bearer(app, "admin"), bearer(app, "reader")
    key_id = reader["Authorization"].split("_")[1]
    guarded.post("/api/sql", json=SELECT, headers=reader | {"X-Request-Id": "mine-1"})
    guarded.get("/api/datasets", headers=reader | {"X-Request-Id": "mine-2"})
    acts = guarded.get("/api/audit", headers=admin).json()["items"]
    mine = [act for act in acts if act["request_id"].startswith("mine")]
    assert [(a["key_id"], a["action"], a["status"]) for a in mine] == [(key_id, "POST /api/sql", 403)]


def test_a_key_is_told_once_and_kept_nowhere(guarded: TestClient, app: App) -> None:
    admin = bearer(app, "admin") | {"Idempotency-Key": "new key"}
    body = {"name": "for a script", "role": "reader"}
    first = guarded.post("/api/keys", json=body, headers=admin)
    secret = first.json()["key"]
    again = guarded.post("/api/keys", json=body, headers=admin)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "held a secret" in again.json()["detail"] and "revoke" in again.json()["hint"]
    assert secret not in again.text
    assert again.headers["idempotency-replayed"] == "true"
    assert [k["name"] for k in guarded.get("/api/keys", headers=admin).json()["items"]].count(body["name"]) == 1
    kept = str(app.store._read("SELECT * FROM replies"))
    assert "new key" in kept and secret not in kept and secret.split("_", 2)[2] not in kept
    session = guarded.post("/api/session", json={"key": secret}, headers={"Idempotency-Key": "log in"})
    assert session.status_code == 200
    guarded.cookies.clear()
    assert session.json()["csrf"] not in str(app.store._read("SELECT * FROM replies"))


def test_the_key_of_a_row_is_in_no_log(guarded: TestClient, app: App) -> None:
    log = io.StringIO()
    guarded.app.state.server.access = TelemetryAccessLog(log)  # type: ignore[attr-defined]
    try:
        for headers in ({}, bearer(app, "reader")):
            guarded.get("/rows/data/customers/ann%40example.com/x%0Ay", headers=headers)
            guarded.get("/api/rows/data/customers/ann%40example.com?by=email", headers=headers)
        guarded.app.state.server.access.write()  # type: ignore[attr-defined]
    finally:
        guarded.app.state.server.access = None  # type: ignore[attr-defined]
    assert log.getvalue().count("GET /api/rows/data/customers/***") == 4
    audit = guarded.get("/api/audit", headers=bearer(app, "admin")).text
    assert "GET /api/rows/data/customers/***" in audit
    assert "example.com" not in log.getvalue() + audit


def test_a_long_path_is_cut_in_the_logs(guarded: TestClient, app: App) -> None:
    log = io.StringIO()
    guarded.app.state.server.access = TelemetryAccessLog(log)  # type: ignore[attr-defined]
    try:
        guarded.get(f"/{'x' * 60_000}")
        guarded.get(f"/api/runs/{'x' * 60_000}", headers=bearer(app, "reader"))
        guarded.app.state.server.access.write()  # type: ignore[attr-defined]
    finally:
        guarded.app.state.server.access = None  # type: ignore[attr-defined]
    assert log.getvalue().count("[60,0") >= 2
    assert max(map(len, log.getvalue().splitlines())) < 2_000
    audit = guarded.get("/api/audit", headers=bearer(app, "admin")).json()["items"]
    cut = [entry["action"] for entry in audit if "xxx" in entry["action"]]
    assert cut and all(len(action) == 500 and action.endswith("characters]") for action in cut)


def test_a_flood_of_strangers_fills_no_audit(guarded: TestClient, app: App) -> None:
    before = len(app.store._read("SELECT 1 FROM audit"))
    for number in range(200):
        assert guarded.get(f"/api/runs/{number}").status_code == 401
    guarded.get("/api/audit", headers=bearer(app, "admin"))
    # Two minutes at most, with twenty in detail each.
    assert len(app.store._read("SELECT 1 FROM audit")) - before <= 2 * 21 + 1


def test_the_same_request_sent_twice_is_done_once(guarded: TestClient, app: App) -> None:
    headers = bearer(app, "analyst") | {"Idempotency-Key": "one"}
    body = {"query": "SELECT 'once' AS word"}
    first = guarded.post("/api/sql", json=body, headers=headers)
    second = guarded.post("/api/sql", json=body, headers=headers)
    assert second.json() == first.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert [r.text for r in app.store.runs(limit=50).items].count(body["query"]) == 1
    other = guarded.post("/api/sql", json={"query": "SELECT 2"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "invalid")
    elsewhere = guarded.post("/api/sql", json=body, headers=bearer(app, "analyst") | {"Idempotency-Key": "one"})
    assert "idempotency-replayed" not in elsewhere.headers
    wrong = {"query": "SELECT x"}
    again = headers | {"Idempotency-Key": "two"}
    assert guarded.post("/api/sql", json=wrong, headers=again).status_code == 422
    assert guarded.post("/api/sql", json=wrong, headers=again).headers["idempotency-replayed"] == "true"
    assert guarded.post("/api/sql", json=body, headers=headers | {"Idempotency-Key": "x" * 300}).status_code == 422
    queried = guarded.post("/api/sql?x=1", json=body, headers=headers)
    assert (queried.status_code, queried.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize("kind", ["application/json", "text/csv"])
def test_a_large_response_is_not_kept_and_its_request_is_not_done_twice(
    guarded: TestClient, app: App, kind: str
) -> None:
    headers = bearer(app, "analyst") | {"Idempotency-Key": "large", "Accept": kind}
    body = {"query": f"SELECT repeat('x', 100000) AS \"{kind}\""}
    first = guarded.post("/api/sql", json=body, headers=headers)
    assert first.status_code == 200 and len(first.content) > 100_000
    second = guarded.post("/api/sql", json=body, headers=headers)
    assert (second.status_code, second.headers["idempotency-replayed"]) == (409, "true")
    runs = [r for r in app.store.runs(limit=50).items if r.text == body["query"]]
    assert len(runs) == 1
    assert second.json()["hint"] == f"Read the run: GET /api/runs/{runs[0].id}"
    assert app.store._read("SELECT max(length(body)) FROM replies")[0][0] < 64 << 10


@pytest.mark.parametrize(
    "value",
    [
        '"' + '\\"' * 31_500 + '"',
        '"' + "\\101" * 15_000 + '"',
        "a" * 63_000,
        '"; ' * 21_000,
        "=;" * 31_500,
        " " * 63_000,
    ],
)
def test_a_cookie_costs_linear_time(guarded: TestClient, value: str) -> None:
    headers = {"Cookie": f"{access_control.COOKIE}={value}"}
    before = time.thread_time()
    secrets = access_control.read_access_secrets({"cookie": headers["Cookie"]})
    assert time.thread_time() - before < 0.1
    assert secrets == access_control.AccessSecrets(None, None)
    assert guarded.get("/api/datasets", headers=headers).status_code == 401


def test_a_session_is_found_among_other_cookies() -> None:
    for header in ("etude_session=abc-_1", 'a="x\\"y"; etude_session=abc-_1 ;b=c', "a;;etude_session=abc-_1"):
        assert access_control.read_access_secrets({"cookie": header}).cookie == "abc-_1", header
    for header in (
        "",
        "etude_session",
        "etude_session=",
        'etude_session="abc"',
        "xetude_session=abc",
        "etude_session=a\\b",
    ):
        assert access_control.read_access_secrets({"cookie": header}).cookie is None, header


def test_logging_in_counts_toward_the_rate_of_the_key(app: App) -> None:
    """The key is in the body of the request."""
    identity = Identity(app.store)
    _, secret = identity.create_key("page", "reader", limits=KeyLimits(per_minute=3))
    with TestClient(create_app(app, keys_required=True)) as page:
        seen = []
        for _ in range(5):
            seen.append(page.post("/api/session", json={"key": secret}).status_code)
            page.cookies.clear()
    assert seen == [200, 200, 200, 429, 429]
