"""Requests of people to a run while it works: pause, cancel, steer, interrupt."""

from __future__ import annotations

import threading
from typing import Literal

from etude.cancellation import Cancellation
from etude.errors import Conflict

Request = Literal["pause", "cancel"]


class RunControl:
    """The requests to one run. Any thread may make them; the loop carries them out between its moves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._request: Request | None = None
        self.by = ""
        """Who made the request."""
        self._guidance: list[tuple[str, bool]] = []
        self._stopped = False
        self._closed = False
        self.step = Cancellation()
        """Stops the move that runs now; each interruption needs a new one."""

    @property
    def request(self) -> Request | None:
        """How the run should stop, if it should."""
        return self._request

    @property
    def interrupted(self) -> bool:
        """Whether a person stopped the move to steer the run, which then continues."""
        return self._request is None and (self._stopped or any(interrupts for _, interrupts in self._guidance))

    def pause(self, now: bool = False, by: str = "user") -> None:
        """Stop before the next move, or in the middle of this one."""
        with self._lock:
            if self._request is None:
                self._request, self.by = "pause", by
            step = self.step
        if now:
            step.cancel()

    def cancel(self, by: str = "user") -> None:
        """End the run at once."""
        with self._lock:
            self._request, self.by = "cancel", by
            step = self.step
        step.cancel()

    def steer(self, text: str) -> None:
        """Pass a text to the model before its next turn."""
        with self._lock:
            self._check_open()
            self._guidance.append((text, False))

    def interrupt(self, text: str) -> None:
        """Stop this move at once, skip the calls that are still open, and pass a text to the model."""
        with self._lock:
            self._check_open()
            self._guidance.append((text, True))
            step = self.step  # not the next one, which the loop may put in its place at any moment
        step.cancel()

    def stop_move(self) -> None:
        """Stop this move at once: the guidance that interrupts it is on record already."""
        with self._lock:
            self._stopped = True
            step = self.step
        step.cancel()

    def renew(self) -> None:
        """Let the next move run after a time limit stopped this one."""
        with self._lock:
            if self._request is None:
                self.step = Cancellation()

    def close(self) -> bool:
        """Take no more guidance, because the answer is ready; return False if some is still waiting."""
        with self._lock:
            self._closed = not self._guidance
            return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise Conflict("The run has its answer and ends.", hint="Ask again in the same thread.")

    def take_guidance(self) -> list[tuple[str, bool]]:
        """Return the texts for the model, each with whether it interrupts; the next move may then run."""
        with self._lock:
            taken, self._guidance = self._guidance, []
            self._closed = False  # it goes on
            if (self._stopped or any(interrupts for _, interrupts in taken)) and self._request is None:
                self.step = Cancellation()
                self._stopped = False
        return taken
