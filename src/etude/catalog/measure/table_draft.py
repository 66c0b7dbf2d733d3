"""A table while it is measured: its columns and the rows that were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from etude.catalog.measure.distribution import Stats
from etude.catalog.measure.statements import Expression
from etude.catalog.model import ColumnProvenance
from etude.entities import Table
from etude.errors import EtudeError
from etude.result import Result


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
