"""The 22 queries of TPC-H at scale factor 1, on a folder of Parquet and on a DuckDB file, against plain DuckDB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb

from bench.figure import Figure, medians
from etude.app import App

ROUNDS = 5
HERE = Path(__file__).parent
FOLDER = HERE / "data" / "tpch"
DATABASE = HERE / "data" / "tpch.duckdb"

Rows = list[tuple[object, ...]]


def measure() -> list[Figure]:
    _generate()
    queries = {p.stem: p.read_text(encoding="utf-8") for p in sorted((HERE / "tpch").glob("q*.sql"))}
    return [
        *_compare("a folder of Parquet", str(FOLDER), _views(), queries),
        *_compare("a DuckDB file", str(DATABASE), duckdb.connect(str(DATABASE), read_only=True), queries),
    ]


def _generate() -> None:
    """Make the data once. It gets its name when complete, so that a broken attempt is not taken for it."""
    if not FOLDER.exists():
        FOLDER.parent.mkdir(parents=True, exist_ok=True)
        part = FOLDER.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        tool = Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run([tool, "parquet", "-s", "1", "-o", part, "--no-progress"], check=True)
        part.rename(FOLDER)
    if not DATABASE.exists():
        part = DATABASE.with_suffix(".part")
        part.unlink(missing_ok=True)
        with duckdb.connect(str(part)) as writer:
            for file in sorted(FOLDER.glob("*.parquet")):
                writer.execute(f"CREATE TABLE {file.stem} AS FROM '{file}'")
        part.rename(DATABASE)


def _views() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for file in sorted(FOLDER.glob("*.parquet")):
        connection.execute(f"CREATE VIEW {file.stem} AS FROM '{file}'")
    return connection


def _compare(what: str, source: str, plain: duckdb.DuckDBPyConnection, queries: dict[str, str]) -> list[Figure]:
    plain.execute(f"SET threads = {os.cpu_count()}")
    totals = [0.0, 0.0, 0.0]
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=Path(home)) as app, plain:
        for name, sql in queries.items():
            sides = _sides(app, source, plain, sql)
            # The first round warms up and is compared, not counted.
            expected, *found = [side() for side in sides]
            for rows in found:
                assert rows == expected, f"{name} on {what} differs from plain DuckDB"
            for position, seconds in enumerate(medians(sides, ROUNDS)):
                totals[position] += seconds
    peer, unrecorded, recorded = totals
    return [
        Figure(f"TPC-H SF1 on {what}, not recorded", unrecorded, peer, "s", most_ratio=1.05),
        # What recording may add is set for a query, not for these: see latency.
        Figure(f"TPC-H SF1 on {what}, recorded", recorded, peer, "s"),
    ]


def _sides(app: App, source: str, plain: duckdb.DuckDBPyConnection, sql: str) -> list[Callable[[], Rows]]:
    return [
        lambda: plain.execute(sql).fetchall(),
        lambda: app.sql(source, sql, record=False).rows(),
        lambda: app.sql(source, sql, record=True).rows(),
    ]
