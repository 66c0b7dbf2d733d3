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
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from etude.entities import Catalog, Column, ForeignKey, Table
from etude.errors import Invalid
from etude.sources.plan import QueryPlan, parse_plan
from etude.sources.plan_compile import compile_plan

DIALECTS = ("duckdb", "postgres", "mysql", "sqlite")
DOCS = Path(__file__).parents[2] / "docs" / "plan.md"

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
        case bool():
            return int(value)
        case Decimal() | float():
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
    "is not null": (names(is_("list_price", "is not null")), [("Tea",), ("Coffee",), ("Cup",), ("Pot",), ("tea towel",)]),
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
    "ends_with with a backslash and a quote": (names(is_("name", "ends_with", "\\'n"), "customers"), [("50%_off\\'n",)]),
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
            "select": ["id", *({"part": p, "of": "order_date"} for p in ("year", "quarter", "month", "week", "day", "weekday"))],
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
}  # fmt: skip


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
