"""Small drawings as inline SVG: distributions, shares, lines over runs, related tables. No library, no script."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from etude.catalog.measure.axis import position
from etude.catalog.model import ColumnProfile
from etude.catalog.page.markup import Markup, fill, join

WIDTH, HEIGHT = 120, 24
BINS = 24
NEIGHBOURS = 9
"""The maximum number of tables drawn on each side; a label counts the rest."""


def distribution(column: ColumnProfile) -> Markup:
    """Draw the distribution of a column: bars over an axis if its values have one, else shares side by side."""
    places = [position(v) for v in column.quantiles]
    known = [p for p in places if p is not None]
    few = column.distinct is not None and column.distinct == len(column.top) and len(column.top) <= 10
    if len(known) == len(places) == 21 and known[20] > known[0] and column.family not in ("text", "boolean"):
        if few:
            return _bars([(position(t.value), t.share) for t in column.top])
        return _steps(known, min(BINS, max(4, column.distinct or BINS)))
    if column.top and sum(t.share for t in column.top) > 0.05 and not column.unique:
        return shares([t.share for t in column.top])
    return Markup("")


def _bars(values: Sequence[tuple[float | None, float]]) -> Markup:
    """Draw one bar for each of a few values, in order and evenly spaced."""
    ordered = [share for _, share in sorted((p, s) for p, s in values if p is not None)]
    if not ordered:
        return Markup("")
    step = WIDTH / len(ordered)
    width = min(step - 2, 22)
    path = ""
    for i, share in enumerate(ordered):
        height = max(0.6, share / max(ordered) * HEIGHT)
        path += f"M{_n(i * step + (step - width) / 2)} {HEIGHT}v{_n(-height)}h{_n(width)}v{_n(height)}z"
    return Markup(f'<svg class="h" viewBox="0 0 {WIDTH} {HEIGHT}"><path d="{path}"/></svg>')


def _steps(quantiles: Sequence[float], bins: int) -> Markup:
    """Draw a histogram estimated from the quantiles. A long tail is cut off and marked, so that the rest is visible."""
    low, high = quantiles[0], quantiles[20]
    middle = quantiles[19] - quantiles[1]
    cut_low = cut_high = False
    if middle > 0 and quantiles[1] - low > 1.5 * middle:
        low, cut_low = quantiles[1] - 0.25 * middle, True
    if middle > 0 and high - quantiles[19] > 1.5 * middle:
        high, cut_high = quantiles[19] + 0.25 * middle, True
    if not math.isfinite(high - low) or high <= low:
        return Markup("")
    edges = [low + (high - low) * i / bins for i in range(bins + 1)]
    below = [_share_below(quantiles, e) for e in edges]
    if not cut_low:
        below[0] = 0.0
    if not cut_high:
        below[-1] = 1.0
    heights = [max(0.0, b - a) for a, b in pairwise(below)]
    top = max(heights) or 1.0
    width = WIDTH / bins
    path = f"M0 {HEIGHT}"
    for height in heights:
        y = HEIGHT - (max(0.6, height / top * (HEIGHT - 1)) if height > 0 else 0)
        path += f"V{_n(y)}h{_n(width)}"
    path += f"V{HEIGHT}z"
    marks = ""
    if cut_low:
        marks += f'<path class="cut" d="M4 {HEIGHT - 9}l-4 3 4 3z"/>'
    if cut_high:
        marks += f'<path class="cut" d="M{WIDTH - 4} {HEIGHT - 9}l4 3-4 3z"/>'
    return Markup(f'<svg class="h" viewBox="0 0 {WIDTH} {HEIGHT}"><path d="{path}"/>{marks}</svg>')


def _share_below(quantiles: Sequence[float], value: float) -> float:
    """Return the share of values below a value, by linear interpolation between the quantiles."""
    above = bisect_right(quantiles, value)
    if above == 0:
        return 0.0
    if above == len(quantiles):
        return 1.0
    left, right = quantiles[above - 1], quantiles[above]
    return (above - 1 + (value - left) / (right - left)) / (len(quantiles) - 1)


def shares(parts: Sequence[float]) -> Markup:
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


def bar(share: float) -> Markup:
    """Draw a share as a short bar of 40 by 6 (sized by the style sheet)."""
    width = 0.0 if share <= 0 else max(1.0, min(1.0, share) * 40)
    return Markup(f'<svg class="b"><rect width="{_n(width)}" height="6"/></svg>')


def sparkline(values: Sequence[float | None], label: str) -> Markup:
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
    return fill(
        '<svg class="spark" viewBox="0 0 80 20" role="img" aria-label="{label}"><path d="M{line}"/>'
        '<circle cx="{x}" cy="{y}" r="2"/></svg>',
        label=label,
        line=line,
        x=x,
        y=y,
    )


def columns_over_time(edges: Sequence[float], counts: Sequence[float], label: str) -> Markup:
    """Draw volume over time: for each interval a bar whose area is its count."""
    span = edges[-1] - edges[0]
    rates = [c / (b - a) if b > a else 0.0 for a, b, c in zip(edges, edges[1:], counts)]
    top = max(rates, default=0.0)
    if span <= 0 or top <= 0:
        return Markup("")
    path = "M0 60"
    for edge, rate in zip(edges[1:], rates):
        path += f"V{_n(60 - rate / top * 58)}H{_n((edge - edges[0]) / span * 320)}"
    return fill(
        '<svg class="volume" viewBox="0 0 320 60" role="img" aria-label="{label}" preserveAspectRatio="none">'
        '<path d="{path}V60z"/></svg>',
        label=label,
        path=path,
    )


def neighbourhood(
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
                fill(
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
                fill(
                    '<text class="by" x="{x}" y="{y}">and {n} more</text>', x=x, y=height - 8, n=len(side) - NEIGHBOURS
                )
            )
    parts.append(
        fill(
            '<rect class="self" x="282" y="{y}" width="156" height="32" rx="3"/>'
            '<text class="self" x="360" y="{ty}" text-anchor="middle">{name}</text>',
            y=_n(middle - 16),
            ty=_n(middle + 4),
            name=_cut(name, 20),
        )
    )
    return fill(
        '<svg class="near" viewBox="0 0 720 {height}" role="group" aria-label="{label}">{parts}</svg>',
        height=height,
        label=label,
        parts=join(parts),
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _n(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text not in ("-0.0", "0.0") else "0"
