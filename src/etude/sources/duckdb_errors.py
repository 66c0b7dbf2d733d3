"""Errors of DuckDB as errors of etude: invalid queries, and bugs after which its process must end."""

from __future__ import annotations

import re
from collections.abc import Callable

from etude.errors import EtudeError, InvalidQuery, SourceError
from etude.sources.query_hints import type_error


def is_fatal(error: BaseException) -> bool:
    """Return whether the error is a bug inside DuckDB, or means that the database can no longer be used."""
    import duckdb

    fatal = isinstance(error, duckdb.InternalException | duckdb.FatalException)
    return fatal or _FATAL.search(str(error)) is not None


_FATAL = re.compile(r"^(?:INTERNAL|FATAL) Error|database has been invalidated")


def failed_check(error: Exception, sql: str) -> EtudeError:
    """Return the error for a text that DuckDB failed to parse."""
    return broken(str(error)) if is_fatal(error) else invalid_query(error, sql)


def broken(text: str) -> SourceError:
    """Return a fatal error, after which `engine.py` ends the engine."""
    return SourceError(
        f"DuckDB failed: {text.splitlines()[0] if text else 'no reason given'}",
        hint="The query triggers a bug in DuckDB: rewrite it. Other queries get a new engine.",
        fatal=True,
    )


_MARKED = re.compile(r"LINE (\d+): (.*)\n( *)\^", re.MULTILINE)


def invalid_query(error: Exception, sql: str, describe: Callable[[str], str] = str) -> InvalidQuery:
    """Return DuckDB's error about a query: its first paragraph and the line, without the excerpt of the query."""
    message = describe(str(error))
    found = _MARKED.search(message)
    position = {"line": int(found.group(1))} if found else {}
    if (typed := type_error(message, sql, "duckdb")) is not None:
        return InvalidQuery(typed[0], hint=typed[1], **position)
    first = message.split("\n\n")[0].strip().replace("\n", " ")
    hint = ""
    if message.startswith("Parser Error"):
        hint = "The dialect is DuckDB."
    near = re.search(r"Did you mean \"?([^\"?]+)\"?\??|Candidate bindings: (.+)", message)
    if near:
        hint = f"Did you mean {near.group(1) or near.group(2)}?".replace("??", "?")
    return InvalidQuery(first, hint=hint, **position)
