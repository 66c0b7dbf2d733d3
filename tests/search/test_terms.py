"""Terms: the same for a text and a query, in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.search.terms import find_terms, query_terms, terms_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Orders shipped in 2024", ["order", "shipped", "in", "2024"]),
        ("customer_id, customerId", ["customer", "id", "customer", "id"]),
        ("Zürich und Genève", ["zurich", "und", "geneve"]),
        ("Москва", ["москва"]),
        ("Ἀθῆναι", ["αθηναι"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("東京都", ["東京", "京都"]),
        ("水", ["水"]),
        ("iPhone 15 発売日", ["i", "phone", "15", "発売", "売日"]),
        ("קפה חם", ["קפה", "חם"]),
        ("", []),
    ],
)
def test_a_text_has_these_terms(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


def test_a_query_has_no_filler_unless_it_has_nothing_else() -> None:
    assert query_terms("how many orders are there") == ["order"]
    assert query_terms("who is who") == ["who", "is"]


@given(st.text(max_size=60))
def test_terms_are_where_they_are_said_to_be(text: str) -> None:
    for term in find_terms(text):
        assert terms_of(text[term.start : term.end]) == [term.text]
