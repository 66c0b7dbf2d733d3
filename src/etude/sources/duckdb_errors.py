"""Errors of DuckDB as errors of etude: invalid queries, and bugs after which its process must end."""

from __future__ import annotations

import re
from collections.abc import Callable

from etude.errors import EtudeError, InvalidQuery, SourceError, cut_message
from etude.similar_names import similar_names
from etude.sources.query_hints import suggest_query_word, type_error_hint


def reraise_duckdb_limit(error: Exception) -> None:
    """Raise the error again if it is a limit or a cancel: reading in another way would not help."""
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException | duckdb.InterruptException):
        raise error


def is_fatal_duckdb_error(error: BaseException) -> bool:
    """Return whether the error is a bug inside DuckDB, or means that the database can no longer be used."""
    import duckdb

    fatal = isinstance(error, duckdb.InternalException | duckdb.FatalException)
    return fatal or _FATAL.search(str(error)) is not None


_FATAL = re.compile(r"^(?:INTERNAL|FATAL) Error|database has been invalidated")


def failed_duckdb_check(error: Exception, sql: str) -> EtudeError:
    """Return the error for a text that DuckDB failed to parse."""
    return broken_duckdb_error(str(error)) if is_fatal_duckdb_error(error) else invalid_duckdb_query(error, sql)


def broken_duckdb_error(text: str) -> SourceError:
    """Return a fatal error, after which `engine.py` ends the engine."""
    return SourceError(
        f"DuckDB failed: {cut_message(text).splitlines()[0] if text else 'no reason given'}",
        hint="The query triggers a bug in DuckDB: rewrite it. Other queries get a new engine.",
        fatal=True,
    )


_MARKED = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.MULTILINE)


def invalid_duckdb_query(error: Exception, sql: str, describe: Callable[[str], str] = str) -> InvalidQuery:
    """Return DuckDB's error about a query: its first paragraph and the line, without the excerpt of the query."""
    message = describe(cut_message(str(error)))
    found = _MARKED.search(message)
    position = {"line": int(found.group(1))} if found else {}
    if (typed := type_error_hint(message, sql, "duckdb")) is not None:
        return InvalidQuery(typed[0], hint=typed[1], **position)
    first = message.split("\n\n")[0].strip().replace("\n", " ")
    return InvalidQuery(first, hint=_hint(message), **position)


def _hint(message: str) -> str:
    if message.startswith("Conversion Error"):
        return "A value does not have that type: `TRY_CAST(x AS type)` returns null for it, or filter such rows out."
    if message.startswith(("Out of Range Error", "Invalid Input Error")):
        return "Check the values that the query computes with."
    near = re.search(r"Did you mean \"?([^\"?]+)\"?\??|Candidate bindings: (.+)", message)
    if near is None:
        parser = message.startswith("Parser Error")
        misspelt = re.search(r'syntax error at or near "(\w{3,20})"', message) if parser else None
        said = suggest_query_word(misspelt[1]) if misspelt else ""
        return f"{said}Check the {'syntax: the dialect is DuckDB' if parser else 'names and the syntax of the query'}."
    named = [name.strip(' "') for name in (near.group(1) or near.group(2)).split(", ")]
    wanted = re.search(r'column "([^"]+)" not found|Table with name (\S+) does not exist', message)
    if near.group(2) and wanted:
        # DuckDB lists columns that are not alike at all.
        close = similar_names((wanted.group(1) or wanted.group(2)).lower(), [n.lower() for n in named], n=1)
        if not close:
            return f"Columns: {', '.join(f'`{n}`' for n in named)}."
        named = [n for n in named if n.lower() == close[0]]
    return f"Did you mean {', '.join(f'`{n}`' for n in named)}?"
