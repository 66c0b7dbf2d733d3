"""Admission of a draft: questions that were asked before are asked again without and with it, by the same model.

A draft is admitted only if it makes the runs that it came from better, and breaks none of several that succeeded. This
is the bar for being tried; whether it helps is then measured by the coin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etude.entities import RunFilter
from etude.errors import Invalid, NotFound
from etude.learning.playbooks.lesson_state import LessonTrial
from etude.learning.playbooks.playbook_library import LibraryDraft, flip_library_coin
from etude.playbook import parse_playbook_metadata

if TYPE_CHECKING:
    from etude.entities import Run
    from etude.store.base import Store

SEEDS = 2
"""How often each question that a draft came from is asked in each arm."""
ORIGINS = 2
"""The questions that a draft came from that are asked again."""
PASSING = 5
"""Other questions on the same source, which succeeded, that are asked again."""
LOOKED = 500
"""The newest runs among which those are looked for."""


@dataclass(frozen=True)
class ReplayedAnswer:
    """The answer to an earlier question, asked again."""

    succeeded: bool
    steps: int
    result: object = None
    """Its rows, in a form that is equal for equal results."""


Replay = Callable[[str, str | None, str | None], ReplayedAnswer]
"""Asks a question on a source again, with the SKILL.md of a draft, or without one."""


@dataclass(frozen=True)
class Admission:
    """Whether a draft is admitted, and the questions that say so."""

    refused: str | None
    """Why it is not; None if it is."""
    origin: tuple[LessonTrial, ...]
    passing: tuple[LessonTrial, ...]

    @property
    def evidence(self) -> str:
        """The trials in a sentence."""
        better = sum(t.improves for t in self.origin)
        fine = sum(t.before and t.after for t in self.passing)
        others = f"{fine} of {len(self.passing)} others fine"
        return f"better in {better} of {len(self.origin)} replays of its own runs, {others}"


def try_draft_for_admission(
    store: Store, draft: LibraryDraft, replay: Replay, say: Callable[[str], None] = lambda text: None
) -> Admission:
    """Ask the questions of a draft, and others that succeeded, without and with it."""
    origins = _origins(store, draft)
    others = _others(store, origins)
    trials = [
        _compare(seed * len(origins) + n, run, draft.text, replay, say)
        for seed in range(SEEDS)
        for n, run in enumerate(origins)
    ]
    # If it helps none of its own runs, the others need not be asked.
    helps = any(t.improves for t in trials)
    passing = [_compare(n, run, draft.text, replay, say) for n, run in enumerate(others)] if helps else []
    return Admission(reason_against_admission(trials, passing), tuple(trials), tuple(passing))


def _origins(store: Store, draft: LibraryDraft) -> list[Run]:
    found = []
    for run_id in parse_playbook_metadata(draft.text).get("runs") or ():
        try:
            run = store.run(str(run_id))
        except NotFound:
            continue
        if run.kind == "ask" and run.model != "offline":
            found.append(run)
    if not found:
        raise Invalid(
            f"None of the runs of draft `{draft.name}` is a question to a model, so nothing can be asked again.",
            hint=f"Read it, then `etude playbooks accept {draft.name}` or `refuse` it.",
        )
    by_text = {run.text: run for run in found}
    return list(by_text.values())[:ORIGINS]


def _others(store: Store, origins: Sequence[Run]) -> list[Run]:
    """Return questions on the same source that succeeded, chosen by lot that is always the same."""
    asked = {run.text for run in origins}
    listed = store.runs(RunFilter(kind="ask", status="succeeded", source=origins[0].source), LOOKED).items
    texts = {run.text: run.id for run in listed if run.text not in asked}
    found: list[Run] = []
    for run_id in sorted(texts.values(), key=lambda run_id: flip_library_coin("admission", run_id)):
        run = store.run(run_id)
        if run.model != "offline":
            found.append(run)
        if len(found) == PASSING:
            break
    return found


def _compare(seed: int, run: Run, text: str, replay: Replay, say: Callable[[str], None]) -> LessonTrial:
    before, after = replay(run.text, run.source, None), replay(run.text, run.source, text)
    # A success with another result than without the draft is not the same answer.
    same = not before.succeeded or after.result == before.result
    trial = LessonTrial(seed, before.succeeded, after.succeeded and same, before.steps, after.steps)
    outcome = {True: "succeeds", False: "fails"}
    say(f"{run.text[:80]}: {outcome[trial.before]} without, {outcome[trial.after]} with it")
    return trial


def reason_against_admission(origin: Iterable[LessonTrial], passing: Iterable[LessonTrial]) -> str | None:
    """Return None if a draft may enter probation, otherwise the reason why not.

    The run that it came from must improve on at least 2 seeds, and at least 5 passing runs must still pass.
    """
    trials, samples = list(origin), list(passing)
    improved = {t.seed for t in trials if t.improves}
    if len(improved) < 2:
        return f"it improves the run that it came from on {len(improved)} seeds; 2 are needed"
    broken = sum(t.before and not t.after for t in [*trials, *samples])
    if broken:
        return f"it breaks {broken} of {len(trials) + len(samples)} replayed runs"
    if sum(t.before for t in samples) < 5:
        return f"only {sum(t.before for t in samples)} passing runs were replayed with it; 5 are needed"
    return None
