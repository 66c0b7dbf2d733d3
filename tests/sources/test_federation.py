"""Two or more sources in one query, whatever engines they live in."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from tests.patience import wait_until

from etude.app import App
from etude.entities import Limits, SourceSpec
from etude.errors import Cancelled, InvalidQuery, LimitExceeded, Refused, SourceError, UnknownTable
from etude.sources import federation
from etude.sources.base import Mount
from etude.sources.drivers.duckdb import DuckdbDriver
from etude.sources.federation import find_federated_sources


@pytest.fixture
def app(tmp_path: Path, postgres_server: Callable[[], str], sqlite_shop: Any) -> Iterator[App]:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as crm:
        crm.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, country text, secret text)")
        crm.execute(
            "INSERT INTO customers VALUES (1, 'Ann', 'FR', 's1'), (2, 'Bob', 'DE', 's2'), (3, 'Cy', 'DE', 's3')"
        )
        crm.execute("CREATE SCHEMA sales; CREATE TABLE sales.targets AS SELECT 'DE' AS country, 100 AS goal")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "orders.csv").write_text("order_id,customer_id,total\n1,1,10.5\n2,2,20\n3,2,30\n")
    with duckdb.connect(str(tmp_path / "fx.duckdb")) as fx:
        fx.execute("CREATE TABLE rates AS SELECT 'DE' AS country, 1.5 AS rate UNION ALL SELECT 'FR', 2")
    urls = {"crm": url, "files": str(tmp_path / "files"), "fx": str(tmp_path / "fx.duckdb"), "lite": sqlite_shop.url}
    specs = {n: SourceSpec(url=u) for n, u in urls.items()}
    with App(home=tmp_path / "home", sources=specs) as opened:
        yield opened


JOIN = """SELECT c.country, sum(o.total) AS total FROM crm.customers c JOIN files.orders o ON o.customer_id = c.id
GROUP BY ALL ORDER BY ALL"""


def test_a_server_and_files_in_one_query(app: App) -> None:
    assert app.sql("crm", JOIN).rows() == [("DE", 50.0), ("FR", 10.5)]


def test_the_first_rows_of_a_join_are_computed_from_whole_tables(app: App) -> None:
    result = app.sql("crm", JOIN, limits=Limits(limit=1))
    assert result.rows() == [("DE", 50.0)] and result.truncated


def test_a_join_takes_parameters(app: App) -> None:
    query = "SELECT c.name, o.total FROM crm.customers c JOIN files.orders o ON o.customer_id = c.id WHERE o.total > ?"
    assert app.sql("crm", query, [25]).rows() == [("Bob", 30.0)]


def test_from_either_side_the_answer_is_the_same(app: App) -> None:
    assert app.sql("files", JOIN).rows() == app.sql("crm", JOIN).rows()


def test_unqualified_names_mean_the_first_source(app: App) -> None:
    rows = app.sql("files", "SELECT count(*) FROM orders JOIN crm.customers c ON c.id = customer_id").rows()
    assert rows == [(3,)]


def test_three_engines_at_once(app: App) -> None:
    rows = app.sql(
        "crm",
        """SELECT c.name, o.total * r.rate AS euro, l.region FROM customers c
        JOIN files.orders o ON o.customer_id = c.id JOIN fx.rates r USING (country)
        JOIN lite.customers l ON l.id = c.id ORDER BY euro""",
    ).rows()
    assert [(n, float(e), r) for n, e, r in rows] == [
        ("Ann", 21.0, "north"),
        ("Bob", 30.0, "south"),
        ("Bob", 45.0, "south"),
    ]


def test_a_schema_within_a_source(app: App) -> None:
    sql = "SELECT t.goal FROM crm.sales.targets t JOIN fx.rates USING (country)"
    assert app.sql("fx", sql).rows() == [(100,)]


def test_only_named_columns_are_copied(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[list[str]] = []
    original = federation._copy_table

    def spy(source: Any, table: Any, columns: list[str], *others: Any) -> None:
        copied.append(columns)
        original(source, table, columns, *others)

    monkeypatch.setattr(federation, "_copy_table", spy)
    app.sql("crm", JOIN)
    assert copied == [["id", "country"]]


UNNAMED = [
    ("SELECT count(*) FROM mine NATURAL JOIN lite.items", [(1,)]),
    ("FROM lite.items ORDER BY ALL", [(1, "a", 10.0), (2, "x", 20.0), (2, "x", 30.0)]),
    ("TABLE lite.items", [(1, "a", 10.0), (2, "x", 20.0), (2, "x", 30.0)]),
    ("SELECT count(*) FROM (SELECT DISTINCT i FROM lite.items i)", [(3,)]),
    ("SELECT items FROM lite.items LIMIT 1", [({"id": 1, "v": "a", "price": 10.0},)]),
    ("SELECT c FROM lite.items AS t(a, b, c) ORDER BY c", [(10.0,), (20.0,), (30.0,)]),
    ("SELECT #3 FROM lite.items ORDER BY 1", [(10.0,), (20.0,), (30.0,)]),
    ("SELECT column_name FROM (DESCRIBE lite.items)", [("id",), ("v",), ("price",)]),
    ("SELECT count(*) FROM (PIVOT lite.items ON v USING count(*))", [(3,)]),
    ("SELECT count(*) FROM (UNPIVOT lite.items ON COLUMNS(* EXCLUDE (v)))", [(6,)]),
    ("SELECT count(*) FROM ((FROM mine) EXCEPT (SELECT COLUMNS('id|v') FROM lite.items))", [(1,)]),
]


@pytest.mark.parametrize(("sql", "rows"), UNNAMED, ids=[sql for sql, _ in UNNAMED])
def test_columns_that_a_query_uses_without_naming_them_are_copied(tmp_path: Path, sql: str, rows: list[Any]) -> None:
    with sqlite3.connect(tmp_path / "lite.db") as lite:
        lite.execute("CREATE TABLE items (id integer, v text, price real)")
        lite.execute("INSERT INTO items VALUES (1, 'a', 10.0), (2, 'x', 20.0), (2, 'x', 30.0)")
    with duckdb.connect(str(tmp_path / "duck.duckdb")) as duck:
        duck.execute("CREATE TABLE mine AS FROM (VALUES (1, 'a'), (2, 'b')) t(id, v)")
    specs = {"lite": SourceSpec(url=str(tmp_path / "lite.db")), "duck": SourceSpec(url=str(tmp_path / "duck.duckdb"))}
    with App(home=tmp_path / "home", sources=specs) as app:
        assert app.sql("duck", sql).rows() == rows


def test_a_join_is_a_recorded_run_that_tells_what_it_read(app: App) -> None:
    result = app.sql("crm", JOIN)
    step = app.store.run(str(result.run_id)).steps[0]
    assert sorted(r.table for r in step.reads) == ["customers", "files.orders"]


def test_the_guard_holds_over_all_of_them(app: App, tmp_path: Path) -> None:
    with pytest.raises(UnknownTable):
        app.sql("crm", "SELECT * FROM files.nothing JOIN customers c ON true")
    with pytest.raises(Refused):
        app.sql("crm", f"SELECT * FROM files.orders, read_csv('{tmp_path}/files/orders.csv')")


def test_a_table_too_large_to_copy_is_refused_not_cut(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "COPY_ROWS", 2)
    with pytest.raises(LimitExceeded, match="not copied"):
        app.sql("crm", JOIN)


def test_copies_are_gone_afterwards(app: App, tmp_path: Path) -> None:
    app.sql("crm", JOIN)
    assert list((tmp_path / "home" / "scratch").glob("etude-join-*")) == []


@pytest.fixture
def two(tmp_path: Path) -> Iterator[App]:
    """A SQLite file with a view that never ends, and a DuckDB file."""
    with sqlite3.connect(tmp_path / "lite.db") as lite:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n {}) SELECT i FROM n"
        lite.execute(f"CREATE TABLE t AS {numbers.format('LIMIT 5000')}")
        lite.execute(f"CREATE VIEW endless AS {numbers.format('')} WHERE i < 0")
    with duckdb.connect(str(tmp_path / "duck.duckdb")) as duck:
        duck.execute("CREATE TABLE d AS SELECT i FROM range(5000) r(i)")
    specs = {"lite": SourceSpec(url=str(tmp_path / "lite.db")), "duck": SourceSpec(url=str(tmp_path / "duck.duckdb"))}
    with App(home=tmp_path / "home", sources=specs) as opened:
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("SELECT count(*) FROM duck.d JOIN lite.endless e USING (i)", id="while a table is copied"),
        pytest.param(
            "SELECT sum(a.i * b.i % (c.i + 1)) FROM duck.d a, duck.d b, duck.d c, lite.t e", id="while the join runs"
        ),
    ],
)
def test_a_join_that_takes_too_long_is_stopped(two: App, sql: str) -> None:
    with pytest.raises(LimitExceeded, match="limit of 1 s") as caught:
        two.sql("duck", sql, limits=Limits(timeout_s=1))
    assert caught.value.details["limit"] == "timeout_s"


def test_the_time_of_a_join_counts_from_its_start(two: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that copying took is not given to the join again."""
    clock = [0.0]
    monkeypatch.setattr(federation, "monotonic", lambda: clock.__setitem__(0, clock[0] + 50) or clock[0])
    with pytest.raises(LimitExceeded, match="limit of 60 s"):
        two.sql("duck", "SELECT count(*) FROM duck.d JOIN lite.t USING (i)", limits=Limits(timeout_s=60))


@pytest.mark.parametrize("table", ["endless", "t e, duck.d b, duck.d c, duck.d f"])
def test_a_join_can_be_cancelled(two: App, table: str) -> None:
    sql = f"SELECT sum(a.i * e.i) FROM duck.d a, lite.{table.replace('endless', 'endless e')}"
    answer = two._start_query(two.source("duck"), sql, {}, Limits(timeout_s=600), describe=False)
    failed: list[BaseException] = []

    def read() -> None:
        try:
            list(answer.batches)
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    wait_until(lambda: two.pool._share.taken)
    answer.cancel()
    reader.join(120)
    assert [type(error) for error in failed] == [Cancelled]


def test_a_join_reads_no_more_than_its_budget(two: App) -> None:
    sql = "SELECT count(*) FROM duck.d JOIN lite.t USING (i)"
    with pytest.raises(LimitExceeded) as caught:
        two.sql("duck", sql, limits=Limits(scan_rows=4_000))
    assert caught.value.details["limit"] == "scan_rows"
    with pytest.raises(LimitExceeded):
        two.sql("duck", sql, limits=Limits(scan_rows=9_000))
    assert two.sql("duck", sql, limits=Limits(scan_rows=20_000)).rows() == [(4999,)]


def test_a_join_copies_no_more_bytes_than_allowed(two: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "COPY_BYTES", 10_000)
    with pytest.raises(LimitExceeded, match="bytes"):
        two.sql("duck", "SELECT count(*) FROM duck.d JOIN lite.t USING (i)")


def test_a_join_with_more_rows_than_its_limit_fails(app: App) -> None:
    with pytest.raises(LimitExceeded, match="more than 2 rows"):
        app.sql("crm", "SELECT c.id FROM crm.customers c CROSS JOIN files.orders o", limits=Limits(rows=2))


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT * FROM files.orders", ["files"]),
        ('SELECT * FROM "files"."orders"', ["files"]),
        ("SELECT * FROM FILES . orders", ["files"]),
        ("SELECT a.files.x FROM t", []),
        ("SELECT 1.5", []),
        ("SELECT * FROM crm.files", []),
    ],
)
def test_other_sources_are_found_by_their_names(sql: str, found: list[str]) -> None:
    assert find_federated_sources(sql, "crm", ["crm", "files"]) == found


def test_tables_whose_names_differ_in_case_are_joined_by_their_exact_names(app: App) -> None:
    with psycopg.connect(app.sources()["crm"].url, autocommit=True) as crm:
        crm.execute("CREATE TABLE \"Rates\" AS SELECT 'upper' AS x; CREATE TABLE rates AS SELECT 'lower' AS x")
        crm.execute("CREATE SCHEMA main; CREATE TABLE main.customers AS SELECT 'other' AS name")
    for name, x in (('"Rates"', "upper"), ("rates", "lower")):
        assert app.sql("fx", f"SELECT DISTINCT c.x FROM rates r, crm.{name} c").rows() == [(x,)]
    for both in ("crm.RATES c", 'crm.rates c, crm."Rates" d', "crm.customers c, crm.main.customers d"):
        with pytest.raises(InvalidQuery, match="cannot tell apart"):
            app.sql("fx", f"SELECT 1 FROM rates r, {both}")


def test_an_error_of_a_join_does_not_show_the_address_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 is not all of it")
    files = ({"table": "t", "paths": [str(tmp_path / "broken.parquet")], "fingerprint": ""},)
    with pytest.raises(SourceError, match="Cannot open `crm`") as failed:
        DuckdbDriver(Mount("crm", "files", "postgresql://me:hunter2@db/crm", None, {}, files))
    assert "hunter2" not in failed.value.message
