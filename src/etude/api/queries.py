"""A query of a request: run without a thread where nothing must be waited for, and no longer than its client waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from etude.api.results import View, as_json
from etude.api.runs import lower
from etude.errors import Cancelled
from etude.store.identity import Spent

if TYPE_CHECKING:
    from etude.api.call import Call
    from etude.api.shapes import SqlRequest
    from etude.sources.source import Begun

PATIENCE_S = 0.2
"""How long a request takes before it is looked whether its client still waits."""
SHORT = 8192
"""A longer query might not be sent in a moment."""


async def run_query(call: Call, body: SqlRequest) -> bytes:
    """The first rows of a query, as JSON. Where it is not recorded, it ends with its client."""
    with watching(call) as departure:
        async with call.house.queries:
            departure.check()
            rows = await run_at_once(call, body, departure)
            return rows if rows is not None else await call.do(run_in_thread, call, body, departure)


class Departure:
    """Whether the client of a request has left, for those who work for it alone."""

    def __init__(self) -> None:
        self._left = False
        self._stops: list[Callable[[], None]] = []

    def leave(self) -> None:
        """The client has left: whatever is done for it stops."""
        self._left = True
        for stop in self._stops:
            stop()

    def heed(self, stop: Callable[[], None]) -> None:
        """Have `stop` called when the client leaves."""
        self._stops.append(stop)

    def check(self, *_: object) -> None:
        """Raise where the client has left."""
        if self._left:
            raise Cancelled("The client left before the answer was there.")


@contextlib.contextmanager
def watching(call: Call) -> Iterator[Departure]:
    """Look whether the client still waits while the block runs; from some time on, for most are answered before."""
    departure, watchers = Departure(), []
    loop = asyncio.get_running_loop()

    async def watch() -> None:
        await call.disconnected()
        departure.leave()

    timer = loop.call_later(PATIENCE_S, lambda: watchers.append(loop.create_task(watch())))
    try:
        yield departure
    except asyncio.CancelledError:
        departure.leave()
        raise
    finally:
        timer.cancel()
        for watcher in watchers:
            watcher.cancel()


async def run_at_once(call: Call, body: SqlRequest, departure: Departure) -> bytes | None:
    """Run a query without a thread, which costs more than a small query; None where something must be looked up."""
    limits = lower(call.app.settings.limits, body.limits)
    if _is_recorded(call, body) or body.dataset is None or body.thread_id or call.house.gate.has_budget(call.caller):
        return None
    if len(body.query) > SHORT:
        return None
    begun = call.app.begin_sql(body.dataset, body.query, limits)
    if begun is None:
        return None
    query, finish = begun
    taken = threading.Lock()
    """Whoever has it reads the answer, and lets go of the engine."""

    def read() -> bytes:
        if not taken.acquire(blocking=False):
            raise Cancelled("The request was cancelled.")
        with contextlib.closing(query.answer.batches):  # type: ignore[type-var]
            return as_json(finish(), View(limit=body.limit), None)

    departure.heed(query.answer.cancel)
    with charged(call):
        try:
            return read() if await is_small(query, limits.timeout_s, departure) else await call.do(read)
        except BaseException:
            query.answer.cancel()
            if taken.acquire(blocking=False):
                query.answer.batches.close()  # type: ignore[attr-defined]
            raise


def run_in_thread(call: Call, body: SqlRequest, departure: Departure) -> bytes:
    """Run a query and wait for whatever it takes."""
    call.house.gate.check_budget(call.caller)
    recorded = _is_recorded(call, body)
    with charged(call):
        result = call.app.sql(
            call.dataset(body.dataset),
            body.query,
            limits=lower(call.app.settings.limits, body.limits) if body.limits else None,
            thread_id=call.thread(body.thread_id),
            record=recorded,
            on_progress=None if recorded else departure.check,
        )
        return as_json(result, View(limit=body.limit), None)


def _is_recorded(call: Call, body: SqlRequest) -> bool:
    return body.record and call.app.settings.record


async def is_small(query: Begun, timeout_s: float, departure: Departure) -> bool:
    """Wait for an answer, or for its time to end; whether it can be read in a moment."""
    loop = asyncio.get_running_loop()
    there, place = loop.create_future(), query.engine.fileno()

    def decide(came: bool) -> None:
        if not there.done():  # several may be due in the same turn of the loop
            there.set_result(came)

    late = loop.call_later(timeout_s, decide, False)
    loop.add_reader(place, decide, True)
    departure.heed(lambda: decide(False))
    try:
        came = await there
    finally:
        late.cancel()
        loop.remove_reader(place)
    departure.check()
    return came and query.engine.has_small_answer()


@contextlib.contextmanager
def charged(call: Call) -> Iterator[None]:
    """Add the time that the block takes to the day of the caller's key."""
    started = time.perf_counter()
    try:
        yield
    finally:
        if call.caller.key is not None:
            call.house.identity.spend(call.caller.key.id, Spent(seconds=time.perf_counter() - started))
