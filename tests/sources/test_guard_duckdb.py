from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import EtudeError, InvalidQuery, Refused, UnknownTable
from etude.sources.guard_duckdb import MAX_TEXT, DuckdbGrantedNames, DuckdbGuard, duckdb_line_of_offset

TABLES = [("shop", "main", "orders"), ("shop", "main", "Customers"), ("shop", "archive", "orders_2020")]
OTHER = [("crm", "main", "people")]


@pytest.fixture(scope="module")
def guard() -> Iterator[DuckdbGuard]:
    with duckdb.connect() as connection:
        yield DuckdbGuard(
            connection, DuckdbGrantedNames("shop", TABLES + OTHER, all_granted=True), macros=lambda: ["net_price"]
        )


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT 1", ()),
        ("SELECT * FROM orders", ("orders",)),
        ("SELECT * FROM ORDERS o JOIN customers c ON o.id = c.id", ("Customers", "orders")),
        ("FROM shop.orders", ("orders",)),
        ("FROM shop.main.orders", ("orders",)),
        ("FROM archive.orders_2020", ("archive.orders_2020",)),
        ("FROM crm.people", ("crm.people",)),
        ("WITH o AS (FROM orders) FROM o", ("orders",)),
        ("WITH orders AS (FROM customers) FROM orders", ("Customers",)),
        ("PIVOT orders ON status USING count(*)", ("orders",)),
        ("PIVOT orders ON status, year(day) USING count(*) GROUP BY country", ("orders",)),
        (
            "FROM (PIVOT orders ON lower(status) || 'x' USING count(*)) JOIN customers USING (id)",
            ("Customers", "orders"),
        ),
        ("DESCRIBE orders", ("orders",)),
        ("EXPLAIN ANALYZE SELECT count(*) FROM orders", ("orders",)),
        ("SELECT net_price(1)", ()),
    ],
)
def test_what_a_query_reads_is_known(guard: DuckdbGuard, sql: str, reads: tuple[str, ...]) -> None:
    assert guard.check(sql).tables == reads


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("WITH b AS (FROM orders), orders AS (FROM b) FROM orders", ("orders",)),
        ("WITH orders AS (FROM orders) FROM orders", ("orders",)),
        ("WITH RECURSIVE orders AS (SELECT 1 AS id UNION ALL SELECT id FROM orders) FROM orders", ()),
        ("WITH a AS (WITH orders AS (SELECT 1) FROM orders) FROM a, orders", ("orders",)),
        ("WITH a AS (FROM customers) FROM (WITH b AS (FROM a) FROM b)", ("Customers",)),
    ],
)
def test_a_name_means_a_common_table_expression_only_where_it_is_visible(
    guard: DuckdbGuard, sql: str, reads: tuple[str, ...]
) -> None:
    assert guard.check(sql).tables == reads


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM orders --\n, (PIVOT (SELECT k FROM hidden) ON k)",
        "SELECT 'a' AS x --\n UNION ALL SELECT k FROM hidden, (PIVOT (SELECT 1 AS i) ON i)",
        "SELECT 1 AS x --\n FROM query('SELECT 1'), (PIVOT (SELECT 1 AS i) ON i)",
        "SELECT 1 AS x --\r\n FROM duckdb_settings(), (PIVOT (SELECT 1 AS i) ON i)",
        "PIVOT (SELECT (SELECT max(k) --\n FROM hidden) AS m) ON m USING count(*)",
        "PIVOT orders ON status IN (SELECT k FROM hidden) USING count(*)",
        "PIVOT (FROM hidden) ON k",
        "WITH h AS (FROM hidden) PIVOT h ON k",
        "EXPLAIN ANALYZE SELECT 1 --\n FROM hidden, (PIVOT (SELECT 1 AS i) ON i)",
    ],
)
def test_a_comment_hides_nothing_in_a_pivot(guard: DuckdbGuard, sql: str) -> None:
    with pytest.raises((Refused, UnknownTable)):
        guard.check(sql)


def test_a_pivot_that_is_checked_is_the_pivot_that_runs(guard: DuckdbGuard) -> None:
    checked = guard.check("PIVOT orders -- é\n ON status /* ü */, day USING count(*) -- end")
    assert checked.sql == (
        'PIVOT orders -- é\n ON (status) IN "__pivot_enum_0" /* ü */, (day) IN "__pivot_enum_1" USING count(*) -- end'
    )
    assert guard.check(checked.sql).sql == checked.sql
    assert [name for name, _ in checked.enums] == ["__pivot_enum_0", "__pivot_enum_1"]
    for _, values in checked.enums:
        assert guard.check(values).tables == ("orders",)


def test_a_pivot_names_its_values_as_nothing_else_in_the_query(guard: DuckdbGuard) -> None:
    checked = guard.check("""PIVOT orders ON status USING count(*) AS "__PIVOT_ENUM_0" """)
    assert checked.enums[0][0].lower() not in checked.written.lower()


@pytest.mark.parametrize(
    "sql",
    [
        'WITH "duc\u212adb_tables" AS (SELECT 1) FROM duckdb_tables',
        'WITH RECURSIVE "duc\u212adb_views" AS (SELECT 1 AS a UNION ALL FROM duckdb_views) FROM duckdb_tables',
        'FROM "\u212a"',
    ],
)
def test_names_are_compared_as_duckdb_compares_them(guard: DuckdbGuard, sql: str) -> None:
    with pytest.raises(UnknownTable):
        guard.check(sql)


def test_a_query_runs_as_it_was_written(guard: DuckdbGuard) -> None:
    sql = "SELECT  /* why */ a\nFROM orders -- end"
    assert guard.check(sql).sql == sql


def test_an_explain_runs_what_was_checked(guard: DuckdbGuard) -> None:
    assert guard.check("explain   analyze FROM orders").sql == "EXPLAIN ANALYZE FROM orders"


def test_a_refusal_tells_the_reason_and_the_place(guard: DuckdbGuard) -> None:
    with pytest.raises(Refused) as caught:
        guard.check("SELECT 1,\n  read_text('x')")
    assert "`read_text`" in caught.value.message
    assert caught.value.details == {"reason": "function", "line": 2, "column": 3}


def test_the_place_counts_characters_not_bytes(guard: DuckdbGuard) -> None:
    with pytest.raises(UnknownTable) as caught:
        guard.check("SELECT '🦆é' FROM nowhere")
    assert caught.value.details["column"] == "SELECT '🦆é' FROM nowhere".index("nowhere") + 1


def test_an_unknown_table_names_the_nearest(guard: DuckdbGuard) -> None:
    with pytest.raises(UnknownTable) as caught:
        guard.check("SELECT * FROM ordrs")
    assert caught.value.hint == "Did you mean `orders`?"
    with pytest.raises(UnknownTable) as caught:
        guard.check("SELECT * FROM Orders_2020")
    assert caught.value.hint == "Did you mean `archive.orders_2020`?"


def test_an_unknown_function_names_the_nearest(guard: DuckdbGuard) -> None:
    with pytest.raises(Refused) as caught:
        guard.check("SELECT date_truncate('month', now())")
    assert "`date_trunc`" in caught.value.hint


def test_a_misspelt_query_is_invalid_not_refused(guard: DuckdbGuard) -> None:
    with pytest.raises(InvalidQuery) as caught:
        guard.check("SELECT *\nFORM orders")
    assert caught.value.details["line"] == 2


@pytest.mark.parametrize("sql", ["DROP TABLE orders", "INSERT INTO orders VALUES (1)", "SET threads = 1", "CALL x()"])
def test_only_queries_pass(guard: DuckdbGuard, sql: str) -> None:
    with pytest.raises(Refused) as caught:
        guard.check(sql)
    assert "read-only" in caught.value.message


def test_a_text_of_a_megabyte_is_refused_unread(guard: DuckdbGuard) -> None:
    with pytest.raises(Refused, match="characters"):
        guard.check("SELECT 1" + " " * MAX_TEXT)


def test_deep_nesting_is_an_error_not_a_crash(guard: DuckdbGuard) -> None:
    with pytest.raises(EtudeError):
        guard.check("SELECT " + "(" * 20_000 + "1" + ")" * 20_000)


@given(st.text(max_size=200))
def test_any_text_is_checked_or_refused(sql: str) -> None:
    with duckdb.connect() as connection:
        guard = DuckdbGuard(connection, DuckdbGrantedNames("shop", TABLES, all_granted=False))
        try:
            checked = guard.check(sql)
        except EtudeError as error:
            assert error.message
        else:
            assert set(checked.tables) <= {"orders", "Customers", "archive.orders_2020"}


@given(st.text(), st.integers(0, 50))
def test_a_place_is_within_the_text(text: str, offset: int) -> None:
    place = duckdb_line_of_offset(text, offset)
    assert 1 <= place["line"] <= text.count("\n") + 1
    assert place["column"] >= 1
