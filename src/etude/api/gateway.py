"""The gateway for agents: SQL, questions, reports of what worked, and playbooks, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response

from etude.api.call import AnalystCall, ReaderCall
from etude.api.chat import answer_of, begin_answer, wait_for
from etude.api.queries import run_query
from etude.api.schemas import Listing, PlaybookSummary, QuestionRequest, ReportRequest, SqlRequest
from etude.entities import AnswerBody, RowPage
from etude.playbook import read_playbooks
from etude.store.identity import Report

if TYPE_CHECKING:
    from etude.api.call import ApiCall

router = APIRouter(tags=["gateway"])


@router.post("/sql", response_model=RowPage)
async def sql(call: AnalystCall, body: SqlRequest) -> Response:
    """Run a query and return its first rows. If the query is not recorded, it stops when the client disconnects."""
    return Response(await run_query(call, body), media_type="application/json")


@router.post("/ask", response_model=AnswerBody)
async def ask(call: AnalystCall, body: QuestionRequest) -> AnswerBody:
    """Answer a question and wait for the answer."""
    run_id = await begin_answer(call, body.dataset, body.question, body.thread_id, body.model, body.budget, body.fresh)
    run = await wait_for(call, run_id)
    return await call.run_in_thread(answer_of, call, run)


@router.post("/log", status_code=201, response_model=Report)
async def log(call: AnalystCall, body: ReportRequest) -> Report:
    """Report what was asked, what was done, and whether it worked."""
    return await call.access_store(add_report, call, body)


def add_report(call: ApiCall, body: ReportRequest) -> Report:
    """Store a report; raise if the dataset or the run that it names does not exist."""
    if body.dataset is not None:
        call.dataset(body.dataset)
    if body.run_id is not None:
        call.app.store.run(body.run_id)
    return call.server.identity.add_report(call.caller.tenant, body.model_dump())


@router.get("/log", response_model=Listing[Report])
async def list_reports(
    call: ReaderCall, limit: Annotated[int, Query(ge=1, le=500)] = 50, cursor: str | None = None
) -> Listing[Report]:
    """List reports, newest first."""
    page = await call.access_store(call.server.identity.reports, call.caller.tenant, limit, cursor)
    return Listing(items=page.items, next=page.next)


@router.get("/playbooks", response_model=Listing[PlaybookSummary])
async def list_playbooks(call: ReaderCall) -> Listing[PlaybookSummary]:
    """List playbooks: lessons to read before complex work."""
    found = await call.access_store(read_playbooks, call.app.settings.home, call.caller.tenant)
    return Listing(items=[PlaybookSummary(name=p.name, description=p.description, text=p.text) for p in found])
