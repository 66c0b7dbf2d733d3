"""Profile a source using only `db.sql`: on the host, in a script, or inside a session.

A small table is read completely with one statement and measured here: everything is exact. For a larger table the
engine measures one column at a time: a column of few distinct values by its groups, one of many by a summary, which is
exact too. Beyond `exact_rows`, columns of many values are sampled and marked as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from etude.catalog.keys.composite_keys import find_composite_keys
from etude.catalog.keys.dependencies import find_dependencies
from etude.catalog.keys.foreign_keys import find_foreign_keys
from etude.catalog.keys.key_names import KeyNameWords
from etude.catalog.keys.table_keys import find_table_keys
from etude.catalog.measure import statements
from etude.catalog.measure.column_profile import (
    find_column_freshness,
    mask_row_columns,
    profile_column,
    unmeasured_column_profile,
)
from etude.catalog.measure.correlations import find_correlations
from etude.catalog.measure.distribution import distribution_scalars
from etude.catalog.measure.source_reader import SourceReader
from etude.catalog.measure.table_draft import TableDraft
from etude.catalog.measure.table_profile import (
    SMALL_ROWS,
    Bounds,
    draft_table_profile,
    measure_table_profile,
    read_table_profile_ahead,
)
from etude.catalog.measure.type_families import type_family_of
from etude.catalog.model import ColumnProfile, Provenance, Samples, SourceProfile, TableProfile
from etude.db import Database
from etude.entities import Table
from etude.errors import STOPS, EtudeError, NotFound, UnknownTable
from etude.sources.quoting import quote_identifier, quote_table

EXACT_ROWS = {"duckdb": 50_000_000, "sqlite": 10_000_000, "postgres": 5_000_000, "mysql": 5_000_000}
"""Tables with at most this many rows are measured exactly; the limit is lower for servers, which others use too."""
SHOWN_ROWS = 5

Progress = Callable[[int, int, str], None]
"""Called with the number of tables done, their total, and the name of the next one (empty at the end)."""


def profile_source(
    db: Database,
    tables: Sequence[str] | None = None,
    *,
    on_progress: Progress | None = None,
    exact_rows: int | None = None,
    small_rows: int = SMALL_ROWS,
    timeout_s: float = 600.0,
) -> SourceProfile:
    """Profile all tables of a source, or the named ones. A table that fails is reported in the profile.

    A table of up to `small_rows` rows is read completely, one of up to `exact_rows` is measured exactly by its engine,
    and a larger one partly by a sample.
    """
    from etude import __version__

    catalog = db.catalog()
    chosen = _choose(catalog.tables, tables)
    if exact_rows is None:
        exact_rows = EXACT_ROWS.get(catalog.dialect, EXACT_ROWS["postgres"])
    bounds, names = Bounds(small_rows, exact_rows), KeyNameWords(catalog.tables)
    drafts, profiles = [], []
    with SourceReader(db, catalog.dialect, timeout_s) as reader:
        counts = _count_rows(reader, chosen)
        for done, table in enumerate(chosen):
            if on_progress is not None:
                on_progress(done, len(chosen), table.name)
            for following in chosen[done + 1 : done + 2]:
                read_table_profile_ahead(reader, _begin(reader, following, counts), counts.get(following.name), bounds)
            draft, profile = _profile_table(reader, table, counts, bounds, names)
            drafts.append(draft)
            profiles.append(profile)
        if on_progress is not None:
            on_progress(len(chosen), len(chosen), "keys between tables")
        profiles = find_foreign_keys(reader, drafts, profiles, names)
        profiles = find_composite_keys(reader, drafts, profiles, names)
    return SourceProfile(
        source=catalog.source,
        kind=catalog.kind,
        dialect=catalog.dialect,
        fingerprint=catalog.fingerprint,
        tables=tuple(profiles),
        notes=catalog.notes,
        versions={"etude": __version__},
        made_at=datetime.now(UTC),
    )


def _choose(known: Sequence[Table], wanted: Sequence[str] | None) -> list[Table]:
    if wanted is None:
        return list(known)
    by_name = {t.name.lower(): t for t in known}
    missing = [name for name in wanted if name.lower() not in by_name]
    if missing:
        names = ", ".join(f"`{t.name}`" for t in known[:8])
        raise NotFound(f"There is no table `{missing[0]}`.", hint=f"Tables: {names}.")
    return [by_name[name] for name in dict.fromkeys(n.lower() for n in wanted)]


def _count_rows(reader: SourceReader, tables: Sequence[Table]) -> dict[str, int]:
    """Return the row count of each table: exact ones from the catalog, the rest counted in batches."""
    counts = {t.name: t.row_count for t in tables if t.row_count is not None and t.row_count_exact}
    unknown = [t for t in tables if t.name not in counts]
    for start in range(0, len(unknown), 50):
        part = unknown[start : start + 50]
        named = [(i, quote_table(t.name, reader.dialect)) for i, t in enumerate(part)]
        try:
            rows = reader.rows(statements.count_statement(named))
        except STOPS:
            raise
        except EtudeError:
            continue  # a table failed: each is counted by itself later, and the failure is reported then
        counts |= {part[int(i)].name: int(n) for i, n in rows}
    return counts


def _begin(reader: SourceReader, table: Table, counts: Mapping[str, int]) -> TableDraft:
    return draft_table_profile(reader, table, quote_table(table.name, reader.dialect), counts.get(table.name))


def _profile_table(
    reader: SourceReader, table: Table, counts: Mapping[str, int], bounds: Bounds, names: KeyNameWords
) -> tuple[TableDraft | None, TableProfile]:
    draft, rows = _begin(reader, table, counts), counts.get(table.name)
    try:
        try:
            measure_table_profile(reader, draft, rows, bounds)
        except UnknownTable:
            # A dot may be part of the name itself.
            draft = draft_table_profile(reader, table, quote_identifier(table.name, reader.dialect), rows)
            measure_table_profile(reader, draft, rows, bounds)
        return draft, _finish(reader, draft, names)
    except STOPS:
        raise
    except EtudeError as error:
        return None, _failed(reader, table, error)


def _failed(reader: SourceReader, table: Table, error: EtudeError) -> TableProfile:
    columns = tuple(unmeasured_column_profile(c, type_family_of(reader.dialect, c.type)) for c in table.columns)
    return TableProfile(
        name=table.name,
        kind=table.kind,
        comment=table.comment,
        plan="failed",
        columns=columns,
        rows_provenance=Provenance(method="metadata"),
        rows=table.row_count,
        bytes=table.bytes,
        error=error.message,
        notes=table.notes,
    )


def _finish(reader: SourceReader, draft: TableDraft, names: KeyNameWords) -> TableProfile:
    """Build the profile of a table from its draft: columns, keys, dependencies, freshness, sample rows."""
    table = draft.table
    columns = tuple(
        unmeasured_column_profile(column, stats.family, draft.column_notes[i])
        if i in draft.unmeasured
        else profile_column(table.name, column, stats, provenance, draft.column_notes.get(i, ()))
        for i, (column, stats, provenance) in enumerate(zip(table.columns, draft.stats, draft.provenance))
    )
    profile = TableProfile(
        name=table.name,
        kind=table.kind,
        comment=table.comment,
        plan=draft.plan,
        rows=draft.rows,
        bytes=table.bytes,
        columns=columns,
        freshness=find_column_freshness(columns),
        samples=_samples(draft, columns),
    )
    keys, notes = find_table_keys(reader, draft, profile, names)
    dependencies = find_dependencies(reader, draft, profile)
    profile = profile.model_copy(update={"keys": keys, "dependencies": dependencies})
    correlations = find_correlations(draft, profile)
    draft.free_rows()
    notes = (*table.notes, *draft.notes, *notes)
    return profile.model_copy(update={"correlations": correlations, "notes": notes})


def _samples(draft: TableDraft, columns: Sequence[ColumnProfile]) -> Samples | None:
    if not draft.sample_rows or not columns:
        return None
    cells = [distribution_scalars(column[:SHOWN_ROWS], kind) for column, kind in zip(draft.frame, draft.kinds)]
    rows = tuple(mask_row_columns(columns, row) for row in zip(*cells))
    return Samples(columns=tuple(c.name for c in columns), rows=rows)
