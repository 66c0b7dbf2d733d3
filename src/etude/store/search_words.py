"""The words of a run's text, as a filter by text finds them."""

from __future__ import annotations

import re
import unicodedata

from etude.errors import Invalid

SEARCHED = 100_000
"""Only words in this many first characters of a text can be found."""
WORD = 64
"""Only this many first characters of a word are compared."""
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_SINGLE}]|[^\\W{_SINGLE}]+")
"""A word: letters, digits and `_`. Chinese and Japanese have no spaces between words, so each character is one."""


def split_store_search_words(text: str) -> list[str]:
    """Return the distinct words of a text as they are searched: without case, accents and punctuation."""
    plain = unicodedata.normalize("NFKC", text[:SEARCHED].casefold())
    return list(dict.fromkeys(word[:WORD] for word in _WORD.findall(plain)))


def split_store_search_filter(text: str) -> list[str]:
    """Return the words of a filter; raise `Invalid` if there are none."""
    words = split_store_search_words(text)
    if not words:
        raise Invalid(f"`{text[:200]}` has no word to search for.", hint="Use letters or digits.")
    return words


def store_word_pattern(word: str) -> str:
    """Return the LIKE pattern for texts with a word that begins like this one."""
    literal = word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"% {literal}%"
