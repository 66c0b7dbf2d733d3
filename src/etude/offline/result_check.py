"""Check a result before it is shown: a reading that gives nothing, or everything, is probably not what was meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from typing import Any

from pydantic import BaseModel

from etude.errors import Cancelled, EtudeError
from etude.offline.plan_check import plan_facts, plan_nodes
from etude.offline.understand import Clarification, Outcome, Understanding, take_choice
from etude.sources.plan.compile import compile_plan
from etude.sources.plan.query_plan import (
    Aggregate,
    ColumnRef,
    Join,
    Member,
    NullTest,
    Order,
    PlanRef,
    QueryPlan,
    Single,
)

MANY = 20
"""A superlative that this many rows share does not choose."""
COMPARED = 1_000
"""Longer results are not compared."""
Query = Callable[[str], Iterable[Sequence[Any]]]
RunPlan = Callable[[QueryPlan], Iterable[Sequence[Any]]]
Choose = Callable[[Clarification, str], Outcome]


def settle_choices_by_result(
    clarification: Clarification, query: Query, choose: Choose = take_choice
) -> Understanding | None:
    """Return one of the readings if all of them give the same result; then there is nothing to ask back."""
    catalog = clarification.vocabulary.catalog
    found: list[tuple[Understanding, Counter[str] | list[str]]] = []
    for number in range(1, len(clarification.choices) + 1):
        meant = choose(clarification, str(number))
        if not isinstance(meant, Understanding) or catalog is None:
            return None
        try:
            rows = list(islice(query(compile_plan(meant.plan, catalog)), COMPARED + 1))
        except Cancelled:
            raise
        except EtudeError:
            return None
        told = [repr(tuple(row)) for row in rows]
        counted = told if meant.plan.order_by else Counter(told)
        if not rows or len(rows) > COMPARED or (found and counted != found[0][1]):
            return None
        found.append((meant, counted))
    if not found:
        return None
    said = " and ".join(f"`{choice.label.replace('`', '')}`" for choice in clarification.choices)
    return replace(found[0][0], reasons=(*found[0][0].reasons, f"{said} give the same result."))


def doubt_repeated_result(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """Return why it is not clear how often to list or count a row, or None."""
    checks = (_doubt_related, _doubt_merged, _doubt_pairs, _doubt_namesake_groups, _doubt_owner, _doubt_missing_groups)
    return next((doubt for check in checks if (doubt := check(understanding, run_plan))), None)


def _doubt_related(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`titles of movies with 3 stars`, if one movie has several such ratings: its title once, or for each rating?

    `which movies` and `different titles` are clear.
    """
    plan, question = understanding.plan, understanding.question
    several = question.plural or question.listed
    if plan.aggregate or not isinstance(plan.source, str) or question.distinct or not several:
        return None
    related = [node for node in plan_nodes(plan.where) if isinstance(node, Member) and node.op == "in"]
    if len(related) != 1 or question.subject in (*question.asked, *question.requested):
        return None
    rows = _texts(run_plan(related[0].plan))
    if len({*rows}) == len(rows):
        return None
    inner = related[0].plan
    last = inner.joins[-1] if inner.joins else None
    other = last.table if isinstance(last, Join) else plan.source
    noun = question.subject.text if question.subject is not None else plan.source
    return (
        f"Some rows of `{plan.source}` have several of `{other}`, so it is not clear how often to list them. "
        f"Ask which `{noun}`, or for different values, to list each once."
    )


def _texts(rows: Iterable[Sequence[Any]]) -> list[str]:
    return [repr(tuple(row)) for row in islice(rows, COMPARED)]


def _doubt_merged(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`the dates with a temperature over 30`, if several rows have the same date: once, or for each row?"""
    plan, question = understanding.plan, understanding.question
    merged = plan.group_by and not plan.aggregate and isinstance(plan.source, str)
    restricted = plan.where is not None or plan.joins
    if merged and not restricted:
        return _doubt_merged_numbers(understanding, run_plan)
    if not merged or question.distinct or question.absences or plan.limit or plan.top:
        return None
    if question.both or _has_two_kinds(plan):
        return None  # values that rows of two kinds have, each once
    if _count_rows(plan, run_plan) == _count_rows(_with_each_row(plan), run_plan):
        return None
    return "Several rows have the same values, so it is not clear how often to list them; ask for different values."


def _with_each_row(plan: QueryPlan) -> QueryPlan:
    """Return a plan that lists a value as often as rows have it, not once."""
    return plan.model_copy(update={"group_by": (), "select": plan.group_by, "order_by": ()})


def _count_rows(plan: QueryPlan, run_plan: RunPlan) -> int:
    count = (Aggregate.model_validate({"fn": "count", "as": "number"}),)
    inner = PlanRef(plan=plan.model_copy(update={"order_by": ()}), alias="listed")
    return int(next(iter(run_plan(QueryPlan(source=inner, aggregate=count))))[0])


def _doubt_merged_numbers(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`unit price`, if 74 different prices are in 5,658 rows: each once, each row's, or one number of all?"""
    plan, question = understanding.plan, understanding.question
    if len(plan.group_by) != 1 or question.distinct or plan.limit or plan.top:
        return None
    rows = list(islice(run_plan(plan), MANY + 1))
    numbers = all(isinstance(row[0], int | float | Decimal) and not isinstance(row[0], bool) for row in rows)
    if len(rows) <= MANY or not numbers:
        return None
    number, once = _count_rows(_with_each_row(plan), run_plan), _count_rows(plan, run_plan)
    if number == once:
        return None
    return (
        f"{number:,} rows have {once:,} different values, so it is not clear how often to list them; ask for different "
        "values, for their sum or for their average."
    )


def _has_two_kinds(plan: QueryPlan) -> bool:
    """Return whether the plan lists the values that rows of two kinds have."""
    filters = plan.where if isinstance(plan.where, tuple) else ()
    members = [each for each in filters if isinstance(each, Member) and each.op == "in"]
    return len(members) == 2 and all((each.column,) == plan.group_by for each in members)


def _doubt_pairs(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`reviewers of 3 or more movies`, if one reviewed the same movie twice: movies, or reviews?"""
    plan, question = understanding.plan, understanding.question
    parts = [node for node in plan_nodes(plan) if isinstance(node, QueryPlan) and len(node.joins) > 1]
    counts = [each for part in parts for each in part.aggregate if each.distinct and each.fn == "count"]
    asked = question.distinct or any(word in understanding.text.lower() for word in ("different", "distinct", "unique"))
    if not counts or asked:
        return None
    other = _with_repeated_counts(plan)
    rows, repeated = Counter(_texts(run_plan(plan))), Counter(_texts(run_plan(other)))
    if rows == repeated:
        return None
    return "Some rows are connected more than once, so it is not clear how often to count them; ask for different ones."


def _with_repeated_counts(node: Any) -> Any:
    """Return a plan whose counts count each row as often as it is connected."""
    if isinstance(node, Aggregate) and node.fn == "count":
        return node.model_copy(update={"distinct": False})
    if isinstance(node, BaseModel):
        changed = {name: _with_repeated_counts(getattr(node, name)) for name in type(node).model_fields}
        return node.model_copy(update=changed)
    return tuple(_with_repeated_counts(each) for each in node) if isinstance(node, tuple) else node


def _doubt_namesake_groups(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`the products and the number of events`, if two products have one name: one line, or two?"""
    plan = understanding.plan
    grouped = plan if plan.aggregate else plan.source
    if not isinstance(grouped, QueryPlan) or not grouped.aggregate or not grouped.group_by:
        return None
    measured = {each.alias for each in plan.aggregate}
    columns: Sequence[Any] = plan.select or (*plan.group_by, *(each.alias for each in plan.aggregate))
    places = [place for place, column in enumerate(columns) if column not in measured]
    rows = [repr([row[place] for place in places]) for row in islice(run_plan(plan), COMPARED)]
    if len({*rows}) == len(rows):
        return None
    return "Several groups look the same, so it is not clear whether they are one; ask for something that differs."


def _doubt_owner(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`heads of departments`, if some heads have no department: are they meant too?"""
    plan, subject, owners = understanding.plan, understanding.question.subject, understanding.question.context
    said = " ".join(word for word in understanding.text.lower().split() if word not in ("the", "all", "each"))
    if subject is None or not any(f"{subject.text.lower()} of {name.text.lower()}" in said for name in owners):
        return None
    filters = plan.where if isinstance(plan.where, tuple) else () if plan.where is None else (plan.where,)
    others = tuple(
        each for each in filters if not (isinstance(each, Member) and each.op == "in" and not each.plan.where)
    )
    if len(others) == len(filters):
        return None
    wider = plan.model_copy(update={"where": others or None})
    if Counter(_texts(run_plan(plan))) == Counter(_texts(run_plan(wider))):
        return None
    return f"Some `{subject.text}` have no `{owners[0].text}`, so it is not clear whether they are meant."


def _doubt_missing_groups(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """`students per department`, if some students have a department that is not in its table."""
    plan = understanding.plan
    join = plan.joins[0] if len(plan.joins) == 1 else None
    chooses = plan.top is not None or plan.limit is not None
    if not plan.aggregate or not plan.group_by or not isinstance(join, Join) or chooses or plan.where is not None:
        return None
    if not understanding.question.groups or not isinstance(plan.source, str) or len(join.on) != 1:
        return None
    own, other = join.on[0]
    if not isinstance(own, ColumnRef) or other not in plan.group_by:
        return None
    filters = (NullTest(column=own, op="is not null"), NullTest(column=other, op="is null"))
    outer = join.model_copy(update={"kind": "left"})
    count = (Aggregate.model_validate({"fn": "count", "as": "missing"}),)
    rows = QueryPlan.model_validate({"from": plan.source, "joins": (outer,), "where": filters, "aggregate": count})
    missing = next((row[0] for row in run_plan(rows)), 0)
    if not missing:
        return None
    return (
        f"{missing:,} rows of `{plan.source}` have a `{own.column}` that `{join.table}` does not have, so they would "
        f"be left out. Ask per `{own.column}`."
    )


def doubt_result(
    understanding: Understanding, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int
) -> str | None:
    """Return why a result cannot be what the question asks for, or None."""
    question = understanding.question
    values = [condition for condition in question.conditions if condition.hits and not condition.negated]
    if row_count == 0 and values:
        shown = ", ".join(f"`{condition.text}`" for condition in values)
        return f"No row fits, although the data has {shown}. It was read as: {understanding.reading}"
    if row_count == 0 and not question.absences and not any(c.negated for c in question.conditions):
        return f"No row fits. It was read as: {understanding.reading}"
    if row_count == 1 and rows and all(value is None for value in rows[0]):
        return f"No row has such a value. It was read as: {understanding.reading}"
    named = question.subject in (*question.asked, *question.requested) or question.distinct
    alike = len({repr(tuple(row)) for row in rows}) < len(rows) and not understanding.plan.aggregate
    if (question.absences or understanding.plan.joins) and alike and not named:
        return "Several rows would look the same, so it is not clear how often to list them; ask for different ones."
    if (
        alike
        and len(columns) == 1
        and row_count > MANY
        and not question.distinct
        and not _sorts_by_another(understanding)
    ):
        return (
            f"The same `{columns[0]}` is in several of the {row_count:,} rows, so it is not clear how often to list "
            f"it; ask for different ones, or for another column besides."
        )
    chooses = understanding.plan.top is not None or Single in plan_facts(understanding.plan).kinds
    if question.rank is not None and question.top is None and chooses and row_count > MANY:
        return f"{row_count:,} rows tie, so `{question.rank.text}` does not choose between them."
    return None


def _sorts_by_another(understanding: Understanding) -> bool:
    """Return whether the rows are sorted by a column that the list does not show: then each row has its place."""
    plan = understanding.plan
    return any(isinstance(order, Order) and order.by not in plan.select for order in plan.order_by)
