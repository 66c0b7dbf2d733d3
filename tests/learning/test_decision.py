from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learning.edits.bandit import ProposerRecord, rank_proposers_by_bandit
from etude.learning.edits.edit_decision import (
    EditOutcomePair,
    EditWatch,
    decide_edit,
    holdout_allows_edit,
    is_surely_failing,
    runs_needed_to_decide_edit,
)
from etude.learning.statistical_tests import paired_speed_test


def pairs(test: str, *outcomes: tuple[bool, bool]) -> list[EditOutcomePair]:
    return [EditOutcomePair(test, seed, *outcome) for seed, outcome in enumerate(outcomes)]


FIXED, EQUAL, BROKEN = (False, True), (True, True), (True, False)


def test_a_test_that_always_failed_and_always_passes_is_proof() -> None:
    decision = decide_edit(pairs("a", *[FIXED] * 5) + pairs("b", *[EQUAL] * 5))
    assert (decision.verdict, decision.fixed) == ("accept", ("a",))
    assert decide_edit(pairs("a", *[FIXED] * 4)).verdict == "continue"


def test_more_failing_tests_are_more_chances_to_be_lucky_so_each_needs_more_runs() -> None:
    assert [runs_needed_to_decide_edit(n) for n in (0, 1, 3, 10, 100)] == [5, 5, 6, 7, 8]


def test_breaking_a_pinned_test_rejects_whatever_else_is_won() -> None:
    decision = decide_edit([*pairs("a", *[FIXED] * 20), *pairs("b", *[EQUAL] * 19, BROKEN)])
    assert (decision.verdict, decision.broken) == ("reject", ("b",))


def test_a_noisy_test_is_not_pinned_but_counts_as_a_loss() -> None:
    decision = decide_edit([*pairs("a", *[FIXED] * 20), *pairs("b", *[EQUAL] * 19, BROKEN)], noisy=["b"])
    assert (decision.verdict, decision.losses) == ("accept", 1)


def test_unsteady_tests_are_decided_by_the_paired_test() -> None:
    flaky = [FIXED, EQUAL] * 10
    assert decide_edit(pairs("a", *flaky)).verdict == "accept"
    assert decide_edit(pairs("a", *flaky[:8])).verdict == "continue"
    assert decide_edit(pairs("a", *[BROKEN, (False, False)] * 10)).verdict == "reject"


def test_an_undecided_edit_is_dropped_at_the_end() -> None:
    decision = decide_edit(pairs("a", (False, False), EQUAL), rounds=8)
    assert (decision.verdict, decision.reason) == ("reject", "undecided after 8 rounds")


def test_an_edit_that_only_won_so_far_has_more_rounds() -> None:
    seen = pairs("a", *[FIXED] * 7, *[EQUAL] * 57)
    assert decide_edit(seen, rounds=8).verdict == decide_edit(seen, rounds=15).verdict == "continue"
    assert decide_edit(seen, rounds=16).verdict == "reject"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=60))
def test_an_edit_that_changes_no_outcome_is_never_accepted(runs: list[tuple[str, bool]]) -> None:
    same = [EditOutcomePair(test, seed, outcome, outcome) for seed, (test, outcome) in enumerate(runs)]
    assert decide_edit(same).verdict == "continue"
    assert decide_edit(same, rounds=8).verdict == "reject"


def test_an_edit_without_effect_on_noise_alone_is_accepted_in_at_most_one_of_a_hundred() -> None:
    """The worst case: nothing is shared between the arms, and every round is looked at."""
    chance = random.Random(5)
    kept = 0
    for _ in range(400):
        seen: list[EditOutcomePair] = []
        for number in range(1, 17):
            for test in "abcd":
                seen += [EditOutcomePair(test, s, chance.random() < 0.5, chance.random() < 0.5) for s in range(3)]
            decision = decide_edit(seen, noisy="abcd", rounds=number)
            if decision.verdict != "continue":
                kept += decision.verdict == "accept"
                break
    assert kept <= 4


def test_the_holdout_stops_an_edit_that_does_worse_on_fresh_seeds() -> None:
    assert holdout_allows_edit(pairs("a", *[FIXED] * 10, *[EQUAL] * 10))[0]
    assert holdout_allows_edit(pairs("a", *[EQUAL] * 20))[0]
    assert not holdout_allows_edit(pairs("a", *[EQUAL] * 18, BROKEN, BROKEN))[0]
    assert not holdout_allows_edit([])[0]


@pytest.mark.parametrize(
    ("passed", "runs", "wakes"), [(15, 30, True), (23, 30, False), (30, 30, False), (0, 3, True), (0, 0, False)]
)
def test_a_low_pass_rate_wakes_only_if_it_is_surely_low(passed: int, runs: int, wakes: bool) -> None:
    assert is_surely_failing(passed, runs) == wakes


def test_times_count_only_if_they_differ_by_more_than_five_percent() -> None:
    test = paired_speed_test([0.5, 0.96, 1.04, 2.0])
    assert (test.wins, test.losses, test.ties) == (1, 1, 2)


def test_a_merged_edit_that_does_worse_is_reverted_within_its_window() -> None:
    chance, watch = random.Random(2), EditWatch()
    while watch.add([EditOutcomePair("a", 0, True, chance.random() < 0.5)]) == "keep":
        assert watch.runs < 50
    assert watch.runs <= 50


def test_a_pinned_loss_reverts_at_once() -> None:
    assert EditWatch().add([EditOutcomePair("a", 0, True, False)], pinned={"a": True}) == "revert"


def test_a_proposer_that_pays_is_tried_first() -> None:
    records = {"good": ProposerRecord(20, 15, 100), "bad": ProposerRecord(20, 0, 400)}
    firsts = [rank_proposers_by_bandit(records, ["bad", "good", "new"], random.Random(n))[0] for n in range(60)]
    assert firsts.count("bad") == 0
    assert firsts.count("good") > firsts.count("new") > 0
