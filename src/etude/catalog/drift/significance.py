"""Bounds on how much two samples of the same data differ by chance, as evidence in natural logarithms.

Evidence `e` means that chance alone produces the difference with a probability of at most about exp(-e). All bounds are
closed forms that hold for any distribution, so that they need only a profile: counts, quantiles, frequent values.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

FALSE_ALARMS = 0.005
"""The expected number of false alarms when two samples of the same data are compared."""
CHECKS_PER_COLUMN = 20


def required_significance(columns: int) -> float:
    """Return the evidence that each check must reach in a comparison of that many columns."""
    return math.log(max(1, columns) * CHECKS_PER_COLUMN / FALSE_ALARMS)


def significance_of_shares(count: int, of: int, later: int, later_of: int) -> float:
    """Return the evidence that two shares differ (likelihood ratio, Chernoff bound)."""
    if of <= 0 or later_of <= 0:
        return 0.0
    half = _likelihood([(count, later), (max(0, of - count), max(0, later_of - later))])
    return max(0.0, half - math.log(2))


def significance_of_counts(pairs: Sequence[tuple[int, int]]) -> float:
    """Return the evidence that two samples differ in the proportions of their categories (G-test, chi-square tail).

    Categories seen fewer than ten times are counted together, since the test is unreliable for small counts.
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


def kolmogorov_distance(before: Sequence[float], after: Sequence[float]) -> float:
    """Return a lower bound of the Kolmogorov distance between two distributions, from equally spaced quantiles.

    At least a share `p` of the values is at or below the quantile of `p`, and less than `p` is below it. Together with
    the next quantile of the other distribution this bounds the difference without assumptions about what is between.
    """
    return max(_exceeds(before, after), _exceeds(after, before))


def _exceeds(one: Sequence[float], other: Sequence[float]) -> float:
    """Return a lower bound of how far the distribution function of `one` exceeds that of `other` at some point."""
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


def significance_of_distance(gap: float, rows: int, later_rows: int) -> float:
    """Return the evidence of a Kolmogorov distance between two samples (Dvoretzky, Kiefer, Wolfowitz, Massart)."""
    if rows <= 0 or later_rows <= 0:
        return 0.0
    return max(0.0, 2 * gap * gap * rows * later_rows / (rows + later_rows) - math.log(2))


def significance_of_means(gap: float, deviation: float, rows: int, later_rows: int) -> float:
    """Return the evidence that two means differ, for values of at most this standard deviation."""
    if rows <= 0 or later_rows <= 0 or deviation <= 0:
        return 0.0
    return gap * gap / (2 * deviation * deviation * (1 / rows + 1 / later_rows))


def significance_of_distinct(before: int, rows: int, after: int, later_rows: int) -> float:
    """Return the evidence that the number of distinct values changed more than the number of rows explains.

    If no new values appear, the expected count is the same; if every row brings a new value, it grows with the rows.
    Every other case is in between. The variance of a count of distinct values is at most its mean.
    """
    if not rows or not later_rows:
        return 0.0
    growth = later_rows / rows
    low, high = before * min(1.0, growth), before * max(1.0, growth)
    gap = max(low - after, after - high, 0.0)
    return gap * gap / (2 * (before + after + 1))


def significant_extreme_factor(extreme: float, ordinary: float, rows: int, needed: float) -> float:
    """Return the factor by which a new extreme must exceed the previous one to be more than chance.

    `extreme` and `ordinary` are the distances of the extreme and of the 95% quantile from the median: they show how
    heavy the tail is. In a tail of that weight, the maximum of a new sample exceeds the previous one by a factor `r`
    with a probability of about r ** (-1 / weight).
    """
    if ordinary <= 0 or extreme <= ordinary or rows <= 40:
        return 2.0
    weight = math.log(extreme / ordinary) / math.log(0.05 * rows)
    return max(1.5, math.exp(min(700.0, needed * weight)))
