"""Events: immutable facts about a run. The log is the source of truth; a run's state is `fold(entries)`."""

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
    Figure,
    Guidance,
    GuidedBy,
    Judgement,
    Limits,
    Outcome,
    Read,
    Replay,
    ResultInfo,
    Run,
    RunKind,
    RunStatus,
    RunSummary,
    ShownResult,
    Step,
    StepKind,
    Turn,
    Usage,
)
from etude.errors import Conflict

INTERRUPTED = "interrupted"
"""The `error_key` of a step whose process ended before the step did."""


class RunQueued(Entity):
    """The first event of every run."""

    type: Literal["run.queued"] = "run.queued"
    kind: RunKind
    text: str
    source: str | None = None
    thread_id: str | None = None
    parent: str | None = None
    """The run that this one continues, replays or shadows."""
    location: str | None = None
    """The path or URL of a source without a registered name, if that is not a secret."""
    model: str | None = None
    budget: Budget | None = None
    limits: Limits | None = None
    """The limits of its queries, if they differ from the settings."""
    params: dict[str, Any] = {}
    """Other parameters that another process needs to start the run again."""


class RunStarted(Entity):
    """A worker took the run."""

    type: Literal["run.started"] = "run.started"
    worker: str


class RunPaused(Entity):
    """The run stopped between steps and can be resumed."""

    type: Literal["run.paused"] = "run.paused"
    by: str = ""


class RunResumed(Entity):
    """A paused or waiting run continues."""

    type: Literal["run.resumed"] = "run.resumed"
    worker: str


class RunWaiting(Entity):
    """The run needs an answer from a person."""

    type: Literal["run.waiting"] = "run.waiting"
    question: str
    choices: tuple[str, ...] = ()
    call: str = ""
    """The id of the step that asks."""


class RunAnswered(Entity):
    """A person answered; the next worker that takes the run continues it."""

    type: Literal["run.answered"] = "run.answered"
    text: str
    by: str = ""


class RunRequested(Entity):
    """A request to pause or cancel the run, or to stop its current move; its worker will do so."""

    type: Literal["run.requested"] = "run.requested"
    what: Literal["pause", "cancel", "interrupt"]
    by: str = ""


class Guided(Entity):
    """Guidance that the model reads before its next turn: from a person, from a check of its answer, or at a limit.

    After guidance at a limit (`budget`), the model has one last turn without tools. After guidance on the chart
    (`chart`) or a request for the origins of figures (`origins`), the text and the results of its answer are kept.
    """

    type: Literal["guided"] = "guided"
    text: str
    by: GuidedBy = "user"
    interrupts: bool = False
    """Whether open tool calls are abandoned."""


class RunFinished(Entity):
    """The run succeeded. Its result is that of its last step unless `artifact` is set."""

    type: Literal["run.finished"] = "run.finished"
    result: ResultInfo | None = None
    artifact: Artifact | None = None
    answer: str | None = None
    code: str | None = None
    """The code that computed the answer, to run again."""
    chart: dict[str, Any] | None = None
    """A Vega-Lite chart of the result, without its data."""
    unverified: tuple[str, ...] = ()
    """Numbers of the answer that no result holds."""
    shown: tuple[ShownResult, ...] = ()
    """The results that the answer shows, in order."""
    figures: tuple[Figure, ...] = ()
    """Numbers of the answer that were computed from expressions of the model."""


class RunFailed(Entity):
    """The run ended with an error, in the shape of `errors.problem`."""

    type: Literal["run.failed"] = "run.failed"
    error: dict[str, Any]


class RunCancelled(Entity):
    """The run was cancelled."""

    type: Literal["run.cancelled"] = "run.cancelled"
    by: str = ""


class StepStarted(Entity):
    """A step started. The event holds everything needed to run the step again."""

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
    """A step ended. The event holds what the step read and made, its outcome and its cost."""

    type: Literal["step.finished"] = "step.finished"
    step_id: str
    outcome: Outcome
    estimate: Estimate | None = None
    schema_fingerprint: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """The engine's versions, known once it answered; they are added to those of `StepStarted`."""
    reads: tuple[Read, ...] = ()
    result: ResultInfo | None = None
    artifact: Artifact | None = None
    error: dict[str, Any] | None = None
    error_key: str | None = None
    """The error with its values masked, to group equal failures."""
    elapsed_ms: float = 0.0
    usage: Usage = Usage()
    turn: Turn | None = None
    """The model's turn."""
    shown: str | None = None
    """The outcome of a tool as shown to the model."""


class TextDelta(Entity):
    """A piece of the text that a model is writing; `StepFinished` has the whole text."""

    type: Literal["text.delta"] = "text.delta"
    step_id: str
    text: str
    restart: bool = False
    """Whether the model started over: discard the earlier text of this step."""


class ArtifactCreated(Entity):
    """A file was written to the object store."""

    type: Literal["artifact.created"] = "artifact.created"
    artifact: Artifact
    step_id: str | None = None


class ReplayDecided(Replay):
    """The script of an earlier run was used for this run, or was not, and why."""

    type: Literal["replay.decided"] = "replay.decided"


class ScriptCompiled(Entity):
    """A script was compiled from this run, or could not be, and why."""

    type: Literal["script.compiled"] = "script.compiled"
    script: str | None = None
    artifact: Artifact | None = None
    """The script as a Python file."""
    steps: int = 0
    """Queries and cells that it keeps."""
    of_steps: int = 0
    guards: int = 0
    mutants: str = ""
    """What the guards did with damaged data, in words."""
    parameters: tuple[str, ...] = ()
    replayable: bool = True
    """Whether it answers the same question from now on. Otherwise it only helps a model as an example."""
    reason: str = ""
    elapsed_ms: float = 0.0


class RunJudged(Judgement):
    """A person said whether the answer is right."""

    type: Literal["run.judged"] = "run.judged"


class Note(Entity):
    """A remark for readers of the run, such as a truncation, a cast or a repair."""

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
    | ReplayDecided
    | ScriptCompiled
    | RunJudged
    | Note,
    Field(discriminator="type"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class Entry(Entity):
    """An event at its position in a run's log. `seq` counts from 1 without gaps."""

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


def fold(entries: Iterable[Entry], run: Run | None = None) -> Run:
    """Return the state of a run after its entries; with `run`, after that state and the entries that follow it.

    Raises `Conflict` if an entry does not follow from those before it. The cost is linear in the entries.
    """
    folding = _Folding(run)
    for entry in entries:
        folding.add(entry)
    return folding.freeze()


def apply_event_entry(run: Run | None, entry: Entry) -> Run:
    """Return the run after one more entry."""
    return fold((entry,), run)


class _Folding:
    """A run while entries are folded into it.

    Lists grow in place here, because copying a frozen run for every entry makes the cost quadratic.
    """

    def __init__(self, run: Run | None) -> None:
        self._run = run
        self._seq = run.seq if run else 0
        self._status: RunStatus = run.status if run else "queued"
        self._changes: dict[str, Any] = {}
        self._lists: dict[str, list[Any]] = {}
        self._steps: list[Step | dict[str, Any]] = list(run.steps) if run else []
        """Steps; those that an entry changed are dicts of their fields until `freeze`, so that each is built once."""
        self._open: dict[str, int] = {s.id: i for i, s in enumerate(run.steps) if s.ended_at is None} if run else {}
        """The positions of steps that have not ended, by id."""
        self._used = dict(run.usage) if run else dict(Usage())

    def add(self, entry: Entry) -> None:
        """Fold one more entry; if it does not fit, raise `Conflict` and leave the run unchanged."""
        event = entry.event
        if self._run is None:
            if not isinstance(event, RunQueued) or entry.seq != 1:
                raise Conflict(f"The first event of `{entry.run_id}` must be run.queued, not {event.type}.")
            self._run = Run(id=entry.run_id, created_at=entry.at, seq=1, **_fields(event))
            self._seq = 1
            return
        if entry.seq != self._seq + 1:
            raise Conflict(f"Run `{self._run.id}` is at {self._seq}: entry {entry.seq} does not follow.")
        allowed = _FROM.get(event.type)
        if allowed is not None and self._status not in allowed:
            raise Conflict(f"Run `{self._run.id}` is {self._status}: {event.type} cannot follow.")
        changes = self._change(self._run, event, entry.at)
        self._seq = entry.seq
        self._status = changes.get("status", self._status)
        self._changes |= changes

    def freeze(self) -> Run:
        """Return the run in its current state."""
        if self._run is None:
            raise Conflict("A run has at least one event.")
        lists = {name: tuple(items) for name, items in self._lists.items()}
        steps = tuple(step if isinstance(step, Step) else Step(**step) for step in self._steps)
        whole = {"seq": self._seq, "steps": steps, "usage": Usage(**self._used)}
        return self._run.model_copy(update=whole | self._changes | lists)

    def _list(self, name: str) -> list[Any]:
        if name not in self._lists:
            self._lists[name] = list(getattr(self._run, name))
        return self._lists[name]

    def _change(self, run: Run, event: Event, at: datetime) -> dict[str, Any]:
        """Append to the lists that the event adds to; return the other fields that it changes."""
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
                return {} if what == "interrupt" else {"requested": what}
            case Guided():
                self._list("guidance").append(Guidance(after=len(self._steps), **_fields(event)))
            case RunFinished():
                kept = ("result", "answer", "code", "chart", "unverified", "shown", "figures")
                made = {f: getattr(event, f) for f in kept}
                return {"status": "succeeded", "ended_at": at, "result_artifact": event.artifact} | made
            case RunFailed(error=error):
                return {"status": "failed", "ended_at": at, "error": error}
            case RunCancelled():
                return {"status": "cancelled", "ended_at": at}
            case StepStarted():
                self._start_step(event, at)
            case StepFinished():
                self._finish_step(run, event, at)
            case TextDelta():
                pass
            case ArtifactCreated(artifact=artifact):
                self._list("artifacts").append(artifact)
            case ReplayDecided():
                return {"replay": Replay(**_fields(event))}
            case ScriptCompiled(script=script):
                return {"script": script}
            case RunJudged():
                return {"feedback": Judgement(**_fields(event))}
            case Note(text=text):
                self._list("notes").append(text)
            case _:
                assert_never(event)
        return {}

    def _start_step(self, event: StepStarted, at: datetime) -> None:
        self._open[event.step_id] = len(self._steps)
        fields = _fields(event)
        self._steps.append({"id": fields.pop("step_id"), "started_at": at} | fields)

    def _finish_step(self, run: Run, event: StepFinished, at: datetime) -> None:
        position = self._open.pop(event.step_id, None)
        if position is None:
            raise Conflict(f"Run `{run.id}` has no open step `{event.step_id}`.")
        step = self._steps[position]
        before = dict(step) if isinstance(step, Step) else step
        fields = _fields(event)
        del fields["step_id"]
        self._steps[position] = before | fields | {"ended_at": at, "versions": before["versions"] | event.versions}
        for name in self._used:
            self._used[name] += getattr(event.usage, name)


def _fields(event: Entity) -> dict[str, Any]:
    """Return the fields of an event, except its type."""
    fields = dict(event.__dict__)
    del fields["type"]
    return fields


def summarise_run(run: Run) -> RunSummary:
    """Return the run as lists show it."""
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
