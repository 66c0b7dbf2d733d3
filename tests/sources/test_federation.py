"""Two or more sources in one query, whatever engines they live in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from etude.app import App
from etude.entities import SourceSpec
from etude.errors import LimitExceeded, Refused, UnknownTable
from etude.sources import federation
from etude.sources.federation import find_others


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

    def spy(source: Any, table: Any, columns: list[str], path: Path) -> None:
        copied.append(columns)
        original(source, table, columns, path)

    monkeypatch.setattr(federation, "_copy_table", spy)
    app.sql("crm", JOIN)
    assert copied == [["id", "country"]]


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
    assert find_others(sql, "crm", ["crm", "files"]) == found
