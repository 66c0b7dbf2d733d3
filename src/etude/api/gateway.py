"""The gateway for agents: SQL and questions as JSON, and the skill as Markdown."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.chat import begin_chat_answer, make_chat_answer, wait_for_chat_answer
from etude.api.json_route import JsonRoute
from etude.api.schemas import (
    QuestionRequest,
    SqlRequest,
)
from etude.api.sql_requests import run_sql_request
from etude.entities import AnswerBody, RowPage

router = APIRouter(tags=["gateway"], route_class=JsonRoute)


@router.post("/sql", response_model=RowPage)
async def gateway_sql(call: AnalystCall, body: SqlRequest) -> Response:
    """Run a query and return its first rows. If the query is not recorded, it stops when the client disconnects."""
    return Response(await run_sql_request(call, body), media_type="application/json")


@router.post("/ask", response_model=AnswerBody)
async def gateway_ask(call: AnalystCall, body: QuestionRequest) -> AnswerBody:
    """Answer a question and wait for the answer."""
    run_id = await begin_chat_answer(
        call, body.dataset, body.question, body.thread_id, body.model, body.budget, body.fresh
    )
    run = await wait_for_chat_answer(call, run_id)
    return await call.run_in_thread(make_chat_answer, call, run)


class MarkdownResponse(PlainTextResponse):
    """A text in Markdown."""

    media_type = "text/markdown"


@router.get("/skill", response_class=MarkdownResponse)
async def gateway_skill(call: ReaderCall) -> MarkdownResponse:
    """Return the SKILL.md that teaches coding agents to use etude."""
    return MarkdownResponse((resources.files("etude") / "skill" / "SKILL.md").read_text("utf-8"))
