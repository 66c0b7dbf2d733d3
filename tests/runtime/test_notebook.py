from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.patience import once, wait_until

from etude.app import App
from etude.entities import Limits, RunFilter, SessionLimits
from etude.events import RunFinished, RunQueued, RunStarted, StepFinished, StepStarted
from etude.ids import new_id
from etude.runtime.notebook import HISTORY, Notebook, notebook_cell_as_problem
from etude.runtime.run_log import RunLog, RunStorage
from etude.runtime.standalone_script import PREAMBLE, write_standalone_script
from etude.sessions.base import Cell, Output

CONNECT = "import etude\ndb = etude.connect()"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE orders AS SELECT i AS id, i % 3 AS grp, i * 1.5 AS total FROM range(100) t(i)")
    return path


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with App(home=tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that a slow machine keeps from answering at once is not killed for it."""
    monkeypatch.setattr("etude.sessions.session.LOOK_S", 10.0)
    monkeypatch.setattr("etude.sessions.session.GRACE_S", 60.0)
    monkeypatch.setattr("etude.runtime.notebook.COMPLETE_S", 60.0)


@pytest.fixture
def notebook(app: App, shop: Path) -> Iterator[Notebook]:
    with app.open_session(str(shop)) as opened:
        opened.execute(CONNECT)
        yield opened


def test_names_stay_between_cells(notebook: Notebook) -> None:
    assert notebook.execute("x = 20\nx + 1").value == 21
    assert notebook.execute("x * 2").value == 40


def test_data_comes_from_the_source_through_the_host(notebook: Notebook) -> None:
    cell = notebook.execute("r = db.sql('SELECT grp, count(*) AS n FROM orders GROUP BY ALL ORDER BY ALL')\nr.rows()")
    assert cell.text == "[(0, 34), (1, 33), (2, 33)]"
    assert notebook.execute("db.tables()").value == ["orders"]
    table = notebook.execute("r.arrow()").value
    assert table.to_pylist()[0] == {"grp": 0, "n": 34}


def test_a_large_result_comes_in_parts_that_cost_the_session_no_open_files(shop: Path, tmp_path: Path) -> None:
    ask = "t = db.sql('SELECT i, -i AS j FROM range(4000000) r(i)').arrow()"
    count = "len(os.listdir('/proc/self/fd'))"
    with App(home=tmp_path, limits={"rows": 0, "bytes": 0}) as app:
        thread = app.store.create_thread("large")
        with app.open_session(str(shop), thread_id=thread.id) as notebook:
            cell = notebook.execute(
                f"{CONNECT}\nimport os\nbefore = {count}\n{ask}\n[t['i'].num_chunks, {count} - before]"
            )
            assert cell.ok, cell
            assert cell.value[0] > 10 and cell.value[1] == 0
            mapped = "open('/proc/self/maps').read().count('memfd:etude-result')"
            assert notebook.execute("import pyarrow.compute as pc\npc.sum(t['j']).as_py()").value == -7999998000000
            assert notebook.execute(mapped).value > 3
            assert notebook.execute(f"del t\n{mapped}").value == 0
        with app.open_session(str(shop), thread_id=thread.id) as notebook:
            assert notebook.history[1].value == -7999998000000, "what was kept of it is whole"


def test_a_cell_of_many_queries_keeps_few_files_open_on_the_host(
    app: App, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.runtime.broker.OPEN", 3)
    gc.collect()
    before = _count_shared()  # results of earlier tests
    open_files: list[int] = []
    code = "for i in range(12):\n    print(db.sql(f'SELECT {i} AS n').rows()[0][0])"
    cell = notebook.execute(code, on_output=lambda _: open_files.append(_count_shared() - before))
    assert cell.stdout.split() == [str(i) for i in range(12)]
    assert 3 <= max(open_files) <= 4
    run = app.store.run(app.store.runs(RunFilter(kind="python"), limit=1).items[0].id)
    assert [s.outcome for s in run.steps] == 13 * ["ok"]
    assert all(s.artifact is not None for s in run.steps)


def _count_shared() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # another thread closed it meanwhile
            found += "memfd:etude-result" in os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.mark.parametrize(("result", "index"), [(99, 0), (1, 1), (1, -1), ("1", 0), (None, None)])
def test_a_part_that_does_not_exist_is_refused(notebook: Notebook, result: object, index: object) -> None:
    code = "db.sql('SELECT 1')\nfrom etude.sessions import kernel\n"
    cell = notebook.execute(f"{code}kernel.SESSION.call('part', result={result!r}, index={index!r})")
    assert cell.error is not None and "no such part" in cell.error["message"]


def test_the_guard_stands_between_a_session_and_its_source(notebook: Notebook) -> None:
    cell = notebook.execute("db.sql('DROP TABLE orders')")
    assert cell.outcome == "error"
    assert cell.error is not None
    assert cell.error["type"] == "Refused"
    assert "read-only" in cell.error["message"]


def test_a_query_that_is_too_long_is_not_recorded(app: App, notebook: Notebook) -> None:
    before = app.store.storage_use().records
    cell = notebook.execute("db.sql('SELECT ' + '1' * (1 << 20))")
    assert cell.error is not None and "a cell may send 200,000" in cell.error["message"]
    assert app.store.storage_use().records - before < 100_000


def test_a_cell_that_does_not_end_cannot_fill_the_store(app: App, notebook: Notebook) -> None:
    app.store.limit_storage(lambda tenant: app.store.storage_use().files + 3_000_000)
    try:
        cell = notebook.execute(
            "for n in range(100):\n    db.sql('SELECT 1 /* ' + 'x' * 150_000 + f' {n} */')", wall_s=120
        )
    finally:
        app.store.limit_storage(lambda tenant: 0)
    assert cell.error is not None and "are allowed" in cell.error["message"]
    assert app.store.storage_use().records < 6_000_000


def test_errors_of_the_host_can_be_caught_by_their_class(notebook: Notebook) -> None:
    cell = notebook.execute(
        "try:\n    db.sql('SELECT * FROM nope')\nexcept etude.errors.UnknownTable as e:\n    hint = e.hint\nhint"
    )
    assert "orders" in str(cell.value)


def test_a_call_can_lower_the_limits_but_not_raise_them(app: App, shop: Path) -> None:
    with app.open_session(str(shop)) as notebook:
        notebook.execute(CONNECT)
        assert notebook.execute("r = db.sql('FROM orders', limit=5)\nr.row_count, r.truncated").text == "(5, True)"
        assert notebook.execute("db.sql('FROM range(2000000)', rows=0).row_count").value == 2_000_000
    with app.open_session(str(shop), query_limits=Limits(rows=10)) as notebook:
        notebook.execute(CONNECT)
        cell = notebook.execute("db.sql('FROM orders', rows=0)")
        assert cell.error and "more than 10 rows" in cell.error["message"]


def test_ibis_expressions_run_on_the_host(notebook: Notebook) -> None:
    cell = notebook.execute("t = db.table('orders')\ndb.execute(t.filter(t.grp == 1).count()).rows()")
    assert cell.text == "[(33,)]"


def test_each_cell_is_a_run_and_each_query_a_step_of_it(app: App, notebook: Notebook) -> None:
    notebook.execute("n = db.sql('SELECT count(*) AS n FROM orders').rows()[0][0]\nprint(n)")
    run = app.store.run(app.store.runs(RunFilter(kind="python"), limit=1).items[0].id)
    python, query = run.steps
    assert (python.kind, python.outcome, query.kind, query.parent) == ("python", "ok", "sql", python.id)
    assert query.result is not None and query.result.row_count == 1
    assert query.artifact is not None and app.objects.exists(query.artifact.hash)
    assert query.reads[0].table == "orders"


def test_a_failed_cell_is_a_failed_run(app: App, notebook: Notebook) -> None:
    notebook.execute("1 / 0")
    run = app.store.run(app.store.runs(RunFilter(kind="python"), limit=1).items[0].id)
    assert run.status == "failed"
    assert run.error is not None and "ZeroDivisionError" in run.error["detail"]


def _ask(app: App, thread_id: str | None = None) -> tuple[RunLog, str]:
    """An open run of a question, with the step of a tool call."""
    log, step = RunLog(RunStorage(app.store, app.objects)), new_id("step")
    log.add(
        RunQueued(kind="ask", text="How many?", thread_id=thread_id),
        RunStarted(worker=app.store.worker_id),
        StepStarted(step_id=step, kind="tool", code="python"),
    )
    return log, step


def _close(log: RunLog, step: str) -> None:
    log.add(StepFinished(step_id=step, outcome="ok"), RunFinished(answer="100"))
    log.commit()


def test_a_cell_can_be_a_step_of_an_open_run(app: App, notebook: Notebook) -> None:
    before = app.store.runs(RunFilter(kind="python"), limit=1).items[0].id
    log, step = _ask(app)
    cell = notebook.execute("db.sql('SELECT count(*) FROM orders').rows()[0][0]", log=log, parent=step)
    assert cell.value == 100
    assert notebook.execute("1 / 0", log=log, parent=step).outcome == "error"
    assert notebook.execute("import subprocess", log=log, parent=step).outcome == "refused"
    assert app.store.run(log.run_id).status == "running"
    _close(log, step)
    run = app.store.run(log.run_id)
    tool, first, query, second, third = run.steps
    assert [s.kind for s in run.steps] == ["tool", "python", "sql", "python", "python"]
    assert [first.parent, query.parent, second.parent, third.parent] == [tool.id, first.id, tool.id, tool.id]
    assert [first.outcome, query.outcome, second.outcome, third.outcome] == ["ok", "ok", "error", "refused"]
    assert query.artifact is not None and first.artifact is not None
    assert (run.status, run.answer) == ("succeeded", "100")
    assert app.store.runs(RunFilter(kind="python"), limit=1).items[0].id == before


def test_a_cell_that_the_host_breaks_off_ends_its_step_and_leaves_the_run_to_its_owner(
    app: App, notebook: Notebook
) -> None:
    log, step = _ask(app)

    def stop(_: Output) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        notebook.execute("print(1)", log=log, parent=step, on_output=stop)
    _close(log, step)
    run = app.store.run(log.run_id)
    assert (run.status, run.steps[1].outcome) == ("succeeded", "cancelled")


def test_a_thread_brings_back_cells_of_questions_too_in_their_order(app: App, shop: Path) -> None:
    thread = app.store.create_thread("study")
    with app.open_session(str(shop), thread_id=thread.id) as notebook:
        notebook.execute(CONNECT + "\nseen = ['own']")
        log, step = _ask(app, thread.id)
        notebook.execute("seen.append(db.sql('SELECT 7').rows()[0][0])", log=log, parent=step)
        notebook.execute("seen.append('between')")
        notebook.execute("seen.append(db.sql('SELECT 8').rows()[0][0])", log=log, parent=step)
        _close(log, step)
        expected = notebook.execute("seen").value
    app.pool.forget(lambda key: True)
    with app.open_session(str(shop), thread_id=thread.id) as notebook:
        assert notebook.execute("seen").value == expected == ["own", 7, "between", 8]


def test_policy_refuses_early_and_names_the_line(notebook: Notebook) -> None:
    cell = notebook.execute("x = 1\nimport subprocess")
    assert cell.outcome == "refused"
    assert cell.error is not None and cell.error["line"] == 2


def test_interrupt_reaches_the_query_in_the_source(app: App, notebook: Notebook) -> None:
    notebook.execute("kept = 7")

    def stop() -> None:
        wait_until(lambda: notebook._data._stream)
        notebook.interrupt()

    stopping = threading.Thread(target=stop)
    stopping.start()
    cell = notebook.execute("db.sql('SELECT count(*) FROM range(100000000000) a, range(1000) b')")
    stopping.join()
    assert cell.outcome == "interrupted"
    run = app.store.run(app.store.runs(RunFilter(kind="python"), limit=1).items[0].id)
    assert [(s.kind, s.outcome) for s in run.steps] == [("python", "cancelled"), ("sql", "cancelled")]
    assert notebook.execute("kept, db.sql('SELECT 1').rows()").text == "(7, [(1,)])"


def test_interrupt_stops_python(notebook: Notebook) -> None:
    cell = notebook.execute("kept = 7\nprint(kept)\nwhile True: pass", on_output=once(notebook.interrupt))
    assert cell.outcome == "interrupted"
    assert notebook.execute("kept").value == 7


def test_an_interrupt_that_a_library_makes_an_error_of_is_one(notebook: Notebook) -> None:
    waits = "try:\n    print(1)\n    time.sleep(600)\nexcept KeyboardInterrupt:\n"
    code = f"import time\n{waits}    raise RuntimeError('Query interrupted')"
    cell = notebook.execute(code, on_output=once(notebook.interrupt))
    assert (cell.outcome, cell.error and cell.error["message"]) == ("interrupted", "Query interrupted")


def test_an_error_of_the_host_tells_what_to_do(notebook: Notebook) -> None:
    error = notebook.execute("db.sql('FROM nothing')").error
    assert error is not None and error["traceback"].endswith("\nhint: Tables: `orders`.\n")


def test_variables_come_back_after_a_kill(app: App, shop: Path) -> None:
    with app.open_session(str(shop)) as notebook:
        notebook.execute(CONNECT)
        notebook.execute("import random\nseeded = random.random()\ndf = db.sql('FROM orders').df()")
        before = notebook.execute("seeded, len(df)").text
        assert notebook.execute("import os\nos._exit(9)").outcome == "killed"
        assert notebook.execute("df").error is not None
        notebook.revive()
        assert notebook.execute("seeded, len(df)").text == before


def test_a_session_that_ended_between_cells_is_brought_back_for_its_thread(app: App, shop: Path) -> None:
    for thread_id in (app.store.create_thread("study").id, None):
        with app.open_session(str(shop), thread_id=thread_id) as notebook:
            notebook.execute("x = 42")
            os.kill(notebook._session._opened().pid, signal.SIGKILL)
            wait_until(lambda session=notebook: not session.alive)  # type: ignore[misc]
            assert notebook.complete("x") == []
            cell = notebook.execute("x")
            if thread_id is not None:
                assert cell.value == 42
            else:
                assert (cell.outcome, cell.error and cell.error["message"]) == (
                    "killed",
                    "The session had ended before the cell began.",
                )


def test_a_session_that_ended_before_its_first_cell_is_replaced(app: App, shop: Path) -> None:
    with app.open_session(str(shop)) as notebook:
        os.kill(notebook._session._opened().pid, signal.SIGKILL)
        wait_until(lambda: not notebook.alive)
        assert notebook.execute("1 + 1").value == 2


def test_reviving_does_not_ask_the_source_again(app: App, tmp_path: Path) -> None:
    path = tmp_path / "changing.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    with app.open_session(str(path)) as notebook:
        notebook.execute(CONNECT)
        notebook.execute("a = db.sql('SELECT a FROM t').rows()[0][0]")
        app.pool.forget(lambda key: True)
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE t SET a = 2")
        notebook.revive()
        assert notebook.execute("a").value == 1


def test_a_thread_brings_its_variables_over_a_restart(shop: Path, tmp_path: Path) -> None:
    with App(home=tmp_path) as first:
        thread = first.store.create_thread("study")
        with first.open_session(str(shop), thread_id=thread.id) as notebook:
            notebook.execute(CONNECT)
            notebook.execute("total = sum(r[0] for r in db.sql('SELECT id FROM orders').rows())")
            notebook.execute("broken = 1 / 0")
    with App(home=tmp_path) as second, second.open_session(str(shop), thread_id=thread.id) as notebook:
        assert notebook.execute("total").value == 4950


def test_a_timeout_is_said_and_the_names_stay(app: App, shop: Path) -> None:
    with app.open_session(str(shop), limits=SessionLimits(wall_s=0.5)) as notebook:
        notebook.execute("x = 1", wall_s=60)
        cell = notebook.execute("import time\nwhile True: time.sleep(1)")
        assert (cell.outcome, cell.error and cell.error["type"], cell.error and cell.error["line"]) == (
            "timeout",
            "Timeout",
            2,
        )
        assert "time limit of 0.5 s" in notebook_cell_as_problem(cell)["detail"]
        fails = notebook.execute("try: time.sleep(600)\nexcept BaseException: raise ValueError('mine')")
        assert (fails.outcome, fails.error and fails.error["type"]) == ("timeout", "ValueError")
        assert "time limit of 0.5 s" in str(fails.notes)
        assert notebook.execute("x", wall_s=60).value == 1


def test_a_script_runs_alone(app: App, shop: Path, tmp_path: Path) -> None:
    with app.open_session(str(shop)) as notebook:
        notebook.execute("import asyncio")
        notebook.execute("n = db.sql('SELECT count(*) FROM orders').rows()[0][0]")
        notebook.execute(CONNECT)
        notebook.execute("n = db.sql('SELECT count(*) FROM orders').rows()[0][0]")
        notebook.execute("await asyncio.sleep(0)\nm = n + 1")
        notebook.execute("print('rows', n, m)")
        script = notebook.script(failed="comment")
    assert "# cell 2 did not run to its end (error)" in script
    (tmp_path / "script.py").write_text(script)
    environment = os.environ | {"ETUDE_SOURCE": str(shop), "ETUDE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "rows 100 101"


def test_history_tells_outcomes_and_times(notebook: Notebook) -> None:
    notebook.execute("1")
    notebook.execute("1/0")
    assert [c.outcome for c in notebook.history] == ["ok", "ok", "error"]
    assert all(c.elapsed_ms > 0 for c in notebook.history)
    notebook.reset()
    assert notebook.history == []


def test_history_keeps_how_old_cells_went_but_not_what_they_held(app: App) -> None:
    with app.open_session(record=False) as notebook:
        for number in range(HISTORY + 1):
            notebook.execute(f"print({number})\n{number}")
        oldest, kept = notebook.history[0], notebook.history[1]
        assert (oldest.code, oldest.outcome, oldest.text, oldest.value, oldest.stdout) == (
            "print(0)\n0",
            "ok",
            "0",
            None,
            "",
        )
        assert (kept.value, kept.stdout) == (1, "1\n")
        assert "print(0)" in notebook.script()


def test_completion_knows_the_names(notebook: Notebook) -> None:
    notebook.execute("revenue_total = 1")
    assert notebook.complete("revenue_") == ["revenue_total"]
    assert "db.sql(" in notebook.complete("db.s")
    assert len(notebook.history) == 2


def test_completion_leaves_the_names_alone(notebook: Notebook) -> None:
    notebook.execute("_r, _c = 1, 2\n41 + 1")
    assert notebook.complete("nothing_begins_so") == []
    assert notebook.complete("_") != []
    assert notebook.execute("_").value == 42
    assert notebook.execute("[_r, _c]").value == [1, 2]


def test_completion_that_does_not_end_leaves_the_session_alone(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "while True:\n            try: time.sleep(9)\n            except BaseException: pass"
    notebook.execute(f"import time\nclass C:\n    @property\n    def deaf(self):\n        {deaf}\nc, kept = C(), []")
    notebook.execute("class Counts:\n    def __getattr__(self, name): kept.append(name)\ncounts = Counts()")
    assert notebook.complete("counts.inner.n") == []
    monkeypatch.setattr("etude.runtime.notebook.COMPLETE_S", 0.5)
    assert notebook.complete("c.deaf.n") == []
    assert notebook.execute("kept").value == []


def test_the_time_of_a_cell_ends_a_query_too(app: App, notebook: Notebook) -> None:
    notebook.execute("db.sql('SELECT 1')")  # so that the engine runs
    slow = "db.sql('SELECT count(*) FROM range(100000000000) a, range(1000) b').rows()"
    cell = notebook.execute(f"x = 1\n{slow}", wall_s=3)
    assert cell.outcome == "timeout"
    run = app.store.run(app.store.runs(RunFilter(), limit=1).items[0].id)
    error = next(s.error for s in run.steps if s.kind == "sql")
    assert error is not None and "ran out of time" in error["detail"]
    assert notebook.execute("x").value == 1


def test_what_a_source_refused_is_refused_again_when_variables_come_back(app: App, shop: Path) -> None:
    code = f"""{CONNECT}
try: db.sql("SELECT nonsense FROM orders")
except etude.errors.InvalidQuery as error: refused = type(error).__name__
n = db.sql("SELECT count(*) FROM orders").rows()[0][0]"""
    with app.open_session(str(shop), thread_id=new_id("thread")) as notebook:
        assert notebook.execute(code).ok
        notebook.revive()
        assert notebook.history[0].ok, notebook.history[0].error
        thread_id = notebook.thread_id
    with app.open_session(str(shop), thread_id=thread_id) as notebook:
        assert notebook.execute("[refused, n]").value == ["InvalidQuery", 100]


def test_what_could_not_be_brought_back_is_told_with_the_next_cell(notebook: Notebook) -> None:
    notebook.execute("import os\nfirst = 1")
    notebook.execute("1 / 0")  # as it failed before, it is nothing to tell
    notebook.execute("try: ran = etude.load('ran')\nexcept etude.errors.NotFound: ran = b''\netude.save('ran', 'yes')")
    notebook.execute("assert not ran\nsecond = 2")
    notebook.revive()
    cell = notebook.execute("first, 'second' in dir()")
    assert cell.text == "(1, False)"
    assert cell.notes == (
        "The session was brought back, but cell 5 failed this time (AssertionError): what it set is missing.",
    )
    assert notebook.execute("first").notes == ()


def test_an_end_of_the_interpreter_on_the_way_back_is_told_too(notebook: Notebook) -> None:
    notebook.execute("import os\nx = 1\ntry: ran = etude.load('ran')\nexcept etude.errors.NotFound: ran = b''")
    notebook.execute("etude.save('ran', 'yes')\nif ran: os._exit(9)")
    notebook.revive()
    (note,) = notebook.execute("x").notes
    assert "cell 3 failed this time" in note and "what it and those before it set is missing" in note


def test_queries_in_another_order_find_their_results_when_variables_come_back(app: App, shop: Path) -> None:
    # As threads do, which ask as they come.
    order = "[1, 2] if 'first' in os.environ else [2, 1]"
    with app.open_session(str(shop)) as notebook:
        code = f"{CONNECT}\nimport os\nfound = [db.sql(f'SELECT {{n}}').rows()[0][0] for n in ({order})]"
        notebook.execute(code)
        notebook._cells[0].code = f"import os\nos.environ['first'] = ''\n{code}"
        notebook.revive()
        assert notebook.execute("found").value == [1, 2]


def test_what_breaks_off_the_return_of_variables_does_not_leave_half_of_them(
    app: App, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.open_session(str(shop), thread_id=new_id("thread")) as notebook:
        notebook.execute("x = 1")
        notebook.execute(f"{CONNECT}\ny = db.sql('SELECT 2').rows()[0][0]")
        real, calls = notebook._session.execute, []

        def break_off(*given: Any, **options: Any) -> Any:
            calls.append(given)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*given, **options)

        monkeypatch.setattr(notebook._session, "execute", break_off)
        with pytest.raises(KeyboardInterrupt):
            notebook.revive()
        assert notebook.execute("[x, y, db.sql('SELECT 3').rows()[0][0]]").value == [1, 2, 3]


def test_files_that_come_back_with_the_variables_are_not_counted_again(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.runtime.broker.SAVES", 2)
    notebook.execute("etude.save('a.txt', 'one')\netude.save('b.txt', 'two')")
    notebook.revive()
    assert [cell.outcome for cell in notebook.history] == ["ok", "ok"]
    assert notebook.execute("etude.save('c.txt', 'three')").outcome == "error"


def test_files_that_were_saved_before_a_restart_are_counted(
    app: App, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.runtime.broker.SAVES", 2)
    thread = new_id("thread")
    with app.open_session(str(shop), thread_id=thread) as first:
        assert first.execute("import etude\netude.save('a.txt', 'one')\netude.save('b.txt', 'two')").ok
    with app.open_session(str(shop), thread_id=thread) as second:
        assert second.files == {"a.txt": b"one", "b.txt": b"two"}
        assert "2 saves" in str(second.execute("etude.save('c.txt', 'three')").error)


def test_versions_of_a_file_count_because_each_is_kept(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.runtime.broker.KEPT_BYTES", 10_000)
    cell = notebook.execute("for n in range(100): etude.save('a.txt', bytes([n]) * 3000)")
    assert "10,000 bytes of files, replaced ones included" in str(cell.error) and "`a.txt` was not saved" in str(
        cell.error
    )
    assert notebook.files["a.txt"] == b"\2" * 3000
    assert notebook.execute("etude.save('a.txt', b'x')").ok


def test_the_same_content_counts_once(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.runtime.broker.KEPT_BYTES", 10_000)
    assert notebook.execute("for n in range(100): etude.save('a.txt', bytes(3000))").ok


def test_the_rest_of_a_file_is_not_taken_for_the_file(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.runtime.broker.FILE_BYTES", 5000)
    ask = "from etude.sessions import kernel\nimport base64\ndef piece(size, **how):\n"
    ask += "    kernel.SESSION.call('save', name='a.bin', data=base64.b64encode(bytes(size)).decode(), **how)\n"
    assert notebook.execute(f"{ask}piece(4000, more=True)").ok
    # A cell that ends without the last piece leaves nothing.
    assert "beginning of `a.bin` is missing" in str(notebook.execute("piece(10, goes_on=True)").error)
    both = "piece(4000, more=True)\npiece(4000, goes_on=True, more=True)"
    assert "5,000 bytes of files" in str(notebook.execute(both).error)
    assert "beginning of `a.bin` is missing" in str(notebook.execute("piece(10, goes_on=True)").error)
    assert "a.bin" not in notebook.files


def test_a_reset_waits_for_its_turn(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    real, ended = notebook._session.execute, threading.Event()

    def linger(*given: Any, **options: Any) -> Any:
        cell = real(*given, **options)
        ended.set()
        time.sleep(0.2)  # the interpreter is free, the cell is not on record yet
        return cell

    monkeypatch.setattr(notebook._session, "execute", linger)
    running = threading.Thread(target=notebook.execute, args=("x = 1",))
    running.start()
    assert ended.wait(60)
    notebook.reset()
    running.join()
    assert notebook.history == []
    notebook.revive()
    assert not notebook.execute("x").ok


def test_a_cell_of_large_results_keeps_few_of_them_in_memory(
    app: App, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.runtime.broker.HELD", 1 << 20)
    held: list[int] = []
    code = "for n in range(6):\n    t = db.sql(f'SELECT i, {n} AS n FROM range(100000) r(i)').arrow()\n    print(n)"
    cell = notebook.execute(code, on_output=lambda _: held.append(notebook._data._held))
    assert cell.ok and max(held) < 6 << 20, held
    assert notebook._data._held == 0
    run = app.store.run(app.store.runs(RunFilter(), limit=1).items[0].id)
    assert [s.artifact is not None for s in run.steps if s.kind == "sql"] == [True] * 6


@pytest.mark.parametrize("problem", ["{}", "{'code': ['x'], 'detail': 1}", "{'detail': 'no code'}"])
def test_an_error_that_only_looks_like_the_hosts_is_the_cells_own(app: App, notebook: Notebook, problem: str) -> None:
    cell = notebook.execute(f"class Odd(Exception): problem = {problem}\nraise Odd('mine')")
    assert (cell.outcome, cell.error and cell.error["message"]) == ("error", "mine")
    run = app.store.run(app.store.runs(RunFilter(), limit=1).items[0].id)
    assert run.error is not None and run.error["detail"] == "Odd: mine"


def test_what_a_cell_that_waits_binds_is_there_in_the_script_and_its_texts_are_whole(app: App, shop: Path) -> None:
    cells = [
        "import asyncio, json as js\nfrom math import pi\ndef f(n):\n    inner = n\n    return inner\n"
        'text = """a\n  b\n"""\nawait asyncio.sleep(0)\nclass C: pass\nfor i in range(2): await asyncio.sleep(0)',
        "print([js.dumps(text), round(pi), f(i), C.__name__])",
    ]
    with app.open_session(str(shop)) as notebook:
        assert all(notebook.execute(code).ok for code in cells)
        printed, script = notebook.history[-1].stdout, notebook.script()
    body = script.removeprefix(PREAMBLE)
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == printed, done.stderr


def test_registered_tables_are_bounded_and_go_with_the_session(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.runtime.broker.TABLE_BYTES", 4_000)
    with App(home=tmp_path) as app, app.open_session(str(shop)) as notebook:
        cell = notebook.execute(
            f"{CONNECT}\nfor n in range(5): db.register('t', [{{'n': n}}])\ndb.sql('FROM t').rows()"
        )
        assert cell.text == "[(4,)]" and len(list(tmp_path.rglob("etude-frames-*/*.parquet"))) <= 2
        refused = notebook.execute("for n in range(30): db.register(f't{n}', [{'n': n}])")
        assert "is too much" in (refused.error or {})["message"]
        notebook.close()
        assert not list(tmp_path.rglob("etude-frames-*/*.parquet"))


def test_what_cells_import_from_the_future_stands_first_in_the_script() -> None:
    cells = [
        Cell(1, "x: Unknown = 1", "error"),
        Cell(2, "'é'; from __future__ import (annotations,\n    division); y: Unknown = 1", "ok"),
        Cell(3, "from __future__ import annotations\nimport asyncio\nawait asyncio.sleep(0)\nz = y + 1", "ok"),
        Cell(4, "print(y, z)", "ok"),
    ]
    script = write_standalone_script(cells, "omit")
    first, body = script.split(PREAMBLE)
    assert first == "from __future__ import annotations, division\n\n"
    done = subprocess.run(
        [sys.executable, "-c", first + body], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "1 2\n", done.stderr


def test_nothing_is_left_when_the_host_is_killed(shop: Path, tmp_path: Path) -> None:
    code = f"""
import etude, time
s = etude.open_session({str(shop)!r})
s.execute("import os; os.fork()")
print("ready", flush=True)
time.sleep(600)
"""
    environment = os.environ | {"ETUDE_HOME": str(tmp_path)}
    host = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    assert host.stdout is not None and host.stdout.readline() == b"ready\n"
    children = _descendants(host.pid)
    assert len(children) >= 3
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    wait_until(lambda: not any(_runs(p) for p in children))


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
