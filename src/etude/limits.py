"""Changes to limits, budgets and session limits: an owner can change them, a caller can only lower them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from etude.entities import Entity

MOST_TEXT = 200_000
"""Characters of the longest question or query that a caller may send, and bytes of the parameters of a cell's query."""
Bounds = TypeVar("Bounds", bound=Entity)
"""`Limits`, `Budget` or `SessionLimits`, or a class of settings below one of them."""


def change_limits(limits: Bounds, changes: Mapping[str, Any]) -> Bounds:
    """Return the limits with some of them replaced by higher or lower ones.

    Raises `Invalid` that names the limit and the value.
    """
    kind = type(limits)
    try:
        return kind.model_validate(limits.model_dump() | dict(changes))
    except ValidationError as error:
        from etude.validation import explain_validation

        listed = f"Limits: {', '.join(kind.model_fields)}."
        raise explain_validation(
            error, "the limits", model=kind, name=lambda field: f"The limit `{field}`", hint=listed
        ) from None


def lower_limits(limits: Bounds, asked: Mapping[str, Any]) -> Bounds:
    """Return the limits lowered to those that a caller asked for. A caller can never raise them.

    For limits that allow zero, it means no limit, so asking for zero changes nothing. Raises `Invalid` as
    `change_limits` does.
    """
    if not asked:
        return limits
    wanted = change_limits(limits, asked)
    lowered = {name: _lower(getattr(limits, name), getattr(wanted, name)) for name in asked}
    return limits.model_copy(update=lowered)


def _lower(ours: float, theirs: float) -> float:
    # Not `min`: it would return a NaN that comes first.
    return theirs if theirs and (not ours or theirs < ours) else ours
