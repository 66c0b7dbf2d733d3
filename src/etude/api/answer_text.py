"""What a run says, word by word, for protocols that only ever add to what was said.

A turn of a model is passed on while it is written, before it is known whether it is the answer: tools may follow it,
and numbers in it that no result holds are asked to be mended. What comes after it then begins with a new paragraph.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from etude.api.streams import HEARTBEAT_S
from etude.entities import STOPPED, Run
from etude.errors import Cancelled, Conflict, from_problem
from etude.events import Event, Guided, RunCancelled, RunFailed, RunFinished, RunPaused, RunWaiting, TextDelta

if TYPE_CHECKING:
    from etude.api.call import ApiCall

GAP = "\n\n"
CORRECTION = "\n\nCorrection: "
_STOPS = (RunCancelled, RunFailed, RunFinished, RunPaused, RunWaiting)


class AnswerText:
    """How much of a run's words somebody has heard."""

    def __init__(self) -> None:
        self._step = ""
        self._turn = ""
        """What the model said in its turn so far."""
        self._heard = ""
        """What was passed on of it."""
        self._gap = ""
        """What parts the next words from those before."""

    def take(self, event: Event) -> str:
        """What an event adds."""
        match event:
            case TextDelta(step_id=step_id, text=text, restart=restart):
                if step_id != self._step:
                    self._step, self._turn = step_id, ""
                    self._part()
                self._turn = text if restart else self._turn + text
                return self._catch_up(self._turn)
            case Guided(by="gate") if self._heard:
                self._gap = CORRECTION
        return ""

    def end(self, run: Run) -> str:
        """What is left to say once the run has stopped."""
        if run.status == "waiting":
            self._part()
            return self._catch_up(run.question or "")
        answer = run.answer or ""
        if run.unverified and self._heard and not answer.startswith(self._heard):
            # The marks stand between words that were said already.
            return f"{GAP}In no computed result: {', '.join(dict.fromkeys(run.unverified))}."
        return self._catch_up(answer)

    def _part(self) -> None:
        if self._heard:
            self._gap = self._gap or GAP
        self._heard = ""

    def _catch_up(self, text: str) -> str:
        """The part of a text that was not heard; a text that was begun anew and differs is told from its beginning."""
        if self._heard.startswith(text):
            return ""
        if not text.startswith(self._heard):
            self._part()
        said = self._gap + text[len(self._heard) :]
        self._gap, self._heard = "", text
        return said


async def speak(call: ApiCall, run_id: str) -> AsyncGenerator[str | Run | None, None]:
    """The words of a run as they come, None for a while without any, and at last the run, which has stopped.

    Raises the error of a run that failed.
    """
    speech, store = AnswerText(), call.app.store
    follow = call.server.watch.follow(store, {run_id: 0}, call.look, HEARTBEAT_S)
    async with contextlib.aclosing(follow) as news:  # type: ignore[type-var]
        async for entries in news:
            if entries is None:
                yield None
                continue
            if words := "".join(speech.take(entry.event) for entry in entries):
                yield words
            if any(isinstance(entry.event, _STOPS) for entry in entries):
                break
    run = require_answer(await call.look(store.run, run_id))
    if words := speech.end(run):
        yield words
    yield run


def require_answer(run: Run) -> Run:
    """The run, if it has an answer or a question; an error that says why where it has neither."""
    if run.error is not None:
        raise from_problem(run.error | {"run_id": run.id})
    if run.status == "cancelled":
        raise Cancelled(f"Run `{run.id}` was cancelled.", hint="Ask again.", run_id=run.id)
    if run.status == "paused":
        raise Conflict(f"Run `{run.id}` is paused.", hint="Resume it, or ask again.", run_id=run.id)
    if run.status not in STOPPED:
        raise Conflict(f"Run `{run.id}` goes on without an answer.", hint=f"GET /api/runs/{run.id}.", run_id=run.id)
    return run
