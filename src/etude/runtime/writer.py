"""Coalesces the streamed text of a model, so that a fast model does not flood the record."""

from __future__ import annotations

import time

from etude.events import TextDelta
from etude.runtime.query import RunLog

PAUSE_S = 0.05


class TextWriter:
    """Takes pieces of text as they arrive. The first is written at once, the rest at most every 50 ms."""

    def __init__(self, log: RunLog, step_id: str) -> None:
        self._log = log
        self._step_id = step_id
        self._pieces: list[str] = []
        self._last = 0.0

    def write(self, piece: str) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        if time.monotonic() - self._last >= PAUSE_S:
            self.flush()

    def restart(self) -> None:
        """Discard the text: the model starts its turn over."""
        self._pieces = []
        self._log.add(TextDelta(step_id=self._step_id, text="", restart=True))
        self._log.commit()

    def flush(self) -> None:
        """Write the pieces that were added."""
        text, self._pieces = "".join(self._pieces), []
        if text:
            self._log.add(TextDelta(step_id=self._step_id, text=text))
            self._log.commit()
            self._last = time.monotonic()
