"""The interface of `db`: the same on the host, in a standalone script and inside a session."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from etude.errors import Invalid, NotFound, Unavailable
from etude.similar_names import similar_names

if TYPE_CHECKING:
    from etude.entities import Catalog, Limits
    from etude.result import Result
    from etude.sources.query_parameters import Params

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Database(ABC):
    """A source to query."""

    @abstractmethod
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

    @abstractmethod
    def catalog(self) -> Catalog:
        """Return the tables, columns, types, keys, comments and row counts."""

    def register(self, name: str, data: Any) -> None:
        """Let queries read a DataFrame, an Arrow table, a result or rows as a table of this name."""
        raise Unavailable("Tables cannot be registered here.", hint="Use etude.connect(source).")

    def annotations(self) -> dict[str, Any]:
        """Return the annotations of the tables: descriptions, owners and tags."""
        return {}

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [t.name for t in self.catalog().tables]

    def table(self, name: str) -> Any:
        """Return a table as an ibis expression; `.execute()` on what is built from it runs it here."""
        ibis = _ibis()
        catalog = self.catalog()
        table = catalog.table(name)
        if table is None:
            names = [t.name for t in catalog.tables]
            near = similar_names(name, names, n=1)
            hint = f"Did you mean `{near[0]}`?" if near else f"Tables: {', '.join(names[:8])}."
            raise NotFound(f"There is no table `{name}`.", hint=hint)
        mapper = _type_mapper(catalog.dialect)
        schema = {c.name: mapper.from_string(c.type, nullable=c.nullable) for c in table.columns}
        database, _, bare = table.name.rpartition(".")
        operations = ibis.expr.operations
        namespace = operations.Namespace(database=database or None)
        source = _IbisBackend(self)
        return operations.DatabaseTable(bare, ibis.schema(schema), source=source, namespace=namespace).to_expr()

    def execute(self, expression: Any, params: Params | None = None, *, record: bool | None = None) -> Result:
        """Run an ibis expression, compiled to the source's dialect, or the text of a query, as `sql` does."""
        if isinstance(expression, str):
            return self.sql(expression, params, record=record)
        return self.sql(self._compile(expression), params, record=record)

    def _compile(self, expression: Any) -> str:
        return str(_ibis().to_sql(expression.unbind(), dialect=self.catalog().dialect))


class _IbisBackend:
    """What ibis calls for expressions on tables of a `Database`."""

    name = "etude"

    def __init__(self, db: Database) -> None:
        self._db = db

    def __eq__(self, other: object) -> bool:
        # Tables of one database can be joined: ibis compares the backends of an expression.
        return isinstance(other, _IbisBackend) and other._db is self._db

    def __hash__(self) -> int:
        return id(self._db)

    def compile(self, expression: Any, **_: Any) -> str:
        """Return the SQL of an expression."""
        return self._db._compile(expression)

    def execute(self, expression: Any, *, limit: Any = None, params: Any = None, **_: Any) -> Any:
        """Return a DataFrame for a table, a Series for a column, and a value for a scalar."""
        return self._run(expression, limit, params, lambda result: result.df(), lambda frame: frame.iloc[:, 0])

    to_pandas = execute

    def to_pyarrow(self, expression: Any, *, limit: Any = None, params: Any = None, **_: Any) -> Any:
        """Return an Arrow table for a table, an array for a column, and a value for a scalar."""
        return self._run(expression, limit, params, lambda result: result.arrow(), lambda table: table.column(0))

    def _run(self, expression: Any, limit: Any, params: Any, whole: Any, first: Any) -> Any:
        types = _ibis().expr.types
        if params:
            raise Invalid("ibis parameters are not supported here.", hint="Write the values into the expression.")
        if isinstance(expression, types.Table) and isinstance(limit, int):
            expression = expression.limit(limit)
        result = self._db.execute(expression)
        if isinstance(expression, types.Table):
            return whole(result)
        return result.rows()[0][0] if isinstance(expression, types.Scalar) else first(whole(result))


def check_saved_file_name(name: object) -> str:
    """Return the name of a file to save or load; raise `Invalid` if it contains a folder or odd characters."""
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        raise Invalid(
            f"`{str(name)[:80]}` is not a valid file name here.",
            hint="Use letters, digits, `.`, `_` and `-`, a letter or digit first, and no folder.",
        )
    return name


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
