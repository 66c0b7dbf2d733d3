"""What a kind of agent is: a configuration, and a function that makes one step.

A step gets what the agent remembers and what it was told, and returns what it remembers now, what it has to say and
when it wants to go on. Everything that it returns is committed together. Between steps an agent is a row in the
store, whatever happens to the process.
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
    from etude.agents.app import AgentApp
    from etude.agents.session import AgentSession

C = TypeVar("C", bound=Entity)
Told = Literal["start", "tick", "message", "guidance"]


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One thing that a step is about: the agent's start, its own tick, a message, or guidance."""

    kind: Told
    body: Any = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Next:
    """When an agent makes its next own step."""

    after: float | None = None
    """Seconds from now; None for no own step: the agent waits for messages."""
    done: bool = False
    """Whether it has reached its goal."""


IDLE = Next()
DONE = Next(done=True)
NOW = Next(after=0.0)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a step."""

    state: Mapping[str, Any] | None = None
    """What the agent remembers from now on; None leaves it as it was."""
    output: Any = None
    """What it has to say, as JSON."""
    next: Next | None = None
    """None leaves the plan as it was."""
    events: tuple[tuple[str, Any], ...] = ()
    """What to tell those who listen: topics and bodies."""
    interrupted: bool = False
    """Whether the step was broken off: what it was about comes again. Without a state, so does its guidance."""
    tokens: int = 0
    cost_usd: float = 0.0


def check_step(step: Any) -> StepResult:
    """What a step returned, where it is one; nothing else can be recorded."""
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
    """What a step can use."""

    agent_id: str
    tenant: str
    step_no: int
    key: str
    """The same for every try of this step, and for no other step: for tools that must not act twice."""
    app: AgentApp
    """The application: sources, questions, settings."""
    cancel: Cancellation
    """Set when the step must end at once; `etude.ask` and sessions heed it."""
    _open_session: Callable[..., AgentSession] = field(repr=False)
    _find_thread: Callable[[str | None], str] = field(repr=False)
    _guidance: list[tuple[int, Any]] = field(default_factory=list, repr=False)
    _taken: list[int] = field(default_factory=list, repr=False)
    tokens: int = 0
    cost_usd: float = 0.0
    """What models used in this step so far, however it ends."""
    partial: Any = None
    """What is shown of a step that was broken off; never taken for a result."""

    def check(self) -> None:
        """Raise `Cancelled` where the step must end."""
        self.cancel.check()

    def sleep(self, seconds: float) -> None:
        """Wait, unless the step must end."""
        stop = threading.Event()
        with self.cancel.stopping(stop.set):
            if stop.wait(seconds):
                raise Cancelled("The step was broken off.")

    def guidance(self) -> list[Any]:
        """What the agent was told since the step began; ask before each call of a model."""
        found = []
        while self._guidance:
            seq, body = self._guidance.pop(0)
            self._taken.append(seq)
            found.append(body)
        return found

    def session(self, source: str | None = None, **options: Any) -> AgentSession:
        """Return the session of the agent's own thread, with the names it had. `options` are those of `open_session`.

        An interrupt of the step stops its cell.
        """
        return self._open_session(source, **options)

    def thread(self, source: str | None = None) -> str:
        """The id of the agent's own thread: what is asked in it is one conversation, with one session."""
        return self._find_thread(source)


class Kind(ABC, Generic[C]):
    """A kind of agent. It is made anew for each step: what must last is in the state."""

    Config: ClassVar[type[Entity]] = Entity
    """The configuration: a frozen model that refuses what it does not know."""
    quiet: ClassVar[bool] = False
    """Whether its steps are told to nobody."""
    listens: ClassVar[bool] = False
    """Whether events wake it: those that the `topics` and the `agent` of its configuration name, or all."""
    admin: ClassVar[bool] = False
    """Whether only administrators may have one, because it reaches further than the data."""

    def __init__(self, config: C) -> None:
        self.config = config

    @abstractmethod
    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Make one step."""
