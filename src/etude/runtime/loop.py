"""The loop of a run: think, act, look, until there is an answer or no budget. Each move is recorded before the next.

The next move follows from the record alone (`next_move`), so a run can stop after any move and continue in another
process.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from etude.entities import Budget, Run, Step, Turn
from etude.errors import (
    Cancelled,
    EtudeError,
    Invalid,
    LimitExceeded,
    ModelError,
    ModelUnavailable,
    SandboxError,
    SourceLocked,
    SourceMissing,
    SourceUnavailable,
    Unavailable,
    problem,
)
from etude.events import Guided, RunCancelled, RunFailed, RunFinished, RunPaused, RunWaiting, StepFinished, StepStarted
from etude.ids import new_id
from etude.models.base import ConversationMessage, Model, ModelReply, ModelRequest, UserMessage
from etude.runtime.conversation import (
    ANSWER,
    LAST_TOOLS,
    LAST_TURN,
    Act,
    Conclude,
    Think,
    answer_kept_in_conversation,
    conversation_ended_by_budget,
    conversation_without_tool_calls,
    converse,
    next_move,
)
from etude.runtime.failed_step import failed_step, ms_since, step_error_key
from etude.runtime.run_control import RunControl
from etude.runtime.run_log import RunLog
from etude.runtime.tool_context import ToolResources, rows_read_by_tools, tool_text_without_settings_advice
from etude.runtime.writer import TextWriter
from etude.store.action import action_backoff
from etude.tools.base import Tool, Waiting, describe_tool, parse_tool_arguments

SAME_CALL = 3
"""A run ends after this many equal calls that fail in the same way."""
SAME_FAILURE = 6
"""A run ends after this many failures of one kind, whatever was tried in between."""
LAST_TURN_S = 60.0
"""Seconds for the last turn after a budget is used up."""
OUTAGE_S = 600.0
"""How long a run that has used a model waits for a source or a model that cannot be reached."""
REQUESTS_S = 0.5
"""How often a run that waits looks for requests to pause it."""
_OUTAGES = (SourceUnavailable, SourceLocked, SourceMissing, ModelUnavailable)
_ENDING_ERRORS = (Cancelled, SandboxError, ModelError, Unavailable, SourceUnavailable, SourceLocked, SourceMissing)
"""Errors that the model cannot fix by another call, and that must end the run instead of being shown to it."""
T = TypeVar("T")


@dataclass(frozen=True)
class LoopSetup:
    """Everything that the loop works with: the model, its tools, the opening, the budget and how the run ends."""

    model: Model
    tools: Mapping[str, Tool]
    opening: Sequence[ConversationMessage]
    budget: Budget
    resources: ToolResources
    conclude: Callable[[Run, Turn], RunFinished | Guided]
    """Returns the end of the run, or guidance that the model gets before its answer can be accepted."""
    hidden: frozenset[str] = frozenset()
    """Tools that are not offered, because the opening shows what they return."""
    fill: Callable[[Run, str], str] = lambda run, text: "…"
    """Returns a streamed expression such as `{{ r1.total[0] }}` as its value."""


class _BudgetSpent(LimitExceeded):
    """A budget of the run is used up."""


class Paused(Exception):
    """The run stops here and may be resumed later."""


def run_loop(
    prepare: Callable[[], LoopSetup],
    control: RunControl,
    log: RunLog,
    shortcut: Callable[[], RunFinished | None] = lambda: None,
) -> Run:
    """Work on a run until it ends, waits for a person or is paused. Its outcome is on record, not raised.

    Only Ctrl-C and defects are raised. `shortcut` returns the end of the run if no model is needed.
    """
    try:
        end = shortcut()
        if end is None or not (control.close() and log.finish(end)):
            _converse(prepare(), control, log)
    except Paused:
        _keep_guidance(control, log)
        log.add(RunPaused(by=control.by))
    except Waiting as waiting:
        log.add(RunWaiting(question=waiting.question, choices=waiting.choices, call=waiting.step_id))
    except Cancelled:
        _keep_guidance(control, log)
        log.add(RunPaused(by=control.by) if control.request == "pause" else RunCancelled(by=control.by))
        if control.request is None:
            log.commit()
            raise  # not requested through the control: Ctrl-C while a query ran
    except KeyboardInterrupt:
        log.add(RunCancelled(by="user"))
        log.commit()
        raise
    except BaseException as error:
        log.add(RunFailed(error=problem(error)))
        if not isinstance(error, EtudeError):
            log.commit()
            raise
    if log.pending:
        log.commit()
    return log.ended


def _take_last_turn(setup: LoopSetup, control: RunControl, log: RunLog, spent: _BudgetSpent) -> None:
    """Let the model answer from the results so far, without tools; raise `spent` if there are none."""
    run = log.run
    if setup.model.name == "offline" or conversation_ended_by_budget(run) or not any(_is_result(s) for s in run.steps):
        raise spent
    log.add(Guided(text=LAST_TURN.format(why=spent.message), by="budget", interrupts=True))
    log.commit()
    control.renew()
    try:
        with _deadline(LAST_TURN_S, setup.budget.wall_s, control):
            while not _move(setup, control, log):
                pass
    except (_BudgetSpent, ModelError, Unavailable):
        raise spent from None


def _is_result(step: Step) -> bool:
    return step.kind == "tool" and step.outcome == "ok" and step.code not in ("ask_user", "list_datasets")


def _converse(setup: LoopSetup, control: RunControl, log: RunLog) -> None:
    """Make moves until the run has its answer."""
    try:
        with _deadline(max(setup.budget.wall_s - seconds_worked_in_loop(log.run), 0.0), setup.budget.wall_s, control):
            while not _move(setup, control, log):
                pass
    except (_BudgetSpent, ModelError) as error:
        if (kept := answer_kept_in_conversation(log.run)) is not None:
            _end_with_kept_answer(setup, control, log, kept, error)
        elif isinstance(error, _BudgetSpent):
            _take_last_turn(setup, control, log, error)
        else:
            raise


def _end_with_kept_answer(setup: LoopSetup, control: RunControl, log: RunLog, kept: Turn, error: EtudeError) -> None:
    """End a run whose answer only lacks a part that the model was asked for; `error` is why it did not give it."""
    while not isinstance(end := setup.conclude(log.run, kept), RunFinished):
        log.add(end)  # one request after the other is left without a reply
    if not (control.close() and log.finish(end)):
        raise error


def _keep_guidance(control: RunControl, log: RunLog) -> None:
    """Record the guidance that the model has not been given yet."""
    for text, interrupts in control.take_guidance():
        log.add(Guided(text=text, interrupts=interrupts))


def _move(setup: LoopSetup, control: RunControl, log: RunLog) -> bool:
    """Make one move; return whether it was the last."""
    _carry_out_requests(control, log)
    run = log.run
    match next_move(run):
        case Think():
            if not conversation_ended_by_budget(run):
                check_loop_budget(setup.budget, run)
            _interruptible(control, log, lambda: _think(setup, control, log, run))
        case Act() as move:
            _interruptible(control, log, lambda: _act(setup, control, log, move))
            _stop_repeating(log.run)
        case Conclude(turn=turn):
            event = setup.conclude(run, turn)
            if isinstance(event, RunFinished):
                return control.close() and log.finish(event)
            if conversation_ended_by_budget(run):
                check_loop_budget(setup.budget, run)
                raise _BudgetSpent(event.text, limit="last_turn")
            log.add(event)
            log.commit()
        case never:
            assert_never(never)
    return False


def _carry_out_requests(control: RunControl, log: RunLog) -> None:
    """Carry out the requests to the run."""
    _keep_guidance(control, log)
    if log.pending:
        log.commit()
    request = control.request or log.run.requested
    if request == "cancel":
        raise Cancelled("The run was cancelled.")
    if request == "pause":
        raise Paused


def _interruptible(control: RunControl, log: RunLog, move: Callable[[], None]) -> None:
    try:
        move()
    except Cancelled:
        if not control.interrupted:
            raise
        log.commit()  # interrupted: the loop continues with what the person said


def _think(setup: LoopSetup, control: RunControl, log: RunLog, run: Run) -> None:
    step_id, started = new_id("step"), time.perf_counter()
    log.add(StepStarted(step_id=step_id, kind="model", code=setup.model.name, source=run.source))
    log.commit()
    kept = answer_kept_in_conversation(run) is not None
    writer = TextWriter(log, step_id, lambda text: setup.fill(run, text), silent=kept)
    conversation = converse(setup.opening, run)
    specs = [describe_tool(type(tool)) for name, tool in setup.tools.items() if name not in setup.hidden]
    if conversation_ended_by_budget(run):
        conversation, specs = conversation_without_tool_calls(conversation), []
    elif 0 < _turns(run) == setup.budget.steps - 1:
        conversation = [*conversation, UserMessage(text=LAST_TOOLS)]
    request = ModelRequest(conversation, specs, on_restart=writer.restart)
    try:
        reply = _respond(setup.model, request, writer, control, log)
        turn = reply.turn.model_copy(update={"text": storable_text(reply.turn.text)})
        if conversation_ended_by_budget(run) and turn.calls:
            turn = Turn(text=turn.text or _written_answer(turn))
            if _is_empty(turn):
                raise ModelError(f"`{setup.model.name}` calls tools in its last turn.")
    except BaseException as error:
        log.add(failed_step(step_id, error, ms_since(started)))
        raise
    writer.flush()
    log.add(StepFinished(step_id=step_id, outcome="ok", turn=turn, usage=reply.usage, elapsed_ms=ms_since(started)))
    log.commit()
    if setup.budget.cost_usd and not reply.price_known:
        raise LimitExceeded(
            f"The price of `{setup.model.name}` is not known, but the run is limited to ${setup.budget.cost_usd:g}.",
            hint="Set its price in the settings, or remove the limit on cost.",
            limit="cost_usd",
        )


def _respond(model: Model, request: ModelRequest, writer: TextWriter, control: RunControl, log: RunLog) -> ModelReply:
    """Return the next turn. A turn that is empty or was cut by its length is asked for once more, with more room."""
    reply = _outlast(control, log, lambda: model.respond(request, writer.write, control.step), writer.restart)
    if _is_empty(reply.turn) or reply.turn.stop == "length":
        writer.restart()
        used, wider = reply.usage, replace(request, max_tokens=2 * request.max_tokens)
        reply = _outlast(control, log, lambda: model.respond(wider, writer.write, control.step), writer.restart)
        reply = replace(reply, usage=used + reply.usage)
    if _is_empty(reply.turn):
        raise ModelError(f"`{model.name}` returned nothing.", hint="Try again, or another model.")
    return reply


def _is_empty(turn: Turn) -> bool:
    return not turn.text.strip() and not turn.calls


def _written_answer(turn: Turn) -> str:
    """Return the text of a call of the tool `answer`, which is not run in the last turn."""
    for call in turn.calls:
        if call.name == ANSWER:
            with contextlib.suppress(ValueError, AttributeError):
                return str(json.loads(call.arguments).get("text") or "")
    return ""


def _act(setup: LoopSetup, control: RunControl, log: RunLog, move: Act) -> None:
    step_id, started = _open_step(log, move), time.perf_counter()
    context = setup.resources.context_for(log, step_id, control.step)
    try:
        tool = find_loop_tool(setup.tools, move.call.name)
        arguments = parse_tool_arguments(tool, move.call.arguments)
        shown = _outlast(control, log, lambda: tool.use(context, arguments))
    except Waiting as waiting:
        waiting.step_id = step_id  # it stays open until the person has answered
        raise
    except EtudeError as error:
        end = failed_step(step_id, error, ms_since(started))
        if isinstance(error, _ENDING_ERRORS):
            log.add(end)
            raise
        # The message may quote data, which must not look like words of etude.
        told = context.quote(tool_text_without_settings_advice(f"{error.message}\n{error.hint}".strip()))
        log.add(end.model_copy(update={"shown": f"It failed:\n{told}"}))
    except BaseException as error:
        log.add(failed_step(step_id, error, ms_since(started)))
        raise
    else:
        log.add(
            StepFinished(
                step_id=step_id,
                outcome="ok",
                shown=f"{context.result_id}:\n{shown}" if context.result_id else shown,
                result=context.result,
                artifact=context.artifact,
                elapsed_ms=ms_since(started),
            )
        )
    log.commit()


def _outlast(control: RunControl, log: RunLog, attempt: Callable[[], T], undo: Callable[[], None] = lambda: None) -> T:
    """Return the result of an attempt. If there is an outage, attempt it again with backoff, for minutes.

    A run that has not used a model yet fails at once: it loses nothing, and its caller can ask again.
    """
    until, failures = time.monotonic() + OUTAGE_S, 0
    while True:
        try:
            return attempt()
        except _OUTAGES:
            failures += 1
            wait = action_backoff(failures)
            if time.monotonic() + wait > until or not log.run.usage.tokens_in + log.run.usage.tokens_out:
                raise
        undo()
        if log.pending:
            log.commit()  # readers see the failed attempt while the run waits
        _wait(control, log, wait)


def _wait(control: RunControl, log: RunLog, seconds: float) -> None:
    """Wait; raise `Cancelled` as soon as the run must stop or pause."""
    until, stopped = time.monotonic() + seconds, threading.Event()
    with control.step.stopping(stopped.set):
        while (left := until - time.monotonic()) > 0:
            if stopped.wait(min(left, REQUESTS_S)) or control.request or log.run.requested:
                raise Cancelled("The run was stopped while it waited.")


def _open_step(log: RunLog, move: Act) -> str:
    """Return the step of a call: the one that waited for a person, or a new one."""
    for step in log.run.steps:
        if step.parent == move.step.id and step.params.get("call") == move.number and step.ended_at is None:
            return step.id
    step_id = new_id("step")
    params = {"call": move.number, "arguments": move.call.arguments}
    # Not committed here: the first thing that the tool runs commits its own start, and this with it.
    log.add(StepStarted(step_id=step_id, kind="tool", code=move.call.name, parent=move.step.id, params=params))
    return step_id


def storable_text(text: str) -> str:
    """Return what a model wrote, without characters that no database stores."""
    return text.replace("\0", "").encode(errors="replace").decode()


def find_loop_tool(tools: Mapping[str, Tool], name: str) -> Tool:
    """Return the tool of that name, or raise `Invalid` with the known names."""
    if name not in tools:
        raise Invalid(f"There is no tool `{name}`.", hint=f"Tools: {', '.join(tools)}.")
    return tools[name]


_SPENT = {
    "steps": "The model has taken {spent} turns; the limit is {limit}.",
    "wall_s": "The run has worked for {spent} s; the limit is {limit} s.",
    "tokens": "The run has used {spent} tokens; the limit is {limit}.",
    "cost_usd": "The run has cost ${spent}; the limit is ${limit}.",
    "rows": "The queries of the run have returned {spent} rows; the limit is {limit}.",
}
"""How a budget was used up, by its name."""


def check_loop_budget(budget: Budget, run: Run) -> None:
    """Raise `LimitExceeded` if the run has used up its budget."""
    rows = rows_read_by_tools(run)
    used: dict[str, tuple[float, float]] = {
        "steps": (_turns(run), budget.steps),
        "wall_s": (seconds_worked_in_loop(run), budget.wall_s),
        "tokens": (run.usage.tokens_in + run.usage.tokens_out, budget.tokens),
        "cost_usd": (run.usage.cost_usd, budget.cost_usd),
        "rows": (rows, budget.rows),
    }
    for name, (spent, limit) in used.items():
        if limit and spent >= limit:
            raise _BudgetSpent(
                _SPENT[name].format(spent=f"{spent:,.6g}", limit=f"{limit:,.6g}"),
                hint=f"Ask for less at a time, or raise `budget.{name}`.",
                limit=name,
                value=limit,
            )


def _turns(run: Run) -> int:
    return sum(s.kind == "model" and s.turn is not None for s in run.steps)


def seconds_worked_in_loop(run: Run) -> float:
    """Return the seconds of all moves, without the time in which the run waited or was paused."""
    return sum((s.elapsed_ms or 0.0) / 1000 for s in run.steps if s.kind in ("model", "tool"))


@contextlib.contextmanager
def _deadline(left_s: float, wall_s: float, control: RunControl) -> Iterator[None]:
    """Stop the current move when the time that is left of the run's budget has passed."""
    passed = threading.Event()

    def stop() -> None:
        passed.set()
        control.step.cancel()

    timer = threading.Timer(left_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Cancelled:
        if not passed.is_set() or control.request is not None:
            raise
        raise _BudgetSpent(
            f"The run took longer than {wall_s:g} s.",
            hint="Ask for less at a time, or allow more: `ETUDE_BUDGET__WALL_S=1200`, or the setting `budget.wall_s`.",
            limit="wall_s",
            value=wall_s,
        ) from None
    finally:
        timer.cancel()


def _stop_repeating(run: Run) -> None:
    """Raise if the model repeats the same failing call."""
    calls = [s for s in run.steps if s.kind == "tool" and s.ended_at is not None]
    if not calls or calls[-1].outcome in ("ok", "cancelled"):
        return
    last = calls[-1]
    failed = [s for s in calls if s.outcome not in ("ok", "cancelled") and s.error_key == last.error_key]
    same = [s for s in failed if s.code == last.code and s.params["arguments"] == last.params["arguments"]]
    if len(same) >= SAME_CALL or len(failed) >= SAME_FAILURE:
        detail = (last.error or {}).get("detail", "")
        raise _BudgetSpent(
            f"`{last.code}` failed {max(len(same), len(failed))} times in the same way: {detail}",
            hint=str((last.error or {}).get("hint") or "Ask differently, or use another model."),
            limit="repeated_failure",
            error_key=last.error_key or step_error_key(last.error or {"code": "internal"}),
        )
