from __future__ import annotations

import math
import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learning.statistical_tests import (
    CoinArm,
    CoinEvent,
    CoinTest,
    PairedTest,
    delta_lower_bound,
    effect_interval,
    paired_test,
    probability_of_harm,
    select_discoveries,
    wilson_interval,
)

events = st.builds(
    CoinEvent,
    q=st.sampled_from([0.15, 0.5, 0.85, 0.9]),
    shown=st.booleans(),
    success=st.booleans(),
    family=st.sampled_from(["easy", "hard"]),
)


def test_a_lesson_that_lowers_success_gathers_evidence_of_harm() -> None:
    chance = random.Random(1)
    harm, help = CoinTest("harm"), CoinTest("help")
    for _ in range(120):
        shown = chance.random() < 0.5
        event = CoinEvent(0.5, shown, chance.random() < (0.2 if shown else 0.7))
        harm.add(event)
        help.add(event)
    assert harm.log_e > math.log(20) > help.log_e


@settings(max_examples=60, deadline=None)
@given(
    past=st.lists(events, max_size=12),
    q=st.sampled_from([0.15, 0.5, 0.9]),
    success=st.booleans(),
    direction=st.sampled_from(["harm", "help"]),
)
def test_the_next_factor_of_an_e_value_is_one_on_average_over_the_coin(
    past: list[CoinEvent], q: float, success: bool, direction: str
) -> None:
    """This is why peeking is allowed: without an effect, the outcome does not depend on the coin."""

    def factor(shown: bool) -> float:
        test = CoinTest(direction)  # type: ignore[arg-type]
        for event in past:
            test.add(event)
        before = test.log_e
        test.add(CoinEvent(q, shown, success, "easy"))
        return math.exp(test.log_e - before)

    assert q * factor(True) + (1 - q) * factor(False) == pytest.approx(1.0)


def test_without_an_effect_at_most_one_lesson_in_twenty_ever_raises_an_alarm() -> None:
    chance = random.Random(7)
    alarms = 0
    for _ in range(300):
        test = CoinTest("harm")
        for _ in range(120):
            test.add(CoinEvent(0.5, chance.random() < 0.5, chance.random() < 0.6))
            if test.log_e >= math.log(20):
                alarms += 1
                break
    assert alarms <= 0.05 * 300


@given(st.integers(0, 60), st.integers(0, 60))
def test_wilson_intervals_hold_the_rate_and_narrow_with_runs(successes: int, failures: int) -> None:
    runs = successes + failures
    low, high = wilson_interval(successes, runs)
    assert 0 <= low <= high <= 1
    if runs:
        assert low - 1e-9 <= successes / runs <= high + 1e-9
        wider = wilson_interval(successes * 4, runs * 4)
        assert wider[1] - wider[0] <= high - low + 1e-9


def test_wilson_intervals_are_those_of_the_textbook() -> None:
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-3)


def test_probability_of_harm_needs_three_runs_of_each_arm() -> None:
    assert probability_of_harm(CoinArm(2, 0), CoinArm(10, 10)) is None
    assert probability_of_harm(CoinArm(10, 1), CoinArm(10, 9)) > 0.99  # type: ignore[operator]
    assert probability_of_harm(CoinArm(10, 5), CoinArm(10, 5)) == pytest.approx(0.5)


def test_an_effect_has_an_interval_that_holds_it() -> None:
    effect, low, high = effect_interval(CoinArm(50, 40), CoinArm(50, 25))
    assert effect == pytest.approx(0.3)
    assert 0 < low < effect < high < 1
    assert effect_interval(CoinArm(), CoinArm(5, 2)) == (0.0, -1.0, 1.0)


@given(st.lists(st.sampled_from([-1, 0, 1]), max_size=40))
def test_ties_say_nothing_and_the_order_of_pairs_does_not_matter(signs: list[int]) -> None:
    forward, back = paired_test(signs), paired_test(s for s in reversed(signs) if s)
    assert forward.log_e == pytest.approx(back.log_e)
    assert forward.log_e == pytest.approx(paired_test(-s for s in signs).log_e_worse)
    assert forward.pairs == len(signs)


def test_the_paired_test_is_a_fair_bet() -> None:
    """Over all equally likely outcomes of six pairs, the e-value is 1 on average."""
    values = [math.exp(paired_test(signs).log_e) for signs in product((-1, 1), repeat=6)]
    assert sum(values) / len(values) == pytest.approx(1.0)


def test_ten_wins_without_a_loss_are_enough_for_an_edit() -> None:
    assert math.exp(paired_test([1] * 10).log_e) >= 100 > math.exp(paired_test([1] * 9).log_e)
    assert PairedTest().log_e == 0


def test_more_claims_need_more_evidence_each() -> None:
    assert select_discoveries({"a": math.log(20)}) == {"a"}
    assert select_discoveries({"a": math.log(20), "b": 0.0}) == set()
    assert select_discoveries({"a": math.log(40), "b": 0.0}) == {"a"}
    assert select_discoveries({"a": math.log(40), "b": math.log(21)}) == {"a", "b"}


def test_a_lower_bound_of_an_effect_rises_with_wins() -> None:
    assert delta_lower_bound(0, 0, 0) == -1
    assert delta_lower_bound(20, 0, 40) > 0 > delta_lower_bound(1, 1, 40)
