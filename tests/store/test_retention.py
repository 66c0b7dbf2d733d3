"""Deletion of old runs and what belongs to them, over SQLite and Postgres alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from etude.entities import Artifact, RunFilter
from etude.errors import Conflict, NotFound
from etude.events import ArtifactCreated, RunCancelled, RunFinished, RunQueued, RunStarted
from etude.ids import new_id
from etude.store.agents import AgentStore
from etude.store.base import Store
from etude.store.lessons import StoredLessons
from etude.store.queue import Queue
from etude.store.retention import Retention
from etude.store.scripts import StoredScript, StoredScripts

SOON = timedelta(minutes=1)


def make_run(store: Store, text: str = "SELECT 1", files: str = "", end: bool = True, **fields: Any) -> str:
    """Record a run; `files` has one letter for each artifact that it makes."""
    run_id = new_id("run")
    store.append(run_id, RunQueued(kind="sql", text=text, **fields), expect=0)
    made = [ArtifactCreated(artifact=Artifact(hash=letter * 64, media="x/y", size=10)) for letter in files]
    store.append(run_id, RunStarted(worker=store.worker_id), *made, *([RunFinished()] if end else []), expect=1)
    return run_id


def old_runs(store: Store) -> list[str]:
    return [run.id for run in Retention(store).old_runs(datetime.now(UTC) + SOON)]


def test_a_deleted_run_leaves_nothing_behind(store: Store, open_store: Callable[[], Store]) -> None:
    thread = store.create_thread("t")
    gone = make_run(store, "find the lost word", files="ab", thread_id=thread.id)
    store.add_message(thread.id, "user", "hello", gone)
    stays = make_run(store, "keep the lost word", files="b")
    other = open_store()
    assert other.run(gone).status == "succeeded"
    assert store.storage_use().files == 20

    assert Retention(store).delete_runs([gone]) == 1
    for each in (store, other):
        with pytest.raises(NotFound, match="no run"):
            each.run(gone)
        with pytest.raises(NotFound, match="no run"):
            each.entries(gone)
        assert [run.id for run in each.runs(RunFilter(text="lost word")).items] == [stays]
        assert [message.run_id for message in each.messages(thread.id)] == [None]
    assert store.storage_use().files == 10, "the file that the other run refers to still counts"
    assert Retention(store).unused() == ["a" * 64]
    assert Retention(store).used(["a" * 64, "b" * 64]) == {"b" * 64}
    assert Retention(store).delete_runs([gone]) == 0


def test_words_are_found_after_many_deletions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.store.base.LOOKED_AT", 1)
    runs = [make_run(store, f"common word{n}") for n in range(10)]
    Retention(store).delete_runs(runs[:5])
    assert [run.id for run in store.runs(RunFilter(text="common")).items] == runs[:4:-1]
    assert store.runs(RunFilter(text="word1")).items == []
    again = make_run(store, "common again")
    assert [run.id for run in store.runs(RunFilter(text="common"), limit=2).items] == [again, runs[9]]


def test_what_others_need_stays(store: Store) -> None:
    retention = Retention(store)
    plain = make_run(store)
    pinned = make_run(store)
    retention.pin(pinned, "for the audit")
    scripted = make_run(store)
    values = ("k", "shop", scripted, "how many?", "active", "", datetime.now(UTC), "{}")
    StoredScripts(store).add(StoredScript("script_1", *values))  # type: ignore[arg-type]
    at_work = make_run(store, end=False)
    talking = make_run(store, thread_id=store.create_thread("t").id)
    agents = AgentStore(Queue(store))
    agents.create("a", "echo", {})
    thread = store.create_thread("of an agent")
    agents.set_thread(1, thread.id)
    of_agent = make_run(store, thread_id=thread.id)

    before = datetime.now(UTC) + SOON
    assert old_runs(store) == [plain, talking], "a thread that was not used since then keeps nothing"
    kept = retention.count_kept(before)
    assert (kept.old, kept.open, kept.pinned, kept.scripts, kept.in_use) == (6, 1, 1, 1, 1)
    assert retention.count_old(before) == 2
    assert retention.count_old(datetime.now(UTC) - SOON) == 0

    assert retention.delete_runs([pinned, at_work]) == 0
    for run_id, reason in ((pinned, "pinned"), (scripted, "script"), (at_work, "running")):
        with pytest.raises(Conflict, match=reason):
            retention.check_deletable(run_id)
    retention.check_deletable(of_agent)
    with pytest.raises(NotFound):
        retention.check_deletable("run_none")

    retention.unpin(pinned)
    StoredScripts(store).change("script_1", "withdrawn", "wrong")
    assert old_runs(store) == [plain, pinned, scripted, talking]
    with pytest.raises(NotFound, match="not pinned"):
        retention.unpin(pinned)


def test_a_tenant_s_runs_are_its_own(store: Store) -> None:
    ours, theirs = store.scoped("ours"), store.scoped("theirs")
    mine = make_run(ours, files="a")
    yours = make_run(theirs, files="a")
    retention = Retention(theirs)
    assert retention.tenants() == ["ours", "theirs"]
    assert old_runs(theirs) == [yours]
    assert retention.delete_runs([mine]) == 0
    with pytest.raises(NotFound):
        retention.pin(mine)
    assert retention.delete_runs([yours]) == 1
    assert (ours.storage_use().files, theirs.storage_use().files) == (10, 0)
    assert retention.unused() == [], "the other tenant refers to the same file"
    assert ours.run(mine).status == "succeeded"


def test_one_process_at_a_time_holds_a_lease(store: Store, open_store: Callable[[], Store]) -> None:
    first, second = Retention(store), Retention(open_store())
    assert first.lease("prune", "a")
    assert not second.lease("prune", "b")
    assert first.lease("prune", "a")
    assert second.leased("pru") == ["prune"]
    first.release("prune", "a")
    assert second.lease("prune", "b", seconds=-1)
    assert first.lease("prune", "a"), "it has run out"


def test_the_outcome_of_a_deleted_run_stays_as_evidence(store: Store) -> None:
    lessons, retention = StoredLessons(store), Retention(store)
    lessons.add_change("plan", "v1", "added", "", "the text")
    good, cancelled, forgotten = make_run(store), make_run(store, end=False), make_run(store)
    store.append(cancelled, RunCancelled(), expect=2)
    for run_id in (good, cancelled, forgotten):
        lessons.add_event("plan", "v1", run_id, "f", 0.5, True)
    before = lessons.exposures("plan", "v1")
    assert [(each.run_id, each.success) for each in before] == [(good, True), (forgotten, True)]

    assert retention.delete_runs([good, cancelled]) == 2
    assert lessons.exposures("plan", "v1") == before
    assert lessons.count("plan", "v1") == (3, 3)
    assert retention.delete_runs([forgotten], forget_evidence=True) == 1
    assert lessons.exposures("plan", "v1") == before[:1]


def test_evidence_for_a_version_that_was_replaced_goes_with_time(store: Store) -> None:
    lessons, retention = StoredLessons(store), Retention(store)
    lessons.add_change("plan", "v1", "added", "", "the text")
    old, open_run, new = make_run(store), make_run(store), make_run(store)
    for version, run_id in (("v1", old), ("v1", open_run), ("v2", new)):
        lessons.add_event("plan", version, run_id, "f", 0.5, True)
    retention.delete_runs([old, new])
    later = datetime.now(UTC) + SOON
    assert retention.delete_evidence(later) == 0, "it is in use"
    lessons.add_change("plan", "v2", "edited", "", "another text")
    assert retention.delete_evidence(datetime.now(UTC) - SOON) == 0, "it is new"
    assert retention.delete_evidence(later) == 1
    assert lessons.count("plan", "v1") == (1, 1), "its run is still there"
    assert lessons.count("plan", "v2") == (1, 1)


def test_replaced_scripts_go_once_no_run_needs_them(store: Store) -> None:
    scripts, retention = StoredScripts(store), Retention(store)
    first, second, user = make_run(store), make_run(store), make_run(store)
    for name, run_id in (("script_1", first), ("script_2", second)):
        values = ("k", "shop", run_id, "how many?", "active", "", datetime.now(UTC), "{}")
        scripts.add(StoredScript(name, *values))  # type: ignore[arg-type]
    scripts.use("script_1", user, "exact")
    later = datetime.now(UTC) + SOON
    assert retention.delete_scripts(later) == 0, "its run is there"
    retention.delete_runs([first])
    assert retention.delete_scripts(later) == 0, "a run that used it is there"
    retention.delete_runs([user])
    assert retention.delete_scripts(datetime.now(UTC) - SOON) == 0, "it is new"
    assert retention.delete_scripts(later) == 1
    assert [(each.id, each.state) for each in scripts.list()] == [("script_2", "active")]
