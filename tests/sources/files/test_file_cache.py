"""Converted files, kept for all processes that read the same files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.sources.base import LoadWait
from etude.sources.engine_client import EngineLimits
from etude.sources.engine_pool import MAIN, EnginePool
from etude.sources.files import file_cache
from etude.sources.files.discover import discover
from etude.sources.files.file_cache import load_files_through_cache


@pytest.fixture
def pool() -> Iterator[EnginePool]:
    opened = EnginePool(EngineLimits(memory=1 << 30, scratch_bytes=1 << 30, threads=1), size=1)
    yield opened
    opened.close()


def test_a_process_that_converts_the_same_file_later_replaces_nothing(tmp_path: Path, pool: EnginePool) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")
    (file,) = discover(str(tmp_path / "orders.csv"))
    ((table,), _, read) = load_files_through_cache([file], tmp_path / "cache", pool)
    before = os.stat(table["paths"][0])
    # It began before the first one had finished, so it found no index.
    assert file_cache._convert([file], tmp_path / "cache", pool, MAIN, None, LoadWait(60)) == {}
    ((again,), _, read_again) = load_files_through_cache([file], tmp_path / "cache", pool)
    assert (again, read, read_again) == (table, True, False)
    assert os.stat(table["paths"][0]) == before
    assert len([path for path in (tmp_path / "cache" / file.key).iterdir() if path.is_dir()]) == 1


def test_a_file_that_is_gone_is_converted_again(tmp_path: Path, pool: EnginePool) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")
    (file,) = discover(str(tmp_path / "orders.csv"))
    ((table,), *_) = load_files_through_cache([file], tmp_path / "cache", pool)
    os.unlink(table["paths"][0])
    ((again,), *_) = load_files_through_cache([file], tmp_path / "cache", pool)
    assert again["paths"] != table["paths"]
    assert os.path.exists(again["paths"][0])
