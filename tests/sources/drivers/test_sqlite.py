"""The SQLite driver: types from values, a file that is never written, limits, cancel."""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from etude.entities import Table
from etude.errors import Cancelled, EtudeError, InvalidQuery, LimitExceeded, Refused, SourceError, SourceLocked
from etude.sources import rows as shaping
from etude.sources.base import CheckedQuery, Mount, tables_fingerprint
from etude.sources.drivers.sqlite import SqliteDriver

ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


def make(path: Path, sql: str) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript(sql)
    db.close()
    return path


def open_driver(path: Path | str, *tables: str) -> SqliteDriver:
    return SqliteDriver(Mount("src", "sqlite", str(path), tables=tables or None))


def read(driver: SqliteDriver, sql: str, timeout_s: float = 120) -> pa.Table:
    return pa.Table.from_batches(list(driver.run(driver.check(sql), timeout_s)))


@pytest.fixture
def mixed(tmp_path: Path) -> SqliteDriver:
    sql = """CREATE TABLE t (i INTEGER, r REAL, d DECIMAL(10,2), s TEXT, b BLOB, any, n INTEGER, nr REAL, nb BLOB, x);
    INSERT INTO t VALUES (1, 1.5, 10, 'a', x'00ff', 1, NULL, NULL, NULL, NULL),
        (9007199254740993, 2, 2.5, 'ü', x'', 'two', NULL, NULL, NULL, NULL)"""
    return open_driver(make(tmp_path / "t.db", sql))


def test_types_come_from_the_values_and_the_declared_types(mixed: SqliteDriver) -> None:
    seen = read(mixed, "SELECT * FROM t")
    wanted = ["int64", "double", "double", "string", "binary", "string", "int64", "double", "binary", "string"]
    assert [str(field.type) for field in seen.schema] == wanted
    first, second = seen.to_pylist()
    assert (first["i"], second["i"]) == (1, 9007199254740993)
    assert (first["d"], second["d"]) == (10.0, 2.5)
    assert (first["any"], second["any"]) == ("1", "two")
    assert first["b"] == b"\x00\xff"
    assert second["s"] == "ü"
    assert list(mixed.column_types[:3]) == ["INTEGER", "REAL", "DECIMAL(10,2)"]


def test_whole_numbers_that_a_float_would_change_become_text(mixed: SqliteDriver) -> None:
    seen = read(mixed, "SELECT 9007199254740993 AS a UNION ALL SELECT 0.5")
    assert seen.to_pylist() == [{"a": "9007199254740993"}, {"a": "0.5"}]


def test_a_column_of_mixed_types_is_text_and_says_so(mixed: SqliteDriver) -> None:
    seen = read(
        mixed, "SELECT 1 AS a, 1 AS b UNION ALL SELECT x'31ff', 2.5 UNION ALL SELECT 'x', 3 UNION ALL SELECT NULL, 4"
    )
    assert seen.column("a").to_pylist() == ["1", "X'31FF'", "x", None]
    assert seen.column("b").to_pylist() == [1.0, 2.5, 3.0, 4.0]
    assert list(mixed.notes) == [
        "Column `a` holds integers, texts and blobs; all its values are returned as text, blobs as X'...'."
    ]
    read(mixed, "SELECT 1 AS a")
    assert list(mixed.notes) == []


def test_an_empty_result_has_a_schema(mixed: SqliteDriver) -> None:
    seen = read(mixed, "SELECT i, s FROM t WHERE 1 = 0")
    assert seen.num_rows == 0
    assert [str(field.type) for field in seen.schema] == ["int64", "string"]


def test_a_late_value_is_converted_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "BUFFER", 1)
    late = "CREATE TABLE t (v); INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    driver = open_driver(make(tmp_path / "a.db", late + "SELECT i FROM n LIMIT 15000; INSERT INTO t VALUES (7.0)"))
    assert read(driver, "SELECT * FROM t").column("v").type == pa.int64()
    driver = open_driver(make(tmp_path / "b.db", late + "SELECT i FROM n LIMIT 15000; INSERT INTO t VALUES ('seven')"))
    with pytest.raises(SourceError, match=r"Column `v` holds 'seven', which does not fit `int64`") as caught:
        read(driver, "SELECT * FROM t")
    assert "CAST" in caught.value.hint
    assert read(driver, "SELECT CAST(v AS TEXT) AS v FROM t").num_rows == 15001


def test_names_of_columns_are_those_of_the_engine(mixed: SqliteDriver) -> None:
    assert read(mixed, "select count( * ), i+1, i AS a, i AS a from t").column_names == ["count( * )", "i+1", "a", "a"]


def test_the_catalog(tmp_path: Path) -> None:
    sql = """CREATE TABLE a (x INTEGER, y TEXT NOT NULL, z, PRIMARY KEY (y, x), UNIQUE (z));
    CREATE TABLE b (id INTEGER PRIMARY KEY, ay TEXT, ax INTEGER, FOREIGN KEY (ay, ax) REFERENCES a (y, x));
    CREATE VIEW v AS SELECT x FROM a; CREATE VIEW broken AS SELECT * FROM nowhere;
    CREATE TABLE hidden (k); INSERT INTO b (id) VALUES (1), (2)"""
    driver = open_driver(make(tmp_path / "t.db", sql), "a", "B", "v", "broken")
    tables = {t["name"]: Table(**t) for t in driver.catalog()["tables"]}
    assert set(tables) == {"a", "b", "v"}
    assert tables["a"].primary_key == ("y", "x")
    assert tables["a"].unique == (("z",),)
    assert [c.nullable for c in tables["a"].columns] == [False, False, True]
    assert tables["b"].foreign_keys[0].columns == ("ay", "ax")
    assert tables["b"].foreign_keys[0].to_columns == ("y", "x")
    assert (tables["b"].row_count, tables["b"].row_count_exact) == (2, True)
    assert tables["v"].kind == "view"
    assert tables["v"].row_count is None


def test_estimate_and_fingerprint(sqlite_shop: Any) -> None:
    driver = sqlite_shop.driver
    assert driver.estimate(driver.check("SELECT * FROM orders, customers"))["scan_rows"] == 9
    assert driver.estimate(driver.check("SELECT * FROM rich"))["scan_rows"] == 4
    assert driver.schema_fingerprint() == tables_fingerprint(driver.catalog()["tables"])
    before = driver.fingerprints(("orders",))
    assert before == driver.fingerprints(("orders",))
    sqlite_shop.ask("CREATE TABLE later (a)")
    assert driver.fingerprints(("orders",)) != before
    sqlite_shop.ask("DROP TABLE later")


def test_an_estimate_counts_rows_that_were_written_since(tmp_path: Path) -> None:
    path = make(tmp_path / "t.db", "CREATE TABLE t (a); CREATE TABLE u (a); INSERT INTO t VALUES (1)")
    driver = open_driver(path)
    assert driver.estimate(driver.check("SELECT * FROM t"))["scan_rows"] == 1
    make(path, "INSERT INTO t VALUES (2); INSERT INTO u VALUES (1)")
    assert driver.estimate(driver.check("SELECT * FROM t, u"))["scan_rows"] == 3


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "CREATE TABLE x (a)",
        "ATTACH ':memory:' AS x",
        "PRAGMA query_only = OFF",
        "VACUUM",
        "SELECT * FROM secret",
        "SELECT * FROM sqlite_master",
        "SELECT load_extension('x')",
        "SELECT count(*) FROM secret",
        "WITH rich AS (SELECT * FROM secret) SELECT * FROM rich",
        "SELECT * FROM pragma_table_info('secret')",
    ],
)
def test_the_authorizer_holds_where_the_guard_is_passed_by(sqlite_shop: Any, sql: str) -> None:
    before = sqlite_shop.state()
    with pytest.raises(EtudeError):
        list(sqlite_shop.driver.run(CheckedQuery(sql, ()), 5))
    assert sqlite_shop.state() == before


def test_full_text_tables_and_views_can_be_read(sqlite_shop: Any) -> None:
    assert read(sqlite_shop.driver, "SELECT * FROM docs WHERE docs MATCH 'hello'").num_rows == 1
    assert read(sqlite_shop.driver, "SELECT * FROM rich ORDER BY name").column("name").to_pylist() == ["Ann", "Bob"]


def test_an_unknown_column_is_named_with_the_nearest(sqlite_shop: Any) -> None:
    with pytest.raises(InvalidQuery, match="no such column: regoin") as caught:
        sqlite_shop.driver.check("SELECT regoin FROM customers")
    assert caught.value.hint == "Did you mean `region`?"


def test_a_query_is_cancelled(sqlite_shop: Any) -> None:
    checked, over = sqlite_shop.driver.check(ENDLESS), threading.Event()

    def cancel() -> None:
        # One that comes before the query has begun does not count.
        while not over.wait(0.2):
            sqlite_shop.driver.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(Cancelled):
            list(sqlite_shop.driver.run(checked, 600))
    finally:
        over.set()
        canceller.join()
    assert read(sqlite_shop.driver, "SELECT 1 AS a").to_pylist() == [{"a": 1}]


def test_the_time_limit(sqlite_shop: Any) -> None:
    with pytest.raises(LimitExceeded) as caught:
        read(sqlite_shop.driver, ENDLESS, timeout_s=0.2)
    assert caught.value.details["limit"] == "timeout_s"


def test_a_reader_that_stops_early_leaves_the_driver_usable(sqlite_shop: Any) -> None:
    driver = sqlite_shop.driver
    batches = driver.run(driver.check("SELECT a.n FROM big a, big b"), 60)
    next(batches)
    batches.close()
    assert read(driver, "SELECT 1 AS a").num_rows == 1


@pytest.mark.slow
def test_a_million_rows_in_bounded_memory(tmp_path: Path) -> None:
    sql = """CREATE TABLE t (i INTEGER, s TEXT, r REAL); INSERT INTO t
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'name ' || i, i * 0.5
    FROM n LIMIT 1000000"""
    driver = open_driver(make(tmp_path / "t.db", sql))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = sum(batch.num_rows for batch in driver.run(driver.check("SELECT * FROM t"), 240))
    assert total == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250_000


def test_nothing_is_created(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be opened"):
        open_driver(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("not a database, only some words that are long enough to look like one" * 20)
    with pytest.raises(SourceError, match="not a SQLite database"):
        open_driver(tmp_path / "text.db")
    assert [p.name for p in tmp_path.iterdir()] == ["text.db"]


def test_a_file_in_log_mode_without_a_log_is_read_and_nothing_appears_beside_it(tmp_path: Path) -> None:
    path = make(tmp_path / "t.db", "PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    assert os.listdir(tmp_path) == ["t.db"]
    driver = open_driver(path)
    assert read(driver, "SELECT * FROM t").num_rows == 1
    assert os.listdir(tmp_path) == ["t.db"]
    make(path, "INSERT INTO t VALUES (2)")
    assert read(driver, "SELECT * FROM t").num_rows == 2


def test_rows_in_the_log_of_a_writer_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    driver = open_driver(path)
    assert read(driver, "SELECT * FROM t").num_rows == 1
    writer.execute("INSERT INTO t VALUES (2)")
    assert read(driver, "SELECT * FROM t").num_rows == 2
    before = driver.fingerprints(("t",))
    writer.execute("INSERT INTO t VALUES (3)")
    assert driver.fingerprints(("t",)) != before
    writer.execute("CREATE TABLE u (a)")
    assert read(driver, "SELECT * FROM u").num_rows == 0
    driver.close()
    writer.close()


def test_a_file_written_while_it_is_read_alone_is_told(tmp_path: Path) -> None:
    path = make(tmp_path / "t.db", "PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    driver = open_driver(path)
    batches = driver.run(driver.check("SELECT * FROM t"), 120)
    next(batches)
    make(path, "INSERT INTO t VALUES (2)")
    with pytest.raises(SourceError, match="was written while it was read"):
        list(batches)


def test_text_that_is_no_text_is_named(tmp_path: Path) -> None:
    driver = open_driver(make(tmp_path / "t.db", "CREATE TABLE t (a); INSERT INTO t VALUES (CAST(x'ff' AS TEXT))"))
    with pytest.raises(SourceError) as caught:
        read(driver, "SELECT a FROM t")
    assert "BLOB" in caught.value.hint


def test_show_and_describe_name_granted_tables_only(sqlite_shop: Any) -> None:
    assert "secret" not in read(sqlite_shop.driver, "SHOW TABLES").column("name").to_pylist()
    described = read(sqlite_shop.driver, "DESCRIBE orders").to_pylist()
    assert described[0] == {"column_name": "id", "column_type": "INT", "null": "NO", "key": "PRI"}
    with pytest.raises(Refused):
        sqlite_shop.driver.check("DESCRIBE secret")


def test_a_lock_of_another_program_is_told(tmp_path: Path) -> None:
    path = make(tmp_path / "t.db", "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceLocked, match="is locked: another program is writing to it") as caught:
            open_driver(path)
        writer.execute("ROLLBACK")
        driver = open_driver(path)
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceLocked, match="is locked"):
            read(driver, "SELECT * FROM t")
    writer.close()
    assert "Try again when that program has finished" in caught.value.hint


def test_errors_do_not_quote_rows_that_a_view_hides(tmp_path: Path) -> None:
    path = tmp_path / "views.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("""CREATE TABLE secret (s TEXT, team TEXT);
            INSERT INTO secret VALUES ('TOPSECRET', 'x'), ('$.a', 'me');
            CREATE TABLE members (team TEXT); INSERT INTO members VALUES ('me');
            CREATE VIEW mine AS SELECT a.s FROM secret a JOIN members b ON a.team = b.team;""")
    partly = SqliteDriver(Mount("v", "sqlite", str(path), tables=("mine",)))
    whole = SqliteDriver(Mount("v", "sqlite", str(path)))
    for driver, told in ((partly, False), (whole, True)):
        with pytest.raises(InvalidQuery) as failed:
            read(driver, "SELECT * FROM mine WHERE json_extract('{}', s) IS NULL")
        assert ("TOPSECRET" in failed.value.message) is told
        driver.close()


def test_a_view_that_hides_rows_has_no_plan_and_tells_only_the_kind_of_an_error(tmp_path: Path) -> None:
    path = make(
        tmp_path / "views.db",
        """CREATE TABLE secret (s TEXT, team TEXT); INSERT INTO secret VALUES ('TOPSECRET', 'x'), ('$.a', 'me');
        CREATE TABLE own (s TEXT); CREATE VIEW mine AS SELECT s FROM secret WHERE team = 'me';
        CREATE VIEW over_mine AS SELECT s FROM mine; CREATE VIEW over_own AS SELECT s FROM own""",
    )
    driver = open_driver(path, "mine", "over_mine", "own", "over_own")
    for explain in ("EXPLAIN", "explain query plan"):
        for view in ("mine", "over_mine"):
            with pytest.raises(Refused, match="`EXPLAIN` is refused"):
                driver.check(f"{explain} SELECT * FROM own WHERE s IN (SELECT s FROM {view})")
        assert read(driver, f"{explain} SELECT * FROM over_own").num_rows
    with pytest.raises(InvalidQuery, match="a value does not fit its type"):
        read(driver, "SELECT * FROM over_mine WHERE json_extract('{}', 'x' || s) IS NULL")
    driver.close()


@pytest.mark.parametrize("inner", ["v13", "v17"])  # the second has more references than SQLite allows
def test_the_schema_is_read_within_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    doubled = (f"CREATE VIEW v{i} AS SELECT a FROM v{i - 1} UNION ALL SELECT a FROM v{i - 1};" for i in range(1, 18))
    slow = (f"CREATE VIEW w{i} AS SELECT a FROM {inner};" for i in range(40))
    path = make(
        tmp_path / "v.db", f"CREATE TABLE t(a); CREATE VIEW v0 AS SELECT a FROM t; {''.join((*doubled, *slow))}"
    )
    monkeypatch.setattr("etude.sources.drivers.sqlite.SCHEMA_S", 0.2)
    driver, started = open_driver(path), time.monotonic()
    with pytest.raises(LimitExceeded, match="The schema of `src` took longer than"):
        driver.check("SELECT a FROM t")
    assert time.monotonic() - started < 10
    driver.close()
