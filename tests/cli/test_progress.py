"""A terminal shows what a command is doing while a large file is read, and nothing of it stays there."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pytest
from tests.cli.terminal import run_in_terminal

ETUDE = [sys.executable, "-m", "etude"]


@pytest.fixture(autouse=True)
def big_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    duckdb.execute("COPY (SELECT i AS id, 'customer ' || i AS customer FROM range(1000000) t(i)) TO 'big.csv' (HEADER)")
    Path("count.py").write_text("import etude\nprint(etude.connect().sql('SELECT count(*) FROM big').rows())")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["sql", "big.csv", "SELECT count(*) AS n FROM big"], "1,000,000"),
        (["sources", "show", "big.csv"], "1,000,000"),
        (["sources", "add", "big", "big.csv"], "1,000,000"),
        (["py", "big.csv", "count.py"], "[(1000000,)]"),
        (["ask", "big.csv", "SQL: SELECT count(*) AS n FROM big"], "n: 1000000"),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, list) else "",
)
def test_a_file_that_is_read_is_shown_with_its_progress(command: list[str], answer: str) -> None:
    code, seen = run_in_terminal([*ETUDE, *command], cleared=True)
    assert code == 0, seen
    assert "reading big.csv ..." in seen
    assert answer in seen
    last = seen.rpartition("\r\x1b[K")[2]
    assert "reading" not in last
