"""A worker: claims agents and runs their steps in threads.

Beside the threads of the steps there are four:

- The dispatcher records finished steps and claims new ones, in one transaction each turn.
- The maintenance thread renews leases, takes over from lost workers, wakes agents that listen to events, and reads
  control messages for running steps.
- The lease watcher does not use the database. If leases could not be renewed in time, it cancels all steps, because
  another worker may be running them by now.
- The pruning thread deletes old records, which may take longer than a lease lasts.
"""

from __future__ import annotations

import logging
import math
import queue as queues
import threading
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Self

from etude.agents.base import Kind
from etude.agents.hub import BATCH_S, HubWaker
from etude.agents.outage_log import OutageLog
from etude.agents.running_step import RunningStep
from etude.agents.step_runner import StepRunner, describe_step_error
from etude.errors import Unavailable
from etude.operations.prune import prune_quietly
from etude.redaction import redact
from etude.store.action import Finish, StepRecord
from etude.store.agents import AgentStore
from etude.store.identity import Identity
from etude.store.processes import BEAT_S, HUNG_S
from etude.store.queue import LEASE_S, Queue

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp

log = logging.getLogger("etude.agents")

SLOTS = 8
POLL_S = 0.5
DRAIN_S = 30.0
ENDING_S = 5.0
"""How long cancelled steps have to end, and then how long the threads that record them have."""
FIRST_PRUNE_S = 60.0
PRUNE_S = 3600.0
"""How often old records are deleted. The first time comes sooner, because many servers live less than an hour."""
SHORT_STEP_S = 0.005
LOCKED_RETRY_S = 0.005
PREFETCH = 5
"""While steps take less than `SHORT_STEP_S`, a worker claims this many times its slots in advance.

Short steps spend most of their time in commits, and one commit can claim many.
"""
COMMIT_DELAY_S = 0.002
"""How long a finished step waits for others that are about to finish, so that one commit records all."""


class Worker:
    """Runs the agents of a store until it is stopped. `app` provides the store, and services for the steps."""

    def __init__(
        self,
        app: AgentApp,
        queue: Queue | None = None,
        *,
        identity: Identity | None = None,
        slots: int = SLOTS,
        lease: float = LEASE_S,
        kinds: Mapping[str, type[Kind[Any]]] | None = None,
    ) -> None:
        self.app = app
        self.queue = queue or Queue(app.store)
        self._owns_queue = queue is None
        self.agent_store = AgentStore(self.queue)
        self._identity = identity or Identity(app.store)
        self._step_runner = StepRunner(app, self.agent_store, self._identity, kinds or {})
        self.slots = slots
        self.lease = lease
        self._running: dict[tuple[int, int], RunningStep] = {}
        self._outage = OutageLog(log, "the store")
        self._lock = threading.Lock()
        self._work: queues.SimpleQueue[RunningStep | None] = queues.SimpleQueue()
        self._ended: list[Finish] = []
        self._wake = threading.Event()
        self._wake_maintenance = threading.Event()
        self._maybe_work = True
        self._step_s = 0.1
        """A moving average of the duration of steps."""
        self._next_due: float | None = None
        self._sweep_due = threading.Event()
        self._renewed = self._maintained = self._dispatched = time.monotonic()
        self._draining = threading.Event()
        self._drained = threading.Event()
        """Set once the dispatcher has stopped claiming."""
        self._stopping = False
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._unlisten: Callable[[], None] | None = None
        self._waker = HubWaker(self.agent_store)
        self._new_events = threading.Event()
        self._new_control = threading.Event()

    # Starting and stopping.

    def start(self) -> Self:
        """Start the threads and return the worker."""
        self._renewed = self._maintained = self._dispatched = time.monotonic()
        self._wake_maintenance.set()  # take over from lost workers at once
        self._unlisten = self.queue.listen(self._on_notification)
        self._new_events.set()
        loops = (self._dispatch, self._maintain, self._wake_listeners, self._watch_leases, self._prune)
        for loop in (*loops, *[self._run_steps] * self.slots):
            self._start_thread(loop)
        return self

    def _start_thread(self, loop: Callable[[], None]) -> None:
        name = f"etude-worker{loop.__name__}"
        thread = threading.Thread(target=self._restart_on_error, args=(loop,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _restart_on_error(self, loop: Callable[[], None]) -> None:
        """Run a loop until it returns; if it raises, log the error and start it again."""
        while True:
            try:
                return loop()
            except Exception:
                log.exception("%s failed; starting it again", loop.__name__.strip("_"))
                if self._stopped.wait(POLL_S):
                    return

    def drain(self) -> None:
        """Stop claiming; running steps continue."""
        self._drained.clear()
        self._draining.set()
        self._wake.set()

    @property
    def responsive(self) -> bool:
        """False if the worker hangs: its dispatcher or its maintenance thread has not begun a round for a while."""
        return time.monotonic() - min(self._maintained, self._dispatched) < HUNG_S

    @property
    def at_work(self) -> int:
        """The number of steps that this worker is running."""
        return len(self._running)

    def stop(self, drain: float = DRAIN_S) -> None:
        """Stop claiming, wait up to `drain` seconds for running steps, then cancel them; cancelled steps run again."""
        if self._stopping:
            return
        self._stopping = True
        self.drain()
        if self._threads:  # wait also for a claim that is in progress
            self._drained.wait(ENDING_S)
        self._wait_for_steps(drain)
        for running in self._snapshot():
            running.stop("stop")
        self._wait_for_steps(ENDING_S)
        self._stopped.set()
        self._wake.set()
        self._wake_maintenance.set()
        for _ in range(self.slots):
            self._work.put(None)
        self._new_events.set()
        for thread in self._threads[:3]:
            thread.join(ENDING_S)
        if self._unlisten:
            self._unlisten()
        # If the store is gone, the usage of the last moment is lost.
        self._do_each([self._identity.write_down, self.queue.write_totals])
        if self._owns_queue:
            self.queue.close()
        for agent in self._step_runner.agents_with_sessions():
            self._step_runner.close_session(agent)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(drain=0.0)

    def _wait_for_steps(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._snapshot() and time.monotonic() < until:
            self._wake.set()
            time.sleep(0.01)

    def _snapshot(self) -> list[RunningStep]:
        with self._lock:
            return list(self._running.values())

    def _on_notification(self, kind: str, agent: int) -> None:
        if kind in ("run", "all"):
            self._maybe_work = True
            self._wake.set()
        if kind in ("reload", "all"):  # a missed notification may have been a reload
            self._step_runner.settings_reload.outdated.set()
        if kind == "control" and (
            self._step_runner.has_session(agent) or any(r.claim.agent == agent for r in self._snapshot())
        ):
            self._new_control.set()
            self._wake_maintenance.set()
        if kind in ("event", "all"):
            self._new_events.set()

    # The dispatcher.

    def _dispatch(self) -> None:
        finished: list[Finish] = []
        unsure = False
        while not self._stopped.is_set() or finished or self._ended:
            self._dispatched = time.monotonic()
            self._wake.clear()
            self._delay_commit()
            with self._lock:
                finished += self._ended
                self._ended = []
                free = max(0, self._capacity() - len(self._running) + len(finished))
            if self._draining.is_set():
                free = 0
                self._drained.set()
            try:
                self._release_unstarted()
                if not finished and not (free and self._maybe_work):
                    self._wait_for_work(free > 0)
                    continue
                # Reset before the turn, so that a notification during the turn is not lost.
                notified, self._maybe_work = self._maybe_work, False
                if unsure:
                    self.queue.disown([r.claim.seq for r in self._snapshot()])
                    unsure = False
                started = self._turn(finished, free)
                finished = []
                if notified and free and not started and self.queue.has_work():
                    # The claim skipped an agent locked by a verb, which may not notify when it commits.
                    self._maybe_work = True
                    self._stopped.wait(LOCKED_RETRY_S)
            except Exception as error:
                unsure = self._maybe_work = True
                finished = self._recover(finished, error)
                if self._stopped.wait(POLL_S):
                    return

    def _delay_commit(self) -> None:
        """If some short steps have ended, wait a moment for those that started at the same time."""
        until = time.monotonic() + COMMIT_DELAY_S
        while (now := time.monotonic()) < until and self._step_s < COMMIT_DELAY_S:
            with self._lock:
                young = [r for r in self._running.values() if now - r.started_at < SHORT_STEP_S]
                if not 0 < len(self._ended) < len(young):
                    return
            time.sleep(COMMIT_DELAY_S / 8)

    def _wait_for_work(self, can_claim: bool) -> None:
        """Wait for a notification or until an action is due, at most `POLL_S`: a notification may have been lost."""
        left = POLL_S if self._next_due is None else min(POLL_S, max(0.0, self._next_due - time.monotonic()))
        if self._stopped.is_set() or self._wake.wait(left):
            return
        if self._next_due is not None and self._next_due <= time.monotonic():
            self._next_due = None
            self._sweep_due.set()
            self._wake_maintenance.set()
        if can_claim and self.queue.has_work():
            self._maybe_work = True

    def _capacity(self) -> int:
        oldest = next(iter(self._running.values()), None)
        slow = self._step_s >= SHORT_STEP_S or (oldest is not None and oldest.is_long)
        return self.slots if slow else self.slots * (1 + PREFETCH)

    def _release_unstarted(self) -> None:
        """Release claims that wait for a slot because steps have become long: another worker may run them sooner."""
        with self._lock:
            # The dict keeps the order of the claims.
            late = [r for r in takewhile(lambda r: r.is_long, self._running.values()) if not r.started]
            for running in late:
                running.abandoned = True
                self._running.pop(running.key)
        if late:
            self.queue.disown([running.claim.seq for running in self._snapshot()])

    def _turn(self, finished: list[Finish], claim: int) -> int:
        turn = self.queue.turn(finished, claim, self.lease)
        started = [RunningStep(c) for c in turn.claimed]
        with self._lock:
            for finish in finished:
                self._running.pop(finish.claim.key, None)
            for running in started:
                self._running[running.key] = running
        # The claim was filled, so there may be more.
        if 0 < claim == len(started):
            self._maybe_work = True
        for finish in finished:
            if finish.error:
                again = f"; it is tried again in {finish.delay:.0f} s" if finish.end == "delayed" else ""
                # It may hold what no log can, such as lone surrogates.
                error = redact(finish.error)[:300].encode("utf-8", "replace").decode()
                log.warning("agent %s: action %s failed: %s%s", *_named(finish), error, again)
            if finish.end == "delayed":
                self._sweep_after(finish.delay)
            if finish.tick is not None:
                self._sweep_after(finish.tick)
        for refused in turn.refused:
            log.warning("agent %s: action %s ended after its lease was lost", *_named(refused))
            self._step_runner.close_session(refused.claim.agent)
        for running in started:
            self._work.put(running)
        return len(started)

    def _recover(self, finished: list[Finish], error: Exception) -> list[Finish]:
        """Return the finished steps to record again after a failed turn.

        If the store is unavailable, that is all of them. Otherwise each is recorded on its own, and one that cannot be
        recorded is marked failed.
        """
        if isinstance(error, Unavailable):
            self._outage.failed(error.message)
            return finished
        log.exception("a turn failed")
        left = []
        for finish in finished:  # one by one: a bad result of one agent must not affect the others
            try:
                self._turn([finish], 0)
            except Unavailable:
                left.append(finish)
            except Exception as defect:
                text = f"The result of the step could not be recorded: {type(defect).__name__}."
                left.append(Finish(finish.claim, "failed", error=text))
        return left

    def _sweep_after(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        self._next_due = due if self._next_due is None else min(self._next_due, due)

    # The steps.

    def _run_steps(self) -> None:
        while (running := self._work.get()) is not None:
            with self._lock:
                if running.abandoned:
                    continue
                running.started = True
            started_at = time.monotonic()
            try:
                finish = self._step_runner.run(running)
            except BaseException as error:
                log.exception("agent %s", running.claim.agent_id)
                record = StepRecord("null", "error", 0.0, error=describe_step_error(error))
                finish = self._step_runner.fail(running, error, record)
            with self._lock:
                running.ended = True
                if running.abandoned:
                    return
                self._ended.append(finish)
                self._step_s += (time.monotonic() - started_at - self._step_s) / 8
            self._wake.set()

    # Maintenance.

    def _maintain(self) -> None:
        swept = renewed = written = -math.inf
        while not self._stopped.is_set():
            self._wake_maintenance.wait(POLL_S)
            self._wake_maintenance.clear()
            now = self._maintained = time.monotonic()
            due: list[Callable[[], None]] = []
            if now - renewed >= self.lease / 3:
                renewed = now
                due.append(self._renew)
            ticks = now - swept >= POLL_S
            if ticks or self._new_control.is_set():
                self._new_control.clear()
                due.append(self._read_control)
            if ticks or self._sweep_due.is_set():
                swept = now
                self._sweep_due.clear()
                due.append(self._sweep)
            if now - written >= BEAT_S:
                written = now
                due.append(self.queue.write_totals)
            due.append(self._identity.write_down)
            self._do_each(due)

    def _wake_listeners(self) -> None:
        """Wake agents for events. In a thread of its own: it compares the events and agents of all tenants."""
        while not self._stopped.is_set():
            if self._new_events.wait(POLL_S):
                self._stopped.wait(BATCH_S)  # batch events that arrive together
            self._new_events.clear()
            if not self._stopped.is_set():
                self._do_each([self._waker.wake])

    def _do_each(self, due: list[Callable[[], None]]) -> None:
        """Do each of these. One that fails keeps none of the others from being done, unless the store is down."""
        for do in due:
            try:
                do()
            except Unavailable as error:
                self._outage.failed(error.message)
                return
            except Exception:
                log.exception("maintenance failed: %s", getattr(do, "__name__", do))

    def _read_control(self) -> None:
        """Read the control messages for the steps that this worker is running."""
        running = {r.claim.agent: r for r in self._snapshot() if r.accepts_control}
        for no, seq, verb, body in self.agent_store.pending_control(sorted(running)) if running else ():
            step = running[no]
            if seq <= step.last_control:
                continue
            step.last_control = seq
            if verb == "steer":
                step.guidance.append((seq, body))
            elif verb in ("interrupt", "pause"):
                if verb == "pause":
                    step.acknowledged.append(seq)
                step.stop(verb)  # type: ignore[arg-type]
            elif verb == "destroy":
                step.acknowledged.append(seq)
                step.destroy_at = time.monotonic() + float(body or 0)
        for step in running.values():
            if step.destroy_at is not None and time.monotonic() >= step.destroy_at:
                step.stop("destroy")
        idle = self._step_runner.agents_with_sessions() - set(running)
        for no in self.agent_store.destroyed(idle) if idle else ():
            self._step_runner.close_session(no)

    def _keep_lock(self) -> None:
        if not self.queue.hold():
            # Other workers saw this one as dead and may have taken over its steps.
            for running in self._snapshot():
                running.stop("lost")

    def _sweep(self) -> None:
        self._keep_lock()
        after = self.queue.sweep(running=[r.claim.seq for r in self._snapshot()])
        if after is not None:
            self._sweep_after(after)
        self._outage.succeeded()

    def _renew(self) -> None:
        running = self._snapshot()
        started_at = time.monotonic()
        held = self.queue.heartbeat([r.claim.seq for r in running], self.lease)
        self._renewed = started_at
        for each in running:
            if each.key in held or each.key not in self._running:
                continue
            if each.reason is None:
                each.stop("lost")
            else:  # it was cancelled, and this worker no longer holds it
                self._abandon(each)

    def _abandon(self, running: RunningStep) -> None:
        """Give up waiting for a cancelled step that does not end, and start a thread in place of its own."""
        with self._lock:
            if running.ended:
                return
            running.abandoned = True
            self._running.pop(running.key, None)
        log.warning("agent %s: its step was cancelled but does not end", running.claim.agent_id)
        self._step_runner.close_session(running.claim.agent)
        self._start_thread(self._run_steps)
        self._maybe_work = True
        self._wake.set()

    # The lease watcher.

    def _watch_leases(self) -> None:
        while not self._stopped.wait(min(POLL_S, self.lease / 10)):
            for running in self._snapshot():
                if time.monotonic() - max(self._renewed, running.started_at) > self.lease * 0.9:
                    running.stop("lost")

    # Pruning.

    def _prune(self) -> None:
        wait = FIRST_PRUNE_S
        while not self._stopped.wait(wait):
            wait = PRUNE_S
            try:
                prune_quietly(self.app, self._stopped.is_set)
            except Exception:
                log.exception("pruning failed")


def _named(finish: Finish) -> tuple[str, str]:
    return finish.claim.agent_id, finish.claim.id
