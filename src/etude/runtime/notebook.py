"""A recorded session on a source: each cell is a run, each query in it a step whose result is kept.

The record is enough to bring the session back: its cells run again in a fresh interpreter, and their queries are
answered from the kept results. So variables survive a kill, an eviction and a restart.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal, Self

from etude.cancellation import Cancellation
from etude.entities import Outcome, Run, Step
from etude.errors import Invalid, Refused, problem
from etude.events import (
    INTERRUPTED,
    ArtifactCreated,
    Note,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunQueued,
    RunStarted,
    StepFinished,
    StepStarted,
)
from etude.ids import new_id
from etude.runtime.broker import CellQuery, DataBroker, SourceAccess
from etude.runtime.code import describe_code_output
from etude.runtime.failed_step import failed_step, step_error_key
from etude.runtime.query import CELL
from etude.runtime.run_log import RunLog, RunStorage
from etude.runtime.saved_files import SavedFiles
from etude.runtime.standalone_script import write_standalone_script
from etude.runtime.thread import thread_runs
from etude.sessions.base import Cell, Output, drop_old_displays
from etude.sessions.code_policy import Policy, check_code_policy
from etude.sessions.session import Session

HISTORY = 32
"""How many cells keep their value, displays and output. Older ones keep code, outcome and text."""
_COLUMN_BYTES = 500
"""About the memory that the description of a column of a result takes."""
_MISSING = 500
"""The most characters of an error that a note about a missing variable quotes."""
COMPLETE_S = 2.0
"""Seconds after which completion gives up, because a person is waiting at a prompt."""
_OUTCOMES: dict[str, Outcome] = {
    "ok": "ok",
    "error": "error",
    "interrupted": "cancelled",
    "timeout": "limit",
    "killed": "limit",
    "refused": "refused",
}


@dataclass
class _Recorded:
    """A cell that ran, with everything needed to run it again."""

    code: str
    ok: bool
    calls: list[CellQuery] = field(default_factory=list)
    elapsed_ms: float = 0.0

    def __post_init__(self) -> None:
        self.bytes = sys.getsizeof(self.code) + sum(map(_query_bytes, self.calls))
        """About the memory that it takes."""


def _query_bytes(call: CellQuery) -> int:
    columns = len(call.info.columns) if call.info is not None else 0
    kept = json.dumps((call.params, call.problem), default=str) if call.params or call.problem else ""
    return sys.getsizeof(call.sql) + len(kept) + _COLUMN_BYTES * (columns + 1)


HoldSlot = Callable[[Callable[[], None]], AbstractContextManager[object]]
"""Returns a block that begins when a cell may run. While it waits, it calls the given function, which may raise."""


def _go_on() -> None:
    """Keep waiting."""


class Notebook:
    """A recorded session. It runs one cell at a time; `interrupt` may be called from any thread."""

    def __init__(
        self,
        open_session: Callable[[Any], Session],
        access: SourceAccess | None,
        storage: RunStorage | None,
        policy: Policy | None,
        thread_id: str | None = None,
        seed: int = 0,
        hold_slot: HoldSlot | None = None,
        remember: bool = True,
    ) -> None:
        self.id = new_id("session")
        self._hold_slot: HoldSlot = hold_slot or (lambda _: contextlib.nullcontext())
        self._remembers = remember
        """Whether the history has the contents of cells. A server, which reads them nowhere, has many sessions open."""
        self.thread_id = thread_id
        self._policy = policy
        self._storage = storage
        self._seed = seed
        self._data = DataBroker(access, storage)
        self._access = access
        self._turn = threading.RLock()
        self._cells: list[_Recorded] = []
        self._known: Counter[str] = Counter()
        """How many cells of each run of the thread are in this session."""
        self._heads: dict[str, int] = {}
        """How far each run of the thread had come when its cells were last counted."""
        self._missing: list[str] = []
        """Notes for the next cell: what could not be brought back."""
        self.history: list[Cell] = []
        self.on_close: Callable[[], None] | None = None
        """Called when the session closes: it may own the app that was opened for it."""
        self._session = open_session(self._data)
        if thread_id is not None and storage is not None:
            loaded = _load_cells(storage, thread_id)
            self._cells = [recorded for _, recorded in loaded]
            self._known.update(run_id for run_id, _ in loaded)
            try:
                self.revive()
            except BaseException:
                self._session.close()
                raise

    @property
    def files(self) -> SavedFiles:
        """The files that `etude.save` wrote and `etude.load` reads. A reset keeps them."""
        return self._data.files

    @property
    def alive(self) -> bool:
        """Whether the interpreter is still running."""
        return self._session.alive

    def memory_bytes(self) -> int:
        """Return the memory that the interpreter, the processes that it started and the host take for the session.

        The host keeps the displays of its cells, and their code and queries, to bring the variables back.
        """
        displays = sum(len(display.data) for cell in list(self.history) for display in cell.display)
        recorded = sum(cell.bytes for cell in list(self._cells))
        return self._session.memory_bytes() + displays + recorded

    @property
    def isolation(self) -> dict[str, Any]:
        """How the session is isolated."""
        return self._session.isolation

    def execute(
        self,
        code: str,
        *,
        wall_s: float | None = None,
        on_output: Callable[[Output], None] | None = None,
        log: RunLog | None = None,
        parent: str | None = None,
        cancel: Cancellation | None = None,
    ) -> Cell:
        """Run a cell and record it. Its errors are in the cell.

        With the `log` of an open run, the cell is a step of that run, below the step `parent`, instead of a run of its
        own: its start is committed before it begins, its end with the log's next commit. `cancel` interrupts only this
        cell; if it comes before the cell begins, it raises.
        """
        if wall_s is not None and not wall_s > 0:
            raise Invalid(f"A cell cannot run for {wall_s:g} seconds.", hint="Give a number above 0, or leave it out.")
        with self._taking_turns(cancel), self._hold_slot(cancel.check if cancel else _go_on):
            if self.thread_id is not None and not self.alive:
                self._bring_back(cancel)  # the variables of a thread outlive its interpreter
            return self._execute(code, wall_s, on_output, log, parent, cancel)

    @contextlib.contextmanager
    def _taking_turns(self, cancel: Cancellation | None) -> Iterator[None]:
        while not self._turn.acquire(timeout=0.1):
            if cancel is not None:
                cancel.check()
        try:
            yield
        finally:
            self._turn.release()

    def _execute(
        self,
        code: str,
        wall_s: float | None,
        on_output: Callable[[Output], None] | None,
        log: RunLog | None,
        parent: str | None,
        cancel: Cancellation | None,
    ) -> Cell:
        own = log is None
        log = self._begin(code) if log is None else self._begin_step(log, code, parent)
        try:
            if self._policy is not None:
                check_code_policy(code, self._policy)
        except Refused as refusal:
            cell = _refused(len(self.history) + 1, code, refusal)
        else:
            self._data.log, self._data.cancelled = log, False
            number, started = len(self.history) + 1, time.perf_counter()
            try:
                cell = self._session.execute(code, number=number, wall_s=wall_s, on_output=on_output, cancel=cancel)
            except BaseException as error:
                self._break_off(log, own, error, (time.perf_counter() - started) * 1000)
                raise
        if self._missing:
            cell = replace(cell, notes=(*self._missing, *cell.notes))
            self._missing = []
        self._remember(cell)
        calls = self._data.settle(log)
        if cell.outcome in ("ok", "error"):
            # A cell that was stopped or killed would be stopped again, so its variables are not brought back.
            self._cells.append(_Recorded(code, cell.ok, calls, cell.elapsed_ms))
            if log is not None:
                self._known[log.run_id] += 1
        if log is not None:
            self._end_step(log, cell)
            if own:
                self._end(log, cell)
        return cell

    def _begin(self, code: str) -> RunLog | None:
        if self._storage is None:
            return None
        log = RunLog(self._storage)
        log.add(
            RunQueued(
                kind="python",
                text=code,
                source=self._source,
                location=self._access.location if self._access else None,
                thread_id=self.thread_id,
            ),
            RunStarted(worker=self._storage.store.worker_id),
        )
        return self._begin_step(log, code, None)

    def _begin_step(self, log: RunLog, code: str, parent: str | None) -> RunLog:
        self._data.step_id = new_id("step")
        log.add(
            StepStarted(
                step_id=self._data.step_id,
                kind="python",
                code=code,
                source=self._source,
                parent=parent,
                seed=self._seed,
                params={"session": self.id, "cell": len(self.history) + 1},
            )
        )
        log.commit()
        return log

    @property
    def _source(self) -> str | None:
        return self._access.name if self._access else None

    def _break_off(self, log: RunLog | None, own: bool, error: BaseException, elapsed_ms: float) -> None:
        """End the record of a cell without an outcome: no sandbox could be opened, or the host was stopped."""
        self._data.settle(log)
        if log is None:
            return
        log.add(failed_step(self._data.step_id, error, round(elapsed_ms, 3)))
        if own:
            with contextlib.suppress(type(error)), log.closing():
                raise error

    def _remember(self, cell: Cell) -> None:
        """Keep the cell. Old cells lose their values and displays, which can be large."""
        if not self._remembers:
            self.history.append(Cell(cell.id, "", cell.outcome, elapsed_ms=cell.elapsed_ms))
            return
        self.history.append(cell)
        if len(self.history) > HISTORY:
            old = len(self.history) - HISTORY - 1
            self.history[old] = self.history[old].without_contents()
        if cell.display:
            drop_old_displays(self.history)

    def _end_step(self, log: RunLog, cell: Cell) -> None:
        shown = {"stdout": cell.stdout, "stderr": cell.stderr, "text": cell.text, "error": cell.error}
        body = json.dumps({"outcome": cell.outcome, "notes": cell.notes} | shown).encode()
        artifact = log.objects.put(body, CELL)
        error = None if cell.ok else notebook_cell_as_problem(cell)
        log.add(
            ArtifactCreated(artifact=artifact, step_id=self._data.step_id),
            StepFinished(
                step_id=self._data.step_id,
                outcome=_OUTCOMES[cell.outcome],
                artifact=artifact,
                error=error,
                error_key=step_error_key(error) if error else None,
                elapsed_ms=round(cell.elapsed_ms, 3),
            ),
            *(Note(text=note, step_id=self._data.step_id) for note in cell.notes),
        )

    def _end(self, log: RunLog, cell: Cell) -> None:
        if cell.ok:
            log.add(RunFinished(answer=describe_code_output(cell, stored=False) or None))
        else:
            log.add(
                RunCancelled() if cell.outcome == "interrupted" else RunFailed(error=notebook_cell_as_problem(cell))
            )
        log.commit()

    def interrupt(self) -> None:
        """Stop the running cell and the query it waits for. Names that it has set stay."""
        self._session.interrupt()

    def reset(self) -> None:
        """Start over with a fresh interpreter and an empty history; a running cell ends first."""
        with self._turn:
            self._session.reset()
            self.history.clear()
            self._cells.clear()
            self._missing.clear()

    def revive(self) -> None:
        """Bring the variables back: run the recorded cells again, with the recorded results of their queries.

        If one fails that did not fail before, the notes of the next cell say so.
        """
        with self._turn:
            self._bring_back(None)

    def _bring_back(self, cancel: Cancellation | None) -> None:
        self._session.reset()
        self.history.clear()
        self._missing.clear()
        self._data.begin_replay()
        try:
            for recorded in self._cells:
                self._data.replay_cell(recorded.calls)
                # A cell that was given more time needs it again.
                wall_s = max(self._session.limits.wall_s, 3 * recorded.elapsed_ms / 1000)
                cell = self._session.execute(recorded.code, wall_s=wall_s, cancel=cancel)
                self._remember(cell)
                if recorded.ok and not cell.ok:
                    self._missing.append(_describe_missing(cell, self.alive))
        except BaseException:
            self._session.reset()  # half of the variables would mislead: the next cell tries again from the start
            raise
        finally:
            self._data.replay_cell(None)

    def rehearse(self, cells: Sequence[tuple[str, Sequence[CellQuery]]]) -> list[Cell]:
        """Run cells in a fresh interpreter with the recorded results of their queries, and record nothing."""
        with self._turn:
            self._session.reset()
            self._data.begin_replay()
            try:
                done = []
                for code, calls in cells:
                    self._data.replay_cell(calls)
                    done.append(self._session.execute(code))
                return done
            finally:
                self._data.replay_cell(None)

    def is_behind(self) -> bool:
        """Whether cells of the thread were recorded that did not run in this session."""
        if self.thread_id is None or self._storage is None:
            return False
        store = self._storage.store
        for run_id, seq in store.heads(thread_runs(store, self.thread_id)).items():
            if self._heads.get(run_id) == seq:
                continue
            if sum(1 for _ in _recorded(store.run(run_id))) > self._known[run_id]:
                return True
            self._heads[run_id] = seq
        return False

    def complete(self, text: str) -> list[str]:
        """Return completions of a name, for a prompt. This leaves no trace in the history or among the names."""
        if not self.alive:
            return []
        code = (
            f"__import__('sys').modules['etude.sessions.kernel'].print_completions_in_session({text!r}, {COMPLETE_S})"
        )
        cell = self._session.execute(code, number=len(self.history) + 1)
        return cell.stdout.split("\n") if cell.ok and cell.stdout else []

    def script(self, failed: Literal["omit", "comment"] = "omit") -> str:
        """Return the executed cells as one file that runs alone; `$ETUDE_SOURCE` names its source."""
        return write_standalone_script(self.history, failed)

    def close(self) -> None:
        """End the interpreter, and delete the tables that it registered and its copies of the files that it saved."""
        self._session.close()
        self._data.close()
        if self._access is not None and self._access.frames is not None:
            self._access.frames.close()
        if self.on_close is not None:
            self.on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _load_cells(storage: RunStorage, thread_id: str) -> list[tuple[str, _Recorded]]:
    """Return the cells of a thread with their runs, oldest first: cells that were runs, and steps of questions."""
    runs = (storage.store.run(run_id) for run_id in thread_runs(storage.store, thread_id))
    found = sorted((r for run in runs for r in _recorded(run)), key=itemgetter(0))
    return [(run_id, recorded) for (_, run_id, _), recorded in found]


def notebook_cell_queries(run: Run, cell: Step) -> list[CellQuery]:
    """Return the recorded queries of a cell, to answer them again."""
    asked = (s for s in run.steps if s.kind == "sql" and s.parent == cell.id)
    return [
        CellQuery(s.code, s.result, s.artifact, s.error, s.params.get("values"))
        for s in asked
        if s.result is not None or s.error
    ]


def _recorded(run: Run) -> Iterator[tuple[tuple[datetime, str, int], _Recorded]]:
    """Yield the cells of a run that can run again, each with a key to order them by time."""
    for position, cell in enumerate(run.steps):
        # A cell that was cut off when its process ended is run again by the worker that continues the run.
        if cell.kind == "python" and cell.outcome in ("ok", "error") and cell.error_key != INTERRUPTED:
            calls = notebook_cell_queries(run, cell)
            yield (
                (cell.started_at, run.id, position),
                _Recorded(cell.code, cell.outcome == "ok", calls, cell.elapsed_ms or 0.0),
            )


def _describe_missing(cell: Cell, alive: bool) -> str:
    lost = "what it set is missing" if alive else "what it and those before it set is missing"
    return (
        f"The session was brought back, but cell {cell.id} failed this time "
        f"({notebook_cell_as_problem(cell)['detail'][:_MISSING]}): {lost}."
    )


def _refused(number: int, code: str, refusal: Refused) -> Cell:
    body = problem(refusal)
    shown = {"type": "Refused", "message": refusal.message, "traceback": "", "line": body.get("line"), "problem": body}
    return Cell(id=number, code=code, outcome="refused", error=shown, notes=(refusal.hint,))


def notebook_cell_as_problem(cell: Cell) -> dict[str, Any]:
    """Return why a cell failed, in the shape of `errors.problem`."""
    error = cell.error or {}
    inner = error.get("problem")
    if isinstance(inner, dict):
        return inner
    detail = ": ".join(filter(None, (error.get("type", "Error"), error.get("message"))))
    return {
        "type": "urn:etude:error:cell",
        "title": "The cell failed",
        "code": f"cell_{cell.outcome}",
        "detail": detail,
    }


def describe_notebook_cell(cell: Cell) -> dict[str, Any]:
    """Return a cell as JSON, as `etude py --json` prints it."""
    shown = {k: v for k, v in asdict(cell).items() if k not in ("display", "value")}
    return shown | {"ok": cell.ok, "display": [d.media for d in cell.display]}
