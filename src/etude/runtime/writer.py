"""Coalesces the streamed text of a model, so that a fast model does not flood the record."""

from __future__ import annotations

import time
from collections.abc import Callable

from etude.events import TextDelta
from etude.runtime.figures import CLOSE, OPEN
from etude.runtime.run_log import RunLog

PAUSE_S = 0.05


class TextWriter:
    """Takes pieces of text as they arrive. The first is written at once, the rest at most every 50 ms.

    An expression such as `{{ r1.revenue[0] }}` is held back until it is complete; then its value is written.
    """

    def __init__(self, log: RunLog, step_id: str, fill: Callable[[str], str], silent: bool = False) -> None:
        self._log = log
        self._step_id = step_id
        self._fill = fill
        self._silent = silent
        """Whether nothing is written: the text of the answer stands, and only a part of it is asked for."""
        self._pieces: list[str] = []
        self._held = ""
        """The beginning of an expression."""
        self._last = 0.0

    def write(self, piece: str) -> None:
        """Add a piece."""
        self._pieces.append(self._ready(piece))
        if time.monotonic() - self._last >= PAUSE_S:
            self._send()

    def restart(self) -> None:
        """Discard the text: the model starts its turn over."""
        self._pieces, self._held = [], ""
        if not self._silent:
            self._log.add(TextDelta(step_id=self._step_id, text="", restart=True))
            self._log.commit()

    def flush(self) -> None:
        """Write the pieces that were added. An expression that was not closed is never written."""
        if not self._held.startswith(OPEN):
            self._pieces.append(self._held)
        self._held = ""
        self._send()

    def _ready(self, piece: str) -> str:
        """Return the text that can be shown: with the values of complete expressions, without an incomplete one."""
        text, self._held = self._held + piece, ""
        shown = ""
        while OPEN in text:
            before, _, rest = text.partition(OPEN)
            shown += before
            if CLOSE not in rest:
                self._held = OPEN + rest
                return shown
            inside, _, text = rest.partition(CLOSE)
            shown += self._fill(OPEN + inside + CLOSE)
        if text.endswith(OPEN[0]):
            text, self._held = text[:-1], OPEN[0]
        return shown + text

    def _send(self) -> None:
        text, self._pieces = "".join(self._pieces), []
        if text and not self._silent:
            self._log.add(TextDelta(step_id=self._step_id, text=text))
            self._log.commit()
            self._last = time.monotonic()
