"""`etude.connect`: the two lines that every script begins with."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import etude
from etude.app import App
from etude.entities import SourceSpec
from etude.errors import (
    Conflict,
    EtudeError,
    Invalid,
    LimitExceeded,
    NotFound,
    Refused,
    SourceError,
    Unavailable,
    UnknownTable,
)
from etude.runtime.standalone_script import standalone_script_of_run


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))


@pytest.fixture
def crm(tmp_path: Path) -> Path:
    path = tmp_path / "crm.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR, country VARCHAR)")
        db.execute("INSERT INTO customers VALUES (1, 'Ann', 'DE'), (2, 'Bob', 'FR'), (3, 'Cy', 'DE')")
        db.execute("CREATE SCHEMA archive")
        db.execute("CREATE TABLE archive.customers AS SELECT 9 AS id, 'Old' AS name")
    return path


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE orders AS FROM (VALUES (1, 10.5), (1, 2.0), (3, 7.25)) v(customer, amount)")
    return path


@pytest.fixture
def db(crm: Path) -> Iterator[etude.Connection]:
    with etude.connect(crm) as connection:
        yield connection


def test_a_query_gives_rows_and_is_a_run(db: etude.Connection) -> None:
    result = db.sql("SELECT name FROM customers ORDER BY id")
    assert result.rows() == [("Ann",), ("Bob",), ("Cy",)]
    assert result.run_id is not None and result.run_id.startswith("run_")
    assert db.sql("SELECT 1 AS a", record=False).run_id is None


def test_tables_and_catalog(db: etude.Connection) -> None:
    assert db.tables() == ["archive.customers", "customers"]
    table = db.catalog().table("CUSTOMERS")
    assert table is not None and table.primary_key == ("id",) and table.row_count == 3
    assert [(c.name, c.type) for c in table.columns][:2] == [("id", "INTEGER"), ("name", "VARCHAR")]
    assert [c.nullable for c in table.columns] == [False, True, True]


def test_limits_can_be_given_singly(db: etude.Connection) -> None:
    result = db.sql("FROM customers ORDER BY id", limit=2)
    assert result.truncated and result.rows() == [(1, "Ann", "DE"), (2, "Bob", "FR")]
    with pytest.raises(LimitExceeded, match="more than 2 rows"):
        db.sql("FROM customers", rows=2)
    with pytest.raises(Invalid, match="The limit `row` is not known") as caught:
        db.sql("FROM customers", row=2)
    assert "rows" in caught.value.hint
    with pytest.raises(Invalid, match="The limit `rows` cannot be `-1`"):
        db.sql("FROM customers", rows=-1)
    with pytest.raises(Invalid, match="The limit `timeout_s` cannot be `0`"):
        db.sql("FROM customers", timeout_s=0)


def test_the_source_may_come_from_the_environment(crm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_SOURCE", str(crm))
    with etude.connect() as db:
        assert db.sql("SELECT count(*) FROM customers").rows() == [(3,)]
    monkeypatch.delenv("ETUDE_SOURCE")
    with pytest.raises(Invalid, match="No source was given") as caught:
        etude.connect()
    assert "ETUDE_SOURCE" in caught.value.hint


def test_a_wrong_source_fails_at_once(tmp_path: Path, crm: Path) -> None:
    with pytest.raises(NotFound, match="no source, file or folder `nosuch`"):
        etude.connect("nosuch")
    with pytest.raises(NotFound, match=r"crn\.duckdb"):
        etude.connect(tmp_path / "crn.duckdb")
    with pytest.raises(Invalid, match="`gopher://` is not a kind of source"):
        etude.connect("gopher://hole")
    with pytest.raises(NotFound, match="nowhere"):
        etude.connect(crm, other=tmp_path / "nowhere")
    with pytest.raises(Invalid, match="`Other` cannot name a source"):
        etude.connect(crm, Other=crm)
    with pytest.raises(Invalid, match="Two sources would be called `crm`"):
        etude.connect(crm, crm=crm)


def test_two_files_join_by_keyword(crm: Path, orders: Path) -> None:
    with etude.connect(crm, sales=orders) as db:
        result = db.sql(
            """SELECT c.name, sum(o.amount) AS total FROM customers c JOIN sales.orders o ON o.customer = c.id
            GROUP BY 1 ORDER BY 1"""
        )
        assert [(name, float(total)) for name, total in result.rows()] == [("Ann", 12.5), ("Cy", 7.25)]
        with pytest.raises(UnknownTable):
            db.sql("SELECT * FROM sales.customers")
        with pytest.raises(Refused):
            db.sql("CREATE TABLE sales.x AS SELECT 1")


def test_a_change_of_the_file_is_seen_by_the_next_query(db: etude.Connection, crm: Path, tmp_path: Path) -> None:
    assert db.sql("SELECT count(*) FROM customers").rows() == [(3,)]
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(crm.read_bytes())
    with duckdb.connect(copy) as writer:
        writer.execute("INSERT INTO customers VALUES (4, 'Di', 'ES')")
    copy.replace(crm)
    assert db.sql("SELECT count(*) FROM customers").rows() == [(4,)]


def test_a_file_that_goes_away_is_told(db: etude.Connection, crm: Path) -> None:
    crm.unlink()
    with pytest.raises(NotFound, match=r"There is no file `.*crm\.duckdb`"):
        db.sql("SELECT 1 AS a")


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.duckdb"
    path.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 5000)
    with etude.connect(path) as db, pytest.raises(SourceError, match="Cannot open"):
        db.sql("SELECT 1 AS a")


def test_a_table_is_an_ibis_expression(db: etude.Connection) -> None:
    customers = db.table("customers")
    query = customers.group_by("country").agg(n=customers.count()).order_by("country")
    result = db.execute(query)
    assert result.rows() == [("DE", 2), ("FR", 1)]
    assert result.run_id is not None
    assert db.execute(db.table("archive.customers").name).rows() == [("Old",)]
    assert db.execute(customers.name.upper(), record=False).run_id is None
    with pytest.raises(NotFound, match="There is no table `custmers`") as caught:
        db.table("custmers")
    assert caught.value.hint == "Did you mean `customers`?"


def test_connections_may_share_an_app(crm: Path, orders: Path, tmp_path: Path) -> None:
    with etude.App(home=tmp_path / "shared") as app:
        app.add_source("sales", SourceSpec(url=str(orders)))
        first, second = etude.connect(crm, app=app), etude.connect("sales", app=app)
        assert second.sql("SELECT count(*) FROM orders").rows() == [(3,)]
        first.close()
        assert first.sql("SELECT count(*) FROM sales.orders").rows() == [(3,)]
        assert len(app.store.runs().items) == 2


def test_the_public_names_are_there() -> None:
    for name in etude.__all__:
        assert getattr(etude, name) is not None
    with pytest.raises(AttributeError):
        _ = etude.nothing


def test_a_dict_names_tables_to_query(tmp_path: Path, crm: Path) -> None:
    with etude.connect({"sales": [{"a": 1}, {"a": 2}], "more": {"b": [2]}}) as db:
        assert db.sql("SELECT a FROM sales JOIN more ON a = b").rows() == [(2,)]
        assert sorted(db.tables()) == ["more", "sales"]
        db.register("sales", {"a": [7]})
        assert db.sql("FROM sales WHERE a > ?", [1]).rows() == [(7,)]
        with pytest.raises(Invalid, match="`no name` cannot name a table"):
            db.register("no name", {"a": [1]})
        with pytest.raises(Invalid, match="`x` cannot be registered: it is a int"):
            db.register("x", 5)
        with pytest.raises(UnknownTable):
            db.sql("FROM read_parquet")


def test_registered_values_keep_their_meaning_or_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    with etude.connect({"one": {"a": [1]}}) as db:
        # pandas holds consecutive ids as a range, as it does an index that only numbers the rows.
        db.register("named", pandas.DataFrame({"id": [1, 2], "a": [4, 5]}).set_index("id"))
        assert db.sql("SELECT id, a FROM named").rows() == [(1, 4), (2, 5)]
        db.register("numbered", pandas.DataFrame({"a": [4, 5]}))
        assert [column.name for column in db.sql("FROM numbered").columns] == ["a"]
        waits = pandas.DataFrame({"wait": pandas.to_timedelta(["1h"])})
        with pytest.raises(Invalid, match="column `wait` holds durations") as caught:
            db.register("waits", waits)
        assert caught.value.hint == "Convert it first, such as with `waits['wait'].dt.total_seconds()`."
        with pytest.raises(Invalid, match="column `waits` holds durations"):
            db.register("nested", {"waits": [[dt.timedelta(hours=1)]]})


def test_a_table_of_the_source_cannot_be_replaced(db: etude.Connection) -> None:
    with pytest.raises(Conflict, match="has a table `customers` already"):
        db.register("customers", {"id": [1]})


def test_registered_tables_join_a_database_that_is_not_duckdb(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "shop.sqlite") as file:
        file.executescript("CREATE TABLE orders (id INTEGER, sales TEXT); INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    file.close()
    with etude.connect(tmp_path / "shop.sqlite") as db:
        db.register("sales", {"id": [2], "amount": [5]})
        assert db.sql("SELECT o.sales, s.amount FROM orders o JOIN sales s ON s.id = o.id").rows() == [("b", 5)]
        # A column of the same name does not take the query away from SQLite.
        assert db.sql("SELECT typeof(sales) FROM orders LIMIT 1").rows() == [("text",)]


def test_a_question_can_be_asked_on_a_connection(db: etude.Connection) -> None:
    assert db.ask("SQL: SELECT count(*) AS n FROM customers").text == "n: 3"
    asked = db.ask("how many customers are there?", model="offline")
    assert asked.choices == ("archive.customers", "customers")
    assert asked.text.startswith(asked.question) and "\n- archive.customers\n- customers\n" in asked.text
    assert f"etude.reply('{asked.run_id}', ...)" in asked.text


def test_a_variable_in_a_query_says_how_to_register_it(db: etude.Connection) -> None:
    prices = [{"a": 1}]
    with pytest.raises(UnknownTable) as caught:
        db.sql("SELECT * FROM prices")
    assert caught.value.hint == "`prices` is a variable: let queries read it with `db.register('prices', prices)`."
    db.register("prices", prices)
    assert db.sql("SELECT a FROM prices").rows() == [(1,)]
    with pytest.raises(UnknownTable) as caught:
        db.sql("SELECT * FROM caught")
    assert "register" not in caught.value.hint


def test_registered_tables_stay_while_other_connections_come_and_go(db: etude.Connection, orders: Path) -> None:
    db.register("targets", [{"country": "DE", "target": 40}])
    with etude.connect({"others": [{"x": 1}]}) as frames, etude.connect(str(orders)) as other:
        assert frames.sql("SELECT x FROM others").rows() == [(1,)]
        assert other.sql("SELECT count(*) FROM orders").rows() == [(3,)]
    assert db.sql("SELECT target FROM targets JOIN customers USING (country) LIMIT 1").rows() == [(40,)]


def test_the_files_of_replaced_tables_are_deleted(db: etude.Connection) -> None:
    for number in range(5):
        db.register("targets", [{"n": number}])
    assert db.sql("SELECT n FROM targets").rows() == [(4,)]
    assert len(list(db._frames._folder.glob("*.parquet"))) <= 2


def test_a_question_reads_registered_tables(db: etude.Connection, tmp_path: Path) -> None:
    db.register("regions", [{"country": "DE", "region": "north"}, {"country": "FR", "region": "west"}])
    assert db.ask("How many regions are there?", model="offline").text == "Number of regions: 2."
    joined = "SQL: SELECT count(*) AS n FROM customers JOIN regions USING (country) WHERE region = 'north'"
    assert db.ask(joined).text == "n: 2"
    with etude.connect({"sales": [{"amount": 2}, {"amount": 3}]}) as alone:
        assert alone.ask("What is the total amount of sales?", model="offline").text == "Total amount: 5."
    with sqlite3.connect(tmp_path / "s.db") as made:
        made.execute("CREATE TABLE t (a)")
    with etude.connect(tmp_path / "s.db") as other:
        other.register("extra", [{"a": 1}])
        with pytest.raises(Unavailable, match="cannot read registered tables"):
            other.ask("How many extra are there?")


def test_the_script_of_a_query_knows_its_source_and_its_values(
    crm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "ETUDE_SOURCE"}
    with App() as app:
        for query, values in (
            ("SELECT name FROM customers WHERE country = 'FR'", None),
            ("SELECT name FROM customers WHERE country = ? AND DATE '2024-01-01' < ?", ["FR", dt.date(2025, 1, 1)]),
        ):
            run_id = app.sql(str(crm), query, values).run_id
            assert run_id is not None
            for text in (app.script(run_id), standalone_script_of_run(app.store.run(run_id))):
                script = tmp_path / "elsewhere" / "script.py"
                script.write_text(text)
                command = [sys.executable, str(script)]
                done = subprocess.run(
                    command,
                    cwd=script.parent,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=240,
                    check=False,
                )
                assert done.returncode == 0 and "Bob" in done.stdout, done.stderr


def test_a_registered_name_says_that_it_hides_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, count in (("there", 1), ("here", 2)):
        (tmp_path / place / "shop").mkdir(parents=True)
        (tmp_path / place / "shop" / "orders.csv").write_text("id\n" + "1\n" * count)
    monkeypatch.chdir(tmp_path / "here")
    with App() as app:
        app.add_source("shop", SourceSpec(url=str(tmp_path / "there" / "shop")))
        hidden = app.sql("shop", "SELECT count(*) FROM orders")
        assert hidden.rows() == [(1,)] and "write `./shop` for the one in this folder" in hidden.notes[-1]
        near = app.sql("./shop", "SELECT count(*) FROM orders")
        assert near.rows() == [(2,)] and near.notes == ()
        monkeypatch.chdir(tmp_path / "there")
    with App() as app:
        assert app.sql("shop", "SELECT count(*) FROM orders").notes == (), "they are the same folder"


def test_rows_may_have_different_columns(db: etude.Connection) -> None:
    db.register("ragged", [{"a": 1}, {"a": 2, "c": "x"}])
    assert db.sql("SELECT a, c FROM ragged ORDER BY a").rows() == [(1, None), (2, "x")]


def test_a_traceback_ends_with_the_hint(db: etude.Connection) -> None:
    import traceback

    try:
        db.sql("FROM custmers")
    except UnknownTable as error:
        assert traceback.format_exception(error)[-1].strip() == "hint: Did you mean `customers`?"


def test_a_question_about_a_frame_is_answered(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"country": ["FR", "ES", "FR"], "target": [1, 2, 3]})
    with App(home=tmp_path / "home") as app:
        answer = etude.ask(frame, "total target by country", app=app)
    assert answer.result is not None and sorted(answer.result.rows()) == [("ES", 2), ("FR", 4)]


def test_a_frame_alone_is_a_table_and_loses_nothing(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    periods = pandas.PeriodIndex(["2025-01"], freq="M")
    frame = pandas.DataFrame({"month": periods}, index=pandas.RangeIndex(7, 8, name="id"))
    with App(home=tmp_path / "home") as app, etude.connect(frame, app=app) as db:
        assert db.sql("SELECT id, month FROM data").rows() == [(7, "2025-01")]
    with App(home=tmp_path / "home") as app, pytest.raises(Invalid, match="`data` cannot be registered: it is a int"):
        etude.connect(7, app=app)


def test_execute_takes_the_text_of_a_query(db: etude.Connection) -> None:
    assert db.execute("SELECT 1 AS one").rows() == [(1,)]
    assert db.execute("SELECT ? AS n", [7]).rows() == [(7,)]


def test_a_result_has_the_names_that_other_libraries_use(
    db: etude.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    result = db.sql("SELECT 1 AS a, 'x' AS b")
    assert result.shape == (1, 2)
    assert result.dicts() == [{"a": 1, "b": "x"}]
    assert result.fetchdf().equals(result.to_df())
    result.show()
    assert capsys.readouterr().out == f"{result!r}\n"


def test_a_closed_connection_says_so(crm: Path) -> None:
    db = etude.connect(crm)
    db.close()
    for use in (lambda: db.sql("SELECT 1"), db.catalog, lambda: db.ask("how many customers?")):
        with pytest.raises(Conflict, match="This connection is closed"):
            use()


def test_an_answer_shows_its_text_and_rows(db: etude.Connection) -> None:
    answer = db.ask("SQL: SELECT count(*) AS n FROM customers")
    assert answer.result is not None
    assert repr(answer) == f"{answer.text}\n\n{answer.result!r}"


def test_a_misspelt_query_and_a_missing_value_are_named(db: etude.Connection) -> None:
    with pytest.raises(EtudeError) as refused:
        db.sql("SELEC 1")
    assert refused.value.hint.startswith("Did you mean `SELECT`?")
    with pytest.raises(EtudeError) as refused:
        db.sql("DELETE FROM customers")
    assert "Did you mean" not in refused.value.hint


def test_a_parameter_without_a_value_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as made:
        made.execute("CREATE TABLE t AS SELECT 1 AS x")
    with etude.connect(tmp_path / "a.sqlite") as db:
        with pytest.raises(EtudeError, match="`:c` is a variable, or a parameter without a value"):
            db.sql("SELECT x FROM t WHERE x = :c")
        with pytest.raises(EtudeError) as refused:
            db.sql("SELECT x FROM t WHERE x IN ?", [[1, 2]])
        assert "`IN (?, ?)` with a mark for each value" in refused.value.hint
