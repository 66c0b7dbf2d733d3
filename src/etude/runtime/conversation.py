"""A run as the model sees it, and its next move: both follow from the run's record alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etude.entities import Guidance, Run, Step, ToolCall, Turn
from etude.models.base import AssistantMessage, ConversationMessage, ToolResult, UserMessage

GIVEN_UP = "Not run: the person interrupted."
LAST_TURN = (
    "{why} This is your last turn, and you cannot call tools any more. Answer the question from the results above, as "
    "far as they go, and say plainly what is missing."
)
LAST_TOOLS = (
    "You can call tools in this turn for the last time. Compute all that is still missing at once, or give the answer."
)
ANSWER = "answer"
"""The tool that ends a run: its text is the answer."""


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
    """The model's last turn is the answer: its text, or the text of its call of the tool `answer`."""

    turn: Turn


Move = Think | Act | Conclude


def next_move(run: Run) -> Move:
    """Return the next move of a run."""
    index, step = _last_turn(run)
    if step is None or step.turn is None:
        return Think()
    later = [g for g in run.guidance if g.after > index]
    if not later and conversation_ended_by_budget(run):
        return Conclude(step.turn)
    if not any(g.interrupts for g in later):
        done = {s.params.get("call") for s in _answered(run, step)}
        for number, call in enumerate(step.turn.calls):
            if number not in done:
                return Act(step, number, call)
    if later:
        return Think()
    if answer_given_in_conversation(run, step) is not None or not step.turn.calls:
        return Conclude(step.turn.model_copy(update={"text": _answer_text(run, step, step.turn)}))
    return Think()


def answer_given_in_conversation(run: Run, turn: Step) -> dict[str, Any] | None:
    """Return the arguments of the call of `answer` in a turn, or None if it has none that succeeded."""
    calls = [s for s in _answered(run, turn) if s.code == ANSWER and s.outcome == "ok"]
    return json.loads(calls[-1].params["arguments"]) if calls else None


def answer_choice_in_conversation(run: Run) -> dict[str, Any]:
    """Return the arguments of the last call of `answer`: after a correction in plain text, its choice still holds.

    If the model was asked for a part alone, all that it does not give again is that of the call before.
    """
    choice: dict[str, Any] = {}
    for index, step in enumerate(run.steps):
        if step.kind == "tool" and step.code == ANSWER and step.outcome == "ok":
            asked = _asked_for_part(run, index)
            kept = {k: v for k, v in choice.items() if k not in (asked.by, "origins")} if asked else {}
            choice = kept | json.loads(step.params["arguments"])
    return choice


def origins_given_in_conversation(run: Run) -> list[str]:
    """Return all expressions that the model has given as origins of figures."""
    calls = [s for s in run.steps if s.kind == "tool" and s.code == ANSWER and s.outcome == "ok"]
    given = (json.loads(s.params["arguments"]).get("origins") or {} for s in calls)
    return [expression for origins in given for expression in origins.values() if expression]


def answer_kept_in_conversation(run: Run) -> Turn | None:
    """Return the answer of which the model is asked for a part alone; None if it is not asked for one."""
    asked = _asked_for_part(run, len(run.steps))
    before = [s for s in run.steps[: asked.after] if s.kind == "model" and s.turn is not None] if asked else []
    if not before or (turn := before[-1].turn) is None:
        return None
    return turn.model_copy(update={"text": _answer_text(run, before[-1], turn)})


def _answer_text(run: Run, step: Step, turn: Turn) -> str:
    """Return the text of an answer: that of its call, of its turn, or of the answer of which a part was asked for."""
    given = answer_given_in_conversation(run, step)
    written = (given or {}).get("text")
    asked = _asked_for_part(run, run.steps.index(step))
    if written or asked is None:
        return written or turn.text
    before = [s for s in run.steps[: asked.after] if s.kind == "model" and s.turn is not None]
    if not before or before[-1].turn is None:
        return turn.text
    kept = _answer_text(run, before[-1], before[-1].turn)
    return turn.text if asked.by == "origins" and given is None and _corrects(turn.text, kept) else kept


_RESULT = re.compile(r"\b[rp]\d+\b")


def _corrects(text: str, kept: str) -> bool:
    """Return whether a plain text is a corrected answer, and not a reply that speaks of origins."""
    words = {word.lower() for word in text.split()}
    alike = len(words & {word.lower() for word in kept.split()}) >= len(words) / 2
    return bool(words) and not _RESULT.search(text) and (alike or any(c.isdigit() for c in text))


def _asked_for_part(run: Run, index: int) -> Guidance | None:
    """Return the guidance before a step if it asks for a part of the answer alone: its chart, or origins of figures."""
    told = [g for g in run.guidance if g.after <= index]
    return told[-1] if told and told[-1].by in ("chart", "origins") else None


def conversation_ended_by_budget(run: Run) -> bool:
    """Return whether a budget is used up and the model has its last turn, without tools."""
    return any(g.by == "budget" for g in run.guidance)


def converse(opening: Sequence[ConversationMessage], run: Run) -> list[ConversationMessage]:
    """Return the conversation so far: its opening, then turns, results of their calls, and guidance in its place."""
    said = list(opening)
    for index, step in enumerate(run.steps):
        said += _guidance(run.guidance, index)
        if step.kind == "model" and step.turn is not None:
            said.append(AssistantMessage(turn=step.turn))
            said += _returned(run, step, step.turn)
    return [*said, *_guidance(run.guidance, len(run.steps))]


def conversation_without_tool_calls(conversation: Sequence[ConversationMessage]) -> list[ConversationMessage]:
    """Return a conversation with its calls and their results as text: providers refuse calls without tools."""
    said: list[ConversationMessage] = []
    for message in conversation:
        if isinstance(message, AssistantMessage) and message.turn.calls:
            called = [f"I call {c.name}: {c.arguments}" for c in message.turn.calls]
            text = "\n".join([*([message.turn.text] if message.turn.text else []), *called])
            said.append(AssistantMessage(turn=Turn(text=text)))
        elif isinstance(message, ToolResult):
            said.append(UserMessage(text=f"{message.name} returned:\n{message.text}"))
        else:
            said.append(message)
    return said


def _returned(run: Run, step: Step, turn: Turn) -> Iterator[ConversationMessage]:
    shown = {s.params.get("call"): s.shown for s in _answered(run, step)}
    for number, call in enumerate(turn.calls):
        text = shown.get(number) or _interrupted(run, step, number) or GIVEN_UP
        yield ToolResult(call_id=call.id, name=call.name, text=text)


def _interrupted(run: Run, turn: Step, number: int) -> str:
    """Say how long a call ran before it was interrupted; empty if it did not begin."""
    for step in run.steps:
        if step.kind == "tool" and step.parent == turn.id and step.params.get("call") == number:
            seconds = (step.elapsed_ms or 0) / 1000
            return f"It ran for {seconds:.1f} s and was interrupted before it finished."
    return ""


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
