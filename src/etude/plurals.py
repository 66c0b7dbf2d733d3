"""English nouns in the singular."""

from __future__ import annotations


def singular_of_plural(word: str) -> str:
    """Return a noun in lower case without its plural ending, approximately: good enough to compare words."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
