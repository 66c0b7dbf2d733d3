"""Files that are overwritten under open connections: every kind, in place, by copy and by rename."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.sources.file_fingerprint import file_fingerprint, file_stamp, paths_fingerprint, sqlite_fingerprint
from workbook import write_workbook


def write_sqlite(path: Path, number: int, mode: str = "DELETE") -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE t (n INTEGER)")
        db.execute("INSERT INTO t VALUES (?)", (number,))


def write_duckdb(path: Path, number: int) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t AS SELECT ? AS n", [number])


def write_parquet(path: Path, number: int) -> None:
    duckdb.sql(f"SELECT {number} AS n").write_parquet(str(path))


KINDS: dict[str, Callable[[Path, int], object]] = {
    "t.sqlite": write_sqlite,
    "t.wal.sqlite": lambda path, number: write_sqlite(path, number, "WAL"),
    "t.duckdb": write_duckdb,
    "t.parquet": write_parquet,
    "t.csv": lambda path, number: path.write_text(f"n,x\n{number},a\n"),
    "t.json": lambda path, number: path.write_text(f'{{"n": {number}}}\n'),
    "t.xlsx": lambda path, number: write_workbook(path, {"t": [["n", "x"], [number, "a"]]}),
}


def overwrite_in_place(new: Path, old: Path) -> None:
    with open(old, "r+b") as file:
        file.write(new.read_bytes())
        file.truncate()


WAYS: dict[str, Callable[[Path, Path], object]] = {
    "in place": overwrite_in_place,
    "by copy": shutil.copyfile,
    "by copy with times": shutil.copy2,
    "by rename": lambda new, old: os.replace(new, old),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_overwritten_is_read_again(tmp_path: Path, kind: str, way: str) -> None:
    """The new file has the size, the modification time and, in SQLite, the change counter of the old one."""
    path, other = tmp_path / "live" / kind, tmp_path / "other" / kind
    for each, number in ((path, 111), (other, 222)):
        each.parent.mkdir()
        KINDS[kind](each, number)
        os.utime(each, ns=(1_700_000_000_000_000_000,) * 2)
    with App(home=tmp_path / "home", record=False) as app:
        assert app.sql(str(path), "SELECT n FROM t").rows() == [(111,)]
        fingerprint = app.catalog(str(path)).tables[0].fingerprint
        WAYS[way](other, path)
        os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)
        assert app.sql(str(path), "SELECT n FROM t").rows() == [(222,)]
        assert app.catalog(str(path)).tables[0].fingerprint != fingerprint


def test_two_writes_in_a_row_have_two_fingerprints(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    marks = set()
    for number in range(20):
        path.write_text(f"{number:03}")
        os.utime(path, ns=(1, 1))
        marks.add(file_stamp(str(path)))
    assert len(marks) == 20


@pytest.mark.parametrize("mark", [file_fingerprint, sqlite_fingerprint, lambda path: paths_fingerprint((path,))])
def test_a_fingerprint_stays_while_nothing_is_written(tmp_path: Path, mark: Callable[[str], str]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"data")
    before = mark(str(path))
    path.read_bytes()
    assert mark(str(path)) == before


def test_no_file_has_no_fingerprint(tmp_path: Path) -> None:
    assert file_fingerprint(str(tmp_path / "none")) == ""
    assert sqlite_fingerprint(str(tmp_path / "none")) == ""
