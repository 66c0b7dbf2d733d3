"""The echo: the smallest agent."""

from __future__ import annotations

from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.worker import Worker
from etude.app import App


def test_it_comments_every_interval(app: App, agents: AgentControl) -> None:
    with Worker(app, agents.queue):
        agents.create("echo", {"subject": "rain", "interval_s": 1}, id="e")
        wait_until(lambda: agents.get("e").step_no >= 3)
    assert [s.output for s in agents.steps("e", limit=2)] == [
        "1. rain: worth another look.",
        "2. rain: worth another look.",
    ]


def test_guidance_changes_the_subject(app: App, agents: AgentControl) -> None:
    with Worker(app, agents.queue):
        agents.create("echo", {"subject": "rain", "interval_s": 3600}, id="e")
        wait_until(lambda: agents.get("e").step_no == 1)
        agents.interrupt("e", {"subject": "snow"})
        wait_until(lambda: agents.get("e").step_no == 2)
        agents.wait(agents.message("e", "hail"))
    assert [s.output.split(":")[0] for s in agents.steps("e")] == ["1. rain", "2. snow", "3. hail"]
    assert agents.get("e").activity == "waiting"
