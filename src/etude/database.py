"""What `db` offers wherever it lives: on the host, in a script that runs alone, or inside a session."""

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
        """Run a query. Limits can be given singly: `db.sql(q, timeout_s=5, rows=100)`."""

    @abstractmethod
    def catalog(self) -> Catalog:
        """Tables, columns, types, keys, comments and row counts."""

    def annotations(self) -> dict[str, Any]:
        """What people say of the tables: descriptions, owners and tags."""
        return {}

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


def check_file_name(name: object) -> str:
    """The name of a file that a script hands out or takes in, or `Invalid`: it names no folder."""
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        raise Invalid(
            f"`{str(name)[:80]}` cannot name a file here.",
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
