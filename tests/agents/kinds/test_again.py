"""Pause, kill the whole server, start again, resume: each kind comes to the same end as if nothing had happened."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.agents.conftest import wait_until

from etude.agents.control import Agents
from etude.app import App

STEPS = 4
EXAMPLES = 25 if os.environ.get("ETUDE_CHAOS") == "long" else 2

SERVER = """
import sys, threading
from etude.agents.worker import Worker
from etude.app import App
app = App(home=sys.argv[1], store=sys.argv[2])
Worker(app).start()
print("ready", flush=True)
threading.Event().wait()
"""


def make_config(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "echo":
        return {"subject": "rain", "interval_s": 0.02}
    if kind == "catalog":
        (folder / "data").mkdir()
        (folder / "data" / "stock.csv").write_text("item,n\ntea,42\n")
        return {"source": str(folder / "data"), "every_s": 0.02}
    path = folder / "stock.sqlite"
    if not path.exists():
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE stock AS SELECT 42 AS n")
        db.close()
    if kind == "analyst":
        questions = [
            "PYTHON: x = db.sql('SELECT n FROM stock').df()",
            "how many stock",
            "PYTHON: x = x + x",
            "PYTHON: x",
        ]
        return {"source": str(path), "questions": questions}
    return {"source": str(path), "sql": "SELECT n FROM stock", "every_s": 0.02}


def live(agents: Agents, agent_id: str, start: Callable[[], Any], moments: list[tuple[int, bool]]) -> list[Any]:
    """The outputs of the first steps; at each moment the agent is paused and the server killed."""
    server = start()
    try:
        for after, now in sorted(moments):
            wait_until(lambda n=after: agents.get(agent_id).step_no >= n)
            agents.pause(agent_id, "now" if now else "after_step")
            server.kill()
            server.communicate()
            server = start()
            agents.resume(agent_id)
        wait_until(lambda: len(done(agents, agent_id)) >= STEPS)
    finally:
        server.kill()
        server.communicate()
    return done(agents, agent_id)[:STEPS]


def done(agents: Agents, agent_id: str) -> list[Any]:
    return [_lasting(s.output) for s in agents.steps(agent_id, limit=1000) if s.outcome == "ok"]


def _lasting(output: Any) -> Any:
    """An output without the names of the runs that it came of."""
    return {k: v for k, v in output.items() if k not in ("run_id", "url")} if isinstance(output, dict) else output


@pytest.mark.parametrize("kind", ["echo", "watch", "analyst", "catalog"])
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_it_comes_to_the_same_end(kind: str, agents: Agents, app: App, store_url: str, tmp_path: Path) -> None:
    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SERVER, str(tmp_path / "home"), store_url]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        return server

    config = make_config(kind, tmp_path)
    undisturbed = agents.create(kind, config).id
    expected = live(agents, undisturbed, start, [])
    agents.destroy(undisturbed, grace=0)

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(st.lists(st.tuples(st.integers(0, STEPS - 1), st.booleans()), min_size=1, max_size=2))
    def check(moments: list[tuple[int, bool]]) -> None:
        disturbed = agents.create(kind, config).id
        assert live(agents, disturbed, start, moments) == expected
        numbers = [s.step_no for s in agents.steps(disturbed, limit=1000)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert json.dumps(agents.state(disturbed))
        agents.destroy(disturbed, grace=0)

    check()
