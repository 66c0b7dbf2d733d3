"""Rank correlations (Spearman) between the numeric columns of a table, from up to 5,000 rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from operator import mul

from etude.catalog.measure.column_profile import first_rows_column_provenance, sample_column_provenance
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.model import EXACT, NUMERIC, Correlation, TableProfile

ROWS = 5_000
MAX_COLUMNS = 16
LEAST_ROWS = 30
WEAK = 0.3
"""Weaker correlations are left out."""
KEPT = 12


def find_correlations(draft: TableDraft, profile: TableProfile) -> tuple[Correlation, ...]:
    """Return the strongest rank correlations between numeric columns that are neither keys nor personal data."""
    keys = {c for k in profile.keys for c in k.columns}
    chosen = [
        i
        for i, c in enumerate(profile.columns)
        if c.family in NUMERIC and c.name not in keys and not c.masked and not c.constant and not c.unique
    ][:MAX_COLUMNS]
    if len(chosen) < 2 or draft.sample_rows < LEAST_ROWS:
        return ()
    step = max(1, -(-draft.sample_rows // ROWS))
    columns = {i: [_finite(v) for v in draft.frame[i].to_pylist()[::step]] for i in chosen}
    used = len(columns[chosen[0]])
    how = (
        EXACT
        if draft.complete and step == 1
        else sample_column_provenance(used)
        if draft.drawn or draft.complete
        else None
    )
    found = []
    for a, b in combinations(chosen, 2):
        rows = [(x, y) for x, y in zip(columns[a], columns[b]) if x is not None and y is not None]
        coefficient = _correlate(*zip(*rows)) if len(rows) >= LEAST_ROWS else None
        # The bound is about the largest coefficient that unrelated columns reach by chance.
        if coefficient is not None and abs(coefficient) >= max(WEAK, 4 / math.sqrt(len(rows))):
            names = profile.columns[a].name, profile.columns[b].name
            provenance = how or first_rows_column_provenance(used)
            found.append(
                Correlation(columns=names, coefficient=round(coefficient, 3), rows=len(rows), provenance=provenance)
            )
    found.sort(key=lambda c: (-abs(c.coefficient), c.columns))
    return tuple(found[:KEPT])


def _finite(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _correlate(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the rank correlation of two columns; None if one of them is constant."""
    a, b = _centered_ranks(one), _centered_ranks(other)
    scale = math.sqrt(math.fsum(map(mul, a, a)) * math.fsum(map(mul, b, b)))
    return math.fsum(map(mul, a, b)) / scale if scale else None


def _centered_ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks minus their mean; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, start, middle = [0.0] * len(values), 0, (len(values) - 1) / 2
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for at in range(start, end + 1):
            ranks[order[at]] = (start + end) / 2 - middle
        start = end + 1
    return ranks
