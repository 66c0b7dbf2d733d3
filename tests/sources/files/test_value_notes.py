"""Values that are loaded as they are and mislead are reported: totals, missing values, spaces, wrong letters."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import duckdb
import pytest

from etude.sources.files import value_notes
from etude.sources.files.load import LoadedTable, discover, discover_files, load


def read(path: Path, content: str | None = None) -> LoadedTable:
    if content is not None:
        path.write_text(content, encoding="utf-8")
    (found,) = discover(str(path))
    (loaded,) = load(found, path.parent / "out")
    return loaded


def said(path: Path, content: str) -> str:
    return " ".join(read(path, content).report.summary())


TOTALS = {
    "a label and sums": ("item,n,x\ntea,1,1.5\nmilk,2,2.25\nTotal,3,3.75\n", "`n`, `x` are the sums"),
    "a label": ("item,n\ntea,1\nmilk,2\nGrand Total:,9\n", "`item` is 'Grand Total:'"),
    "another language": ("ware,n\ntee,1\nmilch,2\nSumme,3\n", "`ware` is 'Summe'"),
    "no label": ("day,item,n\n2024-01-01,tea,1\n2024-01-02,milk,2\n2024-01-03,tea,2\n,,5\n", "`n` is the sum"),
    "an empty number": (
        "id,amount\n1,10\n2,20\n,30\n",
        "(only there `id` is empty, and `amount` is the sum of the rows above); it is a row of the table, so sums and "
        "counts in SQL include it unless a query leaves it out: `WHERE id IS NOT NULL`.",
    ),
    "an empty name": ("item,n\ntea,1\nmilk,2\n,3\n", "only there `item` is empty, and `n` is the sum"),
    "two sums": ("item,n,x\ntea,1,10\nmilk,2,20\nrice,4,40\nall of it,7,70\n", "`n`, `x` are the sums"),
    "currencies": ('item,n\ntea,"$1,000.50"\nmilk,$200\nTotal,"$1,200.50"\n', "`n` is the sum"),
    "subtotals": (
        "area,city,n\nNorth,A,1\nNorth,B,2\nNorth total,,3\nSouth,C,4\nSouth total,,4\nTotal,,7\n",
        "`n` is the sum of the rows above), and so do rows above it ('North total', 'South total')",
    ),
    "totals named after their rows": (
        "area,city,n\nNorth,A,1\nNorth,B,2\nTotal North,,3\nSouth,C,4\nSouth,D,5\nTotal South,,9\n",
        "and so do rows above it ('Total North')",
    ),
    "a longer label": ("day,item,n\n2025-01-01,a,10\n2025-01-02,b,20\nTotal for January,,30\n", "`n` is the sum"),
    "a label with a count": ("day,n\n2025-01-01,10\n2025-01-02,20\nGrand total (2 rows),30\n", "`n` is the sum"),
    "a label that may be a name": ("dept,n\nIT,10\nHR,20\nTotal company,30\n", "`n` is the sum"),
    "a compound": ("posten;n\na;1.200,50\nb;-200,50\nGesamtbetrag;1.000,00\n", "`n` is the sum"),
    "named subtotals": ("dept,n,m\nIT,10,1\nHR,20,2\nSubtotal A,30,3\nOps,5,1\n", "Some rows look like totals"),
    "totals inside": ("area,sex,n\nA,f,1\nA,m,2\nA,Total,3\nB,f,4\nB,Total,9\nB,m,5\n", "Some rows look like totals"),
}


@pytest.mark.parametrize("empty", ["", ","])
def test_a_label_of_many_rows_is_not_a_total(tmp_path: Path, empty: str) -> None:
    rows = "".join(f'c{n},"Population, total",{n}{empty}\n' for n in range(5))
    loaded = read(tmp_path / "data.csv", f"country,series,n{empty}\n{rows}")
    assert "total" not in " ".join(loaded.report.summary())


@pytest.mark.parametrize("name", TOTALS)
def test_a_total_among_the_rows_is_told(tmp_path: Path, name: str) -> None:
    content, expected = TOTALS[name]
    loaded = read(tmp_path / "data.csv", content)
    assert expected in " ".join(loaded.report.summary())
    assert loaded.row_count == content.count("\n") - 1


def test_the_note_says_how_to_leave_the_total_out(tmp_path: Path) -> None:
    loaded = read(tmp_path / "data.csv", "Item,n\ntea,1\nmilk,2\nTotal,3\n")
    condition = loaded.report.summary()[0].partition("leaves it out: `")[2].partition("`")[0]
    assert condition == "WHERE \"Item\" IS DISTINCT FROM 'Total'"
    assert duckdb.sql(f"SELECT sum(n) FROM '{loaded.path}' {condition}").fetchall() == [(3,)]
    assert '`WHERE "when" IS DISTINCT' in said(tmp_path / "keyword.csv", "when,n\nmay,1\njune,2\nTotal,3\n")


@pytest.mark.parametrize(
    "content",
    [
        "item,n\ntea,1\nmilk,2\nrice,3\n",
        "company,n\nShell,1\nTotal Energies,2\nTotal Protein,9\nBP,2\n",
        "company,n\nShell,1\nBP,2\nTotal Energies,9\n",
        "id,n\n1,1\n2,2\n3,3\n",
        "id,n\n1,10\n,10\n",
        "id,n\n1,10\n2,20\n,31\n",
        "a,b,c\n1,2,x\n3,4,y\n5,6,\n",
        "id,n\n1,10\n,20\n3,5\n,35\n",
        "item,n\ntea,0\nmilk,0\nrice,0\n",
        "file_row_number,n\na,1\nTotal,1\n",
    ],
)
def test_a_table_without_a_total_has_no_note(tmp_path: Path, content: str) -> None:
    assert said(tmp_path / "data.csv", content) == ""


def test_markers_of_missing_values_among_numbers_are_null(tmp_path: Path) -> None:
    words = ("N/A", "-", "n.a.", "unknown", "TBD", "\u2014", "#DIV/0!")
    loaded = read(tmp_path / "data.csv", "id,n\n" + "".join(f"{i},{w}\n" for i, w in enumerate(words)) + "8,1\n9,2\n")
    assert duckdb.sql(f"SELECT count(*), count(n), sum(n) FROM '{loaded.path}'").fetchall() == [(9, 2, 3)]
    assert loaded.report.summary() == [
        "Column `n` is BIGINT: 7 of 9 values were null markers ('N/A', '-', 'n.a.', ...)."
    ]


@pytest.mark.parametrize("content", ["id,d\n1,03/04/2024\n", 'id,n\n1,"1,234"\n', "id,d\n1,2024-06-29\n2,03/04/2024\n"])
def test_a_note_on_an_upload_names_no_option(tmp_path: Path, content: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(content)
    for uploaded in (False, True):
        (found,) = discover_files(str(path), uploaded=uploaded).tables
        (loaded,) = load(found, tmp_path / str(uploaded))
        notes = " ".join(loaded.report.summary())
        assert ("the option" in notes) is not uploaded
        assert ("in the file to be sure" in notes) is uploaded


def test_a_zero_date_is_null(tmp_path: Path) -> None:
    assert "1 of 2 values was a null marker" in said(tmp_path / "data.csv", "id,d\n1,2024-01-01\n2,0000-00-00\n")


def test_markers_spaces_and_wrong_letters_in_text_are_told(tmp_path: Path) -> None:
    content = "id,a,b,c\n1,x,Rome,K\u00f6ln\n2,N/A,Rome ,K\u00c3\u00b6ln\n3,unknown,Rome\u00a0,Paris\n"
    assert read(tmp_path / "data.csv", content).report.summary() == [
        "Column `a` is text: 2 of 3 values stand for a missing one ('N/A', 'unknown'), kept as text.",
        "Column `b` is text: 2 of 3 values have spaces around ('Rome ', 'Rome\\xa0'), kept.",
        "Column `c` is text: 1 of 3 values looks like UTF-8 that was read as another encoding ('K\u00c3\u00b6ln').",
    ]


def test_a_large_file_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_notes, "SAMPLE_ROWS", 10)
    content = "id,a\n" + "".join(f"{i},{'N/A' if i % 3 else 'x'}\n" for i in range(100))
    assert "66 of 100 values stand for a missing one" in said(tmp_path / "data.csv", content)
    content = "item,n\n" + "".join(f"{'Total' if i == 98 else i},x{i}\n" for i in range(99))
    assert "The last row looks like a total" in said(tmp_path / "totals.csv", content)


def test_mixed_types_in_a_key_are_told(tmp_path: Path) -> None:
    records = [{"id": 1, "v": 1}, {"id": "x2", "v": "two"}, {"id": 3, "v": [3]}]
    notes = read(tmp_path / "data.json", json.dumps(records)).report.summary()
    assert notes[0] == (
        'Column `id` is JSON: mixed: 2 numbers (`1`), 1 text (`"x2"`), texts keep their quotes; '
        "`\"id\" ->> '$'` gives all as plain text."
    )
    assert "1 list (`[3]`), 1 number (`1`), 1 text" in notes[1]
    nested = read(tmp_path / "nested.json", json.dumps([{"v": {"a": 1}}, {"v": {"a": "x"}}])).report.summary()
    assert "parts of it have several types" in nested[0]
    assert said(tmp_path / "empty.json", json.dumps([{"id": 1, "v": []}, {"id": 2, "v": []}])) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([["id", "name"], [1, "a"], [2, "b"]], "Each record is a list"),
        ({"a": {"0": 1, "1": 2}, "b": {"0": "x", "1": "y"}}, "one object per column, with 2 values each"),
    ],
)
def test_json_of_another_shape_is_told(tmp_path: Path, value: object, expected: str) -> None:
    assert expected in said(tmp_path / "data.json", json.dumps(value))


def test_a_text_about_the_tables_is_not_a_table(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("sales.csv", "a,b\n1,2\n")
        archive.writestr("README.txt", "This has the sales.\n")
        archive.writestr("about.txt", "The sales of all shops, by day.\nColumn a is a number, or so we think.\n")
        archive.writestr("codes.txt", "code\nA1\nB2\n")
    (found,) = discover(str(tmp_path / "data.zip"))
    tables = load(found, tmp_path / "out")
    assert [t.table for t in tables] == ["data_sales", "data_codes"]
    notes = " ".join(tables[0].report.summary())
    assert "not tables: README.txt" in notes
    assert "`about.txt` was not loaded: it is text in sentences" in notes
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("Read me.txt", "sales.csv"):
        (folder / name).write_text("a,b\n1,2\n")
    assert discover_files(str(folder)).ignored == ("Read me.txt",)


FAULTS = {
    "a repeated header": ("id,n\n1,10\nid,n\n2,20\n", [(1, 10), (2, 20)], "the header again (line 3): skipped"),
    "two rows of names": (
        "Area,2023,,2024,\n,units,amount,units,amount\nN,1,1.5,2,2.5\nS,3,3.5,4,5.5\n",
        [("N", 1, 1.5, 2, 2.5), ("S", 3, 3.5, 4, 5.5)],
        "The header has two rows; they were joined to names such as `2023 amount`.",
    ),
    "a rule of dashes": ("id|n\n---|---\n1|10\n2|20\n", [(1, 10), (2, 20)], "only dashes (line 2): skipped"),
    "row names": (
        "a,b\nx,1,2\ny,3,4\n",
        [("x", 1, 2), ("y", 3, 4)],
        "The header has 2 names and most rows have 3 fields",
    ),
    "rounded codes": ("n,ean\n1,4.00631E+12\n", [(1, 4006310000000.0)], "the last digits are lost ('4.00631E+12')"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_delimited_file_is_told(tmp_path: Path, name: str) -> None:
    content, rows, expected = FAULTS[name]
    loaded = read(tmp_path / "data.csv", content)
    assert duckdb.sql(f"SELECT * FROM '{loaded.path}'").fetchall() == rows
    assert expected in " ".join(loaded.report.summary())


def test_a_header_repeated_below_the_sample_is_skipped(tmp_path: Path) -> None:
    body = "".join(f"{i},{i}\n" for i in range(25_000))
    loaded = read(tmp_path / "data.csv", f"id,n\n{body}id,n\n{body}")
    assert duckdb.sql(f"SELECT count(*), sum(n) FROM '{loaded.path}'").fetchall() == [(50_000, 2 * sum(range(25_000)))]


def test_a_value_equal_to_its_name_stays(tmp_path: Path) -> None:
    assert read(tmp_path / "data.csv", "name\nAnn\nname\n").row_count == 2
    assert read(tmp_path / "more.csv", "first,last\nAnn,Lee\nfirst,Ott\n").row_count == 2


def test_a_column_of_markers_alone_is_told(tmp_path: Path) -> None:
    assert "2 of 2 values stand for a missing one ('N/A'), kept" in said(tmp_path / "data.csv", "a,b\n1,N/A\n2,N/A\n")


def test_nan_in_json_is_told(tmp_path: Path) -> None:
    assert (
        said(tmp_path / "data.json", '[{"a": NaN}, {"a": 1.5}]')
        == "Column `a` is DOUBLE: 1 of its values is NaN, kept."
    )


ODD = {
    "an average above a total": (
        "region,q1,q2\nNorth,10,20\nSouth,30,40\nAverage,20,30\nTotal,40,60\n",
        "`region` 'Average': the averages of the rows above",
        [("region", "Total"), ("region", "Average")],
    ),
    "a rounded mean": (
        "item,x\na,1.5\nb,2.25\nc,1.0\nMean,1.58\n",
        "`item` 'Mean': the averages of the rows above",
        [("item", "Mean")],
    ),
    "a largest value": ("item,x\na,1\nb,7\nMax,7\n", "the largest values of the rows above", [("item", "Max")]),
    "a grade": ("grade,n\nPoor,1\nGood,20\nAverage,7\n", "", []),
    "a footer": (
        "dept,name,pay\nHR,Ann,1\nIT,Bob,2\nIT,Cy,9\nPrepared by Ann,,\n",
        "The last row has a value in `dept` alone ('Prepared by Ann') and may be a footer",
        [],
    ),
    "gaps": ("dept,name,pay\nHR,,\nIT,Bob,2\nIT,Cy,9\nOps,,\n", "", []),
}


@pytest.mark.parametrize("name", ODD)
def test_rows_that_summarise_and_footers_are_noted(tmp_path: Path, name: str) -> None:
    content, part, totals = ODD[name]
    report = read(tmp_path / "a.csv", content).report
    assert part in " ".join(report.summary())
    assert part or report.summary() == []
    assert [(t.column, t.value) for t in report.totals] == totals


def test_the_sums_above_a_total_leave_out_the_average(tmp_path: Path) -> None:
    content = "region,q1\nNorth,10\nSouth,30\nAverage,20\nTotal,40\n"
    assert "and `q1` is the sum of the rows above" in said(tmp_path / "a.csv", content)


MARKERS = {
    "minus many nines": (
        [10, 11.5, -9999, 12, 13, 14, -9999],
        "2 of 7 values are -9999, far from the others (10 to 14)",
    ),
    "nines": ([1, 2, 5, 4, 3, 99], "1 of 6 values is 99, far from the others (1 to 5)"),
    "a price": ([100, 499, 250, 800, 40, 999], ""),
    "dates": (["2024-01-01", "9999-12-31"], "1 of 2 values is 9999-12-31"),
    "a birthday": (["1900-01-01", "1905-02-03", "1990-01-01"], ""),
}


@pytest.mark.parametrize("name", MARKERS)
def test_numbers_that_stand_for_a_missing_value_are_noted_and_kept(tmp_path: Path, name: str) -> None:
    values, part = MARKERS[name]
    rows = "".join(f"{i},{v}\n" for i, v in enumerate(values))
    found = said(tmp_path / "a.csv", f"id,v\n{rows}")
    assert part in found
    assert part or not found


def test_a_grade_called_average_is_no_average_of_rows(tmp_path: Path) -> None:
    assert "total" not in said(tmp_path / "data.csv", "name,grade,n\nAnn,average,1\nBob,good,2\nCy,average,3\n")
    assert "total" not in said(tmp_path / "other.csv", "name,grade,n\nAnn,good,1\nBob,good,2\nCy,average,3\n")
