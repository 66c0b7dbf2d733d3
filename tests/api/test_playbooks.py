"""Playbooks over HTTP: added, shown with their effect, pinned and retired."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.api.server_state import READERS, ServerState
from etude.app import App
from etude.learning.playbooks import playbook_library
from etude.playbook import Playbook

SKILL = "---\nname: margins\ndescription: How margins are counted\n---\nBefore tax.\n"


def test_a_playbook_is_added_pinned_and_retired(client: TestClient) -> None:
    made = client.post("/api/playbooks", json={"text": SKILL})
    assert made.status_code == 201, made.text
    assert made.json()["state"] == "active"
    assert made.json()["interval"] == [-1.0, 1.0]
    assert client.post("/api/playbooks/margins/pin").json()["state"] == "pinned"
    assert client.post("/api/playbooks/margins/retire").json()["state"] == "retired"
    assert "margins" not in [p["name"] for p in client.get("/api/playbooks").json()["items"]]
    everything = client.get("/api/playbooks", params={"retired": True}).json()["items"]
    assert "margins" in [p["name"] for p in everything]
    history = client.get("/api/playbooks/margins/history").json()["items"]
    assert [c["change"] for c in history] == ["added", "pinned", "retired"]
    assert history[0]["text"] == SKILL
    assert client.get("/api/playbooks/margins").json()["text"] == "Before tax."
    assert client.get("/api/playbooks/margins/exposures").json()["items"] == []


def test_mistakes_are_explained(client: TestClient) -> None:
    assert client.get("/api/playbooks/nowhere").status_code == 404
    assert client.post("/api/playbooks", json={"text": "no head"}).status_code == 422
    assert client.post("/api/playbooks", json={"text": "---\nname: ../x\n---\n"}).status_code == 422


def test_a_list_parses_only_what_has_changed(client: TestClient, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = playbook_library.parse_playbook

    def count(text: str) -> Playbook:
        parsed.append(text)
        return parse(text)

    for name in ("first", "second"):
        text = f"---\nname: {name}\ndescription: d\n---\n{'x ' * 1000}"
        assert client.post("/api/playbooks", json={"text": text}).status_code == 201
    client.get("/api/playbooks")
    monkeypatch.setattr(playbook_library, "parse_playbook", count)
    assert {"first", "second"} <= {p["name"] for p in client.get("/api/playbooks").json()["items"]}
    assert parsed == []
    client.post("/api/playbooks", json={"text": "---\nname: first\ndescription: new\n---\ny"})
    shown = {p["name"]: p["description"] for p in client.get("/api/playbooks").json()["items"]}
    assert shown["first"] == "new"


def test_lookups_of_keys_do_not_wait_for_the_reads_of_a_tenant(app: App) -> None:
    """Nor do the reads of others: each tenant has its share."""
    server: ServerState = create_app(app).state.server
    release, started = threading.Event(), threading.Semaphore(0)

    def block() -> None:
        started.release()
        release.wait(120)

    async def check() -> None:
        many = [asyncio.create_task(server.access_store_for("large", block)) for _ in range(100)]
        for _ in range(READERS):
            await asyncio.to_thread(started.acquire)
        try:
            async with asyncio.timeout(60):
                assert await server.access_store(lambda: "key") == "key"
                assert await server.access_store_for("small", lambda: "row") == "row"
        finally:
            release.set()
            await asyncio.gather(*many)

    asyncio.run(check())
