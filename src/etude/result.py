"""A result: columns and rows, held in memory while small and in a Parquet file when not."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from etude.entities import ResultColumn, ResultInfo
from etude.errors import Unavailable


class Result:
    """What a query returned. `truncated` says that a limit cut it; `notes` say what else to know."""

    def __init__(
        self,
        info: ResultInfo,
        batches: list[Any] | None,
        path: Path | None = None,
        *,
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
        self._batches = batches
        self._path = path

    def batches(self) -> Iterator[Any]:
        """The Arrow record batches, one after another."""
        if self._batches is not None:
            yield from self._batches
            return
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path) as file:
            yield from file.iter_batches(1 << 16)

    def arrow(self) -> Any:
        """The whole result as a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.batches()))

    def df(self) -> Any:
        """The whole result as a pandas DataFrame."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise Unavailable("pandas is not installed.", hint="pip install 'etude[ibis]'") from None
        return self.arrow().to_pandas()

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python values, as the engine's own client would give them."""
        return list(self.iter_rows())

    def iter_rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows one by one."""
        kinds = [c.type for c in self.columns]
        for batch in self.batches():
            columns = [_values(batch.column(i), kind) for i, kind in enumerate(kinds)]
            yield from zip(*columns, strict=True)

    def __repr__(self) -> str:
        cut = ", truncated" if self.truncated else ""
        names = ", ".join(f"{c.name} {c.type}" for c in self.columns)
        return f"<Result {self.row_count} rows{cut}: {names}>"


def describe(schema: Any, types: list[str]) -> tuple[ResultColumn, ...]:
    """The columns of a schema, with the engine's own type names where it gave them."""
    names = types or [str(f.type) for f in schema]
    return tuple(ResultColumn(name=f.name, type=t) for f, t in zip(schema, names, strict=True))


def _values(array: Any, kind: str) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    try:
        values = array.to_pylist()
    except (OverflowError, ValueError):
        # Dates outside Python's calendar exist in databases; as text they are at least true.
        return list(array.cast(pa.string()).to_pylist())
    convert = _converter(array.type, kind)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _converter(arrow_type: Any, kind: str) -> Callable[[Any], Any] | None:
    """How a value as Arrow gives it becomes the one the engine's own client gives; None: it is that already."""
    import pyarrow as pa

    by_kind: dict[str, Callable[[Any], Any]] = {
        "HUGEINT": int,
        "UHUGEINT": int,
        "UUID": uuid.UUID,
        "TIME WITH TIME ZONE": _time_with_zone,
    }
    if kind in by_kind:
        return by_kind[kind]
    if pa.types.is_interval(arrow_type):
        return _timedelta
    if kind == "INTERVAL" and pa.types.is_struct(arrow_type):
        return lambda v: _timedelta((v["months"], v["days"], v["nanoseconds"]))
    if kind.startswith("TUPLE("):
        return lambda v: tuple(v.values())
    return _nested(arrow_type)


def _nested(arrow_type: Any) -> Callable[[Any], Any] | None:
    import pyarrow as pa

    if pa.types.is_map(arrow_type):
        return dict
    if pa.types.is_fixed_size_list(arrow_type) or pa.types.is_list(arrow_type):
        inner = _nested(arrow_type.value_type)
        kind: type = tuple if pa.types.is_fixed_size_list(arrow_type) else list
        if inner is None:
            return tuple if kind is tuple else None
        return lambda v: kind(None if x is None else inner(x) for x in v)
    if pa.types.is_struct(arrow_type):
        fields = {f.name: c for f in arrow_type if (c := _nested(f.type)) is not None}
        if fields:
            return lambda v: {k: fields[k](x) if k in fields and x is not None else x for k, x in v.items()}
    return None


def _timedelta(value: Any) -> Any:
    months, days, nanoseconds = value
    return dt.timedelta(days=months * 30 + days, microseconds=nanoseconds / 1000)


def _time_with_zone(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return dt.time.fromisoformat(text)
    return text


def json_value(value: Any) -> Any:
    """A cell as JSON can carry it: dates as ISO text, bytes as hex, numbers exact or as text where JSON has none."""
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
            return value.total_seconds()
        case bytes():
            return value.hex()
        case dict():
            return {str(k): json_value(v) for k, v in value.items()}
        case list() | tuple():
            return [json_value(v) for v in value]
        case _:
            return str(value)


def _exact(value: Decimal) -> Any:
    if not value.is_finite():
        return str(value)
    as_float = float(value)
    # A reader of JSON makes a float of it: that is right when the float's shortest form is the decimal itself.
    return as_float if Decimal(repr(as_float)) == value else str(value)


def to_json(result: Result) -> dict[str, Any]:
    """The JSON form of a result, as the API and `--format json` give it."""
    return {
        "run_id": result.run_id,
        "columns": [{"name": c.name, "type": c.type} for c in result.columns],
        "rows": [[json_value(v) for v in row] for row in result.iter_rows()],
        "row_count": result.row_count,
        "truncated": result.truncated,
        "elapsed_ms": round(result.elapsed_ms, 3),
    }
