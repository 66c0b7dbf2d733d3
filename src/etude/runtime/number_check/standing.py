"""How doubtful a verified number is: whether the words near it name what it was found as.

A number may be found by accident, or as the value of something else than the sentence says. It is not doubtful if it is
the value of the row and the column that the text names, or if it follows from named values and is written so precisely
that it hardly does so by chance. The model is asked where doubtful numbers come from.
"""

from __future__ import annotations

from etude.runtime.number_check.candidate import Candidate
from etude.runtime.number_check.computed_figures import name_of_another_row
from etude.runtime.number_check.mentions import Mention
from etude.runtime.number_check.number_search import NumberSearch
from etude.runtime.number_check.operands import Operand
from etude.runtime.number_check.precision import significant_digits

_PLAIN = 0.5
"""The cost up to which a match is what the text says."""
_NAMED = 0.7
"""The cost up to which the text names a row."""
_NEAR = 1.3
"""The cost up to which the text names all values that a number follows from."""
_FAR = 1.6
_SURE = 0.05
"""How likely an accident may be."""
_UNNAMED = 0.5
"""How doubtful a value is whose row or column the text does not name."""


def doubt_of_match(search: NumberSearch, mention: Mention, match: Candidate) -> float:
    """Return how likely a number is about something else than what it was found as, from 0 to 1."""
    operand = match.operand
    if operand is not None and operand.kind == "cell" and operand.row >= 0:
        return 0.0 if _is_named(search, mention, operand) else _UNNAMED
    chance = min(max(match.chance, 0.1), 1.0)
    if operand is None and match.like is not None and match.like.what == "rows":
        counted = match.cost <= (_PLAIN if mention.word else 0.25) or match.because.startswith("rows of ")
        return 0.0 if counted else chance
    if operand is not None and _is_of_others(search, mention, operand):
        return _UNNAMED
    if match.cost <= _PLAIN:
        return 0.0 if significant_digits(mention) >= 3 or match.chance <= 3 * _SURE else chance
    if match.because.startswith("largest "):
        return _UNNAMED
    sure = (match.cost <= _NEAR and match.chance <= _SURE) or (match.cost <= _FAR and match.chance <= _SURE / 5)
    return 0.0 if sure else chance


def _is_named(search: NumberSearch, mention: Mention, operand: Operand) -> bool:
    """Return whether the text names the row and the column of a cell, or there is only one."""
    if search.tables[operand.table].rows > 1 and operand.row_cost > _NAMED:
        return False
    name = search.tables[operand.table].columns[operand.column].name
    if name_of_another_row(search.passage, mention.start, operand.table, operand.row, name):
        return False
    column = search.column_costs(mention, operand.table).get(operand.column, 9.0)
    return column <= (0.9 if operand.row_cost <= 0.1 or significant_digits(mention) >= 3 else _PLAIN)


def _is_of_others(search: NumberSearch, mention: Mention, operand: Operand) -> bool:
    """Return whether the name right before a number is that of one row, and the match is of others."""
    if operand.table < 0 or not operand.rows:
        return False
    anchors = search.passage.anchors(mention, operand.table)
    return anchors.strong and anchors.direct and not anchors.primary & operand.rows
