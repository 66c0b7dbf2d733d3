"""The HTTP application: routers by noun, behind one edge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

from etude import __version__
from etude.agents.hub import Hub
from etude.agents.worker import Worker
from etude.api import agents, catalogs, chat, datasets, gateway, health, keys, openai, page, runs, streams, threads
from etude.api.access import AccessControl
from etude.api.call import ApiCall, ServerState
from etude.api.middleware import Middleware
from etude.api.problems import Problem, add_handlers, documented
from etude.api.run_watcher import RunWatcher
from etude.errors import EtudeError
from etude.mcp_server import McpCaller, http_handler
from etude.store.identity import Identity
from etude.telemetry import Metrics, Traces

if TYPE_CHECKING:
    from etude.app import App

WRITE_S = 0.2
"""How often what was done and spent is put on record."""
NOUNS: tuple[APIRouter, ...] = (
    gateway.router,
    chat.router,
    runs.router,
    streams.router,
    threads.router,
    datasets.router,
    catalogs.router,
    agents.router,
    keys.router,
    health.router,
)
"""Below `/api`. Routers are asked in turn, so those used most come first."""
DESCRIPTION = """Ask data in words, SQL or Python; every run is kept.

Errors are `application/problem+json` with a `hint` that says what to do. POST takes an `Idempotency-Key`."""


def create_app(app: App, *, keys_required: bool = False, anyone: bool = False, runs_agents: bool = False) -> FastAPI:
    """The API of an app. Without keys it answers to the machine itself alone, unless `anyone` may ask.

    With `runs_agents` a worker runs beside the requests.
    """
    identity = Identity(app.store)
    traces = Traces(app.settings.telemetry) if app.settings.telemetry.otlp else None
    access_control, hub = AccessControl(identity, app.settings.server, keys_required, anyone), Hub(app.agents.queue)
    worker = Worker(app, app.agents.queue, identity=identity) if runs_agents else None
    server = ServerState(app, identity, access_control, RunWatcher(), Metrics(), hub, traces, worker=worker)
    api = FastAPI(
        title="etude",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lambda made: _living(server, made),
        responses=documented(),
        separate_input_output_schemas=False,
    )
    api.state.server = server
    for router in NOUNS:
        api.include_router(router, prefix="/api")
    api.include_router(keys.sessions, prefix="/api")
    for router in (health.probes, openai.router, page.router):
        api.include_router(router)
    _add_openapi(api)
    _add_mcp(api, server)
    add_handlers(api)
    api.add_middleware(Middleware, server=server)
    return api


def _add_mcp(api: FastAPI, server: ServerState) -> None:
    def caller(context: Any) -> McpCaller:
        call: ApiCall = context.request_context.request.scope["state"]["call"]
        return McpCaller(
            call.app,
            lambda fields: server.identity.add_report(call.caller.tenant, fields),
            call.caller.require,
            lambda: runs.check_room(call),
            call.own,
            call.caller.key.id if call.caller.key else None,
        )

    handler, api.state.mcp_running = http_handler(caller, server.app.settings.server.body)
    api.router.routes.append(Route("/mcp", endpoint=handler, methods=["GET", "POST", "DELETE"]))


def _add_openapi(api: FastAPI) -> None:
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

    async def openapi() -> dict[str, Any]:
        return api.openapi()

    api.openapi = describe  # type: ignore[method-assign]
    api.add_api_route("/openapi.json", openapi, include_in_schema=False)


@contextlib.asynccontextmanager
async def _living(server: ServerState, api: FastAPI) -> AsyncIterator[None]:
    """What runs beside the requests while the server does."""
    writer = asyncio.create_task(_write_down(server))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server.watch.running(server.app.store, server.look))
        await stack.enter_async_context(api.state.mcp_running())
        await server.do(stack.enter_context, _telling(server))
        try:
            yield
        finally:
            writer.cancel()
            await server.do(server.close)


@contextlib.contextmanager
def _telling(server: ServerState) -> Iterator[None]:
    """Hand out what agents tell, and run them, while the block runs."""
    with server.hub:
        stop = server.hub.on_events(lambda: server.watch.tell(agents.NEWS, 0))
        if server.worker is not None:
            server.worker.start()
        try:
            yield
        finally:
            stop()
            if server.worker is not None:
                # Steps have had their time; those that run still are run again.
                server.worker.stop(drain=0.0)


async def _write_down(server: ServerState) -> None:
    while True:
        await asyncio.sleep(WRITE_S)
        # A store that is gone for a moment keeps nothing from being written later.
        with contextlib.suppress(EtudeError):
            await server.look(server.write_down)
