"""Errors over HTTP: what is wrong with a request is said with the field, the value and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient


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
