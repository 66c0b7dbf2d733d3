"""Cells as text: for JSON, CSV, Markdown, spreadsheets and previews."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

SHOWN_CHARS = 40
"""How much of a cell a preview shows."""
CELL_CHARS = 4_000
"""How much of a cell an answer or a matched row shows."""


def escape_cell_formula(value: Any) -> Any:
    """Return a text that a spreadsheet would run as a formula with an apostrophe before it; other values unchanged."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value.strip(" ")):
        return value
    return f"'{value}"


# Spreadsheets skip blanks, control characters and invisible marks, and read fullwidth signs as plain ones.
_FORMULA = re.compile(r"[\t\r\n]|[\s\x00-\x20\x7f-\x9f\xad\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf|Infinity)")


def cell_to_json(value: Any) -> Any:
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
            return interval_cell_to_text(0, days, (micros - days * 86_400_000_000) * 1000)
        case bytes():
            return value.hex()
        case dict():
            return {str(k): cell_to_json(v) for k, v in value.items()}
        case list() | tuple():
            return [cell_to_json(v) for v in value]
        case _:
            return str(value)


def cut_cell_text(text: str, most: int, whole: str = "result") -> str:
    """Return a text that is shown: its first `most` characters, and a remark if the `whole` has more of it."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… (cut: it has {len(text):,} characters; the {whole} has all of them)"


def cut_json_cell(value: Any, whole: str = "result") -> Any:
    """Return a JSON value that is shown: a text, list or object of more than `CELL_CHARS` characters is cut."""
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False)
        return cut_cell_text(text, CELL_CHARS, whole) if len(text) > CELL_CHARS else value
    return cut_cell_text(value, CELL_CHARS, whole) if isinstance(value, str) else value


def cells_without_midnight(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column as dates if they are days or months stored as times: all of them at midnight."""
    present = [v for v in values if v is not None]
    if not present or not all(isinstance(v, dt.datetime) and v.time() == dt.time() for v in present):
        return values
    return [None if v is None else v.date() for v in values]


def cell_to_text(value: Any) -> str:
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
            return json.dumps(cell_to_json(value), ensure_ascii=False)
        case _:
            return str(cell_to_json(value))


def cells_to_csv_line(row: Iterable[Any], delimiter: str = ",", escape: Callable[[str], str] | None = None) -> str:
    """Return a row of CSV without its line end. An empty text is quoted, so that it differs from a null."""
    fields = ["" if value is None else csv_cell(cell_to_text(value), delimiter, escape) for value in row]
    # A line without any character would be skipped by most readers.
    return '""' if fields == [""] else delimiter.join(fields)


def csv_cell(text: str, delimiter: str = ",", escape: Callable[[str], str] | None = None) -> str:
    """Return a text as a field of CSV, in quotes if it needs them."""
    text = escape(text) if escape is not None else text
    return '"' + text.replace('"', '""') + '"' if _SPECIAL[delimiter](text) else text


_SPECIAL = {d: re.compile(rf'["\r\n{d}]|^\s|\s$|^$').search for d in (",", "\t")}
"""Finds what makes quotes necessary, by the delimiter."""


def _exact(value: Decimal) -> Any:
    if not value.is_finite():
        return str(value)
    if value.as_tuple().exponent == 0:
        return int(value)  # as other whole numbers, of any size: those of a column are written alike
    as_float = float(value)
    # JSON readers parse a float. That is exact if the float's shortest form equals the decimal.
    return as_float if Decimal(repr(as_float)) == value else str(value)


def interval_cell_to_text(months: int, days: int, nanoseconds: int) -> str:
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


def cell_to_preview_text(value: Any) -> str:
    """Return a cell in one short line; control characters are escaped, because they could drive a terminal."""
    text = "null" if value is None else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: SHOWN_CHARS + 1])
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
