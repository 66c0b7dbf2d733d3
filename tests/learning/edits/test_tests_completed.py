"""What wakes the learning agent: a low pass rate, a new error, and tests that became slower."""

from __future__ import annotations

import pytest

from etude.learning.edits.suite import Failure, TestOutcome
from etude.learning.edits.tests_completed import CompletedTestsHistory, TestsCompleted, summarise_completed_tests


def told(passed: int = 100, errors: dict[str, int] | None = None, p95_s: float | None = 1.0) -> TestsCompleted:
    return TestsCompleted(repo="/repo", passed=passed, total=100, errors=errors or {}, p95_s=p95_s)


def reasons(*events: TestsCompleted) -> list[str]:
    history, found = CompletedTestsHistory(), []
    for event in events:
        history, reason = history.add(event)
        found.append(reason)
        history = CompletedTestsHistory.model_validate_json(history.model_dump_json())
    return found


def test_a_pass_rate_that_is_surely_low_wakes_it_each_time() -> None:
    assert reasons(told(passed=60), told(passed=60)) == ["60 of 100 tests passed"] * 2


def test_a_new_error_wakes_it_once_when_it_was_seen_three_times() -> None:
    flaky, new = {"TimeoutError: ?": 3}, {"KeyError: ?": 2}
    found = reasons(told(errors=flaky), told(errors=flaky), told(errors=new), told(errors=new), told(errors=new))
    assert found == ["", "", "", "a new error was seen 4 times: KeyError: ?", ""]


@pytest.mark.parametrize(("p95_s", "wakes"), [(1.4, False), (1.6, True), (None, False)])
def test_slower_tests_wake_it(p95_s: float | None, wakes: bool) -> None:
    *_, reason = reasons(told(), told(p95_s=1.1), told(p95_s=0.9), told(p95_s=p95_s))
    assert bool(reason) == wakes
    assert reasons(told(), told(p95_s=99.0))[-1] == ""  # nothing is usual yet


def test_outcomes_are_summarised_with_errors_of_the_same_kind_together() -> None:
    outcomes = [TestOutcome(True, 0.1) for _ in range(19)] + [
        TestOutcome(False, 2.0, Failure("no key 'a'", "KeyError")),
        TestOutcome(False, 2.0, Failure("no key 'b'", "KeyError")),
        TestOutcome(False, 0.0, Failure("skipped"), skipped=True),
    ]
    event = summarise_completed_tests("/repo", outcomes)
    assert (event.passed, event.total, event.p95_s) == (19, 21, 2.0)
    assert list(event.errors.values()) == [2]
