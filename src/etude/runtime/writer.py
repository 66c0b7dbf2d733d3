"""The text of a model on its way to the record: pieces put together, so that a fast model does not flood it."""

from __future__ import annotations

import time

from etude.events import TextDelta
from etude.runtime.query import RunLog

PAUSE_S = 0.05


class TextWriter:
    """Takes the pieces as they arrive; the first goes out at once, the rest at most every 50 ms."""

    def __init__(self, log: RunLog, step_id: str) -> None:
        self._log = log
        self._step_id = step_id
        self._pieces: list[str] = []
        self._last = 0.0

    def write(self, piece: str) -> None:
        """Take a piece."""
        self._pieces.append(piece)
        if time.monotonic() - self._last >= PAUSE_S:
            self.flush()

    def restart(self) -> None:
        """Take back what was written: the model begins anew."""
        self._pieces = []
        self._log.add(TextDelta(step_id=self._step_id, text="", restart=True))
        self._log.commit()

    def flush(self) -> None:
        """Put what was taken on record."""
        text, self._pieces = "".join(self._pieces), []
        if text:
            self._log.add(TextDelta(step_id=self._step_id, text=text))
            self._log.commit()
            self._last = time.monotonic()
