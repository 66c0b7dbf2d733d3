"""Which tables of a large source a question needs, by words, by meaning and by the values that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.entities import Catalog, Table
from etude.search.embeddings.base import load_numpy_for_embeddings
from etude.search.index_base import Mode
from etude.search.terms import terms_of
from etude.tools.table_ranking import STOP_WORDS, rank_tables, ranking_words

if TYPE_CHECKING:
    from etude.catalog.model import SourceProfile
    from etude.search.embeddings import Embeddings

# Chosen on half of the databases of `bench/search.py`; its figures are of the other half.
RANK = 10
"""The constant of the fusion: small, because the first few tables are what counts."""
MEANING = 0.5
"""The weight of the rank by meaning beside that by words."""
COLUMN = 0.5
"""How much the nearest column of a table counts beside the table itself."""
VALUE = 2.0
"""The weight of a value that the question names, shared by the tables that have it."""
LONGEST_VALUE = 5
"""Values of more terms are not looked for."""
NEIGHBOURS = (0.7, 0.4)
"""The parts of its score that a table passes on along a first and a second key: a table that joins others is seldom
named."""
COLUMNS = 20_000
"""A source with more columns is compared by its tables alone."""


class TableChooser:
    """Ranks the tables of one catalog. Its vectors are made once."""

    def __init__(
        self, catalog: Catalog, model: Embeddings | None, values: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        self._catalog = catalog
        self._model = model
        self._tables_by_value = _index_values(catalog, values or {})
        self._vectors: tuple[Any, Any, list[int]] | None = None

    def choose(self, question: str, mode: Mode = "hybrid") -> list[Table]:
        """Return the tables, those that fit the question best first."""
        by_words = rank_tables(self._catalog, question) if mode != "vector" else []
        by_meaning = self._by_meaning(question) if mode != "text" else []
        if not by_meaning or not by_words:
            return by_words or by_meaning or list(self._catalog.tables)
        own: dict[str, float] = dict.fromkeys((t.name for t in self._catalog.tables), 0.0)
        for ranked, weight in ((by_words, 1.0), (by_meaning, MEANING)):
            for rank, table in enumerate(ranked, 1):
                own[table.name] += weight / (RANK + rank)
        for named in self._find_values(question):
            for name in named:
                own[name] += VALUE / (RANK + len(named))
        scores = own
        for part in NEIGHBOURS:
            scores = self._pass_on(scores, part)
        return sorted(self._catalog.tables, key=lambda t: (-scores[t.name], t.name))

    def _pass_on(self, scores: Mapping[str, float], part: float) -> dict[str, float]:
        """Return the scores after each table has passed on a part of its own to the tables at its keys."""
        passed = dict(scores)
        for table in self._catalog.tables:
            for key in table.foreign_keys:
                if key.to_table in scores:
                    passed[table.name] = max(passed[table.name], part * scores[key.to_table])
                    passed[key.to_table] = max(passed[key.to_table], part * scores[table.name])
        return passed

    def _find_values(self, question: str) -> list[frozenset[str]]:
        """Return the tables of each value that the question names; a value within a longer one does not count."""
        terms, found, taken = terms_of(question), list[frozenset[str]](), set[int]()
        for length in range(min(LONGEST_VALUE, len(terms)), 0, -1):
            for start in range(len(terms) - length + 1):
                places = range(start, start + length)
                tables = self._tables_by_value.get(tuple(terms[start : start + length]))
                if tables and taken.isdisjoint(places):
                    found.append(tables)
                    taken.update(places)
        return found

    def _by_meaning(self, question: str) -> list[Table]:
        if self._model is None or not self._catalog.tables:
            return []
        np, tables = load_numpy_for_embeddings(), self._catalog.tables
        if self._vectors is None:
            self._vectors = self._embed(self._model, tables)
        whole, columns, starts = self._vectors
        vector = self._model.embed([question])[0]
        nearness = whole @ vector
        if columns is not None:
            nearness = nearness + COLUMN * np.maximum.reduceat(columns @ vector, starts)
        near = nearness.tolist()
        order = sorted(range(len(near)), key=lambda place: (-near[place], tables[place].name))
        return [tables[place] for place in order]

    @staticmethod
    def _embed(model: Embeddings, tables: Sequence[Table]) -> tuple[Any, Any, list[int]]:
        """Return the vectors of tables, those of columns, and where the columns of each table start."""
        whole = model.embed([describe_table_for_choice(t) for t in tables])
        if any(not t.columns for t in tables) or sum(len(t.columns) for t in tables) > COLUMNS:
            return whole, None, []
        texts, starts = list[str](), list[int]()
        for table in tables:
            starts.append(len(texts))
            texts += (f"{_spaced(c.name)} {_spaced(table.name)}" for c in table.columns)
        return whole, model.embed(texts), starts


def frequent_values(profile: SourceProfile) -> dict[str, list[str]]:
    """Return the frequent texts of each table, without those that the catalog masks as personal data."""
    return {
        table.name: [v.value for c in table.columns if not c.masked for v in c.top if isinstance(v.value, str)]
        for table in profile.tables
    }


def _index_values(catalog: Catalog, values: Mapping[str, Iterable[str]]) -> dict[tuple[str, ...], frozenset[str]]:
    """Return the tables that have each value, by its terms; words that name tables or columns are left out."""
    names = [t.name for t in catalog.tables] + [c.name for t in catalog.tables for c in t.columns]
    words = STOP_WORDS.union(*map(ranking_words, names))
    tables: dict[tuple[str, ...], set[str]] = {}
    for table in catalog.tables:
        for value in values.get(table.name, ()):
            terms = tuple(terms_of(value))
            plain = len(terms) == 1 and (terms[0] in words or len(terms[0]) < 2 or terms[0].isdecimal())
            if terms and len(terms) <= LONGEST_VALUE and not plain:
                tables.setdefault(terms, set()).add(table.name)
    return {terms: frozenset(names) for terms, names in tables.items()}


def describe_table_for_choice(table: Table) -> str:
    """Return the text of a table that is embedded: its name counts most."""
    name = _spaced(table.name)
    columns = [f"{_spaced(c.name)} {c.comment or ''}".strip() for c in table.columns]
    return "\n".join(filter(None, (name, name, table.comment or "", ", ".join(columns))))


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")
