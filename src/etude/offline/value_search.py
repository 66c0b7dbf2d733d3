"""Look up words that nothing explains in columns with too many values to know: `population of Paris`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from etude.errors import Cancelled, EtudeError
from etude.offline.phrase_index import Hit
from etude.offline.question_parts import Condition
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, once_per_vocabulary
from etude.sources.quoting import quote_identifier, quote_literal, quote_table

Query = Callable[[str], Iterable[Sequence[Any]]]
MOST_PHRASES = 4
MOST_WORDS = 4
MOST_COLUMNS = 8
MOST_ROWS = 5_000_000
"""Larger tables are not searched."""
SEARCH_S = 2.0
"""No query begins after this time."""


def find_words_for_value_search(items: Sequence[TaggedItem]) -> tuple[str, ...]:
    """Return the phrases that nothing explains: longer ones first, then their words."""
    found: list[str] = []
    for at, item in enumerate(items):
        if item.tag in "uQ" and not (at and item.joined and items[at - 1].tag == "u"):
            words = [each.text for each in items[at : at + _run_length(items, at)]]
            found += [" ".join(words[:size]) for size in range(len(words), 0, -1)]
    return tuple(dict.fromkeys(found))[:MOST_PHRASES]


def search_values(phrases: Sequence[str], vocabulary: Vocabulary, query: Query) -> dict[str, tuple[Hit, ...]]:
    """Return where each phrase is a value, among the columns whose values are not known."""
    columns = _unknown_columns(vocabulary)
    ends = time.monotonic() + SEARCH_S
    found: dict[str, tuple[Hit, ...]] = {}
    for phrase in phrases:
        hits = [
            hit for column in columns if time.monotonic() < ends for hit in _find(phrase, column, vocabulary, query)
        ]
        if hits:
            found[phrase] = tuple(hits)
    return found


def tag_found_values(items: Sequence[TaggedItem], known: Mapping[str, tuple[Hit, ...]]) -> list[TaggedItem]:
    """Return the items with these phrases read as values."""
    made: list[TaggedItem] = []
    at = 0
    while at < len(items):
        sizes = range(_run_length(items, at), 0, -1) if known and items[at].tag in "uQ" else ()
        texts = {size: " ".join(item.text for item in items[at : at + size]) for size in sizes}
        size = next((size for size, text in texts.items() if text in known), 0)
        if size:
            condition = Condition("value", texts[size], hits=known[texts[size]])
            made.append(TaggedItem("V", texts[size], condition, joined=items[at].joined))
        else:
            made.append(items[at])
        at += size or 1
    return made


def _run_length(items: Sequence[TaggedItem], at: int) -> int:
    """Return how many adjacent words, from this one, nothing explains; a quoted text stands alone."""
    if items[at].tag == "Q":
        return 1
    end = at
    while end < len(items) and end - at < MOST_WORDS and items[end].tag == "u" and (end == at or items[end].joined):
        end += 1
    return end - at


@once_per_vocabulary
def _unknown_columns(vocabulary: Vocabulary) -> list[VocabularyColumn]:
    """Return the text columns whose values are not known, those that name rows first."""
    found = [
        (column.name not in table.label, table.rows, column)
        for table in vocabulary.tables
        for column in table.columns
        if column.kind == "text" and column.distinct and not column.values and table.rows <= MOST_ROWS
    ]
    return [column for _, _, column in sorted(found, key=lambda each: each[:2])[:MOST_COLUMNS]]


def _find(text: str, column: VocabularyColumn, vocabulary: Vocabulary, query: Query) -> list[Hit]:
    dialect = vocabulary.dialect
    name, table = quote_identifier(column.name, dialect), quote_table(column.table, dialect)
    wanted = quote_literal(text.lower(), dialect)
    try:
        rows = list(query(f"SELECT DISTINCT {name} FROM {table} WHERE lower({name}) = {wanted} LIMIT 5"))
    except Cancelled:
        raise
    except EtudeError:
        return []  # a type that has no lower case, or a limit: the word stays unexplained
    return [Hit(column.table, column.name, tuple(sorted(str(row[0]) for row in rows)))] if rows else []
