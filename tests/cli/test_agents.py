"""`etude agents` and `etude worker`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.agents.worker import Worker
from etude.app import App
from etude.cli.main import run_command


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def say(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run_command(["agents", *words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_an_agent_from_its_creation_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, "create", "echo", "subject=rain", "interval_s=5", "--id", "e")["activity"] == "queued"
    assert say(capsys, "message", "e", "hello")["action"].startswith("action_")
    assert say(capsys, "pause", "e")["status"] == "paused"
    assert say(capsys, "resume", "e", "go on")["status"] == "active"
    assert say(capsys, "steer", "e", '{"subject": "snow"}')["status"] == "active"
    assert say(capsys, "interrupt", "e")["status"] == "active"
    assert say(capsys, "reload", "e", "subject=hail")["config"] == {"subject": "hail", "interval_s": 5.0}
    assert [a["id"] for a in say(capsys, "list")["items"]] == ["e"]
    assert say(capsys, "destroy", "e", "--grace", "0")["status"] == "destroyed"
    assert say(capsys, "list")["items"] == []


def test_mistakes_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["agents", "create", "echo", "subject"]) == 2
    assert "Write key=value" in capsys.readouterr().err
    assert run_command(["agents", "show", "nobody"]) == 4
    assert "There is no agent `nobody`" in capsys.readouterr().err
    assert run_command(["worker", "--slots", "0"]) == 2
    assert run_command(["worker", "--drain", "-1"]) == 2
    assert "`--drain -1` is not a valid time" in capsys.readouterr().err
    assert run_command(["agents", "create", "echo", "subject=rain", "--id", ""]) == 2
    assert "`` is not a valid agent id" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_command(["agents", "create"])
    assert "required: kind\n" in capsys.readouterr().err
    assert run_command(["agents", "list", "--limit", str(10**20)]) == 0


def test_a_value_is_text_where_the_configuration_asks_for_text(capsys: pytest.CaptureFixture[str]) -> None:
    made = say(capsys, "create", "echo", "subject=2026", "interval_s=5", "--id", "e")
    assert made["config"] == {"subject": "2026", "interval_s": 5.0}
    assert say(capsys, "reload", "e", 'subject={"a": 1}')["config"]["subject"] == '{"a": 1}'
    assert say(capsys, "reload", "e", 'subject="in quotes"')["config"]["subject"] == "in quotes"
    assert say(capsys, "message", "e", "NaN")["action"]
    with App() as app:
        assert app.agents.queue.read("SELECT payload FROM actions WHERE kind = 'message'") == [('"NaN"',)]


def test_whoever_creates_an_agent_is_told_who_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["agents", "create", "echo", "subject=rain"]) == 0
    assert "`etude serve`" in capsys.readouterr().err


def test_a_path_means_the_same_where_the_worker_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stock.csv").write_text("item,n\ntea,42\n")
    ask = ["sql=SELECT n FROM stock", "every_s=60"]
    made = say(capsys, "create", "watch", "source=stock.csv", *ask, "--id", "w")
    assert made["config"]["source"] == str(tmp_path / "stock.csv")
    assert say(capsys, "reload", "w", "source=*.csv")["config"]["source"] == str(tmp_path / "*.csv")
    assert run_command(["sources", "add", "stock", "stock.csv"]) == 0
    capsys.readouterr()
    (tmp_path / "stock").mkdir()
    assert say(capsys, "reload", "w", "source=stock")["config"]["source"] == "stock"


def test_a_worker_works_and_drains(capsys: pytest.CaptureFixture[str]) -> None:
    say(capsys, "create", "echo", "subject=\x1b[31mred", "interval_s=1", "--id", "e")
    command = [sys.executable, "-m", "etude", "worker"]
    worker = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.PIPE, text=True)
    try:
        while say(capsys, "show", "e")["step_no"] < 2:
            assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=120) == 0
    finally:
        worker.kill()
        _, said = worker.communicate()
    assert "steps at once" in said and "no new steps" in said
    assert run_command(["agents", "show", "e"]) == 0
    shown = capsys.readouterr().out
    assert "tick ok" in shown and "\x1b" not in shown
    assert run_command(["agents", "watch"]) == 0
    assert "1 agents" in capsys.readouterr().out


def test_show_prints_the_document_of_an_analyst(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stock.csv").write_text("item,n\ntea,42\n")
    with App() as app:
        config = {"source": str(tmp_path / "stock.csv"), "questions": ["SQL: SELECT item, n FROM stock"]}
        app.agents.create("analyst", config, id="a")
        with Worker(app, app.agents.queue):
            wait_until(lambda: app.agents.get("a").activity == "done")
    assert run_command(["agents", "show", "a"]) == 0
    assert "\n## SQL: SELECT item, n FROM stock\n" in (shown := capsys.readouterr().out)
    assert "\n| tea | 42 |\n" in shown


def see(columns: int) -> tuple[int, str]:
    """What `etude agents watch` shows in a terminal of this width until Ctrl-C, and how it ends."""
    import fcntl
    import pty
    import struct
    import termios

    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "etude", "agents", "watch"]
    watch = subprocess.Popen(command, env=env, stdin=other, stdout=other, stderr=other)
    os.close(other)
    text = ""
    try:
        while "e1" not in text or "\u2518" not in text:
            text += os.read(main, 65536).decode(errors="replace")
        watch.send_signal(signal.SIGINT)
        with suppress(OSError):  # which is how a terminal says that nobody writes any more
            while more := os.read(main, 65536):
                text += more.decode(errors="replace")
        return watch.wait(120), text
    finally:
        watch.kill()
        watch.wait()
        os.close(main)


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_the_live_view_fits_the_terminal_and_ends_with_ctrl_c(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(2):
        say(capsys, "create", "echo", "subject=rain", "interval_s=3600", "--id", f"e{n}")
    with App() as app, Worker(app):
        wait_until(lambda: all(a.step_no == 1 for a in app.agents.list().items))
    code, text = see(columns)
    assert code == 0 and "error" not in text
    assert "2 agents, 0 running" in text and "waiting" in text and "rain" in text
    assert ("cost $" in text) == (columns == 100)


def test_the_live_view_has_a_line_for_each_agent_and_says_how_many_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with App() as app:
        for n in range(30):
            app.agents.create("echo", {"subject": "rain " * 30}, id=f"e{n}")
        with Worker(app, app.agents.queue):
            wait_until(lambda: all(a.step_no == 1 for a in app.agents.list().items))
    code, text = see(60)
    assert code == 0 and "30 agents, 0 running, 15 shown" in text
    assert "e15" in text and "e14" not in text
    lines = [line for line in text.splitlines() if "\u2502" in line]
    assert all("rain" in line for line in lines)


def test_a_view_that_nobody_looks_at_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    say(capsys, "create", "echo", "subject=rain", "--id", "e")
    assert run_command(["agents", "watch"]) == 0
    assert "1 agents, 0 running" in capsys.readouterr().out
