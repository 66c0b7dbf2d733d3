"""A way to stop work from outside, at once: whoever waits says how its wait is broken off."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from etude.errors import Cancelled


class Cancellation:
    """Asked for once, from any thread; seen by everything that works under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether it was asked for."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop what runs now, and all that would begin later."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """Raise `Cancelled` where it was asked for."""
        if self._cancelled:
            raise Cancelled("The work was cancelled.")

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `stop` is what breaks it off; it is called from another thread, at most once."""
        with self._lock:
            self.check()
            self._stops.append(stop)
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)
