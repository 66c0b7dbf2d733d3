"""What a profile tells the rules that read questions, so that they need not look at the data for it.

A profile holds only for the data that it was made of. Whoever found it compared the fingerprints of the tables with
what they are now; a table without one may have changed since, and is left to be looked at.
"""

from __future__ import annotations

from etude.catalog.model import EXACT, ColumnProfile, SourceProfile, number
from etude.entities import Catalog, Column
from etude.offline.vocabulary import RANGED, KnownColumn, KnownTable, kind_of_value


def known_tables(catalog: Catalog, profile: SourceProfile) -> dict[str, KnownTable]:
    """The tables whose data is known to be that of the profile, as the rules know them; all figures are exact.

    Masked values are left out: the rules ask the source itself for those.
    """
    found, by_name = {}, {table.name: table for table in profile.tables}
    for table in catalog.tables:
        measured = by_name.get(table.name)
        if table.fingerprint is None or measured is None or measured.rows is None:
            continue
        columns = [_known(table.name, column, measured.column(column.name)) for column in table.columns]
        if measured.rows_provenance.method == "exact" and None not in columns:
            found[table.name] = KnownTable(table.name, measured.rows, tuple(c for c in columns if c))
    return found


def _known(table: str, column: Column, profile: ColumnProfile | None) -> KnownColumn | None:
    """A column as far as the profile knows it exactly; None where it must be counted."""
    if profile is None or profile.nulls is None or profile.provenance.counts.method != "exact":
        return None
    kind = kind_of_value(column.type)
    distinct = profile.distinct if profile.provenance.distinct == EXACT else None
    if kind != "other" and distinct is None:
        return None
    if profile.masked and kind in RANGED:
        return None
    ranged = (profile.min, profile.max) if kind in RANGED else (None, None)
    low, high = (number(value) if kind == "number" and isinstance(value, str) else value for value in ranged)
    told = kind == "text" and not profile.masked and profile.provenance.top == EXACT
    values = tuple(sorted(str(top.value) for top in profile.top)) if told else ()
    counted = distinct or 0 if kind != "other" else 0
    return KnownColumn(table, column.name, kind, counted, profile.nulls, low, high, values)
