"""A worker runs steps and keeps the guarantees on pausing, steering, interrupting and destroying."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from tests.agents.conftest import Script
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.base import DONE, IDLE, NOW, InboxItem, Next, StepContext, StepResult
from etude.agents.running_step import RunningStep
from etude.agents.step_runner import StepRunner
from etude.agents.worker import Worker
from etude.app import App
from etude.entities import Entity
from etude.errors import Conflict, Invalid
from etude.store.action import NewAction
from etude.store.identity import Identity, Spent
from etude.store.queue import Queue
from etude.store.topics import Topics

Work = Callable[..., Worker]


class Gate:
    """A step that waits until it is opened, and ends if it is interrupted."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.seen: list[list[InboxItem]] = []
        self.guided: list[Any] = []

    def __call__(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        self.seen.append(inbox)
        ctx.partial = "half"
        self.entered.release()
        stop = threading.Event()
        with ctx.cancel.stopping(stop.set):
            while not self.open.is_set() and not stop.is_set():
                self.open.wait(0.005)
        ctx.check()
        self.guided += ctx.guidance()
        return StepResult(state={"steps": state.get("steps", 0) + 1}, output="whole", next=DONE)

    def wait(self) -> None:
        assert self.entered.acquire(timeout=90)


@pytest.fixture
def gate(script: type[Script]) -> Gate:
    gate = Gate()
    script.do = staticmethod(gate)
    return gate


def outcomes(agents: AgentControl, agent_id: str) -> list[tuple[str, Any]]:
    return [(s.outcome, s.output) for s in agents.steps(agent_id)]


def test_a_step_changes_state_and_history_together(agents: AgentControl, work: Work, script: type[Script]) -> None:
    def count(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        n = state.get("n", 0) + 1
        return StepResult(state={"n": n}, output=n, next=Next(after=0.0) if n < 5 else DONE, tokens=10, cost_usd=0.25)

    script.do = staticmethod(count)
    work()
    agents.create("script", id="a")
    info = wait_until(lambda: (a := agents.get("a")).activity == "done" and a)
    assert (info.step_no, info.last_output, info.tokens, info.cost_usd) == (5, 5, 50, 1.25)
    assert agents.state("a") == {"n": 5}
    assert [(s.step_no, s.kind, s.output) for s in agents.steps("a")] == [
        (1, "start", 1),
        (2, "tick", 2),
        (3, "tick", 3),
        (4, "tick", 4),
        (5, "tick", 5),
    ]


def test_a_message_is_a_step(agents: AgentControl, work: Work, script: type[Script]) -> None:
    script.do = staticmethod(lambda ctx, state, inbox: StepResult(output=[i.body for i in inbox], next=IDLE))
    work()
    agents.create("script", id="a")
    name = agents.message("a", {"say": "hello"}, id="once")
    assert agents.message("a", {"say": "twice"}, id="once") == name == "once"
    assert agents.wait(name).state == "done"
    assert agents.steps("a")[-1].output == [{"say": "hello"}]
    assert len(agents.steps("a")) == 2


def test_an_error_is_retried_and_then_recorded(agents: AgentControl, work: Work, script: type[Script]) -> None:
    def fail(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if inbox[0].kind == "message":
            raise Conflict("No.")
        return StepResult(next=IDLE)

    script.do = staticmethod(fail)
    work()
    agents.create("script", id="a")
    ended = agents.wait(agents.message("a", "poison"))
    assert (ended.state, ended.attempts, ended.last_error) == ("failed", 3, "No.")
    assert agents.get("a").last_error == "No."
    assert [s.outcome for s in agents.steps("a")] == ["ok", "error", "error", "error"]
    assert agents.get("a").status == "error"


def test_every_try_of_an_action_has_the_same_key(agents: AgentControl, work: Work, script: type[Script]) -> None:
    keys: list[tuple[Any, str]] = []

    def fail_twice(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        keys.append((inbox[0].body, ctx.key))
        if inbox[0].kind == "message" and [body for body, _ in keys].count(inbox[0].body) < 3:
            raise Conflict("Not yet.")
        return StepResult(next=IDLE)

    script.do = staticmethod(fail_twice)
    work()
    agents.create("script", id="a")
    for body in ("pay", "pay again"):
        assert agents.wait(agents.message("a", body)).state == "done"
    first, second = ({key for body, key in keys if body == of} for of in ("pay", "pay again"))
    assert len(first) == len(second) == 1 and first != second
    assert [body for body, _ in keys].count("pay") == 3


def test_an_unexpected_error_shows_no_secret_and_is_logged(
    agents: AgentControl, work: Work, script: type[Script], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        raise RuntimeError("password=hunter2")

    script.do = staticmethod(fail)
    work()
    agents.create("script", id="a")
    error = wait_until(lambda: agents.get("a").last_error)
    assert "hunter2" not in error and "RuntimeError" in error
    assert "agent a: step 1 failed" in caplog.text and "password=hunter2" in caplog.text


def test_pause_lets_the_step_end(agents: AgentControl, work: Work, gate: Gate) -> None:
    work()
    agents.create("script", id="a")
    gate.wait()
    assert agents.pause("a").activity == "pausing"
    agents.message("a", "later")
    gate.open.set()
    wait_until(lambda: agents.get("a").activity == "paused")
    assert outcomes(agents, "a") == [("ok", "whole")]
    agents.resume("a")
    wait_until(lambda: len(agents.steps("a")) == 2)


def test_pause_now_interrupts_the_step_and_resume_starts_it_again(agents: AgentControl, work: Work, gate: Gate) -> None:
    work()
    agents.create("script", id="a")
    gate.wait()
    agents.pause("a", mode="now")
    wait_until(lambda: agents.get("a").activity == "paused")
    assert outcomes(agents, "a") == [("interrupted", "half")] and agents.state("a") == {}
    gate.open.set()
    agents.resume("a")
    wait_until(lambda: agents.get("a").activity == "done")
    assert outcomes(agents, "a") == [("interrupted", "half"), ("ok", "whole")]
    assert [[i.kind for i in seen] for seen in gate.seen] == [["start"], ["start"]]


def test_interrupt_begins_the_next_step_with_the_guidance(agents: AgentControl, work: Work, gate: Gate) -> None:
    work()
    agents.create("script", id="a")
    gate.wait()
    agents.interrupt("a", {"do": "otherwise"})
    gate.wait()
    gate.open.set()
    wait_until(lambda: agents.get("a").activity == "done")
    assert outcomes(agents, "a") == [("interrupted", "half"), ("ok", "whole")]
    assert [(i.kind, i.body) for i in gate.seen[1]] == [("guidance", {"do": "otherwise"}), ("start", None)]


def test_guidance_of_an_interrupted_step_is_not_lost(agents: AgentControl, work: Work, gate: Gate) -> None:
    work()
    agents.create("script", id="a")
    for word in ("one", "two"):
        gate.wait()
        agents.interrupt("a", word)
    gate.wait()
    assert [i.body for i in gate.seen[2]] == ["one", "two", None]
    gate.open.set()
    wait_until(lambda: agents.get("a").activity == "done")


def test_interrupt_wakes_an_idle_and_a_paused_agent(agents: AgentControl, work: Work, gate: Gate) -> None:
    gate.open.set()
    work()
    agents.create("script", id="a")
    wait_until(lambda: agents.get("a").activity == "done")
    agents.interrupt("a", "up")
    wait_until(lambda: len(gate.seen) == 2)
    assert [(i.kind, i.body) for i in gate.seen[1]] == [("guidance", "up")]
    wait_until(lambda: agents.get("a").activity == "done")
    agents.pause("a")
    agents.interrupt("a", "again")
    wait_until(lambda: len(gate.seen) == 3)
    assert agents.get("a").status == "active"


def test_steer_reaches_the_running_step_without_interrupting_it(agents: AgentControl, work: Work, gate: Gate) -> None:
    worker = work()
    agents.create("script", id="a")
    gate.wait()
    agents.steer("a", "gently")
    wait_until(lambda: worker._snapshot()[0].guidance)
    gate.open.set()
    wait_until(lambda: agents.get("a").activity == "done")
    assert gate.guided == ["gently"] and outcomes(agents, "a") == [("ok", "whole")]


def test_steer_waits_for_the_next_step_of_an_idle_agent(agents: AgentControl, work: Work, gate: Gate) -> None:
    gate.open.set()
    work()
    agents.create("script", id="a")
    wait_until(lambda: agents.get("a").activity == "done")
    agents.steer("a", "later")
    assert agents.get("a").activity == "done"
    agents.wait(agents.message("a", "now"))
    assert [i.body for i in gate.seen[1]] == ["later", "now"]


def test_destroy_gives_the_step_its_grace_period(agents: AgentControl, work: Work, gate: Gate) -> None:
    work()
    agents.create("script", id="a")
    waiting = agents.message("a", "never")
    gate.wait()
    assert agents.destroy("a", grace=60).status == "destroying"
    assert agents.wait(waiting).state == "cancelled"
    gate.open.set()
    wait_until(lambda: agents.get("a").status == "destroyed")
    assert outcomes(agents, "a") == [("ok", "whole")], "history is kept"
    with pytest.raises(Conflict):
        agents.message("a", "hello?")


def test_destroy_without_grace_interrupts_the_step(
    agents: AgentControl, work: Work, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Allow for slow machines: a step that ends late must not be abandoned.
    monkeypatch.setattr(Queue, "sweep", partialmethod(Queue.sweep, 90.0))
    work()
    agents.create("script", id="a")
    gate.wait()
    agents.destroy("a", grace=0)
    wait_until(lambda: agents.get("a").status == "destroyed")
    assert outcomes(agents, "a") == [("interrupted", "half")]


def test_a_step_that_never_ends_does_not_block_others(agents: AgentControl, work: Work, script: type[Script]) -> None:
    began, end = threading.Semaphore(0), threading.Event()

    def step(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if ctx.agent_id == "hangs":
            began.release()
            end.wait(90)
        return StepResult(state={"ran": True}, next=DONE)

    script.do = staticmethod(step)
    worker = work(slots=1, lease=1.0)
    agents.create("script", id="hangs")
    assert began.acquire(timeout=90)
    agents.destroy("hangs", grace=0)
    agents.create("script", id="other")
    wait_until(lambda: agents.get("other").activity == "done")
    assert agents.get("hangs").status == "destroyed"
    end.set()
    wait_until(lambda: worker.at_work == 0)
    agents.wait(agents.message("other", "again"))
    assert agents.state("hangs") == {} and agents.steps("hangs") == []


def test_a_prefetched_claim_does_not_wait_behind_a_long_step(
    agents: AgentControl, open_app: Callable[[], App], script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agents.running_step.LONG_STEP_S", 90.0)  # release no claim before it was seen
    end, ran = threading.Event(), set[str]()

    def step(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if inbox[-1].body == "long":
            end.wait(90)
        if inbox[-1].body == "short":
            ran.add(ctx.agent_id)
        return StepResult(next=IDLE)

    script.do = staticmethod(step)
    names = [f"a{n}" for n in range(5)]
    with Worker(open_app(), slots=1) as worker:
        for name in names:
            agents.create("script", id=name)
        wait_until(lambda: all(agents.get(name).activity == "idle" for name in names))
        worker._step_s = 0.0  # steps were short so far
        agents.queue.enqueue(NewAction("a0", payload='"long"'), *[NewAction(n, payload='"short"') for n in names[1:]])
        wait_until(lambda: worker.at_work == len(names))
        agents.pause("a1")
        monkeypatch.setattr("etude.agents.running_step.LONG_STEP_S", 0.5)
        with Worker(open_app()):
            wait_until(lambda: ran == set(names[2:]))
        assert agents.get("a1").activity == "paused" and agents.get("a0").activity == "running"
        end.set()
        wait_until(lambda: agents.get("a0").activity == "idle")
    assert "a1" not in ran and {s.outcome for n in names for s in agents.steps(n)} == {"ok"}


def test_reload_gives_the_next_step_the_new_configuration(
    agents: AgentControl, work: Work, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        script, "step", lambda self, ctx, state, inbox: (seen.append(self.config.note), StepResult(next=IDLE))[1]
    )
    work()
    agents.create("script", {"note": "old"}, id="a")
    wait_until(lambda: seen == ["old"])
    agents.reload("a", {"note": "new"})
    wait_until(lambda: agents.get("a").activity == "idle" and not agents.agent_store.pending_control([1]))
    assert len(agents.steps("a")) == 1, "a reload does not make a step"
    agents.wait(agents.message("a", "go"))
    assert seen == ["old", "new"]


def drain(worker: Worker) -> None:
    """Have the worker stop claiming, and wait until it has."""
    worker.drain()
    wait_until(worker._drained.is_set)


def test_reload_reads_the_settings_file_again_in_every_worker(
    open_app: Callable[[], App],
    agents: AgentControl,
    script: type[Script],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "etude.toml"
    file.write_text("")
    monkeypatch.setenv("ETUDE_CONFIG", str(file))
    seen: list[tuple[App, list[str], int]] = []

    def look(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        seen.append((ctx.app, sorted(ctx.app.sources()), ctx.app.settings.limits.rows))
        return StepResult(next=IDLE)

    script.do = staticmethod(look)
    agents.create("script", id="a")
    first, second = open_app(), open_app()
    one, two = Worker(first), Worker(second)
    with one, two:
        wait_until(lambda: seen)
        file.write_text('[sources.shop]\nurl = "shop.db"\n[limits]\nrows = 77\n')
        agents.reload("a")
        wait_until(lambda: all(worker._step_runner.settings_reload.outdated.is_set() for worker in (one, two)))
        drain(one)
        agents.wait(agents.message("a", "go"))
        drain(two)
        one._draining.clear()
        agents.wait(agents.message("a", "go"))
    assert [settings for _, *settings in seen[1:]] == [[["shop"], 77]] * 2
    assert [app for app, *_ in seen[1:]] == [second, first]
    assert first.settings.agents.reach == ("127.0.0.1",), "settings given in other ways stay"


def test_an_invalid_settings_file_is_an_error_of_the_step(
    agents: AgentControl, work: Work, script: type[Script], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "etude.toml"
    file.write_text("")
    monkeypatch.setenv("ETUDE_CONFIG", str(file))
    script.do = staticmethod(lambda ctx, state, inbox: StepResult(next=IDLE))
    worker = work()
    # It has started to listen, and reads the file once because it may have missed a notification.
    wait_until(worker._step_runner.settings_reload.outdated.is_set)
    agents.create("script", id="a")
    wait_until(lambda: agents.get("a").step_no == 1)
    file.write_text("[limits]\nrows = 'many'")
    agents.reload("a")
    agents.wait(agents.message("a", "go"))
    assert [s.outcome for s in agents.steps("a")] == ["ok", "error", "ok"]
    assert "rows" in str(agents.steps("a")[1].error)


def test_a_stopped_worker_leaves_its_step_to_another(
    open_app: Callable[[], App], agents: AgentControl, gate: Gate
) -> None:
    app = open_app()
    with Worker(app):
        agents.create("script", id="a")
        gate.wait()
    assert agents.get("a").activity == "queued" and agents.steps("a") == []
    gate.open.set()
    other = open_app()
    with Worker(other):
        wait_until(lambda: agents.get("a").activity == "done")
    assert outcomes(agents, "a") == [("ok", "whole")]


def test_draining_lets_steps_end_and_starts_none(open_app: Callable[[], App], agents: AgentControl, gate: Gate) -> None:
    app = open_app()
    worker = Worker(app).start()
    agents.create("script", id="a")
    gate.wait()
    agents.message("a", "not any more")
    threading.Thread(target=lambda: worker._draining.wait(90) and gate.open.set()).start()
    worker.stop(drain=90)
    assert outcomes(agents, "a") == [("ok", "whole")]
    assert agents.get("a").activity == "queued"


def test_a_worker_that_lost_its_lease_stops_its_steps(
    agents: AgentControl, open_app: Callable[[], App], work: Work, gate: Gate
) -> None:
    another = open_app().store.worker_id  # a live worker, so its claims are not reclaimed
    worker = work(lease=3.0)
    agents.create("script", id="a")
    gate.wait()

    def take_away() -> Any:
        with agents.queue.transaction() as change:
            return change(
                """UPDATE actions SET token = token + 1, worker = ?, lease_until = lease_until + 3600
                WHERE state = 'running' RETURNING seq""",
                another,
            )

    wait_until(take_away)
    wait_until(lambda: not worker._snapshot())
    assert agents.steps("a") == [] and agents.get("a").activity == "running"


def test_the_session_of_an_agent_outlives_its_worker(
    open_app: Callable[[], App], agents: AgentControl, script: type[Script]
) -> None:
    def count(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        session = ctx.session()
        code = "n = 1" if inbox[0].kind == "start" else "n += 1"
        assert session.execute(code).ok
        return StepResult(output=session.execute("n").value, next=IDLE)

    script.do = staticmethod(count)
    agents.create("script", id="a")
    for expected in (2, 3):
        app = open_app()
        with Worker(app):
            agents.message("a", "on")
            wait_until(lambda n=expected: len(agents.steps("a")) == n)
            assert agents.steps("a")[-1].output == expected


def test_a_step_and_a_question_in_its_thread_share_one_session(
    tmp_path: Path, agents: AgentControl, work: Work, script: type[Script]
) -> None:
    data = tmp_path / "t.csv"
    data.write_text("a\n1\n")

    def count(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        n = state.get("n", 0) + 1
        ctx.session(str(data)).execute(f"x = {n}")
        asked = ctx.app.ask(str(data), "PYTHON: x", thread_id=ctx.thread(str(data))).require()
        ctx.app.ask(str(data), "PYTHON: x *= 10", thread_id=ctx.thread(str(data))).require()
        return StepResult(
            state={"n": n}, output=[asked.text, ctx.session(str(data)).execute("x").value], next=NOW if n < 3 else IDLE
        )

    script.do = staticmethod(count)
    work()
    agents.create("script", id="a")
    wait_until(lambda: len(agents.steps("a")) == 3)
    assert [step.output for step in agents.steps("a")] == [["1", 10], ["2", 20], ["3", 30]]


def test_a_session_sees_the_cells_that_ran_in_another_process(tmp_path: Path, open_app: Callable[[], App]) -> None:
    data = tmp_path / "t.csv"
    data.write_text("a\n1\n")
    here, there = open_app(), open_app()
    thread = here.ask(str(data), "PYTHON: x = 1").require().thread_id
    there.ask(str(data), "PYTHON: x += 1", thread_id=thread).require()
    here.ask(str(data), "PYTHON: x += 1", thread_id=thread).require()
    assert there.ask(str(data), "PYTHON: x", thread_id=thread).require().text == "3"


def test_an_interrupt_stops_the_cell_that_runs(agents: AgentControl, work: Work, script: type[Script]) -> None:
    begun = threading.Event()

    def loop(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if inbox[0].kind == "guidance":
            return StepResult(output="stopped", next=IDLE)
        session = ctx.session()
        session.execute("x = 5")
        begun.set()
        session.execute("while True: pass", wall_s=60)
        return StepResult(output="never")

    script.do = staticmethod(loop)
    work()
    agents.create("script", id="a")
    assert begun.wait(90)
    agents.interrupt("a", "stop it")
    wait_until(lambda: agents.get("a").last_output == "stopped")


def test_a_message_right_after_an_interrupt_is_not_missed(
    agents: AgentControl, work: Work, script: type[Script]
) -> None:
    """The message locks the agent while the worker, woken by the interrupt, tries to claim it."""
    script.do = staticmethod(lambda ctx, state, inbox: StepResult(next=IDLE))
    work()
    agents.create("script", id="a")
    for n in range(30):
        wait_until(lambda: agents.get("a").activity == "idle")
        agents.interrupt("a", n)
        agents.wait(agents.message("a", n), timeout=90)


def test_work_is_found_if_notifications_are_lost(
    agents: AgentControl, work: Work, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notifications are lost, and the maintenance thread hangs."""
    held = threading.Event()
    monkeypatch.setattr(Worker, "_read_control", lambda self: held.wait())
    gate.open.set()
    work()
    agents.create("script", id="a")
    wait_until(lambda: agents.get("a").activity == "done")
    agents.pause("a")
    agents.message("a", "later")
    with agents.queue.transaction() as change:
        change.do("UPDATE agents SET status = 'active'")
    wait_until(lambda: len(gate.seen) == 2)
    held.set()


def test_a_loop_that_fails_is_logged_and_started_again(
    agents: AgentControl, work: Work, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate.open.set()
    capacity, broken = Worker._capacity, threading.Event()

    def break_once(worker: Worker) -> int:
        if not broken.is_set():
            broken.set()
            raise RuntimeError("a defect")
        return capacity(worker)

    monkeypatch.setattr(Worker, "_capacity", break_once)
    work()
    agents.create("script", id="a")
    wait_until(lambda: agents.get("a").activity == "done")
    assert "dispatch failed; starting it again" in caplog.text


ODD: dict[str, Any] = {
    "nothing": None,
    "a state that is not JSON": StepResult(state={"a": object()}),
    "a state that is not a mapping": StepResult(state=[1]),  # type: ignore[arg-type]
    "a large state": StepResult(state={"a": "x" * (1 << 24)}),
    "an output that is not JSON": StepResult(output=object()),
    "a large output": StepResult(output="x" * (1 << 22)),
    "a cost of NaN": StepResult(cost_usd=float("nan")),
    "tokens as text": StepResult(tokens="many"),  # type: ignore[arg-type]
    "too many tokens": StepResult(tokens=10**30),
    "a delay of NaN": StepResult(next=Next(after=float("nan"))),
    "a delay as text": StepResult(next=Next(after="soon")),  # type: ignore[arg-type]
    "a number instead of `Next`": StepResult(next=5),  # type: ignore[arg-type]
    "an invalid topic": StepResult(events=(("Not A Topic", 1),)),
    "an event that is not JSON": StepResult(events=(("n", float("nan")),)),
    "an event without a body": StepResult(events=("n",)),  # type: ignore[arg-type]
    "an error that cannot be stored": Invalid("no\0\ud83d"),
    "an exit": SystemExit(3),
    "a keyboard interrupt": KeyboardInterrupt(),
}


@pytest.mark.parametrize("name", ODD)
def test_a_bad_result_of_one_agent_does_not_affect_others(
    agents: AgentControl, work: Work, script: type[Script], name: str
) -> None:
    def step(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if ctx.agent_id == "odd":
            if isinstance(ODD[name], BaseException):
                raise ODD[name]
            return ODD[name]  # type: ignore[no-any-return]
        n = state.get("n", 0) + 1
        return StepResult(state={"n": n}, next=Next(after=0.0) if n < 20 else DONE)

    script.do = staticmethod(step)
    agents.create("script", id="good")
    agents.create("script", id="odd")
    work()
    wait_until(lambda: agents.get("good").activity == "done" and agents.get("odd").step_no == 3)
    assert {s.outcome for s in agents.steps("good")} == {"ok"}
    assert [(s.outcome, s.input) for s in agents.steps("odd")] == [("error", ANY)] * 3
    assert agents.get("odd").last_error and len(agents.list().items) == 2
    if isinstance(ODD[name], StepResult):
        assert "Unexpected" not in str(agents.get("odd").last_error)


def test_a_result_that_cannot_be_recorded_fails_alone(agents: AgentControl, work: Work, script: type[Script]) -> None:
    both = threading.Barrier(2)

    def step(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        both.wait(90)
        ctx.cost_usd = float("nan") if ctx.agent_id == "odd" else 0.5
        return StepResult(output="whole", next=DONE)

    script.do = staticmethod(step)
    agents.create("script", id="good")
    agents.create("script", id="odd")
    work()
    assert wait_until(lambda: agents.get("good").activity == "done" and agents.get("good")).last_output == "whole"
    wait_until(lambda: agents.get("odd").activity == "waiting")
    assert "could not be recorded" in agents.queue.read("SELECT last_error FROM actions WHERE state = 'failed'")[0][0]
    assert "could not be recorded" in (agents.get("odd").last_error or "")


def test_an_infinite_delay_is_limited(agents: AgentControl, work: Work, script: type[Script]) -> None:
    script.do = staticmethod(lambda ctx, state, inbox: StepResult(next=Next(after=float("inf")), output="\ud83d"))
    work()
    agents.create("script", id="a")
    due = wait_until(lambda: agents.get("a").next_at)
    assert due.year > 2100 and agents.list().items[0].last_output == "?"


def test_guidance_that_makes_a_step_fail_is_retried_like_a_message(
    agents: AgentControl, work: Work, script: type[Script]
) -> None:
    def step(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if inbox[0].kind == "guidance":
            ctx.tokens, ctx.cost_usd = 10, 0.25
            raise Conflict("No.")
        return StepResult(next=IDLE)

    script.do = staticmethod(step)
    work()
    agents.create("script", id="a")
    wait_until(lambda: agents.get("a").step_no == 1)
    agents.interrupt("a", "do it")
    wait_until(lambda: agents.queue.read("SELECT count(*) FROM actions WHERE state = 'failed'") == [(1,)])
    agents.wait(agents.message("a", "another"))
    assert [s.outcome for s in agents.steps("a")] == ["ok", "error", "error", "error", "ok"]
    assert (agents.get("a").tokens, agents.get("a").cost_usd) == (30, 0.75), "failed steps count too"


def test_the_partial_output_of_an_interrupted_step_may_be_anything(
    agents: AgentControl, work: Work, script: type[Script]
) -> None:
    began = threading.Event()

    def step(ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        if inbox[0].kind == "guidance":
            return StepResult(next=DONE)
        ctx.partial = {1, 2}
        began.set()
        ctx.sleep(90)
        return StepResult()

    script.do = staticmethod(step)
    work()
    agents.create("script", id="a")
    assert began.wait(90)
    agents.interrupt("a", "else")
    wait_until(lambda: agents.get("a").activity == "done")
    assert outcomes(agents, "a") == [("interrupted", "{1, 2}"), ("ok", None)]


def test_a_kind_that_is_not_installed_is_an_error_without_events(
    agents: AgentControl, work: Work, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude import plugins

    agents.create("script", id="a")
    monkeypatch.delitem(plugins.BUILT_IN["agent"], "script")
    work()
    assert "There is no kind of agent `script`" in wait_until(lambda: agents.get("a").last_error)
    wait_until(lambda: agents.get("a").activity == "waiting" and agents.get("a").step_no == 3)
    assert agents.queue.read("SELECT topic FROM hub_events") == [("agent.created",)]


def test_a_configuration_that_an_upgrade_made_invalid_can_be_reloaded(
    agents: AgentControl, work: Work, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Newer(Entity):
        words: str

    agents.create("script", {"note": "old"}, id="a")
    monkeypatch.setattr(script, "Config", Newer)
    work()
    error = wait_until(lambda: agents.get("a").last_error)
    assert error == "`note` of the configuration of a `script` agent is not known."
    agents.reload("a", {"words": "new"})
    agents.wait(agents.message("a", "go"))
    assert agents.get("a").last_error is None


def test_a_listening_kind_without_topics_gets_all_events(
    agents: AgentControl, work: Work, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "listens", True)
    monkeypatch.setattr(script, "quiet", True)
    seen: list[list[InboxItem]] = []
    script.do = staticmethod(lambda ctx, state, inbox: (seen.append(inbox), StepResult(next=IDLE))[1])
    agents.create("script", id="a")
    work()
    wait_until(lambda: seen and agents.get("a").activity == "idle")
    before = len(seen)
    Topics(agents.queue).publish("n", 1)
    wait_until(lambda: len(seen) > before)


@pytest.mark.parametrize(
    "part", ["hub.HubWaker.wake", "worker.Worker._read_control", "worker.Worker._sweep", "worker.Queue.write_totals"]
)
def test_leases_are_renewed_and_spending_is_stored_if_a_part_of_maintenance_fails(
    agents: AgentControl, work: Work, gate: Gate, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(f"etude.agents.{part}", fail)
    worker = work(lease=1.0)
    agents.create("script", id="a")
    gate.wait()
    began = worker._renewed
    worker._identity.spend("key", Spent(tokens=3))
    wait_until(lambda: worker._renewed > began + 1.5)
    wait_until(lambda: agents.queue.read("SELECT tokens FROM spending WHERE key_id = 'key'") == [(3,)])
    gate.open.set()
    wait_until(lambda: agents.get("a").activity == "done")
    assert outcomes(agents, "a") == [("ok", "whole")]


def test_leases_are_renewed_and_control_is_read_while_agents_are_woken(
    agents: AgentControl, work: Work, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = threading.Event()
    monkeypatch.setattr("etude.agents.hub.HubWaker.wake", lambda _: woken.wait(300))
    worker = work(lease=1.0)
    agents.create("script", id="a")
    gate.wait()
    began = worker._renewed
    try:
        wait_until(lambda: worker._renewed > began + 1.5)
        agents.pause("a", mode="now")
        wait_until(lambda: agents.get("a").activity == "paused")
    finally:
        woken.set()
        gate.open.set()


def test_leases_are_renewed_during_pruning(
    agents: AgentControl, work: Work, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, removed = threading.Event(), threading.Event()

    def prune(*_: object) -> None:
        removing.set()
        removed.wait(300)

    monkeypatch.setattr("etude.agents.worker.prune_quietly", prune)
    monkeypatch.setattr("etude.agents.worker.PRUNE_S", 0.01)
    monkeypatch.setattr("etude.agents.worker.FIRST_PRUNE_S", 0.0)
    worker = work(lease=1.0)
    agents.create("script", id="a")
    gate.wait()
    assert removing.wait(90)
    began = worker._renewed
    try:
        wait_until(lambda: worker._renewed > began + 1.5, 60)
    finally:
        removed.set()
    gate.open.set()
    wait_until(lambda: agents.get("a").activity == "done")
    assert outcomes(agents, "a") == [("ok", "whole")]


def test_an_agent_of_a_full_tenant_waits_for_room_and_loses_nothing(
    app: App, agents: AgentControl, work: Work, script: type[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agents.step_runner.FULL_S", 0.2)
    script.do = staticmethod(lambda ctx, state, inbox: StepResult(output=[i.body for i in inbox], next=IDLE))
    agents.create("script", id="a")
    name = agents.message("a", "m" * 1000)
    thread = app.store.create_thread("long")
    app.store.add_message(thread.id, "user", "x" * 100_000)
    app.store.limit_storage(lambda tenant: 50_000)
    used = app.store.storage_use()
    work()
    info = wait_until(lambda: (a := agents.get("a")).last_error and a)
    assert "50,000 are allowed" in str(info.last_error)
    wait_until(lambda: max(x.attempts for x in agents.actions("a").items) > 3)
    assert (agents.get("a").step_no, agents.get("a").status) == (0, "active")
    assert app.store.storage_use() == used, "waiting takes no storage"
    app.store.delete_thread(thread.id)
    assert agents.wait(name).state == "done"
    wait_until(lambda: agents.get("a").step_no == 2)
    assert {(s.outcome, s.kind) for s in agents.steps("a")} == {("ok", "start"), ("ok", "message")}


def test_an_unchanged_state_is_not_written_again(app: App, agents: AgentControl, script: type[Script]) -> None:
    script.do = staticmethod(lambda ctx, state, inbox: StepResult(state={"large": "x" * 1000}, next=NOW))
    agents.create("script", id="a")
    steps = StepRunner(app, agents.agent_store, Identity(app.store), {})
    written = []
    for _ in range(2):
        (claim,) = agents.queue.turn(claim=1).claimed
        finish = steps.run(RunningStep(claim))
        written.append(finish.step and finish.step.state)
        agents.queue.turn([finish])
        agents.queue.sweep()
    assert written == [json.dumps({"large": "x" * 1000}), None]
    assert agents.state("a") == {"large": "x" * 1000}
