"""Lines and points in the terminal."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Any

from etude.cli.terminal_plot import draw_terminal_plot


def chart(mark: str, **more: Any) -> dict[str, Any]:
    axes = {"x": {"field": "x", "type": "temporal"}, "y": {"field": "y", "type": "quantitative"}}
    return {"mark": {"type": mark, "tooltip": True}, "encoding": axes} | more


def months(*numbers: int) -> list[tuple[date, float]]:
    return [(date(2020 + n // 12, n % 12 + 1, 1), 100.0) for n in numbers]


def is_drawn(line: str) -> list[bool]:
    return [0x2800 < ord(c) <= 0x28FF for c in line.partition("┤")[2]]


def test_a_line_has_round_labels_that_do_not_start_at_zero_if_all_values_are_far_from_it() -> None:
    years = [(2021, 449.46), (2022, 481.45), (2023, 469.58), (2024, 477.53), (2025, 450.58)]
    heading, *lines = draw_terminal_plot(chart("line", title="Revenue"), ["x", "y"], years).splitlines()
    assert heading == "Revenue (y by x)"
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line] == ["490", "480", "470", "460", "450", "440"]
    assert lines[-1].split() == ["2021", "2023", "2025"]


def test_no_line_crosses_a_gap_in_time() -> None:
    text = draw_terminal_plot(chart("line"), ["x", "y"], months(*range(12), *range(48, 60)))
    [line] = [each for each in text.splitlines() if any(is_drawn(each))]
    drawn = is_drawn(line)
    assert all(drawn[:11]) and not any(drawn[13:46]) and all(drawn[-11:])
    assert text.splitlines()[-1].split() == ["2020-01", "2022-06", "2024-12"]


def test_a_missing_value_breaks_a_line() -> None:
    whole = [("mon", 1), ("tue", 1), ("wed", 1), ("thu", 1), ("fri", 1)]
    broken = [(day, None if day == "wed" else n) for day, n in whole]
    counts = [
        sum(map(is_drawn_cells, draw_terminal_plot(chart("line"), ["x", "y"], rows).splitlines()))
        for rows in (whole, broken)
    ]
    assert counts[0] > 1.5 * counts[1] > 0


def is_drawn_cells(line: str) -> int:
    return sum(is_drawn(line))


def test_points_lie_where_their_numbers_are() -> None:
    text = draw_terminal_plot(chart("point"), ["x", "y"], [(0, 0), (1, 10), (2, 20), (10, 100)])
    rows = [line.partition("┤")[2] or line.partition("│")[2] for line in text.splitlines()]
    places = {(row.index("•"), n) for n, row in enumerate(rows) if "•" in row}
    assert min(places)[0] == 0 and max(places)[0] == 59


def test_series_have_letters() -> None:
    spec = chart("line")
    spec["encoding"]["color"] = {"field": "city", "type": "nominal"}
    rows = [(date(2024, m, 1), m * k, city) for m in range(1, 7) for k, city in ((1, "Oslo"), (3, "Rome\x1b"))]
    text = draw_terminal_plot(spec, ["x", "y", "city"], rows)
    assert text.splitlines()[1] == "a Oslo  b Rome\\x1b" and "\x1b" not in text


def test_labels_are_exact() -> None:
    text = draw_terminal_plot(chart("line"), ["x", "y"], [(n, y) for n, y in enumerate([0.0, 0.3, 0.61, 1.1])])
    labels = [float(line.split("┤")[0]) for line in text.splitlines() if "┤" in line]
    assert len({round(a - b, 9) for a, b in pairwise(labels)}) == 1


def test_other_charts_are_not_plots() -> None:
    rows = months(*range(9))
    assert draw_terminal_plot(chart("bar"), ["x", "y"], rows) == ""
    assert draw_terminal_plot(chart("line"), ["x", "other"], rows) == ""
    assert draw_terminal_plot(chart("line"), ["x", "y"], rows[:3]) == "", "bars say as much"
    binned = chart("line")
    binned["encoding"]["x"]["timeUnit"] = "year"
    assert draw_terminal_plot(binned, ["x", "y"], rows) == ""
    assert draw_terminal_plot(chart("line"), ["x", "y"], [(1, None)] * 9) == ""
