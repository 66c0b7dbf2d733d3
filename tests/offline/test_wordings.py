"""Roundabout wordings, things that have both of two, columns of the table that a row refers to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.rephrasing import rephrase
from etude.offline.result_check import doubt_repeated_result, doubt_result
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import tokenize
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 16)
CLUBS = """
CREATE TABLE people (people_id INTEGER PRIMARY KEY, name TEXT, age INTEGER, hometown TEXT);
CREATE TABLE gymnast (gymnast_id INTEGER PRIMARY KEY REFERENCES people, vault_points INTEGER);
CREATE TABLE bank (bank_id INTEGER PRIMARY KEY, bname TEXT, state TEXT);
CREATE TABLE division (division_id INTEGER PRIMARY KEY, division_name TEXT, budget INTEGER);
CREATE TABLE worker (worker_id INTEGER PRIMARY KEY, name TEXT, pay INTEGER, hired DATE, division_id INTEGER
  REFERENCES division);
CREATE TABLE drink (drink_id INTEGER PRIMARY KEY, drink_name TEXT);
CREATE TABLE shopper (shopper_id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE shopper_drink (shopper_id INTEGER REFERENCES shopper, drink_id INTEGER REFERENCES drink, since DATE,
  until DATE, note TEXT);
CREATE TABLE trip (trip_id INTEGER PRIMARY KEY, start_date DATE, end_date DATE, miles INTEGER);
CREATE TABLE track (track_id INTEGER PRIMARY KEY, track_name TEXT);
CREATE TABLE race (race_id INTEGER PRIMARY KEY, race_name TEXT, race_class TEXT, track_id TEXT REFERENCES track);
INSERT INTO people VALUES (1, 'Ann', 18, 'Rome'), (2, 'Bob', 25, 'Rome'), (3, 'Cid', 30, 'Oslo'),
  (4, 'Dan', 40, 'Bern');
INSERT INTO gymnast VALUES (1, 9), (3, 7);
INSERT INTO bank VALUES (1, 'Alpha', 'Utah'), (2, 'Beta', 'Ohio'), (3, 'Gamma', 'Utah');
INSERT INTO division VALUES (1, 'Tools', 100), (2, 'Books', 50);
INSERT INTO worker VALUES (1, 'Eve', 10, '2020-01-01', 1), (2, 'Fay', 30, '2021-01-01', 2),
  (3, 'Gus', 20, '2022-01-01', 1);
INSERT INTO drink VALUES (1, 'Latte'), (2, 'Mocha'), (3, 'Chai'), (4, 'Water');
INSERT INTO shopper VALUES (1, 'Hal'), (2, 'Ida'), (3, 'Jon');
INSERT INTO shopper_drink VALUES (1, 1, '2020-01-01', NULL, 'a'), (1, 2, '2020-01-01', NULL, 'b'),
  (2, 1, '2020-01-01', NULL, 'c'), (3, 3, '2020-01-01', NULL, 'd');
INSERT INTO trip VALUES (1, '2020-01-01', '2020-01-02', 5), (2, '2020-02-01', '2020-02-03', 9),
  (3, '2020-03-01', '2020-03-04', 7);
INSERT INTO track VALUES (1, 'Oval'), (2, 'Loop');
INSERT INTO race VALUES (1, 'Spring', 'A', '1'), (2, 'Summer', 'B', '1'), (3, 'Autumn', 'A', '2');
"""


@pytest.fixture(scope="module")
def clubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """People of whom some are gymnasts, workers of divisions, shoppers and the drinks they buy, races on tracks."""
    folder: Path = tmp_path_factory.mktemp("clubs")
    path = str(folder / "clubs.sqlite")
    writer = sqlite3.connect(path)
    writer.executescript(CLUBS)
    writer.close()
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


ANSWERS = [
    # How many, asked at the end; a superlative after its noun.
    ("people older than 20, how many?", [(3,)]),
    ("pls show the names of people from Oslo", [("Cid",)]),
    ("Which gymnast is the oldest?", [(3, 7, 30)]),
    # Things that have both of two.
    ("Show the hometowns shared by people older than 20 and people younger than 20.", [("Rome",)]),
    ("Which hometowns have both people over 20 years old and people under 20 years old?", [("Rome",)]),
    ("Which hometowns have people with age above 20 and people with age below 20?", [("Rome",)]),
    ("What are the names of shoppers who bought both Latte and Mocha?", [("Hal",)]),
    ("What are the names of shoppers who bought not only Latte but also Mocha?", [("Hal",)]),
    ("What are the names of shoppers who bought Latte but not Mocha?", [("Ida",)]),
    # Columns of the table that a row refers to, and names that only begin with a letter of the table.
    ("What are the names of gymnasts?", [("Ann",), ("Cid",)]),
    ("What is the name of the gymnast with the highest vault points?", [("Ann",)]),
    ("What is the division name of the worker named Fay?", [("Books",)]),
    ("What are the names of banks in Utah?", [("Alpha",), ("Gamma",)]),
    # Roundabout wordings.
    ("How many people are 18 years old?", [(1,)]),
    ("What are the names of people who are at least 30 years old?", [("Cid",), ("Dan",)]),
    ("How many people are there in each hometown? List the hometown and the number.", None),
    ("Show the hometowns of people and the count.", None),
    ("What are the names of divisions, and how many workers does each have?", [("Books", 1), ("Tools", 2)]),
    ("What is the name of the worker who was hired most recently?", [("Gus",)]),
    ("Find the names of workers who earn more than 15 in pay.", [("Fay",), ("Gus",)]),
    ("Which workers have more than the average pay?", [("Fay", 2)]),
    ("What are the start and end dates of trips?", None),
    ("What are the ids of the trips with the top 2 miles?", [(2,), (3,)]),
    ("What are the top 2 highest miles?", [(9,), (7,)]),
    ("How many trips have miles above 8 or below 6?", [(2,)]),
    # A bridge table that is named after both of its ends; a declared key whose ends have different types.
    ("Which drinks did shoppers named Ida buy?", [("Latte", 1)]),
    ("What is the track name of the race named Autumn?", [("Loop",)]),
    # Nothing in another table; a noun that only the condition names.
    ("Which drinks have no note?", [("Water", 4)]),
    ("What are the names of shoppers who never bought Latte?", [("Jon",)]),
    ("Which track names contain the word 'oo'?", [("Loop",)]),
    ("Give the class of races that is most common.", [("A", 2)]),
    ("What is the maximum miles value?", [(9,)]),
    ("How old is Cid?", [(30,)]),
    ("What is the name of worker 2?", [("Fay",)]),
    ("Which tracks have at least two race names?", [("Oval", 1, 2)]),
]


@pytest.mark.parametrize(("question", "rows"), ANSWERS, ids=[question for question, _ in ANSWERS])
def test_a_wording_is_read(question: str, rows: list[tuple[Any, ...]] | None, clubs: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = clubs
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    answer = ask(compile_plan(found.plan, vocabulary.catalog))
    if rows is None:
        hometowns = [("Bern", 1), ("Oslo", 1), ("Rome", 2)]
        rows = hometowns if "hometown" in question else ask("SELECT start_date, end_date FROM trip")
    assert sorted(answer, key=str) == sorted(rows, key=str), found.reading
    columns = [str(n) for n, _ in enumerate(answer[0])]
    assert not doubt_result(found, columns, answer, len(answer))

    def run_plan(plan: Any) -> list[tuple[Any, ...]]:
        assert vocabulary.catalog is not None
        return ask(compile_plan(plan, vocabulary.catalog))

    assert not doubt_repeated_result(found, run_plan)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("What are the names of shoppers?", ""),
        ("What is the hometown of banks?", "`hometown`"),
    ],
)
def test_a_name_is_one_of_the_rows_that_are_named(question: str, reason: str, clubs: tuple[Vocabulary, Ask]) -> None:
    found = understand(question, clubs[0], today=TODAY)
    assert isinstance(found, Refusal if reason else Understanding), found
    assert not isinstance(found, Refusal) or reason in found.reason


@pytest.mark.parametrize(
    ("question", "short"),
    [
        ("Find his or her name", "Find their name"),
        ("Count how many there are", "how many there are"),
        ("colors shared by tea and milk", "colors both tea and milk"),
        ("cities shared by more than one shop", "cities shared by more than one shop"),
        ("who bought tea, but never coffee", "who bought tea and never coffee"),
        ("people over 20 years old", "people age over 20"),
        ("older than 20 years old", "older than 20"),
        ("the tracks and how many races has each had?", "the tracks and how many races has had ?"),
        ("the number of races in each class", "the number of races in each class"),
        ("How many are there? List the city and the number.", "How many are there ? List the city and the count ."),
    ],
)
def test_a_question_is_said_in_fewer_words(question: str, short: str) -> None:
    assert " ".join(token.text for token in rephrase(tokenize(question))) == short
