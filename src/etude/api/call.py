"""One request as routes see it: who called, their etude, and a way to work without holding up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from etude.api.access import AccessControl, Caller
from etude.api.results import SortCache
from etude.api.run_watcher import RunWatcher
from etude.entities import ENDED, Run
from etude.store.identity import ApiKey, Identity, Role
from etude.telemetry import AccessLog, Metrics, Observer, Traces

if TYPE_CHECKING:
    from etude.agents.hub import Hub
    from etude.agents.worker import Worker
    from etude.app import App

T = TypeVar("T")
READERS = 16
"""Threads for what takes no longer than a look into the store; work that takes long has others."""


@dataclass
class ServerState:
    """What all requests share while the server runs."""

    app: App
    identity: Identity
    access_control: AccessControl
    watch: RunWatcher
    metrics: Metrics
    hub: Hub
    """Hands out what agents tell."""
    traces: Traces | None = None
    access: AccessLog | None = None
    worker: Worker | None = None
    """Runs agents in this process."""
    draining: bool = False

    def __post_init__(self) -> None:
        self.workers = anyio.CapacityLimiter(self.app.settings.server.threads)
        self.readers = anyio.CapacityLimiter(READERS)
        # More threads than engines would only wait for one, and for each other.
        self.queries = asyncio.Semaphore(self.app.settings.engine.processes)
        self.owners: dict[str, ApiKey] = {}
        """Whose key began a run that is still open."""
        self.orders = SortCache()
        self.observer = Observer(self.app.store)
        self.observer.show(self.ended)
        # Agents of a tenant work also where nobody of it has called yet.
        for tenant in {key.tenant for key in self.identity.keys()}:  # noqa: SIM118 - no dictionary
            self.observer.watch(tenant)

    def ended(self, run: Run) -> None:
        """See to a run that has ended: count it, charge it, trace it."""
        self.metrics.run_ended(run, self.app.settings.sandbox)
        key = self.owners.pop(run.id, None)
        if key is not None:
            self.access_control.charge(key, run)
        if self.traces is not None:
            self.traces.send(run, key.name if key else None)

    @property
    def at_work(self) -> int:
        """How many runs of all tenants are being worked at, and steps of agents."""
        return self.app.runs_at_work + (self.worker.at_work if self.worker else 0)

    def write_down(self) -> None:
        """Write what was done and spent: to the store, and to the log."""
        if self.access is not None:
            self.access.write()
        self.identity.write_down()

    def close(self) -> None:
        """Put on record what is waiting to be."""
        self.observer.close()
        self.write_down()
        self.identity.write_down(closing=True)
        if self.traces is not None:
            self.traces.close()

    async def do(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run what may take long in a thread."""
        return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.workers)

    async def look(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a look into the store in a thread."""
        return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.readers)


@dataclass(frozen=True)
class ApiCall:
    """A request of a caller."""

    server: ServerState
    caller: Caller
    app: App
    """etude as the caller's tenant sees it."""
    request_id: str
    disconnected: Callable[[], Awaitable[None]]
    """Returns once the client is gone."""
    slot: ExitStack
    """The caller's place among those at work; a stream gives it back for one among the streams."""

    async def do(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run what may take long in a thread."""
        return await self.server.do(work, *arguments, **keywords)

    async def look(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a look into the store in a thread."""
        return await self.server.look(work, *arguments, **keywords)

    def dataset(self, name: str | None) -> str:
        """The name of a dataset of the tenant, or of its only one."""
        return self.app.source_name(name)

    def thread(self, thread_id: str | None) -> str | None:
        """A thread of the tenant."""
        return None if thread_id is None else self.app.store.thread(thread_id).id

    def own(self, run_id: str) -> None:
        """Remember who began a run, so that what it uses is charged once it ends."""
        key = self.caller.key
        if key is None:
            return
        self.server.owners[run_id] = key
        run = self.app.store.run(run_id)
        # It may have ended before it was known whose it is.
        if run.status in ENDED and self.server.owners.pop(run_id, None) is not None:
            self.server.access_control.charge(key, run)


def mark_secret(scope: MutableMapping[str, Any]) -> None:
    """Say that the answer to this request holds a secret, so that nobody keeps it."""
    scope["state"]["secret"] = True


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
"""A call to a route that is open to all."""
ReaderCall = Annotated[ApiCall, _needs("reader")]
AnalystCall = Annotated[ApiCall, _needs("analyst")]
AdminCall = Annotated[ApiCall, _needs("admin")]
