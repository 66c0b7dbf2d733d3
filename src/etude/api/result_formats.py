"""Results over HTTP: sorted and filtered pages, and whole results as CSV, Parquet or Arrow."""

from __future__ import annotations

import bisect
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etude.cell_text import cells_to_csv_line, escape_cell_formula
from etude.column_text import columns_to_csv_lines
from etude.errors import Invalid
from etude.result import Result, empty_result_batches, iter_result_pieces, take_result_page

CSV = "text/csv"
PARQUET = "application/vnd.apache.parquet"
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
MEDIA = (JSON, CSV, PARQUET, ARROW)
FORMATS = {"json": JSON, "csv": CSV, "parquet": PARQUET, "arrow": ARROW}
"""Names of media types for links, which cannot send an Accept header."""
OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "contains", "starts", "null", "notnull")
TAKEN = 1 << 16
"""Rows that are put in order at once."""
_FILTER = re.compile(rf"(?P<column>.+):(?P<operator>{'|'.join(OPERATORS)})(?::(?P<value>.*))?", re.DOTALL)


@dataclass(frozen=True)
class ResultSelection:
    """Which rows of a result to return, and in which order."""

    sort: tuple[str, ...] = ()
    """Columns to sort by; a `-` before a column means descending."""
    filter: tuple[str, ...] = ()
    """Filters as `column:operator:value`; rows must pass all of them."""
    offset: int = 0
    limit: int | None = None
    escape_formulas: bool = False
    """Whether texts in CSV that a spreadsheet would run get an apostrophe before them."""

    @property
    def plain(self) -> bool:
        """True if this selects the whole result, unsorted."""
        return not (self.sort or self.filter or self.offset) and self.limit is None


def choose_result_format(accept: str) -> str | None:
    """Return the media type that the Accept header prefers; None if it accepts no known one."""
    wanted: list[tuple[float, int, str]] = []
    for order, part in enumerate(accept.split(",") if accept.strip() else ["*/*"]):
        name, *parameters = [p.strip().lower() for p in part.split(";")]
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        weight = float(quality) if re.fullmatch(r"[01](\.\d{0,3})?", quality) else 0.0
        wanted += [(-weight, order, name)] if weight else []
    for _, _, name in sorted(wanted):
        for media in MEDIA:
            if name in (media, "*/*", f"{media.partition('/')[0]}/*"):
                return media
    return None


# Select rows.


def select_result_rows(result: Result, view: ResultSelection) -> Any:
    """Return the positions of the rows that pass the filters, sorted. Reads only the columns that are named."""
    import pyarrow as pa
    import pyarrow.compute as pc

    filters = [_parse_filter(text) for text in view.filter]
    sorts = [(name.removeprefix("-"), "descending" if name.startswith("-") else "ascending") for name in view.sort]
    names = {c.name: i for i, c in enumerate(result.columns)}
    for name in [f[0] for f in filters] + [s[0] for s in sorts]:
        if name not in names:
            listed = ", ".join(f"`{n}`" for n in list(names)[:20])
            raise Invalid(f"The result has no column `{name[:200]}`.", hint=f"Columns: {listed}.")
    wanted = sorted({names[n] for n in [f[0] for f in filters] + [s[0] for s in sorts]})
    columns = _read_columns(result, wanted)
    by_name = {result.columns[i].name: column for i, column in zip(wanted, columns)}
    mask = None
    for name, operator, value in filters:
        found = _matches(by_name[name], operator, value, name)
        mask = found if mask is None else pc.and_(mask, found)
    positions = pc.indices_nonzero(pc.fill_null(mask, False)) if mask is not None else None
    if not sorts:
        return positions
    try:
        keys = [by_name[name] if positions is None else pc.take(by_name[name], positions) for name, _ in sorts]
        table = pa.table(keys, names=[str(i) for i in range(len(sorts))])
        order = pc.sort_indices(table, sort_keys=[(str(i), way) for i, (_, way) in enumerate(sorts)])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        raise Invalid(
            "The result cannot be sorted by these columns.", hint="Lists and structs have no order."
        ) from None
    return order if positions is None else pc.take(positions, order)


def _parse_filter(text: str) -> tuple[str, str, str]:
    found = _FILTER.fullmatch(text)
    if found is None or (found["value"] is None) != (found["operator"] in ("null", "notnull")):
        raise Invalid(
            f"`{text[:200]}` is not a filter.",
            hint=f"Write column:operator:value, with one of {', '.join(OPERATORS)}; the last two take no value.",
        )
    return found["column"], found["operator"], found["value"] or ""


def _read_columns(result: Result, wanted: Sequence[int]) -> list[Any]:
    import pyarrow as pa

    parts: list[list[Any]] = [[] for _ in wanted]
    for batch in result.batches():
        for part, index in zip(parts, wanted):
            part.append(_comparable(batch.column(index), result.columns[index].type))
    return [pa.chunked_array(part) for part in parts]


def _comparable(column: Any, kind: str) -> Any:
    """Return the column with values that compare correctly: integers too large for Arrow arrive as text."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if kind in ("HUGEINT", "UHUGEINT"):
        return column.cast(pa.decimal256(76, 0))
    return column


def _matches(column: Any, operator: str, value: str, name: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if operator == "null":
        return pc.is_null(column)
    if operator == "notnull":
        return pc.is_valid(column)
    try:
        if operator in ("contains", "starts"):
            text = column.cast(pa.string())
            match = pc.match_substring if operator == "contains" else pc.starts_with
            return match(text, value, ignore_case=True)
        compare = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater"}
        function = compare.get(operator, "greater_equal")
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return pc.call_function(
                function, [column, pa.scalar(bytes.fromhex(value), column.type)]
            )  # as pages show it
        return pc.call_function(function, [column, pa.scalar(value, pa.string()).cast(column.type)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError):
        raise Invalid(
            f"The column `{name}` ({column.type}) cannot be compared with `{value[:200]}` by `{operator}`.",
            hint="Give a value of the column's type; bytes are written in hex, as pages show them.",
        ) from None


# Read rows.


def count_selected_result_rows(result: Result, positions: Any) -> int:
    """Return the number of selected rows on all pages."""
    return result.row_count if positions is None else len(positions)


def read_selected_result_batches(result: Result, view: ResultSelection, positions: Any) -> Iterator[Any]:
    """Yield the selected rows as Arrow batches; at least one batch, so that the columns are known."""
    start = view.offset
    end = count_selected_result_rows(result, positions) if view.limit is None else start + view.limit
    if positions is None:
        yield from _slice(result, start, end)
    elif view.limit is None:
        yield from _take_all(result, positions.slice(start))
    else:
        yield from _take(result, positions.slice(start, view.limit))


def _slice(result: Result, start: int, end: int) -> Iterator[Any]:
    at, given = 0, False
    for batch in result.batches():
        first, last = max(start - at, 0), min(end - at, batch.num_rows)
        if first < last or (not given and at + batch.num_rows >= min(end, result.row_count)):
            given = True
            yield batch.slice(min(first, batch.num_rows), max(last - first, 0))
        at += batch.num_rows
        if at >= end and given:
            return


def _take(result: Result, wanted: Any) -> Iterator[Any]:
    """Yield the rows at the positions `wanted`, in that order, holding only those rows in memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = pc.sort_indices(wanted)
    ascending = pc.take(wanted, order)
    positions = ascending.to_pylist()
    parts: list[Any] = []
    at = done = 0
    for batch in result.batches():
        end = bisect.bisect_left(positions, at + batch.num_rows, done)
        if end > done or not parts:
            parts.append(batch.take(pc.subtract(ascending.slice(done, end - done), at)))
        at += batch.num_rows
        done = end
        if done == len(positions):
            break
    found = pa.Table.from_batches(parts)
    yield from found.take(pc.sort_indices(order)).combine_chunks().to_batches() or empty_result_batches(found.schema)


def _take_all(result: Result, wanted: Any) -> Iterator[Any]:
    """Yield all rows at the positions `wanted`, in that order; the whole result is in memory, but only once."""
    table = result.arrow()
    for start in range(0, max(len(wanted), 1), TAKEN):
        part = table.take(wanted.slice(start, TAKEN)).combine_chunks()
        yield from part.to_batches() or empty_result_batches(table.schema)


def format_result_as_json(result: Result, view: ResultSelection, positions: Any) -> bytes:
    """Return a page of a result as JSON, in the shape of `RowPage`. It may end early, as `take_result_page` says."""
    rows = take_result_page(result.info, read_selected_result_batches(result, view, positions), view.offset)
    count, end = count_selected_result_rows(result, positions), view.offset + len(rows)
    body = {
        "run_id": result.run_id,
        "columns": [{"name": c.name, "type": c.type} for c in result.columns],
        "rows": rows,
        "row_count": count,
        "offset": view.offset,
        "next": end if rows and end < count else None,
        "truncated": result.truncated,
        "elapsed_ms": round(result.elapsed_ms, 3),
        "notes": list(result.notes),
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def format_result_as_csv(result: Result, view: ResultSelection, positions: Any) -> Iterator[bytes]:
    """Yield a result as CSV, piece by piece."""
    text = io.StringIO()
    escape: Callable[[str], str] | None = escape_cell_formula if view.escape_formulas else None
    text.write(cells_to_csv_line([c.name for c in result.columns], escape=escape) + "\r\n")
    kinds = [c.type for c in result.columns]
    for piece, _ in iter_result_pieces(read_selected_result_batches(result, view, positions)):
        text.writelines(f"{line}\r\n" for line in columns_to_csv_lines(piece, kinds, escape=escape))
        yield text.getvalue().encode("utf-8", "replace")
        text.seek(0)
        text.truncate()


def format_result_as_arrow(result: Result, view: ResultSelection, positions: Any) -> Iterator[bytes]:
    """Yield a result as an Arrow stream, piece by piece."""
    import pyarrow as pa

    batches = read_selected_result_batches(result, view, positions)
    first = next(batches)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, first.schema) as writer:
        for batch in itertools.chain([first], batches):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def format_result_as_parquet(result: Result, view: ResultSelection, positions: Any) -> bytes:
    """Return a result as Parquet."""
    import pyarrow as pa

    from etude.spool import spool_to_parquet

    batches = read_selected_result_batches(result, view, positions)
    first = next(batches)
    sink = pa.BufferOutputStream()
    spool_to_parquet(sink, first.schema, itertools.chain([first], batches))
    return bytes(sink.getvalue())
