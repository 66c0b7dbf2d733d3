"""Rows at the top that hold no values: names that span several columns, and units below the names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from etude.sources.files.column_types import NULL_MARKERS

UNIT_LENGTH = 15
FEWEST_VALUES = 2
"""How many values below a text show that it is a unit."""
SHOWN_UNITS = 8


def has_spanning_header(
    top: Sequence[Any], names: Sequence[Any], below: Sequence[Sequence[Any]], is_value: Callable[[Any], bool]
) -> bool:
    """Return whether two rows are one header: the upper one has gaps that only the lower one fills.

    `is_value` tells a number or a date from a name. The lower row is of names, one of them above values alone.
    """
    if not below or any(is_value(cell) for cell in names if cell != "") or top[-1] == names[-1] == "":
        return False
    spanned = [at for at in range(1, len(top)) if top[at] == "" and names[at] != "" and any(c != "" for c in top[:at])]
    columns = [[row[at] for row in below if row[at] != ""] for at in spanned]
    return any(cells and all(map(is_value, cells)) for cells in columns)


def join_header_rows(top: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a name for each column: that of the upper row, which spans the empty cells after it, and its own."""
    joined, above = [], ""
    for upper, lower in zip(top, names):
        if upper or not lower:
            above = upper.strip()
        joined.append(f"{above} {lower.strip()}".strip())
    return joined


def describe_joined_header(names: Sequence[str]) -> str:
    """Return the note on a header that was joined from two rows; `names` are those made of both."""
    return f"The header has two rows; they were joined to names such as `{names[0]}`."


def is_units_row(row: Sequence[Sequence[Any]], below: Sequence[Sequence[Any]], is_value: Callable[[Any], bool]) -> bool:
    """Return whether a row, if there is one, holds units: short texts, two or more, each above nothing but values."""
    if not row or len(below) < FEWEST_VALUES:
        return False
    filled = [at for at, cell in enumerate(row[0]) if cell != ""]
    cells = [row[0][at] for at in filled]
    if len(filled) < 2 or not all(isinstance(cell, str) and len(cell) <= UNIT_LENGTH for cell in cells):
        return False
    if any(is_value(cell) or cell.strip().lower() in NULL_MARKERS for cell in cells):
        return False
    columns = ([line[at] for line in below if at < len(line) and line[at] != ""] for at in filled)
    return all(len(column) >= FEWEST_VALUES and all(map(is_value, column)) for column in columns)


def describe_units_row(units: Sequence[tuple[str, str]]) -> str:
    """Return the note on a row of units, given as names of columns and the texts below them."""
    shown = [f"`{name}` {unit!r}" for name, unit in units if unit]
    listed = ", ".join(shown[:SHOWN_UNITS]) + (", ..." if len(shown) > SHOWN_UNITS else "")
    return f"The row below the header holds units, or further names, and no values ({listed}); it was left out."
