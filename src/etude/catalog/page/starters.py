"""Example queries for a table, generated from its profile, to copy, run and change."""

from __future__ import annotations

from etude.catalog.model import NUMERIC, ColumnProfile, SourceProfile, TableProfile
from etude.errors import Invalid
from etude.sources.quoting import quote_identifier


def starter_queries(profile: SourceProfile, table: TableProfile) -> tuple[tuple[str, str], ...]:
    """Return titles and queries in the source's SQL dialect."""
    try:
        return _queries(profile, table)
    except Invalid:  # a name that no SQL can hold
        return ()


def _queries(profile: SourceProfile, table: TableProfile) -> tuple[tuple[str, str], ...]:
    quoted = _Quoted(profile.dialect)
    name = quoted.table(table.name)
    found = [("A few rows", f"SELECT *\nFROM {name}\nLIMIT 20")]
    when = table.freshness.column if table.freshness else None
    if when is not None:
        found.append(("The newest rows", f"SELECT *\nFROM {name}\nORDER BY {quoted(when)} DESC\nLIMIT 20"))
        found.append(("Rows per month", quoted.monthly(name, when)))
    category = _category(table)
    measure = _measure(table)
    if category is not None:
        total = f",\n       sum({quoted(measure.name)}) AS total" if measure is not None else ""
        found.append(
            (
                f"By {category.name}",
                f"SELECT {quoted(category.name)}, count(*) AS n{total}\nFROM {name}\nGROUP BY 1\nORDER BY 2 DESC",
            )
        )
    for key in table.foreign_keys[:4]:
        if profile.table(key.to_table) is None:
            continue
        on = "\n AND ".join(f"a.{quoted(c)} = b.{quoted(t)}" for c, t in zip(key.columns, key.to_columns))
        found.append(
            (
                f"With {key.to_table}",
                f"SELECT *\nFROM {name} AS a\nJOIN {quoted.table(key.to_table)} AS b\n  ON {on}\nLIMIT 20",
            )
        )
    if table.primary_key is not None:
        columns = ", ".join(quoted(c) for c in table.primary_key.columns)
        found.append(
            ("Repeated keys", f"SELECT {columns}, count(*) AS n\nFROM {name}\nGROUP BY {columns}\nHAVING count(*) > 1")
        )
    return tuple(found)


class _Quoted:
    """Quotes identifiers as a dialect requires."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def __call__(self, name: str) -> str:
        return quote_identifier(name, self._dialect)

    def table(self, name: str) -> str:
        """Quote the name of a table; `schema.table` becomes two identifiers."""
        return ".".join(self(part) for part in name.split(".", 1))

    def monthly(self, table: str, column: str) -> str:
        """Return the query for rows per month of a date column."""
        month = {
            "sqlite": f"strftime('%Y-%m', {self(column)})",
            "mysql": f"date_format({self(column)}, '%Y-%m')",
        }.get(self._dialect, f"date_trunc('month', {self(column)})")
        return f"SELECT {month} AS month, count(*) AS n\nFROM {table}\nGROUP BY 1\nORDER BY 1"


def _key_columns(table: TableProfile) -> set[str]:
    return {c for k in table.keys for c in k.columns} | {c for k in table.foreign_keys for c in k.columns}


def _category(table: TableProfile) -> ColumnProfile | None:
    """Choose a column to group by: few distinct values, mostly filled, not a key."""
    keys = _key_columns(table)
    fit = [
        c
        for c in table.columns
        if c.family in ("text", "boolean", "integer")
        and c.distinct is not None
        and 2 <= c.distinct <= 30
        and c.name not in keys
        and (c.null_share or 0) < 0.5
        and not c.unique
    ]
    return min(fit, key=lambda c: (c.family != "text", c.distinct or 0), default=None)


def _measure(table: TableProfile) -> ColumnProfile | None:
    """Choose a column to sum: a number that is neither a key nor a code."""
    keys = _key_columns(table)
    fit = [c for c in table.columns if c.family in NUMERIC and c.name not in keys and not c.unique]
    fit = [c for c in fit if (c.distinct or 0) > 30 or c.family != "integer"]
    return max(fit, key=lambda c: (c.family == "decimal", c.distinct or 0), default=None)
