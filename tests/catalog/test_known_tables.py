"""Questions read with the help of a profile: the same readings, fewer looks at the data, nothing out of date."""

from __future__ import annotations

import sqlite3
from datetime import date
from pathlib import Path

import psycopg
import pytest

from etude.app import App
from etude.catalog.known_tables import known_tables
from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary

TODAY = date(2025, 6, 1)
SCRIPT = """
    CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT, email TEXT, since TIMESTAMP, credit NUMERIC(9, 2));
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, status TEXT, placed DATE, price REAL);
"""
CITIES, STATES = ("Berlin", "Lyon", "Oslo"), ("cancelled", "paid", "")


def rows() -> list[str]:
    people = [
        f"({n}, '{CITIES[n % 3]}', 'p{n}@mail.example', '2024-01-{n % 28 + 1:02d} 10:00:00', {n}.50)"
        for n in range(1, 31)
    ]
    orders = [f"({n}, {n % 30 + 1}, '{STATES[n % 3]}', '2024-02-{n % 28 + 1:02d}', {n / 4})" for n in range(1, 91)]
    return [f"INSERT INTO customers VALUES {', '.join(people)}", f"INSERT INTO orders VALUES {', '.join(orders)}"]


def write_sqlite(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.executescript(statement)
    connection.close()
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Customers and their orders, on an engine."""
    if request.param == "sqlite":
        return str(write_sqlite(tmp_path / "shop.sqlite", SCRIPT, *rows()))
    postgres = str(request.getfixturevalue("postgres_url"))
    with psycopg.connect(postgres, autocommit=True) as connection:
        for statement in (SCRIPT, *rows()):
            connection.execute(statement)  # type: ignore[call-overload]
    return postgres


def look(app: App, url: str, with_profile: bool) -> tuple[Vocabulary, list[str]]:
    """What the rules know of a source, and the queries that it took."""
    asked: list[str] = []

    def ask(sql: str) -> list[tuple[object, ...]]:
        asked.append(sql)
        return app.sql(url, sql, record=False).rows()

    catalog, profile = app.catalog(url), app.known_profile(url)
    known = known_tables(catalog, profile) if with_profile and profile else None
    return build_vocabulary(catalog, ask, known), asked


def test_the_rules_know_the_same_without_counting(app: App, url: str) -> None:
    app.profile(url)
    (plain, before), (helped, asked) = look(app, url, with_profile=False), look(app, url, with_profile=True)
    assert helped.tables == plain.tables and helped.links == plain.links
    # Only for the values that the profile masks, and whether one column holds the keys of another.
    assert len(asked) < len(before) and not any("MIN(" in sql or "city" in sql or "status" in sql for sql in asked)
    assert helped.table("customers").column("city").values == CITIES
    for question in ("How many customers are from Berlin?", "How many cancelled orders are there?"):
        assert isinstance(understand(question, helped, today=TODAY), Understanding)


def test_masked_values_are_not_taken_from_a_profile(app: App, url: str) -> None:
    profile = app.profile(url)
    masked = profile.table("customers")
    assert masked is not None and masked.column("email").masked  # type: ignore[union-attr]
    known = known_tables(app.catalog(url), profile)
    assert known["customers"].column("email").values == ()
    vocabulary, _ = look(app, url, with_profile=True)
    assert not any("*" in value for value in vocabulary.table("customers").column("email").values)


def test_a_table_that_does_not_tell_of_changes_is_looked_at(app: App, url: str) -> None:
    profile, catalog = app.profile(url), app.catalog(url)
    silent = [table.model_copy(update={"fingerprint": None}) for table in catalog.tables]
    assert known_tables(catalog.model_copy(update={"tables": tuple(silent)}), profile) == {}


def test_of_a_large_table_the_profile_adds_what_its_first_rows_lack(app: App, url: str) -> None:
    profile, catalog = app.profile(url), app.catalog(url)
    large = [table.model_copy(update={"row_count": 50_000_000}) for table in catalog.tables]
    known = known_tables(catalog, profile)
    assert "cancelled" in known["orders"].column("status").values
    vocabulary = build_vocabulary(catalog.model_copy(update={"tables": tuple(large)}), lambda _: [(0,)], known)
    assert vocabulary.table("orders").column("status").values == ("cancelled", "paid")
    assert vocabulary.table("orders").rows == 90


def test_of_many_texts_none_is_taken_for_all(app: App, tmp_path: Path) -> None:
    path = tmp_path / "visits.sqlite"
    texts = ", ".join(f"('page {n}')" for n in range(2_500))
    write_sqlite(path, "CREATE TABLE visits (page TEXT)", f"INSERT INTO visits VALUES {texts}")
    profile, catalog = app.profile(str(path)), app.catalog(str(path))
    assert profile.tables[0].columns[0].top, "frequent ones are known"
    (plain, _), (helped, _) = look(app, str(path), with_profile=False), look(app, str(path), with_profile=True)
    assert helped.tables == plain.tables and plain.tables[0].columns[0].values == ()
    # The first rows of a large table have few: they are told as before, and the frequent ones with them.
    large = [table.model_copy(update={"row_count": 50_000_000}) for table in catalog.tables]
    known = known_tables(catalog, profile)
    vocabulary = build_vocabulary(catalog.model_copy(update={"tables": tuple(large)}), lambda _: [("first",)], known)
    assert {"first", "page 0"} < {*vocabulary.tables[0].columns[0].values}


def test_a_profile_of_older_data_answers_nothing(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "shop.sqlite", SCRIPT, *rows())
    with App(home=tmp_path / "home") as app:
        app.profile(str(path))
        answer = app.ask(str(path), "How many customers are from Berlin?")
        assert answer.result is not None and answer.result.rows() == [(10,)]
        write_sqlite(path, "INSERT INTO customers VALUES (31, 'Turin', '', '2024-01-01', 1)")
        write_sqlite(path, "UPDATE customers SET city = 'Turin' WHERE city = 'Berlin'")
        assert app.known_profile(str(path)) is None
        answer = app.ask(str(path), "How many customers are from Turin?")
        assert answer.result is not None and answer.result.rows() == [(11,)]
        assert not app.ask(str(path), "How many customers are from Berlin?").ok
