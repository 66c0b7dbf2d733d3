"""Headers of two rows: names that span several columns, above a name for each of these columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


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
