"""A follow-up keeps the conditions of the conversation, and says that it is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App


@pytest.fixture(scope="module")
def ask_sales(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """Clients and their orders in two years."""
    folder: Path = tmp_path_factory.mktemp("sales")
    path = str(folder / "sales.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE clients AS SELECT i AS client_id, 'C' || i AS name, ['Rome', 'Oslo', 'Bern'][1 + i % 3] "
            "AS city FROM range(1, 61) t(i); ALTER TABLE clients ADD PRIMARY KEY (client_id);"
            "CREATE TABLE orders AS SELECT i AS order_id, 1 + (i * 7) % 60 AS client_id, DATE '2024-01-01' + "
            "((i * 11) % 700)::INT AS ordered_at, 1 + i % 9 AS quantity, 10 + (i * 17) % 500 AS amount, "
            "['open', 'paid', 'lost'][1 + i % 3] AS status FROM range(1, 701) t(i)"
        )
    with App(home=folder / "home") as app:
        yield app, path


BOTH = "orders JOIN clients USING (client_id)"


@pytest.mark.parametrize(
    ("questions", "sql"),
    [
        (
            ("total amount in 2025", "for Oslo only", "and the number of orders?"),
            f"SELECT count(*) FROM {BOTH} WHERE year(ordered_at) = 2025 AND city = 'Oslo'",
        ),
        (
            ("number of orders per city in 2024", "and the total quantity?"),
            f"SELECT city, sum(quantity) FROM {BOTH} WHERE year(ordered_at) = 2024 GROUP BY city",
        ),
        (
            ("number of orders per city in 2024", "and the total quantity?", "top 2"),
            f"SELECT city, sum(quantity) FROM {BOTH} WHERE year(ordered_at) = 2024 GROUP BY 1 ORDER BY 2 DESC LIMIT 2",
        ),
        (
            ("orders with amount over 400", "what is their total amount?"),
            "SELECT sum(amount) FROM orders WHERE amount > 400",
        ),
        (("orders with amount over 400", "how many are there?"), "SELECT count(*) FROM orders WHERE amount > 400"),
        (
            ("orders with amount over 400", "how many of them are paid?"),
            "SELECT count(*) FROM orders WHERE amount > 400 AND status = 'paid'",
        ),
        (("total amount in 2025", "and the average?"), "SELECT avg(amount) FROM orders WHERE year(ordered_at) = 2025"),
        (
            ("total amount per city in 2024", "which was the highest?"),
            f"SELECT city, sum(amount) FROM {BOTH} WHERE year(ordered_at) = 2024 GROUP BY city ORDER BY 2 DESC LIMIT 1",
        ),
        (
            ("How many clients are in Oslo?", "and how many orders?"),
            f"SELECT count(*) FROM {BOTH} WHERE city = 'Oslo'",
        ),
        (("How many clients are in Oslo?", "now how many orders are there?"), "SELECT count(*) FROM orders"),
    ],
)
def test_the_rows_stay_the_same(ask_sales: tuple[App, str], questions: tuple[str, ...], sql: str) -> None:
    app, path = ask_sales
    thread = None
    for question in questions:
        answer = app.ask(path, question, thread_id=thread)
        thread = answer.thread_id
        assert answer.ok, (question, answer.error)
    assert answer.result is not None
    assert sorted(answer.result.rows()) == sorted(app.sql(path, sql).rows()), answer.reading
    assert ("follow-up" in str(answer.reading)) == (not questions[-1].startswith("now"))
