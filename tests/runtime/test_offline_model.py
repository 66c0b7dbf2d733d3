"""Rules in the place of a model: in the same loop, on the same record."""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.cancellation import Cancellation
from etude.entities import Run, SourceSpec
from etude.errors import Cancelled, NotUnderstood
from etude.offline import deadline
from etude.offline.collection import pause_garbage_collection, resume_garbage_collection
from etude.offline.deadline import check_deadline, within_deadline, without_giving_way
from etude.offline.understand import Outcome, Refusal
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


@pytest.fixture
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the rules compute half a second for each question with `slow` in it; the list has those that began."""
    read, begun = offline_model._read_run, list[str]()

    def read_slowly(run: Run, *others: Any) -> Outcome:
        if "slow" not in run.text:
            return read(run, *others)
        begun.append(run.text)
        ends = time.thread_time() + 0.5
        while time.thread_time() < ends:
            check_deadline()
        return Refusal(run.text, "It was slow.")

    monkeypatch.setattr(offline_model, "_read_run", read_slowly)
    return begun


@pytest.mark.parametrize("tenant", ["quiet", "busy"])
def test_a_short_question_does_not_wait_for_the_many_long_ones_of_any_tenant(
    tmp_path: Path, slow_reading: list[str], tenant: str
):
    write_shop(tmp_path / "shop")
    with App(home=tmp_path / "home", model="offline") as owner, ThreadPoolExecutor(6) as pool:
        for name in ("quiet", "busy"):
            owner.scoped(name).add_source("shop", SourceSpec(url=str(tmp_path / "shop")))
            assert owner.scoped(name).ask("shop", "how many customers").ok
        slow = [pool.submit(owner.scoped("busy").ask, "shop", f"slow {n}") for n in range(6)]
        wait_until(lambda: slow_reading)
        assert "3,704" in owner.scoped(tenant).ask("shop", "how many orders").text
        assert not any(future.done() for future in slow)
        assert all(str(future.result().error) == "It was slow." for future in slow)


def test_the_seconds_of_a_question_do_not_count_those_of_others(
    app: App, slow_reading: list[str], monkeypatch: pytest.MonkeyPatch
):
    app.ask("shop", "how many orders")
    monkeypatch.setattr(offline_model, "READ_S", 4.0)
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(app.ask, "shop", f"slow {n}") for n in range(12)]  # each waits for six seconds in all
        assert {str(future.result().error) for future in asked} == {"It was slow."}


def test_a_question_that_waits_for_others_can_be_cancelled(app: App, slow_reading: list[str]):
    app.ask("shop", "how many orders")
    with offline_model._SLOT.hold("another", lambda: None):
        run_id = app.runs.begin("ask", "How many customers are there?", "shop", model="offline")
        app.runs.start(run_id)
        wait_until(lambda: [*offline_model._SLOT._share.waiting()])
        app.runs.cancel(run_id)
        wait_until(lambda: app.store.run(run_id).status == "cancelled")
    assert not offline_model._SLOT._share.taken


def test_garbage_is_collected_while_a_question_waits_for_others():
    with pause_garbage_collection():
        assert not gc.isenabled()
        with resume_garbage_collection():
            assert gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_questions_that_give_way_all_the_time_do_not_wait_for_each_other_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """If one gave way while it holds a lock, whoever has the slot would wait for it, and its owner for the slot."""
    monkeypatch.setattr(offline_model, "SLICE_S", -1.0)
    monkeypatch.setattr(deadline, "WORK_S", -1.0)
    write_shop(tmp_path / "shop")
    questions = ("orders per customer country", "top 3 customers by total amount", "customers without orders", "xyzzy")
    with App(home=tmp_path / "home", model="offline") as app, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(app.ask, str(tmp_path / "shop"), question) for question in questions * 2]
        try:
            ended = [future.result(60) for future in asked]
        except TimeoutError:
            for run in app.store.runs(limit=10).items:
                app.runs.cancel(run.id)
            raise
    assert [answer.ok for answer in ended] == [True, True, True, False] * 2


def test_where_locks_are_held_no_question_gives_way() -> None:
    given = list[int]()

    def give_way() -> float:
        given.append(1)
        return 0.0

    with within_deadline(10, Cancellation(), give_way):
        with without_giving_way():
            time.sleep(2 * deadline.WORK_S)
            check_deadline()
            assert not given
        time.sleep(2 * deadline.WORK_S)
        check_deadline()
    assert given


@pytest.mark.parametrize(
    ("content", "question", "answer"),
    [
        ("region,amount\nNorth,100.5\nSouth,200.5\nEast,50\nTotal,351\n", "total amount", "351. The total row"),
        ("region,amount\nNorth,100.5\nSouth,200.5\nEast,50\nTotal,351\n", "highest amount", "200.5. The total row"),
        ("region,amount\nNorth,100.5\nSouth,200.5\nEast,50\nTotal,351\n", "how many sales are there", ": 3. The total"),
        (
            "region,amount\nNorth,1\n,2\nSouth,200\nTotal,203\n",
            "total amount",
            "203. The total row (`region` is `Total`)",
        ),
        ("id,amount\n1,10\n2,20\n3,5\n,35\n", "total amount", "35. The last row, a total without `id`, is left out."),
        (
            "region,sex,units\nA,f,1\nA,m,2\nA,Total,3\nB,f,4\nB,Total,9\nB,m,5\n",
            "total units",
            "12. The total row (`sex`",
        ),
        (
            "region,q1\nNorth,10\nSouth,30\nAverage,20\nTotal,40\n",
            "total q1",
            "40. Total rows (`region` is `Total`, `Average`)",
        ),
        ("region,q1\nNorth,10\nSouth,30\nEast,5\nMean,15\n", "total q1", "45. The total row (`region` is `Mean`)"),
        ("region,amount\nNorth,100.5\nSouth,200.5\nEast,50\nTotal,351\n", "amount of Total", "351"),
    ],
)
def test_rows_that_are_totals_are_left_out_and_told(
    app: App, tmp_path: Path, content: str, question: str, answer: str
) -> None:
    (tmp_path / "sales.csv").write_text(content)
    found = app.ask(str(tmp_path / "sales.csv"), question)
    assert answer in found.text
    assert ("left out" in found.text) is not question.endswith("of Total")


SENSOR = "time,temp,humidity\n" + "".join(
    f"2024-05-01T{hour:02d}:00:00,{-9999 if hour in (3, 7) else 10 + hour},{999 if hour == 5 else 40 + hour}\n"
    for hour in range(12)
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            "average temp",
            "Average temp: 15.6. `temp` is -9999 in 2 rows, which is taken as a missing value and left out.",
        ),
        ("lowest temp", "Lowest temp: 10. `temp` is -9999 in 2 rows"),
        ("median temp", "Median temp: 15.5. `temp` is -9999"),
        ("max humidity", "Highest humidity: 999. `humidity` is 999 in one row, far above all others"),
        ("how many rows", ": 12."),
    ],
)
def test_markers_of_missing_values_are_told(app: App, tmp_path: Path, question: str, answer: str) -> None:
    (tmp_path / "sensor.csv").write_text(SENSOR)
    assert answer in app.ask(str(tmp_path / "sensor.csv"), question).text


def test_low_numbers_among_others_like_them_are_no_markers(app: App, tmp_path: Path) -> None:
    (tmp_path / "profits.csv").write_text("shop,profit\nA,-999\nB,-500\nC,1200\nD,7\n")
    assert app.ask(str(tmp_path / "profits.csv"), "total profit").text == "Total profit: -292."


def test_a_question_about_nothing_does_not_repeat_the_answer_before(app: App) -> None:
    first = app.ask("shop", "What is the average amount by channel?")
    for words in ("what?", "which?"):
        said = app.ask("shop", words, thread_id=first.thread_id)
        assert isinstance(said.error, NotUnderstood) and words.rstrip("?") in said.error.message


def test_a_chart_of_the_answer_before_keeps_a_condition_that_had_two_equal_meanings(app: App, tmp_path: Path) -> None:
    path = tmp_path / "music.sqlite"
    with sqlite3.connect(path) as writer:
        writer.executescript(
            """
            CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT, country TEXT);
            CREATE TABLE invoices (
                invoice_id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, billing_country TEXT,
                city TEXT, total REAL);
            INSERT INTO customers VALUES (1, 'Ann', 'Germany'), (2, 'Bob', 'France');
            INSERT INTO invoices VALUES
                (1, 1, 'Germany', 'Bonn', 5), (2, 1, 'Germany', 'Ulm', 7), (3, 2, 'France', 'Nice', 9);
            """
        )
    writer.close()
    first = app.ask(str(path), "total total by city")
    second = app.ask(str(path), "only Germany", thread_id=first.thread_id)
    assert second.result is not None and second.result.row_count == 2
    assert "give the same result" in second.reading
    third = app.ask(str(path), "as a pie chart", thread_id=first.thread_id)
    assert third.result is not None and third.result.rows() == second.result.rows()


def test_what_a_source_holds_is_told_without_a_query(app: App) -> None:
    answer = app.ask("shop", "what tables are there?")
    assert answer.ok and "`orders` (" in answer.text and not answer.unverified and answer.result is None
    first = app.ask("shop", "orders by channel", thread_id=answer.thread_id)
    between = app.ask("shop", "describe the data", thread_id=answer.thread_id)
    assert between.text == answer.text
    assert "per `orders.channel`" in app.ask("shop", "only 2025", thread_id=first.thread_id).reading
