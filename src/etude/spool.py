"""A spool takes the batches of a result as they come: in memory while they are few, in a Parquet file when not."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MEMORY = 64 << 20
GROUP_ROWS = 1 << 17
GROUP_BYTES = 32 << 20


class Spool:
    """Holds one result. Equal results give equal Parquet bytes, however they were cut into batches."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: list[Any] = []
        self._size = 0
        self._writer: ParquetFile | None = None
        self.schema: Any = None

    @property
    def path(self) -> Path | None:
        """The file, once there was too much for memory."""
        return self._writer.path if self._writer else None

    @property
    def batches(self) -> list[Any] | None:
        """The batches, while they fit into memory."""
        return self._held if self._writer is None else None

    def take(self, batches: Iterable[Any]) -> None:
        """Take all of a result."""
        for batch in batches:
            if self.schema is None:
                self.schema = batch.schema
            if self._writer is not None:
                self._writer.write(batch)
                continue
            self._held.append(batch)
            self._size += batch.nbytes
            if self._size > MEMORY:
                self._writer = ParquetFile(batch.schema, self._folder)
                for held in self._held:
                    self._writer.write(held)
                self._held = []
        if self._writer is not None:
            self._writer.close()

    def parquet(self) -> bytes | Path:
        """The result as Parquet: bytes when it is in memory, else the file."""
        if self._writer is not None:
            return self._writer.path
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        write_parquet(sink, self.schema, self._held)
        return bytes(sink.getvalue())

    def keep(self, owner: object) -> None:
        """Let the file live exactly as long as `owner`."""
        if self._writer is not None:
            weakref.finalize(owner, shutil.rmtree, self._writer.path.parent, ignore_errors=True)


class ParquetFile:
    """A Parquet file that grows by row groups of a fixed number of rows."""

    def __init__(self, schema: Any, folder: Path | None) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="etude-result-", dir=folder)) / "result.parquet"
        self._groups = _Groups(schema)
        self._writer = _writer(self.path, self._groups.schema)

    def write(self, batch: Any) -> None:
        """Add a batch; row groups go to disk as they fill."""
        for group in self._groups.add(batch):
            self._writer.write_table(group, row_group_size=GROUP_ROWS)

    def close(self) -> None:
        """Write what is left and the footer."""
        for group in self._groups.rest():
            self._writer.write_table(group, row_group_size=GROUP_ROWS)
        self._writer.close()


def write_parquet(sink: Any, schema: Any, batches: Iterable[Any]) -> None:
    """Write batches as Parquet to a path or an open sink, holding no more than a row group."""
    groups = _Groups(schema)
    with _writer(sink, groups.schema) as writer:
        for batch in batches:
            for group in groups.add(batch):
                writer.write_table(group, row_group_size=GROUP_ROWS)
        for group in groups.rest():
            writer.write_table(group, row_group_size=GROUP_ROWS)


def _writer(where: Any, schema: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(where, schema, compression="zstd")


class _Groups:
    """Re-cuts batches into tables of a fixed number of rows, with types that Parquet has."""

    def __init__(self, schema: Any) -> None:
        import pyarrow as pa

        self._struct = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
        self._intervals = [i for i, f in enumerate(schema) if pa.types.is_interval(f.type)]
        fields = [f.with_type(self._struct) if i in self._intervals else f for i, f in enumerate(schema)]
        self.schema = pa.schema(fields)
        self._pending: list[Any] = []
        self._rows = 0
        self._size = 0

    def add(self, batch: Any) -> Iterator[Any]:
        self._pending.append(self._storable(batch))
        self._rows += batch.num_rows
        self._size += batch.nbytes
        # Wide rows make large groups: a group also ends by size, at a batch's end, which is as repeatable.
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
        yield table.slice(0, rows)

    def rest(self) -> Iterator[Any]:
        if self._rows:
            yield from self._cut(self._rows)

    def _storable(self, batch: Any) -> Any:
        import pyarrow as pa

        if not self._intervals:
            return (
                batch
                if batch.schema.equals(self.schema)
                else pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            )
        columns = list(batch.columns)
        for i in self._intervals:
            values = [
                v and dict(zip(("months", "days", "nanoseconds"), v, strict=True)) for v in columns[i].to_pylist()
            ]
            columns[i] = pa.array(values, type=self._struct)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
