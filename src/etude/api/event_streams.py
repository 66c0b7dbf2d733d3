"""Server-sent events: the entries of runs as they happen, with ids to resume from."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from etude.api.api_call import ReaderCall
from etude.api.json_route import JsonRoute, is_small
from etude.entities import ENDED, Run
from etude.errors import Invalid
from etude.events import Entry

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

HEARTBEAT_S = 15.0
RUNS = 50
"""The most runs that one stream may follow."""
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
SCHEMA = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
"""One event of a stream, as OpenAPI describes it; `data` is JSON, whose `type` is also the `event`."""
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events as they happen.", "content": {"text/event-stream": {"schema": SCHEMA}}},
    204: {"description": "The runs have ended and no newer events exist: do not reconnect."},
}
_POSITION = re.compile(r"(?P<run>[\w-]{1,100}):(?P<seq>\d{1,10})")

LastEventId = Annotated[str | None, Header(description="The last id received; browsers send it themselves.")]
router = APIRouter(tags=["streams"], route_class=JsonRoute)


class EventStream(StreamingResponse):
    """A stream of server-sent events. It counts toward the caller's limit of streams until it ends.

    It ends early if the caller's key is revoked or expires, or its browser session ends. `left` is called if the
    client disconnects before the events end.
    """

    media_type = "text/event-stream"

    def __init__(
        self, call: ApiCall, events: AsyncGenerator[bytes, None], left: Callable[[], None] | None = None
    ) -> None:
        self._held = ExitStack()
        call.slot.close()
        self._held.enter_context(call.server.access_control.limit_concurrency(call.caller, "stream"))
        self._events = _while_admitted(call, events)
        self._left = left
        super().__init__(self._events, headers=HEADERS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send until the events end or the client disconnects, then release everything."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._held.close()
            if self._left is not None:
                self._left()
            await self._events.aclose()

    async def stream_response(self, send: Any) -> None:
        """Send all events."""
        await super().stream_response(send)
        self._left = None


async def _while_admitted(call: ApiCall, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield events, each only if the caller would still be let in. A stream without events has heartbeats."""
    async with contextlib.aclosing(events):
        async for piece in events:
            if not await call.is_admitted():
                return
            yield piece


def format_server_sent_event(data: str, name: str, kind: str) -> bytes:
    """Format one event: the id to resume after it, its type, and its JSON in one line of `data`."""
    return f"id: {name}\nevent: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


def format_stream_entry(entry: Entry) -> str:
    """Format an entry as one flat JSON object: `run_id`, `seq`, `at`, and the event with its `type`."""
    head = f'{{"run_id":"{entry.run_id}","seq":{entry.seq},"at":"{entry.at.isoformat()}",'
    return head + entry.event.model_dump_json()[1:]


async def send_stream_entries(call: ApiCall, after: dict[str, int], many: bool) -> AsyncGenerator[bytes, None]:
    """Yield the entries of runs after those positions, until all runs have ended."""
    yield b"retry: 1000\n\n"
    sent = dict(after)
    async for entries in call.server.run_watcher.follow(call.app.store, after, call.access_store, HEARTBEAT_S):
        if entries is None:
            yield b": still here\n\n"
            continue
        write = partial(_write_entries, entries, sent, many)
        yield write() if is_small([entry.event for entry in entries]) else await call.compute(write)


def _write_entries(entries: Sequence[Entry], sent: dict[str, int], many: bool) -> bytes:
    """Write entries as events, and note in `sent` the last seq of each run."""
    pieces = []
    for entry in entries:
        sent[entry.run_id] = entry.seq
        name = format_event_positions(sent) if many else str(entry.seq)
        pieces.append(format_server_sent_event(format_stream_entry(entry), name, entry.event.type))
    return b"".join(pieces)


def format_event_positions(after: dict[str, int]) -> str:
    """Format the last seq sent of each run as the id of an event."""
    return ";".join(f"{run_id}:{seq}" for run_id, seq in after.items())


def parse_event_positions(text: str) -> dict[str, int]:
    """Parse the text that `format_event_positions` wrote."""
    found = [_POSITION.fullmatch(part) for part in text.split(";")] if text else []
    if not all(found):
        raise Invalid(f"`{text[:200]}` is not the id of an event of this stream.", hint="Send the last one received.")
    return {position["run"]: int(position["seq"]) for position in found if position}


def parse_event_seq(text: str) -> int:
    """Parse an event id of a stream of one run."""
    if not re.fullmatch(r"\d{1,10}", text):
        raise Invalid(f"`{text[:200]}` is not the id of an event of this stream.", hint="Send the last one received.")
    return int(text)


async def open_event_stream(call: ApiCall, after: dict[str, int], many: bool) -> Response:
    """Return a stream of the runs that have more events; 204 if all have ended and were read to the end."""
    left: dict[str, int] = {}
    for run_id, seq in after.items():
        run: Run = await call.access_store(call.app.store.run, run_id)
        if run.status not in ENDED or run.seq > seq:
            left[run_id] = seq
    if not left:
        return Response(status_code=204)
    return EventStream(call, send_stream_entries(call, left, many))


@router.get("/runs/{run_id}/events", responses=DOCUMENTED, response_class=Response)
async def run_events(
    call: ReaderCall,
    run_id: str,
    after: Annotated[int, Query(ge=0, le=1 << 31, description="Only events beyond this seq.")] = 0,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream the events of a run."""
    start = parse_event_seq(last_event_id) if last_event_id else after
    return await open_event_stream(call, {run_id: start}, many=False)


@router.get("/events", responses=DOCUMENTED, response_class=Response)
async def events(
    call: ReaderCall,
    run: Annotated[list[str], Query(min_length=1, max_length=RUNS, description="The runs to follow.")],
    after: Annotated[str, Query(max_length=10_000, description="An id of this stream: `run:seq;run:seq`.")] = "",
    last_event_id: LastEventId = None,
) -> Response:
    """Stream the events of several runs."""
    read = parse_event_positions(last_event_id or after)
    return await open_event_stream(call, {run_id: read.get(run_id, 0) for run_id in run}, many=True)
