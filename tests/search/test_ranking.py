"""Fusion of ranks, and snippets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etude.search.index_base import Found
from etude.search.ranking import cut_ranking_snippet, fuse_ranks


def found(*rows: int) -> list[Found]:
    return [Found(row, 10.0 - i) for i, row in enumerate(rows)]


def test_both_lists_count() -> None:
    fused = fuse_ranks(found(1, 2, 3), found(3, 4))
    assert [r.row for r in fused] == [3, 1, 2, 4]
    assert fused[0].parts == {"text": (3, 8.0), "vector": (1, 10.0)}


def test_equal_scores_have_equal_ranks() -> None:
    tied = [Found(1, 5.0), Found(2, 5.0), Found(3, 10.0)]
    assert [r.parts["text"][0] for r in fuse_ranks(tied, [])] == [1, 1, 3]


def test_a_snippet_shows_where_most_terms_are() -> None:
    text = "nothing here " * 40 + "the blue whale sings " + "and so on " * 40
    snippet = cut_ranking_snippet(text, ["blue", "whale", "absent"])
    assert [snippet.text[a:b] for a, b in snippet.marks] == ["blue", "whale"]
    assert (len(snippet.text), snippet.terms) == (200, ("blue", "whale"))


def test_neighbouring_bigrams_are_one_mark() -> None:
    snippet = cut_ranking_snippet("私は東京都に住む", ["東京", "京都"])
    assert [snippet.text[a:b] for a, b in snippet.marks] == ["東京都"]


@given(st.text(max_size=500), st.lists(st.text(max_size=5), max_size=5))
def test_marks_are_within_the_snippet(text: str, terms: list[str]) -> None:
    snippet = cut_ranking_snippet(text, terms, 50)
    assert len(snippet.text) <= 50
    assert all(0 <= a < b <= len(snippet.text) for a, b in snippet.marks)
