"""An answer about a name that several rows have says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[App, str]]:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name VARCHAR, country VARCHAR)")
        db.execute("INSERT INTO customers VALUES (1, 'Ann Lee', 'DE'), (2, 'Ann Lee', 'FR'), (3, 'Bo Ek', 'DE')")
        db.execute("CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers)")
        db.execute("INSERT INTO orders SELECT i, 1 + i % 3 FROM range(30) t(i)")
    with App(home=tmp_path / "home") as app:
        yield app, str(path)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("how many orders did Ann Lee make", "Several `customers` have the name `Ann Lee`; this is about all of them."),
        ("how many orders did Bo Ek make", ""),
        ("how many orders of customers in DE", ""),
        ("how many customers are called Ann Lee", ""),
    ],
)
def test_several_rows_with_the_name_are_told(shop: tuple[App, str], question: str, told: str) -> None:
    app, source = shop
    answer = app.ask(source, question)
    assert told in answer.text if told else "Several" not in answer.text
    if told:
        assert answer.ok and not answer.unverified
