"""What one query leaves behind: its result, and its events as plain values in the form of `etude.events`.

Nothing here loads the models of events, so that `etude sql` can record a query without them (`plain_run.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude import __version__
from etude.errors import EtudeError
from etude.result import Result
from etude.spool import Spool

if TYPE_CHECKING:
    from etude.entities import ResultInfo
    from etude.sources.engine_client import ResultStream
    from etude.sources.query_parameters import Encoded

Json = dict[str, Any]
PARQUET = "application/vnd.apache.parquet"


def started_step_record(
    step_id: str,
    sql: str,
    source: str,
    limits: Mapping[str, Any],
    *,
    dialect: str | None = None,
    parent: str | None = None,
    plan: Json | None = None,
    params: Encoded | None = None,
) -> Json:
    """Return the start of a query, with everything that is needed to run it again."""
    return {
        "type": "step.started",
        "step_id": step_id,
        "kind": "sql",
        "code": sql,
        "dialect": dialect,
        "source": source,
        "parent": parent,
        "plan": plan,
        "params": {"values": params} if params else {},
        "versions": {"etude": __version__},
        "limits": dict(limits),
    }


def finished_step_record(
    step_id: str, source: str, info: Any, stream: ResultStream, artifact: Any, elapsed_ms: float
) -> Json:
    """Return the end of a query that succeeded: what it read, what it returned and what it cost."""
    end = stream.end
    marks = end.get("fingerprints", {})
    return {
        "type": "step.finished",
        "step_id": step_id,
        "outcome": "ok",
        "estimate": end.get("estimate", {}),
        "schema_fingerprint": stream.info.get("schema"),
        "versions": stream.info.get("versions", {}),
        "reads": [{"source": source, "table": t, "fingerprint": marks.get(t)} for t in end["tables"]],
        "result": info,
        "artifact": artifact,
        "elapsed_ms": elapsed_ms,
    }


def collect_query_result(
    stream: ResultStream, scratch: Path, describe: Callable[[ResultStream, Any], ResultInfo]
) -> tuple[Result, Spool]:
    """Read a result to its end; `describe` gets the stream and the schema of its batches."""
    spool = Spool(scratch)
    try:
        spool.take(stream.batches)
    except BaseException:
        spool.drop()
        _close(stream)
        raise
    end, info = stream.end, describe(stream, spool.schema)
    notes = query_truncation_note(info)
    notes += tuple(f"{table}: {note}" for table in end["tables"] for note in stream.notes.get(table, ()))
    notes += tuple(end.get("notes", ()))
    result = Result(info, spool.batches, spool.path, elapsed_ms=end["elapsed_ms"], notes=notes, sql=end["sql"])
    spool.keep(result)
    return result, spool


def _close(stream: ResultStream) -> None:
    try:
        stream.batches.close()  # type: ignore[attr-defined]
    except EtudeError:
        return  # the error that ended it is on its way


def query_truncation_note(info: ResultInfo) -> tuple[str, ...]:
    """Return the note for a result that was cut because the caller asked for its first rows."""
    if not info.truncated:
        return ()
    return (f"Only the first {info.row_count:,} rows, because of `limit`; there are more.",)
