"""The interface of `db`: the same on the host, in a standalone script and inside a session."""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from etude.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from etude.entities import Catalog, Limits
    from etude.result import Result

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Database(ABC):
    """A source to query."""

    @abstractmethod
    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        """Run a query. Limits can be given by name: `db.sql(q, timeout_s=5, rows=100)`."""

    @abstractmethod
    def catalog(self) -> Catalog:
        """Return the tables, columns, types, keys, comments and row counts."""

    def annotations(self) -> dict[str, Any]:
        """Return the annotations of the tables: descriptions, owners and tags."""
        return {}

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [t.name for t in self.catalog().tables]

    def table(self, name: str) -> Any:
        """Return a table as an ibis expression; `execute` runs expressions built on it."""
        ibis = _ibis()
        catalog = self.catalog()
        table = catalog.table(name)
        if table is None:
            names = [t.name for t in catalog.tables]
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean `{near[0]}`?" if near else f"Tables: {', '.join(names[:8])}."
            raise NotFound(f"There is no table `{name}`.", hint=hint)
        mapper = _type_mapper(catalog.dialect)
        schema = {c.name: mapper.from_string(c.type, nullable=c.nullable) for c in table.columns}
        database, _, bare = table.name.rpartition(".")
        return ibis.table(schema, name=bare, database=database or None)

    def execute(self, expression: Any, *, record: bool | None = None) -> Result:
        """Compile an ibis expression to the source's dialect and run it like any other query."""
        ibis = _ibis()
        sql = str(ibis.to_sql(expression, dialect=self.catalog().dialect))
        return self.sql(sql, record=record)


def check_file_name(name: object) -> str:
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
