"""The desk: takes questions, has runs worked at in threads of their own, and passes on what people want of them."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from etude.entities import ENDED, Artifact, Budget, Limits, Run, RunFilter, RunKind, Step
from etude.errors import Conflict, EtudeError, Invalid, NotFound, NotUnderstood, problem
from etude.events import (
    ArtifactCreated,
    Entry,
    Event,
    Guided,
    RunAnswered,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunQueued,
    RunRequested,
    RunResumed,
    RunStarted,
)
from etude.models.base import Model
from etude.result import Result
from etude.runtime.answer import Answer, Conclusion, last_table, make_answer
from etude.runtime.chart import choose_chart
from etude.runtime.control import Control
from etude.runtime.loop import Agent, work
from etude.runtime.notebook import as_problem
from etude.runtime.prompt import OPENING, UTTERANCES, open_conversation
from etude.runtime.query import Ledger, Query, RunLog, run_step
from etude.runtime.thread import earlier_messages, last_success, open_thread
from etude.runtime.workbench import Workbench, data_mark

if TYPE_CHECKING:
    from etude.app import App
    from etude.models.base import Utterance
    from etude.runtime.notebook import Notebook
    from etude.sources.pool import Answer as Batches
    from etude.sources.source import Source
    from etude.tools.base import Tool

TOOLS = ("list_datasets", "get_dataset_schema", "execute_sql", "execute_query_plan", "execute_python", "ask_user")
NOTEBOOKS = 16
"""Sessions of threads that stay open; one that is evicted comes back from its record."""
LOOK_S = 0.25
"""How often requests of other processes are looked for."""
_DIRECT = re.compile(r"\s*(SQL|PYTHON):", re.IGNORECASE)
OnEntry = Callable[[Entry], None]


@dataclass(frozen=True)
class _Live:
    control: Control
    done: threading.Event


class Desk:
    """Where runs of an app are worked at. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._models: dict[str, Model] = {}
        self._sources: dict[str, Source] = {}
        self._notebooks: OrderedDict[tuple[str, str], Notebook] = OrderedDict()
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def at_work(self) -> int:
        """How many runs are being worked at here."""
        return len(self._live)

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self._app.store, self._app.objects)

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
            return self._answer_directly(*direct, source, question, thread_id, on_entry, control)
        run_id = self.open(source, question, model=model, thread_id=thread_id, budget=budget)
        return self.answer_of(self.work(run_id, control=control, on_entry=on_entry))

    def _answer_directly(
        self,
        kind: Literal["sql", "python"],
        code: str,
        source: str | Source | None,
        text: str,
        thread_id: str | None,
        on_entry: OnEntry | None,
        control: Control | None,
    ) -> Answer:
        thread = open_thread(self._app.store, thread_id, text, self._app.source(source).name if source else None)
        chosen = source or thread.source
        if chosen is None:
            raise Invalid("It is not known where to run this.", hint="Name a dataset.")
        opened = self._sources.get(chosen) if isinstance(chosen, str) else None
        log = self._queue(kind, opened or self._app.source(chosen), code, thread.id, on_entry)
        self._app.store.add_message(thread.id, "user", text, log.run_id)
        self._perform(log, opened or self._app.source(chosen), self._app.settings.limits, control)
        run = self._app.store.run(log.run_id)
        if run.status == "succeeded":
            said = run.answer or (f"{run.result.row_count:,} rows." if run.result else "Done.")
            self._app.store.add_message(thread.id, "assistant", said, run.id)
        return replace(self.answer_of(run), code=code, text=run.answer or "")

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
        store = self._app.store
        opened = self._app.source(source) if source is not None else None
        chosen = self._register(model)
        thread = open_thread(store, thread_id, question, opened.name if opened else None)
        log = RunLog(self._ledger)
        queued = RunQueued(
            kind="ask",
            text=question,
            source=opened.name if opened else thread.source,
            location=self._keep(opened) if opened else None,
            thread_id=thread.id,
            model=chosen,
            budget=budget or self._app.settings.budget,
        )
        log.add(queued)
        log.commit()
        store.add_message(thread.id, "user", question, log.run_id)
        return log.run_id

    def _keep(self, source: Source) -> str | None:
        """Remember a source that has no registered name; where it is, if that holds no secret."""
        if source.name in self._app.sources():
            return None
        self._sources[source.name] = source
        return None if source.network else source.url

    def _source(self, run: Run) -> Source | None:
        if run.source is None:
            return None
        return self._sources.get(run.source) or self._app.source(run.location or run.source)

    def _register(self, model: str | Model | None) -> str:
        if isinstance(model, Model):
            self._models[model.name] = model
            return model.name
        return model or self._app.settings.model

    def work(self, run_id: str, *, control: Control | None = None, on_entry: OnEntry | None = None) -> Run:
        """Work at a run that is queued or paused, in this thread, until it ends, waits or is paused."""
        run = self._app.store.run(run_id)
        if run.status not in ("queued", "paused"):
            raise Conflict(f"Run `{run_id}` is {run.status}.", hint="Only a queued or paused run can be worked at.")
        log = RunLog(self._ledger, run, on_entry)
        worker = self._app.store.worker_id
        log.add(RunStarted(worker=worker) if run.status == "queued" else RunResumed(worker=worker))
        with self._living(run_id, control or Control()) as live:
            log.commit()
            try:
                agent = self._agent(log, live)
            except EtudeError as error:
                log.add(RunFailed(error=problem(error)))
                log.commit()
                return log.run
            ended = work(agent, log)
        self._tell(ended)
        return ended

    def _tell(self, run: Run) -> None:
        """Say in the thread what came of the run."""
        match run.status:
            case "succeeded":
                text = run.answer
            case "waiting":
                text = run.question
            case "failed" if run.error and run.error["code"] == NotUnderstood.code:
                text = run.error["detail"]
            case _:
                text = None
        if text and run.thread_id:
            with contextlib.suppress(NotFound):  # the thread was deleted meanwhile
                self._app.store.add_message(run.thread_id, "assistant", text, run.id)

    def _agent(self, log: RunLog, control: Control) -> Agent:
        run = log.run
        only = self._source(run)
        sources = {only.name: only} if only else {name: self._app.source(name) for name in self._app.sources()}
        workbench = self._workbench(run, sources)
        return Agent(
            model=self._model(run, workbench),
            tools=self._tools(),
            opening=self._opening(log, run, workbench),
            budget=run.budget or Budget(),
            control=control,
            workbench=workbench,
            conclude=Conclusion(
                objects=self._app.objects,
                read=self._read_step,
                choose_chart=choose_chart,
                corrects=run.model != "offline",
            ),
        )

    def _tools(self) -> Mapping[str, Tool]:
        from etude import plugins

        return {name: plugins.load("tool", name)() for name in TOOLS}

    def _model(self, run: Run, workbench: Workbench) -> Model:
        name = run.model or "offline"
        if name == "offline":
            from etude.runtime.offline import OfflineModel

            return OfflineModel(self._app.store, workbench, run.id, self._app.settings.home / "cache", self._read_table)
        with self._lock:
            if name not in self._models:
                from etude.models.open import open_model

                self._models[name] = open_model(name, self._app.settings)
            return self._models[name]

    def _opening(self, log: RunLog, run: Run, workbench: Workbench) -> tuple[Utterance, ...]:
        """How the conversation opened: kept with the run, so that it is the same when the run goes on."""
        for artifact in run.artifacts:
            if artifact.media == OPENING:
                return UTTERANCES.validate_json(self._app.objects.get(artifact.hash))
        store, thread_id = self._app.store, run.thread_id or ""
        opening = open_conversation(
            data_mark(run.id),
            [workbench.find_catalog(name) for name in workbench.names],
            earlier_messages(store, thread_id, run.id),
            last_success(store, thread_id, run.source, run.id),
            run.text,
        )
        log.add(ArtifactCreated(artifact=self._app.objects.put(UTTERANCES.dump_json(opening), OPENING)))
        log.commit()
        return opening

    def _workbench(self, run: Run, sources: Mapping[str, Source]) -> Workbench:
        app, limits = self._app, self._app.settings.limits

        def ask(dataset: str, sql: str, asked: Limits, describe: bool) -> Batches:
            # The source alone: a query of a model joins no source that the person did not name.
            return sources[dataset].query(sql, asked, describe)

        def open_notebook() -> Notebook:
            if not sources:
                raise NotFound("There is no dataset to open a session on.", hint="Add a source first.")
            return self.notebook(run.thread_id or run.id, sources[run.source or next(iter(sources))])

        return Workbench(
            names=tuple(sources),
            find_catalog=lambda name: sources[name].catalog(limits),
            ask=ask,
            compile=lambda name, plan: app.compile(sources[name], plan),
            notebook=open_notebook,
            limits=limits,
            scratch=app.scratch,
        )

    def notebook(self, thread_id: str, source: Source) -> Notebook:
        """The session of a thread; one that is not open is brought back from what the thread ran before."""
        key = (thread_id, source.name)
        with self._lock:
            found = self._notebooks.get(key)
            if found is None:
                found = self._app.open_session(source, thread_id=thread_id, alone=True, record=True)
                self._notebooks[key] = found
            self._notebooks.move_to_end(key)
            while len(self._notebooks) > NOTEBOOKS:
                self._notebooks.popitem(last=False)[1].close()
        return found

    def _read_step(self, run: Run, step: Step) -> Result:
        assert step.result is not None and step.artifact is not None  # noqa: S101 - the caller chose such a step
        return self._app.read_result(step.result, step.artifact, run.id)

    def _read_table(self, run: Run) -> Result | None:
        step = last_table(run)
        return self._read_step(run, step) if step else None

    def _read_answer(self, run: Run, artifact: Artifact) -> Result:
        assert run.result is not None  # noqa: S101 - the caller looked
        return self._app.read_result(run.result, artifact, run.id)

    def answer_of(self, run: Run) -> Answer:
        """The answer of a run, as far as it is."""
        return make_answer(run, self._read_answer)

    # -- runs in the background

    def start(self, run_id: str) -> None:
        """Work at a run in a thread of its own."""
        threading.Thread(target=self._work_quietly, args=(run_id,), name=run_id, daemon=True).start()

    def _work_quietly(self, run_id: str) -> None:
        # What went wrong is on the run's record; a conflict means that somebody else took it first.
        with contextlib.suppress(EtudeError):
            self.work(run_id)

    def start_code(
        self, kind: RunKind, source: str | Source, text: str, limits: Limits, thread_id: str | None = None
    ) -> str:
        """Run SQL, a plan or Python in a thread of its own; the id of its run."""
        if kind not in ("sql", "plan", "python"):
            raise Invalid(f"A run of kind `{kind}` cannot be started so.", hint="Kinds: sql, plan, python, ask.")
        opened = self._app.source(source)
        log = self._queue(kind, opened, text, thread_id)
        threading.Thread(target=self._perform, args=(log, opened, limits), name=log.run_id, daemon=True).start()
        return log.run_id

    def _queue(
        self, kind: RunKind, source: Source, text: str, thread_id: str | None, on_entry: OnEntry | None = None
    ) -> RunLog:
        log = RunLog(self._ledger, on_entry=on_entry)
        log.add(RunQueued(kind=kind, text=text, source=source.name, thread_id=thread_id))
        log.commit()
        return log

    def _perform(self, log: RunLog, source: Source, limits: Limits, control: Control | None = None) -> None:
        """Run a queued query or cell; what comes of it is on record."""
        run = log.run
        with contextlib.suppress(EtudeError), self._living(run.id, control or Control()) as live, log.closing():
            log.add(RunStarted(worker=self._app.store.worker_id))
            if run.kind == "python":
                log.add(self._run_cell(log, run, source, live))
            else:
                log.add(self._run_query(log, run, source, limits, live))

    def _run_query(self, log: RunLog, run: Run, source: Source, limits: Limits, control: Control) -> RunFinished:
        query = Query(source.name, run.text, None, limits)
        if run.kind == "plan":
            parsed, sql = self._app.compile(source, run.text)
            body = parsed.model_dump(mode="json", exclude_none=True, by_alias=True)
            query = Query(source.name, sql, source.catalog(limits).dialect, limits, kind="plan", plan=body)
        with contextlib.ExitStack() as stack:

            def ask(describe: bool) -> Batches:
                answer = source.query(query.sql, query.limits, describe)
                stack.enter_context(control.step.stopping(answer.cancel))
                return answer

            result, artifact = run_step(query, ask, log, self._app.scratch)
        return RunFinished(result=result.info, artifact=artifact, code=query.sql)

    def _run_cell(self, log: RunLog, run: Run, source: Source, control: Control) -> Event:
        notebook = self.notebook(run.thread_id or run.id, source)
        with control.step.stopping(notebook.interrupt):
            cell = notebook.execute(run.text, log=log)
        if cell.ok:
            return RunFinished(answer=cell.text or None, code=run.text)
        return RunCancelled(by=control.by) if cell.outcome == "interrupted" else RunFailed(error=as_problem(cell))

    @contextlib.contextmanager
    def _living(self, run_id: str, control: Control) -> Iterator[Control]:
        """While the block runs, wishes for the run reach it."""
        live = _Live(control, threading.Event())
        with self._lock:
            if run_id in self._live:
                raise Conflict(f"Run `{run_id}` is being worked at.")
            self._live[run_id] = live
            if self._watcher is None or not self._watcher.is_alive():
                self._watcher = threading.Thread(target=self._watch, name="etude-requests", daemon=True)
                self._watcher.start()
        try:
            yield control
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

    # -- what people want of a run

    def pause(self, run_id: str, now: bool = False) -> None:
        """Stop a run before its next move, or in the middle of this one; it keeps its place."""
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
        """Answer the question that a run waits with; it is then paused until it is resumed."""
        self._request(run_id, {"waiting": RunAnswered(text=text, by="user")}, "answered")
        run = self._app.store.run(run_id)
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

    def follow(self, run_id: str, after: int = 0, timeout: float | None = None) -> Iterator[Entry]:
        """The entries of a run as they come, until it has ended, waits or is paused."""
        store, news = self._app.store, threading.Event()
        stop = store.subscribe(lambda changed, _: news.set() if changed == run_id else None)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                news.clear()
                for entry in store.entries(run_id, after=after):
                    after = entry.seq
                    yield entry
                run = store.run(run_id)
                if run.seq <= after and (run.status in ENDED or run.status in ("waiting", "paused")):
                    return
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                news.wait(LOOK_S if left is None else min(LOOK_S, left))
        finally:
            stop()

    def recover(self) -> list[str]:
        """Go on with the runs that lost their process; their ids."""
        self._app.store.recover()
        page = self._app.store.runs(RunFilter(status="paused", kind="ask"), limit=500)
        lost = [s.id for s in page.items if self._app.store.run(s.id).paused_by in ("recovery", "shutdown")]
        for run_id in lost:
            self.start(run_id)
        return lost

    def close(self) -> None:
        """Pause what is being worked at and end the sessions."""
        self._closed.set()
        with self._lock:
            live = list(self._live.values())
        for entry in live:
            entry.control.pause(now=True, by="shutdown")
        for entry in live:
            entry.done.wait(5)
        with self._lock:
            notebooks, self._notebooks = self._notebooks, OrderedDict()
        for notebook in notebooks.values():
            notebook.close()
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
