"""Plans run for real: the same plan gives the same rows on every engine, and nothing in it can break out."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
import sqlglot
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etude.entities import Catalog, Column, ForeignKey, Table
from etude.errors import Invalid, LimitExceeded
from etude.sources.plan import parse_plan
from etude.sources.plan.compile import compile_plan

DIALECTS = ("duckdb", "postgres", "mysql", "sqlite")
DOCS = Path(__file__).parents[3] / "docs" / "plan.md"

TABLES: dict[str, dict[str, str]] = {
    "customers": {"id": "integer", "name": "text", "country": "text", "vip": "boolean", "created_at": "timestamp"},
    "products": {"id": "integer", "name": "text", "category": "text", "list_price": "decimal(10,2)"},
    "orders": {
        "id": "integer",
        "customer_id": "integer",
        "status": "text",
        "order_date": "date",
        "shipped_at": "timestamp",
    },
    "order_lines": {
        "order_id": "integer",
        "product_id": "integer",
        "quantity": "integer",
        "unit_price": "decimal(10,2)",
    },
}
KEYS = {
    "orders": [("customer_id", "customers", "id")],
    "order_lines": [("order_id", "orders", "id"), ("product_id", "products", "id")],
}
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "customers": [
        (1, "Ada", "PT", True, "2023-11-05 10:30:00"),
        (2, "Bo", "DE", False, "2024-01-01 00:00:00"),
        (3, "Cy", "PT", None, "2024-02-29 23:59:59"),
        (4, "50%_off\\'n", None, False, None),
    ],
    "products": [
        (1, "Tea", "drinks", 3.50),
        (2, "Coffee", "drinks", 6.25),
        (3, "Cup", "ware", 4.00),
        (4, "Pot", "ware", 20.00),
        (5, "Spoon", "ware", None),
        (6, "tea towel", "cloth", 5.00),
    ],
    "orders": [
        (1, 1, "paid", "2023-12-31", "2024-01-02 09:00:00"),
        (2, 1, "paid", "2024-01-01", "2024-01-01 00:00:00"),
        (3, 2, "open", "2024-01-15", None),
        (4, 2, "paid", "2024-03-31", "2024-04-01 00:00:00"),
        (5, 3, "cancelled", "2024-04-01", None),
        (6, 3, "paid", "2024-12-30", "2025-01-02 18:45:30"),
        (7, None, "paid", "2025-01-05", "2025-01-05 23:00:00"),
    ],
    "order_lines": [
        (1, 1, 2, 3.50),
        (1, 3, 1, 4.00),
        (2, 2, 1, 6.25),
        (3, 4, 1, 20.00),
        (3, 1, 1, 3.50),
        (4, 2, 2, 6.00),
        (4, 5, 4, 0.00),
        (5, 3, 6, 4.00),
        (6, 1, 10, 3.25),
        (6, 6, 1, 5.00),
        (7, 3, 2, 4.00),
        (7, 2, 0, 6.25),
    ],
}


def shop(dialect: str = "duckdb") -> Catalog:
    tables = tuple(
        Table(
            name=name,
            columns=tuple(Column(name=column, type=type_) for column, type_ in columns.items()),
            foreign_keys=tuple(
                ForeignKey(columns=(own,), to_table=to, to_columns=(other,)) for own, to, other in KEYS.get(name, [])
            ),
        )
        for name, columns in TABLES.items()
    )
    return Catalog(source="shop", kind=dialect, dialect=dialect, tables=tables, fingerprint="1")


# --- engines: to add one, add how it opens to the fixture below


@dataclass(frozen=True)
class Engine:
    dialect: str
    execute: Callable[[str], list[tuple[Any, ...]]]

    def answer(self, plan: dict[str, Any]) -> list[tuple[Any, ...]]:
        rows = self.execute(compile_plan(parse_plan(plan), shop(self.dialect)))
        return [tuple(plain(value) for value in row) for row in rows]


def plain(value: Any) -> Any:
    """One form for what drivers return in their own types."""
    match value:
        case Decimal() | float() | int():
            return round(float(value), 6)
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
    return value


def load(execute: Callable[[str], Any]) -> None:
    for table, columns in TABLES.items():
        execute(f"CREATE TABLE {table} ({', '.join(f'{name} {type_}' for name, type_ in columns.items())})")
        for row in ROWS[table]:
            execute(f"INSERT INTO {table} VALUES ({', '.join(map(constant, row))})")


def constant(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def open_duckdb() -> Engine:
    connection = duckdb.connect()
    load(connection.execute)
    return Engine("duckdb", lambda sql: connection.execute(sql).fetchall())


def open_sqlite() -> Engine:
    connection = sqlite3.connect(":memory:")
    load(connection.execute)
    return Engine("sqlite", lambda sql: connection.execute(sql).fetchall())


def open_postgres(url: str) -> Iterator[Engine]:
    with psycopg.connect(url, autocommit=True) as connection:
        load(lambda sql: connection.execute(sql.encode()))
        yield Engine("postgres", lambda sql: connection.execute(sql.encode()).fetchall())


@pytest.fixture(scope="module", params=["duckdb", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    match request.param:
        case "duckdb":
            yield open_duckdb()
        case "sqlite":
            yield open_sqlite()
        case "postgres":
            yield from open_postgres(request.getfixturevalue("postgres_server")())


# --- what plans mean

REVENUE = {"fn": "sum", "of": {"op": "*", "args": ["quantity", "unit_price"]}, "as": "revenue"}


def ids(where: Any) -> dict[str, Any]:
    return {"from": "orders", "select": ["id"], "where": where, "order_by": ["id"]}


def names(where: Any, table: str = "products") -> dict[str, Any]:
    return {"from": table, "select": ["name"], "where": where, "order_by": ["id"]}


def is_(column: Any, op: str, *value: Any) -> dict[str, Any]:
    return {"column": column, "op": op} | ({"value": value[0]} if value else {})


YEAR = {"part": "year", "of": "order_date"}
PAID_CUSTOMERS = {"from": "orders", "select": ["customer_id"], "where": is_("status", "=", "paid")}
PER_CUSTOMER = {"from": "orders", "group_by": ["customer_id"], "aggregate": [{"fn": "count", "as": "orders"}]}
EXAMPLES: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "every column": (
        {"from": "products", "where": is_("id", "=", 2)},
        [(2, "Coffee", "drinks", 6.25)],
    ),
    "columns of one name are told apart by their table": (
        {
            "from": "orders",
            "joins": ["customers"],
            "select": ["orders.id", "customers.id"],
            "where": is_("orders.id", "=", 4),
        },
        [(4, 2)],
    ),
    "=": (ids(is_("status", "=", "open")), [(3,)]),
    "!= leaves nulls out": (ids(is_("customer_id", "!=", 1)), [(3,), (4,), (5,), (6,)]),
    "<": (ids(is_("id", "<", 2)), [(1,)]),
    ">= with a float": (names(is_("list_price", ">=", 6.25)), [("Coffee",), ("Pot",)]),
    "in": (ids(is_("id", "in", [1, 3, 99])), [(1,), (3,)]),
    "not in": (ids(is_("status", "not in", ["paid", "open"])), [(5,)]),
    "between": (ids(is_("id", "between", [6, 7])), [(6,), (7,)]),
    "is null": (ids(is_("shipped_at", "is null")), [(3,), (5,)]),
    "is not null": (
        names(is_("list_price", "is not null")),
        [("Tea",), ("Coffee",), ("Cup",), ("Pot",), ("tea towel",)],
    ),
    "true": (names(is_("vip", "=", True), "customers"), [("Ada",)]),
    "false": (names(is_("vip", "=", False), "customers"), [("Bo",), ("50%_off\\'n",)]),
    "a list of filters: all hold": (ids([is_("id", ">", 2), is_("status", "=", "paid")]), [(4,), (6,), (7,)]),
    "and, or, not": (
        ids({"or": [{"and": [is_("id", ">", 2), {"not": is_("status", "=", "paid")}]}, is_("id", "=", 1)]}),
        [(1,), (3,), (5,)],
    ),
    "two columns": (ids(is_("id", "=", {"column": "customer_id"})), [(1,)]),
    "a column against arithmetic": (ids(is_("id", ">=", {"op": "*", "args": ["customer_id", 2]})), [(2,), (4,), (6,)]),
    "like minds case": (names(is_("name", "like", "T%")), [("Tea",)]),
    "like with one character": (names(is_("name", "like", "_u_")), [("Cup",)]),
    "ilike does not": (names(is_("name", "ilike", "TEA%")), [("Tea",), ("tea towel",)]),
    "like with escapes": (names(is_("name", "like", r"50\%\__ff%"), "customers"), [("50%_off\\'n",)]),
    "starts_with takes text as it is": (names(is_("name", "starts_with", "50%_"), "customers"), [("50%_off\\'n",)]),
    "ends_with with a backslash and a quote": (
        names(is_("name", "ends_with", "\\'n"), "customers"),
        [("50%_off\\'n",)],
    ),
    "contains": (names(is_("name", "contains", "o")), [("Coffee",), ("Pot",), ("Spoon",), ("tea towel",)]),
    "contains minds case": (names(is_("name", "contains", "TEA")), []),
    "contains with wildcards of other engines": (names(is_("name", "contains", "*")), []),
    "a date": (ids(is_("order_date", "=", "2024-01-01")), [(2,)]),
    "dates between": (ids(is_("order_date", "between", ["2024-01-01", "2024-03-31"])), [(2,), (3,), (4,)]),
    "dates in": (ids(is_("order_date", "in", ["2023-12-31", "2025-01-05"])), [(1,), (7,)]),
    "a timestamp against a date": (ids(is_("shipped_at", "<", "2024-01-02")), [(2,)]),
    "a timestamp, written with a T": (ids(is_("shipped_at", "=", "2024-01-02T09:00:00")), [(1,)]),
    "a date column against a timestamp column": (ids(is_("order_date", "=", {"column": "shipped_at"})), [(2,)]),
    "year": (ids(is_(YEAR, "=", 2024)), [(2,), (3,), (4,), (5,), (6,)]),
    "parts of a date": (
        {
            "from": "orders",
            "select": [
                "id",
                *({"part": p, "of": "order_date"} for p in ("year", "quarter", "month", "week", "day", "weekday")),
            ],
            "order_by": ["id"],
        },
        [
            (1, 2023, 4, 12, 52, 31, 7),
            (2, 2024, 1, 1, 1, 1, 1),
            (3, 2024, 1, 1, 3, 15, 1),
            (4, 2024, 1, 3, 13, 31, 7),
            (5, 2024, 2, 4, 14, 1, 1),
            (6, 2024, 4, 12, 1, 30, 1),
            (7, 2025, 1, 1, 1, 5, 7),
        ],
    ),
    "parts of a timestamp": (
        {
            "from": "orders",
            "select": [{"part": "hour", "of": "shipped_at"}, {"part": "week", "of": "shipped_at"}],
            "where": is_("id", "in", [6, 7]),
            "order_by": ["id"],
        },
        [(18, 1), (23, 1)],
    ),
    "grains": (
        {
            "from": "orders",
            "select": [{"grain": g, "of": "order_date"} for g in ("day", "week", "month", "quarter", "year")],
            "where": is_("id", "in", [1, 2, 4, 6, 7]),
            "order_by": ["id"],
        },
        [
            ("2023-12-31", "2023-12-25", "2023-12-01", "2023-10-01", "2023-01-01"),
            ("2024-01-01", "2024-01-01", "2024-01-01", "2024-01-01", "2024-01-01"),
            ("2024-03-31", "2024-03-25", "2024-03-01", "2024-01-01", "2024-01-01"),
            ("2024-12-30", "2024-12-30", "2024-12-01", "2024-10-01", "2024-01-01"),
            ("2025-01-05", "2024-12-30", "2025-01-01", "2025-01-01", "2025-01-01"),
        ],
    ),
    "grains of a timestamp": (
        {
            "from": "customers",
            "group_by": [{"grain": "quarter", "of": "created_at"}],
            "aggregate": [{"fn": "count"}],
            "order_by": ["created_at_quarter"],
        },
        [("2023-10-01", 1), ("2024-01-01", 2), (None, 1)],
    ),
    "a filter on a grain": (ids(is_({"grain": "month", "of": "order_date"}, "=", "2024-01-01")), [(2,), (3,)]),
    "arithmetic from left to right": (
        {
            "from": "order_lines",
            "select": [
                {"expr": {"op": "-", "args": [10, "quantity", 3]}, "as": "left"},
                {"expr": {"op": "*", "args": [{"op": "+", "args": ["quantity", 1]}, -2]}, "as": "sum_first"},
            ],
            "where": [is_("order_id", "=", 1), is_("product_id", "=", 1)],
        },
        [(5, -6)],
    ),
    "division is never of whole numbers": (
        {
            "from": "order_lines",
            "select": [{"expr": {"op": "/", "args": ["order_id", "quantity"]}, "as": "ratio"}],
            "where": is_("order_id", "in", [4, 5, 7]),
            "order_by": ["order_id", "product_id"],
        },
        [(2.0,), (1.0,), (0.833333,), (None,), (3.5,)],
    ),
    "a case": (
        {
            "from": "products",
            "select": [
                "id",
                {
                    "expr": {
                        "case": [
                            {"when": is_("list_price", ">", 5), "then": {"value": "dear"}},
                            {"when": is_("list_price", "is null"), "then": {"value": "free"}},
                        ],
                        "else": {"value": "cheap"},
                    },
                    "as": "level",
                },
            ],
            "order_by": ["id"],
        },
        [(1, "cheap"), (2, "dear"), (3, "cheap"), (4, "dear"), (5, "free"), (6, "cheap")],
    ),
    "a constant column": (
        {"from": "products", "select": [{"expr": 5, "as": "five"}, "id"], "order_by": ["id"], "limit": 1},
        [(5, 1)],
    ),
    "measures over everything": (
        {
            "from": "orders",
            "aggregate": [
                {"fn": "count"},
                {"fn": "count", "of": "shipped_at"},
                {"fn": "count", "of": "customer_id", "distinct": True},
                {"fn": "min", "of": "order_date"},
                {"fn": "max", "of": "status"},
                {"fn": "avg", "of": "customer_id"},
                {"fn": "sum", "of": "customer_id", "distinct": True},
            ],
        },
        [(7, 5, 3, "2023-12-31", "paid", 2.0, 6)],
    ),
    "an average of whole numbers has a fraction": (
        {"from": "orders", "aggregate": [{"fn": "avg", "of": "id", "filter": is_("id", "in", [1, 2, 4])}]},
        [(2.333333,)],
    ),
    "a measure over nothing": (
        {"from": "orders", "where": is_("id", "<", 0), "aggregate": [{"fn": "sum", "of": "id"}, {"fn": "count"}]},
        [(None, 0)],
    ),
    "measures with filters": (
        {
            "from": "orders",
            "aggregate": [
                {"fn": "count", "filter": is_("status", "=", "paid"), "as": "paid"},
                {"fn": "sum", "of": "id", "filter": [is_(YEAR, "=", 2024), is_("status", "!=", "paid")], "as": "rest"},
                {"fn": "count", "of": "customer_id", "distinct": True, "filter": is_("id", ">", 4), "as": "late"},
            ],
        },
        [(5, 8, 1)],
    ),
    "medians": (
        {
            "from": "order_lines",
            "joins": ["products"],
            "group_by": ["category"],
            "aggregate": [
                {"fn": "median", "of": "quantity"},
                {"fn": "median", "of": "list_price", "as": "middle"},
                {"fn": "count"},
                {"fn": "sum", "of": "quantity", "filter": is_("quantity", ">", 1)},
            ],
            "having": is_("count", ">", 1),
            "order_by": ["category"],
        },
        [("drinks", 1.5, 4.875, 6, 14), ("ware", 2.0, 4.0, 5, 12)],
    ),
    "a median over nothing": (
        {"from": "orders", "aggregate": [{"fn": "median", "of": "id", "filter": is_("id", "<", 0)}]},
        [(None,)],
    ),
    "groups": (
        {"from": "orders", "group_by": ["status"], "aggregate": [{"fn": "count"}], "order_by": ["status"]},
        [("cancelled", 1), ("open", 1), ("paid", 5)],
    ),
    "groups without a measure are distinct values": (
        {"from": "customers", "group_by": ["country"], "order_by": [{"by": "country", "nulls": "first"}]},
        [(None,), ("DE",), ("PT",)],
    ),
    "groups by an expression with a name": (
        {
            "from": "orders",
            "group_by": [{"expr": {"part": "year", "of": "order_date"}, "as": "year"}],
            "aggregate": [{"fn": "count", "as": "orders"}],
            "order_by": [{"by": "orders", "desc": True}, "year"],
        },
        [(2024, 5), (2023, 1), (2025, 1)],
    ),
    "a ratio of measures": (
        {
            "from": "order_lines",
            "joins": ["orders"],
            "select": ["status", {"expr": {"op": "/", "args": ["revenue", "orders"]}, "as": "per_order"}],
            "group_by": ["status"],
            "aggregate": [REVENUE, {"fn": "count", "of": "order_id", "distinct": True, "as": "orders"}],
            "order_by": ["status"],
        },
        [("cancelled", 24.0, 24.0, 1), ("open", 23.5, 23.5, 1), ("paid", 14.95, 74.75, 5)],
    ),
    "having": (
        {
            "from": "order_lines",
            "joins": ["products"],
            "group_by": ["category"],
            "aggregate": [REVENUE],
            "having": {"or": [is_("revenue", "<", 10), is_("category", "=", "ware")]},
            "order_by": [{"by": "revenue", "desc": True}],
        },
        [("ware", 56.0), ("cloth", 5.0)],
    ),
    "a join over two hops": (
        {
            "from": "order_lines",
            "joins": ["customers"],
            "group_by": ["country"],
            "aggregate": [REVENUE],
            "order_by": ["country"],
        },
        [("DE", 35.5), ("PT", 78.75)],
    ),
    "a left join": (
        {
            "from": "customers",
            "joins": [{"table": "orders", "kind": "left"}],
            "group_by": ["customers.id"],
            "aggregate": [{"fn": "count", "of": "orders.id", "as": "orders"}],
            "order_by": ["id"],
        },
        [(1, 2), (2, 2), (3, 2), (4, 0)],
    ),
    "a join on named columns, of a table with itself": (
        {
            "from": {"table": "orders", "as": "a"},
            "joins": [{"table": "orders", "as": "b", "on": [["a.customer_id", "b.customer_id"]]}],
            "select": [{"expr": "a.id", "as": "first"}, {"expr": "b.id", "as": "second"}],
            "where": is_("a.id", "<", {"column": "b.id"}),
            "order_by": ["first"],
        },
        [(1, 2), (3, 4), (5, 6)],
    ),
    "top per group": (
        {
            "from": "order_lines",
            "joins": ["products"],
            "group_by": ["category", "products.name"],
            "aggregate": [REVENUE],
            "top": {"n": 2, "per": ["category"], "by": "revenue"},
        },
        [
            ("cloth", "tea towel", 5.0),
            ("drinks", "Tea", 43.0),
            ("drinks", "Coffee", 18.25),
            ("ware", "Cup", 36.0),
            ("ware", "Pot", 20.0),
        ],
    ),
    "top of plain rows; ties by the other columns": (
        {
            "from": "orders",
            "select": ["id", "customer_id", {"part": "year", "of": "order_date"}],
            "where": is_("customer_id", "is not null"),
            "top": {"n": 1, "per": ["customer_id"], "by": "order_date_year"},
            "order_by": [{"by": "customer_id", "desc": True}],
            "limit": 2,
        },
        [(5, 3, 2024), (3, 2, 2024)],
    ),
    "lowest per group": (
        {
            "from": "orders",
            "select": ["customer_id", "order_date"],
            "top": {"n": 1, "per": ["customer_id"], "by": "order_date", "lowest": True},
        },
        [(1, "2023-12-31"), (2, "2024-01-15"), (3, "2024-04-01"), (None, "2025-01-05")],
    ),
    "nulls last, downwards": (
        {"from": "orders", "select": ["id"], "order_by": [{"by": "customer_id", "desc": True}, "id"]},
        [(5,), (6,), (3,), (4,), (1,), (2,), (7,)],
    ),
    "nulls first, upwards": (
        {"from": "orders", "select": ["id"], "order_by": [{"by": "customer_id", "nulls": "first"}, "id"], "limit": 2},
        [(7,), (1,)],
    ),
    "a page; ties do not move between pages": (
        {"from": "orders", "select": ["status", "id"], "order_by": [{"by": "status"}], "limit": 3, "offset": 2},
        [("paid", 1), ("paid", 2), ("paid", 4)],
    ),
    "in the values of another plan": (
        names({"column": "id", "op": "in", "plan": PAID_CUSTOMERS}, "customers"),
        [("Ada",), ("Bo",), ("Cy",)],
    ),
    "not in the values of another plan, of which one is null": (
        names({"column": "id", "op": "not in", "plan": {"from": "orders", "select": ["customer_id"]}}, "customers"),
        [("50%_off\\'n",)],
    ),
    "above the average": (
        names(is_("list_price", ">", {"plan": {"from": "products", "aggregate": [{"fn": "avg", "of": "list_price"}]}})),
        [("Pot",)],
    ),
    "a measure over the rows of another plan": (
        {
            "from": {"plan": PER_CUSTOMER, "as": "counts"},
            "aggregate": [{"fn": "avg", "of": "orders"}, {"fn": "max", "of": "counts.orders"}],
        },
        [(1.75, 2)],
    ),
    "a table joined with the rows of another plan": (
        {
            "from": "customers",
            "joins": [{"plan": PER_CUSTOMER, "as": "counts", "kind": "left", "on": [["id", "counts.customer_id"]]}],
            "select": ["name", "counts.orders"],
            "order_by": ["id"],
        },
        [("Ada", 2), ("Bo", 2), ("Cy", 2), ("50%_off\\'n", None)],
    ),
    "the rows of two plans joined": (
        {
            "from": {"plan": PER_CUSTOMER, "as": "all"},
            "joins": [
                {
                    "plan": {**PER_CUSTOMER, "where": is_("status", "=", "paid")},
                    "as": "paid",
                    "on": [["all.customer_id", "paid.customer_id"]],
                },
                {"table": "customers", "on": [["all.customer_id", "customers.id"]]},
            ],
            "select": ["name", {"expr": {"op": "/", "args": ["paid.orders", "all.orders"]}, "as": "share"}],
            "order_by": ["name"],
        },
        [("Ada", 1.0), ("Bo", 0.5), ("Cy", 0.5)],
    ),
    "shares, ranks and row numbers of groups": (
        {
            "from": "orders",
            "select": [
                "status",
                {"expr": {"op": "/", "args": ["n", {"window": "total", "of": "n"}]}, "as": "share"},
                {"expr": {"window": "rank", "by": "n", "desc": True}, "as": "rank"},
                {"expr": {"window": "dense_rank", "by": "n"}, "as": "dense"},
                {"expr": {"window": "row_number", "by": "status"}, "as": "row"},
            ],
            "group_by": ["status"],
            "aggregate": [{"fn": "count", "as": "n"}],
            "order_by": ["status"],
        },
        [("cancelled", 0.142857, 2, 1, 1, 1), ("open", 0.142857, 2, 1, 2, 1), ("paid", 0.714286, 1, 2, 3, 5)],
    ),
    "what was before, and what has added up": (
        {
            "from": "orders",
            "select": [
                "id",
                {"expr": {"window": "previous", "of": "order_date", "per": ["customer_id"], "by": "id"}, "as": "last"},
                {"expr": {"window": "running", "of": "id", "per": ["customer_id"], "by": "id"}, "as": "sum"},
            ],
            "where": is_("id", "<", 5),
            "order_by": ["id"],
        },
        [(1, None, 1), (2, "2023-12-31", 3), (3, None, 3), (4, "2024-01-15", 7)],
    ),
    "what has added up by month": (
        {
            "from": "orders",
            "select": [
                "order_date_quarter",
                {"expr": {"window": "running", "of": "n", "by": "order_date_quarter"}, "as": "so_far"},
            ],
            "group_by": [{"grain": "quarter", "of": "order_date"}],
            "aggregate": [{"fn": "count", "as": "n"}],
            "order_by": ["order_date_quarter"],
            "limit": 3,
        },
        [("2023-10-01", 1, 1), ("2024-01-01", 4, 3), ("2024-04-01", 5, 1)],
    ),
    "days between": (
        {
            "from": "orders",
            "select": ["id", {"expr": {"days_between": ["order_date", "shipped_at"]}, "as": "days"}],
            "where": is_({"days_between": ["order_date", "shipped_at"]}, ">", 0),
            "order_by": ["id"],
        },
        [(1, 2), (4, 1), (6, 3)],
    ),
    "a text as a number": (
        {
            "from": "orders",
            "select": ["id", {"expr": {"op": "+", "args": [{"number": {"value": "1.5"}}, "id"]}, "as": "more"}],
            "where": is_({"number": {"value": "9"}}, "<", 10),
            "order_by": ["id"],
            "limit": 1,
        },
        [(1, 2.5)],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_engine_gives_the_same_answer(engine: Engine, name: str) -> None:
    plan, expected = EXAMPLES[name]
    assert engine.answer(plan) == [tuple(plain(value) for value in row) for row in expected]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_is_stable_and_parses(name: str, dialect: str) -> None:
    plan = parse_plan(EXAMPLES[name][0])
    text = compile_plan(plan, shop(), dialect)
    assert text == compile_plan(parse_plan(plan.model_dump_json()), shop(), dialect)
    assert isinstance(sqlglot.parse_one(text, read=dialect), sqlglot.exp.Select)
    assert ";" not in text


# --- what is refused, and how


def refusal(plan: dict[str, Any], dialect: str = "duckdb", catalog: Catalog | None = None) -> tuple[str, str]:
    with pytest.raises(Invalid) as caught:
        compile_plan(parse_plan(plan), catalog or shop(), dialect)
    return caught.value.message, caught.value.hint


def orders(**parts: Any) -> dict[str, Any]:
    return {"from": "orders"} | parts


@pytest.mark.parametrize(
    ("plan", "message", "hint"),
    [
        ({"from": "ordrs"}, "Table `ordrs` is not in `shop`.", "Did you mean `orders`?"),
        (
            {"from": "nothing"},
            "Table `nothing` is not in `shop`.",
            "There are `customers`, `products`, `orders`, `order_lines`.",
        ),
        (orders(select=["statsu"]), "Column `statsu` is not in `orders`.", "Did you mean `status`?"),
        (orders(select=["orders.statsu"]), "Column `statsu` is not in `orders`.", "Did you mean `status`?"),
        (
            orders(select=["country"]),
            "Column `country` is not in `orders`.",
            "It is in `customers`: add the table to `joins`.",
        ),
        (orders(select=["customers.name"]), "Table `customers` is not in the plan.", "Add it to `joins`."),
        (
            orders(joins=["customers"], select=["countri"]),
            "Column `countri` is in none of `orders`, `customers`.",
            "Did you mean `customers.country`?",
        ),
        (
            orders(joins=["customers"], select=["id"]),
            "Column `id` is ambiguous.",
            "Write one of `orders.id`, `customers.id`.",
        ),
        (orders(select=["*"]), "Column `*` is not in `orders`.", "Leave `select` out to take every column."),
        (
            ids({"column": "id", "op": "in", "plan": {"from": "orders", "select": ["id", "status"]}}),
            "A plan inside an expression must have one column, not `id`, `status`.",
            'Name one in "select".',
        ),
        (
            ids({"column": "id", "op": "in", "plan": {"from": "orders", "select": ["status"]}}),
            "`orders.id` is a number, but `orders.status` is text.",
            "Compare values of the same kind.",
        ),
        (
            ids(is_("id", "=", {"plan": {"from": "orders", "select": ["id"]}})),
            "A plan used as one value cannot have groups.",
            'Give it "aggregate" and no "group_by".',
        ),
        (
            ids(is_({"window": "rank", "by": "id"}, "=", 1)),
            "`rank` depends on other rows.",
            'Use it in "select" only.',
        ),
        (
            orders(select=["id", {"expr": {"window": "total", "of": "status"}, "as": "x"}]),
            "`orders.status` is text; `sum` needs a number.",
            "Use count, min or max, or a column of numbers.",
        ),
        (
            orders(select=[{"expr": {"days_between": ["id", "order_date"]}, "as": "x"}]),
            "`orders.id` is a number; `days_between` needs a date.",
            "Use a date or timestamp column.",
        ),
        (
            {"from": {"plan": {"from": "orders", "select": ["id"]}, "as": "few"}, "joins": ["customers"]},
            "No foreign key leads from `few` to `customers`.",
            'Name the columns: {"table": "customers", "on": [["left", "right"]]}.',
        ),
        (
            {"from": {"plan": {"from": "orders", "select": ["id"]}, "as": "few"}, "select": ["status"]},
            "Column `status` is not in `few`.",
            "It is in `orders`: add the table to `joins`.",
        ),
        (
            ids(is_("order_date", "=", 5)),
            "`orders.order_date` is a date, but `5` is a number.",
            'Write the value as "YYYY-MM-DD", or compare a date part such as {"part": "year", "of": ...}.',
        ),
        (
            ids(is_("order_date", "=", "2024-02-30")),
            "`2024-02-30` is not a date.",
            "`orders.order_date` is a date; write the value as YYYY-MM-DD.",
        ),
        (
            ids(is_("order_date", "=", "20240131")),
            "`20240131` is not a date.",
            "`orders.order_date` is a date; write the value as YYYY-MM-DD.",
        ),
        (
            ids(is_("order_date", "=", "2024-01-31T10:00:00")),
            "`2024-01-31T10:00:00` has a time, but `orders.order_date` is a date.",
            "Remove the time.",
        ),
        (
            ids(is_("shipped_at", "=", "2024-01-31T10:00:00Z")),
            "`2024-01-31T10:00:00Z` has a time zone, but `orders.shipped_at` has none.",
            "Remove the time zone.",
        ),
        (ids(is_("status", "=", 5)), "`orders.status` is text, but `5` is a number.", 'Write the value as text: "5".'),
        (
            ids(is_("id", "in", ["5"])),
            "`orders.id` is a number, but `5` is text.",
            "Write the value as a number, without quotes.",
        ),
        (
            names(is_("vip", "=", 1), "customers"),
            "`customers.vip` is true or false, but `1` is a number.",
            "Write true or false.",
        ),
        (
            ids(is_("order_date", "<", {"column": "id"})),
            "`orders.order_date` is a date, but `orders.id` is a number.",
            "Compare values of the same kind.",
        ),
        (
            ids(is_({"part": "year", "of": "id"}, "=", 1)),
            "`orders.id` is a number; `year` needs a date.",
            "Use a date or timestamp column.",
        ),
        (
            ids(is_({"part": "hour", "of": "order_date"}, "=", 1)),
            "`orders.order_date` is a date; it has no hour.",
            "Use a timestamp column.",
        ),
        (
            ids(is_("id", "like", "1%")),
            "`orders.id` is a number; `like` needs text.",
            "Compare it with =, <, > or between.",
        ),
        (
            orders(aggregate=[{"fn": "sum", "of": "status"}]),
            "`orders.status` is text; `sum` needs a number.",
            "Use count, min or max, or a column of numbers.",
        ),
        (
            {"from": "customers", "aggregate": [{"fn": "max", "of": "vip"}]},
            "`customers.vip` is true or false; `max` needs an order.",
            'Use count with a "filter".',
        ),
        (
            orders(select=[{"expr": {"op": "+", "args": ["status", 1]}, "as": "x"}]),
            "`orders.status` is text; `+` needs numbers.",
            "Use columns that hold numbers.",
        ),
        (
            orders(select=["status"], aggregate=[{"fn": "count"}]),
            "`orders.status` is neither grouped nor aggregated.",
            'Add it to "group_by", or aggregate it.',
        ),
        (
            orders(group_by=["status"], aggregate=[{"fn": "count"}], order_by=["order_date"]),
            "`orders.order_date` is neither grouped nor aggregated.",
            'Add it to "group_by", or aggregate it.',
        ),
        (
            orders(group_by=["status"], aggregate=[{"fn": "count", "as": "orders"}], having=is_("order", ">", 1)),
            "`order` is not a column of the groups.",
            "Did you mean `orders`?",
        ),
        (orders(order_by=[{"by": 1}]), "`1` is the same in every row.", "Order by a column."),
        (orders(group_by=[{"expr": 1, "as": "one"}]), "`1` is the same in every row.", "Group by a column."),
        (
            orders(select=[{"op": "+", "args": ["id", 1]}]),
            "`orders.id` + `1` has no name.",
            'Write {"expr": ..., "as": "a name"}.',
        ),
        (
            orders(select=["id", {"expr": "status", "as": "ID"}]),
            "Two columns of the result are named `id`.",
            'Name one of them with "as".',
        ),
        (
            orders(select=["id"], top={"n": 1, "per": ["status"], "by": "id"}),
            "`status` is not a column of the result.",
            'Use one of `id`, or add it to "select".',
        ),
        (orders(joins=["orders"]), "Two tables are named `orders`.", 'Give one of them another name with "as".'),
        (
            orders(joins=[{"table": "products", "on": [["orders.id", "customer_id"]]}]),
            "`orders.id` = `orders.customer_id` does not join `products`.",
            "One side must be a column of `products`, the other of a table before it.",
        ),
        (
            orders(joins=[{"table": "products", "on": [["status", "products.id"]]}]),
            "`orders.status` is text, but `products.id` is a number.",
            "Compare values of the same kind.",
        ),
        (
            {"from": "order_lines", "joins": [{"table": "customers", "kind": "left"}, "orders"]},
            "`orders` is already joined, on the path to another table.",
            "Put it before that table in `joins`.",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_do(plan: dict[str, Any], message: str, hint: str) -> None:
    assert refusal(plan) == (message, hint)


def test_an_unknown_dialect_is_refused() -> None:
    assert refusal({"from": "orders"}, "oracle")[0] == "Plans cannot be compiled to `oracle`."


# --- joins along keys


def linked(*keys: tuple[str, str, str, str]) -> Catalog:
    """Tables with an `id` and one column for each key (table, column, to table, to column)."""
    tables = sorted({name for key in keys for name in (key[0], key[2])} | {"island"})
    return Catalog(
        source="s",
        kind="duckdb",
        dialect="duckdb",
        fingerprint="1",
        tables=tuple(
            Table(
                name=name,
                columns=tuple(
                    Column(name=c, type="integer") for c in dict.fromkeys(["id", *(k[1] for k in keys if k[0] == name)])
                ),
                primary_key=("id",),
                foreign_keys=tuple(
                    ForeignKey(columns=(k[1],), to_table=k[2], to_columns=(k[3],)) for k in keys if k[0] == name
                ),
            )
            for name in tables
        ),
    )


def joins_of(plan: dict[str, Any], catalog: Catalog) -> list[str]:
    return re.findall(r"JOIN .*? ON (.*?)(?= (?:INNER|LEFT) JOIN|$)", compile_plan(parse_plan(plan), catalog))


def test_a_join_follows_the_shortest_way() -> None:
    chain = (("a", "b_id", "b", "id"), ("b", "c_id", "c", "id"), ("c", "d_id", "d", "id"))
    plan = {"from": "a", "joins": [{"table": "d", "along": "keys"}]}
    hops = ['"a"."b_id" = "b"."id"', '"b"."c_id" = "c"."id"', '"c"."d_id" = "d"."id"']
    assert joins_of(plan, linked(*chain)) == hops
    assert joins_of(plan, linked(*chain, ("a", "d_id", "d", "id"))) == ['"a"."d_id" = "d"."id"']


def test_a_table_on_the_way_may_be_named_afterwards() -> None:
    plan = {"from": "order_lines", "joins": ["customers", "orders"], "select": ["country", "status"]}
    assert len(joins_of(plan, shop())) == 2


def test_two_keys_to_one_table_are_ambiguous() -> None:
    catalog = linked(("orders", "billing", "addresses", "id"), ("orders", "shipping", "addresses", "id"))
    assert refusal({"from": "orders", "joins": ["addresses"]}, catalog=catalog) == (
        "`addresses` can be joined along keys in more than one way.",
        'Give "on" for one of: `orders.billing = addresses.id`; `orders.shipping = addresses.id`.',
    )


def test_two_ways_of_one_length_are_ambiguous() -> None:
    catalog = linked(("a", "b", "b", "id"), ("a", "c", "c", "id"), ("b", "d", "d", "id"), ("c", "d", "d", "id"))
    message, hint = refusal({"from": "a", "joins": ["d"]}, catalog=catalog)
    assert "more than one way" in message
    assert "`a.b = b.id` and `b.d = d.id`; `a.c = c.id` and `c.d = d.id`" in hint


def test_a_table_joined_to_itself_needs_its_columns_named() -> None:
    catalog = linked(("people", "boss", "people", "id"))
    plan: dict[str, Any] = {"from": "people", "joins": [{"table": "people", "as": "boss"}]}
    assert "`people.boss = boss.id`; `people.id = boss.boss`" in refusal(plan, catalog=catalog)[1]
    plan["joins"][0]["on"] = [["people.boss", "boss.id"]]
    assert joins_of(plan, catalog) == ['"people"."boss" = "boss"."id"']


def test_no_key_leads_there() -> None:
    message, hint = refusal({"from": "a", "joins": ["island"]}, catalog=linked(("a", "b", "b", "id")))
    assert message == "No foreign key leads from `a` to `island`."
    assert '"on"' in hint


def test_a_qualified_table_is_known_by_its_last_name() -> None:
    catalog = linked(("sales.orders", "customer", "crm.customers", "id"))
    plan = {"from": "sales.orders", "joins": ["crm.customers"], "select": ["orders.id", "crm.customers.id"]}
    assert compile_plan(parse_plan(plan), catalog) == (
        'SELECT "orders"."id" AS "orders.id", "customers"."id" AS "customers.id" '
        'FROM "sales"."orders" AS "orders" '
        'INNER JOIN "crm"."customers" AS "customers" ON "orders"."customer" = "customers"."id"'
    )


# --- types as engines name them


def test_text_holds_dates_only_in_sqlite() -> None:
    columns = (Column(name="day", type="TEXT"), Column(name="n", type=""))
    catalog = Catalog(
        source="s", kind="sqlite", dialect="sqlite", fingerprint="1", tables=(Table(name="t", columns=columns),)
    )
    plan = {"from": "t", "select": [{"grain": "month", "of": "day"}], "where": is_("n", "=", 1)}
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (day TEXT, n)")
    connection.execute("INSERT INTO t VALUES ('2024-02-29T23:00:00', 1)")
    assert connection.execute(compile_plan(parse_plan(plan), catalog)).fetchall() == [("2024-02-01",)]
    assert refusal(plan, "duckdb", catalog)[0] == "`t.day` is text; `month` needs a date."


def test_times_with_a_zone_are_read_in_utc() -> None:
    columns = (Column(name="moment", type="TIMESTAMP WITH TIME ZONE"),)
    catalog = Catalog(
        source="s", kind="duckdb", dialect="duckdb", fingerprint="1", tables=(Table(name="t", columns=columns),)
    )
    plan = {"from": "t", "select": [{"grain": "day", "of": "moment"}], "where": is_("moment", ">=", "2024-01-01")}
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Tokyo'; CREATE TABLE t (moment TIMESTAMPTZ)")
    connection.execute("INSERT INTO t VALUES ('2023-12-31 23:30:00+00'), ('2024-01-01 23:30:00+00')")
    assert connection.execute(compile_plan(parse_plan(plan), catalog)).fetchall() == [(date(2024, 1, 1),)]


# --- nothing breaks out

HOSTILE = [
    "'; DROP TABLE customers; --",
    '"; DROP TABLE customers; --',
    "`; DROP TABLE customers; --",
    "\\'; DROP TABLE customers; #",
    "\\",
    "''",
    '""',
    "/* */ -- #",
    "%s %(x)s ? :x $1 $$ {}",
    "line\nbreak\ttab",
    "select",
    "ünï \N{SNOWMAN} 日本",
    " ",
    "__SQLGLOT__LBREAK__",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(engine: Engine, text: str) -> None:
    """As a constant it comes back as it is; as a filter it only fails to match; as a name it is only a name."""
    echo = {"case": [{"when": is_("id", ">", 0), "then": {"value": text}}]}
    plan = {
        "from": {"table": "customers", "as": text},
        "select": ["id", {"expr": echo, "as": text}],
        "where": [is_("name", "!=", text), {"not": is_("name", "contains", text)}],
        "order_by": [text, "id"],
    }
    expected = [(n, text) for n in (1, 2, 3, 4) if text not in ROWS["customers"][n - 1][1]]
    assert engine.answer(plan) == expected


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0.", exclude_categories=["Cs"]), min_size=1, max_size=12)
        | st.sampled_from([text for text in HOSTILE if "." not in text]),
        min_size=4,
        max_size=4,
        unique_by=lambda name: name.casefold(),
    )
)
def test_hostile_names_stay_names(names: list[str]) -> None:
    table, number, word, alias = names
    assume(not table.lower().startswith("sqlite_"))
    # Engines fold case in their own ways beyond ASCII; that is theirs to say, not the plan's.
    assume(len({name.lower() for name in names} | {name.upper() for name in names} | set(names)) >= 4)
    columns = (Column(name=number, type="integer"), Column(name=word, type="text"))
    catalog = Catalog(
        source="s", kind="duckdb", dialect="duckdb", fingerprint="1", tables=(Table(name=table, columns=columns),)
    )
    plan = {
        "from": table,
        "group_by": [{"column": word, "table": table}],
        "aggregate": [{"fn": "sum", "of": {"column": number, "table": table}, "as": alias}],
        "top": {"n": 1, "per": [word], "by": alias},
    }
    quoted = ['"' + name.replace('"', '""') + '"' for name in (table, number, word)]
    for dialect, connection in (("duckdb", duckdb.connect()), ("sqlite", sqlite3.connect(":memory:"))):
        connection.execute(f"CREATE TABLE {quoted[0]} ({quoted[1]} integer, {quoted[2]} text)")
        connection.execute(f"INSERT INTO {quoted[0]} VALUES (1, 'x'), (2, 'x')")
        assert connection.execute(compile_plan(parse_plan(plan), catalog, dialect)).fetchall() == [("x", 3)]
        connection.close()
    for dialect in ("postgres", "mysql"):
        assert len(sqlglot.parse(compile_plan(parse_plan(plan), catalog, dialect), read=dialect)) == 1


# --- generated plans

NUMBERS = {"customers": ["id"], "products": ["id", "list_price"], "orders": ["id", "customer_id"],
           "order_lines": ["order_id", "product_id", "quantity", "unit_price"]}  # fmt: skip
TEXTS = {"customers": ["name", "country"], "products": ["name", "category"], "orders": ["status"], "order_lines": []}
DATES = {"customers": ["created_at"], "products": [], "orders": ["order_date", "shipped_at"], "order_lines": []}
REACH = {"customers": [], "products": [], "orders": ["customers"], "order_lines": ["orders", "products", "customers"]}


def one_of(columns: dict[str, list[str]], tables: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{table}.{column}" for table in tables for column in columns[table]] or ["none"])


@st.composite
def number(draw: st.DrawFn, tables: list[str], depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["column", "column", "constant", "part", "arithmetic"] if depth else ["column"]))
    dates = [table for table in tables if DATES[table]]
    if kind == "part" and dates:
        part = draw(st.sampled_from(["year", "quarter", "month", "week", "day", "weekday"]))
        return {"part": part, "of": draw(one_of(DATES, dates))}
    if kind == "arithmetic":
        args = draw(st.lists(number(tables, depth - 1), min_size=2, max_size=3))
        return {"op": draw(st.sampled_from("+-*/")), "args": args}
    return draw(st.integers(-9, 9)) if kind == "constant" else draw(one_of(NUMBERS, tables))


@st.composite
def condition(draw: st.DrawFn, tables: list[str], depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["number", "text", "date", "null", *(["and", "or", "not"] if depth else [])]))
    compare = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    if kind in ("and", "or"):
        return {kind: draw(st.lists(condition(tables, depth - 1), min_size=1, max_size=3))}
    if kind == "not":
        return {"not": draw(condition(tables, depth - 1))}
    if kind == "null":
        return is_(draw(one_of(NUMBERS, tables)), draw(st.sampled_from(["is null", "is not null"])))
    if kind == "text" and (texts := [table for table in tables if TEXTS[table]]):
        op = draw(st.sampled_from(["=", "!=", "like", "ilike", "starts_with", "ends_with", "contains"]))
        return is_(draw(one_of(TEXTS, texts)), op, draw(st.text("aTeo%_\\*?[]!'", max_size=4)))
    if kind == "date" and (dates := [table for table in tables if DATES[table]]):
        day = draw(st.dates(date(2023, 12, 1), date(2025, 1, 31))).isoformat()
        return is_(draw(one_of(DATES, dates)), draw(compare), day)
    if draw(st.booleans()):
        return is_(draw(one_of(NUMBERS, tables)), "in", draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    # Whole numbers and halves only: quotients may differ in the last digit, and then so would what they select.
    return is_(draw(one_of(NUMBERS, tables)), draw(compare), draw(st.integers(-9, 9) | st.sampled_from([0.5, 6.25])))


@st.composite
def measures(draw: st.DrawFn, tables: list[str]) -> list[dict[str, Any]]:
    found = []
    for index in range(draw(st.integers(1, 3))):
        fn = draw(st.sampled_from(["count", "sum", "avg", "min", "max", "median"]))
        item: dict[str, Any] = {"fn": fn, "of": draw(number(tables)), "as": f"m{index}"}
        if fn != "median":
            item["distinct"] = draw(st.booleans())
        if draw(st.booleans()):
            item["filter"] = draw(condition(tables, 1))
        found.append(item)
    return found


@st.composite
def keys(draw: st.DrawFn, tables: list[str]) -> list[dict[str, Any]]:
    choices = [one_of(NUMBERS, tables)]
    if texts := [table for table in tables if TEXTS[table]]:
        choices.append(one_of(TEXTS, texts))
    if dates := [table for table in tables if DATES[table]]:
        grains = st.sampled_from(["day", "week", "month", "quarter", "year"])
        choices.append(st.builds(lambda grain, of: {"grain": grain, "of": of}, grains, one_of(DATES, dates)))
    exprs = draw(st.lists(st.one_of(choices), min_size=1, max_size=3))
    return [{"expr": expr, "as": f"k{index}"} for index, expr in enumerate(exprs)]


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    source = draw(st.sampled_from(list(TABLES)))
    joined = draw(st.lists(st.sampled_from(REACH[source] or [source]), unique=True)) if REACH[source] else []
    kind = draw(st.sampled_from(["inner", "left"]))
    plan: dict[str, Any] = {"from": source, "joins": [{"table": table, "kind": kind} for table in joined]}
    tables = [source, *joined]
    plan["where"] = draw(st.lists(condition(tables), max_size=2)) or None
    names = draw(keys(tables))
    outputs = [key["as"] for key in names]
    if draw(st.booleans()):
        plan |= {"group_by": names, "aggregate": draw(measures(tables))}
        outputs += [measure["as"] for measure in plan["aggregate"]]
        if draw(st.booleans()):
            plan["having"] = is_(draw(st.sampled_from(outputs)), "is not null")
    else:
        plan["select"] = [*names, {"expr": draw(number(tables)), "as": "n"}]
    if draw(st.booleans()):
        plan["top"] = {"n": draw(st.integers(1, 3)), "per": [outputs[0]], "by": outputs[-1]}
    if draw(st.booleans()):
        nulls = draw(st.sampled_from(["first", "last"]))
        plan["order_by"] = [{"by": draw(st.sampled_from(outputs)), "desc": draw(st.booleans()), "nulls": nulls}]
        plan["limit"] = draw(st.integers(1, 5))
        plan["offset"] = draw(st.integers(0, 2))
    return {part: value for part, value in plan.items() if value is not None}


@pytest.fixture(scope="module")
def local_engines() -> tuple[Engine, Engine]:
    return open_duckdb(), open_sqlite()


@pytest.mark.slow
@settings(max_examples=300)
@given(plan=plans())
def test_generated_plans_agree(local_engines: tuple[Engine, Engine], plan: dict[str, Any]) -> None:
    """They compile the same way twice, parse in every dialect, and DuckDB and SQLite give the same rows."""
    for dialect in DIALECTS:
        text = compile_plan(parse_plan(plan), shop(), dialect)
        assert text == compile_plan(parse_plan(json.dumps(plan)), shop(), dialect)
        assert len(sqlglot.parse(text, read=dialect)) == 1
    first, second = (engine.answer(plan) for engine in local_engines)
    assert sorted(map(repr, first)) == sorted(map(repr, second))


# --- the page about plans


def doc_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", doc_blocks("json"))
def test_the_examples_of_the_page_run(engine: Engine, block: str) -> None:
    assert isinstance(engine.answer(json.loads(block)), list)


@pytest.mark.parametrize("dialect", ["sqlite", "duckdb"])
def test_a_declared_key_of_sqlite_may_connect_a_number_and_a_text(dialect: str) -> None:
    key = ForeignKey(columns=("track",), to_table="track", to_columns=("id",))
    race = Table(name="race", columns=(Column(name="track", type="text"),), foreign_keys=(key,))
    track = Table(name="track", columns=(Column(name="id", type="integer"), Column(name="name", type="text")))
    catalog = Catalog(source="races", kind=dialect, dialect=dialect, tables=(race, track), fingerprint="x")
    joins = [{"table": "track", "on": [["race.track", "track.id"]]}]
    plan = parse_plan(json.dumps({"from": "race", "joins": joins, "select": ["name"]}))
    if dialect == "sqlite":
        assert 'ON "race"."track" = "track"."id"' in compile_plan(plan, catalog)
    else:
        with pytest.raises(Invalid, match=r"`race.track` is text, but `track.id` is a number\."):
            compile_plan(plan, catalog)


@pytest.mark.parametrize(("dialect", "levels"), [("sqlite", 18), ("mysql", 18), ("duckdb", 4), ("postgres", 4)])
def test_parts_that_are_written_more_than_once_do_not_multiply_without_end(dialect: str, levels: int) -> None:
    plan: dict[str, Any] = {"from": "orders", "select": ["id"]}
    if levels > 10:
        grain: Any = "order_date"
        for _ in range(levels):
            grain = {"grain": "quarter", "of": grain}
        plan = {"from": "orders", "select": [{"expr": grain, "as": "q"}]}
    else:
        of: Any = "id"
        for _ in range(levels):
            having = [is_("n", ">", number) for number in range(30)]
            plan = {"from": "orders", "aggregate": [{"fn": "sum", "of": of, "as": "n"}], "having": having}
            of = {"op": "+", "args": ["id", {"plan": plan}]}
    with pytest.raises(LimitExceeded, match="The SQL of the plan has more than 30,000 parts"):
        compile_plan(parse_plan(plan), shop(), dialect)
