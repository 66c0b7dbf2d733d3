"""Lessons of known effect, each shown by its coin: what our rules do with them, and what counters do."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

from etude.learning.playbooks.lesson_state import LessonRecord, lesson_show_probability
from etude.learning.statistical_tests import CoinEvent

LESSONS = 100
EVENTS = 300
BASE = 0.6


@dataclass(frozen=True)
class Life:
    """What became of one lesson."""

    quarantined: int | None
    """The eligible run after which it was first quarantined."""
    retired: int | None
    promoted: bool
    shown: int


def live(effect: float, chance: random.Random, events: int = EVENTS) -> Life:
    """Let a lesson live under our rules; its tasks are of mixed difficulty around the base rate."""
    record = LessonRecord()
    quarantined = retired = None
    shown_count = 0
    promoted = False
    for number in range(1, events + 1):
        q = lesson_show_probability(record.standing)
        shown = chance.random() < q
        shown_count += shown
        standing = record.add(CoinEvent(q, shown, chance.random() < BASE + (effect if shown else 0.0)))
        promoted = promoted or standing.state == "active"
        if standing.state == "quarantined" and quarantined is None:
            quarantined = number
        if standing.state == "retired":
            retired = number
            break
    return Life(quarantined or retired, retired, promoted, shown_count)


def count_only(base: float, effect: float, chance: random.Random, uses: int = 100) -> bool:
    """Return whether a counter without a control arm retires a lesson: it fails more often than it succeeds."""
    successes = 0
    for number in range(1, uses + 1):
        successes += chance.random() < base + effect
        if number >= 10 and successes / number < 0.5:
            return True
    return False


def median_quarantine(lives: list[Life]) -> float:
    return statistics.median(life.quarantined or EVENTS for life in lives)
