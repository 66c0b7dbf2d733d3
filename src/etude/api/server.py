"""The HTTP application: one router for each noun, behind one middleware."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

from etude import __version__
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.api import (
    actions,
    agent_events,
    agents,
    catalogs,
    chat,
    dataset_connections,
    datasets,
    event_streams,
    gateway,
    health,
    keys,
    learning,
    login,
    openai,
    page,
    playbooks,
    reports,
    results,
    runs,
    scripts,
    search,
    threads,
)
from etude.api.access_control import AccessControl
from etude.api.agent_events import AGENT_EVENTS
from etude.api.api_call import ApiCall
from etude.api.middleware import Middleware
from etude.api.problems import Problem, add_problem_handlers, documented_problems
from etude.api.run_watcher import RunWatcher
from etude.api.server_state import ServerState
from etude.errors import EtudeError
from etude.learning.observer.model_diagnosis import Diagnose, diagnose_with_model
from etude.learning.observer.observer import observing
from etude.mcp_server.caller import McpCaller
from etude.mcp_server.server import mcp_http_handler
from etude.store.identity import Identity
from etude.telemetry import TelemetryMetrics, TelemetryTraces

if TYPE_CHECKING:
    from etude.app import App
    from etude.store.base import Store

FLUSH_S = 0.2
"""Seconds between writes of buffered audit entries and usage."""
NOUNS: tuple[APIRouter, ...] = (
    gateway.router,
    reports.router,
    playbooks.router,
    search.router,
    chat.router,
    runs.router,
    results.router,
    event_streams.router,
    threads.router,
    datasets.router,
    dataset_connections.router,
    catalogs.router,
    agents.router,
    actions.router,
    agent_events.router,
    scripts.router,
    learning.router,
    keys.router,
    health.router,
    login.router,
)
"""The routers below `/api`. They are matched in order, so the most used come first."""
DESCRIPTION = """Ask data in words, SQL or Python; every run is kept.

Errors are `application/problem+json` with a `hint` that says what to do. POST takes an `Idempotency-Key`."""


def create_app(app: App, *, keys_required: bool = False, anyone: bool = False, runs_agents: bool = False) -> FastAPI:
    """Create the API of an app. Without keys it answers only to this machine, unless `anyone` is set.

    With `runs_agents`, the process also runs a worker for agents.
    """
    identity = Identity(app.store)
    traces = TelemetryTraces(app.settings.telemetry) if app.settings.telemetry.otlp else None
    access_control, hub = AccessControl(identity, app.settings.server, keys_required, anyone), Hub(app.agents.queue)
    worker = Worker(app, app.agents.queue, identity=identity) if runs_agents else None
    server = ServerState(app, identity, access_control, RunWatcher(), TelemetryMetrics(), hub, traces, worker=worker)
    api = FastAPI(
        title="etude",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lambda made: _lifespan(server, made),
        responses=documented_problems(),
        separate_input_output_schemas=False,
    )
    api.state.server = server
    for router in NOUNS:
        api.include_router(router, prefix="/api")
    for router in (health.probes, openai.router, page.router):
        api.include_router(router)
    _add_openapi(api)
    _add_mcp(api, server)
    add_problem_handlers(api)
    api.add_middleware(Middleware, server=server)
    return api


def _add_mcp(api: FastAPI, server: ServerState) -> None:
    def caller(context: Any) -> McpCaller:
        call: ApiCall = context.request_context.request.scope["state"]["call"]
        return McpCaller(
            call.app,
            lambda fields: server.identity.add_report(call.caller.tenant, fields),
            call.caller.require,
            call.check_capacity,
            call.charge_to_caller,
            call.caller.key.id if call.caller.key else None,
        )

    handler, api.state.mcp_running = mcp_http_handler(caller, server.app.settings.server.body)
    api.router.routes.append(Route("/mcp", endpoint=handler, methods=["GET", "POST", "DELETE"]))


def _add_openapi(api: FastAPI) -> None:
    building, built = asyncio.Lock(), list[bytes]()

    def describe() -> dict[str, Any]:
        if api.openapi_schema is None:
            made = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
            parts = made.setdefault("components", {})
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            parts.setdefault("schemas", {})["Problem"] = schema
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"key": []}, {}]
            api.openapi_schema = made
        return api.openapi_schema

    async def openapi() -> Response:
        # Building it takes seconds, which no other request may wait for.
        async with building:
            if not built:
                built.append(await asyncio.to_thread(lambda: json.dumps(api.openapi()).encode()))
        return Response(built[0], media_type="application/json")

    api.openapi = describe  # type: ignore[method-assign]
    api.add_api_route("/openapi.json", openapi, include_in_schema=False)


@contextlib.asynccontextmanager
async def _lifespan(server: ServerState, api: FastAPI) -> AsyncIterator[None]:
    """Run the background tasks of the server."""
    writer = asyncio.create_task(_flush_regularly(server))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server.run_watcher.running(server.app.store, server.access_store))
        await stack.enter_async_context(api.state.mcp_running())
        await server.run_in_thread(server.app.tenant, stack.enter_context, _run_agents(server))
        observed = observing(server.app.store, server.app.settings.home, diagnose_for=_diagnosing(server.app))
        stack.enter_context(observed)
        try:
            yield
        finally:
            writer.cancel()
            await server.run_in_thread(server.app.tenant, server.close)


def _diagnosing(app: App) -> Callable[[Store], Diagnose | None]:
    """Return how the observer diagnoses failures that no rule explains: by the model of the settings, if any."""
    name = app.settings.model
    if name == "offline":
        return lambda store: None
    return lambda store: diagnose_with_model(lambda: app.open_model(name), store)


@contextlib.contextmanager
def _run_agents(server: ServerState) -> Iterator[None]:
    """Run agents and deliver their events while the block runs."""
    with server.hub:
        stop = server.hub.on_events(lambda: server.run_watcher.notify(AGENT_EVENTS, 0))
        if server.worker is not None:
            server.worker.start()
        try:
            yield
        finally:
            stop()
            if server.worker is not None:
                # The drain time of the steps is over; another worker runs the unfinished ones again.
                server.worker.stop(drain=0.0)


async def _flush_regularly(server: ServerState) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        try:
            await server.access_store(server.flush)
        except EtudeError:
            pass  # the store may be unreachable for a while; the entries stay buffered
        except Exception:
            # Such as an access log whose reader is gone: entries of the audit must be stored all the same.
            logging.getLogger("etude.http").exception("writing buffered entries failed; trying again")
