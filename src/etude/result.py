"""Results: columns and rows, in memory if small, otherwise in a Parquet file."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import html
import itertools
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from etude.arrow_limits import count_bytes, split
from etude.errors import LimitExceeded, Unavailable

if TYPE_CHECKING:
    from etude.entities import ResultColumn, ResultInfo, RowPage

PAGE_BYTES = 16 << 20
"""A page of JSON ends early if its values take more than this; `next` says where to go on."""
ROW_BYTES = 64 << 20
"""The most bytes of one row in JSON."""
PIECE_BYTES = 4 << 20
"""Rows are converted in pieces of about this size: as Python values they take many times as much memory."""

READ_WHOLE = 4 << 20
"""A stored file up to this size is read and verified in one piece."""
SHOWN_ROWS, SHOWN_COLUMNS, SHOWN_CHARS = 10, 20, 40
"""How much of a result its preview shows."""
JSON_ROWS = 4096
"""Rows that are written as JSON in one piece."""


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

        return to_data_frame(self.arrow(), [c.type for c in self.columns], _values)

    def to_pandas(self) -> Any:
        """Return the whole result as a pandas DataFrame, as `df` does."""
        return self.df()

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
            columns = [_values(batch.column(i), kind, shown) for i, kind in enumerate(kinds)]
            yield from zip(*columns, strict=True)

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
            [_cell_text(v) for v in row[: len(columns)]] for row in itertools.islice(self.iter_rows(True), SHOWN_ROWS)
        ]
        size = f"{self.row_count:,} row{'' if self.row_count == 1 else 's'}"
        size += f", the first {len(rows)} shown" if len(rows) < self.row_count else ""
        if len(columns) < len(self.columns):
            size += f"; {len(self.columns)} columns, the first {len(columns)} shown"
        size += "; there are more: `limit` cut the result" if self.truncated else ""
        return rows, [_cell_text(c.name) for c in columns], size


def _cell_text(value: Any) -> str:
    """Return a cell in one short line; control characters are escaped, because they could drive a terminal."""
    text = "null" if value is None else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: SHOWN_CHARS + 1])
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def _read_groups(source: Any, check: Callable[[int, int], None]) -> Iterator[Any]:
    """Yield the batches of a Parquet file; verify the bytes of each row group before reading it."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        # One group at a time: if it is asked for all groups, the reader prefetches the whole file.
        for group in range(file.num_row_groups):
            check(*_range_of(file.metadata.row_group(group)))
            yield from file.iter_batches(1 << 16, row_groups=[group])
        if not file.metadata.num_rows:
            yield from no_rows(file.schema_arrow)


def _range_of(group: Any) -> tuple[int, int]:
    """Return the start and end of a row group's pages in the file."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns]
    return min(starts, default=0), max((s + c.total_compressed_size for s, c in zip(starts, columns)), default=0)


def no_rows(schema: Any) -> list[Any]:
    """Return the batches of a result without rows: one empty batch, so that the columns are known."""
    import pyarrow as pa

    # Not `pa.array([])`: its first call imports pandas, if installed, which takes a second.
    return [pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)]


def describe(schema: Any, types: list[str]) -> tuple[ResultColumn, ...]:
    """Return the columns of a schema, with the engine's own type names if it provided them."""
    from etude.entities import ResultColumn

    names = types or [str(f.type) for f in schema]
    return tuple(ResultColumn(name=f.name, type=t) for f, t in zip(schema, names, strict=True))


def _values(array: Any, kind: str, shown: bool = False) -> list[Any]:
    """Return the cells of a column as the engine's own client would. `kind` is the engine's name of the type.

    With `shown`, they are as the engine prints them if Python's form says something else.
    """
    import pyarrow as pa

    types, arrow = pa.types, array.type
    if isinstance(arrow, pa.BaseExtensionType):
        return _values(array.storage, kind, shown)
    if types.is_map(arrow):
        return _maps(array, kind, shown)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        # A list of fixed length is an ARRAY in DuckDB, which its client returns as a tuple.
        return _lists(array, _values(array.flatten(), _parts(kind, 1)[0], shown), types.is_fixed_size_list(arrow))
    if types.is_struct(arrow) and kind != "INTERVAL":
        return _structs(array, kind, shown)
    if types.is_date(arrow):
        return _dates(array, shown)
    if types.is_time(arrow):
        return _times(array)
    if types.is_timestamp(arrow):
        return _timestamps(array, shown)
    convert = _converter(arrow, kind, shown)
    values: list[Any] = array.to_pylist()
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _converter(arrow: Any, kind: str, shown: bool) -> Callable[[Any], Any] | None:
    """Return a function from Arrow's value to the one of the engine's own client; None if they are equal."""
    import pyarrow as pa

    interval = interval_text if shown else _timedelta
    if pa.types.is_interval(arrow):
        return lambda v: interval(*v)
    if kind == "INTERVAL" and pa.types.is_struct(arrow):
        return lambda v: interval(v["months"], v["days"], v["nanoseconds"])
    if shown and pa.types.is_float32(arrow):
        return _shortest
    if kind == "STRUCT":
        return lambda _: {}  # a struct without fields, stored as a boolean in Parquet
    by_kind: dict[str, Callable[[Any], Any]] = {
        "HUGEINT": int,
        "UHUGEINT": int,
        "UUID": uuid.UUID,
        "TIME WITH TIME ZONE": _time_with_zone,
    }
    return by_kind.get(kind)


def _lists(array: Any, values: list[Any], fixed: bool) -> list[Any]:
    """Split the flat values into one list per row."""
    out: list[Any] = []
    at = 0
    for length in array.value_lengths().to_pylist():
        if length is None:
            out.append(None)
            continue
        part = values[at : at + length]
        out.append(tuple(part) if fixed else part)
        at += length
    return out


def _maps(array: Any, kind: str, shown: bool) -> list[Any]:
    offsets = array.offsets.to_pylist()
    start, count = offsets[0], offsets[-1] - offsets[0]
    kinds = _parts(kind, 2)
    keys = _values(array.keys.slice(start, count), kinds[0], shown)
    values = _values(array.items.slice(start, count), kinds[1], shown)
    out = []
    for there, begin, end in zip(array.is_valid().to_pylist(), offsets, offsets[1:]):
        part = slice(begin - start, end - start)
        out.append(_map(keys[part], values[part]) if there else None)
    return out


def _map(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    try:
        return dict(zip(keys, values))
    except TypeError:
        # DuckDB's client returns this form if a key is a list or a struct.
        return {"key": keys, "value": values}


def _structs(array: Any, kind: str, shown: bool) -> list[Any]:
    names = [f.name for f in array.type]
    columns = [_values(c, k, shown) for c, k in zip(array.flatten(), _parts(kind, len(names)))]
    rows = zip(*columns) if columns else iter([()] * len(array))
    if kind.startswith("UNION("):
        # A union arrives as a struct of its members, all null except the one in use.
        return [next((v for v in row if v is not None), None) for row in rows]
    make: Callable[[Any], Any] = tuple if kind.startswith("TUPLE(") else lambda row: dict(zip(names, row))
    return [make(row) if there else None for row, there in zip(rows, array.is_valid().to_pylist())]


def _parts(kind: str, count: int) -> list[str]:
    """Return the engine's names of the types inside a nested type; empty names if they are unknown."""
    if kind.endswith("]"):
        found = [kind[: kind.rindex("[")]]
    else:
        name, _, rest = kind.partition("(")
        found = _split(rest.removesuffix(")")) if name in ("STRUCT", "UNION", "MAP", "TUPLE") else []
        if name in ("STRUCT", "UNION"):
            found = [_FIELD.sub("", f, count=1) for f in found]
    return found if len(found) == count else [""] * count


_FIELD = re.compile(r'\s*(?:"(?:[^"]|"")*"|[^\s"]+)\s+')
_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[(),]|[^(),'"]+""")


def _split(text: str) -> list[str]:
    """Split the text at commas outside brackets and quotes."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [p.strip() for p in parts]


_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = dt.datetime(1970, 1, 1)
# The values that DuckDB stores for infinity.
_FOREVER, _FOREVER_DAYS = (1 << 63) - 1, (1 << 31) - 1


def _dates(array: Any, shown: bool) -> list[Any]:
    import pyarrow as pa

    with contextlib.suppress(OverflowError, ValueError):
        return list(array.to_pylist())
    days = array.cast(pa.date32()).view(pa.int32())
    return [None if d is None else _date(d, shown) for d in days.to_pylist()]


def _date(days: int, shown: bool) -> Any:
    if abs(days) == _FOREVER_DAYS:
        end: Any = dt.date.max if days > 0 else dt.date.min
        return _endless(days) if shown else end
    try:
        return _EPOCH.date() + dt.timedelta(days=days)
    except OverflowError:
        return _date_text(days)


def _date_text(days: int) -> str:
    """Format a date outside Python's range as DuckDB does. Years start in March here, so that leap days come last."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year + era * 400 + (month <= 2)
    return f"{year:04}-{month:02}-{day:02}" if year > 0 else f"{1 - year:04}-{month:02}-{day:02} (BC)"


def _times(array: Any) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    end = 86_400 * _UNITS[array.type.unit]
    values = array.to_pylist()
    if (pc.max(counts).as_py() or 0) < end:
        return list(values)
    # 24:00:00 is a valid time in SQL, but not in Python.
    return ["24:00:00" if c == end else v for c, v in zip(counts.to_pylist(), values)]


def _timestamps(array: Any, shown: bool) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    arrow = array.type
    counts = array.view(pa.int64())
    ends = pc.min_max(counts).as_py()
    if ends["max"] != _FOREVER and ends["min"] != -_FOREVER:
        if shown and arrow.unit == "ns" and any((c or 0) % 1000 for c in counts.to_pylist()):
            return [None if v is None else str(v).replace(" ", "T", 1) for v in _nanoseconds(array)]
        plain = array.cast(pa.timestamp("us", arrow.tz), safe=False) if arrow.unit == "ns" else array
        with contextlib.suppress(OverflowError, ValueError):
            return list(plain.to_pylist())
    return [None if c is None else _timestamp(c, arrow.unit, arrow.tz, shown) for c in counts.to_pylist()]


def _nanoseconds(array: Any) -> list[str | None]:
    """Return timestamps with all nine digits of a second, which Python's own type does not hold."""
    import pyarrow as pa

    return list(array.cast(pa.string()).to_pylist())


def _endless(number: int) -> str:
    return "infinity" if number > 0 else "-infinity"


def _timestamp(count: int, unit: str, zone: str | None, shown: bool) -> Any:
    if abs(count) == _FOREVER:
        end: Any = dt.datetime.max if count > 0 else dt.datetime.min
        return _endless(count) if shown else end
    seconds, part = divmod(count, _UNITS[unit])
    micros = part * 10**6 // _UNITS[unit]
    try:
        value = _EPOCH + dt.timedelta(seconds=seconds, microseconds=micros)
        return value.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)) if zone else value
    except OverflowError:
        days, second = divmod(seconds, 86_400)
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        fraction = f".{micros:06}".rstrip("0") if micros else ""
        return f"{_date_text(days)} {clock}{fraction}{'+00' if zone else ''}"


def _timedelta(months: int, days: int, nanoseconds: int) -> Any:
    micros = nanoseconds // 1000
    try:
        return dt.timedelta(days=months * 30 + days, microseconds=micros)
    except OverflowError:
        return f"P{months}M{days}DT{micros / 10**6:f}S"


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval as DuckDB prints it: `1 year 2 months 3 days 04:05:06.5`."""
    years, rest = int(months / 12), months - 12 * int(months / 12)
    parts = [(years, "year"), (rest, "month"), (days, "day")]
    said = [f"{n} {unit}{'' if abs(n) == 1 else 's'}" for n, unit in parts if n]
    micros = abs(nanoseconds) // 1000
    if micros or not said:
        seconds, fraction = divmod(micros, 10**6)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        clock += f".{fraction:06}".rstrip("0") if fraction else ""
        said.append(f"-{clock}" if nanoseconds < 0 else clock)
    return " ".join(said)


def _shortest(value: float) -> float:
    """Return the float with the fewest digits that is the same number in 32 bits."""
    if not math.isfinite(value):
        return value
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= _LARGEST and _FLOAT.unpack(_FLOAT.pack(short))[0] == value:
            return short
    return value


_FLOAT = struct.Struct("<f")
_LARGEST = 3.4028234e38


def _time_with_zone(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return dt.time.fromisoformat(text)
    return text


def escape_formula(value: Any) -> Any:
    """Return a text that a spreadsheet would run as a formula with an apostrophe before it; other values unchanged."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value.strip(" ")):
        return value
    return f"'{value}"


# Spreadsheets skip blanks, control characters and invisible marks, and read fullwidth signs as plain ones.
_FORMULA = re.compile(r"[\t\r\n]|[\s\x00-\x20\x7f-\x9f\xad\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf|Infinity)")


def json_value(value: Any) -> Any:
    """Return a cell as a JSON value: dates as ISO text, bytes as hex, numbers that JSON cannot represent as text."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return _exact(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            micros = value // dt.timedelta(microseconds=1)
            days = int(micros / 86_400_000_000)
            return interval_text(0, days, (micros - days * 86_400_000_000) * 1000)
        case bytes():
            return value.hex()
        case dict():
            return {str(k): json_value(v) for k, v in value.items()}
        case list() | tuple():
            return [json_value(v) for v in value]
        case _:
            return str(value)


def text_value(value: Any) -> str:
    """Return a cell as text for CSV and Markdown: empty for null, `true` and `false`, nested values as JSON."""
    if type(value) is float and math.isfinite(value):
        return repr(value)
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Decimal() if value.is_finite():
            return f"{value:f}"
        case dict() | list() | tuple():
            return json.dumps(json_value(value), ensure_ascii=False)
        case _:
            return str(json_value(value))


def csv_line(row: Iterable[Any], delimiter: str = ",", escape: Callable[[str], str] | None = None) -> str:
    """Return a row of CSV without its line end. An empty text is quoted, so that it differs from a null."""
    special = _SPECIAL[delimiter]
    fields = []
    for value in row:
        if value is None:
            fields.append("")
            continue
        if type(value) is int:
            fields.append(str(value))
            continue
        text = value if type(value) is str else text_value(value)
        text = escape(text) if escape is not None else text
        fields.append('"' + text.replace('"', '""') + '"' if special(text) else text)
    # A line without any character would be skipped by most readers.
    return '""' if fields == [""] else delimiter.join(fields)


_SPECIAL = {d: re.compile(rf'["\r\n{d}]|^\s|\s$|^$').search for d in (",", "\t")}
"""Finds what makes quotes necessary, by the delimiter."""


def _exact(value: Decimal) -> Any:
    if not value.is_finite():
        return str(value)
    as_float = float(value)
    # JSON readers parse a float. That is exact if the float's shortest form equals the decimal.
    return as_float if Decimal(repr(as_float)) == value else str(value)


def iter_pieces(batches: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Yield slices that are small enough to convert to Python values, each with its bytes as plain values."""
    for batch in batches:
        for piece in split(batch, PIECE_BYTES):
            yield piece, count_bytes(piece)


def take_page(info: ResultInfo, batches: Iterable[Any], offset: int = 0) -> list[list[Any]]:
    """Return rows as JSON values. The page ends early, after at least one row, if its values exceed `PAGE_BYTES`.

    `offset` is the position of the first row, for errors.
    """
    rows: list[list[Any]] = []
    size = 0
    for piece, taken in iter_pieces(batches):
        size += taken
        if rows and size > PAGE_BYTES:
            break
        if taken > ROW_BYTES:
            raise LimitExceeded(
                f"Row {offset + len(rows) + 1} holds {taken:,} bytes; {ROW_BYTES:,} fit into JSON.",
                hint="Select fewer or shorter columns, or download the result as CSV or Parquet.",
                limit="bytes",
            )
        rows += [[json_value(v) for v in row] for row in Result(info, [piece]).iter_rows(True)]
    return rows


def _first_batches(result: Result, limit: int) -> Iterator[Any]:
    for batch in result.batches():
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return


def first_page(result: Result, limit: int) -> RowPage:
    """Return the first rows of a result as JSON; fewer if they are large."""
    from etude.entities import RowPage

    rows = take_page(result.info, _first_batches(result, limit))
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


def to_json(result: Result) -> dict[str, Any]:
    """Return a small result as JSON, as in the API."""
    return json.loads("".join(iter_json(result)))  # type: ignore[no-any-return]


def iter_json(result: Result) -> Iterator[str]:
    """Yield a result as pieces of one JSON object, as `--format json` writes it, with few rows in memory at a time."""
    columns = [{"name": c.name, "type": c.type} for c in result.columns]
    head = json.dumps({"run_id": result.run_id, "columns": columns, "rows": []}, ensure_ascii=False)
    yield head.removesuffix("]}")
    rows = result.iter_rows(True)
    between = ""
    while chunk := [[json_value(v) for v in row] for row in itertools.islice(rows, JSON_ROWS)]:
        yield between + json.dumps(chunk, ensure_ascii=False)[1:-1]
        between = ", "
    end = {"row_count": result.row_count, "truncated": result.truncated, "elapsed_ms": round(result.elapsed_ms, 3)}
    yield "], " + json.dumps(end)[1:]
