"""The gateway for agents, datasets, threads and health."""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import listening
from etude import __version__
from etude.api.server import create_app
from etude.app import App
from etude.entities import Limits, SourceSpec
from etude.settings import load_settings
from etude.store.identity import Identity


def test_sql_gives_the_first_rows_and_keeps_all(client: TestClient, app: App) -> None:
    answer = client.post(
        "/sql", json={"dataset": "shop", "query": "SELECT * FROM orders ORDER BY 1", "limit": 2}
    ).json()
    assert [row[0] for row in answer["rows"]] == [1, 2]
    assert (answer["row_count"], answer["next"]) == (3704, 2)
    assert app.result(answer["run_id"]).row_count == 3704


def test_sql_that_is_not_recorded_leaves_no_run(client: TestClient, app: App) -> None:
    answer = client.post("/sql", json={"query": "SELECT 'unseen' AS word", "record": False}).json()
    assert (answer["rows"], answer["run_id"]) == ([["unseen"]], None)
    assert client.get("/runs", params={"text": "unseen"}).json()["items"] == []


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A database file of the settings, on one engine, which is open: small queries need no thread."""
    home = tmp_path_factory.mktemp("numbers")
    with duckdb.connect(home / "numbers.duckdb") as made:
        made.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(100000)")
    settings = load_settings(home=str(home / "home"), engine={"processes": 1})
    sources = {"numbers": SourceSpec(url=str(home / "numbers.duckdb"))}
    with (
        App(settings.model_copy(update={"sources": sources})) as app,
        TestClient(create_app(app), base_url="http://localhost") as client,
    ):
        ask_numbers(client, "SELECT 1")
        yield client


def ask_numbers(client: TestClient, query: str, **fields: Any) -> Any:
    return client.post("/sql", json={"dataset": "numbers", "query": query, "record": False, **fields})


@pytest.mark.parametrize("count", [0, 1, 800, 5000, 60000])
def test_a_query_without_a_thread_has_the_rows_of_any_other(numbers: TestClient, count: int) -> None:
    answer = ask_numbers(numbers, f"SELECT n FROM numbers WHERE n < {count} ORDER BY n", limit=2000).json()
    assert [row[0] for row in answer["rows"]] == list(range(min(count, 2000)))
    assert (answer["row_count"], answer["columns"]) == (count, [{"name": "n", "type": "BIGINT"}])


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELEC 1", 422, "invalid_query"),
        ("DROP TABLE numbers", 403, "refused"),
        ("SELECT * FROM nothing", 404, "unknown_table"),
        ("SELECT CAST('x' AS INTEGER)", 422, "invalid_query"),
    ],
)
def test_a_query_without_a_thread_is_refused_like_any_other(
    numbers: TestClient, query: str, status: int, code: str
) -> None:
    refused = ask_numbers(numbers, query)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert ask_numbers(numbers, "SELECT 2").json()["rows"] == [[2]]


def test_a_query_without_a_thread_ends_at_its_time(numbers: TestClient) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    refused = ask_numbers(numbers, endless, limits={"timeout_s": 0.2})
    assert (refused.status_code, refused.json()["limit"]) == (429, "timeout_s")
    assert ask_numbers(numbers, "SELECT 3").json()["rows"] == [[3]]


def test_queries_without_a_thread_take_turns(numbers: TestClient) -> None:
    with ThreadPoolExecutor(8) as several:
        answers = list(several.map(lambda n: ask_numbers(numbers, f"SELECT {n}").json()["rows"], range(64)))
    assert answers == [[[n]] for n in range(64)]


@pytest.mark.parametrize(
    ("query", "small"),
    [("SELECT 1", True), ("SELECT n FROM numbers", False), ("SELECT CAST('x' AS INTEGER)", False)],
)
def test_only_what_is_read_in_a_moment_is_read_without_a_thread(numbers: TestClient, query: str, small: bool) -> None:
    """A large answer lies in shared memory, and its frame, which is small, is only the first of many."""
    app = numbers.app.state.server.app  # type: ignore[attr-defined]
    begun, _ = app.begin_sql("numbers", query, app.settings.limits)
    with contextlib.closing(begun.stream.batches):
        select.select([begun.engine.fileno()], [], [], 30)
        assert begun.engine.has_small_answer() == small
        begun.engine.kill()
        assert not begun.engine.alive
    assert ask_numbers(numbers, "SELECT 4").json()["rows"] == [[4]]


ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
LARGE = "SELECT n FROM numbers, range(1000000000) more(k)"


@pytest.mark.parametrize("dataset", ["numbers", None], ids=["without a thread", "in a thread"])
def test_a_client_that_leaves_frees_its_engine(numbers: TestClient, dataset: str | None) -> None:
    """There is one engine, and the query would keep it for ten minutes."""
    server = numbers.app.state.server  # type: ignore[attr-defined]
    body = {"query": ENDLESS, "record": False, "dataset": dataset, "limits": {"timeout_s": 600}}
    settings = server.app.settings.model_copy(update={"limits": Limits(timeout_s=600)})
    with App(settings) as app, listening(app) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        ask_numbers(client, "SELECT 1")
        with pytest.raises(httpx.ReadTimeout):
            client.post("/sql", json=body, timeout=1)
        wait_until(lambda: not server.api.state.server.queries.taken)
        assert ask_numbers(client, "SELECT 5").json()["rows"] == [[5]]


@pytest.mark.parametrize("query", [ENDLESS, LARGE], ids=["waits", "reads"])
def test_a_request_that_is_cancelled_lets_go_of_everything(numbers: TestClient, query: str) -> None:
    """As a server does with what is still at work when it must end."""
    server = numbers.app.state.server  # type: ignore[attr-defined]

    async def ask_and_cancel(client: httpx.AsyncClient, api: FastAPI) -> None:
        body = {"query": query, "record": False, "dataset": "numbers"}
        assert (await client.post("/sql", json=body | {"query": "SELECT 1"})).status_code == 200
        asked = asyncio.create_task(client.post("/sql", json=body))
        threads = api.state.server.workers
        while not api.state.server.app.pool._share.taken or (query == LARGE and not threads.borrowed_tokens):
            assert not asked.done(), asked.result().text
            await asyncio.sleep(0.001)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not api.state.server.queries.taken
        answer = await client.post("/sql", json=body | {"query": "SELECT 6"})
        assert answer.json()["rows"] == [[6]]
        assert threads.borrowed_tokens == 0

    async def serve_and_ask() -> None:
        endless = Limits(timeout_s=600, rows=1 << 40, bytes=1 << 50)
        with App(server.app.settings.model_copy(update={"limits": endless})) as app:
            api = create_app(app)
            transport = httpx.ASGITransport(api)
            async with (
                api.router.lifespan_context(api),
                httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client,
            ):
                await ask_and_cancel(client, api)

    asyncio.run(serve_and_ask())


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELEC 1", 422, "invalid_query"),
        ("DROP TABLE orders", 403, "refused"),
        ("SELECT * FROM read_csv('/etc/passwd')", 403, "refused"),
        ("SELECT * FROM nothing", 404, "unknown_table"),
    ],
)
def test_sql_that_cannot_run_is_a_problem(client: TestClient, query: str, status: int, code: str) -> None:
    refused = client.post("/sql", json={"query": query})
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert refused.json()["run_id"].startswith("run_")


def test_a_path_is_no_dataset(client: TestClient, shop: Path) -> None:
    for name in (str(shop), "/etc", "../shop", "sqlite:///etc/passwd", "postgresql://x", ""):
        refused = client.post("/sql", json={"query": "SELECT 1", "dataset": name})
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found"), name
        assert refused.json()["hint"] == "Datasets: `shop`."


def test_datasets(client: TestClient, shop: Path) -> None:
    listed = client.get("/datasets")
    assert listed.json()["items"] == [{"id": "shop", "kind": "files", "tables": None, "removable": False}]
    assert str(shop) not in listed.text
    schema = client.get("/datasets/shop/schema")
    assert {"orders", "customers"} <= {t["name"] for t in schema.json()["tables"]}
    assert client.get("/datasets/shop/schema", headers={"If-None-Match": schema.headers["etag"]}).status_code == 304
    for path in ("/datasets/shop/profile", "/profile/shop"):
        tables = {t["name"]: t for t in client.get(path).json()["tables"]}
        assert tables["customers"]["rows"] > 0 and tables["customers"]["columns"][0]["distinct"] > 0
    assert client.get("/datasets/none/schema").status_code == 404


def test_a_row_by_its_key(client: TestClient) -> None:
    row = client.get("/rows/shop/orders/7", params={"by": "order_id"}).json()
    assert row["rows"][0][0] == 7
    two = client.get("/rows/shop/orders/7,web", params={"by": ["order_id", "channel"]})
    assert two.status_code in (200, 404)
    for path, status in (
        ("/rows/shop/orders/7", 422),
        ("/rows/shop/orders/x?by=order_id", 422),
        ("/rows/shop/orders/7?by=nothing", 422),
        ("/rows/shop/orders/99999?by=order_id", 404),
        ("/rows/shop/nothing/7?by=order_id", 404),
        ("/rows/none/orders/7?by=order_id", 404),
        ("/rows/shop/customers/x' OR 1=1 --?by=name", 404),
    ):
        assert client.get(path).status_code == status, path


def test_reports(client: TestClient) -> None:
    run_id = client.post("/sql", json={"query": "SELECT 1"}).json()["run_id"]
    body = {"text": "counted", "code": "SELECT 1", "outcome": "worked", "dataset": "shop", "run_id": run_id}
    made = client.post("/log", json=body)
    assert made.status_code == 201
    assert client.get("/log").json()["items"][0] == made.json()
    assert client.post("/log", json=body | {"run_id": "run_none"}).status_code == 404
    assert client.post("/log", json=body | {"dataset": "none"}).status_code == 404
    assert client.post("/log", json=body | {"outcome": "great"}).status_code == 422


def test_playbooks(client: TestClient, app: App) -> None:
    folder = app.settings.home / "playbooks" / "main"
    for name, text in (("good", "---\nname: good\ndescription: when\n---\ndo\n"), ("bad", "no head")):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(text)
    (found,) = client.get("/playbooks").json()["items"]
    assert (found["name"], found["description"], found["text"], found["state"]) == ("good", "when", "do", "active")


def test_threads(client: TestClient) -> None:
    answer = client.post("/chat", json={"message": "how many orders are there?"}).json()
    thread_id = answer["thread_id"]
    assert thread_id in {t["id"] for t in client.get("/threads").json()["items"]}
    page = client.get(f"/threads/{thread_id}/messages", params={"limit": 1}).json()
    rest = client.get(f"/threads/{thread_id}/messages", params={"after": page["next"]}).json()
    assert [m["role"] for m in page["items"] + rest["items"]] == ["user", "assistant"]
    fork = client.post(f"/threads/{thread_id}/fork", json={"until": 1}).json()
    assert len(client.get(f"/threads/{fork['id']}/messages").json()["items"]) == 1
    whole = client.post(f"/threads/{thread_id}/fork").json()
    assert len(client.get(f"/threads/{whole['id']}/messages").json()["items"]) == 2
    assert answer["run_id"] in client.get(f"/threads/{thread_id}/export").json()["runs"]
    assert client.delete(f"/threads/{fork['id']}").status_code == 204
    assert client.get(f"/threads/{fork['id']}").status_code == 404
    assert client.get(f"/threads/{thread_id}").status_code == 200
    made = client.post("/threads", json={"title": "Sales", "dataset": "shop"})
    assert (made.status_code, made.json()["source"]) == (201, "shop")


def test_health(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"ok": True, "version": __version__, "parts": {}}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert {name: part["ok"] for name, part in ready.json()["parts"].items()} == dict.fromkeys(
        ("store", "objects", "sandbox", "model"), True
    )
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_metrics_count_what_happens(client: TestClient) -> None:
    client.post("/ask", json={"question": "how many orders are there?"})
    client.post("/chat", json={"message": "PYTHON: 1"})
    # Runs are counted after their end, in a thread of its own, one after the other.
    wait_until(lambda: 'etude_sandbox_cells_total{outcome="ok",provider="local"} ' in client.get("/metrics").text)
    text = client.get("/metrics").text
    assert 'etude_http_request_seconds_count{method="POST",route="/ask",status="200"} ' in text
    assert 'etude_runs_total{kind="ask",status="succeeded"} ' in text
    assert 'etude_tokens_total{direction="in"} ' in text
    assert 'etude_runs_open{status="queued"} 0.0' in text
    assert "etude_streams_open 0.0" in text


def test_vram_says_what_there_is(client: TestClient) -> None:
    found = client.get("/vram").json()
    assert found["gpus"] or found["detail"]


def test_one_tenants_endless_queries_do_not_delay_another(tmp_path: Path) -> None:
    """There is one engine, and it is busy for ten minutes with the queries of another tenant."""
    settings = load_settings(home=str(tmp_path / "home"), engine={"processes": 1}, limits={"timeout_s": 600})
    with ThreadPoolExecutor(8) as several, App(settings) as app:
        clients = {}
        for tenant in ("noisy", "quiet"):
            duckdb.connect(tmp_path / f"{tenant}.duckdb").close()
            app.scoped(tenant).add_source("data", SourceSpec(url=str(tmp_path / f"{tenant}.duckdb")))
            clients[tenant] = {"Authorization": f"Bearer {Identity(app.store).create_key('x', 'analyst', tenant)[1]}"}
        with listening(app, keys_required=True) as server:
            noisy, quiet = (
                httpx.Client(base_url=server.url, headers=clients[tenant], timeout=600) for tenant in clients
            )
            body = {"query": ENDLESS, "dataset": "data", "record": False}
            asked = [several.submit(noisy.post, "/sql", json=body) for _ in range(8)]
            shares = server.api.state.server.queries
            wait_until(lambda: app.pool._share.held["noisy"] and len(list(shares.waiting())) == 7)
            answers = [quiet.post("/sql", json={"query": f"SELECT {n}"}).json()["rows"] for n in range(5)]
            assert answers == [[[n]] for n in range(5)]
            assert not any(a.done() for a in asked)
        for client in (noisy, quiet):
            client.close()
