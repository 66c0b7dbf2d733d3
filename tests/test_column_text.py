"""Columns as text are what their cells are, one by one."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.cell_text import cell_to_json, cell_to_text, cells_to_csv_line, escape_cell_formula
from etude.column_text import (
    columns_to_csv_lines,
    columns_to_json_arrays,
    columns_to_json_objects,
    columns_to_text_lines,
)
from etude.entities import ResultColumn, ResultInfo
from etude.result import Result

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "BIGINT": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "DOUBLE": (pa.float64(), st.floats()),
    "FLOAT": (pa.float32(), st.floats(width=32)),
    "VARCHAR": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "DATE": (pa.date32(), st.dates()),
    "TIMESTAMP": (pa.timestamp("us"), st.datetimes()),
    "TIME": (pa.time64("us"), st.times()),
    "BLOB": (pa.binary(), st.binary(max_size=6)),
    "DECIMAL(9,3)": (pa.decimal128(9, 3), st.decimals(-99999, 99999, places=3)),
    "INTEGER[]": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
}


@st.composite
def results(draw: st.DrawFn) -> Result:
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 6))
    arrays = []
    for kind in kinds:
        arrow, values = COLUMNS[kind]
        arrays.append(pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), arrow))
    names = [f'c"{number}' for number in range(len(kinds))]
    info = ResultInfo(columns=tuple(map(_column, names, kinds)), row_count=rows)
    return Result(info, [pa.RecordBatch.from_arrays(arrays, names)])


def _column(name: str, kind: str) -> ResultColumn:
    return ResultColumn(name=name, type=kind)


@given(results())
def test_columns_are_written_as_their_cells_are(result: Result) -> None:
    names, kinds = [c.name for c in result.columns], [c.type for c in result.columns]
    rows = list(result.iter_rows(shown=True))
    (batch,) = result.batches()
    for delimiter, escape in ((",", None), ("\t", None), (",", escape_cell_formula)):
        lines = list(columns_to_csv_lines(batch, kinds, delimiter, escape))
        assert lines == [cells_to_csv_line(row, delimiter, escape) for row in rows]
    values = [list(map(cell_to_json, row)) for row in rows]
    assert list(columns_to_json_arrays(batch, kinds)) == [json.dumps(row, ensure_ascii=False) for row in values]
    objects = [json.dumps(dict(zip(names, row)), ensure_ascii=False) for row in values]
    assert list(columns_to_json_objects(batch, names, kinds)) == objects
    assert list(columns_to_text_lines(batch, kinds)) == [tuple(map(cell_to_text, row)) for row in rows]


@pytest.mark.parametrize(
    ("value", "kind", "csv", "text"),
    [
        (None, "VARCHAR", '""', "null"),
        ("", "VARCHAR", '""', '""'),
        ('say "hi"', "VARCHAR", '"say ""hi"""', '"say \\"hi\\""'),
        (float("nan"), "DOUBLE", "nan", '"nan"'),
        (Decimal("1.500"), "DECIMAL(9,3)", "1.500", "1.5"),
        (dt.date(2024, 2, 29), "DATE", "2024-02-29", '"2024-02-29"'),
        (True, "BOOLEAN", "true", "true"),
    ],
)
def test_a_column_of_one_cell(value: object, kind: str, csv: str, text: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value], COLUMNS[kind][0])], ["c"])
    assert list(columns_to_csv_lines(batch, [kind])) == [csv] and list(columns_to_json_arrays(batch, [kind])) == [
        f"[{text}]"
    ]
