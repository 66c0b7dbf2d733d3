"""Dates that SQLite keeps as text are dates for questions, and so are years that are numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from etude.app import App

FIRST = date(2018, 1, 1)


@pytest.fixture(scope="module")
def ask_cinema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """A SQLite file: few and many different dates as text, texts that are dates only in part, years as numbers."""
    folder: Path = tmp_path_factory.mktemp("cinema")
    path = folder / "cinema.db"
    with sqlite3.connect(path) as writer:
        writer.executescript(
            "CREATE TABLE studio (studio_id INTEGER PRIMARY KEY, name TEXT, founded INTEGER);"
            "CREATE TABLE film (film_id INTEGER PRIMARY KEY, title TEXT, studio_id INTEGER REFERENCES studio, "
            "year INTEGER);"
            "CREATE TABLE screening (screening_id INTEGER PRIMARY KEY, film_id INTEGER REFERENCES film, shown_at TEXT, "
            "visitors INTEGER);"
            "CREATE TABLE ticket (ticket_id INTEGER PRIMARY KEY, sold_on TEXT, price REAL);"
            "CREATE TABLE note (note_id INTEGER PRIMARY KEY, written_on TEXT);"
        )
        days = [FIRST + timedelta(days=n) for n in range(2_600)]
        writer.executemany("INSERT INTO studio VALUES (?, ?, ?)", [(n, f"S{n}", 1900 + n * 7) for n in range(1, 13)])
        films = [(n, f"F{n}", 1 + n % 12, 1990 + n % 30) for n in range(1, 61)]
        writer.executemany("INSERT INTO film VALUES (?, ?, ?, ?)", films)
        shown = [(n, 1 + n % 60, f"{days[1_800 + n]} 20:15:00", 20 + n % 90) for n in range(1, 401)]
        writer.executemany("INSERT INTO screening VALUES (?, ?, ?, ?)", shown)
        sold = [(n, str(days[(n * 3) % 2_600]), 8 + n % 7) for n in range(1, 5_001)]
        writer.executemany("INSERT INTO ticket VALUES (?, ?, ?)", sold)
        writer.executemany("INSERT INTO note VALUES (?, ?)", [(1, "2024-01-02"), (2, "in May"), (3, "2024-13-02")])
    with App(home=folder / "home") as app:
        yield app, str(path)


@pytest.mark.parametrize(
    ("question", "sql"),
    [
        ("How many screenings were there in 2023?", "SELECT COUNT(*) FROM screening WHERE shown_at LIKE '2023%'"),
        ("Total visitors in march 2023", "SELECT SUM(visitors) FROM screening WHERE shown_at LIKE '2023-03%'"),
        ("How many tickets were sold after 2023?", "SELECT COUNT(*) FROM ticket WHERE sold_on >= '2024'"),
        (
            "Average price of tickets per month in 2022",
            "SELECT DATE(sold_on, 'start of month'), AVG(price) FROM ticket WHERE sold_on LIKE '2022%' GROUP BY 1",
        ),
        ("How many films in 2001?", "SELECT COUNT(*) FROM film WHERE year = 2001"),
        ("How many studios were founded before 1950?", "SELECT COUNT(*) FROM studio WHERE founded < 1950"),
        ("How many studios were founded in 1921?", "SELECT COUNT(*) FROM studio WHERE founded = 1921"),
    ],
)
def test_a_time_is_found_in_texts_and_numbers(ask_cinema: tuple[App, str], question: str, sql: str) -> None:
    app, path = ask_cinema
    answer = app.ask(path, question)
    assert answer.ok, answer.error
    assert answer.result is not None
    got = [tuple(map(str, row)) for row in answer.result.rows()]
    assert sorted(got) == sorted(tuple(map(str, row)) for row in app.sql(path, sql).rows()), answer.reading


@pytest.mark.parametrize(
    "question", ["How many notes were written in 2024?", "Total visitors per year", "Studios founded in march 1921"]
)
def test_a_time_that_is_not_sure_is_refused(ask_cinema: tuple[App, str], question: str) -> None:
    app, path = ask_cinema
    assert not app.ask(path, question).ok
