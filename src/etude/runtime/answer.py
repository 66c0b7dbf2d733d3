"""The answer of a run: its text, checked against the computed results, with the table, the chart and the code."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from etude.cell_text import CELL_CHARS, cell_to_json, cells_without_midnight, cut_json_cell
from etude.entities import (
    AnswerBody,
    Artifact,
    Figure,
    ResultInfo,
    RowPage,
    Run,
    RunStatus,
    ShownResult,
    ShownRows,
    Step,
    Turn,
)
from etude.errors import Cancelled, EtudeError, Invalid, from_problem
from etude.events import Guided, RunFinished
from etude.models.base import UserMessage
from etude.result import first_result_page
from etude.runtime.chart import choose_chart, declines_chart, read_chart
from etude.runtime.chart_form import asked_form, draw_in_form
from etude.runtime.chosen_chart import build_chosen_chart
from etude.runtime.conversation import (
    LAST_TURN,
    answer_choice_in_conversation,
    conversation_ended_by_budget,
    origins_given_in_conversation,
)
from etude.runtime.expression import MAX_ROWS, ExpressionRows
from etude.runtime.figures import FIGURES_FAILED, computed_spans, move_figures, render_figures
from etude.runtime.number_check.check import Evidence, check_numbers, explain_verdict, mark_unverified
from etude.runtime.origins import TracedNumbers, ask_for_origins, find_known_origins, trace_origins
from etude.runtime.prompt import OPENING, Opening
from etude.runtime.query import CELL
from etude.runtime.quoted_results import choose_quoted, find_quotes, rank_quoted_measures
from etude.runtime.standalone_script import standalone_code_of_answer
from etude.runtime.tool_context import VEGA, earlier_results_by_id, quote_tool_text, tool_results_by_id
from etude.tools.answer_chart import (
    answer_chart_result,
    check_answer_chart,
    is_declined_answer_chart,
    parse_answer_chart,
)

if TYPE_CHECKING:
    from etude.result import Result
    from etude.store.objects import Objects

CHART_FAILED = "The chart cannot be drawn:"
CHART_ONLY = "Call `answer` with `chart` alone; its text and results are kept."
ORIGINS_DIFFER = "The origins that you gave for figures have other values than the answer:"
WRITE_AGAIN = "Write the answer again."
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
    confidence: float | None = None
    """How likely the rules think that they understood the question, from 0 to 1; None if a model answered."""
    unverified: tuple[str, ...] = ()
    """Numbers in the text that no result contains."""
    results: tuple[tuple[str, Result], ...] = ()
    """The results that the answer shows, in order, each with its short id in the run; `result` is the first."""
    figures: tuple[Figure, ...] = ()
    """Numbers of the text that etude computed from expressions of the model."""
    question: str = ""
    """The question that the run asks the user before it continues."""
    choices: tuple[str, ...] = ()
    error: EtudeError | None = None
    replayed: str = ""
    """How the answer came about if an earlier run was replayed; empty if not."""

    def __repr__(self) -> str:
        """Return the text, or the error, and the first rows of the result."""
        said = self.text or self.question or (f"{self.error}" if self.error else f"The run is {self.status}.")
        return said if self.result is None else f"{said}\n\n{self.result!r}"

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
class AnswerConclusion:
    """Ends runs: checks the numbers of the answer, and assembles the result for the user."""

    objects: Objects
    read: Read
    corrects: bool
    """True if a model wrote the answer and can be asked to correct it; False if rules did."""
    thread: Sequence[str] = ()
    """The earlier messages of the conversation, whose numbers an answer may repeat."""
    before: Run | None = None
    """The latest run of the conversation, whose results an answer may use."""

    def __call__(self, run: Run, turn: Turn) -> RunFinished | Guided:
        """Return the end of the run, or the guidance that asks the model to correct its answer."""
        values = read_answer_results(run, self.read, self.before)
        rendered = render_figures(turn.text, values)
        text = rendered.text
        evidence = self.evidence(run)
        verdict = check_numbers(
            text,
            [*evidence, *self._earlier_evidence()],
            run.text,
            _given(run),
            schema=self._shown_schema(run),
            thread=self.thread,
            # Rules write their sentence from the result, so all of it is computed.
            computed=computed_spans(text, rendered.figures) if self.corrects else [(0, len(text))],
            # A model that repeats a figure after it was doubted has confirmed it.
            figures=() if any(g.by == "check" for g in run.guidance) else rendered.computed,
        )
        choice = answer_choice_in_conversation(run)
        if run.guidance and run.guidance[-1].by == "origins":
            traced = trace_origins(verdict, choice.get("origins") or {}, values)
        else:
            traced = find_known_origins(verdict, origins_given_in_conversation(run), values)
        verdict = traced.verdict
        verified = [c.mention for c in verdict.mentions if c.verified]
        results = [e for e in evidence if e.columns]
        quotes = find_quotes(text, results, verified, rendered.figures) if self.corrects else []
        shown = choose_answer_results(run, choice, choose_quoted(quotes))
        first = shown[0] if shown else None
        figures = next((q.columns for q in quotes if first and q.name == first.id), Counter())
        chart, lost, note = self._chart(
            run, choice, first, lambda names: rank_quoted_measures(names, run.text, text, figures)
        )
        may_ask = self.corrects and not conversation_ended_by_budget(run)
        if may_ask and (guided := self._guide(run, turn.stop == "length", rendered.errors, traced, lost)):
            return guided
        marked = mark_unverified(text, verdict)
        return RunFinished(
            answer=marked + _note_chart(lost, note) + _why_incomplete(run),
            unverified=tuple(c.mention.text for c in verdict.unverified),
            result=first.result if first else None,
            artifact=first.artifact if first else None,
            code=standalone_code_of_answer(run, first.step_id if first else None),
            chart=chart,
            shown=tuple(shown),
            figures=move_figures(_join_figures(rendered.figures, traced.figures), text, marked),
        )

    def _guide(
        self, run: Run, cut: bool, errors: Sequence[str], traced: TracedNumbers, chart_error: str
    ) -> Guided | None:
        """Return the guidance that the answer needs before it can be accepted, if any."""
        tries = sum(g.by == "check" for g in run.guidance)
        # The model is asked once, and first: a label may only seem to contradict a number.
        may_ask = not any(g.by == "origins" for g in run.guidance)
        asked = ask_for_origins(traced.verdict, partial(self._quote, run)) if may_ask else ""
        told: list[str] = []
        if errors and tries < 2:
            told = [FIGURES_FAILED, *errors]
        elif tries == 0 and cut:
            told = [CUT_OFF]
        elif tries == 0 and traced.differences:
            told = [ORIGINS_DIFFER + self._quote(run, "\n".join(traced.differences))]
        elif tries == 0 and traced.verdict.sends_back and not asked:
            told = [explain_verdict(traced.verdict, partial(self._quote, run))]
        asks = chart_error and not any(CHART_FAILED in g.text for g in run.guidance)
        if told:
            again = [CHART_FAILED + self._quote(run, chart_error)] if asks else []
            rewrite = [WRITE_AGAIN] if errors or traced.differences or asks else []
            return Guided(text="\n".join([*told, *again, *rewrite]), by="check")
        if asks:
            return Guided(text=f"{CHART_FAILED}{self._quote(run, chart_error)}\n{CHART_ONLY}", by="chart")
        return Guided(text=asked, by="origins") if asked else None

    def _chart(
        self, run: Run, choice: dict[str, Any], first: ShownResult | None, rank: Callable[[Sequence[str]], list[str]]
    ) -> tuple[dict[str, Any] | None, str, str]:
        """Return the chart that the model chose, else the last one that a cell drew, else one that suits the result.

        The first text says why the chart that the model chose cannot be drawn, the second why the result is not drawn
        in the form that the question names; both are empty if nothing has to be said.
        """
        lost, chart = "", choice.get("chart")
        if is_declined_answer_chart(chart):
            return None, "", ""
        if chart:
            steps = tool_results_by_id(run)
            known = {name: [c.name for c in s.result.columns] for name, s in steps.items() if s.result}
            shown = choice.get("results") or ()
            try:
                chart = parse_answer_chart(chart)
                check_answer_chart(chart, shown, known)
                name = answer_chart_result(chart, shown, known)
                step = steps.get(name)
                table = (
                    self.read(step.result, step.artifact, run.id) if step and step.result and step.artifact else None
                )
                return build_chosen_chart(chart, table, inline=first is None or name != first.id), "", ""
            except Invalid as error:
                lost = f"{error.message} {error.hint}".strip()
        if declines_chart(run.text):
            return None, lost, ""
        if (drawn := self._drawn(run)) is not None:
            return drawn, lost, ""
        if first is None:
            return None, lost, ""
        result = self.read(first.result, first.artifact, run.id)
        suited, form = choose_chart(result, rank), asked_form(run.text)
        drawn, note = draw_in_form(suited, form, result) if form else (suited, "")
        return drawn, lost, note

    def _table(self, run: Run, step: Step | None) -> Result | None:
        """Return the table that a step produced, if any."""
        return self.read(step.result, step.artifact, run.id) if step and step.result and step.artifact else None

    def evidence(self, run: Run) -> list[Evidence]:
        """Return everything that the run computed: the tables of its tools, and the output of its cells."""
        found: list[Evidence] = []
        for step in run.steps:
            if step.outcome != "ok":
                continue
            if step.kind == "tool" and step.result is not None and step.artifact is not None:
                result = self.read(step.result, step.artifact, run.id)
                rows = [_start_of_cells(row) for row in itertools.islice(result.iter_rows_in_pieces(), ROWS)]
                names = tuple(c.name for c in result.columns)
                number = 1 + sum(bool(e.columns) for e in found)
                found.append(Evidence(name=f"r{number}", columns=names, rows=rows, row_count=result.row_count))
            elif step.kind == "python" and step.artifact is not None and step.artifact.media == CELL:
                cell = json.loads(self.objects.get(step.artifact.hash, run.id))
                found.append(Evidence(name="printed", text=f"{cell['stdout']}\n{cell['text'] or ''}"))
        return found

    def _earlier_evidence(self) -> list[Evidence]:
        """Return the results of the latest run of the conversation, as far as they are still stored."""
        found: list[Evidence] = []
        for name, step in earlier_results_by_id(self.before).items() if self.before else ():
            with contextlib.suppress(EtudeError):
                result = self._table(self.before, step) if self.before else None
                if result is not None:
                    rows = [_start_of_cells(row) for row in itertools.islice(result.iter_rows_in_pieces(), ROWS)]
                    names = tuple(c.name for c in result.columns)
                    found.append(Evidence(name=name, columns=names, rows=rows, row_count=result.row_count))
        return found

    def _shown_schema(self, run: Run) -> str:
        """Return the descriptions of tables that the model was shown: in the opening, and by tools."""
        texts = [
            s.shown or "" for s in run.steps if s.kind == "tool" and s.code in ("get_dataset_schema", "list_datasets")
        ]
        for opening in self._openings(run):
            texts = [m.text for m in opening.said if isinstance(m, UserMessage)] + texts
        return "\n".join(texts)

    def _openings(self, run: Run) -> list[Opening]:
        kept = (a for a in run.artifacts if a.media == OPENING)
        return [Opening.model_validate_json(self.objects.get(a.hash, run.id)) for a in kept]

    def _quote(self, run: Run, text: str) -> str:
        """Mark a message as data: it may have names of columns, which must not look like words of etude."""
        marks = [opening.mark for opening in self._openings(run)]
        return f"\n{quote_tool_text(marks[-1], text)}" if marks else text

    def _drawn(self, run: Run) -> dict[str, Any] | None:
        """Return the last chart that a cell drew, if any."""
        drawn = [a for a in run.artifacts if a.media == VEGA]
        return read_chart(self.objects.get(drawn[-1].hash, run.id)) if drawn else None


def _start_of_cells(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with the beginning of long texts: no answer quotes what follows, and reading it takes long."""
    return tuple(v[:CELL_CHARS] if isinstance(v, str) else v for v in row)


def _note_chart(lost: str, note: str) -> str:
    """Return what the answer says about its chart."""
    said = f"\n\n(The chart is left out. {lost})" if lost else ""
    return said + (f" {note}" if note else "")


def _given(run: Run) -> list[str]:
    """Return the texts whose numbers an answer may repeat: the queries that ran, and the user's messages."""
    guidance = [g.text for g in run.guidance if g.by == "user"]
    replied = [s.shown for s in run.steps if s.code == "ask_user" and s.shown]
    return [*(s.code for s in run.steps if s.kind in ("sql", "python")), *guidance, *replied]


def _why_incomplete(run: Run) -> str:
    """Say that a limit ended the run early; the model was asked to say what is missing."""
    limits = [g.text.removesuffix(LAST_TURN.format(why="")) for g in run.guidance if g.by == "budget"]
    return f"\n\n(This answer may be incomplete. {limits[-1].strip()})" if limits else ""


def choose_answer_results(run: Run, choice: dict[str, Any], quoted: Sequence[str] = ()) -> list[ShownResult]:
    """Return the results that the model chose, in its order; else those that its text quotes; else the last one.

    An empty list is a choice too: no result is shown.
    """
    if choice.get("results") == []:
        return []
    known = tool_results_by_id(run)
    chosen = dict.fromkeys(choice.get("results") or quoted)
    names = [n for n in chosen if n in known] or list(known)[-1:]
    steps = [(n, known[n]) for n in names]
    return [
        ShownResult(id=n, step_id=s.id, result=s.result, artifact=s.artifact)
        for n, s in steps
        if s.result and s.artifact
    ]


def read_answer_table(run: Run, read: Read) -> Result | None:
    """Return the last table that the run produced, if any."""
    shown = choose_answer_results(run, {})
    return read(shown[0].result, shown[0].artifact, run.id) if shown else None


def chosen_answer_results(run: Run) -> tuple[ShownResult, ...]:
    """Return the results that the model chose to show, or none if it did not choose."""
    return run.shown if answer_choice_in_conversation(run).get("results") else ()


def read_answer_results(run: Run, read: Read, before: Run | None = None) -> dict[str, ExpressionRows]:
    """Return the results of a run, and of the one before it in the conversation, as expressions read them, by id."""

    def rows_of(run_id: str, info: ResultInfo, artifact: Artifact, name: str) -> list[tuple[object, ...]]:
        if info.row_count > MAX_ROWS:
            raise Invalid(f"`{name}` has {info.row_count:,} rows, too many for an expression; compute it with a tool.")
        return read(info, artifact, run_id).first_rows(MAX_ROWS)

    steps = [(name, step, run.id) for name, step in tool_results_by_id(run).items()]
    steps += [(name, step, before.id) for name, step in earlier_results_by_id(before).items()] if before else []
    return {
        name: ExpressionRows(
            name, [c.name for c in s.result.columns], partial(rows_of, run_id, s.result, s.artifact, name)
        )
        for name, s, run_id in steps
        if s.result and s.artifact
    }


def _join_figures(written: Sequence[Figure], asked: Sequence[Figure]) -> list[Figure]:
    """Return the figures that were written as expressions, and those that have an origin since the model was asked."""
    other = [f for f in asked if not any(w.start < f.end and f.start < w.end for w in written)]
    return sorted((*written, *other), key=lambda f: f.start)


def make_answer(run: Run, read: Read) -> Answer:
    """Return the answer of a run, which may be incomplete while it runs."""
    result = read(run.result, run.result_artifact, run.id) if run.result and run.result_artifact else None
    shown = tuple((s.id, read(s.result, s.artifact, run.id)) for s in run.shown)
    for found, artifact in [(result, run.result_artifact), *((r, s.artifact) for s, (_, r) in zip(run.shown, shown))]:
        if found is not None and artifact is not None:
            found.elapsed_ms = _computed_in(run, artifact)
            found.notes = found.notes or tuple(dict.fromkeys(run.notes))
    return Answer(
        run=run,
        text=run.answer or "",
        result=result,
        code=run.code or "",
        chart=run.chart,
        reading=answer_reading(run),
        confidence=answer_confidence(run),
        unverified=run.unverified,
        results=shown,
        figures=run.figures,
        question=run.question or "" if run.status == "waiting" else "",
        choices=run.choices if run.status == "waiting" else (),
        error=from_problem(run.error | {"run_id": run.id}) if run.error else None,
        replayed=run.replay.sentence if run.replay else "",
    )


def _computed_in(run: Run, artifact: Artifact) -> float:
    """Return the milliseconds of the query or the cell that made an artifact."""
    made = [s for s in run.steps if s.artifact is not None and s.artifact.hash == artifact.hash]
    own = [s for s in made if s.kind in ("sql", "python")] or made
    return (own[-1].elapsed_ms or 0.0) if own else 0.0


def answer_markdown_table(result: Result) -> str:
    """Return the first rows of a result as a Markdown table, and how many rows there are if it has more."""
    rows = itertools.islice(result.iter_rows_in_pieces(shown=True), TABLE_ROWS)
    cells = zip(*(map(cell_to_json, cells_without_midnight(column)) for column in zip(*rows)))
    lines = [[column.name for column in result.columns], ["---"] * len(result.columns), *cells]
    more = f"\n{result.row_count:,} rows in all.\n" if result.row_count > TABLE_ROWS else ""
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines) + more


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)[:CELL_CHARS]
    return " ".join(text.replace("|", "\\|").split())[:TABLE_WIDTH]


def describe_code_answer(run: Run, read: Read) -> str:
    """Return the outcome of a query or a cell as text: its output, then one line and a small table of its result."""
    parts = []
    if run.kind == "python" and run.answer:
        parts.append(run.answer.strip())
    if run.result and run.result_artifact:
        result = read(run.result, run.result_artifact, run.id)
        count = "1 row" if result.row_count == 1 else f"{result.row_count:,} rows"
        parts.append(f"The result has {count}.\n\n{answer_markdown_table(result)}".strip())
    return "\n\n".join(parts) or "The code ran and returned nothing."


def answer_to_body(answer: Answer, rows: int) -> AnswerBody:
    """Return an answer as JSON, with the first rows of its result."""
    run, waits = answer.run, answer.status == "waiting"
    return AnswerBody(
        run_id=run.id,
        thread_id=run.thread_id,
        status=run.status,
        text=answer.question if waits else answer.text,
        question=answer.question if waits else None,
        choices=list(answer.choices),
        result=_shown_page(answer.result, rows) if answer.result is not None else None,
        code=run.code,
        chart=answer.chart,
        reading=answer.reading or None,
        confidence=answer.confidence,
        unverified=list(answer.unverified),
        results=[ShownRows(id=name, rows=_shown_page(result, rows)) for name, result in answer.results],
        figures=list(answer.figures),
        usage=run.usage,
        replayed=answer.replayed or None,
        replay=run.replay,
        error=run.error,
    )


def _shown_page(result: Result, rows: int) -> RowPage:
    """Return the first rows of a result, with long cells cut; a note says so."""
    page = first_result_page(result, rows)
    shown = [[cut_json_cell(value) for value in row] for row in page.rows]
    if shown == page.rows:
        return page
    note = f"Cells are cut at {CELL_CHARS:,} characters; the result of run `{result.run_id}` has them whole."
    return page.model_copy(update={"rows": shown, "notes": [*page.notes, note]})


def answer_reading(run: Run) -> str:
    """Return how the rules understood the question; empty if a model answered."""
    if run.model != "offline":
        return ""
    if run.replay is not None and run.replay.reading:
        return run.replay.reading
    turns = [s.turn for s in run.steps if s.kind == "model" and s.turn is not None and s.turn.calls]
    return turns[-1].text if turns else ""


def answer_confidence(run: Run) -> float | None:
    """Return how likely the rules think that they understood the question; None if a model answered."""
    turns = [s.turn for s in run.steps if s.kind == "model" and s.turn is not None and s.turn.confidence is not None]
    return turns[-1].confidence if turns else None
