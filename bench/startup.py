"""What the command line takes to begin: time against Python itself, processor time against a script with DuckDB."""

from __future__ import annotations

import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb

from bench.figure import Figure, medians

ROUNDS = 31
CPU_ROUNDS = 15
ETUDE = str(Path(sys.executable).parent / "etude")
PLAIN = "import duckdb; duckdb.sql('select 1')"


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        path, other = str(Path(folder) / "one.duckdb"), str(Path(folder) / "one.sqlite")
        with duckdb.connect(path) as writer:
            writer.execute("CREATE TABLE items AS SELECT 1 AS n")
        with sqlite3.connect(other) as lite:
            lite.execute("CREATE TABLE items (n INTEGER)")
        # Modules are compiled once, as an installation does.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"ETUDE_HOME": str(Path(folder) / "home")}
        code = f"import duckdb; print(duckdb.connect({path!r}, read_only=True).execute('select 1').fetchall())"
        commands = [
            [sys.executable, "-c", "pass"],
            [ETUDE, "--help"],
            [ETUDE, "sql", path, "select 1"],
            [ETUDE, "sql", path, "select 1", "--no-record"],
            [sys.executable, "-c", code],
        ]
        python, show_help, query, unrecorded, plain = medians([_running(environment, *c) for c in commands], ROUNDS)
        cpu = _processor_seconds(
            environment,
            [
                [sys.executable, "-c", PLAIN],
                [ETUDE, "sql", path, "select 1"],
                [ETUDE, "sql", other, "select 1"],
                [ETUDE, "ask", path, "How many items are there?"],
            ],
        )
    return [
        Figure("etude --help, against python -c pass", show_help * 1e3, python * 1e3, "ms", most_ratio=6),
        Figure("etude sql FILE 'select 1', against a script with DuckDB", query * 1e3, plain * 1e3, "ms"),
        Figure("the same with --no-record", unrecorded * 1e3, plain * 1e3, "ms"),
        Figure("processor time of etude sql on a DuckDB file", cpu[1] * 1e3, cpu[0] * 1e3, "ms", most_ratio=2.2),
        Figure("processor time of etude sql on a SQLite file", cpu[2] * 1e3, cpu[0] * 1e3, "ms", most_ratio=2.2),
        Figure("processor time of etude ask without a model", cpu[3] * 1e3, cpu[0] * 1e3, "ms"),
    ]


def _running(environment: Mapping[str, str], *command: str) -> Callable[[], None]:
    def run() -> None:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    return run


def _processor_seconds(environment: Mapping[str, str], commands: Sequence[Sequence[str]]) -> list[float]:
    """The median processor seconds of each command with its engine, measured in turns."""
    used: list[list[float]] = [[] for _ in commands]
    for _ in range(CPU_ROUNDS):
        for times, command in zip(used, commands):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _running(environment, *command)()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [statistics.median(times) for times in used]
