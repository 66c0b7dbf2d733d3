"""How precisely a number is written, and which direction the words next to it say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from etude.runtime.number_check.evidence import EXACT
from etude.runtime.number_check.mentions import TIME_UNITS, Mention
from etude.runtime.number_check.passage import Passage

_UP = (
    r"(?:up|grew|grown|grow(?:s|ing)?|growth|rose|risen|ris(?:e|es|ing)|increas\w*|gain\w*|climb\w*|"
    r"jump\w*|surg\w*|soar\w*|"
    r"higher|more|larger|bigger|greater|above|ahead|uplift|uptick|added|adding|expand\w*|expansion|longer|"
    r"faster|beat\w*)"
)
_DOWN = (
    r"(?:down|fell|fallen|fall(?:s|ing)?|drop\w*|declin\w*|decreas\w*|los[st]\w*|los(?:es|ing)|slip\w*|"
    r"dip\w*|plung\w*|slump\w*|"
    r"shr[aiu]nk\w*|shed|lower|less|fewer|smaller|below|behind|reduc\w*|contract\w*|shorter|cut|miss\w*|outflow\w*)"
)
_BETWEEN = (
    r"(?:\s+(?:by|of|about|around|roughly|nearly|almost|over|just|only|some|a|an|the|another|further|more|than|"
    r"approximately|\w+ly))*[\s:(~\u2248*_$€£]*"
)
_UP_BEFORE, _DOWN_BEFORE = (re.compile(rf"\b{words}{_BETWEEN}$", re.I) for words in (_UP, _DOWN))
_UP_AFTER, _DOWN_AFTER = (
    re.compile(
        rf"[\s)*_-]*(?:(?:year-over-year|yoy|overall|month-over-month|annual|relative|net|of)\s+)?{words}\b", re.I
    )
    for words in (_UP, _DOWN)
)
_LEVEL = re.compile(
    r"\b(?:to|at|from|reach\w*|stood|hit)\s+(?:about|around|roughly|nearly|almost|over|just|only|a|an|the|"
    r"\s)*[(*_$€£]*$",
    re.I,
)


def rounding_intervals(mention: Mention) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield the intervals of true values that a number may stand for: those that round to it or fit its hedge."""
    for reading in mention.readings:
        value, step = reading.value, reading.step
        low, high = EXACT.subtract(value, step / 2), EXACT.add(value, step / 2)
        vague = mention.word and step != 1
        exact = vague or re.search(r"[.,]\d{1,2}(?!\d)", mention.text)  # 12.0 is precise to the tenth.
        coarse = step if exact else _coarse_step(value, step)
        if mention.hedge == "about":
            low, high = (value - step, value + step) if vague else (value - coarse / 2, value + coarse / 2)
            if coarse == 1 and value >= 20:
                low, high = value - 1, value + 1
        elif mention.hedge == "over":
            reach = (value / 2 if mention.kind == "times" else Decimal(17)) if vague else coarse
            low, high = value, value + reach
        elif mention.hedge == "under":
            reach = value / 5 if vague else coarse
            low, high = value - reach, value
        yield low, high


def _coarse_step(value: Decimal, step: Decimal) -> Decimal:
    """Return the place value of the last nonzero digit: 1,200 may be rounded to the hundred."""
    exponent = value.normalize(EXACT).as_tuple().exponent
    coarse = Decimal(1).scaleb(exponent) if value and isinstance(exponent, int) else step
    return max(step, coarse)


def direction_of_precision(passage: Passage, mention: Mention) -> int:
    """Return 1 if the words next to a number say up, -1 if they say down, and 0 otherwise."""
    if mention.signed:
        return -1 if mention.readings and mention.readings[0].value < 0 else 1
    before, after = passage.around(mention, 48, 28)
    if _LEVEL.search(before):
        return 0
    down = bool(_DOWN_BEFORE.search(before)), bool(_DOWN_AFTER.match(after))
    up = bool(_UP_BEFORE.search(before)) and mention.hedge != "over", bool(_UP_AFTER.match(after))
    if any(down) == any(up):
        return 0
    return -1 if any(down) and not (mention.hedge == "under" and not down[1]) else 1 if any(up) else 0


def direction_of_verb(verb: str) -> int:
    """Return 1 for `rose`, -1 for `fell` and 0 for another word."""
    up, down = re.fullmatch(_UP, verb, re.I), re.fullmatch(_DOWN, verb, re.I)
    return 1 if up and not down else -1 if down and not up else 0


def significant_digits(mention: Mention) -> int:
    """Return how many digits of a number say something: 2 for 1,200, 3 for 1.20."""
    value, step = mention.readings[0].value, mention.readings[0].step
    digits = len(value.normalize().as_tuple().digits)
    return digits if step >= 1 or not value else max(digits, len((value / step).to_integral_value().as_tuple().digits))


def is_whole_mention(mention: Mention) -> bool:
    """Return whether a number is written without decimals."""
    return any(reading.step >= 1 for reading in mention.readings)


def is_rounded_beyond_precision(mention: Mention, value: float) -> bool:
    """Return whether a value would be rounded too far: no one writes `5` for 4.54 without saying `about`."""
    if mention.kind != "number" or mention.hedge or mention.unit in TIME_UNITS or not is_whole_mention(mention):
        return False
    if re.search(r"[.,]\d", mention.text):  # `1.123` and `0.001k` say how far they are rounded
        return False
    small = abs(mention.readings[0].value) < 20
    return small and abs(value - round(value)) > 0.02
