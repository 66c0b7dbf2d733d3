"""Rank tables by how well they match a question: BM25 over table names, column names and comments."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache

from etude.entities import Catalog, Table

_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])")
_PLURALS = (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("ses", "s"), ("xes", "x"), ("s", ""))
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by did do for from give had has have how i in is it list me of on or per show tell that "
        "the their there to was we were what when where which who whose with you your all each than many much",
    )
)


def ranking_words(text: str) -> list[str]:
    """Return the words of a text or name, in lower case and without plural endings."""
    return list(_words(text))


@lru_cache(maxsize=50_000)
def _words(text: str) -> tuple[str, ...]:
    return tuple(
        stem_for_ranking(w.lower()) for w in _WORD.findall(_HUMP.sub(" ", text)) if w.lower() not in STOP_WORDS
    )


def rank_tables(catalog: Catalog, question: str) -> list[Table]:
    """Sort the tables by how well they match the question; a foreign key passes on part of a table's score."""
    documents = {t.name: _document(t) for t in catalog.tables}
    average = sum(map(len, documents.values())) / max(len(documents), 1)
    seen_in = Counter(word for document in documents.values() for word in set(document))
    asked = set(ranking_words(question))
    scores = {name: _score(asked, doc, seen_in, len(documents), average) for name, doc in documents.items()}
    # A table that joins two good ones is needed even if no word of the question names it.
    for table in catalog.tables:
        for key in table.foreign_keys:
            near, far = scores.get(table.name, 0.0), scores.get(key.to_table, 0.0)
            scores[table.name] = max(near, far * 0.3)
            if key.to_table in scores:
                scores[key.to_table] = max(far, near * 0.3)
    return sorted(catalog.tables, key=lambda t: (-scores[t.name], t.name))


def _document(table: Table) -> Counter[str]:
    document: Counter[str] = Counter()
    for word in ranking_words(table.name):
        document[word] += 3
    for column in table.columns:
        document.update(ranking_words(column.name))
        document.update(ranking_words(column.comment or ""))
    document.update(ranking_words(table.comment or ""))
    return document


def _score(asked: set[str], document: Counter[str], seen_in: Counter[str], count: int, average: float) -> float:
    length = sum(document.values())
    total = 0.0
    for word in asked & document.keys():
        rarity = math.log(1 + (count - seen_in[word] + 0.5) / (seen_in[word] + 0.5))
        often = document[word]
        total += rarity * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * length / (average or 1)))
    return total


def stem_for_ranking(word: str) -> str:
    """Return an English word in lower case without its plural ending."""
    for ending, instead in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 2 and not word.endswith("ss"):
            return word[: -len(ending)] + instead
    return word
