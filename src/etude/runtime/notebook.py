"""A session on a source, recorded: each cell is a run, each query in it a step with its result kept.

What was recorded is enough to bring the session back: its cells run again in a fresh interpreter, and their queries
are answered from the kept results, so that variables survive a kill, an eviction and a restart.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import threading
import time
import tokenize
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal, Self

from etude import wire
from etude.cancellation import Cancellation
from etude.database import check_file_name
from etude.entities import Artifact, Catalog, Limits, Outcome, ResultInfo, Run
from etude.errors import Cancelled, EtudeError, Invalid, LimitExceeded, NotFound, Refused, from_problem, problem
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
from etude.runtime.query import (
    PARQUET,
    Ledger,
    Query,
    RunLog,
    describe_answer,
    error_key,
    failed_step,
    finished_step,
    started_step,
    truncation_note,
)
from etude.runtime.thread import thread_runs
from etude.sessions.base import Cell, Output, let_go_of_displays
from etude.sessions.policy import Policy, check_policy
from etude.sessions.session import Session
from etude.sources.pool import Answer
from etude.spool import write_parquet

CELL = "application/vnd.etude.cell+json"
HISTORY = 32
"""Cells that keep their value, displays and output; of older ones the code, the outcome and the text stay."""
HELD = 256 << 20
"""Bytes of results that may wait for the end of their cell."""
OPEN = 128
"""Descriptors of results that may wait for the end of their cell; past that, what the session has is kept at once."""
FILES = 64
"""Files that a session may hand out."""
FILE_BYTES = 256 << 20
"""Bytes of them together."""
SAVES = 1000
"""How often it may hand out a file, each time kept as an artifact."""
_MEDIA = {
    "json": "application/json",
    "html": "text/html",
    "py": "text/x-python",
    "csv": "text/csv",
    "md": "text/markdown",
}
PREAMBLE = "import etude\n\ndb = etude.connect()\n"
_OUTCOMES: dict[str, Outcome] = {
    "ok": "ok",
    "error": "error",
    "interrupted": "cancelled",
    "timeout": "limit",
    "killed": "limit",
    "refused": "refused",
}


@dataclass(frozen=True)
class Access:
    """The one way from a session to data: how to ask the source, and what it holds."""

    name: str
    ask: Callable[[str, Limits], Answer]
    catalog: Callable[[], Catalog]
    limits: Limits
    annotations: Callable[[], dict[str, Any]] = dict
    """What people say of its tables."""
    keep: bool = True
    """Whether the results of queries are kept. Without them a session cannot be brought back."""


@dataclass
class _Call:
    """A query of a cell: what was asked, and where its result is, or why there is none."""

    sql: str
    info: ResultInfo | None = None
    artifact: Artifact | None = None
    problem: dict[str, Any] | None = None


@dataclass
class _Done:
    """A query of the running cell that was answered: its result in shared memory, until it is kept."""

    step_id: str
    call: _Call
    answer: Answer
    fds: list[int]
    elapsed_ms: float
    served: bool = False
    """Whether the session has all of it."""

    def __post_init__(self) -> None:
        self.size = sum(os.fstat(fd).st_size for fd in self.fds)


@dataclass
class _Recorded:
    """A cell that ran, as reviving needs it."""

    code: str
    calls: list[_Call] = field(default_factory=list)
    elapsed_ms: float = 0.0


class Notebook:
    """A session with a source behind it. One cell at a time; `interrupt` from any thread."""

    def __init__(
        self,
        open_session: Callable[[Any], Session],
        access: Access | None,
        ledger: Ledger | None,
        policy: Policy | None,
        thread_id: str | None = None,
        seed: int = 0,
    ) -> None:
        self.id = new_id("session")
        self.thread_id = thread_id
        self._policy = policy
        self._ledger = ledger
        self._seed = seed
        self._data = _DataBroker(access, ledger)
        self._access = access
        self._turn = threading.RLock()
        self._cells: list[_Recorded] = []
        self.history: list[Cell] = []
        self.on_close: Callable[[], None] | None = None
        """What else ends with the session: the app that was opened for it alone."""
        self._session = open_session(self._data)
        if thread_id is not None and ledger is not None:
            self._cells = _load_cells(ledger, thread_id)
            try:
                self.revive()
            except BaseException:
                self._session.close()
                raise

    @property
    def files(self) -> dict[str, bytes]:
        """What `etude.save` handed out, and what `etude.load` finds; a reset leaves it."""
        return self._data.files

    @property
    def isolation(self) -> dict[str, Any]:
        """What confines the session."""
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

        With the `log` of an open run the cell is a step of that run, below the step `parent`, and no run of its own:
        its start is on record before it begins, its end waits for the log's commit. `cancel` interrupts this cell and
        no other; it raises where it comes before the cell begins.
        """
        with self._taking_turns(cancel):
            if self.thread_id is not None and not self._session.alive:
                self._bring_back(cancel)  # a thread's variables survive the end of its interpreter
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
                check_policy(code, self._policy)
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
        self._remember(cell)
        calls = self._data.settle(log)
        if cell.outcome in ("ok", "error"):
            # A cell that was stopped or killed would do the same again; what it had set is not brought back.
            self._cells.append(_Recorded(code, calls, cell.elapsed_ms))
        if log is not None:
            self._end_step(log, cell)
            if own:
                self._end(log, cell)
        return cell

    def _begin(self, code: str) -> RunLog | None:
        if self._ledger is None:
            return None
        log = RunLog(self._ledger)
        log.add(
            RunQueued(kind="python", text=code, source=self._source, thread_id=self.thread_id),
            RunStarted(worker=self._ledger.store.worker_id),
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
        """End the record of a cell that has no outcome: there was no sandbox to run it in, or the host was stopped."""
        self._data.settle(log)
        if log is None:
            return
        log.add(failed_step(self._data.step_id, error, round(elapsed_ms, 3)))
        if own:
            with contextlib.suppress(type(error)), log.closing():
                raise error

    def _remember(self, cell: Cell) -> None:
        """Keep the cell; of one that is long past only what tells how it went, for values and displays can be large."""
        self.history.append(cell)
        if len(self.history) > HISTORY:
            old = len(self.history) - HISTORY - 1
            self.history[old] = self.history[old].without_contents()
        if cell.display:
            let_go_of_displays(self.history)

    def _end_step(self, log: RunLog, cell: Cell) -> None:
        shown = {"stdout": cell.stdout, "stderr": cell.stderr, "text": cell.text, "error": cell.error}
        body = json.dumps({"outcome": cell.outcome, "notes": cell.notes} | shown).encode()
        artifact = log.objects.put(body, CELL)
        error = None if cell.ok else as_problem(cell)
        log.add(
            ArtifactCreated(artifact=artifact, step_id=self._data.step_id),
            StepFinished(
                step_id=self._data.step_id,
                outcome=_OUTCOMES[cell.outcome],
                artifact=artifact,
                error=error,
                error_key=error_key(error) if error else None,
                elapsed_ms=round(cell.elapsed_ms, 3),
            ),
            *(Note(text=note, step_id=self._data.step_id) for note in cell.notes),
        )

    def _end(self, log: RunLog, cell: Cell) -> None:
        if cell.ok:
            log.add(RunFinished(answer=cell.text or None))
        else:
            log.add(RunCancelled() if cell.outcome == "interrupted" else RunFailed(error=as_problem(cell)))
        log.commit()

    def interrupt(self) -> None:
        """Stop the running cell, and the query it waits for; the names it has set stay."""
        self._session.interrupt()

    def reset(self) -> None:
        """Start over with a fresh interpreter and an empty history; a running cell ends first."""
        with self._turn:
            self._session.reset()
            self.history.clear()
            self._cells.clear()

    def revive(self) -> None:
        """Bring the variables back: run the recorded cells again, with the recorded results of their queries."""
        with self._turn:
            self._bring_back(None)

    def _bring_back(self, cancel: Cancellation | None) -> None:
        self._session.reset()
        self.history.clear()
        try:
            for recorded in self._cells:
                self._data.replay = deque(recorded.calls)
                # One that was given more time than others needs it again.
                wall_s = max(self._session.limits.wall_s, 3 * recorded.elapsed_ms / 1000)
                self._remember(self._session.execute(recorded.code, wall_s=wall_s, cancel=cancel))
        except BaseException:
            self._session.reset()  # half of the variables are none: the next cell begins with this again
            raise
        finally:
            self._data.replay = None

    def complete(self, text: str) -> list[str]:
        """What a name that begins so could be, for a prompt; it leaves no trace in the history or among the names."""
        names = f"filter(None, (complete({text!r}, i) for i in range(200)))"
        code = (
            f"(lambda complete: __import__('sys').stdout.write('\\n'.join({names})))"
            "(__import__('rlcompleter').Completer(globals()).complete);"
        )
        cell = self._session.execute(code, number=len(self.history) + 1, wall_s=2)
        return cell.stdout.split("\n") if cell.ok and cell.stdout else []

    def script(self, failed: Literal["omit", "comment"] = "omit") -> str:
        """The executed cells as one file that runs alone, with `$ETUDE_SOURCE` naming the source."""
        if failed not in ("omit", "comment"):
            raise Invalid(f"`failed={failed!r}` is not known.", hint="Give 'omit' or 'comment'.")
        parts = [PREAMBLE]
        for cell in self.history:
            if cell.ok:
                parts.append(_as_statements(cell) + "\n")
            elif failed == "comment":
                lines = [f"# cell {cell.id} did not run to its end ({cell.outcome})", *cell.code.splitlines()]
                parts.append("\n".join([lines[0], *(f"# {line}".rstrip() for line in lines[1:])]) + "\n")
        return "\n".join(parts)

    def close(self) -> None:
        """End the interpreter."""
        self._session.close()
        if self.on_close is not None:
            self.on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _DataBroker:
    """Answers a session's requests: through the guard and its limits, onto the record, into shared memory."""

    def __init__(self, access: Access | None, ledger: Ledger | None) -> None:
        self._access = access
        self._ledger = ledger
        self._answer: Answer | None = None
        self._done: dict[int, _Done] = {}
        self._held = 0
        self._calls: list[_Call] = []
        self._saving: dict[str, bytearray] = {}
        self._saves = 0
        self.files: dict[str, bytes] = {}
        self.log: RunLog | None = None
        self.step_id = ""
        self.replay: deque[_Call] | None = None
        self.cancelled = False
        """Whether the running cell was interrupted: a query that it starts after that is cancelled as well."""

    def answer(self, request: dict[str, Any], left_s: float) -> tuple[dict[str, Any], int | None]:
        match request.get("method"):
            case "save":
                return self._save(request), None
            case "load":
                return self._load(request.get("name"))
            case _:
                return self._answer_source(request, left_s)

    def _answer_source(self, request: dict[str, Any], left_s: float) -> tuple[dict[str, Any], int | None]:
        if self._access is None:
            raise Invalid("This session has no source.", hint="Open it with one.")
        match request.get("method"):
            case "catalog":
                return {"catalog": self._access.catalog().model_dump(mode="json")}, None
            case "annotations":
                return {"annotations": self._access.annotations()}, None
            case "sql":
                sql = request.get("query")
                if not isinstance(sql, str):
                    raise Invalid("A query is text.", hint="db.sql('SELECT ...')")
                if self.replay is not None:
                    return self._again(sql)
                return self._sql(self._access, sql, request.get("limits") or {}, left_s)
            case "part":
                return self._part(request.get("result"), request.get("index"))
            case other:
                raise Invalid(f"`{other}` is not something a session can ask for.", hint="Ask for sql or catalog.")

    def cancel(self) -> None:
        self.cancelled = True
        if self._answer is not None:
            self._answer.cancel()

    def _save(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take a piece of a file; with its last one the file is there."""
        name, piece = check_file_name(request.get("name")), request.get("data")
        try:
            data = base64.b64decode(piece, validate=True) if isinstance(piece, str) else None
        except ValueError:
            data = None
        if data is None:
            raise Invalid(f"The content of `{name}` is no bytes.", hint="etude.save(name, text or bytes)")
        # A first piece begins anew, for the cell that sent others may have been interrupted.
        whole = self._saving[name] = self._saving.get(name, bytearray()) if request.get("goes_on") else bytearray()
        whole += data
        used = sum(map(len, self._saving.values())) + sum(len(f) for n, f in self.files.items() if n != name)
        # What a cell does again when variables come back was counted the first time.
        count, saves = len(self.files.keys() | self._saving.keys()), self._saves + (self.replay is None)
        for limit, spent, allowed in (
            ("files", count, FILES),
            ("bytes of files", used, FILE_BYTES),
            ("saves", saves, SAVES),
        ):
            if spent > allowed:
                del self._saving[name]
                raise LimitExceeded(
                    f"A session hands out no more than {allowed:,} {limit}.",
                    hint="Save fewer or smaller ones.",
                    limit=limit,
                )
        if not request.get("more"):
            self._saves = saves
            self.files[name] = bytes(self._saving.pop(name))
            self._record_file(name)
        return {}

    def _record_file(self, name: str) -> None:
        if self.log is not None and self.replay is None:
            media = _MEDIA.get(name.rpartition(".")[2], "application/octet-stream")
            artifact = self.log.objects.put(self.files[name], media)
            self.log.add(ArtifactCreated(artifact=artifact, step_id=self.step_id))

    def _load(self, name: object) -> tuple[dict[str, Any], int | None]:
        data = self.files.get(check_file_name(name))
        if data is None:
            raise NotFound(f"There is no file `{name}` here.", hint="etude.save makes one.")
        # Shared memory cannot be empty.
        return ({"size": len(data)}, wire.share(data)) if data else ({}, None)

    def _sql(self, access: Access, sql: str, given: dict[str, Any], left_s: float) -> tuple[dict[str, Any], int]:
        limits = _lower(access.limits, given)
        step_id, started = new_id("step"), time.perf_counter()
        if self.log is not None:
            self.log.add(started_step(step_id, Query(access.name, sql, None, limits), self.step_id))
            self.log.commit()
        # No longer than the cell may: while the host waits for the source, nobody looks at the cell's time.
        within = limits.model_copy(update={"timeout_s": min(limits.timeout_s, max(left_s, 0.001))})
        try:
            self._answer = access.ask(sql, within)
            if self.cancelled:
                self._answer.cancel()
            fds, schema = take_shared(self._answer)
        except BaseException as error:
            if isinstance(error, LimitExceeded) and error.details.get("limit") == "timeout_s" and within != limits:
                error = _out_of_time()
            if isinstance(error, KeyboardInterrupt):
                error = Cancelled("The query was cancelled.")
            if self.log is not None:
                self.log.add(failed_step(step_id, error, (time.perf_counter() - started) * 1000))
            self._calls.append(_Call(sql, problem=problem(error)))
            raise error from None
        finally:
            answer, self._answer = self._answer, None
        assert answer is not None  # noqa: S101 - for the type checker: it was set where this is reached
        info = describe_answer(answer, schema)
        self._calls.append(_Call(sql, info))
        number = len(self._calls)
        elapsed_ms = (time.perf_counter() - started) * 1000
        self._done[number] = _Done(step_id, self._calls[-1], answer, fds, elapsed_ms)
        self._held += self._done[number].size
        head = {
            "info": info.model_dump(mode="json"),
            "parts": len(fds),
            "result": number,
            "elapsed_ms": answer.end["elapsed_ms"],
            "run_id": self.log.run_id if self.log else None,
            "notes": truncation_note(info, limits),
        }
        first, fd = self._part(number, 0)
        if sum(len(d.fds) for d in self._done.values()) > OPEN or self._held > HELD:
            self._keep(self.log, [n for n, d in self._done.items() if d.served])
        return head | first, fd

    def _part(self, number: object, index: object) -> tuple[dict[str, Any], int]:
        """One part of the result of a query of this cell."""
        done = self._done.get(number) if isinstance(number, int) else None
        if done is None or not isinstance(index, int) or not 0 <= index < len(done.fds):
            raise Invalid("There is no such part of a result.", hint="Run the query again.")
        done.served = done.served or index == len(done.fds) - 1
        fd = os.dup(done.fds[index])
        return {"size": os.fstat(fd).st_size}, fd

    def _again(self, sql: str) -> tuple[dict[str, Any], int]:
        """The recorded result of a query that a cell asks for again."""
        assert self.replay is not None  # noqa: S101 - for the type checker
        for position, call in enumerate(self.replay):
            if call.sql != sql:
                continue  # it may still be asked for: threads take turns as they come
            if call.problem is not None:
                del self.replay[position]
                raise from_problem(call.problem)
            if call.info is not None and call.artifact is not None and self._ledger is not None:
                del self.replay[position]
                fd = to_shared(_read(self._ledger, call.artifact))
                head = {"info": call.info.model_dump(mode="json"), "size": os.fstat(fd).st_size, "elapsed_ms": 0.0}
                return head | {"parts": 1, "result": 0}, fd
        raise Invalid("This query was not recorded when the cell ran.", hint="Run the cell again.")

    def settle(self, log: RunLog | None) -> list[_Call]:
        """Keep the results of the cell's queries, now that nobody waits for them."""
        self._keep(log, list(self._done))
        calls, self._calls = self._calls, []
        self.log = None
        return calls

    def _keep(self, log: RunLog | None, numbers: list[int]) -> None:
        for number in numbers:
            done = self._done.pop(number)
            self._held -= done.size
            keep = self._access is None or self._access.keep
            if log is None or not keep:
                for fd in done.fds:
                    os.close(fd)
            if log is None:
                continue
            if keep:
                done.call.artifact = _keep_result(log, done)
            artifact, info = done.call.artifact, done.call.info
            assert info is not None  # noqa: S101 - for the type checker: it has a result
            source = self._access.name if self._access else ""
            elapsed_ms = round(done.elapsed_ms, 3)
            log.add(finished_step(done.step_id, source, info, done.answer, artifact, elapsed_ms))


def _keep_result(log: RunLog, done: _Done) -> Artifact:
    import pyarrow as pa

    batches = _map(done.fds)
    sink = pa.BufferOutputStream()
    write_parquet(sink, batches[0].schema, batches)
    artifact = log.objects.put(bytes(sink.getvalue()), PARQUET)
    log.add(ArtifactCreated(artifact=artifact, step_id=done.step_id))
    return artifact


def take_shared(answer: Answer) -> tuple[list[int], Any]:
    """A result as it came, its parts in sealed shared memory, each an Arrow stream: descriptors, and the schema."""
    parts: list[int | bytes] = []
    answer.parts = parts
    schema = None
    try:
        for batch in answer.batches:
            schema = schema or batch.schema
        for position, part in enumerate(parts):
            if isinstance(part, bytes):
                parts[position] = wire.share(part)
    except BaseException:
        for part in parts:
            if isinstance(part, int):
                os.close(part)
        with contextlib.suppress(EtudeError, AttributeError):
            answer.batches.close()  # type: ignore[attr-defined]
        raise
    return [part for part in parts if isinstance(part, int)], schema


def to_shared(batches: Iterator[Any]) -> int:
    """Arrow batches as one stream in sealed shared memory."""
    import pyarrow as pa

    fd = wire.shared_file()
    if fd is None:
        raise Invalid("This system has no shared memory for results.", hint="Sessions need Linux.")
    try:
        with open(fd, "wb", buffering=0, closefd=False) as file, pa.PythonFile(file, "w") as out:
            first = next(batches)
            with pa.ipc.new_stream(out, first.schema) as writer:
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch)
        wire.seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _map(fds: list[int]) -> list[Any]:
    """The batches in shared memory; the descriptors are closed."""
    import pyarrow as pa

    mapped = [pa.py_buffer(wire.map_sealed(fd, os.fstat(fd).st_size)) for fd in fds]
    return [batch for part in mapped for batch in pa.ipc.open_stream(part)]


def _read(ledger: Ledger, artifact: Artifact) -> Iterator[Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(ledger.objects.get(artifact.hash)))
    return iter(table.to_batches() or table.slice(0, 0).combine_chunks().to_batches())


def _load_cells(ledger: Ledger, thread_id: str) -> list[_Recorded]:
    """The cells of a thread, oldest first: those that were runs, and those that were steps of a question's run."""
    runs = (ledger.store.run(run_id) for run_id in thread_runs(ledger.store, thread_id))
    return [recorded for _, recorded in sorted((r for run in runs for r in _recorded(run)), key=itemgetter(0))]


def _recorded(run: Run) -> Iterator[tuple[tuple[datetime, str, int], _Recorded]]:
    """The cells of a run that can run again, and for each its place in time."""
    for position, cell in enumerate(run.steps):
        # One that the end of a process cut off has no outcome of its own; whoever goes on runs it anew.
        if cell.kind == "python" and cell.outcome in ("ok", "error") and cell.error_key != INTERRUPTED:
            asked = (s for s in run.steps if s.kind == "sql" and s.parent == cell.id)
            calls = [_Call(s.code, s.result, s.artifact, s.error) for s in asked if s.result is not None or s.error]
            yield (cell.started_at, run.id, position), _Recorded(cell.code, calls, cell.elapsed_ms or 0.0)


def _lower(limits: Limits, given: dict[str, Any]) -> Limits:
    """The limits of the session with those of a call within them: a call can ask for less, never for more."""
    from etude.settings import change_limits

    asked = change_limits(limits, given) if given else limits
    changes = {}
    for name in type(limits).model_fields:
        ours, theirs = getattr(limits, name), getattr(asked, name)
        # Zero means no limit, so a limit that is set cannot be lifted by it.
        changes[name] = ours if ours and (not theirs or theirs > ours) else theirs
    return limits.model_copy(update=changes)


def _out_of_time() -> LimitExceeded:
    return LimitExceeded(
        "The time of the cell was over before its query had ended.",
        hint="Filter or aggregate earlier, or give the cell more time.",
        limit="wall_s",
    )


def _refused(number: int, code: str, refusal: Refused) -> Cell:
    body = problem(refusal)
    shown = {"type": "Refused", "message": refusal.message, "traceback": "", "line": body.get("line"), "problem": body}
    return Cell(id=number, code=code, outcome="refused", error=shown, notes=(refusal.hint,))


def as_problem(cell: Cell) -> dict[str, Any]:
    """Why a cell failed, in the shape of `errors.problem`."""
    error = cell.error or {}
    inner = error.get("problem")
    if isinstance(inner, dict):
        return inner
    detail = f"{error.get('type', 'Error')}: {error.get('message', '')}"
    return {
        "type": "urn:etude:error:cell",
        "title": "The cell failed",
        "code": f"cell_{cell.outcome}",
        "detail": detail,
    }


def _as_statements(cell: Cell) -> str:
    """The cell as a script can hold it: `await` outside a function, which only a session runs, is wrapped."""
    code = cell.code.strip("\n")
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        names = sorted(_bound_names(ast.parse(code).body))
        body = f"    global {', '.join(names)}\n" if names else ""
        call = f"import asyncio\n\nasyncio.run(cell_{cell.id}())"
        return f"async def cell_{cell.id}():\n{body}{_indented(code)}\n\n\n{call}"
    return code


def _bound_names(statements: Sequence[ast.AST]) -> set[str]:
    """The names that statements give a value to, which are global in a session; not those inside of functions."""
    found: set[str] = set()
    for node in statements:
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
                inner = ()
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = ()
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {a.asname or a.name.partition(".")[0] for a in names}
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                found.add(name)
        found |= _bound_names([*inner])
    return found


def _indented(code: str) -> str:
    """The code four columns further in, but for what lies inside of a text, which is data."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        inside.update(range(token.start[0] + 1, token.end[0] + 1))  # few but texts have more than one line
    lines = io.StringIO(code).readlines()
    return "".join(line if n in inside else f"    {line}" for n, line in enumerate(lines, 1))


def describe_cell(cell: Cell) -> dict[str, Any]:
    """A cell as JSON: what `etude py --json` prints."""
    shown = {k: v for k, v in asdict(cell).items() if k not in ("display", "value")}
    return shown | {"ok": cell.ok, "display": [d.media for d in cell.display]}
