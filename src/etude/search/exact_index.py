"""An index in memory, stored as one Parquet file: every document is compared. It needs no extra library for words."""

from __future__ import annotations

import heapq
import io
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etude.errors import NotFound
from etude.search.index_base import FIELDS, Document, Found, Only, OpenIndex
from etude.store.objects import Objects

FILE = "documents.parquet"
K1 = 1.2
B = 0.75


def write_exact_index(objects: Objects, place: str, schema: Any, batches: Iterable[Any]) -> None:
    """Store the documents at a place."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
    objects.write(f"{place}/{FILE}", file.getvalue(), "application/vnd.apache.parquet")


def open_exact_index(objects: Objects, place: str) -> ExactIndex:
    """Read an index; raise `NotFound` if it was removed in the meantime."""
    import pyarrow.parquet as pq

    return ExactIndex(pq.read_table(io.BytesIO(objects.read(f"{place}/{FILE}"))))


def remove_exact_index(objects: Objects, place: str) -> None:
    """Remove an index, if there is one."""
    objects.remove(f"{place}/{FILE}")


class ExactIndex(OpenIndex):
    """All documents with their postings and vectors, in memory."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._kinds: list[str] = table.column("kind").to_pylist()
        self._tables: list[str] = table.column("table").to_pylist()
        self._postings: dict[str, tuple[array[int], array[int]]] = {}
        self._lengths: list[int] = []
        for place, text in enumerate(table.column("terms").to_pylist()):
            terms = text.split()
            self._lengths.append(len(terms))
            for term, count in Counter(terms).items():
                places, counts = self._postings.setdefault(term, (array("I"), array("I")))
                places.append(place)
                counts.append(count)
        self._average = sum(self._lengths) / max(len(self._lengths), 1) or 1.0
        self._matrix = exact_index_vectors(table.column("vector")) if "vector" in table.column_names else None

    @property
    def size(self) -> int:
        """The number of documents."""
        return len(self._lengths)

    @property
    def has_vectors(self) -> bool:
        """True if the documents have vectors."""
        return self._matrix is not None

    def by_words(self, terms: Sequence[str], most: int, only: Only) -> list[Found]:
        """Return the documents with any of the terms, ranked by BM25."""
        scores: dict[int, float] = {}
        size, lengths, average = len(self._lengths), self._lengths, self._average
        for term in dict.fromkeys(terms):
            places, counts = self._postings.get(term, ((), ()))
            rarity = math.log(1 + (size - len(places) + 0.5) / (len(places) + 0.5))
            for place, count in zip(places, counts):
                share = count * (K1 + 1) / (count + K1 * (1 - B + B * lengths[place] / average))
                scores[place] = scores.get(place, 0.0) + rarity * share
        allowed = ((score, -place) for place, score in scores.items() if self._allows(place, only))
        return [Found(-place, score) for score, place in heapq.nlargest(most, allowed)]

    def by_vector(self, vector: Any, most: int, only: Only) -> list[Found]:
        """Return the documents nearest to a vector of length 1, nearest first."""
        if self._matrix is None:
            return []
        similarities = (self._matrix @ vector).tolist()
        allowed = ((each, -place) for place, each in enumerate(similarities) if each > 0 and self._allows(place, only))
        return [Found(-place, each) for each, place in heapq.nlargest(most, allowed)]

    def read(self, rows: Sequence[int]) -> list[Document]:
        """Return the documents of these rows, in this order."""
        columns = [self._table.column(name) for name in FIELDS]
        return [Document(*(column[row].as_py() for column in columns)) for row in rows]

    def batches(self, columns: Sequence[str], only: Only) -> Iterator[Any]:
        """Yield documents as Arrow batches with these columns."""
        import pyarrow as pa

        mask = pa.array([self._allows(place, only) for place in range(len(self._kinds))], pa.bool_())
        yield from self._table.select(list(columns)).filter(mask).to_batches()

    def _allows(self, place: int, only: Only) -> bool:
        return (only.kinds is None or self._kinds[place] in only.kinds) and (
            only.tables is None or self._tables[place] in only.tables
        )


def exact_index_vectors(column: Any) -> Any:
    """Return a column of vectors as a matrix, with zeros for null; pyarrow may have been loaded without numpy."""
    from etude.search.embeddings.base import load_numpy_for_embeddings

    np = load_numpy_for_embeddings()
    parts = []
    for chunk in getattr(column, "chunks", [column]):
        width = chunk.type.list_size
        flat = np.frombuffer(chunk.values.buffers()[1], np.float32)
        rows = flat[chunk.offset * width : (chunk.offset + len(chunk)) * width].reshape(-1, width)
        if chunk.null_count:
            empty = [place for place, filled in enumerate(chunk.is_valid().to_pylist()) if not filled]
            rows = rows.copy()
            rows[empty] = 0
        parts.append(rows)
    if not parts:
        raise NotFound("The index has no vectors.")
    return np.concatenate(parts) if len(parts) > 1 else parts[0]
