"""Spans of time in words: `last quarter`, `in March 2024`, `between Jan 1, 2023 and Mar 31, 2023`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from etude.offline.words import Token

MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sep sept", "october oct", "november nov", "december dec"),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
UNITS = {"day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year"}
_ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}
_ENDS = ("last", "final")
_PARTS = {**UNITS, "half": "half"}
"""Units that a longer period has: the last half of a year, the first 3 months of it."""


@dataclass(frozen=True)
class Span:
    """From `start` to before `end`; either may be open."""

    start: date | None
    end: date | None
    text: str
    year: int | None = None
    """Set if the span is a whole year, for columns that hold the year as a number."""
    clear: bool = True
    """False if the words name a time but not exactly: `the last week of 2024` may be seven days or a calendar week."""


@dataclass(frozen=True)
class FoundSpan:
    """A span and the number of tokens it takes."""

    span: Span
    length: int


def find_date_span(tokens: Sequence[Token], at: int, today: date) -> FoundSpan | None:
    """Return the span that starts at this token, or None."""
    reader = _Reader(tokens, at, today)
    span = reader.read()
    if span is None or reader.at == at:
        return None
    text = " ".join(token.text for token in tokens[at : reader.at])
    return FoundSpan(replace(span, text=text), reader.at - at)


def read_date_moment(tokens: Sequence[Token], at: int, today: date) -> FoundSpan | None:
    """Return the day, month, quarter or year that starts at this token, or None."""
    reader = _Reader(tokens, at, today)
    try:
        span = reader.read_moment()
    except (ValueError, OverflowError):
        span = None
    if span is None or reader.at == at:
        return None
    text = " ".join(token.text for token in tokens[at : reader.at])
    return FoundSpan(replace(span, text=text), reader.at - at)


def add_months_to_date(day: date, months: int) -> date:
    """Return the same day `months` later, or the last day of that month."""
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return date(year, month + 1, min(day.day, last))


def add_units_to_date(day: date, unit: str, count: int) -> date:
    """Return the day `count` units later."""
    if unit in ("day", "week"):
        return day + timedelta(days=count * (7 if unit == "week" else 1))
    return add_months_to_date(day, count * {"month": 1, "quarter": 3, "half": 6, "year": 12}[unit])


def first_date_of_unit(day: date, unit: str) -> date:
    """Return the first day of the unit that contains the day."""
    if unit == "week":
        return day - timedelta(days=day.weekday())
    if unit == "month":
        return day.replace(day=1)
    if unit == "quarter":
        return date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
    return date(day.year, 1, 1) if unit == "year" else day


_RELATIVE = frozenset(("last", "past", "previous", "prior", "this", "current", "today", "yesterday", "ytd", "date"))


def dates_of_span(span: Span) -> str:
    """Return the first and last day of a span that depends on today, in brackets; '' if its words say the days."""
    if not _RELATIVE & {*span.text.lower().split()} or span.start is None or span.end is None:
        return ""
    last = span.end - timedelta(days=1)
    return f" ({span.start})" if last == span.start else f" ({span.start} to {last})"


class _Reader:
    """Reads one phrase; `at` moves only past tokens that were understood."""

    def __init__(self, tokens: Sequence[Token], at: int, today: date) -> None:
        self.tokens, self.at, self.today = tokens, at, today

    def low(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.tokens[place].low if place < len(self.tokens) else ""

    def take(self, *phrases: str) -> bool:
        for phrase in phrases:
            words = phrase.split()
            if all(self.low(n) == word for n, word in enumerate(words)):
                self.at += len(words)
                return True
        return False

    def read(self) -> Span | None:
        start = self.at
        try:
            span = self._part() or self._relative() or self._bounded() or self._plain()
        except (ValueError, OverflowError):
            span = None
        if span is None:
            self.at = start
            return None
        self._skip_inclusive()
        return span

    def read_moment(self) -> Span | None:
        """Read one day, month, quarter or year, or one that is relative to today: `last month`."""
        return self._moment() or self._running()

    def _skip_inclusive(self) -> None:
        if self.low() == "(" and self.low(1) in ("inclusive", "both", "including"):
            close = next((n for n in range(2, 12) if self.low(n) == ")"), None)
            if close is not None:
                self.at += close + 1
        elif self.low() == "inclusive":
            self.at += 1

    # --- a part of a longer period

    def _part(self) -> Span | None:
        """`the last 3 months of 2024`, `the second half of last year`, `the first day of March 2024`."""
        start = self.at
        self.take("in", "during", "over", "within", "for", "from", "of", "on")
        self.take("the")
        which, count = self.low(), self._number(1)
        place = self.at + (1 if count is None else 2)
        unit = _PARTS.get(self.tokens[place].base) if place < len(self.tokens) else None
        number = 1 if which in _ENDS else _ORDINALS.get(which)
        if unit is None or number is None or (count is not None and which not in (*_ENDS, "first")):
            self.at = start
            return None
        self.at = place + 1
        whole = self._moment() or self._running() if self.take("of", "in", ",") else None
        if whole is None or whole.start is None or whole.end is None:
            # "The last month of each year" is not last month.
            asks_more = which in _ENDS and self.tokens[self.at - 1].low == "of"
            self.at = self.at if asks_more else start
            return Span(None, None, "", clear=False) if asks_more else None
        if which in _ENDS:
            end = whole.end
            begin = add_units_to_date(end, unit, -(count or 1))
        else:
            begin = add_units_to_date(whole.start, unit, number - 1)
            end = add_units_to_date(begin, unit, count or 1)
        # Weeks do not fill a month or a year, and half a month has no first day.
        fits = unit != "week" and (unit != "half" or whole.year is not None)
        if not fits or begin < whole.start or end > whole.end:
            return Span(None, None, "", clear=False)
        return Span(begin, end, "")

    def _running(self) -> Span | None:
        """`this month`, `last quarter`, without a number."""
        self.take("the")
        which = self.low() in ("last", "previous", "prior", "this", "current")
        return self._last() if which and self._number(1) is None else None

    # --- relative to today

    def _relative(self) -> Span | None:
        start = self.at
        self.take("in", "during", "over", "within", "for", "from", "of")
        self.take("the")
        if self.take("year to date", "ytd"):
            return Span(first_date_of_unit(self.today, "year"), self.today + timedelta(days=1), "")
        if self.take("today"):
            return Span(self.today, self.today + timedelta(days=1), "")
        if self.take("yesterday"):
            return Span(self.today - timedelta(days=1), self.today, "")
        if self.low() in ("last", "past", "previous", "prior", "this", "current"):
            found = self._last()
            if found is not None:
                return found
        self.at = start
        return None

    def _last(self) -> Span | None:
        which = self.low()
        count = self.tokens[self.at + 1].number if self.at + 1 < len(self.tokens) else None
        base = (
            self.tokens[self.at + (2 if count else 1)].base if self.at + (2 if count else 1) < len(self.tokens) else ""
        )
        if base not in UNITS:
            return None
        self.at += 3 if count else 2
        if count is not None:
            if which in ("this", "current") or not isinstance(count, int) or count > 10_000:
                return None
            return Span(add_units_to_date(self.today, base, -count), self.today + timedelta(days=1), "")
        begin = first_date_of_unit(self.today, base)
        if which in ("this", "current"):
            return Span(begin, add_units_to_date(begin, base, 1), "", begin.year if base == "year" else None)
        if which == "past":
            return Span(add_units_to_date(self.today, base, -1), self.today + timedelta(days=1), "")
        begin = add_units_to_date(begin, base, -1)
        return Span(begin, add_units_to_date(begin, base, 1), "", begin.year if base == "year" else None)

    # --- between, since, before

    def _bounded(self) -> Span | None:
        start = self.at
        if self.take("between", "from", "starting from"):
            first = self._moment()
            if first and self.take("and", "to", "until", "through", "till", "-"):
                second = self._moment()
                if second:
                    return Span(first.start, second.end, "")
            self.at = start
        for phrases, side in (
            (("on or after", "since", "starting from", "starting on", "starting", "from"), "from"),
            (("on or before", "until", "till", "up to"), "through"),
            (("after", "later than"), "after"),
            (("before", "prior to", "earlier than"), "before"),
        ):
            if self.take(*phrases):
                self.take("the")
                found = self._moment()
                if found:
                    if side == "from" and self.low() in ("to", "until"):
                        break
                    return {
                        "from": Span(found.start, None, ""),
                        "through": Span(None, found.end, ""),
                        "after": Span(found.end, None, ""),
                        "before": Span(None, found.start, ""),
                    }[side]
                self.at = start
        found = self._moment()
        if found and self.take("or later", "onwards", "and later", "or after"):
            return Span(found.start, None, "")
        if found and self.take("to", "through", "until", "-"):
            second = self._moment()
            if second:
                return Span(found.start, second.end, "")
        self.at = start
        return None

    def _plain(self) -> Span | None:
        start = self.at
        preposition = self.take("in", "during", "on", "for", "of", "within", "from", "throughout")
        self.take("the")
        found = self._moment(bare_year=preposition)
        if found is None:
            self.at = start
        return found

    # --- one day, month, quarter or year

    def _moment(self, bare_year: bool = True) -> Span | None:
        start = self.at
        self.take("the")
        if self.take("year of", "year", "fiscal year", "calendar year"):
            bare_year = True
        found = self._day() or self._month() or self._quarter() or (self._year() if bare_year else None)
        if found is None:
            self.at = start
        return found

    def _day(self) -> Span | None:
        low, start = self.low(), self.at
        if len(low) >= 10 and low[4:5] == "-" and low[:4].isdigit():
            day = date.fromisoformat(low[:10])
            self.at += 1
            return Span(day, day + timedelta(days=1), "")
        number = self._number(0)
        if number and 1 <= number <= 31:
            self.at += 1
            self.take("of")
            month = MONTHS.get(self.low())
            if month:
                self.at += 1
                self.take(",")
                if year := self._take_year():
                    day = date(year, month, number)
                    return Span(day, day + timedelta(days=1), "")
        self.at = start
        month = MONTHS.get(low)
        number = self._number(1)
        if month and number and 1 <= number <= 31:
            self.at += 2
            self.take(",")
            if year := self._take_year():
                day = date(year, month, number)
                return Span(day, day + timedelta(days=1), "")
        self.at = start
        return None

    def _month(self) -> Span | None:
        month, start = MONTHS.get(self.low()), self.at
        if month:
            self.at += 1
            self.take("of", ",")
            if year := self._take_year():
                begin = date(year, month, 1)
                return Span(begin, add_months_to_date(begin, 1), "")
        self.at = start
        return None

    def _quarter(self) -> Span | None:
        start, low = self.at, self.low()
        part, months = None, 3
        if len(low) == 2 and low[0] == "q" and low[1] in "1234":
            part, self.at = int(low[1]), self.at + 1
        elif low in _ORDINALS and self.low(1) in ("quarter", "half"):
            part, months = _ORDINALS[low], 3 if self.low(1) == "quarter" else 6
            self.at += 2
        if part:
            self.take("of", "in", ",")
            self.take("the year")
            if (year := self._take_year()) and part * months <= 12:
                begin = date(year, 1 + (part - 1) * months, 1)
                return Span(begin, add_months_to_date(begin, months), "")
        self.at = start
        return None

    def _year(self) -> Span | None:
        year = self._take_year()
        return Span(date(year, 1, 1), date(year + 1, 1, 1), "", year) if year else None

    def _take_year(self) -> int | None:
        number = self._number(0)
        if number and 1800 <= number <= 2200:
            self.at += 1
            return number
        if self.take("last year", "previous year"):
            return self.today.year - 1
        return self.today.year if self.take("this year", "current year") else None

    def _number(self, ahead: int) -> int | None:
        place = self.at + ahead
        token = self.tokens[place] if place < len(self.tokens) else None
        return token.number if token and isinstance(token.number, int) and token.low[-1:] != "%" else None
