"""Words of questions and names: splitting, base forms, abbreviations and synonyms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

MAX_CHARS = 2_000
"""Longer texts are not questions that rules could follow."""

_IRREGULAR = {
    "people": "person", "persons": "person", "children": "child", "men": "man", "women": "woman", "feet": "foot",
    "mice": "mouse", "criteria": "criterion", "indices": "index", "analyses": "analysis", "series": "series",
    "species": "species", "news": "news", "statuses": "status", "addresses": "address", "buses": "bus", "gas": "gas",
    "movies": "movie", "cookies": "cookie", "ties": "tie", "lives": "life", "wives": "wife", "leaves": "leaf",
    "halves": "half", "its": "its", "his": "his", "this": "this", "has": "has", "was": "was", "does": "does",
    "as": "as", "is": "is", "us": "us", "yes": "yes", "less": "less", "always": "always", "days": "day",
    "aircraft": "aircraft", "data": "data", "sales": "sale", "cases": "case", "bases": "base", "uses": "use",
    "purchases": "purchase", "courses": "course", "houses": "house", "licenses": "license", "expenses": "expense",
    "diagnoses": "diagnosis", "responses": "response", "databases": "database", "prices": "price", "sizes": "size",
    "geese": "goose", "teeth": "tooth", "oxen": "ox", "dice": "die", "lice": "louse", "phenomena": "phenomenon",
    "bacteria": "bacterium", "media": "medium", "curricula": "curriculum", "memoranda": "memorandum",
    "strata": "stratum", "errata": "erratum", "alumni": "alumnus", "cacti": "cactus", "fungi": "fungus",
    "nuclei": "nucleus", "stimuli": "stimulus", "syllabi": "syllabus", "radii": "radius", "foci": "focus",
    "matrices": "matrix", "vertices": "vertex", "appendices": "appendix", "vortices": "vortex", "codices": "codex",
    "theses": "thesis", "hypotheses": "hypothesis", "crises": "crisis", "oases": "oasis", "axes": "axis",
    "parentheses": "parenthesis", "antennae": "antenna", "formulae": "formula", "larvae": "larva",
    "quizzes": "quiz", "wolves": "wolf", "knives": "knife", "shelves": "shelf", "thieves": "thief", "calves": "calf",
    "loaves": "loaf", "scarves": "scarf", "elves": "elf", "gases": "gas", "shoes": "shoe", "toes": "toe",
    "canoes": "canoe", "pies": "pie", "lies": "lie", "zombies": "zombie", "calories": "calorie", "selfies": "selfie",
    "brownies": "brownie", "rookies": "rookie", "genies": "genie", "lenses": "lens", "aliases": "alias",
    "biases": "bias", "atlases": "atlas", "canvases": "canvas", "christmas": "christmas", "texas": "texas",
    "kansas": "kansas", "arkansas": "arkansas", "physics": "physics", "mathematics": "mathematics",
    "economics": "economics", "politics": "politics", "athletics": "athletics", "staffs": "staff",
}  # fmt: skip

ABBREVIATIONS = {
    "num": "number", "nbr": "number", "nr": "number", "qty": "quantity", "amt": "amount", "avg": "average",
    "addr": "address",
    "desc": "description", "dept": "department", "cust": "customer", "tx": "transaction", "txn": "transaction",
    "ccy": "currency", "curr": "currency", "dob": "birthdate", "ts": "timestamp", "crtd": "created", "pct": "percent",
    "yr": "year", "tel": "phone", "msg": "message", "cat": "category", "prod": "product", "emp": "employee",
    "mgr": "manager", "org": "organization", "acct": "account", "acc": "account", "bal": "balance", "pmt": "payment",
    "inv": "invoice", "ref": "reference", "loc": "location", "dt": "date", "lang": "language", "lat": "latitude",
    "lon": "longitude", "lng": "longitude", "hrs": "hours", "min": "minimum", "max": "maximum", "temp": "temperature",
    "dist": "distance", "freq": "frequency", "info": "information", "pop": "population", "rev": "revenue",
    "dur": "duration", "fname": "first name", "lname": "last name", "doc": "document", "wt": "weight",
    "ht": "height", "ins": "insurance", "tot": "total", "cnt": "count", "usr": "user", "sess": "session",
    "pub": "publication", "enr": "enrollment", "no": "number",
    "mbr": "member", "mbrs": "member", "cd": "code", "dlv": "delivery", "grp": "group", "meth": "method",
    "equip": "equipment", "stn": "station", "odo": "odometer", "moist": "moisture", "reg": "region",
    "mfr": "manufacturer", "veh": "vehicle", "pax": "passengers", "nm": "name", "ttl": "total",
    "descr": "description", "stu": "student", "crs": "course",
    "sch": "school",
    "bldg": "building", "hq": "headquarters", "nat": "nationality", "qtr": "quarter", "wk": "week", "mo": "month",
    "dest": "destination", "orig": "origin", "percap": "per capita", "alt": "altitude", "tz": "time zone",
    "tzone": "time zone", "arr": "arrival", "sched": "scheduled",
}  # fmt: skip

SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in (
        "price cost fare charge fee",
        "amount value total",
        "revenue turnover earnings proceeds",
        "quantity units volume",
        "rating score stars",
        "customer client buyer shopper",
        "employee staff worker",
        "salesperson salesman saleswoman seller",
        "vendor supplier",
        "product item article",
        "phone telephone mobile",
        "organization organisation institution",
        "color colour",
        "state province",
        "zip postcode zipcode",
        "country nation",
        "nationality nation",
        "category kind type genre",
        "cuisine food",
        "publication paper",
        "gender sex",
        "purchase buy",
        "doctor physician",
        "medication drug medicine",
        "salary wage pay",
        "altitude elevation height",
        "length duration",
        "joined signup registration registered",
        "movie film",
        "song track",
        "university college",
        "teacher instructor professor lecturer",
        "review comment",
        "merchant shop",
        "capacity seats",
        "title name",
        "manufacturer maker",
        "user member",
        "household home dwelling",
        "aircraft plane airplane",
        "photo photograph picture image",
        "bike bicycle",
        "car automobile",
        "company firm business enterprise",
        "job occupation profession",
        "author writer",
        "pupil student",
        "match game fixture",
        "club team",
        "city town",
        "road street",
        "consumption usage",
        "visit checkin",
    )
)

QUANTITIES = frozenset(
    [
        "price",
        "cost",
        "fare",
        "charge",
        "fee",
        "amount",
        "value",
        "sum",
        "revenue",
        "turnover",
        "quantity",
        "units",
        "volume",
        "rating",
        "score",
    ]
)
"""Words for numbers, never for things that are counted."""

GENERIC = frozenset(["name", "title", "number", "num", "code", "type", "count", "no"])
"""Last words of column names that say what kind of thing a column holds, not what it is about."""
SCALES = {"thousand": 1_000, "million": 1_000_000, "billion": 10**9}
"""Last words of column names that say how many each unit of their numbers stands for."""
MEASURES = frozenset(
    [
        "mile",
        "kilometer",
        "km",
        "meter",
        "cm",
        "mm",
        "foot",
        "kg",
        "gram",
        "lb",
        "usd",
        "eur",
        "minute",
        "hour",
        "second",
        "percent",
        "dollar",
        "euro",
        "gbp",
        "chf",
        "ha",
        "kwh",
        "mwh",
        "tonne",
        "liter",
        "litre",
        "ml",
        "mg",
        "mb",
        "gb",
        "kw",
        "kmh",
        "mph",
        "ms",
        "oz",
        "ft",
        "sec",
        "pound",
        "ton",
        "yn",
        *SCALES,
    ]
)
"""Last words of column names that name a unit, or that the values are yes and no."""

TRAILING = frozenset(
    [
        "daily",
        "weekly",
        "monthly",
        "log",
        "history",
        "data",
        "table",
        "info",
        "information",
        "detail",
        "record",
        "fact",
        "dim",
        "view",
        "list",
    ]
)
"""Last words of table names that say how rows are stored, not what they are."""
TAILS = ("name", "id", "title", "number", "code", "date", "type", "count", "key")
"""Words at the end of names written as one word."""

_NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_FACTORS = {"hundred": 100, "k": 1_000, "m": 1_000_000, **SCALES}

Kind = Literal["word", "number", "quoted", "mark"]


@dataclass(frozen=True)
class Token:
    """A word, number, quoted text or punctuation mark of the question, with its position."""

    kind: Kind
    text: str
    low: str
    base: str
    """The word without its ending."""
    start: int
    end: int
    number: float | int | None = None


_QUOTES = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


def fold_words(text: str) -> str:
    """Return the text in lower case, without accents and typographic quotes."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.translate(_QUOTES))
    return "".join(char for char in plain if not unicodedata.combining(char)).casefold()


@lru_cache(maxsize=50_000)
def word_base_form(word: str) -> str:
    """Return the singular of a noun in lower case; other words unchanged."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 4 or not word.isalpha():
        return word[:-1] if len(word) == 3 and word.endswith("s") and word[1] not in "aiu" and word != "gas" else word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    if len(word) > 5 and (word.endswith("oes") or (word.endswith("uses") and word[-5] not in "ao")):
        return word[:-2]  # heroes, viruses; but causes and houses
    if word.endswith("s") and not word.endswith(("ss", "us", "is", "ous")):
        return word[:-1]
    return word


_PLURALS = {
    "person": "people", **{one: many for many, one in _IRREGULAR.items() if one not in (many, "person")}
}  # fmt: skip


def word_plural_form(word: str) -> str:
    """Return the plural of a noun in lower case."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word in _IRREGULAR or word.endswith("data"):
        return word
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    return word + "s"


@lru_cache(maxsize=50_000)
def stem_word(word: str) -> str:
    """Return the stem that related words share: `successful`, `success`; `cancelled`, `canceled`, `cancel`."""
    text = word_base_form(word)
    for ending, least in (
        ("fully", 4),
        ("ful", 4),
        ("ment", 4),
        ("ing", 3),
        ("ed", 3),
        ("ly", 4),
        ("er", 4),
        ("e", 3),
        ("al", 4),
    ):
        if text.endswith(ending) and len(text) - len(ending) >= least:
            text = text[: -len(ending)]
            break
    return text[:-1] if len(text) > 4 and text[-1] == text[-2] else text


def verb_root(word: str) -> str:
    """Return what a verb shares with the noun for who does it: `supply` and `supplier`, `advise` and `advisor`."""
    text = stem_word(word)
    if len(text) > 5 and text.endswith("or"):
        text = text[:-2]
    return text[:-1] + "i" if text.endswith("y") else text


def word_names_act(noun: str, stem: str) -> bool:
    """Return whether a noun is what a verb does, given its stem: `attendance` of attended, `registration`."""
    return len(stem) > 4 and noun != stem and len(noun) > len(stem[:6]) and noun.startswith(stem[:6])


def words_without_numbers(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a table without years and numbers, which are in the names of many files."""
    return tuple(word for word in words if not word.isdecimal()) or words


@lru_cache(maxsize=20_000)
def split_identifier_words(name: str) -> tuple[str, ...]:
    """Return the words in `snake_case`, `camelCase` and `kebab-case`, in lower case."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", text)
    text = re.sub(r"([A-Za-z])([0-9])", r"\1 \2", text)
    return tuple(fold_words(word) for word in re.findall(r"[^\W_]+", text))


def parse_plain_number(text: str) -> int | float | None:
    """Return the number that a text is, written in digits without leading zeros; else None."""
    if re.fullmatch(r"-?(?:0|[1-9][0-9]{0,14})", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,12}", text) else None


def spell_out_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return the base forms, with abbreviations in full."""
    return tuple(word_base_form(part) for word in words for part in ABBREVIATIONS.get(word, word).split())


@lru_cache(maxsize=20_000)
def word_synonyms(word: str) -> tuple[str, ...]:
    """Return the synonyms of a word."""
    return tuple(sorted({other for group in SYNONYMS if word in group for other in group if other != word}))


_TOKEN = re.compile(
    r"""
    (?P<quoted>(?<!\w)"[^"]{1,200}"|(?<!\w)'[^'\s](?:[^']{0,200}?[^'\s])?'(?!\w)|(?<!\w)`[^`]{1,200}`)
  | (?P<iso>\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)
  | (?P<number>[$€£]?\s?-?(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?|[$€£]?(?:(?<!\w)-)?(?<![\w.])\d+(?:\.\d+)?)
    (?P<unit>%|(?:k|K|M|st|nd|rd|th)\b)?(?![\w@])
  | (?P<word>\w+(?:['][^\W_]+)*)
  | (?P<mark><=|>=|!=|<>|[^\s])
    """,
    re.VERBOSE,
)


def tokenize(question: str) -> list[Token]:
    """Return the tokens of a question, in order."""
    text = question.translate(_QUOTES)
    return list(_join_numbers(list(_tokens(text))))


def _tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        raw = match.group()
        if match["quoted"]:
            inner = raw[1:-1].strip()
            yield Token("quoted", inner, fold_words(inner), fold_words(inner), start, end)
        elif match["iso"]:
            yield Token("word", raw, raw, raw, start, end)
        elif match["number"]:
            yield _number(match["number"], match["unit"] or "", start, end)
        elif match["word"]:
            yield from _words(raw, start)
        else:
            yield Token("mark", raw, raw, raw, start, end)


def _number(digits: str, unit: str, start: int, end: int) -> Token:
    plain = re.sub(r"[$€£,\s]", "", digits)
    value: float | int = float(plain) if "." in plain else int(plain)
    value *= {"k": 1_000, "m": 1_000_000}.get(unit.lower(), 1)
    low = plain + (unit if unit in ("%", "st", "nd", "rd", "th") else "")
    return Token("number", digits + unit, low, low, start, end, value)


def _words(raw: str, start: int) -> Iterator[Token]:
    low = fold_words(raw)
    if "_" in low:
        # A name as it is written in the database.
        yield from (
            Token("word", raw, part, word_base_form(part), start, start + len(raw)) for part in low.split("_") if part
        )
        return
    if low.endswith("'s"):
        low = low[:-2]
    elif low.endswith("n't"):
        # "don't" is "do not".
        yield Token("word", raw[:-3], low[:-3] or low, low[:-3] or low, start, start + len(raw) - 3)
        yield Token("word", raw[-3:], "not", "not", start + len(raw) - 3, start + len(raw))
        return
    low = low.replace("'", "")
    if low:
        yield Token("word", raw, low, word_base_form(low), start, start + len(raw))


_ONE_AFTER = frozenset(
    [
        "the",
        "this",
        "that",
        "which",
        "each",
        "every",
        "any",
        "no",
        "some",
        "another",
        "either",
        "other",
        "last",
        "next",
        "first",
    ]
)
_ONE_BEFORE = frozenset(["with", "that", "who", "whose", "which", "of", "for", "in", "from", "called", "named"])


def _stands_for_a_noun(tokens: list[Token], at: int) -> bool:
    """Return whether `one` stands for a noun: `the one with the highest price`, `which one`."""
    if tokens[at].low != "one":
        return False
    before, after = tokens[at - 1].low if at else "", tokens[at + 1].low if at + 1 < len(tokens) else ""
    return before in _ONE_AFTER or (after in _ONE_BEFORE and before not in ("than", "least", "most", "exactly", "only"))


def _join_numbers(tokens: list[Token]) -> Iterator[Token]:
    """`five`, `a hundred thousand`, `1.5 million` as numbers."""
    at = 0
    while at < len(tokens):
        token, value, end = tokens[at], tokens[at].number, at + 1
        # "one-way" and "two factor" are names; a number word counts only if no hyphen follows.
        hyphen = end < len(tokens) and tokens[end].text == "-" and tokens[end].start == token.end
        if value is None and token.kind == "word" and token.low in _NUMBER_WORDS and not hyphen:
            value = _NUMBER_WORDS[token.low] if not _stands_for_a_noun(tokens, at) else None
        if value is None and token.low == "a" and end < len(tokens) and tokens[end].low in ("hundred", "thousand"):
            value = 1
        if value is None:
            yield token
            at += 1
            continue
        while end < len(tokens) and tokens[end].low in _FACTORS and token.low[-1:] != "%":
            value *= _FACTORS[tokens[end].low]
            end += 1
        text = " ".join(t.text for t in tokens[at:end])
        low = token.low if end == at + 1 else str(value)
        yield Token("number", text, low, low, token.start, tokens[end - 1].end, value)
        at = end
