"""Data that is added without an upload: a database by its URL, and the sample shop."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.app import App
from etude.store.identity import Identity
from relay import relay_to_postgres


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=str(tmp_path / "home"), model="offline") as opened:
        yield opened


@pytest.fixture
def client(app: App) -> Iterator[TestClient]:
    with TestClient(create_app(app), base_url="http://localhost") as opened:
        yield opened


def write_database(path: Path) -> str:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE towns (name TEXT, people INTEGER)")
        database.execute("INSERT INTO towns VALUES ('Ulm', 128000), ('Bonn', 336000)")
    return f"sqlite:///{path}"


def test_a_database_is_connected_by_its_url(client: TestClient, tmp_path: Path) -> None:
    url = write_database(tmp_path / "towns.db")
    made = client.post("/api/datasets/connect", json={"url": url})
    assert made.status_code == 201, made.text
    assert made.json()["name"] == "towns"
    (table,) = made.json()["tables"]
    assert (table["name"], [c["name"] for c in table["columns"]]) == ("towns", ["name", "people"])
    again = client.post("/api/datasets/connect", json={"url": url})
    assert again.json()["name"] == "towns_2"
    assert {d["id"] for d in client.get("/api/datasets").json()["items"]} == {"towns", "towns_2"}
    rows = client.post("/api/sql", json={"query": "SELECT sum(people) FROM towns", "dataset": "towns"}).json()["rows"]
    assert rows == [[464000]]


def test_what_does_not_open_is_not_added(client: TestClient, tmp_path: Path) -> None:
    for url in (str(tmp_path / "nothing.csv"), "postgresql://reader:secret@127.0.0.1:1/none", "gopher://x"):
        refused = client.post("/api/datasets/connect", json={"url": url})
        assert refused.status_code in (404, 422, 502, 503), refused.text
        assert refused.json()["detail"] and "secret" not in refused.text
    assert client.get("/api/datasets").json()["items"] == []


@pytest.mark.parametrize("shared", [{"keys_required": True}, {"anyone": True}])
def test_on_a_server_for_others_only_its_operator_connects(app: App, tmp_path: Path, shared: dict[str, bool]) -> None:
    _, key = Identity(app.store).create_key("boss", "admin")
    with TestClient(create_app(app, **shared), base_url="http://localhost") as client:
        headers = {"Authorization": f"Bearer {key}"}
        refused = client.post("/api/datasets/connect", json={"url": write_database(tmp_path / "x.db")}, headers=headers)
    assert refused.status_code == 403
    assert "etude sources add" in refused.json()["hint"]


def test_the_shop_is_opened_once(client: TestClient) -> None:
    made = client.post("/api/datasets/shop")
    assert made.status_code == 201, made.text
    assert {t["name"] for t in made.json()["tables"]} == {"customers", "orders", "order_lines", "products"}
    assert client.post("/api/datasets/shop").status_code == 409
    answer = client.post("/api/ask", json={"question": "How many orders are there?", "dataset": "shop"}).json()
    assert "3,704" in answer["text"]


@contextmanager
def shared(home: Path, **settings: Any) -> Iterator[TestClient]:
    """A server for others, and its administrator."""
    with App(home=str(home), server=settings) as app:
        _, key = Identity(app.store).create_key("boss", "admin")
        headers = {"Authorization": f"Bearer {key}"}
        with TestClient(create_app(app, keys_required=True), base_url="http://localhost", headers=headers) as client:
            yield client


def test_a_listed_database_is_connected(tmp_path: Path, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE stock (n int)")
        name = db.info.dbname
    with relay_to_postgres(postgres_url) as (relay, _):
        crm = {"name": "crm", "url": f"postgresql://postgres:@127.0.0.1:{relay.port}/{name}"}
        with shared(tmp_path) as client:
            refused = client.post("/api/datasets/connect", json=crm)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert client.get("/api/datasets").json()["items"] == []
        with shared(tmp_path, databases=[f"postgresql://127.0.0.1:{relay.port}/{name}"]) as client:
            made = client.post("/api/datasets/connect", json=crm)
            assert made.status_code == 201, made.text
            assert made.json()["tables"][0]["columns"] == [{"name": "n", "type": "integer"}]
            assert client.delete("/api/datasets/crm").status_code == 204


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:x@elsewhere/crm",
        "postgresql://user:x@db.internal:5433/crm",
        "postgresql://user:x@db.internal/other",
        "postgresql://db.internal/crm?host=elsewhere",
        "postgresql://db.internal,elsewhere/crm",
        "postgresql://elsewhere@db.internal@db.internal/crm",
        "postgresql://user:x@elsewhere#@db.internal/crm",
        "mysql://db.internal:5432/crm",
        "postgresql:///crm?host=/run/postgresql",
        "env:DATABASE_URL",
        "file:///etc/passwd",
        "/etc/passwd",
        "https://db.internal/crm",
    ],
)
def test_another_database_than_the_listed_is_refused(tmp_path: Path, url: str) -> None:
    with shared(tmp_path, databases=["postgresql://db.internal:5432/crm"]) as client:
        refused = client.post("/api/datasets/connect", json={"name": "crm", "url": url})
        assert refused.status_code in (403, 422), refused.text
        assert client.get("/api/datasets").json()["items"] == []
