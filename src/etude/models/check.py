"""The conformance suite for models, run by `etude check model`. With a provider it costs a few hundred tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from etude.cancellation import Cancellation
from etude.conformance import CheckResult, Failed, run_conformance_checks
from etude.errors import Cancelled
from etude.models.base import (
    AssistantMessage,
    ConversationMessage,
    Model,
    ModelReply,
    ModelRequest,
    SystemMessage,
    ToolResult,
    ToolSpec,
    Turn,
    UserMessage,
)

_NUMBER = {"type": "integer"}
_ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": _NUMBER, "b": _NUMBER}, "required": ["a", "b"]},
)
_SYSTEM = SystemMessage(text="This is a test. Do exactly what is asked, and be brief.")
_ADD_ONCE = "Use the tool `add` to add 19 and 23."
_ADD_TWICE = "Use the tool `add` twice, at once: add 1 and 2, and add 3 and 4."
_COUNT = "Count from one to thirty in words."
LATE_S = 2.0
"""Seconds within which a turn must end after a cancel."""


def check_model(model: Model) -> Iterator[CheckResult]:
    """Run every check and yield one result each; a failing check does not stop the others."""
    yield from run_conformance_checks(CHECKS, model)


def _ask(
    model: Model, *messages: ConversationMessage, tools: tuple[ToolSpec, ...] = ()
) -> tuple[ModelReply, list[str]]:
    pieces: list[str] = []
    request = ModelRequest([_SYSTEM, *messages], tools, max_tokens=400, on_restart=pieces.clear)
    return model.respond(request, pieces.append, Cancellation()), pieces


def _text(model: Model) -> str:
    reply, pieces = _ask(model, UserMessage(text="Reply with the word: ready"))
    if not reply.turn.text or reply.turn.calls:
        raise Failed(f"expected text and no tool calls, got {reply.turn!r}")
    if "".join(pieces) != reply.turn.text:
        raise Failed("the streamed text differs from the text of the turn")
    return f"{len(reply.turn.text)} characters"


def _streaming(model: Model) -> str:
    started = time.perf_counter()
    first: list[float] = []
    request = ModelRequest([_SYSTEM, UserMessage(text=_COUNT)], max_tokens=400)
    model.respond(request, lambda _: first.append(time.perf_counter() - started), Cancellation())
    if len(first) < 2:
        raise Failed("the text came in one piece")
    return f"{len(first)} pieces, the first after {first[0] * 1000:.0f} ms, the last after {first[-1] * 1000:.0f} ms"


def _usage(model: Model) -> str:
    reply, _ = _ask(model, UserMessage(text="Reply with the word: ready"))
    spent = reply.usage
    if not (spent.tokens_in and spent.tokens_out and spent.model_calls):
        raise Failed(f"the usage is not reported: {spent!r}")
    price = f"{spent.cost_usd:.6f} USD" if reply.price_known else "price not known"
    return f"{spent.tokens_in} tokens read, {spent.tokens_out} written, {price}"


def _read_sums(turn: Turn) -> list[int]:
    if not turn.calls or turn.stop != "calls":
        raise Failed(f"expected a call of `add`, got {turn!r}")
    sums = []
    for call in turn.calls:
        try:
            arguments = json.loads(call.arguments)
            sums.append(int(arguments["a"]) + int(arguments["b"]))
        except (ValueError, TypeError, KeyError):
            raise Failed(f"the arguments of the call do not match its schema: {call!r}") from None
    return sums


def _tool_call(model: Model) -> str:
    question = UserMessage(text=_ADD_ONCE)
    turn = _ask(model, question, tools=(_ADD,))[0].turn
    sums = _read_sums(turn)
    returned = [ToolResult(call_id=c.id, name=c.name, text=str(s)) for c, s in zip(turn.calls, sums, strict=True)]
    after = _ask(model, question, AssistantMessage(turn=turn), *returned, tools=(_ADD,))[0].turn
    if not after.text and not after.calls:
        raise Failed("the turn after the result of the call is empty")
    return f"called with {turn.calls[0].arguments}, then: {after.text[:60] or 'another call'}"


def _parallel_calls(model: Model) -> str:
    turn = _ask(model, UserMessage(text=_ADD_TWICE), tools=(_ADD,))[0].turn
    sums = _read_sums(turn)
    if len({c.id for c in turn.calls}) != len(turn.calls):
        raise Failed("two calls have the same id")
    return f"{len(sums)} calls in one turn" if len(sums) > 1 else "one call at a time"


def _cancel(model: Model) -> str:
    cancel = Cancellation()
    cancelled_at: list[float] = []

    def stop(_: str) -> None:
        if not cancelled_at:
            cancelled_at.append(time.perf_counter())
            cancel.cancel()

    try:
        model.respond(ModelRequest([_SYSTEM, UserMessage(text=_COUNT)], max_tokens=400), stop, cancel)
    except Cancelled:
        took = time.perf_counter() - cancelled_at[0]
    else:
        raise Failed("a turn that was cancelled at its first word ran to its end")
    if took > LATE_S:
        raise Failed(f"cancel took {took:.1f} s")
    _ask(model, UserMessage(text="Reply with the word: ready"))
    return f"ended {took * 1000:.0f} ms after the cancel, and the next turn worked"


CHECKS: dict[str, Callable[[Model], str]] = {
    "text": _text,
    "streaming": _streaming,
    "usage": _usage,
    "tool call": _tool_call,
    "parallel calls": _parallel_calls,
    "cancel": _cancel,
}
