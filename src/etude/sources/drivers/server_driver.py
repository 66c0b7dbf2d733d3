"""What drivers of database servers share: the schema that was read last, and the secret that no message may tell."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from etude.errors import UnknownTable
from etude.sources.base import CheckedQuery, Driver
from etude.sources.guard_sql import Granted, check_sql


def shorten(names: Sequence[str], most: int = 5) -> str:
    """Some names in backticks, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


class KnownSchema(Protocol):
    """A schema, as far as the guard needs it."""

    @property
    def granted(self) -> Granted:
        """What statements may read."""


S = TypeVar("S", bound=KnownSchema)


class ServerDriver(Driver, Generic[S]):
    """One connection to a server. The rights of its user hold; etude adds that nothing can be written."""

    needs_network: ClassVar[bool] = True
    _where: dict[str, Any]
    _schema: S | None = None

    @abstractmethod
    def _load(self) -> S:
        """The schema as it is now."""

    def _known(self) -> S:
        if self._schema is None:
            self._schema = self._load()
        return self._schema

    def check(self, sql: str) -> CheckedQuery:
        """The statement without comments, reading granted tables only."""
        try:
            return check_sql(sql, self.dialect, self._known().granted)
        except UnknownTable:
            # It may have been made since the schema was read.
            self._schema = self._load()
            return check_sql(sql, self.dialect, self._schema.granted)

    def _hide_password(self, text: str) -> str:
        password = self._where.get("password")
        return text.replace(password, "***") if password else text
