"""Expressions over results: exact, bounded, and never Python."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import Invalid
from etude.runtime.expression import ExpressionRows, evaluate_expression

SALES = [("USA", 523.06, 13, None), ("Canada", 303.96, 8, 2), ("O'Neil", Decimal("0.10"), 1, 5)]
RESULTS = {
    "r1": ExpressionRows("r1", ("country", "revenue", "Net Customers", "gap"), lambda: SALES),
    "r2": ExpressionRows("r2", ("total",), lambda: [(827.12,)]),
    "r3": ExpressionRows(
        "r3", ("day", "at"), lambda: [(date(2024, 3, 1), datetime(2024, 3, 1, 8)), (date(2024, 3, 5), "x")]
    ),
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("r1.revenue[0]", "523.06"),
        ("r1.revenue[-1]", "0.10"),
        ("r1[0].revenue", "523.06"),
        ('r1["Net Customers"][1]', "8"),
        ("r1.net_customers[1]", "8"),
        ("r1.`Net Customers`[1]", "8"),
        ("r1.revenue[country='USA']", "523.06"),
        ("r1.revenue[country = 'canada']", "303.96"),
        ("r1.revenue[country='O''Neil']", "0.10"),
        ("r1[country='USA'].revenue", "523.06"),
        ("r1.revenue[revenue > 100 and country != 'USA']", "303.96"),
        ("sum(r1.revenue[country in ('USA', 'Canada')])", "827.02"),
        ("r1.revenue[revenue > 100, country != 'USA']", "303.96"),
        ("r1.revenue[revenue > 100 & country != 'USA']", "303.96"),
        ("r1.revenue[(r1.revenue > 100) & (r1.country != 'USA')]", "303.96"),
        ("sum(r1.revenue[0:2])", "827.02"),
        ("sum(r1.revenue[:2])", "827.02"),
        ("sum(r1.revenue[-2:])", "304.06"),
        ("r1.net_customers.sum()", "22"),
        ("r1.net_customers[0:2].mean()", "10.5"),
        ("r1.revenue[0:2].mean().round(1) * 2", "827.0"),
        ("r1.gap.count() + r1.count()", "5"),
        ("len(r1)", "3"),
        ("len(r1.gap)", "3"),
        ("r2.total", "827.12"),
        ("sum(r1.revenue)", "827.12"),
        ("sum(r1.revenue * r1.net_customers)", "9231.56"),
        ("(r1.revenue[0] - r1.revenue[1]) / 2", "109.55"),
        ("-r2.total + 1", "-826.12"),
        ("max(r1.revenue) - min(r1.revenue)", "522.96"),
        ("median(r1.revenue)", "303.96"),
        ("mean(r1.net_customers) * 3", "22"),
        ("count(r1)", "3"),
        ("count(r1.gap)", "2"),
        ("abs(r1.revenue[1] - r1.revenue[0])", "219.10"),
        ("round(r2.total / 3, 1)", "275.7"),
        ("r3.day[1] - r3.day[0]", "4"),
        ("r1.country[0]", "USA"),
        ("max(r1.country)", "USA"),
    ],
)
def test_an_expression_is_computed_from_the_results(expression: str, value: str) -> None:
    found = evaluate_expression(expression, RESULTS).value
    assert found == (Decimal(value) if value[-1].isdigit() else value)


def test_the_results_that_were_used_are_told() -> None:
    assert evaluate_expression("r1.revenue[0] / r2.total", RESULTS).results == ("r1", "r2")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("r9.x", "there is no result `r9`; the results are: r1, r2, r3."),
        ("r1.revenu[0]", "did you mean `revenue`?"),
        ("r1", "`r1` needs a column"),
        ("r1.revenue", "3 values; choose a row"),
        ("r1.revenue[7]", "`r1` has 3 rows, counted from 0; 7 is not one"),
        ("r1.revenue[country='Narnia']", "no row of `r1` has country = 'Narnia'."),
        ("r1.revenue[country]", "a condition compares a column with a value"),
        ("r1.gap[0]", "is null"),
        ("r1.gap[0] + 1", "one of its values is null"),
        ("r1.country[0] * 2", "`USA` is not a number"),
        ("r2.total / 0", "divides by zero"),
        ("r1.revenue + r3.day", "the columns have 3 and 2 rows"),
        ("1 +", "it ends too early"),
        ("(1", "`)` is missing"),
        ("__import__('os')", "there is no function `__import__`"),
        ("r1.__class__", "has no column `__class__`"),
        ("lambda: 1", "there is no result `lambda`"),
        ("r2.total; 1", "`;"),
        ("(" * 50 + "1" + ")" * 50, "too many parentheses"),
        ("1+" * 400 + "1", "at most 600 characters"),
        ("9e999 * 9e999 * 9e999", ""),
    ],
)
def test_a_wrong_expression_gets_a_sentence(expression: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        outcome = evaluate_expression(expression, RESULTS)
        assert outcome.value is not None and not why
        raise Invalid("")
    assert why in caught.value.message


@given(st.text(alphabet="r12.revnu[]()+-*/='\"`, <>!andicotysum", max_size=60) | st.text(max_size=40))
def test_any_text_is_computed_or_refused(text: str) -> None:
    try:
        evaluate_expression(text, RESULTS)
    except Invalid as error:
        assert error.message


@given(st.lists(st.decimals(min_value=-(10**9), max_value=10**9, places=4), min_size=1, max_size=30))
def test_sums_of_decimals_are_exact(values: list[Decimal]) -> None:
    results = {"r1": ExpressionRows("r1", ("x",), lambda: [(v,) for v in values])}
    assert evaluate_expression("sum(r1.x)", results).value == sum(values)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("count(r1[revenue > mean(r1.revenue)])", 1),
        ("count(r1.revenue[country='nowhere'])", 0),
        ("count(r1[country='USA' or country='Canada'])", 2),
        ("sum(r1.revenue[country like '%a'])", 523 + 304),
        ("distinct(r1.country)", 3),
        ("count(distinct(r1.country))", 3),
        ("count(r1[revenue * 2 > cost + 500])", 1),
        ("count(r1[revenue <= cost])", 1),
        ("stddev(r1.revenue)", 167.0459),
    ],
)
def test_conditions_may_be_computed_joined_by_or_and_empty(expression: str, value: float) -> None:
    columns, rows = ("country", "revenue", "cost"), [("USA", 523, 300), ("Canada", 304, 304), ("France", 195, 100)]
    found = evaluate_expression(expression, {"r1": ExpressionRows("r1", columns, lambda: rows)}).value
    assert float(str(found)) == pytest.approx(value)


def test_rows_by_where_are_those_by_a_condition() -> None:
    rows = {
        "r1": ExpressionRows(
            "r1", ("driver", "country", "wins"), lambda: [("A", "Peru", 3), ("B", "Peru", 4), ("C", "Chile", 9)]
        )
    }
    assert evaluate_expression("sum(r1.wins where r1.country = 'Peru')", rows).value == 7
    assert evaluate_expression("count(r1.driver where wins > 3)", rows).value == 2
