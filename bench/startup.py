"""How long the command line takes to begin, against Python itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb

from bench.figure import Figure, medians

ROUNDS = 31
ETUDE = str(Path(sys.executable).parent / "etude")


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        path = str(Path(folder) / "one.duckdb")
        with duckdb.connect(path) as writer:
            writer.execute("CREATE TABLE one AS SELECT 1 AS n")
        environment = os.environ | {"ETUDE_HOME": str(Path(folder) / "home")}
        code = f"import duckdb; print(duckdb.connect({path!r}, read_only=True).execute('select 1').fetchall())"
        python, show_help, query, unrecorded, plain = medians(
            [
                _running(environment, sys.executable, "-c", "pass"),
                _running(environment, ETUDE, "--help"),
                _running(environment, ETUDE, "sql", path, "select 1"),
                _running(environment, ETUDE, "sql", path, "select 1", "--no-record"),
                _running(environment, sys.executable, "-c", code),
            ],
            ROUNDS,
        )
    return [
        Figure("etude --help, against python -c pass", show_help * 1e3, python * 1e3, "ms", most_ratio=6),
        Figure("etude sql FILE 'select 1', against a script with DuckDB", query * 1e3, plain * 1e3, "ms"),
        Figure("the same with --no-record", unrecorded * 1e3, plain * 1e3, "ms"),
    ]


def _running(environment: Mapping[str, str], *command: str) -> Callable[[], None]:
    def run() -> None:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    return run
