"""kill -9 of the server with agents and acknowledged runs, of every kind and in every state: each ends or continues.

The short form runs with every test run. `CHAOS=long` (`make chaos`) has a hundred runs and kills the server five times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from tests.chaos.processes import kill_all
from tests.patience import wait_until

from etude.entities import ENDED

LONG = os.environ.get("CHAOS") == "long"
RUNS, KILLS = (100, 5) if LONG else (28, 1)
SLOW_SQL = "SELECT count(*) FROM range(10000000000000) t(i) WHERE i % 7 = 3"
SCRIPT = [
    {
        "asked": "which year",
        "turns": [
            {"calls": [{"name": "ask_user", "arguments": {"question": "Which year?", "choices": ["2023", "2024"]}}]},
            {"text": "Then it is that year."},
        ],
    },
    {"asked": "be slow", "turns": [{"text": "word " * 200, "pace_s": 0.05}]},
    {"asked": "be quick", "turns": [{"text": "There are some."}]},
]
PLAN = json.dumps({"from": "t", "aggregate": [{"fn": "sum", "of": "v", "as": "total"}]})
REQUESTS: list[dict[str, Any]] = [
    {"kind": "sql", "text": "SELECT count(*) AS n FROM t"},
    {"kind": "sql", "text": SLOW_SQL, "limits": {"timeout_s": 5}},
    {"kind": "plan", "text": PLAN},
    {"kind": "python", "text": "n = db.sql('SELECT count(*) AS n FROM t')\nprint(n)"},
    {"kind": "python", "text": "import time\ntime.sleep(3)\nprint('slept')"},
    {"kind": "ask", "text": "please be quick"},
    {"kind": "ask", "text": "please be slow"},
    {"kind": "ask", "text": "which year?"},
    {"kind": "catalog", "text": ""},
]
AGENTS = 5


@contextmanager
def serving(folder: Path, store: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
    environment |= {"ETUDE_HOME": str(folder / "home"), "ETUDE_MODEL": f"scripted:{folder}/script.json"}
    environment |= {"ETUDE_SERVER__RUNS": "500"} | ({"ETUDE_STORE": store} if store else {})
    command = [sys.executable, "-m", "etude", "serve", str(folder / "data.duckdb"), "--port", "0"]
    with (folder / "log").open("w+b") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
        try:
            line = wait_until(lambda: process.poll() or _listens(folder / "log"))
            with httpx.Client(base_url=line, timeout=120) as client:
                yield process, client
        finally:
            process.kill()
            process.wait()


def _listens(log: Path) -> str | None:
    lines = [line for line in log.read_text(errors="replace").splitlines() if "listens on http" in line]
    return lines[0].split()[-1] if lines else None


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_acknowledged_run_ends_or_continues(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = "" if database == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with duckdb.connect(str(tmp_path / "data.duckdb")) as made:
        made.execute("CREATE TABLE t AS SELECT range AS v FROM range(100)")
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    runs: dict[str, dict[str, Any]] = {}
    paused: set[str] = set()
    agents: dict[str, int] = {}
    for _ in range(KILLS):
        with serving(tmp_path, store) as (process, client):
            while len(agents) < AGENTS:
                made = client.post("/api/agents", json={"kind": "echo", "config": {"subject": "x", "interval_s": 1}})
                assert made.status_code == 201, made.text
                agents[made.json()["id"]] = 0
            wait_until(lambda: _all_stepped(client, agents))  # noqa: B023 - it is called at once
            for number in range(RUNS // KILLS):
                asked = REQUESTS[number % len(REQUESTS)]
                made = _begin(client, asked)
                assert made.status_code == 202, made.text
                runs[made.json()["id"]] = asked
                if asked["text"] == "please be slow" and number % 16 == 6:
                    answer = client.post(f"/runs/{made.json()['id']}/pause")
                    paused |= {made.json()["id"]} if answer.is_success else set()
            agents = {agent: _steps(client, agent) for agent in agents}
            before = Counter(_states(client, runs).values())
            kill_all(process)
    print("at the last kill:", dict(before))
    with serving(tmp_path, store) as (_, client):
        started = time.monotonic()
        wait_until(lambda: all(_goes_on(state, run, runs, paused) for run, state in _states(client, runs).items()))
        print(f"after {time.monotonic() - started:.1f} s each of {len(runs)} runs had ended or continued")
        wait_until(lambda: _all_stepped(client, agents))
        print(f"after {time.monotonic() - started:.1f} s each of {AGENTS} agents had made a step")
        for run_id in [r for r, s in _states(client, runs).items() if s == "paused"]:
            assert client.post(f"/runs/{run_id}/resume").is_success
        for run_id in [r for r, s in _states(client, runs).items() if s == "waiting"]:
            assert client.post(f"/runs/{run_id}/answer", json={"text": "2024"}).is_success
        wait_until(lambda: set(_states(client, runs).values()) <= set(ENDED))
        for run_id, asked in runs.items():
            run = client.get(f"/runs/{run_id}").json()
            right = {"limit_exceeded" if asked["text"] == SLOW_SQL else None}
            # A query or cell that was running must be run again; the steps of a question are recorded, so it resumes.
            right |= {"interrupted"} if asked["kind"] != "ask" else set()
            assert (run["error"] or {}).get("code") in right, (run["text"], run["error"])


def _begin(client: httpx.Client, asked: dict[str, Any]) -> httpx.Response:
    if asked["kind"] == "catalog":
        # A server makes a few at once; one of these may come from before the kill.
        return wait_until(lambda: _unless_busy(client.post("/catalogs", json={"dataset": "data"})))
    return client.post("/runs", json=asked | {"dataset": "data"})


def _unless_busy(answer: httpx.Response) -> httpx.Response | None:
    return None if answer.status_code == 503 else answer


def _all_stepped(client: httpx.Client, agents: dict[str, int]) -> bool:
    """Whether each agent has made more steps than it had."""
    return all(_steps(client, agent) > done for agent, done in agents.items())


def _steps(client: httpx.Client, agent: str) -> int:
    """The steps that an agent has finished."""
    return sum(step["outcome"] == "ok" for step in client.get(f"/api/agents/{agent}/steps?limit=200").json()["items"])


def _states(client: httpx.Client, runs: dict[str, Any]) -> dict[str, str]:
    listed = client.get("/runs", params={"limit": 200}).json()["items"]
    return {run["id"]: run["status"] for run in listed if run["id"] in runs}


def _goes_on(state: str, run: str, runs: dict[str, dict[str, Any]], paused: set[str]) -> bool:
    """Whether a run has ended, is at work, or waits for a person."""
    waits = state == "waiting" and runs[run]["text"] == "which year?"
    return state in ENDED or state == "running" or waits or (state == "paused" and run in paused)
