"""Workers killed at random under load: nothing is lost, nothing overlaps, poison is marked, the urgent goes first.

The short form runs with every test run; `CHAOS=long` (`make chaos`) is 5,000 actions and a kill every second.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from tests.chaos.processes import stop
from tests.patience import wait_until

from etude.store.action import NewAction
from etude.store.agents import AgentStore
from etude.store.base import Store
from etude.store.postgres import PostgresStore
from etude.store.queue import Queue
from etude.store.sqlite import SqliteStore

LONG = os.environ.get("CHAOS") == "long"
AGENTS = 60
ACTIONS = 5000 if LONG else 600
KILL_EVERY_S = 1.0
POISON = 50
"""Every so many actions one always fails."""

WORKER = """
import json, os, random, sys, threading, time
from types import SimpleNamespace
from etude.agents.base import Kind, StepResult
from etude.agents.worker import Worker
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore

place, out = sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
store = (PostgresStore if place.startswith("postgresql") else SqliteStore)(place)
pid = os.getpid()

class Note(Kind):
    def step(self, ctx, state, inbox):
        item = inbox[0]
        def note(what):
            os.write(out, f"{what} {time.monotonic_ns()} {pid} {ctx.agent_id} {item.id}\\n".encode())
        note("start")
        time.sleep(random.uniform(0, 0.02))
        if item.body == "poison":
            note("end")
            raise RuntimeError("poison")
        note("end")
        return StepResult(state={"n": state.get("n", 0) + 1})

Worker(SimpleNamespace(store=store), slots=8, lease=60.0, kinds={"note": Note}).start()
os.write(1, b"ready\\n")
threading.Event().wait()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "etude.db")
    return str(request.getfixturevalue("postgres_url"))


def open_at(place: str) -> Store:
    return PostgresStore(place) if place.startswith("postgresql") else SqliteStore(place)


def start_worker(place: str, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, place, str(log)], stdout=subprocess.PIPE)


def add_agents(queue: Queue, count: int, kind: str = "note") -> None:
    with queue.transaction() as work:
        for n in range(count):
            work.do(
                "INSERT INTO agents (tenant, id, kind, created_at, updated_at) VALUES (?, ?, ?, 0, 0)",
                queue.tenant,
                f"agent-{n}",
                kind,
            )


def action(n: int, chance: random.Random) -> NewAction:
    body = '"poison"' if n % POISON == 0 else "null"
    return NewAction(f"agent-{n % AGENTS}", payload=body, id=f"action-{n}", urgency=chance.choice([10, 50, 100]))


@dataclass(frozen=True)
class Line:
    what: str
    at: int
    pid: int
    agent: str
    action: str


def read_log(path: Path) -> list[Line]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return sorted((Line(w, int(at), int(pid), agent, name) for w, at, pid, agent, name in lines), key=lambda x: x.at)


def check_no_overlap(lines: list[Line], killed: dict[int, int]) -> None:
    """No two steps of one agent at the same time; a step of a killed worker ended when it was killed."""
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[tuple[int, str], int] = {}
    for line in lines:
        key = (line.pid, line.action)
        if line.what == "start":
            begun[key] = line.at
        else:
            runs[line.agent].append((begun.pop(key), line.at))
    agents = {(line.pid, line.action): line.agent for line in lines}
    for (pid, name), at in begun.items():
        runs[agents[pid, name]].append((at, max(at, killed[pid])))
    for agent, spans in runs.items():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start, f"two steps of {agent} at once"


def test_workers_are_killed_and_nothing_is_lost(place: str, tmp_path: Path) -> None:
    log, chance = tmp_path / "log", random.Random()
    killed: dict[int, int] = {}
    with open_at(place) as store:
        queue = Queue(store)
        add_agents(queue, AGENTS)
        for n in range(ACTIONS // 3):
            queue.enqueue(action(n, chance))
        workers = [start_worker(place, log) for _ in range(4)]

        def produce(numbers: range) -> None:
            for n in numbers:
                queue.enqueue(action(n, chance))

        producers = [
            threading.Thread(target=produce, args=(range(ACTIONS // 3 + i, ACTIONS, 2),), daemon=True) for i in (0, 1)
        ]
        for producer in producers:
            producer.start()
        try:
            deadline = time.monotonic() + (900 if LONG else 200)
            open_actions = -1
            while open_actions and time.monotonic() < deadline:
                time.sleep(KILL_EVERY_S)
                victim = chance.randrange(4)
                # One that has come to work: where it takes long to start, they would all be killed before.
                out = workers[victim].stdout
                assert out is not None and out.readline() == b"ready\n"
                # Taken before it dies: others go on with its work at once.
                killed[workers[victim].pid] = time.monotonic_ns()
                workers[victim].kill()
                workers[victim].communicate()
                workers[victim] = start_worker(place, log)
                alive = any(p.is_alive() for p in producers)
                open_actions = alive or queue.read("SELECT count(*) FROM actions WHERE processed_at IS NULL")[0][0]
        finally:
            for worker in workers:
                killed.setdefault(worker.pid, time.monotonic_ns())
                worker.kill()
                worker.communicate()
        check_actions(queue)
        lines = read_log(log)
        check_no_overlap(lines, killed)
        steps = dict(queue.read("SELECT state, count(*) FROM actions GROUP BY state"))  # type: ignore[arg-type]
        starts = sum(line.what == "start" for line in lines)
        print(f"{steps}, {starts} starts, {len(killed) - 4} kills")


def check_actions(queue: Queue) -> None:
    rows = queue.read("SELECT id, payload, state, attempts, max_attempts, last_error, processed_at FROM actions")
    assert len(rows) == ACTIONS
    for name, payload, state, attempts, most, error, processed in rows:
        assert processed is not None and attempts <= most, name
        if payload == '"poison"':
            # Either its own error, or that its worker was killed at each try.
            assert state == "failed" and error is not None, name
        elif state == "failed":
            assert error.endswith(" lost") and attempts == most, name
        else:
            assert state == "done", name
    wrong = queue.read(
        """SELECT agents.id FROM agents WHERE running IS NOT NULL OR head_seq IS NOT NULL OR step_no <>
        (SELECT count(*) FROM agent_steps WHERE agent_steps.agent = agents.no)"""
    )
    assert wrong == []


def test_the_urgent_goes_first_while_workers_are_busy(place: str, tmp_path: Path) -> None:
    """One slot, so that the order of starts is the order of claims."""
    log = tmp_path / "log"
    with open_at(place) as store:
        queue = Queue(store)
        add_agents(queue, AGENTS)
        chance = random.Random()
        queue.enqueue(*(NewAction(f"agent-{n % AGENTS}", id=f"a{n}", urgency=chance.randint(1, 9)) for n in range(100)))
        expected = queue.read("SELECT id FROM actions ORDER BY urgency, created_at, seq")
        # Steps that are not so short that a worker claims ahead.
        code = WORKER.replace("slots=8", "slots=1").replace("random.uniform(0, 0.02)", "0.02")
        worker = subprocess.Popen([sys.executable, "-c", code, place, str(log)], stdout=subprocess.PIPE)
        try:
            wait_until(lambda: not queue.read("SELECT 1 FROM actions WHERE processed_at IS NULL LIMIT 1"))
        finally:
            worker.kill()
            worker.communicate()
    assert [line.action for line in read_log(log) if line.what == "start"] == [name for (name,) in expected]


def freeze(process: subprocess.Popen[bytes], queue: Queue, place: str) -> None:
    """Stop a process, though not within a transaction: there all others would wait for it."""
    while True:
        stop(process)
        if not (is_writing(queue) if place.startswith("postgresql") else is_locked(place)):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)


def is_writing(queue: Queue) -> bool:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    return bool(queue.read(f"SELECT 1 FROM pg_stat_activity WHERE {others} AND xact_start IS NOT NULL"))


def is_locked(place: str) -> bool:
    db = sqlite3.connect(place, timeout=0.2, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    finally:
        db.close()
    return False


# Its steps end when they are let through, however long it takes.
SLOW = WORKER.replace("lease=60.0", "lease=3.0").replace(
    "time.sleep(random.uniform(0, 0.02))", "while not os.path.exists(sys.argv[2] + '.go'): time.sleep(0.02)"
)


def test_a_frozen_worker_is_replaced_and_what_it_writes_late_is_refused(place: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_at(place) as store:
        queue = Queue(store)
        agent_store = AgentStore(queue)
        add_agents(queue, 1)
        command = [sys.executable, "-c", SLOW, place, str(log)]
        frozen = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            queue.enqueue(NewAction("agent-0", id="slow"))
            wait_until(lambda: log.exists() and "start" in log.read_text())
            freeze(frozen, queue, place)
            other = subprocess.Popen(command, stdout=subprocess.PIPE)
            try:
                wait_until(lambda: log.read_text().count("start") >= 2)
                Path(f"{log}.go").touch()
                wait_until(lambda: queue.read("SELECT state FROM actions") == [("done",)])
                frozen.send_signal(signal.SIGCONT)
                # It goes on with its step, and finds that it is no longer its own.
                wait_until(lambda: log.read_text().count("end") == 2)
                queue.enqueue(NewAction("agent-0", id="after"))
                wait_until(lambda: queue.read("SELECT count(*) FROM actions WHERE state = 'done'") == [(2,)])
            finally:
                other.kill()
                other.communicate()
        finally:
            frozen.kill()
            frozen.communicate()
        assert [(s.step_no, s.action) for s in agent_store.steps("agent-0")] == [(1, "slow"), (2, "after")]
        assert agent_store.state("agent-0") == {"n": 2}
