"""The hub: events by topic, live and past, in order, across processes; webhooks."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.patience import wait_until

from etude.agents import hub as hub_module
from etude.agents.agent_control import AgentControl
from etude.agents.hub import BUFFER_BYTES, BUFFER_SIZE, READ_BYTES, Hub, HubWaker
from etude.agents.kinds.webhook import sign_webhook_body, verify_signature
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Invalid
from etude.store.action import Finish
from etude.store.queue import Queue
from etude.store.topics import BOUNDS, READ_AGENT, Topics, topic_events_before_gap


@pytest.fixture
def hub(agents: AgentControl) -> Iterator[Hub]:
    with Hub(agents.queue) as hub:
        yield hub


def test_events_come_by_topic_and_agent(hub: Hub) -> None:
    everything = hub.subscribe()
    tests = hub.subscribe(["tests.*"])
    mine = hub.subscribe(agent="me")
    hub.publish("tests.completed", {"passed": 7})
    hub.publish("other", None, agent="me")
    assert [e.body for e in tests.read(timeout=90)] == [{"passed": 7}]
    wait_until(lambda: hub.at >= 2)
    assert [e.topic for e in everything.read()] == ["tests.completed", "other"]
    assert [e.topic for e in mine.read()] == ["other"]


def test_a_subscriber_continues_from_the_last_id(hub: Hub, agents: AgentControl) -> None:
    for n in range(3):
        hub.publish("n", n)
    wait_until(lambda: hub.at >= 3)
    subscription = hub.subscribe(after=0)
    first = subscription.read()
    assert [e.body for e in first] == [0, 1, 2]
    with Hub(agents.queue) as later:
        assert [e.body for e in later.subscribe(after=first[0].id).read()] == [1, 2]


def test_a_slow_subscriber_reads_from_the_store(hub: Hub, agents: AgentControl) -> None:
    slow = hub.subscribe(["n"])
    with agents.queue.transaction() as work:
        work.add_events([("main", None, "n", str(n)) for n in range(BUFFER_SIZE + 500)])
    wait_until(lambda: hub.at >= BUFFER_SIZE + 500)
    seen: list[int] = []
    while len(seen) < BUFFER_SIZE + 500:
        seen += [e.body for e in slow.read(timeout=90)]
    assert seen == list(range(BUFFER_SIZE + 500))


def test_the_history_of_one_agent_is_read_by_an_index(hub: Hub, agents: AgentControl) -> None:
    with agents.queue.transaction() as work:
        work.add_events([("main", f"a{n % 1000}", "n", str(n)) for n in range(BUFFER_SIZE + 3000)])
        work.add_events([("theirs", "a7", "n", "null")])
    wait_until(lambda: hub.at >= BUFFER_SIZE + 3001)
    subscription = hub.subscribe(agent="a7", after=0)
    assert [e.body for e in subscription.read() + subscription.read()] == list(range(7, BUFFER_SIZE + 3000, 1000))
    assert subscription.at == hub.at
    plan = "EXPLAIN " if agents.queue.store.dialect == "postgres" else "EXPLAIN QUERY PLAN "
    if agents.queue.store.dialect == "postgres":
        agents.queue.read("ANALYZE hub_events")
    for statement, values in ((READ_AGENT, ("main", "a7", 0, hub.at, 100)), (BOUNDS, ("main", "a7"))):
        assert "hub_events_by_agent" in str(agents.queue.read(plan + statement, *values))


def test_an_event_of_another_process_arrives(hub: Hub, open_app: Callable[[], App]) -> None:
    subscription = hub.subscribe()
    Topics(Queue(open_app().store)).publish("from.elsewhere", 1)
    assert [e.topic for e in subscription.read(timeout=90)] == ["from.elsewhere"]


def test_tenants_get_their_own_events(hub: Hub, app: App) -> None:
    ours, theirs = hub.subscribe(), hub.subscribe(tenant="theirs")
    Topics(Queue(app.store.scoped("theirs"))).publish("x", 1)
    assert [e.tenant for e in theirs.read(timeout=90)] == ["theirs"]
    assert ours.read() == []


def test_reading_stops_at_an_id_that_may_still_appear() -> None:
    def row(event_id: int, young: int) -> tuple[Any, ...]:
        return (event_id, "main", "t", None, "{}", 0.0, young)

    assert len(topic_events_before_gap([row(1, 1), row(2, 1), row(4, 1)], 0)) == 2
    assert len(topic_events_before_gap([row(1, 1), row(2, 1), row(4, 0)], 0)) == 3
    assert len(topic_events_before_gap([row(7, 1)], 5)) == 0


def test_a_missing_id_is_not_waited_for_after_the_clock_was_set_back(agents: AgentControl) -> None:
    topics = Topics(agents.queue)
    for n in range(3):
        topics.publish("n", n)
    with agents.queue.transaction() as work:
        work.do("DELETE FROM hub_events WHERE body = '1'")
        work.do("UPDATE hub_events SET created_at = created_at + 3600")
    assert [event.body for event in topics.read(0)] == [0, 2]


def test_an_invalid_topic_or_body_is_refused(hub: Hub) -> None:
    with pytest.raises(Invalid, match="not a valid topic"):
        hub.publish("What? *", 1)
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        hub.publish("x", object())


def test_verbs_and_steps_are_published_in_order(hub: Hub, agents: AgentControl, app: App) -> None:
    subscription = hub.subscribe(agent="e")
    with Worker(app, agents.queue):
        agents.create("echo", {"subject": "tea", "interval_s": 3600}, id="e")
        wait_until(lambda: len(agents.steps("e")) == 1)
        agents.destroy("e")
    seen = wait_until(lambda: (s := hub.subscribe(agent="e", after=0).read()) and len(s) == 3 and s)
    assert [e.topic for e in seen] == ["agent.created", "agent.step", "agent.destroyed"]
    assert seen[1].body["output"] == "1. tea: worth another look."
    assert [e.id for e in subscription.read()] == [e.id for e in seen]


class Receiver:
    """A server that accepts deliveries and can be made to fail."""

    def __init__(self) -> None:
        self.failing = 0
        self.paths: list[str] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.failing:
                    outer.failing -= 1
                    self.send_response(503)
                elif self.path == "/moved":
                    self.send_response(307)
                    self.send_header("Location", "/hook")
                else:
                    outer.paths.append(self.path)
                    outer.got.append((dict(self.headers), body))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    # A slow machine must not look like a refusal: the event would be sent again.
    monkeypatch.setattr("etude.agents.kinds.webhook.TIMEOUT_S", 90.0)
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_a_webhook_gets_its_events_signed_and_in_order(
    agents: AgentControl, app: App, hub: Hub, receiver: Receiver
) -> None:
    receiver.failing = 2
    with Worker(app, agents.queue):
        agents.create("webhook", {"url": receiver.url, "secret": "swordfish!", "topics": ["tests.*"]}, id="hook")
        for n in range(10):
            hub.publish("tests.completed", n)
            hub.publish("noise", n)
        wait_until(lambda: len(receiver.got) == 10)
    assert [json.loads(body)["body"] for _, body in receiver.got] == list(range(10))
    for headers, body in receiver.got:
        assert verify_signature("swordfish!", body, headers["X-Etude-Signature"])
        assert not verify_signature("another!!", body, headers["X-Etude-Signature"])
        assert headers["X-Etude-Event"] == str(json.loads(body)["id"]) and "tenant" not in json.loads(body)


def test_a_webhook_continues_after_a_restart(
    agents: AgentControl, open_app: Callable[[], App], hub: Hub, receiver: Receiver
) -> None:
    agents.create("webhook", {"url": receiver.url, "secret": "swordfish!", "topics": ["n"]}, id="hook")
    for life in range(2):
        hub.publish("n", life * 2)  # while no worker runs
        with Worker(open_app()):
            wait_until(lambda n=life: len(receiver.got) == 2 * n + 1)
            hub.publish("n", life * 2 + 1)
            wait_until(lambda n=life: len(receiver.got) == 2 * n + 2)
            # Only now is the delivery recorded; before, it would be sent again.
            wait_until(lambda: agents.get("hook").activity == "idle")
    assert [json.loads(body)["body"] for _, body in receiver.got] == [0, 1, 2, 3]


def test_an_old_or_malformed_signature_is_refused() -> None:
    assert not verify_signature("secret", b"x", sign_webhook_body("secret", b"x", 1))
    assert not verify_signature("secret", b"x", "nonsense")
    for odd in ("t=\u00b2,v1=x", f"t={'9' * 5000},v1=x", f"t={int(time.time())},v1=\u00e9\ud800"):
        assert not verify_signature("secret", b"x", odd)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "http://", "https://me:password@example.com/"])
def test_the_url_of_a_webhook_is_http_or_https(agents: AgentControl, url: str) -> None:
    with pytest.raises(Invalid, match="http or https"):
        agents.create("webhook", {"url": url, "secret": "swordfish!"})


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.2", "[::1]", "10.0.0.1"])
def test_a_webhook_to_a_private_address_is_refused(agents: AgentControl, app: App, hub: Hub, host: str) -> None:
    config = {"url": f"http://{host}/latest", "secret": "swordfish!", "topics": ["n"]}
    with Worker(app, agents.queue):
        agents.create("webhook", config, id="hook")
        hub.publish("n", 1)
        assert "not a public address" in wait_until(lambda: agents.get("hook").last_error)


def test_the_path_of_a_url_is_shown_to_no_reader(agents: AgentControl, app: App, hub: Hub) -> None:
    """Many receivers know their senders by a token in the URL. Nothing listens at this one."""
    config = {"url": "http://127.0.0.1:9/T0KEN?key=T0KEN", "secret": "swordfish!", "topics": ["n"]}
    with Worker(app, agents.queue):
        assert agents.create("webhook", config, id="hook").config["url"] == "http://127.0.0.1:9/***"
        hub.publish("n", 1)
        wait_until(lambda: "error" in (agents.get("hook").last_output or {}))
    assert "T0KEN" not in agents.get("hook").model_dump_json() + str(agents.steps("hook"))


def test_a_url_may_contain_any_character(agents: AgentControl, app: App, hub: Hub, receiver: Receiver) -> None:
    url = f"{receiver.url}/gr\u00f6\u00dfe/a%20b?x=\u00e4 y&z=1"
    agents.create("webhook", {"url": url, "secret": "swordfish!", "topics": ["n"]}, id="hook")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        wait_until(lambda: receiver.got)
    assert receiver.paths == ["/hook/gr%C3%B6%C3%9Fe/a%20b?x=%C3%A4%20y&z=1"]


def test_a_webhook_follows_no_redirect(agents: AgentControl, app: App, hub: Hub, receiver: Receiver) -> None:
    config = {"url": receiver.url.replace("/hook", "/moved"), "secret": "swordfish!", "topics": ["n"]}
    with Worker(app, agents.queue):
        agents.create("webhook", config, id="hook")
        hub.publish("n", 1)
        output = wait_until(lambda: (o := agents.get("hook").last_output) and "error" in o and o)
    assert "status 307" in output["error"] and not receiver.got


def test_a_receiver_that_never_finishes_times_out(
    agents: AgentControl, app: App, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agents.kinds.webhook.TIMEOUT_S", 0.5)
    left = threading.Event()

    def drip(listener: socket.socket) -> None:
        with listener, listener.accept()[0] as client, suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            while not left.wait(0.05):
                client.sendall(b"x")

    listener = socket.create_server(("127.0.0.1", 0))
    config = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}/", "secret": "swordfish!", "topics": ["n"]}
    dripping = threading.Thread(target=drip, args=(listener,))
    dripping.start()
    agents.create("webhook", config, id="hook")
    with Worker(app, agents.queue):
        hub.publish("n", 1)
        assert "did not accept event" in wait_until(lambda: (agents.get("hook").last_output or {}).get("error"))
    left.set()
    dripping.join()


def test_a_resumed_webhook_sends_the_events_it_missed(
    agents: AgentControl, app: App, hub: Hub, receiver: Receiver
) -> None:
    agents.create("webhook", {"url": receiver.url, "secret": "swordfish!", "topics": ["n"]}, id="hook")
    with Worker(app, agents.queue) as worker:
        wait_until(lambda: worker._waker._at is not None)
        for n, go_on in enumerate((agents.resume, agents.interrupt)):
            wait_until(lambda: agents.get("hook").activity == "idle")
            agents.pause("hook")
            hub.publish("n", n)
            # No active agent listens any more.
            wait_until(lambda: worker._waker._at is None and agents.get("hook").activity == "paused")
            go_on("hook")
            wait_until(lambda least=n + 1: len(receiver.got) == least)


def test_a_webhook_is_woken_even_if_another_is_destroyed_meanwhile(
    agents: AgentControl, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "there"):
        agents.create("webhook", {"url": "http://example.com/", "secret": "swordfish!", "topics": ["n"]}, id=name)
    agents.queue.turn([Finish(claim, "done") for claim in agents.queue.turn(claim=2).claimed])
    waker = HubWaker(agents.agent_store)
    listening = agents.agent_store.listening()
    agents.destroy("gone")
    monkeypatch.setattr(agents.agent_store, "listening", lambda: listening)
    waker.wake()
    assert agents.queue.read("SELECT count(*) FROM actions WHERE kind = 'message'") == [(1,)]


def test_an_agent_that_cannot_be_woken_keeps_none_of_another_tenant_asleep(
    app: App, agents: AgentControl, caplog: pytest.LogCaptureFixture
) -> None:
    """One tenant has used up its storage, and an agent of another has a configuration that no version wrote."""
    config = {"url": "http://example.com/", "secret": "swordfish!", "topics": ["n"]}
    for tenant in ("bad", "full", "usual"):
        AgentControl(app.store.scoped(tenant), agents.queue.of(tenant)).create("webhook", config, id="hook")
    claimed = agents.queue.turn(claim=3).claimed
    agents.queue.turn([Finish(claim, "done") for claim in claimed])
    with app.store._transaction() as execute:
        execute("UPDATE agents SET config = ? WHERE tenant = 'bad'", '{"topics": 7}')
    full = app.store.scoped("full")
    full.add_message(full.create_thread("long").id, "user", "x" * 100_000)
    app.store.limit_storage(lambda tenant: 50_000 if tenant == "full" else 0)
    waker = HubWaker(agents.agent_store)
    waker._at = Topics(agents.queue).last_settled()
    for tenant in ("bad", "full", "usual"):
        Topics(agents.queue.of(tenant)).publish("n", 1)
    for _ in range(2):
        waker.wake()
    woken = agents.queue.read("SELECT tenant FROM actions WHERE kind = 'message' ORDER BY tenant")
    assert woken == [("full",), ("usual",)]
    assert caplog.text.count("agent hook of tenant bad cannot be woken") == 1


@pytest.mark.parametrize("topics", [["n"] * 101, ["x" * 129], [""]])
def test_the_topics_of_an_agent_are_few_and_short(agents: AgentControl, topics: list[str]) -> None:
    with pytest.raises(Invalid, match="topics"):
        agents.create("webhook", {"url": "http://example.com/", "secret": "swordfish!", "topics": topics})


def test_the_patterns_of_one_tenant_keep_no_agent_of_another_asleep(app: App, agents: AgentControl) -> None:
    """The stored configurations have as many patterns as an older version took."""
    config = {"url": "http://example.com/", "secret": "swordfish!", "topics": ["n"]}
    many, usual = (AgentControl(app.store.scoped(name), agents.queue.of(name)) for name in ("many", "usual"))
    for n in range(20):
        many.create("webhook", config, id=f"hook{n}")
    usual.create("webhook", config, id="hook")
    agents.queue.turn([Finish(claim, "done") for claim in agents.queue.turn(claim=21).claimed])
    with app.store._transaction() as execute:
        for n in range(20):
            stored = json.dumps(config | {"topics": [f"{n}{i}{'*a' * 60}" for i in range(5000)]})
            execute("UPDATE agents SET config = ? WHERE tenant = 'many' AND id = ?", stored, f"hook{n}")
    waker = HubWaker(agents.agent_store)
    waker._at = Topics(agents.queue).last_settled()
    for n in range(300):
        Topics(agents.queue.of("many")).publish(f"{'a' * 100}{n}", n)
    Topics(agents.queue.of("usual")).publish("n", 1)
    started = time.monotonic()
    waker.wake()
    assert time.monotonic() - started < 20
    assert agents.queue.read("SELECT count(*) FROM actions WHERE kind = 'message' AND tenant = 'usual'") == [(1,)]


def test_a_webhook_with_a_queued_step_is_not_woken_again(agents: AgentControl, hub: Hub) -> None:
    agents.create("webhook", {"url": "http://example.com/", "secret": "swordfish!", "topics": ["n"]}, id="hook")
    waker = HubWaker(agents.agent_store)
    for n in range(3):
        hub.publish("n", n)
        waker.wake()
    assert agents.queue.read("SELECT kind FROM actions") == [("start",)]
    (claim,) = agents.queue.turn(claim=1).claimed
    for n in range(3):  # while it runs: it may have read the events already
        hub.publish("n", n)
        waker.wake()
    assert agents.queue.read("SELECT kind FROM actions ORDER BY seq") == [("start",), ("message",)]
    agents.queue.turn([Finish(claim, "done")])


@pytest.mark.parametrize("verb", ["interrupt", "reload"])
def test_events_wake_a_webhook_that_only_has_a_wake_queued(agents: AgentControl, hub: Hub, verb: str) -> None:
    """A `wake` does not always make a step, so it does not count as one that reads the events."""
    agents.create("webhook", {"url": "http://example.com/", "secret": "swordfish!", "topics": ["n"]}, id="hook")
    agents.queue.turn([Finish(claim, "done") for claim in agents.queue.turn(claim=1).claimed])
    waker = HubWaker(agents.agent_store)
    waker.wake()
    agents.queue.turn([Finish(claim, "done") for claim in agents.queue.turn(claim=1).claimed])
    getattr(agents, verb)("hook")
    hub.publish("n", 1)
    waker.wake()
    ready = "SELECT kind FROM actions WHERE state = 'ready' ORDER BY urgency"
    assert agents.queue.read(ready) == [("wake",), ("message",)]


def test_a_webhook_is_not_woken_by_its_own_failures(agents: AgentControl, app: App, hub: Hub) -> None:
    subscription = hub.subscribe()
    with Worker(app, agents.queue):
        agents.create("webhook", {"url": "http://10.0.0.1/", "secret": "swordfish!"}, id="hook")
        hub.publish("n", 1)
        wait_until(lambda: [s.outcome for s in agents.steps("hook")].count("error") >= 3)
        hub.publish("last", 1)
        topics: list[str] = []
        while "last" not in topics:
            topics += [event.topic for event in subscription.read(timeout=90)]
    assert topics == ["agent.created", "n", "last"]


def test_a_lone_surrogate_in_an_event_is_delivered_as_a_question_mark(
    agents: AgentControl, app: App, hub: Hub, receiver: Receiver
) -> None:
    subscription = hub.subscribe(["n"])
    agents.create("webhook", {"url": receiver.url, "secret": "swordfish!", "topics": ["n"]}, id="hook")
    with Worker(app, agents.queue):
        hub.publish("n", {"half \ud83d": "\ud83d"})
        hub.publish("n", "whole \U0001f600")
        wait_until(lambda: len(receiver.got) == 2)
    assert [json.loads(body)["body"] for _, body in receiver.got] == [{"half ?": "?"}, "whole \U0001f600"]
    read = subscription.read(timeout=90)
    while len(read) < 2:
        read += subscription.read(timeout=90)
    assert [json.loads(e.model_dump_json())["body"] for e in read] == [{"half ?": "?"}, "whole \U0001f600"]


def test_large_events_leave_the_buffer_and_pages_are_bounded(agents: AgentControl) -> None:
    with Hub(agents.queue) as hub:
        start = hub.at
        subscription = hub.subscribe(["big.*"], after=start)
        for _ in range(12):
            hub.publish("big.x", "x" * 1_000_000)
        hub.publish("big.y", [[]] * 9_000)
        assert hub.wait(start + 12, 20)
        assert sum(event.size for event in hub._buffer) == hub._buffer_bytes <= BUFFER_BYTES
        page, more = hub.topics.page("big.*", after=start, limit=1000)
        assert (len(page), more) == (1, True)
        seen: list[int] = []
        while more:
            page, more = hub.topics.page("big.*", after=seen[-1] if seen else start, limit=1000)
            seen += [event.id for event in page]
        assert len(seen) == 13
        assert hub.topics.list("big.*", limit=1000)[-1].topic == "big.y"
        read: list[int] = []
        while len(read) < 13 and (found := subscription.read(5)):
            assert len(found) == 1 or sum(event.size for event in found) <= READ_BYTES
            read += [event.id for event in found]
        assert read == seen


def test_the_buffer_is_bounded_in_bytes(agents: AgentControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "BUFFER_BYTES", 10_000)
    with Hub(agents.queue) as hub:
        start = hub.at
        subscription = hub.subscribe(["big.*"], after=start)
        for number in range(20):
            hub.publish("big.x", [number, "x" * 2_000])
        assert hub.wait(start + 19, 20)
        assert len(hub._buffer) < 5
        read: list[int] = []
        while len(read) < 20 and (found := subscription.read(5)):
            read += [event.body[0] for event in found]
        assert read == list(range(20))
