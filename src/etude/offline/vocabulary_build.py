"""Build the vocabulary of a source: look at its tables, give them words, find their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etude.entities import Catalog
from etude.offline.collection import pause_garbage_collection
from etude.offline.identifiers import call_rows_by_identifier, mark_identifiers
from etude.offline.revenue import add_revenue
from etude.offline.text_dates import find_text_dates
from etude.offline.text_numbers import read_text_numbers
from etude.offline.vocabulary import Ask, Vocabulary, VocabularyTable, copy_with
from etude.offline.vocabulary_keys import (
    drop_borrowed_vocabulary_keys,
    find_vocabulary_links,
    guess_vocabulary_key,
    guess_vocabulary_label,
    mark_vocabulary_keys,
)
from etude.offline.vocabulary_names import (
    VocabularyNameSplitter,
    common_first_name_words,
    name_vocabulary_table,
    vocabulary_name_without_schema,
)
from etude.offline.vocabulary_queries import query_vocabulary_tables
from etude.offline.words import split_identifier_words, word_base_form


def build_vocabulary(catalog: Catalog, ask: Ask, known: Mapping[str, VocabularyTable] | None = None) -> Vocabulary:
    """Query every table once for counts, ranges and the distinct texts of its columns, then find the keys.

    Tables `known` from a profile of the same data are queried only for the texts that the profile leaves out.
    """
    tables = find_text_dates(query_vocabulary_tables(catalog, ask, known or {}), catalog, ask)
    with pause_garbage_collection():
        named = _name_tables(tables)
    links = find_vocabulary_links(catalog, named, ask)
    with pause_garbage_collection():
        named = [
            mark_identifiers(read_text_numbers(table))
            for table in mark_vocabulary_keys(drop_borrowed_vocabulary_keys(named, links, catalog), links)
        ]
        named = add_revenue([call_rows_by_identifier(table) for table in named] if len(named) == 1 else named)
    return Vocabulary(catalog.fingerprint, catalog.dialect, tuple(named), tuple(links), catalog)


def _name_tables(tables: Sequence[VocabularyTable]) -> list[VocabularyTable]:
    """Give the tables their words, keys and labels."""
    common = common_first_name_words(
        [split_identifier_words(vocabulary_name_without_schema(table.name)) for table in tables]
    )
    whole = {vocabulary_name_without_schema(table.name).lower() for table in tables}
    parts = {word for table in tables for word in split_identifier_words(vocabulary_name_without_schema(table.name))}
    names = VocabularyNameSplitter(frozenset(whole | {word_base_form(name) for name in whole}), frozenset(parts))
    named = [name_vocabulary_table(table, common, names) for table in tables]
    named = [copy_with(table, key=table.key or guess_vocabulary_key(table)) for table in named]
    return [copy_with(table, label=guess_vocabulary_label(table)) for table in named]
