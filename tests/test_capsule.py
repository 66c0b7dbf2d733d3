"""A capsule: one run as a zip file that needs nothing else to be read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from etude.app import App
from etude.capsule import write_capsule
from etude.entities import Run
from etude.errors import NotFound, Refused
from etude.events import Entry, fold


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with duckdb.connect(tmp_path / "shop.duckdb") as db:
        db.execute("CREATE TABLE orders AS SELECT i AS id FROM range(10) r(i)")
    with App(home=tmp_path / "home") as opened:
        yield opened


def export(app: App, run_id: str) -> bytes:
    file = io.BytesIO()
    write_capsule(app.store, app.objects, run_id, file)
    return file.getvalue()


def test_a_capsule_holds_state_events_code_and_result(app: App, tmp_path: Path) -> None:
    query = "SELECT id, 'é' AS letter FROM orders ORDER BY id"
    result = app.sql(str(tmp_path / "shop.duckdb"), query)
    run_id = str(result.run_id)
    with zipfile.ZipFile(io.BytesIO(export(app, run_id))) as capsule:
        assert capsule.testzip() is None
        run = Run.model_validate_json(capsule.read("run.json"))
        entries = [Entry.model_validate_json(line) for line in capsule.read("events.jsonl").splitlines()]
        assert run == fold(entries) == app.store.run(run_id)
        assert capsule.read("steps/001.sql").decode() == query
        assert run.result_artifact is not None
        table = pq.read_table(io.BytesIO(capsule.read(f"artifacts/{run.result_artifact.hash}.parquet")))
        assert table.to_pydict() == {"id": list(range(10)), "letter": ["é"] * 10}
        assert len(capsule.namelist()) == 4


def test_the_same_run_gives_the_same_bytes(app: App, tmp_path: Path) -> None:
    run_id = str(app.sql(str(tmp_path / "shop.duckdb"), "SELECT 1 AS a").run_id)
    assert export(app, run_id) == export(app, run_id)


def test_a_failed_run_has_no_artifact(app: App, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        app.sql(str(tmp_path / "shop.duckdb"), "DROP TABLE orders")
    with zipfile.ZipFile(io.BytesIO(export(app, caught.value.details["run_id"]))) as capsule:
        assert capsule.namelist() == ["run.json", "events.jsonl", "steps/001.sql"]
        assert json.loads(capsule.read("run.json"))["error"]["code"] == "refused"


def test_a_plan_is_kept_beside_its_sql(app: App, tmp_path: Path) -> None:
    plan = {"from": "orders", "select": ["id"], "limit": 3}
    run_id = str(app.plan(str(tmp_path / "shop.duckdb"), plan).run_id)
    with zipfile.ZipFile(io.BytesIO(export(app, run_id))) as capsule:
        assert json.loads(capsule.read("steps/001.plan.json"))["from"] == "orders"
        assert "SELECT" in capsule.read("steps/001.sql").decode()


def test_an_unknown_run_has_no_capsule(app: App) -> None:
    with pytest.raises(NotFound):
        export(app, "run_nope")
