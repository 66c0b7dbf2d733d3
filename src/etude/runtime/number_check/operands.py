"""The values that arithmetic starts from: cells, aggregates of rows, times between dates, numbers stated nearby."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from etude.runtime.number_check.column_costs import column_unit
from etude.runtime.number_check.dimension import ROWS
from etude.runtime.number_check.evidence import EvidenceTable
from etude.runtime.number_check.mentions import TIME_UNITS, Mention
from etude.runtime.number_check.passage import Anchors
from etude.runtime.number_check.row_groups import spoken_row_groups
from etude.runtime.number_check.wording import TOGETHER, UNWEIGHTED, Wording

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch


_LARGE = 60
STATED = frozenset({"stated", "derived"})
"""Kinds of operands that are numbers of the text: cells, or values that were computed themselves."""


@dataclass(frozen=True)
class Operand:
    """A value that arithmetic starts from: a cell (`row` >= 0), an aggregate of rows, or a number stated nearby."""

    value: float
    row_cost: float
    col_cost: float
    table: int
    column: int
    row: int
    rows: frozenset[int]
    what: str
    unit: str = ""
    kind: str = "cell"
    exact: object = None
    at: int = -1
    """Where a stated number ends in the text."""

    @property
    def cost(self) -> float:
        """How far-fetched it is that the number refers to this value."""
        return self.row_cost + self.col_cost


def collect_operands(search: NumberSearch, mention: Mention, wording: Wording) -> list[Operand]:
    """Return the values that a number may refer to, nearest first."""
    found: list[Operand] = []
    for t, table in enumerate(search.tables):
        anchors = search.passage.anchors(mention, t)
        columns = search.column_costs(mention, t)
        far = 0.3 if table.kind == "thread" else 0.0
        if (
            table.kind == "schema"
            and table.rows == 1
            and not re.search(r"\btables?\b", f"{wording.before[-20:]}{wording.after[:20]}")
        ):
            far = 1.5
        found += _cells(search, mention, t, table, anchors, columns, wording, far)
        if table.kind == "result" and (not table.printed or table.listed):
            found += _aggregates(search, t, table, anchors, columns, wording)
            found += _groups(search, mention, t, table, anchors, columns, wording)
            found += _spans(search, t, table, anchors)
            found.append(_count_operand(t, table, wording))
    found += _stated_near(search, mention)
    found.sort(key=lambda o: o.cost)
    return found


def _cells(
    search: NumberSearch,
    mention: Mention,
    t: int,
    table: EvidenceTable,
    anchors: Anchors,
    columns: dict[int, float],
    wording: Wording,
    far: float,
) -> Iterator[Operand]:
    labelled = bool(anchors.primary)
    for c, cost in columns.items():
        column = table.columns[c]
        window = _window(mention) if table.rows > _LARGE else None
        for row, value in column.numbers.items():
            row_cost = anchors.costs.get(row)
            if row_cost is None and window and not window[0] <= abs(value) <= window[1] and row not in column.extremes:
                continue  # Too far to be the number, and nothing says that it was used to compute it.
            if row_cost is not None and wording.total and not labelled:
                row_cost += 0.8
            if row_cost is None:
                row_cost = 0.0 if table.rows == 1 else 5.0 if anchors.strong else 2.6 if labelled else 1.6
                if table.rows <= 3 and not anchors.strong and not table.printed:
                    row_cost = min(row_cost, 0.8 if labelled or table.rows == 3 else 0.5)
                if wording.total and table.rows > 1 and not table.printed:
                    row_cost += 1.0
                if table.printed and table.rows > 1 and not anchors.strong:
                    row_cost = 1.7 if labelled else 1.3
                extremes = column.extremes if table.complete and len(column.numbers) > 1 else ()
                if extremes and row in (extremes[0], extremes[-1]):
                    cue = wording.largest if row == extremes[0] else wording.smallest
                    if not anchors.strong:
                        row_cost = min(row_cost, 0.5 if cue or wording.range else 1.4)
                    elif cue:
                        row_cost = min(row_cost, 2.0)
                if table.periods and not labelled and table.complete and row in (0, table.rows - 1):
                    row_cost = min(row_cost, 0.7 if wording.changing or wording.ratio else 1.3)
                if (
                    wording.statistic
                    and table.rows > 1
                    and not table.printed
                    and not column.words & {"avg", "mean", "average", "median"}
                ):
                    row_cost += 1.2
            yield Operand(
                value, row_cost + far, cost, t, c, row, frozenset({row}), _name(table, c, row), column_unit(column),
                exact=column.exact[row],
            )  # fmt: skip


def _aggregates(
    search: NumberSearch, t: int, table: EvidenceTable, anchors: Anchors, columns: dict[int, float], wording: Wording
) -> Iterator[Operand]:
    if not table.complete or table.rows < 2:
        return
    extra = 0.4 if anchors.strong else 0.0
    every = frozenset(range(table.rows))
    for c, cost in columns.items():
        column = table.columns[c]
        if len(column.numbers) < 2 or not math.isfinite(column.total):
            continue
        unit = column_unit(column)
        if column.adds_up:
            yield Operand(
                column.total, (0.2 if wording.total or wording.whole else 0.7) + extra, cost, t, c, -1, every,
                f"the total of {column.name}", unit, "sum",
            )  # fmt: skip
        mean = column.total / len(column.numbers)
        if not table.averages(column) and not UNWEIGHTED.search(wording.sentence):
            continue
        yield Operand(
            mean,
            (0.3 if wording.average else 1.6) + extra,
            cost,
            t,
            c,
            -2,
            every,
            f"the mean of {column.name}",
            unit,
            "mean",
        )
        middle = column.descending
        half = len(middle) // 2
        median = middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
        yield Operand(
            median,
            (0.2 if wording.median else 2.6) + extra,
            cost,
            t,
            c,
            -3,
            every,
            f"the median of {column.name}",
            unit,
            "median",
        )


def _groups(
    search: NumberSearch,
    mention: Mention,
    t: int,
    table: EvidenceTable,
    anchors: Anchors,
    columns: dict[int, float],
    wording: Wording,
) -> Iterator[Operand]:
    """Yield sums and means of some of the rows: the named ones, a period, the largest, the others."""
    direct = anchors.strong and not (TOGETHER.search(wording.before[-30:] + wording.after[:20]) or wording.total)
    for what, rows, cost in spoken_row_groups(search, mention, t, wording):
        near = cost + (2.0 if direct and anchors.direct else 0.8 if direct else 0.0)
        for c, col_cost in columns.items():
            column = table.columns[c]
            values = [column.numbers[row] for row in rows if row in column.numbers]
            if not values:
                continue
            kept, name, unit = frozenset(rows), f"{column.name} of {what}", column_unit(column)
            if column.adds_up:
                yield Operand(math.fsum(values), near, col_cost, t, c, -4, kept, name, unit, "sum")
            if len(values) > 1 and (table.averages(column) or UNWEIGHTED.search(wording.sentence)):
                extra = 0.1 if wording.average else 1.0
                yield Operand(
                    math.fsum(values) / len(values),
                    near + extra,
                    col_cost,
                    t,
                    c,
                    -5,
                    kept,
                    f"the mean {name}",
                    unit,
                    "mean",
                )


def _spans(search: NumberSearch, t: int, table: EvidenceTable, anchors: Anchors) -> Iterator[Operand]:
    """Yield the time between two dates of a row, and between the first and the last row."""
    dated = [(c, column) for c, column in enumerate(table.columns) if column.moments]
    for i, (c, left) in enumerate(dated[:4]):
        for _, right in dated[i + 1 : 4]:
            gaps = {
                r: abs((right.moments[r] - left.moments[r]).total_seconds()) for r in left.moments if r in right.moments
            }
            for row, seconds in list(gaps.items())[:200]:
                cost = anchors.costs.get(
                    row, 0.0 if table.rows == 1 else 5.0 if anchors.strong else 2.6 if anchors.primary else 1.2
                )
                yield Operand(
                    seconds,
                    cost,
                    0.1,
                    t,
                    c,
                    row,
                    frozenset({row}),
                    f"the time from {left.name} to {right.name}",
                    "second",
                    "span",
                )
            if len(gaps) > 1:
                total = math.fsum(gaps.values())
                yield Operand(total / len(gaps), 0.5, 0.2, t, c, -2, frozenset(gaps), "the mean time", "second", "span")
                yield Operand(total, 0.7, 0.2, t, c, -1, frozenset(gaps), "the total time", "second", "span")
        moments = sorted(left.moments.values())
        if len(moments) > 1 and table.complete:
            seconds = (moments[-1] - moments[0]).total_seconds()
            yield Operand(
                seconds,
                0.3,
                0.1,
                t,
                c,
                -1,
                frozenset(left.moments),
                f"the time from first to last {left.name}",
                "second",
                "span",
            )
            named = [left.moments[row] for row, cost in anchors.costs.items() if cost < 1.3 and row in left.moments]
            for a, b in [*pairwise(named[:4]), *([(min(named), max(named))] if len(named) > 2 else [])]:
                yield Operand(
                    abs((b - a).total_seconds()),
                    0.5,
                    0.2,
                    t,
                    c,
                    -6,
                    frozenset(),
                    "the time between the named rows",
                    "second",
                    "span",
                )


def _stated_near(search: NumberSearch, mention: Mention) -> Iterator[Operand]:
    index = search.passage.sentence(mention.start)
    for back, cost in ((0, 0.15), (1, 0.7), (2, 1.1), (3, 1.3), (4, 1.4)):
        for operand in search.stated.get(index - back, [])[:12]:
            close = back == 0 and 0 <= mention.start - operand.at < 12
            yield replace(operand, row_cost=0.0 if close else cost, col_cost=0.0)


def _count_operand(t: int, table: EvidenceTable, wording: Wording) -> Operand:
    count = float(table.row_count)
    return Operand(
        count,
        0.8 if wording.average else 1.3,
        0.0,
        t,
        -1,
        -7,
        frozenset(range(table.rows)),
        f"the number of rows of {table.name}",
        ROWS,
        "count",
    )


def _window(mention: Mention) -> tuple[float, float] | None:
    """Return the range of values that are near a number, in its own unit or as a fraction; None if units may differ."""
    if not mention.readings or mention.unit in TIME_UNITS:
        return None
    values = [abs(float(r.value)) for r in mention.readings]
    low, high = min(values), max(values)
    return (low / 150 if mention.kind in ("percent", "points") else low / 1.6, high * 1.6)


def _name(table: EvidenceTable, c: int, row: int) -> str:
    return f"{table.columns[c].name} of {table.row_label(row)}" if table.rows > 1 else table.columns[c].name
