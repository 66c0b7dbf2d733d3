"""A source as the host sees it: what is known of it follows what is written to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from etude.app import App
from etude.errors import UnknownTable


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_table_made_while_the_process_runs_is_seen(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "shop.sqlite"
    with (
        App(home=tmp_path / "home", record=False) as app,
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
    ):
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("CREATE TABLE orders (id INTEGER)")
        first = app.catalog(str(path))
        assert [table.name for table in first.tables] == ["orders"]
        with pytest.raises(UnknownTable):
            app.sql(str(path), "SELECT * FROM refunds")

        writer.execute("CREATE TABLE refunds (id INTEGER)")
        writer.execute("INSERT INTO refunds VALUES (7)")

        assert app.sql(str(path), "SELECT * FROM refunds").rows() == [(7,)]
        again = app.catalog(str(path))
        assert [(table.name, table.row_count) for table in again.tables] == [("orders", 0), ("refunds", 1)]
        assert again.fingerprint != first.fingerprint
        assert app.catalog(str(path)) is again

        writer.execute("DROP TABLE orders")
        assert [table.name for table in app.catalog(str(path)).tables] == ["refunds"]
        with pytest.raises(UnknownTable):
            app.sql(str(path), "SELECT * FROM orders")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_each_write_changes_the_fingerprint_of_the_data(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "shop.sqlite"
    with (
        App(home=tmp_path / "home", record=False) as app,
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
    ):
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("CREATE TABLE orders (id INTEGER)")
        writer.execute("INSERT INTO orders VALUES (0)")
        marks = set()
        for number in range(1, 6):
            writer.execute("UPDATE orders SET id = ?", (number,))
            marks.add(app.catalog(str(path)).tables[0].fingerprint)
        assert len(marks) == 5
