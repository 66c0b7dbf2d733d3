"""The commands of an operator: actions, events, prune, migrate, runs delete and pin."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.cli.main import run_command
from etude.sample import write_shop


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def etude(home: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that runs a command and returns its code, its output and its errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run_command(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_actions_can_be_looked_at_cancelled_and_retried(etude: Any) -> None:
    etude("agents", "create", "echo", "subject=rain", "--id", "a")
    _, sent, _ = etude("agents", "message", "a", "look", "--delay", "3600", "--urgency", "5", "--reason", "a test")
    action = sent.strip()
    listed = json.loads(etude("actions", "list", "--state", "delayed", "--json")[1])["items"]
    assert [(each["id"], each["urgency"]) for each in listed] == [(action, 5)]
    code, shown, _ = etude("actions", "cancel", action, "--reason", "sent twice")
    assert code == 0 and "cancelled: sent twice" in shown
    code, _, error = etude("actions", "cancel", action)
    assert code != 0 and "is cancelled" in error
    assert "ready" in etude("actions", "retry", action)[1]
    code, _, error = etude("actions", "show", "action_none")
    assert code != 0 and "no action `action_none`" in error
    code, _, error = etude("actions", "list", "--agent", "nobody")
    assert code != 0 and "no agent `nobody`" in error

    events = [json.loads(line) for line in etude("events", "--json")[1].splitlines()]
    assert [event["topic"] for event in events] == [
        "agent.created", "agent.messaged", "agent.action_cancelled", "agent.action_retried"
    ]  # fmt: skip
    assert events[2]["body"]["reason"] == "sent twice" and events[2]["body"]["actor"].startswith("local:")
    assert etude("events", "--topic", "agent.action_*", "--limit", "1")[1].count("\n") == 1
    first = str(events[0]["id"])
    assert len(etude("events", "--after", first, "--agent", "a")[1].splitlines()) == 3


def test_all_agents_reload_at_once(etude: Any) -> None:
    for name in ("a", "b"):
        etude("agents", "create", "echo", "subject=rain", "--id", name)
    assert json.loads(etude("agents", "reload", "--all", "--reason", "new settings", "--json")[1]) == {"reloaded": 2}
    assert "agent.reloaded" in etude("events")[1]
    code, _, error = etude("agents", "reload")
    assert code != 0 and "No agent was given" in error


def test_kinds_are_listed_with_their_configuration(etude: Any) -> None:
    _, text, _ = etude("agents", "kinds")
    assert "analyst" in text and "subject" in text and "required" in text
    kinds = {each["kind"]: each for each in map(json.loads, etude("agents", "kinds", "--json")[1].splitlines())}
    assert kinds["echo"]["required"] == ["subject"]
    assert "interval_s" in kinds["echo"]["config"]
    assert kinds["webhook"]["admin"] is True


def test_an_operator_deletes_runs_of_any_tenant(etude: Any, tmp_path: Path) -> None:
    write_shop(tmp_path / "shop")
    with App() as app:
        tenant = app.scoped("trial")
        run_id = str(tenant.sql(str(tmp_path / "shop"), "SELECT 1 AS x", record=True).run_id)
    assert run_id not in etude("runs", "list")[1]
    assert run_id in etude("runs", "list", "--tenant", "trial")[1]
    assert etude("runs", "delete", run_id)[0] != 0
    assert "Deleted 1 run" in etude("runs", "delete", run_id, "--tenant", "trial")[1]


def test_runs_are_pinned_deleted_and_pruned(etude: Any, home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    write_shop(tmp_path / "shop")
    with App() as app:
        first, second, third = (
            str(app.sql(str(tmp_path / "shop"), f"SELECT {n} AS x", record=True).run_id) for n in range(3)
        )
    assert etude("runs", "pin", first, "--reason", "audit")[0] == 0
    assert "audit" in etude("runs", "pins")[1]
    code, _, error = etude("runs", "delete", first, second)
    assert code != 0 and "is pinned" in error
    code, text, _ = etude("runs", "delete", second)
    assert code == 0 and "Deleted 1 run" in text
    assert etude("runs", "show", second)[0] != 0
    monkeypatch.setenv("ETUDE_RETENTION__RUNS", "0.0000000001")
    code, text, _ = etude("prune", "--dry-run")
    assert code == 0 and "1 old runs stay: pinned" in text and "Nothing was deleted." in text
    assert json.loads(etude("prune", "--json")[1])["tenants"]["main"]["runs"] == 1
    assert etude("runs", "show", third)[0] != 0
    assert etude("runs", "unpin", first)[0] == 0
    code, _, error = etude("runs", "unpin", first)
    assert code != 0 and "not pinned" in error


def test_a_migration_is_announced_and_done(etude: Any, home: Path) -> None:
    code, text, _ = etude("migrate", "--dry-run")
    assert code == 0 and "to do  0001_start" in text and not (home / "etude.db").exists()
    assert etude("migrate")[0] == 0
    assert "newest" in etude("migrate", "--dry-run")[1]
    with sqlite3.connect(home / "etude.db") as db:
        db.execute("INSERT INTO schema_version VALUES (999, '2030-01-01')")
    db.close()
    code, _, error = etude("migrate")
    assert code != 0 and "schema version 999" in error
