"""The statements of a profile in each SQL dialect. They only read, and call only functions that the guard allows.

All engines use the same approach: a column is grouped by value once, and counts, extremes, quantiles and frequent
values come from the groups. Quantiles are positions in the running sum of the groups, in whole numbers, because the
percentile functions of the engines differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from etude.catalog.model import Family
from etude.sources.quoting import quote_identifier

QUANTILES = 20
"""Steps between 0% and 100%: 21 quantiles."""
TOP = 10
SHOWN = 200
"""Characters of a text value that are kept; one more is fetched to detect that it was cut."""
SEED = 7
BUCKETS = 16
"""If an exact count of distinct values is too expensive, only one of this many buckets of hashes is counted."""

ORDERED: frozenset[str] = frozenset({"integer", "decimal", "float", "date", "timestamp"})
"""Families with quantiles."""
COMPARED: frozenset[str] = ORDERED | {"boolean", "text", "uuid", "time"}
"""Families with a smallest and a largest value."""
MEASURED: frozenset[str] = frozenset({"text", "binary"})
"""Families with lengths."""
_LARGEST = "1.7976931348623157e308"
_NUMBERS = frozenset({"integer", "decimal", "float"})


@dataclass(frozen=True)
class Expression:
    """A column in statements: `sql` is an expression whose values group and sort correctly for `family`."""

    name: str
    family: Family
    sql: str


@dataclass(frozen=True)
class Center:
    """The center of a numeric column and a power of two as scale, to sum distances without loss of precision."""

    middle: float
    scale: float
    low: float
    high: float
    """Values below `low` or above `high` are outliers."""


@dataclass(frozen=True)
class Compared:
    """Columns of a table whose values are matched with the same number of columns of another."""

    table: str
    columns: tuple[Expression, ...]
    other: str
    targets: tuple[Expression, ...]
    by_rows: bool = False
    """Count rows instead of distinct values, which is cheaper; the other side must be unique."""


def statement_column_expression(dialect: str, name: str, family: Family, type_name: str) -> Expression:
    """Return the expression for a column whose values compare by bytes or as numbers."""
    column = quote_identifier(name, dialect)
    if family in ("interval", "uuid", "json", "nested", "other", "time") or type_name.upper().startswith("ENUM"):
        column = _as_text(dialect, column)
    elif family == "float" and dialect in ("duckdb", "postgres"):
        column = f"CASE WHEN {column} = 0 THEN '0' ELSE {column} END"  # maps -0 to 0
    elif family == "text" and dialect == "postgres":
        column = f'CAST({column} AS text) COLLATE "C"'
    return Expression(name, family, column)


def _as_text(dialect: str, column: str) -> str:
    if dialect == "mysql":
        return f"CAST({column} AS char)"
    if dialect == "postgres":
        return f'CAST({column} AS text) COLLATE "C"'
    return f"CAST({column} AS {'text' if dialect == 'sqlite' else 'VARCHAR'})"


def rows_statement(table: str, columns: Sequence[Expression]) -> str:
    """Select all rows, with columns c0, c1, ..."""
    listed = ", ".join(f"{c.sql} AS c{i}" for i, c in enumerate(columns))
    return f"SELECT {listed} FROM {table}"


def count_statement(tables: Sequence[tuple[int, str]]) -> str:
    """Count the rows of several tables at once: the index of each table and its count."""
    parts = (f"SELECT {i} AS position, count(*) AS n FROM {name}" for i, name in tables)
    return " UNION ALL ".join(parts)


def sample_statement(dialect: str, table: str, columns: Sequence[Expression], rows: int, of: int) -> str:
    """Sample about `rows` rows of the table, the same ones for the same data; text is cut to what is shown."""
    listed = ", ".join(f"{_shown(dialect, c, c.sql)} AS c{i}" for i, c in enumerate(columns))
    if dialect == "duckdb":
        return f"SELECT {listed} FROM {table} USING SAMPLE reservoir({rows} ROWS) REPEATABLE ({SEED})"
    share = min(1.0, rows / max(of, 1))
    if dialect == "postgres":
        return f"SELECT {listed} FROM {table} TABLESAMPLE BERNOULLI ({share * 100:.6f}) REPEATABLE ({SEED})"
    if dialect == "mysql":
        return f"SELECT {listed} FROM {table} WHERE rand({SEED}) < {share:.9f}"
    # SQLite has no seeded random numbers: take every n-th row in storage order.
    step = max(1, of // rows)
    inner = ", ".join(f"{_shown(dialect, c, c.sql)} AS c{i}" for i, c in enumerate(columns))
    wanted = ", ".join(f"c{i}" for i in range(len(columns)))
    return (
        f"SELECT {wanted} FROM (SELECT {inner}, row_number() OVER () AS position FROM {table}) AS numbered "
        f"WHERE position % {step} = 0"
    )


def head_statement(dialect: str, table: str, columns: Sequence[Expression], rows: int) -> str:
    """Select the first rows in the engine's order, for a view or if sampling fails."""
    listed = ", ".join(f"{_shown(dialect, c, c.sql)} AS c{i}" for i, c in enumerate(columns))
    return f"SELECT {listed} FROM {table} LIMIT {rows}"


def groups_statement(dialect: str, table: str, column: Expression, most: int) -> str:
    """Select every value with its count; one group more than `most` if there are too many."""
    return f"SELECT v, f FROM ({_groups(dialect, table, column)}) AS g LIMIT {most + 1}"


def _groups(dialect: str, table: str, column: Expression) -> str:
    value = _exact(dialect, column)
    if _compares_loosely(dialect, column):
        grouped = f"SELECT {value} AS b, count(*) AS f FROM {table} GROUP BY 1"
        return f"SELECT CONVERT(b USING utf8mb4) AS v, f, b FROM ({grouped}) AS raw_groups"
    return f"SELECT {value} AS v, count(*) AS f FROM {table} GROUP BY 1"


def summary_statement(dialect: str, table: str, column: Expression, quantiles: bool) -> str:
    """Summarize a column with many values: each row has the whole summary and one of the frequent values."""
    order = "b" if _compares_loosely(dialect, column) else "v"
    fields = ["sum(f) AS n", "count(v) AS d", "sum(CASE WHEN v IS NULL THEN f ELSE 0 END) AS nulls", "max(f) AS most"]
    fields += _fields(dialect, replace(column, sql="v"), order, "f", "")
    parts, chosen = [f"(SELECT {', '.join(fields)} FROM g) AS s"], ["s.*"]
    if quantiles:
        parts.append(f"CROSS JOIN ({_quantiles(_is_finite(dialect, column.family, 'v'))}) AS q")
        chosen.append("q.*")
    shown = _shown(dialect, column, "v")
    frequent = f"SELECT {shown} AS v, f, {order} AS o FROM g WHERE v IS NOT NULL ORDER BY f DESC, {order} LIMIT {TOP}"
    parts.append(f"LEFT JOIN ({frequent}) AS t ON 1 = 1")
    materialized = "" if dialect == "mysql" else "MATERIALIZED "
    return (
        f"WITH g AS {materialized}({_groups(dialect, table, column)}) "
        f"SELECT {', '.join(chosen)}, t.v AS top_value, t.f AS top_count FROM {' '.join(parts)} ORDER BY t.f DESC, t.o"
    )


def _quantiles(finite: str) -> str:
    only = f"WHERE {finite}" if finite else "WHERE v IS NOT NULL"
    running = (
        "SELECT v, sum(f) OVER (ORDER BY v ROWS UNBOUNDED PRECEDING) AS running, "
        f"(SELECT sum(f) FROM g {only}) AS total FROM g {only}"
    )
    steps = (f"min(CASE WHEN running * {QUANTILES} >= {k} * total THEN v END) AS q{k}" for k in range(QUANTILES + 1))
    return f"SELECT {', '.join(steps)} FROM ({running}) AS r"


def _fields(dialect: str, column: Expression, raw: str, weight: str, suffix: str) -> list[str]:
    """Return the fields for extremes, signs, NaN and lengths; `raw` sorts the column, `weight` is a row's count."""
    value, family, finite = column.sql, column.family, _is_finite(dialect, column.family, column.sql)

    def count(condition: str, name: str) -> str:
        return f"sum(CASE WHEN {condition} THEN {weight} ELSE 0 END) AS {name}{suffix}"

    fields = []
    if family in COMPARED:
        ends = [f"{end}({_when(finite, raw)})" for end in ("min", "max")]
        if _compares_loosely(dialect, column):
            ends = [f"CONVERT({end} USING utf8mb4)" for end in ends]
        least, greatest = (_shown(dialect, column, end) for end in ends)
        fields += [f"{least} AS least{suffix}", f"{greatest} AS greatest{suffix}"]
    if family in _NUMBERS:
        fields += [count(f"{value} = 0", "zeros"), count(f"{_and(finite)}{value} < 0", "negatives")]
    if finite:
        nan = _is_nan(dialect, value)
        fields += [count(nan, "nans")]
        fields += [count(f"{value} IS NOT NULL AND NOT ({finite}) AND NOT ({nan})", "infinities")]
    if family in MEASURED:
        size = _length(dialect, family, value)
        fields += [f"min({size}) AS shortest{suffix}", f"max({size}) AS longest{suffix}"]
        fields += [f"sum({size} * {weight}) AS letters{suffix}", count(f"{size} = 0", "blank")]
    if family == "text":
        # Without an argument, DuckDB also removes other blanks than spaces.
        trimmed = f"trim({value}, ' ')" if dialect == "duckdb" else f"trim({value})"
        # Lengths are compared, because some collations ignore spaces at the end.
        fields += [count(f"{size} <> {_length(dialect, family, trimmed)}", "padded")]
    return fields


def scan_statement(dialect: str, table: str, columns: Sequence[Expression]) -> str:
    """Measure several columns in one scan without groups: counts, extremes, lengths, one bucket of distinct values."""
    fields = ["count(*) AS n"]
    for i, column in enumerate(columns):
        raw = _exact(dialect, column)
        fields += [f"count({column.sql}) AS c{i}"]
        fields += [f"count(DISTINCT CASE WHEN {_in_first_bucket(dialect, column)} THEN {raw} END) AS d{i}"]
        fields += _fields(dialect, column, raw, "1", str(i))
    return f"SELECT {', '.join(fields)} FROM {table}"


def spread_statement(dialect: str, table: str, columns: Sequence[tuple[Expression, Center]]) -> str:
    """Sum the distances to the middle and their squares, and count the outliers, for numeric columns.

    A sum of floats depends on the order, which varies with several threads. Therefore the distances are first rounded
    to whole numbers of a fine unit, whose sum does not depend on the order.
    """
    fields = []
    for i, (column, center) in enumerate(columns):
        finite = _is_finite(dialect, column.family, column.sql)
        value = _when(finite, _as_double(dialect, column.sql))
        away = f"(({value}) - ({center.middle!r})) * {center.scale!r}"
        # The squares use a coarser unit, since they would exceed 64 bits otherwise.
        near = f"{away} * {2.0**-31!r}"
        fields += [f"{_whole_sum(dialect, away)} AS s{i}", f"{_whole_sum(dialect, f'({near}) * ({near})')} AS q{i}"]
        fields += [f"sum(CASE WHEN {value} < {center.low!r} THEN 1 ELSE 0 END) AS below{i}"]
        fields += [f"sum(CASE WHEN {value} > {center.high!r} THEN 1 ELSE 0 END) AS above{i}"]
    return f"SELECT {', '.join(fields)} FROM {table}"


def distinct_rows_statement(dialect: str, table: str, columns: Sequence[Expression]) -> str:
    """Count the distinct combinations of columns; null counts as a value."""
    listed = ", ".join(f"{_exact(dialect, c)} AS c{i}" for i, c in enumerate(columns))
    return f"SELECT count(*) AS d FROM (SELECT DISTINCT {listed} FROM {table}) AS g"


def distinct_pairs_statement(dialect: str, table: str, pairs: Sequence[tuple[Expression, Expression]]) -> str:
    """Count for each pair of columns the rows with both values, the distinct pairs and values, and the equal rows."""
    parts = []
    for i, (left, right) in enumerate(pairs):
        a, b = _exact(dialect, left), _exact(dialect, right)
        inner = (
            f"SELECT {a} AS a, {b} AS b, count(*) AS f FROM {table} "
            f"WHERE {left.sql} IS NOT NULL AND {right.sql} IS NOT NULL GROUP BY 1, 2"
        )
        equal = "a = b" if left.family == right.family else "1 = 0"
        parts.append(
            f"SELECT {i} AS position, sum(f) AS n, count(*) AS pairs, count(DISTINCT a) AS a, count(DISTINCT b) AS b, "
            f"sum(CASE WHEN {equal} THEN f ELSE 0 END) AS same FROM ({inner}) AS g{i}"
        )
    return " UNION ALL ".join(parts)


def containment_statement(dialect: str, pairs: Sequence[Compared]) -> str:
    """Count for each pair the distinct values without nulls, and how many of them match the other side."""
    parts = []
    for i, pair in enumerate(pairs):
        listed = [f"{_exact(dialect, c)} AS v{n}" for n, c in enumerate(pair.columns)]
        filled = " AND ".join(f"{c.sql} IS NOT NULL" for c in pair.columns)
        select = "SELECT" if pair.by_rows else "SELECT DISTINCT"
        child = f"{select} {', '.join(listed)} FROM {pair.table} WHERE {filled}"
        listed = [f"{_exact(dialect, c)} AS v{n}" for n, c in enumerate(pair.targets)]
        parent = f"{select} {', '.join(listed)} FROM {pair.other}"
        same = " AND ".join(f"k{i}.v{n} = p{i}.v{n}" for n in range(len(pair.columns)))
        parts.append(
            f"SELECT {i} AS position, count(*) AS d, count(p{i}.v0) AS found "
            f"FROM ({child}) AS k{i} LEFT JOIN ({parent}) AS p{i} ON {same}"
        )
    return " UNION ALL ".join(parts)


def _compares_loosely(dialect: str, column: Expression) -> bool:
    """Return whether the column's collation may treat different texts as equal."""
    return dialect == "mysql" and column.family in ("text", "uuid", "json", "time", "other")


def _exact(dialect: str, column: Expression) -> str:
    """Return the column with equality and order by bytes."""
    if _compares_loosely(dialect, column):
        return f"CAST({column.sql} AS binary)"
    return column.sql


def _shown(dialect: str, column: Expression, value: str) -> str:
    """Cut text to what is shown; other values stay unchanged."""
    if column.family in ("text", "json", "nested", "other"):
        if dialect == "sqlite":
            # A number in a text column stays a number.
            return f"CASE WHEN typeof({value}) = 'text' THEN substr({value}, 1, {SHOWN + 1}) ELSE {value} END"
        return f"left({value}, {SHOWN + 1})"
    if column.family == "binary":
        return f"array_slice({value}, 1, {SHOWN})" if dialect == "duckdb" else f"substr({value}, 1, {SHOWN})"
    return value


def _when(condition: str, value: str) -> str:
    return f"CASE WHEN {condition} THEN {value} END" if condition else value


def _is_finite(dialect: str, family: str, value: str) -> str:
    """Return a condition that excludes NaN, infinities and null; empty if the type has none."""
    if family == "decimal" and dialect == "postgres":
        return f"{value} <> 'NaN'"
    if family != "float" or dialect == "mysql":
        return ""
    if dialect == "duckdb":
        return f"isfinite({value})"
    if dialect == "sqlite":
        return f"typeof({value}) IN ('integer', 'real') AND {value} BETWEEN -{_LARGEST} AND {_LARGEST}"
    return f"{value} BETWEEN '-{_LARGEST}' AND '{_LARGEST}'"


def _is_nan(dialect: str, value: str) -> str:
    if dialect == "duckdb":
        return f"isnan({value})"
    return f"{value} = 'NaN'" if dialect == "postgres" else "1 = 0"


def _and(condition: str) -> str:
    return f"({condition}) AND " if condition else ""


def _length(dialect: str, family: str, value: str) -> str:
    if family == "binary":
        return f"octet_length({value})" if dialect != "sqlite" else f"length({value})"
    return f"char_length({value})" if dialect == "mysql" else f"length({value})"


def _as_double(dialect: str, value: str) -> str:
    if dialect == "duckdb":
        return f"CAST({value} AS DOUBLE)"
    if dialect == "postgres":
        return f"CAST({value} AS double precision)"
    return f"({value} * 1e0)" if dialect == "mysql" else f"CAST({value} AS real)"


def _whole_sum(dialect: str, value: str) -> str:
    if dialect == "duckdb":
        return f"sum(CAST(round({value}) AS BIGINT))"
    if dialect == "postgres":
        return f"sum(CAST(round({value}) AS numeric))"
    return f"sum(round({value}))"  # a single thread always adds in the same order


def _in_first_bucket(dialect: str, column: Expression) -> str:
    if dialect == "duckdb":
        return f"hash({column.sql}) % {BUCKETS} = 0"
    text = f"CAST({column.sql} AS {'char' if dialect == 'mysql' else 'text'})"
    # The first hexadecimal digit selects one of 16 buckets. SQLite has no hash, so every distinct value is counted.
    return "1 = 1" if dialect == "sqlite" else f"left(md5({text}), 1) = '0'"
