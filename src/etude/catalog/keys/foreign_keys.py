"""Find foreign keys: declared ones, checked against the data, and those that both names and values suggest.

A reference needs both a match of its values and a name that refers to the other table: in small tables values match by
chance, and names alone can mislead. Nothing is inferred from approximate counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etude.catalog.keys.key_names import (
    CODES,
    KEYS,
    KeyNameWords,
    ends_like_key_name,
    key_name_word_set,
    key_name_words,
    key_table_name,
)
from etude.catalog.measure import statements
from etude.catalog.measure.source_reader import SourceReader
from etude.catalog.measure.statements import Compared, Expression
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.model import ColumnProfile, ForeignKeyEvidence, TableProfile, profile_number
from etude.entities import ForeignKey
from etude.errors import STOPS, EtudeError
from etude.plurals import singular_of_plural

_REFERRED = frozenset({"integer", "text", "uuid", "decimal"})
_TOGETHER = 20
_RIVALS = 4
"""The maximum number of tables that a column is checked against."""
_NAMESAKES = 12
"""If more unique columns than this have the same name, the name refers to none of them."""
_ACCEPTED = 0.6


@dataclass(frozen=True, eq=False)
class _Side:
    """A column on one side of a reference; equal if table and name are."""

    position: int
    """The index of its table."""
    column: ColumnProfile
    expression: Expression

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Side) and (self.position, self.column.name) == (other.position, other.column.name)

    def __hash__(self) -> int:
        return hash((self.position, self.column.name))


@dataclass(frozen=True)
class _Candidate:
    child: _Side
    parent: _Side
    similarity: float
    reason: str


def find_foreign_keys(
    reader: SourceReader, drafts: Sequence[TableDraft | None], profiles: Sequence[TableProfile], names: KeyNameWords
) -> list[TableProfile]:
    """Return the profiles with their foreign keys, declared ones before inferred ones."""
    measured = [(d, p) for d, p in zip(drafts, profiles) if d is not None]
    positions = {p.name: i for i, (_, p) in enumerate(measured)}
    found: dict[str, list[ForeignKeyEvidence]] = defaultdict(list)
    declared = list(_declared(measured, positions))
    candidates = _candidates(measured, names)
    pairs = [Compared(child.sql, child.expressions, parent.sql, parent.expressions) for _, child, parent in declared]
    pairs += [_compared(measured, candidate) for candidate in candidates]
    checked = count_contained_foreign_keys(reader, pairs)
    for (key, child, parent), counts in zip(declared, checked):
        found[child.profile.name].append(_of_declared(key, child, parent, counts))
    for table, draft in ((p.name, d) for d, p in measured):
        known = {k.columns for k in found[table]}
        found[table] += [
            ForeignKeyEvidence(
                columns=k.columns,
                to_table=k.to_table,
                to_columns=k.to_columns,
                origin="declared",
                reasons=("declared",),
            )
            for k in draft.table.foreign_keys
            if k.columns not in known
        ]
    accepted = [
        (candidate, evidence)
        for candidate, counts in zip(candidates, checked[len(declared) :])
        if (evidence := _accept(candidate, measured, counts)) is not None
    ]
    for candidate, evidence in _best(accepted, measured, names):
        table = measured[candidate.child.position][1].name
        if not any(set(k.columns) & set(evidence.columns) for k in found[table]):
            found[table].append(evidence)
    return [p.model_copy(update={"foreign_keys": tuple(found[p.name])}) if found[p.name] else p for p in profiles]


@dataclass(frozen=True)
class _End:
    """One side of a declared key."""

    profile: TableProfile
    sql: str
    expressions: tuple[Expression, ...]


def _declared(
    measured: Sequence[tuple[TableDraft, TableProfile]], positions: dict[str, int]
) -> Iterator[tuple[ForeignKey, _End, _End]]:
    """Yield the declared keys with both sides measured."""
    for draft, profile in measured:
        for key in draft.table.foreign_keys:
            j = positions.get(key.to_table)
            if j is None or len(key.columns) != len(key.to_columns):
                continue
            child, parent = _end(draft, profile, key.columns), _end(*measured[j], key.to_columns)
            if (
                child is not None
                and parent is not None
                and all(count_distinct_foreign_keys(profile, (c,)) for c in key.columns)
            ):
                yield key, child, parent


def _end(draft: TableDraft, profile: TableProfile, columns: tuple[str, ...]) -> _End | None:
    known = {c.name: e for c, e in zip(profile.columns, draft.expressions)}
    if any(name not in known for name in columns):
        return None
    return _End(profile, draft.sql, tuple(known[name] for name in columns))


class _Parents:
    """The columns that references may point to, by table and by the words of a reference."""

    def __init__(self, measured: Sequence[tuple[TableDraft, TableProfile]], names: KeyNameWords) -> None:
        self.of_table: dict[str, list[_Side]] = defaultdict(list)
        self.of_words: dict[tuple[str, ...], list[_Side]] = defaultdict(list)
        self.of_subject: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._names = names
        for i, (draft, profile) in enumerate(measured):
            self.of_subject[names.tables[profile.name]].append(profile.name)
            for column, expression in zip(profile.columns, draft.expressions):
                if column.unique and not column.nulls and column.family in _REFERRED:
                    side = _Side(i, column, expression)
                    self.of_table[profile.name].append(side)
                    for spelling in {names.column(profile.name, column.name), *_endings(key_name_words(column.name))}:
                        self.of_words[spelling].append(side)

    def near(self, table: str, plain: tuple[str, ...]) -> list[_Side]:
        """Return the columns that the words of a column of `table` may refer to."""
        found = list(self.of_table[table])
        for tail in (plain[i:] for i in range(len(plain))):
            for other in (*self._names.identified_by(tail), *self.of_subject.get(tail, ())):
                found += self.of_table[other]
        spellings = [plain]
        if len(plain) == 1:
            spellings += [(plain[0][i:],) for i in range(1, len(plain[0]) - 4)]
        for spelling in spellings:
            same = self.of_words.get(spelling, ())
            # A name that many tables use for their own column refers to none of them.
            found += same if len(same) <= _NAMESAKES else ()
        return list(dict.fromkeys(found))


def _endings(full: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [full[i:] for i in range(len(full) - 1)] if full and full[-1] in KEYS | CODES else []


def _compared(measured: Sequence[tuple[TableDraft, TableProfile]], candidate: _Candidate) -> Compared:
    child, parent = candidate.child, candidate.parent
    table, other = measured[child.position][0].sql, measured[parent.position][0].sql
    return Compared(table, (child.expression,), other, (parent.expression,))


def _candidates(measured: Sequence[tuple[TableDraft, TableProfile]], names: KeyNameWords) -> list[_Candidate]:
    """Return the pairs of columns whose names, types and ranges allow a reference; few enough to check each."""
    parents = _Parents(measured, names)
    found = []
    for i, (draft, profile) in enumerate(measured):
        for column, expression in zip(profile.columns, draft.expressions):
            if column.family not in _REFERRED or not column.distinct:
                continue
            child = _Side(i, column, expression)
            rivals = []
            for parent in parents.near(profile.name, names.column(profile.name, column.name)):
                if parent == child or _kind(parent.column) != _kind(column) or not _may_contain(parent.column, column):
                    continue
                similarity, reason = _similarity(names, measured, child, parent)
                if similarity >= _ACCEPTED:
                    rivals.append(_Candidate(child, parent, similarity, reason))
            rivals.sort(key=lambda c: (-c.similarity, measured[c.parent.position][1].name, c.parent.column.name))
            found += rivals[:_RIVALS]
    return found


def _kind(column: ColumnProfile) -> str:
    return "number" if column.family in ("integer", "decimal") else column.family


def _may_contain(parent: ColumnProfile, child: ColumnProfile) -> bool:
    """Return whether nearly all child values may match parent values, judging by count and range."""
    if (child.distinct or 0) * 0.9 > (parent.distinct or 0):
        return False
    ends = [profile_number(v) for v in (parent.min, parent.max, child.min, child.max)]
    if _kind(child) == "number" and not (parent.masked or child.masked) and None not in ends:
        least, greatest, low, high = (e for e in ends if e is not None)
        return low <= greatest and high >= least
    return True


def _similarity(
    names: KeyNameWords, measured: Sequence[tuple[TableDraft, TableProfile]], child: _Side, parent: _Side
) -> tuple[float, str]:
    """Score from 0 to 1 how clearly the name of a column refers to another, with the reason."""
    child_table, parent_table = measured[child.position][1].name, measured[parent.position][1].name
    c, p = names.column(child_table, child.column.name), names.column(parent_table, parent.column.name)
    subject = names.tables[parent_table]
    full = key_name_words(parent.column.name)
    own_key = names.names_row_of(parent_table, p) or p in (("id",), ("key",), ("code",), ("no",), ("pk",))
    if not c or not p or c[0] in _COUNTS or (names.names_row_of(child_table, c) and c != p):
        return 0.0, ""
    if child.position == parent.position:
        if own_key and (c[0] in _ROLES or c[-1] == "parent" or any(c[-2:] == pair or c[:2] == pair for pair in _SELF)):
            return 0.8, "a role within the same table"
        return 0.0, ""
    if c == p and names.names_row_of(parent_table, p):
        return 1.0, "the same name as the key of the other table"
    if own_key and names.names_row_of(parent_table, c):
        return 0.95, "named after the other table"
    if own_key and c[-len(subject) :] == subject and _same_number(child.column.name, parent_table):
        return 0.85, "named like the other table" if c == subject else "ends in the name of the other table"
    if own_key and any(names.names_row_of(parent_table, c[i:]) for i in range(1, len(c))):
        return 0.85, "ends in the name of the other table's key"
    if len(p[0]) > 4 and len(c) == len(p) == 1 and c[0].endswith(p[0]) and names.names_row_of(parent_table, p):
        return 0.85, "ends in the name of the other table's key"
    if len(c) > 1 and full[-len(c) :] == c and c[-1] in KEYS | CODES:
        return 0.85, "the same name except for a prefix"
    if c == p and (len(c) > 1 or c[0] not in KEYS | CODES) and (c[-1] in KEYS | CODES or ends_like_key_name(c[-1])):
        return 0.75, "the same name"
    if c == p and set(c) & set(subject) and c[-1] in ("name", "symbol", "title"):
        return 0.7, "the same name, which contains the name of the other table"
    return 0.0, ""


_ROLES = key_name_word_set("parent manager supervisor boss report referrer referred previous next original root master")
_SELF = (("report", "to"), ("reply", "to"), ("replied", "to"))
"""The only names ending in `to` that refer to the same table; `given_to` or `sent_to` rarely do."""
_COUNTS = key_name_word_set("num count total avg average sum min max")


def _same_number(column: str, table: str) -> bool:
    """Return whether a name is not the plural of a table's: `num_semesters` is a count, not a reference."""
    column, table = column.lower(), key_table_name(table).lower()
    last = column[-1:] == "s" and singular_of_plural(key_name_words(column)[-1]) != column.rpartition("_")[2]
    return not last or column.endswith(table)


def count_contained_foreign_keys(reader: SourceReader, pairs: Sequence[Compared]) -> list[tuple[int, int] | None]:
    """Count, for each pair, the distinct values of the first and how many match the second; None if that fails."""
    counts: list[tuple[int, int] | None] = []
    for start in range(0, len(pairs), _TOGETHER):
        part = pairs[start : start + _TOGETHER]
        try:
            counts += _contain_together(reader, part)
        except STOPS:
            raise
        except EtudeError:
            for pair in part:  # at least one cannot be compared, so try each by itself
                try:
                    counts += _contain_together(reader, [pair])
                except STOPS:
                    raise
                except EtudeError:
                    counts.append(None)
    return counts


def _contain_together(reader: SourceReader, pairs: Sequence[Compared]) -> list[tuple[int, int] | None]:
    rows = {
        int(i): (int(d), int(found))
        for i, d, found in reader.rows(statements.containment_statement(reader.dialect, pairs))
    }
    return [rows.get(i) for i in range(len(pairs))]


def _of_declared(key: ForeignKey, child: _End, parent: _End, counts: tuple[int, int] | None) -> ForeignKeyEvidence:
    evidence = ForeignKeyEvidence(
        columns=key.columns, to_table=key.to_table, to_columns=key.to_columns, origin="declared", reasons=("declared",)
    )
    update: dict[str, Any] = {"cardinality": foreign_key_cardinality(child.profile, key.columns)}
    if counts is not None:
        update |= foreign_key_containment_shares(counts, count_distinct_foreign_keys(parent.profile, key.to_columns))
        if counts[1] < counts[0]:
            update["reasons"] = ("declared", f"values without a match: {counts[0] - counts[1]:,}")
    return evidence.model_copy(update=update)


def foreign_key_containment_shares(counts: tuple[int, int], referenced: int | None) -> dict[str, Any]:
    """Return containment and coverage, given the number of distinct values on the other side."""
    values, matched = counts
    coverage = round(matched / referenced, 6) if referenced else None
    return {
        "containment": round(matched / values, 6) if values else None,
        "coverage": min(coverage, 1.0) if coverage is not None else None,
        "values": values,
        "missing": values - matched,
    }


def count_distinct_foreign_keys(profile: TableProfile, columns: tuple[str, ...]) -> int | None:
    """Return how many distinct values or combinations some columns have; None if not counted."""
    if len(columns) == 1:
        found = profile.column(columns[0])
        return found.distinct if found is not None else None
    return profile.rows if _is_key(profile, columns) else None


def foreign_key_cardinality(profile: TableProfile, columns: tuple[str, ...]) -> str:
    """Return `one-to-one`, or `many-to-one` if several rows may refer to one."""
    found = profile.column(columns[0]) if len(columns) == 1 else None
    once = found.unique if found is not None else _is_key(profile, columns)
    return "one-to-one" if once else "many-to-one"


def _is_key(profile: TableProfile, columns: tuple[str, ...]) -> bool:
    return any(key.unique and set(key.columns) <= set(columns) for key in profile.keys)


def _accept(
    candidate: _Candidate, measured: Sequence[tuple[TableDraft, TableProfile]], counts: tuple[int, int] | None
) -> ForeignKeyEvidence | None:
    """Return the evidence if it is enough; values without a match are accepted only with a clear name."""
    if counts is None or not counts[0]:
        return None
    values, matched = counts
    containment = matched / values
    needed = 0.95 if candidate.similarity >= 0.85 else 1.0
    if containment < needed:
        return None
    few = values < 3 and candidate.similarity < 0.85
    score = round(min(1.0, candidate.similarity * containment) - (0.2 if few else 0.0), 2)
    if score < _ACCEPTED:
        return None
    parent = candidate.parent
    share = "all" if matched == values else f"{math.floor(containment * 1000) / 10:.1f}% of"
    reasons = (f"{share} {values:,} distinct values match", f"{candidate.reason}", "the other side is unique")
    return ForeignKeyEvidence(
        columns=(candidate.child.column.name,),
        to_table=measured[parent.position][1].name,
        to_columns=(parent.column.name,),
        origin="inferred",
        name_similarity=candidate.similarity,
        cardinality=foreign_key_cardinality(measured[candidate.child.position][1], (candidate.child.column.name,)),
        score=score,
        reasons=reasons,
        **foreign_key_containment_shares(counts, parent.column.distinct),
    )


def _best(
    accepted: list[tuple[_Candidate, ForeignKeyEvidence]],
    measured: Sequence[tuple[TableDraft, TableProfile]],
    names: KeyNameWords,
) -> list[tuple[_Candidate, ForeignKeyEvidence]]:
    """Keep one reference for each column, and one direction if both are possible."""

    def rank(item: tuple[_Candidate, ForeignKeyEvidence]) -> tuple[float, bool, int, str]:
        candidate, evidence = item
        parent = measured[candidate.parent.position][1]
        is_key = parent.primary_key is not None and parent.primary_key.columns == evidence.to_columns
        return (-evidence.score, not is_key, -(parent.rows or 0), parent.name)

    chosen: dict[tuple[int, str], tuple[_Candidate, ForeignKeyEvidence]] = {}
    for item in sorted(accepted, key=rank):
        child = item[0].child
        chosen.setdefault((child.position, child.column.name), item)
    kept = []
    for (position, name), (candidate, evidence) in sorted(chosen.items()):
        back = chosen.get((candidate.parent.position, candidate.parent.column.name))
        if back is not None and (back[0].parent.position, back[0].parent.column.name) == (position, name):
            # Both tables have the same values: the reference points to the table that the name belongs to.
            plain = names.column(measured[position][1].name, name)
            here = names.names_row_of(measured[position][1].name, plain)
            there = names.names_row_of(measured[candidate.parent.position][1].name, plain)
            if here >= there and (here > there or position < candidate.parent.position):
                continue
        kept.append((candidate, evidence))
    return kept
