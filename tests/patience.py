"""Waiting for what a test asserts: by a condition, for as long as a slow machine may need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from etude.sessions.base import Output


def wait_until(true: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait for something to come true; what it is then."""
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)
    return found


def once(act: Callable[[], object]) -> Callable[[Output], None]:
    """To listen to a cell with: acts, in a thread of its own, when the first output tells that the cell has begun."""
    thread = threading.Thread(target=act, daemon=True)

    def listen(_: Output) -> None:
        if thread.ident is None:
            thread.start()

    return listen
