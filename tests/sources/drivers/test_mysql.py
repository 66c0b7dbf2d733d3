"""The MySQL driver against a real MariaDB: types, read-only, limits, cancel."""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as clock
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.patience import wait_until
from tests.sources.conftest import run_mysql

from etude.entities import Table
from etude.errors import (
    Cancelled,
    EtudeError,
    InvalidQuery,
    LimitExceeded,
    Refused,
    SourceError,
    Unavailable,
    UnknownTable,
)
from etude.sources.base import CheckedQuery, Mount
from etude.sources.drivers.mysql import MysqlDriver

HEAVY = "SELECT count(*) FROM big a, big b, big c WHERE a.n + b.n + c.n = -1"

TYPES = """CREATE TABLE types (a TINYINT(1), b BIGINT UNSIGNED, c DECIMAL(20,5), d DATE, e DATETIME, f TIME, g YEAR,
    h BIT(9), i JSON, j BLOB, k TEXT, l ENUM('x', 'y'), m FLOAT, n DOUBLE, o VARBINARY(5), p TIMESTAMP NULL,
    q SET('a', 'b'), r MEDIUMINT, s DECIMAL(60,3), t CHAR(3), u DECIMAL(5,0) UNSIGNED, v DATETIME(6),
    w SMALLINT UNSIGNED);
INSERT INTO types VALUES (2, 18446744073709551615, 1.5, '2024-02-29', '2024-01-02 03:04:05', '12:34:56', 2024, b'101',
    '{"a": 1}', x'00ff', 'ü', 'x', 1.5, 0.1, x'01', '2024-01-01 00:00:00', 'a,b', -5, 1.25, 'ab', 7,
    '2024-01-02 03:04:05.678', 65535)"""
KINDS = {
    **{
        "a": "int8",
        "b": "uint64",
        "c": "decimal128(20, 5)",
        "d": "date32[day]",
        "e": "timestamp[us]",
        "f": "time64[us]",
    },
    **{"g": "int16", "h": "uint64", "i": "string", "j": "binary", "k": "string", "l": "string", "m": "float"},
    **{"n": "double", "o": "binary", "p": "timestamp[us]", "q": "string", "r": "int32", "s": "decimal256(60, 3)"},
    **{"t": "string", "u": "decimal128(5, 0)", "v": "timestamp[us]", "w": "uint16"},
}
VALUES = {
    **{"a": 2, "b": 18446744073709551615, "c": Decimal("1.50000"), "d": date(2024, 2, 29)},
    **{
        "e": datetime(2024, 1, 2, 3, 4, 5),
        "f": clock(12, 34, 56),
        "g": 2024,
        "h": 5,
        "i": '{"a": 1}',
        "j": b"\x00\xff",
    },
    **{"k": "ü", "l": "x", "m": 1.5, "n": 0.1, "o": b"\x01", "p": datetime(2024, 1, 1), "q": "a,b", "r": -5},
    **{"s": Decimal("1.250"), "t": "ab", "u": Decimal(7), "v": datetime(2024, 1, 2, 3, 4, 5, 678000), "w": 65535},
}


def read(driver: MysqlDriver, sql: str, timeout_s: float = 120) -> pa.Table:
    return pa.Table.from_batches(list(driver.run(driver.check(sql), timeout_s)))


@pytest.fixture(scope="module")
def types(mariadb_server: Callable[[], str]) -> Any:
    from pymysql import connect
    from pymysql.constants import CLIENT

    url = mariadb_server()
    address, _, database = url.partition("@")[2].partition("/")
    port = int(address.partition(":")[2])
    with (
        connect(
            host="127.0.0.1", port=port, user="root", database=database, autocommit=True,
            charset="utf8mb4", client_flag=CLIENT.MULTI_STATEMENTS,
        ) as db,
        db.cursor() as cursor,
    ):  # fmt: skip
        cursor.execute(TYPES)
        while cursor.nextset():
            pass
        cursor.execute("CREATE TABLE odd (d DATE, e DATETIME, f TIME)")
        cursor.execute("SET sql_mode = ''")
        cursor.execute("INSERT INTO odd VALUES ('0000-00-00', '2024-00-01 00:00:00', '-100:00:00')")
    driver = MysqlDriver(Mount("src", "mariadb", url.replace("mysql://", "mariadb://")))
    yield driver
    driver.close()


def test_each_type_arrives_as_it_is(types: MysqlDriver) -> None:
    seen = read(types, "SELECT * FROM types")
    assert {field.name: str(field.type) for field in seen.schema} == KINDS
    assert seen.to_pylist() == [VALUES]
    assert list(types.column_types[:4]) == ["tinyint", "bigint unsigned", "decimal(20,5)", "date"]


def test_an_empty_result_and_nulls_have_the_same_types(types: MysqlDriver) -> None:
    seen = read(types, "SELECT * FROM types WHERE 1 = 0")
    assert {field.name: str(field.type) for field in seen.schema} == KINDS
    assert read(types, "SELECT NULL AS a").to_pylist() == [{"a": None}]


def test_zero_dates_and_long_times_stay_as_the_server_prints_them(types: MysqlDriver) -> None:
    odd = {"d": "0000-00-00", "e": "2024-00-01 00:00:00", "f": "-100:00:00"}
    assert read(types, "SELECT * FROM odd").to_pylist() == [odd]


def test_the_catalog(mysql_shop: Any) -> None:
    tables = {t["name"]: Table(**t) for t in mysql_shop.driver.catalog()["tables"]}
    assert set(tables) == {"big", "customers", "orders", "rich"}
    assert tables["orders"].foreign_keys[0].to_table == "customers"
    assert tables["orders"].primary_key == ("id",)
    assert [(c.name, c.type, c.nullable) for c in tables["customers"].columns][1] == ("name", "varchar(40)", False)
    assert tables["rich"].kind == "view"
    assert tables["customers"].row_count_exact is False
    assert tables["customers"].bytes


def test_estimate(mysql_shop: Any) -> None:
    seen = mysql_shop.driver.estimate(
        mysql_shop.driver.check("SELECT * FROM orders o JOIN customers c ON c.id = o.customer_id")
    )
    assert 5 <= seen["scan_rows"] <= 10
    assert seen["scan_bytes"] > 0


def test_the_fingerprint_changes_with_the_data(mysql_shop: Any) -> None:
    mysql_shop.ask("INSERT INTO big VALUES (0)")
    before = wait_until(lambda: mysql_shop.driver.fingerprints(("big", "rich")))
    assert set(before) == {"big"}
    mysql_shop.ask("DELETE FROM big WHERE n = 0")
    # Within the second of the change there is none: another change could hide in it.
    assert mysql_shop.driver.fingerprints(("big",)) != before


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "INSERT INTO orders (id) VALUES (99)",
        "UPDATE orders SET note = 'x'",
        "DROP TABLE orders",
        "CREATE TABLE x (a INT)",
        "SELECT wipe_orders()",
        "CALL wipe()",
        "SELECT 1; DROP TABLE orders",
        "TRUNCATE orders",
        "SELECT NEXTVAL(counter)",
        "ALTER TABLE orders ADD x INT",
        "REPLACE INTO orders (id) VALUES (1)",
    ],
)
def test_the_transaction_holds_where_the_guard_is_passed_by(mysql_shop: Any, sql: str) -> None:
    before = mysql_shop.state()
    with pytest.raises(EtudeError):
        list(mysql_shop.driver.run(CheckedQuery(sql, ()), 5))
    assert mysql_shop.state() == before
    assert read(mysql_shop.driver, "SELECT 1 AS a").num_rows == 1


def running(shop: Any) -> int:
    sql = (
        "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%big a, big b%' AND id <> CONNECTION_ID()"
    )
    count: int = shop.ask(sql)[0][0]
    return count


def test_a_cancelled_query_is_gone_from_the_server(mysql_shop: Any) -> None:
    checked = mysql_shop.driver.check(HEAVY)

    def cancel() -> None:
        wait_until(lambda: running(mysql_shop))
        mysql_shop.driver.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        list(mysql_shop.driver.run(checked, 600))
    canceller.join()
    assert running(mysql_shop) == 0
    assert read(mysql_shop.driver, "SELECT 1 AS a").num_rows == 1


def test_a_reader_that_stops_early_ends_the_query_in_the_server(mysql_shop: Any) -> None:
    batches = mysql_shop.driver.run(CheckedQuery("SELECT a.n FROM big a, big b, big c", ()), 3600)
    next(batches)
    batches.close()
    assert running(mysql_shop) == 0
    assert read(mysql_shop.driver, "SELECT 1 AS a").num_rows == 1


def test_the_time_limit_is_the_server_s(mysql_shop: Any) -> None:
    with pytest.raises(LimitExceeded) as caught:
        read(mysql_shop.driver, HEAVY, timeout_s=0.2)
    assert caught.value.details == {"limit": "timeout_s", "value": 0.2}
    assert running(mysql_shop) == 0


def test_a_million_rows_in_bounded_memory(mysql_shop: Any) -> None:
    sql = "SELECT seq, seq * 1.5 AS a, CONCAT('name ', seq) AS b, NOW() AS c FROM seq_1_to_1000000"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(b.num_rows for b in mysql_shop.driver.run(CheckedQuery(sql, ()), 240)) == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250_000


def test_an_engine_s_complaint_has_a_hint(mysql_shop: Any) -> None:
    with pytest.raises(InvalidQuery, match="regoin") as caught:
        read(mysql_shop.driver, "SELECT regoin FROM customers")
    assert caught.value.hint == "Did you mean `region`?"


def test_two_minus_signs_never_become_a_comment(mysql_shop: Any) -> None:
    seen = read(mysql_shop.driver, "SELECT 5--1 AS a, 5--/* x */1 AS b, 5 -- no\n-1 AS c")
    assert seen.to_pylist() == [{"a": 6, "b": 6, "c": 4}]


def test_other_rules_of_quoting_are_switched_off(mariadb_server: Callable[[], str], mysql_shop: Any) -> None:
    mysql_shop.ask("SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ORACLE,STRICT_TRANS_TABLES'")
    try:
        driver = MysqlDriver(Mount("src", "mysql", mariadb_server()))
        assert read(driver, """SELECT "it\\"s" AS a, 'it\\'s' AS b""").to_pylist() == [{"a": 'it"s', "b": "it's"}]
        driver.close()
    finally:
        mysql_shop.ask("SET GLOBAL sql_mode = DEFAULT")


def test_a_dropped_connection_is_made_anew(mysql_shop: Any) -> None:
    (number,) = read(mysql_shop.driver, "SELECT 1 AS a").column("a").to_pylist()
    assert number == 1
    mysql_shop.ask(f"KILL {mysql_shop.driver._connection.thread_id()}")
    assert read(mysql_shop.driver, "SELECT 1 AS a").num_rows == 1


def test_a_connection_that_fails_says_where_and_never_the_password(mariadb_url: str) -> None:
    wrong = mariadb_url.replace("root@", "root:geheim@")
    for url in (
        "mysql://joe:geheim@127.0.0.1:1/shop",
        wrong,
        "mysql://joe:geh#eim@h/db",
        "mysql://joe:geheim@h/db?x=1",
    ):
        with pytest.raises(SourceError) as caught:
            MysqlDriver(Mount("src", "mysql", url))
        error = caught.value
        assert "geh" not in f"{error.message}{error.hint}{error.details}{error.__cause__}"
        assert error.__suppress_context__ or error.__context__ is None
    with pytest.raises(SourceError, match=r"`127\.0\.0\.1:1`, database `shop`"):
        MysqlDriver(Mount("src", "mysql", "mysql://joe:geheim@127.0.0.1:1/shop"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(Unavailable) as caught:
        MysqlDriver(Mount("src", "mysql", "mysql://localhost/x"))
    assert caught.value.hint == "pip install 'etude[mysql]'"


def test_show_and_describe_name_granted_tables_only(mysql_shop: Any) -> None:
    assert read(mysql_shop.driver, "SHOW TABLES").column("name").to_pylist() == ["big", "customers", "orders", "rich"]
    described = read(mysql_shop.driver, "DESCRIBE orders").to_pylist()
    assert described[0] == {"column_name": "id", "column_type": "int(11)", "null": "NO", "key": "PRI"}


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        ("", None),
        ("GRANT SELECT ON `{0}`.secret TO {1}", "may also read"),
        ("GRANT INSERT, UPDATE (id) ON `{0}`.orders TO {1}", "has `INSERT`, `UPDATE` on"),
        ("GRANT EXECUTE ON `{0}`.* TO {1}", "has `EXECUTE` on"),
        ("GRANT FILE ON *.* TO {1}", "has `FILE` on `*.*`"),
        ("GRANT ALL PRIVILEGES ON `{0}`.* TO {1}", "has `ALL PRIVILEGES` on"),
    ],
)
def test_each_excess_right_is_named(mariadb_server: Callable[[], str], grant: str, told: str | None) -> None:
    url = mariadb_server()
    database, user = url.rpartition("/")[2], f"r{uuid4().hex[:12]}"
    run_mysql(url, "CREATE TABLE orders (id INT); CREATE TABLE secret (id INT)")
    run_mysql(url, f"CREATE USER {user} IDENTIFIED BY 'p'; GRANT SELECT ON `{database}`.orders TO {user}")
    if grant:
        run_mysql(url, grant.format(database, user))
    driver = MysqlDriver(Mount("shop", "mysql", url.replace("root@", f"{user}:p@"), ("orders",)))
    warnings = driver.excess_rights()
    driver.close()
    assert warnings == [] if told is None else any(told in w for w in warnings)


def test_a_query_is_checked_again_when_a_stored_function_appears(mariadb_server: Callable[[], str]) -> None:
    url = mariadb_server()
    run_mysql(url, "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
    driver = MysqlDriver(Mount("m", "mysql", url, ("t",)))
    sql = "SELECT any_value(a) AS x FROM t"
    with pytest.raises(InvalidQuery):
        read(driver, sql)
    run_mysql(url, "CREATE FUNCTION any_value(a INT) RETURNS TEXT RETURN 'TOPSECRET'")
    with pytest.raises(Refused, match="The function `any_value` is not allowed"):
        read(driver, sql)
    driver.close()


def test_a_grant_means_one_table(mariadb_server: Callable[[], str]) -> None:
    url = mariadb_server()
    run_mysql(
        url, "CREATE TABLE Orders (x TEXT); CREATE TABLE orders (x TEXT); INSERT INTO orders VALUES ('TOPSECRET')"
    )
    run_mysql(url, "CREATE TABLE Mixed (x TEXT); CREATE TABLE mixed (x TEXT); CREATE TABLE Only (x TEXT)")
    database = url.rpartition("/")[2]
    run_mysql(url, f"CREATE TABLE `{database}.orders` (x TEXT)")
    driver = MysqlDriver(Mount("m", "mysql", url, ("Orders", "MIXED", "only")))
    assert {t["name"] for t in driver.catalog()["tables"]} == {"Orders", "Only"}
    assert read(driver, "SELECT x FROM orders").num_rows == 0  # the granted table, whose name differs in case
    with pytest.raises(UnknownTable):
        read(driver, "SELECT x FROM mixed")
    driver.close()
    driver = MysqlDriver(Mount("m", "mysql", url, (f"{database}.orders",)))
    assert [t["name"] for t in driver.catalog()["tables"]] == ["orders"]
    assert read(driver, "SELECT x FROM orders").num_rows == 1
    driver.close()


def test_plans_errors_and_estimates_do_not_tell_about_rows_that_a_view_hides(mariadb_server: Callable[[], str]) -> None:
    url = mariadb_server()
    run_mysql(
        url,
        "CREATE TABLE conf (id INT PRIMARY KEY, token VARCHAR(30), n INT);"
        "INSERT INTO conf VALUES (1, 'TOPSECRET', 777), (2, 'x', 1);"
        "CREATE TABLE data (a INT, owner VARCHAR(30)); INSERT INTO data VALUES (1, 'a'), (2, 'TOPSECRET');"
        "CREATE VIEW v AS SELECT data.a, conf.n FROM data JOIN conf ON conf.id = 1 AND data.owner = conf.token;"
        "CREATE VIEW w AS SELECT id, n, token FROM conf WHERE id IN (SELECT a FROM data WHERE owner = 'nobody')",
    )
    driver = MysqlDriver(Mount("m", "mysql", url, ("v", "w", "data")))
    for explain in ("EXPLAIN", "explain format=json"):
        for query in ("SELECT * FROM v", "SELECT * FROM data WHERE a IN (SELECT id FROM w)"):
            with pytest.raises(Refused, match="`EXPLAIN` is refused"):
                driver.check(f"{explain} {query}")
        assert read(driver, f"{explain} SELECT * FROM data").num_rows
    queries = (f"SELECT * FROM w WHERE id = 1 AND {where}" for where in ("n = 777", "n = 778", "token LIKE 'T%'"))
    estimates = [driver.estimate(driver.check(query)) for query in queries]
    assert estimates[0] == estimates[1] == estimates[2]
    for where in ("n * 9223372036854775807 > 0", "extractvalue('<a/>', concat('~', token)) = ''"):
        try:
            read(driver, f"SELECT * FROM w WHERE id = 1 AND {where}")
        except EtudeError as error:
            assert "777" not in error.message + error.hint and "TOPSECRET" not in error.message + error.hint
    with pytest.raises(InvalidQuery, match="missing"):
        read(driver, "SELECT missing FROM v")
    driver.close()
