"""The state of a server: its app, its background work and its threads for blocking work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from etude.api.access_control import AccessControl
from etude.api.api_caller import ApiCaller
from etude.api.recent_findings import RecentFindings
from etude.api.result_reader import ResultReader
from etude.api.run_watcher import RunWatcher
from etude.api.sandbox_probe import SandboxProbe
from etude.api.upload_body import ArrivingUploads
from etude.entities import Run
from etude.errors import Unavailable
from etude.fair_share import FairShare, hold_fair_slot
from etude.store.identity import Identity
from etude.telemetry import TelemetryAccessLog, TelemetryMetrics, TelemetryObserver, TelemetryTraces

if TYPE_CHECKING:
    from etude.agents.hub import Hub
    from etude.agents.worker import Worker
    from etude.app import App


T = TypeVar("T")


RETRY_S = 2
"""Seconds after which a client should repeat a request that a shutdown refused or ended."""
PROBE_S = 5.0
"""How long `/readyz` and `/metrics` wait for a part."""
READERS = 16
"""Threads for short store access by the server, and as many for tenants; long work has its own threads."""
LARGE = 2
"""How many requests that read a tenant's long texts are computed at once; others wait."""


@dataclass
class ServerState:
    """The state that all requests share while the server runs."""

    app: App
    identity: Identity
    access_control: AccessControl
    run_watcher: RunWatcher
    metrics: TelemetryMetrics
    hub: Hub
    """Delivers the events of agents."""
    traces: TelemetryTraces | None = None
    access: TelemetryAccessLog | None = None
    worker: Worker | None = None
    """Runs agents in this process, unless None."""
    draining: bool = False
    """True once the server shuts down: it finishes requests in flight, and begins no new work."""
    stopped: bool = False
    """True once the time for requests in flight is over."""

    def __post_init__(self) -> None:
        threads = self.app.settings.server.threads
        self.shares = FairShare(threads)
        # A fair share may exceed its size, for tenants that hold less than theirs.
        self.workers = anyio.CapacityLimiter(2 * threads)
        self.readers = anyio.CapacityLimiter(READERS)
        self.reads = FairShare(READERS)
        self.tenant_readers = anyio.CapacityLimiter(2 * READERS)
        self.probes = anyio.CapacityLimiter(READERS)
        # More threads than engines would only wait for an engine.
        self.queries = FairShare(self.app.settings.engine.processes)
        self.large = FairShare(LARGE)
        # Work that holds the interpreter: two at once would only make the event loop wait longer.
        self.computing = FairShare(1)
        self.findings = RecentFindings()
        self.requests: set[asyncio.Task[Any]] = set()
        """The tasks of requests in flight that a shutdown waits for."""
        self.owners: dict[str, ApiCaller] = {}
        """The caller that each open run is charged to, by run id."""
        self.uploads = ArrivingUploads()
        self.result_reader = ResultReader(self.app)
        self.sandbox_probe = SandboxProbe(self.app)
        self.observer = TelemetryObserver(self.app.store)
        self.observer.show(self.ended)
        # A tenant's agents may run before its first request.
        for tenant in {key.tenant for key in self.identity.keys()}:  # noqa: SIM118 - no dictionary
            self.observer.watch(tenant)

    def ended(self, run: Run) -> None:
        """Count, charge and trace a run that has ended."""
        # First what must not be lost if the numbers of a provider are such that no metric takes them.
        caller = self.owners.pop(run.id, None)
        if caller is not None:
            self.access_control.charge(caller, run)
        self.metrics.run_ended(run, self.app.settings.sandbox)
        if self.traces is not None:
            self.traces.send(run, caller.key.name if caller and caller.key else None)

    @property
    def at_work(self) -> int:
        """The number of runs, agent steps and requests in progress, of all tenants."""
        return self.app.runs_at_work + (self.worker.at_work if self.worker else 0) + len(self.requests)

    def check_not_draining(self) -> None:
        """Raise if the server shuts down: another server, or this one after its restart, does the work."""
        if self.draining:
            raise Unavailable("The server is shutting down.", hint="Try again in a moment.", retry_after_s=RETRY_S)

    def stop_requests(self) -> None:
        """End the requests in flight. The middleware responds with 503 to each that has no response yet."""
        self.stopped = True
        for task in self.requests:
            task.cancel()

    def flush(self) -> None:
        """Write the buffered audit entries and usage to the store, and the access log to its file."""
        try:
            if self.access is not None:
                self.access.write()
        finally:  # a log that cannot be written must not stop the audit
            self.identity.write_down()

    def close(self) -> None:
        """Write everything that is buffered."""
        self.observer.close()
        self.result_reader.close()
        try:
            self.flush()
        finally:
            if self.traces is not None:
                self.traces.close()
            self.identity.write_down(closing=True)

    async def run_in_thread(self, tenant: str, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run blocking work of a tenant in a thread; it may take long."""
        async with hold_fair_slot(self.shares, tenant):
            return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.workers)

    async def run_large(self, tenant: str, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run blocking work of a tenant that may take much memory in a thread; few at once."""
        async with hold_fair_slot(self.large, tenant):
            return await self.run_in_thread(tenant, work, *arguments, **keywords)

    async def access_store(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a short access of the server itself to the store in a thread, such as looking up a key."""
        return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.readers)

    async def access_store_for(self, tenant: str, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a short access of a tenant to the store in a thread; others do not wait for it if it takes long."""
        async with hold_fair_slot(self.reads, tenant):
            return await anyio.to_thread.run_sync(partial(work, *arguments, **keywords), limiter=self.tenant_readers)

    async def compute(self, tenant: str, work: Callable[[], T]) -> T:
        """Run work of a tenant in a thread that takes a fraction of a second and does not wait for anything."""
        async with hold_fair_slot(self.computing, tenant):
            return await anyio.to_thread.run_sync(work, limiter=self.tenant_readers)

    async def run_briefly(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a check in a thread; raise `Unavailable` after `PROBE_S`, so that what hangs does not silence the server.

        The thread is left to itself; threads that hang are limited in number.
        """
        with anyio.move_on_after(PROBE_S):
            checked = partial(work, *arguments, **keywords)
            return await anyio.to_thread.run_sync(checked, abandon_on_cancel=True, limiter=self.probes)
        message = f"There was no answer within {PROBE_S:g} s."
        raise Unavailable(message, hint="Try again in a moment.", retry_after_s=RETRY_S)
