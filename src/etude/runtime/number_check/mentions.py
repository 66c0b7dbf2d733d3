"""Numbers in prose: where each one is, what it may mean, and how precisely it is written."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Literal

MARK = " [?]"


def mention_word_set(words: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(words.split())


Kind = Literal["number", "percent", "points", "times", "ordinal", "date", "time"]
Hedge = Literal["", "about", "over", "under"]


@dataclass(frozen=True)
class Reading:
    """One value that a written number may stand for; `step` is the place value of its last digit."""

    value: Decimal
    step: Decimal


@dataclass(frozen=True)
class Period:
    """A period as written: a year, a half, a quarter, a month or a day; parts left out are None."""

    year: int | None = None
    half: int | None = None
    quarter: int | None = None
    month: int | None = None
    day: int | None = None


@dataclass(frozen=True)
class Mention:
    """A number in a text; `text[start:end]` includes its sign, currency and unit.

    There are several `readings` if the separators are ambiguous (`1.234`). A fraction is a percentage (`half` is 50);
    if it is written with a slash, `parts` are its two numbers. `unit` is `money` or a unit of time.
    """

    start: int
    end: int
    text: str
    kind: Kind
    readings: tuple[Reading, ...] = ()
    unit: str = ""
    hedge: Hedge = ""
    signed: bool = False
    period: Period | None = None
    parts: tuple[int, ...] = ()
    word: bool = False


MONTHS = tuple(
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_MONTH_WORDS = (
    "januar janvier enero gennaio januari janeiro", "februar février febrero febbraio februari fevereiro",
    "märz mars marzo maart março", "avril abril aprile", "mai mayo maggio mei maio", "juni juin junio giugno junho",
    "juli juillet julio luglio julho", "août agosto augustus", "septembre septiembre settembre setembro",
    "oktober octobre octubre ottobre outubro", "novembre noviembre novembro",
    "dezember décembre diciembre dicembre dezembro",
)  # fmt: skip
_MONTHS_ABROAD = {word: number for number, words in enumerate(_MONTH_WORDS, 1) for word in words.split()}
_MONTH = rf"(?:{_MONTH}|{'|'.join(sorted(_MONTHS_ABROAD, key=len, reverse=True))})"
_YEAR = r"(?:1[89]\d\d|20\d\d|21\d\d)"
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_PLACES = "third fourth fifth sixth seventh eighth ninth tenth"
WORDS = {word: value for value, word in enumerate(_UNITS.split())}
WORDS |= {word: 10 * value for value, word in enumerate(_TENS.split(), 3)}
_ABROAD = (
    "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "deux trois quatre cinq six sept huit neuf dix onze douze",
    "dos tres cuatro cinco seis siete ocho nueve diez once doce",
    "dois três quatro cinco seis sete oito nove dez onze doze",
    "due tre quattro cinque sei sette otto nove dieci undici dodici",
)
_SPOKEN = (
    "der die das und ist mit den von auf liegt",
    "le la les des et est avec sur dans du",
    "el los las y es con del por una más",
    "o os as e é com do da mais uma em",
    "il gli della di che sono con per una è",
)
"""Small words that tell in which of those languages a text is."""
SIZES = WORDS | {word: n for words in _ABROAD for n, word in enumerate(words.split(), 2)}
"""Number words of other languages too: they say of how many rows a sentence speaks."""
_ORDINALS = {word: n for n, word in enumerate(_PLACES.split(), 3)}
_PARTS = {"half": 2, "halves": 2, "quarter": 4, "quarters": 4, "third": 3, "thirds": 3} | {
    word + s: n for word, n in _ORDINALS.items() if n > 3 for s in ("", "s")
}
_SCALES = {
    "k": 10**3, "thousand": 10**3, "grand": 10**3, "m": 10**6, "mn": 10**6, "mio": 10**6,
    "million": 10**6, "millions": 10**6,
    "b": 10**9, "bn": 10**9, "billion": 10**9, "billions": 10**9, "t": 10**12, "tn": 10**12, "trillion": 10**12,
    "hundred": 100, "lakh": 10**5, "crore": 10**7, "dozen": 12,
    "millón": 10**6, "millones": 10**6, "milhão": 10**6, "milhões": 10**6, "milioni": 10**6, "millionen": 10**6,
    "mrd": 10**9, "milliarde": 10**9, "milliarden": 10**9, "milliard": 10**9, "milliards": 10**9, "miliardi": 10**9,
    "tausend": 10**3, "tsd": 10**3, "mille": 10**3, "mil": 10**3, "milliers": 10**3,
}  # fmt: skip
TIME_UNITS = {
    "millisecond": Decimal("0.001"), "second": Decimal(1), "minute": Decimal(60), "hour": Decimal(3600),
    "day": Decimal(86400), "week": Decimal(604800),
}  # fmt: skip
_TIME_WORDS = {
    "ms": "millisecond", "s": "second", "sec": "second", "secs": "second", "min": "minute", "mins": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour", "d": "day",
} | {unit + s: unit for unit in TIME_UNITS for s in ("", "s")}  # fmt: skip

_GAP = r"[ \u00a0\u202f\u2009]"
_DIGITS = rf"\d+(?:[.,'\u2019]\d+|{_GAP}\d{{3}}(?!\d)){{0,12}}"
_CURRENCY = r"(?:US\$|[$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY|INR)\b)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212\u2013])?(?P<money>{_CURRENCY}\s?)?(?P<sign2>[-\u2212])?(?P<digits>{_DIGITS}|\.\d+)(?P<exp>[eE][-+]?\d{{1,3}}(?![\d\w]))?"
)
_FOREIGN_SCALES = (
    "millón|millones|milhões|milioni|millionen|mrd|milliarden?|milliards?|miliardi|tausend|tsd|mille|milliers|mil"
)
_SUFFIX = re.compile(
    rf"""(?P<ordinal>(?:st|nd|rd|th)\b)
    |(?P<scale>{_GAP}?-?(?:thousand|grand|mn|mio|millions?|bn|billions?|tn|trillion|hundred|lakh|crore|dozen|{_FOREIGN_SCALES})\b|[kKmMbBT]\b|{_GAP}(?-i:[kM])(?![\w/-]|\.\w))?
     (?P<plus>\+(?!\d))?
     (?:(?P<points>[-\s]?(?:%|percent(?:age)?|per\ cent)[-\s]?points?\b|{_GAP}?(?:pp|pps|p\.p\.|ppts?)(?!\w))
     |(?P<basis>{_GAP}?(?:bps|basis\ points?)\b)
     |(?P<percent>{_GAP}?%|[-\s](?:percent|per\ cent|pct)\b|\s?pct\b)
     |(?P<times>{_GAP}?[x\u00d7](?!\w)|[-\s]times\b|-?fold\b)
     |(?P<cents>{_GAP}?(?:¢|cents?\b|ct\b))
     |(?P<money>{_GAP}?(?:[€$£](?!{_GAP}?\d)|(?:USD|EUR|GBP|CHF|JPY|INR|dollars?|euros?|pounds?)\b))
     |(?P<time>{_GAP}?(?:ms|s|sec|secs|min|mins|h|hr|hrs|d)(?![\w.])|[-\s](?:{"|".join(TIME_UNITS)})s?\b)
     |(?P<plain>{_GAP}?(?:kg|g|km|cm|mm|kwh|mwh|gb|mb|tb|kb|mi|lbs?|ml|l)(?!\w))
     )?""",
    re.X | re.I,
)
_DATES = [
    re.compile(rf"\b(?P<year>{_YEAR})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}})(?=$|[^\d]|T)"),
    re.compile(rf"\b(?P<year>{_YEAR})-(?P<month>0[1-9]|1[0-2])\b(?![-.,]?\d)"),
    re.compile(rf"\b(?P<a>\d{{1,2}})[/.](?P<b>\d{{1,2}})[/.](?P<year>{_YEAR})\b"),
    re.compile(
        rf"(?<![\w.,])(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:(?:of|de|di)\s+)?(?P<name>{_MONTH})\b\.?"
        rf"(?:(?:,|\s+del?)?\s+(?P<year>{_YEAR})\b)?",
        re.I,
    ),
    re.compile(
        rf"\b(?P<name>{_MONTH})\b\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?![.,]?\d|\s*(?:%|percent|million|billion))"
        rf"(?:,?\s+(?P<year>{_YEAR})\b)?",
        re.I,
    ),
    re.compile(rf"\b(?P<name>{_MONTH})\b\.?(?:\s+(?:of|de|del))?,?[\s-]+(?P<year>{_YEAR})\b(?![.,]?\d)", re.I),
    re.compile(
        rf"\bQ(?P<quarter>[1-4])[\s/-]*(?:of\s+)?(?:FY\s?)?(?:(?P<year>{_YEAR})|['\u2019]?(?P<short>\d\d))\b", re.I
    ),
    re.compile(rf"\b(?P<year>{_YEAR})[\s-]?Q(?P<quarter>[1-4])\b", re.I),
    re.compile(r"\bQ(?P<quarter>[1-4])\b"),
    re.compile(rf"\b(?:FY|CY|H(?P<half>[12]))[\s-]?(?:(?P<year>{_YEAR})|['\u2019]?(?P<short>\d\d))\b"),
    re.compile(rf"\b(?P<year>{_YEAR})(?=[-\u2013/](?:{_YEAR}|\d\d)\b)"),
    re.compile(rf"(?<=\b(?:19|20)\d\d[-\u2013/])(?P<year>{_YEAR}|\d\d)\b"),
    re.compile(rf"(?<![\w.,$€£-])(?P<year>{_YEAR})s?\b(?![.,]\d|{_GAP}?(?:%|percent|million|billion|[$€£x\u00d7]))"),
]
_DATE_BEFORE = re.compile(
    r"(?:^|\W)(?:in|since|from|to|of|by|during|until|till|through|between|and|or|for|before|after|year|fiscal|end|early|late|"
    r"mid|vs\.?|versus|than|on|as|the|over|throughout|into|around|circa|calendar|full-year|\d{4},?|[(,|/:\u2013-])\s*[(*_`]*$",
    re.I,
)
_TIME = re.compile(
    r"\b\d{1,3}:[0-5]\d(?::[0-5]\d)?(?:\.\d+)?(?:\s?[ap]\.?m\b\.?|\s(?:min|h)\b)?|\b(?:1[0-2]|[1-9])\s?[ap]m\b", re.I
)
_VERSION = re.compile(r"\bv\d+(?:\.\d+)*\b|\b\d+(?:\.\d+){2,}(?:-\w+)?\b", re.I)
_SKIP = re.compile(
    r"""(?P<fence>^[ ]*(?P<ticks>```+|~~~+).*?(?:^[ ]*(?P=ticks)|\Z))
    |(?P<code>`[^`\n]+`)
    |(?:https?://|www\.)\S+
    |(?P<quote>"[^"\n]{1,80}"|“[^”\n]{1,80}”|(?<!\w)'[^'\n]{1,80}'(?!\w))
    |^[ \t]*(?:[-*>+][ \t]+)?(?:\*\*)?\d{1,3}[.)](?=[ \t]|\*\*)
    |&\#\d+;
    """,
    re.X | re.M | re.S,
)
_ONLY_NUMBER = re.compile(rf"[-+\u2212]?{_CURRENCY}?\s?{_DIGITS}(?:[kKmMbB%]|\s?%|\s?(?:million|billion|bn|mn))?$")
_NAME_CONTINUES = re.compile(r"-[A-Za-z]+\d")
_FRACTION = re.compile(r"(?<![\w./,])(?P<a>\d{1,3})/(?P<b>\d{1,4})(?![\w/]|[.,]\d)")
_ANY_WORD = "|".join(sorted(WORDS, key=len, reverse=True))
_WORD_NUMBER = re.compile(
    rf"\b(?:(?P<part_n>an?|{_ANY_WORD})[-\s](?P<part>half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?)\b(?!-)"
    rf"|(?P<bare_half>half)\b(?!-)"
    rf"|(?P<tens>twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-(?P<ones>one|two|three|four|five|six|seven|eight|nine)\b"
    rf"|(?P<dozen>an?|two|three|four|five)\s(?P<dozens>dozen)\b"
    rf"|(?P<fold>two|three|four|five|six|seven|eight|nine|ten)-?fold\b"
    rf"|(?P<verb>doubl(?:ed|es|ing)|tripl(?:ed|es|ing)|quadrupl(?:ed|es|ing)|halved|halving|twice|thrice|double(?=\s+(?:the|that|what|its|of))|triple(?=\s+(?:the|that|what|its|of)))\b"
    rf"|(?P<place>{'|'.join(_ORDINALS)})(?=[-\s](?:largest|highest|lowest|smallest|biggest|best|worst|most|place|rank|position))"
    rf"|(?P<plain>{_ANY_WORD})\b(?P<and_half>\s+and\s+a\s+half\b)?)",
    re.I,
)
_VERBS: dict[str, Decimal | int] = {
    "doubl": 2,
    "tripl": 3,
    "quadr": 4,
    "halve": Decimal("0.5"),
    "halvi": Decimal("0.5"),
    "twice": 2,
    "thric": 3,
}
_HEDGE_WORDS: dict[Hedge, str] = {
    "over": r"over|more than|at least|above|exceed(?:s|ed|ing)?|upwards? of|north of|surpass(?:es|ed|ing)?|beyond|"
    r"(?:great|high|larg)er than|>|\u2265|mehr als|über|gut|mindestens|plus de|más de|al menos",
    "under": r"nearly|almost|under|less than|below|fewer than|(?<!add )(?<!adds )(?<!added )(?<!sums )(?<!sum )up to|"
    r"at most|not quite|"
    r"(?:low|small)er than|<|\u2264|knapp|fast|beinahe|weniger als|unter|bis zu|presque|près de|moins de|casi|menos de",
    "about": r"about|close to|around|roughly|approximately|approx\.?|circa|c\.|ca\.|some|an? estimated|~|\u2248|"
    r"rund|etwa|ungefähr|gegen|environ|autour de|quelque|unos|unas|cerca de|aproximadamente|alrededor de",
}
_HEDGES = {
    hedge: re.compile(rf"(?<!\w)(?:{words})\s*(?:an?\s+|the\s+)?$", re.I) for hedge, words in _HEDGE_WORDS.items()
}
_OVER_A_TIME = re.compile(r"over\s\S+\s(?:\w+\s)?(?:years|quarters|months|weeks|days|hours|periods)\b", re.I)
_NOT_NOUNS = mention_word_set(
    "is was has does this its as us thus his hers perhaps always yes less unless across towards besides versus "
    "plus minus sometimes others"
)
_STOP = mention_word_set(
    "of the a an and or to in on at by for with from that which who is are was were has have had do does did be "
    "been it they we you he she than then but if so as while when where there here not no"
)
_IRREGULAR = mention_word_set("people men women children data staff series")


_LONG_RUN = re.compile(r"\W{300,}|\w{600,}")
_RUN_ENDS = 100


def break_long_runs(text: str) -> str:
    """Replace the middle of long runs of blanks, signs or digits by NUL characters; every position stays the same.

    Many expressions of the check need quadratic time for such a run.
    """
    return _LONG_RUN.sub(_hollow, text)


def _hollow(match: re.Match[str]) -> str:
    run = match.group()
    return run[:_RUN_ENDS] + "\0" * (len(run) - 2 * _RUN_ENDS) + run[-_RUN_ENDS:]


def find_number_mentions(text: str) -> tuple[Mention, ...]:
    """Return the numbers of a text in order, except those in code, URLs, quoted names and list numbering."""
    bare, offsets = _strip_marks(break_long_runs(text))
    found: list[Mention] = []
    taken = bytearray(len(bare))
    for start, end in _skipped(bare):
        _mark_taken(taken, start, end)
    for scan in (_find_durations, _find_dates, _find_times, _find_fractions, _find_digits, _find_words):
        for mention in scan(bare, taken):
            if not any(taken[mention.start : mention.end]):
                _mark_taken(taken, mention.start, mention.end)
                found.append(mention)
    found.sort(key=lambda mention: mention.start)
    shared = _share_units(bare, found)
    placed = (replace(m, start=_original(offsets, m.start), end=_original(offsets, m.end - 1) + 1) for m in shared)
    return tuple(replace(m, text=text[m.start : m.end]) for m in placed)


def _strip_marks(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Remove the marks; also return, as (position, shift) pairs, how far the text after each mark moved."""
    pieces, offsets, at, moved = [], [(0, 0)], 0, 0
    for match in re.finditer(re.escape(MARK), text):
        pieces.append(text[at : match.start()])
        moved += len(MARK)
        at = match.end()
        offsets.append((at - moved, moved))
    pieces.append(text[at:])
    return "".join(pieces), offsets


def _original(offsets: list[tuple[int, int]], position: int) -> int:
    """Return the position in the text with marks."""
    return position + offsets[bisect_right(offsets, position, key=lambda pair: pair[0]) - 1][1]


def _mark_taken(taken: bytearray, start: int, end: int) -> None:
    taken[start:end] = b"\x01" * (end - start)


def _skipped(text: str) -> Iterator[tuple[int, int]]:
    for match in _SKIP.finditer(text):
        inside = (match["code"] or match["quote"] or "")[1:-1]
        if inside and _ONLY_NUMBER.match(inside.strip()):
            continue  # A number alone in backticks or quotes is still a claim.
        yield match.span()
    for match in _VERSION.finditer(text):
        if not _groups_of_three(match.group()):
            yield match.span()


def _groups_of_three(written: str) -> bool:
    return (
        all(len(group) == 3 for group in written.split(".")[1:])
        or _DATES[0].match(written) is not None
        or (_DATES[2].match(written) is not None)
    )


_SECOND_DAY = re.compile(
    rf"\b(?P<name>{_MONTH})\b\.?\s+\d{{1,2}}(?P<at>\s?(?:and|to|[-\u2013])\s?)(?P<day>\d{{1,2}})\b(?![.,]?\d|\s*%)"
    rf"(?:,?\s+(?P<year>{_YEAR})\b)?",
    re.I,
)
_FIRST_DAY = re.compile(
    rf"(?<![\w.,])(?P<day>\d{{1,2}})(?P<at>\s?(?:and|to|[-\u2013])\s?)\d{{1,2}}\s+(?P<name>{_MONTH})\b"
    rf"(?:,?\s+(?P<year>{_YEAR})\b)?",
    re.I,
)


def _find_dates(text: str, taken: bytearray) -> Iterator[Mention]:
    """Find dates; in `January 12 and 21, 2017` and `1-15 March` there are two."""
    for pattern in (_SECOND_DAY, _FIRST_DAY):
        for match in pattern.finditer(text):
            period = _period(match.groupdict())
            start, end = match.start("day"), match.end() if pattern is _SECOND_DAY else match.end("day")
            if period is not None and not any(taken[start:end]):
                yield Mention(start, end, text[start:end], "date", period=period)
    for pattern in _DATES:
        for match in pattern.finditer(text):
            if any(taken[match.start() : match.end()]):
                continue
            if pattern is _DATES[-1] and not _is_year(text, match):
                continue
            period = _period(match.groupdict())
            if period is not None:
                bare = (_reading(match.group()),) if match.group().isdigit() else ()
                yield Mention(match.start(), match.end(), match.group(), "date", bare, period=period)


def _is_year(text: str, match: re.Match[str]) -> bool:
    """Return whether four digits are a year, as in `in 2024` and `2024 was`, but not in `2024 orders`."""
    before = text[max(0, match.start() - 16) : match.start()]
    after = re.match(r"[\s*_]+([A-Za-z]+)", text[match.end() : match.end() + 24])
    follows = after.group(1).lower() if after else ""
    plural = follows.endswith("s") and follows not in _NOT_NOUNS and follows not in _STOP
    return bool(_DATE_BEFORE.search(before)) or not plural


def _period(groups: dict[str, str | None]) -> Period | None:
    year = int(groups["year"] or 0) if groups.get("year") else None
    if groups.get("short") or (year is not None and year < 100):
        year = 2000 + int(groups.get("short") or year or 0)
    quarter = int(groups["quarter"] or 0) if groups.get("quarter") else None
    month = int(groups["month"] or 0) if groups.get("month") else None
    day = int(groups["day"] or 0) if groups.get("day") else None
    if name := groups.get("name"):
        month = mentioned_month_number(name)
    if first := groups.get("a"):  # 1/2/2024 is ambiguous: the smaller number is the month, so that it can be one.
        month, day = sorted((int(first), int(groups["b"] or 0)))
    if (month is not None and not 1 <= month <= 12) or (day is not None and not 1 <= day <= 31):
        return None
    half = int(groups["half"] or 0) if groups.get("half") else None
    return Period(year, half, quarter, month, day)


def mentioned_month_number(name: str) -> int:
    """Return 1 for `January`, `jan` or `Januar`, and so on."""
    if name.lower() in _MONTHS_ABROAD:
        return _MONTHS_ABROAD[name.lower()]
    return next(i for i, month in enumerate(MONTHS, 1) if month.startswith(name[:3].lower()))


_SMALL = "|".join(sorted((w for w, n in WORDS.items() if 1 <= n <= 20), key=len, reverse=True))
# Bounded, and begun by a number: unbounded blanks would take quadratic time.
_AND = r"[\s,]{0,4}(?:(?:and|und|et|y)\s{1,4})?"
_DURATION = re.compile(
    rf"(?<![\w.,])(?=\d|(?:{_SMALL})\s?[a-z])(?:(?P<day>\d{{1,4}}|{_SMALL})\s?(?:d|days?|Tagen?|jours?|días?)\b{_AND})?"
    rf"(?:(?P<hour>\d{{1,4}}|{_SMALL})\s?(?:h|hrs?|hours?|Std\.?|Stunden?|heures?|horas?)\b{_AND})?"
    rf"(?:(?P<minute>\d{{1,3}}|{_SMALL})\s?(?:m|min|mins|minutes?|Minuten?|minutos?)\b\.?)?"
    rf"(?:{_AND}(?P<second>\d{{1,2}}|{_SMALL})\s?(?:s|sec|secs|seconds?|Sekunden?)\b)?",
    re.I,
)


def _find_durations(text: str, taken: bytearray) -> Iterator[Mention]:
    """Find durations of several parts, such as `1 h 28 min` and `nine days and six hours`, as a number of seconds."""
    for match in _DURATION.finditer(text):
        parts = [name for name in ("day", "hour", "minute", "second") if match[name]]
        if len(parts) < 2 or any(taken[match.start() : match.end()]):
            continue
        counts = {name: int(n) if (n := match[name].lower()).isdigit() else WORDS[n] for name in parts}
        seconds = sum((n * TIME_UNITS[name] for name, n in counts.items()), Decimal(0))
        end = match.start() + len(match.group().rstrip(" ,.\t\n"))
        step = 2 * TIME_UNITS[parts[-1]]  # Models cut as often as they round.
        hedge = _hedge(text, match.start())
        readings = (Reading(seconds, step),)
        yield Mention(
            match.start(),
            end,
            text[match.start() : end],
            "number",
            readings,
            "second",
            "" if hedge == "about" else hedge,
        )


def _find_times(text: str, taken: bytearray) -> Iterator[Mention]:
    for match in _TIME.finditer(text):
        yield Mention(match.start(), match.end(), match.group(), "time", _durations_of(match.group()))


def _durations_of(written: str) -> tuple[Reading, ...]:
    """Return the seconds that `35:45` may mean as minutes and seconds, or as hours and minutes."""
    parts = [int(part) for part in re.findall(r"\d+", written.split(".", maxsplit=1)[0])]
    if (seconds := mentioned_seconds(written)) is not None and "." in written:
        return (_reading(str(seconds)),)
    if len(parts) == 3:
        return (Reading(Decimal(3600 * parts[0] + 60 * parts[1] + parts[2]), Decimal(2)),)
    if len(parts) != 2 or re.search(r"[ap]\.?m", written, re.I):
        return ()
    seconds = Decimal(60 * parts[0] + parts[1])
    short, long = Reading(seconds, Decimal(2)), Reading(60 * seconds, Decimal(120))
    return (short,) if "min" in written else (long,) if "h" in written else (short, long)


def mentioned_seconds(written: str) -> Decimal | None:
    """Return the seconds of a stopped time such as `7:48.67` or `1:02:03.4`; None if it has no fraction."""
    match = re.fullmatch(r"\s*(?:(\d{1,2}):)?(\d{1,3}):([0-5]\d\.\d{1,6})\s*", written)
    return 3600 * int(match[1] or 0) + 60 * int(match[2]) + Decimal(match[3]) if match else None


def _find_fractions(text: str, taken: bytearray) -> Iterator[Mention]:
    for match in _FRACTION.finditer(text):
        a, b = int(match["a"]), int(match["b"])
        if b and not any(taken[match.start() : match.end()]):
            readings = (Reading(Decimal(100 * a) / Decimal(b), Decimal(1)),)
            yield Mention(match.start(), match.end(), match.group(), "percent", readings, parts=(a, b))


def _find_digits(text: str, taken: bytearray) -> Iterator[Mention]:
    at = 0
    while match := _NUMBER.search(text, at):
        digits_start, digits_end = match.span("digits")
        at = max(digits_end, match.end())
        if any(taken[digits_start:digits_end]):
            at = digits_end
            continue
        start, signed_by = _signed_start(text, match)
        if start and (text[start - 1].isalnum() or text[start - 1] == "_" or _is_part_of_name(text, start)):
            continue
        readings = _read_digits(match["digits"])
        if not readings:  # Several numbers, such as 10,20,30: find each one by itself.
            at = digits_start + len(re.match(r"\d+", match["digits"]).group())  # type: ignore[union-attr]
            readings = _read_digits(text[digits_start:at])
            suffix = None
        else:
            suffix = _SUFFIX.match(text, at)
        end = suffix.end() if suffix else at
        after = text[end : end + 1]
        if suffix is not None and (
            after.isalnum() or after == "_" or suffix["time"] in ("D", "H", "S") or _NAME_CONTINUES.match(text, end)
        ):
            at = end
            continue  # Part of a name, such as 3D or 12abc.
        mention = _build_mention(text, start, end, match, suffix, readings, signed_by)
        yield mention
        at = end


def _signed_start(text: str, match: re.Match[str]) -> tuple[int, str]:
    """Return the start of the number and its sign; a dash after a digit or a letter is a hyphen, not a minus."""
    sign, start = match["sign"] or "", match.start()
    if match["money"] and not sign and start and text[start - 1].isalnum():
        return match.start("digits"), ""
    if sign and start and (text[start - 1].isalnum() or text[start - 1] in "%$€£)_"):
        return match.start() + 1, ""
    if match["sign2"] and match["money"]:
        sign = match["sign2"]
    elif match["sign2"]:
        return match.start("digits"), ""
    return start, sign


def _is_part_of_name(text: str, start: int) -> bool:
    """Return whether a number belongs to a name, as in SKU-1234 or COVID-19; a range such as 10-20 does not."""
    before = re.search(r"[A-Za-z_][\w]*[-./#]$", text[max(0, start - 24) : start])
    return before is not None and not re.match(r"(?:mid|pre|post|non|sub|to|or|and)-$", before.group(), re.I)


def _read_digits(written: str) -> tuple[Reading, ...]:
    """Return every value that digits with separators may mean; empty if they are not a single number."""
    text = re.sub(rf"{_GAP}|['\u2019]", " ", written)
    groups = re.split(r"[., ]", text)
    marks = [c for c in text if c in "., "]
    if not marks or groups[0] == "":
        return (_reading(text),)
    readings = []
    *inner, last_mark = marks
    grouped = 1 <= len(groups[0]) <= 3 and len(set(inner)) <= 1
    if (
        last_mark != " "
        and last_mark not in inner
        and all(len(g) == 3 for g in groups[1:-1])
        and (not inner or grouped)
    ):
        readings.append(_reading("".join(groups[:-1]) + "." + groups[-1]))
    western = all(len(group) == 3 for group in groups[1:])
    indian = len(marks) > 1 and all(len(g) == 2 for g in groups[1:-1]) and len(groups[-1]) == 3
    if len(set(marks)) == 1 and grouped and groups[0] != "0" and (western or (indian and last_mark == ",")):
        whole = _reading("".join(groups))
        readings.insert(0 if last_mark != "." else len(readings), whole)
    return tuple(readings)


def _reading(plain: str) -> Reading:
    value = Decimal(plain)
    exponent = value.as_tuple().exponent
    return Reading(value, Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0))


def _build_mention(
    text: str, start: int, end: int, match: re.Match[str], suffix: re.Match[str] | None,
    readings: tuple[Reading, ...], sign: str,
) -> Mention:  # fmt: skip
    """Apply what is written before and after a number: sign, currency, scale, unit, hedge."""
    groups: dict[str, str | None] = suffix.groupdict() if suffix else {}
    factor = Decimal(1)
    if match["exp"]:
        factor = Decimal(10) ** int(match["exp"][1:])
    kind: Kind = "number"
    unit = "money" if match["money"] or groups.get("money") else ""
    scale = (groups.get("scale") or "").strip(" -\u00a0\u202f\u2009")
    scaled = tuple(_times(reading, factor * _SCALES.get(scale.lower(), 1)) for reading in readings)
    if groups.get("cents"):
        unit = "money"
        scaled += tuple(_times(reading, Decimal("0.01")) for reading in scaled)
    if scale == "m":  # It may also mean metres or minutes.
        scaled += tuple(_times(reading, factor) for reading in readings)
    if groups.get("ordinal"):
        kind = "ordinal"
    elif groups.get("points"):
        kind = "points"
    elif groups.get("basis"):
        kind, scaled = "points", tuple(_times(reading, Decimal("0.01")) for reading in scaled)
    elif groups.get("percent"):
        kind = "percent"
    elif groups.get("times"):
        kind = "times"
    elif groups.get("time"):
        unit = _TIME_WORDS[re.sub(r"[^a-z]", "", (groups["time"] or "").lower())]
    elif start and text[start - 1] == "#":
        kind = "ordinal"
    if sign in ("-", "\u2212", "\u2013"):
        scaled = tuple(Reading(reading.value.copy_negate(), reading.step) for reading in scaled)
    hedge = "over" if groups.get("plus") else _hedge(text, start)
    return Mention(start, end, text[start:end], kind, scaled, unit, hedge, signed=bool(sign))


def _times(reading: Reading, factor: Decimal) -> Reading:
    return reading if factor == 1 else Reading(reading.value * factor, reading.step * factor)


def _hedge(text: str, start: int) -> Hedge:
    if _OVER_A_TIME.search(text, max(0, start - 5), start + 60) and text[max(0, start - 5) : start].lower() == "over ":
        return ""
    before = text[max(0, start - 28) : start]
    before = before.rstrip("*_`") if before.endswith(("*", "_", "`")) else before
    return next((hedge for hedge, pattern in _HEDGES.items() if pattern.search(before)), "")


def _find_words(text: str, taken: bytearray) -> Iterator[Mention]:
    yield from _find_words_abroad(text, taken)
    for match in _WORD_NUMBER.finditer(text):
        start, end = match.span()
        if any(taken[start:end]):
            continue
        hedge = _hedge(text, start)
        found = _read_word(text, match, hedge)
        if found is None:
            continue
        kind, reading, unit, end = found
        yield Mention(start, end, text[start:end], kind, (reading,), unit, hedge, word=True)


def _find_words_abroad(text: str, taken: bytearray) -> Iterator[Mention]:
    """Find counts such as `neun Länder` in the language that a text is written in."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    spoken = [sum(word in small for word in words) for small in (frozenset(s.split()) for s in _SPOKEN)]
    english = sum(word in _STOP for word in words)
    best = max(range(len(_SPOKEN)), key=spoken.__getitem__)
    if spoken[best] < max(3, english):
        return
    sizes = {word: n for n, word in enumerate(_ABROAD[best].split(), 2)}
    for match in re.finditer(rf"\b(?:{'|'.join(sizes)})\b(?=\s+[^\W\d])", text, re.I):
        if not any(taken[match.start() : match.end()]):
            reading = Reading(Decimal(sizes[match.group().lower()]), Decimal(1))
            hedge = _hedge(text, match.start())
            yield Mention(match.start(), match.end(), match.group(), "number", (reading,), "", hedge, word=True)


def _read_word(text: str, match: re.Match[str], hedge: Hedge) -> tuple[Kind, Reading, str, int] | None:
    """Parse a number word; None if it is not a quantity, as in `these two` and `one of them`."""
    after = text[match.end() : match.end() + 60]
    before = text[max(0, match.start() - 20) : match.start()].lower()
    if match["part"] and not _is_count_of_quarters(match, after, before):
        return _read_part(match, after, before, hedge)
    if match["bare_half"]:
        named = re.search(r"(?:first|second|other|latter|1st|2nd|last|and a|h)\s*$", before)
        counted = re.match(r"\s+(?:of|the|all|its|as|that|a\b|what)", after) or hedge
        return None if named or not counted else ("percent", Reading(Decimal(50), Decimal(5)), "", match.end())
    if match["fold"]:
        return "times", Reading(Decimal(WORDS[match["fold"].lower()]), Decimal("0.2")), "", match.end()
    if match["verb"]:
        if match["verb"].lower() in ("twice", "thrice") and re.match(r"\s+(?:a|per|in|every)\b", after):
            return None
        value = Decimal(_VERBS[match["verb"][:5].lower()])
        return "times", Reading(value, value / 10), "", match.end()
    if match["place"]:
        return "ordinal", Reading(Decimal(_ORDINALS[match["place"].lower()]), Decimal(1)), "", match.end()
    if match["dozens"]:
        count = Decimal(WORDS.get(match["dozen"].lower(), 1) * 12)
        return "number", Reading(count, Decimal(1)), "", match.end()
    return _read_count(text, match, after)


def _is_count_of_quarters(match: re.Match[str], after: str, before: str = "") -> bool:
    """Return whether `three quarters` means quarters of a year rather than 75%."""
    counted = WORDS.get(match["part_n"].lower(), 0) > 1 and match["part"].lower() == "quarters"
    if (
        re.search(r"\b(?:about|nearly|almost|roughly|the (?:remaining|other))\s+$", before)
        and match["part_n"] == "three"
    ):
        return False
    return counted and (WORDS[match["part_n"].lower()] > 3 or not re.match(r"\s+of\s+(?!(?:19|20)\d\d)", after))


def _read_part(match: re.Match[str], after: str, before: str, hedge: Hedge) -> tuple[Kind, Reading, str, int] | None:
    count, part = match["part_n"].lower(), match["part"].lower()
    if (
        count in ("a", "an")
        and not hedge
        and not re.match(r"\s+(?:of\b|more|less|higher|lower|fewer|larger|smaller)|[,.;)]", after)
    ):
        return None
    if re.search(r"(?:and|for|per)\s*$", before) and part in ("half", "quarter") and count in ("a", "an"):
        return None
    share = Decimal(100 * WORDS.get(count, 1)) / Decimal(_PARTS[part])
    return ("percent", Reading(share, Decimal(5)), "", match.end()) if share < 100 else None


def _read_count(text: str, match: re.Match[str], after: str) -> tuple[Kind, Reading, str, int] | None:
    if match["part"]:
        return "number", Reading(Decimal(WORDS[match["part_n"].lower()]), Decimal(1)), "", match.end("part_n")
    if match["tens"]:
        value = Decimal(WORDS[match["tens"].lower()] + WORDS[match["ones"].lower()])
    else:
        value = Decimal(WORDS[match["plain"].lower()])
    step = Decimal(1)
    if match["and_half"]:
        value, step = value + Decimal("0.5"), Decimal("0.5")
    suffix = _SUFFIX.match(text, match.end())
    groups = suffix.groupdict() if suffix else {}
    end = suffix.end() if suffix else match.end()
    factor = _SCALES.get((groups.get("scale") or "").strip(" -").lower(), 1)
    reading = _times(Reading(value, step), Decimal(factor))
    if groups.get("percent") or groups.get("points"):
        return ("percent" if groups.get("percent") else "points"), reading, "", end
    if groups.get("times"):
        return "times", reading, "", end
    if groups.get("time") and value != 1:
        return "number", reading, _TIME_WORDS[re.sub(r"[^a-z]", "", groups["time"].lower())], end
    if groups.get("money") or factor > 1:
        return "number", reading, "money" if groups.get("money") else "", end
    alone = text[max(0, match.start() - 1) : match.start()] == "(" and after.startswith(")")
    if value == 1 or not (alone or _counts_something(after)):
        return None
    return "number", reading, "", match.end()


def _counts_something(after: str) -> bool:
    """Return whether a plural noun follows, as in `three regions` or `three of the five largest regions`."""
    if re.match(r"\s+(?:are|were|have|had)\s+(?!the\b)", after):
        return True
    if re.match(r"\s+(?:of|out of)\s+(?:the|these|those|our|all|its|their|\w+)\b", after):
        return True
    for word in re.findall(r"(?<=[\s-])([A-Za-z]+)(?=[^A-Za-z]|$)", re.split(r"[,.;:()\n|]", after)[0])[:3]:
        lower = word.lower()
        if lower in _STOP:
            return False
        if lower in _IRREGULAR or (lower.endswith("s") and not lower.endswith("ss") and lower not in _NOT_NOUNS):
            return True
    return False


def _share_units(text: str, found: list[Mention]) -> list[Mention]:
    """Give both numbers of a range the unit that one of them has: `10-20%`, `between 5 and 6 million`, `$10-20`."""
    shared = list(found)
    for i, (left, right) in enumerate(pairwise(found)):
        between = text[left.end : right.start]
        if left.unit in TIME_UNITS and right.kind == "number" and not right.unit and _AGAINST.fullmatch(between):
            shared[i + 1] = replace(shared[i + 1], unit=left.unit)
        if not re.fullmatch(r"[-\u2013—]|\s[-\u2013]\s|\s(?:to|and|or)\s", between) or {left.kind, right.kind} & {
            "date",
            "time",
            "ordinal",
        }:
            continue
        joined = between.strip() not in ("and", "or") or re.search(
            r"between\s+$", text[max(0, left.start - 12) : left.start], re.I
        )
        if left.kind == "number" and not left.unit and right.kind in ("percent", "points", "times"):
            if right.word or right.parts or left.word or not joined:
                continue
            shared[i] = replace(shared[i], kind=right.kind)
        elif left.kind == right.kind == "number":
            unit = left.unit or right.unit
            scale = mention_scale(right)
            readings = left.readings
            if scale > 1 and mention_scale(left) == 1 and joined:
                readings += tuple(_times(reading, scale) for reading in left.readings)
            shared[i] = replace(shared[i], unit=shared[i].unit or unit, readings=readings)
            shared[i + 1] = replace(shared[i + 1], unit=shared[i + 1].unit or unit)
    return shared


_AGAINST = re.compile(r"[\w\s]{0,20}\b(?:versus|vs\.?|against|compared (?:with|to))\s(?:[\w\s]{0,12}\s)?", re.I)


def mention_scale(mention: Mention) -> Decimal:
    """Return what the word behind a number multiplies it by: a million in `3 million`."""
    word = re.search(r"[A-Za-z]+$", mention.text)
    return Decimal(_SCALES.get(word.group().lower(), 1)) if word else Decimal(1)


_POINT = re.compile(r"\.\d{1,2}(?!\d)|,\d{3}\.\d|,\d{3},")
_EITHER = re.compile(r"\d[.,]\d{3}(?!\d)")


def resolve_mention_readings(mentions: Sequence[Mention]) -> list[Mention]:
    """Keep one reading of `1,234` and `1.234` if another number of the text shows its decimal point."""
    if not any(_POINT.search(mention.text) for mention in mentions if mention.kind not in ("date", "time")):
        return list(mentions)
    return [  # The reading with a decimal point comes first.
        replace(mention, readings=mention.readings[: len(mention.readings) // 2])
        if len(mention.readings) > 1 and _EITHER.search(mention.text)
        else mention
        for mention in mentions
    ]
