"""The interface of database drivers. Drivers live in engine processes: no query runs in the host."""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from etude.errors import Cancelled, LimitExceeded, SourceError

Json = dict[str, Any]
VERDICTS = 512

MOST_COLUMNS = 20_000
"""Columns of all tables of a source that is a file or a folder: anyone who may upload one can make it wide."""


def check_column_count(count: int, name: str) -> None:
    """Raise `LimitExceeded` if the tables of a file have too many columns in all, before they are described."""
    if count > MOST_COLUMNS:
        raise LimitExceeded(
            f"The tables of `{name}` have more than {MOST_COLUMNS:,} columns in all.",
            hint="Remove tables that are not needed, or split it into several sources.",
            limit="columns",
            value=MOST_COLUMNS,
        )


def tables_fingerprint(tables: list[Json]) -> str:
    """Return the fingerprint of a schema: it changes with names and types, not with statistics or comments."""
    shape = [(t["name"], [(c["name"], c["type"], c.get("nullable", True)) for c in t["columns"]]) for t in tables]
    return hashlib.sha256(json.dumps(sorted(shape)).encode()).hexdigest()[:16]


def empty_batch(schema: Any) -> Any:
    """Return a record batch without rows."""
    import pyarrow as pa

    # Not `pa.array([])`: its first call takes a second to import pandas, if it is installed.
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


MORE_TIME = "allow more time: `--timeout 600`, `timeout_s=600` in Python, or the setting `limits.timeout_s`."


def query_timeout_error(timeout_s: float) -> LimitExceeded:
    """Return the error of a query that its time limit stopped."""
    return LimitExceeded(
        f"The query exceeded its time limit of {timeout_s:g} s.",
        hint=f"Filter or aggregate earlier, or {MORE_TIME}",
        limit="timeout_s",
        value=timeout_s,
    )


class LoadWait:
    """How long a query waits for files that must be read first: for its own time limit, unless it is cancelled."""

    def __init__(self, timeout_s: float, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        self.timeout_s = timeout_s
        self._until = time.monotonic() + timeout_s
        self._is_cancelled = is_cancelled

    @property
    def left_s(self) -> float:
        """The seconds that are left of the limit; 0 if there are none."""
        return max(self._until - time.monotonic(), 0.0)

    def check(self, path: str) -> None:
        """Raise `Cancelled` or `LimitExceeded` if the query that waits for this file has ended."""
        if self._is_cancelled():
            raise Cancelled("The query was cancelled.")
        if not self.left_s:
            raise LimitExceeded(
                f"Reading `{os.path.basename(path)}` for this query exceeded its time limit of {self.timeout_s:g} s.",
                hint=f"Read it once without a limit, `etude sources show {path}`, or {MORE_TIME}",
                limit="timeout_s",
                value=self.timeout_s,
            )


class LoadProgress(float):
    """How much of the files of a source is read, from 0 to 1; given to the callback of a query that waits for it."""

    file: str
    """The name of the file that is read now."""

    def __new__(cls, done: float, file: str) -> LoadProgress:
        """Create one from the share and the file's name."""
        made = super().__new__(cls, done)
        made.file = file
        return made


@dataclass(frozen=True)
class Mount:
    """One source as an engine opens it: the name queries may qualify tables with, and how to reach it."""

    name: str
    kind: str
    url: str
    tables: tuple[str, ...] | None = None
    """Only these tables are granted; None grants all."""
    options: dict[str, str] = field(default_factory=dict)
    files: tuple[Json, ...] = ()
    """For `files`: `{"table", "paths", "fingerprint", "notes", "totals", "in_place"}` for each table, all Parquet."""
    unqualified: bool = False
    """Whether queries on another source may name its tables without its own name."""

    @property
    def strict(self) -> bool:
        """Whether the source opens only if its role may do nothing but read what is granted."""
        given = self.options.get("strict", "false")
        if given.lower() not in ("true", "false"):
            raise SourceError(f"The option `strict` of source `{self.name}` is `{given}`.", hint="Use true or false.")
        return given.lower() == "true"


@dataclass(frozen=True)
class CheckedQuery:
    """A statement that passed the guard: the exact text to run, and the tables it reads."""

    sql: str
    tables: tuple[str, ...]
    select: bool = False
    """Whether it is one plain SELECT, so that the engine can reuse what it prepared for it."""
    enums: tuple[tuple[str, str], ...] = ()
    """For DuckDB: enumerations that the statement names, each with the checked query for its values."""
    written: str = ""
    """The original text, if `sql` names something that exists only while it runs."""
    params: tuple[Any, ...] = ()
    """The values of the statement's parameters, in their order; the engine binds them."""


class Verdicts(OrderedDict[tuple[str, int], CheckedQuery]):
    """Statements that passed the guard, by text and number of parameters. They hold only for what was checked then."""

    def keep(self, key: tuple[str, int], checked: CheckedQuery) -> None:
        """Add one, and drop the oldest if there are too many."""
        self[key] = checked
        if len(self) > VERDICTS:
            self.popitem(last=False)


class Driver(ABC):
    """One database engine. A driver runs one query at a time; only `cancel` is called from another thread."""

    dialect: ClassVar[str]
    """The name of the dialect in sqlglot."""
    fixed: ClassVar[bool] = False
    """Whether nothing that a verdict depends on can change while the source is open, so that verdicts may be kept."""

    column_types: Sequence[str] = ()
    """The engine's own names of the result's column types, known after `run` has started."""
    notes: Sequence[str] = ()
    """Remarks on the result for its reader, known after `run` has started."""

    @abstractmethod
    def __init__(self, mount: Mount) -> None:
        """Open the source read-only; if it fails, raise `SourceError` that says why and what to do."""

    @abstractmethod
    def catalog(self) -> Json:
        """Return the granted tables as `{"tables": [...]}`, in the shape of `entities.Table`."""

    def schema_fingerprint(self) -> str:
        """Return the fingerprint of the schema. A driver that finds it faster than the whole catalog overrides this."""
        return tables_fingerprint(self.catalog()["tables"])

    @abstractmethod
    def check(self, sql: str, params: int = 0) -> CheckedQuery:
        """Return the statement as it will run; raise `Refused`, `UnknownTable` or `InvalidQuery`, with the position.

        It may have `params` parameters, which `query_parameters.place_query_params` wrote in the engine's own way.
        """

    def named_columns(self, sql: str) -> frozenset[str] | None:
        """Return all names in a query; None if it may use columns that it does not name. See `named_columns.py`."""
        return None

    @abstractmethod
    def estimate(self, checked: CheckedQuery) -> Json:
        """Return the engine's estimate, in the shape of `entities.Estimate`, without running the query."""

    @abstractmethod
    def run(self, checked: CheckedQuery, timeout_s: float) -> Iterator[Any]:
        """Yield the result as Arrow record batches: at least one, maybe empty, so that the schema is known."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop the running query in the engine itself; called from another thread, at any time."""

    @abstractmethod
    def fingerprints(self, tables: tuple[str, ...]) -> dict[str, str]:
        """Return a cheap fingerprint of each table's data, for tables that have one."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the engine's and the driver's versions."""

    def excess_rights(self) -> list[str]:
        """Return the rights of the role beyond reading the granted tables, a sentence each. A file has no roles."""
        return []

    def progress(self) -> float | None:
        """Return how much of the running query is done, from 0 to 1; None if the engine does not know."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""
