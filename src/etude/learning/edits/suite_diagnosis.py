"""What is known about a suite that fails: its failures, where they happened, and how long its tests take."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from etude.learning.edits.suite import Failure, SuiteRun
from etude.learning.edits.workspace import Hunk, Workspace

MOST_PLACES = 4
"""Places of one failure that proposers look at, innermost first."""


@dataclass(frozen=True)
class DiagnosisProposal:
    """A proposed edit: what it changes, who proposes it, and why."""

    proposer: str
    rationale: str
    hunks: tuple[Hunk, ...]

    @property
    def key(self) -> tuple[tuple[str, str, str], ...]:
        """A key that is equal for equal edits."""
        return tuple((h.path, h.old, h.new) for h in self.hunks)


@dataclass(frozen=True)
class SuiteDiagnosis:
    """The failures of some runs, for proposers to read."""

    workspace: Workspace
    failures: tuple[tuple[str, Failure], ...]
    """Tests with their failures; equal ones once, the most frequent first."""
    seconds: dict[str, float] = field(default_factory=dict)
    """The mean time of each test."""

    def places(self, failure: Failure) -> list[tuple[str, int]]:
        """Return the places of a failure in files that edits may touch, innermost first."""
        editable = set(self.workspace.sources())
        found = [place for place in reversed(failure.frames) if place[0] in editable]
        return list(dict.fromkeys(found))[:MOST_PLACES]

    def sources(self) -> list[str]:
        """Return the files that edits may touch, those of tracebacks first."""
        seen = [path for _, failure in self.failures for path, _ in self.places(failure)]
        return list(dict.fromkeys([*seen, *self.workspace.sources()]))

    def propose(self, proposer: str, path: str, new: str, rationale: str) -> Iterator[DiagnosisProposal]:
        """Yield the proposal that gives a file a new text, unless nothing would change."""
        hunks = make_diagnosis_hunks(path, self.workspace.read(path), new)
        if hunks:
            yield DiagnosisProposal(proposer, rationale, hunks)


def diagnose_suite(workspace: Workspace, runs: Iterable[SuiteRun]) -> SuiteDiagnosis:
    """Return the diagnosis of these runs."""
    counts: Counter[tuple[str, Failure]] = Counter()
    times: dict[str, list[float]] = {}
    for run in runs:
        counts.update((test, _without_text(failure)) for test, failure in run.failures.items())
        for test, outcome in run.outcomes.items():
            times.setdefault(test, []).append(outcome.seconds)
    seconds = {test: sum(found) / len(found) for test, found in times.items()}
    return SuiteDiagnosis(workspace, tuple(key for key, _ in counts.most_common()), seconds)


def _without_text(failure: Failure) -> Failure:
    return Failure(failure.message, failure.error, failure.frames)


def make_diagnosis_hunks(path: str, old: str, new: str) -> tuple[Hunk, ...]:
    """Return the replacements that turn one text into another, each with as much context as makes it unique."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    hunks: list[Hunk] = []
    blocks = [o for o in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if o[0] != "equal"]
    for _, start, end, new_start, new_end in blocks:
        low, high = start, end
        while low == high or old.count("".join(before[low:high])) != 1:
            if low == 0 and high == len(before):
                return (Hunk(path=path, old=old, new=new),) if old and old != new else ()
            low, high = max(0, low - 1), min(len(before), high + 1)
        text = "".join([*before[low:start], *after[new_start:new_end], *before[end:high]])
        hunks.append(Hunk(path=path, old="".join(before[low:high]), new=text))
    return tuple(hunks) if _gives(old, new, hunks) else ((Hunk(path=path, old=old, new=new),) if old != new else ())


def _gives(old: str, new: str, hunks: Iterable[Hunk]) -> bool:
    """Return whether the replacements, one after the other, give the new text: contexts may overlap."""
    for hunk in hunks:
        if old.count(hunk.old) != 1:
            return False
        old = old.replace(hunk.old, hunk.new)
    return old == new
