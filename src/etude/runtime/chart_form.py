"""The form of chart that a question names: `as a pie chart`, `line chart of revenue per month`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from etude.runtime.chart import BARS

if TYPE_CHECKING:
    from etude.result import Result

Form = Literal["arc", "bar", "line", "area", "point"]
_FORMS: dict[str, Form] = {
    "pie": "arc", "donut": "arc", "doughnut": "arc", "bar": "bar", "bars": "bar", "column": "bar", "columns": "bar",
    "line": "line", "lines": "line", "area": "area", "scatter": "point",
}  # fmt: skip
_ASKED = re.compile(
    r"\b(pie|donut|doughnut|bar|column|line|area|scatter)[ -]?(?:charts?|graphs?|plots?|diagrams?)\b"
    r"|\bas (?:an? |the )?(pie|donut|doughnut|bars?|columns|lines?|area)\b(?! (?:item|number|total)s?\b)",
    re.IGNORECASE,
)
_SHOWN: dict[str, str] = {"arc": "a pie", "bar": "bars", "line": "a line", "area": "an area", "point": "points"}
SLICES = 8
"""A pie with more parts cannot be read."""
_NO_PARTS = ("avg_", "min_", "max_", "median_", "quantile_", "stddev_", "average", "growth", "change")
"""Names of measures whose values are not parts of a whole."""


def asked_form(question: str) -> Form | None:
    """Return the form of chart that a question names; of several, the last."""
    found = [first or second for first, second in _ASKED.findall(question)]
    return _FORMS[found[-1].lower()] if found else None


def draw_in_form(chart: dict[str, Any] | None, form: Form, result: Result) -> tuple[dict[str, Any] | None, str]:
    """Return the chart in the form that was asked for, or as it is and a note that says why not."""
    if chart is None:
        why = "it does not have one number for each of several groups"
        return None, f"The result cannot be drawn as {_SHOWN[form]}: {why}."
    mark = chart["mark"]["type"]
    if mark == form:
        return chart, ""
    encoding = chart["encoding"]
    up, across = ("x", "y") if mark == "bar" else ("y", "x")
    label, number, series = encoding[across], encoding[up], encoding.get("color")
    why = _why_not(form, mark, label, number, series, result)
    if why:
        return chart, f"The chart shows {_SHOWN[mark]}, not {_SHOWN[form]}: {why}."
    drawn = chart | {"mark": chart["mark"] | {"type": form}}
    if form != "arc":
        return drawn, ""
    parts = {key: value for key, value in label.items() if key != "sort"} | {"type": "nominal"}
    return drawn | {"encoding": {"theta": number, "color": parts}}, ""


def _why_not(form: Form, mark: str, label: dict[str, Any], number: dict[str, Any], series: Any, result: Result) -> str:
    """Return why the chart cannot be drawn in this form; empty if it can."""
    if form == "point":
        return "points need two numbers for each row"
    if mark == "point":
        return "each row has two numbers, and no name or date"
    if form in ("line", "area"):
        return "the groups have no order, as dates have" if mark == "bar" else ""
    if form == "bar":
        return "there are too many periods for bars" if len(_values(result, label)) > BARS else ""
    values = _values(result, number)
    if series is not None:
        return "a pie has room for one kind of group only"
    if any(not isinstance(value, int | float | Decimal) or value < 0 for value in values) or not any(values):
        return "not every part is a number above zero"
    if str(number["field"]).startswith(_NO_PARTS):
        return "its values are not parts of a whole"
    return "there are too many parts to tell apart" if len(values) > SLICES else ""


def _values(result: Result, channel: dict[str, Any]) -> Sequence[Any]:
    name = re.sub(r"\\(.)", r"\1", str(channel["field"]))
    at = [column.name for column in result.columns].index(name)
    return [row[at] for row in result.first_rows(result.row_count)]
