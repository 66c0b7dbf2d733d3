"""Find the results that an answer quotes: those that its figures and labels come from are shown with it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etude.entities import Figure
from etude.runtime.number_check.evidence import (
    Evidence,
    EvidenceColumn,
    EvidenceTable,
    evidence_name_words,
    evidence_tables,
)
from etude.runtime.number_check.mentions import Mention
from etude.runtime.number_check.precision import is_rounded_beyond_precision, rounding_intervals

MANY_ROWS = 100
"""A result with more rows has most short numbers by chance."""
LEAST = 3.0
"""How much a further result must add to be shown beside the one that is quoted most."""
_AGGREGATES = frozenset("total sum avg average mean median count number of per the to until in for pct".split())  # noqa: SIM905
_SHARES = frozenset("share percent percentage pct proportion fraction ratio rate".split())  # noqa: SIM905


@dataclass
class Quotes:
    """How much of a text comes from one result."""

    name: str
    rows: int
    places: dict[object, float] = field(default_factory=dict)
    """The weight of each figure, by its place in the text, and of each label."""
    columns: Counter[str] = field(default_factory=Counter)
    """The number of figures from each column."""

    @property
    def weight(self) -> float:
        """The weight of all figures and labels."""
        return sum(self.places.values())


def find_quotes(
    text: str, results: Sequence[Evidence], mentions: Sequence[Mention], figures: Sequence[Figure] = ()
) -> list[Quotes]:
    """Return how much of a text comes from each result; `mentions` are its verified numbers."""
    found = []
    free = [m for m in mentions if not any(f.start <= m.start and m.end <= f.end for f in figures)]
    for result in results:
        for table in evidence_tables(result):
            if table.printed:
                continue
            quotes = Quotes(result.name, table.row_count)
            _add_figures(quotes, figures)
            _add_numbers(quotes, table, free)
            quotes.places |= dict.fromkeys(_labels_in(text, table), 1.0)
            found.append(quotes)
    return found


def choose_quoted(quotes: Sequence[Quotes]) -> list[str]:
    """Return the names of the results to show, in their order: the one quoted most, and others that add as much.

    Of results that are quoted equally, a table is preferred to a single row, then the later one.
    """
    if not any(q.places for q in quotes):
        return [quotes[-1].name] if quotes else []
    best = max(enumerate(quotes), key=lambda pair: (pair[1].weight, pair[1].rows > 1, pair[0]))[1]
    chosen, covered = [best], set(best.places)
    for other in sorted(quotes, key=lambda q: -q.weight):
        added = sum(weight for place, weight in other.places.items() if place not in covered)
        if other is not best and other.rows > 1 and added >= max(LEAST, best.weight / 2):
            chosen.append(other)
            covered |= set(other.places)
    return [q.name for q in quotes if q in chosen]


def rank_quoted_measures(names: Sequence[str], question: str, text: str, figures: Counter[str]) -> list[str]:
    """Return columns in the order in which a chart should show them.

    A column that nearly all figures of the answer come from is first. Then come those that the question names, by how
    much of it they name, then those with the most figures in the answer, then those that it names.
    """
    asked, said = evidence_name_words(question), evidence_name_words(text)
    most = Counter({name: figures[name] for name in names}).most_common(2)
    clear = most[0][0] if most and most[0][1] >= 2 * max(1, *(count for _, count in most[1:]), 1) else None
    return sorted(names, key=lambda name: (name != clear, -_named(name, asked), -figures[name], not _named(name, said)))


def _named(column: str, words: frozenset[str]) -> int:
    """Return how many words of a text name a column; 0 if one of its own words is missing."""
    own = evidence_name_words(column)
    if own & _SHARES and words & _SHARES:
        return 2 + len(own & words - _SHARES)  # a share in percent, whatever it is called
    own = own - _AGGREGATES or own
    return len(own) if own and own <= words else 0


def _add_figures(quotes: Quotes, figures: Sequence[Figure]) -> None:
    for figure in figures:
        if quotes.name in figure.result.split(", "):
            quotes.places[figure.start] = 1.0
            quotes.columns.update(set(re.findall(rf"\b{re.escape(quotes.name)}\.(\w+)", figure.expression)))


def _add_numbers(quotes: Quotes, table: EvidenceTable, mentions: Sequence[Mention]) -> None:
    values = {column.name: _sorted_sizes(column) for column in table.measures}
    fractions = {column.name for column in table.measures if column.is_fraction}
    for mention in mentions:
        if mention.kind not in ("number", "percent") or not mention.readings:
            continue
        weight = _weight(mention)
        if weight < 1 and table.row_count > MANY_ROWS:
            continue
        scales = {n: 100.0 if n in fractions and mention.kind == "percent" else 1.0 for n in values}
        holding = [n for n, sizes in values.items() if _holds(sizes, mention, scales[n]) or _holds(sizes, mention, 1.0)]
        if holding:
            quotes.places[mention.start] = weight
            quotes.columns.update(holding)


def _sorted_sizes(column: EvidenceColumn) -> list[float]:
    return sorted(abs(value * column.factor) for value in column.numbers.values())


def _holds(sizes: list[float], mention: Mention, scale: float) -> bool:
    """Return whether one of the sorted values, times `scale`, is written as this number."""
    for ends in rounding_intervals(mention):
        low, high = sorted(abs(float(end)) / scale for end in ends)
        slack = 1e-12 * max(high, 1e-12)
        at = bisect_left(sizes, low - slack)
        if (
            at < len(sizes)
            and sizes[at] <= high + slack
            and not is_rounded_beyond_precision(mention, sizes[at] * scale)
        ):
            return True
    return False


def _weight(mention: Mention) -> float:
    """Return how much a number says about its origin: short numbers are in many results."""
    if mention.word:
        return 0.25
    return 1.0 if sum(c.isdigit() for c in mention.text) >= 3 else 0.5


def _labels_in(text: str, table: EvidenceTable) -> Iterator[str]:
    folded = text.casefold()
    for label in table.labels:
        plain = label.casefold()
        if len(plain) < 2 or plain not in folded or not any(c.isalpha() for c in plain):
            continue
        if re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", folded):
            yield plain
