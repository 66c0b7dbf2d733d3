"""A chart for the terminal: a Vega-Lite bar or line chart as bars of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from etude.cli.table import format_column, printable

WIDTH = 40
LABEL = 40
"""The most characters of a label."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def draw_chart(chart: dict[str, Any], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the chart as lines of text; empty if it does not have one label and one number, or computes values."""
    label, value = _axes(chart)
    if label not in columns or value not in columns or "color" in _encoding(chart) or _computes(chart):
        return ""
    at, of = columns.index(label), columns.index(value)
    rows = _in_order(chart, rows, at, of)
    points = [(_label(row[at]), row[of]) for row in rows if _is_number(row[of])]
    largest = max((abs(float(v)) for _, v in points), default=0.0)
    if not largest:
        return ""
    width = max(len(name) for name, _ in points)
    title = chart.get("title")
    head = f"{printable(title)}\n" if isinstance(title, str) and title else ""
    shown = format_column(value, [v for _, v in points])
    return head + "".join(
        f"{name:<{width}} {_bar(abs(float(v)) / largest)} {text}\n" for (name, v), text in zip(points, shown)
    )


def chart_shows_all(chart: dict[str, Any], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the chart of these rows says all that they hold, so that a table would only repeat it."""
    label, value = _axes(chart)
    if len(columns) != 2 or {label, value} != {*columns}:
        return False
    at, of = columns.index(label), columns.index(value)
    return all(row[at] is not None and len(str(row[at])) <= LABEL and _is_number(row[of]) for row in rows)


def _label(value: Any) -> str:
    text = printable("null" if value is None else str(value))
    return text if len(text) <= LABEL else text[: LABEL - 1] + "…"


def _encoding(chart: dict[str, Any]) -> dict[str, dict[str, Any]]:
    encoding = chart.get("encoding")
    return {k: v for k, v in encoding.items() if isinstance(v, dict)} if isinstance(encoding, dict) else {}


def _computes(chart: dict[str, Any]) -> bool:
    channels = _encoding(chart).values()
    return "transform" in chart or any({"aggregate", "bin", "timeUnit"} & set(channel) for channel in channels)


def _in_order(chart: dict[str, Any], rows: Sequence[Sequence[Any]], at: int, of: int) -> Sequence[Sequence[Any]]:
    """Return the rows in the order in which the chart shows them: time from left to right, bars as it sorts them."""
    mark = chart.get("mark", {})
    if (mark.get("type") if isinstance(mark, dict) else mark) == "line":
        return sorted((row for row in rows if row[at] is not None), key=lambda row: row[at])
    if chart["encoding"].get("y", {}).get("sort") == "-x":
        return sorted((row for row in rows if _is_number(row[of])), key=lambda row: -float(row[of]))
    return rows


def _axes(chart: dict[str, Any]) -> tuple[str, str]:
    fields = {axis: _encoding(chart).get(axis, {}) for axis in ("x", "y")}
    numeric = [axis for axis, spec in fields.items() if spec.get("type") == "quantitative"]
    if len(numeric) != 1:
        return "", ""
    value = numeric[0]
    label = "y" if value == "x" else "x"
    return str(fields[label].get("field", "")), str(fields[value].get("field", ""))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)


def _bar(share: float) -> str:
    whole, rest = divmod(round(share * WIDTH * 8), 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(WIDTH)
