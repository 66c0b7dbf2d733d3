"""Check a result before it is shown: a reading that gives nothing, or everything, is probably not what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etude.offline.self_check import facts_of
from etude.offline.understand import Understanding
from etude.sources.plan.model import Single

MANY = 20
"""A superlative that this many rows share does not choose."""


def doubt_result(
    understanding: Understanding, columns: Sequence[str], rows: Sequence[Sequence[Any]], row_count: int
) -> str | None:
    """Return why a result cannot be what the question asks for, or None."""
    question = understanding.question
    values = [condition for condition in question.conditions if condition.hits and not condition.negated]
    if row_count == 0 and values:
        shown = ", ".join(f"`{condition.text}`" for condition in values)
        return f"No row fits, although the data has {shown}. It was read as: {understanding.reading}"
    if row_count == 0 and not question.absences and not any(c.negated for c in question.conditions):
        return f"No row fits. It was read as: {understanding.reading}"
    if row_count == 1 and rows and all(value is None for value in rows[0]):
        return f"No row has such a value. It was read as: {understanding.reading}"
    chooses = understanding.plan.top is not None or Single in facts_of(understanding.plan).kinds
    if question.rank is not None and question.top is None and chooses and row_count > MANY:
        return f"{row_count:,} rows tie, so `{question.rank.text}` does not choose between them."
    return None
