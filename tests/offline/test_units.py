"""Units, percentages, times and negations: the answer holds what was asked, or the words are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

Ask = Callable[[str], list[tuple[Any, ...]]]
TODAY = date(2026, 11, 16)


@pytest.mark.parametrize(
    ("question", "condition"),
    [
        ("How many parcels have a duration over 90 minutes?", "duration_minutes > 90"),
        ("How many parcels have a weight over 5 kilograms?", "weight_kg > 5"),
        ("How many parcels have a discount over 10%?", "discount > 10"),
        ("How many parcels have a tax rate over 10%?", "tax_rate > 0.1"),
        ("How many parcels have a tax rate of 20 percent?", "tax_rate = 0.2"),
        ("How many parcels in the last 3 months of 2024?", "posted BETWEEN '2024-10-01' AND '2024-12-31'"),
        ("How many parcels in the last month of 2024?", "posted BETWEEN '2024-12-01' AND '2024-12-31'"),
        ("How many parcels are not paid?", "status IS DISTINCT FROM 'paid'"),
        ("How many parcels excluding refunded?", "status IS DISTINCT FROM 'refunded'"),
        ("How many parcels are neither paid nor refunded?", "coalesce(status, '') NOT IN ('paid', 'refunded')"),
        ("How many parcels are not insured?", "insured IS NOT TRUE"),
        ("How many parcels are insured?", "insured"),
        ("How many parcels are over 1 thousand dollars?", "amount > 1000"),
    ],
)
def test_a_condition_counts_the_rows_that_a_person_would(
    question: str, condition: str, parcels: tuple[Vocabulary, Ask]
) -> None:
    vocabulary, ask = parcels
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    wanted = ask(f"SELECT count(*) FROM parcels WHERE {condition}")
    assert ask(compile_plan(found.plan, vocabulary.catalog)) == wanted, found.reading


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("top 10% of parcels by amount", "`top 10%`"),
        ("top 10 percent of parcels by amount", "`top 10`"),
        ("What are the 10% highest amounts of parcels?", "`10%`"),
        ("How many parcels are over 20%?", "`over 20%`"),
        ("total discount in dollars", "`discount` is in `dollars`"),
        ("average duration in hours", "`duration_minutes` is in `minutes`, not in `hours`"),
        ("parcels with a duration over 2 hours", "not in `hours`"),
        ("total weight in pounds", "not in `pounds`"),
        ("number of parcels in euros", "`in euros`"),
        ("How many parcels in the last week of 2024?", "`in the last week of 2024`"),
        ("How many parcels on the last day of each month?", "`on the last day of`"),
        ("How many parcels in May?", "`May`"),
        ("How many parcels have an amount of about 500?", "`about`"),
        ("cumulative amount per month", "`cumulative`"),
        ("parcels from Monday to Friday", "`Monday` and `Friday`"),
        ("How many parcels in 2024 were posted last month?", "`in 2024` and `posted last month`"),
        ("How many unopened parcels are there?", "what `unopened` means"),
        ("What is the discount rate?", "`discount rate`"),
    ],
)
def test_words_that_change_the_number_are_refused_by_name(
    question: str, words: str, parcels: tuple[Vocabulary, Ask]
) -> None:
    found = understand(question, parcels[0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert words in found.reason


def test_the_reading_says_that_rows_without_a_value_are_included(parcels: tuple[Vocabulary, Ask]) -> None:
    found = understand("How many parcels are not paid?", parcels[0], today=TODAY)
    assert isinstance(found, Understanding)
    assert found.reading == "Number of `parcels`, where `parcels.status` is not `paid` or is missing."


def test_a_unit_that_nothing_confirms_is_noted(parcels: tuple[Vocabulary, Ask]) -> None:
    found = understand("total amount in dollars", parcels[0], today=TODAY)
    assert isinstance(found, Understanding)
    assert found.reasons == ("Nothing in the data says that `amount` is in `dollars`.",)
    sure = understand("total weight in kg", parcels[0], today=TODAY)
    assert isinstance(sure, Understanding) and not sure.reasons


def test_rows_that_a_join_leaves_out_are_noted(parcels: tuple[Vocabulary, Ask]) -> None:
    found = understand("How many parcels per sender?", parcels[0], today=TODAY)
    assert isinstance(found, Understanding), found
    assert found.reasons == ("Rows of `parcels` without a `sender_id` are left out.",)


def test_a_percentage_of_a_rate_below_one_is_noted(parcels: tuple[Vocabulary, Ask]) -> None:
    found = understand("How many parcels have a tax rate over 10%?", parcels[0], today=TODAY)
    assert isinstance(found, Understanding)
    assert "`parcels.tax_rate` > 0.1" in found.reading
    assert "`10%` is read as 0.1" in found.reasons[0]
