"""Results as pandas DataFrames: plain types if they are exact, else nullable types or objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_INT64 = 1 << 63


def to_data_frame(table: Any, kinds: Sequence[str], values: Callable[[Any, str], list[Any]]) -> Any:
    """Return an Arrow table as a DataFrame; `kinds` are the engine's types, `values` gives cells as Python values.

    Integers and booleans with nulls become pandas' nullable types, which keep every digit, and dates become
    `datetime64`. Values that no array type of pandas holds stay Python objects.
    """
    import pandas

    made = {at: _series(column, kinds[at], values) for at, column in enumerate(table.columns)}
    frame = pandas.DataFrame(made, index=pandas.RangeIndex(table.num_rows), copy=False)
    frame.columns = pandas.Index(table.column_names, dtype=None if table.column_names else object)
    return frame


def _series(column: Any, kind: str, values: Callable[[Any, str], list[Any]]) -> Any:
    import pandas
    import pyarrow as pa

    types, arrow = pa.types, column.type
    if isinstance(arrow, pa.BaseExtensionType) or types.is_map(arrow) or types.is_time(arrow) or kind in _OBJECTS:
        return _objects(column, kind, values)
    if kind == "HUGEINT":
        return _whole_numbers(column, kind, values)
    if (types.is_integer(arrow) or types.is_boolean(arrow)) and column.null_count:
        return column.to_pandas(types_mapper=_nullable)
    if types.is_interval(arrow) or (kind == "INTERVAL" and types.is_struct(arrow)):
        return _intervals(column, kind, values)
    if types.is_date(arrow):
        try:
            return column.cast(pa.timestamp("us")).to_pandas()
        except pa.ArrowInvalid:
            return _objects(column, kind, values)  # infinity, or a date beyond the range of pandas
    if types.is_timestamp(arrow) and _is_endless(column):
        return _objects(column, kind, values)
    if types.is_null(arrow):
        return pandas.Series([None] * len(column), dtype=object)
    series = column.to_pandas()
    # The values of an enumeration have an order.
    return series.cat.as_ordered() if kind.startswith("ENUM(") and types.is_dictionary(arrow) else series


_OBJECTS = frozenset(("UUID", "TIME WITH TIME ZONE", "UHUGEINT", "STRUCT"))


def _nullable(arrow: Any) -> Any:
    """Return pandas' nullable type of the same width, which keeps integers exact beside nulls."""
    import pandas

    name = str(arrow)
    if name == "bool":
        return pandas.BooleanDtype()
    return pandas.api.types.pandas_dtype(name.replace("uint", "UInt") if name[0] == "u" else name.title())


def _objects(column: Any, kind: str, values: Callable[[Any, str], list[Any]]) -> Any:
    import pandas

    cells = [value for chunk in column.chunks for value in values(chunk, kind)]
    return pandas.Series(cells, dtype=object)


def _whole_numbers(column: Any, kind: str, values: Callable[[Any, str], list[Any]]) -> Any:
    """Sums of integers have 128 bits in DuckDB; nearly all fit into 64."""
    import pandas

    cells = [value for chunk in column.chunks for value in values(chunk, kind)]
    if all(value is None or -_INT64 <= value < _INT64 for value in cells):
        return pandas.Series(cells, dtype="Int64" if None in cells else "int64")
    return pandas.Series(cells, dtype=object)


def _intervals(column: Any, kind: str, values: Callable[[Any, str], list[Any]]) -> Any:
    """Days and times are a `timedelta64`; months have no fixed length, so these become pandas' `DateOffset`."""
    import datetime as dt

    import pandas

    parts = [value for chunk in column.chunks for value in chunk.to_pylist()]
    numbers = [tuple(p.values()) if isinstance(p, dict) else p for p in parts]
    cells = [value for chunk in column.chunks for value in values(chunk, kind)]
    if all(n is None or n[0] == 0 for n in numbers) and all(v is None or isinstance(v, dt.timedelta) for v in cells):
        return pandas.Series(cells, dtype="timedelta64[us]")
    offsets = [None if n is None else pandas.DateOffset(months=n[0], days=n[1], nanoseconds=n[2]) for n in numbers]
    return pandas.Series(offsets, dtype=object)


def _is_endless(column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pc.min_max(column.cast(pa.int64())).as_py()
    return bool(ends["max"] == _INT64 - 1 or ends["min"] == 1 - _INT64)
