"""Proof: run a recorded run again, without a model, and compare every result with the record."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etude.capsule import CODE_ENDINGS
from etude.entities import Entity, Run, Step
from etude.errors import EtudeError, Invalid, NotFound
from etude.events import Entry, fold
from etude.replays.cells import cell_fingerprint, recorded_cell_fingerprint
from etude.replays.differences import MovedDifference, find_row_differences
from etude.replays.fingerprint import result_fingerprint
from etude.runtime.query import CELL
from etude.runtime.standalone_script import PREAMBLE
from etude.sources.query_parameters import decode_query_params

if TYPE_CHECKING:
    from etude.app import App
    from etude.result import Result

CAPSULE_BYTES = 1 << 30
"""The most bytes that a capsule may hold, unpacked."""


class StepProof(Entity):
    """One step of a run, executed again."""

    step: int
    kind: Literal["sql", "python"]
    code: str
    outcome: Literal["same", "different", "failed"]
    detail: str = ""
    moved: MovedDifference | None = None


class Proof(Entity):
    """A run executed again."""

    run_id: str
    question: str
    source: str
    steps: tuple[StepProof, ...]

    @property
    def same(self) -> bool:
        """True if every step gave the recorded result."""
        return all(step.outcome == "same" for step in self.steps)

    @property
    def sentence(self) -> str:
        """What came of it."""
        count = f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"
        if self.same:
            return f"{self.run_id}: all {count} gave the recorded results."
        wrong = [s for s in self.steps if s.outcome != "same"]
        return f"{self.run_id}: {len(wrong)} of {count} gave other results. {wrong[0].detail}"


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run with its files: from the store, or from a capsule."""

    run: Run
    get: Callable[[str], bytes] = field(repr=False)
    foreign: bool = False
    """Whether it is from a file, whose author must not choose what this machine opens."""


def load_run_for_proof(app: App, run_or_file: str) -> RecordedRun:
    """Return a run of the store by its id, or the run of a capsule by its path."""
    path = Path(run_or_file)
    if path.suffix in (".etude", ".zip") or "/" in run_or_file:
        return read_capsule_for_proof(path)
    run = app.store.run(app.store.resolve_run(run_or_file))
    return RecordedRun(run, lambda hash: app.objects.get(hash, run.id))


def read_capsule_for_proof(path: Path) -> RecordedRun:
    """Read a run from a capsule that `etude runs export` wrote.

    Raises `Invalid` if its parts contradict each other: the run is what its events say, and each file has the hash that
    the run names. A reader who knows that hash from elsewhere can then be sure that the result is the recorded one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > CAPSULE_BYTES:
                raise Invalid(f"`{path}` is larger than {CAPSULE_BYTES:,} bytes unpacked.", hint="Check its origin.")
            run = Run.model_validate_json(archive.read("run.json"))
            entries = [Entry.model_validate_json(line) for line in archive.read("events.jsonl").splitlines()]
            used = {artifact.hash for artifact in run.artifacts}
            names = [n for n in archive.namelist() if n.startswith("artifacts/") and Path(n).stem in used]
            files = {Path(name).stem: archive.read(name) for name in names}
            codes = [archive.read(f"steps/{n:03}.{CODE_ENDINGS[s.kind]}") for n, s in enumerate(run.steps, 1)]
    except FileNotFoundError:
        raise NotFound(f"There is no file `{path}`.", hint="`etude runs export RUN FILE` writes one.") from None
    except (OSError, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise Invalid(f"`{path}` is not a capsule.", hint="`etude runs export RUN FILE` writes one.") from None
    if not _is_run_of(run, entries):
        raise _forged(path, "its run is not the one that its events describe")
    if any(code != step.code.encode() for code, step in zip(codes, run.steps)):
        raise _forged(path, "the code of a step is not the one that its run names")
    for hash, data in files.items():
        if hashlib.sha256(data).hexdigest() != hash:
            raise _forged(path, f"the content of the file `{hash}` has another hash")

    def get(hash: str) -> bytes:
        if hash not in files:
            raise NotFound(f"The capsule has no file `{hash}`.", hint="Export the run again.")
        return files[hash]

    return RecordedRun(run, get, foreign=True)


def _is_run_of(run: Run, entries: Sequence[Entry]) -> bool:
    try:
        return bool(entries) and fold(entries).model_dump_json() == run.model_dump_json()
    except EtudeError:
        return False


def _forged(path: Path, why: str) -> Invalid:
    return Invalid(f"`{path}` contradicts itself: {why}.", hint="Check its origin, or export the run again.")


def make_proof(app: App, recorded: RecordedRun, source: str | None = None) -> Proof:
    """Execute every query and cell of a run that succeeded then, and compare. Nothing is recorded."""
    run = recorded.run
    place = source or run.location or run.source
    if recorded.foreign and source is None and place not in app.sources():
        name = run.source or "none"
        raise Invalid(
            f"The file names the source `{name}`, which is not registered here.", hint="Give `--source PLACE`."
        )
    if place is None:
        raise Invalid(f"Run `{run.id}` names no source.", hint="Give one with `--source`.")
    done: list[StepProof] = []
    cells = {s.id for s in run.steps if s.kind == "python"}
    for number, step in enumerate(run.steps, 1):
        if step.kind == "sql" and step.outcome == "ok" and step.parent not in cells and step.artifact is not None:
            done.append(_prove_query(app, recorded, number, step, place))
    if any(s.kind == "python" and s.outcome == "ok" and s.code != PREAMBLE for s in run.steps):
        done += _prove_cells(app, recorded, place)
    if not done:
        raise NotFound(f"Run `{run.id}` is {run.status} and computed nothing.", hint="Look at its events.")
    return Proof(run_id=run.id, question=run.text, source=place, steps=tuple(sorted(done, key=lambda s: s.step)))


def _prove_query(app: App, recorded: RecordedRun, number: int, step: Step, place: str) -> StepProof:
    made: dict[str, Any] = {"step": number, "kind": "sql", "code": step.code}
    try:
        values = decode_query_params(step.params.get("values"))
        now = app.sql(place, step.code, values, limits=step.limits, record=False)
    except EtudeError as error:
        return StepProof(outcome="failed", detail=f"The query failed: {error.message}", **made)
    import pyarrow as pa

    then = read_table_for_proof(recorded, step)
    try:
        if result_fingerprint(now, ordered=False) == result_fingerprint(then, ordered=False) != "":
            return StepProof(outcome="same", **made)
        moved = find_row_differences(then, now)
    except pa.ArrowException:
        raise Invalid(
            f"The recorded result of step {number} is not a table that can be read.",
            hint="Check the origin of the run.",
        ) from None
    return StepProof(outcome="different", detail=moved.sentence, moved=moved, **made)


def read_table_for_proof(recorded: RecordedRun, step: Step) -> Result:
    """Return the recorded table of a step."""
    import io

    from etude.result import Result

    if step.result is None or step.artifact is None:
        raise NotFound("The step has no result.")
    hash = step.artifact.hash
    return Result(step.result, None, open_kept=lambda: io.BytesIO(recorded.get(hash)), run_id=recorded.run.id)


def _prove_cells(app: App, recorded: RecordedRun, place: str) -> list[StepProof]:
    run, done = recorded.run, []
    tables = _tables(recorded)
    with app.open_session(place, record=False, alone=True) as session:
        session.execute(PREAMBLE)
        for number, step in enumerate(run.steps, 1):
            if step.kind != "python" or step.code == PREAMBLE or step.artifact is None:
                continue
            if step.outcome != "ok":
                if step.outcome == "error":
                    session.execute(step.code)  # for the names that it set before it failed
                continue
            made: dict[str, Any] = {"step": number, "kind": "python", "code": step.code}
            cell = session.execute(step.code)
            if not cell.ok:
                detail = f"The cell failed: {(cell.error or {}).get('message', cell.outcome)}"
                done.append(StepProof(outcome="failed", detail=detail, **made))
            elif step.artifact.media == CELL:
                then = recorded_cell_fingerprint(json.loads(recorded.get(step.artifact.hash)), tables.get(step.id))
                same = cell_fingerprint(cell) == then
                detail = "" if same else "The cell printed or returned something else."
                done.append(StepProof(outcome="same" if same else "different", detail=detail, **made))
    return done


def _tables(recorded: RecordedRun) -> Mapping[str, Result]:
    """Return the tables that cells returned, by the step of the cell."""
    tables: dict[str, Result] = {}
    for step in recorded.run.steps:
        if step.kind == "tool" and step.result is not None and step.artifact is not None:
            table = read_table_for_proof(recorded, step)
            children = [
                c for c in recorded.run.steps if c.kind == "python" and c.parent == step.id and c.code != PREAMBLE
            ]
            tables |= {cell.id: table for cell in children}
    return tables
