"""Results as tables: the values of each column, and what its name says about them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from functools import cached_property

from etude.plurals import singular_of_plural
from etude.runtime.number_check.mentions import (
    MONTHS,
    TIME_UNITS,
    Period,
    find_number_mentions,
    mention_word_set,
    mentioned_seconds,
)


@dataclass(frozen=True)
class Evidence:
    """A computed result: the first rows of a query, out of `row_count`, or the text that a cell printed."""

    name: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[object, ...]] = ()
    row_count: int | None = None
    text: str = ""


_PERCENT_WORDS = mention_word_set(
    "pct percent percentage rate share ratio growth margin change yoy mom qoq proportion fraction discount"
)
RATIO_WORDS = mention_word_set("ratio multiple times factor x fold")
_MONEY_WORDS = mention_word_set(
    "revenue price amount cost sale value spend profit income turnover fee salary budget usd eur gbp"
)
_AVERAGE_WORDS = mention_word_set(
    "avg average mean median rating score price min max rate ratio age temperature latitude longitude"
)
FALLING_WORDS = mention_word_set("decline drop decrease loss churn reduction fall discount")
COUNT_WORDS = mention_word_set("n count cnt num number total qty quantity star rows freq frequency records")
_KEY_WORDS = mention_word_set(
    "id key code zip postcode sku uuid rank position year month week day hour h hr quarter phone"
)
_MEANS = mention_word_set("avg average mean median")
_CALENDAR = {
    "year": (1000, 2500),
    "quarter": (1, 4),
    "month": (1, 12),
    "week": (0, 53),
    "day": (0, 366),
    "hour": (0, 24),
    "h": (0, 24),
    "hr": (0, 24),
}
"""The numbers that parts of dates have; 202401 and 20240131 are dates too."""
_ELAPSED_WORDS = mention_word_set("duration latency elapsed runtime wait")
_SCALE_WORDS = {
    "k": 1e3, "thousand": 1e3, "thousands": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6,
    "bn": 1e9, "billion": 1e9, "billions": 1e9, "cents": 0.01, "cent": 0.01,
}  # fmt: skip
_UNIT_WORDS = {
    "ms": "millisecond", "sec": "second", "secs": "second", "min": "minute", "mins": "minute",
    "hr": "hour", "hrs": "hour",
} | {unit + s: unit for unit in TIME_UNITS for s in ("", "s")}  # fmt: skip
_MAX_ROWS = 5000
HUGE = 1e300
_EPOCH = datetime(1970, 1, 1)
EXACT = Context(prec=6000)


@dataclass
class EvidenceColumn:
    """One column: its values, its numbers by row, and what its name says about them.

    `exact` holds the values that `numbers` came from; `huge` holds the values too large to compute with as floats.
    """

    name: str
    values: list[object]
    words: frozenset[str] = frozenset()
    numbers: dict[int, float] = field(default_factory=dict)
    exact: dict[int, object] = field(default_factory=dict)
    huge: dict[int, object] = field(default_factory=dict)
    factor: float = 1.0
    unit: str = ""
    percents: bool = False
    """Whether the values are texts such as `7.0%`."""

    @cached_property
    def is_key(self) -> bool:
        """Whether the numbers are identifiers or parts of dates, so that their sums and ratios mean nothing."""
        raw = re.split(r"[\W_]+", self.name.lower().strip("_"))
        word = raw[-1] if raw[-1] in _KEY_WORDS else "year" if self.numbers and "year" in self.words else ""
        if not self.whole or "per" in raw or self.words & _MEANS:
            return False  # `avg_years` and `orders_per_day` measure something.
        low, high = _CALENDAR.get(word, (-math.inf, math.inf))
        return bool(word) and all(low <= v <= high or 100_000 <= v < 1e8 for v in self.numbers.values())

    @cached_property
    def periods(self) -> dict[int, Period]:
        """The values that are dates or name a period, by row."""
        return {i: period for i, value in enumerate(self.values) if (period := _period_of(value, self))}

    @cached_property
    def moments(self) -> dict[int, datetime]:
        """The values that are dates or times, by row."""
        if self.is_epoch:
            return {i: _EPOCH + timedelta(seconds=seconds) for i, seconds in self.numbers.items()}
        return {i: moment for i, value in enumerate(self.values) if (moment := _moment_of(value))}

    @cached_property
    def is_epoch(self) -> bool:
        """Whether the numbers are seconds since 1970."""
        named = self.words & {"time", "timestamp", "date", "at", "ts", "epoch", "start", "end"}
        return bool(named and self.numbers) and all(5e8 <= v <= 3e9 and v.is_integer() for v in self.numbers.values())

    @cached_property
    def is_measure(self) -> bool:
        """Whether the numbers measure something."""
        return bool(self.numbers) and not self.is_key and not self.is_epoch

    @cached_property
    def is_percent(self) -> bool:
        """Whether the name says that these are percentages or fractions."""
        return bool(self.words & _PERCENT_WORDS) or "%" in self.name or self.percents

    @cached_property
    def may_be_percent(self) -> bool:
        """Whether the numbers could be percentages although the name does not say so."""
        plain = not self.unit and self.factor == 1 and not self.words & _MONEY_WORDS
        if plain and self.whole and len(self.numbers) > 2:  # Whole percentages are often in steps of five.
            return not self.is_key and all(0 <= v <= 100 and v % 5 == 0 for v in self.numbers.values())
        return plain and not self.whole and not self.is_key and max(map(abs, self.numbers.values())) <= 200

    @cached_property
    def is_fraction(self) -> bool:
        """Whether the numbers may be fractions of one."""
        said = self.words & {"pct", "percent", "percentage"} or "%" in self.name
        return (
            bool(self.numbers)
            and not self.percents
            and not (said and any(abs(v) > 1 for v in self.numbers.values()))
            and all(-10 <= v <= 10 for v in self.numbers.values())
            and (self.is_percent or any(not v.is_integer() for v in self.numbers.values()))
        )

    @cached_property
    def adds_up(self) -> bool:
        """Whether a sum of the numbers is meaningful; a sum of rates is not."""
        if self.whole and re.search(r"(?:^|_)(?:ratings|scores|prices|rates)$", self.name.lower()):
            return True  # How many ratings there are, not how good they are.
        return (not self.is_percent or self.whole) and not self.words & _AVERAGE_WORDS

    @cached_property
    def whole(self) -> bool:
        """Whether all numbers are whole."""
        return all(v.is_integer() for v in self.numbers.values())

    @cached_property
    def total(self) -> float:
        """The sum of the numbers."""
        return math.fsum(self.numbers.values())

    @cached_property
    def extremes(self) -> tuple[int, ...]:
        """The rows of the largest, the second largest and the smallest value."""
        order = sorted(self.numbers, key=self.numbers.__getitem__, reverse=True)
        return tuple(dict.fromkeys([*order[:2], *order[-1:]]))

    @cached_property
    def descending(self) -> list[float]:
        """The numbers, largest first."""
        return sorted(self.numbers.values(), reverse=True)


@dataclass
class EvidenceTable:
    """A result prepared for lookups."""

    name: str
    columns: list[EvidenceColumn]
    rows: int
    row_count: int
    printed: bool = False
    aliases: dict[tuple[str, ...], tuple[tuple[int, ...], bool, str, int]] | None = None
    """The names of the rows, once they were collected."""
    listed: bool = False
    """Whether printed lines are the rows of one table, so that they can be added up."""
    kind: str = "result"
    """`result`, or `schema` and `thread` for what the model was shown."""

    @property
    def complete(self) -> bool:
        """Whether all rows are present, so that their sum is the true sum."""
        return self.rows == self.row_count

    @cached_property
    def name_column(self) -> int | None:
        """The first column whose texts tell the rows apart."""
        for c, column in enumerate(self.columns):
            texts = [value for value in column.values if isinstance(value, str)]
            if not column.numbers and not column.moments and len(texts) == self.rows == len(set(texts)):
                return c
        return None

    @cached_property
    def measures(self) -> list[EvidenceColumn]:
        """The columns that measure something."""
        return [column for column in self.columns if column.is_measure]

    @cached_property
    def periods(self) -> dict[int, Period]:
        """The period of each row, taken from the first column that has periods."""
        return next((column.periods for column in self.columns if column.periods), {})

    @cached_property
    def moments(self) -> dict[int, datetime]:
        """The date of each row, taken from the first column that has dates."""
        return next((column.moments for column in self.columns if column.moments), {})

    @cached_property
    def all_periods(self) -> set[Period]:
        """The dates of all columns."""
        return {period for column in self.columns for period in column.periods.values()}

    @cached_property
    def months(self) -> list[int]:
        """The rows of January to December, if each month is one row; else empty."""
        for column in self.columns:
            found = {_month_of(value): row for row, value in enumerate(column.values)}
            if self.rows == 12 and set(found) == set(range(1, 13)):
                return [found[month] for month in range(1, 13)]
        return []

    @cached_property
    def name_digits(self) -> frozenset[str]:
        """The numbers within texts and names of columns: 25 and 34 of `25-34`, 25 of `q25`."""
        texts = [column.name for column in self.columns]
        for column in [x for x in self.columns if not x.numbers and not x.moments][:1]:
            texts += [value for value in column.values if isinstance(value, str) and len(value) <= 80]
        return frozenset(digits.lstrip("0") for text in texts for digits in re.findall(r"\d+", text.replace(",", "")))

    @cached_property
    def labels(self) -> dict[str, list[int]]:
        """The rows that contain each short text."""
        found: dict[str, list[int]] = {}
        for c, column in enumerate(self.columns):
            for i, value in enumerate(column.values if not (self.printed and c == 1) else ()):
                if isinstance(value, str) and 1 <= len(value) <= 80 and i not in column.moments:
                    found.setdefault(value, []).append(i)
        return found

    def averages(self, column: EvidenceColumn) -> bool:
        """Return whether the mean of a column says something: that of averages does not if their counts differ."""
        return not column.words & _MEANS or not any(other.whole and other.adds_up for other in self.measures)

    def row_label(self, row: int) -> str:
        """Return a name for a row."""
        for column in self.columns:
            value = column.values[row]
            if isinstance(value, str | date):
                return str(value)
        return f"row {row + 1}"


def evidence_tables(evidence: Evidence) -> Iterator[EvidenceTable]:
    """Return a result as tables: one for its rows, and one or more for printed text."""
    if evidence.columns:
        rows = evidence.rows[:_MAX_ROWS]
        columns = [
            _column(name, [row[i] if i < len(row) else None for row in rows]) for i, name in enumerate(evidence.columns)
        ]
        count = len(evidence.rows) if evidence.row_count is None else evidence.row_count
        yield EvidenceTable(evidence.name, columns, len(rows), count)
    if evidence.text:
        yield from _printed_tables(evidence)


def _printed_tables(evidence: Evidence) -> Iterator[EvidenceTable]:
    """Group printed lines by how many numbers they have, so that a printed table becomes a table with columns."""
    groups: dict[int, list[tuple[object, ...]]] = {}
    heads: dict[int, tuple[str, ...]] = {}
    words: list[str] = []
    for line in evidence.text[:200_000].splitlines()[:_MAX_ROWS]:
        head = re.match(r"\s*(\d{1,2}%)(?=\s+[-\d])", line)
        body = line[head.end() :] if head else line
        numbers = [Decimal(n.replace(",", "")) for n in re.findall(_PRINTED_NUMBER, body)]
        if not numbers:
            words = re.findall(r"[^\W\d]\w*", line)
            continue
        if 0 <= len(words) - len(numbers) <= 1 < len(numbers) and len(numbers) not in heads:
            heads[len(numbers)] = tuple(words[-len(numbers) :])
        label = head[1] if head else re.sub(_PRINTED_NUMBER, " ", body).strip(" \t:=|,;()[]{}'\"")
        groups.setdefault(len(numbers), []).append((re.sub(r"\s+", " ", label), line, *numbers))
    pairs = re.findall(_PRINTED_PAIR, evidence.text[:200_000])
    if len(pairs) > 1:
        columns = [_column("label", [name.strip() for name, _ in pairs]), _column("line", [""] * len(pairs))]
        columns.append(_column("value", [Decimal(number.replace(",", "")) for _, number in pairs]))
        yield EvidenceTable(evidence.name, columns, len(pairs), len(pairs), printed=True)
    for width, rows in groups.items():
        usual = tuple(f"value {i + 1}" if width > 1 else "value" for i in range(width))
        names = ("label", "line", *heads.get(width, usual))
        columns = [_column(name, [row[i] for row in rows]) for i, name in enumerate(names)]
        labels = {str(row[0]).lower() for row in rows}
        listed = len(labels) == len(rows) > 2 and "" not in labels and not labels & _STATISTIC_LINES
        yield EvidenceTable(evidence.name, columns, len(rows), len(rows), printed=True, listed=listed)


_STATISTIC_LINES = mention_word_set("mean std min max count median total sum average 25% 50% 75%")
_PRINTED_PAIR = (
    r"([^\W\d][\w .%²/-]{0,30}?)['\"]?\s*[:=]\s*"
    r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?)(?![\w.])"
)
_PRINTED_NUMBER = r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?![\w])"


def _column(name: str, values: list[object]) -> EvidenceColumn:
    column = EvidenceColumn(name, values, evidence_name_words(name))
    for i, value in enumerate(values):
        number = _as_number(value)
        if number is not None and abs(number) > HUGE:
            column.huge[i] = value
        elif number is not None:
            column.numbers[i], column.exact[i] = number, value
    raw = re.split(r"[\W_]+", name.lower())
    column.factor = next((_SCALE_WORDS[word] for word in reversed(raw) if word in _SCALE_WORDS), 1.0)
    column.unit = next((_UNIT_WORDS[word] for word in reversed(raw) if word in _UNIT_WORDS), "")
    if not column.unit and len(raw) > 1 and raw[-1] in ("s", "h"):
        column.unit = "second" if raw[-1] == "s" else "hour"
    texts = [value for value in values if isinstance(value, str)]
    if not column.unit and (
        column.words & _ELAPSED_WORDS or any(mentioned_seconds(text[:20]) is not None for text in texts)
    ):
        column.unit = "second"
    column.percents = bool(texts) and all(text.rstrip().endswith("%") for text in texts)
    return column


_WRITTEN = re.compile(
    r"\s*([-+]?)[$€£]?\s?(\d{1,300}(?:\.\d{1,300})?|\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,9})?)\s?[%€$£]?\s*"
)


def _as_number(value: object) -> float | None:
    """Return the value as a float, infinity if it is too large for one, or None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    if isinstance(value, str) and (written := _WRITTEN.fullmatch(value)):
        value = f"{written[1] or ''}{written[2].replace(',', '')}"
    elif isinstance(value, str):
        stopped = mentioned_seconds(value) if len(value) <= 16 else None
        return None if stopped is None else float(stopped)
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return None if isinstance(value, float) and not math.isfinite(value) else number


def evidence_name_words(name: str) -> frozenset[str]:
    """Return the words of a name in lower case and in the singular."""
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return frozenset(singular_of_plural(word) for word in re.split(r"[\W_\d]+", split.lower()) if word)


_LIKE_A_DATE = re.compile(r"(?<!\d)(?:1[89]|2[01])\d\d(?!\d)|\bQ[1-4]\b|\bFY|\bH[12]\b", re.I)


def _month_of(value: object) -> int:
    if isinstance(value, str):
        dated = re.match(r"\d{4}-(\d\d)\b", value)
        short = value.strip(" .").lower()[:3]
        return int(dated[1]) if dated else next((n for n, name in enumerate(MONTHS, 1) if name[:3] == short), 0)
    return int(value) if isinstance(value, int) else value.month if isinstance(value, date) else 0


def _moment_of(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str) and len(value) <= 32 and re.match(r"\d{4}-\d\d-\d\d", value):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=None)
        except ValueError:
            return None
    if isinstance(value, str) and len(value) <= 24 and _LIKE_A_DATE.search(value):
        for period in (m.period for m in find_number_mentions(value) if m.period):
            if period.year and period.month and period.day:
                return _day(period.year, period.month, period.day)
    return None


def _day(year: int, month: int, day: int) -> datetime | None:
    try:
        return datetime(year, month, day)
    except ValueError:
        return None


def _period_of(value: object, column: EvidenceColumn) -> Period | None:
    if isinstance(value, date):  # A datetime is one too.
        return Period(value.year, None, None, value.month, value.day)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and "year" in column.words:
        return Period(int(value)) if 1500 <= value <= 2500 and value == int(value) else None
    if isinstance(value, str) and len(value) <= 24 and _LIKE_A_DATE.search(value):
        dates = [
            m.period
            for m in find_number_mentions(value)
            if m.kind == "date" and m.end - m.start >= len(value.strip()) - 9
        ]
        return dates[0] if dates else None
    return None
