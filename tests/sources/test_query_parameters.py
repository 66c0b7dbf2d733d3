"""Parameters: values beside the text, bound by the engine, on every kind of source."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.entities import Limits, RunFilter, SourceSpec
from etude.errors import Invalid, LimitExceeded, Refused
from etude.sources.query_parameters import decode_query_params, encode_query_params, place_query_params

PLACES = ["duckdb_url", "files_url", "sqlite_shop", "postgres_shop", "mysql_shop"]
EVIL = "x' OR '1'='1'; DROP TABLE customers; -- \\"


@pytest.fixture
def duckdb_url(tmp_path: Path) -> str:
    with duckdb.connect(tmp_path / "shop.duckdb") as db:
        db.execute("CREATE TABLE customers AS SELECT i AS id, 'c' || i AS name FROM range(10) r(i)")
    return str(tmp_path / "shop.duckdb")


@pytest.fixture
def files_url(tmp_path: Path) -> str:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "customers.csv").write_text("id,name\n1,Ann\n2,Bob\n")
    return str(tmp_path / "files")


@pytest.fixture(params=PLACES)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.getfixturevalue(request.param)
    spec = SourceSpec(url=made if isinstance(made, str) else made.url)
    with App(home=tmp_path / "home", sources={"shop": spec}) as app:
        yield app


def test_values_are_bound_in_every_style_and_engine(shop: App) -> None:
    def ask(query: str, params: Any) -> list[tuple[Any, ...]]:
        return [tuple(map(int, row)) for row in shop.sql("shop", query, params).rows()]

    assert ask("SELECT 1 AS n WHERE 2 = ? AND 'b' = ?", [2, "b"]) == [(1,)]
    assert ask("SELECT 1 AS n WHERE 2 = $2 AND 'b' = $1", ["b", 2]) == [(1,)]
    assert ask("SELECT 1 AS n WHERE 2 = $two AND 'b' = :b AND 3 > $two", {"two": 2, "b": "b"}) == [(1,)]
    assert ask("SELECT 1 AS n WHERE 'it is :b? $1' <> ? -- ? :b", ["z"]) == [(1,)]
    assert ask("SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS t ORDER BY n LIMIT ?", [1]) == [(1,)]
    assert ask("SELECT 1 AS n WHERE CAST(? AS CHAR(1)) IS NULL", [None]) == [(1,)]


def test_a_result_without_rows_has_its_columns(shop: App) -> None:
    result = shop.sql("shop", "SELECT ? + ? AS n FROM customers WHERE 1 = 0", [1, 2])
    assert (result.rows(), [column.name for column in result.columns]) == ([], ["n"])


@pytest.mark.parametrize("value", [EVIL, "", "ü €", "a'b\"c`d\\", "1; SELECT 2"])
def test_a_text_comes_back_as_it_is(shop: App, value: str) -> None:
    for row in shop.sql("shop", "SELECT ? AS v, 'z' AS z", [value]).rows():
        assert row == (value, "z")


def test_a_parameter_passes_the_guard_only_with_a_value(shop: App) -> None:
    with pytest.raises(Refused) as caught:
        shop.sql("shop", "SELECT 1 AS n WHERE 1 = ?")
    assert "db.sql(query, [value])" in caught.value.hint
    with pytest.raises(Invalid, match="has a parameter 2, but 1 values were given"):
        shop.sql("shop", "SELECT 1 AS n WHERE 1 = ? AND 2 = ?", [1])
    with pytest.raises(Invalid, match="2 values were given"):
        shop.sql("shop", "SELECT 1 AS n WHERE 1 = ?", [1, 2])
    with pytest.raises(Invalid, match="`\\$nane` has no value") as named:
        shop.sql("shop", "SELECT 1 AS n WHERE 1 = $nane", {"name": 1})
    assert named.value.hint == "Did you mean `$name`?"


def test_values_are_recorded_and_the_query_can_be_repeated(shop: App) -> None:
    result = shop.sql("shop", "SELECT 1 AS n WHERE 2 = $two", {"two": 2})
    assert shop.store.runs(RunFilter(), limit=1).items[0].text == "SELECT 1 AS n WHERE 2 = $two"
    step = shop.store.run(str(result.run_id)).steps[0]
    assert (step.code, step.params) == ("SELECT 1 AS n WHERE 2 = $two", {"values": {"two": 2}})
    assert shop.sql("shop", step.code, decode_query_params(step.params["values"])).rows() == result.rows()


def test_a_budget_holds_with_parameters_too(shop: App) -> None:
    table = max(shop.catalog("shop").tables, key=lambda t: t.row_count or 0).name
    with pytest.raises(LimitExceeded):
        shop.sql("shop", f"SELECT * FROM {table} WHERE 1 = ?", [1], limits=Limits(scan_rows=1))


@pytest.mark.parametrize(
    "value", [b"x" * (9 << 20), "x" * (9 << 20), ["x" * (5 << 20)] * 2, memoryview(b"x" * (9 << 20))]
)
def test_values_that_no_message_holds_are_refused(shop: App, value: Any) -> None:
    for params in ([value], {"v": value}):
        with pytest.raises(Invalid, match=r"have [\d,]+ bytes; 8,388,608 is the most") as caught:
            shop.sql("shop", "SELECT ? AS v" if isinstance(params, list) else "SELECT :v AS v", params)
        assert "Register a table" in caught.value.hint
    assert shop.sql("shop", "SELECT length(?) AS n", ["x" * 1_000_000]).rows() == [(1_000_000,)]


def test_duckdb_takes_every_type(tmp_path: Path, duckdb_url: str) -> None:
    values = [True, 2**70, 1.5, Decimal("1.50"), dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, 3, 4, 5), dt.time(1, 2)]
    values += [dt.timedelta(days=1, seconds=5), b"ab", uuid.UUID(int=7), [1, 2], None]
    marks = ", ".join(f"? AS c{i}" for i in range(len(values)))
    with App(home=tmp_path / "home", sources={"shop": SourceSpec(url=duckdb_url)}) as app:
        assert app.sql("shop", f"SELECT {marks}", values).rows() == [tuple(values)]
        with pytest.raises(Invalid, match="is a set, which a query cannot take"):
            app.sql("shop", "SELECT ?", [{1}])


def test_marks_are_left_alone_where_they_are_not_parameters() -> None:
    assert place_query_params("SELECT a::int, '?', b -- ?\nFROM t WHERE x = ?", [1], "duckdb")[0].count("$") == 1
    assert place_query_params("SELECT d ?? 'k', d ?| x, e'\\'?' FROM t WHERE x = ?", [1], "postgres") == (
        "SELECT d ? 'k', d ?| x, e'\\'?' FROM t WHERE x =  $1 ",
        (1,),
    )
    assert place_query_params("SELECT $$?$$, l[1:n], :n", {"n": 5}, "duckdb")[0] == "SELECT $$?$$, l[1 $1 ],  $1 "
    assert place_query_params("SELECT [a?], `b?`, :x, :x", {"x": 5}, "sqlite") == (
        "SELECT [a?], `b?`,  ? ,  ? ",
        (5, 5),
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
SCALARS |= st.decimals(allow_nan=False) | st.dates() | st.datetimes() | st.times() | st.timedeltas() | st.uuids()


@settings(max_examples=50, deadline=None)
@given(st.lists(SCALARS | st.lists(SCALARS, max_size=3), min_size=1, max_size=5))
def test_values_survive_the_way_through_json(values: list[Any]) -> None:
    import json

    assert decode_query_params(json.loads(json.dumps(encode_query_params(values)))) == values


@pytest.mark.parametrize("dialect", ["duckdb", "sqlite", "postgres", "mysql"])
@pytest.mark.parametrize(
    "unit", ["[", "/*", "'", "'\\", '"', '"\\', "`", "$", "$a$", "--", "e'", "e'\\", " ", "1", "a"]
)
def test_marks_of_a_long_text_are_found_in_linear_time(dialect: str, unit: str) -> None:
    start = time.process_time()
    for before in ("", "$", "?"):
        with suppress(Invalid):
            place_query_params(before + unit * (200_000 // len(unit)), [1], dialect)
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("dialect", "text"),
    [("sqlite", "? [?"), ("mysql", "? '?\\"), ("postgres", "? e'?\\"), ("postgres", "? $a$?"), ("duckdb", "? /*?")],
)
def test_nothing_is_bound_inside_an_unclosed_quote_or_comment(dialect: str, text: str) -> None:
    assert place_query_params(text, [1], dialect)[0].endswith(text[2:])
