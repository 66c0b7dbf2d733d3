"""The gateway for agents: SQL, questions, reports of what worked (`/log`), playbooks and the skill, as JSON."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from etude.api.call import AdminCall, AnalystCall, ReaderCall
from etude.api.chat import begin_answer, make_chat_answer, wait_for_answer
from etude.api.queries import run_sql_request
from etude.api.schemas import (
    Listing,
    PlaybookChange,
    PlaybookRequest,
    QuestionRequest,
    ReportRequest,
    SqlRequest,
)
from etude.entities import AnswerBody, RowPage
from etude.learning.playbooks.summary import (
    PlaybookExposure,
    PlaybookSummary,
    summarise_exposure,
    summarise_playbook,
)
from etude.store.identity import Report

if TYPE_CHECKING:
    from etude.api.call import ApiCall

router = APIRouter(tags=["gateway"])


@router.post("/sql", response_model=RowPage)
async def sql(call: AnalystCall, body: SqlRequest) -> Response:
    """Run a query and return its first rows. If the query is not recorded, it stops when the client disconnects."""
    return Response(await run_sql_request(call, body), media_type="application/json")


@router.post("/ask", response_model=AnswerBody)
async def ask(call: AnalystCall, body: QuestionRequest) -> AnswerBody:
    """Answer a question and wait for the answer."""
    run_id = await begin_answer(call, body.dataset, body.question, body.thread_id, body.model, body.budget, body.fresh)
    run = await wait_for_answer(call, run_id)
    return await call.run_in_thread(make_chat_answer, call, run)


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


class MarkdownResponse(PlainTextResponse):
    """A text in Markdown."""

    media_type = "text/markdown"


@router.get("/skill", response_class=MarkdownResponse)
async def skill(call: ReaderCall) -> MarkdownResponse:
    """Return the SKILL.md that teaches coding agents to use etude."""
    return MarkdownResponse((resources.files("etude") / "skill" / "SKILL.md").read_text("utf-8"))


@router.get("/playbooks", response_model=Listing[PlaybookSummary])
async def list_playbooks(call: ReaderCall, retired: bool = False) -> Listing[PlaybookSummary]:
    """List playbooks: lessons to read before complex work. Retired ones only if asked for."""
    found = await call.access_store(call.app.playbooks.entries)
    return Listing(items=[summarise_playbook(e) for e in found if retired or e.standing.state != "retired"])


@router.post("/playbooks", status_code=201, response_model=PlaybookSummary)
async def add_playbook(call: AdminCall, body: PlaybookRequest) -> PlaybookSummary:
    """Add a playbook, or replace the one of the same name; its effect is then measured anew."""
    return summarise_playbook(await call.access_store(call.app.playbooks.add_text, body.text, body.pin))


@router.get("/playbooks/{playbook}", response_model=PlaybookSummary)
async def show_playbook(call: ReaderCall, playbook: str) -> PlaybookSummary:
    """Return a playbook with its state and its effect."""
    return summarise_playbook(await call.access_store(call.app.playbooks.entry, playbook))


@router.get("/playbooks/{playbook}/history", response_model=Listing[PlaybookChange])
async def playbook_history(call: ReaderCall, playbook: str) -> Listing[PlaybookChange]:
    """List the changes of a playbook, oldest first."""
    found = await call.access_store(call.app.playbooks.history, playbook)
    return Listing(
        items=[PlaybookChange(version=c.version, change=c.change, reason=c.reason, at=c.at, text=c.text) for c in found]
    )


@router.get("/playbooks/{playbook}/exposures", response_model=Listing[PlaybookExposure])
async def playbook_exposures(call: ReaderCall, playbook: str) -> Listing[PlaybookExposure]:
    """List the runs that the current version of a playbook matched, oldest first, and whether each succeeded."""
    found = await call.access_store(call.app.playbooks.exposures, playbook)
    return Listing(items=[summarise_exposure(e) for e in found])


@router.post("/playbooks/{playbook}/pin", response_model=PlaybookSummary)
async def pin_playbook(call: AdminCall, playbook: str) -> PlaybookSummary:
    """Always show a playbook that matches. This also brings back a retired one."""
    return summarise_playbook(await call.access_store(call.app.playbooks.pin, playbook))


@router.post("/playbooks/{playbook}/retire", response_model=PlaybookSummary)
async def retire_playbook(call: AdminCall, playbook: str) -> PlaybookSummary:
    """Never show this version of a playbook again."""
    return summarise_playbook(await call.access_store(call.app.playbooks.retire, playbook))
