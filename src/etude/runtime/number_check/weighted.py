"""Sums of products, weighted means and ranges of quotients of two columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.evidence import EvidenceTable
from etude.runtime.number_check.mentions import TIME_UNITS, Mention
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.row_groups import spoken_row_groups
from etude.runtime.number_check.wording import Wording

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch


def weighted_candidates(
    search: NumberSearch, mention: Mention, operands: Sequence[Operand], wording: Wording
) -> Iterator[Candidate]:
    """Yield sums of products, weighted means, ranges of quotients, and sums of all measures of a row."""
    if mention.kind not in ("number", "percent"):
        return
    for t, table in enumerate(search.tables):
        measures = [c for c, column in enumerate(table.columns) if column.is_measure][:5]
        if table.printed or table.kind != "result" or len(measures) < 2 or not 2 <= table.rows <= 400:
            continue
        costs = search.column_costs(mention, t)
        anchors = search.passage.anchors(mention, t)
        groups: list[tuple[str, list[int], float]] = (
            [("all rows", list(range(table.rows)), 0.3 if not anchors.strong else 0.8)] if table.complete else []
        )
        groups += [g for g in spoken_row_groups(search, mention, t, wording) if g[2] < 1][:4]
        for i, c in enumerate(measures):
            for d in measures[i + 1 :]:
                yield from _weighted(search, mention, table, c, d, groups, (costs[c] + costs[d]) / 2, wording)
                if wording.range and table.complete and not anchors.strong:
                    yield from _quotient_range(search, table, c, d, (costs[c] + costs[d]) / 2)


def _weighted(
    search: NumberSearch,
    mention: Mention,
    table: EvidenceTable,
    c: int,
    d: int,
    groups: list[tuple[str, list[int], float]],
    cost: float,
    wording: Wording,
) -> Iterator[Candidate]:
    left, right = table.columns[c], table.columns[d]
    percent = mention.kind == "percent"
    for what, rows, group_cost in groups:
        pairs = [(left.numbers[r], right.numbers[r]) for r in rows if r in left.numbers and r in right.numbers]
        if len(pairs) < 2:
            continue
        product = math.fsum(x * y for x, y in pairs)
        if not percent:
            base = cost + group_cost + (0.3 if wording.total or wording.average else 0.7)
            scale = 1.0
            unit = left.unit or right.unit
            if mention.unit in TIME_UNITS and unit:
                scale = float(TIME_UNITS[unit] / TIME_UNITS[mention.unit])
            named = f"sum of {left.name} times {right.name} of {what}"
            yield Candidate(product * scale, base, named, step="product")
        for weight, value in ((left, right), (right, left)):
            total = math.fsum(weight.numbers[r] for r in rows if r in weight.numbers and r in value.numbers)
            if (
                total
                and weight.whole
                and weight.adds_up
                and not value.adds_up
                and (not percent or value.is_fraction or value.is_percent)
            ):
                scale = 100 if percent and value.is_fraction else 1
                base = cost + group_cost + (0.2 if wording.average or wording.total else 0.9)
                what_mean = f"mean of {value.name} weighted by {weight.name}"
                yield Candidate(scale * product / total, base, what_mean, step="mean")


def _quotient_range(search: NumberSearch, table: EvidenceTable, c: int, d: int, cost: float) -> Iterator[Candidate]:
    left, right = table.columns[c].numbers, table.columns[d].numbers
    for top, bottom in ((left, right), (right, left)):
        quotients = [top[r] / bottom[r] for r in top if bottom.get(r)]
        if len(quotients) > 1:
            for value in (min(quotients), max(quotients)):
                yield Candidate(value, cost + 0.6, "the range of a quotient")
