"""Figures that carry their origin: written as expressions, shown as numbers."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.runtime.expression import ExpressionRows
from etude.runtime.figures import computed_spans, move_figures, render_figures, write_figure
from etude.runtime.number_check.mentions import find_number_mentions

RESULTS = {
    "r1": ExpressionRows("r1", ("country", "revenue"), lambda: [("USA", 523.06), ("Canada", 303.96)]),
    "r2": ExpressionRows("r2", ("total",), lambda: [(1986.02,)]),
}


def test_an_expression_becomes_a_figure_with_its_origin() -> None:
    rendered = render_figures("The USA makes {{ (r1.revenue[0] / r2.total[0]) | 0.1% }} of it.", RESULTS)
    assert rendered.text == "The USA makes 26.3% of it." and not rendered.errors
    [figure] = rendered.figures
    assert rendered.text[figure.start : figure.end] == figure.text == "26.3%"
    assert figure.value.startswith("0.26337") and figure.result == "r1, r2"
    assert figure.expression == "(r1.revenue[0] / r2.total[0])"


def test_a_label_can_come_from_a_result_too() -> None:
    assert render_figures("{{ r1.country[1] }} is second.", RESULTS).text == "Canada is second."


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("{{ r1.revenue[0] / r2.total:.2% }}", "26.34%"),
        ("{{ r1.revenue[0] / r2.total | :.2% }}", "26.34%"),
        ("{{ r2.total:,.1f }}", "1,986.0"),
        ("{{ r2.total | :,.1f }}", "1,986.0"),
        ("{{ r2.total | round(1) }}", "1,986.0"),
        ("{{ sum(r1.revenue[0:2]) | 0 }}", "827"),
        ("{{ r1.country[country in ('USA', 'a|b:c')] }}", "USA"),
        ("{{ round(r1.revenue[0] / r2.total * 100, 1) }}%", "26.3%"),
        ("{{ (r1.revenue[0] * 2).round(1) }}", "…"),
        ("{{ r2.total.round(0) }}", "1,986"),
        ("{{ r2.total.round(3) }}", "1,986.020"),
        ("{{ round(r2.total, -2) }}", "2,000"),
    ],
)
def test_a_format_may_be_that_of_python_and_round_keeps_its_digits(written: str, shown: str) -> None:
    assert render_figures(written, RESULTS).text == shown


@pytest.mark.parametrize(
    ("written", "covered"),
    [
        ("It is {{ round(r2.total / 100, 1) }}% of it.", ["19.9%"]),
        ("It costs ${{ r2.total | 0 }} million.", ["$1986 million"]),
        ("It grew {{ r2.total | 0 }}-fold, by {{ r2.total | 0 }} days.", ["1986", "1986"]),
        ("It is 7{{ r2.total | 0 }}.", []),
    ],
)
def test_a_unit_beside_a_figure_belongs_to_it_but_other_digits_do_not(written: str, covered: list[str]) -> None:
    rendered = render_figures(written, RESULTS)
    spans = computed_spans(rendered.text, rendered.figures)
    found = [m for m in find_number_mentions(rendered.text) if any(a <= m.start and m.end <= b for a, b in spans)]
    assert [mention.text for mention in found] == covered


def test_errors_are_told_and_the_expression_is_never_shown() -> None:
    rendered = render_figures("A {{ r1.x[0] }} and {{ 41 + 1 }} and {{ r2.total", RESULTS)
    assert rendered.text == "A … and … and …"
    unknown, without_result, unclosed = rendered.errors
    assert "`r1` has no column `x`" in unknown and "uses no result" in without_result and "is missing" in unclosed


def test_places_move_with_marks_in_the_text() -> None:
    rendered = render_figures("{{ r2.total }} and 7 and {{ r2.total | 0 }}", RESULTS)
    marked = rendered.text.replace("7", "7 [?]")
    moved = move_figures(rendered.figures, rendered.text, marked)
    assert [marked[f.start : f.end] for f in moved] == ["1,986.02", "1986"]


@pytest.mark.parametrize(
    ("sample", "value", "written"),
    [
        ("", "1234567", "1,234,567"),
        ("", "1234.5678", "1,234.57"),
        ("0", "1234.5", "1235"),
        ("0.1", "2.25", "2.3"),
        ("0.00", "2.255", "2.26"),
        ("1,234", "1234567.8", "1,234,568"),
        ("1,234.50", "1234567.8", "1,234,567.80"),
        ("1.234,5", "1234567.89", "1.234.567,9"),
        ("1 234,5", "1234567.89", "1 234 567,9"),
        ("1'234", "1234567", "1'234'567"),
        ("0,1 %", "0.1234", "12,3 %"),
        ("0.1%", "0.1234", "12.3%"),
        ("0%", "-0.1234", "-12%"),
        ("+0.1%", "0.1234", "+12.3%"),
        ("$1,234.50", "-1234.5", "-$1,234.50"),
        ("1.234,50 €", "1234.5", "1.234,50 €"),
        ("$1.2M", "1234567", "$1.2M"),
        ("1.2 million", "1234567", "1.2 million"),
        ("0k", "1234567", "1235k"),
        ("0.1x", "1.72", "1.7x"),
        (",.2f", "1234.5", "1,234.50"),
        (".1%", "0.5", "50.0%"),
        ("d", "3.2", "3"),
    ],
)
def test_the_format_is_a_sample_of_the_number(sample: str, value: str, written: str) -> None:
    assert write_figure(Decimal(value), sample) == written


@given(st.text(max_size=60), st.text(alphabet="{}r12. |0%", max_size=40))
def test_any_text_can_be_rendered(before: str, after: str) -> None:
    rendered = render_figures(before + after, RESULTS)
    assert "{{" not in rendered.text or "}}" not in rendered.text.split("{{", 1)[1]
    for figure in rendered.figures:
        assert rendered.text[figure.start : figure.end] == figure.text


def test_many_open_braces_take_linear_time() -> None:
    start = time.process_time()
    rendered = render_figures("{{" * 100_000, RESULTS)
    assert time.process_time() - start < 20
    assert rendered.text == "…" and len(rendered.errors) == 1
