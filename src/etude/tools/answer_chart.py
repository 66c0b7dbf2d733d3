"""The chart of an answer as a model writes it: a short form with names of columns, or Vega-Lite."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etude.errors import Invalid
from etude.similar_names import similar_names

MARKS = ("bar", "line", "area", "point", "arc", "rect", "tick", "boxplot")
NONE = "none"
"""The mark of a chart that the model declines."""
COUNTS = frozenset({"count", "count()", "count(*)", "frequency"})
"""Words for the number of rows, if the result has no such column."""
_ALIASES = {
    "pie": "arc", "donut": "arc", "doughnut": "arc", "ring": "arc", "scatter": "point", "scatterplot": "point",
    "scatter plot": "point", "points": "point", "circle": "point", "bubble": "point", "column": "bar", "columns": "bar",
    "bars": "bar", "barh": "bar", "histogram": "bar", "hist": "bar", "lines": "line", "heatmap": "rect",
    "box": "boxplot", "box plot": "boxplot",
}  # fmt: skip
_RINGS = frozenset({"donut", "doughnut", "ring"})
_HISTOGRAMS = frozenset({"histogram", "hist"})
_OTHER_WORDS = {"type": "mark", "kind": "mark", "colour": "color", "yOffset": "xOffset", "maxbins": "bins"}
SHORT = ("result", "mark", "x", "y", "color", "title", "sort", "stack", "size", "theta", "xOffset", "bins")
_VEGA = frozenset({"$schema", "encoding", "layer", "hconcat", "vconcat", "concat", "repeat", "facet", "spec"})
_STACKS = (None, True, False, "zero", "normalize", "center")
_NEEDED_BOTH = ("line", "area", "point", "rect")
_ONLY = {
    "theta": (("arc",), "`theta` is the size of a slice of a pie", "Use `y`."),
    "xOffset": (("bar",), "`xOffset` puts bars side by side", "Use `color`."),
    "stack": (("bar", "area"), "`stack` is for bars and areas", "Leave it out."),
    "size": (("point",), "`size` is for points", "Use `color`, or leave it out."),
    "bins": (("bar",), "`bins` is for a histogram", "Leave it out."),
}
"""The marks that a part of a chart is for, what it is, and what to write instead."""


def answer_chart_object(given: Any) -> Any:
    """Return a chart that was given as text as an object: the text is JSON, or a mark."""
    if not isinstance(given, str):
        return {"mark": NONE} if given is False else given
    with contextlib.suppress(ValueError):
        parsed = json.loads(given)
        if isinstance(parsed, dict):
            return parsed
    return {"mark": given}


def parse_answer_chart(given: Any) -> dict[str, Any]:
    """Return a chart with the words of this module: `pie` is `arc`, `type` is `mark`, `data` names the result.

    A ring gets `ring`, because its mark is that of a pie.
    """
    chart = answer_chart_object(given)
    if is_vega_answer_chart(chart):
        spec = _rename_marks(dict(chart))
        return spec if "result" in spec or not (name := _data_name(spec.get("data"))) else spec | {"result": name}
    short = {_OTHER_WORDS.get(key, key): value for key, value in chart.items()}
    if (name := _data_name(short.get("data"))) and "result" not in short:
        short["result"] = name
    if "result" in short:
        short.pop("data", None)
    mark = short.get("mark")
    if isinstance(mark, Mapping):
        short["ring"], mark = bool(mark.get("innerRadius")), mark.get("type")
    word = str(mark).lower().replace("_", " ").strip()
    short["mark"] = _ALIASES.get(word, word)
    short["ring"] = bool(short.get("ring")) or word in _RINGS
    if word in _HISTOGRAMS:
        short.setdefault("bins", None)
    for part in ("x", "y", "color", "size", "theta", "xOffset"):
        if isinstance(short.get(part), Mapping):
            channel = short[part]
            short[part] = channel.get("field")
            if channel.get("sort") is not None:
                short.setdefault("sort", channel["sort"])
    if short["mark"] == "arc" and "theta" in short:
        theta = short.pop("theta")
        if short.get("y") not in (None, theta):
            short.setdefault("x", short["y"])
        short["y"] = theta
    if short["mark"] == "bar" and short.get("xOffset") and not short.get("color"):
        short["color"] = short["xOffset"]
    return short


def check_answer_chart(chart: Mapping[str, Any], shown: Sequence[str], known: Mapping[str, Sequence[str]]) -> None:
    """Raise `Invalid` if a parsed chart cannot be drawn: an unknown mark, result, column or part."""
    if is_declined_answer_chart(chart):
        return
    name = answer_chart_result(chart, shown, known)
    if name and name not in known:
        raise Invalid(f"There is no result `{name}`.", hint=f"Results: {', '.join(known) or 'none yet'}.")
    if is_vega_answer_chart(chart):
        others = {other for other in map(_data_name, _data_parts(chart)) if other in known and other != name}
        if others:
            raise Invalid(
                f"The chart draws `{name}` and `{sorted(others)[0]}`.",
                hint="Join them in one query first, and draw its result.",
            )
        return
    mark = chart["mark"]
    if unknown := sorted(set(chart) - {*SHORT, "ring"}):
        raise Invalid(f"A chart has no `{unknown[0]}`.", hint=f"Give {', '.join(SHORT)}, or a Vega-Lite specification.")
    if mark not in MARKS:
        raise Invalid(
            f"`{mark}` is not a mark of a chart.", hint=f"Marks: {', '.join(MARKS)}, pie, histogram, scatter, {NONE}."
        )
    for part, (marks, meaning, instead) in _ONLY.items():
        if part in chart and mark not in marks:
            raise Invalid(f"{meaning}, and the mark is {mark}.", hint=instead)
    if chart.get("stack") not in _STACKS:
        raise Invalid(f"`{chart['stack']}` is not a way to stack.", hint='Give true, false or "normalize".')
    if not name:
        raise Invalid("There is no result to draw a chart of.", hint="Compute one first.")
    _check_columns(chart, name, known[name])


def _check_columns(chart: Mapping[str, Any], name: str, columns: Sequence[str]) -> None:
    mark, several = chart["mark"], isinstance(chart.get("y"), list)
    if several and (chart.get("color") or mark in ("arc", "boxplot", "rect") or not chart["y"]):
        with_what = "a color" if chart.get("color") else f"the mark {mark}"
        raise Invalid(
            f"A chart with {with_what} draws one column as `y`.",
            hint="Give one column, or a line, bar, area or point without `color`: each column of `y` is a series.",
        )
    counted = counted_chart_part(chart, columns)
    given = [part for part in ("x", "y") if chart.get(part)]
    if len(given) < (2 if mark in _NEEDED_BOTH else 1):
        missing = " and ".join(f"`{part}`" for part in ("x", "y") if part not in given)
        raise Invalid(f"The chart has no {missing}.", hint=f"Give a column of `{name}` for each: {', '.join(columns)}.")
    wanted = [(part, chart[part]) for part in ("x", "color", "xOffset") if chart.get(part)]
    wanted += [("y", each) for each in (chart["y"] if several else [chart.get("y")]) if each]
    if isinstance(chart.get("size"), str):
        wanted.append(("size", chart["size"]))
    for part, column in wanted:
        if column not in columns and part != counted:
            near = similar_names(str(column), columns, n=1)
            hint = f"Did you mean `{near[0]}`?" if near else f"Its columns: {', '.join(columns)}."
            raise Invalid(f"`{name}` has no column `{column}` for `{part}` of the chart.", hint=hint)


def counted_chart_part(chart: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the axis on which a chart of bars shows numbers of rows: the one that has no column; empty if both do."""
    if chart["mark"] != "bar":
        return ""
    for part, other in (("y", "x"), ("x", "y")):
        given = chart.get(part)
        if chart.get(other) and (
            given is None or (isinstance(given, str) and given.lower() in COUNTS and given not in columns)
        ):
            return part
    return ""


def is_declined_answer_chart(chart: Any) -> bool:
    """Return whether the model says that the answer has no chart, not even one that etude would choose."""
    return chart is False or chart == NONE or (isinstance(chart, Mapping) and chart.get("mark") == NONE)


def is_vega_answer_chart(chart: Mapping[str, Any]) -> bool:
    """Return whether a chart is a Vega-Lite specification rather than the short form."""
    return bool(_VEGA & set(chart))


def answer_chart_result(chart: Mapping[str, Any], shown: Sequence[str], known: Mapping[str, Sequence[str]]) -> str:
    """Return the id of the result that a chart draws: the named one, the first shown one, or the last one."""
    named = chart.get("result")
    return str(named) if named is not None else next(iter(shown), "") or next(reversed(list(known)), "")


def _data_name(data: Any) -> str:
    """Return the result that the data of a specification names: `"r1"`, or an object with `values`, `name` or `url`."""
    if isinstance(data, Mapping):
        data = next((data[key] for key in ("values", "name", "url") if isinstance(data.get(key), str)), "")
    return data if isinstance(data, str) and data[:1] == "r" and data[1:].isdigit() else ""


def _data_parts(spec: Any) -> Iterator[Any]:
    """Yield the data of a specification and of its layers and parts."""
    for key, value in spec.items() if isinstance(spec, Mapping) else ():
        if key == "data":
            yield value
        elif key in _VEGA and key != "encoding":
            for part in value if isinstance(value, list) else [value]:
                yield from _data_parts(part)


def _rename_marks(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification with the marks of Vega-Lite, such as `arc` for `pie`."""
    mark, plain = spec.get("mark"), dict(spec)
    kind = mark.get("type") if isinstance(mark, Mapping) else mark
    if isinstance(kind, str) and kind.lower() in _ALIASES and kind not in ("circle", *_HISTOGRAMS):
        named = {"type": _ALIASES[kind.lower()]} | ({"innerRadius": 50} if kind.lower() in _RINGS else {})
        plain["mark"] = dict(mark) | named if isinstance(mark, Mapping) else named
    for key in ("layer", "hconcat", "vconcat", "concat"):
        if isinstance(plain.get(key), list):
            plain[key] = [_rename_marks(part) if isinstance(part, dict) else part for part in plain[key]]
    return plain


def chart_without_named_data(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification without the parts of `data` that only name a result."""
    kept: dict[str, Any] = {}
    for key, value in spec.items():
        if key == "data" and _data_name(value):
            continue
        inner = key in _VEGA and key != "encoding"
        if inner and isinstance(value, list):
            kept[key] = [chart_without_named_data(part) if isinstance(part, dict) else part for part in value]
        else:
            kept[key] = chart_without_named_data(value) if inner and isinstance(value, dict) else value
    return kept
