"""The server: `POST /sql` beside a bare FastAPI route that runs the same DuckDB query, and many clients at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psutil

from bench.figure import Figure
from etude.sample import write_shop

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SLICE_S = 2.0
CONNECTIONS = 16
CLIENTS = 200
LOAD_S = float(os.environ.get("BENCH_LOAD_S", "60"))
BARE = """
import duckdb, sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Query(BaseModel):
    query: str

api, db = FastAPI(), duckdb.connect()

@api.post("/sql")
def sql(body: Query):
    found = db.cursor().execute(body.query)
    return {"columns": [c[0] for c in found.description], "rows": found.fetchall()}

uvicorn.run(api, port=int(sys.argv[1]), log_level="error", access_log=False)
"""
GROUPED = "SELECT status, count(*) FROM orders GROUP BY 1"
SCRIPT = [{"asked": "", "turns": [{"text": "Let me see. " * 5, "pace_s": 0.01}]}]


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder, servers(Path(folder)) as (ours, bare, process):
        unrecorded, recorded, peer = asyncio.run(_throughput(ours, bare))
        figures = [
            Figure(
                "POST /sql select 1, unrecorded, per request", 1000 / unrecorded, 1000 / peer, "ms", most_ratio=1 / 0.6
            ),
            Figure("POST /sql select 1, recorded, per request", 1000 / recorded, 1000 / peer, "ms"),
        ]
        if LOAD_S:
            figures += _under_load(ours, process)
        return figures


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[int, int, psutil.Process]]:
    """Both servers, each in a process of its own: our port, the bare one's, our process."""
    write_shop(folder / "shop")
    duckdb.connect(folder / "empty.duckdb").close()
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    ours, bare = free_port(), free_port()
    environment = os.environ | {"ETUDE_HOME": str(folder / "home"), "ETUDE_MODEL": f"scripted:{folder}/script.json"}
    environment |= {"ETUDE_SERVER__RUNS": "400"}
    log = (folder / "log").open("wb")
    sources = [folder / "shop", folder / "empty.duckdb"]
    command = [sys.executable, "-m", "etude", "serve", *map(str, sources), "--port", str(ours)]
    first = subprocess.Popen(command, env=environment, stderr=log)
    second = subprocess.Popen([sys.executable, "-c", BARE, str(bare)], stderr=subprocess.DEVNULL)
    try:
        wait_for(ours, first)
        wait_for(bare, second)
        yield ours, bare, psutil.Process(first.pid)
    finally:
        for process in (first, second):
            process.terminate()
            process.wait(60)
        log.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {process.args}")


# A client that costs little: a keep-alive connection, bytes out, bytes in.


class Connection:
    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: object = None, whole: bool = True) -> tuple[int, bytes]:
        """The status and body of one request; of a stream, all of it."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        top = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(top[9:12])
        if b"content-length: " in top:
            length = int(top.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return status, await reader.readexactly(length)
        if b"transfer-encoding: chunked" in top:
            return status, await self._chunks(reader)
        return status, b""

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        found = []
        while size := int(await reader.readline(), 16):
            found.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(found)

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None


async def _throughput(ours: int, bare: int) -> tuple[float, float, float]:
    """Requests a second: ours without a record, ours with one, the bare route's; measured in turns."""
    query = {"dataset": "empty", "query": "select 1"}
    sides = [(ours, query | {"record": False}), (ours, query), (bare, {"query": "select 1"})]
    rates: list[list[float]] = [[], [], []]
    for turn in range(ROUNDS + 1):
        for index, (port, body) in enumerate(sides):
            rate = await _rate(port, body)
            if turn:  # the first warms up
                rates[index].append(rate)
    return tuple(statistics.median(r) for r in rates)  # type: ignore[return-value]


async def _rate(port: int, body: object) -> float:
    until, count = time.perf_counter() + SLICE_S, 0

    async def ask() -> None:
        nonlocal count
        connection = Connection(port)
        while time.perf_counter() < until:
            status, answer = await connection.send("POST", "/sql", body)
            assert status == 200, answer
            count += 1
        await connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
    return count / (time.perf_counter() - started)


# Many clients that do different things.


@dataclass
class Load:
    times: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def _under_load(port: int, process: psutil.Process) -> list[Figure]:
    """Clients that query, chat and follow streams, all at once."""
    asyncio.run(_run_load(port, min(5.0, LOAD_S)))  # what is opened once is opened before the first look
    before = process.memory_info().rss
    load = asyncio.run(_run_load(port, LOAD_S))
    after = process.memory_info().rss
    for error in sorted(set(load.errors))[:5]:
        print(error, file=sys.stderr)
    total = sum(map(len, load.times.values()))
    figures = [
        Figure(
            f"{CLIENTS} clients for {LOAD_S:g} s: errors among {total:,} requests", len(load.errors), None, "", most=0
        ),
        Figure("memory after the load, beyond that before", (after - before) / (1 << 20), None, "MiB", most=64),
    ]
    for name, times in sorted(load.times.items()):
        ordered = sorted(times)
        figures.append(Figure(f"{name}: median", ordered[len(ordered) // 2] * 1000, None, "ms"))
        figures.append(Figure(f"{name}: p99", ordered[int(len(ordered) * 0.99)] * 1000, None, "ms"))
    return figures


async def _run_load(port: int, seconds: float) -> Load:
    load, until = Load(), time.perf_counter() + seconds
    await asyncio.gather(*(_client(port, number, until, load) for number in range(CLIENTS)))
    return load


async def _client(port: int, number: int, until: float, load: Load) -> None:
    chance = random.Random(number)
    connection = Connection(port)
    while time.perf_counter() < until:
        name = chance.choices(("sql", "chat", "stream"), (8, 1, 1))[0]
        started = time.perf_counter()
        try:
            status, body = await _act(connection, name)
        except (OSError, asyncio.IncompleteReadError) as error:
            status, body = 0, repr(error).encode()
            await connection.close()
        load.times.setdefault(name, []).append(time.perf_counter() - started)
        if status != 200:
            load.errors.append(f"{name}: {status} {body[:200].decode(errors='replace')}")
        await asyncio.sleep(chance.random() * 0.2)
    await connection.close()


async def _act(connection: Connection, name: str) -> tuple[int, bytes]:
    match name:
        case "sql":
            return await connection.send("POST", "/sql", {"dataset": "shop", "query": GROUPED})
        case "chat":
            return await connection.send("POST", "/chat", {"message": "hello", "dataset": "shop"})
        case _:
            status, body = await connection.send("POST", "/runs", {"kind": "ask", "text": "hello", "dataset": "shop"})
            if status != 202:
                return status, body
            return await connection.send("GET", f"/runs/{json.loads(body)['id']}/events")
