"""Routes for chat: a message in a thread is answered whole or as a stream, and cancelled if its client leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ValidationError

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.event_streams import DOCUMENTED, HEARTBEAT_S, EventStream, LastEventId, format_server_sent_event
from etude.api.json_route import JsonRoute
from etude.api.runs import start_requested_run
from etude.api.schemas import AskedBudget, ChatMessage, RunRequest
from etude.api.server_state import RETRY_S
from etude.entities import ENDED, STOPPED, AnswerBody, Run
from etude.errors import EtudeError, Invalid, Unavailable
from etude.events import (
    Entry,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunQueued,
    RunResumed,
    RunStarted,
    RunWaiting,
    StepFinished,
    StepStarted,
    TextDelta,
)
from etude.runtime.answer import answer_to_body
from etude.runtime.tool_context import tool_text_without_quotes
from etude.validation import explain_validation

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

SHOWN_ROWS = 100
"""Result rows in an answer; the run keeps all of them."""
WAIT_S = 60.0
"""How much longer than its time budget to wait for a run."""
_EVENT_ID = re.compile(r"(\d{1,10})(?:\.(\d{1,3}))?")
router = APIRouter(tags=["chat"], route_class=JsonRoute)


@router.post("/chat", response_model=AnswerBody)
async def chat(call: AnalystCall, body: ChatMessage) -> AnswerBody:
    """Send a message in a thread and wait for the answer."""
    run_id = await begin_chat_answer(call, body.dataset, body.message, body.thread_id, body.model, fresh=body.fresh)
    with cancel_chat_if_client_leaves(call, run_id, body.cancel_on_disconnect):
        run = await wait_for_chat_answer(call, run_id)
    return await call.run_in_thread(make_chat_answer, call, run)


@router.post("/chat/stream", responses={200: DOCUMENTED[200]}, response_class=Response)
async def chat_stream(call: AnalystCall, body: ChatMessage) -> Response:
    """Send a message in a thread; stream status, token, tool_call, tool_result, result and done events.

    If the stream breaks, resume it at `/chat/stream/{run_id}`.
    """
    run_id = await begin_chat_answer(call, body.dataset, body.message, body.thread_id, body.model, fresh=body.fresh)
    left = cancel_chat_on_leave(call, run_id) if body.cancel_on_disconnect else None
    return EventStream(call, send_chat(call, run_id, 0, 0), left)


@router.get("/chat/stream/{run_id}", responses=DOCUMENTED, response_class=Response)
async def chat_again(
    call: ReaderCall,
    run_id: str,
    after: Annotated[str, Query(max_length=20, description="The last event id received.")] = "",
    last_event_id: LastEventId = None,
) -> Response:
    """Resume the stream of an answer after the last event received."""
    seq, skip = _parse_event_id(last_event_id or after)
    run = await call.access_store(call.app.store.run, run_id)
    if run.status in ENDED and run.seq <= seq and not skip:
        return Response(status_code=204)
    return EventStream(call, send_chat(call, run_id, seq, skip))


async def begin_chat_answer(
    call: ApiCall,
    dataset: str | None,
    text: str,
    thread_id: str | None,
    model: str | None,
    budget: AskedBudget | None = None,
    fresh: bool = False,
) -> str:
    """Start to answer a question in the background; return the id of its run."""
    try:
        asked = RunRequest(
            kind="ask", text=text, dataset=dataset, thread_id=thread_id, model=model, budget=budget, fresh=fresh
        )
    except ValidationError as error:  # other APIs accept more texts than runs can store
        raise explain_validation(error, "the question", model=RunRequest) from None
    return await start_requested_run(call, asked)


async def wait_for_chat_answer(call: ApiCall, run_id: str, beyond: int = 0) -> Run:
    """Wait until the run has stopped, a little longer than its time budget allows, and return it."""
    longest = call.app.settings.budget.wall_s + WAIT_S
    watcher = call.server.run_watcher
    run = await watcher.wait_until_stopped(call.app.store, run_id, call.access_store, longest, beyond)
    if watcher.closed and not (run.status in STOPPED and run.seq > beyond):
        raise Unavailable(
            "The server was shut down before the answer was ready.",
            hint=f"The run resumes when the server starts again: GET /api/runs/{run_id}.",
            run_id=run_id,
            retry_after_s=RETRY_S,
        )
    return run


@contextlib.contextmanager
def cancel_chat_if_client_leaves(call: ApiCall, run_id: str, wanted: bool) -> Iterator[None]:
    """If `wanted`, cancel the run if the client disconnects while the block runs."""
    if not wanted:
        yield
        return

    async def wait() -> None:
        await call.disconnected()
        with contextlib.suppress(EtudeError):
            await call.run_in_thread(call.app.runs.cancel, run_id)

    watcher = asyncio.create_task(wait())
    try:
        yield
    finally:
        watcher.cancel()


def cancel_chat_on_leave(call: ApiCall, run_id: str) -> Callable[[], None]:
    """Return a callback that cancels the run in a thread, because the task that calls it may be ending itself."""

    def cancel() -> None:
        with contextlib.suppress(EtudeError):
            call.app.runs.cancel(run_id)

    def leave() -> None:
        asyncio.get_running_loop().run_in_executor(None, cancel)

    return leave


def make_chat_answer(call: ApiCall, run: Run) -> AnswerBody:
    """Return the answer of a run as JSON, or raise the error of a run that failed."""
    return answer_to_body(call.app.runs.answer_of(run).require(), SHOWN_ROWS)


# The stream.


async def send_chat(call: ApiCall, run_id: str, after: int, skip: int) -> AsyncGenerator[bytes, None]:
    """Yield the server-sent events of an answer after a position, until the run ends, waits or is paused."""
    yield b"retry: 1000\n\n"
    async for name, event in chat_events(call, run_id, after, skip):
        if event is None:
            yield b": still here\n\n"
        else:
            yield format_server_sent_event(json.dumps(event, ensure_ascii=False), name, event["type"])


async def chat_events(
    call: ApiCall, run_id: str, after: int = 0, skip: int = 0
) -> AsyncGenerator[tuple[str, dict[str, Any] | None], None]:
    """Yield events with their ids, and None as a heartbeat; skip the first `skip` events of the next entry."""
    run = await call.access_store(call.app.store.run, run_id)
    tools = {step.id: step.code for step in run.steps if step.kind == "tool"}
    follow = call.server.run_watcher.follow(call.app.store, {run_id: after}, call.access_store, HEARTBEAT_S)
    async with contextlib.aclosing(follow) as batches:  # type: ignore[type-var]
        async for entries in batches:
            if entries is None:
                yield "", None
                continue
            for entry in entries:
                found = await call.run_in_thread(to_chat_events, call, entry, tools)
                for number, event in enumerate(found, 1):
                    if number > skip:
                        yield f"{entry.seq}" if number == len(found) else f"{entry.seq}.{number}", event
                skip = 0
                if found and found[-1]["type"] == "done":
                    return


def to_chat_events(call: ApiCall, entry: Entry, tools: dict[str, str]) -> list[dict[str, Any]]:
    """Return the chat events of a log entry: usually one or none."""
    match entry.event:
        case RunQueued(thread_id=thread_id):
            return [{"type": "status", "status": "queued", "run_id": entry.run_id, "thread_id": thread_id}]
        case RunStarted() | RunResumed():
            return [{"type": "status", "status": "running", "run_id": entry.run_id}]
        case RunWaiting(question=question, choices=choices):
            status = {"type": "status", "status": "waiting", "run_id": entry.run_id}
            return [status | {"question": question, "choices": choices}, _done(entry, "waiting")]
        case RunPaused():
            return [{"type": "status", "status": "paused", "run_id": entry.run_id}, _done(entry, "paused")]
        case TextDelta(text=text, restart=restart):
            return [{"type": "token", "text": text, "restart": restart}]
        case StepStarted(kind="tool") as step:
            tools[step.step_id] = step.code
            tool_call = {"type": "tool_call", "id": step.step_id, "name": step.code}
            return [tool_call | {"arguments": step.params.get("arguments", "")}]
        case StepFinished() as step if step.step_id in tools:
            result = step.result.model_dump(mode="json") if step.result else None
            facts = {"type": "tool_result", "id": step.step_id, "name": tools[step.step_id], "outcome": step.outcome}
            seen = tool_text_without_quotes(step.shown) if step.shown is not None else None
            return [facts | {"text": seen, "result": result, "error": step.error}]
        case RunFinished():
            answer = make_chat_answer(call, call.app.store.run(entry.run_id))
            return [{"type": "result"} | answer.model_dump(mode="json"), _done(entry, "succeeded")]
        case RunFailed(error=error):
            return [_done(entry, "failed") | {"error": error}]
        case RunCancelled():
            return [_done(entry, "cancelled")]
        case _:
            return []


def _done(entry: Entry, status: str) -> dict[str, Any]:
    return {"type": "done", "status": status, "run_id": entry.run_id}


def _parse_event_id(text: str) -> tuple[int, int]:
    """Parse an event id: the last entry received in full, and how many events of the next entry were received."""
    if not text:
        return 0, 0
    found = _EVENT_ID.fullmatch(text)
    if found is None:
        raise Invalid(f"`{text[:40]}` is not the id of an event of this stream.", hint="Send the last one received.")
    return (int(found[1]) - 1, int(found[2])) if found[2] else (int(found[1]), 0)
