"""The guard on its own, and each engine's battery against the real engine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import time as clock
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.conftest import run_mysql

from etude.errors import EtudeError, Invalid, InvalidQuery, LimitExceeded, Refused, UnknownTable
from etude.sources import guard_sql
from etude.sources.base import CheckedQuery, Mount
from etude.sources.drivers.postgres import PostgresDriver
from etude.sources.functions import allowed_functions
from etude.sources.granted_tables import Granted
from etude.sources.guard_sql import check_sql
from etude.sources.guard_tokens import GuardedStatement
from etude.sources.guard_tree import TreeCheck
from etude.sources.sql_parsing import MAX_TEXT

GUARD = ("guard_sql.py", "guard_tokens.py", "guard_tree.py", "granted_tables.py", "cte_scope.py")
DIALECTS = ("sqlite", "postgres", "mysql")
HERE = Path(__file__).parents[1] / "adversarial"
SECRET = "TOPSECRET"


@dataclass(frozen=True)
class Attempt:
    dialect: str
    id: str
    kind: str
    sql: str


def read_battery(dialect: str) -> Iterator[Attempt]:
    for line in (HERE / f"sql_{dialect}.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, kind, _, _, sql = line.split(" | ", 4)
            yield Attempt(dialect, name, kind, sql)


BATTERY = [attempt for dialect in DIALECTS for attempt in read_battery(dialect)]


def named(*kinds: str) -> list[Any]:
    return [pytest.param(a, id=a.id) for a in BATTERY if a.kind in kinds]


FUNCTIONS: dict[str, dict[str, frozenset[str]]] = {
    "sqlite": {},
    "mysql": {"shadowed": frozenset({"median", "peek"})},
    "postgres": {
        "callable": frozenset({"initcap", "pg_read_file", "pg_sleep", "ts_stat", "peek", "length", "name", "total"}),
        "shadowed": frozenset({"initcap", "peek"}),
        "operators": frozenset({"===", "&-", "!>"}),
        "types": frozenset({"mood"}),
        "fields": frozenset({"street"}),
        "domains": frozenset({"email"}),
    },
}


def granted(dialect: str) -> Granted:
    schema = {"postgres": "public", "mysql": "db", "sqlite": "main"}[dialect]
    tables = {name: (schema, name) for name in ("customers", "orders")}
    if dialect == "postgres":
        tables |= {"sales.regions": ("sales", "regions"), "Mixed": ("public", "Mixed")}
    columns = [("id", "int", False, "PRI"), ("ts_stat", "int", True, "")]
    return Granted("shop", tables, frozenset({schema, "sales"}), lambda name: columns, **FUNCTIONS[dialect])


def check(sql: str, dialect: str = "postgres") -> CheckedQuery:
    return check_sql(sql, dialect, granted(dialect))


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.node.callspec.params['attempt'].dialect}_shop")


def fill(sql: str, shop: Any, tmp_path: Path) -> str:
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    database = shop.url.rpartition("/")[2]
    return sql.replace("@F@", str(secret)).replace("@O@", str(tmp_path / "out")).replace("@D@", database)


def read(shop: Any, sql: str, timeout_s: float = 120) -> pa.Table:
    checked = shop.driver.check(sql)
    return pa.Table.from_batches(list(shop.driver.run(checked, timeout_s)))


def test_the_batteries_are_large_enough() -> None:
    for dialect in DIALECTS:
        kinds = [a.kind for a in BATTERY if a.dialect == dialect]
        assert kinds.count("leak") + kinds.count("write") >= 40
        assert kinds.count("legit") >= 25


@pytest.mark.parametrize("attempt", named("leak", "write"))
def test_an_attempt_is_refused_and_has_no_effect(attempt: Attempt, shop: Any, tmp_path: Path) -> None:
    before, sql = shop.state(), fill(attempt.sql, shop, tmp_path)
    with pytest.raises((Refused, InvalidQuery)) as caught:
        read(shop, sql)
    assert SECRET not in f"{caught.value.message} {caught.value.hint} {caught.value.details}"
    assert caught.value.hint
    assert shop.state() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("attempt", named("harmless"))
def test_what_only_looks_like_an_attempt_runs(attempt: Attempt, shop: Any) -> None:
    assert SECRET not in repr(read(shop, attempt.sql).to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("attempt", named("dos"))
def test_what_burns_time_or_memory_ends_by_a_limit(attempt: Attempt, shop: Any) -> None:
    with pytest.raises((Refused, LimitExceeded, InvalidQuery)):
        read(shop, attempt.sql, timeout_s=0.3)
    assert read(shop, "SELECT 1 AS a").to_pylist() == [{"a": 1}]


def plain(value: Any) -> Any:
    """A value without the client's choice of type: 1, 1.0 and Decimal(1) are one number, a time is its seconds."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, clock):
        value = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return round(float(value), 9) if isinstance(value, (float, Decimal, int)) else value


@pytest.mark.parametrize("attempt", named("legit"))
def test_a_legitimate_query_gives_what_the_engine_gives(attempt: Attempt, shop: Any) -> None:
    sql = attempt.sql.replace("shop.customers", f"{shop.url.rpartition('/')[2]}.customers")
    seen, expected = read(shop, sql), shop.ask(sql)
    assert seen.column_names == shop.names(sql)
    assert seen.num_rows == len(expected)
    if sql.startswith("explain"):
        return
    for row, wanted in zip(zip(*(column.to_pylist() for column in seen.columns)), expected):
        for value, other in zip(row, wanted):
            # An interval of months, and an array of two dimensions, have no like in the other client.
            if not isinstance(value, pa.MonthDayNano) and not (isinstance(value, str) and isinstance(other, list)):
                assert plain(value) == plain(other)


@pytest.mark.parametrize("attempt", named("legit"))
def test_a_legitimate_query_runs_as_it_was_written(attempt: Attempt, shop: Any) -> None:
    sql = attempt.sql.replace("shop.customers", f"{shop.url.rpartition('/')[2]}.customers")
    ran = shop.driver.check(f"{sql}  -- a comment\n;").sql
    assert ran.replace(" ", "").lower() == sql.replace(" ", "").lower()


def test_comments_are_gone_and_the_rest_is_the_same() -> None:
    sql = "select /* a */ count( * ),x -- b\nfrom/**/orders;"
    assert check(sql).sql == "select count( * ),x from orders"
    assert check(sql).tables == ("orders",)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_name_of_the_source_is_dropped_before_a_table(dialect: str) -> None:
    checked = check("SELECT shop.orders.id FROM shop.orders", dialect)
    assert checked.tables == ("orders",)
    assert "shop" not in checked.sql.replace("`db`", "")


def test_a_schema_of_the_source_s_name_wins() -> None:
    tables = {"sales.regions": ("sales", "regions"), "orders": ("public", "orders")}
    names = Granted("sales", tables, frozenset({"sales"}), callable=frozenset())
    assert check_sql("SELECT * FROM sales.regions", "postgres", names).tables == ("sales.regions",)
    with pytest.raises(UnknownTable):
        check_sql("SELECT * FROM sales.orders", "postgres", names)


def test_a_name_that_differs_by_case_alone_is_found() -> None:
    assert check("SELECT mixed.a FROM mixed").sql == 'SELECT mixed.a FROM "public"."Mixed" AS "mixed"'
    assert check("SELECT Orders.id FROM Orders", "mysql").sql == "SELECT Orders.id FROM `db`.`orders` AS `Orders`"


def test_common_table_expressions_are_scoped() -> None:
    assert check("WITH secret AS (SELECT 1 AS a) SELECT * FROM secret").tables == ()
    assert check("WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT * FROM b, (SELECT * FROM a) c").tables == ()
    assert check("WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT * FROM t").tables == ()
    with pytest.raises(UnknownTable):
        check("SELECT * FROM (WITH secret AS (SELECT 1) SELECT * FROM secret) x JOIN secret ON true")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.id, o.ts_stat FROM orders o",
        "SELECT x.name, x.length FROM (SELECT 1 AS name, 2 AS length) x",
        "SELECT (o).id, (o.home).street, (ROW(1, 2)).f1 FROM orders o",
        "SELECT email, o.email, id::text, CAST(id AS INT) FROM orders o",
        "SELECT JSON_OBJECT('a': 1 RETURNING jsonb)",
        "SELECT x.kind FROM unnest(ARRAY[1]) AS x(kind)",
        "SELECT 1 - -2, 3 & -4, 'x'::mood, '{a}'::mood[]",
    ],
)
def test_columns_fields_and_known_types_pass_on_postgres(sql: str) -> None:
    assert check(sql).sql == sql


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT o.pg_sleep FROM orders o", "function"),
        ("SELECT o.ts_stat FROM orders o, (SELECT o.id FROM unnest(ARRAY['x']) o) x", "function"),
        ("SELECT ('x'::text).ts_stat FROM orders", "function"),
        ("SELECT (id).unheard_of FROM orders", "function"),
        ("SELECT x.total FROM (SELECT 1 AS total) x", "function"),
        ("SELECT initcap('a')", "function"),
        ("SELECT 1 === 2", ""),
        ("SELECT 1 &-2", "operator"),
        ("SELECT 1 &/**/-2, 3 &- 4", "operator"),
        ("SELECT 'x'::email", "type"),
        ("SELECT 'x'::orders", "type"),
        ("SELECT JSON_OBJECT('a': 1 RETURNING email)", "type"),
        ("SELECT o.initcap FROM unnest(ARRAY['x']) o", "function"),
    ],
)
def test_what_may_call_a_function_is_refused_on_postgres(sql: str, reason: str) -> None:
    with pytest.raises((Refused, InvalidQuery)) as caught:
        check(sql)
    assert caught.value.details.get("reason", "") == reason
    assert caught.value.hint


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("mysql", "SELECT 1 /* a /* b */ FROM secret /* */ */"),
        ("sqlite", "SELECT 1 /* a /* b */ FROM secret /* */ */"),
        ("postgres", "SELECT 1 -- a\r FROM secret"),
        ("mysql", "SELECT median(id) OVER () FROM orders"),
        ("mysql", "SELECT 1 /*!50000 FROM secret */"),
        ("mysql", "SELECT 1 /*M!100000 FROM secret */"),
    ],
)
def test_a_comment_ends_where_the_engine_ends_it(dialect: str, sql: str) -> None:
    with pytest.raises((Refused, InvalidQuery)):
        check(sql, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "\u017fELECT 1",
        "SELECT 1 FROM orders CRO\u00df JOIN customers",
        "SELECT 1 UN\u0131ON SELECT 2",
        "SELECT le\ufb00(1)",
        "SELECT id FROM orders ORDER BY id L\u0131M\u0131T 1",
        "SELECT \u212a FROM orders",
    ],
)
def test_a_word_that_only_looks_like_another_is_refused(dialect: str, sql: str) -> None:
    with pytest.raises((Refused, InvalidQuery)):
        check(sql, dialect)


FIRST = ["2", "\u00b2", "\u2167", "\u0661", "\u0301", "$", "\U0001d7d9", "1e0", "'a'", "0x1"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize(
    "sql", ["SELECT {}peek()", "SELECT {}peek ()", "SELECT * FROM {}peek()", "SELECT max({}peek(1))", "SELECT {}()"]
)
def test_a_call_is_refused_whatever_its_first_character(dialect: str, first: str, sql: str) -> None:
    with pytest.raises((Refused, InvalidQuery)):
        check(sql.format(first), dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("first", ["\u00b2", "\u2167"])
def test_an_unusual_name_needs_quotes(dialect: str, first: str) -> None:
    with pytest.raises(Refused, match="begins with neither a letter nor a digit"):
        check(f"SELECT {first}a FROM orders", dialect)
    quote = "`" if dialect == "mysql" else '"'
    assert check(f"SELECT {quote}{first}a{quote} FROM orders", dialect).tables == ("orders",)


def test_a_function_of_the_tree_without_a_checked_token_is_refused() -> None:
    statement = GuardedStatement("SELECT lower('a')", "postgres")
    walk = TreeCheck(statement, granted("postgres"))
    walk.tree(sqlglot.parse_one("SELECT lower(peek('a'))", dialect="postgres"))
    with pytest.raises(Refused, match="is not allowed in a query"):
        walk.calls()


GLUED = ["1", "1.", "1.5", ".5", "1e0", "1E1", "1e+0", "1.e1", "00e0", "0x41", "0xF", "0b1", "0o7", "1_0", "1a", "1e"]
GLUED += ["x'41'", "b'1'", "'a'", "N'a'", "_utf8'a'", "date'2024-01-01'", "\u0661", "1\u0661", "orders.1", "orders.1e0"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("number", GLUED)
@pytest.mark.parametrize("rest", ["FROM orders", "from orders", "FROM(orders)", "AS x", "UNION SELECT 1", "x", "_x"])
def test_a_number_or_a_text_that_touches_a_word_is_refused(dialect: str, number: str, rest: str) -> None:
    with pytest.raises((Refused, InvalidQuery)):
        check(f"SELECT id, {number}{rest}", dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql", ["SELECT orders.1 FROM orders", "SELECT orders. 1 FROM orders", "SELECT 1.5.id FROM orders"]
)
def test_a_dot_belongs_to_a_number_or_to_names(dialect: str, sql: str) -> None:
    with pytest.raises((Refused, InvalidQuery)):
        check(sql, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_numbers_beside_symbols_pass(dialect: str) -> None:
    sql = "SELECT .5,1.5e-3,(1e0)AS x,1. AS y FROM orders WHERE id=.5 AND id<1e1 AND(id>0)"
    assert check(sql, dialect).sql == sql


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_in_other_alphabets_pass(dialect: str) -> None:
    quote = "`" if dialect == "mysql" else '"'
    sql = f"SELECT gr\u00f6\u00dfe, {quote}stra\u00dfe{quote}, \u540d\u524d FROM orders"
    assert check(sql, dialect).sql == sql


def test_comments_nest_on_postgres() -> None:
    assert check("SELECT 1 /* a /* b */ c */ + 1 /**/ -- d\n").sql == "SELECT 1 + 1"


def test_the_guard_for_postgres_must_know_its_functions() -> None:
    with pytest.raises(ValueError, match="functions"):
        check_sql("SELECT 1", "postgres", Granted("shop", {}))


def test_a_dialect_without_rules_is_named() -> None:
    with pytest.raises(Invalid, match="no rules for the SQL dialect `clickhouse`") as caught:
        check_sql("SELECT 1", "clickhouse", Granted("shop", {}))
    assert "postgres, mysql, sqlite" in caught.value.hint


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refusal_names_the_thing_and_the_place(dialect: str) -> None:
    with pytest.raises(Refused) as caught:
        check("SELECT id,\n  load_file('x') FROM orders", dialect)
    assert "`load_file`" in caught.value.message
    assert caught.value.details == {"reason": "function", "line": 2, "column": 3}
    with pytest.raises(UnknownTable) as unknown:
        check("SELECT *\nFROM ordrs", dialect)
    assert unknown.value.details == {"reason": "table", "line": 2, "column": 6}
    assert unknown.value.hint == "Did you mean `orders`?"
    with pytest.raises(InvalidQuery) as invalid:
        check("SELECT *\nFROM orders WHERE )", dialect)
    assert invalid.value.details == {"line": 2, "column": 19}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "CASE WHEN 1 = 1 THEN " * 3000 + "1" + " END" * 3000,
        "SELECT " + "NOT " * 20000 + "1",
        "SELECT " + "- " * 20000 + "1",
        "SELECT * FROM " + "(SELECT * FROM " * 500 + "orders" + ")" * 500,
        "SELECT '" + "x" * MAX_TEXT + "'",
        "SELECT 1" + ", 1" * 200_000,
        "SELECT \0",
        "SELECT '\ud800'",
        "SELECT 'x",
        "SELECT /* x",
        "",
        ";;",
        "-- nothing",
    ],
    ids=range(14),
)
def test_what_is_too_deep_too_long_or_no_text_is_refused(dialect: str, sql: str) -> None:
    with pytest.raises((Refused, InvalidQuery)):
        check(sql, dialect)


LONG = 200_000
REPEATED = ("[", "/*", "{{", "(", "'", '"', "`", "$", "$a$", "--", "e'", "'\\", " ", "1", "a")


@pytest.mark.slow
@pytest.mark.parametrize("unit", REPEATED)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_text_takes_linear_time(dialect: str, unit: str) -> None:
    text = unit * (LONG // len(unit))
    texts = [text, f"SELECT {text}", f"DESCRIBE {text}", f"DESCRIBE a{text}x", f"SHOW TABLES{text}x", f"EXPLAIN {text}"]
    texts += [f"SELECT {text}, x.f(1)", f"SELECT 'a' + '{text}' FROM FROM"]
    for written in texts:
        start = time.process_time()
        with suppress(EtudeError):
            check(written, dialect)
        assert time.process_time() - start < 20, written[:40]


@pytest.mark.slow
def test_many_types_take_linear_time() -> None:
    start = time.process_time()
    check("SELECT 1::int" + ", 1::int" * 20_000)
    assert time.process_time() - start < 20


def many_ctes(count: int) -> str:
    ctes = ", ".join(f"c{n} AS (SELECT id FROM {f'c{n - 1}' if n else 'orders'})" for n in range(count))
    return f"WITH {ctes} SELECT id FROM c{count - 1}"


def many_unions(count: int) -> str:
    return " UNION ALL ".join(["SELECT t.name FROM orders t"] * count)


def work_of(run: Callable[[], object]) -> int:
    """Return how many lines of the guard are executed: unlike time, the same on every machine."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename.endswith(GUARD) else None

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("write", [many_ctes, many_unions])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_work_grows_with_the_query_and_not_with_its_square(dialect: str, write: Callable[[int], str]) -> None:
    names = replace(granted(dialect), describe=lambda _: [("name", "text", True, "")])
    check_sql(write(2), dialect, names)
    small, large = (work_of(lambda n=n: check_sql(write(n), dialect, names)) for n in (100, 400))
    assert large < 5 * small


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("WITH a AS (SELECT id FROM orders), b AS (SELECT id FROM a) SELECT id FROM b", ("orders",)),
        ("WITH b AS (SELECT id FROM orders), orders AS (SELECT id FROM b) SELECT id FROM orders", ("orders",)),
        ("WITH orders AS (SELECT id FROM orders) SELECT id FROM orders", ("orders",)),
        ("WITH RECURSIVE orders AS (SELECT 1 AS id UNION ALL SELECT id FROM orders) SELECT id FROM orders", ()),
        ("WITH a AS (SELECT id FROM customers) SELECT * FROM (WITH b AS (SELECT id FROM a) SELECT id FROM b) x", None),
        ("WITH a AS (WITH orders AS (SELECT 1 AS id) SELECT id FROM orders) SELECT id FROM a, orders", ("orders",)),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_name_means_a_common_table_expression_only_where_it_is_visible(
    dialect: str, sql: str, reads: tuple[str, ...] | None
) -> None:
    assert check(sql, dialect).tables == (reads if reads is not None else ("customers",))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sql", ["WITH a AS (SELECT id FROM b), b AS (SELECT 1 AS id) SELECT id FROM a"])
def test_a_common_table_expression_does_not_see_later_ones(dialect: str, sql: str) -> None:
    with pytest.raises(UnknownTable, match="`b`"):
        check(sql, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_long_but_flat_queries_pass(dialect: str) -> None:
    many = ", ".join(str(n) for n in range(20_000))
    assert check(f"SELECT * FROM orders WHERE id IN ({many})", dialect).tables == ("orders",)
    chain = " OR ".join(f"id = {n}" for n in range(2_000))
    assert check(f"SELECT * FROM orders WHERE {chain}", dialect).tables == ("orders",)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_lists_hold_no_function_that_does_more_than_compute(dialect: str) -> None:
    listed = allowed_functions(dialect) | allowed_functions(f"{dialect}_tables")
    dangerous = {"pg_read_file", "lo_import", "dblink", "query_to_xml", "set_config", "nextval", "pg_sleep", "xpath"}
    dangerous |= {"current_setting", "pg_notify", "txid_current", "load_file", "sleep", "benchmark", "get_lock", "user"}
    dangerous |= {"load_extension", "readfile", "writefile", "fts3_tokenizer", "version", "extractvalue", "updatexml"}
    assert not listed & dangerous


TOKENS = ["SELECT", "FROM", "orders", "secret", "WITH", "AS", "(", ")", ",", "*", "1", "'x'", '"secret"', "`secret`"]
TOKENS += ["/*", "*/", "--", "#", "'", '"', "\\", "$$", "E'", "U&", ";", "INTO", "/*!", "UNION", "\n", "lower", "."]
TOKENS += ["customers", "JOIN", "ON", "WHERE", "password", "LATERAL", "VALUES", "RECURSIVE", "\u00a0", "\u212aeys", "x"]


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=300)
@given(data=st.data())
def test_random_words_give_an_error_of_ours_or_a_query_on_granted_tables(dialect: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(st.sampled_from(TOKENS), max_size=25))
    try:
        checked = check(" ".join(["SELECT", *words]), dialect)
    except (Refused, InvalidQuery):
        return
    assert set(checked.tables) <= {"orders", "customers"}
    # What passed is stable: it means the same to the guard when it comes again.
    assert check(checked.sql, dialect) == checked


LEGITIMATE = {d: [a.sql for a in BATTERY if a.dialect == d and a.kind == "legit"] for d in DIALECTS}
WORDS = ["secret", "main.secret", '"secret"', "(SELECT password FROM secret)", ", secret", "JOIN secret ON 1 = 1"]
WORDS += ["UNION ALL SELECT password FROM secret", "WITH secret AS (", ";", "--", "/*", "*/", "'", '"', "(", ")", "\\"]
WORDS += [
    "DELETE FROM orders",
    "INTO x",
    "FOR UPDATE",
    "$$",
    "E'",
    "U&",
    "`",
    "[",
    "]",
    "\n",
    "#",
    "/*!",
    "?",
    "peek()",
    "password, 1e0FROM secret",
    "0x41FROM secret",
    ".1FROM secret",
    "\u00b2peek()",
    "2peek()",
]


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_bent_query_gets_nothing(dialect: str, data: st.DataObject, request: pytest.FixtureRequest) -> None:
    shop = request.getfixturevalue(f"{dialect}_shop")
    words = data.draw(st.sampled_from(LEGITIMATE[dialect])).split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words)))
        words[place : place + data.draw(st.integers(0, 1))] = [data.draw(st.sampled_from(WORDS))]
        if data.draw(st.booleans()):
            # Take away a blank, so that a number or a text may touch a word.
            place = data.draw(st.integers(0, len(words) - 1))
            words[place : place + 2] = ["".join(words[place : place + 2])]
    before = shop.state()
    try:
        seen = repr(read(shop, " ".join(words), timeout_s=2).to_pylist())
    except EtudeError:
        seen = ""
    assert SECRET not in seen
    assert shop.state() == before


COUNTS = (
    'SELECT COUNT(*) AS c0, COUNT("id") AS c1, COUNT(DISTINCT "id") AS c2, MIN("id") AS c3, MAX("id") AS c4 FROM "{0}"',
    'SELECT * FROM (SELECT COUNT(*) AS c0 FROM "{0}") AS t0 CROSS JOIN (SELECT MAX("id") AS c1 FROM "{0}") AS t1',
    'SELECT 0 AS n, COUNT(*) AS c0, COUNT(DISTINCT "id") AS c1 FROM "{0}" UNION ALL '
    'SELECT 1 AS n, COUNT(*) AS c0, 0 AS c1 FROM "{0}"',
    'SELECT DISTINCT 0 AS n, "id" AS v FROM "{0}" WHERE NOT "id" IS NULL UNION ALL '
    'SELECT DISTINCT 1 AS n, "id" AS v FROM "{0}" WHERE NOT "id" IS NULL',
    'SELECT COUNT(DISTINCT "id") FROM "{0}" WHERE "id" IN (SELECT "id" FROM "{0}")',
    'SELECT (SELECT COUNT(DISTINCT "id") FROM "{0}" WHERE "id" IN (SELECT "id" FROM "{0}")) AS c0, '
    '(SELECT COUNT(DISTINCT "id") FROM "{0}" WHERE "id" IN (SELECT "id" FROM "{0}")) AS c1',
)


@pytest.mark.parametrize("dialect", ["mysql", "sqlite"])
@pytest.mark.parametrize("sql", COUNTS)
def test_counts_have_the_verdict_that_parsing_gives(sql: str, dialect: str) -> None:
    names = granted(dialect)
    table = next(iter(names.tables))
    quoted = sql.format(table).replace('"', "`" if dialect == "mysql" else '"')
    known = guard_sql._check_counts(quoted, dialect, names)
    assert known is not None and known == guard_sql._check_query(quoted, dialect, names, 0)
    with pytest.raises(UnknownTable):
        check_sql(quoted.replace(table, "hidden"), dialect, names)


def test_counts_on_postgres_are_parsed_like_any_other_query() -> None:
    names = granted("postgres")
    sql = COUNTS[0].format(next(iter(names.tables)))
    assert guard_sql._check_counts(sql, "postgres", names) is None
    assert check_sql(sql, "postgres", names).sql == sql


@pytest.mark.parametrize("dialect", ["mysql", "sqlite"])
@given(at=st.floats(0, 1), put=st.text(max_size=3), sql=st.sampled_from(COUNTS))
@settings(max_examples=200, deadline=None)
def test_text_that_differs_from_a_count_by_anything_is_parsed(at: float, put: str, sql: str, dialect: str) -> None:
    names = granted(dialect)
    text = sql.format(next(iter(names.tables))).replace('"', "`" if dialect == "mysql" else '"')
    place = int(at * len(text))
    changed = text[:place] + put + text[place:]
    known = guard_sql._check_counts(changed, dialect, names)
    if known is not None:
        assert known == guard_sql._check_query(changed, dialect, names, 0)


USER_CODE = """
CREATE TYPE mood AS ENUM ('a', 'b'); CREATE TYPE pair AS (m mood);
CREATE TABLE secret AS SELECT 'TOPSECRET' AS k;
CREATE TABLE plain (id int, v text); INSERT INTO plain VALUES (1, 'x');
CREATE TABLE pub (id int, v text); INSERT INTO pub VALUES (1, 'x');
CREATE TABLE moods (id int, m mood); INSERT INTO moods VALUES (1, 'a');
CREATE TABLE nested (id int, many mood[], p pair); INSERT INTO nested VALUES (1, '{a}', ROW('a'));
CREATE FUNCTION leak(pub) RETURNS text LANGUAGE sql AS 'SELECT k FROM secret';
CREATE CAST (pub AS text) WITH FUNCTION leak(pub);
CREATE FUNCTION leak_json(mood) RETURNS json LANGUAGE sql AS 'SELECT to_json(k) FROM secret';
CREATE CAST (mood AS json) WITH FUNCTION leak_json(mood);
CREATE FUNCTION leak_int(mood) RETURNS int LANGUAGE sql AS 'SELECT length(k) FROM secret';
CREATE CAST (mood AS int) WITH FUNCTION leak_int(mood) AS IMPLICIT;
CREATE FUNCTION leak_like(mood, text) RETURNS bool LANGUAGE sql AS 'SELECT k LIKE $2 FROM secret';
CREATE OPERATOR ~~ (LEFTARG = mood, RIGHTARG = text, FUNCTION = leak_like);
CREATE OPERATOR = (LEFTARG = mood, RIGHTARG = text, FUNCTION = leak_like);
CREATE FUNCTION leak_text(text) RETURNS text LANGUAGE sql AS 'SELECT k FROM secret';
CREATE FUNCTION leak_texts(text, text) RETURNS text LANGUAGE sql AS 'SELECT k FROM secret';
CREATE OPERATOR !! (RIGHTARG = text, FUNCTION = leak_text);
CREATE OPERATOR @ (RIGHTARG = text, FUNCTION = leak_text);
CREATE OPERATOR / (LEFTARG = text, RIGHTARG = text, FUNCTION = leak_texts);
CREATE SCHEMA other; CREATE OPERATOR other.* (LEFTARG = text, RIGHTARG = text, FUNCTION = leak_texts);
CREATE TYPE grade AS (g text); CREATE TABLE grades (id int, g grade); INSERT INTO grades VALUES (1, ROW('x'));
CREATE FUNCTION leak_order(grade, grade) RETURNS int LANGUAGE plpgsql
    AS 'DECLARE found text; BEGIN SELECT k INTO found FROM secret; RAISE EXCEPTION ''%'', found; END';
CREATE OPERATOR CLASS grade_ops DEFAULT FOR TYPE grade USING btree AS FUNCTION 1 leak_order(grade, grade)
"""


@pytest.fixture(scope="module")
def user_code(postgres_server: Callable[[], str]) -> Iterator[PostgresDriver]:
    url = postgres_server()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(USER_CODE)
        available = "SELECT name FROM pg_available_extensions WHERE name IN ('citext', 'hstore', 'ltree')"
        for (name,) in admin.execute(available).fetchall():
            admin.execute(f"CREATE EXTENSION {name}")
    driver = PostgresDriver(Mount("db", "postgres", url, tables=("plain", "pub", "moods", "nested", "grades")))
    yield driver
    driver.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select pub::text from pub",
        "select p::varchar from pub p",
        "select 'x' || pub from pub",
        "select concat(x) from (select pub as x from pub) y",
        "select to_json(m) from moods",
        "select json_build_object('a', m) from moods",
        "select abs(m) from moods",
        "select id + m from moods",
        "select to_json(many) from nested",
        "select to_json(p) from nested",
        "select to_json('a'::mood)",
        "select m like 'TOP%'::text from moods",
        "select m = 'TOP%'::text from moods",
        "select m in ('TOP%'::text) from moods",
        "select !! v from plain",
        "select v / v from plain",
        "select g from grades order by g",
        "select distinct g from grades",
        "select greatest(g, g) from grades",
        "select rank() over (order by grades) from grades",
    ],
)
def test_a_query_that_may_run_a_user_defined_cast_or_operator_is_refused(user_code: PostgresDriver, sql: str) -> None:
    with pytest.raises(Refused) as caught:
        user_code.check(sql)
    assert caught.value.details["reason"] in ("cast", "operator", "operator class")
    assert "Drop the" in caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "select id + 1, v || 'x', id::text, to_json(v) from plain",
        "select id * 2 from plain where v = 'x' and v like 'x%' and id in (1, 2) and id between 1 and 3",
        "select row_to_json(p), p::text from plain p",
        "select case v when 'x' then 1 end, nullif(v, 'y'), - id from plain",
    ],
)
def test_a_query_that_cannot_reach_user_defined_code_runs(user_code: PostgresDriver, sql: str) -> None:
    checked = user_code.check(sql)
    assert SECRET not in repr(pa.Table.from_batches(list(user_code.run(checked, 10))).to_pylist())


@pytest.mark.parametrize("name", ["year", "first", "round"])
def test_a_function_that_is_created_later_is_not_called(name: str, postgres_shop: Any) -> None:
    call = f"SELECT {name}('x'::text) AS a"
    read(postgres_shop, "SELECT 1 AS a")
    with psycopg.connect(postgres_shop.url, autocommit=True) as admin:
        body = "LANGUAGE sql SECURITY DEFINER AS 'SELECT password FROM secret'"
        admin.execute(f"CREATE FUNCTION {name}(text) RETURNS text {body}".encode())
        try:
            with pytest.raises(Refused, match=name):
                read(postgres_shop, call)
        finally:
            admin.execute(f"DROP FUNCTION {name}(text)".encode())
    with pytest.raises(InvalidQuery):
        read(postgres_shop, call)


def test_a_function_that_is_created_later_is_not_called_on_mysql(mysql_shop: Any) -> None:
    read(mysql_shop, "SELECT 1 AS a")
    run_mysql(mysql_shop.url, "CREATE FUNCTION uuid_to_bin(x INT) RETURNS TEXT READS SQL DATA RETURN 'x'")
    try:
        with pytest.raises(Refused, match="uuid_to_bin"):
            read(mysql_shop, "SELECT uuid_to_bin(1) AS a")
    finally:
        run_mysql(mysql_shop.url, "DROP FUNCTION uuid_to_bin")


def test_names_are_compared_as_postgres_cuts_them() -> None:
    long, cut = "\u00e9" * 32, "\u00e9" * 31
    names = replace(granted("postgres"), callable=frozenset({cut, "x" * 63}))
    for sql in (f"SELECT o.{long} FROM orders o", f'SELECT o."{"x" * 70}" FROM orders o'):
        with pytest.raises(Refused):
            check_sql(sql, "postgres", names)
    # Both aliases are the same name for Postgres, and the inner one hides the outer one.
    a, b = "q" * 63 + "a", "q" * 63 + "b"
    with pytest.raises(Refused):
        check(f"SELECT (SELECT {a}.ts_stat FROM unnest(ARRAY['x']) {b}) FROM orders {a}")
