"""Dates and numbers as people write them: each column decides, and the report says what was assumed."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from etude.app import App
from etude.errors import Invalid
from etude.sources.files.column_types import STACKED_ROWS, refine_column_types
from etude.sources.files.load import LoadedTable, discover, load

Options = tuple[tuple[str, str], ...]


def column(folder: Path, *values: str, options: Options = (), header: str = "v") -> tuple[list[Any], str]:
    """Load a file with the values in its second column; return them, and what the report says."""
    file = folder / "data.csv"
    quoted = (value.replace('"', '""') for value in values)
    file.write_text(f"id,{header}\n" + "".join(f'{i},"{value}"\n' for i, value in enumerate(quoted)))
    loaded = load_one(file, options)
    found = duckdb.sql(f"SELECT {header} FROM '{loaded.path}' ORDER BY id").fetchall()
    return [row[0] for row in found], " ".join(loaded.report.summary())


def load_one(file: Path, options: Options = ()) -> LoadedTable:
    (found,) = discover(str(file), options=options)
    (loaded,) = load(found, file.parent / "out")
    return loaded


def test_a_value_decides_between_day_and_month_for_the_whole_column(tmp_path: Path) -> None:
    values, said = column(tmp_path, "03/04/2024", "31/12/2023")
    assert values == [date(2024, 4, 3), date(2023, 12, 31)]
    assert "day/month/year, because '31/12/2023' can be nothing else" in said
    values, said = column(tmp_path, "03/04/2024", "12/31/2023", "NA")
    assert values == [date(2024, 3, 4), date(2023, 12, 31), None]
    assert "month/day/year, because '12/31/2023' can be nothing else" in said


def test_the_value_that_decides_may_come_late(tmp_path: Path) -> None:
    values, said = column(tmp_path, *["03/04/2024"] * 30_000, "12/31/2023")
    assert values[0] == date(2024, 3, 4)
    assert "month/day/year" in said


def test_ambiguous_dates_follow_another_column_then_the_option_then_the_default(tmp_path: Path) -> None:
    values, said = column(tmp_path, "03/04/2024", "05/06/2024")
    assert values[0] == date(2024, 4, 3)
    assert "may be read in two ways" in said
    assert "the option `dates=mdy` of the source changes that" in said
    values, said = column(tmp_path, "03/04/2024", "05/06/2024", options=(("dates", "mdy"),))
    assert values[0] == date(2024, 3, 4)
    assert "as the option `dates` says" in said
    file = tmp_path / "two.csv"
    file.write_text("id,a,b\n1,03/04/2024,01/02/2024\n2,12/31/2024,03/04/2024\n")
    loaded = load_one(file)
    assert duckdb.sql(f"SELECT b FROM '{loaded.path}'").fetchall() == [(date(2024, 1, 2),), (date(2024, 3, 4),)]
    assert "like column `a`" in " ".join(loaded.report.summary())


@pytest.mark.parametrize(
    ("values", "first", "said"),
    [
        (["03.04.2024 10:20", "05.06.2024 11:30:05.5"], datetime(2024, 4, 3, 10, 20), "day/month/year"),
        (["1/2/2024 3:04 PM", "1/15/2024 11:04 AM"], datetime(2024, 1, 2, 15, 4), "month/day/year"),
        (["03/04/24", "05/06/99"], date(2024, 4, 3), "years of two digits are 1969 to 2068"),
        (["2 Jan 2024", "15 Feb 2023"], date(2024, 1, 2), "by the names of the months"),
        (["January 2, 2024", "March 3, 2024"], date(2024, 1, 2), "by the names of the months"),
        (["2024/01/02", "2024/1/3"], date(2024, 1, 2), ""),
        (["4,653,027", "12"], 4653027, "commas between its digits were left out"),
        (["$3,097.78", "$5.00", "($7.10)"], 3097.78, "the currency was left out"),
        (["60%", "12.5%"], 60.0, "so 60 means 60%"),
        (["$1,234", "$5"], 1234, "commas between its digits were left out"),
        (["€ 1.234,56", "7 €"], 1234.56, "its decimal commas were read as such"),
        (["1.234.567", "12.500"], 1234567, "dots between its digits were left out"),
        (["1 234,56", "12"], 1234.56, "spaces between its digits were left out"),
        (["1'234.50", "5"], 1234.5, "apostrophes between its digits were left out"),
        (["yes", "no"], True, "its values were read as true or false ('yes', 'no')"),
        (["0x1F", "0x2A"], 31, "hexadecimal"),
        (["1.5", "NaN"], 1.5, "1 of its values was a null marker ('NaN')"),
        (["0.1234567890123456789", "2.5"], 0.12345678901234568, "keeps 15 to 17 digits"),
        (["1E10", "2.5"], 1e10, "powers of ten"),
        (["1.5E10", "2e+05"], 1.5e10, ""),
        (["($7.10)", "$5.00"], -7.1, "numbers in parentheses were read as negative"),
        (["1.234,50-", "7,25"], -1234.5, "numbers with a minus at the end were read as negative"),
        (["1 234,50", "7,25"], 1234.5, "its decimal commas were read as such"),
    ],
)
def test_values_that_change_are_noted(tmp_path: Path, values: list[str], first: Any, said: str) -> None:
    found, report = column(tmp_path, *values)
    assert found[0] == first
    assert type(found[0]) is type(first)
    assert said in report
    assert bool(report) == bool(said)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["03/14/2024", "14/03/2024"], "dates with the day first and with the month first"),
        (["2024-01-02", "03/04/2024", "7 May 2024"], "dates in several styles"),
        (["31/02/2024", "01/01/2024"], "'31/02/2024' is not a date"),
        (["20-00-01", "30-11-12"], "not certain which part is the year"),
        (["1,234", "2,345"], "may be thousands or decimals"),
        (["$5", "€6"], "several currencies"),
        (["60%", "0.5"], "only some numbers have a percent sign"),
        (["12E5", "7E2", "45"], "'12E5', '7E2' may be codes or powers of ten"),
        (["12E5", "NA"], "'12E5' may be codes or powers of ten"),
        (["2024-01-02"] * 9 + ["soon"], "1 of 10 values is not a date ('soon')"),
        (["2-", "1", "3-"], ""),
        (["00123", "04567"], ""),
        (["+4915112345", "+4915112346"], ""),
        (["555 123 456", "555 123 457"], "may be those of thousands or of codes"),
        (["1.2.3", "1.2.4"], ""),
        (["10.0.0.1", "10.0.0.2"], ""),
        (["5 kg", "6 kg"], "numbers with a unit ('5 kg', '6 kg')"),
        (["1st", "2nd", "3rd", "4th"], ""),
        (["2024-01", "2024-02"], ""),
        (["9" * 45, "1"], ""),
    ],
)
def test_values_that_stay_text(tmp_path: Path, values: list[str], said: str) -> None:
    found, report = column(tmp_path, *values)
    assert found == values
    assert said in report
    assert bool(report) == bool(said)


def test_the_option_decimal_settles_what_a_comma_means(tmp_path: Path) -> None:
    assert column(tmp_path, "1,234", "2,345", options=(("decimal", "."),))[0] == [1234, 2345]
    assert column(tmp_path, "1,234", "2,345", options=(("decimal", ","),))[0] == [1.234, 2.345]


def test_a_late_code_or_a_late_fraction_decides_for_the_whole_column(tmp_path: Path) -> None:
    values, said = column(tmp_path, *["12"] * 2_000, "12E5")
    assert (values[0], values[-1]) == ("12", "12E5")
    assert "may be codes" in said
    values, _ = column(tmp_path, *["12E5"] * 2_000, "0.5")
    assert values[-1] == 0.5


def test_dots_group_digits_beside_decimal_commas(tmp_path: Path) -> None:
    file = tmp_path / "de.csv"
    file.write_text("id;price;amount\n1;1.234,56;1.000\n2;7,5;2.500\n3;12,00;3\n")
    loaded = load_one(file)
    assert duckdb.sql(f"SELECT amount FROM '{loaded.path}'").fetchall() == [(1000,), (2500,), (3,)]
    assert "was read like column `price`" in " ".join(loaded.report.summary())


def test_dots_that_may_group_digits_are_told(tmp_path: Path) -> None:
    def read(content: str, encoding: str = "utf-8", **options: str) -> tuple[list[Any], str]:
        (tmp_path / "a.csv").write_bytes(content.encode(encoding))
        loaded = load_one(tmp_path / "a.csv", tuple(options.items()))
        found = duckdb.sql(f"SELECT v FROM '{loaded.path}' ORDER BY id").fetchall()
        return [row[0] for row in found], " ".join(loaded.report.summary())

    dotted = "id;v\n1;1.234\n2;2.500\n3;10.750\n"
    note = "'1.234', '2.500', '10.750' may be thousands or decimals, kept as text (the option `decimal`"
    assert read(dotted)[0] == ["1.234", "2.500", "10.750"]
    assert note in read(dotted)[1]
    assert "kept as text (the option `decimal`" in read(dotted + "4;3.000;Zürich\n", "cp1252")[1]
    assert "(write numbers such as 1234.5 in the file to be sure)" in read(dotted, documents="true")[1]
    assert read(dotted, decimal=",")[0] == [1234, 2500, 10750]
    assert read(dotted, decimal=".") == ([1.234, 2.5, 10.75], "")
    for sure in ("4;3.5\n", "4;0.125\n", "4;1234.125\n"):
        assert read(dotted + sure)[1] == ""
    assert read(dotted + "4;1.111\n" * 2_000 + "5;1.5\n")[1] == ""
    assert read(dotted.replace(";", ","))[1] == ""
    assert read("id;v;w\n1;1.234;0.5\n2;2.500;7.5\n")[1] == ""


@pytest.mark.parametrize("words", [("NO", "NO"), ("no", "NO", ""), ("yes", "YES"), ("F",), ("t", "T")])
def test_a_word_without_its_opposite_is_text(tmp_path: Path, words: tuple[str, ...]) -> None:
    values, said = column(tmp_path, *words)
    assert values == [word or None for word in words]
    assert "without its opposite may be a word or a code, kept as text" in said
    assert "true or false" not in said


@pytest.mark.parametrize("words", [("yes", "no"), ("F", "T"), ("true", "true"), ("False",), ("TRUE", "yes")])
def test_words_that_are_true_or_false_are_typed(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert all(isinstance(value, bool) for value in column(tmp_path, *words)[0])


def test_files_of_one_table_tell_together_whether_words_are_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    for month, word in (("jan", "no"), ("feb", "yes")):
        (tmp_path / "sales" / f"{month}.csv").write_text(f"id,paid\n1,{word}\n2,{word}\n")
    (found,) = discover(str(tmp_path))
    (loaded,) = load(found, tmp_path / "out")
    assert duckdb.sql(f"SELECT DISTINCT typeof(paid) FROM '{loaded.path}'").fetchall() == [("BOOLEAN",)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["\u22125", "3", "\u20133"], [-5, 3, -3]),
        (["\u22125.25", "3", "n/a", "\u2013"], [-5.25, 3.0, None, None]),
        (["\u22121.234,50", "3,5", "\u2212\u20ac 5,00"], [-1234.5, 3.5, -5.0]),
        (["$\u22123.25", "\u2013$1,000.50", "$7.10"], [-3.25, -1000.5, 7.1]),
        (["7"] * 25_000 + ["\u22127"], [7] * 25_000 + [-7]),
    ],
)
def test_a_minus_as_typesetters_write_it_is_a_minus(tmp_path: Path, values: list[str], expected: list[Any]) -> None:
    found, said = column(tmp_path, *values)
    assert found == expected
    minus = next(value for value in values if value[0] in "\u2212\u2013$" and len(value) > 1)
    assert f"numbers such as {minus!r} were read as negative" in said


@pytest.mark.parametrize("values", [["\u22120123", "\u201305"], ["2020\u20132021", "2021\u20132022"]])
def test_other_dashes_stay(tmp_path: Path, values: list[str]) -> None:
    assert column(tmp_path, *values)[0] == values


def test_options_of_a_source_reach_the_files_and_queries_tell_the_notes_of_their_columns(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("id,day\n1,03/04/2024\n")
    with App(home=tmp_path / "home", record=False, sources={"us": _spec(tmp_path, dates="mdy")}) as app:
        plain = app.sql(str(tmp_path / "sales.csv"), "SELECT day FROM sales")
        assert plain.rows() == [(date(2024, 4, 3),)]
        assert "may be read in two ways" in " ".join(plain.notes)
        assert app.sql(str(tmp_path / "sales.csv"), "SELECT day FROM sales").notes == plain.notes
        assert app.sql(str(tmp_path / "sales.csv"), "SELECT id, count(*) FROM sales GROUP BY id").notes == ()
        assert app.sql("us", "SELECT day FROM sales").rows() == [(date(2024, 3, 4),)]
        assert "as the option `dates` says" in " ".join(app.catalog("us").tables[0].notes)


@pytest.mark.parametrize("options", [{"dates": "ymd"}, {"decimal": ";"}, {"date": "mdy"}])
def test_an_unknown_option_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    (tmp_path / "sales.csv").write_text("id,day\n1,03/04/2024\n")
    us = _spec(tmp_path, **options)
    with App(home=tmp_path / "home", record=False, sources={"us": us}) as app, pytest.raises(Invalid):
        app.catalog("us")


def _spec(folder: Path, **options: str) -> dict[str, Any]:
    return {"url": str(folder / "sales.csv"), "options": options}


def test_times_that_stay_text_are_told(tmp_path: Path) -> None:
    values, said = column(tmp_path, "12:30", "25:00:00")
    assert values == ["12:30", "25:00:00"]
    assert "'25:00:00' is not a time of day, so all are kept as text" in said
    values, said = column(tmp_path, "08:15", "09:30", "closed")
    assert values == ["08:15", "09:30", "closed"]
    assert "1 of 3 values is not a time ('closed'), kept as text" in said
    values, said = column(tmp_path, "9:30 am", "11:45 pm")
    assert values == ["9:30 am", "11:45 pm"]
    assert "times such as '9:30 am', '11:45 pm' are kept as text" in said


def test_a_small_file_of_many_columns_takes_little_memory(tmp_path: Path) -> None:
    """Each expression of a statement takes memory in each thread, however few rows there are."""
    file = tmp_path / "wide.csv"
    file.write_text(";".join(f"c{i}" for i in range(100)) + "\n" + (";".join(["1.234,56"] * 100) + "\n") * 3)
    code = (
        "import resource, sys; from pathlib import Path; from etude.sources.files.load import discover, load\n"
        "(found,) = discover(sys.argv[1]); (loaded,) = load(found, Path(sys.argv[2]))\n"
        "most = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(loaded.path, int(most) // 1024, resource.getrusage(resource.RUSAGE_SELF).ru_utime)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    path, megabytes, seconds = done.stdout.rsplit(maxsplit=2)
    assert duckdb.sql(f"SELECT DISTINCT c0, c99 FROM '{path}'").fetchall() == [(1234.56, 1234.56)]
    assert int(megabytes) < 300
    assert float(seconds) < 6  # before: some 20; alone about 1.5


@pytest.mark.parametrize("rows", [3, STACKED_ROWS + 1])
def test_columns_without_values_are_counted_as_such(tmp_path: Path, rows: int) -> None:
    staged = tmp_path / "a.parquet"
    values = "'1.234,56' AS a, CAST(NULL AS VARCHAR) AS b, 'NA' AS c"
    con = duckdb.connect()
    con.execute(f"COPY (SELECT {values} FROM range({rows})) TO '{staged}'")
    counted, notes = refine_column_types(con, staged, tmp_path / "b.parquet")
    assert counted == rows
    assert [note.column for note in notes] == ["a"]
    assert con.execute(f"SELECT DISTINCT a, b, c FROM '{tmp_path}/b.parquet'").fetchall() == [(1234.56, None, "NA")]


@pytest.mark.parametrize("share", ["12,5 %", "12,50 €", "€ 12,50", "-1.200,5"])
@pytest.mark.parametrize("delimiter", ["\t", ";"])
def test_decimal_commas_beside_a_sign_tell_that_dots_group_digits(tmp_path: Path, share: str, delimiter: str) -> None:
    rows = [["land", "share", "amount"], ["A", share, "1.000"], ["B", share, "250"], ["C", "", "12.345"]]
    file = tmp_path / "f.csv"
    file.write_text("\n".join(map(delimiter.join, rows)) + "\n", encoding="utf-8")
    assert duckdb.sql(f"SELECT amount FROM '{load_one(file).path}'").fetchall() == [(1000,), (250,), (12345,)]


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (["31.03.2025", "03.03.2025", "05.03.2025", "Alle Angaben ohne Gewähr"], "mixed: 1 of 4 values is not a date"),
        (["01/15/2025", "01/16/2025", "02/01/2025", "soon"], "mixed: 1 of 4 values is not a date"),
        (["€1.200,00", "$1,200.00", "£950.00", "CHF 1'000.00"], "numbers in several currencies"),
        (["0000123.45", "-000004.50", "0000000.00"], "may be codes, kept as text"),
    ],
)
def test_a_note_tells_why_numbers_or_dates_are_text(tmp_path: Path, values: list[str], note: str) -> None:
    assert note in column(tmp_path, *values)[1]


def test_digits_grouped_as_in_india_are_numbers(tmp_path: Path) -> None:
    assert column(tmp_path, "12,34,567.89", "₹1,250")[0] == [1234567.89, 1250.0]
    assert column(tmp_path, "Rs. 950", "Rs. 1,00,000")[0] == [950, 100_000]


AMERICAN = {
    "dollars": ("amount", ["$1,200.50", "$80.00"], "column `amount` has amounts such as '$1,200.50'"),
    "a column of states": ("state", ["NY", "CA"], "column `state` has states of the USA such as 'NY'"),
    "many states": ("place", ["NY", "TX", "OH"], "column `place` has states of the USA such as 'NY'"),
}


@pytest.mark.parametrize("name", AMERICAN)
def test_a_file_from_the_united_states_has_the_month_first(tmp_path: Path, name: str) -> None:
    header, others, clue = AMERICAN[name]
    file = tmp_path / "f.csv"
    file.write_text(f"day,{header}\n" + "".join(f'03/04/2024,"{other}"\n' for other in others))
    loaded = load_one(file)
    assert duckdb.sql(f"SELECT DISTINCT day FROM '{loaded.path}'").fetchall() == [(date(2024, 3, 4),)]
    note = f"read as month/day/year, because {clue} (the option `dates=dmy` of the source changes that)"
    assert note in " ".join(loaded.report.summary())
    loaded = load_one(file, (("dates", "dmy"),))
    assert duckdb.sql(f"SELECT DISTINCT day FROM '{loaded.path}'").fetchall() == [(date(2024, 4, 3),)]


def test_a_clock_of_twelve_hours_tells_that_the_month_is_first(tmp_path: Path) -> None:
    values, said = column(tmp_path, "03/04/2024 1:30 PM", "05/06/2024 9:00 AM")
    assert values[0] == datetime(2024, 3, 4, 13, 30)
    assert "because its times are written such as '03/04/2024 1:30 PM'" in said


@pytest.mark.parametrize(
    "rows",
    [
        "day,amount,paid\n03/04/2024,$5,31/12/2023\n",  # a column proves the day first
        "day;amount;paid\n03/04/2024;$5;7,50\n",  # a decimal comma
        "day,amount\n03.04.2024,$5\n",
        "day,country\n03/04/2024,DE\n03/04/2024,IN\n03/04/2024,CA\n",
        "day,place\n03/04/2024,NY\n03/04/2024,Paris\n",
    ],
)
def test_other_files_have_the_day_first(tmp_path: Path, rows: str) -> None:
    file = tmp_path / "f.csv"
    file.write_text(rows)
    assert duckdb.sql(f"SELECT DISTINCT day FROM '{load_one(file).path}'").fetchall() == [(date(2024, 4, 3),)]


TIMES: dict[str, tuple[list[str], list[Any], str]] = {
    # values, those that are loaded (times with a zone as UTC), a part of the report
    "abbreviations": (
        ["2024-03-10 01:30:00 EST", "2024-03-10 03:30:00 EDT"],
        ["2024-03-10 01:30:00 EST", "2024-03-10 03:30:00 EDT"],
        "may mean several zones, or none ('2024-03-10 01:30:00 EST', '2024-03-10 03:30:00 EDT'), kept as text",
    ),
    "an abbreviation that DuckDB knows": (["2024-07-01 12:00:00 CST"], ["2024-07-01 12:00:00 CST"], "kept as text"),
    "an offset beside a null marker": (
        ["2024-07-01 01:30:00+02:00", "NA", "2024-07-01 01:30:00"],
        [datetime(2024, 6, 30, 23, 30, tzinfo=UTC), None, datetime(2024, 7, 1, 1, 30, tzinfo=UTC)],
        "its values without a zone were read as UTC ('2024-07-01 01:30:00')",
    ),
    "an offset after a space": (
        ["2024-07-01 01:30:00 -0500"],
        [datetime(2024, 7, 1, 6, 30, tzinfo=UTC)],
        "converted to one zone, UTC",
    ),
    "UTC": (["2024-07-01 01:30:00 UTC"], [datetime(2024, 7, 1, 1, 30, tzinfo=UTC)], ""),
    "a region beside a null marker": (
        ["2024-07-01 01:30:00 Europe/Berlin", "NA"],
        [datetime(2024, 6, 30, 23, 30, tzinfo=UTC), None],
        "converted to one zone, UTC",
    ),
    "AM and PM": (
        ["2024-07-01 01:30:00 PM", "2024-07-01 12:30:00 AM", "NA"],
        [datetime(2024, 7, 1, 13, 30), datetime(2024, 7, 1, 0, 30), None],
        "its times were read with AM and PM",
    ),
    "a comma before milliseconds": (
        ["2024-07-01 12:00:00,123", "2024-07-01 12:00:01,456"],
        [datetime(2024, 7, 1, 12, 0, 0, 123000), datetime(2024, 7, 1, 12, 0, 1, 456000)],
        "the comma in '2024-07-01 12:00:00,123' was read as a decimal point",
    ),
}


@pytest.mark.parametrize("name", TIMES)
def test_what_follows_a_time_is_kept(tmp_path: Path, name: str) -> None:
    written, expected, part = TIMES[name]
    values, said = column(tmp_path, *written)
    assert [v.astimezone(UTC) if getattr(v, "tzinfo", None) else v for v in values] == expected
    assert part in said


def test_a_late_abbreviation_of_a_zone_is_kept(tmp_path: Path) -> None:
    values, said = column(tmp_path, *["2024-07-01 12:00:00"] * 30_000, "2024-07-01 12:00:00 EST")
    assert values[-1] == "2024-07-01 12:00:00 EST"
    assert "may mean several zones" in said


def test_versions_are_told_from_decimals_by_the_name_of_their_column(tmp_path: Path) -> None:
    values, said = column(tmp_path, "1.10", "1.9", "1.20", header="app_version")
    assert values == ["1.10", "1.9", "1.20"]
    assert "`app_version` is text: '1.10' is taken for a version" in said
    values, said = column(tmp_path, *["1.9"] * 30_000, "1.10", header="ver")
    assert values[-1] == "1.10"
    values, said = column(tmp_path, "1.5", "2.0", header="conversion")
    assert values == [1.5, 2.0]
    assert said == ""


def test_two_spellings_of_one_number_are_noted(tmp_path: Path) -> None:
    values, said = column(tmp_path, "1.1", "1.10", "1.9")
    assert values == [1.1, 1.1, 1.9]
    assert "'1.1' and '1.10' are one number here" in said


def test_a_plus_sign_among_numbers_is_left_out_unless_it_may_be_a_code(tmp_path: Path) -> None:
    assert column(tmp_path, "-0.10", ".50", "5.", "+7") == (
        [-0.1, 0.5, 5.0, 7.0],
        "Column `v` is DOUBLE: plus signs were left out ('+7').",
    )
    values, said = column(tmp_path, "+1", "+44", "+351")
    assert values == ["+1", "+44", "+351"]
    assert "a plus sign before a whole number may be part of a code" in said


def test_values_beyond_a_double_are_noted(tmp_path: Path) -> None:
    values, said = column(tmp_path, "1e400", "2.5")
    assert values == [float("inf"), 2.5]
    assert "1 of its values is infinite" in said
    (tmp_path / "a.json").write_text('[{"p": 0.1}, {"p": 1e400}]')
    assert "1 of its values is infinite" in " ".join(load_one(tmp_path / "a.json").report.summary())


TEXTS: dict[str, tuple[list[str], str]] = {
    "limits": (["<0.5", "1.2", ">100"], "a sign that changes their meaning ('<0.5', '>100')"),
    "estimates": (["~5", "5±0.1", "3*"], "a sign that changes their meaning"),
    "per mille": (["5‰", "7‰"], "a sign that changes their meaning"),
    "two styles of numbers": (["1.234,56", "1,234.56"], "with a decimal point and with a decimal comma"),
    "German months": (["3. März 2024", "14. Dezember 2023"], "dates in a form that is not read"),
    "forms of dates": (["2024-01-05", "05/01/2024", "Jan 5 2024", "20240105", "5-Jan-24"], "or in several forms"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_nearly_a_number_or_a_date_is_noted(tmp_path: Path, name: str) -> None:
    written, part = TEXTS[name]
    values, said = column(tmp_path, *written)
    assert values == written
    assert part in said


@pytest.mark.parametrize("values", [("2024-W01", "2024-W02"), ("18-24", "25-34"), ("1/2", "3/4"), ("1.2.3", "1.10.0")])
def test_other_text_with_digits_is_not_noted(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert column(tmp_path, *values) == ([*values], "")
