"""Values that loading changes, or cannot decide: each is read right or kept as text, and a note says so."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etude.sources.files.load import LoadedTable, discover, load
from workbook import Padded, write_workbook


def read(path: Path) -> LoadedTable:
    (table,) = (table for file in discover(str(path)) for table in load(file, path.parent / "out" / path.name))
    return table


def rows(table: LoadedTable) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"FROM read_parquet('{table.path}')").fetchall()


MARCH, LAST = date(2024, 3, 1), date(2024, 3, 31)
CASES: dict[str, tuple[str, str, list[tuple[Any, ...]], str]] = {
    # name: file, content, rows, a part of the notes (empty if there must be none)
    "words among dates": (
        "a.csv",
        "d,v\n2024-01-01,1\ninfinity,2\nepoch,3\n",
        [("2024-01-01", 1), ("infinity", 2), ("epoch", 3)],
        "Column `d` is text: mixed: 2 of 3 values are not dates ('epoch', 'infinity'), kept as text.",
    ),
    "words among dates of a file with faults": (
        "a.csv",
        "d,v\n2024-01-01,1\nepoch\n",
        [("2024-01-01", 1), ("epoch", None)],
        "1 of 2 values is not a date ('epoch')",
    ),
    "a date that words are taken for": ("a.csv", "d,v\n1970-01-01,1\n", [(date(1970, 1, 1), 1)], ""),
    "spaces around all values": (
        "a.csv",
        "id,s\n1,OPEN  \n2,SHUT  \n",
        [(1, "OPEN"), (2, "SHUT")],
        "all its values had spaces around ('OPEN  ', 'SHUT  '), which were left out",
    ),
    "amounts of accountants": (
        "a.csv",
        'id,v\n1,"$ 1,856.01"\n2,"$ (8,001.04)"\n3,$ -\n',
        [(1, "$ 1,856.01"), (2, "$ (8,001.04)"), (3, "$ -")],
        "numbers in a form that is not read ('$ (8,001.04)', '$ -'), kept as text",
    ),
    "numbers with fractions": (
        "a.csv",
        "id,v\n1,63 7/8\n2,26 1/2\n",
        [(1, "63 7/8"), (2, "26 1/2")],
        "numbers in a form that is not read ('63 7/8', '26 1/2'), kept as text",
    ),
    "texts that spreadsheets are shown as such": (
        "a.csv",
        'code;name;v\n="007";a;1,5\n="008";b;2,5\n="009";c;3,5\n',
        [('="007"', "a", 1.5), ('="008"', "b", 2.5), ('="009"', "c", 3.5)],
        "decimal commas were read as such",
    ),
    "capitals beyond ASCII": ("a.csv", "Ort,\u00c4rger\nA,1.5\nB,2.5\n", [("A", 1.5), ("B", 2.5)], ""),
    "rows of delimiters": (
        "a.csv",
        "a,b\n1,2\n,\n3,4\n,\n",
        [(1, 2), (3, 4)],
        "2 rows with no value (lines 3, 5): skipped.",
    ),
    "rows with some values": ("a.csv", "a,b\n1,\n,2\n", [(1, None), (None, 2)], ""),
    "keys that differ by case": (
        "a.jsonl",
        '{"amount": 1}\n{"Amount": 2}\n',
        [(1,), (2,)],
        "`amount` and `Amount` differ only by case, and no record has both",
    ),
    "keys that differ by case in one record": (
        "a.jsonl",
        '{"amount": 1, "Amount": 2}\n',
        [(1, 2)],
        "Column `Amount_1` is named so: its key is `Amount`",
    ),
    "a key with a number": ("a.jsonl", '{"a": 1, "A_1": 2}\n', [(1, 2)], ""),
    "long whole numbers among decimals": (
        "a.jsonl",
        '{"v": 9007199254740993}\n{"v": 1.5}\n',
        [(9007199254740992.0,), (1.5,)],
        "whole numbers of 16 digits and more are rounded, as '9007199254740993' is",
    ),
    "no records": ("a.json", "[]", [], "The file has no records."),
    "an index without a name": ("a.csv", ",name\n0,a\n1,b\n", [(0, "a"), (1, "b")], "Column `` is named `column0`"),
    "an index without a name above years": ("a.csv", ",0\n0,a\n1,b\n", [(0, "a"), (1, "b")], "named `column0`"),
    "one name of three": ("a.csv", ",name,\n0,a,5\n1,b,6\n", [(0, "a", 5), (1, "b", 6)], "named `column2`"),
    "spaces after a quote": (
        "a.csv",
        'id,name,v\n1,"Smith, J" ,10\n2, "Doe, A",20\n3,x\n',
        [(1, "Smith, J", 10), (2, "Doe, A", 20), (3, "x", None)],
        "2 rows with spaces around a field in quotes (lines 2, 3): the spaces were left out.",
    ),
    "a header again after a byte order mark": (
        "a.csv",
        "\ufeffid,v\n1,10\n\ufeffid,v\n3,30\n",
        [(1, 10), (3, 30)],
        "1 row with the header again (line 3): skipped.",
    ),
    "Ctrl-Z": ("a.csv", "id,v\n1,10\n\x1a", [(1, 10)], "The Ctrl-Z at the end"),
    "Ctrl-Z after records": ("a.jsonl", '{"v": 1}\n\x1a', [(1,)], "The Ctrl-Z at the end"),
    "plain spaces between digits": (
        "a.csv",
        "c,n\nFR,68 042 591\nMC,39 150\n",
        [("FR", 68042591), ("MC", 39150)],
        "spaces between its digits were left out",
    ),
    "spaces in codes": (
        "a.csv",
        "c,siren\na,732 829 320\nb,552 100 554\n",
        [("a", "732 829 320"), ("b", "552 100 554")],
        "may be those of thousands or of codes",
    ),
    "reais": ("a.csv", 'v,w\n"R$ 1.234,56",1\n"R$ 10,00",2\n', [(1234.56, 1), (10.0, 2)], "the currency was left out"),
    "dollars with a country": ("a.csv", 'v,w\n"US$1,234.50",1\nUS$10.00,2\n', [(1234.5, 1), (10.0, 2)], "the currency"),
    "kronor": ("a.csv", 'v,w\n"1 234,50 kr",1\n"10,00 kr",2\n', [(1234.5, 1), (10.0, 2)], "the currency was left out"),
    "zloty": ("a.csv", 'v,w\n"1 234,50 zł",1\n"10,00 zł",2\n', [(1234.5, 1), (10.0, 2)], "the currency was left out"),
    "yen": ("a.csv", 'v,w\n"\uffe51,234",1\n"¥500",2\n', [("\uffe51,234", 1), ("¥500", 2)], "several currencies"),
    "short dates with dots": ("a.csv", "d,v\n1.3.24,1\n31.3.24,2\n", [(MARCH, 1), (LAST, 2)], "'31.3.24' cannot have"),
    "dates or versions": ("a.csv", "d,v\n1.3.24,1\n2.4.10,2\n", [("1.3.24", 1), ("2.4.10", 2)], "dates or versions"),
    "dates of SAS": ("a.csv", "d,v\n01MAR2024,1\n31MAR2024,2\n", [(MARCH, 1), (LAST, 2)], "names of the months"),
    "months": ("a.csv", "d,v\nMar 2024,1\nMarch 2024,2\n", [(MARCH, 1), (MARCH, 2)], "read as their first day"),
    "dates of Japan": (
        "a.csv",
        "d,v\n2024年3月1日,1\n2024年3月31日,2\n",
        [(MARCH, 1), (LAST, 2)],
        "year, month and day",
    ),
    "footnotes": ("a.csv", 'v,w\n"1,234*",1\n3100 [1],2\n', [("1,234*", 1), ("3100 [1]", 2)], "with a footnote"),
    "infinity": (
        "a.csv",
        "y,v\ninf,1\n2,2\n-inf,3\n",
        [(float("inf"), 1), (2.0, 2), (float("-inf"), 3)],
        "2 of 3 values are",
    ),
    "wide digits": ("a.csv", "v,w\n１２,1\n３００,2\n", [(12, 1), (300, 2)], "were read as 0 to 9"),  # noqa: RUF001
    "Arabic digits": ("a.csv", "v,w\n\u0661\u0662,1\n\u0663\u0660,2\n", [(12, 1), (30, 2)], "were read as 0 to 9"),
    "wide digits of codes": ("a.csv", "v,w\n０１２,1\n", [("０１２", 1)], "not those of ASCII"),  # noqa: RUF001
    "a group cannot start with zero": (
        "a.csv",
        'v,w\n"0,125",1\n"1,250",2\n',
        [(0.125, 1), (1.25, 2)],
        "decimal commas",
    ),
    "percent in brackets": ("a.csv", "v,w\n-1.5%,1\n(0.5%),2\n", [(-1.5, 1), (-0.5, 2)], "percent signs were left out"),
    "the null of MySQL": ("a.csv", "v,w\n5,1\n\\N,2\n", [(5, 1), (None, 2)], "was a null marker"),
    "dots of a file with semicolons": (
        "a.csv",
        "id;v\n1;1.234\n2;2.500\n",
        [(1, "1.234"), (2, "2.500")],
        "'1.234', '2.500' may be thousands or decimals, kept as text",
    ),
    "the reason is named": (
        "a.csv",
        'v,w\n1,1\n2,2\n"1,234",3\n',
        [("1", 1), ("2", 2), ("1,234", 3)],
        "text: '1,234' may be",
    ),
    "titles and a blank line": (
        "a.csv",
        "Sales report\nGenerated by X\n\nregion,units,v\nN,10,1\nS,20,2\n",
        [("N", 10, 1), ("S", 20, 2)],
        "skipped as a title",
    ),
    "footers of two columns": (
        "a.csv",
        "region,units\nN,10\nS,20\n\nSource: ERP\n",
        [("N", 10), ("S", 20), ("Source: ERP", None)],
        "may be a footer",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_value_is_noted(tmp_path: Path, name: str) -> None:
    file, content, wanted, note = CASES[name]
    (tmp_path / file).write_text(content, encoding="utf-8")
    loaded = read(tmp_path / file)
    said = " ".join(loaded.report.summary())
    assert rows(loaded) == wanted
    assert note in said if note else not said
    assert "another table" not in said


@pytest.mark.parametrize(
    ("usual", "late", "note"),
    [
        ("2024-01-01", "infinity", "1 of 30,001 values is not a date ('infinity')"),
        ("10", "0x1F", "hexadecimal or binary numbers ('0x1F')"),
        ("true\nfalse", "maybe", "is not true or false ('maybe')"),
    ],
)
def test_a_late_value_is_noted(tmp_path: Path, usual: str, late: str, note: str) -> None:
    lines = (usual.split("\n") * 30_000)[:30_000]
    (tmp_path / "a.csv").write_text("v\n" + "\n".join([*lines, late]) + "\n")
    assert note in " ".join(read(tmp_path / "a.csv").report.summary())


def test_a_broken_date_late_in_json_is_noted(tmp_path: Path) -> None:
    days = ['{"d": "2024-01-01"}'] * 25_000
    (tmp_path / "a.jsonl").write_text("\n".join([*days, '{"d": "2024-02-30"}']) + "\n")
    assert "1 of 25,001 values is not a date ('2024-02-30')" in " ".join(read(tmp_path / "a.jsonl").report.summary())


def test_leading_zeros_that_a_workbook_shows_are_kept(tmp_path: Path) -> None:
    table = read(write_workbook(tmp_path / "a.xlsx", {"s": [["zip", "n"], [Padded(1067), 1], [Padded(10115), 2]]}))
    assert rows(table) == [("01067", 1), ("10115", 2)]
    assert "shows its numbers with leading zeros ('01067')" in " ".join(table.report.summary())
    table = read(write_workbook(tmp_path / "b.xlsx", {"s": [["zip"], [Padded(1067)], [10115]]}))
    assert rows(table) == [(1067,), (10115,)]
    assert "the format of some cells shows leading zeros, 1067 as 01067" in " ".join(table.report.summary())


def test_decimals_of_more_than_38_digits_are_noted(tmp_path: Path) -> None:
    values = pa.array([Decimal("1.5")], type=pa.decimal256(50, 1))
    pq.write_table(pa.table({"d": values}), tmp_path / "a.parquet")
    assert "up to 50 digits" in " ".join(read(tmp_path / "a.parquet").report.summary())


def test_a_few_words_of_japanese_tell_the_encoding(tmp_path: Path) -> None:
    text = "日付,店舗,売上\n2024年3月1日,渋谷,5\n"
    (tmp_path / "a.csv").write_bytes(text.encode("cp932"))
    table = read(tmp_path / "a.csv")
    assert rows(table) == [(MARCH, "渋谷", 5)]
    assert "it was read as cp932" in " ".join(table.report.summary())


def test_joined_names_are_shown_by_one_that_was_joined(tmp_path: Path) -> None:
    sheet = [[None, 2023, None, 2024], ["region", "units", "rev", "units"], ["N", 1, 10, 2], ["S", 3, 30, 4]]
    table = read(write_workbook(tmp_path / "a.xlsx", {"s": sheet}))
    assert "names such as `2023 units`" in " ".join(table.report.summary())
