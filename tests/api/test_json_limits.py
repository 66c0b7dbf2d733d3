"""Bodies that would cost much more to parse or to refuse than to send."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.conftest import open_app
from etude.api.server import create_app
from etude.errors import Invalid
from etude.json_limits import MOST_DEPTH, MOST_VALUES, check_json_body

JSON = {"content-type": "application/json"}
KEYS = ",".join(f'"k{i}":1' for i in range(310_000))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[TestClient]:
    with (
        open_app(tmp_path_factory.mktemp("home"), shop) as app,
        TestClient(create_app(app, keys_required=True), base_url="https://etude.example") as opened,
    ):
        yield opened


@pytest.mark.parametrize(
    "path, body",
    [
        ("/search", '{"query":"x",' + KEYS + "}"),
        ("/search", '{"query":"x",' + KEYS[:200_000].rpartition(",")[0] + "}"),
        (
            "/v1/chat/completions",
            '{"model":"etude","messages":[{"role":"user","content":[' + '{"type":1},' * 370_000 + "1]}]}",
        ),
        (
            "/v1/chat/completions",
            '{"model":"etude","messages":[{"role":"user","content":[' + '{"type":1},' * 9_000 + "1]}]}",
        ),
        ("/events", '{"topic":"a.b","body":[' + "[]," * 300_000 + "1]}"),
        ("/mcp", '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":[' + "1," * 900_000 + "1]}}"),
    ],
)
def test_a_large_invalid_body_is_refused_at_once(client: TestClient, path: str, body: str) -> None:
    before = time.process_time()
    refused = client.post(path, content=body, headers=JSON)
    assert time.process_time() - before < 1.0
    assert refused.status_code == 422, refused.text
    assert len(refused.content) < 2_000


def test_a_request_without_a_key_has_a_small_body(guarded: TestClient) -> None:
    refused = guarded.post("/api/session", content='{"key":"x",' + KEYS + "}", headers=JSON)
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    known = guarded.post("/api/session", content='{"key":"x",' + KEYS[:60_000].rpartition(",")[0] + "}", headers=JSON)
    assert (known.status_code, known.json()["detail"]) == (422, "`body.k0` is not known.")
    assert guarded.post("/api/session", json={"key": "x"}).status_code == 401


@pytest.mark.parametrize(
    "value", ["[" * 900 + "]" * 900, '{"a":' * 60 + "1" + "}" * 60, r'"\ud800"', r'"a\udc00b"', r'{"\uDBff":1}']
)
@pytest.mark.parametrize("path", ["/events", "/api/agents/nobody/message", "/sql"])
def test_deep_bodies_and_lone_surrogates_are_refused(client: TestClient, path: str, value: str) -> None:
    refused = client.post(path, content=f'{{"topic":"a.b","body":{value}}}', headers=JSON)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), refused.text
    assert client.get("/api/agent-events").status_code == 200


def test_what_is_in_strings_is_not_counted() -> None:
    check_json_body(json.dumps({"query": '[{,\\"' * 200_000}).encode())
    check_json_body(json.dumps({"text": "\U0001f600 \\ud800"}).encode())
    check_json_body(b"[" * MOST_DEPTH + b"]" * MOST_DEPTH)
    check_json_body(b"[" + b"1," * (MOST_VALUES - 2) + b"1]")
    for body in (
        b"[" + b"1," * MOST_VALUES + b"1]",
        b"[" * 51,
        "[1]".encode("utf-16"),
        b'"\xed\xa0\x80"',
        b'"a",' * 90_000,
    ):
        with pytest.raises(Invalid):
            check_json_body(body)


@pytest.mark.parametrize("unit", [b'"', b"\\", b'\\"', b'"\\', b"[", b"]", b"{}", b"\\ud800", b'"a",', b" "])
def test_the_check_is_linear(unit: bytes) -> None:
    before = time.thread_time()
    for body in (unit * ((4 << 20) // len(unit)), b'["' + unit * ((4 << 20) // len(unit))):
        try:
            check_json_body(body)
        except Invalid:
            continue
    assert time.thread_time() - before < 1.0


def test_a_body_in_tiny_parts_costs_linear_time(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"query": "'
        for _ in range(40_000):
            yield b"x"
        yield b'"}'

    before = time.process_time()
    assert client.post("/api/session", content=parts(), headers=JSON).status_code == 422
    assert time.process_time() - before < 5.0
