"""The memory of an answer does not grow with the cells of its result."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from etude.entities import ResultColumn, ResultInfo
from etude.result import Result
from etude.runtime.answer import answer_markdown_table
from etude.runtime.chart import choose_chart

CELL = 1 << 20


@pytest.mark.parametrize("use", [choose_chart, answer_markdown_table, lambda result: result.first_rows(100)])
def test_large_cells_take_little_memory(use: Callable[[Result], Any]) -> None:
    columns = (ResultColumn(name="label", type="VARCHAR"), ResultColumn(name="value", type="BIGINT"))
    texts = pa.array([chr(97 + n % 26) * CELL for n in range(100)])
    batch = pa.RecordBatch.from_arrays([texts, pa.array(range(100))], ["label", "value"])
    result = Result(ResultInfo(columns=columns, row_count=100), [batch])
    tracemalloc.start()
    try:
        use(result)
        assert tracemalloc.get_traced_memory()[1] < 20 * CELL
    finally:
        tracemalloc.stop()
