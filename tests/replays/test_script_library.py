"""The same question again: answered by the script of the first run, or a reason why not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.cli.main import run_command as command
from etude.entities import SourceSpec
from etude.events import ReplayDecided, ScriptCompiled
from etude.runtime.answer import Answer, answer_to_body

COUNT = "How many customers are there?"
ORDERS = """CREATE TABLE orders AS SELECT i AS order_id, 1 + i % 40 AS customer_id, 10.0 + i % 90 AS amount,
    DATE '2024-01-01' + CAST(i % 700 AS INTEGER) AS ordered, ['web', 'app', 'store'][1 + i % 3] AS channel
    FROM range(1, 2001) t(i)"""
CUSTOMERS = """CREATE TABLE customers AS SELECT i AS customer_id, 'Name ' || i AS name,
    ['DE', 'FR', 'ES', 'PL'][1 + i % 4] AS country FROM range(1, 41) t(i)"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    change(folder, ORDERS, CUSTOMERS)
    return folder


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=tmp_path / "home", replay="on") as app:
        yield app


def change(folder: Path, *statements: str) -> None:
    with duckdb.connect() as db:
        for file in folder.glob("*.parquet"):
            db.execute(f"CREATE TABLE {file.stem} AS SELECT * FROM read_parquet('{file}')")
        for statement in statements:
            db.execute(statement)
        for (table,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            db.execute(f"COPY {table} TO '{folder / table}.parquet'")


def scripted(folder: Path, *turns: object, name: str = "model.json") -> str:
    (folder / name).write_text(json.dumps(turns))
    return f"scripted:{folder / name}"


def sql(query: str) -> dict[str, object]:
    return {"calls": [{"name": "execute_sql", "arguments": {"dataset": "shop", "query": query}}]}


def ask(app: App, shop: Path, question: str, **options: object) -> Answer:
    answer = app.ask(str(shop), question, **options).require()
    app.scripts.settle()
    return answer


def decision(app: App, answer: Answer) -> ReplayDecided:
    found = [e.event for e in app.store.entries(answer.run_id) if isinstance(e.event, ReplayDecided)]
    assert len(found) == 1
    return found[0]


def compiled(app: App, answer: Answer) -> ScriptCompiled:
    return next(e.event for e in app.store.entries(answer.run_id) if isinstance(e.event, ScriptCompiled))


# -- the same question


def test_a_complete_question_is_replayed_in_the_middle_of_a_conversation(app: App, shop: Path) -> None:
    thread = app.store.create_thread("a conversation").id
    first = ask(app, shop, COUNT, thread_id=thread)
    ask(app, shop, "What is the total amount per channel?", thread_id=thread)
    assert ask(app, shop, COUNT, thread_id=thread).replayed
    # The words of this one mean something else after another question.
    ask(app, shop, "How many orders are there?", thread_id=thread)
    by_channel = ask(app, shop, "per channel", thread_id=thread)
    ask(app, shop, COUNT, thread_id=thread)
    assert not by_channel.replayed and first.text == "Number of customers: 40."


def test_the_second_time_no_model_is_asked(app: App, shop: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path, sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    first = ask(app, shop, COUNT, model=model)
    second = ask(app, shop, "how many customers are  there", model=model)
    assert first.run.usage.model_calls == 2 and not first.replayed
    assert second.run.usage.model_calls == 0 and second.text == first.text == "There are 40 customers."
    assert second.result is not None and first.result is not None and second.result.rows() == first.result.rows()
    assert second.replayed.startswith(f"Answered by replaying {first.run_id} from ")
    assert " guards passed. 0 tokens, " in second.replayed
    assert decision(app, second).tokens_saved == first.run.usage.tokens_in + first.run.usage.tokens_out


def test_a_replay_shows_the_table_that_the_answer_quotes(app: App, shop: Path, tmp_path: Path) -> None:
    countries = sql("SELECT country, count(*) AS n FROM customers GROUP BY ALL ORDER BY ALL")
    total = sql("SELECT count(*) AS total FROM customers")
    said = {"text": "DE, ES, FR and PL have 10 customers each, 40 in all."}
    model = scripted(tmp_path, countries, total, said)
    first = ask(app, shop, COUNT, model=model)
    second = ask(app, shop, COUNT, model=model)
    assert second.replayed and second.text == first.text
    assert [[c.name for c in answer.result.columns] for answer in (first, second) if answer.result] == [
        ["country", "n"],
        ["country", "n"],
    ]


def test_the_record_of_the_first_run_says_what_was_compiled(app: App, shop: Path) -> None:
    event = compiled(app, ask(app, shop, COUNT))
    assert event.replayable and event.steps == 1 and event.guards > 2 and event.artifact is not None


def test_rules_are_replayed_with_their_reading(app: App, shop: Path) -> None:
    first = ask(app, shop, "How many customers are there per country?")
    second = ask(app, shop, "How many customers are there per country?")
    assert second.replayed and second.reading == first.reading and second.chart == first.chart


@pytest.mark.parametrize("how", ["fresh", "off", "object"])
def test_a_model_is_asked_if_the_caller_wants_it(app: App, shop: Path, tmp_path: Path, how: str) -> None:
    from etude.models.scripted import Scripted

    model = scripted(tmp_path, sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    ask(app, shop, COUNT, model=model)
    if how == "off":
        app.change_settings(app.settings.model_copy(update={"replay": "off"}))
    options = {"fresh": True} if how == "fresh" else {}
    chosen = Scripted.from_file(tmp_path / "model.json") if how == "object" else model
    assert ask(app, shop, COUNT, model=chosen, **options).run.usage.model_calls == 2


def test_another_model_answers_itself(app: App, shop: Path, tmp_path: Path) -> None:
    turns = (sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    ask(app, shop, COUNT, model=scripted(tmp_path, *turns))
    again = ask(app, shop, COUNT, model=scripted(tmp_path, *turns, name="other.json"))
    assert again.run.usage.model_calls == 2 and decision(app, again).cause == "no script"


def test_a_similar_question_is_offered_and_not_replayed(app: App, shop: Path) -> None:
    ask(app, shop, "How many customers are there per country?")
    answer = ask(app, shop, "How many customers are there per name?")
    event = decision(app, answer)
    assert not answer.replayed and event.level == "example" and event.similar.endswith("per country?")
    assert answer.result is not None and answer.result.row_count == 40


def test_a_question_with_another_value_waits_for_the_script_that_is_being_compiled(app: App, shop: Path) -> None:
    app.ask(str(shop), "What is the total amount in 2024?").require()
    assert app.ask(str(shop), "What is the total amount in 2025?").require().replayed


def test_a_refused_question_names_a_similar_one_to_the_person(
    tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ETUDE_REPLAY", "on")
    assert command(["ask", str(shop), "How many customers are there per country?"]) == 0
    assert command(["ask", str(shop), "How many customers are there per zodiac?"]) != 0
    assert "Did you mean “How many customers are there per country?”" in capsys.readouterr().err


def test_a_question_is_no_suggestion_for_itself(app: App, shop: Path) -> None:
    ask(app, shop, "total amount")
    means = "metadata:\n  means: {amount: whatever the auditors like}\n"
    app.playbooks.add_text(f"---\nname: words\ndescription: What words mean\n{means}---\n")
    refused = app.ask(str(shop), "total amount")
    event = decision(app, refused)
    assert refused.error is not None and event.level == "example" and event.suggestion == ""


# -- data that moved


def test_data_that_moved_are_asked_by_the_same_script(app: App, shop: Path) -> None:
    first = ask(app, shop, "How many customers are there per country?")
    moved = shop.parent / "archive" / "shop"
    shop.parent.joinpath("archive").mkdir()
    shop.rename(moved)
    again = ask(app, moved, "How many customers are there per country?")
    event = decision(app, again)
    assert (event.level, event.cause) == ("repair", "moved") and "`shop` moved" in again.replayed
    assert again.result is not None and first.result is not None
    assert sorted(again.result.rows()) == sorted(first.result.rows())
    third = ask(app, moved, "How many customers are there per country?")
    assert decision(app, third).level == "replay"


def test_a_registered_source_may_move_to_another_url(app: App, shop: Path) -> None:
    app.add_source("data", SourceSpec(url=str(shop)))
    app.ask("data", COUNT).require()
    app.scripts.settle()
    other = shop.parent / "elsewhere"
    shop.rename(other)
    app.remove_source("data")
    app.add_source("data", SourceSpec(url=str(other)))
    assert decision(app, app.ask("data", COUNT).require()).cause == "moved"


def test_a_copy_beside_the_original_is_another_source(app: App, shop: Path) -> None:
    ask(app, shop, COUNT)
    copy = shop.parent / "copy" / "shop"
    shutil.copytree(shop, copy)
    assert not ask(app, copy, COUNT).replayed


def test_other_data_at_another_place_are_stopped_by_the_guards(app: App, shop: Path) -> None:
    ask(app, shop, "What is the total amount?")
    moved = shop.parent / "archive" / "shop"
    shop.parent.joinpath("archive").mkdir()
    shop.rename(moved)
    change(moved, "UPDATE orders SET amount = amount * 100")
    answer = ask(app, moved, "What is the total amount?")
    assert not answer.replayed and decision(app, answer).cause == "guard"


def test_grants_are_part_of_a_source_that_moved(app: App, shop: Path) -> None:
    app.add_source("data", SourceSpec(url=str(shop)))
    app.ask("data", COUNT).require()
    app.scripts.settle()
    app.remove_source("data")
    app.add_source("data", SourceSpec(url=str(shop.rename(shop.parent / "elsewhere")), tables=("customers",)))
    assert decision(app, app.ask("data", COUNT).require()).cause == "no script"


def test_a_follow_up_is_the_same_question_only_after_the_same_questions(app: App, shop: Path) -> None:
    first = ask(app, shop, "How many orders are there per channel?")
    ask(app, shop, "only in 2025", thread_id=first.thread_id)
    other = ask(app, shop, "What is the total amount per channel?")
    follow = ask(app, shop, "only in 2025", thread_id=other.thread_id)
    assert not follow.replayed and "amount" in follow.code
    again = ask(app, shop, "How many orders are there per channel?")
    repeated = ask(app, shop, "only in 2025", thread_id=again.thread_id)
    assert again.replayed and repeated.replayed and "COUNT" in repeated.code


# -- other data


def test_new_data_give_new_numbers_in_the_text_a_model_wrote(app: App, shop: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path, sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    ask(app, shop, COUNT, model=model)
    change(shop, "INSERT INTO customers VALUES (41, 'Name 41', 'DE')")
    assert ask(app, shop, COUNT, model=model).text == "There are 41 customers."


def test_words_that_may_have_become_false_are_not_repeated(app: App, shop: Path, tmp_path: Path) -> None:
    query = "SELECT country, count(*) AS n FROM customers GROUP BY ALL ORDER BY country"
    model = scripted(tmp_path, sql(query), {"text": "They are spread evenly: 10 in each of 4 countries."})
    ask(app, shop, "Where are the customers?", model=model)
    change(shop, "INSERT INTO customers SELECT i, 'Name ' || i, 'DE' FROM range(41, 61) t(i)")
    answer = ask(app, shop, "Where are the customers?", model=model)
    assert answer.replayed and "evenly" not in answer.text and "30" in answer.text


@pytest.mark.parametrize(
    ("statement", "cause", "said"),
    [
        ("ALTER TABLE orders DROP amount", "schema", "`orders.amount` is gone"),
        (
            "ALTER TABLE orders ALTER amount TYPE INTEGER USING CAST(amount / 10 AS INTEGER)",
            "schema",
            "now it is INTEGER",
        ),
        ("INSERT INTO orders SELECT * FROM orders LIMIT 5", "guard", "`orders.order_id` had no duplicates"),
        ("UPDATE orders SET amount = amount * 100", "guard", "`orders.amount`"),
        ("UPDATE orders SET amount = amount * 1.08", "guard", "`orders.amount` changed"),
        ("UPDATE orders SET amount = NULL WHERE order_id % 20 = 0", "guard", "was null"),
        ("UPDATE orders SET channel = 'fax' WHERE order_id = 7", "guard", "another value"),
        ("DELETE FROM orders WHERE order_id > 1900", "guard", "`orders` had 2,000 rows; now it has 1,900"),
        ("UPDATE orders SET ordered = ordered - 1", "guard", "`orders.ordered`"),
    ],
)
def test_a_guard_stops_a_replay_on_data_that_break_its_assumptions(
    app: App, shop: Path, tmp_path: Path, statement: str, cause: str, said: str
) -> None:
    query = (
        "SELECT channel, sum(amount) AS total FROM orders WHERE ordered < '2026-01-01' GROUP BY ALL ORDER BY channel"
    )
    model = scripted(tmp_path, sql(query), {"text": "See the table."})
    ask(app, shop, "What is the total amount per channel?", model=model)
    change(shop, statement)
    # The model of this test always runs the same query, so the run itself may fail; the decision is on record.
    answer = app.ask(str(shop), "What is the total amount per channel?", model=model)
    event = decision(app, answer)
    assert event.level == "example" and event.cause == cause and said in event.reason


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN note VARCHAR",
        "INSERT INTO orders SELECT order_id + 2000, customer_id, amount, ordered, channel FROM orders LIMIT 300",
        "CREATE OR REPLACE TABLE orders AS SELECT * FROM orders ORDER BY amount",
        "CREATE TABLE other AS SELECT 1 AS x",
    ],
)
def test_a_harmless_change_does_not_stop_a_replay(app: App, shop: Path, statement: str) -> None:
    ask(app, shop, "What is the total amount per channel?")
    change(shop, statement)
    assert ask(app, shop, "What is the total amount per channel?").replayed


# -- repair


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (("ALTER TABLE orders RENAME amount TO total",), "The column `orders.amount` is now called `total`."),
        (("ALTER TABLE orders ALTER amount TYPE VARCHAR",), "`orders.amount` is VARCHAR now and was cast to"),
        (
            ("ALTER TABLE orders RENAME channel TO way", "ALTER TABLE orders RENAME amount TO total"),
            "The column `orders.channel` is now called `way`.",
        ),
        (
            (
                "INSERT INTO orders SELECT order_id + 2000, customer_id, amount, ordered, channel FROM orders LIMIT 90",
                "ALTER TABLE orders RENAME amount TO total",
            ),
            "is now called `total`",
        ),
    ],
)
def test_a_column_is_found_again_by_its_data(app: App, shop: Path, statements: tuple[str, ...], said: str) -> None:
    first = ask(app, shop, "What is the total amount per channel?")
    change(shop, *statements)
    answer = ask(app, shop, "What is the total amount per channel?")
    event = decision(app, answer)
    assert event.level == "repair" and said in event.reason and said in answer.replayed
    assert answer.result is not None and first.result is not None
    assert [c.name for c in answer.result.columns] == [c.name for c in first.result.columns]
    if len(answer.result.rows()) == 3 and "INSERT" not in statements[0]:
        # The question asks for no order, so an engine with several threads may return the groups in any.
        assert sorted(answer.result.rows()) == sorted(first.result.rows())
        assert answer.text == first.text


def test_a_file_with_another_name_is_found_again(app: App, shop: Path) -> None:
    first = ask(app, shop, "What is the total amount per channel?")
    (shop / "orders.parquet").rename(shop / "sales.parquet")
    answer = ask(app, shop, "What is the total amount per channel?")
    assert decision(app, answer).reason == "The table `orders` is now called `sales`."
    assert answer.text == first.text


@pytest.mark.parametrize(
    "statements",
    [
        (
            "ALTER TABLE orders ADD net DOUBLE",
            "UPDATE orders SET net = amount / 1.08",
            "ALTER TABLE orders DROP amount",
        ),
        (
            "CREATE OR REPLACE TABLE orders AS SELECT *, amount AS b FROM orders",
            "ALTER TABLE orders RENAME amount TO a",
        ),
        ("ALTER TABLE orders ALTER amount TYPE DECIMAL(9, 0)",),
        ("UPDATE orders SET amount = amount + 0.4 WHERE order_id = 7", "ALTER TABLE orders ALTER amount TYPE VARCHAR"),
    ],
)
def test_another_column_is_not_taken_for_a_lost_one(app: App, shop: Path, statements: tuple[str, ...]) -> None:
    change(shop, "UPDATE orders SET amount = amount + 0.3")
    ask(app, shop, "What is the total amount per channel?")
    change(shop, *statements)
    answer = app.ask(str(shop), "What is the total amount per channel?")
    assert decision(app, answer).cause == "schema" and not answer.replayed


# -- a model corrects a step

TOTALS = "SELECT channel, sum(amount) AS total FROM orders GROUP BY channel ORDER BY channel"


def correcting(folder: Path, first: str, patch: str, afresh: str = "") -> str:
    """Return a model that answers with one query, corrects a step with another, and answers afresh with a third."""
    answer = [sql(first), {"text": "See the table."}]
    scenes = [
        {"asked": "Correct this step", "turns": [{"text": patch}]},
        {"asked": "It was not used because", "turns": [sql(afresh), {"text": "See the new table."}]},
        {"asked": "Question: What is", "turns": answer},
    ]
    (folder / "model.json").write_text(json.dumps(scenes))
    return f"scripted:{folder / 'model.json'}"


def test_a_model_corrects_the_step_that_does_not_run(app: App, shop: Path, tmp_path: Path) -> None:
    patch = f"```sql\n{TOTALS.replace('amount', 'net')}\n```"
    model = correcting(tmp_path, TOTALS, patch)
    first = ask(app, shop, "What is the total amount per channel?", model=model)
    # One value was corrected as well, so the column is not the same by its data.
    change(shop, "ALTER TABLE orders RENAME amount TO net", "UPDATE orders SET net = net + 1 WHERE order_id = 5")
    answer = ask(app, shop, "What is the total amount per channel?", model=model)
    replay = answer.run.replay
    assert replay is not None and replay.level == "patch" and replay.cause == "schema"
    assert "A model corrected the step." in answer.replayed and answer.run.usage.model_calls == 1
    assert 0 < replay.tokens == answer.run.usage.tokens_in + answer.run.usage.tokens_out
    assert answer.result is not None and first.result is not None and answer.result.rows() != first.result.rows()
    again = ask(app, shop, "What is the total amount per channel?", model=model)
    assert again.run.usage.model_calls == 0 and again.replayed
    assert app.scripts.script(answer.run_id).parent == app.scripts.script(first.run_id).id


@pytest.mark.parametrize(
    ("change_", "patch", "cause"),
    [
        ("UPDATE orders SET net = net * 100", TOTALS.replace("amount", "net"), "guard"),
        ("UPDATE orders SET net = net + 1 WHERE order_id = 5", TOTALS.replace("amount", "order_id"), "result"),
        ("UPDATE orders SET net = net + 1 WHERE order_id = 5", "SELECT 1 AS one", "result"),
        ("UPDATE orders SET net = net + 1 WHERE order_id = 5", "", "schema"),
    ],
)
def test_a_correction_counts_only_if_the_guards_hold(
    app: App, shop: Path, tmp_path: Path, change_: str, patch: str, cause: str
) -> None:
    reply = f"```\n{patch}\n```" if patch else "CANNOT"
    model = correcting(tmp_path, TOTALS, reply, TOTALS.replace("amount", "net"))
    ask(app, shop, "What is the total amount per channel?", model=model)
    change(shop, "ALTER TABLE orders RENAME amount TO net", change_)
    answer = ask(app, shop, "What is the total amount per channel?", model=model)
    assert answer.run.replay is not None and answer.run.replay.level == "example" and not answer.replayed
    assert answer.run.replay.cause == cause and answer.text == "See the new table."


# -- parameters


def test_another_year_is_the_same_question_with_another_value(app: App, shop: Path) -> None:
    ask(app, shop, "What is the total amount in 2024?")
    answer = ask(app, shop, "What is the total amount in 2025?")
    fresh = ask(app, shop, "What is the total amount in 2025?", fresh=True)
    assert answer.replayed and decision(app, answer).parameters == {"year": "2025"}
    assert answer.text == fresh.text and answer.reading == fresh.reading


def test_a_value_that_the_data_do_not_have_is_not_replayed(app: App, shop: Path) -> None:
    ask(app, shop, "What is the total amount in 2024?")
    assert decision(app, app.ask(str(shop), "What is the total amount in 2019?")).cause == "parameter"


def test_a_name_is_a_parameter_if_it_is_a_value_of_the_same_column(app: App, shop: Path) -> None:
    ask(app, shop, "How many customers are in DE?")
    answer = ask(app, shop, "How many customers are in FR?")
    assert answer.replayed and "'FR'" in answer.code and "DE" not in answer.code


# -- what is not replayed by itself


def test_a_question_about_today_is_not_replayed_tomorrow(app: App, shop: Path, tmp_path: Path) -> None:
    query = "SELECT count(*) AS n FROM orders WHERE ordered >= '2025-10-01'"
    model = scripted(tmp_path, sql(query), {"text": "See the table."})
    first = ask(app, shop, "How many orders came last month?", model=model)
    script = app.scripts.script(first.run_id)
    assert script.day == first.run.created_at.date()


def test_an_answer_that_needed_a_person_is_only_an_example(app: App, shop: Path, tmp_path: Path) -> None:
    asks = {"calls": [{"name": "ask_user", "arguments": {"question": "Which ones?"}}]}
    model = scripted(tmp_path, asks, sql("SELECT count(*) AS n FROM customers"), {"text": "40."})
    waiting = app.ask(str(shop), COUNT, model=model)
    app.runs.answer(waiting.run_id, "all")
    done = app.runs.answer_of(app.runs.work(waiting.run_id))
    app.scripts.settle()
    assert done.ok and not compiled(app, done).replayable
    assert app.ask(str(shop), COUNT, model=model).question


def test_an_answer_as_json_says_that_it_was_replayed(app: App, shop: Path) -> None:
    ask(app, shop, COUNT)
    body = answer_to_body(ask(app, shop, COUNT), 10)
    assert body.replayed is not None and body.replayed.startswith("Answered by replaying run_")
    assert body.replay is not None and body.replay.level == "replay"


def test_a_similar_script_is_shown_to_the_model_as_an_example(app: App, shop: Path, tmp_path: Path) -> None:
    turns = (sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    model = scripted(tmp_path, *turns)
    ask(app, shop, COUNT, model=model)
    expecting = [{**turns[0], "expect": ["It may not fit", "SELECT count(*) AS n FROM customers"]}, turns[1]]
    (tmp_path / "model.json").write_text(json.dumps(expecting))
    with App(home=tmp_path / "home", replay="on") as later:  # a model is read once for each app
        answer = ask(later, shop, "How many customers are there now?", model=model)
    assert decision(app, answer).level == "example" and answer.run.usage.model_calls == 2


def test_the_same_question_in_one_conversation_is_replayed(app: App, shop: Path) -> None:
    first = ask(app, shop, COUNT)
    assert ask(app, shop, COUNT, thread_id=first.thread_id).replayed
    assert ask(app, shop, COUNT, thread_id=first.thread_id).replayed


# -- shadow


def test_a_new_script_is_compared_with_a_fresh_run_in_shadow_mode(app: App, shop: Path, tmp_path: Path) -> None:
    app.change_settings(app.settings.model_copy(update={"replay": "shadow"}))
    model = scripted(tmp_path, sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    ask(app, shop, COUNT, model=model)
    answer = ask(app, shop, COUNT, model=model)
    assert answer.run.usage.model_calls == 2 and not answer.replayed
    event = decision(app, answer)
    assert event.level == "shadow" and event.agrees


def test_one_difference_suspends_a_script(app: App, shop: Path, tmp_path: Path) -> None:
    app.change_settings(app.settings.model_copy(update={"replay": "shadow"}))
    model = scripted(tmp_path, sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40 customers."})
    first = ask(app, shop, COUNT, model=model)
    scripted(tmp_path, sql("SELECT count(DISTINCT country) AS n FROM customers"), {"text": "There are 4."})
    with App(home=tmp_path / "home", replay="shadow") as later:  # a model is read once for each app
        answer = ask(later, shop, COUNT, model=model)
    assert decision(app, answer).agrees is False
    assert app.scripts.stored.get(first.run_id).state == "suspended"
