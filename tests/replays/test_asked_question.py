"""Two questions are the same only if every unit of them is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.replays.asked_question import AskedQuestion, QuestionUnit, is_relative_question, read_question_units


def key(question: str) -> str:
    return AskedQuestion("shop", "offline", read_question_units(question)).key()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many orders are there?", "how many orders are there"),
        ("How many orders are there?", "  How many\torders are there ?"),
        ("Please show the orders.", "show orders"),
        ("What is the total?", "What is total"),
        ("Orders of “Ann”?", 'Orders of "Ann"?'),
    ],
)
def test_these_are_the_same_question(one: str, other: str) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many orders are there?", "How many order are there?"),
        ("orders in MB", "orders in Mb"),
        ("sales of Polish goods", "sales of polish goods"),
        ("orders over 100", "orders over 1000"),
        ("orders over 100", "orders over -100"),
        ("orders over 1.5", "orders over 15"),
        ("orders on 2025-01-02", "orders on 2025-02-01"),
        ("orders with discount", "orders without discount"),
        ("revenue in 2025", "revenue not in 2025"),
        ("a b c", "a c b"),
        ("what is 5!", "what is 5"),
        ("sales of The Who", "sales of Who"),
        ("grade a students", "grade students"),
        ("customers in US", "customers in us"),
        ("revenue, costs", "revenue costs"),
        ("5% of orders", "5 of orders"),
        ("orders per m²", "orders per m2"),
    ],
)
def test_these_are_different_questions(one: str, other: str) -> None:
    assert key(one) != key(other)


def test_the_place_the_model_and_what_was_asked_before_belong_to_a_question() -> None:
    units = read_question_units("only in 2025")
    keys = {
        AskedQuestion(*of).key()
        for of in (("a", "m", units), ("b", "m", units), ("a", "n", units), ("a", "m", units, ("x",)))
    }
    assert len(keys) == 4


def test_numbers_dates_names_and_quoted_texts_may_be_parameters() -> None:
    units = read_question_units("Orders of 'old town' from New York over 1,000.50 since 2024-01-31 in March")
    found = [(u.value, u.kind) for u in units if u.kind != "word"]
    assert found == [
        ("old town", "quoted"),
        ("New York", "name"),
        ("1,000.50", "number"),
        ("2024-01-31", "date"),
    ]


def test_masked_units_leave_the_others_in_the_key() -> None:
    one, other = (AskedQuestion("s", "m", read_question_units(f"orders over 5 in {year}")) for year in (2024, 2025))
    assert one.key() != other.key()
    assert one.key(frozenset({4})) == other.key(frozenset({4}))
    assert dict(one.keys()).keys() & dict(other.keys()).keys() >= {one.key(frozenset({4}))}


@pytest.mark.parametrize(
    "text", ["orders last month", "orders so far", "sales in March", "year to date", "current stock"]
)
def test_some_questions_depend_on_the_day(text: str) -> None:
    assert is_relative_question(text)


@pytest.mark.parametrize(
    "text", ["orders per month in 2025", "sales in March 2025", "total amount", "orders since 2024-01-01"]
)
def test_others_do_not(text: str) -> None:
    assert not is_relative_question(text)


@given(st.text(max_size=60), st.text(max_size=60))
def test_different_words_never_share_a_key(one: str, other: str) -> None:
    units = [read_question_units(text) for text in (one, other)]
    assert (key(one) == key(other)) == (units[0] == units[1])
    assert all(isinstance(unit, QuestionUnit) for unit in units[0])
