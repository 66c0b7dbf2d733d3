"""Playbooks as surfaces show them: state, evidence, effect, and the runs behind it."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

from etude.entities import Entity
from etude.learning.playbooks.playbook_library import LibraryEntry
from etude.playbook import Definition
from etude.store.lessons import Exposure

MOST_LOG = 300.0
"""JSON has no number beyond this power of e."""


class ExposureArms(Entity):
    """Runs that were shown a playbook, and runs that it was withheld from."""

    shown_runs: int = 0
    shown_succeeded: int = 0
    withheld_runs: int = 0
    withheld_succeeded: int = 0


class PlaybookSummary(Entity):
    """A playbook: when to use it, what it says, and what it does to the success of runs."""

    name: str
    description: str
    text: str
    version: str
    """A hash of its file: an edit is a new version."""
    state: Literal["pinned", "active", "probation", "quarantined", "retired"]
    reason: str
    """Why it is in this state."""
    trigger: list[str] = []
    """Words or phrases, one of which a question must have; without any, two words must be shared."""
    source: str | None = None
    """The only dataset that it is for."""
    definitions: list[Definition] = []
    """What words mean, for the rules that answer without a model."""
    eligible: int
    """Runs that it matched."""
    shown: int
    """Runs that it was shown to; a coin withholds it from the others."""
    arms: ExposureArms = ExposureArms()
    """The runs whose outcome is known."""
    effect: float
    """The difference that showing it makes to the share of runs that succeed ..."""
    interval: tuple[float, float]
    """... and its 95% interval."""
    e_harm: float = 1.0
    """The evidence that it lowers success; 20 retires it."""
    e_help: float = 1.0
    """The evidence that it raises success; 20 for one playbook, more if there are many."""
    probability_of_harm: float | None = None
    """Above 0.9 it is quarantined; None with fewer than three runs of each kind."""


class PlaybookExposure(Entity):
    """A run that a playbook matched, and whose outcome is known."""

    run_id: str
    shown: bool
    """Whether it was shown; a coin decides."""
    success: bool
    q: float
    """The probability with which the coin shows it."""
    why: str
    """Why it was a candidate: what matched, a sample of its benefit, and its rank."""
    at: datetime


def summarise_playbook(entry: LibraryEntry) -> PlaybookSummary:
    """Return a playbook as the API shows it."""
    standing = entry.standing
    effect, low, high = standing.effect
    shown = entry.lesson.playbook
    return PlaybookSummary(
        name=shown.name,
        description=shown.description,
        text=shown.text,
        version=entry.lesson.version,
        state=entry.state,
        reason=standing.reason,
        eligible=entry.eligible,
        shown=entry.shown,
        effect=effect,
        interval=(low, high),
        trigger=list(entry.lesson.trigger),
        source=entry.lesson.source,
        definitions=list(entry.lesson.definitions),
        arms=ExposureArms(
            shown_runs=standing.shown.runs,
            shown_succeeded=standing.shown.successes,
            withheld_runs=standing.withheld.runs,
            withheld_succeeded=standing.withheld.successes,
        ),
        e_harm=math.exp(min(standing.log_e_harm, MOST_LOG)),
        e_help=math.exp(min(standing.log_e_help, MOST_LOG)),
        probability_of_harm=standing.p_harm,
    )


def summarise_exposure(exposure: Exposure) -> PlaybookExposure:
    """Return a run that a playbook matched as the API shows it."""
    return PlaybookExposure(
        run_id=exposure.run_id,
        shown=exposure.shown,
        success=exposure.success,
        q=exposure.q,
        why=exposure.why,
        at=exposure.at,
    )
