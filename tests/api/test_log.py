"""Reports of what worked, in both shapes, and the observer of another server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.api.conftest import listening, open_app

from etude.learning.observer.findings import find_failure_findings
from etude.learning.observer.remote_operations import read_remote_operations


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"text": "a", "outcome": "worked"}, {"text": "a", "outcome": "worked"}),
        (
            {"operation": "sum revenue", "approach": "SELECT 1", "result": "success", "context": {"dataset": "shop"}},
            {"outcome": "worked", "code": "SELECT 1", "dataset": "shop"},
        ),
        ({"operation": "join", "result": "Failed: it counts twice"}, {"outcome": "failed"}),
        ({"operation": "join", "result": False, "context": "at night"}, {"outcome": "failed"}),
        ({"operation": "look", "result": {"rows": 3}}, {"outcome": "note"}),
        ({"operation": "look", "approach": ["a", "b"]}, {"text": "look", "code": '["a", "b"]'}),
    ],
)
def test_a_report_has_either_shape(client: TestClient, body: dict[str, Any], expected: dict[str, Any]) -> None:
    response = client.post("/api/log", json=body)
    assert response.status_code == 201, response.text
    assert response.json() | expected == response.json()


@pytest.mark.parametrize(
    "body", [{}, {"operation": ""}, {"operation": "a", "color": "red"}, {"operation": "a", "context": {"dataset": "x"}}]
)
def test_a_report_that_says_nothing_or_too_much_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    assert client.post("/api/log", json=body).status_code in (404, 422)


def test_another_server_is_observed_over_its_api(tmp_path: Path, shop: Path) -> None:
    with open_app(tmp_path / "home", shop) as app:
        for name in ("a", "b", "c"):
            with pytest.raises(Exception, match="nowhere"):
                app.sql("shop", f"SELECT * FROM nowhere_{name}")
        with listening(app) as server:
            operations = read_remote_operations(server.url, "")
    (finding,) = find_failure_findings(operations)
    assert (finding.count, finding.kind, finding.sources) == (3, "sql", ("shop",))
    assert "does not have" in finding.diagnosis


def test_a_page_of_reports_ends_early_if_they_are_long(client: TestClient) -> None:
    ids = [client.post("/api/log", json={"text": "x" * 190_000, "code": "y" * 190_000}).json()["id"] for _ in range(7)]
    page = client.get("/api/log?limit=500").json()
    assert len(page["items"]) < 7
    found = [item["id"] for item in page["items"]]
    while page["next"]:
        page = client.get(f"/api/log?limit=500&cursor={page['next']}").json()
        found += [item["id"] for item in page["items"]]
    assert found[:7] == ids[::-1] and len(found) == len(set(found))  # there are those of other tests
