"""Times as databases return them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from etude.errors import Invalid


@lru_cache(256)
def store_time(value: str | datetime) -> datetime:
    """Return a time as a database returns it; events that were appended together have the same time."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    # All times of a store are UTC, including those without a zone.
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise Invalid(f"The time `{moment}` is out of range.") from None
