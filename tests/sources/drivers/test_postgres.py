"""The Postgres driver against a real server: types, read-only, limits, cancel."""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from tests.patience import wait_until

from etude.app import App
from etude.entities import SourceSpec, Table
from etude.errors import Cancelled, InvalidQuery, LimitExceeded, Refused, SourceError, Unavailable, UnknownTable
from etude.sources import rows as shaping
from etude.sources.base import CheckedQuery, Mount
from etude.sources.drivers.postgres import PostgresDriver

HEAVY = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 1000000) b"


def read(driver: PostgresDriver, sql: str, timeout_s: float = 120) -> pa.Table:
    return pa.Table.from_batches(list(driver.run(driver.check(sql), timeout_s)))


def value(shop: Any, expression: str) -> tuple[str, Any]:
    # Text that the guard need not know: types are the driver's matter.
    seen = pa.Table.from_batches(list(shop.driver.run(CheckedQuery(f"SELECT {expression} AS v", ()), 120)))
    return str(seen.schema.field("v").type), seen.column("v").to_pylist()[0]


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("true", "bool", True),
        ("1::int2", "int16", 1),
        ("1", "int32", 1),
        ("9223372036854775807", "int64", 9223372036854775807),
        ("0.1::float4", "float", pytest.approx(0.1)),
        ("0.1::float8", "double", 0.1),
        ("'-Infinity'::float8", "double", float("-inf")),
        ("1.50::numeric(10,2)", "decimal128(10, 2)", Decimal("1.50")),
        ("12345::numeric(5,-2)", "decimal128(7, 0)", Decimal(12300)),
        ("1.500::numeric", "decimal128(4, 3)", Decimal("1.500")),
        ("repeat('9', 60)::numeric", "decimal256(60, 0)", Decimal("9" * 60)),
        ("repeat('9', 90)::numeric", "string", "9" * 90),
        ("'NaN'::numeric", "string", "NaN"),
        ("'Infinity'::numeric", "string", "Infinity"),
        ("'a'::varchar(3)", "string", "a"),
        ("'a'::char(3)", "string", "a  "),
        ("'a'::name", "string", "a"),
        (r"'\x00ff'::bytea", "binary", b"\x00\xff"),
        ("date '2024-02-29'", "date32[day]", date(2024, 2, 29)),
        ("date 'infinity'", "string", "infinity"),
        ("date '0044-03-15 BC'", "string", "0044-03-15 BC"),
        ("date '20000-01-01'", "string", "20000-01-01"),
        ("time '12:34:56.789'", "time64[us]", clock(12, 34, 56, 789000)),
        ("time '24:00'", "string", "24:00:00"),
        ("timestamp '2024-01-02 03:04:05.6'", "timestamp[us]", datetime(2024, 1, 2, 3, 4, 5, 600000)),
        ("timestamp '-infinity'", "string", "-infinity"),
        ("timestamptz '2024-01-02 03:04+02'", "timestamp[us, tz=UTC]", datetime(2024, 1, 2, 1, 4, tzinfo=UTC)),
        ("interval '1 year -2 days 3.5 s'", "month_day_nano_interval", (12, -2, 3_500_000_000)),
        ("interval '-1 s'", "month_day_nano_interval", (0, 0, -1_000_000_000)),
        ("'6c0d2bd5-9c1b-4e6e-9d2a-0a6c9c4a2f10'::uuid", "string", "6c0d2bd5-9c1b-4e6e-9d2a-0a6c9c4a2f10"),
        ("'{\"a\": 1}'::jsonb", "string", '{"a": 1}'),
        ("'sad'::mood", "string", "sad"),
        ("array[1, null, 3]", "list<item: int32>", [1, None, 3]),
        ("""array['a', 'b,c', 'd"e', null, 'null', '']""", "list<item: string>", ["a", "b,c", 'd"e', None, "null", ""]),
        ("array[true, false]", "list<item: bool>", [True, False]),
        ("array[1.5, 2.25]", "list<item: string>", ["1.5", "2.25"]),
        ("array[[1, 2], [3, 4]]", "string", "{{1,2},{3,4}}"),
        ("array[]::int[]", "list<item: int32>", []),
        ("null", "string", None),
        ("null::numeric", "decimal128(1, 0)", None),
        ("'1.2.3.4/24'::inet", "string", "1.2.3.4/24"),
        ("point(1, 2)", "string", "(1,2)"),
        ("row(1, 'a')", "string", "(1,a)"),
        ("int4range(1, 5)", "string", "[1,5)"),
        ("B'101'", "string", "101"),
    ],
)
def test_each_type_arrives_as_it_is(postgres_shop: Any, expression: str, kind: str, expected: Any) -> None:
    assert value(postgres_shop, expression) == (kind, expected)


def test_an_old_offset_with_seconds_is_read(postgres_server: Callable[[], str]) -> None:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            b"DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET timezone = ''Europe/Oslo'''; END $$"
        )
    driver = PostgresDriver(Mount("src", "postgres", url))
    seen = read(driver, "SELECT timestamptz '1880-01-01 00:00:00+00' AS v, timestamptz '2024-07-01 00:00:00+00' AS w")
    assert seen.to_pylist() == [{"v": datetime(1880, 1, 1, tzinfo=UTC), "w": datetime(2024, 7, 1, tzinfo=UTC)}]
    driver.close()


def test_an_empty_result_has_its_types(postgres_shop: Any) -> None:
    seen = read(postgres_shop.driver, "SELECT * FROM orders WHERE false")
    kinds = ["int32", "int32", "decimal128(10, 2)", "timestamp[us]", "string", "list<item: string>"]
    assert [str(field.type) for field in seen.schema] == kinds
    assert list(postgres_shop.driver.column_types)[:3] == ["int4", "int4", "numeric(10,2)"]


def test_a_late_value_that_does_not_fit_is_named(postgres_shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "BUFFER", 1)
    late = "SELECT CASE WHEN n < 15000 THEN date '2024-01-01' ELSE 'infinity' END AS d FROM generate_series(1, 20000) n"
    with pytest.raises(SourceError, match="Column `d` holds 'infinity'"):
        read(postgres_shop.driver, late)
    finer = "SELECT CASE WHEN n < 15000 THEN 1.5 ELSE 1.123456789 END AS d FROM generate_series(1, 20000) n"
    assert read(postgres_shop.driver, finer).column("d").to_pylist()[-1] == Decimal("1.123456789")


def test_the_catalog(postgres_server: Callable[[], str]) -> None:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            b"""CREATE TABLE a (x int, y text, z numeric(10,2) UNIQUE, PRIMARY KEY (y, x));
            COMMENT ON TABLE a IS 'letters'; COMMENT ON COLUMN a.z IS 'the last';
            CREATE SCHEMA s; CREATE TABLE s.b (id bigint PRIMARY KEY, ay text, ax int,
                FOREIGN KEY (ay, ax) REFERENCES a (y, x));
            CREATE VIEW v AS SELECT x FROM a; CREATE MATERIALIZED VIEW m AS SELECT 1 AS one;
            CREATE TABLE parts (d date) PARTITION BY RANGE (d);
            CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
            INSERT INTO a SELECT n, 'y', n FROM generate_series(1, 1000) n; ANALYZE"""
        )
    driver = PostgresDriver(Mount("src", "postgres", url))
    tables = {t["name"]: Table(**t) for t in driver.catalog()["tables"]}
    assert set(tables) == {"a", "s.b", "v", "m", "parts"}
    a, b = tables["a"], tables["s.b"]
    assert (a.comment, a.primary_key, a.unique) == ("letters", ("y", "x"), (("z",),))
    assert [(c.type, c.nullable, c.comment) for c in a.columns][2] == ("numeric(10,2)", True, "the last")
    assert (a.row_count, a.row_count_exact) == (1000, False)
    assert a.bytes
    assert (b.foreign_keys[0].columns, b.foreign_keys[0].to_table) == (("ay", "ax"), "a")
    assert (tables["v"].kind, tables["m"].kind) == ("view", "table")
    some = PostgresDriver(Mount("src", "postgres", url, tables=("public.a", "S.B", "parts_1")))
    assert {t["name"] for t in some.catalog()["tables"]} == {"a", "s.b", "parts_1"}
    driver.close()
    some.close()


def test_a_table_made_later_is_found(postgres_server: Callable[[], str]) -> None:
    url = postgres_server()
    driver = PostgresDriver(Mount("src", "postgres", url))
    with pytest.raises(UnknownTable):
        driver.check("SELECT * FROM later")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE later (a int)")
    assert read(driver, "SELECT * FROM later").num_rows == 0
    driver.close()


def test_the_estimate_is_the_planner_s(postgres_shop: Any) -> None:
    seen = postgres_shop.driver.estimate(postgres_shop.driver.check("SELECT * FROM orders WHERE amount > 50"))
    assert seen["scan_rows"] == 5
    assert seen["scan_bytes"] > 0
    assert seen["result_rows"] >= 1


def test_the_fingerprint_changes_with_the_data(postgres_server: Callable[[], str]) -> None:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE t (a int); CREATE VIEW v AS SELECT 1 AS b")
        driver = PostgresDriver(Mount("src", "postgres", url))
        before = driver.fingerprints(("t", "v"))
        assert set(before) == {"t"}
        db.execute("INSERT INTO t VALUES (1)")
        # The server counts with a delay of up to a second, unless it is asked not to.
        db.execute("SELECT pg_stat_force_next_flush()")
        assert driver.fingerprints(("t",)) != before
        driver.close()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "SELECT nextval('counter')",
        "SELECT wipe_orders()",
        "SELECT lo_create(0)",
        "DROP TABLE orders",
        "SELECT 1; DROP TABLE orders",
        "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x",
        "CALL wipe()",
        "SELECT * INTO stolen FROM orders",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "COMMIT",
        "CREATE TEMP TABLE x (a int)",
        "COPY orders TO PROGRAM 'cat > /dev/null'",
        "SELECT * FROM orders FOR UPDATE",
    ],
)
def test_the_transaction_holds_where_the_guard_is_passed_by(postgres_shop: Any, sql: str) -> None:
    before = postgres_shop.state()
    with pytest.raises((Refused, InvalidQuery, SourceError)):
        list(postgres_shop.driver.run(CheckedQuery(sql, ()), 120))
    assert postgres_shop.state() == before
    assert read(postgres_shop.driver, "SELECT 1 AS a").num_rows == 1


def test_no_setting_outlives_a_query(postgres_shop: Any) -> None:
    list(postgres_shop.driver.run(CheckedQuery("SELECT set_config('statement_timeout', '0', false)", ()), 5))
    with pytest.raises(LimitExceeded):
        read(postgres_shop.driver, HEAVY, timeout_s=0.2)


def running(shop: Any) -> int:
    count: int = shop.ask(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'etude' AND state = 'active' AND datname = current_database()"
    )[0][0]
    return count


def test_a_cancelled_query_is_gone_from_the_server(postgres_shop: Any) -> None:
    checked = postgres_shop.driver.check(HEAVY)

    def cancel() -> None:
        wait_until(lambda: running(postgres_shop))
        postgres_shop.driver.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        list(postgres_shop.driver.run(checked, 600))
    canceller.join()
    assert running(postgres_shop) == 0
    assert read(postgres_shop.driver, "SELECT 1 AS a").num_rows == 1


def test_a_reader_that_stops_early_ends_the_query_in_the_server(postgres_shop: Any) -> None:
    batches = postgres_shop.driver.run(
        CheckedQuery("SELECT a FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b", ()), 3600
    )
    next(batches)
    batches.close()
    assert running(postgres_shop) == 0


def test_the_time_limit_is_the_server_s(postgres_shop: Any) -> None:
    with pytest.raises(LimitExceeded) as caught:
        read(postgres_shop.driver, HEAVY, timeout_s=0.2)
    assert caught.value.details == {"limit": "timeout_s", "value": 0.2}
    assert running(postgres_shop) == 0


def test_a_million_rows_in_bounded_memory(postgres_shop: Any) -> None:
    sql = "SELECT n, n * 1.5 AS a, 'name ' || n AS b, now() AS c FROM generate_series(1, 1000000) n"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(b.num_rows for b in postgres_shop.driver.run(CheckedQuery(sql, ()), 240)) == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250_000


def test_an_engine_s_complaint_has_a_place_and_a_hint(postgres_shop: Any) -> None:
    with pytest.raises(InvalidQuery, match=r"regoin") as caught:
        read(postgres_shop.driver, "SELECT id,\n  regoin FROM customers")
    assert caught.value.details == {"line": 2, "column": 3}
    assert "region" in caught.value.hint
    with pytest.raises(InvalidQuery, match="Division by zero") as caught:
        read(postgres_shop.driver, "SELECT 1 / 0")
    assert "nullif" in caught.value.hint


def test_a_dropped_connection_is_made_anew(postgres_shop: Any) -> None:
    assert read(postgres_shop.driver, "SELECT 1 AS a").num_rows == 1
    ours = "FROM pg_stat_activity WHERE application_name = 'etude' AND datname = current_database()"
    postgres_shop.ask(f"SELECT pg_terminate_backend(pid) {ours}")
    wait_until(lambda: not postgres_shop.ask(f"SELECT pid {ours}"))
    assert read(postgres_shop.driver, "SELECT 1 AS a").num_rows == 1


def test_a_connection_that_fails_says_where_and_never_the_password() -> None:
    with pytest.raises(SourceError) as caught:
        PostgresDriver(Mount("src", "postgres", "postgresql://joe:geheim@127.0.0.1:1/shop"))
    assert "`127.0.0.1:1`" in caught.value.message
    assert "`shop`" in caught.value.message
    with pytest.raises(SourceError) as unreadable:
        PostgresDriver(Mount("src", "postgres", "postgresql://joe:geh%eim@127.0.0.1:1/shop"))
    for error in (caught.value, unreadable.value):
        assert "geh" not in f"{error.message}{error.hint}{error.details}{error.__cause__}"
        assert error.__suppress_context__


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable) as caught:
        PostgresDriver(Mount("src", "postgres", "postgresql://localhost/x"))
    assert caught.value.hint == "pip install 'etude[postgres]'"


def test_show_and_describe_name_granted_tables_only(postgres_shop: Any) -> None:
    assert read(postgres_shop.driver, "show tables").column("name").to_pylist() == [
        *("big", "customers", "orders", "rich", "sales.regions")
    ]
    described = read(postgres_shop.driver, "DESCRIBE orders").to_pylist()
    assert described[0] == {"column_name": "id", "column_type": "integer", "null": "NO", "key": "PRI"}


@pytest.fixture
def reader() -> str:
    return f"reader_{uuid4().hex[:12]}"


@pytest.fixture
def shop_url(postgres_server: Callable[[], str], reader: str) -> str:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "CREATE TABLE orders (id int); CREATE TABLE secret (id int); REVOKE ALL ON SCHEMA public FROM PUBLIC"
        )
        rights = "CREATE ROLE {0} LOGIN; GRANT USAGE ON SCHEMA public TO {0}; GRANT SELECT ON orders TO {0}"
        admin.execute(rights.format(reader).encode())
    return url


def reader_of(url: str, reader: str, **options: str) -> Mount:
    return Mount("shop", "postgres", url.replace("postgres:@", f"{reader}:@"), ("orders",), options)


def excess(mount: Mount) -> list[str]:
    driver = PostgresDriver(mount)
    try:
        return driver.excess_rights()
    finally:
        driver.close()


def test_a_role_that_only_reads_what_is_granted_has_no_excess_rights(shop_url: str, reader: str) -> None:
    assert excess(reader_of(shop_url, reader)) == []


def test_a_superuser_is_warned_about(shop_url: str) -> None:
    (warning,) = excess(Mount("shop", "postgres", shop_url, ("orders",)))
    assert "superuser" in warning


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        ("GRANT SELECT ON secret TO {}", "may also read `public.secret`"),
        ("GRANT INSERT ON orders TO {}", "may change `public.orders`"),
        ("GRANT CREATE ON SCHEMA public TO {}", "may create objects in the schemas `public`"),
        ("GRANT pg_read_server_files TO {}", "is a member of `pg_read_server_files`"),
        ("ALTER ROLE {} CREATEROLE BYPASSRLS", "may create roles, bypass row security"),
        (
            "CREATE FUNCTION peek() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT id FROM secret'",
            "may call `public.peek` with the privileges of their owners",
        ),
    ],
)
def test_each_excess_right_is_named(shop_url: str, reader: str, grant: str, told: str) -> None:
    with psycopg.connect(shop_url, autocommit=True) as admin:
        admin.execute(grant.format(reader).encode())
    warnings = excess(reader_of(shop_url, reader))
    assert told in warnings[0]
    assert "default_transaction_read_only" in warnings[-1]


def test_a_strict_source_refuses_a_role_that_may_do_more(shop_url: str, reader: str, tmp_path: Path) -> None:
    with App(home=tmp_path) as app:
        spec = SourceSpec(url=shop_url, tables=("orders",), options={"strict": "true"})
        with pytest.raises(Refused, match="superuser"):
            app.add_source("shop", spec)
        assert "shop" not in app.sources()
        app.add_source("shop", spec.model_copy(update={"url": reader_of(shop_url, reader).url}))
        assert app.catalog("shop").warnings == ()
        (warning,) = app.add_source("open", spec.model_copy(update={"options": {}})).warnings
        assert "superuser" in warning


def test_the_option_strict_is_true_or_false(shop_url: str, reader: str) -> None:
    with pytest.raises(SourceError, match="`maybe`"):
        _ = reader_of(shop_url, reader, strict="maybe").strict
