"""The profile of a source: beside one scan, DuckDB's SUMMARIZE and ydata-profiling; its growth, memory and keys."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psutil

from bench import tpch
from bench.figure import Figure, alternate
from etude.app import App

ROUNDS = 3
TABLES = 1000
SCALES = (0.1, 1, 3)
YDATA = ("ydata-profiling", "pyarrow", "setuptools<81")
YDATA_ROWS = (50_000, 200_000)
DATA = Path(__file__).parent / "data"
TESTS = Path(__file__).parents[1] / "tests"
SAMPLE_S = 0.02

OURS = """
import sys, tempfile, etude
from pathlib import Path
from etude.app import App
from etude.catalog.measure.profile import profile_source
with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=Path(home)) as app:
    assert not [t for t in profile_source(etude.connect(sys.argv[1], app=app)).tables if t.error]
"""
THEIRS = """
import sys, pandas
from ydata_profiling import ProfileReport
frame = pandas.read_parquet(sys.argv[1])
ProfileReport(frame, minimal=sys.argv[2] == "minimal", progress_bar=False).to_html()
"""


@dataclass(frozen=True)
class Cost:
    """What a process and its children took."""

    seconds: float
    cpu: float
    megabytes: float


def measure() -> list[Figure]:
    folders = {scale: _generate(scale) for scale in SCALES}
    return [*_compare(folders[1]), *_costs(folders), *_many(), *_keys()]


def _generate(scale: float) -> Path:
    if scale == 1:
        tpch._generate()
        return tpch.FOLDER
    folder = DATA / f"tpch-{scale:g}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        tool = Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run([tool, "parquet", "-s", str(scale), "-o", part, "--no-progress"], check=True)
        part.rename(folder)
    return folder


def _compare(folder: Path) -> list[Figure]:
    """Wall time of one full scan, SUMMARIZE and the profile, in turns."""
    plain = duckdb.connect()
    plain.execute(f"SET threads = {os.cpu_count()}")
    scans, summaries = [], []
    for file in sorted(folder.glob("*.parquet")):
        plain.execute(f"CREATE VIEW {file.stem} AS FROM '{file}'")
        columns = plain.execute(f"DESCRIBE {file.stem}").fetchall()
        scans.append(f"SELECT count(*), {', '.join(map(_touch, columns))} FROM {file.stem}")
        summaries.append(f"SUMMARIZE {file.stem}")
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=Path(home)) as app, plain:
        profile = _profiler(app, folder)
        profile()
        sides: list[Callable[[], object]] = [
            lambda: [plain.execute(q).fetchall() for q in scans],
            lambda: [plain.execute(q).fetchall() for q in summaries],
            profile,
        ]
        scan, summarize, ours = (statistics.median(t) for t in alternate(sides, ROUNDS))
    return [
        Figure("profile of TPC-H SF1, beside one full scan", ours, scan, "s", most_ratio=15),
        Figure("profile of TPC-H SF1, beside SUMMARIZE of each table", ours, summarize, "s", most_ratio=1),
    ]


def _touch(column: Sequence[str]) -> str:
    """An aggregate that reads a whole column and does little else."""
    name, kind = column[0], column[1]
    number = kind.startswith("DECIMAL") or kind in ("INTEGER", "BIGINT")
    return f'sum("{name}")' if number else f'max("{name}")'


def _profiler(app: App, source: Path, tables: Sequence[str] | None = None) -> Callable[[], object]:
    import etude
    from etude.catalog.measure.profile import profile_source

    db = etude.connect(source, app=app)
    return lambda: profile_source(db, tables)


def _costs(folders: dict[float, Path]) -> list[Figure]:
    """Processor time, memory and growth, each profile in a process of its own."""
    costs = {scale: _watch([sys.executable, "-c", OURS, str(folder)]) for scale, folder in folders.items()}
    smallest, largest = min(SCALES), max(SCALES)
    figures = [
        Figure("peak memory of all processes, TPC-H SF1", costs[1].megabytes, None, "MB", most=1024),
        # Half as much again for what a small source pays once and a large one in caches: not a square.
        Figure(
            f"processor seconds per unit of scale, SF{largest:g} beside SF{smallest:g}",
            costs[largest].cpu / largest,
            costs[smallest].cpu / smallest,
            "s",
            most_ratio=1.5,
        ),
    ]
    python = _ydata_python()
    if python is None:
        print("note: ydata-profiling could not be installed; it is left out.", file=sys.stderr)
        return figures
    what = f"processor time, TPC-H SF1, beside ydata-profiling extrapolated from {YDATA_ROWS[1]:,} rows"
    # Its minimal report leaves out how columns hang together, which ours tells: it is shown, not judged.
    return [
        *figures,
        Figure(what, costs[1].cpu, _ydata(python, folders[1], "full"), "s", most_ratio=1 / 20),
        Figure(f"{what}, minimal report", costs[1].cpu, _ydata(python, folders[1], "minimal"), "s"),
    ]


def _ydata(python: Path, folder: Path, report: str) -> float:
    """Processor seconds that ydata-profiling would take for all cells, on the line through two samples it can hold."""
    seconds, lineitem = [], folder / "lineitem.parquet"
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as scratch:
        for rows in YDATA_ROWS:
            part = Path(scratch) / f"{rows}.parquet"
            duckdb.sql(f"COPY (FROM '{lineitem}' LIMIT {rows}) TO '{part}'")
            seconds.append(_watch([str(python), "-c", THEIRS, str(part), report]).cpu)
    width = len(duckdb.sql(f"FROM '{lineitem}'").columns)
    slope = (seconds[1] - seconds[0]) / (YDATA_ROWS[1] - YDATA_ROWS[0])
    # In rows as wide as those of lineitem.
    total = sum(map(_cells, folder.glob("*.parquet"))) / width
    return seconds[1] + slope * (total - YDATA_ROWS[1])


def _cells(file: Path) -> int:
    return int(duckdb.sql(f"SELECT count(*) FROM '{file}'").fetchall()[0][0]) * len(
        duckdb.sql(f"FROM '{file}'").columns
    )


def _ydata_python() -> Path | None:
    """An environment of its own: it does not agree with our versions of numpy and pandas."""
    folder = DATA / "ydata"
    python, tool = folder / "bin" / "python", shutil.which("uv")
    if not (folder / "complete").exists():
        if tool is None:
            return None
        made = subprocess.run([tool, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=False)
        got = subprocess.run([tool, "pip", "install", "--quiet", "--python", python, *YDATA], check=False)
        if made.returncode or got.returncode:
            return None
        (folder / "complete").touch()
    return python


def _watch(command: list[str]) -> Cost:
    """Run a command; its memory is that of it and its children together, at its peak."""
    started, cpu, peak = time.perf_counter(), 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        root = psutil.Process(process.pid)
        spent: dict[int, float] = {}
        while process.poll() is None:
            total = 0
            try:
                for each in [root, *root.children(recursive=True)]:
                    times = each.cpu_times()
                    spent[each.pid] = times.user + times.system
                    total += each.memory_full_info().uss
            except psutil.Error:
                pass
            peak = max(peak, total)
            time.sleep(SAMPLE_S)
        if process.returncode:
            raise RuntimeError(process.stderr.read().decode()[-2000:] if process.stderr else "it failed")
        cpu = sum(spent.values())
    return Cost(time.perf_counter() - started, cpu, peak / 1e6)


def _many() -> list[Figure]:
    """A file of many small tables."""
    path = DATA / "many.duckdb"
    if not path.exists():
        _make_many(path)
    with (
        tempfile.TemporaryDirectory(prefix="etude-bench-") as home,
        App(home=Path(home)) as app,
        duckdb.connect(path, read_only=True) as plain,
    ):
        plain.execute(f"SET threads = {os.cpu_count()}")
        profile = _profiler(app, path)
        names = [f"t{i:04}" for i in range(TABLES)]
        _profiler(app, path, names[:10])()
        sides = [lambda: [plain.execute(f"SUMMARIZE {n}").fetchall() for n in names], profile]
        summarize, ours = (statistics.median(t) for t in alternate(sides, ROUNDS))
    return [Figure(f"{TABLES:,} small tables, beside SUMMARIZE of each", ours, summarize, "s", most_ratio=1.2)]


def _make_many(path: Path) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with duckdb.connect(part) as writer:
        writer.execute("SELECT setseed(0.5)")
        for i in range(TABLES):
            writer.execute(
                f"""CREATE TABLE t{i:04} AS SELECT range AS id, (random() * 50)::INTEGER AS a, random() * 1000 AS b,
                (random() * 10000)::DECIMAL(12,2) AS price, 'name ' || (random() * 300)::INTEGER AS name,
                DATE '2020-01-01' + (random() * 1000)::INTEGER AS d,
                ['red', 'green', 'blue'][1 + (random() * 2.9)::INTEGER] AS color,
                CASE WHEN random() < 0.1 THEN NULL ELSE (random() * 1e6)::BIGINT END AS amount,
                md5(range::VARCHAR) AS code, random() < 0.3 AS flag FROM range({200 + i * 7919 % 1800})"""
            )
    part.rename(path)


def _keys() -> list[Figure]:
    """Inferred keys against declared ones, where the reference databases are at hand."""
    sys.path.insert(0, str(TESTS))
    try:
        from catalog.reference import databases, score_keys
    finally:
        sys.path.remove(str(TESTS))
    if not databases():
        print("note: the reference databases are not here; inferred keys are left out.", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=Path(home)) as app:
        primary, declared, every = score_keys(app)
    told = {
        f"primary keys, recall {primary.recall:.2f}": primary,
        f"foreign keys where some are declared, recall {declared.recall:.2f}": declared,
        f"foreign keys of all databases, {every.judged} judged by hand": every,
    }
    return [
        Figure(f"{what}: wrong of {score.inferred} inferred", 100 * (1 - score.precision), None, "%", most=10)
        for what, score in told.items()
    ]
