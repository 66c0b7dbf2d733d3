"""A question as exact units, and the keys of the scripts that may answer it.

Two questions are the same only if all their units are equal. Nothing is guessed: no synonyms, no stemming, no word
order. Only the case of a sentence's first word, white space, quotation marks, "please", "the" and the final mark are
ignored, because they never change what is meant.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from etude.runtime.number_check.mentions import mention_word_set

Kind = Literal["word", "number", "date", "quoted", "name", "mark"]
MASKED: frozenset[Kind] = frozenset({"number", "date", "quoted", "name"})
"""Kinds of units that may be parameters."""
MOST_MASKED = 5
"""How many such units a question may have for parameters to be considered: each doubles the keys to look up."""
MOST_CHARS = 2000

_UNIT = re.compile(
    r"""(?P<quoted>"[^"\n]{1,200}"|(?<!\w)'[^'\n]{1,200}'(?!\w)|`[^`\n]{1,200}`)
    |(?P<date>(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-]))
    |(?P<number>(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w]))
    |(?P<word>[^\W_][\w'&/-]*|_\w+)
    |(?P<mark>\S)""",
    re.VERBOSE,
)
_QUOTES = str.maketrans("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f", "''''\"\"\"\"")
_ENDS = frozenset(".?!")
_MONTHS = (
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun"
_CALENDAR = mention_word_set(f"{_MONTHS} {_DAYS} q1 q2 q3 q4 h1 h2")
_RELATIVE = mention_word_set(
    "today yesterday tomorrow tonight now nowadays current currently this last next past previous prior ago recent "
    "recently lately latest newest upcoming future yet far still ytd mtd qtd old older oldest age aged overdue due "
    "already remaining left expired expires expiring new"
)


@dataclass(frozen=True)
class QuestionUnit:
    """A part of a question: a word, or a literal that may be a parameter."""

    text: str
    kind: Kind

    @property
    def value(self) -> str:
        """The literal without its quotation marks."""
        return self.text[1:-1] if self.kind == "quoted" else self.text


def read_question_units(question: str) -> tuple[QuestionUnit, ...]:
    """Return the units of a question, in order."""
    text = unicodedata.normalize("NFC", question).translate(_QUOTES).strip()[: MOST_CHARS + 1]
    units: list[QuestionUnit] = []
    starts = True
    for found in _UNIT.finditer(text):
        kind, piece = found.lastgroup, found.group()
        if kind == "mark" and piece in ".?" and not text[found.end() :].strip(" ?."):
            break  # the final mark
        if kind == "word":
            units += _word(piece, starts, units, follows=text[: found.start()].endswith(" "))
        else:
            units.append(QuestionUnit(piece, kind))  # type: ignore[arg-type]
        starts = kind == "mark" and piece in _ENDS
    return _without_courtesy(units)


def _word(piece: str, starts: bool, before: list[QuestionUnit], follows: bool) -> list[QuestionUnit]:
    if starts:
        # The first word of a sentence has a capital whatever it means; `US` and `eBay` keep theirs.
        plain = piece[1:].islower() and piece[:1].isupper()
        return [] if piece in ("The", "the") else [QuestionUnit(piece.lower() if plain else piece, "word")]
    if piece == "the":
        return []
    if piece[:1].isupper() and piece.lower() not in _CALENDAR:
        if follows and before and before[-1].kind == "name":
            name = before.pop()
            return [QuestionUnit(f"{name.text} {piece}", "name")]
        return [QuestionUnit(piece, "name")]
    return [QuestionUnit(piece, "word")]


def _without_courtesy(units: list[QuestionUnit]) -> tuple[QuestionUnit, ...]:
    while units and units[0].text in ("please", ","):
        units = units[1:]
    while units and units[-1].text in ("please", ","):
        units = units[:-1]
    return tuple(units)


def is_relative_question(question: str) -> bool:
    """Return whether the answer may depend on the day of the question, as with "last month" or "in March"."""
    words = {word.lower() for word in re.findall(r"\w+", question)}
    if words & _RELATIVE or "to date" in question.lower():
        return True
    # A month without its year means the latest one.
    return bool(words & _CALENDAR) and not any(re.fullmatch(r"(19|20)\d\d", word) for word in words)


def years_in_question(units: Sequence[QuestionUnit]) -> set[int]:
    """Return the years that a question names."""
    found = {int(u.text) for u in units if u.kind == "number" and re.fullmatch(r"(19|20)\d\d", u.text)}
    return found | {date.fromisoformat(u.text).year for u in units if u.kind == "date" and _is_date(u.text)}


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class AskedQuestion:
    """A question as it was asked: where, of which model, and after which earlier questions."""

    source: str
    """A fingerprint of the source and its grants."""
    model: str
    units: tuple[QuestionUnit, ...]
    earlier: tuple[str, ...] = ()
    """The earlier messages of the person in the same conversation: a follow-up means nothing without them."""
    grants: str = ""
    """A fingerprint of the name and the grants of the source, wherever its data are."""
    defined: tuple[str, ...] = ()
    """What playbooks say about words of the question."""

    def key(self, masked: frozenset[int] = frozenset()) -> str:
        """Return the key of this question with the units at these positions as parameters."""
        units = [f"<{u.kind}>" if n in masked else f"={u.text}" for n, u in enumerate(self.units)]
        defined = [self.defined] if self.defined else []
        content = json.dumps([self.source, self.model, self.earlier, units, *defined])
        return hashlib.sha256(content.encode()).hexdigest()

    def form(self) -> str:
        """Return the key with every literal as a parameter: questions that one script may answer have the same."""
        return self.key(frozenset(n for n, u in enumerate(self.units) if u.kind in MASKED))

    def key_anywhere(self) -> str:
        """Return the key of this question, without parameters, on a source of this name that may have moved."""
        return replace(self, source=self.grants).key()

    def keys(self) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield every key under which a script for this question may be stored, the exact one first."""
        open_ = [n for n, u in enumerate(self.units) if u.kind in MASKED]
        if len(open_) > MOST_MASKED:
            open_ = []
        for size in range(len(open_) + 1):
            for masked in itertools.combinations(open_, size):
                yield self.key(frozenset(masked)), frozenset(masked)


def question_likeness(one: str, other: str) -> float:
    """Return how many words two questions share, from 0 to 1. It may propose a question, it never decides."""
    a, b = ({w.lower() for w in re.findall(r"\w+", text)} for text in (one, other))
    return len(a & b) / len(a | b) if a | b else 0.0
