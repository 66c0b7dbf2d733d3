"""Which tables of a large source a question needs, by words and by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etude.entities import Catalog, Table
from etude.search.base import Mode
from etude.tools.table_ranking import rank_tables

if TYPE_CHECKING:
    from etude.search.embeddings import Embeddings

RANK = 10
"""The constant of the fusion: small, because the first few tables are what counts."""
WORDS = 1.0
MEANING = 0.5
"""The weights of the two ranks."""


class TableChooser:
    """Ranks the tables of one catalog. Its vectors are made once."""

    def __init__(self, catalog: Catalog, model: Embeddings | None) -> None:
        self._catalog = catalog
        self._model = model
        self._vectors: Any = None

    def choose(self, question: str, mode: Mode = "hybrid") -> list[Table]:
        """Return the tables, those that fit the question best first."""
        by_words = rank_tables(self._catalog, question) if mode != "vector" else []
        by_meaning = self._by_meaning(question) if mode != "text" else []
        if not by_meaning or not by_words:
            return by_words or by_meaning or list(self._catalog.tables)
        scores: dict[str, float] = {}
        for ranked, weight in ((by_words, WORDS), (by_meaning, MEANING)):
            for rank, table in enumerate(ranked, 1):
                scores[table.name] = scores.get(table.name, 0.0) + weight / (RANK + rank)
        return sorted(self._catalog.tables, key=lambda t: (-scores[t.name], t.name))

    def _by_meaning(self, question: str) -> list[Table]:
        if self._model is None or not self._catalog.tables:
            return []
        if self._vectors is None:
            self._vectors = self._model.embed([describe_table(t) for t in self._catalog.tables])
        nearness = (self._vectors @ self._model.embed([question])[0]).tolist()
        order = sorted(range(len(nearness)), key=lambda place: (-nearness[place], self._catalog.tables[place].name))
        return [self._catalog.tables[place] for place in order]


def describe_table(table: Table) -> str:
    """Return the text of a table that is embedded: its name counts most."""
    name = _spaced(table.name)
    columns = [f"{_spaced(c.name)} {c.comment or ''}".strip() for c in table.columns]
    return "\n".join(filter(None, (name, name, table.comment or "", ", ".join(columns))))


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")
