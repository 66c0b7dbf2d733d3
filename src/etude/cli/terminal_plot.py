"""Lines and points for the terminal: a Vega-Lite chart as a small plot of braille characters."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from etude.cli.printable import printable
from etude.cli.table import table_cell_width
from etude.column_title import column_title

ROWS = 5_000
"""The most rows that a plot reads."""
LEAST = 4
"""A line with fewer points says no more than bars do."""
WIDTH = 60
"""Characters between the ends of the x axis."""
SERIES = 8
FEW = 60
"""Up to this many points are drawn as bullets, which are easier to see than braille dots."""
LABEL = 20
"""The most characters of a label below the x axis."""
_LINES, _POINTS = ("line", "area", "trail"), ("point", "circle", "square")
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_ISO = re.compile(r"\d{4}-\d{2}(-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?)?")


@dataclass(frozen=True)
class _Axis:
    """The horizontal axis: where values lie, and how they are written."""

    places: list[float | None]
    ends: tuple[str, str, str]
    """The labels at the left, in the middle and at the right."""


def draw_terminal_plot(chart: dict[str, Any], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return lines or points as text; empty if the chart is another one, or computes values.

    Points lie where their time or number is, so a gap in time is a gap in the plot, and no line crosses it.
    """
    mark = chart.get("mark")
    kind = mark.get("type") if isinstance(mark, dict) else mark
    encoding = chart.get("encoding")
    if kind not in _LINES + _POINTS or not isinstance(encoding, dict) or "transform" in chart:
        return ""
    channels = {k: v for k, v in encoding.items() if k != "tooltip"}
    if not {"x", "y"} <= set(channels) <= {"x", "y", "color"} or not all(map(_is_plain, channels.values())):
        return ""
    names = {part: _column(channel) for part, channel in channels.items()}
    if channels["y"].get("type") != "quantitative" or not set(names.values()) <= set(columns):
        return ""
    at = {part: columns.index(name) for part, name in names.items()}
    rows = [row for row in rows if row[at["x"]] is not None]
    axis = _read_axis([row[at["x"]] for row in rows])
    ups = [float(row[at["y"]]) if _is_number(row[at["y"]]) else None for row in rows]
    present = [up for up, place in zip(ups, axis.places) if up is not None and place is not None]
    groups = [str(row[at["color"]]) if "color" in at else "" for row in rows]
    series = list(dict.fromkeys(groups))
    if len(present) < LEAST or len(set(axis.places)) < LEAST // 2 or len(series) > SERIES:
        return ""
    low, high, steps = _scale(min(present), max(present))
    canvas = _Canvas(low, high, steps)
    for number, name in enumerate(series):
        points = [(x, y) for x, y, group in zip(axis.places, ups, groups) if group == name and x is not None]
        sign = chr(ord("a") + number) if len(series) > 1 else "•" if kind in _POINTS and len(present) <= FEW else ""
        canvas.add(sorted(points, key=lambda point: point[0]), sign, joined=kind in _LINES and not sign)
    legend = "  ".join(f"{chr(ord('a') + n)} {printable(name)}" for n, name in enumerate(series)) if series[1:] else ""
    heading = _heading(chart, names["x"], names["y"])
    return "".join(f"{line}\n" for line in (heading, *filter(None, [legend]), *canvas.lines(axis.ends)))


class _Canvas:
    """Dots and signs, and the vertical axis beside them."""

    def __init__(self, low: float, high: float, steps: int) -> None:
        self._low, self._high, self._steps = low, high, steps
        # A row for each label and one between two labels.
        self._dots = [[0] * WIDTH for _ in range(2 * steps + 1)]
        self._signs: dict[tuple[int, int], str] = {}

    def add(self, points: Sequence[tuple[float, float | None]], sign: str, joined: bool) -> None:
        """Add points, from left to right between 0 and 1; `joined` draws lines between neighbours."""
        widest = _widest_step([x for x, _ in points])
        before: tuple[float, float, float] | None = None
        for x, y in points:
            if y is None:
                before = None
                continue
            across, down = x * (2 * WIDTH - 1), 1.5 + (self._high - y) / (self._high - self._low) * 8 * self._steps
            if sign:
                place = int(down) // 4, int(across) // 2
                self._signs[place] = sign if self._signs.get(place, sign) == sign else "*"
            elif joined and before is not None and x - before[0] <= widest:
                self._join(before[1:], (across, down))
            else:
                self._dot(across, down)
            before = x, across, down

    def _join(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        count = max(1, math.ceil(max(abs(end[0] - start[0]), abs(end[1] - start[1]))))
        for n in range(count + 1):
            self._dot(start[0] + (end[0] - start[0]) * n / count, start[1] + (end[1] - start[1]) * n / count)

    def _dot(self, across: float, down: float) -> None:
        x, y = round(across), round(down)
        self._dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]

    def lines(self, ends: tuple[str, str, str]) -> Iterable[str]:
        """Yield the rows of the plot with the labels of both axes."""
        step = (self._high - self._low) / self._steps
        decimals = next((n for n in range(12) if math.isclose(round(step, n), step, rel_tol=1e-6)), 12)
        labels = [_number(self._high - n * step, decimals) for n in range(self._steps + 1)]
        width = max(map(len, labels))
        for row, dots in enumerate(self._dots):
            label, tick = (labels[row // 2], "┤") if row % 2 == 0 else ("", "│")
            cells = (self._signs.get((row, at)) or (chr(0x2800 + d) if d else " ") for at, d in enumerate(dots))
            yield f"{label:>{width}} {tick}{''.join(cells)}".rstrip()
        yield f"{'':>{width}} └{'─' * WIDTH}"
        yield f"{'':>{width}}  {_spread(ends)}".rstrip()


def _read_axis(values: Sequence[Any]) -> _Axis:
    """Return where values lie between 0 and 1: as numbers or times, or else one after the other."""
    times = [_time(value) for value in values]
    if values and all(time is not None for time in times):
        seconds = [time.timestamp() for time in times if time is not None]
        low, high = min(seconds), max(seconds)
        whole = all(second % 86_400 == 0 for second in seconds)
        months = whole and all(time is not None and time.day == 1 for time in times)

        def write(second: float) -> str:
            time = dt.datetime.fromtimestamp(second, dt.UTC)
            if months:
                return f"{time:%Y-%m}"
            return f"{time:%Y-%m-%d}" if whole else f"{time:%Y-%m-%d %H:%M}"

        return _Axis([*_place(seconds, low, high)], (write(low), write((low + high) / 2), write(high)))
    if values and all(_is_number(value) for value in values):
        numbers = [float(value) for value in values]
        low, high = min(numbers), max(numbers)
        whole = all(number == round(number) for number in numbers)
        # A year has no separator; neither has a small number.
        plain = whole and high < 10_000

        def show(number: float) -> str:
            if whole:
                return f"{round(number)}" if plain else f"{round(number):,}"
            return _number(number, max(0, 2 - math.floor(math.log10((high - low) or 1))))

        return _Axis([*_place(numbers, low, high)], (show(low), show((low + high) / 2), show(high)))
    texts = [str(value) for value in values]
    known = list(dict.fromkeys(texts))
    order = {text: float(number) for number, text in enumerate(known)}
    middle = known[len(known) // 2] if len(known) % 2 else ""
    ends = (known[0], middle, known[-1]) if known else ("", "", "")
    return _Axis([*_place([order[text] for text in texts], 0, max(len(known) - 1, 1))], ends)


def _place(numbers: Sequence[float], low: float, high: float) -> Iterable[float]:
    return ((number - low) / (high - low) if high > low else 0.5 for number in numbers)


def _time(value: Any) -> dt.datetime | None:
    if isinstance(value, str) and _ISO.fullmatch(value):
        try:
            value = dt.datetime.fromisoformat(value if len(value) > 7 else f"{value}-01")
        except ValueError:
            return None
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC) if isinstance(value, dt.date) else None


def _widest_step(places: Sequence[float]) -> float:
    """Return the longest step that a line crosses: if most steps are alike, a much longer one is a gap."""
    steps = [b - a for a, b in itertools.pairwise(places)]
    if len(steps) < LEAST - 1:
        return math.inf
    usual = statistics.median(steps)
    alike = sum(0.75 * usual <= step <= 1.25 * usual for step in steps)
    return 1.8 * usual if alike >= 0.6 * len(steps) else math.inf


def _scale(low: float, high: float) -> tuple[float, float, int]:
    """Return the ends of the vertical axis and its number of steps, all at round numbers."""
    if low >= 0 and low < (high - low) / 2:
        low = 0.0
    span = (high - low) or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / 4))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, last - first


def _spread(ends: tuple[str, str, str]) -> str:
    left, middle, right = (text if len(text) <= LABEL else text[: LABEL - 1] + "…" for text in map(printable, ends))
    gap = WIDTH - sum(map(table_cell_width, (left, middle, right)))
    before = max(1, WIDTH // 2 - table_cell_width(left) - table_cell_width(middle) // 2)
    return f"{left}{' ' * before}{middle}{' ' * max(1, gap - before)}{right}"


def _number(value: float, decimals: int) -> str:
    return f"{value + 0.0:,.{min(decimals, 12)}f}"


def _heading(chart: dict[str, Any], across: str, up: str) -> str:
    title = chart.get("title")
    title = title.get("text") if isinstance(title, dict) else title
    columns = printable(f"{column_title(up)} by {column_title(across)}")
    given = printable(title) if isinstance(title, str) else ""
    return columns if given in ("", columns) else f"{given} ({columns})"


def _is_plain(channel: Any) -> bool:
    return isinstance(channel, dict) and "field" in channel and not {"aggregate", "bin", "timeUnit"} & set(channel)


def _column(channel: dict[str, Any]) -> str:
    """Return the column of a channel; Vega-Lite escapes dots and brackets in its name."""
    return re.sub(r"\\(.)", r"\1", str(channel["field"]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)
