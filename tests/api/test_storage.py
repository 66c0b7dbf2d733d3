"""A tenant whose storage is used up writes nothing more, over any route; it still reads, cancels and deletes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.app import App
from etude.entities import SourceSpec
from etude.events import RunQueued
from etude.ids import new_id
from etude.store.queue import Queue

FULL = 1_000_000


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """An app whose only tenant has a run, a thread and an agent, and used up its storage with messages."""
    (tmp_path / "data.csv").write_text("a\n1\n")
    with App(home=tmp_path / "home", server={"storage": FULL}) as app:
        app.store.add_source("data", SourceSpec(url=str(tmp_path / "data.csv")))
        yield app


@pytest.fixture
def client(app: App) -> Iterator[TestClient]:
    with TestClient(create_app(app), base_url="http://localhost") as client:
        yield client


def _fill(app: App) -> str:
    thread = app.store.create_thread("long")
    app.store.add_message(thread.id, "user", "x" * FULL)
    return thread.id


def test_every_route_that_stores_something_refuses(app: App, client: TestClient) -> None:
    agent = client.post("/api/agents", json={"kind": "echo", "config": {"subject": "s"}}).json()["id"]
    run_id = new_id("run")
    app.store.append(run_id, RunQueued(kind="ask", text="?", source="data"), expect=0)
    thread = _fill(app)
    query = {"dataset": "data", "query": "SELECT a FROM data"}
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "how many rows?"}]
    writes: list[tuple[str, str, Any]] = [
        ("POST", "/api/sql", query),
        ("POST", "/api/sql", query | {"query": "DROP TABLE data"}),
        ("POST", "/api/runs", {"kind": "python", "text": "1"}),
        ("POST", "/api/ask", {"question": "how many rows?", "dataset": "data"}),
        ("POST", "/api/chat", {"message": "how many rows?", "dataset": "data"}),
        ("POST", "/api/threads", {"title": "t"}),
        ("POST", f"/api/threads/{thread}/fork", None),
        ("POST", f"/api/runs/{run_id}/steer", {"guidance": "look again"}),
        ("POST", "/api/agents", {"kind": "echo", "config": {"subject": "s"}}),
        ("POST", f"/api/agents/{agent}/message", {"body": "m"}),
        ("POST", f"/api/agents/{agent}/steer", {"guidance": "g"}),
        ("POST", f"/api/agents/{agent}/interrupt", {"guidance": "g"}),
        ("POST", f"/api/agents/{agent}/reload", {"config": {"subject": "t"}}),
        ("POST", "/api/events", {"topic": "tests.done", "body": 1}),
        ("POST", "/api/log", {"text": "t", "outcome": "worked"}),
        ("PATCH", "/api/datasets/data/annotations", {"tables": {"data": {"description": "d"}}}),
        ("POST", "/api/playbooks", {"text": "---\nname: p\ndescription: d\n---\nDo."}),
        ("POST", "/v1/chat/completions", {"model": "etude/data", "messages": turns}),
        ("POST", "/v1/responses", {"model": "etude/data", "input": "how many rows?", "instructions": "i"}),
    ]
    before = app.store.storage_use()
    for method, path, body in writes:
        refused = client.request(method, path, json=body)
        assert refused.status_code == 429 and "allowed" in refused.text, (path, refused.text)
    assert app.store.storage_use().records - before.records < 1000, "refusals take no storage"

    # Everything else works.
    assert client.post("/api/sql", json=query | {"record": False}).status_code == 200
    for path in ("/api/runs", f"/api/runs/{run_id}", f"/api/threads/{thread}/messages", "/api/agents", "/api/log"):
        assert client.get(path).status_code == 200, path
    assert client.post(f"/api/agents/{agent}/pause").status_code == 200
    assert client.post(f"/api/agents/{agent}/destroy", json={"grace_s": 0}).status_code == 200
    assert client.post(f"/api/runs/{run_id}/cancel").status_code in (200, 409)
    assert client.delete(f"/api/threads/{thread}").status_code == 204
    assert client.post("/api/sql", json=query).status_code == 200, "the deleted thread gave room back"


def test_a_long_response_is_not_kept_for_its_idempotency_key(app: App, client: TestClient) -> None:
    _fill(app)
    query = {"dataset": "data", "query": "SELECT repeat('x', 5000) AS x FROM data", "record": False}
    answers = [client.post("/api/sql", json=query, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert "was not kept" in answers[1].json()["detail"]
    short = query | {"query": "SELECT a FROM data"}
    again = [client.post("/api/sql", json=short, headers={"Idempotency-Key": "s"}).json() for _ in range(2)]
    assert again[0] == again[1]


def test_a_fork_that_does_not_fit_copies_nothing(app: App, client: TestClient) -> None:
    thread = app.store.create_thread("long")
    app.store.add_message(thread.id, "user", "x" * (FULL - 100_000))
    refused = client.post(f"/api/threads/{thread.id}/fork")
    assert (refused.status_code, refused.json()["limit"]) == (429, "storage")
    assert len(app.store.threads().items) == 1


def test_status_and_metrics_have_the_records(app: App, client: TestClient) -> None:
    _fill(app)
    found = client.get("/api/status").json()
    assert found["storage"]["main"]["records"] > FULL == found["storage"]["main"]["limit"]
    assert any("`main` uses" in text for text in found["problems"])
    line = next(x for x in client.get("/metrics").text.splitlines() if x.startswith("etude_storage_bytes"))
    assert float(line.split()[-1]) == found["storage"]["main"]["bytes"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/responses", {"model": "etude", "input": "q", "instructions": "i" * 200_001}, "instructions"),
        ("/v1/responses", {"model": "etude", "input": "i" * 200_001}, "input"),
        (
            "/v1/responses",
            {"model": "etude", "input": [{"role": "system", "content": [{"type": "text", "text": "t" * 200_001}]}]},
            "input.0.content",
        ),
        (
            "/v1/chat/completions",
            {
                "model": "etude",
                "messages": [{"role": "system", "content": [{"type": "text", "text": "t" * 101_000}] * 2}],
            },
            "messages.0.content",
        ),
        (
            "/v1/chat/completions",
            {"model": "etude", "messages": [{"role": "user", "content": "t" * 200_001}]},
            "messages.0.content",
        ),
    ],
)
def test_texts_of_other_apis_have_the_limit_of_all_texts(
    client: TestClient, path: str, body: dict[str, Any], field: str
) -> None:
    refused = client.post(path, json=body)
    assert refused.status_code == 422
    assert field in refused.text and "200,000" in refused.text


def test_a_page_of_agents_ends_early_by_bytes(app: App, client: TestClient) -> None:
    agents = app.agents
    app.store.limit_storage(lambda tenant: 0)
    for number in range(3):
        agents.create("echo", {"subject": "s"}, id=f"a{number}")
    with Queue(app.store).transaction() as work:
        work.do("UPDATE agents SET last_output = ?", f'"{"o" * 3_000_000}"')
    first = client.get("/api/agents?limit=500").json()
    assert [a["id"] for a in first["items"]] == ["a2"] and first["next"]
    second = client.get("/api/agents", params={"limit": 500, "cursor": first["next"]}).json()
    assert [a["id"] for a in second["items"]] == ["a1"]
    third = client.get("/api/agents", params={"limit": 500, "cursor": second["next"]}).json()
    assert ([a["id"] for a in third["items"]], third["next"]) == (["a0"], None)
    for number in range(6):
        agents.message("a0", "m" * 1_000_000, id=f"m{number}")
    page = client.get("/api/actions?limit=500&agent=a0").json()
    assert 1 <= len(page["items"]) < 7 and page["next"]
