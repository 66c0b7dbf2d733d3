from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from etude.errors import EtudeError, InvalidQuery, Refused, SourceError
from etude.sources.base import CheckedQuery, Mount
from etude.sources.drivers.duckdb import DuckdbDriver
from etude.sources.duckdb_errors import is_fatal_duckdb_error


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("""
            CREATE TABLE customers (id INT PRIMARY KEY, email VARCHAR UNIQUE, name VARCHAR NOT NULL);
            CREATE TABLE orders (id INT PRIMARY KEY, customer_id INT REFERENCES customers (id), total DECIMAL(10, 2));
            COMMENT ON TABLE orders IS 'one row per order';
            COMMENT ON COLUMN orders.total IS 'in euro';
            CREATE SCHEMA archive;
            CREATE TABLE archive.old AS SELECT 1 AS a;
            CREATE VIEW big AS SELECT * FROM orders WHERE total > 100;
            CREATE MACRO net(x) AS x / 1.19;
            INSERT INTO customers SELECT i, 'c' || i || '@x.org', 'name' FROM range(10) t(i);
            INSERT INTO orders SELECT i, i % 10, i FROM range(1000) t(i);
        """)
    return path


@pytest.fixture
def driver(shop: Path, tmp_path: Path) -> Iterator[DuckdbDriver]:
    opened = DuckdbDriver(Mount("shop", "duckdb", str(shop)), scratch=str(tmp_path / "scratch"))
    yield opened
    opened.close()


def rows(driver: DuckdbDriver, sql: str) -> list[dict[str, object]]:
    return [row for batch in driver.run(driver.check(sql), 10) for row in batch.to_pylist()]


def test_the_catalog_has_keys_comments_and_counts(driver: DuckdbDriver) -> None:
    tables = {t["name"]: t for t in driver.catalog()["tables"]}
    assert set(tables) == {"customers", "orders", "big", "archive.old"}
    assert tables["customers"]["primary_key"] == ["id"]
    assert tables["customers"]["unique"] == [["email"]]
    assert tables["orders"]["foreign_keys"] == [
        {"columns": ["customer_id"], "to_table": "customers", "to_columns": ["id"]}
    ]
    assert tables["orders"]["comment"] == "one row per order"
    assert tables["orders"]["columns"][2] == {
        "name": "total",
        "type": "DECIMAL(10,2)",
        "nullable": True,
        "comment": "in euro",
    }
    assert tables["orders"]["row_count"] == 1000
    assert tables["big"]["kind"] == "view"


def test_macros_of_the_file_can_be_called(driver: DuckdbDriver) -> None:
    assert rows(driver, "SELECT round(net(119)) AS n") == [{"n": 100.0}]


TREE = '{"error": false, "statements": [{"node": {"type": "SELECT_NODE", "select_list": []}}]}'


@pytest.mark.parametrize(
    "macro",
    [
        "list_value() AS string_split('{secret}', ',')",
        f"json_serialize_sql(x, skip_null := 1, skip_empty := 1, skip_default := 1) AS '{TREE}'",
        "duckdb_functions() AS TABLE SELECT 'duckdb_settings' AS function_name, false AS internal",
        "duckdb_tables() AS TABLE SELECT 'shop' AS database_name, 'main' AS schema_name, 'x' AS table_name",
    ],
)
def test_a_macro_of_the_file_is_not_called_in_place_of_what_etude_calls(tmp_path: Path, macro: str) -> None:
    secret, path = tmp_path / "secret.txt", tmp_path / "evil.duckdb"
    secret.write_text("a secret")
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.execute(f"CREATE VIEW opened AS SELECT content FROM read_text('{secret}')")
        connection.execute("CREATE MACRO " + macro.replace("{secret}", str(secret)))
    opened = DuckdbDriver(Mount("evil", "duckdb", str(path)), scratch=str(tmp_path / "scratch"))
    try:
        assert rows(opened, "SELECT a FROM t") == [{"a": 1}]
        assert {table["name"] for table in opened.catalog()["tables"]} == {"t", "opened"}
        for query in ("SELECT * FROM opened", "SELECT * FROM duckdb_settings()", f"FROM read_text('{secret}')"):
            with pytest.raises(EtudeError):
                rows(opened, query)
    finally:
        opened.close()


def test_a_left_result_does_not_block_the_next_query(driver: DuckdbDriver) -> None:
    batches = driver.run(driver.check("SELECT * FROM range(10000000)"), 10)
    next(batches)
    batches.close()
    assert rows(driver, "SELECT 1 AS a") == [{"a": 1}]


def test_a_query_asked_again_is_run_again(driver: DuckdbDriver) -> None:
    for sql in ("SELECT random() AS x", "SELECT nanosecond(now()) + random() AS x", "EXPLAIN ANALYZE SELECT 1"):
        first = rows(driver, sql)
        assert len(first) == 1
        assert rows(driver, sql) != first or "EXPLAIN" in sql
    assert rows(driver, "SELECT count(*) AS n FROM orders") == rows(driver, "SELECT count(*) AS n FROM orders")


def test_an_estimate_counts_what_is_scanned(driver: DuckdbDriver) -> None:
    assert driver.estimate(driver.check("SELECT total FROM orders WHERE id = 3"))["scan_rows"] == 1000
    assert driver.estimate(driver.check("SELECT * FROM orders, customers"))["scan_rows"] == 1010
    assert driver.estimate(driver.check("SELECT 1"))["scan_rows"] == 0


def test_a_limit_bounds_the_estimate(driver: DuckdbDriver) -> None:
    assert driver.estimate(driver.check("SELECT id FROM orders LIMIT 10"))["scan_rows"] == 10
    assert driver.estimate(driver.check("SELECT id FROM orders ORDER BY total LIMIT 10"))["scan_rows"] >= 1000


def test_a_fingerprint_changes_when_the_file_does(driver: DuckdbDriver, shop: Path) -> None:
    before = driver.fingerprints(("orders",))
    driver.close()
    with duckdb.connect(str(shop)) as connection:
        connection.execute("INSERT INTO archive.old VALUES (2)")
    assert DuckdbDriver(Mount("shop", "duckdb", str(shop))).fingerprints(("orders",)) != before


def test_errors_of_a_query_are_the_writers(driver: DuckdbDriver) -> None:
    for sql in ("SELECT nope FROM orders", "SELECT 'x'::INT", "SELECT sum(name) FROM customers"):
        with pytest.raises(InvalidQuery):
            rows(driver, sql)


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    path.write_text("not a database" * 1000)
    with pytest.raises(SourceError, match=r"x\.duckdb"):
        DuckdbDriver(Mount("x", "duckdb", str(path)))


def test_parquet_files_are_views(tmp_path: Path) -> None:
    for part in (1, 2):
        duckdb.sql(f"SELECT {part} AS part, i FROM range(5) t(i)").write_parquet(str(tmp_path / f"{part}.parquet"))
    paths = [str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")]
    mount = Mount("files", "files", str(tmp_path), files=({"table": "parts", "paths": paths, "fingerprint": "f"},))
    driver = DuckdbDriver(mount)
    assert rows(driver, "SELECT count(*) AS n, sum(i)::INT AS s FROM files.parts") == [{"n": 10, "s": 20}]
    assert driver.catalog()["tables"][0]["row_count"] == 10
    assert driver.fingerprints(("parts",)) == {"parts": "f"}
    driver.close()


UNGUARDED = [
    "SELECT * FROM read_csv('@/s.csv')",
    "SELECT * FROM '@/s.csv'",
    "SELECT content FROM read_text('@/s.csv')",
    "ATTACH '@/x.duckdb' AS x",
    "COPY (SELECT 1) TO '@/out.csv'",
    "EXPORT DATABASE '@/out'",
    "INSTALL httpfs",
    "SET enable_external_access = true",
    "SET threads = 64",
    "SET temp_directory = '@/out'",
    "INSERT INTO orders VALUES (1, 1, 1)",
    "DROP TABLE orders",
    "CREATE TABLE shop.main.x (a INT)",
    "CALL enable_logging('QueryLog', storage='file', storage_path='@/out')",
    "SELECT * FROM secret_frame",
]


@pytest.mark.parametrize("sql", UNGUARDED)
def test_the_settings_hold_without_the_guard(driver: DuckdbDriver, tmp_path: Path, sql: str) -> None:
    secret_frame = duckdb.sql("SELECT 1")  # what a replacement scan of Python variables would find
    (tmp_path / "s.csv").write_text("k\nTOPSECRET\n")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(EtudeError):
        list(driver.run(CheckedQuery(sql.replace("@", str(tmp_path)), ()), 10))
    assert set(tmp_path.rglob("*")) == before
    assert secret_frame


@pytest.mark.parametrize(
    "sql",
    [
        "PIVOT orders ON customer_id USING sum(total)",
        "PIVOT orders -- a 'comment'\n ON customer_id % 2 /* é */, id < 5 USING count(*) GROUP BY total",
        "WITH o AS (FROM orders WHERE id < 20) PIVOT o ON customer_id USING max(total) AS m, count(*) AS n",
        "PIVOT (PIVOT orders ON customer_id < 3 USING sum(total)) ON id < 5 USING count(*)",
        "SELECT (SELECT count(*) FROM (PIVOT orders ON customer_id USING count(*))) AS n",
        "DESCRIBE PIVOT orders ON customer_id USING sum(total)",
    ],
)
def test_a_pivot_gives_what_plain_duckdb_gives(driver: DuckdbDriver, shop: Path, sql: str) -> None:
    with duckdb.connect(str(shop), read_only=True) as plain:
        relation = plain.sql(sql)
        names, expected = relation.columns, relation.fetchall()
    assert driver.estimate(driver.check(sql)) is not None
    seen = rows(driver, sql)
    assert [list(row) for row in seen[:1]] == [names][: len(seen)]
    assert sorted(map(repr, (tuple(map(str, r.values())) for r in seen))) == sorted(
        map(repr, (tuple(map(str, r)) for r in expected))
    )


def test_a_pivot_leaves_nothing_behind(driver: DuckdbDriver) -> None:
    sql = "PIVOT orders ON customer_id USING sum(total)"
    assert rows(driver, sql) == rows(driver, sql)
    with pytest.raises(EtudeError):
        rows(driver, driver.check(sql).sql)


@pytest.mark.parametrize("kind", [duckdb.InternalException, duckdb.FatalException])
def test_a_fatal_error_is_told_from_a_mistake(kind: type[Exception]) -> None:
    assert is_fatal_duckdb_error(kind("anything"))
    assert is_fatal_duckdb_error(OSError("INTERNAL Error: in the middle of a stream"))
    assert not is_fatal_duckdb_error(duckdb.BinderException("Binder Error: INTERNAL Error is a column"))


def test_an_error_does_not_name_the_hidden_database(shop: Path) -> None:
    partly = DuckdbDriver(Mount("shop", "duckdb", str(shop), tables=("orders",)))
    with pytest.raises(EtudeError) as caught:
        list(partly.run(CheckedQuery("FROM customers", ()), 10))
    assert "hidden_" not in f"{caught.value.message} {caught.value.hint}"
    partly.close()


def test_an_error_does_not_suggest_a_name_of_the_hidden_database(tmp_path: Path) -> None:
    file = tmp_path / "moods.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute("CREATE TYPE secret_mood AS ENUM ('a'); CREATE SEQUENCE secret_steps; CREATE TABLE t (a INTEGER)")
    partly = DuckdbDriver(Mount("moods", "duckdb", str(file), tables=("t",)))
    for query in ("SELECT 'a'::secret_moo", "SELECT nextval('secret_step')"):
        with pytest.raises(EtudeError) as caught:
            list(partly.run(CheckedQuery(query, ()), 10))
        told = f"{caught.value.message} {caught.value.hint}"
        assert "does not exist" in told
        assert "hidden_" not in told and "secret_mood" not in told and "secret_steps" not in told
    partly.close()


@pytest.mark.parametrize("explain", ["EXPLAIN", "explain", "EXPLAIN ANALYZE"])
def test_a_plan_does_not_name_the_hidden_database(shop: Path, explain: str) -> None:
    partly = DuckdbDriver(Mount("shop", "duckdb", str(shop), tables=("orders",)))
    [plan] = rows(partly, f"{explain} SELECT a.id FROM orders a JOIN orders b USING (id)")
    assert "hidden_" not in repr(plan) and "main.orders" in plan["explain_value"]
    lines = [line.rstrip() for line in plan["explain_value"].splitlines() if "main.orders" in line]
    assert all(line.endswith("│") for line in lines)
    partly.close()


def test_a_database_of_which_parts_are_granted_is_not_attached_beside_another(shop: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "crm.duckdb")) as connection:
        connection.execute("CREATE TABLE people AS SELECT 7 AS id; CREATE TABLE secret AS SELECT 1 AS a")
    crm = Mount("crm", "duckdb", str(tmp_path / "crm.duckdb"), tables=("people",))
    for other in (Mount("shop", "duckdb", str(shop)), Mount("shop", "duckdb", str(shop), tables=("orders",))):
        with pytest.raises(SourceError, match="beside another"):
            DuckdbDriver(other, crm)


def test_a_grant_with_a_dot_means_a_table_of_a_schema(tmp_path: Path) -> None:
    file = str(tmp_path / "dots.duckdb")
    with duckdb.connect(file) as con:
        con.execute("""CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 'ok' AS a;
            CREATE TABLE "s.t" AS SELECT 'secret' AS a;
            CREATE TABLE "plain.dotted" AS SELECT 'ok' AS a""")
    partly = DuckdbDriver(Mount("dots", "duckdb", file, tables=("S.T", "main.plain.dotted")))
    assert [t["name"] for t in partly.catalog()["tables"]] == ["plain.dotted", "s.t"]
    assert rows(partly, "FROM s.t") == rows(partly, 'FROM "plain.dotted"') == [{"a": "ok"}]
    with pytest.raises(EtudeError):
        rows(partly, 'FROM "s.t"')
    partly.close()


def test_a_condition_is_applied_after_those_of_a_granted_view(tmp_path: Path) -> None:
    file = str(tmp_path / "views.duckdb")
    with duckdb.connect(file) as con:
        con.execute("""CREATE TABLE secret AS
                SELECT 'TOPSECRET-' || i AS s, 'team' || (i % 7) AS team FROM range(9999) r(i);
            INSERT INTO secret VALUES ('1', 'me'), ('2', 'me');
            CREATE TABLE members AS SELECT 'me' AS team UNION ALL SELECT 'tim' || i FROM range(30000) r(i);
            CREATE VIEW mine AS SELECT s FROM secret WHERE team IN (SELECT team FROM members)""")
    partly = DuckdbDriver(Mount("views", "duckdb", file, tables=("mine",)))
    for where in (
        "s::INT > 1",
        "s::INT > 1 AND s <> 'TOPSECRET-0'",
        "CASE WHEN s = '1' THEN false ELSE s::INT > 0 END",
    ):
        assert rows(partly, f"SELECT * FROM mine WHERE {where}") == [{"s": "2"}]
    joined = "SELECT a.s FROM mine a JOIN (SELECT s::INT AS n FROM mine) b ON a.s::INT = b.n WHERE b.n > 1"
    assert rows(partly, joined) == [{"s": "2"}]
    assert partly.estimate(partly.check("SELECT * FROM mine WHERE s = '1' LIMIT 5"))["scan_rows"] >= 10_000
    partly.close()


def test_plans_errors_and_estimates_do_not_tell_about_rows_that_a_view_hides(tmp_path: Path) -> None:
    file = str(tmp_path / "views.duckdb")
    with duckdb.connect(file) as con:
        con.execute("""CREATE TABLE secret AS SELECT 'TOPSECRET-' || i AS s, i AS n, 'x' AS team FROM range(1000) r(i);
            INSERT INTO secret VALUES ('1', 1, 'me'); CREATE TABLE members AS SELECT 'me' AS team;
            CREATE TABLE own AS SELECT 1 AS n; CREATE SCHEMA s;
            CREATE VIEW s.Mine AS SELECT s, n FROM main.secret WHERE team IN (SELECT team FROM main.members);
            CREATE VIEW fails AS SELECT s, n FROM secret WHERE s::INT = 1""")
    partly = DuckdbDriver(Mount("views", "duckdb", file, tables=("s.Mine", "fails", "own")))
    for explain in ("EXPLAIN", "EXPLAIN ANALYZE"):
        for query in ("SELECT * FROM S.MINE", "FROM own JOIN views.s.mine USING (n)", "PIVOT s.mine ON n"):
            with pytest.raises(Refused, match="`EXPLAIN` is refused"):
                rows(partly, f"{explain} {query}")
        assert rows(partly, f"{explain} SELECT * FROM own")
    estimates = [partly.estimate(partly.check(f"SELECT * FROM s.mine WHERE n > {n}")) for n in (5, 998, 999, 1000)]
    assert all(e == estimates[0] for e in estimates) and estimates[0]["scan_rows"] >= 1000
    for query in ("SELECT * FROM fails", "PIVOT fails ON n", "SELECT count(s) FROM fails"):
        with pytest.raises(InvalidQuery, match="does not fit its type") as failed:
            rows(partly, query)
        assert "TOPSECRET" not in f"{failed.value.message} {failed.value.hint} {failed.value.details}"
    with pytest.raises(InvalidQuery, match="missing"):
        rows(partly, "SELECT missing FROM s.mine")
    partly.close()


@pytest.mark.parametrize("name", ["list_aggregate", "list_aggr", "aggregate", "array_aggregate", "main.array_aggr"])
def test_an_aggregate_that_a_text_names_is_checked(shop: Path, name: str) -> None:
    driver = DuckdbDriver(Mount("shop", "duckdb", str(shop)))
    assert rows(driver, f"SELECT {name}([1, 2], 'SUM') AS x") == [{"x": 3}]
    for argument in ("'combine_aggr'", "'decimal_average'", "'su' || 'm'", "(SELECT 'sum')"):
        with pytest.raises(Refused, match="aggregate"):
            driver.check(f"SELECT {name}([1, 2], {argument}) AS x")
    driver.close()
