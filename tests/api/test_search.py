"""`POST /search` and `POST /match`: what comes back, and who may ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.conftest import open_app
from etude.api.server import create_app
from etude.app import App
from etude.store.identity import Identity


@pytest.fixture(scope="module", autouse=True)
def _indexed(app: App) -> None:
    app.indexes.build("shop")


def test_a_search_tells_what_and_why(client: TestClient) -> None:
    page = client.post("/search", json={"query": "green tea", "source": "shop", "kinds": ["row"], "k": 3}).json()
    assert len(page["hits"]) == 3
    hit = page["hits"][0]
    assert hit["table"] == "products" and hit["key"]["product_id"] > 0
    assert hit["why"]["vector"]["rank"] >= 1
    assert page["indexes"][0]["embeddings"].startswith("wordllama")


def test_a_search_without_a_dataset_looks_into_all(client: TestClient) -> None:
    page = client.post("/api/search", json={"query": "orders", "kinds": ["table"]}).json()
    assert page["hits"][0]["source"] == "shop"
    assert client.post("/search", json={"query": "x", "filter": {"tables": ["orders"]}}).status_code == 200


def test_a_match_filters_and_ranks(client: TestClient) -> None:
    body = {
        "table": "products",
        "where": "price < 20",
        "like": "tea",
        "facets": ["category"],
        "k": 2,
    }
    page = client.post("/match", json=body).json()
    assert all(float(each["row"]["price"]) < 20 for each in page["rows"])
    assert page["total"] == sum(value["count"] for value in page["facets"]["category"])
    assert page["rows"][0]["because"].startswith("price < 20; ")
    filters = {"column": "price", "op": "<", "value": 20}
    assert client.post("/match", json=body | {"where": filters}).json()["total"] == page["total"]


@pytest.mark.parametrize(
    ("route", "body", "status", "code"),
    [
        ("/search", {"query": ""}, 422, "invalid"),
        ("/search", {"query": "x", "dataset": "none"}, 404, "not_found"),
        ("/search", {"query": "x", "kinds": ["rows"]}, 422, "invalid"),
        ("/match", {"table": "products", "like": "x", "where": "1=1; DROP TABLE x"}, 422, "invalid"),
        ("/match", {"table": "products"}, 422, "invalid"),
    ],
)
def test_bad_requests_are_explained(
    client: TestClient, route: str, body: dict[str, object], status: int, code: str
) -> None:
    answer = client.post(route, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["hint"]


def test_a_reader_searches_and_an_analyst_matches(tmp_path: Path, shop: Path) -> None:
    with open_app(tmp_path / "home", shop) as app:
        keys = {role: Identity(app.store).create_key(role, role) for role in ("reader", "analyst")}
        with TestClient(create_app(app, keys_required=True), base_url="http://localhost") as client:
            codes = {
                (role, route): client.post(
                    route,
                    json={"query": "tea"} if route == "/search" else {"table": "products", "like": "tea"},
                    headers={"Authorization": f"Bearer {key[1]}"},
                ).status_code
                for role, key in keys.items()
                for route in ("/search", "/match")
            }
    assert codes == {
        ("reader", "/search"): 200,
        ("reader", "/match"): 403,
        ("analyst", "/search"): 200,
        ("analyst", "/match"): 200,
    }
