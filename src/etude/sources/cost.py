"""What a query will read, told better than its engine can: by what a profile counted in the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.sources.base import Json

WHOLE = frozenset({"sqlite"})
"""Kinds of sources whose engine has no statistics, and counts every table that is read as read once."""


@dataclass(frozen=True)
class Size:
    """Rows and bytes of a table, as they were counted."""

    rows: int
    bytes: int | None = None


def correct_estimate(estimate: Json, kind: str, tables: Sequence[str], sizes: Mapping[str, Size]) -> Json:
    """The estimate with what is known of all tables that are read; as it is where one of them is not known.

    An engine with a planner knows better which part of a table it reads, but may believe anything of its rows: the
    bytes that it will read hold as many as they did when they were counted.
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
