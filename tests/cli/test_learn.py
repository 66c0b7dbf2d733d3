from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.main import run_command

CHECK = """\
import sys, traceback
from shop import total

try:
    assert total({}) == 0
    body = ""
except Exception as error:
    body = f'<failure type="{type(error).__name__}" message="x"><![CDATA[{traceback.format_exc()}]]></failure>'
with open(sys.argv[1], "w") as file:
    file.write(f'<testsuite><testcase name="empty">{body}</testcase></testsuite>')
"""
SOURCE = 'def total(row):\n    return row["total"]\n'


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "shop.py").write_text(SOURCE)
    (folder / "conformance.py").write_text(CHECK)
    return folder


def test_learning_once_reporting_and_taking_back(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = ["--repo", str(repo), "--suite", "python -S conformance.py {junit}", "--edits", "1"]
    assert run_command(["learn", "report"]) == 0
    assert "Nothing has been learned yet." in capsys.readouterr().out
    assert run_command(["learn", "once", *suite, "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)
    assert (learned["before"], learned["after"]) == ({"passed": 0, "total": 5}, {"passed": 5, "total": 5})
    (kept,) = learned["kept"]
    assert run_command(["learn", "report", "--page", str(tmp_path / "page.html")]) == 0
    report = capsys.readouterr().out
    assert kept["id"] in report
    assert "passed 0.0% before, 100.0% after" in report
    assert "<svg" in (tmp_path / "page.html").read_text()
    assert run_command(["learn", "revert", kept["id"]]) == 0
    assert (repo / "shop.py").read_text() == SOURCE
    assert run_command(["learn", "revert", kept["id"]]) != 0
    assert "is reverted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["once", "--repo", "nowhere", "--suite", "pytest"], "is not a folder"),
        (["once", "--repo", ".", "--suite", "make"], "neither runs pytest nor writes JUnit XML"),
        (["once", "--repo", ".", "--suite", "pytest 'a"], "cannot be read"),
        (["once", "--repo", ".", "--suite", "pytest", "--proposers", "magic"], "no proposer `magic`"),
        (["revert", "edit_nowhere"], "There is no edit `edit_nowhere`"),
        (["completed", "nowhere.xml", "--repo", "."], "cannot be read"),
    ],
)
def test_mistakes_are_explained(
    repo: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo)
    assert run_command(["learn", *arguments]) != 0
    assert says in capsys.readouterr().err


def test_results_of_tests_are_told_to_agents(repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "junit.xml").write_text('<testsuite><testcase name="a"><failure message="no"/></testcase></testsuite>')
    assert run_command(["learn", "completed", str(tmp_path / "junit.xml"), "--repo", str(repo)]) == 0
    assert "0 of 1 tests passed; this wakes agents." in capsys.readouterr().out


def test_watching_ends_with_its_budget(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = ["--repo", str(repo), "--suite", "python -S conformance.py {junit}", "--every", "0", "--runs", "8"]
    assert run_command(["learn", "watch", *suite, "--propose-only"]) == 0
    told = capsys.readouterr().out
    assert "before: 0 of 5 tests passed" in told
    assert "The budget of 8 runs is spent." in told
