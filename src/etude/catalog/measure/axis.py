"""Values on an axis: numbers as they are, moments as seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from etude.catalog.model import ColumnProfile, Scalar, moment, number


def axis(column: ColumnProfile) -> list[float]:
    """The quantiles as numbers, dates as seconds; empty where they are not all there or masked."""
    if column.masked or len(column.quantiles) != 21:
        return []
    places = [place(v) for v in column.quantiles]
    return sorted(p for p in places if p is not None) if None not in places else []


def place(value: Scalar) -> float | None:
    """A number or a moment (in seconds) on an axis, or None."""
    found = number(value)
    if found is not None:
        return found
    when = moment(value)
    return epoch(when) if when is not None else None


def epoch(when: datetime) -> float:
    """A moment in seconds since 1970; one without a zone is taken as UTC."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
