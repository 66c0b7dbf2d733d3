"""The confidence of a reading falls with each of its risks."""

from __future__ import annotations

import pytest
from tests.offline.questions import TODAY

from etude.offline.confidence import RISKS, confidence_of
from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("question", "risk"),
    [
        ("How many orders are there?", None),
        ("Number of orders per status", None),
        ("How many orders were returned or cancelled?", "alternatives"),
        ("How many orders are completed?", "value in lower case"),
        ("Total amount by segment", "column of a table not named"),
        ("Total amount by segment", "joins"),
        ("Which customers have no orders?", "related rows"),
    ],
)
def test_a_reading_names_its_risks(question: str, risk: str | None, shop: Vocabulary) -> None:
    found = understand(question, shop, today=TODAY)
    assert isinstance(found, Understanding), found
    assert set(found.risks) <= set(RISKS)
    assert found.risks == () if risk is None else risk in found.risks
    assert found.confidence == confidence_of(found.risks)


def test_each_risk_lowers_the_confidence() -> None:
    assert all(confidence_of([risk]) < confidence_of([]) for risk in RISKS)
    assert confidence_of([*RISKS]) < 0.84 < confidence_of([])
