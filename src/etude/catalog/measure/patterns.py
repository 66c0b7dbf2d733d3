"""Recognise patterns in text values: dates, email addresses, codes and the like, from some of the values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from etude.catalog.model import Pattern

_PROBES = 8
_LEAST_SHARE = 0.1
_MOST = 3
_MASKS = 3


def _looks_like(expression: str, flags: int = 0, any_script: bool = False) -> Callable[[str], object]:
    return re.compile(expression, flags if any_script else flags | re.ASCII).fullmatch


def _reads_as(expression: str, form: str) -> Callable[[str], bool]:
    shape = re.compile(expression, re.ASCII)

    def check(text: str) -> bool:
        if shape.fullmatch(text) is None:
            return False
        try:
            datetime.strptime(text, form)
        except ValueError:
            return False
        return True

    return check


def _is_card(text: str) -> bool:
    if not _CARD.fullmatch(text):
        return False
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [d if i % 2 == 0 else d * 2 - 9 * (d > 4) for i, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _is_iban(text: str) -> bool:
    plain = text.replace(" ", "")
    if not _IBAN.fullmatch(plain):
        return False
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


_CARD = re.compile(r"[3-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{1,7}|3\d{3}[ -]?\d{6}[ -]?\d{5}", re.ASCII)
_IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", re.ASCII)
# Parts of an email address: letters of any script with their marks, and the ASCII characters allowed; no spaces.
_MAILBOX = r"[^\s\x00-\x24&\x28-\x2a,/\x3a-\x40\x5b-\x5e`\x7b-\x7f]+"
_LABEL = r"[^\s\x00-\x2c./\x3a-\x40\x5b-\x5e`\x7b-\x7f]+"
_TOP = r"[^\s\x00-\x40\x5b-\x60\x7b-\x7f]{2,24}"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"

# In order of preference: a value counts for the first kind that matches it.
_KINDS: tuple[tuple[str, str | None, Callable[[str], object]], ...] = (
    ("uuid", None, _looks_like(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)),
    ("email", None, _looks_like(rf"{_MAILBOX}@{_LABEL}(?:\.{_LABEL})*\.(?:xn--{_LABEL}|{_TOP})", any_script=True)),
    ("url", None, _looks_like(r"(?:https?|ftp|s3)://[^\s/]+\S*|www\.[^\s/]+\.\S+", re.IGNORECASE)),
    (
        "ip",
        None,
        _looks_like(rf"{_OCTET}(?:\.{_OCTET}){{3}}|(?:[0-9a-f]{{0,4}}:){{3,7}}[0-9a-f]{{0,4}}", re.IGNORECASE),
    ),
    ("date", "%Y-%m-%d", _reads_as(r"\d{4}-\d\d-\d\d", "%Y-%m-%d")),
    ("date", "%Y/%m/%d", _reads_as(r"\d{4}/\d\d?/\d\d?", "%Y/%m/%d")),
    ("date", "%m/%d/%Y", _reads_as(r"\d\d?/\d\d?/\d{4}", "%m/%d/%Y")),
    ("date", "%d/%m/%Y", _reads_as(r"\d\d?/\d\d?/\d{4}", "%d/%m/%Y")),
    ("date", "%d.%m.%Y", _reads_as(r"\d\d?\.\d\d?\.\d{4}", "%d.%m.%Y")),
    ("date", "%d-%m-%Y", _reads_as(r"\d\d?-\d\d?-\d{4}", "%d-%m-%Y")),
    ("date", "%d-%b-%Y", _reads_as(r"\d\d?-[A-Za-z]{3}-\d{4}", "%d-%b-%Y")),
    ("date", "%b %d, %Y", _reads_as(r"[A-Za-z]{3} \d\d?, \d{4}", "%b %d, %Y")),
    ("date", "%Y%m%d", _reads_as(r"(?:19|20)\d{6}", "%Y%m%d")),
    ("month", "%Y-%m", _reads_as(r"(?:19|20)\d\d-\d\d", "%Y-%m")),
    (
        "timestamp",
        "ISO 8601",
        _looks_like(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?(?:\d\d)?))?"),
    ),
    ("timestamp", "%Y%m%d %H:%M:%S", _reads_as(r"\d{8} \d\d:\d\d:\d\d", "%Y%m%d %H:%M:%S")),
    ("timestamp", "%m/%d/%Y %H:%M", _looks_like(r"\d\d?/\d\d?/\d{4} \d\d?:\d\d(?::\d\d)?(?: ?[AP]M)?", re.IGNORECASE)),
    ("time", "%H:%M", _looks_like(r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?: ?[AP]M)?", re.IGNORECASE)),
    ("card", None, _is_card),
    ("iban", None, _is_iban),
    ("national id", "999-99-9999", _looks_like(r"(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}")),
    (
        "phone",
        None,
        _looks_like(r"(?=(?:\D*\d){7,15}\D*$)(?:\+\d|\(?\d{2,4}\)?[ .-])[\d ().-]{5,18}(?: ?(?:x|ext\.?) ?\d+)?"),
    ),
    ("integer", None, _looks_like(r"[+-]?\d{1,18}")),
    ("number", None, _looks_like(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)?\.?\d+(?:[eE][+-]?\d+)?")),
    ("money", None, _looks_like(r"[-(]?(?:[$€£¥]|USD|EUR|GBP) ?\d[\d,.]*\)?|\d[\d,.]* ?(?:[$€£¥]|USD|EUR|GBP)")),
    ("percent", None, _looks_like(r"[+-]?\d+(?:\.\d+)? ?%")),
    ("boolean", None, _looks_like(r"true|false|yes|no|y|n|t|f|on|off", re.IGNORECASE)),
    ("json", None, _looks_like(r"\s*(?:\{.*\}|\[.*\])\s*", re.DOTALL)),
    ("hex", None, _looks_like(r"(?:0x)?(?=.*\d)(?=.*[a-f])[0-9a-f]{8,}", re.IGNORECASE)),
    ("path", None, _looks_like(r"(?:/|[A-Za-z]:\\|\./)[\w .-]+(?:[/\\][\w .-]+)*")),
)


def find_patterns(texts: Sequence[str]) -> tuple[Pattern, ...]:
    """Return the patterns of these distinct values, or a sample of them, most frequent first."""
    given = [t.strip() for t in texts if t and not t.isspace()]
    if not given:
        return ()
    probes = given if len(given) <= _PROBES else [given[i * len(given) // _PROBES] for i in range(_PROBES)]
    # Most kinds match nothing: only those that match one of a few values are tried on all.
    likely = [kind for kind in _KINDS if any(kind[2](text) for text in probes)]
    found: Counter[tuple[str, str | None]] = Counter()
    for text in given if likely else ():
        for kind, form, fits in likely:
            if fits(text):
                found[kind, form] += 1
                break
    if found["number", None]:
        found["number", None] += found.pop(("integer", None), 0)
    found = _resolve_day_and_month(found, given)
    patterns = [
        Pattern(kind=kind, form=form, share=round(count / len(given), 4))
        for (kind, form), count in sorted(found.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
        if count / len(given) >= _LEAST_SHARE
    ]
    return tuple(patterns[:_MOST]) or _codes(given)


def _resolve_day_and_month(
    found: Counter[tuple[str, str | None]], given: Sequence[str]
) -> Counter[tuple[str, str | None]]:
    """Choose one format for dates with slashes: day first if any of them cannot have the month first."""
    american, other = ("date", "%m/%d/%Y"), ("date", "%d/%m/%Y")
    if not found[other]:
        return +found
    fits = next(kind[2] for kind in _KINDS if kind[1] == other[1])
    if sum(1 for text in given if fits(text)) >= found[american] + found[other]:
        found[other] += found.pop(american, 0)
    return +found


def _codes(given: Sequence[str]) -> tuple[Pattern, ...]:
    """Find codes: short values of capitals, digits and punctuation that share a few masks."""
    if any(len(t) > 32 or " " in t for t in given[:_PROBES]):
        return ()
    masks = Counter(pattern_mask(text) for text in given)
    likely = [(m, c) for m, c in masks.most_common() if "9" in m or ("A" in m and "a" not in m)]
    likely.sort(key=lambda item: (-item[1], item[0]))
    if not likely or sum(c for _, c in likely[:_MASKS]) < 0.9 * len(given):
        return ()
    # Capitals of a fixed length are a code; capitals of any length are words.
    if len(masks) > _MASKS and not any("9" in m for m, _ in likely[:_MASKS]):
        return ()
    return tuple(Pattern(kind="code", form=m, share=round(c / len(given), 4)) for m, c in likely[:_MASKS])


def pattern_mask(text: str) -> str:
    """Return the mask of a value: `A` for a capital, `a` for a lowercase letter, `9` for a digit, others unchanged."""
    return "".join("9" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else c for c in text)
