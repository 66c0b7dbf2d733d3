"""Files as people have them: each is loaded right, or refused with a reason, and what was assumed is noted."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etude.errors import EtudeError, Invalid, LimitExceeded
from etude.sources.files import archive
from etude.sources.files.load import LoadedTable, discover, load
from workbook import write_workbook


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue())


def read(path: Path) -> list[LoadedTable]:
    return [table for file in discover(str(path)) for table in load(file, path.parent / "out" / path.name)]


def rows(table: LoadedTable) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"FROM read_parquet('{table.path}')").fetchall()


PLAIN = b"a,b\n1,x\n2,y\n"
ABLE: dict[str, tuple[str, bytes, list[tuple[Any, ...]], str]] = {
    # name: file, content, rows, a part of the notes (empty if there must be none)
    "byte order mark": ("a.csv", "\ufeffid,name\n1,Zoë\n".encode(), [(1, "Zoë")], ""),
    "utf-16": ("a.csv", "id,name\n1,Zoë\n".encode("utf-16"), [(1, "Zoë")], "utf-16-le"),
    "windows-1252": ("a.csv", "id;name\n1;Müller\n".encode("cp1252"), [(1, "Müller")], "cp1252"),
    "two encodings": (
        "a.csv",
        "id,name\n1,Zoë\n".encode() + "2,Jäger\n".encode("cp1252"),
        [(1, "Zoë"), (2, "Jäger")],
        "1 row with bytes that are not UTF-8 (line 3): these bytes were read as cp1252",
    ),
    "cut inside a character": ("a.csv", "id,v\n1,Zoë\n2,ö".encode()[:-1], [(1, "Zoë"), (2, "Ã")], "(line 3)"),
    "two encodings of JSON": (
        "a.jsonl",
        '{"a":"Zoë"}\n'.encode() + '{"a":"Jäger"}\n'.encode("cp1252"),
        [("Zoë",), ("Jäger",)],
        "read as cp1252",
    ),
    "tildes": ("a.txt", b"id~v\n1~a, b\n2~c\n", [(1, "a, b"), (2, "c")], "separated by `~`"),
    "one tilde": (
        "a.txt",
        b"v\n~5\n6\n",
        [("~5",), ("6",)],
        "mixed: 1 of 2 values is not a number ('~5'), kept as text",
    ),
    "wide metadata": (
        "a.csv",
        b'"EXTF";700;"";9;;x\nsum;side;text\n119,5;"S";"a"\n7,5;"H";"b"\n',
        [(119.5, "S", "a"), (7.5, "H", "b")],
        "another number of fields above the header (line 1): skipped as metadata",
    ),
    "metadata above quoted delimiters": (
        "a.csv",
        b'"Account";"Bank"\n"Period:";"May"\n\n"day";"text";"amount"\n"2024-01-02";"no. 1; thanks";"3,50"\n'
        b'"2024-01-03";"no. 2; thanks";"4,50"\n"2024-01-04";"no. 3; thanks";"5,25"\n',
        [
            (date(2024, 1, 2), "no. 1; thanks", 3.5),
            (date(2024, 1, 3), "no. 2; thanks", 4.5),
            (date(2024, 1, 4), "no. 3; thanks", 5.25),
        ],
        "skipped as metadata",
    ),
    "narrow metadata": (
        "a.csv",
        b"Report\nFrom:,2024-01-01\n\nid,name,n\n1,a,5\n2,b,6\n",
        [(1, "a", 5), (2, "b", 6)],
        "skipped as metadata",
    ),
    "a short header": ("a.csv", b"a,b\n1,2,3\n4,5,6\n", [], "no name in the header"),
    "one column of numbers": ("a.txt", b"17\n18,5\n20\n1,5\n", [(17.0,), (18.5,), (20.0,), (1.5,)], "no header"),
    "decimal commas without a header": ("a.csv", b"1,5;2,5\n3,5;4,5\n", [(1.5, 2.5), (3.5, 4.5)], "no header"),
    "dates as names": ("a.csv", b"land;01.01.2024\nDE;1,5\nFR;2,5\n", [("DE", 1.5), ("FR", 2.5)], "decimal commas"),
    "a comma in one column": ("a.csv", "n\nZoë\nÄ, b\n".encode("cp1252"), [("Zoë",), ("Ä, b",)], "cp1252"),
    "text as JSON": ("a.json", PLAIN, [(1, "x"), (2, "y")], "the content is delimited text"),
    "JSON with a mark": ("a.json", b'\xef\xbb\xbf[{"a": 1}, {"a": 2}]', [(1,), (2,)], ""),
    "big ids of JSON": ("a.json", b'[{"a": 12345678901234567890}]', [(12345678901234567890,)], "more than 64 bits"),
    "huge numbers of JSON": ("a.json", b'[{"a": 12345678901234567890123}]', [], "need more than 64 bits"),
    "a comment among the rows": (
        "a.csv",
        b"day,n\n2024-01-01,5\n# checked by Ann\n2024-01-03,7\n",
        [(date(2024, 1, 1), 5), (date(2024, 1, 3), 7)],
        "1 row with a comment (line 3): skipped.",
    ),
    "a number sign among the rows": ("a.csv", b"a,n\n#1,5\n#2,7\n", [("#1", 5), ("#2", 7)], ""),
    "lines in quotes": (
        "a.csv",
        b'"id,amt,who"\n"1,10,""Ann, B"""\n"2,20,Cid"\n',
        [(1, 10, "Ann, B"), (2, 20, "Cid")],
        "Each line was in quotes as a whole; they were removed.",
    ),
    "names in quotes": ("a.csv", b'"Last, First"\n"Smith, Jo"\n"Roe, Al"\n', [("Smith, Jo",), ("Roe, Al",)], ""),
    "lists in quotes": ("a.csv", b'tags\n"a,b"\n"c,d"\n', [("a,b",), ("c,d",)], ""),
    "records in a record": ("a.json", b'{"ok": true, "rows": [{"a": 1}, {"a": 2}]}', [], "lists in `rows`"),
    "other zones": ("a.csv", b"id,t\n1,2024-01-02T03:04:05+02:00\n", [], "converted to one zone, UTC"),
    "mixed line ends": ("a.csv", b"id,v\r\n1,a\n2,b\r\n", [(1, "a"), (2, "b")], ""),
    "quotes in quotes": ("a.csv", b'id,v\n1,"say ""hi"", ok"\n2,"a\nb"\n', [(1, 'say "hi", ok'), (2, "a\nb")], ""),
    "ragged": ("a.csv", b"a,b\n1,2\n3\n4,5,6\n", [(1, 2, None), (3, None, None), (4, 5, "6")], "too few fields"),
    "names twice and empty": ("a.csv", b"a,a,,b\n1,2,3,4\n", [(1, 2, 3, 4)], "another column has that name"),
    "no header": ("a.csv", b"1,tea\n2,milk\n", [(1, "tea"), (2, "milk")], "no header"),
    "years as names": ("a.csv", b"land,2019,2020\nDE,1,2\n", [("DE", 1, 2)], "years in order"),
    "header in row 3": ("a.csv", b"Report\nMade 2024\nid,v\n1,5\n2,6\n", [(1, 5), (2, 6)], "skipped as a title"),
    "title with commas": ("a.csv", b"Report,,\n,,\nid,v,w\n1,5,a\n", [(1, 5, "a")], "skipped as a title"),
    "comments": ("a.csv", b"# by X, 2024\n# units: kg, m\nid,v\n1,2\n", [(1, 2)], "2 rows with a comment"),
    "a header with a hash": ("a.csv", b"#id,v\n1,2\n", [(1, 2)], ""),
    "the delimiter for Excel": ("a.csv", b"sep=;\na;b\n1;2\n", [(1, 2)], "skipped"),
    "a total": ("a.csv", b"id,v\nx,10\nTotal,10\n", [("x", 10), ("Total", 10)], "The last row looks like a total"),
    "a total after a blank line": ("a.csv", b"id,v\nx,1\n\nTotal,1\n", [("x", 1), ("Total", 1)], "1 blank line"),
    "european": ("a.csv", b"id;v\n1;1.234,56\n2;7,5\n", [(1, 1234.56), (2, 7.5)], "decimal commas"),
    "booleans": ("a.csv", b"id,v\n1,yes\n2,no\n", [(1, True), (2, False)], "true or false"),
    "codes": ("a.csv", b"zip,tel\n00123,+4915112345\n04567,0151\n", [("00123", "+4915112345"), ("04567", "0151")], ""),
    "science": ("a.csv", b"id,v\n1,1.5e5\n2,2.5E-3\n", [(1, 150000.0), (2, 0.0025)], ""),
    "nulls": ("a.csv", b"a,b,c,d\nNaN,NULL,N/A,-\n1.5,2,3,4\n", [(None,) * 4, (1.5, 2, 3, 4)], "null marker ('N/A')"),
    "zones": ("a.csv", b"id,t\n1,2024-01-02T03:04:05Z\n2,2024-01-02 03:04:05\n", [], "without a zone were read as UTC"),
    "one column": ("a.csv", b"name\nA\nB\n", [("A",), ("B",)], ""),
    "a header only": ("a.csv", b"a,b\n", [], ""),
    "pipes": ("a.txt", b"a|b\n1|x\n", [(1, "x")], ""),
    "changing types": (
        "a.jsonl",
        b'{"a":1}\n{"a":"two"}\n{"a":3.5}\n',
        [("1",), ('"two"',), ("3.5",)],
        "2 numbers (`1`), 1 text",
    ),
    "a broken line of JSON": ("a.jsonl", b'{"a":1}\n{"a":\n{"a":3}\n', [(1,), (3,)], "broken JSON (line 2)"),
    "gzip": ("a.csv.gz", gzip.compress(PLAIN), [(1, "x"), (2, "y")], ""),
    "zstandard": ("a.csv.zst", zstd(PLAIN), [(1, "x"), (2, "y")], ""),
    "gzip under another name": ("a.csv", gzip.compress(PLAIN), [(1, "x"), (2, "y")], ""),
    "no ending": ("data", PLAIN, [(1, "x"), (2, "y")], "the content is delimited text"),
    "unknown ending": ("a.dat", b'{"a": 1}\n{"a": 2}\n', [(1,), (2,)], "the content is JSON"),
    "JSON as text": ("a.txt", b'[{"a": 1}]', [(1,)], "the content is JSON"),
    "text as workbook": ("a.xls", b"a\tb\n1\tx\n", [(1, "x")], "the content is delimited text"),
}


@pytest.mark.parametrize("name", ABLE)
def test_a_messy_file_is_loaded(tmp_path: Path, name: str) -> None:
    file, content, expected, said = ABLE[name]
    (tmp_path / file).write_bytes(content)
    (loaded,) = read(tmp_path / file)
    assert rows(loaded) == expected or not expected
    assert said in " ".join(loaded.report.summary())
    assert bool(loaded.report.summary()) == bool(said)


def test_text_at_the_end_of_a_million_numbers_is_noted(tmp_path: Path) -> None:
    numbers = "".join(f"{i},{i}\n" for i in range(1_000_000))
    (tmp_path / "a.csv").write_text(f"id,v\n{numbers}1000000,oops\n")
    (loaded,) = read(tmp_path / "a.csv")
    assert loaded.row_count == 1_000_001
    assert "1 of 1,000,001 values is not a number ('oops')" in " ".join(loaded.report.summary())


@pytest.mark.parametrize(
    ("usual", "late"),
    [("123", "00123"), ("123", '"00123"'), ("123", "+4912345678"), ("123", "1_000"), ("1.5", "007.5"), ("true", "1")],
)
def test_a_code_below_the_sample_makes_the_column_text(tmp_path: Path, usual: str, late: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,v\n" + f"1,{usual}\n" * 25_000 + f"2,{late}\n" + f"1,{usual}\n" * 25_000)
    (table,) = read(path)
    found = rows(table)
    assert {row for row in found if row[0] == 1} == {(1, usual)}
    assert found[25_000] == (2, late.strip('"'))
    assert len(found) == 50_001


@pytest.mark.parametrize("late", ["2024-01-05 10:00:00+02:00", "2024-01-05T10:00:00+02", "2024-01-05T08:00:00Z"])
@pytest.mark.parametrize("early", [3_000, 25_000])
def test_a_late_time_zone_is_applied_and_told(tmp_path: Path, late: str, early: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,seen\n" + "1,2024-01-05 10:00:00\n" * early + f"2,{late}\n")
    (table,) = read(path)
    found = duckdb.sql(f"SELECT DISTINCT id, epoch(seen), typeof(seen) FROM '{table.path}' ORDER BY id").fetchall()
    morning, zoned = datetime(2024, 1, 5, tzinfo=UTC).timestamp(), "TIMESTAMP WITH TIME ZONE"
    assert found == [(1, morning + 10 * 3600, zoned), (2, morning + 8 * 3600, zoned)]
    assert "its values without a zone were read as UTC" in " ".join(table.report.summary())


def test_a_late_time_zone_in_a_file_with_faults_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    early = "Zürich,2024-01-05 10:00:00\n" * 25_000
    path.write_bytes(f"name,seen\n{early}Bern,2024-01-05 10:00:00+02:00\n".encode("cp1252"))
    (table,) = read(path)
    assert duckdb.sql(f"SELECT date_diff('hour', min(seen), max(seen)) FROM '{table.path}'").fetchall() == [(2,)]


def test_a_late_zone_of_a_time_of_day_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,at\n" + "1,10:00:00\n" * 25_000 + "2,10:00:00+02:00\n")
    (table,) = read(path)
    assert rows(table)[-1] == (2, "10:00:00+02:00")
    assert "not a time" in " ".join(table.report.summary())


def test_a_column_that_is_empty_at_first_has_the_type_of_its_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n" + "".join(f"{i},\n" for i in range(30_000)) + "30000,7\n")
    (loaded,) = read(tmp_path / "a.csv")
    assert duckdb.sql(f"SELECT max(v), typeof(max(v)) FROM '{loaded.path}'").fetchall() == [(7, "BIGINT")]


UNABLE: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.csv", b"", "is empty"),
    "blank": ("a.csv", b"\n\n", "is empty"),
    "fixed width": ("a.txt", b"id   name    v\n1    tea     5\n2    milk   60\n3    rice  700\n", "fixed width"),
    "garbage": ("a.csv", bytes(range(256)) * 20, "binary data"),
    "a web page": ("a.csv", b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
    "XML": ("a.xml", b"<rows>\n  <row><a>1</a></row>\n</rows>\n", "XML"),
    "an image": ("a.csv", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "an image"),
    "a database": ("a.csv", b"SQLite format 3\0" + b"\0" * 84, "a SQLite database"),
    "cut gzip": ("a.csv.gz", gzip.compress(PLAIN * 999)[:60], "not a whole gzip file"),
    "cut zstandard": ("a.csv.zst", zstd(PLAIN * 999)[:20], "not a whole zstd file"),
    "no Parquet": ("a.parquet", b"PAR1 and no more", "not a readable Parquet file"),
    "no zip": ("a.zip", b"PK\x03\x04 and no more", "not a readable"),
    "no JSON": ("a.json", b"hello", "holds no records"),
}


@pytest.mark.parametrize("name", UNABLE)
def test_an_unreadable_file_is_refused_with_a_reason(tmp_path: Path, name: str) -> None:
    file, content, reason = UNABLE[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(EtudeError, match=reason) as caught:
        read(tmp_path / file)
    assert caught.value.hint


def test_a_workbook_has_sheets_dates_and_money(tmp_path: Path) -> None:
    sheets = {
        "Sales": [["Sales of 2024"], [], ["id", "day", "sum"], [1, date(2024, 1, 2), "$5.50"], [2, None, "$6"]],
        "Notes": [["x", "y"], [1, "n/a"], [2, 3]],
    }
    sales, notes = read(write_workbook(tmp_path / "book.xlsx", sheets))
    assert rows(sales) == [(1, date(2024, 1, 2), 5.5), (2, None, 6.0)]
    assert "the currency was left out" in " ".join(sales.report.summary())
    assert rows(notes) == [(1, None), (2, 3)]


def test_durations_of_a_workbook_are_hours(tmp_path: Path) -> None:
    worked = [timedelta(hours=7, minutes=30), timedelta(hours=26, minutes=15), timedelta(0)]
    cells: list[list[Any]] = [
        ["who", "worked", "late", "mixed"],
        ["a", worked[0], "n/a", worked[0]],
        ["b", worked[1], worked[1], "?!"],
    ]
    (table,) = read(write_workbook(tmp_path / "a.xlsx", {"s": [*cells, ["c", worked[2], worked[0], worked[1]]]}))
    assert rows(table) == [
        ("a", 7.5, None, "7:30:00"),
        ("b", 26.25, 26.25, "?!"),
        ("c", 0.0, 7.5, "26:15:00"),
    ]
    said = " ".join(table.report.summary())
    assert "Column `worked` is DOUBLE: its durations were read as hours, so 7:30:00 is 7.5." in said
    assert "so 26:15:00 is 26.25, and 1 value is a null marker ('n/a')" in said


def test_a_wrong_ending_does_not_matter(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "list": [[1, 2]], "none": pa.nulls(1)}), tmp_path / "p.csv")
    (loaded,) = read(tmp_path / "p.csv")
    assert rows(loaded) == [(1, [1, 2], None)]
    assert loaded.report.summary() == ["The name has another ending, but the content is Parquet."]
    (loaded,) = read(write_workbook(tmp_path / "w.csv", {"s": [["a"], [1]]}))
    assert rows(loaded) == [(1,)]


# --- archives -----------------------------------------------------------------------------------------------


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


def test_each_file_of_an_archive_is_a_table(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"p": [7]}), sink)
    files = {"x/orders.csv": PLAIN, "b.json": b'{"x": 1}', "c.parquet": bytes(sink.getvalue()), "readme.md": b"hi"}
    loaded = read(zipped(tmp_path / "shop.zip", files))
    assert {t.table: rows(t) for t in loaded} == {
        "shop_orders": [(1, "x"), (2, "y")],
        "shop_b": [(1,)],
        "shop_c": [(7,)],
    }
    assert "readme.md" in " ".join(loaded[0].report.summary())
    (alone,) = read(zipped(tmp_path / "one.zip", {"orders.csv": PLAIN}))
    assert alone.table == "one"


def test_a_broken_file_of_an_archive_does_not_hide_the_others(tmp_path: Path) -> None:
    (loaded,) = read(zipped(tmp_path / "shop.zip", {"a.csv": PLAIN, "b.csv": b""}))
    assert loaded.row_count == 2
    assert "`b.csv` was not loaded" in " ".join(loaded.report.summary())


BOMB = b"a,b\n" + b"0,0\n" * (archive.SMALL // 4)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.txt"])
def test_a_compressed_file_that_grows_too_much_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes], name: str
) -> None:
    packed = pack(BOMB)
    alone = tmp_path / f"{name}.gz"
    alone.write_bytes(packed)
    for path in (alone, zipped(tmp_path / "a.zip", {f"{name}.gz": packed, "b.csv": PLAIN})):
        with pytest.raises(LimitExceeded, match="grows more than 200-fold"):
            read(path)


def encrypt(path: Path) -> None:
    """Set the bit that marks the first file as encrypted, in its own header and in the directory."""
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("files", "spoil", "error", "reason"),
    [
        ({"../../etc/a.csv": PLAIN}, None, Invalid, "leads out of the archive"),
        ({"/etc/a.csv": PLAIN}, None, Invalid, "leads out of the archive"),
        ({"a.csv": PLAIN}, encrypt, Invalid, "is encrypted"),
        ({"a.csv": b"0" * (archive.SMALL + 1)}, None, LimitExceeded, "grows more than"),
        ({f"{i}.csv": b"" for i in range(archive.MOST_MEMBERS + 1)}, None, LimitExceeded, "holds 1,001 files"),
        ({"readme.md": b"hi"}, None, Invalid, "holds no file that can be read"),
        ({}, None, Invalid, "holds no file|not a readable"),
    ],
)
def test_an_archive_is_refused_with_a_reason(
    tmp_path: Path,
    files: dict[str, bytes],
    spoil: Callable[[Path], None] | None,
    error: type[EtudeError],
    reason: str,
) -> None:
    path = zipped(tmp_path / "a.zip", files)
    if spoil is not None:
        spoil(path)
    with pytest.raises(error, match=reason):
        read(path)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p != path]


OLD_ENCODINGS = {
    "cp932": "名前,金額\n田中,100\n鈴木,200\n",
    "euc_jp": "商品,価格\nりんご,100\nバナナの皮,200\n",
    "gb18030": "姓名,金额\n张三,100\n李四,200\n",
    "big5": "姓名,金額\n張三,100\n李四,200\n",
    "cp949": "이름,금액\n김철수,100\n이영희,200\n",
    "cp1251": "имя,сумма\nИван Петров,100\nАнна Смирнова,200\n",  # noqa: RUF001
}


@pytest.mark.parametrize("encoding", OLD_ENCODINGS)
def test_old_encodings_are_told_by_their_bytes(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(OLD_ENCODINGS[encoding].encode(encoding))
    (table,) = read(file)
    name, amount = OLD_ENCODINGS[encoding].splitlines()[0].split(",")
    assert [c[0] for c in duckdb.sql(f"DESCRIBE FROM read_parquet('{table.path}')").fetchall()] == [name, amount]
    assert [row[1] for row in rows(table)] == [100, 200]
    assert table.report.summary() == [f"The text is not UTF-8; it was read as {encoding}."]


@pytest.mark.parametrize("text", ["it,s\nIt\u2019s Bob\u2019s,“Zoë” \u2013 5 €\n", "größe,ça\nÀÉ ÜÖ,Ærøskøbing\n"])
def test_accents_and_quotes_of_western_text_are_not_doubted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode("cp1252"))
    (table,) = read(file)
    assert list(rows(table)[0]) == text.splitlines()[1].split(",")
    assert "letters" not in " ".join(table.report.summary())


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1253", "όνομα,πόλη\nΓιώργος,Αθήνα\n"),  # noqa: RUF001
        ("cp1250", "imię,miasto\nStanisław,Kłodzko\n"),
    ],
)
def test_a_doubtful_encoding_is_noted_and_an_option_settles_it(tmp_path: Path, encoding: str, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(text.encode(encoding))
    (table,) = read(file)
    assert "do not look like those of cp1252" in " ".join(table.report.summary())
    assert "the option `encoding` of the source" in " ".join(table.report.summary())
    (found,) = discover(str(file), options=(("encoding", encoding),))
    (table,) = load(found, tmp_path / "again")
    assert list(rows(table)[0]) == text.splitlines()[1].split(",")
    assert table.report.encoding == encoding
    (found,) = discover(str(file), options=(("encoding", "klingon"),))
    with pytest.raises(Invalid, match="cannot be `klingon`"):
        load(found, tmp_path / "never")


SHAPES: dict[str, tuple[str, str, list[tuple[Any, ...]], str]] = {
    "a list with bars": (
        "a.txt",
        "---------------------\n|Doc  |Posting   |  Amount|\n---------------------\n|00012|31.12.2023|1.234,50-|\n"
        "|00013|02.01.2024|  999,00|\n---------------------\n",
        [("00012", date(2023, 12, 31), -1234.5), ("00013", date(2024, 1, 2), 999.0)],
        "The table is drawn with bars and lines",
    ),
    "output of a database": (
        "a.txt",
        "+----+------+\n| id | name |\n+----+------+\n|  1 | Ann  |\n|  2 |      |\n+----+------+\n",
        [(1, "Ann"), (2, None)],
        "The table is drawn with bars and lines",
    ),
    "the log of a web server": (
        "a.log",
        '1.2.3.4 - - [10/Oct/2023:13:55:36 +0200] "GET /a,b HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11; Linux)"\n'
        '5.6.7.8 - bob [10/Oct/2023:13:56:01 +0000] "POST / HTTP/1.1" 404 - "-" "curl/8"\n',
        [
            (
                *("1.2.3.4", None, None, datetime(2023, 10, 10, 11, 55, 36, tzinfo=UTC), "GET /a,b HTTP/1.1", 200, 5),
                *(None, "Mozilla/5.0 (X11; Linux)", None),
            ),
            (
                *("5.6.7.8", None, "bob", datetime(2023, 10, 10, 13, 56, 1, tzinfo=UTC), "POST / HTTP/1.1", 404, None),
                *(None, "curl/8", None),
            ),
        ],
        "an entry in the log of a web server",
    ),
    "units": (
        "a.csv",
        "time,speed\ns,m/s\n0,1.5\n1,2.5\n",
        [(0, 1.5), (1, 2.5)],
        "holds units, or further names, and no values (`time` 's', `speed` 'm/s'); it was left out",
    ),
    "markers are no units": ("a.csv", "a,b\nNA,NA\n0,1.5\n1,2.5\n", [(None, None), (0, 1.5), (1, 2.5)], "null marker"),
    "no header in text": (
        "a.csv",
        "Ann,Lisbon\nBob,Porto\nCy,Faro\n",
        [("Bob", "Porto"), ("Cy", "Faro")],
        "The first line was read as the names of the columns (`Ann`, `Lisbon`), but nothing tells it from the rows",
    ),
    "a name among the values": (
        "a.csv",
        "Ann,Lisbon\nBob,Porto\nCy,Lisbon\n",
        [("Bob", "Porto"), ("Cy", "Lisbon")],
        "`Lisbon` is also a value of its column",
    ),
    "usual names": ("a.csv", "First name,City\nBob,Porto\n", [("Bob", "Porto")], ""),
    "values that repeat": ("a.csv", "Halm\n" + "x\ny\n" * 5, [("x",), ("y",)] * 5, ""),
    "a second table": (
        "a.csv",
        "month,sales\nJan,100\nFeb,120\n\nregion,manager,quota\nNorth,Ann,5\n",
        [],
        "Line 5 comes after a blank line and looks like the header of another table",
    ),
    "a second table as wide": (
        "a.csv",
        "month,sales\nJan,100\nFeb,120\n\nregion,quota\nNorth,5\n",
        [],
        "Line 5 comes after a blank line",
    ),
    "an empty row above": (
        "a.csv",
        "\n,,\nid,amt,x\n1,10,a\n",
        [(1, 10, "a")],
        "1 row with no value above the header (line 2): skipped",
    ),
    "invisible characters in a name": (
        "a.csv",
        "\u200bid,total\u00a0sales\n1,2\n",
        [(1, 2)],
        "Column `\\u200bid` is named `id`: invisible characters",
    ),
    "records by key": (
        "a.json",
        '{"u1": {"n": 1}, "u2": {"n": 2}}',
        [({"n": 1}, {"n": 2})],
        "one object that holds 2 records of one shape (`u1`, `u2`)",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_text(tmp_path: Path, name: str) -> None:
    file, content, expected, part = SHAPES[name]
    (tmp_path / file).write_text(content, encoding="utf-8")
    (table,) = read(tmp_path / file)
    found = [tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in rows(table)]
    assert not expected or found == expected
    said = " ".join(table.report.summary())
    assert part in said
    assert part or not said


def test_a_header_of_two_rows_with_units_is_joined(tmp_path: Path) -> None:
    file = tmp_path / "a.xlsx"
    write_workbook(
        file,
        {
            "s": [
                ["", 2023, "", 2024],
                ["Item", "units", "amount", "units"],
                ["", "pcs", "EUR", "pcs"],
                ["A", 1, 10.5, 2],
                ["B", 3, 30.5, 4],
            ]
        },
    )
    (table,) = read(file)
    assert rows(table) == [("A", 1, 10.5, 2), ("B", 3, 30.5, 4)]
    assert "(`2023 units` 'pcs', `2023 amount` 'EUR', `2024 units` 'pcs'); it" in " ".join(table.report.summary())


def test_durations_in_parquet_have_a_unit_in_the_notes(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"took": pa.array([timedelta(seconds=1)], pa.duration("ms"))}), file)
    (table,) = read(file)
    assert table.report.summary() == ["Column `took` is BIGINT: its durations are whole numbers of milliseconds."]


def read_folder(folder: Path, **files: str) -> LoadedTable:
    (folder / "t").mkdir(parents=True)
    for name, content in files.items():
        (folder / "t" / f"{name}.csv").write_text(content)
    (found,) = discover(str(folder))
    (table,) = load(found, folder.parent / "out")
    return table


def test_files_with_and_without_a_zone_are_combined_as_one_zone(tmp_path: Path) -> None:
    table = read_folder(
        tmp_path / "in_",
        a="ts,v\n2024-01-01 10:00:00+02:00,1\n",
        b="ts,v\n2024-01-01 10:00:00,2\n",
    )
    assert [row[0].astimezone(UTC).hour for row in rows(table)] == [8, 10]
    (said,) = table.report.summary()
    assert "its values without a zone were read as UTC" in said


def test_notes_of_one_file_that_are_untrue_for_all_are_left_out(tmp_path: Path) -> None:
    table = read_folder(tmp_path / "in_", a="id,Ok\n1,yes\n2,no\n", b="id,ok\n3,1\n4,0\n")
    (said,) = table.report.summary()
    assert "`Ok` is text" in said


def test_a_whole_number_that_a_double_rounds_is_noted(tmp_path: Path) -> None:
    table = read_folder(tmp_path / "in_", a="id,v\n9007199254740993,1\n", b="id,v\n0.5,1\n")
    assert "it keeps 15 to 17 digits of its values ('9007199254740993')" in " ".join(table.report.summary())
    file = tmp_path / "one.csv"
    file.write_text("id,v\n9007199254740993,1\n0.5,2\n")
    assert "keeps 15 to 17 digits" in " ".join(read(file)[0].report.summary())


def test_types_that_differ_between_parquet_files_are_noted(tmp_path: Path) -> None:
    folder = tmp_path / "in_"
    (folder / "t").mkdir(parents=True)
    pq.write_table(pa.table({"x": pa.array([2**53 + 1]), "n": pa.array([1], pa.int32())}), folder / "t" / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([0.5]), "n": pa.array([1], pa.int64())}), folder / "t" / "b.parquet")
    (found,) = discover(str(folder))
    (table,) = load(found, tmp_path / "out")
    (said,) = table.report.summary()
    assert "`x` has several types in the files (int64, double)" in said
    assert "more than 15 digits may be rounded" in said
