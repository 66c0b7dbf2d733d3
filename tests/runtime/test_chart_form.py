"""The form of chart that a question names is drawn, or the answer says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.app import App
from etude.runtime.chart_form import asked_form


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("revenue by region as a pie chart", "arc"),
        ("line chart of orders per month", "line"),
        ("orders per month as bars", "bar"),
        ("scatter plot of price and quantity", "point"),
        ("orders by product line", None),
    ],
)
def test_the_form_that_a_question_names(question: str, form: str | None) -> None:
    assert asked_form(question) == form


@pytest.mark.parametrize(
    ("question", "mark", "said"),
    [
        ("total quantity by product as a pie chart", "arc", ""),
        ("bar chart of total quantity per month", "bar", ""),
        ("total quantity by product as a line chart", "bar", "not a line: the groups have no order"),
        ("average quantity by product as a pie chart", "bar", "not a pie: its values are not parts of a whole."),
    ],
)
def test_a_chart_in_its_form(question: str, mark: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("order_date,product,quantity\n2024-01-05,Tea,3\n2024-02-06,Milk,5\n2024-03-07,Tea,4\n")
    with App(home=tmp_path / "home") as app:
        answer = app.ask(str(path), question)
    assert answer.chart is not None and answer.chart["mark"]["type"] == mark
    assert said in answer.text and ("pie" in answer.text or "line" in answer.text) == bool(said)
    titles = {channel["title"] for channel in answer.chart["encoding"].values()}
    assert titles & {"total quantity", "average quantity"}
