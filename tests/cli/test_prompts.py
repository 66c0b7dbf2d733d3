"""The prompts for SQL and for questions, `etude init`, `etude completion`, and what `etude runs` shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from etude.cli.main import COMMANDS, run_command

from .terminal import run_in_terminal

ETUDE = [sys.executable, "-m", "etude"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("shop.duckdb") as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount DOUBLE)")
        db.execute("INSERT INTO orders VALUES (1, 2.5), (2, 4.0)")
    return tmp_path


def spoken(*arguments: str, lines: list[str]) -> tuple[str, str]:
    done = subprocess.run(
        [*ETUDE, *arguments], input="\n".join(lines), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout, done.stderr


def test_the_sql_prompt_runs_queries_and_commands() -> None:
    lines = [".tables", ".schema orders", "SELECT sum(amount) AS", "  total FROM orders;", "SELECT nope;", "\\x"]
    out, err = spoken(
        "shell", "shop.duckdb", "--sql", lines=[*lines, "FROM orders;", ".nope", "/help", "exit", "FROM x;"]
    )
    assert "orders │ table │    2 │       2" in out and "orders │ id     │ INTEGER │ key" in out
    assert "total\n" in out and "6.5" in out
    assert "nope" in err and err.count("error:") == 1
    assert "─[ row 2 ]" in out and "There is no command `.nope`" in out and ".schema [TABLE]" in out


def test_the_last_query_of_a_script_needs_no_semicolon() -> None:
    out, _ = spoken("shell", "shop.duckdb", "--sql", lines=["SELECT count(*) AS n", "FROM orders"])
    assert "1 row" in out


def test_ctrl_c_discards_an_unfinished_query(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["SELECT half", KeyboardInterrupt(), "SELECT 7 AS seven;", EOFError()])

    def type_next(_: str = "") -> str:
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", type_next)
    assert run_command(["shell", "shop.duckdb", "--sql"]) == 0
    seen = capsys.readouterr()
    assert "seven" in seen.out and "error" not in seen.err


def test_exit_below_a_query_runs_it_and_ends() -> None:
    out, err = spoken("shell", "shop.duckdb", "--sql", lines=["SELECT 7 AS seven", "exit", "SELECT 8 AS eight;"])
    assert "seven" in out and "eight" not in out and not err


@pytest.mark.parametrize("end", ["exit", "quit", "/quit"])
def test_chat_has_help_and_an_end(end: str) -> None:
    out, err = spoken("chat", "shop.duckdb", lines=["/help", ".tables", "SQL: SELECT 7 AS seven", end, "SQL: SELECT 8"])
    assert "Ask in plain words" in out and "orders │ table" in out and "seven" in out + err and "SELECT 8" not in err


def test_an_answer_is_printed_once_in_a_terminal(place: Path) -> None:
    script = [{"asked": "sum", "turns": [{"text": "The sum is not known to me."}]}]
    (place / "script.json").write_text(json.dumps(script))
    model = f"scripted:{place}/script.json"
    code, seen = run_in_terminal([*ETUDE, "ask", "shop.duckdb", "What is the sum?", "--model", model], cwd=place)
    assert code == 0 and seen.count("The sum is not known to me.") == 1


def test_init_proposes_what_it_finds_and_replaces_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "sales").mkdir()
    (place / "sales" / "2024.csv").write_text("a,b\n1,2\n")
    (place / "notes.txt").write_text("no data")
    (place / "state").mkdir()
    (place / "state" / "etude.db").write_bytes(b"SQLite format 3\0")
    assert run_command(["init"]) == 0
    text = Path("etude.toml").read_text()
    assert '[sources.shop]\nurl = "shop.duckdb"' in text and '[sources.sales]\nurl = "sales"' in text
    assert "[sources.etude]" not in text, "the state of etude is not data"
    assert run_command(["sql", "sales", "SELECT a FROM t_2024"]) == 0
    assert run_command(["init"]) != 0
    assert "exists already" in capsys.readouterr().err and Path("etude.toml").read_text() == text


def test_init_without_data_writes_a_file_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run_command(["init", "empty"]) == 0
    assert "No data files were found" in capsys.readouterr().err
    os.chdir("empty")
    assert run_command(["config"]) == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS) and "vertical" in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=60)


def test_bash_completes_commands_verbs_and_options(tmp_path: Path) -> None:
    script = subprocess.run([*ETUDE, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    (tmp_path / "complete.bash").write_text(script)

    def completed(*words: str) -> set[str]:
        asked = " ".join(f"'{w}'" for w in words)
        code = f"source complete.bash; COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _shtab_etude {words[0]} "
        code += f"'{words[-1]}' '{words[-2]}'; echo ${{COMPREPLY[@]}}"
        return set(subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split())

    assert completed("etude", "s") == {"sql", "shell", "sources", "serve", "search", "status"}
    assert {"list", "show", "result"} <= completed("etude", "runs", "")
    assert "--format" in completed("etude", "sql", "--f")


def test_every_help_ends_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            run_command([name, "--help"])
        assert "\nexample" in (text := capsys.readouterr().out) and "etude " in text.split("\nexample")[1], name
    assert run_command(["help"]) == 0 and "commands:" in capsys.readouterr().out


def test_a_run_shows_its_answer_its_output_and_how_to_get_both(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> str:
        assert run_command(list(arguments)) == 0
        return capsys.readouterr().out

    asked = printed("ask", "shop.duckdb", "SQL: SELECT sum(amount) AS total FROM orders")
    run_id = next(word for word in asked.split() if word.startswith("run_"))
    shown = printed("runs", "show", run_id)
    assert f"etude runs result {run_id}" in shown and f"etude runs script {run_id}" in shown
    result: dict[str, Any] = json.loads(printed("runs", "result", run_id, "--format", "json"))
    assert result["rows"] == [[6.5]]
    assert "db.sql(" in printed("runs", "script", run_id)
    Path("cell.py").write_text("print('to be seen')\n1 + 1")
    printed("py", "shop.duckdb", "cell.py")
    shown = printed("runs", "show", json.loads(printed("runs", "list", "--kind", "python", "--json"))["items"][0]["id"])
    assert "  printed\n    to be seen\n    2\n" in shown
