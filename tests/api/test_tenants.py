"""Tenants over HTTP: every route, with every role, asked for what is another tenant's. Nothing of it may come back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.conftest import open_app
from etude.api.server import create_app
from etude.app import App
from etude.entities import SourceSpec
from etude.store.identity import ROLES, Identity

MARK = "zebra"
"""A word that stands in everything of ours, and in nothing of theirs."""
OPEN = {"/healthz", "/readyz", "/api/session", "/metrics"}
ENDLESS = "/api/events/{topic}"
"""A stream that everyone may open: of what is told in their own tenant."""


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
    waiting = ours.desk.open(f"{MARK}_shop", "which year? " + MARK, thread_id=thread.id)
    ours.desk.work(waiting)
    identity = Identity(app.store)
    key, _ = identity.create_key(f"{MARK} key", "admin", "ours")
    identity.add_report("ours", {"text": MARK})
    identity.note("ours", key.id, f"POST /{MARK}", 200, "r", "x")
    identity.write_down()
    lesson = home / "playbooks" / "ours" / MARK / "SKILL.md"
    lesson.parent.mkdir(parents=True)
    lesson.write_text(f"---\nname: {MARK}\ndescription: x\n---\n{MARK}\n")
    return {
        "run_id": run.id,
        "waiting": waiting,
        "thread_id": thread.id,
        "dataset": f"{MARK}_shop",
        "table": "orders",
        "key": "1",
        "key_id": key.id,
        "hash": run.artifacts[0].hash,
        "agent_id": ours.agents.create("echo", {"subject": MARK}, id="speaker").id,
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
        "/api/runs/{run_id}/answer": [{"text": "2024"}],
        "/api/catalogs": [{"dataset": dataset}],
        "/api/datasets/{dataset}/annotations": [{}],
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
        "/api/events": [{"topic": "x", "agent": ours["agent_id"]}],
        "/api/log": [{"text": "x", "dataset": dataset}, {"text": "x", "run_id": run}],
        "/api/keys": [{"name": "x", "role": "reader"}],
        "/v1/chat/completions": [
            {"model": f"etude/{dataset}", "messages": [{"role": "user", "content": "how many orders?"}]}
        ],
        "/v1/responses": [{"model": "etude", "input": "x", "previous_response_id": run}],
    }


def test_nothing_of_another_tenant_comes_back(scene: Scene) -> None:
    reach = bodies(scene.ours)
    asked = 0
    for method, path, operation in operations(scene):
        if path in OPEN or path == ENDLESS:
            continue
        for run in {scene.ours["run_id"], scene.ours["waiting"]} if "{run_id}" in path else {scene.ours["run_id"]}:
            values = scene.ours | {"run_id": run}
            filled = re.sub(r"\{(\w+)\}", lambda found: values[found[1]], path)  # noqa: B023
            query = {
                p["name"]: values.get({"run": "run_id"}.get(p["name"], p["name"]))
                for p in operation.get("parameters", [])
                if p["in"] == "query" and {"run": "run_id"}.get(p["name"], p["name"]) in values
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
    store = scene.api.state.house.app.scoped("ours").store
    assert store.run(scene.ours["waiting"]).status == "waiting"
    assert scene.api.state.house.app.scoped("ours").agents.get(scene.ours["agent_id"]).activity == "queued"
    assert len(store.messages(scene.ours["thread_id"])) >= 2
    assert [key.revoked_at for key in scene.api.state.house.identity.keys("ours")] == [None]


def test_metrics_are_for_the_first_tenant_s_admins(scene: Scene) -> None:
    for headers in scene.keys.values():
        assert scene.client.get("/metrics", headers=headers).status_code == 403


def test_a_tool_of_an_mcp_client_is_its_tenant_s_too(scene: Scene) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_datasets", {}),
        ("playbooks", {}),
        ("get_run", {"run_id": scene.ours["run_id"]}),
        ("wait_run", {"run_id": scene.ours["waiting"], "timeout_s": 1}),
        ("cancel_run", {"run_id": scene.ours["waiting"]}),
        ("answer_run", {"run_id": scene.ours["waiting"], "text": "2024"}),
        ("describe_dataset", {"dataset": scene.ours["dataset"]}),
        ("sql", {"query": "SELECT 1", "dataset": scene.ours["dataset"]}),
        ("python", {"code": "1", "thread_id": scene.ours["thread_id"]}),
        ("ask", {"question": "x", "thread_id": scene.ours["thread_id"]}),
        ("log", {"text": "x", "run_id": scene.ours["run_id"]}),
        ("agents_create", {"kind": "analyst", "config": {"source": scene.ours["dataset"], "goal": "x"}}),
        ("agents_list", {}),
        ("agents_show", {"agent_id": scene.ours["agent_id"]}),
        ("agents_steer", {"agent_id": scene.ours["agent_id"], "guidance": "x"}),
        ("agents_pause", {"agent_id": scene.ours["agent_id"]}),
        ("agents_resume", {"agent_id": scene.ours["agent_id"]}),
        ("agents_interrupt", {"agent_id": scene.ours["agent_id"]}),
        ("agents_destroy", {"agent_id": scene.ours["agent_id"]}),
    ]
    accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    for role, headers in scene.keys.items():
        for name, arguments in calls:
            message = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
            answer = scene.client.post("/mcp", json=message, headers=headers | accept)
            assert answer.status_code == 200, answer.text
            where = f"{role}: {name} -> {answer.text[:400]}"
            assert MARK not in _without_names(answer.text, scene.ours), where
            result = answer.json()["result"]
            assert result["isError"] == (name not in ("list_datasets", "playbooks", "agents_list")), where
        for uri in (f"artifact://{scene.ours['run_id']}/{scene.ours['hash']}", f"playbook://{MARK}"):
            message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}}
            assert "error" in scene.client.post("/mcp", json=message, headers=headers | accept).json()
