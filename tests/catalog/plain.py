"""Each statistic by plain SQL in the engine's own words, to compare a profile with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from etude.catalog.measure.distribution import distribution_scalar
from etude.catalog.model import ColumnProfile, TableProfile
from etude.sources.quoting import quote_identifier, quote_table

Ask = Callable[[str], list[tuple[Any, ...]]]
COMPARED = ("integer", "decimal", "float", "text", "date", "timestamp", "boolean")


def check_table(ask: Ask, dialect: str, table: TableProfile) -> None:
    """Every statistic of a table: exact ones equal, approximate ones within the stated error."""
    assert table.error is None
    name = quote_table(table.name, dialect)
    assert table.rows == ask(f"SELECT count(*) FROM {name}")[0][0]
    for column in table.columns:
        try:
            check_column(ask, dialect, name, column)
        except AssertionError as error:
            raise AssertionError(f"{table.name}.{column.name} ({column.type}): {error}") from error


def check_column(ask: Ask, dialect: str, table: str, column: ColumnProfile) -> None:
    assert not column.notes
    name = quote_identifier(column.name, dialect)
    rows, values = ask(f"SELECT count(*), count({name}) FROM {table}")[0]
    assert (column.rows, column.nulls) == (rows, rows - values)
    assert column.empty == (rows > 0 and values == (column.lengths.empty if column.lengths else 0))
    value = _exactly(dialect, name, column)
    groups = sorted(
        ask(f"SELECT {value} AS v, count(*) FROM {table} WHERE {name} IS NOT NULL GROUP BY 1"),
        key=lambda g: -g[1],
    )
    _check_distinct(column, groups, values)
    _check_top(column, groups, values)
    if not values or column.masked:
        return
    finite = _finite(dialect, name, column)
    if column.family in COMPARED and column.family != "text":
        least, greatest = ask(f"SELECT min({name}), max({name}) FROM {table} WHERE {finite}")[0]
        assert (column.min, column.max) == (_scalar(least), _scalar(greatest))
    if column.family == "text":
        texts = [g[0] for g in groups]
        texts = [t.decode() if isinstance(t, bytes) else t for t in texts]
        assert (column.min, column.max) == (distribution_scalar(min(texts)), distribution_scalar(max(texts)))
        _check_lengths(column, [(t, g[1]) for t, g in zip(texts, groups)])
    if column.family in ("integer", "decimal", "float"):
        _check_numbers(ask, table, name, finite, column)
    if column.family in ("integer", "decimal", "float", "date", "timestamp"):
        _check_quantiles(ask, table, name, finite, column)


def _exactly(dialect: str, name: str, column: ColumnProfile) -> str:
    """The column with equality by bytes, as etude takes it."""
    if dialect == "mysql" and column.family in ("text", "json", "other", "time"):
        return f"CAST({name} AS binary)"
    if column.family in ("nested", "json", "other", "interval", "uuid", "time"):
        return f"CAST({name} AS {'char' if dialect == 'mysql' else 'varchar'})"
    return name


def _finite(dialect: str, name: str, column: ColumnProfile) -> str:
    if column.family != "float" or dialect == "mysql":
        return f"{name} IS NOT NULL"
    if dialect == "duckdb":
        return f"isfinite({name})"
    bound = "1.7976931348623157e308"
    return f"{name} BETWEEN -{bound} AND {bound}" if dialect == "sqlite" else f"{name} BETWEEN '-{bound}' AND '{bound}'"


def _scalar(value: Any) -> Any:
    made = distribution_scalar(value)
    return made if made != 0 or isinstance(made, (bool, str)) else made + 0  # no minus before zero


def _check_distinct(column: ColumnProfile, groups: list[tuple[Any, int]], values: int) -> None:
    how = column.provenance.distinct
    assert how is not None and column.distinct is not None
    if how.method == "exact":
        assert column.distinct == len(groups)
        assert column.unique == (values > 0 and all(g[1] == 1 for g in groups))
        assert column.constant == (len(groups) == 1 and column.nulls == 0)
    else:
        assert how.error is not None
        assert abs(column.distinct - len(groups)) <= max(how.error * len(groups), 16)
        assert column.distinct <= values
        assert column.unique is not True


def _check_top(column: ColumnProfile, groups: list[tuple[Any, int]], values: int) -> None:
    how = column.provenance.top
    if how is None:
        return
    if how.method == "exact":
        assert [t.count for t in column.top] == [g[1] for g in groups[:10]]
        counts = {
            str(distribution_scalar(g[0].decode() if isinstance(g[0], bytes) and column.family == "text" else g[0])): g[
                1
            ]
            for g in groups
        }
        if not column.masked:
            for top in column.top:
                shown = str(top.value) if top.value != 0 else str(_scalar(top.value))
                assert counts.get(shown, counts.get(f"-{shown}")) == top.count, (top, shown)
    else:
        assert how.error is not None
        counts = {str(distribution_scalar(g[0])): g[1] for g in groups}
        for top in column.top if not column.masked else ():
            shown = str(top.value)  # of the two zeros, plain SQL may show the other
            counted = counts.get(shown, counts.get(f"-{shown}"))
            assert counted is not None and abs(top.count - counted) <= how.error * values + 1
    assert all(math.isclose(t.share, t.count / values, abs_tol=1e-6) for t in column.top)


def _check_lengths(column: ColumnProfile, texts: list[tuple[str, int]]) -> None:
    assert column.lengths is not None
    total = sum(len(t) * n for t, n in texts)
    assert column.lengths.min == min(len(t) for t, _ in texts)
    assert column.lengths.max == max(len(t) for t, _ in texts)
    assert math.isclose(column.lengths.mean, total / sum(n for _, n in texts), rel_tol=1e-11)
    assert column.lengths.empty == sum(n for t, n in texts if not t)
    assert column.lengths.padded == sum(n for t, n in texts if t != t.strip(" "))


def _check_numbers(ask: Ask, table: str, name: str, finite: str, column: ColumnProfile) -> None:
    zeros, negatives, n = ask(
        f"SELECT sum(CASE WHEN {name} = 0 THEN 1 ELSE 0 END), sum(CASE WHEN {name} < 0 THEN 1 ELSE 0 END), count(*) "
        f"FROM {table} WHERE {finite}"
    )[0]
    assert (column.zeros or 0, column.negatives or 0) == (int(zeros or 0), int(negatives or 0))
    if not n or column.mean is None:
        return
    numbers = [float(v) for (v,) in ask(f"SELECT {name} FROM {table} WHERE {finite}")]
    reach = max(abs(v) for v in numbers)
    # The square of a large float is none, and that of a small one is zero.
    scale = 2.0**-600 if reach > 1e150 else 2.0**600 if reach < 1e-150 else 1.0
    mean = math.fsum(v * scale for v in numbers) / n / scale
    assert math.isclose(column.mean, mean, rel_tol=1e-9, abs_tol=reach * 1e-11 + 1e-320)
    if n > 1:
        spread = math.sqrt(math.fsum(((v - mean) * scale) ** 2 for v in numbers) / (n - 1)) / scale
        assert column.stddev is not None
        assert math.isclose(column.stddev, spread, rel_tol=1e-6, abs_tol=reach * 1e-8 + 1e-320)
    if column.outliers is not None and column.provenance.quantiles and column.provenance.quantiles.method == "exact":
        ordered = sorted(numbers)
        lower, upper = (ordered[max(-(-len(ordered) * k // 4), 1) - 1] for k in (1, 3))
        low, high = lower - 3 * (upper - lower), upper + 3 * (upper - lower)
        assert column.outliers.below == sum(v < low for v in numbers)
        assert column.outliers.above == sum(v > high for v in numbers)


def _check_quantiles(ask: Ask, table: str, name: str, finite: str, column: ColumnProfile) -> None:
    ordered = [v for (v,) in ask(f"SELECT {name} FROM {table} WHERE {finite} ORDER BY 1")]
    if not ordered:
        assert column.quantiles == ()
        return
    n, how = len(ordered), column.provenance.quantiles
    assert how is not None and len(column.quantiles) == 21
    expected = [ordered[max(-(-k * n // 20), 1) - 1] for k in range(21)]
    if how.method == "exact":
        assert list(column.quantiles) == [_scalar(v) for v in expected]
        assert column.histogram is not None
        assert math.isclose(sum(column.histogram.counts), n, rel_tol=1e-2)
    else:
        assert how.error is not None
        shown = [_scalar(v) for v in ordered]
        for k, value in enumerate(column.quantiles[1:-1], 1):
            first, last = shown.index(value), n - shown[::-1].index(value)
            assert first / n - how.error <= k / 20 <= last / n + how.error
