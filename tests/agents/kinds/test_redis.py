"""The bridge to Redis, against a real server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.redis_server import MISSING, PROGRAM, RedisServer

from etude.agents.agent_control import AgentControl
from etude.agents.delivery import BATCH
from etude.agents.hub import Hub
from etude.agents.kinds.redis import CLIENT_OPTIONS
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Invalid

if PROGRAM is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    # A slow machine must not look like a timeout: events would be sent again.
    monkeypatch.setattr("etude.agents.kinds.redis.TIMEOUT_S", 90.0)
    monkeypatch.setitem(CLIENT_OPTIONS, "socket_timeout", 90.0)
    made = RedisServer(tmp_path)
    made.start()
    yield made
    made.close()


@pytest.fixture
def hub(agents: AgentControl) -> Iterator[Hub]:
    with Hub(agents.queue) as hub:
        yield hub


def error_of(agents: AgentControl, agent_id: str) -> str:
    return str((agents.get(agent_id).last_output or {}).get("error", ""))


def test_events_go_to_a_stream_in_order_even_after_redis_was_down(
    agents: AgentControl, app: App, hub: Hub, server: RedisServer
) -> None:
    agents.create("redis", {"url": server.url, "stream": "out", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", {"count": 0})
        hub.publish("other", 1)
        wait_until(lambda: len(server.entries("out")) == 1)
        # Only now is the delivery recorded; before, it would be sent again.
        wait_until(lambda: agents.get("bridge").activity == "idle")
        server.stop()
        hub.publish("n", {"count": 1})
        wait_until(lambda: "cannot be reached" in error_of(agents, "bridge"))
        server.start()
        hub.publish("n", {"count": 2})
        wait_until(lambda: len(server.entries("out")) == 3)
    events = server.entries("out")
    assert [json.loads(e["body"]) for e in events] == [{"count": n} for n in range(3)]
    assert {e["topic"] for e in events} == {"n"} and [int(e["id"]) for e in events] == sorted(
        int(e["id"]) for e in events
    )


def test_entries_of_a_stream_are_published_once_and_not_sent_back(
    agents: AgentControl, app: App, hub: Hub, server: RedisServer
) -> None:
    subscription = hub.subscribe(["tests.*"])
    odd = ("no JSON", "NaN", "[" * 200_000, json.dumps("x" * (1 << 20)))
    for body in odd:
        server.add("in", topic="tests.completed", body=body)
    server.client.xadd("in", {"topic": b"\xff", "body": b"1"})  # type: ignore[dict-item]
    server.add("in", topic="NOT A TOPIC", body="1")
    server.add("in", body="1")
    server.add("in", topic="tests.completed", body='{"passed": 7}')
    config = {"url": server.url, "stream": "out", "listen_to": "in", "interval_s": 1}
    agents.create("redis", config, id="bridge")
    with Worker(app, agents.queue):
        assert [e.body for e in subscription.read(timeout=90)] == [{"passed": 7}]
    assert agents.steps("bridge")[0].output["refused"] == len(odd) + 3
    with Worker(app, agents.queue):
        server.add("in", topic="tests.completed", body="8")
        assert [e.body for e in subscription.read(timeout=90)] == [8]
        hub.publish("last", None)
        wait_until(lambda: "last" in {e["topic"] for e in server.entries("out")})
    assert "tests.completed" not in {e["topic"] for e in server.entries("out")}


def test_a_long_stream_is_read_without_waiting(agents: AgentControl, app: App, hub: Hub, server: RedisServer) -> None:
    subscription, got = hub.subscribe(["n"]), list[Any]()
    for n in range(2 * BATCH + 1):
        server.add("in", topic="n", body=str(n))
    agents.create("redis", {"url": server.url, "listen_to": "in", "interval_s": 3600}, id="bridge")
    with Worker(app, agents.queue):
        while len(got) < 2 * BATCH + 1:
            got += [e.body for e in subscription.read(timeout=90)]
    assert got == list(range(2 * BATCH + 1))


def test_a_stream_that_cannot_be_read_is_retried(agents: AgentControl, app: App, hub: Hub, server: RedisServer) -> None:
    subscription = hub.subscribe(["n"])
    server.client.set("in", "no stream")
    agents.create("redis", {"url": server.url, "listen_to": "in", "interval_s": 1}, id="bridge")
    with Worker(app, agents.queue):
        wait_until(lambda: "did not answer" in error_of(agents, "bridge"))
        server.client.delete("in")
        server.add("in", topic="n", body="1")
        assert [e.body for e in subscription.read(timeout=90)] == [1]


def test_a_redis_at_a_private_address_must_be_allowed(agents: AgentControl, app: App, hub: Hub) -> None:
    agents.create("redis", {"url": "redis://10.0.0.1:6379", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        assert "not a public address" in wait_until(lambda: agents.get("bridge").last_error)


def test_a_rediss_url_uses_tls(agents: AgentControl, app: App, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(90)
    # The URL has a password, so it is in a variable of the worker.
    monkeypatch.setenv("THE_REDIS", f"rediss://:swordfish@127.0.0.1:{listener.getsockname()[1]}")
    agents.create("redis", {"url": "env:THE_REDIS", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        with listener.accept()[0] as client:
            listener.close()
            assert client.recv(1) == b"\x16"  # a handshake
        wait_until(lambda: error_of(agents, "bridge"))
    assert "swordfish" not in agents.get("bridge").model_dump_json()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com", "redis or rediss"),
        ("unix:///run/redis.sock", "redis or rediss"),
        ("redis://:swordfish@example.com", "env:NAME"),
    ],
)
def test_an_invalid_url_is_refused(agents: AgentControl, url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        agents.create("redis", {"url": url})


def test_the_two_streams_must_differ(agents: AgentControl) -> None:
    with pytest.raises(Invalid, match="must be different streams"):
        agents.create("redis", {"url": "redis://example.com", "listen_to": "etude"})


def test_the_url_in_a_variable_is_checked_too(
    agents: AgentControl, app: App, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_REDIS", "unix:///run/redis.sock")
    agents.create("redis", {"url": "env:THE_REDIS", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        assert "redis or rediss" in wait_until(lambda: agents.get("bridge").last_error)
