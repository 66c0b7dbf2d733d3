"""A request as routes see it: the caller, the app of its tenant, threads for blocking work, and ETags."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request, Response

from etude.api.access import AccessControl, Caller
from etude.api.result_reader import ResultReader
from etude.api.run_watcher import RunWatcher
from etude.api.sandbox_probe import SandboxProbe
from etude.entities import ENDED, Run
from etude.errors import Unavailable
from etude.fair_share import FairShare, hold_slot
from etude.store.agents import Cause
from etude.store.identity import Identity, Role
from etude.telemetry import AccessLog, Metrics, Observer, Traces

if TYPE_CHECKING:
    from etude.agents.hub import Hub
    from etude.agents.worker import Worker
    from etude.app import App

T = TypeVar("T")
READERS = 16
"""Threads for short store access; long work has its own threads."""


@dataclass
class ServerState:
    """The state that all requests share while the server runs."""

    app: App
    identity: Identity
    access_control: AccessControl
    run_watcher: RunWatcher
    metrics: Metrics
    hub: Hub
    """Delivers the events of agents."""
    traces: Traces | None = None
    access: AccessLog | None = None
    worker: Worker | None = None
    """Runs agents in this process, unless None."""
    draining: bool = False

    def __post_init__(self) -> None:
        threads = self.app.settings.server.threads
        self.shares = FairShare(threads)
        # A fair share may exceed its size, for tenants that hold less than theirs.
        self.workers = anyio.CapacityLimiter(2 * threads)
        self.readers = anyio.CapacityLimiter(READERS)
        # More threads than engines would only wait for an engine.
        self.queries = FairShare(self.app.settings.engine.processes)
        self.owners: dict[str, Caller] = {}
        """The caller that each open run is charged to, by run id."""
        self.result_reader = ResultReader(self.app)
        self.sandbox_probe = SandboxProbe(self.app)
        self.observer = Observer(self.app.store)
        self.observer.show(self.ended)
        # A tenant's agents may run before its first request.
        for tenant in {key.tenant for key in self.identity.keys()}:  # noqa: SIM118 - no dictionary
            self.observer.watch(tenant)

    def ended(self, run: Run) -> None:
        """Count, charge and trace a run that has ended."""
        self.metrics.run_ended(run, self.app.settings.sandbox)
        caller = self.owners.pop(run.id, None)
        if caller is not None:
            self.access_control.charge(caller, run)
        if self.traces is not None:
            self.traces.send(run, caller.key.name if caller and caller.key else None)

    @property
    def at_work(self) -> int:
        """The number of runs and agent steps in progress, of all tenants."""
        return self.app.runs_at_work + (self.worker.at_work if self.worker else 0)

    def flush(self) -> None:
        """Write the buffered audit entries and usage to the store, and the access log to its file."""
        if self.access is not None:
            self.access.write()
        self.identity.write_down()

    def close(self) -> None:
        """Write everything that is buffered."""
        self.observer.close()
        self.result_reader.close()
        self.flush()
        self.identity.write_down(closing=True)
        if self.traces is not None:
            self.traces.close()

    async def run_in_thread(self, tenant: str, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run blocking work of a tenant in a thread; it may take long."""
        async with hold_slot(self.shares, tenant):
            return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.workers)

    async def access_store(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a short access to the store in a thread."""
        return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.readers)


@dataclass(frozen=True)
class ApiCall:
    """A request, its caller and the app of the caller's tenant."""

    server: ServerState
    caller: Caller
    app: App
    """The app of the caller's tenant."""
    request_id: str
    disconnected: Callable[[], Awaitable[None]]
    """Returns once the client is gone."""
    slot: ExitStack
    """Counts this request toward the caller's concurrency limit; a stream releases it and counts as a stream."""
    noted: dict[str, str] = field(default_factory=dict)
    """What the logs and the audit say of the request: `run_id`, `thread_id`, `reason`."""

    def cause(self, reason: str | None) -> Cause:
        """Return who calls and why, for events; the audit log gets the reason too."""
        if reason:
            self.noted["reason"] = reason
        return Cause(self.caller.name, reason or "")

    async def run_in_thread(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run blocking work in a thread; it may take long."""
        return await self.server.run_in_thread(self.caller.tenant, work, *arguments, **keywords)

    async def access_store(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a short access to the store in a thread."""
        return await self.server.access_store(work, *arguments, **keywords)

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
        if self.server.draining:
            raise Unavailable("The server is shutting down.", hint="Try again in a moment.")
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


def mark_response_secret(scope: MutableMapping[str, Any]) -> None:
    """Mark the response as secret, so that it is not kept for replay."""
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
"""A call to a public route."""
ReaderCall = Annotated[ApiCall, _needs("reader")]
AnalystCall = Annotated[ApiCall, _needs("analyst")]
AdminCall = Annotated[ApiCall, _needs("admin")]


def respond_with_etag(body: Any, tag: str, known: str | None, response: Response) -> Any:
    """Return the body with its ETag, or 304 if the caller has it already."""
    if known is not None and tag in [part.strip().removeprefix("W/") for part in known.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return body
