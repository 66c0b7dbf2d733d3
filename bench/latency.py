"""What a query costs that costs nothing: the way to the engine process and back, and the record of a run."""

from __future__ import annotations

import tempfile
from pathlib import Path

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
            unrecorded, recorded = medians([ask, ask_recorded], RECORDED_CALLS)
    return [
        Figure("select 1, not recorded, against plain DuckDB", ours * 1e3, peer * 1e3, "ms", most_over=0.5),
        Figure("select 1, recorded, against not recorded", recorded * 1e3, unrecorded * 1e3, "ms", most_over=5),
    ]
