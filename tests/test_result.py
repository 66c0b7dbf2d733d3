"""Results: the same values as the engine's own client, live and read back from Parquet."""

from __future__ import annotations

import datetime as dt
import gc
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import etude
from etude import spool
from etude.app import App
from etude.cell_text import cell_to_json, cell_to_text, escape_cell_formula
from etude.entities import ResultColumn, ResultInfo
from etude.result import result_to_json


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("types")
    with duckdb.connect(folder / "types.duckdb") as db:
        db.execute("CREATE TABLE t AS FROM test_all_types()")
    return folder


@pytest.fixture(scope="module")
def app(place: Path) -> Iterator[App]:
    with App(home=place / "home") as opened:
        yield opened


@pytest.fixture(scope="module")
def db(place: Path, app: App) -> etude.Connection:
    return etude.connect(place / "types.duckdb", app=app)


@pytest.fixture(scope="module")
def plain(place: Path, db: etude.Connection) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(place / "types.duckdb", read_only=True) as connection:
        yield connection


def exact(value: Any) -> Any:
    """A form in which equal values of unequal types differ, and NaN equals NaN."""
    if isinstance(value, list | tuple):
        return type(value).__name__, [exact(v) for v in value]
    if isinstance(value, dict):
        return [(exact(k), exact(v)) for k, v in value.items()]
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return "instant", value.timestamp()
    return type(value).__name__, repr(value)


def test_every_type_of_duckdb_comes_as_its_own_client_gives_it(
    db: etude.Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    wrong = []
    for name in plain.sql("FROM t").columns:
        query = f'SELECT "{name}" FROM t'
        if exact(db.sql(query, record=False).rows()) != exact(plain.sql(query).fetchall()):
            wrong.append(name)
    assert wrong == []


def test_all_types_side_by_side_live_and_recorded(
    db: etude.Connection, app: App, plain: duckdb.DuckDBPyConnection
) -> None:
    live = db.sql("FROM t")
    assert exact(live.rows()) == exact(plain.sql("FROM t").fetchall())
    assert live.run_id is not None
    recorded = app.result(live.run_id)
    assert exact(recorded.rows()) == exact(live.rows())
    assert recorded.columns == live.columns
    assert [c.type for c in live.columns] == [str(t) for t in plain.sql("FROM t").types]


NESTED = [
    "'infinity'::DATE",
    "'-infinity'::DATE",
    "'44-03-15 (BC)'::DATE",
    "'10000-01-01'::DATE",
    "'0001-01-01'::DATE",
    "'infinity'::TIMESTAMP",
    "'-infinity'::TIMESTAMP_S",
    "'infinity'::TIMESTAMP_S",
    "'infinity'::TIMESTAMP_MS",
    "'infinity'::TIMESTAMP_NS",
    "'-infinity'::TIMESTAMPTZ",
    "'2024-05-06 07:08:09'::TIMESTAMP_S",
    "'1969-12-31 23:59:59.999999'::TIMESTAMP",
    "'44-03-15 (BC) 12:30:00.5'::TIMESTAMP",
    "'44-03-15 (BC) 12:30:00.5+00'::TIMESTAMPTZ",
    "'10000-01-01 00:00:00.1'::TIMESTAMP",
    "'2024-03-31 02:30:00+02'::TIMESTAMPTZ",
    "'24:00:00'::TIME",
    "'23:59:59.999999'::TIME",
    "INTERVAL '-1 month' + INTERVAL '1.000001 second'",
    "to_microseconds(9007199254740993)",
    "to_microseconds(-1)",
    "170141183460469231731687303715884105727::HUGEINT",
    "340282366920938463463374607431768211455::UHUGEINT",
    "123456789012345678901234567890123456789012345678901234567890::BIGNUM",
    "'0101'::BIT",
    "'12:00:00.5+05:30'::TIMETZ",
    "'00000000-0000-0000-0000-00000000002a'::UUID",
    "0.000000000000000000000000000000000001::DECIMAL(38,36)",
    "'a'::ENUM('a', 'b, (c')",
    "{'a b': 1, 'c\"d': '00000000-0000-0000-0000-00000000002a'::UUID}",
    "MAP {'k': MAP {1: INTERVAL 1 DAY}}",
    "MAP {[1]: 'a'}",
    "row(1, 'x', row(2))",
    "'\\x00\\xff'::BLOB",
    "NULL",
    "'nan'::DOUBLE",
]


@pytest.mark.parametrize("shape", ["{}", "[{}, NULL]", "{{'k': {}}}", "MAP {{'k': {}}}", "array_value({}, NULL)"])
def test_values_at_the_edges_nest(shape: str, db: etude.Connection, app: App, plain: duckdb.DuckDBPyConnection) -> None:
    items = ", ".join(f"{shape.format(e)} AS x{i}" for i, e in enumerate(NESTED))
    query = f"SELECT {items} UNION ALL SELECT {', '.join(['NULL'] * len(NESTED))}"
    live = db.sql(query)
    expected = plain.sql(query).fetchall()
    for i, expression in enumerate(NESTED):
        assert exact([r[i] for r in live.rows()]) == exact([r[i] for r in expected]), expression
    assert live.run_id is not None
    assert exact(app.result(live.run_id).rows()) == exact(live.rows())


def test_nested_values_keep_their_places_across_batches(
    db: etude.Connection, app: App, plain: duckdb.DuckDBPyConnection
) -> None:
    query = """SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE [i, NULL, -i] END AS list,
        MAP {i: to_days(i::INTEGER % 900)} AS days, array_value(i, i + 1) AS pair
        FROM range(70000) r(i) ORDER BY i"""
    live = db.sql(query)
    assert live.rows() == plain.sql(query).fetchall()
    assert live.run_id is not None
    assert app.result(live.run_id).rows() == live.rows()
    batch = live.arrow().combine_chunks().slice(3, 5)
    assert etude.Result(live.info, batch.to_batches()).rows() == live.rows()[3:8]


UNION = "UNION(n BIGINT, s VARCHAR[])"


def test_a_union_gives_the_member_in_use(db: etude.Connection, app: App, plain: duckdb.DuckDBPyConnection) -> None:
    query = f"""SELECT CASE WHEN i % 3 = 0 THEN NULL WHEN i % 3 = 1 THEN union_value(n := i)::{UNION}
        ELSE union_value(s := [i::VARCHAR])::{UNION} END AS u FROM range(70000) r(i) ORDER BY i"""
    live = db.sql(query)
    assert live.rows() == plain.sql(query).fetchall()
    assert live.run_id is not None
    assert app.result(live.run_id).rows() == live.rows()


@pytest.mark.parametrize("shape", ["[{}]", "{{'k': {}}}", "MAP {{'k': {}}}", "{{'k': [{}]}}"])
def test_a_union_within_another_type_comes_as_text(shape: str, db: etude.Connection) -> None:
    query = "SELECT {} AS x FROM range(100000) r(i) WHERE i = 1"
    union, text = shape.format(f"union_value(n := i)::{UNION}"), shape.format("i::VARCHAR")
    assert db.sql(query.format(union)).rows() == db.sql(query.format(text)).rows()


def test_an_interval_that_python_cannot_hold_comes_as_text(db: etude.Connection) -> None:
    assert db.sql("SELECT INTERVAL '10000000 years' AS x", record=False).rows() == [("P120000000M0DT0.000000S",)]


def test_an_empty_result_keeps_its_columns(db: etude.Connection, app: App) -> None:
    live = db.sql("SELECT 1 AS a, 'x' AS b WHERE false")
    assert live.run_id is not None
    for result in (live, app.result(live.run_id)):
        assert result.rows() == []
        assert result.arrow().schema.names == ["a", "b"]
        assert list(result.df().columns) == ["a", "b"]


def test_a_result_in_an_object_store_without_files_reads_the_same(place: Path, tmp_path: Path) -> None:
    with App(home=tmp_path, objects="memory://") as app:
        for query in ("FROM t", "FROM t LIMIT 0"):
            live = app.sql(str(place / "types.duckdb"), query)
            assert live.run_id is not None
            recorded = app.result(live.run_id)
            assert exact(recorded.rows()) == exact(live.rows())
            assert recorded.arrow().schema.names == live.arrow().schema.names


def test_two_columns_of_one_name_stay_two(db: etude.Connection) -> None:
    result = db.sql("SELECT 1 AS a, 2 AS a")
    assert [c.name for c in result.columns] == ["a", "a"]
    assert result.rows() == [(1, 2)]


def test_the_forms_of_a_result(db: etude.Connection) -> None:
    result = db.sql("SELECT i::INTEGER AS i, 'n' || i AS name FROM range(3) r(i) ORDER BY i")
    assert result.arrow().to_pydict() == {"i": [0, 1, 2], "name": ["n0", "n1", "n2"]}
    assert result.df()["i"].sum() == 3
    assert list(result.iter_rows()) == result.rows()
    assert repr(result).splitlines()[0].split() == ["i", "name"] and repr(result).endswith("3 rows")
    assert result.sql.startswith("SELECT") and result.notes == ()


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (1.5, 1.5),
        (True, True),
        (None, None),
        (2**63, 2**63),
        (Decimal("1.10"), 1.1),
        (Decimal("12345678901234567890.123"), "12345678901234567890.123"),
        (Decimal("12345678901234567890"), 12345678901234567890),
        (Decimal("NaN"), "NaN"),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), "2024-02-29T12:00:00+00:00"),
        (dt.time(12, 30), "12:30:00"),
        (dt.timedelta(days=1, seconds=1), "1 day 00:00:01"),
        (dt.timedelta(days=-1, seconds=1), "-23:59:59"),
        (b"\x00\xff", "00ff"),
        (UUID(int=42), "00000000-0000-0000-0000-00000000002a"),
        ({1: [dt.date(2024, 1, 1), (math.nan,)]}, {"1": ["2024-01-01", ["nan"]]}),
    ],
)
def test_json_carries_every_cell(value: Any, form: Any) -> None:
    assert cell_to_json(value) == form
    json.dumps(cell_to_json(value), allow_nan=False)


def test_the_json_form_of_a_result_is_strict_json(db: etude.Connection) -> None:
    body = result_to_json(db.sql("FROM t"))
    again = json.loads(json.dumps(body, allow_nan=False))
    assert again["row_count"] == 3 and len(again["rows"]) == 3
    assert again["columns"][0] == {"name": "bool", "type": "BOOLEAN"}
    assert again["truncated"] is False and again["run_id"].startswith("run_")


def test_a_large_result_waits_in_a_file_that_goes_with_it(db: etude.Connection, app: App, place: Path) -> None:
    scratch = place / "home" / "scratch"
    rows = spool.MEMORY // 8 + 1_000_000
    result = db.sql(f"SELECT i FROM range({rows}) r(i)", rows=0, bytes=0)
    assert len(list(scratch.glob("*/result.parquet"))) == 1
    assert result.row_count == rows
    expected = 0
    for batch in result.batches():
        assert batch.column(0)[0].as_py() == expected
        expected += batch.num_rows
    assert expected == rows
    assert result.run_id is not None
    assert app.result(result.run_id).arrow().num_rows == rows
    del result
    gc.collect()
    assert list(scratch.iterdir()) == []


def test_a_large_result_that_fails_leaves_no_file(db: etude.Connection, place: Path) -> None:
    last = spool.MEMORY // 8 + 1_000_000
    query = f"SELECT CASE WHEN i = {last} THEN ('late' || i)::BIGINT ELSE i END AS i FROM range({last} + 1) r(i)"
    with pytest.raises(etude.errors.EtudeError, match="late"):
        db.sql(query, rows=0, bytes=0)
    gc.collect()
    assert list((place / "home" / "scratch").iterdir()) == []


def test_equal_results_give_equal_bytes(db: etude.Connection, app: App, tmp_path: Path) -> None:
    query = "SELECT i, 'name ' || i % 97 AS name, to_days(i::INTEGER % 5) AS d FROM range(300000) r(i) ORDER BY i"
    first, second = db.sql(query), db.sql(query)
    hashes = [app.store.run(str(r.run_id)).result_artifact for r in (first, second)]
    assert hashes[0] is not None and hashes[0] == hashes[1]

    table = first.arrow()
    written = []
    for size in (1_000, 77_777, 300_000):
        held = spool.Spool(tmp_path)
        held.take(table.combine_chunks().to_batches(max_chunksize=size))
        written.append(held.parquet())
    assert written[0] == written[1] == written[2]


def test_a_spool_in_a_file_has_the_bytes_of_one_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = pa.table({"a": range(400_000)}).to_batches(max_chunksize=10_000)
    in_memory, in_file = spool.Spool(tmp_path), spool.Spool(tmp_path)
    in_memory.take(batches)
    monkeypatch.setattr(spool, "MEMORY", 100_000)
    in_file.take(batches)
    assert in_memory.path is None and in_file.path is not None
    assert in_file.path.read_bytes() == in_memory.parquet()
    in_file.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_preview_is_short_and_says_so(db: etude.Connection) -> None:
    result = db.sql("SELECT i, '<b>' || i AS t, chr(27) AS c FROM range(25) r(i)")
    assert repr(result).splitlines()[-1] == "25 rows, the first 10 shown"
    assert "\\x1b" in repr(result) and "\x1b" not in repr(result)
    assert "&lt;b&gt;9" in result._repr_html_() and "<b>" not in result._repr_html_()
    assert "; 30 columns, the first 20 shown" in repr(db.sql(f"SELECT {', '.join(map(str, range(30)))}"))
    assert repr(db.sql("SELECT NULL AS a")) == "a\n----\nnull\n1 row"


def test_rows_are_fetched_once_and_iterated_again(db: etude.Connection) -> None:
    result = db.sql("SELECT i FROM range(5) r(i)")
    assert (result.fetchone(), result.fetchmany(2), result.fetchall()) == ((0,), [(1,), (2,)], [(3,), (4,)])
    assert result.fetchone() is None and result.fetchall() == []
    assert [i for (i,) in result] == [i for (i,) in result] == [0, 1, 2, 3, 4]
    assert len(db.sql("SELECT 1 WHERE 1 = 0")) == 0 and db.sql("SELECT 1 WHERE 1 = 0")


def test_other_libraries_read_a_result_as_arrow(db: etude.Connection) -> None:
    large = db.sql("SELECT i, md5(i::VARCHAR) AS t FROM range(400000) r(i)")
    assert large.path is not None
    assert pa.table(large).num_rows == 400_000
    assert duckdb.from_arrow(large.arrow()).sum("i").fetchall() == [(400_000 * 399_999 // 2,)]


def test_polars_reads_a_result_or_a_hint_says_how(db: etude.Connection) -> None:
    try:
        import polars  # noqa: F401
    except ImportError:
        with pytest.raises(etude.errors.Unavailable) as caught:
            db.sql("SELECT 1 AS a").pl()
        assert caught.value.hint == "pip install polars"
    else:
        assert db.sql("SELECT 1 AS a").pl().shape == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        " =1+1",
        "\t\n=1",
        "\0=1",
        "\ufeff=1",
        "\xa0\u200b@x",
        "\uff1d1+1",
        "\uff0bx",
        "\uff0dx",
        " \uff20x",
        "\tx",
        "\nx",
    ],
)
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert escape_cell_formula(text) == f"'{text}"


@pytest.mark.parametrize("value", ["", "plain", " plain", "a=b", "-5", " +1.5e3", "\ufeffname", "a-b", -5, None])
def test_other_values_get_no_apostrophe(value: Any) -> None:
    assert escape_cell_formula(value) == value


EXACT = [
    "1::TINYINT", "9007199254740993::BIGINT", "18446744073709551615::UBIGINT", "true", "0.1::FLOAT", "0.1::DOUBLE",
    "DATE '2024-02-29'", "DATE '0044-03-15'", "TIMESTAMP '2024-02-29 12:00:00.123456'", "TIME '12:30:00'",
    "'2024-02-29 12:00:00.123456789'::TIMESTAMP_NS", "INTERVAL '3 hours'",
    "'a'", "{'a': 1}", "MAP {'a': 1}", "MAP {}", "'00000000-0000-0000-0000-00000000002a'::UUID", "'a'::ENUM('a', 'b')",
]  # fmt: skip


@pytest.mark.parametrize("ending", ["", " UNION ALL SELECT NULL"], ids=["values", "with nulls"])
@pytest.mark.parametrize("expression", EXACT)
def test_a_data_frame_equals_that_of_duckdb_if_that_one_is_exact(
    expression: str, ending: str, db: etude.Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    query = f"SELECT {expression} AS x{ending}"
    ours, theirs = db.sql(query, record=False).df()["x"], plain.sql(query).df()["x"]
    assert ours.dtype == theirs.dtype
    assert list(ours.isna()) == list(theirs.isna())
    assert list(ours.dropna()) == list(theirs.dropna())


@pytest.mark.parametrize(
    ("expression", "dtype", "value"),
    [
        ("170141183460469231731687303715884105727::HUGEINT", "object", 170141183460469231731687303715884105727),
        ("sum(9007199254740993)", "int64", 9007199254740993),
        ("12345678901234567890.12::DECIMAL(30, 2)", "object", Decimal("12345678901234567890.12")),
        ("INTERVAL '1 month'", "object", pandas.DateOffset(months=1, days=0, nanoseconds=0)),
        ("DATE 'infinity'", "object", dt.date.max),
        ("TIMESTAMP '-infinity'", "object", dt.datetime.min),
    ],
)
def test_a_data_frame_keeps_what_a_plain_type_would_lose(
    expression: str, dtype: str, value: Any, db: etude.Connection, app: App
) -> None:
    live = db.sql(f"SELECT {expression} AS x")
    assert live.run_id is not None
    for result in (live, app.result(live.run_id)):
        column = result.df()["x"]
        assert str(column.dtype) == dtype
        assert column[0] == value


@pytest.mark.parametrize(
    "interval",
    ["1 month 2 days", "-13 months", "25 hours", "-1 day", "0 seconds", "1 microsecond", "2 years -3 days 04:05:06.5"],
)
def test_an_interval_is_written_as_duckdb_prints_it(
    interval: str, db: etude.Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    query = f"SELECT INTERVAL '{interval}' AS x"
    ((text,),) = plain.sql(f"SELECT x::VARCHAR FROM ({query})").fetchall()
    assert result_to_json(db.sql(query, record=False))["rows"] == [[text]]


@pytest.mark.parametrize(
    ("expression", "json_form", "text"),
    [
        ("TIMESTAMP 'infinity'", "infinity", "infinity"),
        ("DATE '-infinity'", "-infinity", "-infinity"),
        ("DATE '9999-12-31'", "9999-12-31", "9999-12-31"),
        ("0.1::FLOAT", 0.1, "0.1"),
        ("[0.1::FLOAT, 16777216]", [0.1, 16777216.0], "[0.1, 16777216.0]"),
        ("1.10::DECIMAL(5, 2)", 1.1, "1.10"),
        ("true", True, "true"),
        ("{'a': NULL, 'b': false}", {"a": None, "b": False}, '{"a": null, "b": false}'),
        ("'2024-02-29 12:00:00.123456789'::TIMESTAMP_NS", *["2024-02-29T12:00:00.123456789"] * 2),
        ("MAP {}", {}, "{}"),
    ],
)
def test_text_says_what_the_engine_holds(expression: str, json_form: Any, text: str, db: etude.Connection) -> None:
    result = db.sql(f"SELECT {expression} AS x")
    assert result_to_json(result)["rows"] == [[json_form]]
    ((value,),) = result.iter_rows(shown=True)
    assert cell_to_text(value) == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_short_float_is_the_same_in_32_bits(value: float) -> None:
    info = ResultInfo(columns=(ResultColumn(name="x", type="FLOAT"),), row_count=1, truncated=False, bytes=4)
    batch = pa.record_batch([pa.array([value], pa.float32())], names=["x"])
    ((short,),) = etude.Result(info, [batch]).iter_rows(shown=True)
    assert pa.scalar(short, pa.float32()).as_py() == value
    digits, all_digits = (len(Decimal(repr(x)).normalize().as_tuple().digits) for x in (short, value))
    assert digits <= all_digits
