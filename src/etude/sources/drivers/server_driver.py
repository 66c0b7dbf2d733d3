"""The base of drivers for database servers: caches the schema, and hides the password in messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from etude.errors import UnknownTable
from etude.sources.base import CheckedQuery, Driver, Verdicts
from etude.sources.granted_tables import Granted
from etude.sources.guard_sql import check_sql
from etude.sources.hidden_rows import refuse_hidden_plan
from etude.sources.quoting import quote_identifier


def shorten_list(names: Sequence[str], most: int = 5) -> str:
    """Return the first names in backticks, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


class ServerSchema(Protocol):
    """The part of a schema that the guard needs."""

    @property
    def granted(self) -> Granted:
        """The tables that statements may read."""

    def may_hide_rows(self, tables: Sequence[str]) -> bool:
        """Return whether one of these tables may be a view on rows that are not granted."""


S = TypeVar("S", bound=ServerSchema)


class ServerDriver(Driver, Generic[S]):
    """One connection to a server. The permissions of its user apply, and etude allows no writes."""

    _where: dict[str, Any]
    _schema: S | None = None

    @abstractmethod
    def _load(self) -> S:
        """Return the current schema."""

    _read_state: str | None = None
    _judged: S | None = None
    _verdicts: Verdicts

    @abstractmethod
    def _code_state(self) -> str:
        """Return a text that changes if a user-defined function, or another object that runs code, changes."""

    def _current(self) -> S:
        """Return the schema, read again if user-defined code changed: a new function may have an allowed name."""
        state = self._code_state()
        if state != self._read_state:
            self._schema, self._read_state = None, state
        return self._known()

    def _known(self) -> S:
        if self._schema is None:
            self._schema = self._load()
        return self._schema

    def check(self, sql: str, params: int = 0) -> CheckedQuery:
        """Return the statement without comments; it reads granted tables only."""
        try:
            checked = self._verdict(self._current(), sql, params)
        except UnknownTable:
            # The table may have been created after the schema was read.
            self._schema = None
            checked = self._verdict(self._known(), sql, params)
        if self._is_outdated(self._known(), checked.tables):
            self._schema = None
            checked = self._verdict(self._known(), sql, params)
        if self._known().may_hide_rows(checked.tables):
            refuse_hidden_plan(checked)
        return checked

    def _may_hide_rows(self, checked: CheckedQuery) -> bool:
        """Return whether an error of this query may quote hidden rows; also if the schema cannot be read any more."""
        return self._schema is None or self._schema.may_hide_rows(checked.tables)

    def _whole_tables(self, checked: CheckedQuery) -> Iterator[CheckedQuery]:
        """Yield, for each table of a query, a query for all its rows."""
        known = self._known().granted.tables
        for shown in filter(known.__contains__, checked.tables):
            path = (quote_identifier(part, self.dialect) for part in known[shown])
            yield CheckedQuery(f"SELECT * FROM {'.'.join(path)}", (shown,))

    def _verdict(self, schema: S, sql: str, params: int) -> CheckedQuery:
        """Check a statement. A verdict is kept for as long as the schema that it was reached with."""
        if self._judged is not schema:
            self._judged, self._verdicts = schema, Verdicts()
        if (known := self._verdicts.get((sql, params))) is None:
            known = check_sql(sql, self.dialect, schema.granted, params)
            self._verdicts.keep((sql, params), known)
        return known

    def _is_outdated(self, schema: S, tables: Sequence[str]) -> bool:
        """Return whether these tables changed since the schema was read, in a way that a verdict depends on."""
        return False

    def _hide_password(self, text: str) -> str:
        password = self._where.get("password")
        return text.replace(password, "***") if password else text
