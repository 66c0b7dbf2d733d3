"""The observer beside `POST /sql`: two servers on equal stores, one that observes and one that does not, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.server import Connection, free_port, wait_for
from etude.sample import write_shop

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
SLICE_S = float(os.environ.get("BENCH_SLICE_S", "10"))
EVERY_S = 10.0
"""The observer looks 30 times as often here as in a server, so that each slice has a cycle."""
CONNECTIONS = 8
WARM = 2_000
"""Recorded queries in each store before anything is measured: what a cycle has to read."""
SERVER = """
import functools, sys
import etude.api.server as server
server.observing = functools.partial(server.observing, every_s=float(sys.argv.pop(1)))
from etude.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
QUERY = {"dataset": "shop", "query": "SELECT status, count(*) FROM orders GROUP BY 1"}


def measure_observer() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder, servers(Path(folder)) as (watched, alone):
        rates = asyncio.run(_throughput([watched, alone]))
    for name, found in zip(("with", "without"), rates):
        print(f"{name} the observer, requests a second: {[round(r) for r in found]}", file=sys.stderr)
    ours, peer = (1000 / statistics.median(found) for found in rates)
    return [
        Figure(f"POST /sql, recorded, observed every {EVERY_S:g} s, per request", ours, peer, "ms", most_ratio=1.05),
    ]


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[int, int]]:
    """Two servers, each with a home of its own: the port of the one that observes, and of the other."""
    write_shop(folder / "shop")
    ports, processes = [], []
    try:
        for every_s in (EVERY_S, 1e6):
            port = free_port()
            home = {"ETUDE_HOME": str(folder / f"home-{every_s:g}")}
            command = [sys.executable, "-c", SERVER, str(every_s), "serve", str(folder / "shop"), "--port", str(port)]
            processes.append(subprocess.Popen(command, env=os.environ | home, stderr=subprocess.DEVNULL))
            wait_for(port, processes[-1])
            ports.append(port)
        yield ports[0], ports[1]
    finally:
        for process in processes:
            process.terminate()
            process.wait(60)


async def _throughput(ports: list[int]) -> list[list[float]]:
    """Requests a second of each server, in turns."""
    for port in ports:
        await _send(port, count=WARM)
    rates: list[list[float]] = [[], []]
    for number in range(ROUNDS):
        # Each goes first in every other round.
        for side in (0, 1) if number % 2 else (1, 0):
            rates[side].append(await _send(ports[side], seconds=SLICE_S))
    return rates


async def _send(port: int, seconds: float = 1e9, count: int = 10**9) -> float:
    started, done = time.perf_counter(), 0

    async def client() -> None:
        nonlocal done
        connection = Connection(port)
        while time.perf_counter() - started < seconds and done < count:
            done += 1
            status, body = await connection.send("POST", "/api/sql", QUERY)
            assert status == 200, body[:300]
        await connection.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return done / (time.perf_counter() - started)
