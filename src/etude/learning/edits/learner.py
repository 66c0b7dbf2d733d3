"""The learning agent on code: find what fails, propose edits, try them in pairs, and keep one that is proven."""

from __future__ import annotations

import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import Conflict, Invalid, LimitExceeded, NotFound, Refused
from etude.ids import new_id
from etude.learning.edits import merge as merging
from etude.learning.edits.bandit import ProposerRecord, rank_proposers_by_bandit
from etude.learning.edits.edit_decision import (
    MOST_ROUNDS,
    ROUNDS,
    EditDecision,
    EditOutcomePair,
    EditWatch,
    decide_edit,
    holdout_allows_edit,
)
from etude.learning.edits.edit_policy import check_edit_policy
from etude.learning.edits.git import is_git_folder
from etude.learning.edits.suite import Failure, Suite, SuiteRun, TestOutcome
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis, diagnose_suite
from etude.learning.edits.workspace import Hunk, Workspace, open_workspace
from etude.learning.statistical_tests import ONE_IN_100, paired_speed_test, paired_test
from etude.store.edits import EditStatus, StoredEdit, StoredEdits, StoredSuiteRun

if TYPE_CHECKING:
    from etude.store.base import Store

Propose = Callable[[SuiteDiagnosis], Iterator[DiagnosisProposal]]
LOOKS = 5
"""Runs of the code as it is, before anything is proposed."""
SCREENED = 12
"""Proposals that are screened before the best of them is judged."""
COMPARED = 3
"""Proposals that are compared at least, even if the first one fixes everything."""
TRIED = 3
"""Screened proposals of each batch that are judged in full."""
GATE_SEED, HOLDOUT_SEED, WATCH_SEED = 1_000, 1_000_000, 2_000_000
"""The first seeds of the gate, of the holdout and of the watch: a proposer never sees them."""
QUARTER, USES = 3, 20
"""The seeds in a quarter of the holdout, and how often each quarter is used before new seeds replace it."""
WATCHED = 50
"""Runs after a merge in which an edit is watched."""


@dataclass(frozen=True)
class LearnOptions:
    """What a learning run may do."""

    propose_only: bool = False
    runs: int = 300
    """The most runs of the suite."""
    edits: int = 3
    """The most edits that are kept."""
    proposers: tuple[str, ...] = ()
    """The proposers to use; all if empty."""
    seed: int = 0
    """Where seeds start, so that a later run uses others."""


@dataclass
class Learned:
    """The result of a learning run."""

    repo: str
    passed_before: int = 0
    total_before: int = 0
    passed_after: int = 0
    total_after: int = 0
    kept: list[StoredEdit] = field(default_factory=list)
    dropped: list[StoredEdit] = field(default_factory=list)
    runs: int = 0
    seconds: float = 0.0
    reason: str = ""


class Learner:
    """Learns on one folder of code with one suite."""

    def __init__(
        self,
        store: Store,
        home: Path,
        repo: Path,
        suite: Suite,
        options: LearnOptions | None = None,
        *,
        proposers: dict[str, Propose] | None = None,
        say: Callable[[str], None] = lambda text: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options or LearnOptions()
        self.suite = suite
        self.home = home
        self.edits = StoredEdits(store)
        self.base = open_workspace(repo, suite.words)
        self.repo = str(self.base.folder)
        self._say, self._check = say, check
        self._proposers = load_learner_proposers() if proposers is None else proposers
        unknown = sorted(set(self.options.proposers) - set(self._proposers))
        if unknown:
            raise Invalid(
                f"There is no proposer `{unknown[0]}`.", hint=f"There are: {', '.join(sorted(self._proposers))}."
            )
        self._runs: dict[int, SuiteRun] = {}
        """Runs of the base by seed: all edits are compared with the same runs."""
        self._used = 0
        self._tried: set[object] = set()
        self._last: StoredEdit | None = None

    # Running.

    def _run(
        self, workspace: Workspace, seed: int, stage: str, edit_id: str | None, tests: Sequence[str] = ()
    ) -> SuiteRun:
        self._check()
        if self._used >= self.options.runs:
            raise LimitExceeded(
                f"The budget of {self.options.runs} runs of the suite is spent.", hint="Give more with `--runs`."
            )
        self._used += 1
        run = self.suite.run(workspace, seed, tests)
        failed = {name: (f.error or f.message)[:200] for name, f in run.failures.items()}
        record = StoredSuiteRun(
            self.repo, self.suite.command, stage, seed, run.passed, run.total, run.seconds, edit_id, failed=failed
        )
        self.edits.add_run(record)
        return run

    def _base_run(self, seed: int) -> SuiteRun:
        if seed not in self._runs:
            run = self._run(self.base, seed, "base", None)
            if run.problem:
                raise Invalid(
                    f"The suite `{self.suite.command}` cannot be used: {run.problem}.",
                    hint=_end_of_output(run),
                )
            self._runs[seed] = run
        return self._runs[seed]

    # One learning run.

    def once(self) -> Learned:
        """Look at the suite, and keep up to `edits` edits that make it better."""
        started = time.monotonic()
        result = Learned(self.repo)
        merging.require_clean_repository_for_merge(self.base.folder)
        try:
            self._learn(result)
        except LimitExceeded as error:
            result.reason = error.message
        result.runs, result.seconds = self._used, time.monotonic() - started
        return result

    def _learn(self, result: Learned) -> None:
        for number in range(self.options.edits + 1):
            runs = self._look()
            passed, total = sum(r.passed for r in runs), sum(r.total for r in runs)
            if number == 0:
                result.passed_before, result.total_before = passed, total
                if total == 0:
                    raise Invalid(
                        f"The suite `{self.suite.command}` has no tests.",
                        hint=_end_of_output(runs[0]),
                    )
            result.passed_after, result.total_after = passed, total
            self._say(f"{passed} of {total} tests passed in {len(runs)} runs")
            if number == self.options.edits:
                result.reason = f"{number} edits were kept"
                return
            if passed == total and (number or "caches" not in self._proposers):
                result.reason = "every test passes"
                return
            kept = self._improve(runs, result)
            if kept is None:
                result.reason = result.reason or _why_nothing_was_kept(runs, result)
                return
            result.kept.append(kept)
            if self.options.propose_only:
                result.reason = "the edit is left for review"
                return
            self.base = open_workspace(self.base.folder, self.suite.words)
            self._runs.clear()

    def look(self) -> list[TestOutcome]:
        """Run the code as it is a few times, and return the outcomes of its tests."""
        return [outcome for run in self._look() for outcome in run.outcomes.values()]

    @property
    def used(self) -> int:
        """The runs of the suite so far."""
        return self._used

    def _look(self) -> list[SuiteRun]:
        """Run the code as it is with the first seeds."""
        return [self._base_run(self.options.seed + n) for n in range(1, LOOKS + 1)]

    def _improve(self, runs: list[SuiteRun], result: Learned) -> StoredEdit | None:
        diagnosis = diagnose_suite(self.base, runs)
        if not diagnosis.failures:
            return self._speed_up(diagnosis, result)
        noisy = self._find_noise(runs)
        proposals = self._propose(diagnosis)
        while batch := deque(islice(proposals, SCREENED)):
            while batch:  # if none of those screened first is kept, the others have their turn
                screened = self._screen(batch, runs, result)
                for number, (proposal, gain) in enumerate(screened):
                    kept = self._judge(proposal, gain, noisy, result) if number < TRIED else None
                    if kept is not None:
                        self._drop_others(screened[number + 1 :], gain, result)
                        return kept
        return None

    def _drop_others(self, others: Sequence[tuple[DiagnosisProposal, float]], best: float, result: Learned) -> None:
        """Record the proposals that also fixed failures, but were not better than the one that was kept."""
        for proposal, gain in others:
            reason = f"it fixed {gain:.1f} failures of a run, the edit that was kept {best:.1f}"
            self._record(proposal, "dropped", {"stage": 1, "reason": reason}, result)

    def _find_noise(self, runs: list[SuiteRun]) -> set[str]:
        """Return the tests whose outcome differs between two runs with the same seed."""
        worst = min(runs, key=lambda run: run.passed)
        again = self._run(self.base, worst.seed, "same seed", None)
        noisy = {t for t, o in worst.outcomes.items() if t in again.outcomes and again.outcomes[t].passed != o.passed}
        if noisy:
            self._say(f"{len(noisy)} tests differ between runs with the same seed")
        return noisy

    def _propose(self, diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
        """Yield new proposals, in turns of the proposers, the one that paid best first."""
        names = [n for n in self._proposers if n != "caches" and n in (self.options.proposers or self._proposers)]
        records = {name: ProposerRecord(*found) for name, found in self.edits.records().items()}
        ranked = rank_proposers_by_bandit(records, names, random.Random(self.options.seed))  # noqa: S311 - not a secret
        turns = [self._proposers[name](diagnosis) for name in ranked]
        while turns:
            for turn in list(turns):
                proposal = next(turn, None)
                if proposal is None:
                    turns.remove(turn)
                elif proposal.key not in self._tried:
                    self._tried.add(proposal.key)
                    yield proposal

    def _apply(self, proposal: DiagnosisProposal, result: Learned) -> Workspace | None:
        """Apply a proposal: it must match, touch nothing protected, and use nothing that could reach its tests."""
        try:
            return apply_learned_edit(self.base, proposal.hunks)
        except Refused as error:
            if "not valid Python" not in error.message:
                self._record(proposal, "refused", {"reason": error.message}, result)
            return None

    def _screen(
        self, batch: deque[DiagnosisProposal], runs: list[SuiteRun], result: Learned
    ) -> list[tuple[DiagnosisProposal, float]]:
        """Run only the tests that failed, with the edit: first on the worst seed, then on two more if it helped.

        Proposals are taken from the batch until one of them fixes everything.
        """
        failing = sorted(runs, key=lambda run: run.passed)[:3]
        found = []
        best, tried = False, 0
        while batch and not (best and tried >= COMPARED):
            proposal = batch.popleft()
            tried += 1
            workspace = self._apply(proposal, result)
            if workspace is None:
                continue
            wins = 0
            for number, run in enumerate(failing):
                tests = sorted(run.failures)
                if not tests:
                    break
                after = self._run(workspace, run.seed, "screen", None, tests if self.suite.is_pytest else ())
                wins += sum(p.sign > 0 for p in pair_learner_runs(run, after) if p.test in tests)
                if number == 0 and (wins == 0 or after.problem):
                    break
            if wins:
                found.append((proposal, wins / len(failing)))
                best = best or wins == sum(len(run.failures) for run in failing)
            else:
                self._record(proposal, "dropped", {"stage": 1, "reason": "it fixes none of the failures"}, result)
        size = {id(p): sum(len(h.new) for h in p.hunks) for p, _ in found}
        return sorted(found, key=lambda item: (-item[1], size[id(item[0])]))

    def _judge(self, proposal: DiagnosisProposal, gain: float, noisy: set[str], result: Learned) -> StoredEdit | None:
        """Run the whole suite without and with the edit, on the same fresh seeds, until the pairs decide."""
        workspace = apply_learned_edit(self.base, proposal.hunks)
        edit_id = new_id("edit")
        known_noisy = set(noisy)
        pairs: list[EditOutcomePair] = []
        # Enough seeds that an edit which helps as much as it seems to can be proven within the rounds.
        block = max(1, min(6, math.ceil(16 / max(gain, 0.2) / ROUNDS)))
        seed = self.options.seed + GATE_SEED + 1_000 * len(result.kept)
        decision = decide_edit(())
        for number in range(1, MOST_ROUNDS + 1):
            for _ in range(block):
                seed += 1
                pairs += self._pair(workspace, seed, "gate", edit_id, known_noisy, pairs)
                decision = decide_edit(pairs, noisy=known_noisy)
                if decision.verdict != "continue":
                    break
            decision = decide_edit(pairs, noisy=known_noisy, rounds=number)
            if decision.verdict != "continue":
                break
        bound, holdout = 0.0, dict[str, Any]()
        if decision.verdict == "accept":
            looked = [e for e in self.edits.list(self.repo, limit=2000) if "holdout" in e.body]
            fresh: list[EditOutcomePair] = []
            for seed in learner_holdout_seeds(len(looked)):
                fresh += self._pair(workspace, seed, "holdout", edit_id, known_noisy, [])
            holdout = {"look": len(looked) + 1, "seeds": list(learner_holdout_seeds(len(looked)))}
            allowed, bound = holdout_allows_edit(fresh)
            if not allowed:
                decision = EditDecision("reject", f"on fresh seeds its effect may be {bound:+.0%}", decision.log_e)
        facts = {"holdout_bound": bound, "noisy": sorted(known_noisy)} | ({"holdout": holdout} if holdout else {})
        return self._settle(proposal, edit_id, workspace, decision, pairs, facts, result)

    def _pair(
        self,
        workspace: Workspace,
        seed: int,
        stage: str,
        edit_id: str,
        noisy: set[str],
        earlier: Sequence[EditOutcomePair],
    ) -> list[EditOutcomePair]:
        before = self._base_run(seed)
        after = self._run(workspace, seed, stage, edit_id)
        if after.problem:
            # It counts as a failure of every test, and is not repeated.
            self._say(f"a run with the edit does not count: {after.problem}")
            return [EditOutcomePair(t, seed, o.passed, False) for t, o in before.outcomes.items() if not o.skipped]
        pairs = pair_learner_runs(before, after)
        passed_before = {p.test for p in pairs if p.before} - {p.test for p in earlier if not p.before}
        lost = [p.test for p in pairs if p.sign < 0 and p.test in passed_before - noisy]
        if lost:
            # A loss of a test that always passed is confirmed by running both arms once more.
            again = self._run(self.base, seed, "same seed", None)
            edited = self._run(workspace, seed, "same seed", edit_id)
            for test in lost:
                same = test in again.outcomes and again.outcomes[test].passed
                if not same or (test in edited.outcomes and edited.outcomes[test].passed):
                    noisy.add(test)
        return pairs

    def _settle(
        self,
        proposal: DiagnosisProposal,
        edit_id: str,
        workspace: Workspace,
        decision: EditDecision,
        pairs: list[EditOutcomePair],
        more: dict[str, Any],
        result: Learned,
    ) -> StoredEdit | None:
        facts: dict[str, Any] = {
            "stage": 3,
            "reason": decision.reason,
            "log_e": decision.log_e,
            "log_e_worse": decision.log_e_worse,
            "wins": decision.wins,
            "losses": decision.losses,
            "ties": decision.ties,
            "score_before": sum(p.before for p in pairs) / max(len(pairs), 1),
            "score_after": sum(p.after for p in pairs) / max(len(pairs), 1),
            "pairs": len(pairs),
            "broken": list(decision.broken),
            **more,
        }
        if decision.verdict != "accept":
            self._record(proposal, "dropped", facts, result, edit_id)
            return None
        facts["patch"] = str(merging.write_merge_patch(self.home, edit_id, self.base, workspace))
        message = _commit_message(proposal, edit_id, facts)
        if self.options.propose_only:
            if is_git_folder(self.base.folder):
                facts["commit"] = merging.commit_merge_on_branch(self.base.folder, edit_id, workspace.changes, message)
                facts["branch"] = merging.merge_branch_name(edit_id)
            return self._record(proposal, "proposed", facts, result, edit_id)
        facts["commit"] = merging.merge_edit(self.home, edit_id, self.base, workspace, message)
        return self._record(proposal, "merged", facts, result, edit_id)

    def _record(
        self,
        proposal: DiagnosisProposal,
        status: EditStatus,
        facts: dict[str, Any],
        result: Learned,
        edit_id: str | None = None,
    ) -> StoredEdit:
        body = {
            "suite": self.suite.command,
            "suite_hash": self.base.fingerprint(),
            "rationale": proposal.rationale,
            "hunks": [hunk.model_dump() for hunk in proposal.hunks],
            "parent": self._last.id if self._last else None,
            "runs": self._used,
            **facts,
        }
        edit = StoredEdit(edit_id or new_id("edit"), self.repo, proposal.proposer, status, datetime.now(UTC), body)
        self.edits.put(edit)
        self._say(f"{status}: {proposal.proposer}: {proposal.rationale}: {facts['reason']}")
        if status in ("merged", "proposed"):
            self._last = edit
        else:
            result.dropped.append(edit)
        return edit

    def _speed_up(self, diagnosis: SuiteDiagnosis, result: Learned) -> StoredEdit | None:
        """If every test passes, try caches: one is kept if the tests still pass and surely take less time."""
        if "caches" not in (self.options.proposers or self._proposers):
            return None
        for proposal in islice(self._proposers["caches"](diagnosis), SCREENED):
            if proposal.key in self._tried:
                continue
            self._tried.add(proposal.key)
            workspace = self._apply(proposal, result)
            if workspace is None:
                continue
            edit_id, pairs, ratios = new_id("edit"), list[EditOutcomePair](), list[float]()
            decision = EditDecision("reject", "it is not surely faster")
            for number in range(MOST_ROUNDS):
                seed = self.options.seed + GATE_SEED + number
                pairs += self._pair(workspace, seed, "gate", edit_id, set(), pairs)
                before, after = self._base_run(seed), self._run(workspace, seed, "time", edit_id)
                ratios.append(max(_seconds(after), 1e-6) / max(_seconds(before), 1e-6))
                if any(p.sign < 0 for p in pairs):
                    decision = EditDecision("reject", "it breaks a test")
                    break
                test = paired_speed_test(ratios)
                if test.log_e >= ONE_IN_100:
                    decision = EditDecision("accept", f"faster in {test.wins} of {len(ratios)} runs", test.log_e)
                    break
                if test.log_e_worse > math.log(3) or (number >= 2 and test.wins == 0):
                    break
            kept = self._settle(proposal, edit_id, workspace, decision, pairs, {}, result)
            if kept is not None:
                return kept
        return None

    # After a merge.

    def watch(self, edit_id: str, runs: int = WATCHED) -> StoredEdit:
        """Run the suite with and without a merged edit on fresh seeds, and revert the edit if it does worse.

        Both arms count as runs. The pairs of earlier calls count as well; after `WATCHED` runs in all, none follow.
        """
        edit = self.edits.get(edit_id)
        if edit.status != "merged":
            raise Invalid(f"Edit `{edit.id}` is {edit.status}.", hint="Only merged edits are watched.")
        hunks = [Hunk(**hunk) for hunk in edit.body["hunks"]]
        after = open_workspace(Path(edit.repo), self.suite.words)
        before = after.apply(reverse_learned_hunks(hunks))
        seen = edit.body.get("watch", {"runs": 0, "wins": 0, "losses": 0})
        watch = EditWatch(WATCHED, paired_test([1] * seen["wins"] + [-1] * seen["losses"]))
        done = 0
        while done < runs and seen["runs"] + done < WATCHED:
            seed = self.options.seed + WATCH_SEED + seen["runs"] + done
            old, new = self._run(before, seed, "watch", None), self._run(after, seed, "watch", edit.id)
            done += 2
            pairs = pair_learner_runs(old, new)
            worse = watch.add(pairs) == "revert" or self._is_lost(pairs, before, after, seed, edit.id)
            facts = {"runs": seen["runs"] + done, "wins": watch.test.wins, "losses": watch.test.losses}
            edit = update_learned_edit(self.edits, edit, edit.status, {"watch": facts})
            if worse:
                self._say(f"edit {edit.id} does worse after {facts['runs']} runs: reverted")
                return revert_learned_edit(self.edits, self.home, edit.id, f"it did worse within {facts['runs']} runs")
        self._say(f"edit {edit.id} holds after {seen['runs'] + done} runs")
        return edit

    def _is_lost(
        self, pairs: Sequence[EditOutcomePair], before: Workspace, after: Workspace, seed: int, edit_id: str
    ) -> bool:
        """Return whether a test that passes without the edit surely fails with it: in three runs of both, each time."""
        lost = {p.test for p in pairs if p.sign < 0}
        for _ in range(2):
            if not lost:
                return False
            old, new = self._run(before, seed, "same seed", None), self._run(after, seed, "same seed", edit_id)
            lost &= {p.test for p in pair_learner_runs(old, new) if p.sign < 0}
        return bool(lost)


def learner_holdout_seeds(looks: int) -> range:
    """Return the seeds of the next look at the holdout: its quarters take turns, and a used one is replaced."""
    quarter, generation = looks % 4, looks // (4 * USES)
    start = HOLDOUT_SEED + (4 * generation + quarter) * QUARTER
    return range(start, start + QUARTER)


def revert_learned_edit(edits: StoredEdits, home: Path, edit_id: str, reason: str) -> StoredEdit:
    """Take a merged edit back, and record why."""
    edit = edits.get(edit_id)
    if edit.status != "merged":
        raise Conflict(f"Edit `{edit.id}` is {edit.status}.", hint="Only merged edits can be reverted.")
    if not Path(edit.repo).is_dir():
        raise NotFound(
            f"`{edit.repo}` is gone.", hint=f"The files before the edit: {merging.merge_backup_folder(home, edit.id)}."
        )
    hunks = [Hunk(**hunk) for hunk in edit.body["hunks"]]
    merging.revert_merged_edit(home, edit.id, Path(edit.repo), edit.body.get("commit"), hunks)
    return update_learned_edit(
        edits, edit, "reverted", {"reverted": reason, "reverted_at": datetime.now(UTC).isoformat()}
    )


def update_learned_edit(edits: StoredEdits, edit: StoredEdit, status: EditStatus, facts: dict[str, Any]) -> StoredEdit:
    """Record a new status of an edit, with more facts."""
    made = StoredEdit(edit.id, edit.repo, edit.proposer, status, edit.created_at, {**edit.body, **facts})
    edits.put(made)
    return made


def apply_learned_edit(base: Workspace, hunks: Sequence[Hunk]) -> Workspace:
    """Return the workspace with an edit, or raise `Refused` if the edit is not allowed or not valid Python."""
    changed = base.apply(hunks)
    for path, text in changed.changes.items():
        if base.changes.get(path) != text:
            check_edit_policy(path, base.read(path), text)
    return changed


def reverse_learned_hunks(hunks: Sequence[Hunk]) -> list[Hunk]:
    """Return the replacements that undo others."""
    return [Hunk(path=h.path, old=h.new, new=h.old) for h in reversed(hunks)]


def _end_of_output(run: SuiteRun) -> str:
    return f"Its output ends: {' '.join(run.output.split())[-400:]}"


def _why_nothing_was_kept(runs: Sequence[SuiteRun], result: Learned) -> str:
    """Return why nothing was kept, and the most frequent failures that are left."""
    failures = Counter(failure for run in runs for failure in map(_describe_failure, run.failures.values()))
    left = "; ".join(text for text, _ in failures.most_common(3))
    why = "no proposal was proven to help" if result.dropped else "no proposer knows a remedy"
    return f"{why}. What fails: {left}" if left else why


def _describe_failure(failure: Failure) -> str:
    return f"{failure.error or 'an error'}: {' '.join(failure.message.split())[:120]}"


def pair_learner_runs(before: SuiteRun, after: SuiteRun) -> list[EditOutcomePair]:
    """Return the outcomes of each test in both runs. A test that is missing or skipped with the edit has failed."""
    if after.problem:
        return [EditOutcomePair(t, before.seed, o.passed, False) for t, o in before.outcomes.items() if not o.skipped]
    return [
        EditOutcomePair(test, before.seed, o.passed, test in after.outcomes and after.outcomes[test].passed)
        for test, o in before.outcomes.items()
        if not o.skipped
    ]


def _seconds(run: SuiteRun) -> float:
    return sum(o.seconds for o in run.outcomes.values())


def _commit_message(proposal: DiagnosisProposal, edit_id: str, facts: dict[str, Any]) -> str:
    return (
        f"{proposal.rationale[:1].upper()}{proposal.rationale[1:]}\n\n"
        f"Edit {edit_id} by etude ({proposal.proposer}): {facts['reason']}.\n"
        f"{facts['wins']} wins, {facts['losses']} losses and {facts['ties']} ties on the same seeds; "
        f"passed {facts['score_before']:.1%} before, {facts['score_after']:.1%} after; "
        f"e-value {math.exp(facts['log_e']):.3g}.\n"
    )


def load_learner_proposers() -> dict[str, Propose]:
    """Return the proposers that need no model, by name."""
    try:
        from etude.learning.edits.proposers.offline_proposers import OFFLINE
    except ImportError:
        raise Invalid(
            "Proposing edits needs libcst, which is not installed.", hint="Install it: pip install 'etude[learn]'."
        ) from None
    return dict(OFFLINE)
