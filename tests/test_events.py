from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.entities import ENDED, Artifact, ResultInfo, Run, Usage
from etude.errors import Conflict
from etude.events import (
    EVENT,
    ArtifactCreated,
    Entry,
    Event,
    Guided,
    Note,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunPaused,
    RunQueued,
    RunResumed,
    RunStarted,
    RunWaiting,
    StepFinished,
    StepStarted,
    apply_event_entry,
    fold,
    summarise_run,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
ARTIFACT = Artifact(hash="0" * 64, media="text/plain", size=0)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, json_values, max_size=3)
queued = st.builds(RunQueued, kind=st.sampled_from(["sql", "python", "ask"]), text=texts, source=st.none() | texts)
usages = st.builds(Usage, tokens_in=st.integers(0, 9), model_calls=st.integers(0, 9))
notes = st.builds(Note, text=texts)
artifacts = st.just(ArtifactCreated(artifact=ARTIFACT))
ends = st.builds(RunFailed, error=objects) | st.builds(RunCancelled, by=texts)


def next_events(run: Run) -> st.SearchStrategy[Event]:
    """The events that may follow in a run."""
    always: list[Any] = [notes, artifacts]
    resumed = st.builds(RunResumed, worker=texts)
    by_status: dict[str, list[Any]] = {
        "queued": [st.builds(RunStarted, worker=texts), st.builds(RunPaused, by=texts), ends],
        "running": [
            st.builds(RunPaused, by=texts),
            st.builds(RunWaiting, question=texts),
            st.builds(RunFinished, answer=st.none() | texts, result=st.just(ResultInfo(columns=(), row_count=1))),
            st.builds(StepStarted, step_id=st.just(f"s{run.seq}"), kind=st.just("sql"), code=texts, params=objects),
            ends,
        ],
        "paused": [resumed, ends],
        "waiting": [resumed, ends],
    }
    still_open = [step.id for step in run.steps if step.ended_at is None]
    if run.status == "running" and still_open:
        ids = st.sampled_from(still_open)
        always.append(st.builds(StepFinished, step_id=ids, outcome=st.sampled_from(["ok", "error"]), usage=usages))
    return st.one_of(*always, *by_status.get(run.status, []))


def entry(seq: int, event: Event) -> Entry:
    return Entry(run_id="run_1", seq=seq, at=START + timedelta(seconds=seq), event=event)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    log = [entry(1, draw(queued))]
    run = fold(log)
    for _ in range(draw(st.integers(0, 12))):
        log.append(entry(run.seq + 1, draw(next_events(run))))
        run = apply_event_entry(run, log[-1])
    return log


@given(logs())
def test_valid_logs_fold(log: list[Entry]) -> None:
    run = fold(log)
    assert run.seq == len(log)
    assert (run.ended_at is not None) == (run.status in ENDED)
    ended = [e.event for e in log if isinstance(e.event, StepFinished)]
    assert sum(step.ended_at is not None for step in run.steps) == len(ended)
    assert run.usage == sum((event.usage for event in ended), Usage())
    assert run.notes == tuple(e.event.text for e in log if isinstance(e.event, Note))


@given(logs(), st.data())
def test_folding_a_prefix_and_then_the_rest_is_folding_all(log: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(log)))
    run = fold(log[:cut])
    assert fold(log[cut:], run) == fold(log)
    for rest in log[cut:]:
        run = apply_event_entry(run, rest)
    assert run == fold(log)


@given(logs(), st.data())
def test_folding_changes_neither_the_run_nor_the_entries(log: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(log)))
    run = fold(log[:cut])
    before, entries = run.model_dump_json(), [e.model_dump_json() for e in log]
    fold(log[cut:], run)
    assert run.model_dump_json() == before
    assert [e.model_dump_json() for e in log] == entries


def test_folding_takes_time_in_proportion_to_the_entries() -> None:
    def seconds(steps: int) -> float:
        log = steps_log(steps)
        started = time.process_time()
        fold(log)
        return time.process_time() - started

    small = min(seconds(500) for _ in range(3))
    # Ten times the entries take ten times as long, where they took a hundred times when a step copied all others.
    assert min(seconds(5000) for _ in range(3)) < 40 * small


def steps_log(count: int) -> list[Entry]:
    """A run of that many steps, all of which begin before the first ends."""
    begun = [StepStarted(step_id=f"s{i}", kind="sql", code="SELECT 1") for i in range(count)]
    ended = [StepFinished(step_id=f"s{i}", outcome="ok") for i in range(count)]
    events: list[Event] = [RunQueued(kind="ask", text="?"), RunStarted(worker="w"), *begun, *ended]
    return [Entry(run_id="run_a", seq=n, at=START, event=event) for n, event in enumerate(events, 1)]


@given(logs())
def test_a_log_survives_json(log: list[Entry]) -> None:
    again = [Entry.model_validate_json(e.model_dump_json()) for e in log]
    assert again == log
    assert fold(again) == fold(log)


@given(logs(), st.integers(-3, 30))
def test_a_gap_or_repetition_of_seq_is_refused(log: list[Entry], seq: int) -> None:
    run = fold(log)
    if seq == run.seq + 1:
        return
    with pytest.raises(Conflict, match="does not follow"):
        apply_event_entry(run, entry(seq, Note(text="x")))


@given(logs())
def test_an_ended_run_takes_only_notes_and_artifacts(log: list[Entry]) -> None:
    run = fold(log)
    if run.status not in ENDED:
        run = apply_event_entry(run, entry(run.seq + 1, RunCancelled()))
    blocked: list[Event] = [
        RunStarted(worker="w"),
        RunPaused(),
        RunResumed(worker="w"),
        RunWaiting(question="?"),
        RunFinished(),
        RunFailed(error={}),
        RunCancelled(),
        StepStarted(step_id="new", kind="sql", code=""),
    ]
    for event in blocked:
        with pytest.raises(Conflict, match="cannot follow"):
            apply_event_entry(run, entry(run.seq + 1, event))
    assert apply_event_entry(run, entry(run.seq + 1, Note(text="x"))).status == run.status


@given(logs())
def test_the_summary_agrees_with_the_run(log: list[Entry]) -> None:
    run = fold(log)
    summary = summarise_run(run)
    shared = set(type(summary).model_fields) & set(Run.model_fields)
    assert {f: getattr(summary, f) for f in shared} == {f: getattr(run, f) for f in shared}
    assert (summary.elapsed_ms is None) == (run.ended_at is None)


def test_a_log_starts_with_run_queued() -> None:
    with pytest.raises(Conflict, match=r"must be run\.queued"):
        fold([entry(1, Note(text="x"))])
    with pytest.raises(Conflict, match=r"must be run\.queued"):
        fold([entry(2, RunQueued(kind="sql", text=""))])
    with pytest.raises(Conflict, match="at least one"):
        fold([])


def test_a_run_is_queued_once() -> None:
    log = [entry(1, RunQueued(kind="sql", text="")), entry(2, RunQueued(kind="sql", text=""))]
    with pytest.raises(Conflict, match="queued already"):
        fold(log)


def test_a_step_ends_once() -> None:
    started: list[Event] = [
        RunQueued(kind="sql", text=""),
        RunStarted(worker="w"),
        StepStarted(step_id="s", kind="sql", code=""),
        StepFinished(step_id="s", outcome="ok"),
        StepFinished(step_id="s", outcome="ok"),
    ]
    log = [entry(number, event) for number, event in enumerate(started, 1)]
    with pytest.raises(Conflict, match="no open step `s`"):
        fold(log)


def test_guidance_of_an_older_log_is_that_of_the_check() -> None:
    assert Guided.model_validate({"type": "guided", "text": "Check 4.", "by": "gate"}).by == "check"


def test_every_event_has_its_own_type() -> None:
    with pytest.raises(ValueError, match="does not match any of the expected tags"):
        EVENT.validate_python({"type": "run.exploded"})
