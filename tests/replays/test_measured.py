"""The bars of replay in short form; `python -m bench replay` measures all of them."""

from __future__ import annotations

import random
import statistics
from itertools import islice
from pathlib import Path

import pytest
from bench.replay_mutants import QUESTIONS, harmless_changes, judge_guards, mutants_of
from bench.replay_pairs import judge_pairs, make_pairs
from bench.replay_questions import judge_near_misses, near_misses
from bench.replay_sessions import slice_sessions

from etude.app import App
from etude.sample import write_shop


def test_slices_give_the_same_output_and_are_small() -> None:
    done = list(slice_sessions(60, seed=1000))
    assert all(session.equal for session in done)
    assert statistics.mean(session.share for session in done) <= 0.6


def test_no_near_miss_is_answered_wrongly(tmp_path: Path) -> None:
    write_shop(tmp_path / "shop")
    known = (
        "How many customers are in DE?",
        "What is the total amount per month in 2025?",
        "Top 3 categories by price",
    )
    with App(home=tmp_path / "home", replay="on") as app:
        judged = judge_near_misses(app, tmp_path / "shop", near_misses(known), known)
    assert judged.asked > 400 and judged.replayed > 3
    assert judged.wrong == [] and judged.unjudged == []


@pytest.mark.parametrize("question", ["by country", "payments by method"])
def test_guards_stop_mutants_and_let_harmless_changes_pass(question: str) -> None:
    mutants = random.Random(2).sample(list(mutants_of(question)), 12)
    judged = judge_guards(mutants, list(islice(harmless_changes(question, random.Random(3)), 4)))
    assert judged.silent == [] and judged.false_stops == []
    assert judged.stopped >= 0.9 * judged.mutants
    assert set(QUESTIONS) >= {question}


def test_a_difference_is_traced_to_its_cause(tmp_path: Path) -> None:
    with App(home=tmp_path / "home") as app:
        count, wrong = judge_pairs(app, make_pairs(app, tmp_path / "data", 12))
    assert count == 12 and wrong == []
