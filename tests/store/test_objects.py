from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from etude.errors import Invalid, NotFound, Unavailable
from etude.store.check import check_objects
from etude.store.objects import Capabilities, Objects

ABSENT = "0" * 64


@pytest.fixture(params=["folder", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return Objects(tmp_path / "objects")
    if request.param == "memory":
        return Objects("memory://")
    s3 = request.getfixturevalue("s3_server")
    return Objects(f"{s3.url}/{uuid4().hex}", **s3.options)


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff" * 50_000])
def test_bytes_come_back(objects: Objects, data: bytes, tmp_path: Path) -> None:
    artifact = objects.put(data, "application/octet-stream")
    assert artifact.hash == hashlib.sha256(data).hexdigest()
    assert (artifact.size, artifact.media) == (len(data), "application/octet-stream")
    assert objects.get(artifact.hash) == data
    assert objects.exists(artifact.hash)
    objects.download(artifact.hash, tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_bytes() == data


@pytest.mark.parametrize("size", [10, 20 << 20])
def test_a_file_comes_back(objects: Objects, size: int, tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(1 << 10) * (size >> 10 or 1))
    artifact = objects.put(path, "x/y")
    assert artifact.size == path.stat().st_size
    assert artifact.hash == hashlib.sha256(path.read_bytes()).hexdigest()
    objects.download(artifact.hash, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    assert objects.put(path, "x/y") == artifact


def test_what_is_kept_already_is_not_written_again(objects: Objects) -> None:
    artifact = objects.put(b"once", "x/y")
    key = f"artifacts/{artifact.hash[:2]}/{artifact.hash}"
    before = objects._store.head(key)
    assert objects.put(b"once", "x/y") == artifact
    path = objects.local_path(artifact.hash)
    if path is None:
        assert objects._store.head(key) == before
    else:
        # It counts as new, so that it is not collected before a run refers to it.
        os.utime(path, (0, 0))
        file = path.stat().st_ino
        objects.put(b"once", "x/y")
        assert (path.stat().st_ino, path.stat().st_mtime > 0) == (file, True)


def test_threads_put_the_same_at_once(objects: Objects) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: objects.put(b"same" * 1000, "x/y"), range(16)))
    assert len(made) == 1
    assert objects.get(made.pop().hash) == b"same" * 1000


def test_what_is_absent_is_not_found(objects: Objects, tmp_path: Path) -> None:
    assert not objects.exists(ABSENT)
    with pytest.raises(NotFound, match=ABSENT):
        objects.get(ABSENT)
    with pytest.raises(NotFound):
        objects.download(ABSENT, tmp_path / "copy")
    assert list(tmp_path.glob("copy*")) == []


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "0" * 63, "0" * 65, "G" * 64, "A" * 64, f"{ABSENT}\n"])
def test_what_is_no_hash_is_refused(objects: Objects, name: str, tmp_path: Path) -> None:
    calls: list[Callable[[str], Any]] = [
        objects.get,
        objects.exists,
        lambda h: objects.download(h, tmp_path / "x"),
    ]
    for call in calls:
        with pytest.raises(Invalid, match="not the hash"):
            call(name)


def test_a_damaged_object_is_noticed_and_healed(objects: Objects, tmp_path: Path) -> None:
    artifact = objects.put(b"precious", "x/y")
    key = f"artifacts/{artifact.hash[:2]}/{artifact.hash}"
    objects._store.put(key, b"prec")
    with pytest.raises(Unavailable, match="damaged"):
        objects.get(artifact.hash)
    with pytest.raises(Unavailable, match="damaged"):
        objects.download(artifact.hash, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    objects.put(b"precious", "x/y")
    assert objects.get(artifact.hash) == b"precious"


def test_a_file_that_changes_while_it_is_stored_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"a" * (9 << 20))
    objects = Objects("memory://")
    real = objects._store.head

    def change_then_ask(key: str) -> Any:
        big.write_bytes(b"b" * (9 << 20))
        return real(key)

    monkeypatch.setattr(objects, "_store", Changing(objects._store, change_then_ask))
    with pytest.raises(Invalid, match="changed while it was stored"):
        objects.put(big, "x/y")
    assert list(objects._store.list()) == []


class Changing:
    """An object store whose `head` does something first."""

    def __init__(self, store: Any, head: Callable[[str], Any]) -> None:
        self._store, self.head = store, head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_store_without_conditional_writes_still_keeps_artifacts(s3_server: Any) -> None:
    objects = Objects(f"{s3_server.url}/plain", conditional_put="disabled", **s3_server.options)
    assert objects.get(objects.put(b"x", "x/y").hash) == b"x"
    assert objects.probe() == Capabilities(create=False, update=False)


def test_a_file_that_cannot_be_read_is_named(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"gone.*No such file"):
        objects.put(tmp_path / "gone", "x/y")
    with pytest.raises(Invalid, match="cannot be read"):
        objects.put(tmp_path, "x/y")


def test_a_target_that_cannot_be_written_is_named(objects: Objects, tmp_path: Path) -> None:
    artifact = objects.put(b"x", "x/y")
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match="cannot be written"):
        objects.download(artifact.hash, tmp_path / "file" / "copy")


# Conditional writes.


def test_the_probe_tells_what_a_folder_and_memory_honour(tmp_path: Path) -> None:
    folder = Objects(tmp_path / "o")
    assert folder.probe() == Capabilities(create=True, update=False)
    assert list((tmp_path / "o").iterdir()) == []
    assert Objects("memory://").probe() == Capabilities(create=True, update=True)


def test_the_probe_sees_that_rclone_ignores_conditions(s3_server: Any) -> None:
    objects = Objects(f"{s3_server.url}/probed", **s3_server.options)
    assert objects.probe() == Capabilities(create=False, update=False)
    assert objects.check() == {"url": "s3://bucket/probed", "create": False, "update": False}
    assert list((s3_server.folder / "probed").rglob("probe_*")) == []


def test_the_probe_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(tmp_path)
    found = objects.probe()
    monkeypatch.setattr(objects, "_refuses", None)
    assert objects.probe() is found


# Folders.


def test_a_folder_is_read_in_place(tmp_path: Path) -> None:
    for url in (tmp_path / "a", str(tmp_path / "a"), f"file://{tmp_path}/a"):
        objects = Objects(url)
        artifact = objects.put(b"table", "x/y")
        path = objects.local_path(artifact.hash)
        assert path == tmp_path / "a" / "artifacts" / artifact.hash[:2] / artifact.hash
        assert path.read_bytes() == b"table"
    with pytest.raises(NotFound):
        objects.local_path(ABSENT)
    with pytest.raises(Invalid):
        objects.local_path("..")


def test_other_stores_have_no_local_path(s3_server: Any) -> None:
    assert Objects("memory://").local_path(ABSENT) is None
    assert Objects(s3_server.url, **s3_server.options).local_path(ABSENT) is None


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("etude.store.objects.os.fsync", full)
    with pytest.raises(Unavailable, match="disk is full") as caught:
        objects.put(b"x", "x/y")
    assert caught.value.details["reason"] == "disk_full"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_killed_write_leaves_no_part_under_a_name(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from etude.store.objects import Objects
objects = Objects(sys.argv[1])
print("ready", flush=True)
while True:
    objects.put(os.urandom(3_000_000), "x/y")
"""
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout
    writer.stdout.readline()
    while len(list(tmp_path.glob("artifacts/??/*"))) < 10:
        assert writer.poll() is None
    writer.kill()
    writer.communicate()
    named = list(tmp_path.glob("artifacts/??/*"))
    assert len(named) >= 10
    assert all(hashlib.sha256(p.read_bytes()).hexdigest() == p.name for p in named)


def test_a_big_file_is_not_held_in_memory(tmp_path: Path, s3_server: Any) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(128 << 20)
    code = """
import json, re, sys
from pathlib import Path
from etude.store.objects import Objects

def peak_mb():
    # Not ru_maxrss: a new process starts with its parent's.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

for url, options in json.loads(sys.argv[1]):
    objects = Objects(url, **options)
    before = peak_mb()
    artifact = objects.put(Path(sys.argv[2]), "x/y")
    objects.download(artifact.hash, Path(sys.argv[2] + ".copy"))
    print(peak_mb() - before)
"""
    places = [(str(tmp_path / "o"), {}), (f"{s3_server.url}/big", s3_server.options)]
    command = [sys.executable, "-c", code, json.dumps(places), str(big)]
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [int(mb) < 100 for mb in grown] == [True, True], grown


# Trouble.


def test_a_server_that_is_not_there_is_unavailable_soon() -> None:
    keys = {"access_key_id": "k", "secret_access_key": "hush", "region": "x"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        objects = Objects("s3://bucket/p", endpoint=endpoint, allow_http=True, **keys)
        calls: list[Callable[[], Any]] = [
            lambda: objects.get(ABSENT),
            lambda: objects.put(b"x", "x/y"),
            objects.check,
        ]
        for call in calls:
            with pytest.raises(Unavailable, match="s3://bucket/p") as caught:
                call()
            assert "hush" not in str(caught.value)


def test_wrong_keys_are_denied(s3_server: Any) -> None:
    objects = Objects(f"{s3_server.url}/p", **s3_server.options | {"secret_access_key": "wrong"})
    calls: list[Callable[[], Any]] = [
        lambda: objects.get(ABSENT),
        lambda: objects.exists(ABSENT),
        lambda: objects.put(b"x", "x/y"),
        objects.check,
    ]
    for call in calls:
        with pytest.raises(Unavailable, match="denied"):
            call()


def test_a_bucket_that_is_not_there_is_said(s3_server: Any) -> None:
    objects = Objects("s3://nowhere/p", **s3_server.options)
    with pytest.raises(Unavailable, match="does not exist"):
        objects.get(ABSENT)
    with pytest.raises(Unavailable, match="cannot be used"):
        objects.put(b"x", "x/y")


def test_keys_may_come_from_the_environment(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    objects = Objects(f"{s3_server.url}/env")
    assert objects.get(objects.put(b"x", "x/y").hash) == b"x"


def test_plain_http_must_be_allowed(s3_server: Any) -> None:
    options = {name: value for name, value in s3_server.options.items() if name != "allow_http"}
    with pytest.raises(Unavailable, match="allow_http"):
        Objects(s3_server.url, **options).check()


@pytest.mark.parametrize("url", ["ftp://x/y", "http://x/y", "s3:///", "zz://hush:hush@x"])
def test_what_is_no_place_for_artifacts_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        Objects(url)
    assert "hush" not in str(caught.value)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(Invalid, match="nonsense"):
        Objects("s3://bucket", nonsense="x")


def test_a_folder_that_cannot_be_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be used"):
        Objects(tmp_path / "file" / "x")


def test_a_url_shows_no_secrets() -> None:
    assert Objects("s3://key:hush@bucket/p?token=hush", region="x").url == "s3://bucket/p"


def test_leftovers_of_killed_writes_are_removed_once_they_are_old(tmp_path: Path) -> None:
    kept = Objects(tmp_path).put(b"kept", "x/y")
    old, young = tmp_path / "artifacts" / ".part-old", tmp_path / "artifacts" / ".part-young"
    for path in (old, young):
        path.write_bytes(b"half")
    two_days_ago = time.time() - 48 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    objects = Objects(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
    assert objects.get(kept.hash) == b"kept"


def test_an_object_store_passes_its_checks(objects: Objects) -> None:
    assert [(r.name, r.detail) for r in check_objects(lambda: objects) if not r.ok] == []


def test_an_unusable_object_store_fails_its_checks(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    results = list(check_objects(lambda: Objects(tmp_path / "file" / "objects")))
    assert [r.ok for r in results] == [False] * 3
    assert "cannot be used" in results[0].detail


def test_an_unused_artifact_is_collected_unless_it_was_stored_again(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cloud it can be brought back for a while."""
    artifact = objects.put(b"some result", "x/y")
    now = datetime.now(UTC)
    assert objects.collect(artifact.hash, now - timedelta(hours=1)) is None
    assert objects.get(artifact.hash) == b"some result"
    later = now + timedelta(hours=1)
    assert objects.collect(artifact.hash, later) == artifact.size
    assert not objects.exists(artifact.hash)
    assert objects.collect(artifact.hash, later) == 0
    assert objects.put(b"some result", "x/y") == artifact
    assert objects.collect(artifact.hash, later) == artifact.size
    assert objects.empty_trash(lambda _: True) == 0, "it is not old enough"
    monkeypatch.setattr("etude.store.objects.TRASH_S", -3600.0)
    brought_back = objects.empty_trash(lambda _: True)
    assert objects.exists(artifact.hash) == bool(brought_back)
    assert list(objects.artifacts()) == [artifact.hash] * brought_back


def test_an_object_of_a_cloud_that_is_stored_again_counts_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects("memory://")
    artifact = objects.put(b"some result", "x/y")
    key = f"artifacts/{artifact.hash[:2]}/{artifact.hash}"
    first = objects._store.head(key)["last_modified"]
    monkeypatch.setattr("etude.store.objects.YOUNG_S", -1.0)
    assert objects.put(b"some result", "x/y") == artifact
    assert objects._store.head(key)["last_modified"] > first
