"""Uploads whose process dies, or whose disk is full: a dataset is there whole, or nothing of it is."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.errors import Invalid, LimitExceeded, Unavailable
from etude.runtime import offline_model
from etude.store.objects import Objects
from etude.uploads import ReceivedFile, _file_names

SALES = b"region,amount\nnorth,10\nsouth,32\n"


def files_of(home: Path) -> list[Path]:
    return [p for p in home.rglob("*") if p.is_file() and "upload" in str(p)]


def add(app: App, data: bytes = SALES, name: str | None = None) -> str:
    with app.uploads.scratch() as folder:
        (folder / "0.part").write_bytes(data)
        return app.uploads.add([ReceivedFile("sales.csv", folder / "0.part")], name, "ann").name


def test_an_upload_that_begins_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    ended = threading.Event()
    with App(home=str(tmp_path / "home")) as app:

        def clean() -> None:
            while not ended.is_set():
                app.uploads.remove_leftovers()

        cleaner = threading.Thread(target=clean)
        cleaner.start()
        try:
            assert [add(app, name=f"n{number}") for number in range(20)] == [f"n{number}" for number in range(20)]
        finally:
            ended.set()
            cleaner.join()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("uploads._measure", id="before-anything-is-kept"),
        pytest.param("store.objects.sync_artifact_folder", id="when-the-file-is-in-the-object-store"),
        pytest.param("app.App.open_source", id="before-it-is-read"),
        pytest.param("store.base.Store.add_source", id="before-it-is-registered"),
    ],
)
def test_a_killed_process_leaves_no_part_of_an_upload(tmp_path: Path, moment: str) -> None:
    home = tmp_path / "home"
    with App(home=str(home)) as app:
        assert add(app, name="kept") == "kept"
    module, _, attribute = moment.rpartition(".")
    script = f"""
        import os, signal, sys
        from pathlib import Path
        from etude.app import App
        from etude.uploads import ReceivedFile
        import etude.uploads, etude.store.objects, etude.store.base, etude.app

        def die(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)

        etude.{module}.{attribute} = die
        app = App(home={str(home)!r})
        with app.uploads.scratch() as folder:
            (folder / "0.part").write_bytes({SALES!r})
            app.uploads.add([ReceivedFile("lost.csv", folder / "0.part")], "lost", "")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    with App(home=str(home)) as app:
        app.uploads.remove_leftovers()
        assert list(app.sources()) == ["kept"]
        assert app.sql("kept", "SELECT sum(amount) FROM sales").rows() == [(42,)]
        assert app.store.storage_use().files >= len(SALES)
        assert [p for p in files_of(home) if "lost" in str(p) or ".part" in str(p)] == []
        uploads = [p for p in (home / "objects" / "uploads" / "main").iterdir()]
        assert len(uploads) == 1
        assert len(list((home / "cache" / "uploads").iterdir())) == 1
        assert list((home / "scratch").glob("etude-upload-*")) == []


def test_an_upload_in_progress_is_not_a_leftover(tmp_path: Path) -> None:
    with App(home=str(tmp_path)) as app, App(home=str(tmp_path)) as other:
        opened = app.open_source

        def open_meanwhile(*arguments: object) -> object:
            other.uploads.remove_leftovers()
            return opened(*arguments)  # type: ignore[arg-type]

        app.open_source = open_meanwhile  # type: ignore[method-assign, assignment]
        add(app)
        other.uploads.remove_leftovers()
        assert other.sql("sales", "SELECT count(*) FROM sales").rows() == [(2,)]


def test_a_full_disk_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with App(home=str(tmp_path)) as app:
        with monkeypatch.context() as patch:
            patch.setattr("etude.store.objects.os.fsync", full)
            with pytest.raises(Unavailable, match="disk is full") as caught:
                add(app)
        assert caught.value.details["reason"] == "disk_full"
        assert app.sources() == {}
        assert files_of(tmp_path) == []
        assert add(app) == "sales"


def test_a_file_that_cannot_be_read_keeps_nothing(tmp_path: Path) -> None:
    with App(home=str(tmp_path)) as app:
        with pytest.raises(Invalid, match=r"`sales.csv`.*image"):
            add(app, b"\x89PNG" + bytes(100))
        assert files_of(tmp_path) == []


def test_files_of_a_cloud_are_copied_once_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects("memory://")
    with App(home=str(tmp_path / "one"), store=f"sqlite:///{tmp_path / 'store.db'}") as app:
        app.__dict__["objects"] = objects
        add(app)
        assert app.sql("sales", "SELECT sum(amount) FROM sales").rows() == [(42,)]
    with App(home=str(tmp_path / "two"), store=f"sqlite:///{tmp_path / 'store.db'}") as other:
        other.__dict__["objects"] = objects
        assert other.sql("sales", "SELECT sum(amount) FROM sales").rows() == [(42,)]
        other.remove_source("sales")
        assert list(objects.names("uploads")) == []
        assert files_of(tmp_path / "two") == []
    with App(home=str(tmp_path / "one"), store=f"sqlite:///{tmp_path / 'store.db'}") as app:
        app.__dict__["objects"] = objects
        app.uploads.remove_leftovers()
        assert files_of(tmp_path / "one") == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=150), min_size=1, max_size=6))
def test_any_name_of_a_file_is_made_plain(names: list[str]) -> None:
    made = _file_names([ReceivedFile(name, Path("x")) for name in names])
    assert len({name.lower() for name in made}) == len(names)
    for name in made:
        assert name and "/" not in name and "\0" not in name and not name.startswith(".")
        assert len(name.encode()) < 255


def test_what_an_archive_unpacks_to_counts_as_storage(tmp_path: Path) -> None:
    with App(home=str(tmp_path / "home")) as app, app.uploads.scratch() as folder:
        rows = "SELECT repeat('x', 1000) || n AS a FROM range(2000) AS t(n)"
        duckdb.sql(f"COPY ({rows}) TO '{tmp_path}/big.parquet' (COMPRESSION uncompressed)")
        packed = tmp_path / "big.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(tmp_path / "big.parquet", "big.parquet")
        shutil.copy(packed, folder / "0.part")
        unpacked = (tmp_path / "big.parquet").stat().st_size
        app.store.limit_storage(lambda tenant: unpacked)
        with pytest.raises(LimitExceeded, match="The upload has"):
            app.uploads.add([ReceivedFile("big.zip", folder / "0.part")], "big", "")
        assert not app.sources() and list((tmp_path / "home" / "cache" / "uploads").iterdir()) == []
        app.store.limit_storage(lambda tenant: 10 * unpacked)
        shutil.copy(packed, folder / "1.part")
        app.uploads.add([ReceivedFile("big.zip", folder / "1.part")], "big", "")
        assert app.store.storage_use().files >= unpacked
        app.uploads.remove("big", app.sources()["big"])
        assert app.store.storage_use().files == 0


def test_an_upload_is_refused_while_it_unpacks_to_more_than_the_quota(tmp_path: Path) -> None:
    with App(home=str(tmp_path / "home")) as app, app.uploads.scratch() as folder:
        with zipfile.ZipFile(tmp_path / "big.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            # As Parquet, it would have a few kilobytes.
            archive.writestr("big.csv", "a,b\n" + "".join(f"{n % 10},{'x' * 50}\n" for n in range(1_000_000)))
        shutil.copy(tmp_path / "big.zip", folder / "0.part")
        app.store.limit_storage(lambda tenant: 20 << 20)
        with pytest.raises(LimitExceeded, match="The upload has") as refused:
            app.uploads.add([ReceivedFile("big.zip", folder / "0.part")], "big", "")
        assert refused.value.details["limit"] == "storage"
        assert not app.sources() and list((tmp_path / "home" / "cache" / "uploads").iterdir()) == []
        app.store.limit_storage(lambda tenant: 200 << 20)
        shutil.copy(tmp_path / "big.zip", folder / "1.part")
        report = app.uploads.add([ReceivedFile("big.zip", folder / "1.part")], "big", "")
        assert report.tables[0].rows == 1_000_000


def test_the_words_of_an_upload_are_removed_with_it(tmp_path: Path) -> None:
    with App(home=str(tmp_path / "home"), model="offline") as app:
        for name in ("theirs", "ours"):
            add(app, name=name)
            assert app.ask(name, "total amount by region").ok
        kept = tmp_path / "home" / "cache" / "vocabulary"
        assert len(list(kept.glob("*.json"))) == 2
        app.uploads.remove("ours", app.sources()["ours"])
        assert len(list(kept.glob("*"))) == 1
        assert {*kept.glob("*")} >= {each.path for each in offline_model._kept.values() if each.path.parent == kept}
        assert app.ask("theirs", "total amount by region").ok
