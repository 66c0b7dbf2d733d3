"""Check a result before it is shown: a reading that gives nothing, or everything, is probably not what was meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from etude.errors import Cancelled, EtudeError
from etude.offline.self_check import plan_facts, plan_nodes
from etude.offline.understand import Clarification, Outcome, Understanding, take_choice
from etude.sources.plan.compile import compile_plan
from etude.sources.plan.model import Join, Member, QueryPlan, Single

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


def doubt_repetition(understanding: Understanding, run_plan: RunPlan) -> str | None:
    """Return why it is not clear how often to list a row, or None.

    `titles of movies with 3 stars`, if one movie has several such ratings: its title once, or for each rating?
    `which movies` and `different titles` are clear.
    """
    plan, question = understanding.plan, understanding.question
    several = question.plural or question.listed
    if plan.aggregate or not isinstance(plan.source, str) or question.distinct or not several:
        return None
    related = [node for node in plan_nodes(plan.where) if isinstance(node, Member) and node.op == "in"]
    if len(related) != 1 or question.subject in (*question.asked, *question.requested):
        return None
    rows = [repr(tuple(row)) for row in islice(run_plan(related[0].plan), COMPARED)]
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
    if question.absences and alike and not named:
        return "Several rows would look the same, so it is not clear how often to list them; ask for different ones."
    chooses = understanding.plan.top is not None or Single in plan_facts(understanding.plan).kinds
    if question.rank is not None and question.top is None and chooses and row_count > MANY:
        return f"{row_count:,} rows tie, so `{question.rank.text}` does not choose between them."
    return None
