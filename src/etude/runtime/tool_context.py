"""Where the tools of a run work: its datasets and its session, each use a step on the run's record."""

from __future__ import annotations

import contextlib
import difflib
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation
from etude.entities import Artifact, Catalog, Limits, ResultInfo, Run
from etude.errors import Cancelled, Invalid, NotFound
from etude.events import ArtifactCreated
from etude.result import Result, describe
from etude.runtime.query import PARQUET, Query, RunLog, run_query, run_step
from etude.sources.pool import ResultStream
from etude.spool import write_parquet

if TYPE_CHECKING:
    from etude.offline.vocabulary import KnownTable
    from etude.runtime.notebook import Notebook
    from etude.sessions.base import Cell
    from etude.sources.plan import QueryPlan

VEGA = "application/vnd.vegalite+json"


@dataclass(frozen=True)
class RunResources:
    """What the tools of a run can reach."""

    names: tuple[str, ...]
    """The datasets; no other can be named."""
    places: Mapping[str, str]
    """Where each of them is, and what of it is granted: what is remembered of one is not told of another."""
    find_catalog: Callable[[str], Catalog]
    ask: Callable[[str, str, Limits, bool], ResultStream]
    """Start a query on a dataset: name, SQL, limits, whether to describe it."""
    compile: Callable[[str, dict[str, Any] | str], tuple[QueryPlan, str]]
    notebook: Callable[[], AbstractContextManager[Notebook]]
    """The session of the thread, opened when it is first needed, and nobody else's to let go of meanwhile."""
    limits: Limits
    scratch: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(6))
    """What marks data for the model: chosen by chance, so that no data can hold it."""
    find_known: Callable[[str], Mapping[str, KnownTable]] = lambda _: {}
    """The tables of a dataset that a profile of the same data tells of."""

    def quote(self, text: str) -> str:
        """Text that comes from data, marked so that the model takes it for nothing else."""
        while self.mark in text:
            text = text.replace(self.mark, "")
        return f"<data {self.mark}>\n{text}\n</data {self.mark}>"

    def look(self, dataset: str, sql: str) -> Result:
        """Run a query of etude's own, such as for the values of a column; it leaves no record."""
        query = Query(dataset, sql, None, self.limits)
        return run_query(query, lambda describe: self.ask(dataset, sql, self.limits, describe), None, self.scratch)

    def at(self, log: RunLog, step_id: str | None, cancel: Cancellation) -> RecordedToolContext:
        """The bench for one step."""
        return RecordedToolContext(self, log, step_id, cancel)


class RecordedToolContext:
    """The bench while one tool works at it."""

    def __init__(self, resources: RunResources, log: RunLog, step_id: str | None, cancel: Cancellation) -> None:
        self._resources = resources
        self._log = log
        self._step_id = step_id
        self._cancel = cancel
        self.result: ResultInfo | None = None
        """The table that the tool made."""
        self.artifact: Artifact | None = None

    def datasets(self) -> Sequence[str]:
        """The names of those that the run may use."""
        return self._resources.names

    def catalog(self, dataset: str) -> Catalog:
        """What a dataset holds."""
        return self._resources.find_catalog(self._known(dataset))

    def sql(self, dataset: str, query: str) -> Result:
        """Run a query as a step of the run."""
        return self._query(Query(self._known(dataset), query, None, self._limits()))

    def plan(self, dataset: str, plan: dict[str, Any] | str) -> Result:
        """Run a QueryPlan, or the JSON of one, as a step of the run."""
        parsed, sql = self._resources.compile(self._known(dataset), plan)
        body = parsed.model_dump(mode="json", exclude_none=True, by_alias=True)
        dialect = self.catalog(dataset).dialect
        return self._query(Query(dataset, sql, dialect, self._limits(), plan=body))

    def _query(self, query: Query) -> Result:
        with contextlib.ExitStack() as stack:

            def ask(describe: bool) -> ResultStream:
                answer = self._resources.ask(query.source, query.sql, query.limits, describe)
                stack.enter_context(self._cancel.stopping(answer.cancel))
                return answer

            result, artifact = run_step(query, ask, self._log, self._resources.scratch, self._step_id)
        self.result, self.artifact = result.info, artifact
        return result

    def python(self, code: str) -> Cell:
        """Run a cell in the session of the run's thread, as a step of the run."""
        from etude.runtime.script import PREAMBLE

        with self._resources.notebook() as notebook:
            for part in (code,) if notebook.history else (PREAMBLE, code):
                cell = notebook.execute(part, log=self._log, parent=self._step_id, cancel=self._cancel)
        if cell.outcome == "interrupted":
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
        return self._resources.quote(text)

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
        names = self._resources.names
        if dataset in names:
            return dataset
        near = difflib.get_close_matches(dataset, names, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Datasets: {', '.join(names) or 'none'}."
        raise NotFound(f"There is no dataset `{dataset}` here.", hint=hint)

    def _limits(self) -> Limits:
        run, limits = self._log.run, self._resources.limits
        allowed = run.budget.rows if run.budget else 0
        if not allowed:
            return limits
        left = max(allowed - rows_read(run), 1)
        return limits.model_copy(update={"rows": min(limits.rows, left) if limits.rows else left})


class _CellFailed(Invalid):
    """A cell of the model's own code failed: what the model sees is what a notebook would show."""

    def __init__(self, cell: Cell) -> None:
        error = cell.error or {}
        text = error.get("traceback") or f"{error.get('type')}: {error.get('message')}"
        printed = f"\nprinted before:\n{cell.stdout[-2000:]}" if cell.stdout else ""
        super().__init__(f"The cell failed ({cell.outcome}):\n{str(text)[-4000:]}{printed}", hint=" ".join(cell.notes))


def rows_read(run: Run) -> int:
    """The rows of all results that the run asked for, those of queries in its cells included."""
    return sum(s.result.row_count for s in run.steps if s.kind == "sql" and s.result is not None)
