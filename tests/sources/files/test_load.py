"""Files become tables: one example for each kind of dirt, then the laws that hold for any file."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import multiprocessing
import os
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.errors import EtudeError, Invalid, LimitExceeded, NotFound, Unavailable
from etude.sources.files.load import LoadedTable, discover, discover_files, load
from etude.sources.files.table_names import RESERVED, clean_table_name, unique_table_names
from workbook import Sheet, write_workbook

Loader = Callable[..., LoadedTable]


@pytest.fixture
def load_text(tmp_path: Path) -> Loader:
    def run(content: str | bytes, name: str = "data.csv") -> LoadedTable:
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        (found,) = discover(str(file))
        (loaded,) = load(found, tmp_path / "out")
        return loaded

    return run


def rows(table: LoadedTable) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"SELECT * FROM {literal(table.path)}").fetchall()


def types(table: LoadedTable) -> dict[str, str]:
    return {r[0]: r[1] for r in duckdb.sql(f"DESCRIBE SELECT * FROM {literal(table.path)}").fetchall()}


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- clean files: what DuckDB itself reads ------------------------------------------------------------------

CLEAN = {
    "numbers": "id,price,name\n1,2.50,tea\n2,3,coffee\n",
    "dates": "d,t,b\n2024-01-02,2024-01-02 03:04:05,true\n2024-02-29,2024-12-31 23:59:59,false\n",
    "day first": "d,n\n31/12/2023,1\n01/02/2024,2\n",
    "codes": "zip,n\n00123,1\n04567,2\n",
    "quoted": 'id,text\n1,"a, b"\n2,"say ""hi"""\n3,"two\nlines"\n',
    "semicolons": "a;b\n1;x\n2;y\n",
    "tabs": "a\tb\n1\tx\n2\ty\n",
    "pipes": "a|b\n1|x\n2|y\n",
    "windows line ends": "a,b\r\n1,x\r\n2,y\r\n",
    "old line ends": "a,b\r1,x\r2,y\r",
    "no last line end": "a,b\n1,x\n2,y",
    "empty cells": "a,b\n1,\n,y\n",
    "one column": "a\n1\n2\n",
    "all text": "a,b\nx,y\nz,w\n",
    "apostrophes": "a,b\n1,'x,y'\n2,'z'\n",
    "backslashes": 'a,b\n1,"x\\"y"\n2,z\n',
    "late text": "a,b\n" + "".join(f"{i},{i}\n" for i in range(30_000)) + "30000,late\n",
    "header only": "a,b\n",
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_csv_is_what_duckdb_reads(load_text: Loader, tmp_path: Path, name: str) -> None:
    loaded = load_text(CLEAN[name])
    own = duckdb.sql(f"SELECT * FROM read_csv({literal(str(tmp_path / 'data.csv'))}, sample_size=-1)")
    assert rows(loaded) == own.fetchall()
    assert types(loaded) == dict(zip(own.columns, map(str, own.types)))
    assert loaded.row_count == len(rows(loaded))
    if name not in ("late text", "day first"):
        assert loaded.report.summary() == []


JSONS = {
    "array": '[{"a": 1, "b": "x"}, {"a": 2.5, "c": [1, 2]}]',
    "lines": '{"a": 1}\n{"a": 2, "b": {"x": 1}}\n',
    "one object": '{\n "a": 1,\n "b": [1, 2]\n}\n',
    "differing records": '{"a": 1}\n{"a": "x"}\n{"a": {"b": 1}}\n{"z": null}\n',
    "dates": '{"d": "2024-01-01"}\n{"d": "2024-01-02"}\n',
    "numbers in an array": "[1, 2, 3]",
}


@pytest.mark.parametrize("name", JSONS)
def test_clean_json_is_what_duckdb_reads(load_text: Loader, tmp_path: Path, name: str) -> None:
    loaded = load_text(JSONS[name], "data.json")
    own = duckdb.sql(f"SELECT * FROM read_json({literal(str(tmp_path / 'data.json'))}, sample_size=-1)")
    assert rows(loaded) == own.fetchall()
    assert [t for t in types(loaded).values() if t != "VARCHAR"] == [
        str(t) for t in own.types if str(t) not in ("VARCHAR", '"NULL"')
    ]
    assert bool(loaded.report.summary()) == (name == "differing records")


def test_numbers_beyond_64_bits_keep_each_digit(load_text: Loader) -> None:
    loaded = load_text("a,b\n9223372036854775808,x\n2,y\n")
    assert rows(loaded) == [(Decimal(9223372036854775808), "x"), (Decimal(2), "y")]
    assert loaded.report.types[0].type == "DECIMAL(38,0)"
    longer = load_text(f"a,b\n{'9' * 45},1\n2,2\n")
    assert rows(longer) == [("9" * 45, 1), ("2", 2)]


# --- dirt, one example each ---------------------------------------------------------------------------------


def test_mixed_types_stay_text_and_are_counted(load_text: Loader) -> None:
    loaded = load_text("id,n\n" + "".join(f"{i},{i}\n" for i in range(25_000)) + "x,oops\ny,oops\nz,?!\n")
    assert types(loaded) == {"id": "VARCHAR", "n": "VARCHAR"}
    assert rows(loaded)[-1] == ("z", "?!")
    assert loaded.report.types[1].note == "mixed: 3 of 25,003 values are not numbers ('oops', '?!'), kept as text"


def test_null_markers_are_null_only_where_the_rest_is_typed(load_text: Loader) -> None:
    loaded = load_text("n,d,t,zip\n1,2024-01-01,x,01234\nNA,-,NA,NA\n2.5,2024-01-03,-,04567\n,NULL,,\n")
    assert types(loaded) == {"n": "DOUBLE", "d": "DATE", "t": "VARCHAR", "zip": "VARCHAR"}
    assert rows(loaded) == [
        (1.0, date(2024, 1, 1), "x", "01234"),
        (None, None, "NA", "NA"),
        (2.5, date(2024, 1, 3), "-", "04567"),
        (None, None, None, None),
    ]
    assert loaded.report.summary() == [
        "Column `n` is DOUBLE: 1 of 3 values was a null marker ('NA').",
        "Column `d` is DATE: 2 of 4 values were null markers ('-', 'NULL').",
        "Column `t` is text: 2 of 3 values stand for a missing one ('NA', '-'), kept as text.",
        "Column `zip` is text: 1 of 3 values stands for a missing one ('NA'), kept as text.",
    ]


def test_decimal_commas_are_numbers_where_they_are_certain(load_text: Loader) -> None:
    loaded = load_text("sum;like\n1.234,56;1,234\n-2,7;2,700\n3;9,999\n")
    assert rows(loaded) == [(1234.56, 1.234), (-2.7, 2.7), (3.0, 9.999)]
    assert loaded.report.summary() == [
        "Column `sum` is DOUBLE: dots between its digits were left out, and its decimal commas were read as such.",
        "Column `like` is DOUBLE: '1,234' was read like column `sum`, and its decimal commas were read as such.",
    ]
    alone = load_text("id;maybe\n1;1,234\n2;2,700\n")
    assert rows(alone) == [(1, "1,234"), (2, "2,700")]
    assert "may be thousands or decimals, kept as text" in alone.report.summary()[0]


def test_a_short_row_is_padded_and_a_long_one_kept(load_text: Loader) -> None:
    loaded = load_text("a,b,c\n1,2,3\n4,5\n6,7,8,9,10\n11,12,13,,\n")
    assert rows(loaded) == [(1, 2, 3, None), (4, 5, None, None), (6, 7, 8, "9,10"), (11, 12, 13, None)]
    assert list(types(loaded)) == ["a", "b", "c", "_extra"]
    assert [(b.fault, b.count, b.lines) for b in loaded.report.bad_rows] == [
        ("too few fields", 1, (3,)),
        ("too many fields", 1, (4,)),
        ("empty fields at the end", 1, (5,)),
    ]


def test_stray_quotes_swallow_no_rows(load_text: Loader) -> None:
    loaded = load_text('a,b,c\n1,5" pipe,3\n4,"x"y,6\n7,"unclosed,9\n10,"two\nlines",12\n13,"last,15\n')
    assert rows(loaded) == [
        (1, '5" pipe', 3),
        (4, '"x"y', 6),
        (7, '"unclosed', 9),
        (10, "two\nlines", 12),
        (13, '"last', 15),
    ]
    assert loaded.report.bad_rows[0].lines == (2, 3, 4, 7)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8-sig", []),
        ("utf-16", ["The text is not UTF-8; it was read as utf-16-le."]),
        ("utf-16-be", ["The text is not UTF-8; it was read as utf-16-be."]),
        ("cp1252", ["The text is not UTF-8; it was read as cp1252."]),
    ],
)
def test_encodings_are_found(load_text: Loader, encoding: str, said: list[str]) -> None:
    loaded = load_text("name,city\nZoë,Málaga\nBob,Łódź\n".replace("Łódź", "Köln").encode(encoding))
    assert rows(loaded) == [("Zoë", "Málaga"), ("Bob", "Köln")]
    assert list(types(loaded)) == ["name", "city"]
    assert loaded.report.summary() == said
    assert loaded.report.bom == (encoding in ("utf-8-sig", "utf-16"))


def test_bytes_that_cp1252_lacks_are_latin_1(load_text: Loader) -> None:
    loaded = load_text(b"a,b\n1,\xe9\x81\n")
    assert loaded.report.encoding == "latin-1"
    assert rows(loaded) == [(1, "é\x81")]


def test_a_cut_off_utf_16_file_says_so(load_text: Loader) -> None:
    loaded = load_text("a,b\n1,x\n".encode("utf-16") + b"y")
    assert any("not valid utf-16-le" in s for s in loaded.report.summary())


@pytest.mark.parametrize("field", ["x" * 10_000_000, ("x" * 98 + '"\n') * 100_000], ids=["one line", "many lines"])
def test_a_huge_field_is_kept_whole(load_text: Loader, field: str) -> None:
    quoted = field.replace('"', '""')
    loaded = load_text(f'a,b\n1,"{quoted}"\n2,y\n')
    assert rows(loaded) == [(1, field), (2, "y")]
    assert loaded.report.huge_fields == 1


def test_headers_twice_empty_or_hostile(load_text: Loader) -> None:
    loaded = load_text('a,A, b ,,"""; drop table x; --","it\'s"\n1,2,3,4,5,6\n')
    assert list(types(loaded)) == ["a", "A_1", "b", "column3", '"; drop table x; --', "it's"]
    assert [(r.old, r.new) for r in loaded.report.renamed] == [("A", "A_1"), (" b ", "b"), ("", "column3")]


def test_a_missing_header_is_invented(load_text: Loader) -> None:
    loaded = load_text("1,x\n2,y\n")
    assert list(types(loaded)) == ["column0", "column1"]
    assert loaded.row_count == 2
    assert loaded.report.header == "invented"


@pytest.mark.parametrize("content", ["", "\n\n", "  \r\n", "\ufeff"])
def test_an_empty_file_is_refused(load_text: Loader, content: str) -> None:
    for name in ("data.csv", "data.json"):
        with pytest.raises(Invalid, match="is empty"):
            load_text(content, name)


def test_numbers_with_a_unit_and_dates_in_several_styles_have_a_note(load_text: Loader) -> None:
    rows = ["130 hp,1970-01-01,12 Main", "165 hp,01/01/70,3 High", "-,Jan 1970,7 Low", "150 hp,1970-01-01,9 Bow"]
    loaded = load_text("power,day,place\n" + "\n".join(rows) + "\n")
    assert {t.column: t.note for t in loaded.report.types} == {
        "power": "numbers with a unit ('130 hp', '165 hp', '150 hp'), 1 of 4 values without ('-'), kept as text",
        "day": "dates in several styles (2 values such as '1970-01-01', 1 such as '01/01/70'); "
        "1 of 4 values is not a date ('Jan 1970'), kept as text",
    }


def test_mixed_line_ends(load_text: Loader) -> None:
    loaded = load_text('a,b\r\n1,x\n2,y\r3,"z\r\nz"\n')
    assert rows(loaded) == [(1, "x"), (2, "y"), (3, "z\r\nz")]


def test_blank_lines_are_counted(load_text: Loader) -> None:
    assert load_text("a,b\n1,x\n\n2,y\n\n").report.blank_lines == 2
    quoted = load_text('a,b\n1,"x\n\nx"\n\n2,y\n')
    assert quoted.report.blank_lines == 1
    assert quoted.row_count == 2


def test_in_one_column_a_blank_line_is_a_null(load_text: Loader) -> None:
    assert rows(load_text("a\n1\n\n3\n")) == [(1,), (None,), (3,)]


def test_nul_bytes_are_removed_and_counted(load_text: Loader) -> None:
    loaded = load_text(b"a,b\n1,x\x00y\n2,z\n")
    assert rows(loaded) == [(1, "xy"), (2, "z")]
    assert loaded.report.summary() == ["1 NUL byte removed."]


def test_titles_above_the_header_are_skipped_and_counted(load_text: Loader) -> None:
    loaded = load_text("Sales report\n\nid,n,x\n1,2,3\n4,5,6\n")
    assert rows(loaded) == [(1, 2, 3), (4, 5, 6)]
    assert loaded.report.bad_rows[0].lines == (1,)
    assert loaded.report.blank_lines == 1


def test_a_total_row_is_a_row(load_text: Loader) -> None:
    assert rows(load_text("item,n\ntea,1\ncoffee,2\nTotal,3\n"))[-1] == ("Total", 3)


def test_a_sentence_with_commas_in_one_column(load_text: Loader) -> None:
    assert rows(load_text("name\nSmith, John\nDoe, Jane\n")) == [("Smith, John",), ("Doe, Jane",)]


def test_a_thousand_columns(load_text: Loader) -> None:
    wide = ",".join(f"c{i}" for i in range(1000)) + "\n" + (",".join(["7"] * 1000) + "\n") * 3
    assert load_text(wide).report.summary() == []
    loaded = load_text(wide + "1,2\n")
    assert len(types(loaded)) == 1000
    assert loaded.row_count == 4


def test_gzip_is_read_and_a_broken_one_refused(load_text: Loader) -> None:
    packed = gzip.compress(b"a,b\n1,x\n2,y,z\n")
    assert rows(load_text(packed, "data.csv.gz")) == [(1, "x", None), (2, "y", "z")]
    for broken in (b"hello", packed[:-9]):
        with pytest.raises(Invalid, match="gzip"):
            load_text(broken, "data.csv.gz")


def test_a_name_with_glob_marks_and_quotes(load_text: Loader) -> None:
    assert rows(load_text("a,b\n1,2\n", "it's [1]*?\xa0\n.csv")) == [(1, 2)]


def test_a_broken_json_line_is_skipped_and_counted(load_text: Loader) -> None:
    loaded = load_text('{"a": 1}\n{"a": 2,\n{"a": 3}\noops\n', "data.jsonl")
    assert rows(loaded) == [(1,), (3,)]
    assert loaded.report.summary() == ["2 rows with broken JSON (lines 2, 4): skipped."]


def test_json_oddities(load_text: Loader) -> None:
    assert rows(load_text('{"a": 1, "a": 2}\n', "data.jsonl")) == [(2,)]
    assert rows(load_text('{"a": 1, "A": 2}\n', "data.jsonl")) == [(1, 2)]
    assert rows(load_text('{"a": "é"}\n'.encode("utf-16"), "data.json")) == [("é",)]
    assert rows(load_text('{"a": null}\n', "data.json")) == [(None,)]
    assert load_text('{"a": "\\ud800"}\n', "data.json").report.notes
    big = ["x" * 100_000] * 200
    assert rows(load_text(json.dumps({"a": big}), "data.jsonl")) == [(big,)]


@pytest.mark.parametrize("content", ["42", '"x"', "null", '[{"a": 1},', "[1, 2", "{nope}"])
def test_json_without_records_is_refused(load_text: Loader, content: str) -> None:
    with pytest.raises(Invalid) as caught:
        load_text(content, "data.json")
    assert caught.value.hint


# --- folders and groups -------------------------------------------------------------------------------------


def write(path: Path, content: str = "a,b\n1,2\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")
    return path


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_a_folder_is_a_table_for_each_file_and_each_like_sub_folder(tmp_path: Path) -> None:
    for name in ("Café Sales 2024.csv", "2024.csv", "order.csv", "x.json", "x.csv", "sub/p1.csv", "sub/p2.csv"):
        write(tmp_path / name)
    for name in ("mixed/a.csv", "mixed/b.json", "notes.md", ".hidden.csv", ".git/x.csv", "a.tar.gz"):
        write(tmp_path / name)
    write_parquet(tmp_path / "events" / "year=2024" / "p.parquet", {"a": [1]})
    write_parquet(tmp_path / "events" / "year=2025" / "p.parquet", {"a": [2]})
    found = discover_files(str(tmp_path))
    assert [t.table for t in found.tables] == [
        "t_2024", "cafe_sales_2024", "events", "mixed_a", "mixed_b", "t_order", "sub", "x", "x_2",
    ]  # fmt: skip
    assert [len(t.paths) for t in found.tables] == [1, 1, 2, 1, 1, 1, 2, 1, 1]
    assert found.ignored == ("a.tar.gz", "notes.md")


def test_partitions_right_below_the_folder_are_its_table(tmp_path: Path) -> None:
    write(tmp_path / "sales" / "year=2024" / "a.csv", "n\n1\n")
    write(tmp_path / "sales" / "year=2025" / "a.csv", "n\n2\n")
    (found,) = discover(str(tmp_path / "sales"))
    assert found.table == "sales"
    (loaded,) = load(found, tmp_path / "out")
    assert rows(loaded) == [(1, 2024), (2, 2025)]


def test_a_glob(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.json", "deep/d.csv"):
        write(tmp_path / name)
    assert [t.table for t in discover(str(tmp_path / "*.csv"))] == ["a", "b"]
    assert [t.table for t in discover(str(tmp_path / "**" / "*.csv"))] == ["a", "b", "deep"]


def test_a_missing_path_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "orders.csv")
    with pytest.raises(NotFound) as caught:
        discover(str(tmp_path / "order.csv"))
    assert "orders.csv" in caught.value.hint


def test_a_folder_without_readable_files_lists_what_is_there(tmp_path: Path) -> None:
    write(tmp_path / "notes.md")
    with pytest.raises(Invalid, match=r"notes\.md"):
        discover(str(tmp_path))


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv")
    (before,) = discover(str(file))
    assert discover(str(file)) == [before]
    os.utime(file, ns=(1, 1))
    assert discover(str(file))[0].fingerprint != before.fingerprint


def test_a_thousand_files_are_found_without_opening_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(1000):
        (tmp_path / f"File {i}.csv").touch()
    with monkeypatch.context() as closed:
        for name in ("builtins.open", "io.open", "os.open"):
            closed.setattr(name, lambda *_, **__: pytest.fail("a file was opened"))
        found = discover(str(tmp_path))
    assert len(found) == 1000


def test_every_reserved_word_gets_another_name() -> None:
    words = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'").fetchall()
    assert {w[0] for w in words} <= RESERVED
    with duckdb.connect() as db:
        for (word,) in db.execute("SELECT DISTINCT keyword_name FROM duckdb_keywords()").fetchall():
            name = clean_table_name(word)
            db.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT 1 AS a')
            assert db.execute(f"SELECT {name}.a FROM {name}").fetchall() == [(1,)], word


@given(st.text(max_size=20))
def test_a_clean_name_needs_no_quotes(text: str) -> None:
    name = clean_table_name(text)
    assert name == name.lower()
    duckdb.sql(f"SELECT 1 AS {name} FROM (SELECT 1) AS {name}")


@given(st.lists(st.sampled_from(["a", "a_2", "a_2_2", "b"])))
def test_unique_names_are_unique(names: list[str]) -> None:
    given_names = unique_table_names(names)
    assert len(set(given_names)) == len(names)
    assert all(new.startswith(old) for old, new in zip(names, given_names))


def test_parts_of_one_table_may_differ_a_little(tmp_path: Path) -> None:
    write(tmp_path / "d" / "sub" / "1.csv", "id,n\n1,1\n")
    write(tmp_path / "d" / "sub" / "2.csv", "n;id;new\n2,5;x1;a\n")
    write(tmp_path / "d" / "sub" / "3.csv", "id,n\n007,2\n5\n")
    (found,) = discover(str(tmp_path / "d"))
    (loaded,) = load(found, tmp_path / "out")
    assert rows(loaded) == [("1", 1.0, None), ("x1", 2.5, "a"), ("007", 2.0, None), ("5", None, None)]
    assert "Column `new` is missing in 2 of 3 files; it is null there." in loaded.report.summary()
    assert loaded.report.bad_rows[0].file == "3.csv"


def test_files_of_other_shape_in_a_sub_folder_are_tables_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "d" / "shop" / "customers.csv", "id,name\n1,x\n")
    write(tmp_path / "d" / "shop" / "orders.csv", "number,sum,day\n1,2,2024-01-01\n")
    (found,) = discover(str(tmp_path / "d"))
    loaded = load(found, tmp_path / "out")
    assert [t.table for t in loaded] == ["shop_customers", "shop_orders"]
    assert rows(loaded[1]) == [(1, 2, date(2024, 1, 1))]


def test_parquet_is_used_in_place(tmp_path: Path) -> None:
    one = write_parquet(tmp_path / "d" / "sub" / "1.parquet", {"a": [1, 2]})
    two = write_parquet(tmp_path / "d" / "sub" / "2.parquet", {"a": [3], "b": ["x"]})
    (found,) = discover(str(tmp_path / "d"))
    (loaded,) = load(found, tmp_path / "out")
    assert loaded.paths == (str(one), str(two))
    assert loaded.row_count == 3
    assert loaded.report.summary() == ["Column `b` is missing in 1 of 2 files; it is null there."]
    one.write_bytes(b"PAR1 but not for long")
    with pytest.raises(Invalid, match="not a readable Parquet file"):
        load(found, tmp_path / "out")


def test_a_file_gone_meanwhile(tmp_path: Path) -> None:
    (found,) = discover(str(write(tmp_path / "a.csv")))
    Path(found.paths[0]).unlink()
    with pytest.raises(NotFound):
        load(found, tmp_path / "out")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/bad\xff.csv"
    with open(path, "wb") as file:
        file.write(b"a,b\n1,2\n")
    (found,) = discover(str(tmp_path))
    assert found.table == "bad"
    with pytest.raises(Invalid, match="not UTF-8"):
        load(found, tmp_path / "out")


def test_too_little_memory_is_said(tmp_path: Path) -> None:
    (found,) = discover(str(write(tmp_path / "a.csv", "a,b\n" + f"1,{'x' * 1000}\n" * 50_000)))
    with pytest.raises(LimitExceeded, match="memory"):
        load(found, tmp_path / "out", {"memory_limit": "10MB"})
    assert os.listdir(tmp_path / "out") == []


# --- the cache ----------------------------------------------------------------------------------------------


def test_loading_again_gives_the_same_bytes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (found,) = discover(str(write(tmp_path / "a.csv", "a,b\n" + "".join(f"{i},x{i}\n" for i in range(200_000)))))
    first = Path(load(found, tmp_path / "out")[0].path).read_bytes()
    assert Path(load(found, tmp_path / "out")[0].path).read_bytes() == first
    assert os.listdir(tmp_path / "out") == ["a.parquet"]


def test_two_processes_may_load_the_same_file(tmp_path: Path) -> None:
    (found,) = discover(str(write(tmp_path / "a.csv", "a,b\n" + "".join(f"{i},{i},\n" for i in range(20_000)))))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        loaded = pool.starmap(load, [(found, tmp_path / "out")] * 2)
    assert loaded[0] == loaded[1]
    assert len(rows(loaded[0][0])) == 20_000


def test_the_report_is_json(load_text: Loader) -> None:
    report = load_text("a,a\n1,n/a\n2,3,4\n").report
    assert json.loads(json.dumps(dataclasses.asdict(report)))["bad_rows"][0]["lines"] == [3]


# --- workbooks ----------------------------------------------------------------------------------------------


def test_a_sheet_has_types_a_header_and_a_title(tmp_path: Path) -> None:
    sheet: Sheet = [
        ["Sales of 2024"],
        [],
        ["id", "price", "day", "at", "paid", "mixed", "gap", "id", None],
        [1, 2.5, date(2024, 1, 2), datetime(2024, 1, 2, 12), True, 1, "n/a", "x", None],
        [2, 3, date(2024, 2, 29), datetime(2024, 1, 3, 18), False, "two", 7, "y", None],
        [],
        [3, None, None, None, None, 3.5, 8, None, None],
    ]
    (found,) = discover(str(write_workbook(tmp_path / "Sales Report.xlsx", {"Only": sheet})))
    (loaded,) = load(found, tmp_path / "out")
    assert loaded.table == "sales_report"
    assert list(types(loaded).items()) == [
        ("id", "BIGINT"), ("price", "DOUBLE"), ("day", "DATE"), ("at", "TIMESTAMP"), ("paid", "BOOLEAN"),
        ("mixed", "VARCHAR"), ("gap", "BIGINT"), ("id_1", "VARCHAR"),
    ]  # fmt: skip
    assert rows(loaded) == [
        (1, 2.5, date(2024, 1, 2), datetime(2024, 1, 2, 12), True, "1", None, "x"),
        (2, 3.0, date(2024, 2, 29), datetime(2024, 1, 3, 18), False, "two", 7, "y"),
        (3, None, None, None, None, "3.5", 8, None),
    ]
    assert loaded.report.bad_rows[0].lines == (1,)
    assert loaded.report.blank_lines == 2
    assert {t.column for t in loaded.report.types} == {"mixed", "gap"}


def test_each_filled_sheet_is_a_table(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "shop.xlsx", {"Orders": [["a"], [1]], "Empty": [], "2024": [[1, 2], [3, 4]]})
    loaded = load(discover(str(path))[0], tmp_path / "out")
    assert [t.table for t in loaded] == ["shop_orders", "shop_2024"]
    assert rows(loaded[1]) == [(1, 2), (3, 4)]
    assert loaded[1].report.header == "invented"


def test_errors_of_excel_become_null_and_are_named(tmp_path: Path) -> None:
    sheets: dict[str, Sheet] = {
        "Fine": [["a"], [1]],
        "Rates": [["a", "b"], [1, "#DIV/0!"], [2, 5], ["#N/A", 6]],
    }
    (found,) = discover(str(write_workbook(tmp_path / "errors.xlsx", sheets)))
    fine, rates = load(found, tmp_path / "out")
    assert rows(rates) == [(1, None), (2, 5), (None, 6)]
    assert rates.report.notes == ("2 cells hold an error of Excel and became null: B2 (#DIV/0!), A4 (#N/A).",)
    assert fine.report.notes == ()


def test_a_file_that_is_no_workbook_is_refused(tmp_path: Path) -> None:
    for name in ("a.xlsx", "a.xls", "a.xlsb", "a.ods"):
        (found,) = discover(str(write(tmp_path / name, "no workbook")))
        with pytest.raises(Invalid, match="not a readable workbook"):
            load(found, tmp_path / "out")


def test_without_calamine_the_hint_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    (found,) = discover(str(write(tmp_path / "a.xlsx", "x")))
    with pytest.raises(Unavailable) as caught:
        load(found, tmp_path / "out")
    assert caught.value.hint == "pip install 'etude[excel]'"


# --- laws ---------------------------------------------------------------------------------------------------

TEXT = st.text(
    st.one_of(st.sampled_from(list(",;|\t\"'\\\n #")), st.characters(exclude_categories=["Cs", "Cc"])), max_size=8
)
LAWS = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    width = draw(st.integers(2, 5))
    return draw(st.lists(st.lists(TEXT, min_size=width, max_size=width), min_size=1, max_size=12))


@LAWS
@given(
    table=tables(),
    delimiter=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_any_table_of_text_comes_back(
    tmp_path: Path, table: list[list[str]], delimiter: str, quoting: Any, line_end: str, encoding: str
) -> None:
    width = len(table[0])
    # A word in each column makes it text: what is all numbers would come back as numbers.
    table = [[f"word{i}" for i in range(width)], *table]
    # Python's writer leaves \n bare where lines end in \r: no reader could tell it from a line end.
    quoting = csv.QUOTE_ALL if line_end == "\r" else quoting
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=line_end)
    writer.writerows([[f"c{i}" for i in range(width)], *table])
    file = tmp_path / "t.csv"
    file.write_bytes(text.getvalue().encode(encoding))
    (loaded,) = load(discover(str(file))[0], tmp_path / "out")
    assert list(types(loaded)) == [f"c{i}" for i in range(width)]
    # A row without a value is skipped, and noted.
    kept = [row for row in table if width == 1 or any(row)]
    assert rows(loaded) == [tuple(cell or None for cell in row) for row in kept]


@LAWS
@given(content=st.binary(max_size=300), name=st.sampled_from(["t.csv", "t.json", "t.csv.gz", "t.parquet", "t.xlsx"]))
def test_any_bytes_give_a_table_or_a_clear_error(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    try:
        tables = load(discover(str(tmp_path / name))[0], tmp_path / "out")
    except EtudeError as error:
        assert error.hint
    else:
        for table in tables:
            assert len(rows(table)) == table.row_count


@LAWS
@given(content=st.text(st.sampled_from(list("ab12,,;\"\n\r\t\0 '{}[]:.-é")), max_size=80))
def test_any_text_gives_a_table_or_a_clear_error(tmp_path: Path, content: str) -> None:
    for name in ("t.csv", "t.json"):
        test_any_bytes_give_a_table_or_a_clear_error.hypothesis.inner_test(tmp_path, content.encode(), name)


@LAWS
@given(content=st.text(st.sampled_from(list('ab1,"\n')), min_size=1, max_size=60))
def test_every_line_is_in_the_table_or_in_the_report(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_text("x,y\nv,w\nv,w\n" + content)
    (loaded,) = load(discover(str(tmp_path / "t.csv"))[0], tmp_path / "out")
    inside = sum(cell.count("\n") for row in rows(loaded) for cell in row if isinstance(cell, str))
    skipped = sum(b.count for b in loaded.report.bad_rows if b.done.startswith("skipped"))
    lines = 3 + content.count("\n") + (not content.endswith("\n"))
    header = loaded.report.header == "present"
    assert loaded.row_count + inside + skipped + loaded.report.blank_lines + header == lines


def test_a_note_on_cells_of_several_kinds_names_the_type_of_the_column(tmp_path: Path) -> None:
    cells = [["n", "day", "x"], [10, date(2024, 1, 2), 1], [20.5, date(2024, 1, 3), 2], ["1,234", "31.12.2023", "soon"]]
    (found,) = discover(str(write_workbook(tmp_path / "mixed.xlsx", {"Only": cells})))
    (loaded,) = load(found, tmp_path / "out")
    said = {note.column: (note.type, note.note) for note in loaded.report.types}
    kinds = {c[0]: c[1] for c in duckdb.sql(f"DESCRIBE SELECT * FROM '{loaded.path}'").fetchall()}
    assert kinds == {"n": "DOUBLE", "day": "DATE", "x": "VARCHAR"}
    assert said["n"][0] == "DOUBLE"
    assert said["n"][1].startswith("mixed: 2 numbers, 1 text ('1,234'); its texts were read like the others")
    assert said["day"][0] == "DATE" and "its texts were read like the others" in said["day"][1]
    assert said["x"] == ("text", "mixed: 2 numbers, 1 text ('soon'), all kept as text")


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        ([-5, 2**64 + 1], "DECIMAL(38,0)", "its whole numbers need more than 64 bits"),
        ([5, 10**37 + 1, None], "DECIMAL(38,0)", "its whole numbers need more than 64 bits"),
        ([5, 10**40 + 1], "VARCHAR", "its whole numbers have more than 38 digits, kept as text"),
        ([1.5, 2**64 + 1], "DOUBLE", "it keeps 15 to 17 digits of its values beyond 64 bits"),
    ],
)
def test_whole_numbers_of_json_keep_each_digit(tmp_path: Path, values: list[Any], kind: str, note: str) -> None:
    records = [{"n": value, "day": "2024-01-02", "deep": {"x": [1]}} for value in values]
    (found,) = discover(str(write(tmp_path / "data.json", json.dumps(records))))
    (loaded,) = load(found, tmp_path / "out")
    rows = duckdb.sql(f"SELECT n, day, deep FROM '{loaded.path}'")
    assert [str(t) for t in rows.types][:2] == [kind, "DATE"]
    exact = [str(n) if kind == "VARCHAR" else n for n in values] if kind != "DOUBLE" else [1.5, float(2**64)]
    assert [row[0] for row in rows.fetchall()] == exact
    assert note in " ".join(loaded.report.summary())
