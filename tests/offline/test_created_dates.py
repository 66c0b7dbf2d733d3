"""Tables with two dates, of which one says when the thing was created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.offline.understand import Clarification, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)
Rows = list[tuple[Any, ...]]
Opened = tuple[Vocabulary, Callable[[str], Rows]]
Opener = Callable[[str, str, str], Opened]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Return a function that makes a table with these two dates, the second some days after the first."""
    with App(home=tmp_path / "home", record=False) as app:

        def make(name: str, first: str, second: str) -> Opened:
            path = tmp_path / f"{name}.csv"
            lines = [f"Code,{first},{second},Channel,Score"]
            for n in range(120):
                start = date(2025, 1, 3) + timedelta(days=n * 7 % 150)
                end = start + timedelta(days=5 + n % 23)
                lines.append(f"X{n:03d},{start},{end},{('Mail', 'Chat', 'Phone')[n % 3]},{1 + n % 5}")
            path.write_text("\n".join(lines) + "\n")

            def run(sql: str) -> Rows:
                return app.sql(str(path), sql).rows()

            return build_vocabulary(app.catalog(str(path)), run), run

        yield make


def rows_of(found: Understanding, opened: Opened) -> Rows:
    vocabulary, run = opened
    assert vocabulary.catalog is not None
    return [tuple(row) for row in run(compile_plan(found.plan, vocabulary.catalog))]


PAIRS = [
    ("tickets", "Created At", "Closed At"),
    ("tickets", "created", "resolved"),
    ("invoices", "created_at", "paid_at"),
    ("orders", "Created At", "Shipped At"),
    ("tickets", "Created Date", "Closed Date"),
    ("tickets", "created_at", "ticket_closed_at"),
]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("question", ["how many {} in March 2025", "{} per month", "latest {}", "{} on weekends"])
def test_it_is_asked_which_of_two_dates_is_meant(question: str, pair: tuple[str, str, str], opened: Opener) -> None:
    vocabulary, _ = opened(*pair)
    found = understand(question.format(pair[0]), vocabulary, today=TODAY)
    assert isinstance(found, Clarification), found
    assert {choice.label for choice in found.choices} == {f"{pair[0]}.{name}" for name in pair[1:]}


def test_a_choice_is_taken_and_the_reading_names_the_date(opened: Opener) -> None:
    source = opened("tickets", "Created At", "Closed At")
    asked = understand("tickets per month", source[0], today=TODAY)
    assert isinstance(asked, Clarification)
    for number, choice in enumerate(asked.choices, 1):
        name = choice.label.split(".")[1]
        found = take_choice(asked, str(number))
        assert isinstance(found, Understanding)
        assert f"per `month` of `tickets.{name}`" in found.reading
        sql = f"SELECT date_trunc('month', \"{name}\")::DATE AS m, count(*) FROM tickets GROUP BY 1 ORDER BY 1"
        assert rows_of(found, source) == source[1](sql)


@pytest.mark.parametrize(
    ("table", "first", "second"), [("orders", "order_date", "created_at"), ("visits", "date", "created_at")]
)
def test_the_date_of_the_row_itself_is_used(table: str, first: str, second: str, opened: Opener) -> None:
    vocabulary, _ = opened(table, first, second)
    found = understand(f"{table} per month", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert f"per `month` of `{table}.{first}`" in found.reading


@pytest.mark.parametrize(
    ("question", "column"),
    [
        ("how many tickets were created per month", "Created At"),
        ("tickets created by month", "Created At"),
        ("how many tickets were created each month", "Created At"),
        ("how many tickets were closed per month", "Closed At"),
        ("tickets closed per month", "Closed At"),
    ],
)
def test_a_participle_names_the_date_to_group_by(question: str, column: str, opened: Opener) -> None:
    source = opened("tickets", "Created At", "Closed At")
    found = understand(question, source[0], today=TODAY)
    assert isinstance(found, Understanding), found
    sql = f"SELECT date_trunc('month', \"{column}\")::DATE AS m, count(*) FROM tickets GROUP BY 1 ORDER BY 1"
    assert rows_of(found, source) == source[1](sql)
    assert column in found.reading
