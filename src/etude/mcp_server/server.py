"""The MCP server: its tools and resources, over standard input and output and over HTTP.

The client passes handles back (`thread_id`, `run_id`) to refer to state, so that every transport works.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from etude import __version__
from etude.errors import EtudeError, Invalid, LimitExceeded, NotFound, problem
from etude.fair_share import FairShare, hold_fair_slot
from etude.mcp_server import agent_tools, catalog_tools, dataset_tools, playbook_tools, run_tools
from etude.mcp_server.caller import FindCaller, McpCaller, Tool
from etude.similar_names import similar_names
from etude.store.identity import Role
from etude.validation import explain_validation

if TYPE_CHECKING:
    from etude.app import App


T = TypeVar("T")
ARTIFACT = 2 << 20
"""The most bytes of an artifact that is read as a resource, which is one message that the event loop writes."""
THREADS = 64
"""The most tool calls that may run at once."""
INSTRUCTIONS = """etude runs SQL and Python in a sandbox, answers questions about datasets, and records every run.

Never invent a number: compute it. Call `list_datasets` and `describe_dataset` first. For structured questions use
`sql`; for work in several steps use `python`, which keeps its variables between calls if you pass the same
`thread_id`. Read `playbooks` before complex work, and `log` what worked. If a run is `waiting`, ask the person and pass
the answer to `answer_run`; if it is `running`, call `wait_run`."""
TOOLS: tuple[Tool, ...] = (
    *run_tools.TOOLS,
    *dataset_tools.TOOLS,
    *catalog_tools.TOOLS,
    *playbook_tools.TOOLS,
    *agent_tools.TOOLS,
)
_ARGUMENTS = {work.__name__: tuple(inspect.signature(work).parameters)[1:] for work, _, _ in TOOLS}


class _Server(MCPServer[Any]):
    """Explains errors in the arguments of a call in the same form as all other errors."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; refuse unknown tools and arguments."""
        try:
            _check_names(name, arguments)
            return await super().call_tool(name, arguments, context)
        except EtudeError as error:
            return _failed(error)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            whole = f"the arguments of `{name}`"
            return _failed(
                explain_validation(error.__cause__, whole, name=lambda field: f"The argument `{field}` of `{name}`")
            )


def _check_names(name: str, arguments: dict[str, Any]) -> None:
    known = _ARGUMENTS.get(name)
    if known is None:
        raise NotFound(f"There is no tool `{name[:100]}`.", hint=f"Tools: {', '.join(_ARGUMENTS)}.")
    for given in arguments:
        if given not in known:
            near = similar_names(given, known, n=1)
            listed = ", ".join(f"`{k}`" for k in known) or "none"
            raise Invalid(
                f"`{name}` has no argument `{given[:100]}`.",
                hint=f"Did you mean `{near[0]}`?" if near else f"Its arguments: {listed}.",
            )


def _failed(error: EtudeError) -> CallToolResult:
    # The same problem body as on HTTP: clients read the code, models read the hint.
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(problem(error)))], is_error=True)


def choose_mcp_tools(names: str) -> frozenset[str]:
    """Return the tools of a list such as `python,sql`; raise `Invalid` if one does not exist."""
    known = [work.__name__ for work, _, _ in TOOLS]
    chosen = frozenset(name.strip() for name in names.split(",") if name.strip())
    for name in sorted(chosen - set(known)):
        near = similar_names(name, known, n=1)
        raise Invalid(
            f"There is no tool `{name[:80]}`.",
            hint=f"Did you mean `{near[0]}`?" if near else f"Tools: {', '.join(f'`{each}`' for each in known)}.",
        )
    if not chosen:
        raise Invalid("No tool was chosen.", hint="Give names such as `python,sql`.")
    return chosen


def create_mcp_server(find_caller: FindCaller, tools: frozenset[str] | None = None) -> MCPServer[Any]:
    """Create the MCP server; `find_caller` returns the caller of a request. `tools` narrows the list."""
    server = _Server("etude", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING", subscriptions=False)
    threads = _Threads()
    for work, role, reads in TOOLS:
        if tools is not None and work.__name__ not in tools:
            continue
        server.add_tool(
            _as_tool(work, role, find_caller, threads),
            name=work.__name__,
            description=inspect.getdoc(work),
            annotations=ToolAnnotations(read_only_hint=reads, open_world_hint=False),
            structured_output=True,
        )
    _add_resources(server, find_caller, threads)
    return server


class _Threads:
    """Threads for the calls of clients, shared fairly among tenants."""

    def __init__(self) -> None:
        self._share = FairShare(THREADS)
        self._limiter = anyio.CapacityLimiter(2 * THREADS)

    async def run(self, caller: McpCaller, work: Callable[[], T]) -> T:
        async with hold_fair_slot(self._share, caller.app.tenant):
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def _as_tool(work: Callable[..., Any], role: Role, find_caller: FindCaller, threads: _Threads) -> Any:
    async def call(ctx: Context[Any, Any], **arguments: Any) -> Any:
        try:
            caller = find_caller(ctx)
            caller.require(role)
            return await threads.run(caller, lambda: work(caller, **arguments))
        except EtudeError as error:
            return _failed(error)

    signature = inspect.signature(work, eval_str=True)
    _, *parameters = signature.parameters.values()
    ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    call.__signature__ = signature.replace(parameters=[ctx, *keywords])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in (ctx, *keywords)} | {"return": signature.return_annotation}
    call.__name__, call.__doc__ = work.__name__, work.__doc__
    return call


def _add_resources(server: MCPServer[Any], find_caller: FindCaller, threads: _Threads) -> None:
    async def reading(ctx: Context[Any, Any], read: Callable[[App], T]) -> T:
        try:
            caller = find_caller(ctx)
            caller.require("reader")
            return await threads.run(caller, lambda: read(caller.app))
        except NotFound as error:
            raise ResourceNotFoundError(error.message) from error
        except EtudeError as error:
            raise ResourceError(f"{error.message} {error.hint}".strip()) from error

    @server.resource("artifact://{run_id}/{hash}", mime_type="application/octet-stream")
    async def artifact(run_id: str, hash: str, ctx: Context[Any, Any]) -> bytes:
        """An artifact of a run."""

        def read(app: App) -> bytes:
            found = next((a for a in app.store.run(run_id).artifacts if a.hash == hash), None)
            if found is None:
                raise NotFound(f"Run `{run_id}` has no artifact `{hash}`.")
            if found.size > ARTIFACT:
                raise LimitExceeded(
                    f"Artifact `{hash}` has {found.size:,} bytes; {ARTIFACT:,} can be read over MCP.",
                    hint=f"GET /api/runs/{run_id}/artifacts/{hash} streams it.",
                    limit="bytes",
                )
            return app.objects.get(hash, run_id)

        return await reading(ctx, read)

    @server.resource("playbook://{name}", mime_type="text/markdown")
    async def playbook(name: str, ctx: Context[Any, Any]) -> str:
        """A playbook."""

        def read(app: App) -> str:
            found = next((p for p in app.playbooks.approved() if p.name == name), None)
            if found is None:
                raise NotFound(f"There is no playbook `{name}`.")
            return found.text

        return await reading(ctx, read)


def serve_mcp_stdio(app: App, tools: frozenset[str] | None = None) -> None:
    """Serve one client over standard input and output, as the first tenant. `tools` narrows the list of tools."""
    from etude.store.identity import Identity

    identity = Identity(app.store)
    caller = McpCaller(app, lambda fields: identity.add_report(app.tenant, fields))
    create_mcp_server(lambda _: caller, tools).run("stdio")


def mcp_http_handler(
    find_caller: FindCaller, body: int
) -> tuple[Callable[..., Awaitable[None]], Callable[[], AbstractAsyncContextManager[None]]]:
    """Return the ASGI application of `/mcp` and its lifespan. The middleware has checked host, origin and key."""
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
    from mcp.server.transport_security import TransportSecuritySettings

    server = create_mcp_server(find_caller)
    server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=body,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return StreamableHTTPASGIApp(server.session_manager), server.session_manager.run
