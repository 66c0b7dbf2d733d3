"""Batches as lines of CSV, JSON and text for large files: each column at once, which is faster than cell by cell.

The texts are those of `cell_text.py`; a property test compares both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

from etude.arrow_values import arrow_to_python_values, is_converted_arrow_type
from etude.cell_text import cell_to_json, cell_to_text, csv_cell

YEAR_1, YEAR_9999 = -719_162, 2_932_896
"""The first and last day that has four digits for its year, in days since 1970."""


def columns_to_csv_lines(
    batch: Any, kinds: Sequence[str], delimiter: str = ",", escape: Callable[[str], str] | None = None
) -> Iterator[str]:
    """Yield the rows of a record batch as CSV, without line ends. `kinds` are the engine's names of the types."""
    columns = [_csv_fields(batch.column(i), kind, delimiter, escape) for i, kind in enumerate(kinds)]
    if len(columns) == 1:
        # A line without any character would be skipped by most readers.
        yield from (field or '""' for field in columns[0])
    else:
        yield from map(delimiter.join, zip(*columns, strict=True))


def _csv_fields(array: Any, kind: str, delimiter: str, escape: Callable[[str], str] | None) -> list[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if (texts := _as_texts(array, kind)) is not None:
        fields: list[str] = texts.fill_null("").to_pylist()
        if not pa.types.is_string(array.type):
            return fields
        # What may need quotes: more than `csv_cell` quotes, so that Arrow's expressions need not know all of Unicode.
        marked = pc.match_substring_regex(texts, f'["\\r\\n{delimiter}]|^[^!-~]|[^!-~]$|^$')
        marked = pc.or_kleene(marked, pc.invert(pc.match_substring_regex(texts, "^[0-9A-Za-z]"))) if escape else marked
        for place in pc.indices_nonzero(marked.fill_null(False)).to_pylist():
            fields[place] = csv_cell(fields[place], delimiter, escape)
        return fields
    values = arrow_to_python_values(array, kind, shown=True)
    if pa.types.is_float64(array.type):
        return ["" if v is None else repr(v) for v in values]
    return ["" if v is None else csv_cell(cell_to_text(v), delimiter, escape) for v in values]


def _as_texts(array: Any, kind: str) -> Any:
    """Return whole numbers, texts and dates as an array of texts; None for what Arrow writes in another way."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_converted_arrow_type(array.type, kind):
        return None
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_integer(array.type):
        return pc.cast(array, pa.string())
    if pa.types.is_date32(array.type):
        bounds = pc.min_max(pc.cast(array, pa.int32()))
        first, last = bounds["min"].as_py(), bounds["max"].as_py()
        return pc.cast(array, pa.string()) if first is None or (first >= YEAR_1 and last <= YEAR_9999) else None
    return None


def columns_to_text_lines(batch: Any, kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a record batch as texts, for Markdown."""
    columns = [
        [cell_to_text(v) for v in arrow_to_python_values(batch.column(i), kind, True)] for i, kind in enumerate(kinds)
    ]
    yield from zip(*columns, strict=True)


def columns_to_json_arrays(batch: Any, kinds: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a record batch as JSON arrays."""
    columns = [_json_texts(batch.column(i), kind) for i, kind in enumerate(kinds)]
    for row in zip(*columns, strict=True):
        yield f"[{', '.join(row)}]"


def columns_to_json_objects(batch: Any, names: Sequence[str], kinds: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a record batch as JSON objects."""
    keys = [f"{encode_basestring(name)}: " for name in names]
    columns = [[key + text for text in _json_texts(batch.column(i), kinds[i])] for i, key in enumerate(keys)]
    for row in zip(*columns, strict=True):
        yield "{" + ", ".join(row) + "}"


def _json_texts(array: Any, kind: str) -> list[str]:
    import pyarrow as pa

    if (texts := _as_texts(array, kind)) is not None:
        if pa.types.is_string(array.type):
            return ["null" if text is None else encode_basestring(text) for text in texts.to_pylist()]
        if pa.types.is_integer(array.type):
            return texts.fill_null("null").to_pylist()  # type: ignore[no-any-return]
        return ["null" if text is None else f'"{text}"' for text in texts.to_pylist()]
    values = arrow_to_python_values(array, kind, shown=True)
    if pa.types.is_float64(array.type):
        return ["null" if v is None else repr(v) if math.isfinite(v) else f'"{v}"' for v in values]
    return [json.dumps(cell_to_json(v), ensure_ascii=False) for v in values]
