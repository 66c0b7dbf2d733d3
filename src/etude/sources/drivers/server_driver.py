"""The base of drivers for database servers: caches the schema, and hides the password in messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from etude.errors import UnknownTable
from etude.sources.base import CheckedQuery, Driver
from etude.sources.guard_sql import Granted, check_sql


def shorten_list(names: Sequence[str], most: int = 5) -> str:
    """Return the first names in backticks, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


class ServerSchema(Protocol):
    """The part of a schema that the guard needs."""

    @property
    def granted(self) -> Granted:
        """The tables that statements may read."""


S = TypeVar("S", bound=ServerSchema)


class ServerDriver(Driver, Generic[S]):
    """One connection to a server. The permissions of its user apply, and etude allows no writes."""

    _where: dict[str, Any]
    _schema: S | None = None

    @abstractmethod
    def _load(self) -> S:
        """Return the current schema."""

    _read_state: str | None = None

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
            return check_sql(sql, self.dialect, self._current().granted, params)
        except UnknownTable:
            # The table may have been created after the schema was read.
            self._schema = self._load()
            return check_sql(sql, self.dialect, self._schema.granted, params)

    def _hide_password(self, text: str) -> str:
        password = self._where.get("password")
        return text.replace(password, "***") if password else text
