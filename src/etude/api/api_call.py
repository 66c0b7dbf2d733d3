"""A request as routes see it: the caller, its role, the app of its tenant, and threads for blocking work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from etude.api.api_caller import ApiCaller
from etude.api.server_state import ServerState, T
from etude.cancellation import Cancellation
from etude.entities import ENDED
from etude.errors import Unavailable
from etude.store.agents import AgentCause
from etude.store.identity import Role

if TYPE_CHECKING:
    from etude.app import App


@dataclass(frozen=True)
class ApiCall:
    """A request, its caller and the app of the caller's tenant."""

    server: ServerState
    caller: ApiCaller
    app: App
    """The app of the caller's tenant."""
    request_id: str
    disconnected: Callable[[], Awaitable[None]]
    """Returns once the client is gone."""
    is_admitted: Callable[[], Awaitable[bool]]
    """Returns whether the caller would still be let in; a stream asks, because its key may be revoked meanwhile."""
    slot: ExitStack
    """Counts this request toward the caller's concurrency limit; a stream releases it and counts as a stream."""
    noted: dict[str, str] = field(default_factory=dict)
    """What the logs and the audit say of the request: `run_id`, `thread_id`, `reason`."""

    def cause(self, reason: str | None) -> AgentCause:
        """Return who calls and why, for events; the audit log gets the reason too."""
        if reason:
            self.noted["reason"] = reason
        return AgentCause(self.caller.name, reason or "")

    async def run_in_thread(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run blocking work in a thread; it may take long."""
        return await self.server.run_in_thread(self.caller.tenant, work, *arguments, **keywords)

    async def run_large(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run blocking work that may take much memory in a thread; few at once."""
        return await self.server.run_large(self.caller.tenant, work, *arguments, **keywords)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run work in a thread that takes a fraction of a second and does not wait for anything; one at a time."""
        return await self.server.compute(self.caller.tenant, work)

    async def run_while_connected(self, work: Callable[[Cancellation], T]) -> T:
        """Run blocking work in a thread, and cancel it if the client disconnects."""
        return await self._cancel_with_client(self.run_in_thread, work)

    async def run_large_while_connected(self, work: Callable[[Cancellation], T]) -> T:
        """Run blocking work that may take much memory in a thread, and cancel it if the client disconnects."""
        return await self._cancel_with_client(self.run_large, work)

    async def _cancel_with_client(self, run: Callable[..., Awaitable[T]], work: Callable[[Cancellation], T]) -> T:
        cancel = Cancellation()

        async def watch() -> None:
            await self.disconnected()
            cancel.cancel()

        watching = asyncio.create_task(watch())
        try:
            return await run(work, cancel)
        finally:
            watching.cancel()

    async def access_store(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a short access to the store in a thread."""
        return await self.server.access_store_for(self.caller.tenant, work, *arguments, **keywords)

    def dataset(self, name: str | None) -> str:
        """Return the name of a dataset of the tenant; with None, of its only one."""
        return self.app.source_name(name)

    def thread(self, thread_id: str | None) -> str | None:
        """Return the id of a thread of the tenant; raise `NotFound` for any other."""
        if thread_id is None:
            return None
        self.noted["thread_id"] = found = self.app.store.thread(thread_id).id
        return found

    def check_capacity(self) -> None:
        """Refuse work if the key has used up its daily quota, or if the server is at capacity."""
        self.server.access_control.check_budget(self.caller)
        limit = self.app.settings.server.runs
        self.server.check_not_draining()
        if len(self.app.runs) >= limit:
            raise Unavailable(
                f"The server is at capacity: it is working on {limit} runs.",
                hint="Wait for one to end, or raise `server.runs`.",
                retry_after_s=2,
            )

    def charge_to_caller(self, run_id: str) -> None:
        """Charge the run's usage to the caller once the run ends: to the key, or to everybody without keys."""
        self.noted["run_id"] = run_id
        self.server.owners[run_id] = self.caller
        run = self.app.store.run(run_id)
        # The run may have ended before its caller was registered.
        if run.status in ENDED and self.server.owners.pop(run_id, None) is not None:
            self.server.access_control.charge(self.caller, run)


def _needs(role: Role) -> Any:
    async def check(request: Request) -> ApiCall:
        call: ApiCall = request.scope["state"]["call"]
        call.caller.require(role)
        return call

    return Depends(check)


async def _any(request: Request) -> ApiCall:
    call: ApiCall = request.scope["state"]["call"]
    return call


AnyCall = Annotated[ApiCall, Depends(_any)]
"""A call to a public route."""
ReaderCall = Annotated[ApiCall, _needs("reader")]
AnalystCall = Annotated[ApiCall, _needs("analyst")]
AdminCall = Annotated[ApiCall, _needs("admin")]
