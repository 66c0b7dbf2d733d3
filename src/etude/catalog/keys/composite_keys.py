"""Infer references of several columns to a composite key, from names and values.

Two columns that each refer to something occur together in many tables. Therefore all names must agree and all
combinations must match. In addition, either the key has a number within a group (`order_id, line_number`), or the
other table has so few of the possible combinations that a match of all by chance is unlikely.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etude.catalog.keys.foreign_keys import (
    count_contained_foreign_keys,
    foreign_key_cardinality,
    foreign_key_containment_shares,
)
from etude.catalog.keys.key_names import CODES, KEYS, KeyNameWords, ends_like_key_name
from etude.catalog.keys.table_keys import is_table_key_within_group
from etude.catalog.measure.source_reader import SourceReader
from etude.catalog.measure.statements import Compared
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.model import ForeignKeyEvidence, KeyEvidence, TableProfile

_CHECKS = 200
"""The maximum number of pairs of tables to compare."""
_LARGE = 1_000_000
"""In tables with more rows than this, rows are matched instead of distinct combinations, which proves as much."""
_LEAST = 5
"""The minimum number of combinations that count as evidence."""
_BY_CHANCE = 0.001
"""The maximum probability that all combinations match by chance."""

Measured = Sequence[tuple[TableDraft, TableProfile]]


@dataclass(frozen=True)
class _Candidate:
    child: int
    columns: tuple[str, ...]
    parent: int
    key: KeyEvidence
    prefix: tuple[str, ...]
    """The words before those of the key in the names of the columns."""


def find_composite_keys(
    reader: SourceReader, drafts: Sequence[TableDraft | None], profiles: Sequence[TableProfile], names: KeyNameWords
) -> list[TableProfile]:
    """Return the profiles with inferred references of several columns appended to their foreign keys."""
    measured = [(d, p) for d, p in zip(drafts, profiles) if d is not None]
    candidates = _candidates(measured, names)[:_CHECKS]
    checked = count_contained_foreign_keys(reader, [_compared(measured, candidate) for candidate in candidates])
    accepted = {
        candidate: evidence
        for candidate, counts in zip(candidates, checked)
        if (evidence := _accept(measured, candidate, counts, names)) is not None
    }
    found: dict[str, list[ForeignKeyEvidence]] = defaultdict(list)
    for candidate, evidence in _best(accepted, measured, names):
        found[measured[candidate.child][1].name].append(evidence)
    return [
        p.model_copy(update={"foreign_keys": (*p.foreign_keys, *found[p.name])}) if p.name in found else p
        for p in profiles
    ]


def _candidates(measured: Measured, names: KeyNameWords) -> list[_Candidate]:
    """Return the composite keys together with the columns of other tables that are named like them."""
    endings: dict[tuple[str, ...], list[tuple[int, str, tuple[str, ...]]]] = defaultdict(list)
    keys = [(j, k) for j, (_, p) in enumerate(measured) for k in p.keys if len(k.columns) > 1 and _holds(k)]
    wanted = {names.column(measured[j][1].name, c) for j, key in keys for c in key.columns}
    for i, (_, profile) in enumerate(measured):
        for column in profile.columns:
            plain = names.column(profile.name, column.name)
            for start in range(len(plain)):
                if plain[start:] in wanted:
                    endings[plain[start:]].append((i, column.name, plain[:start]))
    found = []
    for j, key in keys:
        parent = measured[j][1]
        matches: dict[tuple[int, tuple[str, ...]], dict[str, str]] = defaultdict(dict)
        for target in key.columns:
            for i, name, prefix in endings[names.column(parent.name, target)]:
                if (i, prefix) != (j, ()) and _alike(measured[i][1], name, parent, target):
                    matches[i, prefix].setdefault(target, name)
        for (i, prefix), chosen in sorted(matches.items()):
            columns = tuple(chosen.get(target, "") for target in key.columns)
            declared = any(set(k.columns) == set(columns) for k in measured[i][1].foreign_keys)
            if len(set(columns)) == len(key.columns) and all(columns) and not declared:
                found.append(_Candidate(i, columns, j, key, prefix))
    return found


def _holds(key: KeyEvidence) -> bool:
    return bool(key.unique) or (key.unique is None and key.origin == "declared")


def _alike(child: TableProfile, column: str, parent: TableProfile, target: str) -> bool:
    """Return whether the values of the column may be values of the target."""
    one, other = child.column(column), parent.column(target)
    if one is None or other is None or not one.distinct or not other.distinct:
        return False
    numbers = {"integer", "decimal"}
    return one.distinct <= other.distinct and (one.family == other.family or {one.family, other.family} <= numbers)


def _compared(measured: Measured, candidate: _Candidate) -> Compared:
    (child, here), (parent, there) = measured[candidate.child], measured[candidate.parent]
    left = {c.name: e for c, e in zip(here.columns, child.expressions)}
    right = {c.name: e for c, e in zip(there.columns, parent.expressions)}
    targets = tuple(right[name] for name in candidate.key.columns)
    columns = tuple(left[name] for name in candidate.columns)
    return Compared(child.sql, columns, parent.sql, targets, by_rows=(here.rows or 0) > _LARGE)


def _accept(
    measured: Measured, candidate: _Candidate, counts: tuple[int, int] | None, names: KeyNameWords
) -> ForeignKeyEvidence | None:
    child, parent = measured[candidate.child][1], measured[candidate.parent][1]
    if counts is None or counts[0] < _LEAST or counts[1] < counts[0]:
        return None
    large = (child.rows or 0) > _LARGE
    # There are at least as many combinations as distinct values of any one column.
    combinations = max((c.distinct or 0) for c in map(child.column, candidate.columns) if c is not None)
    own = next(_own_columns(parent, candidate.key, names), None)
    if own is None and _chance(parent, candidate.key, combinations if large else counts[0]) > _BY_CHANCE:
        return None
    similarity = 0.8 if candidate.prefix else 0.9
    why = f"`{own}` is a number within the rest of the key" if own else "a match of all by chance is unlikely"
    same = (
        "the names end in those of the other table's key"
        if candidate.prefix
        else "the same names as the key of the other table"
    )
    return ForeignKeyEvidence(
        columns=candidate.columns,
        to_table=parent.name,
        to_columns=candidate.key.columns,
        origin="inferred",
        name_similarity=similarity,
        cardinality=foreign_key_cardinality(child, candidate.columns),
        score=similarity,
        reasons=(f"all {counts[0]:,} {'rows' if large else 'distinct combinations'} match", same, why),
        **({"containment": 1.0, "missing": 0} if large else foreign_key_containment_shares(counts, parent.rows)),
    )


def _own_columns(parent: TableProfile, key: KeyEvidence, names: KeyNameWords) -> Iterator[str]:
    """Yield the columns of a key that are specific to its table, such as a number within an order."""
    refer = {c for k in parent.foreign_keys if len(k.columns) == 1 for c in k.columns}
    for column in key.columns:
        plain = names.column(parent.name, column)
        if column in refer or names.belongs_elsewhere(parent.name, plain):
            continue
        if is_table_key_within_group(plain) or (
            len(plain) > 1 and (plain[-1] in KEYS | CODES or ends_like_key_name(plain[-1]))
        ):
            yield column


def _chance(parent: TableProfile, key: KeyEvidence, values: int) -> float:
    """Return the probability that this many random combinations all match."""
    possible = math.prod((c.distinct or 0) for c in map(parent.column, key.columns) if c is not None)
    return ((parent.rows or 0) / possible) ** values if possible else 1.0


def _best(
    accepted: dict[_Candidate, ForeignKeyEvidence], measured: Measured, names: KeyNameWords
) -> list[tuple[_Candidate, ForeignKeyEvidence]]:
    """Keep one reference for the same columns, to the larger table; none between two tables with the same rows."""

    def rank(item: tuple[_Candidate, ForeignKeyEvidence]) -> tuple[float, int, str]:
        parent = measured[item[0].parent][1]
        return -item[1].score, -(parent.rows or 0), parent.name

    chosen: dict[tuple[int, frozenset[str]], tuple[_Candidate, ForeignKeyEvidence]] = {}
    for candidate, evidence in sorted(accepted.items(), key=rank):
        mirrored = any(
            (c.child, c.parent) == (candidate.parent, candidate.child) and set(c.columns) == set(candidate.key.columns)
            for c in accepted
        )
        here, there = (names.tables[measured[i][1].name] for i in (candidate.child, candidate.parent))
        if not mirrored or here[: len(there)] == there:
            chosen.setdefault((candidate.child, frozenset(candidate.columns)), (candidate, evidence))
    return sorted(chosen.values(), key=lambda item: (item[0].child, item[0].columns))
