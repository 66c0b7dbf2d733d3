"""Read through `db.sql`, and hold the state of a table while it is profiled."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from etude.catalog.measure.distribution import Stats
from etude.catalog.measure.statements import Expression
from etude.catalog.model import ColumnProvenance
from etude.db import Database
from etude.entities import Table
from etude.errors import EtudeError, LimitExceeded
from etude.result import Result


class Reader:
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


@dataclass
class TableDraft:
    """A table while it is profiled: all its rows or a sample of them, and the statistics of each column."""

    table: Table
    sql: str
    """The quoted name of the table."""
    rows: int
    plan: Literal["exact", "sampled"] = "exact"
    expressions: list[Expression] = field(default_factory=list)
    frame: list[Any] = field(default_factory=list)
    """An Arrow array for each column."""
    kinds: list[str] = field(default_factory=list)
    sample_rows: int = 0
    complete: bool = False
    """Whether the frame holds all rows."""
    drawn: bool = True
    """Whether the frame's rows were sampled from the whole table rather than from its start."""
    stats: list[Stats] = field(default_factory=list)
    provenance: list[ColumnProvenance] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    column_notes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    unmeasured: set[int] = field(default_factory=set)
    """Columns whose statements failed; the notes say why."""

    def skip_column(self, column: int, error: EtudeError) -> None:
        """Leave a column without statistics, with a note that says why."""
        self.unmeasured.add(column)
        self.column_notes[column] = (f"not measured: {error.message}",)

    def take(self, result: Result) -> None:
        """Store the rows of a result."""
        self.frame = self.columns_of(result)
        self.kinds = [c.type for c in result.columns]
        self.sample_rows = result.row_count

    def free_rows(self) -> None:
        """Free the rows and the texts."""
        self.frame = []
        for stats in self.stats:
            stats.texts = []

    @staticmethod
    def columns_of(result: Result) -> list[Any]:
        """Return the columns of a result, each as one Arrow array."""
        import pyarrow as pa

        batches = list(result.batches())
        if len(batches) == 1:
            return list(batches[0].columns)
        return [pa.concat_arrays([b.column(i) for b in batches]) for i in range(len(result.columns))]
