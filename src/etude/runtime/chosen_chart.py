"""The chart that a model chose for its answer, as a Vega-Lite specification."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from etude.cell_text import cell_to_json
from etude.runtime.chart import CHART_BYTES, SCHEMA, read_chart
from etude.tools.answer import is_vega_chart

if TYPE_CHECKING:
    from etude.result import Result

ROWS = 5_000


def build_chosen_chart(chart: Mapping[str, Any], result: Result | None, inline: bool) -> dict[str, Any] | None:
    """Return the chart as Vega-Lite, or None if it loads data or is too large.

    A chart of the first shown result has no data of its own: every surface draws it with the rows of that result. With
    `inline`, the rows of `result` become part of the chart.
    """
    if not is_vega_chart(chart) and isinstance(chart.get("y"), list):
        spec = _expand_series(chart, result)
    else:
        spec = {k: v for k, v in chart.items() if k != "result"} if is_vega_chart(chart) else _expand(chart, result)
    own = "data" in spec and bool(spec["data"].get("values")) if isinstance(spec.get("data"), dict) else False
    if not own:
        spec.pop("data", None)
        if inline and result is not None:
            spec["data"] = {"values": _values(result)}
    return read_chart(json.dumps(spec, default=str).encode()[: CHART_BYTES + 1])


def _expand(chart: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    rows = list(itertools.islice(result.iter_rows(), ROWS)) if result is not None else []
    names = [c.name for c in result.columns] if result is not None else []

    def axis(name: str, measured: bool) -> dict[str, Any]:
        values = [row[names.index(name)] for row in rows if row[names.index(name)] is not None] if name in names else []
        return {"field": _field(name), "type": _type(values, measured), "title": name}

    mark, encoding = chart["mark"], {}
    if mark == "arc":
        encoding["theta"] = axis(chart.get("y") or chart.get("x") or "", True)
        if color := chart.get("color") or (chart.get("x") if chart.get("y") else None):
            encoding["color"] = axis(color, False) | {"type": "nominal"}
    else:
        for part in ("x", "y"):
            if chart.get(part):
                encoding[part] = axis(chart[part], True)
        if mark == "bar" and encoding.get("x", {}).get("type") == encoding.get("y", {}).get("type") == "quantitative":
            encoding["x"]["type"] = "ordinal"
        for channel in encoding.values():
            if channel["type"] == "nominal":
                channel["sort"] = None  # in the order of the rows, which the query chose
        if chart.get("color"):
            kind = axis(chart["color"], True)
            encoding["color"] = kind | {"type": kind["type"] if mark in ("point", "rect") else "nominal"}
    spec: dict[str, Any] = {"$schema": SCHEMA, "mark": {"type": mark, "tooltip": True}, "encoding": encoding}
    return spec | ({"title": str(chart["title"])} if chart.get("title") else {})


def _expand_series(chart: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    """Return a chart of several columns, each a series: its data has a row for each value."""
    spec = _expand({k: v for k, v in chart.items() if k != "y"} | {"y": chart["y"][0]}, result)
    rows = _values(result) if result is not None else []
    x, series = chart.get("x") or "", [str(name) for name in chart["y"]]
    names = {"series": "series", "value": "value"}
    while x in names.values():
        names = {key: f"{name}_" for key, name in names.items()}
    values = [{x: row.get(x), names["series"]: each, names["value"]: row.get(each)} for each in series for row in rows]
    spec["encoding"]["y"] = {"field": names["value"], "type": "quantitative", "title": ", ".join(series)}
    spec["encoding"]["color"] = {"field": names["series"], "type": "nominal", "title": "", "sort": None}
    if chart["mark"] == "bar":
        spec["encoding"]["x"]["type"] = "ordinal" if spec["encoding"]["x"]["type"] == "quantitative" else "nominal"
        spec["encoding"]["xOffset"] = {"field": names["series"], "sort": None}
    return spec | {"data": {"values": values}}


def _type(values: list[Any], measured: bool) -> str:
    if values and all(isinstance(v, dt.date) for v in values):
        return "temporal"
    if values and all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in values):
        years = all(isinstance(v, int) and 1500 <= v <= 2500 for v in values)
        return "ordinal" if years or not measured else "quantitative"
    return "nominal"


def _values(result: Result) -> list[dict[str, Any]]:
    names = [c.name for c in result.columns]
    rows = itertools.islice(result.iter_rows(), ROWS)
    return [{name: _plain(value) for name, value in zip(names, row)} for row in rows]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else cell_to_json(value)


def _field(name: str) -> str:
    # Vega reads dots and brackets in a field name as a path into the value.
    return "".join(f"\\{c}" if c in ".[]\\" else c for c in name)
