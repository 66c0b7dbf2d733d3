"""The queue: every action is run once, in order, whatever happens to the workers."""

from __future__ import annotations

import errno
import os
import queue as queues
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.store.conftest import open_at

from etude.errors import Conflict, NotFound
from etude.store.action import ActionClaim, Finish, NewAction, NewEvent, StepRecord, action_backoff
from etude.store.agents import AgentStore
from etude.store.base import Rows, Store
from etude.store.queue import LOST, Queue
from etude.store.queue_sqlite import SqliteQueueDialect
from etude.store.sqlite import SqliteStore

TABLES = ("agents", "actions", "agent_steps", "control", "hub_events")


@pytest.fixture
def queue(store: Store) -> Queue:
    return Queue(store)


@pytest.fixture
def agent_store(queue: Queue) -> AgentStore:
    return AgentStore(queue)


def add_agents(queue: Queue, *ids: str) -> None:
    """Add idle agents."""
    with queue.transaction() as work:
        for name in ids:
            work.do(
                "INSERT INTO agents (tenant, id, kind, created_at, updated_at) VALUES (?, ?, 'test', 0, 0)",
                queue.tenant,
                name,
            )


def claim_all(queue: Queue) -> list[str]:
    """Run every ready action, one at a time, and return the order."""
    order = []
    while claimed := queue.turn(claim=1).claimed:
        order.append(claimed[0].id)
        queue.turn([Finish(claimed[0], "done")])
    return order


def pass_time(queue: Queue) -> None:
    """Make all delayed actions due."""
    with queue.transaction() as work:
        work.do("UPDATE actions SET run_after = 1 WHERE state = 'delayed'")
    queue.sweep()


def state_of(queue: Queue, action: str) -> str:
    found = AgentStore(queue).action(action)
    assert found is not None
    return found.state


# One thing at a time, in order.


def test_the_most_urgent_runs_first_then_the_oldest(queue: Queue) -> None:
    add_agents(queue, "a", "b")
    for name, agent, urgency in [("1", "a", 5), ("2", "b", 5), ("3", "a", 1), ("4", "b", 9), ("5", "b", 5)]:
        queue.enqueue(NewAction(agent, id=name, urgency=urgency))
    assert claim_all(queue) == ["3", "1", "2", "5", "4"]


def test_an_agent_does_one_thing_at_a_time(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"), NewAction("a", id="2"))
    first = queue.turn(claim=10).claimed
    assert [c.id for c in first] == ["1"]
    assert queue.turn(claim=10).claimed == []
    assert [c.id for c in queue.turn([Finish(first[0], "done")], claim=10).claimed] == ["2"]


def test_an_id_is_added_once(queue: Queue) -> None:
    add_agents(queue, "a")
    assert queue.enqueue(NewAction("a", id="x"), NewAction("a", id="x")) == ["x", "x"]
    assert queue.enqueue(NewAction("a", id="x", payload='"other"')) == ["x"]
    assert claim_all(queue) == ["x"]
    assert queue.enqueue(NewAction("a", id="x")) == ["x"]
    assert claim_all(queue) == []


def test_actions_added_together_are_all_added_or_none(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    with pytest.raises(NotFound, match="There is no agent `nobody`"):
        queue.enqueue(NewAction("a", id="1"), NewAction("nobody", id="2"))
    assert agent_store.action("1") is None


def test_a_delayed_action_waits(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="later", delay=3600))
    assert queue.turn(claim=1).claimed == []
    after = queue.sweep()
    assert after is not None and 3500 < after <= 3600
    pass_time(queue)
    assert claim_all(queue) == ["later"]


def test_a_failed_action_is_retried_up_to_its_attempts(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="bad", attempts=2), NewAction("a", id="good"))
    (claim,) = queue.turn(claim=1).claimed
    queue.turn([Finish(claim, "delayed", error="no", delay=action_backoff(claim.attempts))])
    assert [c.id for c in queue.turn(claim=1).claimed] == ["good"], "it does not delay the others"
    with queue.transaction() as work:
        work.do("UPDATE actions SET state = 'done', worker = NULL WHERE id = 'good'")
        work.do("UPDATE agents SET running = NULL")
    pass_time(queue)
    (claim,) = queue.turn(claim=1).claimed
    assert (claim.id, claim.attempts, claim.max_attempts) == ("bad", 2, 2)
    queue.turn([Finish(claim, "failed", error="still no")])
    found = agent_store.action("bad")
    assert found is not None and found.processed_at is not None
    assert (found.state, found.attempts, found.last_error) == ("failed", 2, "still no")


def test_backoff_doubles_up_to_a_minute_less_up_to_half_at_random() -> None:
    for failures, longest in ((1, 0.4), (2, 0.8), (3, 1.6), (20, 60.0), (5000, 60.0)):
        waits = {action_backoff(failures) for _ in range(50)}
        assert len(waits) > 1 and all(longest / 2 <= wait <= longest for wait in waits)


def test_a_step_is_committed_with_its_end_or_not_at_all(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (claim,) = queue.turn(claim=1).claimed
    record = StepRecord(
        input="null", outcome="ok", seconds=0.5, output='"hi"', state='{"n": 1}', tokens=7, cost_usd=0.5
    )
    late = Finish(claim, "done", step=record, events=(NewEvent("t", "{}"),), tick=60.0)
    with queue.transaction() as work:
        work.do("UPDATE actions SET token = token + 1")
    assert queue.turn([late]).refused == [late]
    assert agent_store.steps("a") == [] and agent_store.state("a") == {}
    assert queue.read("SELECT count(*) FROM hub_events") == [(0,)]
    with queue.transaction() as work:
        work.do("UPDATE actions SET token = token - 1")
    assert queue.turn([late]).refused == []
    (step,) = agent_store.steps("a")
    assert (step.step_no, step.action, step.output, step.outcome, step.tokens) == (1, "1", "hi", "ok", 7)
    assert agent_store.state("a") == {"n": 1}
    agent = agent_store.agent("a")
    assert (agent.step_no, agent.tokens, agent.cost_usd, agent.last_output) == (1, 7, 0.5, "hi")
    assert agent.activity == "waiting" and agent.next_at is not None
    assert queue.read("SELECT topic, agent FROM hub_events") == [("t", "a")]


def test_a_new_tick_replaces_the_old_one(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a"), NewAction("a"))
    for delay in (100.0, 200.0):
        (claim,) = queue.turn(claim=1).claimed
        queue.turn([Finish(claim, "done", tick=delay)])
    assert queue.read("SELECT count(*) FROM actions WHERE kind = 'tick' AND state = 'delayed'") == [(1,)]
    queue.enqueue(NewAction("a"))
    (claim,) = queue.turn(claim=1).claimed
    queue.turn([Finish(claim, "done", drop_tick=True)])
    assert queue.read("SELECT count(*) FROM actions WHERE kind = 'tick' AND state = 'delayed'") == [(0,)]


@pytest.mark.parametrize("kind", ["start", "tick"])
def test_a_schedule_outlives_a_step_that_fails_for_good(queue: Queue, agent_store: AgentStore, kind: str) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", kind=kind, attempts=1))
    (claim,) = queue.turn(claim=1).claimed
    queue.turn([Finish(claim, "failed", error="no")])
    assert agent_store.agent("a").activity == "waiting"


def test_a_value_that_cannot_be_stored_is_refused_and_not_retried(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a"))
    (claim,) = queue.turn(claim=1).claimed
    with pytest.raises(ValueError, match="JSON compliant"):
        queue.turn([Finish(claim, "done", step=StepRecord("null", "ok", 0.0, cost_usd=float("nan")))])
    queue.turn([Finish(claim, "failed", "no\0\ud83d", step=StepRecord("null", "error", 0.0, error="no\0\ud83d"))])
    assert AgentStore(queue).agent("a").last_error == "no\ufffd?"
    assert AgentStore(queue).steps("a")[0].error == "no\ufffd?"


# Lost workers.


def test_the_action_of_a_lost_worker_is_taken_over_and_its_end_refused(
    queue: Queue, open_store: Callable[[], Store]
) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (claim,) = queue.turn(claim=1).claimed
    other = Queue(open_store())
    other.sweep()
    assert other.turn(claim=1).claimed == [], "its owner is alive"
    with queue.transaction() as work:
        work.do("UPDATE actions SET lease_until = 1")
    other.sweep()
    (taken,) = other.turn(claim=1).claimed
    assert (taken.id, taken.attempts) == ("1", 2) and taken.token > claim.token
    late = Finish(claim, "done")
    assert queue.turn([late]).refused == [late]
    assert (claim.seq, claim.token) not in queue.heartbeat([claim.seq])
    assert other.turn([Finish(taken, "done")]).refused == []


def test_of_two_ends_of_an_action_the_one_with_the_old_token_is_refused(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (stale,) = queue.turn(claim=1).claimed
    with queue.transaction() as work:
        work.do("UPDATE actions SET lease_until = 1")
    queue.sweep()
    (fresh,) = queue.turn(claim=1).claimed
    late = Finish(stale, "failed", step=StepRecord("null", "ok", 0.0, output='"late"'))
    done = Finish(fresh, "done", step=StepRecord("null", "ok", 0.0, output='"in time"'))
    assert queue.turn([done, late]).refused == [late]
    assert [s.output for s in agent_store.steps("a")] == ["in time"] and state_of(queue, "1") == "done"


def test_a_running_action_is_not_lost_if_the_clock_is_set_forward(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (claim,) = queue.turn(claim=1).claimed
    with queue.transaction() as work:
        work.do("UPDATE actions SET lease_until = 1")
    queue.sweep(running=[claim.seq])
    assert queue.turn(claim=1).claimed == []
    assert queue.turn([Finish(claim, "done")]).refused == []


def set_clock(queue: Queue, seconds: float) -> None:
    """Set the clock of the database this far from the real time, for this queue."""
    dialect = queue._dialect
    dialect.now = f"({type(dialect).now} + {seconds})"  # type: ignore[misc]
    dialect._statements.clear()


@pytest.mark.parametrize("restarted", [False, True])
def test_an_interval_starts_again_if_the_clock_is_set_back(store: Store, restarted: bool) -> None:
    queue = Queue(store)
    add_agents(queue, "a")
    set_clock(queue, 3600)
    queue.enqueue(NewAction("a", id="tick", kind="tick", delay=60))
    assert 50 < (queue.sweep() or 0) <= 60
    if restarted:
        queue = Queue(store)
    set_clock(queue, 0)
    assert 50 < (queue.sweep() or 0) <= 60.1, "and not an hour later"
    pass_time(queue)
    assert claim_all(queue) == ["tick"]


def test_a_retry_is_not_delayed_further_if_the_clock_is_set_back(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    with queue.transaction() as work:
        work.do("UPDATE actions SET created_at = created_at - 7200")
    set_clock(queue, 3600)
    (claim,) = queue.turn(claim=1).claimed
    queue.turn([Finish(claim, "delayed", error="no", delay=30)])
    queue.sweep()
    set_clock(queue, 0)
    assert 20 < (queue.sweep() or 0) < 30.01


def test_a_long_delay_that_began_before_the_time_set_stays(queue: Queue) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="tomorrow", delay=86_400))
    set_clock(queue, 7200)
    queue.sweep()
    set_clock(queue, 3600)
    assert 82_700 < (queue.sweep() or 0) < 82_800.01


def test_a_heartbeat_keeps_the_lease(queue: Queue, open_store: Callable[[], Store]) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (claim,) = queue.turn(claim=1, lease=0.001).claimed
    assert queue.heartbeat([claim.seq], 60) == {(claim.seq, claim.token)}
    other = Queue(open_store())
    other.sweep()
    assert other.turn(claim=1).claimed == []


def test_claims_that_a_worker_does_not_know_of_are_released(queue: Queue) -> None:
    add_agents(queue, "a", "b")
    queue.enqueue(NewAction("a", id="1"), NewAction("b", id="2"))
    known, _ = queue.turn(claim=2).claimed
    queue.disown([known.seq])
    (again,) = queue.turn(claim=2).claimed
    assert (again.id, again.attempts) == ("2", 1)


def test_a_claim_that_another_worker_took_over_is_not_released(
    queue: Queue, open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"), NewAction("a", id="2"))
    queue.turn(claim=1, lease=-1.0)
    other, read = Queue(open_store()), queue.read

    def read_and_lose(template: str, *values: object) -> Rows:
        rows = read(template, *values)
        other.sweep()
        assert [claim.id for claim in other.turn(claim=1).claimed] == ["1"]
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(queue, "read", read_and_lose)
        queue.disown([])
    assert queue.turn(claim=1).claimed == []


def test_a_worker_that_seemed_dead_keeps_what_it_claimed_again(
    queue: Queue, open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    other, read = Queue(open_store()), queue.read
    (lost,) = other.turn(claim=1).claimed
    claimed: list[ActionClaim] = []

    def read_and_come_back(template: str, *values: object) -> Rows:
        rows = read(template, *values)
        if template == LOST:
            claimed.extend(other.turn([Finish(lost, "ready")], claim=1).claimed)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(queue.store, "_dead", set)
        patch.setattr(queue, "read", read_and_come_back)
        queue.sweep()
    assert queue.turn(claim=1).claimed == []
    assert other.turn([Finish(claimed[0], "done")]).refused == []


def test_kill_9_frees_the_agent_at_once(
    queue: Queue, start: Callable[[str], subprocess.Popen[str]], agent_store: AgentStore
) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    other = start(
        """
from etude.store.queue import Queue
queue = Queue(open_store())
say(queue.turn(claim=1).claimed[0].id)
time.sleep(60)
"""
    )
    assert other.stdout is not None and other.stdout.readline() == "1\n"
    queue.sweep()
    assert queue.turn(claim=1).claimed == []
    other.kill()
    other.wait()
    taken: list[ActionClaim] = []
    while not taken:  # the server takes a while to notice that a connection has ended
        queue.sweep()
        taken = queue.turn(claim=1).claimed
    found = agent_store.action("1")
    assert found is not None and found.last_error is not None and found.last_error.endswith("lost")


def test_an_action_that_kills_its_workers_ends_as_failed(queue: Queue, open_store: Callable[[], Store]) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="bomb", attempts=2), NewAction("a", id="next"))
    for _ in range(2):
        with open_store() as store:
            assert [c.id for c in Queue(store).turn(claim=1).claimed] == ["bomb"]
        while state_of(queue, "bomb") == "running":
            queue.sweep()
    assert state_of(queue, "bomb") == "failed"
    assert "lost" in (AgentStore(queue).agent("a").last_error or "")
    assert claim_all(queue) == ["next"]


# Notifications.


def test_another_process_is_woken(queue: Queue, start: Callable[[str], subprocess.Popen[str]]) -> None:
    add_agents(queue, "a")
    other = start(
        """
import threading
from etude.store.queue import Queue
notified, listening = threading.Event(), threading.Event()
queue = Queue(open_store())
queue.listen(lambda kind, agent: (listening if kind == "all" else notified).set())
listening.wait(90)
say("ready")
notified.wait(90)
say(notified.is_set(), [c.id for c in queue.turn(claim=1).claimed])
queue.close()
"""
    )
    assert other.stdout is not None and other.stdout.readline() == "ready\n"
    queue.enqueue(NewAction("a", id="1"))
    assert other.stdout.readline() == "True ['1']\n"


def test_only_a_pipe_without_a_reader_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.store import queue_sqlite

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    path = str(tmp_path / "wake_x")
    os.mkfifo(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        queue_sqlite._write(path, b"run 0\n")
    assert os.path.exists(path)
    queue_sqlite._write(path, b"run 0\n")
    assert not os.path.exists(path), "no process reads it"


def test_every_one_of_many_notifications_arrives(tmp_path: Path) -> None:
    received: list[tuple[str, int]] = []
    listening, sent = threading.Event(), threading.Event()

    def listener(kind: str, agent: int) -> None:
        if kind == "all":
            listening.set()
            sent.wait(90)
        else:
            received.append((kind, agent))

    with SqliteStore(str(tmp_path / "etude.db")) as store:
        dialect = SqliteQueueDialect(store)
        thread = threading.Thread(target=dialect.listen, args=("me", listener, lambda: len(received) >= 500))
        thread.start()
        assert listening.wait(90)
        notifications = [("control", 100_000 + n) for n in range(500)]
        for notification in notifications:
            dialect.notify_after_commit([notification], "another")
        sent.set()
        thread.join(90)
    assert received == notifications


def test_a_message_for_a_busy_or_paused_agent_wakes_no_worker(queue: Queue, agent_store: AgentStore) -> None:
    notifications: list[str] = []
    queue.listen(lambda kind, _: notifications.append(kind))
    add_agents(queue, "busy", "paused")
    agent_store.pause("paused")
    queue.enqueue(NewAction("busy"))
    queue.turn(claim=1)
    notifications.clear()
    queue.enqueue(NewAction("busy"), NewAction("paused"))
    assert "run" not in notifications
    agent_store.resume("paused")
    assert "run" in notifications
    queue.close()


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_listener_reconnects_after_its_connection_is_cut(queue: Queue) -> None:
    add_agents(queue, "a")
    notifications: queues.SimpleQueue[str] = queues.SimpleQueue()
    other = Queue(queue.store)
    queue.listen(lambda kind, _: notifications.put(kind))
    assert notifications.get(timeout=60) == "all"
    ours = "datname = current_database() AND starts_with(query, 'LISTEN')"
    assert queue.read(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}") == [(True,)]
    assert notifications.get(timeout=60) == "all", "notifications may have been missed"
    other.enqueue(NewAction("a"))
    assert notifications.get(timeout=60) == "run"
    queue.close()


def test_a_listener_that_raises_does_not_stop_notifications(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    received: queues.SimpleQueue[str] = queues.SimpleQueue()

    def fail_once(kind: str, _: int) -> None:
        received.put(kind)
        if received.qsize() == 1:
            raise RuntimeError("a defect")

    queue.listen(fail_once)
    assert [received.get(timeout=60), received.get(timeout=60)] == ["all", "all"]
    assert "a defect" in caplog.text
    queue.close()


# Between two transactions.


def start_waiting(queue: Queue, act: Callable[[], object]) -> threading.Thread:
    """Act in another thread, and return once it waits for a lock of a transaction that is open here."""
    thread = threading.Thread(target=act)
    thread.start()
    asked = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not queue.read(asked):
        assert thread.is_alive(), "it did not wait"
    return thread


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_an_action_added_while_its_agent_is_claimed_and_released_is_found(
    queue: Queue, open_store: Callable[[], Store]
) -> None:
    """When it is added another action is the head of the agent, and when it gets the lock there is none."""
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="urgent", urgency=0))
    other = Queue(open_store())
    with queue.transaction() as work:
        (claim,) = queue._claim(work, 1, 30.0)
        thread = start_waiting(other, lambda: other.enqueue(NewAction("a", id="late")))
        assert queue._finish(work, [Finish(claim, "done")]) == []
    thread.join()
    assert queue.has_work()
    assert claim_all(queue) == ["late"]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_control_message_sent_while_a_step_ends_wakes_the_agent_again(
    queue: Queue, open_store: Callable[[], Store]
) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a"))
    (claim,) = queue.turn(claim=1).claimed
    other = Queue(open_store())
    with other.transaction() as work:
        no, *_ = AgentStore(other)._lock(work, "a")
        thread = start_waiting(other, lambda: queue.turn([Finish(claim, "done")]))
        AgentStore(other)._add_control(work, no, "interrupt", "listen")
    thread.join()
    (woken,) = queue.turn(claim=1).claimed
    assert (woken.kind, woken.has_control) == ("wake", True)


# Tenants.


def test_one_tenants_thousand_do_not_starve_anothers_one(store: Store) -> None:
    many, one = Queue(store.scoped("many")), Queue(store.scoped("one"))
    add_agents(many, *(f"a{n}" for n in range(50)))
    add_agents(one, "b")
    many.enqueue(*(NewAction(f"a{n}", urgency=1) for n in range(50)))
    one.enqueue(NewAction("b", id="single", urgency=9))
    worker = Queue(store)
    claimed = worker.turn(claim=4).claimed
    assert sorted({c.tenant for c in claimed}) == ["many", "one"]
    assert len(claimed) == 4


def test_tenants_alternate_if_only_one_step_can_run(store: Store) -> None:
    worker = Queue(store)
    for name in ("x", "y"):
        tenant = Queue(store.scoped(name))
        add_agents(tenant, *(f"{name}{n}" for n in range(6)))
        tenant.enqueue(*(NewAction(f"{name}{n}", urgency=ord(name)) for n in range(6)))
    order = []
    for _ in range(6):
        (claim,) = worker.turn(claim=1).claimed
        order.append(claim.tenant)
        worker.turn([Finish(claim, "done")])
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["x", "y"]


def test_tenants_do_not_see_each_others_agents(store: Store) -> None:
    ours, theirs = Queue(store.scoped("ours")), Queue(store.scoped("theirs"))
    add_agents(ours, "a")
    add_agents(theirs, "a")
    assert ours.enqueue(NewAction("a", id="1")) == theirs.enqueue(NewAction("a", id="1"))
    AgentStore(ours).destroy("a", grace=0)
    assert AgentStore(theirs).agent("a").status == "active"
    with pytest.raises(NotFound):
        Queue(store).enqueue(NewAction("a"))


# Verbs of the agent store.


def test_destroying_cancels_waiting_actions_and_refuses_new_ones(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"), NewAction("a", id="2", delay=60))
    agent_store.destroy("a", grace=30)
    assert (state_of(queue, "1"), state_of(queue, "2")) == ("cancelled", "cancelled")
    assert agent_store.agent("a").status == "destroyed"
    with pytest.raises(Conflict, match="Agent `a` is destroyed"):
        queue.enqueue(NewAction("a"))
    agent_store.destroy("a", grace=30)
    assert [a.id for a in agent_store.agents().items] == []
    assert [a.id for a in agent_store.agents(status="destroyed").items] == ["a"]


def test_a_step_that_ignores_its_end_is_fenced(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (claim,) = queue.turn(claim=1).claimed
    agent_store.destroy("a", grace=0)
    queue.sweep(fence=60)
    assert agent_store.agent("a").status == "destroying"
    queue.sweep(fence=-1)
    assert agent_store.agent("a").status == "destroyed" and state_of(queue, "1") == "cancelled"
    late = Finish(claim, "done")
    assert queue.turn([late]).refused == [late]


def test_a_stale_interrupt_is_refused(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    with pytest.raises(Conflict, match="Agent `a` is at step 0, not at 7"):
        agent_store.interrupt("a", "stop", step_no=7)


def test_a_control_message_too_late_for_a_step_wakes_the_agent_again(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="1"))
    (claim,) = queue.turn(claim=1).claimed
    agent_store.interrupt("a", "listen")
    (again,) = queue.turn([Finish(claim, "done")], claim=1).claimed
    assert (again.kind, again.has_control) == ("wake", True)
    ((_, seq, verb, body),) = agent_store.pending_control([again.agent])
    assert (verb, body) == ("interrupt", "listen")
    queue.turn([Finish(again, "done", applied=(seq,))])
    assert agent_store.agent("a").activity == "idle" and agent_store.pending_control([again.agent]) == []


def test_a_control_message_that_a_retry_reads_again_does_not_wake_the_agent(
    queue: Queue, agent_store: AgentStore
) -> None:
    add_agents(queue, "a")
    agent_store.interrupt("a", "first")
    (claim,) = queue.turn(claim=1).claimed
    ((_, first, _, _),) = agent_store.pending_control([claim.agent])
    assert queue.turn([Finish(claim, "delayed", delay=3600, deferred=(first,))], claim=1).claimed == []
    agent_store.interrupt("a", "second")
    (woken,) = queue.turn(claim=1).claimed
    assert [body for _, _, _, body in agent_store.pending_control([woken.agent])] == ["first", "second"]


def test_old_ended_actions_are_deleted_and_waiting_ones_kept(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a")
    queue.enqueue(NewAction("a", id="done"))
    claim_all(queue)
    queue.enqueue(NewAction("a", id="waits", delay=3600))
    with queue.transaction() as work:
        work.do("UPDATE actions SET created_at = created_at - 864000, processed_at = processed_at - 864000")
    assert queue.prune(days=30) == 0
    assert queue.prune(days=7) == 1
    assert agent_store.action("done") is None and agent_store.action("waits") is not None


def test_old_control_messages_are_deleted_if_applied(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "a", "gone")
    agent_store.steer("a", "applied")
    ((no, seq, _, _),) = agent_store.pending_control([1])
    queue.enqueue(NewAction("a"))
    (claim,) = queue.turn(claim=1).claimed
    queue.turn([Finish(claim, "done", applied=(seq,))])
    agent_store.steer("a", "not yet")
    agent_store.steer("gone", "never")
    agent_store.destroy("gone", grace=0)
    with queue.transaction() as work:
        work.do("UPDATE control SET created_at = created_at - 864000")
    queue.prune(days=30)
    assert queue.read("SELECT count(*) FROM control") == [(3,)]
    queue.prune(days=7)
    assert [body for *_, body in agent_store.pending_control([no])] == ["not yet"]
    assert queue.read("SELECT count(*) FROM control") == [(1,)]


def test_old_steps_are_deleted_except_the_last_ones(queue: Queue, agent_store: AgentStore) -> None:
    add_agents(queue, "busy", "calm")
    with queue.transaction() as work:
        for agent, steps in ((1, 2500), (2, 10)):
            numbers = [(agent, n) for n in range(1, steps + 1)]
            work.do(
                """INSERT INTO agent_steps
                    (agent, step_no, action, kind, input, outcome, started_at, ended_at, tokens, cost_usd)
                SELECT f.agent, f.step, 'x', 'tick', '[]', 'ok', {now} - 864000, {now} - 864000, 0, 0
                FROM {rows agent int, step int} f""",
                *work.rows(numbers),
            )
            work.do("UPDATE agents SET step_no = ? WHERE no = ?", steps, agent)
    assert queue.prune(days=30) == 0
    assert queue.prune(days=7) == 1500
    assert [agent_store.steps(name)[0].step_no for name in ("busy", "calm")] == [1501, 1]


# All operations, in any order.


@dataclass
class Model:
    """The expected state of an action."""

    id: str
    agent: str
    urgency: int
    order: int
    state: str = "ready"
    attempts: int = 0


@dataclass
class Holder:
    """A worker: its store, and the claims it believes to hold."""

    store: Store
    queue: Queue = field(init=False)
    claims: list[ActionClaim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = Queue(self.store)


AGENTS = ("a", "b", "c")
EXAMPLES = 300 if os.environ.get("CHAOS") == "long" else 25


class Life(RuleBasedStateMachine):
    """Three agents, three workers, and all operations on them."""

    place = ""
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.workers = [self.open() for _ in range(3)]
        self.queue = self.workers[0].queue
        with self.queue.transaction() as work:
            for table in TABLES:
                work.do(f"DELETE FROM {table}")
        add_agents(self.queue, *AGENTS)
        self.agent_store = AgentStore(self.queue)
        self.actions: dict[str, Model] = {}
        self.status = dict.fromkeys(AGENTS, "active")

    def open(self) -> Holder:
        return Holder(self.stack.enter_context(open_at(self.place)))

    def running(self, agent: str) -> Model | None:
        return next((a for a in self.actions.values() if a.agent == agent and a.state == "running"), None)

    def expected(self, count: int) -> list[str]:
        heads = []
        for agent in AGENTS:
            ready = [a for a in self.actions.values() if a.agent == agent and a.state == "ready"]
            if ready and self.status[agent] == "active" and not self.running(agent):
                heads.append(min(ready, key=lambda a: (a.urgency, a.order)))
        return [a.id for a in sorted(heads, key=lambda a: (a.urgency, a.order))][:count]

    @rule(target=ids, agent=st.sampled_from(AGENTS), urgency=st.integers(1, 3), later=st.booleans())
    def enqueue(self, agent: str, urgency: int, later: bool) -> Any:
        name = str(len(self.actions))
        action = NewAction(agent, id=name, urgency=urgency, delay=3600.0 * later, attempts=2)
        if self.status[agent] in ("destroying", "destroyed"):
            with pytest.raises(Conflict):
                self.queue.enqueue(action)
            return multiple()
        self.queue.enqueue(action)
        self.actions[name] = Model(name, agent, urgency, len(self.actions), "delayed" if later else "ready")
        return name

    @rule(name=ids)
    def enqueue_again(self, name: str) -> None:
        agent = self.actions[name].agent
        if self.status[agent] in ("active", "paused"):
            self.queue.enqueue(NewAction(agent, id=name, urgency=0))

    @rule(worker=st.integers(0, 2), count=st.integers(1, 3))
    def claim(self, worker: int, count: int) -> None:
        expected = self.expected(count)
        # Long leases: claims are lost only by the rules below.
        claimed = self.workers[worker].queue.turn(claim=count, lease=3600.0).claimed
        assert [c.id for c in claimed] == expected
        for claim in claimed:
            self.take(worker, claim)

    def take(self, worker: int, claim: ActionClaim) -> None:
        model = self.actions[claim.id]
        model.state, model.attempts = "running", model.attempts + 1
        assert claim.attempts == model.attempts
        self.workers[worker].claims.append(claim)

    @rule(worker=st.integers(0, 2), which=st.integers(0, 2), end=st.sampled_from(["done", "fail", "ready"]))
    def finish(self, worker: int, which: int, end: str) -> None:
        held = self.workers[worker]
        if not held.claims:
            return
        claim = held.claims.pop(which % len(held.claims))
        model = self.actions[claim.id]
        ended = end if end != "fail" else "failed" if model.attempts >= 2 else "delayed"
        record = StepRecord(input="null", outcome=end, seconds=0.0)
        turn = held.queue.turn([Finish(claim, ended, delay=3600.0, step=record)])  # type: ignore[arg-type]
        # Another worker may run the same action by now, with a newer token.
        mine = model.state == "running" and not any(
            c.id == claim.id and c.token > claim.token for w in self.workers for c in w.claims
        )
        assert (turn.refused == []) == mine
        if mine:
            self.end(model, ended)

    def end(self, model: Model, ended: str) -> None:
        if ended == "ready":
            model.attempts -= 1
        if self.status[model.agent] == "destroying":
            self.status[model.agent] = "destroyed"
            ended = "cancelled" if ended in ("ready", "delayed") else ended
        model.state = ended

    @rule()
    def time_passes(self) -> None:
        pass_time(self.queue)
        for model in self.actions.values():
            if model.state == "delayed":
                model.state = "ready"

    @rule(worker=st.integers(1, 2))
    def kill(self, worker: int) -> None:
        held = self.workers[worker]
        name = held.store.worker_id
        held.store.close()
        while not self.queue.store._dead({name}):  # the server takes a while to notice that a connection has ended
            pass
        self.lose(held)
        self.workers[worker] = self.open()

    @rule(worker=st.integers(0, 2))
    def hang(self, worker: int) -> None:
        """Its leases expire; later it continues and believes that it still holds them."""
        held = self.workers[worker]
        with self.queue.transaction() as work:
            work.do("UPDATE actions SET lease_until = 1 WHERE worker = ?", held.store.worker_id)
        self.lose(held)

    def lose(self, held: Holder) -> None:
        self.queue.sweep()
        for claim in held.claims:
            model = self.actions[claim.id]
            newer = any(c.id == claim.id and c.token > claim.token for w in self.workers for c in w.claims)
            if model.state == "running" and not newer:
                model.state = "failed" if model.attempts >= 2 else "ready"
                if self.status[model.agent] == "destroying":
                    self.status[model.agent] = "destroyed"
                    model.state = "cancelled" if model.state == "ready" else model.state

    @rule(agent=st.sampled_from(AGENTS))
    def pause(self, agent: str) -> None:
        if self.status[agent] in ("active", "paused"):
            self.agent_store.pause(agent)
            self.status[agent] = "paused"

    @rule(agent=st.sampled_from(AGENTS))
    def resume(self, agent: str) -> None:
        if self.status[agent] in ("active", "paused"):
            self.agent_store.resume(agent)
            self.status[agent] = "active"

    @precondition(lambda self: len(self.actions) > 8)
    @rule(agent=st.sampled_from(AGENTS))
    def destroy(self, agent: str) -> None:
        self.agent_store.destroy(agent, grace=3600)
        if self.status[agent] == "destroyed":
            return
        self.status[agent] = "destroying" if self.running(agent) else "destroyed"
        for model in self.actions.values():
            if model.agent == agent and model.state in ("ready", "delayed"):
                model.state = "cancelled"

    @invariant()
    def as_expected(self) -> None:
        rows = self.queue.read("SELECT id, state, attempts FROM actions")
        assert {name: (state, tries) for name, state, tries in rows} == {
            a.id: (a.state, a.attempts) for a in self.actions.values()
        }
        assert dict(self.queue.read("SELECT id, status FROM agents")) == self.status  # type: ignore[arg-type]

    @invariant()
    def heads_are_true(self) -> None:
        rows = self.queue.read(
            """SELECT agents.id FROM agents WHERE coalesce(head_seq, 0) <> coalesce((SELECT seq FROM actions
            WHERE agent = agents.no AND state = 'ready' ORDER BY urgency, created_at, seq LIMIT 1), 0)
            OR coalesce(running, 0) <> coalesce((SELECT seq FROM actions
            WHERE agent = agents.no AND state = 'running'), 0)"""
        )
        assert rows == []

    def teardown(self) -> None:
        """In any case, every action ends once enough time has passed."""
        try:
            for agent in AGENTS:
                self.resume(agent)
            for worker in (0, 1, 2):
                while self.workers[worker].claims:
                    self.finish(worker, 0, "done")
            while self.expected(1) or any(a.state == "delayed" for a in self.actions.values()):
                self.time_passes()
                self.claim(1, 3)
                while self.workers[1].claims:
                    self.finish(1, 0, "done")
            self.as_expected()
            assert {a.state for a in self.actions.values()} <= {"done", "failed", "cancelled"}
        finally:
            self.stack.close()


@pytest.mark.slow
def test_no_action_is_lost_or_run_twice_in_any_order_of_events(place: str) -> None:
    machine = type("LifeHere", (Life,), {"place": place})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_racing_workers_never_claim_the_same_action(queue: Queue, open_store: Callable[[], Store]) -> None:
    add_agents(queue, *(f"a{n}" for n in range(20)))
    queue.enqueue(*(NewAction(f"a{n % 20}", id=str(n)) for n in range(200)))
    seen: list[str] = []
    running: set[str] = set()
    overlaps: list[str] = []
    lock = threading.Lock()

    def work() -> None:
        mine = Queue(open_store())
        ended: list[Finish] = []
        while True:
            with lock:
                running.difference_update(finish.claim.agent_id for finish in ended)
            claimed = mine.turn(ended, claim=3).claimed
            if not claimed and not ended:
                if len(seen) == 200:
                    return
                continue
            with lock:
                seen.extend(c.id for c in claimed)
                overlaps.extend(c.agent_id for c in claimed if c.agent_id in running)
                running.update(c.agent_id for c in claimed)
            ended = [Finish(c, "done") for c in claimed]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen, key=int) == [str(n) for n in range(200)]
    assert overlaps == []
