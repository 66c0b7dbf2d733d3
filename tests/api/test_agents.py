"""Agents over HTTP: created, told things, followed; by their tenant alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import Running, listening, open_app
from etude.api.server import create_app
from etude.app import App
from etude.store.identity import Identity, KeyLimits, Role


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[Running]:
    """A server with a worker inside, as `etude serve` has it."""
    with open_app(tmp_path_factory.mktemp("home"), shop) as app, listening(app, runs_agents=True) as running:
        yield running


@pytest.fixture(scope="module")
def web(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as opened:
        yield opened


def create(web: httpx.Client, kind: str, config: dict[str, Any], **more: Any) -> str:
    answer = web.post("/api/agents", json={"kind": kind, "config": config} | more)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/agents/{answer.json()['id']}"
    return str(answer.json()["id"])


def tell(web: httpx.Client, agent_id: str, verb: str, **body: Any) -> dict[str, Any]:
    answer = web.post(f"/api/agents/{agent_id}/{verb}", json=body or None)
    assert answer.is_success, answer.text
    return dict(answer.json())


def show(web: httpx.Client, agent_id: str) -> dict[str, Any]:
    return dict(web.get(f"/api/agents/{agent_id}").json())


def outputs(web: httpx.Client, agent_id: str) -> list[Any]:
    return [step["output"] for step in web.get(f"/api/agents/{agent_id}/steps").json()["items"]]


def test_an_agent_lives(web: httpx.Client) -> None:
    name = create(web, "echo", {"subject": "rain", "interval_s": 3600}, id="rain")
    wait_until(lambda: show(web, name)["step_no"] == 1)
    seen = show(web, name)
    assert (seen["status"], seen["activity"], seen["last_error"]) == ("active", "waiting", None)
    assert seen["last_output"] == "1. rain: worth another look."
    assert tell(web, name, "pause")["activity"] == "paused"
    assert "action" in tell(web, name, "message", body={"subject": "snow"}, id="once")
    assert tell(web, name, "message", body="hail", id="once") == {"action": "once"}
    tell(web, name, "steer", guidance="fog")
    assert show(web, name)["step_no"] == 1
    tell(web, name, "resume", guidance={"subject": "wind"})
    wait_until(lambda: show(web, name)["step_no"] == 3)
    assert outputs(web, name)[-1] == "3. snow: worth another look."
    tell(web, name, "interrupt", guidance={"subject": "sun"})
    wait_until(lambda: outputs(web, name)[-1] == "4. sun: worth another look.")
    assert web.get(f"/api/agents/{name}/state").json() == {"subject": "sun", "count": 4}
    tell(web, name, "reload", config={"interval_s": 60})
    assert show(web, name)["config"] == {"subject": "rain", "interval_s": 60}, "fields left out stay"
    assert [a["id"] for a in web.get("/api/agents").json()["items"]] == [name]
    assert tell(web, name, "destroy", grace_s=0)["status"] == "destroyed"
    assert web.get("/api/agents").json()["items"] == []
    gone = web.post(f"/api/agents/{name}/pause")
    assert (gone.status_code, gone.json()["code"]) == (409, "conflict")


def test_steps_come_by_page(web: httpx.Client) -> None:
    name = create(web, "echo", {"subject": "tea", "interval_s": 3600})
    for _ in range(3):
        tell(web, name, "message", body="tea")
    wait_until(lambda: show(web, name)["step_no"] == 4)
    first = web.get(f"/api/agents/{name}/steps", params={"limit": 3}).json()
    assert [s["step_no"] for s in first["items"]] == [1, 2, 3]
    rest = web.get(f"/api/agents/{name}/steps", params={"after": first["next"]}).json()
    assert ([s["step_no"] for s in rest["items"]], rest["next"]) == ([4], None)
    tell(web, name, "destroy")


def test_what_cannot_be_is_a_problem(web: httpx.Client, shop: Path) -> None:
    for body, status in (
        ({"kind": "none"}, 422),
        ({"kind": "echo", "config": {"subject": 5}}, 422),
        ({"kind": "echo", "config": {"subject": "x"}, "id": "a b"}, 422),
        # A path is the server's, and a model must be one of those offered.
        ({"kind": "watch", "config": {"source": str(shop), "sql": "SELECT 1", "every_s": 1}}, 404),
        ({"kind": "analyst", "config": {"source": ["shop"], "goal": "x"}}, 404),
        ({"kind": "analyst", "config": {"source": "shop", "goal": "x", "model": "scripted:/etc/passwd"}}, 422),
        ({"kind": "analyst", "config": {"source": "shop", "goal": "x", "model": {}}}, 422),
    ):
        refused = web.post("/api/agents", json=body)
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json"), body
    assert web.get("/api/agents/none").status_code == 404
    assert web.get("/api/agents/none/events").status_code == 404
    assert web.get("/api/agents", params={"cursor": "²"}).status_code == 422
    assert web.post("/api/events", json={"topic": "Not a topic"}).status_code == 422
    assert web.post("/api/events", json={"topic": "x", "agent": "none"}).status_code == 404
    forged = web.post("/api/events", json={"topic": "agent.destroyed"})
    assert forged.status_code == 422 and "`agent.destroyed`" in forged.json()["detail"]


def test_the_analyst_reports(web: httpx.Client) -> None:
    config = {"source": "shop", "questions": ["SQL: SELECT count(*) AS n FROM orders"]}
    name = create(web, "analyst", config)
    wait_until(lambda: show(web, name)["activity"] == "done")
    assert "| 3704 |" in web.get(f"/api/agents/{name}/state").json()["document"]


def read(lines: Iterator[str], until: str) -> list[dict[str, Any]]:
    """The events of a stream, up to one of a topic."""
    found = []
    for line in lines:
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
            if found[-1]["topic"] == until:
                return found
    return found


def test_its_events_are_a_stream(web: httpx.Client) -> None:
    name = create(web, "echo", {"subject": "tea", "interval_s": 3600})
    with web.stream("GET", f"/api/agents/{name}/events") as stream:
        seen = read(stream.iter_lines(), "agent.step")
    assert [e["topic"] for e in seen] == ["agent.created", "agent.step"]
    assert {e["agent"] for e in seen} == {name} and "tenant" not in seen[0]
    with web.stream("GET", f"/api/agents/{name}/events", headers={"Last-Event-ID": str(seen[0]["id"])}) as stream:
        lines = stream.iter_lines()
        (step,) = read(lines, "agent.step")
        tell(web, name, "destroy", grace_s=0)
        rest = [step, *read(lines, "never")]
    assert [e["topic"] for e in rest] == ["agent.step", "agent.destroyed"], "and then the stream has ended"
    assert web.get(f"/api/agents/{name}/events", params={"after": rest[-1]["id"]}).status_code == 204


def test_others_tell_and_hear(web: httpx.Client) -> None:
    with web.stream("GET", "/api/events/tests.*") as stream:
        body = {"passed": 412, "failed": 0}
        assert web.post("/api/events", json={"topic": "other.thing"}).status_code == 202
        assert web.post("/api/events", json={"topic": "tests.completed", "body": body}).status_code == 202
        (seen,) = read(stream.iter_lines(), "tests.completed")
    assert seen["body"] == body
    with web.stream("GET", "/api/events/*", params={"after": 0}) as stream:
        told = [e["topic"] for e in read(stream.iter_lines(), "tests.completed")]
    # The worker beside tells of its agents, maybe between the two.
    assert [t for t in told if not t.startswith(("agent.", "analyst."))] == ["other.thing", "tests.completed"]


def test_serve_runs_agents_and_lets_their_steps_end(tmp_path: Path, shop: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "etude", "serve", str(shop), "--port", "0"]
    environment = os.environ | {"ETUDE_HOME": str(home)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        url = next(line for line in process.stderr if line.startswith("etude listens on ")).split()[-1]
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with httpx.Client(base_url=url, timeout=30) as web:
            # Whichever of them runs when the server is told to end, others wait behind it.
            slow = [f"PYTHON: import time\ntime.sleep(1)\n{n} * 7" for n in range(100)]
            name = create(web, "analyst", {"source": "shop", "questions": slow})
            wait_until(lambda: show(web, name)["activity"] == "running")
        process.terminate()
        assert process.wait(120) == 0
    with App(home=str(home)) as app:
        steps = app.agents.steps(name)
        assert {s.outcome for s in steps} == {"ok"} and len(steps) < 100, "the one that ran ended, and not all began"
        assert f"\n{(len(steps) - 1) * 7}\n" in app.agents.state(name)["document"]
        assert app.agents.get(name).activity == "queued"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[tuple[App, TestClient]]:
    with (
        open_app(tmp_path_factory.mktemp("home"), shop) as app,
        TestClient(create_app(app, keys_required=True), base_url="https://etude.example") as client,
    ):
        yield app, client


def test_readers_look_and_analysts_change(guarded: tuple[App, TestClient]) -> None:
    app, client = guarded

    def bearer(role: Role, tenant: str = "main") -> dict[str, str]:
        return {"Authorization": f"Bearer {Identity(app.store).create_key('test', role, tenant)[1]}"}

    echo = {"kind": "echo", "config": {"subject": "x"}, "id": "e"}
    hook = {"kind": "webhook", "config": {"url": "https://example.com/", "secret": "swordfish!"}, "id": "w"}
    reader, analyst, admin = bearer("reader"), bearer("analyst"), bearer("admin")
    assert client.post("/api/agents", json=echo, headers=reader).status_code == 403
    assert client.post("/api/agents", json=echo, headers=analyst).status_code == 201
    assert client.get("/api/agents/e", headers=reader).status_code == 200
    assert client.post("/api/events", json={"topic": "x"}, headers=reader).status_code == 403
    # A webhook sends what it hears to anywhere.
    assert client.post("/api/agents", json=hook, headers=analyst).status_code == 403
    for reference in ("env:HOME", "file:/etc/passwd"):
        of_the_host = hook | {"config": {"url": "https://example.com/", "secret": reference}}
        assert client.post("/api/agents", json=of_the_host, headers=admin).json()["code"] == "forbidden"
    assert client.post("/api/agents", json=hook, headers=admin).json()["config"]["secret"] == "***"
    for verb in ("message", "pause", "resume", "steer", "interrupt", "reload", "destroy"):
        body = {"message": {"body": "x"}, "steer": {"guidance": "x"}}.get(verb, {})
        for agent, least in (("e", analyst), ("w", admin)):
            less = reader if least is analyst else analyst
            assert client.post(f"/api/agents/{agent}/{verb}", json=body, headers=less).status_code == 403, verb
            assert client.post(f"/api/agents/{agent}/{verb}", json=body, headers=least).status_code < 300, verb
    theirs = bearer("admin", "theirs")
    assert client.get("/api/agents", headers=theirs).json()["items"] == []
    for path in ("e", "e/steps", "e/state", "e/events"):
        assert client.get(f"/api/agents/{path}", headers=theirs).status_code == 404


def test_what_an_agent_uses_is_its_maker_s(tmp_path: Path, shop: Path) -> None:
    """Its steps count against the day of the key that had it made, in whichever process they run."""
    with open_app(tmp_path, shop) as app, listening(app, keys_required=True) as server:
        _, secret = Identity(app.store).create_key("maker", "analyst", limits=KeyLimits(daily_tokens=1))
        config = {"source": "shop", "questions": ["how many orders?", "how many orders now?"]}
        with httpx.Client(base_url=server.url, timeout=30, headers={"Authorization": f"Bearer {secret}"}) as web:
            name = create(web, "analyst", config | {"model": app.settings.model})
            environment = os.environ | {"ETUDE_HOME": str(tmp_path), "ETUDE_MODEL": app.settings.model}
            command = [sys.executable, "-m", "etude", "worker"]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as worker:
                wait_until(lambda: show(web, name)["step_no"] == 2)
                worker.terminate()
            first, second = app.agents.steps(name)
            assert (first.outcome, second.outcome) == ("ok", "error"), (first.error, second.error)
            assert f"The key `maker` has used {first.tokens:,}" in str(second.error)
            seen = show(web, name)
            assert (seen["activity"], seen["last_error"]) == ("waiting", second.error), "it goes on tomorrow"
            spent = web.get("/api/spending").json()
            assert spent["tokens"] == first.tokens > 1
            assert spent["seconds"] > 0
            refused = web.post("/api/agents", json={"kind": "echo", "config": {"subject": "x"}})
            assert (refused.status_code, refused.json()["limit"]) == (429, "daily_tokens")
            call = {"name": "agents_create", "arguments": {"kind": "echo", "config": {"subject": "x"}}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
            assert "daily_tokens" in web.post("/mcp", json=message, headers=accept).text


@pytest.mark.parametrize("question", ["SQL: SELECT 1", "fail"])
def test_time_and_failed_steps_count_too(tmp_path: Path, shop: Path, question: str) -> None:
    with open_app(tmp_path, shop) as app, listening(app, keys_required=True, runs_agents=True) as server:
        _, secret = Identity(app.store).create_key("maker", "analyst", limits=KeyLimits(daily_seconds=1e-6))
        with httpx.Client(base_url=server.url, timeout=30, headers={"Authorization": f"Bearer {secret}"}) as web:
            watch = {"source": "shop", "question": question, "model": app.settings.model, "every_s": 1}
            name = create(web, "watch", watch)
            wait_until(lambda: "seconds today" in str(show(web, name)["last_error"]))
            assert web.get("/api/spending").json()["seconds"] > 0
