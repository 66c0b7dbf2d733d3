"""Tenants: a store as one of them sees it holds nothing of another's, over SQLite and Postgres alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.patience import wait_until

from etude.entities import Artifact, RunFilter, SourceSpec
from etude.errors import Conflict, EtudeError, Invalid, LimitExceeded, NotFound
from etude.events import ArtifactCreated, Note, RunFinished, RunQueued, RunStarted
from etude.ids import new_id
from etude.store.base import Store


@pytest.fixture
def ours(store: Store) -> Store:
    return store.scoped("ours")


@pytest.fixture
def theirs(store: Store) -> Store:
    return store.scoped("theirs")


def test_a_run_is_there_for_its_tenant_alone(ours: Store, theirs: Store, store: Store) -> None:
    run_id = new_id("run")
    ours.append(run_id, RunQueued(kind="sql", text="SELECT 1"), expect=0)
    assert ours.run(run_id).text == "SELECT 1"
    assert [e.seq for e in ours.entries(run_id)] == [1]
    assert ours.heads([run_id, "run_none"]) == {run_id: 1}
    for other in (theirs, store):
        attempts: list[Callable[[], object]] = [
            lambda other=other: other.run(run_id),
            lambda other=other: other.entries(run_id),
            lambda other=other: other.resolve_run(run_id),
            lambda other=other: other.resolve_run(run_id[:12]),
        ]
        for attempt in attempts:
            with pytest.raises(NotFound):
                attempt()
        assert other.runs().items == []
        assert other.runs(RunFilter(text="select")).items == []
        assert other.heads([run_id]) == {}
        # Not even with the right position, nor by taking its id for a new run.
        for expect, event in ((1, Note(text="mine now")), (0, RunQueued(kind="sql", text="mine"))):
            with pytest.raises(Conflict):
                other.append(run_id, event, expect=expect)
    assert len(ours.entries(run_id)) == 1


def test_threads_and_their_messages_are_their_tenant_s(ours: Store, theirs: Store) -> None:
    thread = ours.create_thread("Sales")
    ours.add_message(thread.id, "user", "How many?")
    attempts: list[Callable[[], object]] = [
        lambda: theirs.thread(thread.id),
        lambda: theirs.messages(thread.id),
        lambda: theirs.add_message(thread.id, "user", "hello"),
        lambda: theirs.delete_thread(thread.id),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            attempt()
    assert theirs.threads().items == []
    assert [m.text for m in ours.messages(thread.id)] == ["How many?"]


def test_sources_of_one_name_are_two(ours: Store, theirs: Store, store: Store) -> None:
    ours.put_source("shop", SourceSpec(url="ours.db"))
    theirs.put_source("shop", SourceSpec(url="theirs.db"))
    assert (ours.sources()["shop"].url, theirs.sources()["shop"].url) == ("ours.db", "theirs.db")
    theirs.remove_source("shop")
    assert list(ours.sources()) == ["shop"]
    assert store.sources() == {}
    with pytest.raises(NotFound, match="no source `shop`"):
        theirs.remove_source("shop")


def test_subscribers_of_a_tenant_hear_of_its_runs_alone(ours: Store, theirs: Store, store: Store) -> None:
    heard: dict[str, list[str]] = {"ours": [], "store": []}
    stop = ours.subscribe(lambda run_id, _: heard["ours"].append(run_id))
    store.subscribe(lambda run_id, _: heard["store"].append(run_id))
    first, second = new_id("run"), new_id("run")
    ours.append(first, RunQueued(kind="sql", text=""), expect=0)
    theirs.append(second, RunQueued(kind="sql", text=""), expect=0)
    stop()
    ours.append(first, Note(text="x"), expect=1)
    assert heard == {"ours": [first], "store": [first, second, first]}


def test_orphans_of_every_tenant_are_closed(ours: Store, open_store: Callable[[], Store]) -> None:
    run_id = new_id("run")
    with open_store() as process:
        there = process.scoped("ours")
        there.append(run_id, RunQueued(kind="sql", text=""), RunStarted(worker=there.worker_id), expect=0)
    # Postgres takes a moment to see that a client is gone.
    assert wait_until(ours.recover) == [run_id]
    assert ours.run(run_id).status == "failed"


@pytest.mark.parametrize("name", ["", "Main", "a b", "x" * 65, "1", "é", "a\n"])
def test_a_tenant_has_a_plain_name(store: Store, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a tenant"):
        store.scoped(name)


def test_the_store_itself_is_the_first_tenant_s(store: Store, ours: Store) -> None:
    assert store.scoped("main") is store
    assert ours.scoped("main") is store
    assert ours.scoped("ours") is ours
    ours.close()
    with pytest.raises(EtudeError):
        ours.run("run_none")
    assert store.check()["schema"] >= 1


def _begin(store: Store, *sizes: int, first: int = 0) -> str:
    """A run that made an artifact of each of these sizes."""
    run_id = new_id("run")
    made = [
        ArtifactCreated(artifact=Artifact(hash=f"{first + n:064x}", media="text/plain", size=size))
        for n, size in enumerate(sizes)
    ]
    store.append(run_id, RunQueued(kind="sql", text="SELECT 1"), RunStarted(worker=store.worker_id), *made, expect=0)
    return run_id


def test_a_tenant_that_used_up_its_storage_starts_no_run(ours: Store, theirs: Store, store: Store) -> None:
    store.limit_storage({"ours": 100_000, "theirs": 200_000}.__getitem__)
    run_id = _begin(ours, 60_000, 40_000)
    assert (ours.storage_use().files, theirs.storage_use().total) == (100_000, 0)
    with pytest.raises(LimitExceeded, match="100,000 for results and files") as refused:
        _begin(ours)
    assert {k: refused.value.details[k] for k in ("limit", "used", "allowed")} == {
        "limit": "storage",
        "used": ours.storage_use().total,
        "allowed": 100_000,
    }
    # A run that began may end, and others are not concerned.
    ours.append(run_id, RunFinished(), expect=4)
    _begin(theirs, 60)
    assert theirs.storage_use().files == 60


def test_the_same_content_counts_once_for_each_tenant(ours: Store, theirs: Store) -> None:
    _begin(ours, 60, 40)
    _begin(ours, 60, 40, 7)
    _begin(theirs, 60)
    assert (ours.storage_use().files, theirs.storage_use().files) == (107, 60)
