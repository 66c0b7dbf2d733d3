from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learning.playbooks.admission import reason_against_admission
from etude.learning.playbooks.lesson_state import (
    USELESS_AFTER,
    LessonRecord,
    LessonStanding,
    LessonState,
    LessonTrial,
    fold_lesson_events,
    lesson_show_probability,
    promotable_lessons,
)
from etude.learning.statistical_tests import CoinArm, CoinEvent


def live(record: LessonRecord, effect: float, events: int, chance: random.Random, base: float = 0.6) -> list[str]:
    """Let a lesson of known effect live, with the coin of its state; return the states it went through."""
    states = []
    for _ in range(events):
        q = lesson_show_probability(record.standing)
        shown = chance.random() < q
        record.add(CoinEvent(q, shown, chance.random() < base + (effect if shown else 0.0)))
        states.append(record.standing.state)
        if states[-1] == "retired":
            break
    return states


def test_a_harmful_lesson_is_quarantined_then_retired() -> None:
    states = live(LessonRecord(), -0.5, 400, random.Random(3))
    assert states.index("quarantined") < states.index("retired")


def test_a_helpful_lesson_becomes_active() -> None:
    record = LessonRecord()
    live(record, 0.35, 300, random.Random(3))
    assert record.standing.state == "active"
    effect, low, high = record.standing.effect
    assert low <= effect <= high
    assert low > 0


def test_a_lesson_that_does_nothing_leaves_after_a_while() -> None:
    # Both arms do equally well.
    events = [CoinEvent(0.5, n % 4 < 2, n % 2 == 0) for n in range(USELESS_AFTER)]
    standing = fold_lesson_events(events)
    assert (standing.state, standing.reason) == ("retired", "no effect in 400 eligible runs")
    assert fold_lesson_events(events[:-1]).state == "probation"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_a_retired_version_stays_retired(outcomes: list[tuple[bool, bool]]) -> None:
    standing = fold_lesson_events([CoinEvent(0.5, shown, success) for shown, success in outcomes], "retired")
    assert standing.state == "retired"
    assert standing.events == len(outcomes)


@pytest.mark.parametrize(
    ("state", "p_harm", "q"),
    [
        ("probation", None, 0.5),
        ("probation", 0.05, 0.85),
        ("quarantined", 0.95, 0.15),
        ("active", 0.0, 0.9),
        ("retired", 0.0, 0.0),
        ("draft", None, 0.0),
    ],
)
def test_the_coin_follows_the_state(state: LessonState, p_harm: float | None, q: float) -> None:
    assert lesson_show_probability(LessonStanding(state, p_harm=p_harm)) == q


def test_promotion_in_a_library_needs_more_than_alone() -> None:
    strong, weak = LessonStanding("probation", log_e_help=5.0), LessonStanding("probation", log_e_help=3.2)
    assert promotable_lessons({"a": weak}) == {"a"}
    assert promotable_lessons({"a": weak, "b": LessonStanding("probation")}) == set()
    assert promotable_lessons({"a": strong, "b": LessonStanding("probation", shown=CoinArm(3, 1))}) == {"a"}


def test_a_draft_must_improve_its_run_on_two_seeds_and_break_nothing() -> None:
    better = [LessonTrial(seed, False, True) for seed in (1, 2)]
    fine = [LessonTrial(seed, True, True) for seed in range(5)]
    assert reason_against_admission(better, fine) is None
    assert "on 1 seeds" in str(reason_against_admission(better[:1], fine))
    assert "breaks 1 of 7" in str(reason_against_admission(better, [*fine[:4], LessonTrial(9, True, False)]))
    assert "only 4 passing runs" in str(reason_against_admission(better, fine[:4]))


def test_saving_steps_is_an_improvement_too() -> None:
    assert LessonTrial(1, True, True, 10, 9).improves
    assert not LessonTrial(1, True, True, 10, 10).improves
    assert not LessonTrial(1, True, False, 10, 1).improves
