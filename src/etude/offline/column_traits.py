"""What a column holds: a period, numbers, a rate, counts."""

from __future__ import annotations

from etude.offline.identifiers import is_named_identifier
from etude.offline.vocabulary import VocabularyColumn
from etude.offline.words import split_identifier_words, word_base_form

IDENTIFYING = frozenset(["id", "code", "key", "number", "uuid", "no", "zip", "phone", "year"])


_PERIODS = {
    "year": (1000, 2999), "season": (1000, 2999), "decade": (1000, 2999), "month": (1, 12), "quarter": (1, 4),
    "week": (0, 53), "day": (0, 366), "hour": (0, 24),
}  # fmt: skip
"""Times that are held as whole numbers, with the numbers that they can have."""


YEARLY = frozenset(("year", "season"))


def is_period_column(column: VocabularyColumn) -> bool:
    """Return whether the column holds a time as a whole number, such as `season` or `month`; `hours` are amounts."""
    last = column.words[-1] if column.words else ""
    bounds = _PERIODS.get(last)
    if bounds is None or column.kind != "number" or not column.name.lower().endswith(last):
        return False
    whole = all(isinstance(end, int | float) and end == int(end) for end in (column.low, column.high))
    within = whole and bounds[0] <= column.low and column.high <= bounds[1]  # type: ignore[operator]
    return within and (last in YEARLY or len(column.words) == 1)


_BEGUN = frozenset(
    "published born founded built released established opened died birth publication founding".split()  # noqa: SIM905
)
"""Words for what happened in a year, if the numbers of a column so named are years."""


def holds_years(column: VocabularyColumn) -> bool:
    """Return whether the numbers of a column are years although no `year` is in its name: `published`, `born`."""
    whole = all(isinstance(end, int | float) and end == int(end) for end in (column.low, column.high))
    if column.kind != "number" or column.identifies or not whole or column.words[-1:] == ():
        return False
    return column.words[-1] in _BEGUN and column.low >= 1000 and column.high <= 2100  # type: ignore[operator]


def is_numeric_column(column: VocabularyColumn) -> bool:
    """Return whether it makes sense to add up or compare the column's numbers."""
    if column.identifies or is_period_column(column) or is_named_identifier(column):
        return False
    return column.kind == "number" and column.words[-1:] not in (("id",), ("code",), ("key",), ("year",))


_RATES = frozenset(("rate", "ratio", "percent", "percentage", "average", "density", "per"))
"""Words in the names of columns whose numbers each relate to something else: their sum means nothing."""


def is_rate_column(column: VocabularyColumn) -> bool:
    """Return whether the column holds a number per something, such as `gdp_per_capita`, or an average."""
    return bool(_RATES & {*column.words[:1], *column.words[-1:]}) or "per" in column.words


def column_sorts_as_numbers(column: VocabularyColumn) -> bool:
    """Return whether a text column holds numbers of equal length, so that their order as text is that of numbers."""
    whole = {len(value.partition(".")[0]) for value in column.values}
    return len(whole) == 1 and all(value.replace(".", "", 1).isdigit() for value in column.values)


def column_holds_counts(column: VocabularyColumn) -> bool:
    """Return whether the column itself holds a count, such as `stops` or `citation_num`."""
    if column.identifies or is_period_column(column) or is_named_identifier(column):
        return False
    if column.as_text and not _AMOUNTS & {*column.words}:
        return False  # sections that are numbered, as text, are counted
    counts = len(column.words) > 1 and column.words[-1] in ("number", "count") and "id" not in column.words
    return column.kind == "number" and (counts or not IDENTIFYING & {*column.words[-1:]})


_AMOUNTS = frozenset(
    """
    number count total population attendance quantity amount sum stock capacity size stop enrollment inventory
    """.split()  # noqa: SIM905
)
"""Words for numbers of things, in the singular."""


def names_one_thing(column: VocabularyColumn, rows: int) -> bool:
    """Return whether numbers that repeat stand for things, as in `advisor` or `room`, rather than count them."""
    last = split_identifier_words(column.name)[-1:]
    singular = bool(last) and word_base_form(last[0]) == last[0] and not _AMOUNTS & {*column.words}
    high_up = isinstance(column.low, int | float) and column.low >= 100
    person = bool(last) and last[0].endswith(("or", "er", "ee", "ist"))
    return singular and (high_up or person) and column.distinct + column.nulls < rows
