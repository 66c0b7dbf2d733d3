"""Errors over HTTP: what is wrong with a request is said with the field, the value and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from fastapi.testclient import TestClient

from api.conftest import open_app
from etude.api.problems import hide_outage_details
from etude.api.server import create_app
from etude.errors import Invalid, Unavailable, problem


@pytest.mark.parametrize(
    ("body", "detail", "hint"),
    [
        ({"kind": "sql", "txet": "SELECT 1"}, "`body.txet` is not known.", "Did you mean `body.text`?"),
        (
            {"kind": "sql", "text": "x", "limits": {"row": 1}},
            "`body.limits.row` is",
            "Did you mean `body.limits.rows`?",
        ),
        (
            {"kind": "sql", "text": "x", "limits": {"rows": 0}},
            "`body.limits.rows` cannot be `0`: it must be 1 or more.",
            "/openapi.json describes",
        ),
        (
            {"kind": "verse", "text": "x"},
            '`body.kind` cannot be `"verse"`: it must be `sql`, `python`',
            "/openapi.json",
        ),
        ({"text": "x"}, "`body.kind` is missing.", "Add it."),
    ],
)
def test_a_wrong_request_is_explained(client: TestClient, body: Any, detail: str, hint: str) -> None:
    answer = client.post("/api/runs", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail) and answer.json()["hint"].startswith(hint)


def test_a_body_that_is_not_json_is_named_as_such(client: TestClient) -> None:
    answer = client.post("/api/runs", content=b'{"kind":', headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and answer.json()["detail"] == "The body is not valid JSON."


def test_an_outage_reveals_nothing_to_a_caller_without_a_key() -> None:
    outage = Unavailable("postgresql://etude@10.0.0.7/etude is not available.", hint="Start it.", server="10.0.0.7")
    assert hide_outage_details(outage, known=True) is outage
    assert "10.0.0.7" not in json.dumps(problem(hide_outage_details(outage, known=False)))
    other = Invalid("a", hint="b")
    assert hide_outage_details(other, known=False) is other


def test_a_key_that_cannot_be_looked_up_gets_no_address(tmp_path: Path, shop: Path) -> None:
    def fail(*_: object) -> NoReturn:
        raise Unavailable("postgresql://etude@10.0.0.7/etude is not available.", hint="Start it.")

    with open_app(tmp_path, shop) as app:
        api = create_app(app, keys_required=True)
        api.state.server.identity.authenticate = fail
        with TestClient(api, base_url="https://etude.example") as client:
            refused = [
                client.get("/api/datasets", headers={"Authorization": "Bearer etude_abc_def"}),
                client.post("/api/session", json={"key": "etude_abc_def"}),
            ]
    assert [(r.status_code, "10.0.0.7" in r.text) for r in refused] == [(503, False)] * 2
