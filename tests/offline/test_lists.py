"""How often a list has a row, groups of one row each, and other words for the same question."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.result_check import doubt_repeated_result, doubt_result
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 16)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Studios, films and ratings; one film has two ratings of 3 stars."""
    import duckdb

    folder: Path = tmp_path_factory.mktemp("films")
    path = str(folder / "films.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE studios (studio_id INTEGER PRIMARY KEY, name TEXT, city TEXT, phone TEXT, "
            "email_address TEXT, market_value_billion DOUBLE);"
            "CREATE TABLE films (film_id INTEGER PRIMARY KEY, title TEXT, format TEXT, budget INTEGER, "
            "studio_id INTEGER REFERENCES studios (studio_id));"
            "CREATE TABLE ratings (rating_id INTEGER PRIMARY KEY, film_id INTEGER REFERENCES films (film_id), "
            "stars INTEGER);"
            "CREATE TABLE visits AS SELECT * FROM (VALUES ('Peru', 'South', 2001), ('Peru', 'South', 2002), "
            "('Chile', 'South', 2001), ('Mali', 'North', 2001), ('Mali', 'North', 2001)) AS t (country, region, year);"
            "INSERT INTO studios VALUES (1, 'Alder', 'Rome', '11', 'a@x.org', 20),"
            "(2, 'Birch', 'Oslo', '12', 'b@x.org', 5),"
            "(3, 'Cedar', 'Rome', '13', 'c@x.org', 40), (4, 'Dogwood', 'Bern', '14', 'd@x.org', 7);"
            "INSERT INTO films VALUES (1, 'Dawn', 'mp4', 10, 1), (2, 'Dusk', 'mp4', 30, 1), (3, 'Noon', 'avi', 20, 2),"
            "(4, 'Night', 'mp4', 50, 3), (5, 'Dawn', 'avi', 60, 3);"
            "INSERT INTO ratings VALUES (1, 1, 3), (2, 1, 3), (3, 2, 5), (4, 3, 3), (5, 3, 1);"
        )
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("What are the maximum and minimum market value of studios?", "SELECT 40.0, 5.0"),
        ("How many studios have a market value over 10 billion?", "SELECT 2"),
        ("How many studios have a market value over 10?", "SELECT 2"),
        ("How many films have a budget lower than 20 or higher than 40?", "SELECT 3"),
        ("How many films have a budget that is not 20?", "SELECT 4"),
        ("Find the phone number and email of the studio named Birch.", "SELECT '12', 'b@x.org'"),
        ("What is the average budget of films in different formats?", "VALUES ('avi', 40.0), ('mp4', 30.0)"),
        ("Which cities are shared by more than one studios?", "SELECT 'Rome', 2"),
        ("List all countries in the region South", "VALUES ('Peru'), ('Chile')"),
    ],
)
def test_other_words_give_the_same_answer(question: str, sql: str, films: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = films
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert sorted(ask(compile_plan(found.plan, vocabulary.catalog))) == sorted(ask(sql)), found.reading


def test_the_format_that_is_used_most_often_is_the_most_common(films: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = films
    found = understand("Find the format that is used most often.", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert ask(compile_plan(found.plan, vocabulary.catalog)) == [("mp4", 3)]


def test_values_of_rows_under_a_condition_are_listed_beside_their_rows(films: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = films
    found = understand("What are the titles with a budget above 5?", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    rows = ask(compile_plan(found.plan, vocabulary.catalog))
    assert sorted(row[0] for row in rows) == ["Dawn", "Dawn", "Dusk", "Night", "Noon"]


@pytest.mark.parametrize(
    ("question", "doubted"),
    [
        ("What are the titles of films whose stars are below 4?", True),
        ("What are the different titles of films whose stars are below 4?", False),
        ("Which films have stars below 4?", False),
        ("What are the titles of films whose stars are above 4?", False),
    ],
)
def test_a_row_with_several_related_rows_is_listed_once_only_if_the_question_says_so(
    question: str, doubted: bool, films: tuple[Vocabulary, Ask]
) -> None:
    vocabulary, ask = films
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    catalog = vocabulary.catalog
    assert catalog is not None
    doubt = doubt_repeated_result(found, lambda plan: ask(compile_plan(plan, catalog)))
    assert (doubt is not None) == doubted, found.reading
    assert doubt is None or "several of `ratings`" in doubt


def test_equal_names_of_rows_without_related_rows_are_doubted(films: tuple[Vocabulary, Ask]) -> None:
    vocabulary, _ = films
    found = understand("What are the cities of studios without films?", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert doubt_result(found, ["city"], [("Bern",)], 1) is None
    assert "how often" in (doubt_result(found, ["city"], [("Bern",), ("Bern",)], 2) or "")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("How many films are there for each film and studio name?", "each is one row"),
        ("What are the names of studios and films?", "`films`"),
        ("How many films are longer than 30 or higher than 20?", "`higher than`"),
    ],
)
def test_a_reading_that_leaves_out_what_is_asked_is_refused(
    question: str, words: str, films: tuple[Vocabulary, Ask]
) -> None:
    found = understand(question, films[0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert words in found.reason


def test_a_long_list_that_repeats_values_is_doubted_unless_it_is_sorted_by_something_else(
    films: tuple[Vocabulary, Ask],
) -> None:
    """Each city may be meant once; in the order of their names, each studio has its place."""
    vocabulary, _ = films
    rows = [("Rome",)] * 12 + [("Oslo",)] * 12
    for question, doubted in (("Show the cities of studios sorted by city.", True),
                              ("Show the cities of studios sorted by market value.", False),
                              ("Show the different cities of studios.", False)):  # fmt: skip
        found = understand(question, vocabulary, today=TODAY)
        assert isinstance(found, Understanding), found
        assert (doubt_result(found, ["city"], rows, len(rows)) is not None) == doubted, question
        assert doubt_result(found, ["city"], rows[11:13], 2) is None
