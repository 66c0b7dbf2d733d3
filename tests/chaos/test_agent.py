"""kill -9 anywhere in an agent's run: another process goes on, to the same answer, and no step runs twice.

Hypothesis chooses the moments. `CHAOS=long` (`make chaos`) tries many more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.entities import Run
from openai_server import OpenAIServer, by_turn, calls, say

LONG = os.environ.get("CHAOS") == "long"

# Dies right after the commit that brings the run to the given place, or in the middle of a cell.
WORKER = """
import os, signal, sys
from etude.app import App

run_id, place = sys.argv[1], int(sys.argv[2])
with App() as app:
    die = lambda changed, seq: os.kill(os.getpid(), signal.SIGKILL) if seq >= place else None
    app.store.subscribe(die)
    app.runs.work(run_id)
"""
CELLS = ["xs = [1]", "xs.append(len(xs) + 1)", "xs.append(len(xs) + 1)\nsum(xs)"]
QUERY = {"dataset": "t", "query": "SELECT count(*) AS n FROM t"}
TURNS = [
    calls(("execute_python", {"code": CELLS[0]}), ("execute_sql", QUERY)),
    calls(("execute_python", {"code": CELLS[1]})),
    calls(("nope", {}), ("execute_python", {"code": CELLS[2]}), text="Nearly there."),
    say("There are 3 rows, and the sum is 6."),
]
LENGTH = 40
"""More events than the run has."""


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(by_turn(*TURNS)) as server:
        yield server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    (folder / "t.csv").write_text("v\n1\n2\n3\n")
    script = [
        {"text": turn.text, "calls": [{"name": n, "arguments": json.loads(a)} for n, a in turn.calls]} for turn in TURNS
    ]
    (folder / "script.json").write_text(json.dumps(script))
    return folder


@settings(
    max_examples=30 if LONG else 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
@pytest.mark.parametrize("model", ["scripted", "http"])
def test_a_run_that_is_killed_goes_on_to_the_same_answer(
    place: Path, server: OpenAIServer, model: str, data: st.DataObject
):
    kills = sorted(data.draw(st.sets(st.integers(2, LENGTH), min_size=1, max_size=3), label="killed at"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")} | {
        "ETUDE_HOME": str(place / "home"),
        "ETUDE_REPLAY": "off",  # each example asks the same question
        "ETUDE_MODELS__OPENAI__BASE_URL": server.base_url,
        "ETUDE_MODELS__OPENAI__API_KEY": "sk-test",
    }
    name = "openai:test-model" if model == "http" else f"scripted:{place / 'script.json'}"
    with App(home=place / "home") as app:
        run_id = app.runs.begin("ask", "How many, and the sum?", str(place / "t.csv"), model=name)
        for kill_at in [*kills, 1 << 30]:
            app.store.recover()
            run = app.store.run(run_id)
            if run.status == "succeeded":
                break
            # A later moment than where it is, or the same process would die before it did anything.
            after = max(kill_at, run.seq + 2)
            command = [sys.executable, "-c", WORKER, run_id, str(after)]
            subprocess.run(command, env=environment, timeout=120, check=False)
        run = app.store.run(run_id)
    assert run.answer == "There are 3 rows, and the sum is 6.", run.error
    assert not run.unverified
    assert_nothing_ran_twice(run)


def assert_nothing_ran_twice(run: Run) -> None:
    done = Counter(s.code for s in run.steps if s.kind == "python" and s.error_key != "interrupted")
    # The third cell's code begins like the second's: each was run to its end once.
    assert all(done[cell] == 1 for cell in CELLS), done
    answered = Counter((s.parent, s.params["call"]) for s in run.steps if s.kind == "tool" and s.shown is not None)
    assert set(answered.values()) == {1}
    assert sum(s.kind == "model" and s.turn is not None for s in run.steps) == len(TURNS)
