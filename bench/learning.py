"""Learning: lessons and edits of known effect, under our rules and under those that others use."""

from __future__ import annotations

import random
import statistics
import sys

from bench.figure import Figure
from bench.learning_edits import POLICIES, Trial, make_edits, runs_until_reverted
from bench.learning_lessons import EVENTS, LESSONS, count_only, live, median_quarantine
from bench.learning_observer import measure_observer
from bench.learning_rounds import ROUNDS, measure_rounds
from bench.learning_tampering import tamper
from etude.learning.edits.learner import WATCHED

SEED = 17


def measure() -> list[Figure]:
    print(f"seed: {SEED}", file=sys.stderr)
    return [*_lessons(), *_edits(), *_reverts(), *_tampering(), *_rounds(), *measure_observer()]


def _lessons() -> list[Figure]:
    chance = random.Random(SEED)
    harmful = [live(-0.3, chance) for _ in range(LESSONS)]
    neutral = [live(0.0, chance) for _ in range(LESSONS)]
    helpful = [live(0.2, chance) for _ in range(LESSONS)]
    pairs = [live(0.0, chance) for _ in range(10 * LESSONS)]
    longer = [live(0.2, chance, 2 * EVENTS) for _ in range(LESSONS)]
    of = f"of {LESSONS}"
    easy_harm = sum(not count_only(0.9, -0.3, chance) for _ in range(LESSONS))
    hard_help = sum(count_only(0.3, 0.15, chance) for _ in range(LESSONS))
    alarms = sum(life.promoted or life.retired is not None for life in pairs)
    return [
        Figure("harmful lesson: median eligible run until quarantine", median_quarantine(harmful), None, "", most=15),
        Figure("harmful lesson: not retired", sum(not x.retired for x in harmful), None, of, most=0.1 * LESSONS),
        Figure("harmful lesson: times shown, mean", sum(x.shown for x in harmful) / LESSONS, None, f"of {EVENTS}"),
        Figure("helpful lesson: wrongly retired", sum(bool(x.retired) for x in helpful), None, of, most=0.01 * LESSONS),
        Figure("the same, over twice the runs", sum(bool(x.retired) for x in longer), None, of, most=0.01 * LESSONS),
        Figure("helpful lesson: promoted", sum(x.promoted for x in helpful), None, of),
        Figure("neutral lesson: promoted", sum(x.promoted for x in neutral), None, of),
        Figure("A/A: alarms of either kind", 100 * alarms / len(pairs), None, f"% of {len(pairs)}", most=5),
        Figure("a counter: harmful lesson on easy tasks that survives", easy_harm, None, of),
        Figure("a counter: helpful lesson on hard tasks that it retires", hard_help, None, of),
    ]


def _edits() -> list[Figure]:
    edits = list(make_edits(300, 300, 60, SEED))
    figures = []
    for shared in (True, False):
        seeds = "shared seeds" if shared else "independent noise"
        for policy, keep in POLICIES.items():
            kept = {"harmful": 0, "null": 0, "good": 0}
            for number, edit in enumerate(edits):
                kept[edit.kind] += keep(Trial(edit, number, shared))
            judged = policy == "ours"
            name = f"{policy}, {seeds}"
            bar = 12.0 if judged and shared else None
            figures += [
                Figure(f"{name}: harmful edits kept", kept["harmful"], None, "of 300", most=0 if judged else None),
                Figure(f"{name}: null edits kept", kept["null"], None, "of 300", most=3 if judged else None),
                Figure(f"{name}: good edits dropped", 60 - kept["good"], None, "of 60", most=bar),
            ]
    return figures


def _reverts() -> list[Figure]:
    """Bad edits that were merged on purpose, past the gate: each costs at least one test of the suite."""
    edits = list(make_edits(300, 300, 0, SEED))
    bad = [edit for edit in edits if edit.kind == "harmful" and not all(edit.after)]
    null = [edit for edit in edits if edit.kind == "null"]
    figures = []
    for shared in (True, False):
        seeds = "shared seeds" if shared else "independent noise"
        took = [runs_until_reverted(Trial(edit, number, shared)) for number, edit in enumerate(bad)]
        wrongly = sum(runs_until_reverted(Trial(e, n, shared)) is not None for n, e in enumerate(null))
        median = statistics.median(runs if runs is not None else WATCHED + 1 for runs in took)
        late = sum(runs is None for runs in took)
        name = f"bad edit merged on purpose, {seeds}"
        figures += [
            Figure(f"{name}: median run at which it is reverted", median, None, "", most=WATCHED),
            Figure(f"{name}: not reverted within 50 runs", late, None, f"of {len(bad)}", most=0 if shared else None),
            Figure(f"null edit, {seeds}: reverted", wrongly, None, f"of {len(null)}"),
        ]
    return figures


def _tampering() -> list[Figure]:
    found = tamper(100, 35)
    return [
        Figure("tampering: edits that change a score", found.scored, None, f"of {found.tried}", most=0),
        Figure("tampering: edits that the policy lets pass", found.allowed, None, f"of {found.tried}"),
        Figure("the same past the policy: scores changed", found.past_policy, None, "of 35"),
    ]


def _rounds() -> list[Figure]:
    found = measure_rounds()
    for arm, rates in found.items():
        print(f"{arm}: " + ", ".join(f"{rate:.2f}" for rate in rates), file=sys.stderr)
    none, lessons, placebo = (100 * found[arm][ROUNDS - 1] for arm in ("none", "lessons", "placebo"))
    return [
        Figure(
            "success with lessons in round 4: missing to +30 points",
            max(0.0, none + 30 - lessons),
            None,
            "points",
            most=0,
        ),
        Figure("placebo in round 4: away from no lessons", abs(placebo - none), None, "points", most=3),
    ]
