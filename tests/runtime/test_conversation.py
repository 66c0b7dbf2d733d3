"""What comes next in a run follows from its record alone, wherever the record ends."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from etude.entities import ToolCall, Turn
from etude.events import (
    Entry,
    Event,
    Guided,
    RunQueued,
    RunStarted,
    StepFinished,
    StepStarted,
    fold,
)
from etude.models.base import AssistantMessage, ToolResult, UserMessage
from etude.runtime.conversation import GIVEN_UP, Act, Conclude, Think, converse, next_move

CALLS = (ToolCall(id="a", name="execute_sql", arguments="{}"), ToolCall(id="b", name="execute_sql", arguments="{}"))


def make_run(*events: Event):
    head = [RunQueued(kind="ask", text="How many?"), RunStarted(worker="w")]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return fold(Entry(run_id="run_1", seq=n + 1, at=at, event=e) for n, e in enumerate([*head, *events]))


def said(turn: Turn, step_id: str = "think") -> list[Event]:
    start = StepStarted(step_id=step_id, kind="model", code="m")
    return [start, StepFinished(step_id=step_id, outcome="ok", turn=turn)]


def returned(number: int, shown: str | None = "4 rows", parent: str = "think") -> list[Event]:
    step_id = f"{parent}-{number}-{shown}"
    start = StepStarted(step_id=step_id, kind="tool", code="execute_sql", parent=parent, params={"call": number})
    return [start, StepFinished(step_id=step_id, outcome="ok" if shown else "error", shown=shown)]


def test_a_run_begins_with_the_model():
    assert next_move(make_run()) == Think()


def test_each_call_is_run_in_order_then_the_model_goes_on():
    asked = said(Turn(calls=CALLS))
    first, second = next_move(make_run(*asked)), next_move(make_run(*asked, *returned(0)))
    assert isinstance(first, Act) and first.call.id == "a"
    assert isinstance(second, Act) and second.call.id == "b"
    assert next_move(make_run(*asked, *returned(0), *returned(1))) == Think()


def test_a_turn_without_calls_is_the_answer():
    assert next_move(make_run(*said(Turn(text="Four.")))) == Conclude(Turn(text="Four."))


def test_a_call_that_a_dead_process_left_is_run_again():
    move = next_move(make_run(*said(Turn(calls=CALLS)), *returned(0, shown=None)))
    assert isinstance(move, Act) and move.number == 0


def test_guidance_after_the_answer_makes_the_model_think_again():
    assert next_move(make_run(*said(Turn(text="Four.")), Guided(text="Check 4.", by="check"))) == Think()


def test_steering_waits_for_the_calls_and_an_interruption_gives_them_up():
    asked = [*said(Turn(calls=CALLS)), *returned(0)]
    assert isinstance(next_move(make_run(*asked, Guided(text="Only 2025."))), Act)
    assert next_move(make_run(*asked, Guided(text="Stop.", interrupts=True))) == Think()


def test_the_conversation_answers_every_call_before_anything_else_is_said():
    asked = [*said(Turn(calls=CALLS)), *returned(0), Guided(text="Stop.", interrupts=True)]
    spoken = converse([UserMessage(text="How many?")], make_run(*asked))
    assert [type(u) for u in spoken] == [UserMessage, AssistantMessage, ToolResult, ToolResult, UserMessage]
    assert [u.text for u in spoken if isinstance(u, ToolResult)] == ["4 rows", GIVEN_UP]
    assert isinstance(spoken[-1], UserMessage) and spoken[-1].text == "Stop."


@given(st.lists(st.integers(0, 3), max_size=8), st.data())
def test_a_record_that_ends_anywhere_leads_to_the_same_conversation(turns: list[int], data: st.DataObject):
    """Play a run move by move from any prefix of its record: the whole is always the same."""
    script = [
        Turn(calls=tuple(ToolCall(id=f"{n}-{c}", name="t", arguments="{}") for c in range(calls)), text="x")
        for n, calls in enumerate(turns)
        if calls
    ]
    script.append(Turn(text="done"))

    def play(events: list[Event]) -> list[Event]:
        while True:
            run = make_run(*events)
            match next_move(run):
                case Think():
                    done = sum(s.kind == "model" for s in run.steps)
                    events = [*events, *said(script[done], f"think-{done}")]
                case Act(step=step, number=number):
                    events = [*events, *returned(number, f"{step.id}:{number}", step.id)]
                case Conclude():
                    return events

    whole = play([])
    cut = data.draw(st.integers(0, len(whole) // 2)) * 2
    assert play(whole[:cut]) == whole
