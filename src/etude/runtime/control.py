"""What people want of a run while it works: to pause, to end, to stop what it does now and hear something."""

from __future__ import annotations

import threading
from typing import Literal

from etude.cancellation import Cancellation
from etude.errors import Conflict

Wish = Literal["pause", "cancel"]


class Control:
    """The wishes for one run. Any thread may have them; the loop sees to them between its moves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wish: Wish | None = None
        self.by = ""
        """Who wants it."""
        self._guidance: list[tuple[str, bool]] = []
        self._closed = False
        self.step = Cancellation()
        """What stops the move that runs now; each interruption uses it up."""

    @property
    def wish(self) -> Wish | None:
        """How the run should end for now."""
        return self._wish

    @property
    def interrupted(self) -> bool:
        """Whether a person stopped the move to say something, and wants the run to go on."""
        return self._wish is None and any(interrupts for _, interrupts in self._guidance)

    def pause(self, now: bool = False, by: str = "user") -> None:
        """Stop before the next move, or in the middle of this one."""
        with self._lock:
            if self._wish is None:
                self._wish, self.by = "pause", by
            step = self.step
        if now:
            step.cancel()

    def cancel(self, by: str = "user") -> None:
        """End the run at once."""
        with self._lock:
            self._wish, self.by = "cancel", by
            step = self.step
        step.cancel()

    def steer(self, text: str) -> None:
        """Have the model hear this before its next turn."""
        with self._lock:
            self._check_open()
            self._guidance.append((text, False))

    def interrupt(self, text: str) -> None:
        """Stop this move at once and give up what was still to do; the model then hears this."""
        with self._lock:
            self._check_open()
            self._guidance.append((text, True))
            step = self.step  # not the next one, which the loop may put in its place at any moment
        step.cancel()

    def close(self) -> bool:
        """Take no more guidance, for the answer is there; False where some waits still to be heard."""
        with self._lock:
            self._closed = not self._guidance
            return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise Conflict("The run has its answer and ends.", hint="Ask again in the same thread.")

    def take_guidance(self) -> list[tuple[str, bool]]:
        """What to tell the model, with whether it interrupts; the next move may then run."""
        with self._lock:
            taken, self._guidance = self._guidance, []
            self._closed = False  # it goes on
            if any(interrupts for _, interrupts in taken) and self._wish is None:
                self.step = Cancellation()
        return taken
