"""Compute exact statistics of a column from its distinct values and their counts.

Values stay in Arrow and are sorted there; only those that are shown become Python objects. Sums are exact (whole
numbers, or `fsum`), so that the same values give the same digits in any order.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

from etude.catalog.measure.statements import COMPARED, MEASURED, ORDERED, QUANTILES, SHOWN, TOP
from etude.catalog.measure.type_families import settled_type_family
from etude.catalog.model import DATED, Family, Lengths, Outliers, Scalar, profile_datetime
from etude.cell_text import cell_to_json
from etude.entities import ResultColumn, ResultInfo
from etude.result import Result

FENCE = 3.0
"""Interquartile ranges between a quartile and its fence."""
LISTED = 40
"""If a column has at most this many distinct numbers or dates, all are kept."""
_NEWEST = 50


@dataclass
class Stats:
    """The statistics of a column. All but `rows` and `nulls` exclude nulls."""

    family: Family
    rows: int
    nulls: int
    distinct: int | None = None
    repeated: bool | None = None
    """Whether any value occurs more than once."""
    least: Scalar = None
    greatest: Scalar = None
    mean: float | None = None
    stddev: float | None = None
    zeros: int | None = None
    negatives: int | None = None
    nans: int | None = None
    infinities: int | None = None
    quantiles: list[Scalar] = field(default_factory=list)
    outliers: Outliers | None = None
    top: list[tuple[Scalar, int]] = field(default_factory=list)
    listed: list[tuple[Scalar, int]] = field(default_factory=list)
    """All values in order, if there are few and they are numbers or dates."""
    lengths: Lengths | None = None
    gap_s: float | None = None
    texts: list[str] = field(default_factory=list)
    """Some of the distinct texts, for patterns."""


def distribution_distinct_count(column: Any) -> tuple[Any, Any]:
    """Return the distinct values of an Arrow column and their counts, including null if it occurs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_float64(column.type):
        # Maps -0 to 0. Not with a Python number: converting the first one would import pandas, if installed.
        column = pc.add(column, pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(bytes(8))])[0])
    counted = pc.value_counts(column)
    return counted.field(0), counted.field(1)


def measure_distribution(values: Any, counts: Any, family: Family, kind: str, texts: int = 0) -> Stats:
    """Compute all statistics of a column from its distinct values and counts; `kind` is the engine's type name."""
    family = settled_type_family(family, values.type)
    family, order = _order(values, family)
    values, weights = values.take(order), counts.take(order).to_pylist()
    nulls = 0
    if values.null_count:  # sorted last
        nulls = weights.pop()
        values = values[:-1]
    stats = Stats(family, sum(weights) + nulls, nulls, len(weights))
    stats.repeated = bool(weights) and max(weights) > 1
    if not weights:
        return stats
    shown = _Shown(values, kind)
    frequent = _most_frequent(weights)
    stats.top = list(zip(shown.at(frequent), (weights[i] for i in frequent)))
    if family in COMPARED:
        begin, end = _find_finite(stats, values, weights)
        if begin == end:
            return stats
        stats.least, stats.greatest = shown.at([begin, end - 1])
        if family in ORDERED:
            _measure_order(stats, values[begin:end], weights[begin:end], kind)
    if family in MEASURED:
        stats.lengths = _lengths(values, weights, family)
    if texts and family == "text":
        stats.texts = values.take(_spaced(len(weights), texts)).to_pylist()
        if are_iso_dates(stats.texts):
            stats.quantiles = shown.at(_quantile_places(list(accumulate(weights))))
    return stats


_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?")


def are_iso_dates(texts: Sequence[str]) -> bool:
    """Return whether all texts are ISO dates or times of one length, which sort like the times they name."""
    return bool(texts) and len({len(t) for t in texts}) == 1 and all(_ISO_DATE.fullmatch(t) for t in texts)


def _order(values: Any, family: Family) -> tuple[Family, Any]:
    """Return the indices that sort the values, null last. Numbers that arrived as text are sorted as numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if family in ("integer", "decimal") and pa.types.is_string(values.type):
        numbers = values.to_pylist()
        try:
            keys = [_key(text) for text in numbers]
        except InvalidOperation:
            return "text", pc.sort_indices(values)
        return family, _indices(sorted(range(len(keys)), key=keys.__getitem__))
    return family, pc.sort_indices(values)


def _key(text: str | None) -> tuple[int, Decimal]:
    if text is None:
        return 2, Decimal(0)
    number = Decimal(text)
    return (1, Decimal(0)) if number.is_nan() else (0, number)


def _most_frequent(weights: Sequence[int]) -> list[int]:
    if max(weights) == 1:
        return list(range(min(TOP, len(weights))))
    # The sort is stable even in reverse: ties stay in the order of the values.
    return sorted(range(len(weights)), key=weights.__getitem__, reverse=True)[:TOP]


def _find_finite(stats: Stats, values: Any, weights: Sequence[int]) -> tuple[int, int]:
    """Count NaN and infinities, which are at the ends; return the range of the finite values."""
    import pyarrow as pa

    begin, end = 0, len(weights)
    as_text = stats.family == "decimal" and pa.types.is_string(values.type)
    if stats.family != "float" and not as_text:
        return begin, end
    stats.nans = stats.infinities = 0
    ends = [float(v) for v in (values[0].as_py(), values[-1].as_py())]
    if math.isnan(ends[1]):
        end -= 1
        stats.nans = weights[end]
        ends[1] = float(values[end - 1].as_py()) if end else 0.0
    if end and ends[1] == math.inf and values[end - 1].as_py() in (math.inf, "Infinity"):
        end -= 1
        stats.infinities += weights[end]
    if begin < end and ends[0] == -math.inf and values[0].as_py() in (-math.inf, "-Infinity"):
        stats.infinities += weights[0]
        begin = 1
    return begin, end


def _measure_order(stats: Stats, values: Any, weights: list[int], kind: str) -> None:
    shown = _Shown(values, kind)
    running = list(accumulate(weights))
    places = _quantile_places(running)
    stats.quantiles = shown.at(places)
    if len(weights) <= LISTED:
        stats.listed = list(zip(shown.at(range(len(weights))), weights))
    if stats.family in DATED:
        stats.gap_s = _typical_gap(values)
        return
    numbers, unit = _numbers(values)
    stats.mean, stats.stddev = _moments(numbers, weights, unit)
    zero = bisect_left(numbers, 0)
    stats.negatives = running[zero - 1] if zero else 0
    stats.zeros = weights[zero] if zero < len(numbers) and numbers[zero] == 0 else 0
    fences = distribution_outlier_fences(
        numbers[places[QUANTILES // 4]] / unit, numbers[places[QUANTILES * 3 // 4]] / unit
    )
    if fences is not None:
        below = bisect_left(numbers, fences[0], key=lambda v: v / unit)
        above = bisect_right(numbers, fences[1], key=lambda v: v / unit)
        stats.outliers = Outliers(
            low=round_distribution_statistic(fences[0]),
            high=round_distribution_statistic(fences[1]),
            below=sum(weights[:below]),
            above=sum(weights[above:]),
        )


def _quantile_places(running: Sequence[int]) -> list[int]:
    return [bisect_left(running, max(1, -(-k * running[-1] // QUANTILES))) for k in range(QUANTILES + 1)]


def distribution_outlier_fences(lower: float, upper: float) -> tuple[float, float] | None:
    """Return Tukey's outer fences around the quartiles; None if the quartiles are equal or not finite."""
    reach = FENCE * (upper - lower)
    low, high = lower - reach, upper + reach
    return (low, high) if reach > 0 and math.isfinite(low) and math.isfinite(high) else None


def _numbers(values: Any) -> tuple[list[Any], int]:
    """Return the values as whole numbers and their common denominator, or as floats and 1."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_decimal128(kind) and kind.precision <= 18:
        # The unscaled integer is in the lower of two 64-bit words.
        pairs = memoryview(values.buffers()[1]).cast("q")
        begin = 2 * values.offset
        return list(pairs[begin : begin + 2 * len(values)])[::2], 10**kind.scale
    listed = values.to_pylist()
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return listed, 1
    exact = [Fraction(v) for v in listed]
    unit = math.lcm(*(f.denominator for f in exact))
    return [int(f * unit) for f in exact], unit


def _moments(numbers: Sequence[Any], weights: Sequence[int], unit: int) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation of sorted numbers."""
    n = sum(weights)
    if isinstance(numbers[0], float):
        # The squares of very large floats overflow; scaling by a power of two loses no precision.
        scale = math.frexp(max(-numbers[0], numbers[-1]))[1]
        if abs(scale) > 400:
            numbers = [math.ldexp(v, -scale) for v in numbers]
        else:
            scale = 0
        mean = math.fsum(map(mul, numbers, weights)) / n
        away = [v - mean for v in numbers]
        squares = math.fsum(map(mul, map(mul, away, away), weights))
        spread = math.sqrt(squares / (n - 1)) if n > 1 else None
        mean, spread = math.ldexp(mean, scale), None if spread is None else math.ldexp(spread, scale)
    else:
        products = list(map(mul, numbers, weights))
        total = sum(products)
        mean = total / (n * unit)
        squares = n * sum(map(mul, products, numbers)) - total * total
        spread = math.sqrt(Fraction(squares, n * (n - 1) * unit * unit)) if n > 1 else None
    return round_distribution_statistic(mean), None if spread is None else round_distribution_statistic(spread)


def round_distribution_statistic(value: float) -> float:
    """Round to twelve digits, so that different plans give the same result for sums of floats."""
    return float(f"{value:.12g}")


def _lengths(values: Any, weights: list[int], family: Family) -> Lengths:
    import pyarrow.compute as pc

    sizes = (pc.binary_length if family == "binary" else pc.utf8_length)(values).to_pylist()
    total = sum(map(mul, sizes, weights))
    empty = sum(w for s, w in zip(sizes, weights) if s == 0)
    padded = None
    if family == "text":
        trimmed = pc.utf8_length(pc.utf8_trim(values, " ")).to_pylist()
        padded = sum(w for s, t, w in zip(sizes, trimmed, weights) if s != t)
    return Lengths(
        min=min(sizes),
        max=max(sizes),
        mean=round_distribution_statistic(total / sum(weights)),
        empty=empty,
        padded=padded,
    )


def _typical_gap(values: Any) -> float | None:
    import pyarrow as pa

    newest = values[-_NEWEST:]
    if pa.types.is_date(newest.type):
        counts, unit = newest.cast(pa.date32()).cast(pa.int32()).to_pylist(), 1 / 86_400
    else:
        units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
        counts, unit = newest.cast(pa.int64()).to_pylist(), units[newest.type.unit]
    gaps = [(b - a) / unit for a, b in pairwise(counts)]
    return round_distribution_statistic(statistics.median(gaps)) if gaps else None


def distribution_date_gap(middle: Scalar, newest: Scalar, distinct: int | None) -> float | None:
    """Return the mean seconds between distinct values in the newer half of a date column."""
    since, until = profile_datetime(middle), profile_datetime(newest)
    if since is None or until is None or not distinct or (since.tzinfo is None) != (until.tzinfo is None):
        return None
    return round_distribution_statistic((until - since).total_seconds() / max(distinct // 2, 1))


def _spaced(count: int, wanted: int) -> Any:
    return _indices(range(count) if count <= wanted else [i * count // wanted for i in range(wanted)])


def _indices(places: Iterable[int]) -> Any:
    import pyarrow as pa

    # Not `pa.array(list)`: its first call imports pandas, if installed, which takes a second.
    whole = array("q", places)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


class _Shown:
    """Values of a sorted Arrow array as scalars, converted on demand."""

    def __init__(self, values: Any, kind: str) -> None:
        self._values = values
        self._kind = kind

    def at(self, places: Sequence[int]) -> list[Scalar]:
        return distribution_scalars(self._values.take(_indices(places)), self._kind)


def distribution_scalars(values: Any, kind: str) -> list[Scalar]:
    """Convert the cells of an Arrow array to scalars; `kind` is the engine's type name."""
    import pyarrow as pa

    types, arrow = pa.types, values.type
    if types.is_integer(arrow) or types.is_boolean(arrow):
        return list(values.to_pylist())
    if types.is_string(arrow) or types.is_floating(arrow) or types.is_decimal(arrow):
        return [distribution_scalar(v) for v in values.to_pylist()]
    batch = pa.RecordBatch.from_arrays([values], names=["v"])
    info = ResultInfo(columns=(ResultColumn(name="v", type=kind),), row_count=len(values))
    return [distribution_scalar(v) for (v,) in Result(info, [batch]).iter_rows()]


def distribution_scalar(value: Any) -> Scalar:
    """Convert a value of the data to the form that the profile stores."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case str():
            return value if len(value) <= SHOWN else value[:SHOWN] + "…"
        case Decimal():
            return f"{value:f}" if value.is_finite() else _not_finite(float(value))
        case dt.datetime():
            return (value.astimezone(dt.UTC) if value.tzinfo else value).isoformat()
        case dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return value[: SHOWN // 2].hex() + ("…" if len(value) > SHOWN // 2 else "")
        case _:
            made = cell_to_json(value)
            return distribution_scalar(
                made if isinstance(made, str | int | float) else json.dumps(made, ensure_ascii=False)
            )


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
