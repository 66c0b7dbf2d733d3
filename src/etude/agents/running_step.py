"""A step while it runs: what it was told, and why it must end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from etude.cancellation import Cancellation
from etude.store.action import Claim

SOON_S = 0.5
Reason = Literal["interrupt", "pause", "destroy", "lost", "stop"]


@dataclass
class RunningStep:
    """A step that runs here."""

    claim: Claim
    cancel: Cancellation = field(default_factory=Cancellation)
    began: float = field(default_factory=time.monotonic)
    listens: bool = False
    """Whether what was said before has been taken in: only what comes after that can break the step off."""
    heard: int = 0
    """The last of what was said to the agent that this step knows of."""
    guidance: list[tuple[int, Any]] = field(default_factory=list)
    """What was said meanwhile, and the step has not asked for yet."""
    taken: list[int] = field(default_factory=list)
    """Guidance that the step has; it is applied when something came of the step."""
    settled: list[int] = field(default_factory=list)
    """What else was said: it is applied however the step ends."""
    reason: Reason | None = None
    doomed_at: float | None = None
    begun: bool = False
    over: bool = False
    abandoned: bool = False
    """Whether the worker has nothing to do with it any more: it was given back, or was cut off and does not end."""
    thread_id: str | None = None

    def __post_init__(self) -> None:
        self.thread_id = self.claim.thread_id

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from every other, also of the same action."""
        return self.claim.key

    @property
    def waits(self) -> bool:
        """Whether its end is not near: it has run, or waited for a thread, longer than short steps do."""
        return time.monotonic() - self.began > SOON_S

    def stop(self, reason: Reason) -> None:
        """Have it end; the first reason counts."""
        if self.reason is None:
            self.reason = reason
        self.cancel.cancel()
