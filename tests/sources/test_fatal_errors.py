"""An engine ends if its database reports an internal or fatal error, and is used again after an ordinary one."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.patience import wait_until
from tests.sources.conftest import connect_mysql, run_mysql

from etude.entities import Limits
from etude.errors import EtudeError, InvalidQuery, SourceError, SourceUnavailable
from etude.sources.base import Mount
from etude.sources.engine_client import EngineLimits
from etude.sources.engine_pool import EnginePool


class Asked:
    """A pool with one source."""

    def __init__(self, kind: str, url: str) -> None:
        self.pool = EnginePool(EngineLimits(memory=2 << 30, scratch_bytes=1 << 30, threads=2), size=1)
        self._mount = (Mount("shop", kind, url),)
        self._network = kind != "sqlite"

    def ask(self, sql: str) -> tuple[int, list[object]]:
        """Return the process that answered, and the values of the first column."""
        with self.pool.lease(("shop",), self._mount, self._network, wait_s=60) as engine:
            answer = engine.query(sql, Limits(), describe=False)
            return engine.pid, [v for batch in answer.batches for v in batch.column(0).to_pylist()]

    def failing(self, sql: str) -> EtudeError:
        with pytest.raises(EtudeError) as caught:
            self.ask(sql)
        assert "fatal" not in caught.value.details
        return caught.value


@pytest.fixture
def postgres(postgres_server: Callable[[], str]) -> Iterator[tuple[Asked, psycopg.Connection]]:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as admin:
        for name, code in (("internal", "XX000"), ("ordinary", "P0001"), ("busy", "53200")):
            body = f"BEGIN RAISE EXCEPTION 'provoked' USING ERRCODE = '{code}'; END"
            admin.execute(f"CREATE FUNCTION f_{name}() RETURNS int LANGUAGE plpgsql AS $$ {body} $$")
            admin.execute(f"CREATE VIEW {name} AS SELECT f_{name}() AS n")
        asked = Asked("postgres", url)
        yield asked, admin
        asked.pool.close()


def test_postgres(postgres: tuple[Asked, psycopg.Connection]) -> None:
    asked, admin = postgres
    first, _ = asked.ask("SELECT 1")
    assert isinstance(asked.failing("SELECT nothing"), InvalidQuery)
    assert type(asked.failing("SELECT n FROM ordinary")) is SourceError
    assert isinstance(asked.failing("SELECT n FROM busy"), SourceUnavailable)
    assert asked.ask("SELECT 1")[0] == first
    assert isinstance(asked.failing("SELECT n FROM internal"), SourceError)
    second, values = asked.ask("SELECT 7")
    assert second != first and values == [7]
    # The server ends the session while the engine is idle: the next query finds out, or gets a new connection.
    ended = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'etude'"
    assert admin.execute(ended + " AND datname = current_database()").fetchall()
    try:
        asked.ask("SELECT 8")
    except SourceUnavailable as error:
        assert error.retryable
    assert asked.ask("SELECT 8")[1] == [8]


def test_mysql(mariadb_server: Callable[[], str]) -> None:
    url = mariadb_server()
    for name, number in (("internal", 1815), ("ordinary", 1644)):
        signal_ = f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'provoked'"
        run_mysql(url, f"CREATE FUNCTION f_{name}() RETURNS int NO SQL BEGIN {signal_}; RETURN 1; END")
        run_mysql(url, f"CREATE VIEW {name} AS SELECT f_{name}() AS n")
    asked = Asked("mysql", url)
    first, _ = asked.ask("SELECT 1")
    assert isinstance(asked.failing("SELECT nothing"), InvalidQuery)
    asked.failing("SELECT n FROM ordinary")
    assert asked.ask("SELECT 1")[0] == first
    assert isinstance(asked.failing("SELECT n FROM internal"), SourceError)
    second, values = asked.ask("SELECT 7")
    assert second != first and values == [7]
    admin = connect_mysql(url)
    with admin.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        for (number,) in cursor.fetchall():
            cursor.execute(f"KILL CONNECTION {number}")
    admin.close()
    try:
        asked.ask("SELECT 8")
    except SourceUnavailable as error:
        assert error.retryable
    assert asked.ask("SELECT 8")[1] == [8]
    asked.pool.close()


def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (n INTEGER, s TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 500) for n in range(30_000)])
        db.execute("CREATE TABLE small (n INTEGER)")
        db.execute("INSERT INTO small VALUES (7)")
    db.close()
    asked = Asked("sqlite", str(path))
    first, _ = asked.ask("SELECT count(*) FROM t")
    assert isinstance(asked.failing("SELECT nothing FROM t"), InvalidQuery)
    assert asked.ask("SELECT 1")[0] == first
    with path.open("r+b") as file:
        # All but the schema and the pages of the other table, which are the first and the last.
        size = path.stat().st_size
        file.seek(2 * 4096)
        file.write(b"\xff" * (size - 4 * 4096))
    assert "malformed" in asked.failing("SELECT sum(length(s)) FROM t").message
    second, _ = asked.ask("SELECT 1")
    assert second != first
    asked.pool.close()


def test_an_engine_that_died_while_idle_is_not_used_again(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE t (n INTEGER)").connection.close()
    asked = Asked("sqlite", str(path))
    first, _ = asked.ask("SELECT 1")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not asked.pool._idle[0][1].alive)
    second, values = asked.ask("SELECT 2")
    assert second != first and values == [2]
    asked.pool.close()
