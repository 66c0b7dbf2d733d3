"""Find changes in the numbers of a column: unit, sign, distribution, outliers, extremes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from etude.catalog.drift.change import SMALL, Change, ChangePair, Kind, change_share, change_value
from etude.catalog.drift.significance import (
    kolmogorov_distance,
    significance_of_distance,
    significance_of_shares,
    significant_extreme_factor,
)
from etude.catalog.measure.axis import quantile_axis
from etude.catalog.model import DATED, NUMERIC

FACTORS = (10, 100, 1000, 10_000, 1e6, 1e9, 60, 3600, 24, 1024, 1.609344, 2.54, 2.2046226, 3.28084, 12)
OUTLYING = 0.005
"""Growth of the share of outliers below this is not reported."""


def significant_number_distance(pair: ChangePair, before: Sequence[float], after: Sequence[float]) -> float:
    """Return the distance of two distributions if it is neither chance nor small, else 0."""
    gap = kolmogorov_distance(before, after)
    rows = pair.values(pair.before, pair.before.provenance.quantiles)
    later = pair.values(pair.after, pair.after.provenance.quantiles)
    return gap if gap > SMALL and significance_of_distance(gap, rows, later) > pair.needed else 0.0


def number_drift(pair: ChangePair) -> Iterator[Change]:
    """Find a change in scale, sign, location or spread; only the one that explains most is reported."""
    before, after = quantile_axis(pair.before), quantile_axis(pair.after)
    if not before or not after or {pair.before.family, pair.after.family} - NUMERIC or pair.role == "reference":
        return
    if pair.before.family == "integer" and (pair.role == "key" or (pair.before.unique and pair.after.unique)):
        return  # A sequence: its values grow with the rows.
    gap = significant_number_distance(pair, before, after)
    if not gap:
        return
    name = pair.after.name
    mirrored = [-v for v in reversed(before)]
    if before[0] >= 0 > after[10] and not significant_number_distance(pair, mirrored, after):
        yield pair.change("sign", f"`{name}` changed its sign.", before=pair.before.max, after=pair.after.min)
        return
    factor = _factor(pair, before, after)
    if factor:
        times = f"{change_value(factor)} times larger" if factor > 1 else f"{change_value(1 / factor)} times smaller"
        text = (
            f"`{name}` is about {times}: the median went from {change_value(before[10])} to "
            f"{change_value(after[10])}. A new unit?"
        )
        yield pair.change("scale", text, min(1.0, abs(math.log10(factor)) / 3), before[10], after[10])
        return
    inner, later_inner = before[15] - before[5], after[15] - after[5]
    moved = abs(after[10] - before[10])
    if inner > 0 and later_inner > 0 and moved < 0.15 * max(inner, later_inner):
        wider = later_inner > inner
        text = (
            f"The values of `{name}` are spread {'more widely' if wider else 'more narrowly'}: the middle half spans "
            f"{change_value(later_inner)} ({change_value(inner)} before)."
        )
        yield pair.change("spread", text, gap * 2, inner, later_inner)
        return
    text = (
        f"`{name}` is distributed differently: the median went from {change_value(before[10])} to "
        f"{change_value(after[10])}"
    )
    text += f"; at least {change_share(gap)} of the rows differ."
    yield pair.change("shift", text, gap * 1.6, before[10], after[10])


def _factor(pair: ChangePair, before: Sequence[float], after: Sequence[float]) -> float | None:
    """Return the factor by which all values changed, if there is one; known unit conversions first."""
    ratios = sorted(a / b for b, a in zip(before, after) if b * a > 0)
    if len(ratios) < 11:
        return None
    middle = ratios[len(ratios) // 2]
    known = [f for factor in FACTORS for f in (factor, 1 / factor)]
    near = sorted((abs(math.log(f / middle)), f) for f in known)
    candidates = [f for off, f in near[:2] if off < 0.25]
    if middle >= 2 or middle <= 0.5:
        candidates.append(middle)
    for factor in candidates:
        rescaled = [v * factor for v in before]
        if kolmogorov_distance(rescaled, after) <= SMALL or not significant_number_distance(pair, rescaled, after):
            return factor
    return None


def number_precision_drift(pair: ChangePair) -> Iterator[Change]:
    """Find numbers that lost their decimals."""
    before, after = quantile_axis(pair.before), quantile_axis(pair.after)
    if not before or not after or pair.before.family not in ("decimal", "float") or pair.after.family not in NUMERIC:
        return
    broken = sum(v != int(v) for v in before) / len(before)
    whole = all(v == int(v) for v in after)
    several = {v for v in after if v == int(v)}
    if whole and len(several) > 5 and broken > 0 and -len(several) * math.log(max(1 - broken, 1e-9)) > pair.needed:
        yield pair.change("precision", f"`{pair.after.name}` now has only whole numbers; it had decimals before.")


def number_extremes_drift(pair: ChangePair) -> Iterator[Change]:
    """Find a new smallest or largest value far beyond the previous one."""
    before, after = quantile_axis(pair.before), quantile_axis(pair.after)
    families = {pair.before.family, pair.after.family}
    if not before or not after or not (families <= NUMERIC or families <= DATED) or pair.role == "reference":
        return
    if pair.role == "key" or (pair.before.unique and pair.before.family == "integer"):
        return
    rows, later, name = pair.values(pair.before), pair.values(pair.after), pair.after.name
    needed = pair.needed + max(0.0, math.log(max(1, later) / max(1, rows)))
    middle, deviation = before[10], pair.before.stddev or 0.0
    if families <= DATED and after[20] > before[20] and after[20] - after[19] < 3 * max(before[20] - before[19], 86400):
        after = [*after[:20], before[20]]  # Newer dates are expected.
    for sign, end, inner, word, was, now in (
        (-1, 0, 1, "smallest", pair.before.min, pair.after.min),
        (1, 20, 19, "largest", pair.before.max, pair.after.max),
    ):
        far, ordinary = sign * (before[end] - middle), sign * (before[inner] - middle)
        # If most values are the same, the 95% quantile is the median and says nothing about the tail.
        reach = significant_extreme_factor(far, ordinary if ordinary > 0 else deviation, rows, needed)
        if rows > 40 and sign * (after[end] - middle) > max(reach * far, 0) and far > 0:
            text = f"The {word} `{name}` is now {change_value(now)}, far from the previous {change_value(was)}."
            yield pair.change("range", text, 0.5, was, now)


def number_outliers_drift(pair: ChangePair) -> Iterator[Change]:
    """Find many more outliers than before, for example because part of the rows has another unit."""
    was, now, name = pair.before.outliers, pair.after.outliers, pair.after.name
    if was is None or now is None or not pair.readable or pair.role:
        return
    rows = pair.values(pair.before, pair.before.provenance.quantiles)
    later = pair.values(pair.after, pair.after.provenance.quantiles)
    for word, count, more, fence, further in (
        ("large", was.above, now.above, was.high, now.high >= was.high),
        ("small", was.below, now.below, was.low, now.low <= was.low),
    ):
        # The new fence is at least as far out as the old one, so this is a lower bound of the count beyond the old one.
        if not further or not rows or not later or more > later:
            continue
        grown = more / later - count / rows
        if grown > OUTLYING and grown > count / rows and significance_of_shares(count, rows, more, later) > pair.needed:
            text = (
                f"Unusually {word} values of `{name}`, beyond {change_value(fence)}, went from "
                f"{change_share(count / rows)} "
                f"to at least {change_share(more / later)} of the rows."
            )
            yield pair.change("outliers", text, math.sqrt(grown) * 2, count / rows, more / later)


def unusual_number_drift(pair: ChangePair) -> Iterator[Change]:
    """Find negative numbers, NaN and infinities in a column that had none."""
    kinds: tuple[tuple[Kind, int | None, int | None, str], ...] = (
        ("negative", pair.before.negatives, pair.after.negatives, "negative"),
        ("nan", pair.before.nans, pair.after.nans, "not a number (NaN)"),
        ("nan", pair.before.infinities, pair.after.infinities, "infinite"),
    )
    rows, later = pair.values(pair.before), pair.values(pair.after)
    for kind, was, now, word in kinds:
        if was == 0 and now and significance_of_shares(was, rows, now, later) > pair.needed:
            text = f"{change_share(now / later)} of `{pair.after.name}` are {word} ({now:,} values); none were before."
            yield pair.change(kind, text, math.sqrt(now / later), was, now)
