"""Facts from a profile for the offline rules, so that they need not query the data.

A profile is valid only for the data it was made from. The caller has already compared the fingerprints of the tables;
a table without a fingerprint may have changed and is left out.
"""

from __future__ import annotations

from etude.catalog.model import EXACT, ColumnProfile, SourceProfile, profile_number
from etude.entities import Catalog, Column
from etude.offline.vocabulary import RANGED, VocabularyColumn, VocabularyTable, vocabulary_value_kind


def known_tables(catalog: Catalog, profile: SourceProfile) -> dict[str, VocabularyTable]:
    """Return the tables whose data the profile describes exactly.

    Masked values are left out: the rules query the source for them.
    """
    found, by_name = {}, {table.name: table for table in profile.tables}
    for table in catalog.tables:
        measured = by_name.get(table.name)
        if table.fingerprint is None or measured is None or measured.rows is None:
            continue
        columns = [_known(table.name, column, measured.column(column.name)) for column in table.columns]
        if measured.rows_provenance.method == "exact" and None not in columns:
            found[table.name] = VocabularyTable(table.name, measured.rows, tuple(c for c in columns if c))
    return found


def _known(table: str, column: Column, profile: ColumnProfile | None) -> VocabularyColumn | None:
    """Return what the profile knows exactly about a column; None if the rules must count it."""
    if profile is None or profile.nulls is None or profile.provenance.counts.method != "exact":
        return None
    kind = vocabulary_value_kind(column.type)
    distinct = profile.distinct if profile.provenance.distinct == EXACT else None
    if kind != "other" and distinct is None:
        return None
    if profile.masked and kind in RANGED:
        return None
    ranged = (profile.min, profile.max) if kind in RANGED else (None, None)
    low, high = (profile_number(value) if kind == "number" and isinstance(value, str) else value for value in ranged)
    listed = kind == "text" and not profile.masked and profile.provenance.top == EXACT
    values = tuple(sorted(str(top.value) for top in profile.top)) if listed else ()
    counted = distinct or 0 if kind != "other" else 0
    return VocabularyColumn(table, column.name, kind, counted, profile.nulls, low, high, values)
