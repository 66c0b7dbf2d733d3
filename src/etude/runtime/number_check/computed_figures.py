"""Figures that etude computed from expressions, compared with the words around them.

Such a figure is the true value of its expression, but the expression may be about something else than the sentence: it
takes the row of another label, or other columns than the figures beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from etude.runtime.expression import ColumnUse
from etude.runtime.number_check.mentions import SIZES
from etude.runtime.number_check.passage import Passage

_RANK = re.compile(
    r"\b(?:between first|first (?:and|to|over) second|the (?:leaders?|runners?-up|winner|rest|others?|top|next|first|"
    r"second|third|last|best|worst|largest|smallest|highest|lowest)(?: one)?)\b(?!\s+(?:\w+\s+)?[A-Z])"
)
"""A word that means a row without its name; before a name it only describes it."""
_COMPARED = re.compile(
    r"\b(?:against|than|versus|vs\.?|contre|gegen|als|compared (?:with|to)|(?:half|twice|double|times|of|by|from) the|"
    r"while|whereas|but)\b[^.;]{0,30}$",
    re.I,
)
_MORE = re.compile(
    r"[\s*_]*(?:[^\W\d]+\s+){0,2}?(?:more|fewer|less|higher|lower|ahead|behind|above|below|longer|shorter|larger|smaller|"
    r"mehr|weniger|plus|moins|más|menos|mais)\b",
    re.I,
)
_TOP = re.compile(r"\b(?:top|first|last|leading|best|largest|biggest|bottom|lowest|highest)\s+(\w+)", re.I)


@dataclass(frozen=True)
class ComputedFigure:
    """A figure of a text with what its expression uses."""

    start: int
    end: int
    value: Decimal | None
    references: tuple[ColumnUse, ...]
    skeleton: str
    """The expression without the rows that it chooses."""
    sample: str = ""
    """The format that the figure is written in."""


def find_misplaced_figures(passage: Passage, figures: Sequence[ComputedFigure]) -> dict[tuple[int, int], str]:
    """Return the figures that contradict the words around them, by their places, each with the reason."""
    found: dict[tuple[int, int], str] = {}
    for figure in figures:
        why = _takes_other_row(passage, figure) or _has_other_size(passage, figure) or _has_wrong_sign(passage, figure)
        if why:
            found[figure.start, figure.end] = why
    return found | dict(_unlike_the_others(passage, figures))


def _takes_other_row(passage: Passage, figure: ComputedFigure) -> str:
    """Say which row an expression takes, if the text means another one.

    A sentence often leaves out what it compares with: `Canada follows; the gap is $219`. So the only row of an
    expression is compared with the label right next to the figure, and one of several rows must be named somewhere.
    """
    single = list(dict.fromkeys((r.result, r.rows[0]) for r in figure.references if r.rows and len(r.rows) == 1))
    for t, table in enumerate(passage.tables):
        rows = [row for result, row in single if result == table.name]
        if not rows or table.kind != "result" or table.rows < 2 or table.printed:
            continue
        here = {row for x in passage.labels_in(passage.sentence(figure.start), t) for row in x.rows}
        beside = _row_beside(passage, figure, t)
        if beside is not None and not here & set(rows):
            return f"the sentence names {table.row_label(beside)}, but the expression takes {table.row_label(rows[0])}"
        named = {row for x in [*passage.labels, *passage.asked] if x.table == t for row in x.rows}
        # Years and months need no name: the one before the first year of a sentence is meant, too.
        missing = [row for row in rows if row not in named and table.name_column is not None and not table.periods]
        if missing and here & set(rows) and not _RANK.search(passage.sentence_text(passage.sentence(figure.start))):
            return f"the expression takes {table.row_label(missing[0])}, which the answer does not name"
    return ""


def _row_beside(passage: Passage, figure: ComputedFigure, t: int) -> int | None:
    """Return the row whose name is the last one before a figure in its sentence.

    If a number stands between them, it must be the only row that is named, and the figure must not be compared with it.
    """
    start, _ = passage.bounds(passage.sentence(figure.start))
    before = [x for x in passage.labels if x.table == t and x.column >= 0 and start <= x.start < x.end <= figure.start]
    single = [x for x in before if x.strong and len(x.rows) == 1]
    if not single or any(single[-1].rows[0] not in x.rows for x in before if x.start >= single[-1].start):
        return None
    between = passage.text[single[-1].end : figure.start]
    in_table = passage.text[start : figure.start].lstrip().startswith("|")
    alone = len({x.rows[0] for x in single}) == 1 and not _COMPARED.search(between)
    return single[-1].rows[0] if in_table or alone or not any(c.isdigit() for c in between) else None


def _has_other_size(passage: Passage, figure: ComputedFigure) -> str:
    """Say how many rows an expression takes, if the sentence speaks of another number of them."""
    text = passage.sentence_text(passage.sentence(figure.start))
    for reference in figure.references:
        if reference.sliced and reference.rows is not None and len(reference.rows) > 1:
            words = re.findall(r"[^\W_]+", text.lower())
            sizes = {SIZES[w] for w in words if w in SIZES and SIZES[w] > 1}
            sizes |= {int(m[1]) for m in _TOP.finditer(text) if m[1].isdigit()}
            if sizes and len(reference.rows) not in sizes:
                return f"the expression takes {len(reference.rows)} rows"
    return ""


def _has_wrong_sign(passage: Passage, figure: ComputedFigure) -> str:
    """Say that a negative value is called more, fewer, ahead or behind."""
    after = passage.text[figure.end : figure.end + 40]
    if figure.value is not None and figure.value < 0 and _MORE.match(after):
        return "the value is negative; the words after it already say the direction"
    return ""


def _unlike_the_others(passage: Passage, figures: Sequence[ComputedFigure]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the one figure of a list that is computed from other columns, or by other steps, than all others."""
    lists: dict[tuple[int, str], list[ComputedFigure]] = {}
    for figure in figures:
        if figure.sample:
            lists.setdefault((passage.sentence(figure.start), figure.sample), []).append(figure)
    for members in lists.values():
        counts = Counter(figure.skeleton for figure in members)
        common, times = counts.most_common(1)[0]
        columns = next({r.column for r in f.references} for f in members if f.skeleton == common)
        for figure in members:
            own = {r.column for r in figure.references}
            alike = own & columns and len(figure.references) == len(columns) > 1
            if times >= 2 and counts[figure.skeleton] == 1 and len(counts) == 2 and alike:
                yield (figure.start, figure.end), f"the figures beside it are `{common}`, this one `{figure.skeleton}`"
