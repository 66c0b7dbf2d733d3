"""Names that are similar to one that is not known, for "did you mean": found in little time, however many there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

COMPARED = 60
"""Characters of a name that are compared: the time grows with the square of the length."""
CANDIDATES = 500
"""Names that are compared; those of a similar length come first."""


def similar_names(name: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return up to `n` known names that are similar to a name, the most similar first."""
    wanted = name[:COMPARED]
    nearest = sorted({*known}, key=lambda each: (abs(len(each) - len(name)), each))[:CANDIDATES]
    by_start: dict[str, str] = {}
    for each in nearest:
        by_start.setdefault(each[:COMPARED], each)
    return [by_start[start] for start in difflib.get_close_matches(wanted, by_start, n=n, cutoff=cutoff)]
