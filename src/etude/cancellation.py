"""Cancellation of work from another thread: each waiter registers a function that ends its wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from etude.errors import Cancelled


class Cancellation:
    """A request to stop, made at most once, from any thread; all work that shares it sees the request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """True if cancellation was requested."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop the running work, and any that would start later."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def check(self) -> None:
        """Raise `Cancelled` if cancellation was requested."""
        if self._cancelled:
            raise Cancelled("The work was cancelled.")

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` if cancellation is requested while the block runs: from another thread, at most once."""
        with self._lock:
            self.check()
            self._stops.append(stop)
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)
