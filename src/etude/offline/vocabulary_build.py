"""Build the vocabulary of a source: look at its tables, give them words, find their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etude.entities import Catalog
from etude.offline.collection import pause_garbage_collection
from etude.offline.identifiers import call_rows_by_identifier, mark_identifiers
from etude.offline.revenue import add_revenue
from etude.offline.vocabulary import Ask, KnownTable, Vocabulary
from etude.offline.vocabulary_keys import drop_borrowed_keys, find_links, guess_key, guess_label, mark_keys
from etude.offline.vocabulary_names import NameSplitter, common_first_words, name_table, table_name_without_schema
from etude.offline.vocabulary_queries import look_at_tables
from etude.offline.words import base_form, split_identifier


def build_vocabulary(catalog: Catalog, ask: Ask, known: Mapping[str, KnownTable] | None = None) -> Vocabulary:
    """Query every table once for counts, ranges and the distinct texts of its columns, then find the keys.

    Tables `known` from a profile of the same data are queried only for the texts that the profile leaves out.
    """
    tables = look_at_tables(catalog, ask, known or {})
    with pause_garbage_collection():
        named = _name_tables(tables)
    links = find_links(catalog, named, ask)
    with pause_garbage_collection():
        named = [mark_identifiers(table) for table in mark_keys(drop_borrowed_keys(named, links, catalog), links)]
        named = add_revenue([call_rows_by_identifier(table) for table in named] if len(named) == 1 else named)
    return Vocabulary(catalog.fingerprint, catalog.dialect, tuple(named), tuple(links), catalog)


def _name_tables(tables: Sequence[KnownTable]) -> list[KnownTable]:
    """Give the tables their words, keys and labels."""
    common = common_first_words([split_identifier(table_name_without_schema(table.name)) for table in tables])
    whole = {table_name_without_schema(table.name).lower() for table in tables}
    parts = {word for table in tables for word in split_identifier(table_name_without_schema(table.name))}
    names = NameSplitter(frozenset(whole | {base_form(name) for name in whole}), frozenset(parts))
    named = [name_table(table, common, names) for table in tables]
    named = [replace(table, key=table.key or guess_key(table)) for table in named]
    return [replace(table, label=guess_label(table)) for table in named]
