"""Whether more is better: yes for a rating, no for a delay; for a mark only its description says."""

from __future__ import annotations

import re

from etude.offline.vocabulary import VocabularyColumn

_GOOD = frozenset(("rating", "score", "star", "satisfaction", "profit"))
_BAD = frozenset(("delay", "error", "failure", "loss", "complaint", "defect", "accident", "crime", "debt", "latency"))
_MORE = r"\b(?:higher|highest|larger|bigger|greater|more|high)\b"
_LESS = r"\b(?:lower|lowest|smaller|less|fewer|low)\b"
_BETTER, _WORSE = r"\b(?:better|best|good)\b", r"\b(?:worse|worst|bad)\b"
_ENDS = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:is|=|:|means|being|\()?\s*(?:the\s+)?(best|worst)")


def more_is_better(column: VocabularyColumn) -> bool | None:
    """Return whether a higher number is better, by the description of the column, else by its name; None if unknown."""
    said = _described(column)
    if said is not None:
        return said
    words = {*column.words}
    if words & _GOOD and words & _BAD:
        return None
    return True if words & _GOOD else False if words & _BAD else None


def _described(column: VocabularyColumn) -> bool | None:
    text = column.comment.lower()
    found: set[bool] = set()
    for part in re.split(r"[.;,]|\band\b", text):
        for more, up in ((_MORE, True), (_LESS, False)):
            for good, well in ((_BETTER, True), (_WORSE, False)):
                if re.search(more, part) and re.search(good, part):
                    found.add(up == well)
    ends = {word: float(number) for number, word in _ENDS.findall(text)}
    if len(ends) == 2:
        found.add(ends["best"] > ends["worst"])
    elif ends and isinstance(column.low, int | float) and isinstance(column.high, int | float):
        ((word, number),) = ends.items()
        found.add((abs(number - column.high) < abs(number - column.low)) == (word == "best"))
    return found.pop() if len(found) == 1 else None
