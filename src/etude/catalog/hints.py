"""Add facts from a profile to a schema to help write queries: inferred keys, few values, ranges, shares of nulls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from etude.catalog.keys.key_names import KeyNameWords
from etude.catalog.model import DATED, EXACT, ColumnProfile, SourceProfile, TableProfile, profile_datetime
from etude.entities import Catalog, Column, ForeignKey, Table
from etude.sources.quoting import quote_literal

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
FEW = 12
"""The values of a column are listed only if there are at most this many."""
_WRITTEN_DATE = re.compile(r"\d{1,4}[-/. ]\w{1,9}[-/. ,]+\d{1,4}|\b[A-Z][a-z]{2,8}\.? \d{1,2},? \d{2,4}")
"""Dates as people write them: 8/21/2015, 21 Aug 2015, August 21, 2015."""
SAMPLE_CHARS = 40
VALUES_CHARS = 160
"""The values of a column are listed only if all of them together have at most this many characters."""
NEAR_KEY = 0.9
"""A column named like a key that has duplicates is pointed out if at least this share of its rows differs."""


def add_catalog_hints(catalog: Catalog, profile: SourceProfile) -> Catalog:
    """Return the schema with descriptions, inferred keys and listed values; declared keys take precedence."""
    known, names = {table.name: table for table in profile.tables}, KeyNameWords(catalog.tables)
    tables = tuple(
        _hinted(table, known[table.name], names) if table.name in known else table for table in catalog.tables
    )
    return catalog.model_copy(update={"tables": tables})


def _hinted(table: Table, profile: TableProfile, names: KeyNameWords) -> Table:
    keys = [key.columns for key in profile.keys]
    key = table.primary_key or (keys[0] if keys else ())
    declared = {key.columns for key in table.foreign_keys}
    found = (
        ForeignKey(columns=k.columns, to_table=k.to_table, to_columns=k.to_columns)
        for k in profile.foreign_keys
        if k.columns not in declared
    )
    linked = {*key, *(c for k in table.foreign_keys for c in k.columns)}
    linked |= {c for k in profile.foreign_keys for c in k.columns}
    measures = {
        c.name
        for c in table.columns
        if c.name not in linked and names.column(table.name, c.name)[-1:] not in (("id",), ("code",))
    }
    return table.model_copy(
        update={
            "columns": tuple(
                _with_values(
                    c, profile.column(c.name), key, "" if key else _near_key(table, c, profile, names), measures
                )
                for c in table.columns
            ),
            "comment": profile.description or table.comment,
            "primary_key": key,
            "foreign_keys": (*table.foreign_keys, *found),
        }
    )


def _near_key(table: Table, column: Column, profile: TableProfile, names: KeyNameWords) -> str:
    """Say that a column looks like the key of its table but has duplicates: a join on it multiplies rows."""
    plain, measured, rows = names.column(table.name, column.name), profile.column(column.name), profile.rows
    if measured is None or not rows or measured.distinct is None or measured.provenance.distinct != EXACT:
        return ""
    if not NEAR_KEY * rows <= measured.distinct < rows:
        return ""
    if plain != ("id",) and not names.names_row_of(table.name, plain):
        return ""
    return f"not unique: {measured.distinct:,} values in {rows:,} rows"


def _with_values(
    column: Column, profile: ColumnProfile | None, key: tuple[str, ...], note: str, measures: set[str]
) -> Column:
    if profile is None:
        return column
    told = "" if profile.masked else _range(profile) or _values(profile, key == (column.name,))
    if not told and not profile.masked and column.name in measures:
        told = _extent(profile) or _sample(profile)
    parts = [profile.description or column.comment or "", note, told, _nulls(profile)]
    return column.model_copy(update={"comment": "; ".join(filter(None, parts)) or None})


def _extent(profile: ColumnProfile) -> str:
    """Return the smallest and the largest value of a column of numbers, with six digits if they have a fraction."""
    low, high = _number(profile.min), _number(profile.max)
    if profile.family not in ("integer", "decimal", "float") or low is None or high is None:
        return ""
    texts = [str(int(end)) if end == int(end) else f"{float(end):.6g}" for end in (low, high)]
    return "..".join(dict.fromkeys(texts))


def _number(value: object) -> Decimal | None:
    """Return a number of a profile, which keeps decimals as text."""
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


def _sample(profile: ColumnProfile) -> str:
    """Return a value of a column of text that holds dates in a form of its own."""
    value = profile.min
    if profile.family != "text" or not isinstance(value, str) or not _WRITTEN_DATE.search(value):
        return ""
    return f"e.g. {_literal(value)}" if len(value) <= SAMPLE_CHARS else ""


def _nulls(profile: ColumnProfile) -> str:
    """Return the share of nulls, if there are any."""
    share = profile.null_share
    if not share or share >= 1:
        return "all null" if share else ""
    return "<1% null" if share < 0.01 else f"{min(round(share * 100), 99)}% null"


def _values(profile: ColumnProfile, is_key: bool) -> str:
    """Return all values of a column of text or whole numbers, if there are few. A value is never cut."""
    few = profile.distinct is not None and 0 < profile.distinct <= FEW and len(profile.top) == profile.distinct
    if not few or profile.family not in ("text", "integer"):
        return ""
    values = sorted((top.value for top in profile.top), key=lambda v: (isinstance(v, str), v))
    if profile.unique and profile.family == "integer" and (not is_key or _are_consecutive(values)):
        return ""  # a measure, or a key that the number of rows tells as well
    shown = ", ".join(_literal(v) if isinstance(v, str) else str(v) for v in values)
    return f"{{{shown}}}" if len(shown) <= VALUES_CHARS else ""


def _literal(value: str) -> str:
    """Return a text as SQL writes it, so that a backslash looks as in a result; line breaks are escaped."""
    return quote_literal(value) if value.isprintable() else repr(value)


def _are_consecutive(values: Sequence[object]) -> bool:
    return any(list(values) == list(range(first, first + len(values))) for first in (0, 1))


def _range(profile: ColumnProfile) -> str:
    """Return the first and the last date of a column; of a text too, if all its values are ISO dates."""
    dated = profile.family in DATED or any(p.kind in DATED and p.share == 1 for p in profile.patterns)
    if not dated or profile_datetime(profile.min) is None or profile_datetime(profile.max) is None:
        return ""
    return f"{_day(str(profile.min))}..{_day(str(profile.max))}"


def _day(text: str) -> str:
    """Return the date of a timestamp; a text of another form stays whole, because its form matters for a query."""
    return text[:10] if _DATE.match(text) else text
