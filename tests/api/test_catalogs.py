"""Catalogs over HTTP: made in the background, and described by people."""

from __future__ import annotations

from fastapi.testclient import TestClient

from api.test_runs import ended
from etude.app import App


def test_a_catalog_is_made_in_the_background(client: TestClient, app: App) -> None:
    answer = client.post("/api/catalogs", json={"dataset": "shop", "tables": ["orders"], "prefix": "team/shop"})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/api/runs/{answer.json()['id']}"
    run = ended(client, answer.json()["id"])
    assert (run["kind"], run["status"]) == ("catalog", "succeeded"), run["error"]
    assert "catalogs/team/shop" in run["answer"]
    pages = [a for a in run["artifacts"] if a["media"] == "text/html"]
    page = client.get(f"/api/runs/{run['id']}/artifacts/{pages[-1]['hash']}")
    assert page.headers["content-disposition"].startswith("attachment")


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
