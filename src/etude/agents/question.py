"""A question of an agent, worked at by the desk within a step: broken off with it, taken up again after a crash."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from etude.agents.base import StepContext
from etude.entities import ENDED, Run
from etude.errors import Conflict, EtudeError, Invalid
from etude.runs import parse_direct
from etude.runtime.answer import Answer
from etude.runtime.control import Control
from etude.runtime.thread import thread_runs

Steer = Callable[[Control], None]
LOOK_S = 0.5


def ask(
    ctx: StepContext,
    source: str | None,
    question: str,
    model: str,
    on_move: Steer | None = None,
    noted: str | None = None,
) -> Answer:
    """Ask in the agent's own thread. Where a step that was cut short had asked the same, its run is gone on with.

    `SQL:` and `PYTHON:` run as they are, without a model. `noted` is the last run whose answer the agent has.
    """
    thread_id = ctx.thread(source)
    direct = parse_direct(question)
    left = find_left(ctx, thread_id, direct[1] if direct else question, noted)
    if left is not None and left.status in ("succeeded", "waiting"):
        # Only its end was not heard of. A cell that ran has changed what the session holds: it must not run twice.
        return ctx.app.runs.answer_of(left)
    if direct is not None:
        control = Control()
        with ctx.cancel.stopping(control.cancel):
            answer = ctx.app.ask(source, question, thread_id=thread_id, control=control)
        ctx.check()
        return answer
    if left is not None and left.status in ("queued", "paused", "running"):
        return work(ctx, left.id, on_move)
    return work(ctx, ctx.app.runs.begin("ask", question, source, model=model, thread_id=thread_id), on_move)


def ask_aside(ctx: StepContext, source: str | None, question: str, model: str, on_move: Steer | None = None) -> Answer:
    """Ask in a thread that nobody needs afterwards: nothing said before has a part in the answer."""
    store = ctx.app.store
    thread_id = store.create_thread(f"agent {ctx.agent_id}", source).id
    try:
        return work(ctx, ctx.app.runs.begin("ask", question, source, model=model, thread_id=thread_id), on_move)
    finally:
        store.delete_thread(thread_id)


def work(ctx: StepContext, run_id: str, on_move: Steer | None = None) -> Answer:
    """Work at a run until it ends or waits; when the step must end, so must the run."""
    runs, store, control = ctx.app.runs, ctx.app.store, Control()

    def moved(_: Any) -> None:
        if on_move is not None:
            on_move(control)

    def stop() -> None:
        control.cancel()
        with contextlib.suppress(EtudeError):  # it has ended meanwhile
            runs.cancel(run_id)

    before = store.run(run_id).usage
    with ctx.cancel.stopping(stop):
        while True:
            try:
                run = runs.work(run_id, control=control, on_entry=moved)
                break
            except Conflict:
                # It was taken up elsewhere, as a server does with what an earlier one left behind; or by somebody who
                # died just now, which shows a moment later.
                for _ in runs.follow(run_id, timeout=LOOK_S):
                    pass
                store.recover()
                run = store.run(run_id)
                if run.status in ENDED or run.status == "waiting":
                    break
                ctx.check()
    ctx.tokens += run.usage.tokens_in + run.usage.tokens_out - before.tokens_in - before.tokens_out
    ctx.cost_usd += run.usage.cost_usd - before.cost_usd
    ctx.check()
    if run.status not in ENDED and run.status != "waiting":
        raise Conflict(f"Run `{run_id}` is {run.status}.", hint="The step is tried again.")
    return runs.answer_of(run)


def find_left(ctx: StepContext, thread_id: str, text: str, noted: str | None) -> Run | None:
    """The run of this text that a step which was cut short left behind: the last of the thread, if it was not noted."""
    store = ctx.app.store
    runs = thread_runs(store, thread_id)
    if not runs or runs[-1] == noted:
        return None
    run = store.run(runs[-1])
    if run.status == "running":
        store.recover()
        run = store.run(run.id)
    return run if run.text == text else None


def require(answer: Answer) -> Answer:
    """The answer, or an error that says why there is none."""
    if answer.status == "waiting":
        raise Invalid(f"The question is not clear: {answer.question}", hint="Ask it in more words.")
    return answer.require()
