"""Pages of lists that are ordered by time, newest first, and the cursors between them."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from etude.errors import Invalid
from etude.store.stored_time import store_time

T = TypeVar("T")

LONGEST_CURSOR = 1000
"""Characters of a cursor: it holds the name of a column, a time and an id."""
ALL = 1 << 31
"""The limit of a list without one: more rows than any list has."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a list; `next` is the cursor of the next page, None at the end."""

    items: list[T]
    next: str | None


def store_row_limit(limit: int | None) -> int:
    """Return how many rows to read: all if no limit is given, but no more than a database can count."""
    if limit is None:
        return ALL
    if limit < 1:
        raise Invalid(f"A limit must be at least 1, not {limit}.")
    return min(limit, ALL)


def make_store_cursor(by: str, at: datetime, row_id: str) -> str:
    """Return the cursor of the page after this row, in a list ordered by the column `by`."""
    return base64.urlsafe_b64encode(json.dumps([by, at.isoformat(), row_id]).encode()).decode()


def read_store_cursor(by: str, cursor: str) -> tuple[datetime, str]:
    """Return the time and the id that a cursor of a list ordered by `by` holds."""
    try:
        if len(cursor) > LONGEST_CURSOR:
            raise ValueError(cursor[:80])
        kind, at, row_id = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
        if kind == by and isinstance(row_id, str):
            return store_time(datetime.fromisoformat(at)), row_id
    except (binascii.Error, ValueError, TypeError, RecursionError):
        pass
    raise Invalid(f"`{cursor[:80]}` is not a cursor of this list.", hint="Pass `next` of the page before.")
