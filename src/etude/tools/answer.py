"""`answer`: end the run with a text, the results to show and a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from etude.entities import Entity
from etude.errors import Invalid
from etude.tools.answer_chart import answer_chart_object, check_answer_chart, parse_answer_chart
from etude.tools.base import Tool, ToolContext


class Arguments(Entity):
    """The answer and what is shown with it."""

    text: str = Field(default="", description="by default the text of this turn")
    results: tuple[str, ...] = Field(
        default=(), max_length=12, description='such as ["r2", "r1"], [] for none; else those that the text quotes'
    )
    chart: dict[str, Any] | None = Field(
        default=None,
        description='{"result": "r1", "mark": "line", "x": "month", "y": "sales", "color": "city", "title": "..."}, '
        'or Vega-Lite. Grouped bars: "y": ["a", "b"], or "color" with "stack": false. Marks also: pie, '
        "histogram, none",
    )

    origins: dict[str, str | None] | None = Field(default=None, max_length=40, description="only if asked for")

    @field_validator("chart", mode="before")
    @classmethod
    def _as_object(cls, given: Any) -> Any:
        return answer_chart_object(given)


class GiveAnswer(Tool):
    """Ends the run."""

    name = "answer"
    description = "End the run: the answer's text, the results to show in order, a chart if one helps."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Check that the results exist. The chart is checked with the text: if it alone is wrong, the text is kept."""
        known = context.results()
        unknown = [name for name in arguments.results if name not in known]
        if unknown:
            # A model that sees all mistakes at once can correct them in one turn.
            texts = [*context.find_figure_errors(arguments.text), *_chart_errors(arguments.chart, known)]
            texts += [f"There is no result `{name}`." for name in unknown]
            raise Invalid("\n".join(texts), hint=f"Results: {', '.join(known) or 'none yet'}.")
        return "Received. Its numbers will now be checked."


def _chart_errors(chart: dict[str, Any] | None, known: Mapping[str, Sequence[str]]) -> list[str]:
    try:
        if chart is not None:
            check_answer_chart(parse_answer_chart(chart), (), known)
    except Invalid as error:
        return [f"{error.message} {error.hint}".strip()]
    return []
