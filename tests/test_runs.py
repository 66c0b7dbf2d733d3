"""Questions as runs: answered, limited, asked back, paused, steered, stopped; always on record."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until
from tests.relay import Relay, relay_to_postgres

from etude.app import App
from etude.entities import Budget, Catalog, Column, Run, RunKind, SourceSpec, Table
from etude.errors import Conflict, Invalid, LimitExceeded, NotFound, SourceUnavailable
from etude.events import Entry, RunPaused, RunRequested, RunResumed, RunStarted, TextDelta
from etude.models.base import AssistantMessage, ModelRequest, ToolResult, UserMessage
from etude.models.scripted import Line, Scene, Scripted, ScriptedCall
from etude.runs import parse_direct_run
from etude.runtime import live_runs
from etude.runtime.prompt import describe_catalog_in_prompt
from etude.runtime.run_control import RunControl
from etude.runtime.thread import fork_thread, write_thread
from etude.sample import write_shop

COUNTRIES = "SELECT country, count(*) AS n FROM customers GROUP BY ALL ORDER BY n DESC, country LIMIT 3"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "shop"
    folder.mkdir()
    write_shop(folder)
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with App(home=tmp_path_factory.mktemp("home")) as app:
        yield app


def sql(query: str, **more: object) -> Line:
    return Line(calls=(ScriptedCall(name="execute_sql", arguments={"dataset": "shop", "query": query}),), **more)


def python(code: str) -> Line:
    return Line(calls=(ScriptedCall(name="execute_python", arguments={"code": code}),))


def start(app: App, kind: RunKind, text: str, source: str, **options: Any) -> str:
    run_id = app.runs.begin(kind, text, source, **options)
    app.runs.start(run_id)
    return run_id


def last_return(model: Scripted) -> str:
    returned = [u for u in model.seen[-1].conversation if isinstance(u, ToolResult)]
    return returned[-1].text


# -- answers


def test_a_question_is_answered_with_text_table_and_code(app: App, shop: Path):
    answer = app.ask(str(shop), "Where are the customers?", model=Scripted([sql(COUNTRIES), Line(text="Mostly DE.")]))
    assert answer.ok and answer.text == "Mostly DE."
    assert answer.code == COUNTRIES
    assert answer.result is not None and [c.name for c in answer.result.columns] == ["country", "n"]
    assert answer.run.status == "succeeded" and answer.run.usage.model_calls == 2


def test_variables_stay_between_cells_and_between_questions(app: App, shop: Path):
    first = Scripted([python("n = db.sql('SELECT count(*) AS n FROM orders').rows()[0][0]"), Line(text="Noted.")])
    answer = app.ask(str(shop), "Count the orders.", model=first)
    second = Scripted([Scene(asked="twice", turns=(python("n * 2"), Line(text="Done.")))])
    again = app.ask(str(shop), "And twice that?", model=second, thread_id=answer.thread_id)
    orders = app.sql(str(shop), "SELECT count(*) FROM orders").rows()[0][0]
    assert str(orders * 2) in last_return(second)
    assert again.code.endswith("n * 2\n")


def test_a_follow_up_sees_and_computes_with_the_results_of_the_run_before(app: App, shop: Path):
    answer = app.ask(str(shop), "Where are they?", model=Scripted([sql(COUNTRIES), Line(text="Mostly DE.")]))
    rows = app.sql(str(shop), COUNTRIES).rows()
    most, all_ = rows[0][1], sum(row[1] for row in rows)
    second = Scripted([Line(text="The first has {{ p1.n[0] / sum(p1.n) | 0.1% }} of all.")])
    again = app.ask(str(shop), "What share is that?", model=second, thread_id=answer.thread_id)
    asked = second.seen[0].conversation[-1].text
    assert f"p1: {len(rows)} rows" in asked and f"{rows[0][0]},{most}" in asked
    assert again.text == f"The first has {100 * most / all_:.1f}% of all."


def test_the_table_that_a_cell_ends_with_is_the_result(app: App, shop: Path):
    cell = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"
    answer = app.ask(str(shop), "Make a table.", model=Scripted([python(cell), Line(text="Here.")]))
    assert answer.result is not None and answer.result.rows() == [(1, "x"), (2, "y")]


def test_a_plan_runs_as_a_query(app: App, shop: Path):
    plan = {"from": "customers", "aggregate": [{"fn": "count", "as": "n"}]}
    line = Line(calls=(ScriptedCall(name="execute_query_plan", arguments={"dataset": "shop", "plan": plan}),))
    answer = app.ask(str(shop), "How many customers?", model=Scripted([line, Line(text="See the table.")]))
    assert answer.result is not None and answer.result.row_count == 1 and "COUNT" in answer.code.upper()


def test_tokens_appear_as_they_arrive(app: App, shop: Path):
    seen: list[Entry] = []
    text = "one two three four five six"
    app.ask(str(shop), "Count.", model=Scripted([Line(text=text, pace_s=0.03)]), on_entry=seen.append)
    pieces = [e.event.text for e in seen if isinstance(e.event, TextDelta)]
    assert "".join(pieces) == text and len(pieces) > 2
    assert [e.seq for e in seen] == list(range(1, len(seen) + 1))


def test_an_empty_question_is_refused_before_anything_is_written(app: App, shop: Path):
    before = app.store.runs(limit=1).items
    with pytest.raises(Invalid, match="empty"):
        app.ask(str(shop), "  ")
    assert app.store.runs(limit=1).items == before


# -- what goes wrong


def test_the_model_sees_why_a_call_failed_and_mends_it(app: App, shop: Path):
    model = Scripted([sql("SELECT nope FROM customers"), sql(COUNTRIES), Line(text="Mended.")])
    answer = app.ask(str(shop), "Where?", model=model)
    assert answer.text == "Mended."
    shown = [u.text for u in model.seen[1].conversation if isinstance(u, ToolResult)]
    assert "nope" in shown[0] and "failed" in shown[0]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (ScriptedCall(name="drop_everything"), "There is no tool `drop_everything`"),
        (ScriptedCall(name="execute_sql", arguments="{bad"), "not valid JSON"),
        (ScriptedCall(name="execute_sql", arguments={"dataset": "shop"}), "`query`"),
        (ScriptedCall(name="execute_sql", arguments={"dataset": "hr", "query": "SELECT 1"}), "no dataset `hr`"),
        (ScriptedCall(name="execute_sql", arguments={"dataset": "shop", "query": "DROP TABLE orders"}), "failed"),
        (
            ScriptedCall(name="get_dataset_schema", arguments={"dataset": "shop", "tables": ["nope"]}),
            "There is no table `nope`.",
        ),
        (ScriptedCall(name="execute_python", arguments={"code": "1/0"}), "ZeroDivisionError"),
        (ScriptedCall(name="execute_python", arguments={"code": "np.mean([1])"}), "begin with `import numpy as np`"),
    ],
)
def test_a_bad_call_is_explained_and_the_run_goes_on(app: App, shop: Path, call: ScriptedCall, complaint: str):
    model = Scripted([Line(calls=(call,)), Line(text="I see.")])
    assert app.ask(str(shop), "Try.", model=model).text == "I see."
    assert complaint in last_return(model)


def test_the_same_failure_again_and_again_ends_the_run_with_a_diagnosis(app: App, shop: Path):
    model = Scripted([sql("SELECT nope FROM customers")] * 9)
    answer = app.ask(str(shop), "Where?", model=model)
    assert answer.status == "failed" and answer.error is not None
    assert answer.error.details["limit"] == "repeated_failure" and "nope" in answer.error.message
    assert len(model.seen) == 3


def test_a_failure_of_the_model_is_an_error_of_the_run_and_no_answer(app: App, shop: Path):
    answer = app.ask(str(shop), "Where?", model=Scripted([Line(text="Half an ans", error="The line is dead.")]))
    assert answer.status == "failed" and answer.text == "" and answer.run.error is not None
    assert answer.run.error["code"] == "model_error"


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(steps=3), "steps"),
        (Budget(tokens=10), "tokens"),
        (Budget(rows=4), "rows"),
        (Budget(wall_s=0.05), "wall_s"),
    ],
)
def test_a_run_ends_at_its_budget(app: App, shop: Path, budget: Budget, limit: str):
    model = Scripted([sql(f"SELECT {n} AS x, * FROM customers LIMIT 2", delay_s=0.02) for n in range(20)])
    answer = app.ask(str(shop), "Go on for ever.", model=model, budget=budget)
    assert answer.status == "failed" and answer.error is not None
    assert answer.error.details["limit"] == limit
    assert f"budget.{limit}" in answer.error.hint


def test_what_a_cell_prints_is_its_text(app: App, shop: Path):
    assert app.ask(str(shop), "PYTHON: print(5)").text == "5"
    assert app.ask(str(shop), "PYTHON: print('a'); 7").text == "a\n7"


@pytest.mark.parametrize(
    ("code", "text", "rows"),
    [
        ("result_df = db.sql('SELECT 1 AS a, 2 AS b').df()\nprint('done')", "done\n1 row: a, b.", [(1, 2)]),
        ("result_rows = [{'a': 1}, {'a': 2}]", "2 rows: a.", [(1,), (2,)]),
        ("result_rows = [(1, 'x'), (2, 'y')]", "2 rows: column0, column1.", [(1, "x"), (2, "y")]),
        ("result = 42", "42", None),
        ("result = 42\n7", "7", None),
        ("print(1)", "1", None),
    ],
)
def test_a_variable_may_be_the_result_of_a_cell(app: App, shop: Path, code: str, text: str, rows: object):
    first = app.ask(str(shop), "PYTHON: result = 'of another cell'; 1")
    answer = app.ask(str(shop), f"PYTHON: {code}", thread_id=first.thread_id)
    assert answer.text == text
    assert (answer.result.rows() if answer.result is not None else None) == rows


def test_a_query_as_a_run_has_a_line_of_text(app: App, shop: Path):
    assert app.ask(str(shop), "SQL: SELECT count(*) AS n FROM range(7)").text == "n: 7"
    assert app.ask(str(shop), "SQL: SELECT 1 AS a, 2 AS b UNION ALL SELECT 3, 4").text == "2 rows: a, b."
    thread = app.ask(str(shop), "SQL: SELECT 1 AS a WHERE 1 = 0").thread_id
    assert [m.text for m in app.store.messages(str(thread))][-1] == "0 rows: a."


def test_a_result_beyond_the_budget_of_rows_is_an_error_that_the_model_reads(app: App, shop: Path):
    model = Scripted([sql("SELECT * FROM customers"), Line(text="Too many.")])
    answer = app.ask(str(shop), "Who?", model=model, budget=Budget(rows=4))
    query = next(s for s in answer.run.steps if s.kind == "sql")
    assert query.outcome == "limit" and query.result is None
    assert any("budget of this run" in (s.shown or "") for s in answer.run.steps)


def test_a_limit_on_money_needs_a_price(app: App, shop: Path):
    answer = app.ask(str(shop), "Go.", model=Scripted([Line(text="Done.")]), budget=Budget(cost_usd=1.0))
    assert answer.error is not None and "price" in answer.error.message


# -- numbers


def test_a_number_that_no_result_holds_is_corrected_by_one_more_turn(app: App, shop: Path):
    count = app.sql(str(shop), "SELECT count(*) FROM customers").rows()[0][0]
    query = "SELECT count(*) AS customers FROM customers"
    model = Scripted([sql(query), Line(text="There are 98,765 customers."), Line(text=f"There are {count} customers.")])
    answer = app.ask(str(shop), "How many customers?", model=model)
    assert answer.text == f"There are {count} customers." and not answer.unverified
    told = [u.text for u in model.seen[-1].conversation if isinstance(u, UserMessage)]
    assert "98,765" in told[-1]


def test_a_number_that_stays_false_is_marked(app: App, shop: Path):
    lie = Line(text="There are 98,765 customers.")
    answer = app.ask(str(shop), "How many?", model=Scripted([sql("SELECT count(*) AS n FROM customers"), lie, lie]))
    assert answer.ok and answer.unverified == ("98,765",) and "[?]" in answer.text
    assert answer.run.unverified == ("98,765",)


# -- a person is asked


def asks_back() -> Scripted:
    which = ScriptedCall(name="ask_user", arguments={"question": "Gross or net?", "choices": ["gross", "net"]})
    return Scripted([Line(calls=(which,)), Line(text="Then net it is.", expect=("net",))], name="asks-back")


def test_a_run_waits_for_an_answer_and_goes_on_with_it(app: App, shop: Path):
    answer = app.ask(str(shop), "What is revenue?", model=asks_back())
    assert answer.status == "waiting" and answer.question == "Gross or net?" and answer.choices == ("gross", "net")
    app.runs.answer(answer.run_id, "net")
    final = app.runs.answer_of(app.runs.work(answer.run_id))
    assert final.text == "Then net it is."
    said = [(m.role, m.text) for m in app.store.messages(answer.thread_id)]
    assert said == [
        ("user", "What is revenue?"),
        ("assistant", "Gross or net?"),
        ("user", "net"),
        ("assistant", "Then net it is."),
    ]


def test_an_answer_can_come_to_another_process(tmp_path: Path, shop: Path):
    script = tmp_path / "script.json"
    which = {"name": "ask_user", "arguments": {"question": "Which year?"}}
    turns = [{"calls": [which]}, {"text": "In that year, none.", "expect": ["In the last one"]}]
    script.write_text(json.dumps(turns))
    with App(home=tmp_path / "home") as first:
        waiting = first.ask(str(shop), "How many?", model=f"scripted:{script}")
    with App(home=tmp_path / "home") as second:
        second.runs.answer(waiting.run_id, "In the last one")
        assert second.runs.work(waiting.run_id).answer == "In that year, none."


def test_only_a_run_that_waits_can_be_answered(app: App, shop: Path):
    answer = app.ask(str(shop), "Hi.", model=Scripted([Line(text="Hello.")]))
    with pytest.raises(Conflict, match="succeeded"):
        app.runs.answer(answer.run_id, "net")


# -- pause, cancel, interrupt, steer


def test_a_paused_run_keeps_its_place(app: App, shop: Path):
    control = RunControl()

    def pause_after_the_first_call(entry: Entry) -> None:
        if entry.event.type == "step.finished" and entry.event.shown:
            control.pause()

    lines = [python("x = 20"), python("x + 1"), Line(text="Done.")]
    model = Scripted(lines, name="paused")
    run_id = app.runs.begin("ask", "Go.", str(shop), model=model)
    paused = app.runs.work(run_id, control=control, on_entry=pause_after_the_first_call)
    assert paused.status == "paused" and len(model.seen) == 1
    ended = app.runs.work(run_id)
    assert ended.answer == "Done." and "21" in last_return(model)
    assert len(model.seen) == 3


@pytest.mark.parametrize(
    "line",
    [
        Line(text="thinking", delay_s=30),
        python("import time\ntime.sleep(30)"),
        sql("SELECT count(*) FROM range(1000000000) a, range(1000000) b"),
    ],
    ids=["model", "python", "sql"],
)
def test_a_run_is_cancelled_inside_a_step(app: App, shop: Path, line: Line):
    control = RunControl()

    def cancel_soon(entry: Entry) -> None:
        kind = getattr(entry.event, "kind", "")
        if entry.event.type == "step.started" and (kind in ("python", "sql") or line.delay_s):
            threading.Timer(0.1, control.cancel).start()

    model = Scripted([line, Line(text="Never.")])
    answer = app.ask(str(shop), "Take your time.", model=model, control=control, on_entry=cancel_soon)
    assert answer.status == "cancelled"
    assert all(s.ended_at is not None for s in answer.run.steps)


def test_an_interruption_stops_the_step_and_the_model_hears_why(app: App, shop: Path):
    control = RunControl()

    def interrupt_soon(entry: Entry) -> None:
        if entry.event.type == "step.started" and "sleep" in entry.event.code:
            threading.Timer(0.1, control.interrupt, args=["Use SQL instead."]).start()

    model = Scripted([python("import time\ntime.sleep(30)"), sql(COUNTRIES), Line(text="With SQL.")])
    answer = app.ask(str(shop), "Go.", model=model, control=control, on_entry=interrupt_soon)
    assert answer.text == "With SQL."
    spoken = model.seen[1].conversation
    assert isinstance(spoken[-1], UserMessage) and spoken[-1].text == "Use SQL instead."
    assert isinstance(spoken[-2], ToolResult) and "interrupted" in spoken[-2].text


def test_steering_reaches_the_model_before_its_next_turn(app: App, shop: Path):
    run_id = app.runs.begin(
        "ask", "Go.", str(shop), model=Scripted([Line(text="Fine.", expect=("only 2025",))], name="steered")
    )
    app.runs.steer(run_id, "only 2025")
    assert app.runs.work(run_id).answer == "Fine."


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_said_while_the_answer_is_made_is_heard(
    app: App, shop: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
):
    model = Scripted([Line(text="All years."), Line(text="Only 2025.", expect=("only 2025",))], name="late")
    run_id = app.runs.begin("ask", "Go.", str(shop), model=model)
    say = app.runs._add_reply

    def say_and_hear(run: Run, text: str) -> None:
        say(run, text)
        if text == "All years.":
            (app.runs.steer if elsewhere else app.runs.interrupt)(run_id, "only 2025")

    monkeypatch.setattr(app.runs, "_add_reply", say_and_hear)
    assert app.runs.work(run_id).answer == "Only 2025."


def test_a_run_that_has_its_answer_takes_no_guidance(app: App, shop: Path):
    control = RunControl()
    app.ask(str(shop), "Go.", model=Scripted([Line(text="Done.")]), control=control)
    with pytest.raises(Conflict, match="has its answer"):
        control.interrupt("too late")


def test_another_process_can_interrupt_a_step(app: App, shop: Path):
    model = Scripted([python("import time\ntime.sleep(600)"), Line(text="Fine.", expect=("only 2025",))], name="far")
    with App(app.settings) as other:
        run_id = app.runs.begin("ask", "Go.", str(shop), model=model)
        app.runs.start(run_id)
        for entry in app.runs.follow(run_id, timeout=240):
            if entry.event.type == "step.started" and "sleep" in entry.event.code:
                other.runs.interrupt(run_id, "only 2025")
    run = app.store.run(run_id)
    assert (run.status, run.answer) == ("succeeded", "Fine.")
    assert run.requested is None


def test_only_a_question_can_be_steered_or_interrupted(app: App, shop: Path):
    run_id = app.runs.begin("sql", "SELECT 1", str(shop))
    for verb in (app.runs.steer, app.runs.interrupt):
        with pytest.raises(Conflict, match=r"of kind sql .* has no model"):
            verb(run_id, "only 2025")


def test_another_process_can_request_a_pause(app: App, shop: Path):
    def answer_late(_: ModelRequest) -> Line:
        wait_until(lambda: app.store.run(run_id).requested)
        return Line(text="Late.")

    with App(app.settings) as other:
        run_id = app.runs.begin(
            "ask", "Go.", str(shop), model=Scripted([python("1"), answer_late], name="remote-pause")
        )
        app.runs.start(run_id)
        for entry in app.runs.follow(run_id, timeout=240):
            if entry.event.type == "step.started" and entry.event.kind == "tool":
                other.runs.pause(run_id)
        assert app.store.run(run_id).status == "paused"


def test_a_run_that_is_paused_before_its_thread_begins_stays_paused(
    app: App, shop: Path, monkeypatch: pytest.MonkeyPatch
):
    let_go = threading.Event()
    work = app.runs._work

    def work_late(*given: Any) -> Any:
        let_go.wait(60)
        return work(*given)

    monkeypatch.setattr(app.runs, "_work", work_late)
    model = Scripted([Line(text="Done.")], name="paused-early")
    run_id = app.runs.begin("ask", "Go.", str(shop), model=model)
    app.runs.start(run_id)
    app.runs.steer(run_id, "Be brief.")
    app.runs.pause(run_id)
    let_go.set()
    list(app.runs.follow(run_id, timeout=240))
    assert app.store.run(run_id).status == "paused" and not model.seen
    assert app.runs.work(run_id).status == "succeeded"


def test_a_run_in_the_background_is_followed_to_its_end(app: App, shop: Path):
    run_id = app.runs.begin(
        "ask", "Go.", str(shop), model=Scripted([sql(COUNTRIES), Line(text="Done.")], name="background")
    )
    app.runs.start(run_id)
    entries = list(app.runs.follow(run_id, timeout=240))
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    assert entries[-1].event.type == "run.finished"


@pytest.mark.parametrize(
    ("kind", "text"),
    [("sql", "SELECT 1 AS x"), ("plan", '{"from": "orders", "limit": 1}'), ("python", "x = 1\nx + 1")],
)
def test_code_runs_in_the_background_too(app: App, shop: Path, kind: str, text: str):
    run_id = start(app, kind, text, str(shop))
    entries = list(app.runs.follow(run_id, timeout=240))
    assert entries[-1].event.type == "run.finished"


def test_a_query_in_the_background_is_cancelled(app: App, shop: Path):
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000) b"
    run_id = start(app, "sql", query, str(shop))
    for entry in app.runs.follow(run_id, timeout=240):
        if entry.event.type == "step.started":
            app.runs.cancel(run_id)
    assert app.store.run(run_id).status == "cancelled"


# -- direct code


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("SQL: SELECT 1", ("sql", "SELECT 1")),
        ("  python:\nx = 1", ("python", "x = 1")),
        ("What does SQL: mean?", None),
        ("Show me SQL", None),
    ],
)
def test_a_message_that_begins_so_is_code(text: str, parsed: tuple[str, str] | None):
    assert parse_direct_run(text) == parsed


def test_code_without_code_is_refused():
    with pytest.raises(Invalid, match="nothing after"):
        parse_direct_run("SQL:  ")


def test_direct_sql_needs_no_model_and_joins_the_thread(app: App, shop: Path):
    answer = app.ask(str(shop), f"SQL: {COUNTRIES}")
    assert answer.ok and answer.result is not None and answer.result.row_count == 3
    assert answer.run.usage.model_calls == 0 and answer.code == COUNTRIES
    look = Line(text="See above.", expect=(COUNTRIES, "rows: 3"))
    follow_up = Scripted([Scene(asked="What was that?", turns=(look,))])
    assert app.ask(str(shop), "What was that?", model=follow_up, thread_id=answer.thread_id).ok


def test_direct_python_keeps_its_variables_and_fails_with_the_cells_error(app: App, shop: Path):
    first = app.ask(str(shop), "PYTHON: x = 41")
    assert app.ask(str(shop), "PYTHON: x + 1", thread_id=first.thread_id).text == "42"
    failed = app.ask(str(shop), "PYTHON: x + y", thread_id=first.thread_id)
    assert failed.status == "failed" and failed.error is not None and "NameError" in failed.error.message


# -- threads


def test_a_model_sees_the_last_messages_only(app: App, shop: Path):
    thread = app.store.create_thread("long", "shop")
    for n in range(30):
        app.store.add_message(thread.id, "user" if n % 2 == 0 else "assistant", f"message {n}")
    seen: list[ModelRequest] = []

    def look(request: ModelRequest) -> Line:
        seen.append(request)
        return Line(text="Fine.")

    model = Scripted([look], name="history")
    app.ask(str(shop), "And now?", model=model, thread_id=thread.id)
    told = [m.turn.text if isinstance(m, AssistantMessage) else m.text for m in seen[0].conversation]
    assert "message 29" in told and "message 18" in told and "message 17" not in told


def test_a_fork_goes_its_own_way_with_the_variables_of_the_first(app: App, shop: Path):
    first = app.ask(str(shop), "PYTHON: x = 7")
    app.ask(str(shop), "PYTHON: x = 8", thread_id=first.thread_id)
    fork = fork_thread(app.store, first.thread_id, at=2)
    assert app.store.messages(fork.id)[0].text == "PYTHON: x = 7"
    assert app.ask(str(shop), "PYTHON: x", thread_id=fork.id).text == "7"
    with pytest.raises(NotFound, match="no message 99"):
        fork_thread(app.store, first.thread_id, at=99)


def test_a_thread_is_exported_with_its_runs(app: App, shop: Path):
    answer = app.ask(str(shop), f"SQL: {COUNTRIES}")
    exported = json.loads("".join(write_thread(app.store, app.store.thread(answer.thread_id))))
    assert exported["runs"][answer.run_id]["status"] == "succeeded"
    assert [m["role"] for m in exported["messages"]] == ["user", "assistant"]


# -- context


def test_a_database_of_500_tables_fits_a_small_context():
    def table(name: str) -> Table:
        columns = tuple(Column(name=f"{name}_{c}", type="VARCHAR") for c in ("id", "name", "created", "note"))
        return Table(name=name, columns=columns)

    tables = (*(table(f"archive_{n}") for n in range(499)), table("loyalty_points"))
    catalog = Catalog(source="big", kind="duckdb", dialect="duckdb", tables=tables, fingerprint="x")
    text = describe_catalog_in_prompt(catalog, "How many loyalty points were given last year?", 12_000)
    assert len(text) < 16_000
    assert text.index("loyalty_points") < text.index("archive_1")


# -- whose source, whose model, whose session


def folder(place: Path, value: int) -> Path:
    """A source called `crm` with one number in it."""
    path = place / "crm"
    path.mkdir(parents=True)
    (path / "t.csv").write_text(f"v\n{value}\n")
    return path


def ask_value(app: App, source: str | None, **more: object) -> object:
    line = Line(calls=(ScriptedCall(name="execute_sql", arguments={"dataset": "crm", "query": "SELECT v FROM t"}),))
    answer = app.ask(source, "Which?", model=Scripted([line, Line(text="See the table.")], name="value"), **more)
    assert answer.result is not None, answer.error
    return answer.result.rows()[0][0]


def test_a_source_is_the_one_that_was_named_whatever_others_are_called(tmp_path: Path):
    first, second = folder(tmp_path / "a", 1), folder(tmp_path / "b", 2)
    with App(home=tmp_path / "home") as app:
        assert ask_value(app, str(second)) == 2
        app.add_source("crm", SourceSpec(url=str(first)))
        assert (ask_value(app, "crm"), ask_value(app, str(second))) == (1, 2)
        cell = "PYTHON: db.sql('SELECT v FROM t').rows()[0][0]"
        thread = app.ask("crm", cell)
        assert thread.text == "1" and app.ask(str(second), cell, thread_id=thread.thread_id).text == "2"
        later = app.runs.begin("ask", "Which?", str(second), model="offline")
    with App(home=tmp_path / "home") as app:
        assert app.store.run(later).location == str(second)


def test_a_conversation_about_a_path_goes_on_in_another_process(tmp_path: Path):
    path = folder(tmp_path, 7)
    with App(home=tmp_path / "home") as app:
        thread = app.ask(str(path), "SQL: SELECT v FROM t").thread_id
    with App(home=tmp_path / "home") as app:
        assert ask_value(app, None, thread_id=thread) == 7


def test_two_models_of_one_name_answer_their_own_runs(app: App, shop: Path):
    runs = [app.runs.begin("ask", "Who?", str(shop), model=Scripted([Line(text=text)])) for text in ("Ann.", "Bob.")]
    assert [app.runs.work(run_id).answer for run_id in runs] == ["Ann.", "Bob."]


def test_two_runs_of_one_thread_take_turns_in_its_session(app: App, shop: Path):
    thread = app.ask(str(shop), "PYTHON: xs = []").thread_id
    cells = [f"import time\nfor _ in range(3):\n    xs.append({n})\n    time.sleep(0.05)" for n in range(3)]
    runs = [start(app, "python", cell, str(shop), thread_id=thread) for cell in cells]
    for run_id in runs:
        assert list(app.runs.follow(run_id, timeout=240))[-1].event.type == "run.finished"
    assert sorted(eval(app.ask(str(shop), "PYTHON: xs", thread_id=thread).text)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


# -- what a process leaves behind


def test_what_nobody_began_or_finished_is_gone_on_with(tmp_path: Path):
    path = folder(tmp_path, 7)
    script = tmp_path / "script.json"
    asking = {"name": "ask_user", "arguments": {"question": "Sure?"}}
    script.write_text(json.dumps([{"calls": [asking]}, {"text": "Then yes."}]))
    with App(home=tmp_path / "home") as app:
        queued = app.runs.begin("ask", "Well?", str(path), model=f"scripted:{script}")
        answered = app.ask(str(path), "Well?", model=f"scripted:{script}").run_id
        app.runs.answer(answered, "yes")
    with App(home=tmp_path / "home") as app:
        assert set(app.runs.recover()) == {queued, answered}
        list(app.runs.follow(answered, timeout=240))
        list(app.runs.follow(queued, timeout=240))
        assert app.store.run(answered).answer == "Then yes."
        assert app.store.run(queued).status == "waiting"


def test_a_worker_that_lost_its_run_leaves_it_alone(app: App, shop: Path):
    with App(app.settings) as other:
        run_id = app.runs.begin("ask", "Go.", str(shop), model=Scripted([sql("SELECT 1"), Line(text="Mine.")]))

        def take_over(entry: Entry) -> None:
            if entry.event.type == "step.finished" and entry.event.shown:
                events = RunPaused(by="recovery"), RunResumed(worker=other.store.worker_id)
                other.store.append(run_id, *events, expect=entry.seq)

        with pytest.raises(Conflict):
            app.runs.work(run_id, on_entry=take_over)
        run = other.store.run(run_id)
        assert run.status == "running" and run.worker == other.store.worker_id and run.answer is None


def test_a_run_that_was_to_be_cancelled_stays_so_when_its_process_dies(app: App, shop: Path):
    run_id = app.runs.begin("ask", "Go.", str(shop))
    app.store.append(run_id, RunStarted(worker=app.store.worker_id), RunRequested(what="cancel"), expect=1)
    app.store._interrupt(run_id, app.store.worker_id)
    assert app.store.run(run_id).status == "cancelled"


def test_a_reader_that_fails_ends_the_run_on_record(app: App, shop: Path):
    def fail(_: Entry) -> None:
        raise BrokenPipeError

    run_id = app.runs.begin("ask", "Go.", str(shop), model=Scripted([Line(text="Done.")]))
    with pytest.raises(BrokenPipeError):
        app.runs.work(run_id, on_entry=fail)
    assert app.store.run(run_id).status == "failed"


def test_code_cannot_be_paused(app: App, shop: Path):
    run_id = start(app, "sql", "SELECT 1", str(shop))
    with pytest.raises(Conflict, match="cannot be paused"):
        app.runs.pause(run_id)
    list(app.runs.follow(run_id, timeout=240))


def test_an_answer_that_was_cut_off_is_asked_for_once_more(app: App, shop: Path):
    model = Scripted([Line(text="A long", stop="length"), Line(text="Short.")])
    assert app.ask(str(shop), "Tell me all.", model=model).text == "Short."


def test_a_chart_that_would_fetch_something_is_none(app: App, shop: Path):
    cell = """class Chart:
    def _repr_mimebundle_(self, include=None, exclude=None):
        spec = {"data": {"url": "http://example.com/x.csv"}, "mark": "bar"}
        return {"application/vnd.vegalite.v5+json": spec}
Chart()"""
    assert app.ask(str(shop), "Draw.", model=Scripted([python(cell), Line(text="Drawn.")])).chart is None


def test_the_model_learns_that_a_chart_of_a_cell_is_too_large(app: App, shop: Path):
    cell = "{'mark': 'point', 'encoding': {}, 'data': {'values': [{'x': 'long' * 10}] * 9000}}"
    model = Scripted([python(cell), Line(text="Drawn.")])
    assert app.ask(str(shop), "Draw it.", model=model).chart is None
    assert "cannot be shown" in str(model.seen[-1].conversation)


def test_runs_that_no_process_had_begun_are_continued(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with App(home=tmp_path) as app:
        queued = {
            "sql": app.runs.begin("sql", "SELECT 41 + 1", str(shop), limits=app.settings.limits),
            "python": app.runs.begin("python", "6 * 7", str(shop)),
            "plan": app.runs.begin("plan", '{"from": "customers", "limit": 1}', str(shop)),
            "ask": app.runs.begin("ask", "How many customers are there?", str(shop), model="offline"),
            "gone": app.runs.begin("sql", "SELECT 1", str(shop / "orders.csv")),
        }
        monkeypatch.setattr(app.live_runs, "start", lambda *_: None)  # the process ends before its thread begins
        queued["catalog"] = app.cataloger.start(str(shop), tables=["customers"])
    (shop / "orders.csv").rename(tmp_path / "orders.csv")
    try:
        with App(home=tmp_path) as app:
            assert set(app.runs.recover()) == set(queued.values())
            ended = {name: app.runs.wait(run_id, 120) for name, run_id in queued.items()}
    finally:
        (tmp_path / "orders.csv").rename(shop / "orders.csv")
    assert {name: run.status for name, run in ended.items() if name != "gone"} == {
        name: "succeeded" for name in queued if name != "gone"
    }
    assert ended["gone"].status == "failed" and "orders.csv" in ended["gone"].error["detail"]


def test_many_interrupted_runs_are_not_all_worked_on_at_once(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live_runs, "MORE_S", 600)
    at_once: list[int] = []
    with App(home=tmp_path) as app:
        runs = [app.runs.begin("sql", f"SELECT {n}", str(shop)) for n in range(20)]
        app.store.subscribe(lambda *_: at_once.append(len(app.live_runs)))
        app.runs.recover()
        assert {app.runs.wait(run_id, 120).status for run_id in runs} == {"succeeded"}
    assert max(at_once) <= 8


# -- outages


@pytest.fixture
def served(postgres_url: str) -> Iterator[tuple[Relay, str]]:
    """A table in Postgres, behind a relay that can fail."""
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE stock AS SELECT n FROM generate_series(1, 3) n")
    with relay_to_postgres(postgres_url) as relayed:
        yield relayed


COUNT_CALLS = {
    "sql": sql("SELECT count(*) AS n FROM stock"),
    "python": python("db.sql('SELECT count(*) AS n FROM stock').rows()"),
}


@pytest.mark.parametrize("call", COUNT_CALLS)
def test_a_run_that_used_a_model_outlasts_an_outage_of_its_source(tmp_path: Path, served: tuple[Relay, str], call: str):
    relay, url = served
    with App(home=tmp_path, sources={"shop": SourceSpec(url=url)}) as app:
        failed = threading.Event()

        def fail_once(entry: Entry) -> None:
            if entry.event.type == "step.started" and entry.event.kind == "tool":
                relay.down()
            if entry.event.type == "step.finished" and entry.event.error and not failed.is_set():
                failed.set()
                relay.up()

        model = Scripted([COUNT_CALLS[call], Line(text="There are 3.")], name="patient")
        app.catalog("shop")
        answer = app.ask("shop", "How many?", model=model, on_entry=fail_once)
        assert failed.is_set()
        assert answer.text == "There are 3." and not answer.unverified
        # The model knows nothing of the outage.
        assert "cannot be reached" not in last_return(model)


def test_an_outage_that_lasts_ends_the_run_and_is_not_described_by_the_model(
    tmp_path: Path, served: tuple[Relay, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("etude.runtime.loop.OUTAGE_S", 0.5)
    relay, url = served
    with App(home=tmp_path, sources={"shop": SourceSpec(url=url)}) as app:
        model = Scripted([COUNT_CALLS["sql"], Line(text="The database is down.")], name="resigned")
        app.catalog("shop")
        answer = app.ask("shop", "How many?", model=model, on_entry=lambda entry: fail_first(relay, entry))
    assert answer.status == "failed" and isinstance(answer.error, SourceUnavailable) and answer.error.retryable
    assert len(model.seen) == 1


def fail_first(relay: Relay, entry: Entry) -> None:
    if entry.event.type == "step.started" and entry.event.kind == "tool":
        relay.down()


@pytest.mark.parametrize("request_", ["cancel", "pause"])
def test_a_run_that_waits_out_an_outage_can_be_stopped(
    tmp_path: Path, served: tuple[Relay, str], monkeypatch: pytest.MonkeyPatch, request_: str
):
    monkeypatch.setattr("etude.runtime.loop.action_backoff", lambda failures: 300.0)
    relay, url = served
    control = RunControl()

    def stop(entry: Entry) -> None:
        fail_first(relay, entry)
        if entry.event.type == "step.finished" and entry.event.error:
            getattr(control, request_)()

    with App(home=tmp_path, sources={"shop": SourceSpec(url=url)}) as app:
        model = Scripted([COUNT_CALLS["sql"], Line(text="There are 3.")], name="stopped")
        app.catalog("shop")
        answer = app.ask("shop", "How many?", model=model, control=control, on_entry=stop)
        assert answer.status == {"cancel": "cancelled", "pause": "paused"}[request_]
        if request_ == "pause":
            relay.up()
            assert app.runs.work(answer.run_id).answer == "There are 3."


def test_the_time_of_a_run_limits_how_long_it_waits_out_an_outage(
    tmp_path: Path, served: tuple[Relay, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("etude.runtime.loop.action_backoff", lambda failures: 300.0)
    relay, url = served
    with App(home=tmp_path, sources={"shop": SourceSpec(url=url)}) as app:
        model = Scripted([COUNT_CALLS["sql"], Line(text="There are 3.")], name="limited")
        app.catalog("shop")
        budget = Budget(wall_s=5)
        answer = app.ask("shop", "How many?", model=model, budget=budget, on_entry=lambda e: fail_first(relay, e))
    assert answer.status == "failed" and isinstance(answer.error, LimitExceeded)


def test_an_outage_before_a_model_was_used_fails_at_once(tmp_path: Path, served: tuple[Relay, str]):
    relay, url = served
    with App(home=tmp_path, sources={"shop": SourceSpec(url=url)}) as app:
        relay.down()
        for question in ("how many stock", "SQL: SELECT 1"):
            answer = app.ask("shop", question)
            assert answer.status == "failed" and isinstance(answer.error, SourceUnavailable)
