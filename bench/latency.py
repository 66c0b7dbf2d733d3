"""What a query costs that costs nothing: the way to the engine process and back, and the record of a run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

import duckdb

import etude
from bench.figure import Figure, medians
from etude.app import App

CALLS = 2000
RECORDED_CALLS = 500


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        path = Path(folder) / "one.duckdb"
        with duckdb.connect(str(path)) as writer:
            writer.execute("CREATE TABLE one AS SELECT 1 AS n")
        with (
            App(home=Path(folder) / "home") as app,
            etude.connect(path, app=app) as db,
            duckdb.connect(str(path), read_only=True) as plain,
        ):

            def ask_plain() -> None:
                assert plain.execute("select 1").fetchall() == [(1,)]

            def ask() -> None:
                assert db.sql("select 1", record=False).rows() == [(1,)]

            def ask_recorded() -> None:
                assert db.sql("select 1", record=True).rows() == [(1,)]

            medians([ask_plain, ask, ask_recorded], 50)
            peer, ours = medians([ask_plain, ask], CALLS)
            with (Path(folder) / "synced").open("wb", buffering=0) as file:
                sides = [ask, ask_recorded, lambda: _sync_twice(file)]
                unrecorded, recorded, synced = medians(sides, RECORDED_CALLS)
    return [
        Figure("select 1, not recorded, against plain DuckDB", ours * 1e3, peer * 1e3, "ms", most_over=0.5),
        Figure("select 1, recorded, against not recorded", recorded * 1e3, unrecorded * 1e3, "ms", most_over=5),
        Figure("what recording adds, against two bare fsyncs", (recorded - unrecorded) * 1e3, synced * 1e3, "ms"),
    ]


def _sync_twice(file: IO[bytes]) -> None:
    """What no record can go without: one synchronous write when a run begins, and one when it ends."""
    for _ in range(2):
        file.write(bytes(4096))
        os.fsync(file.fileno())
