"""Verbs of money and of sales, values used as nouns, and lists, on a shop whose order lines have no date."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.answer_sentence import phrase_answer_value, write_row_answer_sentence
from etude.offline.result_check import doubt_repeated_result
from etude.offline.understand import Outcome, Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 18)
BIKES = """
CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, first_name TEXT, last_name TEXT, city TEXT, segment TEXT,
  birth_year INTEGER, signed_up DATE);
CREATE TABLE products (product_id INTEGER PRIMARY KEY, name TEXT, category TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers, ordered_on DATE,
  status TEXT);
CREATE TABLE order_items (order_id INTEGER NOT NULL REFERENCES orders, product_id INTEGER NOT NULL REFERENCES products,
  quantity INTEGER, unit_price REAL);
CREATE TABLE shelves (shelf_id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE shelf_products (shelf_id INTEGER NOT NULL REFERENCES shelves,
  product_id INTEGER NOT NULL REFERENCES products);
CREATE TABLE employees (employee_id INTEGER PRIMARY KEY, name TEXT, salary INTEGER);
INSERT INTO customers VALUES (1, 'Anna', 'Holm', 'Berlin', 'retail', 1980, '2022-01-01'),
  (2, 'Anna', 'Falk', 'Paris', 'retail', 1990, '2022-05-01'),
  (3, 'Ben', 'Rask', 'Paris', 'wholesale', 1970, '2023-01-01');
INSERT INTO products VALUES (1, 'City Bike', 'bikes', 500, 3), (2, 'Race Bike', 'bikes', 900, 0),
  (3, 'Cap', 'helmets', 50, 8), (4, 'Shell', 'helmets', 70, 8);
INSERT INTO orders VALUES (1, 1, '2024-03-01', 'completed'), (2, 2, '2025-02-01', 'completed'),
  (3, 3, '2025-03-01', 'cancelled'), (4, 3, '2025-04-01', 'completed');
INSERT INTO order_items VALUES (1, 1, 1, 500), (1, 3, 2, 50), (2, 2, 1, 900), (3, 1, 2, 500), (4, 3, 5, 50);
INSERT INTO shelves VALUES (1, 'Front'), (2, 'Back');
INSERT INTO shelf_products VALUES (1, 1), (1, 3);
INSERT INTO employees VALUES (1, 'Ida', 120000), (2, 'Ole', 90000), (3, 'Uma', 101000);
"""


@pytest.fixture(scope="module")
def bikes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Orders of customers with a date, and their lines without one."""
    folder: Path = tmp_path_factory.mktemp("bikes")
    path = str(folder / "bikes.sqlite")
    writer = sqlite3.connect(path)
    writer.executescript(BIKES)
    writer.close()
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


def ask_about(question: str, bikes: tuple[Vocabulary, Ask], *before: str) -> Outcome:
    previous: Understanding | None = None
    for earlier in before:
        found = understand(earlier, bikes[0], previous=previous, today=TODAY)
        assert isinstance(found, Understanding), found
        previous = found
    return understand(question, bikes[0], previous=previous, today=TODAY)


def answer_of(found: Outcome, bikes: tuple[Vocabulary, Ask]) -> list[tuple[Any, ...]]:
    assert isinstance(found, Understanding), found
    assert bikes[0].catalog is not None
    return sorted(tuple(row) for row in bikes[1](compile_plan(found.plan, bikes[0].catalog)))


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        # A verb of money asks for a sum of money.
        ("how much did customers in Berlin spend", [(600.0,)]),
        ("how much do retail customers pay", [(1500.0,)]),
        ("how much did customers in Paris spend in 2025", [(2150.0,)]),
        ("how much did we earn in 2024", [(600.0,)]),
        ("how much are cancelled orders worth", [(1000.0,)]),
        ("total spent by customers in Paris", [(2150.0,)]),
        ("top 1 customers by total spent", [("Ben", "Rask", 3, 1250.0)]),
        ("which customer spent the most", [("Ben", "Rask", 3, 1250.0)]),
        ("how much do we pay in salaries", [(311000,)]),
        # Units, not rows, were sold.
        ("how many bikes were sold", [(4,)]),
        ("how many helmets did we sell", [(7,)]),
        ("how many bikes did retail customers buy", [(2,)]),
        ("how many products were sold in 2025", [(8,)]),
        ("products that were never sold", [("Shell", 4)]),
        ("how many products were never sold", [(1,)]),
        # The date of a line is that of its order.
        ("revenue in 2025", [(2150.0,)]),
        ("revenue by year", [("2024-01-01", 600.0), ("2025-01-01", 2150.0)]),
        ("revenue per month 2024", [("2024-03-01", 600.0)]),
        # Revenue is added up.
        ("top 2 products by revenue", [("City Bike", 1, 1500.0), ("Race Bike", 2, 900.0)]),
        # A value in the place of a noun, in the singular or the plural.
        ("cheapest bike", [("City Bike", 1, 500.0)]),
        ("bikes under 600", [("City Bike", 1)]),
        # Ranked by how many there are.
        ("top 1 cities by customers", [("Paris", 2)]),
        ("top 1 customers by orders", [("Ben", "Rask", 3, 2)]),
        # Other verbs, names and times.
        ("customers born after 1975", [("Anna", "Falk", 2), ("Anna", "Holm", 1)]),
        ("how many customers signed up per year", [("2022-01-01", 2), ("2023-01-01", 1)]),
        ("customers who bought bikes but never helmets", [("Anna", "Falk", 2)]),
        ("customers named Anna", [("Anna", "Falk", 2), ("Anna", "Holm", 1)]),
        ("employees earning over 100k", [("Ida", 1), ("Uma", 3)]),
        ("who earns the most", [("Ida", 1, 120000)]),
        ("how many orders last year", [(3,)]),
        ("growth of orders year over year", [("2024-01-01", 1, None), ("2025-01-01", 3, 200.0)]),
        ("shelves containing products", [("Front", 1)]),
        ("how many shelves contain helmets products", [(1,)]),
    ],
)
def test_a_verb_says_what_is_computed(
    question: str, rows: list[tuple[Any, ...]], bikes: tuple[Vocabulary, Ask]
) -> None:
    assert answer_of(ask_about(question, bikes), bikes) == rows


@pytest.mark.parametrize(
    "question",
    [
        "how much did employees spend",
        "how much do employees earn",
        "how much did we spend",
        "how much did we pay customers in Berlin",
        "how many bikes did we buy",
        "how many bikes did customers sell",
        "how many employees sold bikes",
        "how much do bikes cost",
        "how much are customers in Berlin",
        "how many shelves were sold",
        "how many retail customers were sold",
        "how many bikes are there",
        "stock value",
    ],
)
def test_a_verb_is_never_dropped(question: str, bikes: tuple[Vocabulary, Ask]) -> None:
    assert isinstance(ask_about(question, bikes), Refusal)


def test_units_that_were_sold_are_told_apart_from_things(bikes: tuple[Vocabulary, Ask]) -> None:
    found = ask_about("how many products were sold", bikes)
    assert isinstance(found, Understanding)
    assert found.told == ("Units are counted, not different things: `quantity` is added up.",)


def test_a_time_relative_to_today_is_said_with_its_dates(bikes: tuple[Vocabulary, Ask]) -> None:
    calendar, rolling = (ask_about(f"how many orders in the {word} year", bikes) for word in ("last", "past"))
    assert isinstance(calendar, Understanding) and "in the last year (2025-01-01 to 2025-12-31)" in calendar.reading
    assert isinstance(rolling, Understanding) and "in the past year (2025-11-18 to 2026-11-18)" in rolling.reading


def test_list_them_lists_the_rows_that_were_counted(bikes: tuple[Vocabulary, Ask]) -> None:
    listed = ask_about("list them", bikes, "how many customers in Paris")
    assert answer_of(listed, bikes) == [("Anna", "Falk", 2), ("Ben", "Rask", 3)]
    assert isinstance(ask_about("list them", bikes, "how many orders per status"), Refusal)
    assert isinstance(ask_about("show them", bikes, "average price by category"), Refusal)


def test_a_follow_up_may_ask_for_the_max_or_the_highest(bikes: tuple[Vocabulary, Ask]) -> None:
    highest = ask_about("and the max?", bikes, "average price by category")
    assert answer_of(highest, bikes) == [("bikes", 900.0), ("helmets", 70.0)]
    best = ask_about("which was the highest?", bikes, "number of orders per year")
    assert answer_of(best, bikes) == [("2025-01-01", 3)]


def test_a_percentage_says_of_what(bikes: tuple[Vocabulary, Ask]) -> None:
    found = ask_about("what percentage of orders were cancelled?", bikes)
    assert isinstance(found, Understanding)
    expected = "Percentage of all `orders` that meet the condition, where `orders.status` is `cancelled`."
    assert found.reading == expected


def test_values_that_are_listed_once_are_called_different(bikes: tuple[Vocabulary, Ask]) -> None:
    found = ask_about("product categories", bikes)
    assert isinstance(found, Understanding) and found.reading == "List of different `products.category`."
    rows = [("bikes",), ("helmets",)]
    assert write_row_answer_sentence(found.reading, ["category"], rows, 2) == "2 different categories: bikes, helmets."


def test_many_numbers_that_repeat_are_not_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("kind,value\n" + "".join(f"{'buy' if n % 2 else 'view'},{n % 1500}\n" for n in range(5000)))
    with open_vocabulary(str(path), tmp_path / "home") as (vocabulary, ask):
        catalog = vocabulary.catalog
        assert catalog is not None
        for question in ("value", "value of buy"):
            found = understand(question, vocabulary, today=TODAY)
            assert isinstance(found, Understanding)
            assert doubt_repeated_result(found, lambda plan: ask(compile_plan(plan, catalog)))


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("how many different users", [(3,)]),
        ("which user has the most events", [(7, 3)]),
        ("average load time", [(20.0,)]),
        ("purchases per month", [(date(2025, 1, 1), 2), (date(2025, 2, 1), 1)]),
        ("how many purchases in january 2025", [(2,)]),
    ],
)
def test_nouns_of_one_file(question: str, rows: list[tuple[Any, ...]], tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    lines = ["7,2025-01-01,purchase,10", "7,2025-01-02,view,20", "7,2025-01-03,purchase,30", "8,2025-02-01,view,20"]
    path.write_text("\n".join(("user_id,at,kind,load_ms", *lines, "9,2025-02-02,purchase,20")) + "\n")
    with open_vocabulary(str(path), tmp_path / "home") as bikes:
        assert answer_of(understand(question, bikes[0], today=TODAY), bikes) == rows


def test_a_year_that_a_database_keeps_as_text_is_said_as_a_year() -> None:
    assert phrase_answer_value("2021-01-01", "year") == "2021"
    assert phrase_answer_value("2021-01-01", "day") == "2021-01-01"
