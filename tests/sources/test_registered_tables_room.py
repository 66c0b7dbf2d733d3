"""The tables that sessions register count toward the storage quota of their tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.app import App
from etude.errors import LimitExceeded
from etude.settings import load_settings


def written(folder: Path, size: int) -> Path:
    file = folder / "arrived.parquet"
    file.write_bytes(b"x" * size)
    return file


def test_tables_of_all_sessions_count_with_those_they_replace(tmp_path: Path) -> None:
    with App(load_settings(home=tmp_path / "home", server={"storage": 1_000_000})) as app:
        first, second = app.new_frames(), app.new_frames()
        first.register_parquet("a", written(tmp_path, 300_000))
        first.register_parquet("a", written(tmp_path, 300_000))
        with pytest.raises(LimitExceeded) as caught:
            second.register_parquet("b", written(tmp_path, 500_000))
        assert caught.value.details["limit"] == "storage"
        files = list(app.scratch.rglob("*.parquet"))
        assert sum(file.stat().st_size for file in files) == 600_000
        # Of each table, only one replaced file is kept.
        first.register_parquet("a", written(tmp_path, 300_000))
        first.close()
        second.register_parquet("b", written(tmp_path, 500_000))
        second.close()
