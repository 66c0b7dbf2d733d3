from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.main import run_command


@pytest.fixture
def skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    file = tmp_path / "SKILL.md"
    file.write_text("---\nname: revenue\ndescription: How revenue is counted\n---\nLeave out returns.\n")
    return file


def test_playbooks_are_added_listed_pinned_and_retired(skill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["playbooks", "list"]) == 0
    assert "No playbooks yet" in capsys.readouterr().out
    assert run_command(["playbooks", "add", str(skill)]) == 0
    assert run_command(["playbooks", "list"]) == 0
    shown = capsys.readouterr().out
    assert "revenue is active" in shown
    assert "not measured yet" in shown
    assert run_command(["playbooks", "pin", "revenue"]) == 0
    assert run_command(["playbooks", "retire", "revenue"]) == 0
    assert run_command(["playbooks", "show", "revenue"]) == 0
    shown = capsys.readouterr().out
    assert "revenue (retired: somebody asked for it)" in shown
    assert "Leave out returns." in shown
    assert run_command(["playbooks", "history", "revenue", "--json"]) == 0
    assert [c["change"] for c in json.loads(capsys.readouterr().out)] == ["added", "pinned", "retired"]
    assert run_command(["playbooks", "effect", "revenue"]) == 0
    assert "withheld: 0 of 0 runs succeeded" in capsys.readouterr().out


def test_mistakes_are_explained(skill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["playbooks", "show", "nowhere"]) != 0
    assert "There is no playbook `nowhere`" in capsys.readouterr().err
    skill.write_text("no head")
    assert run_command(["playbooks", "add", str(skill)]) != 0
    assert "no front matter" in capsys.readouterr().err


def test_a_draft_can_be_read_before_it_is_accepted(
    skill: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = tmp_path / "home" / "playbooks" / "main" / ".drafts" / "revenue"
    draft.mkdir(parents=True)
    skill.rename(draft / "SKILL.md")
    assert run_command(["playbooks", "show", "revenue"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("revenue (draft: ") and "Leave out returns." in out
    assert run_command(["playbooks", "accept", "revenue"]) == 0
    assert run_command(["playbooks", "show", "revenue", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["state"] == "active"


def test_a_long_playbook_is_accepted_with_a_warning(skill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skill.write_text(skill.read_text() + "Look twice. " * 300)
    assert run_command(["playbooks", "add", str(skill)]) == 0
    assert "too long to be shown to a model as a whole" in capsys.readouterr().err


def test_a_description_over_several_lines_is_printed_on_one(skill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skill.write_text("---\nname: countries\ndescription: |\n  How they are written:\n  two letters.\n---\nDE\n")
    assert run_command(["playbooks", "add", str(skill)]) == 0
    assert run_command(["playbooks", "show", "countries"]) == 0
    assert "\nHow they are written: two letters.\n" in capsys.readouterr().out
