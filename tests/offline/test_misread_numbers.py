"""Wordings whose numbers were wrong: none left, averages of rows, prices of a piece, ordinals, parts of a whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.offline.conftest import Ask, Rows, open_vocabulary
from tests.offline.questions import TODAY

from etude.offline.source_overview import describe_source
from etude.offline.understand import Clarification, Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

Store = tuple[Vocabulary, Ask]

STORE = """
CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT, state TEXT);
CREATE TABLE products (
    product_id INTEGER PRIMARY KEY, name TEXT, category TEXT, cost DOUBLE, list_price DOUBLE, stock INTEGER);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, order_date DATE, channel TEXT,
    shipping_cost DOUBLE, total DOUBLE);
CREATE TABLE order_lines (
    line_id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders, product_id INTEGER REFERENCES products,
    unit_price DOUBLE);
INSERT INTO customers SELECT i, 'Cust ' || i,
    CASE WHEN i % 4 = 0 THEN NULL WHEN i % 4 = 1 THEN 'SP' ELSE 'State ' || i END FROM range(1, 21) t(i);
INSERT INTO products SELECT i, 'Prod ' || i, CASE WHEN i % 2 = 0 THEN 'Toys' ELSE 'Food' END, i, 3 * i,
    CASE WHEN i % 5 = 0 THEN 0 WHEN i % 7 = 0 THEN NULL ELSE i END FROM range(1, 16) t(i);
INSERT INTO orders SELECT i, 1 + i % 18, DATE '2026-01-01' + CAST(i AS INTEGER),
    CASE WHEN i % 3 = 0 THEN 'web' ELSE 'store' END, i % 4, 10 + i FROM range(1, 91) t(i);
INSERT INTO order_lines SELECT i, 1 + i % 90, 1 + i % 15, 2 * (1 + i % 15) FROM range(1, 201) t(i);
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    import duckdb

    folder = tmp_path_factory.mktemp("store")
    path = str(folder / "store.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(STORE)
    with open_vocabulary(path, folder / "home") as found:
        yield found


def meaning(question: str, store: Store) -> Understanding:
    found = understand(question, store[0], today=TODAY)
    assert isinstance(found, Understanding), found
    return found


def answer(question: str, store: Store) -> Rows:
    vocabulary, ask = store
    assert vocabulary.catalog is not None
    return sorted(ask(compile_plan(meaning(question, store).plan, vocabulary.catalog)), key=str)


@pytest.mark.parametrize(
    "question",
    [
        "how many products are out of stock",
        "number of products not in stock",
        "how many products have no stock",
        "how many products without stock",
        "how many products are sold out",
        "how many products ran out of stock",
        "how many products lack stock",
        "number of unavailable products",
    ],
)
def test_none_left_is_a_number_of_zero_and_unknown_ones_are_mentioned(question: str, store: Store) -> None:
    assert answer(question, store) == [(3,)]
    (told,) = meaning(question, store).told
    assert "`stock` = 0" in told and "2 rows have no `stock`" in told


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("how many products are in stock", [(10,)]),
        ("how many products are not out of stock", [(10,)]),
        ("how many products with unknown stock", [(2,)]),
        ("how many products with missing stock", [(2,)]),
        ("number of products out of stock by category", [("Food", 2), ("Toys", 1)]),
        ("how many orders without shipping cost", [(22,)]),
    ],
)
def test_what_is_there_and_what_is_not_known(question: str, rows: Rows, store: Store) -> None:
    assert answer(question, store) == rows


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("average orders per month", "SELECT avg(n) FROM (SELECT count(*) n FROM orders GROUP BY month(order_date))"),
        ("average daily orders", "SELECT avg(n) FROM (SELECT count(*) n FROM orders GROUP BY order_date)"),
        ("average orders per customer", "SELECT avg(n) FROM (SELECT count(*) n FROM orders GROUP BY customer_id)"),
        ("mean orders by channel", "SELECT avg(n) FROM (SELECT count(*) n FROM orders GROUP BY channel)"),
        ("max orders per customer", "SELECT max(n) FROM (SELECT count(*) n FROM orders GROUP BY customer_id)"),
    ],
)
def test_an_average_of_rows_is_one_of_their_numbers(question: str, sql: str, store: Store) -> None:
    assert answer(question, store) == store[1](sql)


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("average price of products", [(24.0,)]),
        ("average product price", [(24.0,)]),
        ("most expensive product", [("Prod 15", 15, 45.0)]),
        ("how many products priced between 10 and 20", [(3,)]),
        ("average cost", [(8.0,)]),
    ],
)
def test_a_column_that_has_the_word_goes_before_a_synonym(question: str, rows: Rows, store: Store) -> None:
    assert answer(question, store) == rows


def test_two_prices_are_asked_back(store: Store) -> None:
    found = understand("average price", store[0], today=TODAY)
    assert isinstance(found, Clarification), found
    assert {choice.label for choice in found.choices} == {"products.list_price", "order_lines.unit_price"}


def test_states_that_are_not_known_are_no_state(store: Store) -> None:
    assert answer("states with more than 2 customers", store) == [("SP", 5)]


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("3rd highest list price", "3rd"),
        ("the 2nd most expensive product", "2nd"),
        ("average orders", "average orders"),
        ("average order", "orders"),
        ("revenue from toys", "toys"),
        ("total shipping cost for toys", "toys"),
    ],
)
def test_it_refuses_with_the_word_that_is_not_clear(question: str, word: str, store: Store) -> None:
    found = understand(question, store[0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert f"`{word}`" in found.reason


def test_whole_rows_that_the_question_names_are_added_up(store: Store) -> None:
    sql = (
        "SELECT sum(shipping_cost) FROM orders WHERE order_id IN (SELECT order_id FROM order_lines "
        "JOIN products USING (product_id) WHERE category = 'Toys')"
    )
    assert answer("total shipping cost of orders with toys", store) == store[1](sql)


def test_a_sum_per_row_is_not_the_sum_of_all(store: Store) -> None:
    assert len(answer("total shipping cost per order", store)) == 90


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("latest 3 orders", "SELECT * FROM orders ORDER BY order_date DESC LIMIT 3"),
        ("most recent 2 orders", "SELECT * FROM orders ORDER BY order_date DESC LIMIT 2"),
        ("first 5 orders", "SELECT * FROM orders ORDER BY order_date LIMIT 5"),
        ("last 5 orders", "SELECT * FROM orders ORDER BY order_date DESC LIMIT 5"),
        ("last order date", "SELECT max(order_date) FROM orders"),
        ("earliest order date", "SELECT min(order_date) FROM orders"),
        ("when was the first order", "SELECT min(order_date) FROM orders"),
        ("when was the last order", "SELECT max(order_date) FROM orders"),
        ("first order date of Cust 3", "SELECT min(order_date) FROM orders WHERE customer_id = 3"),
        ("customers who never ordered", "SELECT name, customer_id FROM customers WHERE customer_id > 18"),
        ("how many customers whose name starts with C", "SELECT 20"),
        ("total sales", "SELECT sum(total) FROM orders"),
        ("sales by channel", "SELECT channel, sum(total) FROM orders GROUP BY ALL"),
    ],
)
def test_first_words_of_newcomers(question: str, sql: str, store: Store) -> None:
    assert answer(question, store) == sorted(store[1](sql), key=str)


@pytest.mark.parametrize("question", ["first 5 products", "first 5 orders by channel", "how many sales"])
def test_no_order_is_made_up(question: str, store: Store) -> None:
    assert isinstance(understand(question, store[0], today=TODAY), Refusal)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("people")
    (folder / "members.csv").write_text(
        "member_id,name,age,birth_year,minutes\n"
        + "".join(f"{n},Name {n},{20 + n},{2006 - n},{n * 7 % 31}\n" for n in range(1, 31))
    )
    with open_vocabulary(str(folder / "members.csv"), folder / "home") as found:
        yield found


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("how many members between 30 and 40", [(11,)]),
        ("how many members between 30 and 40 years old", [(11,)]),
        ("how many rows", [(30,)]),
        ("the longest member", [("Name 22", 22, 30)]),
    ],
)
def test_first_words_about_people(question: str, rows: Rows, people: Store) -> None:
    assert answer(question, people) == rows


def test_the_newest_is_not_the_youngest(people: Store) -> None:
    assert isinstance(understand("the newest member", people[0], today=TODAY), Refusal)


@pytest.mark.parametrize(
    "question",
    [
        "what tables are there?",
        "Which tables do we have",
        "describe the data",
        "what data is there",
        "list all columns",
    ],
)
def test_an_overview_of_the_source(question: str, store: Store) -> None:
    text = describe_source(question, store[0])
    assert text.startswith("4 tables: `order_lines` (200 rows: `line_id`, ") and "`stock`" in text
    offers = text.partition("Ask, for example: ")[2].strip("“”").split("”; “")
    assert len(offers) == 3
    assert all(isinstance(understand(offer, store[0], today=TODAY), Understanding) for offer in offers)


def test_the_rows_of_all_tables_and_other_questions(store: Store) -> None:
    said = "Rows of each table: `order_lines` 200, `orders` 90, `customers` 20, `products` 15."
    assert describe_source("How many rows are there?", store[0]) == said
    for question in ("how many orders", "describe the orders", "what products are there", "list the customers"):
        assert describe_source(question, store[0]) == ""
