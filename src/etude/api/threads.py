"""Routes for threads: conversations and their messages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.json_route import JsonRoute
from etude.api.responses import respond_in_pieces
from etude.api.schemas import ForkRequest, Listing, ThreadRequest
from etude.entities import Message, Thread

PAGE_CHARS = 4_000_000
"""Characters of text in a page of messages."""
router = APIRouter(tags=["threads"], route_class=JsonRoute)


@router.get("/threads", response_model=Listing[Thread])
async def list_threads(
    call: ReaderCall, limit: Annotated[int, Query(ge=1, le=500)] = 50, cursor: str | None = None
) -> Listing[Thread]:
    """List threads, the most recently updated first."""
    page = await call.access_store(call.app.store.threads, limit, cursor)
    return Listing(items=page.items, next=page.next)


@router.post("/threads", status_code=201, response_model=Thread)
async def create_thread(call: AnalystCall, body: ThreadRequest) -> Thread:
    """Create a thread without messages."""
    source = await call.access_store(call.dataset, body.dataset) if body.dataset is not None else None
    await call.access_store(call.app.store.check_storage)
    return await call.access_store(call.app.store.create_thread, body.title, source)


@router.get("/threads/{thread_id}", response_model=Thread)
async def show_thread(call: ReaderCall, thread_id: str) -> Thread:
    """Return a thread."""
    return await call.access_store(call.app.store.thread, thread_id)


@router.get("/threads/{thread_id}/messages", response_model=Listing[Message])
async def list_thread_messages(
    call: ReaderCall,
    thread_id: str,
    after: Annotated[int, Query(ge=0, le=1 << 31, description="Only messages beyond this seq.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Listing[Message]:
    """List the messages of a thread, in order. `next` is the value of `after` for the next page.

    A page has at most 4 million characters of text, so it may be shorter than `limit`.
    """
    found, more = await call.access_store(call.app.store.message_page, thread_id, after, limit, PAGE_CHARS)
    return Listing(items=found, next=str(found[-1].seq) if more else None)


@router.get("/threads/{thread_id}/export", response_model=dict[str, Any])
async def export_thread(call: ReaderCall, thread_id: str) -> Response:
    """Export a thread with its messages and runs."""
    from etude.runtime.thread import write_thread

    thread = await call.access_store(call.app.store.thread, thread_id)
    return await respond_in_pieces(call, write_thread(call.app.store, thread))


@router.get("/threads/{thread_id}/script", response_class=PlainTextResponse)
async def thread_script(call: ReaderCall, thread_id: str) -> PlainTextResponse:
    """Return the cells and queries of a thread as a Python script that was executed alone, or says why not."""
    await call.access_store(call.app.store.thread, thread_id)
    return PlainTextResponse(await call.run_large(call.app.thread_script, thread_id), media_type="text/x-python")


@router.post("/threads/{thread_id}/fork", status_code=201, response_model=Thread)
async def fork_thread(call: AnalystCall, thread_id: str, body: ForkRequest | None = None) -> Thread:
    """Copy a thread with its messages; with `until`, only the messages up to that one."""
    from etude.runtime.thread import fork_thread as fork

    return await call.run_in_thread(fork, call.app.store, thread_id, body.until if body else None)


@router.delete("/threads/{thread_id}", status_code=204, response_class=Response)
async def delete_thread(call: AnalystCall, thread_id: str) -> Response:
    """Delete a thread and its messages, and close its session; its runs stay."""
    await call.access_store(call.app.store.delete_thread, thread_id)
    await call.run_in_thread(call.app.session_pool.forget, thread_id)
    return Response(status_code=204)
