"""The processor time and the memory of sessions, including the time between cells."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

LOOK_S = 5.0
"""How often idle sessions are checked."""
_TICKS = os.sysconf("SC_CLK_TCK")


def read_processor_time(pid: int) -> float:
    """Return the processor seconds of a process, its descendants, and the children it waited for.

    The time of a child that ended without being waited for is lost: only a control group counts that.
    """
    total = 0
    for process in _process_tree(pid):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{process}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            total += sum(map(int, fields[11:15]))  # user and system time of the process, then of its children
    return total / _TICKS


def read_process_memory(pid: int) -> int:
    """Return the bytes of private memory of a process and its descendants. Shared pages count for each of them."""
    total = 0
    for process in _process_tree(pid):
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{process}/status", "rb") as file:
            total += next((int(line.split()[1]) for line in file if line.startswith(b"RssAnon:")), 0) << 10
    return total


def _process_tree(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    processes = [pid]
    while processes:
        process = processes.pop()
        yield process
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{process}/task/{task}/children", "rb") as file:
                    processes += map(int, file.read().split())


class ProcessorTimeSession(Protocol):
    """A session whose processor time is checked, or a pool of sessions whose memory is."""

    def check_background(self) -> None:
        """Count the processor time since the last cell, and end the session if it exceeded its limit."""


class ProcessorTimeCheck:
    """Checks idle sessions in one thread, which runs as long as there are any."""

    def __init__(self) -> None:
        self._sessions: weakref.WeakSet[ProcessorTimeSession] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, session: ProcessorTimeSession) -> None:
        """Check the session from now on. This does not keep the session alive: the reference is weak."""
        with self._lock:
            self._sessions.add(session)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="etude-idle-check", daemon=True)
                self._thread.start()

    def remove(self, session: ProcessorTimeSession) -> None:
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


idle_check = ProcessorTimeCheck()
