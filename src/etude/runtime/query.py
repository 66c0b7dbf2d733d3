"""One query as a run or a step: recorded before it starts, then with what it read and returned, or its error."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.entities import Artifact, Limits, ResultInfo, RunKind
from etude.events import (
    ArtifactCreated,
    Note,
    RunFinished,
    RunQueued,
    RunStarted,
    StepFinished,
    StepStarted,
)
from etude.ids import new_id
from etude.result import Result, describe_result_columns
from etude.runtime import query_record
from etude.runtime.failed_step import failed_step, ms_since
from etude.runtime.query_record import PARQUET, collect_query_result
from etude.runtime.run_log import RunLog, RunStorage
from etude.sources.engine_client import ResultStream
from etude.sources.query_parameters import Encoded

CELL = "application/vnd.etude.cell+json"
"""The artifact of a cell: its code, output and displays."""


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
    query: Query, start_query: Callable[[bool], ResultStream], storage: RunStorage | None, scratch: Path
) -> Result:
    """Run a query and return its result. With a storage it is a recorded run, also if it fails."""
    if storage is None:
        return collect_query_result(start_query(False), scratch, describe_query_result)[0]
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
        result, artifact = run_query_step(query, start_query, log, scratch)
        log.add(RunFinished(result=result.info, artifact=artifact))
    return result


def run_query_step(
    query: Query, start_query: Callable[[bool], ResultStream], log: RunLog, scratch: Path, parent: str | None = None
) -> tuple[Result, Artifact]:
    """Run a query as one step of a run. Its start is committed before it begins, its end with the log's next commit."""
    step_id, started = new_id("step"), time.perf_counter()
    log.add(started_query_step(step_id, query, parent))
    log.commit()
    try:
        stream = start_query(True)
        result, spool = collect_query_result(stream, scratch, describe_query_result)
        artifact = log.objects.put(spool.parquet(), PARQUET)
    except BaseException as error:
        log.add(failed_step(step_id, error, ms_since(started)))
        raise
    log.add(ArtifactCreated(artifact=artifact, step_id=step_id))
    log.add(finished_query_step(step_id, query.source, result.info, stream, artifact, ms_since(started)))
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
    step_id: str, source: str, info: ResultInfo, stream: ResultStream, artifact: Artifact | None, elapsed_ms: float
) -> StepFinished:
    """Return the end of a query that succeeded: what it read, what it returned and what it cost."""
    return StepFinished.model_validate(
        query_record.finished_step_record(step_id, source, info, stream, artifact, elapsed_ms)
    )


def describe_query_result(stream: ResultStream, schema: Any) -> ResultInfo:
    """Describe a result that was read to its end."""
    end = stream.end
    return ResultInfo(
        columns=describe_result_columns(schema, stream.types),
        row_count=end["row_count"],
        truncated=end["truncated"],
        bytes=end["bytes"],
    )
