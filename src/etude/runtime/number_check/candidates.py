"""The values that a number of the text may state, each with a cost that says how far-fetched it is.

The label next to the number decides which rows are near, the words around it which columns and which operations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from etude.runtime.number_check.arithmetic import arithmetic_candidates
from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.evidence import COUNT_WORDS
from etude.runtime.number_check.mentions import TIME_UNITS, Mention, mention_scale
from etude.runtime.number_check.operands import STATED, Operand
from etude.runtime.number_check.series import (
    series_change_candidates,
    series_statistics_candidates,
    series_step_candidates,
)
from etude.runtime.number_check.stated_units import convert_stated_unit
from etude.runtime.number_check.weighted import weighted_candidates
from etude.runtime.number_check.wording import WEIGHTED, Wording

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch

_OPERANDS = 40


def list_direct_candidates(search: NumberSearch, mention: Mention, operands: Sequence[Operand]) -> list[Candidate]:
    """Return the values that a number may state as they are, with their costs."""
    wording = search.wording(mention)
    found = (
        c._replace(step="mean") if operand.kind in ("mean", "median") else c
        for operand in operands
        for c in _direct(search, mention, operand, wording)
    )
    return [c for c in found if math.isfinite(c.value)]


def list_derived_candidates(
    search: NumberSearch, mention: Mention, operands: Sequence[Operand], direct: Sequence[Candidate]
) -> list[Candidate]:
    """Return the values that follow from others by arithmetic, with their costs."""
    wording = search.wording(mention)
    found: list[Candidate] = []
    limited = operands[:_OPERANDS]
    found += arithmetic_candidates(search, mention, limited, wording)
    found += weighted_candidates(search, mention, operands, wording)
    if mention.kind == "number":
        found += series_step_candidates(search, mention, wording)
        found += series_statistics_candidates(search, mention, wording)
    if mention.kind == "percent":
        found += _shares(search, mention, operands, wording)
    if mention.kind in ("percent", "points"):
        found += [
            Candidate(100 - c.value, c.cost + 0.2, f"100% less {c.because}")
            for c in [*direct, *found]
            if wording.rest and 0 < c.value < 100 and c.cost < 0.9 and c.sign <= 0
        ]
        found += series_change_candidates(search, mention, wording)
    return [c for c in found if math.isfinite(c.value)]


def _direct(search: NumberSearch, mention: Mention, o: Operand, wording: Wording) -> Iterator[Candidate]:
    column = search.tables[o.table].columns[o.column] if o.table >= 0 and o.column >= 0 else None
    printed = o.table >= 0 and search.tables[o.table].printed
    cost, what = o.cost, o.what
    if o.kind in ("mean", "median") and WEIGHTED.search(search.passage.around(mention, 400, 0)[0]):
        return
    if o.kind in STATED and o.unit == "percent" and mention.kind == "percent" and wording.rest:
        yield Candidate(100 - o.value, cost + 0.3, f"100% less {what}")
    if o.kind in STATED and mention.kind == "percent" and abs(o.value) < 1 and re.search(r"\bvarian", wording.after):
        yield Candidate(100 * o.value**2, cost + 0.2, f"the square of {what}")
    if o.kind in STATED and mention.kind == "number" and cost < 0.5:
        yield from convert_stated_unit(mention, o, wording)
    if o.kind in STATED and not (mention.word and mention.kind == "percent"):
        return  # A number that is repeated follows from the same values again.
    if (
        o.kind in ("sum", "mean", "median")
        and o.row in (-1, -2, -3)
        and o.table >= 0
        and not (wording.total or wording.average or wording.whole)
    ):
        cost += 1.0 if search.passage.anchors(mention, o.table).strong else 0.0
    if mention.kind in ("percent", "points"):
        if o.unit == "percent":
            yield Candidate(o.value, cost + (0.0 if o.kind not in STATED else 0.3), what, -1, o)
            return
        if column is not None and column.is_fraction:
            yield Candidate(100 * o.value, cost, what, -1, o)
        elif printed:
            yield Candidate(100 * o.value, cost + 0.3, what, -1, o)
        if column is not None and (column.is_percent or printed or (column.may_be_percent and not wording.changing)):
            yield Candidate(o.value, cost + (0.0 if column.is_percent else 0.4), what, -1, o)
        return
    if mention.kind == "times":
        if column is not None and (column.words & {"ratio", "multiple", "factor", "fold"} or printed or column.whole):
            yield Candidate(o.value, cost + (0.0 if not column.whole else 0.4), what, 0, o)
        return
    if mention.unit in TIME_UNITS:
        seconds = float(TIME_UNITS[mention.unit])
        if o.unit in TIME_UNITS:
            yield Candidate(o.value * float(TIME_UNITS[o.unit]) / seconds, cost, what, 0, o)
        elif o.kind not in STATED:
            yield Candidate(o.value, cost + 0.5, what, 0, o)
        if o.kind == "span" and mention.unit == "day":
            yield Candidate(o.value / seconds + 1, cost + 0.6, f"{what}, both days included", 0, o)
        return
    if o.kind == "span":
        for unit in ("hour", "minute", "day"):
            yield Candidate(o.value / float(TIME_UNITS[unit]), cost + 0.8, f"{what} in {unit}s", 0, o)
        days = o.value / 86400
        yield Candidate(days + 1, cost + 0.9, f"{what} in days, both included", 0, o)
        if days > 300:
            years = days / 365.2425
            near = 0.2 if re.match(r"[\s*_-]*(?:years?|Jahre?|ans|años)\b", wording.after) else 0.5
            yield Candidate(years, cost + near, f"{what} in years", 0, o)
            yield Candidate(math.floor(years + 0.002), cost + near, f"{what} in full years", 0, o)
        if days > 25 and o.row >= 0 and re.match(r"[\s*_-]*(?:months?|Monate|mois|meses)\b", wording.after):
            yield Candidate(days / 30.437, cost + 0.3, f"{what} in months", 0, o)
        return
    extra = 0.0
    if column is not None and column.is_percent and not column.whole and not printed:
        extra = 0.3
    if mention.unit == "money" and column is not None and column.words & {"pct", "percent", "percentage"}:
        extra = 2.0
    yield Candidate(o.value, cost + extra, what, -1, o)
    if column is not None and column.factor != 1:
        yield Candidate(o.value * column.factor, cost, what, -1, o)
    elif (
        column is not None
        and (scale := float(mention_scale(mention))) >= 1000
        and not column.words & (COUNT_WORDS - {"total"})
        and not column.whole
        and max(map(abs, column.numbers.values()), default=0) < 20 * scale / 1000
    ):
        yield Candidate(o.value * scale, cost + 0.3, f"{what}, which is in that unit", -1, o)
    if o.unit in TIME_UNITS:
        for unit in ("minute", "hour", "second", "day"):
            yield Candidate(
                o.value * float(TIME_UNITS[o.unit] / TIME_UNITS[unit]), cost + 0.9, f"{what} in {unit}s", 0, o
            )


def _shares(
    search: NumberSearch, mention: Mention, operands: Sequence[Operand], wording: Wording
) -> Iterator[Candidate]:
    """Yield the shares of values in the total of their column."""
    share = 0.1 if wording.sharing else 0.4 if not wording.changing else 1.2
    for o in operands:
        if o.table < 0 or o.column < 0 or o.row == -1 or o.kind not in ("cell", "sum", "stated"):
            continue
        table = search.tables[o.table]
        column = table.columns[o.column]
        if table.kind != "result" or (table.printed and not table.listed) or table.rows < 2:
            continue
        if not column.adds_up:
            continue
        for other in search.tables if not table.complete else ():
            if other is not table and other.kind == "result" and not other.printed and other.complete:
                for same in other.measures:
                    if same.name.lower() == column.name.lower() and same.total > o.value > 0 and same.adds_up:
                        yield Candidate(
                            100 * o.value / same.total,
                            o.cost + share + 0.3,
                            f"share of {o.what} in the total of {other.name}",
                        )
        if table.complete and column.total > 0:
            yield Candidate(
                100 * o.value / column.total, o.cost + share, f"share of {o.what} in the total", step="share"
            )
