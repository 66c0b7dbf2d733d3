"""The chart that a model chose for its answer, as a Vega-Lite specification."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from etude.cell_text import cell_to_json
from etude.errors import Invalid
from etude.runtime.chart import CHART_BYTES, SCHEMA, chart_has_url
from etude.tools.answer_chart import chart_without_named_data, counted_chart_part, is_vega_answer_chart

if TYPE_CHECKING:
    from etude.result import Result

ROWS = 5_000
"""The most rows that a chart carries."""
BINS = 12
"""About how many bars a histogram has."""
_SAMPLED = frozenset({"point", "circle", "square", "tick", "line", "area", "trail"})
"""Marks that show much the same with a part of the rows; a bar, an arc or a box would be wrong."""


def build_chosen_chart(
    chart: Mapping[str, Any], result: Result | None, inline: bool, room: int = CHART_BYTES
) -> dict[str, Any]:
    """Return a parsed chart as Vega-Lite; raise `Invalid` if it links to a URL, or has too many rows to show.

    A chart of the first shown result has no data of its own: every surface draws it with the rows of that result. With
    `inline`, the rows of `result` become part of the chart, with the columns that it draws. If they need more than
    `room` bytes, points and lines are drawn of a random part of them, and the title says so.
    """
    if is_vega_answer_chart(chart):
        spec = chart_without_named_data({k: v for k, v in chart.items() if k != "result"})
    elif result is not None and counted_chart_part(chart, [c.name for c in result.columns]):
        spec = _expand_counts(chart, result)
    elif isinstance(chart.get("y"), list):
        spec = _expand_series(chart, result)
    else:
        spec = _expand(chart, result)
    if not _has_own_data(spec):
        spec.pop("data", None)
        if inline and result is not None:
            return _check(_fill(spec, result, room), room)
    return _check(spec, room)


def _has_own_data(spec: Mapping[str, Any]) -> bool:
    data = spec.get("data")
    if not isinstance(data, dict):
        return False
    named = spec.get("datasets")
    return bool(data.get("values")) or (isinstance(named, dict) and data.get("name") in named)


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
    rows = (row for number, row in enumerate(result.iter_rows_in_pieces()) if chosen is None or number in chosen)
    return [{name: _plain(row[at]) for name, at in zip(names, used)} for row in rows]


def _write(part: Any) -> bytes:
    return json.dumps(part, default=str, ensure_ascii=False, separators=(",", ":")).encode()


def _expand(chart: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    rows = result.first_rows(ROWS) if result is not None else []
    names = [c.name for c in result.columns] if result is not None else []

    def axis(name: str, measured: bool) -> dict[str, Any]:
        values = [row[names.index(name)] for row in rows if row[names.index(name)] is not None] if name in names else []
        return {"field": _field(name), "type": _type(values, measured), "title": name}

    mark, encoding = chart["mark"], {}
    drawn: dict[str, Any] = {"type": mark, "tooltip": True} | ({"innerRadius": 50} if chart.get("ring") else {})
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
        _stack(chart, encoding)
    if isinstance(size := chart.get("size"), str):
        encoding["size"] = axis(size, True)
    elif size is not None:
        drawn["size"] = size
    if chart.get("sort") is not None:
        _sort(chart["sort"], mark, encoding)
    spec: dict[str, Any] = {"$schema": SCHEMA, "mark": drawn, "encoding": encoding}
    return spec | ({"title": str(chart["title"])} if chart.get("title") else {})


def _stack(chart: Mapping[str, Any], encoding: dict[str, Any]) -> None:
    """Put bars of several colors side by side or upon each other, as the chart says."""
    measure = next((part for part in ("y", "x") if encoding.get(part, {}).get("type") == "quantitative"), "")
    label = "x" if measure == "y" else "y"
    apart = "stack" in chart and chart["stack"] in (None, False)
    if chart["mark"] == "bar" and label in encoding and (chart.get("xOffset") or (apart and chart.get("color"))):
        field = _field(chart.get("xOffset") or chart["color"])
        if encoding[label]["type"] in ("quantitative", "temporal"):
            encoding[label]["type"] = "ordinal"
        if encoding[label]["field"] != field:
            encoding[f"{label}Offset"] = {"field": field, "sort": None}
    elif measure and "stack" in chart:
        encoding[measure]["stack"] = None if apart else "zero" if chart["stack"] is True else chart["stack"]


def _sort(sort: Any, mark: str, encoding: dict[str, Any]) -> None:
    """Order the names on an axis, or the slices of a pie: by their measure, or as the chart says."""
    if isinstance(sort, dict) and isinstance(sort.get("field"), str):
        sort = f"{'-' if sort.get('order') == 'descending' else ''}{sort['field']}"
    down = isinstance(sort, str) and (sort.startswith("-") or sort == "descending")
    order, by = "descending" if down else "ascending", str(sort).removeprefix("-")
    if mark == "arc":
        if isinstance(sort, str) and by != encoding.get("color", {}).get("title"):
            encoding["order"] = {"field": encoding["theta"]["field"], "type": "quantitative", "sort": order}
        elif "color" in encoding:
            encoding["color"]["sort"] = sort if isinstance(sort, list) else order
        return
    names = [part for part in ("x", "y") if encoding.get(part, {}).get("type") in ("nominal", "ordinal")]
    if not names:
        across = encoding.get("x", {})
        if by not in ("x", "ascending", "descending", across.get("title")):
            raise Invalid("`sort` orders names, and no axis of this chart has names.", hint="Leave it out.")
        across |= {"sort": order} if down else {}
        return
    label = names[0]
    measure = "y" if label == "x" else "x"
    if isinstance(sort, list):
        encoding[label]["sort"] = sort
    elif by in (label, encoding[label]["title"]) or (by in ("ascending", "descending") and mark != "bar"):
        encoding[label]["sort"] = order
    elif by in (measure, encoding.get(measure, {}).get("title"), "ascending", "descending"):
        encoding[label]["sort"] = f"{'-' if down else ''}{measure}"
    else:
        encoding[label]["sort"] = {"field": _field(by), "order": order}


def _expand_counts(chart: Mapping[str, Any], result: Result) -> dict[str, Any]:
    """Return bars for the number of rows with each value, or of a histogram: in each range of a number.

    The bars have their own data, counted from all rows, so that every surface can draw them.
    """
    columns = [c.name for c in result.columns]
    counted = counted_chart_part(chart, columns)
    label = "x" if counted == "y" else "y"
    name, color = str(chart[label]), chart.get("color")
    at, of = columns.index(name), columns.index(color) if color else None
    rows = [
        (row[at], row[of] if of is not None else None) for row in result.iter_rows_in_pieces() if _is_finite(row[at])
    ]
    values = [value for value, _ in rows]
    kind = _type(values, True)
    if kind == "temporal":
        raise Invalid(
            "A histogram needs a column of numbers or names, not of dates.", hint="Count per month in a query."
        )
    if kind == "quantitative":
        labels, place = _bins(values, chart.get("bins") or BINS)
    else:
        found = Counter(map(_plain, values))
        labels = [each for each, _ in found.most_common()] if kind == "nominal" else sorted(found)
        place = _plain
    counts = Counter((place(value), group) for value, group in rows)
    number = "rows" if name != "rows" and color != "rows" else "number of rows"
    groups = list(dict.fromkeys(group for _, group in rows)) or [None]
    data = [
        {name: each} | ({color: _plain(group)} if color else {}) | {number: counts[each, group]}
        for each in labels
        for group in groups
    ]
    encoding: dict[str, Any] = {
        label: {"field": _field(name), "type": "nominal", "title": name, "sort": None},
        counted: {"field": number, "type": "quantitative", "title": "number of rows"},
    }
    if color and color != name:
        encoding["color"] = {"field": _field(color), "type": "nominal", "title": color}
    _stack(chart, encoding)
    if chart.get("sort") is not None:
        _sort(chart["sort"], "bar", encoding)
    spec = {"$schema": SCHEMA, "mark": {"type": "bar", "tooltip": True}, "encoding": encoding, "data": {"values": data}}
    return spec | ({"title": str(chart["title"])} if chart.get("title") else {})


def _is_finite(value: Any) -> bool:
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def _bins(values: Sequence[Any], most: Any) -> tuple[list[str], Callable[[Any], str]]:
    """Return the ranges of a histogram as text, at most about `most`, and a function that returns that of a value."""
    if not isinstance(most, int) or not 1 <= most <= 200:
        raise Invalid("`bins` is a number between 1 and 200.", hint="Leave it out.")
    low, high = float(min(values)), float(max(values))
    rough = (high - low) / most or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    if all(isinstance(value, int) for value in values):
        step = max(step, 1.0)
    decimals = max(-math.floor(math.log10(step)), 0)
    first = math.floor(low / step)

    def text(number: int) -> str:
        return f"{number * step:,.{decimals}f} to {(number + 1) * step:,.{decimals}f}"

    def place(value: Any) -> int:
        return math.floor(float(value) / step + 1e-9)

    return [text(number) for number in range(first, place(high) + 1)], lambda value: text(place(value))


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
    if chart.get("stack"):
        spec["encoding"]["y"]["stack"] = "zero" if chart["stack"] is True else chart["stack"]
    elif chart["mark"] == "bar":
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
