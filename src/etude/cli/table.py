"""Tables for people: values with sensible digits, columns that fit the terminal, one value per line on request."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from etude.cell_text import cells_without_midnight
from etude.cli.printable import printable

CELL = 200
"""The most characters of a cell in a table."""
LEAST = 8
"""The fewest characters that a folded column keeps."""
LARGE = 10_000
"""A column without integers of this size has no separators: it may hold years."""
GAP = 3
"""Characters between two columns: ` │ `."""
_WORD = re.compile(
    r"(^|[_\W])(id|ids|key|code|no|nr|num|number|zip|plz|postcode|phone|year|isbn|ean|epoch|version|pid)($|[_\W\d])",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Key|Code|No|Nr|Year)$")


def table_cell_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def format_table_column(name: str, values: Sequence[Any]) -> list[str | None]:
    """Return the values of a column as people read them; None stays None.

    All floats of a column get the same number of decimals. If a column has large integers, all of its integers get
    separators, unless it looks like an identifier. Times that are all at midnight are dates.
    """
    values = cells_without_midnight(values)
    floats = [v for v in values if isinstance(v, float) and math.isfinite(v)]
    decimals = _decimals(floats)
    grouped = not is_identifier_table_column(name)
    large = any(isinstance(v, int) and not isinstance(v, bool) and abs(v) >= LARGE for v in values)
    return [None if v is None else printable(_show(v, decimals, grouped, large)) for v in values]


def is_identifier_table_column(name: str) -> bool:
    """Return whether a column of this name holds numbers that are not amounts: ids, codes, years."""
    if re.match(r"(sum|count|avg|mean|median)\s*\(", name, re.IGNORECASE):
        return False  # an amount, whatever it was computed from
    return bool(_WORD.search(name) or _CAMEL_ID.search(name))


def _show(value: Any, decimals: int, grouped: bool, large: bool = False) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value:,}" if grouped and large else str(value)
        case float():
            return format_table_float(value, decimals)
        case Decimal():
            return f"{value:,f}" if value.is_finite() and grouped else str(value)
        case dict() | list() | tuple():
            return _nested(value)
        case _:
            return f"{value}"


def format_table_float(value: float, decimals: int) -> str:
    """Return a float with separators and this many decimals; in scientific notation if these would hide its size."""
    if not math.isfinite(value):
        return str(value)
    if value and (abs(value) >= 1e15 or abs(value) < 0.5 * 10**-decimals):
        return f"{value:.4g}"
    if round(value, decimals).is_integer() and _exponent(value) < 0:
        # 99,999.99999 must not look like exactly 100,000.
        decimals = max(decimals, -_exponent(value))
    return f"{value:,.{decimals}f}"


def _decimals(values: Sequence[float]) -> int:
    """Return how many decimals show the values of a column: all that carry information, but no noise."""
    if not values:
        return 0
    # A float has 15 to 17 digits; those after the twelfth are mostly noise of the arithmetic.
    needed = max(-_exponent(v) for v in values)
    largest = max(abs(v) for v in values)
    if needed <= 0:
        return 1 if largest < 1e15 else 0
    if largest >= 1000:
        return 2
    most = 4 if largest >= 0.1 else 3 - math.floor(math.log10(largest)) if largest else 1
    return min(needed, most, 8)


def _exponent(value: float) -> int:
    digits = Decimal(f"{value:.12g}").normalize().as_tuple().exponent
    return digits if isinstance(digits, int) else 0


def _nested(value: Any) -> str:
    """Return a struct, map or list in the style of DuckDB, with short floats."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_inner(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(_inner, value)) + "]"


def _inner(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"'{value}'"
    return _show(value, _decimals([value]), False) if isinstance(value, float) else _show(value, 0, False)


def draw_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str | None]],
    right: Sequence[bool] = (),
    *,
    width: int | None = None,
    elide: bool = False,
    bold: bool = False,
) -> tuple[str, int]:
    """Return a table as text, and how many of its columns are hidden.

    Given a width, a table that is too wide folds its cells, or with `elide` leaves out its last columns.
    """
    shown = [[_cut(c, CELL) for c in row] for row in rows]
    heads = [printable(name) for name in names]
    widths = [
        max([table_cell_width(head), *(table_cell_width(_or_null(row[i])) for row in shown)])
        for i, head in enumerate(heads)
    ]
    hidden = 0
    if width is not None and elide:
        widths, hidden = _fit(widths, width)
    elif width is not None:
        widths = _shrink(widths, width)
    count = len(widths) - bool(hidden)
    sides = [i < len(right) and right[i] for i in range(count)]
    lines = _lines(heads[:count], widths[:count], sides, "┃", bold, hidden, elide)
    lines.append("╇".join("━" * (w + (i > 0) + (i < len(widths) - 1)) for i, w in enumerate(widths)))
    for row in shown:
        lines += _lines(row[:count], widths[:count], sides, "│", False, hidden, elide, dim=bold)
    return "\n".join(lines) + "\n", hidden


def _or_null(cell: str | None) -> str:
    return "null" if cell is None else cell


def _cut(cell: str | None, most: int) -> str | None:
    return cell if cell is None or len(cell) <= most else cell[: most - 1] + "…"


def _fit(widths: list[int], width: int) -> tuple[list[int], int]:
    """Return the widths of the first columns that fit, then of a column for those that do not, and their number."""
    total = sum(widths) + GAP * (len(widths) - 1)
    if total <= width:
        return widths, 0
    # A very wide column is cut before a whole column is left out.
    most = max(width // 3, 2 * LEAST)
    widths = [min(w, most) for w in widths]
    if sum(widths) + GAP * (len(widths) - 1) <= width:
        return widths, 0
    used, count = 1, 0
    while count < len(widths) and used + widths[count] + GAP <= width:
        used += widths[count] + GAP
        count += 1
    count = max(count, 1)
    return [*widths[:count], 1], len(widths) - count


def _shrink(widths: list[int], width: int) -> list[int]:
    """Take from the widest columns until the table fits, or no column can become narrower."""
    widths = list(widths)
    while sum(widths) + GAP * (len(widths) - 1) > width:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
    return widths


def _lines(
    cells: Sequence[str | None],
    widths: Sequence[int],
    sides: Sequence[bool],
    bar: str,
    bold: bool,
    hidden: int,
    clip: bool,
    dim: bool = False,
) -> list[str]:
    """Return one row as lines of text: several if a cell is folded."""
    folded = [
        [None] if cell is None else [_clip(cell, w)] if clip else _fold(cell, w) for cell, w in zip(cells, widths)
    ]
    lines = []
    for at in range(max(map(len, folded), default=1)):
        parts = []
        for cell, w, side in zip(folded, widths, sides):
            text = _or_null(cell[at]) if at < len(cell) else ""
            styled = f"\x1b[1m{text}\x1b[0m" if bold and text else text
            styled = f"\x1b[2m{text}\x1b[0m" if dim and at < len(cell) and cell[at] is None else styled
            room = " " * (w - table_cell_width(text))
            parts.append(room + styled if side else styled + room)
        lines.append(f" {bar} ".join([*parts, "…"] if hidden else parts))
    return lines


def _fold(text: str, width: int) -> list[str | None]:
    if table_cell_width(text) <= width:
        return [text]
    import textwrap

    return list(textwrap.wrap(text, width)) or [""]


def _clip(text: str, width: int) -> str:
    if table_cell_width(text) <= width:
        return text
    out, used = "", 1
    for char in text:
        used += _char_width(char)
        if used > width:
            break
        out += char
    return out + "…"


def draw_vertical_table(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> str:
    """Return each row as a block with one line for each column."""
    heads = [printable(name) for name in names]
    label = max(map(table_cell_width, heads), default=0)
    blocks = []
    for number, row in enumerate(rows, 1):
        lines = [f"─[ row {number:,} ]".ljust(max(label + GAP + 12, 24), "─")]
        for head, cell in zip(heads, row):
            lines.append(f"{head}{' ' * (label - table_cell_width(head))} │ {'null' if cell is None else cell}")
        blocks.append("\n".join(lines))
    return "\n".join(blocks) + ("\n" if blocks else "")


def format_table_row_count(count: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if count == 1 else f"{count:,} rows"
