"""A kind of agent: a configuration, and a function that makes one step.

A step gets the agent's state and inbox, and returns the new state, an output and when to continue. All of that is
committed together. Between steps an agent is only a row in the store, so it survives the process.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from etude.cancellation import Cancellation
from etude.entities import Entity
from etude.errors import Cancelled, Invalid

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp
    from etude.agents.agent_session import AgentSession

C = TypeVar("C", bound=Entity)
ItemKind = Literal["start", "tick", "message", "guidance"]


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One input of a step: the agent's start, a tick of its schedule, a message, or guidance."""

    kind: ItemKind
    body: Any = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Next:
    """When an agent makes its next scheduled step."""

    after: float | None = None
    """Seconds from now; None if the agent only waits for messages."""
    done: bool = False
    """True if the agent has reached its goal."""


IDLE = Next()
DONE = Next(done=True)
NOW = Next(after=0.0)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    state: Mapping[str, Any] | None = None
    """The agent's new state; None leaves it unchanged."""
    output: Any = None
    """The output, as JSON."""
    next: Next | None = None
    """The next scheduled step; None leaves the schedule unchanged."""
    events: tuple[tuple[str, Any], ...] = ()
    """Events to publish, each a topic and a body."""
    interrupted: bool = False
    """True if the step did not finish: its action runs again. If `state` is None, so does its guidance."""
    tokens: int = 0
    cost_usd: float = 0.0


def check_agent_step(step: Any) -> StepResult:
    """Return the result of a step, or raise `Invalid` if it cannot be recorded."""
    if not isinstance(step, StepResult):
        raise Invalid(f"The step returned a `{type(step).__name__}`.", hint="Return a `StepResult`.")
    after = step.next.after if isinstance(step.next, Next) else None
    for name, value, fits in (
        ("state", step.state, step.state is None or isinstance(step.state, Mapping)),
        ("next", step.next, step.next is None or isinstance(step.next, Next)),
        ("next.after", after, after is None or _is_amount(after)),
        ("tokens", step.tokens, isinstance(step.tokens, int) and 0 <= step.tokens < 1 << 53),
        ("cost_usd", step.cost_usd, _is_amount(step.cost_usd) and math.isfinite(step.cost_usd)),
        ("events", step.events, isinstance(step.events, tuple | list) and all(map(_is_event, step.events))),
    ):
        if not fits:
            raise Invalid(
                f"The step returned `{str(value)[:80]}` as `{name}`.", hint="See `etude.agents.base.StepResult`."
            )
    return step


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and value >= 0


def _is_event(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


@dataclass
class StepContext:
    """The context of a step: the application, the session, and cancellation."""

    agent_id: str
    tenant: str
    step_no: int
    key: str
    """An idempotency key: the id of the action, the same for every attempt, after a crash or a failure."""
    app: AgentApp
    """The application: sources, questions, settings."""
    cancel: Cancellation
    """Cancelled when the step must end at once; pass it on to long calls."""
    _open_session: Callable[..., AgentSession] = field(repr=False)
    _find_thread: Callable[[str | None], str] = field(repr=False)
    _guidance: list[tuple[int, Any]] = field(default_factory=list, repr=False)
    _delivered: list[int] = field(default_factory=list, repr=False)
    tokens: int = 0
    cost_usd: float = 0.0
    """The model usage of this step so far; it is recorded even if the step fails."""
    partial: Any = None
    """The output to record if the step is interrupted."""

    def check(self) -> None:
        """Raise `Cancelled` if the step must end."""
        self.cancel.check()

    def sleep(self, seconds: float) -> None:
        """Sleep, and raise `Cancelled` as soon as the step must end."""
        stop = threading.Event()
        with self.cancel.stopping(stop.set):
            if stop.wait(seconds):
                raise Cancelled("The step was interrupted.")

    def guidance(self) -> list[Any]:
        """Return the guidance that arrived since the last call; call this before each model call."""
        found = []
        while self._guidance:
            seq, body = self._guidance.pop(0)
            self._delivered.append(seq)
            found.append(body)
        return found

    def session(self, source: str | None = None, **options: Any) -> AgentSession:
        """Return the session of the agent's own thread, with its variables. `options` are those of `open_session`.

        Interrupting the step stops the running cell.
        """
        return self._open_session(source, **options)

    def thread(self, source: str | None = None) -> str:
        """Return the id of the agent's own thread: one conversation, with one session."""
        return self._find_thread(source)


class Kind(ABC, Generic[C]):
    """A kind of agent. Each step creates a new instance, so anything that must last belongs in the state."""

    Config: ClassVar[type[Entity]] = Entity
    """The configuration: a frozen model that refuses unknown fields."""
    quiet: ClassVar[bool] = False
    """True if its steps emit no events."""
    listens: ClassVar[bool] = False
    """True if events wake it: those that match `topics` and `agent` of its configuration, or all events."""
    admin: ClassVar[bool] = False
    """True if only administrators may create and control it, because it reaches beyond the data."""

    local: ClassVar[bool] = False
    """True if only the operator of the host may create it, because it works on folders of the host."""

    def __init__(self, config: C) -> None:
        self.config = config

    @abstractmethod
    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Make one step."""
