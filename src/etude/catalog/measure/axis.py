"""Values on a number axis: numbers as they are, dates and times as seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from etude.catalog.model import ColumnProfile, Scalar, moment, number


def quantile_axis(column: ColumnProfile) -> list[float]:
    """Return the quantiles as numbers, dates as seconds; empty if they are incomplete or masked."""
    if column.masked or len(column.quantiles) != 21:
        return []
    positions = [position(v) for v in column.quantiles]
    return sorted(p for p in positions if p is not None) if None not in positions else []


def position(value: Scalar) -> float | None:
    """Return a number, or a date or time in seconds; None for any other value."""
    found = number(value)
    if found is not None:
        return found
    when = moment(value)
    return epoch(when) if when is not None else None


def epoch(when: datetime) -> float:
    """Return the seconds since 1970; a time without a zone counts as UTC."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
