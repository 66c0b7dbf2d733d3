"""The scripts of an app: compiled from runs that worked, found by the same question, and replayed."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation
from etude.entities import Run, RunFilter
from etude.errors import Cancelled, Conflict, EtudeError, Invalid, NotFound
from etude.events import Event, ReplayDecided, RunFinished, ScriptCompiled
from etude.ids import new_id
from etude.limits import lower_limits
from etude.offline.follow_up import is_no_follow_up
from etude.playbook import apply_playbook_definitions
from etude.replays.asked_question import AskedQuestion, question_likeness, read_question_units
from etude.replays.cells import NoSlice, SlicedCells, slice_run_cells
from etude.replays.fingerprint import annotations_fingerprint, result_fingerprint
from etude.replays.guards import check_guards
from etude.replays.mutants import MutantReport, find_guards_by_mutants
from etude.replays.replay_execution import ReplayExecution, Stopped
from etude.replays.script import Script
from etude.replays.script_compiler import (
    Compiled,
    Material,
    NotCompiled,
    check_script_compilable,
    compile_script_of_run,
)
from etude.replays.script_file import write_script_file
from etude.runtime.thread import earlier_thread_messages, fork_thread, thread_runs
from etude.store.scripts import ScriptUse, State, StoredScript, StoredScripts

if TYPE_CHECKING:
    from etude.app import App
    from etude.replays.differences import Difference
    from etude.result import Result
    from etude.runtime.run_log import RunLog
    from etude.runtime.tool_context import ToolResources
    from etude.sources.source import Source

PYTHON = "text/x-python"
ANSWERED = ("replay", "repair", "patch")
"""The levels at which a script answered."""
NEAR = 0.6
"""Questions that share at least this part of their words are offered as similar."""
LOOKED_AT = 100
"""How many scripts of a source are compared with a question that has none."""
COMPILE_S = 20.0
"""How long a question waits for the script that is being compiled for it."""
CLOSE_S = 60.0
MINE_S = 5.0
"""How long the mutants of one script may take."""
LEAVE_S = 0.5
"""How long they may still take when the app closes, as after one question on the command line."""
LEAST_SHADOWED = 0.02
"""The least share of questions that are also answered afresh in shadow mode."""

_log = logging.getLogger("etude.replays")


class ScriptLibrary:
    """The scripts of one tenant. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.stored = StoredScripts(app.store)
        self._lock = threading.Lock()
        self._compiling: dict[str, Future[None]] = {}
        """By the form of the question: done once its script can be found."""
        self._jobs: set[Future[None]] = set()
        self._closing = threading.Event()
        self._closed_at = 0.0
        self._pool: ThreadPoolExecutor | None = None
        self._shadows: dict[str, tuple[Script, str]] = {}
        """By the run that answers afresh: the script that ran beside it, and the fingerprint of its result."""

    # -- finding and replaying

    def answer(
        self, run: Run, source: Source | None, resources: Callable[[], ToolResources], log: RunLog, cancel: Cancellation
    ) -> RunFinished | None:
        """Return the end of a run that a script answered; None if it must be answered afresh. The log says why."""
        if self._app.settings.replay == "off" or run.params.get("fresh") or run.steps or source is None:
            return None
        started = time.perf_counter()
        try:
            return self._answer(run, source, resources, log, cancel, started)
        except Cancelled:
            raise
        except Exception as error:  # a defect here must never fail a run that a model can answer
            _log.exception("a script could not be replayed")
            log.add(ReplayDecided(level="scratch", cause="defect", reason=f"Replay failed: {type(error).__name__}."))
            return None

    def _answer(
        self,
        run: Run,
        source: Source,
        resources: Callable[[], ToolResources],
        log: RunLog,
        cancel: Cancellation,
        started: float,
    ) -> RunFinished | None:
        asked = self.asked(run, source)
        found = self._find(asked)
        moved = False
        if isinstance(found, ReplayDecided):
            elsewhere = self._find_moved(asked, source)
            if elsewhere is None:
                log.add(self._with_example(found, run.text, source.name))
                return None
            found, moved = elsewhere, True
        script, values = found
        execution = ReplayExecution(self._app, script, source, resources(), log, cancel)
        if self._app.settings.replay == "shadow" and self._is_shadowed(script.id):
            self._run_shadow(run, execution, values)
            return None
        repaired: dict[str, Any] = {}
        try:
            end, guards = self._try(execution, run, values)
        except Stopped as stopped:
            log.add(self._stopped(script, run, stopped))
            try:
                end, guards = self._patch(execution, run, values, stopped)
            except Stopped as still:
                if still is not stopped:
                    log.add(self._stopped(script, run, still))
                return None
            reason = f"{stopped.reason} A model corrected the step."
            repaired = {"level": "patch", "cause": stopped.cause, "reason": reason, "tokens": execution.tokens}
        texts = execution.repair.texts if execution.repair else ()
        if moved and not repaired:
            texts = (f"The data of `{source.name}` moved.", *texts)
            self._keep_moved(script, asked, run)
        if texts:
            cause = "schema" if execution.repair else "moved"
            repaired = {"level": "repair", "cause": cause, "reason": " ".join(texts)}
        elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
        changed = {p.name: values[p.name] for p in script.parameters if values[p.name] != p.default}
        decided = {"level": "replay", **repaired}
        log.add(
            _decided(
                script,
                guards=guards,
                elapsed_ms=elapsed_ms,
                tokens_saved=max(script.tokens - execution.tokens, 0),
                reading=execution.reading(values),
                parameters=changed,
                **decided,
            )
        )
        self.stored.use(script.id, run.id, decided["level"])
        tried = script.mutants
        if execution.unchanged and not tried.reason and (not tried.of or tried.tried < tried.of):
            self._submit(lambda: self._mine_more(script.id, source))
        return end

    def _mine_more(self, script_id: str, source: Source) -> None:
        """Try the mutants that an earlier process had no time for."""
        try:
            self.mine(self.script(script_id), source)
        except Exception:
            _log.exception("the mutants of %s could not be tried", script_id)

    def _try(self, execution: ReplayExecution, run: Run, values: dict[str, str]) -> tuple[RunFinished, int]:
        try:
            return execution.answer(run, values)
        except Stopped as stopped:
            if not stopped.again:
                raise
        return execution.answer(run, values)

    def _stopped(self, script: Script, run: Run, stopped: Stopped) -> ReplayDecided:
        self.stored.use(script.id, run.id, "example")
        return _decided(script, "example", cause=stopped.cause, reason=stopped.reason, guards=stopped.guards)

    def _patch(
        self, execution: ReplayExecution, run: Run, values: dict[str, str], stopped: Stopped
    ) -> tuple[RunFinished, int]:
        if run.model in (None, "offline"):
            raise stopped
        try:
            return execution.patch(self._app.open_model(run.model), values, stopped)
        except Cancelled:
            raise
        except EtudeError:
            raise stopped from None  # the model cannot be reached: the run itself finds that out

    def _is_shadowed(self, script_id: str) -> bool:
        """Return whether a fresh run should check a script: always at first, then ever less often."""
        uses = len(self.stored.uses(script_id))
        return random.random() < max(1 / (uses + 1), LEAST_SHADOWED)  # noqa: S311 - a sample, no secret

    def _run_shadow(self, run: Run, execution: ReplayExecution, values: dict[str, str]) -> None:
        """Run a script beside a fresh run; `learn` compares both."""
        with contextlib.suppress(Stopped, EtudeError):
            self._shadows[run.id] = (execution.script, execution.rehearse(run, values))

    def _compare_shadow(self, run: Run) -> None:
        """Compare a fresh run with the script that ran beside it; suspend the script if they differ."""
        shadow = self._shadows.pop(run.id, None)
        if shadow is None or run.result is None or run.result_artifact is None:
            return
        script, mark = shadow
        fresh = result_fingerprint(self._app.read_result(run.result, run.result_artifact, run.id), ordered=False)
        agrees = fresh == mark
        reason = "" if agrees else f"{run.id} gave another result on the same data."
        self._note(run.id, _decided(script, "shadow", agrees=agrees, reason=reason))
        self.stored.use(script.id, run.id, "shadow")
        if not agrees:
            self.stored.change(script.id, "suspended", reason)

    def would_answer(self, question: str, source: Source, model: str = "offline") -> bool:
        """Return whether a script fits a question that starts a conversation. Its guards are not checked."""
        defined = self._defined(question, source)
        asked = AskedQuestion(
            self._app.source_fingerprint(source), model, read_question_units(question), defined=defined
        )
        return not isinstance(self._find(asked), ReplayDecided)

    def asked(self, run: Run, source: Source) -> AskedQuestion:
        """Return the question of a run with everything that its meaning depends on."""
        earlier: list[str] = []
        if run.thread_id is not None:
            with contextlib.suppress(EtudeError):
                messages = earlier_thread_messages(self._app.store, run.thread_id, run.id)
                earlier = [
                    " ".join(u.text for u in read_question_units(m.text)) for m in messages if m.role != "assistant"
                ]
            # Cells and queries of a conversation need not be messages, but variables of its session are left by them.
            others = self._app.store.runs(RunFilter(thread_id=run.thread_id, until=run.created_at), limit=200).items
            earlier += [other.text for other in others if other.id != run.id and other.kind != "ask"]
            if set(earlier) == {" ".join(u.text for u in read_question_units(run.text))}:
                earlier = []  # the same question again and again, as an agent asks it, means the same each time
        place, grants = self._app.source_fingerprint(source), self._app.source_fingerprint(source, anywhere=True)
        defined = self._defined(run.text, source)
        if run.model == "offline" and not defined and is_no_follow_up(run.text):
            earlier = []  # the rules read it as they would read a first question
        return AskedQuestion(
            place, run.model or "offline", read_question_units(run.text), tuple(earlier), grants, defined
        )

    def _defined(self, question: str, source: Source) -> tuple[str, ...]:
        """Return what playbooks say about words of a question: a script made with other meanings is another one."""
        _, used = apply_playbook_definitions(question, self._app.playbooks.definitions(source.name))
        return tuple(f"{d.phrase} means {d.meaning}" for d in used)

    def _find(self, asked: AskedQuestion) -> tuple[Script, dict[str, str]] | ReplayDecided:
        """Return the script for a question with the values of its parameters, or why there is none."""
        keys = dict(asked.keys())
        self._await(asked.form())
        found = self.stored.find(list(keys))
        if not found:
            return ReplayDecided(level="scratch", cause="no script", reason="No script answers this question.")
        fitting = []
        for stored in found:
            script = Script.model_validate_json(stored.body)
            values = {p.name: asked.units[p.position].value for p in script.parameters}
            if keys[stored.key] == {p.position for p in script.parameters}:
                fitting.append((script, values))
        same = [f for f in fitting if all(f[1][p.name] == p.default for p in f[0].parameters)]
        if same or len(fitting) == 1:
            return (same or fitting)[0]
        reason = "Several scripts fit the question with other values, so none is chosen."
        return ReplayDecided(level="scratch", cause="ambiguous", reason=reason)

    def _find_moved(self, asked: AskedQuestion, source: Source) -> tuple[Script, dict[str, str]] | None:
        """Return the script for this very question on the same source, if the source has left its old place."""
        for script_id, question in self.stored.questions(source.name, LOOKED_AT):
            if read_question_units(question) != asked.units:
                continue
            stored = self.stored.get(script_id)
            script = Script.model_validate_json(stored.body)
            gone = source.named if script.location is None else not Path(script.location).exists()
            if stored.state == "active" and script.key_anywhere == asked.key_anywhere() and gone:
                return script, {p.name: p.default for p in script.parameters}
        return None

    def _keep_moved(self, script: Script, asked: AskedQuestion, run: Run) -> None:
        """Store a script for the new place of its data, where it answers from now on."""
        key = asked.key(frozenset(p.position for p in script.parameters))
        update = {"id": new_id("script"), "key": key, "location": run.location, "parent": script.id}
        self._store(script.model_copy(update=update), script.run_id, "")

    def _await(self, form: str) -> None:
        with self._lock:
            compiling = self._compiling.get(form)
        if compiling is not None:
            with contextlib.suppress(Exception):
                compiling.result(COMPILE_S)

    def _with_example(self, miss: ReplayDecided, question: str, source: str) -> ReplayDecided:
        """Return the miss with a similar script, if there is one: it may help a model, it never answers."""
        near = self.similar(question, source)
        if near is None:
            return miss
        # A question is not suggested for itself: it was answered under another meaning, or by another model.
        other = near[1] if question_likeness(question, near[1]) < 1 else ""
        return miss.model_copy(update={"level": "example", "script": near[0], "similar": other})

    def similar(self, question: str, source: str) -> tuple[str, str] | None:
        """Return the id and the question of the script whose question is most like this one, if any is alike."""
        known = self.stored.questions(source, LOOKED_AT)
        best = max(known, key=lambda k: question_likeness(question, k[1]), default=None)
        return best if best is not None and question_likeness(question, best[1]) >= NEAR else None

    def script(self, script_or_run: str) -> Script:
        """Return a stored script by its id, or by the id of its run."""
        return Script.model_validate_json(self.stored.get(script_or_run).body)

    def find_of_run(self, run_id: str) -> Script | None:
        """Return the newest script that was compiled from a run, if any."""
        with contextlib.suppress(NotFound):
            return self.script(run_id)
        return None

    def withdraw(self, script_or_run: str, reason: str = "") -> tuple[StoredScript, Sequence[ScriptUse]]:
        """Let a script answer nothing from now on; return it and the runs that it answered.

        Others that would answer its question instead, with a value of it as a parameter, are withdrawn with it.
        """
        stored = self.stored.get(script_or_run)
        scripts = self._that_answer_like(stored)
        for script_id in scripts:
            self.stored.change(script_id, "withdrawn", reason or "A person withdrew it.")
        uses = [use for script_id in scripts for use in self.stored.uses(script_id) if use.level in ANSWERED]
        return self.stored.get(stored.id), sorted(uses, key=lambda use: (use.at, use.run_id))

    def suspend(self, run: Run, reason: str) -> list[str]:
        """Let no script give the answer of a run again, because it is wrong; return those that would have.

        That is the script that answered it, the one that was compiled from it, and others that fit their questions.
        """
        found = [run.replay.script] if run.replay and run.replay.level in ANSWERED and run.replay.script else []
        active: dict[str, None] = {}
        for script in (*found, run.id):
            with contextlib.suppress(NotFound):
                like = self._that_answer_like(self.stored.get(script)).values()
                active |= {each.id: None for each in like if each.state == "active"}
        for script_id in active:
            self.stored.change(script_id, "suspended", reason)
        return list(active)

    def _that_answer_like(self, stored: StoredScript) -> dict[str, StoredScript]:
        """Return a script, and the active ones that would answer its question instead, by their ids."""
        run = self._app.store.run(stored.run_id)
        keys = [stored.key]
        with contextlib.suppress(EtudeError):  # the source may be gone
            keys += dict(self.asked(run, self._app.source(run.location or stored.source)).keys())
        return {each.id: each for each in (stored, *self.stored.find(keys))}

    def recheck(self, run_id: str) -> Difference:
        """Ask the question of a run afresh, after the same earlier questions, and say whether the answer differs."""
        store = self._app.store
        run = store.run(run_id)
        source = run.location or run.source
        if run.kind != "ask" or source is None:
            raise Invalid(f"Run `{run_id}` is not a question on a source.", hint="Only such answers can be checked.")
        thread_id = None
        with contextlib.suppress(NotFound):
            before = earlier_thread_messages(store, run.thread_id or "", run.id)
            if before:
                thread_id = fork_thread(store, run.thread_id or "", before[-1].seq).id
        fresh = self._app.ask(source, run.text, model=run.model, thread_id=thread_id, fresh=True)
        return self._app.compare_runs(run_id, fresh.require().run_id)

    # -- learning

    def learn(self, run: Run, source: Source | None) -> None:
        """Compile the script of a run that succeeded, in the background; note the descriptions it may have used."""
        if (
            source is not None
            and run.kind == "ask"
            and (notes := annotations_fingerprint(self._app.annotations(source)))
        ):
            self.stored.use(f"description:{source.name}", run.id, notes)
        if source is None or self._app.settings.replay == "off" or run.kind != "ask" or run.status != "succeeded":
            return
        if run.replay is not None and run.replay.level in ("replay", "repair"):
            return  # what a model corrected is compiled, so that it need not correct it again
        if self._closing.is_set():
            return
        form, stored = self.asked(run, source).form(), Future[None]()
        with self._lock:
            self._compiling[form] = stored
        self._submit(lambda: self._learn(run.id, source, form, stored))

    def _submit(self, work: Callable[[], None]) -> None:
        """Do something in the background, after everything that was begun before it; nothing if the app is closing."""
        with self._lock:
            if self._closing.is_set():
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="etude-compile")
            job = self._pool.submit(work)
            self._jobs.add(job)
        job.add_done_callback(self._forget)

    def _forget(self, job: Future[None]) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _learn(self, run_id: str, source: Source, form: str, stored: Future[None]) -> None:
        try:
            self._compare_shadow(self._app.store.run(run_id))
            self.compile(run_id, source, lambda: stored.set_result(None))
        except Exception:
            _log.warning("run %s could not be compiled", run_id, exc_info=bool(os.environ.get("ETUDE_DEBUG")))
        finally:
            with self._lock:
                if self._compiling.get(form) is stored:
                    del self._compiling[form]
            if not stored.done():
                stored.set_result(None)

    def compile(self, run_id: str, source: Source, on_stored: Callable[[], None] = lambda: None) -> Compiled | None:
        """Compile a run now and store its script; the run's record says what came of it.

        `on_stored` is called as soon as the script can answer; after that, mutants of the data may add guards to it.
        """
        started = time.perf_counter()
        run = self._app.store.run(run_id)
        try:
            check_script_compilable(run)
            compiled = self.draft(run, source)
        except (NotCompiled, NoSlice, EtudeError) as error:
            self._note(run_id, ScriptCompiled(replayable=False, reason=str(error), elapsed_ms=_ms(started)))
            return None
        script = compiled.script
        wrong = self._known_wrong(script)
        if wrong and not compiled.reason:
            compiled = Compiled(script, wrong)
        self._store(script, run.id, compiled.reason, "suspended" if wrong else "example")
        if not compiled.reason and self.stored.is_reported_wrong(run.id):
            # The verdict came while the script was compiled, and found none to suspend.
            compiled = Compiled(script, "A person says that the answer is wrong.")
            self.stored.change(script.id, "suspended", compiled.reason)
        on_stored()
        if not compiled.reason:
            script = self.mine(script, source)
        artifact = self._app.objects.put(write_script_file(script).encode(), PYTHON)
        self._note(
            run_id,
            ScriptCompiled(
                script=script.id,
                artifact=artifact,
                steps=len(script.steps),
                of_steps=script.of_steps,
                guards=len(script.guards) + len(script.shapes),
                mutants=script.mutants.sentence,
                parameters=tuple(p.name for p in script.parameters),
                replayable=not compiled.reason,
                reason=compiled.reason,
                elapsed_ms=_ms(started),
            ),
        )
        return Compiled(script, compiled.reason)

    def _store(self, script: Script, run_id: str, reason: str, otherwise: State = "example") -> None:
        """Add a script; with a reason why it may not answer, only as an example, or as something else."""
        self.stored.add(
            StoredScript(
                id=script.id,
                key=script.key,
                source=script.source,
                run_id=run_id,
                question=script.question,
                state=otherwise if reason else "active",
                reason=reason,
                created_at=script.asked_at,
                body=script.model_dump_json(),
            )
        )

    def _known_wrong(self, script: Script) -> str:
        """Return why a script must not answer: the same code gave a wrong answer before. Empty if it may."""
        for stored in self.stored.suspended(script.key):
            if _code_of(Script.model_validate_json(stored.body)) == _code_of(script):
                return f"The same code was suspended before ({stored.id}): {stored.reason}"
        return ""

    def mine(self, script: Script, source: Source) -> Script:
        """Try the guards of a script on mutants of its data, until time is up; return it with the guards it lacked."""
        until = time.monotonic() + MINE_S

        def more_time() -> bool:
            return time.monotonic() < (min(until, self._closed_at + LEAVE_S) if self._closing.is_set() else until)

        if not more_time():
            return script
        resources = self._app.resources_for(self._app.store.run(script.run_id), source)
        limits = lower_limits(resources.limits, {"timeout_s": MINE_S})

        def query(sql: str) -> Sequence[Sequence[Any]]:
            return replace(resources, limits=limits).query_unrecorded(source.name, sql, Cancellation()).rows()

        try:
            catalog = source.catalog(self._app.settings.limits)
            if check_guards(script.guards, script.dialect, query) is not None:
                return script  # the data changed since the script was compiled
            added, report = find_guards_by_mutants(
                script.queries,
                catalog,
                script.shapes,
                script.guards,
                query,
                more_time,
                script.mutants,
            )
        except EtudeError as error:
            added, report = (), MutantReport(reason=error.message)
        mined = script.model_copy(update={"guards": (*script.guards, *added), "mutants": report})
        self.stored.rewrite(mined.id, mined.model_dump_json())
        return mined

    def draft(self, run: Run, source: Source) -> Compiled:
        """Return the script of a run without storing it."""
        app = self._app
        resources = app.resources_for(run, source)

        def query(sql: str) -> Sequence[Sequence[Any]]:
            return resources.query_unrecorded(source.name, sql, Cancellation()).rows()

        return compile_script_of_run(
            run,
            Material(
                asked=self.asked(run, source),
                catalog=source.catalog(app.settings.limits),
                query=query,
                read=app.read_result,
                objects=app.objects,
                notes=annotations_fingerprint(app.annotations(source)),
                slice_cells=lambda run, shown: self._slice(run, shown, source),
            ),
        )

    def _slice(self, run: Run, shown: frozenset[str], source: Source) -> SlicedCells:
        """Return the cells behind the shown ones."""
        store, earlier = self._app.store, []
        if run.thread_id is not None:
            before = itertools.takewhile(lambda i: i != run.id, thread_runs(store, run.thread_id))
            earlier = [store.run(run_id) for run_id in before]
        tables: dict[str, Result] = {}
        for step in run.steps:
            if step.kind == "tool" and step.result is not None and step.artifact is not None:
                table = self._app.read_result(step.result, step.artifact, run.id)
                tables |= {cell.id: table for cell in run.steps if cell.kind == "python" and cell.parent == step.id}
        with self._app.open_session(source, alone=True, record=True) as notebook:
            sliced = slice_run_cells([*earlier, run], shown, notebook, self._app.objects, tables)
        return replace(sliced, follows=any(step.kind == "python" for each in earlier for step in each.steps))

    def _note(self, run_id: str, event: Event) -> None:
        """Add an event to a run that has ended."""
        for _ in range(5):
            with contextlib.suppress(Conflict):
                self._app.store.append(run_id, event, expect=self._app.store.run(run_id).seq)
                return

    def settle(self) -> None:
        """Wait until all scripts that were begun are compiled and their mutants tried."""
        while True:
            with self._lock:
                jobs = list(self._jobs)
            if not jobs:
                return
            for job in jobs:
                with contextlib.suppress(Exception):
                    job.result(CLOSE_S)

    def close(self) -> None:
        """Finish the scripts that were begun. Mutants that were not tried yet are left for the next use."""
        with self._lock:
            self._closed_at = time.monotonic()
            self._closing.set()
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def _code_of(script: Script) -> list[tuple[str, str]]:
    return [(step.kind, step.code) for step in script.steps]


def _decided(script: Script, level: Any = "replay", **more: Any) -> ReplayDecided:
    return ReplayDecided(level=level, script=script.id, origin=script.run_id, origin_at=script.asked_at, **more)


def _ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
