"""A change between two profiles: its kind, its score, its sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from etude.catalog.model import ColumnProfile, Provenance, Scalar, profile_datetime, profile_number
from etude.entities import Entity

Kind = Literal[
    "table-added", "table-removed", "table-renamed", "table-emptied", "table-failed", "volume", "late", "rewound",
    "key-broken", "key-changed", "orphans", "column-added", "column-removed", "column-renamed", "columns-swapped",
    "type", "nullable", "nulls", "emptied", "filled", "constant", "duplicates", "scale", "sign", "shift", "spread",
    "outliers", "precision", "range", "negative", "nan", "time-shift", "future", "mix", "new-value", "vanished-value",
    "spelling", "spaces", "spike", "cardinality", "empty-text", "length", "format", "pii",
]  # fmt: skip
Severity = Literal["high", "medium", "low"]
Status = Literal["new", "open", "known", "recovered"]
"""`new` since the last run, `open` since an earlier one, `known` if acknowledged, `recovered` in this run."""

# The score of each kind of change, from its weakest to its strongest form.
WEIGHTS: dict[str, tuple[int, int]] = {
    "table-removed": (95, 95), "table-emptied": (95, 95), "table-failed": (90, 90), "key-broken": (88, 95),
    "column-removed": (85, 85), "emptied": (85, 85), "scale": (80, 90), "sign": (86, 86), "columns-swapped": (86, 86),
    "orphans": (72, 90), "late": (70, 88), "duplicates": (60, 80), "rewound": (72, 84), "constant": (72, 80),
    "time-shift": (78, 78), "table-renamed": (76, 76), "column-renamed": (74, 74), "type": (35, 80),
    "volume": (36, 88), "nulls": (40, 82), "format": (50, 78), "pii": (70, 70), "spelling": (50, 68),
    "spaces": (50, 68), "nan": (50, 72), "negative": (52, 74), "future": (60, 66), "spike": (46, 74),
    "precision": (62, 62), "empty-text": (45, 74), "range": (46, 64), "shift": (40, 76), "spread": (38, 66),
    "outliers": (46, 76), "mix": (38, 70), "key-changed": (60, 60), "new-value": (42, 62), "vanished-value": (40, 58),
    "cardinality": (38, 62), "length": (34, 58), "table-added": (32, 32), "column-added": (32, 32), "filled": (28, 28),
    "nullable": (18, 24),
}  # fmt: skip
SMALL = 0.05
"""A shift below this share of the rows is not reported, no matter how certain it is."""
SPACE = 60


class Acknowledgement(Entity):
    """Somebody knows of a change, and why it is as it is."""

    by: str
    why: str
    at: datetime
    since: datetime | None = None
    """When the change was first found: the acknowledgement does not cover a later occurrence."""
    earlier: tuple[Acknowledgement, ...] = ()
    """Acknowledgements of the same occurrence before this one, the newest first."""


class Change(Entity):
    """One difference between two runs, with a sentence and the values before and after."""

    kind: Kind
    table: str
    column: str | None = None
    before: Scalar = None
    after: Scalar = None
    score: float
    """Importance, 0 to 100."""
    severity: Severity
    text: str
    """A sentence with names and values from the data: escape it before showing it."""
    status: Status = "new"
    since: datetime | None = None
    """The time of the run that found it first."""
    acknowledged: Acknowledgement | None = None

    @property
    def name(self) -> str:
        """The name by which people refer to the change, such as `orders.amount:scale`."""
        return f"{self.table}.{self.column}:{self.kind}" if self.column else f"{self.table}:{self.kind}"

    @property
    def pending(self) -> bool:
        """Whether somebody should look at it: it is new or still open."""
        return self.status in ("new", "open")


@dataclass(frozen=True)
class ChangePair:
    """A column before and after, and its context for the checks."""

    table: str
    before: ColumnProfile
    after: ColumnProfile
    needed: float
    """The evidence a check must reach (see `significance`)."""
    role: Literal["key", "reference", ""] = ""
    made: tuple[datetime | None, datetime | None] = (None, None)

    def change(
        self, kind: Kind, text: str, strength: float = 1.0, before: Scalar = None, after: Scalar = None
    ) -> Change:
        """Make a change of this column."""
        strength += 0.15 if self.role else 0.0
        return make_change(kind, self.table, text, strength, self.after.name, before, after)

    def values(self, side: ColumnProfile, group: Provenance | None = None) -> int:
        """Return the number of values behind a statistic, without nulls; of the sample if it was sampled."""
        filled = (side.rows or 0) - (side.nulls or 0)
        return min(filled, group.rows) if group is not None and group.rows is not None else filled

    @property
    def readable(self) -> bool:
        """Whether values may be compared and quoted, because they are not masked."""
        return not (self.before.masked or self.after.masked)


def make_change(
    kind: Kind,
    table: str,
    text: str,
    strength: float = 1.0,
    column: str | None = None,
    before: Scalar = None,
    after: Scalar = None,
) -> Change:
    """Make a change; a strength from 0 to 1 picks its score in the range of its kind."""
    low, high = WEIGHTS[kind]
    score = round(low + (high - low) * min(1.0, max(0.0, strength)), 1)
    severity: Severity = "high" if score >= 70 else "medium" if score >= 45 else "low"
    return Change(
        kind=kind, table=table, column=column, before=before, after=after, score=score, severity=severity, text=text
    )


def change_share(share: float) -> str:
    """Format a share for a sentence; only exactly 0 and 1 show as 0% and 100%."""
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{share:.1%}" if 0.001 <= share < 0.9995 else ("under 0.1%" if share < 0.5 else "nearly 100%")


def change_value(value: Scalar) -> str:
    """Format a value for a sentence: a number in its shortest form, text in quotes and shortened."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return str(value)
        whole = abs(value) >= 10_000 or value == int(value)
        return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:,.4g}"
    if profile_datetime(value) is not None or profile_number(value) is not None:
        return value
    return f"“{value[:SPACE]}…”" if len(value) > SPACE else f"“{value}”"
