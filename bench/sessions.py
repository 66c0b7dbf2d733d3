"""A persistent Python session against ipykernel: its start, its round trip, its memory, and the way of a large result.

The kernel's package is installed and its files are in the page cache; likewise our fork server runs already. Both
sides have pandas, duckdb and numpy imported, and an answer counts once its value is in hand.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pyarrow.compute as pc
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from bench.figure import Figure, alternate, medians
from bench.memory import proportional
from etude.app import App
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

STARTS = 7
HANDOVERS = 30
BLOCKS = 10
BLOCK_S = 0.5
WARM_UP = 10
STOPS = 20
ENDLESS = "while True: pass"
BEGUN_S = 0.1
"""After so long an endless cell has begun."""
SHARED = 100
LIVE = 1000
ROUNDS = 7
IMPORTS = "import pandas, duckdb, numpy"
READY = 1
ROWS = 32_000_000
RESULT = f"SELECT i, i % 1000 AS group_id, i * 0.5::DOUBLE AS amount, i + 7 AS other FROM range({ROWS}) r(i)"


def measure() -> list[Figure]:
    _raise_descriptors()
    return [
        *_measure_start(),
        *_measure_round_trip(),
        _measure_interrupt(),
        *_measure_memory(),
        *_measure_many(),
        _measure_result(),
    ]


def _raise_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Kernel:
    """An ipykernel and its client."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(extra_arguments=["--log-level=ERROR"])
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        assert self.manager.provisioner is not None
        return int(self.manager.provisioner.pid)

    def execute(self, code: str) -> str:
        """The value of a cell as text, once both the value and the reply are here."""
        asked = self.client.execute(code)
        value = ""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "execute_result":
                value = message["content"]["data"]["text/plain"]
                break
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        self._await_reply(asked)
        return value

    def _await_reply(self, asked: str) -> None:
        while self.client.get_shell_msg(timeout=60)["parent_header"].get("msg_id") != asked:
            pass

    def stop_endless(self) -> float:
        """Seconds from the interrupt of an endless cell until it has ended."""
        asked = self.client.execute(ENDLESS)
        time.sleep(BEGUN_S)
        started = time.perf_counter()
        self.manager.interrupt_kernel()
        self._await_reply(asked)
        return time.perf_counter() - started

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@contextlib.contextmanager
def _kernel() -> Iterator[Kernel]:
    with contextlib.closing(Kernel()) as kernel:
        yield kernel


@contextlib.contextmanager
def _provider(ready: int = 0) -> Iterator[LocalProvider]:
    """A provider whose fork server runs."""
    with contextlib.closing(LocalProvider(ready=ready)) as provider:
        with Session(provider) as session:
            _ask(session)
        yield provider


def _ask(session: Session, code: str = "1+1") -> None:
    cell = session.execute(code)
    assert cell.value == 2, cell


def _measure_start() -> list[Figure]:
    first = f"{IMPORTS}\n1+1"
    started: list[Kernel | Session] = []
    with _provider() as provider, _provider(READY) as ready:

        def start_kernel() -> None:
            kernel = Kernel()
            started.append(kernel)
            assert kernel.execute(first) == "2"

        def start() -> None:
            session = Session(provider)
            started.append(session)
            _ask(session, first)

        def take() -> None:
            session = Session(ready)
            started.append(session)
            _ask(session, first)

        def settle() -> None:
            """What was started ends, and the pool is filled again, while nobody looks at the clock."""
            while started:
                started.pop().close()
            until = time.monotonic() + 10
            while sum(map(len, ready._ready.values())) < READY and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.1)

        sides = [start_kernel, start, take]
        times: list[list[float]] = [[] for _ in sides]
        for _ in range(STARTS):
            for index, side in enumerate(sides):
                settle()
                times[index] += alternate([side], 1)[0]
        for _ in range(HANDOVERS):
            settle()
            times[2] += alternate([take], 1)[0]
        settle()
    peer, cold, taken = (statistics.median(t) * 1e3 for t in times)
    what = "first cell answered, libraries imported"
    return [
        Figure(f"{what}: forked by the running fork server", cold, peer, "ms", most_ratio=1 / 100),
        Figure(f"{what}: from the ready pool", taken, peer, "ms", most=2),
    ]


def _measure_round_trip() -> list[Figure]:
    """Each side is driven from a process of its own: the threads of one client would slow the other's.

    They take turns, and each calls for as long as the other does: by number, the quicker one would be done before the
    system has given its two processes a processor each.
    """
    with _driven(_drive_kernel) as kernel, _driven(_drive_session) as session:
        peer: list[float] = []
        ours: list[float] = []
        for _ in range(BLOCKS):
            for pipe, seconds in ((kernel, peer), (session, ours)):
                pipe.send(BLOCK_S)
                seconds.extend(pipe.recv())
    label = "`1+1` and back, one after another"
    return [Figure(label, statistics.median(ours) * 1e3, statistics.median(peer) * 1e3, "ms", most_ratio=1 / 100)]


def _measure_interrupt() -> Figure:
    ours: list[float] = []
    peer: list[float] = []
    with _provider() as provider, Session(provider) as session, _kernel() as kernel:
        for _ in range(STOPS):
            peer.append(kernel.stop_endless())
            ours.append(_stop_endless(session))
    label = "an endless cell, from the interrupt to its end"
    return Figure(label, statistics.median(ours) * 1e3, statistics.median(peer) * 1e3, "ms", most=100)


def _stop_endless(session: Session) -> float:
    running = threading.Thread(target=session.execute, args=(ENDLESS,))
    running.start()
    time.sleep(BEGUN_S)
    started = time.perf_counter()
    session.interrupt()
    running.join()
    return time.perf_counter() - started


@contextlib.contextmanager
def _driven(drive: Callable[[Connection], None]) -> Iterator[Connection]:
    context = get_context("spawn")
    here, there = context.Pipe()
    driver = context.Process(target=drive, args=(there,))
    driver.start()
    here.send(BLOCK_S)  # the first calls of all pay for loading what they touch
    here.recv()
    yield here
    here.send(0.0)
    driver.join()


def _drive_kernel(pipe: Connection) -> None:
    with _kernel() as kernel:
        _time_calls(pipe, lambda: kernel.execute("1+1"))


def _drive_session(pipe: Connection) -> None:
    with _provider() as provider, Session(provider) as session:
        _time_calls(pipe, lambda: session.execute("1+1"))


def _time_calls(pipe: Connection, call: Callable[[], object]) -> None:
    while seconds := pipe.recv():
        alternate([call], WARM_UP)
        times: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            times += alternate([call], 1)[0]
        pipe.send(times)


@contextlib.contextmanager
def _sessions(count: int) -> Iterator[list[Session]]:
    with _provider() as provider, contextlib.ExitStack() as stack:
        yield [stack.enter_context(Session(provider)) for _ in range(count)]


def _megabytes(sessions: list[Session]) -> float:
    """The memory of sessions together: pages that they share with each other and the fork server count in part."""
    pids = [s._opened().pid for s in sessions]
    assert all(pids)
    return sum(map(proportional, pids)) / 1e6


def _measure_memory() -> list[Figure]:
    with _sessions(SHARED) as sessions, _kernel() as kernel:
        kernel.execute(f"{IMPORTS}\n1+1")
        for session in sessions:
            _ask(session, f"{IMPORTS}\n1+1")
        ours, peer = _megabytes(sessions) / SHARED, proportional(kernel.pid) / 1e6
    return [Figure(f"memory of an idle session among {SHARED}", ours, peer, "MB", most=5, most_ratio=1 / 15)]


def _measure_many() -> list[Figure]:
    started = time.perf_counter()
    with _sessions(LIVE) as sessions:
        opened = time.perf_counter()
        for session in sessions:
            _ask(session)
        answered = time.perf_counter()
        memory = _megabytes(sessions)
    return [
        Figure(f"{LIVE:,} live sessions: to open them all", opened - started, None, "s"),
        Figure(f"{LIVE:,} live sessions: each answers `1+1`", answered - opened, None, "s"),
        Figure(f"{LIVE:,} live sessions: memory of all", memory, None, "MB", most=5 * LIVE),
    ]


def _measure_result() -> Figure:
    """Until the table is readable, and one column of it was read."""
    expected = ROWS * (ROWS - 1) // 2 + 7 * ROWS
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        source = str(Path(folder) / "one.duckdb")
        with duckdb.connect(source) as writer:
            writer.execute("CREATE TABLE one AS SELECT 1 AS n")
        unlimited = {"rows": 0, "bytes": 0, "timeout_s": 600}
        with (
            duckdb.connect(source, read_only=True) as plain,
            App(home=Path(folder) / "home", limits=unlimited) as app,
            app.open_session(source, record=False) as session,
        ):
            plain.execute("SET enable_progress_bar = false")  # it would write over the table of figures
            assert session.execute("import etude, pyarrow.compute as pc\ndb = etude.connect(); db.sql('select 1')").ok

            def ask_plain() -> None:
                table = plain.sql(RESULT).to_arrow_table()
                assert pc.sum(table["other"]).as_py() == expected
                assert table.nbytes >= 1e9

            def ask() -> None:
                code = f"table = db.sql({RESULT!r}).arrow(); [pc.sum(table['other']).as_py(), table.nbytes >= 1e9]"
                cell = session.execute(f"{code}")
                assert cell.value == [expected, True], cell
                assert session.execute("del table").ok  # the other side lets go of its table too

            medians([ask_plain, ask], 1)
            peer, ours = medians([ask_plain, ask], ROUNDS)
    return Figure("1 GB of Arrow data, until a column of it is summed", ours, peer, "s", most_ratio=1.5)
