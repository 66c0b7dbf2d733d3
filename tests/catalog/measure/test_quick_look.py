"""A quick profile: what a model sees of a source that no one has looked at."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude import run_setup
from etude.app import App
from etude.catalog.hints import add_catalog_hints
from etude.catalog.storage.stored_profiles import (
    find_any_stored_profile,
    find_stored_profile,
    profile_at_once_or_stored,
)
from etude.models.base import UserMessage
from etude.models.scripted import Line, Scripted
from etude.tools.result_text import table_result_text_for_model


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=tmp_path / "home") as app:
        yield app


def write_clinic(folder: Path) -> Path:
    folder.mkdir()
    people = "".join(f"{n},Ann{n % 5},{n % 3},2026-02-{n % 28 + 1:02}\n" for n in range(1, 61))
    (folder / "patients.csv").write_text("patient_id,first_name,ward,admitted\n" + people)
    visits = "".join(f"{n},{n % 60 + 1},{'open' if n % 2 else 'done'}\n" for n in range(1, 200))
    (folder / "visits.csv").write_text("visit_id,patient_id,state\n" + visits)
    return folder


def test_it_finds_few_values_ranges_and_keys(app: App, tmp_path: Path):
    source = app.source(str(write_clinic(tmp_path / "clinic")))
    profile = profile_at_once_or_stored(app, source, 30, [])
    assert profile is not None
    told = "\n".join(table_result_text_for_model(t) for t in add_catalog_hints(app.catalog(source), profile).tables)
    assert told.splitlines() == [
        "patients (60 rows)",
        " patient_id key",
        " first_name",  # personal data is not listed
        " ward BIGINT -- {0, 1, 2}",
        " admitted DATE -- 2026-02-01..2026-02-28",
        "visits (199 rows)",
        " visit_id key",
        " patient_id -> patients",
        " state -- {'done', 'open'}",
    ]


def test_it_is_kept_but_never_taken_for_a_profile(app: App, tmp_path: Path):
    source = app.source(str(write_clinic(tmp_path / "clinic")))
    assert profile_at_once_or_stored(app, source, 30, []) is not None
    assert profile_at_once_or_stored(app, source, 30, []) is None
    assert find_any_stored_profile(app, source) is not None and find_stored_profile(app, source) is None
    app.profile(source)
    assert find_any_stored_profile(app, source) == find_stored_profile(app, source)


def test_a_first_question_is_asked_with_it_and_its_record_says_so(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_setup, "LOOK_S", 60.0)  # the machine may be slow
    model = Scripted([Line(text="I see.")])
    answer = app.ask(str(write_clinic(tmp_path / "clinic")), "How many visits are open?", model=model)
    shown = "\n".join(m.text for m in model.seen[0].conversation if isinstance(m, UserMessage))
    assert " state -- {'done', 'open'}" in shown
    notes = [e.event.text for e in app.store.entries(answer.run_id) if e.event.type == "note"]
    assert [n.partition(" in ")[0] for n in notes] == ["Looked at 2 of 2 tables of `clinic`"]


def test_a_table_that_cannot_be_read_does_not_matter(app: App, tmp_path: Path):
    path = tmp_path / "odd.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE good (state TEXT)")
        db.executemany("INSERT INTO good VALUES (?)", [("open",), ("done",)] * 5)
        db.execute("CREATE TABLE gone (state TEXT)")
        db.execute("CREATE VIEW broken AS SELECT state FROM gone")
        db.execute("DROP TABLE gone")
    profile = profile_at_once_or_stored(app, app.source(str(path)), 30, [])
    assert profile is not None
    good = profile.table("good")
    assert good is not None and [v.value for v in good.columns[0].top] == ["open", "done"]


def test_it_ends_in_time_with_the_tables_of_the_question_first(app: App, tmp_path: Path):
    path = tmp_path / "wide.sqlite"
    with sqlite3.connect(path) as db:
        for n in range(100):
            columns = ", ".join(f"c{k} TEXT" for k in range(20))
            db.execute(f"CREATE TABLE t{n:03} (id INTEGER PRIMARY KEY, {columns})")
            marks = ", ".join("?" * 21)
            db.executemany(f"INSERT INTO t{n:03} VALUES ({marks})", [[r, *[f"v{r % 4}"] * 20] for r in range(200)])
    source = app.source(str(path))
    app.catalog(source)
    started = time.monotonic()
    profile = profile_at_once_or_stored(app, source, 0.2, ["t077", "t050"])
    # The last statement is stopped by its own limit: the machine may be slow, but not this slow.
    assert time.monotonic() - started < 20
    assert profile is not None and len(profile.tables) < 100
    assert not profile.tables or profile.tables[0].name == "t077"


SLOW_VIEW = (
    "CREATE VIEW {} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 300000000) "
    "SELECT 'a' AS state FROM n WHERE x < 0"
)


def test_a_slow_table_costs_the_others_nothing(app: App, tmp_path: Path):
    path = tmp_path / "slow.sqlite"
    with sqlite3.connect(path) as db:
        for name in ("first", "last"):
            db.execute(f"CREATE TABLE {name} (state TEXT)")
            db.executemany(f"INSERT INTO {name} VALUES (?)", [("open",), ("done",)])
        db.execute(SLOW_VIEW.format("middle"))
    profile = profile_at_once_or_stored(app, app.source(str(path)), 8, ["first", "middle", "last"])
    assert profile is not None and {"first", "last"} <= {t.name for t in profile.tables}


def test_a_look_that_measures_nothing_says_so_and_is_repeated(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_setup, "LOOK_S", 0.2)
    monkeypatch.setattr(run_setup, "LATE_S", 0.0)
    path = tmp_path / "slow.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(SLOW_VIEW.format("only"))
    answer = app.ask(str(path), "Which states?", model=Scripted([Line(text="I see.")]))
    notes = [e.event.text for e in app.store.entries(answer.run_id) if e.event.type == "note"]
    assert len(notes) == 1
    assert notes[0].startswith("Looked at 0 of 1 tables of `slow` in ") and notes[0].endswith(run_setup.TIME_OVER)
    assert find_any_stored_profile(app, app.source(str(path))) is None


def test_a_look_that_is_late_keeps_what_it_has(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "slow.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE state (state TEXT)")
        db.executemany("INSERT INTO state VALUES (?)", [("open",), ("done",)])
        db.execute(SLOW_VIEW.format("other"))
    app.sql(str(path), "SELECT count(*) FROM state")  # the engine runs
    monkeypatch.setattr(run_setup, "LOOK_S", 30.0)
    monkeypatch.setattr(run_setup, "LATE_S", -24.0)  # the question goes on while the second table is measured
    model = Scripted([Line(text="I see.")])
    answer = app.ask(str(path), "Which state?", model=model)
    assert " state -- {'done', 'open'}" in str(model.seen[0].conversation[1].text)
    notes = [e.event.text for e in app.store.entries(answer.run_id) if e.event.type == "note"]
    assert [n.partition(" in ")[0] for n in notes] == ["Looked at 1 of 2 tables of `slow`"]
