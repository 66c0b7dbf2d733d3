"""How much two samples of the same thing may differ: upper bounds on chance, as evidence in natural logarithms.

Evidence of `e` says: chance alone does this with a probability of at most about exp(-e). All bounds are closed forms
that hold without knowing the distribution, so that a profile (counts, quantiles, frequent values) is all they need.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

FALSE_ALARMS = 0.005
"""Changes that one comparison of two samples of the same data is allowed to report by chance, on average."""
CHECKS_PER_COLUMN = 20


def required(columns: int) -> float:
    """The evidence that one check among those of so many columns must reach."""
    return math.log(max(1, columns) * CHECKS_PER_COLUMN / FALSE_ALARMS)


def of_shares(count: int, of: int, later: int, later_of: int) -> float:
    """Evidence that two shares differ (likelihood ratio, Chernoff's bound)."""
    if of <= 0 or later_of <= 0:
        return 0.0
    half = _likelihood([(count, later), (max(0, of - count), max(0, later_of - later))])
    return max(0.0, half - math.log(2))


def of_counts(pairs: Sequence[tuple[int, int]]) -> float:
    """Evidence that two samples have their categories in different proportions (G-test, bound of the chi-square tail).

    Categories seen fewer than ten times are counted together: alone they say little and would say it too loudly.
    """
    kept = [p for p in pairs if sum(p) >= 10]
    rare = [p for p in pairs if sum(p) < 10]
    if rare:
        kept.append((sum(a for a, _ in rare), sum(b for _, b in rare)))
    freedom = len(kept) - 1
    if freedom < 1:
        return 0.0
    statistic = 2 * _likelihood(kept)
    if statistic <= freedom:
        return 0.0
    return (statistic - freedom - freedom * math.log(statistic / freedom)) / 2


def _likelihood(pairs: Sequence[tuple[int, int]]) -> float:
    first, second = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    total = first + second
    found = 0.0
    for a, b in pairs:
        for seen, side in ((a, first), (b, second)):
            if seen:
                found += seen * math.log(seen * total / (side * (a + b)))
    return found


def distance(before: Sequence[float], after: Sequence[float]) -> float:
    """The Kolmogorov distance that two lists of equally spaced quantiles prove: the true one is at least this.

    At a quantile `q` of share `p` at least `p` of the values are at or below, and fewer than `p` are below. That and
    the neighbouring quantile of the other side bound the difference without any assumption on what lies in between.
    """
    return max(_exceeds(before, after), _exceeds(after, before))


def _exceeds(one: Sequence[float], other: Sequence[float]) -> float:
    """By how much the distribution function of `one` is known to exceed that of `other` somewhere."""
    best = 0.0
    for i, value in enumerate(one):
        above = bisect_right(other, value)
        at_least = i / (len(one) - 1)
        below = above / (len(other) - 1) if above < len(other) else 1.0
        best = max(best, at_least - below)
    for j, value in enumerate(other):
        under = bisect_left(one, value)
        if under:
            best = max(best, (under - 1) / (len(one) - 1) - j / (len(other) - 1))
    return best


def of_distance(gap: float, rows: int, later_rows: int) -> float:
    """Evidence of a Kolmogorov distance between two samples (Dvoretzky, Kiefer, Wolfowitz, Massart)."""
    if rows <= 0 or later_rows <= 0:
        return 0.0
    return max(0.0, 2 * gap * gap * rows * later_rows / (rows + later_rows) - math.log(2))


def of_means(gap: float, deviation: float, rows: int, later_rows: int) -> float:
    """Evidence that two means differ, for values of at most this standard deviation."""
    if rows <= 0 or later_rows <= 0 or deviation <= 0:
        return 0.0
    return gap * gap / (2 * deviation * deviation * (1 / rows + 1 / later_rows))


def of_distinct(before: int, rows: int, after: int, later_rows: int) -> float:
    """Evidence that the number of distinct values changed by more than the number of rows explains.

    Between a column that has shown all it has and one where each row brings a new value, the expectation lies between
    the same count and the same count per row. The variance of a count of distinct values is at most its mean.
    """
    if not rows or not later_rows:
        return 0.0
    growth = later_rows / rows
    low, high = before * min(1.0, growth), before * max(1.0, growth)
    gap = max(low - after, after - high, 0.0)
    return gap * gap / (2 * (before + after + 1))


def reach(extreme: float, ordinary: float, rows: int, needed: float) -> float:
    """How many times further than the former extreme a new one must lie to be more than chance.

    `extreme` and `ordinary` are the distances of the extreme and of the 95% quantile from the median: they tell how
    heavy the tail is. In a tail of that weight the largest of a fresh sample exceeds the former by a factor `r` with a
    probability of about r ** (-1 / weight).
    """
    if ordinary <= 0 or extreme <= ordinary or rows <= 40:
        return 2.0
    weight = math.log(extreme / ordinary) / math.log(0.05 * rows)
    return max(1.5, math.exp(min(700.0, needed * weight)))
