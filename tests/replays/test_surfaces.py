"""Every surface and agent replays, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.api.conftest import open_app
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.worker import Worker
from etude.api.server import create_app
from etude.app import App
from etude.mcp_server.caller import McpCaller
from etude.mcp_server.run_tools import ask as ask_by_mcp
from etude.sample import write_shop
from etude.store.queue import Queue

ASKED = "how many orders are there?"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    write_shop(tmp_path / "shop")
    with open_app(tmp_path / "home", tmp_path / "shop", replay="on") as opened:
        yield opened


def test_http_says_that_an_answer_was_replayed_and_counts_it(app: App) -> None:
    with TestClient(create_app(app), base_url="http://localhost") as client:
        first = client.post("/chat", json={"message": ASKED, "dataset": "shop"}).json()
        app.scripts.settle()
        second = client.post("/chat", json={"message": ASKED, "dataset": "shop"}).json()
        body = {"model": "etude/shop", "messages": [{"role": "user", "content": ASKED}]}
        third = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        client.post("/chat", json={"message": "how many orders, once more?", "dataset": "shop"})
        metrics = client.get("/metrics").text
    assert not first.get("replayed") and second["replayed"].startswith("Answered by replaying run_")
    assert second["replay"]["level"] == "replay" and second["replay"]["tokens_saved"] > 0
    assert "Answered by replaying run_" in third.splitlines()[-1]
    assert 'etude_replays_total{cause="",level="replay"} 2.0' in metrics
    assert 'etude_replays_total{cause="no script"' in metrics
    saved = next(line for line in metrics.splitlines() if line.startswith("etude_replay_tokens_saved_total "))
    assert float(saved.split()[1]) == 2 * second["replay"]["tokens_saved"]


def test_mcp_says_that_an_answer_was_replayed(app: App) -> None:
    app.ask("shop", ASKED)
    app.scripts.settle()
    answer = ask_by_mcp(McpCaller(app, lambda _: None), ASKED, wait_s=300)  # type: ignore[arg-type, return-value]
    assert answer.replayed is not None and answer.replayed.startswith("Answered by replaying run_")


@pytest.fixture
def agents(app: App) -> Iterator[AgentControl]:
    queue = Queue(app.store)
    yield AgentControl(app.store, queue)
    queue.close()


def test_a_watch_asks_no_model_from_its_second_look_on(app: App, agents: AgentControl) -> None:
    with Worker(app, agents.queue):
        config = {"source": "shop", "question": ASKED, "model": app.settings.model, "every_s": 3600}
        agents.create("watch", config, id="w")
        wait_until(lambda: agents.get("w").step_no == 1)
        app.scripts.settle()
        agents.wait(agents.message("w", "look"))
        step = agents.steps("w", limit=100)[-1]
        assert step.output["replayed"].startswith("Answered by replaying run_")
        assert step.output["answer"] == agents.steps("w", limit=100)[0].output["answer"]


def test_an_analyst_replays_the_questions_of_an_earlier_one(app: App, agents: AgentControl) -> None:
    config = {"source": "shop", "questions": [ASKED], "goal": "Know the orders.", "max_steps": 1}
    with Worker(app, agents.queue):
        for name in ("one", "two"):
            agents.create("analyst", config | {"model": app.settings.model}, id=name)
            wait_until(lambda name=name: agents.get(name).activity in ("done", "failed"))
            app.scripts.settle()
    outputs = {
        name: next(s.output for s in agents.steps(name, limit=100) if s.output.get("ok")) for name in ("one", "two")
    }
    assert "replayed" not in outputs["one"]
    assert outputs["two"]["replayed"].startswith("Answered by replaying run_")
    assert outputs["two"]["answer"] == outputs["one"]["answer"]
    assert sum(s.tokens for s in agents.steps("two", limit=100) if s.output.get("ok")) == 0
