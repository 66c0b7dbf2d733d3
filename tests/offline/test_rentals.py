"""A conversation about one file of rentals: numbered bookings, values in several spellings, missing prices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from tests.offline.conftest import Ask

from etude.app import App
from etude.offline.spellings import plain_spelling
from etude.offline.understand import Outcome, Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.offline.vocabulary_suggestions import suggest_from_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)
BIKES = ("E-bike", "City bike", "e-bike", "E bike", "Ebike", "Tandem", "City Bike", "City-bike")


@pytest.fixture(scope="module")
def rentals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    folder = tmp_path_factory.mktemp("rentals")
    path = folder / "bike rentals.csv"
    lines = ["Booking No,Customer,Bike type,Shop,Hours,Price (EUR),Status,Rating"]
    for n in range(160):
        number = 1000 + (n if n != 40 else 39)
        bike, shop = BIKES[(n * 7) % 8], ("Harbour", "Station", "Old Town", "old town")[n % 4]
        price = "" if n % 20 == 3 else f"{10 + n % 13}.5"
        status = ("returned", "late", "cancelled", "returned", "no show")[n % 5]
        customer = "Kim" + "abcdefghijkl"[(n * n) % 12]
        lines.append(f"{number},{customer},{bike},{shop},{2 + n % 6},{price},{status},{1 + n % 5}")
    path.write_text("\n".join(lines) + "\n")
    with App(home=folder / "home", record=False) as app:

        def run(sql: str) -> list[tuple[Any, ...]]:
            return app.sql(str(path), sql).rows()

        yield build_vocabulary(app.catalog(str(path)), run), run


def ask_in_turn(vocabulary: Vocabulary, *questions: str) -> Outcome:
    previous: Understanding | None = None
    found: Outcome | None = None
    for question in questions:
        found = understand(question, vocabulary, previous=previous, today=TODAY)
        previous = found if isinstance(found, Understanding) else previous
    assert found is not None
    return found


def rows_of(found: Outcome, rentals: tuple[Vocabulary, Ask]) -> list[tuple[Any, ...]]:
    vocabulary, ask = rentals
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    return [tuple(row) for row in ask(compile_plan(found.plan, vocabulary.catalog))]


@pytest.mark.parametrize(
    ("before", "question", "same"),
    [
        ("average rating per shop", "top 3 customers by total price", None),
        ("how many customers do I have?", "top 5 customers by number of bookings", None),
        ("average rating per shop", "now how many customers do I have?", "how many customers do I have?"),
        ("average rating per shop", "but how many bookings were cancelled?", "how many bookings were cancelled?"),
        ("average rating per shop", "and now show the total hours per status", "total hours per status"),
    ],
)
def test_a_complete_question_is_read_on_its_own(
    before: str, question: str, same: str | None, rentals: tuple[Vocabulary, Ask]
) -> None:
    vocabulary, _ = rentals
    found = ask_in_turn(vocabulary, before, question)
    alone = understand(same or question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding) and isinstance(alone, Understanding)
    assert found.plan == alone.plan
    assert not any("follow-up" in note for note in found.told)


@pytest.mark.parametrize(
    "turns",
    [
        ("average price by shop", "and by shop?"),
        ("average price by shop", "only late", "only late"),
        ("average price by shop", "top 2", "top 2"),
        ("how many customers do I have?", "by customer"),
    ],
)
def test_a_follow_up_that_changes_nothing_is_refused(turns: tuple[str, ...], rentals: tuple[Vocabulary, Ask]) -> None:
    found = ask_in_turn(rentals[0], *turns)
    assert isinstance(found, Refusal), found


def test_a_follow_up_says_so(rentals: tuple[Vocabulary, Ask]) -> None:
    found = ask_in_turn(rentals[0], "average price by shop", "only late")
    assert isinstance(found, Understanding)
    assert found.told[-1] == "This is read as a follow-up to “average price by shop”."


def test_top_and_bottom_say_from_which_end_whatever_the_order_was(rentals: tuple[Vocabulary, Ask]) -> None:
    turns = ("average hours by status", "top 2", "bottom 2", "lowest first", "top 1")
    top, bottom = (rows_of(ask_in_turn(rentals[0], *turns[:n]), rentals) for n in (2, 3))
    best = rows_of(ask_in_turn(rentals[0], "average hours by status", "lowest first", "top 1"), rentals)
    assert top[0][1] >= top[1][1] > bottom[0][1]
    assert bottom[0][1] <= bottom[1][1]
    assert best == top[:1]


def test_spellings_are_one_value_in_groups_filters_lists_and_counts(rentals: tuple[Vocabulary, Ask]) -> None:
    vocabulary, _ = rentals
    grouped = dict(rows_of(understand("number of bookings by bike type", vocabulary, today=TODAY), rentals))
    assert grouped == {"E bike": 80, "City Bike": 60, "Tandem": 20}
    for bike, spelled in (("E bike", "E-bike"), ("E bike", "Ebike"), ("City Bike", "city-bike"), ("Tandem", "tandem")):
        found = understand(f"how many bookings of {spelled}?", vocabulary, today=TODAY)
        assert rows_of(found, rentals) == [(grouped[bike],)]
        assert isinstance(found, Understanding)
        assert any("`Bike type` that differ only" in note for note in found.told) == (bike != "Tandem")
    assert rows_of(understand("how many bookings are e-bikes?", vocabulary, today=TODAY), rentals) == [(80,)]
    assert rows_of(understand("how many bike types are there?", vocabulary, today=TODAY), rentals) == [(3,)]
    assert len(rows_of(understand("list the bike types", vocabulary, today=TODAY), rentals)) == 3
    assert rows_of(ask_in_turn(vocabulary, "how many bookings do I have?", "only e-bikes"), rentals) == [(80,)]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("E-bike", "e bike", True),
        ("E-bike", "Ebike", True),
        ("Kids' bike", "kids bike ", True),
        ("Zoë", "zoe", True),
        ("no_show", "No Show", True),
        ("A", "A-", False),
        ("A", "A+", False),
        ("1-2", "12", False),
        ("1 2", "1-2", True),
        ("-5", "5", False),
    ],
)
def test_what_is_one_spelling(left: str, right: str, same: bool) -> None:
    assert (plain_spelling(left) == plain_spelling(right)) is same


def test_suggested_questions_are_about_money_first_and_never_about_identifiers(
    rentals: tuple[Vocabulary, Ask],
) -> None:
    texts = [meant.text for meant in suggest_from_vocabulary(rentals[0], TODAY)]
    assert texts[0] == "What is the average price by customer?"
    assert not any("booking" in text for text in texts)
    refused = understand("price of the moon by shop", rentals[0], today=TODAY)
    assert isinstance(refused, Refusal)
    assert refused.nearest[0] == "What is the average price for each shop?"


def test_nothing_is_asked_back_if_every_answer_is_refused(rentals: tuple[Vocabulary, Ask]) -> None:
    found = understand("price per hour by bike type", rentals[0], today=TODAY)
    assert isinstance(found, Refusal)
    assert found.reason == "It is not clear whether `per hour` means for each one, or divided by it."
