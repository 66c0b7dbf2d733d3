"""The gateway for agents: clean JSON in and out. SQL, questions, reports of what worked, playbooks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response

from etude.api.call import AnalystCall, ReaderCall
from etude.api.chat import answer_of, begin_answer, wait_for
from etude.api.results import View, as_json
from etude.api.runs import lower
from etude.api.shapes import Answered, Listing, PlaybookSummary, Question, ReportRequest, Rows, SqlRequest
from etude.playbook import read_playbooks
from etude.store.identity import Report, Spent

if TYPE_CHECKING:
    from etude.api.call import Call
    from etude.sources.source import Begun

router = APIRouter(tags=["gateway"])


@router.post("/sql", response_model=Rows)
async def sql(call: AnalystCall, body: SqlRequest) -> Response:
    """Run a query and have its first rows."""
    async with call.house.queries:
        rows = await run_at_once(call, body) or await call.do(run_sql, call, body)
    return Response(rows, media_type="application/json")


async def run_at_once(call: Call, body: SqlRequest) -> bytes | None:
    """Run a query without a thread, which costs more than a small query; None where something must be looked up."""
    limits = lower(call.app.settings.limits, body.limits)
    if _is_recorded(call, body) or body.dataset is None or body.thread_id or call.house.gate.has_budget(call.caller):
        return None
    begun = call.app.begin_sql(body.dataset, body.query, limits)
    if begun is None:
        return None
    query, finish = begun
    with charged(call), contextlib.closing(query.answer.batches):  # type: ignore[type-var]
        if await is_small(query, limits.timeout_s):
            return as_json(finish(), View(limit=body.limit), None)
        return await call.do(lambda: as_json(finish(), View(limit=body.limit), None))


def run_sql(call: Call, body: SqlRequest) -> bytes:
    """The first rows of a query, as JSON."""
    call.house.gate.check_budget(call.caller)
    with charged(call):
        result = call.app.sql(
            call.dataset(body.dataset),
            body.query,
            limits=lower(call.app.settings.limits, body.limits) if body.limits else None,
            thread_id=call.thread(body.thread_id),
            record=_is_recorded(call, body),
        )
        return as_json(result, View(limit=body.limit), None)


def _is_recorded(call: Call, body: SqlRequest) -> bool:
    return body.record and call.app.settings.record


async def is_small(query: Begun, timeout_s: float) -> bool:
    """Wait for an answer, or for its time to end; whether it can be read in a moment."""
    loop = asyncio.get_running_loop()
    there, place = loop.create_future(), query.engine.fileno()

    def decide(came: bool) -> None:
        if not there.done():  # both may be due in the same turn of the loop
            there.set_result(came)

    late = loop.call_later(timeout_s, decide, False)
    loop.add_reader(place, decide, True)
    try:
        return await there and query.engine.has_small_answer()
    finally:
        late.cancel()
        loop.remove_reader(place)


@contextlib.contextmanager
def charged(call: Call) -> Iterator[None]:
    """Add the time that the block takes to the day of the caller's key."""
    started = time.perf_counter()
    try:
        yield
    finally:
        if call.caller.key is not None:
            call.house.identity.spend(call.caller.key.id, Spent(seconds=time.perf_counter() - started))


@router.post("/ask", response_model=Answered)
async def ask(call: AnalystCall, body: Question) -> Answered:
    """Have a question answered and wait for it."""
    run_id = await begin_answer(call, body.dataset, body.question, body.thread_id, body.model, body.budget)
    run = await wait_for(call, run_id)
    return await call.do(answer_of, call, run)


@router.post("/log", status_code=201, response_model=Report)
async def log(call: AnalystCall, body: ReportRequest) -> Report:
    """Tell what was asked, what was done, and whether it worked."""
    return await call.look(add_report, call, body)


def add_report(call: Call, body: ReportRequest) -> Report:
    """Keep a report; the dataset and the run that it names must be there."""
    if body.dataset is not None:
        call.dataset(body.dataset)
    if body.run_id is not None:
        call.app.store.run(body.run_id)
    return call.house.identity.add_report(call.caller.tenant, body.model_dump())


@router.get("/log", response_model=Listing[Report])
async def list_reports(
    call: ReaderCall, limit: Annotated[int, Query(ge=1, le=500)] = 50, cursor: str | None = None
) -> Listing[Report]:
    """What was told, newest first."""
    page = await call.look(call.house.identity.reports, call.caller.tenant, limit, cursor)
    return Listing(items=page.items, next=page.next)


@router.get("/playbooks", response_model=Listing[PlaybookSummary])
async def list_playbooks(call: ReaderCall) -> Listing[PlaybookSummary]:
    """Lessons to look at before complex work."""
    found = await call.look(read_playbooks, call.app.settings.home, call.caller.tenant)
    return Listing(items=[PlaybookSummary(name=p.name, description=p.description, text=p.text) for p in found])
