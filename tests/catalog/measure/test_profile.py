"""A profile tells what plain SQL tells: in every engine, by every plan, for every kind of value."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import etude
from etude.app import App
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import TableProfile, from_json, to_json
from etude.db import Database
from etude.entities import Catalog, Limits
from etude.errors import LimitExceeded, NotFound
from etude.result import Result

from ..conftest import run_mysql
from ..plain import check_table

Make = Callable[..., etude.Connection]

PLANS: dict[str, dict[str, int]] = {
    "read whole": {},
    "by columns": {"small_rows": -1},
    "sampled": {"small_rows": -1, "exact_rows": 0},
}
plans = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())

# Every engine understands this; `@...@` is the engine's own word.
ZOO = """
CREATE TABLE zoo (id INTEGER PRIMARY KEY, small SMALLINT, price DECIMAL(12,2), weight @DOUBLE@, name VARCHAR(200),
    born DATE, seen @STAMP@, empty_text VARCHAR(10), missing INTEGER, "select" INTEGER, "a ""b"" c" VARCHAR(10),
    "naïve 🙂" INTEGER, same INTEGER, raw @BYTES@);
"""


def _zoo_rows(count: int = 300) -> list[tuple[Any, ...]]:
    names = ["Ann", "ann", "ANN ", "", "Zoë", "🙂 smile", "O'Hara", "back\\slash", 'quo"te', "long " * 30]
    rows = []
    for i in range(count):
        rows.append(
            (
                i - 20,
                (i * 7) % 40 - 5,
                None if i % 11 == 0 else f"{(i * 37) % 900}.{i % 100:02}",
                None if i % 13 == 0 else (i * i % 97) / 7 - 3,
                None if i % 17 == 0 else names[i % len(names)],
                None if i % 19 == 0 else f"20{i % 25:02}-{i % 12 + 1:02}-{i % 28 + 1:02}",
                f"2024-01-{i % 28 + 1:02} {i % 24:02}:{i % 60:02}:00",
                "",
                None,
                i % 3,
                str(i % 5),
                -(i % 4),
                7,
                None if i % 5 == 0 else bytes([i % 256, 0, 255]),
            )
        )
    return rows


def _zoo_sql(engine: str) -> str:
    own = {
        "duckdb": {"DOUBLE": "DOUBLE", "STAMP": "TIMESTAMP", "BYTES": "BLOB"},
        "sqlite": {"DOUBLE": "REAL", "STAMP": "TIMESTAMP", "BYTES": "BLOB"},
        "postgres": {"DOUBLE": "DOUBLE PRECISION", "STAMP": "TIMESTAMP", "BYTES": "BYTEA"},
        "mysql": {"DOUBLE": "DOUBLE", "STAMP": "DATETIME", "BYTES": "BLOB"},
    }[engine]
    text = ZOO
    for word, meaning in own.items():
        text = text.replace(f"@{word}@", meaning)
    if engine == "mysql":
        text = (
            text.replace('"a ""b"" c"', '`a "b" c`')
            .replace('"', "`")
            .replace("`a `b` c`", '`a "b" c`')
            .replace(" 🙂`", "`")
        )
    return text


@pytest.fixture(scope="module")
def zoos(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Callable[[], str],
    mariadb_server: Callable[[], str],
) -> dict[str, str]:
    """The same table in four engines, by URL."""
    folder = tmp_path_factory.mktemp("zoo")
    rows = _zoo_rows()
    marks = ", ".join("?" * len(rows[0]))
    with duckdb.connect(folder / "zoo.duckdb") as db:
        db.execute(_zoo_sql("duckdb"))
        db.executemany(f"INSERT INTO zoo VALUES ({marks})", rows)
    with sqlite3.connect(folder / "zoo.sqlite") as lite:
        lite.execute(_zoo_sql("sqlite"))
        lite.executemany(f"INSERT INTO zoo VALUES ({marks})", rows)
    lite.close()
    postgres = postgres_server()
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(_zoo_sql("postgres").encode())
        with server.cursor() as cursor:
            cursor.executemany(f"INSERT INTO zoo VALUES ({marks.replace('?', '%s')})".encode(), rows)
    mysql = mariadb_server()
    run_mysql(mysql, _zoo_sql("mysql"))
    from ..conftest import SOURCES

    with SOURCES.connect_mysql(mysql) as server, server.cursor() as cursor:
        cursor.executemany(f"INSERT INTO zoo VALUES ({marks.replace('?', '%s')})", rows)
        server.commit()
        # Otherwise the server counts the table's pages by itself some seconds later, maybe between two profiles.
        cursor.execute("ANALYZE TABLE zoo")
    return {
        "duckdb": str(folder / "zoo.duckdb"),
        "sqlite": str(folder / "zoo.sqlite"),
        "postgres": postgres,
        "mysql": mysql,
    }


@plans
@pytest.mark.parametrize("engine", ["duckdb", "sqlite", "postgres", "mysql"])
def test_each_engine_by_each_plan(app: App, zoos: dict[str, str], engine: str, plan: dict[str, int]) -> None:
    db = etude.connect(zoos[engine], app=app)
    profile = profile_source(db, **plan)
    assert profile.dialect == engine
    check_table(lambda sql: db.sql(sql, record=False).rows(), engine, profile.tables[0])
    assert to_json(profile_source(db, **plan)) == to_json(profile)
    assert from_json(to_json(profile)) == profile.model_copy(update={"made_at": None})


def test_the_plans_agree(app: App, zoos: dict[str, str]) -> None:
    for url in zoos.values():
        db = etude.connect(url, app=app)
        whole, parts = (profile_source(db, **PLANS[plan]).tables[0] for plan in ("read whole", "by columns"))
        for one, other in zip(whole.columns, parts.columns, strict=True):
            how = {"provenance", "histogram", "typical_gap_s", "patterns"}
            assert one.model_dump(exclude=how) == other.model_dump(exclude=how)
        assert whole.keys == parts.keys and whole.freshness is not None and parts.freshness is not None
        assert whole.freshness.newest == parts.freshness.newest


@plans
def test_values_that_only_postgres_has(app: App, postgres_url: str, plan: dict[str, int]) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(
            """CREATE TYPE mood AS ENUM ('sad', 'ok');
            CREATE TABLE odd AS SELECT i AS id, CASE WHEN i % 7 = 0 THEN 'NaN' ELSE i + 0.5 END::numeric AS n,
            CASE WHEN i % 9 = 0 THEN 'infinity' ELSE timestamp '2024-01-01' + i * interval '1 hour' END AS t,
            '{"a": 1}'::jsonb AS j, ARRAY[i % 2, 3] AS a, (ARRAY['sad', 'ok']::mood[])[i % 2 + 1] AS m,
            int4range(1, i + 2) AS r, '10.0.0.1'::inet AS ip, (i % 5)::real / 10 AS f FROM generate_series(1, 90) i;
            CREATE VIEW seen AS SELECT id, m FROM odd"""
        )
    profile = profile_source(etude.connect(postgres_url, app=app), **plan)
    odd, seen = profile.tables
    assert not odd.error and not seen.error and seen.rows == 90
    assert not [c.name for c in odd.columns if c.notes]
    n, t, f = (odd.column(name) for name in ("n", "t", "f"))
    assert n is not None and (n.nans, n.max, n.mean) == (12, "90.5", 46.0)
    assert t is not None and (t.distinct == 81 or "exact_rows" in plan)
    assert f is not None and (f.min, f.max, f.distinct) == (0.0, 0.4, 5)


NESTED = """CREATE TABLE nested AS SELECT
    range AS id,
    [range % 3, range % 2] AS list,
    {'a': range % 4, 'b': 'x'} AS struct,
    MAP {'k': range % 2} AS map,
    ('{"a":' || range % 5 || '}')::JSON AS json,
    ('\\x0' || range % 8)::BLOB AS blob,
    ('00000000-0000-0000-0000-0000000000' || lpad((range % 50)::VARCHAR, 2, '0'))::UUID AS uuid,
    to_days((range % 6)::INTEGER) AS gap,
    make_time(range % 24, 0, 0) AS clock,
    ('2020-01-01 00:00:00+00'::TIMESTAMPTZ + to_hours((range % 500)::INTEGER)) AS instant,
    (range * 10000000000000000000000000)::HUGEINT AS huge,
    (range * 1000000000000000000000000 + 0.5)::DECIMAL(38,5) AS wide,
    CASE range % 9 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE WHEN 2 THEN '-inf'::DOUBLE WHEN 3 THEN -0.0
        WHEN 4 THEN 0.0 WHEN 5 THEN NULL ELSE range / 7 END AS odd,
    'nan'::FLOAT AS only_nan,
    (range % 2 = 0) AS flag,
    (range % 3)::BIT AS bits,
    ['b', 'a', 'c'][range % 3 + 1]::ENUM('b', 'a', 'c') AS mood,
    NULL AS nothing,
    '2020-01-01'::TIMESTAMP_NS + to_minutes(range::INTEGER) AS fine
    FROM range(400)"""


@plans
def test_nested_odd_and_huge_values(make: Make, plan: dict[str, int]) -> None:
    db = make(NESTED)
    table = profile_source(db, **plan).tables[0]
    assert [c.name for c in table.columns if c.notes] == []
    check_table(lambda sql: db.sql(sql, record=False).rows(), "duckdb", _without(table, "fine", "huge", "bits"))
    odd = table.column("odd")
    assert odd is not None and (odd.nans, odd.infinities) == (45, 90)
    only_nan = table.column("only_nan")
    assert only_nan is not None and only_nan.nans == 400 and only_nan.min is None and only_nan.quantiles == ()
    huge = table.column("huge")
    assert huge is not None and number_of(huge.max) == 399 * 10**25


def number_of(value: object) -> int:
    return int(str(value))


def _without(table: TableProfile, *names: str) -> TableProfile:
    return table.model_copy(update={"columns": tuple(c for c in table.columns if c.name not in names)})


@plans
def test_tables_without_rows_and_values(make: Make, plan: dict[str, int]) -> None:
    db = make(
        "CREATE TABLE none (a INTEGER, b VARCHAR, c DATE, d DOUBLE, e INTEGER[], f DECIMAL(9,2), g BLOB, h BOOLEAN)",
        "CREATE TABLE nulls AS SELECT NULL::INTEGER a, NULL::VARCHAR b, NULL::DATE c, NULL::DOUBLE d FROM range(30)",
        "CREATE TABLE one AS SELECT 1 AS a, 'x' AS b",
    )
    profile = profile_source(db, **plan)
    for table in profile.tables:
        check_table(lambda sql: db.sql(sql, record=False).rows(), "duckdb", table)
    none, nulls, one = (profile.table(name) for name in ("none", "nulls", "one"))
    assert none is not None and none.rows == 0 and not any(c.empty or c.constant or c.unique for c in none.columns)
    assert nulls is not None and all(c.empty and not c.constant for c in nulls.columns)
    assert one is not None and all(c.constant and c.unique for c in one.columns) is (plan != PLANS["sampled"])


def test_a_table_that_fails_is_reported_and_the_rest_goes_on(make: Make) -> None:
    db = make(
        "CREATE TABLE good AS SELECT 1 AS a",
        "CREATE VIEW bad AS SELECT CAST('x' || range AS INTEGER) AS broken FROM range(3)",
        'CREATE TABLE "dot.ted" AS SELECT 2 AS b',
    )
    seen: list[tuple[int, int, str]] = []
    profile = profile_source(db, on_progress=lambda *step: seen.append(step))
    bad, good, dotted = profile.tables[0], profile.table("good"), profile.table("dot.ted")
    assert bad.plan == "failed" and "x0" in str(bad.error) and [c.name for c in bad.columns] == ["broken"]
    assert good is not None and good.error is None and dotted is not None and dotted.error is None
    assert seen == [(0, 3, "bad"), (1, 3, "dot.ted"), (2, 3, "good"), (3, 3, "keys between tables")]


class Impatient(Database):
    """A database whose statements on one column pass their time limit."""

    def __init__(self, db: Database, column: str) -> None:
        self._db, self._column = db, column

    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        if f'"{self._column}" AS v' in query:
            raise LimitExceeded("The query passed its time limit.")
        return self._db.sql(query, record=record, limits=limits, **limit)

    def catalog(self) -> Catalog:
        return self._db.catalog()


def test_a_column_that_fails_is_noted_and_its_values_are_not_shown(make: Make) -> None:
    db = make("CREATE TABLE t AS SELECT range AS id, range || '@example.org' AS contact FROM range(50)")
    table = profile_source(Impatient(db, "contact"), small_rows=-1).tables[0]
    key, contact = table.columns
    assert table.error is None and key.distinct == 50
    assert contact.notes == ("not measured: The query passed its time limit.",)
    assert contact.nulls is None and contact.distinct is None and contact.provenance.distinct is None
    assert table.samples is not None and {row[1] for row in table.samples.rows} == {None}


def test_only_the_tables_named(make: Make) -> None:
    db = make("CREATE TABLE a AS SELECT 1 x", "CREATE TABLE b AS SELECT 1 x")
    assert [t.name for t in profile_source(db, ["B"]).tables] == ["b"]
    with pytest.raises(NotFound, match="`c`"):
        profile_source(db, ["c"])


def test_the_same_data_gives_the_same_bytes(make: Make, app: App, tmp_path: Path) -> None:
    db = make(
        "SELECT setseed(0.3)",
        "CREATE TABLE floats AS SELECT random() * 1e6 - 5e5 AS a, (random() * 1e3)::FLOAT AS b, random() AS c "
        "FROM range(200000)",
    )
    first = to_json(profile_source(db))
    assert all(to_json(profile_source(db)) == first for _ in range(3))
    db.close()
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "data.duckdb", tmp_path / "copy" / "data.duckdb")
    again = etude.connect(tmp_path / "copy" / "data.duckdb", app=app)
    assert to_json(profile_source(again)) == first


def test_inside_a_session_it_is_the_same(app: App, make: Make, tmp_path: Path) -> None:
    db = make(NESTED, "CREATE TABLE more AS SELECT range AS id, 'v' || range % 9 AS v FROM range(1000)")
    outside = hashlib.sha256(to_json(profile_source(db))).hexdigest()
    with app.open_session(str(tmp_path / "data.duckdb")) as session:
        session.execute("import etude\nfrom etude.catalog.measure.profile import profile_source")
        session.execute("from etude.catalog.model import to_json\nimport hashlib")
        inside = session.execute("print(hashlib.sha256(to_json(profile_source(etude.connect()))).hexdigest())")
    assert inside.stdout.strip() == outside, inside


def test_derived_facts(make: Make) -> None:
    db = make(
        """CREATE TABLE people AS SELECT range AS id, 'p' || range || '@example.org' AS email,
        DATE '2024-01-01' + (range % 90)::INTEGER AS updated_at,
        CASE WHEN range = 5 THEN 1000000 ELSE range % 10 END AS n,
        '2023-05-' || lpad((range % 28 + 1)::VARCHAR, 2, '0') AS day_in_text FROM range(500)"""
    )
    table = profile_source(db).tables[0]
    email, n, day = table.column("email"), table.column("n"), table.column("day_in_text")
    assert email is not None and email.masked and email.pii[0].kind == "email"
    shown = to_json(profile_source(db))
    assert b"@example.org" not in shown and b"***@***.org" in shown
    assert n is not None and n.outliers is not None and (n.outliers.below, n.outliers.above) == (0, 1)
    assert day is not None and [(p.kind, p.form) for p in day.patterns] == [("date", "%Y-%m-%d")]
    assert table.freshness is not None and table.freshness.column == "updated_at"
    assert (table.freshness.newest, table.freshness.typical_gap_s) == ("2024-03-30", 86400.0)
    assert table.samples is not None and len(table.samples.rows) == 5


def test_a_sampled_table_says_so(make: Make) -> None:
    db = make("CREATE TABLE big AS SELECT range AS id, range % 7 AS few, hash(range) % 90000 AS many FROM range(60000)")
    table = profile_source(db, small_rows=0, exact_rows=1000).tables[0]
    assert table.plan == "sampled" and table.rows == 60000 and table.keys == ()
    few, many = table.column("few"), table.column("many")
    assert few is not None and few.provenance.distinct is not None and few.provenance.distinct.method == "exact"
    assert many is not None and many.provenance.distinct is not None and many.provenance.quantiles is not None
    assert many.provenance.distinct.method == "approximate" and many.provenance.quantiles.method == "sampled"
    check_table(lambda sql: db.sql(sql, record=False).rows(), "duckdb", table)


TYPES: dict[str, st.SearchStrategy[Any]] = {
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "DOUBLE": st.floats(width=64) | st.sampled_from([0.0, -0.0, 1.5, 1e300, -1e300, 5e-324]),
    "DECIMAL(38,8)": st.decimals(-(10**29), 10**29, places=8, allow_nan=False),
    "DECIMAL(9,2)": st.decimals(-9999, 9999, places=2, allow_nan=False),
    "VARCHAR": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
    | st.sampled_from(["", "🙂", "a", "A", "é", "é", " x "]),
    "BOOLEAN": st.booleans(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(),
    "TIMESTAMPTZ": st.datetimes(timezones=st.just(__import__("datetime").UTC)),
    "INTEGER[]": st.lists(st.integers(0, 3), max_size=3),
    "BLOB": st.binary(max_size=4),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=5))
    row = st.tuples(*(st.none() | TYPES[k] for k in kinds))
    return kinds, draw(st.lists(row, max_size=40))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tables(), min_size=3, max_size=6))
def test_any_table(app: App, tmp_path: Path, made: list[tuple[list[str], list[tuple[Any, ...]]]]) -> None:
    path = tmp_path / "any.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(path) as writer:
        for number, (kinds, rows) in enumerate(made):
            writer.execute(f"CREATE TABLE t{number} ({', '.join(f'c{i} {k}' for i, k in enumerate(kinds))})")
            if rows:
                writer.executemany(f"INSERT INTO t{number} VALUES ({', '.join('?' * len(kinds))})", rows)
    db = etude.connect(path, app=app)
    with duckdb.connect(path, read_only=True) as plain:
        for plan in PLANS.values():
            for table in profile_source(db, **plan).tables:
                check_table(lambda sql: plain.execute(sql).fetchall(), "duckdb", table)
