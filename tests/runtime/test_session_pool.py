"""Sessions of threads stay open between cells, within a limit of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import wait_until

from etude.app import App
from etude.runtime.notebook import Notebook
from etude.runtime.session_pool import SessionPool
from etude.sessions import processor_time
from etude.sessions.base import Cell

MIB = 1 << 20


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(home=str(tmp_path / "home"), server={"idle_memory": 150 * MIB})


def run(app: App, thread_id: str, code: str) -> str:
    with app.lend_session(thread_id, None) as notebook:
        cell = notebook.execute(code)
        assert cell.ok, cell.error
        return cell.text or ""


def test_idle_sessions_that_hold_too_much_are_closed_and_come_back(app: App) -> None:
    with app:
        small, *large = (app.store.create_thread("").id for _ in range(4))
        run(app, small, "x = 1")
        for thread_id in large:
            run(app, thread_id, f"data = bytearray({100 * MIB})\nfor i in range(0, len(data), 4096): data[i] = 1")
        assert app.session_pool.counts() == {"busy": 0, "idle": 2}
        assert [run(app, t, "len(data)") for t in large] == [str(100 * MIB)] * 3
        assert {key[0] for key in app.session_pool._slots} >= {small}


def test_a_session_that_grows_after_its_cell_is_closed_too(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "LOOK_S", 0.1)
    later = f"""
import threading, time
def grow():
    time.sleep(1)
    global data
    data = bytearray({200 * MIB})
    for i in range(0, len(data), 4096): data[i] = 1
threading.Thread(target=grow, daemon=True).start()
"""
    with app:
        thread_id = app.store.create_thread("").id
        run(app, thread_id, later)
        assert app.session_pool.counts()["idle"] == 1
        wait_until(lambda: app.session_pool.counts()["idle"] == 0)


def test_a_forgotten_thread_keeps_no_session(app: App) -> None:
    with app:
        idle, busy = (app.store.create_thread("").id for _ in range(2))
        run(app, idle, "x = 1")
        pool: SessionPool = app.session_pool
        with app.lend_session(busy, None) as notebook:
            pool.forget(busy)
            pool.forget(idle)
            assert pool.counts() == {"busy": 0, "idle": 0}
            assert notebook.execute("1").ok  # what runs is not stopped
        assert not notebook.alive


def host_bytes(notebook: Notebook) -> int:
    """Return the memory of the host that counts as the session's."""
    return notebook.memory_bytes() - notebook._session.memory_bytes()


def test_displays_that_the_host_keeps_count_as_memory_of_the_session(app: App) -> None:
    with app, app.open_session(thread_id=app.store.create_thread("").id) as notebook:
        before = host_bytes(notebook)
        assert notebook.execute("import pandas\npandas.DataFrame({'x': range(3_000_000)})").ok
        assert host_bytes(notebook) - before >= 3_000_000 * 8


def test_the_session_of_a_thread_keeps_no_contents_of_its_cells(app: App) -> None:
    code = "import pandas\nprint('o' * 100_000)\npandas.DataFrame({'x': range(3_000_000)})"
    with app, app.lend_session(app.store.create_thread("").id, None) as notebook:
        cell = notebook.execute(code)
        assert cell.ok and cell.display and len(cell.stdout) > 100_000
        failed = notebook.execute("raise ValueError('e' * 1000)")
        assert failed.error is not None
        assert host_bytes(notebook) < 10_000
        assert [(c.id, c.outcome) for c in notebook.history] == [(1, "ok"), (2, "error")]
        assert all(c == Cell(c.id, "", c.outcome, elapsed_ms=c.elapsed_ms) for c in notebook.history)
        assert not notebook._session.history


def test_code_and_queries_that_the_host_keeps_count_as_memory_of_the_session(app: App, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    with app:
        source = app.source(str(tmp_path / "t.csv"))
        with app.lend_session(app.store.create_thread("").id, source) as notebook:
            before = host_bytes(notebook)
            assert notebook.execute("x = 1  #" + "c" * 100_000).ok
            assert host_bytes(notebook) - before >= 100_000
            cell = notebook.execute(
                "import etude\nfor n in range(3): etude.connect().sql('SELECT 1 --' + 'q' * 100_000)"
            )
            assert cell.ok, cell.error
            assert host_bytes(notebook) - before >= 400_000
