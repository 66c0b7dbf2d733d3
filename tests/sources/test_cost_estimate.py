"""Estimates with what a profile counted: exact where the engine only guesses, its own where it knows better."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from etude.app import App
from etude.entities import Estimate
from etude.sources.cost_estimate import Size, correct_cost_estimate

SIZES = {"a": Size(1000, 50_000), "b": Size(10, None)}


@pytest.mark.parametrize(
    ("kind", "tables", "engine", "expected"),
    [
        ("sqlite", ["a"], (40, 9), (1000, 50_000)),
        ("sqlite", ["a", "b"], (None, None), (1010, None)),
        ("sqlite", ["a", "unknown"], (40, 9), (40, 9)),
        ("sqlite", [], (None, None), (None, None)),
        # The whole table is read, of which the planner believes too little.
        ("postgres", ["a"], (5, 50_000), (1000, 50_000)),
        ("postgres", ["a"], (3, 90), (3, 90)),
        ("postgres", ["a"], (0, 0), (0, 0)),
        ("mysql", ["a"], (100, None), (100, 5_000)),
        ("mysql", ["b"], (None, None), (10, None)),
    ],
)
def test_an_estimate_is_corrected_by_what_was_counted(
    kind: str, tables: list[str], engine: tuple[int | None, int | None], expected: tuple[int | None, int | None]
) -> None:
    estimate = {"scan_rows": engine[0], "scan_bytes": engine[1], "result_rows": 7}
    corrected = correct_cost_estimate(estimate, kind, tables, SIZES)
    assert (corrected["scan_rows"], corrected["scan_bytes"], corrected["result_rows"]) == (*expected, 7)


def estimate_of(app: App, url: str, sql: str) -> Estimate:
    run_id = app.sql(url, sql, record=True).run_id
    assert run_id is not None
    (step,) = app.store.run(run_id).steps
    assert step.estimate is not None
    return step.estimate


def test_a_table_of_sqlite_has_its_own_size(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with App(home=tmp_path / "home") as app, closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE notes (id INTEGER, text TEXT)")
        writer.execute("CREATE TABLE flags (id INTEGER)")
        writer.executemany("INSERT INTO notes VALUES (?, ?)", [(n, "long " * 400) for n in range(100)])
        writer.executemany("INSERT INTO flags VALUES (?)", [(n,) for n in range(100)])
        guessed = estimate_of(app, str(path), "SELECT * FROM flags")
        app.profile(str(path))
        known = estimate_of(app, str(path), "SELECT * FROM flags")
        assert known.scan_rows == guessed.scan_rows == 100
        # By rows alone, half of the file would be read for it.
        assert known.scan_bytes is not None and guessed.scan_bytes is not None
        assert known.scan_bytes * 10 < guessed.scan_bytes

        writer.execute("INSERT INTO flags VALUES (100)")
        assert estimate_of(app, str(path), "SELECT * FROM flags").scan_rows == 101


def test_a_table_of_postgres_without_statistics_is_read_whole(tmp_path: Path, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE visits (id INTEGER, page TEXT) WITH (autovacuum_enabled = false)")
        connection.execute("INSERT INTO visits SELECT n, 'page ' || n % 7 FROM generate_series(1, 20000) n")
    with App(home=tmp_path / "home") as app:
        query = "SELECT count(*) FROM visits WHERE id = 5"
        guessed = estimate_of(app, postgres_url, query)
        app.profile(postgres_url)
        known = estimate_of(app, postgres_url, query)
    assert guessed.scan_rows is not None and guessed.scan_rows < 1_000
    assert known.scan_rows == 20_000 and known.scan_bytes == guessed.scan_bytes
