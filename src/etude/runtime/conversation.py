"""A run as the model sees it, and its next move: both follow from the run's record alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etude.entities import Guidance, Run, Step, ToolCall, Turn
from etude.models.base import AssistantMessage, ConversationMessage, ToolResult, UserMessage

GIVEN_UP = "Not run: the person interrupted."


@dataclass(frozen=True)
class Think:
    """The model takes a turn."""


@dataclass(frozen=True)
class Act:
    """A tool that the model called is run."""

    step: Step
    """The model's turn."""
    number: int
    """The index of the call in that turn."""
    call: ToolCall


@dataclass(frozen=True)
class Conclude:
    """The model's last turn is the answer."""

    turn: Turn


Move = Think | Act | Conclude


def next_move(run: Run) -> Move:
    """Return the next move of a run."""
    index, step = _last_turn(run)
    if step is None or step.turn is None:
        return Think()
    later = [g for g in run.guidance if g.after > index]
    if not any(g.interrupts for g in later):
        done = {s.params.get("call") for s in _answered(run, step)}
        for number, call in enumerate(step.turn.calls):
            if number not in done:
                return Act(step, number, call)
    return Think() if later or step.turn.calls else Conclude(step.turn)


def converse(opening: Sequence[ConversationMessage], run: Run) -> list[ConversationMessage]:
    """Return the conversation so far: its opening, then turns, results of their calls, and guidance in its place."""
    said = list(opening)
    for index, step in enumerate(run.steps):
        said += _guidance(run.guidance, index)
        if step.kind == "model" and step.turn is not None:
            said.append(AssistantMessage(turn=step.turn))
            said += _returned(run, step, step.turn)
    return [*said, *_guidance(run.guidance, len(run.steps))]


def _returned(run: Run, step: Step, turn: Turn) -> Iterator[ConversationMessage]:
    shown = {s.params.get("call"): s.shown for s in _answered(run, step)}
    for number, call in enumerate(turn.calls):
        yield ToolResult(call_id=call.id, name=call.name, text=shown.get(number) or GIVEN_UP)


def _guidance(guidance: Sequence[Guidance], after: int) -> Iterator[ConversationMessage]:
    return (UserMessage(text=g.text) for g in guidance if g.after == after)


def _last_turn(run: Run) -> tuple[int, Step | None]:
    for index in range(len(run.steps) - 1, -1, -1):
        if run.steps[index].kind == "model" and run.steps[index].turn is not None:
            return index, run.steps[index]
    return -1, None


def _answered(run: Run, turn: Step) -> list[Step]:
    """Return the calls of a turn that finished. A call that was cut off when its process ended did not."""
    return [s for s in run.steps if s.kind == "tool" and s.parent == turn.id and s.shown is not None]
