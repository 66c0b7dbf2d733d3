"""Three million rows on every way out: complete and equal to DuckDB's own result. No way cuts a result silently."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import etude
from etude.entities import Limits
from etude.errors import LimitExceeded
from etude.mcp_server.caller import McpCaller
from etude.mcp_server.run_tools import sql

ROWS = 3_000_000
QUERY = f"SELECT i, i % 1000 AS n, 'v' || (i % 97) AS t FROM range({ROWS}) r(i)"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[etude.App]:
    folder = tmp_path_factory.mktemp("complete")
    with duckdb.connect(folder / "big.duckdb") as db:
        db.execute(f"CREATE TABLE big AS {QUERY}")
    with etude.App(home=folder / "home", sources={"big": {"url": str(folder / "big.duckdb")}}) as opened:
        yield opened


def facts(found: Any) -> Any:
    """Return what only the complete result has: its count, and sums over all of its cells."""
    query = "SELECT count(*), sum(i), sum(n), sum(hash(i, n, t)), bit_xor(hash(i, n, t)) FROM found"
    return duckdb.sql(query).fetchall()


@pytest.fixture(scope="module")
def wanted() -> Any:
    return facts(duckdb.sql(QUERY).to_arrow_table())


@pytest.fixture(scope="module")
def result(app: etude.App) -> etude.Result:
    return app.sql("big", "FROM big")


def test_in_python(app: etude.App, result: etude.Result, wanted: Any) -> None:
    assert len(result) == ROWS and not result.truncated
    assert facts(result.arrow()) == wanted
    assert facts(pa.Table.from_pandas(result.df())) == wanted
    assert facts(pa.table(result)) == wanted
    assert sum(row[0] for row in result) == ROWS * (ROWS - 1) // 2
    assert facts(app.result(str(result.run_id)).arrow()) == wanted


def test_in_a_session(app: etude.App, wanted: Any) -> None:
    with app.open_session("big") as session:
        session.execute("import etude\ndb = etude.connect()")
        cell = session.execute("db.sql('FROM big').arrow()")
        assert cell.ok, cell.error
        assert facts(cell.value) == wanted


def test_as_the_result_of_a_cell(app: etude.App, wanted: Any) -> None:
    answer = app.ask("big", "PYTHON: result_df = db.sql('FROM big').df()")
    assert answer.text == "3,000,000 rows: i, n, t." and answer.result is not None
    assert facts(answer.result.arrow()) == wanted


def test_as_a_resource_of_mcp(app: etude.App, wanted: Any) -> None:
    page = sql(McpCaller(app, lambda _: None), "FROM big", "big")  # type: ignore[arg-type, return-value]
    assert (len(page.rows), page.row_count) == (100, ROWS)
    address = page.notes[-1].partition("artifact://")[2].rstrip(".")
    run_id, _, hash = address.partition("/")
    assert facts(pq.read_table(io.BytesIO(app.objects.get(hash, run_id)))) == wanted


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "ndjson", "json"])
def test_on_the_command_line(app: etude.App, wanted: Any, tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-m", "etude", "sql", app.settings.sources["big"].url, "FROM big"]
    home = {"ETUDE_HOME": str(tmp_path / "home"), "PATH": ""}
    out, printed = tmp_path / f"out.{kind}", tmp_path / f"printed.{kind}"
    subprocess.run([*command, "--output", str(out)], check=True, env=home, capture_output=True)
    assert facts(read(out, kind)) == wanted
    if kind in ("parquet", "arrow"):
        with printed.open("wb") as file:
            subprocess.run([*command, "--format", kind], check=True, env=home, stdout=file)
        whole = pq.read_table(printed) if kind == "parquet" else pa.ipc.open_stream(printed.read_bytes()).read_all()
        assert facts(whole) == wanted


def read(path: Path, kind: str) -> Any:
    match kind:
        case "parquet":
            return pq.read_table(path)
        case "arrow":
            return pa.ipc.open_file(path).read_all()
        case "csv":
            return duckdb.read_csv(str(path)).to_arrow_table()
        case "ndjson":
            return duckdb.read_json(str(path)).to_arrow_table()
        case _:
            i, n, t = zip(*json.loads(path.read_text())["rows"])
            return pa.table({"i": pa.array(i, pa.int64()), "n": pa.array(n, pa.int64()), "t": pa.array(t)})


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(0, 5000),
    rows=st.integers(0, 5000),
    size=st.integers(0, 60_000),
    limit=st.integers(0, 5000),
    way=st.sampled_from(["recorded", "unrecorded", "stored", "session"]),
)
def test_no_limit_cuts_silently(
    app: etude.App, session: Any, count: int, rows: int, size: int, limit: int, way: str
) -> None:
    query = f"SELECT i FROM range({count}) r(i)"
    shown = min(count, limit) if limit else count
    fits = (not rows or shown <= rows) and (not size or shown * 8 <= size)
    try:
        if way == "session":
            given = {"rows": rows, "bytes": size, "limit": limit}
            # In lists of 500 values: a longer one is shown as text, and says that it is cut.
            cell = session.execute(
                f"r = db.sql({query!r}, **{given})\nvalues = [v for v, in r]\n"
                "[r.truncated, [values[at : at + 500] for at in range(0, len(values), 500)]]"
            )
            if not cell.ok:
                assert cell.error["type"] == "LimitExceeded"
                raise LimitExceeded(cell.error["message"])
            truncated, parts = cell.value
            values = [value for part in parts for value in part]
        else:
            limits = Limits(rows=rows, bytes=size, limit=limit)
            result = app.sql("big", query, limits=limits, record=way != "unrecorded")
            if way == "stored":
                result = app.result(str(result.run_id))
            truncated, values = result.truncated, [v for (v,) in result]
    except LimitExceeded:
        assert not fits
        return
    assert fits
    assert values == list(range(shown)) and truncated == (shown < count)


@pytest.fixture(scope="module")
def session(app: etude.App) -> Iterator[Any]:
    with app.open_session("big") as opened:
        opened.execute("import etude\ndb = etude.connect()")
        yield opened
