"""The bridge to a Redis, which is a real one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.redis_server import MISSING, PROGRAM, RedisServer

from etude.agents.control import Agents
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
    # One that stalls for a while has not failed to answer: what it was sent would be sent again.
    monkeypatch.setattr("etude.agents.kinds.redis.TIMEOUT_S", 90.0)
    monkeypatch.setitem(CLIENT_OPTIONS, "socket_timeout", 90.0)
    made = RedisServer(tmp_path)
    made.start()
    yield made
    made.close()


@pytest.fixture
def hub(agents: Agents) -> Iterator[Hub]:
    with Hub(agents.queue) as hub:
        yield hub


def error_of(agents: Agents, agent_id: str) -> str:
    return str((agents.get(agent_id).last_output or {}).get("error", ""))


def test_events_go_to_a_stream_in_order_also_after_the_redis_was_away(
    agents: Agents, app: App, hub: Hub, server: RedisServer
) -> None:
    agents.create("redis", {"url": server.url, "stream": "out", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", {"count": 0})
        hub.publish("other", 1)
        wait_until(lambda: len(server.entries("out")) == 1)
        # Only then has the bridge heard that it arrived: else it would send it again.
        wait_until(lambda: agents.get("bridge").activity == "idle")
        server.stop()
        hub.publish("n", {"count": 1})
        wait_until(lambda: "cannot be reached" in error_of(agents, "bridge"))
        server.start()
        hub.publish("n", {"count": 2})
        wait_until(lambda: len(server.entries("out")) == 3)
    told = server.entries("out")
    assert [json.loads(e["body"]) for e in told] == [{"count": n} for n in range(3)]
    assert {e["topic"] for e in told} == {"n"} and [int(e["id"]) for e in told] == sorted(int(e["id"]) for e in told)


def test_entries_of_a_stream_are_told_once_and_do_not_go_back(
    agents: Agents, app: App, hub: Hub, server: RedisServer
) -> None:
    place = hub.subscribe(["tests.*"])
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
        assert [e.body for e in place.read(timeout=90)] == [{"passed": 7}]
    assert agents.steps("bridge")[0].output["refused"] == len(odd) + 3
    with Worker(app, agents.queue):
        server.add("in", topic="tests.completed", body="8")
        assert [e.body for e in place.read(timeout=90)] == [8]
        hub.publish("last", None)
        wait_until(lambda: "last" in {e["topic"] for e in server.entries("out")})
    assert "tests.completed" not in {e["topic"] for e in server.entries("out")}


def test_a_long_stream_is_read_without_waiting(agents: Agents, app: App, hub: Hub, server: RedisServer) -> None:
    place, got = hub.subscribe(["n"]), list[Any]()
    for n in range(2 * BATCH + 1):
        server.add("in", topic="n", body=str(n))
    agents.create("redis", {"url": server.url, "listen_to": "in", "interval_s": 3600}, id="bridge")
    with Worker(app, agents.queue):
        while len(got) < 2 * BATCH + 1:
            got += [e.body for e in place.read(timeout=90)]
    assert got == list(range(2 * BATCH + 1))


def test_a_stream_that_cannot_be_read_is_looked_at_again(
    agents: Agents, app: App, hub: Hub, server: RedisServer
) -> None:
    place = hub.subscribe(["n"])
    server.client.set("in", "no stream")
    agents.create("redis", {"url": server.url, "listen_to": "in", "interval_s": 1}, id="bridge")
    with Worker(app, agents.queue):
        wait_until(lambda: "did not answer" in error_of(agents, "bridge"))
        server.client.delete("in")
        server.add("in", topic="n", body="1")
        assert [e.body for e in place.read(timeout=90)] == [1]


def test_a_redis_of_the_own_network_must_be_allowed(agents: Agents, app: App, hub: Hub) -> None:
    agents.create("redis", {"url": "redis://10.0.0.1:6379", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        assert "not a public address" in wait_until(lambda: agents.get("bridge").last_error)


def test_tls_is_spoken_where_it_is_asked_for(
    agents: Agents, app: App, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(90)
    # With a password, which is in a variable of the worker alone.
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
def test_a_url_that_cannot_be_used_is_refused(agents: Agents, url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        agents.create("redis", {"url": url})


def test_a_stream_is_not_written_and_listened_to(agents: Agents) -> None:
    with pytest.raises(Invalid, match="must be different streams"):
        agents.create("redis", {"url": "redis://example.com", "listen_to": "etude"})


def test_a_variable_must_hold_a_redis_too(agents: Agents, app: App, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_REDIS", "unix:///run/redis.sock")
    agents.create("redis", {"url": "env:THE_REDIS", "topics": ["n"]}, id="bridge")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        assert "redis or rediss" in wait_until(lambda: agents.get("bridge").last_error)
