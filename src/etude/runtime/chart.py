"""Choose a chart for a result by the kinds of its columns, as a Vega-Lite specification without data."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from etude.cell_text import cell_to_json
from etude.column_title import column_title

if TYPE_CHECKING:
    from etude.result import Result

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
BARS = 40
"""A chart with more bars is not readable."""
SERIES = 8
ROWS = 5_000
CHART_BYTES = 1 << 18
Kind = Literal["number", "time", "label", "id", "other"]
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ID_WORDS = frozenset({"id", "ids", "key", "uuid", "guid", "code", "zip", "isbn", "sku", "ean"})
_NOT_IDS = ("paid", "bid", "grid", "void", "valid", "solid", "fluid", "rapid", "mid", "aid", "said", "laid", "covid")
"""Endings of English words: an amount `paid` is not an id."""
_PERIODS = {"year": (1000, 3000), "yr": (1000, 3000), "quarter": (1, 4), "month": (1, 12), "week": (0, 53)}
_PERIODS |= {"weekday": (0, 7), "dow": (0, 7), "day": (1, 366), "hour": (0, 24)}
_ISO = re.compile(r"\d{4}-\d{2}(-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?)?")
"""Dates as text, as SQLite stores them."""
_DRAWING = r"(?:charts?|graphs?|plots?|diagrams?|graphics?|visuali[sz]ations?)"
_DECLINED = re.compile(
    rf"\b(?:no|without(?: an?| any)?|skip(?: the| any)?|omit(?: the| any)?)\s+{_DRAWING}"
    r"(?=\s*(?:$|[.,;:!?)\n]|(?:please|thanks|thank|needed|necessary|required|or|and|but|just|only|this|at)\b))"
    rf"|\b(?:do\s+not|don.?t)\s+(?:\w+\s+){{1,3}}?(?:an?|any|the)\s+{_DRAWING}\b"
    r"|\b(?:keine?n?|ohne(?: eine?)?)\s+(?:diagramme?|grafik(?:en)?|charts?|plots?)\b",
    re.IGNORECASE,
)

SORTED = 4
"""Rows with this many values in order were sorted by them."""


def declines_chart(question: str) -> bool:
    """Return whether a question says that no chart is wanted."""
    return _DECLINED.search(question) is not None


def choose_chart(
    result: Result, rank: Callable[[Sequence[str]], Sequence[str]] = lambda names: names
) -> dict[str, Any] | None:
    """Choose lines over time, bars over labels, or points for two numbers; None if a table shows more.

    Of several columns that could be the measure, the one that the rows are sorted by is drawn, or else the first in the
    order of `rank`. An id, a year or another number of a period is never the measure. Rows with totals are left out;
    then the chart has its own data.
    """
    if not 2 <= result.row_count <= ROWS or not 2 <= len(result.columns) <= 4:
        return None
    rows = result.first_rows(ROWS)
    names = [c.name for c in result.columns]
    values = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if len(values) < len(names):
        return None
    by_kind: dict[Kind, list[str]] = {"number": [], "time": [], "label": [], "id": [], "other": []}
    for name in names:
        by_kind[_kind(name, values[name])].append(name)
    numbers, times = by_kind["number"], by_kind["time"]
    # Beside a name, the id of the same thing says nothing more.
    labels = by_kind["label"] or by_kind["id"]
    if by_kind["other"] or not numbers:
        return None
    measure = (not times and _sorted_measure(values, numbers)) or rank(numbers)[0]
    totals = _find_totals(values, [*by_kind["label"], *by_kind["id"], *times], numbers)
    if totals:
        rows = [row for at, row in enumerate(rows) if at not in totals]
        values = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if times or len(labels) in (1, 2):
        chart = _lines(times[0], measure, labels, values) if times else _bars(labels, measure, values)
        own = [{name: _plain(value) for name, value in zip(names, row)} for row in rows]
        return chart | {"data": {"values": own}} if chart and totals else chart
    if not labels and len(numbers) == 2 and len(rows) > 2:
        return _chart("point", _axis(numbers[0], "quantitative"), _axis(numbers[1], "quantitative"))
    return None


def _sorted_measure(values: dict[str, list[Any]], numbers: Sequence[str]) -> str | None:
    """Return the number that the rows are sorted by; None if it is none or several, or could be by chance."""
    found = [name for name in numbers if _is_ordered(values[name]) and len(set(values[name])) >= SORTED]
    return found[0] if len(found) == 1 else None


def _find_totals(values: dict[str, list[Any]], groups: Sequence[str], numbers: Sequence[str]) -> set[int]:
    """Return the rows of ROLLUP and GROUPING SETS that hold totals: a null group, and the sum of the others."""
    count = len(values[numbers[0]])
    found = set()
    for at in range(count):
        empty = [name for name in groups if values[name][at] is None]
        given = [name for name in groups if name not in empty]
        others = [
            row
            for row in range(count)
            if all(values[name][row] is not None for name in groups)
            and all(values[name][row] == values[name][at] for name in given)
        ]
        if empty and len(others) > 1 and any(_is_sum(values[name], at, others) for name in numbers):
            found.add(at)
    return found


def _is_sum(values: Sequence[Any], at: int, others: Sequence[int]) -> bool:
    if not values[at]:
        return False
    parts = [float(values[row]) for row in others if values[row] is not None]
    return math.isclose(sum(parts), float(values[at]), rel_tol=1e-9)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else cell_to_json(value)


def read_chart(body: bytes) -> dict[str, Any] | None:
    """Read the chart that a cell drew, with its own data; None if it is invalid, too large or loads a URL."""
    try:
        chart = json.loads(body)
    except ValueError:
        return None
    if not isinstance(chart, dict) or len(body) > CHART_BYTES or chart_has_url(chart):
        return None
    return chart


def chart_has_url(part: Any) -> bool:
    """Return whether a part of a chart loads a URL or links to one."""
    if isinstance(part, dict):
        return any(key in ("url", "href") or chart_has_url(value) for key, value in part.items())
    return isinstance(part, list) and any(map(chart_has_url, part))


def _lines(time: str, number: str, labels: list[str], values: dict[str, list[Any]]) -> dict[str, Any] | None:
    if len(labels) > 1 or (labels and len(set(values[labels[0]])) > SERIES):
        return None
    if not _are_unique(values, time, *labels):
        return None
    color = {"color": {"field": _field(labels[0]), "type": "nominal"}} if labels else {}
    numbered = all(isinstance(v, int) for v in values[time])
    return _chart("line", _axis(time, "ordinal" if numbered else "temporal"), _axis(number, "quantitative"), **color)


def _bars(labels: list[str], number: str, values: dict[str, list[Any]]) -> dict[str, Any] | None:
    label, *series = labels
    if series and len(set(values[series[0]])) > max(SERIES, len(set(values[label]))):
        label, series = series[0], [label]  # the one with fewer values tells bars apart by colour
    if len(set(values[label])) > BARS or any(len(set(values[s])) > SERIES for s in series):
        return None
    if not _are_unique(values, *labels):
        return None
    color = {"color": {"field": _field(series[0]), "type": "nominal"}} if series else {}
    # The order of the result, if the query has one; otherwise the largest first.
    sort = None if _is_ordered(values[number]) or _is_ordered(values[label]) else "-x"
    return _chart("bar", _axis(number, "quantitative"), _axis(label, "nominal") | {"sort": sort}, **color)


def _are_unique(values: dict[str, list[Any]], *names: str) -> bool:
    """Return whether no two rows agree in these columns: they would be drawn over each other."""
    rows = list(zip(*(values[name] for name in names)))
    return len(set(rows)) == len(rows)


def _is_ordered(values: list[Any]) -> bool:
    present = [v for v in values if v is not None]
    pairs = list(itertools.pairwise(present))
    try:
        return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)
    except TypeError:  # true and false among texts
        return False


def _chart(mark: str, x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"$schema": SCHEMA, "mark": {"type": mark, "tooltip": True}, "encoding": {"x": x, "y": y, **more}}


def _axis(name: str, kind: str) -> dict[str, Any]:
    return {"field": _field(name), "type": kind, "title": column_title(name)}


def _field(name: str) -> str:
    # Vega reads dots and brackets in a field name as a path into the value.
    return "".join(f"\\{c}" if c in ".[]\\" else c for c in name)


def _kind(name: str, values: list[Any]) -> Kind:
    present = [v for v in values if v is not None]
    if not present:
        return "other"
    if all(isinstance(v, dt.date | dt.datetime) for v in present):
        return "time"
    if all(isinstance(v, str) and _ISO.fullmatch(v) for v in present):
        return "time"
    if all(isinstance(v, str | bool) for v in present):
        return "id" if name.lower() in ("uuid", "guid") else "label"
    if not all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in present):
        return "other"
    if any(isinstance(v, float) and not math.isfinite(v) for v in present):
        return "other"
    words = [w.lower() for w in _WORDS.findall(name)] or [""]
    whole = all(isinstance(v, int) for v in present)
    low, high = _PERIODS.get(words[-1], (1, 0))
    if whole and all(low <= v <= high for v in present):
        return "time"
    if words[-1] in _ID_WORDS or (whole and _is_folded_id(words[-1], present)):
        return "id"
    return "number"


def _is_folded_id(word: str, values: list[Any]) -> bool:
    """Return whether a word such as `genreid`, without a capital or an underscore, names the id of each row."""
    return word.endswith("id") and not word.endswith(_NOT_IDS) and len(set(values)) == len(values)
