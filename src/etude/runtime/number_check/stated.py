"""Numbers that results contain, and numbers that need no result: the user's own, parts of names, dates."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime, time
from decimal import Decimal

from etude.runtime.number_check.evidence import (
    COUNT_WORDS,
    EXACT,
    FALLING_WORDS,
    RATIO_WORDS,
    EvidenceTable,
    name_words,
    singular,
)
from etude.runtime.number_check.mentions import TIME_UNITS, Mention, Period, Reading
from etude.runtime.number_check.surroundings import (
    CONVENTIONAL,
    DOWN_AFTER,
    DOWN_BEFORE,
    GENERIC_WORDS,
    GIVEN,
    LEVEL,
    MIDDLE,
    SELECTION,
    UP_AFTER,
    UP_BEFORE,
    WORD,
    GateContext,
    Operand,
    ResultValue,
    focuses_of,
    half_of,
    quarter_of,
)


def find_given(gate: GateContext, mention: Mention) -> str:
    """Explain a number that the user wrote, that is part of a name, or that selects (`the top 3`); else empty."""
    for start, end, _, _ in gate.names:
        name = gate.text[start:end]
        if start <= mention.start and mention.end <= end and not _is_bare_number(name):
            return f"{GIVEN}part of the name `{name}`"
    if mention.kind == "date" and mention.period:
        return _find_date(gate, mention.period)
    if mention.kind == "time":
        return _find_time(gate, mention)
    percent = mention.kind in ("percent", "points")
    allowed = gate.given_percents if percent else gate.given
    if not mention.word or mention.kind == "number":
        for reading in mention.readings:
            if abs(reading.value) in allowed or reading.value in allowed:
                return f"{GIVEN}in the question or the query"
    if re.fullmatch(r"(?:19|20)\d\d", mention.text) and (because := _find_date(gate, Period(int(mention.text)))):
        return because
    before, after = gate.around(mention, 40, 20)
    if CONVENTIONAL.match(after):
        return f"{GIVEN}a conventional level"
    value = mention.readings[0].value if mention.readings else Decimal(0)
    most = max((table.row_count for table in gate.tables), default=0)
    if mention.kind == "ordinal" and 1 <= value <= most:
        return f"{GIVEN}a rank among {most} rows"
    if mention.kind == "number" and not mention.unit and SELECTION.search(before) and 1 <= value <= most:
        return f"{GIVEN}a selection among {most} rows"
    return ""


def _is_bare_number(name: str) -> bool:
    return not any(c.isalpha() for c in name)


def _find_date(gate: GateContext, period: Period) -> str:
    for given in gate.given_periods:
        if _agree(period, given):
            return f"{GIVEN}a date in the question, the query or a name"
    for known, name in gate.periods.items():
        if _agree(period, known):
            return f"{GIVEN}a date in {name}"
    years = [known.year for known in gate.periods if known.year is not None]
    if period.year is None:
        return "" if years else f"{GIVEN}a time of the year"
    if years and min(years) < period.year < max(years):
        return f"{GIVEN}within the dates of the results"
    return ""


def _agree(written: Period, known: Period) -> bool:
    """Return whether two dates agree in every part that both specify."""
    if written.year is None and known.month is None and known.quarter is None:
        return False
    pairs = (
        (written.year, known.year),
        (written.half, half_of(known)),
        (written.quarter, quarter_of(known)),
        (written.month, known.month),
        (written.day, known.day),
    )
    return all(a is None or b is None or a == b for a, b in pairs)


def _find_time(gate: GateContext, mention: Mention) -> str:
    match = re.match(r"(\d{1,2})(?::(\d\d))?", mention.text)
    if match is None:
        return ""
    hour, minute = int(match[1]), int(match[2] or 0)
    hours = {hour, hour % 12 + (12 if "p" in mention.text.lower() else 0)}
    for table in gate.tables:
        for column in table.columns:
            for value in column.values:
                if isinstance(value, datetime | time) and value.hour in hours and value.minute == minute:
                    return f"{GIVEN}a time in {table.name}"
                if isinstance(value, str) and mention.text in value:
                    return f"{GIVEN}a time in {table.name}"
    return f"{GIVEN}in the question" if mention.text in gate.question else ""


def find_stated(gate: GateContext, mention: Mention) -> str:
    """Return where the results contain a number, or an empty text."""
    if mention.parts:  # `3/4 regions` may be two counts.
        found = [find_stated(gate, _plain(mention, part)) for part in mention.parts]
        if all(found):
            return " and ".join(found)
    if mention.kind == "date" and _IN_A_YEAR.search(gate.around(mention, 12, 0)[0]):
        return ""
    for entry in _stated_entries(gate, mention):
        if _is_meant(gate, mention, entry):
            return _describe(gate.tables, entry)
    return ""


_IN_A_YEAR = re.compile(r"\b(?:in|since|during|until|year|on)\s+$", re.I)
_LARGE = 20


def _is_meant(gate: GateContext, mention: Mention, entry: ResultValue) -> bool:
    """Return whether a cell can be the one meant: if a large result contains nearly every number, the row must fit."""
    table = gate.tables[entry.table]
    if entry.row < 0 or table.rows <= _LARGE or table.printed:
        return True
    column = table.columns[entry.column]
    low, high = next(intervals_of(mention))
    width, scale = float(high - low), 0.01 if mention.kind in ("percent", "points") and column.is_fraction else 1
    value = abs(entry.value)
    near = sum(1 for number in column.numbers.values() if value / 1.5 <= abs(number) <= value * 1.5)
    if near * width * scale <= _DENSE * value * (1.5 - 1 / 1.5):
        return True
    focus = gate.focus(gate.sentence(mention))
    named_rows, named_columns = focus.rows.get(entry.table, []), focus.columns.get(entry.table, [])
    measures = [c for c in named_columns if table.columns[c].is_measure]
    if mention.kind == "percent" and measures and entry.column not in measures:
        return False
    rows = [row for other in focuses_of(gate, mention, 1) for row in other.rows.get(entry.table, ())]
    groups = focus.groups.get(entry.table, [])
    if entry.row in rows or any(entry.row in group for _, group in groups):
        return True
    if named_rows:
        return entry.row in column.extremes and entry.column in named_columns
    return mention.kind != "percent" or entry.column in named_columns or entry.row in column.extremes


_DENSE = 0.1


def record_cells(gate: GateContext, mention: Mention, because: str) -> None:
    """Remember the cells that a verified number states, as operands for the numbers near it."""
    if mention.kind in ("date", "time", "ordinal") or because.startswith(GIVEN):
        return
    focus = gate.focus(gate.sentence(mention))
    matches = list(_stated_entries(gate, mention))
    cells = [entry for entry in matches if entry.row >= 0] or [e for e in matches if e.what in ("sum", "rows", "mean")]
    named = [entry for entry in cells if entry.row in focus.rows.get(entry.table, ())]
    for entry in (named or cells)[:2]:
        operand = Operand(entry.value, entry.table, entry.column, entry.row, _describe(gate.tables, entry))
        if operand not in focus.stated:
            focus.stated.append(operand)


def _plain(mention: Mention, value: int) -> Mention:
    return Mention(mention.start, mention.end, mention.text, "number", (Reading(Decimal(value), Decimal(1)),))


def _stated_entries(gate: GateContext, mention: Mention) -> Iterator[ResultValue]:
    """Yield the values of results that a number may state, at its precision and in its unit."""
    if mention.kind == "time":
        return
    counted = _counted_columns(gate, mention)
    direction = direction_of(gate, mention)
    for low, high in intervals_of(mention):
        for sign in (1, -1) if direction < 0 and not mention.signed else (1,):
            bounds = (low, high) if sign > 0 else (-high, -low)
            for factor, units in _factors(gate, mention):
                for entry in gate.lookup(float(bounds[0]) * factor, float(bounds[1]) * factor):
                    if not _has_unit(gate, mention, entry, units) or not _within(entry, bounds, factor):
                        continue
                    if counted is not None and not _counts(gate, mention, entry, counted):
                        continue
                    if sign > 0 and not _direction_fits(gate, mention, entry, direction):
                        continue
                    yield entry


def intervals_of(mention: Mention) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield the intervals of true values that a number may stand for: those that round to it or fit its hedge."""
    for reading in mention.readings:
        value, step = reading.value, reading.step
        low, high = EXACT.subtract(value, step / 2), EXACT.add(value, step / 2)
        vague = mention.word and step != 1
        exact = vague or re.search(r"[.,]\d{1,2}(?!\d)", mention.text)  # 12.0 is precise to the tenth.
        coarse = step if exact else _coarse_step(value, step)
        if mention.hedge == "about":
            low, high = (value - step, value + step) if vague else (value - coarse / 2, value + coarse / 2)
        elif mention.hedge == "over":
            reach = (value / 2 if mention.kind == "times" else Decimal(17)) if vague else coarse
            low, high = value, value + reach
        elif mention.hedge == "under":
            reach = value / 5 if vague else coarse
            low, high = value - reach, value
        yield low, high


def _coarse_step(value: Decimal, step: Decimal) -> Decimal:
    """Return the place value of the last nonzero digit: 1,200 may be rounded to the hundred."""
    exponent = value.normalize(EXACT).as_tuple().exponent
    coarse = Decimal(1).scaleb(exponent) if value and isinstance(exponent, int) else step
    return max(step, coarse)


def _factors(gate: GateContext, mention: Mention) -> list[tuple[float, str]]:
    """Return the factors to convert a written number, each with the kind of column to look in."""
    if mention.kind == "percent":
        return [(1, "percent"), (0.01, "fraction")]
    if mention.kind == "points":
        return [(1, "percent"), (0.01, "fraction")]
    if mention.unit in TIME_UNITS:
        units = {column.unit for table in gate.tables for column in table.columns if column.unit}
        conversions: list[tuple[float, str]] = [
            (float(TIME_UNITS[mention.unit] / TIME_UNITS[unit]), unit) for unit in units
        ]
        return [*conversions, (1, "")]
    return [(1, "")]


_COMPARING = re.compile(r"\s+(?:as|more|the|that|what|its|those|\w+er)\b|\s+[A-Z]", re.A)


def _has_unit(gate: GateContext, mention: Mention, entry: ResultValue, wanted: str) -> bool:
    if entry.what == "columns" and not {"column", "field", "variable"} & set(noun_words(gate, mention)):
        return False
    if entry.column < 0:
        return mention.kind == "number" and mention.unit in ("", *TIME_UNITS) and is_whole(mention)
    if entry.what in ("mean", "median") and not speaks_of(gate, mention, MIDDLE[entry.what]):
        return False
    column = gate.tables[entry.table].columns[entry.column]
    if entry.what in ("distinct", "filled", "missing"):
        return mention.kind == "number" and not mention.unit and is_whole(mention)
    if (
        entry.what in ("date", "text")
        and not mention.word
        and not mention.text.lstrip("#").isdigit()
        and mention.kind != "percent"
    ):
        return False
    if entry.what in ("date", "text") and (mention.kind == "percent" or mention.unit == "money"):
        return entry.what == "text" and mention.kind == "percent" and "%" in str(column.values[entry.row])
    if mention.kind == "times":
        counted = (
            column.whole and mention.text.endswith("times") and not _COMPARING.match(gate.around(mention, 0, 24)[1])
        )
        return bool(column.words & RATIO_WORDS) or (counted and entry.what == "cell")
    if wanted == "percent":
        printed = gate.tables[entry.table].printed
        return column.is_percent or printed or (column.may_be_percent and not mention.word)
    if wanted == "fraction":
        return column.is_fraction or (gate.tables[entry.table].printed and abs(entry.value) <= 2)
    if column.is_percent and not column.whole and is_whole(mention):  # Otherwise 8.3% would match 8.
        named = gate.focus(gate.sentence(mention)).columns.get(entry.table, ())
        return entry.column in named and mention.unit != "money"
    if mention.unit == "money":
        return not column.is_key and not column.words & {"pct", "percent", "percentage"}
    if mention.unit in TIME_UNITS:
        return column.unit == wanted
    return True


def speaks_of(gate: GateContext, mention: Mention, pattern: re.Pattern[str]) -> bool:
    """Return whether the sentence of a number, or the question, matches the pattern."""
    return bool(pattern.search(gate.sentence_text(gate.sentence(mention))) or pattern.search(gate.question))


def is_whole(mention: Mention) -> bool:
    """Return whether a number is written without decimals."""
    return any(r.step == 1 or r.step > 1 for r in mention.readings)


def _within(entry: ResultValue, bounds: tuple[Decimal, Decimal], factor: float) -> bool:
    low, high = bounds
    if entry.exact is None or factor not in (1, 0.01):
        slack = 1e-9 * max(abs(entry.value), 1e-300)
        return float(low) * factor - slack <= entry.value <= float(high) * factor + slack
    exact = entry.exact
    value = Decimal(exact) if isinstance(exact, int | Decimal) else Decimal(str(exact).strip())
    if factor == 0.01:
        value = value.scaleb(2, EXACT)
    return low <= value <= high


def _counted_columns(gate: GateContext, mention: Mention) -> set[tuple[int, int]] | None:
    """Return the columns named by the noun after a whole number; None if it names none."""
    if mention.kind != "number" or mention.unit == "money" or not is_whole(mention) or mention.readings[0].step > 1:
        return None
    words = set(noun_words(gate, mention))
    found = set()
    for t, table in enumerate(gate.tables):
        for c, column in enumerate(table.columns):
            if (column.words - GENERIC_WORDS) & words:
                found.add((t, c))
        if name_words(table.name) & words:
            found.add((t, -1))
    return found or None


def noun_words(gate: GateContext, mention: Mention) -> list[str]:
    """Return the words of the noun after a number, in the singular."""
    _, after = gate.around(mention, 0, 48)
    phrase = re.split(
        r"[,.;:()\n|]|\b(?:in|of|from|and|or|to|at|for|with|while|were|was|are|is|which|that|per|on|across|over|by|against|versus|vs)\b",
        after,
    )[0]
    own = re.findall(r"[A-Za-z]+", mention.text) if mention.unit in TIME_UNITS else []
    return [singular(word.lower()) for word in [*own, *WORD.findall(phrase)[:4]]]


def _counts(gate: GateContext, mention: Mention, entry: ResultValue, counted: set[tuple[int, int]]) -> bool:
    """Return whether a value can be the count of what the noun names."""
    table = gate.tables[entry.table]
    if (entry.table, entry.column) in counted:
        return entry.what not in ("date", "text") and not (entry.what == "cell" and table.columns[entry.column].is_key)
    if entry.what == "rows":
        return any(t == entry.table for t, _ in counted)
    if entry.what in ("columns", "distinct", "filled", "missing", "date", "text"):
        return False
    column = table.columns[entry.column]
    if table.printed or (table.rows == 1 and entry.what == "cell") or column.words & COUNT_WORDS:
        return True
    # A noun that names a measure refers to it; a noun that names things may be counted by any measure.
    if entry.row in gate.focus(gate.sentence(mention)).rows.get(entry.table, ()):
        return not any(t == entry.table and gate.tables[t].columns[c].is_measure for t, c in counted if c >= 0)
    return _is_rare(gate, entry.value)


def _is_rare(gate: GateContext, value: float) -> bool:
    """Return whether so few values are near a whole number that a match by chance is unlikely."""
    low, high = sorted((value / 1.5, value * 1.5))
    near = bisect_right(gate.keys, high) - bisect_left(gate.keys, low)
    return near <= 0.1 * (high - low)


def direction_of(gate: GateContext, mention: Mention) -> int:
    """Return 1 if the words next to a number say up, -1 if they say down, and 0 otherwise."""
    if mention.signed:
        return -1 if mention.readings and mention.readings[0].value < 0 else 1
    before, after = gate.around(mention, 48, 28)
    if LEVEL.search(before):
        return 0
    down = bool(DOWN_BEFORE.search(before)), bool(DOWN_AFTER.match(after))
    up = bool(UP_BEFORE.search(before)) and mention.hedge != "over", bool(UP_AFTER.match(after))
    if any(down) == any(up):
        return 0
    return -1 if any(down) and not (mention.hedge == "under" and not down[1]) else 1 if any(up) else 0


def _direction_fits(gate: GateContext, mention: Mention, entry: ResultValue, direction: int) -> bool:
    """Return whether the sign fits: a fall of 5% is the value -5, or 5 in a column that measures falls."""
    if direction >= 0 or mention.signed or mention.kind not in ("percent", "points") or entry.column < 0:
        return True
    return bool(gate.tables[entry.table].columns[entry.column].words & FALLING_WORDS)


def _describe(tables: list[EvidenceTable], entry: ResultValue) -> str:
    table = tables[entry.table]
    if entry.what == "rows":
        return f"rows of {table.name}"
    if entry.what == "columns":
        return f"columns of {table.name}"
    name = f"{table.name}.{table.columns[entry.column].name}"
    if entry.row < 0:
        return f"{entry.what} of {name}"
    return f"{name}, row {entry.row + 1}"
