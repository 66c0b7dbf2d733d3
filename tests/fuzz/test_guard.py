"""Fuzz tests that compare the guard with each engine's own analysis of a query.

Each mutated query goes through the guard. If the guard accepts it, the engine analyses the text that would run, and
every table and function in that analysis must be one that the guard allowed. A query with parameters gets values, which
the engine binds for its analysis as it would to run the query.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus
from tests.sources.conftest import GRANTED, Shop, connect_mysql, run_mysql

from etude.errors import EtudeError
from etude.sources.base import CheckedQuery, Mount
from etude.sources.drivers.duckdb import DuckdbDriver
from etude.sources.drivers.mysql import _variable
from etude.sources.drivers.sqlite import SqliteDriver, _bindable
from etude.sources.functions import allowed_functions
from etude.sources.guard_sql import check_sql
from etude.sources.query_parameters import Params, place_query_params

from .loop import fuzz
from .sql import make_mutator

pytestmark = pytest.mark.timeout(0)
BATTERIES = Path(__file__).parents[1] / "adversarial"
ATTACKS = [
    "secret",
    '"secret"',
    "public.secret",
    "FROM secret",
    ", secret",
    "(SELECT password FROM secret)",
    "password",
]
ATTACKS += ["UNION ALL SELECT password FROM secret", "JOIN secret ON 1 = 1", "WITH secret AS (SELECT 1)", "peek()"]
ATTACKS += ["AS secret", "TABLE secret", "INTO x", "FOR UPDATE", "secret.password", "LATERAL", "FROM keys", "count(*)"]


def read_battery(dialect: str) -> tuple[list[str], list[str]]:
    """Return the legitimate queries of a battery, and its attacks except those on time and memory."""
    legitimate, attacks = [], []
    for line in (BATTERIES / f"sql_{dialect}.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            _, kind, _, _, sql = line.split(" | ", 4)
            if kind == "legit":
                legitimate.append(sql)
            elif kind != "dos":
                attacks.append(sql)
    return legitimate, attacks


VALUES: list[Any] = [1, 2, "x", "secret", None, 2.5, Decimal("1.50"), date(2024, 1, 2), b"x", True]
VALUES += ["x' OR 1 = 1 --", "\\", "$1 ? :x", "(SELECT password FROM secret)", "/etc/passwd", "1)", "peek()"]
MARK = re.compile(r"[$:]([A-Za-z_]\w*)|\$(\d{1,3})\b|\?")


def choose_params(sql: str) -> Params | None:
    """Return values for what looks like a parameter; the same text always gets the same values."""
    some, found = random.Random(zlib.crc32(sql.encode("utf-8", "surrogatepass"))), list(MARK.finditer(sql))
    if not found or some.random() < 0.05:
        return None
    if names := {mark[1] for mark in found if mark[1]}:
        return {name: some.choice(VALUES) for name in sorted(names)}
    count = max((int(mark[2]) for mark in found if mark[2]), default=len(found))
    return [some.choice(VALUES) for _ in range(count)]


def fuzz_guard(
    dialect: str, pieces: list[str], check: Callable[[str, int], CheckedQuery], compare: Callable[[CheckedQuery], bool]
) -> None:
    """Mutate the battery of a dialect. `compare` raises if the engine finds more; False if it cannot run the query."""
    legitimate, attacks = read_battery(dialect)
    seeds = legitimate + attacks
    bound = 0

    def verdict(sql: str) -> str:
        nonlocal bound
        try:
            params = choose_params(sql)
            text, values = place_query_params(sql, params, dialect) if params else (sql, ())
            checked = replace(check(text, len(values)), params=values)
        except EtudeError:
            return "refused"
        if not compare(checked):
            return "invalid"
        bound += bool(values)
        return "accepted"

    mutate = make_mutator(seeds, [*ATTACKS, *pieces])
    # Start more often from legitimate queries: most mutations of an attack are refused at once.
    verdicts = fuzz(f"guard_{dialect}", legitimate * 2 + attacks, mutate, verdict)
    assert verdicts["accepted"] > sum(verdicts.values()) / 50
    assert bound > verdicts["accepted"] / 50
    sys.stderr.write(f"{bound:,} of them with parameters\n")


# -- DuckDB: the logical plan before optimization


@pytest.fixture(scope="module")
def duckdb_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckdbDriver]:
    path = tmp_path_factory.mktemp("duckdb") / "shop.duckdb"
    with duckdb.connect(str(path)) as shop:
        shop.execute("CREATE TABLE ok (a INT, b INT); INSERT INTO ok VALUES (1, 2), (3, 4)")
        shop.execute(
            "CREATE TABLE secret AS SELECT 'TOPSECRET' AS password; CREATE TABLE hidden AS SELECT 1 AS k, 2 AS v"
        )
        shop.execute("CREATE MACRO peek() AS TABLE SELECT * FROM secret")
    driver = DuckdbDriver(Mount("shop", "duckdb", str(path), tables=("ok",)), memory=512 << 20, threads=1)
    yield driver
    driver.close()


DUCKDB_PIECES = ["hidden", "FROM hidden", "duckdb_tables", "duckdb_settings()", "query('FROM hidden')", "PIVOT", "ON k"]
DUCKDB_PIECES += [
    "query_table('hidden')",
    "(PIVOT (SELECT k FROM hidden) ON k)",
    "(PIVOT (SELECT 1 AS i) ON i)",
    ".f()",
]
DUCKDB_PIECES += ["getenv('PATH')", "current_setting('threads')", "COLUMNS(*)", "read_text('/etc/passwd')", "IN (NULL)"]
DUCKDB_PIECES += ["FROM '/etc/passwd'", "duc\u212adb_tables", "SUMMARIZE hidden", "DESCRIBE", "POSITIONAL JOIN hidden"]
DUCKDB_PIECES += ["information_schema.tables", "pg_catalog.pg_class", "sqlite_master", "USING count(*)", "x -> x"]
# Names that DuckDB's binder writes instead of an operator, a cast or an allowed function.
DUCKDB_SHOW = frozenset({"duckdb_tables", "duckdb_views", "in_search_path", "pragma_show", "duckdb_columns"})
DUCKDB_OWN = frozenset(
    [
        "__cast",
        "error",
        "unpivot_list",
        "seq_scan",
        "column_data_scan",
        "dummy_scan",
        "__internal_decompress_string",
        "date_part_struct",
    ]
)


def names_in_plan(item: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind and the name, as a path, of each table and function in a serialized plan."""
    if isinstance(item, list):
        for each in item:
            yield from names_in_plan(each)
    elif isinstance(item, dict):
        data = item.get("function_data")
        if item.get("type") == "LOGICAL_GET":
            if isinstance(data, dict) and "table" in data:
                yield "table", [data["catalog"], data["schema"], data["table"]]
            else:
                yield "table function", item.get("qname", {}).get("path", [""])
        elif item.get("expression_class") in ("BOUND_FUNCTION", "BOUND_AGGREGATE", "BOUND_WINDOW"):
            name = str(item.get("name") or item.get("qname", {}).get("path", [""])[-1])
            # Skip operators, whose names are symbols.
            if re.fullmatch(r"\w+", name):
                yield "function", [name]
        for value in item.values():
            yield from names_in_plan(value)


def with_constants(connection: Any, sql: str, values: list[Any]) -> str:
    """Return the query that DuckDB parses, with constants instead of parameters: it serializes no plan with these."""

    def put(item: Any) -> Any:
        if isinstance(item, list):
            return [put(each) for each in item]
        if not isinstance(item, dict):
            return item
        if item.get("class") != "PARAMETER":
            return {name: put(value) for name, value in item.items()}
        value = values[int(item["identifier"]) - 1]
        kind = "INTEGER" if type(value) is int else "NULL" if value is None else "STRING"
        return item | {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": kind, "text": str(value)}}

    ((tree,),) = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchall()
    statements = put(json.loads(tree))
    for statement in statements["statements"]:
        statement["named_param_map"] = []
    ((text,),) = connection.execute("SELECT json_deserialize_sql($1)", [json.dumps(statements)]).fetchall()
    return str(text)


def test_duckdb_plans_nothing_that_the_guard_did_not_see(duckdb_driver: DuckdbDriver) -> None:
    driver, hidden = duckdb_driver, duckdb_driver._hidden["shop"]
    functions = allowed_functions("duckdb") | DUCKDB_OWN
    tables = allowed_functions("duckdb_tables") | DUCKDB_OWN

    def plan(checked: CheckedQuery) -> list[tuple[str, list[str]]] | None:
        checked_sql = sql = re.sub(r"^EXPLAIN (?:ANALYZE )?", "", checked.sql)
        values = list(checked.params) or None
        with driver._enumerations(checked):
            if values:
                driver._connection.execute(f"EXPLAIN {sql}", values)
                sql = with_constants(driver._connection, sql, values)
            query = "SELECT json_serialize_plan($1, optimize := false)"
            ((text,),) = driver._connection.execute(query, [sql]).fetchall()
        # DuckDB serializes a plan with a BIT constant as NULL.
        tree = json.loads(text or '{"error": true}')
        if not tree.get("error"):
            return list(names_in_plan(tree))
        try:  # SHOW and the like have no such plan: check the tables in the plan of EXPLAIN
            with driver._enumerations(checked):
                ((_, text),) = driver._connection.execute(f"EXPLAIN (FORMAT JSON) {checked_sql}", values).fetchall()
        except duckdb.Error:
            return None
        return [("table", t.split(".")) for t in re.findall(r'"Table": "([^"]*)"', text)]

    def compare(checked: CheckedQuery) -> bool:
        assert set(checked.tables) <= {"ok"}
        try:
            found = plan(checked)
        except duckdb.Error:
            return False  # DuckDB cannot bind it, so it cannot run
        for kind, path in found or ():
            if kind == "table":
                assert path == [hidden, "main", "ok"], path
                assert checked.tables == ("ok",)
            else:
                # SHOW and DESCRIBE read the catalog of the granted tables by an internal query of DuckDB.
                own = (
                    DUCKDB_SHOW if re.search(r"(?i)\b(?:show|desc|describe|summarize)\b", checked.sql) else frozenset()
                )
                assert path[-1].lower() in (functions if kind == "function" else tables) | own, (kind, path)
        for _, values in checked.enums:
            compare(driver.check(values))
        return found is not None

    fuzz_guard("duckdb", DUCKDB_PIECES, driver.check, compare)


# -- Postgres: the parse tree of the prepared query


POSTGRES_PIECES = [
    ".pg_read_file",
    ".peek_at",
    ".pg_sleep",
    "(o).peek_at",
    "('/etc/passwd'::text)",
    "::regclass",
    "::telling",
]
POSTGRES_PIECES += ["pg_sleep(1)", "pg_read_file('x')", "query_to_xml('select 1', true, true, '')", "<=@", "erfc('x')"]
POSTGRES_PIECES += [
    "::string",
    "RETURNING telling",
    ".erfc",
    "::image[]",
    "AS x(a telling)",
    "OPERATOR(public.<=@)",
    "current_user",
    "nextval('counter')",
]
POSTGRES_PIECES += [
    "pg_catalog.pg_class",
    "information_schema.tables",
    '."peek_at"',
    "ts_stat",
    "&",
    "U&",
    "E'\\'",
    "(home)",
]
POSTGRES_PIECES += [
    "(home).street",
    "o.peek_at",
    "orders.peek_at",
    "[1].pg_read_file",
    "unnest(ARRAY['x']) AS x",
    "x.peek_at",
]


@pytest.fixture
def postgres_admin(postgres_shop: Shop) -> Iterator[Any]:
    with psycopg.connect(postgres_shop.url) as admin:
        yield admin


# Functions that Postgres's grammar writes for other syntax.
POSTGRES_OWN = frozenset(
    [
        "btrim",
        "ltrim",
        "rtrim",
        "date_part",
        "like_escape",
        "similar_to_escape",
        "similar_escape",
        "is_normalized",
        "pg_collation_for",
        "xmlexists",
        "array_subscript_handler",
        "int4",
        "varchar",
        "bpchar",
        "numeric",
        "timestamptz",
        "timestamp",
        "text",
        "timezone",
        "extract",
        "overlaps",
        "position",
        "substring",
        "overlay",
        "bool_and",
        "bool_or",
        "json_object",
        "json_array",
        "jsonb_agg_finalfn",
    ]
)


def test_postgres_parses_nothing_that_the_guard_did_not_see(postgres_shop: Shop, postgres_admin: Any) -> None:
    admin, driver = postgres_admin, postgres_shop.driver
    names = {oid: (schema, name) for oid, schema, name in admin.execute(
        "SELECT p.oid::int, nspname, proname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace"
    )}  # fmt: skip
    shown = {oid: r.shown for oid, r in driver._known().relations.items()}  # type: ignore[attr-defined]
    functions = allowed_functions("postgres") | allowed_functions("postgres_tables") | POSTGRES_OWN
    ours = {oid for oid, (schema, _) in names.items() if schema == "pg_catalog"}

    # The server prints the tree of every statement that it parses.
    printed: list[str] = []
    admin.add_notice_handler(lambda notice: printed.append(notice.message_detail or ""))
    admin.execute("SET debug_print_parse = on; SET debug_pretty_print = off; SET client_min_messages = log")
    admin.commit()
    types = Transformer(admin)

    def tree(checked: CheckedQuery) -> str | None:
        """Return the tree of a statement, None if the server cannot parse it; it does not run."""
        printed.clear()
        types.dump_sequence(checked.params, [PyFormat.AUTO] * len(checked.params))
        sql = checked.sql.removeprefix("EXPLAIN ").encode()
        if admin.pgconn.prepare(b"", sql, types.types).status != ExecStatus.COMMAND_OK:
            return None
        (text,) = printed
        return text

    def compare(checked: CheckedQuery) -> bool:
        assert set(checked.tables) <= {*GRANTED, "sales.regions"}
        text = tree(checked)
        if text is None:
            return False
        relations = {int(n) for n in re.findall(r":relid (\d+)", text)} - {0}
        assert {shown.get(n, n) for n in relations} <= set(checked.tables), relations
        for called, form in re.findall(r"\{FUNCEXPR :funcid (\d+) .*?:funcformat (\d)", text):
            assert int(called) in ours, names[int(called)]
            assert form in "12" or names[int(called)][1] in functions, names[int(called)]
        for called in re.findall(r":(?:aggfnoid|winfnoid) (\d+)", text):
            assert int(called) in ours, names[int(called)]
            assert names[int(called)][1] in functions, names[int(called)]
        assert {int(n) for n in re.findall(r":opfuncid (\d+)", text)} - {0} <= ours
        assert "{COERCETODOMAIN" not in text
        assert not {int(n) for n in re.findall(r":(?:consttype|resulttype) (\d+)", text)} & {24, 2202, 2203, 2204, 2205}
        assert ":commandType 1" in text and not re.search(r":commandType [2-6]", text)
        assert "{ROWMARKCLAUSE" not in text
        return True

    fuzz_guard("postgres", POSTGRES_PIECES, driver.check, compare)


# -- MySQL: a user who may read only the granted tables, and the query as the server prints it


MYSQL_PIECES = [
    "bin_to_uuid(1)",
    "var_samp ()",
    "load_file('x')",
    "sleep(1)",
    "@x := 1",
    "@@version",
    "INTO OUTFILE 'x'",
]
MYSQL_PIECES += [
    "mysql.user",
    "information_schema.tables",
    "/*!50000 , secret */",
    "/*M!100000 secret */",
    "#\n",
    "-- \n",
]
MYSQL_PIECES += [
    "_utf8'x'",
    "N'x'",
    "x'41'",
    "'\\'",
    "'a' 'b'",
    "PROCEDURE ANALYSE()",
    "NEXT VALUE FOR counter",
    "counter",
]
MYSQL_PIECES += ["benchmark(1, 1)", "get_lock('x', 1)", "user()", "secret PARTITION (p)", "{oj secret}", "`se`", "\\N"]


def test_mysql_plans_nothing_that_the_guard_did_not_see(mysql_shop: Shop) -> None:
    database = mysql_shop.url.rpartition("/")[2]
    reader = f"reader_{random.randrange(1 << 30)}"
    run_mysql(mysql_shop.url, f"CREATE USER '{reader}'@'%' IDENTIFIED BY 'p'")
    for table in GRANTED[:-1]:
        run_mysql(mysql_shop.url, f"GRANT SELECT, SHOW VIEW ON `{database}`.`{table}` TO '{reader}'@'%'")
    root = connect_mysql(mysql_shop.url)
    given = {"host": root.host, "port": root.port, "user": reader, "password": "p", "database": database}
    connection = pymysql.connect(**given, autocommit=True, charset="utf8mb4")
    functions = allowed_functions("mysql") | allowed_functions("mysql_tables")
    denied = {1142, 1143, 1370, 1044, 1227, 1045, 1290, 1356}
    behind = {"rich": {"customers"}}

    @cache
    def may_call(name: str) -> bool:
        """Return whether a query can call a function of this name; some exist only in printed queries."""
        with root.cursor() as cursor:
            try:
                cursor.execute(f"SELECT {name}()")
            except pymysql.Error as error:
                return bool(error.args[0] != 1305)
        return True

    def compare(checked: CheckedQuery) -> bool:
        assert set(checked.tables) <= set(GRANTED)
        sql = re.sub(r"^EXPLAIN (?:FORMAT ?= ?JSON )?", "", checked.sql)
        with connection.cursor() as cursor:
            try:
                if checked.params:
                    values = ", ".join(map(_variable, checked.params))
                    cursor.execute(f"EXECUTE IMMEDIATE {_variable(f'EXPLAIN EXTENDED {sql}')} USING {values}")
                else:
                    cursor.execute(f"EXPLAIN EXTENDED {sql}".encode())
                cursor.execute("SHOW WARNINGS")
            except pymysql.Error as error:
                # The server also reports a missing privilege for a function that does not exist.
                missing = error.args[0] == 1370 and not re.search(
                    r"\.(?:peek|wipe\w*|bin_to_uuid|var_samp)'", str(error)
                )
                assert missing or error.args[0] not in denied, error
                return False
            printed = " ".join(str(row[2]) for row in cursor.fetchall() if row[1] == 1003)
        # Remove string literals and unusual names, which may contain anything.
        quoted = r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`"
        plain = re.sub(quoted, lambda m: m.group() if re.fullmatch(r"`\w+`", m.group()) else "''", printed)
        read = set(re.findall(rf"`{database}`\.`(\w+)`(?!\.)", plain))
        seen = set(checked.tables).union(*(behind.get(t, set()) for t in checked.tables))
        assert read & {"secret", "keys_", "counter", *GRANTED} <= seen, (read, plain)
        assert not re.search(r"`\w+`\.`\w+`\(", plain), plain
        # A common table expression with a list of columns looks like a function call.
        plain = re.sub(r"(?<![`\w.])\w+\((?:`[^`]*`,?)+\) as \(", "as (", plain)
        for name in re.findall(r"(?<![`\w.])(\w+)\(", plain):
            assert name.lower() in functions | MYSQL_OWN or not may_call(name), (name, plain)
        return True

    try:
        fuzz_guard("mysql", MYSQL_PIECES, mysql_shop.driver.check, compare)
    finally:
        connection.close()
        root.close()


# Names that the server prints instead of operators and other names.
MYSQL_OWN = frozenset(
    [
        "in",
        "and",
        "or",
        "not",
        "exists",
        "from",
        "select",
        "where",
        "as",
        "on",
        "by",
        "over",
        "cast",
        "convert",
        "union",
        "all",
        "any",
        "if",
        "case",
        "when",
        "then",
        "else",
        "like",
        "values",
        "int",
        "bigint",
        "smallint",
        "tinyint",
        "varchar",
        "text",
        "year",
        "decimal",
        "group_concat",
        "count",
        "min",
        "max",
        "sum",
        "avg",
        "<cache>",
        "decimal",
        "char",
        "binary",
        "signed",
        "unsigned",
        "datetime",
        "time",
        "date",
        "double",
        "float",
        "concat_operator_oracle",
        "substr",
        "substring",
        "ucase",
        "lcase",
        "timestampadd",
        "last_value",
        "json_table",
        "columns",
        "path",
        "interval",
        "ifnull",
        "isnull",
        "xor",
        "distinct",
        "join",
        "curdate",
        "curtime",
        "weekday",
        "to_days",
        "unix_timestamp",
        "sysdate",
        "date_format",
        "dayname",
        "order",
        "having",
        "limit",
        "partition",
        "between",
        "regexp",
        "rlike",
        "using",
        "match",
        "against",
        "set_user_var",
        "locate",
        "ord",
        "truncate",
        "cache",
        "expr_cache",
        "materialize",
        "max_min",
        "index_lookup",
        "primary_index_lookup",
        "straight_join",
        "semi",
        "anti",
        "left",
        "right",
        "inner",
        "with",
        "recursive",
        "except",
        "intersect",
        "precision",
        "extract",
        "mod",
        "div",
        "json",
        "escape",
        "is",
        "separator",
        "rows",
        "range",
        "preceding",
    ]
)


# -- SQLite: its own authorizer


SQLITE_PIECES = [
    "pragma_table_info('secret')",
    "sqlite_master",
    "dbstat",
    "load_extension('x')",
    "docs_content",
    "main.secret",
]
SQLITE_PIECES += [
    "temp.secret",
    "json_each('[1]')",
    "fts3tokenize('x')",
    "MATCH 'x'",
    "[secret]",
    "`secret`",
    "readfile('x')",
]
SQLITE_PIECES += [
    "sqlite_schema",
    "bytecode('x')",
    "rowid",
    "INDEXED BY x",
    "NOT INDEXED",
    "randomblob(2)",
    '"x"',
    "X'41'",
]


def test_sqlite_authorizes_nothing_that_the_guard_did_not_see(sqlite_shop: Shop) -> None:
    driver = sqlite_shop.driver
    assert isinstance(driver, SqliteDriver)
    granted = driver._known().granted
    functions = allowed_functions("sqlite")
    plain = sqlite3.connect(f"file:{sqlite_shop.url}?mode=ro", uri=True)
    plain.execute("SELECT * FROM docs, json_each('[]'), json_tree('[]')").fetchall()
    present = {n.lower() for (n,) in plain.execute("SELECT name FROM sqlite_master")} | {
        "sqlite_master",
        "sqlite_schema",
    }
    reads: list[tuple[int, str, str, str]] = []

    def record(action: int, first: str | None, second: str | None, _: str | None, context: str | None) -> int:
        reads.append((action, (first or "").lower(), (second or "").lower(), (context or "").lower()))
        return sqlite3.SQLITE_OK

    def compare(checked: CheckedQuery) -> bool:
        reads.clear()
        plain.set_authorizer(record)
        try:
            sql = re.sub(r"^EXPLAIN (?:QUERY PLAN )?", "", checked.sql)
            plain.execute(f"EXPLAIN {sql}", [_bindable(value) for value in checked.params]).close()
        except sqlite3.Error:
            return False
        finally:
            plain.set_authorizer(None)
        tables = {t.lower() for t in checked.tables} | allowed_functions("sqlite_tables")
        for action, first, second, context in reads:
            if action == sqlite3.SQLITE_READ:
                # A granted view may read its own tables; a name that is not a table is a common table expression.
                inside = context == "rich" and "rich" in tables and first == "customers"
                shadow = first.startswith("docs_") and "docs" in tables
                assert first in tables or inside or shadow or (first not in present and not second), (first, second)
            elif action == sqlite3.SQLITE_FUNCTION:
                assert second in functions, second
            elif action == sqlite3.SQLITE_PRAGMA:
                assert (first, second) == ("data_version", ""), (first, second)
            else:
                assert action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE), action
        return True

    try:
        fuzz_guard("sqlite", SQLITE_PIECES, lambda sql, params: check_sql(sql, "sqlite", granted, params), compare)
    finally:
        plain.close()
