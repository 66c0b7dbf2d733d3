"""Fuzz tests of query plans: any text gives a plan or a clear error, and a plan reads granted tables only."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from etude.entities import Catalog, Column, Table
from etude.errors import EtudeError
from etude.sources.granted_tables import Granted
from etude.sources.guard_sql import check_sql
from etude.sources.plan import parse_plan
from etude.sources.plan.compile import compile_plan

from .loop import fuzz

pytestmark = pytest.mark.timeout(0)
DOCS = Path(__file__).parents[2] / "docs" / "plan.md"
COLUMNS = {
    "customers": {"id": "integer", "name": "text", "country": "text", "created_at": "timestamp"},
    "orders": {
        "id": "integer",
        "customer_id": "integer",
        "status": "text",
        "order_date": "date",
        "total": "decimal(9,2)",
    },
}
SEEDS = [
    '{"from": "orders"}',
    '{"from": "orders", "select": ["id", {"expr": {"column": "total"}, "as": "t"}], "where": [], "limit": 3}',
    '{"from": "orders", "aggregate": [{"fn": "sum", "of": "total", "as": "s"}], "group_by": ["status"]}',
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    10**30,
    "",
    "id",
    "secret",
    'x"; DROP TABLE orders --',
    "\0",
    "\ud800",
    [],
    {},
]
VALUES += [
    "orders",
    "*",
    "count",
    ["id"],
    {"column": "id"},
    {"value": "' OR 1 = 1 --"},
    {"from": "secret"},
    "\u017f",
    "K",
    "a.b",
]


def mutate(text: str, rng: random.Random) -> str:
    """Change the structure if the text is a JSON object, or else insert characters."""
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError):
        plan = None
    if not isinstance(plan, dict) or rng.random() < 0.2:
        place = rng.randrange(len(text) + 1)
        return (
            text[:place]
            + rng.choice(['"', "{", "}", "[", "]", ",", ":", "\\u0000", "1e999", "NaN", "'", "\u2028"])
            + text[place:]
        )
    for _ in range(rng.randrange(1, 4)):
        _change(plan, rng)
    return json.dumps(plan)


def _change(plan: Any, rng: random.Random) -> None:
    places = list(_places(plan))
    if not places:
        plan["from"] = rng.choice(VALUES)
        return
    holder, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            holder[key] = rng.choice(VALUES)
        case 1 if isinstance(holder, dict):
            holder[rng.choice(["from", "select", "where", "limit", "order_by", "join", "having", "as", "x"])] = (
                holder.pop(key)
            )
        case 2:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        case _:
            del holder[key]


def _places(item: Any) -> Any:
    keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
    for key in keys:
        yield item, key
        yield from _places(item[key])


def test_a_plan_is_read_or_explained() -> None:
    tables = tuple(
        Table(name=name, columns=tuple(Column(name=c, type=t) for c, t in columns.items()))
        for name, columns in COLUMNS.items()
    )
    catalog = Catalog(source="shop", kind="postgres", dialect="postgres", tables=tables, fingerprint="")
    describe = {name: [(c, t, True, "") for c, t in columns.items()] for name, columns in COLUMNS.items()}
    names = {name: ("public", name) for name in COLUMNS}
    granted = Granted("shop", names, frozenset({"public"}), describe.__getitem__, callable=frozenset({"pg_sleep"}))

    def check(text: str) -> str:
        try:
            plan = parse_plan(text)
            sql = compile_plan(plan, catalog)
        except EtudeError as error:
            assert error.message
            return "refused"
        assert set(check_sql(sql, "postgres", granted).tables) <= set(COLUMNS)
        return "accepted"

    documented = re.findall(r"```json\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert fuzz("plan", [*SEEDS, *documented], mutate, check)["accepted"] > 10
