"""Columns as text for large files: each column at once, which takes a fraction of the time of one cell after another.

The texts are those of `cell_text.py`; a property test compares both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

from etude.arrow_values import python_values
from etude.cell_text import csv_field, json_value, text_value


def csv_lines(
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
    values = python_values(array, kind, shown=True)
    plain = {type(v) for v in values} - {type(None)}
    if plain == {int}:
        return ["" if v is None else str(v) for v in values]
    if plain == {float} and escape is None:
        return ["" if v is None else repr(v) for v in values]
    if plain == {str}:
        return ["" if v is None else csv_field(v, delimiter, escape) for v in values]
    return ["" if v is None else csv_field(text_value(v), delimiter, escape) for v in values]


def text_lines(batch: Any, kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a record batch as texts, for Markdown."""
    columns = [[text_value(v) for v in python_values(batch.column(i), kind, True)] for i, kind in enumerate(kinds)]
    yield from zip(*columns, strict=True)


def json_arrays(batch: Any, kinds: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a record batch as JSON arrays."""
    columns = [_json_texts(batch.column(i), kind) for i, kind in enumerate(kinds)]
    for row in zip(*columns, strict=True):
        yield f"[{', '.join(row)}]"


def json_objects(batch: Any, names: Sequence[str], kinds: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a record batch as JSON objects."""
    keys = [f"{encode_basestring(name)}: " for name in names]
    columns = [[key + text for text in _json_texts(batch.column(i), kinds[i])] for i, key in enumerate(keys)]
    for row in zip(*columns, strict=True):
        yield "{" + ", ".join(row) + "}"


def _json_texts(array: Any, kind: str) -> list[str]:
    values = python_values(array, kind, shown=True)
    plain = {type(v) for v in values} - {type(None)}
    if plain == {int}:
        return ["null" if v is None else str(v) for v in values]
    if plain == {float}:
        return ["null" if v is None else repr(v) if math.isfinite(v) else f'"{v}"' for v in values]
    if plain == {str}:
        return ["null" if v is None else encode_basestring(v) for v in values]
    return [json.dumps(json_value(v), ensure_ascii=False) for v in values]
