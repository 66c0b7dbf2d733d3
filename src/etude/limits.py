"""Limits, budgets and limits of sessions: how their owner changes them, and how a caller lowers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from etude.entities import Entity

Bounds = TypeVar("Bounds", bound=Entity)
"""`Limits`, `Budget` or `SessionLimits`, or a class of settings below one of them."""


def change_limits(limits: Bounds, changes: Mapping[str, Any]) -> Bounds:
    """The limits with some of them replaced, up or down, for their owner.

    Raises `Invalid` that names the limit and the value.
    """
    kind = type(limits)
    try:
        return kind.model_validate(limits.model_dump() | dict(changes))
    except ValidationError as error:
        from etude.validation import explain

        listed = f"Limits: {', '.join(kind.model_fields)}."
        raise explain(error, "the limits", model=kind, name=lambda field: f"The limit `{field}`", hint=listed) from None


def lower_limits(limits: Bounds, asked: Mapping[str, Any]) -> Bounds:
    """The limits with those that a caller asked for within them: a caller can have less, never more.

    Zero means no limit for those that allow it, so asking for zero changes nothing. Raises `Invalid` as
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
