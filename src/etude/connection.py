"""`etude.connect`: sources in Python. The same two lines work in a session and in a standalone script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from etude.app import App, require_app_source
from etude.db import Database, check_saved_file_name
from etude.entities import Catalog, Limits
from etude.errors import Conflict, Invalid, NotFound, Unavailable, UnknownTable
from etude.limits import change_limits
from etude.result import Result
from etude.sources.registered_tables import add_registered_tables

if TYPE_CHECKING:
    from etude.replays.proof import Proof
    from etude.runtime.answer import Answer
    from etude.runtime.notebook import Notebook
    from etude.search.search_results import BuiltIndex, MatchPage, SearchPage
    from etude.sources.plan import QueryPlan
    from etude.sources.query_parameters import Params
    from etude.sources.source import Source

TABLE = "data"
"""The name of a table that is connected without a name."""


def connect(
    source: str | os.PathLike[str] | Mapping[str, Any] | Any | None = None,
    /,
    *,
    app: App | None = None,
    **others: str | os.PathLike[str],
) -> Connection:
    """Open a source by path, URL or name (`$ETUDE_SOURCE` if none is given).

    Keywords name further sources that queries may join: `connect("crm.duckdb", files="orders/")` lets a query
    write `files.orders`. A dict names tables to query instead: `connect({"sales": df})`; see `Connection.register`. A
    DataFrame or an Arrow table alone is the table `data`.
    """
    if source is not None and not isinstance(source, str | os.PathLike | Mapping):
        source = {TABLE: source}
    if isinstance(source, Mapping):
        connection = Connection(None, {n: os.fspath(u) for n, u in others.items()}, app)
        try:
            for name, data in source.items():
                connection.register(name, data)
        except BaseException:
            connection.close()
            raise
        return connection
    chosen = require_app_source(os.fspath(source) if source is not None else None, os.environ)
    return Connection(chosen, {n: os.fspath(u) for n, u in others.items()}, app)


def ask(
    source: str | os.PathLike[str] | Mapping[str, Any] | Any | None,
    question: str,
    /,
    *,
    app: App | None = None,
    **options: Any,
) -> Answer:
    """Answer a question about a source, as `connect` takes it (`$ETUDE_SOURCE` if None). See `App.ask` for the options.

    Raises the error that the run ended with. If the answer has a `question`, answer it with `reply`.
    """
    if source is not None and not isinstance(source, str | os.PathLike):
        with connect(source, app=app) as connection:
            return connection.ask(question, **options)
    chosen = require_app_source(os.fspath(source) if source is not None else None, os.environ)
    opened = app or App()
    try:
        return _with_question(opened.ask(chosen, question, **options))
    finally:
        if app is None:
            opened.close()


def reply(run_id: str, text: str, /, *, app: App | None = None) -> Answer:
    """Answer the question of a waiting run and continue the run."""
    opened = app or App()
    try:
        opened.runs.answer(run_id, text)
        return _with_question(opened.runs.answer_of(opened.runs.work(run_id)))
    finally:
        if app is None:
            opened.close()


def _with_question(answer: Answer) -> Answer:
    """Return the answer, or raise its error; a question that the run asks back is its text."""
    answer.require()
    if not answer.question or answer.text:
        return answer
    choices = "".join(f"\n- {choice}" for choice in answer.choices)
    return replace(answer, text=f"{answer.question}{choices}\nReply with `etude.reply({answer.run_id!r}, ...)`.")


def _unregistered(message: str, frame: FrameType) -> str:
    """Return the name of the unknown table if the caller has a variable of that name that could be a table."""
    name = message.partition("`")[2].partition("`")[0]
    value = frame.f_locals.get(name, frame.f_globals.get(name))
    is_table = isinstance(value, list | dict) or any(hasattr(value, a) for a in ("columns", "__arrow_c_stream__"))
    return name if is_table else ""


def replay(run: str, /, *, source: str | os.PathLike[str] | None = None, app: App | None = None) -> Proof:
    """Execute a recorded run again without a model, and compare its results; `run` is an id or a file of `runs export`.

    `source` replaces the source of the run.
    """
    opened = app or App()
    try:
        return opened.replay(run, os.fspath(source) if source is not None else None)
    finally:
        if app is None:
            opened.close()


def save(name: str, data: str | bytes) -> None:
    """Write a file to the working folder, completely or not at all; in a session, the host stores it."""
    from etude.store.objects import write_object_file

    write_object_file(Path(check_saved_file_name(name)), data.encode() if isinstance(data, str) else bytes(data))


def load(name: str) -> bytes:
    """Return a file of the working folder; in a session, a file that was saved there or that the host provided."""
    try:
        return Path(check_saved_file_name(name)).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"There is no file `{name}` here.", hint="`etude.save` writes one.") from None
    except OSError as error:
        raise Invalid(f"The file `{name}` cannot be read: {error.strerror}.") from None


def open_session(
    source: str | os.PathLike[str] | None = None, /, *, app: App | None = None, **options: Any
) -> Notebook:
    """Open a persistent, sandboxed Python session on a source (`$ETUDE_SOURCE` if none). See `App.open_session`."""
    chosen = require_app_source(os.fspath(source) if source is not None else None, os.environ)
    if app is not None:
        return app.open_session(chosen, **options)
    opened = App()
    try:
        notebook = opened.open_session(chosen, **options)
    except BaseException:
        opened.close()
        raise
    notebook.on_close = opened.close
    return notebook


class Connection(Database):
    """A source to query. Every query is a recorded run unless `record=False`."""

    def __init__(self, source: str | None, others: dict[str, str], app: App | None = None) -> None:
        self._owns_app = app is None
        self._closed = False
        self._app = app or App()
        self._frames = self._app.new_frames()
        self._others: dict[str, str | Source] = {**others}
        # The engine starts while this process is still loading. Mount now, so that a wrong source fails early.
        self._app.pool.warm()
        try:
            self._source: Source = self._frames if source is None else self._app.source(source)
            self.name = self._source.name
            if source is not None:
                self._others[self._frames.name] = self._frames
            self._source.mount()
            for other in self._app.others(self.name, self._others):
                other.mount()
        except BaseException:
            self.close()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise Conflict("This connection is closed.", hint="Open another one with `etude.connect`.")

    def sql(
        self,
        query: str,
        params: Params | None = None,
        *,
        record: bool | None = None,
        limits: Limits | None = None,
        **limit: Any,
    ) -> Result:
        """Run a query and return its whole result.

        `params` are values for `?` or `$1` in their order, or for `$name` and `:name` by name: the engine binds them.
        Limits can be given by name: `db.sql(q, timeout_s=5)`. A result above a limit of `rows` or `bytes` is an error;
        `limit=100` returns the first rows.
        """
        self._check_open()
        if limit:
            limits = change_limits(limits or self._app.settings.limits, limit)
        try:
            return self._app.sql(self._source, query, params, others=self._others, record=record, limits=limits)
        except UnknownTable as error:
            if name := _unregistered(error.message, sys._getframe(1)):
                error.hint = f"`{name}` is a variable: let queries read it with `db.register({name!r}, {name})`."
            raise

    def ask(self, question: str, **options: Any) -> Answer:
        """Answer a question about the source; see `App.ask` for the options. Raises the error that ended the run."""
        self._check_open()
        if self._source is self._frames or not self._frames.names:
            return _with_question(self._app.ask(self._source, question, **options))
        if not self._source.native:
            raise Unavailable(
                f"Questions on a source of kind `{self._source.kind}` cannot read registered tables.",
                hint="Ask `etude.connect({...}).ask(...)` about those alone, or join them with `db.sql`.",
            )
        return _with_question(self._app.runs.ask(self._source, question, beside=self._frames, **options))

    def plan(self, plan: QueryPlan | dict[str, Any] | str, *, record: bool | None = None) -> Result:
        """Run a QueryPlan."""
        self._check_open()
        return self._app.plan(self._source, plan, record=record)

    def index(self, *, columns: Sequence[str] = (), rebuild: bool = False) -> BuiltIndex:
        """Make the index of the source, or bring it up to date; `columns` names those to index."""
        return self._app.indexes.build(self._source, columns=columns, rebuild=rebuild)

    def search(self, query: str, **options: Any) -> SearchPage:
        """Find rows, tables, columns, files and past runs by words and by meaning; see `App.search` for the options."""
        return self._app.search(query, self._source, **options)

    def match(self, table: str, like: str | Mapping[str, Any], where: Any = None, **options: Any) -> MatchPage:
        """Return the rows that pass `where`, most similar first to a text or a row; see `App.match` for the options."""
        return self._app.match(self._source, table, like, where, **options)

    def catalog(self) -> Catalog:
        """Return the tables, columns, types, keys, comments and row counts."""
        self._check_open()
        catalog = self._app.catalog(self._source)
        return catalog if self._source is self._frames else add_registered_tables(catalog, self._frames)

    def register(self, name: str, data: Any) -> None:
        """Let queries read a DataFrame, an Arrow table, a result, a list of dicts or a dict of columns as a table.

        The data is copied now. A name can be registered again, with other data, but not that of a table of the source.
        """
        if self._source is not self._frames and self._app.catalog(self._source).table(name) is not None:
            raise Conflict(f"The source has a table `{name}` already.", hint="Register it under another name.")
        self._frames.register(name, data)

    def annotations(self) -> dict[str, Any]:
        """Return the annotations of the tables: descriptions, owners and tags."""
        return self._app.annotations(self._source)

    def close(self) -> None:
        """Stop the engines that this connection started, and forget the tables that it registered."""
        # The app of somebody else stays open, and so do its sources.
        self._closed = self._owns_app
        self._frames.close()
        if self._owns_app:
            self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
