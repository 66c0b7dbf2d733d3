"""Rules in the place of a model: in the same loop, on the same record."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.app import App
from etude.cancellation import Cancellation
from etude.entities import SourceSpec
from etude.errors import Cancelled, NotUnderstood
from etude.runtime import offline_model
from etude.sample import write_shop
from patience import wait_until


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("offline")
    (folder / "shop").mkdir()
    write_shop(folder / "shop")
    with App(home=folder / "home") as app:
        app.add_source("shop", SourceSpec(url=str(folder / "shop")))
        yield app


def test_a_question_is_answered_without_a_model_and_says_how_it_was_read(app: App):
    answer = app.ask("shop", "How many customers are there per country?")
    expected = app.sql("shop", "SELECT country, count(*) FROM customers GROUP BY ALL").rows()
    assert answer.result is not None and sorted(answer.result.rows()) == sorted(expected)
    assert "customers" in answer.reading and "country" in answer.reading
    assert answer.run.usage.model_calls == 0 and not answer.unverified
    assert answer.chart is not None and answer.chart["mark"]["type"] == "bar"


def test_numbers_that_rules_write_are_never_in_doubt(app: App):
    answer = app.ask("shop", "Top 3 customers by total amount")
    assert not answer.unverified and "[?]" not in answer.text


def test_a_follow_up_refers_to_the_question_before(app: App):
    first = app.ask("shop", "What is the average amount by channel?")
    second = app.ask("shop", "only 2025", thread_id=first.thread_id)
    expected = app.sql("shop", "SELECT channel, avg(amount) FROM orders WHERE year(ordered) = 2025 GROUP BY ALL").rows()
    assert second.result is not None
    assert {c: pytest.approx(v) for c, v in expected} == dict(second.result.rows())


def test_what_is_not_understood_is_refused_with_questions_that_work(app: App):
    answer = app.ask("shop", "What is the meaning of life?")
    assert isinstance(answer.error, NotUnderstood) and "life" in answer.error.message
    suggestions = answer.error.details["suggestions"]
    assert len(suggestions) == 3
    assert all(app.ask("shop", suggestion).ok for suggestion in suggestions)
    said = [m.text for m in app.store.messages(answer.thread_id)]
    assert said == ["What is the meaning of life?", answer.error.message]


def test_a_key_that_a_catalog_found_connects_tables_from_then_on(app: App, tmp_path: Path):
    rows = "".join(f"{n},{1000 + n % 100},{n % 50}\n" for n in range(2000))
    (tmp_path / "visits.csv").write_text("visit_id,custkey,cost\n" + rows)
    people = "".join(f"{1000 + n},N{n},{'Rome' if n % 3 else 'Oslo'}\n" for n in range(100))
    (tmp_path / "customers.csv").write_text("id,fullname,town\n" + people)
    before = app.ask(str(tmp_path), "total cost per town")
    assert before.error is not None and "Nothing connects `town` to `visits`" in before.error.message
    app.cataloger.run(str(tmp_path))
    after = app.ask(str(tmp_path), "total cost per town")
    sql = "SELECT town, sum(cost) FROM visits JOIN customers ON custkey = id GROUP BY ALL"
    assert after.result is not None and sorted(after.result.rows()) == sorted(app.sql(str(tmp_path), sql).rows())


def test_without_a_dataset_the_only_one_that_fits_is_asked(app: App, tmp_path: Path):
    (tmp_path / "planets.csv").write_text("planet,moons\nMars,2\nJupiter,95\n")
    app.add_source("sky", SourceSpec(url=str(tmp_path / "planets.csv")))
    try:
        answer = app.ask(None, "What is the total moons?")
        assert answer.ok and answer.result is not None and answer.result.rows() == [(97,)]
        assert isinstance(app.ask(None, "What is the weather?").error, NotUnderstood)
    finally:
        app.remove_source("sky")


def test_what_is_known_of_a_source_is_kept_until_its_data_changes(tmp_path: Path):
    path = tmp_path / "fruit.csv"
    path.write_text("name,stock\napple,3\npear,5\n")
    with App(home=tmp_path / "home") as app:
        kept = tmp_path / "home" / "cache" / "vocabulary"
        assert app.ask(str(path), "What is the total stock of apple?").ok
        assert app.ask(str(path), "What is the average stock?").ok
        assert len(list(kept.iterdir())) == 1
        path.write_text("name,stock\napple,3\npear,5\nplum,7\n")
        plum = app.ask(str(path), "What is the total stock of plum?")
        assert plum.ok and plum.result is not None and plum.result.rows() == [(7,)]
        assert len(list(kept.iterdir())) == 2


def test_a_question_is_answered_although_nothing_can_be_cached(tmp_path: Path):
    """As on a full disk; here the folder of the cache is a file."""
    write_shop(tmp_path / "shop")
    (tmp_path / "home" / "cache").mkdir(parents=True)
    (tmp_path / "home" / "cache" / "vocabulary").touch()
    with App(home=str(tmp_path / "home"), model="offline") as app:
        assert "3,704" in app.ask(str(tmp_path / "shop"), "how many orders").text


def test_rules_that_take_too_long_say_so(app: App, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("etude.runtime.offline_model.READ_S", -1.0)
    answer = app.ask("shop", "Which customers have no orders in 2025?")
    assert isinstance(answer.error, NotUnderstood)
    assert "did not find out within" in answer.error.message and "`shop` has 4 tables" in answer.error.message
    assert "exact name of the table" in answer.error.hint


def test_cancelling_a_run_stops_the_look_at_its_source(tmp_path: Path):
    with sqlite3.connect(tmp_path / "slow.sqlite") as connection:
        connection.execute("CREATE TABLE things (id INTEGER)")
        # Each count goes through billions of rows.
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e12) SELECT i FROM n"
        connection.execute(f"CREATE VIEW numbers AS {endless}")
    connection.close()
    with App(home=tmp_path / "home") as app:
        run_id = app.runs.begin("ask", "How many numbers are there?", str(tmp_path / "slow.sqlite"), model="offline")
        app.runs.start(run_id)
        wait_until(lambda: any(step.kind == "model" for step in app.store.run(run_id).steps))
        app.runs.cancel(run_id)
        wait_until(lambda: app.store.run(run_id).status == "cancelled")


def test_those_who_wait_for_the_same_source_can_be_cancelled():
    turns, cancel = offline_model._Turns(), Cancellation()
    with turns.turn(cancel):
        cancel.cancel()
        with pytest.raises(Cancelled), turns.turn(cancel):
            pass
