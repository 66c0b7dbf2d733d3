"""Which columns a query can use: only those it names, if DuckDB's syntax tree proves that it names all it uses.

A query also uses columns without naming them: by a star, a NATURAL join, a position (`#1`), new names for the columns
of a table, the name of a table as a value (a whole row), PIVOT or DESCRIBE. So a tree is accepted only if each of its
parts is on a list of parts that name the columns they use. Anything else needs all columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from etude.sources.base import Json
from etude.sources.functions import allowed_functions
from etude.sources.quoting import fold_duckdb_name

_EXPRESSIONS = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"}
    | {"LAMBDA", "OPERATOR", "PARAMETER", "SUBQUERY", "TYPE", "WINDOW"}
)
_PARTS = frozenset(
    {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"}
    | {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY"}
    | {"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"}
    | {"ORDER_DEFAULT", "ASCENDING", "DESCENDING"}
)
_JOINS = frozenset({"REGULAR", "CROSS", "POSITIONAL", "ASOF"})
_POSITION = frozenset({"query_location", "query_location_length"})


def find_named_columns(tree: Json) -> frozenset[str] | None:
    """Return all names in the tree of a query, folded; None if the query may use columns that it does not name."""
    reader = _Reader()
    reader.read(tree)
    return frozenset(reader.names) if reader.proven else None


def choose_named_columns(columns: Iterable[str], names: frozenset[str] | None) -> list[str]:
    """Return the columns to copy for a query with these names: at least one, and all if `names` is None."""
    listed = list(columns)
    folded = [fold_duckdb_name(c) for c in listed]
    if names is None or len(set(folded)) < len(folded):  # DuckDB renames the second of two equal names
        return listed
    return [c for c, name in zip(listed, folded) if name in names] or listed[:1]


class _Reader:
    """One pass over a tree, without recursion: a tree may be deeper than Python's stack."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._tables: set[str] = set()
        self._values: set[str] = set()
        self._accepted = True

    @property
    def proven(self) -> bool:
        """Whether the query names all columns that it uses. A table's name as a value is a whole row."""
        return self._accepted and not self._tables & self._values

    def read(self, tree: Any) -> None:
        left = [tree]
        while left and self._accepted:
            item = left.pop()
            if isinstance(item, str):
                self.names.add(fold_duckdb_name(item))
            elif isinstance(item, list):
                left += item
            elif isinstance(item, dict):
                self._accepted = self._accepts(item)
                left += self._inside(item)

    def _accepts(self, item: Json) -> bool:
        kind, group = item.get("type"), item.get("class")
        if group is not None:
            return self._accepts_expression(item, group)
        if not isinstance(kind, str):
            return True
        if kind == "JOIN":
            return item.get("ref_type", "REGULAR") in _JOINS
        if kind == "BASE_TABLE":
            path = item["qualified_name"]["path"]
            self._tables |= {fold_duckdb_name(path[-1]), fold_duckdb_name(item.get("alias", ""))}
            return "column_name_alias" not in item
        if kind in ("SUBQUERY", "TABLE_FUNCTION", "EXPRESSION_LIST"):
            self._tables.add(fold_duckdb_name(item.get("alias", "")))
        return kind in _PARTS

    def _accepts_expression(self, item: Json, group: str) -> bool:
        if group == "COLUMN_REF":
            self._values.add(fold_duckdb_name(item["column_names"][-1]))
        elif group in ("FUNCTION", "WINDOW"):
            # Nothing is known about a macro of a source.
            name = fold_duckdb_name(item["qualified_name"]["path"][-1])
            if name not in allowed_functions("duckdb") | allowed_functions("duckdb_tables"):
                return False
        return group in _EXPRESSIONS

    def _inside(self, item: Json) -> Iterable[Any]:
        """Yield the parts of an item, without stars that stand for no column of a table."""
        values = item.get("from_table", {}).get("type") == "EXPRESSION_LIST"
        for part, value in item.items():
            if part == "select_list" and values:
                yield [e for e in value if not _is_plain_star(e, set())]  # `VALUES (...)`
            elif part == "modifiers":
                yield [_without_order_by_all(modifier) for modifier in value]
            else:
                yield value


def _without_order_by_all(modifier: Json) -> Json:
    """Drop `ORDER BY ALL`, which orders by the columns of the result."""
    if modifier.get("type") != "ORDER_MODIFIER":
        return modifier
    orders = [o for o in modifier.get("orders", []) if not _is_plain_star(o.get("expression", {}), {"columns"})]
    return modifier | {"orders": orders}


def _is_plain_star(item: Json, also: set[str]) -> bool:
    return item.get("class") == "STAR" and set(item) <= {"class", "type", *also} | _POSITION
