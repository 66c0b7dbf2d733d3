"""Compare a reading with its plan: each filter, negation, grouping, order and limit of the plan must be in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from etude.sources.plan.query_plan import (
    Aggregate,
    Between,
    ColumnRef,
    Compare,
    InList,
    Match,
    Member,
    Not,
    NullTest,
    Order,
    QueryPlan,
    Single,
)

NEGATIONS = ("not", "no", "none", "without", "missing", "false", "!=")


def find_unsaid(plan: QueryPlan, reading: str) -> list[str]:
    """Return the parts of the plan that the reading does not state."""
    words = reading.replace("`", " ").replace(",", " ").replace(".", " ").lower().split()
    text = reading.lower()
    unsaid = []
    for node in _nodes(plan):
        for part, said in _parts(node, text, words):
            if not said:
                unsaid.append(part)
    return unsaid


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, BaseModel):
        yield node
        for name in type(node).model_fields:
            yield from _nodes(getattr(node, name))
    elif isinstance(node, tuple | list):
        for each in node:
            yield from _nodes(each)


def _parts(node: Any, text: str, words: list[str]) -> Iterator[tuple[str, bool]]:
    match node:
        case Compare(column=column, value=value):
            yield f"the filter on {_name(column)}", _named(column, text)
            if isinstance(value, Single):
                yield (
                    "the comparison with all",
                    any(word in words for word in ("highest", "lowest", "average", "median")),
                )
            elif isinstance(value, str) and not value[:4].isdigit():
                yield f"the value {value}", value.lower() in text
        case InList(column=column) | Between(column=column) | Match(column=column) | NullTest(column=column):
            yield f"the filter on {_name(column)}", _named(column, text)
        case Not():
            yield "the negation", any(word in words for word in NEGATIONS)
        case Member(op=op):
            said = any(word in words for word in NEGATIONS) if op == "not in" else "where" in words or "least" in words
            yield f"the {op} of related rows", said or op == "in"
        case Aggregate(fn=fn):
            names = {"count": "number", "avg": "average", "sum": "sum", "min": "lowest", "max": "highest"}
            yield f"the {fn}", names.get(fn, fn) in text or "ratio" in text or "share" in text or fn in words
        case QueryPlan():
            for key in node.group_by:
                if isinstance(key, ColumnRef):
                    yield f"the group {key.column}", _named(key, text) or not node.aggregate or bool(node.select)
            for order in node.order_by:
                if isinstance(order, Order):
                    yield "the order", any(word in words for word in ("first", "then", "highest", "lowest", "those"))
            if node.limit is not None:
                yield "the limit", str(node.limit) in words or "only" in words
            if node.top is not None:
                yield "the choice of the best", any(word in words for word in ("highest", "lowest"))


def _name(column: Any) -> str:
    return column.column if isinstance(column, ColumnRef) else str(column)


def _named(column: Any, text: str) -> bool:
    if isinstance(column, ColumnRef):
        return column.column.lower() in text
    return not isinstance(column, str) or column.replace("_", " ").lower() in text.replace("_", " ") or "number" in text
