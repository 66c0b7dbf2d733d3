"""Spans of time in words, as of the fifteenth of December 2025."""

from __future__ import annotations

from datetime import date

import pytest

from etude.offline.dates import find_date_span
from etude.offline.words import tokenize

TODAY = date(2025, 12, 15)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("in March 2024", "2024-03-01", "2024-04-01"),
        ("in 2024", "2024-01-01", "2025-01-01"),
        ("in the year 2024", "2024-01-01", "2025-01-01"),
        ("on 2024-02-29", "2024-02-29", "2024-03-01"),
        ("on February 29, 2024", "2024-02-29", "2024-03-01"),
        ("on the 3rd of May 2024", "2024-05-03", "2024-05-04"),
        ("in Q2 2024", "2024-04-01", "2024-07-01"),
        ("in the first quarter of 2023", "2023-01-01", "2023-04-01"),
        ("in the second half of 2023", "2023-07-01", "2024-01-01"),
        ("between Jan 1, 2023 and Mar 31, 2023", "2023-01-01", "2023-04-01"),
        ("from April 1 2023 to April 4 2023", "2023-04-01", "2023-04-05"),
        ("since 2020", "2020-01-01", None),
        ("on or after January 1, 2023", "2023-01-01", None),
        ("after 2024-05-05", "2024-05-06", None),
        ("before 2019", None, "2019-01-01"),
        ("until March 2024", None, "2024-04-01"),
        ("last month", "2025-11-01", "2025-12-01"),
        ("last quarter", "2025-07-01", "2025-10-01"),
        ("this year", "2025-01-01", "2026-01-01"),
        ("in the past 6 months", "2025-06-15", "2025-12-16"),
        ("in the last 10 days", "2025-12-05", "2025-12-16"),
        ("last week", "2025-12-08", "2025-12-15"),
        ("year to date", "2025-01-01", "2025-12-16"),
        ("today", "2025-12-15", "2025-12-16"),
        ("yesterday", "2025-12-14", "2025-12-15"),
        ("in the last 3 months of 2024", "2024-10-01", "2025-01-01"),
        ("in the last month of 2024", "2024-12-01", "2025-01-01"),
        ("the first 10 days of March 2024", "2024-03-01", "2024-03-11"),
        ("during the final quarter of 2023", "2023-10-01", "2024-01-01"),
        ("in the third month of 2024", "2024-03-01", "2024-04-01"),
        ("in the last half of 2024", "2024-07-01", "2025-01-01"),
        ("on the last day of last month", "2025-11-30", "2025-12-01"),
        ("in the first quarter of last year", "2024-01-01", "2024-04-01"),
        ("in December of last year", "2024-12-01", "2025-01-01"),
        ("since last year", "2024-01-01", None),
    ],
)
def test_the_whole_phrase_is_one_span(text: str, start: str | None, end: str | None) -> None:
    tokens = tokenize(text)
    found = find_date_span(tokens, 0, TODAY)
    assert found is not None
    assert found.length == len(tokens)
    assert (found.span.start, found.span.end) == (start and date.fromisoformat(start), end and date.fromisoformat(end))


@pytest.mark.parametrize(
    "text", ["on February 30, 2024", "in the last 99999999 years", "in May", "2024", "in 5", "of the"]
)
def test_what_is_no_span_is_left_alone(text: str) -> None:
    assert find_date_span(tokenize(text), 0, TODAY) is None


@pytest.mark.parametrize(
    "text",
    [
        "in the last week of 2024",
        "in the second week of March 2024",
        "in the first half of March 2024",
        "in the last 3 months of March 2024",
        "on the last day of",
    ],
)
def test_a_time_that_is_not_exact_is_found_as_unclear(text: str) -> None:
    tokens = tokenize(text)
    found = find_date_span(tokens, 0, TODAY)
    assert found is not None and not found.span.clear
    assert found.length == len(tokens)
