"""Indexes: what is found and why, what is never found, and what changes when the data does."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from tests.search.conftest import WORKERS, write_agency

from etude.app import App
from etude.entities import SourceSpec
from etude.errors import Invalid, LimitExceeded, Unavailable
from etude.search.search_results import SearchPage


def ids(page: SearchPage) -> list[str]:
    return [hit.id for hit in page.hits]


def test_words_and_meaning_find_a_row_and_say_why(app: App, agency: str) -> None:
    built = app.indexes.build(agency)
    assert built.kinds["row"] == len(WORKERS)
    page = app.search("forklift driver in a warehouse", agency, kinds=["row"])
    hit = page.hits[0]
    assert (hit.table, hit.key) == ("workers", {"id": 1})
    assert hit.why.terms == ["forklift", "warehouse"]
    assert hit.why.text is not None and hit.why.text.rank == 1
    assert hit.why.vector is not None and hit.why.vector.score > 0.3
    assert {hit.snippet[a:b].lower() for a, b in hit.marks} == {"forklift", "warehouse"}
    assert (page.mode, page.notes) == ("hybrid", [])


def test_meaning_finds_what_no_word_names(app: App, agency: str) -> None:
    app.indexes.build(agency)
    assert app.search("croissants", agency, kinds=["row"], mode="text").hits == []
    assert app.search("croissants", agency, kinds=["row"], mode="vector").hits[0].key == {"id": 5}


def test_tables_and_columns_are_found(app: App, agency: str) -> None:
    app.indexes.build(agency)
    assert "table:invoices" in ids(app.search("amounts billed by invoice", agency, kinds=["table"], k=1))
    assert ids(app.search("skill", agency, kinds=["column"], k=1)) == ["column:workers.skill"]


@pytest.mark.parametrize("secret", ["Ann Archer", "ann@example.com", "ann", "archer"])
def test_personal_data_is_never_found(app: App, agency: str, secret: str) -> None:
    app.indexes.build(agency)
    page = app.search(secret, agency, k=100)
    assert "archer" not in page.model_copy(update={"query": ""}).model_dump_json().lower()
    assert app.search(secret, agency, mode="text").hits == []
    stored = b"".join(p.read_bytes() for p in (app.settings.home / "objects" / "search").rglob("*") if p.is_file())
    assert b"ann@example" not in stored


def test_a_masked_column_cannot_be_named(app: App, agency: str) -> None:
    with pytest.raises(Invalid, match=r"`workers\.email` is masked as personal data"):
        app.indexes.build(agency, columns=["workers.email"])


def test_named_columns_alone_are_indexed_and_remembered(app: App, agency: str) -> None:
    app.indexes.build(agency, columns=["workers.skill"])
    assert app.search("piano", agency, kinds=["row"], mode="text").hits == []
    app.indexes.build(agency)
    assert app.search("piano", agency, kinds=["row"], mode="text").hits == []


def test_only_what_changed_is_embedded_again(app: App, agency: str) -> None:
    first = app.indexes.build(agency)
    again = app.indexes.build(agency)
    assert (again.published, again.version) == (False, first.version)
    with duckdb.connect(agency) as db:
        db.execute("UPDATE workers SET description = 'Sails ships' WHERE id = 2")
        db.execute("DELETE FROM workers WHERE id = 5")
        db.execute("INSERT INTO workers VALUES (6, 'F F', 'f@example.com', 'IL', 'sailing', 'Repairs sails')")
    stale = app.search("welds steel", agency, kinds=["row"])
    assert stale.hits[0].key == {"id": 2}
    later = app.indexes.build(agency)
    assert later.published
    rows = {hit.key["id"] for hit in app.search("sails ships bakery steel", agency, kinds=["row"], k=50).hits}
    assert 5 not in rows and {2, 6} <= rows
    assert app.search("welds steel", agency, kinds=["row"], mode="text").hits == []
    assert 0 < later.embedded < first.embedded


def test_a_search_tells_that_the_data_has_changed(app: App, agency: str) -> None:
    app.indexes.build(agency)
    with duckdb.connect(agency) as db:
        db.execute("DELETE FROM workers WHERE id = 5")
    assert "has changed since it was indexed" in app.search("pastry", agency).notes[0]
    app.indexes.build(agency)
    assert app.search("pastry", agency).notes == []


def test_without_an_index_the_schema_is_searched(app: App, agency: str) -> None:
    page = app.search("invoices", agency)
    assert page.hits[0].table == "invoices"
    assert {hit.kind for hit in page.hits} <= {"table", "column"}
    assert "has no index" in page.notes[0]


def test_without_embeddings_words_are_compared_and_it_says_so(tmp_path: Path, agency: str) -> None:
    with App(home=tmp_path / "home", search={"embeddings": "none"}) as app:
        assert app.indexes.build(agency).embeddings is None
        page = app.search("forklift", agency, kinds=["row"])
        assert {hit.key["id"] for hit in page.hits} == {1, 3, 4}
        assert page.mode == "text" and "No embeddings" in page.notes[0]
        with pytest.raises(Unavailable, match="No embeddings"):
            app.search("forklift", agency, mode="vector")


def test_vectors_of_two_models_are_never_mixed(tmp_path: Path, agency: str) -> None:
    with App(home=tmp_path / "home") as app:
        app.indexes.build(agency)
        embeddings = app.indexes.embeddings
        assert embeddings is not None
        embeddings.version = "another"
        page = app.search("forklift", agency, kinds=["row"])
        assert page.mode == "text" and "not with wordllama another" in page.notes[0]
        with pytest.raises(Unavailable, match="was made with wordllama"):
            app.search("forklift", agency, mode="vector")
        built = app.indexes.build(agency)
        assert built.published and "all vectors were made again" in built.notes[0]
        assert built.embedded > len(WORKERS)
        assert app.search("forklift", agency, kinds=["row"]).mode == "hybrid"


def test_an_index_of_tables_no_longer_granted_is_not_found(app: App, agency: str) -> None:
    app.store.put_source("agency", SourceSpec(url=agency))
    app.indexes.build("agency")
    assert app.search("forklift", "agency", kinds=["row"]).hits
    app.store.put_source("agency", SourceSpec(url=agency, tables=("invoices",)))
    page = app.search("forklift", "agency", k=100)
    assert "workers" not in page.model_dump_json()
    app.indexes.build("agency")
    assert {hit.table for hit in app.search("forklift id", "agency", k=100).hits} == {"invoices"}


def test_tenants_have_their_own_indexes(app: App, agency: str, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    write_agency(other)
    with duckdb.connect(str(other)) as db:
        db.execute("DELETE FROM workers WHERE id <> 5")
    for tenant, path in (("ours", agency), ("theirs", str(other))):
        app.scoped(tenant).store.put_source("agency", SourceSpec(url=path))
        app.scoped(tenant).indexes.build("agency")
    assert app.scoped("ours").search("forklift", kinds=["row"], mode="text").hits
    assert app.scoped("theirs").search("forklift", kinds=["row"], mode="text").hits == []
    assert app.scoped("nobody").search("forklift").hits == []


def test_a_removed_source_leaves_no_index(app: App, agency: str) -> None:
    app.add_source("agency", SourceSpec(url=agency))
    app.indexes.build("agency")
    app.remove_source("agency")
    assert [p for p in (app.settings.home / "objects" / "search").rglob("*") if p.is_file() and p.name != ".lock"] == []


def test_questions_and_playbooks_are_found(app: App, agency: str) -> None:
    app.store.put_source("agency", SourceSpec(url=agency))
    run_id = app.ask("agency", "How many workers are there?").run_id
    lesson = app.settings.home / "playbooks" / app.tenant / "headcount"
    lesson.mkdir(parents=True)
    (lesson / "SKILL.md").write_text("---\nname: headcount\ndescription: How staff is counted\n---\nCount workers.\n")
    app.indexes.build("agency")
    assert app.search("number of workers", "agency", kinds=["run"]).hits[0].key == {"run_id": run_id}
    assert app.search("counting staff", "agency", kinds=["playbook"]).hits[0].title == "headcount"


def test_values_beyond_the_frequent_ones_are_found(app: App, tmp_path: Path) -> None:
    path = tmp_path / "visits.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE visits AS SELECT i AS id, 'Town' || (i % 400) AS city FROM range(4000) t(i)")
        db.execute("INSERT INTO visits VALUES (4000, 'Paris')")
    app.indexes.build(str(path))
    hit = app.search("Paris", str(path), kinds=["value"]).hits[0]
    assert (hit.table, hit.column, hit.title) == ("visits", "city", "Paris")


def test_any_script_is_found(app: App, tmp_path: Path) -> None:
    texts = ["東京都の天気", "Погода в Москве", "मौसम की जानकारी", "الطقس في القاهرة", "Wetter in Zürich"]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.json").write_text(json.dumps([{"id": i, "note": t} for i, t in enumerate(texts)]))
    source = str(tmp_path / "data")
    app.indexes.build(source)
    for query, number in (("東京", 0), ("Москве", 1), ("मौसम", 2), ("القاهرة", 3), ("zurich", 4)):
        hits = app.search(query, source, kinds=["row"], mode="text").hits
        assert [texts.index(hit.snippet) for hit in hits] == [number]


def test_too_many_documents_are_refused(tmp_path: Path, agency: str) -> None:
    with App(home=tmp_path / "home", search={"documents": 3}) as app:
        with pytest.raises(LimitExceeded, match="more than 3 documents"):
            app.indexes.build(agency)
        assert app.indexes.find(agency) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": " "}, "The query is empty"),
        ({"query": "x" * 3000}, "at most 2,000"),
        ({"query": "x", "kinds": ["rows"]}, "`rows` is not a kind"),
        ({"query": "x", "k": 0}, "k is 0"),
        ({"query": "x", "mode": "fuzzy"}, "`fuzzy` is not a mode"),
    ],
)
def test_bad_input_is_explained(app: App, agency: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        app.indexes.search(source=agency, **options)  # type: ignore[arg-type]


def test_pages_do_not_overlap(app: App, agency: str) -> None:
    app.indexes.build(agency)
    whole = ids(app.search("worker id description", agency, k=8))
    first, second = (app.search("worker id description", agency, k=4, offset=o) for o in (0, 4))
    assert ids(first) + ids(second) == whole
    assert first.next == 4
