"""Make a catalog: find the earlier script, run it in a session, improve what failed or changed, store the result.

Scripts run only in the sandbox, no matter who wrote them, and their output is checked: `catalog.json` must be a
profile of this source. The host renders the stored pages from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from etude import __version__
from etude.catalog import catalog_scripts
from etude.catalog.catalog_scripts import (
    CATALOG_SCRIPT,
    SUMMARY_SCRIPT,
    TablePattern,
    diff_catalog_script,
    find_catalog_script_patterns,
    generalize_catalog_script,
    make_catalog_script,
    set_catalog_script_tables,
)
from etude.catalog.drift.compare import Change
from etude.catalog.drift.open_changes import FollowedChanges, follow_open_changes
from etude.catalog.model import SourceProfile, TableProfile, from_json, profile_to_line
from etude.catalog.page.report import render_catalog
from etude.catalog.page.summary import render_summary
from etude.catalog.script_improvement import ScriptTask, improve_catalog_script
from etude.catalog.storage.annotations import annotate
from etude.catalog.storage.catalog_files import (
    CHANGE_LIST,
    EARLIER,
    PAGE,
    SUMMARY,
    find_catalog_changes,
    parse_catalog_history,
)
from etude.catalog.storage.catalog_folder import catalog_folder, open_catalog_root_folder
from etude.catalog.storage.catalog_store import CATALOG, CHANGES, HISTORY, CatalogStore, StoredCatalog, catalog_run_name
from etude.catalog.storage.stored_profiles import profiled_data_fingerprint, store_profile
from etude.entities import Entity
from etude.errors import Cancelled, EtudeError, Invalid, NotFound, SandboxError, Unavailable
from etude.events import (
    ArtifactCreated,
    Note,
    RunFinished,
    RunQueued,
    RunStarted,
    StepFinished,
    StepStarted,
)
from etude.ids import new_id
from etude.runtime.notebook import Notebook, notebook_cell_as_problem
from etude.runtime.run_control import RunControl
from etude.runtime.run_log import RunLog, RunStorage
from etude.runtime.tool_context import find_tool_outage
from etude.validation import explain_validation

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Catalog, Run
    from etude.models.base import Model
    from etude.sessions.base import Cell, Output
    from etude.sources.source import Source

WHY_CHARS = 2_000
T = TypeVar("T")
Tell = Callable[[str], None]
AT_ONCE = 4
"""The maximum number of catalogs made in the background at the same time."""
EARLIER_BYTES = 64 << 20
"""The maximum size of the earlier catalogs passed to a script; the oldest are left out."""


class Lineage(Entity):
    """The origin of a script."""

    origin: Literal["run", "dialect", "generator"]
    """An earlier run of this catalog, another database of the same dialect, or etude's default script."""
    previous: str | None = None
    """The name of the earlier run in the catalog store."""
    previous_sha256: str | None = None
    """The hash of the script that ran first."""
    improved_by: str | None = None
    """The model that changed the script."""
    agent_run: str | None = None
    why: str = ""
    """Why the script is another one than before; empty if it is the same."""


class CatalogMetrics(Entity):
    """The cost and the result of a run: `metrics.json`."""

    stored: StoredCatalog
    started_at: datetime
    seconds: float
    model: str
    model_calls: int
    tokens_in: int
    tokens_cached: int = 0
    """The part of the input that the provider had read before."""
    tokens_out: int
    cost_usd: float
    cells: int
    queries: int
    rows_read: int
    """Rows that the session received."""
    tables: int
    rows: dict[str, int | None] = {}
    """The row count of each table; None if it could not be read."""
    rows_before: dict[str, int | None] = {}
    """The same in the previous run, if there was one."""
    changes: int
    errors: tuple[str, ...]
    lineage: dict[str, Lineage]
    """The origin of each script."""
    versions: dict[str, str]


@dataclass(frozen=True)
class CatalogResult:
    """A finished catalog."""

    run_id: str
    url: str
    """The location of its files."""
    profile: SourceProfile
    changes: tuple[Change, ...]
    """The changes since the last run, and earlier ones whose state has not recovered."""
    metrics: CatalogMetrics
    files: dict[str, bytes]
    """The stored files by name."""


@dataclass(frozen=True)
class _Job:
    """One run of the workflow."""

    source: Source
    catalog: Catalog
    """The schema of the source when the run started."""
    tables: tuple[str, ...] | None
    catalog_store: CatalogStore
    model: Model | None
    log: RunLog
    control: RunControl
    tell: Tell
    note: Tell
    """Report progress and also record it with the run."""
    borrowed: bool
    """Whether the caller owns the model, so that it must stay open."""
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    clock: float = field(default_factory=time.monotonic)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Before:
    """The results of earlier runs."""

    latest: StoredCatalog | None
    lines: bytes
    history: list[SourceProfile]


@dataclass(frozen=True)
class _Part(Generic[T]):
    """One of the two scripts: its name, its output, and how to read that."""

    script: str
    output: str
    read: Callable[[bytes], T]
    task: Callable[[T, str], ScriptTask | None]
    """Return the task for a model, given the output of the script; None if there is nothing to do."""


@dataclass(frozen=True)
class _Made(Generic[T]):
    """The result of one script."""

    script: str
    value: T
    lineage: Lineage


class Cataloger:
    """Makes catalogs for an app, in the caller's thread or in the background."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._room = threading.BoundedSemaphore(AT_ONCE)

    def run(
        self,
        source: str | Source,
        *,
        tables: Sequence[str] | None = None,
        store: str = "",
        prefix: str = "",
        model: str | Model | None = None,
        on_progress: Tell | None = None,
        control: RunControl | None = None,
    ) -> CatalogResult:
        """Make the catalog of a source and store it; `on_progress` receives a line for each step.

        A catalog cannot be resumed: a request of `control` to pause ends it before the next table.

        The catalog is stored below `prefix` in the object store `store`. The default is the app's store, below
        `catalogs/` and the name of the source; for a source that is not registered, a hash of its URL is appended.
        """
        job = self._begin(source, tables, store, prefix, model, on_progress, control)
        return self._work(job)

    def start(
        self,
        source: str | Source,
        *,
        tables: Sequence[str] | None = None,
        prefix: str = "",
        model: str | None = None,
    ) -> str:
        """Make a catalog in a background thread; return the id of its run."""
        if not self._room.acquire(blocking=False):
            raise Unavailable(
                f"{AT_ONCE} catalogs are already being made.", hint="Wait until one is done.", retry_after_s=10
            )
        try:
            job = self._begin(source, tables, "", prefix, model)
        except BaseException:
            self._room.release()
            raise
        self._app.live_runs.start(job.log.run_id, lambda: self._work_in_background(job))
        return job.log.run_id

    def resume(self, run: Run) -> CatalogResult:
        """Make the catalog of a run that is still queued because the process that started it has ended."""
        log = RunLog(RunStorage(self._app.store, self._app.objects), run)
        asked, model = run.params, None if run.model == "offline" else run.model
        try:
            source = self._app.source(run.location or run.source or "")
            job = self._prepare(log, source, asked["tables"], asked["store"], asked["prefix"], model)
        except EtudeError:
            with log.closing():  # records the reason
                log.claim(RunStarted(worker=self._app.store.worker_id))
                raise
        return self._work(job)

    def changes_since(self, source: str | Source, made: CatalogResult, earlier: str | None) -> Sequence[Change]:
        """Return what changed since an earlier catalog of the source, by its name.

        It need not be the previous one. If it is not known, the changes since the previous one are returned.
        """
        stored = made.metrics.stored
        if earlier not in stored.history[1:]:
            return [c for c in made.changes if c.status == "new"]
        catalog_store = self.catalog_store(source)
        older = stored.history[stored.history.index(earlier) + 1 :]
        before = stored.model_copy(update={"name": earlier, "history": older})
        return find_catalog_changes(made.profile, [from_json(data) for data in catalog_store.history(before)][::-1])

    def catalog_store(self, source: str | Source, store: str = "", prefix: str = "") -> CatalogStore:
        """Return the runs of a source's catalog; by default in its default location."""
        objects, root = open_catalog_root_folder(self._app, store)
        return CatalogStore(objects, prefix or catalog_folder(self._app, self._app.source(source)), root)

    def _begin(
        self,
        source: str | Source,
        tables: Sequence[str] | None,
        store: str,
        prefix: str,
        model: str | Model | None,
        on_progress: Tell | None = None,
        control: RunControl | None = None,
    ) -> _Job:
        """Prepare a catalog and put its run on record."""
        app, opened = self._app, self._app.source(source)
        log = RunLog(RunStorage(app.store, app.objects))
        job = self._prepare(log, opened, tables, store, prefix, model, on_progress, control)
        log.add(
            RunQueued(
                kind="catalog",
                text=f"catalog {opened.name}" + (f" ({', '.join(job.tables)})" if job.tables else ""),
                source=opened.name,
                location=None if opened.name in app.sources() else opened.location,
                model=job.model.name if job.model else "offline",
                params={"tables": list(tables) if tables is not None else None, "store": store, "prefix": prefix},
            )
        )
        log.commit()
        return job

    def _prepare(
        self,
        log: RunLog,
        source: Source,
        tables: Sequence[str] | None,
        store: str,
        prefix: str,
        model: str | Model | None,
        on_progress: Tell | None = None,
        control: RunControl | None = None,
    ) -> _Job:
        app, tell = self._app, on_progress or (lambda _: None)
        catalog = app.catalog(source)

        def note(text: str) -> None:
            log.add(Note(text=text))
            tell(text)

        objects, root = open_catalog_root_folder(app, store)
        return _Job(
            source=source,
            catalog=catalog,
            tables=check_cataloger_tables(catalog, tables),
            catalog_store=CatalogStore(objects, prefix or catalog_folder(app, source), root, note),
            model=_open_model(model, app),
            log=log,
            control=control or RunControl(),
            tell=tell,
            note=note,
            borrowed=not isinstance(model, str),
        )

    def _work_in_background(self, job: _Job) -> None:
        try:
            self._work(job)
        finally:
            self._room.release()

    def _work(self, job: _Job) -> CatalogResult:
        """Run the whole workflow; the run records how it ended."""
        with self._working(job), job.log.closing():
            job.log.claim(RunStarted(worker=self._app.store.worker_id))
            job.log.commit()
            before = self._look_back(job)
            with self._session(job) as notebook:
                notebook.files[EARLIER] = before.lines
                catalog = self._make(job, notebook, before, self._catalog_part(job, before))
                profile = self._checked(job, catalog.value)
                notebook.files[CATALOG] = profile_to_line(profile)
                notebook.reset()
                summary = self._summarise(job, notebook, before, profile)
            made = self._keep(job, before, catalog, profile, summary, self._follow(job, before, profile, summary))
            failed = len(made.metrics.stored.failed)
            told = f", of which {failed} could not be read" if failed else ""
            tables, changes = _counted(len(profile.tables), "table"), _counted(len(made.changes), "change")
            rows = _told_rows(made.metrics)
            answer = f"The catalog of {profile.source} is made: {tables}{told}, {rows}, {changes}."
            job.log.add(RunFinished(answer=answer, code=catalog.script))
        return made

    @contextlib.contextmanager
    def _working(self, job: _Job) -> Iterator[None]:
        """Register the run as live while the block runs, then close the model that was opened for it."""
        log, control = job.log, job.control
        try:
            # A catalog cannot be continued half-way, so closing the app cancels it.
            with self._app.live_runs.working(log.run_id, log.seq, control, lambda: control.cancel(by="shutdown")):
                yield
        finally:
            if job.model is not None and not job.borrowed:
                job.model.close()

    # Earlier runs.

    def _look_back(self, job: _Job) -> _Before:
        """Find the latest complete run, and the earlier catalogs if they cover the same tables."""
        latest = job.catalog_store.latest()
        if latest is None or latest.tables != job.tables:
            return _Before(latest, b"", [])
        lines: list[bytes] = []
        for data in job.catalog_store.history(latest):
            with contextlib.suppress(ValidationError):
                lines.insert(0, profile_to_line(from_json(data)))
            if sum(map(len, lines)) > EARLIER_BYTES:
                break
        joined = b"".join(lines)
        return _Before(latest, joined, parse_catalog_history(joined))

    def _scripts(self, job: _Job, before: _Before, name: str) -> Iterator[tuple[str, Lineage]]:
        """Yield the scripts to try, best first: the earlier one, the one for the dialect, etude's default."""
        dialect = job.catalog.dialect
        found = self._previous_script(job, before, name)
        if found is not None:
            script, origin = found
            yield (
                set_catalog_script_tables(script, job.tables),
                Lineage(origin="run", previous=origin, previous_sha256=_hash(script)),
            )
        else:
            shared = job.catalog_store.script_of(dialect, name)
            if shared is not None:
                yield (
                    set_catalog_script_tables(shared, job.tables),
                    Lineage(origin="dialect", previous_sha256=_hash(shared)),
                )
        own = make_catalog_script(name, dialect)
        yield set_catalog_script_tables(own, job.tables), Lineage(origin="generator")

    def _previous_script(self, job: _Job, before: _Before, name: str) -> tuple[str, str] | None:
        """Return the script of the latest run, or of one of the last ten if that one cannot be read."""
        if before.latest is None:
            return None
        for run in _first_then(before.latest, job.catalog_store.recent):
            try:
                return job.catalog_store.read(run, name).decode(), run.name
            except (NotFound, Invalid, UnicodeDecodeError) as error:
                job.note(f"The script of `{run.name}` cannot be used: {error}")
        return None

    # The session.

    def _session(self, job: _Job) -> Notebook:
        settings = self._app.settings
        limits = settings.limits.model_copy(update={"timeout_s": settings.catalog.timeout_s})
        return self._app.open_session(job.source, alone=True, record=True, keep=False, query_limits=limits)

    def _make(self, job: _Job, notebook: Notebook, before: _Before, part: _Part[T]) -> _Made[T]:
        """Run the scripts until one succeeds; if there is a model, let it improve the first one."""
        failure = ""
        for number, (script, lineage) in enumerate(self._scripts(job, before, part.script)):
            try:
                value = self._play(job, notebook, part, script)
                task = part.task(value, script) if job.model and not number else None
                better = self._improve(job, notebook, part, task, lineage) if task else None
                return better or _Made(script, value, lineage.model_copy(update={"why": failure[:WHY_CHARS]}))
            except Invalid as error:
                failure = f"`{part.script}` ({lineage.origin}): {error.message}"
                job.errors.append(failure)
            if job.model is not None and not number:
                better = self._improve(job, notebook, part, ScriptTask(part.script, script, failure), lineage)
                if better is not None:
                    return better
            notebook.reset()
        raise Invalid(failure, hint="See the steps of the run.")

    def _play(self, job: _Job, notebook: Notebook, part: _Part[T], script: str) -> T:
        """Run a script cell by cell and return its output; raises `Invalid` if it fails."""
        notebook.files.pop(part.output, None)
        for code in catalog_scripts.split_catalog_script_cells(script):
            cell = self._execute(job, notebook, code)
            if not cell.ok:
                raise find_tool_outage(cell) or Invalid(_told(cell))
        return self._output(notebook, part)

    def _execute(self, job: _Job, notebook: Notebook, code: str) -> Cell:
        def show(output: Output) -> None:
            for line in output.text.splitlines():
                job.tell(line)
            if job.control.request == "pause":
                notebook.interrupt()  # the script prints a line between two tables

        with job.control.step.stopping(notebook.interrupt):
            cell = notebook.execute(code, wall_s=self._app.settings.catalog.wall_s, on_output=show, log=job.log)
            job.log.commit()
        if job.control.request == "pause":
            raise Cancelled("The catalog was stopped; nothing of it is stored.", hint="Make it again.")
        # Ctrl-C during a query reaches the script as the error `Cancelled`; another script must not be tried then.
        query_cancelled = (cell.error or {}).get("type") == "Cancelled"
        if cell.outcome == "interrupted" or job.control.request == "cancel" or query_cancelled:
            raise Cancelled("The catalog was cancelled.")
        return cell

    def _output(self, notebook: Notebook, part: _Part[T]) -> T:
        data = notebook.files.get(part.output)
        if data is None:
            raise Invalid(f"`{part.script}` did not save `{part.output}`.", hint="Call `etude.save(name, data)`.")
        try:
            return part.read(data)
        except ValidationError as error:
            raise explain_validation(error, f"`{part.output}`") from None
        except ValueError as error:
            raise Invalid(f"`{part.output}` cannot be read: {str(error)[:500]}") from None

    def _improve(
        self, job: _Job, notebook: Notebook, part: _Part[T], task: ScriptTask, lineage: Lineage
    ) -> _Made[T] | None:
        """Let the model improve the script; its version counts only if it runs from the start."""
        assert job.model is not None  # noqa: S101 - the caller checked
        job.tell(f"{job.model.name} improves {part.script}")

        def complaint() -> str | None:
            try:
                self._output(notebook, part)
            except Invalid as error:
                return error.message
            return None

        run = improve_catalog_script(
            self._app, job.source, job.model, notebook, task, job.log.run_id, job.control, complaint
        )
        if run.status == "cancelled":
            raise Cancelled("The catalog was cancelled.")
        # The model's usage also counts for this run.
        step = new_id("step")
        job.log.add(
            StepStarted(step_id=step, kind="model", code=job.model.name, params={"run": run.id, "script": part.script}),
            StepFinished(step_id=step, outcome="ok" if run.status == "succeeded" else "error", usage=run.usage),
        )
        if run.status != "succeeded":
            job.errors.append(f"{part.script}: the model failed: {(run.error or {}).get('detail', run.status)}")
            return None
        script = catalog_scripts.normalize_catalog_script(notebook.script())
        notebook.reset()
        try:
            value = self._play(job, notebook, part, script)
        except Invalid as error:
            job.errors.append(f"{part.script}: the model's script fails in a new session: {error.message}")
            return None
        by = {"improved_by": job.model.name, "agent_run": run.id, "why": (task.failure or task.wanted)[:WHY_CHARS]}
        return _Made(script, value, lineage.model_copy(update=by))

    # The two scripts.

    def _catalog_part(self, job: _Job, before: _Before) -> _Part[SourceProfile]:
        def read(data: bytes) -> SourceProfile:
            profile = from_json(data)
            wanted = job.tables or [t.name for t in job.catalog.tables]
            missing = {name for name in wanted if profile.table(name) is None}
            if missing:
                # Ignore tables that were dropped since the run started.
                missing &= {t.name for t in self._app.catalog(job.source).tables}
            if missing:
                raise ValueError(f"`{min(missing)}` is missing")
            return profile

        return _Part(CATALOG_SCRIPT, CATALOG, read, lambda profile, script: _catalog_task(profile, script, before))

    def _checked(self, job: _Job, profile: SourceProfile) -> SourceProfile:
        """Return the profile with the identity of this source; a script's own values for it are ignored."""
        catalog = job.catalog
        known = {t.name for t in catalog.tables}
        update = {
            "source": catalog.source,
            "kind": catalog.kind,
            "dialect": catalog.dialect,
            "fingerprint": catalog.fingerprint,
            "tables": tuple({t.name: t for t in profile.tables if t.name in known}.values()),
            "made_at": profile.made_at or job.started,
        }
        job.errors.extend(f"`{t.name}`: {t.error}" for t in profile.tables if t.plan == "failed")
        return annotate(profile.model_copy(update=update), self._app.annotations(job.source))

    def _summarise(
        self, job: _Job, notebook: Notebook, before: _Before, profile: SourceProfile
    ) -> _Made[tuple[Change, ...]]:
        """Find the changes; if every script fails, etude compares the profiles itself."""

        def task(changes: tuple[Change, ...], script: str) -> ScriptTask | None:
            if not changes:
                return None
            told = "\n".join(f"- {c.text}" for c in changes[:40])
            return ScriptTask(SUMMARY_SCRIPT, script, "", f"These changes were found since the last run:\n{told}")

        part = _Part(SUMMARY_SCRIPT, CHANGES, CHANGE_LIST.validate_json, task)
        try:
            return self._make(job, notebook, before, part)
        except (Invalid, SandboxError) as error:
            job.note(f"The summary script failed, so etude's default is used: {error.message}")
            script = make_catalog_script(SUMMARY_SCRIPT, profile.dialect)
            return _Made(script, find_catalog_changes(profile, before.history), Lineage(origin="generator"))

    def _follow(
        self, job: _Job, before: _Before, profile: SourceProfile, summary: _Made[tuple[Change, ...]]
    ) -> FollowedChanges:
        """Add the changes of earlier runs that are still open."""
        previous = job.catalog_store.changes_of(before.latest) if before.latest and before.history else None
        known = job.catalog_store.acknowledgements() if previous and previous.changes else {}
        return follow_open_changes(previous, summary.value, profile, before.history, known)

    # Storing.

    def _keep(
        self,
        job: _Job,
        before: _Before,
        catalog: _Made[SourceProfile],
        profile: SourceProfile,
        summary: _Made[tuple[Change, ...]],
        followed: FollowedChanges,
    ) -> CatalogResult:
        """Write the run to the catalog store: its files, its metrics, then the pointer to it."""
        name = catalog_run_name(job.started, before.latest)
        made = {CATALOG_SCRIPT: catalog.lineage, SUMMARY_SCRIPT: summary.lineage}
        about = {"run": job.log.run_id, "script": f"{name}/{CATALOG_SCRIPT}", "from": catalog.lineage.origin}
        files = {
            CATALOG: profile_to_line(profile),
            PAGE: render_catalog(profile, followed.changes, before.history, about).encode(),
            SUMMARY: render_summary(profile, followed.changes, before.history).encode(),
            CHANGES: followed.model_dump_json(exclude_defaults=True).encode(),
            CATALOG_SCRIPT: catalog.script.encode(),
            SUMMARY_SCRIPT: summary.script.encode(),
        }
        for script, made_script in ((CATALOG_SCRIPT, catalog), (SUMMARY_SCRIPT, summary)):
            found = self._previous_script(job, before, script)
            own = set_catalog_script_tables(make_catalog_script(script, profile.dialect), job.tables)
            difference = diff_catalog_script(
                script, found[0] if found else own, made_script.script, made_script.lineage.why
            )
            if difference:
                files[f"{script.removesuffix('.py')}.diff"] = difference.encode()
        same = before.latest is not None and before.latest.tables == job.tables
        earlier = (before.latest.name, *before.latest.history)[:HISTORY] if before.latest and same else ()
        stored = StoredCatalog(
            name=name,
            run_id=job.log.run_id,
            source=profile.source,
            dialect=profile.dialect,
            fingerprint=profile.fingerprint,
            data=profiled_data_fingerprint(job.catalog),
            tables=job.tables,
            failed={t.name: t.error or "" for t in profile.tables if t.plan == "failed"},
            tried_by=job.model.name if job.model else before.latest.tried_by if before.latest else None,
            history=earlier,
        )
        metrics: list[CatalogMetrics] = []

        def measure(run: StoredCatalog) -> bytes:
            metrics.append(self._measure(job, run, before, profile, followed.changes, made))
            return metrics[0].model_dump_json(indent=1).encode()

        job.tell("writing")
        for page in (files[PAGE], files[SUMMARY]):
            job.log.add(ArtifactCreated(artifact=self._app.objects.put(page, "text/html")))
        job.control.step.check()
        job.catalog_store.publish(stored, files, measure)
        self._keep_for_others(job, catalog, summary, profile)
        url = f"{job.catalog_store.url}/{name}"
        return CatalogResult(job.log.run_id, url, profile, followed.changes, metrics[0], files)

    def _keep_for_others(
        self, job: _Job, catalog: _Made[SourceProfile], summary: _Made[Any], profile: SourceProfile
    ) -> None:
        """Store the scripts for other databases of the dialect, and the profile for answering questions."""
        try:
            for name, script in ((CATALOG_SCRIPT, catalog.script), (SUMMARY_SCRIPT, summary.script)):
                job.catalog_store.keep_script(
                    profile.dialect, name, generalize_catalog_script(script, [t.name for t in job.catalog.tables])
                )
        except Unavailable as error:  # the run itself is already stored
            job.note(error.message)
        if job.tables is None:
            store_profile(self._app, job.source, job.catalog, profile)

    def _measure(
        self,
        job: _Job,
        stored: StoredCatalog,
        before: _Before,
        profile: SourceProfile,
        changes: tuple[Change, ...],
        lineage: dict[str, Lineage],
    ) -> CatalogMetrics:
        job.log.commit()
        run = job.log.run
        helpers = [s.params["run"] for s in run.steps if s.kind == "model"]
        steps = [*run.steps, *(step for helper in helpers for step in self._app.store.run(helper).steps)]
        return CatalogMetrics(
            stored=stored,
            started_at=job.started,
            seconds=round(time.monotonic() - job.clock, 3),
            model=job.model.name if job.model else "offline",
            **run.usage.model_dump(),
            cells=sum(s.kind == "python" for s in steps),
            queries=sum(s.kind == "sql" for s in steps),
            rows_read=sum(s.result.row_count for s in steps if s.kind == "sql" and s.result is not None),
            tables=len(profile.tables),
            rows={t.name: t.rows for t in profile.tables},
            rows_before={t.name: t.rows for t in before.history[-1].tables} if before.history else {},
            changes=len(changes),
            errors=tuple(job.errors),
            lineage=lineage,
            versions={"etude": __version__},
        )


def check_cataloger_tables(catalog: Catalog, tables: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the tables as the source spells them, in the given order; raises `NotFound` for an unknown one."""
    if tables is None:
        return None
    found = []
    for name in dict.fromkeys(tables):
        table = catalog.table(name)
        if table is None:
            known = ", ".join(f"`{t.name}`" for t in catalog.tables[:8])
            raise NotFound(f"There is no table `{name}`.", hint=f"Tables: {known}.")
        found.append(table.name)
    return tuple(found)


def _catalog_task(profile: SourceProfile, script: str, before: _Before) -> ScriptTask | None:
    """Return the task for a model: tables that newly fail or are new; None if there are none."""
    last = before.history[-1] if before.history else None
    # Do not ask again for a table that a model already failed to fix.
    known = before.latest.failed if before.latest and before.latest.tried_by else {}
    failed = [t for t in profile.tables if t.plan == "failed" and known.get(t.name) != (t.error or "")]
    new = [t for t in profile.tables if last is None or _columns(last.table(t.name)) != _columns(t)]
    if not failed and not new:
        return None
    lines = [f"- `{t.name}` could not be profiled: {t.error}" for t in failed]
    said = "is new, or its columns changed"
    lines += [f"- `{t.name}` {said}" for t in new[:200] if t not in failed]
    patterns: Sequence[TablePattern] = find_catalog_script_patterns(script, last or profile, [*failed, *new][:50])
    return ScriptTask(CATALOG_SCRIPT, script, "", "\n".join(lines), tuple(patterns))


def _told_rows(metrics: CatalogMetrics) -> str:
    """Return the number of rows of all tables, and that of the previous run if it was another one."""
    rows, before = (sum(n or 0 for n in counts.values()) for counts in (metrics.rows, metrics.rows_before))
    counted = f"{rows:,} row{'' if rows == 1 else 's'}"
    return f"{counted} ({before:,} before)" if metrics.rows_before and before != rows else counted


def _columns(table: TableProfile | None) -> tuple[tuple[str, str], ...] | None:
    return None if table is None else tuple((c.name, c.type) for c in table.columns)


def _first_then(first: StoredCatalog, others: Callable[[], list[StoredCatalog]]) -> Iterator[StoredCatalog]:
    yield first
    yield from (run for run in others() if run.name != first.name)


def _told(cell: Cell) -> str:
    return str(notebook_cell_as_problem(cell).get("detail", cell.outcome))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _open_model(model: str | Model | None, app: App) -> Model | None:
    if model is None or model == "offline":
        return None
    if not isinstance(model, str):
        return model
    from etude.models.open import open_model

    return open_model(model, app.settings)


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
