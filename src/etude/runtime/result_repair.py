"""Repair of a run: queries whose stored results are damaged or missing run again, which may restore the same bytes."""

from __future__ import annotations

from collections.abc import Callable

from etude.entities import Entity, Run, Step
from etude.errors import Damaged, NotFound
from etude.result import Result
from etude.store.base import Store
from etude.store.objects import Objects


class RepairedFile(Entity):
    """A damaged or missing file of a run, and the outcome of its repair."""

    artifact: str
    outcome: str
    """`repaired`: the query gave the same bytes. `changed`: its result is different now. `not a query`: the file is
    not the result of a query."""
    new_run_id: str | None = None
    """The run that ran the query again."""


class Repaired(Entity):
    """The outcome of a repair. It has no files if nothing was damaged."""

    run_id: str
    checked: int
    files: tuple[RepairedFile, ...] = ()


def repair_run(run: Run, objects: Objects, store: Store, again: Callable[[Step], Result]) -> Repaired:
    """Check every artifact of the run, and call `again` to rerun the query of each that is damaged or missing."""
    hashes = list(dict.fromkeys(a.hash for a in (*run.artifacts, *(s.artifact for s in run.steps if s.artifact))))
    files = [_repair(h, run, objects, store, again) for h in hashes if not _is_whole(objects, h)]
    return Repaired(run_id=run.id, checked=len(hashes), files=tuple(files))


def _repair(hash: str, run: Run, objects: Objects, store: Store, again: Callable[[Step], Result]) -> RepairedFile:
    made_by = next((s for s in run.steps if s.kind == "sql" and s.artifact and s.artifact.hash == hash), None)
    if made_by is None:
        return RepairedFile(artifact=hash, outcome="not a query")
    if objects.folder is None:
        # In cloud storage, a put skips an object that exists, even if it is damaged.
        objects.discard_damaged(hash)
    new_run_id = again(made_by).run_id
    made = store.run(new_run_id).result_artifact if new_run_id else None
    outcome = "repaired" if made is not None and made.hash == hash else "changed"
    return RepairedFile(artifact=hash, outcome=outcome, new_run_id=new_run_id)


def _is_whole(objects: Objects, hash: str) -> bool:
    try:
        objects.check_artifact(hash)
    except (Damaged, NotFound):
        return False
    return True
