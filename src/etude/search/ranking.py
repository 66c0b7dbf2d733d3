"""Fuse the ranks of words and vectors, and tell why something was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etude.search.index_base import Found
from etude.search.terms import find_terms

RANK = 60
"""The constant of reciprocal rank fusion: how little the first ranks differ from the next."""
SNIPPET = 200
"""Characters of a snippet."""


@dataclass
class Ranked:
    """A row of an index with the parts of its score."""

    row: int
    score: float = 0.0
    parts: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By `text` and `vector`: the rank and the score there."""


def fuse_ranks(
    by_words: Sequence[Found], by_vector: Sequence[Found], weights: tuple[float, float] = (1.0, 1.0)
) -> list[Ranked]:
    """Return the rows of both lists, best first: a row in both comes before one with the same rank in one."""
    found: dict[int, Ranked] = {}
    for name, ranks, weight in (("text", by_words, weights[0]), ("vector", by_vector, weights[1])):
        rank, last = 0, None
        for place, each in enumerate(ranks, 1):
            # Equal scores have equal ranks: which of them comes first says nothing.
            rank, last = (rank if each.score == last else place), each.score
            ranked = found.setdefault(each.row, Ranked(each.row))
            ranked.parts[name] = (rank, each.score)
            ranked.score += weight / (RANK + rank)
    return sorted(found.values(), key=lambda r: (-r.score, r.row))


@dataclass(frozen=True)
class Snippet:
    """A part of a text, with the places of the terms in it."""

    text: str
    marks: tuple[tuple[int, int], ...]
    terms: tuple[str, ...]
    """The terms of the query that the whole text contains."""


def cut_ranking_snippet(text: str, terms: Sequence[str], size: int = SNIPPET) -> Snippet:
    """Return the part of a text with the most terms, and their positions."""
    wanted = frozenset(terms)
    places = [term for term in find_terms(text) if term.text in wanted]
    start = 0
    if len(text) > size and places:
        best = max(
            places,
            key=lambda p: (len({q.text for q in places if p.start <= q.start and q.end <= p.start + size}), -p.start),
        )
        start = max(0, min(best.start - size // 4, len(text) - size))
        # Begin at a word, unless that takes too long.
        space = text.find(" ", start, best.start) if start else -1
        start = space + 1 if space >= 0 else start
    shown = text[start : start + size]
    marks = [(p.start - start, p.end - start) for p in places if p.start >= start and p.end <= start + size]
    return Snippet(
        shown, tuple(_merge(marks)), tuple(t for t in dict.fromkeys(terms) if any(p.text == t for p in places))
    )


def _merge(marks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join marks that overlap, as those of neighbouring bigrams do."""
    merged: list[tuple[int, int]] = []
    for start, end in marks:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
