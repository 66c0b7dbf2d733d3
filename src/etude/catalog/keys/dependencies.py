"""Find functional dependencies: columns whose value follows from another's, more often than by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Literal

from etude.catalog.measure import statements
from etude.catalog.measure.source_reader import SourceReader
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.model import ColumnProfile, Dependency, TableProfile
from etude.errors import STOPS, EtudeError

_FAMILIES = frozenset({"integer", "text", "uuid", "date", "boolean", "decimal"})
_COLUMNS = 16
_PROBE = 100
_MOST = 10
_SURPRISE = 25.0
"""Bits of evidence that a dependency needs to be reported."""
_FEW = 20_000


def find_dependencies(reader: SourceReader, draft: TableDraft, profile: TableProfile) -> tuple[Dependency, ...]:
    """Return dependencies between columns that are not keys, those with the most evidence first."""
    if draft.plan != "exact" or draft.rows < 20:
        return ()
    chosen = [i for i, c in enumerate(profile.columns) if _may_take_part(c, draft.rows)][:_COLUMNS]
    if len(chosen) < 2:
        return ()
    # The first rows already rule out most pairs.
    probe = {i: draft.frame[i][:_PROBE].to_pylist() for i in chosen}
    pairs = [
        (a, b)
        for a, b in permutations(chosen, 2)
        if _is_surprising(profile.columns[a], profile.columns[b], draft.rows) and _maps(probe[a], probe[b])
    ]
    values = {i: draft.frame[i].to_pylist() for i in {i for pair in pairs for i in pair}}
    pairs = [(a, b) for a, b in pairs if _maps(values[a], values[b])]
    pairs.sort(key=lambda pair: -_surprise(profile.columns[pair[0]], profile.columns[pair[1]], draft.rows))
    pairs = _least(pairs, profile)[: 2 * _MOST]
    confirmed = _confirm_here(values, pairs) if draft.complete else _confirm_there(reader, draft, pairs)
    return _to_dependencies(profile, confirmed)


def _may_take_part(column: ColumnProfile, rows: int) -> bool:
    distinct = column.distinct or 0
    return (
        column.family in _FAMILIES
        and 2 <= distinct <= min(rows / 2, _FEW)
        and (column.nulls or 0) <= rows / 2
        and column.provenance.distinct is not None
    )


def _surprise(left: ColumnProfile, right: ColumnProfile, rows: int) -> float:
    """Return the evidence in bits: how unlikely every repeated left value has the same right value by chance."""
    again = rows - (left.nulls or 0) - (left.distinct or 0)
    shares = [t.share for t in right.top]
    rest = max(0.0, 1 - sum(shares))
    others = max((right.distinct or 0) - len(shares), 1)
    chance = sum(s * s for s in shares) + rest * rest / others
    return again * -math.log2(min(max(chance, 1e-9), 1.0))


def _is_surprising(left: ColumnProfile, right: ColumnProfile, rows: int) -> bool:
    return (right.distinct or 0) <= (left.distinct or 0) and _surprise(left, right, rows) >= _SURPRISE


def _maps(left: Sequence[object], right: Sequence[object]) -> bool:
    """Return whether each left value has exactly one right value in these rows."""
    pairs = {(a, b) for a, b in zip(left, right) if a is not None and b is not None}
    return len(pairs) == len({a for a, _ in pairs})


def _least(pairs: list[tuple[int, int]], profile: TableProfile) -> list[tuple[int, int]]:
    """Drop redundant pairs.

    Of equivalent columns only the first is used, and of several columns that determine one, only the coarsest.
    """
    distinct = [c.distinct or 0 for c in profile.columns]
    same = {(a, b) for a, b in pairs if distinct[a] == distinct[b] and a < b}
    aliases = {b for _, b in same}
    coarsest: dict[int, int] = {}
    for a, b in pairs:
        if distinct[a] > distinct[b] and not {a, b} & aliases:
            known = coarsest.get(b)
            if known is None or distinct[a] < distinct[known]:
                coarsest[b] = a
    return [(a, b) for a, b in pairs if ((a, b) in same and a not in aliases) or coarsest.get(b) == a]


Kind = Literal["determines", "one-to-one", "equal"]
Found = tuple[int, int, int, Kind]
"""The two columns, the rows in which both have a value, and the kind of dependency."""


def _confirm_here(values: dict[int, list[object]], pairs: list[tuple[int, int]]) -> list[Found]:
    found: list[Found] = []
    for a, b in pairs:
        both = [(x, y) for x, y in zip(values[a], values[b]) if x is not None and y is not None]
        back = len({y for _, y in both}) == len(set(both))
        found.append((a, b, len(both), _kind(all(x == y for x, y in both), back)))
    return found


def _kind(equal: bool, back: bool) -> Kind:
    return "equal" if equal else "one-to-one" if back else "determines"


def _confirm_there(reader: SourceReader, draft: TableDraft, pairs: list[tuple[int, int]]) -> list[Found]:
    if not pairs:
        return []
    named = [(draft.expressions[a], draft.expressions[b]) for a, b in pairs]
    try:
        rows = reader.rows(statements.distinct_pairs_statement(reader.dialect, draft.sql, named))
    except STOPS:
        raise
    except EtudeError as error:
        draft.notes.append(f"Dependencies were not checked: {error.message}")
        return []
    found: list[Found] = []
    for position, n, distinct, left, right, same in sorted(rows):
        a, b = pairs[int(position)]
        if distinct == left:
            found.append((a, b, int(n), _kind(same == n, distinct == right)))
    return found


def _to_dependencies(profile: TableProfile, confirmed: list[Found]) -> tuple[Dependency, ...]:
    found: list[Dependency] = []
    for a, b, rows, kind in confirmed[:_MOST]:
        left, right = profile.columns[a], profile.columns[b]
        reason = (
            f"each of {left.distinct:,} values of `{left.name}` has one of {right.distinct:,} values of "
            f"`{right.name}`, in {rows:,} rows"
        )
        found.append(Dependency(columns=(left.name,), determines=right.name, kind=kind, rows=rows, reason=reason))
    return tuple(found)
