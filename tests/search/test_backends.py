"""Both backends keep one contract: the same documents, found by the same words and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.search import exact_index, lance_index
from etude.search.index_base import Document, Found, Only, OpenIndex, index_schema, make_index_document
from etude.search.terms import terms_of
from etude.store.objects import Objects

TEXTS = ["red apple pie", "red red car", "the blue sea", "it's a 'quoted' red apple", "東京都の天気", ""]
DOCUMENTS = [
    make_index_document(f"d{i}", "row" if i < 4 else "value", text, text, table="it's" if i % 2 else "b")
    for i, text in enumerate(TEXTS)
]


def batches(documents: list[Document]) -> list[Any]:
    import numpy as np
    import pyarrow as pa

    rows = [[*d, " ".join(terms_of(d.text))] for d in documents]
    vectors = np.eye(8, dtype=np.float32)[: len(documents)].tolist()
    columns = [pa.array(list(values)) for values in zip(*rows)]
    whole: list[list[float] | None] = [v if d.text else None for v, d in zip(vectors, documents)]
    columns.append(pa.array(whole, pa.list_(pa.float32(), 8)))
    return [pa.RecordBatch.from_arrays(columns, schema=index_schema(8))]


@pytest.fixture(params=["exact", "lance"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> OpenIndex:
    objects = Objects(tmp_path / "objects")
    if request.param == "exact":
        exact_index.write_exact_index(objects, "search/v", index_schema(8), batches(DOCUMENTS))
        return exact_index.open_exact_index(objects, "search/v")
    pytest.importorskip("lancedb")
    lance_index.write_lance_index(objects, {}, "search/v", index_schema(8), batches(DOCUMENTS), len(DOCUMENTS))
    return lance_index.open_lance_index(objects, {}, "search/v")


def names(index: OpenIndex, found: list[Found]) -> list[str]:
    return [each.id for each in index.read([f.row for f in found])]


def test_rare_words_and_short_texts_count_more(index: OpenIndex) -> None:
    found = index.by_words(["red", "apple"], 10, Only())
    assert names(index, found) == ["d0", "d3", "d1"]
    assert index.read([found[0].row]) == [DOCUMENTS[0]]
    assert found[0].score > found[1].score > found[2].score > 0


def test_any_script_and_no_hit(index: OpenIndex) -> None:
    assert names(index, index.by_words(terms_of("東京"), 10, Only())) == ["d4"]
    assert index.by_words(["absent"], 10, Only()) == []


def test_the_nearest_vectors_come_first(index: OpenIndex) -> None:
    import numpy as np

    vector = np.array([0.6, 0, 0.8, 0, 0, 0, 0, 0], dtype=np.float32)
    found = index.by_vector(vector, 10, Only())
    assert names(index, found)[:2] == ["d2", "d0"]
    assert [round(each.score, 3) for each in found][:2] == [0.8, 0.6]
    assert "d5" not in names(index, found)


def test_kinds_and_tables_restrict_before_the_ranking(index: OpenIndex) -> None:
    import numpy as np

    assert names(index, index.by_words(["red"], 1, Only(tables=("it's",)))) == ["d1"]
    assert names(index, index.by_words(["red"], 10, Only(kinds=("value",)))) == []
    assert names(index, index.by_words(["red"], 10, Only(kinds=()))) == []
    near = index.by_vector(np.ones(8, dtype=np.float32) / np.float32(np.sqrt(8)), 10, Only(kinds=("value",)))
    assert names(index, near) == ["d4"]


def test_all_documents_can_be_read(index: OpenIndex) -> None:
    rows = [row for batch in index.batches(["id", "vector"], Only()) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == ["d0", "d1", "d2", "d3", "d4", "d5"]
    assert rows[5]["vector"] is None
    (batch,) = index.batches(["fingerprint", "vector"], Only(tables=("b",)))
    assert exact_index.exact_index_vectors(batch.column("vector")).shape == (3, 8)


@pytest.mark.parametrize("backend", ["exact", "lance"])
def test_a_search_finds_the_same_with_either(tmp_path: Path, agency: str, backend: str) -> None:
    if backend == "lance":
        pytest.importorskip("lancedb")
    with App(home=tmp_path / "home", search={"backend": backend}) as app:
        built = app.indexes.build(agency)
        assert built.backend == backend
        hits = app.search("forklift in a warehouse", agency, kinds=["row"]).hits
        assert hits[0].key == {"id": 1}
        assert app.indexes.build(agency).published is False
