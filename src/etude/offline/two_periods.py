"""One number in two periods: `how did revenue change from 2024 to 2025` asks for two values and their difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from etude.offline.dates import Span, add_units_to_date, read_date_moment
from etude.offline.question_parts import Condition, Group
from etude.offline.tags import CHANGE_OVER_TIME, TaggedItem
from etude.offline.words import Token

_CHANGING = frozenset(
    """
    change changes changed grow grows grew grown increase increases increased decrease decreases decreased decline
    declines declined drop drops dropped fall falls fell fallen rise rises rose risen develop developed evolve evolved
    improve improved shrink shrank went difference differ differed compare compares compared comparison comparing
    development evolution growth shift shifted move moved
    """.split()  # noqa: SIM905
)
_PERCENT = frozenset(("growth", "grow", "grew", "grown", "percent", "percentage", "%"))
_VERSUS = (("vs", "."), ("vs",), ("versus",), ("compared", "to"), ("compared", "with"), ("against",))
_BETWEEN = (*_VERSUS, ("to",), ("and",), ("until",), ("with",), ("-",))
_ASKING = (
    ("by", "how", "much", "did"), ("how", "much", "did"), ("by", "what", "percentage", "did"),
    ("by", "what", "percent", "did"), ("how", "did"), ("how", "has"), ("how", "have"), ("did",), ("compare",),
    ("comparing",), ("comparison", "of"), ("what", "is", "the"), ("what", "was", "the"),
)  # fmt: skip
"""How such questions begin; the two periods say what is asked for."""


@dataclass(frozen=True)
class TwoPeriods:
    """What a question asks of two periods of equal length."""

    first: Span
    second: Span
    grain: str
    text: str
    change: str
    """`percent` or `difference`; empty if only the two numbers are asked for."""

    def tag(self, items: Sequence[TaggedItem]) -> list[TaggedItem]:
        """Return the items of the rest of the question with the two periods and the change."""
        end = next((at for at, item in enumerate(items) if item.tag == "."), len(items))
        other = Condition("span", self.second.text, span=self.second)
        both = Condition("span", self.text, span=self.first, either=(other,))
        group = (Group(None, self.grain, f"for each {self.grain}"),)
        change = [TaggedItem("i", "change", (self.change, None))] if self.change else []
        periods = [TaggedItem("D", self.text, both), TaggedItem("B", self.text, group)]
        if end and items[end - 1].tag == "C":
            periods.reverse()  # `revenue in 2024` is not a date called revenue
        measured = any(item.tag in "#ACEMSR" for item in items)
        count = [] if measured or not any(item.tag == "T" for item in items) else [TaggedItem("#", "number of", "")]
        return [*change, *count, *items[:end], *periods, *items[end:]]


def find_two_periods(
    tokens: Sequence[Token], today: date, named: frozenset[str]
) -> tuple[list[Token], TwoPeriods] | None:
    """Return the rest of the question and its two periods; None if it compares no two years, quarters or months.

    `named` are the words in the names of the data: a column `price_change` is not a change.
    """
    words = {token.low for token in tokens} & _CHANGING
    if words & named or CHANGE_OVER_TIME.search(" ".join(token.low for token in tokens)):
        return None
    for at in range(len(tokens)):
        found = _pair_at(tokens, at, today)
        if found is None:
            continue
        first, second, joiner, end = found
        grain = _grain(first)
        if grain is None or grain != _grain(second) or first.start == second.start:
            return None
        if not words and joiner not in _VERSUS:
            return None
        text = " ".join(token.text for token in tokens[at:end])
        asked = {token.low for token in tokens}
        change = "" if not words else "percent" if asked & _PERCENT else "difference"
        rest = _rest(tokens, at, end)
        said = any(token.kind in ("word", "quoted") for token in rest)
        return (rest, TwoPeriods(first, second, grain, text, change)) if said else None
    return None


def _pair_at(tokens: Sequence[Token], at: int, today: date) -> tuple[Span, Span, tuple[str, ...], int] | None:
    """Return two moments with the words between them, and where they end."""
    place = at
    if tokens[place].low in ("from", "between", "in", "of", "for", "during"):
        place += 1
    first = read_date_moment(tokens, place, today)
    if first is None:
        return None
    place += first.length
    low = [token.low for token in tokens[place : place + 2]]
    joiner = next((phrase for phrase in _BETWEEN if tuple(low[: len(phrase)]) == phrase), None)
    if joiner is None:
        return None
    place += len(joiner)
    if place < len(tokens) and tokens[place].low in ("in", "of", "for"):
        place += 1
    second = read_date_moment(tokens, place, today)
    return (first.span, second.span, joiner, place + second.length) if second is not None else None


def _grain(span: Span) -> str | None:
    """Return the unit that the span is one of."""
    for unit in ("year", "quarter", "month", "day"):
        if span.start is not None and span.end == add_units_to_date(span.start, unit, 1):
            return unit
    return None


def _rest(tokens: Sequence[Token], start: int, end: int) -> list[Token]:
    """Return the tokens without the periods, the words for a change and how the question asks for it."""
    kept = [*tokens[:start], *tokens[end:]]
    opening = next((o for o in _ASKING if tuple(t.low for t in kept[: len(o)]) == o), ())
    kept = kept[len(opening) :]
    made: list[Token] = []
    skip = False
    for token in kept:
        if token.low in _CHANGING or (token.low in ("percent", "percentage", "rate", "%") and not skip):
            skip = True
        elif not (skip and token.low in ("in", "of", "for", "between", "to", "with")):
            skip = False
            made.append(token)
    while made and made[0].low in ("the", "in", "of"):
        made = made[1:]
    while made and made[-1].kind != "mark" and made[-1].low in ("in", "of", "from", "between", "for"):
        made = made[:-1]
    return made


def is_two_periods(condition: Condition, grain: str) -> bool:
    """Return whether a condition is two single periods of this length."""
    spans = [part.span for part in (condition, *condition.either)]
    return len(spans) == 2 and all(span is not None and _grain(replace(span)) == grain for span in spans)
