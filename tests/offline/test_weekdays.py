"""Questions per weekday, and superlatives beside a weekday."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from etude.app import App
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)
Rows = list[tuple[Any, ...]]
Opened = tuple[Vocabulary, Callable[[str], Rows]]


@pytest.fixture(scope="module")
def rides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("rides")
    path = folder / "rides.csv"
    lines = ["Code,Ridden,Line,Fare"]
    for n in range(150):
        day = date(2025, 1, 1) + timedelta(days=n * n % 97)
        lines.append(f"R{n:03d},{day},{('Red', 'Blue', 'Green')[n % 3]},{2 + n % 7}")
    path.write_text("\n".join(lines) + "\n")
    with App(home=folder / "home", record=False) as app:

        def run(sql: str) -> Rows:
            return app.sql(str(path), sql).rows()

        yield build_vocabulary(app.catalog(str(path)), run), run


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("rides by weekday", "SELECT isodow(Ridden), count(*) FROM rides GROUP BY 1 ORDER BY 1"),
        ("how many rides per weekday", "SELECT isodow(Ridden), count(*) FROM rides GROUP BY 1 ORDER BY 1"),
        ("rides per day of the week", "SELECT isodow(Ridden), count(*) FROM rides GROUP BY 1 ORDER BY 1"),
        ("average fare per weekday", "SELECT isodow(Ridden), avg(Fare) FROM rides GROUP BY 1 ORDER BY 1"),
        (
            "which weekday has the most rides",
            "SELECT isodow(Ridden), count(*) AS n FROM rides GROUP BY 1 QUALIFY n = max(n) OVER () ORDER BY 1",
        ),
    ],
)
def test_rows_are_grouped_by_weekday(question: str, sql: str, rides: Opened) -> None:
    vocabulary, run = rides
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert [tuple(row) for row in run(compile_plan(found.plan, vocabulary.catalog))] == run(sql)
    assert "per `weekday` of `rides.Ridden`" in found.reading
    assert "`weekday` runs from 1 (Monday) to 7 (Sunday)." in found.reasons


def test_a_weekday_beside_another_group_is_a_group(rides: Opened) -> None:
    vocabulary, run = rides
    found = understand("rides per line and weekday", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    rows = {frozenset(row) for row in run(compile_plan(found.plan, vocabulary.catalog))}
    assert rows == {frozenset(row) for row in run("SELECT Line, isodow(Ridden), count(*) FROM rides GROUP BY ALL")}


@pytest.mark.parametrize("question", ["how many rides on a weekday", "how many rides on weekdays"])
def test_on_a_weekday_is_a_condition(question: str, rides: Opened) -> None:
    vocabulary, run = rides
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    rows = [tuple(row) for row in run(compile_plan(found.plan, vocabulary.catalog))]
    assert rows == run("SELECT count(*) FROM rides WHERE isodow(Ridden) < 6")


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("busiest weekday", "busiest"),
        ("quietest weekday", "quietest"),
        ("rides on the busiest weekday", "busiest"),
        ("the loudest Monday", "loudest"),
        ("busiest weekend", "busiest"),
        ("average number of rides per weekday", "weekdays"),
        ("growth of rides per weekday", "weekdays"),
    ],
)
def test_a_word_that_is_not_understood_beside_a_weekday_is_refused(question: str, word: str, rides: Opened) -> None:
    found = understand(question, rides[0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert word in found.reason
