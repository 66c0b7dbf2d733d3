"""The state of a lesson: how often it is shown, and when it is quarantined, promoted or retired."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from etude.learning.statistical_tests import (
    ONE_IN_20,
    CoinArm,
    CoinEvent,
    CoinTest,
    effect_interval,
    probability_of_harm,
    select_discoveries,
)

LessonState = Literal["draft", "probation", "active", "quarantined", "retired"]
SHOWN_STATES = frozenset({"probation", "active", "quarantined"})
"""The states in which a lesson may be shown."""
LIKELY, UNLIKELY = 0.9, 0.1
MOST_OF_SOURCE, MOST = 20, 200
"""The most playbooks of one source, and in all, that may be shown."""
USELESS_AFTER = 400
"""Events after which a lesson without an effect is retired."""


@dataclass(frozen=True)
class LessonStanding:
    """What the events of a lesson say about it."""

    state: LessonState
    log_e_harm: float = 0.0
    log_e_help: float = 0.0
    p_harm: float | None = None
    shown: CoinArm = field(default_factory=CoinArm)
    withheld: CoinArm = field(default_factory=CoinArm)
    reason: str = ""

    @property
    def events(self) -> int:
        """The eligible runs whose outcome is known."""
        return self.shown.runs + self.withheld.runs

    @property
    def benefit(self) -> float:
        """The posterior mean of the difference that showing it makes; 0 without events."""
        return self.shown.mean - self.withheld.mean

    @property
    def effect(self) -> tuple[float, float, float]:
        """The difference that showing it makes, with its 95% interval."""
        return effect_interval(self.shown, self.withheld)


def lesson_show_probability(standing: LessonStanding) -> float:
    """Return the probability with which an eligible lesson is shown now."""
    match standing.state:
        case "active":
            return 0.9
        case "quarantined":
            return 0.15
        case "probation":
            return 0.85 if standing.p_harm is not None and standing.p_harm < UNLIKELY else 0.5
        case _:
            return 0.0


class LessonRecord:
    """The events of one version of a lesson, folded into its standing as they come."""

    def __init__(self, state: LessonState = "probation") -> None:
        self.standing = LessonStanding(state)
        self._harm, self._help = CoinTest("harm"), CoinTest("help")

    def add(self, event: CoinEvent) -> LessonStanding:
        """Take one more event into account, and return the new standing. A retired version stays retired."""
        self._harm.add(event)
        self._help.add(event)
        before = self.standing
        shown = before.shown.add(event.success) if event.shown else before.shown
        withheld = before.withheld if event.shown else before.withheld.add(event.success)
        p_harm = probability_of_harm(shown, withheld)
        state, reason = _next_state(before, self._harm.log_e, self._help.log_e, p_harm, shown.runs + withheld.runs)
        self.standing = LessonStanding(state, self._harm.log_e, self._help.log_e, p_harm, shown, withheld, reason)
        return self.standing


def fold_lesson_events(events: Iterable[CoinEvent], state: LessonState = "probation") -> LessonStanding:
    """Return the standing of a lesson after its events."""
    record = LessonRecord(state)
    for event in events:
        record.add(event)
    return record.standing


def _next_state(
    before: LessonStanding, log_e_harm: float, log_e_help: float, p_harm: float | None, events: int
) -> tuple[LessonState, str]:
    if before.state in ("retired", "draft"):
        return before.state, before.reason
    if log_e_harm >= ONE_IN_20:
        return "retired", "it lowers success"
    if log_e_help >= ONE_IN_20:
        # An active lesson that turns harmful is shown less at once; its e-value of harm retires it.
        return ("quarantined", "it may lower success") if _is_likely(p_harm) else ("active", "it raises success")
    # A lesson that probably helps is kept in probation: it may only lack events.
    if events >= USELESS_AFTER and (p_harm is None or p_harm >= UNLIKELY):
        return "retired", f"no effect in {events} eligible runs"
    if _is_likely(p_harm):
        return "quarantined", "it may lower success"
    return "probation", ""


def _is_likely(p_harm: float | None) -> bool:
    return p_harm is not None and p_harm > LIKELY


def promotable_lessons(standings: Mapping[str, LessonStanding]) -> set[str]:
    """Return the lessons of a library that may be called helpful together: with more lessons, each needs more."""
    return select_discoveries({name: s.log_e_help for name, s in standings.items() if s.state != "draft"})


def sample_lesson_benefit(standing: LessonStanding, chance: random.Random) -> float:
    """Return a sample of the difference that showing a lesson makes, from its posterior (Thompson sampling)."""
    shown, withheld = (
        chance.betavariate(arm.successes + 1, arm.runs - arm.successes + 1)
        for arm in (standing.shown, standing.withheld)
    )
    return shown - withheld


def lessons_over_cap(standings: Mapping[str, LessonStanding], sources: Mapping[str, str]) -> set[str]:
    """Return the lessons that a library has no room for: those with the lowest posterior benefit leave.

    Among equals the one with the most events leaves, because those with few may only lack evidence.
    """
    ranked = sorted(standings, key=lambda name: (-standings[name].benefit, standings[name].events, name))
    kept: dict[str, int] = {}
    dropped = set()
    for name in ranked:
        source = sources.get(name, "")
        if kept.get(source, 0) >= MOST_OF_SOURCE or sum(kept.values()) >= MOST:
            dropped.add(name)
        else:
            kept[source] = kept.get(source, 0) + 1
    return dropped


@dataclass(frozen=True)
class LessonTrial:
    """An earlier run replayed without and with a draft, with the same seed."""

    seed: int
    before: bool
    after: bool
    steps_before: int = 0
    steps_after: int = 0

    @property
    def improves(self) -> bool:
        """True if the draft turns failure into success, or saves a tenth of the steps at equal success."""
        if not self.before:
            return self.after
        return self.after and self.steps_before > 0 and self.steps_after <= 0.9 * self.steps_before
