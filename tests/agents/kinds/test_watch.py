"""The watch: it reports when an answer has changed enough."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.app import App
from etude.errors import Invalid


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(tmp_path / "stock.sqlite", isolation_level=None)
    db.execute("CREATE TABLE stock (item TEXT, n REAL)")
    db.execute("INSERT INTO stock VALUES ('tea', 100)")
    yield db
    db.close()


def config(tmp_path: Path, **more: Any) -> dict[str, Any]:
    given = {"source": str(tmp_path / "stock.sqlite"), "sql": "SELECT sum(n) FROM stock", "every_s": 3600}
    return given | more


def look(agents: AgentControl) -> dict[str, Any]:
    agents.wait(agents.message("w", "look"))
    output: dict[str, Any] = agents.steps("w", limit=1000)[-1].output
    return output


def test_it_reports_a_change_beyond_the_threshold(
    app: App, agents: AgentControl, tmp_path: Path, stock: sqlite3.Connection
) -> None:
    with Hub(agents.queue) as hub, Worker(app, agents.queue):
        events = hub.subscribe(["watch.*"])
        agents.create("watch", config(tmp_path, threshold=10), id="w")
        wait_until(lambda: agents.get("w").step_no == 1)
        assert agents.get("w").last_output == {"answer": [[100.0]], "changed": False}
        stock.execute("UPDATE stock SET n = 108")
        assert look(agents) == {"answer": [[108.0]], "changed": False}
        # Small changes add up: the answer is compared with the last one reported.
        stock.execute("UPDATE stock SET n = 112")
        assert look(agents) == {"answer": [[112.0]], "changed": True, "was": [[100.0]]}
        assert [e.body for e in events.read(timeout=90)] == [{"was": [[100.0]], "now": [[112.0]]}]
        assert look(agents)["changed"] is False
    assert agents.get("w").activity == "waiting"


def test_a_plan_can_be_watched_with_a_relative_threshold(
    app: App, agents: AgentControl, tmp_path: Path, stock: sqlite3.Connection
) -> None:
    plan = {"from": "stock", "select": ["item", "n"]}
    with Worker(app, agents.queue):
        agents.create("watch", config(tmp_path, sql="", plan=plan, relative=0.5), id="w")
        wait_until(lambda: agents.get("w").step_no == 1)
        stock.execute("UPDATE stock SET n = 149")
        assert look(agents)["changed"] is False
        stock.execute("INSERT INTO stock VALUES ('salt', 1)")
        assert look(agents)["changed"] is True


def test_a_question_in_words_can_be_watched(
    app: App, agents: AgentControl, tmp_path: Path, stock: sqlite3.Connection
) -> None:
    with Worker(app, agents.queue):
        agents.create("watch", config(tmp_path, sql="", question="how many stock"), id="w")
        wait_until(lambda: agents.get("w").step_no == 1)
        assert agents.get("w").last_output == {"answer": [[1]], "changed": False}
        stock.execute("INSERT INTO stock VALUES ('salt', 1)")
        assert look(agents) == {"answer": [[2]], "changed": True, "was": [[1]]}
        assert app.store.threads().items == [], "it leaves a run, but no thread"
        agents.reload("w", config(tmp_path, sql="", question="gibberish of zorks"))
        agents.wait(agents.message("w", "look"))
        assert agents.get("w").last_error


def test_a_failing_query_is_an_error_and_the_watch_continues(
    app: App, agents: AgentControl, tmp_path: Path, stock: sqlite3.Connection
) -> None:
    with Worker(app, agents.queue):
        agents.create("watch", config(tmp_path, sql="SELECT sum(n) FROM nothing"), id="w")
        wait_until(lambda: agents.get("w").last_error)
        assert "nothing" in str(agents.get("w").last_error)
        agents.reload("w", config(tmp_path))
        assert look(agents) == {"answer": [[100.0]], "changed": False}


def test_it_asks_at_the_times_of_a_cron_expression(
    app: App, agents: AgentControl, tmp_path: Path, stock: sqlite3.Connection
) -> None:
    with Worker(app, agents.queue):
        given = config(tmp_path, every_s=None, cron="30 7 * * *", timezone="Europe/Berlin")
        agents.create("watch", given, id="w")
        due = wait_until(lambda: agents.get("w").next_at)
    from zoneinfo import ZoneInfo

    local = due.astimezone(ZoneInfo("Europe/Berlin"))
    assert (local.hour, local.minute) in {(7, 30), (7, 29)}, "give or take a second"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cron": "0 7 * * *"}, "every_s"),
        ({"every_s": None}, "every_s"),
        ({"every_s": None, "cron": "at dawn"}, "at dawn"),
        ({"timezone": "Mars/Olympus"}, "time zone"),
        ({"plan": {}}, "`sql` or `plan`"),
        ({"question": "how many?"}, "`sql` or `plan`"),
    ],
)
def test_an_invalid_configuration_is_refused(
    agents: AgentControl, tmp_path: Path, wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(Invalid) as caught:
        agents.create("watch", config(tmp_path, **wrong))
    assert why in caught.value.message
