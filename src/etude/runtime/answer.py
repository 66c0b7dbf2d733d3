"""The answer of a run: its text, checked against the computed results, with the table, the chart and the code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.entities import AnswerBody, Artifact, ResultInfo, Run, RunStatus, Step, Turn
from etude.errors import Cancelled, EtudeError, from_problem
from etude.events import Guided, RunFinished
from etude.result import first_page, json_value
from etude.runtime.chart import choose_chart, read_chart
from etude.runtime.number_check.check import Evidence, check_numbers, explain, mark_unverified
from etude.runtime.query import CELL
from etude.runtime.script import code_of_answer
from etude.runtime.tool_context import VEGA

if TYPE_CHECKING:
    from etude.result import Result
    from etude.store.objects import Objects

CUT_OFF = "Your answer was cut off. Give a shorter one."
ROWS = 1_000
"""How many rows of a result are searched for the numbers of the answer."""


TABLE_ROWS = 10
TABLE_WIDTH = 80
"""The rows of a result, and the characters of each value, in a Markdown table."""


@dataclass(frozen=True)
class Answer:
    """The outcome of a question."""

    run: Run
    text: str = ""
    result: Result | None = None
    code: str = ""
    """The code that computed it: SQL, or a standalone Python script."""
    chart: dict[str, Any] | None = None
    """A Vega-Lite chart: of the result, without data, or one that a cell drew, with its data."""
    reading: str = ""
    """How the rules understood the question; empty if a model answered."""
    unverified: tuple[str, ...] = ()
    """Numbers in the text that no result contains."""
    question: str = ""
    """The question that the run asks the user before it continues."""
    choices: tuple[str, ...] = ()
    error: EtudeError | None = None
    replayed: str = ""
    """How the answer came about if an earlier run was replayed; empty if not."""

    @property
    def run_id(self) -> str:
        """The id of the run, whose record has all details."""
        return self.run.id

    @property
    def thread_id(self) -> str:
        """The id of the conversation that the run belongs to; empty if none."""
        return self.run.thread_id or ""

    @property
    def status(self) -> RunStatus:
        """The status of the run."""
        return self.run.status

    @property
    def ok(self) -> bool:
        """True if the run succeeded."""
        return self.status == "succeeded"

    def require(self) -> Answer:
        """Return the answer, or raise the error that the run ended with."""
        if self.error is not None:
            raise self.error
        if self.status == "cancelled":
            raise Cancelled(f"Run `{self.run_id}` was cancelled.")
        return self


Read = Callable[[ResultInfo, Artifact, str], "Result"]
"""Reads a stored table: takes its shape, its artifact and the id of its run."""


@dataclass(frozen=True)
class Conclusion:
    """Ends runs: checks the numbers of the answer, and assembles the result for the user."""

    objects: Objects
    read: Read
    corrects: bool
    """True if the model can be asked to correct its answer."""

    def __call__(self, run: Run, turn: Turn) -> RunFinished | Guided:
        """Return the end of the run, or the guidance that asks the model to correct its answer."""
        text = turn.text
        verdict = check_numbers(text, self.evidence(run), run.text, _given(run))
        if self.corrects and not any(g.by == "gate" for g in run.guidance):
            if turn.stop == "length":
                return Guided(text=CUT_OFF, by="gate")
            if not verdict.ok:
                return Guided(text=explain(verdict), by="gate")
        step, table = last_table(run), read_table(run, self.read)
        chart = self._drawn(run) or (choose_chart(table) if table is not None else None)
        return RunFinished(
            answer=mark_unverified(text, verdict),
            unverified=tuple(c.mention.text for c in verdict.unverified),
            result=step.result if step else None,
            artifact=step.artifact if step else None,
            code=code_of_answer(run),
            chart=chart,
        )

    def evidence(self, run: Run) -> list[Evidence]:
        """Return everything that the run computed: the tables of its tools, and the output of its cells."""
        found = []
        for step in run.steps:
            if step.outcome != "ok":
                continue
            if step.kind == "tool" and step.result is not None and step.artifact is not None:
                result = self.read(step.result, step.artifact, run.id)
                rows = list(itertools.islice(result.iter_rows(), ROWS))
                names = tuple(c.name for c in result.columns)
                found.append(Evidence(name=step.code, columns=names, rows=rows, row_count=result.row_count))
            elif step.kind == "python" and step.artifact is not None and step.artifact.media == CELL:
                cell = json.loads(self.objects.get(step.artifact.hash, run.id))
                found.append(Evidence(name="printed", text=f"{cell['stdout']}\n{cell['text'] or ''}"))
        return found

    def _drawn(self, run: Run) -> dict[str, Any] | None:
        """Return the last chart that a cell drew, if any."""
        drawn = [a for a in run.artifacts if a.media == VEGA]
        return read_chart(self.objects.get(drawn[-1].hash, run.id)) if drawn else None


def _given(run: Run) -> list[str]:
    """Return the texts whose numbers an answer may repeat: the queries that ran, and the user's messages."""
    guidance = [g.text for g in run.guidance if g.by == "user"]
    replied = [s.shown for s in run.steps if s.code == "ask_user" and s.shown]
    return [*(s.code for s in run.steps if s.kind == "sql"), *guidance, *replied]


def last_table(run: Run) -> Step | None:
    """Return the step that produced the last table, if any."""
    steps = (s for s in reversed(run.steps) if s.kind == "tool" and s.outcome == "ok")
    return next((s for s in steps if s.result is not None and s.artifact is not None), None)


def read_table(run: Run, read: Read) -> Result | None:
    """Return the last table that the run produced, if any."""
    step = last_table(run)
    return read(step.result, step.artifact, run.id) if step and step.result and step.artifact else None


def make_answer(run: Run, read: Read) -> Answer:
    """Return the answer of a run, which may be incomplete while it runs."""
    result = read(run.result, run.result_artifact, run.id) if run.result and run.result_artifact else None
    return Answer(
        run=run,
        text=run.answer or "",
        result=result,
        code=run.code or "",
        chart=run.chart,
        reading=reading_of(run),
        unverified=run.unverified,
        question=run.question or "" if run.status == "waiting" else "",
        choices=run.choices if run.status == "waiting" else (),
        error=from_problem(run.error | {"run_id": run.id}) if run.error else None,
        replayed=run.replay.sentence if run.replay else "",
    )


def markdown_table(result: Result) -> str:
    """Return the first rows of a result as a Markdown table, and how many rows there are if it has more."""
    rows = [[json_value(value) for value in row] for row in itertools.islice(result.iter_rows(), TABLE_ROWS)]
    lines = [[column.name for column in result.columns], ["---"] * len(result.columns), *rows]
    more = f"\n{result.row_count:,} rows in all.\n" if result.row_count > TABLE_ROWS else ""
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines) + more


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return " ".join(text.replace("|", "\\|").split())[:TABLE_WIDTH]


def describe_code(run: Run, read: Read, objects: Objects) -> str:
    """Return the outcome of a query or a cell as text: its output, then one line and a small table of its result."""
    parts = []
    if run.kind == "python":
        cells = [s.artifact for s in run.steps if s.kind == "python" and s.artifact and s.artifact.media == CELL]
        cell = json.loads(objects.get(cells[-1].hash, run.id)) if cells else {}
        parts += [text.strip() for text in (cell.get("stdout"), run.answer if run.result is None else "") if text]
    if run.result and run.result_artifact:
        result = read(run.result, run.result_artifact, run.id)
        count = "1 row" if result.row_count == 1 else f"{result.row_count:,} rows"
        parts.append(f"The result has {count}.\n\n{markdown_table(result)}".strip())
    return "\n\n".join(parts) or "The code ran and returned nothing."


def describe_answer(answer: Answer, rows: int) -> AnswerBody:
    """Return an answer as JSON, with the first rows of its result."""
    run, waits = answer.run, answer.status == "waiting"
    return AnswerBody(
        run_id=run.id,
        thread_id=run.thread_id,
        status=run.status,
        text=answer.question if waits else answer.text,
        question=answer.question if waits else None,
        choices=list(answer.choices),
        result=first_page(answer.result, rows) if answer.result is not None else None,
        code=run.code,
        chart=answer.chart,
        reading=answer.reading or None,
        unverified=list(answer.unverified),
        usage=run.usage,
        replayed=answer.replayed or None,
        replay=run.replay,
        error=run.error,
    )


def reading_of(run: Run) -> str:
    """Return how the rules understood the question; empty if a model answered."""
    if run.model != "offline":
        return ""
    if run.replay is not None and run.replay.reading:
        return run.replay.reading
    turns = [s.turn for s in run.steps if s.kind == "model" and s.turn is not None and s.turn.calls]
    return turns[-1].text if turns else ""
