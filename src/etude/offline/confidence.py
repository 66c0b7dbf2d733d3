"""How likely a reading is right: a sum of measured risks, one for each thing in a reading that often goes wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from etude.offline.phrase_index import Meaning
from etude.offline.plan_check import Facts, plan_facts, plan_nodes
from etude.offline.question_parts import Condition, Measure, NamePart, Question
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.sources.plan.query_plan import ColumnRef, Compare, InList, JoinPlan, Member, NullTest, Or, QueryPlan, Single

BASE = 3.51
RISKS: dict[str, float] = {
    "joins 1": -0.75,
    "joins 2": -0.75,
    "duplicates removed": -0.60,
    "column of a table not named": -0.49,
    "groups of several tables": -0.43,
    "groups": -0.42,
    "no related rows": -0.39,
    "filter Compare": -0.35,
    "several columns": -0.35,
    "related rows": -0.31,
    "word read as another": -0.30,
    "columns and measures": -0.29,
    "count of a column": -0.26,
    "name of cost 3": -0.24,
    "name of cost 1": -0.19,
    "noun beside": -0.19,
    "value in lower case": -0.18,
    "no subject": -0.17,
    "verb": -0.13,
    "absence": -0.12,
    "value without its column": -0.11,
    "tag x": -0.11,
    "value in several columns": 0.20,
    "tag U": 0.22,
    "conditions": 0.23,
    "distinct": 0.28,
    "measure of a column": 0.48,
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
    found = {*_of_words(items), *_of_parts(question), *_of_plan(plan), *_of_notes(notes), *_of_names(items, plan)}
    return tuple(sorted(found))


def _of_names(items: Sequence[TaggedItem], plan: QueryPlan) -> Iterator[str]:
    """Yield the risk of a column whose table the question does not name, if the plan has other tables."""
    facts = plan_facts(plan)
    names = [item.data for item in items if isinstance(item.data, NamePart)]
    named = {vocabulary_name_without_schema(m.table) for name in names for m in name.tables if m.cost <= 1}
    for name in names if len(facts.tables) > 1 else ():
        used = [m for m in name.meanings if _is_used(m, facts)]
        best = min(used, key=lambda meaning: meaning.cost, default=None)
        if best is not None and best.column is not None and vocabulary_name_without_schema(best.table) not in named:
            yield "column of a table not named"


def _is_used(meaning: Meaning, facts: Facts) -> bool:
    table = vocabulary_name_without_schema(meaning.table)
    if meaning.column is None:
        return not meaning.label and table in facts.tables
    return (table, meaning.column) in facts.columns


def _of_notes(notes: Sequence[str]) -> Iterator[str]:
    if any("is read as" in note for note in notes):
        yield "word read as another"
    if any("not unique" in note for note in notes):
        yield "name not unique"
    if any("left out" in note for note in notes):
        yield "rows left out"


def _of_words(items: Sequence[TaggedItem]) -> Iterator[str]:
    content = [item for item in items if item.tag not in ".,()"]
    if len(content) > 8:
        yield "long"
    if len(content) > 12:
        yield "very long"
    for item in items:
        if isinstance(item.data, NamePart) and item.data.meanings:
            least = item.data.meanings[0].cost
            yield f"name of cost {min(least, 3)}"
            tables = {m.table for m in item.data.meanings if m.cost == least}
            if len(tables) > 1:
                yield "name in several tables"
            if item.hits:
                yield "name or value"
        if isinstance(item.data, Condition) and item.data.hits:
            hits = item.data.hits
            if hits[0].cost:
                yield f"value of cost {min(hits[0].cost, 3)}"
            if len({(hit.table, hit.column) for hit in hits}) > 1:
                yield "value in several columns"
            if item.text[:1].islower():
                yield "value in lower case"
        if item.tag in "URtibjPKMSxWDGal":
            yield f"tag {item.tag}"


def _of_parts(question: Question) -> Iterator[str]:
    if question.verbs:
        yield "verb"
    if len({*question.verbs}) > 1:
        yield "verbs"
    if question.context:
        yield "noun beside"
    if len(question.context) > 1:
        yield "nouns beside"
    if question.loose:
        yield "noun that describes"
    if question.subject is None:
        yield "no subject"
    if question.rank is not None:
        yield "rank by " + (type(question.rank.by).__name__ if question.rank.by is not None else "adjective")
        if question.plural:
            yield "plural rank"
    if question.thresholds:
        yield "threshold"
    if question.absences:
        yield "absence"
    if question.ratio is not None or question.shares:
        yield "ratio"
    if question.listed:
        yield "second sentence"
    if any(condition.negated for condition in question.conditions):
        yield "negated"
    values = [condition for condition in question.conditions if condition.hits]
    if values and any(condition.name is None for condition in values):
        yield "value without its column"
    if len(question.conditions) > 1:
        yield "conditions"
    if any(condition.kind == "compare" and condition.name is None for condition in question.conditions):
        yield "number without its column"
    if any(condition.either for condition in question.conditions):
        yield "alternatives"
    if any(condition.op == "and" for condition in question.conditions):
        yield "values joined by and"
    if len(question.requested) > 2:
        yield "several columns"
    if question.distinct:
        yield "distinct"
    if question.groups:
        yield "groups"
    if len(question.groups) > 1:
        yield "several groups"
    measures = [part for part in question.requested if isinstance(part, Measure)]
    if measures and len(measures) < len(question.requested):
        yield "columns and measures"
    if any(m.fn == "count" and not m.name.tables for m in measures):
        yield "count of a column"
    if any(m.fn != "count" for m in measures):
        yield "measure of a column"


def _of_plan(plan: QueryPlan) -> Iterator[str]:
    facts = plan_facts(plan)
    joins = len(plan.joins)
    if joins:
        yield f"joins {min(joins, 3)}"
    if Member in facts.kinds:
        yield "related rows"
        if facts.denies:
            yield "no related rows"
    if plan.group_by and not plan.aggregate:
        yield "duplicates removed"
    for part in plan_nodes(plan):
        grouped = part.group_by if isinstance(part, QueryPlan) and part.aggregate else ()
        if len({ref.table for ref in grouped if isinstance(ref, ColumnRef)}) > 1:
            yield "groups of several tables"
    if Single in facts.kinds:
        yield "extreme"
    for kind in (Or, InList, NullTest, Compare, JoinPlan):
        if kind in facts.kinds:
            yield f"filter {kind.__name__}"
    if not isinstance(plan.source, str):
        yield "inner plan"
    if plan.order_by and plan.limit is None and plan.top is None:
        yield "order"
