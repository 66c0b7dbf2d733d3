"""The time limit of the rules. Loops that grow with the source call `check_deadline`, which stops them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from etude.cancellation import Cancellation

WORK_S, REST_S = 0.004, 0.0004
"""After this much work the thread sleeps this long: otherwise other threads wait 5 ms each time they need the GIL."""


class OutOfTime(Exception):
    """The rules took longer than allowed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"longer than {seconds:g} s")
        self.seconds = seconds


class _Deadline:
    def __init__(self, seconds: float, cancel: Cancellation, give_way: Callable[[], float]) -> None:
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._cancel = cancel
        self._give_way = give_way
        self.keeping = 0
        """How many blocks must not give way."""
        self._rested = time.monotonic()

    def check(self) -> None:
        self._cancel.check()
        now = time.monotonic()
        if now > self._ends:
            raise OutOfTime(self._seconds)
        if now - self._rested > WORK_S:
            if not self.keeping:
                # The time of others does not count.
                self._ends += self._give_way()
            time.sleep(REST_S)
            self._rested = time.monotonic()


# A context variable, because the loops are many calls deep and every signature between would have to carry it.
_current: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextlib.contextmanager
def within_deadline(
    seconds: float, cancel: Cancellation, give_way: Callable[[], float] = lambda: 0.0
) -> Iterator[None]:
    """Let `check_deadline` raise `OutOfTime` after `seconds` in this block, and `Cancelled` once `cancel` is set.

    It calls `give_way` every few milliseconds, which may let others work first and returns how many seconds they took.
    """
    token = _current.set(_Deadline(seconds, cancel, give_way))
    try:
        yield
    finally:
        _current.reset(token)


def check_deadline() -> None:
    """Raise if the current work must stop; do nothing without a deadline."""
    deadline = _current.get()
    if deadline is not None:
        deadline.check()


@contextlib.contextmanager
def without_giving_way() -> Iterator[None]:
    """Keep the slot while the block runs, because it holds a lock that other questions need.

    A question that got the slot would wait for the lock, and the owner of the lock for the slot.
    """
    deadline = _current.get()
    if deadline is not None:
        deadline.keeping += 1
    try:
        yield
    finally:
        if deadline is not None:
            deadline.keeping -= 1
