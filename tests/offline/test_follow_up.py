"""A question that stands alone means the same after any other question."""

from __future__ import annotations

import random

import pytest
from tests.offline.questions import QUESTIONS, TODAY

from etude.offline.follow_up import is_no_follow_up
from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary

ENDINGS = ("", " only", " per channel", " in 2024", " as a share", ", highest first", " of those", " instead")


@pytest.mark.parametrize(
    "question", ["How many orders were returned?", "Total quantity per month", "Which customers are in Berlin?"]
)
def test_a_complete_question_stands_alone(question: str) -> None:
    assert is_no_follow_up(question)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "only 2025",
        "and for Germany?",
        "the same by region",
        "what about Berlin?",
        "show highest first",
        "top 5",
        "how many of those?",
        "per month instead",
        "show it as a share",
        "How many now?",
    ],
)
def test_a_question_that_may_lean_on_the_one_before_does_not(question: str) -> None:
    assert not is_no_follow_up(question)


def test_what_stands_alone_means_the_same_after_any_question(shop: Vocabulary) -> None:
    chance = random.Random(7)
    before = [m for m in (understand(q, shop, today=TODAY) for q in QUESTIONS) if isinstance(m, Understanding)]
    alone = [q + end for q in QUESTIONS for end in ENDINGS if is_no_follow_up(q + end)]
    assert len(alone) > len(QUESTIONS)
    for question in chance.sample(alone, 150):
        first = understand(question, shop, today=TODAY)
        later = understand(question, shop, previous=chance.choice(before), today=TODAY)
        assert type(later) is type(first), question
        if isinstance(first, Understanding) and isinstance(later, Understanding):
            assert later.plan == first.plan, question


def test_instead_that_replaces_nothing_is_refused(shop: Vocabulary) -> None:
    before = understand("How many orders are completed?", shop, today=TODAY)
    assert isinstance(before, Understanding)
    assert isinstance(understand("and in 2025", shop, previous=before, today=TODAY), Understanding)
    after = understand("and in 2025 instead", shop, previous=before, today=TODAY)
    assert isinstance(after, Refusal)
    assert "instead" in after.reason


@pytest.mark.parametrize(
    ("first", "then", "parts"),
    [
        ("total quantity of orders in 2024", "and the number of orders?", ("Number of", "in 2024")),
        (
            "number of orders per channel in 2024",
            "and the total quantity?",
            ("Total", "per `orders.channel`", "in 2024"),
        ),
        ("number of orders in 2024", "what is their total quantity?", ("Total", "in 2024")),
    ],
)
def test_another_number_keeps_the_conditions_and_groups(
    first: str, then: str, parts: tuple[str, ...], shop: Vocabulary
) -> None:
    before = understand(first, shop, today=TODAY)
    assert isinstance(before, Understanding), before
    found = understand(then, shop, previous=before, today=TODAY)
    assert isinstance(found, Understanding), found
    assert all(part in found.reading for part in parts), found.reading
    assert f"follow-up to “{first}”" in " ".join(found.told)


@pytest.mark.parametrize(
    ("questions", "reading"),
    [
        (("orders by channel", "top 1"), "highest `number_of_orders` first, only the first."),
        (
            ("orders by channel", "sort descending"),
            "Number of `orders` per `orders.channel`, highest `number_of_orders`",
        ),
        (("orders by channel", "only returned", "top 2"), "highest `number_of_orders` first, the first 2."),
        (("orders by channel", "only returned", "remove the filter"), "Number of `orders` per `orders.channel`."),
        (("orders by channel", "only returned", "drop all filters", "top 2"), "the first 2."),
    ],
)
def test_rows_per_group_are_counted_before_a_follow_up_orders_them(
    questions: tuple[str, ...], reading: str, shop: Vocabulary
) -> None:
    found: Understanding | None = None
    for question in questions:
        made = understand(question, shop, previous=found, today=TODAY)
        assert isinstance(made, Understanding), made
        found = made
    assert found is not None and reading in found.reading


def test_a_question_word_alone_changes_nothing_and_is_refused(shop: Vocabulary) -> None:
    before = understand("orders by channel", shop, today=TODAY)
    assert isinstance(before, Understanding)
    for question in ("what?", "which?", "remove the filter"):
        assert isinstance(understand(question, shop, previous=before, today=TODAY), Refusal)
