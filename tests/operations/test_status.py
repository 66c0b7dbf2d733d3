"""The status: what runs, what waits, and what is wrong, in words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import listening
from tests.patience import wait_until

from etude.agents.base import InboxItem, Kind, StepContext, StepResult
from etude.agents.worker import Worker
from etude.app import App
from etude.cli.main import run_command
from etude.entities import Entity, SourceSpec
from etude.errors import EtudeError, Invalid
from etude.operations import status
from etude.operations.status import installation_status, status_measures
from etude.store import processes
from etude.store.processes import Processes

Open = Callable[..., App]
AHEAD = """
import time
now = time.time
time.time = lambda: now() + 120.0
"""


@contextmanager
def started(store_url: str, folder: Path, *command: str, first: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of etude as a process that uses the store; `first` is code that runs before it."""
    code = f"{first}\nimport sys\nfrom etude.cli.main import run_command\nsys.exit(run_command({list(command)!r}))"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETUDE_")}
    settings = kept | {"ETUDE_HOME": str(folder / "home"), "ETUDE_STORE": store_url}
    process = subprocess.Popen([sys.executable, "-c", code], env=settings, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def states(app: App) -> list[tuple[str, str]]:
    return [(process.role, process.state) for process in Processes(app.store).list()]


class Anything(Entity):
    """A configuration."""

    subject: str
    interval_s: float = 1.0


class Failing(Kind[Anything]):
    """An agent whose steps fail."""

    Config = Anything

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        raise Invalid("The report is not there.")


def test_a_fresh_installation_has_no_problem(open_app: Open, shop: Path) -> None:
    app = open_app()
    app.sql(str(shop), "SELECT 1 AS x", record=True)
    found = installation_status(app)
    assert (found.ok, found.problems, found.notes) == (True, (), ())
    assert found.parts["store"].ok and found.parts["objects"].ok
    assert found.store_bytes > 0 and found.storage["main"].bytes > 0
    assert found.disks[0].free_bytes > 0
    assert found.queue is not None and found.queue.ready == 0


def test_agents_without_a_worker_are_a_problem(open_app: Open) -> None:
    app = open_app()
    app.agents.create("echo", {"subject": "rain"}, id="a")
    found = installation_status(app)
    assert not found.ok and "No worker runs, and 1 actions" in found.problems[0]
    Processes(app.store).enter("worker")
    assert installation_status(app).ok
    Processes(app.store).leave()
    assert not installation_status(app).ok


def test_work_that_waits_too_long_is_a_problem(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app()
    Processes(app.store).enter("worker")
    app.agents.create("echo", {"subject": "rain"}, id="a")
    monkeypatch.setattr(status, "LATE_S", -1.0)
    assert "waited" in installation_status(app).problems[0]


def test_a_full_quota_and_a_full_disk_are_problems(open_app: Open, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app(server={"storage": 100})
    app.sql(str(shop), "SELECT 1 AS x", record=True)
    assert "Tenant `main` uses" in installation_status(app).problems[0]
    monkeypatch.setattr(status, "LOW_SHARE", 2.0)
    monkeypatch.setattr(status, "LOW_BYTES", 1 << 62)
    assert any("nearly full" in problem for problem in installation_status(app).problems)


def test_objects_that_cannot_be_used_do_not_hide_the_rest(open_app: Open, tmp_path: Path) -> None:
    app = open_app(objects="s3://nowhere/x", objects_options={"endpoint": "http://127.0.0.1:1", "allow_http": "true"})
    found = installation_status(app)
    assert not found.parts["objects"].ok and found.parts["store"].ok
    assert "cannot be used" in found.problems[0]


def test_a_killed_process_is_a_problem_unless_another_one_runs(open_app: Open, store_url: str, tmp_path: Path) -> None:
    code = f"""
import os, signal
from etude.app import App
from etude.store.processes import Processes
app = App(home={str(tmp_path / "home")!r}, store={store_url!r})
Processes(app.store).enter("worker")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    app = open_app()
    wait_until(lambda: installation_status(app).problems)
    assert "A worker ended without stopping" in installation_status(app).problems[0]
    Processes(app.store).enter("worker")
    found = installation_status(app)
    assert found.ok and "A worker ended without stopping" in found.notes[0]
    assert Processes(app.store).forget_dead() == 1
    assert installation_status(app).notes == ()


def test_a_server_is_listed_with_what_it_says_of_itself(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app()
    monkeypatch.setattr(status, "ASK_S", 300.0)  # its first sandbox may take long
    with listening(app, runs_agents=True) as running:
        wait_until(lambda: Processes(app.store).list())
        found = installation_status(app)
        ((name, part),) = [item for item in found.parts.items() if item[0].startswith("server")]
        assert str(running.port) in name and part.ok, part.detail
    assert Processes(app.store).list() == []


def test_an_agent_that_failed_for_good_has_the_status_error(open_app: Open) -> None:
    app = open_app()
    agents = app.agents
    agents.create("echo", {"subject": "rain"}, id="good")
    with Worker(app, agents.queue, kinds={"echo": Failing}):
        wait_until(lambda: agents.get("good").status == "error", 240)
    assert [agent.id for agent in agents.list("error").items] == ["good"]
    assert agents.list("active").items == []
    (failed,) = agents.actions(state="failed").items
    assert (failed.agent, failed.attempts, failed.last_error) == ("good", 3, "The report is not there.")
    assert [step.error for step in agents.attempts(failed)] == ["The report is not there."] * 3
    found = installation_status(app)
    assert "1 agents have the status `error`" in found.notes[0]
    assert "The report is not there." in found.errors[0].error

    agents.retry_action(failed.id)
    with Worker(app, agents.queue):
        agents.wait(failed.id)
    assert agents.get("good").status == "active"


def test_the_command_exits_with_1_if_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    assert run_command(["status"]) == 0
    assert "Nothing is wrong." in capsys.readouterr().out
    with App() as app:
        app.agents.create("echo", {"subject": "rain"}, id="a")
    assert run_command(["status"]) == 1
    assert "PROBLEM: No worker runs" in capsys.readouterr().out
    assert run_command(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["queue"]["ready"] == 1


def test_a_source_that_is_down_is_noted_with_its_name_and_the_reason(open_app: Open) -> None:
    app = open_app()
    app.settings.sources["crm"] = SourceSpec(url="postgresql://nobody@127.0.0.1:1/crm")
    with pytest.raises(EtudeError):
        app.sql("crm", "SELECT 1")
    found = installation_status(app)
    assert found.ok
    note = next(text for text in found.notes if "crm" in text)
    assert "source_unavailable" in note
    assert "on crm" in found.errors[0].what


def test_an_observer_runs_no_agents(open_app: Open) -> None:
    app = open_app()
    with Processes(app.store).entered("observer"):
        assert [p.role for p in Processes(app.store).list()] == ["observer"]
        app.agents.create("echo", {"subject": "rain", "interval_s": 3600})
        assert "No worker runs" in installation_status(app).problems[0]
    assert Processes(app.store).list() == []


def test_a_worker_that_hangs_is_a_problem(
    open_app: Open, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app()
    with started(store_url, tmp_path, "worker", "--slots", "1") as worker:
        wait_until(lambda: states(app) == [("worker", "alive")])
        assert installation_status(app).ok
        worker.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(processes, "HUNG_S", 1.0)
        wait_until(lambda: states(app) == [("worker", "hung")])
        app.agents.create("echo", {"subject": "rain"})
        found = installation_status(app)
        assert "No worker runs, and 1 actions" in found.problems[0]
        assert f"A worker hangs: process {worker.pid} on" in found.problems[1]
        numbers = status_measures(app)["processes"]
        assert (numbers["worker", "alive"], numbers["worker", "hung"], numbers["worker", "gone"]) == (0, 1, 0)
        monkeypatch.undo()
        worker.send_signal(signal.SIGCONT)
        wait_until(lambda: states(app) == [("worker", "alive")])
        assert installation_status(app).ok


def test_a_worker_whose_threads_hang_writes_no_heartbeat(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app()
    with Worker(app, app.agents.queue) as worker:
        assert worker.responsive
        worker._maintained -= processes.HUNG_S + 1
        assert not worker.responsive
        wait_until(lambda: worker.responsive)


def test_a_clock_that_is_off_is_a_problem(open_app: Open, store_url: str, tmp_path: Path) -> None:
    app = open_app()
    with started(store_url, tmp_path, "worker", "--slots", "1", first=AHEAD) as worker:
        wait_until(lambda: states(app) == [("worker", "alive")])
        (problem,) = installation_status(app).problems
        assert f"The clock of process {worker.pid} (worker) on" in problem and "ahead of the store's clock" in problem
        assert 100 < status_measures(app)["clock_skew"][("worker",)] < 130
    wait_until(lambda: states(app) == [("worker", "gone")])


def test_the_clock_of_the_process_that_looks_is_checked_too(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app()
    assert installation_status(app).ok
    now = processes.time.time
    monkeypatch.setattr(processes.time, "time", lambda: now() - 90.0)
    assert "The clock of this machine is 90 s behind the store's clock" in installation_status(app).problems[0]


def test_a_process_is_listed_again_after_its_row_was_removed(
    open_app: Open, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app()
    with started(store_url, tmp_path, "observe", "--every", "3600"):
        wait_until(lambda: states(app) == [("observer", "alive")])
        with app.store._transaction() as execute:
            execute("DELETE FROM processes")
        wait_until(lambda: states(app) == [("observer", "alive")])


def test_a_learner_is_listed_while_it_watches(open_app: Open, store_url: str, tmp_path: Path) -> None:
    app = open_app()
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "test_it.py").write_text("def test_it(): pass\n")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(repo), *command], check=True)
    watch = ("learn", "watch", "--repo", str(repo), "--suite", "pytest -q", "--every", "3600")
    with started(store_url, tmp_path, *watch) as learner:
        wait_until(lambda: states(app) == [("learner", "alive")])
        learner.terminate()
        assert learner.wait(120) == 0
    assert states(app) == []


def test_the_numbers_of_the_queue_are_those_of_all_processes(open_app: Open, store_url: str, tmp_path: Path) -> None:
    app = open_app()
    with started(store_url, tmp_path, "worker", "--slots", "1") as worker:
        app.agents.create("echo", {"subject": "rain", "interval_s": 3600}, id="a")
        action = app.agents.message("a", "now")
        app.agents.wait(action)
        wait_until(lambda: status_measures(app)["claims"][()] == 2)
        assert status_measures(app)["ended"][("done",)] == 2
        worker.terminate()
        assert worker.wait(120) == 0
    assert status_measures(app)["claims"][()] == 2
    with Worker(app, app.agents.queue):
        app.agents.wait(app.agents.message("a", "again"))
        # What this process did counts at once, and once.
        assert status_measures(app)["claims"][()] == 3
    assert status_measures(app)["claims"][()] == 3
    assert status_measures(open_app())["claims"][()] == 3


def test_deliveries_that_fail_are_a_problem(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_app(agents={"reach": ["127.0.0.1"]})
    app.agents.create("webhook", {"url": "http://127.0.0.1:1/hook", "secret": "0123456789"}, id="hook")
    with Worker(app, app.agents.queue):
        app.agents.create("echo", {"subject": "rain", "interval_s": 3600}, id="a")
        Processes(app.store).enter("worker")
        wait_until(lambda: any("hook" in text for text in installation_status(app).problems))
        (problem,) = installation_status(app).problems
        assert problem.startswith("Agent `hook` of tenant `main` cannot deliver its events")
        assert "`127.0.0.1` cannot be reached: Connection refused." in problem
        assert status_measures(app)["deliveries_failing"][("main", "hook")] > 0
        assert status_measures(app)["deliveries_lost"][("main", "hook")] == 0
        # A receiver that does not come back: events are given up, and that is said for a day.
        monkeypatch.setattr("etude.agents.delivery.GIVE_UP_S", 0.0)
        wait_until(lambda: status_measures(app)["deliveries_lost"][("main", "hook")])
        wait_until(lambda: any("gave up" in text for text in installation_status(app).problems))
    app.agents.destroy("hook", grace=0.0)
    wait_until(lambda: installation_status(app).problems == () or "hook" not in installation_status(app).problems[0])
