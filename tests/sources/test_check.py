"""One conformance suite over every kind of source, on real servers and files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.entities import SourceSpec
from etude.sources import check
from etude.sources.check import CHECKS, check_source

ROWS = "SELECT i AS id, i % 7 AS grp, 'name ' || i AS name FROM range(500) t(i)"


@pytest.fixture
def duckdb_url(tmp_path: Path) -> str:
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute(f"CREATE TABLE items AS {ROWS}")
    return str(tmp_path / "x.duckdb")


@pytest.fixture
def files_url(tmp_path: Path) -> str:
    (tmp_path / "files").mkdir()
    duckdb.sql(ROWS).write_parquet(str(tmp_path / "files" / "items.parquet"))
    duckdb.sql(ROWS).write_csv(str(tmp_path / "files" / "copy.csv"))
    return str(tmp_path / "files")


@pytest.mark.parametrize("place", ["duckdb_url", "files_url", "sqlite_shop", "postgres_shop", "mysql_shop"])
def test_a_source_keeps_its_promises(
    place: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How soon is the machine's matter; that it ends by the limit and by the cancel is the source's.
    monkeypatch.setattr(check, "LATE_S", 120.0)
    made = request.getfixturevalue(place)
    spec = SourceSpec(url=made if isinstance(made, str) else made.url)
    with App(home=tmp_path / "home", sources={"checked": spec}) as app:
        results = list(check_source(app.source("checked")))
    assert [r.name for r in results] == list(CHECKS)
    assert [f"{r.name}: {r.detail}" for r in results if not r.ok] == []
