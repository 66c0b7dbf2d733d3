"""Columns as people call them: abbreviations, units, whole-number times, codes that link tables, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from etude.app import App
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

Ask = Callable[[str], list[tuple[Any, ...]]]
TODAY = date(2026, 11, 16)


@pytest.fixture(scope="module")
def air(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Flights, airlines and airports without declared keys, results of seasons, countries and cars."""
    folder: Path = tmp_path_factory.mktemp("air")
    path = str(folder / "air.duckdb")
    with duckdb.connect(path) as db:
        db.execute(
            "CREATE TABLE flights AS SELECT 2013 AS year, 1 + i % 12 AS month, (i * 7) % 50 AS dep_delay, "
            "(i * 11) % 60 AS arr_delay, 30 + i % 90 AS duration_min, ['UA', 'B6', 'DL'][1 + i % 3] AS carrier, "
            "['JFK', 'LGA', 'EWR', 'BOS'][1 + i % 4] AS origin FROM range(240) AS t(i)"
        )
        db.execute("CREATE TABLE airlines AS FROM (VALUES ('UA', 'United'), ('B6', 'JetBlue'), ('DL', 'Delta')) "
                   "AS t(carrier, name)")  # fmt: skip
        db.execute("CREATE TABLE airports AS FROM (VALUES ('JFK', 'Kennedy', 4), ('LGA', 'La Guardia', 7), "
                   "('EWR', 'Newark', 5), ('BOS', 'Logan', 6)) AS t(faa, name, alt)")  # fmt: skip
        db.execute("CREATE TABLE nations AS FROM (VALUES ('Japan', 'Asia', 82.6, 31), ('Norway', 'Europe', 80.25, 49), "
                   " ('Spain', 'Europe', 80.75, 28)) AS t(nation, continent, lifeExp, gdpPercap)")  # fmt: skip
        db.execute(
            "CREATE TABLE cars AS SELECT 'car ' || i AS Name, 4 + 2 * (i % 3) AS Cylinders, 10 + i % 30 AS "
            "Miles_per_Gallon, 1970 + i % 12 AS Season FROM range(60) AS t(i)"
        )
        db.execute(
            "CREATE TABLE standings (season INTEGER, squad VARCHAR, points INTEGER, PRIMARY KEY (season, squad))"
        )
        db.execute("INSERT INTO standings SELECT 1990 + i % 10, 'S' || i // 10, (i * 13) % 80 FROM range(50) AS t(i)")
    with App(home=folder / "home", record=False) as app:

        def run(sql: str) -> list[tuple[Any, ...]]:
            return app.sql(path, sql).rows()

        yield build_vocabulary(app.catalog(path), run), run


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("average departure delay by origin", "SELECT origin, avg(dep_delay) FROM flights GROUP BY 1"),
        ("average arrival delay of flights", "SELECT avg(arr_delay) FROM flights"),
        ("average duration of flights", "SELECT avg(duration_min) FROM flights"),
        ("How many flights have a duration over 60 minutes?", "SELECT count(*) FROM flights WHERE duration_min > 60"),
        ("life expectancy in Japan", "SELECT lifeExp FROM nations WHERE nation = 'Japan'"),
        ("average gdp per capita by continent", "SELECT continent, avg(gdpPercap) FROM nations GROUP BY 1"),
        ("average mpg of cars", "SELECT avg(Miles_per_Gallon) FROM cars"),
        ("average altitude of airports", "SELECT avg(alt) FROM airports"),
        ("which month had the worst average arrival delay", "SELECT month, avg(arr_delay) FROM flights GROUP BY 1 "
         "ORDER BY 2 DESC LIMIT 1"),
        ("flights per month", "SELECT month, count(*) FROM flights GROUP BY 1"),
        ("cars per season", "SELECT Season, count(*) FROM cars GROUP BY 1"),
        ("How many cars were there in 1975?", "SELECT count(*) FROM cars WHERE Season = 1975"),
        ("How many cars were made before 1975?", "SELECT count(*) FROM cars WHERE Season < 1975"),
        ("what is the latest season of the cars", "SELECT max(Season) FROM cars"),
        ("how many cars have 8 cylinders", "SELECT count(*) FROM cars WHERE Cylinders = 8"),
        ("average mpg of 4 cylinder cars", "SELECT avg(Miles_per_Gallon) FROM cars WHERE Cylinders = 4"),
        ("how many 4 cylinder cars are there", "SELECT count(*) FROM cars WHERE Cylinders = 4"),
        ("flights per airline", "SELECT name, count(*) FROM flights JOIN airlines USING (carrier) GROUP BY 1"),
        ("flights per airport", "SELECT name, count(*) FROM flights JOIN airports ON origin = faa GROUP BY 1"),
        ("most points ever in a season", "SELECT max(points) FROM standings"),
        ("average life expectancy of european nations", "SELECT avg(lifeExp) FROM nations WHERE continent = 'Europe'"),
    ],
)  # fmt: skip
def test_a_column_is_found_by_the_words_of_people(question: str, sql: str, air: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = air
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    given = [tuple(row) for row in ask(compile_plan(found.plan, vocabulary.catalog))]
    wanted = ask(sql)
    width = len(wanted[0])
    assert sorted(row[:width] for row in given) == sorted(map(tuple, wanted)), found.reading


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("total gdp of Japan", "It is not clear what `gdp` means here."),
        ("total gdp per capita", "`gdpPercap` is a rate or an average, so its total means nothing."),
        ("average season of cars", "`season` does not hold amounts, so it has no average."),
        ("average vigour and swagger of cars", "It is not clear what `vigour` and `swagger` mean here."),
        ("most mpg in a season", "It is not clear what `in a season` means here."),
    ],
)
def test_a_refusal_names_what_is_not_clear(question: str, reason: str, air: tuple[Vocabulary, Ask]) -> None:
    found = understand(question, air[0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert found.reason == reason


def test_suggestions_average_amounts_only(air: tuple[Vocabulary, Ask]) -> None:
    found = understand("swagger of cars", air[0], today=TODAY)
    assert isinstance(found, Refusal)
    assert "What is the average cylinders of cars?" in found.nearest
    assert not any("season" in text for text in found.nearest)


@pytest.mark.parametrize(
    ("amounts", "told"), [("9, 8, 8, 8", "2 more rows tie with the last of these."), ("9, 8, 7", "")]
)
def test_rows_that_tie_with_the_last_are_told(tmp_path: Path, amounts: str, told: str) -> None:
    path = str(tmp_path / "shop.duckdb")
    with duckdb.connect(path) as db:
        db.execute(f"CREATE TABLE products AS SELECT 'p' || row_number() OVER () AS name, unnest([{amounts}]) AS price")
    with App(home=tmp_path / "home") as app:
        answer = app.ask(path, "top 2 products by price")
    assert answer.ok and not answer.unverified
    assert told in answer.text if told else "tie" not in answer.text
