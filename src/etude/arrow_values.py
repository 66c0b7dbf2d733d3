"""Values of Arrow columns as Python values: exact, and for people also where Python has no type for them."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from etude.cell_text import interval_cell_to_text


def arrow_to_python_values(array: Any, kind: str, shown: bool = False) -> list[Any]:
    """Return the cells of a column as the engine's own client would. `kind` is the engine's name of the type.

    With `shown`, they are as the engine prints them if Python's form says something else.
    """
    import pyarrow as pa

    types, arrow = pa.types, array.type
    if isinstance(arrow, pa.BaseExtensionType):
        return arrow_to_python_values(array.storage, kind, shown)
    if types.is_map(arrow):
        return _maps(array, kind, shown)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        # A list of fixed length is an ARRAY in DuckDB, which its client returns as a tuple.
        return _lists(
            array, arrow_to_python_values(array.flatten(), _parts(kind, 1)[0], shown), types.is_fixed_size_list(arrow)
        )
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


def is_converted_arrow_type(arrow: Any, kind: str) -> bool:
    """Return whether values of this type differ from what Arrow returns for them."""
    return _converter(arrow, kind, shown=True) is not None


def _converter(arrow: Any, kind: str, shown: bool) -> Callable[[Any], Any] | None:
    """Return a function from Arrow's value to the one of the engine's own client; None if they are equal."""
    import pyarrow as pa

    interval = interval_cell_to_text if shown else _timedelta
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
    keys = arrow_to_python_values(array.keys.slice(start, count), kinds[0], shown)
    values = arrow_to_python_values(array.items.slice(start, count), kinds[1], shown)
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
    columns = [arrow_to_python_values(c, k, shown) for c, k in zip(array.flatten(), _parts(kind, len(names)))]
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
