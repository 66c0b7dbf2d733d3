"""A running step: the control messages it got, and why it must end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from etude.cancellation import Cancellation
from etude.store.action import ActionClaim

LONG_STEP_S = 0.5
Reason = Literal["interrupt", "pause", "destroy", "lost", "stop"]


@dataclass
class RunningStep:
    """A step that this worker has claimed."""

    claim: ActionClaim
    cancel: Cancellation = field(default_factory=Cancellation)
    started_at: float = field(default_factory=time.monotonic)
    accepts_control: bool = False
    """True once the step has read the control messages sent before it; only later ones can interrupt it."""
    last_control: int = 0
    """The number of the last control message that the step has read."""
    guidance: list[tuple[int, Any]] = field(default_factory=list)
    """Guidance that arrived during the step and that the step has not asked for yet."""
    delivered: list[int] = field(default_factory=list)
    """Guidance that the step has got; it counts as applied if the step succeeds."""
    acknowledged: list[int] = field(default_factory=list)
    """Other control messages; they count as applied however the step ends."""
    reason: Reason | None = None
    destroy_at: float | None = None
    started: bool = False
    ended: bool = False
    abandoned: bool = False
    """True if the worker has released the step, or gave up waiting for it to end after cancelling it."""
    thread_id: str | None = None

    def __post_init__(self) -> None:
        self.thread_id = self.claim.thread_id

    @property
    def key(self) -> tuple[int, int]:
        """An identifier that is unique among steps, including those of the same action."""
        return self.claim.key

    @property
    def is_long(self) -> bool:
        """True if it has been running, or waiting for a thread, longer than `LONG_STEP_S`."""
        return time.monotonic() - self.started_at > LONG_STEP_S

    def stop(self, reason: Reason) -> None:
        """Cancel the step; the first reason counts."""
        if self.reason is None:
            self.reason = reason
        self.cancel.cancel()
