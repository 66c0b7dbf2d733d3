"""Retention: what is old goes, what is needed stays, and nothing that a run refers to is lost."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.app import App
from etude.errors import Conflict, Invalid, NotFound
from etude.operations import prune as pruning
from etude.operations.prune import Pruned, prune, prune_artifacts
from etude.store.identity import Identity
from etude.store.retention import Retention

Open = Callable[..., App]
BRIEFLY = 1e-11
"""Days: less than a microsecond."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let artifacts be collected at once, not an hour after they were stored."""
    monkeypatch.setattr(pruning, "IN_FLIGHT_S", 0.0)


def files(app: App) -> set[str]:
    return set(app.objects.artifacts())


def run_of(app: App, shop: Path, sql: str) -> str:
    return str(app.sql(str(shop), sql, record=True).run_id)


def test_nothing_is_deleted_unless_the_settings_say_so(open_app: Open, shop: Path) -> None:
    app = open_app()
    run_id = run_of(app, shop, "SELECT 1 AS x")
    report = prune(app)
    assert report.tenants["main"].runs == 0
    assert app.result(run_id).rows() == [(1,)]


@pytest.mark.usefixtures("at_once")
def test_old_runs_go_with_their_files_and_pinned_ones_stay(open_app: Open, shop: Path) -> None:
    app = open_app(retention={"runs": BRIEFLY})
    old, kept = run_of(app, shop, "SELECT 1 AS x"), run_of(app, shop, "SELECT 2 AS x")
    same = run_of(app, shop, "SELECT 2 AS x")
    Retention(app.store).pin(kept)
    before = files(app)

    planned = prune(app, dry_run=True)
    assert planned.tenants["main"].runs == 2
    assert planned.tenants["main"].kept == {"pinned": 1}
    assert files(app) == before and app.store.run(old).status == "succeeded"

    time.sleep(0.01)  # the files must be older than the moment of the prune
    done = prune(app)
    assert (done.tenants["main"].runs, done.artifacts, done.waiting) == (2, 1, 0)
    assert app.result(kept).rows() == [(2,)]
    for run_id in (old, same):
        with pytest.raises(NotFound):
            app.store.run(run_id)
    assert files(app) == {artifact.hash for artifact in app.store.run(kept).artifacts}
    assert prune(app).artifacts == 0


@pytest.mark.usefixtures("at_once")
def test_results_go_before_their_runs_and_the_run_says_so(open_app: Open, shop: Path) -> None:
    app = open_app(retention={"results": BRIEFLY})
    run_id = run_of(app, shop, "SELECT 1 AS x")
    time.sleep(0.01)
    assert prune(app).tenants["main"].results == 1
    assert files(app) == set()
    found = app.store.run(run_id)
    assert found.status == "succeeded" and "retention.results" in found.notes[-1]
    with pytest.raises(NotFound):
        app.result(run_id).rows()
    assert app.store.storage_use().files == 0
    assert prune(app).tenants["main"].results == 0


def test_each_tenant_has_its_own_retention(open_app: Open, shop: Path) -> None:
    app = open_app(retention={"runs": 3650, "audit": BRIEFLY, "tenants": {"brief": {"runs": BRIEFLY, "audit": 0}}})
    identity = Identity(app.store)
    kept = run_of(app, shop, "SELECT 1 AS x")
    gone = run_of(app.scoped("brief"), shop, "SELECT 1 AS x")
    for tenant in ("main", "brief"):
        identity.note(tenant, None, "POST /x", 200, "r", "a")
    identity.write_down()
    report = prune(app)
    assert {name: (done.runs, done.audit) for name, done in report.tenants.items()} == {
        "main": (0, 1),
        "brief": (1, 0),
    }
    assert app.result(kept).rows() == [(1,)]
    with pytest.raises(NotFound):
        app.scoped("brief").store.run(gone)


def test_a_tenant_that_cannot_be_pruned_stops_no_other(
    open_app: Open, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app(retention={"runs": BRIEFLY})
    for tenant in ("bad", "usual"):
        run_of(app.scoped(tenant), shop, "SELECT 1 AS x")
    delete = Retention.delete_runs

    def fail(self: Retention, ids: list[str]) -> int:
        if self.tenant == "bad":
            raise Invalid("A record cannot be read.")
        return delete(self, ids)

    monkeypatch.setattr(Retention, "delete_runs", fail)
    with pytest.raises(Invalid):
        prune(app)
    assert len(app.scoped("bad").store.runs().items) == 1
    assert not app.scoped("usual").store.runs().items


def test_agents_records_and_threads_go_too(open_app: Open) -> None:
    app = open_app(retention={"actions": BRIEFLY, "events": BRIEFLY, "steps": BRIEFLY, "threads": BRIEFLY})
    app.agents.create("echo", {"subject": "rain"}, id="a")
    app.agents.destroy("a")
    app.agents.create("echo", {"subject": "rain"}, id="b")
    thread = app.store.create_thread("old")
    assert prune(app, dry_run=True).tenants["main"].agents == 1
    report = prune(app).tenants["main"]
    assert (report.actions, report.events, report.threads, report.agents) == (1, 3, 1, 1)
    with pytest.raises(NotFound):
        app.agents.get("a")
    assert app.agents.get("b").status == "active"
    with pytest.raises(NotFound):
        app.store.thread(thread.id)


def test_catalogs_go_except_the_latest(open_app: Open, shop: Path) -> None:
    from etude.entities import SourceSpec

    app = open_app(retention={"catalogs": BRIEFLY})
    app.add_source("shop", SourceSpec(url=str(shop)))
    for _ in range(2):
        app.cataloger.run("shop")
    names = app.cataloger.catalog_store("shop").names()
    assert prune(app, dry_run=True).tenants["main"].catalogs == 1
    assert prune(app).tenants["main"].catalogs == 1
    assert app.cataloger.catalog_store("shop").names() == names[:1]


def test_indexes_of_unregistered_sources_go(open_app: Open, tmp_path: Path) -> None:
    from etude.entities import SourceSpec

    app = open_app(retention={"indexes": BRIEFLY}, search={"embeddings": "none"})
    (tmp_path / "notes.csv").write_text("id,about\n1,tea\n2,coffee\n")
    (tmp_path / "other.csv").write_text("id,about\n1,rice\n")
    tenant = app.scoped("acme")
    for each in (app, tenant):
        each.add_source("notes", SourceSpec(url=str(tmp_path / "notes.csv")))
        each.indexes.build("notes")
    app.indexes.build(str(tmp_path / "other.csv"))
    app.store.put_source("notes", SourceSpec(url=str(tmp_path / "notes.csv"), tables=("notes",)))
    app.indexes.build("notes")  # other grants, so another index
    assert prune(app, dry_run=True).tenants["main"].indexes == 2
    assert prune(app).tenants["main"].indexes == 2
    assert prune(app).tenants["main"].indexes == 0
    folders = {name.rpartition("/index_")[0] for name in app.objects.names("search") if "/index_" in name}
    assert len(folders) == 2, "one of each tenant"
    assert app.indexes.find("notes") and tenant.indexes.find("notes")


def test_two_processes_do_not_prune_at_once(open_app: Open) -> None:
    app = open_app()
    assert Retention(app.store).lease("prune", "another")
    with pytest.raises(Conflict, match="Another process"):
        prune(app)
    prune(app, dry_run=True)


def test_a_file_that_a_run_is_about_to_refer_to_stays(open_app: Open, shop: Path, monkeypatch: Any) -> None:
    """The file was made long ago by a run that is deleted now; a new run makes the same one at that moment."""
    app = open_app(retention={"runs": BRIEFLY})
    old = run_of(app, shop, "SELECT 1 AS x")
    (artifact,) = app.store.run(old).artifacts
    path = app.objects.local_path(artifact.hash)
    assert path is not None
    os.utime(path, (0, 0))
    data = path.read_bytes()
    collect = app.objects.collect

    def collect_later(hash: str, before: datetime) -> int | None:
        app.objects.put(data, artifact.media)  # a run stores it, and will refer to it
        return collect(hash, before)

    monkeypatch.setattr(app.objects, "collect", collect_later)
    report = prune(app)
    assert (report.artifacts, report.waiting) == (0, 1)
    assert files(app) == {artifact.hash}


def test_a_long_run_protects_what_it_stored(open_app: Open, shop: Path) -> None:
    from etude.events import RunQueued, RunStarted
    from etude.ids import new_id

    app = open_app()
    run_id = new_id("run")
    app.store.append(run_id, RunQueued(kind="python", text="x"), RunStarted(worker=app.store.worker_id), expect=0)
    stored = app.objects.put(b"not referred to yet", "text/plain")
    report = Pruned(dry_run=False)
    original, pruning.IN_FLIGHT_S = pruning.IN_FLIGHT_S, -3600.0
    try:
        prune_artifacts(app, report, orphans=True)
    finally:
        pruning.IN_FLIGHT_S = original
    assert files(app) == {stored.hash}


@pytest.mark.usefixtures("at_once")
def test_files_of_killed_processes_are_found(open_app: Open, shop: Path) -> None:
    app = open_app()
    kept = run_of(app, shop, "SELECT 1 AS x")
    app.objects.put(b"no run ever refers to this", "text/plain")
    time.sleep(0.01)
    assert prune(app).artifacts == 0
    assert prune(app, orphans=True).artifacts == 1
    assert app.result(kept).rows() == [(1,)]


def test_a_backup_keeps_every_file(open_app: Open) -> None:
    app = open_app()
    app.objects.put(b"x", "text/plain")
    Retention(app.store).lease("backup:1", "1")
    report = Pruned(dry_run=False)
    prune_artifacts(app, report, orphans=True)
    assert len(files(app)) == 1


def test_pruning_while_runs_are_written_loses_no_result(
    open_app: Open, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers record the same few results again and again, while runs and their files are deleted."""
    monkeypatch.setattr(pruning, "IN_FLIGHT_S", 0.1)
    app = open_app(retention={"runs": BRIEFLY})
    run_of(app, shop, "SELECT 1 AS x")  # the files of the shop are read once
    kept: list[tuple[str, int]] = []
    errors: list[BaseException] = []
    stop = threading.Event()

    def write(number: int) -> None:
        writer = open_app()
        try:
            while not stop.is_set():
                value = len(kept) % 3
                run_id = run_of(writer, shop, f"SELECT {value} AS x")
                try:
                    Retention(writer.store).pin(run_id)
                except NotFound:
                    continue  # it was pruned before it was pinned
                kept.append((run_id, value))
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in writers:
        thread.start()
    try:
        wait_until(lambda: kept or errors)
        for _ in range(15):
            prune(app, orphans=True)
        wait_until(lambda: len(kept) >= 10 or errors)
        prune(app, orphans=True)
    finally:
        stop.set()
        for thread in writers:
            thread.join()
    assert errors == []
    for run_id, value in kept:
        assert app.result(run_id).rows() == [(value,)]
    assert datetime.now(UTC) > app.store.run(kept[0][0]).created_at
