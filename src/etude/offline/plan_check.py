"""Check a plan against the words of its question: every word that carries meaning must be in the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from etude.offline.question_parts import Condition, NamePart, Question
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, once_per_vocabulary
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import SCALES, parse_plain_number, word_base_form
from etude.sources.plan.query_plan import (
    Aggregate,
    Between,
    ColumnRef,
    Compare,
    InList,
    Join,
    Match,
    Member,
    Not,
    NullTest,
    Or,
    QueryPlan,
    Single,
    TimeGrain,
)

_NAMING = frozenset(("name", "names", "title", "titles"))
Place = tuple[str, str]
"""A table without its schema, and a column."""


@dataclass
class Facts:
    """What a plan uses, its inner plans included."""

    tables: set[str] = field(default_factory=set)
    columns: set[Place] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    kinds: set[type] = field(default_factory=set)
    denies: bool = False
    """A part of it says that something is not so."""
    groups: bool = False
    orders: bool = False
    chooses: bool = False
    """Only the first rows, or those with the highest value, are kept."""


def plan_facts(plan: QueryPlan) -> Facts:
    """Return what a plan uses."""
    facts = Facts()
    for node in plan_nodes(plan):
        _note(node, facts)
    return facts


def plan_nodes(node: Any) -> Iterator[Any]:
    """Yield the parts of a plan, its inner plans included."""
    if isinstance(node, BaseModel):
        yield node
        for name in type(node).model_fields:
            yield from plan_nodes(getattr(node, name))
    elif isinstance(node, tuple | list):
        for each in node:
            yield from plan_nodes(each)


def _note(node: Any, facts: Facts) -> None:
    facts.kinds.add(type(node))
    match node:
        case QueryPlan():
            if isinstance(node.source, str):
                facts.tables.add(vocabulary_name_without_schema(node.source))
            facts.groups |= bool(node.group_by)
            facts.orders |= bool(node.order_by)
            facts.chooses |= node.limit is not None or node.top is not None
            facts.numbers |= {float(number) for number in (node.limit, node.top.n if node.top else None) if number}
        case Join():
            facts.tables.add(vocabulary_name_without_schema(node.table))
        case ColumnRef() if node.table is not None:
            facts.columns.add((node.table, node.column))
        case Aggregate():
            facts.functions.add(node.fn)
        case Compare():
            facts.denies |= node.op == "!=" or node.value is False or node.value in (0, "No", "no", "N", "n", "F", "f")
            facts.chooses |= isinstance(node.value, Single)
            _note_value(node.value, facts)
        case Match():
            facts.texts.add(node.value.strip("%").replace("\\", "").lower())
        case InList() | Between():
            facts.denies |= node.op == "not in"
            for value in node.value:
                _note_value(value, facts)
        case Member():
            facts.denies |= node.op == "not in"
        case Not():
            facts.denies = True
        case NullTest():
            facts.denies |= node.op == "is null"


def _note_value(value: Any, facts: Facts) -> None:
    if isinstance(value, str):
        facts.texts.add(value.lower())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        facts.numbers.add(float(value))


def find_words_lost_in_plan(
    items: Sequence[TaggedItem], plan: QueryPlan, question: Question, vocabulary: Vocabulary
) -> list[str]:
    """Return the words of the question that the plan does not account for."""
    facts = plan_facts(plan)
    lost = []
    for at, item in enumerate(items):
        # "Job title" is the job: the second word only says that it has a name.
        says_name = at and items[at - 1].tag == "C" and item.joined and item.text.lower() in _NAMING
        implied = at + 1 < len(items) and _is_implied(item, items[at + 1], facts, vocabulary)
        if not says_name and not implied and not _is_kept(item, facts, question, vocabulary):
            lost.append(item.text)
    return list(dict.fromkeys(lost))


def _is_implied(item: TaggedItem, following: TaggedItem, facts: Facts, vocabulary: Vocabulary) -> bool:
    """Return whether a noun says nothing of the rows after it: `company offices`, if each office is a company's."""
    if (item.tag, following.tag) != ("T", "T") or not following.joined or item.plural:
        return False
    owners = {meaning.table for meaning in item.data.tables if meaning.cost == 0}
    for meaning in following.data.tables:
        if vocabulary_name_without_schema(meaning.table) not in facts.tables:
            continue
        rows = vocabulary.table(meaning.table)
        for link in vocabulary.links:
            if link.table == rows.name and link.to_table in owners and len(link.columns) == 1:
                return rows.column(link.columns[0]).nulls == 0
    return False


def _is_kept(item: TaggedItem, facts: Facts, question: Question, vocabulary: Vocabulary) -> bool:
    if isinstance(item.data, NamePart):
        return _keeps_name(item, facts, vocabulary) or _counts_rows(item.data, facts, question)
    if isinstance(item.data, Condition) and item.data.hits:
        values = {value.lower() for hit in item.data.hits for value in hit.values}
        return bool(values & facts.texts) or item.text.lower() in facts.texts
    check = _OPERATORS.get(item.tag)
    return check is None or check(item, facts, question)


def _counts_rows(name: NamePart, facts: Facts, question: Question) -> bool:
    """Return whether the plan counts the rows that have the column, or asks for no such row: `with no outcome`."""
    named = [condition for condition in question.conditions if condition.name == name]
    denied = any(condition.kind == "null" for condition in named) and facts.denies and Member in facts.kinds
    counted = any(condition.said == "counted" for condition in named) and "count" in facts.functions
    held = {vocabulary_name_without_schema(meaning.table) for meaning in name.columns}
    return (denied or counted) and bool(held & facts.tables)


def _keeps_name(item: TaggedItem, facts: Facts, vocabulary: Vocabulary) -> bool:
    name: NamePart = item.data
    last = word_base_form(name.text.lower())
    if last in ("name", "title") and any(column.lower().endswith(last) for _, column in facts.columns):
        return True
    if {value.lower() for hit in item.hits for value in hit.values} & facts.texts or name.text.lower() in facts.texts:
        return True
    links = linked_columns(vocabulary)
    for meaning in name.meanings:
        table = vocabulary_name_without_schema(meaning.table)
        if meaning.column is None and not meaning.label:
            if table in facts.tables:
                return True
            continue
        known = vocabulary.table(meaning.table)
        columns = known.label if meaning.label else (str(meaning.column),)
        formula = known.column(columns[0]).formula if columns else None
        columns = formula.factors if formula is not None else columns
        if any((table, column) in facts.columns for column in columns):
            return True
        if known.key == columns and table in facts.tables and "count" in facts.functions:
            return True  # to count the keys is to count the rows
        if any(end in facts.columns for column in columns for end in links.get((table, column), ())):
            return True
    return False


@once_per_vocabulary
def linked_columns(vocabulary: Vocabulary) -> dict[Place, set[Place]]:
    """Return the columns that hold the same values, by a key."""
    found: dict[Place, set[Place]] = {}
    for link in vocabulary.links:
        for left, right in zip(link.columns, link.to_columns, strict=True):
            one, other = (
                (vocabulary_name_without_schema(link.table), left),
                (vocabulary_name_without_schema(link.to_table), right),
            )
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    return found


def _keeps_number(item: TaggedItem, facts: Facts, question: Question) -> bool:
    units = any(condition.unit for condition in question.conditions) or any(t.unit for t in question.thresholds)
    dated = any(text.startswith(str(item.data)) for text in facts.texts)
    held = {float(item.data), *(float(item.data) / scale for scale in SCALES.values())}
    return units or dated or bool(held & facts.numbers) or TimeGrain in facts.kinds


def _compares(item: TaggedItem, facts: Facts, question: Question) -> bool:
    return bool({Compare, Between} & facts.kinds)


_OPERATORS: dict[str, Callable[[TaggedItem, Facts, Question], bool]] = {
    "N": _keeps_number,
    "Q": lambda item, facts, question: (
        item.text.lower() in facts.texts or parse_plain_number(item.text) in facts.numbers
    ),
    "x": lambda item, facts, question: facts.denies,
    "#": lambda item, facts, question: bool(facts.functions & {"count", "sum"}) or bool(facts.columns),
    "A": lambda item, facts, question: (
        bool({item.data, "count"} & facts.functions) or (isinstance(item.data, float) and "quantile" in facts.functions)
    ),
    "y": lambda item, facts, question: bool({"correlation", "quantile"} & facts.functions),
    "m": lambda item, facts, question: question.gaps,
    "M": lambda item, facts, question: (
        facts.chooses or facts.orders or bool({"min", "max"} & facts.functions and item.text.startswith(("min", "max")))
    ),
    "S": lambda item, facts, question: facts.chooses or facts.orders or bool({"min", "max"} & facts.functions),
    "P": lambda item, facts, question: facts.chooses or facts.orders,
    "K": lambda item, facts, question: facts.chooses,
    "c": _compares,
    "o": _compares,
    "e": _compares,
    "w": _compares,
    "l": lambda item, facts, question: Match in facts.kinds,
    "O": lambda item, facts, question: facts.orders or facts.chooses or item.text == "ordered",
    "d": lambda item, facts, question: facts.orders or facts.chooses,
    "|": lambda item, facts, question: bool({Or, InList} & facts.kinds) or facts.denies,
    "I": lambda item, facts, question: question.everything,
}
"""By tag, whether the plan has a place for an operator word."""


def find_noun_beside_plan(items: Sequence[TaggedItem], plan: QueryPlan, question: Question) -> str:
    """Return the noun that stands beside another but is not in the answer: `customers and suppliers`; else ''."""
    if plan.aggregate:
        return ""
    if lost := _find_listed_table(items, question):
        return lost
    if question.subject is None:
        return ""
    refs = [node.table for node in plan_nodes((plan.select, plan.group_by)) if isinstance(node, ColumnRef)]
    for first, between, second in zip(items, items[1:], items[2:], strict=False):
        if first.tag != "T" or between.tag != "&" or second.tag != "T" or first.data != question.subject:
            continue
        if not {vocabulary_name_without_schema(meaning.table) for meaning in second.data.tables} & {*refs}:
            return second.text
    return ""


def _find_listed_table(items: Sequence[TaggedItem], question: Question) -> str:
    """Return the table that is listed after a column, but not shown: `the cargos and their types`; else ''."""
    for at in range(2, len(items)):
        first, between, second = items[at - 2 : at + 1]
        if any(item.tag == "b" for item in items[: at - 1]) and any(i.data == second.data for i in items[: at - 1]):
            continue  # "both hosts over 45 and hosts under 35"
        owns = at + 1 < len(items) and items[at + 1].tag in "CTV" and items[at + 1].joined
        if (first.tag, second.tag) != ("C", "T") or between.tag != "&" or owns:
            continue
        if question.subject is None and second.data in question.context and second.data not in question.requested:
            return second.text
    return ""


def find_repetition_in_plan(question: Question, plan: QueryPlan, vocabulary: Vocabulary) -> str:
    """Return the value that a list would only repeat: asking which states are named Ohio tells nothing; else ''."""
    if plan.aggregate or not question.conditions or any(c.negated or c.either for c in question.conditions):
        return ""
    if question.listed or not all(
        isinstance(part, NamePart) and part is question.subject for part in question.requested
    ):
        return ""
    shown = {(ref.table, ref.column) for ref in (*plan.select, *plan.group_by) if isinstance(ref, ColumnRef)}
    if len(shown) != len((*plan.select, *plan.group_by)) or not isinstance(plan.source, str):
        return ""
    table = vocabulary.table(plan.source)
    known = {(vocabulary_name_without_schema(table.name), column) for column in (*table.label, *table.key)}
    keys = {(vocabulary_name_without_schema(table.name), column) for column in table.key}
    for condition in question.conditions:
        held = {
            (vocabulary_name_without_schema(hit.table), hit.column)
            for hit in condition.hits
            if hit.column in table.label
        }
        filtered = plan.where is not None and any(
            isinstance(each, Compare) and isinstance(each.column, ColumnRef)
            and (each.column.table, each.column.column) in held & known
            for each in (plan.where if isinstance(plan.where, tuple) else (plan.where,))
        )  # fmt: skip
        if filtered and shown <= held | keys:
            return condition.text
    return ""
