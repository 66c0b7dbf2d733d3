"""`etude py` and `etude shell`, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE orders AS SELECT i AS id FROM range(7) t(i)")
    return path


def etude(home: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "etude", *arguments]
    environment = os.environ | {"ETUDE_HOME": str(home / "home")}
    return subprocess.run(
        command, input=text, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_file_runs_in_a_session_on_the_source(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(
        "import etude\ndb = etude.connect()\nprint('rows')\nlen(db.sql('FROM orders').rows())"
    )
    done = etude(tmp_path, "py", str(shop), str(tmp_path / "study.py"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "rows\n7\n", "")


def test_an_error_has_the_traceback_of_the_code_and_exit_code_1(shop: Path, tmp_path: Path) -> None:
    done = etude(tmp_path, "py", str(shop), "-", text="x = 1\n1 / 0")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "etude/" not in done.stderr


def test_json_tells_the_whole_cell(shop: Path, tmp_path: Path) -> None:
    done = etude(tmp_path, "py", str(shop), "-", "--json", text="print('a')\n40 + 2")
    cell = json.loads(done.stdout)
    assert (cell["ok"], cell["outcome"], cell["stdout"], cell["text"]) == (True, "ok", "a\n", "42")


def test_a_place_to_connect_to_is_given_by_its_name_and_port(shop: Path, tmp_path: Path) -> None:
    text = (
        "import urllib.request\ntry: urllib.request.urlopen('http://other.example:80/')\nexcept OSError as e: print(e)"
    )
    done = etude(tmp_path, "py", str(shop), "-", "--network", "api.example.com:443", text=text)
    assert (done.returncode, "403" in done.stdout) == (0, True), done
    assert "other.example:80 is not on the list" in done.stderr
    assert "`nonsense`" in etude(tmp_path, "py", str(shop), "-", "--network", "nonsense", text="1").stderr


def test_code_that_runs_too_long_is_stopped(shop: Path, tmp_path: Path) -> None:
    done = etude(tmp_path, "py", str(shop), "-", "--timeout", "0.5", text="while True: pass")
    assert done.returncode == 1
    assert "Timeout: The cell passed its time limit of 0.5 s and was stopped." in done.stderr


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_time_in_which_nothing_can_run_is_refused(shop: Path, tmp_path: Path, seconds: str) -> None:
    done = etude(tmp_path, "py", str(shop), "-", f"--timeout={seconds}", text="print('never')")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"A cell cannot run for {seconds} seconds." in done.stderr


def test_what_cannot_work_is_refused_before_it_runs(shop: Path, tmp_path: Path) -> None:
    done = etude(tmp_path, "py", str(shop), "-", text="print('never')\nimport subprocess")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Line 2" in done.stderr


def test_a_missing_file_and_a_missing_source_say_so(shop: Path, tmp_path: Path) -> None:
    assert "Cannot read" in etude(tmp_path, "py", str(shop), "nowhere.py").stderr
    done = etude(tmp_path, "py", "nowhere.duckdb", "-", text="1")
    assert (done.returncode, "nowhere.duckdb" in done.stderr) == (4, True)


@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbfprint('caf\xc3\xa9')\r\n", b"# -*- coding: latin-1 -*-\nprint('caf\xe9')\n"],
    ids=["with a mark, as Windows writes it", "latin-1 that says so"],
)
def test_a_file_is_read_as_python_would(shop: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "study.py").write_bytes(content)
    done = etude(tmp_path, "py", str(shop), str(tmp_path / "study.py"))
    assert (done.returncode, done.stdout) == (0, "café\n"), done.stderr


def test_text_of_an_unknown_encoding_is_refused_with_what_to_do(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "study.py").write_bytes(b"print('caf\xe9')\n")
    for name in (str(tmp_path / "study.py"), "-"):
        command = [sys.executable, "-m", "etude", "py", str(shop), name]
        environment = os.environ | {"ETUDE_HOME": str(tmp_path / "home")}
        with (tmp_path / "study.py").open("rb") as file:
            done = subprocess.run(command, stdin=file, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "UTF-8" in done.stderr and "coding: latin-1" in done.stderr


def test_values_of_the_data_do_not_drive_the_terminal(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text("print('\\x1b]0;owned\\x07 \\x1b[31mred\\x1b[0m')")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "etude", "py", str(shop), str(tmp_path / "study.py")]
    environment = os.environ | {"ETUDE_HOME": str(tmp_path / "home")}
    subprocess.run(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, timeout=240, check=True)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # which is how a terminal says that nobody writes any more
        while more := os.read(ours, 1 << 16):
            said += more
    os.close(ours)
    assert rb"\x1b]0;owned\x07" in said and b"\x1b]" not in said
    assert b"\x1b[31mred\x1b[0m" in said, "colours are let through"


def test_a_prompt_takes_blocks_that_wait_and_lines_in_brackets_and_is_left_by_exit(shop: Path, tmp_path: Path) -> None:
    lines = "import asyncio\nfor i in range(2):\n    await asyncio.sleep(0)\n    print('turn', i)\n\n"
    lines += "x = (1,\n2)\nsum(x)\nexit()\nprint('never')\n"
    done = etude(tmp_path, "shell", str(shop), text=lines)
    assert (done.returncode, done.stderr) == (0, "")
    assert "turn 0\nturn 1\n" in done.stdout and "3\n" in done.stdout and "never" not in done.stdout


def test_a_prompt_has_its_database_again_after_its_session_ended(shop: Path, tmp_path: Path) -> None:
    lines = "import os\nos._exit(9)\nlen(db.sql('FROM orders').rows()) * 11\n"
    done = etude(tmp_path, "shell", str(shop), text=lines)
    assert "SessionDied" in done.stderr and "77\n" in done.stdout


def test_a_prompt_keeps_names_and_goes_on_after_errors(shop: Path, tmp_path: Path) -> None:
    lines = "x = 20\ndef twice(n):\n    return 2 * n\n\ntwice(x) + 2\n1 / 0\nlen(db.sql('FROM orders').rows())\n"
    done = etude(tmp_path, "shell", str(shop), text=lines)
    assert done.returncode == 0
    assert "42" in done.stdout
    assert "ZeroDivisionError" in done.stderr
    assert done.stdout.rstrip().splitlines()[-1].endswith("7") or "7" in done.stdout.splitlines()[-2]
