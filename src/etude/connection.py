"""`etude.connect`: the Python way to a source. The same two lines work in a script that runs alone."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Any, Self

from etude.app import App, require_source
from etude.entities import Catalog, Limits
from etude.errors import NotFound, Unavailable
from etude.result import Result
from etude.settings import change_limits

if TYPE_CHECKING:
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


class Connection:
    """A source to query. Every query is a recorded run unless `record=False`."""

    def __init__(self, source: str, others: dict[str, str], app: App | None = None) -> None:
        self._own = app is None
        self._app = app or App()
        self._others = others
        self._source = source
        # The engine loads its libraries while this process loads its own; a wrong source fails here, not later.
        self._app.pool.warm()
        try:
            self.name = self._app.source(source).name
            self._app.source(source).mount()
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

    def tables(self) -> list[str]:
        """The names of the tables."""
        return [t.name for t in self.catalog().tables]

    def table(self, name: str) -> Any:
        """A table as an ibis expression; `execute` runs what is built on it."""
        ibis = _ibis()
        catalog = self.catalog()
        table = catalog.table(name)
        if table is None:
            names = [t.name for t in catalog.tables]
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(names[:8])}."
            raise NotFound(f"There is no table `{name}`.", hint=hint)
        mapper = _type_mapper(catalog.dialect)
        schema = {c.name: mapper.from_string(c.type, nullable=c.nullable) for c in table.columns}
        database, _, bare = table.name.rpartition(".")
        return ibis.table(schema, name=bare, database=database or None)

    def execute(self, expression: Any, *, record: bool | None = None) -> Result:
        """Compile an ibis expression to the source's dialect and run it through the same guard."""
        ibis = _ibis()
        sql = str(ibis.to_sql(expression, dialect=self.catalog().dialect))
        return self.sql(sql, record=record)

    def close(self) -> None:
        """End the engines that this connection started."""
        if self._own:
            self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _type_mapper(dialect: str) -> Any:
    from ibis.backends.sql import datatypes

    known = {
        "duckdb": datatypes.DuckDBType,
        "postgres": datatypes.PostgresType,
        "mysql": datatypes.MySQLType,
        "sqlite": datatypes.SQLiteType,
    }
    if dialect not in known:
        raise Unavailable(f"ibis has no types for the dialect `{dialect}`.", hint="Use `sql` instead.")
    return known[dialect]


def _ibis() -> Any:
    try:
        import ibis
    except ImportError:
        raise Unavailable("ibis is not installed.", hint="pip install 'etude[ibis]'") from None
    return ibis
