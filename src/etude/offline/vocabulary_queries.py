"""Queries on a source for its vocabulary: counts, ranges and distinct texts, with many tables in one query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from sqlglot import exp

from etude.entities import Catalog, Table
from etude.errors import Cancelled, EtudeError
from etude.offline.collection import pause_garbage_collection
from etude.offline.deadline import check_deadline
from etude.offline.spellings import MOST_SPELLINGS, group_spellings
from etude.offline.vocabulary import (
    RANGED,
    Ask,
    Scalar,
    VocabularyColumn,
    VocabularyTable,
    copy_with,
    vocabulary_value_kind,
)
from etude.sources.quoting import quote_identifier, quote_table

MAX_VALUES = 2_000
MAX_VALUE_CHARS = 80
MAX_ROWS = 2_000_000
"""Of a larger table only a part is read, and no key is guessed for it."""
SAMPLE = 100_000
TOGETHER, TOGETHER_ROWS, TOGETHER_SIZE = 120, 200_000, 1_800
"""At most this many tables or columns share one query, with this many rows in total, for this many values."""
JOINED, JOINED_SIZE = 40, 900
"""At most this many tables stand side by side in one row, with this many values: MySQL joins 61 tables at most."""
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def query_vocabulary_tables(catalog: Catalog, ask: Ask, known: Mapping[str, VocabularyTable]) -> list[VocabularyTable]:
    """Return the tables with counts, ranges and texts. Small tables share queries, because each query has a cost."""
    counted: dict[str, VocabularyTable] = {**known}
    unknown = [table for table in catalog.tables if table.name not in known]
    for group in group_vocabulary_queries(unknown, lambda t: t.row_count, lambda t: 1 + 2 * len(t.columns)):
        counted |= run_vocabulary_queries(group, catalog.dialect, ask, _count)
    columns = [(table, column, _is_large(table)) for table in catalog.tables for column in counted[table.name].columns]
    missing = [_Texts(table, column) for table, column, large in columns if _lacks_values(column, large)]
    # Only texts of one type share a query: a union would cast them to a common type, and may change them.
    by_type: dict[str, list[_Texts]] = defaultdict(list)
    for texts in missing:
        by_type[texts.type].append(texts)
    values: dict[tuple[str, str], set[str]] = {}
    for alike in by_type.values():
        for some in group_vocabulary_queries(alike, lambda t: t.table.row_count, lambda t: t.column.distinct // 20 + 8):
            values |= run_vocabulary_queries(some, catalog.dialect, ask, _distinct_values)
    with pause_garbage_collection():
        found = [_described(table, counted[table.name], table.name in known, values) for table in catalog.tables]
    return [
        _with_spellings(table, said, catalog.dialect, ask) for table, said in zip(found, catalog.tables, strict=True)
    ]


def _with_spellings(known: VocabularyTable, table: Table, dialect: str, ask: Ask) -> VocabularyTable:
    """Return the table with the values that differ only in case and blanks, counted to find the usual spelling."""
    columns = list(known.columns)
    for at, column in enumerate(columns):
        alike = group_spellings(column.values) if column.kind == "text" else []
        if not alike or len(alike) > MOST_SPELLINGS:
            continue
        check_deadline()
        ast = vocabulary_query_column(column.name)
        texts = [exp.Literal.string(value) for values in alike for value in values]
        source = vocabulary_query_first_rows(table.name) if _is_large(table) else vocabulary_query_table(table.name)
        query = exp.Select(expressions=[ast, exp.Count(this=exp.Star())]).from_(source)
        query = query.where(exp.In(this=ast.copy(), expressions=texts)).group_by(ast.copy())
        counts = {str(value): int(count) for value, count in ask(query.sql(dialect=dialect))}
        ordered = (tuple(sorted(values, key=lambda value: (-counts.get(value, 0), value))) for values in alike)
        columns[at] = copy_with(column, spellings=tuple(sorted(ordered)))
        known = copy_with(known, columns=tuple(columns))
    return known


def _described(
    table: Table, counted: VocabularyTable, known: bool, values: Mapping[tuple[str, str], set[str]]
) -> VocabularyTable:
    check_deadline()
    large, said = _is_large(table), {column.name: column.comment or "" for column in table.columns}
    found = (_with_values(column, large, values.get((table.name, column.name), set())) for column in counted.columns)
    columns = tuple(copy_with(c, comment=said[c.name]) if said[c.name] != c.comment else c for c in found)
    declared = table.primary_key or next(iter(table.unique), ())
    rows = table.row_count if large and table.row_count and not known else counted.rows
    return copy_with(counted, rows=rows, columns=columns, key=tuple(declared), comment=table.comment or "")


def _is_large(table: Table) -> bool:
    return (table.row_count or 0) > MAX_ROWS


def _lacks_values(column: VocabularyColumn, large: bool) -> bool:
    """Return whether the column's texts must be queried: a profile may have listed them all."""
    if column.kind != "text" or not column.distinct:
        return False
    # The part of a large table that is read may have few texts although the whole table has many.
    return (column.distinct <= MAX_VALUES or large) and len({*column.values}) != column.distinct


def _with_values(column: VocabularyColumn, large: bool, asked: set[str]) -> VocabularyColumn:
    if column.kind != "text" or not column.distinct:
        return column
    if column.distinct > MAX_VALUES and not large:
        return copy_with(column, values=())
    values = {*column.values} | asked
    usable = (value for value in values if value.strip() and len(value) <= MAX_VALUE_CHARS)
    return copy_with(column, values=tuple(sorted(usable)) if len(values) <= MAX_VALUES else ())


def group_vocabulary_queries(
    items: Iterable[T],
    rows: Callable[[T], int | None],
    size: Callable[[T], int],
    most: tuple[int, int] = (TOGETHER, TOGETHER_SIZE),
) -> Iterator[list[T]]:
    """Yield groups that may share one query; items with many rows, or an unknown number, stay alone."""
    group: list[T] = []
    read = used = 0
    for item in items:
        check_deadline()
        cost = rows(item)
        if cost is None or cost > TOGETHER_ROWS:
            yield [item]
            continue
        needed = size(item)
        if group and (read + cost > TOGETHER_ROWS or used + needed > most[1] or len(group) == most[0]):
            yield group
            group, read, used = [], 0, 0
        group.append(item)
        read, used = read + cost, used + needed
    if group:
        yield group


def run_vocabulary_queries(
    items: list[T], dialect: str, ask: Ask, look: Callable[[Sequence[T], str, Ask], dict[K, V]]
) -> dict[K, V]:
    """Query all items at once; if that is refused, by a limit or by the engine, query each by itself."""
    if len(items) > 1:
        try:
            return look(items, dialect, ask)
        except Cancelled:
            raise
        except EtudeError:
            check_deadline()
    found: dict[K, V] = {}
    for item in items:
        found |= look([item], dialect, ask)
    return found


def _count(tables: Sequence[Table], dialect: str, ask: Ask) -> dict[str, VocabularyTable]:
    """Return the row counts of tables, and the filled, distinct, minimum and maximum values of their columns."""
    if len(tables) == 1:
        counts, ranges = _counts_of(tables[0], dialect), _ranges_of(tables[0], dialect)
        row = list(next(iter(ask(_aggregate([*counts, *ranges], tables[0], dialect)))))
        return {tables[0].name: _read_counts(tables[0], row[: len(counts)], row[len(counts) :])}
    counted = _count_in_rows(tables, dialect, ask)
    ranged: dict[str, Sequence[Any]] = {}
    wide = [(table, found) for table in tables if (found := _ranges_of(table, dialect))]
    for group in group_vocabulary_queries(wide, lambda _: 0, lambda each: len(each[1]), (JOINED, JOINED_SIZE)):
        ranged |= _range_in_columns(group, dialect, ask)
    with pause_garbage_collection():
        return {table.name: _read_counts(table, counted[table.name], ranged.get(table.name, ())) for table in tables}


def _count_in_rows(tables: Sequence[Table], dialect: str, ask: Ask) -> dict[str, Sequence[Any]]:
    """Return the counts of each table. They are all integers, so one row for each table keeps their types."""
    parts = [_counts_of(table, dialect) for table in tables]
    widest = max(map(len, parts))
    selects = [
        _aggregate([*counts, *["0"] * (widest - len(counts))], table, dialect, f"{number} AS n, ")
        for number, (table, counts) in enumerate(zip(tables, parts, strict=True))
    ]
    return {tables[int(row[0])].name: row[1:] for row in ask(" UNION ALL ".join(selects))}


def _range_in_columns(tables: Sequence[tuple[Table, list[str]]], dialect: str, ask: Ask) -> dict[str, Sequence[Any]]:
    """Return the minima and maxima of each table: in one row, side by side, so that every value keeps its type."""
    selects, ends, first = [], [], 0
    for table, ranges in tables:
        selects.append(_aggregate(ranges, table, dialect, first=first))
        first += len(ranges)
        ends.append(first)
    query = "SELECT * FROM " + " CROSS JOIN ".join(f"({s}) AS t{n}" for n, s in enumerate(selects))
    row = list(next(iter(ask(query))))
    return {table.name: row[start:end] for (table, _), start, end in zip(tables, [0, *ends], ends, strict=False)}


def _counts_of(table: Table, dialect: str) -> list[str]:
    parts = ["COUNT(*)"]
    for column in table.columns:
        name = quote_identifier(column.name, dialect)
        parts.append(f"COUNT({name})")
        parts += [f"COUNT(DISTINCT {name})"] if vocabulary_value_kind(column.type) != "other" else []
    return parts


def _ranges_of(table: Table, dialect: str) -> list[str]:
    names = [quote_identifier(c.name, dialect) for c in table.columns if vocabulary_value_kind(c.type) in RANGED]
    return [f"{aggregate}({name})" for name in names for aggregate in ("MIN", "MAX")]


def _aggregate(parts: Sequence[str], table: Table, dialect: str, before: str = "", first: int = 0) -> str:
    listed = ", ".join(f"{part} AS c{number}" for number, part in enumerate(parts, first))
    return f"SELECT {before}{listed} FROM {_source(table, dialect)}"


def _read_counts(table: Table, counts: Sequence[Any], ranges: Sequence[Any]) -> VocabularyTable:
    check_deadline()
    count, limit = map(int, counts), map(_plain, ranges)
    rows, columns = next(count), []
    for column in table.columns:
        kind = vocabulary_value_kind(column.type)
        nulls = rows - next(count)
        distinct = next(count) if kind != "other" else 0
        low, high = (next(limit), next(limit)) if kind in RANGED else (None, None)
        columns.append(VocabularyColumn(table.name, column.name, kind, distinct, nulls, low, high))
    return VocabularyTable(table.name, rows, tuple(columns))


@dataclass(frozen=True)
class _Texts:
    """A column whose texts are queried."""

    table: Table
    column: VocabularyColumn

    @property
    def type(self) -> str:
        return next(c.type for c in self.table.columns if c.name == self.column.name)


def _distinct_values(asked: Sequence[_Texts], dialect: str, ask: Ask) -> dict[tuple[str, str], set[str]]:
    if len(asked) == 1:
        (texts,) = asked
        ast = vocabulary_query_column(texts.column.name)
        source = (
            vocabulary_query_first_rows(texts.table.name)
            if _is_large(texts.table)
            else vocabulary_query_table(texts.table.name)
        )
        query = exp.Select(expressions=[ast]).distinct().from_(source).limit(MAX_VALUES)
        query = query.where(exp.Not(this=exp.Is(this=ast.copy(), expression=exp.Null())))
        return {(texts.table.name, texts.column.name): {str(row[0]) for row in ask(query.sql(dialect=dialect))}}
    selects = []
    for number, texts in enumerate(asked):
        name = quote_identifier(texts.column.name, dialect)
        source_sql = _source(texts.table, dialect)
        selects.append(f"SELECT DISTINCT {number} AS n, {name} AS v FROM {source_sql} WHERE NOT {name} IS NULL")
    found: dict[tuple[str, str], set[str]] = {(texts.table.name, texts.column.name): set() for texts in asked}
    keys = list(found)
    for at, value in ask(" UNION ALL ".join(selects)):
        found[keys[int(at)]].add(str(value))
    return found


def _source(table: Table, dialect: str) -> str:
    if _is_large(table):
        return vocabulary_query_first_rows(table.name).sql(dialect=dialect)
    return quote_table(table.name, dialect)


def vocabulary_query_table(name: str) -> exp.Table:
    """Return the quoted name of a table."""
    parts = [exp.to_identifier(part, quoted=True) for part in name.split(".")]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def vocabulary_query_first_rows(name: str) -> exp.Expr:
    """Return a query for the first rows of a table."""
    rows = exp.Select(expressions=[exp.Star()]).from_(vocabulary_query_table(name)).limit(SAMPLE)
    return rows.subquery(exp.to_identifier("part", quoted=True))


def vocabulary_query_column(name: str) -> exp.Column:
    """Return the quoted name of a column."""
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _plain(value: Any) -> Scalar:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else None
