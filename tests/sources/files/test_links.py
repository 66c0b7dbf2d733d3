"""A symbolic link in a folder leads to no file outside of it, whenever it is put there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude import process_confinement
from etude.app import App
from etude.entities import Limits
from etude.errors import EtudeError, Invalid
from etude.sources.engine_client import EngineLimits
from etude.sources.engine_pool import EnginePool
from etude.sources.files.discover import discover, discover_files
from etude.sources.files.file_cache import load_files_through_cache
from etude.sources.source import stream_source_query

needs_landlock = pytest.mark.skipif(process_confinement.process_landlock_abi() < 1, reason="the system has no Landlock")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "secret.csv").write_text("word\nTOPSECRET\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "deep.csv").write_text("word\nTOPSECRET\n")
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "orders.csv").write_text("id\n1\n")
    return folder


@pytest.fixture(scope="module")
def pool() -> Iterator[EnginePool]:
    opened = EnginePool(EngineLimits(memory=1 << 30, scratch_bytes=1 << 30, threads=1), size=1)
    yield opened
    opened.close()


def test_a_link_out_of_the_folder_is_not_followed_and_named(data: Path) -> None:
    (data / "out.csv").symlink_to(data.parent / "secret.csv")
    (data / "sub" / "up.csv").symlink_to("../../secret.csv")
    (data / "folder").symlink_to(data.parent / "outside")
    found = discover_files(str(data))
    assert [t.table for t in found.tables] == ["orders"]
    assert found.links == ("folder", "out.csv", "sub/up.csv")


def test_a_link_within_the_folder_is_a_file_of_its_own_name(data: Path) -> None:
    (data / "latest.csv").symlink_to("orders.csv")
    found = discover_files(str(data))
    assert [(t.table, t.paths) for t in found.tables] == [
        ("latest", (str(data / "orders.csv"),)),
        ("orders", (str(data / "orders.csv"),)),
    ]
    assert found.links == ()


def test_a_pattern_leads_out_by_no_linked_file_or_folder(data: Path) -> None:
    (data / "out.csv").symlink_to(data.parent / "secret.csv")
    (data / "folder").symlink_to(data.parent / "outside")
    found = discover_files(f"{data}/**/*.csv")
    assert [t.paths for t in found.tables] == [(str(data / "orders.csv"),)]
    assert set(found.links) >= {"out.csv"}


def test_a_folder_beside_with_a_longer_name_is_outside(data: Path) -> None:
    beside = data.parent / "data2"
    beside.mkdir()
    (beside / "x.csv").write_text("a\n1\n")
    (data / "x.csv").symlink_to(beside / "x.csv")
    assert discover_files(str(data)).links == ("x.csv",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_owner_with_a_second_name_is_not_read(data: Path) -> None:
    os.link(data.parent / "secret.csv", data / "out.csv")
    assert discover_files(str(data)).links == ()  # the folder and the file have the same owner
    os.chown(data, 12345, 12345)
    found = discover_files(str(data))
    assert [t.table for t in found.tables] == ["orders"]  # its only name is in the folder
    assert found.links == ("out.csv",)
    assert [t.table for t in discover(str(data), follow_links=True)] == ["orders", "out"]


def test_links_that_were_asked_for_are_followed(data: Path) -> None:
    (data / "out.csv").symlink_to(data.parent / "secret.csv")
    (data.parent / "named").symlink_to(data)
    assert [t.table for t in discover(str(data), follow_links=True)] == ["orders", "out"]
    assert [t.table for t in discover(str(data / "out.csv"))] == ["out"]
    assert [t.table for t in discover(str(data.parent / "named"))] == ["orders"]


def test_a_folder_of_links_alone_is_an_error_that_names_them(data: Path) -> None:
    (data / "orders.csv").unlink()
    (data / "out.csv").symlink_to(data.parent / "secret.csv")
    with pytest.raises(Invalid, match=r"`out\.csv` lead out of the folder") as caught:
        discover_files(str(data))
    assert "follow_links" in (caught.value.hint or "")


def test_the_catalog_says_what_was_not_followed(data: Path, tmp_path: Path) -> None:
    (data / "out.csv").symlink_to(data.parent / "secret.csv")
    with App(home=tmp_path / "home") as app:
        catalog = app.source(str(data)).catalog()
        assert [t.name for t in catalog.tables] == ["orders"]
        assert any("`out.csv`" in note and "outside the folder" in note for note in catalog.notes)


@needs_landlock
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_that_takes_the_place_of_a_file_after_it_was_found_leads_nowhere(
    data: Path, tmp_path: Path, pool: EnginePool, kind: str, what: str
) -> None:
    for path in (data / "sub" / f"a.{kind}", tmp_path / "outside" / f"a.{kind}"):
        duckdb.sql(f"COPY (SELECT '{path.parent.name}' AS word) TO '{path}' (FORMAT {kind})")
    found = [t for t in discover(str(data)) if t.table == "sub"]
    assert load_files_through_cache(found, tmp_path / "control", pool)[0]
    if what == "file":
        (data / "sub" / f"a.{kind}").unlink()
        (data / "sub" / f"a.{kind}").symlink_to(tmp_path / "outside" / f"a.{kind}")
    else:
        os.rename(data / "sub", data / "gone")
        (data / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(EtudeError):
        load_files_through_cache(found, tmp_path / "cache", pool)


@needs_landlock
def test_a_parquet_file_that_becomes_a_link_is_not_read_by_a_query(data: Path, tmp_path: Path) -> None:
    for path in (data / "a.parquet", tmp_path / "outside" / "a.parquet"):
        duckdb.sql(f"COPY (SELECT '{path.parent.name}' AS word) TO '{path}' (FORMAT parquet)")
    with App(home=tmp_path / "home") as app:
        source = app.source(str(data))
        key, mount = source.mount()
        (data / "a.parquet").unlink()
        (data / "a.parquet").symlink_to(tmp_path / "outside" / "a.parquet")
        with pytest.raises(EtudeError):
            answer = stream_source_query(
                app.pool, key, (mount,), False, "SELECT word FROM a", Limits(), False, None, source.tenant
            )
            list(answer.batches)
