"""Values on a number axis: numbers as they are, dates and times as seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from etude.catalog.model import ColumnProfile, Scalar, profile_datetime, profile_number


def quantile_axis(column: ColumnProfile) -> list[float]:
    """Return the quantiles as numbers, dates as seconds; empty if they are incomplete or masked."""
    if column.masked or len(column.quantiles) != 21:
        return []
    positions = [axis_position(v) for v in column.quantiles]
    return sorted(p for p in positions if p is not None) if None not in positions else []


def axis_position(value: Scalar) -> float | None:
    """Return a number, or a date or time in seconds; None for any other value."""
    found = profile_number(value)
    if found is not None:
        return found
    when = profile_datetime(value)
    return axis_seconds(when) if when is not None else None


def axis_seconds(when: datetime) -> float:
    """Return the seconds since 1970; a time without a zone counts as UTC."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
