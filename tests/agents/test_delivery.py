"""A custom kind that delivers events: woken by them, in order for each agent, none left out."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from tests.patience import wait_until

from etude import plugins
from etude.agents.agent_control import AgentControl
from etude.agents.base import StepContext
from etude.agents.delivery import DOWN, Delivery, DeliveryConfig
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Unavailable
from etude.store.topics import HubEvent


class Receiver(Delivery[DeliveryConfig]):
    """Accepts events, except those that a test refuses or pauses at."""

    Config = DeliveryConfig
    tried: ClassVar[list[Any]] = []
    got: ClassVar[list[Any]] = []
    refused: ClassVar[set[str | None]] = set()
    """Agents whose events are refused."""
    first_attempts_fail: ClassVar[bool] = False
    pause_at: ClassVar[Any] = None

    def deliver(self, ctx: StepContext, event: HubEvent) -> None:
        retried = event.body in self.tried
        self.tried.append(event.body)
        if event.agent in self.refused or (self.first_attempts_fail and not retried):
            raise Unavailable("Not now.")
        if event.body == self.pause_at:
            type(self).pause_at = None
            ctx.app.agents.pause(ctx.agent_id, "now")
            ctx.sleep(90)
        self.got.append(event.body)


@pytest.fixture(autouse=True)
def receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins.BUILT_IN["agent"], "receiver", f"{__name__}:Receiver")
    for name, value in (("tried", []), ("got", []), ("refused", set()), ("first_attempts_fail", False)):
        monkeypatch.setattr(Receiver, name, value)


@pytest.fixture
def long_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come only if a test asks for them."""
    monkeypatch.setattr("etude.agents.delivery.action_backoff", lambda failures: 3600.0)
    monkeypatch.setattr("etude.agents.delivery.LONGEST_BACKOFF_S", 3600.0)


def settle(agents: AgentControl, hub: Hub, worker: Worker) -> int:
    """Wait until the worker has read all events and the agent has no step to make; return its number of steps."""

    def is_settled() -> bool:
        (_, last), *_ = agents.queue.read("SELECT 0, max(id) FROM hub_events")
        return worker._waker._at == last and agents.get("r").activity in ("idle", "waiting")

    wait_until(is_settled)
    return agents.get("r").step_no


def test_events_of_the_topics_arrive_in_order_if_each_is_late(agents: AgentControl, app: App) -> None:
    Receiver.first_attempts_fail = True
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        for n in range(3):
            hub.publish("n", n)
            hub.publish("noise", n)
        wait_until(lambda: Receiver.got == [0, 1, 2])
        wait_until(lambda: agents.get("r").activity == "idle")
        hub.publish("n", 3)
        wait_until(lambda: Receiver.got == [0, 1, 2, 3])


def test_an_event_that_fails_delays_only_events_of_the_same_agent(
    agents: AgentControl, app: App, long_backoff: None
) -> None:
    Receiver.refused = {"bad"}
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub, Worker(app, agents.queue) as worker:
        for n, agent in enumerate(["bad", "good", "bad", None, "good"]):
            hub.publish("n", n, agent=agent)
        wait_until(lambda: Receiver.got == [1, 3, 4])
        settle(agents, hub, worker)
        hub.publish("n", 5, agent="good")
        wait_until(lambda: Receiver.got == [1, 3, 4, 5])
        assert Receiver.tried.count(0) == 1 and 2 not in Receiver.tried
        Receiver.refused.clear()
        agents.interrupt("r", "try again")
        wait_until(lambda: Receiver.got == [1, 3, 4, 5, 0, 2])
        settle(agents, hub, worker)
        assert agents.get("r").activity == "idle" and agents.get("r").last_output == {"sent": 0, "lost": 0}


def test_events_of_a_held_agent_make_no_step_before_the_retry(
    agents: AgentControl, app: App, long_backoff: None
) -> None:
    Receiver.refused = {"bad"}
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub, Worker(app, agents.queue) as worker:
        hub.publish("n", 0, agent="bad")
        wait_until(lambda: agents.get("r").last_output == {"sent": 0, "lost": 0, "error": "Not now."})
        before = settle(agents, hub, worker)
        for n in range(1, 20):
            hub.publish("n", n, agent="bad")
            assert settle(agents, hub, worker) == before
    assert Receiver.tried == [0]


def test_a_receiver_that_is_down_is_tried_with_one_event_at_a_time(
    agents: AgentControl, app: App, long_backoff: None
) -> None:
    names = [f"a{n}" for n in range(10)]
    Receiver.refused = set(names)
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub, Worker(app, agents.queue) as worker:
        for name in names[:-1]:
            hub.publish("n", f"{name}.0", agent=name)
        wait_until(lambda: len(Receiver.tried) == DOWN)
        before = settle(agents, hub, worker)
        for name in names:
            hub.publish("n", f"{name}.1", agent=name)
        assert settle(agents, hub, worker) == before, "no event wakes it"
        agents.interrupt("r", "try again")
        wait_until(lambda: agents.get("r").step_no > before)
        assert len(Receiver.tried) == DOWN + 1
        Receiver.refused.clear()
        agents.interrupt("r", "try again")
        wait_until(lambda: len(Receiver.got) == 2 * len(names) - 1)
    for name in names[:-1]:
        assert [body for body in Receiver.got if body.startswith(name)] == [f"{name}.0", f"{name}.1"]


def test_events_that_never_arrive_are_given_up_and_counted(
    agents: AgentControl, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    Receiver.refused = {None}
    monkeypatch.setattr("etude.agents.delivery.GIVE_UP_S", 0.0)
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        hub.publish("n", 1)
        hub.publish("n", 2)
        wait_until(lambda: (agents.get("r").last_output or {}).get("lost") == 2)
    assert Receiver.got == []


def test_events_delivered_before_an_interruption_are_not_delivered_again(agents: AgentControl, app: App) -> None:
    Receiver.pause_at = 3
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub:
        for n in range(6):
            hub.publish("n", n)
        with Worker(app, agents.queue):
            wait_until(lambda: agents.get("r").activity == "paused")
            assert Receiver.got == [0, 1, 2]
            agents.resume("r")
            wait_until(lambda: Receiver.got == [0, 1, 2, 3, 4, 5])


def test_many_events_are_delivered_in_several_steps(
    agents: AgentControl, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agents.delivery.BATCH", 10)
    agents.create("receiver", {"topics": ["n"]}, id="r")
    with Hub(agents.queue) as hub:
        for n in range(35):
            hub.publish("n", n)
    with Worker(app, agents.queue):
        wait_until(lambda: len(Receiver.got) == 35)
        wait_until(lambda: agents.get("r").activity == "idle")
    assert Receiver.got == list(range(35))
    assert max(step.output["sent"] for step in agents.steps("r")) == 10
