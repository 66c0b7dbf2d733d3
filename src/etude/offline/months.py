"""A month without a year, `in March`: that of the data, if the data has only one such month."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from etude.offline.dates import MONTHS
from etude.offline.resolver import TECHNICAL, dates_with_created
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import Token

_BEFORE = frozenset(("in", "during", "for", "about", "only"))
"""Words before a month: `what about March` is a follow-up."""


def add_years_to_months(tokens: Sequence[Token], vocabulary: Vocabulary) -> tuple[list[Token], tuple[str, ...]]:
    """Return the tokens with the year after each such month, and notes that say which."""
    made: list[Token] = []
    notes: list[str] = []
    for at, token in enumerate(tokens):
        made.append(token)
        month = MONTHS.get(token.low)
        if month is None or not at or tokens[at - 1].low not in _BEFORE or _is_dated(tokens, at):
            continue
        years = _years_with(month, vocabulary)
        if len(years) == 1:
            (year,) = years
            made.append(Token("number", str(year), str(year), str(year), token.start, token.end, year))
            notes.append(f"`{token.text}` is taken as {token.text.capitalize()} {year}, the only one in the data.")
    return made, tuple(notes)


def _is_dated(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a year or a day stands beside the month, or the words say which one: `March last year`."""
    following = [token for token in tokens[at + 1 : at + 4]]
    near = [token.low for token in following]
    return any(token.number is not None for token in following) or bool(
        {"last", "this", "next", "of", "each"} & {*near}
    )


def _years_with(month: int, vocabulary: Vocabulary) -> set[int]:
    """Return the years in which a date of the data may lie in the month."""
    years: set[int] = set()
    for table in vocabulary.tables:
        dates = [column for column in table.columns if column.kind in ("date", "timestamp")]
        plain = [column for column in dates if not TECHNICAL & {*column.words}]
        for column in dates_with_created(plain, dates, table) if plain else ():
            if not isinstance(column.low, str) or not isinstance(column.high, str):
                continue
            try:
                low, high = (date.fromisoformat(end[:10]) for end in (column.low, column.high))
            except ValueError:
                continue
            years |= {
                y
                for y in range(low.year, high.year + 1)
                if (low.year, low.month) <= (y, month) <= (high.year, high.month)
            }
    return years
