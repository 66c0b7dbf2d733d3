"""The actions of agents: how they are added, claimed and finished."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

End = Literal["done", "failed", "cancelled", "delayed", "ready"]
"""How a claim ends. After `delayed` and `ready` the action runs again."""

BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 60.0
ATTEMPTS = 3
OUTAGE_ATTEMPTS = 20
"""Attempts while a source or a model cannot be reached: with the backoff, five to thirteen minutes."""
URGENCY = 100


@dataclass(frozen=True, slots=True)
class NewAction:
    """An action to add for an agent. If the id exists, it is not added again."""

    agent: str
    kind: str = "message"
    payload: str = "null"
    id: str | None = None
    urgency: int = URGENCY
    delay: float = 0.0
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class ActionClaim:
    """An action that this worker has claimed, with its agent. The token is a fencing token."""

    seq: int
    token: int
    id: str
    kind: str
    payload: str
    urgency: int
    created_at: float
    attempts: int
    max_attempts: int
    has_control: bool
    """True if control messages for the agent are pending."""
    agent: int
    tenant: str
    agent_id: str
    agent_kind: str
    config: str
    state: str
    step_no: int
    thread_id: str | None
    key_id: str | None
    """The key whose daily quota the step counts toward."""

    @property
    def key(self) -> tuple[int, int]:
        """An identifier that is unique among claims, including those of the same action."""
        return self.seq, self.token


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish under a topic; the body is JSON."""

    topic: str
    body: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of a step: a row of the agent's history, and the agent's new state."""

    input: str
    outcome: str
    seconds: float
    output: str | None = None
    error: str | None = None
    state: str | None = None
    """None leaves the state as it was."""
    done: bool = False
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a claim, with everything that is committed with it."""

    claim: ActionClaim
    end: End
    error: str | None = None
    delay: float = 0.0
    step: StepRecord | None = None
    events: tuple[NewEvent, ...] = ()
    applied: tuple[int, ...] = ()
    """Control messages that the step has applied."""
    deferred: tuple[int, ...] = ()
    """Control messages that the step has read, and that the next attempt reads again."""
    tick: float | None = None
    """Seconds until the agent's next scheduled step, which replaces the one scheduled before."""
    drop_tick: bool = False
    """Cancel the agent's scheduled step."""
    outage: bool = False
    """A source or a model could not be reached: the attempt does not count toward the action's own."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn: new claims, and finished claims that were refused because their lease was lost."""

    claimed: list[ActionClaim]
    refused: list[Finish]


def action_backoff(attempts: int) -> float:
    """Return the seconds to wait after this number of failed attempts: doubled each time, up to a minute.

    Up to half of it is left out at random, so that agents that failed together do not retry together.
    """
    longest = min(LONGEST_BACKOFF_S, math.ldexp(BACKOFF_S, min(attempts, 64)))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
