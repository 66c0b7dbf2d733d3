"""Agents: how soon an interrupt is heard, what bringing them back costs, and what they cost while they do nothing."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from bench.figure import Figure
from bench.queue import postgres
from etude.agents.base import InboxItem, Kind, StepContext, StepResult
from etude.agents.worker import Worker
from etude.entities import Entity
from etude.store.action import ActionClaim, Finish, NewAction
from etude.store.agents import AgentStore
from etude.store.base import Store
from etude.store.postgres import PostgresStore
from etude.store.queue import Queue
from etude.store.sqlite import SqliteStore

INTERRUPTS = 30
WATCH_S = 10.0


def measure() -> list[Figure]:
    with postgres() as create, tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        places = {"SQLite": str(Path(folder) / "etude.db"), "Postgres": create()}
        figures = []
        for name, place in places.items():
            here, across = measure_interrupt(place)
            figures.append(Figure(f"interrupt until the next step has the guidance, {name}", here, None, "ms", most=50))
            figures.append(Figure(f"the same from another process, {name}", across, None, "ms", most=100))
        for name, place in {"SQLite": str(Path(folder) / "many.db"), "Postgres": create()}.items():
            held, stepped = restore(place)
            figures.append(Figure(f"1,000 agents held again after kill -9, {name}", held, None, "s", most=1))
            figures.append(Figure(f"the same until each has made a step, {name}", stepped, None, "s", most=1))
        for name, place in {"SQLite": str(Path(folder) / "idle.db"), "Postgres": create()}.items():
            none, many = (idle(place, count) for count in (0, 10_000))
            figures.append(Figure(f"an idle worker without agents, {name}", none, None, "% CPU"))
            figures.append(Figure(f"an idle worker with 10,000 agents, {name}", many, None, "% CPU", most=none + 0.5))
    return figures


def open_at(place: str) -> Store:
    return PostgresStore(place) if place.startswith("postgresql") else SqliteStore(place)


class Busy(Kind[Entity]):
    """Works until it is broken off; a step that begins with guidance says when it came."""

    heard: ClassVar[list[float]] = []
    entered: ClassVar[threading.Semaphore] = threading.Semaphore(0)

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        self.heard += [time.time() - item.body for item in inbox if item.kind == "guidance"][-1:]
        self.entered.release()
        ctx.sleep(60)
        return StepResult()


SENDER = """
import sys, time
from etude.store.postgres import PostgresStore
from etude.store.queue import Queue
from etude.store.agents import AgentStore
from etude.store.sqlite import SqliteStore
place = sys.argv[1]
agent_store = AgentStore(Queue((PostgresStore if place.startswith("postgresql") else SqliteStore)(place)))
print("ready", flush=True)
for _ in sys.stdin:
    agent_store.interrupt("busy", time.time())
    print("sent", flush=True)
"""


def measure_interrupt(place: str) -> tuple[float, float]:
    """Median milliseconds, said in the worker's process and in another."""
    with ExitStack() as stack:
        store = stack.enter_context(open_at(place))
        queue = stack.enter_context(closing(Queue(store)))
        agent_store = AgentStore(queue)
        stack.enter_context(Worker(SimpleNamespace(store=store), queue, kinds={"busy": Busy}))
        sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(lambda: (sender.kill(), sender.communicate()))
        assert sender.stdin is not None and sender.stdout is not None
        sender.stdout.readline()
        agent_store.create("busy", "busy", {})
        Busy.entered.acquire()

        def say_here() -> None:
            agent_store.interrupt("busy", time.time())

        def say_there() -> None:
            assert sender.stdin is not None and sender.stdout is not None
            sender.stdin.write("\n")
            sender.stdin.flush()
            sender.stdout.readline()

        found = []
        for say in (say_here, say_there):
            Busy.heard.clear()
            for _ in range(INTERRUPTS):
                time.sleep(0.02)
                say()
                Busy.entered.acquire()
            found.append(statistics.median(Busy.heard) * 1e3)
        agent_store.destroy("busy", grace=0)
    return found[0], found[1]


def add_agents(queue: Queue, count: int) -> None:
    with queue.transaction() as work:
        for n in range(count):
            work.do(
                "INSERT INTO agents (id, kind, state, created_at, updated_at) VALUES (?, 'note', ?, 0, 0)",
                f"a{n}",
                '{"memory": "' + "x" * 4000 + '"}',
            )


STUCK = """
import sys, time
from etude.store.postgres import PostgresStore
from etude.store.queue import Queue
from etude.store.sqlite import SqliteStore
place = sys.argv[1]
queue = Queue((PostgresStore if place.startswith("postgresql") else SqliteStore)(place))
print(len(queue.turn(claim=1000).claimed), flush=True)
time.sleep(600)
"""


class Note(Kind[Entity]):
    """Counts its steps."""

    started: ClassVar[list[float]] = []

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        assert len(state["memory"]) == 4000
        self.started.append(time.monotonic())
        return StepResult()


def restore(place: str) -> tuple[float, float]:
    """Seconds until another worker holds 1,000 agents, with their states, whose worker was killed; and has run them."""
    Note.started.clear()
    with open_at(place) as store, closing(Queue(store)) as queue:
        add_agents(queue, 1000)
        queue.enqueue(*(NewAction(f"a{n}") for n in range(1000)))
        kill_owner(place)
        began = time.monotonic()
        claimed: list[ActionClaim] = []
        while len(claimed) < 1000:
            queue.sweep()
            claimed += queue.turn(claim=1000).claimed
        assert all(len(json.loads(c.state)["memory"]) == 4000 for c in claimed)
        taken = time.monotonic() - began
        queue.turn([Finish(c, "ready") for c in claimed])
        kill_owner(place)
        began = time.monotonic()
        with Worker(SimpleNamespace(store=store), queue, slots=50, kinds={"note": Note}):
            while len(Note.started) < 1000:
                time.sleep(0.005)
        return taken, max(Note.started) - began


def kill_owner(place: str) -> None:
    """Have a process claim all agents, and kill it."""
    stuck = subprocess.Popen([sys.executable, "-c", STUCK, place], stdout=subprocess.PIPE, text=True)
    assert stuck.stdout is not None and stuck.stdout.readline() == "1000\n"
    stuck.kill()
    stuck.communicate()


@contextmanager
def idle_worker(place: str) -> Iterator[subprocess.Popen[str]]:
    code = """
import sys, threading
from types import SimpleNamespace
from etude.agents.worker import Worker
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore
place = sys.argv[1]
store = (PostgresStore if place.startswith("postgresql") else SqliteStore)(place)
Worker(SimpleNamespace(store=store)).start()
print("ready", flush=True)
threading.Event().wait()
"""
    process = subprocess.Popen([sys.executable, "-c", code, place], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def idle(place: str, agents: int) -> float:
    """The part of a processor, in percent, that a worker uses with nothing to do."""
    with open_at(place) as store:
        add_agents(Queue(store), agents)
    with idle_worker(place) as worker:
        time.sleep(2)
        before = _cpu_seconds(worker.pid)
        time.sleep(WATCH_S)
        return (_cpu_seconds(worker.pid) - before) / WATCH_S * 100


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
