"""The rows that two results do not share, whatever their size."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.entities import ResultColumn, ResultInfo
from etude.replays import differences, fingerprint
from etude.replays.differences import find_row_differences
from etude.replays.fingerprint import result_fingerprint
from etude.result import Result
from etude.spool import spool_to_parquet


def _result(texts: Sequence[Any], kind: str = "VARCHAR") -> Result:
    columns = (ResultColumn(name="a", type=kind),)
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string() if kind == "VARCHAR" else None)], ["a"])
    return Result(ResultInfo(columns=columns, row_count=len(texts), truncated=False), [batch])


@given(
    one=st.lists(st.sampled_from(["a", "b", "c", None, ""]), max_size=12),
    other=st.lists(st.sampled_from(["a", "b", "c", None, ""]), max_size=12),
)
def test_rows_are_compared_as_a_multiset(one: list[str | None], other: list[str | None]) -> None:
    counts = [Counter(("null" if text is None else text,) for text in texts) for texts in (one, other)]
    found = find_row_differences(_result(one), _result(other))
    assert Counter(found.lost) == counts[0] - counts[1] and Counter(found.added) == counts[1] - counts[0]
    assert (found.lost_count, found.added_count) == (len(found.lost), len(found.added)) and found.note == ""


def test_shown_rows_are_cut_and_say_so() -> None:
    found = find_row_differences(_result(["x" * 9_000]), _result(["x" * 9_001]))
    assert found.lost[0][0].startswith("x" * 500 + "… (cut: it has 9,000 characters")
    assert "9,001" in found.added[0][0] and found.lost_count == found.added_count == 1


def test_shown_rows_are_limited_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "SHOWN_BYTES", 5)
    found = find_row_differences(_result(["abc", "def", "ghi"]), _result([]))
    assert found.lost == (("abc",), ("def",)) and found.lost_count == 3


@pytest.mark.parametrize(("limit", "value"), [("MOST_ROWS", 3), ("MOST_CHARS", 5)])
def test_rows_that_are_not_compared_are_mentioned(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(differences, limit, value)
    found = find_row_differences(_result(["a", "b", "c", "d"]), _result(["a", "b", "c", "e"]))
    assert found.lost_count == found.added_count == 0
    assert found.note == "Only the first 3 rows of each result were compared." and found.note in found.sentence


def _peak(result: Result, other: Result) -> int:
    tracemalloc.start()
    try:
        find_row_differences(result, other)
        result_fingerprint(result, ordered=False)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_large_cells_take_little_memory() -> None:
    one, other = (_result([f"{'x' * 100_000}{i + k}" for i in range(600)]) for k in (0, 300))
    assert _peak(one, other) < 30 << 20  # the two results hold 120 MB


def test_row_groups_of_large_cells_stay_small() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([f"{'x' * 100_000}{i}" for i in range(600)])], ["a"])
    sink = pa.BufferOutputStream()
    spool_to_parquet(sink, batch.schema, [batch])
    written = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    assert written.num_rows == 600 and max(written.row_group(i).num_rows for i in range(written.num_row_groups)) < 220


def test_the_fingerprint_of_large_rows_ignores_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"row {i}" for i in range(100)]
    small = result_fingerprint(_result(texts), ordered=False)
    monkeypatch.setattr(fingerprint, "HELD_BYTES", 200)
    large = result_fingerprint(_result(texts), ordered=False)
    assert large == result_fingerprint(_result(texts[::-1]), ordered=False) != small
    assert large != result_fingerprint(_result([*texts[1:], "row 0 "]), ordered=False)
