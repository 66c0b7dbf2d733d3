"""Limits on Arrow data that enters the host: on its fields and rows, and on its size as plain, decoded values.

Dictionaries, run-end encoding, nulls and views can describe gigabytes in a few hundred bytes. Code that reads such a
batch value by value needs all of that memory, so the limit is on the size of the plain values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etude.errors import LimitExceeded

ROWS = 100_000_000
"""The most rows of one batch or table."""
EXTRA = 256 << 20
"""By how many bytes the plain values of a batch may exceed the bytes that were received."""
METADATA = 32 << 20
"""The most bytes of metadata in a stream: parsed, it takes many times as much memory."""
FIELDS = 10_000
"""The most fields of a schema, nested ones included: each takes tens of kilobytes where a table is stored or read,
however few rows there are."""
DEPTH = 60
"""The most levels of nested types. Arrow refuses 64 with an error that users do not understand."""
NAME_BYTES = 4 << 20
"""The most characters in the names of all fields, and in the engine's names of all types: a struct repeats them in each
column."""
_NULL = 8
"""The bytes that a null counts for: a pointer, as a Python value."""
# The ids of types whose values are stored one after the other: numbers, times, decimals, texts and bytes.
_PLAIN = frozenset([*range(1, 25), 33, 34, 35, 37, 43, 44])


def check_arrow_limits(batch: Any) -> None:
    """Raise `LimitExceeded` if a batch or table has too many rows, or takes too much memory as plain values.

    Raises `pyarrow.ArrowInvalid` if its lengths and buffers contradict each other.
    """
    check_arrow_schema(batch.schema)
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


def check_arrow_schema(schema: Any) -> None:
    """Raise `LimitExceeded` if a schema has too many fields, levels or characters in names, nested ones included."""
    if len(schema) > FIELDS:
        raise _too_many_fields()
    check_nested_types(schema.names, schema.types, _inner_fields)


def check_nested_types(
    names: Sequence[str], types: Sequence[Any], inner: Callable[[Any], Sequence[tuple[str, Any]]]
) -> None:
    """Raise `LimitExceeded` if columns have too many fields, levels or characters in names, of Arrow or an engine.

    `inner` returns the fields directly inside a type, as names and types.
    """
    characters, fields, depth = sum(map(len, names)), len(types), 1
    while types and fields <= FIELDS:
        if depth > DEPTH:
            raise _too_deep()
        level: list[Any] = []
        for each in types:
            found = inner(each)
            fields += len(found)
            if fields > FIELDS:
                break
            characters += sum(len(name) for name, _ in found)
            level.extend(kind for _, kind in found)
        types, depth = level, depth + 1
    if fields > FIELDS:
        raise _too_many_fields()
    if characters > NAME_BYTES:
        raise _names_too_long()


def _inner_fields(arrow: Any) -> Sequence[tuple[str, Any]]:
    if arrow.id in _PLAIN:
        return ()
    arrow = _unwrapped(arrow)
    if arrow.num_fields > FIELDS:
        raise _too_many_fields()
    return [(field.name, field.type) for field in map(arrow.field, range(arrow.num_fields))]


def check_type_names(types: Sequence[str]) -> None:
    """Raise `LimitExceeded` if the names of an engine's types are too long together: an enum's has all its values."""
    if sum(map(len, types)) > NAME_BYTES:
        raise _names_too_long()


def check_arrow_stream_schema(stream: Any) -> None:
    """Raise `LimitExceeded` if the schema of a stream has too many fields or levels, before Arrow reads it.

    The schema is a flatbuffer, whose parts may share their children: 30 levels of two references to the same field are
    a billion fields in a kilobyte.
    """
    view = memoryview(stream).cast("B")
    try:
        mark, size = struct.unpack_from("<II", view)
        # Before Arrow 0.15, a message began with its size.
        start, size = (8, size) if mark == 0xFFFFFFFF else (4, mark)
        if size > METADATA:
            raise _names_too_long()
        _check_schema_message(view[start : start + size])
    except (struct.error, IndexError):
        import pyarrow as pa

        raise pa.ArrowInvalid("the schema of the stream is damaged") from None


def _check_schema_message(message: Any) -> None:
    root = _follow(message, 0)
    kind, header = _field(message, root, 1), _field(message, root, 2)
    if not kind or not header or message[kind] != 1:
        return  # not a schema; Arrow says so
    level, depth, fields = _tables(message, _field(message, _follow(message, header), 1), FIELDS), 0, 0
    while level:
        fields, depth = fields + len(level), depth + 1
        if depth > DEPTH:
            raise _too_deep()
        inner: list[int] = []
        for table in level:
            inner += _tables(message, _field(message, table, 5), FIELDS - fields - len(inner))
        level = inner


def _tables(message: Any, vector: int, most: int) -> list[int]:
    """Return where the tables of a vector begin; `vector` is where the reference to it is, or 0."""
    if not vector:
        return []
    start = _follow(message, vector)
    (length,) = struct.unpack_from("<I", message, start)
    if length > most:
        raise _too_many_fields()
    return [_follow(message, start + 4 + 4 * position) for position in range(length)]


def _unwrapped(arrow: Any) -> Any:
    """Return the type that holds the nested fields of an extension or a dictionary."""
    import pyarrow as pa

    while True:
        if isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        elif pa.types.is_dictionary(arrow):
            arrow = arrow.value_type
        else:
            return arrow


def _too_many_fields() -> LimitExceeded:
    return LimitExceeded(
        f"The data has more than {FIELDS:,} columns, with the fields inside structs, lists and maps.",
        hint="Name the columns and fields that you need.",
        limit="columns",
        value=FIELDS,
    )


def _too_deep() -> LimitExceeded:
    return LimitExceeded(
        f"The data has types that are nested in more than {DEPTH} levels.",
        hint="Extract the values that you need, or convert the column to text.",
        limit="depth",
        value=DEPTH,
    )


def _names_too_long() -> LimitExceeded:
    return LimitExceeded(
        f"The names of the columns and their types have more than {NAME_BYTES:,} characters.",
        hint="Name the columns that you need, with shorter names, or convert them to text.",
        limit="names",
        value=NAME_BYTES,
    )


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

    root = _follow(message, 0)
    kind, header = _field(message, root, 1), _field(message, root, 2)
    if not kind or not header or message[kind] not in (2, 3):
        return False
    batch = _follow(message, header)
    if message[kind] == 2:  # a dictionary holds its batch
        data = _field(message, batch, 1)
        if not data:
            return False
        batch = _follow(message, data)
    return bool(_field(message, batch, 3))


def _field(message: Any, table: int, index: int) -> int:
    """Return where a field of a flatbuffer's table is, or 0 if the table does not have it."""
    (back,) = struct.unpack_from("<i", message, table)
    (size,) = struct.unpack_from("<H", message, table - back)
    at = 4 + 2 * index
    (offset,) = struct.unpack_from("<H", message, table - back + at) if at < size else (0,)
    return table + offset if offset else 0


def _follow(message: Any, at: int) -> int:
    """Return where a reference of a flatbuffer points."""
    return at + int(struct.unpack_from("<I", message, at)[0])


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
