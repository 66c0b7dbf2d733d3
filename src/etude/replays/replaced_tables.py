"""Tables of a query replaced by subqueries, so that it runs on renamed, cast or mutated data and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

from etude.errors import Refused
from etude.sources.sql_parsing import parse_one_sql


class NotReplaced(Exception):
    """The tables of the query cannot be replaced; the message says why."""


def replace_tables(sql: str, dialect: str, relations: Mapping[str, str]) -> str:
    """Return the query with each of these tables replaced by its subquery; raise `NotReplaced` if that is not certain.

    The keys are names of a catalog, such as `orders` or `public.orders`.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not relations:
        return sql
    try:
        tree = parse_one_sql(sql, dialect)
        wanted = {name: parse_one_sql(text, dialect) for name, text in relations.items()}
    except (SqlglotError, Refused):
        raise NotReplaced("The query cannot be parsed.") from None
    short = {name.rpartition(".")[2].lower(): name for name in relations}
    if len(short) != len(relations) or any(cte.alias.lower() in short for cte in tree.find_all(exp.CTE)):
        raise NotReplaced("A name of the query stands for several tables.")
    if any(column.args.get("db") is not None for column in tree.find_all(exp.Column)):
        raise NotReplaced("The query names a column with its schema.")
    replaced = set()
    for table in list(tree.find_all(exp.Table)):
        name = short.get(table.name.lower())
        if name is None:
            continue
        more = {key for key, value in table.args.items() if value} - {"this", "db", "catalog", "alias"}
        alias = table.args.get("alias")
        if more or (alias is not None and alias.args.get("columns")):
            raise NotReplaced("The query uses a table in a way that a subquery cannot.")
        inner = wanted[name].copy()
        assert isinstance(inner, exp.Query)  # noqa: S101 - every relation is a query
        named = alias.copy() if alias is not None else exp.TableAlias(this=table.this.copy())
        table.replace(exp.Subquery(this=inner, alias=named))
        replaced.add(name)
    if replaced != set(relations):
        raise NotReplaced("The query does not name the table.")
    text = tree.sql(dialect=dialect)
    try:
        same = parse_one_sql(text, dialect) == tree
    except (SqlglotError, RecursionError, Refused):
        same = False
    if not same:
        raise NotReplaced("The query would not be the same.")
    return text
