"""A worker: claims agents, runs their steps in threads, and keeps its word about them.

Three threads beside those of the steps. The dispatcher ends and claims, in one transaction each turn. The pulse renews
leases, takes over from workers that are gone, and hears what is said to agents that run here. The guard needs no
database: when leases could not be renewed in time, it stops all steps, because somebody else may run them by now.
"""

from __future__ import annotations

import json
import logging
import math
import queue as queues
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, Self

from etude import plugins
from etude.agents.base import Context, Item, Kind, Step, check_step
from etude.agents.control import read_config
from etude.agents.environment import Environment
from etude.agents.hub import BREATH_S, Usher
from etude.cancellation import Cancellation
from etude.errors import EtudeError, Invalid, LimitExceeded, Unavailable, problem
from etude.store.identity import Identity, Spent
from etude.store.queue import LEASE_S, Claim, End, Finish, NewEvent, Queue, StepRecord, backoff, to_text
from etude.store.roster import Roster
from etude.store.topics import check_event

if TYPE_CHECKING:
    from etude.runtime.notebook import Notebook

log = logging.getLogger("etude.agents")

SLOTS = 8
LOOK_S = 0.5
DRAIN_S = 30.0
OPEN_SESSIONS = 32
KEEP_DAYS = 30.0
PRUNE_S = 3600.0
SHORT_S = 0.005
PASSED_S = 0.005
AHEAD = 5
"""So many times its slots a worker claims ahead while steps take less than `SHORT_S`: commits are the cost then."""
SHOWN = 4000
"""An output of more characters than this is told without its text; it is in the step."""

LARGEST_OUTPUT = 1 << 22
LARGEST_STATE = 1 << 24
LONGEST_S = 3e9
"""A century: what is planned for later has no date."""

Reason = Literal["interrupt", "pause", "destroy", "lost", "stop"]


@dataclass
class _Running:
    """A step that runs here."""

    claim: Claim
    cancel: Cancellation = field(default_factory=Cancellation)
    began: float = field(default_factory=time.monotonic)
    listens: bool = False
    """Whether what was said before has been taken in: only what comes after that can break the step off."""
    heard: int = 0
    """The last of what was said to the agent that this step knows of."""
    guidance: list[tuple[int, Any]] = field(default_factory=list)
    """What was said meanwhile, and the step has not asked for yet."""
    taken: list[int] = field(default_factory=list)
    """Guidance that the step has; it is applied when something came of the step."""
    settled: list[int] = field(default_factory=list)
    """What else was said: it is applied however the step ends."""
    reason: Reason | None = None
    doomed_at: float | None = None
    begun: bool = False
    over: bool = False
    abandoned: bool = False
    """Whether the worker has nothing to do with it any more: it was given back, or was cut off and does not end."""
    thread_id: str | None = None

    def __post_init__(self) -> None:
        self.thread_id = self.claim.thread_id

    @property
    def key(self) -> tuple[int, int]:
        return self.claim.key

    @property
    def waits(self) -> bool:
        """Whether its end is not near: it has run, or waited for a thread, longer than short steps do."""
        return time.monotonic() - self.began > LOOK_S

    def stop(self, reason: Reason) -> None:
        if self.reason is None:
            self.reason = reason
        self.cancel.cancel()


class Worker:
    """Runs agents of a store until it is stopped. `app` gives the store, and services to the steps."""

    def __init__(
        self,
        app: Any,
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
        self.roster = Roster(self.queue)
        self._identity = identity or Identity(app.store)
        self.slots = slots
        self.lease = lease
        self._kinds = kinds or {}
        self._environment = Environment(app)
        self._running: dict[tuple[int, int], _Running] = {}
        self._lock = threading.Lock()
        self._work: queues.SimpleQueue[_Running | None] = queues.SimpleQueue()
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
        self._stopping = False
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sessions = _Sessions()
        self._unlisten: Callable[[], None] | None = None
        self._usher = Usher(self.roster)
        self._news = threading.Event()
        self._said = threading.Event()

    # Life.

    def start(self) -> Self:
        """Begin to work."""
        self._renewed = time.monotonic()
        self._pulse_bell.set()  # what was left behind is taken over at once
        self._unlisten = self.queue.listen(self._on_ring)
        self._news.set()
        for loop in (self._dispatch, self._pulse, self._guard, *[self._run_steps] * self.slots):
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
        self._draining.set()

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
        self._wait_for_steps(drain)
        for running in self._snapshot():
            running.stop("stop")
        self._wait_for_steps(5.0)
        self._stopped.set()
        self._bell.set()
        self._pulse_bell.set()
        for _ in range(self.slots):
            self._work.put(None)
        for thread in self._threads[:2]:
            thread.join(5.0)
        if self._unlisten:
            self._unlisten()
        with suppress(EtudeError):  # the store is gone, and with it what was spent in the last moment
            self._identity.write_down()
        if self._owns_queue:
            self.queue.close()
        self._sessions.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(drain=0.0)

    def _wait_for_steps(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._snapshot() and time.monotonic() < until:
            self._bell.set()
            time.sleep(0.01)

    def _snapshot(self) -> list[_Running]:
        with self._lock:
            return list(self._running.values())

    def _on_ring(self, kind: str, agent: int) -> None:
        if kind in ("run", "all"):
            self._look = True
            self._bell.set()
        if kind == "reload":
            self._environment.outdated.set()
        if kind == "control" and (self._sessions.holds(agent) or any(r.claim.agent == agent for r in self._snapshot())):
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
            with self._lock:
                finished += self._ended
                self._ended = []
                free = max(0, self._room() - len(self._running) + len(finished))
            if self._draining.is_set():
                free = 0
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
        started = [_Running(c) for c in turn.claimed]
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
            self._sessions.drop(refused.claim.agent)
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
                finish = self._run_step(running)
            except BaseException as error:
                log.exception("agent %s", running.claim.agent_id)
                finish = self._failed(running, error, StepRecord("null", "error", 0.0, error=_text(error)))
            with self._lock:
                running.over = True
                if running.abandoned:
                    return
                self._ended.append(finish)
                self._step_s += (time.monotonic() - began - self._step_s) / 8
            self._bell.set()

    def _run_step(self, running: _Running) -> Finish:
        claim = running.claim
        inbox = self._inbox(running)
        running.listens = True
        if not inbox:
            return Finish(claim, "done", applied=(*running.taken, *running.settled))
        started = time.monotonic()
        shown = json.dumps([{"kind": item.kind, "body": item.body} for item in inbox])
        context = self._context(running)
        try:
            running.cancel.check()
            self._environment.refresh()
            if claim.key_id is not None:
                self._identity.check_budget(self._identity.key(claim.key_id), self.app.settings.server)
            kind = self._kind(claim.agent_kind)
            agent = kind(read_config(claim.agent_kind, kind, claim.config))
            step = check_step(agent.step(context, json.loads(claim.state), inbox))
            # Not every kind asks by way of the context; those that do need not count.
            context.tokens, context.cost_usd = context.tokens or step.tokens, context.cost_usd or step.cost_usd
            return self._finish(running, context, step, shown, time.monotonic() - started)
        except Exception as error:
            seconds, partial = time.monotonic() - started, _shown(context.partial)
            if running.cancel.cancelled and not isinstance(error, Unavailable):
                return self._finish(running, context, Step(output=partial, interrupted=True), shown, seconds)
            record = StepRecord(
                shown,
                "error",
                seconds,
                output=None if partial is None else to_text(partial),
                error=_text(error),
                tokens=context.tokens,
                cost_usd=context.cost_usd,
            )
            return self._failed(running, error, record)
        finally:
            self._charge(claim, context, time.monotonic() - started)
            self._sessions.keep(claim.agent, claim.step_no + 1)

    def _charge(self, claim: Claim, context: Context, seconds: float) -> None:
        if claim.key_id is not None:
            used = Spent(tokens=context.tokens, cost_usd=context.cost_usd, seconds=seconds)
            self._identity.spend(claim.key_id, used)

    def _inbox(self, running: _Running) -> list[Item]:
        """What the step is about: guidance first, then the action."""
        claim = running.claim
        inbox: list[Item] = []
        for _, seq, verb, body in self.roster.said([claim.agent]) if claim.told else ():
            running.heard = seq
            (running.taken if verb in ("steer", "interrupt", "resume") else running.settled).append(seq)
            if verb == "reload":
                self._sessions.drop(claim.agent)
                self._environment.outdated.set()
            elif body is not None and verb != "destroy":
                inbox.append(Item("guidance", body))
        if claim.kind != "wake":
            inbox.append(Item(claim.kind, json.loads(claim.payload), claim.id))  # type: ignore[arg-type]
        return inbox

    def _kind(self, name: str) -> type[Kind[Any]]:
        kind: type[Kind[Any]] = self._kinds.get(name) or plugins.load("agent", name)
        return kind

    def _is_quiet(self, name: str) -> bool:
        """Whether steps of the kind are told to nobody; nor are those of one that is no longer installed.

        It may have been one that events wake, which would be woken by its own failures for ever.
        """
        try:
            return self._kind(name).quiet
        except EtudeError:
            return True

    def _context(self, running: _Running) -> Context:
        claim = running.claim
        app = self.app if claim.tenant == self.app.store.tenant else self.app.scoped(claim.tenant)

        def find_thread(source: str | None) -> str:
            if running.thread_id is None:
                running.thread_id = str(app.store.create_thread(f"agent {claim.agent_id}", source).id)
                self.roster.keep_thread(claim.agent, running.thread_id)
            return running.thread_id

        def open_session(source: str | None = None, **options: Any) -> Notebook:
            return self._sessions.open(app, find_thread, running, source, options)

        return Context(
            agent_id=claim.agent_id,
            tenant=claim.tenant,
            step_no=claim.step_no + 1,
            key=f"{claim.id}:{claim.attempts}",
            app=app,
            cancel=running.cancel,
            _open_session=open_session,
            _find_thread=find_thread,
            _guidance=running.guidance,
            _taken=running.taken,
        )

    def _finish(self, running: _Running, context: Context, step: Step, shown: str, seconds: float) -> Finish:
        claim, outcome = running.claim, "interrupted" if step.interrupted else "ok"
        if step.interrupted and running.reason in ("lost", "stop"):
            # Nobody asked for it: the step is run again as if nothing had been.
            return Finish(claim, "ready")
        output = None if step.output is None else _written("output", step.output, LARGEST_OUTPUT)
        record = StepRecord(
            shown,
            outcome,
            seconds,
            output=output,
            state=None if step.state is None else _written("state", dict(step.state), LARGEST_STATE),
            done=bool(step.next and step.next.done),
            tokens=step.tokens or context.tokens,
            cost_usd=step.cost_usd or context.cost_usd,
        )
        told = {"step": context.step_no, "outcome": outcome, "about": claim.kind}
        if output is not None and len(output) <= SHOWN:
            told["output"] = step.output
        events = [NewEvent(topic, check_event(topic, body, LARGEST_OUTPUT)) for topic, body in step.events]
        if not self._is_quiet(claim.agent_kind):
            events.insert(0, NewEvent("agent.step", to_text(told)))
        end: End = "done"
        applied = [*running.taken, *running.settled]
        if step.interrupted:
            end = "cancelled" if running.reason == "destroy" else "ready"
            # Nothing came of it: its guidance begins the next step too.
            applied = running.settled if step.state is None else applied
        return Finish(
            claim,
            end,
            step=record,
            events=tuple(events),
            applied=tuple(applied),
            tick=None if step.next is None or step.next.after is None else min(step.next.after, LONGEST_S),
            drop_tick=bool(step.next and step.next.after is None),
        )

    def _failed(self, running: _Running, error: BaseException, record: StepRecord) -> Finish:
        claim, text = running.claim, _text(error)
        told = to_text({"step": claim.step_no + 1, "outcome": "error", "about": claim.kind, "error": text})
        events = () if self._is_quiet(claim.agent_kind) else (NewEvent("agent.step", told),)
        if claim.attempts >= claim.max_attempts:
            applied = (*running.taken, *running.settled)
            return Finish(claim, "failed", error=text, step=record, events=events, applied=applied)
        wait = backoff(claim.attempts)
        if isinstance(error, LimitExceeded):
            # A budget of the day begins anew at midnight.
            wait = max(wait, float(error.details.get("retry_after_s", 0.0)))
        applied, again = tuple(running.settled), tuple(running.taken)
        return Finish(claim, "delayed", text, wait, record, events, applied, again)

    # The pulse.

    def _pulse(self) -> None:
        swept = renewed = looked = -math.inf
        pruned = time.monotonic()
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
                if now - pruned > PRUNE_S:
                    pruned = now
                    self.queue.prune(KEEP_DAYS)
            except Unavailable as error:
                log.warning("%s", error.message)
            except Exception:
                log.exception("the pulse failed")

    def _wake_listeners(self) -> None:
        try:
            self._usher.wake()
        except Unavailable:
            raise
        except Exception:
            # Leases are renewed all the same: what one agent listens to is no matter of the others.
            log.exception("events could not wake agents")

    def _hear(self) -> None:
        """Take in what was said to agents whose steps run here."""
        running = {r.claim.agent: r for r in self._snapshot() if r.listens}
        for no, seq, verb, body in self.roster.said(sorted(running)) if running else ():
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
        idle = self._sessions.agents() - set(running)
        for no in self.roster.gone(idle) if idle else ():
            self._sessions.drop(no)

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

    def _abandon(self, running: _Running) -> None:
        """Leave a step to itself that was cut off and does not end, so that it keeps no other from running."""
        with self._lock:
            if running.over:
                return
            running.abandoned = True
            self._running.pop(running.key, None)
        log.warning("agent %s: its step was cut off, but does not end", running.claim.agent_id)
        self._sessions.drop(running.claim.agent)
        self._begin(self._run_steps)
        self._look = True
        self._bell.set()

    # The guard.

    def _guard(self) -> None:
        while not self._stopped.wait(min(LOOK_S, self.lease / 10)):
            for running in self._snapshot():
                if time.monotonic() - max(self._renewed, running.began) > self.lease * 0.9:
                    running.stop("lost")


class _Sessions:
    """Open sessions of agents that ran here; those not used for long are closed, and revived when needed."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[Notebook, int]] = OrderedDict()
        self._used: set[int] = set()
        self._lock = threading.Lock()

    def holds(self, agent: int) -> bool:
        return agent in self._open

    def agents(self) -> set[int]:
        with self._lock:
            return set(self._open)

    def open(
        self,
        app: Any,
        find_thread: Callable[[str | None], str],
        running: _Running,
        source: str | None,
        options: dict[str, Any],
    ) -> Notebook:
        claim = running.claim
        with self._lock:
            kept = self._open.get(claim.agent)
        # Another worker may have made steps meanwhile: what is open here is then behind.
        if kept is not None and kept[1] != claim.step_no:
            self.drop(claim.agent)
            kept = None
        if kept is None:
            kept = (app.open_session(source, thread_id=find_thread(source), **options), claim.step_no)
            with self._lock:
                self._open[claim.agent] = kept
        with self._lock:
            self._used.add(claim.agent)
        notebook = kept[0]
        running.cancel.check()
        return _Stoppable(notebook, running.cancel)  # type: ignore[return-value]

    def keep(self, agent: int, step_no: int) -> None:
        """The step is over, and the session knows what it did; the one used longest ago makes room."""
        with self._lock:
            if agent not in self._used:
                return
            self._used.discard(agent)
            if agent in self._open:
                self._open[agent] = (self._open[agent][0], step_no)
                self._open.move_to_end(agent)
            old = (
                next((a for a in self._open if a not in self._used), None) if len(self._open) > OPEN_SESSIONS else None
            )
        if old is not None:
            self.drop(old)

    def drop(self, agent: int) -> None:
        with self._lock:
            kept = self._open.pop(agent, None)
        if kept is not None:
            with suppress(EtudeError):
                kept[0].close()

    def close(self) -> None:
        for agent in self.agents():
            self.drop(agent)


class _Stoppable:
    """A notebook whose cells stop when the step must end."""

    def __init__(self, notebook: Notebook, cancel: Cancellation) -> None:
        self._notebook = notebook
        self._cancel = cancel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._notebook, name)

    def execute(self, code: str, **options: Any) -> Any:
        ended = threading.Event()

        def insist() -> None:
            # An interrupt that comes just before the cell begins stops nothing, so it is repeated.
            pause = 0.02
            self._notebook.interrupt()
            while not ended.wait(pause):
                self._notebook.interrupt()
                pause = min(2 * pause, 1.0)

        try:
            with self._cancel.stopping(lambda: threading.Thread(target=insist, daemon=True).start()):
                cell = self._notebook.execute(code, **options)
        finally:
            ended.set()
        self._cancel.check()
        return cell


def _written(what: str, value: Any, largest: int) -> str:
    try:
        text = to_text(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"The {what} of the step is not JSON: {error}.") from None
    if len(text) > largest:
        raise Invalid(
            f"The {what} of the step has {len(text):,} characters, of {largest:,} that are possible.",
            hint="Keep what is large in a session, a file or a table, and say where it is.",
        )
    return text


def _shown(partial: Any) -> Any:
    """What was to be seen of a step that did not end, whatever it is: nothing of it may stop the record."""
    try:
        _written("partial output", partial, LARGEST_OUTPUT)
    except Invalid:
        return repr(partial)[:SHOWN]
    return partial


def _text(error: BaseException) -> str:
    if isinstance(error, EtudeError):
        return error.message
    # The text of an unexpected error may quote anything; the log has it.
    return str(problem(error)["detail"])
