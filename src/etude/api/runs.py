"""Routes for runs: start, read, judge, pin and delete them; cancel, pause, resume, answer, steer or interrupt them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import Field

from etude.api.api_call import AdminCall, AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.responses import respond_in_pieces, respond_with_etag
from etude.api.schemas import (
    AnswerRequest,
    Body,
    FeedbackRequest,
    ListedRun,
    Listing,
    ReplayReport,
    RunGuidance,
    RunRequest,
    RunState,
    Timestamp,
    given_limits,
)
from etude.entities import ENDED, STOPPED, Entity, Run, RunFilter, RunKind, RunStatus, RunSummary
from etude.errors import Conflict, Stale
from etude.feedback import Feedback
from etude.limits import lower_limits
from etude.replays.differences import Difference
from etude.store.retention import Pin, Retention

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

IfMatch = Annotated[str | None, Header(description="Only if the run still has this ETag.")]
Prefer = Annotated[str | None, Header(description="`wait=30`: respond once the run has ended, or after 30 s.")]
LISTED_TEXT = 2000
"""Characters of each text in a list of runs."""
WAIT_S = 300
"""The longest that a request may wait for a run."""
IfNoneMatch = Annotated[str | None, Header(description="Only if the ETag is no longer this one.")]
SAME: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified."}}
router = APIRouter(tags=["runs"], route_class=JsonRoute)


# Start.


@router.post("/runs", status_code=202, response_model=RunState)
async def begin_run(call: AnalystCall, body: RunRequest, response: Response, prefer: Prefer = None) -> RunState:
    """Start a run and return at once, or wait for it with `Prefer: wait=30`; `/runs/{run_id}/events` streams it."""
    wait_s = parse_run_wait(prefer)
    run_id = await start_requested_run(call, body)
    response.headers["Location"] = f"/api/runs/{run_id}"
    if not wait_s:
        return make_run_state(await call.access_store(call.app.store.run, run_id))
    watcher = call.server.run_watcher
    run = await watcher.wait_until_stopped(call.app.store, run_id, call.access_store, wait_s, 0)
    response.headers["Preference-Applied"] = f"wait={wait_s}"
    response.status_code = 200 if run.status in ENDED or run.status in STOPPED else 202
    return make_run_state(run)


def parse_run_wait(prefer: str | None) -> int:
    """Return the seconds of `wait=N` in a Prefer header (RFC 7240), at most `WAIT_S`; 0 without it."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})", prefer or "")
    return min(int(found[1]), WAIT_S) if found else 0


async def start_requested_run(call: ApiCall, wanted: RunRequest) -> str:
    """Start a run in the background; return its id."""
    await call.access_store(call.check_capacity)

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
            budget=lower_limits(app.settings.budget, given_limits(wanted.budget)),
            limits=lower_limits(app.settings.limits, given_limits(wanted.limits))
            if wanted.limits is not None
            else None,
            fresh=wanted.fresh,
        )
        call.charge_to_caller(run_id)
        app.runs.start(run_id)
        return run_id

    return await call.run_in_thread(start)


# Read.


@router.get("/runs", response_model=Listing[ListedRun])
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
) -> Listing[ListedRun]:
    """List the runs that match the filter, newest first."""
    wanted = RunFilter(
        status=status, kind=kind, source=dataset, thread_id=thread_id, since=since, until=until, text=text
    )
    page = await call.access_store(call.app.store.runs, wanted, limit, cursor, LISTED_TEXT + 1)
    return Listing(items=[_listed(run) for run in page.items], next=page.next)


def _listed(run: RunSummary) -> ListedRun:
    cut = len(run.text) > LISTED_TEXT
    return ListedRun.model_construct(**dict(run) | {"text": run.text[:LISTED_TEXT], "text_cut": cut})


@router.get("/runs/{run_id}", response_model=Run, responses=SAME)
async def show_run(call: ReaderCall, run_id: str, response: Response, if_none_match: IfNoneMatch = None) -> Any:
    """Return a run with its steps."""
    run = await call.access_store(call.app.store.run, run_id)
    body = await respond_in_pieces(call, run.write_json())
    return respond_with_etag(body, f'"{run.seq}"', if_none_match, response)


@router.get("/runs/{run_id}/status", response_model=RunState, responses=SAME)
async def run_status(call: ReaderCall, run_id: str, response: Response, if_none_match: IfNoneMatch = None) -> Any:
    """Return the state of a run."""
    run = await call.access_store(call.app.store.run, run_id)
    return respond_with_etag(make_run_state(run), f'"{run.seq}"', if_none_match, response)


def make_run_state(run: Run) -> RunState:
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
        answer=run.answer,
        result=run.result,
        error=run.error,
    )


@router.get("/runs/{run_id}/script", response_class=PlainTextResponse)
async def run_script(call: ReaderCall, run_id: str) -> PlainTextResponse:
    """Return the run's code as a Python script that was executed alone, or says why not."""
    await call.access_store(call.app.store.run, run_id)
    return PlainTextResponse(await call.run_large(call.app.script, run_id), media_type="text/x-python")


@router.get("/runs/{run_id}/export", response_class=Response)
async def export_run(call: ReaderCall, run_id: str) -> StreamingResponse:
    """Return a run as one zip file: its events, code, parameters and results. `etude runs replay FILE` checks it."""
    run = await call.access_store(call.app.store.run, run_id)
    pieces = await call.run_in_thread(call.app.stream_run, run.id)
    headers = {"Content-Disposition": f'attachment; filename="{run.id}.etude"'}
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)


@router.get("/runs/{run_id}/diff/{other}", response_model=Difference)
async def compare_with_run(call: ReaderCall, run_id: str, other: str) -> Difference:
    """Return why two runs differ (question, source, settings, code, data, engine), and the rows that moved."""
    for each in (run_id, other):
        await call.access_store(call.app.store.run, each)
    return await call.run_in_thread(call.app.compare_runs, run_id, other)


# Judge.


@router.post("/runs/{run_id}/replay", response_model=ReplayReport)
async def replay_run(call: AnalystCall, run_id: str) -> ReplayReport:
    """Execute a recorded run again without a model; say whether each step gives the same result. Nothing is kept."""
    run = await call.access_store(call.app.store.run, run_id)
    if run.location is not None and call.caller.key is not None:
        raise Conflict(
            f"Run `{run_id}` read a source that has no registered name.",
            hint=f"Its owner can replay it on the machine itself: `etude runs replay {run_id}`.",
        )
    await call.access_store(call.check_capacity)
    proof = await call.run_in_thread(call.app.replay, run_id)
    return ReplayReport(**dict(proof), same=proof.same, sentence=proof.sentence)


@router.post("/runs/{run_id}/feedback", status_code=201, response_model=Feedback)
async def judge_run(call: AnalystCall, run_id: str, body: FeedbackRequest) -> Feedback:
    """Say whether an answer is right. Learning counts it, and a wrong one suspends the scripts that would repeat it."""
    await call.access_store(call.app.store.run, run_id)
    by = call.caller.key.name if call.caller.key else ""
    return await call.run_in_thread(call.app.give_feedback, run_id, body.verdict, body.comment, by)


# Keep and delete.


class PinRequest(Body):
    """Why a run is kept."""

    reason: str = Field(default="", max_length=1000)


class PinnedRun(Entity):
    """A run that no retention setting deletes."""

    run_id: str
    reason: str
    at: datetime


@router.post("/runs/{run_id}/pin", response_model=PinnedRun)
async def pin_run(call: AnalystCall, run_id: str, body: PinRequest | None = None) -> PinnedRun:
    """Keep a run, whatever the retention settings say."""
    reason = body.reason if body else ""
    call.cause(reason)
    return _pinned(await call.access_store(Retention(call.app.store).pin, run_id, reason))


@router.post("/runs/{run_id}/unpin", status_code=204, response_class=Response)
async def unpin_run(call: AnalystCall, run_id: str) -> Response:
    """Let the retention settings decide about a run again."""
    await call.access_store(call.app.store.run, run_id)
    await call.access_store(Retention(call.app.store).unpin, run_id)
    return Response(status_code=204)


@router.get("/pins", response_model=Listing[PinnedRun])
async def list_pinned_runs(call: ReaderCall, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> Listing[PinnedRun]:
    """List the pinned runs, the last pinned first."""
    pins = await call.access_store(Retention(call.app.store).pins, limit)
    return Listing(items=[_pinned(pin) for pin in pins])


def _pinned(pin: Pin) -> PinnedRun:
    return PinnedRun(run_id=pin.run_id, reason=pin.reason, at=pin.at)


@router.delete("/runs/{run_id}", status_code=204, response_class=Response)
async def delete_run(
    call: AdminCall,
    run_id: str,
    if_match: IfMatch = None,
    forget_evidence: Annotated[bool, Query(description="Also its outcome as evidence for playbooks.")] = False,
    reason: Annotated[str | None, Query(max_length=1000, description="Why; the audit log has it.")] = None,
) -> Response:
    """Delete a run that has ended, with its events. Files that no other run refers to are removed within hours."""
    await _find(call, run_id, if_match)
    call.cause(reason)
    retention = Retention(call.app.store)

    def delete() -> None:
        retention.check_deletable(run_id)
        if not retention.delete_runs([run_id], forget_evidence):
            raise Conflict(f"Run `{run_id}` was changed meanwhile.", hint="Read the run again, then retry.")

    await call.access_store(delete)
    return Response(status_code=204)


# Control.


@router.post("/runs/{run_id}/cancel", response_model=RunState)
async def cancel_run(call: AnalystCall, run_id: str, if_match: IfMatch = None) -> RunState:
    """Cancel a run at once."""
    await _find(call, run_id, if_match)
    await call.run_in_thread(lambda: call.app.runs.cancel(run_id))
    return make_run_state(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/pause", response_model=RunState)
async def pause_run(call: AnalystCall, run_id: str, if_match: IfMatch = None) -> RunState:
    """Pause a run before its next step; it can be resumed."""
    await _find(call, run_id, if_match)
    await call.run_in_thread(lambda: call.app.runs.pause(run_id))
    return make_run_state(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/resume", response_model=RunState)
async def resume_run(call: AnalystCall, run_id: str, if_match: IfMatch = None) -> RunState:
    """Resume a paused run."""
    run = await _find(call, run_id, if_match)
    if run.status != "paused":
        raise Conflict(f"Run `{run_id}` is {run.status} and cannot be resumed.", hint="Only paused runs can.")
    await call.access_store(call.check_capacity)
    await call.access_store(call.charge_to_caller, run_id)
    await call.access_store(call.app.runs.start, run_id)
    return make_run_state(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/answer", response_model=RunState)
async def answer_run(call: AnalystCall, run_id: str, body: AnswerRequest, if_match: IfMatch = None) -> RunState:
    """Answer the question of a waiting run, which then continues."""
    await _find(call, run_id, if_match)
    await call.access_store(call.check_capacity)
    await call.run_in_thread(answer_waiting_run, call, run_id, body.text)
    return make_run_state(await call.access_store(call.app.store.run, run_id))


def answer_waiting_run(call: ApiCall, run_id: str, text: str) -> int:
    """Answer the question of a waiting run and continue it; return the seq that it continues from."""
    seq = call.app.runs.answer(run_id, text)
    call.charge_to_caller(run_id)
    call.app.runs.start(run_id)
    return seq


@router.post("/runs/{run_id}/steer", response_model=RunState)
async def steer_run(call: AnalystCall, run_id: str, body: RunGuidance, if_match: IfMatch = None) -> RunState:
    """Give guidance to a run, which its model reads before its next turn; nothing is interrupted."""
    await _find(call, run_id, if_match)
    await call.run_in_thread(lambda: call.app.runs.steer(run_id, body.guidance))
    return make_run_state(await call.access_store(call.app.store.run, run_id))


@router.post("/runs/{run_id}/interrupt", response_model=RunState)
async def interrupt_run(call: AnalystCall, run_id: str, body: RunGuidance, if_match: IfMatch = None) -> RunState:
    """Stop what a run is doing at this moment; its model then reads the guidance and continues."""
    await _find(call, run_id, if_match)
    await call.run_in_thread(lambda: call.app.runs.interrupt(run_id, body.guidance))
    return make_run_state(await call.access_store(call.app.store.run, run_id))


async def _find(call: ApiCall, run_id: str, wanted: str | None) -> Run:
    """Return the run; raise `Stale` if it no longer has the ETag that the caller named."""
    run = await call.access_store(call.app.store.run, run_id)
    if wanted is not None and wanted.strip() not in ("*", f'"{run.seq}"'):
        raise Stale(f"Run `{run.id}` is at {run.seq}, not at {wanted[:40]}.", hint="Read the run again, then retry.")
    return run
