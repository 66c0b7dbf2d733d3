"""Tables of other libraries as Arrow: DataFrames, Arrow tables, results, rows and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etude.errors import Invalid
from etude.spool import spool_to_parquet

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_KEPT = frozenset({"arrow.uuid", "arrow.json", "pandas.interval"})
"""Extension types whose values mean the same without the extension."""


def check_arrow_table_name(name: object) -> str:
    """Return the name of a table to register; raise `Invalid` if a query would have to quote it."""
    if not isinstance(name, str) or not _TABLE.fullmatch(name):
        raise Invalid(f"`{str(name)[:80]}` cannot name a table.", hint="Use letters, digits and `_`, no digit first.")
    return name


def arrow_table_to_batches(data: Any, name: str) -> tuple[Any, Iterable[Any]]:
    """Return a table of another library as an Arrow schema and batches."""
    import pyarrow as pa

    try:
        if isinstance(data, pa.RecordBatchReader):
            _check_types(data.schema, name)
            return data.schema, data
        table = _to_table(data)
        _check_types(table.schema, name)
        return table.schema, table.to_batches()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(
            f"`{name}` cannot be registered: {' '.join(str(error).split())[:300]}",
            hint="Register a DataFrame, an Arrow table, a result, a list of dicts or a dict of columns.",
        ) from None


def _check_types(schema: Any, table: str) -> None:
    """Refuse columns that would become plain numbers, because Parquet has no type for their values."""
    for field in schema:
        found = _lost_type(field.type)
        if found:
            column = f"{table}['{field.name}']"
            kind, instead = f"values of the type `{found}`", f"{column}.astype(str)"
            if found == "duration":
                kind, instead = "durations", f"{column}.dt.total_seconds()"
            raise Invalid(
                f"`{table}` cannot be registered: the column `{field.name}` holds {kind}, which would become numbers "
                "without a unit.",
                hint=f"Convert it first, such as with `{instead}`.",
            )


def _lost_type(arrow: Any) -> str:
    """Return the name of the type, or of one inside it, that Parquet would not keep; empty if there is none."""
    import pyarrow as pa

    if pa.types.is_duration(arrow):
        return "duration"
    if isinstance(arrow, pa.BaseExtensionType):
        return "" if arrow.extension_name in _KEPT else str(arrow.extension_name)
    inner = (arrow.field(i).type for i in range(arrow.num_fields))
    return next(filter(None, map(_lost_type, inner)), "")


def _to_table(data: Any) -> Any:
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "index"):
        frame = data if hasattr(data, "columns") else data.to_frame()
        # Arrow has no periods: it would keep the number of months since 1970.
        periods = {name: str for name, kind in frame.dtypes.items() if type(kind).__name__ == "PeriodDtype"}
        frame = frame.astype(periods) if periods else frame
        numbered = type(frame.index).__name__ == "RangeIndex" and frame.index.name is None
        return pa.Table.from_pandas(frame, preserve_index=not numbered)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if isinstance(data, list) and data and all(isinstance(row, Mapping) for row in data):
        # Not all rows need to have all columns; Arrow alone would take those of the first row.
        names = dict.fromkeys(name for row in data for name in row)
        return pa.table({str(name): [row.get(name) for row in data] for name in names})
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    raise TypeError(f"it is a {type(data).__name__}")


def arrow_table_to_parquet_pieces(data: Any, name: str, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield a table as pieces of a Parquet file, each with whether more follow."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    spool_to_parquet(sink, *arrow_table_to_batches(data, name))
    content = memoryview(sink.getvalue())
    for start in range(0, len(content), size):
        yield bytes(content[start : start + size]), start + size < len(content)
