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

from etude.plurals import singular_of_plural
from etude.runtime.expression import ColumnUse
from etude.runtime.number_check.mentions import SIZES, Period
from etude.runtime.number_check.passage import Passage
from etude.runtime.number_check.periods import period_sort_key

_RANK = re.compile(
    r"\b(?:between first|first (?:and|to|over) second|the (?:leaders?|runners?-up|winner|rest|others?|top|next|first|"
    r"second|third|last|best|worst|largest|smallest|highest|lowest)(?: one)?)\b(?!\s+(?:\w+\s+)?[A-Z])"
)
"""A word that means a row without its name; before a name it only describes it."""
_COMPARED = re.compile(
    r"\b(?:against|than|versus|vs\.?|contre|gegen|als|compared (?:with|to)|(?:half|twice|double|times|of|by|from) the|"
    r"while|whereas|but)\b[^;]*$",
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
        why = (
            _takes_other_row(passage, figure)
            or _is_cell_of_another(passage, figure)
            or _has_other_size(passage, figure)
            or _has_wrong_sign(passage, figure)
        )
        if why:
            found[figure.start, figure.end] = why
    return found | dict(_unlike_the_others(passage, figures))


_DOUBTFUL = 0.5
"""How doubtful a figure is whose rows or columns the words around it do not name."""
_RANKED = re.compile(
    r"\b(?:top|first|second|third|last|next|leader|leading|best|worst|peak|(?:larg|bigg|small|high|low|long|short|clos|"
    r"strong|weak|old|young|cheap|few|great)est|most|least|before|previous|previously|minimum|maximum|rest|others?)\b",
    re.I,
)
_WHOLE = re.compile(
    r"[\s*_)]*(?:(?:share|part|portion)\s+)?of\s+(?:(?:all|the|its|their|total|overall|those|these)\s+)*(?P<noun>[^\W\d_]+)",
    re.I,
)


def doubt_of_figure(passage: Passage, figure: ComputedFigure) -> float:
    """Return how likely an expression is about something else than the words around its figure, from 0 to 1."""
    tables = {table.name: (t, table) for t, table in enumerate(passage.tables) if table.kind == "result"}
    uses = [r for r in figure.references if r.result in tables and tables[r.result][1].rows > 1]
    single = [r for r in uses if r.rows is not None and len(r.rows) == 1]
    index = passage.sentence(figure.start)
    doubt = 0.0
    for use in single:
        t, table = tables[use.result]
        near = [
            *passage.labels_in(index, t),
            *passage.labels_in(index - 1, t),
            *(x for x in passage.asked if x.table == t),
        ]
        named = any(use.rows[0] in x.rows for x in near if use.rows and (x.strong or len(x.rows) == 1))
        ranked = _RANKED.search(passage.sentence_text(index)) and not table.periods
        if near and not named and not ranked and (table.name_column is not None or table.periods):
            doubt = _DOUBTFUL
    for use in uses:
        others = [r for r in single if r.result == use.result and r.column != use.column]
        if any(use.rows != r.rows for r in others) and not use.sliced:
            doubt = _DOUBTFUL  # The value of one row and another column of another, or of all.
        for r in single:
            periods = tables[use.result][1].periods
            same = use.divides and not r.divides and (r.result, r.column) == (use.result, use.column) and use in single
            if same and use.rows and r.rows and _is_later(periods.get(use.rows[0]), periods.get(r.rows[0])):
                doubt = _DOUBTFUL  # A change is relative to the earlier value.
    return doubt or (_DOUBTFUL if _has_other_whole(passage, figure) else 0.0)


def _is_later(one: Period | None, other: Period | None) -> bool:
    return one is not None and other is not None and period_sort_key(one) > period_sort_key(other)


def _has_other_whole(passage: Passage, figure: ComputedFigure) -> bool:
    """Return whether a percentage is called one `of all passengers`, but is divided by another column."""
    whole = _WHOLE.match(passage.text[figure.end : figure.end + 60])
    if whole is None or "%" not in passage.text[figure.start : figure.end + 2]:
        return False
    noun = singular_of_plural(whole["noun"].lower())
    wholes = {(r.result, r.column) for r in figure.references if r.divides}
    named = {
        (table.name, column.name)
        for table in passage.tables
        for column in table.columns
        if table.kind == "result" and column.is_measure and noun in column.words
    }
    return bool(wholes and named) and not wholes & named


def _takes_other_row(passage: Passage, figure: ComputedFigure, unnamed: bool = True) -> str:
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
        used = [
            x.values
            for x in table.columns
            if any((r.result, r.column) == (table.name, x.name) for r in figure.references)
        ]
        equal = beside is not None and all(values[beside] == values[rows[0]] for values in used)
        if beside is not None and not here & set(rows) and not equal:
            return f"the sentence names {table.row_label(beside)}, but the expression takes {table.row_label(rows[0])}"
        named = {row for x in [*passage.labels, *passage.asked] if x.table == t for row in x.rows}
        # Years and months need no name: the one before the first year of a sentence is meant, too.
        missing = [
            row for row in rows if unnamed and row not in named and table.name_column is not None and not table.periods
        ]
        if missing and here & set(rows) and not _RANK.search(passage.sentence_text(passage.sentence(figure.start))):
            return f"the expression takes {table.row_label(missing[0])}, which the answer does not name"
    return ""


def find_cells_of_others(passage: Passage, figures: Sequence[ComputedFigure]) -> dict[int, str]:
    """Return the figures that are of other rows than the names before them say, each with the reason."""
    found = ((f, _is_cell_of_another(passage, f) or _takes_other_row(passage, f, unnamed=False)) for f in figures)
    return {figure.start: why for figure, why in found if why}


def _is_cell_of_another(passage: Passage, figure: ComputedFigure) -> str:
    """Say whose value a single cell is, if the name right before the figure is that of another row."""
    cells = {(r.result, r.rows) for r in figure.references}
    for t, table in enumerate(passage.tables):
        rows = [rows for result, rows in cells if result == table.name]
        if len(cells) == 1 and rows and rows[0] and len(rows[0]) == 1 and table.kind == "result" and table.rows > 1:
            row = rows[0][0]
            other = name_of_another_row(passage, figure.start, t, row, figure.references[0].column)
            if other:
                return f"the sentence names {other}, but the value is that of {table.row_label(row)}"
            for m in passage.mentions:
                if figure.start < m.end and m.start < figure.end and passage.anchors(m, t).conflict:
                    return f"the names before it are of different rows; the value is that of {table.row_label(row)}"
    return ""


def name_of_another_row(passage: Passage, at: int, t: int, row: int, column: str) -> str:
    """Return the name right before a place of the text if it is that of another row; else empty.

    Parts of names count too: `Sandra` in `Sandra Bullock` is part of `Sandra Kilmer`, and no name of the row.
    """
    table = passage.tables[t]
    if table.name_column is None or table.printed:
        return ""
    index = passage.sentence(at)
    here = passage.labels_in(index, t)
    before = [x for x in here if x.end <= at and x.column == table.name_column and len(x.rows) == 1]
    if not before or any(row in x.rows for x in here if len(x.rows) == 1):
        return ""
    last = before[-1]
    between = passage.text[last.end : at]
    if any(row in x.rows and x.strong and x.start >= last.end for x in here) or any(c.isdigit() for c in between):
        return ""
    if (
        _RANKED.search(between)
        or _COMPARED.search(between)
        or re.search(r"[;:]|\b(?:together|combined|total)\b", between)
    ):
        return ""
    values = next((x.values for x in table.columns if x.name == column), None)
    if values is not None and values[last.rows[0]] == values[row]:
        return ""
    return table.row_label(last.rows[0])


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
