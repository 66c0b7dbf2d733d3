"""Correct misspelled words of questions: `larger tahn`, `diffrent`. Names and values have their own check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from etude.offline.operator_words import ASKING, LINKING, OPERATORS, STOP, UNITS, VERBS
from etude.offline.phrase_index import PhraseIndex, phrases_differ_by_one_slip
from etude.offline.words import Token, word_base_form

_LONG = """
    alphabetical alphabetically ascending average between contains containing descending different distinct equal
    greater highest largest maximum minimum smallest without youngest
    """.split()  # noqa: SIM905
"""Words that are so long that no other word is one letter away."""
_SHORT = ("the", "that", "than", "what", "with", "which", "whose", "number")
"""Words that are corrected only if two letters beside each other changed places."""


def correct_words(tokens: Sequence[Token], index: PhraseIndex) -> list[Token]:
    """Return the tokens with misspelled words of questions corrected, unless the data has the word."""
    return [_correct(token, index) for token in tokens]


def _correct(token: Token, index: PhraseIndex) -> Token:
    if token.kind != "word" or token.low in _known_words():
        return token
    meant = _meant_word(token.low)
    if not meant or (token.base,) in index.names or (token.low,) in index.values:
        return token
    return replace(token, low=meant, base=word_base_form(meant))


@lru_cache(maxsize=1_000)
def _meant_word(word: str) -> str:
    """Return the one word that a misspelled one stands for, or ''."""
    meant = [other for other in _LONG if len(word) > 3 and phrases_differ_by_one_slip(word, other)]
    meant += [other for other in _SHORT if _is_swapped(word, other)]
    return meant[0] if len(meant) == 1 else ""


def _is_swapped(word: str, other: str) -> bool:
    places = [at for at, (left, right) in enumerate(zip(word, other, strict=False)) if left != right]
    return len(word) == len(other) and len(places) == 2 and places[1] == places[0] + 1 and sorted(word) == sorted(other)


@lru_cache(maxsize=1)
def _known_words() -> frozenset[str]:
    said = {word for phrase in OPERATORS for word in phrase}
    return frozenset(said | STOP | ASKING | LINKING | VERBS | UNITS)
