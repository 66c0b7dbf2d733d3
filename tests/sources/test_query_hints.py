"""Errors of queries say what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.app import App
from etude.errors import EtudeError
from etude.sources.functions import allowed_functions
from etude.sources.query_hints import (
    _BY_NAME,
    function_hint,
    guard_column_hint,
    query_hint_date_difference,
    query_hint_for_dialect,
    type_error_hint,
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("hints")
    (folder / "trips").mkdir()
    rows = "".join(f"{n},2026-01-{n:02},x{n},{n}.5\n" for n in range(1, 20))
    (folder / "trips" / "trips.csv").write_text("id,day,start_dt,fare\n" + rows)
    import sqlite3

    with sqlite3.connect(folder / "trips.sqlite") as db:
        db.execute("CREATE TABLE trips (id INTEGER, day DATE, fare REAL, driver_id INTEGER)")
        db.execute("CREATE TABLE drivers (driver_id INTEGER, name TEXT)")
    with App(home=folder / "home") as app:
        yield app


def failure(app: App, source: str, sql: str) -> str:
    folder = Path(app.settings.home).parent
    with pytest.raises(EtudeError) as caught:
        app.sql(str(folder / source), sql, record=False)
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            "SELECT date_trunc('month', day) FROM trips",
            "SQLite has no function `date_trunc`. Use strftime('%Y-%m-01', x)",
        ),
        ("SELECT extract(year FROM day) FROM trips", "SQLite has no function `extract`. Use CAST(strftime('%Y', x)"),
        ("SELECT year(day) FROM trips", "Use CAST(strftime('%Y', x) AS INTEGER)"),
        ("SELECT datediff(day, day) FROM trips", "Use julianday(b) - julianday(a), in days."),
        ("SELECT stddev(fare) FROM trips", "Use sqrt(avg(x * x) - avg(x) * avg(x))"),
        ("SELECT day + INTERVAL '1 day' FROM trips", "Use date(x, '+1 month')"),
        ("SELECT far FROM trips", "Did you mean `fare`?"),
        ("SELECT day, count(*) FROM trips GROUP BY ALL", "Only DuckDB has GROUP BY ALL"),
        ("SELECT 1 FROM trips JOIN drivers USING (id)", "More than one of the tables has `driver_id`."),
    ],
)
def test_sqlite_names_what_it_has_instead(app: App, sql: str, told: str):
    assert told in failure(app, "trips.sqlite", sql)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT date_format(day, '%Y') FROM trips", "DuckDB has no function `date_format`. Use strftime(x, '%Y-%m')."),
        (
            "SELECT year(start_dt) FROM trips",
            "`start_dt` is VARCHAR: write CAST(start_dt AS DATE) if all of it is like 2024-12-31.",
        ),
        (
            "SELECT extract(year FROM start_dt) FROM trips",
            "`start_dt` is VARCHAR: write CAST(start_dt AS DATE) if all of it is like 2024-12-31.",
        ),
        (
            "SELECT sum(start_dt) FROM trips",
            "`start_dt` is VARCHAR: write CAST(start_dt AS DOUBLE) if all of it is like 1234.5.",
        ),
        ("SELECT * FROM trips WHERE start_dt > day", "Cast the VARCHAR side: CAST(x AS DATE)."),
        ("SELECT CAST(start_dt AS INTEGER) FROM trips", "TRY_CAST(x AS type)"),
        ("SELECT fares FROM trips", "Did you mean `fare`?"),
        ("SELECT fare // 0 FROM trips", "Divide by `nullif(x, 0)`"),
    ],
)
def test_duckdb_names_types_without_its_overloads(app: App, sql: str, told: str):
    error = failure(app, "trips", sql)
    assert told in error
    assert "Candidate functions" not in error and "spelling" not in error and len(error) < 300


def test_postgres_names_types_too():
    told = type_error_hint("function round(double precision, integer) does not exist", "SELECT round(x, 2)", "postgres")
    assert told == (
        "`round` does not take (double precision, integer).",
        "Check the order and the types of its arguments.",
    )
    told = type_error_hint("operator does not exist: text > date", "SELECT a > b", "postgres")
    assert told == ("`>` does not take (text, date).", "Cast the text side: CAST(x AS date).")
    told = type_error_hint("function strftime(unknown, date) does not exist", "SELECT strftime('%Y', d)", "postgres")
    assert told == ("Postgres has no function `strftime`.", "Use to_char(x, 'YYYY-MM').")
    told = type_error_hint("division by zero", "SELECT a / b", "postgres")
    assert told == ("Division by zero.", "Divide by `nullif(x, 0)`: the result is null if x is 0.")


@pytest.mark.parametrize("dialect", _BY_NAME)
def test_no_hint_recommends_a_function_that_is_said_to_be_missing(dialect: str):
    for name, hint in _BY_NAME[dialect].items():
        called = {word.lower() for word in re.findall(r"(\w+)\(", hint)}
        assert name not in called
        assert called <= allowed_functions(dialect) | {"cast", "coalesce", "if", "extract"}, (name, hint)
    assert function_hint("no_such_function", dialect) == ""


@pytest.mark.parametrize(
    ("dialect", "sql", "written"),
    [
        ("sqlite", "SELECT TOP 5 * FROM t", "SELECT * FROM t LIMIT 5"),
        ("sqlite", "SELECT d::date FROM t", "SELECT DATE(d) FROM t"),
        ("sqlite", "SELECT n FROM t WHERE n ILIKE 'a%'", "SELECT n FROM t WHERE LOWER(n) LIKE LOWER('a%')"),
        ("duckdb", "SELECT TOP 5 * FROM t", "SELECT * FROM t LIMIT 5"),
        ("postgres", "SELECT `a` FROM t LIMIT 5, 10", 'SELECT "a" FROM t LIMIT 10 OFFSET 5'),
        ("mysql", "SELECT d::date FROM t", "SELECT CAST(d AS DATE) FROM t"),
    ],
)
def test_the_syntax_of_another_dialect_is_rewritten(dialect: str, sql: str, written: str):
    assert next(query_hint_for_dialect(sql, dialect)) == written


def test_a_text_that_is_no_sql_is_not_rewritten():
    assert list(query_hint_for_dialect("SELECT :: FROM ((", "sqlite")) == []
    assert list(query_hint_for_dialect("SELECT 1", "sqlite")) == []


def test_other_engines_hear_of_group_by_all_and_joins_too():
    for message in ('syntax error at or near "ALL"', "You have an error in your SQL syntax near 'ALL' at line 1"):
        assert guard_column_hint(message, ["a"]).startswith("Only DuckDB has GROUP BY ALL")
    for message in (
        'column "order_id" specified in USING clause does not exist in left table',
        "Unknown column 'order_id' in 'from clause'",
    ):
        assert "`actual_order_id`" in guard_column_hint(message, ["actual_order_id", "x", "Actual_Order_ID", "y"])
        assert guard_column_hint(message, ["orderid", "x"]) == "Write ON a.x = b.y; there are `orderid`."


def test_a_difference_of_dates_is_rewritten_for_sqlite():
    sql = "SELECT day::date AS d, closed - opened AS x, fare - 1 AS y FROM trips"
    assert "JULIANDAY(closed) - JULIANDAY(opened) AS x" in next(
        query_hint_for_dialect(sql, "sqlite", {"closed", "opened"})
    )
    assert query_hint_date_difference("SELECT closed - opened FROM trips", {"closed", "opened"}) == "closed - opened"
    assert query_hint_date_difference("SELECT fare - 1, closed FROM trips", {"closed", "opened"}) == ""
    assert query_hint_date_difference("SELECT julianday(closed) - julianday(opened) FROM t", {"closed", "opened"}) == ""
