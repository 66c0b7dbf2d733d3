"""Replay on every kind of source and over both stores: the same question, mutants, new data, a broken assumption."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.replays.test_script_library import ask, compiled, decision
from tests.sources.conftest import connect_mysql, mariadb_server

from etude.app import App

__all__ = ["mariadb_server"]
ASKED = "What is the total amount per channel?"
FIRST = [(n, 10.5 + n % 90, f"2024-{1 + n % 12:02}-03 08:00:00", ("web", "app", "store")[n % 3]) for n in range(1, 301)]
MORE = [
    (n, 10.5 + n % 90, f"2024-{1 + n % 12:02}-03 08:00:00", ("web", "app", "store")[n % 3]) for n in range(301, 331)
]
Execute = Callable[[str], None]


def rows(values: list[tuple[Any, ...]]) -> str:
    return ", ".join(f"({n}, {amount}, '{at}', '{channel}')" for n, amount, at, channel in values)


def create(execute: Execute, real: str, time: str) -> None:
    columns = f"order_id INTEGER PRIMARY KEY, amount {real}, ordered {time}, channel VARCHAR(20)"
    execute(f"CREATE TABLE orders ({columns})")
    execute(f"INSERT INTO orders VALUES {rows(FIRST)}")


def write_csv(folder: Path, values: list[tuple[Any, ...]], factor: float = 1) -> None:
    lines = [f"{n},{amount * factor},{at},{channel}" for n, amount, at, channel in values]
    (folder / "orders.csv").write_text("\n".join(["order_id,amount,ordered,channel", *lines]) + "\n")


@pytest.fixture(params=["sqlite", "csv", "postgres", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Execute, Execute]:
    """The URL of a source, and functions that add rows and that change a unit; both ignore their argument for files."""
    if request.param == "csv":
        (tmp_path / "shop").mkdir()
        write_csv(tmp_path / "shop", FIRST)
        more, unit = (
            (lambda _: write_csv(tmp_path / "shop", FIRST + MORE)),
            (lambda _: write_csv(tmp_path / "shop", FIRST + MORE, 100)),
        )
        return str(tmp_path / "shop"), more, unit
    if request.param == "sqlite":
        path = str(tmp_path / "shop.sqlite")

        def execute(statement: str) -> None:
            with sqlite3.connect(path) as db:
                db.execute(statement)

        create(execute, "REAL", "DATETIME")
        return path, execute, execute
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_url"))

        def execute_there(statement: str) -> None:
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(statement.encode())

        create(execute_there, "DOUBLE PRECISION", "TIMESTAMP")
        return url, execute_there, execute_there
    url = request.getfixturevalue("mariadb_server")()

    def execute_mysql(statement: str) -> None:
        with connect_mysql(url) as db, db.cursor() as cursor:
            cursor.execute(statement)

    create(execute_mysql, "DOUBLE", "DATETIME")
    return url, execute_mysql, execute_mysql


def test_the_same_question_is_replayed_on_every_source(place: tuple[str, Execute, Execute], tmp_path: Path) -> None:
    url, add, spoil = place
    with App(home=tmp_path / "home", replay="on") as app:
        first = ask(app, url, ASKED)
        event = compiled(app, first)
        assert event.replayable and "0 end with an error" in event.mutants and "unseen" not in event.mutants
        again = ask(app, url, ASKED)
        assert again.replayed and again.text == first.text
        add(f"INSERT INTO orders VALUES {rows(MORE)}")
        grown = ask(app, url, ASKED)
        fresh = ask(app, url, ASKED, fresh=True)
        assert grown.result is not None and fresh.result is not None
        assert grown.replayed and grown.result.rows() == fresh.result.rows()
        spoil("UPDATE orders SET amount = amount * 100")
        assert decision(app, ask(app, url, ASKED)).cause == "guard"


def test_scripts_are_kept_in_postgres_too(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    write_csv(tmp_path / "shop", FIRST)
    with App(home=tmp_path / "home", store=postgres_url, replay="on") as app:
        first = ask(app, tmp_path / "shop", ASKED)
    with App(home=tmp_path / "home", store=postgres_url, replay="on") as later:
        assert ask(later, tmp_path / "shop", ASKED).replayed
        script, uses = later.scripts.withdraw(first.run_id)
        assert script.state == "withdrawn" and len(uses) == 1
        assert later.scripts.script(first.run_id).mutants.tried > 0


def test_text_in_a_column_of_numbers_does_not_stop_a_script(tmp_path: Path) -> None:
    path = tmp_path / "mixed.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE orders (order_id INTEGER PRIMARY KEY, amount REAL)")
        db.executemany("INSERT INTO orders VALUES (?, ?)", [(n, n / 2) for n in range(1, 20)])
        db.execute("INSERT INTO orders VALUES (20, 'n/a')")
    with App(home=tmp_path / "home", replay="on") as app:
        assert compiled(app, ask(app, path, "What is the total amount?"))
