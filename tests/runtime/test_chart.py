"""The chart that fits a result."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from etude.entities import ResultInfo
from etude.result import Result, describe_result_columns
from etude.runtime.chart import choose_chart, declines_chart


def chart_of(**columns: list[object]):
    table = pa.table(columns)
    return choose_chart(
        Result(ResultInfo(columns=describe_result_columns(table.schema, []), row_count=len(table)), table.to_batches())
    )


def test_labels_and_a_number_are_bars_in_the_order_of_the_result():
    chart = chart_of(country=["DE", "FR"], n=[2, 1])
    assert chart["mark"]["type"] == "bar"
    assert chart["encoding"]["y"]["field"] == "country" and chart["encoding"]["y"]["sort"] is None


def test_a_number_over_time_is_a_line_and_a_label_its_colour():
    chart = chart_of(day=[date(2025, 1, d) for d in (1, 1, 2, 2)], who=["a", "b", "a", "b"], n=[1, 2, 3, 4])
    assert chart["mark"]["type"] == "line"
    assert chart["encoding"]["x"]["type"] == "temporal" and chart["encoding"]["color"]["field"] == "who"


def test_years_are_a_time_and_identifiers_no_measure():
    assert chart_of(year=[2024, 2025], revenue=[1.0, 2.0])["mark"]["type"] == "line"
    assert chart_of(customer_id=[1, 2], n=[5, 6])["encoding"]["y"]["field"] == "customer_id"


@pytest.mark.parametrize("name", ["GenreId", "genre_id", "GENRE_ID", "genreID", "genreid", "product_code", "id"])
def test_an_id_beside_a_name_is_left_out(name: str):
    chart = chart_of(**{name: [1, 2, 3], "Name": ["Rock", "Jazz", "Metal"], "tracks": [1297, 130, 374]})
    assert (chart["encoding"]["x"]["field"], chart["encoding"]["y"]["field"]) == ("tracks", "Name")


@pytest.mark.parametrize("name", ["paid", "amount_paid", "bid", "years", "postpaid"])
def test_a_number_that_only_ends_like_an_id_is_a_measure(name: str):
    assert chart_of(who=["a", "b"], **{name: [3, 4]})["encoding"]["x"]["field"] == name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("OrderYear", [2024, 2025]),
        ("fiscal_year", [1999, 2000]),
        ("month", [1, 2]),
        ("day", ["2024-01-31", "2024-02-01"]),
    ],
)
def test_a_period_is_never_the_measure(name: str, values: list[object]):
    chart = chart_of(**{name: values, "sold": [5, 7]})
    assert (chart["mark"]["type"], chart["encoding"]["x"]["field"]) == ("line", name)
    assert chart_of(who=["a", "b"], year=[2024, 2025]) is None


def test_bars_without_an_order_begin_with_the_largest():
    assert chart_of(country=["FR", "DE", "ES"], n=[2, 9, 5])["encoding"]["y"]["sort"] == "-x"
    assert chart_of(country=["DE", "ES", "FR"], n=[2, 9, 5])["encoding"]["y"]["sort"] is None


def test_the_number_that_the_rows_are_sorted_by_is_drawn():
    columns = {"country": ["JP", "US", "CN", "FR"], "bridges": [1, 5, 2, 4]}
    assert chart_of(**columns, metres=[1991, 1400, 1300, 800])["encoding"]["x"]["field"] == "metres"
    assert chart_of(**columns, metres=[1991, 800, 1300, 1400])["encoding"]["x"]["field"] == "bridges"


def test_points_of_one_moment_are_not_drawn_over_each_other():
    assert chart_of(day=[date(2025, 1, 1)] * 2, n=[1, 2]) is None


def test_totals_of_a_rollup_are_left_out():
    chart = chart_of(channel=["web", "app", None], orders=[5, 2, 7], mean=[1.5, 4.0, 2.2])
    assert [row["channel"] for row in chart["data"]["values"]] == ["web", "app"]
    both = chart_of(
        year=[2024, 2024, 2025, 2025, 2024, 2025, None],
        channel=["web", "app", "web", "app", None, None, None],
        orders=[5, 2, 6, 4, 7, 10, 17],
    )
    assert both["mark"]["type"] == "line" and len(both["data"]["values"]) == 4
    unknown = chart_of(channel=["web", "app", None], orders=[5, 2, 3])
    assert unknown is not None and "data" not in unknown, "rows without a channel are no total"


def test_two_numbers_are_points():
    assert chart_of(weight=[1.0, 2.0, 3.0], height=[1.0, 4.0, 9.0])["mark"]["type"] == "point"


@pytest.mark.parametrize(
    "columns",
    [
        {"n": [1]},
        {"name": ["a"], "n": [1]},
        {"name": ["a", "b"], "other": ["c", "d"]},
        {"name": [str(n) for n in range(100)], "n": list(range(100))},
        {"name": ["a", "b"], "n": [float("nan"), 1.0]},
        {f"c{n}": [1, 2] for n in range(9)},
        {"tags": [["x"], ["y"]], "n": [1, 2]},
        {"name": ["a", "b"], "n": [None, None]},
    ],
)
def test_where_a_table_tells_more_there_is_no_chart(columns: dict[str, list[object]]):
    assert chart_of(**columns) is None


def test_a_name_cannot_be_read_as_a_path():
    assert chart_of(**{"a.b[0]": ["x", "y"], "n": [1, 2]})["encoding"]["y"]["field"] == r"a\.b\[0\]"


@pytest.mark.parametrize(
    ("question", "declined"),
    [
        ("Sales per month. No chart, please.", True),
        ("Sales per month, no charts", True),
        ("Sales per month without a graph.", True),
        ("Sales per month; don't draw a chart", True),
        ("I do not need any plot of it", True),
        ("Umsatz pro Monat, ohne Diagramm", True),
        ("Draw a chart of sales", False),
        ("Songs with no chart position", False),
        ("How many plots have no plot number?", False),
        ("Why is there no chart data for May?", False),
    ],
)
def test_a_question_may_decline_a_chart(question: str, declined: bool):
    assert declines_chart(question) is declined
