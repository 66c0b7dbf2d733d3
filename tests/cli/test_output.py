"""Results in a terminal and in every text format; how they fit the screen."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from python_calamine import CalamineWorkbook

from etude.cli.main import run_command

from .terminal import run_in_terminal

WIDE = "SELECT " + ", ".join(f"{i} AS a_long_name_{i}" for i in range(20))
ENDLESS = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(i) WHERE a.i + b.i = 7"
SQL = [sys.executable, "-m", "etude", "sql", "shop.duckdb"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("shop.duckdb") as db:
        db.execute(
            "CREATE TABLE t AS SELECT 1 AS id, 12965.399999999927::DOUBLE AS revenue, 'a|b\nc' AS text, NULL AS no"
        )
    return tmp_path


def test_a_wide_result_says_how_many_columns_are_hidden(place: Path) -> None:
    code, seen = run_in_terminal([*SQL, WIDE], columns=60, cwd=place)
    assert code == 0 and "17 of 20 columns hidden: --wide or --vertical shows them" in seen
    assert max(map(len, seen.splitlines()[:3])) <= 60


@pytest.mark.parametrize("option", ["--wide", "--vertical"])
def test_all_columns_can_be_shown(place: Path, option: str) -> None:
    code, seen = run_in_terminal([*SQL, WIDE, option], columns=60, cwd=place)
    assert code == 0 and "hidden" not in seen and all(f"a_long_name_{i}" in seen for i in range(20))


def test_a_long_result_goes_through_the_pager(place: Path) -> None:
    environment = os.environ | {"PAGER": "sed s/^/paged:/"}
    _, seen = run_in_terminal([*SQL, "FROM range(100)"], cwd=place, environment=environment)
    assert seen.count("paged:") > 100
    _, seen = run_in_terminal([*SQL, "FROM range(3)"], cwd=place, environment=environment)
    assert "paged:" not in seen and "3 rows" in seen
    _, seen = run_in_terminal([*SQL, "FROM range(100)"], cwd=place, environment=os.environ | {"PAGER": ""})
    assert "100 rows, 40 shown" in seen


def test_people_see_round_numbers_and_programs_exact_ones(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*options: str) -> str:
        assert run_command(["sql", "shop.duckdb", "SELECT id, revenue FROM t", *options]) == 0
        return capsys.readouterr().out

    assert "12,965.40" in printed()
    assert all("12965.399999999927" in printed("--format", kind) for kind in ("json", "ndjson", "csv", "markdown"))


def test_text_formats_hold_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sql", "shop.duckdb", "FROM t", "--format", "ndjson"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line == {"id": 1, "revenue": 12965.399999999927, "text": "a|b\nc", "no": None}
    assert run_command(["sql", "shop.duckdb", "SELECT id, text FROM t", "--output", "t.md"]) == 0
    assert Path("t.md").read_text() == "| id | text |\n| ---: | --- |\n| 1 | a\\|b c |\n"
    assert run_command(["sql", "shop.duckdb", "FROM range(3000)", "--output", "n.jsonl"]) == 0
    assert len(Path("n.jsonl").read_text().splitlines()) == 3000
    assert run_command(["sql", "shop.duckdb", "SELECT 1 AS a, 2 AS a", "--format", "ndjson"]) == 2
    assert "Two columns are named `a`" in capsys.readouterr().err


def test_csv_and_markdown_hold_json_instead_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    query = """SELECT true AS yes, {'a': NULL, 'b': [false]} AS s, INTERVAL '1 month 2 days' AS i, 0.1::FLOAT AS f,
        1.10::DECIMAL(5, 2) AS d, DATE 'infinity' AS forever"""
    assert run_command(["sql", "shop.duckdb", query, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        'true,"{""a"": null, ""b"": [false]}",1 month 2 days,0.1,1.10,infinity'
    )
    assert run_command(["sql", "shop.duckdb", query, "--format", "markdown"]) == 0
    assert '| true | {"a": null, "b": [false]} | 1 month 2 days | 0.1 | 1.10 | infinity |' in capsys.readouterr().out
    assert run_command(["sql", "shop.duckdb", query]) == 0
    assert "1 month 2 days" in capsys.readouterr().out


def test_html_is_a_page_whose_values_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    query = 'SELECT 1 AS n, \'<b>&"\' AS "a<b", NULL AS no'
    assert run_command(["sql", "shop.duckdb", query, "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert '<tr><th class="n">n</th><th>a&lt;b</th>' in page
    assert '<tr><td class="n">1</td><td>&lt;b&gt;&amp;&quot;</td>' in page
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert run_command(["sql", "shop.duckdb", query, "--output", "page.html"]) == 0
    assert Path("page.html").read_text() == page


def test_an_excel_file_keeps_values_and_types() -> None:
    query = """SELECT 1.5 AS x, 9007199254740993 AS big, DATE '2024-02-29' AS d, TIMESTAMP '2024-02-29 12:30:00' AS at,
        '=1+1' AS formula, NULL AS no, true AS yes, [1, 2] AS list"""
    assert run_command(["sql", "shop.duckdb", query, "--output", "out.xlsx"]) == 0
    head, row = CalamineWorkbook.from_path("out.xlsx").get_sheet_by_index(0).to_python()
    assert head == ["x", "big", "d", "at", "formula", "no", "yes", "list"]
    cells: dict[str, Any] = dict(zip(head, row))
    assert (cells["x"], cells["big"], cells["formula"], cells["yes"]) == (1.5, "9007199254740993", "=1+1", True)
    assert (str(cells["d"]), str(cells["at"]), cells["list"]) == ("2024-02-29", "2024-02-29 12:30:00", "[1, 2]")


def test_an_excel_file_keeps_the_digits_of_numbers_and_times() -> None:
    query = "SELECT 0.1::DOUBLE + 0.2::DOUBLE AS a, 1.7976931348623157e308::DOUBLE AS b, TIME '23:59:59.999999' AS t"
    assert run_command(["sql", "shop.duckdb", query, "--output", "out.xlsx"]) == 0
    _, row = CalamineWorkbook.from_path("out.xlsx").get_sheet_by_index(0).to_python()
    assert row == [0.1 + 0.2, 1.7976931348623157e308, "23:59:59.999999"]


def test_a_file_holds_all_rows_whatever_its_format(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("n.txt", "n.csv", "n.tsv", "n.md"):
        assert run_command(["sql", "shop.duckdb", "FROM range(300)", "--output", name]) == 0
        assert "299" in Path(name).read_text() and len(Path(name).read_text().splitlines()) >= 301
    assert run_command(["sql", "shop.duckdb", "FROM range(200000)", "--output", "many.txt"]) == 2
    assert "a table for people has at most 100,000" in capsys.readouterr().err and not Path("many.txt").exists()


def test_an_arrow_file_is_a_file_and_a_pipe_a_stream(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run_command(["sql", "shop.duckdb", "FROM range(3)", "--output", "n.arrow"]) == 0
    assert pa.ipc.open_file("n.arrow").read_all().num_rows == 3
    capsysbinary.readouterr()
    assert run_command(["sql", "shop.duckdb", "FROM range(3)", "--format", "arrow"]) == 0
    assert pa.ipc.open_stream(capsysbinary.readouterr().out).read_all().num_rows == 3


def test_an_empty_text_differs_from_null_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run_command(["sql", "shop.duckdb", "SELECT '' AS a, NULL AS b, 'x,\"y' AS c, ' z' AS d", "--format", "csv"])
        == 0
    )
    assert capsys.readouterr().out == 'a,b,c,d\n"",,"x,""y"," z"\n'
    assert run_command(["sql", "shop.duckdb", "SELECT NULL AS a UNION ALL SELECT NULL", "--format", "csv"]) == 0
    assert capsys.readouterr().out == 'a\n""\n""\n', "no reader skips such a line"
    assert run_command(["sql", "shop.duckdb", "SELECT 'a\tb' AS x, 1 AS y", "--format", "tsv"]) == 0
    assert capsys.readouterr().out == 'x\ty\n"a\tb"\t1\n'


@pytest.mark.parametrize(
    ("query", "given", "row"),
    [
        ("SELECT ? AS a, ? AS b, ? AS c", ["x=1", "7", "null"], "x=1,7,"),
        ("SELECT $1 + 1 AS a", ["1.5"], "2.5"),
        ("SELECT $who AS a, $n AS b", ["who=Ann", "n=2"], "Ann,2"),
        ("SELECT ? AS a", ["007"], "007"),
    ],
)
def test_values_for_parameters_are_bound(
    query: str, given: list[str], row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for value in given for word in ("--param", value)]
    assert run_command(["sql", "shop.duckdb", query, *options, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == row


def test_parameters_are_all_named_or_all_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sql", "shop.duckdb", "SELECT $who AS a", "--param", "who=Ann", "--param", "2"]) == 2
    assert "--param NAME=VALUE for all of them" in capsys.readouterr().err
    assert run_command(["sql", "shop.duckdb", "SELECT ? AS a"]) == 3
    assert "--param VALUE" in capsys.readouterr().err


def test_errors_of_values_have_a_hint_about_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sql", "shop.duckdb", "SELECT 'abc'::INTEGER"]) == 2
    assert "TRY_CAST" in capsys.readouterr().err
    assert run_command(["sql", "shop.duckdb", "SELECT revnue FROM t"]) == 2
    assert "Did you mean `revenue`?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_command(["sql", "shop.duckdb", "SELECT 1", "--limit-rows", "-3"])
    assert "`-3` must be a whole number, 0 or greater" in capsys.readouterr().err
    assert run_command(["sql", "shop.duckdb", ENDLESS, "--timeout", "0.5"]) != 0
    assert "`--timeout 600`" in capsys.readouterr().err


def test_a_plan_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sql", "shop.duckdb", "EXPLAIN SELECT sum(id) FROM t WHERE revenue > 1"]) == 0
    assert "\\n" not in (out := capsys.readouterr().out) and len(out.splitlines()) > 5


def test_a_slow_query_says_that_it_runs(place: Path) -> None:
    code, seen = run_in_terminal([*SQL, ENDLESS, "--timeout", "4"], cwd=place, cleared=True)
    assert code != 0 and "running the query ... 1 s" in seen
    _, seen = run_in_terminal([*SQL, ENDLESS, "--timeout", "4"], cwd=place)
    assert "running the query" not in seen and "exceeded its" in seen


def test_show_tables_lists_the_tables_of_every_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect("schemas.duckdb") as db:
        db.execute(
            "CREATE SCHEMA sales; CREATE TABLE sales.orders AS SELECT 1 AS id; CREATE TABLE plain AS SELECT 1 AS x"
        )
    assert run_command(["sql", "schemas.duckdb", "SHOW TABLES", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines() == ["name", "plain", "sales.orders"]


def _output(path: str) -> int:
    return run_command(["sql", "shop.duckdb", "SELECT 1 AS a", "--output", path, "--format", "csv"])


def test_a_workbook_whose_reader_has_gone_is_not_called_a_defect(place: Path) -> None:
    command = [*SQL, "SELECT range AS n, random() AS r FROM range(200000)", "--format", "xlsx"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=place) as process:
        assert process.stdout is not None and process.stdout.read(10)
        process.stdout.close()
        assert process.stderr is not None and b"efect" not in process.stderr.read()


def test_output_into_a_pipe_is_written_to_its_reader(place: Path) -> None:
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    assert _output("pipe") == 0
    assert reader.communicate(timeout=30)[0] == "a\n1\n" and Path("pipe").is_fifo()


def test_output_through_a_link_replaces_its_target(place: Path) -> None:
    Path("real.csv").write_text("old")
    Path("link.csv").symlink_to("real.csv")
    assert _output("link.csv") == 0
    assert Path("link.csv").is_symlink() and Path("real.csv").read_text() == "a\n1\n"


def test_output_keeps_the_mode_of_a_file(place: Path) -> None:
    Path("secret.csv").write_text("old")
    Path("secret.csv").chmod(0o600)
    assert _output("secret.csv") == 0
    assert Path("secret.csv").stat().st_mode & 0o777 == 0o600 and Path("secret.csv").read_text() == "a\n1\n"
    before = os.umask(0o027)
    try:
        assert _output("new.csv") == 0
    finally:
        os.umask(before)
    assert Path("new.csv").stat().st_mode & 0o777 == 0o640


def test_output_into_a_device_leaves_the_device(place: Path) -> None:
    if os.geteuid() == 0:  # a device of our own, so that a failure of this test harms no other program
        os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        assert _output("null") == 0
        assert stat.S_ISCHR(Path("null").stat().st_mode)
    with Path("log").open("ab") as log:
        log.write(b"first\n")
        log.flush()
        done = subprocess.run(
            [*SQL, "SELECT 1 AS a", "--output", "/dev/stdout", "--format", "csv"], stdout=log, check=False
        )
    assert done.returncode == 0 and Path("log").read_text() == "first\na\n1\n"


def test_output_to_a_full_disk_is_an_error_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert _output("/dev/full") == 2
    said = capsys.readouterr().err
    assert "Cannot write `/dev/full`: No space left on device." in said and "Free space" in said
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_full_standard_output_and_a_home_that_is_a_file_are_errors_with_the_reason(place: Path) -> None:
    Path("data.csv").write_text("a\n1\n")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*SQL, "SELECT 1", "--format", "csv"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 69 and "The output cannot be written: No space left on device." in done.stderr
    assert "defect" not in done.stderr
    Path("afile").touch()
    command = [sys.executable, "-m", "etude", "sql", "data.csv", "SELECT 1"]
    environment = os.environ | {"ETUDE_HOME": str(place / "afile")}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 69 and "Not a directory" in done.stderr and "ETUDE_HOME" in done.stderr


def test_formats_have_the_names_of_their_endings_and_exponents_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sql", "shop.duckdb", "SELECT ? + 1 AS a", "--param", "1e5", "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": 100001.0}
    assert run_command(["sql", "shop.duckdb", "SELECT 1 AS a", "--format", "md"]) == 0
    assert capsys.readouterr().out == "| a |\n| ---: |\n| 1 |\n"
