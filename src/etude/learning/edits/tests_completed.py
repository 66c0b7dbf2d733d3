"""The event `tests_completed`: what it says, and whether it wakes the learning agent."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from etude.entities import Entity
from etude.learning.edits.edit_decision import is_surely_failing
from etude.store.queue import Queue
from etude.store.topics import Topics

if TYPE_CHECKING:
    from etude.learning.edits.suite import TestOutcome
    from etude.store.base import Store

TOPIC = "tests_completed"
NEW_ERROR = 3
"""A new error key that was seen this often wakes the agent."""
SLOWER = 1.5
"""A p95 of the times of tests this many times the usual one wakes it as well."""
USUAL = 10
"""The latest events that the usual p95 is the median of; with fewer than three there is none."""
MOST_KEYS = 500
"""Error keys that are remembered of a repository, and that one event may have."""


class TestsCompleted(Entity):
    """The body of the event: a suite ran on a repository."""

    __test__ = False  # not a test of pytest
    repo: str
    passed: int = Field(ge=0)
    total: int = Field(ge=0)
    suite: str = ""
    errors: dict[str, int] = Field(default_factory=dict, max_length=MOST_KEYS)
    """How many tests failed with each error key: the error with its values masked."""
    p95_s: float | None = Field(default=None, ge=0)
    """The time that 95% of the tests take at most."""

    @property
    def wakes(self) -> bool:
        """True if the pass rate is below 80%, and surely so by its Wilson bound."""
        return is_surely_failing(self.passed, self.total)


class CompletedTestsHistory(Entity):
    """What the agent remembers of earlier events of its repository, to know which errors and times are new."""

    known: tuple[str, ...] = ()
    """Error keys that woke it, or that the first event had."""
    seen: dict[str, int] = Field(default_factory=dict)
    """How often other error keys were seen."""
    times: tuple[float, ...] = ()
    """The p95 of the latest events."""
    events: int = 0

    def add(self, event: TestsCompleted) -> tuple[CompletedTestsHistory, str]:
        """Take one more event into account; return the history with it, and why it wakes the agent, or nothing."""
        reasons = []
        if event.wakes:
            reasons.append(f"{event.passed} of {event.total} tests passed")
        new = Counter(self.seen)
        new.update({key: count for key, count in event.errors.items() if key not in self.known})
        often = [key for key, count in new.items() if count >= NEW_ERROR]
        if often and self.events:
            reasons.append(f"a new error was seen {new[often[0]]} times: {often[0]}")
        if event.p95_s is not None and len(self.times) >= 3 and event.p95_s > SLOWER * statistics.median(self.times):
            usual = statistics.median(self.times)
            reasons.append(f"the p95 of the tests is {event.p95_s:.2g} s, and was {usual:.2g} s")
        # Errors of the first event are not new, and one that woke it once does not do so again.
        known = {*self.known, *often, *(event.errors if not self.events else ())}
        times = (*self.times, event.p95_s) if event.p95_s is not None else self.times
        history = CompletedTestsHistory(
            known=tuple(sorted(known))[:MOST_KEYS],
            seen=dict(Counter({k: n for k, n in new.items() if k not in known}).most_common(MOST_KEYS)),
            times=times[-USUAL:],
            events=self.events + 1,
        )
        return history, "; ".join(reasons)


def summarise_completed_tests(repo: str, outcomes: Iterable[TestOutcome], suite: str = "") -> TestsCompleted:
    """Return the event of these outcomes of tests."""
    from etude.runtime.failed_step import mask_error_values

    ran = [o for o in outcomes if not o.skipped]
    failures = [o.failure for o in ran if not o.passed and o.failure is not None]
    keys = Counter(mask_error_values(f"{f.error}: {f.message}".splitlines()[0])[:200] for f in failures)
    times = sorted(o.seconds for o in ran)
    p95 = times[min(len(times) - 1, int(0.95 * len(times)))] if times else None
    return TestsCompleted(
        repo=repo,
        passed=sum(o.passed for o in ran),
        total=len(ran),
        suite=suite,
        errors=dict(keys.most_common(MOST_KEYS)),
        p95_s=p95,
    )


def publish_tests_completed(store: Store, event: TestsCompleted) -> None:
    """Publish that a suite ran."""
    Topics(Queue(store)).publish(TOPIC, event.model_dump())


def parse_tests_completed(body: Any) -> TestsCompleted | None:
    """Return the event of a body; None if it is not one."""
    try:
        return TestsCompleted.model_validate(body)
    except ValidationError:
        return None
