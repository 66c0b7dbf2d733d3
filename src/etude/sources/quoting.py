"""Quoting of identifiers and string literals for SQL, and how DuckDB compares identifiers.

sqlglot quotes the statements that it writes. All other code that puts a name or a value into SQL text uses this module.
"""

from __future__ import annotations

from etude.errors import Invalid


def quote_identifier(name: str, dialect: str = "duckdb") -> str:
    """Return the name as a quoted identifier; quotes inside it are doubled."""
    mark = "`" if dialect == "mysql" else '"'
    return mark + _check(name, "name").replace(mark, mark * 2) + mark


def quote_table(name: str, dialect: str = "duckdb") -> str:
    """Quote each part of a table name from a catalog, such as `schema.table`."""
    return ".".join(quote_identifier(part, dialect) for part in name.split("."))


def quote_literal(text: str, dialect: str = "duckdb") -> str:
    """Return the text as a string literal.

    Backslashes are escaped for MySQL only. The drivers make that correct: MySQL sessions run without
    `NO_BACKSLASH_ESCAPES`, Postgres sessions with `standard_conforming_strings`.
    """
    escaped = _check(text, "text").replace("'", "''")
    return f"'{escaped.replace(chr(92), chr(92) * 2)}'" if dialect == "mysql" else f"'{escaped}'"


def fold_duckdb_name(name: str) -> str:
    """Return the name as DuckDB compares it: only ASCII is lower-cased, so a Kelvin sign is not a `k`."""
    return "".join(c.lower() if c.isascii() else c for c in name)


def _check(text: str, what: str) -> str:
    # An engine that uses C strings would stop reading at U+0000, and the literal would never be closed.
    if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
        raise Invalid(
            f"The {what} `{text.encode('unicode_escape').decode()[:200]}` cannot be written in SQL.",
            hint="Use Unicode text without U+0000 and without lone surrogates.",
        )
    return text
