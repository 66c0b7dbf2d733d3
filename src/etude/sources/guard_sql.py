"""The guard for databases other than DuckDB: an allow-list over sqlglot's tree and over the tokens that will run.

The text that runs is rebuilt from the checked tokens: comments are removed, each token is proven to be one lexeme of
the engine, and table names are replaced if the engine would not find them as written. The text is not regenerated from
the tree, because that changes results: names of columns (`count(*)` becomes `COUNT(*)`), types (`date_part` becomes
`EXTRACT`, `CAST(x AS NUMERIC)` becomes `REAL`), and functions (MariaDB has no `REGEXP_LIKE`). The guard is one layer;
the others are the engine's read-only transaction, its time limit and the privileges of its role.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from etude.errors import Invalid, InvalidQuery
from etude.sources.base import CheckedQuery
from etude.sources.granted_tables import Granted, TableNamePart, ascii_lower, find_table, resolve_table
from etude.sources.guard_tokens import GuardedStatement, position_at
from etude.sources.guard_tree import TreeCheck
from etude.sources.quoting import quote_identifier, quote_literal
from etude.sources.sql_parsing import check_text_size, too_deep_error


def check_sql(sql: str, dialect: str, granted: Granted, params: int = 0) -> CheckedQuery:
    """Return the statement as it will run and its tables; raise `Refused`, `UnknownTable` or `InvalidQuery`.

    It may have `params` parameters: `$1` and so on for Postgres, `?` for the others.
    """
    if dialect not in _EXPLAIN:
        raise Invalid(
            f"The guard has no rules for the SQL dialect `{dialect}`.",
            hint=f"It has those of {', '.join(_EXPLAIN)}. `docs/add-a-source.md` lists what a new dialect needs.",
        )
    if dialect == "postgres" and granted.callable is None:
        raise ValueError("The guard for Postgres needs `callable`, the functions of the database.")
    check_text_size(sql)
    if "\0" in sql or (not sql.isascii() and any("\ud800" <= c <= "\udfff" for c in sql)):
        raise InvalidQuery(
            "The query contains U+0000 or a lone surrogate, which are not text.", hint="Remove the character."
        )
    try:
        return _check(sql, dialect, granted, params)
    except RecursionError:
        raise too_deep_error() from None


def _check(sql: str, dialect: str, granted: Granted, params: int) -> CheckedQuery:
    if shown := _SHOW_TABLES.fullmatch(sql):
        return CheckedQuery(_rows_query(dialect, ("name",), [(name,) for name in sorted(granted.tables)]), ())
    if shown := _DESCRIBE.fullmatch(sql):
        return _check_describe(sql, shown, dialect, granted)
    if shown := _EXPLAIN[dialect].match(sql):
        # Replace EXPLAIN by blanks, so that the positions in error messages are those in the caller's text.
        inner = _check_query(_blank(sql, shown.end()), dialect, granted, params)
        return CheckedQuery(" ".join(shown.group(1).upper().split()) + " " + inner.sql.lstrip(), inner.tables)
    return _check_counts(sql, dialect, granted) or _check_query(sql, dialect, granted, params)


def _check_counts(sql: str, dialect: str, granted: Granted) -> CheckedQuery | None:
    """Check the statements that etude itself writes for counts and distinct values; None for all other text.

    etude measures every table of a source with these long statements, and parsing them takes ten times as long as
    running them. So a regular expression matches the whole statement: quoted ASCII names and three aggregates. All
    other text is parsed, and on Postgres all text, because a Postgres database can define its own aggregates, operators
    and types.
    """
    grammar = _COUNTS.get(dialect)
    if grammar is None or grammar.fullmatch(sql) is None:
        return None
    tables = set()
    for found in _COUNTED[dialect].finditer(sql):
        path = [part for part in found.groups() if part is not None]
        exact = dialect != "sqlite"
        shown = find_table(path if exact else [ascii_lower(part) for part in path], granted, exact=exact)
        if shown is None:
            return None
        tables.add(shown)
    return CheckedQuery(sql, tuple(sorted(tables)))


def _counts_grammar(quote: str) -> re.Pattern[str]:
    name = f"{quote}[A-Za-z0-9_]+{quote}"
    table = rf"{name}(?:\.{name})?"
    part = rf"(?:COUNT\(\*\)|(?:COUNT|MIN|MAX)\({name}\)|COUNT\(DISTINCT {name}\)) AS c[0-9]+"
    counts = rf"SELECT {part}(?:, {part})* FROM {table}"
    stacked = rf"SELECT [0-9]+ AS n, {part}(?:, (?:{part}|0 AS c[0-9]+))* FROM {table}"
    values = rf"SELECT DISTINCT [0-9]+ AS n, {name} AS v FROM {table} WHERE NOT {name} IS NULL"
    beside = rf"SELECT \* FROM \({counts}\) AS t[0-9]+(?: CROSS JOIN \({counts}\) AS t[0-9]+)*"
    inside = rf"SELECT COUNT\(DISTINCT {name}\) FROM {table} WHERE {name} IN \(SELECT {name} FROM {table}\)"
    listed = rf"SELECT \({inside}\) AS c[0-9]+(?:, \({inside}\) AS c[0-9]+)*"
    several = (rf"{each}(?: UNION ALL {each})*" for each in (stacked, values))
    return re.compile("|".join((counts, beside, inside, listed, *several)))


_QUOTES = {"mysql": "`", "sqlite": '"'}
_COUNTS = {dialect: _counts_grammar(quote) for dialect, quote in _QUOTES.items()}
_COUNTED = {d: re.compile(f" FROM {q}([A-Za-z0-9_]+){q}(?:\\.{q}([A-Za-z0-9_]+){q})?") for d, q in _QUOTES.items()}


def _check_query(sql: str, dialect: str, granted: Granted, params: int) -> CheckedQuery:
    statement = GuardedStatement(sql, dialect, params)
    walk = TreeCheck(statement, granted)
    walk.tree(statement.parse())
    walk.calls()
    if dialect == "postgres":
        walk.fields()
        walk.operators()
        walk.returned_types()
        walk.compare_with_postgres()
        walk.user_code()
    return CheckedQuery(statement.text(walk.edits), tuple(sorted(walk.tables)))


_NAME = r"""((?:[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\])(?:\.(?:[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\]))*)"""
# `\s*(?:;\s*)?`, not `\s*;?\s*`: two runs of blanks side by side take quadratic time on a text that does not match.
_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*(?:;\s*)?", re.IGNORECASE)
_DESCRIBE = re.compile(rf"\s*(?:describe|desc|show\s+columns\s+from)\s+{_NAME}\s*(?:;\s*)?", re.IGNORECASE)
_EXPLAIN = {
    "postgres": re.compile(r"\s*(explain)\s+(?=select|with|values|table|\()(?!\(\s*\w+[\s,)](?!\())", re.IGNORECASE),
    "mysql": re.compile(r"\s*(explain(?:\s+format\s*=\s*json)?)\s+(?=select|with|\()", re.IGNORECASE),
    "sqlite": re.compile(r"\s*(explain(?:\s+query\s+plan)?)\s+(?=select|with|values|\()", re.IGNORECASE),
}
_PARTS = re.compile(r"""[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\]""")


def _blank(sql: str, end: int) -> str:
    return re.sub(r"[^\n]", " ", sql[:end]) + sql[end:]


def _check_describe(sql: str, found: re.Match[str], dialect: str, granted: Granted) -> CheckedQuery:
    parts = [TableNamePart.from_text(text) for text in _PARTS.findall(found.group(1))]
    name, _ = resolve_table(parts, dialect, granted, partial(position_at, sql, found.start(1)))
    rows = [(column, kind, "YES" if null else "NO", key) for column, kind, null, key in granted.describe(name)]
    return CheckedQuery(_rows_query(dialect, ("column_name", "column_type", "null", "key"), rows), (name,))


def _rows_query(dialect: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a query whose result is these rows. They come from the catalog, so no system table is read."""
    names = [quote_identifier(column, dialect) for column in columns]
    literals = [
        [quote_literal(value.replace("\0", ""), dialect) for value in row] for row in rows or [("",) * len(columns)]
    ]
    end = "" if rows else " WHERE 1 = 0"
    if dialect == "mysql":
        first = ", ".join(f"{value} AS {name}" for value, name in zip(literals[0], names))
        others = (", ".join(row) for row in literals[1:])
        return " UNION ALL ".join([f"SELECT {first} FROM dual{end}", *(f"SELECT {row}" for row in others)])
    values = ", ".join(f"({', '.join(row)})" for row in literals)
    shown = ", ".join(f"column{i} AS {name}" for i, name in enumerate(names, 1))
    return f"SELECT {shown} FROM (VALUES {values}) AS shown{end}"
