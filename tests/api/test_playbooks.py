"""Playbooks over HTTP: added, shown with their effect, pinned and retired."""

from __future__ import annotations

from fastapi.testclient import TestClient

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
