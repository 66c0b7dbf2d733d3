"""Asking a question within a step: the run is cancelled with the step, and resumed after a crash."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from etude.agents.base import StepContext
from etude.entities import ENDED, Run
from etude.errors import Conflict, EtudeError, Invalid
from etude.runs import parse_direct_run
from etude.runtime.answer import Answer
from etude.runtime.run_control import RunControl
from etude.runtime.thread import thread_runs

Steer = Callable[[RunControl], None]
POLL_S = 0.5


def ask_step_question(
    ctx: StepContext,
    source: str | None,
    question: str,
    model: str,
    on_progress: Steer | None = None,
    last_run_id: str | None = None,
) -> Answer:
    """Ask in the agent's own thread. If a step that crashed had asked the same question, resume its run.

    `SQL:` and `PYTHON:` run directly, without a model. `last_run_id` is the last run whose answer the agent recorded.
    """
    thread_id = ctx.thread(source)
    direct = parse_direct_run(question)
    unfinished = find_unfinished_step_question(ctx, thread_id, direct[1] if direct else question, last_run_id)
    if unfinished is not None and unfinished.status in ("succeeded", "waiting"):
        # Only the answer was not recorded. The cell has changed the session, so it must not run twice.
        return ctx.app.runs.answer_of(unfinished)
    if direct is not None:
        control = RunControl()
        with ctx.cancel.stopping(control.cancel):
            answer = ctx.app.ask(source, question, thread_id=thread_id, control=control)
        ctx.check()
        return answer
    if unfinished is not None and unfinished.status in ("queued", "paused", "running"):
        return work_on_step_question(ctx, unfinished.id, on_progress)
    return work_on_step_question(
        ctx, ctx.app.runs.begin("ask", question, source, model=model, thread_id=thread_id), on_progress
    )


def ask_step_question_in_new_thread(
    ctx: StepContext, source: str | None, question: str, model: str, on_progress: Steer | None = None
) -> Answer:
    """Ask in a new thread and delete it afterwards, so that earlier questions do not influence the answer."""
    store = ctx.app.store
    thread_id = store.create_thread(f"agent {ctx.agent_id}", source).id
    try:
        return work_on_step_question(
            ctx, ctx.app.runs.begin("ask", question, source, model=model, thread_id=thread_id), on_progress
        )
    finally:
        store.delete_thread(thread_id)


def work_on_step_question(ctx: StepContext, run_id: str, on_progress: Steer | None = None) -> Answer:
    """Execute a run until it ends or waits for an answer; cancel it if the step is cancelled."""
    runs, store, control = ctx.app.runs, ctx.app.store, RunControl()

    def report_progress(_: Any) -> None:
        if on_progress is not None:
            on_progress(control)

    def stop() -> None:
        control.cancel()
        with contextlib.suppress(EtudeError):  # the run may have ended meanwhile
            runs.cancel(run_id)

    before = store.run(run_id).usage
    with ctx.cancel.stopping(stop):
        while True:
            try:
                run = runs.work(run_id, control=control, on_entry=report_progress)
                break
            except Conflict:
                # Another process is executing the run, such as a server that recovers old runs. If that process has
                # just died, `recover` finds out a moment later.
                for _ in runs.follow(run_id, timeout=POLL_S):
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
        raise Conflict(f"Run `{run_id}` is {run.status}.", hint="The step will be retried.")
    return runs.answer_of(run)


def find_unfinished_step_question(ctx: StepContext, thread_id: str, text: str, last_run_id: str | None) -> Run | None:
    """Return the last run of the thread if it has this text and its answer was not recorded, else None."""
    store = ctx.app.store
    runs = thread_runs(store, thread_id)
    if not runs or runs[-1] == last_run_id:
        return None
    run = store.run(runs[-1])
    if run.status == "running":
        store.recover()
        run = store.run(run.id)
    return run if run.text == text else None


def require_step_question_answer(answer: Answer) -> Answer:
    """Return the answer, or raise an error that says why there is none."""
    if answer.status == "waiting":
        raise Invalid(f"The question is not clear: {answer.question}", hint="Ask it in more words.")
    return answer.require()
