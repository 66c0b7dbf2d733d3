"""A noisy neighbour: what endless queries, heavy cells and bad requests of a tenant cost the `SELECT 1` of another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil

from bench.figure import Figure
from bench.server import free_port, wait_for
from etude.app import App
from etude.entities import SourceSpec
from etude.store.identity import Identity, KeyLimits

NOISE_S = float(os.environ.get("BENCH_NOISE_S", "60"))
QUIET_S = float(os.environ.get("BENCH_QUIET_S", "10"))
QUERIES = CELLS = 40
FLOOD_PER_S = float(os.environ.get("BENCH_FLOOD_PER_S", "12000"))
"""Bad requests per second."""
FLOODERS = 1000
"""Connections with bad requests that are open at once, at most."""
AHEAD = 200
"""Bad requests that are sent on each connection."""
ENDLESS = "SELECT count(*) FROM range(10000000000000) t(i) WHERE i % 7 = 3"
HEAVY = "PYTHON:\nkept = [bytearray(1 << 20) for _ in range(20)]\nwhile True:\n    sum(i * i for i in range(100_000))"
QUERY = {"dataset": "data", "query": "SELECT 1"}


@dataclass
class Seen:
    """What the quiet tenant saw, and what became of the noise."""

    times: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    statuses: dict[str, dict[int, int]] = field(default_factory=dict)
    flood: dict[str, Any] = field(default_factory=dict)

    def count(self, what: str, status: int) -> None:
        found = self.statuses.setdefault(what, {})
        found[status] = found.get(status, 0) + 1


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder, _server(Path(folder)) as (port, keys, process):
        asyncio.run(_ask(port, keys["quiet"], 3.0, Seen()))  # starts the engine
        quiet = Seen()
        asyncio.run(_ask(port, keys["quiet"], QUIET_S, quiet))
        idle = process.memory_info().rss
        highest = [idle]
        done = threading.Event()
        watch = threading.Thread(target=_watch, args=(process, highest, done), daemon=True)
        watch.start()
        loaded = asyncio.run(_beside_noise(port, keys))
        done.set()
        watch.join()
    print(f"answers to the noise: {json.dumps(loaded.statuses)}", file=sys.stderr)
    print(f"bad requests: {json.dumps(loaded.flood)}", file=sys.stderr)
    sent, answered = loaded.flood["sent"], sum(loaded.flood["answered"].values())
    for failure in loaded.failures[:5]:
        print(failure, file=sys.stderr)
    return [
        Figure("SELECT 1 of a quiet tenant", statistics.median(quiet.times) * 1e3, None, "ms"),
        Figure(
            "SELECT 1 beside a noisy tenant",
            statistics.median(loaded.times) * 1e3,
            statistics.median(quiet.times) * 1e3,
            "ms",
            most_ratio=10,
        ),
        Figure("the same: 99th percentile", _at(loaded.times, 0.99) * 1e3, _at(quiet.times, 0.99) * 1e3, "ms"),
        Figure(f"failures among {len(loaded.times)} queries", len(loaded.failures), None, "", most=0),
        Figure("bad requests sent", sent / loaded.flood["seconds"], None, "/s", least=10_000),
        Figure("the same: answered", answered / loaded.flood["seconds"], None, "/s"),
        Figure("memory of the server beyond idle", (max(highest) - idle) / (1 << 20), None, "MiB", most=500),
    ]


def _at(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)]


def _watch(process: psutil.Process, highest: list[int], done: threading.Event) -> None:
    while not done.wait(0.2):
        highest.append(process.memory_info().rss)


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[int, dict[str, str], psutil.Process]]:
    """A server with two tenants, each with a database of its own; its port, their keys, its process."""
    keys = {}
    with App(home=folder / "home") as app:
        for tenant in ("noisy", "quiet"):
            duckdb.connect(folder / f"{tenant}.duckdb").close()
            app.scoped(tenant).add_source("data", SourceSpec(url=str(folder / f"{tenant}.duckdb")))
            unlimited = KeyLimits(per_minute=0, at_once=0)
            keys[tenant] = Identity(app.store).create_key(tenant, "analyst", tenant, unlimited)[1]
    port = free_port()
    environment = os.environ | {"ETUDE_HOME": str(folder / "home")}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "etude", "serve", "--keys", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stderr=log)
        try:
            wait_for(port, process)
            yield port, keys, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(90)


async def _send(port: int, key: str | None, path: str, body: bytes, streams: list[object]) -> int:
    """Send one request on a connection that stays open in `streams`; return the status."""
    if not streams:
        streams[:] = await asyncio.open_connection("127.0.0.1", port)
    reader, writer = streams
    allowed = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{allowed}content-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)  # type: ignore[attr-defined]
    try:
        top = (await reader.readuntil(b"\r\n\r\n")).lower()  # type: ignore[attr-defined]
        length = int(top.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)  # type: ignore[attr-defined]
    except (OSError, asyncio.IncompleteReadError):
        writer.close()  # type: ignore[attr-defined]
        streams.clear()
        return 0
    return int(top[9:12])


async def _ask(port: int, key: str, seconds: float, seen: Seen) -> None:
    streams: list[object] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        status = await _send(port, key, "/sql", json.dumps(QUERY).encode(), streams)
        seen.times.append(time.perf_counter() - started)
        if status != 200:
            seen.failures.append(f"SELECT 1: status {status}")
        await asyncio.sleep(0.02)


async def _beside_noise(port: int, keys: dict[str, str]) -> Seen:
    seen = Seen()
    tasks = [asyncio.create_task(_repeat(port, keys["noisy"], "query", seen)) for _ in range(QUERIES)]
    tasks += [asyncio.create_task(_repeat(port, keys["noisy"], "cell", seen)) for _ in range(CELLS)]
    flood = subprocess.Popen(
        [sys.executable, "-m", "bench.neighbour", str(port), keys["noisy"]], stdout=subprocess.PIPE
    )
    await _ask(port, keys["quiet"], NOISE_S, seen)
    flood.terminate()
    seen.flood = json.loads(flood.communicate()[0])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def _repeat(port: int, key: str, what: str, seen: Seen) -> None:
    path, body = (
        ("/sql", QUERY | {"query": ENDLESS}) if what == "query" else ("/ask", {"question": HEAVY, "dataset": "data"})
    )
    streams: list[object] = []
    try:
        while True:
            seen.count(what, await _send(port, key, path, json.dumps(body).encode(), streams))
            await asyncio.sleep(0.1)
    finally:
        if streams:
            streams[1].close()  # type: ignore[attr-defined]


class _Flooder:
    """Sends bad requests at a fixed rate, however few are answered: a few ahead on each of many connections.

    The requests are written once and sent as they are, and of the answers only the status is read.
    """

    def __init__(self, port: int, key: str) -> None:
        self._address = ("127.0.0.1", port)
        bad = [(None, "{}"), ("etude_wrong", "{}"), (key, "{"), (key, '{"query": 1}'), (key, '{"query": "", "x": 1}')]
        requests = [self._write(*each) for each in bad]
        self._batches = [b"".join(requests[(first + n) % len(bad)] for n in range(AHEAD)) for first in range(len(bad))]
        self._selector = selectors.DefaultSelector()
        self._statuses: Counter[int] = Counter()
        self._begun = self._sent = 0

    @staticmethod
    def _write(key: str | None, body: str) -> bytes:
        allowed = f"authorization: Bearer {key}\r\n" if key else ""
        head = f"POST /sql HTTP/1.1\r\nhost: localhost\r\n{allowed}content-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()

    def run(self) -> None:
        """Send until terminated, then print how many were sent and answered."""
        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
        started = time.perf_counter()
        while not ended:
            due = (time.perf_counter() - started) * FLOOD_PER_S - self._begun
            for _ in range(int(due / AHEAD)):
                self._open()
            self._exchange(0.002)
        seconds = time.perf_counter() - started
        print(json.dumps({"sent": self._sent, "seconds": seconds, "answered": dict(sorted(self._statuses.items()))}))

    def _open(self) -> None:
        self._begun += AHEAD
        if len(self._selector.get_map()) >= FLOODERS:
            return  # nothing more is sent before the server has closed some
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(self._address)
        self._selector.register(connection, selectors.EVENT_WRITE, [])

    def _exchange(self, seconds: float) -> None:
        """Send on connections that were opened, and read what has come on others."""
        for found, _ in self._selector.select(seconds):
            connection = found.fileobj
            assert isinstance(connection, socket.socket)
            try:
                if found.events == selectors.EVENT_WRITE:
                    connection.send(self._batches[self._sent // AHEAD % len(self._batches)])
                    self._sent += AHEAD
                    self._selector.modify(connection, selectors.EVENT_READ, found.data)
                    continue
                answer = connection.recv(1 << 16)
            except OSError:
                answer = b""
            found.data.extend(map(int, re.findall(rb"HTTP/1.1 (\d+)", answer)))
            if not answer or len(found.data) == AHEAD:
                self._statuses.update(found.data)
                self._selector.unregister(connection)
                connection.close()


if __name__ == "__main__":
    _Flooder(int(sys.argv[1]), sys.argv[2]).run()
