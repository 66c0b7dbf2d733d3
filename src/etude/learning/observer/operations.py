"""Operations as facts: every step of runs and agents, every request, and every report, read from the store.

The observer only reads what is recorded anyway, so it cannot slow down or fail what it watches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from etude.redaction import redact

if TYPE_CHECKING:
    from etude.store.base import Store

SHORT = 500
"""Only this many first characters of an input or output are kept."""
MOST = 20_000
"""The most operations of each kind that are read."""
READ = 10 * SHORT
"""Only this many first characters of a text are read, with room for what redaction makes shorter: a run may have
megabytes of them."""
Outcome = Literal["ok", "failed", "cancelled"]
EVENT_TYPES = "('step.started', 'step.finished', 'run.finished', 'run.failed', 'run.cancelled')"
EVENT_COLUMNS = f"""e.run_id, e.at, e.type, e.body ->> 'step_id', e.body ->> 'kind', e.body ->> 'outcome',
    CASE WHEN e.type = 'step.started' THEN substr(e.body ->> 'code', 1, {READ}) END,
    substr(coalesce(e.body ->> 'shown', e.body ->> 'answer'), 1, {READ}), substr(e.body ->> 'error_key', 1, {READ}),
    e.body -> 'error' ->> 'code', substr(e.body -> 'error' ->> 'detail', 1, {READ}), e.body ->> 'elapsed_ms',
    r.kind, r.source,
    CASE WHEN e.type NOT IN ('step.started', 'step.finished') THEN substr(r.text, 1, {READ}) END"""
"""What `operations_of_events` needs of events `e` and their runs `r`."""
STEP_COLUMNS = f"""agents.id, agents.kind, s.step_no, substr(s.input, 1, {READ}), substr(s.output, 1, {READ}),
    s.outcome, substr(s.error, 1, {4 * READ}), s.started_at, s.ended_at"""
REPORT_COLUMNS = f"""id, at, body ->> 'outcome', substr(body ->> 'text', 1, {READ}), substr(body ->> 'code', 1, {READ}),
    body ->> 'dataset', body ->> 'run_id'"""
_EVENTS = f"""SELECT {EVENT_COLUMNS} FROM runs r JOIN events e ON e.run_id = r.id
    WHERE r.tenant = ? AND r.created_at >= ? AND e.type IN {EVENT_TYPES}
    ORDER BY r.created_at DESC, e.run_id, e.seq LIMIT ?"""
_STEPS = f"""SELECT {STEP_COLUMNS} FROM agent_steps s JOIN agents ON agents.no = s.agent
    WHERE agents.tenant = ? AND s.ended_at >= ? ORDER BY s.ended_at DESC LIMIT ?"""
_REQUESTS = """SELECT id, at, action, status FROM audit WHERE tenant = ? AND at >= ? ORDER BY id DESC LIMIT ?"""
_REPORTS = f"SELECT {REPORT_COLUMNS} FROM reports WHERE tenant = ? AND at >= ? ORDER BY id DESC LIMIT ?"


@dataclass(frozen=True)
class Operation:
    """One operation: when, what, with what outcome."""

    id: str
    at: datetime
    kind: str
    """Such as `sql`, `python`, `model`, `ask`, `agent watch`, `request` or `report`."""
    outcome: Outcome
    input: str = ""
    output: str = ""
    error_key: str = ""
    """The error with its values masked: failures with equal keys are the same failure."""
    source: str = ""
    run_id: str = ""
    elapsed_ms: float = 0.0


def read_operations(store: Store, since: timedelta = timedelta(days=1)) -> list[Operation]:
    """Return the operations of a tenant in this time, oldest first."""
    after = datetime.now(UTC) - since
    found = [*_of_runs(store, after), *_of_agents(store, after), *_requests(store, after), *_reports(store, after)]
    return sorted(found, key=lambda o: (o.at, o.id))


def _short(text: object) -> str:
    return redact(str(text or "")[:READ])[:SHORT]


def _of_runs(store: Store, after: datetime) -> Iterator[Operation]:
    rows = store._read(_EVENTS, store.tenant, after, MOST)
    return (operation for _, operation in operations_of_events(rows) if operation is not None)


def operations_of_events(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, Operation | None]]:
    """Yield the run of each event, and the operation that ends with it; None if none does.

    The events of one run are in the order of their numbers.
    """
    started: dict[str, tuple[str, str]] = {}
    stepped: set[str] = set()
    for row in rows:
        run_id, at, event, step_id, kind, ended, code, shown, step_key, error_code, detail, elapsed = row[:12]
        run_kind, source, text = row[12:]
        where = {"source": source or "", "run_id": run_id}
        if event == "step.started":
            started[step_id] = kind, _short(code)
            yield run_id, None
        elif event == "step.finished":
            begun, given = started.pop(step_id, ("step", ""))
            stepped.add(run_id)
            outcome: Outcome = "ok" if ended == "ok" else "cancelled" if ended == "cancelled" else "failed"
            yield run_id, Operation(
                step_id, operation_time(at), begun, outcome, given, _short(detail or shown), step_key or "",
                elapsed_ms=float(elapsed or 0), **where,
            )  # fmt: skip
        elif run_kind == "ask" or run_id not in stepped:
            # Of a query or a cell the step says it all; as a run it would count twice.
            end: Outcome = {"run.finished": "ok", "run.failed": "failed"}.get(event, "cancelled")  # type: ignore[assignment]
            key = f"{error_code}: {_mask(detail or '')}" if error_code else ""
            output = _short(detail or shown)
            yield run_id, Operation(run_id, operation_time(at), run_kind, end, _short(text), output, key, **where)
        else:
            yield run_id, None


def _of_agents(store: Store, after: datetime) -> Iterator[Operation]:
    return map(operation_of_step, store._read(_STEPS, store.tenant, after.timestamp(), MOST))


def operation_of_step(row: Sequence[Any]) -> Operation:
    """Return a step of an agent as an operation."""
    agent, kind, number, given, output, outcome, error, started, ended = row
    detail = _error_detail(error)
    fine: Outcome = "ok" if outcome == "ok" else "cancelled" if outcome in ("interrupted", "cancelled") else "failed"
    at = datetime.fromtimestamp(float(ended), UTC)
    key = _mask(detail)[:200] if fine == "failed" else ""
    elapsed = 1000 * (float(ended) - float(started))
    return Operation(
        f"{agent}/{number}", at, f"agent {kind}", fine, _short(given), _short(detail or output), key,
        elapsed_ms=elapsed,
    )  # fmt: skip


def _error_detail(error: object) -> str:
    if not error:
        return ""
    try:
        body = json.loads(str(error))
    except ValueError:
        return str(error)
    return str(body.get("detail", error)) if isinstance(body, dict) else str(error)


def _requests(store: Store, after: datetime) -> Iterator[Operation]:
    return map(operation_of_request, store._read(_REQUESTS, store.tenant, after, MOST))


def operation_of_request(row: Sequence[Any]) -> Operation:
    """Return an entry of the audit log as an operation."""
    request_id, at, action, status = row
    failed = int(status) >= 400
    key = f"status {status}: {_mask(str(action))}" if failed else ""
    outcome: Outcome = "failed" if failed else "ok"
    return Operation(request_id, operation_time(at), "request", outcome, _short(action), str(status), key)


def _reports(store: Store, after: datetime) -> Iterator[Operation]:
    return map(operation_of_report, store._read(_REPORTS, store.tenant, after, MOST))


def operation_of_report(row: Sequence[Any]) -> Operation:
    """Return a report of an agent as an operation."""
    report_id, at, outcome, text, code, source, run = row
    failed = outcome == "failed"
    key = f"reported: {_mask(text)}"[:200] if failed else ""
    end: Outcome = "failed" if failed else "ok"
    return Operation(
        report_id, operation_time(at), "report", end, _short(text), _short(code), key, source or "", run or ""
    )


def _mask(text: object) -> str:
    from etude.runtime.failed_step import mask_error_values

    return mask_error_values(str(text))[:200]


def operation_time(value: str | datetime) -> datetime:
    """Return a time as a store gives it: SQLite as text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value.astimezone(UTC)
