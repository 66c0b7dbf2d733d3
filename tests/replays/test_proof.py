"""A run executed again: the same results, or what differs; as a file; as a difference; and withdrawn."""

from __future__ import annotations

import contextlib
import random
import zipfile
from pathlib import Path

import pytest
from tests.replays.test_cells import CELLS, QUESTION, python
from tests.replays.test_script_library import app, ask, change, decision, scripted, shop, sql

import etude
from etude.app import App
from etude.capsule import write_capsule
from etude.catalog.storage.annotations import Annotations, TableNote
from etude.cli.main import run_command as command
from etude.entities import SourceSpec
from etude.errors import Invalid, NotFound

__all__ = ["app", "shop"]
TOTAL = "What is the total amount per channel?"


def test_a_run_gives_its_results_again(app: App, shop: Path) -> None:
    proof = etude.replay(ask(app, shop, TOTAL).run_id, app=app)
    assert proof.same and len(proof.steps) == 1 and "gave the recorded results" in proof.sentence


def test_other_data_show_the_rows_that_moved(app: App, shop: Path) -> None:
    run_id = ask(app, shop, TOTAL).run_id
    change(shop, "UPDATE orders SET amount = amount + 1 WHERE channel = 'web'")
    proof = app.replay(run_id)
    moved = proof.steps[0].moved
    assert not proof.same and moved is not None and (moved.lost_count, moved.added_count) == (1, 1)
    assert moved.lost[0][0] == moved.added[0][0] == "web"


def test_cells_run_again_too(app: App, shop: Path, tmp_path: Path) -> None:
    model = scripted(tmp_path, *map(python, CELLS), {"text": "The median is 52.0 of 666 orders."})
    proof = app.replay(ask(app, shop, QUESTION, model=model).run_id)
    assert proof.same and {step.kind for step in proof.steps} == {"python"}


def test_a_file_proves_a_run_on_another_machine(app: App, shop: Path, tmp_path: Path) -> None:
    run_id = ask(app, shop, TOTAL).run_id
    file = tmp_path / "run.etude"
    with file.open("wb") as out:
        write_capsule(app.store, app.objects, run_id, out)
    with App(home=tmp_path / "elsewhere") as other:
        assert other.replay(str(file), source=str(shop)).same


def test_a_file_does_not_choose_what_is_opened(app: App, shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.etude"
    with file.open("wb") as out:
        write_capsule(app.store, app.objects, ask(app, shop, TOTAL).run_id, out)
    with pytest.raises(Invalid, match="not registered here"):
        app.replay(str(file))
    app.add_source("mine", SourceSpec(url=str(shop)))
    assert app.replay(str(file), source="mine").same


@pytest.mark.parametrize("part", ["artifacts/", "run.json", "events.jsonl", "steps/001"])
def test_a_file_whose_parts_contradict_each_other_proves_nothing(
    app: App, shop: Path, tmp_path: Path, part: str
) -> None:
    """The data changed, and the forger of the file put the new result in place of the recorded one."""
    first = ask(app, shop, TOTAL).run_id
    change(shop, "UPDATE orders SET amount = amount * 2 WHERE channel = 'app'")
    second = ask(app, shop, TOTAL, fresh=True).run_id
    archives = []
    for run_id in (first, second):
        with (tmp_path / f"{run_id}.etude").open("wb") as out:
            write_capsule(app.store, app.objects, run_id, out)
        archives.append(zipfile.ZipFile(tmp_path / f"{run_id}.etude"))
    honest, other = archives
    assert not app.replay(str(tmp_path / f"{first}.etude"), source=str(shop)).same
    with zipfile.ZipFile(tmp_path / "forged.etude", "w") as forged:
        for name in honest.namelist():
            data = honest.read(name)
            if name.startswith(part):
                data = other.read(name) if name in other.namelist() else b"PAR1 something else PAR1"
                data = data + b"\n-- changed" if name.startswith("steps/") else data
            forged.writestr(name, data)
    with pytest.raises(Invalid, match="contradicts itself"):
        app.replay(str(tmp_path / "forged.etude"), source=str(shop))


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_is_refused(app: App, shop: Path, tmp_path: Path, seed: int) -> None:
    file = tmp_path / "run.etude"
    with file.open("wb") as out:
        write_capsule(app.store, app.objects, ask(app, shop, TOTAL).run_id, out)
    data, chance = bytearray(file.read_bytes()), random.Random(seed)
    at = chance.randrange(len(data) - 30)
    data[at : at + 30] = chance.randbytes(30)
    file.write_bytes(data)
    with contextlib.suppress(Invalid, NotFound):  # the damage may also be where nothing is read
        app.replay(str(file), source=str(shop))


@pytest.mark.parametrize(("name", "error"), [("none.etude", NotFound), ("bad.etude", Invalid)])
def test_a_wrong_file_is_named(app: App, tmp_path: Path, name: str, error: type[Exception]) -> None:
    (tmp_path / "bad.etude").write_bytes(b"no zip")
    with pytest.raises(error, match=name):
        app.replay(str(tmp_path / name))


def test_a_difference_names_its_cause_and_the_rows(app: App, shop: Path) -> None:
    first = ask(app, shop, TOTAL).run_id
    change(shop, "UPDATE orders SET amount = amount * 2 WHERE channel = 'app'")
    found = app.compare_runs(first, ask(app, shop, TOTAL, fresh=True).run_id)
    assert found.cause == "data" and "`orders`" in found.detail
    assert found.moved is not None and found.moved.lost[0][0] == "app"


def test_a_withdrawn_script_answers_nothing_and_its_answers_are_listed(app: App, shop: Path) -> None:
    first = ask(app, shop, TOTAL)
    second = ask(app, shop, TOTAL)
    script, uses = app.scripts.withdraw(first.run_id, "The definition changed.")
    assert script.state == "withdrawn" and [use.run_id for use in uses] == [second.run_id]
    assert decision(app, ask(app, shop, TOTAL)).cause == "no script"


def test_a_script_with_the_value_as_a_parameter_is_withdrawn_too(app: App, shop: Path) -> None:
    first = ask(app, shop, "What is the total amount in 2024?")
    ask(app, shop, "What is the total amount in 2025?", fresh=True)
    app.scripts.withdraw(first.run_id)
    assert not ask(app, shop, "What is the total amount in 2024?").replayed


def test_answers_of_a_withdrawn_script_are_checked_afresh(app: App, shop: Path, tmp_path: Path) -> None:
    wrong = scripted(tmp_path, sql("SELECT count(DISTINCT country) AS n FROM customers"), {"text": "There are 4."})
    first = ask(app, shop, "How many customers are there?", model=wrong)
    used = ask(app, shop, "How many customers are there?", model=wrong)
    _, uses = app.scripts.withdraw(first.run_id)
    scripted(tmp_path, sql("SELECT count(*) AS n FROM customers"), {"text": "There are 40."})
    with App(home=tmp_path / "home", replay="on") as later:  # a model is read once for each app
        found = later.scripts.recheck(uses[0].run_id)
    assert found.first == used.run_id and not found.same_result and found.cause == "code"


def test_a_follow_up_is_checked_after_the_same_questions(app: App, shop: Path) -> None:
    first = ask(app, shop, "How many orders are there per channel?")
    follow = ask(app, shop, "only in 2025", thread_id=first.thread_id)
    found = app.scripts.recheck(follow.run_id)
    assert found.same_result and app.store.run(found.second).thread_id != first.thread_id


def test_answers_that_used_descriptions_or_a_playbook_are_listed(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ETUDE_REPLAY", "on")
    with App() as app:
        app.annotate(str(shop), Annotations(tables={"orders": TableNote(description="One row for each order.")}))
        first = ask(app, shop, TOTAL)
        app.scripts.stored.use("playbook:totals", first.run_id, "shown")
    assert command(["runs", "uses", "playbook:totals"]) == 0
    assert first.run_id in capsys.readouterr().out
    assert command(["runs", "uses", "description:shop", "--check"]) == 0
    shown = capsys.readouterr().out
    assert first.run_id in shown and "the same afresh" in shown


def test_the_commands_show_all_of_it(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ETUDE_REPLAY", "on")
    monkeypatch.chdir(tmp_path)
    assert command(["ask", str(shop), TOTAL]) == 0
    first = next(line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("run_"))
    assert command(["ask", str(shop), TOTAL]) == 0
    shown = capsys.readouterr().out
    assert f"Answered by replaying {first}" in shown
    second = next(line.split()[0] for line in shown.splitlines() if line.startswith("run_"))
    assert command(["ask", str(shop), TOTAL, "--fresh"]) == 0
    assert "Answered by replaying" not in capsys.readouterr().out
    assert command(["runs", "script", first, "--output", "total.py"]) == 0
    assert command(["runs", "replay", second]) == 0
    assert command(["runs", "diff", first, second]) == 0
    assert "the same rows" in capsys.readouterr().out
    assert command(["runs", "export", first, "run.etude"]) == 0
    assert command(["runs", "replay", "run.etude", "--source", str(shop)]) == 0
    assert command(["runs", "scripts"]) == 0
    assert TOTAL in capsys.readouterr().out
    assert command(["runs", "withdraw", first, "--check"]) == 0
    assert "is withdrawn" in capsys.readouterr().out
