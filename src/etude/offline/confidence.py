"""How likely a reading is right: a sum of measured risks, one for each thing in a reading that often goes wrong.

The table has only risks that made a wrong answer more likely both on the databases on which the rules were developed
and on databases before anybody looked at them. `python -m bench.confidence` measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from etude.offline.phrase_index import SUFFIX, Meaning
from etude.offline.plan_check import Facts, plan_facts
from etude.offline.question_parts import Condition, NamePart, Question
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.sources.plan.query_plan import Member, QueryPlan

BASE = 2.75
"""The logarithm of the odds that a reading without any risk is right, on a database that no one looked at."""
RISKS: dict[str, float] = {
    "value in several columns": -0.58,
    "column of a table not named": -0.39,
    "word read as another": -0.34,
    "alternatives": -0.31,
    "noun beside": -0.30,
    "value in lower case": -0.20,
    "joins": -0.16,
    "related rows": -0.16,
    "name without its first words": -0.15,
}
"""By risk, how much it takes from the logarithm of the odds that a reading is right."""


def confidence_of(risks: Sequence[str]) -> float:
    """Return the estimated share of right answers among readings with these risks."""
    odds = BASE + sum(RISKS.get(risk, 0.0) for risk in risks)
    return round(1 / (1 + math.exp(-odds)), 3)


def find_confidence_risks(
    items: Sequence[TaggedItem], question: Question, plan: QueryPlan, notes: Sequence[str]
) -> tuple[str, ...]:
    """Return what may have gone wrong in a reading, each named once."""
    found = {*_of_values(items), *_of_names(items, plan), *_of_parts(question), *_of_plan(plan)}
    if any("is read as" in note for note in notes):
        found.add("word read as another")
    return tuple(sorted(found))


def _of_values(items: Sequence[TaggedItem]) -> Iterator[str]:
    for item in items:
        hits = item.data.hits if isinstance(item.data, Condition) else ()
        if len({(hit.table, hit.column) for hit in hits}) > 1:
            yield "value in several columns"
        if hits and item.text[:1].islower():
            yield "value in lower case"


def _of_names(items: Sequence[TaggedItem], plan: QueryPlan) -> Iterator[str]:
    facts = plan_facts(plan)
    names = [item.data for item in items if isinstance(item.data, NamePart) and item.data.meanings]
    named = {vocabulary_name_without_schema(m.table) for name in names for m in name.tables if m.cost <= SUFFIX}
    for name in names:
        if name.meanings[0].cost == SUFFIX:
            yield "name without its first words"
        used = [m for m in name.meanings if _is_used(m, facts)]
        best = min(used, key=lambda meaning: meaning.cost, default=None)
        own = best is None or best.column is None or vocabulary_name_without_schema(best.table) in named
        if len(facts.tables) > 1 and not own:
            yield "column of a table not named"


def _is_used(meaning: Meaning, facts: Facts) -> bool:
    table = vocabulary_name_without_schema(meaning.table)
    if meaning.column is None:
        return not meaning.label and table in facts.tables
    return (table, meaning.column) in facts.columns


def _of_parts(question: Question) -> Iterator[str]:
    if question.context:
        yield "noun beside"
    if any(condition.either for condition in question.conditions):
        yield "alternatives"


def _of_plan(plan: QueryPlan) -> Iterator[str]:
    if plan.joins:
        yield "joins"
    if Member in plan_facts(plan).kinds:
        yield "related rows"
