"""`pytest --quick` leaves out what needs a server or much time, and its lists name what is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.quick import SERVERS, SLOW, TESTS

SAMPLE = """
import subprocess
import pytest

@pytest.fixture
def postgres_server(): raise RuntimeError("it was started")

def test_fast(): pass

@pytest.mark.slow
def test_slow(): raise RuntimeError("it ran")

def test_server(postgres_server): pass

def test_server_by_name(request): request.getfixturevalue("postgres_server")

def test_program(): subprocess.run(["/nowhere/mariadbd"])
"""


def test_the_lists_name_what_is_there() -> None:
    assert [path for path in SLOW if not (TESTS / path).exists()] == []
    code = "\n".join(file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py"))
    assert [name for name in SERVERS if f"\ndef {name}(" not in code] == []


def test_a_server_is_left_out_or_skipped_and_a_program_refused(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.quick", "--quick", "-q", "-rA", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], cwd=TESTS.parent, capture_output=True, text=True)
    assert "1 failed, 1 passed, 1 skipped, 2 deselected" in done.stdout, done.stdout + done.stderr
    assert "a quick test may not start `mariadbd`" in done.stdout
