"""Where runs are kept: the newest complete one is found at once, whoever else writes and whatever breaks off."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from catalog.proxy import proxy_to
from etude.catalog.storage.catalog_store import METRICS, CatalogStore, StoredCatalog, StoredMetrics, catalog_run_name
from etude.errors import Damaged, EtudeError, Invalid, NotFound, Unavailable
from etude.store.objects import Objects

START = datetime(2025, 1, 1, tzinfo=UTC)
FILES = {"catalog.json": b"{}", "catalog_script.py": b"1"}


@pytest.fixture(params=["folder", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    match request.param:
        case "folder":
            return Objects(tmp_path / "objects")
        case "memory":
            return Objects("memory://")
        case _:
            s3: Any = request.getfixturevalue("s3_server")
            return Objects(s3.url, **s3.options)


@pytest.fixture
def catalog_store(objects: Objects) -> CatalogStore:
    return CatalogStore(objects, "orders", root=uuid4().hex)


def make_run(at: datetime = START, **more: Any) -> StoredCatalog:
    return StoredCatalog(name=catalog_run_name(at), source="shop", dialect="duckdb", fingerprint="f", **more)


def metrics(run: StoredCatalog) -> bytes:
    return StoredMetrics(stored=run).model_dump_json().encode()


def publish(catalog_store: CatalogStore, at: datetime = START, files: dict[str, bytes] | None = None) -> StoredCatalog:
    return catalog_store.publish(make_run(at), FILES if files is None else files, metrics)


def test_nothing_there_means_the_first_run(catalog_store: CatalogStore) -> None:
    assert catalog_store.latest() is None
    assert catalog_store.recent() == []
    assert catalog_store.script_of("duckdb", "catalog_script.py") is None


def test_the_newest_run_wins_in_whatever_order_they_end(catalog_store: CatalogStore) -> None:
    newest = publish(catalog_store, START + timedelta(days=2))
    publish(catalog_store, START + timedelta(days=1))
    assert catalog_store.latest() == newest
    assert catalog_store.read(newest, "catalog.json") == b"{}"
    assert [r.name for r in catalog_store.recent()] == sorted((r.name for r in catalog_store.recent()), reverse=True)


def test_a_run_without_its_last_file_is_not_there(catalog_store: CatalogStore, objects: Objects) -> None:
    whole = publish(catalog_store)
    half = make_run(START + timedelta(days=1))
    objects.write(f"{catalog_store.prefix}/{half.name}/catalog.json", b"{}", "application/json")
    assert catalog_store.latest() == whole


def test_a_newer_run_counts_though_nobody_pointed_to_it(catalog_store: CatalogStore, objects: Objects) -> None:
    publish(catalog_store)
    newer = make_run(START + timedelta(days=1))
    objects.write(f"{catalog_store.prefix}/{newer.name}/{METRICS}", metrics(newer), "application/json")
    assert catalog_store.latest() == newer


@pytest.mark.parametrize("pointer", [None, b"", b"{", b'{"name": 1}'])
def test_without_a_pointer_the_runs_themselves_are_looked_at(
    catalog_store: CatalogStore, objects: Objects, pointer: bytes | None
) -> None:
    runs = [publish(catalog_store, START + timedelta(hours=n)) for n in range(12)]
    place = f"{catalog_store.prefix}/latest.json"
    if pointer is None:
        objects.remove(place)
    else:
        objects.write(place, pointer, "application/json")
    assert catalog_store.latest() == runs[-1]
    assert [r.name for r in catalog_store.recent()] == [r.name for r in runs[:1:-1]]


def test_a_file_that_was_changed_is_not_taken(catalog_store: CatalogStore, objects: Objects) -> None:
    run = publish(catalog_store)
    objects.write(f"{catalog_store.prefix}/{run.name}/catalog_script.py", b"import os", "text/x-python")
    with pytest.raises(Damaged, match="is damaged: it is not what was written"):
        catalog_store.read(run, "catalog_script.py")
    with pytest.raises(NotFound):
        catalog_store.read(run, "other.json")


def test_no_flipped_bit_of_the_records_changes_what_is_read() -> None:
    objects = Objects("memory://")
    catalog_store = CatalogStore(objects, "orders")
    run = publish(catalog_store)
    for place in (f"{catalog_store.prefix}/latest.json", f"{catalog_store.prefix}/{run.name}/{METRICS}"):
        whole = objects.read(place)
        for number in range(0, len(whole) * 8, 7):
            data = bytearray(whole)
            data[number // 8] ^= 1 << number % 8
            objects.write(place, bytes(data), "application/json")
            assert catalog_store.latest() == run
        objects.write(place, whole, "application/json")


def test_a_damaged_earlier_run_is_left_out_of_the_history(catalog_store: CatalogStore, objects: Objects) -> None:
    first = publish(catalog_store)
    second = publish(catalog_store, START + timedelta(days=1))
    said: list[str] = []
    catalog_store = CatalogStore(objects, catalog_store.prefix, report=said.append)
    second = second.model_copy(update={"history": (first.name,)})
    assert list(catalog_store.history(second)) == [b"{}", b"{}"]
    objects.write(f"{catalog_store.prefix}/{first.name}/catalog.json", b"[]", "application/json")
    assert list(catalog_store.history(second)) == [b"{}"]
    assert "damaged" in said[0] and first.name in said[0]


def test_what_cannot_be_written_whole_leaves_nothing(catalog_store: CatalogStore, objects: Objects) -> None:
    before = publish(catalog_store)
    with pytest.raises(EtudeError):
        publish(catalog_store, START + timedelta(days=1), {"catalog.json": b"{}", "no/../place": b""})
    assert catalog_store.latest() == before
    assert {n.split("/")[2] for n in objects.names(catalog_store.prefix)} == {before.name, "latest.json"}


@pytest.mark.parametrize("prefix", ["", "/", "..", "a/../b", "_scripts", "tenants/other/shop", "a b", "a//.."])
def test_a_prefix_is_a_plain_place(prefix: str) -> None:
    with pytest.raises(Invalid):
        CatalogStore(Objects("memory://"), prefix)


def test_many_who_write_at_once_never_lead_back(objects: Objects) -> None:
    """Sixteen writers, and a reader who looks all the time: what it finds is complete and never older than before."""
    prefix = f"many/{uuid4().hex}"
    names: list[str] = []
    seen: list[str] = []
    broken: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            for n in range(4):
                run = publish(CatalogStore(objects, prefix), START + timedelta(minutes=(number * 7 + n * 5) % 61))
                names.append(run.name)
        except BaseException as error:
            broken.append(error)

    def look() -> None:
        catalog_store, over = CatalogStore(objects, prefix), False
        while not over:
            over = done.is_set()  # one more look then: it may have had no turn before
            found = catalog_store.latest()
            if found is not None:
                seen.append(found.name)
                assert catalog_store.read(found, "catalog_script.py") == b"1"

    reader = threading.Thread(target=look)
    writers = [threading.Thread(target=write, args=(n,)) for n in range(16)]
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not broken
    assert len(names) == 64
    assert seen and seen == sorted(seen)
    pointed = StoredCatalog.model_validate_json(objects.read(f"{prefix}/latest.json"))
    assert pointed.name == max(names)


def test_the_latest_of_ten_thousand_runs_takes_two_requests(s3_server: Any) -> None:
    """The runs are made as files below the server's folder; what is asked of the server is counted by a proxy."""
    prefix = f"much/{uuid4().hex}"
    folder = s3_server.folder / prefix
    for n in range(10_000):
        run = make_run(START + timedelta(minutes=n))
        (folder / run.name).mkdir(parents=True)
        (folder / run.name / METRICS).write_bytes(metrics(run))
        (folder / run.name / "catalog_script.py").write_bytes(b"1")
    (folder / "latest.json").write_text(run.model_dump_json())
    with proxy_to(s3_server.options["endpoint"]) as proxy:
        catalog_store = CatalogStore(Objects(s3_server.url, **(s3_server.options | {"endpoint": proxy.url})), prefix)
        assert catalog_store.latest() == run
        assert len(proxy.seen) == 2, proxy.seen
        publish(catalog_store, START + timedelta(days=300))
        del proxy.seen[:]
        assert catalog_store.latest() != run
        assert len(proxy.seen) == 2, proxy.seen


def test_trouble_of_the_store_is_told_and_tried_again(s3_server: Any) -> None:
    told: list[str] = []
    with proxy_to(s3_server.options["endpoint"]) as proxy:
        objects = Objects(s3_server.url, **(s3_server.options | {"endpoint": proxy.url}))
        catalog_store = CatalogStore(objects, f"trouble/{uuid4().hex}", report=told.append)
        proxy.failing = 6  # the client itself tries four times
        assert catalog_store.latest() is None
        assert len(told) == 1 and "Trying again" in told[0]
        proxy.failing = 1000
        with pytest.raises(Unavailable):
            catalog_store.latest()
        proxy.failing = 0
        run = publish(catalog_store)
        assert catalog_store.latest() == run
