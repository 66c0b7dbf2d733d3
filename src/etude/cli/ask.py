"""`etude ask SOURCE "question"`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude.cli.options import open_app_for
from etude.cli.output import SHOWN_ROWS as TABLE_ROWS
from etude.cli.output import is_number_type, print_output_table
from etude.cli.printable import printable, printable_lines
from etude.cli.progress import Progress

if TYPE_CHECKING:
    from etude.app import App
    from etude.events import Entry
    from etude.result import Result
    from etude.runtime.answer import Answer

SHOWN_ROWS = 12
MARK = "[?]"
EXPLAIN_MARKS = f"{MARK} marks a number that etude could not trace to the results."
FILE_BYTES = 1 << 25
"""The most bytes of a chart in a file."""
EXAMPLES = (
    'etude ask sales.csv "How many orders are there per country?"',
    'etude ask shop.duckdb "SQL: SELECT count(*) FROM orders"',
    'etude ask shop.duckdb "only for web" --thread thread_...',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", help="a name, a path or a URL")
    parser.add_argument("question", help="the question; `SQL: ...` and `PYTHON: ...` run without a model")
    parser.add_argument("--model", help="the model: `offline` (rules only) or for example `openai:gpt-5`")
    parser.add_argument("--thread", metavar="T", help="the conversation to continue")
    parser.add_argument("--reply", metavar="RUN", help="give the question as the reply that this run waits for")
    parser.add_argument("--fresh", action="store_true", help="do not replay an earlier run with the same question")
    parser.add_argument("--json", action="store_true", help="print events and the answer as JSON lines")


def run(options: argparse.Namespace) -> int:
    """Answer the question and show the steps as they happen."""
    with open_app_for(options.source) as app:
        steps = AskSteps(sys.stderr)
        app.pool.on_load = steps.progress
        show = _print_json if options.json else steps
        with steps.progress:
            answer = ask_question(
                app, options.source, options.question, options.model, options.thread, options.reply, show, options.fresh
            )
        if options.json:
            _print_answer_json(answer)
        elif answer.error is None:
            charts, said = app.settings.home / "charts", steps.said(answer)
            print_asked_answer(answer, sys.stdout, charts, said=said, source=options.source)
            print_answer_notes(answer, sys.stderr)
        print_similar_questions(answer, sys.stderr)
        answer.require()
    return 0


def ask_question(
    app: App,
    source: str,
    question: str,
    model: str | None,
    thread: str | None,
    reply: str | None,
    show: Any,
    fresh: bool = False,
) -> Answer:
    """Return the answer to a question, or continue a waiting run with a reply."""
    if reply is None:
        if source and (note := app.source(source).hiding_note):
            sys.stderr.write(f"note: {printable(note)}\n")
        return app.ask(source, question, model=model, thread_id=thread, fresh=fresh, on_entry=show)
    run_id = app.store.resolve_run(reply)
    app.runs.answer(run_id, _chosen(question, app.store.run(run_id).choices))
    return app.runs.answer_of(app.runs.work(run_id, on_entry=show))


def _chosen(text: str, choices: Sequence[str]) -> str:
    """Return the choice whose number the text is; otherwise the text, which may also be a choice that is a number."""
    number = int(text) if text.isdecimal() and len(text) < 3 else 0
    return choices[number - 1] if text not in choices and 1 <= number <= len(choices) else text


class AskSteps:
    """Prints the steps of a run as they happen, and on a terminal the text of the answer as it is written."""

    def __init__(self, out: IO[str]) -> None:
        self.progress = Progress("working", out)
        self._out = out
        self._writing = False
        self._written = ""
        self._turns: set[str] = set()
        self._parents: dict[str, str | None] = {}
        self._printed: dict[str, str] = {}
        """The last error that was printed for a part of a step."""

    def __call__(self, entry: Entry) -> None:
        """Print one event."""
        from etude.events import Guided, ReplayDecided, StepFinished, StepStarted, TextDelta
        from etude.runtime.standalone_script import PREAMBLE

        self.progress.restart("working")
        if isinstance(entry.event, StepStarted):
            self._parents[entry.event.step_id] = entry.event.parent
        match entry.event:
            case TextDelta(text=text) if self._out.isatty():
                self._out.write(printable_lines(text))
                self._written = self._written + text if self._writing else text
                self._writing = True
            case StepStarted(kind="model", step_id=step_id):
                self._turns.add(step_id)
            case StepStarted(kind="sql" | "python" as kind, code=code) if code != PREAMBLE:
                self._line(f"▸ {code}")
                self.progress.restart("running the query" if kind == "sql" else "running the code")
            case StepFinished(step_id=step_id, outcome=outcome, error=error) if error is not None:
                parent, detail = self._parents.get(step_id), str(error.get("detail", ""))
                # An error of a model turn, or of a step alone, ends the run, which reports it. A tool repeats the
                # error of its query or cell.
                before = self._printed.get(step_id)
                if parent is not None and step_id not in self._turns:
                    if before is None or before not in detail:
                        self._line(f"  {outcome}: {detail}")
                    self._printed[parent] = before or detail
            case Guided(by="check"):
                self._line("▸ checking the numbers again")
            case Guided(by="chart"):
                self._line("▸ asking for the chart again")
            case Guided(by="origins"):
                self._line("▸ asking where figures come from")
            case Guided(by="budget"):
                self._line("▸ limit reached: answering from the results so far")
            case ReplayDecided(level="example", origin=str(origin), reason=reason):
                self._line(f"▸ not replaying {origin}: {reason}")
        self._out.flush()

    def said(self, answer: Answer) -> bool:
        """Return whether the reader of the terminal has seen the text of the answer already; end its line."""
        if self._writing:
            self._out.write("\n")
            self._out.flush()
        return sys.stdout.isatty() and bool(answer.text) and self._written.strip() == answer.text.strip()

    def _line(self, text: str) -> None:
        if self._writing:
            self._out.write("\n")
            self._writing = False
        self._out.write(printable_lines(text) + "\n")


def print_answer_notes(answer: Answer, out: IO[str]) -> None:
    """Print what was assumed about the data behind an answer."""
    for note in answer.result.notes if answer.result is not None and answer.run.kind == "ask" else ():
        out.write(f"note: {printable(note)}\n")


def print_similar_questions(answer: Answer, out: IO[str]) -> None:
    """Name a similar question that was answered before, if this one was not answered."""
    if answer.error is not None and answer.run.replay is not None and answer.run.replay.suggestion:
        out.write(f"{printable(answer.run.replay.suggestion)}\n")


def print_asked_answer(
    answer: Answer,
    out: IO[str],
    keep: Path | None = None,
    said: bool = False,
    source: str = "SOURCE",
    prompts: bool = False,
) -> None:
    """Print an answer with its results in order, its chart, and the ids of its run and thread.

    A chart that text cannot show is written to a file in the folder `keep`, which is named. If the reader has seen the
    text already (`said`), it is left out. `source` is what was asked, for the command that replies; a caller that
    `prompts` takes the reply itself.
    """
    import itertools
    import shlex

    from etude.cli.terminal_chart import draw_terminal_chart, terminal_chart_shows_all
    from etude.cli.terminal_plot import ROWS as PLOT_ROWS
    from etude.cli.terminal_plot import draw_terminal_plot
    from etude.runtime.answer import chosen_answer_results

    if answer.question:
        choices = "".join(f"\n  {number}. {printable(c)}" for number, c in enumerate(answer.choices, 1))
        out.write(f"{printable_lines(answer.question)}{choices}\n")
        if prompts:
            out.write("\nType a number, or answer in words.\n" if answer.choices else "")
            return
        named = shlex.quote(printable(source)) if source != "SOURCE" else source
        out.write(f'\nReply with:  etude ask {named} "your answer" --reply {answer.run_id}\n')
        return
    out.write(f"{printable_lines(answer.text)}\n" if answer.text and not said else "")
    if answer.unverified and MARK in answer.text:
        out.write(f"\n\x1b[2m{EXPLAIN_MARKS}\x1b[0m\n" if out.isatty() else f"\n{EXPLAIN_MARKS}\n")
    out.write(f"read as: {printable(answer.reading)}\n" if answer.reading else "")
    shown = [result for _, result in answer.results] or ([answer.result] if answer.result is not None else [])
    chosen, charted = chosen_answer_results(answer.run), False
    spec = answer.chart if answer.run.kind == "ask" else None  # of a query the table is enough, as `etude sql` has it
    own, plotted = _values_of(spec), False
    for number, result in enumerate(shown):
        rows = [tuple(map(_shorten, row)) for row in itertools.islice(result.iter_rows(shown=True), SHOWN_ROWS)]
        names = [c.name for c in result.columns]
        whole = len(rows) == result.row_count
        chart = plot = ""
        if spec and number == 0 and not own:
            plot = draw_terminal_plot(spec, names, list(itertools.islice(result.iter_rows(), PLOT_ROWS)))
            chart = plot or (draw_terminal_chart(spec, names, rows) if whole else "")
        charted, plotted = charted or bool(chart), plotted or bool(plot)
        drawn = bool(chart) and not plot and terminal_chart_shows_all(spec or {}, names, rows)
        if not drawn and not chosen and not plot:
            chart = ""  # bars beside the table would say the same again, unless a model chose to show both
        if not drawn and (result.row_count > 1 or len(names) > 1 or chosen or not answer.text):
            out.write("\n")
            print_output_table(names, rows, out, [is_number_type(c.type) for c in result.columns])
            if result.row_count > len(rows):
                out.write(f"{result.row_count:,} rows, {len(rows)} shown. {_how_to_see(answer, number, result)}\n")
        out.write(f"\n{chart}" if chart else "")
    if spec and not charted:
        out.write(_other_chart(answer, keep))
    elif spec and not plotted and _is_drawn_otherwise(spec):
        out.write(_write_chart(answer, keep))
    out.write(f"\n{answer.replayed}\n" if answer.replayed else "")
    out.write(f"\n{answer.run_id}  {answer.thread_id}\n")


def _how_to_see(answer: Answer, number: int, result: Result) -> str:
    """Return the command that shows all rows of a result of the answer."""
    name = f" --result {answer.results[number][0]}" if number else ""
    file = " --output FILE.csv" if result.row_count > TABLE_ROWS else ""
    return f"All of them: etude runs result {answer.run_id}{name}{file}"


def _other_chart(answer: Answer, keep: Path | None) -> str:
    """Return a chart with its own data as text, or the name of a file with a chart that text cannot show."""
    from etude.cli.terminal_chart import draw_terminal_chart
    from etude.cli.terminal_plot import draw_terminal_plot

    chart = answer.chart or {}
    values = _values_of(chart)
    if values:
        names = list(values[0])
        rows = [tuple(value.get(name) for name in names) for value in values]
        if plot := draw_terminal_plot(chart, names, rows):
            return f"\n{plot}"
        if bars := draw_terminal_chart(chart, names, rows) if len(rows) <= SHOWN_ROWS else "":
            return f"\n{bars}" + (_write_chart(answer, keep) if _is_drawn_otherwise(chart) else "")
    return _write_chart(answer, keep)


def _is_drawn_otherwise(chart: dict[str, Any]) -> bool:
    """Return whether bars of text are another form than the chart has, such as a pie."""
    mark = chart.get("mark")
    return (mark.get("type") if isinstance(mark, dict) else mark) not in ("bar", "line")


def _write_chart(answer: Answer, keep: Path | None) -> str:
    """Write the chart of an answer with its data to a file, and return a text that names it."""
    if keep is None:
        return ""
    chart = answer.chart or {}
    if answer.result is not None and not _values_of(chart):
        from etude.errors import Invalid
        from etude.runtime.chosen_chart import build_chosen_chart

        with contextlib.suppress(Invalid):  # the chart alone, for other tools
            chart = build_chosen_chart(chart, answer.result, inline=True, room=FILE_BYTES)
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"{answer.run_id}.vl.json"
    path.write_text(json.dumps(chart, ensure_ascii=False))
    return f"\nchart: {path}\n(Vega-Lite with its data; https://vega.github.io/editor draws it)\n"


def _values_of(chart: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the rows that a chart carries; none if it draws those of the result."""
    data = (chart or {}).get("data")
    values = data.get("values") if isinstance(data, dict) else None
    return values if isinstance(values, list) and all(isinstance(value, dict) for value in values) else []


def _shorten(value: Any) -> Any:
    """Round a float to 12 digits: the digits after that are noise."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _print_json(entry: Entry) -> None:
    sys.stdout.write(entry.model_dump_json() + "\n")
    sys.stdout.flush()


def _print_answer_json(answer: Answer) -> None:
    """Print an answer as a JSON line with as many rows as the terminal would show; the run keeps all of them."""
    from etude.runtime.answer import answer_to_body

    body = answer_to_body(answer, SHOWN_ROWS).model_dump(mode="json")
    sys.stdout.write(json.dumps({"type": "answer"} | body) + "\n")
