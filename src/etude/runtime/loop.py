"""The loop of an agent: think, act, look, until there is an answer. Each move is on record before the next begins.

The next move follows from the record alone (`next_move`), so a run can stop after any move and continue in another
process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

from etude.entities import Budget, Run, Turn
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
from etude.models.base import ConversationMessage, Model, ModelRequest
from etude.runtime.control import Control
from etude.runtime.conversation import Act, Conclude, Think, converse, next_move
from etude.runtime.query import RunLog, error_key, failed_step, ms_since
from etude.runtime.tool_context import RunResources, rows_read
from etude.runtime.writer import TextWriter
from etude.store.action import backoff
from etude.tools.base import Tool, Waiting, describe_tool, parse_arguments

SAME_CALL = 3
"""A run ends after this many equal calls that fail in the same way."""
SAME_FAILURE = 6
"""A run ends after this many failures of one kind, whatever was tried in between."""
OUTAGE_S = 600.0
"""How long a run that has used a model waits for a source or a model that cannot be reached."""
REQUESTS_S = 0.5
"""How often a run that waits looks for requests to pause it."""
_OUTAGES = (SourceUnavailable, SourceLocked, SourceMissing, ModelUnavailable)
_OURS = (Cancelled, SandboxError, ModelError, Unavailable, SourceUnavailable, SourceLocked, SourceMissing)
"""Errors that the model cannot fix by another call, and that it must not describe as an answer."""
T = TypeVar("T")


@dataclass(frozen=True)
class RunSetup:
    """Everything that a run works with."""

    model: Model
    tools: Mapping[str, Tool]
    opening: Sequence[ConversationMessage]
    budget: Budget
    resources: RunResources
    conclude: Callable[[Run, Turn], RunFinished | Guided]
    """Returns the end of the run, or guidance that the model gets before its answer can be accepted."""


class Paused(Exception):
    """The run stops here and may be resumed later."""


def work(
    prepare: Callable[[], RunSetup],
    control: Control,
    log: RunLog,
    shortcut: Callable[[], RunFinished | None] = lambda: None,
) -> Run:
    """Work on a run until it ends, waits for a person or is paused. Its outcome is on record, not raised.

    Only Ctrl-C and defects are raised. `shortcut` returns the end of the run if no model is needed.
    """
    try:
        end = shortcut()
        if end is None or not (control.close() and log.finish(end)):
            agent = prepare()
            with _deadline(agent.budget, control, log.run):
                while not _move(agent, control, log):
                    pass
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


def _keep_guidance(control: Control, log: RunLog) -> None:
    """Record the guidance that the model has not been given yet."""
    for text, interrupts in control.take_guidance():
        log.add(Guided(text=text, interrupts=interrupts))


def _move(agent: RunSetup, control: Control, log: RunLog) -> bool:
    """Make one move; return whether it was the last."""
    _carry_out_requests(control, log)
    run = log.run
    match next_move(run):
        case Think():
            check_budget(agent.budget, run)
            _interruptible(control, log, lambda: _think(agent, control, log, run))
        case Act() as move:
            _interruptible(control, log, lambda: _act(agent, control, log, move))
            _stop_repeating(log.run)
        case Conclude(turn=turn):
            event = agent.conclude(run, turn)
            if isinstance(event, RunFinished):
                return control.close() and log.finish(event)
            log.add(event)
            log.commit()
        case never:
            assert_never(never)
    return False


def _carry_out_requests(control: Control, log: RunLog) -> None:
    """Carry out the requests to the run."""
    _keep_guidance(control, log)
    if log.pending:
        log.commit()
    request = control.request or log.run.requested
    if request == "cancel":
        raise Cancelled("The run was cancelled.")
    if request == "pause":
        raise Paused


def _interruptible(control: Control, log: RunLog, move: Callable[[], None]) -> None:
    try:
        move()
    except Cancelled:
        if not control.interrupted:
            raise
        log.commit()  # interrupted: the loop continues with what the person said


def _think(agent: RunSetup, control: Control, log: RunLog, run: Run) -> None:
    step_id, started = new_id("step"), time.perf_counter()
    log.add(StepStarted(step_id=step_id, kind="model", code=agent.model.name, source=run.source))
    log.commit()
    writer = TextWriter(log, step_id)
    specs = [describe_tool(type(tool)) for tool in agent.tools.values()]
    request = ModelRequest(converse(agent.opening, run), specs, on_restart=writer.restart)
    try:
        reply = _outlast(control, log, lambda: agent.model.respond(request, writer.write, control.step), writer.restart)
        if not reply.turn.text.strip() and not reply.turn.calls:
            raise ModelError(f"`{agent.model.name}` returned nothing.", hint="Try again, or another model.")
    except BaseException as error:
        log.add(failed_step(step_id, error, ms_since(started)))
        raise
    writer.flush()
    turn = reply.turn.model_copy(update={"text": storable(reply.turn.text)})
    log.add(StepFinished(step_id=step_id, outcome="ok", turn=turn, usage=reply.usage, elapsed_ms=ms_since(started)))
    log.commit()
    if agent.budget.cost_usd and not reply.price_known:
        raise LimitExceeded(
            f"The price of `{agent.model.name}` is not known, but the run is limited to ${agent.budget.cost_usd:g}.",
            hint="Set its price in the settings, or remove the limit on cost.",
            limit="cost_usd",
        )


def _act(agent: RunSetup, control: Control, log: RunLog, move: Act) -> None:
    step_id, started = _open_step(log, move), time.perf_counter()
    context = agent.resources.context_for(log, step_id, control.step)
    try:
        tool = find_tool(agent.tools, move.call.name)
        arguments = parse_arguments(tool, move.call.arguments)
        shown = _outlast(control, log, lambda: tool.use(context, arguments))
    except Waiting as waiting:
        waiting.step_id = step_id  # it stays open until the person has answered
        raise
    except EtudeError as error:
        end = failed_step(step_id, error, ms_since(started))
        if isinstance(error, _OURS):
            log.add(end)
            raise
        # The message may quote data, which must not look like words of etude.
        told = context.quote(f"{error.message}\n{error.hint}".strip())
        log.add(end.model_copy(update={"shown": f"It failed:\n{told}"}))
    except BaseException as error:
        log.add(failed_step(step_id, error, ms_since(started)))
        raise
    else:
        log.add(
            StepFinished(
                step_id=step_id,
                outcome="ok",
                shown=shown,
                result=context.result,
                artifact=context.artifact,
                elapsed_ms=ms_since(started),
            )
        )
    log.commit()


def _outlast(control: Control, log: RunLog, attempt: Callable[[], T], undo: Callable[[], None] = lambda: None) -> T:
    """Return the result of an attempt. If there is an outage, attempt it again with backoff, for minutes.

    A run that has not used a model yet fails at once: it loses nothing, and its caller can ask again.
    """
    until, failures = time.monotonic() + OUTAGE_S, 0
    while True:
        try:
            return attempt()
        except _OUTAGES:
            failures += 1
            wait = backoff(failures)
            if time.monotonic() + wait > until or not log.run.usage.tokens_in + log.run.usage.tokens_out:
                raise
        undo()
        if log.pending:
            log.commit()  # readers see the failed attempt while the run waits
        _wait(control, log, wait)


def _wait(control: Control, log: RunLog, seconds: float) -> None:
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


def storable(text: str) -> str:
    """Return what a model wrote, without characters that no database stores."""
    return text.replace("\0", "").encode(errors="replace").decode()


def find_tool(tools: Mapping[str, Tool], name: str) -> Tool:
    """Return the tool of that name, or raise `Invalid` with the known names."""
    if name not in tools:
        raise Invalid(f"There is no tool `{name}`.", hint=f"Tools: {', '.join(tools)}.")
    return tools[name]


def check_budget(budget: Budget, run: Run) -> None:
    """Raise `LimitExceeded` if the run has used up its budget."""
    turns = sum(s.kind == "model" and s.turn is not None for s in run.steps)
    rows = rows_read(run)
    used: dict[str, tuple[float, float]] = {
        "steps": (turns, budget.steps),
        "wall_s": (worked_s(run), budget.wall_s),
        "tokens": (run.usage.tokens_in + run.usage.tokens_out, budget.tokens),
        "cost_usd": (run.usage.cost_usd, budget.cost_usd),
        "rows": (rows, budget.rows),
    }
    for name, (spent, limit) in used.items():
        if limit and spent >= limit:
            raise LimitExceeded(
                f"The run used {spent:,.6g} of `{name}`; its limit is {limit:,.6g}.",
                hint=f"Ask for less at a time, or raise `budget.{name}`.",
                limit=name,
                value=limit,
            )


def worked_s(run: Run) -> float:
    """Return the seconds of all moves, without the time in which the run waited or was paused."""
    return sum((s.elapsed_ms or 0.0) / 1000 for s in run.steps if s.kind in ("model", "tool"))


@contextlib.contextmanager
def _deadline(budget: Budget, control: Control, run: Run) -> Iterator[None]:
    """Stop the current move when the time budget of the run is used up."""
    passed = threading.Event()

    def stop() -> None:
        passed.set()
        control.step.cancel()

    timer = threading.Timer(max(budget.wall_s - worked_s(run), 0.0), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Cancelled:
        if not passed.is_set() or control.request is not None:
            raise
        raise LimitExceeded(
            f"The run took longer than {budget.wall_s:g} s.",
            hint="Ask for less at a time, or raise `budget.wall_s`.",
            limit="wall_s",
            value=budget.wall_s,
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
        raise LimitExceeded(
            f"`{last.code}` failed {max(len(same), len(failed))} times in the same way: {detail}",
            hint=str((last.error or {}).get("hint") or "Ask differently, or use another model."),
            limit="repeated_failure",
            error_key=last.error_key or error_key(last.error or {"code": "internal"}),
        )
