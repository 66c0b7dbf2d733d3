"""SQL requests: short ones run without a thread, and a query stops if its client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from etude.api.result_formats import ResultSelection, format_result_as_json
from etude.api.schemas import given_limits
from etude.errors import Cancelled
from etude.fair_share import hold_fair_slot
from etude.limits import lower_limits
from etude.store.identity import Spent

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall
    from etude.api.schemas import SqlRequest
    from etude.sources.source import StartedQuery

SHORT_S = 0.2
"""Seconds after which a query counts as long."""
SHORT_CHARACTERS = 8192
"""The longest query that is sent to an engine without a thread: sending a longer one could block."""


async def run_sql_request(call: ApiCall, body: SqlRequest) -> bytes:
    """Return the first rows of a query as JSON. If the query is not recorded, it stops when the client disconnects."""
    with SqlClientWait(call) as wait:
        async with hold_fair_slot(call.server.queries, call.caller.tenant):
            wait.check()
            rows = await run_sql_request_at_once(call, body, wait)
            return rows if rows is not None else await call.run_in_thread(run_sql_request_blocking, call, body, wait)


class SqlClientWait:
    """A client that waits for its response. Once the query takes longer than `SHORT_S`, its connection is watched."""

    def __init__(self, call: ApiCall) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._watcher: asyncio.Task[None] | None = None
        self._left = False
        self.on_long: Callable[[], None] | None = None
        """Called when the query takes longer than `SHORT_S`."""
        self.on_left: Callable[[], None] | None = None
        """Called when the client disconnects, to stop the work for it."""

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(SHORT_S, self._begin_watch)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if kind is asyncio.CancelledError:
            self._leave()

    @property
    def is_long(self) -> bool:
        """True if the query has taken longer than `SHORT_S`."""
        return self._watcher is not None

    def check(self, *_: object) -> None:
        """Raise `Cancelled` if the client has disconnected."""
        if self._left:
            raise Cancelled("The client disconnected before the answer was ready.")

    def _begin_watch(self) -> None:
        self._watcher = self._loop.create_task(self._watch())
        if self.on_long is not None:
            self.on_long()

    async def _watch(self) -> None:
        await self._call.disconnected()
        self._leave()

    def _leave(self) -> None:
        self._left = True
        if self.on_left is not None:
            self.on_left()


async def run_sql_request_at_once(call: ApiCall, body: SqlRequest, wait: SqlClientWait) -> bytes | None:
    """Run a query without a thread, which would cost more than a small query; None if something must be looked up."""
    if (
        _is_recorded(call, body)
        or body.dataset is None
        or body.thread_id
        or call.server.access_control.has_budget(call.caller)
    ):
        return None
    if len(body.query) > SHORT_CHARACTERS:
        return None
    begun = call.app.begin_sql(
        body.dataset, body.query, lower_limits(call.app.settings.limits, given_limits(body.limits))
    )
    if begun is None:
        return None
    query, finish = begun
    taken = threading.Lock()
    """The holder reads the answer and releases the engine."""

    def read() -> bytes:
        if not taken.acquire(blocking=False):
            raise Cancelled("The request was cancelled.")
        with contextlib.closing(query.stream.batches):  # type: ignore[type-var]
            return format_result_as_json(finish(), ResultSelection(limit=body.limit), None)

    wait.on_left = query.stream.cancel
    with charge_sql_request_time(call):
        try:
            return read() if await has_small_sql_answer(query, wait) else await call.run_in_thread(read)
        except BaseException:
            query.stream.cancel()
            if taken.acquire(blocking=False):
                query.stream.batches.close()  # type: ignore[attr-defined]
            raise


async def has_small_sql_answer(query: StartedQuery, wait: SqlClientWait) -> bool:
    """Wait up to `SHORT_S` for an answer; return True if it is there and small enough to be read at once."""
    loop = asyncio.get_running_loop()
    arrived, fd = loop.create_future(), query.engine.fileno()

    def decide() -> None:
        if not arrived.done():  # both callbacks may run in the same iteration of the loop
            arrived.set_result(None)

    wait.on_long = decide
    loop.add_reader(fd, decide)
    try:
        if not wait.is_long:
            await arrived
    finally:
        loop.remove_reader(fd)
    return query.engine.has_small_answer()


def run_sql_request_blocking(call: ApiCall, body: SqlRequest, wait: SqlClientWait) -> bytes:
    """Run a query and wait for its result."""
    call.server.access_control.check_budget(call.caller)
    recorded = _is_recorded(call, body)
    with charge_sql_request_time(call):
        result = call.app.sql(
            call.dataset(body.dataset),
            body.query,
            limits=lower_limits(call.app.settings.limits, given_limits(body.limits)) if body.limits else None,
            thread_id=call.thread(body.thread_id),
            record=recorded,
            on_progress=None if recorded else wait.check,
        )
        if result.run_id is not None:
            call.noted["run_id"] = result.run_id
        return format_result_as_json(result, ResultSelection(limit=body.limit), None)


def _is_recorded(call: ApiCall, body: SqlRequest) -> bool:
    return body.record and call.app.settings.record


@contextlib.contextmanager
def charge_sql_request_time(call: ApiCall) -> Iterator[None]:
    """Count the duration of the block as work of the caller's today."""
    started = time.perf_counter()
    try:
        yield
    finally:
        call.server.identity.spend(call.caller.name, Spent(seconds=time.perf_counter() - started))
