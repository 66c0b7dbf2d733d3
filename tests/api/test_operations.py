"""What an operator sees over HTTP: health, status, metrics, the queue, events, reasons in the audit log."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.api.conftest import open_app
from tests.patience import wait_until

from etude import __version__
from etude.api import access_control, sandbox_probe, server_state
from etude.api.sandbox_probe import SandboxProbe
from etude.api.server import create_app
from etude.app import App
from etude.errors import SandboxError, Unavailable
from etude.sessions import isolation
from etude.sessions.base import Channel, SandboxSpec
from etude.store.identity import Identity
from etude.store.queue import Queue
from etude.telemetry import TelemetryAccessLog


def test_health_has_two_names_and_a_version(client: TestClient) -> None:
    for path in ("/health", "/healthz"):
        assert client.get(path).json() == {"ok": True, "version": __version__, "parts": {}}
    parts = client.get("/readyz").json()["parts"]
    assert parts["sandbox"]["ok"] and "level" in parts["sandbox"]["detail"]


def test_a_store_that_hangs_does_not_silence_the_server(
    client: TestClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def hang(*_: object) -> Any:
        goes_on.wait(60)
        raise Unavailable("too late")

    monkeypatch.setattr(server_state, "PROBE_S", 0.2)
    monkeypatch.setattr(app.store, "check", hang)
    monkeypatch.setattr(app.store, "size", hang)
    try:
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["parts"]["store"] == {"ok": False, "detail": "There was no answer within 0.2 s."}
        assert ready.json()["parts"]["model"]["ok"]
        assert "etude_store_up 0.0" in client.get("/metrics").text
    finally:
        goes_on.set()


def test_a_sandbox_that_fails_once_is_tried_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = app.sandbox.start, [1]

    def fail_first(spec: SandboxSpec, limits: Any) -> Channel:
        if left[0]:
            left[0] -= 1
            raise SandboxError("not now")
        return start(spec, limits)

    monkeypatch.setattr(app.sandbox, "start", fail_first)
    probe = SandboxProbe(app)
    assert "level" in probe.check()
    left[0] = 2
    monkeypatch.setattr(sandbox_probe, "PROBE_S", -1.0)
    with pytest.raises(SandboxError, match="not now"):
        SandboxProbe(app).check()


def test_a_lower_isolation_level_is_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([(2, ["x"]), (3, [])])
    monkeypatch.setattr(isolation, "_probed", [])
    monkeypatch.setattr(isolation, "_find_level", lambda: next(found))
    assert isolation.probe_isolation()[0] == 2
    assert isolation.probe_isolation()[0] == 2
    monkeypatch.setattr(isolation, "_PROBE_S", -1.0)
    assert isolation.probe_isolation()[0] == 3
    assert isolation.probe_isolation()[0] == 3


def test_the_status_and_its_numbers(client: TestClient, app: App) -> None:
    client.post("/api/sql", json={"dataset": "shop", "query": "SELECT 1 AS x"})
    found = client.get("/api/status").json()
    assert found["version"] == __version__ and found["parts"]["store"]["ok"]
    assert found["storage"]["main"]["bytes"] > 0
    assert (found["retention"]["steps"], found["retention"]["runs"]) == (30, 0)
    text = client.get("/metrics").text
    for line in (
        'etude_actions{state="ready"}',
        "etude_queue_oldest_seconds ",
        "etude_queue_claims_total ",
        'etude_engines{state="idle"}',
        'etude_sessions{state="idle"}',
        'etude_storage_bytes{tenant="main"}',
        "etude_store_bytes ",
        "etude_disk_free_bytes{",
    ):
        assert f"\n{line}" in text, line


def test_metrics_are_there_while_the_store_is_not(tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("The store cannot be reached.")

    monkeypatch.setattr(access_control, "KEY_CACHE_S", 0.0)
    with open_app(tmp_path / "home", shop) as app:
        token = Identity(app.store).create_key("ops", "admin")[1]
        with TestClient(create_app(app, keys_required=True), base_url="http://localhost") as client:
            headers = {"Authorization": f"Bearer {token}"}
            assert "\netude_store_up 1.0" in client.get("/metrics", headers=headers).text
            with monkeypatch.context() as down:
                down.setattr(type(app.store), "_read", fail)
                down.setattr(Queue, "read", fail)
                found = client.get("/metrics", headers=headers)
                assert found.status_code == 200, found.text
                assert "\netude_store_up 0.0" in found.text
                assert "\netude_engines{" in found.text and "\netude_actions{" not in found.text
                assert client.get("/api/runs", headers=headers).status_code == 503


def test_actions_and_events_are_listed_and_steered(client: TestClient, app: App) -> None:
    client.post("/api/agents", json={"kind": "echo", "id": "o", "config": {"subject": "rain"}, "reason": "a trial"})
    sent = client.post("/api/agents/o/message", json={"body": "x", "delay_s": 3600, "urgency": 7}).json()["action"]
    listed = client.get("/api/actions", params={"agent": "o", "state": "delayed"}).json()["items"]
    assert [(a["id"], a["urgency"], a["attempts"]) for a in listed] == [(sent, 7, 0)]
    shown = client.get(f"/api/actions/{sent}").json()
    assert shown["action"]["state"] == "delayed" and shown["attempts"] == []
    assert client.post(f"/api/actions/{sent}/cancel", json={"reason": "a mistake"}).json()["state"] == "cancelled"
    refused = client.post(f"/api/actions/{sent}/cancel")
    assert refused.status_code == 409 and "only while it waits" in refused.json()["hint"]
    assert client.post(f"/api/actions/{sent}/retry").json()["state"] == "ready"
    assert client.get("/api/actions/none").status_code == 404
    client.post("/api/agents/o/pause", json={"reason": "holidays"})
    client.post("/api/agents/o/destroy", json={"grace_s": 0, "reason": "done"})

    answer = client.get("/api/agent-events", params={"agent": "o"})
    assert answer.status_code == 200, answer.text
    events = answer.json()["items"]
    told = {event["topic"]: event["body"] for event in events}
    assert told["agent.created"] == {"kind": "echo", "actor": "nobody", "reason": "a trial"}
    assert told["agent.action_cancelled"]["reason"] == "a mistake"
    assert told["agent.paused"]["reason"] == "holidays" and told["agent.destroyed"]["reason"] == "done"
    first = client.get("/api/agent-events", params={"agent": "o", "after": 0, "limit": 1}).json()
    assert [event["topic"] for event in first["items"]] == ["agent.created"]
    after = client.get("/api/agent-events", params={"agent": "o", "after": first["next"]}).json()["items"]
    assert [event["id"] for event in after] == [event["id"] for event in events[1:]]

    client.app.state.server.flush()  # type: ignore[attr-defined]
    reasons = {entry["reason"] for entry in client.get("/api/audit").json()["items"]}
    assert {"a trial", "a mistake", "holidays", "done"} <= reasons
    assert client.post("/api/agents/o/pause", json={"reason": "x" * 1001}).status_code == 422


def test_a_reason_that_cannot_be_stored_does_not_stop_the_audit(client: TestClient) -> None:
    for bad in ("a\0b", "\udcff"):
        body = json.dumps({"kind": "echo", "id": "o", "reason": bad})
        refused = client.post("/api/agents", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422
    assert client.delete("/api/runs/none", params={"reason": "a\0b"}).status_code == 404
    client.post("/api/agents", json={"kind": "echo", "id": "o", "reason": "a trial"})
    listed = client.get("/api/audit").json()["items"]
    assert {"a\ufffdb", "a trial"} <= {entry["reason"] for entry in listed}


def test_the_audit_is_stored_though_the_access_log_cannot_be_written(client: TestClient, app: App) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    server = client.app.state.server  # type: ignore[attr-defined]
    server.access = TelemetryAccessLog(Gone())
    client.post("/api/agents", json={"kind": "echo", "id": "o", "reason": "a trial"})
    wait_until(lambda: app.store._read("SELECT 1 FROM audit WHERE reason = 'a trial'"))
    client.post("/api/agents/o/pause", json={"reason": "holidays"})
    wait_until(lambda: app.store._read("SELECT 1 FROM audit WHERE reason = 'holidays'"))
    server.access = None


def test_the_log_of_a_request_that_begins_a_run_has_its_ids(tmp_path: Path, shop: Path) -> None:
    with open_app(tmp_path / "home", shop) as app:
        api = create_app(app)
        out = io.StringIO()
        api.state.server.access = TelemetryAccessLog(out)
        thread = app.store.create_thread("t").id
        with TestClient(api, base_url="http://localhost") as client:
            asked = {"message": "how many orders?", "dataset": "shop", "thread_id": thread}
            client.post("/api/chat", json=asked)
            client.post("/api/sql", json={"dataset": "shop", "query": "SELECT 1 AS x"})
            client.post("/api/runs", json={"kind": "sql", "text": "SELECT 1", "dataset": "shop"})
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        for path in ("/api/chat", "/api/sql", "/api/runs"):
            (line,) = [line for line in lines if line["message"] == f"POST {path}"]
            assert app.store.run(line["run_id"]).id == line["run_id"]
        assert next(line for line in lines if "chat" in line["message"])["thread_id"] == thread


def test_the_log_of_a_request_that_fails_has_a_level_and_a_reason(tmp_path: Path, shop: Path) -> None:
    with open_app(tmp_path / "home", shop) as app:
        api = create_app(app)
        out = io.StringIO()
        api.state.server.access = TelemetryAccessLog(out)
        with TestClient(api, base_url="http://localhost") as client:
            api.state.server.draining = True
            assert client.post("/api/sql", json={"query": "SELECT 1"}).status_code == 503
            assert client.get("/api/runs/none").status_code == 404
        refused, missing = (json.loads(line) for line in out.getvalue().splitlines())
    assert (refused["level"], refused["code"]) == ("warning", "unavailable")
    assert refused["error"] == "The server is shutting down."
    assert (missing["level"], missing["code"]) == ("info", "not_found") and "error" not in missing


def test_the_skill_is_there_for_agents(client: TestClient) -> None:
    found = client.get("/api/skill")
    assert found.headers["content-type"].startswith("text/markdown") and "never invent" in found.text.lower()
