"""How often something happened, and verbs that are named like what the tables hold."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.app import App
from etude.offline.result_check import doubt_result
from etude.offline.understand import Clarification, Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 17)


@pytest.fixture(scope="module")
def gardens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Gardens, what grows there, and who visited them."""
    import duckdb

    folder: Path = tmp_path_factory.mktemp("gardens")
    path = str(folder / "gardens.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE gardens (garden_id INTEGER PRIMARY KEY, name TEXT, city TEXT);"
            "CREATE TABLE visitors (visitor_id INTEGER PRIMARY KEY, name TEXT, email TEXT, date_of_birth DATE, "
            "guide INTEGER);"
            "CREATE TABLE visits (visit_id INTEGER PRIMARY KEY, garden_id INTEGER REFERENCES gardens (garden_id), "
            "visitor_id INTEGER REFERENCES visitors (visitor_id));"
            "CREATE TABLE growers (grower_id INTEGER PRIMARY KEY, name TEXT, sponsor TEXT);"
            "CREATE TABLE plants (plant_id INTEGER PRIMARY KEY, name TEXT, pots INTEGER, "
            "grower_id INTEGER REFERENCES growers (grower_id), garden_id INTEGER REFERENCES gardens (garden_id));"
            "INSERT INTO gardens VALUES (1, 'Fern Hill', 'Rome'), (2, 'Moss End', 'Oslo'), (3, 'Reed Bay', 'Rome');"
            "INSERT INTO visitors VALUES (1, 'Ann', 'a@x.org', '1990-01-02', 701), (2, 'Bo', 'b@x.org', '1991-03-04', "
            "701), (3, 'Cy', 'c@x.org', '1992-05-06', 702), (4, 'Di', 'd@x.org', '1993-07-08', 701);"
            "INSERT INTO visits VALUES (1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 1), (5, 2, 1), (6, 3, 4);"
            "INSERT INTO growers VALUES (1, 'Eve', 'Lund'), (2, 'Flo', 'Lund'), (3, 'Gus', 'Nord');"
            "INSERT INTO plants VALUES (1, 'Iris', 5, 1, 1), (2, 'Sage', 9, 1, 2), (3, 'Rose', 2, 2, 1);"
        )
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("Which gardens were visited at least twice?", "SELECT * FROM (VALUES ('Fern Hill'), ('Moss End'))"),
        ("Which gardens were visited more than 2 times?", "SELECT 'Fern Hill'"),
        ("Which garden was visited the most?", "SELECT 'Fern Hill', 3"),
        ("Which garden was visited most often?", "SELECT 'Fern Hill', 3"),
        ("What is the most frequently visited garden?", "SELECT 'Fern Hill', 3"),
        ("Which gardens have at least a plant?", "SELECT * FROM (VALUES ('Fern Hill'), ('Moss End'))"),
        ("Which gardens have at least two different visitors?", "SELECT 'Fern Hill'"),
        ("Which gardens have plants with more than 5 pots?", "SELECT 'Moss End'"),
        ("Which guides have more than two visitors?", "SELECT 701"),
        ("Which guides have less than two visitors?", "SELECT 702"),
        ("What are the names of visitors who have guide number 702?", "SELECT 'Cy'"),
        ("Which sponsor has sponsored the most growers?", "SELECT 'Lund', 2"),
        (
            "Show the names of growers and the names of plants they grow.",
            "SELECT * FROM (VALUES ('Eve', 'Iris'), ('Eve', 'Sage'), ('Flo', 'Rose'))",
        ),
        ("What is the birthday of the visitor with the name Bo?", "SELECT DATE '1991-03-04'"),
        ("What is the email address of the visitor with the name Bo?", "SELECT 'b@x.org'"),
    ],
)
def test_the_rows_that_say_so_are_counted(question: str, sql: str, gardens: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = gardens
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    rows = ask(compile_plan(found.plan, vocabulary.catalog))
    wanted = ask(sql)
    assert sorted(str(row[: len(wanted[0])]) for row in _named_first(rows, wanted)) == sorted(map(str, wanted))


def _named_first(rows: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the columns that are wanted, without keys that are shown besides."""
    places = [
        next(n for n in range(len(rows[0])) if {row[n] for row in rows} == {row[at] for row in wanted})
        for at in range(len(wanted[0]))
    ]
    return [tuple(row[n] for n in places) for row in rows]


@pytest.mark.parametrize(
    "question",
    [
        "Which gardens were closed at least twice?",  # nothing in the data says so
        "Which garden was visited most often by growers?",  # the rows may be others
        "Which gardens were visited at most once?",  # those without a visit too?
        "What is the opening year of gardens?",
    ],
)
def test_what_no_rows_say_is_refused(question: str, gardens: tuple[Vocabulary, Ask]) -> None:
    assert isinstance(understand(question, gardens[0], today=TODAY), Refusal)


def test_a_name_two_tables_away_is_asked_back(tmp_path: Path) -> None:
    """A song has a composer, and its album an artist: both may be called Abel."""
    import duckdb

    path = str(tmp_path / "songs.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE artist (artist_id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE album (album_id INTEGER PRIMARY KEY, title TEXT, artist_id INTEGER REFERENCES artist);"
            "CREATE TABLE song (song_id INTEGER PRIMARY KEY, name TEXT, composer TEXT, album_id INTEGER "
            "REFERENCES album);"
            "INSERT INTO artist VALUES (1, 'Abel'), (2, 'Bach');"
            "INSERT INTO album VALUES (1, 'Dawn', 1), (2, 'Dusk', 2);"
            "INSERT INTO song VALUES (1, 'Air', 'Abel', 1), (2, 'Aria', 'Cage', 1), (3, 'Fugue', 'Cage', 2);"
        )
    with App(home=tmp_path / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(path), lambda sql: app.sql(path, sql, record=False).rows())
    found = understand("songs by Abel", vocabulary, today=TODAY)
    assert isinstance(found, Clarification)
    assert {choice.label for choice in found.choices} == {"song.composer", "artist.name"}
    assert isinstance(understand("songs by Cage", vocabulary, today=TODAY), Understanding)


def test_equal_rows_of_joined_tables_are_doubted(gardens: tuple[Vocabulary, Ask]) -> None:
    """Ann visited Moss End twice; whether to list that twice is not said."""
    vocabulary, ask = gardens
    assert vocabulary.catalog is not None
    found = understand("Show the visitor name and garden name of visits sorted by visit id.", vocabulary, today=TODAY)
    assert isinstance(found, Understanding)
    rows = ask(compile_plan(found.plan, vocabulary.catalog))
    assert rows.count(("Ann", "Moss End")) == 2
    assert "how often to list" in (doubt_result(found, ["name", "name"], rows, len(rows)) or "")
