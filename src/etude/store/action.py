"""An action of an agent, from its being added to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

End = Literal["done", "failed", "cancelled", "delayed", "ready"]
"""How a claim ends; after the last two the action runs again, later or as soon as it is its turn."""

BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 60.0
ATTEMPTS = 3
URGENCY = 100


@dataclass(frozen=True, slots=True)
class NewAction:
    """Something that an agent shall do. Of two with the same id, the second is not added."""

    agent: str
    kind: str = "message"
    payload: str = "null"
    id: str | None = None
    urgency: int = URGENCY
    delay: float = 0.0
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class Claim:
    """An action that this worker runs now, and what is known of its agent. The token proves it."""

    seq: int
    token: int
    id: str
    kind: str
    payload: str
    urgency: int
    created_at: float
    attempts: int
    max_attempts: int
    told: bool
    """Whether something was said to the agent that no step has taken in."""
    agent: int
    tenant: str
    agent_id: str
    agent_kind: str
    config: str
    state: str
    step_no: int
    thread_id: str | None
    key_id: str | None
    """Whose day the step counts against."""

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from every other claim, also of the same action."""
        return self.seq, self.token


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something to tell whoever listens to a topic; the body is JSON."""

    topic: str
    body: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What a step did: a row of the agent's history, and the agent's new state."""

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
    """The end of a claim, with everything that is to be committed with it."""

    claim: Claim
    end: End
    error: str | None = None
    delay: float = 0.0
    step: StepRecord | None = None
    events: tuple[NewEvent, ...] = ()
    applied: tuple[int, ...] = ()
    """What was said to the agent and has been taken in."""
    again: tuple[int, ...] = ()
    """What was said to the agent and is taken in when the action runs again."""
    tick: float | None = None
    """Seconds until the agent's next own step, which takes the place of the one planned."""
    drop_tick: bool = False
    """Plan no own step any more."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What came of a turn: new claims, and ends that came too late to count."""

    claimed: list[Claim]
    refused: list[Finish]


def backoff(attempts: int) -> float:
    """Seconds to wait after so many failed attempts."""
    return float(min(LONGEST_BACKOFF_S, BACKOFF_S * 2**attempts))
