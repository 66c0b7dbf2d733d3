"""Numbers that follow from results: shares, changes, differences, ratios, sums, counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Literal, NamedTuple

from etude.runtime.number_check.evidence import EvidenceColumn, EvidenceTable, singular
from etude.runtime.number_check.mentions import TIME_UNITS, Mention, Period
from etude.runtime.number_check.stated import direction_of, intervals_of, is_whole, noun_words, speaks_of
from etude.runtime.number_check.surroundings import (
    ADJACENT,
    AVERAGE,
    CHANGE,
    COMPARED,
    GENERIC_WORDS,
    LARGEST,
    MIDDLE,
    PART_OF,
    REST,
    SHARE,
    SMALLEST,
    WHOLE,
    WORD,
    Focus,
    GateContext,
    Operand,
    focuses_of,
    quarter_of,
)

# Limits per scope, narrow to wide: the expected number of accidental matches, and the number of candidates near the
# value that is always acceptable.
_SCOPES = ((0.5, 4), (0.2, 2), (0.1, 1))
_MAX_OPERANDS = 24


_Signed = Literal["never", "either", "by order"]


class _Candidate(NamedTuple):
    """A derived value. Its sign is meaningful (`by order`), arbitrary (`either`), or always positive (`never`)."""

    value: float
    because: str
    signed: _Signed = "never"


def find_derived(gate: GateContext, mention: Mention) -> str:
    """Explain how a number follows from values: narrow scopes first, and no match that is likely by chance."""
    if mention.kind in ("date", "time", "ordinal"):
        return ""
    if because := _find_count(gate, mention):
        return because
    seen: list[float] = []
    direction = direction_of(gate, mention)
    bounds = [(float(low), float(high)) for low, high in intervals_of(mention)]
    for scope, (chance, few) in enumerate(_SCOPES):
        matched = ""
        for candidate in _candidates(gate, mention, scope):
            if not math.isfinite(candidate.value):
                continue
            seen.append(candidate.value)
            if not matched and _matches(mention, candidate, direction, bounds):
                matched = candidate.because
        if matched and _is_evidence(mention, seen, chance, few):
            return matched
    return ""


def _matches(mention: Mention, candidate: _Candidate, direction: int, bounds: list[tuple[float, float]]) -> bool:
    value = candidate.value
    if candidate.signed == "by order" and direction and (value > 0) != (direction > 0):
        return False
    if candidate.signed == "never" and mention.signed and direction < 0:
        return False
    slack = 1e-9 * max(abs(value), 1e-12)
    for low, high in bounds:
        bottom, top = low, high
        if candidate.signed != "never":
            bottom, top = sorted((abs(low), abs(high)))
            value, bottom = abs(value), 0.0 if low < 0 < high else bottom
        if bottom - slack <= value <= top + slack:
            return True
    return False


def _is_evidence(mention: Mention, seen: list[float], chance: float, few: int) -> bool:
    """Return whether so few candidates are near the number that a match is unlikely by chance."""
    low, high = (float(bound) for bound in next(intervals_of(mention)))
    width, middle = abs(high - low), abs(high + low) / 2
    bottom, top = middle / 1.5, middle * 1.5
    if width == 0:  # Written to more digits than a float has.
        return True
    if middle < width:
        return sum(1 for value in seen if abs(value) <= 3 * width) <= few
    bins = {round(abs(value) / width) for value in seen if bottom <= abs(value) <= top}
    return len(bins) <= few or len(bins) * width / (top - bottom) <= chance


def _candidates(gate: GateContext, mention: Mention, scope: int) -> Iterator[_Candidate]:
    operands = _operands(gate, mention, scope)
    pairs = list(_pairs(gate, mention, scope, operands))
    wider = [*pairs, *_neighbours(gate, mention, scope)] if scope else pairs
    if mention.kind == "percent":
        before, after = gate.around(mention, 44, 44)
        words = re.sub(r"\bm(?:ak|ad)\w+ up\b", "share", f"{before} | {after}")
        sharing = bool(SHARE.search(words)) or bool(PART_OF.match(after))
        changing = bool(CHANGE.search(words)) and not PART_OF.match(after)
        if changing or not sharing:
            yield from _changes(
                pair for pair in wider if scope == 0 or _one_measure(gate, *pair[:2]) or _is_single(gate, pair[0])
            )
            yield from _average_changes(gate, mention, scope)
        if sharing or not changing:
            yield from _shares(gate, mention, operands, pairs, scope)
    elif mention.kind == "points":
        yield from _point_differences(gate, wider)
    elif mention.kind == "times":
        yield from _ratios(wider)
    else:
        yield from _amounts(gate, mention, operands, wider, scope)


def _operands(gate: GateContext, mention: Mention, scope: int) -> list[Operand]:
    """Return the values that a derivation may start from: stated values, cells of named rows, sums of named groups."""
    found: dict[Operand, None] = {}
    for focus in focuses_of(gate, mention, scope):
        found |= dict.fromkeys(focus.stated)
        for t, table in enumerate(gate.tables):
            columns = _columns(gate, focus, t, scope)
            rows = focus.rows.get(t, [])[:8]
            found |= dict.fromkeys(
                _cell(gate, t, c, row) for c in columns for row in rows if row in table.columns[c].numbers
            )
            for what, group in _groups(gate, mention, focus, t):
                found |= dict.fromkeys(_sums(gate, t, columns, what, group))
    return list(found)[: _MAX_OPERANDS * (scope + 1)]


def _columns(gate: GateContext, focus: Focus, t: int, scope: int) -> list[int]:
    """Return the measures that a sentence names or whose values it states, or else those that the question names."""
    table = gate.tables[t]
    measures = [c for c, column in enumerate(table.columns) if column.is_measure]
    named = [c for c in focus.columns.get(t, []) if c in measures]
    stated = [o.column for o in focus.stated if o.table == t and o.column in measures]
    asked = {singular(word) for word in WORD.findall(gate.question.lower())}
    fallback = [c for c in measures if (table.columns[c].words - GENERIC_WORDS) & asked]
    if scope == 0 or (named and scope == 1):
        return list(dict.fromkeys([*named, *stated])) or fallback or measures
    return measures


def _cell(gate: GateContext, t: int, c: int, row: int) -> Operand:
    table = gate.tables[t]
    return Operand(
        table.columns[c].numbers[row], t, c, row, f"{table.name}.{table.columns[c].name} of {table.row_label(row)}"
    )


def _groups(gate: GateContext, mention: Mention, focus: Focus, t: int) -> Iterator[tuple[str, list[int]]]:
    """Yield the rows that a sentence groups: those it lists, those of a period, those between two dates."""
    table, rows = gate.tables[t], focus.rows.get(t, [])
    if 2 <= len(rows) <= 12:
        yield "the named rows", rows
        if len(rows) > 2:  # The others may be compared with one of them.
            yield "the named rows except the first", rows[1:]
            yield "the named rows except the last", rows[:-1]
        if len(rows) == 2 and table.periods:
            yield "the rows between", list(range(min(rows), max(rows) + 1))
    yield from focus.groups.get(t, [])
    if table.complete and rows and REST.search(gate.sentence_text(gate.sentence(mention))):
        yield "the other rows", [row for row in range(table.rows) if row not in rows]


def _sums(gate: GateContext, t: int, columns: Iterable[int], what: str, rows: list[int]) -> Iterator[Operand]:
    table = gate.tables[t]
    for c in columns:
        column = table.columns[c]
        if column.adds_up:
            yield Operand(
                math.fsum(column.numbers[row] for row in rows if row in column.numbers),
                t, c, -2, f"{column.name} of {what}", frozenset(rows),
            )  # fmt: skip


def _selected_sums(gate: GateContext, mention: Mention, columns: dict[int, list[int]]) -> Iterator[Operand]:
    """Yield the sums of the `n` largest or smallest values if the sentence says `top n`."""
    index = gate.sentence(mention)
    text = gate.sentence_text(index)
    counts = {
        int(m.readings[0].value)
        for m in gate.mentions
        if m.kind == "number"
        and gate.sentence(m) == index
        and 1 < m.readings[0].value < 200
        and m.readings[0].step == 1
    }
    counts |= {
        n for word, n in (("two", 2), ("three", 3), ("four", 4), ("five", 5)) if re.search(rf"\b{word}\b", text, re.I)
    }
    for t, table in enumerate(gate.tables):
        for c in columns.get(t, []) if table.complete else []:
            values = table.columns[c].descending
            for n in counts:
                if n < len(values) and LARGEST.search(text):
                    yield Operand(math.fsum(values[:n]), t, c, -3, f"{table.columns[c].name} of the {n} largest")
                if n < len(values) and SMALLEST.search(text):
                    yield Operand(math.fsum(values[-n:]), t, c, -3, f"{table.columns[c].name} of the {n} smallest")
                if n < len(values) and REST.search(text):
                    yield Operand(
                        math.fsum(values[n:]), t, c, -3, f"{table.columns[c].name} of all but the {n} largest"
                    )


def _totals(gate: GateContext) -> list[Operand]:
    """Return the sums of whole columns and the values of results with one row."""
    found = []
    for t, table in enumerate(gate.tables):
        for c, column in enumerate(table.columns):
            if not column.is_measure or not table.complete or not math.isfinite(column.total):
                continue
            if table.rows == 1 or (not table.printed and column.adds_up):
                found.append(Operand(column.total, t, c, -1, f"{table.name}.{column.name} in total"))
    return found[:_MAX_OPERANDS]


def _pairs(
    gate: GateContext, mention: Mention, scope: int, operands: list[Operand]
) -> Iterator[tuple[Operand, Operand, bool]]:
    """Yield pairs to compare, the earlier or first named value first; the flag says whether the order is known."""
    stated = [operand for focus in focuses_of(gate, mention, scope) for operand in focus.stated]
    for i, a in enumerate(operands):
        for b in operands[i + 1 :]:
            if _comparable(gate, a, b) or (a in stated and b in stated):
                yield _ordered(gate, a, b)
    totals = _totals(gate)
    whole = bool(WHOLE.search(gate.sentence_text(gate.sentence(mention))))
    named = any(focus.rows for focus in focuses_of(gate, mention, 0))
    if (scope and not named) or whole or all(table.rows == 1 for table in gate.tables):
        for i, a in enumerate(totals):
            for b in totals[i + 1 :]:
                if (
                    _comparable(gate, a, b)
                    or (scope and a.table == b.table)
                    or (_is_single(gate, a) and _is_single(gate, b))
                ):
                    yield _ordered(gate, a, b)
    if speaks_of(gate, mention, MIDDLE["mean"]):
        for a in operands:
            column = gate.tables[a.table].columns[a.column] if a.column >= 0 else None
            if column is not None and a.row >= 0 and gate.tables[a.table].complete and len(column.numbers) > 2:
                yield (
                    Operand(column.total / len(column.numbers), a.table, a.column, -4, f"mean of {column.name}"),
                    a,
                    True,
                )


def _is_single(gate: GateContext, operand: Operand) -> bool:
    return gate.tables[operand.table].rows == 1


def _comparable(gate: GateContext, a: Operand, b: Operand) -> bool:
    """Return whether two values are of one kind: in one column, in one row, or in columns with the same name."""
    if a.table == b.table:
        if a.column == b.column:  # A sum and a part of it compare only as a share.
            return (a.row >= 0 and b.row >= 0) or bool(a.rows and b.rows and not a.rows & b.rows)
        return (a.row == b.row and a.row >= -1) or gate.tables[a.table].rows == 1
    if a.column < 0 or b.column < 0:
        return False
    left, right = gate.tables[a.table], gate.tables[b.table]
    same = left.columns[a.column].name.lower() == right.columns[b.column].name.lower()
    if a.row >= 0 and b.row >= 0 and left.rows > 1 and right.rows > 1:
        return same and left.row_label(a.row) == right.row_label(b.row)
    return same or left.rows == 1 or right.rows == 1


def _ordered(gate: GateContext, a: Operand, b: Operand) -> tuple[Operand, Operand, bool]:
    if a.table == b.table and a.column == b.column and a.row >= 0 and b.row >= 0:
        periods = gate.tables[a.table].periods
        if a.row in periods and b.row in periods:
            first, second = sorted((a, b), key=lambda o: _sortable(periods[o.row]))
            return first, second, True
    return a, b, False


def _sortable(period: Period) -> tuple[int, int, int]:
    return period.year or 0, period.month or 3 * (quarter_of(period) or 2 * (period.half or 0)), period.day or 0


def _neighbours(gate: GateContext, mention: Mention, scope: int) -> Iterator[tuple[Operand, Operand, bool]]:
    """Pair named rows with the rows before and after them, the first, last, largest and smallest row.

    If no row is named, pair the largest with the smallest and the second largest, and the first or the second last
    with the last.
    """
    for focus in focuses_of(gate, mention, scope):
        for t, table in enumerate(gate.tables):
            named = focus.rows.get(t, [])[:6]
            crowded = len(named) > 1 and not ADJACENT.search(gate.sentence_text(gate.sentence(mention)))
            if table.rows < 2 or (crowded and not (table.periods and direction_of(gate, mention))):
                continue
            for c in _columns(gate, focus, t, 0 if scope == 1 else scope):
                column = table.columns[c]
                ends = [0, table.rows - 1] if table.complete else [0]
                landmarks = [*ends, *(column.extremes if table.complete else ())]
                for row in named:
                    for other in [row - 1] if crowded else dict.fromkeys([row - 1, row + 1, *landmarks]):
                        if other != row and row in column.numbers and other in column.numbers:
                            yield _ordered(gate, _cell(gate, t, c, other), _cell(gate, t, c, row))
                if not named:
                    usual: list[tuple[int, ...]] = [(column.extremes[0], column.extremes[-1]), column.extremes[:2]]
                    if table.periods:
                        usual += [(0, table.rows - 1), (table.rows - 2, table.rows - 1)]
                    for pair in usual if table.complete else []:
                        if len(set(pair)) == 2 and all(row in column.numbers for row in pair):
                            yield _ordered(gate, _cell(gate, t, c, pair[0]), _cell(gate, t, c, pair[1]))


def _changes(pairs: Iterable[tuple[Operand, Operand, bool]]) -> Iterator[_Candidate]:
    for a, b, known in pairs:
        if a.value:
            change = 100 * (b.value - a.value) / abs(a.value)
            yield _Candidate(change, f"change from {a.what} to {b.what}", "by order")
        if b.value and not known:
            change = 100 * (a.value - b.value) / abs(b.value)
            yield _Candidate(change, f"change from {b.what} to {a.what}", "by order")


def _average_changes(gate: GateContext, mention: Mention, scope: int) -> Iterator[_Candidate]:
    if not AVERAGE.search(gate.sentence_text(gate.sentence(mention))):
        return
    focus = gate.focus(gate.sentence(mention))
    for t, table in enumerate(gate.tables):
        for c in _columns(gate, focus, t, scope) if table.complete and table.rows > 2 else []:
            values = list(table.columns[c].numbers.values())
            if all(value > 0 for value in values):
                steps = [100 * (b - a) / a for a, b in pairwise(values)]
                yield _Candidate(
                    math.fsum(steps) / len(steps), f"average change of {table.columns[c].name}", "by order"
                )
                compound = 100 * ((values[-1] / values[0]) ** (1 / (len(values) - 1)) - 1)
                yield _Candidate(compound, f"compound change of {table.columns[c].name}", "by order")


def _shares(
    gate: GateContext, mention: Mention, operands: list[Operand], pairs: list[tuple[Operand, Operand, bool]], scope: int
) -> Iterator[_Candidate]:
    rest = bool(REST.search(gate.sentence_text(gate.sentence(mention))))
    focus = gate.focus(gate.sentence(mention))
    columns = {t: _columns(gate, focus, t, scope) for t in range(len(gate.tables))}
    whole = _whole_columns(gate, mention)
    leading = []
    if not any(o.row >= 0 for o in operands) or scope == 2:
        for t, table in enumerate(gate.tables):
            leading += [_cell(gate, t, c, table.columns[c].extremes[0]) for c in columns[t] if table.complete]
    for a in [*operands, *_selected_sums(gate, mention, columns), *leading]:
        column = gate.tables[a.table].columns[a.column] if a.column >= 0 else None
        if (
            column is None
            or gate.tables[a.table].printed
            or not gate.tables[a.table].complete
            or not math.isfinite(column.total)
            or a.row == -1
        ):
            continue
        if whole and (a.table, a.column) not in whole:
            continue
        if column.total > 0 and column.adds_up:
            share = 100 * a.value / column.total
            yield _Candidate(share, f"share of {a.what} in the total")
            if rest:
                yield _Candidate(100 - share, f"the total without {a.what}, as a share")
    for a, b, _ in pairs:
        for part, all_of in ((a, b), (b, a)):
            if (
                whole
                and all_of.column >= 0
                and not _is_single(gate, all_of)
                and (all_of.table, all_of.column) not in whole
            ):
                continue
            if all_of.value and _may_be_part(gate, part, all_of):
                yield _Candidate(100 * part.value / all_of.value, f"{part.what} as a share of {all_of.what}")


def _whole_columns(gate: GateContext, mention: Mention) -> set[tuple[int, int]]:
    """Return the measures named by the words after a percentage, as in `12% of all orders`."""
    _, after = gate.around(mention, 0, 60)
    match = re.match(r"[\s)*_]*(?:share\s+)?of\s+((?:[A-Za-z']+\s*){1,4})", after)
    words = {singular(word.lower()) for word in WORD.findall(match[1])} if match else set()
    return {
        (t, c)
        for t, table in enumerate(gate.tables)
        for c, column in enumerate(table.columns)
        if column.is_measure and (column.words - GENERIC_WORDS) & words
    }


def _may_be_part(gate: GateContext, part: Operand, whole: Operand) -> bool:
    """Return whether one value can be a share of the other; a rate is not a share of a rate, nor orders of revenue."""
    if part.column < 0 or whole.column < 0:
        return True
    left, right = (gate.tables[o.table].columns[o.column] for o in (part, whole))
    return left.adds_up and right.adds_up and (left.whole == right.whole or left is right)


def _point_differences(gate: GateContext, pairs: list[tuple[Operand, Operand, bool]]) -> Iterator[_Candidate]:
    for a, b, known in pairs:
        if a.column < 0 or b.column < 0:
            continue
        left, right = (gate.tables[o.table].columns[o.column] for o in (a, b))
        signed: _Signed = "by order" if known else "either"
        if left.is_fraction and right.is_fraction:
            yield _Candidate(100 * (b.value - a.value), f"difference of {a.what} and {b.what}", signed)
        if not left.whole or left.is_percent:
            yield _Candidate(b.value - a.value, f"difference of {a.what} and {b.what}", signed)
        if left.total > 0 and right.total > 0 and a.row >= 0 and b.row >= 0:
            change = 100 * (b.value / right.total - a.value / left.total)
            yield _Candidate(change, f"difference of the shares of {a.what} and {b.what}", signed)


def _ratios(pairs: list[tuple[Operand, Operand, bool]]) -> Iterator[_Candidate]:
    for a, b, _ in pairs:
        if a.value:
            yield _Candidate(b.value / a.value, f"ratio of {b.what} to {a.what}")
        if b.value:
            yield _Candidate(a.value / b.value, f"ratio of {a.what} to {b.what}")


def _amounts(
    gate: GateContext, mention: Mention, operands: list[Operand], pairs: list[tuple[Operand, Operand, bool]], scope: int
) -> Iterator[_Candidate]:
    """Yield differences, sums, products and quotients, in the unit that the number is written in."""
    focus = gate.focus(gate.sentence(mention))
    columns = {t: _columns(gate, focus, t, scope) for t in range(len(gate.tables))}
    precise = _has_two_digits(mention)
    summed = bool(WHOLE.search(gate.sentence_text(gate.sentence(mention))))
    if scope and not precise and not direction_of(gate, mention):
        return
    for o in [*(o for o in operands if o.row < -1), *_selected_sums(gate, mention, columns)]:
        yield from _in_units(gate, mention, o, _Candidate(o.value, o.what))
    compared = scope == 0 or bool(COMPARED.search(" ".join(gate.around(mention, 44, 44))))
    for a, b, known in pairs:
        signed: _Signed = "by order" if known else "either"
        if _one_measure(gate, a, b) and compared:
            yield from _in_units(
                gate, mention, a, _Candidate(b.value - a.value, f"difference of {a.what} and {b.what}", signed)
            )
        elif _of_one_thing(gate, a, b) and (precise or (scope == 0 and mention.unit == "money")):
            yield from _combinations(gate, a, b, summed)
    for table in gate.tables:
        if scope and table.complete and mention.unit in TIME_UNITS:
            yield from _spans(mention, table)


def _one_measure(gate: GateContext, a: Operand, b: Operand) -> bool:
    if a.column < 0 or b.column < 0:
        return False
    return gate.tables[a.table].columns[a.column].name.lower() == gate.tables[b.table].columns[b.column].name.lower()


def _of_one_thing(gate: GateContext, a: Operand, b: Operand) -> bool:
    """Return whether two values are different measures in one row, or values of results with one row."""
    if _is_single(gate, a) and _is_single(gate, b):
        return True
    return a.table == b.table and a.row == b.row and not _one_measure(gate, a, b)


def _has_two_digits(mention: Mention) -> bool:
    """Return whether a number has two digits, so that a matching quotient or product is unlikely by chance."""
    return any(abs(reading.value) >= 10 * reading.step for reading in mention.readings)


def _combinations(gate: GateContext, a: Operand, b: Operand, summed: bool) -> Iterator[_Candidate]:
    """Combine two measures of one thing: revenue and orders give revenue per order, price and units give revenue."""
    left, right = (gate.tables[o.table].columns[o.column] if o.column >= 0 else None for o in (a, b))
    x = a.value * (left.factor if left else 1)
    y = b.value * (right.factor if right else 1)
    if left is None or right is None or left.whole == right.whole:
        yield _Candidate(y - x, f"difference of {a.what} and {b.what}", "either")
        if summed:
            yield _Candidate(x + y, f"sum of {a.what} and {b.what}")
    if y:
        yield _Candidate(x / y, f"{a.what} per {b.what}")
    if x:
        yield _Candidate(y / x, f"{b.what} per {a.what}")
    if a.row >= 0 or a.row == b.row == -1:
        yield _Candidate(x * y, f"product of {a.what} and {b.what}")


def _in_units(gate: GateContext, mention: Mention, operand: Operand, candidate: _Candidate) -> Iterator[_Candidate]:
    column = gate.tables[operand.table].columns[operand.column]
    if mention.unit in TIME_UNITS and column.unit:
        factor = float(TIME_UNITS[column.unit] / TIME_UNITS[mention.unit])
        yield _Candidate(candidate.value * factor, candidate.because, candidate.signed)
        return
    yield candidate
    if column.factor != 1:
        yield _Candidate(candidate.value * column.factor, candidate.because, candidate.signed)


def _spans(mention: Mention, table: EvidenceTable) -> Iterator[_Candidate]:
    for column in table.columns:
        days = [value for value in column.values if isinstance(value, date)]
        if len(days) > 1:
            plain = [value.date() if isinstance(value, datetime) else value for value in days]
            span: timedelta = max(plain) - min(plain)
            seconds = float(TIME_UNITS[mention.unit])
            for extra in (0, 1):
                yield _Candidate((span.days + extra) * 86400 / seconds, f"time between first and last {column.name}")


_ABOVE = re.compile(r"\b(?:above|over|more than|exceed\w*|at least|greater than|higher than|beyond|surpass\w*)\b", re.I)
_BELOW = re.compile(r"\b(?:below|under|less than|fewer than|at most|lower than|short of)\b", re.I)
_RISES = re.compile(r"\b(?:grew|growth|increas\w*|rose|rise|gains?)\b", re.I)
_FALLS = re.compile(r"\b(?:declin\w*|decreas\w*|fell|drop\w*|dips?|falls?)\b", re.I)


def _find_count(gate: GateContext, mention: Mention) -> str:
    """Explain a whole number that counts rows: the named ones, those that share a value, those beyond a bound."""
    if mention.kind != "number" or mention.unit or not is_whole(mention) or mention.hedge:
        return ""
    value = mention.readings[0].value
    index = gate.sentence(mention)
    focus, text = gate.focus(index), gate.sentence_text(index)
    if because := _find_span(gate, mention, focus):
        return because
    for t, table in enumerate(gate.tables):
        if value > 1 and len(focus.rows.get(t, ())) == value and not _in_table_row(gate, mention, t):
            return f"rows of {table.name} named in the sentence"
        for what, rows in focus.groups.get(t, []):
            if len(rows) == value and table.complete:
                return f"rows of {table.name} with {what}"
        if not table.complete or table.rows < 2:
            continue
        for c, column in enumerate(table.columns):
            if not column.is_measure:
                continue
            numbers = list(column.numbers.values())
            for bound, sign in _bounds(gate, index, column):
                if sum(1 for number in numbers if (number - bound) * sign > 0) == value:
                    return f"rows of {table.name} with {column.name} {'above' if sign > 0 else 'below'} {bound:g}"
            if table.periods and c in _columns(gate, focus, t, 0):
                steps = [b - a for a, b in pairwise(numbers)]
                for pattern, sign in ((_RISES, 1), (_FALLS, -1)):
                    if pattern.search(text) and sum(1 for step in steps if step * sign > 0) == value:
                        return f"rows of {table.name} in which {column.name} {'rises' if sign > 0 else 'falls'}"
    return ""


def _find_span(gate: GateContext, mention: Mention, focus: Focus) -> str:
    """Explain a number of years, quarters or months from the first to the last row, or between two named rows."""
    words = set(noun_words(gate, mention)[:2]) & {"year", "quarter", "month"}
    for t, table in enumerate(gate.tables):
        rows = [row for row in focus.rows.get(t, []) if row in table.periods]
        ends = [(min(rows), max(rows))] if len(rows) == 2 else []
        # A number one less than the row count is more likely a wrong count of rows.
        if table.complete and table.periods and mention.readings[0].value != table.rows - 1:
            ends.append((min(table.periods), max(table.periods)))
        for first, last in ends:
            a, b = (_sortable(table.periods[row]) for row in (first, last))
            months = abs(12 * (b[0] - a[0]) + b[1] - a[1])
            spans = {"year": months / 12, "quarter": months / 3, "month": float(months)}
            if any(spans[word] == mention.readings[0].value for word in words):
                return f"time from {table.row_label(first)} to {table.row_label(last)}"
    return ""


def _in_table_row(gate: GateContext, mention: Mention, t: int) -> bool:
    """Return whether the number is in a table row of the answer, where it cannot count the named rows."""
    line_start = gate.text.rfind("\n", 0, mention.start) + 1
    return gate.text[line_start : mention.start].lstrip().startswith("|")


def _bounds(gate: GateContext, index: int, column: EvidenceColumn) -> Iterator[tuple[float, int]]:
    """Yield the bounds that a sentence compares with: a number after `above` or `below`, or the average."""
    text = gate.sentence_text(index)
    signs = [sign for pattern, sign in ((_ABOVE, 1), (_BELOW, -1)) if pattern.search(text)]
    for mention in gate.mentions:
        if (
            mention.kind in ("number", "percent")
            and gate.sentence(mention) == index
            and mention.hedge in ("over", "under")
        ):
            for reading in mention.readings:
                yield float(reading.value) / column.factor, 1 if mention.hedge == "over" else -1
                if mention.kind == "percent":
                    yield float(reading.value) / 100, 1 if mention.hedge == "over" else -1
    nearby = text + (gate.sentence_text(index - 1) if index else "")
    if signs and column.numbers and re.search(r"\b(?:average|mean)\b", nearby, re.I):
        for sign in signs:
            yield column.total / len(column.numbers), sign


def find_thresholds(gate: GateContext, found: dict[int, str]) -> dict[int, str]:
    """Accept a bound that the answer chose itself if the count of rows beyond it is right."""
    counted = {
        gate.sentence(gate.mentions[i])
        for i, because in found.items()
        if re.search(r" (?:above|below) [\d.e+-]+$", because)
    }
    return {
        i: "a bound with a correct count of rows beyond it"
        for i, mention in enumerate(gate.mentions)
        if i not in found and mention.hedge in ("over", "under") and gate.sentence(mention) in counted
    }
