"""Drawings of distributions: a bar for each value if all are known, and no bins that are finer than the data."""

from __future__ import annotations

from etude.catalog.model import ColumnProfile, Histogram
from etude.catalog.page.svg import _edges, _heights, _step, svg_quantiles_on_axis


def column(values: dict[float, int]) -> ColumnProfile:
    rows = sum(values.values())
    sorted_rows = [value for value, times in sorted(values.items()) for _ in range(times)]
    return ColumnProfile(
        name="grade",
        type="DOUBLE",
        family="float",
        rows=rows,
        nulls=0,
        distinct=len(values),
        quantiles=tuple(sorted_rows[max(1, -(-k * rows // 20)) - 1] for k in range(21)),
        histogram=Histogram(
            kind="values", edges=tuple(sorted(values)), counts=tuple(values[v] for v in sorted(values))
        ),
    )


def test_each_value_has_a_bar_with_its_share() -> None:
    grades = {1 + step / 4: 5 + step % 7 for step in range(21)}
    drawn = column(grades)
    heights, _, _ = _heights(drawn, svg_quantiles_on_axis(drawn))
    total = sum(grades.values())
    assert [round(height * total) for height in heights] == [grades[grade] for grade in sorted(grades)]


def test_bins_are_no_finer_than_the_step_of_the_data() -> None:
    assert _step(column({1.0: 3, 1.25: 2, 2.5: 1})) == 0.25
    edges = _edges(1.0, 6.0, 0.25)
    assert len(edges) == 22 and edges[0] == 0.875
    wide = _edges(0.0, 100.0, 0.25)
    assert len(wide) <= 25 and (wide[1] - wide[0]) % 0.25 == 0
