"""A noisy neighbour: what endless queries, heavy cells and bad requests of a tenant cost the `SELECT 1` of another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
FLOODERS = 32
"""Connections that send bad requests, each as fast as it gets answers."""
ENDLESS = "SELECT count(*) FROM range(10000000000000) t(i) WHERE i % 7 = 3"
HEAVY = "PYTHON:\nkept = [bytearray(1 << 20) for _ in range(20)]\nwhile True:\n    sum(i * i for i in range(100_000))"
QUERY = {"dataset": "data", "query": "SELECT 1"}


@dataclass
class Seen:
    """What the quiet tenant saw, and what became of the noise."""

    times: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    statuses: dict[str, dict[int, int]] = field(default_factory=dict)

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
    seen.statuses["bad request"] = json.loads(flood.communicate()[0] or b"{}")
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


async def _flood(port: int, key: str) -> None:
    """Send requests without a key, with a wrong key, and with bodies that make no sense, until terminated."""
    statuses: dict[int, int] = {}
    bad = [(None, b"{}"), ("etude_wrong", b"{}"), (key, b"{"), (key, b'{"query": 1}'), (key, b'{"query": "", "x": 1}')]

    async def send(number: int) -> None:
        streams: list[object] = []
        while True:
            number += 1
            status = await _send(port, *((bad[number % len(bad)][0], "/sql", bad[number % len(bad)][1])), streams)
            statuses[status] = statuses.get(status, 0) + 1

    tasks = [asyncio.create_task(send(number)) for number in range(FLOODERS)]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    await stop.wait()
    print(json.dumps(statuses), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_flood(int(sys.argv[1]), sys.argv[2]))
