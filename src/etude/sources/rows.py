"""Turn rows from database clients into Arrow record batches: text becomes times, intervals, booleans, lists."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from etude.errors import SourceError

BUFFER = 64 << 20
"""At most this many bytes of rows are read before the types of loose columns are decided."""
CHUNK_ROWS = 10_000
EXACT_FLOAT = 1 << 53
"""Floats represent whole numbers up to this size exactly."""

Row = Sequence[Any]


class RowShape(ABC):
    """How the values of one column become an Arrow array."""

    loose = False
    """Whether the type depends on the values, so that as many as possible are read first."""

    @abstractmethod
    def settle(self, values: Sequence[Any], complete: bool) -> Any:
        """Return the Arrow type for these values; `complete` means that no others follow."""

    @abstractmethod
    def array(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the values as an array of that type; raise ValueError if one does not fit."""


class PlainRowShape(RowShape):
    """Python values of one known type."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def settle(self, values: Sequence[Any], complete: bool) -> Any:
        """Return the known type."""
        return self._kind

    def array(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the values as they are."""
        return pa.array(values, kind)


class PrintedRowShape(RowShape):
    """Values as the engine prints them, read as `kind`, or as text if one cannot be (an infinite date, for example)."""

    loose = True

    def __init__(self, kind: Any, read: Callable[[Any, Any], Any] | None = None) -> None:
        self._kind = kind
        self._read = read or cast_row_text

    def settle(self, values: Sequence[Any], complete: bool) -> Any:
        """Return the wanted type if all values can be read as it, else text."""
        try:
            self._read(pa.array(values, pa.string()), self._kind)
        except (ValueError, NotImplementedError):
            return pa.string()
        return self._kind

    def array(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the values read as the settled type."""
        text = pa.array(values, pa.string())
        return text if pa.types.is_string(kind) else self._read(text, kind)


class SureRowShape(PrintedRowShape):
    """Values as the engine prints them, of a type that can hold every value of the engine's type."""

    loose = False

    def settle(self, values: Sequence[Any], complete: bool) -> Any:
        """Return the known type."""
        return self._kind


class DigitsRowShape(RowShape):
    """Decimal numbers as the engine prints them; `precision` None means that the values decide."""

    def __init__(self, precision: int | None = None, scale: int = 0) -> None:
        self._precision = precision
        self._scale = scale
        self.loose = precision is None

    def settle(self, values: Sequence[Any], complete: bool) -> Any:
        """Return a decimal that holds all values, or text if there are NaN, infinity or too many digits."""
        import pyarrow.compute as pc

        text = pa.array(values, pa.string())
        if pc.any(pc.match_substring_regex(text, "[^0-9.-]")).as_py():
            return pa.string()
        if self._precision is not None:
            return decimal_row_type(self._precision, self._scale)
        whole, scale = _digits(text)
        if not complete and whole + scale <= 38:
            # Later values may have more digits on either side of the point: leave room for both.
            scale += (38 - whole - scale) // 2
            return pa.decimal128(38, scale)
        return decimal_row_type(max(whole + scale, 1), scale)

    def array(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the values as decimals, none of them rounded."""
        text = pa.array(values, pa.string())
        return text if pa.types.is_string(kind) else cast_row_text(text, kind)


class Dynamic(RowShape):
    """Values of an engine that types values, not columns; `declared` is the column's declared type, if known."""

    loose = True

    def __init__(self, declared: str = "") -> None:
        self._declared = declared.upper()
        self.mixed: tuple[str, ...] = ()
        """The kinds of values of a column that only text can hold together; empty for other columns."""

    def settle(self, values: Sequence[Any], complete: bool) -> Any:
        """Return the narrowest type that keeps every value."""
        found = {type(v) for v in values} - {type(None)}
        if not found:
            return self._declared_type()
        if found == {int}:
            # In a column declared DECIMAL the next value may well have a fraction.
            fraction = not complete and self._declared and "INT" not in self._declared
            return pa.float64() if fraction and _exact(values) else pa.int64()
        if found == {bytes}:
            return pa.binary()
        if found <= {int, float} and _exact(values):
            return pa.float64()
        if len(found) > 1:
            self.mixed = tuple(noun for kind, noun in _NOUNS.items() if kind in found)
        return pa.string()

    def _declared_type(self) -> Any:
        if "INT" in self._declared:
            return pa.int64()
        if any(word in self._declared for word in ("REAL", "FLOA", "DOUB", "DEC", "NUM")):
            return pa.float64()
        return pa.binary() if "BLOB" in self._declared else pa.string()

    def array(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the values in the settled type, converted only if nothing is lost."""
        if self.mixed:
            return pa.array([None if v is None else _mixed_text(v) for v in values], kind)
        exact, convert = _LOSSLESS[str(kind)]
        if set(map(type, values)) <= {exact, type(None)}:
            return pa.array(values, kind)
        return pa.array([None if v is None else convert(v) for v in values], kind)


_NOUNS: dict[type, str] = {int: "integers", float: "floats", str: "texts", bytes: "blobs"}


def _mixed_text(value: Any) -> str:
    """Return a value as text; a blob as SQLite writes it in SQL, because it may not be text at all."""
    return f"X'{value.hex().upper()}'" if isinstance(value, bytes) else str(value)


def _exact(values: Iterable[Any]) -> bool:
    return all(abs(v) <= EXACT_FLOAT for v in values if type(v) is int)


def _to_int(value: Any) -> int:
    if isinstance(value, (int, float)) and value == int(value):
        return int(value)
    raise ValueError(value)


def _to_float(value: Any) -> float:
    if isinstance(value, (int, float)) and _exact([value]):
        return float(value)
    raise ValueError(value)


def _to_text(value: Any) -> str:
    if isinstance(value, bytes):
        raise ValueError(value)
    return str(value)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ValueError(value)


_LOSSLESS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "int64": (int, _to_int),
    "double": (float, _to_float),
    "string": (str, _to_text),
    "binary": (bytes, _to_bytes),
}


def decimal_row_type(precision: int, scale: int) -> Any:
    """Return the smallest Arrow decimal of that size; text beyond 76 digits, the limit of Arrow."""
    precision = max(precision, scale)
    if precision <= 38:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale) if precision <= 76 else pa.string()


def _digits(text: Any) -> tuple[int, int]:
    """Return the most digits before and after the point."""
    import pyarrow.compute as pc

    plain = pc.replace_substring(text, "-", "")
    length, point = pc.utf8_length(plain), pc.find_substring(plain, ".")
    has_point = pc.greater_equal(point, 0)
    whole = pc.max(pc.if_else(has_point, point, length)).as_py() or 0
    scale = pc.max(pc.if_else(has_point, pc.subtract(pc.subtract(length, point), 1), 0)).as_py() or 0
    return whole, scale


def cast_row_text(text: Any, kind: Any) -> Any:
    """Parse text as a type with Arrow's own parser."""
    return text.cast(kind)


def read_row_time(text: Any, kind: Any) -> Any:
    """Parse times of day, which Arrow reads only as part of a timestamp."""
    import pyarrow.compute as pc

    stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01"), text, " ")
    return stamps.cast(pa.timestamp("us")).cast(kind)


def read_row_bool(text: Any, kind: Any) -> Any:
    """Parse booleans printed as `t` and `f`."""
    import pyarrow.compute as pc

    if pc.any(pc.invert(pc.is_in(text, pa.array(["t", "f", None])))).as_py():
        raise ValueError("not a boolean")
    return pc.equal(text, "t")


_OFFSET_SECONDS = re.compile(r"^(.*)([+-])(\d\d):(\d\d):(\d\d)$")


def read_row_instant(text: Any, kind: Any) -> Any:
    """Parse timestamps with an offset; old local mean times have seconds in it, which Arrow does not read."""
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring_regex(text, r"[+-]\d\d:\d\d:\d\d$")).as_py():
        return text.cast(kind)
    micros = [None if t is None else _instant(t) for t in text.to_pylist()]
    return pa.array(micros, pa.int64()).cast(kind)


def _instant(text: str) -> int:
    found = _OFFSET_SECONDS.match(text)
    if found is None:
        return int(pa.scalar(text).cast(pa.timestamp("us", "UTC")).value)
    stamp, sign, hours, minutes, seconds = found.groups()
    offset = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * (1 if sign == "+" else -1)
    return int(pa.scalar(stamp).cast(pa.timestamp("us")).value) - offset * 1_000_000


_INTERVAL = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-])?(\d+):(\d\d):(\d\d(?:\.\d+)?))?"
)


def read_row_interval(text: Any, kind: Any) -> Any:
    """Parse intervals as Postgres prints them into months, days and nanoseconds."""
    return pa.array([None if t is None else _interval(t) for t in text.to_pylist()], kind)


def _interval(text: str) -> Any:
    found = _INTERVAL.fullmatch(text)
    if found is None or not text:
        raise ValueError(text)
    years, months, days, sign, hours, minutes, seconds = found.groups()
    whole, _, fraction = (seconds or "0").partition(".")
    nanos = (int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(whole)) * 10**9
    nanos += int((fraction + "0" * 9)[:9]) if fraction else 0
    return pa.MonthDayNano([int(years or 0) * 12 + int(months or 0), int(days or 0), -nanos if sign == "-" else nanos])


_ARRAY_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}\\]+)', re.DOTALL)


def read_row_list(read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a parser of one-dimensional arrays as Postgres prints them, given the parser of their items."""

    def read_items(text: Any, kind: Any) -> Any:
        lists = [None if t is None else _items(t) for t in text.to_pylist()]
        items = pa.array(list(chain.from_iterable(x for x in lists if x is not None)), pa.string())
        sizes, total = [], 0
        for each in lists:
            sizes.append(None if each is None else total)
            total += 0 if each is None else len(each)
        offsets = pa.array([*sizes, total], pa.int32())
        return pa.ListArray.from_arrays(offsets, read(items, kind.value_type)).cast(kind)

    return read_items


def _items(text: str) -> list[str | None]:
    inner = text[1:-1]
    if text[:1] != "{" or ("{" in inner and '"' not in inner):
        raise ValueError(text)
    if not inner:
        return []
    if '"' not in inner and "\\" not in inner:
        return [None if item == "NULL" else item for item in inner.split(",")]
    items: list[str | None] = []
    at = 0
    while at <= len(inner):
        found = _ARRAY_ITEM.match(inner, at)
        if found is None or inner[found.end() : found.end() + 1] not in ("", ","):
            raise ValueError(text)
        quoted, bare = found.groups()
        items.append(re.sub(r"\\(.)", r"\1", quoted) if bare is None else None if bare == "NULL" else bare)
        at = found.end() + 1
    return items


@dataclass(frozen=True)
class RowColumn:
    """A column of a result: its name, and how its values become an array."""

    name: str
    shape: RowShape


def to_batches(chunks: Iterable[Sequence[Row]], columns: Sequence[RowColumn]) -> Iterator[Any]:
    """Yield the rows as record batches, at least one; `BUFFER` and the size of a chunk bound the memory."""
    source = iter(chunks)
    first, complete = _look_ahead(source, any(c.shape.loose for c in columns))
    values = [[row[i] for chunk in first for row in chunk] for i in range(len(columns))]
    kinds = [c.shape.settle(v, complete) for c, v in zip(columns, values)]
    del values
    schema = pa.schema([pa.field(c.name, k) for c, k in zip(columns, kinds)])
    for chunk in chain(_drain(first) or [[]], source):
        yield _batch(chunk, columns, schema)


def _drain(chunks: list[Sequence[Row]]) -> Iterator[Sequence[Row]] | None:
    """Return the chunks one by one, and drop each from the list."""
    if not chunks:
        return None
    chunks.reverse()
    return (chunks.pop() for _ in range(len(chunks)))


def _look_ahead(source: Iterator[Sequence[Row]], loose: bool) -> tuple[list[Sequence[Row]], bool]:
    first: list[Sequence[Row]] = []
    size = 0
    for chunk in source:
        if not chunk:
            continue
        first.append(chunk)
        size += _size(chunk)
        if not loose or size >= BUFFER:
            return first, False
    return first, True


def _size(chunk: Sequence[Row]) -> int:
    """Estimate the bytes of a chunk's objects from a sample of its rows."""
    sample = chunk[:: max(len(chunk) // 50, 1)]
    return sum(sys.getsizeof(row) + sum(map(sys.getsizeof, row)) for row in sample) * len(chunk) // len(sample)


def _batch(chunk: Sequence[Row], columns: Sequence[RowColumn], schema: Any) -> Any:
    by_column: Iterable[Any] = zip(*chunk) if chunk else [()] * len(columns)
    arrays = []
    for column, field, values in zip(columns, schema, by_column):
        try:
            arrays.append(column.shape.array(values, field.type))
        except (ValueError, TypeError, OverflowError, NotImplementedError):
            raise _misfit(column, field.type, values) from None
    return pa.record_batch(arrays, schema=schema)


def _misfit(column: RowColumn, kind: Any, values: Sequence[Any]) -> SourceError:
    culprit = next((v for v in values if not _fits(column.shape, v, kind)), None)
    shown = repr(culprit) if len(repr(culprit)) <= 60 else repr(culprit)[:57] + "..."
    return SourceError(
        f"Column `{column.name}` holds {shown}, which does not fit `{kind}`, the type of the rows before it.",
        hint=f"CAST the column `{column.name}` to one type in the query, such as text.",
        column_name=column.name,
    )


def _fits(shape: RowShape, value: Any, kind: Any) -> bool:
    try:
        shape.array([value], kind)
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        return False
    return True
