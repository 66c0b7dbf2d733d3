"""Periods of time in a text: where they are written, and whether one contains another."""

from __future__ import annotations

import re
from collections.abc import Sequence

from etude.runtime.number_check.mentions import MONTHS, Mention, Period, mentioned_month_number


def written_periods(text: str, mentions: Sequence[Mention]) -> list[tuple[int, int, Period]]:
    """Return the dates, months, quarters and halves of a text."""
    found = [(m.start, m.end, m.period) for m in mentions if m.period]
    taken = {at for start, end, _ in found for at in range(start, end)}
    for match in re.finditer(rf"\b(?:{'|'.join(MONTHS)}|(?:{'|'.join(m[:3] for m in MONTHS)}|sept)\b\.?)", text, re.I):
        if match.group()[0].isupper() and match.start() not in taken:
            found.append((match.start(), match.end(), Period(month=mentioned_month_number(match.group()))))
    years = {period.year for _, _, period in found if period.year}
    year = min(years) if len(years) == 1 else None
    pattern = r"\b(first|second|1st|2nd)[\s-]half\b|\bH([12])\b(?!\s?\d)|\bthe (first|second)\b(?=[,.;]| half)"
    for match in re.finditer(pattern, text):
        half = int(match[2]) if match[2] else 1 if (match[1] or match[3]) in ("first", "1st") else 2
        if match.start() not in taken:
            found.append((match.start(), match.end(), Period(year, half)))
    return sorted(found, key=lambda item: item[0])


def quarter_of_period(period: Period) -> int | None:
    """Return the quarter that contains a period."""
    return period.quarter or ((period.month + 2) // 3 if period.month else None)


def half_of_period(period: Period) -> int | None:
    """Return the half of the year that contains a period."""
    quarter = quarter_of_period(period)
    return period.half or ((quarter + 1) // 2 if quarter else None)


def period_covers(outer: Period, inner: Period) -> bool:
    """Return whether a written period includes a row's: `2024` includes March 2024, and `March` any March."""
    return all(
        wanted is None or wanted == have
        for wanted, have in (
            (outer.year, inner.year),
            (outer.half, half_of_period(inner)),
            (outer.quarter, quarter_of_period(inner)),
            (outer.month, inner.month),
            (outer.day, inner.day),
        )
    )


def period_sort_key(period: Period) -> tuple[int, int, int]:
    """Return a period as a tuple that sorts by time."""
    return period.year or 0, period.month or 3 * (quarter_of_period(period) or 2 * (period.half or 0)), period.day or 0
