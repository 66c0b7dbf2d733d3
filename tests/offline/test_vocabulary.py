"""What is known of a source: keys that nobody declared, names in any spelling, values; and how it is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from etude.app import App
from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, copy_with, vocabulary_from_json
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan
from offline.questions import TODAY

Rows = list[tuple[Any, ...]]


def links(vocabulary: Vocabulary) -> set[str]:
    return {f"{k.table}.{k.columns[0]} -> {k.to_table}.{k.to_columns[0]}" for k in vocabulary.links}


def build(path: Path, script: str) -> tuple[Vocabulary, Callable[[str], Rows]]:
    """A vocabulary of an SQLite file, and how to query it."""
    database = path / "data.sqlite"
    with sqlite3.connect(database) as connection:
        connection.executescript(script)
    connection.close()
    app = App(home=path / "home", record=False)
    try:
        vocabulary = build_vocabulary(app.catalog(str(database)), lambda sql: app.sql(str(database), sql).rows())
    finally:
        app.close()

    def ask(sql: str) -> Rows:
        with sqlite3.connect(database) as reader:
            rows = reader.execute(sql).fetchall()
        reader.close()
        return rows

    return vocabulary, ask


def test_keys_are_found_by_name_and_values(shop: Vocabulary) -> None:
    assert links(shop) == {
        "orders.customer_id -> customers.customer_id",
        "order_lines.order_id -> orders.order_id",
        "order_lines.product_id -> products.product_id",
    }
    assert {table.name: table.key for table in shop.tables}["orders"] == ("order_id",)
    assert shop.table("customers").label == ("name",)


def test_values_ranges_and_nulls(shop: Vocabulary) -> None:
    assert shop.table("orders").column("channel").values == ("app", "store", "web")
    ordered = shop.table("orders").column("ordered")
    assert (ordered.kind, ordered.low, ordered.high) == ("date", "2024-01-02", "2025-12-31")
    assert shop.table("customers").column("email").nulls > 0


def test_it_is_kept_as_text(shop: Vocabulary) -> None:
    again = vocabulary_from_json(shop.to_json())
    assert again == shop
    assert again.catalog == shop.catalog


SHORTENED = """
    CREATE TABLE dbClient (dbClId INTEGER PRIMARY KEY, dbClName TEXT, dbClCity TEXT);
    CREATE TABLE dbInvoice (dbInvId INTEGER PRIMARY KEY, dbInvClientId INTEGER, dbInvAmt REAL, dbInvIsPaid TEXT);
    CREATE TABLE dbVisit (dbVisId INTEGER PRIMARY KEY, dbVisClientId INTEGER, dbVisNumGuests INTEGER);
    INSERT INTO dbClient VALUES (1, 'Ada', 'Lisbon'), (2, 'Bo', 'Porto'), (3, 'Cy', 'Lisbon');
    INSERT INTO dbInvoice VALUES (1, 1, 10.5, 'yes'), (2, 1, 20, 'no'), (3, 2, 5, 'yes');
    INSERT INTO dbVisit VALUES (1, 1, 4), (2, 3, 2), (3, 3, 6);
"""


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many clients are in Lisbon?", [(2,)]),
        ("What is the total invoice amount by city?", [("Lisbon", 30.5), ("Porto", 5.0)]),
        ("How many paid invoices are there?", [(2,)]),
        ("What is the total number of guests for each client?", [("Ada", 1, 4), ("Cy", 3, 8)]),
        ("Which clients have no invoices?", [("Cy", 3)]),
    ],
)
def test_prefixes_and_short_forms_are_read_as_words(tmp_path: Path, question: str, expected: Rows) -> None:
    vocabulary, ask = build(tmp_path, SHORTENED)
    assert links(vocabulary) == {
        "dbInvoice.dbInvClientId -> dbClient.dbClId",
        "dbVisit.dbVisClientId -> dbClient.dbClId",
    }
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert sorted(ask(compile_plan(found.plan, vocabulary.catalog))) == expected


def test_names_with_quotes_and_keywords_are_only_names(tmp_path: Path) -> None:
    script = 'CREATE TABLE "order" ("group" TEXT, "a""b" INTEGER); INSERT INTO "order" VALUES (\'x\'\'; DROP\', 1);'
    vocabulary, ask = build(tmp_path, script)
    found = understand("How many orders are there for each group?", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert ask(compile_plan(found.plan, vocabulary.catalog)) == [("x'; DROP", 1)]


def test_of_a_large_table_only_a_part_is_read(ask: Callable[[str], Rows]) -> None:
    catalog = ask.catalog  # type: ignore[attr-defined]
    large = catalog.table("orders").model_copy(update={"row_count": 50_000_000})
    tables = tuple(large if table.name == "orders" else table for table in catalog.tables)
    asked: list[str] = []

    def note(sql: str) -> Rows:
        asked.append(sql)
        return ask(sql)

    vocabulary = build_vocabulary(catalog.model_copy(update={"tables": tables}), note)
    assert vocabulary.table("orders").rows == 50_000_000
    assert vocabulary.table("orders").column("channel").values == ("app", "store", "web")
    assert "orders.customer_id -> customers.customer_id" in links(vocabulary)
    assert all("LIMIT" in sql for sql in asked if 'FROM "orders"' in sql)


def test_an_empty_source_refuses(tmp_path: Path) -> None:
    vocabulary, _ = build(tmp_path, "CREATE TABLE pets (a TEXT);")
    assert isinstance(understand("How many pets are there?", vocabulary, today=TODAY), Understanding)
    assert not isinstance(understand("How many dragons?", vocabulary, today=TODAY), Understanding)


def test_a_server_is_read_and_asked_in_its_own_dialect(postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE clients (id INT PRIMARY KEY, name TEXT, tags JSON, since TIMESTAMPTZ)")
        connection.execute(
            "CREATE TABLE invoices (id INT PRIMARY KEY, client_id INT REFERENCES clients, amount NUMERIC)"
        )
        connection.execute("INSERT INTO clients VALUES (1, 'Ada', '{}', '2024-05-01'), (2, 'Bo', NULL, '2023-01-01')")
        connection.execute("INSERT INTO invoices VALUES (1, 1, 10.5), (2, 1, 20), (3, NULL, 5)")
    with App(home=tmp_path / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(postgres_url), lambda sql: app.sql(postgres_url, sql).rows())
        for question, expected in {
            "Total invoice amount per client": [("Ada", 1, 30.5)],
            "Which clients have no invoices?": [("Bo", 2)],
            "How many clients are there since 2024?": [(1,)],
            "How many invoices over 10 does Ada have?": [(2,)],
        }.items():
            found = understand(question, vocabulary, today=TODAY)
            assert isinstance(found, Understanding), found
            assert vocabulary.catalog is not None
            rows = app.sql(postgres_url, compile_plan(found.plan, vocabulary.catalog)).rows()
            assert [tuple(float(v) if isinstance(v, Decimal) else v for v in row) for row in rows] == expected


def test_a_copy_with_changed_fields_keeps_no_computed_property() -> None:
    column = VocabularyColumn("bikes", "sold", "text", 2, values=("no", "yes"), words=("sold",))
    assert column.flag == ("yes", "no")
    changed = copy_with(column, values=("red", "blue"))
    assert changed == replace(column, values=("red", "blue"))
    assert changed.flag is None
    assert column.values == ("no", "yes")
