"""The App connects settings, store, object store, engines and sources. Every interface starts here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from etude import plugins
from etude.entities import Artifact, Catalog, Limits, ResultInfo, SessionLimits, SourceSpec
from etude.errors import Conflict, EtudeError, Invalid, NotFound
from etude.fair_share import ThreadFairShare
from etude.redaction import redact
from etude.result import Result
from etude.runtime.open_queries import OpenQueries
from etude.runtime.query import Query, run_query_as_run
from etude.runtime.run_log import RunStorage
from etude.scratch_folder import remove_orphaned_folders
from etude.settings import Settings, load_settings
from etude.similar_names import similar_names
from etude.sources.engine_client import EngineLimits, ResultStream
from etude.sources.engine_pool import MAIN, EnginePool
from etude.sources.federation import federation_uses_frames, find_federated_sources, query_federated_sources
from etude.sources.query_parameters import Encoded, Params, decode_query_params, encode_query_params
from etude.sources.registered_tables import NAME as FRAMES
from etude.sources.registered_tables import RegisteredTables, RegisteredTablesRoom, add_registered_tables
from etude.sources.source import Source, StartedQuery
from etude.sources.source_url import (
    check_offered_source,
    check_source_name,
    resolve_source_url,
    source_kind,
    source_name_from_url,
    source_path,
)

if TYPE_CHECKING:
    from etude.agents.agent_control import AgentControl
    from etude.cancellation import Cancellation
    from etude.catalog.cataloger import Cataloger
    from etude.catalog.model import SourceProfile
    from etude.catalog.storage.annotations import Annotations
    from etude.entities import Budget, Run, Step
    from etude.events import Entry
    from etude.feedback import Feedback, Verdict
    from etude.learning.playbooks.playbook_library import PlaybookLibrary
    from etude.models.base import Model
    from etude.replays.differences import Difference
    from etude.replays.proof import Proof
    from etude.replays.script_library import ScriptLibrary
    from etude.runs import Runs
    from etude.runtime.answer import Answer
    from etude.runtime.live_runs import LiveRuns
    from etude.runtime.notebook import HoldSlot, Notebook
    from etude.runtime.result_repair import Repaired
    from etude.runtime.run_control import RunControl
    from etude.runtime.session_pool import SessionPool
    from etude.runtime.tool_context import ToolResources
    from etude.search.index_base import Mode
    from etude.search.indexes import Indexes
    from etude.search.match import Filter
    from etude.search.search_results import MatchPage, SearchPage
    from etude.sessions.base import Provider
    from etude.sessions.code_policy import Policy
    from etude.sources.cost_estimate import Size
    from etude.sources.plan import QueryPlan
    from etude.store.base import Store
    from etude.store.objects import Objects
    from etude.uploads import Uploads

Progress = Callable[[float], None]


if TYPE_CHECKING:
    made_once = cached_property
else:

    class made_once(cached_property):
        """A cached property that is computed once even if several threads ask; since Python 3.12 that needs a lock."""

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            with instance._making:
                return super().__get__(instance, owner)


class App:
    """An etude instance. Thread-safe. Close it, or use it as a context manager, to stop its engines."""

    def __init__(self, settings: Settings | None = None, **keywords: Any) -> None:
        if settings is not None and keywords:
            raise Invalid("Settings and keywords were given together.", hint="Pass the keywords to `load_settings`.")
        self.settings = settings or load_settings(**keywords)
        engine = self.settings.engine
        limits = EngineLimits(memory=engine.memory, scratch_bytes=engine.scratch, threads=engine.threads)
        self.pool = EnginePool(limits, engine.processes)
        self.open_queries = OpenQueries()
        self._registered_room = RegisteredTablesRoom()
        self._sources: dict[tuple[str, str], Source] = {}
        self._lock = threading.Lock()
        self._making = threading.RLock()
        self._views: dict[str, App] = {}
        self._engine_tenant = MAIN
        self._models: dict[str, Model] = {}
        self._models_lock = threading.Lock()

    @made_once
    def store(self) -> Store:
        """The store of runs, threads and sources. Opening it closes the runs that a dead process left open."""
        url = self.settings.store_url
        scheme = url.partition("://")[0]
        opened: Store = plugins.load_plugin("store", scheme)(Path(source_path(url)) if scheme == "sqlite" else url)
        opened.limit_storage(self._allowed_storage)
        opened.recover()
        return opened

    def _allowed_storage(self, tenant: str) -> int:
        server = self.settings.server
        return server.tenant_storage.get(tenant, server.storage)

    @made_once
    def objects(self) -> Objects:
        """The object store, which holds results."""
        from etude.store.objects import Objects

        return Objects(self.settings.objects_url, **self.settings.objects_options)

    @made_once
    def scratch(self) -> Path:
        """The folder for results that are too large for memory, until they are stored or deleted."""
        folder = self.settings.home / "scratch"
        remove_orphaned_folders("etude-", folder)
        return folder

    def close(self) -> None:
        """Pause the live runs, end the sessions, stop the engines, and close the store."""
        for each in (self, *self._views.values()):
            if "live_runs" in each.__dict__:
                each.live_runs.close()
            if "agents" in each.__dict__:
                each.agents.queue.close()
            if "scripts" in each.__dict__:
                each.scripts.close()
            if "indexes" in each.__dict__:
                each.indexes.close()
        self.open_queries.close()
        if "session_pool" in self.__dict__:
            self.session_pool.close()
        for model in self._models.values():
            model.close()
        if "sandbox" in self.__dict__:
            self.sandbox.close()
        self.pool.close()
        if "store" in self.__dict__:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tenant(self) -> str:
        """The tenant whose runs, threads and sources this app sees."""
        return self.store.tenant

    def scoped(self, tenant: str) -> App:
        """Return the app of a tenant. Engines, sandbox and object store are shared, everything else is its own.

        Only the first tenant has the sources of the settings.
        """
        if tenant == self.tenant:
            return self
        with self._lock:
            if tenant not in self._views:
                self._views[tenant] = _View(self, tenant)
            return self._views[tenant]

    def change_settings(self, settings: Settings) -> None:
        """Use these settings from now on; whatever is open already keeps the old ones."""
        with self._lock:
            self.settings = settings
            for view in self._views.values():
                view.settings = _without_sources(settings)

    # -- sources

    def sources(self) -> dict[str, SourceSpec]:
        """Return all named sources; those of the settings override those that were added."""
        return dict(sorted((self.store.sources() | self.settings.sources).items()))

    def add_source(self, name: str, spec: SourceSpec) -> Catalog:
        """Register a source under a name, after checking that it opens."""
        check_source_name(name)
        if name in self.sources():
            raise Conflict(f"There is a source `{name}` already.", hint=f"Run `etude sources remove {name}` first.")
        kind = spec.kind or source_kind(resolve_source_url(spec.url))
        spec = spec.model_copy(update={"kind": kind, "url": _absolute_url(spec.url, kind)})
        catalog = self._open(name, spec).catalog(self.settings.limits)
        self.store.put_source(name, spec)
        return catalog

    def add_database(self, name: str, url: str, tables: Sequence[str] | None, by: str) -> Catalog:
        """Register a database for a remote caller, if the settings list it."""
        check_offered_source(url, self.settings.server.databases)
        granted = tuple(tables) if tables is not None else None
        return self.add_source(name, SourceSpec(url=url, tables=granted, by=by))

    def remove_source(self, name: str) -> None:
        """Remove an added source and its index. Its data stays, unless it was uploaded: then its files go as well."""
        if name in self.settings.sources:
            raise Conflict(f"`{name}` is defined in the settings.", hint="Remove it there.")
        found = self.store.sources().get(name)
        if found is not None:
            with suppress(EtudeError):  # a source whose address is gone can be removed, too
                self.indexes.remove(self._open(name, found))
        if found is not None and found.uploaded:
            self.uploads.remove(name, found)
        else:
            self.store.remove_source(name)

    @made_once
    def uploads(self) -> Uploads:
        """Keeps uploaded files as sources of this tenant."""
        from etude.uploads import Uploads

        return Uploads(self)

    def source(self, name_or_url: str | Source) -> Source:
        """Return a named source, or the source at a path or URL. A `Source` is returned unchanged.

        `@ops` are etude's own operations: the tables `operations` and `findings`, as they are now.
        """
        if isinstance(name_or_url, Source):
            return name_or_url
        if name_or_url == "@ops":
            from etude.learning.observer.operation_facts import write_operation_facts

            return self._open("ops", SourceSpec(url=str(write_operation_facts(self.store, self.settings.home))))
        known = self.settings.sources.get(name_or_url)
        if known is None and not _looks_like_path(name_or_url):
            known = self.store.sources().get(name_or_url)
        if known is not None:
            opened = self._open(name_or_url, known)
            if Path(name_or_url).exists() and str(Path(name_or_url).absolute()) != opened.url:
                opened.hides = name_or_url
            return opened
        if not _looks_like_path(name_or_url) and not Path(name_or_url).expanduser().exists():
            near = similar_names(name_or_url, self.sources(), n=1)
            hint = "`etude sources list` shows the named ones; a path or URL works as well."
            if name_or_url == "-":
                hint = "etude does not read standard input; write it to a file first: `command > data.csv`."
            raise NotFound(
                f"There is no source, file or folder `{redact(name_or_url)}`.",
                hint=f"Did you mean `{near[0]}`?" if near else hint,
            )
        opened = self._open(source_name_from_url(name_or_url), SourceSpec(url=name_or_url))
        opened.named = False
        return opened

    def _open(self, name: str, spec: SourceSpec) -> Source:
        key = (name, spec.model_dump_json())
        with self._lock:
            if key in self._sources:
                return self._sources[key]
        cache, path = self.settings.home / "cache", None
        if spec.uploaded:
            # Without the lock: the files may have to be downloaded.
            cache, path = self.uploads.find(spec)
        made = Source(name, spec, self.pool, cache, self._find_sizes, self._engine_tenant, self.settings.remote, path)
        with self._lock:
            return self._sources.setdefault(key, made)

    def open_source(self, name: str, spec: SourceSpec) -> Source:
        """Return a source that is not registered under its name."""
        return self._open(name, spec)

    def source_name(self, name: str | None) -> str:
        """Return the name of a registered source, or of the only one. A path is refused: remote callers use this."""
        if name in self.settings.sources:
            return str(name)
        known = self.sources()
        if name is None and len(known) == 1:
            return next(iter(known))
        listed = ", ".join(f"`{n}`" for n in list(known)[:20]) or "none yet; `etude sources add` adds one"
        if name is None:
            raise Invalid("No dataset was given.", hint=f"Datasets: {listed}.")
        if name not in known:
            raise NotFound(f"There is no dataset `{name[:200]}`.", hint=f"Datasets: {listed}.")
        return name

    def choose_source(self, name: str | None, thread_id: str | None) -> str | None:
        """Return the source that a question of a remote caller is about; None leaves it to the thread or the model."""
        if name is None and (thread_id is not None or len(self.sources()) != 1):
            return None
        return self.source_name(name)

    def check_model(self, name: str | None) -> str | None:
        """Return the name of a model; raise if remote callers may not choose it."""
        allowed = {"offline", self.settings.model, *self.settings.server.models}
        if name is not None and name not in allowed:
            listed = ", ".join(f"`{n}`" for n in sorted(allowed))
            raise Invalid(f"The model `{name[:200]}` cannot be chosen.", hint=f"Models: {listed} (`server.models`).")
        return name

    def catalog(self, source: str | Source) -> Catalog:
        """Return the tables and columns of a source."""
        return self.source(source).catalog(self.settings.limits)

    @made_once
    def cataloger(self) -> Cataloger:
        """Creates catalogs: profiles of sources with their pages, stored for each run."""
        from etude.catalog.cataloger import Cataloger

        return Cataloger(self)

    def profile(self, source: str | Source, cancel: Cancellation | None = None) -> SourceProfile:
        """Return the profile of a source: from a catalog or an earlier call, or measured now, until `cancel`."""
        from etude.catalog.storage.stored_profiles import load_stored_or_measure_profile

        return load_stored_or_measure_profile(self, self.source(source), cancel=cancel)

    def known_profile(self, source: str | Source) -> SourceProfile | None:
        """Return the profile of a source if it is known already; measure nothing."""
        from etude.catalog.storage.stored_profiles import find_stored_profile

        return find_stored_profile(self, self.source(source))

    def _find_sizes(self, source: Source) -> Mapping[str, Size]:
        from etude.catalog.storage.stored_profiles import find_stored_profile_sizes

        return find_stored_profile_sizes(self, source)

    def annotations(self, source: str | Source) -> dict[str, Any]:
        """Return the annotations of the tables of a source: descriptions, owners and tags."""
        from etude.catalog.storage.annotations import get_annotations

        return get_annotations(self, self.source(source)).model_dump(mode="json", exclude_unset=True)

    def annotate(self, source: str | Source, annotations: Annotations) -> None:
        """Add annotations to the tables of a source."""
        from etude.catalog.storage.annotations import put_annotations

        self.store.check_storage()
        put_annotations(self, self.source(source), annotations)

    # -- search

    @made_once
    def indexes(self) -> Indexes:
        """The indexes of the sources of this tenant, which `search` and `match` use."""
        from etude.search.indexes import Indexes

        return Indexes(self)

    def search(
        self,
        query: str,
        source: str | Source | None = None,
        *,
        kinds: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        k: int = 10,
        offset: int = 0,
        mode: Mode = "hybrid",
    ) -> SearchPage:
        """Find rows, values, tables, columns, files, playbooks and runs by words and by meaning."""
        return self.indexes.search(query, source, kinds=kinds, tables=tables, k=k, offset=offset, mode=mode)

    def match(
        self,
        source: str | Source,
        table: str,
        like: str | Mapping[str, Any],
        where: Filter | None = None,
        *,
        columns: Sequence[str] = (),
        k: int = 10,
        offset: int = 0,
        facets: Sequence[str] = (),
        cancel: Cancellation | None = None,
    ) -> MatchPage:
        """Return the rows of a table that pass `where`, most similar first to a text or to the row of a key.

        `where` is a condition in the source's SQL, or filters of a QueryPlan; the engine executes it.
        """
        from etude.search.match import Matcher

        matcher = Matcher(self, self.indexes, self.source(source), table, columns)
        return matcher.match(where, like, k, offset, facets, cancel)

    # -- runs

    def sql(
        self,
        source: str | Source,
        query: str,
        params: Params | None = None,
        *,
        others: Mapping[str, str | Source] | None = None,
        limits: Limits | None = None,
        record: bool | None = None,
        thread_id: str | None = None,
        on_progress: Progress | None = None,
    ) -> Result:
        """Run SQL in the source's own dialect. `others` name further sources that the query may join.

        `params` are values for `?` or `$1` in their order, or for `$name` and `:name` by name. The engine binds them.
        """
        opened = self.source(source)
        given = encode_query_params(params)
        spec = Query(opened.name, query, None, limits or self.settings.limits, thread_id=thread_id, params=given)
        return self._run(opened, spec, others or {}, record, on_progress)

    def begin_sql(self, source: str, query: str, limits: Limits) -> tuple[StartedQuery, Callable[[], Result]] | None:
        """Start an unrecorded query on an idle engine; return it and a function that returns its result.

        Return None if that would have to wait: if the source is not in the settings, if the query may join other
        sources, or if no engine is idle.
        """
        if source not in self.settings.sources or "." in query:
            return None
        opened = self.source(source)
        begun = opened.begin(query, limits)
        if begun is None:
            return None
        asked = Query(opened.name, query, None, limits)
        return begun, lambda: run_query_as_run(asked, lambda _: begun.stream, None, self.scratch)

    def plan(
        self,
        source: str | Source,
        plan: QueryPlan | Mapping[str, Any] | str,
        *,
        limits: Limits | None = None,
        record: bool | None = None,
        thread_id: str | None = None,
        on_progress: Progress | None = None,
    ) -> Result:
        """Compile a QueryPlan to the source's dialect and run it."""
        parsed, sql = self.compile(source, plan)
        body = parsed.model_dump(mode="json", exclude_none=True, by_alias=True)
        opened = self.source(source)
        spec = Query(
            opened.name,
            sql,
            opened.catalog(self.settings.limits).dialect,
            limits or self.settings.limits,
            kind="plan",
            text=_plan_text(body),
            plan=body,
            thread_id=thread_id,
        )
        return self._run(opened, spec, {}, record, on_progress)

    def compile(
        self,
        source: str | Source,
        plan: QueryPlan | Mapping[str, Any] | str,
        beside: RegisteredTables | None = None,
        inferred: Callable[[], Catalog] | None = None,
    ) -> tuple[QueryPlan, str]:
        """Return a QueryPlan and its SQL in the source's dialect; it may name tables registered `beside` the source.

        `inferred` returns the catalog with the keys that a profile found: they are used if the declared ones are not
        enough.
        """
        from etude.sources.plan import QueryPlan, parse_plan
        from etude.sources.plan.compile import compile_plan

        parsed = plan if isinstance(plan, QueryPlan) else parse_plan(plan if isinstance(plan, str) else dict(plan))
        catalog = self.catalog(source)
        try:
            return parsed, compile_plan(
                parsed, add_registered_tables(catalog, beside) if beside is not None else catalog
            )
        except Invalid:
            if inferred is None:
                raise
            return parsed, compile_plan(parsed, inferred())

    def _run(
        self,
        source: Source,
        query: Query,
        others: Mapping[str, str | Source],
        record: bool | None,
        on_progress: Progress | None,
    ) -> Result:
        recorded = self.settings.record if record is None else record
        storage = RunStorage(self.store, self.objects) if recorded else None
        query = replace(query, location=source.only_location)

        def start_query(describe: bool) -> ResultStream:
            stream = self._start_query(source, query.sql, others, query.limits, describe, on_progress, query.params)
            return self.open_queries.watch(stream) if recorded else stream

        with self.open_queries.running() if recorded else nullcontext():
            result = run_query_as_run(query, start_query, storage, self.scratch)
        if note := source.hiding_note:
            result.notes = (*result.notes, note)
        return result

    def _start_query(
        self,
        source: Source,
        sql: str,
        others: Mapping[str, str | Source],
        limits: Limits,
        describe: bool,
        on_progress: Progress | None = None,
        params: Encoded | None = None,
    ) -> ResultStream:
        joined = self._joined(source, sql, others)
        if not joined:
            return source.query(sql, limits, describe, on_progress, params)
        return query_federated_sources(
            [source, *joined], sql, limits, describe, self.pool, self.scratch, on_progress, params
        )

    def _joined(self, source: Source, sql: str, others: Mapping[str, str | Source]) -> list[Source]:
        frames = [
            s
            for s in others.values()
            if isinstance(s, RegisteredTables) and federation_uses_frames(sql, s, source.native)
        ]
        if "." not in sql:
            return list(frames)
        others = {n: u for n, u in others.items() if not isinstance(u, RegisteredTables)}
        return [*self._joined_by_name(source, sql, others), *frames]

    def _joined_by_name(self, source: Source, sql: str, others: Mapping[str, str | Source]) -> list[Source]:
        named = self.others(source.name, others)
        names = [n for n in self.sources() if n not in others] if self._has_sources() else []
        found = set(find_federated_sources(sql, source.name, [*others, *names]))
        return [s for s in named if s.name in found] + [self.source(n) for n in names if n in found]

    def new_frames(self) -> RegisteredTables:
        """Return a source for tables that a program registers."""
        cache, tenant, room = self.settings.home / "cache", self._engine_tenant, self._registered_room

        def storage_left() -> int | None:
            # Without a limit, the store is not opened: a program may have no other use for it.
            server = self.settings.server
            return self.store.storage_left() if server.storage or server.tenant_storage else None

        return RegisteredTables(self.pool, cache, self.scratch, tenant, room, storage_left)

    def others(self, primary: str, urls: Mapping[str, str | Source]) -> list[Source]:
        """Return the sources to join with the primary one, each under its given name."""
        if primary in urls:
            raise Invalid(
                f"Two sources would be called `{primary}`.",
                hint="The first source has this name from its path; choose another name for the second.",
            )
        return [
            u if isinstance(u, Source) else self._open(check_source_name(n), SourceSpec(url=u)) for n, u in urls.items()
        ]

    def _has_sources(self) -> bool:
        return bool(self.settings.sources) or "store" in self.__dict__ or Path(self.settings.home).exists()

    @property
    def runs_at_work(self) -> int:
        """The number of runs of all tenants that this process is working on."""
        views = (self, *self._views.values())
        return sum(len(each.live_runs) for each in views if "live_runs" in each.__dict__)

    # -- questions

    @made_once
    def live_runs(self) -> LiveRuns:
        """The runs that this process is working on."""
        from etude.runtime.live_runs import LiveRuns

        return LiveRuns(self.store)

    @made_once
    def runs(self) -> Runs:
        """Starts, follows and controls runs."""
        from etude.runs import Runs

        return Runs(self)

    def ask(
        self,
        source: str | Source | None,
        question: str,
        *,
        model: str | Model | None = None,
        thread_id: str | None = None,
        budget: Budget | None = None,
        fresh: bool = False,
        on_entry: Callable[[Entry], None] | None = None,
        control: RunControl | None = None,
    ) -> Answer:
        """Answer a question; `on_entry` is called with each event. `SQL:` and `PYTHON:` run without a model.

        With `fresh`, the script of an earlier run does not answer it.
        """
        return self.runs.ask(
            source,
            question,
            model=model,
            thread_id=thread_id,
            budget=budget,
            fresh=fresh,
            on_entry=on_entry,
            control=control,
        )

    @made_once
    def scripts(self) -> ScriptLibrary:
        """The scripts that were compiled from runs, and that answer the same questions again."""
        from etude.replays.script_library import ScriptLibrary

        return ScriptLibrary(self)

    def replay(self, run_or_file: str, source: str | None = None) -> Proof:
        """Execute a recorded run again without a model, and compare its results. A file is one of `runs export`."""
        from etude.replays.proof import load_run_for_proof, make_proof

        return make_proof(self, load_run_for_proof(self, run_or_file), source)

    def compare_runs(self, first: str, second: str) -> Difference:
        """Return why two runs differ, and the rows that moved."""
        from etude.replays.differences import find_run_differences

        def read(run: Run) -> Result | None:
            return self.result(run.id) if run.result and run.result_artifact else None

        one, other = (self.store.run(self.store.resolve_run(each)) for each in (first, second))
        return find_run_differences(one, other, read)

    def export_run(self, run_id: str, file: IO[bytes]) -> str:
        """Write a run with its events, code and results to a zip file; return its id."""
        from etude.capsule import write_capsule

        found = self.store.resolve_run(run_id)
        write_capsule(self.store, self.objects, found, file)
        return found

    def stream_run(self, run_id: str) -> Iterator[bytes]:
        """Return what `export_run` writes in pieces, each written when it is taken."""
        from etude.capsule import stream_capsule

        return stream_capsule(self.store, self.objects, self.store.resolve_run(run_id), self.scratch)

    def give_feedback(self, run_id: str, verdict: Verdict, comment: str = "", by: str = "") -> Feedback:
        """Record whether the answer of a run is right. A wrong one suspends the scripts that would give it again."""
        from etude.feedback import give_feedback

        return give_feedback(self, run_id, verdict, comment, by)

    def suggest_questions(self, source: str | Source, limit: int = 3, cancel: Cancellation | None = None) -> list[str]:
        """Return questions about a source that the rules answer, made from what is known of its data."""
        from etude.suggested_questions import suggest_questions

        return suggest_questions(self, self.source(source), limit, cancel)

    def script(self, run_id: str) -> str:
        """Return the script of a run as a Python file that was executed alone; it says so, or why it was not."""
        from etude.offered_script import offer_script

        return offer_script(self, self.store.run(self.store.resolve_run(run_id)))

    def thread_script(self, thread_id: str) -> str:
        """Return all cells and queries of a thread as a Python file that runs alone, if it does, or says why not."""
        from etude.offered_script import offer_thread_script

        return offer_thread_script(self, thread_id)

    def resources_for(self, run: Run, source: Source | None) -> ToolResources:
        """Return what a run on a source can reach."""
        from etude.run_setup import make_run_resources

        return make_run_resources(self, run, source)

    def source_fingerprint(self, source: Source, anywhere: bool = False) -> str:
        """Return a fingerprint of a source and its grants, with or without its place, unique across tenants."""
        from etude.run_setup import run_source_fingerprint

        return run_source_fingerprint(self, source, anywhere)

    def open_model(self, name: str) -> Model:
        """Return a model by its name; it is opened once and shared."""
        with self._models_lock:
            if name not in self._models:
                from etude.models.open import open_model

                self._models[name] = open_model(name, self.settings)
            return self._models[name]

    # -- agents

    @made_once
    def playbooks(self) -> PlaybookLibrary:
        """The playbooks of this tenant, with their measured effects."""
        from etude.learning.playbooks.playbook_library import PlaybookLibrary

        return PlaybookLibrary(self.store, self.settings.home)

    @made_once
    def agents(self) -> AgentControl:
        """Creates, steers and pauses agents; a worker runs them."""
        from etude.agents.agent_control import AgentControl

        return AgentControl(self.store)

    # -- sessions

    @made_once
    def session_pool(self) -> SessionPool:
        """The open sessions of threads, of all tenants."""
        from etude.runtime.session_pool import SessionPool

        return SessionPool(self.settings.server.idle_memory)

    def lend_session(
        self, thread_id: str, source: Source | None, *, options: Mapping[str, Any] | None = None, keep: bool = True
    ) -> AbstractContextManager[Notebook]:
        """Lend the session of a thread on a source for a `with` block. See `SessionPool`."""
        # Only this source: a model's code must not reach a source that the person did not name.
        opener = partial(self.open_session, alone=True, record=True, hold_slot=self._hold_cell_slot, remember=False)
        return self.session_pool.lend(opener, thread_id, source, options=options, keep=keep)

    def _hold_cell_slot(self, check: Callable[[], None]) -> AbstractContextManager[object]:
        return self.cell_slots.hold(self._engine_tenant, check)

    @made_once
    def cell_slots(self) -> ThreadFairShare:
        """The slots for cells of threads, of all tenants."""
        return ThreadFairShare(self.settings.server.cells)

    @made_once
    def sandbox(self) -> Provider:
        """The sandbox provider that runs sessions."""
        return self.open_sandbox(self.settings.sandbox)

    def open_sandbox(self, name: str) -> Provider:
        """Return a sandbox provider by its name, with the options of the settings."""
        opened: Provider = plugins.load_plugin("sandbox", name)(**self.settings.sandbox_options)
        return opened

    def open_session(
        self,
        source: str | Source | None = None,
        *,
        others: Mapping[str, str] | None = None,
        limits: SessionLimits | None = None,
        isolation: int = 2,
        policy: Policy | Literal["default"] | None = "default",
        mounts: Mapping[str, str] | None = None,
        allow_exec: bool = False,
        network: Sequence[str] = (),
        record: bool | None = None,
        thread_id: str | None = None,
        alone: bool = False,
        seed: int = 0,
        query_limits: Limits | None = None,
        keep: bool = True,
        hold_slot: HoldSlot | None = None,
        remember: bool = True,
    ) -> Notebook:
        """Open a persistent Python session on a source. With a `thread_id`, restore the state of that thread.

        With `alone`, its queries cannot name any other source, registered or not. With `keep=False`, its queries are
        recorded, but not their results.
        `network` lists the only addresses that it may connect to, such as `("api.example.com:443",)`.
        `hold_slot` is entered around each cell: it may wait, so that not too many cells run at once.
        With `remember=False`, its history has the outcomes of its cells, but not their code, values and output.
        """
        from etude.runtime.broker import SourceAccess
        from etude.runtime.notebook import Notebook
        from etude.sessions.base import SandboxSpec
        from etude.sessions.code_policy import CONNECTING, Policy
        from etude.sessions.session import Session, SessionBroker

        recorded = self.settings.record if record is None else record
        storage = RunStorage(self.store, self.objects) if recorded else None
        access = None
        if source is not None:
            opened = self.source(source)
            self.pool.warm()
            opened.mount()
            frames = self.new_frames()
            joined: dict[str, str | Source] = {**(others or {}), FRAMES: frames}

            def start_query(sql: str, asked: Limits, params: Encoded | None) -> ResultStream:
                if alone and not federation_uses_frames(sql, frames, opened.native):
                    return opened.query(sql, asked, recorded, params=params)
                if alone:
                    return query_federated_sources(
                        [opened, frames], sql, asked, recorded, self.pool, self.scratch, params=params
                    )
                return self._start_query(opened, sql, joined, asked, recorded, params=params)

            access = SourceAccess(
                opened.name,
                start_query,
                lambda: add_registered_tables(opened.catalog(self.settings.limits), frames),
                query_limits or self.settings.limits,
                lambda: self.annotations(opened),
                keep,
                (limits or self.settings.session).memory,
                self.scratch,
                frames,
                opened.only_location,
            )
        places = (network,) if isinstance(network, str) else tuple(network)
        spec = SandboxSpec(isolation, dict(mounts or {}), allow_exec, places)

        def open_session(broker: SessionBroker) -> Session:
            # The notebook has a history of its own.
            return Session(self.sandbox, spec, limits or self.settings.session, broker, seed, history=0)

        chosen = Policy() if policy == "default" else policy
        if policy == "default" and places:
            chosen = Policy(imports=Policy().imports - CONNECTING)
        return Notebook(open_session, access, storage, chosen, thread_id, seed, hold_slot, remember)

    # -- results

    def result(self, run_id: str, name: str | None = None) -> Result:
        """Return the result of a run, or the one of that name among those that its answer shows, such as `r2`."""
        run = self.store.run(self.store.resolve_run(run_id))
        if name is not None:
            shown = {shown.id: shown for shown in run.shown}
            if name not in shown:
                hint = f"It shows {', '.join(shown)}." if shown else "Leave the name out."
                raise NotFound(f"The answer of run `{run.id}` shows no result `{name}`.", hint=hint)
            return self.read_result(shown[name].result, shown[name].artifact, run.id)
        if run.result is None or run.result_artifact is None:
            raise NotFound(f"Run `{run.id}` is {run.status} and has no result.", hint=f"`etude runs show {run.id}`.")
        return self.read_result(run.result, run.result_artifact, run.id)

    def read_result(self, info: ResultInfo, artifact: Artifact, run_id: str) -> Result:
        """Return a stored result. Its file is verified while it is read; `Damaged` names the run and the file."""
        return Result(info, None, open_kept=lambda: self.objects.open(artifact.hash, run_id), run_id=run_id)

    def repair(self, run_id: str, source: str | None = None) -> Repaired:
        """Run queries again if their stored results are damaged or lost; `source` replaces a source without a name."""
        from etude.runtime.result_repair import repair_run

        def again(step: Step) -> Result:
            values = decode_query_params(step.params.get("values"))
            return self.sql(source or step.source or "", step.code, values, limits=step.limits, record=True)

        return repair_run(self.store.run(self.store.resolve_run(run_id)), self.objects, self.store, again)


def _without_sources(settings: Settings) -> Settings:
    """Return the settings for another tenant: without the sources, which belong to the first tenant."""
    return settings.model_copy(update={"sources": {}})


class _View(App):
    """The app of one tenant. It shares the resources of its owner, which closes them."""

    def __init__(self, owner: App, tenant: str) -> None:
        store = owner.store.scoped(tenant)
        self.__dict__ |= {k: v for k, v in owner.__dict__.items() if not isinstance(vars(App).get(k), cached_property)}
        self._owner = owner
        self.settings = _without_sources(owner.settings)
        self.store = store
        self._engine_tenant = tenant
        self._sources = {}
        self._lock = threading.Lock()
        self._making = threading.RLock()

    @property
    def objects(self) -> Objects:
        return self._owner.objects

    @property
    def sandbox(self) -> Provider:
        return self._owner.sandbox

    @property
    def session_pool(self) -> SessionPool:
        return self._owner.session_pool

    @property
    def cell_slots(self) -> ThreadFairShare:
        return self._owner.cell_slots

    def scoped(self, tenant: str) -> App:
        return self if tenant == self.tenant else self._owner.scoped(tenant)

    def close(self) -> None:
        """Do nothing: closing the owner closes the shared resources."""


def _absolute_url(url: str, kind: str) -> str:
    """Return the URL in a form that does not depend on the working folder."""
    if url.startswith("env:"):
        return url
    if url.startswith("file:") and not url.startswith("file://"):
        return f"file:{Path(url.removeprefix('file:')).expanduser().absolute()}"
    return source_path(url) if kind in ("duckdb", "sqlite", "files") else url


def _looks_like_path(text: str) -> bool:
    return "://" in text or "/" in text or text.startswith((".", "~")) or "*" in text or "." in text


def _plan_text(body: Mapping[str, Any]) -> str:
    import json

    return json.dumps(body, separators=(", ", ": "))


def require_app_source(url: str | None, environment: Mapping[str, str]) -> str:
    """Return the given source, or the one in `ETUDE_SOURCE`; raise if there is none."""
    chosen = url or environment.get("ETUDE_SOURCE")
    if not chosen:
        raise Invalid("No source was given.", hint="Pass a path, a URL or a name, or set the variable `ETUDE_SOURCE`.")
    return chosen
