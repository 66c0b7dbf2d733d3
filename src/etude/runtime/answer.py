"""The answer of a run: what it says, checked against what was computed, with the table, the chart and the code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.entities import Artifact, Run, RunStatus, Step
from etude.errors import EtudeError, from_problem
from etude.events import Guided, RunFinished
from etude.runtime.notebook import CELL, PREAMBLE
from etude.runtime.numbers import Evidence, check_numbers, explain, mark_unverified
from etude.runtime.workbench import VEGA

if TYPE_CHECKING:
    from etude.result import Result
    from etude.store.objects import Objects

ROWS = 1_000
"""Rows of a result in which a number of the answer is looked for."""


@dataclass(frozen=True)
class Answer:
    """What came of a question."""

    run: Run
    text: str = ""
    result: Result | None = None
    code: str = ""
    """What computed it: SQL, or a Python script that runs alone."""
    chart: dict[str, Any] | None = None
    """Vega-Lite, without data."""
    reading: str = ""
    """How the question was understood, where no model did."""
    unverified: tuple[str, ...] = ()
    """Numbers in the text that no result holds."""
    question: str = ""
    """What the run needs to know to go on."""
    choices: tuple[str, ...] = ()
    error: EtudeError | None = None

    @property
    def run_id(self) -> str:
        """The run that has all of it on record."""
        return self.run.id

    @property
    def thread_id(self) -> str:
        """The conversation that it belongs to."""
        return self.run.thread_id or ""

    @property
    def status(self) -> RunStatus:
        """How far the run is."""
        return self.run.status

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.status == "succeeded"

    def require(self) -> Answer:
        """The answer itself, or the error that the run ended with."""
        if self.error is not None:
            raise self.error
        return self


@dataclass(frozen=True)
class Conclusion:
    """Ends runs: checks the numbers, and puts together what the person gets."""

    objects: Objects
    read: Callable[[Run, Step], Result]
    """The table that a step made."""
    choose_chart: Callable[[Result], dict[str, Any] | None]
    corrects: bool
    """Whether the model can be asked to mend its answer."""

    def __call__(self, run: Run, text: str) -> RunFinished | Guided:
        """The end of the run, or what the model must hear before its answer can be taken."""
        verdict = check_numbers(text, self.evidence(run), run.text, [s.code for s in run.steps if s.kind == "sql"])
        corrected = any(g.by == "gate" for g in run.guidance)
        if not verdict.ok and self.corrects and not corrected:
            return Guided(text=explain(verdict), by="gate")
        step = last_table(run)
        chart = self._drawn(run)
        if chart is None and step is not None:
            chart = self.choose_chart(self.read(run, step))
        return RunFinished(
            answer=mark_unverified(text, verdict),
            unverified=tuple(c.mention.text for c in verdict.unverified),
            result=step.result if step else None,
            artifact=step.artifact if step else None,
            code=code_of(run),
            chart=chart,
        )

    def evidence(self, run: Run) -> list[Evidence]:
        """All that the run computed: the tables its tools made, and what its cells printed."""
        found = []
        for step in run.steps:
            if step.outcome != "ok":
                continue
            if step.kind == "tool" and step.result is not None and step.artifact is not None:
                result = self.read(run, step)
                rows = list(itertools.islice(result.iter_rows(), ROWS))
                names = tuple(c.name for c in result.columns)
                found.append(Evidence(name=step.code, columns=names, rows=rows, row_count=result.row_count))
            elif step.kind == "python" and step.artifact is not None and step.artifact.media == CELL:
                cell = json.loads(self.objects.get(step.artifact.hash))
                found.append(Evidence(name="printed", text=f"{cell['stdout']}\n{cell['text'] or ''}"))
        return found

    def _drawn(self, run: Run) -> dict[str, Any] | None:
        """The last chart that a cell drew."""
        drawn = [a for a in run.artifacts if a.media == VEGA]
        if not drawn:
            return None
        chart: dict[str, Any] = json.loads(self.objects.get(drawn[-1].hash))
        return chart


def last_table(run: Run) -> Step | None:
    """The step that made the last table."""
    steps = (s for s in reversed(run.steps) if s.kind == "tool" and s.outcome == "ok")
    return next((s for s in steps if s.result is not None and s.artifact is not None), None)


def code_of(run: Run) -> str:
    """What computed the answer: the last query, or all cells as one script where Python came last."""
    steps = [s for s in run.steps if s.outcome == "ok" and s.kind in ("sql", "python")]
    cells = [s for s in steps if s.kind == "python"]
    tools = [s for s in steps if s.kind == "sql" and s.parent not in {c.id for c in cells}]
    if cells and (not tools or tools[-1].started_at < cells[-1].started_at):
        own = [c.code.strip("\n") for c in cells if c.code != PREAMBLE]
        return "\n\n".join([PREAMBLE.strip("\n"), *own]) + "\n"
    return tools[-1].code if tools else ""


def make_answer(run: Run, read: Callable[[Run, Artifact], Result]) -> Answer:
    """The answer of a run, as far as it is."""
    result = read(run, run.result_artifact) if run.result is not None and run.result_artifact is not None else None
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
    )


def reading_of(run: Run) -> str:
    """How the rules understood the question; empty where a model did."""
    if run.model != "offline":
        return ""
    turns = [s.turn for s in run.steps if s.kind == "model" and s.turn is not None and s.turn.calls]
    return turns[-1].text if turns else ""
