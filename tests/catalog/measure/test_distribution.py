"""Statistics from distinct values and their counts, against Python's own of all values."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.catalog.measure.distribution import (
    Stats,
    distribution_distinct_count,
    distribution_scalar,
    measure_distribution,
)
from etude.catalog.model import Family


def _measure(values: list[Any], kind: Any, family: Family) -> Stats:
    return measure_distribution(*distribution_distinct_count(pa.array(values, kind)), family, "")


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers(values: list[int | None]) -> None:
    found = _measure(values, pa.int64(), "integer")
    there = sorted(v for v in values if v is not None)
    assert (found.rows, found.nulls, found.distinct) == (len(values), values.count(None), len(set(there)))
    if there:
        assert (found.least, found.greatest) == (there[0], there[-1])
        assert found.mean == pytest.approx(float(Fraction(sum(there), len(there))), rel=1e-11)
        assert found.quantiles == [there[max(math.ceil(Fraction(k * len(there), 20)), 1) - 1] for k in range(21)]
        assert (found.zeros, found.negatives) == (there.count(0), sum(v < 0 for v in there))
    if len(there) > 1:
        assert found.stddev == pytest.approx(statistics.stdev(there), rel=1e-9)


@given(st.lists(st.none() | st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308])))
def test_floats(values: list[float | None]) -> None:
    found = _measure(values, pa.float64(), "float")
    finite = sorted(v for v in values if v is not None and math.isfinite(v))
    assert found.nans in (None, sum(v is not None and math.isnan(v) for v in values))
    if finite:
        assert found.infinities == sum(v is not None and math.isinf(v) for v in values)
        assert (found.least, found.greatest) == (finite[0], finite[-1])
        exact = sum(map(Fraction, finite)) / len(finite)
        reach = max(map(abs, finite))
        assert found.mean is not None
        assert abs(Fraction(found.mean) - exact) <= Fraction(reach) * Fraction(1, 10**11) + Fraction(5e-324)
    if len(finite) > 1 and found.stddev is not None:
        variance = sum((Fraction(v) - exact) ** 2 for v in finite) / (len(finite) - 1)
        assert abs(Fraction(found.stddev) ** 2 - variance) <= variance / 10**8 + Fraction(
            reach
        ) ** 2 / 10**15 + Fraction(1e-300)


@given(st.lists(st.decimals(-(10**30), 10**30, places=7, allow_nan=False), min_size=2))
def test_wide_decimals(values: list[Decimal]) -> None:
    found = _measure(values, pa.decimal128(38, 7), "decimal")
    assert found.greatest == f"{max(values):f}" and found.distinct == len(set(values))
    mean = sum(map(Fraction, values)) / len(values)
    assert found.mean == pytest.approx(float(mean), rel=1e-11)


def test_numbers_that_came_as_text_are_ordered_as_numbers() -> None:
    found = _measure(["10", "9", "NaN", "-Infinity", None, "9"], pa.string(), "decimal")
    assert (found.least, found.greatest, found.nans, found.infinities) == ("9", "10", 1, 1)
    assert found.top[0] == ("9", 2) and found.family == "decimal"
    assert _measure(["10", "x"], pa.string(), "decimal").family == "text"


def test_ties_are_in_the_order_of_the_values() -> None:
    found = _measure(["b", "c", "a", "c", "b", "d"], pa.string(), "text")
    assert found.top == [("b", 2), ("c", 2), ("a", 1), ("d", 1)]


def test_long_values_are_cut() -> None:
    assert distribution_scalar("x" * 201) == "x" * 200 + "…"
    assert distribution_scalar(b"\x00" * 101) == "00" * 100 + "…"
    assert distribution_scalar({"a": [1, None]}) == '{"a": [1, null]}'
    assert distribution_scalar(float("-inf")) == "-Infinity"
