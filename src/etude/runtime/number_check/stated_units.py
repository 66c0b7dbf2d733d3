"""A stated number in another unit, and what a rate is stated for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from etude.plurals import singular_of_plural
from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.mentions import TIME_UNITS, Mention
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.wording import Wording

_LENGTHS = {
    "m": 1.0, "metre": 1.0, "meter": 1.0, "ft": 0.3048, "feet": 0.3048, "foot": 0.3048, "km": 1000.0, "mi": 1609.344,
    "mile": 1609.344, "cm": 0.01, "inch": 0.0254, "in": 0.0254, "kilometre": 1000.0, "kilometer": 1000.0, "yd": 0.9144,
    "nm": 1852.0,
}  # fmt: skip
_WEIGHTS = {"kg": 1.0, "g": 0.001, "lb": 0.45359237, "pound": 0.45359237, "oz": 0.0283495, "tonne": 1000.0}
_MEASURE = re.compile(r"[\s-]*([A-Za-z]+)")


def convert_stated_unit(mention: Mention, o: Operand, wording: Wording) -> Iterator[Candidate]:
    """Yield a number of the sentence in another unit: `185 minutes, i.e. 3 hours 5`, `14,219 ft (4,334 m)`."""
    if mention.unit in TIME_UNITS:
        if o.unit in TIME_UNITS:
            factor = float(TIME_UNITS[o.unit] / TIME_UNITS[mention.unit])
            if factor != 1:
                yield Candidate(o.value * factor, o.cost + 0.1, f"{o.what} in {mention.unit}s")
        return
    if o.unit == "day":
        for pattern, days in ((r"years?|Jahre?n?|ans|años", 365.2425), (r"months?|Monate?n?|mois|meses", 30.437)):
            if re.match(rf"[\s*_-]*(?:{pattern})\b", wording.after):
                yield Candidate(o.value / days, o.cost + 0.1, f"{o.what} in another unit")
    if re.match(r"\s*(?:°|degrees?\s)\s*C", wording.after):
        yield Candidate((o.value - 32) / 1.8, o.cost + 0.2, f"{o.what} in degrees Celsius")
    if re.match(r"\s*(?:°|degrees?\s)\s*F", wording.after):
        yield Candidate(o.value * 1.8 + 32, o.cost + 0.4, f"{o.what} in degrees Fahrenheit")
    written = re.search(r"[A-Za-z]+$", mention.text)
    follows = written or _MEASURE.match(wording.after)
    own = singular_of_plural(follows.group().strip(" -").lower()) if follows else ""
    for units in (_LENGTHS, _WEIGHTS):
        if own in units:
            for unit, size in units.items():
                if unit != own and re.search(rf"\d[\s-]*{unit}s?\b", wording.sentence, re.I):
                    yield Candidate(o.value * size / units[own], o.cost + 0.2, f"{o.what} in {own}")


def stated_rate_base(text: str) -> float:
    """Return what a rate is stated for: a thousand in `per 1,000 inhabitants`; 1 if nothing is said."""
    match = re.search(
        r"\b(?:per|pro|je|par|por|cada)\s+(million|millón|thousand|tausend|mil|mille|hundred|hundert|"
        r"1[.,\s]?000[.,\s]?000|100[.,\s]?000|10[.,\s]?000|1[.,\s]?000|100)\b",
        text,
        re.I,
    )
    words = {"million": 1e6, "millón": 1e6, "hundred": 1e2, "hundert": 1e2}
    words |= dict.fromkeys(("thousand", "tausend", "mil", "mille"), 1e3)
    return words.get(match[1].lower()) or float(re.sub(r"[.,\s]", "", match[1])) if match else 1.0
