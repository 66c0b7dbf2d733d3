"""Tenants over HTTP: every route, with every role, asked for what is another tenant's. Nothing of it may come back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.conftest import Running, listening, open_app
from etude.api.server import create_app
from etude.app import App
from etude.entities import SourceSpec
from etude.ids import new_id
from etude.store.edits import StoredEdit, StoredEdits, StoredSuiteRun
from etude.store.identity import ROLES, Identity
from etude.store.retention import Retention
from etude.store.scripts import StoredScript, StoredScripts
from etude.store.topics import Topics

MARK = "zebra"
"""A word that stands in everything of ours, and in nothing of theirs."""
ENDLESS = "/api/events/{topic}"
"""A stream that everyone may open: of what is told in their own tenant. It has tests of its own."""
PAGE = {("/", "GET"), ("/favicon.svg", "GET"), ("/assets/{name}", "GET")}
UNDOCUMENTED = PAGE | {("/openapi.json", "GET"), ("/mcp", "GET"), ("/mcp", "POST"), ("/mcp", "DELETE")}
"""Routes that are not in the OpenAPI document: most tell everyone the same, the tools of `/mcp` have a test."""
ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


@dataclass
class Scene:
    """Our things, and a client for each role of theirs."""

    api: FastAPI
    client: TestClient
    ours: dict[str, str]
    keys: dict[str, dict[str, str]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("home")
    with open_app(home, shop) as app:
        ours = _fill(app, home, shop)
        app.scoped("theirs").add_source("shop", SourceSpec(url=str(shop)))
        api = create_app(app, keys_required=True)
        with TestClient(api, base_url="https://etude.example") as client:
            scene = Scene(api, client, ours)
            for role in ROLES:
                _, secret = Identity(app.store).create_key(f"their {role}", role, "theirs")
                scene.keys[role] = {"Authorization": f"Bearer {secret}"}
            yield scene


def _fill(app: App, home: Path, shop: Path) -> dict[str, str]:
    ours = app.scoped("ours")
    ours.add_source(f"{MARK}_shop", SourceSpec(url=str(shop)))
    result = ours.sql(f"{MARK}_shop", f"SELECT '{MARK}' AS word, * FROM orders LIMIT 3")
    run = ours.store.run(str(result.run_id))
    thread = ours.store.create_thread(f"About the {MARK}", f"{MARK}_shop")
    ours.store.add_message(thread.id, "user", f"Where is the {MARK}?", run.id)
    waiting = ours.runs.begin("ask", "which year? " + MARK, f"{MARK}_shop", thread_id=thread.id)
    ours.runs.work(waiting)
    identity = Identity(app.store)
    key, _ = identity.create_key(f"{MARK} key", "admin", "ours")
    identity.add_report("ours", {"text": MARK})
    identity.note("ours", key.id, f"POST /{MARK}", 200, "r", "x")
    identity.write_down()
    lesson = home / "playbooks" / "ours" / MARK / "SKILL.md"
    lesson.parent.mkdir(parents=True)
    lesson.write_text(f"---\nname: {MARK}\ndescription: x\n---\n{MARK}\n")
    (home / "playbooks" / "ours" / "plan").mkdir()
    (home / "playbooks" / "ours" / "plan" / "SKILL.md").write_text(f"---\nname: plan\ndescription: x\n---\n{MARK}\n")
    draft = home / "playbooks" / "ours" / ".drafts" / "plan" / "SKILL.md"
    draft.parent.mkdir(parents=True)
    draft.write_text(f"---\nname: plan\ndescription: x\n---\n{MARK}\n")
    now = datetime.now(UTC)
    script = StoredScript(new_id("script"), "key", f"{MARK}_shop", run.id, MARK, "active", "", now, "{}")
    StoredScripts(ours.store).add(script)
    Retention(ours.store).pin(waiting, MARK)
    edit = StoredEdit(new_id("edit"), str(home), "constants", "merged", now, {"rationale": MARK, "hunks": []})
    StoredEdits(ours.store).put(edit)
    StoredEdits(ours.store).add_run(StoredSuiteRun(str(home), MARK, "base", 0, 1, 2, 1.0))
    return {
        "script_id": script.id,
        "edit_id": edit.id,
        "draft": "plan",
        "run_id": run.id,
        "waiting": waiting,
        "thread_id": thread.id,
        "dataset": f"{MARK}_shop",
        "name": f"etude/{MARK}_shop",
        "table": "orders",
        "playbook": "plan",
        "catalog": "latest",
        "other": "latest",
        "file": "catalog.html",
        "key": "1",
        "key_id": key.id,
        "hash": run.artifacts[0].hash,
        "agent_id": ours.agents.create("echo", {"subject": MARK}, id="speaker").id,
        "agent": "speaker",
        "action_id": ours.agents.message("speaker", {"subject": MARK}),
    }


def operations(scene: Scene) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in scene.api.openapi()["paths"].items()
        for method, operation in methods.items()
    ]


def bodies(ours: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Bodies that reach for what is ours, for each route that takes one."""
    dataset, thread, run = ours["dataset"], ours["thread_id"], ours["run_id"]
    return {
        "/api/sql": [
            {"query": "SELECT 1", "dataset": dataset},
            {"query": "SELECT 1", "dataset": "shop", "thread_id": thread},
            {"query": f"SELECT * FROM {dataset}.orders", "dataset": "shop"},
        ],
        "/api/search": [
            {"query": "orders", "dataset": dataset},
            {"query": "everything about orders", "mode": "text"},
            {"query": "orders", "source": dataset, "kinds": ["row", "run"], "mode": "text"},
        ],
        "/api/match": [
            {"table": "orders", "like": "x", "dataset": dataset},
            {"table": f"{dataset}.orders", "like": "x", "dataset": "shop"},
            {"table": "orders", "like": "x", "where": f"id IN (SELECT id FROM {dataset}.orders)", "dataset": "shop"},
        ],
        "/api/ask": [
            {"question": "how many orders?", "dataset": dataset},
            {"question": "how many orders?", "thread_id": thread},
        ],
        "/api/chat": [{"message": "x", "dataset": dataset}, {"message": "x", "thread_id": thread}],
        "/api/chat/stream": [{"message": "x", "dataset": dataset}, {"message": "x", "thread_id": thread}],
        "/api/runs": [
            {"kind": kind, "text": "SELECT 1", **reach}
            for kind in ("sql", "python", "plan", "ask")
            for reach in ({"dataset": dataset}, {"dataset": "shop", "thread_id": thread})
        ],
        "/api/datasets": [{}],
        "/api/ingest/file": [{}],
        "/api/runs/{run_id}/feedback": [{"verdict": "wrong"}, {"verdict": "right"}],
        "/api/scripts/{script_id}/withdraw": [{}],
        "/api/learning/edits/{edit_id}/revert": [{}],
        "/api/learning/drafts/{draft}/refuse": [{}],
        "/api/runs/{run_id}/answer": [{"text": "2024"}],
        "/api/runs/{run_id}/pin": [{}, {"reason": "x"}],
        "/api/runs/{run_id}/steer": [{"guidance": "x"}],
        "/api/runs/{run_id}/interrupt": [{"guidance": "x"}],
        "/api/catalogs": [{"dataset": dataset}],
        "/api/catalogs/{dataset}/acknowledgements": [{"changes": ["orders"], "why": "x"}],
        "/api/datasets/{dataset}/annotations": [{}],
        "/api/datasets/connect": [{"url": "shop.duckdb"}, {"url": "upload://ours", "name": dataset}],
        "/api/threads": [{"title": "x", "dataset": dataset}],
        "/api/threads/{thread_id}/fork": [{}, {"until": 1}],
        "/api/agents": [
            {"kind": "watch", "config": {"source": dataset, "sql": "SELECT 1", "every_s": 1}},
            {"kind": "analyst", "config": {"source": dataset, "goal": "x"}},
        ],
        "/api/agents/{agent_id}/message": [{"body": "x"}],
        "/api/agents/{agent_id}/pause": [{}, {"mode": "now"}],
        "/api/agents/{agent_id}/resume": [{}],
        "/api/agents/{agent_id}/steer": [{"guidance": "x"}],
        "/api/agents/{agent_id}/interrupt": [{"guidance": "x"}],
        "/api/agents/{agent_id}/destroy": [{"grace_s": 0}],
        "/api/agents/{agent_id}/reload": [{}, {"config": {"subject": "x"}}],
        "/api/actions/{action_id}/cancel": [{}, {"reason": "x"}],
        "/api/actions/{action_id}/retry": [{}],
        "/api/events": [{"topic": "x", "agent": ours["agent_id"]}],
        "/api/playbooks": [{"text": "---\nname: theirs\ndescription: x\n---\nx\n"}],
        "/api/log": [{"text": "x", "dataset": dataset}, {"text": "x", "run_id": run}],
        "/api/keys": [{"name": "x", "role": "reader"}],
        "/api/session": [{"key": f"etude_{ours['key_id']}_x"}],
        "/v1/chat/completions": [
            {"model": f"etude/{dataset}", "messages": [{"role": "user", "content": "how many orders?"}]}
        ],
        "/v1/responses": [{"model": "etude", "input": "x", "previous_response_id": run}],
    }


def routes_of(router: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every path and method that a router answers to, those of the routers inside it too."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes_of(inner, prefix + route.include_context.prefix)
        else:
            # The document has no patterns in its paths.
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", prefix + route.path)
            yield from ((path, method) for method in route.methods - {"HEAD"})


def test_every_route_is_asked(scene: Scene) -> None:
    documented = {(path, method.upper()) for method, path, _ in operations(scene)}
    assert set(routes_of(scene.api.router)) == documented | UNDOCUMENTED
    taking = {path for _, path, operation in operations(scene) if "requestBody" in operation}
    assert taking == set(bodies(scene.ours)), "each route that takes a body has bodies that reach for what is ours"


def test_nothing_of_another_tenant_comes_back(scene: Scene) -> None:
    reach = bodies(scene.ours)
    asked = 0
    for method, path, operation in operations(scene):
        if path == ENDLESS:
            continue
        for run in {scene.ours["run_id"], scene.ours["waiting"]} if "{run_id}" in path else {scene.ours["run_id"]}:
            values = scene.ours | {"run_id": run}
            filled = re.sub(r"\{(\w+)\}", lambda found: values[found[1]], path)  # noqa: B023
            query = {
                p["name"]: values.get({"run": "run_id"}.get(p["name"], p["name"]))
                for p in operation.get("parameters", [])
                # Not the name of an upload: a dataset of theirs may have the name of one of ours.
                if p["in"] == "query" and p["name"] != "name" and {"run": "run_id"}.get(p["name"], p["name"]) in values
            }
            sent: list[dict[str, Any] | None] = list(reach[path]) if "requestBody" in operation else [None]
            for role, headers in scene.keys.items():
                for url in (filled, filled.removeprefix("/api")):
                    for body in sent:
                        answer = scene.client.request(method, url, json=body, params=query, headers=headers)
                        asked += 1
                        where = f"{role}: {method} {url} {body} -> {answer.status_code} {answer.text[:300]}"
                        assert MARK not in _without_names(answer.text, scene.ours), where
                        assert answer.status_code < 500, where
                        if "{" in path or path == "/api/events":
                            assert answer.status_code in (403, 404, 422), where
                            assert answer.status_code != 404 or answer.json()["code"] == "not_found", where
    assert asked > 200


def _without_names(text: str, ours: dict[str, str]) -> str:
    """The answer without what the caller itself had sent."""
    return text.replace(ours["dataset"], "")


def test_a_foreign_thing_and_one_that_never_was_look_the_same(scene: Scene) -> None:
    for path, mine, none in (
        ("/api/runs/{}", scene.ours["run_id"], "run_none"),
        ("/api/runs/{}/events", scene.ours["run_id"], "run_none"),
        ("/api/runs/{}/result", scene.ours["run_id"], "run_none"),
        ("/api/threads/{}/messages", scene.ours["thread_id"], "thread_none"),
        ("/api/datasets/{}/schema", scene.ours["dataset"], "none"),
    ):
        answers = [scene.client.get(path.format(name), headers=scene.keys["admin"]) for name in (mine, none)]
        shapes = [
            json.dumps({k: v for k, v in a.json().items() if k != "instance"}).replace(name, "X")
            for a, name in zip(answers, (mine, none))
        ]
        assert shapes[0] == shapes[1]
        assert answers[0].status_code == 404


def test_ours_are_still_there_for_us(scene: Scene) -> None:
    store = scene.api.state.server.app.scoped("ours").store
    assert store.run(scene.ours["waiting"]).status == "waiting"
    assert scene.api.state.server.app.scoped("ours").agents.get(scene.ours["agent_id"]).activity == "queued"
    assert len(store.messages(scene.ours["thread_id"])) >= 2
    ours = scene.api.state.server.app.scoped("ours")
    assert list(ours.sources()) == [scene.ours["dataset"]]
    assert [script.state for script in ours.scripts.stored.list()] == ["active"]
    assert [pin.reason for pin in Retention(store).pins()] == [MARK]
    assert store.run(scene.ours["run_id"]).status == "succeeded"
    assert [edit.status for edit in StoredEdits(store).list()] == ["merged"]
    assert [draft.decision for draft in ours.playbooks.drafts()] == [""]
    assert [key.revoked_at for key in scene.api.state.server.identity.keys("ours")] == [None]


def test_metrics_are_for_the_first_tenant_s_admins(scene: Scene) -> None:
    for headers in scene.keys.values():
        assert scene.client.get("/metrics", headers=headers).status_code == 403


def test_a_tool_of_an_mcp_client_is_its_tenant_s_too(scene: Scene) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_datasets", {}),
        ("playbooks", {}),
        ("playbooks_show", {"name": scene.ours["playbook"]}),
        ("playbooks_add", {"text": "no head"}),
        ("playbooks_pin", {"name": scene.ours["playbook"]}),
        ("playbooks_retire", {"name": scene.ours["playbook"]}),
        ("get_run", {"run_id": scene.ours["run_id"]}),
        ("wait_run", {"run_id": scene.ours["waiting"], "timeout_s": 1}),
        ("cancel_run", {"run_id": scene.ours["waiting"]}),
        ("answer_run", {"run_id": scene.ours["waiting"], "text": "2024"}),
        ("steer_run", {"run_id": scene.ours["waiting"], "guidance": "only 2024"}),
        ("describe_dataset", {"dataset": scene.ours["dataset"]}),
        ("search", {"query": "orders", "dataset": scene.ours["dataset"]}),
        ("match", {"table": "orders", "like": "x", "dataset": scene.ours["dataset"]}),
        ("catalogs_list", {"dataset": scene.ours["dataset"]}),
        ("catalogs_show", {"dataset": scene.ours["dataset"]}),
        ("catalogs_compare", {"dataset": scene.ours["dataset"], "before": "latest"}),
        ("sql", {"query": "SELECT 1", "dataset": scene.ours["dataset"]}),
        ("python", {"code": "1", "thread_id": scene.ours["thread_id"]}),
        ("ask", {"question": "x", "thread_id": scene.ours["thread_id"]}),
        ("log", {"text": "x", "run_id": scene.ours["run_id"]}),
        ("judge_run", {"run_id": scene.ours["run_id"], "verdict": "wrong"}),
        ("agents_create", {"kind": "analyst", "config": {"source": scene.ours["dataset"], "goal": "x"}}),
        ("agents_list", {}),
        ("agents_show", {"agent_id": scene.ours["agent_id"]}),
        ("agents_message", {"agent_id": scene.ours["agent_id"], "body": "x"}),
        ("agents_reload", {"agent_id": scene.ours["agent_id"]}),
        ("agents_steer", {"agent_id": scene.ours["agent_id"], "guidance": "x"}),
        ("agents_pause", {"agent_id": scene.ours["agent_id"]}),
        ("agents_resume", {"agent_id": scene.ours["agent_id"]}),
        ("agents_interrupt", {"agent_id": scene.ours["agent_id"]}),
        ("agents_destroy", {"agent_id": scene.ours["agent_id"]}),
    ]
    uris = [f"artifact://{scene.ours['run_id']}/{scene.ours['hash']}", f"playbook://{MARK}"]
    for role, headers in scene.keys.items():
        offered = call_mcp(scene, headers, "tools/list").json()["result"]["tools"]
        assert {tool["name"] for tool in offered} == {name for name, _ in calls}
        for name, arguments in calls:
            answer = call_mcp(scene, headers, "tools/call", name=name, arguments=arguments)
            where = f"{role}: {name} -> {answer.text[:400]}"
            assert MARK not in _without_names(answer.text, scene.ours), where
            result = answer.json()["result"]
            assert result["isError"] == (name not in ("list_datasets", "playbooks", "agents_list")), where
        templates = call_mcp(scene, headers, "resources/templates/list").json()["result"]["resourceTemplates"]
        kinds = [template["uriTemplate"].partition("://")[0] for template in templates]
        assert sorted(kinds) == sorted(uri.partition("://")[0] for uri in uris)
        assert call_mcp(scene, headers, "resources/list").json()["result"]["resources"] == []
        for uri in uris:
            assert "error" in call_mcp(scene, headers, "resources/read", uri=uri).json()


def call_mcp(scene: Scene, headers: Mapping[str, str], method: str, **params: Any) -> httpx.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = scene.client.post("/mcp", json=message, headers={**headers, **ACCEPT})
    assert answer.status_code == 200, answer.text
    return answer


# Streams that do not end, over a real socket.


@pytest.fixture(scope="module")
def live(scene: Scene) -> Iterator[Running]:
    with listening(scene.api.state.server.app, keys_required=True) as running:
        yield running


def publish(app: App, tenant: str, topic: str, text: str, agent: str | None = None) -> None:
    Topics(app.scoped(tenant).agents.queue).publish(topic, {"text": text}, agent)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("topic", ["news.today", "agent.created", "news.*", "agent.*", "*", f"{MARK}.news"])
def test_a_topic_tells_each_tenant_its_own_alone(scene: Scene, live: Running, role: str, topic: str) -> None:
    """Also those who know its name, or ask for all that there ever was."""
    told = "news.today" if topic == "*" else topic.replace("*", "step")
    publish(live.app, "ours", told, MARK, scene.ours["agent_id"])
    for headers, query in (
        ({}, {}),
        ({"Last-Event-ID": "0"}, {}),
        ({}, {"after": "0"}),
        ({"Last-Event-ID": "0", "X-Tenant": "ours"}, {"tenant": "ours"}),
    ):
        last = new_id("word")
        with (
            httpx.Client(base_url=live.url, timeout=30, headers=scene.keys[role]) as web,
            web.stream("GET", f"/api/events/{topic}", headers=headers, params=query) as stream,
        ):
            publish(live.app, "ours", told, MARK, scene.ours["agent_id"])
            publish(live.app, "theirs", told, last)
            # They come in the order of their ids: one of ours would have come before the last of theirs.
            seen = list(events_until(stream, last))
        assert MARK not in json.dumps([event | {"topic": ""} for event in seen])
        assert all("tenant" not in event for event in seen)


def events_until(stream: httpx.Response, last: str) -> Iterator[dict[str, Any]]:
    """The events of a stream, up to the one that has the last word."""
    for line in stream.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
            if last in line:
                return
    pytest.fail("The stream ended before.")


@pytest.mark.parametrize("role", ROLES)
def test_agents_of_one_name_are_each_their_tenant_s(scene: Scene, role: str) -> None:
    app, name = scene.api.state.server.app, f"twin-of-{role}"
    for tenant in ("ours", "theirs"):
        app.scoped(tenant).agents.create("echo", {"subject": MARK if tenant == "ours" else "rain"}, id=name)
        publish(app, tenant, "agent.told", MARK if tenant == "ours" else "rain", name)
    app.scoped("theirs").agents.destroy(name, 0)
    for place in ({}, {"Last-Event-ID": "0"}):
        stream = scene.client.get(f"/api/agents/{name}/events", headers=scene.keys[role] | place)
        told = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
        assert [e["topic"] for e in told] == ["agent.created", "agent.told", "agent.destroyed"]
        assert MARK not in stream.text
    for path in ("", "/state", "/steps"):
        assert MARK not in scene.client.get(f"/api/agents/{name}{path}", headers=scene.keys[role]).text
    assert app.scoped("ours").agents.get(name).status == "active"


@pytest.mark.parametrize("role", ROLES)
def test_a_stream_of_many_runs_takes_none_of_another_tenant(scene: Scene, role: str) -> None:
    app, ours = scene.api.state.server.app.scoped("theirs"), scene.ours["run_id"]
    own = app.sql("shop", "SELECT 1").run_id
    headers = scene.keys[role]
    refused = scene.client.get("/api/events", params={"run": [own, ours]}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    for place in ({"Last-Event-ID": f"{ours}:0;{own}:0"}, {"Last-Event-ID": f"{ours}:1"}):
        stream = scene.client.get("/api/events", params={"run": own}, headers=headers | place)
        told = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
        assert {event["run_id"] for event in told} == {own}
        assert ours not in stream.text
