"""The conformance suite of stores: what `etude check store` runs, through the public interface only.

It leaves a few ended runs whose text starts with `etude check`, because runs are never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from etude.conformance import CheckResult, Failed, run_conformance_checks
from etude.entities import RunFilter, SourceSpec
from etude.errors import Conflict, EtudeError, Invalid, NotFound
from etude.events import (
    Event,
    Note,
    RunCancelled,
    RunFinished,
    RunQueued,
    RunStarted,
    StepFinished,
    StepStarted,
)
from etude.ids import new_id
from etude.store.base import Store
from etude.store.objects import Objects

MARK = "etude check"
RACERS = 8


def check_store(store: Store) -> Iterator[CheckResult]:
    """Run every check, one result each; a failing check does not stop the others."""
    yield from run_conformance_checks(CHECKS, store)


def check_objects(open_objects: Callable[[], Objects]) -> Iterator[CheckResult]:
    """Run every check of an object store, one result each; failing to open it is a result, too."""
    yield from run_conformance_checks(OBJECT_CHECKS, open_objects)


def _object_health(open_objects: Callable[[], Objects]) -> str:
    return ", ".join(f"{name} {value}" for name, value in open_objects().check().items())


def _artifacts(open_objects: Callable[[], Objects]) -> str:
    objects = open_objects()
    data = MARK.encode() * (1 << 17)
    for content in (b"", MARK.encode(), data):
        artifact = objects.put(content, "text/plain")
        _expect(objects.get(artifact.hash) == content, True, f"{len(content):,} bytes read back")
        with objects.open(artifact.hash) as file:
            _expect(file.read() == content, True, f"{len(content):,} bytes read in place")
        objects.check_artifact(artifact.hash)
    _refused(NotFound, lambda: objects.get("0" * 64), "an absent artifact")
    return f"up to {len(data):,} bytes written and read back"


def _names(open_objects: Callable[[], Objects]) -> str:
    objects = open_objects()
    name = f"probe/{new_id('check')}"
    try:
        objects.write(name, b"1", "text/plain")
        objects.update(name, lambda data: (data or b"") + b"2", "text/plain")
        _expect(objects.read(name), b"12", "bytes written and changed")
        _expect(name in objects.names("probe"), True, "the name in the list")
    finally:
        objects.remove(name)
    _refused(NotFound, lambda: objects.read(name), "what was removed")
    return "written, changed, listed, removed"


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


def _refused(error: type[EtudeError], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except error:
        return
    raise Failed(f"{what}: expected {error.__name__}, nothing was raised")


def _queued(text: str = "", **fields: str) -> RunQueued:
    return RunQueued.model_validate({"kind": "sql", "text": f"{MARK} {text}".strip()} | fields)


def _health(store: Store) -> str:
    return ", ".join(f"{name} {value}" for name, value in store.check().items())


def _log(store: Store) -> str:
    run_id = new_id("run")
    step = StepStarted(step_id=new_id("step"), kind="sql", code="SELECT 'Zürich \u0000 \U0001f600'")
    events: list[Event] = [
        _queued(),
        RunStarted(worker=store.worker_id),
        step,
        StepFinished(step_id=step.step_id, outcome="ok", elapsed_ms=1.5),
    ]
    _expect(store.append(run_id, *events[:2], expect=0), 2, "seq after two events")
    _expect(store.append(run_id, *events[2:], expect=2), 4, "seq after four events")
    _expect(store.append(run_id, RunFinished(), expect=4), 5, "seq after the last event")
    entries = store.entries(run_id)
    _expect([entry.event for entry in entries], [*events, RunFinished()], "events read back")
    _expect([entry.seq for entry in entries], [1, 2, 3, 4, 5], "their numbers")
    _expect([e.seq for e in store.entries(run_id, after=2, limit=2)], [3, 4], "two entries after the second")
    run = store.run(run_id)
    _expect((run.status, run.seq, run.steps[0].code), ("succeeded", 5, step.code), "the folded run")
    return f"{len(entries)} events written and read back"


def _expectation(store: Store) -> str:
    run_id = new_id("run")
    _refused(Conflict, lambda: store.append(run_id, Note(text="first"), expect=0), "a log without run.queued")
    _refused(Conflict, lambda: store.append(run_id, _queued(), expect=3), "an append to an absent run")
    store.append(run_id, _queued(), expect=0)
    _refused(Conflict, lambda: store.append(run_id, _queued(), expect=0), "a second creation")
    _refused(Conflict, lambda: store.append(run_id, Note(text="late"), expect=9), "a wrong expectation")
    both = (Note(text="written with it"), RunFinished())
    _refused(Conflict, lambda: store.append(run_id, *both, expect=1), "an impossible transition")
    _expect([e.event.type for e in store.entries(run_id)], ["run.queued"], "the log after refusals")
    store.append(run_id, RunCancelled(by=MARK), expect=1)
    return "wrong expectations and impossible transitions refused, nothing written"


def _race(store: Store) -> str:
    run_id = new_id("run")
    store.append(run_id, _queued(), expect=0)

    def attempt(number: int) -> bool:
        try:
            store.append(run_id, Note(text=str(number)), expect=1)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        wins = sum(pool.map(attempt, range(RACERS)))
    _expect(wins, 1, f"winners of {RACERS} appends at once")
    _expect(len(store.entries(run_id)), 2, "entries after the race")
    store.append(run_id, RunCancelled(by=MARK), expect=2)
    return f"1 of {RACERS} threads won"


def _lists(store: Store) -> str:
    source = new_id("check")
    ids = [new_id("run") for _ in range(5)]
    for number, run_id in enumerate(ids):
        queued = _queued(f"100% Ünique_{number}", source=source)
        store.append(run_id, queued, RunCancelled(by=MARK), expect=0)
    mine = RunFilter(source=source)
    seen, cursor = [], None
    for _ in ids:
        page = store.runs(mine, limit=2, cursor=cursor)
        seen += [run.id for run in page.items]
        cursor = page.next
        if cursor is None:
            break
    _expect(seen, ids[::-1], "all pages, newest first")
    found = store.runs(RunFilter(source=source, text="% üNIQUE_3")).items
    _expect([run.id for run in found], [ids[3]], "runs found by text in another case")
    _expect(store.runs(RunFilter(source=source, status="failed")).items, [], "runs of another status")
    _expect(store.resolve_run(ids[0]), ids[0], "the run of an id")
    _refused(Invalid, lambda: store.runs(mine, cursor="no cursor"), "a wrong cursor")
    return f"{len(ids)} runs paged, filtered and found"


def _absent(store: Store) -> str:
    absent = new_id("absent")
    _refused(NotFound, lambda: store.run(absent), "an absent run")
    _refused(NotFound, lambda: store.entries(absent), "the log of an absent run")
    _refused(NotFound, lambda: store.resolve_run(absent), "an absent prefix")
    _refused(NotFound, lambda: store.thread(absent), "an absent thread")
    _refused(NotFound, lambda: store.messages(absent), "messages of an absent thread")
    _refused(NotFound, lambda: store.add_message(absent, "user", "?"), "a message to an absent thread")
    _refused(NotFound, lambda: store.delete_thread(absent), "deletion of an absent thread")
    _refused(NotFound, lambda: store.remove_source(absent), "removal of an absent source")
    return "8 absent things were NotFound"


def _threads(store: Store) -> str:
    first, second = store.create_thread(f"{MARK} one"), store.create_thread(f"{MARK} two", source="s")
    try:
        with ThreadPoolExecutor(RACERS) as pool:
            list(pool.map(lambda n: store.add_message(first.id, "user", str(n)), range(RACERS)))
        messages = store.messages(first.id)
        _expect([m.seq for m in messages], list(range(1, RACERS + 1)), "numbers of messages added at once")
        _expect(store.messages(first.id, after=2, limit=1), [messages[2]], "one message after the second")
        _expect(store.thread(second.id), second, "the thread read back")
        recent = [t.id for t in store.threads(limit=200).items if t.id in (first.id, second.id)]
        _expect(recent, [first.id, second.id], "threads, the last updated first")
    finally:
        store.delete_thread(first.id)
        store.delete_thread(second.id)
    _refused(NotFound, lambda: store.messages(first.id), "messages of a deleted thread")
    return f"{RACERS} messages added at once kept their order"


def _sources(store: Store) -> str:
    name = new_id("check")
    spec = SourceSpec(url="env:NOWHERE", tables=("a", "b"), options={"key": "value"})
    store.put_source(name, SourceSpec(url="elsewhere"))
    store.put_source(name, spec)
    try:
        _expect(store.sources().get(name), spec, "the source read back")
    finally:
        store.remove_source(name)
    _expect(store.sources().get(name), None, "the source after removal")
    return "registered, changed, removed"


def _workers(store: Store) -> str:
    run_id = new_id("run")
    _refused(
        Invalid,
        lambda: store.append(run_id, _queued(), RunStarted(worker="someone else"), expect=0),
        "a start in the name of another worker",
    )
    store.append(run_id, _queued(), RunStarted(worker=store.worker_id), expect=0)
    recovered = store.recover()
    status = store.run(run_id).status
    _expect((run_id in recovered, status), (False, "running"), "a living worker's run after recovery")
    store.append(run_id, RunCancelled(by=MARK), expect=2)
    return f"{store.worker_id} is seen alive"


OBJECT_CHECKS: dict[str, Callable[[Callable[[], Objects]], str]] = {
    "objects": _object_health,
    "artifacts": _artifacts,
    "names": _names,
}
CHECKS: dict[str, Callable[[Store], str]] = {
    "health": _health,
    "log": _log,
    "expectation": _expectation,
    "race": _race,
    "lists": _lists,
    "absent": _absent,
    "threads": _threads,
    "sources": _sources,
    "workers": _workers,
}
