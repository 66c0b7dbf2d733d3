"""Large responses are written in a thread, with the bytes, status and headers that FastAPI would send."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from etude.api import json_route
from etude.api.json_route import JsonRoute, is_small
from etude.api.server import NOUNS

JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=5), inner, max_size=40),
    max_leaves=200,
)


def test_every_route_writes_large_responses_in_a_thread() -> None:
    routes = [route for router in NOUNS for route in router.routes if isinstance(route, APIRoute)]
    assert [route.path for route in routes if not isinstance(route, JsonRoute)] == []


@pytest.mark.parametrize("path", ["/api/datasets/shop/schema", "/api/datasets", "/api/runs"])
def test_a_response_is_the_same_either_way(client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    client.post("/api/sql", json={"dataset": "shop", "query": "SELECT 1"})
    small = client.get(path)
    writers = []
    write = JsonRoute._write

    def note(route: JsonRoute, *arguments: Any) -> bytes:
        writers.append(threading.current_thread().name)
        return write(route, *arguments)

    monkeypatch.setattr(json_route, "SMALL", 0)
    monkeypatch.setattr(JsonRoute, "_write", note)
    large = client.get(path)
    assert (large.status_code, large.content) == (small.status_code, small.content)
    assert large.headers.get("etag") == small.headers.get("etag")
    assert len(writers) == 1 and "worker" in writers[0].lower()


def test_status_and_headers_of_a_large_response_are_kept(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_route, "SMALL", 0)
    begun = client.post("/api/runs", json={"kind": "sql", "text": "SELECT 1", "dataset": "shop"})
    assert begun.status_code == 202 and begun.headers["location"].endswith(begun.json()["id"])


@given(JSON)
def test_a_response_is_small_if_it_has_few_values_and_characters(content: Any) -> None:
    def size(value: Any) -> int:
        if isinstance(value, list):
            return 1 + sum(map(size, value))
        if isinstance(value, dict):
            return 1 + len(value) + sum(map(size, value.values()))
        return 1 + (len(value) >> 6 if isinstance(value, str) else 0)

    assert is_small(content) == (size(content) < json_route.SMALL)


def test_no_more_of_a_response_is_looked_at_than_it_takes() -> None:
    assert not is_small([0] * 1_000_000)
    assert not is_small("x" * 1_000_000)
    assert is_small([0] * 100)
