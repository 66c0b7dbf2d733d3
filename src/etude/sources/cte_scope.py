"""The common table expressions that a part of a query sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CteScope:
    """The names of one WITH that a part of a query sees, and the scope around it.

    All parts of a query share the mapping, because a copy for each of thousands of common table expressions would take
    quadratic time.
    """

    positions: Mapping[str, int]
    """By name: the position in the WITH of the first common table expression that has it."""
    before: int
    """Names at lower positions are visible."""
    outer: CteScope | None = None

    def sees(self, name: str) -> bool:
        """Return whether the name means a common table expression here."""
        scope: CteScope | None = self
        while scope is not None:
            if scope.positions.get(name, scope.before) < scope.before:
                return True
            scope = scope.outer
        return False


def first_cte_positions(names: Iterable[str | None]) -> dict[str, int]:
    """Return the first position of each name; None stands for a common table expression without a usable name."""
    positions: dict[str, int] = {}
    for position, name in enumerate(names):
        if name is not None:
            positions.setdefault(name, position)
    return positions
