"""The time that rules may take, and how they are stopped: loops that grow with the source call `check`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

from etude.cancellation import Cancellation


class OutOfTime(Exception):
    """The rules took longer than they may."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"longer than {seconds:g} s")
        self.seconds = seconds


class _Deadline:
    def __init__(self, seconds: float, cancel: Cancellation) -> None:
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._cancel = cancel

    def check(self) -> None:
        self._cancel.check()
        if time.monotonic() > self._ends:
            raise OutOfTime(self._seconds)


# A context variable, because the loops lie deep below what starts them and all signatures between would carry it.
_current: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextlib.contextmanager
def within(seconds: float, cancel: Cancellation) -> Iterator[None]:
    """While the block runs, `check` raises `OutOfTime` after so many seconds, and `Cancelled` once it is cancelled."""
    token = _current.set(_Deadline(seconds, cancel))
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Raise if the work at hand is to stop; without a deadline, do nothing."""
    deadline = _current.get()
    if deadline is not None:
        deadline.check()
