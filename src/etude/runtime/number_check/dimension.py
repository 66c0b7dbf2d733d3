"""Which values may be added, subtracted or compared: revenue with revenue, but not revenue with a number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.runtime.number_check.column_costs import GENERIC_WORDS, MONEY_WORDS
from etude.runtime.number_check.evidence import EvidenceColumn, EvidenceTable
from etude.runtime.number_check.mentions import TIME_UNITS, mention_word_set

if TYPE_CHECKING:
    from etude.runtime.number_check.number_search import NumberSearch
    from etude.runtime.number_check.operands import Operand

ROWS = "rows"
"""The unit of a count of rows."""
_STATISTICS = mention_word_set("avg average mean median min max minimum maximum best worst first last high low")
_ALIKE = 30.0
_APART = 0.4


def dimension_distance(search: NumberSearch, a: Operand, b: Operand) -> float | None:
    """Return 0 if two values are of the same kind, more if they may be, and None if they cannot be compared."""
    if ROWS in (a.unit, b.unit):
        other = b if a.unit == ROWS else a
        if a.unit == b.unit:
            return 0.0
        column = operand_dimension_column(search, other)
        return _APART if column is not None and column.whole and not _is_money(column) else None
    if (a.unit in TIME_UNITS) != (b.unit in TIME_UNITS) and a.unit and b.unit:
        return None
    left, right = operand_dimension_column(search, a), operand_dimension_column(search, b)
    if left is None or right is None:
        return _APART
    if left is right or left.name.lower() == right.name.lower():
        return 0.0
    if _shown(search, a) or _shown(search, b):
        return _APART / 2  # Printed lines and messages have no columns that say what a number is.
    return _APART if _alike(left, right) else None


def operand_dimension_column(search: NumberSearch, operand: Operand) -> EvidenceColumn | None:
    """Return the column that a value comes from, or None if it comes from several."""
    if operand.table < 0 or operand.column < 0:
        return None
    return search.tables[operand.table].columns[operand.column]


def _shown(search: NumberSearch, operand: Operand) -> bool:
    table: EvidenceTable = search.tables[operand.table]
    return table.printed or table.kind != "result"


def _is_money(column: EvidenceColumn) -> bool:
    return bool(column.words & (MONEY_WORDS - {"total", "value", "amount"}))


def _alike(left: EvidenceColumn, right: EvidenceColumn) -> bool:
    """Return whether two columns measure the same kind of thing, such as `cost` and `sale_price`."""
    if left.unit != right.unit or left.is_percent != right.is_percent:
        return False
    if (left.words & right.words) - GENERIC_WORDS - _STATISTICS or (_is_money(left) and _is_money(right)):
        return True
    if _is_money(left) != _is_money(right) or left.whole != right.whole or not (left.numbers and right.numbers):
        return False
    sizes = [sum(map(abs, column.numbers.values())) / len(column.numbers) for column in (left, right)]
    return min(sizes) > 0 and max(sizes) / min(sizes) < _ALIKE
