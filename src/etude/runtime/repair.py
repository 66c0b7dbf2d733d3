"""Repair of a run: queries whose kept results are damaged or gone are run again, and give the same bytes or not."""

from __future__ import annotations

from collections.abc import Callable

from etude.entities import Entity, Run, Step
from etude.errors import Damaged, NotFound
from etude.result import Result
from etude.store.base import Store
from etude.store.objects import Objects


class RepairedFile(Entity):
    """A damaged or missing file of a run, and what became of it."""

    artifact: str
    outcome: str
    """`repaired`: the query gave the same bytes. `changed`: it gives another result now. `not a query`: no query
    made the file."""
    new_run_id: str | None = None
    """The run that ran the query again."""


class Repaired(Entity):
    """What a repair did. Without files, everything was whole."""

    run_id: str
    checked: int
    files: tuple[RepairedFile, ...] = ()


def repair_run(run: Run, objects: Objects, store: Store, again: Callable[[Step], Result]) -> Repaired:
    """Check every artifact of the run, and have `again` run the query of each that is not whole."""
    hashes = list(dict.fromkeys(a.hash for a in (*run.artifacts, *(s.artifact for s in run.steps if s.artifact))))
    files = [_repair(h, run, objects, store, again) for h in hashes if not _is_whole(objects, h)]
    return Repaired(run_id=run.id, checked=len(hashes), files=tuple(files))


def _repair(hash: str, run: Run, objects: Objects, store: Store, again: Callable[[Step], Result]) -> RepairedFile:
    made_by = next((s for s in run.steps if s.kind == "sql" and s.artifact and s.artifact.hash == hash), None)
    if made_by is None:
        return RepairedFile(artifact=hash, outcome="not a query")
    if objects.folder is None:
        # A put does not look into what a cloud keeps under the name already.
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
