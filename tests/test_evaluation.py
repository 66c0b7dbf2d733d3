"""When an answer counts as right."""

from __future__ import annotations

from typing import Any

import pytest

from etude.evaluation import (
    Judged,
    ReferenceQuestion,
    comparable_evaluated_row,
    compare_evaluated_rows,
    evaluation_scores_by_confidence,
    score_evaluation,
)

Rows = list[tuple[Any, ...]]


@pytest.mark.parametrize(
    ("ours", "reference", "extra"),
    [
        ([(1, "a"), (2, "b")], [("b", 2), ("a", 1)], 0),
        ([(1, "a", True), (2, "b", True)], [("a",), ("b",)], 2),
        ([("a",)], [("a", 1)], None),
        ([("a",), ("a",)], [("a",)], None),
        ([("a", 1), ("b", 2)], [("a", 2), ("b", 1)], None),
        ([], [], 0),
        ([(1,)], [], None),
    ],
)
def test_rows_are_the_same_in_any_order_and_with_more_columns(ours: Rows, reference: Rows, extra: int | None) -> None:
    assert compare_evaluated_rows(ours, reference) == extra


def test_an_order_counts_if_it_is_asked_for() -> None:
    assert compare_evaluated_rows([("b", 2), ("a", 1)], [("a", 1), ("b", 2)], ordered=[1]) is None
    assert compare_evaluated_rows([("a", 1), ("b", 2)], [("a", 1), ("b", 2)], ordered=[1]) == 0


def test_a_tie_that_is_told_may_have_more_rows() -> None:
    assert compare_evaluated_rows([("a",), ("b",)], [("b",)], tie=True) == 0
    assert compare_evaluated_rows([("a",), ("b",)], [("c",)], tie=True) is None


def test_the_noise_of_sums_is_no_difference() -> None:
    assert comparable_evaluated_row((0.1 + 0.2,)) == comparable_evaluated_row((0.3,))


def test_figures_at_each_confidence() -> None:
    judged = [
        Judged(ReferenceQuestion("a"), "right", 0.1, confidence=0.9),
        Judged(ReferenceQuestion("b"), "wrong", 0.1, confidence=0.6),
        Judged(ReferenceQuestion("c"), "refused", 0.1),
        Judged(ReferenceQuestion("d"), "no reference", 0.1, confidence=0.9),
    ]
    low, high = evaluation_scores_by_confidence(judged, (0.5, 0.8))
    assert (low.answered, low.precision, low.coverage) == (2, 0.5, pytest.approx(1 / 3))
    assert (high.answered, high.precision, high.coverage) == (1, 1.0, pytest.approx(1 / 3))
    assert score_evaluation(judged).asked == 3 and score_evaluation(judged).unknown == 1
