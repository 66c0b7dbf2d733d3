"""A kind of one's own that passes events on: woken by them, in order, none left out."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from tests.patience import wait_until

from etude import plugins
from etude.agents.base import StepContext
from etude.agents.control import Agents
from etude.agents.delivery import Delivery, DeliveryConfig
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Unavailable
from etude.store.topics import HubEvent


class Shelf(Delivery[DeliveryConfig]):
    """Takes events in, but each only at the second try."""

    Config = DeliveryConfig
    tried: ClassVar[list[Any]] = []
    got: ClassVar[list[Any]] = []

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        if event.body not in self.tried:
            self.tried.append(event.body)
            raise Unavailable("Not now.")
        self.got.append(event.body)


@pytest.fixture(autouse=True)
def catalog_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins.BUILT_IN["agent"], "shelf", f"{__name__}:Shelf")
    monkeypatch.setattr(Shelf, "tried", [])
    monkeypatch.setattr(Shelf, "got", [])


def test_events_of_the_topics_arrive_in_order_though_each_is_late(agents: Agents, app: App) -> None:
    agents.create("shelf", {"topics": ["n"]}, id="shelf")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        for n in range(3):
            hub.publish("n", n)
            hub.publish("noise", n)
        wait_until(lambda: Shelf.got == [0, 1, 2])
        wait_until(lambda: agents.get("shelf").activity == "idle")
        hub.publish("n", 3)
        wait_until(lambda: Shelf.got == [0, 1, 2, 3])


def test_whoever_takes_nothing_is_not_tried_for_each_event(
    agents: Agents, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agents.delivery.backoff", lambda failures: 3600.0)
    monkeypatch.setattr(Shelf, "tried", tried := [])
    monkeypatch.setattr(Shelf, "deliver", lambda self, ctx, event: (tried.append(event.body), fail())[1])
    agents.create("shelf", {"topics": ["n"]}, id="shelf")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        for n in range(3):
            before = agents.get("shelf").step_no
            hub.publish("n", n)
            wait_until(lambda: agents.get("shelf").step_no > before)  # noqa: B023 - it is called at once
        assert tried == [0]
        assert agents.get("shelf").last_output == {"sent": 0, "lost": 0, "error": "Not now."}
        agents.interrupt("shelf", "try again")
        wait_until(lambda: tried == [0, 0])


def fail() -> None:
    raise Unavailable("Not now.")


def test_what_never_arrives_is_given_up_and_counted(agents: Agents, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.agents.delivery.GIVE_UP_S", 0.0)
    agents.create("shelf", {"topics": ["n"]}, id="shelf")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        hub.publish("n", 1)
        hub.publish("n", 2)
        wait_until(lambda: (agents.get("shelf").last_output or {}).get("lost") == 2)
    assert Shelf.got == []


class Desk(Delivery[DeliveryConfig]):
    """Takes events in, until one of them has it stopped."""

    Config = DeliveryConfig
    got: ClassVar[list[Any]] = []
    stop_at: ClassVar[int | None] = None

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        if event.body == self.stop_at:
            type(self).stop_at = None
            ctx.app.agents.pause(ctx.agent_id, "now")
            ctx.sleep(90)
        self.got.append(event.body)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins.BUILT_IN["agent"], "desk", f"{__name__}:Desk")
    monkeypatch.setattr(Desk, "got", [])


def test_what_arrived_before_it_was_stopped_does_not_arrive_again(agents: Agents, app: App, runs: None) -> None:
    Desk.stop_at = 3
    agents.create("desk", {"topics": ["n"]}, id="desk")
    with Hub(agents.queue) as hub:
        for n in range(6):
            hub.publish("n", n)
        with Worker(app, agents.queue):
            wait_until(lambda: agents.get("desk").activity == "paused")
            assert Desk.got == [0, 1, 2]
            agents.resume("desk")
            wait_until(lambda: Desk.got == [0, 1, 2, 3, 4, 5])


def test_much_is_delivered_in_several_steps(
    agents: Agents, app: App, runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agents.delivery.AT_ONCE", 10)
    agents.create("desk", {"topics": ["n"]}, id="desk")
    with Hub(agents.queue) as hub:
        for n in range(35):
            hub.publish("n", n)
    with Worker(app, agents.queue):
        wait_until(lambda: len(Desk.got) == 35)
        wait_until(lambda: agents.get("desk").activity == "idle")
    assert Desk.got == list(range(35))
    assert max(step.output["sent"] for step in agents.steps("desk")) == 10
