"""DuckDB files made by an attacker: their views, macros and generated columns reach no more than a query does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.entities import Limits, SourceSpec
from etude.errors import EtudeError, Refused

SECRET = "TOPSECRET"
Open = Callable[[str], App]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Open an app with a made-up file `evil`, `crm` of which one table is granted, and `shop`, granted as a whole."""
    apps: list[App] = []

    def build(sql: str) -> App:
        with duckdb.connect(str(tmp_path / "crm.duckdb")) as crm:
            crm.execute(f"CREATE TABLE pub AS SELECT 1 AS a; CREATE TABLE secret AS SELECT '{SECRET}' AS s")
        with duckdb.connect(str(tmp_path / "shop.duckdb")) as shop:
            shop.execute(
                "CREATE TABLE orders AS SELECT -5 AS a; CREATE VIEW sizes AS SELECT abs(a) AS size FROM orders"
            )
        with duckdb.connect(str(tmp_path / "evil.duckdb")) as evil:
            evil.execute("CREATE TABLE t AS SELECT 7 AS a")
            evil.execute(sql)
        specs = {
            "evil": SourceSpec(url=str(tmp_path / "evil.duckdb")),
            "crm": SourceSpec(url=str(tmp_path / "crm.duckdb"), tables=("pub",)),
            "shop": SourceSpec(url=str(tmp_path / "shop.duckdb")),
        }
        apps.append(App(home=tmp_path / "home", sources=specs).__enter__())
        return apps[-1]

    yield build
    for app in apps:
        app.__exit__(None, None, None)


def run(app: App, source: str, sql: str) -> list[tuple[object, ...]]:
    return app.sql(source, sql, limits=Limits(timeout_s=30), record=False).rows()


CATALOG = ["duckdb_databases()", "duckdb_tables()", "duckdb_settings()", "information_schema.tables", "sqlite_master"]


@pytest.mark.parametrize("catalog", CATALOG)
@pytest.mark.parametrize(
    "query", ["FROM v", "FROM w", "FROM crm.pub, evil.v", "FROM (DESCRIBE v)", "SELECT 1 IN (FROM v)"]
)
def test_a_view_does_not_read_the_catalog(opened: Open, catalog: str, query: str) -> None:
    app = opened(f"CREATE VIEW v AS FROM {catalog}; CREATE VIEW w AS FROM (SELECT * FROM v)")
    with pytest.raises(Refused):
        run(app, "evil", query)


@pytest.mark.parametrize(
    ("macro", "query"),
    [
        ("abs(x) AS (SELECT string_agg(t::VARCHAR, ';') FROM query_table(x) t)", "SELECT abs('t') FROM crm.pub"),
        ("range(x) AS TABLE FROM query_table(x)", "FROM range('t'), crm.pub"),
        ("range(x) AS TABLE FROM query_table(x)", "FROM range('t')"),
        ("fine(x) AS (SELECT max(name) FROM duckdb_settings())", "SELECT fine(1)"),
        ("fine() AS TABLE FROM duckdb_databases()", "FROM fine()"),
        ("fine() AS current_setting('temp_directory')", "SELECT fine()"),
        # An operator calls a function that the text does not name.
        ("array_extract(x, y) AS (SELECT max(path) FROM duckdb_databases())", "SELECT ['a'][1]"),
        ("array_extract(x, y) AS (SELECT max(path) FROM duckdb_databases())", "SELECT ['a'][1] FROM crm.pub"),
        ("struct_extract(x, y) AS (SELECT max(path) FROM duckdb_databases())", "SELECT {'a': 1}.a"),
        ("current_user() AS (SELECT max(path) FROM duckdb_databases())", "SELECT current_user"),
        ("list_value(x) AS (SELECT max(path) FROM duckdb_databases())", "SELECT [1]"),
        ('"+"(x, y) AS (SELECT max(path) FROM duckdb_databases())', "SELECT a + 1 FROM t"),
        ("min(x) AS (SELECT max(path) FROM duckdb_databases())", "SUMMARIZE t"),
        ("ABS(x) AS 'another'", "SELECT abs(-1)"),
        ('"+"(x, y) AS 42', "SELECT 1 + 1"),
    ],
)
def test_a_macro_does_not_reach_what_a_query_may_not(opened: Open, macro: str, query: str) -> None:
    with pytest.raises(Refused):
        run(opened(f"CREATE MACRO {macro}"), "evil", query)


def test_a_macro_inside_a_macro_is_checked(opened: Open) -> None:
    app = opened("CREATE MACRO inner_() AS current_setting('temp_directory'); CREATE MACRO outer_() AS inner_() || ''")
    with pytest.raises(Refused, match="inner_"):
        run(app, "evil", "SELECT outer_()")


@pytest.mark.parametrize("query", ["SELECT b FROM g", "FROM g", "FROM over_g", "SELECT g.b FROM evil.g, shop.orders"])
def test_a_generated_column_does_not_read_settings(opened: Open, query: str) -> None:
    app = opened(
        """CREATE TABLE g (a INT, "x GENERATED ALWAYS AS (1)" INT, b AS (current_setting('temp_directory')));
        INSERT INTO g (a) VALUES (1); CREATE VIEW over_g AS FROM g"""
    )
    with pytest.raises(Refused, match="current_setting"):
        run(app, "evil", query)


def test_a_file_does_not_change_the_views_of_another(opened: Open) -> None:
    app = opened("CREATE MACRO abs(x) AS 42")
    assert run(app, "shop", "SELECT size FROM sizes") == [(5,)]
    with pytest.raises(Refused, match="abs"):
        run(app, "evil", "SELECT size FROM shop.sizes, t")


def test_a_view_does_not_reach_into_another_source(opened: Open, tmp_path: Path) -> None:
    app = opened(
        f"""ATTACH '{tmp_path / "shop.duckdb"}' AS shop; CREATE VIEW v AS FROM shop.main.orders; DETACH shop"""
    )
    with pytest.raises(EtudeError):
        run(app, "evil", "SELECT v.* FROM v, shop.orders")


def test_granted_tables_are_joined_with_those_of_another_file(opened: Open) -> None:
    app = opened("CREATE VIEW v AS SELECT a * 2 AS double FROM t; CREATE MACRO net(x) AS x / 2")
    assert run(app, "evil", "SELECT net(double), pub.a FROM v, crm.pub") == [(7.0, 1)]
    assert run(app, "crm", "SELECT double, pub.a, o.a FROM evil.v, pub, shop.orders o") == [(14, 1, -5)]
    for query in ("SELECT * FROM crm.secret, t", "SELECT * FROM crm.main.secret, crm.pub, t"):
        with pytest.raises(EtudeError) as failed:
            run(app, "evil", query)
        assert SECRET not in str(failed.value)


def test_the_views_and_macros_of_an_ordinary_file_work(opened: Open) -> None:
    app = opened("""
        CREATE SCHEMA s; CREATE TABLE s.u AS SELECT 1 AS k, 'de' AS land, DATE '2024-02-03' AS day;
        CREATE VIEW s.here AS SELECT k FROM u;
        CREATE VIEW "odd (name) as" ("a as", "select") AS SELECT k, land FROM s.u;
        CREATE VIEW many AS WITH x AS (FROM s.u) SELECT x.*, year(day) AS y, [1, 2][1] AS one FROM x JOIN t ON t.a > k;
        CREATE VIEW wide AS PIVOT s.u ON land IN ('de', 'fr') USING sum(k);
        CREATE VIEW about AS SUMMARIZE t; CREATE VIEW shape AS DESCRIBE t;
        CREATE MACRO s.twice(x) AS x * 2; CREATE MACRO plus(x, y := 1) AS x + y;
        CREATE MACRO above(n) AS TABLE SELECT * FROM t WHERE a > n;
        CREATE VIEW called AS SELECT s.twice(a) AS two, plus(a) AS more FROM above(1);
        CREATE TABLE g (a INT, b AS (plus(a) * 2), d INT DEFAULT (CAST(current_setting('threads') AS INT)));
        INSERT INTO g (a) VALUES (1);
    """)
    assert run(app, "evil", "FROM s.here") == [(1,)]
    assert run(app, "evil", 'SELECT "a as", "select" FROM "odd (name) as"') == [(1, "de")]
    assert run(app, "evil", "SELECT k, y, one FROM many") == [(1, 2024, 1)]
    assert run(app, "evil", "SELECT de, fr FROM wide") == [(1, None)]
    assert run(app, "evil", "SELECT column_name FROM about") == run(app, "evil", "SELECT column_name FROM shape")
    assert run(app, "evil", "FROM called") == [(14, 8)]
    assert run(app, "evil", "SELECT * FROM above(3)") == [(7,)]
    assert run(app, "evil", "SELECT a, b FROM g") == [(1, 4)]
    assert run(app, "evil", "SELECT c.two, o.a FROM called c, shop.orders o") == [(14, -5)]


@pytest.mark.parametrize("name", ["sum --\n", "abs(a), sum", "sum /*", "a b", "x'y"])
def test_a_macro_whose_name_reads_as_something_else_is_refused(opened: Open, name: str) -> None:
    quoted = '"' + name + '"'
    body = "max((SELECT string_agg(name, ',') FROM duckdb_settings()))"
    app = opened(f"CREATE MACRO {quoted}(x) AS {body}; CREATE VIEW v AS SELECT {quoted}(a) OVER () AS s FROM t")
    for query in ("FROM v", "FROM t", "FROM crm.pub, evil.v"):
        with pytest.raises(Refused, match="is not plain"):
            run(app, "evil", query)


def test_a_type_whose_name_reads_as_something_else_is_refused(opened: Open) -> None:
    app = opened("CREATE TYPE \"it's\" AS ENUM ('a'); CREATE TABLE e AS SELECT 1 AS b")
    with pytest.raises(Refused, match="The name of the type `it's` in the DuckDB file is not plain"):
        run(app, "evil", "FROM e")


def test_default_values_of_macros_are_read_from_duckdb(opened: Open) -> None:
    app = opened("""
        CREATE MACRO add_to(a, b := 5, c := 'x, (y'' := 3)') AS a + b;
        CREATE MACRO first_of(l := [1, 2], s := {'k': [DATE '2020-01-01']}, t := INTERVAL 3 DAY) AS l[1];
        CREATE MACRO typed(a INTEGER, b VARCHAR := 'line
\ttyped(x)') AS a || b;
        CREATE MACRO several(a) AS a, (a, b) AS a + b;
        CREATE MACRO rows_of(n := 2) AS TABLE SELECT a + n AS b FROM t;
        CREATE MACRO "no default"() AS 1;
        DROP MACRO "no default";
    """)
    assert run(app, "evil", "SELECT add_to(a), add_to(a, 1), add_to(a, b := 2) FROM t") == [(12, 8, 9)]
    assert run(app, "evil", "SELECT first_of(), first_of([5])") == [(1, 5)]
    assert run(app, "evil", "SELECT typed(1)") == [("1line\n\ttyped(x)",)]
    assert run(app, "evil", "SELECT several(1), several(1, 2)") == [(1, 3)]
    assert run(app, "evil", "FROM rows_of()") == [(9,)]


def _checksum(block: bytes) -> bytes:
    """Return DuckDB's checksum of a block."""
    total = 5381
    for (number,) in struct.iter_unpack("<Q", block):
        total ^= number * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    return struct.pack("<Q", total)


@pytest.mark.parametrize("query", ["SELECT st()", "SELECT st(b := 1)", "FROM v", "FROM tt()", "SELECT outer_st()"])
def test_a_default_value_that_duckdb_would_not_write_is_checked(opened: Open, tmp_path: Path, query: str) -> None:
    with duckdb.connect(str(tmp_path / "made.duckdb")) as made:
        made.execute("""
            CREATE TABLE t AS SELECT 7 AS a; CREATE MACRO st(a := ['x'], b := 2) AS a;
            CREATE VIEW v AS SELECT st() AS x;
            CREATE MACRO tt(a := ['x']) AS TABLE SELECT a; CREATE MACRO outer_st() AS st(); CHECKPOINT""")
    raw = bytearray((tmp_path / "made.duckdb").read_bytes().replace(b"list_value", b"collate_en"))
    for start in range(3 * 4096, len(raw), 1 << 18):
        raw[start : start + 8] = _checksum(bytes(raw[start + 8 : start + (1 << 18)]))
    (tmp_path / "made.duckdb").write_bytes(raw)
    with duckdb.connect(str(tmp_path / "made.duckdb"), read_only=True) as made:
        assert made.execute("SELECT st()").fetchall() != [(["x"],)]  # DuckDB itself calls the other function
    app = opened("CREATE TABLE other (a INT)")
    app.add_source("made", SourceSpec(url=str(tmp_path / "made.duckdb")))
    app.add_source("part", SourceSpec(url=str(tmp_path / "made.duckdb"), tables=("v",)))
    for source in ("made", "part"):
        with pytest.raises(Refused, match=r"collate_en|`(?:st|tt|outer_st)` is not allowed"):
            run(app, source, query)
    assert run(app, "made", "FROM t") == [(7,)]


RECURRING = "CREATE SCHEMA recurring; CREATE VIEW recurring.x AS FROM duckdb_settings()"
KEYED = "WITH RECURSIVE {0}(a) USING KEY (a) AS (SELECT 1 UNION SELECT 2 FROM {1} AS r WHERE r.a < 1) SELECT * FROM {0}"


@pytest.mark.parametrize(
    "query",
    [
        "WITH x AS (SELECT 1) SELECT * FROM recurring.x",
        "WITH x AS (SELECT 1) SELECT * FROM RECURRING.X",
        "WITH x AS (SELECT 1) SELECT * FROM t WHERE EXISTS (FROM recurring.x)",
        "WITH RECURSIVE x(a) AS (SELECT 1 UNION SELECT 2 FROM recurring.x) SELECT * FROM x",
        KEYED.format("x", "recurring.x"),
        "WITH x AS (SELECT 1) FROM (SHOW recurring.x)",
    ],
)
def test_a_schema_named_recurring_is_not_taken_for_a_common_table_expression(opened: Open, query: str) -> None:
    app = opened(RECURRING)
    with pytest.raises(Refused, match="duckdb_settings"):
        run(app, "evil", query)


def test_recurring_means_the_expression_with_a_key_and_nothing_else(opened: Open) -> None:
    app = opened("CREATE VIEW y AS FROM duckdb_settings()")
    assert run(app, "shop", KEYED.format("x", "recurring.x")) == [(1,)]
    for query in (
        "WITH x AS (SELECT 1) SELECT * FROM recurring.x",
        KEYED.format("x", "recurring.z"),
        KEYED.format("x", "x") + ", recurring.x",
    ):
        with pytest.raises(Refused, match="recurring"):
            run(app, "shop", query)


def test_show_describes_the_table_and_not_a_common_table_expression(opened: Open) -> None:
    app = opened("CREATE VIEW y AS FROM duckdb_settings()")
    with pytest.raises(Refused, match="duckdb_settings"):
        run(app, "evil", "WITH y AS (SELECT 1 AS a) FROM (SHOW y)")
    for name in ("duckdb_tables", "pg_class", '"/etc/passwd"'):
        with pytest.raises(Refused, match="not a table"):
            run(app, "evil", f"WITH {name} AS (SELECT 1 AS a) FROM (SHOW {name})")
