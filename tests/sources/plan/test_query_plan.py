"""How plans are written: what parses, what the schema says, and how a mistake is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.errors import Invalid
from etude.sources.plan.query_plan import MAX_CHARS, And, NullTest, QueryPlan, parse_plan, plan_schema

SCHEMA = Path(__file__).parents[3] / "docs" / "plan.schema.json"

FULL: dict[str, Any] = {
    "from": {"table": "order_lines", "as": "lines"},
    "joins": [
        "orders",
        {"table": "products", "along": "keys"},
        {"table": "customers", "as": "c", "kind": "left", "on": [["orders.customer_id", "c.id"]]},
    ],
    "select": ["category", {"expr": {"op": "/", "args": ["revenue", "orders"]}, "as": "per_order"}],
    "where": [
        {"column": {"part": "year", "of": "order_date"}, "op": "=", "value": 2024},
        {"or": [{"column": "status", "op": "in", "value": ["paid", "open"]}, {"column": "c.id", "op": "is null"}]},
        {"not": {"column": "shipped_at", "op": "<", "value": {"column": "order_date"}}},
        {"column": "products.name", "op": "ilike", "value": "tea%"},
        {"column": "quantity", "op": "between", "value": [1, 10]},
    ],
    "group_by": ["category", {"grain": "month", "of": "order_date"}],
    "aggregate": [
        {"fn": "sum", "of": {"op": "*", "args": ["quantity", "lines.unit_price"]}, "as": "revenue"},
        {"fn": "count", "of": "order_id", "distinct": True, "as": "orders"},
        {"fn": "count", "filter": {"column": "status", "op": "=", "value": "open"}},
    ],
    "having": {"column": "revenue", "op": ">", "value": 10.5},
    "top": {"n": 3, "per": ["category"], "by": "revenue"},
    "order_by": ["category", {"by": "revenue", "desc": True, "nulls": "first"}],
    "limit": 10,
    "offset": 5,
}


def test_a_plan_reads_back_as_it_was_written() -> None:
    plan = parse_plan(FULL)
    assert plan.model_dump(mode="json", exclude_defaults=True) == FULL
    assert parse_plan(json.dumps(FULL)) == plan
    assert parse_plan(plan.model_dump_json()) == plan


def test_a_plan_is_frozen_and_can_be_a_key() -> None:
    assert {parse_plan(FULL): 1}[parse_plan(FULL)] == 1


def refusal(data: Any) -> tuple[str, str]:
    with pytest.raises(Invalid) as caught:
        parse_plan(data)
    assert "pydantic" not in caught.value.message + caught.value.hint
    return caught.value.message, caught.value.hint


def where(**fields: Any) -> dict[str, Any]:
    return {"from": "t", "where": fields}


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        ("{", "The plan is not JSON:", "Write one object"),
        ("[1]", "The plan is `[1]`, not an object.", "Write an object"),
        ({"from": "t", "limit": {1}}, "The plan is not JSON:", "Use text, numbers"),
        ({}, "`from` is missing.", "allowed here: `from`, `joins`"),
        ({"from": 3}, "`from` cannot be `3`.", "Write a table name"),
        ({"from": "t", "joinz": []}, "`joinz` is not a field of a plan.", "Did you mean `joins`?"),
        ({"from": "t", "select": "a"}, '`select` cannot be `"a"`.', "It must be a list."),
        ({"from": "t", "select": [None]}, "`select[0]` cannot be `null`.", "Write a column name, a number, or"),
        ({"from": "t", "select": [True]}, "`select[0]` cannot be `true`.", "It must be a"),
        (
            {"from": "t", "select": [{"op": "%", "args": [1, 2]}]},
            '`select[0].op` cannot be `"%"`.',
            "It must be `+`, `-`",
        ),
        ({"from": "t", "limit": "5"}, '`limit` cannot be `"5"`.', "It must be a whole number."),
        ({"from": "t", "limit": 0}, "`limit` cannot be `0`.", "It must be 1 or more."),
        ({"from": "t", "offset": 3}, "The plan cannot be", '"offset" needs "limit" and "order_by"'),
        (where(column="a", op="==", value=3), '`where.op` is `"=="`.', "Write one of `=`, `!=`,"),
        (where(column="a", op="=", value=None), "`where.value` cannot be `null`.", '"is null"'),
        (where(column="a", op="=", value=[1]), "`where.value` cannot be `[1]`.", "Write text, a number"),
        (where(column="a", op="=", values=1), "`where.values` is not a field of a plan.", "Did you mean `value`?"),
        (where(column="a", op="in", value=[]), "`where.value` is empty.", "Give at least one item"),
        (where(column="a", op="in", value=[1, None]), "`where.value[1]` cannot be `null`.", '"is null"'),
        (where(column="a", op="between", value=[1]), "`where.value[1]` is missing.", "Add it"),
        (where(column="a", op="like", value=4), "`where.value` cannot be `4`.", "It must be text."),
        (where(column="a", op="=", value=float("nan")), "`where.value` cannot be `NaN`.", "must be finite"),
        (where(column="a", op="=", value=2**63), "`where.value` cannot be", "64 bits"),
        (where(column="a", op="=", value="a\0b"), "`where.value` cannot be", "U+0000"),
        (where(column="a", op="=", value="\ud800"), "`where.value` cannot be", "Unicode"),
        ({"from": "t", "where": "a = 1"}, '`where` cannot be `"a = 1"`.', 'Write {"column": ..., "op": ...'),
        ({"from": "t", "having": {"column": "a", "op": "is null"}}, "The plan cannot be", '"having" filters groups'),
        ({"from": "t", "aggregate": [{"fn": "sum"}]}, '`aggregate[0]` cannot be `{"fn": "sum"}`.', '`sum` needs "of"'),
        (
            {"from": "t", "aggregate": [{"fn": "mean", "of": "a"}]},
            '`aggregate[0].fn` cannot be `"mean"`.',
            "It must be `count`, `sum`, `avg`",
        ),
        (
            {"from": "t", "aggregate": [{"fn": "median", "of": "a", "distinct": True}]},
            "`aggregate[0]` cannot be",
            "`median` cannot be distinct.",
        ),
        (
            {"from": "t", "joins": [{"table": "u", "on": [["a", "b"]], "along": "keys"}]},
            "`joins[0]` cannot be",
            'Give either "on" or "along"',
        ),
        ({"from": "t", "order_by": [{"by": "a", "dsc": True}]}, "`order_by[0].dsc` is not", "Did you mean `desc`?"),
        ({"from": {"table": "t", "as": "é" * 32}}, "`from.as` cannot be", "at most 63 bytes"),
        ({"from": {"plan": {"from": "t"}}}, "`from.as` is missing.", "Add it; allowed here: `plan`, `as`."),
        ({"from": "t", "joins": [{"plan": {"from": "u"}, "as": "u"}]}, "`joins[0].on` is missing.", "Add it"),
        ({"from": "t", "select": [{"expr": {"window": "rank"}, "as": "x"}]}, "`select[0].expr` cannot", 'needs "by"'),
        (
            {"from": "t", "select": [{"expr": {"window": "total", "of": "a", "by": "b"}, "as": "x"}]},
            "`select[0].expr` cannot",
            '`total` takes no "by".',
        ),
        (
            {"from": "t", "where": {"column": "a", "op": "in", "plan": {"from": "u", "selct": ["b"]}}},
            "`where.plan.selct` is not a field",
            "Did you mean `select`?",
        ),
    ],
)
def test_a_mistake_names_the_field_the_value_and_what_to_do(data: Any, message: str, hint: str) -> None:
    found = refusal(data)
    assert found[0].startswith(message)
    assert hint in found[1]


def test_a_long_plan_is_refused() -> None:
    assert "at most 100000" in refusal({"from": "x" * MAX_CHARS})[0]


def test_a_deep_plan_is_refused_however_it_comes() -> None:
    deep: Any = {"column": "a", "op": "is null"}
    for _ in range(50):
        deep = {"not": deep}
    text = '{"from": "t", "where": ' + '{"not": ' * 10_000 + "1" + "}" * 10_001
    loop: dict[str, Any] = {"from": "t"}
    loop["where"] = {"not": loop}
    for data in ({"from": "t", "where": deep}, text, "[" * 90_000, loop):
        assert refusal(data)[0] == "The plan is nested deeper than 32 levels."
    built: Any = NullTest(column="a", op="is null")
    for _ in range(50):
        built = And(filters=(built,))
    with pytest.raises(Invalid, match="nested deeper"):
        QueryPlan(source="t", where=built)


def test_the_published_schema_is_current() -> None:
    current = json.dumps(plan_schema(), indent=2) + "\n"
    code = "import json; from etude.sources.plan import plan_schema; print(json.dumps(plan_schema(), indent=2))"
    assert SCHEMA.read_text() == current, f"run: python -c '{code}' > docs/plan.schema.json"
