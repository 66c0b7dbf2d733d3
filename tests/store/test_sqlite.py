from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from etude.entities import Run
from etude.errors import Conflict, Unavailable
from etude.events import (
    Entry,
    Event,
    Note,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunQueued,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    apply_event_entry,
    summarise_run,
)
from etude.ids import new_id
from etude.store.sqlite import SqliteStore


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "etude.db"
    with SqliteStore(path) as store:
        store.create_thread("x")
        assert store.worker_id
        files = [path, *path.parent.glob("etude.db-*"), path.parent / "etude.db.w" / store.worker_id]
        assert len(files) == 4
        assert {mode(f) for f in files} == {0o600}
        assert {mode(f) for f in (tmp_path / "a", tmp_path / "a" / "b", path.parent / "etude.db.w")} == {0o700}


def test_the_log_is_as_durable_as_sqlite_can(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "x.db") as store:
        assert store._read("PRAGMA journal_mode") == [("wal",)]
        assert store._read("PRAGMA synchronous") == [(2,)]
        assert store._read("PRAGMA busy_timeout") == [(30_000,)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database" * 100)
    with pytest.raises(Unavailable, match=r"notes\.txt.*not a database"):
        SqliteStore(path)
    assert path.read_text() == "not a database" * 100


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be used"):
        SqliteStore(tmp_path / "file" / "x.db")
    with pytest.raises(Unavailable, match="cannot be used"):
        SqliteStore(tmp_path)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    with SqliteStore(tmp_path / "x.db") as store:
        assert store.runs().items == []


def test_a_database_locked_for_too_long_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.store.sqlite.BUSY_S", 0.1)
    with SqliteStore(tmp_path / "x.db") as store:
        other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            store.create_thread("x")
        other.close()
        store.create_thread("x")


def test_lock_files_come_and_go_with_workers(tmp_path: Path) -> None:
    folder = tmp_path / "x.db.w"
    with SqliteStore(tmp_path / "x.db") as store:
        assert not folder.exists()
        worker = store.worker_id
        assert [f.name for f in folder.iterdir()] == [worker]
        (folder / "worker_dead").touch()
        assert store.recover() == []
        assert [f.name for f in folder.iterdir()] == [worker]
    assert list(folder.iterdir()) == []


def test_a_worker_whose_new_file_is_swept_makes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock
    swept: list[Path] = []

    def sweep_first(fd: int, operation: int) -> None:
        if not swept:
            swept.extend((tmp_path / "x.db.w").iterdir())
            swept[0].unlink()
        real(fd, operation)

    with SqliteStore(tmp_path / "x.db") as store, SqliteStore(tmp_path / "x.db") as other:
        monkeypatch.setattr("etude.store.sqlite.fcntl.flock", sweep_first)
        worker = store.worker_id
        assert swept
        assert other._dead({worker}) == set()


def test_opening_and_appending_are_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: opening writes nothing, and an append is one commit, whose look goes by an index."""
    SqliteStore(tmp_path / "x.db").close()
    said: list[str] = []

    class Heard(sqlite3.Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.set_trace_callback(said.append)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Heard))
    with SqliteStore(tmp_path / "x.db") as store:
        assert [words.split()[0] for words in said] == ["PRAGMA"] * 4 + ["SELECT"] * 2
        worker = store.worker_id
        store.append(new_id("run"), RunQueued(kind="sql", text="the first opens the connection that writes"), expect=0)
        said.clear()
        events = (RunQueued(kind="sql", text="x"), RunStarted(worker=worker), RunFinished())
        store.append(new_id("run"), *events, expect=0)
        # The trigger that indexes words shows as comments, and the statement that fires it again.
        appended = list(dict.fromkeys(words for words in said if not words.startswith("--")))
        assert [words.split()[0] for words in appended] == ["BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"]
        ((*_, plan),) = store._read(f"EXPLAIN QUERY PLAN {appended[1]}")
        assert str(plan).startswith("SEARCH runs USING")


def test_an_append_to_a_long_run_does_not_read_it_again(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "x.db") as store:
        run_id = new_id("run")
        store.append(run_id, RunQueued(kind="sql", text=""), *[Note(text="x")] * 5000, expect=0)
        reads: list[str] = []
        assert store._db
        store._db.set_trace_callback(reads.append)
        store.append(run_id, Note(text="y"), expect=5001)
        assert reads and not [r for r in reads if "FROM events" in r]


def test_lists_use_an_index(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "x.db") as store:
        for where in ("", "AND status = 'x'", "AND source = 'x'", "AND thread_id = 'x'", "AND kind = 'x'"):
            listed = f"SELECT id FROM runs WHERE tenant = 'main' {where} ORDER BY created_at DESC, id DESC LIMIT 5"
            sql = f"EXPLAIN QUERY PLAN {listed}"
            plan = " ".join(row[3] for row in store._read(sql))
            assert "USING" in plan and "INDEX runs_by" in plan and "TEMP B-TREE" not in plan, plan


class Appends(RuleBasedStateMachine):
    """A store against its model: a dict of folded runs."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = SqliteStore(Path(self.folder.name) / "x.db")
        self.model: dict[str, Run] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(target=runs, text=st.text(st.characters(codec="utf-8"), max_size=5))
    def create(self, text: str) -> str:
        run_id = new_id("run")
        self.append(run_id, [RunQueued(kind="sql", text=text)], 0)
        return run_id

    @rule(
        run_id=runs,
        names=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        off=st.sampled_from([0, 0, 0, -1, 1]),
    )
    def try_append(self, run_id: str, names: list[int], off: int) -> None:
        worker = self.store.worker_id
        kinds: list[Event] = [
            Note(text="n"),
            RunStarted(worker=worker),
            RunPaused(),
            RunResumed(worker=worker),
            StepStarted(step_id="s", kind="sql", code="x"),
            StepFinished(step_id="s", outcome="ok"),
            RunFinished(),
            RunFailed(error={"code": "x"}),
            RunCancelled(),
            RunQueued(kind="sql", text="again"),
        ]
        self.append(run_id, [kinds[n] for n in names], self.model[run_id].seq + off)

    def append(self, run_id: str, events: list[Event], expect: int) -> None:
        run = self.model.get(run_id)
        possible = expect == (run.seq if run else 0)
        try:
            self.store.append(run_id, *events, expect=expect)
        except Conflict:
            assert not possible or not self.folds(run_id, events)
        else:
            assert possible
            for entry in self.store.entries(run_id, after=expect):
                run = apply_event_entry(run, entry)
            assert run
            self.model[run_id] = run
            assert run.seq == expect + len(events)

    def folds(self, run_id: str, events: list[Event]) -> bool:
        run = self.model.get(run_id)
        at = run.created_at if run else None
        try:
            for event in events:
                assert run and at
                run = apply_event_entry(run, Entry(run_id=run_id, seq=run.seq + 1, at=at, event=event))
        except Conflict:
            return False
        return True

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(Path(self.folder.name) / "x.db")

    @rule()
    def recover(self) -> None:
        closed = self.store.recover()
        for run_id in closed:
            before = self.model[run_id]
            assert before.status == "running"
            assert before.worker != self.store._worker
            self.model[run_id] = self.store.run(run_id)
            assert self.model[run_id].status == "failed"
        living = [r for r in self.model.values() if r.status == "running"]
        assert all(r.worker == self.store._worker for r in living)

    @invariant()
    def the_store_agrees(self) -> None:
        newest = sorted(self.model.values(), key=lambda run: (run.created_at, run.id), reverse=True)
        assert [r.model_copy(update={"text": ""}) for r in self.store.runs(limit=1000).items] == [
            summarise_run(r).model_copy(update={"text": ""}) for r in newest
        ]
        for run in newest[:3]:
            assert self.store.run(run.id) == run


Appends.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
TestAppends = Appends.TestCase


def test_two_stores_in_one_process_do_not_drop_each_other_s_locks(tmp_path: Path) -> None:
    store_path = str(tmp_path / "x.db")
    with SqliteStore(store_path) as one, one._transaction() as execute:
        execute("INSERT INTO sources (tenant, name, spec) VALUES ('main', 'a', '{\"url\": \"x\"}')")
        SqliteStore(store_path).close()
        code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        other = subprocess.run([sys.executable, "-c", code, store_path], capture_output=True, text=True, check=False)
        assert "locked" in other.stderr


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "x.db")


def test_a_write_cut_short_by_a_kill_leaves_whole_appends(
    place: str, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    code = """
store = open_store()
while True:
    run_id = new_id("run")
    store.append(run_id, RunQueued(kind="sql", text="x"), expect=0)
    store.append(run_id, Note(text="a"), Note(text="b"), expect=1)
    say(run_id)
"""
    for _ in range(3):
        process = start(code)
        assert process.stdout
        said = [process.stdout.readline().strip() for _ in range(20)]
        process.kill()
        process.wait()
        said += process.stdout.read().split()
        with SqliteStore(place) as store:
            whole = {run.id: run.seq for run in store.runs(limit=100_000).items}
            assert set(whole.values()) <= {1, 3}
            assert all(whole[run_id] == 3 for run_id in said if len(run_id) == 30)
            assert all(len(store.entries(run_id)) == seq for run_id, seq in list(whole.items())[:20])


def test_the_lock_of_a_new_worker_is_not_removed_for_an_old_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(tmp_path / "runs.sqlite") as store, SqliteStore(tmp_path / "runs.sqlite") as other:
        path = tmp_path / "runs.sqlite.w" / store.worker_id
        lock = fcntl.flock

        def lock_late(fd: int, how: int) -> None:
            monkeypatch.setattr(fcntl, "flock", lock)
            path.unlink()  # by a third one, after which its owner made it anew
            path.touch()
            lock(fd, how)

        store.close()
        path.touch()
        monkeypatch.setattr(fcntl, "flock", lock_late)
        other.recover()
        assert path.exists()


def test_a_foreign_write_lock_blocks_no_read(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "etude.db") as store:
        store.append("run_a", RunQueued(kind="sql", text="one"), expect=0)
        other = sqlite3.connect(tmp_path / "etude.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            # Were they to wait for the lock, they would wait for 30 seconds and then fail.
            assert store.run("run_a").text == "one"
            assert [run.id for run in store.runs().items] == ["run_a"]
            assert store.check()["kind"] == "sqlite"
        finally:
            other.execute("ROLLBACK")
            other.close()


def test_a_slow_read_blocks_neither_reads_nor_writes(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "etude.db") as store, ThreadPoolExecutor(1) as pool:
        store.append("run_a", RunQueued(kind="sql", text="one"), expect=0)
        running = threading.Event()
        with store._borrowed() as slow:
            ended = threading.Event()

            def look() -> int:
                running.set()
                return int(ended.is_set())

            slow.set_progress_handler(look, 1000)
            endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
            work = pool.submit(slow.execute, endless)
            try:
                assert running.wait(60)
                assert store.run("run_a").text == "one"
                assert store.append("run_a", Note(text="meanwhile"), expect=1) == 2
                assert store.run("run_a").seq == 2, "a read sees what was written before it"
                assert not work.done()
            finally:
                ended.set()
            with pytest.raises(sqlite3.OperationalError):
                work.result(60)
            slow.set_progress_handler(None, 0)


def test_readers_cannot_write(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "etude.db") as store, pytest.raises(Unavailable, match="readonly"):
        store._read("DELETE FROM runs")


def test_a_full_disk_is_told_as_such_until_there_is_room_again(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "etude.db") as store:
        store.append("run_a", RunQueued(kind="sql", text="one"), expect=0)
        assert store._db
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        # SQLite says the same of a file that may not grow as of a disk that is full.
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Unavailable, match="disk is full") as caught:
            store.append("run_b", RunQueued(kind="sql", text="x" * 1_000_000), expect=0)
        assert caught.value.details["reason"] == "disk_full"
        with pytest.raises(Unavailable, match="disk is full"):
            store.check()
        assert store.run("run_a").text == "one"
        store._db.execute(f"PRAGMA max_page_count = {pages * 1000}")
        store.append("run_b", RunQueued(kind="sql", text="x" * 1_000_000), expect=0)
        assert store.check()["kind"] == "sqlite"


def test_pipes_that_no_process_reads_are_removed_once_they_are_old(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "etude.db") as store:
        folder = tmp_path / "etude.db.w"
        folder.mkdir(exist_ok=True)
        paths = {name: folder / f"wake_{name}" for name in ("dead", "young", "read")}
        for path in paths.values():
            os.mkfifo(path)
        reader = os.open(paths["read"], os.O_RDWR | os.O_NONBLOCK)
        for name in ("dead", "read"):
            os.utime(paths[name], (0, 0))
        store.recover()
        os.close(reader)
        assert {name for name, path in paths.items() if path.exists()} == {"young", "read"}


UNWRITABLE = """
import resource, sys
from etude.errors import Unavailable
from etude.events import RunQueued
from etude.store.sqlite import SqliteStore

with SqliteStore(sys.argv[1]) as store:
    store.append("run_a", RunQueued(kind="sql", text="one"), expect=0)
    store.check()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        store.check()
    except Unavailable as error:
        print(error.message, store.run("run_a").text)
"""


def test_a_store_that_can_no_longer_be_written_fails_its_check(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNWRITABLE, str(tmp_path / "etude.db")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "cannot be" in done.stdout and done.stdout.endswith(" one\n"), done.stderr
