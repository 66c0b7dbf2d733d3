"""A chart for the terminal: a Vega-Lite bar or line chart as bars of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from etude.cli.printable import printable
from etude.cli.table import format_table_column, table_cell_width
from etude.column_title import column_title

WIDTH = 40
LABEL = 40
"""The most characters of a label."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def draw_terminal_chart(chart: dict[str, Any], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return the chart as lines of text; empty if it does not have one label and one number, or computes values."""
    label, value = _axes(chart)
    group = _group(chart)
    if label not in columns or value not in columns or group not in (*columns, "") or _computes(chart):
        return ""
    at, of = columns.index(label), columns.index(value)
    rows = _in_order(chart, rows, at, of)
    rows = [row for row in rows if _is_number(row[of])]
    values = [float(row[of]) for row in rows]
    if not any(values):
        return ""
    names = [_cut(text or "null") for text in format_table_column(label, [row[at] for row in rows])]
    if group not in ("", label):  # One bar for each label and colour.
        beside = format_table_column(group, [row[columns.index(group)] for row in rows])
        names = [f"{name}, {_cut(colour or 'null')}" for name, colour in zip(names, beside)]
    width = max(map(table_cell_width, names))
    lines = [_heading(chart, label, value)]
    for name, bar, text in zip(names, _bars(values), format_table_column(value, [row[of] for row in rows])):
        lines.append(f"{name}{' ' * (width - table_cell_width(name))} {bar} {text}")
    return "".join(f"{line}\n" for line in lines)


def terminal_chart_shows_all(chart: dict[str, Any], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether the chart of these rows says all that they hold, so that a table would only repeat it."""
    label, value = _axes(chart)
    if len(columns) != 2 or {label, value} != {*columns}:
        return False
    at, of = columns.index(label), columns.index(value)
    return all(row[at] is not None and len(str(row[at])) <= LABEL and _is_number(row[of]) for row in rows)


def _heading(chart: dict[str, Any], label: str, value: str) -> str:
    """Return the title of a chart and the columns that it shows: bars alone do not say what they measure."""
    title = chart.get("title")
    group = _group(chart)
    beside = f" and {column_title(group)}" if group not in ("", label) else ""
    columns = printable(f"{column_title(value)} by {column_title(label)}{beside}")
    given = printable(title) if isinstance(title, str) else ""
    return columns if given in ("", columns) else f"{given} ({columns})"


def _cut(text: str) -> str:
    return text if len(text) <= LABEL else text[: LABEL - 1] + "…"


def _encoding(chart: dict[str, Any]) -> dict[str, dict[str, Any]]:
    encoding = chart.get("encoding")
    return {k: v for k, v in encoding.items() if isinstance(v, dict)} if isinstance(encoding, dict) else {}


def _group(chart: dict[str, Any]) -> str:
    """Return the field that colours bars; empty if there is none, or the chart is a pie."""
    encoding = _encoding(chart)
    return str(encoding["color"].get("field") or "") if "color" in encoding and "theta" not in encoding else ""


def _computes(chart: dict[str, Any]) -> bool:
    channels = _encoding(chart).values()
    return "transform" in chart or any({"aggregate", "bin", "timeUnit"} & set(channel) for channel in channels)


def _in_order(chart: dict[str, Any], rows: Sequence[Sequence[Any]], at: int, of: int) -> Sequence[Sequence[Any]]:
    """Return the rows in the order of the chart: by time, bars as it sorts them, parts of a pie from the largest on."""
    mark = chart.get("mark", {})
    if (mark.get("type") if isinstance(mark, dict) else mark) == "line":
        return sorted((row for row in rows if row[at] is not None), key=lambda row: row[at])
    if "theta" in _encoding(chart) or chart["encoding"].get("y", {}).get("sort") == "-x":
        return sorted((row for row in rows if _is_number(row[of])), key=lambda row: -float(row[of]))
    return rows


def _axes(chart: dict[str, Any]) -> tuple[str, str]:
    encoding = _encoding(chart)
    if "theta" in encoding:
        # The parts of a pie as bars.
        return str(encoding.get("color", {}).get("field", "")), str(encoding["theta"].get("field", ""))
    fields = {axis: encoding.get(axis, {}) for axis in ("x", "y")}
    numeric = [axis for axis, spec in fields.items() if spec.get("type") == "quantitative"]
    if len(numeric) != 1:
        return "", ""
    value = numeric[0]
    label = "y" if value == "x" else "x"
    return str(fields[label].get("field", "")), str(fields[value].get("field", ""))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value)


def _bars(values: Sequence[float]) -> list[str]:
    """Return a bar for each value, all of one width. If some are negative, bars start at an axis and go both ways."""
    low, high = min(0.0, *values), max(0.0, *values)
    if low == 0:
        return [_to_right(v / high * WIDTH).ljust(WIDTH) for v in values]
    left = min(max(round(-low / (high - low) * WIDTH), 1), WIDTH - (high > 0))
    right = WIDTH - left
    # One scale for both sides, so that the lengths of all bars can be compared.
    scale = min(left / -low, right / high if high else math.inf)
    return [
        (_to_left(-v * scale) if v < 0 else "").rjust(left) + "│" + (_to_right(v * scale) if v > 0 else "").ljust(right)
        for v in values
    ]


def _to_right(length: float) -> str:
    whole, rest = divmod(round(length * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _to_left(length: float) -> str:
    """Return a bar that ends at the axis; terminals have half a block for its left end, but no eighths."""
    whole, rest = divmod(round(length * 2), 2)
    return ("▐" if rest else "") + "█" * whole
