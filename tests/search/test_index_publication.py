"""Versions of an index: the last good one stays valid whatever happens, in a folder and on a real S3 server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.patience import wait_until

from etude.app import App
from etude.search import lance_index
from etude.store.objects import Objects

INDEXER = """
import sys
from etude.app import App

with App(home=sys.argv[1], search={"backend": sys.argv[3]}) as app:
    print("ready", flush=True)
    app.indexes.build(sys.argv[2], rebuild=True, on_progress=lambda what, share: print(what, flush=True))
"""


def write_notes(path: Path, word: str, rows: int) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE OR REPLACE TABLE notes (id INTEGER PRIMARY KEY, about VARCHAR)")
        db.execute(f"INSERT INTO notes SELECT i, '{word} note number ' || i FROM range({rows}) t(i)")


def versions(app: App) -> list[str]:
    root = app.settings.home / "objects" / "search"
    return sorted(p.name for p in root.glob("*/index_*"))


@pytest.mark.parametrize("backend", ["exact", "lance"])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 4])
def test_kill_9_leaves_the_last_good_version(tmp_path: Path, backend: str, step: int) -> None:
    """It is killed at a step of its work: while it reads, while it embeds, while it writes."""
    path, home = tmp_path / "notes.duckdb", tmp_path / "home"
    write_notes(path, "apple", 50)
    with App(home=home, search={"backend": backend}) as app:
        first = app.indexes.build(str(path))
        write_notes(path, "banana", 9_000)
        indexer = subprocess.Popen(
            [sys.executable, "-c", INDEXER, str(home), str(path), backend], stdout=subprocess.PIPE, text=True
        )
        assert indexer.stdout is not None
        assert indexer.stdout.readline() == "ready\n"
        for _ in range(step):
            assert indexer.stdout.readline()
        indexer.kill()
        indexer.wait()
        indexer.stdout.close()
        manifest = app.indexes.find(str(path))
        assert manifest is not None
        page = app.search("note", str(path), kinds=["row"], k=50)
        words = {hit.snippet.split()[0] for hit in page.hits}
        assert words == ({"apple"} if manifest.version == first.version else {"banana"})
        app.indexes.build(str(path))
        assert {h.snippet.split()[0] for h in app.search("note", str(path), kinds=["row"]).hits} == {"banana"}


@pytest.mark.parametrize("backend", ["exact", "lance"])
def test_a_search_while_indexing_sees_one_whole_version(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "notes.duckdb"
    write_notes(path, "word0", 300)
    seen: list[set[str]] = []
    failed: list[BaseException] = []
    done = threading.Event()
    with App(home=tmp_path / "home", search={"backend": backend}) as app:
        app.indexes.build(str(path))

        def search() -> None:
            try:
                while not done.is_set():
                    hits = app.search("note", str(path), kinds=["row"], k=100, mode="text").hits
                    seen.append({hit.snippet.split()[0] for hit in hits})
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(1, 5):
            before = len(seen)
            write_notes(path, f"word{number}", 300)
            app.indexes.build(str(path))
            wait_until(lambda before=before: len(seen) > before + 2 or bool(failed))
        done.set()
        for thread in threads:
            thread.join()
        last = app.search("note", str(path), kinds=["row"], k=100, mode="text").hits
    assert failed == []
    assert all(len(words) == 1 for words in seen)
    assert {hit.snippet.split()[0] for hit in last} == {"word4"}


def test_versions_that_nobody_reads_are_removed(app: App, tmp_path: Path) -> None:
    path = tmp_path / "notes.duckdb"
    for number in range(4):
        write_notes(path, f"word{number}", 3)
        app.indexes.build(str(path))
    assert len(versions(app)) == 2
    app.indexes.remove(str(path))
    assert versions(app) == []


def test_what_a_killed_process_left_is_removed_after_a_day(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes.duckdb"
    write_notes(path, "word", 3)
    built = app.indexes.build(str(path))
    root = next((app.settings.home / "objects" / "search").glob("*"))
    left = root / (built.version[:-1] + ("1" if built.version.endswith("0") else "0"))  # of the same time
    left.mkdir()
    (left / "documents.parquet").write_bytes(b"half")
    write_notes(path, "other", 3)
    app.indexes.build(str(path))
    assert left.exists()
    monkeypatch.setattr("etude.search.index_publication.ABANDONED_S", -60.0)
    write_notes(path, "third", 3)
    app.indexes.build(str(path))
    assert not left.exists()


def test_the_slower_of_two_builders_does_not_undo_the_faster(app: App, tmp_path: Path) -> None:
    path = tmp_path / "notes.duckdb"
    write_notes(path, "old", 3)
    reached, proceed = threading.Event(), threading.Event()

    def hold(what: str, share: float) -> None:
        if "indexed" in what:
            reached.set()
            proceed.wait(60)

    slow = threading.Thread(target=lambda: app.indexes.build(str(path), on_progress=hold))
    slow.start()
    assert reached.wait(60)
    write_notes(path, "new", 3)
    app.indexes.build(str(path))
    proceed.set()
    slow.join()
    assert {h.snippet.split()[0] for h in app.search("note", str(path), kinds=["row"]).hits} == {"new"}


@pytest.mark.parametrize("backend", ["exact", "lance"])
def test_it_works_on_a_real_s3_server(tmp_path: Path, agency: str, s3_server: Any, backend: str) -> None:
    place = {"store": f"{s3_server.url}/{backend}-{time.time_ns()}", "store_options": s3_server.options}
    with App(home=tmp_path / "home", search={"backend": backend, **place}) as app:
        built = app.indexes.build(agency)
        assert (built.backend, built.notes) == (backend, [])
        assert app.search("forklift in a warehouse", agency, kinds=["row"]).hits[0].key == {"id": 1}
        with duckdb.connect(agency) as db:
            db.execute("DELETE FROM workers WHERE id = 1")
        app.indexes.build(agency)
        assert app.search("forklift", agency, kinds=["row"], mode="text").hits[0].key != {"id": 1}
        app.indexes.remove(agency)
        assert app.indexes.find(agency) is None
    assert not list(s3_server.folder.rglob(f"{backend}-*/search/**/*.lance"))


def test_a_store_that_lancedb_cannot_use_is_told(tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    nowhere = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "region": "x"}
    keys = {"access_key_id": "k", "secret_access_key": "s", "client_max_retries": "0"}
    assert "LanceDB cannot use" in lance_index.check_lance_store(
        Objects("s3://bucket/x", **nowhere, **{k: v for k, v in keys.items() if "client" not in k}), {**nowhere, **keys}
    )
    assert lance_index.check_lance_store(Objects(tmp_path / "folder"), {}) == ""
