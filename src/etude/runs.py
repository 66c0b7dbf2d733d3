"""Runs: begin them, work on them, follow them, and pause, steer or cancel them."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from etude.entities import ENDED, STOPPED, Budget, Limits, Run, RunFilter, RunKind, Thread, Turn
from etude.errors import Conflict, EtudeError, Invalid, NotFound, NotUnderstood
from etude.events import (
    Entry,
    Event,
    Guided,
    RunAnswered,
    RunCancelled,
    RunFinished,
    RunPaused,
    RunQueued,
    RunRequested,
    RunResumed,
    RunStarted,
)
from etude.models.base import Model
from etude.run_setup import make_loop_setup, make_run_resources
from etude.runtime.answer import Answer, AnswerConclusion, make_answer
from etude.runtime.code import run_code
from etude.runtime.live_runs import POLL_S
from etude.runtime.loop import run_loop
from etude.runtime.run_control import RunControl
from etude.runtime.run_log import RunLog, RunStorage
from etude.runtime.thread import earlier_thread_messages, last_success_in_thread, open_thread, thread_runs

if TYPE_CHECKING:
    from etude.app import App
    from etude.sources.registered_tables import RegisteredTables
    from etude.sources.source import Source

CODE = ("sql", "plan", "python")
"""Kinds of runs that are one query or one cell, without a model."""
RECOVERED_AT_ONCE = 8
"""How many interrupted runs are resumed at first; more follow one by one, as repeated crashes can leave many."""
_DIRECT = re.compile(r"\s*(SQL|PYTHON):", re.IGNORECASE)
OnEntry = Callable[[Entry], None]


@dataclass(frozen=True)
class _Given:
    """The objects that a caller passed for a run. The record only has their names."""

    source: Source | None = None
    model: Model | None = None
    beside: RegisteredTables | None = None
    """Tables that a program registered beside the source."""


class Runs:
    """The runs of one tenant. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._live = app.live_runs
        self._given: dict[str, _Given] = {}
        """By run id, until the run has ended."""

    def __len__(self) -> int:
        """Return how many runs are being worked on in this process."""
        return len(self._live)

    @property
    def _storage(self) -> RunStorage:
        return RunStorage(self._app.store, self._app.objects)

    # -- beginning

    def ask(
        self,
        source: str | Source | None,
        question: str,
        *,
        model: str | Model | None = None,
        thread_id: str | None = None,
        budget: Budget | None = None,
        fresh: bool = False,
        on_entry: OnEntry | None = None,
        control: RunControl | None = None,
        beside: RegisteredTables | None = None,
    ) -> Answer:
        """Answer a question in this thread of execution; it may read the tables registered `beside` the source."""
        run_id = self.begin("ask", question, source, model=model, thread_id=thread_id, budget=budget, fresh=fresh)
        self._given[run_id] = replace(self._given[run_id], beside=beside)
        return self.answer_of(self.work(run_id, control=control, on_entry=on_entry))

    def begin(
        self,
        kind: RunKind,
        text: str,
        source: str | Source | None = None,
        *,
        model: str | Model | None = None,
        thread_id: str | None = None,
        budget: Budget | None = None,
        limits: Limits | None = None,
        fresh: bool = False,
    ) -> str:
        """Record a queued run and return its id. `start` or `work` then works on it.

        A question that begins with `SQL:` or `PYTHON:` becomes a run of that kind, which needs no model. With `fresh`,
        no script of an earlier run answers the question.
        """
        if not text.strip():
            raise Invalid(
                f"The {'question' if kind == 'ask' else 'code'} is empty.", hint="Say what you want to know or run."
            )
        opened = self._app.source(source) if source is not None else None
        if kind == "ask":
            return self._begin_question(text, opened, thread_id, model, budget, limits, fresh)
        if kind not in CODE:
            raise Invalid(f"A run of kind `{kind}` cannot be started here.", hint="Kinds: sql, plan, python, ask.")
        if thread_id is not None and opened is None:
            opened = self._last_source(self._app.store.thread(thread_id))
        return self._queue(kind, text, _require_source(opened), thread_id=thread_id, limits=limits)

    def _begin_question(
        self,
        text: str,
        source: Source | None,
        thread_id: str | None,
        model: str | Model | None,
        budget: Budget | None,
        limits: Limits | None,
        fresh: bool,
    ) -> str:
        direct = parse_direct_run(text)
        thread = open_thread(self._app.store, thread_id, text, source.name if source else None)
        chosen = source or self._last_source(thread)
        if direct is not None:
            kind, code = direct
            return self._queue(kind, code, _require_source(chosen), thread_id=thread.id, message=text, limits=limits)
        return self._queue(
            "ask",
            text,
            chosen,
            thread_id=thread.id,
            message=text,
            model=model or self._app.settings.model,
            budget=budget or self._app.settings.budget,
            limits=limits,
            fresh=fresh,
        )

    def _queue(
        self,
        kind: RunKind,
        text: str,
        source: Source | None,
        *,
        thread_id: str | None,
        message: str | None = None,
        model: str | Model | None = None,
        budget: Budget | None = None,
        limits: Limits | None = None,
        fresh: bool = False,
    ) -> str:
        self._app.store.check_storage()
        log = RunLog(self._storage)
        log.add(
            RunQueued(
                kind=kind,
                text=text,
                source=source.name if source else None,
                location=self._location(source) if source else None,
                thread_id=thread_id,
                model=model.name if isinstance(model, Model) else model,
                budget=budget,
                limits=limits,
                params={"fresh": True} if fresh else {},
            )
        )
        # The message comes first: otherwise, after a crash, the run would not be in its conversation.
        if message is not None and thread_id is not None:
            self._app.store.add_message(thread_id, "user", message, log.run_id)
        log.commit()
        self._given[log.run_id] = _Given(source, model if isinstance(model, Model) else None)
        return log.run_id

    def _location(self, source: Source) -> str | None:
        """Return the URL of a source that is not registered, unless the URL may contain a secret."""
        if source.name in self._app.sources() and self._app.source(source.name) is source:
            return None
        return source.location

    def _source_of(self, run: Run) -> Source | None:
        if run.source is None:
            return None
        given = self._given.get(run.id, _Given()).source
        return given or self._app.source(run.location or run.source)

    def _last_source(self, thread: Thread) -> Source | None:
        """Return the source that the thread was last about."""
        for run_id in reversed(thread_runs(self._app.store, thread.id)):
            source = self._source_of(self._app.store.run(run_id))
            if source is not None:
                return source
        return self._app.source(thread.source) if thread.source else None

    # -- working

    def start(self, run_id: str) -> None:
        """Work on a queued or paused run in the background."""
        # Read the run now: if it is paused before the thread starts, it stays paused.
        run = self._app.store.run(run_id)
        self._live.start(run_id, lambda: self._work(run, RunControl()))

    def work(self, run_id: str, *, control: RunControl | None = None, on_entry: OnEntry | None = None) -> Run:
        """Work on a queued or paused run until it ends, waits for a person or is paused."""
        return self._work(self._app.store.run(run_id), control or RunControl(), on_entry)

    def _work(self, run: Run, control: RunControl, on_entry: OnEntry | None = None) -> Run:
        resumable = ("queued", "paused") if run.kind == "ask" else ("queued",)
        if run.kind not in ("ask", *CODE) or run.status not in resumable:
            raise Conflict(
                f"Run `{run.id}` of kind {run.kind} is {run.status}.",
                hint="A run can be worked on while it is queued; a question also while it is paused.",
            )
        log = RunLog(self._storage, run, on_entry)
        with self._live.working(run.id, run.seq, control):
            worker = self._app.store.worker_id
            log.claim(RunStarted(worker=worker) if run.status == "queued" else RunResumed(worker=worker))
            ended = self._answer(log, run, control) if run.kind == "ask" else self._run_code(log, run, control)
        self._reply(ended)
        return self._settle(ended, control)

    def _answer(self, log: RunLog, run: Run, control: RunControl) -> Run:
        given = self._given.get(run.id, _Given())
        model, source, beside = given.model, self._source_of(run), given.beside
        # Only the name of a model is on record, so one that was passed as an object is always asked. Registered tables
        # are gone after the program, so nothing that read them can be replayed.
        repeatable = model is None and beside is None and self._app.settings.replay != "off"

        def replay() -> RunFinished | None:
            if not repeatable:
                return None
            end = self._app.scripts.answer(
                run, source, lambda: make_run_resources(self._app, run, source), log, control.step
            )
            if end is not None:
                self._add_reply(run, end.answer or "")
            return end

        ended = run_loop(
            lambda: make_loop_setup(self._app, log, source, model, self._conclude, beside), control, log, replay
        )
        if repeatable and ended.status == "succeeded":
            self._app.scripts.learn(ended, source)
        return ended

    def _conclude(self, run: Run, turn: Turn) -> RunFinished | Guided:
        earlier = []
        with contextlib.suppress(NotFound):
            earlier = [m.text for m in earlier_thread_messages(self._app.store, run.thread_id or "", run.id)]
        corrects = run.model != "offline"
        before = last_success_in_thread(self._app.store, run.thread_id, run.source, run.id) if run.thread_id else None
        end = AnswerConclusion(self._app.objects, self._app.read_result, corrects, earlier, before)(run, turn)
        if isinstance(end, RunFinished):
            # Before the run ends: if the process dies in between, the resumed run does not add the message again.
            self._add_reply(run, end.answer or "")
        return end

    def _run_code(self, log: RunLog, run: Run, control: RunControl) -> Run:
        with contextlib.suppress(EtudeError), log.closing():  # the error is on record
            beside = self._given.get(run.id, _Given()).beside
            resources = make_run_resources(self._app, run, self._source_of(run), beside=beside)
            log.add(run_code(run, resources.context_for(log, None, control.step)))
        return log.ended

    def _settle(self, run: Run, control: RunControl) -> Run:
        """Apply a cancellation that came just as the run stopped by itself, and forget a run that has ended."""
        store = self._app.store
        if run.status in ("waiting", "paused") and "cancel" in (control.request, store.run(run.id).requested):
            self.cancel(run.id)
            run = store.run(run.id)
        if run.status in ENDED:
            self._given.pop(run.id, None)
        return run

    def _reply(self, run: Run) -> None:
        """Add to the thread how the run ended, if it began with a message there."""
        match run.status:
            case "waiting":
                self._add_reply(run, run.question or "")
            case "failed" if run.error and run.error["code"] == NotUnderstood.code:
                self._add_reply(run, run.error["detail"])
            case "succeeded" if run.kind in CODE:
                self._add_reply(run, run.answer or "Done.")

    def _add_reply(self, run: Run, text: str) -> None:
        if run.thread_id is None or not text:
            return
        with contextlib.suppress(NotFound):  # the thread was deleted meanwhile
            messages = [m for m in self._app.store.messages(run.thread_id) if m.run_id == run.id]
            asked = any(m.role == "user" for m in messages)
            if asked and not any(m.role == "assistant" and m.text == text for m in messages):
                self._app.store.add_message(run.thread_id, "assistant", text, run.id)

    def recover(self) -> list[str]:
        """Continue the runs that lost their process, or that no process had begun; return their ids."""
        store = self._app.store
        store.recover()
        lost = [run for run in self._listed("queued") if run.id not in self._live]
        lost += [run for run in self._listed("paused") if run.paused_by in ("recovery", "shutdown", "answer")]
        self._live.start_all({run.id: self._continue(run) for run in lost}, RECOVERED_AT_ONCE)
        return [run.id for run in lost]

    def _continue(self, run: Run) -> Callable[[], object]:
        if run.kind != "catalog":
            return lambda: self._work(run, RunControl())
        return lambda: self._app.cataloger.resume(run)

    def _listed(self, status: Literal["queued", "paused"]) -> Iterator[Run]:
        cursor: str | None = None
        while True:
            page = self._app.store.runs(RunFilter(status=status), limit=200, cursor=cursor)
            for summary in page.items:
                yield self._app.store.run(summary.id)
            cursor = page.next
            if cursor is None:
                return

    # -- looking

    def answer_of(self, run: Run) -> Answer:
        """Return the answer of a run, which may be incomplete while it runs."""
        return make_answer(run, self._app.read_result)

    def wait(self, run_id: str, timeout: float | None = None, beyond: int = 0) -> Run:
        """Return the run once it has ended, waits or is paused, or after the timeout.

        A run that continues from entry `beyond` counts as stopped only after a later entry.
        """
        for _ in self.follow(run_id, beyond, timeout, beyond):
            pass
        return self._app.store.run(run_id)

    def follow(self, run_id: str, after: int = 0, timeout: float | None = None, beyond: int = 0) -> Iterator[Entry]:
        """Yield the entries of a run as they come, until it has ended, or is paused or waits while no one works on it.

        A run that continues from entry `beyond` counts as stopped only after a later entry.
        """
        store, changed = self._app.store, threading.Event()
        unsubscribe = store.subscribe(lambda run, _: changed.set() if run == run_id else None)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                changed.clear()
                busy = run_id in self._live
                for entry in store.entries(run_id, after=after):
                    after = entry.seq
                    yield entry
                run = store.run(run_id)
                stopped = run.seq > beyond and (run.status in ENDED or (run.status in STOPPED and not busy))
                left = None if deadline is None else deadline - time.monotonic()
                if (run.seq <= after and stopped) or (left is not None and left <= 0):
                    return
                changed.wait(POLL_S if left is None else min(POLL_S, left))
        finally:
            unsubscribe()

    # -- controlling

    def pause(self, run_id: str, now: bool = False) -> None:
        """Stop a question before its next move, or in the middle of this one; it can be resumed from there."""
        kind = self._app.store.run(run_id).kind
        if kind != "ask":
            raise Conflict(f"Run `{run_id}` is of kind {kind}, which cannot be paused.", hint="Cancel it instead.")
        control = self._live.control(run_id)
        if control is not None:
            control.pause(now)
            return
        self._append(run_id, {"queued": [RunPaused(by="user")], "running": [RunRequested(what="pause")]}, "paused")

    def cancel(self, run_id: str) -> None:
        """End a run at once."""
        control = self._live.control(run_id)
        if control is not None:
            control.cancel()
            return
        events: dict[str, list[Event]] = {
            status: [RunCancelled(by="user")] for status in ("queued", "paused", "waiting")
        }
        self._append(run_id, events | {"running": [RunRequested(what="cancel")]}, "cancelled")

    def steer(self, run_id: str, text: str) -> None:
        """Pass a text to the model of a run before its next turn."""
        self._app.store.check_storage()
        self._require_question(run_id, "steered")
        statuses = ("queued", "running", "paused", "waiting")
        self._append(run_id, {status: [Guided(text=text)] for status in statuses}, "steered")

    def interrupt(self, run_id: str, text: str) -> None:
        """Stop the move that a run is making, in whichever process, and pass a text to its model."""
        self._app.store.check_storage()
        self._require_question(run_id, "interrupted")
        control = self._live.control(run_id)
        if control is not None:
            control.interrupt(text)
            return
        guided = Guided(text=text, interrupts=True)
        running: list[Event] = [guided, RunRequested(what="interrupt")]
        self._append(run_id, {"queued": [guided], "paused": [guided], "running": running}, "interrupted")

    def _require_question(self, run_id: str, participle: str) -> None:
        kind = self._app.store.run(run_id).kind
        if kind != "ask":
            raise Conflict(
                f"Run `{run_id}` is of kind {kind} and cannot be {participle}: it has no model.",
                hint="Cancel it instead.",
            )

    def answer(self, run_id: str, text: str) -> int:
        """Answer the question that a run is waiting on. The run is paused until it is started again.

        Returns the entry that the run continues from.
        """
        self._app.store.check_storage()
        self._append(run_id, {"waiting": [RunAnswered(text=text, by="user")]}, "answered")
        run = self._app.store.run(run_id)
        with contextlib.suppress(NotFound):  # the thread was deleted meanwhile
            if run.thread_id:
                self._app.store.add_message(run.thread_id, "user", text, run_id)
        return run.seq

    def _append(self, run_id: str, events: Mapping[str, Sequence[Event]], participle: str) -> None:
        """Append the events for the run's status, or raise `Conflict` if there are none."""
        store = self._app.store
        for _ in range(20):
            run = store.run(run_id)
            if run.status not in events:
                raise Conflict(f"Run `{run_id}` is {run.status} and cannot be {participle}.")
            try:
                store.append(run_id, *events[run.status], expect=run.seq)
                return
            except Conflict:
                time.sleep(0.01)  # the worker of the run wrote an entry meanwhile
        raise Conflict(f"Run `{run_id}` kept changing and could not be {participle}.", hint="Try again.")


def _require_source(source: Source | None) -> Source:
    if source is None:
        raise Invalid("No source was given to run this on.", hint="Name a dataset.")
    return source


def parse_direct_run(text: str) -> tuple[Literal["sql", "python"], str] | None:
    """Return the kind and the code of a message that begins with `SQL:` or `PYTHON:`; None for other messages."""
    found = _DIRECT.match(text)
    if found is None:
        return None
    code = text[found.end() :].strip()
    if not code:
        raise Invalid(f"There is nothing after `{found.group().strip()}`.", hint="Write the code after it.")
    return ("sql" if found.group(1).lower() == "sql" else "python"), code
