"""`answer`: end the run with a text, the results to show and a chart."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import Field, field_validator

from etude.entities import Entity
from etude.errors import Invalid
from etude.tools.base import Tool, ToolContext

MARKS = ("bar", "line", "area", "point", "arc", "rect", "tick", "boxplot")
NONE = "none"
"""The mark of a chart that the model declines."""
SHORT = frozenset({"result", "mark", "x", "y", "color", "title"})
_VEGA = frozenset({"$schema", "encoding", "layer", "hconcat", "vconcat", "concat", "repeat", "facet", "spec"})


class Arguments(Entity):
    """The answer and what is shown with it."""

    text: str = Field(default="", description="by default the text of this turn")
    results: tuple[str, ...] = Field(
        default=(), max_length=12, description='such as ["r2", "r1"]; else those that the text quotes'
    )
    chart: dict[str, Any] | None = Field(
        default=None,
        description='{"result": "r1", "mark": "line", "x": "month", "y": "sales", "color": "city", "title": "..."}, '
        'or Vega-Lite, or {"mark": "none"} for no chart',
    )

    @field_validator("chart", mode="before")
    @classmethod
    def _declined(cls, given: Any) -> Any:
        return {"mark": NONE} if is_declined_answer_chart(given) else given


class GiveAnswer(Tool):
    """Ends the run."""

    name = "answer"
    description = "End the run with the answer's text, the results to show, in order, and a chart if one helps."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Check that the results and the columns of the chart exist."""
        known = context.results()
        problems: list[Invalid] = []
        for name in arguments.results:
            with _collecting(problems):
                _require_result(name, known)
        if arguments.chart is not None:
            with _collecting(problems):
                check_answer_chart(arguments.chart, arguments.results, known)
        if problems:
            # A model that sees all mistakes at once can correct them in one turn.
            texts = [f"{p.message} {p.hint}".strip() for p in problems[:-1]]
            figures = context.find_figure_errors(arguments.text)
            raise Invalid("\n".join([*figures, *texts, problems[-1].message]), hint=problems[-1].hint)
        return "Received. Its numbers will now be checked."


@contextmanager
def _collecting(problems: list[Invalid]) -> Iterator[None]:
    try:
        yield
    except Invalid as problem:
        problems.append(problem)


def check_answer_chart(chart: Mapping[str, Any], shown: Sequence[str], known: Mapping[str, Sequence[str]]) -> None:
    """Raise `Invalid` if a chart cannot be drawn: an unknown mark, result or column."""
    if is_declined_answer_chart(chart):
        return
    if answer_chart_result(chart, shown, known):
        _require_result(answer_chart_result(chart, shown, known), known)
    if is_vega_answer_chart(chart):
        return
    if unknown := sorted(set(chart) - SHORT):
        raise Invalid(
            f"A chart has no `{unknown[0]}`.", hint=f"Give {', '.join(sorted(SHORT))}, or a Vega-Lite specification."
        )
    if chart.get("mark") not in MARKS:
        raise Invalid(f"`{chart.get('mark')}` is not a mark of a chart.", hint=f"Marks: {', '.join(MARKS)}, {NONE}.")
    name = answer_chart_result(chart, shown, known)
    if not name:
        raise Invalid("There is no result to draw a chart of.", hint="Compute one first.")
    several = isinstance(chart.get("y"), list)
    if several and (chart.get("color") or chart["mark"] in ("arc", "boxplot", "rect")):
        raise Invalid(
            f"A chart with {'a color' if chart.get('color') else 'the mark ' + chart['mark']} draws one column as `y`.",
            hint="Give one column, or a line, bar, area or point without `color`: each column of `y` is a series.",
        )
    columns = [(part, chart.get(part)) for part in ("x", "color")]
    columns += [("y", each) for each in (chart["y"] if several else [chart.get("y")])]
    for part, column in columns:
        if column is None and (part == "color" or chart["mark"] in ("arc", "boxplot")):
            continue
        if column not in known[name]:
            near = difflib.get_close_matches(str(column), known[name], n=1)
            hint = f"Did you mean `{near[0]}`?" if near else f"Its columns: {', '.join(known[name])}."
            raise Invalid(f"`{name}` has no column `{column}` for `{part}` of the chart.", hint=hint)


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


def _require_result(name: str, known: Mapping[str, Sequence[str]]) -> None:
    if name not in known:
        raise Invalid(f"There is no result `{name}`.", hint=f"Results: {', '.join(known) or 'none yet'}.")
