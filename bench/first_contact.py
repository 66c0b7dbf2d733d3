"""The first and the second query on a CSV of two million rows, against DuckDB's own `read_csv`."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import duckdb

from bench.figure import Figure, medians
from etude.app import App

ROUNDS = 3
ROWS = 2_000_000
QUERY = "SELECT region, sum(amount) AS total, count(*) AS n FROM {} GROUP BY ALL ORDER BY ALL"


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        path = Path(folder) / "big.csv"
        _write(path)
        home = Path(folder) / "home"

        def plain() -> None:
            with duckdb.connect() as con:
                con.execute(QUERY.format(f"read_csv('{path}')")).fetchall()

        def first() -> None:
            shutil.rmtree(home, ignore_errors=True)
            with App(home=home, record=False) as app:
                app.sql(str(path), QUERY.format("big")).rows()

        def second() -> None:
            with App(home=home, record=False) as app:
                app.sql(str(path), QUERY.format("big")).rows()

        peer, ours, again = medians([plain, first, second], ROUNDS)
        command = [str(Path(sys.executable).parent / "etude"), "sql", str(path), QUERY.format("big")]
        told = min(_first_word(command, os.environ | {"ETUDE_HOME": str(Path(folder) / f"new{n}")}) for n in range(3))
    # A wait of which the first word comes soon may be longer.
    most = None if told <= 0.5 else 3
    return [
        Figure("first query on a CSV of 2M rows, against read_csv", ours * 1e3, peer * 1e3, "ms", most_ratio=most),
        Figure("second query on it, after opening etude again", again * 1e3, peer * 1e3, "ms", most_ratio=1.5),
        Figure("until a terminal shows progress", told * 1e3, None, "ms", most=500),
    ]


def _first_word(command: list[str], environment: Mapping[str, str]) -> float:
    """The seconds from the start of a command to the first text on its terminal."""
    master, slave = pty.openpty()
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    text = os.read(master, 1 << 16)
    seconds = time.perf_counter() - started
    process.kill()
    process.wait()
    os.close(master)
    assert b"running the query" in text or b"reading" in text, text
    return seconds


def _write(path: Path) -> None:
    duckdb.execute(
        f"""COPY (SELECT i AS id, 'customer ' || (i * 7919 % 100000) AS customer,
            DATE '2020-01-01' + (i % 1500)::INT AS day, round((i * 31 % 100000) / 100.0, 2) AS amount,
            (['north', 'south', 'east', 'west'])[1 + i % 4] AS region, i % 100 AS quantity, i % 3 = 0 AS paid
            FROM range({ROWS}) t(i)) TO '{path}' (HEADER)"""
    )
