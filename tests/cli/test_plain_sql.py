"""The short way of `etude sql` prints and records the same as the long way, in an engine that is confined the same."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.patience import wait_until

from etude.app import App
from etude.cli.plain_sql import LIMITS
from etude.defaults import ENGINE_SCRATCH, default_memory, default_threads
from etude.settings import Settings

LONG = {"ETUDE_RECORD": "true"}
"""Any setting, even one that changes nothing, leads the long way."""
TABLE = "CREATE TABLE orders (id INTEGER, customer VARCHAR, paid DATE, amount DECIMAL(9, 2))"
ROWS = (
    "INSERT INTO orders VALUES (1, 'Ann', '2024-05-01', 12.50), (2, NULL, NULL, 0.10), (3, 'Ö;\"x\"', '1999-12-31', -4)"
)


@pytest.fixture(params=["duckdb", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"shop.{request.param}"
    connect: Any = duckdb.connect if request.param == "duckdb" else sqlite3.connect
    with closing(connect(name)) as writer:
        writer.execute(TABLE)
        writer.execute(ROWS)
        writer.commit()
    return name


def run(home: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
    given = kept | {"ETUDE_HOME": home} | environment
    return subprocess.run(command, capture_output=True, text=True, env=given, check=False)


def etude(home: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(home, sys.executable, "-m", "etude", *arguments, **environment)


def shown(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    """Exit code and output, without what differs between two runs of the same command."""
    varying = re.compile(r"run_\w+|[\d,]+ ms|\"elapsed_ms\": [\d.]+")
    return done.returncode, varying.sub("-", done.stdout), varying.sub("-", done.stderr)


def recorded(home: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The only run of a home: as lists show it, and its events; without ids, times and durations."""
    with App(home=home) as app:
        (summary,) = app.store.runs().items
        entries = app.store.entries(summary.id)
        assert [e.seq for e in entries] == list(range(1, summary.seq + 1))
        if summary.status == "succeeded":
            assert app.result(summary.id).row_count == summary.row_count
    events = [e.event.model_dump(mode="json") for e in entries]
    varying = {"id", "step_id", "worker", "elapsed_ms", "created_at", "ended_at"}
    return (
        {k: v for k, v in summary.model_dump(mode="json").items() if k not in varying},
        [{k: v for k, v in event.items() if k not in varying} for event in events],
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders ORDER BY id",
        "SELECT customer, count(*) AS n FROM orders WHERE id > 10 GROUP BY customer",
        "SELECT orders.id FROM orders WHERE orders.amount > 1.5",
        "SELECT nothing FROM orders",
        "DELETE FROM orders",
    ],
)
def test_both_ways_print_and_record_the_same(shop: str, query: str) -> None:
    short, long = etude("short", "sql", shop, query), etude("long", "sql", shop, query, **LONG)
    assert shown(short) == shown(long)
    assert recorded("short") == recorded("long")


@pytest.mark.parametrize("kind", ["csv", "json", "ndjson", "markdown", "parquet", "arrow"])
def test_both_ways_write_the_same_formats(shop: str, kind: str) -> None:
    command = ("sql", shop, "SELECT * FROM orders ORDER BY id", "--no-record", "--output", f"out.{kind}")
    written = []
    for home, more in (("short", {}), ("long", LONG)):
        assert etude(home, *command, **more).returncode == 0
        written.append(re.sub(rb'"elapsed_ms": [\d.]+', b"", Path(f"out.{kind}").read_bytes()))
    assert written[0] == written[1]
    assert not Path("short").exists()


def test_the_short_way_loads_no_models(shop: str) -> None:
    code = (
        "import sys; from etude.cli.main import run_command; code = run_command(sys.argv[1:]); "
        "sys.exit(code or ','.join({'pydantic', 'obstore', 'asyncio', 'duckdb', 'sqlglot', 'numpy'} & {*sys.modules}))"
    )
    done = run("home", sys.executable, "-c", code, "sql", shop, "SELECT 1 AS one")
    assert (done.returncode, done.stderr) == (1, "\n"), done
    assert recorded("home")[0]["status"] == "succeeded"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, "cancelled"), (signal.SIGKILL, "failed")])
def test_a_stopped_query_is_recorded_and_its_engine_ends(shop: str, number: int, status: str) -> None:
    counting = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")} | {"ETUDE_HOME": "home"}
    command = [sys.executable, "-m", "etude", "sql", shop, counting]
    with (
        subprocess.Popen(command, env=kept, stderr=subprocess.PIPE, text=True) as process,
        App(home="home") as app,
    ):
        wait_until(lambda: any(run.status == "running" for run in app.store.runs().items))
        (engine,) = children(process.pid)
        process.send_signal(number)
        _, told = process.communicate()
    assert (process.returncode, "was cancelled" in told) == ((130, True) if number == signal.SIGINT else (-9, False))
    wait_until(lambda: not Path(f"/proc/{engine}").exists())
    with App(home="home") as app:
        (run,) = app.store.runs().items
        assert run.status == status


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_query_may_name_a_registered_source(shop: str) -> None:
    Path("regions.csv").write_text("id,region\n1,north\n2,south\n")
    assert etude("home", "sources", "add", "regions", "regions.csv").returncode == 0
    joined = "SELECT region FROM orders JOIN regions.regions USING (id) ORDER BY id"
    done = etude("home", "sql", shop, joined, "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "region\nnorth\nsouth\n"), done.stderr


def test_a_setting_is_obeyed(shop: str) -> None:
    Path("etude.toml").write_text("[limits]\nrows = 2\n")
    done = etude("home", "sql", shop, "SELECT * FROM orders")
    assert done.returncode == 6
    assert "more than 2 rows" in done.stderr


def test_the_short_way_has_the_limits_of_the_settings(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert dict(settings.limits) == LIMITS
    engine = settings.engine
    assert (engine.memory, engine.scratch, engine.threads) == (default_memory(), ENGINE_SCRATCH, default_threads())
