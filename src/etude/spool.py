"""A spool collects the batches of a result: in memory while they are small, otherwise in a Parquet file."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from etude.arrow_limits import split_arrow_batch
from etude.errors import SourceError
from etude.scratch_folder import ScratchFolder

MEMORY = 16 << 20
GROUP_ROWS = 1 << 16
GROUP_BYTES = 16 << 20
DICTIONARY_BYTES = 1 << 18
_wide_group = threading.Lock()
"""Held while a row group is written that is large because of a single row."""


class Spool:
    """Holds one result. Rows of normal width give the same Parquet bytes however they were split into batches."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: list[Any] = []
        self._size = 0
        self._writer: SpoolParquetFile | None = None
        self.schema: Any = None

    @property
    def path(self) -> Path | None:
        """The file, if the result was too large for memory; otherwise None."""
        return self._writer.path if self._writer else None

    @property
    def batches(self) -> list[Any] | None:
        """The batches, if they fit into memory; otherwise None."""
        return self._held if self._writer is None else None

    def take(self, batches: Iterable[Any]) -> None:
        """Collect all batches of a result."""
        for batch in batches:
            if self.schema is None:
                _refuse_unions(batch.schema)
                self.schema = batch.schema
            if self._writer is not None:
                self._writer.write(batch)
                continue
            self._held.append(batch)
            self._size += batch.nbytes
            if self._size > MEMORY:
                self._writer = SpoolParquetFile(batch.schema, self._folder)
                # Release each batch as it is written: holding and writing all would take twice the memory.
                while self._held:
                    self._writer.write(self._held.pop(0))
        if self._writer is not None:
            self._writer.close()

    def parquet(self) -> bytes | Path:
        """Return the result as Parquet: as bytes if it is in memory, otherwise the file."""
        if self._writer is not None:
            return self._writer.path
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        spool_to_parquet(sink, self.schema, self._held)
        return bytes(sink.getvalue())

    def keep(self, owner: object) -> None:
        """Delete the file when `owner` is garbage-collected."""
        if self._writer is not None:
            weakref.finalize(owner, self._writer.folder.remove)

    def drop(self) -> None:
        """Delete the file of an incomplete result."""
        if self._writer is not None:
            self._writer.folder.remove()


def _refuse_unions(schema: Any) -> None:
    # Arrow's code for unions reads out of bounds, so touching one may crash this process.
    import pyarrow as pa

    def inside(arrow: Any) -> bool:
        return pa.types.is_union(arrow) or any(inside(arrow.field(i).type) for i in range(arrow.num_fields))

    for field in schema:
        if inside(field.type):
            raise SourceError(
                f"The column `{field.name}` holds a union, which results do not support.",
                hint="Cast it to VARCHAR, or extract its members with union_extract.",
            )


class SpoolParquetFile:
    """A Parquet file that grows by row groups of a fixed number of rows."""

    def __init__(self, schema: Any, folder: Path | None) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = ScratchFolder("etude-result-", folder)
        self.path = self.folder.path / "result.parquet"
        self._groups = _Groups(schema)
        self._writer = _writer(self.path, self._groups.schema)

    def write(self, batch: Any) -> None:
        """Add a batch; write row groups to disk as they fill."""
        for group in self._groups.add(batch):
            _write_group(self._writer, group)

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        for group in self._groups.rest():
            _write_group(self._writer, group)
        self._writer.close()


def spool_to_parquet(sink: Any, schema: Any, batches: Iterable[Any]) -> None:
    """Write batches as Parquet to a path or an open sink, with at most one row group in memory."""
    groups = _Groups(schema)
    with _writer(sink, groups.schema) as writer:
        for batch in batches:
            for group in groups.add(batch):
                _write_group(writer, group)
        for group in groups.rest():
            _write_group(writer, group)


def _write_group(writer: Any, group: Any) -> None:
    # Encoding takes several copies of a wide row: one row at a time, so that the copies of many do not add up.
    with _wide_group if group.nbytes > 2 * GROUP_BYTES else nullcontext():
        writer.write_table(group, row_group_size=GROUP_ROWS)


def _writer(where: Any, schema: Any) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # The system's allocator returns the memory of a row group; Arrow's own keeps tens of megabytes.
    pool = pa.system_memory_pool()
    # A larger dictionary seldom pays off: the column has mostly distinct values, and building the usual megabyte
    # takes more time, memory and space than writing the values plainly.
    return pq.ParquetWriter(
        where, schema, compression="zstd", dictionary_pagesize_limit=DICTIONARY_BYTES, memory_pool=pool
    )


class _Groups:
    """Regroups batches into tables of a fixed number of rows, with types that Parquet supports."""

    def __init__(self, schema: Any) -> None:
        import pyarrow as pa

        self.schema = pa.schema([f.with_type(_stored_type(f.type)) for f in schema])
        self._pending: list[Any] = []
        self._rows = 0
        self._size = 0

    def add(self, batch: Any) -> Iterator[Any]:
        # An engine may send gigabytes in one batch, and a reader decodes a whole group.
        for part in split_arrow_batch(batch, GROUP_BYTES // 4):
            yield from self._add(part)

    def _add(self, batch: Any) -> Iterator[Any]:
        self._pending.append(self._storable(batch))
        self._rows += batch.num_rows
        self._size += batch.nbytes
        # Wide rows would make large groups, so a group also ends at the end of a batch if it is too large.
        while self._rows >= GROUP_ROWS:
            yield from self._cut(GROUP_ROWS)
        if self._size >= GROUP_BYTES and self._rows:
            yield from self._cut(self._rows)

    def _cut(self, rows: int) -> Iterator[Any]:
        import pyarrow as pa

        table = pa.Table.from_batches(self._pending, schema=self.schema)
        rest = table.slice(rows)
        self._pending = rest.to_batches()
        self._rows, self._size = rest.num_rows, rest.nbytes
        # In one chunk: the writer checks its dictionary after each chunk, so chunks would change the bytes.
        yield table.slice(0, rows).combine_chunks()

    def rest(self) -> Iterator[Any]:
        if self._rows:
            yield from self._cut(self._rows)

    def _storable(self, batch: Any) -> Any:
        import pyarrow as pa

        columns = [_stored(c, f.type) for c, f in zip(batch.columns, self.schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _stored_type(arrow: Any) -> Any:
    """Return the type to store: Parquet has no intervals, empty structs or timestamps in seconds."""
    import pyarrow as pa

    types = pa.types
    if types.is_interval(arrow):
        return pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
    if types.is_timestamp(arrow) and arrow.unit == "s":
        return pa.timestamp("ms", arrow.tz)
    if types.is_map(arrow):
        # An empty map may have keys without a type, which pyarrow cannot write.
        key = pa.int32() if types.is_null(arrow.key_type) else _stored_type(arrow.key_type)
        return pa.map_(key, _stored_type(arrow.item_type))
    if types.is_fixed_size_list(arrow):
        return pa.list_(arrow.value_field.with_type(_stored_type(arrow.value_type)), arrow.list_size)
    if types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_stored_type(arrow.value_type)))
    if types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return pa.struct([f.with_type(_stored_type(f.type)) for f in fields]) if fields else pa.bool_()
    return arrow


def _stored(array: Any, target: Any) -> Any:
    """Convert an array to its `_stored_type`."""
    import pyarrow as pa

    types, arrow = pa.types, array.type
    if arrow.equals(target):
        return array
    import pyarrow.compute as pc  # slow to load, and seldom needed

    if types.is_null(arrow):
        return pa.nulls(len(array), target)
    if types.is_interval(arrow):
        return _as_struct(array, target)
    if types.is_timestamp(arrow):
        return _as_milliseconds(array, target)
    nulls = array.is_null()
    if types.is_struct(arrow):
        if not arrow.num_fields:
            return pc.if_else(nulls, pa.scalar(None, pa.bool_()), True)
        parts = [_stored(a, f.type) for a, f in zip(array.flatten(), target)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=nulls)
    if types.is_fixed_size_list(arrow):
        size = arrow.list_size
        values = _stored(array.values.slice(array.offset * size, len(array) * size), target.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=target, mask=nulls)
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    offsets = pc.subtract(offsets, start)
    if types.is_map(arrow):
        keys = _stored(array.keys.slice(start, end - start), target.key_type)
        items = _stored(array.items.slice(start, end - start), target.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=nulls)
    values = _stored(array.values.slice(start, end - start), target.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=nulls)


def _as_struct(array: Any, target: Any) -> Any:
    """Convert intervals to structs of their three numbers, which are adjacent in memory: 4, 4 and 8 bytes."""
    import pyarrow as pa

    start, end = array.offset * 16, (array.offset + len(array)) * 16
    memory = memoryview(array.buffers()[1]).cast("B")[start:end]
    fours, eights = memory.cast("i"), memory.cast("q")
    # Not `pa.array`: its first call imports pandas, if installed, which takes a second.
    parts = [
        pa.Array.from_buffers(field.type, len(array), [None, pa.py_buffer(numbers.tobytes())])
        for field, numbers in zip(target, (fours[0::4], fours[1::4], eights[1::2]))
    ]
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=array.is_null())


def _as_milliseconds(array: Any, target: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = array.view(pa.int64())
    # Positive and negative infinity stay unchanged: multiplying them would overflow.
    endless = pc.equal(pc.abs(seconds), (1 << 63) - 1)
    return pc.if_else(endless, seconds, pc.multiply(pc.if_else(endless, 0, seconds), 1000)).view(target)
