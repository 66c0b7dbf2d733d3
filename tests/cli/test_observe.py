from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.main import run_command
from etude.sample import write_shop


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    write_shop(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)


def test_failures_are_grouped_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["observe", "--cycles", "1"]) == 0
    assert "no failure happened three times" in capsys.readouterr().err
    for name in ("a", "b", "c"):
        assert run_command(["sql", "shop", f"SELECT * FROM nowhere_{name}"]) != 0
    capsys.readouterr()
    assert run_command(["observe", "--cycles", "1", "--json"]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {f["count"] for f in findings} == {3}
    assert len(findings[0]["evidence"]) == 3
    assert (
        run_command(
            ["sql", "@ops", "SELECT count(*) AS n FROM operations WHERE outcome = 'failed'", "--format", "json"]
        )
        == 0
    )


def test_a_report_is_an_operation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["log", "joins count twice", "--failed"]) == 0
    assert run_command(["sql", "@ops", "SELECT input, outcome FROM operations", "--format", "csv"]) == 0
    assert "joins count twice,failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["log", " "], "The report is empty"),
        (["log", "x", "--source", "nowhere"], "There is no dataset `nowhere`"),
        (["log", "x", "--run", "run_nowhere"], "run_nowhere"),
        (["observe", "ftp://host", "--cycles", "1"], "is not a URL of a server"),
        (["observe", "http://127.0.0.1:9", "--cycles", "1"], "cannot be read"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments) != 0
    assert says in capsys.readouterr().err
