"""Sources to ask about, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.offline.understand import Clarification, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sample import write_shop

Rows = list[tuple[Any, ...]]
Ask = Callable[[str], Rows]


@contextmanager
def open_vocabulary(path: str, home: Path) -> Iterator[tuple[Vocabulary, Ask]]:
    """Yield what is known of a database, and how to query it."""
    with App(home=home, record=False) as app:

        def run(sql: str) -> Rows:
            return list(app.sql(path, sql, record=False).iter_rows())

        yield build_vocabulary(app.catalog(path), run), run


@pytest.fixture(scope="package")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs SQL on the shop."""
    folder: Path = tmp_path_factory.mktemp("shop")
    write_shop(folder / "shop")
    with App(home=folder / "home", record=False) as app:

        def run(sql: str) -> Rows:
            return app.sql(str(folder / "shop"), sql).rows()

        run.catalog = app.catalog(str(folder / "shop"))  # type: ignore[attr-defined]
        yield run


@pytest.fixture(scope="package")
def shop(ask: Ask) -> Vocabulary:
    """What is known of the shop."""
    return build_vocabulary(ask.catalog, ask)  # type: ignore[attr-defined]


@pytest.fixture
def chosen(tmp_path: Path) -> Iterator[tuple[Clarification, Ask, Vocabulary]]:
    """A question that two dates could answer."""
    import duckdb

    path = str(tmp_path / "clinic.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, started DATE, ended DATE)")
        writer.execute("INSERT INTO visits VALUES (1, '2023-12-30', '2024-01-02'), (2, '2024-05-01', '2024-05-02')")
    with App(home=tmp_path / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(path), lambda sql: app.sql(path, sql).rows())
        found = understand("How many visits were there in 2024?", vocabulary, today=date(2025, 1, 1))
        assert isinstance(found, Clarification)
        yield found, lambda sql: app.sql(path, sql).rows(), vocabulary


@pytest.fixture(scope="package")
def parcels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """A table with units in its names, rates below one, and missing values."""
    import duckdb

    folder: Path = tmp_path_factory.mktemp("parcels")
    path = str(folder / "parcels.duckdb")
    with duckdb.connect(path) as writer:
        writer.execute(
            "CREATE TABLE parcels AS SELECT i AS id, i % 9 AS weight_kg, i % 120 AS duration_minutes, "
            "(i % 7) / 10 AS tax_rate, i % 30 AS discount, (i * 37) % 1000 AS amount, "
            "CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN 'paid' WHEN 2 THEN 'refunded' ELSE 'open' END AS status, "
            "CASE WHEN i % 6 > 0 THEN i % 2 = 0 END AS insured, DATE '2023-01-01' + i::INTEGER AS posted, "
            "CASE WHEN i % 4 > 0 THEN i % 20 END AS sender_id FROM range(1000) AS t(i)"
        )
        writer.execute("CREATE TABLE senders AS SELECT i AS id, 'S' || i AS name, i % 3 AS zone FROM range(20) AS t(i)")
    with open_vocabulary(path, folder / "home") as opened:
        yield opened
