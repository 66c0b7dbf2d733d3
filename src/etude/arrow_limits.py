"""Limits on Arrow data that enters the host: on its rows, and on its size as plain, decoded values.

Dictionaries, run-end encoding, nulls and views can describe gigabytes in a few hundred bytes. Code that reads such a
batch value by value needs all of that memory, so the limit is on the size of the plain values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from etude.errors import LimitExceeded

ROWS = 100_000_000
"""The most rows of one batch or table."""
EXTRA = 256 << 20
"""By how many bytes the plain values of a batch may exceed the bytes that were received."""
METADATA = 32 << 20
"""The most bytes of metadata in a stream: parsed, it takes many times as much memory."""
_NULL = 8
"""The bytes that a null counts for: a pointer, as a Python value."""
# The ids of types whose values are stored one after the other: numbers, times, decimals, texts and bytes.
_PLAIN = frozenset([*range(1, 25), 33, 34, 35, 37, 43, 44])


def check_arrow_limits(batch: Any) -> None:
    """Raise `LimitExceeded` if a batch or table has too many rows, or takes too much memory as plain values.

    Raises `pyarrow.ArrowInvalid` if its lengths and buffers contradict each other.
    """
    batch.validate()  # lengths only; reading an array whose length is wrong can crash the process
    if batch.num_rows > ROWS:
        raise _too_much(f"{batch.num_rows:,} rows", f"{ROWS:,} rows", "rows")
    if _PLAIN.issuperset([arrow.id for arrow in batch.schema.types]):
        return  # plain values take as much as was received
    for column in batch.columns:
        if column.type.id not in _PLAIN:
            _check_structure(column)
    received = int(batch.nbytes)
    taken = sum(_count(chunk) for column in batch.columns for chunk in getattr(column, "chunks", (column,)))
    if taken > received + EXTRA:
        raise _too_much(f"{received:,} bytes that stand for {taken:,}", f"{EXTRA:,} more than received", "bytes")


def count_decoded_arrow_bytes(batch: Any) -> int:
    """Return an upper bound of the bytes of a batch as plain values."""
    return sum(_count(column) for column in batch.columns)


def check_arrow_row_bytes(batch: Any, most: int, before: int = 0) -> None:
    """Raise `LimitExceeded` if a row of a batch takes more than `most` bytes as plain values; 0 means no limit.

    `before` is the number of rows in earlier batches, for the error.
    """
    if not most or count_decoded_arrow_bytes(batch) <= most:
        return
    at = before
    for piece in split_arrow_batch(batch, most):
        if (taken := count_decoded_arrow_bytes(piece)) > most:
            raise LimitExceeded(
                f"Row {at + 1:,} of the result has {taken:,} bytes; {most:,} are allowed in one row.",
                hint="Select fewer columns, or parts of long values, such as `left(text, 1000)`; or raise "
                "`limits.row_bytes` (0: no limit).",
                limit="row_bytes",
                value=most,
            )
        at += piece.num_rows


def split_arrow_batch(batch: Any, most: int) -> Iterator[Any]:
    """Yield slices of a batch; each takes at most this many bytes as plain values, or is a single row."""
    if batch.num_rows <= 1 or count_decoded_arrow_bytes(batch) <= most:
        yield batch
        return
    half = batch.num_rows // 2
    yield from split_arrow_batch(batch.slice(0, half), most)
    yield from split_arrow_batch(batch.slice(half), most)


def _check_structure(column: Any) -> None:
    """Check offsets, indices and lengths, but not the range of values: engines have 24:00 and 39-digit integers."""
    wanted = _without_ranges(column.type)
    for chunk in getattr(column, "chunks", (column,)):
        # A view onto types of the same layout that any value fits. Arrow loses the length of nulls in a view, so one is
        # made only if it is needed.
        (chunk if wanted == chunk.type else chunk.view(wanted)).validate(full=True)


def _without_ranges(arrow: Any) -> Any:
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return _without_ranges(arrow.storage_type)
    if types.is_time32(arrow) or types.is_date32(arrow):
        return pa.int32()
    if types.is_time64(arrow) or types.is_date64(arrow):
        return pa.int64()
    if types.is_decimal(arrow):
        return pa.binary(arrow.byte_width)
    if types.is_map(arrow) and types.is_null(arrow.key_type):
        return arrow  # an empty map; pyarrow cannot make this type, only receive it
    if types.is_map(arrow):
        return pa.map_(_without_ranges(arrow.key_type), _without_ranges(arrow.item_type))
    if types.is_fixed_size_list(arrow):
        return pa.list_(_without_ranges(arrow.value_type), arrow.list_size)
    if types.is_large_list(arrow):
        return pa.large_list(_without_ranges(arrow.value_type))
    if types.is_list(arrow):
        return pa.list_(_without_ranges(arrow.value_type))
    if types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _without_ranges(f.type), f.nullable) for f in arrow])
    if types.is_dictionary(arrow):
        return pa.dictionary(arrow.index_type, _without_ranges(arrow.value_type), arrow.ordered)
    return arrow


def _too_much(found: str, allowed: str, limit: str) -> LimitExceeded:
    return LimitExceeded(
        f"A batch of Arrow data holds {found}; {allowed} are allowed.",
        hint="Select fewer rows or columns, or cast columns of repeated values to plain text.",
        limit=limit,
    )


def _count(array: Any) -> int:
    """Return an upper bound of the bytes of an array as plain values, which is cheaper than the exact number."""
    import pyarrow as pa

    types, arrow, rows = pa.types, array.type, len(array)
    if isinstance(arrow, pa.BaseExtensionType):
        return _count(array.storage)
    if types.is_null(arrow):
        return rows * _NULL
    if types.is_dictionary(arrow):
        return rows + _count_repeated(array.dictionary, array.indices)
    if types.is_run_end_encoded(arrow):
        return rows + rows * _longest(array.values)
    if types.is_struct(arrow):
        return rows + sum(map(_count, array.flatten()))
    if types.is_map(arrow):
        if not rows:
            return 0
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()  # of a slice: only its own entries
        return rows * _NULL + sum(_count(part.slice(start, end - start)) for part in (array.keys, array.items))
    if types.is_list(arrow) or types.is_large_list(arrow):
        return rows * _NULL + _count(array.flatten())
    if types.is_fixed_size_list(arrow):
        return rows + _count(array.values.slice(array.offset * arrow.list_size, rows * arrow.list_size))
    if _is_view(arrow):
        return rows * _NULL + _count_views(array)
    if arrow.id in _PLAIN:
        return int(array.nbytes)
    return rows + rows * _count_children(array)


def _is_view(arrow: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string_view(arrow) or pa.types.is_binary_view(arrow))


def _count_views(array: Any) -> int:
    """Return the sum of the lengths of views. A length is the first four of the sixteen bytes of a view."""
    buffer = array.buffers()[1]
    if buffer is None:
        return 0
    lengths = memoryview(buffer).cast("B").cast("i")[4 * array.offset : 4 * (array.offset + len(array)) : 4]
    return sum(length for length in lengths if length > 0)


def _count_repeated(values: Any, indices: Any) -> int:
    """Return the bytes of a dictionary's values, each counted as often as it is used."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bound = len(indices) * _longest(values)
    types, arrow = pa.types, values.type
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if bound <= EXTRA or not any(is_one(arrow) for is_one in texts):
        return bound
    used = pc.value_counts(indices)
    found = pc.take(pc.binary_length(values), used.field("values"))
    return int(pc.sum(pc.multiply(pc.cast(found, pa.int64()), used.field("counts"))).as_py() or 0)


def _longest(values: Any) -> int:
    """Return an upper bound of the bytes of the longest value of an array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, arrow = pa.types, values.type
    if not len(values):
        return 0
    if types.is_null(arrow):
        return _NULL
    if types.is_primitive(arrow) or types.is_decimal(arrow) or types.is_fixed_size_binary(arrow):
        return max(int(arrow.bit_width) // 8, 1)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if any(is_one(arrow) for is_one in texts):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    return _count(values)


def _count_children(array: Any) -> int:
    """Return an upper bound for one value of an unknown type, such as a list view: the bytes of the whole array."""
    return int(array.nbytes) + (_count(array.values) if hasattr(array, "values") else 0)


def is_compressed_arrow(message: Any) -> bool:
    """True if the body of an Arrow message is compressed. Reads the flatbuffer, as pyarrow does not expose it."""

    def field(table: int, index: int) -> int:
        (back,) = struct.unpack_from("<i", message, table)
        (size,) = struct.unpack_from("<H", message, table - back)
        at = 4 + 2 * index
        (offset,) = struct.unpack_from("<H", message, table - back + at) if at < size else (0,)
        return table + offset if offset else 0

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", message, at)[0])

    root = follow(0)
    kind, header = field(root, 1), field(root, 2)
    if not kind or not header or message[kind] not in (2, 3):
        return False
    batch = follow(header)
    if message[kind] == 2:  # a dictionary holds its batch
        data = field(batch, 1)
        if not data:
            return False
        batch = follow(data)
    return bool(field(batch, 3))


def refuse_compressed_arrow(stream: Any) -> None:
    """Raise `LimitExceeded` if a stream is compressed: a small one could expand to gigabytes, and etude sends none."""
    import pyarrow as pa

    described = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)):
        described += len(message.metadata)
        if described > METADATA or is_compressed_arrow(message.metadata):
            raise LimitExceeded(
                "A stream of Arrow data is compressed or has too many batches.",
                hint="Send fewer, larger batches without compression.",
                limit="bytes",
            )
