"""The setup of a run: its source, its model, its tools, and the opening of its conversation."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from etude import plugins
from etude.entities import Budget, Catalog, Limits, Message, Run, Turn
from etude.errors import EtudeError, Invalid, NotFound
from etude.events import ArtifactCreated, Guided, Note, RunFinished
from etude.models.base import Model
from etude.runtime.answer import read_answer_results
from etude.runtime.figures import render_figures
from etude.runtime.loop import LoopSetup
from etude.runtime.prompt import OPENING, Earlier, Opening, open_prompt
from etude.runtime.run_log import RunLog
from etude.runtime.thread import earlier_thread_messages, last_success_in_thread
from etude.runtime.tool_context import ToolResources, earlier_results_by_id
from etude.sources.federation import federation_uses_frames, query_federated_sources
from etude.sources.registered_tables import add_registered_tables
from etude.tools.base import Tool
from etude.tools.result_text import earlier_result_text

if TYPE_CHECKING:
    from etude.app import App
    from etude.catalog.measure.quick_look import QuickLook
    from etude.offline.vocabulary import VocabularyTable
    from etude.runtime.notebook import Notebook
    from etude.sources.engine_client import ResultStream
    from etude.sources.registered_tables import RegisteredTables
    from etude.sources.source import Source

EXAMPLE_CHARS = 4000
LOOK_S = 2.4
"""Seconds that a quick profile may take before the first question on a source."""
LATE_S = 0.1
"""Seconds that a question waits for a quick profile that does not stop in time."""
TIME_OVER = "It ran out of time."


def make_loop_setup(
    app: App,
    log: RunLog,
    source: Source | None,
    model: Model | None,
    conclude: Callable[[Run, Turn], RunFinished | Guided],
    beside: RegisteredTables | None = None,
) -> LoopSetup:
    """Return the setup of a question. `model` is one that the caller passed; None opens the model of the run."""
    log.commit()
    run = log.run
    opening = _read_opening(app, run)
    resources = make_run_resources(app, run, source, mark=opening.mark if opening else None, beside=beside)
    chosen = model or _open_model(app, run, resources)
    if opening is None and chosen.name == "offline":
        # Rules read the question and the record themselves; describing thousands of tables takes longer than they do.
        opening = Opening(mark=resources.mark, said=())
    if opening is None:
        sources = [source] if source else [app.source(name) for name in resources.names]
        opening = _write_opening(app, log, run, resources, sources)
    resources = replace(resources, mark=opening.mark)
    return LoopSetup(
        model=chosen,
        tools=_load_tools(packages=chosen.name != "offline"),
        opening=opening.said,
        budget=run.budget or Budget(),
        resources=resources,
        conclude=conclude,
        hidden=_hidden(app, [source] if source else [app.source(n) for n in resources.names], opening.whole),
        fill=lambda run, text: render_figures(text, read_answer_results(run, app.read_result)).text,
    )


def make_run_resources(
    app: App,
    run: Run,
    source: Source | None,
    mark: str | None = None,
    beside: RegisteredTables | None = None,
) -> ToolResources:
    """Return what the tools of a run can reach: its source, or every registered one if it names none.

    Queries on the source may also read the tables that a program registered `beside` it.
    """
    limits = run.limits or app.settings.limits
    sources = {source.name: source} if source else {name: app.source(name) for name in app.sources()}

    def query(name: str, sql: str, asked: Limits, describe: bool) -> ResultStream:
        # The source alone: a query of a model never joins a source that the person did not name.
        if beside is not None and federation_uses_frames(sql, beside, sources[name].native):
            return query_federated_sources([sources[name], beside], sql, asked, describe, app.pool, app.scratch)
        return sources[name].query(sql, asked, describe)

    def describe_source(name: str) -> Catalog:
        catalog = _describe(app, sources[name], limits)
        return add_registered_tables(catalog, beside) if beside is not None else catalog

    find_catalog = cache(describe_source)

    def lend() -> AbstractContextManager[Notebook]:
        if not sources:
            raise NotFound("No dataset is registered to open a session on.", hint="Add a source first.")
        chosen = sources[run.source or next(iter(sources))]
        return app.lend_session(run.thread_id or run.id, chosen, keep=run.thread_id is not None)

    resources = ToolResources(
        names=tuple(sources),
        fingerprints={name: run_source_fingerprint(app, each) for name, each in sources.items()},
        origins={name: source_origin(app.tenant, each.spec.url) for name, each in sources.items()},
        find_catalog=find_catalog,
        find_known=lambda name: _known_tables(app, sources[name], limits),
        query=query,
        compile=lambda name, plan: app.compile(sources[name], plan, beside, lambda: find_catalog(name)),
        lend_session=lend,
        limits=limits,
        scratch=app.scratch,
        rank=lambda catalog, text: app.indexes.choose_tables(sources[catalog.source], catalog, text),
        packages=lambda: _find_packages(app),
        search=lambda name, text, kinds, k: _search(app, sources[name], text, kinds, k),
        read=app.read_result,
    )
    return replace(resources, mark=mark) if mark else resources


def _hidden(app: App, sources: Sequence[Source], whole: bool) -> frozenset[str]:
    """Return the tools that a model does not need: those for a schema that it sees, and `search` without an index."""
    hidden = {"list_datasets", "get_dataset_schema"} if whole else set[str]()
    with contextlib.suppress(EtudeError):
        if any(app.indexes.find(source) is not None for source in sources):
            return frozenset(hidden)
    return frozenset(hidden | {"search"})


def _search(app: App, source: Source, query: str, kinds: Sequence[str], k: int) -> list[str]:
    """Return hits as lines for a model."""
    from etude.search.ranking import SNIPPET

    page = app.search(query, source, kinds=list(kinds) or None, k=k)
    lines = []
    for hit in page.hits:
        place = ".".join(part for part in (hit.table, hit.column) if part)
        key = ", ".join(f"{name}={value}" for name, value in hit.key.items())
        head = " ".join(part for part in (hit.kind, place, f"({key})" if key else "") if part)
        part = " […]" if len(hit.snippet) >= SNIPPET else ""
        lines.append(f"{head}: {' '.join(hit.snippet.split())}{part}")
    return lines


def _load_tools(packages: bool) -> Mapping[str, Tool]:
    """Return the built-in tools and, with `packages`, those of installed packages. Rules without a model need none."""
    # The built-in ones first and in their own order, as models see them.
    names = dict.fromkeys((*plugins.BUILT_IN["tool"], *(plugins.plugin_names("tool") if packages else ())))
    return {name: _load_tool(name) for name in names}


def _load_tool(name: str) -> Tool:
    try:
        found = plugins.load_plugin("tool", name)()
    except Exception as error:  # importing a package may raise anything
        raise Invalid(
            f"The tool `{name}` cannot be loaded: {type(error).__name__}: {error}.",
            hint="Fix the package that adds it, or its entry point in `etude.tool`.",
        ) from error
    if not isinstance(found, Tool) or found.name != name:
        raise Invalid(
            f"The entry point `{name}` in `etude.tool` is not a tool of that name.",
            hint="Name a class that derives from `etude.tools.base.Tool` and has the same `name`.",
        )
    return found


def _open_model(app: App, run: Run, resources: ToolResources) -> Model:
    name = run.model or "offline"
    if name == "offline":
        from etude.runtime.offline_model import OfflineModel

        vocabulary = app.settings.home / "cache" / "vocabulary"
        least = app.settings.offline.confidence
        return OfflineModel(
            app.store, resources, run.id, vocabulary, app.read_result, least, app.playbooks.definitions, app.tenant
        )
    return app.open_model(name)


def _read_opening(app: App, run: Run) -> Opening | None:
    """Return the stored opening of the conversation, so that it is the same when the run is resumed."""
    kept = next((a for a in run.artifacts if a.media == OPENING), None)
    return Opening.model_validate_json(app.objects.get(kept.hash)) if kept else None


def _write_opening(app: App, log: RunLog, run: Run, resources: ToolResources, sources: Sequence[Source]) -> Opening:
    _look_at_data(app, log, run, sources)
    earlier, mark = _find_earlier(app, run)
    resources = replace(resources, mark=mark) if mark else resources
    now = datetime.now().astimezone()
    opening = open_prompt(resources, run.text, earlier, now, _find_packages(app))
    log.add(ArtifactCreated(artifact=app.objects.put(opening.model_dump_json().encode(), OPENING)))
    log.commit()
    return opening


def _look_at_data(app: App, log: RunLog, run: Run, sources: Sequence[Source]) -> None:
    """Profile the sources of a question quickly if nothing is known of their data. A failure does not matter."""
    from etude.catalog.storage.stored_profiles import (
        begin_look_unless_stored,
        has_stored_profile,
        store_profile_of_look,
    )
    from etude.tools.table_ranking import rank_tables

    # Whatever else is known, the question needs the catalogs: they do not count.
    catalogs = [(source, app.catalog(source)) for source in sources]
    looks = [
        _Look(
            source,
            catalog,
            begin_look_unless_stored(app, source, [table.name for table in rank_tables(catalog, run.text)]),
        )
        for source, catalog in catalogs
        if catalog.tables and not has_stored_profile(app, source, catalog)
    ]
    if not looks:
        return
    started = time.monotonic()

    def measure() -> None:
        left = LOOK_S
        for look in looks:
            if left < LOOK_S / 10:
                return
            try:
                # The question needs the engine too, so its start does not count.
                look.quick.start(LOOK_S)
                began = time.monotonic()
                whole = look.quick.measure(left)
                look.note = "" if whole else TIME_OVER
                left -= time.monotonic() - began
            except EtudeError as error:
                look.note = error.message
            look.took_s = time.monotonic() - started
            with look.writing, contextlib.suppress(EtudeError):
                look.ended = True
                store_profile_of_look(app, look.source, look.quick)

    # In a thread: a source that does not stop in time delays no question, and the next one has its profile.
    looking = threading.Thread(target=measure, name="etude-look", daemon=True)
    looking.start()
    looking.join(LOOK_S + LATE_S)
    for look in looks:
        with look.writing, contextlib.suppress(EtudeError):
            if not look.ended:
                store_profile_of_look(app, look.source, look.quick)
        count = look.quick.measured
        seen = f"{count:,} of {len(look.catalog.tables):,} tables of `{look.source.name}`"
        took_s = look.took_s or time.monotonic() - started
        log.add(Note(text=f"Looked at {seen} in {took_s:.1f} s. {look.note}".strip()))


@dataclass
class _Look:
    """A source that is looked at before a question."""

    source: Source
    catalog: Catalog
    quick: QuickLook
    note: str = TIME_OVER
    """Why tables are missing."""
    took_s: float = 0.0
    ended: bool = False
    writing: threading.Lock = field(default_factory=threading.Lock)


def _find_earlier(app: App, run: Run) -> tuple[Earlier, str | None]:
    """Return what came before the question, and the mark of data in the thread so far."""
    thread_id = run.thread_id or ""
    messages: list[Message] = []
    with contextlib.suppress(NotFound):
        messages = earlier_thread_messages(app.store, thread_id, run.id)
    instructions = [m.text for m in messages if m.role == "system"]
    messages = _latest([m for m in messages if m.role != "system"], app.settings.history)
    before = []
    for run_id in dict.fromkeys(m.run_id for m in messages if m.run_id):
        with contextlib.suppress(NotFound):
            before.append(app.store.run(run_id))
    last = last_success_in_thread(app.store, thread_id, run.source, run.id)
    openings = (_read_opening(app, r) for r in reversed(before))
    return Earlier(
        messages=messages,
        instructions=instructions,
        computed=frozenset(r.id for r in before if r.kind != "ask" or r.model == "offline"),
        last=last,
        tables=_earlier_tables(app, last) if last else "",
        example=_find_example(app, run),
        lessons=app.playbooks.choose(run.text, run.source, run.id),
    ), next((opening.mark for opening in openings if opening is not None), None)


def _earlier_tables(app: App, run: Run) -> str:
    """Return the first rows of the results of an earlier run, as far as they are still stored."""
    shown = []
    for name, step in earlier_results_by_id(run).items():
        with contextlib.suppress(EtudeError):
            if step.result and step.artifact:
                shown.append(earlier_result_text(name, app.read_result(step.result, step.artifact, run.id)))
    return "\n".join(shown)


def _latest(messages: list[Message], most: int) -> list[Message]:
    """Return the latest messages, up to a number.

    The first of them changes only once in half as many, so that a provider can read the others from its cache.
    """
    step = max(most // 2, 1)
    dropped = -(-(len(messages) - most) // step) * step if len(messages) > most else 0
    return messages[dropped:]


def _find_packages(app: App) -> tuple[str, ...]:
    with contextlib.suppress(EtudeError):  # the error is shown if a cell needs the sandbox
        return app.sandbox.packages()
    return ()


def _find_example(app: App, run: Run) -> str:
    """Return a similar question with the code that answered it, for the model to look at; empty if there is none."""
    if run.replay is None or run.replay.level != "example" or run.replay.script is None:
        return ""
    with contextlib.suppress(NotFound):
        script = app.scripts.script(run.replay.script)
        code = "\n\n".join(step.code for step in script.steps)
        stopped = f"\nIt was not used because: {run.replay.reason}" if run.replay.origin else ""
        return f"question: {script.question}\n{code[:EXAMPLE_CHARS]}{stopped}"
    return ""


def _describe(app: App, source: Source, limits: Limits) -> Catalog:
    """Return the catalog of a source, with keys and values from its profile if that is known."""
    from etude.catalog.storage.stored_profiles import find_any_stored_profile

    catalog, profile = source.catalog(limits), find_any_stored_profile(app, source)
    if profile is None:
        return catalog
    from etude.catalog.hints import add_catalog_hints

    return add_catalog_hints(catalog, profile)


def _known_tables(app: App, source: Source, limits: Limits) -> dict[str, VocabularyTable]:
    """Return the tables whose profile is known: the offline rules need not query them."""
    catalog, profile = source.catalog(limits), app.known_profile(source)
    if profile is None:
        return {}
    from etude.catalog.known_tables import known_tables

    return known_tables(catalog, profile)


def source_origin(tenant: str, url: str) -> str:
    """Return a hash of the place of a source: files that are made from its data have it in their names."""
    return hashlib.sha256(f"{tenant}\n{url}".encode()).hexdigest()


def run_source_fingerprint(app: App, source: Source, anywhere: bool = False) -> str:
    """Return a fingerprint of the source that is unique across tenants and grants.

    With `anywhere` it names the source and not its place, so that it stays if the data move.
    """
    granted = source.spec.model_dump_json(exclude={"url", "uploaded", "by"})
    # The files of an uploaded source are in another place on each machine.
    url = source.spec.url if source.spec.uploaded else source.url
    place = source.name if anywhere else url
    return hashlib.sha256(f"{app.tenant}\n{place}\n{granted}".encode()).hexdigest()
