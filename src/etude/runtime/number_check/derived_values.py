"""The values that follow from a table whatever the text says: of rows, groups of rows and pairs of columns.

An answer may name rows in words that no rule foresees (`the Chinese carriers`), so these values need no words. It lists
the values of every natural group of rows, and a number of the text is looked up in that list. In return a match proves
little by itself: `expected` says how many of the listed values a random number of the same form would match.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal, NamedTuple

from etude.runtime.number_check.evidence import EvidenceColumn, EvidenceTable

Family = Literal["amount", "percent", "count", "seconds"]
Need = Literal["", "size", "next", "rest"]
"""`size`: how many rows they are, as in `the top 3`; `next`: also that they follow; `rest`: that some are left out."""
_ROWS = 400
"""Tables with more rows are listed without arithmetic between their columns."""
_COLUMNS = 6
_GROUPS = 60
_ENDS = 20
_PAIRED = 14
"""How many rows are compared with each other."""
_WINDOW = 1.5
RAW = "raw"
"""The unit of a term that stands for millions or another scale."""


class Term(NamedTuple):
    """A value that follows from a table. A higher tier is further from what a table says by itself."""

    value: float
    tier: int
    rows: frozenset[int]
    what: str
    table: int
    column: int = -1
    unit: str = ""
    other: int = -1
    """The second column, if there are two."""
    signed: bool = False
    """Whether the sign is that of a change in time."""
    needs: Need = ""
    """What the text must say for the rows to be meant."""
    step: str = ""
    """`mean` or `difference` if the text has to say so."""


@dataclass(frozen=True)
class RowGroup:
    """Rows that belong together: all, the first ones, those with the same value."""

    what: str
    rows: tuple[int, ...]
    tier: int
    needs: Need = ""


class DerivedValues:
    """The terms of some tables, sorted by value."""

    def __init__(
        self, tables: list[EvidenceTable], named: dict[int, list[int]], spans: dict[int, list[frozenset[int]]]
    ) -> None:
        found: dict[Family, dict[tuple[int, str], Term]] = {"amount": {}, "percent": {}, "count": {}, "seconds": {}}
        for t, table in enumerate(tables):
            if table.kind == "result" and table.rows:
                groups = natural_row_groups(table)
                known = {group.rows for group in groups}
                groups += [
                    RowGroup("the rows between", rows, 1)
                    for rows in dict.fromkeys(tuple(sorted(span)) for span in spans.get(t, ()))
                    if rows not in known
                ]
                needs = {frozenset(group.rows): group.needs for group in groups}
                for family, term in _terms(t, table, named.get(t, []), groups):
                    if not math.isfinite(term.value):
                        continue
                    for scaled in _scaled(table, family, term._replace(needs=needs.get(term.rows, ""))):
                        key = (scaled.tier, f"{scaled.value:.10g}")
                        found[family].setdefault(key, scaled)
        self._terms = {family: sorted(terms.values(), key=_size) for family, terms in found.items()}
        self._sizes = {family: [abs(term.value) for term in terms] for family, terms in self._terms.items()}

    def find(self, family: Family, low: float, high: float) -> list[Term]:
        """Return the terms whose size lies between two bounds, the nearest to the table first."""
        sizes, terms = self._sizes[family], self._terms[family]
        slack = 1e-9 * max(abs(low), abs(high))
        inside = terms[bisect_left(sizes, low - slack) : bisect_right(sizes, high + slack)]
        return sorted(inside, key=lambda term: term.tier)

    def expected(self, family: Family, low: float, high: float, likely: Callable[[Term], bool]) -> float:
        """Return how many of the likely terms a number of this size and precision matches by chance."""
        middle, width = abs(low + high) / 2, abs(high - low)
        if middle == 0:
            return 1.0
        bottom, top = middle / _WINDOW, middle * _WINDOW
        sizes, terms = self._sizes[family], self._terms[family]
        near = terms[bisect_left(sizes, bottom) : bisect_right(sizes, top)]
        bins = {round(abs(term.value) / width) if width else term.value for term in near if likely(term)}
        return len(bins) * width / max(top - bottom, width)


def _scaled(table: EvidenceTable, family: Family, term: Term) -> Iterator[Term]:
    """Yield a term of a column in millions as it stands, and in full."""
    factor = table.columns[term.column].factor if family == "amount" and term.column >= 0 and term.other < 0 else 1.0
    if factor == 1:
        yield term
    else:
        yield term._replace(unit=RAW)
        yield term._replace(value=term.value * factor)


def _size(term: Term) -> float:
    return abs(term.value)


def natural_row_groups(table: EvidenceTable) -> list[RowGroup]:
    """Return the natural groups of the rows of a table, each once."""
    found: dict[tuple[int, ...], RowGroup] = {}
    for group in _row_groups(table):
        known = found.get(group.rows)
        if len(group.rows) > 1 and (known is None or (known.needs, known.tier) > (group.needs, group.tier)):
            found[group.rows] = group
    return list(found.values())


def _row_groups(table: EvidenceTable) -> Iterator[RowGroup]:
    every = tuple(range(table.rows))
    if table.complete:
        yield RowGroup("all rows", every, 0)
    else:
        yield RowGroup("the rows shown", every, 1, "size")
    if table.rows < 3 or table.rows > _ROWS:
        return
    for column in table.columns:
        yield from _values(column, table.rows)
    if table.rows > 60:
        return
    orders = [every]
    for column in table.measures[:4]:
        if len(column.numbers) == table.rows:
            ordered = tuple(sorted(every, key=column.numbers.__getitem__, reverse=True))
            if ordered not in orders and ordered[::-1] not in orders:
                orders.append(ordered)
    for order in orders:
        for k in range(2, min(_ENDS, table.rows - 1) + 1):
            yield RowGroup(f"the first {k}", tuple(sorted(order[:k])), 1, "size")
            yield RowGroup(f"the {k} after the first", tuple(sorted(order[1 : k + 1])), 2, "next")
            if table.complete:
                yield RowGroup(f"the last {k}", tuple(sorted(order[-k:])), 1, "size")
    if table.complete:
        for row in every:
            yield RowGroup(f"all but {table.row_label(row)}", tuple(r for r in every if r != row), 1, "rest")


def _values(column: EvidenceColumn, rows: int) -> Iterator[RowGroup]:
    """Yield the rows that share a value, a word of a name, a year or a month."""
    shared: dict[tuple[str, object], list[int]] = {}
    for row, value in enumerate(column.values):
        if isinstance(value, str) and not column.numbers and row not in column.moments:
            shared.setdefault(("", value), []).append(row)
            for word in set(re.findall(r"[^\W\d_]{3,}", value)):
                shared.setdefault(("word", word), []).append(row)
        elif row in column.numbers and not column.moments and not column.is_measure:
            shared.setdefault(("", column.numbers[row]), []).append(row)
        if period := column.periods.get(row):
            if period.year:
                shared.setdefault(("year", period.year), []).append(row)
                shared.setdefault(("decade", period.year // 10), []).append(row)
            if period.month:
                shared.setdefault(("month", (period.year, period.month)), []).append(row)
                shared.setdefault(("half", (period.year, (period.month + 5) // 6)), []).append(row)
                shared.setdefault(("quarter", (period.year, (period.month + 2) // 3)), []).append(row)
    groups = [(key, members) for key, members in shared.items() if 1 < len(members) < rows]
    for (how, value), members in groups[:_GROUPS]:
        yield RowGroup(f"{column.name} {value}", tuple(members), 1 if how in ("", "year") else 2)


def _terms(t: int, table: EvidenceTable, named: list[int], groups: list[RowGroup]) -> Iterator[tuple[Family, Term]]:
    every = [(c, column) for c, column in enumerate(table.columns) if column.is_measure]
    yield from _across(t, table, every)
    measures = every[:8]
    for c, column in measures:
        for row, value in column.numbers.items():
            what = f"{column.name} of {table.row_label(row)}" if table.rows > 1 else column.name
            yield "amount", Term(value, 0, frozenset({row}), what, t, c, column.unit)
            if column.is_percent or column.may_be_percent or column.is_fraction:
                scale = 100 if column.is_fraction else 1
                step = "" if column.is_percent else "share"
                yield "percent", Term(scale * value, 0, frozenset({row}), what, t, c, step=step)
        for group in groups:
            yield from _of_group(t, table, c, column, group)
        yield from _changes(t, table, c, column, named)
    for group in groups:
        if group.needs != "size":
            yield "count", Term(len(group.rows), group.tier, frozenset(group.rows), f"the number of {group.what}", t)
    if table.rows <= _ROWS:
        for i, (c, left) in enumerate(measures[:_COLUMNS]):
            for d, right in measures[:_COLUMNS][i + 1 :]:
                yield from _of_two(t, table, (c, left), (d, right), groups)
        yield from _spans(t, table, groups)


def _across(t: int, table: EvidenceTable, measures: list[tuple[int, EvidenceColumn]]) -> Iterator[tuple[Family, Term]]:
    """Yield what follows from all columns of a row, if they measure the same: months, or kinds of one thing."""
    columns = [column for _, column in measures]
    if len(columns) < 3 or table.rows > _ROWS or not all(_are_alike(columns[0], other) for other in columns):
        return
    grand = 0.0
    for row in range(table.rows):
        values = [column.numbers[row] for column in columns if row in column.numbers]
        if len(values) < 2:
            continue
        total, kept, what = math.fsum(values), frozenset({row}), f"all columns of {table.row_label(row)}"
        grand += total
        yield "amount", Term(total, 1, kept, f"the sum of {what}", t, unit=columns[0].unit)
        yield "amount", Term(total / len(values), 2, kept, f"the mean of {what}", t, unit=columns[0].unit, step="mean")
        gap = max(values) - min(values)
        yield "amount", Term(gap, 2, kept, f"the range of {what}", t, unit=columns[0].unit, step="difference")
        for c, column in measures if total > 0 else ():
            if row in column.numbers:
                share = 100 * column.numbers[row] / total
                yield "percent", Term(share, 1, kept, f"share of {column.name} in {what}", t, c, step="share")
    rows = frozenset(range(table.rows))
    if table.complete and grand > 0:
        yield "amount", Term(grand, 1, rows, "the sum of all columns", t, unit=columns[0].unit)
        for c, column in measures:
            yield "percent", Term(100 * column.total / grand, 1, rows, f"share of {column.name}", t, c, step="share")
    yield "count", Term(len(columns), 2, rows, "the number of columns", t)


def _of_group(
    t: int, table: EvidenceTable, c: int, column: EvidenceColumn, group: RowGroup
) -> Iterator[tuple[Family, Term]]:
    values = [column.numbers[row] for row in group.rows if row in column.numbers]
    if len(values) < 2:
        return
    rows, name = frozenset(group.rows), f"{column.name} of {group.what}"
    total = math.fsum(values)
    if column.adds_up:
        yield "amount", Term(total, group.tier, rows, f"the sum of {name}", t, c, column.unit)
        if table.complete and column.total > 0 and group.tier:
            share = 100 * total / column.total
            yield "percent", Term(share, group.tier, rows, f"share of {name}", t, c, step="share")
    elif column.is_percent:
        scale = 100 if column.is_fraction else 1
        yield "percent", Term(scale * total, group.tier + 1, rows, f"the sum of {name}", t, c, step="sum")
    if (group.tier and len(set(values)) == 1) or not table.averages(column):
        return
    yield (
        "amount",
        Term(total / len(values), group.tier + 1, rows, f"the mean of {name}", t, c, column.unit, step="mean"),
    )
    ordered = sorted(values)
    if group.tier == 0:
        half = len(ordered) // 2
        middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
        yield "amount", Term(middle, 2, rows, f"the median of {name}", t, c, column.unit, step="median")
    if group.tier <= 1 and len(values) > 2:
        gap = ordered[-1] - ordered[0]
        yield "amount", Term(gap, group.tier + 2, rows, f"the range of {name}", t, c, column.unit, step="difference")


def _changes(
    t: int, table: EvidenceTable, c: int, column: EvidenceColumn, named: list[int]
) -> Iterator[tuple[Family, Term]]:
    """Yield shares of the total, differences and changes from row to row, and from the first row to the last."""
    if table.rows > _ROWS:
        return
    if table.complete and column.adds_up and column.total > 0:
        for row, value in column.numbers.items():
            what = f"share of {column.name} of {table.row_label(row)}"
            yield "percent", Term(100 * value / column.total, 1, frozenset({row}), what, t, c, step="share")
    ends = [*column.numbers][:1] + [*column.numbers][-1:]
    near = [row for row in {**dict.fromkeys(named), **dict.fromkeys(column.extremes)} if row in column.numbers]
    if table.rows <= _PAIRED or table.printed:
        near = list(column.numbers)
    near = sorted(near[:_PAIRED])
    following = set(pairwise(column.numbers)) | set(pairwise(ends))
    for a, b in dict.fromkeys([*following, *combinations(near, 2)]):
        first, second = column.numbers[a], column.numbers[b]
        tier = 1 if table.periods and (a, b) in following else 2
        rows = frozenset({a, b})
        what = f"{column.name} from {table.row_label(a)} to {table.row_label(b)}"
        yield (
            "amount",
            Term(second - first, tier, rows, f"the difference of {what}", t, c, column.unit, step="difference"),
        )
        if table.printed and first and second:
            yield "percent", Term(100 * min(first, second) / max(first, second), tier, rows, f"share of {what}", t, c)
        for x, y in ((first, second), (second, first)) if not table.periods else ((first, second),):
            if x:
                change = 100 * (y - x) / abs(x)
                yield "percent", Term(change, tier, rows, f"the change of {what}", t, c, signed=True, step="change")


def _of_two(
    t: int,
    table: EvidenceTable,
    one: tuple[int, EvidenceColumn],
    other: tuple[int, EvidenceColumn],
    groups: list[RowGroup],
) -> Iterator[tuple[Family, Term]]:
    """Yield quotients, differences and products of two columns, for each row and for groups of rows."""
    alike = _are_alike(one[1], other[1])
    for (c, top), (d, bottom) in ((one, other), (other, one)):
        both = [row for row in top.numbers if bottom.numbers.get(row)]
        unit = top.unit if not bottom.unit else ""
        for row, scale in [(row, scale) for row in both for scale in {1.0, top.factor / bottom.factor}]:
            over, under = top.numbers[row] * scale, bottom.numbers[row]
            what = f"{top.name} per {bottom.name} of {table.row_label(row)}"
            yield "amount", Term(over / under, 1, frozenset({row}), what, t, c, unit, d, step="quotient")
            if not alike:
                continue
            yield "percent", Term(100 * over / under, 2, frozenset({row}), what, t, c, "", d)
            less = f"{what}, less 1"
            change = 100 * (over - under) / abs(under)
            yield "percent", Term(change, 2, frozenset({row}), less, t, c, "", d, step="change")
            if over + under > 0:
                both_of = f"{top.name} as a share of {top.name} and {bottom.name} of {table.row_label(row)}"
                share = 100 * over / (over + under)
                yield "percent", Term(share, 2, frozenset({row}), both_of, t, c, "", d, step="share")
        for group in groups:
            rows = [row for row in group.rows if row in both]
            over, under = (math.fsum(column.numbers[row] for row in rows) for column in (top, bottom))
            if len(rows) < 2 or not under:
                continue
            what, kept = f"{top.name} per {bottom.name} of {group.what}", frozenset(group.rows)
            yield "amount", Term(over / under, group.tier + 1, kept, what, t, c, unit, d, step="quotient")
            if alike:
                yield "percent", Term(100 * over / under, group.tier + 2, kept, what, t, c, "", d)
            if top.adds_up or not (bottom.whole and bottom.adds_up):
                continue
            weighted = math.fsum(top.numbers[row] * bottom.numbers[row] for row in rows)
            mean = f"the mean of {top.name} weighted by {bottom.name} of {group.what}"
            yield "amount", Term(weighted / under, group.tier + 1, kept, mean, t, c, top.unit, d, step="mean")
    (c, left), (d, right) = one, other
    both = [row for row in left.numbers if row in right.numbers]
    for row in both:
        x, y = left.numbers[row], right.numbers[row]
        what = f"{left.name} and {right.name} of {table.row_label(row)}"
        unit = left.unit if left.unit == right.unit else ""
        if alike:
            less = f"the difference of {what}"
            yield "amount", Term(x - y, 1, frozenset({row}), less, t, c, unit, d, step="difference")
            if left.adds_up and right.adds_up:
                yield "amount", Term(x + y, 2, frozenset({row}), f"the sum of {what}", t, c, unit, d, step="sum")
        yield "amount", Term(x * y, 2, frozenset({row}), f"the product of {what}", t, c, "", d, step="product")
    for group in groups:
        rows = [row for row in group.rows if row in both]
        if len(rows) > 1 and group.tier <= 1:
            product = math.fsum(left.numbers[row] * right.numbers[row] for row in rows)
            what = f"the sum of {left.name} times {right.name} of {group.what}"
            unit, kept = left.unit or right.unit, frozenset(group.rows)
            yield "amount", Term(product, group.tier + 1, kept, what, t, c, unit, d, step="product")


def _are_alike(left: EvidenceColumn, right: EvidenceColumn) -> bool:
    """Return whether one column may be a share of another: counts of counts, but not counts of means."""
    return left.whole == right.whole and left.unit == right.unit and left.is_percent == right.is_percent


def _spans(t: int, table: EvidenceTable, groups: list[RowGroup]) -> Iterator[tuple[Family, Term]]:
    """Yield the time between the dates of a row, between rows that follow each other, and their means and sums."""
    dated = [(c, column) for c, column in enumerate(table.columns) if column.moments][:4]
    for i, (c, left) in enumerate(dated):
        moments = sorted(left.moments.items(), key=lambda item: item[1])
        for (a, first), (b, second) in [*pairwise(moments), (moments[0], moments[-1])]:
            seconds = (second - first).total_seconds()
            yield "seconds", Term(seconds, 1, frozenset({a, b}), f"the time between two {left.name}", t, c, "second")
        for _, right in dated[i + 1 :]:
            gaps = {r: (right.moments[r] - left.moments[r]).total_seconds() for r in left.moments if r in right.moments}
            for row, seconds in gaps.items():
                what = f"the time from {left.name} to {right.name} of {table.row_label(row)}"
                yield "seconds", Term(seconds, 0, frozenset({row}), what, t, c, "second")
            for group in groups:
                values = [gaps[row] for row in group.rows if row in gaps]
                if len(values) > 1:
                    what, kept = f"{left.name} to {right.name} of {group.what}", frozenset(group.rows)
                    mean = math.fsum(values) / len(values)
                    yield "seconds", Term(mean, group.tier, kept, f"the mean time from {what}", t, c, "second")
                    yield "seconds", Term(math.fsum(values), group.tier, kept, f"the time from {what}", t, c, "second")
