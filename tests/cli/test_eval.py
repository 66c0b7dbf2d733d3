"""`etude eval`: questions with known answers give precision, coverage and time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.main import run_command


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    path = tmp_path / "fruit.csv"
    path.write_text("name,stock,colour\napple,3,red\npear,5,green\nplum,7,blue\n")
    return path


def write(folder: Path, *cases: dict[str, object]) -> str:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(json.dumps(case) for case in cases))
    return str(path)


def test_answers_are_judged_by_their_references(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write(
        shop.parent,
        {"question": "What is the total stock?", "sql": "SELECT sum(stock) FROM fruit", "cause": "sums"},
        {"question": "What is the average stock?", "answer": [[5]], "cause": "sums"},
        {"question": "What is the lowest stock?", "sql": "SELECT 99", "cause": "extremes"},
        {"question": "Which fruit sings best?", "sql": "SELECT name FROM fruit", "cause": "extremes"},
    )
    assert run_command(["eval", str(shop), questions, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["verdict"] for line in lines[:-1]] == ["right", "right", "wrong", "refused"]
    assert lines[0]["confidence"] > 0.5
    figures = lines[-1]
    assert figures["all"]["precision"] == pytest.approx(2 / 3) and figures["all"]["coverage"] == 0.5
    assert figures["causes"]["sums"]["right"] == 2 and figures["causes"]["extremes"]["wrong"] == 1


def test_the_table_tells_databases_apart_and_shows_wrong_answers(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop.parent / "pets.csv").write_text("name,age\nRex,3\nTom,9\n")
    questions = write(
        shop.parent,
        {"question": "What is the highest age?", "sql": "SELECT max(age) FROM pets", "db": "pets"},
        {"question": "What is the highest stock?", "sql": "SELECT 1", "db": "fruit"},
    )
    assert run_command(["eval", str(shop.parent), questions, "--wrong"]) == 0
    shown = capsys.readouterr().out
    assert "wrong: fruit: What is the highest stock?" in shown and "reference: SELECT 1" in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("pets", "fruit", "all"))] == [
        "fruit", "pets", "all",
    ]  # fmt: skip
    assert "confidence at least" in shown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "Line 1 of"),
        ('{"sql": "SELECT 1"}', 'has no "question"'),
        ('{"question": "How many?"}', 'neither "sql" nor "answer"'),
        ('{"question": "How many?", "sql": 5}', "is not a query"),
        ('{"question": "How many?", "answer": 5}', "is not a list of rows"),
        ("", "has no questions"),
        ('{"question": "How many?", "sql": "SELECT 1", "db": "nowhere"}', "has no database `nowhere`"),
    ],
)
def test_a_bad_line_is_named(shop: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = shop.parent / "bad.jsonl"
    path.write_text(line)
    assert run_command(["eval", str(shop.parent), str(path)]) == 2
    assert message in capsys.readouterr().err
