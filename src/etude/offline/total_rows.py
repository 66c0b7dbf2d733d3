"""Rows of a file that are totals of others: a plan leaves them out, and the answer says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from etude.entities import Catalog, TotalRow
from etude.offline.plan_check import plan_nodes
from etude.offline.understand import Understanding
from etude.sources.plan.query_plan import ColumnRef, Filter, InList, Join, NullTest, Or, QueryPlan, TableRef

SHOWN = 3

Totals = Mapping[str, tuple[TotalRow, ...]]


def leave_out_total_rows(meant: Understanding, catalog: Catalog) -> Understanding:
    """Return the question with a plan that leaves out totals, unless the question names one of them."""
    used = {node for node in plan_nodes(meant.plan) if isinstance(node, QueryPlan)}
    tables = {name for plan in used for name in (*_base(plan), *_joined(plan))}
    totals = {t.name: t.totals for t in catalog.tables if t.totals and t.name in tables}
    asked = {each for node in plan_nodes(meant.plan) for each in _texts(node)}
    totals = {name: rows for name, rows in totals.items() if not asked & {row.value for row in rows}}
    if not totals:
        return meant
    told = tuple(_describe(rows) for rows in totals.values())
    plan = _rewrite(meant.plan, totals)
    return replace(meant, plan=plan, reasons=(*meant.reasons, *told), told=(*meant.told, *told))


def _base(plan: QueryPlan) -> dict[str, str]:
    """Return the table that a plan starts from, and its name in the plan."""
    match plan.source:
        case str(name):
            return {name: name}
        case TableRef(table=name, alias=alias):
            return {name: alias or name}
    return {}


def _joined(plan: QueryPlan) -> dict[str, str]:
    return {join.table: join.alias or join.table for join in plan.joins if isinstance(join, Join)}


def _texts(node: Any) -> set[str]:
    """Return the texts that a filter compares with."""
    value = getattr(node, "value", None)
    return {each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, str)}


def _rewrite(node: Any, totals: Totals) -> Any:
    """Return a part of a plan in which every plan on such a table leaves out its totals."""
    if isinstance(node, tuple):
        return tuple(_rewrite(each, totals) for each in node)
    if not isinstance(node, BaseModel):
        return node
    copied = node.model_copy(update={name: _rewrite(getattr(node, name), totals) for name in type(node).model_fields})
    if not isinstance(copied, QueryPlan):
        return copied
    added = [f for table, name in _base(copied).items() for f in _filters(name, totals.get(table, ()), True)]
    added += [f for table, name in _joined(copied).items() for f in _filters(name, totals.get(table, ()), False)]
    if not added:
        return copied
    before = () if copied.where is None else copied.where if isinstance(copied.where, tuple) else (copied.where,)
    return copied.model_copy(update={"where": (*before, *added)})


def _filters(table: str, rows: tuple[TotalRow, ...], is_base: bool) -> list[Filter]:
    made: list[Filter] = []
    for column in dict.fromkeys(row.column for row in rows):
        ref = ColumnRef(column=column, table=table)
        values = tuple(row.value for row in rows if row.column == column and row.value is not None)
        if values:
            # A row without a label is not a total, and neither is one that a join did not find.
            others = InList(column=ref, op="not in", value=values)
            made.append(Or(filters=(NullTest(column=ref, op="is null"), others)))
        elif is_base:
            made.append(NullTest(column=ref, op="is not null"))
    return made


def _describe(rows: tuple[TotalRow, ...]) -> str:
    column, values = rows[0].column, [row.value for row in rows if row.value is not None]
    if not values:
        return f"The last row, a total without `{column}`, is left out."
    shown = ", ".join(f"`{value[:40]}`" for value in values[:SHOWN]) + (", ..." if len(values) > SHOWN else "")
    rest = "The total row" if len(values) == 1 else "Total rows"
    return f"{rest} (`{column}` is {shown}) {'is' if len(values) == 1 else 'are'} left out."
