"""Keys of a table: declared ones with what the data says of them, and those that the data and the names suggest.

A key is only ever inferred from exact counts. Uniqueness in a few rows proves little, so the names must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from etude.catalog.keys.names import CODES, KEYS, NameWords, ends_like_key
from etude.catalog.measure import statements
from etude.catalog.measure.reading import Reader, TableDraft
from etude.catalog.model import ColumnProfile, KeyEvidence, TableProfile
from etude.errors import Cancelled, EtudeError, Interrupted

_KEYED = frozenset({"integer", "text", "uuid", "decimal", "date", "timestamp"})
_PARTS = 6
"""Columns that are tried together for a key of several."""
_LARGE = 1_000_000
_CHECKS = 3
"""Keys of several columns that are checked in a large table."""
_ACCEPTED = 0.6


def find_keys(
    reader: Reader, draft: TableDraft, profile: TableProfile, names: NameWords
) -> tuple[tuple[KeyEvidence, ...], tuple[str, ...]]:
    """The keys of a table, the one to use first; and notes on declared ones that the data breaks."""
    table = draft.table
    keys = [_declared(draft, profile, table.primary_key, True)] if table.primary_key else []
    keys += [_declared(draft, profile, columns, not keys) for columns in table.unique]
    if not keys and draft.plan == "exact" and table.kind == "table":
        found = _single(profile, names) or _several(reader, draft, profile, names)
        keys = [found] if found else []
    broken = (f"The declared key ({', '.join(k.columns)}) has duplicates." for k in keys if k.unique is False)
    return tuple(keys), tuple(broken)


def _declared(draft: TableDraft, profile: TableProfile, columns: tuple[str, ...], primary: bool) -> KeyEvidence:
    found = [c for c in map(profile.column, columns) if c is not None]
    unique = found[0].unique if len(found) == 1 else None
    if len(found) > 1 and draft.complete:
        unique = _are_unique(draft, [list(profile.columns).index(c) for c in found])
    not_null = all(c.nulls == 0 for c in found)
    # In a table without rows nothing contradicts it.
    unique = True if unique is False and not draft.rows else unique
    return KeyEvidence(
        columns=columns, origin="declared", primary=primary, unique=unique, not_null=not_null, reasons=("declared",)
    )


def _single(profile: TableProfile, names: NameWords) -> KeyEvidence | None:
    best: tuple[float, KeyEvidence] | None = None
    for position, column in enumerate(profile.columns):
        if not column.unique or column.nulls or column.family not in _KEYED:
            continue
        score, reasons = _judge(profile, column, position, names)
        if score >= _ACCEPTED and (best is None or score > best[0]):
            reasons = (f"{profile.rows:,} rows, {column.distinct:,} distinct values, no null", *reasons)
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
    profile: TableProfile, column: ColumnProfile, position: int, names: NameWords
) -> tuple[float, tuple[str, ...]]:
    """How much a unique column looks like the key that people would declare."""
    plain = names.column(profile.name, column.name)
    rows = profile.rows or 0
    score, reasons = 0.3, []
    if plain in (("id",), ("pk",), ("key",), ("uuid",)) or names.names_row_of(profile.name, plain):
        score, reasons = 0.9, ["the name is that of the table's own key"]
    elif other := names.belongs_elsewhere(profile.name, plain):
        score, reasons = (0.35 if rows < 1000 else 0.55), [f"the name refers to `{other}`"]
    elif plain and (plain[-1] in KEYS or ends_like_key(plain[-1])):
        score, reasons = 0.65 if names.holders(plain) == 1 or position == 0 else 0.4, ["the name ends like a key's"]
    elif plain and plain[-1] in CODES:
        score, reasons = 0.55, ["the name ends like a code's"]
    if position == 0:
        score += 0.1
        reasons.append("the first column")
    if rows >= 100:
        score += 0.1
        reasons.append("unique over many rows")
    if column.family in ("date", "timestamp", "decimal") or (column.lengths and column.lengths.mean > 40):
        score -= 0.25
    return min(score, 1.0), tuple(reasons)


def _several(reader: Reader, draft: TableDraft, profile: TableProfile, names: NameWords) -> KeyEvidence | None:
    """A key of two or three columns whose names are those of keys, numbers or dates."""
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
    counting = {i for i in parts if counts_within(names.column(profile.name, profile.columns[i].name))}
    for size in (2, 3):
        # A reference and a number within it are the usual key: `order_id, line_number`.
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
                f"{rows:,} rows, as many distinct combinations, no null",
                "names of keys, none of them unique alone",
            )
            return KeyEvidence(
                columns=columns, origin="inferred", unique=True, not_null=True, score=0.9 - 0.1 * size, reasons=reasons
            )
    return None


def _may_be_part(profile: TableProfile, column: ColumnProfile, names: NameWords) -> bool:
    plain = names.column(profile.name, column.name)
    refers = names.belongs_elsewhere(profile.name, plain) is not None
    if not plain or (column.unique and not refers):
        return False  # alone it would do, if it were a key
    last = plain[-1]
    return (
        refers
        or last in KEYS | CODES
        or ends_like_key(last)
        or column.family == "date"
        or last in ("year", "month", "week", "day")
        or counts_within(plain)
    )


def counts_within(plain: tuple[str, ...]) -> bool:
    """Whether a name is that of a number which begins anew for each of something: `linenumber`, `seq`."""
    return any(w.startswith(("line", "seq", "position", "version", "rank", "idx", "index")) for w in plain)


def _are_unique(draft: TableDraft, chosen: Sequence[int]) -> bool:
    """Whether no combination occurs twice in the rows at hand."""
    columns = [draft.frame[i].to_pylist() for i in chosen]
    return len(set(zip(*columns))) == draft.sample_rows


def _are_unique_in(reader: Reader, draft: TableDraft, chosen: Sequence[int]) -> bool:
    """The same over all rows, asked of the engine."""
    query = statements.distinct_rows_of(reader.dialect, draft.sql, [draft.expressions[i] for i in chosen])
    try:
        return int(reader.rows(query)[0][0]) == draft.rows
    except (Cancelled, Interrupted):
        raise
    except EtudeError:
        return False
