"""Backup, destroy, restore: everything that was acknowledged is back."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import S3
from tests.patience import wait_until

from etude.agents.worker import Worker
from etude.app import App
from etude.cli.main import run_command
from etude.entities import SourceSpec
from etude.errors import Conflict, Damaged, Invalid, NotFound
from etude.operations.backup import (
    _restore_playbooks,
    check_backup,
    find_backup,
    list_backups,
    make_backup,
    open_backup_place,
    remove_backups,
    restore_backup,
)
from etude.store.identity import Identity
from etude.store.objects import Objects

Open = Callable[..., App]


@pytest.fixture
def new_store(store_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of another machine, whose store and object store are empty."""
    postgres = store_url.startswith("postgresql")
    url = request.getfixturevalue("postgres_server")() if postgres else f"sqlite:///{tmp_path}/new/etude.db"
    return {"home": tmp_path / "new", "store": url}


def test_playbooks_come_back_on_a_python_without_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 3.11.2, the Python of Debian 12."""
    extract = tarfile.TarFile.extractall
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: extract(self, path, filter="fully_trusted"))
    monkeypatch.delattr(tarfile, "data_filter")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        member = tarfile.TarInfo("playbooks/main/one/SKILL.md")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"do"))
    _restore_playbooks(tmp_path / "home", data.getvalue())
    assert (tmp_path / "home" / "playbooks/main/one/SKILL.md").read_bytes() == b"do"


@pytest.mark.parametrize("name", ["etude.toml", "playbooks/../etude.toml", "/etude.toml", "playbooks/link"])
def test_a_backup_that_was_changed_writes_nothing_but_playbooks(tmp_path: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        if name.endswith("link"):
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(member, io.BytesIO())
    with pytest.raises(Damaged, match="is not a playbook"):
        _restore_playbooks(tmp_path / "home", data.getvalue())
    assert list((tmp_path / "home").iterdir()) == []


def test_everything_comes_back(open_app: Open, new_store: dict[str, Any], shop: Path, tmp_path: Path) -> None:
    app = open_app()
    app.add_source("shop", SourceSpec(url=str(shop)))
    run_id = str(app.sql("shop", "SELECT count(*) AS n FROM orders", record=True).run_id)
    rows = app.result(run_id).rows()
    big = str(app.sql("shop", "SELECT range AS n FROM range(2_000_000)", record=True).run_id)
    thread = app.store.create_thread("a talk")
    app.store.add_message(thread.id, "user", "hello", run_id)
    _, secret = Identity(app.store).create_key("ana", "analyst", "acme")
    app.agents.create("echo", {"subject": "rain", "interval_s": 3600}, id="rain")
    app.agents.message("rain", {"subject": "snow"}, delay=3600, id="later")
    app.cataloger.run("shop")
    lesson = app.settings.home / "playbooks" / "main" / "plan" / "SKILL.md"
    lesson.parent.mkdir(parents=True)
    lesson.write_text("---\nname: plan\ndescription: x\n---\nx\n")
    place = open_backup_place(app.settings, str(tmp_path / "backups"))
    done = make_backup(app, place)
    assert done.manifest.missing == () and done.copied == done.manifest.artifact_count > 1
    assert make_backup(app, place).copied == 0, "the second one copies what is new"
    assert check_backup(place, done.manifest) == []
    app.close()
    shutil.rmtree(app.settings.home)

    new = App(**new_store)
    restored = restore_backup(new.settings, place, find_backup(place))
    assert restored.artifacts == done.manifest.artifact_count
    assert new.result(run_id).rows() == rows
    assert len(new.result(big)) == 2_000_000
    assert [run.id for run in new.store.runs().items][-2:] == [big, run_id]
    assert [message.text for message in new.store.messages(thread.id)] == ["hello"]
    assert Identity(new.store).authenticate(secret).tenant == "acme"
    assert new.agents.action("later").state == "delayed"
    assert new.cataloger.catalog_store("shop").latest() is not None
    assert (new.settings.home / "playbooks/main/plan/SKILL.md").read_text() == lesson_text()
    with Worker(new, new.agents.queue):
        wait_until(lambda: new.agents.get("rain").step_no >= 1)
        made = new.agents.create("echo", {"subject": "sun"})
        wait_until(lambda: new.agents.get(made.id).step_no >= 1)
    again = str(new.sql("shop", "SELECT 7 AS n", record=True).run_id)
    assert new.result(again).rows() == [(7,)]
    new.close()


def test_catalogs_in_a_store_of_their_own_come_back(
    open_app: Open, new_store: dict[str, Any], shop: Path, tmp_path: Path
) -> None:
    app = open_app(catalog={"store": str(tmp_path / "catalogs")})
    app.add_source("shop", SourceSpec(url=str(shop)))
    app.cataloger.run("shop")
    (name,) = app.cataloger.catalog_store("shop").names()
    place = open_backup_place(app.settings, str(tmp_path / "backups"))
    manifest = make_backup(app, place).manifest
    assert manifest.catalogs and check_backup(place, manifest) == []
    app.close()
    shutil.rmtree(app.settings.home)
    shutil.rmtree(tmp_path / "catalogs")

    with App(**new_store) as new, pytest.raises(Invalid, match="store of their own") as refused:
        restore_backup(new.settings, place, manifest)
    assert "catalog.store" in refused.value.hint
    with App(**new_store, catalog={"store": str(tmp_path / "new-catalogs")}) as new:
        restore_backup(new.settings, place, find_backup(place))
        assert new.cataloger.catalog_store("shop").names() == [name]


def lesson_text() -> str:
    return "---\nname: plan\ndescription: x\n---\nx\n"


def test_a_store_that_holds_something_is_not_overwritten(open_app: Open, tmp_path: Path) -> None:
    app = open_app()
    app.store.create_thread("mine")
    place = open_backup_place(app.settings, str(tmp_path / "backups"))
    make_backup(app, place)
    app.close()
    with pytest.raises(Conflict, match="not empty"):
        restore_backup(app.settings, place, find_backup(place))
    assert [thread.title for thread in open_app().store.threads().items] == ["mine"]


def test_work_that_is_acknowledged_during_a_backup_is_whole(
    open_app: Open, new_store: dict[str, Any], shop: Path, tmp_path: Path
) -> None:
    """Writers go on while backups are made; each backup has every run that had ended before it began."""
    app = open_app()
    app.sql(str(shop), "SELECT 1 AS x", record=True)
    acknowledged: list[tuple[str, int]] = []
    errors: list[BaseException] = []
    stop = threading.Event()

    def write(number: int) -> None:
        writer = open_app()
        value = number
        try:
            while not stop.is_set():
                value += 10
                acknowledged.append((str(writer.sql(str(shop), f"SELECT {value} AS x", record=True).run_id), value))
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in writers:
        thread.start()
    place = open_backup_place(app.settings, str(tmp_path / "backups"))
    try:
        wait_until(lambda: len(acknowledged) >= 3 or errors)
        make_backup(app, place)
        before = list(acknowledged)
        manifest = make_backup(app, place).manifest
        wait_until(lambda: len(acknowledged) > len(before) or errors)
    finally:
        stop.set()
        for thread in writers:
            thread.join()
    assert errors == [] and manifest.missing == ()
    new = App(**new_store)
    restore_backup(new.settings, place, manifest)
    for run_id, value in before:
        assert new.result(run_id).rows() == [(value,)]
    for run in new.store.runs(limit=1000).items:
        assert run.status in ("succeeded", "failed")
        if run.status == "succeeded":
            assert len(new.result(run.id)) == 1
    new.close()


def test_objects_and_backups_in_buckets(
    store_url: str, new_store: dict[str, Any], s3_server: S3, shop: Path, tmp_path: Path
) -> None:
    own = {"objects_options": s3_server.options}
    name = tmp_path.name.replace("_", "-")
    with App(home=tmp_path / "home", store=store_url, objects=f"{s3_server.url}/{name}/a", **own) as app:
        run_id = str(app.sql(str(shop), "SELECT 41 + 1 AS x", record=True).run_id)
        place = open_backup_place(app.settings, f"{s3_server.url}/{name}/backups")
        manifest = make_backup(app, place).manifest
    with App(**new_store, objects=f"{s3_server.url}/{name}/b", **own) as new:
        restore_backup(new.settings, open_backup_place(new.settings, f"{s3_server.url}/{name}/backups"), manifest)
        assert new.result(run_id).rows() == [(42,)]


def test_damage_is_found_and_said(open_app: Open, shop: Path, tmp_path: Path) -> None:
    app = open_app()
    run_id = str(app.sql(str(shop), "SELECT 1 AS x", record=True).run_id)
    lost = app.store.run(run_id).artifacts[0].hash
    path = app.objects.local_path(lost)
    assert path is not None
    path.unlink()
    place = open_backup_place(app.settings, str(tmp_path / "backups"))
    manifest = make_backup(app, place).manifest
    assert manifest.missing == (lost,)
    copy = place.local_path(manifest.store[0].hash)
    assert copy is not None
    copy.write_bytes(b"damaged")
    assert check_backup(place, manifest) == [manifest.store[0].hash]


def test_old_backups_are_removed_with_what_only_they_used(open_app: Open, shop: Path, tmp_path: Path) -> None:
    app = open_app()
    place = open_backup_place(app.settings, str(tmp_path / "backups"))
    for value in range(3):
        app.sql(str(shop), f"SELECT {value} AS x", record=True)
        make_backup(app, place)
    assert remove_backups(place, keep=1) == 2
    (left,) = list_backups(place)
    assert check_backup(place, left) == []
    assert left.artifact_count == 3
    with pytest.raises(Invalid, match="keep no backup"):
        remove_backups(place, keep=0)


def test_a_place_without_a_backup(open_app: Open, tmp_path: Path) -> None:
    app = open_app()
    with pytest.raises(NotFound, match="no backup"):
        find_backup(Objects(tmp_path / "empty"))
    with pytest.raises(Invalid, match="inside the object store"):
        open_backup_place(app.settings, str(app.settings.home / "objects" / "backups"))


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    with App() as app:
        app.store.create_thread("mine")
    place = str(tmp_path / "backups")
    assert run_command(["backup", place]) == 0
    assert run_command(["restore", place, "--check"]) == 0
    assert run_command(["restore", place, "--list"]) == 0
    assert "sqlite" in capsys.readouterr().out
    assert run_command(["restore", place]) == Conflict.exit_code
    assert "not empty" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "home")
    assert run_command(["restore", place]) == 0
    with App() as app:
        assert [thread.title for thread in app.store.threads().items] == ["mine"]
