"""The model says where figures come from that no result has as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.app import App
from etude.entities import Budget
from etude.events import TextDelta
from etude.models.base import UserMessage
from etude.models.scripted import Line, Scripted, ScriptedCall
from etude.runtime.answer import Answer
from etude.runtime.expression import ExpressionRows
from etude.runtime.figures import computed_spans, render_figures
from etude.runtime.number_check.check import Evidence, check_numbers
from etude.runtime.number_check.mentions import find_number_mentions
from etude.runtime.origins import MOST, ask_for_origins, states_value, trace_origins

QUERY = "SELECT 'a' AS city, 4120 AS total UNION ALL SELECT 'b', 977 UNION ALL SELECT 'c', 3391"
SAID = "Weighted as agreed, the index of the three is 2,346.6."
ORIGIN = "(r1.total[city='a'] * 2 + r1.total[city='b'] + r1.total[city='c'] * 0.05) / 4"
COMPUTE = Line(calls=(ScriptedCall(name="execute_sql", arguments={"dataset": "cities", "query": QUERY}),))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=str(tmp_path / "home")) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "cities.csv").write_text("city,total\na,4120\nb,977\nc,3391\n")
    return str(tmp_path / "cities.csv")


def origins(**given: str | None) -> Line:
    numbered = {name.removeprefix("n"): expression for name, expression in given.items()}
    return Line(text="These are they.", calls=(ScriptedCall(name="answer", arguments={"origins": numbered}),))


def ask(app: App, source: str, *lines: Line, budget: Budget | None = None) -> tuple[Answer, Scripted]:
    model = Scripted([COMPUTE, *lines])
    return app.ask(source, "What is the index?", model=model, budget=budget), model


def test_the_text_is_kept_and_the_figure_has_its_origin(app: App, source: str) -> None:
    answer, model = ask(app, source, Line(text=SAID), origins(n1=ORIGIN))
    assert answer.text == SAID and not answer.unverified
    assert [(f.text, f.value, f.result, f.expression) for f in answer.figures] == [
        ("2,346.6", "2346.6375", "r1", ORIGIN)
    ]
    asked = [m.text for m in model.seen[-1].conversation if isinstance(m, UserMessage)][-1]
    assert "1. `2,346.6` in `Weighted as agreed, the index of the three is 2,346.6.`" in asked


def test_the_reply_to_the_request_is_not_shown_as_text(app: App, source: str) -> None:
    answer, _ = ask(app, source, Line(text=SAID), origins(n1=ORIGIN))
    texts = [e.event.text for e in app.store.entries(answer.run_id) if isinstance(e.event, TextDelta)]
    assert "".join(texts) == SAID


def test_results_and_chart_of_the_answer_are_kept(app: App, source: str) -> None:
    chart = {"result": "r1", "mark": "bar", "x": "city", "y": "total"}
    first = ScriptedCall(name="answer", arguments={"text": SAID, "results": ["r1"], "chart": chart})
    answer, _ = ask(app, source, Line(calls=(first,)), origins(n1=ORIGIN))
    assert answer.text == SAID and [name for name, _ in answer.results] == ["r1"]
    assert answer.chart is not None and answer.chart["mark"]["type"] == "bar" and len(answer.figures) == 1


def test_a_figure_whose_origin_has_another_value_goes_back(app: App, source: str) -> None:
    false = SAID.replace("2,346.6", "2,643.6")
    answer, model = ask(app, source, Line(text=false), origins(n1=ORIGIN), Line(text=SAID))
    assert answer.text == SAID and [f.expression for f in answer.figures] == [ORIGIN]
    asked = [m.text for m in model.seen[-1].conversation if isinstance(m, UserMessage)][-1]
    assert "other values than the answer" in asked and f"your expression `{ORIGIN}` is 2,346.64." in asked


@pytest.mark.parametrize("expression", [None, "", "r1.total[city='nowhere']", "2346.6", "r9.x[0]", "import os"])
def test_a_figure_without_an_origin_is_marked(app: App, source: str, expression: str | None) -> None:
    answer, _ = ask(app, source, Line(text=SAID), origins(n1=expression))
    assert answer.ok and answer.unverified == ("2,346.6",) and answer.text.endswith("2,346.6 [?].")


def test_a_corrected_answer_in_plain_text_replaces_it(app: App, source: str) -> None:
    answer, _ = ask(app, source, Line(text=SAID), Line(text="City a has 4,120."))
    assert answer.text == "City a has 4,120." and not answer.unverified


@pytest.mark.parametrize("reply", ["All of it is right.", "It is r1.total[0] / 4 and 7."])
def test_another_plain_reply_does_not_replace_the_answer(app: App, source: str, reply: str) -> None:
    answer, _ = ask(app, source, Line(text=SAID), Line(text=reply))
    assert answer.text == SAID.replace("2,346.6", "2,346.6 [?]")


def test_an_answer_is_not_lost_if_the_model_fails_or_the_budget_ends(app: App, source: str) -> None:
    failed, _ = ask(app, source, Line(text=SAID), Line(error="The model is gone."))
    assert failed.ok and failed.text == SAID.replace("2,346.6", "2,346.6 [?]")
    spent, _ = ask(app, source, Line(text=SAID), origins(n1=ORIGIN), budget=Budget(steps=2))
    assert spent.ok and spent.text == failed.text


def test_a_model_is_asked_once(app: App, source: str) -> None:
    again = Line(text=SAID.replace("three", "cities"))
    answer, model = ask(app, source, Line(text=SAID), again)
    assert answer.unverified == ("2,346.6",) and len(model.seen) == 3


SALES = Evidence("r1", ("region", "orders"), [("North", 412), ("South", 388)])
ROWS = {"r1": ExpressionRows("r1", ("region", "orders"), lambda: [("North", 412), ("South", 388)])}


def test_figures_that_results_have_need_no_origin() -> None:
    assert ask_for_origins(check_numbers("North has 412 orders and South 388.", [SALES])) == ""


def test_a_limited_number_of_figures_is_asked_for() -> None:
    text = " ".join(f"Item {n} costs ${n}7,931.{n:02}." for n in range(10, 99))
    verdict = check_numbers(text, [SALES])
    assert ask_for_origins(verdict).count("\n") == MOST
    assert len(trace_origins(verdict, {str(n): "r1.orders[0]" for n in range(99)}, ROWS).differences) == MOST


@pytest.mark.parametrize(
    ("text", "value", "states"),
    [
        ("82% of it", "0.8199", True),
        ("82% of it", "81.99", True),
        ("82% of it", "0.79", False),
        ("grew 12%", "1.12", True),
        ("fell by 12%", "-0.12", True),
        ("half of it", "0.51", True),
        ("fifteen of them", "15", True),
        ("fifteen of them", "14", False),
        ("about 1,200", "1240", True),
        ("$1.2M", "1234567", True),
        ("3 times as many", "2.96", True),
        ("5 of them", "4.6", False),
    ],
)
def test_a_number_states_a_value_at_its_own_precision(text: str, value: str, states: bool) -> None:
    [mention] = find_number_mentions(text)
    assert states_value(mention, Decimal(value)) is states


def test_a_date_states_a_date() -> None:
    [mention] = find_number_mentions("It began on 3 March 2024.")
    assert states_value(mention, "2024-03-03") and not states_value(mention, "2024-03-04")
    assert not states_value(mention, Decimal(3))


@given(st.decimals(1, 10**9, places=4, allow_nan=False), st.integers(0, 4))
def test_every_rounded_value_states_its_value(value: Decimal, places: int) -> None:
    [mention] = find_number_mentions(f"It is {round(value, places):,f} in all.")
    assert states_value(mention, value) or abs(value) < 20  # `5` does not stand for 4.6


AIRPORTS = Evidence("r1", ("airport", "arrivals"), [("Atlanta", 911), ("Chicago O'Hare", 550), ("Los Angeles", 498)])
AIRPORT_ROWS = {"r1": ExpressionRows("r1", AIRPORTS.columns, lambda: list(AIRPORTS.rows))}


def test_an_origin_of_another_row_than_the_name_before_it_is_a_contradiction() -> None:
    verdict = check_numbers("Atlanta is well ahead of Los Angeles with 550.", [AIRPORTS])
    traced = trace_origins(verdict, {"1": "r1.arrivals[1]"}, AIRPORT_ROWS)
    assert traced.verdict.sends_back and "Chicago" in traced.differences[0]


def test_a_number_that_a_label_seems_to_contradict_is_asked_for_first() -> None:
    verdict = check_numbers("Atlanta has 550 arrivals.", [AIRPORTS])
    assert verdict.sends_back and "1. `550`" in ask_for_origins(verdict)


def test_an_expression_that_takes_a_row_nobody_names_is_asked_for() -> None:
    rendered = render_figures("Atlanta has {{ r1.arrivals[0] - r1.arrivals[2] }} more.", AIRPORT_ROWS)
    spans = computed_spans(rendered.text, rendered.figures)
    verdict = check_numbers(rendered.text, [AIRPORTS], computed=spans, figures=rendered.computed)
    assert not verdict.ok or ask_for_origins(verdict)


def test_a_value_that_each_of_two_rows_has_must_be_that_of_both() -> None:
    shops = Evidence("r1", ("district", "shops"), [("Ontario", 54), ("Quebec", 54), ("Alberta", 40)])
    assert check_numbers("Ontario and Quebec have the most shops, 54 each.", [shops]).ok
    assert check_numbers("Ontario and Alberta have the most shops, 54 each.", [shops]).refuted
