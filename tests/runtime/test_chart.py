"""The chart that fits a result."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from etude.entities import ResultInfo
from etude.result import Result, describe
from etude.runtime.chart import choose_chart


def chart_of(**columns: list[object]):
    table = pa.table(columns)
    return choose_chart(
        Result(ResultInfo(columns=describe(table.schema, []), row_count=len(table)), table.to_batches())
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
