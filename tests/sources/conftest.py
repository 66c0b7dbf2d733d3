"""A real MariaDB for the tests, started once on first use and never skipped, and one shop in each engine."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pymysql
import pytest
from psycopg.types.string import TextLoader
from pymysql.constants import CLIENT

from etude.sources.base import Driver, Mount
from etude.sources.drivers.mysql import MysqlDriver
from etude.sources.drivers.postgres import PostgresDriver
from etude.sources.drivers.sqlite import SqliteDriver

SECRET = "TOPSECRET"
GRANTED = ("customers", "orders", "rich", "big", "docs")


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        pytest.fail(f"`{name}` is not installed: apt-get install mariadb-server", pytrace=False)
    return found


def _reserve_port() -> tuple[int, socket.socket]:
    """A port that a server may listen on and nobody is given by chance, as long as the socket is open."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return int(reserved.getsockname()[1]), reserved


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Callable[[], str]]:
    """A function that creates a fresh database on a real server and returns its URL."""
    # Not in pytest's own folder: another run of the tests takes the rights on it away, which the server needs.
    folder, (port, reserved) = Path(tempfile.mkdtemp(prefix="etude-mariadb-")), _reserve_port()
    folder.chmod(0o755)
    data = folder / "data"
    as_user = ["--user=mysql"] if os.geteuid() == 0 else []
    install = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", *as_user]
    method = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run([*install, *method], check=True, capture_output=True, timeout=240)
    command = [_program("mariadbd"), "--no-defaults", f"--datadir={data}", *as_user, f"--socket={data}/s"]
    options = ["--bind-address=127.0.0.1", f"--port={port}", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        _wait_for(port, server, folder / "log")

        def create() -> str:
            name = f"test_{uuid4().hex}"
            run_mysql(f"mysql://root@127.0.0.1:{port}/mysql", f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
            return f"mysql://root@127.0.0.1:{port}/{name}"

        yield create
    finally:
        server.kill()
        server.wait()
        reserved.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up and server.poll() is None:
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()
            return
        except pymysql.Error:
            time.sleep(0.05)
    pytest.fail(f"MariaDB did not start: {log.read_text()}", pytrace=False)


@pytest.fixture(scope="session")
def mariadb_url(mariadb_server: Callable[[], str]) -> str:
    """The URL of a fresh, empty MariaDB database."""
    return mariadb_server()


def connect_mysql(url: str) -> Any:
    """A connection of the server's root, for several statements at a time."""
    where = urlsplit(url)
    given = {"host": where.hostname, "port": where.port, "user": "root", "database": where.path[1:]}
    return pymysql.connect(**given, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)


def ask_mysql(db: Any, sql: str) -> list[tuple[Any, ...]]:
    """The rows of the last of some statements."""
    with db.cursor() as cursor:
        cursor.execute(sql)
        rows = list(cursor.fetchall())
        while cursor.nextset():
            rows = list(cursor.fetchall())
    return rows


def run_mysql(url: str, sql: str) -> list[tuple[Any, ...]]:
    """The same, over a connection of its own."""
    with connect_mysql(url) as db:
        return ask_mysql(db, sql)


@dataclass
class Shop:
    """A small shop in one engine: a driver that sees part of it, and an administrator who sees all."""

    driver: Driver
    url: str
    ask: Callable[[str], list[tuple[Any, ...]]]
    state: Callable[[], object]
    names: Callable[[str], list[str]]
    """The names of the columns of a query, as the engine gives them."""


COMMON = f"""
CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, region VARCHAR(20), joined DATE,
    balance DECIMAL(10,2), prefs @JSON@ @MOOD@);
INSERT INTO customers (id, name, region, joined, balance, prefs) VALUES
    (1, 'Ann', 'north', '2024-01-01', 10.50, '{{"color":"red","a":{{"b":1}}}}'),
    (2, 'Bob', 'south', '2024-02-01', 20.25, '{{"color":"blue"}}'),
    (3, 'Cid', 'north', '2024-03-01', 0, NULL), (4, 'Dan', NULL, NULL, NULL, '{{}}');
CREATE TABLE orders (id INT PRIMARY KEY, customer_id INT, amount DECIMAL(10,2), placed @STAMP@, note TEXT @TAGS@,
    FOREIGN KEY (customer_id) REFERENCES customers (id));
INSERT INTO orders (id, customer_id, amount, placed, note) VALUES (1, 1, 10, '2024-01-02 03:04:05', 'n'),
    (2, 1, 99.5, '2024-01-03 10:00:00', NULL), (3, 2, 55.25, '2024-02-03 23:59:59.123456', 'x'),
    (4, 2, NULL, '2024-02-29 00:00:00', NULL), (5, 3, 7, '2024-03-01 12:00:00', 'z');
CREATE TABLE secret (id INT, password VARCHAR(40));
INSERT INTO secret VALUES (1, '{SECRET}');
CREATE TABLE keys_ (k VARCHAR(40));
INSERT INTO keys_ VALUES ('{SECRET}');
CREATE VIEW rich AS SELECT name FROM customers WHERE balance > 5;
CREATE TABLE big (n INT);
"""


def _fill(**words: str) -> str:
    sql = COMMON
    for word, text in words.items():
        sql = sql.replace(f"@{word}@", text)
    return sql


@pytest.fixture(scope="session")
def sqlite_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop in a SQLite file."""
    path = tmp_path_factory.mktemp("sqlite") / "shop.db"
    admin = sqlite3.connect(path, isolation_level=None)
    admin.executescript(_fill(JSON="JSON", MOOD="", STAMP="DATETIME", TAGS="").replace("keys_", "keys"))
    admin.executescript("CREATE VIRTUAL TABLE docs USING fts5(body); INSERT INTO docs VALUES ('hello world')")
    numbers = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t LIMIT 5000"
    admin.execute(f"INSERT INTO big {numbers}")

    def state() -> object:
        return path.read_bytes(), sorted(p.name for p in path.parent.iterdir())

    def names(sql: str) -> list[str]:
        return [d[0] for d in admin.execute(sql).description]

    driver = SqliteDriver(Mount("shop", "sqlite", str(path), tables=GRANTED))
    yield Shop(driver, str(path), lambda sql: admin.execute(sql).fetchall(), state, names)
    driver.close()
    admin.close()


POSTGRES_MORE = """
UPDATE orders SET tags = '{a,b}' WHERE id = 1; UPDATE orders SET tags = '{}' WHERE id = 2;
UPDATE orders SET tags = '{q}' WHERE id = 4; UPDATE orders SET tags = '{a}' WHERE id = 5;
UPDATE customers SET mood = CASE id WHEN 1 THEN 'sad' WHEN 2 THEN 'ok' END::mood;
CREATE SEQUENCE counter;
CREATE FUNCTION peek() RETURNS text LANGUAGE sql AS 'SELECT password FROM secret';
CREATE FUNCTION wipe_orders() RETURNS int LANGUAGE plpgsql AS 'BEGIN DELETE FROM orders; RETURN 1; END';
CREATE PROCEDURE wipe() LANGUAGE sql AS 'DELETE FROM orders';
CREATE FUNCTION peek_at(orders) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION peek_at(text) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION erfc(text) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION peek_both(int, int) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE OPERATOR <=@ (FUNCTION = peek_both, LEFTARG = int, RIGHTARG = int);
CREATE FUNCTION tells(text) RETURNS bool LANGUAGE plpgsql SECURITY DEFINER AS
    'BEGIN RAISE EXCEPTION ''%'', (SELECT password FROM secret); END';
CREATE DOMAIN telling AS text CHECK (tells(VALUE)); CREATE DOMAIN image AS text CHECK (tells(VALUE));
CREATE DOMAIN string AS text CHECK (tells(VALUE));
CREATE TYPE place AS (street text, door int); ALTER TABLE customers ADD COLUMN home place;
UPDATE customers SET home = ROW('High Street', 7) WHERE id = 1;
CREATE FUNCTION peek_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx(orders) RETURNS text
    LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION \u00b2peek() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION \u2167peek() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION \u0661peek() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE FUNCTION \u00b2row(orders) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE TYPE tint AS ENUM ('red', 'blue');
CREATE FUNCTION peek_tint(tint) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE CAST (tint AS text) WITH FUNCTION peek_tint(tint) AS IMPLICIT;
CREATE FUNCTION peek_tints(tint, tint) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE OPERATOR + (FUNCTION = peek_tints, LEFTARG = tint, RIGHTARG = tint);
CREATE FUNCTION peek_near(tint, int) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret';
CREATE OPERATOR ^@ (FUNCTION = peek_near, LEFTARG = tint, RIGHTARG = int);
CREATE OPERATOR !! (FUNCTION = peek_at, RIGHTARG = text);
CREATE SCHEMA sales; CREATE TABLE sales.regions (region text PRIMARY KEY); ANALYZE
"""
POSTGRES_STATE = """
SELECT (SELECT string_agg(c::text, '|' ORDER BY c.oid::text) FROM (SELECT oid, relname, relkind FROM pg_class
           WHERE relnamespace IN ('public'::regnamespace, 'sales'::regnamespace)) c),
       (SELECT string_agg(o::text, '|' ORDER BY id) FROM orders o), (SELECT last_value || is_called::text FROM counter),
       (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
       (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_replication_slots)"""


@pytest.fixture(scope="session")
def postgres_shop(postgres_server: Callable[[], str]) -> Iterator[Shop]:
    """The shop in Postgres, seen by a superuser, so that only etude stands between a query and the rest."""
    url = postgres_server()
    admin = psycopg.connect(url, autocommit=True)
    for kind in ("json", "jsonb"):
        admin.adapters.register_loader(kind, TextLoader)
    admin.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    text = _fill(JSON="JSONB", MOOD=", mood mood", STAMP="TIMESTAMP", TAGS=", tags text[]").replace("keys_", "keys")
    admin.execute(text.encode())
    admin.execute(POSTGRES_MORE.encode())

    def names(sql: str) -> list[str]:
        return [d.name for d in admin.execute(sql.encode()).description or ()]

    driver = PostgresDriver(Mount("shop", "postgres", url, tables=(*GRANTED, "sales.regions")))
    yield Shop(
        driver,
        url,
        lambda sql: admin.execute(sql.encode()).fetchall(),
        lambda: admin.execute(POSTGRES_STATE.encode()).fetchall(),
        names,
    )
    driver.close()
    admin.close()


MYSQL_MORE = """
INSERT INTO big SELECT seq FROM seq_1_to_5000;
CREATE SEQUENCE counter;
CREATE FUNCTION peek() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION wipe_orders() RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM orders; RETURN 1; END;
CREATE PROCEDURE wipe() DELETE FROM orders;
CREATE FUNCTION bin_to_uuid(x INT) RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION `var_samp`() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION 2peek() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION \u00b2peek() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION \u2167peek() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION \u0661peek() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
CREATE FUNCTION $peek() RETURNS TEXT READS SQL DATA RETURN (SELECT password FROM secret LIMIT 1);
ANALYZE TABLE customers, orders, big;
"""
MYSQL_STATE = """SELECT (SELECT GROUP_CONCAT(table_name ORDER BY 1) FROM information_schema.tables
    WHERE table_schema = DATABASE()), (SELECT GROUP_CONCAT(id, COALESCE(note, '-') ORDER BY id) FROM orders),
    (SELECT next_not_cached_value FROM counter), @@GLOBAL.general_log, IS_FREE_LOCK('x')"""


@pytest.fixture(scope="session")
def mysql_shop(mariadb_server: Callable[[], str]) -> Iterator[Shop]:
    """The shop in MariaDB, seen by root, so that only etude stands between a query and the rest."""
    url = mariadb_server()
    run_mysql(url, _fill(JSON="JSON", MOOD="", STAMP="DATETIME(6)", TAGS=""))
    for statement in MYSQL_MORE.strip().split(";\n"):
        run_mysql(url, statement)

    admin = connect_mysql(url)

    def names(sql: str) -> list[str]:
        with admin.cursor() as cursor:
            cursor.execute(sql)
            return [d[0] for d in cursor.description or ()]

    driver = MysqlDriver(Mount("shop", "mysql", url, tables=GRANTED))
    yield Shop(driver, url, lambda sql: ask_mysql(admin, sql), lambda: ask_mysql(admin, MYSQL_STATE), names)
    driver.close()
    admin.close()
