"""Arithmetic between two values: changes, shares, ratios, differences, sums and quotients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.column_costs import MONEY_WORDS
from etude.runtime.number_check.dimension import ROWS, dimension_distance
from etude.runtime.number_check.mentions import TIME_UNITS, Mention
from etude.runtime.number_check.operands import STATED, Operand
from etude.runtime.number_check.periods import period_sort_key
from etude.runtime.number_check.wording import OF_TOTAL, TEMPORAL, THAN, Wording

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch


def arithmetic_candidates(
    search: NumberSearch, mention: Mention, operands: Sequence[Operand], wording: Wording
) -> Iterator[Candidate]:
    """Yield what follows from every two values that may be computed with."""
    for i, a in enumerate(operands):
        for b in operands[i + 1 :]:
            cost = _pair_cost(search, a, b)
            if cost is None or cost > 3.6:
                continue
            yield from _combine(search, mention, a, b, cost, wording)


def _pair_cost(search: NumberSearch, a: Operand, b: Operand) -> float | None:
    """Return how far-fetched it is to compute with two values, or None if that makes no sense."""
    column = max(a.col_cost, b.col_cost)
    for o in (a, b):
        if o.kind == "cell" and o.row_cost >= 1.3 and o.table >= 0 and search.tables[o.table].rows > 1:
            column += 0.5
    stated = (a.kind in STATED) + (b.kind in STATED)
    if stated:
        if a.what == b.what and a.value == b.value:
            return None
        return a.row_cost + b.row_cost + column + (0.0 if stated == 2 else 0.3)
    if a.table == b.table:
        if a.row == b.row and a.rows == b.rows:
            return max(a.row_cost, b.row_cost) + 0.6 * (a.col_cost + b.col_cost)
        if a.column == b.column:
            if a.rows == b.rows:
                return max(a.row_cost, b.row_cost) + 1.0 + column  # The total, the mean and the median.
            return a.row_cost + 0.8 * b.row_cost + column
        if search.tables[a.table].rows <= 2 or "count" in (a.kind, b.kind):
            return a.row_cost + b.row_cost + column
        return a.row_cost + b.row_cost + column + 1.2 if search.tables[a.table].printed else None
    if a.table < 0 or b.table < 0:
        return a.row_cost + b.row_cost + column + 0.5
    left, right = search.tables[a.table], search.tables[b.table]
    if a.column >= 0 and b.column >= 0 and left.columns[a.column].name.lower() == right.columns[b.column].name.lower():
        same = a.row < 0 and a.row == b.row
        if a.row >= 0 and b.row >= 0:
            same = left.row_label(a.row) == right.row_label(b.row)
        return max(a.row_cost, b.row_cost) + column if same else a.row_cost + b.row_cost + column + 0.8
    if (
        left.rows == 1
        or right.rows == 1
        or left.kind != "result"
        or right.kind != "result"
        or left.printed
        or right.printed
    ):
        return a.row_cost + b.row_cost + column + 0.3
    if a.row >= 0 and b.row >= 0 and left.row_label(a.row) == right.row_label(b.row):
        return max(a.row_cost, b.row_cost) + column + 0.3
    return None


def _combine(
    search: NumberSearch, mention: Mention, a: Operand, b: Operand, cost: float, wording: Wording
) -> Iterator[Candidate]:
    x, y = a.value, b.value
    same_column = (a.table == b.table and a.column == b.column) or a.kind in STATED or b.kind in STATED
    ordered = _in_order(search, a, b)
    percents = a.unit == b.unit == "percent"
    if "count" in (a.kind, b.kind) and mention.kind in ("points", "times"):
        return
    apart = dimension_distance(search, a, b)
    if mention.kind in ("percent", "points", "times"):
        if apart is None:
            return
        cost += apart
    if (than := _compared_with(search, mention, a, b, wording)) is not None and mention.kind == "percent":
        first, base = than
        if base.value:
            change = 100 * (first.value - base.value) / abs(base.value)
            yield Candidate(change, cost, f"{first.what} compared with {base.what}", 1)
        return
    if mention.kind == "percent":
        change = 0.0 if wording.changing else 1.0 if not wording.sharing else 1.6
        share = 0.0 if wording.sharing else 0.4 if not wording.changing or wording.apposed else 1.6
        if not percents or wording.changing:
            nested = a.rows and b.rows and (a.rows < b.rows or b.rows < a.rows) and same_column
            extra = 1.0 if nested and a.kind != "mean" and b.kind != "mean" else 0.0
            timed = bool(ordered) and TEMPORAL.search(wording.before) is not None
            if x and not (timed and ordered == -1):
                yield Candidate(
                    100 * (y - x) / abs(x),
                    cost + change + extra,
                    f"change from {a.what} to {b.what}",
                    1,
                )
            if y and not (timed and ordered == 1):
                yield Candidate(
                    100 * (x - y) / abs(y),
                    cost + change + extra,
                    f"change from {b.what} to {a.what}",
                    1,
                )
        disjoint = bool(a.rows and b.rows) and not a.rows & b.rows and (a.table, a.column) == (b.table, b.column)
        if a.kind == b.kind == "stated" and disjoint and x > 0 and y > 0 and not mention.word:
            for part in (a, b):
                yield Candidate(
                    100 * part.value / (x + y),
                    cost + share / 4,
                    f"{part.what} as a share of {a.what} and {b.what}",
                    step="share",
                )
        if not percents and "mean" not in (a.kind, b.kind) and not _whole_of(search, a, b):
            disjoint = bool(a.rows and b.rows) and not a.rows & b.rows and same_column
            for part, whole in ((a, b), (b, a)):
                if _is_money(search, part) != _is_money(search, whole) and not same_column:
                    continue
                if whole.value and abs(part.value) <= abs(whole.value) * (3 if wording.part else 1):
                    inside = part.rows < whole.rows or whole.kind in STATED or part.kind in STATED
                    extra = 0.0 if inside or not same_column else 0.6 if disjoint else 0.3
                    if OF_TOTAL.match(wording.after) and whole.kind == "sum" and whole.row != -1:
                        extra += 1.0
                    yield Candidate(
                        100 * part.value / whole.value,
                        cost + share + extra,
                        f"{part.what} as a share of {whole.what}",
                        step="share",
                    )
        if percents:
            yield Candidate(y - x, cost + 0.5, f"difference of {a.what} and {b.what}", 2)
        return
    if mention.kind == "points":
        scale = 100 if _fraction(search, a) and _fraction(search, b) and not percents else 1
        yield Candidate(scale * (y - x), cost, f"difference of {a.what} and {b.what}", 1 if ordered == 1 else 2)
        return
    if mention.kind == "times":
        x, y = x * _scale(search, a), y * _scale(search, b)
        if same_column and a.rows and b.rows and (a.rows < b.rows or b.rows < a.rows):
            cost += 0.8 if -1 in (a.row, b.row) or "mean" in (a.kind, b.kind) else 1.8
        if x:
            yield Candidate(y / x, cost, f"ratio of {b.what} to {a.what}")
        if y:
            yield Candidate(x / y, cost, f"ratio of {a.what} to {b.what}")
        return
    yield from _amounts(search, mention, a, b, cost, wording, same_column, apart)


def _compared_with(
    search: NumberSearch, mention: Mention, a: Operand, b: Operand, wording: Wording
) -> tuple[Operand, Operand] | None:
    """Return which value is compared with which in `A is 5% higher than B`; None if the sentence is another."""
    if not THAN.match(wording.after) or a.table != b.table or a.column != b.column or a.row < 0 or b.row < 0:
        return None
    labels = search.passage.labels_in(search.passage.sentence(mention.start), a.table)
    before = {row for x in labels if x.end <= mention.start for row in x.rows}
    after = {row for x in labels if x.start >= mention.end for row in x.rows}
    if a.row in before and b.row in after and a.row not in after and b.row not in before:
        return a, b
    if b.row in before and a.row in after and b.row not in after and a.row not in before:
        return b, a
    return None


def _amounts(
    search: NumberSearch,
    mention: Mention,
    a: Operand,
    b: Operand,
    cost: float,
    wording: Wording,
    same_column: bool,
    apart: float | None,
) -> Iterator[Candidate]:
    if (a.unit == "percent") != (b.unit == "percent") and (a.kind in STATED or b.kind in STATED):
        part, whole = (a, b) if a.unit == "percent" else (b, a)
        yield Candidate(part.value * whole.value / 100, cost + 1.2, f"{part.what} of {whole.what}")
        return
    factor = 1.0
    if mention.unit in TIME_UNITS:
        if a.unit in TIME_UNITS and b.unit in TIME_UNITS:
            factor = float(TIME_UNITS[a.unit] / TIME_UNITS[mention.unit])
        else:
            for time, other in ((a, b), (b, a)):
                if time.unit in TIME_UNITS and other.value:
                    factor = float(TIME_UNITS[time.unit] / TIME_UNITS[mention.unit])
                    yield Candidate(time.value / other.value * factor, cost + 0.4, f"{time.what} per {other.what}")
                    yield Candidate(time.value * other.value * factor, cost + 0.6, f"{time.what} times {other.what}")
            if a.unit in TIME_UNITS or b.unit in TIME_UNITS:
                return
            cost += 0.8 if not _printed(search, a) and not _printed(search, b) else 1.8
    left, right = _scale(search, a), _scale(search, b)
    x, y = a.value * left, b.value * right
    compared = 0.0 if wording.changing else 0.9
    kinds = {a.kind, b.kind}
    # A sum or difference with a far smaller value, or with a count of rows, says nothing.
    trivial = "count" in kinds or min(abs(x), abs(y)) < 0.005 * max(abs(x), abs(y))
    rows = (a.unit == ROWS) != (b.unit == ROWS)
    if (
        apart is not None
        and not rows
        and not _vague(a)
        and not _vague(b)
        and not trivial
        and not (a.kind == b.kind == "sum" and a.row == b.row == -4 and a.rows & b.rows)
        and (same_column or a.table != b.table or a.row == b.row)
        and (wording.rest or not _cuts(search, mention, a, b))
    ):
        cost += apart
        like = a if a.column >= 0 else b
        nested = a.rows and b.rows and (a.rows < b.rows or b.rows < a.rows)
        extra = 0.2 if nested and wording.rest else 1.2 if nested else 0.0
        yield Candidate(
            (y - x) * factor,
            cost + (0.2 if wording.rest else compared) + extra,
            f"difference of {a.what} and {b.what}",
            2,
            like=like,
            step="difference",
        )
        if left != 1:
            yield Candidate(
                (y - x) / left * factor,
                cost + compared + extra,
                f"difference of {a.what} and {b.what}",
                2,
                step="difference",
            )
        if not (a.rows & b.rows and a.column == b.column) and "mean" not in kinds:
            summed = 0.2 if wording.together or wording.total else 1.2
            yield Candidate((x + y) * factor, cost + summed, f"sum of {a.what} and {b.what}", like=like, step="sum")
            if left != 1:
                yield Candidate((x + y) / left, cost + summed, f"sum of {a.what} and {b.what}")
    if wording.difference:
        return
    per = 0.0 if wording.average or wording.ratio else 0.3 if wording.per else 0.9
    if kinds & STATED and not (wording.average or wording.ratio or wording.per):
        per = 2.0
    if mention.unit != "money" or not same_column or kinds & STATED:
        for top, bottom in ((a, b), (b, a)):
            if top.kind in ("count", "mean", "median") or re.match(r"\s*(?:months|quarters|years)\b", wording.after):
                continue
            if a.rows and b.rows and not a.rows & b.rows and a.column != b.column and a.table == b.table:
                continue  # The revenue of one row and the orders of another.
            if mention.unit in TIME_UNITS and a.unit in TIME_UNITS and b.unit in TIME_UNITS:
                continue
            if (same_column and not wording.ratio and not kinds & STATED) or a.kind == b.kind == "span":
                continue  # A ratio of two values of one column is written as `2.5 times`.
            if under := bottom.value * _scale(search, bottom):
                over = top.value * _scale(search, top)
                within = replace(top, kind="quotient") if a.row == b.row >= 0 and a.table == b.table else None
                ratio = f"{top.what} per {bottom.what}"
                yield Candidate(over / under * factor, cost + per, ratio, 0, within, step="quotient")
                if (base := search.rate_base) > 1:
                    yield Candidate(
                        over / under * base,
                        cost + per + 0.2,
                        f"{top.what} per {base:,.0f} {bottom.what}",
                        0,
                        within,
                    )
    if a.table == b.table >= 0 and a.row == b.row >= 0 and a.column != b.column:
        yield Candidate(x * y * factor, cost + 0.6, f"product of {a.what} and {b.what}", step="product")


def _cuts(search: NumberSearch, mention: Mention, a: Operand, b: Operand) -> bool:
    """Return whether two values add up to only some of the rows that the name next to a number has."""
    if a.table != b.table or a.column != b.column or a.table < 0 or not (a.rows and b.rows):
        return False
    anchors = search.passage.anchors(mention, a.table)
    nested = a.rows < b.rows or b.rows < a.rows
    return anchors.named and (nested or a.rows | b.rows < anchors.primary) and a.rows | b.rows <= anchors.primary


def _vague(o: Operand) -> bool:
    """Return whether it is not known what a value measures, and it is too short to be recognised."""
    return o.table < 0 and o.unit not in TIME_UNITS and o.unit not in (ROWS, "percent") and abs(o.value) < 100


def _is_money(search: NumberSearch, o: Operand) -> bool:
    if o.table < 0 or o.column < 0:
        return False
    return bool(search.tables[o.table].columns[o.column].words & (MONEY_WORDS - {"total", "value", "amount"}))


def _printed(search: NumberSearch, o: Operand) -> bool:
    return o.table >= 0 and search.tables[o.table].printed


def _whole_of(search: NumberSearch, a: Operand, b: Operand) -> bool:
    return a.table == b.table and a.column == b.column and -1 in (a.row, b.row) and "sum" in (a.kind, b.kind)


def _in_order(search: NumberSearch, a: Operand, b: Operand) -> int:
    """Return 1 if `a` is earlier than `b`, -1 if it is later, and 0 if that is not known."""
    if a.table != b.table or a.table < 0 or a.row < 0 or b.row < 0:
        return 0
    moments = search.tables[a.table].periods
    if a.row not in moments or b.row not in moments or a.row == b.row:
        return 0
    first, second = (period_sort_key(moments[row]) for row in (a.row, b.row))
    return (first < second) - (first > second)


def _fraction(search: NumberSearch, o: Operand) -> bool:
    return o.table >= 0 and o.column >= 0 and search.tables[o.table].columns[o.column].is_fraction


def _scale(search: NumberSearch, o: Operand) -> float:
    return (
        search.tables[o.table].columns[o.column].factor
        if o.table >= 0 and o.column >= 0 and o.kind not in STATED
        else 1.0
    )
