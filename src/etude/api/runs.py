"""Routes for runs: start them, read them and their results, and cancel, pause, resume or answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import PlainTextResponse

from etude.api.call import AnalystCall, ReaderCall
from etude.api.schemas import AnswerRequest, Listing, RunRequest, RunState, Timestamp, given
from etude.entities import Run, RunFilter, RunKind, RunStatus, RunSummary
from etude.errors import Conflict, Stale, Unavailable
from etude.limits import lower_limits
from etude.runtime.script import script_of

if TYPE_CHECKING:
    from etude.api.call import ApiCall

IfMatch = Annotated[str | None, Header(description="Only if the run still has this ETag.")]
IfNoneMatch = Annotated[str | None, Header(description="Only if the ETag is no longer this one.")]
SAME: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified."}}
router = APIRouter(tags=["runs"])


# Start.


@router.post("/runs", status_code=202, response_model=RunState)
async def begin_run(call: AnalystCall, body: RunRequest, response: Response) -> RunState:
    """Start a run and return at once; `/runs/{run_id}/events` streams its progress."""
    run_id = await begin(call, body)
    response.headers["Location"] = f"/api/runs/{run_id}"
    return state_of(await call.access_store(call.app.store.run, run_id))


async def begin(call: ApiCall, wanted: RunRequest) -> str:
    """Start a run in the background; return its id."""
    await call.access_store(check_capacity, call)

    def start() -> str:
        app, thread_id = call.app, call.thread(wanted.thread_id)
        source = app.choose_source(wanted.dataset, thread_id)
        if source is None and wanted.kind != "ask" and thread_id is None:
            source = app.source_name(None)  # which says what to name
        run_id = app.runs.begin(
            wanted.kind,
            wanted.text,
            source,
            model=app.check_model(wanted.model),
            thread_id=thread_id,
            budget=lower_limits(app.settings.budget, given(wanted.budget)),
            limits=lower_limits(app.settings.limits, given(wanted.limits)) if wanted.limits is not None else None,
        )
        call.charge_to_caller(run_id)
        app.runs.start(run_id)
        return run_id

    return await call.run_in_thread(start)


def check_capacity(call: ApiCall) -> None:
    """Refuse work if the key has used up its daily quota, or if the server is at capacity."""
    call.server.access_control.check_budget(call.caller)
    limit = call.app.settings.server.runs
    if call.server.draining:
        raise Unavailable("The server is shutting down.", hint="Try again in a moment.")
    if len(call.app.runs) >= limit:
        raise Unavailable(
            f"The server is at capacity: it is working on {limit} runs.",
            hint="Wait for one to end, or raise `server.runs`.",
            retry_after_s=2,
        )


# Read.


@router.get("/runs", response_model=Listing[RunSummary])
async def list_runs(
    call: ReaderCall,
    status: RunStatus | None = None,
    kind: RunKind | None = None,
    dataset: str | None = None,
    thread_id: str | None = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
    text: Annotated[
        str | None, Query(max_length=1000, description="Words of the run's text, or their beginnings.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> Listing[RunSummary]:
    """List the runs that match the filter, newest first."""
    wanted = RunFilter(
        status=status, kind=kind, source=dataset, thread_id=thread_id, since=since, until=until, text=text
    )
    page = await call.access_store(call.app.store.runs, wanted, limit, cursor)
    return Listing(items=page.items, next=page.next)


@router.get("/runs/{run_id}", response_model=Run, responses=SAME)
async def show_run(call: ReaderCall, run_id: str, response: Response, if_none_match: IfNoneMatch = None) -> Any:
    """Return a run with its steps."""
    run = await call.access_store(call.app.store.run, run_id)
    return respond_unless_cached(run, f'"{run.seq}"', if_none_match, response)


@router.get("/runs/{run_id}/status", response_model=RunState, responses=SAME)
async def run_status(call: ReaderCall, run_id: str, response: Response, if_none_match: IfNoneMatch = None) -> Any:
    """Return the state of a run."""
    run = await call.access_store(call.app.store.run, run_id)
    return respond_unless_cached(state_of(run), f'"{run.seq}"', if_none_match, response)


def respond_unless_cached(body: Any, tag: str, known: str | None, response: Response) -> Any:
    """Return the body with its ETag, or 304 if the caller has it already."""
    if known is not None and tag in [part.strip().removeprefix("W/") for part in known.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return body


def state_of(run: Run) -> RunState:
    """Return the state of a run."""
    waits = run.status == "waiting"
    return RunState(
        id=run.id,
        status=run.status,
        seq=run.seq,
        requested=run.requested,
        question=run.question if waits else None,
        choices=list(run.choices) if waits else [],
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        error=run.error,
    )


@router.get("/runs/{run_id}/script", response_class=PlainTextResponse)
async def run_script(call: ReaderCall, run_id: str) -> PlainTextResponse:
    """Return the run's code as a Python script that runs on its own; `ETUDE_SOURCE` names the data."""
    run = await call.access_store(call.app.store.run, run_id)
    return PlainTextResponse(script_of(run), media_type="text/x-python")


# Control.


@router.post("/runs/{run_id}/cancel", response_model=RunState)
async def cancel_run(call: AnalystCall, run_id: str, if_match: IfMatch = None) -> RunState:
    """Cancel a run at once."""
    await _find(call, run_id, if_match)
    await call.run_in_thread(lambda: call.app.runs.cancel(run_id))
    return state_of(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/pause", response_model=RunState)
async def pause_run(call: AnalystCall, run_id: str, if_match: IfMatch = None) -> RunState:
    """Pause a run before its next step; it can be resumed."""
    await _find(call, run_id, if_match)
    await call.run_in_thread(lambda: call.app.runs.pause(run_id))
    return state_of(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/resume", response_model=RunState)
async def resume_run(call: AnalystCall, run_id: str, if_match: IfMatch = None) -> RunState:
    """Resume a paused run."""
    run = await _find(call, run_id, if_match)
    if run.status != "paused":
        raise Conflict(f"Run `{run_id}` is {run.status} and cannot be resumed.", hint="Only paused runs can.")
    await call.access_store(check_capacity, call)
    await call.access_store(call.charge_to_caller, run_id)
    await call.access_store(call.app.runs.start, run_id)
    return state_of(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/answer", response_model=RunState)
async def answer_run(call: AnalystCall, run_id: str, body: AnswerRequest, if_match: IfMatch = None) -> RunState:
    """Answer the question of a waiting run, which then continues."""
    await _find(call, run_id, if_match)
    await call.access_store(check_capacity, call)
    await call.run_in_thread(answer, call, run_id, body.text)
    return state_of(await call.access_store(call.app.store.run, run_id))


def answer(call: ApiCall, run_id: str, text: str) -> int:
    """Answer the question of a waiting run and continue it; return the seq that it continues from."""
    seq = call.app.runs.answer(run_id, text)
    call.charge_to_caller(run_id)
    call.app.runs.start(run_id)
    return seq


async def _find(call: ApiCall, run_id: str, wanted: str | None) -> Run:
    """Return the run; raise `Stale` if it no longer has the ETag that the caller named."""
    run = await call.access_store(call.app.store.run, run_id)
    if wanted is not None and wanted.strip() not in ("*", f'"{run.seq}"'):
        raise Stale(f"Run `{run.id}` is at {run.seq}, not at {wanted[:40]}.", hint="Read the run again, then retry.")
    return run
