"""What Postgres itself reads in a text: one query, its tables, functions and texts, by Postgres's own parser.

The guard checks the tokens and the tree of another parser. Wherever the two read a text differently, something could
run that was not checked. So the text that runs is parsed once more, by `libpg_query`, and both must find the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from etude.errors import InvalidQuery, Refused, Unavailable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Nodes of a query that reads. All others are refused, such as other statements.
_NODES = _words(
    """SelectStmt ResTarget ColumnRef ParamRef String A_Star A_Const Integer Float Boolean
    BitString RangeVar RangeSubselect RangeFunction RangeTableSample JoinExpr Alias ColumnDef WithClause CommonTableExpr
    FuncCall TypeCast TypeName CollateClause A_Expr BoolExpr NullTest BooleanTest SubLink SortBy WindowDef CaseExpr
    CaseWhen CoalesceExpr MinMaxExpr GroupingFunc GroupingSet SQLValueFunction A_ArrayExpr A_Indices A_Indirection
    RowExpr List NamedArgExpr XmlExpr XmlSerialize JsonFormat JsonReturning JsonOutput JsonValueExpr JsonKeyValue
    JsonObjectConstructor JsonArrayConstructor JsonArrayQueryConstructor JsonAggConstructor JsonObjectAgg JsonArrayAgg
    JsonIsPredicate JsonBehavior JsonFuncExpr JsonParseExpr JsonScalarExpr JsonSerializeExpr JsonArgument"""
)
IMPLIED_FUNCTIONS = _words(
    """extract substring overlay position btrim ltrim rtrim normalize is_normalized overlaps timezone like_escape
    similar_to_escape xmlexists"""
)
"""Functions that the grammar itself calls for a clause, such as `timezone` for `AT TIME ZONE`."""
_WRITES = ("intoClause", "lockingClause")
"""Parts of a SELECT that do more than read."""
_TEXTS = ("SCONST", "USCONST", "BCONST", "XCONST", "UIDENT")
_PATHS = ("funcname", "names")
"""The names of a function and of a type, each in parts."""
_TO_TEXT = (["text"], ["pg_catalog", "varchar"], ["varchar"])
_AROUND = 6
_COMMENTS = ("SQL_COMMENT", "C_COMMENT")
# The tree comes as JSON without blanks. It can be thousands of levels deep, so no recursive parser reads it.
_JSON = re.compile(r'"((?:[^"\\]|\\.)*)"(:)?|[{}]')


@dataclass(frozen=True)
class PostgresReading:
    """A query as Postgres reads it. Names are folded; offsets are of the text in UTF-8."""

    tables: frozenset[tuple[str, ...]]
    """Each as (schema, name), or (name,) if the text has no schema."""
    ctes: frozenset[str]
    functions: frozenset[str]
    types: frozenset[tuple[str, ...]]
    """Each as (schema, name), or (name,). The types of SQL's own grammar, such as `integer`, are in `pg_catalog`."""
    texts: frozenset[tuple[int, int]]
    """Where each text and each quoted name starts and ends."""
    bare_typeof: bool = False
    """Whether a result of `pg_typeof` is used other than as a column of the outermost SELECT or cast to text."""


@dataclass
class _Node:
    """A part of the tree; `kind` is empty for parts without one."""

    kind: str
    key: str = ""
    """The key that was read last."""
    names: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    around: tuple[_Node, ...] = ()
    """The innermost of the open nodes around it; the last one is its parent."""


def read_postgres_query(sql: str) -> PostgresReading:
    """Parse the text as Postgres does; raise `Refused` if it is not one query that only reads, or `InvalidQuery`."""
    postgast = load_postgres_grammar()
    try:
        tokens, tree = postgast.scan(sql).tokens, _parse(sql)
    except postgast.PgQueryError as error:
        before = sql[: max(error.cursorpos - 1, 0)]  # in characters, although the package says bytes
        raise InvalidQuery(
            f"Postgres cannot read this query: {error}.",
            hint="Check the syntax near that place.",
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
        ) from None
    tables, ctes, functions, statements = set[tuple[str, ...]](), set[str](), set[str](), 0
    types, typeofs = set[tuple[str, ...]](), list[_Node]()
    for node in _nodes(tree):
        if node.kind == "RangeVar":
            parts = (node.names.get(part) for part in ("catalogname", "schemaname", "relname"))
            tables.add(tuple(part for part in parts if part))
        elif node.kind == "CommonTableExpr":
            ctes.add(node.names["ctename"])
        elif node.kind == "FuncCall":
            functions.add(_function(node.path))
            if node.path[-1] == "pg_typeof" and not _is_column(node):
                # It is a value of a TypeCast or of anything else.
                typeofs.append(node.around[-2])
        elif "names" in node.names:
            types.add(tuple(node.path))
            if node.around[-1].kind == "TypeCast":
                node.around[-1].path = node.path
        statements += "stmt" in node.names
    if statements != 1:
        _refuse("The text is not one statement for Postgres.")
    texts = frozenset(_texts(sql, tokens))
    bare = any(cast.kind != "TypeCast" or cast.path not in _TO_TEXT for cast in typeofs)
    return PostgresReading(frozenset(tables), frozenset(ctes), frozenset(functions), frozenset(types), texts, bare)


def _is_column(call: _Node) -> bool:
    """Return whether a call is a column of the outermost SELECT, which no other query combines with its own."""
    # Around it are: its value in ResTarget, that, an item of a list, SelectStmt, and the statement of the text.
    target, select, text = call.around[-2], call.around[-4], call.around[-6]
    is_item = target.kind == "ResTarget" and (select.kind, select.key) == ("SelectStmt", "targetList")
    return is_item and "stmt" in text.names


def _parse(sql: str) -> str:
    """Return the tree as JSON. Not as the package's messages, which may be a hundred levels deep at most."""
    from postgast.errors import check_error
    from postgast.native import lib

    result = lib.pg_query_parse(sql.encode())
    try:
        check_error(result)
        return str(result.parse_tree.decode())
    finally:
        lib.pg_query_free_parse_result(result)


def _nodes(tree: str) -> Iterator[_Node]:
    """Yield each node once it is complete; refuse nodes that a query that reads does not have."""
    open_nodes = [_Node("")]
    for found in _JSON.finditer(tree):
        text, is_key = found.groups()
        inner = open_nodes[-1]
        if is_key:
            if text in _WRITES:
                _refuse(f"Postgres reads `{text}` in this query, which is not allowed.")
            inner.key, inner.names[text] = text, ""
        elif text is not None:
            value = json.loads(found[0])
            inner.names[inner.key] = value
            if inner.kind == "String" and len(open_nodes) > 2 and open_nodes[-3].key in _PATHS:
                open_nodes[-3].path.append(value)
        elif found[0] == "{":
            kind = inner.key if inner.key[:1].isupper() else ""
            if kind and kind not in _NODES:
                _refuse(f"Postgres reads `{kind}` in this query, which is not allowed.")
            open_nodes.append(_Node(kind))
        else:
            node = open_nodes.pop()
            if node.path:
                node.around = tuple(open_nodes[-_AROUND:])
            yield node


def _texts(sql: str, tokens: Any) -> Iterator[tuple[int, int]]:
    name_of, data = load_postgres_grammar().pg_query_pb2.Token.Name, sql.encode()
    for token in tokens:
        kind = name_of(token.token)
        if kind in _COMMENTS:
            _refuse("Postgres reads a comment in this query, which the guard does not.")
        if kind in _TEXTS or data[token.start : token.start + 1] == b'"':
            yield token.start, token.end


def _function(path: list[str]) -> str:
    """Return the name of a function that is called without a schema, or that the grammar itself calls."""
    if len(path) == 1:
        return path[0]
    if len(path) == 2 and path[0] == "pg_catalog":
        return path[1]
    _refuse(f"Postgres calls the function `{'.'.join(path)}` in this query, which is not allowed.")


def _refuse(message: str) -> NoReturn:
    raise Refused(message, hint="Write the query in plainer SQL.", reason="token")


def load_postgres_grammar() -> Any:
    """Import Postgres's parser; raise `Unavailable` if it is not installed."""
    try:
        import postgast
    except ImportError:
        raise Unavailable(
            "Postgres sources need the package `postgast`.", hint="Install it: pip install 'etude[postgres]'."
        ) from None
    return postgast
