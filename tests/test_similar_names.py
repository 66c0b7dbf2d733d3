"""Names that are similar to one that is not known."""

from __future__ import annotations

import time

from etude.similar_names import similar_names


def test_the_most_similar_comes_first() -> None:
    assert similar_names("custmer", ["orders", "customers", "customer"], n=1) == ["customer"]
    assert similar_names("custmer", ["orders", "invoices"]) == []


def test_long_names_are_compared_by_their_beginning() -> None:
    known = ["total_" + "x" * 100_000, "amount"]
    assert similar_names("totl_" + "x" * 100_000, known, n=1) == known[:1]


def test_many_long_names_take_little_time() -> None:
    known = [f"{'abcdefgh' * 24}_{n}" for n in range(20_000)]
    started = time.process_time()
    similar_names("abcdefgh" * 24, known)
    assert time.process_time() - started < 3  # comparing all of them takes minutes
