"""One query as a run or a step: recorded before it starts, then with what it read and returned, or its error."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

from etude.entities import Artifact, Estimate, Limits, Outcome, ResultInfo, Run, RunKind
from etude.errors import Cancelled, Conflict, EtudeError, LimitExceeded, Refused, problem
from etude.events import (
    ArtifactCreated,
    Entry,
    Event,
    Guided,
    Note,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunQueued,
    RunRequested,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
)
from etude.ids import new_id
from etude.result import Result, describe_columns
from etude.runtime import query_record
from etude.runtime.query_record import PARQUET, collect_query_result
from etude.sources.parameters import Encoded
from etude.sources.pool import ResultStream
from etude.store.base import Store
from etude.store.objects import Objects

CELL = "application/vnd.etude.cell+json"
"""The artifact of a cell: its code, output and displays."""


@dataclass(frozen=True)
class RunStorage:
    """Where runs are recorded."""

    store: Store
    objects: Objects


@dataclass(frozen=True)
class Query:
    """A query to run: its text, its source and its limits."""

    source: str
    sql: str
    dialect: str | None
    limits: Limits
    kind: RunKind = "sql"
    text: str = ""
    """The text that the user gave: the SQL itself, or a plan."""
    plan: dict[str, Any] | None = None
    thread_id: str | None = None
    parent: str | None = None
    params: Encoded | None = None
    """The values of its parameters."""
    location: str | None = None
    """The path or URL of a source without a registered name."""


def run_query_as_run(
    query: Query, ask: Callable[[bool], ResultStream], storage: RunStorage | None, scratch: Path
) -> Result:
    """Run a query and return its result. With a storage it is a recorded run, also if it fails."""
    if storage is None:
        return collect_query_result(ask(False), scratch, describe_query_result)[0]
    log = RunLog(storage)
    log.add(
        RunQueued(
            kind=query.kind,
            text=query.text or query.sql,
            source=query.source,
            location=query.location,
            thread_id=query.thread_id,
            parent=query.parent,
        ),
        RunStarted(worker=storage.store.worker_id),
    )
    with log.closing():
        result, artifact = run_query_step(query, ask, log, scratch)
        log.add(RunFinished(result=result.info, artifact=artifact))
    return result


def run_query_step(
    query: Query, ask: Callable[[bool], ResultStream], log: RunLog, scratch: Path, parent: str | None = None
) -> tuple[Result, Artifact]:
    """Run a query as one step of a run. Its start is committed before it begins, its end with the log's next commit."""
    step_id, started = new_id("step"), time.perf_counter()
    log.add(started_query_step(step_id, query, parent))
    log.commit()
    try:
        answer = ask(True)
        result, spool = collect_query_result(answer, scratch, describe_query_result)
        artifact = log.objects.put(spool.parquet(), PARQUET)
    except BaseException as error:
        log.add(failed_query_step(step_id, error, ms_since(started)))
        raise
    log.add(ArtifactCreated(artifact=artifact, step_id=step_id))
    log.add(finished_query_step(step_id, query.source, result.info, answer, artifact, ms_since(started)))
    log.add(*(Note(text=n, step_id=step_id) for n in result.notes))
    result.run_id = log.run_id
    return result, artifact


def started_query_step(step_id: str, query: Query, parent: str | None = None) -> StepStarted:
    """Return the start of a query, with everything that is needed to run it again."""
    return StepStarted.model_validate(
        query_record.started_step_record(
            step_id,
            query.sql,
            query.source,
            dict(query.limits),
            dialect=query.dialect,
            parent=parent,
            plan=query.plan,
            params=query.params,
        )
    )


def finished_query_step(
    step_id: str, source: str, info: ResultInfo, answer: ResultStream, artifact: Artifact | None, elapsed_ms: float
) -> StepFinished:
    """Return the end of a query that succeeded: what it read, what it returned and what it cost."""
    return StepFinished.model_validate(
        query_record.finished_step_record(step_id, source, info, answer, artifact, elapsed_ms)
    )


def failed_query_step(step_id: str, error: BaseException, elapsed_ms: float) -> StepFinished:
    """Return the end of a query that failed."""
    body = problem(_as_error(error))
    estimate = body.get("estimate")
    return StepFinished(
        step_id=step_id,
        outcome=_outcome(_as_error(error)),
        estimate=Estimate.model_validate(estimate) if estimate else None,
        error=body,
        error_key=query_error_key(body),
        elapsed_ms=elapsed_ms,
    )


def ms_since(started: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 3)


def describe_query_result(answer: ResultStream, schema: Any) -> ResultInfo:
    """Describe a result that was read to its end."""
    end = answer.end
    return ResultInfo(
        columns=describe_columns(schema, answer.types),
        row_count=end["row_count"],
        truncated=end["truncated"],
        bytes=end["bytes"],
    )


class RunLog:
    """Writes the events of one run. `commit` writes the added ones together, in one transaction."""

    def __init__(
        self, storage: RunStorage, run: Run | None = None, on_entry: Callable[[Entry], None] | None = None
    ) -> None:
        self.run_id = run.id if run else new_id("run")
        self.objects = storage.objects
        self._store = storage.store
        self._seq = run.seq if run else 0
        self._on_entry = on_entry
        # Listeners of a run that has not begun get its first event too.
        self._notified = self._seq if run and run.status != "queued" else 0
        self._pending: list[Event] = []
        self._worker: str | None = None

    def claim(self, event: RunStarted | RunResumed) -> None:
        """Begin to work on the run. From now on, `run` raises `Conflict` if another worker takes it over."""
        self.add(event)
        self._worker = event.worker

    @property
    def run(self) -> Run:
        """The run as it is on record now. Raises `Conflict` if another worker has taken it over."""
        run = self._store.run(self.run_id)
        if self._worker is not None and not self._pending and (run.status, run.worker) != ("running", self._worker):
            raise Conflict(
                f"Run `{self.run_id}` was taken over: it is {run.status}.", hint="Another worker continues it."
            )
        self._seq = run.seq
        return run

    @property
    def seq(self) -> int:
        """The last entry of the run's log that is known here."""
        return self._seq

    def add(self, *events: Event) -> None:
        """Add events; the next commit writes them."""
        self._pending += events

    def commit(self) -> None:
        """Write the added events."""
        self._write(RunRequested | Guided)

    def finish(self, end: RunFinished) -> bool:
        """Write the end of the run. Return False if guidance came meanwhile that the answer does not consider."""
        self.add(end)
        try:
            self._write(RunRequested)
        except Conflict:
            if any(not isinstance(e.event, RunRequested | Guided) for e in self._since()):
                raise
            return False
        return True

    def _since(self) -> list[Entry]:
        """Return the entries that others wrote after the last one known here."""
        return self._store.entries(self.run_id, after=self._seq)

    def _write(self, welcome: UnionType | type[RunRequested]) -> None:
        pending, self._pending = self._pending, []
        while True:
            try:
                self._seq = self._store.append(self.run_id, *pending, expect=self._seq)
                break
            except Conflict:
                # Others may request a pause or give guidance at any time; anything else is a conflict.
                added = self._since()
                if not added or not all(isinstance(e.event, welcome) for e in added):
                    raise
                self._seq = added[-1].seq
        if self._on_entry is not None:
            for entry in self._store.entries(self.run_id, after=self._notified):
                self._notified = entry.seq
                self._notify(entry)

    def _notify(self, entry: Entry) -> None:
        listener, self._on_entry = self._on_entry, None
        if listener is not None:
            listener(entry)
        # If the listener raises, the run ends; it must not be called again for that.
        self._on_entry = listener

    @property
    def pending(self) -> bool:
        """Whether there are added events that are not written yet."""
        return bool(self._pending)

    @property
    def ended(self) -> Run:
        """The run after this worker has stopped working on it."""
        return self._store.run(self.run_id)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Commit the run's end: the events that the body added, or the error that it raised."""
        try:
            yield
        except BaseException as error:
            if not self._seq and not self._pending:
                raise  # the store refused the run itself, so there is nothing to end
            known = _as_error(error)
            self.add(RunCancelled() if isinstance(known, Cancelled) else RunFailed(error=problem(known)))
            self.commit()
            if isinstance(error, EtudeError):
                error.details["run_id"] = self.run_id
            raise
        self.commit()


def _as_error(error: BaseException) -> BaseException:
    return Cancelled("The query was cancelled.") if isinstance(error, KeyboardInterrupt) else error


def _outcome(error: BaseException) -> Outcome:
    match error:
        case Refused():
            return "refused"
        case LimitExceeded():
            return "limit"
        case Cancelled():
            return "cancelled"
        case _:
            return "error"


_VALUES = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\d[\d,.]*")


def query_error_key(body: dict[str, Any]) -> str:
    """Return the error with its values masked: failures with equal keys are the same failure."""
    return f"{body['code']}: {mask_error_values(str(body.get('detail', '')))}"[:200]


def mask_error_values(text: str) -> str:
    """Return a text with its quoted texts, names and numbers masked."""
    return _VALUES.sub("?", text)
