"""Where the tools of a run work: its datasets and its session, each use a step on the run's record."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation
from etude.entities import Artifact, Catalog, Limits, ResultInfo
from etude.errors import Cancelled, Invalid, NotFound
from etude.events import ArtifactCreated
from etude.result import Result, describe
from etude.runtime.query import PARQUET, Query, RunLog, run_query, run_step
from etude.sources.pool import Answer
from etude.spool import write_parquet

if TYPE_CHECKING:
    from etude.runtime.notebook import Notebook
    from etude.sessions.base import Cell
    from etude.sources.plan import QueryPlan

VEGA = "application/vnd.vegalite+json"


@dataclass(frozen=True)
class Workbench:
    """What the tools of a run can reach."""

    names: tuple[str, ...]
    """The datasets; no other can be named."""
    find_catalog: Callable[[str], Catalog]
    ask: Callable[[str, str, Limits, bool], Answer]
    """Start a query on a dataset: name, SQL, limits, whether to describe it."""
    compile: Callable[[str, dict[str, Any]], tuple[QueryPlan, str]]
    notebook: Callable[[], Notebook]
    """The session of the thread, opened when it is first needed."""
    limits: Limits
    scratch: Path

    def look(self, dataset: str, sql: str) -> Result:
        """Run a query of etude's own, such as for the values of a column; it leaves no record."""
        query = Query(dataset, sql, None, self.limits)
        return run_query(query, lambda describe: self.ask(dataset, sql, self.limits, describe), None, self.scratch)

    def at(self, log: RunLog, step_id: str, cancel: Cancellation) -> StepBench:
        """The bench for one step."""
        return StepBench(self, log, step_id, cancel)


class StepBench:
    """The bench while one tool works at it."""

    def __init__(self, workbench: Workbench, log: RunLog, step_id: str, cancel: Cancellation) -> None:
        self._workbench = workbench
        self._log = log
        self._step_id = step_id
        self._cancel = cancel
        self.result: ResultInfo | None = None
        """The table that the tool made."""
        self.artifact: Artifact | None = None

    def datasets(self) -> Sequence[str]:
        """The names of those that the run may use."""
        return self._workbench.names

    def catalog(self, dataset: str) -> Catalog:
        """What a dataset holds."""
        return self._workbench.find_catalog(self._known(dataset))

    def sql(self, dataset: str, query: str) -> Result:
        """Run a query as a step of the run."""
        return self._query(Query(self._known(dataset), query, None, self._limits()))

    def plan(self, dataset: str, plan: dict[str, Any]) -> Result:
        """Run a QueryPlan as a step of the run."""
        parsed, sql = self._workbench.compile(self._known(dataset), plan)
        body = parsed.model_dump(mode="json", exclude_none=True, by_alias=True)
        dialect = self.catalog(dataset).dialect
        return self._query(Query(dataset, sql, dialect, self._limits(), plan=body))

    def _query(self, query: Query) -> Result:
        with contextlib.ExitStack() as stack:

            def ask(describe: bool) -> Answer:
                answer = self._workbench.ask(query.source, query.sql, query.limits, describe)
                stack.enter_context(self._cancel.stopping(answer.cancel))
                return answer

            result, artifact = run_step(query, ask, self._log, self._workbench.scratch, self._step_id)
        self.result, self.artifact = result.info, artifact
        return result

    def python(self, code: str) -> Cell:
        """Run a cell in the session of the run's thread, as a step of the run."""
        from etude.runtime.notebook import PREAMBLE

        notebook = self._workbench.notebook()
        with self._cancel.stopping(notebook.interrupt):
            if not notebook.history:
                notebook.execute(PREAMBLE, log=self._log, parent=self._step_id)
            cell = notebook.execute(code, log=self._log, parent=self._step_id)
        if cell.outcome == "interrupted" and self._cancel.cancelled:
            raise Cancelled("The cell was interrupted.")
        if not cell.ok:
            raise _CellFailed(cell)
        self._keep(cell)
        return cell

    def _keep(self, cell: Cell) -> None:
        """Keep the table that a cell made, and its charts."""
        import pyarrow as pa

        for display in cell.display:
            if display.media.startswith(("image/", "application/vnd.vega")):
                media = VEGA if "vega" in display.media else display.media
                artifact = self._log.objects.put(bytes(display.data), media)
                self._log.add(ArtifactCreated(artifact=artifact, step_id=self._step_id))
        if isinstance(cell.value, pa.Table):
            sink = pa.BufferOutputStream()
            write_parquet(sink, cell.value.schema, cell.value.to_batches())
            self.artifact = self._log.objects.put(bytes(sink.getvalue()), PARQUET)
            columns = describe(cell.value.schema, [])
            self.result = ResultInfo(columns=columns, row_count=cell.value.num_rows, bytes=cell.value.nbytes)
            self._log.add(ArtifactCreated(artifact=self.artifact, step_id=self._step_id))

    def quote(self, text: str) -> str:
        """Text that comes from data, between marks that the data cannot know."""
        mark = data_mark(self._log.run_id)
        return f"<data {mark}>\n{text.replace(mark, '')}\n</data {mark}>"

    @property
    def question(self) -> str:
        """What the run is to answer."""
        return self._log.run.text

    @property
    def reply(self) -> str | None:
        """What a person answered to the question of this call; None where none was asked yet."""
        run = self._log.run
        return run.reply if run.call == self._step_id else None

    def _known(self, dataset: str) -> str:
        names = self._workbench.names
        if dataset in names:
            return dataset
        near = difflib.get_close_matches(dataset, names, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Datasets: {', '.join(names) or 'none'}."
        raise NotFound(f"There is no dataset `{dataset}` here.", hint=hint)

    def _limits(self) -> Limits:
        run, limits = self._log.run, self._workbench.limits
        allowed = run.budget.rows if run.budget else 0
        if not allowed:
            return limits
        used = sum(s.result.row_count for s in run.steps if s.kind == "tool" and s.result is not None)
        left = max(allowed - used, 1)
        return limits.model_copy(update={"rows": min(limits.rows, left) if limits.rows else left})


class _CellFailed(Invalid):
    """A cell of the model's own code failed: what the model sees is what a notebook would show."""

    def __init__(self, cell: Cell) -> None:
        error = cell.error or {}
        text = error.get("traceback") or f"{error.get('type')}: {error.get('message')}"
        printed = f"\nprinted before:\n{cell.stdout[-2000:]}" if cell.stdout else ""
        super().__init__(f"The cell failed ({cell.outcome}):\n{str(text)[-4000:]}{printed}", hint=" ".join(cell.notes))


def data_mark(run_id: str) -> str:
    """What marks data in a run: the same whenever the run goes on, and not to be guessed by what is in the data."""
    return hashlib.sha256(f"data of {run_id}".encode()).hexdigest()[:12]
