"""Rows that share the name a question gives: an answer about `Kasia Svensson` may be about three people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from etude.offline.vocabulary import Vocabulary, VocabularyTable
from etude.sources.plan.query_plan import ColumnRef, Compare, QueryPlan
from etude.sources.quoting import quote_identifier, quote_literal, quote_table

Query = Callable[[str], Iterable[tuple[Any, ...]]]


def find_namesakes(plan: QueryPlan, vocabulary: Vocabulary, query: Query) -> str:
    """Return a sentence if several rows of another table have a name that the plan asks for; else an empty text."""
    for table, column, value in _names(plan, vocabulary):
        name, text = quote_identifier(column, vocabulary.dialect), quote_literal(value, vocabulary.dialect)
        place = quote_table(table.name, vocabulary.dialect)
        if len(list(query(f"SELECT 1 FROM {place} WHERE {name} = {text} LIMIT 2"))) > 1:
            return f"Several `{table.name}` have the {column} `{value}`; this is about all of them."
    return ""


def _names(plan: QueryPlan, vocabulary: Vocabulary) -> Iterator[tuple[VocabularyTable, str, str]]:
    """Yield the names that a plan compares with: in a joined table, whose rows are not what is counted or listed."""
    where = plan.where if isinstance(plan.where, tuple) else (plan.where,)
    for each in where:
        if not isinstance(each, Compare) or not isinstance(each.column, ColumnRef) or not isinstance(each.value, str):
            continue
        table = each.column.table
        if each.op != "=" or table is None or table == plan.source:
            continue
        known = next((t for t in vocabulary.tables if t.name == table), None)
        if known is not None and known.key and each.column.column in known.label:
            yield known, each.column.column, each.value
