"""What an index holds and finds: documents in, ranked documents out. Every backend keeps this contract."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["row", "value", "table", "column", "file", "playbook", "run"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Mode = Literal["hybrid", "vector", "text"]
FIELDS = ("id", "kind", "table", "column", "key", "title", "text", "fingerprint")


class Document(NamedTuple):
    """One thing that can be found."""

    id: str
    """Unique in its index, and the same each time that the thing is indexed."""
    kind: str
    table: str
    """The table of a row, a value or a column; the table itself; the path of a file; else empty."""
    column: str
    key: str
    """The key of a row as a JSON object; the id of a run; else empty."""
    title: str
    text: str
    fingerprint: str
    """Changes with the title and the text. Documents with the same one have the same vector."""


def make_index_document(
    id: str, kind: Kind, title: str, text: str, *, table: str = "", column: str = "", key: str = ""
) -> Document:
    """Return a document with the fingerprint of its text."""
    return Document(
        id, kind, table, column, key, title, text, index_document_fingerprint(index_document_text(title, text))
    )


def index_document_fingerprint(text: str) -> str:
    """Return a hash of a text that is embedded and split into terms."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


LONGEST_TITLE = 500
"""Characters of a title that are indexed: the work for a text grows with its length."""


def index_document_text(title: str, text: str) -> str:
    """Return the text that is embedded and split into terms: a title that the text contains is not repeated."""
    return text if title in text else f"{title[:LONGEST_TITLE]}\n{text}"


class Found(NamedTuple):
    """The row of a document in its index, with its score: BM25 for words, the cosine for vectors."""

    row: int
    score: float


@dataclass(frozen=True)
class Only:
    """Which documents may be found; None means all."""

    kinds: tuple[str, ...] | None = None
    tables: tuple[str, ...] | None = None


class OpenIndex(ABC):
    """One version of an index. It never changes, so threads may share it."""

    @abstractmethod
    def by_words(self, terms: Sequence[str], most: int, only: Only) -> list[Found]:
        """Return the documents with any of the terms, ranked by BM25."""

    @abstractmethod
    def by_vector(self, vector: Any, most: int, only: Only) -> list[Found]:
        """Return the documents nearest to a vector of length 1, nearest first."""

    @abstractmethod
    def read(self, rows: Sequence[int]) -> list[Document]:
        """Return the documents of these rows, in this order. Ranking does not read them: few are shown."""

    @abstractmethod
    def batches(self, columns: Sequence[str], only: Only) -> Iterator[Any]:
        """Yield documents as Arrow batches with these columns; `vector` may be among them."""


def index_schema(dimensions: int) -> Any:
    """Return the schema of stored documents; without dimensions they have no vectors."""
    import pyarrow as pa

    fields = [pa.field(name, pa.string()) for name in (*FIELDS, "terms")]
    return pa.schema([*fields, pa.field("vector", pa.list_(pa.float32(), dimensions))] if dimensions else fields)
