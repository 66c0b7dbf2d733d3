"""The analyst: it works toward a goal in steps and collects its findings in a document."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until
from tests.relay import Relay, relay_to_postgres

from etude.agents.agent_control import AgentControl
from etude.agents.agent_kinds import check_agent_config
from etude.agents.kinds.analyst import AnalystAgent, AnalystConfig
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Invalid
from etude.events import RunQueued, RunStarted
from etude.ids import new_id
from etude.store.action import ATTEMPTS

COUNT = "SELECT count(*) AS n FROM stock"


@pytest.fixture
def stock(tmp_path: Path) -> str:
    path = tmp_path / "stock.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE stock (item TEXT, n REAL)")
        db.executemany("INSERT INTO stock VALUES (?, ?)", [("tea", 100), ("salt", 7), ("rice", 20)])
    db.close()
    return str(path)


def sql(query: str) -> dict[str, Any]:
    return {"calls": [{"name": "execute_sql", "arguments": {"dataset": "stock", "query": query}}]}


SCENES: list[dict[str, Any]] = [
    {"asked": "## Which item", "turns": [{"text": "DONE"}]},
    {"asked": "Guidance: look at salt", "turns": [{"text": "How much salt is there?"}]},
    {"asked": "## How many items", "turns": [{"text": "Which item has the most?\n\nThat one."}]},
    {"asked": "Decide what to find out next", "turns": [{"text": "How many items are there?"}]},
    {
        "asked": "Which item",
        "turns": [sql("SELECT item, n FROM stock ORDER BY n DESC LIMIT 1"), {"text": "It is tea, with 100."}],
    },
    {"asked": "How many items", "turns": [sql(COUNT), {"text": "There are 3 items."}]},
    {
        "asked": "Which year",
        "turns": [
            {"calls": [{"name": "ask_user", "arguments": {"question": "Which calendar?", "choices": ["a", "b"]}}]},
            {"text": "Then it is that one."},
        ],
    },
    {"asked": "be slow", "turns": [{"text": "word " * 2000, "pace_s": 0.05}]},
]


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "script.json").write_text(json.dumps(SCENES))
    return f"scripted:{tmp_path / 'script.json'}"


def done(agents: AgentControl, agent_id: str = "a") -> dict[str, Any]:
    """Wait until the agent is done, and return its state."""
    wait_until(lambda: agents.get(agent_id).activity == "done")
    return agents.state(agent_id)


def test_without_a_model_it_asks_the_given_questions(app: App, agents: AgentControl, stock: str) -> None:
    goal = f"1. how many stock\n\n- SQL: {COUNT}\nSQL: SELECT nothing FROM stock"
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": stock, "goal": goal}, id="a")
        memory = done(agents)
        assert (memory["asked"], memory["found"]) == (3, 2)
        headings = [line for line in memory["document"].splitlines() if line.startswith("## ")]
        assert headings == ["## how many stock", f"## SQL: {COUNT}", "## SQL: SELECT nothing FROM stock"]
        assert "| n |\n| --- |\n| 3 |" in memory["document"] and "Not answered: " in memory["document"]
        # An agent that is done accepts more questions.
        agents.wait(agents.message("a", "SQL: SELECT 41 + 1 AS answer"))
        assert "| 42 |" in done(agents)["document"]


def test_variables_survive_steps_and_restarts(app: App, agents: AgentControl, stock: str) -> None:
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": stock, "questions": ["PYTHON: x = 6", "PYTHON: x * 7"]}, id="a")
        assert "\n42\n" in done(agents)["document"]
    app.session_pool.close()  # as another process would begin
    with Worker(app, agents.queue):
        agents.wait(agents.message("a", "PYTHON: x + 1"))
        assert agents.state("a")["document"].endswith("\n7\n")


def test_a_model_decides_what_to_ask_until_it_is_done(app: App, agents: AgentControl, stock: str, model: str) -> None:
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": stock, "goal": "Know the stock.", "model": model}, id="a")
        memory = done(agents)
    assert (memory["asked"], memory["found"]) == (2, 2)
    assert memory["document"].startswith("# Know the stock.\n\n## How many items are there?\n\nThere are 3 items.\n")
    assert "## Which item has the most?\n\nIt is tea, with 100.\n\n| item | n |" in memory["document"]
    assert [list(s.output)[-1] for s in agents.steps("a")] == ["next", "ok", "next", "ok", "done", "done"]
    info = agents.get("a")
    assert info.tokens > 0 and info.thread_id is not None
    # Its own thread holds the questions; the runs that chose them are in no thread.
    assert [m.text for m in app.store.messages(info.thread_id) if m.role == "user"] == [
        "How many items are there?",
        "Which item has the most?",
    ]
    assert len(app.store.threads().items) == 1


def test_its_own_questions_have_a_limit(app: App, agents: AgentControl, stock: str, model: str) -> None:
    config = {"source": stock, "goal": "Know the stock.", "model": model, "max_steps": 1}
    with Worker(app, agents.queue):
        agents.create("analyst", config, id="a")
        assert done(agents)["asked"] == 1


def test_guidance_reaches_the_next_question(app: App, agents: AgentControl, stock: str, model: str) -> None:
    agents.create("analyst", {"source": stock, "goal": "Know the stock.", "model": model, "max_steps": 1}, id="a")
    agents.steer("a", "look at salt")
    agents.steer("a", {"goal": "Know the salt."})
    with Worker(app, agents.queue):
        memory = done(agents)
    assert memory["goal"] == "Know the salt." and "## How much salt is there?" in memory["document"]


def test_an_interrupt_ends_the_run_and_asks_something_else(
    app: App, agents: AgentControl, stock: str, model: str
) -> None:
    config = {"source": stock, "questions": ["be slow"], "model": model, "goal": "x", "max_steps": 1}
    with Worker(app, agents.queue):
        agents.create("analyst", config, id="a")
        run = wait_until(lambda: next((r for r in app.store.runs().items if r.status == "running"), None))
        agents.interrupt("a", {"question": f"SQL: {COUNT}"})
        wait_until(lambda: "| 3 |" in agents.state("a").get("document", ""))
        assert app.store.run(run.id).status == "cancelled"
        agents.destroy("a", grace=0)
        wait_until(lambda: agents.get("a").status == "destroyed")


def test_a_message_answers_the_question_of_a_run(app: App, agents: AgentControl, stock: str, model: str) -> None:
    config = {"source": stock, "questions": ["Which year is it?"], "model": model, "max_steps": 1}
    with Worker(app, agents.queue):
        agents.create("analyst", config, id="a")
        wait_until(lambda: agents.get("a").activity == "idle")
        assert agents.get("a").last_output["question"] == "Which calendar?"
        agents.interrupt("a")
        agents.message("a", "b")
        assert "## Which year is it?\n\nThen it is that one.\n" in done(agents)["document"]


def test_a_run_left_by_a_crash_is_resumed(
    open_app: Callable[[], App], app: App, agents: AgentControl, stock: str
) -> None:
    question = "how many stock"
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": stock, "questions": ["PYTHON: 1"]}, id="a")
        done(agents)
    thread_id = agents.get("a").thread_id
    queued = RunQueued(kind="ask", text=question, source="stock", location=stock, thread_id=thread_id, model="offline")
    gone = open_app()
    run_id = new_id("run")
    gone.store.append(run_id, queued, RunStarted(worker=gone.store.worker_id), expect=0)
    gone.close()
    with Worker(app, agents.queue):
        agents.wait(agents.message("a", question))
    assert agents.steps("a")[2].output["run_id"] == run_id
    assert app.store.run(run_id).status == "succeeded"


def test_a_cell_whose_answer_was_not_recorded_does_not_run_twice(app: App, agents: AgentControl, stock: str) -> None:
    cell = "PYTHON: x.append(len(x) + 1)\nx"
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": stock, "questions": ["PYTHON: x = [1]"]}, id="a")
        done(agents)
    # The step that asked this crashed right after.
    lost = app.ask(stock, cell, thread_id=agents.get("a").thread_id)
    assert lost.text.strip() == "[1, 2]"
    with Worker(app, agents.queue):
        for expected in ("[1, 2]", "[1, 2, 3]"):
            agents.wait(agents.message("a", cell))
            wait_until(lambda: agents.get("a").activity == "done")
            assert agents.state("a")["document"].rstrip().endswith(expected)


def test_it_needs_a_goal_or_questions(agents: AgentControl) -> None:
    with pytest.raises(Invalid, match="give `goal` or `questions`"):
        agents.create("analyst", {"source": "x", "goal": "  "})


@pytest.fixture
def served_stock(postgres_server: Callable[[], str]) -> Iterator[tuple[Relay, str]]:
    """A table in Postgres, behind a relay that can fail."""
    url = postgres_server()
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE stock AS SELECT 'tea' AS item, n FROM generate_series(1, 3) n")
    with relay_to_postgres(url) as relayed:
        yield relayed


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("asked", [f"SQL: {COUNT}", f"PYTHON: db.sql('{COUNT}').rows()", "how many stock"])
def test_an_outage_of_the_source_is_retried_and_is_not_an_answer(
    app: App, agents: AgentControl, served_stock: tuple[Relay, str], asked: str
) -> None:
    relay, url = served_stock
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": url, "questions": [f"SQL: {COUNT}"]}, id="a")
        done(agents)
        relay.down()
        agents.message("a", asked)
        # More attempts than an action has of its own.
        wait_until(lambda: agents.get("a").step_no >= 2 + ATTEMPTS + 2)
        relay.up()
        memory = done(agents)
    steps = agents.steps("a", limit=1000)
    failed = [s for s in steps if s.outcome == "error"]
    assert len(failed) >= ATTEMPTS + 1 and all("cannot be reached" in (s.error or "") for s in failed)
    assert "Not answered" not in memory["document"]
    assert (memory["asked"], memory["found"]) == (2, 2)
    assert "3" in memory["document"].rpartition("##")[2]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_file_that_is_gone_for_a_while_is_not_an_answer(app: App, agents: AgentControl, stock: str) -> None:
    with Worker(app, agents.queue):
        agents.create("analyst", {"source": stock, "questions": [f"SQL: {COUNT}"]}, id="a")
        done(agents)
        away = Path(stock).rename(f"{stock}.away")
        agents.message("a", f"SQL: {COUNT} WHERE n > 8")
        wait_until(lambda: agents.get("a").step_no >= 2 + ATTEMPTS + 1)
        away.rename(stock)
        assert done(agents)["document"].rstrip().endswith("| 2 |")
    assert "Not answered" not in agents.state("a")["document"]


def test_the_marks_of_a_list_are_removed_in_linear_time() -> None:
    goal = "x" + " " * 19_000 + "y\n  1) how many\n- sales - returns"
    agent = AnalystAgent(AnalystConfig(source="shop", goal=goal))
    before = time.thread_time()
    ahead = agent._begin()["ahead"]
    assert time.thread_time() - before < 0.5
    assert ahead[1:] == ["how many", "sales - returns"]


def test_a_configuration_has_a_limit() -> None:
    for config in ({"goal": "x" * 20_001}, {"questions": ["x" * 1000] * 300}):
        with pytest.raises(Invalid):
            check_agent_config("analyst", {"source": "shop"} | config)
