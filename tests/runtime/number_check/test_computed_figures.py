"""Figures that are computed from expressions must be about what their sentence says."""

from __future__ import annotations

import pytest

from etude.runtime.expression import ExpressionRows
from etude.runtime.figures import computed_spans, render_figures
from etude.runtime.number_check.check import Evidence, NumberCheckVerdict, check_numbers

COLUMNS = ("airline", "routes", "planes", "staff")
ROWS = [
    ("Ryanair", 2484, 300, 13000),
    ("American", 2352, 900, 98000),
    ("United", 2180, 760, 88000),
    ("Delta", 1981, 850, 80000),
    ("Iberia", 980, 86, 17000),
]


def verdict_on(text: str, question: str = "") -> NumberCheckVerdict:
    rendered = render_figures(text, {"r1": ExpressionRows("r1", COLUMNS, lambda: ROWS)})
    assert not rendered.errors
    results = [Evidence("r1", COLUMNS, list(ROWS))]
    spans = computed_spans(rendered.text, rendered.figures)
    return check_numbers(rendered.text, results, question, computed=spans, figures=rendered.computed)


@pytest.mark.parametrize(
    "text",
    [
        "Delta has {{ r1.routes[airline='American'] - r1.routes[airline='Delta'] }} routes fewer than Ryanair.",
        "United flies {{ r1.routes[3] | 1,234 }} routes.",
        "- Iberia: {{ r1.routes[2] / r1.planes[2] | 0.1 }} routes for each plane",
        "The four largest, with Delta, have {{ sum(r1.routes[0:3]) | 1,234 }} routes.",
        "Ryanair is {{ r1.routes[airline='Delta'] - r1.routes[airline='Ryanair'] | 1,234 }} ahead of Delta.",
        "Per plane, Ryanair has {{ r1.routes[0] / r1.planes[0] | 0.1 }}, "
        "American {{ r1.routes[1] / r1.planes[1] | 0.1 }} and United {{ r1.routes[2] / r1.staff[2] | 0.1 }} routes.",
    ],
)
def test_a_figure_about_something_else_is_contradicted(text: str) -> None:
    assert verdict_on(text).contradicted


@pytest.mark.parametrize(
    "text",
    [
        "Delta has {{ r1.routes[0] - r1.routes[airline='Delta'] }} routes fewer than Ryanair.",
        "Ryanair leads. It has {{ r1.routes[0] / sum(r1.routes) | 0.1% }} of all routes.",
        "American and United follow. The two have {{ r1.routes[1] + r1.routes[2] | 1,234 }} routes.",
        "Delta is {{ r1.routes[0] - r1.routes[3] | 1,234 }} routes behind the leader.",
        "The top three, with Ryanair, have {{ sum(r1.routes[0:3]) | 1,234 }} routes.",
        "Iberia has {{ r1.routes[4] / r1.planes[4] | 0.1 }} routes and "
        "{{ r1.staff[4] / r1.planes[4] | 0.1 }} people a plane.",
        "The median is {{ median(r1.routes) | 1,234 }}; Ryanair is {{ r1.routes[0] / median(r1.routes) | 0.1x }} it.",
    ],
)
def test_a_figure_about_what_its_sentence_says_is_verified(text: str) -> None:
    assert verdict_on(text).ok


def test_a_row_that_the_question_names_may_be_meant() -> None:
    text = "Delta has {{ r1.routes[0] - r1.routes[3] | 1,234 }} routes fewer."
    assert verdict_on(text, "How far is Delta behind Ryanair?").ok
    assert not verdict_on(text).ok


def test_the_reason_names_both_rows() -> None:
    [checked] = verdict_on("United flies {{ r1.routes[3] | 1,234 }} routes.").contradicted
    assert checked.because == "the sentence names United, but the expression takes Delta"
