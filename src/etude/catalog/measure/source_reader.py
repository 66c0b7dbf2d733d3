"""Read a source through `db.sql` without records, and read ahead while a result is processed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from etude.db import Database
from etude.errors import LimitExceeded
from etude.result import Result


class SourceReader:
    """Runs statements on a source without recording them, since the profile holds their results."""

    def __init__(self, db: Database, dialect: str, timeout_s: float) -> None:
        self.dialect = dialect
        self._db = db
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="etude-read-ahead")
        self._ahead: dict[str, Future[Result]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def read(self, query: str, **limit: Any) -> Result:
        """Run a statement and return its result."""
        ahead = self._ahead.pop(query, None)
        return self._read(query, limit) if ahead is None else ahead.result()

    def read_small(self, query: str, *, limit: int, bytes: int) -> Result | None:
        """Run a statement and return its result; None if it has more than `limit` rows or too many bytes."""
        try:
            result = self.read(query, limit=limit, bytes=bytes)
        except LimitExceeded as error:
            if error.details.get("limit") != "bytes":
                raise
            return None
        return None if result.truncated else result

    def read_ahead(self, query: str, **limit: Any) -> None:
        """Start a statement that will be needed next, while the current result is processed."""
        self._ahead[query] = self._thread.submit(self._read, query, limit)

    def _read(self, query: str, limit: dict[str, Any]) -> Result:
        return self._db.sql(query, record=False, timeout_s=self._timeout_s, **limit)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return self.read(query).rows()
