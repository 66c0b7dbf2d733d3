"""Behaviour that every store shares, over SQLite and Postgres alike."""

from __future__ import annotations

import functools
import json
import operator
import os
import signal
import subprocess
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.patience import wait_until

from etude.entities import Artifact, ResultInfo, RunFilter, SourceSpec, Usage
from etude.errors import Conflict, Invalid, NotFound, Unavailable
from etude.events import (
    ArtifactCreated,
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
    fold,
    summarise_run,
)
from etude.ids import new_id
from etude.store import base
from etude.store.base import Store
from etude.store.run_rows import RunRow
from etude.store.schema import ADD_VERSION, store_migrations
from etude.store.search_words import split_store_search_words

Open = Callable[[], Store]
Start = Callable[[str], "subprocess.Popen[str]"]
STEPS = len(store_migrations("sqlite"))


def queue(store: Store, text: str = "SELECT 1", **fields: Any) -> str:
    run_id = new_id("run")
    store.append(run_id, RunQueued(kind=fields.pop("kind", "sql"), text=text, **fields), expect=0)
    return run_id


# Runs.


def test_a_run_is_the_fold_of_its_log(store: Store, open_store: Open) -> None:
    run_id = queue(store, source="sales")
    started = StepStarted(step_id="s1", kind="sql", code="SELECT 'ü \0'", params={"a": [1, {"b": None}]})
    assert store.append(run_id, RunStarted(worker=store.worker_id), started, expect=1) == 3
    result = ResultInfo(columns=(), row_count=7, truncated=True)
    finished = StepFinished(step_id="s1", outcome="ok", result=result, usage=Usage(tokens_in=5, cost_usd=0.25))
    kept = ArtifactCreated(artifact=Artifact(hash="a" * 64, media="x/y", size=3), step_id="s1")
    assert store.append(run_id, finished, kept, RunFinished(result=result), expect=3) == 6

    run = store.run(run_id)
    entries = store.entries(run_id)
    assert run == fold(entries) == open_store().run(run_id)
    assert [e.event for e in entries][1:] == [
        RunStarted(worker=store.worker_id), started, finished, kept, RunFinished(result=result)
    ]  # fmt: skip
    assert store.runs().items == [summarise_run(run)]
    assert (run.status, run.usage.cost_usd, run.artifacts) == ("succeeded", 0.25, (kept.artifact,))


def test_plain_events_are_the_same_log(store: Store, open_store: Open) -> None:
    run_id, now, worker = new_id("run"), datetime.now(UTC), store.worker_id
    row = RunRow(run_id, "sql", "SELECT 'ü'", "sales", None, None, worker, "running", 2, now, now)
    started = {"type": "run.started", "worker": worker}
    store.append_plain(row, [{"type": "run.queued", "kind": "sql", "text": row.text, "source": "sales"}, started])
    assert store.runs().items == [summarise_run(store.run(run_id))]

    kept = {"hash": "a" * 64, "media": "x/y", "size": 3}
    result = {"columns": [{"name": "x", "type": "INTEGER"}], "row_count": 7, "truncated": False, "bytes": 28}
    events = [{"type": "artifact.created", "artifact": kept}, {"type": "run.finished", "result": result}]
    ended = replace(row, status="succeeded", seq=4, updated_at=now, ended_at=now, row_count=7, elapsed_ms=0.0)
    store.append_plain(ended, events, {kept["hash"]: 3})
    run = open_store().run(run_id)
    assert store.runs().items == [summarise_run(run)]
    assert (run.status, run.text, store.storage_use().files) == ("succeeded", row.text, 3)
    assert [e.event.type for e in store.entries(run_id)] == [
        "run.queued", "run.started", "artifact.created", "run.finished"
    ]  # fmt: skip
    with pytest.raises(Conflict, match="is at 4, not at 2"):
        store.append_plain(ended, events)


def test_times_are_utc_and_never_go_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = datetime.now(UTC)
    run_id = queue(store)
    assert before <= store.run(run_id).created_at <= datetime.now(UTC)
    monkeypatch.setattr(base, "_now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    store.append(run_id, Note(text="the clock was set back"), expect=1)
    first, second = store.entries(run_id)
    assert second.at == first.at
    assert first.at.utcoffset() == timedelta(0)
    assert store.runs().items[0].created_at.utcoffset() == timedelta(0)


def test_entries_after_and_limit(store: Store) -> None:
    run_id = queue(store)
    store.append(run_id, *(Note(text=str(n)) for n in range(2500)), expect=1)
    assert len(store.entries(run_id)) == 2501
    assert [e.seq for e in store.entries(run_id, after=10, limit=2)] == [11, 12]
    assert store.entries(run_id, after=2501) == []
    assert store.entries(run_id, after=10**30) == []
    assert len(store.entries(run_id, after=-5)) == 2501
    with pytest.raises(Invalid, match="at least 1"):
        store.entries(run_id, limit=0)


@pytest.mark.parametrize("text", ["x", "x" * 50_000])
def test_entries_are_read_in_batches_that_few_long_ones_fill(store: Store, text: str) -> None:
    run_id = queue(store)
    store.append(run_id, *(Note(text=f"{n} {text}") for n in range(99)), expect=1)
    seen: list[int] = []
    more = True
    while more:
        batch, more = store.entry_batch(run_id, seen[-1] if seen else 0, 70, 100_000)
        assert len(batch) <= (70 if len(text) == 1 else 20)
        seen += [entry.seq for entry in batch]
    assert seen == list(range(1, 101))
    with pytest.raises(NotFound):
        store.entry_batch("run_nowhere", 0, 10, 10)


def test_a_wrong_expectation_is_a_conflict(store: Store) -> None:
    run_id = queue(store)
    for expect in (-1, 0, 2, 10**30):
        with pytest.raises(Conflict, match=rf"is at 1, not at {expect}"):
            store.append(run_id, Note(text="x"), expect=expect)
    assert len(store.entries(run_id)) == 1


def test_an_absent_run_can_only_be_created(store: Store) -> None:
    with pytest.raises(Conflict, match="is at 0, not at 4"):
        store.append("run_x", Note(text="x"), expect=4)
    with pytest.raises(Conflict, match=r"must be run\.queued"):
        store.append("run_x", Note(text="x"), expect=0)
    with pytest.raises(Invalid, match="at least one"):
        store.append("run_x", expect=0)
    with pytest.raises(NotFound):
        store.run("run_x")


def test_an_impossible_event_leaves_nothing_behind(store: Store, open_store: Open) -> None:
    run_id = queue(store)
    with pytest.raises(Conflict, match="cannot follow"):
        store.append(run_id, Note(text="with it"), RunFinished(), expect=1)
    for each in (store, open_store()):
        assert each.run(run_id).notes == ()
        assert [e.event.type for e in each.entries(run_id)] == ["run.queued"]
        assert each.runs().items[0].seq == 1


def test_what_json_cannot_keep_is_refused(store: Store) -> None:
    run_id = queue(store)
    with pytest.raises(Invalid, match="JSON"):
        store.append(run_id, Note(text="\ud800"), expect=1)
    with pytest.raises(Invalid, match="JSON"):
        store.append(run_id, RunFailed(error={"x": object()}), expect=1)
    store.append(run_id, RunStarted(worker=store.worker_id), StepStarted(step_id="s", kind="sql", code=""), expect=1)
    with pytest.raises(Invalid, match="elapsed_ms"):
        store.append(run_id, StepFinished(step_id="s", outcome="ok", elapsed_ms=float("nan")), expect=3)
    assert store.run(run_id).seq == 3


def test_memory_holds_what_the_disk_does(store: Store, open_store: Open) -> None:
    run_id = queue(store)
    error = {"at": datetime(2026, 1, 1, tzinfo=UTC), "pair": (1, 2)}
    store.append(run_id, RunFailed(error=error), expect=1)
    assert store.run(run_id).error == open_store().run(run_id).error
    assert store.run(run_id).error == {"at": "2026-01-01T00:00:00Z", "pair": [1, 2]}


def test_a_change_by_another_process_is_seen(store: Store, open_store: Open) -> None:
    run_id = queue(store)
    other = open_store()
    other.append(run_id, Note(text="theirs"), expect=1)
    with pytest.raises(Conflict):
        store.append(run_id, Note(text="mine"), expect=1)
    assert store.run(run_id).notes == ("theirs",)
    store.append(run_id, Note(text="mine"), expect=2)
    assert other.run(run_id).notes == ("theirs", "mine")


def test_more_runs_than_memory_keeps(store: Store) -> None:
    ids = [queue(store) for _ in range(base.KEPT + 5)]
    store.append(ids[0], Note(text="still known"), expect=1)
    assert store.run(ids[0]).notes == ("still known",)
    assert len(store._folded) == base.KEPT


def test_threads_race_and_one_wins(store: Store) -> None:
    run_id = queue(store)

    def attempt(number: int) -> bool:
        try:
            return store.append(run_id, Note(text=str(number)), expect=1) == 2
        except Conflict:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert len(store.entries(run_id)) == 2


def test_threads_append_to_many_runs(store: Store) -> None:
    def work(_: int) -> str:
        run_id = queue(store)
        for seq in range(1, 10):
            store.append(run_id, Note(text=str(seq)), expect=seq)
        return run_id

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(work, range(16)))
    assert all(store.run(run_id).seq == 10 for run_id in ids)


def test_processes_race_and_one_wins(store: Store, start: Start) -> None:
    run_id = queue(store)
    code = f"""
store = open_store()
won = 0
for seq in range(1, 21):
    say("ready")
    sys.stdin.readline()
    try:
        store.append({run_id!r}, Note(text=str(os.getpid())), expect=seq)
        won += 1
    except Conflict:
        pass
say(won)
"""
    racers = [start(code), start(code)]
    for _ in range(20):
        assert [r.stdout.readline() for r in racers if r.stdout] == ["ready\n"] * 2
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
    won = [int(r.stdout.readline()) for r in racers if r.stdout]
    assert sum(won) == 20
    assert store.run(run_id).seq == 21


# Lists.


def test_lists_are_paged_newest_first(store: Store) -> None:
    ids = [queue(store, f"run {n}") for n in range(7)]
    seen, cursor = [], None
    while True:
        page = store.runs(limit=3, cursor=cursor)
        seen.append([run.id for run in page.items])
        cursor = page.next
        if cursor is None:
            break
        queue(store, "newer than the cursor")
    assert [len(p) for p in seen] == [3, 3, 1]
    assert functools.reduce(operator.iadd, seen, []) == ids[::-1]


def test_runs_of_the_same_moment_are_paged_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    ids = [queue(store) for _ in range(5)]
    first = store.runs(limit=2)
    second = store.runs(limit=3, cursor=first.next)
    assert [run.id for run in first.items + second.items] == ids[::-1]
    assert second.next is None


TEXTS = st.lists(st.sampled_from(["Ärger", "arg", "a_b", "x1", "STRASSE", "東京都", "it's", '"q"', "%"]), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=6),
    asked=st.sampled_from(["ä", "AR", "a_", "x", "straße", "京", "q", "s"]),
)
def test_words_are_found_alike_among_the_newest_runs_and_by_the_index(
    store: Store, monkeypatch: pytest.MonkeyPatch, texts: list[list[str]], asked: str
) -> None:
    source = new_id("source")
    made = [(queue(store, " ".join(words), source=source), words) for words in texts]
    (word,) = split_store_search_words(asked)
    wanted = [
        i for i, words in reversed(made) if any(w.startswith(word) for w in split_store_search_words(" ".join(words)))
    ]
    for looked_at in (1, 3, 2000):
        monkeypatch.setattr("etude.store.base.LOOKED_AT", looked_at)
        found, cursor = [], None
        while True:
            page = store.runs(RunFilter(source=source, text=asked), limit=2, cursor=cursor)
            found += [run.id for run in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert found == wanted


def test_runs_from_before_there_were_words_are_found_by_them(place: str, open_store: Open) -> None:
    store = open_store()
    a, b = queue(store, "Straße nach Zürich"), queue(store, "other")
    # As the schema was before: texts without case in place of words, and no index of words.
    with store._transaction() as execute:
        if store.dialect == "sqlite":
            execute("DROP TRIGGER runs_lose_words")
            execute("DROP TRIGGER runs_have_words")
            execute("DROP TABLE run_vocabulary")
            execute("DROP TABLE run_words")
        else:
            for index in ("word", "kind", "status_and_kind", "source_and_status", "source_and_kind"):
                execute(f"DROP INDEX runs_by_{index}")
            execute("ALTER TABLE runs DROP COLUMN bytes")
        execute("UPDATE runs SET search = lower(text)")
        execute("ALTER TABLE actions DROP COLUMN delayed_at")
        execute("DROP INDEX actions_failed")
        execute("DROP INDEX agents_by_thread")
        execute("ALTER TABLE agents DROP COLUMN failed")
        execute("ALTER TABLE audit DROP COLUMN reason")
        for table in (
            *("stored", "storage", "scripts", "script_uses", "edits", "suite_runs"),
            "lesson_events",
            "lesson_changes",
            "diagnoses",
            *("pins", "artifact_runs", "unused_artifacts", "leases", "processes", "queue_totals"),
        ):
            execute(f"DROP TABLE {table}")
        execute("DELETE FROM schema_version WHERE version > 6")
    again = open_store()
    assert [run.id for run in again.runs(RunFilter(text="strasse zür")).items] == [a]
    assert [run.id for run in again.runs(RunFilter(text="OTHER")).items] == [b]
    assert again.run(a).text == "Straße nach Zürich"


def test_filters(store: Store) -> None:
    thread = store.create_thread("t")
    a = queue(store, "Zürich 100%_! Straße", source="x")
    b = queue(store, "other", kind="ask", thread_id=thread.id)
    store.append(b, RunCancelled(), expect=1)

    def found(**fields: Any) -> list[str]:
        return [run.id for run in store.runs(RunFilter(**fields)).items]

    assert found() == [b, a]
    assert (found(status="queued"), found(status="cancelled"), found(status="failed")) == ([a], [b], [])
    assert (found(kind="ask"), found(source="x"), found(thread_id=thread.id)) == ([b], [a], [b])
    assert (found(text="ZÜRICH"), found(text="strasse"), found(text="100%")) == ([a], [a], [a])
    assert (found(text="zür 1"), found(text="100_"), found(text="other zürich")) == ([a], [], [])
    assert (found(text="ürich"), found(text="")) == ([], [b, a])
    with pytest.raises(Invalid, match="no word"):
        found(text="%")
    edge = store.run(b).created_at
    assert (found(since=edge), found(until=edge), found(since=edge.replace(tzinfo=None))) == ([b], [a], [b])
    assert found(status="queued", source="x", text="zürich", kind="sql") == [a]


def encoded(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


FORGED = [[1, 2], ["created_at", 1, "a"], ["created_at", "x", "a"], ["created_at", None, 1], {}, None]


def test_a_wrong_cursor_is_invalid(store: Store) -> None:
    for cursor in ("", "x", "!!", "é", *map(encoded, FORGED)):
        with pytest.raises(Invalid, match="not a cursor"):
            store.runs(cursor=cursor)


def test_a_cursor_of_another_list_is_invalid(store: Store) -> None:
    for title in ("a", "b"):
        store.create_thread(title)
    with pytest.raises(Invalid, match="not a cursor of this list"):
        store.runs(cursor=store.threads(limit=1).next)


def test_a_run_is_found_by_the_start_of_its_id(store: Store) -> None:
    for run_id in ("run_abc1", "run_abc2", "run_abc", "run_xyz"):
        store.append(run_id, RunQueued(kind="sql", text=""), expect=0)
    assert store.resolve_run("run_x") == store.resolve_run("xy") == "run_xyz"
    assert store.resolve_run("run_abc") == "run_abc"
    assert store.resolve_run("abc2") == "run_abc2"
    with pytest.raises(Invalid, match="more than one"):
        store.resolve_run("run_ab")
    for absent in ("", "run_q", "RUN_XYZ", "%"):
        with pytest.raises(NotFound):
            store.resolve_run(absent)


def test_an_absent_run_says_what_to_do(store: Store) -> None:
    with pytest.raises(NotFound, match="`run_nope`") as caught:
        store.run("run_nope")
    assert "etude runs" in caught.value.hint


# Threads and sources.


@pytest.mark.parametrize("sizes", [[1] * 7, [10, 1, 10, 3, 3, 3, 30, 1], [50], [10, 10]])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_of_messages_end_by_their_size(store: Store, sizes: list[int], limit: int) -> None:
    thread = store.create_thread("long texts")
    for size in sizes:
        store.add_message(thread.id, "user", "x" * size)
    found, after, more = [], 0, True
    while more:
        page, more = store.message_page(thread.id, after, limit, text_chars=10)
        assert len(page) == 1 or (len(page) <= limit and sum(len(m.text) for m in page) <= 10)
        found += [len(m.text) for m in page]
        after = page[-1].seq if page else after
    assert found == sizes


def test_a_list_can_have_only_the_beginning_of_texts(store: Store) -> None:
    for text in ("short", "long " * 100):
        store.append(new_id("run"), RunQueued(kind="sql", text=text), expect=0)
    assert sorted(len(r.text) for r in store.runs(text_chars=10).items) == [5, 10]
    assert [r.text for r in store.runs(RunFilter(text="long"), text_chars=4).items] == ["long"]


def test_threads_and_messages(store: Store) -> None:
    old, new = store.create_thread("old", source="s"), store.create_thread("new")
    assert store.thread(old.id) == old
    assert [t.id for t in store.threads().items] == [new.id, old.id]
    said = [
        store.add_message(old.id, "user", "hello ü"),
        store.add_message(old.id, "assistant", "7", run_id="run_1"),
    ]
    assert [m.seq for m in said] == [1, 2]
    assert store.messages(old.id) == said
    assert store.messages(old.id, after=1) == said[1:]
    assert store.messages(old.id, limit=1) == said[:1]
    assert store.messages(new.id) == []
    first = store.threads(limit=1)
    assert [t.id for t in first.items] == [old.id]
    assert [t.id for t in store.threads(cursor=first.next).items] == [new.id]
    store.delete_thread(old.id)
    with pytest.raises(NotFound):
        store.messages(old.id)
    with pytest.raises(NotFound):
        store.add_message(old.id, "user", "x")


def test_text_that_not_every_database_keeps_is_refused_by_all(store: Store) -> None:
    thread = store.create_thread("t")
    for text in ("a\0b", "\udc80"):
        with pytest.raises(Invalid):
            store.create_thread(text)
        with pytest.raises(Invalid):
            store.add_message(thread.id, "user", text)
        with pytest.raises(Invalid):
            store.run(text)
    assert store.messages(thread.id) == []
    run_id = queue(store, "a\0b")
    assert store.run(run_id).text == "a\0b"
    assert store.runs().items[0].text == "a\ufffdb"


def test_sources(store: Store, open_store: Open) -> None:
    spec = SourceSpec(url="env:DB", tables=("a",), options={"ü": "1"})
    store.put_source("b", SourceSpec(url="x"))
    store.put_source("a", spec)
    store.put_source("b", spec)
    assert open_store().sources() == {"a": spec, "b": spec}
    store.remove_source("a")
    with pytest.raises(NotFound, match="`a`") as caught:
        store.remove_source("a")
    assert "`b`" in caught.value.hint


# Orphans.

RUNS_FOR_EVER = """
store = open_store()
run_id = new_id("run")
store.append(run_id, RunQueued(kind="sql", text="x"), RunStarted(worker=store.worker_id), expect=0)
steps = [StepStarted(step_id=s, kind="sql", code="SELECT") for s in ("done", "open", "open too")]
store.append(run_id, *steps, StepFinished(step_id="done", outcome="ok"), expect=2)
paused = new_id("run")
store.append(paused, RunQueued(kind="sql", text="x"), RunStarted(worker=store.worker_id), expect=0)
store.append(paused, RunPaused(), expect=2)
"""


def recover_soon(store: Store) -> list[str]:
    """Postgres takes a moment to see that a client is gone."""
    found: list[str] = wait_until(store.recover)
    return found


def test_runs_of_a_killed_process_are_failed(store: Store, start: Start) -> None:
    process = start(RUNS_FOR_EVER + "say(run_id); time.sleep(100)")
    assert process.stdout
    run_id = process.stdout.readline().strip()
    mine = queue(store)
    store.append(mine, RunStarted(worker=store.worker_id), expect=1)
    assert store.recover() == []
    assert store.run(run_id).status == "running"

    process.send_signal(signal.SIGKILL)
    process.wait()
    assert recover_soon(store) == [run_id]
    run = store.run(run_id)
    assert (run.status, run.error["code"] if run.error else None) == ("failed", "interrupted")
    assert run.error and run.error["retryable"] and run.error["hint"]
    assert [(s.id, s.outcome, s.error_key) for s in run.steps] == [
        ("done", "ok", None), ("open", "error", "interrupted"), ("open too", "error", "interrupted")
    ]  # fmt: skip
    assert store.runs(RunFilter(status="failed")).items[0].error_code == "interrupted"
    assert store.run(mine).status == "running"
    assert store.runs(RunFilter(status="paused")).items
    assert store.recover() == []


def test_a_forked_child_does_not_keep_a_dead_process_alive(store: Store, start: Start) -> None:
    code = """
child = os.fork()
if child:
    say(run_id, child)
time.sleep(100)
"""
    process = start(RUNS_FOR_EVER + code)
    assert process.stdout
    run_id, child = process.stdout.readline().split()
    try:
        process.kill()
        assert recover_soon(store) == [run_id]
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_forked_child_can_go_on_with_the_store(store: Store, start: Start) -> None:
    code = """
parent = store.worker_id
child = os.fork()
if child == 0:
    assert store.worker_id != parent
    mine = RunStarted(worker=store.worker_id)
    store.append(new_id("run"), RunQueued(kind="sql", text="child"), mine, expect=0)
    store.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.append(new_id("run"), RunQueued(kind="sql", text="parent"), RunStarted(worker=parent), expect=0)
give_up = time.monotonic() + 90
while not (found := store.recover()) and time.monotonic() < give_up:
    time.sleep(0.01)  # Postgres takes a moment to see that the child is gone
say(found == [r.id for r in store.runs().items if r.text == "child"])
store.close()
"""
    process = start(RUNS_FOR_EVER + code)
    out, _ = process.communicate(timeout=120)
    assert out == "True\n"
    assert {run.text for run in store.runs().items} == {"x", "child", "parent"}


def test_only_one_of_two_recovers(open_store: Open, start: Start) -> None:
    process = start(RUNS_FOR_EVER + "say(run_id)")
    run_id = process.communicate(timeout=120)[0].strip()
    stores = [open_store() for _ in range(4)]
    worker = stores[0].run(run_id).worker
    assert worker is not None
    wait_until(lambda: stores[0]._dead({worker}))
    at_once = threading.Barrier(4)

    def recover(store: Store) -> list[str]:
        at_once.wait(90)
        return store.recover()

    with ThreadPoolExecutor(4) as pool:
        recovered = list(pool.map(recover, stores))
    assert sorted(recovered) == [[], [], [], [run_id]]
    assert [e.event.type for e in stores[0].entries(run_id)].count("run.failed") == 1


def test_a_closed_worker_leaves_an_orphan(store: Store, open_store: Open) -> None:
    other = open_store()
    run_id = queue(other)
    other.append(run_id, RunStarted(worker=other.worker_id), expect=1)
    assert store.recover() == []
    other.close()
    assert recover_soon(store) == [run_id]


def test_a_run_is_started_by_the_store_s_own_worker(store: Store) -> None:
    run_id = queue(store)
    with pytest.raises(Invalid, match="names worker `w`") as caught:
        store.append(run_id, RunStarted(worker="w"), expect=1)
    assert "worker_id" in caught.value.hint
    store.append(run_id, RunPaused(), expect=1)
    with pytest.raises(Invalid, match=r"run\.resumed"):
        store.append(run_id, RunResumed(worker="w"), expect=2)
    store.append(run_id, RunResumed(worker=store.worker_id), expect=2)


# Schema and life.


def test_a_newer_database_is_refused(store: Store, open_store: Open) -> None:
    with store._transaction() as execute:
        execute(ADD_VERSION, 99, datetime.now(UTC))
    with pytest.raises(Unavailable, match=rf"version 99; this etude knows versions up to {STEPS}\.") as caught:
        open_store()
    assert "Upgrade etude" in caught.value.hint


def test_an_entry_of_a_newer_etude_says_so(store: Store, open_store: Open) -> None:
    run_id = queue(store)
    with store._transaction() as execute:
        execute(base.ADD_EVENTS + "(?, ?, ?, ?, ?)", run_id, 2, datetime.now(UTC), "new", '{"type": "new"}')
    with pytest.raises(Unavailable, match="Entry 2 of run") as caught:
        open_store().run(run_id)
    assert "Upgrade" in caught.value.hint


def test_processes_that_open_at_once_migrate_once(start: Start, open_store: Open) -> None:
    openers = [start("say('ready'); sys.stdin.readline(); say(open_store().check()['schema'])") for _ in range(4)]
    assert [p.stdout.readline() for p in openers if p.stdout] == ["ready\n"] * 4
    for opener in openers:
        assert opener.stdin
        opener.stdin.write("go\n")
        opener.stdin.flush()
    assert [p.communicate(timeout=120)[0] for p in openers] == [f"{STEPS}\n"] * 4
    assert open_store()._read("SELECT count(*) FROM schema_version") == [(STEPS,)]


def test_check_and_close(open_store: Open) -> None:
    with open_store() as store:
        found = store.check()
        assert found["schema"] == STEPS
        assert found["kind"] in ("sqlite", "postgres")
        assert found["version"][0].isdigit()
    store.close()
    for use in (store.check, store.runs, lambda: queue(store)):
        with pytest.raises(Unavailable, match="closed"):
            use()


def test_others_write_while_a_long_thread_is_deleted(store: Store) -> None:
    ours, theirs = store.scoped("ours"), store.scoped("theirs")
    thread = ours.create_thread("long")
    with ours._transaction() as execute:
        for seq in range(1, 2001):
            values = (f"message_{seq}", thread.id, seq, "user", "é" * 1000, None, datetime.now(UTC))
            execute(base.ADD_MESSAGE, *values)
    ours.record_bytes.recount("ours")
    with pytest.raises(NotFound):
        theirs.delete_thread(thread.id)
    assert len(ours.messages(thread.id)) == 2000
    written = 0
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(ours.delete_thread, thread.id)
        while not deleted.done():
            theirs.create_thread("short")
            written += 1
        deleted.result()
    assert written > 3
    with pytest.raises(NotFound):
        ours.thread(thread.id)
    assert not store._read("SELECT 1 FROM messages WHERE thread_id = ?", thread.id)
    assert ours.storage_use().records == 0
