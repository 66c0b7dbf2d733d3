"""Suites that send, write or forge more than they may."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from etude.learning.edits import program_sandbox
from etude.learning.edits.program_sandbox import Program, ProgramLimits, run_program_in_sandbox
from etude.learning.edits.suite import Suite
from etude.learning.edits.workspace import open_workspace

PYTEST = "python -m pytest -q -p no:schemathesis -p no:xdist -p no:hypothesispytest -p no:playwright -p no:timeout"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


def test_a_flood_of_messages_ends_the_run(repo: Path) -> None:
    (repo / "test_flood.py").write_text(
        "import os\n\n\ndef test_flood():\n"
        "    for fd in range(3, 4096):\n"
        "        try:\n"
        "            for _ in range(800):\n"
        "                os.write(fd, b'x' * (1 << 20))\n"
        "        except OSError:\n"
        "            pass\n"
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = Suite(PYTEST, ProgramLimits(wall_s=60)).run(open_workspace(repo, PYTEST.split()), 1)
    assert run.problem == "it sent more than 64 MiB of reports"
    assert not run.passed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_many_short_messages_cost_little(repo: Path) -> None:
    (repo / "test_flood.py").write_text(
        "import os\n\n\ndef test_flood():\n"
        "    for fd in range(3, 4096):\n"
        "        try:\n"
        "            for _ in range(40):\n"
        "                os.write(fd, b'ab\\n' * (1 << 18))\n"
        "        except OSError:\n"
        "            pass\n"
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = Suite(PYTEST, ProgramLimits(wall_s=60)).run(open_workspace(repo, PYTEST.split()), 1)
    assert run.problem == "its reports were tampered with"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_junit_file_that_is_too_large_is_a_problem(repo: Path) -> None:
    (repo / "conformance.py").write_text(
        "import sys\nwith open(sys.argv[1], 'w') as f:\n    f.write('<testsuite><testcase name=\"a\"/>')\n"
        "    for _ in range(40):\n        f.write(' ' * (1 << 20))\n    f.write('</testsuite>')\n"
    )
    command = "python -S conformance.py {junit}"
    run = Suite(command).run(open_workspace(repo, command.split()), 1)
    assert run.problem == "it wrote more than 16 MiB of JUnit XML"
    assert not run.outcomes


@pytest.mark.parametrize(
    "made", ["os.symlink('/etc/hosts', path)", "os.mkfifo(path)", "os.mkdir(path)", "pass"], ids=lambda made: made[:9]
)
def test_junit_xml_that_is_not_a_file_is_a_problem(repo: Path, made: str) -> None:
    (repo / ".etude-junit.xml").write_text('<testsuite><testcase name="a"/></testsuite>')
    (repo / "conformance.py").write_text(f"import os, sys\npath = sys.argv[1]\n{made}\n")
    command = "python -S conformance.py {junit}"
    run = Suite(command).run(open_workspace(repo, command.split()), 1)
    assert run.problem == "the command wrote no JUnit XML"
    assert not run.outcomes


@pytest.mark.parametrize("kept", ["files", "descriptors"])
def test_the_writable_copy_has_a_limit(repo: Path, tmp_path: Path, kept: str) -> None:
    (repo / "fill.py").write_text(
        "import errno, os\n"
        "block, total, held = b'x' * (1 << 20), 0, []\n"
        "try:\n"
        "    for n in range(64):\n"
        "        f = open(f'f{n}', 'wb', buffering=0)\n"
        "        held.append(f)\n"
        f"        {kept == 'descriptors'} and os.unlink(f'f{{n}}')\n"
        "        for _ in range(4):\n"
        "            total += f.write(block)\n"
        "except OSError as error:\n"
        "    print(errno.errorcode[error.errno], total >> 20)\n"
    )
    copy = open_workspace(repo).copy_to(tmp_path / "copy")
    ended = run_program_in_sandbox(
        Program(["python3", "fill.py"], copy, str(repo), limits=ProgramLimits(scratch=32 << 20))
    )
    word, size = ended.output.split()
    assert word == "ENOSPC"
    assert 24 <= int(size) <= 40
    assert [p.name for p in copy.iterdir()] == ["fill.py"]  # the host's own copy stays as it is


def test_a_program_has_limits_by_default() -> None:
    assert program_sandbox.MESSAGES == 64 << 20
    assert program_sandbox.RESULT == 16 << 20


FORGE = """\
import hashlib, hmac, json, os, re, sys

def find_keys():
    text = b""
    for name in ("self", "1", *[p for p in os.listdir("/proc") if p.isdigit()]):
        for file in ("environ", "cmdline"):
            try:
                with open(f"/proc/{name}/{file}", "rb") as found:
                    text += found.read()
            except OSError:
                pass
    for fd in range(3, 4096):
        try:
            os.set_blocking(fd, False)
            text += os.read(fd, 4096)
        except OSError:
            pass
    return [m.decode() for m in re.findall(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", text)]

KEYS = find_keys()
"""


def test_the_key_of_reports_is_gone_before_the_code_under_test_is_imported(repo: Path) -> None:
    (repo / "forge.py").write_text(FORGE)
    (repo / "conftest.py").write_text("import forge\n")
    (repo / "test_forge.py").write_text(
        "import os, forge\n\n\ndef test_no_key():\n    assert forge.KEYS == []\n    assert forge.find_keys() == []\n"
        "    assert not [name for name in os.environ if name.startswith('ETUDE_KEY')]\n"
    )
    run = Suite(PYTEST).run(open_workspace(repo, PYTEST.split()), 1)
    assert run.problem == ""
    assert run.failures == {}
    assert run.passed == 1


def test_the_key_of_reports_is_gone_before_a_plugin_of_the_repository_is_imported(repo: Path) -> None:
    (repo / "forge.py").write_text(FORGE)
    (repo / "pytest.ini").write_text("[pytest]\naddopts = -p forge\n")
    (repo / "test_forge.py").write_text("import forge\n\n\ndef test_no_key():\n    assert forge.KEYS == []\n")
    run = Suite(PYTEST).run(open_workspace(repo, PYTEST.split()), 1)
    assert (run.problem, run.failures, run.passed) == ("", {}, 1)


def test_a_report_without_the_key_is_noticed(repo: Path) -> None:
    (repo / "test_forge.py").write_text(
        "import os\n\n\ndef test_it():\n"
        "    for fd in range(3, 4096):\n"
        "        try:\n"
        "            os.write(fd, b'0' * 64 + b' {\"n\": 1, \"finished\": 0}\\n')\n"
        "        except OSError:\n"
        "            pass\n"
        "    os._exit(0)\n"
    )
    run = Suite(PYTEST).run(open_workspace(repo, PYTEST.split()), 1)
    assert run.problem == "its reports were tampered with"
    assert run.passed == 0


def test_a_repository_that_makes_warnings_errors_can_be_run(repo: Path) -> None:
    (repo / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (repo / "test_it.py").write_text("def test_it():\n    assert True\n")
    run = Suite(PYTEST).run(open_workspace(repo, PYTEST.split()), 1)
    assert (run.problem, run.failures, run.passed) == ("", {}, 1)


@pytest.mark.parametrize(
    "patch",
    [
        "import builtins\nbuiltins.abs = lambda x: 0",
        "import builtins\nbuiltins.isinstance = lambda *a: True",
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None",
        "import pytest\npytest.approx = lambda x: x",
    ],
)
def test_code_that_replaces_what_assertions_use_is_noticed(repo: Path, patch: str) -> None:
    (repo / "shop.py").write_text(f"{patch}\n")
    (repo / "test_shop.py").write_text("import shop\n\n\ndef test_it():\n    pass\n")
    run = Suite(PYTEST).run(open_workspace(repo, PYTEST.split()), 1)
    # pytest itself may fail on such a builtin before the end, by chance.
    assert run.problem in ("a test that must fail passed", "it ended before it had reported all tests")


def test_code_that_replaces_nothing_is_not_suspected(repo: Path) -> None:
    (repo / "test_shop.py").write_text(
        "import builtins\nimport gettext\nimport unittest\n\ngettext.install('shop')\n\n\n"
        "def test_it(monkeypatch):\n    monkeypatch.setattr(builtins, 'len', lambda x: 3)\n\n\n"
        "class Case(unittest.TestCase):\n    def test_that(self):\n        self.assertEqual(1, 1)\n"
    )
    run = Suite(PYTEST).run(open_workspace(repo, PYTEST.split()), 1)
    assert not run.problem and all(outcome.passed for outcome in run.outcomes.values())
