"""`etude.connect`: the Python way to a source. The same two lines work in a script that runs alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from etude.app import App, require_source
from etude.database import Database, check_file_name
from etude.entities import Catalog, Limits
from etude.errors import Invalid, NotFound
from etude.limits import change_limits
from etude.result import Result

if TYPE_CHECKING:
    from etude.runtime.answer import Answer
    from etude.runtime.notebook import Notebook
    from etude.sources.plan import QueryPlan


def connect(
    source: str | os.PathLike[str] | None = None,
    /,
    *,
    app: App | None = None,
    **others: str | os.PathLike[str],
) -> Connection:
    """Open a source by path, URL or name (`$ETUDE_SOURCE` where none is given).

    Keywords name further sources that queries may join: `connect("crm.duckdb", files="orders/")` lets a query
    write `files.orders`.
    """
    chosen = require_source(os.fspath(source) if source is not None else None, os.environ)
    return Connection(chosen, {n: os.fspath(u) for n, u in others.items()}, app)


def ask(source: str | os.PathLike[str] | None, question: str, /, *, app: App | None = None, **options: Any) -> Answer:
    """Have a question answered (`$ETUDE_SOURCE` where the source is None). See `App.ask` for the options.

    Raises the error that the run ended with. An answer whose `question` is set needs a reply first: `reply`.
    """
    chosen = require_source(os.fspath(source) if source is not None else None, os.environ)
    own = app or App()
    try:
        return own.ask(chosen, question, **options).require()
    finally:
        if app is None:
            own.close()


def reply(run_id: str, text: str, /, *, app: App | None = None) -> Answer:
    """Answer the question that a run waits with, and go on with it."""
    own = app or App()
    try:
        own.runs.answer(run_id, text)
        return own.runs.answer_of(own.runs.work(run_id)).require()
    finally:
        if app is None:
            own.close()


def save(name: str, data: str | bytes) -> None:
    """Write a file into the working folder, whole or not at all; in a session the host takes it."""
    from etude.store.objects import write_whole

    write_whole(Path(check_file_name(name)), data.encode() if isinstance(data, str) else bytes(data))


def load(name: str) -> bytes:
    """A file of the working folder; in a session what was saved there, or what the host gave."""
    try:
        return Path(check_file_name(name)).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"There is no file `{name}` here.", hint="`etude.save` makes one.") from None
    except OSError as error:
        raise Invalid(f"The file `{name}` cannot be read: {error.strerror}.") from None


def open_session(
    source: str | os.PathLike[str] | None = None, /, *, app: App | None = None, **options: Any
) -> Notebook:
    """A persistent, sandboxed Python on a source (`$ETUDE_SOURCE` where none is given). See `App.open_session`."""
    chosen = require_source(os.fspath(source) if source is not None else None, os.environ)
    if app is not None:
        return app.open_session(chosen, **options)
    own = App()
    try:
        notebook = own.open_session(chosen, **options)
    except BaseException:
        own.close()
        raise
    notebook.on_close = own.close
    return notebook


class Connection(Database):
    """A source to query. Every query is a recorded run unless `record=False`."""

    def __init__(self, source: str, others: dict[str, str], app: App | None = None) -> None:
        self._own = app is None
        self._app = app or App()
        self._others = others
        # The engine loads its libraries while this process loads its own; a wrong source fails here, not later.
        self._app.pool.warm()
        try:
            self._source = self._app.source(source)
            self.name = self._source.name
            self._source.mount()
            for other in self._app.others(self.name, others):
                other.mount()
        except BaseException:
            self.close()
            raise

    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        """Run a query. Limits can be given singly: `db.sql(q, timeout_s=5, rows=100)`."""
        if limit:
            limits = change_limits(limits or self._app.settings.limits, limit)
        return self._app.sql(self._source, query, others=self._others, record=record, limits=limits)

    def plan(self, plan: QueryPlan | dict[str, Any] | str, *, record: bool | None = None) -> Result:
        """Run a QueryPlan."""
        return self._app.plan(self._source, plan, record=record)

    def catalog(self) -> Catalog:
        """Tables, columns, types, keys, comments and row counts."""
        return self._app.catalog(self._source)

    def annotations(self) -> dict[str, Any]:
        """What people say of the tables: descriptions, owners and tags."""
        return self._app.annotations(self._source)

    def close(self) -> None:
        """End the engines that this connection started."""
        if self._own:
            self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
