"""Quoting, against the engines themselves: any text comes back as it went in, or is refused before it is sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from etude.errors import Invalid
from etude.sources.quoting import quote_identifier, quote_literal, quote_table
from sources.conftest import connect_mysql

Ask = Callable[[str], tuple[str, Any]]
"""Runs a query; the name of its first column and the value in it."""
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
TRICKY = st.text(st.sampled_from("'\"`\\;-/*$%\n\r\t ab{}:?é😀\x1a\x7f"))
# Servers have limits on names: 63 bytes in Postgres; no space at the end, and nothing beyond U+FFFF, in MySQL.
NAMES = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"], max_codepoint=0xFFFF), min_size=1, max_size=15)
TRICKY_NAMES = st.text(st.sampled_from("'\"`\\;-/*$%aB{}:?é"), min_size=1, max_size=20)
ENGINES = ["duckdb", "sqlite", "postgres", "mysql"]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, Ask]]:
    """A dialect, and a connection to its engine."""
    match request.param:
        case "duckdb":
            connection: Any = duckdb.connect()
        case "sqlite":
            connection = sqlite3.connect(":memory:")
        case "postgres":
            connection = psycopg.connect(request.getfixturevalue("postgres_server")(), autocommit=True)
        case _:
            connection = connect_mysql(request.getfixturevalue("mariadb_url"))

    def ask(sql: str) -> tuple[str, Any]:
        cursor = connection.cursor()
        cursor.execute(sql)
        return cursor.description[0][0], cursor.fetchone()[0]

    yield request.param, ask
    connection.close()


@given(TEXT | TRICKY)
@example("\\")
@example("\\' OR 1=1 -- ")
@example("'; DROP TABLE t; --")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_comes_back_from_a_literal(engine: tuple[str, Ask], text: str) -> None:
    dialect, ask = engine
    assert ask(f"SELECT {quote_literal(text, dialect)}")[1] == text


@given(NAMES | TRICKY_NAMES)
@example('a"; DROP TABLE t; --')
@example("a`b")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_name_comes_back_from_an_identifier(engine: tuple[str, Ask], name: str) -> None:
    dialect, ask = engine
    quoted = quote_identifier(name, dialect)
    inner = f"SELECT 7 AS {quoted}"
    assert ask(inner) == (name, 7)
    if name.lower() not in ("true", "false"):  # which SQLite itself renames in a subquery
        assert ask(f"SELECT t.{quoted} FROM ({inner}) AS t") == (name, 7)


@pytest.mark.parametrize("quote", [quote_literal, quote_identifier])
@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800", "a\udfffb"])
def test_text_that_no_engine_takes_is_refused(quote: Callable[[str, str], str], dialect: str, text: str) -> None:
    with pytest.raises(Invalid, match="cannot be written in SQL") as caught:
        quote(text, dialect)
    str(caught.value).encode()


def test_a_table_of_a_schema_is_quoted_part_by_part() -> None:
    assert quote_table('sales."x', "postgres") == '"sales"."""x"'
    assert quote_table("sales.x`", "mysql") == "`sales`.`x```"
