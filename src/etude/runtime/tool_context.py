"""What the tools of a run can use: its sources and its session. Each use is a step on the run's record."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation
from etude.entities import Artifact, Catalog, Limits, ResultInfo, Run, Step, Table
from etude.errors import (
    Cancelled,
    EtudeError,
    Invalid,
    InvalidQuery,
    LimitExceeded,
    NotFound,
    Refused,
    UnknownTable,
    from_problem,
    is_outage_error,
)
from etude.events import ArtifactCreated
from etude.limits import lower_limits
from etude.result import Result, describe_result_columns, empty_result_batches
from etude.runtime.chart import CHART_BYTES, read_chart
from etude.runtime.query import Query, run_query_as_run, run_query_step
from etude.runtime.query_record import PARQUET
from etude.runtime.run_log import RunLog
from etude.similar_names import similar_names
from etude.sources.catalog_facts import text_date_columns
from etude.sources.engine_client import ResultStream
from etude.sources.query_hints import query_hint_date_difference, query_hint_for_dialect
from etude.spool import Spool
from etude.tools.table_ranking import rank_tables

if TYPE_CHECKING:
    from etude.offline.vocabulary import VocabularyTable
    from etude.runtime.notebook import Notebook
    from etude.sessions.base import Cell
    from etude.sources.plan import QueryPlan

VEGA = "application/vnd.vegalite+json"
UNSHOWN = (
    "The chart of {size:,} bytes cannot be shown: a chart has at most {most:,} bytes and no URL. Draw fewer rows, and "
    "only the columns that it needs."
)


DATES_ARE_TEXT = "SQLite stores dates as text: {} subtracts years; write julianday(b) - julianday(a), in days."
SUGGESTION_S = 2.0
"""Seconds to find out whether a suggested query runs."""
_SETTINGS = re.compile(
    r"(?:,? or raise|Raise) (?:the setting )?`[\w.]+`(?: \(0: no limit\))?(?:, or )?"
    r"| \(`--[^)]*\)|\s{0,3}To export all of it:.*"
)
_UNDEFINED = re.compile(r"name '(\w+)' is not defined.*", re.DOTALL)
_IMPORTS = {
    "np": "import numpy as np",
    "numpy": "import numpy",
    "pd": "import pandas as pd",
    "pandas": "import pandas",
    "pa": "import pyarrow as pa",
    "pl": "import polars as pl",
    "plt": "import matplotlib.pyplot as plt",
    "alt": "import altair as alt",
    "sns": "import seaborn as sns",
    "stats": "from scipy import stats",
    "sm": "import statsmodels.api as sm",
}


def tool_text_without_settings_advice(text: str) -> str:
    """Return the text of an error without the advice to change a setting, which a model cannot follow."""
    return _SETTINGS.sub("", text)


def quote_tool_text(word: str, text: str) -> str:
    """Mark a text as data with tags that bear the word, which the text itself then does not contain."""
    while word in text:
        text = text.replace(word, "")
    return f"<data {word}>\n{text}\n</data {word}>"


def tool_text_without_quotes(text: str) -> str:
    """Return a text that a model was shown without the tags that mark data."""
    return _QUOTED.sub(r"\2", text)


_QUOTED = re.compile(r"<data ([0-9a-z]{8})>\n(.*?)\n</data \1>", re.DOTALL)


@dataclass(frozen=True)
class ToolResources:
    """What a run can reach."""

    names: tuple[str, ...]
    """The sources that the run may use; models call them datasets."""
    fingerprints: Mapping[str, str]
    """By source: its address and its grants. A cached value of one is never used for another."""
    find_catalog: Callable[[str], Catalog]
    query: Callable[[str, str, Limits, bool], ResultStream]
    """Start a query: source, SQL, limits, whether to describe the query."""
    compile: Callable[[str, dict[str, Any] | str], tuple[QueryPlan, str]]
    lend_session: Callable[[], AbstractContextManager[Notebook]]
    """Lend the session of the run's thread; it is opened when it is first needed."""
    limits: Limits
    scratch: Path
    origins: Mapping[str, str] = field(default_factory=dict)
    """A hash of the tenant and the URL of each source, whatever is granted of it."""
    mark: str = field(default_factory=lambda: "".join(secrets.choice(ascii_lowercase) for _ in range(8)))
    """Marks data for the model. It is random, so no data can contain it, and has no digits: it is not a figure."""
    find_known: Callable[[str], Mapping[str, VocabularyTable]] = lambda _: {}
    """Return the tables of a source that its profile describes."""
    rank: Callable[[Catalog, str], Sequence[Table]] = rank_tables
    """Sort the tables of a catalog by how well they fit a question."""
    packages: Callable[[], Sequence[str]] = lambda: ()
    """Return the libraries of the session."""
    search: Callable[[str, str, Sequence[str], int], Sequence[str]] = lambda *_: ()
    """Search the index of a source: source, query, kinds, number of hits."""
    read: Callable[[ResultInfo, Artifact, str], Result] | None = None
    """Read a stored table: its shape, its artifact and the id of its run."""

    def quote(self, text: str) -> str:
        """Mark a text as data, so that the model does not take it for instructions."""
        return quote_tool_text(self.mark, text)

    def query_unrecorded(self, source: str, sql: str, cancel: Cancellation) -> Result:
        """Run a query of etude's own, such as one for the values of a column, without a record."""
        answer = self.query(source, sql, self.limits, False)
        with cancel.stopping(answer.cancel):
            return run_query_as_run(Query(source, sql, None, self.limits), lambda _: answer, None, self.scratch)

    def context_for(self, log: RunLog, step_id: str | None, cancel: Cancellation) -> RecordedToolContext:
        """Return what the tool of one step can use."""
        return RecordedToolContext(self, log, step_id, cancel)


class RecordedToolContext:
    """What one tool call can use; see `ToolContext`."""

    def __init__(self, resources: ToolResources, log: RunLog, step_id: str | None, cancel: Cancellation) -> None:
        self._resources = resources
        self._log = log
        self._step_id = step_id
        self._cancel = cancel
        self.result: ResultInfo | None = None
        """The table that the tool produced."""
        self.artifact: Artifact | None = None

    def sources(self) -> Sequence[str]:
        """Return the names of the sources that the run may use."""
        return self._resources.names

    def catalog(self, source: str) -> Catalog:
        """Return the catalog of a source."""
        return self._resources.find_catalog(self._require(source))

    def rank(self, source: str, text: str) -> Sequence[Table]:
        """Return the tables of a source, those that fit a text best first."""
        return self._resources.rank(self.catalog(source), text)

    def search(self, source: str, query: str, kinds: Sequence[str], k: int) -> Sequence[str]:
        """Return what the index of a source finds, one line for each hit."""
        return self._resources.search(self._require(source), query, kinds, k)

    def sql(self, source: str, query: str) -> Result:
        """Run a query as a step of the run."""
        source = self._require(source)
        result = self._query(Query(source, query, None, self._limits()))
        if difference := query_hint_date_difference(query, text_date_columns(self.catalog(source))):
            result.notes = (*result.notes, DATES_ARE_TEXT.format(difference))
        return result

    def plan(self, source: str, plan: dict[str, Any] | str) -> Result:
        """Run a QueryPlan, or the JSON of one, as a step of the run."""
        source = self._require(source)
        parsed, sql = self._resources.compile(source, plan)
        body = parsed.model_dump(mode="json", exclude_none=True, by_alias=True)
        dialect = self.catalog(source).dialect
        return self._query(Query(source, sql, dialect, self._limits(), plan=body))

    def _query(self, query: Query) -> Result:
        with contextlib.ExitStack() as stack:

            def start(describe: bool) -> ResultStream:
                stream = self._resources.query(query.source, query.sql, query.limits, describe)
                stack.enter_context(self._cancel.stopping(stream.cancel))
                return stream

            try:
                result, artifact = run_query_step(query, start, self._log, self._resources.scratch, self._step_id)
            except (InvalidQuery, Refused) as error:
                raise self._suggest(error, query) from None
            except LimitExceeded as error:
                if error.details.get("limit") != "rows" or query.limits.rows == self._resources.limits.rows:
                    raise
                raise LimitExceeded(
                    f"The query returns more than the {query.limits.rows:,} rows that the budget of this run leaves.",
                    hint="Aggregate, or ask for fewer rows; `budget.rows` counts the rows of all results of a run.",
                    limit="rows",
                ) from None
        self.result, self.artifact = result.info, artifact
        return result

    def _suggest(self, error: EtudeError, query: Query) -> EtudeError:
        """Add to an error how the query is written in the dialect of its source, if that was found and it runs."""
        if isinstance(error, UnknownTable) or query.plan is not None:
            return error
        catalog = self.catalog(query.source)
        for sql in query_hint_for_dialect(query.sql, catalog.dialect, text_date_columns(catalog)):
            if self._runs(query.source, sql):
                return type(error)(error.message, hint=f"{error.hint} This runs: {sql}".strip(), **error.details)
        return error

    def _runs(self, source: str, sql: str) -> bool:
        """Return whether a query passes the guard and the engine accepts it; it returns no rows here."""
        within = lower_limits(self._resources.limits, {"timeout_s": SUGGESTION_S})
        probe = Query(source, f"SELECT * FROM ({sql}) AS q LIMIT 0", None, within)
        with contextlib.suppress(EtudeError):
            stream = self._resources.query(source, probe.sql, within, False)
            run_query_as_run(probe, lambda _: stream, None, self._resources.scratch)
            return True
        return False

    def python(self, code: str) -> Cell:
        """Run a cell in the session of the run's thread, as a step of the run."""
        from etude.runtime.standalone_script import PREAMBLE

        with self._resources.lend_session() as notebook:
            for part in (code,) if notebook.history else (PREAMBLE, code):
                cell = notebook.execute(part, log=self._log, parent=self._step_id, cancel=self._cancel)
        if cell.outcome == "interrupted":
            raise Cancelled("The cell was interrupted.")
        if not cell.ok:
            raise find_tool_outage(cell) or _CellFailed(cell, self._resources.packages)
        return replace(cell, notes=(*cell.notes, *self._keep(cell)))

    def _keep(self, cell: Cell) -> list[str]:
        """Store the table that a cell returned, and its charts; return which charts cannot be shown, and why."""
        import pyarrow as pa

        notes = []
        for display in cell.display:
            if display.media.startswith(("image/", "application/vnd.vega")):
                media = VEGA if "vega" in display.media else display.media
                artifact = self._log.objects.put(bytes(display.data), media)
                self._log.add(ArtifactCreated(artifact=artifact, step_id=self._step_id))
                if media == VEGA and read_chart(bytes(display.data)) is None:
                    notes.append(UNSHOWN.format(size=len(display.data), most=CHART_BYTES))
        if isinstance(cell.value, pa.Table):
            self.artifact = self._store(cell.value)
            columns = describe_result_columns(cell.value.schema, [])
            self.result = ResultInfo(columns=columns, row_count=cell.value.num_rows, bytes=cell.value.nbytes)
            self._log.add(ArtifactCreated(artifact=self.artifact, step_id=self._step_id))
        return notes

    def _store(self, table: Any) -> Artifact:
        spool = Spool(self._resources.scratch)
        try:
            spool.take(table.to_batches() or empty_result_batches(table.schema))
            return self._log.objects.put(spool.parquet(), PARQUET)
        finally:
            spool.drop()

    def quote(self, text: str) -> str:
        """Mark a text as data, so that the model does not take it for instructions."""
        return self._resources.quote(text)

    def results(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of the results so far, by their short ids."""
        found = tool_results_by_id(self._log.run)
        return {name: [c.name for c in step.result.columns] for name, step in found.items() if step.result}

    def find_figure_errors(self, text: str) -> Sequence[str]:
        """Return why figures of a text cannot be computed from the results so far; empty if all can."""
        from etude.runtime.answer import read_answer_results
        from etude.runtime.figures import FIGURES_FAILED, render_figures

        if self._resources.read is None:
            return ()
        errors = render_figures(text, read_answer_results(self._log.run, self._resources.read)).errors
        return (FIGURES_FAILED, *errors) if errors else ()

    @property
    def result_id(self) -> str:
        """The short id of the table that the tool produced; empty if it produced none."""
        return f"r{len(tool_results_by_id(self._log.run)) + 1}" if self.result is not None else ""

    @property
    def question(self) -> str:
        """The question of the run."""
        return self._log.run.text

    @property
    def reply(self) -> str | None:
        """The person's answer to the question of this call, or None if it was not asked yet."""
        run = self._log.run
        return run.reply if run.call == self._step_id else None

    def _require(self, source: str) -> str:
        names = self._resources.names
        if not source and len(names) == 1:
            return names[0]
        if source in names:
            return source
        if not source:
            raise Invalid("No dataset was given.", hint=f"Datasets: {', '.join(names) or 'none'}.")
        near = similar_names(source, names, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Datasets: {', '.join(names) or 'none'}."
        raise NotFound(f"There is no dataset `{source}` here.", hint=hint)

    def _limits(self) -> Limits:
        run, limits = self._log.run, self._resources.limits
        allowed = run.budget.rows if run.budget else 0
        if not allowed:
            return limits
        left = max(allowed - rows_read_by_tools(run), 1)
        return lower_limits(limits, {"rows": left})


class _CellFailed(Invalid):
    """A cell of the model's own code failed. The model sees what a notebook would show."""

    def __init__(self, cell: Cell, packages: Callable[[], Sequence[str]]) -> None:
        error = cell.error or {}
        text = error.get("traceback") or f"{error.get('type')}: {error.get('message')}"
        printed = f"\nprinted before:\n{cell.stdout[-2000:]}" if cell.stdout else ""
        super().__init__(
            f"The cell failed ({cell.outcome}):{_start(str(text))}{str(text)[-4000:]}{printed}",
            hint=" ".join([*cell.notes, *filter(None, [_cell_hint(error, packages)])]),
        )


def _cell_hint(error: Mapping[str, Any], packages: Callable[[], Sequence[str]]) -> str:
    """Return what to write instead in a cell that failed; empty if nothing is known."""
    message = str(error.get("message") or "")
    if error.get("type") == "ModuleNotFoundError":
        known = f"Python has {', '.join(packages())} and its standard library." if packages() else ""
        draws = re.search(r"'(matplotlib|plotly|seaborn|altair|bokeh)\b", message)
        instead = "A chart is a Vega-Lite dict as the last value, or `chart` of the tool `answer`." if draws else ""
        return f"{known} {instead}".strip()
    if "Can only use .dt accessor" in message:
        return "The column holds text, as dates in SQLite do: write pd.to_datetime(df['column']).dt."
    if error.get("type") != "NameError":
        return ""
    if "'display'" in message:
        return "The value of the last expression is shown; print(...) shows others."
    found = _UNDEFINED.fullmatch(message)
    line = _IMPORTS.get(found[1]) if found else None
    return f"Nothing is imported at the start: begin with `{line}`." if line else ""


def _start(text: str) -> str:
    """Return what separates a text from the words before it: a line break if it has several lines."""
    return "\n" if "\n" in text else " "


def find_tool_outage(cell: Cell) -> EtudeError | None:
    """Return the error of a cell that failed because a source could not be reached, else None."""
    inner = (cell.error or {}).get("problem")
    error = from_problem(inner) if isinstance(inner, dict) else None
    return error if is_outage_error(error) else None


def tool_results_by_id(run: Run) -> dict[str, Step]:
    """Return the steps that produced tables, by the short ids that the model knows them by: r1, r2 and so on."""
    steps = (s for s in run.steps if s.kind == "tool" and s.outcome == "ok" and s.result and s.artifact)
    return {f"r{number}": step for number, step in enumerate(steps, 1)}


def earlier_results_by_id(run: Run) -> dict[str, Step]:
    """Return the first tables of the latest run of a conversation, by the ids that a follow-up knows: p1, p2, p3."""
    return {f"p{number}": step for number, step in enumerate([*tool_results_by_id(run).values()][:3], 1)}


def rows_read_by_tools(run: Run) -> int:
    """Return how many rows all queries of the run returned, those in its cells included."""
    return sum(s.result.row_count for s in run.steps if s.kind == "sql" and s.result is not None)
