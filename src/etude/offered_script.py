"""The script of a run or a thread as it is offered: a file that was executed alone first, or says that it was not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from etude.entities import Run
from etude.errors import EtudeError, NotFound
from etude.replays.cells import recorded_cell_code
from etude.runtime.standalone_script import (
    PREAMBLE,
    join_standalone_script,
    standalone_script_of_run,
    standalone_script_opening,
)
from etude.runtime.thread import thread_runs

if TYPE_CHECKING:
    from etude.app import App

ALONE = "# Executed alone by etude on {day}: it ran to its end."
NOT_ALONE = "# Not executed alone: {why}"


def offer_script(app: App, run: Run) -> str:
    """Return the script of a run: compiled with guards if that is possible, else the cells that it needs."""
    return _offer(app, run, _candidates(app, run))


def offer_thread_script(app: App, thread_id: str) -> str:
    """Return all cells and queries of a thread as one file."""
    runs = [app.store.run(run_id) for run_id in thread_runs(app.store, thread_id)]
    parts = [part for run in runs for part in _parts(app, run, queries=True)]
    done = [run for run in runs if run.source is not None]
    if not parts or not done:
        raise NotFound(f"The thread `{thread_id}` computed nothing.", hint="Ask or run something in it first.")
    return _offer(app, done[-1], iter([_write(done[-1], parts)]))


def _candidates(app: App, run: Run) -> Iterator[str]:
    """Yield the ways to write the script, the best first."""
    from etude.replays.cells import NoSlice
    from etude.replays.script_compiler import NotCompiled
    from etude.replays.script_file import write_script_file

    if run.kind == "catalog":
        yield standalone_script_of_run(run)
        return
    try:
        stored = app.scripts.find_of_run(run.id)
        if stored is None:
            stored = app.scripts.draft(run, app.source(run.location or run.source or "")).script
        yield offered_code_printing_its_value(write_script_file(stored))
    except (NotCompiled, NoSlice, EtudeError):
        pass  # without guards: the tables that it read are gone or unknown
    if any(step.kind == "python" for step in run.steps) and not _answers_by_query(run):
        earlier = [app.store.run(i) for i in thread_runs(app.store, run.thread_id or "")] if run.thread_id else []
        before = [r for r in earlier if r.id != run.id and r.created_at <= run.created_at]
        parts = [part for each in [*before, run] for part in _parts(app, each, queries=False)]
        if parts:
            yield _write(run, parts)
    yield standalone_script_of_run(run)


def _answers_by_query(run: Run) -> bool:
    return bool(run.code) and not str(run.code).startswith("import etude") and run.kind != "python"


def _parts(app: App, run: Run, queries: bool) -> Iterator[str]:
    """Yield the cells of a run that ran, a failed one as far as it got; with `queries`, its own queries too."""
    cells = {step.id for step in run.steps if step.kind == "python"}
    for step in run.steps:
        if step.kind == "python" and step.code != PREAMBLE:
            if code := recorded_cell_code(run, step, app.objects):
                yield code
        elif queries and step.kind == "sql" and step.outcome == "ok" and step.parent not in cells:
            yield f"print(db.sql({step.code!r}))"


def _write(run: Run, parts: Sequence[str]) -> str:
    return join_standalone_script(
        standalone_script_opening(run), [*parts[:-1], offered_code_printing_its_value(parts[-1])]
    )


def offered_code_printing_its_value(code: str) -> str:
    """Return a cell whose last expression is printed, as a session shows it."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return code
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr) or (
        isinstance(last.value, ast.Call) and getattr(last.value.func, "id", "") == "print"
    ):
        return code
    shown = ast.get_source_segment(code, last.value)
    lines = code.splitlines()
    before = "\n".join([*lines[: last.lineno - 1], lines[last.lineno - 1].encode()[: last.col_offset].decode()])
    return f"{before}print({shown})".lstrip("\n")


def _offer(app: App, run: Run, texts: Iterator[str]) -> str:
    """Return the first text that runs alone; if none does, the first one with the reason."""
    first, why = "", ""
    for text in texts:
        failure = run_offered_script(app, run, text)
        if not failure:
            return _with_note(text, ALONE.format(day=f"{datetime.now(UTC):%Y-%m-%d}"))
        first, why = first or text, why or failure
    return _with_note(first, NOT_ALONE.format(why=why))


def _with_note(text: str, note: str) -> str:
    """Put a comment behind the docstring, or at the top."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return f"{note}\n{text}"
    end = (
        body[0].end_lineno if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else 0
    )
    lines = text.splitlines()
    return "\n".join([*lines[:end], *([""] if end else []), note, *lines[end:]]) + "\n"


def run_offered_script(app: App, run: Run, text: str) -> str:
    """Run a script in a fresh session on the source of its run; return why it failed, empty if it did not."""
    try:
        source = app.source(run.location or run.source or "")
        with app.open_session(source, record=False, policy=None) as session:
            session.execute("import sys\nsys.argv = ['script.py']")
            cell = session.execute(text)
    except EtudeError as error:
        return error.message
    if cell.ok:
        return ""
    said = (cell.error or {}).get("message") or cell.outcome
    return " ".join(f"it failed ({(cell.error or {}).get('type') or cell.outcome}): {said}".split())[:300]
