"""A number of the text looked up in the derived values, and how likely it is to be found there by chance."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.derived_values import RAW, Family, Term
from etude.runtime.number_check.mentions import TIME_UNITS, Mention, mention_scale
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.precision import (
    direction_of_precision,
    is_rounded_beyond_precision,
    is_whole_mention,
    rounding_intervals,
    significant_digits,
)
from etude.runtime.number_check.wording import THAN

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch

ACCIDENTS = (0.1, 0.2, 0.4)
"""How many accidental matches may be expected if the text supports the rows of a term not at all, somewhat, well."""
COUNT_ACCIDENTS = (0.3, 0.4, 0.7)
"""The same for counts: a small whole number always matches something."""
_LONG = 4
_YEARS = re.compile(r"[\s*_-]*(?:years?|Jahren?|ans|años)\b", re.I)
_MONTHS = re.compile(r"[\s*_-]*(?:months?|Monate?n?|mois|meses)\b", re.I)
_BYTES = re.compile(r"\b([kmgt])i?b\b", re.I)
_SCALED = re.compile(
    r"(?:\(|\bin\s)(?:[$€£]\s?)?(thousands?|k|millions?|mn?|mio\.?|billions?|bn)(?:[\s)]|\b)(?:\s*(?:of|[$€£]|EUR|USD))?",
    re.I,
)
_SCALES = {"t": 1e3, "k": 1e3, "m": 1e6, "b": 1e9}
_FAR = 1.5
_UNNAMED = 0.2
_REST = re.compile(r"\b(?:without|excluding|except|ignoring|apart|besides|remaining|rest|others?|leaving)\b", re.I)
_NEXT = re.compile(r"\b(?:next|follow\w*|behind|others?|runners?-up|after)\b", re.I)
_AGAINST = re.compile(r"\d[\d.,%]*\s*(?:to|versus|vs\.?|against|compared with)\s*[$€£]?$", re.I)
_EXTREME = re.compile(
    r"\b(?:than|above|below|over|under|from|to|of|versus|against)\s+the\s+(?:\w+\s+)?(?:\w+est|best|worst|peak|minimum|maximum)\s*[(,]?\s*[$€£]?$",
    re.I,
)
_AGGREGATE = re.compile(
    r"\b(?:total\w*|sum\w*|together|combined|averag\w*|mean|overall|altogether|all|between them|adds? up|each|per|"
    r"other|rest|without|excluding|except|ignoring|apart|besides|remaining|more|less|fewer|ahead|behind|above|below|gap|difference)\b",
    re.I,
)


class _Reading(NamedTuple):
    """One way to read a number: a family of terms, the bounds of their values, and the unit that they must have."""

    family: Family
    low: float
    high: float
    unit: str | None = None


def look_up_derived_value(search: NumberSearch, mention: Mention, strict: bool) -> Candidate | None:
    """Return the derived value that a number states, unless enough others are as likely for one to match by chance.

    The text makes terms likely: it may name the rows, the column, both or neither. Only terms that it supports as well
    as the match count as accidents.
    """
    if (because := _between_dates(search, mention)) is not None:
        return because
    readings = list(_readings(search, mention))
    direction = direction_of_precision(search.passage, mention)
    found: list[tuple[int, int, int, _Reading, Term]] = []
    for reading in readings:
        for term in search.derived.find(reading.family, reading.low, reading.high):
            if (term.signed or (mention.signed and term.step != "difference")) and direction * term.value < 0:
                continue
            if reading.unit not in (None, term.unit) or (term.unit == RAW and mention_scale(mention) > 1):
                continue
            if not _is_meant(search, mention, term):
                continue
            if not is_rounded_beyond_precision(mention, term.value) and not _is_of_another(search, mention, term):
                rows, column = _support(search, mention, term)
                found.append((-rows, term.tier, -column, reading, term))
    for less_rows, tier, less_column, reading, term in sorted(found, key=lambda item: item[:3])[:6]:
        rows, column = -less_rows, -less_column

        def likely(other: Term, rows: int = rows, column: int = column, tier: int = tier) -> bool:
            if other.tier > tier or not _is_meant(search, mention, other):
                return False
            own = _support(search, mention, other)
            return own[0] >= rows and own[1] >= column

        expected = sum(search.derived.expected(r.family, r.low, r.high, likely) for r in readings)
        most = (COUNT_ACCIDENTS if reading.family == "count" else ACCIDENTS)[rows]
        if mention.word and mention.kind == "percent" and rows == 2:
            most = 1.0  # `two thirds` is meant to be coarse.
        if expected <= (most / 5 if strict else most):
            # If the text does not name the rows, they may be others than it means.
            return _candidate(term)._replace(chance=expected if rows == 2 else max(expected, _UNNAMED))
    return None


def _is_meant(search: NumberSearch, mention: Mention, term: Term) -> bool:
    """Return whether the text says what a group needs: how many rows they are, or that some are left out."""
    # A long number that two values of the named row make is not an accident: `an order is worth $117.02`.
    long = term.step in ("quotient", "product") and significant_digits(mention) >= _LONG
    if term.step and not long and not search.says(mention, term.step):
        return False
    wording = search.wording(mention)
    if mention.kind == "number" and THAN.match(wording.after) and term.step != "difference":
        return False  # `8 more than` is a difference.
    if wording.statistic and term.tier == 0 and len(term.rows) == 1:
        table = search.tables[term.table]
        averaged = table.columns[term.column].words & {"avg", "mean", "average", "median", "total"}
        if table.rows > 1 and not table.printed and not averaged:
            return False
    if not term.needs:
        return True
    if search.row_support(mention, term.table, term.rows) == 2:
        return True
    index = search.passage.sentence(mention.start)
    if term.needs in ("size", "next"):
        follows = term.needs == "size" or _NEXT.search(search.passage.sentence_text(index))
        return bool(follows) and len(term.rows) in search.sizes_near(index)
    return _REST.search(search.passage.sentence_text(index)) is not None


def _support(search: NumberSearch, mention: Mention, term: Term) -> tuple[int, int]:
    return (
        search.row_support(mention, term.table, term.rows),
        search.column_support(mention, term.table, term.column, term.other),
    )


def _readings(search: NumberSearch, mention: Mention) -> Iterator[_Reading]:
    after = search.passage.around(mention, 0, 16)[1]
    for low, high in rounding_intervals(mention):
        bottom, top = sorted((abs(float(low)), abs(float(high))))
        if low < 0 < high:
            bottom = 0.0
        if mention.kind in ("percent", "points"):
            yield _Reading("percent", bottom, top)
        elif mention.unit in TIME_UNITS:
            own = float(TIME_UNITS[mention.unit])
            yield _Reading("seconds", bottom * own, top * own)
            for unit, seconds in TIME_UNITS.items():
                factor = own / float(seconds)
                yield _Reading("amount", bottom * factor, top * factor, unit)
            yield _Reading("amount", bottom, top, "")
        else:
            yield _Reading("amount", bottom, top)
            if mention.kind == "number" and not mention.unit and (shared := _shared_unit(search, mention)):
                for unit, seconds in TIME_UNITS.items():
                    factor = float(TIME_UNITS[shared] / seconds)
                    if factor != 1:
                        yield _Reading("amount", bottom * factor, top * factor, unit)
            if size := _BYTES.search(f"{mention.text}{after}"):
                for base in (1000, 1024):
                    factor = base ** (" kmgt".index(size[1][0].lower()))
                    yield _Reading("amount", bottom * factor, top * factor)
            if mention.kind == "times" and is_whole_mention(mention):
                yield _Reading("count", bottom, top)
            scale = float(mention_scale(mention))
            if scale == 1 and (
                stated := _SCALED.search(search.passage.header(mention) or search.wording(mention).sentence)
            ):
                factor = _SCALES[stated[1][0].lower()]
                yield _Reading("amount", bottom * factor, top * factor)
            if scale > 1:
                yield _Reading("amount", bottom / scale, top / scale)
            if mention.kind == "number" and is_whole_mention(mention) and mention.unit != "money" and scale == 1:
                yield _Reading("count", bottom, top)
            for pattern, days in ((_YEARS, 365.2425), (_MONTHS, 30.437)):
                if pattern.match(after):
                    yield _Reading("seconds", bottom * days * 86400, top * days * 86400)
                    break


def _between_dates(search: NumberSearch, mention: Mention) -> Candidate | None:
    """Return the time between two dates that the sentence or the one before it states."""
    after = search.passage.around(mention, 0, 12)[1]
    days = float(TIME_UNITS[mention.unit]) / 86400 if mention.unit in ("day", "week") else 0.0
    days = days or (365.2425 if _YEARS.match(after) else 30.437 if _MONTHS.match(after) else 0.0)
    if not days or mention.kind != "number":
        return None
    index = search.passage.sentence(mention.start)
    dates = [
        date(p.year, p.month, p.day)
        for m in search.passage.mentions
        if (p := m.period) and p.year and p.month and p.day and index - search.passage.sentence(m.start) in (0, 1)
    ]
    years = [
        m.period.year
        for m in search.passage.mentions
        if m.period and m.period.year and not m.period.month and index - search.passage.sentence(m.start) in (0, 1)
    ]
    for one, other in combinations(years, 2) if _YEARS.match(after) or mention.unit == "year" else ():
        if any(float(low) <= abs(other - one) <= float(high) for low, high in rounding_intervals(mention)):
            return Candidate(float(abs(other - one)), _FAR, f"the years from {one} to {other}")
    for first, last in combinations(dict.fromkeys(dates), 2):
        gap = abs((last - first).days)
        for low, high in rounding_intervals(mention):
            for extra in (0, 1) if mention.unit == "day" else (0,):
                if float(low) <= (gap + extra) / days <= float(high):
                    return Candidate((gap + extra) / days, _FAR, f"the time from {first} to {last}")
    return None


def _shared_unit(search: NumberSearch, mention: Mention) -> str:
    """Return the unit of time of the number before, which a list states once: `43.2 minutes, then 45.3 and 44.0`."""
    index = search.passage.sentence(mention.start)
    units = [
        m.unit
        for m in search.passage.mentions
        if m.end <= mention.start and m.unit in TIME_UNITS and index - search.passage.sentence(m.start) in (0, 1)
    ]
    return units[-1] if units else ""


def _is_of_another(search: NumberSearch, mention: Mention, term: Term) -> bool:
    """Return whether a term belongs to other rows than the one that the label next to the number names."""
    anchors = search.passage.anchors(mention, term.table)
    if len(term.rows) == 1 and search.passage.is_unnamed(mention, term.table, next(iter(term.rows))):
        return True
    if not (anchors.strong or anchors.named):
        return False
    before, after = search.passage.around(mention, 40, 25)
    if len(term.rows) == 2 and term.step in ("difference", "change") and len(anchors.primary) == 1:
        return not anchors.primary & term.rows
    if len(term.rows) == 1:
        [row] = term.rows
        column = search.tables[term.table].columns[term.column]
        if row in column.extremes and _EXTREME.search(before):
            return False
        return row not in anchors.primary and anchors.costs.get(row, 9.0) > 0.7 and not _AGAINST.search(before)
    if anchors.direct and not _AGGREGATE.search(f"{before} | {after}"):
        return not (anchors.primary == term.rows or (len(term.rows) == 2 and anchors.primary < term.rows))
    column = search.tables[term.table].columns[term.column]
    same = [row for row, value in column.numbers.items() if value == term.value]
    return bool(same) and not any(anchors.costs.get(row, 9.0) <= 0.7 for row in same)


def _candidate(term: Term) -> Candidate:
    row = next(iter(term.rows)) if len(term.rows) == 1 else -4
    kind = "cell" if term.tier == 0 and row >= 0 else "sum"
    column = term.column if term.tier < 2 else -1
    operand = Operand(term.value, _FAR, 0.0, term.table, column, row, term.rows, term.what, term.unit, kind)
    return Candidate(term.value, _FAR, term.what, 0, operand if column >= 0 else None)
