"""A figure: what was measured on both sides, the bar it must keep, and whether it does."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the table. A figure without a bar is only told, never judged."""

    what: str
    ours: float
    peer: float | None
    """None where there is nothing to compare with."""
    unit: str
    most_ratio: float | None = None
    """Ours is at most so many times the peer's."""
    most_over: float | None = None
    """Ours is at most so much, in the unit, above the peer's."""
    most: float | None = None
    """Ours is at most so much, whatever the peer's."""
    least: float | None = None
    """Ours is at least so much."""

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else math.inf

    @property
    def bar(self) -> str:
        bars = []
        if self.most is not None:
            bars.append(f"at most {self.most:g} {self.unit}")
        if self.least is not None:
            bars.append(f"at least {self.least:g} {self.unit}")
        if self.most_ratio is not None:
            # A part of the peer's reads better the other way round.
            least = 1 / self.most_ratio
            bars.append(f"at most {self.most_ratio:g} x" if self.most_ratio >= 1 else f"at least {least:g} x less")
        if self.most_over is not None:
            bars.append(f"at most {self.most_over:g} {self.unit} over")
        return ", ".join(bars)

    @property
    def holds(self) -> bool:
        return (
            (self.most is None or self.ours <= self.most)
            and (self.least is None or self.ours >= self.least)
            and (self.most_ratio is None or self.ratio <= self.most_ratio)
            and (self.most_over is None or self.ours - (self.peer or 0) <= self.most_over)
        )


def alternate(sides: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Seconds of each round of each side. They take turns, so that what disturbs the machine disturbs them alike."""
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        # Each begins as often as the others do: the one after a pause would pay for waking the processor.
        for shift in range(len(sides)):
            index = (turn + shift) % len(sides)
            started = time.perf_counter()
            sides[index]()
            times[index].append(time.perf_counter() - started)
    return times


def medians(sides: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median seconds of each side, measured in turns."""
    return [statistics.median(t) for t in alternate(sides, rounds)]


def print_table(figures: Sequence[Figure]) -> None:
    head = ["what", "ours", "peer", "ratio", "the bar", "holds"]
    rows = [
        [
            f.what,
            f"{f.ours:,.2f} {f.unit}",
            "" if f.peer is None else f"{f.peer:,.2f} {f.unit}",
            "" if f.peer is None else f"{f.ratio:.2f}" if f.ratio >= 0.1 else f"1/{1 / f.ratio:,.0f}",
            f.bar,
            ("yes" if f.holds else "NO") if f.bar else "",
        ]
        for f in figures
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    for row in [head, ["-" * w for w in widths], *rows]:
        cells = [
            cell.rjust(width) if 1 <= position <= 3 else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(row, widths))
        ]
        print("  ".join(cells).rstrip())


def print_json(figures: Sequence[Figure]) -> None:
    print(json.dumps([asdict(f) | {"ratio": f.ratio, "bar": f.bar, "holds": f.holds} for f in figures], indent=2))
