"""Words of a text in any script, as an index stores them and as a query asks for them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from etude.tools.table_ranking import STOP_WORDS, stem_for_ranking

MAX_TERM = 40
_ASCII = re.compile(r"[A-Za-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)
"""Scripts that are written without spaces: Thai, Lao, Burmese, Khmer, Japanese and Chinese. They become bigrams."""


class PlacedTerm(NamedTuple):
    """A term and where it stands in the text."""

    text: str
    start: int
    end: int


def terms_of(text: str) -> list[str]:
    """Return the terms of a text."""
    if text.isascii():
        return [
            _plain(word)
            for token in _ASCII.findall(text)
            for word in (_HUMP.split(token) if not (token.islower() or token.isupper()) else (token,))
        ]
    return [term.text for term in find_terms(text)]


def find_terms(text: str) -> Iterator[PlacedTerm]:
    """Yield the terms of a text in their order, each with its place."""
    for token in (_ASCII if text.isascii() else _any_script()).finditer(text):
        yield from _split(token.group(), token.start())


def query_terms(query: str) -> list[str]:
    """Return the distinct terms of a query, without words such as `the` unless it has no others."""
    found = list(dict.fromkeys(terms_of(query)))
    return [term for term in found if term not in STOP_WORDS] or found


def _split(token: str, start: int) -> Iterator[PlacedTerm]:
    place = 0
    for run in _UNSPACED.finditer(token):
        yield from _words(token[place : run.start()], start + place)
        characters, at = run.group(), start + run.start()
        for i in range(max(len(characters) - 1, 1)):
            pair = characters[i : i + 2]
            yield PlacedTerm(fold_terms(pair), at + i, at + i + len(pair))
        place = run.end()
    yield from _words(token[place:], start + place)


def _words(token: str, start: int) -> Iterator[PlacedTerm]:
    for word in _HUMP.split(token):
        if word:
            yield PlacedTerm(_plain(word), start, start + len(word))
        start += len(word)


@lru_cache(maxsize=100_000)
def _plain(word: str) -> str:
    return stem_for_ranking(fold_terms(word))[:MAX_TERM]


def fold_terms(text: str) -> str:
    """Return the text in lower case, in compatible forms and without the accents of European letters."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in parts if not "\u0300" <= c <= "\u036f"))


@cache
def _any_script() -> re.Pattern[str]:
    # A mark, such as a vowel sign of Hindi, belongs to its word, but Python's `\w` does not contain it.
    marks = [chr(c) for c in range(0x300, 0x10000) if unicodedata.category(chr(c)).startswith("M")]
    return re.compile(rf"(?:[^\W_][{re.escape(''.join(marks))}]*)+")
