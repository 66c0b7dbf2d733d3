"""Catalogs over HTTP: made in the background, and described by people."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from api.test_runs import ended
from etude.app import App
from etude.entities import SourceSpec


def test_a_catalog_is_made_in_the_background(client: TestClient, app: App) -> None:
    answer = client.post("/api/catalogs", json={"dataset": "shop", "tables": ["orders"], "prefix": "team/shop"})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/api/runs/{answer.json()['id']}"
    run = ended(client, answer.json()["id"])
    assert (run["kind"], run["status"]) == ("catalog", "succeeded"), run["error"]
    assert run["answer"] == "The catalog of shop is made: 1 table, 3,704 rows, no changes."
    assert list(app.objects.names("catalogs/team/shop"))
    pages = [a for a in run["artifacts"] if a["media"] == "text/html"]
    page = client.get(f"/api/runs/{run['id']}/artifacts/{pages[-1]['hash']}")
    assert page.headers["content-disposition"].startswith("attachment")


def write_orders(path: Path, factor: int) -> None:
    rows = (f"{i},{(i * 37 % 400 + 5) * factor}" for i in range(1, 2001))
    path.write_text("\n".join(["id,amount", *rows]) + "\n")


def test_catalogs_are_listed_read_compared_and_acknowledged(client: TestClient, app: App, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders.csv", 1)
    app.add_source("sales", SourceSpec(url=str(tmp_path)))
    app.cataloger.run("sales")
    write_orders(tmp_path / "orders.csv", 100)
    app.cataloger.run("sales")

    first = client.get("/api/catalogs", params={"dataset": "sales", "limit": 1}).json()
    second = client.get("/api/catalogs", params={"dataset": "sales", "limit": 1, "cursor": first["next"]}).json()
    newest, oldest = first["items"][0], second["items"][0]
    assert newest["name"] > oldest["name"] and second["next"] is None
    assert newest in client.get("/api/catalogs").json()["items"]

    latest = client.get("/api/catalogs/sales/latest").json()
    assert latest["name"] == newest["name"]
    assert [(c["id"], c["status"], c["severity"]) for c in latest["changes"]] == [
        ("orders.amount:scale", "new", "high")
    ]
    compared = client.get(f"/api/catalogs/sales/{newest['name']}/compare/{oldest['name']}").json()["items"]
    assert "100 times smaller" in compared[0]["text"]

    page = client.get("/api/catalogs/sales/latest/catalog.html")
    assert page.headers["content-type"].startswith("text/html") and "<h1>sales</h1>" in page.text
    assert page.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert client.get("/api/catalogs/sales/latest/catalog.json").json()["source"] == "sales"
    assert client.get("/api/catalogs/sales/latest/metrics.txt").status_code == 404
    assert client.get("/api/catalogs/sales/20200101T000000.000000Z-00000000").status_code == 404

    body = {"changes": ["orders.amount"], "why": "Prices are in cents."}
    known = client.post("/api/catalogs/sales/acknowledgements", json=body).json()["items"]
    assert [(c["id"], c["status"], c["acknowledged"]["why"]) for c in known] == [
        ("orders.amount:scale", "known", "Prices are in cents.")
    ]
    assert client.get("/api/catalogs/sales/latest").json()["changes"] == known
    again = {"changes": ["orders"], "why": "The import is known.", "by": "Bo"}
    (both,) = client.post("/api/catalogs/sales/acknowledgements", json=again).json()["items"]
    assert both["acknowledged"]["why"] == "The import is known."
    assert [a["why"] for a in both["acknowledged"]["earlier"]] == ["Prices are in cents."]
    assert client.get("/api/catalogs/sales/latest").json()["changes"] == [both]
    wrong = {"changes": ["orders.id:nulls"], "why": "x"}
    assert client.post("/api/catalogs/sales/acknowledgements", json=wrong).status_code == 404


def test_what_cannot_be_made_is_refused_at_once(client: TestClient) -> None:
    assert client.post("/api/catalogs", json={"dataset": "/etc"}).status_code == 404
    assert client.post("/api/catalogs", json={"dataset": "shop", "tables": ["nothing"]}).status_code == 404
    assert client.post("/api/catalogs", json={"dataset": "shop", "store": "s3://other"}).status_code == 422
    assert client.post("/api/catalogs", json={"dataset": "shop", "model": "openai:any"}).status_code == 422
    for prefix in ("../up", "_scripts", "tenants/other", "a b"):
        assert client.post("/api/catalogs", json={"dataset": "shop", "prefix": prefix}).status_code == 422, prefix


def test_people_say_what_tables_mean(client: TestClient, app: App) -> None:
    said = {"tables": {"orders": {"description": "One row per order.", "columns": {"id": "Its number."}}}}
    assert client.patch("/api/datasets/shop/annotations", json=said).status_code == 200
    more = {"tables": {"orders": {"owner": "ann"}}}
    kept = client.patch("/api/datasets/shop/annotations", json=more).json()
    assert kept == client.get("/api/datasets/shop/annotations").json()
    orders = app.profile("shop").table("orders")
    assert orders is not None and (orders.description, orders.owner) == ("One row per order.", "ann")
    wrong = client.patch("/api/datasets/shop/annotations", json={"tables": {"orders": {"ownr": "x"}}})
    assert wrong.status_code == 422
