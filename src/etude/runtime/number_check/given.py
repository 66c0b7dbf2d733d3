"""Numbers that need no result: the user's own, parts of names, dates, literals of the code, conventional levels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import time, timedelta
from decimal import Decimal

from etude.runtime.number_check.evidence import EvidenceTable
from etude.runtime.number_check.mentions import Mention, Period, find_number_mentions
from etude.runtime.number_check.named_numbers import find_named_number
from etude.runtime.number_check.passage import Passage
from etude.runtime.number_check.periods import half_of_period, quarter_of_period

_SELECTION = re.compile(
    r"\b(?:top|bottom|first|last|latest|past|previous|next|largest|biggest|highest|lowest|smallest|"
    r"leading|best|worst|recent|final)[\s-]+(?:\w+\s+)?[*_]*$",
    re.I,
)
_SELECTED = re.compile(
    r"\s+(?:largest|biggest|highest|lowest|smallest|best|worst|top|leading|longest|shortest|busiest|oldest|newest)\b",
    re.I,
)
_CONVENTIONAL = re.compile(r"\s*(?:confidence|significance|percentile|credible|quartile)\b|\s*/\s*7\b", re.I)
_LEVELS = frozenset(map(Decimal, ("0.05", "0.01", "0.001", "0.1", "5", "1", "95", "99", "90")))
_LEVEL = re.compile(r"\b(?:significan\w*|p-values?|alpha|threshold|confidence|level)\b", re.I)
_CLOCK = {"24": "hour", "60": "minute", "7": "day", "12": "month", "52": "week", "365": "day", "366": "day"}
_SCALE = re.compile(r"\b(?:out of|auf einer Skala bis|sur|scale (?:of|to))\s+$", re.I)


_LEAST = 5
"""Code is full of smaller numbers that are not worth repeating."""


@dataclass
class Given:
    """The numbers, percentages and dates of the question, the code, the schema and the names of columns."""

    plain: set[Decimal]
    percents: set[Decimal]
    periods: list[Period]
    named: set[tuple[str, str]]
    """Words with a number behind them, such as `day 7`, from names of columns and labels."""


_PERIODS = {"d": "day", "w": "week", "m": "month", "y": "year"}


def collect_given(question: str, context: Sequence[str], tables: list[EvidenceTable]) -> Given:
    """Collect what an answer may repeat without a result."""
    given = Given(set(), set(), [], set())
    names = [column.name for table in tables for column in table.columns]
    names += [table.name for table in tables]
    names += [value for table in tables for value in list(table.labels)[:2000]]
    for name in names:
        given.named |= {(w.lower(), n) for w, n in re.findall(r"(?<![^\W\d_])([^\W\d_]+)[\s_-]*(\d+)", name)}
        given.named |= {
            (_PERIODS[w.lower()], n) for w, n in re.findall(r"(?<![^\W\d_])([dwmy])(\d+)(?!\w)", name, re.I)
        }
    printed = (str(value) for table in tables if table.printed for value in table.columns[0].values)
    columns = [re.sub(r"_", " ", column.name) for table in tables for column in table.columns]
    columns += [re.sub(r"_", " ", table.name) for table in tables if not re.fullmatch(r"[rp]\d+", table.name)]
    columns += [re.sub(r"([a-z])(\d)", r"\1 \2", name) for name in columns]
    for text in (question, *columns, *printed):
        _add(given, text)
    asked = set(given.plain)
    for text in context:
        _add(given, text)
    given.plain = {n for n in given.plain if n in asked or abs(n) >= _LEAST}
    return given


def _add(given: Given, text: str) -> None:
    given.percents |= {Decimal(n) for n in re.findall(r"\bp(\d\d)\b", text)}  # p95 means 95%.
    for mention in find_number_mentions(text):
        values = {reading.value for reading in mention.readings}
        (given.percents if mention.kind in ("percent", "points") else given.plain).update(values)
        if mention.period:
            given.periods.append(mention.period)
    for quarter in re.findall(r"\bq([1-4])\b", text):
        given.periods.append(Period(quarter=int(quarter)))
    for digits in re.findall(r"(?<![\w.])\d{1,15}(?:\.\d{1,9})?(?![\w.])", text):
        given.plain.add(Decimal(digits))
        if 0 < Decimal(digits) < 1:
            given.percents.add(Decimal(digits) * 100)
        if len(digits) == 4 and 1500 <= int(float(digits)) <= 2500:
            given.periods.append(Period(int(digits)))
    given.periods += [Period(int(y)) for y in re.findall(r"(?<!\d)((?:19|20)\d\d)(?!\d)", text)]


def find_given(passage: Passage, given: Given, mention: Mention) -> str:
    """Explain a number that the user wrote, that is part of a name, or that selects (`the top 3`); else empty."""
    for label in passage.labels:
        name = passage.text[label.start : label.end]
        inside = label.start <= mention.start and mention.end <= label.end and mention.kind != "date"
        if inside and (any(c.isalpha() for c in name) or label.column >= 0):
            return f"part of the name `{name}`"
    if _OFFER.match(passage.sentence_text(passage.sentence(mention.start))):
        return "part of an offer"
    before, after = passage.around(mention, 40, 20)
    word = re.search(r"([^\W\d_]+)[\s_-]*$", before)
    if word and (word[1].lower(), mention.text) in given.named:
        return "part of a name"
    if _is_numbering(passage, mention):
        return "the number of a line"
    if because := find_named_number(passage, mention):
        return because
    if _is_part_of_label(passage, mention):
        return "part of a name"
    if any(m is mention for m in passage.misdated):
        return ""
    if mention.kind == "date" and mention.period and (because := _find_later(passage, mention)):
        return because
    if mention.kind == "number" and re.search(r"\bday\s+$", before, re.I) and mention.readings[0].value <= 1000:
        return "the number of a day" if any(table.moments for table in passage.tables) else ""
    if mention.kind == "date" and mention.period:
        return _find_date(passage, given, mention.period) or _find_year(passage, mention)
    if mention.kind == "time":
        return _find_time(passage, mention)
    allowed = given.percents if mention.kind in ("percent", "points") else given.plain
    if not mention.word or mention.kind == "number":
        for reading in mention.readings:
            if abs(reading.value) in allowed or reading.value in allowed:
                return "in the question or the query"
    if re.fullmatch(r"(?:19|20)\d\d", mention.text) and (
        because := _find_date(passage, given, Period(int(mention.text)))
    ):
        return because
    if mention.word and mention.kind == "percent" and _by_definition(passage, mention):
        return "by the definition of a quantile"
    if _CONVENTIONAL.match(after):
        return "a conventional level"
    if (
        re.search(r"\bp\s*(?:-?value)?\s*(?:<|=|≤|of)?\s*$", before, re.I)
        and mention.hedge == "under"
        and mention.readings
    ):
        limit = float(mention.readings[0].value)
        if any(0 <= v < limit for table in passage.tables for c in table.columns for v in c.numbers.values()):
            return "a conventional level"
    value = mention.readings[0].value if mention.readings else Decimal(0)
    if because := _by_convention(passage, mention, value):
        return because
    most = max((table.row_count for table in passage.tables), default=0)
    if mention.kind == "ordinal" and 1 <= value <= max(most, 3):
        return f"a rank among {most} rows"
    if mention.kind == "ordinal" and any(p.day == value for table in passage.tables for p in table.all_periods):
        return "a day of a date"
    if mention.kind == "number" and 1 <= value <= max(most, 3) and _PLACE.search(before):
        return f"a rank among {most} rows"
    if mention.kind == "number" and not mention.unit and 1 <= value <= most and _SELECTED.match(after):
        return f"a selection among {most} rows"
    whole = value == int(value) and "." not in mention.text
    if mention.kind == "number" and not mention.unit and whole and _SELECTION.search(before) and 1 <= value <= most:
        return f"a selection among {most} rows"
    return ""


_OFFER = re.compile(
    r"\W*(?:(?:do you )?want me to|would you like|shall i|should i|let me know|"
    r"i can (?:also )?(?:add|break|extend|show|run|compute|prepare|make|split|drill|look|include)|"
    r"soll ich|möchten sie|souhaitez-vous|voulez-vous|quiere que|¿quieres|quer que)\b",
    re.I,
)
_NUMBERING = re.compile(r"\W*(?:#|no\.?|nr\.?|rank|place|position|pos\.?)?\W*$", re.I)
_PLACE = re.compile(
    r"\b(?:places?|positions?|ranks?|ranked|rows?|lines?|steps?|spots?)\s+(?:\w+\s+(?:to|and|-)\s+)?[#*_]*$", re.I
)


def _is_numbering(passage: Passage, mention: Mention) -> bool:
    """Return whether a number numbers the lines of a Markdown table: its heading is `#` and it is their count."""
    start = passage.text.rfind("\n", 0, mention.start) + 1
    if mention.kind != "number" or passage.text[start : mention.start].strip(" *_") != "|":
        return False
    header = passage.header(mention)
    above = passage.text[:start].split("\n")[:-1]
    lines = 0
    while above and above[-1].lstrip().startswith("|"):
        above.pop()
        lines += 1
    return bool(header) and bool(_NUMBERING.fullmatch(header)) and mention.readings[0].value == lines - 1


def _is_part_of_label(passage: Passage, mention: Mention) -> bool:
    """Return whether a number is part of a short form of a name, as 400 in `747-400` for `Boeing 747-400`."""
    text = passage.text
    start, end = mention.start, mention.end
    while start and (text[start - 1].isalnum() or text[start - 1] in "-/."):
        start -= 1
    while end < len(text) and (text[end].isalnum() or (text[end] in "-/" and text[end + 1 : end + 2].isalnum())):
        end += 1
    token = text[start:end]
    if len(token) == mention.end - mention.start or len(token) < 4:
        return False
    return any(
        re.search(rf"(?<!\w){re.escape(token)}(?!\w)", name)
        for table in passage.tables
        for name in list(table.labels)[:2000]
        if token in name
    )


def _by_convention(passage: Passage, mention: Mention, value: Decimal) -> str:
    """Explain a level of significance, the hours of a day, or the top of a scale such as `4.2 out of 5`."""
    before, after = passage.around(mention, 24, 14)
    sentence = passage.sentence_text(passage.sentence(mention.start))
    if value in _LEVELS and _LEVEL.search(sentence) and (value < 1 or mention.kind == "percent"):
        return "a conventional level"
    unit = mention.unit or next(iter(re.findall(r"^[\s-]*([a-z]+?)s?\b", after)), "")
    counted = re.search(r"[\u00d7*(/]|\bper\b|\ba day\b", before[-3:] + after)
    if counted and not mention.word and _CLOCK.get(f"{value:f}") == unit:
        return "a number of the calendar"
    if (
        value in (5, 10, 100)
        and mention.kind == "number"
        and _SCALE.search(before)
        and not re.match(r"\s*[a-z]", after)
    ):
        return "the top of a scale"
    return ""


def _by_definition(passage: Passage, mention: Mention) -> bool:
    """Return whether `half of them are below` repeats what the median is."""
    level = f"{mention.readings[0].value:.0f}"
    index = passage.sentence(mention.start)
    text = passage.sentence_text(index)
    if level not in ("50", "25", "75") or not re.search(
        r"\b(?:below|above|under|over|less|more|between|at most|at least)\b", text, re.I
    ):
        return False
    lines = any(str(v).strip() == f"{level}%" for t in passage.tables if t.printed for v in t.columns[0].values)
    return lines or (level == "50" and "median" in passage.text.lower())


def _find_later(passage: Passage, mention: Mention) -> str:
    """Explain a date that differs from a result by the number of days in the sentence."""
    period, index = mention.period, passage.sentence(mention.start)
    if period is None or period.day is None or period.month is None:
        return ""
    days = {
        int(m.readings[0].value)
        for m in passage.mentions
        if m.kind == "number" and m.readings and passage.sentence(m.start) == index and m.readings[0].value <= 1000
    }
    for table in passage.tables:
        for moment in list(table.moments.values())[:200]:
            for n in (n for n in days if n > 0):
                later = moment + timedelta(days=n)
                if (later.month, later.day) == (period.month, period.day) and period.year in (None, later.year):
                    return f"{n} days after {moment.date()}"
    return ""


def _find_date(passage: Passage, given: Given, period: Period) -> str:
    if any(_agree(period, known) for known in given.periods):
        return "a date in the question, the query or a name"
    if (
        period.quarter
        and period.year is None
        and any(
            column.is_key and "quarter" in column.words and period.quarter in column.numbers.values()
            for table in passage.tables
            for column in table.columns
        )
    ):
        return "a quarter of the results"
    known_periods = {p: table.name for table in passage.tables for p in table.all_periods}
    for known, name in known_periods.items():
        if _agree(period, known):
            return f"a date in {name}"
    years = [known.year for known in known_periods if known.year is not None]
    if period.year is None:
        return "" if years else "a time of the year"
    plain = period.month is None and period.quarter is None
    if plain and years and min(years) < period.year < max(years):
        return "within the dates of the results"
    if plain and passage.tables and not known_periods and any(_is_year_column(t) for t in passage.tables):
        return ""
    return ""


def _find_year(passage: Passage, mention: Mention) -> str:
    """Explain four digits that are a value of a column such as `founded`, unless the row beside them has another."""
    if not re.fullmatch(r"\d{4}s?", mention.text):
        return ""
    year = float(mention.text.rstrip("s"))
    for t, table in enumerate(passage.tables):
        anchors = passage.anchors(mention, t)
        for column in table.columns:
            rows = {row for row, value in column.numbers.items() if value == year}
            beside = {row for row in anchors.primary if row in column.numbers} if anchors.strong else set()
            if rows and (not beside or beside & rows):
                return f"a value of {column.name}"
    return ""


def _is_year_column(table: EvidenceTable) -> bool:
    return any("year" in column.words for column in table.columns)


def _agree(written: Period, known: Period) -> bool:
    """Return whether two dates agree in every part that both specify."""
    if written.year is None and known.month is None and known.quarter is None:
        return False
    if written.day is not None and known.day is None and known.month is None:
        return False
    pairs = (
        (written.year, known.year),
        (written.half, half_of_period(known)),
        (written.quarter, quarter_of_period(known)),
        (written.month, known.month),
        (written.day, known.day),
    )
    return all(a is None or b is None or a == b for a, b in pairs)


def _find_time(passage: Passage, mention: Mention) -> str:
    match = re.match(r"(\d{1,2})(?::(\d\d))?", mention.text)
    if match is None:
        return ""
    hour, minute = int(match[1]), int(match[2] or 0)
    hours = {hour, hour % 12 + (12 if "p" in mention.text.lower() else 0)}
    for table in passage.tables:
        for column in table.columns:
            if any(_is_time(value, hours, minute) for value in _times(column.values)):
                return f"a time in {table.name}"
            if any(m.hour in hours and m.minute == minute for m in column.moments.values()):
                return f"a time in {table.name}"
            written = re.compile(rf"(?<![\d:]){re.escape(mention.text)}")
            if any(isinstance(value, str) and written.search(value) for value in column.values):
                return f"a time in {table.name}"
    return "in the question" if mention.text in passage.question else ""


def _times(values: Iterable[object]) -> Iterable[time]:
    return (value for value in values if isinstance(value, time))


def _is_time(value: time, hours: set[int], minute: int) -> bool:
    return value.hour in hours and value.minute == minute
