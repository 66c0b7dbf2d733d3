"""Changes from row to row of a series, and what follows from the lines of `describe()`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.mentions import Mention, Period
from etude.runtime.number_check.periods import period_sort_key
from etude.runtime.number_check.wording import QUARTILES, Wording

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch


def series_statistics_candidates(search: NumberSearch, mention: Mention, wording: Wording) -> Iterator[Candidate]:
    """Yield what follows from the lines of `describe()`: the interquartile range, distances in deviations."""
    for t, table in enumerate(search.tables):
        if not table.printed:
            continue
        lines = {str(v).strip().lower(): row for row, v in enumerate(table.columns[0].values)}
        for c, cost in search.column_costs(mention, t).items():
            numbers = table.columns[c].numbers
            quarter, three = (numbers.get(lines.get(name, -1)) for name in ("25%", "75%"))
            if quarter is not None and three is not None and QUARTILES.search(wording.sentence):
                yield Candidate(three - quarter, cost + 0.3, "the interquartile range")
            mean, deviation = (numbers.get(lines.get(name, -1)) for name in ("mean", "std"))
            if mean is not None and deviation and wording.sigma:
                for value in numbers.values():
                    yield Candidate((value - mean) / deviation, cost + 0.5, "a distance in standard deviations", 2)


def series_change_candidates(search: NumberSearch, mention: Mention, wording: Wording) -> Iterator[Candidate]:
    """Yield the mean, compound and largest change from row to row, and the change up to a named row."""
    for t, table in enumerate(search.tables):
        if (
            table.printed
            or table.kind != "result"
            or not table.complete
            or not 2 < table.rows <= 2000
            or not table.periods
        ):
            continue
        for c, cost in search.column_costs(mention, t).items():
            values = list(table.columns[c].numbers.values())
            if len(values) < 2 or min(values) <= 1e-300:
                continue
            steps = [100 * (b - a) / a for a, b in pairwise(values)]
            extra = 0.2 if wording.average else 1.2
            yield Candidate(
                math.fsum(steps) / len(steps), cost + extra, f"average change of {table.columns[c].name}", 2
            )
            compound = 100 * ((values[-1] / values[0]) ** (1 / (len(values) - 1)) - 1)
            yield Candidate(compound, cost + extra, f"compound change of {table.columns[c].name}", 2)
            if wording.changing:
                for value in (max(steps), min(steps)):
                    yield Candidate(value, cost + 0.7, f"largest change of {table.columns[c].name}", 2)
            anchors = search.passage.anchors(mention, t)
            rows = list(table.columns[c].numbers)
            first, last = (period_sort_key(table.periods.get(row, Period())) for row in (rows[0], rows[-1]))
            for (_, row), step in zip(pairwise(rows), steps) if first < last else ():
                if row in anchors.costs and anchors.costs[row] < 1.3:
                    yield Candidate(
                        step,
                        cost + anchors.costs[row] + (0.3 if wording.changing else 0.9),
                        "change from the row before",
                        1,
                    )


def series_step_candidates(search: NumberSearch, mention: Mention, wording: Wording) -> Iterator[Candidate]:
    """Yield the differences between a named row, or the last one, and the row before it."""
    last = re.search(r"\b(?:last|latest|recent|final)\b", wording.sentence, re.I)
    for t, table in enumerate(search.tables):
        if table.printed or table.kind != "result":
            continue
        anchors = search.passage.anchors(mention, t)
        for c, cost in search.column_costs(mention, t).items():
            if re.search(r"\b(?:steps?|intervals?|increments?)\s+of\s+$", wording.before, re.I):
                gaps = {abs(b - a) for a, b in pairwise(table.columns[c].numbers.values())}
                if len(gaps) == 1:
                    yield Candidate(gaps.pop(), cost + 0.2, "the step from row to row")
            numbers = table.columns[c].numbers
            for before, row in pairwise(numbers) if table.periods else ():
                near = anchors.costs.get(row, 0.6 if last and row == table.rows - 1 else 9.0)
                if near < 1.3:
                    extra = 0.2 if wording.changing or mention.signed else 1.0
                    scale = table.columns[c].factor
                    yield Candidate(
                        (numbers[row] - numbers[before]) * scale,
                        cost + near + extra,
                        "difference from the row before",
                        2,
                    )
