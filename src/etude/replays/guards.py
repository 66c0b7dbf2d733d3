"""Guards: what a script relied on in the data, as one number per guard with its bounds.

Each guard is an aggregate over one table, so that all guards of a table take one query. They are derived from the data
as the script saw it: keys without duplicates, known values, no nulls, the same scale, nothing lost. Where a table has a
numeric key, the earlier rows are distinguished from added ones, and must be unchanged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from etude.entities import Entity
from etude.sources.quoting import quote_identifier, quote_literal, quote_table

if TYPE_CHECKING:
    from etude.entities import Catalog, Column, Table
    from etude.replays.query_facts import QueryFacts

Rows = Callable[[str], Sequence[Sequence[Any]]]
"""Runs a query and returns its rows."""
Family = Literal["number", "time", "text", "other"]
VALUES = 50
"""A text column with at most this many different values is an enumeration."""
FREQUENT = 10
FEW = 30
"""With fewer rows, an average says little."""
SLACK = 0.005
"""How far the average of rows that were there before may move: a few corrected values should not stop a replay."""
WEIGHTS = 13
_KEY = re.compile(r"(?i:(^|_)(id|key|no|nr|number|code|uuid|guid))$|[a-z](Id|ID|Key)$")
_NUMBER = re.compile(
    r"^U?(TINY|SMALL|MEDIUM|BIG|HUGE)?INT|^INTEGER|^DECIMAL|^NUMERIC|^DOUBLE|^REAL|^FLOAT|^YEAR", re.IGNORECASE
)
_TIME = re.compile(r"^(DATE|TIMESTAMP|DATETIME)", re.IGNORECASE)
_TEXT = re.compile(
    r"^(N?VARCHAR|N?TEXT|N?CHAR|STRING|BPCHAR|ENUM|CHARACTER|LONGTEXT|MEDIUMTEXT|TINYTEXT|CLOB|BOOL|$)", re.IGNORECASE
)
"""A column of SQLite may have no type at all; its values are compared as text."""


class DataGuard(Entity):
    """An assumption about one table: `measure` must be between `low` and `high`."""

    table: str
    column: str = ""
    kind: str
    measure: str
    """An aggregate expression in the dialect of the source."""
    low: float | None = None
    high: float | None = None
    holds: str
    """The assumption, as a sentence."""
    fails: str
    """What to say if it does not hold; `{value}` is the measured number."""
    mutant: str = ""
    """The damage to the data that it was found for; empty if it follows from a general rule. See `mutants.py`."""

    def check(self, value: Any) -> str | None:
        """Return None if the assumption holds, otherwise a sentence that says what is different."""
        number = float(value) if value is not None else math.nan
        within = (self.low is None or number >= self.low) and (self.high is None or number <= self.high)
        if within and not math.isnan(number):
            return None
        shown = "nothing" if math.isnan(number) else f"{number:,.10g}"
        return self.fails.replace("{value}", shown)


class GuardedTableShape(Entity):
    """The columns of a table that a script uses, with their types."""

    table: str
    columns: dict[str, str]

    def check(self, catalog: Catalog) -> str | None:
        """Return None if the table still has these columns, otherwise a sentence that says what is different."""
        table = catalog.table(self.table)
        if table is None:
            return f"The table `{self.table}` is gone."
        now = {c.name: c.type for c in table.columns}
        for name, kind in self.columns.items():
            if name not in now:
                return f"The column `{self.table}.{name}` is gone."
            if now[name] != kind:
                return f"The type of `{self.table}.{name}` was {kind}; now it is {now[name]}."
        return None


def guard_family(kind: str) -> Family:
    """Return the family of a column type."""
    if "[" in kind or ("(" in kind and kind.upper().startswith(("STRUCT", "MAP"))):
        return "other"
    if _NUMBER.match(kind):
        return "number"
    if _TIME.match(kind):
        return "time"
    return "text" if _TEXT.match(kind) else "other"


def guard_seconds(name: str, dialect: str) -> str | None:
    """Return a time as seconds; only differences between them mean something."""
    return {
        "duckdb": f"epoch({name})",
        "postgres": f"EXTRACT(EPOCH FROM {name})",
        "sqlite": f"86400.0 * julianday({name})",
        "mysql": f"TO_SECONDS({name})",
    }.get(dialect)


def guarded_shapes(catalog: Catalog, facts: Sequence[QueryFacts]) -> tuple[GuardedTableShape, ...]:
    """Return the shapes of the tables that queries use."""
    used: dict[str, set[str]] = {}
    for each in facts:
        for name, columns in each.columns.items():
            used.setdefault(name, set()).update(columns)
    shapes = []
    for name, names in sorted(used.items()):
        table = catalog.table(name)
        if table is not None:
            kinds = {c.name: c.type for c in table.columns if c.name in names}
            shapes.append(GuardedTableShape(table=table.name, columns=kinds))
    return tuple(shapes)


def derive_guards(
    catalog: Catalog, shapes: Sequence[GuardedTableShape], joined: frozenset[str], run: Rows
) -> tuple[DataGuard, ...]:
    """Measure the tables that a script uses and return the guards that hold now."""
    guards: list[DataGuard] = []
    for shape in shapes:
        table = catalog.table(shape.table)
        if table is not None:
            found = list(_Measuring(table, set(shape.columns), joined, catalog.dialect, run).guards())
            values = run(guard_statement(shape.table, found, catalog.dialect))[0]
            guards += [guard for guard, value in zip(found, values, strict=True) if guard.check(value) is None]
    return tuple(guards)


def guard_statement(table: str, guards: Sequence[DataGuard], dialect: str, relation: str = "") -> str:
    """Return the query that measures all guards of one table, or of a query that stands for it."""
    place = quote_table(table, dialect)
    instead = f"({relation}) AS {quote_identifier(table.rpartition('.')[2], dialect)}" if relation else place
    measures = [guard.measure.replace(f"FROM {place})", f"FROM {instead})") for guard in guards]
    listed = ", ".join(f"{measure} AS g{n}" for n, measure in enumerate(measures))
    return f"SELECT {listed} FROM {instead}"


def check_guards(
    guards: Sequence[DataGuard], dialect: str, run: Rows, relations: Mapping[str, str] | None = None
) -> str | None:
    """Return None if all guards hold, otherwise a sentence about the first that does not.

    `relations` are queries that stand for tables.
    """
    by_table: dict[str, list[DataGuard]] = {}
    for guard in guards:
        by_table.setdefault(guard.table, []).append(guard)
    for table, own in by_table.items():
        values = run(guard_statement(table, own, dialect, (relations or {}).get(table, "")))[0]
        for guard, value in zip(own, values, strict=True):
            if (failure := guard.check(value)) is not None:
                return failure
    return None


class _Measuring:
    """Measures one table."""

    def __init__(self, table: Table, used: set[str], joined: frozenset[str], dialect: str, run: Rows) -> None:
        self._table = table
        self._name = table.name
        self._joined = joined
        self._dialect = dialect
        self._run = run
        self._from = quote_table(table.name, dialect)
        self._columns = [c for c in table.columns if c.name in used]
        declared = {*table.primary_key} if len(table.primary_key) == 1 else set()
        self._candidates = [
            c
            for c in table.columns
            if guard_family(c.type) in ("number", "text")
            and (c.name in declared or _KEY.search(c.name) or (c.name in used and c.name.lower() in joined))
        ]
        self._rows, self._facts = self._measure()
        self._keys = [c for c in self._candidates if self._rows and self._facts[c.name]["d"] == self._rows]
        self._order = next((c for c in self._keys if re.search("INT", c.type, re.IGNORECASE)), None)
        """The key that tells rows that were there from rows that were added."""

    def _quoted(self, column: Column) -> str:
        return quote_identifier(column.name, self._dialect)

    def _measure(self) -> tuple[int, dict[str, dict[str, Any]]]:
        listed: list[tuple[str, str, str]] = []
        for column in {c.name: c for c in (*self._columns, *self._candidates)}.values():
            name, family = self._quoted(column), guard_family(column.type)
            listed.append((column.name, "c", f"count({name})"))
            if family != "other":
                listed += [(column.name, "d", f"count(DISTINCT {name})")]
                listed += [(column.name, "min", f"min({name})"), (column.name, "max", f"max({name})")]
            if family == "number":
                listed.append((column.name, "avg", f"avg({name})"))
                listed.append((column.name, "square", f"avg(1.0 * {name} * {name})"))
        expressions = ", ".join(["count(*)", *(e for _, _, e in listed)])
        row = self._run(f"SELECT {expressions} FROM {self._from}")[0]
        facts: dict[str, dict[str, Any]] = {}
        for (name, what, _), value in zip(listed, row[1:], strict=True):
            facts.setdefault(name, {})[what] = value
        return int(row[0]), facts

    def guards(self) -> Iterator[DataGuard]:
        """Yield the guards of this table."""
        yield from self._size()
        for column in self._keys:
            name = self._quoted(column)
            yield self._guard(
                column,
                "unique",
                f"count({name}) - count(DISTINCT {name})",
                f"`{self._name}.{column.name}` has no duplicates.",
                f"`{self._name}.{column.name}` had no duplicates; now {{value}} rows repeat one.",
                high=0,
            )
            if column is self._order:
                first = int(self._facts[column.name]["min"])
                yield self._guard(
                    column,
                    "keys",
                    f"min({name})",
                    f"The first `{self._name}.{column.name}` is {first:,}.",
                    f"The first `{self._name}.{column.name}` was {first:,}; now it is {{value}}. Did keys change?",
                    low=first,
                    high=first,
                )
        if not self._rows:
            return
        for column in self._columns:
            yield from self._nulls(column)
            match guard_family(column.type):
                case "number":
                    yield from self._numbers(column)
                case "time":
                    yield from self._times(column)
                case "text":
                    yield from self._texts(column)

    def _guard(
        self,
        column: Column | None,
        kind: str,
        measure: str,
        holds: str,
        fails: str,
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> DataGuard:
        name = column.name if column else ""
        return DataGuard(
            table=self._name, column=name, kind=kind, measure=measure, low=low, high=high, holds=holds, fails=fails
        )

    def _size(self) -> Iterator[DataGuard]:
        n = self._rows
        most = max(5 * n, 100) if self._keys else max(round(1.8 * n), 100)
        yield self._guard(
            None,
            "rows",
            "count(*)",
            f"`{self._name}` has between {n:,} and {most:,} rows.",
            f"`{self._name}` had {n:,} rows; now it has {{value}}.",
            low=n,
            high=most,
        )
        scalars = [self._quoted(c) for c in self._table.columns if guard_family(c.type) != "other"]
        if self._keys or not FEW <= n <= 1_000_000 or not scalars:
            return
        distinct = f"(SELECT count(*) FROM (SELECT DISTINCT {', '.join(scalars)} FROM {self._from}) AS d)"
        known = n - int(self._run(f"SELECT {distinct} FROM {self._from} LIMIT 1")[0][0])
        if known <= 0.1 * n:
            most = round(1.5 * known) if known else n // 1000
            yield self._guard(
                None,
                "repeated rows",
                f"count(*) - {distinct}",
                f"At most {most:,} rows of `{self._name}` repeat another one.",
                f"{known:,} rows of `{self._name}` repeated another one; now {{value}} do. Was a part loaded twice?",
                high=most,
            )

    def _nulls(self, column: Column) -> Iterator[DataGuard]:
        share = 1 - self._facts[column.name]["c"] / self._rows
        most = round(share * 1.5 + 0.01, 4) if share else 0.0
        yield self._guard(
            column,
            "nulls",
            f"1.0 * (count(*) - count({self._quoted(column)})) / count(*)",
            f"At most {most:.2%} of `{self._name}.{column.name}` is null.",
            f"{share:.2%} of `{self._name}.{column.name}` was null; now a share of {{value}} is.",
            high=most,
        )

    def _numbers(self, column: Column) -> Iterator[DataGuard]:
        facts, name = self._facts[column.name], self._quoted(column)
        if facts["avg"] is None or column in self._keys:
            return
        try:
            least, most, mean = (float(facts[f]) for f in ("min", "max", "avg"))
        except ValueError:
            return  # SQLite stores text in a column of numbers, too
        if not all(map(math.isfinite, (least, most, mean))):
            return
        shown = f"`{self._name}.{column.name}`"
        span = most - least
        low = 0.0 if least >= 0 else least - 2 * max(span, 1.0)
        if not _KEY.search(column.name):
            high = most + 2 * max(span, abs(most) / 2)
            fails = f"{shown} was between {least:,.10g} and {most:,.10g}; now it reaches {{value}}."
            holds = f"{shown} is at least {low:,.10g}."
            yield self._guard(column, "range", f"min({name})", holds, fails, low=low)
            yield self._guard(column, "range", f"max({name})", f"{shown} is at most {high:,.10g}.", fails, high=high)
        history = self._history(column, f"1.0 * {name}", SLACK, 0.002 * span)
        if history is not None:
            yield history
            return
        if self._rows >= FEW and not _KEY.search(column.name):
            deviation = math.sqrt(max(float(facts["square"]) - mean * mean, 0.0))
            slack = max(0.05 * abs(mean), 4 * deviation / math.sqrt(self._rows))
            yield self._guard(
                column,
                "scale",
                f"avg(1.0 * {name})",
                f"The average of {shown} is about {mean:,.6g}.",
                f"The average of {shown} was {mean:,.6g}; now it is {{value}}. Did its unit change?",
                low=mean - slack,
                high=mean + slack,
            )

    def _history(self, column: Column, value: str, slack: float, least: float) -> DataGuard | None:
        """Return a guard over the rows that were there, each with a weight by its key: columns that were swapped,
        or values that moved to other rows, change the average even if their distribution is the same."""
        if self._order is None or column is self._order:
            return None
        key, last = self._quoted(self._order), int(self._facts[self._order.name]["max"])
        measure = f"avg(CASE WHEN {key} <= {last} THEN {value} * (1 + abs({key}) % {WEIGHTS}) END)"
        known = self._run(f"SELECT {measure} FROM {self._from}")[0][0]
        if known is None:
            return None
        mean = float(known)
        allowed = max(slack * abs(mean), least)
        shown = f"`{self._name}.{column.name}`"
        return self._guard(
            column,
            "history",
            measure,
            f"{shown} is the same as before in the rows up to `{self._order.name}` {last:,}.",
            f"{shown} changed in the rows up to `{self._order.name}` {last:,}: its weighted average was {mean:,.8g}; "
            "now it is {value}.",
            low=mean - allowed,
            high=mean + allowed,
        )

    def _times(self, column: Column) -> Iterator[DataGuard]:
        facts, name = self._facts[column.name], self._quoted(column)
        # SQLite stores times as text, which has the same order.
        if not isinstance(facts["min"], date | datetime | str):
            return
        ends = (facts[f] if isinstance(facts[f], str) else facts[f].isoformat() for f in ("min", "max"))
        first, last = (quote_literal(end, self._dialect) for end in ends)
        shown = f"`{self._name}.{column.name}`"
        count = self._run(f"SELECT count(CASE WHEN {name} <= {first} THEN 1 END) FROM {self._from}")[0][0]
        moved = f"The first {shown} was {facts['min']}"
        yield self._guard(
            column,
            "time",
            f"count(CASE WHEN {name} < {first} THEN 1 END)",
            f"No {shown} is before {facts['min']}.",
            f"{moved}; now {{value}} rows are before it. Did its time zone change?",
            high=0,
        )
        yield self._guard(
            column,
            "time",
            f"count(CASE WHEN {name} <= {first} THEN 1 END)",
            f"{int(count):,} rows have {shown} {facts['min']}.",
            f"{moved}, in {int(count):,} rows; now it is in {{value}}. Did its time zone change?",
            low=int(count),
        )
        yield self._guard(
            column,
            "freshness",
            f"count(CASE WHEN {name} >= {last} THEN 1 END)",
            f"The data reach {facts['max']} in {shown}.",
            f"{shown} reached {facts['max']}; now it does not.",
            low=1,
        )
        seconds = guard_seconds(name, self._dialect)
        history = self._history(column, seconds, 0.0, 60.0) if seconds else None
        if history is not None:
            yield history

    def _texts(self, column: Column) -> Iterator[DataGuard]:
        facts, name = self._facts[column.name], self._quoted(column)
        shown, known = f"`{self._name}.{column.name}`", int(facts["d"])
        if not known or column in self._keys:
            return
        grouped = f"SELECT {name}, count(*) AS n FROM {self._from} WHERE {name} IS NOT NULL GROUP BY {name}"
        if known <= VALUES and known * 2 <= facts["c"]:
            values = [row[0] for row in self._run(f"{grouped} ORDER BY n DESC LIMIT {VALUES}")]
            listed = ", ".join(_literal(v, self._dialect) for v in values)
            some = ", ".join(f"`{v}`" for v in values[:8]) + (" …" if len(values) > 8 else "")
            yield self._guard(
                column,
                "values",
                f"count(CASE WHEN {name} NOT IN ({listed}) THEN 1 END)",
                f"{shown} is one of {some}.",
                f"{shown} was one of {some}; now {{value}} rows have another value.",
                high=0,
            )
        values = [row[0] for row in self._run(f"{grouped} ORDER BY n DESC LIMIT {FREQUENT}")]
        listed = ", ".join(_literal(v, self._dialect) for v in values)
        yield self._guard(
            column,
            "frequent values",
            f"count(DISTINCT CASE WHEN {name} IN ({listed}) THEN {name} END)",
            f"The most frequent values of {shown} still occur.",
            f"{len(values)} values were the most frequent of {shown}; now {{value}} of them occur.",
            low=math.ceil(0.8 * len(values)),
        )
        if not re.match("BOOL", column.type, re.IGNORECASE):
            history = self._history(column, f"1.0 * length({name})", SLACK, 0.01)
            if history is not None:
                yield history


def _literal(value: Any, dialect: str) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return quote_literal(str(value), dialect)


def count_guards_by_kind(guards: Sequence[DataGuard]) -> Mapping[str, int]:
    """Return how many guards there are of each kind."""
    counts: dict[str, int] = {}
    for guard in guards:
        counts[guard.kind] = counts.get(guard.kind, 0) + 1
    return counts
