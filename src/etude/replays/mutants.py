"""Data mutants of a script: its data, damaged in the ways in which data go wrong, to find the guards that it lacks.

A mutant is a subquery that takes the place of one table, so nothing is written and every engine can do it. The guards
and then the queries of the script run on it. A mutant that changes a result and that no guard stops would be a wrong
answer without a word: a guard is added that tells it from the data, and that more rows of the same kind do not break.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etude.entities import Entity
from etude.errors import Cancelled, EtudeError
from etude.replays.fingerprint import rows_fingerprint
from etude.replays.guards import DataGuard, GuardedTableShape, Rows, guard_family, guard_seconds, guard_statement
from etude.replays.replaced_tables import NotReplaced, replace_tables
from etude.sources.quoting import quote_identifier, quote_literal, quote_table

if TYPE_CHECKING:
    from etude.entities import Catalog, Column, Table

MOST_ROWS = 1_000_000
"""Larger tables are not mutated: it would take too long."""
MOST_COLUMNS = 200
ROW = "etude_row"
"""The number of a row, by which the rows of a mutant are chosen."""
LARGEST_KEY = 1 << 30
"""Adding to larger keys may exceed the type of their column."""
LEAST = 1e-6
"""A guard must be this far from breaking, as a share of what it measures."""
_WHOLE = re.compile("INT", re.IGNORECASE)


@dataclass(frozen=True)
class Mutant:
    """A table as it would be if something went wrong."""

    table: str
    column: str
    """Empty if whole rows are concerned."""
    text: str
    """What went wrong, in words."""
    relation: str
    """A query that returns the table in that state."""


class MutantReport(Entity):
    """What came of the mutants of a script."""

    tried: int = 0
    of: int = 0
    """How many there are. Fewer were tried if time ran out."""
    stopped: int = 0
    """Stopped by a guard."""
    failed: int = 0
    """The query ended with an error."""
    harmless: int = 0
    """Not stopped, and the results are the same."""
    survivors: tuple[str, ...] = ()
    """Mutants that change a result and that no guard could be found for."""
    reason: str = ""
    """Why no mutant could be made; empty if some could."""

    @property
    def sentence(self) -> str:
        """What came of them, in words."""
        if self.reason:
            return f"not tried with damaged data: {self.reason}"
        left = f", {len(self.survivors)} pass unseen" if self.survivors else ""
        return (
            f"tried with {self.tried} of {self.of} kinds of damaged data: {self.stopped} stopped, "
            f"{self.failed} end with an error, {self.harmless} change no result{left}"
        )


def find_guards_by_mutants(
    codes: Sequence[str],
    catalog: Catalog,
    shapes: Sequence[GuardedTableShape],
    guards: Sequence[DataGuard],
    run: Rows,
    more_time: Callable[[], bool] = lambda: True,
    so_far: MutantReport | None = None,
) -> tuple[Sequence[DataGuard], MutantReport]:
    """Try the mutants of every table that a script reads; return the guards that had to be added, and a report.

    `so_far` is the report of an earlier time that ended before all were tried.
    """
    so_far = so_far or MutantReport()
    mining = _Mining(codes, catalog, list(guards), run, so_far)
    mutants: list[tuple[_Damage, Mutant]] = []
    try:
        for shape in shapes:
            table = catalog.table(shape.table)
            if table is None:
                continue
            damage = _Damage(table, shape, guards, catalog.dialect, run)
            mining.clean[table.name] = mining.results(table.name, damage.relation())
            mutants += [(damage, mutant) for mutant in damage.mutants()]
    except (NotReplaced, _TooLarge) as error:
        return (), MutantReport(reason=str(error))
    tried = min(so_far.tried, len(mutants))
    for damage, mutant in mutants[tried:]:
        if not more_time():
            break
        mining.judge(damage, mutant)
        tried += 1
    return mining.added, mining.report.model_copy(update={"tried": tried, "of": len(mutants)})


class _TooLarge(Exception):
    """The table is too large to be mutated."""


@dataclass
class _Mining:
    """The state of mining: which guards there are, and what came of the mutants so far."""

    codes: Sequence[str]
    catalog: Catalog
    guards: list[DataGuard]
    run: Rows
    report: MutantReport
    clean: dict[str, str] = field(default_factory=dict)
    """By table, the fingerprint of the results on the table as it is."""
    added: list[DataGuard] = field(default_factory=list)

    def count(self, outcome: str) -> None:
        self.report = self.report.model_copy(update={outcome: getattr(self.report, outcome) + 1})

    def results(self, table: str, relation: str) -> str:
        """Return the fingerprint of the results of all queries that read a table, with this relation in its place."""
        marks = []
        for code in self.codes:
            try:
                replaced = replace_tables(code, self.catalog.dialect, {table: relation})
            except NotReplaced as error:
                if "does not name" in str(error):
                    continue
                raise
            marks.append(rows_fingerprint([], self.run(replaced), ordered=False))
        return " ".join(marks)

    def judge(self, damage: _Damage, mutant: Mutant) -> None:
        own = [guard for guard in self.guards if guard.table == mutant.table]
        try:
            values = self.measure(own, mutant.relation)
            if any(guard.check(value) is not None for guard, value in zip(own, values, strict=True)):
                return self.count("stopped")
            if self.results(mutant.table, mutant.relation) == self.clean[mutant.table]:
                return self.count("harmless")
        except Cancelled:
            raise
        except EtudeError:
            return self.count("failed")
        guard = self.find_guard(damage, mutant)
        if guard is None:
            self.report = self.report.model_copy(update={"survivors": (*self.report.survivors, mutant.text)})
            return None
        self.guards.append(guard)
        self.added.append(guard)
        return self.count("stopped")

    def measure(self, guards: Sequence[DataGuard], relation: str) -> Sequence[Any]:
        if not guards:
            return ()
        return self.run(guard_statement(guards[0].table, guards, self.catalog.dialect, relation))[0]

    def find_guard(self, damage: _Damage, mutant: Mutant) -> DataGuard | None:
        """Return the first candidate that holds now and with more rows of the same kind, but not on the mutant."""
        candidates = list(damage.candidates(mutant))
        if not candidates:
            return None
        before = self.measure(candidates, damage.relation())
        after = self.measure(candidates, mutant.relation)
        usual = [self.measure(candidates, relation) for relation in damage.harmless()]
        for number, candidate in enumerate(candidates):
            known, damaged = before[number], after[number]
            if known is None or damaged is None:
                continue
            low, high = sorted((float(known), float(damaged)))
            middle = (low + high) / 2
            if high - low <= LEAST * max(abs(low), abs(high)):
                continue
            bound = {"high": middle} if float(known) < middle else {"low": middle}
            said = f"{float(known):,.8g}"
            texts = {
                "holds": candidate.holds.replace("{known}", said),
                "fails": candidate.fails.replace("{known}", said),
            }
            guard = candidate.model_copy(update=bound | texts)
            if all(guard.check(values[number]) is None for values in usual):
                return guard
        return None


class _Damage:
    """The mutants of one table."""

    def __init__(
        self, table: Table, shape: GuardedTableShape, guards: Sequence[DataGuard], dialect: str, run: Rows
    ) -> None:
        self._table = table
        self._used = [c for c in table.columns if c.name in shape.columns]
        self._dialect = dialect
        self._run = run
        self._from = quote_table(table.name, dialect)
        if len(table.columns) > MOST_COLUMNS:
            raise _TooLarge(f"`{table.name}` has more than {MOST_COLUMNS} columns.")
        self._rows = int(run(f"SELECT count(*) FROM {self._from}")[0][0])
        if self._rows > MOST_ROWS:
            raise _TooLarge(f"`{table.name}` has more than {MOST_ROWS:,} rows.")
        own = [guard for guard in guards if guard.table == table.name]
        self._key = next((guard.column for guard in own if guard.kind == "keys"), "")
        self._last = int(run(f"SELECT max({self._quoted(self._key)}) FROM {self._from}")[0][0]) if self._key else 0
        if self._last > LARGEST_KEY:
            self._key = ""
        self._values = {guard.column: self._frequent(guard.column) for guard in own if guard.kind == "values"}
        """The most frequent values of enumerations."""

    def _frequent(self, column: str) -> Sequence[str]:
        name = self._quoted(column)
        found = self._run(f"SELECT {name} FROM {self._from} GROUP BY {name} ORDER BY count(*) DESC, {name} LIMIT 3")
        return [row[0] for row in found if isinstance(row[0], str)][:2]

    def _quoted(self, name: str) -> str:
        return quote_identifier(name, self._dialect)

    def _some(self, share: int) -> str:
        """Return a condition that about this percentage of the rows fulfils, spread over the table; at least one."""
        if self._rows < 2:
            return "1 = 1"
        period = next(p for p in (100, 10, 2) if self._rows >= p)
        return f"({ROW} % {period}) * 37 % {period} < {max(share * period // 100, 1)}"

    def relation(self, changes: dict[str, str] | None = None, where: str = "") -> str:
        """Return the table as a query, with these expressions in place of columns."""
        changes = changes or {}
        columns = [self._quoted(c.name) for c in self._table.columns]
        listed = [
            f"{changes[c.name]} AS {name}" if c.name in changes else name
            for c, name in zip(self._table.columns, columns, strict=True)
        ]
        scalars = [n for c, n in zip(self._table.columns, columns, strict=True) if guard_family(c.type) != "other"]
        order = self._quoted(self._key) if self._key else ", ".join(scalars) or "1"
        numbered = f"row_number() OVER (ORDER BY {order}) AS {ROW}"
        source = f"(SELECT {', '.join(columns)}, {numbered} FROM {self._from}) AS n"
        condition = f" WHERE {where}" if where else ""
        return f"SELECT {', '.join(listed)} FROM {source}{condition}"

    def harmless(self) -> Iterator[str]:
        """Yield the table with more rows of the same kind; without a key, with fewer, which moves averages as much."""
        if not self._key:
            yield self.relation(where=f"NOT ({self._some(10)})")
            return
        later = {self._key: f"{self._quoted(self._key)} + {self._last}"}
        yield f"{self.relation()} UNION ALL {self.relation(later, where=self._some(10))}"

    def mutants(self) -> Iterator[Mutant]:
        """Yield the table in every damaged state."""
        name = self._table.name
        for share in (2, 30, 100):
            again = f"{self.relation()} UNION ALL {self.relation(where=self._some(share))}"
            yield self._mutant("", f"{share}% of the rows of `{name}` are there twice", again)
        for share in (2, 30):
            part = self.relation(where=f"NOT ({self._some(share)})")
            yield self._mutant("", f"{share}% of the rows of `{name}` are missing", part)
            if self._key:
                later = {self._key: f"{self._quoted(self._key)} + {self._last}"}
                hidden = f"{part} UNION ALL {self.relation(later, where=self._some(share + 10))}"
                yield self._mutant("", f"{share}% of the rows of `{name}` are missing, and more are new", hidden)
        for column in self._used:
            if column.name == self._key:
                continue
            for text, expression in self._column(column):
                yield self._mutant(column.name, text, self.relation({column.name: expression}))

    def _mutant(self, column: str, text: str, relation: str) -> Mutant:
        return Mutant(self._table.name, column, text, relation)

    def _column(self, column: Column) -> Iterator[tuple[str, str]]:
        """Yield what can go wrong in a column, as words and as an expression."""
        name, shown = self._quoted(column.name), f"`{self._table.name}.{column.name}`"

        def partly(share: int, expression: str) -> str:
            return f"CASE WHEN {self._some(share)} THEN {expression} ELSE {name} END"

        for share in (3, 50):
            yield f"{share}% of {shown} is null", partly(share, "NULL")
        match guard_family(column.type):
            case "number":
                yield f"{shown} is 100 times as large", f"{name} * 100"
                yield f"5% of {shown} is 100 times as large", partly(5, f"{name} * 100")
                yield f"10% of {shown} has the other sign", partly(10, f"-{name}")
                if not _WHOLE.search(column.type):
                    yield f"{shown} is 8% larger", f"{name} * 1.08"
                    yield f"{shown} is a hundredth", f"{name} * 0.01"
                else:
                    yield f"{shown} is one more", f"{name} + 1"
            case "time":
                for hours in (1, 24, -24):
                    if (moved := self._shifted(name, column.type, hours)) is not None:
                        yield f"{shown} is {hours} hours later", moved
                        yield f"40% of {shown} is {hours} hours later", partly(40, moved)
            case "text" if not column.type.upper().startswith("BOOL"):
                # Only values of an enumeration are expected to be the same: names and notes are new in every row.
                if values := self._values.get(column.name):
                    yield f"3% of {shown} is a new value", partly(3, quote_literal("other", self._dialect))
                    padded = f"concat({name}, ' ')" if self._dialect == "mysql" else f"({name} || ' ')"
                    yield f"30% of {shown} ends in a blank", partly(30, padded)
                    yield f"30% of {shown} is in capitals", partly(30, f"upper({name})")
                    if len(values) == 2:
                        one, two = (quote_literal(v, self._dialect) for v in values)
                        swapped = f"CASE {name} WHEN {one} THEN {two} WHEN {two} THEN {one} ELSE {name} END"
                        yield f"`{values[0]}` and `{values[1]}` of {shown} have changed places", swapped
        for other in self._table.columns:
            if other.type == column.type and other.name not in (column.name, self._key):
                yield f"{shown} has the values of `{other.name}`", self._quoted(other.name)
                break

    def _shifted(self, name: str, kind: str, hours: int) -> str | None:
        is_day = kind.upper() == "DATE"
        if is_day and abs(hours) < 24:
            return None
        match self._dialect:
            case "duckdb" | "postgres":
                # A date plus an interval is a timestamp, so it is cast back.
                return f"CAST({name} + INTERVAL '{hours} hours' AS {kind})"
            case "mysql":
                return f"DATE_ADD({name}, INTERVAL {hours} HOUR)"
            case "sqlite":
                day, moment = (f"{kind}({name}, '{hours} hours')" for kind in ("date", "datetime"))
                return f"CASE WHEN length({name}) = 10 THEN {day} ELSE {moment} END"
        return None

    def candidates(self, mutant: Mutant) -> Iterator[DataGuard]:
        """Yield what may tell a mutant from the data, the cheapest and most lenient first."""
        if self._key:
            kept = f"count(CASE WHEN {self._earlier()} THEN 1 END)"
            words = f"number of rows up to `{self._key}` {self._last:,}"
            yield self._candidate("", "kept rows", kept, mutant, words)
        for column in self._used:
            if column.name == self._key or (mutant.column and column.name != mutant.column):
                continue
            for value, words in self._measures(column):
                yield self._candidate(column.name, "average", f"avg({value})", mutant, f"average {words}")
                for weights in (7, 31, 97) if self._key else ():
                    weighted = f"{value} * (1 + abs({self._quoted(self._key)}) % {weights})"
                    measure = f"avg(CASE WHEN {self._earlier()} THEN {weighted} END)"
                    words_ = f"weighted average {words} up to `{self._key}` {self._last:,}"
                    yield self._candidate(column.name, "history", measure, mutant, words_)
                # Values that changed places leave every average as it was, but not that of a group.
                for other, known in self._groups(column):
                    group = f"{self._quoted(other)} = {quote_literal(known, self._dialect)}"
                    measure = f"avg(CASE WHEN {group} THEN {value} END)"
                    yield self._candidate(
                        column.name, "group", measure, mutant, f"average {words} where `{other}` is `{known}`"
                    )

        for known in self._values.get(mutant.column, ()):
            group = f"{self._quoted(mutant.column)} = {quote_literal(known, self._dialect)}"
            for column in self._used:
                for value, words in self._measures(column) if column.name != mutant.column else ():
                    measure = f"avg(CASE WHEN {group} THEN {value} END)"
                    where = f"average {words} where `{mutant.column}` is `{known}`"
                    yield self._candidate(column.name, "group", measure, mutant, where)

    def _earlier(self) -> str:
        return f"{self._quoted(self._key)} <= {self._last}"

    def _groups(self, column: Column) -> Iterator[tuple[str, str]]:
        for other in self._used:
            if other.name != column.name:
                yield from ((other.name, known) for known in self._values.get(other.name, ()))

    def _measures(self, column: Column) -> Iterator[tuple[str, str]]:
        """Yield expressions that turn a column into a number, with words for each."""
        name = self._quoted(column.name)
        match guard_family(column.type):
            case "number":
                yield f"1.0 * {name}", "value"
            case "time":
                if (seconds := guard_seconds(name, self._dialect)) is not None:
                    yield seconds, "time in seconds"
            case "text" if not column.type.upper().startswith("BOOL"):
                yield f"1.0 * length({name})", "length"
                if self._dialect == "mysql":
                    # Its comparisons ignore case, so that only a code shows that values are in capitals now.
                    yield f"1.0 * ascii({name})", "code of the first letter"
                for known in self._values.get(column.name, ()):
                    is_known = f"{name} = {quote_literal(known, self._dialect)}"
                    yield f"CASE WHEN {is_known} THEN 1.0 ELSE 0.0 END", f"share of `{known}`"

    def _candidate(self, column: str, kind: str, measure: str, mutant: Mutant, words: str) -> DataGuard:
        shown = f"`{self._table.name}.{column}`" if column else f"`{self._table.name}`"
        return DataGuard(
            table=self._table.name,
            column=column,
            kind=kind,
            measure=measure,
            holds=f"The {words} of {shown} is about {{known}}.",
            fails=f"The {words} of {shown} was {{known}}; now it is {{value}}. Perhaps {mutant.text}.",
            mutant=mutant.text,
        )
