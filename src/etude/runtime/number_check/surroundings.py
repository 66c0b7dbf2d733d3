"""The surroundings of a number in a text: its sentence, and the rows, columns and values the sentence refers to."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import NamedTuple

from etude.runtime.number_check.evidence import HUGE, EvidenceColumn, EvidenceTable, singular
from etude.runtime.number_check.mentions import MONTHS, Mention, Period, find_numbers, month_number, word_set

_SENTENCE_END = re.compile(
    r"\n+(?=\s*(?:[-*+>|#•]|\d+[.)]|$))|(?<=[.!?:;|*])\n+|\n\s*\n|(?<=[.!?])(?<!\bvs\.)(?<!\bapprox\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bca\.)(?<!\bNo\.)[\"')*_]*\s+(?=\S)"
)
WORD = re.compile(r"[^\W\d_]+")
_UP = (
    r"(?:up|grew|grown|grow(?:s|ing)?|growth|rose|risen|ris(?:e|es|ing)|increas\w*|gain\w*|climb\w*|jump\w*|surg\w*|soar\w*|"
    r"higher|more|larger|bigger|greater|above|ahead|uplift|uptick|added|adding|expand\w*|expansion|longer|faster)"
)
_DOWN = (
    r"(?:down|fell|fallen|fall(?:s|ing)?|drop\w*|declin\w*|decreas\w*|los[st]\w*|slip\w*|dip\w*|plung\w*|slump\w*|"
    r"shr[aiu]nk\w*|shed|lower|less|fewer|smaller|below|behind|reduc\w*|contract\w*|shorter|cut)"
)
_BETWEEN = (
    r"(?:\s+(?:by|of|about|around|roughly|nearly|almost|over|just|only|some|a|an|the|another|further|more|than|"
    r"approximately|\w+ly))*[\s:(~\u2248*_]*"
)
UP_BEFORE, DOWN_BEFORE = (re.compile(rf"\b{words}{_BETWEEN}$", re.I) for words in (_UP, _DOWN))
UP_AFTER, DOWN_AFTER = (
    re.compile(
        rf"[\s)*_-]*(?:(?:year-over-year|yoy|overall|month-over-month|annual|relative|net|of)\s+)?{words}\b", re.I
    )
    for words in (_UP, _DOWN)
)
LEVEL = re.compile(
    r"\b(?:to|at|from|reach\w*|stood|hit)\s+(?:about|around|roughly|nearly|almost|over|just|only|a|an|the|\s)*[(*_$€£]*$",
    re.I,
)
CHANGE = re.compile(
    rf"\b(?:{_UP}|{_DOWN}|chang\w*|compar\w*|vs|versus|differ\w*|improv\w*|exceed\w*|outpac\w*|lead\w*|cagr|rate)\b",
    re.I,
)
SHARE = re.compile(
    r"\b(?:share\w*|account\w*|represent\w*|contribut\w*|mak\w+ up|made up|compris\w*|portion|proportion|"
    r"percentage|rate|concentrat\w*|total|remaining|rest|others?|together|combined|overall|all)\b",
    re.I,
)
PART_OF = re.compile(r"[\s)*_]*(?:share\s+)?of\s", re.I)
WHOLE = re.compile(
    r"\b(?:total\w*|overall|altogether|combined|together|all|entire|sum|in aggregate|full[- ]year)\b", re.I
)
REST = re.compile(r"\b(?:remain\w*|rest|others?|excluding|except|without|leaves?|left|balance)\b", re.I)
AVERAGE = re.compile(r"\b(?:average\w*|mean|avg|typical\w*|per|cagr|annuali[sz]ed|compound\w*)\b", re.I)
MIDDLE = {
    "mean": re.compile(r"\b(?:average\w*|mean|avg|typical\w*|per|each|every|expect\w*|ø)\b", re.I),
    "median": re.compile(r"\b(?:median|middle|typical\w*|half)\b", re.I),
}
ADJACENT = re.compile(
    r"\b(?:previous|prior|preceding|before|next|following|earlier|later|mom|m/m|qoq|yoy|\w+-over-\w+|sequential\w*|runner-up)\b",
    re.I,
)
COMPARED = re.compile(
    rf"\b(?:{_UP}|{_DOWN}|gap|differ\w*|margin|lead\w*|chang\w*|by|vs|versus|compar\w*|spread|range\w*|swing)\b", re.I
)
SELECTION = re.compile(
    r"\b(?:top|bottom|first|last|latest|past|previous|next|largest|biggest|highest|lowest|smallest|leading|best|worst|recent|final)[\s-]+(?:\w+\s+)?[*_]*$",
    re.I,
)
LARGEST = re.compile(r"\b(?:top|largest|biggest|highest|leading|best|first|main)\b", re.I)
SMALLEST = re.compile(r"\b(?:bottom|smallest|lowest|worst|last|weakest)\b", re.I)
CONVENTIONAL = re.compile(r"\s*(?:confidence|significance|percentile|credible)\b|\s*/\s*7\b", re.I)
GENERIC_WORDS = word_set("name id key avg mean sum total n count num number of the per by value label line text a in")


@dataclass
class Focus:
    """What one sentence refers to: rows by table, groups of rows, columns, and values that it states."""

    rows: dict[int, list[int]] = field(default_factory=dict)
    groups: dict[int, list[tuple[str, list[int]]]] = field(default_factory=dict)
    columns: dict[int, list[int]] = field(default_factory=dict)
    stated: list[Operand] = field(default_factory=list)


@dataclass(frozen=True)
class Operand:
    """A value that derivations start from: a cell (`row` >= 0), or the sum of several (`row` < 0)."""

    value: float
    table: int
    column: int
    row: int
    what: str = field(compare=False)
    rows: frozenset[int] = frozenset()


class ResultValue(NamedTuple):
    """A value of a result, or a simple statistic of one of its columns."""

    value: float
    table: int
    column: int
    row: int
    what: str
    exact: object = None


class GateContext:
    """Everything that the numbers of one text are checked against."""

    def __init__(
        self, text: str, mentions: Sequence[Mention], tables: list[EvidenceTable], question: str, context: Sequence[str]
    ) -> None:
        self.text, self.mentions, self.tables, self.question = text, mentions, tables, question
        self.starts = [0, *(match.end() for match in _SENTENCE_END.finditer(text))]
        self.given, self.given_percents, self.given_periods = _given_numbers(question, context, tables)
        self.names = _name_spans(text, tables)
        self.entries = sorted(_entries(tables), key=lambda entry: entry.value)
        self.keys = [entry.value for entry in self.entries]
        self.periods = {period: table.name for table in tables for period in table.all_periods}
        self.focuses: dict[int, Focus] = {}

    def sentence(self, mention: Mention) -> int:
        """Return the index of the sentence that contains a number."""
        return bisect_right(self.starts, mention.start) - 1

    def sentence_text(self, index: int) -> str:
        """Return the text of a sentence."""
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[index] : end]

    def around(self, mention: Mention, before: int, after: int) -> tuple[str, str]:
        """Return the text before and after a number, within its sentence."""
        index = self.sentence(mention)
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        return (
            self.text[max(self.starts[index], mention.start - before) : mention.start],
            self.text[mention.end : min(end, mention.end + after)],
        )

    def focus(self, index: int) -> Focus:
        """Return what a sentence refers to."""
        if index not in self.focuses:
            self.focuses[index] = _read_focus(self, index)
        return self.focuses[index]

    def lookup(self, low: float, high: float) -> Iterator[ResultValue]:
        """Yield the values of results between two bounds."""
        if max(abs(low), abs(high)) > HUGE:
            yield from (entry for entry in self.entries if math.isinf(entry.value))
            return
        slack = 1e-9 * max(abs(low), abs(high))
        first, last = bisect_left(self.keys, low - slack), bisect_right(self.keys, high + slack)
        yield from self.entries[first:last]


GIVEN = "given: "


def _given_numbers(
    question: str, context: Sequence[str], tables: list[EvidenceTable]
) -> tuple[set[Decimal], set[Decimal], list[Period]]:
    """Return the numbers, percentages and dates of the question, the queries and the names of tables and columns."""
    plain: set[Decimal] = set()
    percents: set[Decimal] = set()
    periods: list[Period] = []
    names = [re.sub(r"_", " ", column.name) for table in tables for column in table.columns]
    names += [re.sub(r"_", " ", table.name) for table in tables]
    labels = (str(value) for table in tables if table.printed for value in table.columns[0].values)
    for text in (question, *context, *names, *labels):
        percents |= {Decimal(n) for n in re.findall(r"\bp(\d\d)\b", text)}  # p95 means 95%.
        for mention in find_numbers(text):
            values = {reading.value for reading in mention.readings}
            (percents if mention.kind in ("percent", "points") else plain).update(values)
            if mention.period:
                periods.append(mention.period)
        for digits in re.findall(r"(?<![\w.])\d{1,15}(?:\.\d{1,9})?(?![\w.])", text):
            plain.add(Decimal(digits))
            if len(digits) == 4 and 1500 <= int(float(digits)) <= 2500:
                periods.append(Period(int(digits)))
    return plain, percents, periods


def _name_spans(text: str, tables: list[EvidenceTable]) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Return where names occur in the text: start, end, table, rows. The name of a column has no rows."""
    lower = text.lower()
    found = []
    for t, table in enumerate(tables):
        names: list[tuple[str, tuple[int, ...]]] = [(label, tuple(rows)) for label, rows in table.labels.items()]
        names += [(column.name, ()) for column in table.columns]
        for name, rows in names:
            exact = len(name) <= 2
            wanted = name if exact else name.lower()
            where = text if exact else lower
            at = where.find(wanted)
            while at >= 0 and wanted.strip():
                end = at + len(wanted)
                if not (where[at - 1 : at].isalnum() and wanted[0].isalnum()) and not (
                    where[end : end + 1].isalnum()
                    and wanted[-1].isalnum()
                    and where[end : end + 2] not in ("s ", "s,", "s.")
                ):
                    found.append((at, end, t, rows))
                at = where.find(wanted, end)
    return sorted(found)


_DIGITS = re.compile(r"\d{1,15}(?:\.\d{1,9})?")


def _entries(tables: list[EvidenceTable]) -> Iterator[ResultValue]:
    for t, table in enumerate(tables):
        if not table.printed:
            yield ResultValue(table.row_count, t, -1, -1, "rows", table.row_count)
            yield ResultValue(len(table.columns), t, -1, -1, "columns", len(table.columns))
        for c, column in enumerate(table.columns):
            for row, number in column.numbers.items():
                yield ResultValue(number, t, c, row, "cell", column.exact[row])
                if column.factor != 1:
                    yield ResultValue(number * column.factor, t, c, row, "scaled")
            for row, value in column.huge.items():
                yield ResultValue(math.inf, t, c, row, "cell", value)
            if table.complete and not table.printed:
                yield from _column_facts(t, c, column)
            if not column.numbers and not table.printed:
                yield from _numbers_in_texts(t, c, column)


def _column_facts(t: int, c: int, column: EvidenceColumn) -> Iterator[ResultValue]:
    if not column.is_measure or column.whole:
        filled = [value for value in column.values if value is not None]
        distinct = len({value if isinstance(value, str | int | float | date) else str(value) for value in filled})
        yield ResultValue(distinct, t, c, -1, "distinct", distinct)
        if len(filled) < len(column.values):
            yield ResultValue(len(filled), t, c, -1, "filled", len(filled))
            yield ResultValue(len(column.values) - len(filled), t, c, -1, "missing", len(column.values) - len(filled))
    if column.is_measure and len(column.numbers) > 1 and math.isfinite(column.total):
        middle = column.descending
        half = len(middle) // 2
        median = middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
        facts = [("mean", column.total / len(middle)), ("median", median)]
        if column.adds_up:
            facts.append(("sum", column.total))
        for what, value in facts:
            yield ResultValue(value, t, c, -1, what)
            if column.factor != 1:
                yield ResultValue(value * column.factor, t, c, -1, what)


def _numbers_in_texts(t: int, c: int, column: EvidenceColumn) -> Iterator[ResultValue]:
    parts: dict[tuple[str, str], int] = {}
    for row, value in enumerate(column.values):
        if isinstance(value, date):
            for part in (value.year, value.month, value.day):
                parts.setdefault(("date", str(part)), row)
        elif isinstance(value, str) and len(value) <= 80:
            for digits in _DIGITS.findall(value):
                parts.setdefault(("text", digits), row)
    for (what, digits), row in parts.items():
        yield ResultValue(float(digits), t, c, row, what, Decimal(digits))


def _read_focus(gate: GateContext, index: int) -> Focus:
    focus = Focus()
    text = gate.sentence_text(index)
    start, end = gate.starts[index], gate.starts[index] + len(text)
    for at, _, t, rows in gate.names:
        if start <= at < end and len(rows) == 1:
            focus.rows.setdefault(t, []).extend(row for row in rows if row not in focus.rows.get(t, ()))
        elif start <= at < end and rows:
            focus.groups.setdefault(t, []).append((gate.text[at:_], list(rows)))
    words = {singular(word) for word in WORD.findall(text.lower())}
    periods = _written_periods(gate, start, text)
    for t, table in enumerate(gate.tables):
        named = [c for c, column in enumerate(table.columns) if (column.words - GENERIC_WORDS) & words]
        if named:
            focus.columns[t] = named
        for written, period in periods:
            inside = [row for row, other in table.periods.items() if _covers(period, other)]
            if len(inside) == 1 and inside[0] not in focus.rows.get(t, ()):
                focus.rows.setdefault(t, []).extend(inside)
            elif 1 < len(inside) < table.rows:
                focus.groups.setdefault(t, []).append((written, inside))
    return focus


def focuses_of(gate: GateContext, mention: Mention, scope: int) -> list[Focus]:
    """Return the focus of the sentence and, in a wider scope, of the one before it on the same line."""
    index = gate.sentence(mention)
    focuses = [gate.focus(index)]
    if scope and index and "\n" not in gate.text[gate.starts[index - 1] : gate.starts[index]]:
        focuses.append(gate.focus(index - 1))
    return focuses


def _written_periods(gate: GateContext, start: int, text: str) -> list[tuple[str, Period]]:
    found = [(m.start, m.text, m.period) for m in gate.mentions if m.period and start <= m.start < start + len(text)]
    taken = {at for at, _, _ in found}
    for match in re.finditer(rf"\b(?:{'|'.join(MONTHS)}|(?:{'|'.join(m[:3] for m in MONTHS)}|sept)\b\.?)", text, re.I):
        if match.group()[0].isupper() and start + match.start() not in taken:
            found.append((start + match.start(), match.group(), Period(month=month_number(match.group()))))
    years = {period.year for _, _, period in found if period.year}
    for match in re.finditer(r"\b(first|second|1st|2nd)[\s-]half\b|\bH([12])\b(?!\s?\d)", text):
        half = int(match[2]) if match[2] else 1 if match[1] in ("first", "1st") else 2
        found.append((start + match.start(), match.group(), Period(min(years) if len(years) == 1 else None, half)))
    return [(written, period) for _, written, period in sorted(found, key=lambda item: item[0])]


def quarter_of(period: Period) -> int | None:
    """Return the quarter that contains a period."""
    return period.quarter or ((period.month + 2) // 3 if period.month else None)


def half_of(period: Period) -> int | None:
    """Return the half of the year that contains a period."""
    quarter = quarter_of(period)
    return period.half or ((quarter + 1) // 2 if quarter else None)


def _covers(outer: Period, inner: Period) -> bool:
    """Return whether a written period includes a row's: `2024` includes March 2024, and `March` any March."""
    return all(
        wanted is None or wanted == have
        for wanted, have in (
            (outer.year, inner.year),
            (outer.half, half_of(inner)),
            (outer.quarter, quarter_of(inner)),
            (outer.month, inner.month),
            (outer.day, inner.day),
        )
    )
