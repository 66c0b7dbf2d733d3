"""Streams of events: ids, resuming, the end, many runs in one, and clients that come and go."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import listening, open_app, read_stream
from etude.api import event_streams
from etude.app import App
from etude.events import Note, RunFinished, RunQueued, RunStarted, ScriptCompiled
from etude.ids import new_id
from etude.store.identity import Identity
from etude.store.sqlite import SqliteStore


def test_entries_are_flat_and_numbered(client: TestClient, app: App) -> None:
    run_id = client.post("/sql", json={"query": "SELECT 1 AS one"}).json()["run_id"]
    events = read_stream(client.get(f"/runs/{run_id}/events").text)
    entries = app.store.entries(run_id)
    assert [name for name, _ in events] == [str(e.seq) for e in entries]
    for (_, event), entry in zip(events, entries):
        assert (event["run_id"], event["seq"], event["type"]) == (run_id, entry.seq, entry.event.type)
        body = json.loads(entry.event.model_dump_json())
        assert {k: event[k] for k in body} == body


def test_nothing_newer_and_over_is_204(client: TestClient, app: App) -> None:
    run_id = client.post("/sql", json={"query": "SELECT 1 AS one"}).json()["run_id"]
    seq = app.store.run(run_id).seq
    for request in ({"params": {"after": seq}}, {"headers": {"Last-Event-ID": str(seq)}}):
        ended = client.get(f"/runs/{run_id}/events", **request)  # type: ignore[arg-type]
        assert (ended.status_code, ended.content) == (204, b"")
    # What the browser saw last counts, not what the address once said.
    rest = client.get(f"/runs/{run_id}/events", params={"after": 0}, headers={"Last-Event-ID": str(seq - 1)})
    assert [name for name, _ in read_stream(rest.text)] == [str(seq)]
    assert client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": "x"}).status_code == 422
    assert client.get("/runs/run_none/events").status_code == 404


def test_a_stream_ends_even_if_entries_follow_the_end_of_the_run(client: TestClient, app: App) -> None:
    run_id = client.post("/sql", json={"query": "SELECT 1 AS one"}).json()["run_id"]
    end = app.store.run(run_id).seq
    app.store.append(run_id, ScriptCompiled(reason="for the test"), Note(text="and a note"), expect=end)
    for after in (0, end, end + 1):
        events = read_stream(client.get(f"/runs/{run_id}/events", params={"after": after}).text)
        assert [name for name, _ in events] == [str(seq) for seq in range(after + 1, end + 3)]


def test_many_runs_in_one_stream(client: TestClient, app: App) -> None:
    runs = [client.post("/sql", json={"query": f"SELECT {n} AS n"}).json()["run_id"] for n in range(3)]
    events = read_stream(client.get("/api/events", params={"run": runs}).text)
    for run_id in runs:
        seqs = [event["seq"] for _, event in events if event["run_id"] == run_id]
        assert seqs == list(range(1, app.store.run(run_id).seq + 1))
    for number in range(1, len(events)):
        again = client.get("/api/events", params={"run": runs}, headers={"Last-Event-ID": events[number - 1][0]})
        assert [e for _, e in read_stream(again.text)] == [e for _, e in events[number:]]
    over = client.get("/api/events", params={"run": runs, "after": events[-1][0]})
    assert over.status_code == 204
    assert client.get("/api/events", params={"run": [runs[0], "run_none"]}).status_code == 404
    assert client.get("/api/events").status_code == 422
    assert client.get("/api/events", params={"run": runs, "after": "a:b"}).status_code == 422


def test_entries_of_another_process_arrive_too(app: App) -> None:
    """A second store on the same file stands for a worker elsewhere: nothing in this process tells of its appends."""
    run_id = new_id("run")
    with SqliteStore(app.settings.home / "etude.db") as elsewhere, listening(app) as server:
        elsewhere.append(run_id, RunQueued(kind="sql", text="x"), RunStarted(worker=elsewhere.worker_id), expect=0)
        with httpx.stream("GET", f"{server.url}/runs/{run_id}/events", timeout=30) as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("id: "))
            assert [next(lines), next(lines)] == ["id: 1", "id: 2"]
            elsewhere.append(run_id, Note(text="from afar"), expect=2)
            assert next(lines) == "id: 3"
            elsewhere.append(run_id, RunFinished(), expect=3)
            assert list(lines) == ["id: 4"]


def test_a_quiet_stream_beats(app: App, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(event_streams, "HEARTBEAT_S", 0.05)
    run_id = new_id("run")
    app.store.append(run_id, RunQueued(kind="sql", text="x"), expect=0)
    with listening(app) as server, httpx.stream("GET", f"{server.url}/runs/{run_id}/events", timeout=30) as stream:
        lines = stream.iter_lines()
        while next(lines) != ": still here":
            pass
        while next(lines) != ": still here":
            pass


def test_clients_that_leave_free_what_they_held(app: App) -> None:
    run_id = new_id("run")
    app.store.append(run_id, RunQueued(kind="sql", text="x"), expect=0)
    _, secret = Identity(app.store).create_key("page", "reader")
    headers = {"Authorization": f"Bearer {secret}"}
    limit = app.settings.server.streams
    with (
        listening(app, keys_required=True) as server,
        httpx.Client(base_url=server.url, headers=headers, timeout=60) as client,
    ):
        watch = server.api.state.server.run_watcher
        open_streams = [
            client.send(client.build_request("GET", f"/runs/{run_id}/events"), stream=True) for _ in range(3)
        ]
        wait_until(lambda: watch.count == 3)
        for stream in open_streams:
            stream.close()
        wait_until(lambda: watch.count == 0)
        some = [client.send(client.build_request("GET", f"/runs/{run_id}/events"), stream=True) for _ in range(limit)]
        refused = client.get(f"/runs/{run_id}/events")
        assert (refused.status_code, refused.json()["limit"]) == (429, "streams")
        assert client.get(f"/runs/{run_id}").status_code == 200
        for stream in some:
            stream.close()
        wait_until(lambda: client.get("/datasets").status_code == 200 and watch.count == 0)
        wait_until(lambda: server.api.state.server.access_control._in_flight == {})


def test_a_shutdown_ends_streams_and_lets_runs_end(tmp_path: Path, shop: Path) -> None:
    with open_app(tmp_path / "home", shop) as app, httpx.Client(timeout=30) as client:
        with listening(app) as server:
            run_id = client.post(f"{server.url}/runs", json={"kind": "ask", "text": "say much"}).json()["id"]
            stream = client.send(client.build_request("GET", f"{server.url}/runs/{run_id}/events"), stream=True)
        # The server is gone: it waited for the run, whose last event the stream still carried.
        assert app.store.run(run_id).status == "succeeded"
        assert read_stream(stream.read().decode())[-1][1]["type"] == "run.finished"


@pytest.mark.parametrize("how", ["key", "session"])
def test_a_stream_ends_when_its_key_is_revoked(app: App, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_S", 0.1)
    identity = Identity(app.store)
    key, secret = identity.create_key("listener", "analyst")
    _, admin = identity.create_key("admin", "admin")
    with listening(app, keys_required=True) as server, httpx.Client(base_url=server.url, timeout=120) as web:
        headers = {"Authorization": f"Bearer {secret}"}
        if how == "session":
            web.post("/api/session", json={"key": secret})
            headers = {}
        with web.stream("GET", "/api/events/news", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            assert any(line == ": still here" for line in lines)
            gone = httpx.delete(f"{server.url}/api/keys/{key.id}", headers={"Authorization": f"Bearer {admin}"})
            assert gone.status_code == 204
            for _ in lines:
                pass  # it ends
