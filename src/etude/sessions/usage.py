"""Processor time that sessions use, also while no cell runs."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol

LOOK_S = 5.0
"""How often idle sessions are checked."""
_TICKS = os.sysconf("SC_CLK_TCK")


def read_tree(pid: int) -> float:
    """Return the processor seconds of a process, its descendants, and the children it waited for.

    A child that ends without being waited for takes its time with it: only a control group counts that too.
    """
    total, processes = 0, [pid]
    while processes:
        process = processes.pop()
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{process}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            total += sum(map(int, fields[11:15]))  # its own two, then those of children
            for task in os.listdir(f"/proc/{process}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{process}/task/{task}/children", "rb") as file:
                    processes += map(int, file.read().split())
    return total / _TICKS


class Metered(Protocol):
    """A session as it is checked."""

    def check_background(self) -> None:
        """Count what was used since the last cell, and end the session if it passed its limit."""


class IdleCheck:
    """Checks sessions from one thread, which runs while there are any."""

    def __init__(self) -> None:
        self._sessions: weakref.WeakSet[Metered] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, session: Metered) -> None:
        """Check the session from now on, for as long as somebody else holds it."""
        with self._lock:
            self._sessions.add(session)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="etude-idle-check", daemon=True)
                self._thread.start()

    def remove(self, session: Metered) -> None:
        """Stop checking it."""
        with self._lock:
            self._sessions.discard(session)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(LOOK_S)
            with self._lock:
                sessions = list(self._sessions)
                if not sessions:
                    self._thread = None
                    return
            while sessions:
                sessions.pop().check_background()


idle_check = IdleCheck()
