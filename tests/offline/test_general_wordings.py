"""Wordings that are not those of a single source: clauses in front, orders in words, verbs, misspelled words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.misspelled_words import correct_words
from etude.offline.phrase_index import phrase_index_of
from etude.offline.rephrasing import rephrase
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import tokenize
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 16)
HARBOR = """
CREATE TABLE country (country_id INTEGER PRIMARY KEY, name TEXT, population INTEGER);
CREATE TABLE tower (tower_id INTEGER PRIMARY KEY, name TEXT, height INTEGER, open_year INTEGER, style TEXT,
  country_id INTEGER REFERENCES country);
CREATE TABLE captain (captain_id INTEGER PRIMARY KEY, forename TEXT, surname TEXT, age INTEGER, nationality TEXT);
CREATE TABLE ship (ship_id INTEGER PRIMARY KEY, ship_name TEXT, tonnage INTEGER);
CREATE TABLE command (command_id INTEGER PRIMARY KEY, captain_id INTEGER REFERENCES captain,
  ship_id INTEGER REFERENCES ship, date_of_command DATE);
CREATE TABLE inspection (inspection_id INTEGER PRIMARY KEY, captain_id INTEGER REFERENCES captain,
  ship_id INTEGER REFERENCES ship, remark TEXT);
INSERT INTO country VALUES (1, 'Norland', 500), (2, 'Sudland', 900);
INSERT INTO tower VALUES (1, 'Spire', 90, 1990, 'modern', 1), (2, 'Keep', 40, 1890, 'old', 2),
  (3, 'Mast', 70, 2001, 'modern', 2);
INSERT INTO captain VALUES (1, 'Ada', 'Holm', 36, 'Norlander'), (2, 'Ben', 'Falk', 37, 'Norlander'),
  (3, 'Cleo', 'Rask', 61, 'Sudlander');
INSERT INTO ship VALUES (1, 'Gull', 100), (2, 'Heron', 300), (3, 'Swift', 200);
INSERT INTO command VALUES (1, 1, 1, '2020-01-01'), (2, 1, 2, '2021-01-01'), (3, 2, 2, '2022-01-01');
INSERT INTO inspection VALUES (1, 3, 1, 'fine'), (2, 3, 3, 'rust');
"""


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Towers of countries, and captains who command ships and inspect others."""
    folder: Path = tmp_path_factory.mktemp("harbor")
    path = str(folder / "harbor.sqlite")
    writer = sqlite3.connect(path)
    writer.executescript(HARBOR)
    writer.close()
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


ANSWERS: list[tuple[str, list[tuple[Any, ...]]]] = [
    # A clause before the question.
    ("For towers whose style is modern, what is the average height?", [(80.0,)]),
    ("Among all captains, what are the highest and lowest ages?", [(61, 36)]),
    # Extremes and orders.
    ("What is the name of the tower whose height is the highest?", [("Spire",)]),
    ("What are the names of ships, with the highest tonnage first?", [("Heron",), ("Swift",), ("Gull",)]),
    ("List the names of ships from the lowest tonnage to the highest.", [("Gull",), ("Swift",), ("Heron",)]),
    ("List the names of ships from A to Z.", [("Gull",), ("Heron",), ("Swift",)]),
    # Whose name is meant.
    ("Which country has the tallest tower? Show its name and population.", [("Norland", 500)]),
    ("What are the captains' surnames?", [("Holm",), ("Falk",), ("Rask",)]),
    ("What is the last name of the captain whose first name is Cleo?", [("Rask",)]),
    # Verbs that only connect; the path that the verb names.
    ("What are the names of ships commanded by the captain Ben Falk?", [("Heron",)]),
    ("Which ships are not commanded by any captain?", [("Swift", 3)]),
    # Numbers, and nouns that are said twice.
    ("What are the surnames of captains who are 36 or 37 years old?", [("Holm",), ("Falk",)]),
    ("For each nationality, count the captains who are under 40 years of age.", [("Norlander", 2)]),
    ("What are the names of towers other than Mast?", [("Spire",), ("Keep",)]),
    ("What are the names and opening years of towers?", [("Spire", 1990), ("Keep", 1890), ("Mast", 2001)]),
    # Misspelled words of the question.
    ("How many diffrent styles of towers are there?", [(2,)]),
    ("Which towers have a height larger tahn 80?", [("Spire", 1)]),
]


@pytest.mark.parametrize(("question", "rows"), ANSWERS, ids=[question for question, _ in ANSWERS])
def test_a_wording_is_read(question: str, rows: list[tuple[Any, ...]], harbor: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = harbor
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    answer = ask(compile_plan(found.plan, vocabulary.catalog))
    ordered = found.plan.order_by
    assert (answer if ordered else sorted(answer, key=str)) == (rows if ordered else sorted(rows, key=str)), (
        found.reading
    )


REFUSED = [
    # It asks for the one who does it.
    "Who steers the ship Gull?",
    # It would only say that the country is called Norland.
    'What are the country names of modern towers in "Norland"?',
    # The names would be sorted, not the ages.
    "List the surnames of captains from the oldest to the youngest.",
]


@pytest.mark.parametrize("question", REFUSED)
def test_a_wording_that_the_plan_would_not_follow_is_refused(question: str, harbor: tuple[Vocabulary, Ask]) -> None:
    assert isinstance(understand(question, harbor[0], today=TODAY), Refusal)


SHORT = [
    ("List every distinct style.", "List all distinct style ."),
    ("Show the style of each.", "Show the style of each ."),
    ("Which ships were visited two or more times?", "Which ships were visited at least two times ?"),
    ("Which have three ships or more?", "Which have at least three ships ?"),
    ("Which have fewer than 3 ships or more than 5?", "Which have fewer than 3 ships or more than 5 ?"),
    ("Which took part in a race?", "Which participated in a race ?"),
    ("Who has more points than the average?", "Who has points above the average ?"),
    ("Of all cities, name the one with the most rain.", "Of all cities , name the one with the most rain ."),
    ("clubs with men from Rome as well as men from Oslo", "clubs with both men from Rome and men from Oslo"),
    ('names that include "Opera"', "names that contain Opera"),
    ("sorted by name, latest year first", "sorted by name sorted by year in descending order"),
]


@pytest.mark.parametrize(("question", "short"), SHORT, ids=[question for question, _ in SHORT])
def test_a_question_is_said_in_usual_words(question: str, short: str) -> None:
    assert " ".join(token.text for token in rephrase(tokenize(question))) == short


def test_words_of_the_data_and_other_words_are_not_corrected(harbor: tuple[Vocabulary, Ask]) -> None:
    index = phrase_index_of(harbor[0])
    kept = "shop form man lost Gull style"
    assert [token.low for token in correct_words(tokenize(kept), index)] == kept.lower().split()
    assert [token.low for token in correct_words(tokenize("htat minumum"), index)] == ["that", "minimum"]
