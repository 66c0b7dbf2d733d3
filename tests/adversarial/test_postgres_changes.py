"""Postgres databases with user-defined code, tables of one name and views that hide rows, also while they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from etude.app import App
from etude.entities import SourceSpec
from etude.errors import EtudeError, InvalidQuery, Refused, UnknownTable
from etude.sources.base import Mount
from etude.sources.drivers.postgres import PostgresDriver

SECRET = "TOPSECRET"
LEAK = f"LANGUAGE sql AS 'SELECT ''{SECRET}''::text'"
Open = Callable[..., PostgresDriver]


class Server:
    """One database, and the drivers that are open on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.drivers: list[PostgresDriver] = []

    def run(self, sql: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(sql.encode())

    def open(self, *tables: str) -> PostgresDriver:
        self.drivers.append(PostgresDriver(Mount("p", "postgres", self.url, tables=tables or None)))
        return self.drivers[-1]


@pytest.fixture
def server(postgres_server: Callable[[], str]) -> Iterator[Server]:
    made = Server(postgres_server())
    yield made
    for driver in made.drivers:
        driver.close()


def rows(driver: PostgresDriver, sql: str) -> list[Any]:
    return [tuple(row.values()) for batch in driver.run(driver.check(sql), 10) for row in batch.to_pylist()]


def test_a_query_is_checked_again_when_a_function_appears(server: Server, tmp_path: Path) -> None:
    server.run("CREATE TABLE t (r real); INSERT INTO t VALUES (1.5)")
    with App(home=tmp_path, sources={"p": SourceSpec(url=server.url)}) as app:
        sql = "SELECT round(r) AS r FROM t"
        assert app.sql("p", sql).rows() == app.sql("p", sql).rows() == [(2.0,)]
        server.run(f"CREATE FUNCTION public.round(real) RETURNS text {LEAK}")
        with pytest.raises(Refused, match="The function `round` is not allowed"):
            app.sql("p", sql)
        server.run("DROP FUNCTION public.round(real)")
        assert app.sql("p", sql).rows() == [(2.0,)]


def test_a_name_means_no_other_table_after_a_change(server: Server) -> None:
    server.run(f"""CREATE SCHEMA s1; CREATE SCHEMA s2; CREATE TABLE s1.u AS SELECT 'ok' AS v;
        CREATE TABLE s2.u AS SELECT '{SECRET}' AS v; CREATE TABLE s2.later AS SELECT 'ok' AS v;
        DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = s1, s2, public', current_database()); END $$""")
    driver = server.open("s1.u", "s2.later")
    assert rows(driver, "SELECT v FROM u") == rows(driver, "SELECT v FROM later") == [("ok",)]
    server.run(f"ALTER TABLE s1.u RENAME TO u_old; CREATE TABLE s1.later AS SELECT '{SECRET}' AS v")
    for name in ("u", "later"):
        for sql in (f"SELECT v FROM {name}", f"SELECT v AS w FROM {name}"):
            with pytest.raises(UnknownTable):
                rows(driver, sql)
    assert rows(driver, "SELECT v FROM s2.later") == [("ok",)]


def test_a_dropped_column_does_not_become_a_call(server: Server) -> None:
    server.run(
        f"CREATE TABLE t (a int, leak text); INSERT INTO t VALUES (1, 'x'); CREATE FUNCTION leak(t) RETURNS text {LEAK}"
    )
    driver = server.open("t")
    assert rows(driver, "SELECT t.leak FROM t") == [("x",)]
    server.run("ALTER TABLE t DROP COLUMN leak")
    for sql in ("SELECT t.leak FROM t", "SELECT t.leak AS again FROM t"):
        with pytest.raises(EtudeError) as failed:
            rows(driver, sql)
        assert isinstance(failed.value, Refused)


def test_a_new_column_brings_its_user_defined_code(server: Server) -> None:
    server.run(f"""CREATE TABLE t (a int); CREATE TYPE mood AS ENUM ('ok'); CREATE TYPE pair AS (m int);
        CREATE TABLE boxed (p pair); CREATE FUNCTION plus(mood, int) RETURNS text {LEAK};
        CREATE OPERATOR + (LEFTARG = mood, RIGHTARG = int, FUNCTION = plus)""")
    driver = server.open("t", "boxed")
    assert rows(driver, "SELECT a + 1 FROM t") == rows(driver, "SELECT (p).m + 1 FROM boxed") == []
    server.run("ALTER TABLE t ADD COLUMN m mood; ALTER TYPE pair ADD ATTRIBUTE n mood")
    for sql in ("SELECT m + 1 FROM t", "SELECT a + 1 FROM t", "SELECT (p).n + 1 FROM boxed"):
        with pytest.raises(Refused, match="operator"):
            rows(driver, sql)


def test_a_grant_means_one_table(server: Server) -> None:
    server.run(f"""CREATE TABLE "Orders" AS SELECT 'ok' AS x; CREATE TABLE orders AS SELECT '{SECRET}' AS x;
        CREATE SCHEMA a; CREATE TABLE a.b AS SELECT 'ok' AS x; CREATE TABLE public."a.b" AS SELECT '{SECRET}' AS x;
        CREATE TABLE "Mixed" AS SELECT 'ok' AS x; CREATE TABLE mixed AS SELECT 'ok' AS x;
        CREATE TABLE "Only" AS SELECT 'ok' AS x; CREATE TABLE "dot.ted" AS SELECT 'ok' AS x""")
    driver = server.open("Orders", "a.b", "MIXED", "only", "public.dot.ted")
    assert {t["name"] for t in driver.catalog()["tables"]} == {"Orders", "a.b", "Only", "public.dot.ted"}
    for sql in (
        'SELECT x FROM "Orders"',
        "SELECT x FROM orders",
        "SELECT x FROM a.b",
        'SELECT x FROM public."dot.ted"',
    ):
        assert rows(driver, sql) == [("ok",)]
    for sql in (
        "SELECT x FROM public.orders",
        'SELECT x FROM "a.b"',
        'SELECT x FROM public."a.b"',
        "SELECT x FROM mixed",
    ):
        try:
            assert rows(driver, sql) == [("ok",)]  # the case of a name may differ from that of the granted table
        except UnknownTable:
            continue


def test_a_grant_does_not_fall_to_a_table_that_the_role_may_read(server: Server) -> None:
    server.run(f"""CREATE TABLE "Orders" (x text); CREATE TABLE orders AS SELECT '{SECRET}' AS x;
        DO $$ BEGIN CREATE ROLE clerk LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
        GRANT SELECT ON orders TO clerk""")
    driver = PostgresDriver(Mount("p", "postgres", server.url.replace("postgres:@", "clerk:@", 1), tables=("Orders",)))
    server.drivers.append(driver)
    with pytest.raises(UnknownTable):
        rows(driver, "SELECT x FROM orders")


DOMAIN = f"""CREATE FUNCTION chk(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'ran on %, {SECRET}', $1; END $$;
    CREATE DOMAIN d AS text CHECK (VALUE IN ('a', 'b') OR chk(VALUE));
    CREATE DOMAIN sleepy AS int CHECK (VALUE < 9 OR pg_sleep(VALUE) IS NOT NULL);
    CREATE DOMAIN over_d AS text CHECK (VALUE = 'a' OR VALUE::d = 'b');
    CREATE DOMAIN year AS int CHECK (VALUE >= 1901 AND VALUE <= 2155 AND length(VALUE::text) = 4);
    CREATE TABLE dt (dc d, da d[]); INSERT INTO dt VALUES ('a', ARRAY['a', 'b']::d[]);
    CREATE TABLE st (s sleepy); CREATE TABLE ot (o over_d);
    CREATE TABLE film (released year, title text); INSERT INTO film VALUES (1999, 'x')"""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT lag(dc, 1, 'EVIL') OVER () FROM dt",
        "SELECT array_append(da, 'EVIL') FROM dt",
        "SELECT array_append(array_agg(dc), 'EVIL') FROM dt",
        "SELECT da = '{EVIL}' FROM dt",
        "SELECT coalesce(x, '(EVIL,)') FROM dt AS x",
        "SELECT lag(s, 1, '60') OVER () FROM st",
        "SELECT lag(o, 1, 'EVIL') OVER () FROM ot",
    ],
)
def test_the_check_of_a_domain_does_not_run(server: Server, sql: str) -> None:
    server.run(DOMAIN)
    with pytest.raises(Refused, match="domain check"):
        rows(server.open(), sql)


def test_a_domain_whose_check_only_computes_is_no_obstacle(server: Server) -> None:
    server.run(DOMAIN)
    driver = server.open()
    assert rows(driver, "SELECT lag(released, 1, '2000') OVER (), title FROM film") == [(2000, "x")]
    server.run("ALTER DOMAIN year ADD CONSTRAINT more CHECK (chk(VALUE::text)) NOT VALID")
    with pytest.raises(Refused, match="domain check"):
        rows(driver, "SELECT lag(released, 1, '2000') OVER (), title FROM film")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ARRAY[pg_typeof(1), 'hidden_plan']",
        "SELECT pg_typeof(1) = 'hidden_plan'",
        "SELECT coalesce(pg_typeof(1), '16385')",
        "SELECT pg_typeof(1) UNION ALL SELECT '16385'",
        "VALUES (pg_typeof(1)), ('hidden_plan')",
        "SELECT x = '16385' FROM (SELECT pg_typeof(1) AS x) AS y",
        "WITH y AS (SELECT pg_typeof(1) AS x) SELECT ARRAY[x, '16385'] FROM y",
        "SELECT CASE WHEN a = 1 THEN pg_typeof(1) ELSE '16385' END FROM t",
        "SELECT ARRAY[t.pg_typeof, 'hidden_plan'] FROM t",
        "SELECT ARRAY[t.\"pg_typeof\", '16385'] FROM t",
        "SELECT ARRAY[(t).pg_typeof, '16385'] FROM t",
        "SELECT ARRAY[x.pg_typeof, '16385'] AS pg_typeof FROM (SELECT 1 AS a) AS x",
        "SELECT ARRAY[q.v, '16385'] FROM (SELECT t.pg_typeof AS v FROM t) AS q",
        "SELECT ARRAY[r, 'hidden_plan'] FROM names",
        "SELECT lag(r, 1, 'hidden_plan') OVER () FROM names",
    ],
)
def test_names_of_other_tables_are_not_found_by_their_types(server: Server, sql: str) -> None:
    server.run("CREATE TABLE t (a int); CREATE TABLE hidden_plan (a int); CREATE TABLE names (r regclass)")
    with pytest.raises(Refused):
        rows(server.open("t", "names"), sql)


def test_the_type_of_a_value_can_be_asked_for(server: Server) -> None:
    server.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    driver = server.open("t")
    for sql in (
        "SELECT pg_typeof(a) FROM t ORDER BY 1",
        "SELECT upper(pg_typeof(a)::text) AS x FROM t WHERE pg_typeof(a)::text = 'integer'",
        "SELECT CAST(pg_typeof(a) AS varchar) FROM t UNION SELECT 'INTEGER'",
    ):
        assert {row[0].lower() for row in rows(driver, sql)} == {"integer"}


def test_the_search_path_does_not_replace_what_is_built_in(server: Server) -> None:
    server.run(
        DOMAIN
        + f""";CREATE TABLE t AS SELECT 1.5::real AS r; CREATE TABLE public.pg_proc (a int);
        CREATE DOMAIN public.inet AS text CHECK (VALUE = 'a' OR chk(VALUE));
        CREATE FUNCTION public.round(real) RETURNS text {LEAK};
        DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$"""
    )
    driver = server.open("t")
    for sql in ("SELECT round(r) FROM t", "SELECT 'EVIL'::inet"):
        with pytest.raises(EtudeError) as failed:
            rows(driver, sql)
        assert SECRET not in failed.value.message
    with driver._transaction(10) as connection:
        ((path,),) = connection.execute("SHOW search_path").fetchall()
    assert path == 'pg_catalog, "public", pg_temp'


HIDING = f"""CREATE TABLE secret AS
        SELECT '{SECRET}-' || i AS s, 7770000 + i AS n, 'team' AS team FROM generate_series(1, 1000) i;
    INSERT INTO secret VALUES ('1', 1, 'me'); CREATE TABLE members AS SELECT 'me' AS team;
    CREATE VIEW mine AS SELECT s, n FROM secret WHERE team IN (SELECT team FROM members);
    CREATE VIEW fenced WITH (security_barrier) AS SELECT s, n FROM secret WHERE team IN (SELECT team FROM members);
    CREATE VIEW over_mine AS SELECT s, n FROM mine;
    CREATE FUNCTION everything() RETURNS SETOF secret LANGUAGE sql STABLE AS 'SELECT * FROM secret';
    CREATE VIEW by_call AS SELECT s, n FROM everything() WHERE upper(lower(btrim(btrim(team)))) = 'ME';
    CREATE VIEW fails WITH (security_barrier) AS SELECT s, n FROM secret WHERE team::int = 1;
    CREATE TABLE own AS SELECT 'x' AS s, 1 AS n; CREATE VIEW over_own AS SELECT s, n FROM own"""
VIEWS = ("mine", "fenced", "over_mine", "by_call", "over_own")


@pytest.mark.parametrize("view", ["mine", "over_mine", "by_call"])
def test_errors_do_not_quote_rows_that_a_view_hides(server: Server, view: str) -> None:
    server.run(HIDING)
    driver = server.open(*VIEWS, "own")
    for where in (
        "s::int > 0",
        "s::date > '2000-01-01'",
        "chr(n) = 'a'",
        "make_date(n, 1, 1) > '2000-01-01'",
        "make_time(n, 1, 1) > '01:00'",
        "get_byte('\\x00'::bytea, n) > 0",
        "get_bit('\\x00'::bytea, n::bigint) > 0",
        "regexp_count('a', 'a', -n) > 0",
        "now() AT TIME ZONE s IS NULL",
        "s::json IS NULL",
    ):
        with pytest.raises(EtudeError) as failed:
            rows(driver, f"SELECT * FROM {view} WHERE {where}")
        told = f"{failed.value.message} {failed.value.hint} {failed.value.details}"
        assert SECRET not in told and "777" not in told, where
        assert "does not fit its type" in told or "exceeds a limit" in told, where


def test_errors_about_the_text_of_a_query_on_a_view_are_told(server: Server) -> None:
    server.run(HIDING)
    driver = server.open(*VIEWS, "own")
    with pytest.raises(InvalidQuery, match='column "missing" does not exist') as failed:
        rows(driver, "SELECT missing FROM mine")
    assert failed.value.details["line"] == 1
    with pytest.raises(InvalidQuery, match=r"'x'|\"x\""):
        rows(driver, "SELECT * FROM own WHERE s::int > 0")
    with pytest.raises(InvalidQuery, match=f"{SECRET}-1"):
        rows(server.open(), "SELECT * FROM mine WHERE s::int > 0")


def test_a_barrier_keeps_conditions_from_hidden_rows(server: Server) -> None:
    server.run(HIDING)
    driver = server.open(*VIEWS, "fails", "own")
    assert rows(driver, "SELECT s FROM fenced WHERE s::int > 0") == [("1",)]
    with pytest.raises(InvalidQuery) as failed:
        rows(driver, "SELECT * FROM fails")
    assert "team" not in failed.value.message  # the view's own condition fails on a value that it reads
    assert driver._known().leaky == {"mine", "over_mine", "by_call", "over_own"}
    assert server.open()._known().leaky == frozenset()


def test_neither_a_plan_nor_an_estimate_tells_about_hidden_rows(server: Server) -> None:
    server.run(HIDING + "; CREATE INDEX ON secret (n); ANALYZE")
    driver = server.open(*VIEWS, "own")
    for view in VIEWS:
        with pytest.raises(Refused, match="`EXPLAIN` is refused"):
            driver.check(f"EXPLAIN SELECT * FROM own JOIN (SELECT n FROM {view} WHERE n > 5) AS x USING (n)")
        conditions = ("n = 1", "n = 0", "n > 7770500")
        estimates = [driver.estimate(driver.check(f"SELECT * FROM {view} WHERE {where}")) for where in conditions]
        assert estimates[0] == estimates[1] == estimates[2]
        assert estimates[0]["scan_rows"] > 0 and estimates[0]["result_rows"] is None
    assert rows(driver, "EXPLAIN SELECT * FROM own")
    assert rows(server.open(), "EXPLAIN SELECT * FROM mine")
