"""One replay: check that the script still fits, run its steps, and write the answer for what they return now."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation
from etude.entities import Run
from etude.errors import Cancelled, EtudeError, Stale, is_outage_error
from etude.events import RunFinished, StepFinished, StepStarted
from etude.ids import new_id
from etude.replays.cells import cell_fingerprint
from etude.replays.fingerprint import annotations_fingerprint, result_fingerprint
from etude.replays.guards import check_guards
from etude.replays.patch import ask_for_patch, patched_relations
from etude.replays.repair import Repair, find_repair, repair_cell, repair_query
from etude.replays.replaced_tables import NotReplaced
from etude.replays.replayed_text import Shown, write_replayed_text, write_replayed_text_reading
from etude.replays.script import Script, ScriptStep
from etude.replays.script_compiler import make_compiled_result
from etude.replays.script_parameters import check_parameter_value, fill_parameter_slots
from etude.runtime.chart import choose_chart, declines_chart
from etude.runtime.chart_form import asked_form, draw_in_form
from etude.runtime.failed_step import failed_step, ms_since
from etude.runtime.number_check.check import Evidence, check_numbers
from etude.runtime.run_log import RunLog
from etude.runtime.standalone_script import PREAMBLE

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Catalog
    from etude.models.base import Model
    from etude.result import Result
    from etude.runtime.tool_context import RecordedToolContext, ToolResources
    from etude.sources.source import Source

PATCHED = ("schema", "failed", "result")
"""Causes for which a model may correct a step. Wrong data, which a guard found, is not the fault of a step."""
TOOL = "replay"
"""The name of the step that a replay is on record as."""


class Stopped(Exception):
    """The script does not fit any more."""

    def __init__(self, cause: str, reason: str, guards: int = 0, *, again: bool = False) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.guards = guards
        self.again = again
        """Whether it may succeed if it is tried again: the engine, not the script, has failed."""


class ReplayExecution:
    """A script that is about to answer a question."""

    def __init__(
        self,
        app: App,
        script: Script,
        source: Source,
        resources: ToolResources,
        log: RunLog,
        cancel: Cancellation,
    ) -> None:
        self._app = app
        self.script = script
        self._source = source
        self._resources = resources
        self._log = log
        self._cancel = cancel
        self.repair: Repair | None = None
        """How the tables are read, if columns or tables have other names or types now."""
        self.tokens = 0
        """What a model was asked to correct a step for."""
        self.unchanged = False
        """Whether the results equal the recorded ones."""
        self._at = 0
        """The step that runs."""

    def answer(self, run: Run, values: Mapping[str, str]) -> tuple[RunFinished, int]:
        """Return the end of the run and how many guards passed; raise `Stopped` if the script does not fit."""
        try:
            passed = self.check(run, values)
        except Cancelled:
            raise
        except EtudeError as error:
            reason = f"The guards could not be checked: {error.message}"
            raise Stopped("failed", reason, again=_is_engine(error)) from None
        return self._run(passed, values)

    def patch(self, model: Model, values: Mapping[str, str], stopped: Stopped) -> tuple[RunFinished, int]:
        """Let a model correct the step that does not run, then answer; raise `Stopped` if that does not succeed."""
        script, self.repair = self.script, None
        if stopped.cause not in PATCHED:
            raise stopped
        catalog = self._source.catalog(self._app.settings.limits)
        number = self._at if stopped.cause != "schema" else self._reading_step(catalog)
        code = self._code(script.steps[number], values)
        resources = self._resources
        made = ask_for_patch(
            model,
            script,
            number,
            code,
            stopped.reason,
            catalog,
            resources.quote,
            resources.mark,
            self._log,
            self._cancel,
        )
        if made is None:
            raise stopped
        self.tokens = made.usage.tokens_in + made.usage.tokens_out
        steps = list(script.steps)
        steps[number] = steps[number].model_copy(update={"code": made.code, "slots": ()})
        self.script = script.model_copy(update={"steps": tuple(steps)})
        relations = patched_relations(script, made.code, catalog) if steps[number].kind == "sql" else None
        if relations is not None:
            failure = check_guards(script.guards, script.dialect, self._query, relations)
            if failure is not None:
                raise Stopped("guard", f"{stopped.reason} A model corrected the step, but: {failure}")
        passed = len(script.shapes) + len(script.guards) if relations is not None else 0
        return self._run(passed, values, exactly=relations is None)

    def _reading_step(self, catalog: Catalog) -> int:
        """Return the first step that names what is gone or has another type."""
        names = set()
        for shape in self.script.shapes:
            table = catalog.table(shape.table)
            now = {c.name: c.type for c in table.columns} if table else {}
            names |= {shape.table.rpartition(".")[2]} if table is None else set()
            names |= {name for name, kind in shape.columns.items() if now.get(name) != kind}
        codes = [step.code.lower() for step in self.script.steps]
        return next((n for n, code in enumerate(codes) if any(name.lower() in code for name in names)), 0)

    def _run(self, passed: int, values: Mapping[str, str], exactly: bool = False) -> tuple[RunFinished, int]:
        """Run all steps on record. With `exactly`, their results must equal the recorded ones."""
        step_id, started = new_id("step"), time.perf_counter()
        told = json.dumps({"script": self.script.id, "run": self.script.run_id, **values})
        self._log.add(StepStarted(step_id=step_id, kind="tool", code=TOOL, params={"arguments": told}))
        context = self._resources.context_for(self._log, step_id, self._cancel)
        try:
            end = self._run_steps(context, values)
            if exactly and not self.unchanged:
                raise Stopped(
                    "result", "A model corrected a step, but its result is another one, and no guard can tell."
                )
        except Cancelled as error:
            self._log.add(failed_step(step_id, error, ms_since(started)))
            raise
        except (EtudeError, Stopped) as error:
            stopped = error if isinstance(error, Stopped) else _failed(error)
            stopped.guards = passed
            self._log.add(failed_step(step_id, Stale(stopped.reason), ms_since(started)))
            self._log.commit()
            raise stopped from None
        self._log.add(
            StepFinished(
                step_id=step_id,
                outcome="ok",
                shown=end.answer,
                result=end.result,
                artifact=end.artifact,
                elapsed_ms=ms_since(started),
            )
        )
        return end, passed

    def rehearse(self, run: Run, values: Mapping[str, str]) -> str:
        """Return the fingerprint of the last table that the queries return now; nothing is recorded."""
        self.check(run, values)
        step = self.script.steps[-1]
        if step.kind != "sql":
            raise Stopped("shadow", "Only queries are compared.")
        code = self._code(step, values)
        table = self._resources.query_unrecorded(self._source.name, code, self._cancel)
        return result_fingerprint(table, ordered=False)

    def reading(self, values: Mapping[str, str]) -> str:
        """Return how the rules read the question, if they did."""
        return write_replayed_text_reading(self.script, values)

    # -- before

    def check(self, run: Run, values: Mapping[str, str]) -> int:
        """Return how many guards passed; raise `Stopped` with the first that did not."""
        script = self.script
        if script.day is not None and script.day != run.created_at.date():
            raise Stopped("day", f"The question depends on the day, and the script is from {script.day.isoformat()}.")
        if script.notes != annotations_fingerprint(self._app.annotations(self._source)):
            raise Stopped("annotations", "The descriptions of the data changed since the script was compiled.")
        catalog = self._source.catalog(self._app.settings.limits)
        for count, shape in enumerate(script.shapes):
            if (failure := shape.check(catalog)) is not None and self.repair is None:
                self.repair = find_repair(script, catalog, self._query)
                if self.repair is None:
                    raise Stopped("schema", failure, count)
        for parameter in script.parameters:
            if self.repair and parameter.table in self.repair.relations and values[parameter.name] != parameter.default:
                raise Stopped("parameter", f"`{parameter.table}` changed, so only `{parameter.default}` is certain.")
            in_cell = any(slot.quotes for step in script.steps for slot in step.slots)
            failure = check_parameter_value(parameter, values[parameter.name], catalog, self._query, in_cell)
            if failure is not None:
                raise Stopped("parameter", failure, len(script.shapes))
        if not self._same_data(catalog):
            if script.same_data:
                raise Stopped("slice", "The data changed, and it is not certain which cells other data need.")
            if script.mutants.survivors:
                unseen = script.mutants.survivors[0]
                raise Stopped("guard", f"The data may have changed, and no guard would notice if {unseen}.")
            relations = self.repair.relations if self.repair else {}
            failure = check_guards(script.guards, script.dialect, self._query, relations)
            if failure is not None:
                raise Stopped("guard", failure, len(script.shapes))
        return len(script.shapes) + len(script.guards)

    def _same_data(self, catalog: Catalog) -> bool:
        """Return whether the data are those for which the guards were found to hold."""
        for read in self.script.reads:
            table = catalog.table(read.table)
            if read.fingerprint is None or table is None or table.fingerprint != read.fingerprint:
                return False
        return bool(self.script.reads)

    def _query(self, sql: str) -> Sequence[Sequence[Any]]:
        return self._resources.query_unrecorded(self._source.name, sql, self._cancel).rows()

    # -- running

    def _code(self, step: ScriptStep, values: Mapping[str, str]) -> str:
        """Return the code of a step for these values, and for the tables as they are now."""
        code = fill_parameter_slots(step.code, step.slots, values, self.script.dialect)
        if self.repair is None:
            return code
        rewrite = repair_query if step.kind == "sql" else repair_cell
        try:
            return rewrite(code, self.script.dialect, self.repair.relations)
        except NotReplaced as error:
            raise Stopped("schema", f"{self.repair.texts[0]} {error}") from None

    def _run_steps(self, context: RecordedToolContext, values: Mapping[str, str]) -> RunFinished:
        shown: list[Shown] = []
        codes: list[str] = []
        unchanged = True
        table: Result | None = None
        for number, step in enumerate(self.script.steps):
            self._at = number
            code = self._code(step, values)
            codes.append(code)
            if step.kind == "python":
                seen, same = self._run_cell(step, code, context)
                shown += seen
                unchanged = unchanged and same
                continue
            table = context.sql(self._source.name, code)
            self._check_shape(step, table, changed=bool(step.slots) and code != step.code)
            unchanged = unchanged and result_fingerprint(table, step.ordered) == step.fingerprint != ""
            shown.append(make_compiled_result(table, step.ordered))
        info, artifact = context.result, context.artifact
        if info is not None and artifact is not None:
            table = self._app.read_result(info, artifact, self._log.run_id)
        self.unchanged = unchanged
        text = self._write(shown, unchanged, values, codes)
        cells = [code for step, code in zip(self.script.steps, codes, strict=True) if step.kind == "python"]
        code = "\n\n".join([PREAMBLE.strip("\n"), *cells]) + "\n" if cells else codes[-1]
        # A model that gave no chart has declined one; rules draw what suits the result.
        suits = table is not None and self.script.by_rules and not declines_chart(self._log.run.text)
        chart = self.script.chart or (choose_chart(table) if suits and table is not None else None)
        form = asked_form(self._log.run.text) if suits and not self.script.chart else None
        if form and table is not None:
            chart, note = draw_in_form(chart, form, table)
            text = f"{text} {note}" if note and note not in text else text
        figures = self.script.figures if text == self.script.answer else ()
        return RunFinished(answer=text, result=info, artifact=artifact, code=code, chart=chart, figures=figures)

    def _run_cell(self, step: ScriptStep, code: str, context: RecordedToolContext) -> tuple[list[Shown], bool]:
        """Run a cell; return what it shows, and whether that equals the record."""
        cell = context.python(code)
        if not step.shows:
            return [], True
        same = cell_fingerprint(cell) == step.fingerprint
        if step.result is None:
            return [Shown(output=f"{cell.stdout}{cell.text or ''}")], same
        if context.result is None or context.artifact is None:
            raise Stopped("result", "A cell does not return a table any more.")
        table = self._app.read_result(context.result, context.artifact, self._log.run_id)
        self._check_shape(step, table, changed=False)
        return [make_compiled_result(table, ordered=True)], same

    def _check_shape(self, step: ScriptStep, table: Result, changed: bool) -> None:
        recorded = step.result
        if recorded is None:
            return
        if [(c.name, c.type) for c in table.columns] != [(c.name, c.type) for c in recorded.columns]:
            raise Stopped("result", "The columns of the result are others than before.")
        if table.truncated:
            raise Stopped("result", "A limit cut the result.")
        if recorded.row_count and not table.row_count and not changed:
            raise Stopped("result", "The result has no rows any more.")

    def _write(self, shown: Sequence[Shown], unchanged: bool, values: Mapping[str, str], codes: Sequence[str]) -> str:
        script = self.script
        text = write_replayed_text(script, shown, unchanged, values)
        if unchanged:
            return text
        results = [
            Evidence(name=TOOL, columns=tuple(s.columns), rows=[tuple(row) for row in s.rows], row_count=s.row_count)
            if s.columns
            else Evidence(name="printed", text=s.output)
            for s in shown
        ]
        question = " ".join([script.question, *values.values()])
        if script.pieces and not check_numbers(text, results, question, codes).ok:
            return write_replayed_text(script.model_copy(update={"pieces": ()}), shown, False, values)
        return text


def _failed(error: EtudeError) -> Stopped:
    return Stopped("failed", f"The script failed: {error.message}", again=_is_engine(error))


def _is_engine(error: EtudeError) -> bool:
    """Return whether an engine failed that is replaced by another one: it may have been short of memory or time."""
    return is_outage_error(error) or error.details.get("limit") == "memory" or "engine ended" in error.message
