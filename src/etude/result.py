"""Results: columns and rows, in memory if small, otherwise in a Parquet file."""

from __future__ import annotations

import functools
import html
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude.arrow_limits import count_decoded_arrow_bytes, split_arrow_batch
from etude.arrow_values import arrow_to_python_values
from etude.cell_text import CELL_CHARS, cell_to_json, cell_to_preview_text, cut_cell_text
from etude.column_text import columns_to_json_arrays
from etude.defaults import ROW_BYTES
from etude.errors import LimitExceeded, Unavailable

if TYPE_CHECKING:
    from etude.entities import ResultColumn, ResultInfo, RowPage

PAGE_BYTES = 16 << 20
"""A page of JSON ends early if its values take more than this; `next` says where to go on."""
PIECE_BYTES = 4 << 20
"""Rows are converted in pieces of about this size: as Python values they take many times as much memory."""

LARGE_ROW = 4 << 10
"""Rows of more bytes than this are read in batches of about `PIECE_BYTES`."""
READ_WHOLE = 4 << 20
"""A stored file up to this size is read and verified in one piece."""
SHOWN_ROWS, SHOWN_COLUMNS = 10, 20
"""How much of a result its preview shows."""


class Result:
    """The result of a query. `truncated` is True if `limit` cut it, as the caller asked; `notes` hold remarks."""

    def __init__(
        self,
        info: ResultInfo,
        batches: list[Any] | None,
        path: Path | None = None,
        *,
        open_kept: Callable[[], IO[bytes]] | None = None,
        run_id: str | None = None,
        elapsed_ms: float = 0.0,
        notes: tuple[str, ...] = (),
        sql: str = "",
    ) -> None:
        self.info = info
        self.columns = info.columns
        self.row_count = info.row_count
        self.truncated = info.truncated
        self.run_id = run_id
        self.elapsed_ms = elapsed_ms
        self.notes = notes
        self.sql = sql
        self.path = path
        """The Parquet file of a result too large for memory."""
        self._open_kept = open_kept
        self._batches = batches

    def open_parquet(self) -> IO[bytes] | None:
        """Return the result's Parquet file, open for reading, or None. A stored file is verified while it is read."""
        if self._open_kept is not None:
            return self._open_kept()
        return self.path.open("rb") if self.path is not None else None

    def batches(self) -> Iterator[Any]:
        """Yield the Arrow record batches."""
        if self._batches is not None:
            yield from self._batches
            return
        if self._open_kept is None:
            yield from _read_groups(self.path, lambda start, end: None)
            return
        with self._open_kept() as opened:
            kept: Any = opened
            check = getattr(kept, "check_range", None)
            size = kept.seek(0, 2) if check is not None else 0
            if check is not None and size > READ_WHOLE:
                # Arrow reads a path faster than a Python file object. So each part is verified right before
                # Arrow reads it: both reads hit the same pages in the system's cache.
                check(0, 4)
                check(size - 8, size)
                kept.seek(size - 8)
                check(size - 8 - int.from_bytes(kept.read(4), "little"), size)
                yield from _read_groups(kept.path, check)
            else:
                import pyarrow as pa

                if size:
                    kept.seek(0)
                yield from _read_groups(pa.BufferReader(kept.read()), lambda start, end: None)

    def pieces(self) -> Iterator[Any]:
        """Yield the record batches in pieces that are small enough to be converted at once."""
        for piece, _ in iter_result_pieces(self.batches()):
            yield piece

    def arrow(self) -> Any:
        """Return the whole result as a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.batches()))

    def df(self) -> Any:
        """Return the whole result as a pandas DataFrame, without loss: integers with nulls are nullable integers."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise Unavailable("pandas is not installed.", hint="pip install 'etude[ibis]'") from None
        from etude.data_frame import to_data_frame

        return to_data_frame(self.arrow(), [c.type for c in self.columns], arrow_to_python_values)

    def to_pandas(self) -> Any:
        """Return the whole result as a pandas DataFrame, as `df` does."""
        return self.df()

    fetchdf = to_df = df

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.row_count, len(self.columns)

    def show(self) -> None:
        """Print the first rows, and how many there are."""
        print(repr(self))

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by the names of the columns; of two columns of one name, the last counts."""
        names = [c.name for c in self.columns]
        return [dict(zip(names, row)) for row in self.iter_rows()]

    def pl(self) -> Any:
        """Return the whole result as a Polars DataFrame."""
        try:
            import polars  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise Unavailable("polars is not installed.", hint="pip install polars") from None
        return polars.from_arrow(self.arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Stream the result to any library that reads Arrow's PyCapsule interface, without holding all of it."""
        import pyarrow as pa

        batches = self.batches()
        first = next(batches)
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))
        return reader.__arrow_c_stream__(requested_schema)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of the Python values that the engine's own client would return."""
        return list(self.iter_rows())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows one by one, from the first."""
        return self.iter_rows()

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.row_count

    def __bool__(self) -> bool:
        """Return True: a result without rows is a result."""
        return True

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row that was not fetched yet, or None after the last, as a cursor of the DB-API does."""
        return next(self._fetching, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """Return up to `size` rows that were not fetched yet."""
        return list(itertools.islice(self._fetching, size))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that were not fetched yet."""
        return list(self._fetching)

    @functools.cached_property
    def _fetching(self) -> Iterator[tuple[Any, ...]]:
        return self.iter_rows()

    def iter_rows(self, shown: bool = False) -> Iterator[tuple[Any, ...]]:
        """Yield the rows one by one.

        With `shown`, values that Python holds in another form are as the engine prints them, for tables and text files:
        infinity instead of the year 9999, intervals with their months, 32-bit floats with their own digits.
        """
        kinds = [c.type for c in self.columns]
        for batch in self.batches():
            columns = [arrow_to_python_values(batch.column(i), kind, shown) for i, kind in enumerate(kinds)]
            yield from zip(*columns, strict=True)

    def iter_rows_in_pieces(self, shown: bool = False) -> Iterator[tuple[Any, ...]]:
        """Yield the rows one by one, with few of them as Python values at a time; slower than `iter_rows`."""
        for piece in self.pieces():
            yield from Result(self.info, [piece]).iter_rows(shown)

    def first_rows(self, most: int) -> list[tuple[Any, ...]]:
        """Return the first rows for the text of an answer: long cells of large rows are cut, as answers show them."""
        rows: list[tuple[Any, ...]] = []
        for piece, taken in iter_result_pieces(self.batches()):
            large = taken > LARGE_ROW * piece.num_rows
            for row in itertools.islice(Result(self.info, [piece]).iter_rows(), most - len(rows)):
                rows.append(tuple(map(_cut_long_cell, row)) if large else row)
            if len(rows) >= most:
                break
        return rows

    def __repr__(self) -> str:
        """Return the first rows as a table of text, and how many there are."""
        shown, names, size = self._preview()
        widths = [max(map(len, column)) for column in zip(names, *shown)]
        lines = [names, ["-" * width for width in widths], *shown]
        table = "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines)
        return f"{table}\n{size}"

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, which notebooks show; all text is escaped."""
        shown, names, size = self._preview()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in shown)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(size)}</p>"

    def _preview(self) -> tuple[list[list[str]], list[str], str]:
        """Return the first cells as text, the names of their columns, and a line on the size of the result."""
        columns = self.columns[:SHOWN_COLUMNS]
        rows = [
            [cell_to_preview_text(v) for v in row[: len(columns)]]
            for row in itertools.islice(self.iter_rows(True), SHOWN_ROWS)
        ]
        size = f"{self.row_count:,} row{'' if self.row_count == 1 else 's'}"
        size += f", the first {len(rows)} shown" if len(rows) < self.row_count else ""
        if len(columns) < len(self.columns):
            size += f"; {len(self.columns)} columns, the first {len(columns)} shown"
        size += "; there are more: `limit` cut the result" if self.truncated else ""
        return rows, [cell_to_preview_text(c.name) for c in columns], size


def _read_groups(source: Any, check: Callable[[int, int], None]) -> Iterator[Any]:
    """Yield the batches of a Parquet file; verify the bytes of each row group before reading it."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        # One group at a time: if it is asked for all groups, the reader prefetches the whole file.
        for group in range(file.num_row_groups):
            check(*_range_of(file.metadata.row_group(group)))
            yield from file.iter_batches(_batch_rows(file.metadata.row_group(group)), row_groups=[group])
        if not file.metadata.num_rows:
            yield from empty_result_batches(file.schema_arrow)


def _batch_rows(group: Any) -> int:
    """Return how many rows of a row group are decoded at a time: few if they are large."""
    size = group.total_byte_size // max(group.num_rows, 1)
    return 1 << 16 if size < LARGE_ROW else max(PIECE_BYTES // size, 1)


def _range_of(group: Any) -> tuple[int, int]:
    """Return the start and end of a row group's pages in the file."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns]
    return min(starts, default=0), max((s + c.total_compressed_size for s, c in zip(starts, columns)), default=0)


def empty_result_batches(schema: Any) -> list[Any]:
    """Return the batches of a result without rows: one empty batch, so that the columns are known."""
    import pyarrow as pa

    # Not `pa.array([])`: its first call imports pandas, if installed, which takes a second.
    return [pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)]


def describe_result_columns(schema: Any, types: list[str]) -> tuple[ResultColumn, ...]:
    """Return the columns of a schema, with the engine's own type names if it provided them."""
    from etude.entities import ResultColumn

    names = types or [str(f.type) for f in schema]
    return tuple(ResultColumn(name=f.name, type=t) for f, t in zip(schema, names, strict=True))


def _cut_long_cell(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        text = str(value)
        return cut_cell_text(text, CELL_CHARS) if len(text) > CELL_CHARS else value
    if isinstance(value, bytes):
        return value[:CELL_CHARS]
    return cut_cell_text(value, CELL_CHARS) if isinstance(value, str) else value


def iter_result_pieces(batches: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Yield slices that are small enough to convert to Python values, each with its bytes as plain values."""
    for batch in batches:
        for piece in split_arrow_batch(batch, PIECE_BYTES):
            yield piece, count_decoded_arrow_bytes(piece)


def take_result_page(info: ResultInfo, batches: Iterable[Any], offset: int = 0) -> list[list[Any]]:
    """Return rows as JSON values. The page ends early, after at least one row, if its values exceed `PAGE_BYTES`.

    `offset` is the position of the first row, for errors.
    """
    rows: list[list[Any]] = []
    size = 0
    for piece, taken in iter_result_pieces(batches):
        size += taken
        if rows and size > PAGE_BYTES:
            break
        if taken > ROW_BYTES:
            raise LimitExceeded(
                f"Row {offset + len(rows) + 1} holds {taken:,} bytes; {ROW_BYTES:,} fit into JSON.",
                hint="Select fewer or shorter columns, or download the result as CSV or Parquet.",
                limit="bytes",
            )
        rows += [[cell_to_json(v) for v in row] for row in Result(info, [piece]).iter_rows(True)]
    return rows


def _first_batches(result: Result, limit: int) -> Iterator[Any]:
    for batch in result.batches():
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def first_result_page(result: Result, limit: int) -> RowPage:
    """Return the first rows of a result as JSON; fewer if they are large."""
    from etude.entities import RowPage

    rows = take_result_page(result.info, _first_batches(result, limit))
    return RowPage(
        run_id=result.run_id,
        columns=list(result.columns),
        rows=rows,
        row_count=result.row_count,
        next=len(rows) if rows and len(rows) < result.row_count else None,
        truncated=result.truncated,
        elapsed_ms=round(result.elapsed_ms, 3),
        notes=list(result.notes),
    )


def result_to_json(result: Result) -> dict[str, Any]:
    """Return a small result as JSON, as in the API."""
    return json.loads("".join(iter_result_json(result)))  # type: ignore[no-any-return]


def iter_result_json(result: Result) -> Iterator[str]:
    """Yield a result as pieces of one JSON object, as `--format json` writes it, with few rows in memory at a time."""
    columns = [{"name": c.name, "type": c.type} for c in result.columns]
    head = json.dumps({"run_id": result.run_id, "columns": columns, "rows": []}, ensure_ascii=False)
    yield head.removesuffix("]}")
    kinds = [c.type for c in result.columns]
    between = ""
    for piece in result.pieces():
        if rows := ", ".join(columns_to_json_arrays(piece, kinds)):
            yield between + rows
            between = ", "
    end = {"row_count": result.row_count, "truncated": result.truncated, "elapsed_ms": round(result.elapsed_ms, 3)}
    yield "], " + json.dumps(end)[1:]
