"""Small drawings as inline SVG: distributions, shares, lines over runs, related tables. No library, no script."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from etude.catalog.measure.axis import axis_position
from etude.catalog.measure.distribution import LISTED
from etude.catalog.model import DATED, ColumnProfile
from etude.catalog.page.html_markup import Markup, fill_html_template, join_markup

WIDTH, HEIGHT = 120, 24
BINS = 24
FINEST = 1_000_000
"""Parts of 1 that differences between fractions are counted in."""
FAR = 5.0
"""If two medians differ by more than this factor, their distributions are drawn on a logarithmic axis."""
NEIGHBOURS = 9
"""The maximum number of tables drawn on each side; a label counts the rest."""


def draw_distribution_svg(column: ColumnProfile, large: bool = False) -> Markup:
    """Draw the distribution of a column: bars over an axis if its values have one, else shares side by side.

    Unique whole numbers are a sequence, whose distribution says nothing.
    """
    if column.unique and column.family in ("integer", "text", "uuid") and not _is_dated_text(column):
        return Markup("")
    places = svg_quantiles_on_axis(column)
    if places:
        heights, cut_low, cut_high = _heights(column, places)
        return _steps(heights, cut_low, cut_high, large)
    if column.top and sum(t.share for t in column.top) > 0.05 and not column.unique and not large:
        return draw_shares_svg([t.share for t in column.top])
    return Markup("")


def svg_quantiles_on_axis(column: ColumnProfile) -> list[float]:
    """Return the quantiles on an axis; empty if the values have none."""
    if column.family == "boolean" or column.masked:
        return []
    places = [p for v in column.quantiles if (p := axis_position(v)) is not None]
    return places if len(places) == len(column.quantiles) == 21 and places[20] > places[0] else []


def _is_dated_text(column: ColumnProfile) -> bool:
    return column.family == "text" and len(column.quantiles) == 21


def _step(*columns: ColumnProfile) -> float | None:
    """Return the distance of which the differences between values of number columns are multiples, as far as known."""
    if any(c.family not in ("integer", "float", "decimal") for c in columns):
        return None
    if all(c.family == "integer" for c in columns):
        return 1.0
    known: set[int] = set()
    for column in columns:
        listed = column.histogram is not None and column.histogram.kind == "values"
        for value in column.histogram.edges if listed and column.histogram else column.quantiles:
            place = axis_position(value)
            if place is None or abs(place) > 1e9:
                return None
            known.add(round(place * FINEST))
    shared = math.gcd(*(v - min(known) for v in known))
    return shared / FINEST or None


def _edges(low: float, high: float, step: float | None = None, most: int = BINS) -> list[float]:
    """Return the edges of bins of equal width. With a step, each bin holds the same number of possible values."""
    if step is None:
        return [low + (high - low) * i / BINS for i in range(BINS + 1)]
    values = round((high - low) / step) + 1
    per_bin = max(1, math.ceil(values / most))
    return [low + step * (per_bin * i - 0.5) for i in range(math.ceil(values / per_bin) + 1)]


def _widened(low: float, high: float, step: float | None, origin: float) -> tuple[float, float]:
    """Return the range, widened to values that are whole steps from a value."""
    if step is None:
        return low, high
    down, up = math.floor((low - origin) / step + 1e-9), math.ceil((high - origin) / step - 1e-9)
    return origin + down * step, origin + up * step


def _binned(column: ColumnProfile, places: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Return the share of the values in each bin: counted if the profile lists all values, else estimated."""
    known = column.histogram
    if known is not None and known.kind == "values" and axis_position(known.edges[0]) == places[0]:
        total, counts = sum(known.counts) or 1.0, [0.0] * (len(edges) - 1)
        for value, count in zip(known.edges, known.counts):
            at = axis_position(value)
            if at is not None and edges[0] <= at <= edges[-1]:
                counts[min(len(counts) - 1, bisect_right(edges, at) - 1)] += count / total
        return counts
    ranks = _shares_at_or_below(column)
    below = [_share_below(places, ranks, e) for e in edges]
    if edges[0] <= places[0]:
        below[0] = 0.0
    if edges[-1] >= places[20]:
        below[-1] = 1.0
    return [max(0.0, b - a) for a, b in pairwise(below)]


def _heights(column: ColumnProfile, places: Sequence[float]) -> tuple[list[float], bool, bool]:
    """Return the bins of a histogram. A long tail is cut off and marked, so that the rest is visible."""
    low, high = places[0], places[20]
    middle = places[19] - places[1]
    cut_low = cut_high = False
    if middle > 0 and places[1] - low > 1.5 * middle:
        low, cut_low = places[1] - 0.25 * middle, True
    if middle > 0 and high - places[19] > 1.5 * middle:
        high, cut_high = places[19] + 0.25 * middle, True
    if not math.isfinite(high - low) or high <= low:
        return [], False, False
    step = _step(column)
    listed = column.histogram is not None and column.histogram.kind == "values"
    edges = _edges(*_widened(low, high, step, places[0]), step, LISTED if listed else BINS)
    return _binned(column, places, edges), cut_low, cut_high


def _steps(heights: Sequence[float], cut_low: bool, cut_high: bool, large: bool) -> Markup:
    if not heights:
        return Markup("")
    path = _outline(heights, max(heights) or 1.0)
    marks = ""
    if cut_low:
        marks += f'<path class="cut" d="M4 {HEIGHT - 9}l-4 3 4 3z"/>'
    if cut_high:
        marks += f'<path class="cut" d="M{WIDTH - 4} {HEIGHT - 9}l4 3-4 3z"/>'
    size = ' preserveAspectRatio="none"' if large else ""
    name = "h large" if large else "h"
    return Markup(f'<svg class="{name}" viewBox="0 0 {WIDTH} {HEIGHT}"{size}><path d="{path}"/>{marks}</svg>')


def _outline(heights: Sequence[float], top: float) -> str:
    width = WIDTH / len(heights)
    path = f"M0 {HEIGHT}"
    for height in heights:
        y = HEIGHT - (max(0.6, height / top * (HEIGHT - 1)) if height > 0 else 0)
        path += f"V{_n(y)}h{_n(width)}"
    return path + f"V{HEIGHT}z"


def draw_before_after_svg(before: ColumnProfile, after: ColumnProfile) -> Markup:
    """Draw two distributions on one axis of equal bins: the earlier as an outline, the later filled.

    The axis covers the middle 90% of both and a margin, so that a single extreme value does not hide the rest.
    """
    was, now = svg_quantiles_on_axis(before), svg_quantiles_on_axis(after)
    if not was or not now:
        return Markup("")
    step = _step(before, after)
    if min(was[0], now[0]) > 0 and not FAR > was[10] / now[10] > 1 / FAR and before.family not in DATED:
        # On a plain axis the smaller of the two would be one bar at the edge.
        was, now, step = [math.log(v) for v in was], [math.log(v) for v in now], None
    low, high = min(was[1], now[1]), max(was[19], now[19])
    margin = 0.1 * (high - low)
    low, high = max(min(was[0], now[0]), low - margin), min(max(was[20], now[20]), high + margin)
    if not math.isfinite(high - low) or high <= low:
        return Markup("")
    edges = _edges(*_widened(low, high, step, was[0]), step)
    first, second = _binned(before, was, edges), _binned(after, now, edges)
    top = max(*first, *second) or 1.0
    return fill_html_template(
        '<svg class="h two" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<path class="now" d="{now}"/><path class="was" d="{was}"/></svg>',
        w=WIDTH,
        h=HEIGHT,
        label=f"distribution of {after.name} before and after",
        now=_outline(second, top),
        was=_outline(first, top),
    )


def _shares_at_or_below(column: ColumnProfile) -> list[float]:
    """Return the place of each quantile between the first value (0) and the last (1), exact for few values too."""
    values = max(2, (column.rows or 0) - (column.nulls or 0))
    return [(max(1, math.ceil(k * values / 20)) - 1) / (values - 1) for k in range(21)]


def _share_below(quantiles: Sequence[float], ranks: Sequence[float], value: float) -> float:
    """Return the share of values below a value, by linear interpolation between the quantiles."""
    above = bisect_right(quantiles, value)
    if above == 0:
        return 0.0
    if above == len(quantiles):
        return 1.0
    left, right = quantiles[above - 1], quantiles[above]
    return ranks[above - 1] + (ranks[above] - ranks[above - 1]) * (value - left) / (right - left)


def draw_shares_svg(parts: Sequence[float]) -> Markup:
    """Draw shares side by side, the largest first; the remainder stays empty."""
    x, drawn = 0.0, ""
    for i, share in enumerate(parts):
        width = share * WIDTH
        if width < 0.4:
            break
        drawn += f'<rect class="s{min(i, 5)}" x="{_n(x)}" y="5" width="{_n(max(0.4, width - 0.6))}" height="14"/>'
        x += width
    frame = f'<rect class="frame" x=".25" y="5" width="{WIDTH - 0.5}" height="14"/>'
    return Markup(f'<svg class="h" viewBox="0 0 {WIDTH} {HEIGHT}">{frame}{drawn}</svg>')


def draw_share_bar_svg(share: float) -> Markup:
    """Draw a share as a short bar of 40 by 6 (sized by the style sheet)."""
    width = 0.0 if share <= 0 else max(1.0, min(1.0, share) * 40)
    return Markup(f'<svg class="b"><rect width="{_n(width)}" height="6"/></svg>')


def draw_sparkline_svg(values: Sequence[float | None], label: str) -> Markup:
    """Draw a line over the runs with its last point marked; empty for fewer than two values."""
    points = [(i, v) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    if len(points) < 2:
        return Markup("")
    low, high = min(v for _, v in points), max(v for _, v in points)
    # Draw a line that hardly changes as flat, so that noise does not look like a change.
    room = max(high - low, 0.02 * max(abs(high), abs(low)), 1e-12)
    base = (high + low - room) / 2

    def at(i: int, v: float) -> str:
        return f"{_n(2 + i / max(1, len(values) - 1) * 76)} {_n(17 - (v - base) / room * 14)}"

    line = "L".join(at(i, v) for i, v in points)
    x, y = at(*points[-1]).split(" ")
    return fill_html_template(
        '<svg class="spark" viewBox="0 0 80 20" role="img" aria-label="{label}"><path d="M{line}"/>'
        '<circle cx="{x}" cy="{y}" r="2"/></svg>',
        label=label,
        line=line,
        x=x,
        y=y,
    )


def draw_columns_over_time_svg(edges: Sequence[float], counts: Sequence[float], label: str) -> Markup:
    """Draw volume over time: for each interval a bar whose area is its count."""
    span = edges[-1] - edges[0]
    rates = [c / (b - a) if b > a else 0.0 for a, b, c in zip(edges, edges[1:], counts)]
    top = max(rates, default=0.0)
    if span <= 0 or top <= 0:
        return Markup("")
    path = "M0 60"
    for edge, rate in zip(edges[1:], rates):
        path += f"V{_n(60 - rate / top * 58)}H{_n((edge - edges[0]) / span * 320)}"
    return fill_html_template(
        '<svg class="volume" viewBox="0 0 320 60" role="img" aria-label="{label}" preserveAspectRatio="none">'
        '<path d="{path}V60z"/></svg>',
        label=label,
        path=path,
    )


def draw_neighbourhood_svg(
    name: str, left: Sequence[tuple[str, str, str]], right: Sequence[tuple[str, str, str]], label: str
) -> Markup:
    """Draw a table between the tables that refer to it (left) and those it refers to (right).

    Each of these is a name, columns and an anchor.
    """
    rows = max(len(left[:NEIGHBOURS]), len(right[:NEIGHBOURS]), 1)
    more = len(left) > NEIGHBOURS or len(right) > NEIGHBOURS
    height = rows * 40 + 16 + (18 if more else 0)
    middle = (rows * 40) / 2 + 8
    parts = []
    for side, x, edge, to in ((left, 8, 208, 282), (right, 512, 512, 438)):
        count = len(side[:NEIGHBOURS])
        offset = (rows - count) * 20
        for i, (other, columns, anchor) in enumerate(side[:NEIGHBOURS]):
            y = 8 + offset + i * 40
            bend = (edge + to) / 2
            parts.append(
                fill_html_template(
                    '<path class="link" d="M{edge} {mid}C{bend} {mid} {bend} {middle} {to} {middle}"/>'
                    '<a href="#{anchor}"><rect x="{x}" y="{y}" width="200" height="32" rx="3"/>'
                    '<text x="{tx}" y="{ty}">{other}</text><text class="by" x="{tx}" y="{by}">{columns}</text>'
                    "<title>{other}: {columns}</title></a>",
                    edge=edge,
                    mid=y + 16,
                    bend=_n(bend),
                    middle=_n(middle),
                    to=to,
                    anchor=anchor,
                    x=x,
                    y=y,
                    tx=x + 10,
                    ty=y + 14,
                    by=y + 26,
                    other=_cut(other, 26),
                    columns=_cut(columns, 34),
                )
            )
        if len(side) > NEIGHBOURS:
            parts.append(
                fill_html_template(
                    '<text class="by" x="{x}" y="{y}">and {n} more</text>', x=x, y=height - 8, n=len(side) - NEIGHBOURS
                )
            )
    parts.append(
        fill_html_template(
            '<rect class="self" x="282" y="{y}" width="156" height="32" rx="3"/>'
            '<text class="self" x="360" y="{ty}" text-anchor="middle">{name}</text>',
            y=_n(middle - 16),
            ty=_n(middle + 4),
            name=_cut(name, 20),
        )
    )
    return fill_html_template(
        '<svg class="near" viewBox="0 0 720 {height}" role="group" aria-label="{label}">{parts}</svg>',
        height=height,
        label=label,
        parts=join_markup(parts),
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _n(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text not in ("-0.0", "0.0") else "0"
