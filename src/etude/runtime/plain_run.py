"""One query as a run, recorded without the pydantic models of events: loading them takes longer than most queries.

A run that succeeds is written here, as the same events in the same store. Whatever else may happen to a run - an
error, a cancel, a request of another process - is left to `query.py`, which loads these models then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from etude.errors import Conflict
from etude.ids import new_id
from etude.runtime.query_record import PARQUET, Json, collect_query_result, finished_step_record, started_step_record
from etude.store.artifact_folder import put_artifact
from etude.store.base import Store
from etude.store.run_rows import RunRow

if TYPE_CHECKING:
    from etude.entities import ResultInfo
    from etude.result import Result
    from etude.runtime.run_log import RunLog
    from etude.sources.engine_client import ResultStream


class PlainColumn(NamedTuple):
    """A column of a result, as `entities.ResultColumn`."""

    name: str
    type: str


class PlainInfo(NamedTuple):
    """The shape of a result, as `entities.ResultInfo`."""

    columns: tuple[PlainColumn, ...]
    row_count: int
    truncated: bool
    bytes: int


@dataclass(frozen=True)
class PlainRecord:
    """Where a run is recorded: a store, and a folder for its result."""

    store: Store
    objects: Path


def run_plain_query(
    sql: str,
    source: str,
    location: str,
    limits: Json,
    start_query: Callable[[bool], ResultStream],
    record: PlainRecord | None,
    scratch: Path,
) -> Result:
    """Run a query as `query.run_query_as_run` and return its result. With a record it is recorded, also if it fails."""
    if record is None:
        return collect_query_result(start_query(False), scratch, _describe)[0]
    run_id, step_id, begun = new_id("run"), new_id("step"), datetime.now(UTC)
    worker = record.store.worker_id
    row = RunRow(run_id, "sql", sql, source, None, None, worker, "running", 3, begun, begun)
    record.store.append_plain(
        row,
        [
            {"type": "run.queued", "kind": "sql", "text": sql, "source": source, "location": location},
            {"type": "run.started", "worker": worker},
            started_step_record(step_id, sql, source, limits),
        ],
    )
    started = time.perf_counter()
    try:
        stream = start_query(True)
        result, spool = collect_query_result(stream, scratch, _describe)
        artifact = _keep(record, spool.parquet())
    except BaseException as error:
        _fail(record, run_id, step_id, error, started)
        raise
    result.run_id = run_id
    info = _as_json(cast("PlainInfo", result.info))
    elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
    events = [
        {"type": "artifact.created", "artifact": artifact, "step_id": step_id},
        finished_step_record(step_id, source, info, stream, artifact, elapsed_ms),
        *({"type": "note", "text": note, "step_id": step_id} for note in result.notes),
        {"type": "run.finished", "result": info, "artifact": artifact},
    ]
    ended = max(datetime.now(UTC), begun)
    _finish(
        record,
        replace(
            row,
            status="succeeded",
            seq=row.seq + len(events),
            updated_at=ended,
            ended_at=ended,
            row_count=result.row_count,
            truncated=result.truncated,
            elapsed_ms=(ended - begun).total_seconds() * 1000,
        ),
        events,
        {artifact["hash"]: artifact["size"]},
    )
    return result


def _describe(stream: ResultStream, schema: Any) -> ResultInfo:
    end = stream.end
    columns = tuple(PlainColumn(f.name, kind) for f, kind in zip(schema, stream.types, strict=True))
    # It stands in for the model, which has the same fields: `Result` reads them and nothing else.
    return cast("ResultInfo", PlainInfo(columns, end["row_count"], end["truncated"], end["bytes"]))


def _as_json(info: PlainInfo) -> Json:
    return info._asdict() | {"columns": [column._asdict() for column in info.columns]}


def _keep(record: PlainRecord, data: bytes | Path) -> Json:
    try:
        written = put_artifact(record.objects, data)
    except OSError:
        from etude.store.objects import Objects

        return Objects(record.objects).put(data, PARQUET).model_dump()  # it explains what is wrong
    return {"hash": written.hash, "media": PARQUET, "size": written.size}


def _finish(record: PlainRecord, row: RunRow, events: list[Json], artifacts: dict[str, int]) -> None:
    try:
        record.store.append_plain(row, events, artifacts)
    except Conflict:
        # Another process wrote to the run, such as a request to cancel it: its log knows what may follow.
        from etude.events import EVENT

        log = _log_of(record, row.id)
        log.add(*map(EVENT.validate_python, events))
        log.commit()


def _fail(record: PlainRecord, run_id: str, step_id: str, error: BaseException, started: float) -> None:
    """Record the end of a run that failed or was cancelled."""
    from etude.runtime.failed_step import failed_step, ms_since

    log = _log_of(record, run_id)
    with log.closing():
        log.add(failed_step(step_id, error, ms_since(started)))
        raise error


def _log_of(record: PlainRecord, run_id: str) -> RunLog:
    from etude.runtime.run_log import RunLog, RunStorage
    from etude.store.objects import Objects

    return RunLog(RunStorage(record.store, Objects(record.objects)), record.store.run(run_id))
