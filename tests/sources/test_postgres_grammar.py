"""What Postgres reads in a text, and queries of which the guard's other parser reads something else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etude.errors import InvalidQuery, Refused
from etude.sources.granted_tables import Granted
from etude.sources.guard_sql import check_sql
from etude.sources.postgres_grammar import read_postgres_query

GRANTED = Granted(
    "shop",
    {"orders": ("public", "orders"), "sales.regions": ("sales", "regions")},
    frozenset({"public", "sales"}),
    callable=frozenset({"pg_read_file"}),
)


def check(sql: str) -> str:
    return check_sql(sql, "postgres", GRANTED).sql


def test_a_query_has_tables_functions_and_texts() -> None:
    read = read_postgres_query("WITH a AS (SELECT 'ü' AS x) SELECT lower(x), extract(year FROM d) FROM a, s.\"T\"")
    assert read.tables == {("a",), ("s", "T")}
    assert read.ctes == {"a"}
    assert read.functions == {"lower", "extract"}
    assert read.texts == {(18, 22), (77, 80)}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "SELECT 1 INTO t",
        "SELECT 1 FROM t FOR UPDATE",
        "WITH x AS (DELETE FROM t RETURNING 1) SELECT * FROM x",
        "INSERT INTO t VALUES (1)",
        "SELECT 1 -- end",
        "SELECT /* a */ 1",
        "SELECT other.lower('a')",
        "",
    ],
)
def test_what_is_not_one_query_that_reads_is_refused(sql: str) -> None:
    with pytest.raises(Refused):
        read_postgres_query(sql)


@pytest.mark.parametrize("sql", ["SELECT 'open", "SELECT ARRAY[1][1]", "SELECT FROM WHERE"])
def test_what_postgres_cannot_read_is_an_error_of_the_query(sql: str) -> None:
    with pytest.raises(InvalidQuery, match="Postgres cannot read this query: ") as caught:
        read_postgres_query(f"SELECT 'ü',\n{sql.removeprefix('SELECT ')}")
    assert caught.value.details["line"] == 2 and caught.value.details["column"] >= 1


@pytest.mark.parametrize("gap", ["\n", " \n\t", "\r", " -- a comment\n", "\f\n"])
@pytest.mark.parametrize("first", ["E'1 day'", "e'1'", "'1 day'", "U&'1 day'"])
def test_a_text_that_goes_on_after_a_line_end_is_refused(first: str, gap: str) -> None:
    """Postgres joins the two, and in the second one `\\'` is still an escape."""
    with pytest.raises((Refused, InvalidQuery)):
        check(f"SELECT INTERVAL {first}{gap}'\\' , ' , (SELECT pw FROM secret) --'")


@pytest.mark.parametrize("operator", ["|/", "||/", "?||/", "/", "+/", "@-/"])
def test_an_operator_does_not_begin_a_comment(operator: str) -> None:
    """Postgres ends an operator before `/*`; another parser may read the operators `|/` and `*`."""
    hidden = "' */ (SELECT pw FROM secret)) FROM (SELECT 0 AS value) t --'"
    sql = f"SELECT json_object('a' : VALUE {operator}* , {hidden} : 1)"
    with pytest.raises((Refused, InvalidQuery)):
        check(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.id, 'it''s', E'a\\nb', $$x$$, $t$y$t$, U&'\\0061', N'n', B'01', X'1F' FROM orders AS o",
        'SELECT "a b", count(*) FILTER (WHERE x > 1) OVER (PARTITION BY y) FROM shop.orders GROUP BY 1, 2',
        "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT n FROM a JOIN sales.regions ON true",
        "SELECT date'2024-01-01' + INTERVAL '1 day', x::text, d AT TIME ZONE 'UTC', trim(both ' ' FROM n) FROM orders",
        "SELECT x LIKE 'a!%' ESCAPE '!', x SIMILAR TO 'b', substring(x FROM 1 FOR 2), position('a' IN x) FROM orders",
        "SELECT a->>'b', a #>> '{c}', 2 ^ 3, |/ 25, -1 - -2, (ARRAY[1, 2])[1], (SELECT max(id) FROM orders)",
        "VALUES (1, 'a'), (2, 'b')",
        "SELECT * FROM generate_series(1, 3) AS g(n), unnest(ARRAY[1]) WITH ORDINALITY u(v, i)",
        "SELECT DISTINCT ON (x) x, CASE WHEN y IS NULL THEN 'z' ELSE y END FROM orders ORDER BY x DESC NULLS LAST",
        "SELECT grouping(x), percentile_cont(0.5) WITHIN GROUP (ORDER BY y) FROM orders GROUP BY ROLLUP (x), CUBE (y)",
        "SELECT coalesce(a, greatest(1, 2)), row(1, 2), (a, b) IN (SELECT 1, 2) FROM orders TABLESAMPLE SYSTEM (10)",
        "SELECT 'Zürich' AS \"ö\", 'naïve' FROM orders -- é",
        'SELECT current_date, extract(epoch FROM now() - d), x COLLATE "C" FROM orders',
    ],
)
def test_what_both_read_alike_runs(sql: str) -> None:
    assert check(sql)


@pytest.mark.parametrize(
    "type_name",
    ["hs.json", "hs.json[]", '"Money"', '"integer"', '"int"', '"boolean"', '"JSON"', 'public."Path"', "hs.mood_text"],
)
def test_a_type_that_is_only_spelled_like_a_built_in_one_is_refused(type_name: str) -> None:
    for sql in (
        f"SELECT 'a'::{type_name}",
        f"SELECT CAST('a' AS {type_name})",
        f"SELECT * FROM jsonb_to_record('{{}}') AS t(a {type_name})",
    ):
        with pytest.raises(Refused, match="is not allowed in a query: a cast to it might run user-defined code"):
            check(sql)


@pytest.mark.parametrize(
    "type_name",
    ["int", "INTEGER", "double precision", "timestamp with time zone", "text", '"text"', "pg_catalog.int4", "text[]",
     "json", "numeric(10, 2)", "varchar(3)", "mood", "hs.mood", "interval", "boolean"],
)  # fmt: skip
def test_built_in_types_and_enumerations_are_allowed(type_name: str) -> None:
    granted = replace(GRANTED, types=frozenset({"mood"}))
    assert check_sql(f"SELECT CAST(NULL AS {type_name})", "postgres", granted).tables == ()
