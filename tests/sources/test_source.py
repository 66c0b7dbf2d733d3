"""A source as the host sees it: what is known of it follows what is written to it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.entities import Limits, SourceSpec
from etude.errors import Cancelled, EtudeError, LimitExceeded, SourceError, UnknownTable
from etude.sources.base import LoadProgress
from etude.sources.source import Source


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_table_made_while_the_process_runs_is_seen(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "shop.sqlite"
    with (
        App(home=tmp_path / "home", record=False) as app,
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
    ):
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("CREATE TABLE orders (id INTEGER)")
        first = app.catalog(str(path))
        assert [table.name for table in first.tables] == ["orders"]
        with pytest.raises(UnknownTable):
            app.sql(str(path), "SELECT * FROM refunds")

        writer.execute("CREATE TABLE refunds (id INTEGER)")
        writer.execute("INSERT INTO refunds VALUES (7)")

        assert app.sql(str(path), "SELECT * FROM refunds").rows() == [(7,)]
        again = app.catalog(str(path))
        assert [(table.name, table.row_count) for table in again.tables] == [("orders", 0), ("refunds", 1)]
        assert again.fingerprint != first.fingerprint
        assert app.catalog(str(path)) is again

        writer.execute("DROP TABLE orders")
        assert [table.name for table in app.catalog(str(path)).tables] == ["refunds"]
        with pytest.raises(UnknownTable):
            app.sql(str(path), "SELECT * FROM orders")


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_an_engine_is_not_shared_by_sources_with_other_options(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"shop.{kind}"
    with closing((duckdb if kind == "duckdb" else sqlite3).connect(path)) as made:
        made.execute("CREATE TABLE t (a INTEGER)")
    with App(home=tmp_path / "home", record=False) as app:
        loose, strict, again = (
            Source("shop", SourceSpec(url=str(path), options=options), app.pool, tmp_path).mount()[0]
            for options in ({}, {"strict": "true"}, {"strict": "true"})
        )
    assert loose != strict == again


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_each_write_changes_the_fingerprint_of_the_data(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "shop.sqlite"
    with (
        App(home=tmp_path / "home", record=False) as app,
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
    ):
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("CREATE TABLE orders (id INTEGER)")
        writer.execute("INSERT INTO orders VALUES (0)")
        marks = set()
        for number in range(1, 6):
            writer.execute("UPDATE orders SET id = ?", (number,))
            marks.add(app.catalog(str(path)).tables[0].fingerprint)
        assert len(marks) == 5


@pytest.fixture(scope="module")
def big_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "big.csv"
    duckdb.execute(
        f"COPY (SELECT i AS id, 'customer ' || i AS customer, DATE '2020-01-01' + (i % 1500)::INT AS day "
        f"FROM range(2000000) t(i)) TO '{path}' (HEADER)"
    )
    return path


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=tmp_path / "home", record=False) as opened:
        yield opened


def test_the_time_limit_of_a_query_holds_while_its_files_are_read(app: App, big_csv: Path) -> None:
    told: list[float] = []
    with pytest.raises(
        LimitExceeded, match=r"Reading `big.csv` for this query exceeded its time limit of 0.5 s"
    ) as caught:
        app.sql(str(big_csv), "SELECT count(*) FROM big", limits=Limits(timeout_s=0.5), on_progress=told.append)
    assert caught.value.details == {"limit": "timeout_s", "value": 0.5}
    assert all(share < 1 for share in told)

    # A source that is opened without a query is read completely, however long that takes.
    app.source(str(big_csv)).mount()
    assert app.sql(str(big_csv), "SELECT count(*) FROM big").rows() == [(2_000_000,)]


def test_two_queries_that_wait_for_the_same_file_each_have_their_own_limit(app: App, big_csv: Path) -> None:
    source, reading = app.source(str(big_csv)), threading.Event()
    first = source.query("SELECT count(*) FROM big", Limits(timeout_s=600), on_progress=lambda _: reading.set())
    ended: list[EtudeError] = []

    def read() -> None:
        try:
            list(first.batches)
        except EtudeError as error:
            ended.append(error)

    worker = threading.Thread(target=read)
    worker.start()
    assert reading.wait(60)
    second = source.query("SELECT count(*) FROM big", Limits(timeout_s=0.3))
    with pytest.raises(LimitExceeded, match=r"limit of 0.3 s"):
        list(second.batches)
    assert not ended

    first.cancel()
    worker.join(60)
    assert [type(error) for error in ended] == [Cancelled]


def test_cancel_stops_the_reading_of_files(app: App, big_csv: Path) -> None:
    answer = app.source(str(big_csv)).query("SELECT count(*) FROM big", Limits(), on_progress=lambda _: answer.cancel())
    with pytest.raises(Cancelled, match="The query was cancelled"):
        list(answer.batches)


def test_a_callback_that_raises_stops_the_reading_of_files(app: App, big_csv: Path) -> None:
    def leave(share: float) -> None:
        assert isinstance(share, LoadProgress)
        raise Cancelled("The client disconnected.")

    with pytest.raises(Cancelled, match="disconnected"):
        app.sql(str(big_csv), "SELECT count(*) FROM big", on_progress=leave)


def test_cancelling_a_run_stops_the_reading_of_its_files(tmp_path: Path, big_csv: Path) -> None:
    with App(home=tmp_path / "home") as app:
        reading = threading.Event()
        app.pool.on_load = lambda _: reading.set()
        run_id = app.runs.begin("sql", "SELECT count(*) FROM big", str(big_csv))
        app.runs.start(run_id)
        assert reading.wait(60)
        app.runs.cancel(run_id)
        assert app.runs.wait(run_id, 60).status == "cancelled"


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_catalog_has_no_references_to_tables_that_are_not_granted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"shop.{kind}"
    with closing((duckdb if kind == "duckdb" else sqlite3).connect(path)) as made:
        made.execute("CREATE TABLE secret (ssn INTEGER PRIMARY KEY)")
        made.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)")
        made.execute("CREATE TABLE pub (a INTEGER REFERENCES secret (ssn), b INTEGER REFERENCES people (id))")
    spec = SourceSpec(url=str(path), tables=("pub", "people"))
    with App(home=tmp_path / "home", record=False, sources={"shop": spec}) as app:
        catalog = app.catalog("shop")
    (pub,) = (table for table in catalog.tables if table.name == "pub")
    assert [key.to_table for key in pub.foreign_keys] == ["people"]
    assert "ssn" not in catalog.model_dump_json()


def test_a_duckdb_catalog_does_not_name_tables_that_are_not_granted(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "crm.duckdb")) as made:
        made.execute("CREATE TABLE secret (ssn INTEGER PRIMARY KEY); CREATE TABLE People (id INTEGER PRIMARY KEY)")
        made.execute("CREATE TABLE pub (a INTEGER REFERENCES secret (ssn), b INTEGER REFERENCES people (id))")
    spec = SourceSpec(url=str(tmp_path / "crm.duckdb"), tables=("pub", "People"))
    with App(home=tmp_path / "home", record=False, sources={"shop": spec}) as app:
        catalog = app.catalog("shop")
    (pub,) = (table for table in catalog.tables if table.name == "pub")
    assert [key.to_table.lower() for key in pub.foreign_keys] == ["people"]
    assert "ssn" not in catalog.model_dump_json()


def test_a_granted_view_that_cannot_be_read_does_not_name_what_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "crm.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE SCHEMA s; CREATE TABLE s.payroll AS SELECT 1 AS a; USE crm.s")
        made.execute("CREATE VIEW main.few AS SELECT a FROM payroll; USE crm.main; DROP TABLE s.payroll")
    spec = SourceSpec(url=str(path), tables=("few",))
    app = App(home=tmp_path / "home", record=False, sources={"shop": spec})
    with app, pytest.raises(SourceError, match="granted view `few`") as failed:
        app.sql("shop", "SELECT * FROM few")
    assert "payroll" not in str(failed.value) + failed.value.hint and str(path) not in str(failed.value)


NESTED = "{" + ",".join(f"'a{i}':1" for i in range(60)) + "}"


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        (f"SELECT {','.join(['s'] * 1500)} FROM (SELECT {NESTED} AS s)", "columns"),
        (f"SELECT {','.join(['s'] * 200)} FROM (SELECT [{NESTED}] AS s)", "columns"),
        (f"SELECT {','.join(['s'] * 200)} FROM (SELECT MAP {{1: {NESTED}}} AS s)", "columns"),
        (f"SELECT {'[' * 70}1{']' * 70}", "depth"),
        (f"SELECT {','.join(['s'] * 20)} FROM (SELECT {{'{'x' * 500_000}': 1}} AS s)", "names"),
    ],
)
def test_nested_fields_and_long_names_count_before_a_result_is_sent(tmp_path: Path, query: str, limit: str) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    with App(home=tmp_path / "home", record=False) as app:
        with pytest.raises(LimitExceeded) as failed:
            app.sql(str(tmp_path / "t.csv"), query)
        assert failed.value.details["limit"] == limit
        assert app.sql(str(tmp_path / "t.csv"), "SELECT a FROM t").rows() == [(1,)]


def test_a_result_has_a_limit_of_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    with App(home=tmp_path / "home", record=False) as app:
        assert len(app.sql(str(tmp_path / "t.csv"), f"SELECT {','.join('1' * 2_000)}").rows()[0]) == 2_000
        with pytest.raises(LimitExceeded, match="more than 10,000 columns") as failed:
            app.sql(str(tmp_path / "t.csv"), f"SELECT {','.join('1' * 10_001)}")
        assert failed.value.details["limit"] == "columns"


@pytest.mark.parametrize("content", ["a" * 2000 + ",b\n1,2\n"])
def test_a_name_that_is_too_long_is_refused_in_short(tmp_path: Path, content: str) -> None:
    (tmp_path / "wide.csv").write_text(content)
    with App(home=str(tmp_path / "home")) as app, pytest.raises(LimitExceeded, match="2,000 characters") as refused:
        app.open_source("wide", SourceSpec(url=str(tmp_path / "wide.csv"))).catalog(app.settings.limits)
    assert len(refused.value.message) < 300
