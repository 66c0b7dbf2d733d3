"""Whether an edit is kept: pinned tests, the exact test of steady failures, and the paired test of unsteady ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from etude.learning.statistical_tests import (
    ONE_IN_20,
    ONE_IN_100,
    PairedTest,
    delta_lower_bound,
    paired_test,
    wilson_interval,
)

ERROR = 0.01
"""The chance that an edit without an effect is kept."""
ROUNDS = 8
"""An edit that is undecided after this many rounds is dropped, unless the evidence is half of what it needs."""
MOST_ROUNDS = 2 * ROUNDS
"""No edit has more rounds. The paired test may be looked at for as long as one likes, so this limits only the cost."""
HOLDOUT_FLOOR = -0.02
"""A lower bound of the effect on fresh seeds below this rejects an edit."""
WAKE_BELOW = 0.8
"""A suite that passes less often than this wakes the learning agent."""
Verdict = Literal["accept", "reject", "continue"]


@dataclass(frozen=True, slots=True)
class EditOutcomePair:
    """The outcomes of one test at one seed, without and with the edit."""

    test: str
    seed: int
    before: bool
    after: bool

    @property
    def sign(self) -> int:
        """1 if the edit did better, -1 if the base did, 0 if they did the same."""
        return int(self.after) - int(self.before)


@dataclass(frozen=True)
class EditDecision:
    """A verdict, why, and the figures behind it."""

    verdict: Verdict
    reason: str
    log_e: float = 0.0
    log_e_worse: float = 0.0
    wins: int = 0
    losses: int = 0
    ties: int = 0
    fixed: tuple[str, ...] = ()
    """Tests that failed in every run of the base and passed in every run of the edit."""
    broken: tuple[str, ...] = ()
    """Pinned tests that the edit breaks."""


@dataclass
class TestRecord:
    """The outcomes of one test over all runs of both arms."""

    __test__ = False  # not a test of pytest
    before: list[bool] = field(default_factory=list)
    after: list[bool] = field(default_factory=list)


def runs_needed_to_decide_edit(candidates: int) -> int:
    """Return the runs of each arm after which `candidates` tests can prove a fix by themselves.

    If an edit does nothing, all orders of its runs and those of the base are equally likely: the chance that all n
    failures are those of the base is 1 in C(2n, n), and there are as many chances as tests that always failed.
    """
    n = 1
    while max(candidates, 1) / math.comb(2 * n, n) > ERROR:
        n += 1
    return n


def decide_edit(pairs: Iterable[EditOutcomePair], *, noisy: Iterable[str] = (), rounds: int = 0) -> EditDecision:
    """Decide about an edit by the pairs so far; `noisy` tests differ between runs with the same seed.

    A test that always passed without the edit is pinned: if the edit breaks it, the edit is rejected.
    """
    seen = list(pairs)
    known_noisy = set(noisy)
    records: dict[str, TestRecord] = {}
    for pair in seen:
        record = records.setdefault(pair.test, TestRecord())
        record.before.append(pair.before)
        record.after.append(pair.after)
    test = paired_test(p.sign for p in seen)
    broken = tuple(n for n, r in records.items() if n not in known_noisy and all(r.before) and not all(r.after))
    failing = [n for n, r in records.items() if n not in known_noisy and not any(r.before)]
    fixed = tuple(n for n in failing if all(records[n].after))
    if broken:
        return _decision("reject", f"it breaks `{broken[0]}`, which always passed", test, fixed, broken)
    if test.log_e_worse >= ONE_IN_20:
        return _decision("reject", "it does worse on the same seeds", test, fixed)
    proven = [n for n in fixed if len(records[n].after) >= runs_needed_to_decide_edit(len(failing))]
    if proven and test.losses == 0:
        return _decision("accept", f"`{proven[0]}` always failed, and always passes with it", test, fixed)
    if test.log_e >= ONE_IN_100:
        return _decision("accept", f"{test.wins} wins and {test.losses} losses on the same seeds", test, fixed)
    if rounds >= (MOST_ROUNDS if test.log_e >= ONE_IN_100 / 2 else ROUNDS):
        return _decision("reject", f"undecided after {rounds} rounds", test, fixed)
    return _decision("continue", "more rounds are needed", test, fixed)


def _decision(
    verdict: Verdict, reason: str, test: PairedTest, fixed: tuple[str, ...], broken: tuple[str, ...] = ()
) -> EditDecision:
    return EditDecision(verdict, reason, test.log_e, test.log_e_worse, test.wins, test.losses, test.ties, fixed, broken)


def holdout_allows_edit(pairs: Iterable[EditOutcomePair]) -> tuple[bool, float]:
    """Return whether pairs of fresh seeds confirm an accepted edit, and the lower bound of its effect there."""
    test = paired_test(p.sign for p in pairs)
    bound = delta_lower_bound(test.wins, test.losses, test.pairs)
    return bound > HOLDOUT_FLOOR or (test.losses == 0 and test.pairs > 0), bound


def is_surely_failing(passed: int, runs: int) -> bool:
    """Return whether a pass rate is below 80%, and surely so by its Wilson bound."""
    return runs > 0 and passed / runs < WAKE_BELOW and wilson_interval(passed, runs)[1] < WAKE_BELOW


@dataclass
class EditWatch:
    """Runs after a merge: by coin a run uses the base, and the edit is reverted if it does worse."""

    window: int = 50
    test: PairedTest = field(default_factory=PairedTest)
    runs: int = 0

    def add(
        self, pairs: Iterable[EditOutcomePair], pinned: Mapping[str, bool] | None = None
    ) -> Literal["keep", "revert"]:
        """Add the pairs of one run, and return whether the edit is still kept."""
        self.runs += 1
        for pair in pairs:
            self.test.add(pair.sign)
            if pinned is not None and pinned.get(pair.test) and not pair.after and pair.before:
                return "revert"
        return "revert" if self.test.log_e_worse >= ONE_IN_20 else "keep"
