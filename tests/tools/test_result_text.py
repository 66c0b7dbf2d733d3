"""How results look to a model."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from etude.entities import Column, ForeignKey, ResultInfo, Table
from etude.result import Result, describe_result_columns
from etude.runtime.number_check.check import Evidence, check_numbers
from etude.sessions.base import Cell, Display
from etude.tools.result_text import (
    CHARS,
    ROWS,
    cell_result_text_for_model,
    cut_result_text,
    result_text_for_model,
    table_result_text_for_model,
)


class Marks:
    """A bench that marks data visibly."""

    def quote(self, text: str) -> str:
        return f"«{text}»"


def make_result(table: pa.Table) -> Result:
    info = ResultInfo(columns=describe_result_columns(table.schema, []), row_count=table.num_rows)
    return Result(info, table.to_batches())


def test_a_result_is_its_shape_and_its_rows_all_marked_as_data():
    shown = result_text_for_model(make_result(pa.table({"name": ["a", None], "n": [1, 2]})), Marks())
    assert shown == "2 rows\n«name, n int64\na,1\nnull,2»"


def test_text_that_could_be_something_else_is_quoted():
    table = pa.table({"x": ["", "null", 'a "b"', "a, b", " a", None], "y": [[1], [], None, [2, 3], [4], [5]]})
    shown = result_text_for_model(make_result(table), Marks())
    assert shown.splitlines()[2:] == [
        '"","[1]"',
        '"null","[]"',
        '"a ""b""",null',
        '"a, b","[2, 3]"',
        '" a","[4]"',
        'null,"[5]"»',
    ]


def test_a_long_result_is_cut_and_says_how_much_there_is():
    shown = result_text_for_model(make_result(pa.table({"n": list(range(1000))})), Marks())
    assert "1,000 rows, the first 40 and the last 10 shown" in shown and "\n39\n...\n990\n" in shown
    assert shown.endswith("\n999»") and "\n40\n" not in shown and ROWS == 50


def test_a_wide_result_is_cut_by_its_size_and_a_long_value_by_its_own():
    shown = result_text_for_model(make_result(pa.table({f"c{n}": ["x" * 500] * 40 for n in range(10)})), Marks())
    assert len(shown) < CHARS + 1000 and "x" * 201 not in shown and "the first 2 shown" in shown


def test_a_long_value_is_cut_with_a_sign_outside_its_quotes():
    shown = result_text_for_model(make_result(pa.table({"x": ["y" * 250]})), Marks())
    assert shown.splitlines()[-1] == f'"{"y" * 200}"…[250 characters]»'


def test_long_fractions_are_rounded_and_the_result_says_so():
    values = [4.099999957614475, 0.1, 1234567890123.5678, 1.2345678901234e-8, float("nan"), 2 / 3]
    table = pa.table({"x": values, "d": [Decimal("5.0783333333333333"), *[Decimal("0.5000000000000000")] * 5]})
    shown = result_text_for_model(make_result(table), Marks())
    assert shown.startswith("6 rows; shown rounded to 10 digits\n")
    assert [line.split(",")[0] for line in shown.splitlines()[2:]] == [
        "4.099999958",
        "0.1",
        "1234567890123.57",
        "1.23456789e-08",
        "nan",
        "0.6666666667",
    ]
    assert shown.splitlines()[2].endswith(",5.078333333")
    assert "rounded" not in result_text_for_model(make_result(pa.table({"x": [0.1, 2.25]})), Marks())


@pytest.mark.parametrize("value", [4.099999957614475, 2 / 3, 1234567.8912345678, 0.000123456789123456])
def test_a_number_copied_from_a_result_is_verified(value: float):
    shown = result_text_for_model(make_result(pa.table({"x": [value]})), Marks()).splitlines()[-1].rstrip("»")
    verdict = check_numbers(f"The x is {shown}.", [Evidence("r1", ("x",), [(value,)])], question="How much is x?")
    assert [m.verified for m in verdict.mentions] == [True]


def test_a_cell_shows_what_it_printed_and_its_value():
    cell = Cell(1, "", "ok", stdout="hello\n", text="42", display=(Display("image/png", b""),))
    assert cell_result_text_for_model(cell, Marks()) == "printed:\n«hello\n»\nvalue:\n«42»\ndisplayed:\n«image/png»"
    assert "nothing was printed" in cell_result_text_for_model(Cell(1, "", "ok"), Marks())


def test_a_cut_keeps_both_ends():
    text = cut_result_text("a" * 100 + "b" * 100, 40)
    assert text.startswith("a" * 30) and text.endswith("b" * 10) and "160 characters left out" in text
    assert cut_result_text("short") == "short"


def test_a_table_shows_its_keys_and_comments():
    table = Table(
        name="lines",
        columns=(Column(name="id", type="BIGINT"), Column(name="order_id", type="BIGINT", comment="the order")),
        primary_key=("id",),
        foreign_keys=(ForeignKey(columns=("order_id",), to_table="orders", to_columns=("id",)),),
        row_count=1200,
    )
    lines = ["lines (1,200 rows)", " id key", " order_id -> orders.id -- the order"]
    assert table_result_text_for_model(table).splitlines() == lines


def test_a_reference_of_several_columns_is_shown_and_one_to_another_column_than_the_key_names_it():
    columns = (Column(name="order_id", type="INTEGER"), Column(name="line", type="INTEGER"))
    code = Column(name="code", type="VARCHAR")
    links = (
        ForeignKey(columns=("order_id", "line"), to_table="lines", to_columns=("order_id", "number")),
        ForeignKey(columns=("code",), to_table="products", to_columns=("code",)),
    )
    returns = Table(name="returns", columns=(*columns, code), foreign_keys=links)
    products = Table(name="products", columns=(code,), primary_key=("id",))
    assert table_result_text_for_model(returns, [returns, products]).splitlines()[1:] == [
        " order_id INTEGER",
        " line INTEGER",
        " code -> products.code",
        " (order_id, line) -> lines (order_id, number)",
    ]
    assert " code -> products\n" in table_result_text_for_model(returns)
