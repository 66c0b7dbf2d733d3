"""Runs: begin them, work on them, follow them, and pause, steer or cancel them."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from etude import plugins
from etude.catalog.hints import add_hints
from etude.entities import ENDED, Budget, Catalog, Limits, Run, RunFilter, RunKind, Thread, Turn
from etude.errors import Conflict, EtudeError, Invalid, NotFound, NotUnderstood
from etude.events import (
    ArtifactCreated,
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
from etude.runtime.answer import Answer, Conclusion, make_answer
from etude.runtime.code import run_code
from etude.runtime.control import Control
from etude.runtime.loop import RunSetup, work
from etude.runtime.notebooks import Notebooks
from etude.runtime.prompt import OPENING, Opening, open_conversation
from etude.runtime.query import RunLog, RunStorage
from etude.runtime.thread import earlier_messages, last_success, open_thread, thread_runs
from etude.runtime.tool_context import RunResources

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from etude.app import App
    from etude.offline.vocabulary import KnownTable
    from etude.runtime.notebook import Notebook
    from etude.sources.pool import ResultStream as Batches
    from etude.sources.source import Source
    from etude.tools.base import Tool

TOOLS = ("list_datasets", "get_dataset_schema", "execute_sql", "execute_query_plan", "execute_python", "ask_user")
LOOK_S = 0.25
"""How often requests of other processes are looked for."""
_DIRECT = re.compile(r"\s*(SQL|PYTHON):", re.IGNORECASE)
OnEntry = Callable[[Entry], None]


@dataclass(frozen=True)
class _Live:
    control: Control
    done: threading.Event


class Runs:
    """Where runs of an app are worked at. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._starting: set[str] = set()
        self._sources: dict[str, Source] = {}
        """The sources of runs that have not ended, by run."""
        self._given: dict[str, Model] = {}
        """The models that callers passed for runs that have not ended, by run."""
        self._models: dict[str, Model] = {}
        self._models_lock = threading.Lock()
        self._notebooks = Notebooks(
            lambda thread_id, source: app.open_session(source, thread_id=thread_id, alone=True, record=True)
        )
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def at_work(self) -> int:
        """How many runs are being worked at here."""
        return len(self._live)

    @property
    def _storage(self) -> RunStorage:
        return RunStorage(self._app.store, self._app.objects)

    # -- questions

    def ask(
        self,
        source: str | Source | None,
        question: str,
        *,
        model: str | Model | None = None,
        thread_id: str | None = None,
        budget: Budget | None = None,
        on_entry: OnEntry | None = None,
        control: Control | None = None,
    ) -> Answer:
        """Have a question answered, in this thread. `SQL:` and `PYTHON:` run as they are, without a model."""
        direct = parse_direct(question)
        if direct is not None:
            run_id = self._open_direct(*direct, source, question, thread_id)
            return self._answer_directly(run_id, on_entry, control)
        run_id = self.open(source, question, model=model, thread_id=thread_id, budget=budget)
        return self.answer_of(self.work(run_id, control=control, on_entry=on_entry))

    def open(
        self,
        source: str | Source | None,
        question: str,
        *,
        model: str | Model | None = None,
        thread_id: str | None = None,
        budget: Budget | None = None,
    ) -> str:
        """Take a question: its run is on record, queued, when this returns its id."""
        if not question.strip():
            raise Invalid("The question is empty.", hint="Say what you want to know.")
        opened = self._app.source(source) if source is not None else None
        thread = open_thread(self._app.store, thread_id, question, opened.name if opened else None)
        name = model.name if isinstance(model, Model) else model or self._app.settings.model
        chosen = opened or self._source_of(thread)
        log = self._queue("ask", chosen, question, thread.id, question, name, budget or self._app.settings.budget)
        if isinstance(model, Model):
            self._given[log.run_id] = model
        return log.run_id

    def _queue(
        self,
        kind: RunKind,
        source: Source | None,
        text: str,
        thread_id: str | None,
        said: str | None = None,
        model: str | None = None,
        budget: Budget | None = None,
    ) -> RunLog:
        """Put a run on record, after what was said to bring it about: without that it would belong nowhere."""
        log = RunLog(self._storage)
        log.add(
            RunQueued(
                kind=kind,
                text=text,
                source=source.name if source else None,
                location=self._location(source) if source else None,
                thread_id=thread_id,
                model=model,
                budget=budget,
            )
        )
        if said is not None and thread_id is not None:
            self._app.store.add_message(thread_id, "user", said, log.run_id)
        log.commit()
        if source is not None:
            self._sources[log.run_id] = source
        return log

    def _location(self, source: Source) -> str | None:
        """Where a source is that no registered name leads to, if that holds no secret."""
        if source.name in self._app.sources() and self._app.source(source.name) is source:
            return None
        return None if source.network else source.url

    def _source(self, run: Run) -> Source | None:
        if run.source is None:
            return None
        return self._sources.get(run.id) or self._app.source(run.location or run.source)

    def _source_of(self, thread: Thread) -> Source | None:
        """The source that the thread was last about."""
        for run_id in reversed(thread_runs(self._app.store, thread.id)):
            source = self._source(self._app.store.run(run_id))
            if source is not None:
                return source
        return self._app.source(thread.source) if thread.source else None

    def work(self, run_id: str, *, control: Control | None = None, on_entry: OnEntry | None = None) -> Run:
        """Work at a run that is queued or paused, in this thread, until it ends, waits or is paused."""
        return self._work(self._app.store.run(run_id), control or Control(), on_entry)

    def _work(self, run: Run, wishes: Control, on_entry: OnEntry | None = None) -> Run:
        if run.kind != "ask" or run.status not in ("queued", "paused"):
            raise Conflict(
                f"Run `{run.id}` of kind {run.kind} is {run.status}.",
                hint="A question that is queued or paused can be worked at.",
            )
        log = RunLog(self._storage, run, on_entry)
        with self._living(run.id, wishes):
            worker = self._app.store.worker_id
            log.claim(RunStarted(worker=worker) if run.status == "queued" else RunResumed(worker=worker))
            ended = work(lambda: self._agent(log), wishes, log)
        self._tell(ended)
        return self._let_go(ended, wishes)

    def _let_go(self, run: Run, control: Control) -> Run:
        """Forget a run that has ended; one that was to be cancelled in the moment it stopped by itself is."""
        store = self._app.store
        if run.status in ("waiting", "paused") and "cancel" in (control.wish, store.run(run.id).requested):
            self.cancel(run.id)
            run = store.run(run.id)
        if run.status in ENDED:
            self._sources.pop(run.id, None)
            self._given.pop(run.id, None)
        return run

    def _tell(self, run: Run) -> None:
        """Say in the thread what came of the run; the answer itself is told before the run ends."""
        match run.status:
            case "waiting":
                self._say(run, run.question or "")
            case "failed" if run.error and run.error["code"] == NotUnderstood.code:
                self._say(run, run.error["detail"])

    def _say(self, run: Run, text: str) -> None:
        if run.thread_id is None or not text:
            return
        with contextlib.suppress(NotFound):  # the thread was deleted meanwhile
            said = self._app.store.messages(run.thread_id)
            if not any(m.role == "assistant" and m.run_id == run.id and m.text == text for m in said):
                self._app.store.add_message(run.thread_id, "assistant", text, run.id)

    # -- what a run works with

    def _agent(self, log: RunLog) -> RunSetup:
        log.commit()
        run = log.run
        opening = self._kept_opening(run)
        resources = self._resources(run, opening.mark if opening else None)
        if opening is None:
            opening = self._open_conversation(log, run, resources)
        return RunSetup(
            model=self._model(run, resources),
            tools=self._tools(),
            opening=opening.said,
            budget=run.budget or Budget(),
            resources=resources,
            conclude=self._conclude,
        )

    def _conclude(self, run: Run, turn: Turn) -> RunFinished | Guided:
        read, objects = self._app.read_result, self._app.objects
        end = Conclusion(objects, read, corrects=run.model != "offline")(run, turn)
        if isinstance(end, RunFinished):
            # Before the run ends: a process that dies between the two says it when the run goes on, and says it once.
            self._say(run, end.answer or "")
        return end

    def _tools(self) -> Mapping[str, Tool]:
        return {name: plugins.load("tool", name)() for name in TOOLS}

    def _model(self, run: Run, resources: RunResources) -> Model:
        name = run.model or "offline"
        if run.id in self._given:
            return self._given[run.id]
        if name == "offline":
            from etude.runtime.offline import OfflineModel

            cache = self._app.settings.home / "cache" / "vocabulary"
            return OfflineModel(self._app.store, resources, run.id, cache, self._app.read_result)
        with self._models_lock:
            if name not in self._models:
                from etude.models.open import open_model

                self._models[name] = open_model(name, self._app.settings)
            return self._models[name]

    def _kept_opening(self, run: Run) -> Opening | None:
        """How the conversation opened: kept with the run, so that it is the same when the run goes on."""
        kept = next((a for a in run.artifacts if a.media == OPENING), None)
        return Opening.model_validate_json(self._app.objects.get(kept.hash)) if kept else None

    def _open_conversation(self, log: RunLog, run: Run, resources: RunResources) -> Opening:
        store, thread_id = self._app.store, run.thread_id or ""
        said = []
        with contextlib.suppress(NotFound):
            said = earlier_messages(store, thread_id, run.id)
        last = last_success(store, thread_id, run.source, run.id)
        opening = open_conversation(resources, said, last, run.text)
        artifact = self._app.objects.put(opening.model_dump_json().encode(), OPENING)
        log.add(ArtifactCreated(artifact=artifact))
        log.commit()
        return opening

    def _resources(self, run: Run, mark: str | None = None, limits: Limits | None = None) -> RunResources:
        app, allowed = self._app, limits or self._app.settings.limits
        only = self._source(run)
        sources = {only.name: only} if only else {name: app.source(name) for name in app.sources()}

        def ask(dataset: str, sql: str, asked: Limits, describe: bool) -> Batches:
            # The source alone: a query of a model joins no source that the person did not name.
            return sources[dataset].query(sql, asked, describe)

        def lend() -> AbstractContextManager[Notebook]:
            if not sources:
                raise NotFound("There is no dataset to open a session on.", hint="Add a source first.")
            source = sources[run.source or next(iter(sources))]
            return self._notebooks.lend(run.thread_id or run.id, source, keep=run.thread_id is not None)

        resources = RunResources(
            names=tuple(sources),
            places={name: self._place(source) for name, source in sources.items()},
            find_catalog=cache(lambda name: self._describe(sources[name], allowed)),
            find_known=lambda name: self._known_tables(sources[name], allowed),
            ask=ask,
            compile=lambda name, plan: app.compile(sources[name], plan),
            notebook=lend,
            limits=allowed,
            scratch=app.scratch,
        )
        return replace(resources, mark=mark) if mark else resources

    def _describe(self, source: Source, limits: Limits) -> Catalog:
        """What a source holds, with what its profile tells where it is known."""
        catalog, profile = source.catalog(limits), self._app.known_profile(source)
        return add_hints(catalog, profile) if profile is not None else catalog

    def _known_tables(self, source: Source, limits: Limits) -> dict[str, KnownTable]:
        """The tables that need not be looked at, for their profile is known."""
        from etude.catalog.knowledge import known_tables

        catalog, profile = source.catalog(limits), self._app.known_profile(source)
        return known_tables(catalog, profile) if profile is not None else {}

    def _place(self, source: Source) -> str:
        granted = source.spec.model_dump_json(exclude={"url"})
        return hashlib.sha256(f"{self._app.tenant}\n{source.url}\n{granted}".encode()).hexdigest()

    def answer_of(self, run: Run) -> Answer:
        """The answer of a run, as far as it is."""
        return make_answer(run, self._app.read_result)

    # -- code

    def _open_direct(
        self, kind: RunKind, code: str, source: str | Source | None, text: str, thread_id: str | None
    ) -> str:
        opened = self._app.source(source) if source is not None else None
        thread = open_thread(self._app.store, thread_id, text, opened.name if opened else None)
        chosen = opened or self._source_of(thread)
        if chosen is None:
            raise Invalid("It is not known where to run this.", hint="Name a dataset.")
        return self._queue(kind, chosen, code, thread.id, text).run_id

    def _answer_directly(self, run_id: str, on_entry: OnEntry | None, control: Control | None) -> Answer:
        self._run_code(run_id, self._app.settings.limits, control, on_entry)
        run = self._app.store.run(run_id)
        if run.status == "succeeded":
            self._say(run, run.answer or (f"{run.result.row_count:,} rows." if run.result else "Done."))
        return self.answer_of(run)

    def start_code(
        self, kind: RunKind, source: str | Source, text: str, limits: Limits, thread_id: str | None = None
    ) -> str:
        """Run SQL, a plan or Python in a thread of its own; the id of its run."""
        if kind not in ("sql", "plan", "python"):
            raise Invalid(f"A run of kind `{kind}` cannot be started so.", hint="Kinds: sql, plan, python, ask.")
        run_id = self._queue(kind, self._app.source(source), text, thread_id).run_id
        self._start(run_id, lambda: self._run_code(run_id, limits))
        return run_id

    def _run_code(
        self, run_id: str, limits: Limits, control: Control | None = None, on_entry: OnEntry | None = None
    ) -> None:
        """Run a queued query or cell; what comes of it is on record."""
        wishes, run = control or Control(), self._app.store.run(run_id)
        log = RunLog(self._storage, run, on_entry)
        with contextlib.suppress(EtudeError), self._living(run_id, wishes):
            log.claim(RunStarted(worker=self._app.store.worker_id))
            run_code(run, self._resources(run, limits=limits).at(log, None, wishes.step), log)
        self._let_go(self._app.store.run(run_id), wishes)

    # -- runs in the background

    def start(self, run_id: str) -> None:
        """Work at a run in a thread of its own."""
        # Looked at now: one that is paused before its thread begins stays so.
        run = self._app.store.run(run_id)
        self._start(run_id, lambda: self._work(run, Control()))

    def _start(self, run_id: str, target: Callable[[], object]) -> None:
        with self._lock:
            self._starting.add(run_id)

        def run() -> None:
            # What went wrong is on the run's record; a conflict means that somebody else took it first.
            try:
                with contextlib.suppress(EtudeError):
                    target()
            finally:
                self._starting.discard(run_id)

        threading.Thread(target=run, name=run_id, daemon=True).start()

    @contextlib.contextmanager
    def _living(self, run_id: str, control: Control) -> Iterator[None]:
        """While the block runs, wishes for the run reach it."""
        live = _Live(control, threading.Event())
        with self._lock:
            if self._closed.is_set():
                raise Conflict("This app is closed.", hint="Open another app.")
            if run_id in self._live:
                raise Conflict(f"Run `{run_id}` is being worked at.")
            self._live[run_id] = live
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="etude-requests", daemon=True)
                self._watcher.start()
        try:
            yield
        finally:
            with self._lock:
                del self._live[run_id]
            live.done.set()

    def _watch(self) -> None:
        """Pass on what other processes request of the runs that live here, while there are any."""
        while not self._closed.wait(LOOK_S):
            with self._lock:
                live = dict(self._live)
                if not live:
                    self._watcher = None
                    return
            for run_id, entry in live.items():
                with contextlib.suppress(EtudeError):
                    match self._app.store.run(run_id).requested:
                        case "pause":
                            entry.control.pause()
                        case "cancel":
                            entry.control.cancel()

    def follow(self, run_id: str, after: int = 0, timeout: float | None = None) -> Iterator[Entry]:
        """The entries of a run as they come, until it has ended, or waits or is paused and nobody works at it."""
        store, news = self._app.store, threading.Event()
        stop = store.subscribe(lambda changed, _: news.set() if changed == run_id else None)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                news.clear()
                busy = run_id in self._starting or run_id in self._live
                for entry in store.entries(run_id, after=after):
                    after = entry.seq
                    yield entry
                run = store.run(run_id)
                over = run.status in ENDED or (run.status in ("waiting", "paused") and not busy)
                left = None if deadline is None else deadline - time.monotonic()
                if (run.seq <= after and over) or (left is not None and left <= 0):
                    return
                news.wait(LOOK_S if left is None else min(LOOK_S, left))
        finally:
            stop()

    # -- what people want of a run

    def pause(self, run_id: str, now: bool = False) -> None:
        """Stop a question before its next move, or in the middle of this one; it keeps its place."""
        kind = self._app.store.run(run_id).kind
        if kind != "ask":
            raise Conflict(f"Run `{run_id}` is {kind}, which has no place to pause at.", hint="Cancel it instead.")
        live = self._live.get(run_id)
        if live is not None:
            live.control.pause(now)
            return
        self._request(run_id, {"queued": RunPaused(by="user"), "running": RunRequested(what="pause")}, "paused")

    def cancel(self, run_id: str) -> None:
        """End a run at once."""
        live = self._live.get(run_id)
        if live is not None:
            live.control.cancel()
            return
        ended = RunCancelled(by="user")
        events: dict[str, Event] = {"queued": ended, "paused": ended, "waiting": ended}
        self._request(run_id, events | {"running": RunRequested(what="cancel")}, "cancelled")

    def steer(self, run_id: str, text: str) -> None:
        """Have the model of a run hear something before its next turn."""
        guided = Guided(text=text)
        statuses = ("queued", "running", "paused", "waiting")
        self._request(run_id, {status: guided for status in statuses}, "steered")

    def interrupt(self, run_id: str, text: str) -> None:
        """Stop what a run does now; its model then hears this."""
        live = self._live.get(run_id)
        if live is None:
            raise Conflict(f"Run `{run_id}` is not being worked at here.", hint="`steer` reaches it in any case.")
        live.control.interrupt(text)

    def answer(self, run_id: str, text: str) -> None:
        """Answer the question that a run waits with; it is then paused until it is started again."""
        self._request(run_id, {"waiting": RunAnswered(text=text, by="user")}, "answered")
        run = self._app.store.run(run_id)
        with contextlib.suppress(NotFound):  # the thread was deleted meanwhile
            if run.thread_id:
                self._app.store.add_message(run.thread_id, "user", text, run_id)

    def _request(self, run_id: str, events: Mapping[str, Event], verb: str) -> None:
        store = self._app.store
        for _ in range(20):
            run = store.run(run_id)
            event = events.get(run.status)
            if event is None:
                raise Conflict(f"Run `{run_id}` is {run.status} and cannot be {verb}.")
            try:
                store.append(run_id, event, expect=run.seq)
                return
            except Conflict:
                time.sleep(0.01)  # it is at work and wrote something meanwhile
        raise Conflict(f"Run `{run_id}` changes too fast to be {verb}.", hint="Try again.")

    def recover(self) -> list[str]:
        """Go on with the questions that lost their process, or that nobody had begun; their ids."""
        store = self._app.store
        store.recover()
        lost = [run_id for run_id in self._listed("queued") if run_id not in self._live]
        lost += [i for i in self._listed("paused") if store.run(i).paused_by in ("recovery", "shutdown", "answer")]
        for run_id in lost:
            self.start(run_id)
        return lost

    def _listed(self, status: Literal["queued", "paused"]) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = self._app.store.runs(RunFilter(status=status, kind="ask"), limit=200, cursor=cursor)
            found += [summary.id for summary in page.items]
            cursor = page.next
            if cursor is None:
                return found

    def close(self) -> None:
        """Pause what is being worked at and end the sessions."""
        with self._lock:
            self._closed.set()
            live = list(self._live.values())
        for entry in live:
            entry.control.pause(now=True, by="shutdown")
        for entry in live:
            entry.done.wait(5)
        self._notebooks.close()
        for model in self._models.values():
            model.close()


def parse_direct(text: str) -> tuple[Literal["sql", "python"], str] | None:
    """The code of a message that begins with `SQL:` or `PYTHON:`; None for any other."""
    found = _DIRECT.match(text)
    if found is None:
        return None
    code = text[found.end() :].strip()
    if not code:
        raise Invalid(f"There is nothing after `{found.group().strip()}`.", hint="Write the code behind it.")
    return ("sql" if found.group(1).lower() == "sql" else "python"), code
