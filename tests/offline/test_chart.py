"""A line over time, bars for categories, and no chart where a table says more."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from etude.entities import ResultColumn, ResultInfo
from etude.offline.chart import MAX_BARS, choose_chart
from etude.sources.plan import QueryPlan

PLAN = QueryPlan(source="t")
Rows = list[tuple[Any, ...]]


def chart(names: str, rows: Rows, plan: QueryPlan = PLAN) -> Any:
    columns = tuple(ResultColumn(name=name, type="") for name in names.split())
    return choose_chart(ResultInfo(columns=columns, row_count=len(rows)), rows, plan)


def test_categories_are_bars_the_longest_first() -> None:
    spec = chart("status orders", [("open", 3), ("paid", 7)])
    assert spec["mark"]["type"] == "bar"
    assert spec["encoding"]["y"] == {"field": "status", "type": "nominal", "title": "status", "sort": "-x"}
    assert spec["encoding"]["x"]["field"] == "orders"
    assert spec["data"] == {"name": "rows"}


def test_an_order_that_was_asked_for_stays() -> None:
    ordered = QueryPlan.model_validate({"from": "t", "order_by": ["status"]})
    assert chart("status orders", [("open", 3), ("paid", 7)], ordered)["encoding"]["y"]["sort"] is None


def test_time_is_a_line_with_a_colour_for_each_category() -> None:
    rows: Rows = [(date(2025, month, 1), channel, month) for month in (1, 2) for channel in ("web", "app")]
    spec = chart("month channel total", rows)
    assert spec["mark"]["type"] == "line"
    assert spec["encoding"]["x"]["type"] == "temporal"
    assert spec["encoding"]["color"]["field"] == "channel"


def test_a_key_is_not_what_is_measured() -> None:
    spec = chart("name customer_id total", [("Ada", 1, 10.5), ("Bo", 2, 3)])
    assert spec["encoding"]["x"]["field"] == "total"
    assert chart("name customer_id", [("Ada", 1), ("Bo", 2)]) is None


def test_a_dot_in_a_name_is_no_path() -> None:
    assert chart("orders.id_name a.b", [("x", 1), ("y", 2)])["encoding"]["x"]["field"] == "a\\.b"


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        ("total", [(5,)]),
        ("total", [(5,), (6,)]),
        ("status orders", [("open", 3)]),
        ("status orders", []),
        ("a b c d e f", [("x", 1, 2, 3, 4, 5), ("y", 1, 2, 3, 4, 5)]),
        ("status orders", [("open", 3), ("open", 4)]),
        ("name orders", [(f"n{n}", n) for n in range(MAX_BARS + 1)]),
        ("name orders", [("a", None), ("b", None)]),
    ],
)
def test_no_chart(names: str, rows: Rows) -> None:
    assert chart(names, rows) is None
