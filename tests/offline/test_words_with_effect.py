"""Words that change the answer: each is in the plan, or the question is refused or asked back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary

from etude.offline.understand import Clarification, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 11, 16)
HARBOUR = """
CREATE TABLE boat (boat_id INTEGER PRIMARY KEY, name TEXT, length INTEGER, price INTEGER);
CREATE TABLE sailor (sailor_id INTEGER PRIMARY KEY, first_name TEXT, last_name TEXT, mentor INTEGER, points INTEGER,
  age INTEGER, miles_sailed INTEGER, boat_id INTEGER REFERENCES boat);
CREATE TABLE trip (trip_id INTEGER PRIMARY KEY, sailor_id INTEGER REFERENCES sailor, started TEXT);
CREATE TABLE pier (pier_id INTEGER PRIMARY KEY, city TEXT, owner TEXT, rank INTEGER, no_of_berths INTEGER);
CREATE TABLE cargo_type (cargo TEXT PRIMARY KEY, cargoType TEXT);
CREATE TABLE all_permits (permit_id INTEGER PRIMARY KEY, permit_name TEXT, permit_kind_code TEXT, issued_on TEXT);
CREATE TABLE permits_to_be_renewed (permit_id INTEGER REFERENCES all_permits, renewal TEXT);
CREATE TABLE charges (charge_id INTEGER PRIMARY KEY, fee_type_code TEXT, fee_type_description TEXT,
  pier_id INTEGER REFERENCES pier);
CREATE TABLE repairs (repair_id INTEGER PRIMARY KEY, description TEXT, charge_id INTEGER REFERENCES charges);
CREATE TABLE region (region_id INTEGER PRIMARY KEY, name TEXT, area TEXT, county TEXT);
CREATE TABLE knot_info (sailor_id INTEGER REFERENCES sailor, knot_name TEXT, hours INTEGER);
CREATE TABLE delivery (delivery_id INTEGER PRIMARY KEY, status TEXT, booked_on DATE);
CREATE TABLE flooded_zone (zone_id INTEGER, storm_id INTEGER, houses INTEGER, PRIMARY KEY (zone_id, storm_id));
CREATE TABLE photo (photo_id INTEGER PRIMARY KEY, title TEXT, boat_id INTEGER REFERENCES boat);
INSERT INTO boat VALUES (1, 'Gull', 12, 50), (2, 'Gull', 15, 20), (3, 'Tern', 20, 40);
INSERT INTO sailor VALUES (1, 'Ann', 'Ash', 4711, 10, 40, 300, 1), (2, 'Bob', 'Birch', 4711, 30, 20, 100, 2),
  (3, 'Cid', 'Cedar', 4812, 20, 50, 200, 3), (4, 'Dan', 'Dogwood', 4812, 5, 30, 400, 3);
INSERT INTO trip VALUES (1, 1, '2024-05-01'), (2, 1, '2024-06-01'), (3, 2, '2024-07-01');
INSERT INTO pier VALUES (1, 'Rome', 'City', 3, 40), (2, 'Rome', 'State', 1, 30), (3, 'Oslo', 'State', 2, 20);
INSERT INTO cargo_type VALUES ('apples', 'fruit'), ('pears', 'fruit'), ('coal', 'bulk'), ('ore', 'bulk');
INSERT INTO all_permits VALUES (1, 'North', 'FI', 'x'), (2, 'South', 'FI', 'y'), (3, 'West', 'TR', 'z');
INSERT INTO permits_to_be_renewed VALUES (1, 'soon');
INSERT INTO charges VALUES (1, 'D', 'Daily', 1), (2, 'W', 'Weekly', 2);
INSERT INTO repairs VALUES (1, 'New rail', 1), (2, 'Paint', 2);
INSERT INTO region VALUES (1, 'Bay', 'Kent County', 'Essex'), (2, 'Head', 'Coast', 'Kent');
INSERT INTO knot_info VALUES (1, 'bowline', 3), (2, 'bowline', 4), (2, 'hitch', 5);
INSERT INTO delivery VALUES (1, 'shipped', '2020-05-01'), (2, 'lost', '2021-05-01'), (3, 'shipped', '2022-01-01');
INSERT INTO flooded_zone VALUES (1, 1, 5), (1, 2, 6), (2, 1, 7);
INSERT INTO photo VALUES (1, 'the boat', 1), (2, 'Sunset', 2);
"""


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Boats, two of them with the same name, and who sails them."""
    folder: Path = tmp_path_factory.mktemp("harbour")
    path = str(folder / "harbour.sqlite")
    writer = sqlite3.connect(path)
    writer.executescript(HARBOUR)
    writer.close()
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


def _rows(question: str, source: tuple[Vocabulary, Ask]) -> list[tuple[Any, ...]]:
    vocabulary, ask = source
    meant = understand(question, vocabulary, today=TODAY)
    assert isinstance(meant, Understanding), meant
    assert vocabulary.catalog is not None
    return ask(compile_plan(meant.plan, vocabulary.catalog))


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("What is the full name of the sailor who made the first trip?", "first"),
        ("What is the full name of the sailor who made the last trip?", "last"),
        ("List the distinct names of boats ordered by price", "price"),
        ("How many mentors are there?", "mentor"),
        ("Show all titles and boats", "boats"),
        ("How many different flooded zones are there?", "flooded_zone"),
        ("What are the names of regions in Kent County?", "Kent County"),
        ("Show the number of permits with permit kind code FI or TR", "permits_to_be_renewed"),
        ("How many deliveries were shipped after 2021?", "shipped"),
        ("Which cities have piers either with owner City or with owner State and in Oslo?", "`and` and `or`"),
    ],
)
def test_a_word_without_a_place_in_the_plan_is_refused(
    question: str, said: str, harbour: tuple[Vocabulary, Ask]
) -> None:
    meant = understand(question, harbour[0], today=TODAY)
    assert isinstance(meant, Refusal), meant
    assert said in meant.reason


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("What is the first and last name of the sailor with 30 points?", [("Bob", "Birch")]),
        ("List the distinct names of boats ordered by name", [("Gull",), ("Tern",)]),
        ("Sort all the distinct boats in alphabetical order", [("Gull",), ("Tern",)]),
        ("How many different mentors are there?", [(2,)]),
        ("What are the maximum and minimum length of the boats?", [(20, 12)]),
        ("What is the average number of miles sailed by all sailors?", [(250.0,)]),
        ("What is the total miles sailed by sailors with more than 10 points?", [(300,)]),
        ("Find the details for all boats", [(1, "Gull", 12, 50), (2, "Gull", 15, 20), (3, "Tern", 20, 40)]),
        ("How many points does Ann have?", [(10,)]),
        ("Show the distinct names of boats with at least 1 sailor", [("Gull",), ("Tern",)]),
        ("Find the number of berths of the piers in Rome", [(70,)]),
        ("Show all cargo types", [("bulk",), ("fruit",)]),
        ("How many different cargo types are there?", [(2,)]),
        ("How many knots are there?", [(2,)]),
        ("What is the length of the boat used by the sailor with the maximum points?", [(15,)]),
        ("What is the first name of the sailor with the oldest age?", [("Cid",)]),
        ("Show the fee type code and description", [("D", "Daily"), ("W", "Weekly")]),
    ],
)
def test_words_that_change_the_answer(
    question: str, rows: list[tuple[Any, ...]], harbour: tuple[Vocabulary, Ask]
) -> None:
    assert sorted(_rows(question, harbour)) == rows


def test_a_list_shows_each_thing_that_it_names(harbour: tuple[Vocabulary, Ask]) -> None:
    assert ("apples", "fruit") in _rows("Show all cargos and their types", harbour)


def test_the_highest_rank_may_be_the_first(harbour: tuple[Vocabulary, Ask]) -> None:
    meant = understand("What is the city of the pier with the highest rank?", harbour[0], today=TODAY)
    assert isinstance(meant, Clarification)
    assert [choice.label for choice in meant.choices] == ["the greatest `rank`", "the smallest `rank`"]
    first = take_choice(meant, "2")
    assert isinstance(first, Understanding)
    assert "lowest `rank`" in first.reading
