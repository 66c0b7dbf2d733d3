"""Fuzz tests of HTTP bodies: any body gets an answer or a problem in the form of RFC 9457, and never a server error."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.app import App

from .loop import fuzz

pytestmark = pytest.mark.timeout(0)
# Each input is a route, a line break and a body. No dataset is registered, so that an accepted body starts no work.
SEEDS = [
    '/api/sql\n{"query": "SELECT 1", "dataset": "shop", "record": false, "limits": {"rows": 5}}',
    '/api/runs\n{"kind": "sql", "text": "SELECT 1", "dataset": "shop", "budget": {"steps": 3}}',
    '/api/chat\n{"message": "how many?", "dataset": "shop", "thread_id": null, "cancel_on_disconnect": true}',
    '/api/ask\n{"question": "how many?", "dataset": "shop"}',
    '/api/log\n{"text": "it worked", "outcome": "worked"}',
    '/api/keys\n{"name": "k", "role": "reader", "limits": {"per_minute": 3}}',
    '/api/agents\n{"kind": "watch", "config": {"source": "shop", "sql": "SELECT 1", "every_s": 60}}',
    '/v1/chat/completions\n{"model": "etude", "messages": [{"role": "user", "content": "x"}]}',
    '/v1/responses\n{"model": "etude/shop", "input": "how many?"}',
    '/mcp\n{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sql", "arguments": {"query": "x"}}}',
]
VALUES: list[Any] = [None, True, 0, -1, 1e308, 10**30, "", "\0", "\ud800", "a" * 10_000, [], {}, [[]], {"": {}}, "shop"]
VALUES += [["user"], {"role": "system"}, "\u017f", "\u202e", "../..", "env:HOME", "file:/etc/passwd", 0.1, "NaN"]
PIECES = [
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\u0000",
    "1e999",
    "NaN",
    "\\ud800",
    "[" * 5000,
    "{" * 9,
    "\ufeff",
    "9" * 5000,
]


def mutate(text: str, rng: random.Random) -> str:
    """Change the structure of the body if it is JSON, or else insert characters; sometimes change the route."""
    route, _, body = text.partition("\n")
    if rng.random() < 0.1:
        route = rng.choice(SEEDS).partition("\n")[0]
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if value is None or rng.random() < 0.2:
        place = rng.randrange(len(body) + 1)
        return f"{route}\n{body[:place]}{rng.choice(PIECES)}{body[place:]}"
    return f"{route}\n{json.dumps(_change(value, rng))}"


def _change(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        match rng.randrange(4):
            case 0:
                return {k: v for k, v in value.items() if k != name}
            case 1:
                return value | {rng.choice(["", "x", name + "s", "constructor", "\0"]): rng.choice(VALUES)}
            case _:
                return value | {name: _change(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], _change(value[place], rng), *value[place + 1 :]]
    return rng.choice(VALUES)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with (
        App(home=tmp_path_factory.mktemp("home")) as app,
        TestClient(create_app(app), base_url="http://localhost", raise_server_exceptions=False) as client,
    ):
        yield client


def test_bodies(client: TestClient) -> None:
    def check(text: str) -> str:
        route, _, body = text.partition("\n")
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        answer = client.post(route, content=body.encode("utf-8", "surrogatepass"), headers=headers)
        assert answer.status_code < 500, f"{answer.status_code}: {answer.text[:500]}"
        assert "Traceback" not in answer.text
        if answer.status_code < 400:
            return "accepted"
        if route != "/mcp":
            problem = answer.json()
            assert problem["status"] == answer.status_code and problem["detail"] and problem["code"]
            assert len(answer.text) < 20_000
        return "refused"

    verdicts = fuzz("http_bodies", SEEDS, mutate, check)
    assert verdicts["refused"]
