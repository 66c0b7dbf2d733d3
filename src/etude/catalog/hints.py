"""Add facts from a profile to a schema to help write queries: inferred keys, and the values of a column."""

from __future__ import annotations

from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.entities import Catalog, Column, ForeignKey, Table

FEW = 12
"""The values of a column are listed only if there are at most this many."""
VALUE_CHARS = 40


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
    parts = [profile.description or column.comment or ""]
    if profile.family == "text" and not profile.masked and profile.distinct and profile.distinct <= FEW:
        values = [str(top.value)[:VALUE_CHARS] for top in profile.top]
        more = ", ..." if len(values) < profile.distinct else ""
        parts.append(f"values: {', '.join(map(repr, values))}{more}")
    return column.model_copy(update={"comment": "; ".join(filter(None, parts)) or None})
