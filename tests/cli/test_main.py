"""The command line: every command, every format, every exit code; errors without a traceback."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.patience import wait_until
from tests.readme import missing_lines

from etude import __version__
from etude.app import App
from etude.cli.main import COMMANDS, run_command

ETUDE = [sys.executable, "-m", "etude"]
ENDLESS = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(i) WHERE a.i + b.i = 7"
HEAVY = {"pydantic", "duckdb", "pyarrow", "rich", "sqlglot", "obstore", "pandas", "numpy", "ibis", "asyncio"}


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a small database, and a home of its own."""
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("shop.duckdb") as db:
        db.execute(
            "CREATE TABLE orders AS SELECT i AS id, 'c' || i % 3 AS customer, i * 1.5 AS amount FROM range(100) r(i)"
        )
    return tmp_path / "shop.duckdb"


class Done:
    """What a command printed, and its exit code."""

    def __init__(self, capture: pytest.CaptureFixture[str], *arguments: str) -> None:
        capture.readouterr()
        try:
            self.code = run_command(list(arguments))
        except SystemExit as end:
            self.code = int(end.code or 0)
        self.out, self.err = capture.readouterr()
        assert "Traceback" not in self.out + self.err

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def etude(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda *arguments: Done(capsys, *arguments)


def spawn(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ETUDE, *arguments], capture_output=True, text=True, timeout=240, **keywords)


# -- help and start


def test_help_names_every_command(etude: Any) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        done = etude(*arguments)
        assert done.code == 0
        assert all(f"  {name} " in done.out and text in done.out for name, text in COMMANDS.items())
    assert etude("--version").out == etude("version").out == f"etude {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(etude: Any, name: str) -> None:
    done = etude(name, "--help")
    assert done.code == 0 and done.out.startswith(f"usage: etude {name}")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["sql", "--help"], ["runs", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from etude.cli.main import run_command\ntry: run_command(sys.argv[1:])\nexcept SystemExit: pass\n"
    )
    code += "print(*sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stderr.split())


UNUSED = {
    "sql": ("catalog", "models", "offline", "tools", "validation"),
    "ask": ("catalog.page", "catalog.drift", "catalog.measure", "catalog.keys"),
}
"""Parts of etude that a command does not need, beside those that neither needs."""


@pytest.mark.parametrize(("command", "text"), [("sql", "SELECT 1"), ("ask", "total amount by region")])
def test_a_question_loads_what_it_uses(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "sales.csv").write_text("id,region,amount\n1,north,10\n2,south,20\n3,north,5\n")
    code = "import sys; from etude.cli.main import run_command\nassert run_command(sys.argv[1:]) == 0\n"
    code += "print(*(m for m in sys.modules if m.startswith('etude.')), sep='\\n', file=open('loaded', 'w'))"
    environment = os.environ | {"ETUDE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code, command, "sales.csv", text], capture_output=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    loaded = (tmp_path / "loaded").read_text().split()
    parts = ("api", "agents", "mcp_server", "sessions", "runtime.notebook", "sources.duckdb", *UNUSED[command])
    unused = tuple(f"etude.{part}" for part in parts)
    assert [m for m in loaded if m in unused or m.startswith(tuple(f"{part}." for part in unused))] == []


def test_words_without_quotes_are_explained(etude: Any) -> None:
    done = etude("ask", "sales.csv", "how", "many", "orders")
    assert done.code == 2 and "unrecognized arguments: many orders" in done.err
    assert "hint: Put a question or a query of several words in quotes." in done.err


def test_a_home_that_cannot_be_made_is_no_defect(etude: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sales.csv").write_text("a\n1\n")
    monkeypatch.setenv("ETUDE_HOME", "/proc/etude")
    done = etude("sql", str(tmp_path / "sales.csv"), "SELECT 1")
    assert done.code == 69 and "`/proc/etude` cannot be written" in done.err and "ETUDE_HOME" in done.err


def test_a_wrong_command_gets_a_suggestion(etude: Any) -> None:
    done = etude("slq")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: There is no command `slq`.\n  hint: Did you mean `etude sql`?\n"
    assert "`etude catalog SOURCE` profiles a source" in etude("profile").err
    assert "`etude --help` lists the commands" in etude("zzzzz").err


@pytest.mark.parametrize("line", ["sql", "sql a b --format xml", "runs", "runs fly", "sql a b --limit-rows x"])
def test_wrong_arguments_exit_with_2(etude: Any, line: str) -> None:
    done = etude(*line.split())
    assert done.code == 2 and "\nerror: " in done.err and "  hint: " in done.err


def test_the_installed_command_runs() -> None:
    command = Path(sys.executable).parent / "etude"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"etude {__version__}\n"


# -- sql


def test_a_table_for_people(etude: Any) -> None:
    done = etude("sql", "shop.duckdb", "SELECT id, customer, NULL AS nothing FROM orders ORDER BY id LIMIT 2")
    lines = done.out.splitlines()
    assert done.code == 0
    assert [c.strip() for c in lines[0].split("┃")] == ["id", "customer", "nothing"]
    assert [c.strip() for c in lines[2].split("│")] == ["0", "c0", "null"]
    assert lines[-1].startswith("2 rows ") and "run_" in lines[-1]


def test_a_long_table_says_how_much_it_shows(etude: Any) -> None:
    done = etude("sql", "shop.duckdb", "FROM orders", "--no-record")
    assert len(done.out.splitlines()) == 2 + 40 + 1
    assert (
        done.out.splitlines()[-1].startswith("100 rows, 40 shown (all rows: --output FILE.csv) ")
        and "run_" not in done.out
    )


def test_json(etude: Any) -> None:
    body = etude("sql", "shop.duckdb", "SELECT id, amount FROM orders ORDER BY id LIMIT 2", "--format", "json").json()
    assert body["rows"] == [[0, 0.0], [1, 1.5]]
    assert body["columns"][0] == {"name": "id", "type": "BIGINT"}
    assert body["run_id"].startswith("run_") and body["row_count"] == 2


def test_csv(etude: Any) -> None:
    done = etude("sql", "shop.duckdb", "SELECT 'a,\"b\nc' AS x, NULL AS y, 1.50 AS z", "--format", "csv")
    assert list(csv.reader(io.StringIO(done.out))) == [["x", "y", "z"], ['a,"b\nc', "", "1.50"]]


def test_parquet_and_arrow_go_to_a_pipe() -> None:
    command = [*ETUDE, "sql", "shop.duckdb", "SELECT id, INTERVAL 1 DAY AS d FROM orders", "--format"]
    parquet, arrow = (
        subprocess.run([*command, f], capture_output=True, check=True).stdout for f in ("parquet", "arrow")
    )
    read, streamed = pq.read_table(io.BytesIO(parquet)), pa.ipc.open_stream(arrow).read_all()
    assert read.num_rows == streamed.num_rows == 100 and read.schema.names == streamed.schema.names == ["id", "d"]


def test_a_result_without_rows_has_its_columns_in_every_format(etude: Any) -> None:
    for ending in ("csv", "parquet"):
        assert etude("sql", "shop.duckdb", "FROM orders LIMIT 0", "--output", f"none.{ending}").code == 0
    assert Path("none.csv").read_text() == "id,customer,amount\n"
    assert pq.read_table("none.parquet").schema.names == ["id", "customer", "amount"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "txt"])
def test_the_ending_of_the_output_picks_the_format(etude: Any, ending: str) -> None:
    done = etude("sql", "shop.duckdb", "FROM orders", "--output", f"out.{ending}")
    assert done.code == 0 and done.out == ""
    assert done.err == f"100 rows written to out.{ending}\n"
    data = Path(f"out.{ending}").read_bytes()
    starts = {"csv": b"id,customer", "parquet": b"PAR1", "txt": b"id", "feather": b"ARROW1"}
    assert data.startswith(starts[ending])


def test_an_output_is_replaced_whole_or_not_at_all(etude: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("precious")
    assert etude("sql", "shop.duckdb", "SELECT ('x' || id)::INTEGER FROM orders", "--output", "out.csv").code == 2
    assert out.read_text() == "precious"
    assert etude("sql", "shop.duckdb", "SELECT 1 AS a", "--output", "out.csv").code == 0
    assert out.read_bytes() == b"a\n1\n"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_an_output_that_cannot_be_is_told(etude: Any, tmp_path: Path) -> None:
    done = etude("sql", "shop.duckdb", "SELECT 1", "--output", "out.xyz")
    assert done.code == 2 and "is not a known format" in done.err and "--format table|json" in done.err
    done = etude("sql", "shop.duckdb", "SELECT 1", "--output", "no/such/out.csv")
    assert done.code == 2 and "Cannot write `no/such/out.csv`: No such file or directory." in done.err
    (tmp_path / "folder.csv").mkdir()
    done = etude("sql", "shop.duckdb", "SELECT 1", "--output", "folder.csv")
    assert done.code == 2 and "Is a directory" in done.err
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_the_query_may_come_from_standard_input() -> None:
    done = spawn("sql", "shop.duckdb", "-", "--format", "csv", input="SELECT count(*) AS n\nFROM orders")
    assert (done.returncode, done.stdout.split()) == (0, ["n", "100"])


def test_limits_of_the_command_line(etude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done = etude("sql", "shop.duckdb", "FROM orders", "--limit-rows", "3", "--format", "json")
    assert done.json()["row_count"] == 3 and done.json()["truncated"]
    assert done.err == "note: Only the first 3 rows, because of `limit`; there are more.\n"
    assert ", cut by --limit-rows" in etude("sql", "shop.duckdb", "FROM orders", "--limit-rows", "3").out
    monkeypatch.setenv("ETUDE_LIMITS__ROWS", "5")
    done = etude("sql", "shop.duckdb", "FROM orders", "--format", "json")
    assert (done.code, done.out) == (6, "") and "more than 5 rows" in done.err
    assert (
        etude("sql", "shop.duckdb", "FROM orders", "--limit-rows", "0", "--format", "json").json()["row_count"] == 100
    )
    for wrong in (["--limit-rows=-1"], ["--timeout", "0"], ["--timeout", "nan"], ["--timeout", "inf"]):
        done = etude("sql", "shop.duckdb", "FROM orders", *wrong)
        assert done.code == 2 and ("The limit `" in done.err or "must be a whole number" in done.err)


def test_no_record_leaves_no_run(etude: Any) -> None:
    etude("sql", "shop.duckdb", "SELECT 1", "--no-record")
    assert etude("runs", "list", "--json").json()["items"] == []


@pytest.mark.parametrize("form", ["table", "csv", "json", "ndjson", "markdown"])
def test_times_with_a_zone_are_printed(etude: Any, form: str) -> None:
    done = etude("sql", "shop.duckdb", "SELECT timestamptz '2024-05-01 12:00:00+00' AS at", "--format", form)
    assert (done.code, "2024-05-01" in done.out) == (0, True)


# -- errors


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (["shop.duckdb", "SELEC 1"], 2, "invalid_query"),
        (["shop.duckdb", "DROP TABLE orders"], 3, "refused"),
        (["shop.duckdb", "FROM nothing"], 4, "unknown_table"),
        (["nosuch", "SELECT 1"], 4, "not_found"),
        (["nosuch.duckdb", "SELECT 1"], 4, "source_missing"),
        (["shop.duckdb", ENDLESS, "--timeout", "0.3"], 6, "limit_exceeded"),
        (["broken.duckdb", "SELECT 1"], 7, "source_error"),
        (["gopher://hole", "SELECT 1"], 2, "invalid"),
    ],
)
def test_each_error_has_its_exit_code(etude: Any, tmp_path: Path, arguments: list[str], code: int, name: str) -> None:
    (tmp_path / "broken.duckdb").write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 5000)
    done = etude("sql", *arguments, "--format", "json")
    assert (done.code, done.out) == (code, "")
    body = json.loads(done.err)
    assert body["code"] == name and body["type"] == f"urn:etude:error:{name}"
    assert body["detail"] and body["hint"] and body["title"] and body["status"]


def test_without_json_an_error_is_text(etude: Any) -> None:
    done = etude("sql", "nosuch", "SELECT 1")
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("error: There is no source, file or folder `nosuch`.\n  hint: ")


def test_a_pipe_cannot_be_a_source(etude: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (str(tmp_path / "pipe"), "/dev/null"):
        done = etude("sql", source, "SELECT 1")
        assert done.code == 2
        assert done.err.startswith(
            f"error: `{source}` is not a file: a pipe or a device can be read only once.\n  hint: "
        )
    assert "does not read standard input" in etude("sql", "-", "SELECT 1").err


def test_a_conflict_exits_with_5(etude: Any) -> None:
    assert etude("sources", "add", "shop", "shop.duckdb").code == 0
    assert etude("sources", "add", "shop", "shop.duckdb").code == 5


def test_a_store_that_cannot_be_used_exits_with_69(etude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_STORE", "postgresql://nobody@127.0.0.1:1/none")
    done = etude("runs", "list")
    assert done.code == 69 and done.err.startswith("error: ")


def test_an_error_tells_where(etude: Any) -> None:
    done = etude("sql", "shop.duckdb", "SELECT id\nFROM ordrs")
    assert (
        done.err == "error: `ordrs` is not a table of this source. (line 2, column 6)\n  hint: Did you mean `orders`?\n"
    )


def test_wrong_settings_stop_every_command(etude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_LIMITS__ROWS", "many")
    for arguments in (["config"], ["runs", "list"], ["sources", "list"], ["sql", "shop.duckdb", "SELECT 1"]):
        done = etude(*arguments)
        assert done.code == 2 and '`limits.rows` (from environment) cannot be `"many"`' in done.err


# -- what the terminal is spared

HOSTILE = "SELECT chr(27) || '[2J' || chr(155) || '31m' || chr(8238) || 'x' AS cell, '[bold red]x[/] :smile:' AS markup"


def test_cells_cannot_drive_the_terminal(etude: Any) -> None:
    done = etude("sql", "shop.duckdb", HOSTILE)
    assert "\\x1b[2J\\x9b31m\\u202ex" in done.out and "[bold red]x[/] :smile:" in done.out
    assert {"\x1b", "\x9b", "\u202e"}.isdisjoint(done.out)


def test_names_and_errors_cannot_drive_the_terminal(etude: Any) -> None:
    with duckdb.connect("evil.duckdb") as db:
        db.execute('CREATE TABLE "t\x1b[2J" AS SELECT 1 AS "c\x1b[2J"')
    for arguments in (
        ["sources", "show", "evil.duckdb"],
        ["sql", "evil.duckdb", 'FROM "t\x1b[2J"'],
        ["sql", "evil.duckdb", 'FROM "u\x1b[2J"'],
        ["sql", "no\x1b[2Jwhere.csv", "SELECT 1"],
        ["runs", "list"],
        ["nothing\x1b[2J"],
    ):
        done = etude(*arguments)
        assert "\x1b" not in done.out + done.err, arguments
    first = etude("runs", "list", "--json").json()["items"][-1]["id"]
    done = etude("runs", "show", first)
    assert "\x1b" not in done.out and "t\\x1b[2J" in done.out


def test_on_a_terminal_too() -> None:
    master, slave = pty.openpty()
    with subprocess.Popen([*ETUDE, "sql", "shop.duckdb", HOSTILE], stdout=slave, stderr=slave, stdin=slave) as process:
        process.wait(240)
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert b"\x1b[2J" not in seen and b"\xc2\x9b" not in seen and rb"\x1b[2J" in seen


def test_binary_formats_are_not_for_a_terminal() -> None:
    master, slave = pty.openpty()
    done = subprocess.run(
        [*ETUDE, "sql", "shop.duckdb", "SELECT 1", "--format", "parquet"],
        stdout=slave,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(slave)
    os.close(master)
    assert done.returncode == 2 and b"parquet cannot be printed to a terminal" in done.stderr


# -- signals and pipes


def test_a_reader_that_leaves_is_no_error() -> None:
    command = " ".join([*ETUDE, "sql", "shop.duckdb", "'FROM range(1000000)'", "--format"])
    for kind in ("csv", "arrow"):
        pipe = f"set -o pipefail; {command} {kind} | head -c 10"
        done = subprocess.run(["bash", "-c", pipe], capture_output=True, timeout=240, check=False)
        assert (done.returncode, done.stderr) == (0, b""), kind


def test_ctrl_c_cancels_and_is_recorded() -> None:
    command = [*ETUDE, "sql", "shop.duckdb", ENDLESS, "--timeout", "3600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with App() as app:
        wait_until(lambda: [r.status for r in app.store.runs().items] == ["running"])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130 and b"Traceback" not in err and b"cancelled" in err.lower()
    (item,) = json.loads(spawn("runs", "list", "--json").stdout)["items"]
    assert item["status"] == "cancelled"


# -- the other commands


def test_sources(etude: Any, tmp_path: Path) -> None:
    assert "No sources yet" in etude("sources", "list").out
    done = etude("sources", "add", "shop", "shop.duckdb", "--tables", "orders")
    assert done.code == 0 and "amount DECIMAL" in done.out
    (item,) = etude("sources", "list", "--json").json()
    assert item == {"name": "shop", "kind": "duckdb", "url": str(tmp_path / "shop.duckdb"), "tables": ["orders"]}
    assert "shop" in etude("sources", "list").out
    assert etude("sources", "show", "shop", "--json").json()["tables"][0]["name"] == "orders"
    assert "orders" in etude("sources", "show", "shop.duckdb").out
    assert etude("sql", "shop", "SELECT count(*) AS n FROM shop.orders", "--format", "json").json()["rows"] == [[100]]
    done = etude("sources", "remove", "shop")
    assert (done.code, done.err) == (0, "removed shop\n")
    assert etude("sources", "remove", "shop").code == 4
    assert etude("sources", "add", "Shop", "shop.duckdb").code == 2


def test_runs(etude: Any, tmp_path: Path) -> None:
    etude("sql", "shop.duckdb", "SELECT sum(id) AS total FROM orders")
    etude("sql", "shop.duckdb", "FROM nothing")
    listed = etude("runs", "list")
    assert "SELECT sum(id)" in listed.out and "succeeded" in listed.out and "failed" in listed.out
    items = etude("runs", "list", "--status", "succeeded", "--source", "shop", "--kind", "sql", "--json").json()[
        "items"
    ]
    (run_id,) = [i["id"] for i in items]
    assert etude("runs", "list", "--text", "nothing", "--json").json()["items"][0]["error_code"] == "unknown_table"
    shown = etude("runs", "show", run_id[:-3])
    assert shown.code == 0
    for part in (run_id, "succeeded", "read      shop.orders", "returned  1 row", "duckdb ", "SELECT sum(id)"):
        assert part in shown.out
    assert etude("runs", "show", run_id, "--json").json()["steps"][0]["outcome"] == "ok"
    assert etude("runs", "export", run_id).out == f"{run_id}.zip\n"
    assert Path(f"{run_id}.zip").read_bytes()[:2] == b"PK"
    assert etude("runs", "export", run_id, "--output", "a.zip", "--json").json() == {"run_id": run_id, "file": "a.zip"}
    assert Path("a.zip").read_bytes() == Path(f"{run_id}.zip").read_bytes()
    for arguments in (["show", "run_nope"], ["export", "run_nope", "--output", "b.zip"]):
        done = etude("runs", *arguments)
        assert done.code == 4 and "run_nope" in done.err
    assert not Path("b.zip").exists()


def test_runs_come_in_pages(etude: Any) -> None:
    with App() as app:
        for number in range(5):
            app.sql("shop.duckdb", f"SELECT {number} AS n")
    first = etude("runs", "list", "--limit", "2", "--json").json()
    second = etude("runs", "list", "--limit", "2", "--json", "--cursor", first["next"]).json()
    texts = [i["text"] for i in first["items"] + second["items"]]
    assert texts == [f"SELECT {n} AS n" for n in (4, 3, 2, 1)]
    assert f"more: --cursor {first['next']}" in etude("runs", "list", "--limit", "2").out
    assert etude("runs", "list", "--cursor", "nonsense").code == 2
    done = etude("runs", "list", "--status", "happy")
    assert done.code == 2 and '`--status` cannot be `"happy"`' in done.err and "succeeded" in done.err
    assert etude("runs", "list", "--limit", "0").code == 2


def test_plan(etude: Any, tmp_path: Path) -> None:
    plan = {
        "from": "orders",
        "group_by": ["customer"],
        "aggregate": [{"fn": "count", "as": "n"}],
        "order_by": ["customer"],
    }
    Path("plan.json").write_text(json.dumps(plan))
    body = etude("plan", "shop.duckdb", "plan.json", "--format", "json").json()
    assert body["rows"] == [["c0", 34], ["c1", 33], ["c2", 33]]
    assert etude("plan", "shop.duckdb", "plan.json", "--sql").out.startswith("SELECT")
    done = spawn("plan", "shop.duckdb", "-", "--format", "csv", input=json.dumps(plan))
    assert done.stdout.splitlines()[1] == "c0,34"
    assert etude("runs", "list", "--kind", "plan", "--json").json()["items"][0]["status"] == "succeeded"
    assert etude("plan", "shop.duckdb", "missing.json").code == 4
    Path("plan.json").write_text('{"from": "orders", "grup_by": []}')
    done = etude("plan", "shop.duckdb", "plan.json")
    assert done.code == 2 and "grup_by" in done.err
    Path("plan.json").write_bytes(b"\xff\xfe")
    assert etude("plan", "shop.duckdb", "plan.json").code == 2


def test_config(etude: Any, tmp_path: Path) -> None:
    Path("etude.toml").write_text("[limits]\nrows = 9\n")
    done = etude("config")
    line = next(line for line in done.out.splitlines() if line.startswith("limits.rows"))
    assert [c.strip() for c in line.split("│")] == ["limits.rows", "9", "etude.toml"]
    assert str(tmp_path / "home" / "etude.db") in done.out


def test_check(etude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.sources.check.LATE_S", 120.0)
    done = etude("check", "source", "shop.duckdb")
    assert done.code == 0 and "FAIL" not in done.out and "ok   read-only" in done.out
    results = [json.loads(line) for line in etude("check", "store", "--json").out.splitlines()]
    assert results and all(r["ok"] for r in results)


def test_demo(etude: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_REPLAY", "on")
    done = etude("demo", "--folder", str(tmp_path / "demo"))
    assert done.code == 0, done.err
    assert "Anything but a read-only query is refused" in done.out and "run_" in done.out
    assert "Refused: the table function `read_csv` is not allowed" in done.out and "Traceback" not in done.out
    # The agent hears of the bad import, and the second catalog of what is wrong with it.
    assert "3,704 became 4,004" in done.out
    assert "orders.amount:outliers: Unusually large" in done.out and "orders.channel:nulls: Nulls" in done.out
    assert (tmp_path / "demo" / "customers.csv").exists()
    assert missing_lines(done.out) == []


def test_an_unexpected_error_is_one_line_with_no_detail(etude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_HOME", "/proc/nowhere")
    done = etude("sql", "shop.duckdb", "SELECT 1")
    assert done.code != 0 and done.err.startswith("error: ")
