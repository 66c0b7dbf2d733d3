"""The chart that a model chose for its answer, as a Vega-Lite specification."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from etude.cell_text import cell_to_json
from etude.errors import Invalid
from etude.runtime.chart import CHART_BYTES, SCHEMA, chart_has_url
from etude.tools.answer import is_vega_answer_chart

if TYPE_CHECKING:
    from etude.result import Result

ROWS = 5_000
"""The most rows that a chart carries."""
_SAMPLED = frozenset({"point", "circle", "square", "tick", "line", "area", "trail"})
"""Marks that show much the same with a part of the rows; a bar, an arc or a box would be wrong."""


def build_chosen_chart(
    chart: Mapping[str, Any], result: Result | None, inline: bool, room: int = CHART_BYTES
) -> dict[str, Any]:
    """Return the chart as Vega-Lite; raise `Invalid` if it links to a URL, or has too many rows to show.

    A chart of the first shown result has no data of its own: every surface draws it with the rows of that result. With
    `inline`, the rows of `result` become part of the chart, with the columns that it draws. If they need more than
    `room` bytes, points and lines are drawn of a random part of them, and the title says so.
    """
    if not is_vega_answer_chart(chart) and isinstance(chart.get("y"), list):
        spec = _expand_series(chart, result)
    else:
        spec = (
            {k: v for k, v in chart.items() if k != "result"} if is_vega_answer_chart(chart) else _expand(chart, result)
        )
    own = "data" in spec and bool(spec["data"].get("values")) if isinstance(spec.get("data"), dict) else False
    if not own:
        spec.pop("data", None)
        if inline and result is not None:
            return _check(_fill(spec, result, room), room)
    return _check(spec, room)


def _check(spec: dict[str, Any], room: int) -> dict[str, Any]:
    if chart_has_url(spec):
        raise Invalid("The chart loads or links to a URL.", hint="Leave out `url` and `href`.")
    body = _write(spec)
    if len(body) > room:
        raise Invalid(
            f"The chart has {len(body):,} bytes; at most {room:,} are possible.",
            hint='Name a result instead of data: {"result": "r1", ...}.',
        )
    return dict(json.loads(body))


def _fill(spec: dict[str, Any], result: Result, room: int) -> dict[str, Any]:
    """Return the chart with the rows of a result, or with a part of them that fits."""
    names = [c.name for c in result.columns]
    texts = set(_texts(spec))
    used = [at for at, name in enumerate(names) if any(_mentions(text, name) for text in texts)] or [*range(len(names))]
    left, taken = room - len(_write(spec)) - 200, min(result.row_count, ROWS)
    rows = _read(result, used, taken)
    while taken and (size := sum(len(_write(row)) + 1 for row in rows)) > left:
        taken = int(taken * max(left, 0) / size * 0.95)
        rows = _read(result, used, taken)
    if taken == result.row_count:
        return spec | {"data": {"values": rows}}
    mark = spec.get("mark")
    kind = mark.get("type") if isinstance(mark, dict) else mark
    if kind not in _SAMPLED or _computes(spec):
        raise _too_many_rows(result, taken)
    note = f"{taken:,} of {result.row_count:,} rows, taken at random"
    return spec | {"data": {"values": rows}, "title": _noted(spec.get("title"), note)}


def _too_many_rows(result: Result, fit: int) -> Invalid:
    return Invalid(
        f"The chart needs all {result.row_count:,} rows of its result, and {fit:,} fit.",
        hint="Compute a smaller result first: aggregate it, or take the rows that matter.",
    )


def _noted(title: Any, note: str) -> Any:
    if isinstance(title, dict):
        return title | {"text": _noted(title.get("text"), note)}
    lines = title if isinstance(title, list) else [title] if title else []
    return f"{' '.join(map(str, lines))} ({note})" if lines else note


def _computes(spec: Mapping[str, Any]) -> bool:
    keys = {"transform", "aggregate", "bin", "timeUnit", "layer", "facet", "repeat"}
    return any(k in keys or (isinstance(v, dict) and _computes(v)) for k, v in spec.items())


def _texts(part: Any) -> Iterator[str]:
    """Yield all texts in a chart: names of columns are fields, or stand in expressions."""
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _texts(inner)


def _mentions(text: str, name: str) -> bool:
    """Return whether a text of a chart is a column, a part of its values, or an expression with it."""
    return (
        text in (name, _field(name)) or text.startswith((f"{name}.", f"{name}[")) or ("datum" in text and name in text)
    )


def _read(result: Result, used: Sequence[int], taken: int) -> list[dict[str, Any]]:
    """Return some rows of a result, in their order: a random choice, which is the same each time."""
    count, names = result.row_count, [result.columns[at].name for at in used]
    chosen = set(random.Random(count).sample(range(count), taken)) if taken < count else None  # noqa: S311
    rows = (row for number, row in enumerate(result.iter_rows()) if chosen is None or number in chosen)
    return [{name: _plain(row[at]) for name, at in zip(names, used)} for row in rows]


def _write(part: Any) -> bytes:
    return json.dumps(part, default=str, ensure_ascii=False, separators=(",", ":")).encode()


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
    if result is not None and result.row_count > ROWS:
        raise _too_many_rows(result, ROWS)
    rows = _read(result, range(len(result.columns)), result.row_count) if result is not None else []
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


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else cell_to_json(value)


def _field(name: str) -> str:
    # Vega reads dots and brackets in a field name as a path into the value.
    return "".join(f"\\{c}" if c in ".[]\\" else c for c in name)
