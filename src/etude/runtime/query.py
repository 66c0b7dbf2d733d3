"""One query as a run: recorded before it starts, run through the guard, recorded with all it read and made."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude import __version__
from etude.entities import Artifact, Estimate, Limits, Outcome, Read, ResultInfo, RunKind
from etude.errors import Cancelled, EtudeError, LimitExceeded, Refused, problem
from etude.events import (
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
from etude.result import Result, describe
from etude.sources.pool import Answer
from etude.spool import Spool
from etude.store.base import Store
from etude.store.objects import Objects

PARQUET = "application/vnd.apache.parquet"


@dataclass(frozen=True)
class Ledger:
    """Where runs are recorded."""

    store: Store
    objects: Objects


@dataclass(frozen=True)
class Query:
    """What to run: the text, and where it comes from."""

    source: str
    sql: str
    dialect: str | None
    limits: Limits
    kind: RunKind = "sql"
    text: str = ""
    """What the user gave; the SQL itself unless a plan was given."""
    plan: dict[str, Any] | None = None
    thread_id: str | None = None
    parent: str | None = None


def run_query(query: Query, ask: Callable[[bool], Answer], ledger: Ledger | None, scratch: Path) -> Result:
    """Run it and return the result; with a ledger it is a recorded run, whatever comes of it."""
    if ledger is None:
        return _collect(query, ask(False), scratch)[0]
    record = _Record(query, ledger)
    record.begin()
    try:
        answer = ask(True)
        result, spool = _collect(query, answer, scratch)
        artifact = ledger.objects.put(spool.parquet(), PARQUET)
    except BaseException as error:
        record.fail(error)
        raise
    record.finish(result, answer, artifact)
    return result


def _collect(query: Query, answer: Answer, scratch: Path) -> tuple[Result, Spool]:
    spool = Spool(scratch)
    try:
        spool.take(answer.batches)
    except BaseException:
        spool.drop()
        with contextlib.suppress(EtudeError):
            answer.batches.close()  # type: ignore[attr-defined]
        raise
    end = answer.end
    info = ResultInfo(
        columns=describe(spool.schema, answer.types),
        row_count=end["row_count"],
        truncated=end["truncated"],
        bytes=end["bytes"],
    )
    notes = truncation_note(info, query.limits)
    result = Result(info, spool.batches, spool.path, elapsed_ms=end["elapsed_ms"], notes=notes, sql=end["sql"])
    spool.keep(result)
    return result, spool


def truncation_note(info: ResultInfo, limits: Limits) -> tuple[str, ...]:
    """What to tell when a limit cut the result."""
    if not info.truncated:
        return ()
    by = f"limits.rows = {limits.rows:,}" if limits.rows and info.row_count >= limits.rows else "limits.bytes"
    return (f"The result was cut after {info.row_count:,} rows by `{by}`; there are more.",)


class _Record:
    """The events of one run with one step."""

    def __init__(self, query: Query, ledger: Ledger) -> None:
        self._query = query
        self._ledger = ledger
        self.run_id = new_id("run")
        self._step_id = new_id("step")
        self._seq = 0
        self._started = time.perf_counter()

    def begin(self) -> None:
        query, store = self._query, self._ledger.store
        self._append(
            RunQueued(
                kind=query.kind,
                text=query.text or query.sql,
                source=query.source,
                thread_id=query.thread_id,
                parent=query.parent,
            ),
            RunStarted(worker=store.worker_id),
            StepStarted(
                step_id=self._step_id,
                kind="sql",
                code=query.sql,
                dialect=query.dialect,
                source=query.source,
                plan=query.plan,
                versions={"etude": __version__},
                limits=query.limits,
            ),
        )

    def finish(self, result: Result, answer: Answer, artifact: Artifact) -> None:
        end = answer.end
        fingerprints = end.get("fingerprints", {})
        reads = tuple(Read(source=self._query.source, table=t, fingerprint=fingerprints.get(t)) for t in end["tables"])
        self._append(
            ArtifactCreated(artifact=artifact, step_id=self._step_id),
            StepFinished(
                step_id=self._step_id,
                outcome="ok",
                estimate=Estimate.model_validate(end.get("estimate", {})),
                schema_fingerprint=answer.info.get("schema"),
                versions=answer.info.get("versions", {}),
                reads=reads,
                result=result.info,
                artifact=artifact,
                elapsed_ms=self._elapsed_ms(),
            ),
            *(Note(text=n, step_id=self._step_id) for n in result.notes),
            RunFinished(result=result.info, artifact=artifact),
        )
        result.run_id = self.run_id

    def fail(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            error = Cancelled("The query was cancelled.")
        body = problem(error)
        estimate = body.get("estimate")
        self._append(
            StepFinished(
                step_id=self._step_id,
                outcome=_outcome(error),
                estimate=Estimate.model_validate(estimate) if estimate else None,
                error=body,
                error_key=error_key(body),
                elapsed_ms=self._elapsed_ms(),
            ),
            RunCancelled() if isinstance(error, Cancelled) else RunFailed(error=body),
        )
        if isinstance(error, EtudeError):
            error.details["run_id"] = self.run_id

    def _append(self, *events: Any) -> None:
        self._seq = self._ledger.store.append(self.run_id, *events, expect=self._seq)

    def _elapsed_ms(self) -> float:
        return round((time.perf_counter() - self._started) * 1000, 3)


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


def error_key(body: dict[str, Any]) -> str:
    """The error with its values masked: failures with equal keys are the same failure."""
    return f"{body['code']}: {_VALUES.sub('?', str(body.get('detail', '')))}"[:200]
