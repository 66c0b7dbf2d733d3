"""A source with thousands of tables: how questions without a model grow with it, and what they cost other clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path

import duckdb

from bench.figure import Figure
from bench.server import Connection, free_port, wait_for
from etude.app import App

SIZES = (10, 100, 1_000, 2_000)
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SLICE_S = 4.0
NOUNS = ("customer", "order", "invoice", "payment", "product", "shipment", "employee", "supplier", "ticket", "visit")
QUESTIONS = (
    "How many customers are in Berlin?",
    "amount per month",
    "How many area 3 orders are open?",
    "What is the meaning of life?",
)


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        for tables in SIZES:
            path = Path(folder) / f"wide{tables}.sqlite"
            write_wide(path, tables)
            first, later = _answer(path, Path(folder) / f"home{tables}")
            most = (5.0, 0.3) if tables == max(SIZES) else (None, None)
            figures.append(Figure(f"offline, {tables:,} tables: the first question", first, None, "s", most=most[0]))
            figures.append(Figure(f"offline, {tables:,} tables: later ones", later, None, "s", most=most[1]))
        wide = path.rename(Path(folder) / "wide.sqlite")
        quiet, first, later = asyncio.run(_beside(Path(folder), wide))
    figures.append(Figure("POST /sql beside 4 first questions", first * 1e3, quiet * 1e3, "ms", most_ratio=2))
    figures.append(Figure("POST /sql beside 4 later questions", later * 1e3, quiet * 1e3, "ms", most_ratio=2))
    return figures


def write_wide(path: Path, tables: int) -> None:
    """A source of areas with ten tables each, every table with a key to the one before."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        before = ""
        for number in range(tables):
            name = f"area{number // 10}_{NOUNS[number % 10]}"
            key = f", {before}_id INTEGER REFERENCES {before}(id)" if before else ""
            connection.execute(
                f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, city TEXT, status TEXT, amount REAL, "
                f"created DATE{key})"
            )
            rows = [
                (n, f"{name} {n}", ("Berlin", "Paris", "Rome")[n % 3], ("open", "closed")[n % 2], n * 1.5,
                 f"2024-0{1 + n % 9}-11", *([n] if before else []))
                for n in range(1, 21)
            ]  # fmt: skip
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            before = name
        connection.commit()


def _answer(path: Path, home: Path) -> tuple[float, float]:
    """Seconds of the first question, and the median of later ones."""
    with App(home=home) as app:
        app.sql(str(path), "select 1", record=False).rows()  # the engine runs already, as in a server at work
        times = []
        for question in QUESTIONS * (1 + ROUNDS):
            started = time.perf_counter()
            app.ask(str(path), question, model="offline")
            times.append(time.perf_counter() - started)
    return times[0], statistics.median(times[len(QUESTIONS) :])


async def _beside(folder: Path, wide: Path) -> tuple[float, float, float]:
    """The median seconds of `select 1`: alone, beside four first questions, beside four later ones; in turns."""
    quiet, first, later = [], [], []
    with _server(folder, wide) as port:
        for turn in range(ROUNDS + 1):
            # A source that has changed is looked at anew.
            with contextlib.closing(sqlite3.connect(wide)) as connection:
                connection.execute(f"PRAGMA user_version = {turn + 1}")
            beside_first = await _times(port, *(_ask(port, 0) for _ in range(4)))
            alone = await _times(port, asyncio.sleep(SLICE_S))
            until = time.perf_counter() + SLICE_S
            beside_later = await _times(port, *(_ask(port, until) for _ in range(4)))
            if turn:  # the first warms up
                quiet += alone
                first += beside_first
                later += beside_later
    return statistics.median(quiet), statistics.median(first), statistics.median(later)


async def _times(port: int, *others: Coroutine[None, None, None]) -> list[float]:
    """Seconds of each `select 1` while the others are at work."""
    connection, times = Connection(port), []
    query = {"dataset": "empty", "query": "select 1", "record": False}
    await connection.send("POST", "/sql", query)  # an engine that was idle for long is started again
    working = asyncio.gather(*others)
    while not working.done():
        started = time.perf_counter()
        status, answer = await connection.send("POST", "/sql", query)
        assert status == 200, answer
        times.append(time.perf_counter() - started)
    await working
    await connection.close()
    return times


async def _ask(port: int, until: float) -> None:
    """One client that asks once, and again until the time is over."""
    connection, number = Connection(port), 0
    while not number or time.perf_counter() < until:
        body = {"message": QUESTIONS[number % len(QUESTIONS)], "dataset": "wide", "model": "offline"}
        status, answer = await connection.send("POST", "/chat", body)
        assert status < 500, answer
        number += 1
    await connection.close()


@contextlib.contextmanager
def _server(folder: Path, wide: Path) -> Iterator[int]:
    duckdb.connect(folder / "empty.duckdb").close()
    port = free_port()
    command = [sys.executable, "-m", "etude", "serve", str(wide), str(folder / "empty.duckdb")]
    environment = os.environ | {"ETUDE_HOME": str(folder / "home")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--port", str(port)], env=environment, stderr=log)
        try:
            wait_for(port, process)
            yield port
        finally:
            process.terminate()
            process.wait(60)
