"""Nine ways in which rules went wrong: generated questions are answered rightly, or not answered."""

from __future__ import annotations

import pytest
from bench.battery import judged
from tests.offline.battery import CAUSES

Verdicts = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    found: Verdicts = {cause: [] for cause in CAUSES}
    for cause, question, verdict in judged(worlds=4):
        found[cause].append((question, verdict))
    return found


@pytest.mark.parametrize("cause", CAUSES)
def test_no_answer_is_wrong(cause: str, verdicts: Verdicts) -> None:
    wrong = [f"{question}: {verdict}" for question, verdict in verdicts[cause] if verdict not in ("right", "silent")]
    assert not wrong, "\n".join(wrong)


def test_silence_is_not_the_way_to_be_right(verdicts: Verdicts) -> None:
    said = [verdict for found in verdicts.values() for _, verdict in found]
    assert said.count("right") > len(said) / 3
