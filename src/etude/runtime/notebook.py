"""A session on a source, recorded: each cell is a run, each query in it a step with its result kept.

What was recorded is enough to bring the session back: its cells run again in a fresh interpreter, and their queries
are answered from the kept results, so that variables survive a kill, an eviction and a restart.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from etude import wire
from etude.entities import Artifact, Catalog, Limits, Outcome, ResultInfo, RunFilter
from etude.errors import Cancelled, EtudeError, Invalid, Refused, problem
from etude.events import (
    ArtifactCreated,
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
from etude.sessions.base import Cell, Output
from etude.sessions.policy import Policy, check_policy
from etude.sessions.session import Session
from etude.sources.pool import Answer
from etude.spool import write_parquet

CELL = "application/vnd.etude.cell+json"
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


@dataclass
class _Call:
    """A query of a cell: what was asked, and where its result is."""

    sql: str
    info: ResultInfo
    artifact: Artifact | None = None


@dataclass
class _Recorded:
    """A cell that ran, as reviving needs it."""

    code: str
    calls: list[_Call] = field(default_factory=list)


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
        self._cells: list[_Recorded] = []
        self.history: list[Cell] = []
        self.on_close: Callable[[], None] | None = None
        """What else ends with the session: the app that was opened for it alone."""
        self._session = open_session(self._data)
        if thread_id is not None and ledger is not None:
            self._cells = list(_load_cells(ledger, thread_id))
            self.revive()

    @property
    def isolation(self) -> dict[str, Any]:
        """What confines the session."""
        return self._session.isolation

    def execute(
        self, code: str, *, wall_s: float | None = None, on_output: Callable[[Output], None] | None = None
    ) -> Cell:
        """Run a cell and record it. Its errors are in the cell."""
        log = self._begin(code)
        try:
            if self._policy is not None:
                check_policy(code, self._policy)
        except Refused as refusal:
            cell = _refused(len(self.history) + 1, code, refusal)
        else:
            self._data.log = log
            number, started = len(self.history) + 1, time.perf_counter()
            try:
                cell = self._session.execute(code, number=number, wall_s=wall_s, on_output=on_output)
            except BaseException as error:
                self._break_off(log, error, (time.perf_counter() - started) * 1000)
                raise
        self.history.append(cell)
        calls = self._data.settle(log)
        if cell.outcome in ("ok", "error"):
            # A cell that was stopped or killed would do the same again; what it had set is not brought back.
            self._cells.append(_Recorded(code, calls))
        if log is not None:
            self._end(log, cell)
        return cell

    def _begin(self, code: str) -> RunLog | None:
        if self._ledger is None:
            return None
        log = RunLog(self._ledger)
        self._data.step_id = new_id("step")
        source = self._access.name if self._access else None
        log.add(
            RunQueued(kind="python", text=code, source=source, thread_id=self.thread_id),
            RunStarted(worker=self._ledger.store.worker_id),
            StepStarted(
                step_id=self._data.step_id,
                kind="python",
                code=code,
                source=source,
                seed=self._seed,
                params={"session": self.id, "cell": len(self.history) + 1},
            ),
        )
        log.commit()
        return log

    def _break_off(self, log: RunLog | None, error: BaseException, elapsed_ms: float) -> None:
        """End the record of a cell that has no outcome: there was no sandbox to run it in, or the host was stopped."""
        self._data.settle(log)
        if log is not None:
            with contextlib.suppress(type(error)), log.closing():
                log.add(failed_step(self._data.step_id, error, round(elapsed_ms, 3)))
                raise error

    def _end(self, log: RunLog, cell: Cell) -> None:
        shown = {"stdout": cell.stdout, "stderr": cell.stderr, "text": cell.text, "error": cell.error}
        body = json.dumps({"outcome": cell.outcome, "notes": cell.notes} | shown).encode()
        artifact = log.objects.put(body, CELL)
        error = None if cell.ok else _as_problem(cell)
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
        )
        if error is None:
            log.add(RunFinished(answer=cell.text or None))
        else:
            log.add(RunCancelled() if cell.outcome == "interrupted" else RunFailed(error=error))
        log.commit()

    def interrupt(self) -> None:
        """Stop the running cell, and the query it waits for; the names it has set stay."""
        self._session.interrupt()

    def reset(self) -> None:
        """Start over with a fresh interpreter and an empty history."""
        self._session.reset()
        self.history.clear()
        self._cells.clear()

    def revive(self) -> None:
        """Bring the variables back: run the recorded cells again, with the recorded results of their queries."""
        self._session.reset()
        self.history.clear()
        for recorded in self._cells:
            self._data.replay = deque(recorded.calls)
            self.history.append(self._session.execute(recorded.code))
        self._data.replay = None

    def complete(self, text: str) -> list[str]:
        """What a name that begins so could be, for a prompt; it leaves no trace in the history."""
        code = f"import rlcompleter as _r\n_c = _r.Completer(globals()); [_c.complete({text!r}, i) for i in range(200)]"
        cell = self._session.execute(f"{code}", number=len(self.history) + 1, wall_s=2)
        self._session.execute("del _r, _c", number=len(self.history) + 1, wall_s=2)
        return [name for name in cell.value if name] if cell.ok and isinstance(cell.value, list) else []

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
        self._done: list[tuple[str, _Call, Answer, int, float]] = []
        self.log: RunLog | None = None
        self.step_id = ""
        self.replay: deque[_Call] | None = None

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        if self._access is None:
            raise Invalid("This session has no source.", hint="Open it with one.")
        match request.get("method"):
            case "catalog":
                return {"catalog": self._access.catalog().model_dump(mode="json")}, None
            case "sql":
                sql = request.get("query")
                if not isinstance(sql, str):
                    raise Invalid("A query is text.", hint="db.sql('SELECT ...')")
                if self.replay is not None:
                    return self._again(sql)
                return self._sql(self._access, sql, request.get("limits") or {})
            case other:
                raise Invalid(f"`{other}` is not something a session can ask for.", hint="Ask for sql or catalog.")

    def cancel(self) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def _sql(self, access: Access, sql: str, given: dict[str, Any]) -> tuple[dict[str, Any], int]:
        limits = _lower(access.limits, given)
        step_id, started = new_id("step"), time.perf_counter()
        if self.log is not None:
            self.log.add(started_step(step_id, Query(access.name, sql, None, limits), self.step_id))
            self.log.commit()
        try:
            self._answer = access.ask(sql, limits)
            fd, schema = to_shared(self._answer.batches)
        except BaseException as error:
            if self.log is not None:
                self.log.add(failed_step(step_id, error, (time.perf_counter() - started) * 1000))
            if isinstance(error, KeyboardInterrupt):
                raise Cancelled("The query was cancelled.") from None
            raise
        finally:
            answer, self._answer = self._answer, None
        assert answer is not None  # noqa: S101 - for the type checker: it was set where this is reached
        info = describe_answer(answer, schema)
        call = _Call(sql, info)
        self._done.append((step_id, call, answer, os.dup(fd), (time.perf_counter() - started) * 1000))
        head = {
            "info": info.model_dump(mode="json"),
            "size": os.fstat(fd).st_size,
            "elapsed_ms": answer.end["elapsed_ms"],
        }
        notes = truncation_note(info, limits)
        return head | {"run_id": self.log.run_id if self.log else None, "notes": notes}, fd

    def _again(self, sql: str) -> tuple[dict[str, Any], int]:
        """The recorded result of a query that a cell asks for again."""
        assert self.replay is not None  # noqa: S101 - for the type checker
        while self.replay:
            call = self.replay.popleft()
            if call.sql == sql and call.artifact is not None and self._ledger is not None:
                fd, _ = to_shared(_read(self._ledger, call.artifact))
                return {"info": call.info.model_dump(mode="json"), "size": os.fstat(fd).st_size, "elapsed_ms": 0.0}, fd
        raise Invalid("This query was not recorded when the cell ran.", hint="Run the cell again.")

    def settle(self, log: RunLog | None) -> list[_Call]:
        """Keep the results of the cell's queries, now that nobody waits for them."""
        done, self._done = self._done, []
        for step_id, call, answer, fd, elapsed_ms in done:
            batches = _map(fd)
            if log is None:
                continue
            import pyarrow as pa

            sink = pa.BufferOutputStream()
            write_parquet(sink, batches[0].schema, batches)
            call.artifact = log.objects.put(bytes(sink.getvalue()), PARQUET)
            log.add(ArtifactCreated(artifact=call.artifact, step_id=step_id))
            source = self._access.name if self._access else ""
            log.add(finished_step(step_id, source, call.info, answer, call.artifact, round(elapsed_ms, 3)))
        self.log = None
        return [call for _, call, _, _, _ in done]


def to_shared(batches: Iterator[Any]) -> tuple[int, Any]:
    """Arrow batches as one stream in sealed shared memory: its descriptor, and the schema."""
    import pyarrow as pa

    fd = wire.shared_file()
    if fd is None:
        raise Invalid("This system has no shared memory for results.", hint="Sessions need Linux.")
    try:
        with os.fdopen(os.dup(fd), "wb", buffering=0) as file, pa.PythonFile(file, "w") as out:
            first = next(batches)
            with pa.ipc.new_stream(out, first.schema) as writer:
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch)
        wire.seal(fd)
    except BaseException:
        os.close(fd)
        with contextlib.suppress(EtudeError, AttributeError):
            batches.close()  # type: ignore[attr-defined]
        raise
    return fd, first.schema


def _map(fd: int) -> list[Any]:
    import pyarrow as pa

    mapped = wire.map_sealed(fd, os.fstat(fd).st_size)
    return list(pa.ipc.open_stream(pa.py_buffer(mapped)))


def _read(ledger: Ledger, artifact: Artifact) -> Iterator[Any]:
    import io

    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(ledger.objects.get(artifact.hash)))
    return iter(table.to_batches() or table.slice(0, 0).combine_chunks().to_batches())


def _load_cells(ledger: Ledger, thread_id: str) -> Iterator[_Recorded]:
    """The cells of a thread, oldest first."""
    found, cursor = [], None
    while True:
        page = ledger.store.runs(RunFilter(thread_id=thread_id, kind="python"), limit=200, cursor=cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    for summary in reversed(found):
        run = ledger.store.run(summary.id)
        cell = next((s for s in run.steps if s.kind == "python"), None)
        if cell is None or cell.outcome not in ("ok", "error"):
            continue
        calls = [_Call(s.code, s.result, s.artifact) for s in run.steps if s.kind == "sql" and s.result is not None]
        yield _Recorded(cell.code, calls)


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


def _refused(number: int, code: str, refusal: Refused) -> Cell:
    body = problem(refusal)
    shown = {"type": "Refused", "message": refusal.message, "traceback": "", "line": body.get("line"), "problem": body}
    return Cell(id=number, code=code, outcome="refused", error=shown, notes=(refusal.hint,))


def _as_problem(cell: Cell) -> dict[str, Any]:
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
        compile(code, "<cell>", "exec")
    except SyntaxError:
        names = sorted(
            {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        )
        body = [f"global {', '.join(names)}"] if names else []
        lines = "\n".join(f"    {line}" for line in [*body, *code.splitlines()])
        return f"async def cell_{cell.id}():\n{lines}\n\n\nimport asyncio\n\nasyncio.run(cell_{cell.id}())"
    return code


def describe_cell(cell: Cell) -> dict[str, Any]:
    """A cell as JSON: what `etude py --json` prints."""
    shown = {k: v for k, v in asdict(cell).items() if k not in ("display", "value")}
    return shown | {"ok": cell.ok, "display": [d.media for d in cell.display]}
