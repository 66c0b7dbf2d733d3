"""The tables and columns that a query uses, found in its syntax tree; if it cannot be parsed, in its words.

The facts err on the side of more: a name that two tables have counts as used in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etude.errors import Refused
from etude.sources.sql_parsing import parse_one_sql

if TYPE_CHECKING:
    from etude.entities import Table

TIME = re.compile(
    r"\b(current_date|current_time|current_timestamp|localtime|localtimestamp|now|today|getdate|curdate|sysdate|"
    r"utc_timestamp|utc_date|transaction_timestamp|strftime\s*\(\s*'[^']*'\s*,\s*'now'|date\s*\(\s*'now')\b",
    re.IGNORECASE,
)
RANDOM = re.compile(r"\b(random|rand|uuid|gen_random_uuid|newid|setseed|tablesample|using\s+sample)\b", re.IGNORECASE)


@dataclass(frozen=True)
class QueryFacts:
    """What a query uses."""

    columns: Mapping[str, frozenset[str]]
    """By table, the columns that it may use."""
    joined: frozenset[str]
    """Columns that are compared with other columns, in lower case."""
    ordered: bool
    """Whether the outer query orders its rows."""


def read_query_facts(sql: str, dialect: str, tables: Mapping[str, Table]) -> QueryFacts:
    """Return what a query uses of these tables."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one_sql(sql, dialect)
    except (SqlglotError, Refused):
        words = {word.lower() for word in re.findall(r"\w+", sql)}
        used = {n: frozenset(c.name for c in t.columns if c.name.lower() in words) for n, t in tables.items()}
        return QueryFacts(used, frozenset(words), ordered=False)
    short = {name.rpartition(".")[2].lower(): name for name in tables}
    aliases = {t.alias_or_name.lower(): short.get(t.name.lower()) for t in tree.find_all(exp.Table)}
    found: dict[str, set[str]] = {name: set() for name in tables}
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            continue
        qualified = aliases.get(column.table.lower()) if column.table else None
        for name in [qualified] if qualified else tables:
            found[name] |= {c.name for c in tables[name].columns if c.name.lower() == column.name.lower()}
    joined = _joined(tree)
    for name, table in tables.items():
        found[name] |= {c.name for c in table.columns if c.name.lower() in joined}
        if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
            found[name] |= {c.name for c in table.columns}
    ordered = isinstance(tree, exp.Query) and tree.args.get("order") is not None
    return QueryFacts({n: frozenset(c) for n, c in found.items()}, joined, ordered)


def _joined(tree: object) -> frozenset[str]:
    from sqlglot import exp

    assert isinstance(tree, exp.Expression)  # noqa: S101 - for the type checker
    names: set[str] = set()
    for join in tree.find_all(exp.Join):
        names |= {each.name.lower() for each in join.args.get("using") or ()}
    for equal in tree.find_all(exp.EQ):
        if isinstance(equal.this, exp.Column) and isinstance(equal.expression, exp.Column):
            names |= {equal.this.name.lower(), equal.expression.name.lower()}
    return frozenset(names)
