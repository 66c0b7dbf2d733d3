"""Events: immutable facts of a run. The log is the only truth; a run's state is `fold(entries)`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field, TypeAdapter

from etude.entities import (
    Artifact,
    Budget,
    Entity,
    Estimate,
    Guidance,
    Limits,
    Outcome,
    Read,
    ResultInfo,
    Run,
    RunKind,
    RunStatus,
    RunSummary,
    Step,
    StepKind,
    Turn,
    Usage,
)
from etude.errors import Conflict

INTERRUPTED = "interrupted"
"""The `error_key` of a step whose process ended before it did."""


class RunQueued(Entity):
    """The first event of every run."""

    type: Literal["run.queued"] = "run.queued"
    kind: RunKind
    text: str
    source: str | None = None
    thread_id: str | None = None
    parent: str | None = None
    """The run this one continues, replays or shadows."""
    location: str | None = None
    """Where a source that has no registered name is, if that is no secret."""
    model: str | None = None
    budget: Budget | None = None
    limits: Limits | None = None
    """Limits of its queries, if they differ from the settings."""
    params: dict[str, Any] = {}
    """What else is needed to begin the run again in another process."""


class RunStarted(Entity):
    """A worker took the run."""

    type: Literal["run.started"] = "run.started"
    worker: str


class RunPaused(Entity):
    """The run stopped between steps and can be resumed."""

    type: Literal["run.paused"] = "run.paused"
    by: str = ""


class RunResumed(Entity):
    """A paused or waiting run goes on."""

    type: Literal["run.resumed"] = "run.resumed"
    worker: str


class RunWaiting(Entity):
    """The run needs an answer from a person."""

    type: Literal["run.waiting"] = "run.waiting"
    question: str
    choices: tuple[str, ...] = ()
    call: str = ""
    """The step whose call asks, by its id."""


class RunAnswered(Entity):
    """A person answered; whoever takes the run next goes on with it."""

    type: Literal["run.answered"] = "run.answered"
    text: str
    by: str = ""


class RunRequested(Entity):
    """Somebody wants the run to pause or to end; the worker that has it will see to it."""

    type: Literal["run.requested"] = "run.requested"
    what: Literal["pause", "cancel"]
    by: str = ""


class Guided(Entity):
    """Words that reach the model before its next turn: from a person, or from a check of its answer."""

    type: Literal["guided"] = "guided"
    text: str
    by: Literal["user", "gate"] = "user"
    interrupts: bool = False
    """Whether the calls that were still open are given up."""


class RunFinished(Entity):
    """The run succeeded. The result is that of its last step unless an artifact says otherwise."""

    type: Literal["run.finished"] = "run.finished"
    result: ResultInfo | None = None
    artifact: Artifact | None = None
    answer: str | None = None
    code: str | None = None
    """What computed the answer, to be run again."""
    chart: dict[str, Any] | None = None
    """A Vega-Lite chart of the result, without its data."""
    unverified: tuple[str, ...] = ()
    """Numbers of the answer that no result holds."""


class RunFailed(Entity):
    """The run ended with an error, in the shape of `errors.problem`."""

    type: Literal["run.failed"] = "run.failed"
    error: dict[str, Any]


class RunCancelled(Entity):
    """The run was cancelled."""

    type: Literal["run.cancelled"] = "run.cancelled"
    by: str = ""


class StepStarted(Entity):
    """A step begins. It carries all that is needed to run it again."""

    type: Literal["step.started"] = "step.started"
    step_id: str
    kind: StepKind
    code: str
    dialect: str | None = None
    source: str | None = None
    parent: str | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    plan: dict[str, Any] | None = None
    seed: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    limits: Limits | None = None


class StepFinished(Entity):
    """A step ended. It carries what it read, what it made, how it went and what it cost."""

    type: Literal["step.finished"] = "step.finished"
    step_id: str
    outcome: Outcome
    estimate: Estimate | None = None
    schema_fingerprint: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """The engine's versions, known once it answered; they join those the step started with."""
    reads: tuple[Read, ...] = ()
    result: ResultInfo | None = None
    artifact: Artifact | None = None
    error: dict[str, Any] | None = None
    error_key: str | None = None
    """The error with its values masked, so that equal failures count as one."""
    elapsed_ms: float = 0.0
    usage: Usage = Usage()
    turn: Turn | None = None
    """What a model said."""
    shown: str | None = None
    """What a model was shown of a tool's outcome."""


class TextDelta(Entity):
    """A piece of the text that a model is writing; the step's end has the whole."""

    type: Literal["text.delta"] = "text.delta"
    step_id: str
    text: str
    restart: bool = False
    """Whether the model began anew: what it wrote before in this step is void."""


class ArtifactCreated(Entity):
    """A blob now stands in the object store."""

    type: Literal["artifact.created"] = "artifact.created"
    artifact: Artifact
    step_id: str | None = None


class Note(Entity):
    """Something a reader of the run should know: truncation, a cast, a repair."""

    type: Literal["note"] = "note"
    text: str
    step_id: str | None = None


Event = Annotated[
    RunQueued
    | RunStarted
    | RunPaused
    | RunResumed
    | RunWaiting
    | RunAnswered
    | RunRequested
    | Guided
    | RunFinished
    | RunFailed
    | RunCancelled
    | StepStarted
    | StepFinished
    | TextDelta
    | ArtifactCreated
    | Note,
    Field(discriminator="type"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class Entry(Entity):
    """An event at its place in a run's log. `seq` counts from 1 without gaps."""

    run_id: str
    seq: int
    at: datetime
    event: Event


_FROM: dict[str, frozenset[RunStatus]] = {
    "run.started": frozenset({"queued"}),
    "run.paused": frozenset({"queued", "running"}),
    "run.resumed": frozenset({"paused", "waiting"}),
    "run.waiting": frozenset({"running"}),
    "run.answered": frozenset({"waiting"}),
    "run.requested": frozenset({"queued", "running", "paused", "waiting"}),
    "guided": frozenset({"queued", "running", "paused", "waiting"}),
    "run.finished": frozenset({"running"}),
    "run.failed": frozenset({"queued", "running", "paused", "waiting"}),
    "run.cancelled": frozenset({"queued", "running", "paused", "waiting"}),
    "step.started": frozenset({"running"}),
    "step.finished": frozenset({"running"}),
    "text.delta": frozenset({"running"}),
}


def fold(entries: Iterable[Entry]) -> Run:
    """The state of a run after its entries; raises `Conflict` where they do not follow from one another."""
    run: Run | None = None
    for entry in entries:
        run = apply(run, entry)
    if run is None:
        raise Conflict("A run has at least one event.")
    return run


def apply(run: Run | None, entry: Entry) -> Run:
    """The run after one more entry."""
    event = entry.event
    if run is None:
        if not isinstance(event, RunQueued) or entry.seq != 1:
            raise Conflict(f"The first event of `{entry.run_id}` must be run.queued, not {event.type}.")
        return Run(id=entry.run_id, created_at=entry.at, seq=1, **event.model_dump(exclude={"type"}))
    if entry.seq != run.seq + 1:
        raise Conflict(f"Run `{run.id}` is at {run.seq}: entry {entry.seq} does not follow.")
    allowed = _FROM.get(event.type)
    if allowed is not None and run.status not in allowed:
        raise Conflict(f"Run `{run.id}` is {run.status}: {event.type} cannot follow.")
    return run.model_copy(update={"seq": entry.seq} | _changes(run, event, entry.at))


def _changes(run: Run, event: Event, at: datetime) -> dict[str, Any]:
    match event:
        case RunQueued():
            raise Conflict(f"Run `{run.id}` is queued already.")
        case RunStarted(worker=worker):
            return {"status": "running", "worker": worker, "started_at": at}
        case RunResumed(worker=worker):
            return {"status": "running", "worker": worker, "requested": None}
        case RunPaused(by=by):
            return {"status": "paused", "worker": None, "requested": None, "paused_by": by}
        case RunWaiting():
            asked = {f: getattr(event, f) for f in ("question", "choices", "call")}
            return {"status": "waiting", "worker": None, "reply": None} | asked
        case RunAnswered(text=text):
            return {"status": "paused", "paused_by": "answer", "reply": text}
        case RunRequested(what=what):
            return {"requested": what}
        case Guided():
            said = Guidance(after=len(run.steps), **event.model_dump(exclude={"type"}))
            return {"guidance": (*run.guidance, said)}
        case RunFinished():
            made = {f: getattr(event, f) for f in ("result", "answer", "code", "chart", "unverified")}
            return {"status": "succeeded", "ended_at": at, "result_artifact": event.artifact} | made
        case RunFailed(error=error):
            return {"status": "failed", "ended_at": at, "error": error}
        case RunCancelled():
            return {"status": "cancelled", "ended_at": at}
        case StepStarted():
            step = Step(id=event.step_id, started_at=at, **event.model_dump(exclude={"type", "step_id"}))
            return {"steps": (*run.steps, step)}
        case StepFinished():
            return {"steps": _finish_step(run, event, at), "usage": run.usage + event.usage}
        case TextDelta():
            return {}
        case ArtifactCreated(artifact=artifact):
            return {"artifacts": (*run.artifacts, artifact)}
        case Note(text=text):
            return {"notes": (*run.notes, text)}
        case _:
            assert_never(event)


def _finish_step(run: Run, event: StepFinished, at: datetime) -> tuple[Step, ...]:
    if not any(s.id == event.step_id and s.ended_at is None for s in run.steps):
        raise Conflict(f"Run `{run.id}` has no open step `{event.step_id}`.")
    own = ("type", "step_id", "versions")
    changes = {f: getattr(event, f) for f in StepFinished.model_fields if f not in own}

    def finish(step: Step) -> Step:
        return step.model_copy(update=changes | {"ended_at": at, "versions": step.versions | event.versions})

    return tuple(finish(s) if s.id == event.step_id else s for s in run.steps)


def summarise(run: Run) -> RunSummary:
    """The run as lists show it."""
    elapsed = (run.ended_at - run.created_at).total_seconds() * 1000 if run.ended_at else None
    return RunSummary(
        id=run.id,
        kind=run.kind,
        text=run.text,
        source=run.source,
        thread_id=run.thread_id,
        parent=run.parent,
        status=run.status,
        seq=run.seq,
        created_at=run.created_at,
        ended_at=run.ended_at,
        row_count=run.result.row_count if run.result else None,
        truncated=run.result.truncated if run.result else False,
        error_code=run.error.get("code") if run.error else None,
        elapsed_ms=elapsed,
        usage=run.usage,
    )
