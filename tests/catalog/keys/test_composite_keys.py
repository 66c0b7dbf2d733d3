"""References of several columns: declared ones with what the data says, others where nothing else explains them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import etude
from etude.app import App
from etude.catalog.drift.compare import compare
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import ForeignKeyEvidence, SourceProfile, from_json, to_json
from etude.catalog.page.report import render_catalog
from etude.tools.result_text import table_result_text_for_model

from ..conftest import run_mysql

Make = Callable[..., etude.Connection]
DECLARED = (
    "CREATE TABLE orders (no INT PRIMARY KEY)",
    "CREATE TABLE entries (order_no INT NOT NULL REFERENCES orders (no), pos INT NOT NULL, item VARCHAR(20), "
    "PRIMARY KEY (order_no, pos))",
    "CREATE TABLE parcels (id INT PRIMARY KEY, of_order INT, of_pos INT, "
    "FOREIGN KEY (of_order, of_pos) REFERENCES entries (order_no, pos))",
    "INSERT INTO orders VALUES (1), (2), (3)",
    "INSERT INTO entries VALUES (1, 1, 'tea'), (1, 2, 'cup'), (2, 1, 'tea'), (3, 1, 'pot')",
    "INSERT INTO parcels VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1), (4, NULL, 1), (5, 2, 1)",
)


def composites(profile: SourceProfile) -> dict[str, ForeignKeyEvidence]:
    return {t.name.rpartition(".")[2]: k for t in profile.tables for k in t.foreign_keys if len(k.columns) > 1}


@pytest.mark.parametrize("engine", ["duckdb", "sqlite", "postgres", "mysql"])
def test_declared_ones_come_with_what_the_data_says(
    engine: str, app: App, make: Make, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "duckdb":
        db = make(*DECLARED)
    elif engine == "sqlite":
        with closing(sqlite3.connect(tmp_path / "data.sqlite", isolation_level=None)) as connection:
            for statement in DECLARED:
                connection.execute(statement)
        db = etude.connect(tmp_path / "data.sqlite", app=app)
    elif engine == "postgres":
        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url, autocommit=True) as server:
            for statement in DECLARED:
                server.execute(statement)  # type: ignore[arg-type]
        db = etude.connect(url, app=app)
    else:
        url = request.getfixturevalue("mariadb_server")()
        for statement in DECLARED:
            # There, a reference behind a column is read and not kept.
            run_mysql(url, statement.replace(" REFERENCES orders (no),", ","))
        db = etude.connect(url, app=app)
    profile = profile_source(db)
    (found,) = composites(profile).values()
    assert (found.columns, found.to_columns) == (("of_order", "of_pos"), ("order_no", "pos"))
    assert found.to_table.endswith("entries") and found.origin == "declared"
    assert (found.values, found.missing, found.containment, found.coverage) == (3, 0, 1.0, 0.75)
    assert found.cardinality == "many-to-one"
    assert composites(from_json(to_json(profile))) == composites(profile)
    page = render_catalog(profile)
    assert "<code>of_order</code>" in page and "75% of the other side is referenced" in page


def test_one_that_names_no_columns_is_to_the_key(app: App, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "data.sqlite", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE entries (order_no INT, pos INT, PRIMARY KEY (order_no, pos))")
        connection.execute("CREATE TABLE parcels (o INT, p INT, FOREIGN KEY (o, p) REFERENCES entries)")
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, like_item INT REFERENCES items)")
        connection.execute("INSERT INTO entries VALUES (1, 1), (1, 2)")
        connection.execute("INSERT INTO parcels VALUES (1, 2), (1, 7)")
    db = etude.connect(tmp_path / "data.sqlite", app=app)
    (found,) = composites(profile_source(db)).values()
    assert (found.to_columns, found.missing) == (("order_no", "pos"), 1)
    assert "values without a match: 1" in found.reasons
    items = db.catalog().table("items")
    assert items is not None and "-> items.id" in table_result_text_for_model(items)


def test_a_number_within_an_order_is_referred_to_with_the_order(make: Make) -> None:
    profile = profile_source(
        make(
            "CREATE TABLE orders AS SELECT range + 100 AS order_id FROM range(100)",
            """CREATE TABLE order_lines AS SELECT 100 + range // 3 AS order_id,
               range % 3 + 1 AS line_number FROM range(300)""",
            """CREATE TABLE parcels AS SELECT range AS parcel_id, 100 + range % 50 AS order_id,
               range % 3 + 1 AS line_number FROM range(120)""",
            """CREATE TABLE returns AS SELECT range AS return_id, 100 + range % 50 AS original_order_id,
               range % 3 + 1 AS original_line_number FROM range(60)""",
        )
    )
    found = composites(profile)
    assert {k: (f.columns, f.to_table, f.to_columns) for k, f in found.items()} == {
        "parcels": (("order_id", "line_number"), "order_lines", ("order_id", "line_number")),
        "returns": (("original_order_id", "original_line_number"), "order_lines", ("order_id", "line_number")),
    }
    assert found["parcels"].score > found["returns"].score
    assert "`line_number` is a number within the rest of the key" in found["parcels"].reasons
    singles = {(t.name, k.columns[0]) for t in profile.tables for k in t.foreign_keys if len(k.columns) == 1}
    assert ("parcels", "order_id") in singles, "what a column refers to alone is told too"


STOCK = (
    "CREATE TABLE parts AS SELECT range AS part_id FROM range(40)",
    "CREATE TABLE suppliers AS SELECT range AS supplier_id FROM range(30)",
)
OFFERS = """CREATE TABLE offers AS SELECT part_id, (part_id * 7 + n.range * 11) % 30 AS supplier_id
    FROM parts, range(4) n"""
SALES = "CREATE TABLE sales AS SELECT row_number() OVER () AS sale_id, * FROM offers LIMIT 90"
VISITS = """CREATE TABLE visits AS SELECT range AS visit_id, range % 40 AS part_id, range % 30 AS supplier_id
    FROM range(90)"""


def test_of_two_references_together_only_what_chance_does_not_explain(make: Make) -> None:
    profile = profile_source(
        make(
            *STOCK,
            OFFERS,
            SALES,
            VISITS,
        )
    )
    assert {k: f.to_table for k, f in composites(profile).items()} == {"sales": "offers"}


def test_of_a_large_table_the_rows_are_counted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.catalog.keys.composite_keys._LARGE", 50)
    found = composites(profile_source(make(*STOCK, OFFERS, SALES, VISITS)))
    assert {k: f.to_table for k, f in found.items()} == {"sales": "offers"}
    assert found["sales"].reasons[0] == "all 90 rows match"
    assert (found["sales"].containment, found["sales"].values, found["sales"].coverage) == (1.0, None, None)


def test_what_chance_explains_by_now_has_lost_nothing(make: Make) -> None:
    before = profile_source(make(*STOCK, OFFERS, SALES))
    everything = "CREATE OR REPLACE TABLE offers AS SELECT part_id, supplier_id FROM parts, suppliers"
    after = profile_source(make(*STOCK, OFFERS, SALES, everything, name="later"))
    assert set(composites(before)) == {"sales"} and composites(after) == {}
    assert not [change for change in compare(before, after) if change.kind == "orphans"]


def test_where_every_combination_is_there_nothing_is_told(make: Make) -> None:
    profile = profile_source(
        make(
            *STOCK,
            "CREATE TABLE stock AS SELECT part_id, supplier_id, 1 AS n FROM parts, suppliers",
            VISITS,
            # The same rows twice: neither table is the other's.
            "CREATE TABLE prices AS SELECT part_id, supplier_id, 2 AS price FROM stock",
        )
    )
    assert composites(profile) == {}
