"""Columns that a definition computes from others: `revenue means amount minus refund`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from etude.offline.vocabulary import Formula, Vocabulary, VocabularyColumn, VocabularyTable
from etude.offline.words import spell_out_words, split_identifier_words

_CALCULATION = re.compile(r"(.+?)\s+(minus|less|plus|times)\s+(.+)", re.IGNORECASE | re.DOTALL)
_OPERATORS: dict[str, Literal["-", "+", "*"]] = {"minus": "-", "less": "-", "plus": "+", "times": "*"}


def define_columns(vocabulary: Vocabulary, meanings: Mapping[str, str]) -> tuple[Vocabulary, set[str]]:
    """Return the vocabulary with a column for each phrase whose meaning calculates with two columns of one table.

    Also return these phrases. A meaning that fits several tables, or none, defines nothing here.
    """
    defined: set[str] = set()
    for phrase, meaning in meanings.items():
        made = [column for table in vocabulary.tables if (column := _compute(table, phrase, meaning))]
        if len(made) == 1:
            defined.add(phrase)
            vocabulary = replace(vocabulary, tables=tuple(_with_column(vocabulary.tables, made[0])))
    return vocabulary, defined


def _with_column(tables: Iterable[VocabularyTable], made: VocabularyColumn) -> Iterable[VocabularyTable]:
    for table in tables:
        if table.name != made.table:
            yield table
        else:
            # The definition replaces what the word would mean otherwise.
            others = tuple(column for column in table.columns if column.words != made.words)
            yield replace(table, columns=(*others, made), derived=())


def _compute(table: VocabularyTable, phrase: str, meaning: str) -> VocabularyColumn | None:
    parts = _CALCULATION.fullmatch(meaning.strip())
    if parts is None:
        return None
    first, second = (_number_column(table, parts[place]) for place in (1, 3))
    if first is None or second is None:
        return None
    operator = _OPERATORS[parts[2].lower()]
    formula = Formula((first.name, second.name), operator=operator, gaps=operator != "*" and second.nulls > 0)
    words = spell_out_words(split_identifier_words(phrase))
    name = phrase.replace(" ", "_")
    return VocabularyColumn(table.name, name, "number", table.rows, first.nulls, words=words, formula=formula)


def _number_column(table: VocabularyTable, text: str) -> VocabularyColumn | None:
    words = spell_out_words(split_identifier_words(text.strip().strip("`'\"")))
    numbers = [column for column in table.columns if column.kind == "number" and not column.identifies]
    found = [column for column in numbers if words in (column.words, split_identifier_words(column.name))]
    return found[0] if len(found) == 1 else None
