"""One line on the terminal that says what a command is doing, once it takes noticeably long."""

from __future__ import annotations

import sys
import threading
import time
from typing import IO, Self

from etude.cli.printable import printable

PATIENCE_S = 1.0
READING_S = 0.2
"""Files that must be read first take longer than most queries, so that is shown earlier."""
EVERY_S = 0.1


class Progress:
    """Shows a label, the seconds so far and, if known, the share that is done; only on a terminal."""

    def __init__(self, label: str, out: IO[str] | None = None, patience_s: float = PATIENCE_S) -> None:
        self.label = label
        self._patience_s = patience_s
        self._out = sys.stderr if out is None else out
        self._started = time.monotonic()
        self._share: float | None = None
        self._reading = ""
        self._drawn = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._out.isatty():
            self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.clear()

    def __call__(self, share: float) -> None:
        """Set the share of the work that is done, from 0 to 1; a `LoadProgress` says which file is read."""
        file = getattr(share, "file", "")
        self._share, self._reading = share, f"reading {printable(file)}" if file else ""

    def stop(self) -> None:
        """Remove the line for good, because something else is printed from now on."""
        self._ended.set()
        self.clear()

    def clear(self) -> None:
        """Remove the line, so that something else can be printed; it comes back if the work goes on."""
        with self._lock:
            if self._drawn:
                self._out.write("\r\x1b[K")
                self._out.flush()
                self._drawn = False

    def restart(self, label: str) -> None:
        """Begin another part of the work: wait again before the line is shown."""
        self.clear()
        self.label, self._started, self._share, self._reading = label, time.monotonic(), None, ""

    def _tick(self) -> None:
        while not self._ended.wait(EVERY_S):
            seconds = time.monotonic() - self._started
            if seconds < (READING_S if self._reading else self._patience_s):
                continue
            share = "" if self._share is None else f"  {self._share:.0%}"
            with self._lock:
                if self._ended.is_set():
                    return
                self._out.write(f"\r\x1b[K{printable(self._reading or self.label)} ... {seconds:.0f} s{share}")
                self._out.flush()
                self._drawn = True
