"""Mechanical repair: a column or a table that has another name or type now, recognised by its very same data.

Similar names prove nothing, so only the data count: the same number of rows, the same least, greatest and average value
and the same number of different ones; or, if rows were added, the same weighted average of the earlier rows. If two
places fit, none is chosen. After a repair all guards must hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from etude.entities import Entity
from etude.errors import Cancelled, EtudeError
from etude.replays.guards import DataGuard, GuardedTableShape, Rows, guard_family, guard_statement
from etude.replays.replaced_tables import NotReplaced, replace_tables
from etude.sources.quoting import quote_identifier, quote_table

if TYPE_CHECKING:
    from etude.entities import Catalog, Column, Table
    from etude.replays.script import Script

DIGITS = 9
"""Averages are compared by this many digits: rounding to cents must show."""
MOST_PLACES = 8
"""How many columns or tables are looked at in search of a lost one."""
STRICT = ("duckdb", "postgres")
"""Dialects whose casts fail if a value does not fit; those of the others return a wrong value instead."""


class ColumnMeasures(Entity):
    """What is known of the values of a column."""

    count: int
    distinct: int
    least: str
    greatest: str
    mean: str = ""


class TableMeasures(Entity):
    """What is known of a table: how a lost column is recognised."""

    table: str
    rows: int
    columns: dict[str, ColumnMeasures]
    others: tuple[str, ...] = ()
    """The columns that were there and that the script does not use."""


@dataclass
class Repair:
    """Queries that stand for tables, and what was repaired by each."""

    relations: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)


def measure_for_repair(catalog: Catalog, shapes: Sequence[GuardedTableShape], run: Rows) -> tuple[TableMeasures, ...]:
    """Measure the columns that a script uses."""
    profiles = []
    for shape in shapes:
        table = catalog.table(shape.table)
        if table is None:
            continue
        rows, columns = _measure(shape.columns, quote_table(table.name, catalog.dialect), catalog.dialect, run)
        others = tuple(c.name for c in table.columns if c.name not in shape.columns)
        profiles.append(TableMeasures(table=shape.table, rows=rows, columns=columns, others=others))
    return tuple(profiles)


def _measure(kinds: Mapping[str, str], place: str, dialect: str, run: Rows) -> tuple[int, dict[str, ColumnMeasures]]:
    measured = [(name, kind) for name, kind in kinds.items() if _is_plain(kind)]
    listed = ["count(*)"]
    for column, kind in measured:
        name = quote_identifier(column, dialect)
        mean = f"avg({name})" if guard_family(kind) == "number" else "NULL"
        listed += [f"count({name})", f"count(DISTINCT {name})", f"min({name})", f"max({name})", mean]
    row = run(f"SELECT {', '.join(f'{e} AS p{n}' for n, e in enumerate(listed))} FROM {place}")[0]
    columns = {}
    for number, (column, _) in enumerate(measured):
        count, distinct, least, greatest, mean = row[1 + 5 * number : 6 + 5 * number]
        columns[column] = ColumnMeasures(
            count=count, distinct=distinct, least=_shown(least), greatest=_shown(greatest), mean=_shown(mean)
        )
    return int(row[0]), columns


def _is_plain(kind: str) -> bool:
    """Return whether a type has a least and a greatest value in every dialect."""
    return guard_family(kind) != "other" and not kind.upper().startswith("BOOL")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"{float(value):.{DIGITS}g}"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def find_repair(script: Script, catalog: Catalog, run: Rows) -> Repair | None:
    """Return how the tables that a script reads can be had from the source now; None if that is not certain."""
    repair = Repair()
    profiles = {profile.table: profile for profile in script.profiles}
    for shape in script.shapes:
        if shape.check(catalog) is None:
            continue
        profile, table = profiles.get(shape.table), catalog.table(shape.table)
        if profile is None:
            return None
        own = [guard for guard in script.guards if guard.table == shape.table]
        search = _Search(shape, profile, own, catalog.dialect, run)
        found = search.moved_table(catalog, script.tables) if table is None else search.changed_columns(table)
        if found is None:
            return None
        repair.relations[shape.table] = found[0]
        repair.texts += found[1]
    return repair if repair.relations else None


@dataclass(frozen=True)
class _Search:
    """The search for what a table lost."""

    shape: GuardedTableShape
    profile: TableMeasures
    guards: Sequence[DataGuard]
    dialect: str
    run: Rows

    def _quoted(self, name: str) -> str:
        return quote_identifier(name, self.dialect)

    def moved_table(self, catalog: Catalog, known: Sequence[str]) -> tuple[str, list[str]] | None:
        """Return the one new table with the same data."""
        wanted = self.shape.columns.items()
        fitting = []
        for table in [t for t in catalog.tables if known and t.name not in known][:MOST_PLACES]:
            kinds = {c.name: c.type for c in table.columns}
            relation = self._relation(table, {})
            if all(kinds.get(name) == kind for name, kind in wanted) and self._is_same(relation, list(kinds)):
                fitting.append((relation, [f"The table `{self.shape.table}` is now called `{table.name}`."]))
        return fitting[0] if len(fitting) == 1 else None

    def changed_columns(self, table: Table) -> tuple[str, list[str]] | None:
        """Return the table with its lost columns under their old names, and changed types cast back."""
        now = {c.name: c for c in table.columns}
        changes: dict[str, tuple[str, str]] = {}
        texts = []
        for name, kind in self.shape.columns.items():
            if name in now and now[name].type == kind:
                continue
            options = list(self._options(name, kind, now))
            fitting = [o for o in options if self._is_same(self._relation(table, {o[0]: (name, o[1])}), [name])]
            if len(fitting) != 1 or fitting[0][0] in changes:
                return None
            place, expression, text = fitting[0]
            changes[place] = (name, expression)
            texts.append(text)
        return self._relation(table, changes), texts

    def _options(self, name: str, kind: str, now: Mapping[str, Column]) -> Iterator[tuple[str, str, str]]:
        """Yield the columns that may be the wanted one: the column, an expression for it, and words."""
        shown = f"`{self.shape.table}.{name}`"
        if name in now:
            if self.dialect in STRICT:
                cast = f"CAST({self._quoted(name)} AS {kind})"
                yield name, cast, f"{shown} is {now[name].type} now and was cast to {kind}."
            return
        known = {*self.shape.columns, *self.profile.others}
        new = [c for c in now.values() if c.name not in known and c.type == kind]
        for column in new[:MOST_PLACES]:
            yield column.name, self._quoted(column.name), f"The column {shown} is now called `{column.name}`."

    def _relation(self, table: Table, changes: Mapping[str, tuple[str, str]]) -> str:
        listed = []
        for column in table.columns:
            name, expression = changes.get(column.name, (column.name, self._quoted(column.name)))
            listed.append(f"{expression} AS {self._quoted(name)}")
        return f"SELECT {', '.join(listed)} FROM {quote_table(table.name, self.dialect)}"

    def _is_same(self, relation: str, columns: Sequence[str]) -> bool:
        """Return whether columns have the very same data as before, at least in the rows that were there before."""
        kinds = {n: k for n, k in self.shape.columns.items() if n in columns}
        if not all(name in self.profile.columns for name in kinds):
            return False
        try:
            rows, now = _measure(kinds, f"({relation}) AS r", self.dialect, self.run)
            if rows == self.profile.rows:
                return all(now[n] == self.profile.columns[n] and now[n].distinct > 1 for n in kinds)
            history = [g for g in self.guards if g.kind == "history" and not g.mutant and g.column in kinds]
            if rows < self.profile.rows or {g.column for g in history} != set(kinds):
                return False
            values = self.run(guard_statement(self.shape.table, history, self.dialect, relation))[0]
        except Cancelled:
            raise
        except EtudeError:
            return False  # a value cannot be cast
        return all(_is_middle(guard, value) for guard, value in zip(history, values, strict=True))


def _is_middle(guard: DataGuard, value: Any) -> bool:
    if value is None or guard.low is None or guard.high is None:
        return False
    return f"{float(value):.{DIGITS}g}" == f"{(guard.low + guard.high) / 2:.{DIGITS}g}"


def repair_query(sql: str, dialect: str, relations: Mapping[str, str]) -> str:
    """Return a query with these relations in place of the tables that it names."""
    for table, relation in relations.items():
        try:
            sql = replace_tables(sql, dialect, {table: relation})
        except NotReplaced as error:
            if "does not name" not in str(error):
                raise
    return sql


def repair_cell(code: str, dialect: str, relations: Mapping[str, str]) -> str:
    """Return a cell with its queries repaired; raise `NotReplaced` if a query is not a plain text in it."""
    tree = ast.parse(code)
    found: list[tuple[ast.Constant, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sql":
            text = node.args[0] if node.args else None
            if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
                raise NotReplaced("A query of a cell is put together from parts.")
            found.append((text, repair_query(text.value, dialect, relations)))
    lines = code.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = code.encode()
    for literal, query in sorted(found, key=lambda each: (each[0].lineno, each[0].col_offset), reverse=True):
        start = starts[literal.lineno - 1] + literal.col_offset
        end = starts[(literal.end_lineno or literal.lineno) - 1] + (literal.end_col_offset or 0)
        raw = raw[:start] + repr(query).encode() + raw[end:]
    return raw.decode()
