"""A small agency: workers with descriptions, personal data that no one may find, and some documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App

WORKERS = [
    (1, "Ann Archer", "ann@example.com", "IL", "forklift", "Drives a forklift in a warehouse and loads trucks"),
    (2, "Bob Baker", "bob@example.com", "IL", "welding", "Welds steel frames for bridges"),
    (3, "Cid Cook", "cid@example.com", "TX", "forklift", "Operates lift trucks and moves pallets at night"),
    (4, "Dee Dole", "dee@example.com", "IL", "forklift", "Teaches children to play the piano"),
    (5, "Eve Esch", "eve@example.com", "NY", "cooking", "Cooks French pastry in a small bakery"),
]


def write_agency(path: Path) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute(
            "CREATE TABLE workers (id INTEGER PRIMARY KEY, full_name VARCHAR, email VARCHAR, state VARCHAR, "
            "skill VARCHAR, description VARCHAR)"
        )
        db.executemany("INSERT INTO workers VALUES (?, ?, ?, ?, ?, ?)", WORKERS)
        db.execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY, worker_id INTEGER, amount DECIMAL(10, 2))")
        db.execute("INSERT INTO invoices VALUES (1, 1, 10.5), (2, 3, 7)")


@pytest.fixture
def agency(tmp_path: Path) -> str:
    path = tmp_path / "agency.duckdb"
    write_agency(path)
    return str(path)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=tmp_path / "home") as opened:
        yield opened
