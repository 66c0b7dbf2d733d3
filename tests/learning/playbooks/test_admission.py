"""Drafts are admitted by asking earlier questions again, without and with them, by the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.app import App
from etude.cli.main import run_command
from etude.entities import SourceSpec

NEED = {
    "name": "amount",
    "kind": "column",
    "fact": "amount",
    "right": "net_total",
    "wrong": ["no_such_column"],
    "told": ["adds up the net column"],
}
TASKS = [
    {"asked": "revenue", "code": "SELECT sum(${amount}) AS n FROM orders", "needs": [NEED], "argument": "query"},
    *({"asked": f"question {n}", "code": f"SELECT {n} AS n", "argument": "query"} for n in range(5)),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which a model failed because it does not know a column, and succeeded five times otherwise."""
    (tmp_path / "orders.csv").write_text("id,net_total\n1,10\n2,20\n")
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ETUDE_MODEL", f"sim:0?tasks={tmp_path}/tasks.json")
    with App() as app:
        app.add_source("shop", SourceSpec(url=str(tmp_path / "orders.csv")))
        failed = app.ask("shop", "What is the revenue?").run.id
        for number in range(5):
            app.ask("shop", f"What is question {number}?")
    write_draft(tmp_path / "home", "net", failed, "Revenue adds up the net column.")
    write_draft(tmp_path / "home", "vague", failed, "Look twice.")
    write_draft(tmp_path / "home", "foreign", "run_nowhere", "Look twice.")
    return tmp_path / "home"


def write_draft(home: Path, name: str, run_id: str, text: str) -> None:
    file = home / "playbooks" / "main" / ".drafts" / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"---\nname: {name}\ndescription: How revenue is counted\nmetadata:\n  state: draft\n  source: shop\n"
        f"  trigger: [revenue]\n  runs: [{run_id}]\n---\n{text}\n"
    )


def test_a_draft_that_turns_failure_into_success_is_admitted_on_probation(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["playbooks", "try", "net"]) == 0
    shown = capsys.readouterr()
    assert "net is probation: better in 2 of 2 replays of its own runs, 5 of 5 others fine" in shown.out
    assert "What is the revenue?: fails without, succeeds with it" in shown.err
    assert run_command(["playbooks", "list"]) == 0
    assert "probation" in capsys.readouterr().out


def test_a_draft_that_changes_nothing_stays_a_draft(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["playbooks", "try", "vague", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["admitted"], told["state"]) == (False, "draft")
    assert told["reason"] == "it improves the run that it came from on 0 seeds; 2 are needed"
    assert run_command(["playbooks", "drafts"]) == 0
    assert "vague" in capsys.readouterr().out


def test_what_cannot_be_tried_is_explained(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["playbooks", "try", "foreign"]) != 0
    assert "None of the runs of draft `foreign` is a question to a model" in capsys.readouterr().err
    assert run_command(["playbooks", "try", "net", "--model", "offline"]) != 0
    assert "there is nothing to try" in capsys.readouterr().err
    assert run_command(["playbooks", "try", "nowhere"]) != 0
    assert "There is no draft `nowhere`" in capsys.readouterr().err
