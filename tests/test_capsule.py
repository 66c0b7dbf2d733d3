"""A capsule: one run as a zip file that needs nothing else to be read."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from etude.app import App
from etude.capsule import stream_capsule, write_capsule
from etude.entities import Run
from etude.errors import EtudeError, NotFound, Refused
from etude.events import Entry, RunFinished, RunQueued, RunStarted, StepFinished, StepStarted, fold
from etude.runtime.run_log import RunLog, RunStorage


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


def test_a_capsule_in_pieces_has_the_same_bytes_and_leaves_nothing(app: App, tmp_path: Path) -> None:
    query = "SELECT md5(i::VARCHAR) AS a FROM range(200000) r(i)"
    run_id = str(app.sql(str(tmp_path / "shop.duckdb"), query).run_id)
    pieces = list(stream_capsule(app.store, app.objects, run_id, tmp_path / "scratch"))
    assert b"".join(pieces) == export(app, run_id)
    assert len(pieces) > 4 and all(pieces) and max(map(len, pieces)) < 3 << 20
    given_up = stream_capsule(app.store, app.objects, run_id, tmp_path / "scratch")
    for _ in range(3):
        next(given_up)
    del given_up
    assert not list((tmp_path / "scratch").iterdir())


def test_a_run_whose_artifact_is_lost_has_no_capsule_in_pieces(app: App, tmp_path: Path) -> None:
    run_id = str(app.sql(str(tmp_path / "shop.duckdb"), "SELECT 1 AS a").run_id)
    artifact = app.store.run(run_id).result_artifact
    assert artifact is not None
    path = app.objects.local_path(artifact.hash)
    assert path is not None
    path.unlink()
    with pytest.raises(EtudeError):
        stream_capsule(app.store, app.objects, run_id, tmp_path / "scratch")


def test_a_capsule_of_long_texts_takes_little_memory(app: App, tmp_path: Path) -> None:
    log = RunLog(RunStorage(app.store, app.objects))
    log.add(RunQueued(kind="python", text="x", source=None), RunStarted(worker=app.store.worker_id))
    for number in range(40):
        step = f"step_{number}"
        log.add(StepStarted(step_id=step, kind="sql", code="\x01" * 190_000, source="shop"))
        log.add(StepFinished(step_id=step, outcome="ok", elapsed_ms=1.0))
    log.add(RunFinished(answer=None))
    log.commit()
    entries = app.store.entries(log.run_id)
    tracemalloc.start()
    try:
        app.store.entries(log.run_id)
        to_read = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        with (tmp_path / "run.etude").open("wb") as file:
            write_capsule(app.store, app.objects, log.run_id, file)
        assert tracemalloc.get_traced_memory()[1] < to_read + (16 << 20)
    finally:
        tracemalloc.stop()
    with zipfile.ZipFile(tmp_path / "run.etude") as capsule:
        assert Run.model_validate_json(capsule.read("run.json")) == fold(entries)
        assert json.loads(capsule.read("run.json")) == json.loads(fold(entries).model_dump_json())


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
