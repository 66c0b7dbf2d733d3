"""A person's verdict on an answer, where it counts: playbooks, scripts and the log of reports."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from etude.entities import ENDED, Entity
from etude.errors import Conflict
from etude.events import Event, RunJudged
from etude.store.identity import Identity

if TYPE_CHECKING:
    from etude.app import App
    from etude.store.base import Store

Verdict = Literal["right", "wrong"]
SHORT = 200


class Feedback(Entity):
    """A verdict as it was recorded, and the scripts that it suspended."""

    id: str
    run_id: str
    verdict: Verdict
    suspended: list[str] = []
    """Scripts that gave this answer, or would have given it again; they answer nothing from now on."""


def append_feedback_to_ended_run(store: Store, run_id: str, event: Event) -> None:
    """Add an event to a run that has ended, beside other writers; leave it out if they are always faster."""
    for _ in range(5):
        with contextlib.suppress(Conflict):
            store.append(run_id, event, expect=store.run(run_id).seq)
            return


def give_feedback(app: App, run_id: str, verdict: Verdict, comment: str = "", by: str = "") -> Feedback:
    """Record whether an answer is right. It counts as the outcome of the run for the playbooks that it was shown.

    If it is wrong, the script that gave the answer is suspended, and so is the one that was compiled from the run.
    """
    run = app.store.run(app.store.resolve_run(run_id))
    if run.status not in ENDED:
        raise Conflict(f"Run `{run.id}` is {run.status} and has no answer yet.", hint="Wait until it has ended.")
    said = f"{by or 'A person'} says that the answer is {verdict}" + (f": {comment}" if comment else ".")
    report = Identity(app.store).add_report(
        app.tenant,
        {
            "text": f"{said}\n{run.text[:SHORT]}",
            "dataset": run.source,
            "outcome": "worked" if verdict == "right" else "failed",
            "run_id": run.id,
        },
    )
    suspended = app.scripts.suspend(run, f"{said} ({run.id})") if verdict == "wrong" else []
    judged = RunJudged(verdict=verdict, comment=comment, by=by, suspended=tuple(suspended))
    append_feedback_to_ended_run(app.store, run.id, judged)
    return Feedback(id=report.id, run_id=run.id, verdict=verdict, suspended=suspended)
