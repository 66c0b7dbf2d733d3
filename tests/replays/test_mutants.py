"""Mutants: damaged data that no general rule notices get a guard; more rows of the same kind do not break it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pytest

from etude.errors import Invalid
from etude.replays.guards import DataGuard, GuardedTableShape, check_guards, derive_guards, guarded_shapes
from etude.replays.mutants import MutantReport, find_guards_by_mutants
from etude.replays.query_facts import read_query_facts
from etude.replays.replaced_tables import NotReplaced, replace_tables
from etude.sources.source import make_source_catalog

SALES = """CREATE TABLE sales AS SELECT i AS sale_id, ['north', 'south'][1 + i % 2] AS region,
    CAST(20 + (i * 7919) % 60 AS DOUBLE) AS amount FROM range(1, 501) t(i)"""
QUERY = "SELECT region, sum(amount) AS total FROM sales GROUP BY region"


class Data:
    """Tables in memory."""

    def __init__(self, *statements: str) -> None:
        self.db = duckdb.connect()
        for statement in statements:
            self.db.execute(statement)

    def query(self, sql: str) -> Sequence[Sequence[Any]]:
        try:
            return self.db.execute(sql).fetchall()
        except duckdb.Error as error:
            raise Invalid(str(error)[:200]) from None

    def catalog(self) -> Any:
        tables = []
        for (name,) in self.query("SELECT table_name FROM duckdb_tables()"):
            columns = [{"name": c[0], "type": c[1]} for c in self.query(f"DESCRIBE {name}")]
            tables.append({"name": name, "columns": columns})
        return make_source_catalog("shop", "duckdb", "duckdb", tables)

    def guards(self, query: str) -> tuple[tuple[GuardedTableShape, ...], tuple[DataGuard, ...]]:
        catalog = self.catalog()
        facts = read_query_facts(query, "duckdb", {t.name: t for t in catalog.tables})
        shapes = guarded_shapes(catalog, [facts])
        return shapes, derive_guards(catalog, shapes, facts.joined, self.query)

    def mine(self, query: str, **more: Any) -> tuple[list[DataGuard], MutantReport]:
        shapes, guards = self.guards(query)
        added, report = find_guards_by_mutants([query], self.catalog(), shapes, guards, self.query, **more)
        return [*guards, *added], report


def test_labels_that_changed_places_are_noticed_only_after_mining() -> None:
    swap = "UPDATE sales SET region = CASE region WHEN 'north' THEN 'south' ELSE 'north' END"
    clean, swapped = Data(SALES), Data(SALES, swap)
    _, general = clean.guards(QUERY)
    mined, report = clean.mine(QUERY)
    assert check_guards(general, "duckdb", swapped.query) is None
    failure = check_guards(mined, "duckdb", swapped.query)
    assert failure is not None and "have changed places" in failure
    assert report.tried == report.of and not report.survivors


def test_rows_that_are_lost_while_others_come_are_noticed() -> None:
    more = "INSERT INTO sales SELECT sale_id + 500, region, amount FROM sales WHERE sale_id <= 40"
    hidden = Data(SALES, "DELETE FROM sales WHERE sale_id % 40 = 7", more)
    clean = Data(SALES)
    assert check_guards(clean.guards(QUERY)[1], "duckdb", hidden.query) is None
    failure = check_guards(clean.mine(QUERY)[0], "duckdb", hidden.query)
    assert failure is not None and "are missing, and more are new" in failure


@pytest.mark.parametrize("rows", [1, 20, 250])
def test_more_rows_of_the_same_kind_break_no_mined_guard(rows: int) -> None:
    grown = Data(SALES, f"INSERT INTO sales SELECT sale_id + 500, region, amount FROM sales WHERE sale_id <= {rows}")
    assert check_guards(Data(SALES).mine(QUERY)[0], "duckdb", grown.query) is None


def test_mining_goes_on_where_it_ended() -> None:
    clean = Data(SALES)
    left = iter([True] * 5)
    some, report = clean.mine(QUERY, more_time=lambda: next(left, False))
    assert report.tried == 5 < report.of
    shapes, _ = clean.guards(QUERY)
    rest, whole = find_guards_by_mutants([QUERY], clean.catalog(), shapes, some, clean.query, so_far=report)
    assert whole.tried == whole.of and not whole.survivors
    assert {g.mutant for g in (*some, *rest)} == {g.mutant for g in clean.mine(QUERY)[0]}


@pytest.mark.parametrize("rows", [0, 1, 3, 12])
def test_small_tables_have_mutants_too(rows: int) -> None:
    clean = Data(SALES, f"DELETE FROM sales WHERE sale_id > {rows}")
    mined, report = clean.mine(QUERY)
    assert not report.survivors or rows <= 3
    assert check_guards(mined, "duckdb", clean.query) is None


def test_a_query_whose_tables_cannot_be_replaced_is_not_mined() -> None:
    query = "WITH sales AS (SELECT * FROM sales) SELECT count(*) AS n FROM sales"
    assert Data(SALES).mine(query)[1].reason == "A name of the query stands for several tables."


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT s.a FROM sales s WHERE s.a > 1", "SELECT s.a FROM (SELECT b AS a FROM x) AS s WHERE s.a > 1"),
        ("SELECT sales.a FROM sales", "SELECT sales.a FROM (SELECT b AS a FROM x) AS sales"),
        (
            "SELECT 1 FROM sales AS p, sales AS q",
            "SELECT 1 FROM (SELECT b AS a FROM x) AS p, (SELECT b AS a FROM x) AS q",
        ),
    ],
)
def test_a_subquery_takes_the_place_of_a_table(sql: str, expected: str) -> None:
    assert replace_tables(sql, "duckdb", {"sales": "SELECT b AS a FROM x"}) == expected


@pytest.mark.parametrize("sql", ["SELECT FROM WHERE", "SELECT 1 FROM other", "SELECT main.sales.a FROM sales"])
def test_a_table_is_replaced_only_if_that_is_certain(sql: str) -> None:
    with pytest.raises(NotReplaced):
        replace_tables(sql, "duckdb", {"sales": "SELECT b AS a FROM x"})
