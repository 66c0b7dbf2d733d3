"""Dates as people write them: the styles, their SQL, and whether a column of several styles has one meaning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.sources.files.reading_options import AS_TEXT, DATE_ORDERS, ReadingOptions
from etude.sources.quoting import quote_identifier, quote_literal

# Each test is SQL over the trimmed text `{t}`.
ISO = (
    r"(regexp_full_match({t}, '\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{4}\.\d{1,2}\.\d{1,2}') "
    r"AND try_cast(replace(replace({t}, '/', '-'), '.', '-') AS DATE) IS NOT NULL)"
)
ISO_VALUE = "replace(replace({t}, '/', '-'), '.', '-')"
MOMENT = r"(regexp_matches({t}, '^\d{4}-\d{1,2}-\d{1,2}') AND try_cast({t} AS TIMESTAMP) IS NOT NULL)"
LOCAL = r"regexp_full_match({t}, '\d{4}-\d{1,2}-\d{1,2}([ T]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?')"
# What may follow the time. Casting to TIMESTAMP leaves out all of it without a word: an offset, `EST`, even `PM`.
# `EST` and the like are left as they are: some name several zones, and DuckDB takes `CST` in July for summer time.
ISO_HALF_DAY = r"regexp_full_match({t}, '\d{4}-\d{1,2}-\d{1,2}[ T]+\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)? ?[AaPp][Mm]')"
SURE_ZONE = r" ?(Z|UTC|GMT|[+-]\d\d(:?\d\d)?|[A-Z][A-Za-z]+/[A-Za-z_/+-]+)"
HAS_SURE_ZONE = rf"regexp_matches({{t}}, ':\d\d.*?{SURE_ZONE}$')"
ZONED_VALUE = r"regexp_replace(regexp_replace({t}, ' ?(Z|UTC|GMT)$', '+00'), ' ?([+-]\d\d):?(\d\d)$', '\1:\2')"
COMMA_MOMENT = r"regexp_full_match({t}, '\d{4}-\d{1,2}-\d{1,2}[ T]\d{1,2}:\d{2}:\d{2},\d{1,9}')"

# Dates of three numbers. A time may follow; a year of two digits after dashes could as well come first.
CLOCK = r"( +\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)?( ?[AaPp][Mm])?)?"
LONG_YEAR = rf"(\d{{1,2}}/\d{{1,2}}/|\d{{1,2}}-\d{{1,2}}-|\d{{1,2}}\.\d{{1,2}}\.)\d{{4}}{CLOCK}"
SHORT_YEAR = rf"(\d{{1,2}}/\d{{1,2}}/|\d{{2}}\.\d{{2}}\.)\d{{2}}{CLOCK}"
YEAR_LAST = f"regexp_full_match({{t}}, '{LONG_YEAR}|{SHORT_YEAR}')"
IS_SHORT_YEAR = f"regexp_full_match({{t}}, '{SHORT_YEAR}')"
DASHED_YEAR = r"regexp_full_match({t}, '\d{2}-\d{2}-\d{2}')"
PARTS = r"regexp_matches({t}, '^\d{1,2}[/.-]\d{1,2}[/.-]\d')"
ONE = r"try_cast(regexp_extract({t}, '^(\d{1,2})[/.-]', 1) AS TINYINT)"
TWO = r"try_cast(regexp_extract({t}, '^\d{1,2}[/.-](\d{1,2})[/.-]', 1) AS TINYINT)"
DAY_FIRST = f"({PARTS} AND {ONE} > 12)"
MONTH_FIRST = f"({PARTS} AND {TWO} > 12)"
# `24/06/29` may have its year first, so it proves nothing; `24/06/99` may not.
YEAR_MAY_BE_FIRST = r"regexp_matches({t}, '^\d{2}[/.]\d{1,2}[/.](0[1-9]|[12]\d|3[01])( |$)')"

NAMED_FORMATS = "['%d %b %Y', '%d %B %Y', '%d-%b-%Y', '%d-%B-%Y', '%b %d, %Y', '%B %d, %Y', '%d%b%Y']"
NAMED = (
    r"(regexp_full_match({t}, '\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{4}|[A-Za-z]{3,9} \d{1,2}, ?\d{4}"
    r"|\d{1,2}[A-Za-z]{3}\d{4}') "
    rf"AND try_strptime({{t}}, {NAMED_FORMATS}) IS NOT NULL)"
)
# Months without a day; `1.3.24`, which may also be a version; dates of Japan, China and Korea.
MONTH_VALUE = "try_strptime('1 ' || replace({t}, '-', ' '), ['%d %b %Y', '%d %B %Y'])"
# CASE, because DuckDB evaluates both sides of an AND for each row.
MONTH = (
    r"(CASE WHEN regexp_full_match({t}, '[A-Za-z]{3,9}[ -]\d{4}') "
    f"THEN {MONTH_VALUE} IS NOT NULL ELSE false END)"
)
SHORT_DOTS = r"regexp_full_match({t}, '\d{1,2}\.\d{1,2}\.\d{2}')"
IDEOGRAPHS_VALUE = (
    r"try_cast(regexp_replace({t}, '^(\d{4})[年년] ?(\d{1,2})[月월] ?(\d{1,2})[日일]$', '\1-\2-\3') AS DATE)"
)
IDEOGRAPHS = rf"(CASE WHEN regexp_matches({{t}}, '^\d{{4}}[年년]') THEN {IDEOGRAPHS_VALUE} IS NOT NULL ELSE false END)"
SEPARATOR = r"regexp_extract({t}, '[/.-]')"
SEPARATORS = ("/", ".", "-")
STYLE = (
    f"CASE WHEN {ISO} THEN 'date' WHEN {MOMENT} THEN CASE WHEN {LOCAL} THEN 'moment' ELSE 'zoned' END "
    f"WHEN {YEAR_LAST} THEN {SEPARATOR} WHEN {NAMED} THEN 'named' WHEN {DASHED_YEAR} THEN 'short' ELSE '' END"
)


@dataclass(frozen=True)
class DateStyle:
    """One way in which values of a column are written; the texts are the first values that show it."""

    name: str
    """`date`, `moment`, `zoned`, `named`, `short`, the separator if the year comes last, or empty for other values."""
    count: int
    example: str
    day_first: str | None
    month_first: str | None
    not_dmy: str | None
    not_mdy: str | None
    clocks: int
    short_years: int

    @property
    def order(self) -> str:
        """The order of day and month that its values prove, or an empty text."""
        if bool(self.day_first) == bool(self.month_first):
            return ""
        return "dmy" if self.day_first else "mdy"


@dataclass(frozen=True)
class MixedDates:
    """How a column of several styles is read: its type, SQL that makes it from the text `{t}`, what the note says."""

    type: str
    sql: str
    said: str


def order_sql(order: str) -> str:
    """Return SQL that reads a date whose year comes last; null if it is not one."""
    text = r"replace(replace({t}, '.', '/'), '-', '/')"
    # A fraction of a second has a dot of its own.
    day = rf"regexp_extract({text}, '^\S+')"
    clock = r"regexp_extract({t}, ' (.*)$', 1)"
    days = {"dmy": ["%d/%m/%Y", "%d/%m/%y"], "mdy": ["%m/%d/%Y", "%m/%d/%y"]}[order]
    clocks = ["", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", " %I:%M:%S%p"]
    long, short = ([quote_literal(d + c) for c in clocks] for d in days)
    whole = f"rtrim({day} || ' ' || trim({clock}))"
    return (
        f"CASE WHEN regexp_matches({day}, '/\\d{{4}}$') THEN try_strptime({whole}, [{', '.join(long)}]) "
        f"ELSE try_strptime({whole}, [{', '.join(short)}]) END"
    )


def find_styles(con: Any, staged: Path, column: str, marker: str) -> list[DateStyle]:
    """Return the styles of a column's values without null markers, the most frequent first."""
    name = quote_identifier(column)

    def first(test: str) -> str:
        return f"arg_min(shown, place) FILTER ({test.replace('{t}', 't')})"

    proof = f"{DAY_FIRST} AND NOT {YEAR_MAY_BE_FIRST}"
    wrong = (first(f"{order_sql(order)} IS NULL") for order in DATE_ORDERS)
    rows = con.execute(
        f"SELECT {STYLE.replace('{t}', 't')} AS style, count(*) AS n, arg_min(shown, place), {first(proof)}, "
        f"{first(MONTH_FIRST)}, {', '.join(wrong)}, count(*) FILTER (contains(t, ':')), "
        f"count(*) FILTER ({IS_SHORT_YEAR.replace('{t}', 't')}) "
        f"FROM (SELECT trim({name}) AS t, left({name}, 40) AS shown, file_row_number AS place FROM "
        f"read_parquet({quote_literal(str(staged))}, hive_partitioning=false, file_row_number=true)) "
        f"WHERE t IS NOT NULL AND NOT {marker.replace('{t}', 't')} GROUP BY style ORDER BY n DESC, style"
    ).fetchall()
    return [DateStyle(*row) for row in rows]


def read_mixed_dates(styles: list[DateStyle], reading: ReadingOptions) -> MixedDates | None:
    """Return how to read a column of several styles; None if it has fewer than two.

    Every style must have one meaning by itself, or the option `dates` must settle it. Else it stays text.
    """
    dates, wanted = [style for style in styles if style.name], reading.dates
    if len(dates) < 2:
        return None
    orders = {style.name: style.order or wanted for style in dates if style.name in SEPARATORS}
    kept = "kept as text, as the option `dates` says"
    if reason := kept if wanted == AS_TEXT else _why_text(styles, dates, orders, reading):
        return MixedDates("text", "", f"dates in several styles ({_describe(dates, '')}); {reason}")
    order = next(iter(orders.values()), "")
    said = f"its dates are in several styles: {_describe(dates, order)}"
    values, clocks = (sum(numbers) for numbers in zip(*((style.count, style.clocks) for style in dates)))
    if 0 < clocks < values:
        said += f"; {values - clocks:,} without a time of day were read as 00:00"
    if any(style.short_years for style in dates):
        said += "; years of two digits are 1969 to 2068"
    if not reading.uploaded:
        said += "; the option `dates=text` of the source keeps them as text"
    return MixedDates("TIMESTAMP" if clocks else "DATE", _mixed_sql(order), said)


def _why_text(styles: list[DateStyle], dates: list[DateStyle], orders: dict[str, str], reading: ReadingOptions) -> str:
    """Return why the column cannot become dates, or an empty text."""
    by_name = {style.name: style for style in styles}
    if other := by_name.get(""):
        verb = "is not a date" if other.count == 1 else "are not dates"
        return f"{other.count:,} of {sum(s.count for s in styles):,} values {verb} ({other.example!r}), kept as text"
    if short := by_name.get("short"):
        return f"it is not certain which part of {short.example!r} is the year, kept as text"
    if zoned := by_name.get("zoned"):
        return f"only some have a time zone ({zoned.example!r}), kept as text"
    day = next((s.day_first for s in dates if s.name in SEPARATORS and s.day_first), None)
    month = next((s.month_first for s in dates if s.name in SEPARATORS and s.month_first), None)
    if day and month:
        return f"{day!r} has the day first, {month!r} the month first, kept as text"
    unsure = next((s for s in dates if orders.get(s.name) == ""), None)
    if unsure:
        return (
            f"{unsure.example!r} may be read in two ways, and no value of its style decides it, kept as text "
            f"({reading.date_advice('dates=dmy` or `dates=mdy', 'settles it')})"
        )
    if len(set(orders.values())) > 1:
        return "the option `dates` contradicts the values of one style, kept as text"
    for style in dates:
        if style.name in SEPARATORS:
            wrong = style.not_dmy if orders[style.name] == "dmy" else style.not_mdy
            if wrong:
                return f"{wrong!r} is not a date, so all are kept as text"
    return ""


def _describe(dates: list[DateStyle], order: str) -> str:
    """Return the count and an example of each style, and what decided its order if there is one."""
    shown: list[str] = []
    for style in dates:
        text = f"{style.count:,}{'' if shown else f' value{_s(style.count)}'} such as {style.example!r}"
        if order and style.name in SEPARATORS:
            proof = style.day_first if order == "dmy" else style.month_first
            why = f"because of {proof!r}" if proof else "as the option `dates` says"
            text += f" ({'day' if order == 'dmy' else 'month'} first, {why})"
        shown.append(text)
    return ", ".join(shown)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _mixed_sql(order: str) -> str:
    year_last = f"WHEN {YEAR_LAST} THEN {order_sql(order)} " if order else ""
    return (
        f"CASE WHEN {ISO} THEN CAST({ISO_VALUE} AS TIMESTAMP) WHEN {LOCAL} THEN CAST({{t}} AS TIMESTAMP) "
        f"{year_last}ELSE strptime({{t}}, {NAMED_FORMATS}) END"
    )
