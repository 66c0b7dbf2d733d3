"""Text columns that hold numbers or dates: typed if the whole column agrees, else reported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from etude.sources.files.date_styles import (
    COMMA_MOMENT,
    DASHED_YEAR,
    DAY_FIRST,
    HAS_SURE_ZONE,
    IDEOGRAPHS,
    IDEOGRAPHS_VALUE,
    IS_SHORT_YEAR,
    ISO,
    ISO_HALF_DAY,
    ISO_VALUE,
    LOCAL,
    MOMENT,
    MONTH,
    MONTH_FIRST,
    MONTH_VALUE,
    NAMED,
    NAMED_FORMATS,
    SEPARATOR,
    SHORT_DOTS,
    YEAR_LAST,
    ZONED_VALUE,
    find_styles,
    order_sql,
    read_mixed_dates,
)
from etude.sources.files.load_report import TypeNote
from etude.sources.files.parquet import read_parquet, write_query_to_parquet
from etude.sources.files.reading_options import AS_TEXT, DATE_ORDERS, ReadingOptions
from etude.sources.quoting import quote_identifier, quote_literal

_MARKS = "na n/a #n/a nan null none nil - -- --- ? . .. ... n.a. n.a <na> (null) (blank) unknown missing"
_MARKS += (
    " \\n undefined tbd tba n/k n.d. n/d k.a. s/d \u2013 \u2014 0000-00-00 #div/0! #value! #ref! #name? #num! #null!"
)
NULL_MARKERS = (*_MARKS.split(), "n. a.", "n. d.", "k. a.", "not available", "not applicable", "0000-00-00 00:00:00")
SAMPLE_ROWS = 20_000
COLUMNS_AT_ONCE = 50
MEASURES_AT_ONCE = 300
"""Expressions in a statement: DuckDB allocates memory for each of them, in each thread."""
STACKED_ROWS = 2_000
"""Up to this many rows, preparing an expression takes longer than evaluating it: columns are read one below another."""
MIXED_SHARE = 0.8
NOTED_SHARE = 0.5
"""If this part of the values are numbers or dates, a note says why the column is text."""

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
CURRENCY = (
    "(?:US|CA|AU|NZ|HK|NT|MX|[ACRS])?[$]|[€£¥\uffe5₹₽₩₪₺₫₦₴฿]|(?:USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|CNY|INR|SEK|NOK|"
)
CURRENCY += "DKK|PLN|CZK|HUF|RON|BRL|MXN|ZAR|RUB|TRY|KRW|Rs[.]?|Fr[.]|kr[.]?|zł|Kč|Ft)"
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
# Digits in groups of two before the last three, as in India, can be nothing else.
LAKHS = r"\d{1,2}(,\d{2})+,\d{3}"
ENGLISH = rf"regexp_full_match({BODY}, '([1-9]\d{{0,2}}(,\d{{3}})+|{LAKHS}|\d+)(\.\d+)?|\.\d+')"
EUROPEAN = rf"regexp_full_match({BODY}, '([1-9]\d{{0,2}}(\.\d{{3}})+|\d+)(,\d+)?|,\d+')"
SPACED = rf"regexp_full_match({BODY}, '(\d{{1,3}}([{GROUPED}]\d{{3}})+|\d+)([.,]\d+)?')"
SURE_ENGLISH = (
    rf"(regexp_matches({BODY}, ',\d{{3}}[,.]|,\d{{2}},\d{{3}}|\.(\d{{1,2}}|\d{{4,}})$|^0\.\d') "
    rf"OR (regexp_matches({BODY}, '[,.]') AND "
    r"regexp_matches({t}, '(^|[^R])[$]|[£₹¥\x{ffe5}₩]|USD|GBP|INR|JPY|KRW|Rs')))"
)
# A group of thousands does not start with a zero: `0,125` has a decimal comma.
SURE_EUROPEAN = rf"regexp_matches({BODY}, '\.\d{{3}}[.,]|,(\d{{1,2}}|\d{{4,}})$|^0,\d')"

UNIT = r"regexp_full_match({t}, '[+-]?\d[\d.,]* ?[A-Za-zµ°]{1,5}(/[A-Za-z]{1,4})?')"
# Amounts of accountants with the currency before the brackets, and numbers with a fraction.
UNREAD = rf"regexp_full_match({{t}}, '(?:{CURRENCY}) *(\(.*\d.*\)|-)|\d+ +\d+/\d+')"
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
    "percent": "contains({t}, '%')",
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
    "dollars": r"regexp_matches({t}, '(^|[^A-Z])[$]|US[$]|USD')",
    "half_days": r"regexp_matches({t}, ':\d\d ?[AaPp][Mm]$')",
    "short_dots": SHORT_DOTS,
    "month": MONTH,
    "ideographs": IDEOGRAPHS,
    "infinite": "regexp_full_match({t}, '(?i)[+-]?inf(inity)?')",
    "dotted_date": r"regexp_matches({t}, '^\d{1,2}[.]\d{1,2}[.]')",
}
_STATES = "AL,AK,AZ,AR,CA,CO,CT,DE,FL,GA,HI,ID,IL,IN,IA,KS,KY,LA,ME,MD,MA,MI,MN,MS,MO,MT,NE,NV,NH,NJ,NM,NY,NC,"
_STATES += "ND,OH,OK,OR,PA,RI,SC,SD,TN,TX,UT,VT,VA,WA,WV,WI,WY,DC,ALABAMA,ALASKA,ARIZONA,ARKANSAS,CALIFORNIA,"
_STATES += "COLORADO,CONNECTICUT,DELAWARE,FLORIDA,GEORGIA,HAWAII,IDAHO,ILLINOIS,INDIANA,IOWA,KANSAS,KENTUCKY,"
_STATES += "LOUISIANA,MAINE,MARYLAND,MASSACHUSETTS,MICHIGAN,MINNESOTA,MISSISSIPPI,MISSOURI,MONTANA,NEBRASKA,"
_STATES += "NEVADA,NEW HAMPSHIRE,NEW JERSEY,NEW MEXICO,NEW YORK,NORTH CAROLINA,NORTH DAKOTA,OHIO,OKLAHOMA,"
_STATES += "OREGON,PENNSYLVANIA,RHODE ISLAND,SOUTH CAROLINA,SOUTH DAKOTA,TENNESSEE,TEXAS,UTAH,VERMONT,VIRGINIA,"
_STATES += "WASHINGTON,WEST VIRGINIA,WISCONSIN,WYOMING,DISTRICT OF COLUMBIA"
US_STATES = tuple(_STATES.split(","))
FEWEST_STATES = 3
"""This many different states tell where a file is from, if the name of their column does not."""
LIKELY = rf"^[(]?[<>≤≥~≈±+-]?=? ?({CURRENCY})?[ +-]*[.,]?\d|^[A-Za-z]{{3,9}} \d{{1,2}},? ?\d{{4}}$"
LIKELY += rf"|^({CURRENCY}) *[(]\d"
LIKELY += r"|^[A-Z][a-z]{2},? .*\d:\d\d|^[A-Za-z]{3,9}[ -]\d{4}$|^[+-]?[iI]nf(inity)?$"
FLAGS = "(?i)true|false|yes|no|t|f"
"""Words that DuckDB reads as true and false; a column with few others is noted."""
FLAG_SHARE = 0.9
DIGITS = "٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹０１２３４５６７８９"
"""Digits of Arabic, of Persian, and of the width of Japanese characters."""
CODE_NAME = re.compile(
    "phone|tel|fax|mobil|cell|iban|acc|konto|card|sire[nt]|code|number|nummer|num|nr|ref|(?:^|[^a-z])(?:no|id)(?:$|[^a-z])",
    re.IGNORECASE,
)
"""Names of columns whose digits stand in groups and are not numbers."""
VERSION_NAME = re.compile(
    r"(?:^|[^a-z])(?:version|ver|release|revision|rev|firmware|build|section|chapter|clause)(?:$|[^a-z])", re.IGNORECASE
)
# A number with a sign that changes what it means: a limit, an estimate, a footnote, a tolerance.
_PLAIN = r"[+-]?\d[\d.,]*"
QUALIFIED = (
    rf"regexp_full_match({{t}}, '[<>≤≥~≈±]=? ?{_PLAIN}|{_PLAIN} ?[‰‱*†‡§^!?]{{1,3}}|{_PLAIN} ?(±|[+]/-) ?{_PLAIN}"
    rf"|{_PLAIN} ?([\[(][A-Za-z0-9][\])]|[¹²³⁴⁵⁶⁷⁸⁹ᵃᵇ])')"
)
PLAIN = f"regexp_full_match({{t}}, '{_PLAIN}')"
_MONTHS = "jan|ene|gen|feb|f[eé]v|mar|mär|mrz|maa|apr|abr|avr|may|mai|maj|mei|mag|jun|juin|giu|jul|juil|lug|aug|ago|"
_MONTHS += "ao[uû]|sep|set|oct|okt|out|ott|nov|dec|dez|d[eé]c|dic"
# Dates that are not read: months in another language, years of two digits after a name, eight digits.
LOOSE_DATE = (
    rf"(regexp_full_match({{t}}, '(?i)(\d{{1,2}}[.]?[ -](de )?({_MONTHS})[^\d ]{{0,8}}[ -](de )?\d{{2,4}}"
    rf"|({_MONTHS})[^\d ]{{0,8}} \d{{1,2}},? \d{{4}}|(19|20)\d\d[01]\d[0-3]\d)') "
    r"OR regexp_full_match({t}, '(?i)((mon|tue|wed|thu|fri|sat|sun)[a-z]*,? .*\d{4}.*|"
    rf"\d{{1,2}}/[a-z]{{3}}/\d{{4}}:.*|\d{{1,2}}[./-]\d{{1,2}}[./-]\d{{2,4}} .*)') "
    f"OR {ISO} OR {YEAR_LAST} OR {NAMED})"
)
YEAR_FIRST = r"regexp_matches({t}, '^\d{4}-\d{2}-\d{2}([T ]\d{2}:|$)')"
PLUS = r"regexp_matches({t}, '^[+]')"
CURRENCIES = f"count(DISTINCT nullif(regexp_extract({{t}}, '{CURRENCY}'), ''))"


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
        dates = max(self.dates, self.short_dots, self.month, self.ideographs)
        return max(self.number + self.infinite, self.moment, dates, self.decorated, self.time, self.unit)

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
    american: str
    """Why the file seems to be from the United States; empty if nothing says so, or something contradicts it."""


@dataclass(frozen=True)
class _Decision:
    """The type of a column: SQL that makes it from the trimmed text `{t}`, and what the report says."""

    type: str
    sql: str
    said: str = ""


def refine_column_types(
    con: Any, staged: Path, target: Path, leave: Collection[str] = (), reading: ReadingOptions | None = None
) -> tuple[int, tuple[TypeNote, ...]]:
    """Type text columns that hold numbers or dates, except `leave`; return the row count and notes."""
    columns = con.execute(f"DESCRIBE SELECT * FROM {read_parquet(str(staged))}").fetchall()
    rows = con.execute(f"SELECT count(*) FROM {read_parquet(str(staged))}").fetchone()[0]
    texts = [c[0] for c in columns if c[1] == "VARCHAR" and c[0] not in leave]
    notes = [describe_wide_number_type(c[0]) for c in columns if c[1] == "DECIMAL(38,0)"]
    casts, missing = _without_nans(con, staged, [c[0] for c in columns if c[1] == "DOUBLE"])
    notes += missing
    counted, flags, foreign = _candidates(con, staged, texts, rows)
    notes += [note for column in flags if (note := _describe_flags(con, staged, column))]
    for column in foreign:
        cast, note = _decide_foreign(con, staged, column)
        casts |= {column: cast} if cast else {}
        notes += [note] if note else []
    wanted = reading or ReadingOptions()
    order, decimal = _decided_order(counted), _decided_decimal(counted)
    undecided = not order[0] and any(n.year_last == n.rest > 0 for n in counted.values())
    american = _find_american_column(con, staged, texts, counted) if undecided and decimal[0] != "," else ""
    others = _Others(order, decimal, american)
    for column, counts in counted.items():
        cast, note = _decide(con, staged, column, counts, wanted, others)
        if cast:
            casts[column] = cast
        if note:
            notes.append(note)
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


def describe_infinite_values(column: str, count: int) -> TypeNote:
    """Return the note on values that became infinite: written so, or beyond what a double holds."""
    verb = "is infinite" if count == 1 else "are infinite"
    return TypeNote(
        column, "DOUBLE", f"{count:,} of its values {verb}: written so, or larger than 1.8e308, as 1e400 is"
    )


def _without_nans(con: Any, staged: Path, doubles: list[str]) -> tuple[dict[str, str], list[TypeNote]]:
    """Make NaN null: in a file it stands for a missing value, and a sum with one NaN is NaN. Infinity is noted."""
    casts, notes = {}, []
    for start in range(0, len(doubles), COLUMNS_AT_ONCE):
        chunk = doubles[start : start + COLUMNS_AT_ONCE]
        counts = ", ".join(
            f"count(*) FILTER (isnan({name})), count(*) FILTER (isinf({name}))" for name in map(quote_identifier, chunk)
        )
        found = con.execute(f"SELECT {counts} FROM {read_parquet(str(staged))}").fetchone()
        for column, nans, infinite in zip(chunk, found[::2], found[1::2]):
            if infinite:
                notes.append(describe_infinite_values(column, infinite))
            if nans:
                name = quote_identifier(column)
                casts[column] = f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END"
                verb = "was a null marker" if nans == 1 else "were null markers"
                notes.append(TypeNote(column, "DOUBLE", f"{nans:,} of its values {verb} ('NaN')"))
    return casts, notes


def _candidates(
    con: Any, staged: Path, texts: list[str], rows: int
) -> tuple[dict[str, ColumnTypeCounts], list[str], list[str]]:
    """Find columns that look like numbers or dates in a sample, and count their values over the whole file.

    The other parts are columns of words such as `true`, and of digits that are not those of ASCII.
    """
    step = rows // SAMPLE_ROWS + 1
    seen = _aggregate(con, staged, texts, _outline, rows, step)
    likely = [c for c, (values, markers, digits, *_) in seen.items() if 0 < NOTED_SHARE * (values - markers) <= digits]
    flags = [c for c, (values, markers, _, n, _) in seen.items() if 0 < FLAG_SHARE * (values - markers) <= n]
    foreign = [c for c, (values, markers, *_, n) in seen.items() if 0 < NOTED_SHARE * (values - markers) <= n]
    sampled = {c: ColumnTypeCounts(found) for c, found in _aggregate(con, staged, likely, _counts, rows, step).items()}
    if step == 1:
        return sampled, flags, foreign
    likely = [c for c, n in sampled.items() if n.typed >= NOTED_SHARE / 2 * n.rest]
    whole = _aggregate(con, staged, likely, _counts, rows, 1)
    return {c: ColumnTypeCounts(found) for c, found in whole.items()}, flags, foreign


def _describe_flags(con: Any, staged: Path, column: str) -> TypeNote | None:
    """Return a note on a column of words such as `true` and `false` if others stand among them."""
    is_flag = f"regexp_full_match({{t}}, '{FLAGS}')"
    counts = f"count(*), count_if(NOT {_on(is_flag, 't')}), count(DISTINCT lower(t)) FILTER ({_on(is_flag, 't')})"
    values, odd, words = con.execute(f"SELECT {counts} FROM {_values(staged, column)}").fetchone()
    if not odd or words < 2:
        return None
    said = "is not true or false" if odd == 1 else "are not true or false"
    shown = _examples(con, staged, column, f"NOT {is_flag}")
    return TypeNote(column, "text", f"mixed: {odd:,} of {values:,} values {said} ({shown}), kept as text")


def _decide_foreign(con: Any, staged: Path, column: str) -> tuple[str, TypeNote | None]:
    """Return SQL for a column of numbers in digits of another script, and a note."""
    text = f"translate({_trimmed(column)}, '{DIGITS}\u066b\uff0e', '{'0123456789' * 3}..')"
    (wrong, codes, fractions) = con.execute(
        f"SELECT count_if(NOT {_on(NUMBER, 'd')}), count_if({_on(CODE, 'd')}), count_if(NOT {_on(WHOLE, 'd')}) "
        f"FROM (SELECT {text} AS d FROM {read_parquet(str(staged))} WHERE NOT {_on(MARKER, _trimmed(column))})"
    ).fetchone()
    shown = _examples(con, staged, column, _VALUE)
    if wrong or codes:
        return "", TypeNote(column, "text", f"its digits are not those of ASCII ({shown}), kept as text")
    kind = "DOUBLE" if fractions else "BIGINT"
    value = f"CASE WHEN {_on(MARKER, _trimmed(column))} THEN NULL ELSE {text} END"
    said = f"its digits, such as {shown}, were read as 0 to 9"
    return f"CAST({value} AS {kind})", TypeNote(column, kind, said)


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


def describe_broken_dates(con: Any, staged: Path, texts: list[str], rows: int) -> list[TypeNote]:
    """Return notes on columns of text in which nearly all values are dates whose year comes first."""

    def outline(text: str, body: str) -> list[str]:
        return [f"count({text})", f"count_if({_on(YEAR_FIRST, text)})"]

    step = rows // SAMPLE_ROWS + 1
    seen = _aggregate(con, staged, texts, outline, rows, step)
    notes = []
    for column in (c for c, (values, dates) in seen.items() if 0 < MIXED_SHARE * values <= dates):
        odd = f"NOT coalesce({MOMENT}, false)"
        counts = f"SELECT count(*), count_if({_on(odd, 't')}) FROM {_values(staged, column)}"
        values, count = con.execute(counts).fetchone()
        if count and count <= (1 - MIXED_SHARE) * values:
            said = "is not a date" if count == 1 else "are not dates"
            shown = _examples(con, staged, column, odd)
            said = f"mixed: {count:,} of {values:,} values {said} ({shown}), kept as text"
            notes.append(TypeNote(column, "text", said))
    return notes


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
    tests = (
        _on(MARKER, text),
        f"regexp_matches({text}, '{LIKELY}')",
        f"regexp_full_match({text}, '{FLAGS}')",
        f"regexp_matches({text}, '^[+-]?[{DIGITS}]')",
    )
    return [f"count({text})", *(f"count_if({test})" for test in tests)]


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


def _find_american_column(con: Any, staged: Path, texts: list[str], counted: dict[str, ColumnTypeCounts]) -> str:
    """Return which column tells that a file is from the United States, and by what; empty if none does."""
    for column, n in counted.items():
        if n.priced == n.decorated == n.rest > 0 and n.dollars == n.priced:
            return f"column `{column}` has amounts such as {_examples(con, staged, column, _VALUE, 1)}"
    for column in (c for c in texts if c not in counted):
        words = re.split(r"[^a-z]+", column.lower())
        value = f"upper(trim({quote_identifier(column)}))"
        found = con.execute(
            f"SELECT count(DISTINCT {value}), count(*) FILTER (NOT list_contains({[*US_STATES]}, {value})) "
            f"FROM {read_parquet(str(staged))} WHERE {value} <> ''"
        ).fetchone()
        # `DE`, `IN` and `CA` are countries, too.
        if found[0] and not found[1] and "country" not in words and (found[0] >= FEWEST_STATES or "state" in words):
            return f"column `{column}` has states of the USA such as {_examples(con, staged, column, _VALUE, 1)}"
    return ""


def _american_clue(con: Any, staged: Path, column: str, n: ColumnTypeCounts, others: _Others) -> str:
    """Return why the month of such dates comes first, if a column or a clock tells; it does not before a dot."""
    if others.order[0] or others.decimal[0] == "," or _examples(con, staged, column, TESTS["dotted_date"], 1):
        return ""
    if n.half_days:
        return f"its times are written such as {_examples(con, staged, column, TESTS['half_days'], 1)}"
    return others.american


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
    elif n.code == 0 and n.number == n.rest and not n.long and (plus := _examples(con, staged, column, PLUS)):
        decision = _decide_plus(con, staged, column, n, plus)
    elif n.infinite and n.number and n.number + n.infinite == n.rest and not (n.code or n.long):
        # How many are infinite is said below.
        decision = _Decision("DOUBLE", "{t}", _describe_infinite(con, staged, column, n))
    elif n.iso == n.rest:
        decision = _Decision("DATE", ISO_VALUE)
    elif n.moment == n.rest:
        decision = _decide_zone(con, staged, column)
    elif n.clock == n.rest and not _examples(con, staged, column, f"{_VALUE} AND NOT {COMMA_MOMENT}", 1):
        first = _examples(con, staged, column, _VALUE, 1)
        decision = _Decision("TIMESTAMP", "replace({t}, ',', '.')", f"the comma in {first} was read as a decimal point")
    elif reading.dates == AS_TEXT and n.rest in (n.year_last, n.named):
        first = _examples(con, staged, column, _VALUE, 1)
        decision = f"dates such as {first} are kept as text, as the option `dates` says"
    elif n.year_last == n.rest and _has_one_separator(con, staged, column):
        decision = _decide_order(con, staged, column, n, reading, others)
    elif n.named == n.rest:
        by_name = f"strptime({{t}}, {NAMED_FORMATS})"
        decision = _Decision("DATE", by_name, "its dates were read by the names of the months")
    elif n.month == n.rest:
        first = _examples(con, staged, column, _VALUE, 1)
        decision = _Decision("DATE", MONTH_VALUE, f"months such as {first} were read as their first day")
    elif n.ideographs == n.rest:
        decision = _Decision("DATE", IDEOGRAPHS_VALUE, "its dates were read as year, month and day")
    elif n.short_dots == n.rest and not VERSION_NAME.search(column):
        decision = _decide_short_dots(con, staged, column, n)
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
    elif n.number == n.rest and n.code and n.dots == n.rest:
        first = _examples(con, staged, column, CODE, 1)
        decision = f"numbers with leading zeros such as {first} may be codes, kept as text"
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


def _describe_infinite(con: Any, staged: Path, column: str, n: ColumnTypeCounts) -> str:
    verb = "is infinite" if n.infinite == 1 else "are infinite"
    return f"{n.infinite:,} of {n.rest:,} values {verb} ({_examples(con, staged, column, TESTS['infinite'])})"


def _decide_short_dots(con: Any, staged: Path, column: str, n: ColumnTypeCounts) -> _Decision | str:
    """Return the type of a column such as `1.3.24`: dates if a day proves it, else perhaps versions."""
    sql = order_sql("dmy")
    wrong = _examples(con, staged, column, f"{_VALUE} AND {sql} IS NULL", 1)
    if not n.day_first or wrong:
        shown = wrong or _examples(con, staged, column, _VALUE)
        return f"{shown} may be dates or versions, kept as text"
    sure = _examples(con, staged, column, TESTS["day_first"], 1)
    said = f"its dates were read as {DATE_ORDERS['dmy']}, because {sure} cannot have the month first"
    return _Decision("DATE", sql, f"{said}; years of two digits are 1969 to 2068")


def _decide_plus(con: Any, staged: Path, column: str, n: ColumnTypeCounts, plus: str) -> _Decision | str:
    """Return the type of a column of numbers that DuckDB reads as text, because some have a plus sign.

    A plus sign before each whole number is that of a dialling code or an offset.
    """
    if n.whole == n.rest and not _examples(con, staged, column, r"regexp_matches({t}, '^(-|0$)')", 1):
        return f"a plus sign before a whole number may be part of a code ({plus}), kept as text"
    return _Decision("BIGINT" if n.whole == n.rest else "DOUBLE", "{t}", f"plus signs were left out ({plus})")


def _decide_zone(con: Any, staged: Path, column: str) -> _Decision | str:
    """Return the type of a column of times whose year comes first: with a zone, if values name one that is sure."""
    if not (beyond := _examples(con, staged, column, f"{_VALUE} AND NOT {LOCAL}")):
        return _Decision("TIMESTAMP", "{t}")
    if not _examples(con, staged, column, f"{_VALUE} AND NOT {ISO_HALF_DAY}", 1):
        clocks = ", ".join(f"'%Y-%m-%d {clock}'" for clock in ("%I:%M:%S %p", "%I:%M:%S.%f %p", "%I:%M %p"))
        spaced = r"regexp_replace(replace({t}, 'T', ' '), '(\d) ?([AaPp][Mm])$', '\1 \2')"
        if not _examples(con, staged, column, f"{_VALUE} AND try_strptime({spaced}, [{clocks}]) IS NULL", 1):
            return _Decision("TIMESTAMP", f"strptime({spaced}, [{clocks}])", "its times were read with AM and PM")
    if odd := _examples(con, staged, column, f"{_VALUE} AND NOT {LOCAL} AND NOT {HAS_SURE_ZONE}"):
        return f"the text after the time may mean several zones, or none ({odd}), kept as text"
    if odd := _examples(con, staged, column, f"{_VALUE} AND try_cast({ZONED_VALUE} AS TIMESTAMPTZ) IS NULL"):
        return f"not all are times with a known zone ({odd}), kept as text"
    said = f"its values were converted to one zone, UTC ({beyond})"
    if local := _examples(con, staged, column, f"{_VALUE} AND {LOCAL}"):
        said += f", and its values without a zone were read as UTC ({local})"
    return _Decision("TIMESTAMP WITH TIME ZONE", ZONED_VALUE, said)


def _has_one_separator(con: Any, staged: Path, column: str) -> bool:
    """Return whether all dates whose year comes last have the separator of the first one."""
    first = f"SELECT {_on(SEPARATOR, 't')} FROM {_values(staged, column)} WHERE {_on(_VALUE, 't')} LIMIT 1"
    (separator,) = con.execute(first).fetchone()
    other = f"{_VALUE} AND {SEPARATOR} <> {quote_literal(separator)}"
    return not _examples(con, staged, column, other, 1)


def _decide_styles(con: Any, staged: Path, column: str, reading: ReadingOptions) -> _Decision | str:
    """Return the type of a column of dates in several styles, or why it stays text; empty if it has one style."""
    mixed = read_mixed_dates(find_styles(con, staged, column, MARKER), reading)
    if mixed is None:
        return ""
    return _Decision(mixed.type, mixed.sql, mixed.said) if mixed.sql else mixed.said


def _decide_order(
    con: Any, staged: Path, column: str, n: ColumnTypeCounts, reading: ReadingOptions, others: _Others
) -> _Decision | str:
    """Return the type of a column of dates such as `03/04/2024`, or why it stays text."""
    first, like = _examples(con, staged, column, _VALUE, 1), others.order
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
    elif not reading.dates and (clue := _american_clue(con, staged, column, n, others)):
        order = "mdy"
        said = (
            f"{first} may be read in two ways; its dates were read as {DATE_ORDERS[order]}, because {clue} "
            f"({reading.date_advice('dates=dmy', 'changes that')})"
        )
    elif reading.dates:
        order = reading.dates
        said = f"its dates were read as {DATE_ORDERS[order]}, as the option `dates` says"
    else:
        order = "dmy"
        said = (
            f"{first} may be read in two ways; its dates were read as {DATE_ORDERS[order]}, the default "
            f"({reading.date_advice('dates=mdy', 'changes that')})"
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
    shown = _examples(con, staged, column, _VALUE)
    if n.currencies > 1:
        return f"numbers in several currencies ({shown}), kept as text"
    if n.sure_english and n.sure_european and n.english + n.european >= n.rest:
        both = ", ".join(_examples(con, staged, column, TESTS[f"sure_{way}"], 1) for way in ("english", "european"))
        return f"numbers with a decimal point and with a decimal comma ({both}), kept as text"
    if max(n.english, n.european, n.spaced) < MIXED_SHARE * n.rest:
        return ""  # addresses, versions and the like
    if 0 < n.percent < n.rest:
        without = _examples(con, staged, column, f"{_VALUE} AND NOT {TESTS['percent']}", 1)
        both = f"{_examples(con, staged, column, TESTS['percent'], 1)}, {without}"
        return f"only some numbers have a percent sign ({both}), kept as text"
    if n.minus_last and not n.separated:
        return ""  # grades such as `2-`
    bare = BODY
    if n.gaps:
        if n.spaced < n.rest:
            return ""
        if not (n.separated or n.priced or n.typeset) and not _has_grouped_digits(con, staged, column):
            gaps = _examples(con, staged, column, TESTS["gaps"])
            return f"spaces between digits may be those of thousands or of codes ({gaps}), kept as text"
        sure = n.sure_european or n.sure_english or reading.decimal
        bare = f"replace(translate({BODY}, '{GROUPED}', ''), ',', '.')"
        if n.separated and not sure:
            return f"{shown} may be read in two ways, kept as text ({reading.decimal_advice})"
        grouping = "apostrophes" if n.apostrophes == n.gaps else "spaces"
        said = [f"{grouping} between its digits were left out"]
        if n.commas:
            said.append("its decimal commas were read as such")
    else:
        comma = _has_decimal_comma(n, reading.decimal or like[0])
        if comma is None:
            shown = _examples(con, staged, column, TESTS["separated"])
            return f"{shown} may be thousands or decimals, kept as text ({reading.decimal_advice})"
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


def _has_grouped_digits(con: Any, staged: Path, column: str) -> bool:
    """Return whether plain spaces between digits are those of thousands: phone numbers have them, too.

    These and other codes mostly have as many digits as each other, or the name of their column tells them.
    """
    if CODE_NAME.search(column):
        return False
    digits = "length(translate(t, ' +-', ''))"
    spaced = f"FROM {_values(staged, column)} WHERE {_on(_VALUE, 't')}"
    return int(con.execute(f"SELECT count(DISTINCT {digits}) {spaced}").fetchone()[0]) > 1


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
        coded = (n.code or n.body_code) and noun == "number"
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
    nearly = (QUALIFIED, f"({NUMBER} OR {PLAIN} OR {QUALIFIED})", LOOSE_DATE, UNREAD, f"({UNREAD} OR {BODY} <> '')")
    counts = ", ".join(f"count_if({_on(each, 't')})" for each in nearly)
    found = con.execute(f"SELECT {counts} FROM {_values(staged, column)} WHERE {_on(_VALUE, 't')}").fetchone()
    qualified, numbers, dates, unread, amounts = (count or 0 for count in found)
    if unread and amounts >= NOTED_SHARE * n.rest and not n.code:
        shown = _examples(con, staged, column, UNREAD)
        return TypeNote(column, "text", f"numbers in a form that is not read ({shown}), kept as text")
    if qualified and numbers >= MIXED_SHARE * n.rest and not n.code:
        shown = _examples(con, staged, column, QUALIFIED)
        return TypeNote(
            column, "text", f"numbers with a footnote, or a sign that changes their meaning ({shown}), kept as text"
        )
    if dates >= NOTED_SHARE * n.rest and n.whole < n.rest:
        shown = _examples(con, staged, column, _VALUE)
        return TypeNote(
            column, "text", f"dates in a form that is not read, or in several forms ({shown}), kept as text"
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
