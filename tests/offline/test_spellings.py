"""Values that differ only in case, blanks and hyphens are found, with and without the shortcut."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from etude.offline.spellings import group_spellings, plain_spelling

TEXTS = st.text(alphabet="aAbB12 -_'\n\té\u2013\x1f", max_size=6)


def test_values_that_differ_only_in_case_blanks_and_hyphens_are_one_group() -> None:
    assert group_spellings(["E-bike", "e bike", "Trike"]) == [("E-bike", "e bike")]
    assert group_spellings(["1-2", "12", "A-", "A"]) == []


@given(st.lists(TEXTS, max_size=8))
def test_groups_are_those_of_equal_plain_spellings(values: list[str]) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for value in values:
        found[plain_spelling(value)].append(value)
    assert group_spellings(values) == [tuple(alike) for alike in found.values() if len(alike) > 1]
