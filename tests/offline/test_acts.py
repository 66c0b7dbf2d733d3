"""Verbs that name the rows of another table keep their meaning: who ordered in 2025 has orders of 2025."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App


@pytest.fixture(scope="module")
def ask_gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """Members and what they did; every table has a date of its own."""
    folder: Path = tmp_path_factory.mktemp("gym")
    path = str(folder / "gym.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE members AS SELECT i AS member_id, 'M' || i AS name, ['Bern', 'Basel', 'Genf'][1 + i % 3] "
            "AS city, DATE '2022-01-01' + (i * 7)::INT AS joined FROM range(1, 121) t(i);"
            "CREATE TABLE trainers AS SELECT i AS trainer_id, 'T' || i AS name, DATE '2023-01-01' + (i * 40)::INT AS "
            "hired FROM range(1, 25) t(i);"
            "CREATE TABLE orders AS SELECT i AS order_id, 1 + (i * 37) % 117 AS member_id, DATE '2023-01-01' + "
            "((i * 13) % 1000)::INT AS ordered_at, 10 + i % 50 AS price, ['open', 'returned'][1 + i % 2] AS status "
            "FROM range(1, 801) t(i);"
            "CREATE TABLE payments AS SELECT i AS payment_id, 1 + (i * 31) % 90 AS member_id, DATE '2023-02-01' + "
            "((i * 11) % 900)::INT AS paid_on, 20 + i % 80 AS amount, ['card', 'cash'][1 + i % 2] AS method "
            "FROM range(1, 501) t(i);"
            "CREATE TABLE reviews AS SELECT i AS review_id, 1 + (i * 29) % 70 AS member_id, DATE '2023-05-01' + "
            "((i * 17) % 800)::INT AS reviewed_on, 1 + i % 5 AS stars FROM range(1, 201) t(i);"
            "ALTER TABLE members ADD PRIMARY KEY (member_id); ALTER TABLE trainers ADD PRIMARY KEY (trainer_id);"
        )
    with App(home=folder / "home") as app:
        yield app, path


OF = "SELECT count(*) FROM members WHERE member_id IN (SELECT member_id FROM"


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("How many members ordered in 2025?", f"{OF} orders WHERE year(ordered_at) = 2025)"),
        (
            "How many distinct members ordered in June 2024?",
            f"{OF} orders WHERE strftime(ordered_at, '%Y%m') = '202406')",
        ),
        ("How many members bought in 2024?", f"{OF} orders WHERE year(ordered_at) = 2024)"),
        ("How many members paid in 2024?", f"{OF} payments WHERE year(paid_on) = 2024)"),
        ("How many members paid by card in 2024?", f"{OF} payments WHERE year(paid_on) = 2024 AND method = 'card')"),
        ("Number of members who reviewed in 2024", f"{OF} reviews WHERE year(reviewed_on) = 2024)"),
        (
            "How many members from Bern ordered in 2024?",
            f"{OF} orders WHERE year(ordered_at) = 2024) AND city = 'Bern'",
        ),
        (
            "How many members who joined in 2023 ordered in 2024?",
            f"{OF} orders WHERE year(ordered_at) = 2024) AND year(joined) = 2023",
        ),
        ("How many members joined in 2023?", "SELECT count(*) FROM members WHERE year(joined) = 2023"),
        ("How many trainers were hired in 2024?", "SELECT count(*) FROM trainers WHERE year(hired) = 2024"),
    ],
)
def test_a_verb_leads_to_its_rows(ask_gym: tuple[App, str], question: str, sql: str) -> None:
    app, path = ask_gym
    answer = app.ask(path, question)
    assert answer.ok, answer.error
    assert answer.result is not None
    assert answer.result.rows() == app.sql(path, sql).rows(), answer.reading


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("How many trainers ordered in 2024?", "ordered"),
        ("How many trainers paid in 2024?", "paid"),
        ("Number of members who ordered per month", "ordered"),
        ("How many orders were returned in 2024?", "returned orders in 2024"),
    ],
)
def test_a_verb_that_no_date_tells_of_is_refused(ask_gym: tuple[App, str], question: str, word: str) -> None:
    app, path = ask_gym
    answer = app.ask(path, question)
    assert not answer.ok, answer.reading
    assert word in str(answer.error)
