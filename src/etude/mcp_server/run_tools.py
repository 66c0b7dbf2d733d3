"""MCP tools for runs: Python in a session, SQL, questions, and the control of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from etude.entities import ENDED, AnswerBody, Entity, RowPage, Run, RunStatus
from etude.errors import EtudeError
from etude.mcp_server.caller import ROWS, TEXT, Dataset, McpCaller, Tool
from etude.result import first_result_page
from etude.runtime.answer import answer_to_body
from etude.runtime.query import CELL

if TYPE_CHECKING:
    from etude.app import App


NEXT: dict[RunStatus, str] = {
    "queued": "Call wait_run.",
    "running": "Call wait_run.",
    "waiting": "Ask the person, then call answer_run.",
    "paused": "The run is paused; it continues once it is resumed.",
    "failed": "Read the error; its hint says what to do.",
}
"""What a client should do next with a run, by its status."""
ThreadId = Annotated[str | None, Field(description="From an earlier call, to continue its session.")]


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
    app.store.check_storage()
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
    page = first_result_page(result, limit)
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


def _run_of(app: App, run: Run) -> RunResult:
    answer = answer_to_body(app.runs.answer_of(run), ROWS)
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


# Clients see the docstrings of these functions, and the annotations of all arguments except the first.
TOOLS: tuple[Tool, ...] = (
    (python, "analyst", True),
    (sql, "analyst", True),
    (ask, "analyst", True),
    (get_run, "reader", True),
    (wait_run, "reader", True),
    (cancel_run, "analyst", False),
    (answer_run, "analyst", False),
    (steer_run, "analyst", False),
)
