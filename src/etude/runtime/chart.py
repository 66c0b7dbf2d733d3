"""Choose a chart for a result by the kinds of its columns, as a Vega-Lite specification without data."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from etude.result import Result

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
BARS = 40
"""A chart with more bars is not readable."""
SERIES = 8
ROWS = 5_000
CHART_BYTES = 1 << 18
Kind = Literal["number", "time", "label", "other"]


def choose_chart(result: Result) -> dict[str, Any] | None:
    """Choose lines over time, bars over labels, or points for two numbers; None if a table shows more."""
    rows = list(itertools.islice(result.iter_rows(), ROWS))
    if not 2 <= result.row_count <= ROWS or not 2 <= len(result.columns) <= 4:
        return None
    names = [c.name for c in result.columns]
    kinds = [_kind(name, [row[i] for row in rows]) for i, name in enumerate(names)]
    by_kind: dict[Kind, list[str]] = {"number": [], "time": [], "label": [], "other": []}
    for name, kind in zip(names, kinds):
        by_kind[kind].append(name)
    numbers, times, labels = by_kind["number"], by_kind["time"], by_kind["label"]
    if by_kind["other"] or not numbers:
        return None
    if times:
        return _lines(times[0], numbers[0], labels[:1], names, rows)
    if len(labels) == 1 and len({row[names.index(labels[0])] for row in rows}) == len(rows) <= BARS:
        return _bars(labels[0], numbers[0])
    if len(labels) == 2 and len(rows) <= BARS * SERIES:
        return _bars(labels[0], numbers[0], labels[1])
    if not labels and len(numbers) == 2 and len(rows) > 2:
        return _chart("point", _axis(numbers[0], "quantitative"), _axis(numbers[1], "quantitative"))
    return None


def read_chart(body: bytes) -> dict[str, Any] | None:
    """Read the chart that a cell drew, with its own data; None if it is invalid, too large or loads a URL."""
    try:
        chart = json.loads(body)
    except ValueError:
        return None
    if not isinstance(chart, dict) or len(body) > CHART_BYTES or _has_url(chart):
        return None
    return chart


def _has_url(part: Any) -> bool:
    if isinstance(part, dict):
        return any(key in ("url", "href") or _has_url(value) for key, value in part.items())
    return isinstance(part, list) and any(map(_has_url, part))


def _lines(time: str, number: str, labels: list[str], names: list[str], rows: list[Any]) -> dict[str, Any] | None:
    if labels and len({row[names.index(labels[0])] for row in rows}) > SERIES:
        return None
    color = {"color": {"field": _field(labels[0]), "type": "nominal"}} if labels else {}
    years = all(isinstance(row[names.index(time)], int) for row in rows)
    return _chart("line", _axis(time, "ordinal" if years else "temporal"), _axis(number, "quantitative"), **color)


def _bars(label: str, number: str, series: str | None = None) -> dict[str, Any]:
    color = {"color": {"field": _field(series), "type": "nominal"}} if series else {}
    return _chart("bar", _axis(number, "quantitative"), _axis(label, "nominal") | {"sort": None}, **color)


def _chart(mark: str, x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"$schema": SCHEMA, "mark": {"type": mark, "tooltip": True}, "encoding": {"x": x, "y": y, **more}}


def _axis(name: str, kind: str) -> dict[str, Any]:
    return {"field": _field(name), "type": kind, "title": name}


def _field(name: str) -> str:
    # Vega reads dots and brackets in a field name as a path into the value.
    return "".join(f"\\{c}" if c in ".[]\\" else c for c in name)


def _kind(name: str, values: list[Any]) -> Kind:
    present = [v for v in values if v is not None]
    if not present:
        return "other"
    if all(isinstance(v, dt.date | dt.datetime) for v in present):
        return "time"
    if all(isinstance(v, str | bool) for v in present):
        return "label"
    if not all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in present):
        return "other"
    if any(isinstance(v, float) and not math.isfinite(v) for v in present):
        return "other"
    if name.lower() in ("year", "yr") and all(isinstance(v, int) and 1000 <= v <= 3000 for v in present):
        return "time"
    return "label" if name.lower() == "id" or name.lower().endswith("_id") else "number"
