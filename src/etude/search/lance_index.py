"""An index by LanceDB, in a folder or on S3: full text and approximate vectors for many documents."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from etude.errors import NotFound, Unavailable
from etude.ids import new_id
from etude.search.index_base import FIELDS, Document, Found, Only, OpenIndex
from etude.store.objects import Objects

TABLE = "documents"
TRAIN_FROM = 20_000
"""From this many documents on, vectors get an approximate index; fewer are compared one by one."""
PROBES = 24
"""Partitions that a search looks into; more find more and take longer."""


def is_lance_installed() -> bool:
    """True if LanceDB can be used."""
    return find_spec("lancedb") is not None and find_spec("numpy") is not None


def write_lance_index(
    objects: Objects, options: Mapping[str, str], place: str, schema: Any, batches: Iterable[Any], count: int
) -> None:
    """Store the documents at a place, with their indexes."""
    import pyarrow as pa
    from lancedb.index import FTS, Bitmap, IvfFlat

    raised: list[BaseException] = []
    with _translated(objects, raised):
        # A text without a meaning has no vector, which LanceDB would refuse.
        table = _connect(objects, options, place).create_table(
            TABLE,
            data=pa.RecordBatchReader.from_batches(schema, _noting(batches, raised)),
            schema=schema,
            on_bad_vectors="null",
        )
        # The terms are ready: any script, one analysis for both backends.
        words = FTS(base_tokenizer="whitespace", lower_case=False, stem=False, remove_stop_words=False)
        words.ascii_folding, words.max_token_length = False, None
        table.create_index("terms", config=words)
        table.create_index("kind", config=Bitmap())
        table.create_index("table", config=Bitmap())
        if "vector" in schema.names and count >= TRAIN_FROM:
            table.create_index("vector", config=IvfFlat(distance_type="cosine"))


def open_lance_index(objects: Objects, options: Mapping[str, str], place: str) -> LanceIndex:
    """Open an index; raise `NotFound` if it was removed in the meantime."""
    with _translated(objects):
        try:
            return LanceIndex(_connect(objects, options, place).open_table(TABLE), objects)
        except (FileNotFoundError, ValueError) as error:
            if "not found" in str(error).lower():
                raise NotFound(f"`{place}` has no index.") from None
            raise


def remove_lance_index(objects: Objects, place: str) -> None:
    """Remove an index and all its files."""
    if objects.folder is not None:
        shutil.rmtree(objects.folder / place, ignore_errors=True)
        return
    for name in list(objects.names(place)):
        objects.remove(name)


def check_lance_store(objects: Objects, options: Mapping[str, str]) -> str:
    """Return why LanceDB cannot use the store; an empty text if it can. A small table is written, read and removed."""
    import pyarrow as pa

    place = f"probe/{new_id('search')}"
    try:
        with _translated(objects):
            table = _connect(objects, options, place).create_table(TABLE, data=pa.table({"a": [1]}))
            table.add(pa.table({"a": [2]}))
            counted = table.count_rows()
        return "" if counted == 2 else f"it returned {counted} of 2 rows"
    except Unavailable as error:
        return error.message
    finally:
        with contextlib.suppress(Unavailable):
            remove_lance_index(objects, place)


def _connect(objects: Objects, options: Mapping[str, str], place: str) -> Any:
    import lancedb

    address = str(objects.folder / place) if objects.folder is not None else f"{objects.url.rstrip('/')}/{place}"
    return lancedb.connect(address, storage_options={k: str(v) for k, v in options.items()} or None)


def _noting(batches: Iterable[Any], raised: list[BaseException]) -> Iterator[Any]:
    """Yield the batches; keep their error, which LanceDB would replace by its own."""
    try:
        yield from batches
    except BaseException as error:
        raised.append(error)
        raise


@contextlib.contextmanager
def _translated(objects: Objects, raised: Sequence[BaseException] = ()) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        if raised:
            raise raised[0] from None
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise Unavailable(
            f"LanceDB cannot use `{objects.url}`: {reason}", hint="Check the store that `search.store` names."
        ) from error


class LanceIndex(OpenIndex):
    """A finished table of LanceDB."""

    def __init__(self, table: Any, objects: Objects) -> None:
        self._table = table
        self._objects = objects

    def by_words(self, terms: Sequence[str], most: int, only: Only) -> list[Found]:
        """Return the documents with any of the terms, ranked by BM25."""
        from lancedb.query import MatchQuery

        with _translated(self._objects):
            query = self._table.search(MatchQuery(" ".join(terms), "terms"), query_type="fts")
            rows = _restrict(query, only).select(["_score"]).with_row_id(True).limit(most).to_arrow()
        return [Found(*each) for each in zip(rows.column("_rowid").to_pylist(), rows.column("_score").to_pylist())]

    def by_vector(self, vector: Any, most: int, only: Only) -> list[Found]:
        """Return the documents nearest to a vector of length 1, nearest first."""
        with _translated(self._objects):
            query = self._table.search(vector, vector_column_name="vector").distance_type("cosine").nprobes(PROBES)
            rows = _restrict(query, only).select(["_distance"]).with_row_id(True).limit(most).to_arrow()
        nearest = zip(rows.column("_rowid").to_pylist(), rows.column("_distance").to_pylist())
        return [Found(row, 1 - distance) for row, distance in nearest if distance < 1]

    def read(self, rows: Sequence[int]) -> list[Document]:
        """Return the documents of these rows, in this order."""
        if not rows:
            return []
        with _translated(self._objects):
            taken = self._table.take_row_ids(list(rows)).select(list(FIELDS)).with_row_id().to_arrow()
        columns = zip(*(taken.column(name).to_pylist() for name in FIELDS))
        by_row = dict(zip(taken.column("_rowid").to_pylist(), columns))
        return [Document(*by_row[row]) for row in rows]

    def batches(self, columns: Sequence[str], only: Only) -> Iterator[Any]:
        """Yield documents as Arrow batches with these columns."""
        with _translated(self._objects):
            yield from _restrict(self._table.search(), only).select(list(columns)).limit(None).to_batches()


def _restrict(query: Any, only: Only) -> Any:
    given = {"kind": only.kinds, "`table`": only.tables}
    parts = [_one_of(name, values) for name, values in given.items() if values is not None]
    return query.where(" AND ".join(parts), prefilter=True) if parts else query


def _one_of(name: str, values: Sequence[str]) -> str:
    return f"{name} IN ({', '.join(map(_quote, values))})" if values else "false"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
