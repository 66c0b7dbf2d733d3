"""The listening process at its end: requests in flight finish, new ones are refused, late ones get a problem."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.conftest import listening, open_app
from tests.patience import wait_until

from etude.errors import Unavailable
from etude.store.identity import Identity

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c WHERE a.range + b.range < c.range"
SLOW = "SELECT count(*) AS n FROM range(60000) a, range(30000) b WHERE a.range < b.range"


def post(url: str, path: str, **body: object) -> httpx.Response:
    return httpx.post(url + path, json=body, timeout=120)


def test_a_query_in_flight_is_finished_and_new_work_is_refused(tmp_path: Path, shop: Path) -> None:
    with (
        open_app(tmp_path / "home", shop, server={"drain_s": 60}) as app,
        listening(app) as server,
        ThreadPoolExecutor() as pool,
    ):
        asked = pool.submit(post, server.url, "/sql", dataset="shop", query=SLOW)
        wait_until(lambda: app.store.count_open().get("running"))
        server.listener.should_exit = True
        wait_until(lambda: server.api.state.server.draining)
        for path, body in {
            "/sql": {"dataset": "shop", "query": "SELECT 1"},
            "/ask": {"dataset": "shop", "question": "how many orders"},
            "/runs": {"kind": "sql", "dataset": "shop", "text": "SELECT 1"},
            "/search": {"text": "orders"},
        }.items():
            refused = post(server.url, path, **body)
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable"), path
            assert refused.headers["retry-after"] == "2"
        assert httpx.get(f"{server.url}/runs", timeout=60).status_code == 200
        answer = asked.result()
        assert answer.status_code == 200, answer.text
        assert answer.json()["rows"] == [[60000 * 30000 - 30000 * 30001 // 2 - 30000 * 30000]]


@pytest.mark.parametrize("record", [True, False])
def test_a_query_that_is_too_long_for_the_drain_gets_503(tmp_path: Path, shop: Path, record: bool) -> None:
    with open_app(tmp_path / "home", shop, server={"drain_s": 0.5}) as app:
        with listening(app) as server, ThreadPoolExecutor() as pool:
            asked = pool.submit(post, server.url, "/sql", dataset="shop", query=ENDLESS, record=record)
            wait_until(lambda: server.api.state.server.requests)
            time.sleep(1)
            server.listener.should_exit = True
            answer = asked.result()
        assert answer.status_code == 503, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"]
        runs = [app.store.run(r.id) for r in app.store.runs().items]
        assert [(r.status, r.error and r.error["code"]) for r in runs] == (
            [("failed", "interrupted")] if record else []
        )


def test_a_question_that_is_too_long_for_the_drain_says_that_it_resumes(tmp_path: Path, shop: Path) -> None:
    with open_app(tmp_path / "home", shop, server={"drain_s": 0.5}) as app:
        with listening(app) as server, ThreadPoolExecutor() as pool:
            asked = pool.submit(post, server.url, "/ask", dataset="shop", question="be slow")
            wait_until(lambda: app.store.count_open().get("running"))
            server.listener.should_exit = True
            answer = asked.result()
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
        assert answer.headers["retry-after"] == "2"
        assert answer.json()["run_id"] in answer.json()["hint"]


def test_an_idle_server_ends_at_once(tmp_path: Path, shop: Path) -> None:
    with (
        open_app(tmp_path / "home", shop, server={"drain_s": 60}) as app,
        listening(app, runs_agents=True) as server,
        httpx.stream("GET", f"{server.url}/api/events/weather", timeout=60) as stream,
    ):
        assert stream.status_code == 200
        started = time.monotonic()
        server.listener.should_exit = True
        wait_until(lambda: not server.api.state.server.requests and server.api.state.server.run_watcher.closed)
        assert time.monotonic() - started < 5


def test_a_refused_request_can_be_repeated_at_once_with_its_idempotency_key(
    tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy sends it to another server as soon as it has the 503; the key must be free by then."""
    keep = Identity.keep

    def slowly(self: Identity, owner: str, name: str, reply: Any) -> None:
        time.sleep(0.5)
        keep(self, owner, name, reply)

    def refuse(*_: object, **__: object) -> None:
        raise Unavailable("Not now.", retry_after_s=1)

    monkeypatch.setattr(Identity, "keep", slowly)
    with open_app(tmp_path / "home", shop) as app:
        monkeypatch.setattr(type(app.runs), "begin", refuse)
        with listening(app) as server, httpx.Client(base_url=server.url, timeout=120) as web:
            body = {"kind": "sql", "dataset": "shop", "text": "SELECT 1"}
            found = [web.post("/api/runs", json=body, headers={"Idempotency-Key": "one"}) for _ in range(2)]
        assert [answer.status_code for answer in found] == [503, 503], found[1].text
