"""Units in questions: whether a column holds what `in hours`, `over 5 kg` or `above 10%` asks for."""

from __future__ import annotations

from decimal import Decimal

from etude.offline.operator_words import CURRENCY, UNITS
from etude.offline.resolver import MONEY, Unresolved
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable
from etude.offline.words import SCALES, word_base_form

_SAME = {
    "centimeter": "cm", "centimetre": "cm", "millimeter": "mm", "millimetre": "mm", "metre": "meter", "km": "kilometer",
    "kilometre": "kilometer", "ft": "foot", "kilogram": "kg", "kilo": "kg", "lb": "pound", "usd": "dollar",
    "eur": "euro", "litre": "liter", "hr": "hour", "sec": "second", "mins": "minute", "pct": "percent", "%": "percent",
    "ms": "millisecond", "secs": "second", "hrs": "hour", "kph": "kmh",
}  # fmt: skip
_SIGNS = {"$": "dollars", "€": "euros", "£": "gbp"}
_PLAIN = frozenset(("star", "point", "people", "person", "time", "unit", "year"))
"""Units that the noun itself implies: years of age, stars of a rating."""
_KNOWN = frozenset(_SAME.get(word_base_form(word), word_base_form(word)) for word in UNITS) | {"millisecond", "gbp"}
_MONEY_UNITS = frozenset(_SAME.get(word_base_form(word), word_base_form(word)) for word in CURRENCY) | {"gbp"}


def written_unit(number: str) -> str:
    """Return the unit in the words of a number: percent of `10%`, hour of `2 hours`; empty if there is none."""
    if number.endswith("%"):
        return "percent"
    if number[:1] in _SIGNS:
        return _SIGNS[number[0]]
    last = number.rsplit(maxsplit=1)[-1] if number.split()[1:] else ""
    return _many(_base(last)) if last in UNITS else ""


def is_money_unit(unit: str) -> bool:
    """Return whether the unit is a currency."""
    return _base(unit) in _MONEY_UNITS


def check_unit(column: VocabularyColumn, table: VocabularyTable, unit: str) -> str:
    """Return a note if nothing says that the column is in this unit; raise `Unresolved` if it is in another."""
    wanted = _base(unit.split(" per ", maxsplit=1)[0].rsplit(maxsplit=1)[-1])
    own = _column_unit(column)
    if own == wanted:
        return ""
    if own:
        raise Unresolved(f"`{column.name}` is in `{_many(own)}`, not in `{unit}`, and the rules do not convert units.")
    money = bool(MONEY & {*column.words})
    mixed = any("currency" in other.words for other in table.columns)
    if money != (wanted in _MONEY_UNITS) and (money or wanted in _MONEY_UNITS or wanted == "percent"):
        raise Unresolved(f"It is not clear whether `{column.name}` is in `{unit}`.")
    if money and mixed:
        raise Unresolved(f"`{table.name}` has amounts in several currencies, so `{unit}` is not clear.")
    return "" if wanted in _PLAIN else f"Nothing in the data says that `{column.name}` is in `{unit}`."


def number_in_unit(
    column: VocabularyColumn, table: VocabularyTable, value: float | int, unit: str
) -> tuple[float | int, str]:
    """Return the number as the column holds it, and a note if that is an assumption."""
    if unit == "percent" and _column_unit(column) is None and not MONEY & {*column.words}:
        low, high = column.low, column.high
        if isinstance(low, int | float) and isinstance(high, int | float) and low >= 0 and high <= 1:
            part = float(Decimal(str(value)) / 100)
            return part, f"`{value}%` is read as {part}, because `{column.name}` goes from {low} to {high}."
        return value, ""
    note = check_unit(column, table, unit) if unit else ""
    scale = SCALES.get(column.words[-1], 1) if len(column.words) > 1 else 1
    if scale > 1 and abs(value) >= scale:
        scaled = value / scale
        return scaled, note or f"`{value:,}` is read as {scaled:,g}, because `{column.name}` is in {column.words[-1]}s."
    return value, note


def _many(unit: str) -> str:
    return {"foot": "feet"}.get(unit, unit if len(unit) <= 3 or unit == "percent" else f"{unit}s")


def _base(word: str) -> str:
    base = word_base_form(word)
    return _SAME.get(base, _SAME.get(word, base))


def _column_unit(column: VocabularyColumn) -> str | None:
    last = column.words[-1] if len(column.words) > 1 else ""
    return _base(last) if _base(last) in _KNOWN - _PLAIN else None
