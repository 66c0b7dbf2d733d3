"""A change between two periods has both values and the difference; the periods are never added up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App


@pytest.fixture(scope="module")
def ask_trips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """Trips of three years."""
    folder: Path = tmp_path_factory.mktemp("trips")
    path = str(folder / "trips.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE trips AS SELECT i AS trip_id, DATE '2022-01-01' + ((i * 7) % 1090)::INT AS started, "
            "5 + (i * 13) % 40 AS fare, ['Rome', 'Oslo', 'Bern'][1 + i % 3] AS city, 1 + i % 9 AS passengers "
            "FROM range(1, 901) t(i)"
        )
    with App(home=folder / "home") as app:
        yield app, path


def per_year(value: str, years: str, where: str = "true") -> str:
    return (
        f"SELECT date_trunc('year', started)::DATE AS y, {value} AS v, v - lag(v) OVER (ORDER BY y) FROM trips "
        f"WHERE year(started) IN ({years}) AND {where} GROUP BY y ORDER BY y"
    )


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("How did the total fare change from 2023 to 2024?", per_year("sum(fare)", "2023, 2024")),
        ("How did the average fare change from 2022 to 2024?", per_year("avg(fare)", "2022, 2024")),
        ("Difference in total fare between 2022 and 2023", per_year("sum(fare)", "2022, 2023")),
        ("Compare the number of trips 2023 vs 2024", per_year("count(*)", "2023, 2024")),
        ("Compare trips in 2023 and 2024", per_year("count(*)", "2023, 2024")),
        (
            "Did the total fare in Oslo increase from 2023 to 2024?",
            per_year("sum(fare)", "2023, 2024", "city = 'Oslo'"),
        ),
        ("Total fare in 2024 compared to 2023", per_year("sum(fare)", "2023, 2024")),
        ("The total fare went from 2023 to 2024", per_year("sum(fare)", "2023, 2024")),
        (
            "How did the total passengers change from march 2023 to march 2024?",
            "SELECT date_trunc('month', started)::DATE AS m, sum(passengers) AS v, v - lag(v) OVER (ORDER BY m) "
            "FROM trips WHERE strftime(started, '%Y%m') IN ('202303', '202403') GROUP BY m ORDER BY m",
        ),
    ],
)
def test_a_change_has_both_values_and_the_difference(ask_trips: tuple[App, str], question: str, sql: str) -> None:
    app, path = ask_trips
    answer = app.ask(path, question)
    assert answer.ok, answer.error
    assert answer.result is not None
    assert answer.result.rows() == app.sql(path, sql).rows(), answer.reading


@pytest.mark.parametrize(
    "question",
    [
        "How did the total fare change in 2024?",
        "How did the total fare change over the last 3 years?",
        "How did the total fare change from march 2023 to 2024?",
        "How did the total fare by city change in 2024?",
    ],
)
def test_a_change_without_two_periods_is_refused(ask_trips: tuple[App, str], question: str) -> None:
    app, path = ask_trips
    answer = app.ask(path, question)
    assert not answer.ok, answer.reading


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("percentage of trips in Oslo", "Percentage where city is Oslo: 33.33%."),
        ("growth of the number of trips per year", "growth "),
        ("How many trips per day on average?", "days without any are not part of it"),
    ],
)
def test_an_answer_says_its_unit_and_what_is_left_out(ask_trips: tuple[App, str], question: str, said: str) -> None:
    app, path = ask_trips
    answer = app.ask(path, question)
    assert answer.ok, answer.error
    assert said in answer.text
    assert "%" in answer.text or "per day" in question
