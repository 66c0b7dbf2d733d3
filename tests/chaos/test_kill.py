"""kill -9 at any moment: what was acknowledged is there, nothing is half there, and nothing is left behind.

The short form runs with every test run. `CHAOS=long` (`make chaos`) kills until there were 25 kills and a
thousand acknowledged runs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from tests.chaos.processes import children, kill_all
from tests.patience import wait_until

from etude.app import App
from etude.entities import Limits
from etude.errors import EtudeError
from etude.events import fold
from etude.scratch_folder import remove_orphaned_folders
from etude.sources.engine_client import SCRATCH

LONG = os.environ.get("CHAOS") == "long"

# Each value is different, so that each run makes an artifact of its own. A line is one write: it is whole or not there.
WORKER = """
import itertools, os, sys, threading
import etude

source, start, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
db = etude.connect(source)

def work(offset):
    for n in itertools.count(start + offset, threads):
        result = db.sql(f"SELECT {n} AS n, sum(v) + {n} AS total FROM t")
        os.write(1, f"{result.run_id} {n}\\n".encode())

for offset in range(threads):
    threading.Thread(target=work, args=(offset,)).start()
"""
TABLE_SUM = 4950


@dataclass(frozen=True)
class Place:
    """Where the worker and the test meet."""

    source: Path
    home: Path
    store: str
    """Empty for the default store."""
    temporary: Path

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        given = {"ETUDE_HOME": str(self.home), "TMPDIR": str(self.temporary)}
        return kept | given | ({"ETUDE_STORE": self.store} if self.store else {})

    def open(self) -> App:
        return App(home=self.home, **({"store": self.store} if self.store else {}))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    source = tmp_path / "shop.duckdb"
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS v FROM range(100)")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    store = "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    return Place(source, tmp_path / "home", store, temporary)


@contextmanager
def working(place: Place, start: int, threads: int, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that records runs without end; it ends with the block."""
    command = [sys.executable, "-c", WORKER, str(place.source), str(start), str(threads)]
    with out.open("wb") as file:
        process = subprocess.Popen(command, env=place.environment(), stdout=file, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def acknowledged(out: Path) -> dict[str, int]:
    """Run ids and their values, from the lines that were written whole."""
    lines = out.read_text().split("\n")[:-1]
    return {run_id: int(n) for run_id, n in (line.split() for line in lines)}


def ended(pid: int) -> bool:
    try:
        return b"etude.sources.engine" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def check_store(place: Place, expected: dict[str, int]) -> None:
    with place.open() as app:
        store = app.store  # recovers on the way
        page, seen = store.runs(limit=500), 0
        while True:
            for summary in page.items:
                entries = store.entries(summary.id)
                assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
                run = fold(entries)
                assert run is not None
                assert (run.status, run.seq) == (summary.status, summary.seq)
                if summary.status != "succeeded":
                    assert summary.id not in expected
                    assert (summary.status, summary.error_code) == ("failed", "interrupted")
                seen += 1
            if page.next is None:
                break
            page = store.runs(limit=500, cursor=page.next)
        assert seen >= len(expected)
        for run_id, n in expected.items():
            run = store.run(run_id)
            assert run.status == "succeeded", run_id
            assert app.result(run_id).rows() == [(n, TABLE_SUM + n)]


def test_what_was_acknowledged_survives(place: Place, tmp_path: Path) -> None:
    on_postgres = bool(place.store)
    kills, runs = (8, 200) if on_postgres else (25, 1000)
    if not LONG:
        kills, runs = (3, 1) if on_postgres else (6, 1)
    chance = random.Random()
    expected: dict[str, int] = {}
    life = 0
    while life < kills or len(expected) < runs:
        out = tmp_path / f"{life}.out"
        # One thread in every other life: then the last line before the kill is also the last run.
        with working(place, life * 1_000_000, threads=1 + 3 * (life % 2), out=out) as process:
            # Most lives work a while before they end; some end while they start.
            if life % 4 != 3:
                wait_until(lambda out=out: out.stat().st_size > 0)
            time.sleep(chance.uniform(0, 3 if LONG else 0.8))
            assert process.poll() is None
            kill_all(process)
        expected |= acknowledged(out)
        life += 1
    assert len(expected) >= runs
    check_store(place, expected)
    check_scratch(place)


def check_scratch(place: Place) -> None:
    """Engines empty their folders when the host is gone; the next host removes the folders."""
    left = list(place.temporary.glob(f"{SCRATCH}*"))
    assert [f for folder in left for f in folder.rglob("*")] == []
    # The next host, which lives long enough to have looked.
    out = place.temporary / "last.out"
    with working(place, 0, threads=1, out=out) as process:
        wait_until(lambda: out.stat().st_size > 0)

        def count() -> tuple[int, int]:
            # Each folder is there before its engine: as many of both, and there is no other folder.
            return len(list(place.temporary.glob(f"{SCRATCH}*"))), len(children(process.pid))

        wait_until(lambda: len(set(count())) == 1)


def test_a_folder_in_use_is_no_orphan(tmp_path: Path) -> None:
    with App(home=tmp_path / "home") as app:
        app.pool.warm()
        spare = app.pool._spare
        assert spare is not None
        remove_orphaned_folders(SCRATCH, spare._scratch.path.parent)
        assert spare._scratch.path.is_dir()


def test_a_spilled_file_goes_when_the_host_is_killed(tmp_path: Path) -> None:
    source = tmp_path / "shop.duckdb"
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS v")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    place = Place(source, tmp_path / "home", "", temporary)
    spilling = "SELECT count(*) FROM (SELECT md5(i::VARCHAR) m FROM range(50000000) r(i) ORDER BY m DESC) x"
    code = f"import etude; etude.connect({str(source)!r}).sql({spilling!r})"
    environment = place.environment() | {"ETUDE_ENGINE__MEMORY": "1GiB", "ETUDE_LIMITS__TIMEOUT_S": "600"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    spilled = f"{SCRATCH}*/duckdb_temp*"
    try:
        wait_until(lambda: process.poll() is not None or any(temporary.glob(spilled)), seconds=200)
        assert process.poll() is None
        kill_all(process)
    finally:
        process.kill()
        process.wait()
    assert not any(temporary.glob(spilled))


def test_engines_killed_under_load(tmp_path: Path) -> None:
    """A query gives the right value or an error of ours; the next one works; the host lives."""
    source = tmp_path / "shop.duckdb"
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000000)")
    enough = threading.Event()
    right, failed = [0], [0]
    strange: list[BaseException] = []
    with App(home=tmp_path / "home") as app:

        def work(number: int) -> None:
            n = number * 1_000_000
            while not enough.is_set():
                n += 1
                try:
                    sql = f"SELECT sum(v) + {n} FROM t"
                    rows = app.sql(str(source), sql, limits=Limits(timeout_s=200), record=n % 2 == 0).rows()
                    assert rows == [(499_999_500_000 + n,)]
                    right[0] += 1
                except EtudeError:
                    failed[0] += 1
                except BaseException as error:
                    strange.append(error)
                    return

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        chance = random.Random()
        kills = 0
        try:
            while kills < (150 if LONG else 20):
                time.sleep(chance.uniform(0.05, 0.3))
                engines = wait_until(lambda: [pid for pid in children(os.getpid()) if not ended(pid)])
                assert engines
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(engines), signal.SIGKILL)
                    kills += 1
            # However slow it is: in peace it comes to its end.
            last = right[0]
            wait_until(lambda: right[0] >= last + 3 or strange)
        finally:
            enough.set()
            for thread in threads:
                thread.join()
        assert not strange
        # Only a query that was running when its engine died may fail.
        assert failed[0] <= kills
        assert app.sql(str(source), "SELECT 42").rows() == [(42,)]
        assert app.store.recover() == []
        unfinished = [r for r in app.store.runs(limit=10_000).items if r.status not in ("succeeded", "failed")]
        assert unfinished == []
