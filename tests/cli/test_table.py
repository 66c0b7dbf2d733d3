"""Tables for people: digits, separators, nested values, widths."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.cli.table import CELL, draw_table, draw_vertical_table, format_table_column, table_cell_width


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("revenue", [12965.399999999927], ["12,965.40"]),
        ("revenue", [12965.399999999927, 3.0, None], ["12,965.40", "3.00", None]),
        ("share", [1 / 3, 0.25], ["0.3333", "0.2500"]),
        ("near", [99999.99999, 2.0, 12965.399999999927], ["99,999.99999", "2.00", "12,965.40"]),
        ("near", [0.99999999, 100.0000000000001], ["0.99999999", "100.0000"]),
        ("price", [1.5, 2.0], ["1.5", "2.0"]),
        ("total", [3.0], ["3.0"]),
        ("tiny", [0.00001234], ["0.00001234"]),
        ("mixed", [5000.5, 0.00001], ["5,000.50", "1e-05"]),
        ("huge", [1e20], ["1e+20"]),
        ("odd", [float("nan"), float("inf")], ["nan", "inf"]),
        ("n", [1234567, 42, 2024], ["1,234,567", "42", "2,024"]),
        ("sold", [7000, 10000], ["7,000", "10,000"]),
        ("sold", [7000, 9999], ["7000", "9999"]),
        ("month", [datetime(2024, 1, 1), None], ["2024-01-01", None]),
        ("at", [datetime(2024, 1, 1), datetime(2024, 1, 1, 9)], ["2024-01-01 00:00:00", "2024-01-01 09:00:00"]),
        ("order_id", [1234567], ["1234567"]),
        ("sum(id)", [1234567], ["1,234,567"]),
        ("CustomerId", [1234567], ["1234567"]),
        ("zip", [10115], ["10115"]),
        ("paid", [Decimal("1234567.50"), Decimal("0.1")], ["1,234,567.50", "0.1"]),
        ("ok", [True, False], ["true", "false"]),
        ("s", [{"x": 1, "y": [1.5, None], "z": "a"}], ["{x: 1, y: [1.5, null], z: 'a'}"]),
        ("text", ["a\nb\x1b[2J"], [r"a\nb\x1b[2J"]),
    ],
)
def test_values_are_shown_as_people_write_them(name: str, values: list[Any], shown: list[str | None]) -> None:
    assert format_table_column(name, values) == shown


@given(st.lists(st.floats(min_value=-1e300, max_value=1e300), min_size=1, max_size=5))
def test_a_shown_float_is_near_and_never_zero_by_rounding(values: list[float]) -> None:
    largest = max(abs(v) for v in values)
    for value, shown in zip(values, format_table_column("x", values)):
        read = float((shown or "").replace(",", ""))
        assert (read == 0) == (value == 0)
        assert math.isclose(read, value, rel_tol=1e-3, abs_tol=0.005 if largest >= 1000 else 0.00005)


def test_columns_that_do_not_fit_are_counted() -> None:
    names = [f"column_{i}" for i in range(10)]
    text, hidden = draw_table(names, [["value"] * 10], width=40, elide=True)
    assert hidden == 7
    assert all(table_cell_width(line) <= 40 for line in text.splitlines())
    assert text.splitlines()[0] == "column_0 ┃ column_1 ┃ column_2 ┃ …"


def test_a_wide_cell_is_cut_before_a_column_is_left_out() -> None:
    text, hidden = draw_table(["a", "b"], [["x" * 150, "last"]], width=60, elide=True)
    assert hidden == 0 and "last" in text and "…" in text


def test_a_list_folds_its_cells() -> None:
    text, hidden = draw_table(["name", "words"], [["a", "many words " * 10]], width=40)
    assert hidden == 0 and text.count("many words") >= 8
    assert all(table_cell_width(line) <= 40 for line in text.splitlines())


@given(
    st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), max_size=4),
    st.integers(min_value=24, max_value=200),
)
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    cells = list(zip(*[format_table_column("x", [row[i] for row in rows]) for i in range(3)]))
    text, _ = draw_table(["a", "b", "c"], cells, width=width, elide=True)
    assert all(table_cell_width(line) <= width for line in text.splitlines())


def test_rows_as_blocks_show_every_value_whole() -> None:
    text = draw_vertical_table(["a", "漢字"], [["x" * (CELL + 50), None]])
    assert text.splitlines()[0].startswith("─[ row 1 ]")
    assert text.splitlines()[1:] == [f"a    │ {'x' * (CELL + 50)}", "漢字 │ null"]
