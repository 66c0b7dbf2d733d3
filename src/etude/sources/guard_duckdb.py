"""The guard for DuckDB: an allow-list over the syntax tree that DuckDB's own parser makes of the query.

The text that is checked is, byte for byte, the text that runs. DuckDB has no tree for a PIVOT without a list of values:
such a statement is rewritten first, and the rewritten text is both checked and run. Anything unknown is refused. The
guard is one layer of three: the others are the engine's hardened settings (`duckdb.py`) and the limits of its process
(`engine.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, NoReturn

from etude.errors import InvalidQuery, Refused, UnknownTable
from etude.similar_names import similar_names
from etude.sources.base import CheckedQuery, Json
from etude.sources.cte_scope import CteScope, first_cte_positions
from etude.sources.duckdb_errors import failed_duckdb_check
from etude.sources.functions import allowed_functions
from etude.sources.named_columns import find_named_columns
from etude.sources.query_hints import missing_function_hint
from etude.sources.quoting import fold_duckdb_name

MAX_TEXT = 1 << 20

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_TABLE_REFS = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT", "SHOW_REF"}
)
_PARTS = frozenset(
    {"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"}
    | {"ORDER_DEFAULT", "ASCENDING", "DESCENDING"}
)
_EXPRESSIONS = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"}
    | {"LAMBDA", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW"}
)
_SHOWN = frozenset({"DESCRIBE", "SUMMARY", "SHOW", "SHOW_FROM", "SHOW_UNQUALIFIED", "SHOW_SPECIAL"})
_SPECIAL = frozenset({'"tables"'})
_SPECIAL_IF_ALL_GRANTED = frozenset({'"databases"', "__show_tables_expanded"})
_FUNCTION_SCHEMAS = frozenset({"", "main", "pg_catalog"})
_BY_NAME = frozenset({"list_aggregate", "list_aggr", "aggregate", "array_aggregate", "array_aggr"})
"""Functions that call the aggregate that a text names."""
_BUILT_IN = ["system", "main"]
"""The catalog and schema that DuckDB itself writes before the names of built-in functions."""
_RECURRING = "recurring\0"
"""Before the name of a common table expression with USING KEY, whose own query may read it as `recurring.name`."""
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(?=[a-z(])", re.IGNORECASE)
_KEYWORDS_AFTER_PIVOT_ON = frozenset({"using", "group", "order", "limit", "offset"})


class DuckdbGrantedNames:
    """The tables that a query may read, found by catalog, schema and name as DuckDB finds them, ignoring case."""

    def __init__(
        self, default: str, tables: Iterable[tuple[str, str, str]], all_granted: bool, also: Iterable[str] = ()
    ) -> None:
        self.default = fold_duckdb_name(default)
        # DuckDB looks for a bare name in these after the default, in this order.
        self._searched = (self.default, *map(fold_duckdb_name, also))
        self.all_granted = all_granted
        self._shown: dict[tuple[str, str, str], str] = {}
        self._keys: dict[str, list[tuple[str, str, str]]] = {}
        for catalog, schema, table in tables:
            shown = table if schema == "main" else f"{schema}.{table}"
            if fold_duckdb_name(catalog) != self.default:
                shown = f"{catalog}.{shown}"
            key = (fold_duckdb_name(catalog), fold_duckdb_name(schema), fold_duckdb_name(table))
            self._shown[key] = shown
            self._keys.setdefault(shown, []).append(key)

    def find(self, path: list[str]) -> str | None:
        """Return the display name of a granted table, or None if the path does not name one."""
        parts = [fold_duckdb_name(p) for p in path]
        if len(parts) == 1:
            keys = [(catalog, "main", parts[0]) for catalog in self._searched]
        elif len(parts) == 2:
            keys = [(self.default, parts[0], parts[1]), (parts[0], "main", parts[1])]
        elif len(parts) == 3:
            keys = [(parts[0], parts[1], parts[2])]
        else:
            keys = []
        return next((self._shown[k] for k in keys if k in self._shown), None)

    def has_schema(self, name: str) -> bool:
        """Return whether a granted table is in a schema or catalog of this name, in lower case."""
        return any(name in key[:2] for key in self._shown)

    def keys_of(self, shown: str) -> list[tuple[str, str, str]]:
        """Return catalog, schema and name, folded, of each table that has this display name."""
        return self._keys.get(shown, [])

    def nearest(self, path: list[str]) -> str:
        """Return a hint that names the most similar table, or the first few tables if none is similar."""
        shown = sorted(self._shown.values())
        # A table may be named without its schema.
        by_name = {name.rpartition(".")[2].lower(): name for name in reversed(shown)}
        by_name |= {name.lower(): name for name in shown}
        near = similar_names(".".join(path).lower(), by_name, n=1) or similar_names(path[-1].lower(), by_name, n=1)
        if near:
            return f"Did you mean `{by_name[near[0]]}`?"
        listed = ", ".join(f"`{s}`" for s in shown[:8])
        return f"Tables: {listed}{', ...' if len(shown) > 8 else ''}." if shown else "The source has no tables."


class DuckdbGuard:
    """Checks statements against the granted tables and the allowed functions."""

    def __init__(
        self,
        connection: Any,
        names: DuckdbGrantedNames,
        macros: Callable[[], Iterable[str]] = tuple,
        check_uses: Callable[[Iterable[str], Iterable[str]], None] | None = None,
        function_schemas: Iterable[str] = (),
    ) -> None:
        """`check_uses` gets the tables and functions of each statement, and may refuse them."""
        self._connection = connection
        self._names = names
        self._check_uses = check_uses
        self._function_schemas = _FUNCTION_SCHEMAS | frozenset(function_schemas)
        self._functions = allowed_functions("duckdb")
        self._table_functions = allowed_functions("duckdb_tables")
        # Listed once a query calls a function that is not on the lists: DuckDB takes long to list them.
        self._macros = cache(lambda: frozenset(m.lower() for m in macros()))

    def check(self, sql: str, params: int = 0) -> CheckedQuery:
        """Return the statement to run and the tables it reads; raise `Refused`, `UnknownTable` or `InvalidQuery`.

        It may have `params` parameters, from `$1` on.
        """
        if len(sql) > MAX_TEXT:
            raise Refused(
                f"The query has {len(sql):,} characters; the limit is {MAX_TEXT:,}.",
                hint="Split the query, or join with a table instead of listing values.",
            )
        if "\0" in sql:
            raise InvalidQuery("The query contains a NUL character.", hint="Remove the character U+0000.")
        kind = self._kind(sql)
        if kind == "SELECT":
            return CheckedQuery(sql, self._check_select(sql, sql, params), select=True)
        if found := _EXPLAIN.match(sql):
            return self._check_explain(sql, found, params)
        if kind == "MULTI":
            return self._check_pivot(sql)
        if kind == "EXPLAIN":
            raise Refused(
                "This form of `EXPLAIN` is not supported.",
                hint="Write `EXPLAIN query` or `EXPLAIN ANALYZE query`, without options or comments before the query.",
                reason="statement",
            )
        raise Refused(
            f"`{kind.replace('_', ' ')}` statements are refused: a source is read-only.",
            hint="Write a query: SELECT, WITH, FROM, VALUES, PIVOT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN.",
            reason="statement",
            line=1,
            column=1,
        )

    def named_columns(self, sql: str) -> frozenset[str] | None:
        """Return all names in a query, without checking it; None if it may use columns that it does not name."""
        try:
            return find_named_columns(self._tree(sql, sql))
        except (InvalidQuery, Refused, RecursionError):
            return None  # the text is checked again before it runs, and the error is raised there

    def _kind(self, sql: str) -> str:
        """Return DuckDB's name for the kind of the only statement in the text."""
        statement = self._one_statement(sql)
        try:
            return str(statement.type.name)
        except ValueError:  # DuckDB's parser knows this kind of statement, but its Python package does not
            return "UNKNOWN"

    def _one_statement(self, sql: str) -> Any:
        import duckdb

        try:
            statements = self._connection.extract_statements(sql)
        except duckdb.Error as error:
            raise failed_duckdb_check(error, sql) from None
        if len(statements) != 1:
            raise Refused(
                f"The text contains {len(statements)} statements; a query is exactly one.",
                hint="Send one statement at a time." if statements else "Write a query, such as `SELECT 1`.",
                reason="statements",
            )
        return statements[0]

    def _check_explain(self, sql: str, found: re.Match[str], params: int) -> CheckedQuery:
        # Build the text that runs from the part that was checked, so that nothing unchecked comes before it.
        inner = self.check(sql[found.end() :], params)
        text = ("EXPLAIN ANALYZE " if found.group(1) else "EXPLAIN ") + inner.sql
        if _EXPLAIN.match(inner.sql) or self._kind(text) != "EXPLAIN":
            raise Refused(
                "This `EXPLAIN` cannot be checked: it does not explain one plain query.",
                hint="Write `EXPLAIN` once, followed by a SELECT.",
                reason="statement",
            )
        return CheckedQuery(text, inner.tables, enums=inner.enums, written=sql)

    def _check_pivot(self, sql: str) -> CheckedQuery:
        """Rewrite a PIVOT without a list of values as one statement that takes the values from named enumerations.

        DuckDB itself runs such a PIVOT as three statements: create an enumeration of the values, read it, drop it.
        These have no tree that could be checked. So the driver creates the enumerations from queries that were checked,
        and the text that names them is checked and run like any other.
        """
        prefix = "__pivot_enum"
        while prefix in fold_duckdb_name(sql):
            prefix += "_"
        text, count = _name_pivots(sql, prefix)
        if not count or self._kind(text) != "SELECT":
            raise Refused(
                "This `PIVOT` cannot be checked, because it does not list its values.",
                hint="List the values: `PIVOT t ON column IN (...)`.",
                reason="statement",
            )
        tree = self._tree(text, sql)
        enums = tuple(_Enums(prefix).collect(tree))
        if sorted(name for name, _ in enums) != sorted(f"{prefix}_{n}" for n in range(count)):
            raise Refused(
                "This `PIVOT` cannot be checked, because it does not list its values.",
                hint="List the values: `PIVOT t ON column IN (...)`.",
                reason="statement",
            )
        tables = set(self._walk(tree, None))
        queries = []
        for name, values in enums:
            query = self._print(values)
            tables |= set(self._check_select(query, sql))
            queries.append((name, query))
        return CheckedQuery(text, tuple(sorted(tables)), enums=tuple(queries), written=sql)

    def _print(self, node: Json) -> str:
        """Return the tree as SQL text; refuse it if DuckDB does not parse that text to the same tree."""
        import duckdb

        tree = json.dumps({"error": False, "statements": [{"node": node}]})
        try:
            ((text,),) = self._connection.execute("SELECT json_deserialize_sql($1)", [tree]).fetchall()
        except duckdb.Error as error:
            raise failed_duckdb_check(error, "") from None
        if _without_positions(self._tree(text, text)) != _without_positions(node):
            raise Refused(
                "This `PIVOT` cannot be checked, because it does not list its values.",
                hint="List the values: `PIVOT t ON column IN (...)`.",
                reason="statement",
            )
        return str(text)

    def _check_select(self, text: str, original: str, params: int = 0) -> tuple[str, ...]:
        return self._walk(self._tree(text, original), original if text == original else None, params)

    def _walk(self, node: Json, text: str | None, params: int = 0) -> tuple[str, ...]:
        allowed = _Allowed(self._functions, self._table_functions, self._macros, self._function_schemas)
        walk = _Walk(self._names, allowed, text, params)
        walk.node(node, None)
        if self._check_uses is not None:
            self._check_uses(walk.tables, walk.functions)
        return tuple(sorted(walk.tables))

    def _tree(self, text: str, original: str) -> Json:
        import duckdb

        try:
            rows = self._connection.execute(
                "SELECT json_serialize_sql($1, skip_null := true, skip_empty := true, skip_default := true)",
                [text],
            ).fetchall()
        except duckdb.Error as error:
            raise failed_duckdb_check(error, original) from None
        try:
            tree = json.loads(rows[0][0])
        except ValueError:
            tree = {"error": True, "error_message": "DuckDB returned an invalid syntax tree"}
        if tree.get("error"):
            raise Refused(
                f"The statement cannot be checked: {tree.get('error_message', 'DuckDB has no syntax tree for it')}.",
                hint="Write the statement as a SELECT.",
                reason="statement",
            )
        statements = tree["statements"]
        if len(statements) != 1:
            raise Refused(
                f"The text contains {len(statements)} statements; a query is exactly one.",
                hint="Send one statement at a time.",
                reason="statements",
            )
        node: Json = statements[0]["node"]
        return node


def _without_positions(item: Any) -> Any:
    if isinstance(item, list):
        return [_without_positions(each) for each in item]
    if isinstance(item, dict):
        return {k: _without_positions(v) for k, v in item.items() if not k.startswith("query_location")}
    return item


def _name_pivots(sql: str, prefix: str) -> tuple[str, int]:
    """Add `IN enumeration` to each PIVOT ON expression that lists no values; return the text and how many were added.

    The rest of the text stays the same, byte for byte: comments, blanks and line ends keep their meaning.
    """
    import duckdb

    raw = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [*(position for position, _ in tokens[1:]), len(raw)]
    spans: list[tuple[int, int]] = []
    words: list[str] = []
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind != duckdb.token_type.comment:
            word = raw[start:end].decode(errors="replace").rstrip()
            words.append(word)
            spans.append((start, start + len(word.encode())))
    inserted: list[tuple[int, int, bytes]] = []
    for number, (first, last) in enumerate(_pivot_elements(words)):
        inserted.append((spans[first][0], 1, b"("))
        inserted.append((spans[last][1], 0, f') IN "{prefix}_{number}"'.encode()))
    # Insert from the end, so that earlier offsets stay valid. If one element ends where another begins, its closing
    # text goes in after the other's bracket, so that it comes first.
    for offset, _, text in sorted(inserted, reverse=True):
        raw = raw[:offset] + text + raw[offset:]
    return raw.decode(), len(inserted) // 2


class _Enums:
    """Collects the queries for the values of named enumerations, inner ones first, each with the CTEs in its scope."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._found: list[tuple[str, Json]] = []

    def collect(self, tree: Json) -> list[tuple[str, Json]]:
        self._visit(tree, ())
        return self._found

    def _visit(self, item: Any, scopes: tuple[list[Json], ...]) -> None:
        if isinstance(item, list):
            for each in item:
                self._visit(each, scopes)
        elif isinstance(item, dict):
            entries = item.get("cte_map", {}).get("map", [])
            for position, entry in enumerate(entries):
                self._visit(entry, (*scopes, entries[:position]) if position else scopes)
            inner = (*scopes, entries) if entries else scopes
            for part, value in item.items():
                if part != "cte_map":
                    self._visit(value, inner)
            if item.get("type") == "PIVOT":
                for column in item.get("pivots", []):
                    if str(column.get("pivot_enum", "")).startswith(self._prefix):
                        self._found.append((column["pivot_enum"], _values(item, column, scopes)))


def _values(pivot: Json, column: Json, scopes: tuple[list[Json], ...]) -> Json:
    """Build `SELECT DISTINCT CAST(expr AS VARCHAR) FROM source WHERE expr IS NOT NULL ORDER BY 1` as a tree."""
    (expression,) = column["pivot_expressions"]
    kind = {"class": "TYPE", "type": "TYPE", "type_name": "VARCHAR", "qualified_name": {"path": ["VARCHAR"]}}
    first = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": "INTEGER", "text": "1"}}
    order = {"type": "ORDER_DEFAULT", "null_order": "ORDER_DEFAULT", "expression": first}
    node: Json = {
        "type": "SELECT_NODE",
        "modifiers": [{"type": "DISTINCT_MODIFIER"}, {"type": "ORDER_MODIFIER", "orders": [order]}],
        "cte_map": {},
        "select_list": [{"class": "CAST", "type": "OPERATOR_CAST", "child": expression, "type_expr": kind}],
        "from_table": pivot["source"],
        "where_clause": {"class": "OPERATOR", "type": "OPERATOR_IS_NOT_NULL", "children": [expression]},
        "aggregate_handling": "STANDARD_HANDLING",
    }
    for entries in reversed(scopes):
        node = {
            "type": "SELECT_NODE",
            "cte_map": {"map": entries},
            "select_list": [{"class": "STAR", "type": "STAR"}],
            "from_table": {"type": "SUBQUERY", "subquery": {"node": node}},
            "aggregate_handling": "STANDARD_HANDLING",
        }
    return node


def _pivot_elements(words: list[str]) -> list[tuple[int, int]]:
    """Return the first and last word of each element without IN in the ON lists of all PIVOTs."""
    return [
        element
        for start, word in enumerate(words)
        if word.lower() in ("pivot", "pivot_wider")
        for element in _on_list(words, start)
    ]


def _on_list(words: list[str], start: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last word of each element without IN in the ON list of the PIVOT at `start`."""
    depth, first, has_in = 0, None, False
    for index in range(start + 1, len(words) + 1):
        word = words[index].lower() if index < len(words) else ";"
        closes = depth == 0 and (word in _KEYWORDS_AFTER_PIVOT_ON or word in (")", ";"))
        if first is not None and depth == 0 and (closes or word == ","):
            if not has_in and first < index:
                yield first, index - 1
            first, has_in = index + 1, False
        if closes:
            return
        if depth == 0 and word == "on" and first is None:
            first = index + 1
        has_in = has_in or (depth == 0 and first is not None and word == "in")
        depth += (word in {"(", "[", "{"}) - (word in {")", "]", "}"})


class _Allowed(NamedTuple):
    """The functions that a statement may call."""

    functions: frozenset[str]
    table_functions: frozenset[str]
    macros: Callable[[], frozenset[str]]
    schemas: frozenset[str]


class _Walk:
    """One pass over a tree. `scope` holds the names of the common table expressions that a node can see, if any."""

    def __init__(
        self,
        names: DuckdbGrantedNames,
        allowed: _Allowed,
        text: str | None,
        params: int = 0,
    ) -> None:
        self.tables: set[str] = set()
        self.functions: set[str] = set()
        self._names = names
        self._allowed = allowed
        self._text = text
        self._params = {str(number) for number in range(1, params + 1)}

    def node(self, node: Json, scope: CteScope | None, keyed: bool = False) -> None:
        """Check a query node; `keyed` if it is the query of a common table expression with USING KEY."""
        kind = node.get("type")
        if kind not in _QUERY_NODES:
            self._refuse(node, f"`{kind}`", "node")
        entries = node.get("cte_map", {}).get("map", [])
        names = first_cte_positions(fold_duckdb_name(entry["key"]) for entry in entries)
        for position, entry in enumerate(entries):
            # A common table expression sees only those before it, and itself if it is recursive.
            before = CteScope(names, position, scope)
            for part, value in entry["value"].items():
                if part == "query_node":
                    self.node(value, before, bool(entry["value"].get("key_targets")))
                else:
                    self.anything(value, before)
        scope = CteScope(names, len(entries), scope) if entries else scope
        own = scope
        if kind == "RECURSIVE_CTE_NODE":
            name = fold_duckdb_name(str(node.get("cte_name", "")))
            own = CteScope({name: 0} | ({_RECURRING + name: 0} if keyed else {}), 1, scope)
        for part, value in node.items():
            if part == "cte_map":
                continue
            self.anything(value, own if part == "right" else scope)

    def anything(self, value: Any, scope: CteScope | None) -> None:
        if isinstance(value, list):
            for item in value:
                self.anything(item, scope)
        elif isinstance(value, dict):
            self._visit(value, scope)

    def _visit(self, item: Json, scope: CteScope | None) -> None:
        kind, group = item.get("type"), item.get("class")
        if group is not None:
            self._expression(item, str(group), scope)
        elif isinstance(kind, str):
            if kind in _QUERY_NODES:
                self.node(item, scope)
                return
            if kind not in _TABLE_REFS and kind not in _PARTS:
                self._refuse(item, f"`{kind}`", "node")
            self._reference(item, kind, scope)
        if kind == "TABLE_FUNCTION" and group is None:
            return
        for part, value in item.items():
            if part != "qualified_name":
                self.anything(value, scope)

    def _expression(self, item: Json, group: str, scope: CteScope | None) -> None:
        if group == "PARAMETER":
            if item.get("identifier") not in self._params:
                hint = "Give its value beside the query: `--param VALUE`, or `db.sql(query, [value])` in Python."
                self._refuse(item, "a parameter (`?` or `$1`) without a value", "parameter", hint=hint)
            return
        if group not in _EXPRESSIONS:
            self._refuse(item, f"the expression `{group}`", "node")
        if group in ("FUNCTION", "WINDOW"):
            self._function(item, self._allowed.functions, "function")

    def _reference(self, item: Json, kind: str, scope: CteScope | None) -> None:
        if kind == "BASE_TABLE":
            self._table(item, item["qualified_name"]["path"], scope)
        elif kind == "TABLE_FUNCTION":
            function = item.get("function", {})
            self._function(function, self._allowed.table_functions, "table function", at=item)
            for part, value in item.items():
                if part == "function":
                    for inner, argument in function.items():
                        if inner != "qualified_name":
                            self.anything(argument, scope)
                else:
                    self.anything(value, scope)
        elif kind == "SHOW_REF":
            self._show(item)

    def _table(self, item: Json, path: list[str], scope: CteScope | None) -> None:
        if scope is not None and path:
            name = fold_duckdb_name(path[-1])
            if len(path) == 1 and scope.sees(name):
                return
            # If a schema has that name, DuckDB may read its table instead.
            recurring = len(path) == 2 and fold_duckdb_name(path[0]) == "recurring"
            if recurring and scope.sees(_RECURRING + name) and not self._names.has_schema("recurring"):
                return
        found = self._names.find(path)
        if found is None:
            shown = ".".join(path)
            raise UnknownTable(
                f"`{shown}` is not a table of this source.",
                hint=self._names.nearest(path),
                reason="table",
                **self._position(item),
            )
        self.tables.add(found)

    def _function(self, item: Json, allowed: frozenset[str], noun: str, at: Json | None = None) -> None:
        if item.get("class") not in ("FUNCTION", "WINDOW"):
            self._refuse(at or item, f"this {noun}", "function")
        path = [
            fold_duckdb_name(p) for p in item.get("qualified_name", {}).get("path", [item.get("function_name", "")])
        ]
        if path[:-1] == _BUILT_IN:
            path = path[-1:]
        if path[-1] not in allowed:
            allowed |= self._allowed.macros()
        self.functions.add(path[-1])
        if path[-1] in _BY_NAME:
            self._called_by_name(item, at or item)
        if path[-1] not in allowed or len(path) > 2 or (len(path) == 2 and path[0] not in self._allowed.schemas):
            name = ".".join(path)
            near = similar_names(path[-1], allowed, n=1, cutoff=0.8)
            hint = "Read a table of this source instead; `SHOW TABLES` lists them." if noun == "table function" else ""
            missing = missing_function_hint(path[-1], "duckdb") if noun == "function" and len(path) == 1 else None
            if missing is not None:
                raise Refused(missing[0], hint=missing[1], reason="function", **self._position(at or item))
            if near and near[0] != path[-1]:
                hint = f"Did you mean `{near[0]}`?"
            self._refuse(at or item, f"the {noun} `{name}`", "function", hint=hint)

    def _called_by_name(self, item: Json, at: Json) -> None:
        """Check the aggregate that `list_aggregate(list, 'name')` calls."""
        given = [argument.get("expression", {}).get("literal", {}) for argument in item.get("arguments", [])]
        # The first is a text in `list.list_aggregate('name')`, if `list` is a column with the name of a schema.
        texts = [literal.get("text", "") for literal in given[:2] if literal.get("kind") == "STRING"]
        name = fold_duckdb_name(str(texts[0])) if len(texts) == 1 and given[1:] and given[1] else ""
        if name not in self._allowed.functions:
            hint = "Name an aggregate that a query may call, as a text: `list_aggregate(list, 'sum')`."
            self._refuse(
                at, f"the aggregate `{name}`" if name else "an aggregate without a plain name", "function", hint
            )
        self.functions.add(name)

    def _show(self, item: Json) -> None:
        if item.get("show_type") not in _SHOWN:
            self._refuse(item, f"`SHOW` of the kind `{item.get('show_type')}`", "node")
        if "query" in item:
            return
        path = item.get("qualified_name", {}).get("path", [])
        special = item.get("table_name", "")
        if item.get("show_type") == "SHOW_SPECIAL":
            allowed = _SPECIAL | _SPECIAL_IF_ALL_GRANTED if self._names.all_granted else _SPECIAL
            if special not in allowed:
                self._refuse(
                    item, f"`SHOW {special}`", "show", hint="Use `SHOW TABLES`, or `DESCRIBE` and the name of a table."
                )
        elif path:
            self._table(item, path, None)  # DuckDB describes the table, also if a common table expression has its name
        else:
            self._refuse(item, "this `SHOW`", "show", hint="Use `SHOW TABLES`, or `DESCRIBE` and the name of a table.")

    def _refuse(self, item: Json, what: str, reason: str, hint: str = "") -> NoReturn:
        raise Refused(
            f"Refused: {what} is not allowed in a query.",
            hint=hint
            or "A query may use only the functions and clauses on the allow-list, and the tables of this source.",
            reason=reason,
            **self._position(item),
        )

    def _position(self, item: Json) -> dict[str, int]:
        offset = item.get("query_location")
        if offset is None or self._text is None:
            return {}
        return duckdb_line_of_offset(self._text, offset)


def duckdb_line_of_offset(text: str, offset: int) -> dict[str, int]:
    """Return the line and column of a byte offset, counted from 1."""
    before = text.encode()[:offset].decode(errors="ignore")
    return {"line": before.count("\n") + 1, "column": len(before) - (before.rfind("\n") + 1) + 1}
