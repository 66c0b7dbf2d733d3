"""Long runs of anything, in a question or an answer, are checked in a time that grows with their length only."""

from __future__ import annotations

import time

import pytest

from etude.runtime.number_check.check import LONGEST_ANSWER, LONGEST_GIVEN, check_numbers
from etude.runtime.number_check.mentions import break_long_runs, find_number_mentions

UNITS = [" ", ", ", "1", "\n", "a", "_", "*", "-", "$", "(", "`", '"', "|", ". ", "- ", "\n\n- ", "| --- ", "#", "and "]


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_run_takes_little_time(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    started = time.process_time()
    check_numbers("It is 12 of 40.", [], text, [text], thread=[text])
    check_numbers(f"It is 12. {text[:20_000]} And 13.", [], "How many?")
    assert time.process_time() - started < 5


def test_breaking_runs_moves_nothing() -> None:
    text = f"It is 12{' ' * 5000}of 40, 7{'-' * 700}8."
    broken = break_long_runs(text)
    assert len(broken) == len(text) and "\0" in broken
    assert break_long_runs("| a | b |\n|---|---|\n| 1 | 2 |") == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert [text[m.start : m.end] for m in find_number_mentions(text)] == ["12", "40", "7", "8"]


def test_the_beginning_of_a_very_long_text_is_read() -> None:
    answer = f"It is 12. {'word ' * LONGEST_ANSWER}It is 13."
    assert [c.mention.text for c in check_numbers(answer, [], "").mentions] == ["12"]
    words = "word " * LONGEST_GIVEN
    assert check_numbers("It is 4712.", [], f"Is it 4712? {words}").ok
    assert not check_numbers("It is 4712.", [], f"{words} Is it 4712?").ok
