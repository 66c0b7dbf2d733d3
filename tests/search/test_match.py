"""Match: the engine's filter decides which rows there are; the ranking only sorts and explains them."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.search.conftest import write_agency

from etude.app import App
from etude.cancellation import Cancellation
from etude.entities import SourceSpec
from etude.errors import Cancelled, EtudeError, Invalid, InvalidQuery, LimitExceeded, NotFound, Refused, UnknownTable
from etude.search import match
from etude.search.match import FacetCounts

FORKLIFT = "drives a forklift"


def test_the_filter_is_exact_and_the_rest_is_ranked(app: App, agency: str) -> None:
    page = app.match(agency, "workers", FORKLIFT, "state = 'IL' AND skill LIKE '%forklift%'")
    assert [each.row["id"] for each in page.rows] == [1, 4]
    assert page.total == 2
    assert page.rows[0].because.startswith("state = 'IL' AND skill LIKE '%forklift%'; 0.")
    assert page.rows[0].because.endswith("similar in skill")
    assert page.rows[0].score > page.rows[1].score


def test_it_is_the_same_with_an_index(app: App, agency: str) -> None:
    before = app.match(agency, "workers", FORKLIFT)
    app.indexes.build(agency)
    after = app.match(agency, "workers", FORKLIFT)
    assert [(r.row, r.score, r.because) for r in after.rows] == [(r.row, r.score, r.because) for r in before.rows]


def test_rows_are_as_they_are_now_and_not_as_indexed(app: App, agency: str) -> None:
    app.indexes.build(agency)
    with duckdb.connect(agency) as db:
        db.execute("UPDATE workers SET description = 'Drives a forklift all day' WHERE id = 2")
        db.execute("DELETE FROM workers WHERE id = 1")
    page = app.match(agency, "workers", FORKLIFT)
    assert page.rows[0].row["id"] == 2
    assert page.total == 4


def test_filters_of_a_plan_work_too(app: App, agency: str) -> None:
    filters = [{"column": "state", "op": "=", "value": "IL"}, {"column": "skill", "op": "contains", "value": "fork"}]
    page = app.match(agency, "workers", FORKLIFT, filters)
    assert [each.row["id"] for each in page.rows] == [1, 4]
    assert page.rows[0].because.startswith('state = "IL" and skill contains "fork"; ')


def test_comparing_ends_when_it_is_cancelled(app: App, agency: str) -> None:
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(Cancelled):
        app.match(agency, "workers", FORKLIFT, cancel=cancel)


def test_comparing_ends_at_the_time_limit(agency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "CHUNK", 1)
    score = match._VectorRanking.score

    def score_slowly(ranking: Any, texts: Sequence[str]) -> list[float]:
        time.sleep(4)
        return score(ranking, texts)

    monkeypatch.setattr(match._VectorRanking, "score", score_slowly)
    late = "Comparing the rows of `workers` exceeded the time limit of 3 s"
    with App(home=tmp_path / "home", limits={"timeout_s": 3}) as app, pytest.raises(LimitExceeded, match=late):
        app.match(agency, "workers", FORKLIFT)


def test_a_row_can_be_compared_with_others(app: App, agency: str) -> None:
    page = app.match(agency, "workers", {"id": 1})
    assert page.rows[0].row["id"] == 3
    assert 1 not in {each.row["id"] for each in page.rows}
    assert page.total == 4
    with pytest.raises(NotFound, match="no row with the key"):
        app.match(agency, "workers", {"id": 99})
    with pytest.raises(NotFound, match="several rows"):
        app.match(agency, "workers", {"state": "IL"})


def test_personal_data_is_masked_and_neither_compared_nor_counted(app: App, agency: str) -> None:
    page = app.match(agency, "workers", FORKLIFT)
    assert page.rows[0].row["email"] == "a***@***.com"
    assert "Archer" not in page.model_dump_json()
    assert page.columns == ["state", "skill", "description"]
    with pytest.raises(Invalid, match="`email` is masked"):
        app.match(agency, "workers", FORKLIFT, columns=["email"])
    with pytest.raises(Invalid, match="`full_name` is masked"):
        app.match(agency, "workers", FORKLIFT, facets=["full_name"])


def test_facets_count_all_rows_that_pass(app: App, agency: str) -> None:
    page = app.match(agency, "workers", FORKLIFT, "id < 5", k=1, facets=["state"])
    assert {f.value: f.count for f in page.facets["state"]} == {"IL": 3, "TX": 1}
    assert (page.total, page.next) == (4, 1)


def test_pages_follow_one_another(app: App, agency: str) -> None:
    whole = [each.row["id"] for each in app.match(agency, "workers", "work").rows]
    pages = [app.match(agency, "workers", "work", k=2, offset=offset) for offset in (0, 2, 4)]
    assert [each.row["id"] for page in pages for each in page.rows] == whole
    assert [page.next for page in pages] == [2, 4, None]


def test_long_cells_are_cut_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text(f"id,note\n1,forklift {'x' * 9000}\n2,forklift\n")
    with App(home=tmp_path / "home", search={"embeddings": "none"}) as app:
        page = app.match(str(tmp_path / "notes.csv"), "notes", "forklift", facets=["note"])
    notes = {found.row["id"]: found.row["note"] for found in page.rows}
    assert notes[1].endswith("x… (cut: it has 9,009 characters; the table has all of them)") and notes[2] == "forklift"
    assert max(len(str(facet.value)) for facet in page.facets["note"]) < 5_000


def test_without_embeddings_the_words_count(tmp_path: Path, agency: str) -> None:
    with App(home=tmp_path / "home", search={"embeddings": "none"}) as app:
        page = app.match(agency, "workers", "forklift warehouse", "state = 'IL'")
        assert (page.rows[0].row["id"], page.mode) == (1, "text")
        assert page.rows[0].because == "state = 'IL'; contains forklift, warehouse"
        assert "No embeddings" in page.notes[0]


@pytest.mark.parametrize(
    "where",
    [
        "1 = 1) UNION SELECT id, 'x', 'x', 'x', 'x', 'x' FROM invoices --",
        "1 = 1 UNION SELECT 1",
        "id = 1; DROP TABLE workers",
        "id = 1 LIMIT 1",
        "id = 1 ORDER BY id",
        "id = 1 GROUP BY id",
        "id = (1",
        "id = 1) OR (1 = 1",
        "",
        "id = 'unclosed",
    ],
)
def test_more_than_a_condition_is_refused(app: App, agency: str, where: str) -> None:
    if where == "":
        assert app.match(agency, "workers", FORKLIFT, where).total == 5
        return
    with pytest.raises((Invalid, Refused)):
        app.match(agency, "workers", FORKLIFT, where)


def test_a_comment_cannot_hide_the_end(app: App, agency: str) -> None:
    page = app.match(agency, "workers", FORKLIFT, "id = 1 -- or anything")
    assert [each.row["id"] for each in page.rows] == [1]


def test_the_guard_holds_for_a_condition(app: App, agency: str) -> None:
    app.store.put_source("agency", SourceSpec(url=agency, tables=("workers",)))
    with pytest.raises(Refused):
        app.match("agency", "workers", FORKLIFT, "id IN (SELECT worker_id FROM invoices)")
    with pytest.raises(Refused):
        app.match("agency", "workers", FORKLIFT, "getenv('HOME') = 'x'")
    with pytest.raises(Refused):
        app.match("agency", "invoices", FORKLIFT)


def test_an_unknown_column_is_explained(app: App, agency: str) -> None:
    with pytest.raises(InvalidQuery, match="stat"):
        app.match(agency, "workers", FORKLIFT, "stat = 'IL'")


def test_a_similar_name_is_suggested(app: App, agency: str) -> None:
    table = app.catalog(agency).tables[0]
    with pytest.raises(UnknownTable) as unknown:
        app.match(agency, table.name[:-1].upper(), "x")
    assert unknown.value.hint == f"Did you mean `{table.name}`?"
    with pytest.raises(Invalid) as wrong:
        app.match(agency, table.name, "x", columns=[f"{table.columns[0].name}x"])
    assert wrong.value.hint == f"Did you mean `{table.columns[0].name}`?"


def test_too_many_rows_are_refused(tmp_path: Path, agency: str) -> None:
    with App(home=tmp_path / "home", search={"candidates": 3}) as app:
        with pytest.raises(LimitExceeded, match="More than 3 rows pass"):
            app.match(agency, "workers", FORKLIFT)
        assert app.match(agency, "workers", FORKLIFT, "state = 'IL'").total == 3


def test_a_table_without_text_says_so(app: App, agency: str) -> None:
    with pytest.raises(Invalid, match="no column of text"):
        app.match(agency, "invoices", FORKLIFT)


def test_it_works_on_a_server(app: App, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text, about text)")
        db.execute("INSERT INTO jobs VALUES (1, 'IL', 'bakes bread'), (2, 'IL', 'mends cars'), (3, 'TX', 'bakes pies')")
    page = app.match(postgres_url, "jobs", "a baker", "state ILIKE 'il' AND id::text ~ '^[12]$'", columns=["about"])
    assert [each.row["id"] for each in page.rows] == [1, 2]


# Any condition: the rows are those of plain SQL.

COLUMNS = {"a": st.integers(-3, 3), "b": st.sampled_from(["x", "y'", 'z"', "", "%", "_", "x_y", "ä"])}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str, Any]]:
    folder = tmp_path_factory.mktemp("plain")
    path = folder / "t.duckdb"
    db = duckdb.connect(str(path))
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b VARCHAR, about VARCHAR)")
    words = ["red apple", "blue sea", "green tea", "old house", None]
    values = ["x", "y'", 'z"', "", "%", "_", "x_y", "ä", None]
    rows = [(i, None if i % 11 == 0 else i % 7 - 3, values[i % 9], words[i % 5]) for i in range(120)]
    db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    db.close()
    db = duckdb.connect(str(path), read_only=True)
    with App(home=folder / "home") as app:
        yield app, str(path), db
    db.close()


def literal(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(list(COLUMNS)))
    value = literal(draw(COLUMNS[column]))
    other = literal(draw(COLUMNS[column]))
    forms = [f"{column} = {value}", f"{column} <> {value}", f"{column} >= {value}", f"{column} IS NULL"]
    forms += [f"{column} IN ({value}, {other})", f"{column} NOT IN ({value}, NULL)"]
    forms += [f"{column} BETWEEN {value} AND {other}", f"coalesce({column}, {value}) = {other}"]
    if column == "b":
        forms += [f"b LIKE {value}", f"lower(b) = {value}", f"b || 'x' > {value}"]
    else:
        forms += [
            f"a % 2 = {value}",
            f"CASE WHEN a > {value} THEN true END",
            f"a::VARCHAR LIKE '%{abs(draw(COLUMNS['a']))}'",
        ]
        forms += [f"a = (SELECT max(a) FROM t WHERE a < {value})", f"-a <= {value} /* why */"]
    return draw(st.sampled_from(forms))


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join), inner.map(lambda c: f"NOT ({c})")
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(conditions, st.sampled_from(["tea", {"id": 7}]))
def test_the_rows_are_those_of_plain_sql(plain: Any, where: str, like: Any) -> None:
    app, path, db = plain
    own = " AND id <> 7" if like != "tea" else ""
    expected = {row[0] for row in db.execute(f"SELECT id FROM t WHERE ({where}\n){own}").fetchall()}
    page = app.match(path, "t", like, where, k=1000)
    assert {each.row["id"] for each in page.rows} == expected
    assert page.total == len(expected)


@settings(max_examples=60)
@given(st.text(alphabet="ab01'\"();-=/*,. %ORANDUNISELCTFM\\\n", max_size=40))
@example("1=1) --")
@example("a = 1 OR (1")
def test_any_text_is_refused_or_filters_as_plain_sql_does(plain: Any, where: str) -> None:
    app, path, db = plain
    try:
        page = app.match(path, "t", "tea", where, k=1000)
    except EtudeError:
        return
    if not where.strip():
        return
    expected = {row[0] for row in db.execute(f"SELECT id FROM t WHERE (SELECT {where}\n)").fetchall()}
    assert {each.row["id"] for each in page.rows} == expected, where


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda i: (
            st.lists(i, max_size=3)
            | st.dictionaries(st.sampled_from(["column", "op", "value", "and", "or", "not"]), i, max_size=3)
        ),
        max_leaves=8,
    )
)
@settings(max_examples=40)
def test_any_plan_filter_is_refused_or_works(plain: Any, where: Any) -> None:
    app, path, _ = plain
    if not isinstance(where, dict | list):
        return
    try:
        app.match(path, "t", "tea", where, k=1)
    except EtudeError as error:
        assert str(error)


def test_rows_of_another_tenant_are_never_returned(app: App, agency: str, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    write_agency(other)
    app.scoped("ours").store.put_source("agency", SourceSpec(url=agency))
    app.scoped("theirs").store.put_source("agency", SourceSpec(url=str(other)))
    with duckdb.connect(str(other)) as db:
        db.execute("DELETE FROM workers WHERE id > 1")
    app.scoped("ours").indexes.build("agency")
    page = app.scoped("theirs").match("agency", "workers", FORKLIFT)
    assert json.loads(page.model_dump_json())["total"] == 1
    with pytest.raises(NotFound):
        app.scoped("nobody").match("agency", "workers", FORKLIFT)


def test_the_rows_that_are_held_have_a_limit(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("id,note\n" + "".join(f"{n},{n} {'coffee ' * 200}\n" for n in range(50)))
    monkeypatch.setattr("etude.search.match.HELD_BYTES", 20_000)
    assert len(app.match(str(path), "long", "coffee", k=5).rows) == 5
    with pytest.raises(LimitExceeded, match="The rows up to this page have"):
        app.match(str(path), "long", "coffee", k=30)


def test_long_values_of_facets_are_counted_but_not_held_whole() -> None:
    counts = FacetCounts(["note"])
    tracemalloc.start()
    for number in range(1000):
        for _ in range(1 + number % 2):
            counts.add({"note": "x" * 50_000 + str(number)})
    assert tracemalloc.get_traced_memory()[0] < 20 << 20
    tracemalloc.stop()
    (found,) = counts.most_common().values()
    assert {each.count for each in found} == {2}
    assert all(str(each.value).startswith("xxx") and "cut" in str(each.value) for each in found)


def test_facets_with_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "FACET_BYTES", 10_000)
    counts = FacetCounts(["id"])
    with pytest.raises(LimitExceeded, match="too many different values"):
        for number in range(100):
            counts.add({"id": number})
