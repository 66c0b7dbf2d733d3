"""Correct an engine's estimate of what a query reads, with the sizes that a profile counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.sources.base import Json

WHOLE = frozenset({"sqlite"})
"""Kinds of sources whose engine has no statistics: each table of a query counts as read once, in full."""


@dataclass(frozen=True)
class Size:
    """The counted rows and bytes of a table."""

    rows: int
    bytes: int | None = None


def correct_cost_estimate(estimate: Json, kind: str, tables: Sequence[str], sizes: Mapping[str, Size]) -> Json:
    """Return the estimate corrected by the sizes of the tables; unchanged if one of them is not known.

    An engine with a planner knows better which part of a table it reads, but its number of rows may be far off. So
    the rows are computed from the bytes it will read, with the counted rows per byte.
    """
    known = [sizes[table] for table in tables if table in sizes]
    if not known or len(known) < len(tables) or estimate.get("scan_rows") == 0:
        return estimate
    rows = sum(size.rows for size in known)
    whole = sum(size.bytes or 0 for size in known) if all(size.bytes is not None for size in known) else None
    planned, scanned = estimate.get("scan_rows"), estimate.get("scan_bytes")
    if kind in WHOLE or planned is None:
        return {**estimate, "scan_rows": rows, "scan_bytes": scanned if whole is None else whole}
    if scanned is None:
        return {**estimate, "scan_bytes": None if whole is None or not rows else planned * whole // rows}
    held = scanned * rows // whole if whole else 0
    return {**estimate, "scan_rows": max(planned, held)}
