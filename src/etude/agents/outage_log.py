"""The log of an outage of the store: one line at its beginning, one per minute, and one at its end."""

from __future__ import annotations

import logging
import threading
import time

EVERY_S = 60.0
"""Seconds between two lines during an outage."""


class OutageLog:
    """Logs that something cannot be used, and that it can be used again. Thread-safe."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._lock = threading.Lock()
        self._began: float | None = None
        self._next = 0.0

    def failed(self, message: str) -> None:
        """Log a failure, unless another one was logged during the last minute of the same outage."""
        now = time.monotonic()
        with self._lock:
            first, self._began = self._began is None, now if self._began is None else self._began
            if not first and now < self._next:
                return
            self._next, lasted = now + EVERY_S, now - self._began
        self._log.warning("%s%s", message, "" if first else f" (for {lasted:,.0f} s)")

    def succeeded(self) -> None:
        """Log the end of the outage, if there was one."""
        if self._began is None:
            return
        with self._lock:
            began, self._began = self._began, None
        if began is not None:
            self._log.warning("%s can be used again, after %.0f s", self._what, time.monotonic() - began)
