"""Text columns that hold numbers or dates: typed if the whole column agrees, else reported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from etude.errors import Invalid
from etude.sources.files.date_styles import (
    AS_TEXT,
    DASHED_YEAR,
    DATE_ORDERS,
    DAY_FIRST,
    IS_SHORT_YEAR,
    ISO,
    ISO_VALUE,
    MOMENT,
    MONTH_FIRST,
    NAMED,
    NAMED_FORMATS,
    SEPARATOR,
    YEAR_LAST,
    find_styles,
    order_sql,
    read_mixed_dates,
)
from etude.sources.files.load_report import TypeNote
from etude.sources.files.parquet import read_parquet, write_query_to_parquet
from etude.sources.quoting import quote_identifier, quote_literal

_MARKS = "na n/a #n/a nan null none nil - -- --- ? . .. ... n.a. n.a <na> (null) (blank) unknown missing"
_MARKS += " undefined tbd tba n/k n.d. n/d k.a. s/d \u2013 \u2014 0000-00-00 #div/0! #value! #ref! #name? #num! #null!"
NULL_MARKERS = (*_MARKS.split(), "not available", "not applicable", "0000-00-00 00:00:00")
SAMPLE_ROWS = 20_000
COLUMNS_AT_ONCE = 50
MEASURES_AT_ONCE = 300
"""Expressions in a statement: DuckDB allocates memory for each of them, in each thread."""
STACKED_ROWS = 2_000
"""Up to this many rows, preparing an expression takes longer than evaluating it: columns are read one below another."""
MIXED_SHARE = 0.8
NOTED_SHARE = 0.5
"""If this part of the values are numbers or dates, a note says why the column is text."""
DECIMALS = (".", ",")
READING = ("dates", "decimal")
"""The options of a source that say how to read ambiguous values."""

# Each test is SQL over the trimmed text `{t}`. A leading zero marks a code (a post code, an account) and a plus
# sign a phone number, not a number.
# A pattern, because DuckDB makes a join of each IN.
MARKER = f"regexp_full_match(lower({{t}}), '{'|'.join(map(re.escape, NULL_MARKERS))}')"
_VALUE = f"NOT ({MARKER})"
NUMBER = r"regexp_full_match({t}, '[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?')"
WHOLE = r"regexp_full_match({t}, '[+-]?\d{1,18}')"
CODE = r"regexp_matches({t}, '^[+-]?0\d|^[+]\d{6}')"
TIME = r"\d{1,3}:[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?( ?[AaPp][Mm])?"
HOURS = r"try_cast(regexp_extract({t}, '^(\d+):', 1) AS INTEGER)"

# Numbers with a currency, a percent sign, grouped digits or a decimal comma around or in their `body`.
CURRENCY = "[$€£¥₹]|(?:USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|CNY|INR|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR)"
SPACES = "'\u2019 \u00a0\u202f"
DECORATED = (
    rf"\(?[+-]?(?:{CURRENCY})? ?[+-]?((?:\d|[.,]\d)[\d.,{SPACES.replace(chr(39), chr(39) * 2)}]*?)"
    rf"[ \x{{a0}}\x{{202f}}]?(?:{CURRENCY}|%)?-?\)?"
)
# A minus as typesetters write it, in front of a number; elsewhere these signs are dashes.
TYPESET_MINUS = "(contains({v}, '\u2212') OR contains({v}, '\u2013'))"
LEADING_MINUS = rf"^(\(?(?:{CURRENCY})? ?)[\x{{2212}}\x{{2013}}]( ?(?:{CURRENCY})? ?[.,]?\d)"
BODY = f"regexp_extract({{t}}, '^{DECORATED}$', 1)"
GROUPED = SPACES.replace("'", "''")
ENGLISH = rf"regexp_full_match({BODY}, '(\d{{1,3}}(,\d{{3}})+|\d+)(\.\d+)?|\.\d+')"
EUROPEAN = rf"regexp_full_match({BODY}, '(\d{{1,3}}(\.\d{{3}})+|\d+)(,\d+)?|,\d+')"
SPACED = rf"regexp_full_match({BODY}, '(\d{{1,3}}([{GROUPED}]\d{{3}})+|\d+)([.,]\d+)?')"
SURE_ENGLISH = (
    rf"(regexp_matches({BODY}, ',\d{{3}}[,.]|\.(\d{{1,2}}|\d{{4,}})$') "
    rf"OR (regexp_matches({BODY}, '[,.]') AND regexp_matches({{t}}, '[$£]|USD|GBP')))"
)
SURE_EUROPEAN = rf"regexp_matches({BODY}, '\.\d{{3}}[.,]|,(\d{{1,2}}|\d{{4,}})$')"

UNIT = r"regexp_full_match({t}, '[+-]?\d[\d.,]* ?[A-Za-zµ°]{1,5}(/[A-Za-z]{1,4})?')"
UNITS = 3
"""Numbers with more different words after them are not measurements: `12 Main`, `1st`."""
TESTS = {
    "marker": MARKER,
    "number": NUMBER,
    "whole": WHOLE,
    "code": CODE,
    "power": r"regexp_full_match({t}, '\d+[eE]\d+')",
    "long": r"regexp_full_match({t}, '[+-]?\d{19,}')",
    "iso": ISO,
    "moment": MOMENT,
    "year_last": YEAR_LAST,
    "short_year": IS_SHORT_YEAR,
    "dashed_year": DASHED_YEAR,
    "clock": "contains({t}, ':')",
    "day_first": DAY_FIRST,
    "month_first": MONTH_FIRST,
    "named": NAMED,
    "decorated": f"{BODY} <> ''",
    "body_code": rf"regexp_matches({BODY}, '^0\d')",
    "percent": "suffix({t}, '%')",
    "priced": f"regexp_matches({{t}}, '{CURRENCY}')",
    "separated": f"regexp_matches({BODY}, '[.,]')",
    "commas": f"contains({BODY}, ',')",
    "dots": f"contains({BODY}, '.')",
    "english": ENGLISH,
    "european": EUROPEAN,
    "spaced": SPACED,
    "apostrophes": f"regexp_matches({BODY}, '[''\u2019]')",
    "time": f"regexp_full_match({{t}}, '{TIME}')",
    "long_time": f"(regexp_full_match({{t}}, '{TIME}') AND {HOURS} > 23)",
    "in_parentheses": "(prefix({t}, '(') AND suffix({t}, ')'))",
    "minus_last": r"regexp_matches({t}, '\d.*-$')",
    "gaps": f"regexp_matches({BODY}, '[{GROUPED}]')",
    "typeset": f"regexp_matches({BODY}, '[{GROUPED.replace(' ', '')}]')",
    "sure_english": SURE_ENGLISH,
    "sure_european": SURE_EUROPEAN,
    "unit": UNIT,
}
LIKELY = rf"^[(]?[+-]? ?({CURRENCY})?[ +-]*[.,]?\d|^[A-Za-z]{{3,9}} \d{{1,2}}, ?\d{{4}}$"
CURRENCIES = f"count(DISTINCT nullif(regexp_extract({{t}}, '{CURRENCY}'), ''))"


_DATES_ADVICE = re.compile(r"\(the option `dates=[^)]*of the source [^)]*\)")
_DECIMAL_ADVICE = re.compile(r"\(the option `decimal` of the source [^)]*\)")
_KEEP_ADVICE = re.compile(r"; the option `dates=text` of the source keeps them as text")


@dataclass(frozen=True)
class ReadingOptions:
    """How a user wants ambiguous values to be read: the options `dates` and `decimal` of a source."""

    dates: str = ""
    """`dmy`, `mdy`, or `text` to keep such dates as text; empty for the default, which is `dmy`."""
    decimal: str = ""
    """`.` or `,`; empty if the values must decide."""
    uploaded: bool = False
    """True if the file was uploaded: its notes name no options, because an upload takes none."""

    def advise(self, note: TypeNote) -> TypeNote:
        """Return the note with advice that its reader can follow."""
        if not self.uploaded:
            return note
        said = _DATES_ADVICE.sub("(write dates such as 2024-12-31 in the file to be sure)", note.note)
        said = _DECIMAL_ADVICE.sub("(write numbers such as 1234.5 in the file to be sure)", said)
        return replace(note, note=_KEEP_ADVICE.sub("", said))


def parse_reading_options(options: Mapping[str, str]) -> ReadingOptions:
    """Return the reading that the options of a source ask for; raise `Invalid` for an unknown value."""
    dates, decimal = options.get("dates", ""), options.get("decimal", "")
    if dates and dates not in (*DATE_ORDERS, AS_TEXT):
        raise Invalid(
            f"The option `dates` cannot be `{dates}`.",
            hint="Use `dmy` (day first), `mdy` (month first) or `text` (kept as text).",
        )
    if decimal and decimal not in DECIMALS:
        raise Invalid(f"The option `decimal` cannot be `{decimal}`.", hint="Use `.` or `,`.")
    return ReadingOptions(dates, decimal, options.get("documents") == "true")


class ColumnTypeCounts:
    """How many values of a column pass each test; `values` counts all that are not null."""

    def __init__(self, found: tuple[int, ...]) -> None:
        self.values, self.currencies, *passed = found
        self._passed = dict(zip(TESTS, passed))

    def __getattr__(self, test: str) -> int:
        try:
            return self._passed[test]
        except KeyError:
            raise AttributeError(test) from None

    @property
    def rest(self) -> int:
        """Values that are not null markers."""
        return self.values - self.marker

    @property
    def typed(self) -> int:
        """The largest number of values that one kind of number or date covers."""
        return max(self.number, self.moment, self.dates, self.decorated, self.time, self.unit)

    @property
    def dates(self) -> int:
        """Values that are dates in some style, at least: `2024-01-02` is in two of the tests."""
        return max(self.iso, self.moment) + self.year_last + self.named + self.dashed_year

    @property
    def has_styles(self) -> bool:
        """Whether some values are dates in one style, and some in another."""
        year_first = self.iso or self.moment
        # `2024-01-02` passes both tests, `2024/01/02` the first, `2024-01-02 10:00` the second.
        both = self.iso and self.moment and (self.iso != self.moment or self.iso + self.moment == self.rest)
        return sum(bool(n) for n in (year_first, both, self.year_last, self.named, self.dashed_year)) > 1


@dataclass(frozen=True)
class _Others:
    """What the other columns of the file tell: a value and the column that decides it, or empty texts."""

    order: tuple[str, str]
    decimal: tuple[str, str]


@dataclass(frozen=True)
class _Decision:
    """The type of a column: SQL that makes it from the trimmed text `{t}`, and what the report says."""

    type: str
    sql: str
    said: str = ""


def refine_column_types(
    con: Any, staged: Path, target: Path, leave: str = "", reading: ReadingOptions | None = None
) -> tuple[int, tuple[TypeNote, ...]]:
    """Type text columns that hold numbers or dates, except `leave`; return the row count and notes."""
    columns = con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(staged))}").fetchall()
    rows = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))}").fetchone()[0]
    texts = [c[0] for c in columns if c[1] == "VARCHAR" and c[0] != leave]
    notes = [describe_wide_number_type(c[0]) for c in columns if c[1] == "DECIMAL(38,0)"]
    casts, missing = _without_nans(con, staged, [c[0] for c in columns if c[1] == "DOUBLE"])
    notes += missing
    counted = _candidates(con, staged, texts, rows)
    wanted = reading or ReadingOptions()
    others = _Others(_decided_order(counted), _decided_decimal(counted))
    for column, counts in counted.items():
        cast, note = _decide(con, staged, column, counts, wanted, others)
        if cast:
            casts[column] = cast
        if note:
            notes.append(wanted.advise(note))
    if casts:
        chosen = ", ".join(
            f"{casts[c[0]]} AS {quote_identifier(c[0])}" if c[0] in casts else quote_identifier(c[0]) for c in columns
        )
        write_query_to_parquet(con, f"SELECT {chosen} FROM {read_parquet(str(staged))}", target)
    else:
        os.replace(staged, target)
    return rows, tuple(notes)


def describe_wide_number_type(column: str) -> TypeNote:
    """Return the note on a column of whole numbers beyond 64 bits."""
    return TypeNote(column, "DECIMAL(38,0)", "its whole numbers need more than 64 bits")


def _without_nans(con: Any, staged: Path, doubles: list[str]) -> tuple[dict[str, str], list[TypeNote]]:
    """Make NaN null: in a file it stands for a missing value, and a sum with one NaN is NaN."""
    casts, notes = {}, []
    for start in range(0, len(doubles), COLUMNS_AT_ONCE):
        chunk = doubles[start : start + COLUMNS_AT_ONCE]
        counts = ", ".join(f"count(*) FILTER (isnan({quote_identifier(c)}))" for c in chunk)
        found = con.execute(f"SELECT {counts} FROM {read_parquet(str(staged))}").fetchone()
        for column, nans in zip(chunk, found):
            if nans:
                name = quote_identifier(column)
                casts[column] = f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END"
                verb = "was a null marker" if nans == 1 else "were null markers"
                notes.append(TypeNote(column, "DOUBLE", f"{nans:,} of its values {verb} ('NaN')"))
    return casts, notes


def _candidates(con: Any, staged: Path, texts: list[str], rows: int) -> dict[str, ColumnTypeCounts]:
    """Find columns that look like numbers or dates in a sample, and count their values over the whole file."""
    step = rows // SAMPLE_ROWS + 1
    seen = _aggregate(con, staged, texts, _outline, rows, step)
    likely = [c for c, (values, markers, digits) in seen.items() if 0 < NOTED_SHARE * (values - markers) <= digits]
    sampled = {c: ColumnTypeCounts(found) for c, found in _aggregate(con, staged, likely, _counts, rows, step).items()}
    if step == 1:
        return sampled
    likely = [c for c, n in sampled.items() if n.typed >= NOTED_SHARE / 2 * n.rest]
    return {c: ColumnTypeCounts(found) for c, found in _aggregate(con, staged, likely, _counts, rows, 1).items()}


def _aggregate(
    con: Any, staged: Path, texts: list[str], measures: Callable[[str, str], list[str]], rows: int, step: int
) -> dict[str, tuple[int, ...]]:
    """Return the measures of each column over every `step`-th row."""
    found: dict[str, tuple[int, ...]] = {}
    source = read_parquet(str(staged))
    if step > 1:
        source = f"read_parquet({quote_literal(str(staged))}, hive_partitioning=false, file_row_number=true)"
        source += f" WHERE file_row_number % {step} = 0"
    stacked, width = rows <= STACKED_ROWS, len(measures("t", "b"))
    at_once = COLUMNS_AT_ONCE if stacked else min(COLUMNS_AT_ONCE, MEASURES_AT_ONCE // width)
    for start in range(0, len(texts), at_once):
        chunk = texts[start : start + at_once]
        found |= (_measure_stacked if stacked else _measure_columns)(con, source, chunk, measures)
    return found


def _measure_columns(
    con: Any, source: str, columns: list[str], measures: Callable[[str, str], list[str]]
) -> dict[str, tuple[int, ...]]:
    """Return the measures of each column, from one scan with expressions for each column."""
    trimmed = ", ".join(f"{_trimmed(c)} AS t{i}" for i, c in enumerate(columns))
    bodies = ", ".join(f"t{i}, {_on(BODY, f't{i}')} AS b{i}" for i in range(len(columns)))
    measured = [measures(f"t{i}", f"b{i}") for i in range(len(columns))]
    values = f"SELECT {bodies} FROM (SELECT {trimmed} FROM {source})"
    row = con.execute(f"SELECT {', '.join(chain(*measured))} FROM ({values})").fetchone()
    row, width = [n or 0 for n in row], len(measured[0])  # `count_if` is null if all of its values are
    return {c: tuple(row[i * width : (i + 1) * width]) for i, c in enumerate(columns)}


def _measure_stacked(
    con: Any, source: str, columns: list[str], measures: Callable[[str, str], list[str]]
) -> dict[str, tuple[int, ...]]:
    """Return the measures of each column, with one set of expressions for the values of all."""
    trimmed = ", ".join(map(_trimmed, columns))
    values = f"SELECT unnest(range({len(columns)})) AS place, unnest([{trimmed}]) AS t FROM {source}"
    values = f"SELECT place, t, {_on(BODY, 't')} AS b FROM ({values})"
    measured = measures("t", "b")
    rows = con.execute(f"SELECT place, {', '.join(measured)} FROM ({values}) GROUP BY place").fetchall()
    nothing = dict.fromkeys(columns, (0,) * len(measured))  # a file without rows
    return nothing | {columns[place]: tuple(n or 0 for n in counts) for place, *counts in rows}


def _outline(text: str, body: str) -> list[str]:
    """Return SQL that counts values, null markers and number-like values; cheap, for files of many columns."""
    digits = f"regexp_matches({text}, '{LIKELY}')"
    return [f"count({text})", f"count_if({_on(MARKER, text)})", f"count_if({digits})"]


def _counts(text: str, body: str) -> list[str]:
    tests = (f"count_if({_on(test.replace(BODY, body), text)})" for test in TESTS.values())
    return [f"count({text})", _on(CURRENCIES, text), *tests]


def _on(test: str, text: str) -> str:
    return test.replace("{t}", text)


def _decided_order(counted: dict[str, ColumnTypeCounts]) -> tuple[str, str]:
    """Return the order of day and month, and the column whose values decide it, if all such columns agree."""
    orders: dict[str, str] = {}
    for column, n in counted.items():
        dated = n.year_last and n.dates == n.rest and not n.dashed_year
        if dated and bool(n.day_first) != bool(n.month_first):
            orders.setdefault("dmy" if n.day_first else "mdy", column)
    return next(iter(orders.items())) if len(orders) == 1 else ("", "")


def _decided_decimal(counted: dict[str, ColumnTypeCounts]) -> tuple[str, str]:
    """Return the decimal separator, and the column whose values decide it, if all such columns agree."""
    marks: dict[str, str] = {}
    for column, n in counted.items():
        if n.decorated == n.rest and not n.body_code and bool(n.sure_english) != bool(n.sure_european):
            marks.setdefault("." if n.sure_english else ",", column)
    return next(iter(marks.items())) if len(marks) == 1 else ("", "")


def _decide(
    con: Any, staged: Path, column: str, n: ColumnTypeCounts, reading: ReadingOptions, others: _Others
) -> tuple[str, TypeNote | None]:
    """Return the SQL that types the column (empty to leave it), and a note for the report."""
    if not n.rest:
        return "", None
    decision: _Decision | str = ""
    # Without null markers or such a minus, DuckDB has read the column as text for another reason.
    if n.power and n.power + n.whole == n.rest:
        decision = f"{_examples(con, staged, column, TESTS['power'])} may be codes or powers of ten, kept as text"
    elif n.code == 0 and n.number == n.rest and not n.long and (n.marker or _find_minus(con, staged, column)):
        decision = _Decision("BIGINT" if n.whole == n.rest else "DOUBLE", "{t}")
    elif n.iso == n.rest:
        decision = _Decision("DATE", ISO_VALUE)
    elif n.moment == n.rest:
        decision = _Decision("TIMESTAMP", "{t}")
    elif reading.dates == AS_TEXT and n.rest in (n.year_last, n.named):
        first = _examples(con, staged, column, _VALUE, 1)
        decision = f"dates such as {first} are kept as text, as the option `dates` says"
    elif n.year_last == n.rest and _has_one_separator(con, staged, column):
        decision = _decide_order(con, staged, column, n, reading, others.order)
    elif n.named == n.rest:
        by_name = f"strptime({{t}}, {NAMED_FORMATS})"
        decision = _Decision("DATE", by_name, "its dates were read by the names of the months")
    elif n.dashed_year == n.rest:
        shown = _examples(con, staged, column, _VALUE)
        decision = f"it is not certain which part is the year ({shown}), kept as text"
    elif n.dates >= NOTED_SHARE * n.rest and (n.has_styles or n.year_last == n.rest):
        decision = _decide_styles(con, staged, column, reading)
    elif n.time == n.rest:
        shown = _examples(con, staged, column, _VALUE, 2)
        decision = f"times such as {shown} are kept as text"
        if n.long_time:
            odd = _examples(con, staged, column, TESTS["long_time"], 1)
            decision = f"{odd} is not a time of day, so all are kept as text"
    elif n.decorated == n.rest and not (n.body_code or n.code or n.long):
        decision = _decide_number(con, staged, column, n, reading, others.decimal)
    if isinstance(decision, str):
        return "", TypeNote(column, "text", decision) if decision else _mixed(con, staged, column, n)
    said = [decision.said] if decision.said else []
    if decision.type in ("BIGINT", "DOUBLE") and (minus := _find_minus(con, staged, column)):
        said.append(f"numbers such as {minus} were read as negative")
    if n.marker:
        verb = "was a null marker" if n.marker == 1 else "were null markers"
        said.append(f"{n.marker:,} of {n.values:,} values {verb} ({_examples(con, staged, column, MARKER)})")
    text = _trimmed(column)
    value = f"CASE WHEN {_on(MARKER, text)} THEN NULL ELSE {_on(decision.sql, text)} END"
    note = TypeNote(column, decision.type, ", and ".join(said)) if said else None
    return f"CAST({value} AS {decision.type})", note


def _has_one_separator(con: Any, staged: Path, column: str) -> bool:
    """Return whether all dates whose year comes last have the separator of the first one."""
    first = f"SELECT {_on(SEPARATOR, 't')} FROM {_values(staged, column)} WHERE {_on(_VALUE, 't')} LIMIT 1"
    (separator,) = con.execute(first).fetchone()
    other = f"{_VALUE} AND {SEPARATOR} <> {quote_literal(separator)}"
    return not _examples(con, staged, column, other, 1)


def _decide_styles(con: Any, staged: Path, column: str, reading: ReadingOptions) -> _Decision | str:
    """Return the type of a column of dates in several styles, or why it stays text; empty if it has one style."""
    mixed = read_mixed_dates(find_styles(con, staged, column, MARKER), reading.dates)
    if mixed is None:
        return ""
    return _Decision(mixed.type, mixed.sql, mixed.said) if mixed.sql else mixed.said


def _decide_order(
    con: Any, staged: Path, column: str, n: ColumnTypeCounts, reading: ReadingOptions, like: tuple[str, str]
) -> _Decision | str:
    """Return the type of a column of dates such as `03/04/2024`, or why it stays text."""
    first = _examples(con, staged, column, _VALUE, 1)
    if n.day_first and n.month_first:
        both = f"{_examples(con, staged, column, TESTS['day_first'], 1)} and "
        both += _examples(con, staged, column, TESTS["month_first"], 1)
        return f"dates with the day first and with the month first ({both}), kept as text"
    if n.day_first or n.month_first:
        order = "dmy" if n.day_first else "mdy"
        sure = _examples(con, staged, column, TESTS["day_first" if n.day_first else "month_first"], 1)
        said = f"its dates were read as {DATE_ORDERS[order]}, because {sure} can be nothing else"
    elif like[0] and not reading.dates:
        order = like[0]
        said = f"{first} may be read in two ways; its dates were read as {DATE_ORDERS[order]}, like column `{like[1]}`"
    elif reading.dates:
        order = reading.dates
        said = f"its dates were read as {DATE_ORDERS[order]}, as the option `dates` says"
    else:
        order = "dmy"
        said = (
            f"{first} may be read in two ways; its dates were read as {DATE_ORDERS[order]}, the default "
            "(the option `dates=mdy` of the source changes that)"
        )
    if n.short_year:
        said += "; years of two digits are 1969 to 2068"
    kind = "TIMESTAMP" if n.clock else "DATE"
    sql = order_sql(order)
    wrong = f"{TESTS['year_last']} AND {sql} IS NULL"
    if odd := _examples(con, staged, column, wrong, 1):
        return f"{odd} is not a date, so all are kept as text"
    return _Decision(kind, sql, said)


def _decide_number(
    con: Any, staged: Path, column: str, n: ColumnTypeCounts, reading: ReadingOptions, like: tuple[str, str]
) -> _Decision | str:
    """Return the type of a column of numbers with signs or separators, or why it stays text."""
    if max(n.english, n.european, n.spaced) < MIXED_SHARE * n.rest:
        return ""  # addresses, versions and the like
    shown = _examples(con, staged, column, _VALUE)
    if n.currencies > 1:
        return f"numbers in several currencies ({shown}), kept as text"
    if 0 < n.percent < n.rest:
        return f"only some numbers have a percent sign ({shown}), kept as text"
    if n.minus_last and not n.separated:
        return ""  # grades such as `2-`
    bare = BODY
    if n.gaps:
        if n.spaced < n.rest or not (n.separated or n.priced or n.typeset):
            return ""  # plain spaces group the digits of phone numbers, too
        sure = n.sure_european or n.sure_english or reading.decimal
        bare = f"replace(translate({BODY}, '{GROUPED}', ''), ',', '.')"
        if n.separated and not sure:
            return f"{shown} may be read in two ways, kept as text (the option `decimal` of the source settles it)"
        grouping = "apostrophes" if n.apostrophes == n.gaps else "spaces"
        said = [f"{grouping} between its digits were left out"]
        if n.commas:
            said.append("its decimal commas were read as such")
    else:
        comma = _has_decimal_comma(n, reading.decimal or like[0])
        if comma is None:
            return f"{shown} may be thousands or decimals, kept as text (the option `decimal` of the source settles it)"
        if (n.european if comma else n.english) < n.rest:
            return f"numbers in several styles ({shown}), kept as text"
        bare = f"replace(replace({BODY}, '.', ''), ',', '.')" if comma else f"replace({BODY}, ',', '')"
        said = []
        if like[0] and not (reading.decimal or n.sure_english or n.sure_european) and n.separated:
            said.append(f"{_examples(con, staged, column, TESTS['separated'], 1)} was read like column `{like[1]}`")
        if comma and n.dots:
            said.append("dots between its digits were left out")
        if n.commas:
            said.append("its decimal commas were read as such" if comma else "commas between its digits were left out")
    if n.percent:
        said.append("percent signs were left out, so 60 means 60%")
    if n.priced:
        sign = _examples(con, staged, column, TESTS["priced"], 1)
        said.append(f"the currency was left out ({sign})")
    if n.in_parentheses:
        said.append("numbers in parentheses were read as negative")
    if n.minus_last:
        said.append("numbers with a minus at the end were read as negative")
    negative = rf"(regexp_matches({{t}}, '^[^\d.,]*-') OR {TESTS['in_parentheses']} OR {TESTS['minus_last']})"
    sql = f"(CASE WHEN {negative} THEN '-' ELSE '' END) || {bare}"
    fractions = _examples(con, staged, column, f"NOT ({MARKER}) AND NOT regexp_full_match({bare}, '\\d{{1,18}}')", 1)
    return _Decision("DOUBLE" if fractions else "BIGINT", sql, ", and ".join(said))


def _has_decimal_comma(n: ColumnTypeCounts, wanted: str) -> bool | None:
    """Return whether a comma starts the decimals, or None if nothing decides it."""
    if n.sure_english or n.sure_european:
        return not n.sure_english
    if wanted:
        return wanted == ","
    return None if n.separated else False


def _mixed(con: Any, staged: Path, column: str, n: ColumnTypeCounts) -> TypeNote | None:
    """Return a note if most values, but not all, are numbers or dates."""
    tests = (
        (NUMBER, n.number, "number"),
        (MOMENT, n.moment, "date"),
        (TESTS["year_last"], n.year_last, "date"),
        (NAMED, n.named, "date"),
        (TESTS["decorated"], n.decorated, "number"),
        (TESTS["time"], n.time, "time"),
    )
    for test, passed, noun in tests:
        coded = (n.code or n.body_code) and noun != "time"
        if n.values > passed >= NOTED_SHARE * n.rest and passed and not coded:
            shown = _examples(con, staged, column, f"NOT coalesce({test}, false)")
            odd = n.values - passed
            said = f"is not a {noun}" if odd == 1 else f"are not {noun}s"
            note = f"mixed: {odd:,} of {n.values:,} values {said} ({shown}), kept as text"
            return TypeNote(column, "text", note)
    if n.unit and n.unit >= NOTED_SHARE * n.rest and not n.code and _count_units(con, staged, column) <= UNITS:
        odd = n.values - n.unit
        rest = (
            f", {odd:,} of {n.values:,} values without ({_examples(con, staged, column, f'NOT {UNIT}')})" if odd else ""
        )
        return TypeNote(
            column, "text", f"numbers with a unit ({_examples(con, staged, column, UNIT)}){rest}, kept as text"
        )
    return None


def _count_units(con: Any, staged: Path, column: str) -> int:
    text = f"trim({quote_identifier(column)})"
    unit = f"lower(regexp_extract({text}, '[^0-9.,+ -].*$'))"
    sql = f"SELECT count(DISTINCT {unit}) FROM {read_parquet(str(staged))} WHERE {_on(UNIT, text)}"
    return int(con.execute(sql).fetchone()[0])


def _values(staged: Path, column: str) -> str:
    """Return SQL for the values of a column that are not null: `t` trimmed, `v` as written, cut to 40 characters."""
    name = quote_identifier(column)
    source = f"{read_parquet(str(staged))} WHERE {name} IS NOT NULL"
    return f"(SELECT {_trimmed(column)} AS t, left({name}, 40) AS v FROM {source})"


def _trimmed(column: str) -> str:
    """Return SQL for the text without spaces around, and with a plain minus in front of a number."""
    name = quote_identifier(column)
    plain = f"regexp_replace(trim({name}), '{LEADING_MINUS}', '\\1-\\2')"
    return f"(CASE WHEN {TYPESET_MINUS.replace('{v}', name)} THEN {plain} ELSE trim({name}) END)"


def _find_minus(con: Any, staged: Path, column: str) -> str:
    """Return the first number with a minus as typesetters write it; empty if there is none."""
    return _examples(con, staged, column, f"{TYPESET_MINUS.replace('{v}', 'v')} AND {_VALUE}", 1)


def _examples(con: Any, staged: Path, column: str, test: str, most: int = 3) -> str:
    """Return the first few distinct values that pass the test, as written in the file."""
    passed = f"FROM {_values(staged, column)} WHERE {_on(test, 't')}"
    if most == 1:
        found = con.execute(f"SELECT v {passed} LIMIT 1").fetchall()
    else:
        placed = f"SELECT v, row_number() OVER () AS place {passed}"
        found = con.execute(f"SELECT v FROM ({placed}) GROUP BY v ORDER BY min(place) LIMIT {most + 1}").fetchall()
    shown = ", ".join(repr(row[0]) for row in found[:most])
    return f"{shown}, ..." if len(found) > most > 1 else shown
