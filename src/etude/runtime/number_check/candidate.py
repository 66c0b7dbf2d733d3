"""One value that a number of the text may state."""

from __future__ import annotations

from typing import NamedTuple

from etude.runtime.number_check.operands import Operand


class Candidate(NamedTuple):
    """A value that the number may state. `sign` is 0 if the sign says nothing, 1 if it must fit the words."""

    value: float
    cost: float
    because: str
    sign: int = 0
    operand: Operand | None = None
    like: Operand | None = None
    """A value of the same kind, if this one was computed from several."""
    step: str = ""
    """The step that the text has to say, such as `mean`, `difference`, `sum` or `share`; empty if it need not."""
    chance: float = 1.0
    """How likely a random number of the same form matches a value that is as near as this one."""
