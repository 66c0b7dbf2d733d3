"""The MCP server: a `python` tool with a persistent session, some other tools, and resources.

The client passes handles back (`thread_id`, `run_id`) to refer to state, so that every transport works.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError

from etude import __version__
from etude.agents.control import (
    LONGEST_DELAY_S,
    MAX_REASON,
    MOST_URGENCY,
    Agents,
    Sent,
    check_reach,
    require_agent_control,
)
from etude.catalog.drift.change import Change
from etude.entities import ENDED, AnswerBody, Entity, RowPage, Run, RunStatus, Table
from etude.errors import EtudeError, Invalid, LimitExceeded, NotFound, problem
from etude.fair_share import FairShare, hold_slot
from etude.feedback import Feedback
from etude.learning.playbooks.summary import (
    PlaybookExposure,
    PlaybookSummary,
    summarise_exposure,
    summarise_playbook,
)
from etude.result import first_page
from etude.runtime.answer import describe_answer
from etude.runtime.query import CELL
from etude.search.base import Kind, Mode
from etude.search.results import MatchPage, SearchPage
from etude.store.action import URGENCY
from etude.store.agents import AgentInfo, AgentStep, Cause
from etude.store.identity import Report, Role
from etude.store.processes import Processes
from etude.validation import explain

if TYPE_CHECKING:
    from etude.app import App
    from etude.catalog.model import SourceProfile, TableProfile
    from etude.catalog.storage.catalog_store import CatalogStore, StoredCatalog

P = ParamSpec("P")
T = TypeVar("T")
ROWS = 100
TEXT = 200_000
DESCRIBED = 20
"""The most tables that are described in one answer; of larger datasets a client gets the list of tables first."""
LISTED = 200
"""The most tables of a catalog that one answer lists."""
ARTIFACT = 16 << 20
"""The most bytes of an artifact that is read as a resource, which is sent in one message."""
EXPOSURES = 50
"""The latest runs that a playbook matched which one answer lists."""
THREADS = 64
"""The most tool calls that may run at once."""
INSTRUCTIONS = """etude runs SQL and Python in a sandbox, answers questions about datasets, and records every run.

Never invent a number: compute it. Call `list_datasets` and `describe_dataset` first. For structured questions use
`sql`; for work in several steps use `python`, which keeps its variables between calls if you pass the same
`thread_id`. Read `playbooks` before complex work, and `log` what worked. If a run is `waiting`, ask the person and pass
the answer to `answer_run`; if it is `running`, call `wait_run`."""

NEXT: dict[RunStatus, str] = {
    "queued": "Call wait_run.",
    "running": "Call wait_run.",
    "waiting": "Ask the person, then call answer_run.",
    "paused": "The run is paused; it continues once it is resumed.",
    "failed": "Read the error; its hint says what to do.",
}
"""What a client should do next with a run, by its status."""
Dataset = Annotated[str | None, Field(description="A name from list_datasets; may be omitted if there is only one.")]
ThreadId = Annotated[str | None, Field(description="From an earlier call, to continue its session.")]
AgentId = Annotated[str, Field(max_length=128, description="The id of an agent.")]
CatalogName = Annotated[str, Field(max_length=100, description="A name from catalogs_list, or `latest`.")]
Reason = Annotated[str | None, Field(max_length=MAX_REASON, description="Why; events have it.")]
NO_WORKER = "No worker runs, so the agent does not start: have the person run `etude serve` or `etude worker`."
Guidance = Annotated[str | dict[str, Any] | None, Field(description="Text or an object.")]


class CreatedAgent(AgentInfo):
    """A new agent; `next` says what must be done so that it starts, if anything."""

    next: str = ""


class CellResult(Entity):
    """The result of a cell. Pass `thread_id` to the next call to keep the variables."""

    thread_id: str
    run_id: str
    ok: bool
    stdout: str = ""
    stderr: str = ""
    value: str = ""
    error: str = ""


class RunResult(AnswerBody):
    """The answer of a run, if there is one yet; `next` says what to do."""

    next: str = ""


class DatasetEntry(Entity):
    """A dataset."""

    name: str
    kind: str


class Datasets(Entity):
    """The available datasets."""

    datasets: list[DatasetEntry]


class TableEntry(Entity):
    """A table in the list of tables."""

    name: str
    kind: str
    columns: int
    rows: int | None = None


class DatasetDescription(Entity):
    """The described tables of a dataset, or a page of the list of its tables."""

    source: str
    kind: str
    dialect: str
    table_count: int
    tables: list[Table] = []
    """The described tables: all of a small dataset, or those asked for."""
    entries: list[TableEntry] = []
    """A page of the list of tables, if the dataset has too many to describe at once."""
    next: int | None = None
    """The `offset` of the next page of the list."""
    hint: str = ""
    notes: tuple[str, ...] = ()


class CatalogEntry(Entity):
    """A stored catalog in the list; names sort by time."""

    name: str
    dataset: str
    run_id: str | None = None
    failed: list[str] = []
    """Tables that could not be profiled."""


class CatalogPage(Entity):
    """Stored catalogs of a dataset, newest first; pass `next` as `before` for the next page."""

    catalogs: list[CatalogEntry]
    next: str | None = None


class NamedChange(Change):
    """A change with the name by which it is acknowledged."""

    id: str


class ProfiledTable(Entity):
    """What a catalog knows of a table, in short."""

    name: str
    rows: int | None = None
    columns: list[str] = []
    key: list[str] = []
    references: list[str] = []
    """Columns that refer to other tables, such as `customer_id -> customers.id`."""


class CatalogView(Entity):
    """A catalog with its changes and tables; `profile` is all that is known of the table that was asked for."""

    catalog: CatalogEntry
    changes: list[NamedChange]
    tables: list[ProfiledTable] = []
    table_count: int = 0
    profile: dict[str, Any] | None = None


class CatalogComparison(Entity):
    """What changed from one catalog to another, the most important first."""

    before: str
    after: str
    changes: list[NamedChange]


class Playbooks(Entity):
    """Lessons to read before complex work."""

    playbooks: list[PlaybookSummary]


class PlaybookRecord(Entity):
    """A playbook, how it changed, and the latest runs that it matched."""

    playbook: PlaybookSummary
    changes: list[PlaybookEvent]
    exposures: list[PlaybookExposure]


class PlaybookEvent(Entity):
    """A change of a playbook."""

    at: datetime
    version: str
    change: str
    reason: str


class AgentPage(Entity):
    """One page of agents; `next` is the cursor of the next page."""

    agents: list[AgentInfo]
    next: str | None = None


class AgentView(Entity):
    """An agent with its state and its last steps."""

    agent: AgentInfo
    state: dict[str, Any]
    steps: list[AgentStep]


@dataclass(frozen=True)
class McpCaller:
    """The caller of a tool: the app of its tenant, and its rights."""

    app: App
    report: Callable[[dict[str, Any]], Report]
    """Store the caller's report of its work."""
    require: Callable[[Role], None] = lambda _: None
    check_capacity: Callable[[], None] = lambda: None
    """Raise if no more work may start."""
    charge_run: Callable[[str], None] = lambda _: None
    """Charge a run to the caller's key once the run ends."""
    key_id: str | None = None
    """The key whose daily quota counts the usage of the caller's agents."""


FindCaller = Callable[[Context[Any, Any]], McpCaller]


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
            return _failed(explain(error.__cause__, whole, name=lambda field: f"The argument `{field}` of `{name}`"))


def _check_names(name: str, arguments: dict[str, Any]) -> None:
    known = _ARGUMENTS.get(name)
    if known is None:
        raise NotFound(f"There is no tool `{name[:100]}`.", hint=f"Tools: {', '.join(_ARGUMENTS)}.")
    for given in arguments:
        if given not in known:
            near = difflib.get_close_matches(given, known, n=1)
            listed = ", ".join(f"`{k}`" for k in known) or "none"
            raise Invalid(
                f"`{name}` has no argument `{given[:100]}`.",
                hint=f"Did you mean `{near[0]}`?" if near else f"Its arguments: {listed}.",
            )


def _failed(error: EtudeError) -> CallToolResult:
    # The same problem body as on HTTP: clients read the code, models read the hint.
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(problem(error)))], is_error=True)


def choose_tools(names: str) -> frozenset[str]:
    """Return the tools of a list such as `python,sql`; raise `Invalid` if one does not exist."""
    known = [work.__name__ for work, _, _ in TOOLS]
    chosen = frozenset(name.strip() for name in names.split(",") if name.strip())
    for name in sorted(chosen - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        raise Invalid(
            f"There is no tool `{name[:80]}`.",
            hint=f"Did you mean `{near[0]}`?" if near else f"Tools: {', '.join(f'`{each}`' for each in known)}.",
        )
    if not chosen:
        raise Invalid("No tool was chosen.", hint="Give names such as `python,sql`.")
    return chosen


def create_mcp(find_caller: FindCaller, tools: frozenset[str] | None = None) -> MCPServer[Any]:
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
        async with hold_slot(self._share, caller.app.tenant):
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


# Tools. Clients see the docstrings and the annotations of all arguments but the first.


def python(
    caller: McpCaller,
    code: Annotated[str, Field(min_length=1, max_length=TEXT)],
    dataset: Dataset = None,
    thread_id: ThreadId = None,
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 60,
) -> CellResult:
    """Run Python in a sandboxed session that keeps its variables.

    `db` is the dataset: `db.sql("SELECT ...").df()` is a pandas DataFrame. The last expression is the value.
    Pass the returned `thread_id` to the next call to continue in the same session.
    """
    app = caller.app
    name = app.choose_source(dataset, thread_id) or (app.source_name(None) if thread_id is None else None)
    caller.check_capacity()
    thread = app.store.thread(thread_id) if thread_id else app.store.create_thread("MCP session", name)
    run_id = app.runs.begin("python", code, name, thread_id=thread.id)
    caller.charge_run(run_id)
    app.runs.start(run_id)
    run = app.runs.wait(run_id, timeout_s)
    if run.status not in ENDED:
        app.runs.cancel(run_id)
        run = app.runs.wait(run_id, 10)
    return _cell_of(app, run, thread.id)


def sql(
    caller: McpCaller,
    query: Annotated[str, Field(min_length=1, max_length=TEXT)],
    dataset: Dataset = None,
    limit: Annotated[int, Field(ge=1, le=10_000, description="most rows to return")] = ROWS,
) -> RowPage:
    """Run one SELECT in the dataset's own dialect. Returns the first rows; the run keeps all of them."""
    caller.check_capacity()
    try:
        result = caller.app.sql(caller.app.source_name(dataset), query)
    except EtudeError as error:
        if "run_id" in error.details:
            caller.charge_run(str(error.details["run_id"]))
        raise
    if result.run_id is not None:
        caller.charge_run(result.run_id)
    page = first_page(result, limit)
    if page.next is None or result.run_id is None:
        return page
    kept = caller.app.store.run(result.run_id).result_artifact
    where = f"; all of them as Parquet: artifact://{result.run_id}/{kept.hash}" if kept else ""
    note = f"The first {len(page.rows):,} of {result.row_count:,} rows{where}."
    return page.model_copy(update={"notes": [*page.notes, note]})


def ask(
    caller: McpCaller,
    question: Annotated[str, Field(min_length=1, max_length=TEXT)],
    dataset: Dataset = None,
    thread_id: ThreadId = None,
    wait_s: Annotated[float, Field(ge=0, le=300, description="how long to wait for the answer")] = 50,
    fresh: Annotated[bool, Field(description="do not replay an earlier run with the same question")] = False,
) -> RunResult:
    """Let etude's own agent answer a question in plain words. If it takes longer than `wait_s`, call `wait_run`."""
    app = caller.app
    caller.check_capacity()
    run_id = app.runs.begin("ask", question, app.choose_source(dataset, thread_id), thread_id=thread_id, fresh=fresh)
    caller.charge_run(run_id)
    app.runs.start(run_id)
    return _run_of(app, app.runs.wait(run_id, wait_s))


def get_run(caller: McpCaller, run_id: str) -> RunResult:
    """Return a run: its status, and its answer if there is one yet."""
    return _run_of(caller.app, caller.app.store.run(run_id))


def wait_run(caller: McpCaller, run_id: str, timeout_s: Annotated[float, Field(ge=0, le=300)] = 50) -> RunResult:
    """Wait until a run ends, asks a question or is paused, but no longer than `timeout_s`."""
    return _run_of(caller.app, caller.app.runs.wait(run_id, timeout_s))


def cancel_run(caller: McpCaller, run_id: str) -> RunResult:
    """Cancel a run at once."""
    caller.app.runs.cancel(run_id)
    return _run_of(caller.app, caller.app.runs.wait(run_id, 5))


def answer_run(
    caller: McpCaller,
    run_id: str,
    text: Annotated[str, Field(min_length=1, max_length=TEXT)],
    wait_s: Annotated[float, Field(ge=0, le=300)] = 50,
) -> RunResult:
    """Answer the question of a waiting run, in the person's words; the run then continues."""
    app = caller.app
    caller.check_capacity()
    seq = app.runs.answer(run_id, text)
    caller.charge_run(run_id)
    app.runs.start(run_id)
    return _run_of(app, app.runs.wait(run_id, wait_s, beyond=seq))


def steer_run(
    caller: McpCaller,
    run_id: str,
    guidance: Annotated[str, Field(min_length=1, max_length=TEXT, description="what the run's model should know")],
    interrupt: Annotated[bool, Field(description="stop what the run is doing at this moment")] = False,
) -> RunResult:
    """Give guidance to a run that works on a question; its model reads it before its next turn."""
    runs = caller.app.runs
    (runs.interrupt if interrupt else runs.steer)(run_id, guidance)
    return _run_of(caller.app, caller.app.store.run(run_id))


def list_datasets(caller: McpCaller) -> Datasets:
    """List the datasets."""
    app = caller.app
    return Datasets(datasets=[DatasetEntry(name=n, kind=app.source(n).kind) for n in app.sources()])


def describe_dataset(
    caller: McpCaller,
    dataset: Dataset = None,
    tables: Annotated[list[str] | None, Field(max_length=DESCRIBED, description="the tables to describe")] = None,
    offset: Annotated[int, Field(ge=0, description="where the page of the list of tables begins")] = 0,
    limit: Annotated[int, Field(ge=1, le=1000, description="most tables in a page of the list")] = 200,
) -> DatasetDescription:
    """Return the tables, columns, types, keys and row counts of a dataset.

    If the dataset has many tables, this returns the list of their names, in pages: pass `next` as `offset` for the next
    page, and the names you need as `tables` to get their columns.
    """
    catalog = caller.app.catalog(caller.app.source_name(dataset))
    found = DatasetDescription(
        source=catalog.source,
        kind=catalog.kind,
        dialect=catalog.dialect,
        table_count=len(catalog.tables),
        notes=catalog.notes,
    )
    if tables is not None:
        chosen = [catalog.table(name) for name in tables]
        missing = [name for name, table in zip(tables, chosen) if table is None]
        if missing:
            near = difflib.get_close_matches(missing[0], [t.name for t in catalog.tables], n=1)
            hint = f"Did you mean `{near[0]}`?" if near else "Call `describe_dataset` without `tables` for the list."
            raise NotFound(f"`{catalog.source}` has no table `{missing[0][:100]}`.", hint=hint)
        return found.model_copy(update={"tables": [t for t in chosen if t is not None]})
    if len(catalog.tables) <= DESCRIBED:
        return found.model_copy(update={"tables": list(catalog.tables)})
    page = [
        TableEntry(name=t.name, kind=t.kind, columns=len(t.columns), rows=t.row_count)
        for t in catalog.tables[offset : offset + limit]
    ]
    after = offset + limit if offset + limit < len(catalog.tables) else None
    hint = f"Call again with `tables`, at most {DESCRIBED} names, to get their columns."
    return found.model_copy(update={"entries": page, "next": after, "hint": hint})


def catalogs_list(
    caller: McpCaller,
    dataset: Dataset = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
    before: Annotated[str | None, Field(max_length=100, description="`next` of the page before.")] = None,
) -> CatalogPage:
    """List the stored catalogs of a dataset, newest first. `etude catalog` and `POST /catalogs` make them."""
    name, store = _catalogs_of(caller, dataset)
    names = [n for n in store.names() if before is None or n < before]
    entries = [_catalog_entry(name, store.run(n)) for n in names[:limit]]
    return CatalogPage(catalogs=entries, next=names[limit - 1] if len(names) > limit else None)


def catalogs_show(
    caller: McpCaller,
    dataset: Dataset = None,
    catalog: CatalogName = "latest",
    table: Annotated[str | None, Field(max_length=500, description="A table to return the whole profile of.")] = None,
) -> CatalogView:
    """Return a catalog: its changes, and the keys and references of its tables; with `table`, all statistics of one."""
    from etude.catalog.storage.catalog_store import with_acknowledgements

    name, store = _catalogs_of(caller, dataset)
    stored = store.run(catalog)
    followed, profile = store.changes_of(stored), _profile_of(store, stored)
    changes = with_acknowledgements(followed.changes, store.acknowledgements()) if followed else ()
    found = profile.table(table) if table is not None else None
    if table is not None and found is None:
        near = difflib.get_close_matches(table, [t.name for t in profile.tables], n=1)
        hint = f"Did you mean `{near[0]}`?" if near else "Call `catalogs_show` without `table` for the list."
        raise NotFound(f"The catalog has no table `{table[:100]}`.", hint=hint)
    return CatalogView(
        catalog=_catalog_entry(name, stored),
        changes=[_named_change(c) for c in changes if table is None or c.table == (found and found.name)],
        tables=[_profiled(t) for t in profile.tables[:LISTED]] if found is None else [],
        table_count=len(profile.tables),
        profile=found.model_dump(mode="json", exclude_none=True) if found is not None else None,
    )


def catalogs_compare(
    caller: McpCaller, before: CatalogName, after: CatalogName = "latest", dataset: Dataset = None
) -> CatalogComparison:
    """Return what changed from one catalog of a dataset to another, the most important first."""
    from etude.catalog.drift.compare import compare

    _, store = _catalogs_of(caller, dataset)
    first, second = store.run(before), store.run(after)
    changes = compare(_profile_of(store, first), _profile_of(store, second))
    return CatalogComparison(before=first.name, after=second.name, changes=[_named_change(c) for c in changes])


def _catalogs_of(caller: McpCaller, dataset: str | None) -> tuple[str, CatalogStore]:
    name = caller.app.source_name(dataset)
    return name, caller.app.cataloger.catalog_store(name)


def _profile_of(store: CatalogStore, stored: StoredCatalog) -> SourceProfile:
    from etude.catalog.model import from_json
    from etude.catalog.storage.catalog_store import CATALOG

    return from_json(store.read(stored, CATALOG))


def _catalog_entry(dataset: str, stored: StoredCatalog) -> CatalogEntry:
    return CatalogEntry(name=stored.name, dataset=dataset, run_id=stored.run_id, failed=sorted(stored.failed))


def _named_change(change: Change) -> NamedChange:
    return NamedChange(**dict(change), id=change.name)


def _profiled(table: TableProfile) -> ProfiledTable:
    key = table.keys[0].columns if table.keys else ()
    return ProfiledTable(
        name=table.name,
        rows=table.rows,
        columns=[c.name for c in table.columns],
        key=list(key),
        references=[f"{', '.join(k.columns)} -> {k.to_table}.{', '.join(k.to_columns)}" for k in table.foreign_keys],
    )


def search(
    caller: McpCaller,
    query: Annotated[str, Field(min_length=1, max_length=2_000, description="words, in any language")],
    dataset: Annotated[str | None, Field(description="A name from list_datasets; all datasets by default.")] = None,
    kinds: Annotated[
        list[Kind] | None, Field(description="Only these: row, value, table, column, file, playbook, run.")
    ] = None,
    tables: Annotated[list[str] | None, Field(max_length=100, description="Only in these tables.")] = None,
    k: Annotated[int, Field(ge=1, le=100)] = 10,
    offset: Annotated[int, Field(ge=0, le=1_000)] = 0,
    mode: Mode = "hybrid",
) -> SearchPage:
    """Find tables, columns, values, rows, documents, playbooks and past questions by words and by meaning.

    Use it to find the right table among many, how a value is spelt, or a run that answered this before.
    """
    name = caller.app.source_name(dataset) if dataset is not None else None
    return caller.app.search(query, name, kinds=kinds, tables=tables, k=k, offset=offset, mode=mode)


def match(
    caller: McpCaller,
    table: Annotated[str, Field(min_length=1, max_length=1_000)],
    like: Annotated[str | dict[str, Any], Field(description='a text, or the key of a row such as {"id": 17}')],
    where: Annotated[
        str | dict[str, Any] | list[dict[str, Any]] | None,
        Field(description="a condition in the dataset's SQL, or filters of a QueryPlan; it holds exactly"),
    ] = None,
    dataset: Dataset = None,
    columns: Annotated[list[str] | None, Field(max_length=20, description="The columns to compare.")] = None,
    facets: Annotated[list[str] | None, Field(max_length=8, description="Columns to count the values of.")] = None,
    k: Annotated[int, Field(ge=1, le=1_000)] = 10,
    offset: Annotated[int, Field(ge=0, le=100_000)] = 0,
) -> MatchPage:
    """Return the rows of a table that pass `where`, most similar first to `like`, each with the reason."""
    caller.check_capacity()
    name = caller.app.source_name(dataset)
    return caller.app.match(name, table, like, where, columns=columns or (), k=k, offset=offset, facets=facets or ())


def log(
    caller: McpCaller,
    text: Annotated[str, Field(min_length=1, max_length=TEXT, description="what was asked and what was learned")],
    outcome: Literal["worked", "failed", "note"] = "worked",
    dataset: Dataset = None,
    code: Annotated[str | None, Field(max_length=TEXT, description="what was run")] = None,
    run_id: str | None = None,
) -> Report:
    """Report what worked and what did not, so that others can learn from it."""
    app = caller.app
    if dataset is not None:
        app.source_name(dataset)
    if run_id is not None:
        app.store.run(run_id)
    fields = {"text": text, "outcome": outcome, "dataset": dataset, "code": code, "run_id": run_id}
    return caller.report(fields)


def judge_run(
    caller: McpCaller,
    run_id: str,
    verdict: Annotated[Literal["right", "wrong"], Field(description="what the person says of the answer")],
    comment: Annotated[str, Field(max_length=4000)] = "",
) -> Feedback:
    """Pass on a person's verdict on an answer. A wrong one is not given again."""
    caller.app.store.run(run_id)
    return caller.app.give_feedback(run_id, verdict, comment)


def playbooks(caller: McpCaller) -> Playbooks:
    """Return lessons with their state and measured effect. Read those that fit before complex work."""
    found = caller.app.playbooks.entries()
    return Playbooks(playbooks=[summarise_playbook(e) for e in found if e.standing.state != "retired"])


PlaybookName = Annotated[str, Field(min_length=1, max_length=100, description="the name of a playbook")]


def playbooks_show(caller: McpCaller, name: PlaybookName) -> PlaybookRecord:
    """Return a playbook: its state and why, its effect, its changes, and the runs with and without it."""
    library = caller.app.playbooks
    return PlaybookRecord(
        playbook=summarise_playbook(library.entry(name)),
        changes=[
            PlaybookEvent(at=c.at, version=c.version, change=c.change, reason=c.reason) for c in library.history(name)
        ],
        exposures=[summarise_exposure(e) for e in library.exposures(name)[-EXPOSURES:]],
    )


def playbooks_add(
    caller: McpCaller,
    text: Annotated[str, Field(min_length=1, max_length=TEXT, description="the whole SKILL.md")],
    pin: Annotated[bool, Field(description="always show it if it matches, without a coin")] = False,
) -> PlaybookSummary:
    """Add a playbook, or replace the one of the same name; its effect is then measured anew."""
    return summarise_playbook(caller.app.playbooks.add_text(text, pin))


def playbooks_pin(caller: McpCaller, name: PlaybookName) -> PlaybookSummary:
    """Always show a playbook that matches. This also brings back a retired one."""
    return summarise_playbook(caller.app.playbooks.pin(name))


def playbooks_retire(caller: McpCaller, name: PlaybookName) -> PlaybookSummary:
    """Never show this version of a playbook again."""
    return summarise_playbook(caller.app.playbooks.retire(name))


def agents_create(
    caller: McpCaller,
    kind: Annotated[
        str, Field(max_length=100, description="`analyst`, `watch`, `catalog`, `index`, `echo`, or an installed kind")
    ],
    config: Annotated[
        dict[str, Any], Field(description="the configuration of this kind; an error says what is wrong with it")
    ],
    id: Annotated[str | None, Field(max_length=128)] = None,
) -> CreatedAgent:
    """Create an agent that works in the background, for minutes or months; `agents_show` shows its progress."""
    check_reach(caller.app, kind, config, caller.require)
    caller.check_capacity()
    made = caller.app.agents.create(kind, config, id, caller.key_id, cause=_cause(caller, None))
    runs = any(process.alive for process in Processes(caller.app.store).list())
    return CreatedAgent(**dict(made), next="" if runs else NO_WORKER)


def agents_list(
    caller: McpCaller, limit: Annotated[int, Field(ge=1, le=500)] = 50, cursor: str | None = None
) -> AgentPage:
    """List agents, newest first."""
    page = caller.app.agents.list(limit=limit, cursor=cursor)
    return AgentPage(agents=list(page.items), next=page.next)


def agents_show(caller: McpCaller, agent_id: AgentId, steps: Annotated[int, Field(ge=0, le=100)] = 10) -> AgentView:
    """Return an agent with its state and its last steps."""
    agents = caller.app.agents
    info = agents.get(agent_id)
    last = agents.steps(agent_id, after=max(0, info.step_no - steps), limit=steps) if steps else []
    return AgentView(agent=info, state=agents.state(agent_id), steps=list(last))


def _cause(caller: McpCaller, reason: str | None) -> Cause:
    return Cause(caller.key_id or "mcp", reason or "")


def _hold(caller: McpCaller, agent_id: str) -> Agents:
    return require_agent_control(caller.app.agents, agent_id, caller.require)


def agents_message(
    caller: McpCaller,
    agent_id: AgentId,
    body: Annotated[str | dict[str, Any], Field(description="Text or an object.")],
    id: Annotated[
        str | None, Field(min_length=1, max_length=128, description="messages with the same id count as one")
    ] = None,
    urgency: Annotated[int, Field(ge=0, le=MOST_URGENCY, description="lower values are handled first")] = URGENCY,
    delay_s: Annotated[float, Field(ge=0, le=LONGEST_DELAY_S, description="seconds to wait before its step")] = 0.0,
    reason: Reason = None,
) -> Sent:
    """Send a message to an agent, which handles it in its own step."""
    how: dict[str, Any] = {"id": id, "urgency": urgency, "delay": delay_s}
    return Sent(action=_hold(caller, agent_id).message(agent_id, body, cause=_cause(caller, reason), **how))


def agents_steer(caller: McpCaller, agent_id: AgentId, guidance: Guidance, reason: Reason = None) -> AgentInfo:
    """Give guidance to an agent, which reads it before its next model call; nothing is interrupted."""
    return _hold(caller, agent_id).steer(agent_id, guidance, cause=_cause(caller, reason))


def agents_pause(
    caller: McpCaller,
    agent_id: AgentId,
    mode: Literal["after_step", "now"] = "after_step",
    reason: Reason = None,
) -> AgentInfo:
    """Pause an agent after its current step; `now` interrupts that step."""
    return _hold(caller, agent_id).pause(agent_id, mode, cause=_cause(caller, reason))


def agents_resume(caller: McpCaller, agent_id: AgentId, guidance: Guidance = None, reason: Reason = None) -> AgentInfo:
    """Resume a paused agent; if there is guidance, a step starts with it."""
    return _hold(caller, agent_id).resume(agent_id, guidance, cause=_cause(caller, reason))


def agents_interrupt(
    caller: McpCaller, agent_id: AgentId, guidance: Guidance = None, reason: Reason = None
) -> AgentInfo:
    """Interrupt the current step of an agent; its next step starts with the guidance."""
    return _hold(caller, agent_id).interrupt(agent_id, guidance, cause=_cause(caller, reason))


def agents_reload(
    caller: McpCaller, agent_id: AgentId, config: dict[str, Any] | None = None, reason: Reason = None
) -> AgentInfo:
    """Reload settings and sources before an agent's next step, and use the new configuration if one is given."""
    agents = caller.app.agents
    check_reach(caller.app, agents.get(agent_id).kind, config or {}, caller.require)
    return agents.reload(agent_id, config, cause=_cause(caller, reason))


def agents_destroy(
    caller: McpCaller,
    agent_id: AgentId,
    grace_s: Annotated[float, Field(ge=0, le=86_400)] = 30,
    reason: Reason = None,
) -> AgentInfo:
    """Destroy an agent; its steps stay recorded."""
    return _hold(caller, agent_id).destroy(agent_id, grace_s, cause=_cause(caller, reason))


TOOLS: tuple[tuple[Callable[..., Entity], Role, bool], ...] = (
    (python, "analyst", True),
    (sql, "analyst", True),
    (ask, "analyst", True),
    (get_run, "reader", True),
    (wait_run, "reader", True),
    (cancel_run, "analyst", False),
    (answer_run, "analyst", False),
    (steer_run, "analyst", False),
    (list_datasets, "reader", True),
    (describe_dataset, "reader", True),
    (search, "reader", True),
    (match, "analyst", True),
    (catalogs_list, "reader", True),
    (catalogs_show, "reader", True),
    (catalogs_compare, "reader", True),
    (log, "analyst", False),
    (judge_run, "analyst", False),
    (playbooks, "reader", True),
    (playbooks_show, "reader", True),
    (playbooks_add, "admin", False),
    (playbooks_pin, "admin", False),
    (playbooks_retire, "admin", False),
    (agents_create, "analyst", False),
    (agents_list, "reader", True),
    (agents_show, "reader", True),
    (agents_message, "analyst", False),
    (agents_steer, "analyst", False),
    (agents_pause, "analyst", False),
    (agents_resume, "analyst", False),
    (agents_interrupt, "analyst", False),
    (agents_reload, "analyst", False),
    (agents_destroy, "analyst", False),
)
"""Each tool, the role that it needs, and whether it only reads."""
_ARGUMENTS = {work.__name__: tuple(inspect.signature(work).parameters)[1:] for work, _, _ in TOOLS}


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


# Results of tools.


def _run_of(app: App, run: Run) -> RunResult:
    answer = describe_answer(app.runs.answer_of(run), ROWS)
    return RunResult(**dict(answer), next=NEXT.get(run.status, ""))


def _cell_of(app: App, run: Run, thread_id: str) -> CellResult:
    artifacts = [s.artifact for s in run.steps if s.kind == "python" and s.artifact and s.artifact.media == CELL]
    shown: dict[str, Any] = json.loads(app.objects.get(artifacts[-1].hash, run.id)) if artifacts else {}
    error = shown.get("error") or run.error or {}
    lines = error.get("traceback") or error.get("detail") or error.get("message") or ""
    return CellResult(
        thread_id=thread_id,
        run_id=run.id,
        ok=run.status == "succeeded",
        stdout=shown.get("stdout") or "",
        stderr=shown.get("stderr") or "",
        value=shown.get("text") or "",
        error="" if run.status == "succeeded" else "\n".join(lines) if isinstance(lines, list) else str(lines),
    )


# Transports.


def serve_stdio(app: App, tools: frozenset[str] | None = None) -> None:
    """Serve one client over standard input and output, as the first tenant. `tools` narrows the list of tools."""
    from etude.store.identity import Identity

    identity = Identity(app.store)
    caller = McpCaller(app, lambda fields: identity.add_report(app.tenant, fields))
    create_mcp(lambda _: caller, tools).run("stdio")


def http_handler(
    find_caller: FindCaller, body: int
) -> tuple[Callable[..., Awaitable[None]], Callable[[], AbstractAsyncContextManager[None]]]:
    """Return the ASGI application of `/mcp` and its lifespan. The middleware has checked host, origin and key."""
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
    from mcp.server.transport_security import TransportSecuritySettings

    server = create_mcp(find_caller)
    server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=body,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return StreamableHTTPASGIApp(server.session_manager), server.session_manager.run
