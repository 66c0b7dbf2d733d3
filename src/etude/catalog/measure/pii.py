"""Find personal data by names and patterns, with the reason, and mask the values of such columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from etude.catalog.keys.key_names import key_name_word_set, key_name_words, key_table_name
from etude.catalog.model import Family, Pattern, PiiHint, Scalar

_BY_PATTERN = {
    "email": ("email", "email addresses", 0.95),
    "card": ("payment card", "payment card numbers", 0.95),
    "iban": ("bank account", "IBANs", 0.95),
    "national id": ("national id", "social security numbers", 0.9),
    "ip": ("ip address", "IP addresses", 0.8),
    "phone": ("phone", "phone numbers", 0.7),
}
_NUMBER = ("number", "num", "no", "nr", "nbr")


def _numbered(*firsts: str) -> tuple[tuple[str, ...], ...]:
    return tuple((first, last) for first in firsts for last in _NUMBER)


_BY_WORDS: tuple[tuple[str, tuple[tuple[str, ...], ...], float], ...] = (
    ("email", (("email",), ("e", "mail"), ("mail",)), 0.8),
    ("phone", (("phone",), ("mobile",), ("telephone",), ("tel",), ("fax",), ("cell",), ("cellphone",)), 0.8),
    (
        "person name",
        (
            *((first, "name") for first in ("first", "last", "full", "middle", "given", "family", "maiden")),
            *((word,) for word in ("surname", "firstname", "lastname", "fullname", "fname", "lname")),
        ),
        0.9,
    ),
    ("address", (("address",), ("street",), ("addr",), ("postcode",), ("postal", "code"), ("zip",), ("zipcode",)), 0.7),
    ("birth date", (("dob",), ("birth",), ("birthday",), ("birthdate",), ("born",)), 0.9),
    ("ip address", (("ip", "address"), ("ip", "addr"), ("ipaddress",), ("client", "ip"), ("remote", "ip")), 0.9),
    (
        "payment card",
        (*_numbered("card", "cc"), ("credit", "card"), ("pan",), ("cvv",)),
        0.8,
    ),
    ("bank account", (("iban",), *_numbered("account", "acct", "routing"), ("bank", "account"), ("bank", "acct")), 0.8),
    ("insurance number", (*_numbered("policy", "insurance", "insured", "medicare"), ("mrn",)), 0.8),
    (
        "national id",
        (
            *((word,) for word in ("ssn", "passport", "nin")),
            *(("social", "security"), ("national", "id"), ("tax", "id"), ("driver", "license"), ("driver", "licence")),
            *_numbered("license", "licence", "lic", "passport", "identity", "tax"),
        ),
        0.85,
    ),
    (
        "credential",
        (("password",), ("passwd",), ("pwd",), ("secret",), ("api", "key"), ("token",), ("salt",), ("private", "key")),
        0.9,
    ),
)
_PEOPLE = key_name_word_set(
    """customer client user person people employee patient member contact author student teacher instructor doctor
    salesperson staff lead subscriber guest passenger driver owner applicant candidate worker nurse physician cust"""
)
_OF_PEOPLE = _numbered("cert", "certificate", "certification", "registration", "badge", "visa", "npi", "permit")
_NOT_OF_A_PERSON = key_name_word_set("ip mac email web url memory wallet contract mail")
_TEXTUAL = frozenset({"text", "uuid", "json", "other"})
MASK_FROM = 0.5
"""Values of a column are masked from this confidence on."""


def find_pii(table: str, column: str, family: Family, patterns: Sequence[Pattern]) -> tuple[PiiHint, ...]:
    """Return the kinds of personal data that a column may hold, highest confidence first."""
    hints: dict[str, PiiHint] = {}
    for pattern in patterns:
        known = _BY_PATTERN.get(pattern.kind)
        if known is not None and pattern.share >= 0.3:
            kind, noun, confidence = known
            reason = f"{pattern.share:.0%} of the values look like {noun}"
            hints[kind] = PiiHint(
                kind=kind, confidence=round(confidence * min(1.0, pattern.share + 0.2), 2), reason=reason
            )
    for kind, confidence, reason in _from_name(table, column, family, patterns):
        seen = hints.get(kind)
        if seen is None:
            hints[kind] = PiiHint(kind=kind, confidence=confidence, reason=reason)
        else:
            both = round(1 - (1 - seen.confidence) * (1 - confidence), 2)
            hints[kind] = PiiHint(kind=kind, confidence=both, reason=f"{seen.reason}; {reason}")
    return tuple(sorted(hints.values(), key=lambda h: (-h.confidence, h.kind)))


def _from_name(table: str, column: str, family: Family, patterns: Sequence[Pattern]) -> list[tuple[str, float, str]]:
    tokens = key_name_words(column)
    found = [
        (kind, confidence, f"the name contains `{phrase}`")
        for kind, phrase, confidence in _phrases(tokens)
        if _fits(kind, family, tokens, patterns)
    ]
    people = next((w for w in (*tokens, *key_name_words(key_table_name(table))) if w in _PEOPLE), None)
    if (
        people
        and any(_holds(tokens, phrase) for phrase in _OF_PEOPLE)
        and _fits("national id", family, tokens, patterns)
    ):
        # Goods and sites have certificates and registrations too.
        found.append(("national id", 0.7, f"a number of a `{people}`"))
    if (
        tokens
        and tokens[-1] == "name"
        and people
        and family == "text"
        and not any(k == "person name" for k, *_ in found)
    ):
        found.append(("person name", 0.7, f"the name of a `{people}`"))
    return found


@cache
def _phrases(tokens: tuple[str, ...]) -> tuple[tuple[str, str, float], ...]:
    """Return the kinds that the words of a name suggest, each with these words and the confidence."""
    found = []
    for kind, phrases, confidence in _BY_WORDS:
        phrase = next((p for p in phrases if _holds(tokens, p)), None)
        if phrase is not None:
            found.append((kind, " ".join(phrase), confidence))
    return tuple(found)


def _holds(tokens: tuple[str, ...], phrase: tuple[str, ...]) -> bool:
    size = len(phrase)
    return any(tokens[i : i + size] == phrase for i in range(len(tokens) - size + 1))


def _fits(kind: str, family: Family, tokens: tuple[str, ...], patterns: Sequence[Pattern]) -> bool:
    """Return whether a column of this family can hold that kind; a flag or a count named after it cannot."""
    if kind == "birth date":
        return family in ("date", "timestamp", "text")
    if tokens[-1] in ("id", "count", "type", "flag", "verified", "at", "date", "status") and kind != "national id":
        return False
    if any(p.kind == "boolean" and p.share > 0.9 for p in patterns):
        return False
    if kind == "address" and _NOT_OF_A_PERSON & set(tokens):
        return False
    if kind in ("phone", "payment card", "bank account", "insurance number", "national id"):
        return family in _TEXTUAL or family in ("integer", "decimal")
    return family in _TEXTUAL


def mask_pii_value(kind: str, value: Scalar) -> Scalar:
    """Mask a value so that its form remains: at most the first letter, or the year of a date."""
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    if kind == "birth date" and len(text) >= 10 and text[4:5] == "-":
        return text[:4] + "-**-**"
    if kind == "email" and "@" in text:
        ending = text.rpartition(".")[2]
        return f"{text[:1]}***@***.{ending[:24]}"
    if kind in ("credential", "payment card", "bank account", "insurance number", "national id", "phone", "ip address"):
        return "".join("*" if c.isalnum() else c for c in text)[:24]
    hidden = "".join("*" if c.isalnum() else c for c in text[1:])
    return (text[:1] + hidden)[:24]
