"""A worker: claims agents, runs their steps in threads, and keeps its word about them.

Four threads beside those of the steps. The dispatcher ends and claims, in one transaction each turn. The pulse renews
leases, takes over from workers that are gone, and hears what is said to agents that run here. The guard needs no
database: when leases could not be renewed in time, it stops all steps, because somebody else may run them by now. The
broom removes what is old, which may take longer than a lease lasts.
"""

from __future__ import annotations

import logging
import math
import queue as queues
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Self

from etude.agents.base import Kind
from etude.agents.hub import BREATH_S, Waker
from etude.agents.running_step import RunningStep
from etude.agents.step_runner import StepRunner, tell
from etude.errors import EtudeError, Unavailable
from etude.store.action import Finish, StepRecord
from etude.store.agents import AgentStore
from etude.store.identity import Identity
from etude.store.queue import LEASE_S, Queue

if TYPE_CHECKING:
    from etude.agents.app import AgentApp

log = logging.getLogger("etude.agents")

SLOTS = 8
LOOK_S = 0.5
DRAIN_S = 30.0
ENDING_S = 5.0
"""How long steps that were broken off have to end, and then the threads that write their ends down."""
KEEP_DAYS = 30.0
FIRST_PRUNE_S = 60.0
PRUNE_S = 3600.0
"""How often what is old is removed; the first time soon, for many a server runs no hour."""
SHORT_S = 0.005
PASSED_S = 0.005
AHEAD = 5
"""So many times its slots a worker claims ahead while steps take less than `SHORT_S`: commits are the cost then."""
GATHER_S = 0.002
"""How long an end is kept for others that are about to come: one commit is enough for all."""


class Worker:
    """Runs agents of a store until it is stopped. `app` gives the store, and services to the steps."""

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
        self._lock = threading.Lock()
        self._work: queues.SimpleQueue[RunningStep | None] = queues.SimpleQueue()
        self._ended: list[Finish] = []
        self._bell = threading.Event()
        self._pulse_bell = threading.Event()
        self._look = True
        self._step_s = 0.1
        """How long steps took of late."""
        self._due: float | None = None
        self._something_due = threading.Event()
        self._renewed = time.monotonic()
        self._draining = threading.Event()
        self._drained = threading.Event()
        """Set once the dispatcher knows that it is to claim nothing more."""
        self._stopping = False
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._unlisten: Callable[[], None] | None = None
        self._waker = Waker(self.agent_store)
        self._news = threading.Event()
        self._said = threading.Event()

    # Life.

    def start(self) -> Self:
        """Begin to work."""
        self._renewed = time.monotonic()
        self._pulse_bell.set()  # what was left behind is taken over at once
        self._unlisten = self.queue.listen(self._on_ring)
        self._news.set()
        for loop in (self._dispatch, self._pulse, self._guard, self._broom, *[self._run_steps] * self.slots):
            self._begin(loop)
        return self

    def _begin(self, loop: Callable[[], None]) -> None:
        name = f"etude-worker{loop.__name__}"
        thread = threading.Thread(target=self._keep_going, args=(loop,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _keep_going(self, loop: Callable[[], None]) -> None:
        """Run a loop until it ends; a defect that breaks it is logged, and it begins again."""
        while True:
            try:
                return loop()
            except Exception:
                log.exception("%s broke and begins again", loop.__name__.strip("_"))
                if self._stopped.wait(LOOK_S):
                    return

    def drain(self) -> None:
        """Claim nothing more; the steps that run go on."""
        self._drained.clear()
        self._draining.set()
        self._bell.set()

    @property
    def at_work(self) -> int:
        """How many steps run here."""
        return len(self._running)

    def stop(self, drain: float = DRAIN_S) -> None:
        """Claim nothing more; give the steps that run `drain` seconds to end, then break them off, to be run again."""
        if self._stopping:
            return
        self._stopping = True
        self.drain()
        if self._threads:  # what it was claiming just now has to be waited for, too
            self._drained.wait(ENDING_S)
        self._wait_for_steps(drain)
        for running in self._snapshot():
            running.stop("stop")
        self._wait_for_steps(ENDING_S)
        self._stopped.set()
        self._bell.set()
        self._pulse_bell.set()
        for _ in range(self.slots):
            self._work.put(None)
        for thread in self._threads[:2]:
            thread.join(ENDING_S)
        if self._unlisten:
            self._unlisten()
        with suppress(EtudeError):  # the store is gone, and with it what was spent in the last moment
            self._identity.write_down()
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
            self._bell.set()
            time.sleep(0.01)

    def _snapshot(self) -> list[RunningStep]:
        with self._lock:
            return list(self._running.values())

    def _on_ring(self, kind: str, agent: int) -> None:
        if kind in ("run", "all"):
            self._look = True
            self._bell.set()
        if kind in ("reload", "all"):  # what rang while nobody listened may have been that
            self._step_runner.settings_reload.outdated.set()
        if kind == "control" and (
            self._step_runner.has_session(agent) or any(r.claim.agent == agent for r in self._snapshot())
        ):
            self._said.set()
            self._pulse_bell.set()
        if kind in ("event", "all") and not self._news.is_set():
            self._news.set()
            self._pulse_bell.set()

    # The dispatcher.

    def _dispatch(self) -> None:
        finished: list[Finish] = []
        unsure = False
        while not self._stopped.is_set() or finished or self._ended:
            self._bell.clear()
            self._gather()
            with self._lock:
                finished += self._ended
                self._ended = []
                free = max(0, self._room() - len(self._running) + len(finished))
            if self._draining.is_set():
                free = 0
                self._drained.set()
            try:
                self._give_back()
                if not finished and not (free and self._look):
                    self._rest(free > 0)
                    continue
                # Whatever comes from now on makes it look again.
                rung, self._look = self._look, False
                if unsure:
                    self.queue.disown([r.claim.seq for r in self._snapshot()])
                    unsure = False
                started = self._turn(finished, free)
                finished = []
                if rung and free and not started and self.queue.waits():
                    # It was passed over, for it was locked by somebody who had something to say and will not ring.
                    self._look = True
                    self._stopped.wait(PASSED_S)
            except Exception as error:
                unsure = self._look = True
                finished = self._recover(finished, error)
                if self._stopped.wait(LOOK_S):
                    return

    def _gather(self) -> None:
        """Where some steps have ended, let those end, too, that began with them and are as short."""
        until = time.monotonic() + GATHER_S
        while (now := time.monotonic()) < until and self._step_s < GATHER_S:
            with self._lock:
                young = [r for r in self._running.values() if now - r.began < SHORT_S]
                if not 0 < len(self._ended) < len(young):
                    return
            time.sleep(GATHER_S / 8)

    def _rest(self, can_claim: bool) -> None:
        """Wait for a ring, or until something is due. Not for long: a ring that was lost costs no more than a look."""
        left = LOOK_S if self._due is None else min(LOOK_S, max(0.0, self._due - time.monotonic()))
        if self._stopped.is_set() or self._bell.wait(left):
            return
        if self._due is not None and self._due <= time.monotonic():
            self._due = None
            self._something_due.set()
            self._pulse_bell.set()
        if can_claim and self.queue.waits():
            self._look = True

    def _room(self) -> int:
        oldest = next(iter(self._running.values()), None)
        slow = self._step_s >= SHORT_S or (oldest is not None and oldest.waits)
        return self.slots if slow else self.slots * (1 + AHEAD)

    def _give_back(self) -> None:
        """What was claimed ahead and cannot begin, for steps are not short any more: others may run it sooner."""
        with self._lock:
            # They stand in the order in which they came.
            late = [r for r in takewhile(lambda r: r.waits, self._running.values()) if not r.begun]
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
        # As many as could be: there may be more.
        if 0 < claim == len(started):
            self._look = True
        for finish in finished:
            if finish.end == "delayed":
                self._plan(finish.delay)
            if finish.tick is not None:
                self._plan(finish.tick)
        for refused in turn.refused:
            log.warning("agent %s: the end of %s came too late", refused.claim.agent_id, refused.claim.id)
            self._step_runner.close_session(refused.claim.agent)
        for running in started:
            self._work.put(running)
        return len(started)

    def _recover(self, finished: list[Finish], error: Exception) -> list[Finish]:
        """What to try again after a turn that failed: all of it, unless it is an end that can never be written."""
        if isinstance(error, Unavailable):
            log.warning("%s", error.message)
            return finished
        log.exception("a turn failed")
        left = []
        for finish in finished:  # each by itself: what one agent returned is no matter of the others
            try:
                self._turn([finish], 0)
            except Unavailable:
                left.append(finish)
            except Exception as defect:
                text = f"Its end could not be recorded: {type(defect).__name__}."
                left.append(Finish(finish.claim, "failed", error=text))
        return left

    def _plan(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        self._due = due if self._due is None else min(self._due, due)

    # The steps.

    def _run_steps(self) -> None:
        while (running := self._work.get()) is not None:
            with self._lock:
                if running.abandoned:
                    continue
                running.begun = True
            began = time.monotonic()
            try:
                finish = self._step_runner.run(running)
            except BaseException as error:
                log.exception("agent %s", running.claim.agent_id)
                record = StepRecord("null", "error", 0.0, error=tell(error))
                finish = self._step_runner.fail(running, error, record)
            with self._lock:
                running.over = True
                if running.abandoned:
                    return
                self._ended.append(finish)
                self._step_s += (time.monotonic() - began - self._step_s) / 8
            self._bell.set()

    # The pulse.

    def _pulse(self) -> None:
        swept = renewed = looked = -math.inf
        while not self._stopped.is_set():
            # What comes in one breath is looked at in one.
            self._pulse_bell.wait(BREATH_S if self._news.is_set() else LOOK_S)
            self._pulse_bell.clear()
            now = time.monotonic()
            try:
                ticks = now - swept >= LOOK_S
                if ticks or self._said.is_set():
                    self._said.clear()
                    self._hear()
                if ticks or (self._news.is_set() and now - looked >= BREATH_S):
                    looked = now
                    self._news.clear()
                    self._wake_listeners()
                if ticks or self._something_due.is_set():
                    swept = now
                    self._something_due.clear()
                    self._keep_lock()
                    self._sweep()
                if now - renewed >= self.lease / 3:
                    renewed = now
                    self._renew()
                self._identity.write_down()
            except Unavailable as error:
                log.warning("%s", error.message)
            except Exception:
                log.exception("the pulse failed")

    def _wake_listeners(self) -> None:
        try:
            self._waker.wake()
        except Unavailable:
            raise
        except Exception:
            # Leases are renewed all the same: what one agent listens to is no matter of the others.
            log.exception("events could not wake agents")

    def _hear(self) -> None:
        """Take in what was said to agents whose steps run here."""
        running = {r.claim.agent: r for r in self._snapshot() if r.listens}
        for no, seq, verb, body in self.agent_store.said(sorted(running)) if running else ():
            step = running[no]
            if seq <= step.heard:
                continue
            step.heard = seq
            if verb == "steer":
                step.guidance.append((seq, body))
            elif verb in ("interrupt", "pause"):
                if verb == "pause":
                    step.settled.append(seq)
                step.stop(verb)  # type: ignore[arg-type]
            elif verb == "destroy":
                step.settled.append(seq)
                step.doomed_at = time.monotonic() + float(body or 0)
        for step in running.values():
            if step.doomed_at is not None and time.monotonic() >= step.doomed_at:
                step.stop("destroy")
        idle = self._step_runner.agents_with_sessions() - set(running)
        for no in self.agent_store.gone(idle) if idle else ():
            self._step_runner.close_session(no)

    def _keep_lock(self) -> None:
        if not self.queue.hold():
            # Others have seen this worker as dead: its steps are theirs.
            for running in self._snapshot():
                running.stop("lost")

    def _sweep(self) -> None:
        after = self.queue.sweep(running=[r.claim.seq for r in self._snapshot()])
        if after is not None:
            self._plan(after)

    def _renew(self) -> None:
        running = self._snapshot()
        began = time.monotonic()
        held = self.queue.heartbeat([r.claim.seq for r in running], self.lease)
        self._renewed = began
        for each in running:
            if each.key in held or each.key not in self._running:
                continue
            if each.reason is None:
                each.stop("lost")
            else:  # it was told to end, and is another's or nobody's by now
                self._abandon(each)

    def _abandon(self, running: RunningStep) -> None:
        """Leave a step to itself that was cut off and does not end, so that it keeps no other from running."""
        with self._lock:
            if running.over:
                return
            running.abandoned = True
            self._running.pop(running.key, None)
        log.warning("agent %s: its step was cut off, but does not end", running.claim.agent_id)
        self._step_runner.close_session(running.claim.agent)
        self._begin(self._run_steps)
        self._look = True
        self._bell.set()

    # The guard.

    def _guard(self) -> None:
        while not self._stopped.wait(min(LOOK_S, self.lease / 10)):
            for running in self._snapshot():
                if time.monotonic() - max(self._renewed, running.began) > self.lease * 0.9:
                    running.stop("lost")

    # The broom.

    def _broom(self) -> None:
        wait = FIRST_PRUNE_S
        while not self._stopped.wait(wait):
            wait = PRUNE_S
            try:
                self.queue.prune(KEEP_DAYS)
            except Unavailable as error:
                log.warning("%s", error.message)
            except Exception:
                log.exception("what is old could not be removed")
