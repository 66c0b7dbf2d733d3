"""What a source holds, for people who do not know it: `what tables are there`, `describe the data`."""

from __future__ import annotations

import re

from etude.offline.phrase_index import phrase_index_of
from etude.offline.understand import offer_questions
from etude.offline.vocabulary import Vocabulary, VocabularyTable
from etude.offline.words import fold_words

TABLES = 12
"""At most this many tables are listed."""
COLUMNS = 12
"""At most this many columns of a table are listed, in an overview of several tables fewer."""

_OF = r"(?: (?:in|of) (?:it|(?:the|this|my|our) (?:data|database|dataset|source|file|folder)))?"
_THERE = rf"(?: (?:are|is) there| exist| do (?:you|we|i) have| can i (?:use|ask about)| are available)?{_OF}"
_ASK = r"(?:what|which|list|show|give me|show me|name)(?: me)?(?: all)?(?: of)?(?: the)?"
_TABLES = re.compile(rf"{_ASK} tables{_THERE}|tables|how many tables{_THERE}|(?:list|show)(?: me)?(?: my| our) tables")
_COLUMNS = re.compile(rf"{_ASK} (?:columns|fields){_THERE}|columns")
_ROWS = re.compile(rf"(?:how many|number of|count(?: all)?(?: the)?) (?:rows|records|entries){_THERE}(?: in total)?")
_DATA = re.compile(
    r"(?:describe|summari[sz]e|explain|show|show me|give me an overview of|overview of|tell me about|what is in"
    r"|whats in|what does)(?: me)?(?: the| this| my| our)? (?:data|database|dataset|source|file|files|schema|tables)"
    r"(?: contain| hold| have)?"
    rf"|(?:what|which)(?: kind of)? data{_THERE}|what is (?:this|the|my) (?:data|dataset|database|file)(?: about)?"
    r"|overview|help|what can (?:i|you) (?:ask|answer|do)|what can i ask (?:you|here)?"
)


def describe_source(question: str, vocabulary: Vocabulary) -> str:
    """Return the tables, their sizes and columns, and questions to begin with; empty if something else is asked."""
    words = re.findall(r"[^\W_]+", fold_words(question).replace("'", ""))
    said = " ".join(word for word in words if word not in ("please", "pls"))
    index = phrase_index_of(vocabulary)
    if not vocabulary.tables or any((word,) in index.names for word in ("table", "data", "row", "column", "record")):
        return ""
    if _ROWS.fullmatch(said) and len(vocabulary.tables) > 1:
        return f"Rows of each table: {_list_tables(vocabulary, rows_only=True)}."
    if not any(pattern.fullmatch(said) for pattern in (_TABLES, _COLUMNS, _DATA)):
        return ""
    offers = offer_questions(vocabulary)
    count = len(vocabulary.tables)
    text = f"{'One table' if count == 1 else f'{count:,} tables'}: {_list_tables(vocabulary)}."
    return text + (f" Ask, for example: {'; '.join(f'“{offer}”' for offer in offers)}" if offers else "")


def _list_tables(vocabulary: Vocabulary, rows_only: bool = False) -> str:
    tables = sorted(vocabulary.tables, key=lambda table: -table.rows)
    shown = [_describe_table(table, rows_only, len(tables)) for table in tables[:TABLES]]
    left = len(tables) - len(shown)
    return (", " if rows_only else "; ").join(shown) + (f" and {left:,} more" if left else "")


def _describe_table(table: VocabularyTable, rows_only: bool, tables: int) -> str:
    if rows_only:
        return f"`{table.name}` {table.rows:,}"
    most = COLUMNS if tables < 3 else COLUMNS // 2
    names = ", ".join(f"`{column.name}`" for column in table.columns[:most])
    left = len(table.columns) - most
    rows = "1 row" if table.rows == 1 else f"{table.rows:,} rows"
    return f"`{table.name}` ({rows}: {names}{f' and {left:,} more' if left > 0 else ''})"
