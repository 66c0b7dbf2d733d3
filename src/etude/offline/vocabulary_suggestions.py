"""Questions to start with: made from what is known of a source, each understood by the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date

from etude.offline.column_traits import is_numeric_column
from etude.offline.resolver import MONEY
from etude.offline.row_noun import table_names_row_noun
from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable
from etude.offline.words import split_identifier_words, word_base_form, words_without_numbers

GROUPS = 12
"""The most groups that read well in a chart."""
AVERAGED = frozenset(
    ("age", "discount", "percent", "percentage", "pct", "price", "rate", "ratio", "score", "share", "temperature")
)
"""Words of amounts whose sum means nothing."""
CURRENCIES = frozenset(("chf", "dollar", "eur", "euro", "gbp", "pound", "usd"))
"""Last words of the names of amounts that people leave out of a question."""
LOOKED_AT = 12
"""Tables that questions are made from, the largest first."""


def suggest_from_vocabulary(vocabulary: Vocabulary, today: date) -> Iterator[Understanding]:
    """Yield questions about the largest tables that the rules understand word by word, the most telling first."""
    tables = sorted(vocabulary.tables, key=lambda table: -table.rows)[:LOOKED_AT]
    seen: set[str] = set()
    # The best question of every table comes before the second best of any.
    nouns = Counter(words_without_numbers(table.words) for table in vocabulary.tables)
    alone = len(vocabulary.tables) == 1
    offers = [
        list(_offers(table, nouns[words_without_numbers(table.words)] > 1, alone)) for table in tables if table.rows
    ]
    for rank in range(max(map(len, offers), default=0)):
        for texts in offers:
            if rank < len(texts) and texts[rank] not in seen:
                seen.add(texts[rank])
                meant = understand(texts[rank], vocabulary, today=today)
                # That spellings are merged does not put a word of the question in doubt.
                if isinstance(meant, Understanding) and all(why.startswith("Values of ") for why in meant.reasons):
                    yield meant


def _offers(table: VocabularyTable, numbered: bool, alone: bool) -> Iterator[str]:
    # The name of a file, `school`, is not what its rows are.
    last = words_without_numbers(split_identifier_words(table.name))[-1:]
    noun = "rows" if alone and not any(map(table_names_row_noun, last)) else _noun(table, numbered)
    amounts = [
        c for c in table.columns if is_numeric_column(c) and c.kind == "number" and not c.identifies and c.distinct > 1
    ]
    amounts.sort(key=lambda column: not MONEY & {*column.words})
    groups = [c for c in table.columns if c.kind == "text" and 1 < _values(c) <= GROUPS and c.distinct < table.rows]
    times = [c for c in table.columns if c.kind in ("date", "timestamp") and c.distinct > 1]
    for amount in amounts[:1]:
        for group in groups[:1]:
            fold = "average" if AVERAGED & set(amount.words) else "total"
            verb = "are" if fold == "total" and _is_plural(_spelled(amount)) else "is"
            yield f"What {verb} the {fold} {_spelled(amount)} by {_words(group)}?"
    for group in groups[:1]:
        yield f"How many {noun} are there for each {_words(group)}?"
    for _ in times[:1]:
        yield f"How many {noun} are there per month?"
    for amount in amounts[:1]:
        yield f"What are the top 5 {noun} by {_spelled(amount)}?"
        yield f"What is the average {_spelled(amount)} of {noun}?"
    yield f"How many {noun} are there?"


def _values(column: VocabularyColumn) -> int:
    """Return how many values a column has, with the spellings of one value taken together."""
    return column.distinct - sum(len(alike) - 1 for alike in column.spellings)


def _words(column: VocabularyColumn) -> str:
    return " ".join(column.words)


def _spelled(column: VocabularyColumn) -> str:
    """Return the words of a column in the form that its name has: `minutes`, not `minute`."""
    forms = {word_base_form(word): word for word in split_identifier_words(column.name)}
    words = list(column.words)
    while len(words) > 1 and words[-1] in CURRENCIES:
        words.pop()
    return " ".join(forms.get(word, word) for word in words)


def _noun(table: VocabularyTable, numbered: bool) -> str:
    """Return what the rows of a table are called; `numbered` if tables differ by nothing but their numbers."""
    named = words_without_numbers(table.words)
    numbers = [word for word in table.words if word not in named] if numbered else []
    return " ".join([_plural(" ".join(named)), *numbers])


def _plural(noun: str) -> str:
    """Return the plural of a noun, which may be one already."""
    if _is_plural(noun):
        return noun
    last = noun.rpartition(" ")[2]
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if last.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def _is_plural(noun: str) -> bool:
    last = noun.rpartition(" ")[2]
    return word_base_form(last) != last
