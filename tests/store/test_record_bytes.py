"""The bytes of records count toward the storage quota: added up by each process, exact after a recount."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from etude.errors import LimitExceeded
from etude.events import Note, RunFinished, RunQueued, RunStarted
from etude.ids import new_id
from etude.store import record_bytes
from etude.store.action import Finish, NewAction, NewEvent, StepRecord
from etude.store.agents import AgentStore
from etude.store.base import Store
from etude.store.identity import Identity, StoredResponse
from etude.store.lessons import StoredLessons
from etude.store.postgres import CREATED
from etude.store.queue import Queue
from etude.store.record_bytes import NOT_COUNTED, RECOUNTS
from etude.store.retention import Retention
from etude.store.schema import store_migrations

Open = Callable[[], Store]
Start = Callable[[str], subprocess.Popen[str]]


def _finish_run(store: Store, text: str = "SELECT 1") -> str:
    run_id = new_id("run")
    started = RunStarted(worker=store.worker_id)
    store.append(run_id, RunQueued(kind="sql", text=text), started, RunFinished(), expect=0)
    return run_id


def _work(store: Store) -> None:
    """Write a record of every kind that counts."""
    run_id = _finish_run(store, "SELECT 'Zürich'")
    store.append(run_id, Note(text="n" * 3000), expect=3)
    thread = store.create_thread("Straße")
    store.add_message(thread.id, "user", "ü" * 1000)
    Identity(store).add_report(store.tenant, {"text": "done", "outcome": "worked"})
    Identity(store).claim(f"{store.tenant}/key", "a", "request")
    Identity(store).keep(f"{store.tenant}/key", "a", StoredResponse(status=200, media="text/plain", body="b" * 500))
    StoredLessons(store).add_change("look", "1", "added", "", "t" * 700)
    agents = AgentStore(Queue(store))
    agents.create("a", "echo", {"subject": "s" * 2000})
    agents.message("a", "m" * 5000)
    agents.steer("a", "g" * 400)
    agents.reload("a", lambda config: config | {"subject": "other"})
    for number in range(2):
        (claim,) = agents.queue.turn(claim=1).claimed
        step = StepRecord('["input"]', "ok", 0.1, output='"out"', state=f'{{"subject": "{"z" * 9000 * number}"}}')
        agents.queue.turn([Finish(claim, "done", step=step, events=(NewEvent("x", "{}"),), tick=60.0)])


def test_the_counter_is_what_a_recount_finds(store: Store, open_store: Open) -> None:
    ours = store.scoped("ours")
    _work(ours)
    counted = ours.storage_use()
    assert counted.files == 0 and counted.records > 20_000
    ours.recount_storage()
    assert ours.storage_use() == counted
    assert store.scoped("theirs").storage_use().records == 0
    assert open_store().storage_by_tenant()["ours"] == counted == store.storage_by_tenant()["ours"]


def test_every_table_counts_or_says_why_not() -> None:
    for dialect in ("sqlite", "postgres"):
        scripts = [step.read_text("utf-8") for step in store_migrations(dialect)]
        tables = {name for script in scripts for name in CREATED.findall(script)}
        tables -= {"runs_by_number", "sources_of_tenants"}  # renamed to others
        assert tables == {*RECOUNTS, *NOT_COUNTED}, dialect


def test_other_processes_see_what_one_wrote(store: Store, start: Start) -> None:
    other = start(
        """
store = open_store()
store.append(new_id("run"), RunQueued(kind="sql", text="x" * 300_000), expect=0)
store.close()
say("done")
"""
    )
    assert other.stdout is not None and other.stdout.readline() == "done\n"
    assert 600_000 < store.storage_use().records < 1_000_000


def test_a_sum_is_written_after_some_bytes_or_seconds(
    store: Store, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store()
    thread = store.create_thread("t")
    store.add_message(thread.id, "user", "x" * 1000)
    assert (store.storage_use().records > 1000, other.storage_use().records) == (True, 0)
    store.add_message(thread.id, "user", "x" * (1 << 20))
    assert other.storage_use() == store.storage_use()
    monkeypatch.setattr(record_bytes, "FLUSH_S", 0.0)
    store.add_message(thread.id, "user", "x")
    assert other.storage_use() == store.storage_use()


def test_records_use_up_the_quota_and_deletions_give_room_back(store: Store) -> None:
    store.limit_storage(lambda tenant: 100_000)
    thread = store.create_thread("t")
    store.add_message(thread.id, "user", "x" * 60_000)
    run_id = _finish_run(store, "SELECT " + "1" * 20_000)
    with pytest.raises(LimitExceeded, match="0 for results and files, 1") as refused:
        _finish_run(store)
    assert refused.value.details["limit"] == "storage"
    assert "server.storage" in refused.value.hint
    store.append(run_id, Note(text="a run that began goes on"), expect=3)
    assert store.run(run_id).seq == 4

    assert Retention(store).delete_runs([run_id]) == 1
    before = store.storage_use()
    _finish_run(store)
    store.delete_thread(thread.id)
    assert store.storage_use().records < 10_000 < before.records
    used = store.storage_use()
    store.recount_storage()
    assert store.storage_use() == used


def test_a_check_of_a_full_tenant_recounts_once_a_minute(store: Store, open_store: Open) -> None:
    _finish_run(store)
    exact = store.storage_use()
    store.record_bytes.add("main", 5_000_000)  # as rows that expired since
    store.limit_storage(lambda tenant: 1_000_000)
    store.check_storage()
    assert store.storage_use() == exact
    store.record_bytes.add("main", 5_000_000)
    with pytest.raises(LimitExceeded):
        store.check_storage()
    other = open_store()
    other.limit_storage(lambda tenant: 1_000_000)
    store.record_bytes.flush()
    with pytest.raises(LimitExceeded):
        other.check_storage()  # another process counted less than a minute ago


def test_a_recount_keeps_nobody_waiting(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only reads, in a thread of its own; the check that asked for it waits for a moment."""
    monkeypatch.setattr(record_bytes, "RECOUNT_WAIT_S", 0.1)
    slow = store.record_bytes.recount

    def recount(tenant: str) -> None:
        time.sleep(1.0)
        slow(tenant)

    monkeypatch.setattr(store.record_bytes, "recount", recount)
    store.limit_storage({"ours": 1000, "theirs": 0}.__getitem__)
    ours = store.scoped("ours")
    ours.record_bytes.add("ours", 2000)
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(LimitExceeded):
            ours.check_storage()
    _finish_run(store.scoped("theirs"))
    assert time.monotonic() - began < 0.9
    end = time.monotonic() + 20
    while ours.storage_use().records and time.monotonic() < end:
        time.sleep(0.05)
    ours.check_storage()


def test_a_message_that_is_queued_twice_and_one_with_more_room_than_is_left(store: Store) -> None:
    agents = AgentStore(Queue(store))
    agents.create("a", "echo", {"subject": "s"})
    before = store.storage_use().records
    agents.queue.enqueue(NewAction("a", payload='"1"', id="m"), NewAction("a", payload='"2"', id="n"))
    assert store.storage_use().records == before + 2 * (record_bytes.RECORD + 3)
    store.limit_storage(lambda tenant: before + 1000)
    store.check_storage(100)
    with pytest.raises(LimitExceeded, match="5,000 more were to be stored"):
        store.check_storage(5000)
