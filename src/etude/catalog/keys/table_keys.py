"""Find the keys of a table: declared ones, checked against the data, and those inferred from data and names.

A key is inferred only from exact counts. Uniqueness in a few rows proves little, so the names must fit too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from etude.catalog.keys.key_names import CODES, KEYS, KeyNameWords, ends_like_key_name
from etude.catalog.measure import statements
from etude.catalog.measure.source_reader import SourceReader
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.model import ColumnProfile, KeyEvidence, TableProfile
from etude.errors import STOPS, EtudeError

_KEYED = frozenset({"integer", "text", "uuid", "decimal", "date", "timestamp"})
_PARTS = 6
"""The maximum number of columns to combine when looking for a composite key."""
_LARGE = 1_000_000
_CHECKS = 3
"""The maximum number of composite keys to check in a large table."""
_ACCEPTED = 0.6


def find_table_keys(
    reader: SourceReader, draft: TableDraft, profile: TableProfile, names: KeyNameWords
) -> tuple[tuple[KeyEvidence, ...], tuple[str, ...]]:
    """Return the keys of a table, the primary one first, and notes on declared keys that the data violates."""
    table = draft.table
    keys = [_declared(draft, profile, table.primary_key, True)] if table.primary_key else []
    keys += [_declared(draft, profile, columns, not keys) for columns in table.unique]
    if not keys and draft.plan == "exact" and table.kind == "table":
        found = _infer_single(profile, names) or _infer_composite(reader, draft, profile, names)
        keys = [found] if found else []
    broken = (f"The declared key ({', '.join(k.columns)}) has duplicates." for k in keys if k.unique is False)
    return tuple(keys), tuple(broken)


def _declared(draft: TableDraft, profile: TableProfile, columns: tuple[str, ...], primary: bool) -> KeyEvidence:
    found = [c for c in map(profile.column, columns) if c is not None]
    unique = found[0].unique if len(found) == 1 else None
    if len(found) > 1 and draft.complete:
        unique = _are_unique(draft, [list(profile.columns).index(c) for c in found])
    not_null = all(c.nulls == 0 for c in found)
    # A table without rows does not contradict the declaration.
    unique = True if unique is False and not draft.rows else unique
    return KeyEvidence(
        columns=columns, origin="declared", primary=primary, unique=unique, not_null=not_null, reasons=("declared",)
    )


def _infer_single(profile: TableProfile, names: KeyNameWords) -> KeyEvidence | None:
    best: tuple[float, KeyEvidence] | None = None
    for position, column in enumerate(profile.columns):
        if not column.unique or column.nulls or column.family not in _KEYED:
            continue
        score, reasons = _judge(profile, column, position, names)
        if score >= _ACCEPTED and (best is None or score > best[0]):
            reasons = (f"{profile.rows:,} rows, {column.distinct:,} distinct values, no nulls", *reasons)
            key = KeyEvidence(
                columns=(column.name,),
                origin="inferred",
                unique=True,
                not_null=True,
                score=round(score, 2),
                reasons=reasons,
            )
            best = score, key
    return best[1] if best else None


def _judge(
    profile: TableProfile, column: ColumnProfile, position: int, names: KeyNameWords
) -> tuple[float, tuple[str, ...]]:
    """Score how much a unique column looks like the declared key of a table, with reasons."""
    plain = names.column(profile.name, column.name)
    rows = profile.rows or 0
    score, reasons = 0.3, []
    if plain in (("id",), ("pk",), ("key",), ("uuid",)) or names.names_row_of(profile.name, plain):
        score, reasons = 0.9, ["named like this table's own key"]
    elif other := names.belongs_elsewhere(profile.name, plain):
        score, reasons = (0.35 if rows < 1000 else 0.55), [f"the name refers to `{other}`"]
    elif plain and (plain[-1] in KEYS or ends_like_key_name(plain[-1])):
        score, reasons = (
            0.65 if names.holders(plain) == 1 or position == 0 else 0.4,
            ["named like a key"],
        )
    elif plain and plain[-1] in CODES:
        score, reasons = 0.55, ["named like a code"]
    if position == 0:
        score += 0.1
        reasons.append("it is the first column")
    if rows >= 100:
        score += 0.1
        reasons.append("unique over many rows")
    if column.family in ("date", "timestamp", "decimal") or (column.lengths and column.lengths.mean > 40):
        score -= 0.25
    return min(score, 1.0), tuple(reasons)


def _infer_composite(
    reader: SourceReader, draft: TableDraft, profile: TableProfile, names: KeyNameWords
) -> KeyEvidence | None:
    """Infer a key of two or three columns that are named like keys, numbers or dates."""
    rows = draft.rows
    if rows < 4:
        return None
    parts = [
        i
        for i, column in enumerate(profile.columns)
        if column.family in _KEYED and column.nulls == 0 and (column.distinct or 0) > 1
        if _may_be_part(profile, column, names)
    ][:_PARTS]
    checks = _CHECKS if rows > _LARGE else 100
    counting = {i for i in parts if is_table_key_within_group(names.column(profile.name, profile.columns[i].name))}
    for size in (2, 3):
        # The typical composite key is a reference and a number within it: `order_id, line_number`.
        for chosen in sorted(itertools.combinations(parts, size), key=lambda c: (len(counting & set(c)) != 1, c)):
            combinations = 1
            for i in chosen:
                combinations *= profile.columns[i].distinct or 0
            if combinations < rows or not _are_unique(draft, chosen):
                continue
            if not draft.complete:
                checks -= 1
                if checks < 0 or not _are_unique_in(reader, draft, chosen):
                    continue
            columns = tuple(profile.columns[i].name for i in chosen)
            reasons = (
                f"{rows:,} rows, as many distinct combinations, no nulls",
                "the columns are named like keys, and none is unique alone",
            )
            return KeyEvidence(
                columns=columns, origin="inferred", unique=True, not_null=True, score=0.9 - 0.1 * size, reasons=reasons
            )
    return None


def _may_be_part(profile: TableProfile, column: ColumnProfile, names: KeyNameWords) -> bool:
    plain = names.column(profile.name, column.name)
    refers = names.belongs_elsewhere(profile.name, plain) is not None
    if not plain or (column.unique and not refers):
        return False  # if it were part of a key, it would be the whole key
    last = plain[-1]
    return (
        refers
        or last in KEYS | CODES
        or ends_like_key_name(last)
        or column.family == "date"
        or last in ("year", "month", "week", "day")
        or is_table_key_within_group(plain)
    )


def is_table_key_within_group(plain: tuple[str, ...]) -> bool:
    """Return whether a name suggests a number that restarts within a group: `linenumber`, `seq`."""
    return any(w.startswith(("line", "seq", "position", "version", "rank", "idx", "index")) for w in plain)


def _are_unique(draft: TableDraft, chosen: Sequence[int]) -> bool:
    """Return whether no combination occurs twice in the rows that were read."""
    columns = [draft.frame[i].to_pylist() for i in chosen]
    return len(set(zip(*columns))) == draft.sample_rows


def _are_unique_in(reader: SourceReader, draft: TableDraft, chosen: Sequence[int]) -> bool:
    """Return whether no combination occurs twice in the whole table, counted by the engine."""
    query = statements.distinct_rows_statement(reader.dialect, draft.sql, [draft.expressions[i] for i in chosen])
    try:
        return int(reader.rows(query)[0][0]) == draft.rows
    except STOPS:
        raise
    except EtudeError:
        return False
