"""What a model is told of a source whose profile is known."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from etude import run_setup
from etude.app import App
from etude.models.base import UserMessage
from etude.models.scripted import Line, Scripted, ScriptedCall


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_setup, "LOOK_S", 60.0)  # the machine may be slow


def test_a_model_sees_the_values_and_keys_that_a_profile_found(tmp_path: Path):
    (tmp_path / "crm").mkdir()
    rows = "".join(f"{n},{'open' if n % 3 else 'closed'},person{n}@example.com\n" for n in range(60))
    (tmp_path / "crm" / "cases.csv").write_text("id,state,email\n" + rows)
    with App(home=tmp_path / "home") as app:
        app.profile(str(tmp_path / "crm"))
        told = shown(app, tmp_path / "crm")
    assert "state -- {'closed', 'open'}" in told
    assert "id key" in told
    assert "person1" not in told


def test_a_model_sees_whole_values_of_texts(tmp_path: Path):
    source = tmp_path / "media.duckdb"
    kinds = ("MPEG", "Protected AAC", "Protected MPEG-4 video", "Purchased AAC", "AAC")
    with duckdb.connect(str(source)) as con:
        con.execute("CREATE TABLE media (name VARCHAR, settled_date VARCHAR)")
        for number, kind in enumerate(kinds):
            con.execute("INSERT INTO media VALUES (?, ?)", [f"{kind} sound file", f"202301{10 + number} 12:30:00"])
    with App(home=tmp_path / "home") as app:
        told = shown(app, source)
    assert "20230110 12:30:00..20230114 12:30:00" in told
    assert "'Purchased AAC sound file'}" in told


@pytest.mark.parametrize("profiled", [False, True])
def test_a_model_sees_ranges_of_numbers_samples_of_dates_and_shares_of_nulls(tmp_path: Path, profiled: bool):
    source = tmp_path / "trips.duckdb"
    with duckdb.connect(str(source)) as con:
        con.execute(
            "CREATE TABLE trips AS SELECT i AS id, '8/' || (i % 28 + 1) || '/2015 17:03' AS start_date, "
            "i * 1.5 AS miles, CASE WHEN i % 8 > 0 THEN i * 10 END AS seconds FROM range(80) AS t(i)"
        )
    with App(home=tmp_path / "home") as app:
        if profiled:
            app.profile(str(source))
        told = shown(app, source)
    assert "start_date -- e.g. '8/1/2015 17:03'\n" in told
    assert "miles DECIMAL(21,1) -- 0..118.5\n" in told and "seconds BIGINT -- 10..790; 12% null\n" in told
    assert "id key\n" in told


def test_a_text_is_written_as_in_a_query(tmp_path: Path):
    source = tmp_path / "world.duckdb"
    with duckdb.connect(str(source)) as con:
        con.execute("CREATE TABLE regions (name VARCHAR)")
        for name in ("Americas\\r", "O'Neil", "two\nlines"):
            con.execute("INSERT INTO regions VALUES (?), (?)", [name, name])
    with App(home=tmp_path / "home") as app:
        told = shown(app, source)
    assert "{'Americas\\r', 'O''Neil', 'two\\nlines'}" in told


def shown(app: App, source: Path) -> str:
    model = Scripted([Line(text="I see.")])
    app.ask(str(source), "What is there?", model=model)
    return "\n".join(m.text for m in model.seen[0].conversation if isinstance(m, UserMessage))


def test_values_are_shown_whole_or_not_at_all(tmp_path: Path):
    (tmp_path / "papers").mkdir()
    long = "Proceedings of the International Conference on Data"
    rows = "".join(f"{n},{('VLDB', long)[n % 2]},{('a', 'b' * 200)[n % 2]}\n" for n in range(60))
    (tmp_path / "papers" / "papers.csv").write_text("id,journal,venue\n" + rows)
    with App(home=tmp_path / "home") as app:
        quick = shown(app, tmp_path / "papers")
        app.profile(str(tmp_path / "papers"))
        for told in (quick, shown(app, tmp_path / "papers")):
            assert f" journal -- {{'{long}', 'VLDB'}}\n venue\n" in told


def test_a_column_that_is_almost_a_key_says_so_and_small_tables_show_their_keys(tmp_path: Path):
    folder = tmp_path / "shop"
    folder.mkdir()
    people = "".join(f"{n},N{n % 7}\n" for n in [*range(300), 299])
    (folder / "customers.csv").write_text("customer_id,code\n" + people)
    (folder / "states.csv").write_text("state_id,label\nO,open\nD,done\nL,lost\n")
    with App(home=tmp_path / "home") as app:
        quick = shown(app, folder)
        app.profile(str(folder))
        for told in (quick, shown(app, folder)):
            assert " customer_id BIGINT -- not unique: 300 values in 301 rows\n" in told
            assert " state_id key -- {'D', 'L', 'O'}\n" in told


def test_a_plan_joins_along_the_keys_that_the_model_sees(tmp_path: Path):
    folder = tmp_path / "scholar"
    folder.mkdir()
    (folder / "authors.csv").write_text("author_id,name\n" + "".join(f"{n},A{n}\n" for n in range(40)))
    (folder / "writes.csv").write_text("paper_id,author_id\n" + "".join(f"{n},{n % 40}\n" for n in range(80)))
    plan = {"from": "writes", "joins": ["authors"], "group_by": ["name"], "aggregate": [{"fn": "count", "as": "n"}]}
    model = Scripted([Line(calls=(ScriptedCall(name="execute_query_plan", arguments={"plan": plan}),)), Line(text="2")])
    with App(home=tmp_path / "home") as app:
        answer = app.ask(str(folder), "How many papers has each author?", model=model)
    assert " author_id -> authors\n" in str(model.seen[0].conversation[1].text)
    assert answer.run.result is not None and answer.run.result.row_count == 40
