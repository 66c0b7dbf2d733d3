"""What searches and matches return."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.search.index_base import Mode


class RankPart(Entity):
    """One part of a score."""

    rank: int
    score: float
    """BM25 for words, the cosine for vectors."""


class Why(Entity):
    """Why something was found."""

    terms: list[str] = []
    """The terms of the query that it contains."""
    text: RankPart | None = None
    vector: RankPart | None = None


class SearchHit(Entity):
    """Something that was found."""

    id: str
    kind: str
    source: str
    table: str = ""
    """The table, or the path of a file."""
    column: str = ""
    key: dict[str, Any] = {}
    """The key of a row; the id of a run."""
    title: str
    snippet: str
    marks: list[tuple[int, int]] = []
    """Where the terms are in the snippet, as pairs of first and last character + 1."""
    score: float
    why: Why


class IndexInfo(Entity):
    """An index that was searched."""

    source: str
    version: str = ""
    """Empty if only the schema was searched, for lack of an index."""
    embeddings: str | None = None
    documents: int
    made_at: datetime | None = None


class SearchPage(Entity):
    """The best hits; `next` is the offset of the next page."""

    query: str
    mode: Mode
    """How it was searched: `text` for lack of vectors."""
    hits: list[SearchHit]
    next: int | None = None
    indexes: list[IndexInfo] = []
    notes: list[str] = []
    elapsed_ms: float = 0.0


class MatchedRow(Entity):
    """A row that passes the filter, with its similarity."""

    row: dict[str, Any]
    score: float
    because: str
    """Why it is here: the filter, and what is similar."""
    terms: list[str] = []


class FacetValue(Entity):
    """A value of a column and how many of the rows that pass the filter have it."""

    value: Any
    count: int


class MatchPage(Entity):
    """Rows that pass the filter, most similar first; `total` counts all of them."""

    source: str
    table: str
    where: str = ""
    """The filter as it was executed."""
    mode: Mode
    columns: list[str]
    """The columns that were compared."""
    rows: list[MatchedRow]
    total: int
    next: int | None = None
    facets: dict[str, list[FacetValue]] = {}
    notes: list[str] = []
    elapsed_ms: float = 0.0


class BuiltIndex(Entity):
    """What building an index did."""

    source: str
    version: str
    backend: str
    embeddings: str | None
    documents: int
    kinds: dict[str, int]
    new: int = 0
    changed: int = 0
    deleted: int = 0
    unchanged: int = 0
    published: bool = True
    """False if nothing had changed, so that the last version stays."""
    embedded: int = 0
    """Documents whose vectors had to be computed."""
    seconds: float = 0.0
    notes: list[str] = Field(default_factory=list)
