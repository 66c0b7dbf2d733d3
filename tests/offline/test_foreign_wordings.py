"""Wordings of other people's questions, about tables of their own: nouns said twice, kinds, directions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 18)
OFFICES = """
CREATE TABLE firm (firm_id INTEGER PRIMARY KEY, name TEXT, headquarter TEXT, sales INTEGER);
CREATE TABLE building (building_id INTEGER PRIMARY KEY, name TEXT, city_code TEXT, height INTEGER);
CREATE TABLE office_location (location_id INTEGER PRIMARY KEY, firm_id INTEGER NOT NULL REFERENCES firm,
  building_id INTEGER REFERENCES building);
CREATE TABLE client (client_id INTEGER PRIMARY KEY, client_name TEXT, advisor INTEGER, country TEXT);
CREATE TABLE client_cards (card_id INTEGER PRIMARY KEY, client_id INTEGER REFERENCES client, card_type_code TEXT,
  card_number TEXT, fee INTEGER);
CREATE TABLE projects (code TEXT PRIMARY KEY, name TEXT, hours INTEGER);
CREATE TABLE assigned (firm_id INTEGER REFERENCES firm, project TEXT REFERENCES projects,
  PRIMARY KEY (firm_id, project));
INSERT INTO firm VALUES (1, 'Oak', 'Rome', 30), (2, 'Elm', 'Oslo', 10), (3, 'Ash', 'Rome', 20);
INSERT INTO building VALUES (1, 'Spire', 'BAL', 90), (2, 'Keep', 'HOU', 40);
INSERT INTO office_location VALUES (1, 1, 1), (2, 2, 1), (3, 3, 2);
INSERT INTO client VALUES (1, 'Ann Lee', 1121, 'Peru'), (2, 'Bo Dahl', 1121, 'Chile'), (3, 'Cy Orr', 77, 'Peru');
INSERT INTO client_cards VALUES (1, 1, 'Debit', '4560', 5), (2, 1, 'Credit', '4561', 9), (3, 2, 'Debit', '4562', 7);
INSERT INTO projects VALUES ('a', 'Dam', 200), ('b', 'Mole', 300);
INSERT INTO assigned VALUES (1, 'a'), (2, 'a'), (3, 'b');
"""
TEAM = "name,club,goals_text,city\n" + "\n".join(
    f"{name},{club},{at},{city}"
    for at, (name, club, city) in enumerate(
        (("Ann", "Oaks", "Rome"), ("Bo", "Oaks", "Oslo"), ("Cy", "Elms", "Bari"), ("Di", "Elms", "Pisa"),
         ("Ed", "Ashes", "Rome"), ("Flo", "Ashes", "Turin"))
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def open_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Vocabulary, Ask]]]:
    """Opens the offices of firms, or a file about players."""
    folder: Path = tmp_path_factory.mktemp("foreign")
    writer = sqlite3.connect(folder / "offices.sqlite")
    writer.executescript(OFFICES)
    writer.close()
    (folder / "squad.csv").write_text(TEAM)
    with ExitStack() as stack:
        opened: dict[str, tuple[Vocabulary, Ask]] = {}

        def open_one(name: str) -> tuple[Vocabulary, Ask]:
            if name not in opened:
                opened[name] = stack.enter_context(open_vocabulary(str(folder / name), folder / "home"))
            return opened[name]

        yield open_one


ANSWERS: list[tuple[str, list[tuple[Any, ...]]]] = [
    # A noun that says nothing more: each office is a firm's, and the column says whose number it is.
    ("Which buildings have more than one firm office?", [("Spire", 1, 2)]),
    ("Show the fee of the card with card number '4561'.", [(9,)]),
    # A plural is what the rows are, rather than part of a column's name.
    ("Show ids, card type codes and card numbers for all cards.",
     [(1, "Debit", "4560"), (2, "Credit", "4561"), (3, "Debit", "4562")]),
    ("What are the ids for cards that have a fee above the average fee of a card?", [(2,)]),
    # The type is that of the codes that are listed.
    ("Show all card type codes and the number of cards in each type.", [("Credit", 1), ("Debit", 2)]),
    ("What are the different card type codes, and how many cards of each are there?",
     [("Credit", 1), ("Debit", 2)]),
    ("Show the different countries and the number of clients from each.", [("Chile", 1), ("Peru", 2)]),
    # The name of a table's row, although a column of another table is called so.
    ("What is the name of the project with the most hours?", [("Mole",)]),
    # Numbers and names in quotes.
    ('What are the names of clients whose advisor is "1121"?', [("Ann Lee",), ("Bo Dahl",)]),
    ('What is the height of the skyscraper "Keep"?', [(40,)]),
    # Directions, and verbs that hold no text.
    ("List the names of firms by ascending sales.", [("Elm",), ("Ash",), ("Oak",)]),
    ("List the names of firms sorted by sales in descending manner.", [("Oak",), ("Ash",), ("Elm",)]),
    ("Which building contains the most offices?", [("Spire", 1, 2)]),
    ("What are the names of everybody among the clients?", [("Ann Lee",), ("Bo Dahl",), ("Cy Orr",)]),
    ("What kind of headquarter has the most firms?", [("Rome", 2)]),
    # One firm is named, so that its own sales are meant.
    ("What is the headquarter of the firm with the largest sales?", [("Rome",)]),
    # The numbers that groups were chosen by are shown.
    ("Which headquarters have at least two firms?", [("Rome", 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("question", "rows"), ANSWERS, ids=[question for question, _ in ANSWERS])
def test_a_wording_is_read(
    question: str, rows: list[tuple[Any, ...]], open_source: Callable[[str], tuple[Vocabulary, Ask]]
) -> None:
    vocabulary, ask = open_source("offices.sqlite")
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    given = ask(compile_plan(found.plan, vocabulary.catalog))
    assert (given if "ing " in question else sorted(given)) == rows, found.reading


@pytest.mark.parametrize(
    ("source", "question", "word"),
    [
        # Abbreviations that look like pronouns are not fillers.
        ("offices.sqlite", "How many firms are there in the US?", "US"),
        ("offices.sqlite", "how many clients are from the us?", "us"),
        ("offices.sqlite", "What are the names of the firms in IT?", "IT"),
        # One row is Ann's, so the goals are not rows.
        ("squad.csv", "How many matches does Ann have?", "matches"),
        # Five cities in six rows: cities, or rows?
        ("squad.csv", "How many cities are there?", "city"),
    ],
)
def test_it_refuses_with_the_word_that_is_not_clear(
    source: str, question: str, word: str, open_source: Callable[[str], tuple[Vocabulary, Ask]]
) -> None:
    found = understand(question, open_source(source)[0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert f"`{word}`" in found.reason


def test_different_cities_are_counted(open_source: Callable[[str], tuple[Vocabulary, Ask]]) -> None:
    vocabulary, ask = open_source("squad.csv")
    found = understand("How many different cities are there?", vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert ask(compile_plan(found.plan, vocabulary.catalog)) == [(5,)]
