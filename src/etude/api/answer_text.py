"""The text of a run as a stream, for protocols that can only append.

A model's turn is sent while it is written, before it is known whether it is the answer: tool calls may follow, or the
model may be asked to correct numbers that no result holds. The text after that starts a new paragraph.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from etude.api.event_streams import HEARTBEAT_S
from etude.cell_text import cell_to_json, cells_without_midnight
from etude.entities import STOPPED, Artifact, ResultInfo, Run
from etude.errors import Cancelled, Conflict, from_problem
from etude.events import Event, Guided, RunCancelled, RunFailed, RunFinished, RunPaused, RunWaiting, TextDelta
from etude.runs import CODE
from etude.runtime.answer import chosen_answer_results, describe_code_answer
from etude.runtime.number_check.mentions import MARK

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall

PARAGRAPH = "\n\n"
TABLE_ROWS = 20
"""Rows of a shown result in a text that has tables."""
CORRECTION = "\n\nCorrection: "
_STOPS = (RunCancelled, RunFailed, RunFinished, RunPaused, RunWaiting)


class AnswerText:
    """The text of a run, and how much of it was sent."""

    def __init__(self) -> None:
        self._step = ""
        self._turn = ""
        """The text of the model's current turn so far."""
        self._sent = ""
        """The part of that text that was sent."""
        self._separator = ""
        """The text to send before the next words."""
        self._asked = False
        """Whether the model was asked for origins of figures: its answer stands unless it wrote another."""

    def add(self, event: Event) -> str:
        """Return the text to send for an event."""
        match event:
            case TextDelta(step_id=step_id, text=text, restart=restart):
                if step_id != self._step:
                    self._step, self._turn = step_id, ""
                    self._end_paragraph()
                self._turn = text if restart else self._turn + text
                return self._unsent(self._turn)
            case Guided(by="check") if self._sent:
                self._separator = CORRECTION
            case Guided(by="origins"):
                self._asked = True
        return ""

    def finish(self, run: Run) -> str:
        """Return the text that is still unsent after the run has stopped."""
        if run.status == "waiting":
            self._end_paragraph()
            return self._unsent(run.question or "")
        answer = answer_text_with_origin(run)
        corrected = ""
        if self._asked and self._sent and not answer.replace(MARK, "").startswith(self._sent):
            self._separator = CORRECTION
            corrected = self._unsent(answer.replace(MARK, ""))
        if run.unverified and self._sent and not answer.startswith(self._sent):
            # The markers belong inside text that was sent already, so list the numbers instead.
            return f"{corrected}{PARAGRAPH}In no computed result: {', '.join(dict.fromkeys(run.unverified))}."
        return corrected + self._unsent(answer)

    def _end_paragraph(self) -> None:
        if self._sent:
            self._separator = self._separator or PARAGRAPH
        self._sent = ""

    def _unsent(self, text: str) -> str:
        """Return the unsent part of a text; all of it if the text no longer starts with what was sent."""
        if self._sent.startswith(text):
            return ""
        if not text.startswith(self._sent):
            self._end_paragraph()
        unsent = self._separator + text[len(self._sent) :]
        self._separator, self._sent = "", text
        return unsent


async def stream_answer_text(call: ApiCall, run_id: str) -> AsyncGenerator[str | Run | None, None]:
    """Yield the text of a run as it is written, None as a heartbeat, and finally the stopped run.

    Raises the error of a run that failed.
    """
    text, store = AnswerText(), call.app.store
    follow = call.server.run_watcher.follow(store, {run_id: 0}, call.access_store, HEARTBEAT_S)
    async with contextlib.aclosing(follow) as batches:  # type: ignore[type-var]
        async for entries in batches:
            if entries is None:
                yield None
                continue
            if words := "".join(text.add(entry.event) for entry in entries):
                yield words
            if any(isinstance(entry.event, _STOPS) for entry in entries):
                break
    run = await with_answer_text(call, require_answer_text(await call.access_store(store.run, run_id)))
    if words := text.finish(run) + await call.run_in_thread(answer_tables_as_text, call, run):
        yield words
    yield run


async def with_answer_text(call: ApiCall, run: Run) -> Run:
    """Return the run with a text as its answer: a query or a cell has none of its own, only a result."""
    if run.kind not in CODE or run.status != "succeeded":
        return run
    text = await call.run_in_thread(describe_code_answer, run, call.app.read_result)
    return run.model_copy(update={"answer": text})


def answer_tables_as_text(call: ApiCall, run: Run) -> str:
    """Return the results that an answer shows as Markdown tables, in order.

    A single value is left out if the model did not choose it: the text says it.
    """
    parts = []
    chosen = bool(chosen_answer_results(run))
    for info, artifact in _shown_results(run):
        result = call.app.read_result(info, artifact, run.id)
        if not chosen and result.row_count <= 1 and len(result.columns) == 1:
            continue
        rows = list(itertools.islice(result.iter_rows(shown=True), TABLE_ROWS))
        cells = zip(*([_cell(v) for v in cells_without_midnight(column)] for column in zip(*rows)))
        lines = [[_cell(c.name) for c in result.columns], ["---"] * len(result.columns), *cells]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        if result.row_count > len(rows):
            parts.append(f"{result.row_count:,} rows, {len(rows)} shown")
    return "".join(PARAGRAPH + part for part in parts)


def _shown_results(run: Run) -> list[tuple[ResultInfo, Artifact]]:
    """Return the results of an answer; the text of a query or a cell has its table already."""
    if run.status != "succeeded" or run.kind in CODE:
        return []
    if not run.shown and run.result and run.result_artifact:
        return [(run.result, run.result_artifact)]
    return [(shown.result, shown.artifact) for shown in run.shown]


def _cell(value: object) -> str:
    text = "" if value is None else str(cell_to_json(value))
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")


def answer_text_with_origin(run: Run) -> str:
    """Return the answer; if an earlier run was replayed, with a last line that says so, because only text is sent."""
    replayed = run.replay.sentence if run.replay else ""
    return PARAGRAPH.join(part for part in (run.answer or "", replayed) if part)


def require_answer_text(run: Run) -> Run:
    """Return the run if it has an answer or a question; otherwise raise an error that says why it has none."""
    if run.error is not None:
        raise from_problem(run.error | {"run_id": run.id})
    if run.status == "cancelled":
        raise Cancelled(f"Run `{run.id}` was cancelled.", hint="Ask again.", run_id=run.id)
    if run.status == "paused":
        raise Conflict(f"Run `{run.id}` is paused.", hint="Resume it, or ask again.", run_id=run.id)
    if run.status not in STOPPED:
        raise Conflict(f"Run `{run.id}` has no answer yet.", hint=f"GET /api/runs/{run.id}.", run_id=run.id)
    return run
