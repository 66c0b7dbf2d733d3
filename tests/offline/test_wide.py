"""A source with many tables: few queries, work in proportion to the tables, and the same knowledge as one by one."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.cancellation import Cancellation
from etude.entities import Catalog
from etude.errors import Cancelled, LimitExceeded
from etude.offline.deadline import within_deadline
from etude.offline.phrase_index import phrase_index_of
from etude.offline.understand import Clarification, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from offline.questions import TODAY

Rows = list[tuple[Any, ...]]
NOUNS = ("customer", "order", "invoice", "payment", "product")


class Counting(Cancellation):
    """Counts how often the rules look whether to stop: once for each piece of work."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = 0

    def check(self) -> None:
        self.pieces += 1
        super().check()


def write(path: Path, tables: int) -> str:
    database = path / f"wide{tables}.sqlite"
    with sqlite3.connect(database) as connection:
        before = ""
        for n in range(tables):
            name = f"area{n // 5}_{NOUNS[n % 5]}"
            key = f", {before}_id INTEGER REFERENCES {before}(id)" if before else ""
            connection.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, city TEXT, amount REAL{key})")
            rows = [(k, f"{name} {k}", ("Oslo", "Rome")[k % 2], k / 2, *([k] if before else [])) for k in range(1, 4)]
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            before = name
    connection.close()
    return str(database)


def look(app: App, url: str, refuse: Callable[[str], bool] = lambda sql: False) -> tuple[Vocabulary, list[str]]:
    asked: list[str] = []

    def ask(sql: str) -> Rows:
        asked.append(sql)
        if refuse(sql):
            raise LimitExceeded("It reads too much.", limit="scan_rows")
        return app.sql(url, sql, record=False).rows()

    return build_vocabulary(app.catalog(url), ask), asked


@pytest.fixture
def app(tmp_path: Path) -> Any:
    with App(home=tmp_path / "home", record=False) as opened:
        yield opened


def test_small_tables_share_queries_and_are_known_as_if_asked_one_by_one(app: App, tmp_path: Path) -> None:
    url = write(tmp_path, 60)
    together, few = look(app, url)
    alone, many = look(app, url, lambda sql: "CROSS JOIN" in sql or "UNION ALL" in sql or sql.startswith("SELECT ("))
    assert together == alone
    assert len(few) < 40 < len(many)
    assert together.table("area3_order").column("city").values == ("Oslo", "Rome")


def test_the_work_grows_with_the_tables_and_not_with_their_pairs(app: App, tmp_path: Path) -> None:
    pieces = []
    for tables in (100, 200, 400):
        counting = Counting()
        with within_deadline(math.inf, counting):
            vocabulary, _ = look(app, write(tmp_path, tables))
            for question in ("How many customers are in Oslo?", "amount per city", "How many area 3 orders are there?"):
                understand(question, vocabulary, today=TODAY)
        pieces.append(counting.pieces)
    assert pieces[2] < 2.5 * pieces[1] < 6.5 * pieces[0]


def test_a_noun_that_many_tables_share_is_asked_back(app: App, tmp_path: Path) -> None:
    vocabulary, _ = look(app, write(tmp_path, 60))
    found = understand("How many customers are in Oslo?", vocabulary, today=TODAY)
    assert isinstance(found, Clarification)
    found = understand("How many area3 customers are in Oslo?", vocabulary, today=TODAY)
    assert isinstance(found, Understanding | Clarification) or "area3" in found.reason


def test_a_question_is_read_once_for_its_query_and_its_answer(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def count(question: str, *args: Any, **options: Any) -> Any:
        read.append(question)
        return understand(question, *args, **options)

    monkeypatch.setattr("etude.runtime.offline_model.understand", count)
    answer = app.ask(write(tmp_path, 1), "How many customers are in Oslo?", model="offline")
    assert "1" in answer.text and len(read) == 1


def test_looking_at_a_source_ends_when_the_run_is_cancelled(app: App, tmp_path: Path) -> None:
    cancel, catalog = Cancellation(), app.catalog(write(tmp_path, 60))
    asked = []

    def ask(sql: str) -> Rows:
        asked.append(sql)
        cancel.cancel()
        return app.sql(catalog_url, sql, record=False).rows()

    catalog_url = str(tmp_path / "wide60.sqlite")
    with within_deadline(math.inf, cancel), pytest.raises(Cancelled):
        build_vocabulary(catalog, ask)
    assert len(asked) == 1


def test_an_index_whose_making_was_stopped_is_continued(app: App, tmp_path: Path) -> None:
    vocabulary, _ = look(app, write(tmp_path, 60))

    class Stopping(Counting):
        def check(self) -> None:
            if self.pieces == 50:
                self.cancel()
            super().check()

    with pytest.raises(Cancelled), within_deadline(math.inf, Stopping()):
        phrase_index_of(vocabulary)
    rest = Counting()
    with within_deadline(math.inf, rest):
        index = phrase_index_of(vocabulary)
    assert rest.pieces < 15 and ("11", "product") in index.names


def test_an_empty_catalog_needs_no_query() -> None:
    empty = Catalog(source="x", kind="sqlite", dialect="sqlite", tables=(), fingerprint="x")
    assert build_vocabulary(empty, lambda sql: pytest.fail(sql)).tables == ()
