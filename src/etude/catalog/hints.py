"""Add facts from a profile to a schema to help write queries: inferred keys, few values, ranges of dates."""

from __future__ import annotations

from etude.catalog.model import DATED, ColumnProfile, SourceProfile, TableProfile, scalar_to_datetime
from etude.entities import Catalog, Column, ForeignKey, Table

FEW = 12
"""The values of a column are listed only if there are at most this many."""
VALUE_CHARS = 40
VALUES_CHARS = 120
"""The most characters of the values of a column."""


def add_hints(catalog: Catalog, profile: SourceProfile) -> Catalog:
    """Return the schema with descriptions, inferred keys and listed values; declared keys take precedence."""
    known = {table.name: table for table in profile.tables}
    tables = tuple(_hinted(table, known[table.name]) if table.name in known else table for table in catalog.tables)
    return catalog.model_copy(update={"tables": tables})


def _hinted(table: Table, profile: TableProfile) -> Table:
    keys = [key.columns for key in profile.keys]
    declared = {key.columns for key in table.foreign_keys}
    found = (
        ForeignKey(columns=k.columns, to_table=k.to_table, to_columns=k.to_columns)
        for k in profile.foreign_keys
        if k.columns not in declared
    )
    return table.model_copy(
        update={
            "columns": tuple(_with_values(c, profile.column(c.name)) for c in table.columns),
            "comment": profile.description or table.comment,
            "primary_key": table.primary_key or (keys[0] if keys else ()),
            "foreign_keys": (*table.foreign_keys, *found),
        }
    )


def _with_values(column: Column, profile: ColumnProfile | None) -> Column:
    if profile is None:
        return column
    parts = [profile.description or column.comment or "", "" if profile.masked else _range(profile) or _values(profile)]
    return column.model_copy(update={"comment": "; ".join(filter(None, parts)) or None})


def _values(profile: ColumnProfile) -> str:
    """Return all values of a column of text or whole numbers, if there are few."""
    few = profile.distinct is not None and 0 < profile.distinct <= FEW and len(profile.top) == profile.distinct
    if not few or profile.family not in ("text", "integer") or (profile.unique and profile.family == "integer"):
        return ""
    values = sorted((top.value for top in profile.top), key=lambda v: (isinstance(v, str), v))
    shown = ", ".join(repr(v[:VALUE_CHARS]) if isinstance(v, str) else str(v) for v in values)
    return f"{{{shown}}}" if len(shown) <= VALUES_CHARS else ""


def _range(profile: ColumnProfile) -> str:
    """Return the first and the last date of a column; of a text too, if all its values are ISO dates."""
    dated = profile.family in DATED or any(p.kind in DATED and p.share == 1 for p in profile.patterns)
    if not dated or scalar_to_datetime(profile.min) is None or scalar_to_datetime(profile.max) is None:
        return ""
    return f"{str(profile.min)[:10]}..{str(profile.max)[:10]}"
