"""A large result on its way to a Parquet file: the memory of all processes together, and the time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil

from bench.figure import Figure

ROWS = 10_000_000
ROUNDS = 3
SAMPLE_S = 0.02
ETUDE = str(Path(sys.executable).parent / "etude")
QUERY = f"""SELECT i, i % 1000 AS group_id, hash(i)::DOUBLE / 1e9 AS amount, sqrt(i) AS root,
    'customer ' || (i % 100000) AS customer, md5(i::VARCHAR) AS token FROM range({ROWS}) r(i)"""


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    seconds: float
    megabytes: float


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        source, out = str(Path(folder) / "one.duckdb"), str(Path(folder) / "out.parquet")
        with duckdb.connect(source) as writer:
            writer.execute("CREATE TABLE one AS SELECT 1 AS n")
        environment = os.environ | {"ETUDE_HOME": str(Path(folder) / "home")}
        copy = f"import duckdb; duckdb.connect({source!r}, read_only=True).execute({_copy_to(out)!r})"
        ask = [ETUDE, "sql", source, QUERY, "--limit-rows", "0", "--timeout", "600", "--output", out]
        sides = [[sys.executable, "-c", copy], [*ask, "--no-record"], ask]
        costs: list[list[Cost]] = [[] for _ in sides]
        for _ in range(ROUNDS):
            for side, command in zip(costs, sides):
                side.append(watch(command, environment))
                _check(out)
    plain, unrecorded, recorded = (_median(c) for c in costs)
    what = f"{ROWS // 10**6} million rows to Parquet"
    return [
        Figure(f"peak memory, {what}, not recorded", unrecorded.megabytes, plain.megabytes, "MB", most_over=150),
        Figure(f"peak memory, {what}, recorded", recorded.megabytes, plain.megabytes, "MB", most_over=150),
        Figure(f"time, {what}, not recorded", unrecorded.seconds, plain.seconds, "s"),
        Figure(f"time, {what}, recorded", recorded.seconds, plain.seconds, "s"),
    ]


def _copy_to(out: str) -> str:
    # The same compression as etude's, so that both do the same work.
    return f"COPY ({QUERY}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"


def _check(out: str) -> None:
    checks = "count(*), sum(i), count(DISTINCT customer)"
    found = duckdb.connect().execute(f"SELECT {checks} FROM read_parquet('{out}')").fetchall()
    assert found == [(ROWS, ROWS * (ROWS - 1) // 2, 100_000)], found
    os.unlink(out)


def watch(command: list[str], environment: Mapping[str, str]) -> Cost:
    peak = 0
    started = time.perf_counter()
    process = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, sum(map(proportional, [process.pid, *_descendants(process)])))
        time.sleep(SAMPLE_S)
    seconds = time.perf_counter() - started
    assert process.returncode == 0, command
    return Cost(seconds, peak / 1e6)


def _descendants(process: psutil.Popen) -> list[int]:
    try:
        return [c.pid for c in process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def proportional(pid: int) -> int:
    """The process's share of memory in bytes: a page that several processes have counts once among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _median(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(c.seconds for c in costs), statistics.median(c.megabytes for c in costs))
