"""Identifiers and string literals as SQL text: the only place that puts names and values into a statement by hand.

Statements that sqlglot writes quote by themselves; everything else comes through here.
"""

from __future__ import annotations

from etude.errors import Invalid


def quote_identifier(name: str, dialect: str = "duckdb") -> str:
    """The name as an identifier that no character in it can end."""
    mark = "`" if dialect == "mysql" else '"'
    return mark + _check(name, "name").replace(mark, mark * 2) + mark


def quote_table(name: str, dialect: str = "duckdb") -> str:
    """The name of a table as catalogs give it, such as `schema.table`, quoted part by part."""
    return ".".join(quote_identifier(part, dialect) for part in name.split("."))


def quote_literal(text: str, dialect: str = "duckdb") -> str:
    """The text as a string literal.

    Drivers see to it that a backslash means what this assumes: MySQL connects without `NO_BACKSLASH_ESCAPES`, Postgres
    with `standard_conforming_strings`.
    """
    escaped = _check(text, "text").replace("'", "''")
    return f"'{escaped.replace(chr(92), chr(92) * 2)}'" if dialect == "mysql" else f"'{escaped}'"


def _check(text: str, what: str) -> str:
    # An engine that reads C strings would take what follows U+0000 for nothing, and the literal would have no end.
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise Invalid(
            f"The {what} `{text.encode('unicode_escape').decode()[:200]}` cannot be written in SQL.",
            hint="Use Unicode text without U+0000 and without lone surrogates.",
        )
    return text
