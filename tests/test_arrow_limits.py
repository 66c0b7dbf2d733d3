"""Little data that stands for very much is refused where it enters the host."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from etude import arrow_limits
from etude.arrow_limits import (
    check_arrow_limits,
    check_arrow_row_bytes,
    check_arrow_schema,
    check_arrow_stream_schema,
)
from etude.errors import LimitExceeded
from etude.sessions.session import _read_table
from etude.sources.engine_client import _decode

LONG = "x" * 1_000_000


def dictionary(values: Any, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), values)


def views(rows: int) -> pa.Array:
    view = pa.array([LONG], pa.string_view()).buffers()[1].to_pybytes()[:16]
    data = pa.array([LONG], pa.string_view()).buffers()[2]
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(view * rows), data])


EXPANDING = {
    "a dictionary": lambda: dictionary(pa.array([LONG]), 800),
    "nulls": lambda: pa.nulls(60_000_000),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([800], pa.int32()), pa.array([LONG])),
    "runs of nulls": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([60_000_000], pa.int32()), pa.nulls(1)),
    "lists of nulls": lambda: pa.FixedSizeListArray.from_arrays(pa.nulls(60_000_000), 1000),
    "a list of nulls": lambda: pa.ListArray.from_arrays([0, 60_000_000], pa.nulls(60_000_000)),
    "a dictionary in a struct": lambda: pa.StructArray.from_arrays([dictionary(pa.array([LONG]), 800)], ["a"]),
    "a dictionary of lists": lambda: dictionary(pa.array([["x"] * 1_000_000]), 800),
    "views": lambda: views(800),
}


@pytest.mark.parametrize("name", EXPANDING)
def test_data_that_expands_is_refused(name: str) -> None:
    batch = pa.record_batch([EXPANDING[name]()], ["a"])
    with pytest.raises(LimitExceeded, match="stand for"):
        check_arrow_limits(batch)
    with pytest.raises(LimitExceeded, match="stand for"):
        check_arrow_limits(pa.Table.from_batches([batch]))


def test_nulls_in_many_columns_count_together() -> None:
    with pytest.raises(LimitExceeded):
        check_arrow_limits(pa.record_batch([pa.nulls(1_000_000)] * 1000, [str(n) for n in range(1000)]))


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="2,147,483,647 rows"):
        check_arrow_limits(pa.record_batch([pa.nulls((1 << 31) - 1)], ["a"]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(1000)),
        pa.array(["a", None]),
        pa.nulls(1000),
        dictionary(pa.array(["red", "green"]), 1_000_000),
        pa.array([[1], None, [2, 3]]),
        pa.array([{"a": 1, "b": ["x"]}, None]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array(["a" * 100] * 1000, pa.string_view()),
        pa.array([], pa.dictionary(pa.int8(), pa.string())),
        pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([1])),
    ],
)
def test_ordinary_data_passes(column: Any) -> None:
    check_arrow_limits(pa.record_batch([column], ["a"]))
    check_arrow_limits(pa.record_batch([column.slice(1)], ["a"]))


def test_a_long_word_that_few_rows_use_is_counted_as_often_as_it_is_used() -> None:
    words = pa.array([LONG, "short"])
    rare = pa.DictionaryArray.from_arrays(pa.array([0] + [1] * 1_000_000, pa.int32()), words)
    check_arrow_limits(pa.record_batch([rare], ["a"]))


def test_what_an_engine_sends_is_checked() -> None:
    batch = pa.record_batch([dictionary(pa.array([LONG]), 800)], ["a"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(LimitExceeded):
        _decode(sink.getvalue())


def test_a_compressed_stream_is_refused() -> None:
    batch = pa.record_batch([pa.array([0] * 1_000_000)], ["a"])
    for codec in (None, "zstd", "lz4"):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(batch)
        if codec is None:
            arrow_limits.refuse_compressed_arrow(sink.getvalue())
        else:
            with pytest.raises(LimitExceeded, match="compressed"):
                arrow_limits.refuse_compressed_arrow(sink.getvalue())


WIDE = {
    "a text": lambda: pa.array(["a", LONG, "b"]),
    "bytes": lambda: pa.array([b"a", LONG.encode(), b"b"]),
    "a list": lambda: pa.array([["a"], ["x" * 1000] * 1000, []]),
    "a struct": lambda: pa.array([{"a": "x"}, {"a": LONG}, {"a": None}]),
    "a map": lambda: pa.array([[("a", 1)], [(LONG, 2)], []], pa.map_(pa.string(), pa.int64())),
    "a dictionary": lambda: pa.array(["a", LONG, "b"]).dictionary_encode(),
    "a view": lambda: pa.array(["a", LONG, "b"], pa.string_view()),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_wide_row_is_refused_and_named(name: str) -> None:
    batch = pa.record_batch([pa.array([1, 2, 3]), WIDE[name]()], ["n", "a"])
    check_arrow_row_bytes(batch, 0)
    check_arrow_row_bytes(batch, 2_000_000)
    check_arrow_row_bytes(batch.slice(2), 500_000 if name != "a dictionary" else 2_000_000)
    at = 1 if name == "a dictionary" else 2  # any row of a dictionary may use its longest value
    with pytest.raises(
        LimitExceeded, match=rf"Row 1,00{at} of the result has 1,0\d\d,\d\d\d bytes; 500,000 are"
    ) as caught:
        check_arrow_row_bytes(batch, 500_000, before=1000)
    assert caught.value.details["limit"] == "row_bytes"
    assert "limits.row_bytes" in str(caught.value.hint)


def test_many_rows_of_normal_width_are_not_wide() -> None:
    """A slice counts only its own values, also in types whose children are not sliced with them."""
    vector = pa.FixedSizeListArray.from_arrays(pa.nulls(4_000_000, pa.float32()), 400)
    maps = pa.array([[("key", "x" * 1000)]] * 10_000, pa.map_(pa.string(), pa.string()))
    lists = pa.array([["x" * 1000]] * 10_000)
    check_arrow_row_bytes(pa.record_batch([vector, maps, lists], ["v", "m", "l"]), 20_000)


HUNDRED = pa.struct([(f"a{i}", pa.int32()) for i in range(100)])
MANY_FIELDS = {
    "columns": pa.schema([(f"a{i}", pa.int32()) for i in range(10_001)]),
    "structs": pa.schema([(f"s{i}", HUNDRED) for i in range(100)]),
    "lists of structs": pa.schema([(f"s{i}", pa.list_(HUNDRED)) for i in range(100)]),
    "maps of structs": pa.schema([(f"s{i}", pa.map_(pa.int32(), HUNDRED)) for i in range(100)]),
    "dictionaries of structs": pa.schema([(f"s{i}", pa.dictionary(pa.int32(), HUNDRED)) for i in range(100)]),
    "unions": pa.schema([(f"s{i}", pa.dense_union(list(HUNDRED))) for i in range(100)]),
    "one struct": pa.schema([("s", pa.struct([(f"a{i}", pa.int32()) for i in range(10_000)]))]),
}


@pytest.mark.parametrize("name", MANY_FIELDS)
def test_fields_count_wherever_they_are_nested(name: str) -> None:
    schema = MANY_FIELDS[name]
    with pytest.raises(LimitExceeded, match="10,000 columns"):
        check_arrow_schema(schema)
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    for reader in (check_arrow_stream_schema, _decode, _read_table):
        with pytest.raises(LimitExceeded, match="10,000 columns"):
            reader(sink.getvalue())


def test_depth_and_names_of_fields_have_limits() -> None:
    deep = pa.int32()
    for _ in range(60):
        deep = pa.list_(deep)
    with pytest.raises(LimitExceeded, match="60 levels"):
        check_arrow_schema(pa.schema([("a", deep)]))
    named = pa.struct([("x" * 500_000, pa.int32())])
    with pytest.raises(LimitExceeded, match="4,194,304 characters"):
        check_arrow_schema(pa.schema([(f"a{i}", named) for i in range(9)]))
    check_arrow_schema(pa.schema([(f"a{i}", HUNDRED) for i in range(99)]))


def shared_fields(levels: int, times: int) -> bytes:
    """Return the schema message of a struct of structs, whose fields all refer to the same field."""
    out = bytearray(struct.pack("<I", 24))
    out += struct.pack("<HHHHH", 10, 16, 4, 6, 8) + b"\0\0" + b"\0" * 8  # a message: its version, kind and header
    message = len(out)
    out += struct.pack("<ihBxI", message - 4, 4, 1, 8) + b"\0" * 4
    vtable = len(out) + 4
    out += b"\0" * 4 + struct.pack("<HHHH", 8, 8, 0, 4)
    out += struct.pack("<HHHHHHHH", 16, 16, 0, 0, 4, 8, 0, 12) + struct.pack("<HH", 4, 4)
    schema = len(out)
    struct.pack_into("<I", out, message + 8, schema - message - 8)
    out += struct.pack("<iI", schema - vtable, 4)
    types: list[int] = []
    for level in range(levels + 1):
        count = 1 if level == 0 else times
        vector = len(out)
        field = vector + 4 + 4 * count
        out += struct.pack("<I", count) + b"".join(struct.pack("<I", field - vector - 4 - 4 * i) for i in range(count))
        types.append(field + 8)
        out += struct.pack("<iB3xII", field - vtable - 8, 13, 0, 4)
    out += struct.pack("<I", 0)
    kind = len(out)
    out += struct.pack("<i", kind - vtable - 24)
    for at in types:
        struct.pack_into("<I", out, at, kind - at)
    out += b"\0" * (-len(out) % 8)
    return struct.pack("<II", 0xFFFFFFFF, len(out)) + bytes(out)


def test_fields_that_share_their_children_are_counted_before_arrow_reads_them() -> None:
    assert pa.ipc.read_schema(pa.py_buffer(shared_fields(3, 3))).field(0).type.num_fields == 3
    check_arrow_stream_schema(shared_fields(3, 3))
    for stream in (shared_fields(30, 2), shared_fields(2, 9_000)):
        with pytest.raises(LimitExceeded, match="10,000 columns"):
            check_arrow_stream_schema(stream)
    with pytest.raises(LimitExceeded, match="60 levels"):
        check_arrow_stream_schema(shared_fields(70, 1))


@pytest.mark.parametrize("stream", [b"", b"\xff" * 8, b"\xff" * 64, b"\xff\xff\xff\xff\x08\0\0\0" + b"\xf0" * 8])
def test_a_damaged_schema_is_invalid(stream: bytes) -> None:
    with pytest.raises((pa.ArrowInvalid, LimitExceeded)):
        check_arrow_stream_schema(stream)
